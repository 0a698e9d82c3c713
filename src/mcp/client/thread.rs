//! The runtime thread, and the channel on which other threads wait for its results. The channel uses a pipe, so a
//! signal, the `--timeout` deadline and a cancellation ([`Leash`]) also wake the waiting thread.

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

/// Capacity of the queue of progress messages and results; further progress messages are dropped.
const WAITING: usize = 64;
/// Interval of the checks for an open question to the user, during which the timeout is paused.
const SLICE: Duration = Duration::from_millis(200);

/// The thread and its runtime. Dropping it ends both without waiting for unfinished tasks.
pub(super) struct Room {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Room {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread or file descriptors are available.
    pub(super) fn open() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let work = move || {
            drop(runtime.block_on(stopped));
            // Its threads may be blocked in a read that never returns.
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
            // A panic was already reported when it occurred.
            drop(thread.join());
        }
    }
}

/// Runs the blocking function `work` on its own thread, and cancels it when the returned future is dropped.
///
/// # Errors
/// No thread is available, or `work` panicked.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, coming) = oneshot::channel();
    let held = Held::new()?;
    held.spawn("mcp-apart", move || drop(done.send(work())))?;
    coming.await.map_err(io::Error::other)
}

/// The cancellation of threads (see [`Leash`]): dropping this cancels the threads started with it.
pub(super) struct Held(Arc<Leash>);

impl Held {
    /// Creates the cancellation; no thread is started yet.
    ///
    /// # Errors
    /// No file descriptors are available.
    pub(super) fn new() -> io::Result<Self> {
        Leash::new().map(Self)
    }

    /// Runs `work` on a new thread that this cancels on drop.
    ///
    /// # Errors
    /// No thread is available.
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

/// The sending end of a channel.
pub(super) struct Mouth<T> {
    news: SyncSender<News<T>>,
    /// Wake pipe: one byte per message. The byte is read before its message, so the pipe never fills up.
    bell: Arc<PipeWriter>,
}

/// The receiving end of a channel.
pub(super) struct Ear<T> {
    news: Receiver<News<T>>,
    bell: PipeReader,
}

/// Creates a channel.
///
/// # Errors
/// No file descriptors are available.
pub(super) fn channel<T>() -> io::Result<(Mouth<T>, Ear<T>)> {
    let (bell, hammer) = io::pipe()?;
    let (mouth, ear) = sync_channel(WAITING);
    let mouth = Mouth {
        news: mouth,
        bell: Arc::new(hammer),
    };
    Ok((mouth, Ear { news: ear, bell }))
}

/// A callback for progress messages.
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

    /// Sends the final result. If progress messages fill the queue, the receiver is about to make room.
    pub(super) async fn done(self, value: T) {
        let mut news = News::Done(value);
        loop {
            match self.news.try_send(news) {
                Err(TrySendError::Full(back)) => {
                    news = back;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok(()) => return ring(&self.bell),
                // The receiver is gone.
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

fn ring(mut bell: &PipeWriter) {
    // The write fails only if the receiver is gone.
    drop(bell.write(b"!"));
}

/// The result of waiting.
pub(super) enum Heard<T> {
    Done(T),
    /// The timeout has expired.
    Late,
    /// The sender is gone: a bug of ours, or the runtime has ended.
    Gone,
    Stopped(Stop),
}

impl<T> Ear<T> {
    /// Waits for the result, for at most `timeout`. The timeout is paused while `is_paused` returns true.
    pub(super) fn wait(
        &mut self,
        mut patience: Patience,
        is_paused: &dyn Fn() -> bool,
        say: &mut dyn FnMut(&str),
    ) -> Heard<T> {
        let mut looked = signal::now();
        loop {
            // The limit ensures that the timeout is checked even if messages keep arriving.
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
            // The time spent on progress messages counts as well: they do not extend the timeout.
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

    /// Reads what is left after the sender is gone; the result may be among it.
    fn rest(&self) -> Heard<T> {
        while let Ok(news) = self.news.try_recv() {
            if let News::Done(value) = news {
                return Heard::Done(value);
            }
        }
        Heard::Gone
    }

    /// Waits for the result for at most `timeout`, regardless of signals and deadlines. For shutdown and for late results
    /// after a cancellation.
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
