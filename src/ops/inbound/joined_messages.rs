//! Messages that arrive while a turn of their chat runs: the turn takes them at its next step, as the REPL does with what is typed.
//!
//! The session alone says which messages a turn has taken: its copy of a message, which names the message's id, is on disk before the next
//! request. In the journal they are unanswered until one record answers all messages of the turn, so that a kill loses none, and none is
//! answered twice.

use crate::ops::agent_turn::source::SteeringMessage;
use crate::ops::inbound::channel_run::LockedChannel;
use crate::ops::inbound::intake;
use crate::ops::inbound::work_queue::{MAX_JOINED_MESSAGES, SessionWork, WorkItem};
use nanobot_channel::inbox::{InboundEntry, InboxState};
use nanobot_os::digest::digest;

/// The name of a message in the ids of a session.
fn label_of(id: &str) -> String {
    digest(id.as_bytes())[..16].to_owned()
}

/// Takes the next message that the sender of the turn's messages has written since, if the turn can take it: only typed text. Others, and all
/// that follow them, wait for a turn of their own.
pub(crate) fn take_next(channel: &LockedChannel, work: &SessionWork) -> Option<SteeringMessage> {
    let mut inbox = channel.inbox.lock();
    // Another process may have stored it.
    if let Err(error) = inbox.refresh() {
        log::warn!(target: "channel", "{}: {error:#}", channel.open.name());
        return None;
    }
    let taken = work.unanswered(&inbox);
    let last = taken.last().filter(|_| taken.len() < MAX_JOINED_MESSAGES)?;
    let next = next_of_session(inbox.state(), last)?;
    let is_mail = channel.open.files.kind.is_mail;
    if !is_joinable(last, next, is_mail) {
        return None;
    }
    let message = &next.message;
    work.join(message.id.clone());
    Some(SteeringMessage { label: label_of(&message.id), text: message.text.clone().trimmed() })
}

/// The first message of the session after `last` that is not answered.
fn next_of_session<'s>(state: &'s InboxState, last: &InboundEntry) -> Option<&'s InboundEntry> {
    let later = state.inbound.iter().skip_while(|entry| entry.message.id != last.message.id);
    later.skip(1).find(|entry| entry.session == last.session && entry.is_unanswered())
}

fn is_joinable(last: &InboundEntry, next: &InboundEntry, is_mail: bool) -> bool {
    let message = &next.message;
    let item = intake::message_item(message, is_mail);
    matches!(item, WorkItem::Message { may_join: true, .. })
        && next.turns.is_empty()
        && message.from.is_same(&last.message.from)
        && !message.from.is_bot
        && message.text.is_typed()
        && !message.text.is_empty()
        && message.quotes.is_empty()
        && message.files.is_empty()
}

/// Adds the messages that an earlier process had given to the turn: `labels` are those in the session.
pub(crate) fn add_taken(channel: &LockedChannel, work: &SessionWork, labels: &[String]) {
    let inbox = channel.inbox.lock();
    for entry in inbox.state().unanswered().filter(|entry| entry.session == work.session) {
        if labels.contains(&label_of(&entry.message.id)) {
            work.join(entry.message.id.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_joinable, next_of_session};
    use nanobot_base::message::user_text::UserText;
    use nanobot_channel::inbox::{InboxRecord, InboxState};
    use nanobot_channel::settlement::Settlement;
    use nanobot_channel::{InboundMessage, QuotedText, RemoteFile, Sender};

    fn message(id: &str, sender: &str, text: &str) -> InboundMessage {
        InboundMessage {
            id: id.into(),
            from: Sender { id: sender.into(), ..Sender::default() },
            text: UserText::typed(text),
            ..InboundMessage::default()
        }
    }

    #[test]
    fn only_the_next_typed_text_of_the_same_sender_goes_into_the_turn() {
        let check = |next: InboundMessage, session: &str, expect: Option<bool>| {
            let mut state = InboxState::default();
            let mut add = |message: InboundMessage, session: &str| {
                let session = session.to_owned();
                state.apply(InboxRecord::In { message, session, at: 0 });
            };
            add(message("0", "ann", "before"), "a");
            add(message("1", "ann", "first"), "a");
            add(message("2", "ann", "elsewhere"), "b");
            add(message("3", "ann", "stopped"), "a");
            add(next.clone(), session);
            let ids = vec!["3".to_owned()];
            state.apply(InboxRecord::Dropped { ids, result: Settlement::Stopped });
            let last = state.inbound("1").unwrap();
            let found = next_of_session(&state, last);
            let is_mail = false;
            assert_eq!(found.map(|found| is_joinable(last, found, is_mail)), expect, "{next:?}");
        };
        check(message("4", "ann", "and this"), "a", Some(true));
        check(message("4", "ann", "and this"), "b", None);
        check(message("4", "bob", "and this"), "a", Some(false));
        for text in ["/new", "yes", "no ABCD-2345", ""] {
            check(message("4", "ann", text), "a", Some(false));
        }
        let quotes = vec![QuotedText::cut("card", "x", 9)];
        check(InboundMessage { quotes, ..message("4", "ann", "see") }, "a", Some(false));
        let files = vec![RemoteFile::default()];
        check(InboundMessage { files, ..message("4", "ann", "see") }, "a", Some(false));
        let text = UserText::label("not typed");
        check(InboundMessage { text, ..message("4", "ann", "") }, "a", Some(false));
    }
}
