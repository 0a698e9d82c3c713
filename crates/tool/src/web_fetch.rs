//! The `web_fetch` tool: fetches an address and converts it for the model: the article of a page, JSON, the text of a
//! PDF, or an image.

use super::arguments::usize_argument;
use super::call_result::{UNTRUSTED_NOTICE, max_text_chars};
use super::web::WebAccess;
use super::web::article::{self, Article};
use super::web::page_cache::FetchedContent;
use super::{Call, CallEffect, Tool, ToolError, ToolOutput};
use crate::attach::{self, AcceptedInputs, AttachOptions, AttachmentOrigin, ImageLimits, charset};
use nanobot_base::json_text;
use nanobot_base::message::{MessagePart, ResultSource, ToolSpec, tagged_block};
use nanobot_os::hidden_chars::strip;
use nanobot_os::input::image_type;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum size of an image in bytes, accepted by every provider.
const MAX_IMAGE_BYTES: usize = 3_750_000;
/// The mark of a cut within a word.
const CUT_MARK: &str = "…";
/// Maximum bytes that a cut moves back to the end of a word.
const MAX_WORD_BYTES: usize = 2_000;

/// The `web_fetch` tool.
pub struct WebFetch {
    spec: ToolSpec,
    web: Arc<WebAccess>,
    /// Maximum characters shown at a time.
    max_chars: usize,
}

impl WebFetch {
    /// Creates the tool.
    pub fn new(web: Arc<WebAccess>) -> Self {
        let max_chars = max_text_chars(web.max_result_chars).max(100);
        let spec = ToolSpec {
            name: "web_fetch".into(),
            description: "Fetch a web page as markdown; also JSON, text, PDF, images".into(),
            parameters: json!({ "type": "object", "required": ["url"], "properties": {
                "url": { "type": "string" },
                "extractMode": { "type": "string", "enum": ["markdown", "text"] },
                "maxChars": { "type": "integer", "description": format!("at most {max_chars}") },
                "offset": { "type": "integer", "description": "first character" },
            } })
            .into(),
        };
        Self { spec, web, max_chars }
    }

    /// The text of the fetched content, and notes on how it was read.
    fn text(
        &self,
        fetched: &FetchedContent,
        plain: bool,
    ) -> Result<(String, Vec<String>), ToolError> {
        let FetchedContent { url, content_type, bytes, is_truncated, .. } = fetched;
        let mut notes: Vec<String> = fetched.note.iter().cloned().collect();
        if *is_truncated {
            notes.push("only the beginning was read".into());
        }
        let origin = AttachmentOrigin::Page(url.as_str());
        let document = attach::document_text(bytes, origin, self.web.env.get("PATH"));
        if let Some(text) = document? {
            return Ok((text, notes));
        }
        let (text, encoding) = charset::decode(bytes, content_type);
        if text.contains('\0') {
            let at_least = if *is_truncated { "more than " } else { "" };
            let size = bytes.len();
            return Err(format!(
                "`{url}` is not text ({at_least}{size} bytes of `{content_type}`)"
            )
            .into());
        }
        if encoding != encoding_rs::UTF_8 {
            notes.push(format!("decoded from {}", encoding.name()));
        }
        if is_html(content_type, &text) {
            let Article { title, text } = article::extract(&text, url, plain);
            let needs_no_title = title.is_empty() || text.starts_with(&format!("# {title}"));
            return Ok(if needs_no_title {
                (text, notes)
            } else {
                (format!("# {title}\n\n{text}"), notes)
            });
        }
        let may_be_json = content_type.contains("json") || content_type.is_empty();
        let indented = if may_be_json { json_text::indent(&text) } else { None };
        Ok((indented.unwrap_or(text), notes))
    }
}

impl Tool for WebFetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> CallEffect {
        CallEffect::Reads
    }

    fn check_call(&self, arguments: &Value) -> Result<(), ToolError> {
        self.web.check_address(arguments["url"].as_str().unwrap_or_default())
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let arguments = call.arguments;
        let address = arguments["url"].as_str().unwrap_or_default();
        let plain = arguments["extractMode"] == "text";
        let max_chars =
            usize_argument(arguments, "maxChars").unwrap_or(self.max_chars).min(self.max_chars);
        let offset = usize_argument(arguments, "offset").unwrap_or(0);
        let fetched = self.web.fetch(address)?;
        let url = fetched.url.as_str();
        if image_type(&fetched.bytes).is_some() {
            return self.image(&fetched);
        }
        let (text, mut notes) = self.text(&fetched, plain)?;
        let (text, hidden) = strip(&text);
        if hidden > 0 {
            notes.push(format!("{hidden} invisible characters were removed"));
        }
        let total = text.chars().count();
        if offset > 0 && offset >= total {
            return Err(format!(
                "offset {offset} is beyond the end: `{url}` has {total} characters"
            )
            .into());
        }
        let (mut visible_text, end) = excerpt(&text, offset, max_chars);
        if fetched.is_truncated && end == total {
            visible_text.push_str(CUT_MARK);
        }
        if offset > 0 || end < total {
            let more =
                if end < total { format!("; continue at offset {end}") } else { String::new() };
            notes.insert(0, format!("characters {offset} to {end} of {total}{more}"));
        }
        let mut text =
            format!("{UNTRUSTED_NOTICE}\n{}", tagged_block("page", Some(url), &visible_text));
        if !notes.is_empty() {
            text.push_str(&format!("\n({})", notes.join("; ")));
        }
        let source = if fetched.is_safe_address {
            ResultSource::SafeAddress
        } else {
            ResultSource::Unspecified
        };
        Ok(ToolOutput { source, ..text.into() })
    }
}

impl WebFetch {
    /// The result for an image, scaled down to what every provider accepts.
    fn image(&self, fetched: &FetchedContent) -> Result<ToolOutput, ToolError> {
        let options = AttachOptions {
            accepts: AcceptedInputs::default(),
            image_limits: ImageLimits { max_bytes: MAX_IMAGE_BYTES, ..ImageLimits::default() },
            network: None,
            transcribe: None,
            env: &self.web.env,
        };
        let origin = AttachmentOrigin::Page(fetched.url.as_str());
        let mut notes = vec![UNTRUSTED_NOTICE.to_owned()];
        let part = attach::media_part(&fetched.bytes, origin, &options, &mut |note| {
            notes.push(format!("({note})"));
        });
        let image = part.map_err(|error| format!("{error:#}"))?;
        let text = MessagePart::Text(notes.join("\n"));
        let parts = [text].into_iter().chain(image).collect();
        Ok(ToolOutput { parts, ..String::new().into() })
    }
}

/// True if the content is HTML, by its content type or its first characters.
fn is_html(content_type: &str, text: &str) -> bool {
    let head: String = text.trim_start().chars().take(256).collect();
    let head = head.to_ascii_lowercase();
    let begins_as_html = ["<!doctype html", "<html"].iter().any(|start| head.starts_with(start));
    charset::is_html(content_type) || begins_as_html
}

/// At most `max_chars` characters of `text` from `offset` on, and the offset of the text after them. A cut is moved back to
/// the end of a word if one is near, and marked within a word, since half an address is a different address.
fn excerpt(text: &str, offset: usize, max_chars: usize) -> (String, usize) {
    let byte_offset =
        |index: usize| text.char_indices().nth(index).map_or(text.len(), |(start, _)| start);
    let (start, mut end) = (byte_offset(offset), byte_offset(offset + max_chars));
    if end < text.len()
        && let Some(word) = text[start..end].rfind(char::is_whitespace)
        && word > 0
        && end - start - word < MAX_WORD_BYTES.min(max_chars)
    {
        end = start + word;
    }
    let cut_mark = |index: usize| {
        let (before, after) = text.split_at(index);
        let is_in_word =
            |character: Option<char>| character.is_some_and(|character| !character.is_whitespace());
        if is_in_word(before.chars().next_back()) && is_in_word(after.chars().next()) {
            CUT_MARK
        } else {
            ""
        }
    };
    let part = &text[start..end];
    (format!("{}{part}{}", cut_mark(start), cut_mark(end)), offset + part.chars().count())
}

#[cfg(test)]
mod tests {
    use super::{excerpt, is_html};

    #[test]
    fn excerpts() {
        let check = |text: &str, offset, most, expect: &str, end: usize| {
            assert_eq!(
                excerpt(text, offset, most),
                (expect.to_owned(), end),
                "{text} {offset} {most}"
            );
        };
        check("", 0, 5, "", 0);
        check("abc", 0, 5, "abc", 3);
        check("ab cd ef", 0, 5, "ab", 2);
        check("ab cd ef", 2, 3, " cd", 5);
        check("ab cd ef", 3, 99, "cd ef", 8);
        check("äöü äöü", 4, 2, "äö…", 6);
        check("abcdef", 0, 3, "abc…", 3);
        check("abcdef", 3, 9, "…def", 6);
    }

    #[test]
    fn pages() {
        let check = |kind: &str, text: &str, expect: bool| {
            assert_eq!(is_html(kind, text), expect, "{kind} {text}");
        };
        check("text/html; charset=utf-8", "", true);
        check("application/xhtml+xml", "", true);
        check("", " \n<!DOCTYPE html><p>", true);
        check("text/plain", "<html>", true);
        check("text/plain", "a <html>", false);
        check("application/json", "{}", false);
    }
}
