//! Markdown for services that take it. Lines are passed on as the model wrote them; code gets a new fence in every
//! part, and a line that was split is written anew, so that no mark is left open.

use super::plain;
use nanobot_base::markdown::document::{DocumentLine, LineContent, TextRun};
use nanobot_base::markdown::inline::escape_references;
use nanobot_base::markdown::line::Container;

/// Maximum columns before a fence; with more, it would be code itself.
const MAX_FENCE_COLUMNS: usize = 3;

/// Writes the lines of a part, with headings of level `deepest` at most.
pub(super) fn write(lines: &[DocumentLine], deepest: usize) -> String {
    let mut out = String::new();
    let mut closing_fence: Option<String> = None;
    for (index, line) in lines.iter().enumerate() {
        let is_code = matches!(line.content, LineContent::Code { .. });
        let continues_code = is_code && !line.starts_block && closing_fence.is_some();
        if !continues_code && let Some(closing_fence) = closing_fence.take() {
            out += &format!("\n{closing_fence}");
        }
        if index > 0 {
            out += if line.has_blank_before { "\n\n" } else { "\n" };
        }
        let LineContent::Code { language, text } = &line.content else {
            out += &write_text(line, deepest);
            continue;
        };
        let indent = code_prefix(line);
        if !continues_code {
            let fence_marks = fence_marks(&lines[index..]);
            let opening_prefix = first_prefix(line, &indent);
            out += &format!("{opening_prefix}{fence_marks}{language}\n");
            closing_fence = Some(format!("{indent}{fence_marks}"));
        }
        out += &format!("{indent}{text}");
    }
    if let Some(closing_fence) = closing_fence {
        out += &format!("\n{closing_fence}");
    }
    out
}

/// Returns a fence that the code at the start of `lines` does not contain.
fn fence_marks(lines: &[DocumentLine]) -> String {
    let block = lines.iter().enumerate().map_while(|(index, line)| match &line.content {
        LineContent::Code { text, .. } if index == 0 || !line.starts_block => Some(text),
        _ => None,
    });
    "`".repeat(longest_backticks(block).max(2) + 1)
}

/// Returns the length of the longest run of backticks.
fn longest_backticks<'t>(texts: impl Iterator<Item = &'t String>) -> usize {
    let runs = texts.flat_map(|text| text.split(|letter| letter != '`').map(str::len));
    runs.max().unwrap_or(0)
}

/// Returns the prefix of lines of code and of their fences.
fn code_prefix(line: &DocumentLine) -> String {
    let quotes = line.containers.iter().filter(|container| **container == Container::Quote);
    let column = line.containers.iter().rev().find_map(|container| match container {
        Container::Item { content_column, .. } => Some(*content_column),
        Container::Quote => None,
    });
    let indent = column.unwrap_or(0).min(MAX_FENCE_COLUMNS);
    format!("{}{}", "> ".repeat(quotes.count()), " ".repeat(indent))
}

/// Returns the prefix of an opening fence: the marks of the items that begin with it, else that of the code.
fn first_prefix(line: &DocumentLine, indent: &str) -> String {
    if line.continued < line.containers.len() { marks(line) } else { indent.to_owned() }
}

/// Returns the marks of the containers before a line, in Markdown.
fn marks(line: &DocumentLine) -> String {
    plain::prefix(line, "> ").replace("• ", "- ").replace("☐ ", "- [ ] ").replace("☑ ", "- [x] ")
}

fn write_text(line: &DocumentLine, deepest: usize) -> String {
    match (&line.content, line.source) {
        (LineContent::Heading(level, runs), source) if *level > deepest || source.is_none() => {
            let mark = "#".repeat((*level).min(deepest));
            format!("{}{mark} {}", marks(line), runs_markdown(runs))
        }
        (_, Some(source)) => escape_definition(source.trim_end()),
        (LineContent::Text(runs), None) => marks(line) + &escape_start(&runs_markdown(runs)),
        (_, None) => String::new(),
    }
}

/// Writes the text of a line that was split.
fn runs_markdown(runs: &[TextRun]) -> String {
    let mut out = String::new();
    for link in runs.chunk_by(|left, right| left.address == right.address) {
        let text: String = link.iter().map(run_markdown).collect();
        match &link[0].address {
            Some(address) => out += &format!("[{text}]({})", escape_references(address)),
            None => out += &text,
        }
    }
    out
}

fn run_markdown(run: &TextRun) -> String {
    let style = run.style;
    if style.code {
        let marks = "`".repeat(longest_backticks(std::iter::once(&run.text)) + 1);
        let space = if run.text.starts_with('`') || run.text.ends_with('`') { " " } else { "" };
        return format!("{marks}{space}{}{space}{marks}", run.text);
    }
    let text = if style.link {
        escape_references(&run.text)
    } else {
        escape(&escape_references(&run.text))
    };
    if text.trim().is_empty() {
        return text;
    }
    // Marks take effect only without a space on their inner side.
    let (start, end) = (text.len() - text.trim_start().len(), text.trim_end().len());
    let marks = [(style.bold, "**"), (style.italic, "*"), (style.struck, "~~")];
    let mut styled = text[start..end].to_owned();
    for (_, mark) in marks.iter().filter(|(is_set, _)| *is_set) {
        styled = format!("{mark}{styled}{mark}");
    }
    format!("{}{styled}{}", &text[..start], &text[end..])
}

/// Escapes the characters that are marks within a line.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if r"\`*_~[]<|".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Escapes a line that would define the address of a link, such as `[1]: https://example.org`: no reader shows it.
fn escape_definition(source: &str) -> String {
    let is_mark = |letter: char| letter.is_ascii_digit() || " \t>-*+.)".contains(letter);
    let text = source.trim_start_matches(is_mark);
    let mut is_escaped = false;
    let label_end = text.find(|letter| {
        let is_end = letter == ']' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    });
    let is_defined = label_end.is_some_and(|end| text[end..].starts_with("]:"));
    if text.starts_with('[') && is_defined {
        format!("{}\\{text}", &source[..source.len() - text.len()])
    } else {
        source.to_owned()
    }
}

/// Escapes a start of a line that would make it a heading, a list or a quote.
fn escape_start(text: &str) -> String {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match text.as_bytes().get(digits) {
        Some(b'.' | b')') if digits > 0 => format!("{}\\{}", &text[..digits], &text[digits..]),
        Some(b'#' | b'>' | b'+' | b'-' | b'=') if digits == 0 => format!("\\{text}"),
        _ => text.to_owned(),
    }
}
