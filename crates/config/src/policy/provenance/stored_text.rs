//! The content of others in user messages that were stored without their sources: by another program, or by an older
//! version. Nothing in them counts as typed. Pure.

use nanobot_base::message::{MessagePart, Origin, UserMessage};

/// Beginnings of lines that mark content of others.
const MARKS: [(&str, Origin); 4] = [
    ("<page", Origin::External),
    ("<quote", Origin::External),
    // Another block, and the placeholder of an attachment.
    ("<", Origin::Project),
    ("[", Origin::Project),
];

/// The origin of such a message, with a phrase for it, if it has content of others.
pub(super) fn content_of_others(user: &UserMessage) -> Option<(Origin, &'static str)> {
    // Older versions told by the id that the whole message was piped in.
    let is_piped = user.id.ends_with("-stdin");
    let texts = user.parts.iter().filter_map(|part| match part {
        MessagePart::Text(text) => Some(text),
        MessagePart::Image(_) | MessagePart::Document(_) => None,
    });
    let lines = texts.flat_map(|text| text.lines());
    let marks = lines.filter_map(|line| MARKS.iter().find(|(mark, _)| line.starts_with(mark)));
    let origins = marks.map(|(_, origin)| *origin).chain(is_piped.then_some(Origin::Project));
    origins.max().map(|origin| (origin, "a message with content of others"))
}
