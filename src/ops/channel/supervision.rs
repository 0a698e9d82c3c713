//! The end of a run that serves several messages: it waits for its threads, and for signals.

use crate::ops::channel::work_queue::WorkQueue;
use crate::sys::graceful_stop::GracefulStop;
use crate::sys::signal::{self, Deadline};
use rustix::event::PollFlags;
use std::os::fd::AsFd;
use std::time::Duration;

/// Waits until `done_rx` reports that all its writers are closed. The first signal closes the queue and calls
/// `on_stop`; the second one cancels all turns, as the end of the grace period does.
pub(crate) fn wait_for_end(
    queue: &WorkQueue,
    stop: &GracefulStop,
    done_rx: &impl AsFd,
    grace: Duration,
    on_stop: &dyn Fn(),
) {
    let mut has_signal = stop.exit().is_some();
    let mut deadline = match has_signal {
        true => Deadline::after(grace),
        false => Deadline::never(),
    };
    loop {
        let fds = [
            (done_rx.as_fd(), PollFlags::IN),
            (stop.as_fd(), PollFlags::IN),
        ];
        match signal::wait(&fds, &mut deadline) {
            Ok(Some(0)) | Err(_) => return,
            Ok(Some(_)) if !has_signal => {
                has_signal = stop.take().is_some();
                queue.close();
                on_stop();
                deadline = Deadline::after(grace);
            }
            Ok(_) => {
                stop.take();
                queue.cancel_all();
                deadline = Deadline::never();
            }
        }
    }
}
