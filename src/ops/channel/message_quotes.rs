//! The text of a turn for messages of a chat: what was typed, what it replies to, and text of others.

use nanobot_base::message::user_text::{OthersContent, UserText};
use nanobot_base::message::{Origin, tagged_block};
use nanobot_channel::inbox::{InboxState, OutboundEntry};
use nanobot_channel::{InboundMessage, QuotedText, RepliedMessage};

/// Maximum characters of a message of ours that is replied to: the session has it, and this tells which one is meant.
const MAX_REPLIED_CHARS: usize = 200;

/// The phrase for text that a sender has not typed.
const OTHERS_TEXT: &str = "text of others in a message";

/// Content of others in a message of a chat.
pub(crate) fn others_content(origin: Origin) -> OthersContent {
    OthersContent::new(origin, OTHERS_TEXT)
}

/// The text of each message, with its quotes after it in marked blocks.
pub(crate) fn to_text<'m>(
    messages: impl Iterator<Item = &'m InboundMessage>,
    journal: &InboxState,
) -> UserText {
    let mut text = UserText::default();
    for message in messages {
        let own = message.text.clone().trimmed();
        text.push_paragraph(&if message.from.is_bot { own.without_typed() } else { own });
        for quote in &message.quotes {
            let block = to_block(quote, &message.chat.id, journal);
            block.iter().for_each(|block| text.push_paragraph(block));
        }
    }
    text
}

/// The message of a turn: a text with `notes` after it.
pub(crate) fn with_notes(mut text: UserText, notes: &[UserText]) -> UserText {
    notes.iter().for_each(|note| text.push_paragraph(note));
    match text.as_str() {
        // The option's value `-` means standard input.
        "-" => text.push(&UserText::label(" ")),
        "" => text.push(&UserText::label("(a message without text)")),
        _ => {}
    }
    text
}

/// A quote as the model gets it; `None` if there is nothing to quote. What we have sent ourselves keeps the origin that it was
/// sent with.
fn to_block(quote: &QuotedText, chat: &str, journal: &InboxState) -> Option<UserText> {
    if let Some(replied) = &quote.replied
        && let Some((name, text, origin)) = own_message(quote, replied, chat, journal)
    {
        let text = QuotedText::cut("", text.trim(), MAX_REPLIED_CHARS).text;
        let block = tagged_block("replied", Some(&name), &text);
        return Some(UserText::of_model(block, others_content(origin)));
    }
    let block = || tagged_block("quote", Some(&quote.label), &quote.text);
    let content = others_content(Origin::External);
    (!quote.text.is_empty()).then(|| UserText::of_others(block(), content))
}

/// The sender of our message that is replied to, its text, and its origin; `None` if it is not known as ours.
fn own_message(
    quote: &QuotedText,
    replied: &RepliedMessage,
    chat: &str,
    journal: &InboxState,
) -> Option<(String, String, Origin)> {
    let has_id = |entry: &OutboundEntry| {
        let mut ids = entry.sent.values();
        entry.message.destination.chat.id == chat && ids.any(|id| replied.id.as_ref() == Some(id))
    };
    let sent = || journal.outbound.iter().rev();
    let by_id = sent().find(|it| has_id(it));
    // A text that equals ours is ours, also in the copy of a client.
    let entry = by_id.or_else(|| sent().find(|it| has_text(it, &quote.text)));
    let text = match entry {
        Some(entry) if !replied.is_ours && !has_text(entry, &quote.text) => entry.sent_text(),
        None if !replied.is_ours => return None,
        _ => quote.text.clone(),
    };
    let text = match entry {
        Some(entry) if text.is_empty() => entry.sent_text(),
        _ => text,
    };
    let source = entry.and_then(|entry| entry.message.source.as_ref());
    let name = match source {
        Some(source) => format!("sent by {}", source.name),
        None => "your answer".to_owned(),
    };
    let origin = entry.and_then(OutboundEntry::origin).unwrap_or(Origin::External);
    (!text.is_empty()).then_some((name, text, origin))
}

/// True if a quote is of this message, however its blanks and its markup are written.
fn has_text(entry: &OutboundEntry, quoted: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = words(quoted.strip_suffix(QuotedText::CUT_MARK).unwrap_or(quoted));
    let parts = entry.sent.keys().filter_map(|number| entry.message.parts.get(*number));
    let mut texts = parts.flat_map(|part| [&part.plain, &part.markup]);
    !quoted.is_empty() && texts.any(|text| words(text).contains(&quoted))
}

#[cfg(test)]
mod tests {
    use super::{to_text, with_notes};
    use nanobot_base::message::Origin;
    use nanobot_base::message::user_text::UserText;
    use nanobot_channel::inbox::{InboxState, OutboundEntry, OutboundMessage};
    use nanobot_channel::{
        Chat, Destination, InboundMessage, MessageSource, Part, QuotedText, RepliedMessage,
    };

    fn sent(id: &str, text: &str, chat: &str, source: Option<(&str, Origin)>) -> OutboundEntry {
        let chat = Chat { id: chat.into(), ..Chat::default() };
        let parts = if text.is_empty() { Vec::new() } else { vec![text] };
        let part = |text: &str| Part { plain: text.into(), ..Part::default() };
        let message = OutboundMessage {
            key: id.into(),
            destination: Destination { chat, ..Destination::default() },
            parts: parts.into_iter().map(part).collect(),
            source: source.map(|(name, origin)| MessageSource { name: name.into(), origin }),
            origin: (text == "Fine.").then_some(Origin::User),
            ..OutboundMessage::default()
        };
        OutboundEntry { message, sent: [(0, id.to_owned())].into(), ..OutboundEntry::default() }
    }

    #[test]
    fn what_is_replied_to_is_told_with_its_origin() {
        let mut journal = InboxState::default();
        journal.outbound.extend([
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
            let quote = QuotedText {
                replied: Some(replied),
                ..QuotedText::cut("quoted message", quoted, 4000)
            };
            let message = InboundMessage {
                chat: Chat { id: "7".into(), ..Chat::default() },
                text: UserText::typed("snooze this"),
                quotes: vec![quote],
                ..InboundMessage::default()
            };
            let text = to_text([&message].into_iter(), &journal);
            let block = expect.map(|(block, _)| format!("\n\n{block}")).unwrap_or_default();
            assert_eq!(text.as_str(), format!("snooze this{block}"));
            let others = text.sources(&|_| false).others.map(|content| content.origin);
            assert_eq!(others, expect.map(|(_, origin)| origin), "{quoted}");
        };
        let [user, project, external] = Origin::ALL;
        let bob = "<replied name=\"sent by job `a`\">\nCall Bob.\n\nNow\n</replied>";
        let eve = "<replied name=\"sent by job `b`\">\nCall Eve.\n</replied>";
        let quote = |text: &str| format!("<quote name=\"quoted message\">\n{text}\n</quote>");
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
        check(Some("6"), false, "A claim.", Some((&quote("A claim."), external)));
        // By the text alone, and texts that the journal does not have.
        let blanks = "<replied name=\"sent by job `a`\">\nCall Bob. Now\n</replied>";
        check(None, false, "Call Bob. Now", Some((blanks, user)));
        check(None, false, "Call Bob. […]", Some((&blanks.replace("Now", "[…]"), user)));
        check(None, false, "Call Ann.", Some((&quote("Call Ann."), external)));
        check(Some("3"), false, "", None);
        let unknown = "<replied name=\"your answer\">\nOld.\n</replied>";
        check(Some("0"), true, "Old.", Some((unknown, external)));
        let long = "x".repeat(300);
        let cut = format!("<replied name=\"your answer\">\n{} […]\n</replied>", &long[..200]);
        check(Some("0"), true, &long, Some((&cut, external)));
    }

    #[test]
    fn messages_are_told_with_their_own_quotes() {
        let message = |text: &str, quotes: &[&str]| InboundMessage {
            text: UserText::typed(text),
            quotes: quotes.iter().map(|it| QuotedText::cut("card", it, 10)).collect(),
            ..InboundMessage::default()
        };
        let check = |messages: &[InboundMessage], expect: &str, is_external: bool| {
            let text = with_notes(to_text(messages.iter(), &InboxState::default()), &[]);
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
