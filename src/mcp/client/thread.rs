//! The thread on which everything asynchronous happens, and how others wait for what happens there: by a pipe, so that a
//! signal, the end of `--timeout` and a cut leash wake them too.

use crate::error::Stop;
use crate::sys::leash::{self, Leash};
use crate::sys::signal::{self, Patience};
use crate::sys::sync::IgnorePoison;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// So much of what a server tells of its progress waits to be shown; more of it is dropped.
const WAITING: usize = 64;
/// How often is looked whether a person is being asked meanwhile, whose time is nobody's fault.
const SLICE: Duration = Duration::from_millis(200);

/// The thread and its runtime. It ends with this value, and waits for nothing.
pub(super) struct Room {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Room {
    /// # Errors
    /// The system gives no thread, or no descriptors.
    pub(super) fn open() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let work = move || {
            drop(runtime.block_on(stopped));
            // Its threads may hang in a read that nothing ends.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("mcp".into()).spawn(work)?;
        Ok(Self {
            handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it was told when it happened.
            drop(thread.join());
        }
    }
}

/// Do `work`, which blocks, on a thread of its own, under a leash that is cut when nobody waits for it any more.
///
/// # Errors
/// The system gives no thread, or the work panicked.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, coming) = oneshot::channel();
    let held = Held::new()?;
    held.spawn("mcp-apart", move || drop(done.send(work())))?;
    coming.await.map_err(io::Error::other)
}

/// Holds a thread: dropped, it cuts the leash that the thread works under.
pub(super) struct Held(Arc<Leash>);

impl Held {
    /// # Errors
    /// No descriptors are left.
    pub(super) fn new() -> io::Result<Self> {
        Leash::new().map(Self)
    }

    /// # Errors
    /// The system gives no thread.
    pub(super) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let leash = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name(name.into());
        thread
            .spawn(move || leash::under(Some(leash), work))
            .map(drop)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.cut();
    }
}

enum News<T> {
    Said(String),
    Done(T),
}

/// Tells whoever waits.
pub(super) struct Mouth<T> {
    news: SyncSender<News<T>>,
    /// A byte for each piece of news, which is read before the news is; so it always fits.
    bell: Arc<PipeWriter>,
}

/// What somebody waits at.
pub(super) struct Ear<T> {
    news: Receiver<News<T>>,
    bell: PipeReader,
}

/// # Errors
/// No descriptors are left.
pub(super) fn channel<T>() -> io::Result<(Mouth<T>, Ear<T>)> {
    let (bell, hammer) = io::pipe()?;
    let (mouth, ear) = sync_channel(WAITING);
    let mouth = Mouth {
        news: mouth,
        bell: Arc::new(hammer),
    };
    Ok((mouth, Ear { news: ear, bell }))
}

/// Tells of progress alone.
pub(super) type Say = Box<dyn Fn(String) + Send + Sync>;

impl<T: Send + 'static> Mouth<T> {
    pub(super) fn sayer(&self) -> Say {
        let (news, bell) = (self.news.clone(), Mutex::new(Arc::downgrade(&self.bell)));
        Box::new(move |words| {
            let bell = bell.lock().ignore_poison();
            let Some(bell) = bell.upgrade() else { return };
            if news.try_send(News::Said(words)).is_ok() {
                ring(&bell);
            }
        })
    }

    /// The end of it. Where what was said before fills the channel, whoever waits is about to make room.
    pub(super) async fn done(self, value: T) {
        let mut news = News::Done(value);
        loop {
            match self.news.try_send(news) {
                Err(TrySendError::Full(back)) => {
                    news = back;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok(()) => return ring(&self.bell),
                // Nobody waits any more.
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

fn ring(mut bell: &PipeWriter) {
    // It fails only where nobody listens.
    drop(bell.write(b"!"));
}

/// How waiting ended.
pub(super) enum Heard<T> {
    Done(T),
    /// The patience is over.
    Late,
    /// What was waited for has come to nothing: a defect of ours, or the runtime is gone.
    Gone,
    Stopped(Stop),
}

impl<T> Ear<T> {
    /// Wait for the end, as long as `patience` lasts; while `is_paused`, nothing of it is spent.
    pub(super) fn wait(
        &mut self,
        mut patience: Patience,
        is_paused: &dyn Fn() -> bool,
        say: &mut dyn FnMut(&str),
    ) -> Heard<T> {
        let mut looked = signal::now();
        loop {
            // More may come all the time.
            for news in self.news.try_iter().take(WAITING) {
                match news {
                    News::Said(words) => say(&words),
                    News::Done(value) => return Heard::Done(value),
                }
            }
            let slice = match is_paused() {
                true => Patience::of(SLICE),
                false => patience.min(Patience::of(SLICE)),
            };
            match signal::readable(&self.bell, &mut { slice }) {
                Err(stop) => return Heard::Stopped(stop),
                Ok(true) => match self.bell.read(&mut [0; WAITING]) {
                    Ok(0) => return self.rest(),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return Heard::Gone,
                },
                Ok(false) => {}
            }
            // All time counts, in which something was told too: that puts off nothing.
            let now = signal::now();
            let spent = now.saturating_sub(std::mem::replace(&mut looked, now));
            if !is_paused() {
                patience.spend(spent);
                if patience.is_over() {
                    return Heard::Late;
                }
            }
        }
    }

    /// Nobody speaks any more: perhaps the end was said.
    fn rest(&self) -> Heard<T> {
        while let Ok(news) = self.news.try_recv() {
            if let News::Done(value) = news {
                return Heard::Done(value);
            }
        }
        Heard::Gone
    }

    /// Wait for the end for `limit`, whatever else happens: for last words.
    pub(super) fn wait_shortly(&self, limit: Duration) -> Option<T> {
        let end = std::time::Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            match self.news.recv_timeout(left) {
                Ok(News::Said(_)) if left.is_zero() => return None,
                Ok(News::Said(_)) => {}
                Ok(News::Done(value)) => return Some(value),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}
