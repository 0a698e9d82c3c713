//! The runtime thread, and the channel on which other threads wait for its results. The channel uses a pipe, so a
//! signal, the `--timeout` deadline and a cancellation ([`CancelToken`]) also wake the waiting thread.

use crate::error::Stop;
use crate::sys::cancel::{self, CancelToken};
use crate::sys::signal::{self, Deadline};
use crate::sys::sync::IgnorePoison;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Capacity of the queue of progress messages and results; further progress messages are dropped.
const QUEUE_LEN: usize = 64;
/// Interval of the checks for an open question to the user, during which the timeout is paused.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The thread and its runtime. Dropping it ends both without waiting for unfinished tasks.
pub(super) struct RuntimeThread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RuntimeThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread or file descriptors are available.
    pub(super) fn start() -> io::Result<Self> {
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

impl Drop for RuntimeThread {
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
pub(super) async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, coming) = oneshot::channel();
    let held = CancelOnDrop::new()?;
    held.spawn("mcp-apart", move || drop(done.send(work())))?;
    coming.await.map_err(io::Error::other)
}

/// The cancellation of threads (see [`CancelToken`]): dropping this cancels the threads started with it.
pub(super) struct CancelOnDrop(Arc<CancelToken>);

impl CancelOnDrop {
    /// Creates the cancellation; no thread is started yet.
    ///
    /// # Errors
    /// No file descriptors are available.
    pub(super) fn new() -> io::Result<Self> {
        CancelToken::new().map(Self)
    }

    /// Runs `work` on a new thread that this cancels on drop.
    ///
    /// # Errors
    /// No thread is available.
    pub(super) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let leash = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name(name.into());
        thread
            .spawn(move || cancel::scope(Some(leash), work))
            .map(drop)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

enum ChannelMessage<T> {
    Progress(String),
    Done(T),
}

/// The sending end of a channel.
pub(super) struct ReplySender<T> {
    messages: SyncSender<ChannelMessage<T>>,
    /// Wake pipe: one byte per message. The byte is read before its message, so the pipe never fills up.
    wake_tx: Arc<PipeWriter>,
}

/// The receiving end of a channel.
pub(super) struct ReplyReceiver<T> {
    messages: Receiver<ChannelMessage<T>>,
    wake_rx: PipeReader,
}

/// Creates a channel.
///
/// # Errors
/// No file descriptors are available.
pub(super) fn channel<T>() -> io::Result<(ReplySender<T>, ReplyReceiver<T>)> {
    let (bell, hammer) = io::pipe()?;
    let (mouth, ear) = sync_channel(QUEUE_LEN);
    let mouth = ReplySender {
        messages: mouth,
        wake_tx: Arc::new(hammer),
    };
    Ok((
        mouth,
        ReplyReceiver {
            messages: ear,
            wake_rx: bell,
        },
    ))
}

/// A callback for progress messages.
pub(super) type OnProgress = Box<dyn Fn(String) + Send + Sync>;

impl<T: Send + 'static> ReplySender<T> {
    pub(super) fn progress_callback(&self) -> OnProgress {
        let (news, bell) = (
            self.messages.clone(),
            Mutex::new(Arc::downgrade(&self.wake_tx)),
        );
        Box::new(move |words| {
            let bell = bell.lock().ignore_poison();
            let Some(bell) = bell.upgrade() else { return };
            if news.try_send(ChannelMessage::Progress(words)).is_ok() {
                wake(&bell);
            }
        })
    }

    /// Sends the final result. If progress messages fill the queue, the receiver is about to make room.
    pub(super) async fn send_result(self, value: T) {
        let mut news = ChannelMessage::Done(value);
        loop {
            match self.messages.try_send(news) {
                Err(TrySendError::Full(back)) => {
                    news = back;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok(()) => return wake(&self.wake_tx),
                // The receiver is gone.
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

fn wake(mut wake_tx: &PipeWriter) {
    // The write fails only if the receiver is gone.
    drop(wake_tx.write(b"!"));
}

/// The result of waiting.
pub(super) enum Received<T> {
    Done(T),
    /// The timeout has expired.
    TimedOut,
    /// The sender is gone: a bug of ours, or the runtime has ended.
    Disconnected,
    Stopped(Stop),
}

impl<T> ReplyReceiver<T> {
    /// Waits for the result, for at most `timeout`. The timeout is paused while `is_paused` returns true.
    pub(super) fn wait(
        &mut self,
        mut timeout: Deadline,
        is_paused: &dyn Fn() -> bool,
        on_progress: &mut dyn FnMut(&str),
    ) -> Received<T> {
        let mut looked = signal::now();
        loop {
            // The limit ensures that the timeout is checked even if messages keep arriving.
            for news in self.messages.try_iter().take(QUEUE_LEN) {
                match news {
                    ChannelMessage::Progress(words) => on_progress(&words),
                    ChannelMessage::Done(value) => return Received::Done(value),
                }
            }
            let slice = match is_paused() {
                true => Deadline::after(POLL_INTERVAL),
                false => timeout.min(Deadline::after(POLL_INTERVAL)),
            };
            match signal::wait_readable(&self.wake_rx, &mut { slice }) {
                Err(stop) => return Received::Stopped(stop),
                Ok(true) => match self.wake_rx.read(&mut [0; QUEUE_LEN]) {
                    Ok(0) => return self.drain(),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return Received::Disconnected,
                },
                Ok(false) => {}
            }
            // The time spent on progress messages counts as well: they do not extend the timeout.
            let now = signal::now();
            let spent = now.saturating_sub(std::mem::replace(&mut looked, now));
            if !is_paused() {
                timeout.subtract(spent);
                if timeout.is_expired() {
                    return Received::TimedOut;
                }
            }
        }
    }

    /// Reads what is left after the sender is gone; the result may be among it.
    fn drain(&self) -> Received<T> {
        while let Ok(news) = self.messages.try_recv() {
            if let ChannelMessage::Done(value) = news {
                return Received::Done(value);
            }
        }
        Received::Disconnected
    }

    /// Waits for the result for at most `timeout`, regardless of signals and deadlines. For shutdown and for late results
    /// after a cancellation.
    pub(super) fn wait_uninterruptibly(&self, timeout: Duration) -> Option<T> {
        let end = std::time::Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(ChannelMessage::Progress(_)) if left.is_zero() => return None,
                Ok(ChannelMessage::Progress(_)) => {}
                Ok(ChannelMessage::Done(value)) => return Some(value),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}
