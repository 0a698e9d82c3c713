//! The queue of work: one item at a time in each session, several sessions at the same time. No I/O except for the pipes of cancellation
//! tokens.

use nanobot_channel::inbox::{ChannelInbox, InboundEntry};
use nanobot_os::cancel::CancelToken;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of messages that one turn answers.
pub(crate) const MAX_JOINED_MESSAGES: usize = 10;

/// Something to do in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkItem {
    /// Answer a message. Successive messages of one sender are answered together if both may be joined.
    Message { id: String, sender: String, may_join: bool },
    /// Deliver the outbound message with this key, which an earlier poll or another process has left. The worker of a turn delivers its
    /// answer itself.
    Deliver(String),
}

impl WorkItem {
    /// The id of the message, or the key.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Message { id, .. } => id,
            Self::Deliver(key) => key,
        }
    }

    /// The item, answered by a turn of its own if it is a message.
    pub(crate) fn alone(self) -> Self {
        match self {
            Self::Message { id, sender, .. } => Self::Message { id, sender, may_join: false },
            Self::Deliver(key) => Self::Deliver(key),
        }
    }
}

/// Work in a session, taken by a worker.
#[derive(Debug)]
pub(crate) struct SessionWork {
    /// The index of the channel, see [`ChannelRun::channel`](super::channel_run::ChannelRun::channel).
    pub(crate) channel_index: usize,
    pub(crate) session: String,
    /// One item, or several messages that one turn answers.
    pub(crate) items: Vec<WorkItem>,
    /// Cancels the turn.
    pub(crate) token: Arc<CancelToken>,
    /// The ids of the messages that the turn has taken while it ran.
    joined_ids: Mutex<Vec<String>>,
}

/// The queue of all sessions.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    max_workers: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    pending: HashMap<(usize, String), VecDeque<WorkItem>>,
    /// Sessions with pending work and without running work.
    ready: VecDeque<(usize, String)>,
    running: HashMap<(usize, String), Arc<SessionWork>>,
    workers: usize,
    is_closed: bool,
}

impl SessionWork {
    /// Adds a message that the turn has taken.
    pub(crate) fn join(&self, id: String) {
        self.joined_ids.lock().push(id);
    }

    /// The entries of its messages that are not answered, in their order. If a turn was begun for the first message, these
    /// are the messages of that turn. Those that the turn has taken while it ran come last.
    pub(crate) fn unanswered(&self, inbox: &ChannelInbox) -> Vec<InboundEntry> {
        let id_of = |item: &WorkItem| match item {
            WorkItem::Message { id, .. } => Some(id.clone()),
            WorkItem::Deliver(_) => None,
        };
        let mut ids: Vec<String> = self.items.iter().filter_map(id_of).collect();
        let first = ids.first().and_then(|id| inbox.state().inbound(id));
        if let Some(turn) = first.and_then(|entry| entry.turns.last()) {
            ids.clone_from(&turn.ids);
        }
        for id in self.joined_ids.lock().iter() {
            if !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        let entries = ids.iter().filter_map(|id| inbox.state().inbound(id));
        entries.filter(|entry| entry.is_unanswered()).cloned().collect()
    }
}

impl WorkQueue {
    /// Creates an empty queue for at most `max_workers` sessions at once.
    pub(crate) fn new(max_workers: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), max_workers: max_workers.max(1) }
    }

    /// Adds work of sessions; no worker takes an item before all are added. Returns the number of workers that the caller
    /// must start. Each of them calls [`Self::take`] until that returns `None`.
    #[must_use]
    pub(crate) fn push_all(&self, channel_index: usize, work: Vec<(String, WorkItem)>) -> usize {
        let mut state = self.state.lock();
        let mut new_sessions = 0;
        for (session, item) in work {
            let key = (channel_index, session);
            let is_idle = !state.pending.contains_key(&key) && !state.running.contains_key(&key);
            if is_idle {
                state.ready.push_back(key.clone());
                new_sessions += 1;
            }
            state.pending.entry(key).or_default().push_back(item);
        }
        let count = new_sessions.min(self.max_workers - state.workers);
        state.workers += count;
        count
    }

    /// Takes the next work for a worker, which has finished `last_work`. `None` ends the worker.
    pub(crate) fn take(&self, last_work: Option<&SessionWork>) -> Option<Arc<SessionWork>> {
        let mut state = self.state.lock();
        if let Some(work) = last_work {
            let key = (work.channel_index, work.session.clone());
            state.running.remove(&key);
            if state.pending.contains_key(&key) {
                state.ready.push_back(key);
            }
        }
        self.changed.notify_all();
        // A token needs a descriptor. If there is none left, the worker ends, and the work stays in the queue.
        let token = if state.is_closed { None } else { CancelToken::new().ok() };
        let next_work = token.and_then(|token| Some((state.ready.pop_front()?, token)));
        let Some((key, token)) = next_work else {
            state.workers -= 1;
            return None;
        };
        let mut pending = state.pending.remove(&key).unwrap_or_default();
        let items = take_joined(&mut pending);
        if !pending.is_empty() {
            state.pending.insert(key.clone(), pending);
        }
        let work = Arc::new(SessionWork {
            channel_index: key.0,
            session: key.1.clone(),
            items,
            token,
            joined_ids: Mutex::default(),
        });
        state.running.insert(key, Arc::clone(&work));
        Some(work)
    }

    /// The work in progress of a session.
    pub(crate) fn running(&self, channel_index: usize, session: &str) -> Option<Arc<SessionWork>> {
        let state = self.state.lock();
        state.running.get(&(channel_index, session.to_owned())).cloned()
    }

    /// Cancels all running turns.
    pub(crate) fn cancel_all(&self) {
        self.state.lock().running.values().for_each(|work| work.token.cancel());
    }

    /// Closes the queue: no more work is started.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// True after [`Self::close`].
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// True if nothing runs and nothing is pending.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.running.is_empty() && state.pending.is_empty()
    }

    /// Waits until fewer than `limit` items are pending, or the queue is closed.
    pub(crate) fn wait_below(&self, limit: usize) {
        let mut state = self.state.lock();
        while !state.is_closed && state.pending.values().map(VecDeque::len).sum::<usize>() >= limit
        {
            self.changed.wait_for(&mut state, Duration::from_secs(1));
        }
    }
}

/// Takes the first item, and the messages after it that the same turn answers.
fn take_joined(pending: &mut VecDeque<WorkItem>) -> Vec<WorkItem> {
    let mut items: Vec<WorkItem> = pending.pop_front().into_iter().collect();
    let Some(WorkItem::Message { sender, may_join: true, .. }) = items.first().cloned() else {
        return items;
    };
    while items.len() < MAX_JOINED_MESSAGES
        && let Some(next) = pending.pop_front_if(|next| {
            matches!(next, WorkItem::Message { sender: other, may_join: true, .. } if *other == sender)
        })
    {
        items.push(next);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::{WorkItem, WorkQueue};

    fn message(id: &str, sender: &str, may_join: bool) -> WorkItem {
        WorkItem::Message { id: id.into(), sender: sender.into(), may_join }
    }

    /// Adds one item. True if a worker must be started.
    fn push(queue: &WorkQueue, session: &str, item: WorkItem) -> bool {
        queue.push_all(0, vec![(session.to_owned(), item)]) == 1
    }

    fn ids(items: &[WorkItem]) -> String {
        let id = |item: &WorkItem| match item {
            WorkItem::Message { id, .. } => id.clone(),
            WorkItem::Deliver(key) => format!("deliver {key}"),
        };
        items.iter().map(id).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn one_at_a_time_in_a_session_and_neighbours_are_joined() {
        let queue = WorkQueue::new(2);
        assert!(push(&queue, "a", message("1", "ann", true)));
        let first = queue.take(None).unwrap();
        assert_eq!(ids(&first.items), "1");
        for item in [
            message("2", "ann", true),
            message("3", "ann", true),
            message("4", "bob", true),
            message("5", "bob", false),
        ] {
            assert!(!push(&queue, "a", item), "the session is busy");
        }
        assert!(push(&queue, "b", WorkItem::Deliver("x".into())));
        let other = queue.take(None).unwrap();
        assert_eq!(ids(&other.items), "deliver x");
        assert!(!push(&queue, "c", message("6", "eve", true)), "two workers");
        let next = queue.take(Some(&first)).unwrap();
        assert_eq!(ids(&next.items), "6");
        let next = queue.take(Some(&next)).unwrap();
        assert_eq!(ids(&next.items), "2 3");
        assert_eq!(ids(&queue.running(0, "a").unwrap().items), "2 3");
        assert!(queue.running(1, "a").is_none());
        let next = queue.take(Some(&next)).unwrap();
        assert_eq!(ids(&next.items), "4");
        assert!(queue.take(Some(&other)).is_none());
        let next = queue.take(Some(&next)).unwrap();
        assert_eq!(ids(&next.items), "5");
        assert!(queue.take(Some(&next)).is_none());
        assert!(push(&queue, "a", message("7", "ann", true)), "workers ended");
    }

    #[test]
    fn at_most_ten_messages_are_joined_and_a_closed_queue_starts_nothing() {
        let queue = WorkQueue::new(1);
        for number in 0..12 {
            let starts = push(&queue, "a", message(&number.to_string(), "ann", true));
            assert_eq!(starts, number == 0);
        }
        let first = queue.take(None).unwrap();
        assert_eq!(first.items.len(), 10);
        queue.close();
        assert!(queue.take(Some(&first)).is_none());
    }
}
