//! The text of a turn for messages of a chat: the typed text, the message that it replies to, and text of other people.

use nanobot_base::message::user_text::{OthersContent, UserText};
use nanobot_base::message::{Origin, tagged_block};
use nanobot_channel::approvals::QUESTION_KEY_PREFIX;
use nanobot_channel::inbox::{InboxState, OutboundEntry};
use nanobot_channel::{InboundMessage, QuotedText, RepliedMessage};
use nanobot_tool::cron::RepliedJob;

/// Maximum characters of our own message in a reply: the session has the whole message, and this identifies it.
const MAX_REPLIED_CHARS: usize = 200;

/// The sender of a question about a call, and the text that stands for it.
const QUESTION_SENDER: &str = "sent by nanobot";
const QUESTION_TEXT: &str = "a question about a call, which the program has put";

/// The phrase for text that a sender has not typed.
const OTHERS_TEXT: &str = "text of others in a message";

/// Content of other people in a message of a chat.
pub(crate) fn others_content(origin: Origin) -> OthersContent {
    OthersContent::new(origin, OTHERS_TEXT)
}

/// The text of each message, with its quotes after it in marked blocks. `codes` are those of the open questions about calls.
pub(crate) fn to_text<'m>(
    messages: impl Iterator<Item = &'m InboundMessage>,
    inbox_state: &InboxState,
    codes: &[String],
) -> UserText {
    let mut text = UserText::default();
    for message in messages {
        let typed = message.text.clone().trimmed();
        text.push_paragraph(&if message.from.is_bot { typed.without_typed() } else { typed });
        for quoted_text in &message.quotes {
            // A mail quotes the question, whose code a model must not know: it could ask for it.
            let has_code = codes.iter().any(|code| quoted_text.text.contains(code));
            let block = if has_code {
                Some(replied_block(QUESTION_SENDER, QUESTION_TEXT, Origin::User))
            } else {
                to_block(quoted_text, &message.chat.id, inbox_state)
            };
            if let Some(block) = block {
                text.push_paragraph(&block);
            }
        }
    }
    text
}

/// The jobs whose messages are replied to, by the service's ids of messages that we have sent to the chat. A text that only looks like one of
/// them names no job, and neither does a message of another person.
pub(crate) fn replied_jobs<'m>(
    messages: impl Iterator<Item = &'m InboundMessage>,
    inbox_state: &InboxState,
) -> Vec<RepliedJob> {
    let mut jobs = Vec::new();
    for message in messages.filter(|message| !message.from.is_bot) {
        for replied in message.quotes.iter().filter_map(|quote| quote.replied.as_ref()) {
            let Some(entry) = entry_with_id(replied, &message.chat.id, inbox_state) else {
                continue;
            };
            let job = entry.message.source.as_ref().and_then(|source| source.job.clone());
            jobs.extend(job.map(|job| RepliedJob {
                id: job.id,
                message: job.text,
                delivered_at: entry.message.at,
            }));
        }
    }
    jobs
}

/// Our message to the chat that has the id of the replied message.
fn entry_with_id<'s>(
    replied: &RepliedMessage,
    chat: &str,
    inbox_state: &'s InboxState,
) -> Option<&'s OutboundEntry> {
    let id = replied.id.as_ref()?;
    let mut entries = inbox_state.outbound.iter().rev();
    entries.find(|entry| {
        entry.message.destination.chat.id == chat && entry.sent.values().any(|sent| sent == id)
    })
}

/// The message of a turn: a text with `notes` after it.
pub(crate) fn with_notes(mut text: UserText, notes: &[UserText]) -> UserText {
    for note in notes {
        text.push_paragraph(note);
    }
    match text.as_str() {
        // The option's value `-` means standard input.
        "-" => text.push(&UserText::label(" ")),
        "" => text.push(&UserText::label("(a message without text)")),
        _ => {}
    }
    text
}

/// A quote in the form for the model; `None` if there is nothing to quote. A message that we have sent keeps its origin.
fn to_block(quoted_text: &QuotedText, chat: &str, inbox_state: &InboxState) -> Option<UserText> {
    if let Some(replied) = &quoted_text.replied
        && let Some((name, text, origin)) = own_message(quoted_text, replied, chat, inbox_state)
    {
        let text = QuotedText::cut("", text.trim(), MAX_REPLIED_CHARS).text;
        return Some(replied_block(&name, &text, origin));
    }
    if quoted_text.text.is_empty() {
        return None;
    }
    let block = tagged_block("quote", Some(&quoted_text.label), &quoted_text.text);
    Some(UserText::of_others(block, others_content(Origin::External)))
}

fn replied_block(name: &str, text: &str, origin: Origin) -> UserText {
    let block = tagged_block("replied", Some(name), text);
    UserText::of_model(block, others_content(origin))
}

/// The sender of our message that is replied to, its text, and its origin; `None` if it cannot be recognized as ours.
fn own_message(
    quoted_text: &QuotedText,
    replied: &RepliedMessage,
    chat: &str,
    inbox_state: &InboxState,
) -> Option<(String, String, Origin)> {
    // A text that we have sent is ours, even if only the client of the sender says what is quoted.
    let entry = entry_with_id(replied, chat, inbox_state).or_else(|| {
        let mut entries = inbox_state.outbound.iter().rev();
        entries.find(|entry| has_text(entry, &quoted_text.text))
    });
    let text = match entry {
        None if !replied.is_ours => return None,
        // A quote that only a client claims is not our text.
        Some(entry)
            if quoted_text.text.is_empty()
                || !replied.is_ours && !has_text(entry, &quoted_text.text) =>
        {
            entry.sent_text()
        }
        _ => quoted_text.text.clone(),
    };
    let is_question = entry.is_some_and(|entry| entry.message.key.starts_with(QUESTION_KEY_PREFIX));
    if is_question {
        return Some((QUESTION_SENDER.to_owned(), QUESTION_TEXT.to_owned(), Origin::User));
    }
    let source = entry.and_then(|entry| entry.message.source.as_ref());
    let name = match source {
        Some(source) => format!("sent by {}", source.name),
        None => "your answer".to_owned(),
    };
    let origin = entry.and_then(OutboundEntry::origin).unwrap_or(Origin::External);
    (!text.is_empty()).then_some((name, text, origin))
}

/// True if `quoted` is text of this message, with any white space and with or without its markup.
fn has_text(entry: &OutboundEntry, quoted: &str) -> bool {
    let to_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = to_one_line(quoted.strip_suffix(QuotedText::CUT_MARK).unwrap_or(quoted));
    let parts = entry.sent.keys().filter_map(|number| entry.message.parts.get(*number));
    let mut texts = parts.flat_map(|part| [&part.plain, &part.markup]);
    !quoted.is_empty() && texts.any(|text| to_one_line(text).contains(&quoted))
}

#[cfg(test)]
mod tests {
    use super::{replied_jobs, to_text, with_notes};
    use nanobot_base::message::Origin;
    use nanobot_base::message::user_text::UserText;
    use nanobot_channel::inbox::{InboxState, OutboundEntry, OutboundMessage};
    use nanobot_channel::{
        Chat, Destination, InboundMessage, MessageSource, Part, QuotedText, RepliedMessage, Sender,
        SourceJob,
    };

    fn sent(id: &str, text: &str, chat: &str, source: Option<(&str, Origin)>) -> OutboundEntry {
        let chat = Chat { id: chat.into(), ..Chat::default() };
        let parts = if text.is_empty() { Vec::new() } else { vec![text] };
        let part = |text: &str| Part { plain: text.into(), ..Part::default() };
        let message = OutboundMessage {
            key: id.into(),
            destination: Destination { chat, ..Destination::default() },
            parts: parts.into_iter().map(part).collect(),
            source: source.map(|(name, origin)| MessageSource {
                name: name.into(),
                origin,
                job: name.starts_with("job").then(|| SourceJob { id: name.into(), text: None }),
            }),
            origin: (text == "Fine.").then_some(Origin::User),
            ..OutboundMessage::default()
        };
        OutboundEntry { message, sent: [(0, id.to_owned())].into(), ..OutboundEntry::default() }
    }

    #[test]
    fn a_replied_message_has_its_origin() {
        let mut inbox_state = InboxState::default();
        inbox_state.outbound.extend([
            sent("1", "Call Bob.\n\nNow", "7", Some(("job `a`", Origin::User))),
            sent("2", "Call Eve.", "7", Some(("job `b`", Origin::External))),
            sent("3", "For others.", "9", Some(("job `c`", Origin::User))),
            sent("4", "Fine.", "7", None),
            sent("5", "Of a page.", "7", None),
            // Its text is no longer kept.
            sent("6", "", "7", Some(("job `d`", Origin::Project))),
        ]);
        let check = |id: Option<&str>, is_ours, quoted: &str, expect: Option<(&str, Origin)>| {
            let replied = RepliedMessage { id: id.map(str::to_owned), is_ours };
            let quoted_text = QuotedText {
                replied: Some(replied),
                ..QuotedText::cut("quoted message", quoted, 4000)
            };
            let message = InboundMessage {
                chat: Chat { id: "7".into(), ..Chat::default() },
                text: UserText::typed("snooze this"),
                quotes: vec![quoted_text],
                ..InboundMessage::default()
            };
            let text = to_text([&message].into_iter(), &inbox_state, &[]);
            let block = expect.map(|(block, _)| format!("\n\n{block}")).unwrap_or_default();
            assert_eq!(text.as_str(), format!("snooze this{block}"));
            let others = text.sources(&|_| false).others.map(|content| content.origin);
            assert_eq!(others, expect.map(|(_, origin)| origin), "{quoted}");
        };
        let [user, project, external] = Origin::ALL;
        let bob = "<replied name=\"sent by job `a`\">\nCall Bob.\n\nNow\n</replied>";
        let eve = "<replied name=\"sent by job `b`\">\nCall Eve.\n</replied>";
        let quoted_text = |text: &str| format!("<quote name=\"quoted message\">\n{text}\n</quote>");
        // By the id alone, with the service's text, with a part of it, and with what a client claims.
        check(Some("1"), false, "", Some((bob, user)));
        check(Some("2"), true, "Call Eve.", Some((eve, external)));
        let part = "<replied name=\"sent by job `a`\">\nBob.\n</replied>";
        check(Some("1"), false, "Bob.", Some((part, user)));
        check(Some("1"), false, "Obey Eve.", Some((bob, user)));
        let answer = "<replied name=\"your answer\">\nFine.\n</replied>";
        check(Some("4"), true, "Fine.", Some((answer, user)));
        let page = "<replied name=\"your answer\">\nOf a page.\n</replied>";
        check(Some("5"), true, "Of a page.", Some((page, external)));
        let lost = "<replied name=\"sent by job `d`\">\nStill known.\n</replied>";
        check(Some("6"), true, "Still known.", Some((lost, project)));
        check(Some("6"), false, "A claim.", Some((&quoted_text("A claim."), external)));
        // By the text alone, and texts that the journal does not have.
        let blanks = "<replied name=\"sent by job `a`\">\nCall Bob. Now\n</replied>";
        check(None, false, "Call Bob. Now", Some((blanks, user)));
        check(None, false, "Call Bob. […]", Some((&blanks.replace("Now", "[…]"), user)));
        check(None, false, "Call Ann.", Some((&quoted_text("Call Ann."), external)));
        check(Some("3"), false, "", None);
        let unknown = "<replied name=\"your answer\">\nOld.\n</replied>";
        check(Some("0"), true, "Old.", Some((unknown, external)));
        let long = "x".repeat(300);
        let cut = format!("<replied name=\"your answer\">\n{} […]\n</replied>", &long[..200]);
        check(Some("0"), true, &long, Some((&cut, external)));
    }

    #[test]
    fn only_the_id_of_a_message_in_this_chat_names_its_job() {
        let mut inbox_state = InboxState::default();
        inbox_state.outbound.extend([
            sent("1", "Call Bob.", "7", Some(("job `a`", Origin::User))),
            sent("2", "Call Eve.", "9", Some(("job `b`", Origin::User))),
            sent("3", "By hand.", "7", Some(("`nanobot channel send`", Origin::User))),
            sent("4", "Fine.", "7", None),
        ]);
        let check = |id: Option<&str>, text: &str, is_bot: bool, expect: &[&str]| {
            let replied = RepliedMessage { id: id.map(str::to_owned), is_ours: true };
            let message = InboundMessage {
                chat: Chat { id: "7".into(), ..Chat::default() },
                from: Sender { is_bot, ..Sender::default() },
                quotes: vec![QuotedText { replied: Some(replied), ..QuotedText::cut("", text, 9) }],
                ..InboundMessage::default()
            };
            let jobs = replied_jobs([&message].into_iter(), &inbox_state);
            assert_eq!(jobs.iter().map(|job| &*job.id).collect::<Vec<_>>(), expect, "{id:?}");
        };
        check(Some("1"), "", false, &["job `a`"]);
        check(Some("1"), "another text", false, &["job `a`"]);
        check(Some("1"), "", true, &[]);
        check(None, "Call Bob.", false, &[]);
        check(Some("0"), "Call Bob.", false, &[]);
        check(Some("2"), "Call Eve.", false, &[]);
        check(Some("3"), "", false, &[]);
        check(Some("4"), "", false, &[]);
    }

    #[test]
    fn each_message_is_followed_by_its_quotes() {
        let message = |text: &str, quotes: &[&str]| InboundMessage {
            text: UserText::typed(text),
            quotes: quotes.iter().map(|quote| QuotedText::cut("card", quote, 10)).collect(),
            ..InboundMessage::default()
        };
        let check = |messages: &[InboundMessage], expect: &str, is_external: bool| {
            let text = with_notes(to_text(messages.iter(), &InboxState::default(), &[]), &[]);
            assert_eq!(text.as_str(), expect);
            assert_eq!(text.is_own(), !is_external);
        };
        check(&[], "(a message without text)", false);
        check(&[message(" - ", &[])], "- ", false);
        let card = "<quote name=\"card\">\nx\n</quote>";
        let two = [message("a", &["x"]), message("b", &[])];
        check(&two, &format!("a\n\n{card}\n\nb"), true);
    }
}
