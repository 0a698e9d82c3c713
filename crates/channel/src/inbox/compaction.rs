//! The records that remain of a journal when it is written anew.

use super::{BegunTurn, HOUR_MILLIS, InboxRecord, InboxState, OutboundEntry};
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
    /// True if entries have been settled for a day longer than `age`: with that day, a journal is written anew for this cause once a
    /// day at most. Each such entry is one that a compaction removes.
    pub fn has_expired(&self, now: i64, age: Age) -> bool {
        let since = first_kept(now, age).saturating_sub(DAY_MILLIS);
        let ids_since = since.min(now - 2 * DAY_MILLIS);
        let is_counted = |turn: &BegunTurn| turn.at >= now - HOUR_MILLIS;
        let has_old_message = self.inbound.iter().any(|entry| {
            entry.settlement.is_some()
                && entry.received_at < since
                && !entry.turns.iter().any(is_counted)
        });
        let is_old = |entry: &OutboundEntry| entry.settlement.is_some() && entry.message.at < since;
        has_old_message
            || self.outbound.iter().any(is_old)
            || self.settled_order.iter().any(|(_, at)| *at < ids_since)
    }

    /// The records of a journal for later runs: waiting messages, ids against duplicates, and keys with the
    /// service's ids. With `keeps_answers`, the text of answers too; their `answers` are then the ids against duplicates.
    pub(super) fn compacted(&self, now: i64, age: Age, keeps_answers: bool) -> Vec<InboxRecord> {
        let since = first_kept(now, age);
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
        let is_delivered = |entry: &OutboundEntry| entry.settlement == Some(Settlement::Delivered);
        let from_others = self
            .outbound
            .iter()
            .filter(|entry| entry.message.source.is_some() && is_delivered(entry));
        let mut without_text = from_others.count().saturating_sub(MAX_KEPT_TEXTS);
        for entry in &self.outbound {
            let is_for_session = entry.message.source.is_some() && is_delivered(entry);
            let keeps_text = is_for_session && without_text == 0;
            without_text -= usize::from(is_for_session && !keeps_text);
            if entry.settlement.is_some() {
                let is_excess = excess > 0;
                excess -= usize::from(is_excess);
                if is_excess || entry.message.at < since {
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
            records.push(InboxRecord::In {
                message: entry.message.clone(),
                session: entry.session.clone(),
                at: entry.received_at,
            });
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
                let InboundMessage { id, from, .. } = &entry.message;
                records.push(InboxRecord::In {
                    message: InboundMessage {
                        id: id.clone(),
                        from: from.clone(),
                        ..InboundMessage::default()
                    },
                    session: entry.session.clone(),
                    at: entry.received_at,
                });
                records.extend(turns);
                let ids = vec![id.clone()];
                records.push(InboxRecord::Dropped { ids, result });
            }
        }
        records
    }

    /// The records of messages that wait, with the turns that were begun for them.
    fn unsettled_inbound(&self) -> Vec<InboxRecord> {
        let (mut records, mut turns) = (Vec::new(), Vec::new());
        for entry in self.inbound.iter().filter(|entry| entry.settlement.is_none()) {
            records.push(InboxRecord::In {
                message: entry.message.clone(),
                session: entry.session.clone(),
                at: entry.received_at,
            });
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

/// The time before which settled entries are forgotten, in milliseconds since 1970.
fn first_kept(now: i64, age: Age) -> i64 {
    match age {
        Age::Never => i64::MIN,
        Age::After(span) => now.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
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
