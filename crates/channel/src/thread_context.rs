//! The messages of other users in a thread, for the model that answers in it. No I/O.

use super::access::{AccessDecision, AccessRules};
use super::{InboundMessage, QuotedText};
use nanobot_config::settings::channels::ChannelConfig;

/// Maximum characters of a message that is quoted.
const MAX_QUOTE_CHARS: usize = 500;

/// The number of messages that the config asks for.
pub(super) fn max_context_messages(config: &ChannelConfig) -> usize {
    let limit = config.count("threadContextLimit").filter(|_| config.flag("includeThreadContext"));
    usize::try_from(limit.unwrap_or_default()).unwrap_or(usize::MAX)
}

/// The thread whose messages are read for `message`: it is to be answered, and is not the first one of the thread, `first`.
pub(super) fn context_thread(
    message: &InboundMessage,
    first: &str,
    access: &AccessRules,
) -> Option<String> {
    let thread = message.chat.thread.clone().filter(|thread| thread != first)?;
    (access.decide(message) == AccessDecision::Answer).then_some(thread)
}

pub(super) struct ThreadMessage {
    pub(super) id: String,
    pub(super) is_own: bool,
    pub(super) text: String,
}

/// The last `max_messages` messages between our last one and the message that is answered: the session has the older ones. A thread that
/// another user has opened below our message begins with that message.
pub(super) fn context_quotes(
    thread: impl Iterator<Item = ThreadMessage>,
    max_messages: usize,
) -> Vec<QuotedText> {
    let thread: Vec<ThreadMessage> = thread.collect();
    let own_index = thread.iter().rposition(|message| message.is_own);
    let later = &thread[own_index.map_or(0, |index| index + 1)..];
    let replied = if own_index == Some(0) { thread.first() } else { None };
    let replied =
        replied.map(|root| QuotedText::replied(&root.text, MAX_QUOTE_CHARS, Some(&root.id), true));
    let newest = &later[later.len().saturating_sub(max_messages)..];
    let texts = newest.iter().map(|message| message.text.as_str());
    let quotes = texts
        .filter(|text| !text.is_empty())
        .map(|text| QuotedText::cut("earlier message of the thread", text, MAX_QUOTE_CHARS));
    replied.into_iter().chain(quotes).collect()
}

#[cfg(test)]
mod tests {
    use super::{ThreadMessage, context_quotes};

    #[test]
    fn messages_since_our_last_one_are_quoted() {
        let check = |thread: &[(bool, &str)], expect: &[&str]| {
            let messages = thread.iter().map(|(is_own, text)| ThreadMessage {
                id: "1".to_owned(),
                is_own: *is_own,
                text: (*text).to_owned(),
            });
            let quotes = context_quotes(messages, 2);
            let texts: Vec<&str> = quotes.iter().map(|quote| quote.text.as_str()).collect();
            assert_eq!(texts, expect);
        };
        check(&[], &[]);
        check(&[(false, "a"), (false, "b"), (false, "c")], &["b", "c"]);
        check(&[(false, "a"), (true, "b"), (false, "c"), (false, "")], &["c"]);
        check(&[(false, "a"), (true, "b")], &[]);
        check(&[(true, "a"), (false, "b")], &["a", "b"]);
        check(&[(true, "a"), (true, "b")], &[]);
    }
}
