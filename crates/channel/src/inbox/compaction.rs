//! The records that remain of a journal when it is written anew.

use super::{
    BegunTurn, HOUR_MILLIS, InboundEntry, InboxAges, InboxRecord, InboxState, OutboundEntry,
};
use crate::InboundMessage;
use crate::settlement::Settlement;
use nanobot_os::age::Age;
use std::collections::BTreeMap;

/// The ids of messages are kept for a day at least, since services repeat messages for so long.
const DAY_MILLIS: i64 = 24 * HOUR_MILLIS;
/// Maximum number of delivered messages whose text is kept for the sessions that do not have it yet.
const MAX_KEPT_TEXTS: usize = 100;
/// Maximum number of settled messages, and of settled answers, that are remembered.
const MAX_SETTLED_MESSAGES: usize = 10_000;

impl InboxState {
    /// True if entries have been settled for a day longer than `ages`: with that day, a journal is written anew for this cause once a
    /// day at most. Each such entry is one that a compaction removes.
    pub fn has_expired(&self, now: i64, ages: InboxAges) -> bool {
        let a_day_ago = now - DAY_MILLIS;
        let since = first_kept(a_day_ago, ages.settled);
        let is_counted = |turn: &BegunTurn| turn.at >= now - HOUR_MILLIS;
        let has_old_message = self.inbound.iter().any(|entry| {
            entry.settlement.is_some()
                && entry.received_at < since
                && !entry.turns.iter().any(is_counted)
        });
        let ids_since = since.min(a_day_ago - DAY_MILLIS);
        has_old_message
            || self
                .outbound
                .iter()
                .any(|entry| entry.settlement.is_some() && self.is_old(entry, a_day_ago, ages))
            || self.settled_order.iter().any(|(_, at)| *at < ids_since)
    }

    /// True if a settled message is so old that it is forgotten. What its session has not got yet is a part of the conversation.
    fn is_old(&self, entry: &OutboundEntry, now: i64, ages: InboxAges) -> bool {
        let is_older_than = |age: Age| entry.message.at < first_kept(now, age);
        let is_unread =
            || is_for_session(entry) && !entry.message.parts.is_empty() && !self.is_read(entry);
        is_older_than(ages.settled) && (is_older_than(ages.unread) || !is_unread())
    }

    /// True if a turn in the session of the message was begun since: it has read the message.
    fn is_read(&self, entry: &OutboundEntry) -> bool {
        self.inbound.iter().any(|inbound| {
            inbound.session == entry.message.session
                && inbound.turns.iter().any(|turn| turn.at > entry.message.at)
        })
    }

    /// The records of a journal for later runs: waiting messages, ids against duplicates, and keys with the
    /// service's ids. With `keeps_answers`, the text of answers too; their `answers` are then the ids against duplicates.
    pub(super) fn compacted(
        &self,
        now: i64,
        ages: InboxAges,
        keeps_answers: bool,
    ) -> Vec<InboxRecord> {
        let since = first_kept(now, ages.settled);
        let mut records = Vec::new();
        if !keeps_answers {
            // These come first: a message is ignored once its id is settled.
            records.extend(self.dropped_since(since));
            records.extend(self.recent_turns(now - HOUR_MILLIS));
            records.extend(self.settled_ids_since(since.min(now - DAY_MILLIS)));
        }
        records.extend(self.refused.iter().map(|refused| InboxRecord::Refused {
            sender: refused.sender.clone(),
            chat: refused.chat.clone(),
            at: refused.last_at,
        }));
        records.extend(self.unsettled_inbound());
        let settled = self.outbound.iter().filter(|entry| entry.settlement.is_some());
        let mut excess = settled.count().saturating_sub(MAX_SETTLED_MESSAGES);
        let unread = |entry: &&OutboundEntry| is_for_session(entry) && !self.is_read(entry);
        let unread_count = self.outbound.iter().filter(unread).count();
        let mut without_text = unread_count.saturating_sub(MAX_KEPT_TEXTS);
        for entry in &self.outbound {
            let is_unread = unread(&entry);
            let keeps_text = is_unread && without_text == 0;
            without_text -= usize::from(is_unread && !keeps_text);
            if entry.settlement.is_some() {
                let is_excess = excess > 0;
                excess -= usize::from(is_excess);
                if is_excess || self.is_old(entry, now, ages) {
                    continue;
                }
            }
            let mut message = entry.message.clone();
            // A message that was not delivered can be sent again by hand.
            if is_delivered(entry) && !keeps_answers && !keeps_text {
                message.parts.clear();
            }
            let key = message.key.clone();
            records.push(InboxRecord::Out(message));
            let sent = entry.sent.iter().map(|(part, remote)| InboxRecord::Sent {
                key: key.clone(),
                part: *part,
                remote: remote.clone(),
            });
            records.extend(sent);
            records.extend(
                entry.settlement.map(|result| InboxRecord::Done { key: key.clone(), result }),
            );
        }
        records
    }

    /// The ids of messages that were settled since `since`, by day.
    fn settled_ids_since(&self, since: i64) -> Vec<InboxRecord> {
        let settled = self.inbound.iter().filter(|entry| entry.settlement.is_some());
        let settled = settled.map(|entry| (entry.message.id.clone(), entry.received_at));
        let earlier = self.settled_order.iter().cloned();
        let mut ids: Vec<(String, i64)> =
            earlier.chain(settled).filter(|(_, at)| *at >= since).collect();
        ids.drain(..ids.len().saturating_sub(MAX_SETTLED_MESSAGES));
        let mut by_day: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (id, at) in ids {
            by_day.entry(at / DAY_MILLIS).or_default().push(id);
        }
        let days =
            by_day.into_iter().map(|(day, ids)| InboxRecord::Settled { ids, at: day * DAY_MILLIS });
        days.collect()
    }

    /// The messages that were dropped since `since`, which can be retried.
    fn dropped_since(&self, since: i64) -> Vec<InboxRecord> {
        let dropped = self.inbound.iter();
        let dropped = dropped.filter(|entry| entry.is_dropped() && entry.received_at >= since);
        let mut records = Vec::new();
        for entry in dropped {
            records.push(entry.to_record(entry.message.clone()));
            let ids = vec![entry.message.id.clone()];
            records.extend(entry.settlement.map(|result| InboxRecord::Dropped { ids, result }));
        }
        records
    }

    /// The senders of settled messages and the turns that were begun for them since `since`, which their limit counts.
    fn recent_turns(&self, since: i64) -> Vec<InboxRecord> {
        let mut records = Vec::new();
        for entry in &self.inbound {
            let Some(result) = entry.settlement else {
                continue;
            };
            let recent = entry.turns.iter().filter(|turn| turn.at >= since);
            let mut turns = recent.map(BegunTurn::to_record).peekable();
            if turns.peek().is_some() {
                let InboundMessage { id, from, .. } = entry.message.clone();
                let ids = vec![id.clone()];
                let message = InboundMessage { id, from, ..InboundMessage::default() };
                records.push(entry.to_record(message));
                records.extend(turns);
                records.push(InboxRecord::Dropped { ids, result });
            }
        }
        records
    }

    /// The records of messages that wait, with the turns that were begun for them.
    fn unsettled_inbound(&self) -> Vec<InboxRecord> {
        let (mut records, mut turns) = (Vec::new(), Vec::new());
        for entry in self.inbound.iter().filter(|entry| entry.settlement.is_none()) {
            records.push(entry.to_record(entry.message.clone()));
            if let Some(remote) = &entry.draft {
                let ids = vec![entry.message.id.clone()];
                records.push(InboxRecord::Draft { ids, remote: remote.clone() });
            }
            for turn in &entry.turns {
                if !turns.contains(turn) {
                    turns.push(turn.clone());
                }
            }
        }
        records.extend(turns.iter().map(BegunTurn::to_record));
        records
    }
}

/// True if the message is one of others that was delivered to the chat of its session, which reads it at its next turn.
fn is_for_session(entry: &OutboundEntry) -> bool {
    entry.message.source.is_some() && is_delivered(entry)
}

fn is_delivered(entry: &OutboundEntry) -> bool {
    entry.settlement == Some(Settlement::Delivered)
}

/// The time before which settled entries are forgotten, in milliseconds since 1970.
fn first_kept(now: i64, age: Age) -> i64 {
    match age {
        Age::Never => i64::MIN,
        Age::After(span) => now.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
    }
}

impl InboundEntry {
    /// The record of its arrival, with `message` in place of its own.
    fn to_record(&self, message: InboundMessage) -> InboxRecord {
        InboxRecord::In { message, session: self.session.clone(), at: self.received_at }
    }
}

impl BegunTurn {
    fn to_record(&self) -> InboxRecord {
        InboxRecord::Turn {
            ids: self.ids.clone(),
            turn: self.turn.clone(),
            at: self.at,
            ended: self.ended,
        }
    }
}
