//! The HTML of the Telegram Bot API: inline tags, `pre` and `blockquote`. Lists are text, and a quote has no quotes
//! within it.

use super::{html, plain};
use nanobot_base::markdown::document::{DocumentLine, LineContent, TextRun};
use nanobot_base::markdown::line::Container;

/// Writes the lines of a part.
pub(super) fn write(lines: &[DocumentLine]) -> String {
    let mut out = String::new();
    let (mut is_in_quote, mut is_in_code) = (false, false);
    for (index, line) in lines.iter().enumerate() {
        let code = match &line.content {
            LineContent::Code { language, text } => Some((language, text)),
            _ => None,
        };
        let is_quoted = line.containers.contains(&Container::Quote);
        let is_same_quote = line.containers[..line.continued].contains(&Container::Quote);
        let continues_code = is_in_code && code.is_some() && !line.starts_block;
        if is_in_code && !continues_code {
            out += "</code></pre>";
            is_in_code = false;
        }
        if is_in_quote && !is_same_quote {
            out += "</blockquote>";
            is_in_quote = false;
        }
        if index > 0 {
            out += if line.has_blank_before { "\n\n" } else { "\n" };
        }
        if is_quoted && !is_in_quote {
            out += "<blockquote>";
            is_in_quote = true;
        }
        let prefix = html::escape(&plain::prefix(line, ""));
        match (&line.content, code) {
            (_, Some((language, text))) => {
                if !continues_code {
                    if !prefix.trim().is_empty() {
                        out += &format!("{}\n", prefix.trim_end());
                    }
                    out += &html::code_tag(language);
                    is_in_code = true;
                }
                out += &html::escape(text);
            }
            (LineContent::Text(runs), _) => out += &(prefix + &html::runs_html(runs)),
            (LineContent::Heading(_, runs), _) => {
                out += &(prefix + &html::runs_html(&with_bold(runs)));
            }
            _ => out += &(prefix + plain::RULE),
        }
    }
    if is_in_code {
        out += "</code></pre>";
    }
    if is_in_quote {
        out += "</blockquote>";
    }
    out
}

fn with_bold(runs: &[TextRun]) -> Vec<TextRun> {
    let mut runs = runs.to_vec();
    for run in &mut runs {
        run.style.bold = true;
    }
    runs
}

/// Returns the length of a written text as Telegram counts it: without tags, an entity as one character, in code
/// units of UTF-16.
pub(super) fn visible_length(markup: &str) -> usize {
    let mut length = 0;
    let mut end = None;
    for letter in markup.chars() {
        match (end, letter) {
            (Some(last), _) if last == letter => {
                end = None;
                length += usize::from(last == ';');
            }
            (Some(_), _) => {}
            (None, '<') => end = Some('>'),
            (None, '&') => end = Some(';'),
            (None, _) => length += letter.len_utf16(),
        }
    }
    length
}
