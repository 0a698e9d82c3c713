//! Complete texts as a list of lines, each with its containers. A list is easier to split into messages than a tree:
//! every line says what surrounds it, so any range of lines can be written by itself.
//!
//! The terminal uses the same grammar but not this list, since it shows text that is still arriving. Line breaks are
//! kept, as chat programs do.

use super::inline::{self, InlineEvent};
use super::line::{
    self, CodeFence, Container, FenceLine, LineKind, LineStart, MAX_UNDECIDED_BYTES,
};
use super::style::TextStyle;
use super::table::{Align, parse_alignments, split_cells};

/// Maximum containers of a line that are kept; deeper ones are dropped.
const MAX_CONTAINERS: usize = 16;
/// Maximum length of a language's name.
const MAX_LANGUAGE_CHARS: usize = 40;

/// A line, or a row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentLine<'t> {
    /// The containers, the outermost first.
    pub containers: Vec<Container>,
    /// The number of containers that the line continues; it begins the others.
    pub continued: usize,
    /// True if a block starts here: a paragraph, an item, a heading, code, a table.
    pub starts_block: bool,
    /// True if an empty line precedes it.
    pub has_blank_before: bool,
    /// The content.
    pub content: LineContent,
    /// The line as written, except for code, the lines of which are written anew with a fence.
    pub source: Option<&'t str>,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineContent {
    /// Text, or nothing after the mark of a container.
    Text(Vec<TextRun>),
    /// A heading of level 1 to 6.
    Heading(usize, Vec<TextRun>),
    /// A horizontal rule.
    Rule,
    /// A line of code.
    Code {
        /// The language: ASCII letters and digits, and some of `+-#._`. Empty if the fence has no such name.
        language: String,
        /// The line without indentation of its containers.
        text: String,
    },
    /// A row of a table: its cells.
    Row(RowKind, Vec<TableCell>),
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCell {
    /// The alignment of its column.
    pub align: Align,
    /// The text.
    pub runs: Vec<TextRun>,
}

/// The kind of a table's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// The names of the columns.
    Header,
    /// The dashes below the header, without cells.
    Delimiter,
    /// Any other row.
    Body,
}

/// Text of one style, and of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRun {
    /// The style. With `link`, the text is itself an address.
    pub style: TextStyle,
    /// The target of the link that the text belongs to, if the text is not the address.
    pub address: Option<String>,
    /// The text.
    pub text: String,
}

/// Parses a complete text.
pub fn parse(text: &str) -> Vec<DocumentLine<'_>> {
    let mut parser = parse_lines(text);
    parser.end_table();
    parser.lines
}

/// Returns the fence of the code block in which `text` ends. A block in a quote needs no end: the next line that is not
/// quoted ends it.
pub fn unclosed_fence(text: &str) -> Option<CodeFence> {
    let parser = parse_lines(text);
    if parser.open.contains(&Container::Quote) {
        return None;
    }
    parser.open_fence.map(|open_fence| open_fence.code_fence)
}

fn parse_lines(text: &str) -> DocumentParser<'_> {
    let mut parser = DocumentParser::default();
    for line in text.lines() {
        parser.push(line);
    }
    parser
}

/// Parses the text of one line.
pub(crate) fn parse_runs(text: &str) -> Vec<TextRun> {
    let mut runs: Vec<TextRun> = Vec::new();
    let mut address: Option<String> = None;
    inline::parse(text, TextStyle::PLAIN, &mut |event| match event {
        InlineEvent::LinkStart(target) => address = Some(target.to_owned()),
        InlineEvent::LinkEnd(..) => address = None,
        InlineEvent::Text(_, "") => {}
        InlineEvent::Text(style, text) => match runs.last_mut() {
            Some(last) if last.style == style && last.address == address => last.text += text,
            _ => runs.push(TextRun { style, address: address.clone(), text: text.to_owned() }),
        },
    });
    runs
}

/// A text that is being parsed.
#[derive(Debug, Default)]
struct DocumentParser<'t> {
    lines: Vec<DocumentLine<'t>>,
    open: Vec<Container>,
    /// The number of open containers that the next of `lines` continues: it begins those that have no line yet.
    continued: usize,
    /// The number of blank lines before the current one.
    blank_count: usize,
    open_fence: Option<OpenFence>,
    /// True if the next line starts a block, whatever it is.
    is_block_over: bool,
    /// True if indentation makes no code of the next line, because it continues a paragraph.
    is_after_text: bool,
    /// True if the last lines are indented code.
    is_indented_code: bool,
    /// Lines that are a table if the second one is a delimiter row.
    table: Vec<TableLine<'t>>,
}

/// A code block that has not ended.
#[derive(Debug)]
struct OpenFence {
    code_fence: CodeFence,
    language: String,
}

/// A line that may be a row of a table.
#[derive(Debug)]
struct TableLine<'t> {
    line: DocumentLine<'t>,
    /// The text without the marks of the containers.
    text: &'t str,
}

impl<'t> DocumentParser<'t> {
    fn push(&mut self, line: &'t str) {
        let head = &line[..line.floor_char_boundary(MAX_UNDECIDED_BYTES)];
        let is_complete = head.len() == line.len();
        if let Some(open_fence) = self.open_fence.take() {
            let fence_line =
                line::parse_fence_line(head, is_complete, &self.open, &open_fence.code_fence);
            let code_start = match fence_line {
                Some(FenceLine::Code(code_start)) => code_start,
                // An undecided line is code as a whole, as on the terminal.
                None => 0,
                Some(FenceLine::End) => {
                    self.is_block_over = true;
                    return;
                }
                Some(FenceLine::Outside) => {
                    self.is_block_over = true;
                    return self.push(line);
                }
            };
            self.push_code(open_fence.language.clone(), &line[code_start..]);
            self.open_fence = Some(open_fence);
            return;
        }
        let line_start = line::parse_start(head, is_complete, &self.open, !self.is_after_text)
            .unwrap_or_else(LineStart::undecided);
        self.push_start(line, line_start);
    }

    fn push_start(&mut self, line: &'t str, line_start: LineStart) {
        let LineStart { continued, opened, kind, text_start } = line_start;
        let is_blank = kind == LineKind::Blank && opened.is_empty();
        if kind != LineKind::Row || !opened.is_empty() || continued < self.open.len() {
            self.end_table();
        }
        self.open.truncate(continued);
        self.continued = self.continued.min(continued);
        if is_blank {
            if !self.lines.is_empty() {
                self.blank_count += 1;
            }
            self.is_block_over = !self.is_indented_code;
            self.is_after_text = false;
            return;
        }
        self.open.extend(opened);
        self.is_after_text = matches!(kind, LineKind::Text | LineKind::Row | LineKind::Blank);
        let was_indented_code =
            std::mem::replace(&mut self.is_indented_code, kind == LineKind::Code);
        self.is_block_over |= was_indented_code && kind != LineKind::Code;
        let text = &line[text_start..];
        match kind {
            LineKind::Heading(level) => {
                let content = LineContent::Heading(level, parse_runs(text.trim_end()));
                self.push_line(content, Some(line));
                self.is_block_over = true;
            }
            LineKind::Rule => {
                self.push_line(LineContent::Rule, Some(line));
                self.is_block_over = true;
            }
            LineKind::Row => self.push_row(line, text),
            LineKind::CodeFence(code_fence) => self.push_fence(line, text, code_fence),
            LineKind::Code => {
                self.is_block_over |= !was_indented_code;
                self.push_code(String::new(), text);
            }
            LineKind::Text | LineKind::Blank => {
                let content = LineContent::Text(parse_runs(text.trim_end()));
                self.push_line(content, Some(line));
            }
        }
    }

    /// Makes a line of `content` at the current position.
    fn make_line(&mut self, content: LineContent, source: Option<&'t str>) -> DocumentLine<'t> {
        let depth = self.open.len().min(MAX_CONTAINERS);
        let is_new = self.continued < self.open.len();
        let has_blank_before = std::mem::take(&mut self.blank_count) > 0;
        let is_block_over = std::mem::take(&mut self.is_block_over);
        let starts_block = is_new
            || is_block_over
            || self.lines.is_empty()
            || matches!(content, LineContent::Heading(..) | LineContent::Rule);
        let line = DocumentLine {
            containers: self.open[..depth].to_vec(),
            continued: self.continued.min(depth),
            starts_block,
            has_blank_before,
            content,
            source,
        };
        self.continued = self.open.len();
        line
    }

    fn push_line(&mut self, content: LineContent, source: Option<&'t str>) {
        let line = self.make_line(content, source);
        self.lines.push(line);
    }

    fn push_code(&mut self, language: String, text: &str) {
        // Blank lines within indented code are part of it.
        let is_within_block = self.is_indented_code && !self.is_block_over;
        let blank_count = if is_within_block { std::mem::take(&mut self.blank_count) } else { 0 };
        for _ in 0..blank_count {
            let (language, text) = (String::new(), String::new());
            self.push_line(LineContent::Code { language, text }, None);
        }
        let text = text.to_owned();
        self.push_line(LineContent::Code { language, text }, None);
    }

    fn push_fence(&mut self, line: &'t str, text: &'t str, code_fence: CodeFence) {
        let label = text[code_fence.length..].trim();
        if code_fence.mark == '`' && label.contains('`') {
            self.is_after_text = true;
            let content = LineContent::Text(parse_runs(text.trim_end()));
            return self.push_line(content, Some(line));
        }
        let word = label.split_whitespace().next().unwrap_or_default();
        let language = if is_language(word) { word } else { "" };
        self.open_fence = Some(OpenFence { code_fence, language: language.to_owned() });
        self.is_block_over = true;
    }

    fn push_row(&mut self, line: &'t str, text: &'t str) {
        let fits_table = match self.table.as_slice() {
            [header] => parse_alignments(text)
                .is_some_and(|columns| columns.len() == split_cells(header.text).len()),
            _ => true,
        };
        if !fits_table {
            self.end_table();
        }
        let content = LineContent::Text(parse_runs(text.trim_end()));
        let line = self.make_line(content, Some(line));
        self.table.push(TableLine { line, text });
    }

    fn end_table(&mut self) {
        let is_table = self.table.len() > 1;
        let delimiter = self.table.get(1).map_or("", |table_line| table_line.text);
        let alignments = parse_alignments(delimiter).unwrap_or_default();
        for (index, table_line) in std::mem::take(&mut self.table).into_iter().enumerate() {
            let TableLine { mut line, text } = table_line;
            if is_table {
                line.starts_block = index == 0;
                let cells = || {
                    let alignments =
                        alignments.iter().copied().chain(std::iter::repeat(Align::Left));
                    let cells = split_cells(text).into_iter().zip(alignments);
                    cells.map(|(cell, align)| TableCell { align, runs: parse_runs(cell) }).collect()
                };
                line.content = match index {
                    0 => LineContent::Row(RowKind::Header, cells()),
                    1 => LineContent::Row(RowKind::Delimiter, Vec::new()),
                    _ => LineContent::Row(RowKind::Body, cells()),
                };
            }
            self.lines.push(line);
        }
        self.is_block_over |= is_table;
    }
}

/// True for a word that names a language. Chat services show other words as code, or interpret them as markup.
fn is_language(word: &str) -> bool {
    let is_part =
        |character: char| character.is_ascii_alphanumeric() || "+-#._".contains(character);
    word.len() <= MAX_LANGUAGE_CHARS && word.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::{Container, DocumentLine, LineContent, RowKind, TextRun, parse, unclosed_fence};

    fn show_runs(runs: &[TextRun]) -> String {
        let show = |run: &TextRun| match &run.address {
            Some(address) => format!("[{}]({address})", run.text),
            None if run.style.bold => format!("*{}*", run.text),
            None if run.style.code => format!("`{}`", run.text),
            None => run.text.clone(),
        };
        runs.iter().map(show).collect()
    }

    /// Shows a line as `[containers/continued] kind content`, with `+` if it starts a block, and `_` if it follows an
    /// empty line.
    fn show(line: &DocumentLine) -> String {
        let containers: String = line
            .containers
            .iter()
            .map(|container| match container {
                Container::Quote => "> ".to_owned(),
                Container::Item { mark, .. } => mark.clone(),
            })
            .collect();
        let content = match &line.content {
            LineContent::Text(runs) => show_runs(runs),
            LineContent::Heading(level, runs) => format!("h{level} {}", show_runs(runs)),
            LineContent::Rule => "rule".to_owned(),
            LineContent::Code { language, text } => format!("code({language}) {text}"),
            LineContent::Row(RowKind::Delimiter, _) => "---".to_owned(),
            LineContent::Row(_, cells) => {
                let cells: Vec<String> = cells.iter().map(|cell| show_runs(&cell.runs)).collect();
                cells.join("|")
            }
        };
        let block = if line.starts_block { "+" } else { "" };
        let blank = if line.has_blank_before { "_" } else { "" };
        format!("{blank}{block}{}/{containers}{content}", line.continued)
    }

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        let lines: Vec<String> = parse(text).iter().map(show).collect();
        assert_eq!(lines, expect);
    }

    #[test]
    fn lines_know_their_blocks() {
        check("", &[]);
        check("a\nb **c**\n\n\nd", &["+0/a", "0/b *c*", "_+0/d"]);
        check("# a\nb\n---\nc", &["+0/h1 a", "+0/b", "+0/rule", "+0/c"]);
        check("[a `b`](https://x)", &["+0/[a ](https://x)[b](https://x)"]);
    }

    #[test]
    fn lines_know_their_containers() {
        check(
            "- a\n  b\n  1. c\n- d\n\n  e\n\nf",
            &["+0/• a", "1/• b", "+1/• 1. c", "+0/• d", "_+1/• e", "_+0/f"],
        );
        check("> a\n> b\n>\n> - c\nd", &["+0/> a", "1/> b", "_+1/> • c", "0/d"]);
        check("-\n- [x] y", &["+0/• ", "+0/☑ y"]);
    }

    #[test]
    fn code_is_verbatim() {
        check(
            "a\n```rust x\n**b**\n\n  c\n```\nd",
            &["+0/a", "+0/code(rust) **b**", "0/code(rust) ", "0/code(rust)   c", "+0/d"],
        );
        check("- ```\n  a\n  ```\n  b", &["+0/• code() a", "+1/• b"]);
        check("> ```\n> a\nb", &["+0/> code() a", "+0/b"]);
        check("```c++\na\n```", &["+0/code(c++) a"]);
        check("```a\"b\nc\n```", &["+0/code() c"]);
        check("```a`b``` c", &["+0/`a`b` c"]);
        check(
            "a\n\n    b\n\n    c\nd",
            &["+0/a", "_+0/code() b", "0/code() ", "0/code() c", "+0/d"],
        );
        check(
            "    a\n\n\n    b\n\n\nc",
            &["+0/code() a", "0/code() ", "0/code() ", "0/code() b", "_+0/c"],
        );
        check("```\na\n```\n```\nb", &["+0/code() a", "+0/code() b"]);
    }

    #[test]
    fn a_fence_may_be_left_open() {
        let check = |text: &str, expect: Option<(char, usize, usize)>| {
            let code_fence = unclosed_fence(text);
            let code_fence = code_fence
                .map(|code_fence| (code_fence.mark, code_fence.length, code_fence.column));
            assert_eq!(code_fence, expect, "{text}");
        };
        check("a", None);
        check("```\na\n```", None);
        check("a\n```rust\nb\n", Some(('`', 3, 0)));
        check("~~~~\n```\n~~~", Some(('~', 4, 0)));
        check("- a\n  ```\n  b", Some(('`', 3, 2)));
        check("> ```\n> a", None);
        check("```\n```\n```", Some(('`', 3, 0)));
        check("```a```", None);
    }

    #[test]
    fn tables_have_cells() {
        check(
            "a\n| x | y |\n|---|--:|\n| 1 | **2** |\nb",
            &["+0/a", "+0/x|y", "0/---", "0/1|*2*", "+0/b"],
        );
        check("| x |\n\ny\n|\n| z", &["+0/| x |", "_+0/y", "0/|", "0/| z"]);
    }
}
