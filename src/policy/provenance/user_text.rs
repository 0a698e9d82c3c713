//! Separates the user's own words in a message from the content by others that it quotes. Pure.

use crate::message::{MessagePart, UserMessage};

/// The id suffix of a message that was piped in without text from the user.
pub const PIPED_SUFFIX: &str = "stdin";
/// The blocks within a user message that hold third-party content.
const BLOCK_TAGS: &[&str] = &["stdin", "file", "page", "directory", "quote"];
/// Placeholders for attachments in a session that was loaded from disk.
const ATTACHMENT_PLACEHOLDERS: &[&str] = &["[image: ", "[document: ", "[image]"];

/// The user's own text in `message`, without third-party blocks; `None` if its author is unknown.
pub fn user_text(message: &UserMessage) -> Option<String> {
    if message.injected || is_piped(message) {
        return None;
    }
    let texts = message.parts.iter().filter_map(|part| match part {
        MessagePart::Text(text) if !is_attachment_placeholder(text) => Some(split_blocks(text).0),
        _ => None,
    });
    Some(texts.collect())
}

/// True if the whole message was piped in.
pub(super) fn is_piped(message: &UserMessage) -> bool {
    message.id.rsplit('-').next() == Some(PIPED_SUFFIX)
}

/// True if `text` is a placeholder for an attachment.
pub(super) fn is_attachment_placeholder(text: &str) -> bool {
    ATTACHMENT_PLACEHOLDERS.iter().any(|start| text.starts_with(start))
}

/// Splits `text` into the user's own text and the third-party blocks in it, with their kinds. A block ends at its own
/// closing tag, which cannot occur within it; an unclosed block extends to the end of the text.
pub(super) fn split_blocks(text: &str) -> (String, Vec<(&'static str, &str)>) {
    let (mut own, mut others) = (String::new(), Vec::new());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let Some((kind, mark)) = parse_opening_tag(&rest[..end]) else {
            own.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        };
        let close = format!("</{mark}>");
        let stop = rest.find(&close).unwrap_or(rest.len());
        others.push((kind, &rest[..stop]));
        rest = &rest[(stop + close.len()).min(rest.len())..];
    }
    (own, others)
}

/// The kind of block that `line` opens, and its tag.
fn parse_opening_tag(line: &str) -> Option<(&'static str, &str)> {
    let rest = line.strip_prefix('<')?;
    let mark = &rest[..rest.find([' ', '>'])?];
    let (kind, number) = mark.split_once('-').unwrap_or((mark, "2"));
    let kind = BLOCK_TAGS.iter().find(|known| **known == kind)?;
    is_number(number).then_some((*kind, mark))
}

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::split_blocks;

    #[test]
    fn user_text_and_blocks() {
        let check = |text: &str, own: &str, kinds: &[&str]| {
            let (found, blocks) = split_blocks(text);
            let found_kinds: Vec<&str> = blocks.iter().map(|(kind, _)| *kind).collect();
            assert_eq!((found.as_str(), found_kinds.as_slice()), (own, kinds), "{text}");
        };
        check("a", "a", &[]);
        check("a\n\n<stdin>\nb\n</stdin>", "a\n\n", &["stdin"]);
        check("<stdin-2>\nb</stdin>\nc\n</stdin-2>\nd", "\nd", &["stdin"]);
        check(
            "<file name=\"x\">\nb\n</file>\n\n<page name=\"y\">\nc\n</page>",
            "\n\n",
            &["file", "page"],
        );
        check("<stdin>\nnever ends", "", &["stdin"]);
        check("<b>bold</b> <stdin>", "<b>bold</b> <stdin>", &[]);
        check("<stdin-x>\na", "<stdin-x>\na", &[]);
    }
}
