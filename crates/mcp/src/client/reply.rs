//! The channel on which a caller waits for the result of its request. It uses a pipe, so a signal, the `--timeout`
//! deadline and a cancellation ([`nanobot_os::cancel`]) also wake the waiting thread.

use crate::protocol::McpError;
use nanobot_base::error::Stop;
use nanobot_base::json_rpc::ErrorObject;
use nanobot_os::signal::{self, Deadline};
use parking_lot::Mutex;
use serde_json::Value;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// Maximum of progress messages that wait for the caller; further ones are dropped.
const MAX_PROGRESS: usize = 64;
/// Interval of the checks whether a question to the user is open, during which the timeout is paused.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The reason why a request has no result.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The server answered with an error.
    Refused(ErrorObject),
    /// The connection had already ended.
    NotSent(McpError),
    SendFailed(McpError),
    /// The connection or the response ended before the result was complete.
    Closed,
    TimedOut,
    Stopped(Stop),
}

pub(super) type RequestResult = Result<Value, RequestError>;

/// The limit of a caller's requests, and its receiver of progress.
pub(super) struct Wait<'a> {
    /// The time left.
    pub(super) deadline: Deadline,
    /// Receives progress messages.
    pub(super) on_progress: &'a mut dyn FnMut(&str),
}

/// Messages that have arrived and that the caller has not taken.
#[derive(Default)]
struct PendingMessages {
    progress: Vec<String>,
    result: Option<RequestResult>,
}

/// The sending end of a channel.
pub(super) struct ReplySender {
    messages: Arc<Mutex<PendingMessages>>,
    /// Wake pipe. It gets few bytes: one for the result, and one for progress whenever the caller has taken all of it.
    wake_tx: PipeWriter,
}

/// The receiving end of a channel.
pub(super) struct ReplyReceiver {
    messages: Arc<Mutex<PendingMessages>>,
    wake_rx: PipeReader,
}

/// Creates a channel.
///
/// # Errors
/// No file descriptors are available.
pub(super) fn channel() -> io::Result<(ReplySender, ReplyReceiver)> {
    let (wake_rx, wake_tx) = io::pipe()?;
    let messages = Arc::<Mutex<PendingMessages>>::default();
    let sender = ReplySender { messages: Arc::clone(&messages), wake_tx };
    Ok((sender, ReplyReceiver { messages, wake_rx }))
}

impl ReplySender {
    pub(super) fn send_progress(&self, message: String) {
        let mut messages = self.messages.lock();
        if messages.progress.is_empty() {
            self.wake();
        }
        if messages.progress.len() < MAX_PROGRESS {
            messages.progress.push(message);
        }
    }

    pub(super) fn send(self, result: RequestResult) {
        self.messages.lock().result = Some(result);
        self.wake();
    }

    fn wake(&self) {
        // The write fails only if the receiver is gone.
        drop((&self.wake_tx).write(b"!"));
    }
}

/// The result of waiting.
pub(super) enum Received {
    Result(RequestResult),
    /// The time is up.
    TimedOut,
    /// The sender is gone: the connection has ended.
    Disconnected,
    Stopped(Stop),
}

impl ReplyReceiver {
    /// Waits for the result. The deadline is paused while `is_paused` returns true.
    pub(super) fn receive(
        &mut self,
        wait: &mut Wait<'_>,
        is_paused: &dyn Fn() -> bool,
    ) -> Received {
        let mut last_check = signal::now();
        loop {
            let PendingMessages { progress, result } = self.take();
            for message in progress {
                (wait.on_progress)(&message);
            }
            if let Some(result) = result {
                return Received::Result(result);
            }
            let mut poll_deadline = if is_paused() {
                Deadline::after(POLL_INTERVAL)
            } else {
                wait.deadline.min(Deadline::after(POLL_INTERVAL))
            };
            match signal::wait_readable(&self.wake_rx, &mut poll_deadline) {
                Err(stop) => return Received::Stopped(stop),
                Ok(true) => match self.wake_rx.read(&mut [0; 16]) {
                    Ok(0) => {
                        let result = self.take().result;
                        return result.map_or(Received::Disconnected, Received::Result);
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return Received::Disconnected,
                },
                Ok(false) => {}
            }
            // The time spent on progress messages is included: they do not extend the deadline.
            let now = signal::now();
            let spent = now.saturating_sub(std::mem::replace(&mut last_check, now));
            if !is_paused() {
                wait.deadline.subtract(spent);
                if wait.deadline.is_expired() {
                    return Received::TimedOut;
                }
            }
        }
    }

    /// Returns the result if it has arrived.
    pub(super) fn try_receive(&mut self) -> Option<RequestResult> {
        self.take().result
    }

    fn take(&mut self) -> PendingMessages {
        std::mem::take(&mut self.messages.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PROGRESS, Received, Wait, channel};
    use nanobot_os::signal::Deadline;
    use serde_json::json;
    use std::time::Duration;

    /// Waits with this deadline. Returns the progress messages and the outcome.
    fn receive(receiver: &mut super::ReplyReceiver, deadline: Deadline) -> (Vec<String>, Received) {
        let mut progress = Vec::new();
        let mut wait =
            Wait { deadline, on_progress: &mut |message| progress.push(message.to_owned()) };
        let received = receiver.receive(&mut wait, &|| false);
        (progress, received)
    }

    #[test]
    fn progress_is_bounded_and_precedes_the_reply() {
        let (sender, mut receiver) = channel().unwrap();
        for number in 0..MAX_PROGRESS * 3 {
            sender.send_progress(number.to_string());
        }
        sender.send(Ok(json!(7)));
        let (progress, received) = receive(&mut receiver, Deadline::never());
        assert_eq!(progress.len(), MAX_PROGRESS);
        assert!(matches!(received, Received::Result(Ok(value)) if value == 7));
    }

    #[test]
    fn waiting_ends_without_a_reply() {
        let (sender, mut receiver) = channel().unwrap();
        sender.send_progress("a".into());
        let soon = Deadline::after(Duration::from_millis(1));
        let (progress, received) = receive(&mut receiver, soon);
        assert_eq!(progress, ["a"]);
        assert!(matches!(received, Received::TimedOut));
        drop(sender);
        let (_, received) = receive(&mut receiver, Deadline::never());
        assert!(matches!(received, Received::Disconnected));
    }
}
