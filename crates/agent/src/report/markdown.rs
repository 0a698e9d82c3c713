//! Markdown for a terminal while it streams: chunks of text in, finished rows out.
//!
//! No I/O: the caller prints the rows and chooses the colours. A chunk may end anywhere. Only undecided text is buffered: the start of a
//! line that may be a list or a rule, an incomplete word, a mark that may be closed, a table that may get a wider cell. The cost is
//! therefore linear in the text, and nothing flickers. The model's line breaks are kept, as chat programs do, since a row cannot wait for
//! the text after it.
//!
//! The renderer is our own because existing ones take complete texts: termimad would have to render the text again
//! with each chunk, and rows that are already printed could change. It also shows links as written, and drops columns
//! that do not fit. A table is complete before it is shown, so [`table`] lets termimad fit its columns into the
//! width.
//!
//! The input must already be harmless: escape sequences are neutralised before parsing, and colours are added
//! afterwards.

use nanobot_base::markdown::code::CodeTokenizer;
use nanobot_base::markdown::inline::InlineParser;
use nanobot_base::markdown::line::{
    self, CodeFence, Container, FenceLine, LineKind, LineStart, MAX_UNDECIDED_BYTES,
};
use nanobot_base::markdown::style::TextStyle;
use style::{Span, show_event, show_inline};
use table::MarkdownTable;
use wrap::RowWrapper;

mod char_width;
pub(super) mod style;
mod table;
mod wrap;

/// Minimum columns for text, regardless of its indentation.
const MIN_TEXT_COLUMNS: usize = 8;
/// Maximum columns of a horizontal rule.
const MAX_RULE_COLUMNS: usize = 72;
/// Prefix of the lines of a quote.
const QUOTE_PREFIX: &str = "│ ";
/// Prefix of the lines of code.
const CODE_PREFIX: &str = "  ";

/// The state of a text that is being rendered.
#[derive(Debug, Default)]
pub(super) struct Markdown {
    rows: RowWrapper,
    inline: InlineParser,
    /// The open containers.
    open: Vec<Container>,
    line: MarkdownLineState,
    /// The part of the line that is undecided or waits for the end of the line.
    line_start: String,
    table: Option<MarkdownTable>,
    code_fence: Option<CodeFence>,
    /// The tokens of the code block, if its language is known.
    tokenizer: Option<CodeTokenizer>,
    /// A pending empty line, shown if text follows, and the number of containers that it is in.
    blank: Option<usize>,
    /// True if any output was produced.
    has_output: bool,
    /// Tells whether indentation may make the next line code.
    indented_code: IndentedCode,
}

/// The state of the current line.
#[derive(Debug, Default)]
enum MarkdownLineState {
    /// The kind of line is not decided yet.
    #[default]
    Beginning,
    /// Text of this style.
    Text(TextStyle),
    /// Verbatim code.
    Code,
    /// A line of a table. It is shown only once it is complete.
    TableRow,
    CodeFence(CodeFence),
    /// A line that is not shown.
    Hidden,
}

/// The context of an indented line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum IndentedCode {
    /// After an empty line, or at the start: it may be code.
    #[default]
    Maybe,
    /// After text: it continues the paragraph.
    No,
    /// After indented code: it is code.
    Yes,
}

impl Markdown {
    /// Adds a chunk of text; returns the output for rows of `width` columns.
    pub(super) fn push(&mut self, text: &str, width: usize) -> Vec<Span> {
        self.rows.width = width;
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            self.push_in_line(line);
            self.end_line();
            rest = after;
        }
        self.push_in_line(rest);
        self.rows.output.take()
    }

    /// Ends the text, which may be truncated; returns the remaining output with a line end.
    pub(super) fn end(&mut self, width: usize) -> Vec<Span> {
        self.rows.width = width;
        let is_empty =
            matches!(self.line, MarkdownLineState::Beginning) && self.line_start.is_empty();
        if !is_empty {
            self.end_line();
        }
        self.end_table();
        let spans = self.rows.output.take();
        *self = Self::default();
        spans
    }

    /// Ends the current row, even within a line, so that other output can follow.
    pub(super) fn end_row(&mut self) -> Vec<Span> {
        match self.line {
            MarkdownLineState::Code => {
                // The rest of the line is indented like its start.
                let output = &mut self.rows.output;
                if let Some(tokenizer) = &mut self.tokenizer {
                    tokenizer.flush(&mut |token, text| output.add(TextStyle::token(token), text));
                }
                self.rows.output.end_row();
                self.line = MarkdownLineState::Beginning;
            }
            _ => self.rows.end_started_row(),
        }
        self.rows.output.take()
    }

    fn push_in_line(&mut self, text: &str) {
        match &self.line {
            _ if text.is_empty() => {}
            MarkdownLineState::Beginning => {
                self.line_start.push_str(text);
                self.begin(false);
            }
            MarkdownLineState::Text(style) => {
                let rows = &mut self.rows;
                self.inline.feed(text, *style, &mut |event| {
                    show_event(event, &mut |run| rows.push_run(run));
                });
            }
            MarkdownLineState::Code => self.add_code(text),
            MarkdownLineState::TableRow | MarkdownLineState::CodeFence(_) => {
                self.line_start.push_str(text);
            }
            MarkdownLineState::Hidden => {}
        }
    }

    fn end_line(&mut self) {
        if matches!(self.line, MarkdownLineState::Beginning) {
            self.begin(true);
        }
        match std::mem::take(&mut self.line) {
            // At the end of the text, the start of a line is decided.
            MarkdownLineState::Hidden | MarkdownLineState::Beginning => {}
            MarkdownLineState::Text(style) => {
                let rows = &mut self.rows;
                self.inline.end(style, &mut |event| {
                    show_event(event, &mut |run| rows.push_run(run));
                });
                self.rows.end();
            }
            MarkdownLineState::Code => {
                let output = &mut self.rows.output;
                if let Some(tokenizer) = &mut self.tokenizer {
                    tokenizer
                        .end_line(&mut |token, text| output.add(TextStyle::token(token), text));
                }
                output.end_row();
            }
            MarkdownLineState::TableRow => {
                let line = std::mem::take(&mut self.line_start);
                self.push_table_row(&line);
            }
            MarkdownLineState::CodeFence(code_fence) => {
                let line = std::mem::take(&mut self.line_start);
                self.open_fence(&line, code_fence);
            }
        }
    }

    /// Decides the kind of line if its start is long enough.
    fn begin(&mut self, is_complete: bool) {
        let head = std::mem::take(&mut self.line_start);
        let start = &head[..head.floor_char_boundary(MAX_UNDECIDED_BYTES)];
        let is_long = start.len() < head.len();
        let is_complete = is_complete && !is_long;
        if let Some(code_fence) = &self.code_fence {
            match line::parse_fence_line(start, is_complete, &self.open, code_fence) {
                None if !is_long => self.line_start = head,
                None => self.push_code(&head, false),
                Some(FenceLine::Code(code_start)) => {
                    self.push_code(&head[code_start..], is_complete);
                }
                Some(FenceLine::End) => {
                    (self.code_fence, self.tokenizer) = (None, None);
                    self.line = MarkdownLineState::Hidden;
                }
                Some(FenceLine::Outside) => {
                    (self.code_fence, self.tokenizer) = (None, None);
                    self.line_start = head;
                    self.begin(is_complete);
                }
            }
            return;
        }
        let allows_code = self.indented_code != IndentedCode::No;
        let line_start = match line::parse_start(start, is_complete, &self.open, allows_code) {
            None if !is_long => {
                self.line_start = head;
                return;
            }
            Some(line_start) => line_start,
            None => LineStart::undecided(),
        };
        self.start_line(line_start, &head);
    }

    fn start_line(&mut self, line_start: LineStart, head: &str) {
        let LineStart { continued, opened, kind, text_start } = line_start;
        let rest = &head[text_start..];
        if kind == LineKind::Blank && opened.is_empty() {
            self.end_table();
            self.open.truncate(continued);
            self.blank = self.has_output.then_some(continued);
            self.indented_code = if self.indented_code == IndentedCode::Yes {
                IndentedCode::Yes
            } else {
                IndentedCode::Maybe
            };
            self.line = MarkdownLineState::Hidden;
            return;
        }
        if kind != LineKind::Row || !opened.is_empty() || continued < self.open.len() {
            self.end_table();
        }
        if self.table.is_none() {
            self.show_blank(continued);
        }
        self.open.truncate(continued);
        self.open.extend(opened);
        let (mut first_prefix, mut prefix) = self.margins(continued);
        self.indented_code = match kind {
            LineKind::Code => IndentedCode::Yes,
            LineKind::Text | LineKind::Row | LineKind::Blank => IndentedCode::No,
            _ => IndentedCode::Maybe,
        };
        match kind {
            LineKind::Heading(level) => {
                first_prefix.push(faint_span(&format!("{} ", "#".repeat(level))));
                prefix.push(plain_span(&" ".repeat(level + 1)));
                self.rows.set_prefixes(first_prefix, prefix);
                self.start_text(TextStyle::BOLD, rest);
            }
            LineKind::Rule => {
                let free_columns =
                    self.rows.width.saturating_sub(wrap::spans_columns(&first_prefix));
                first_prefix.push(faint_span(&"─".repeat(free_columns.clamp(1, MAX_RULE_COLUMNS))));
                self.rows.output.add_all(&first_prefix);
                self.rows.output.end_row();
                self.line = MarkdownLineState::Hidden;
            }
            LineKind::Row => {
                if self.table.is_none() {
                    self.rows.set_prefixes(first_prefix, prefix);
                }
                self.line = MarkdownLineState::TableRow;
                self.line_start = rest.to_owned();
            }
            LineKind::CodeFence(code_fence) => {
                self.rows.set_prefixes(first_prefix, prefix);
                self.line = MarkdownLineState::CodeFence(code_fence);
                self.line_start = rest.to_owned();
            }
            LineKind::Code => self.push_code(rest, false),
            LineKind::Text | LineKind::Blank => {
                self.rows.set_prefixes(first_prefix, prefix);
                self.start_text(TextStyle::PLAIN, rest);
            }
        }
    }

    fn start_text(&mut self, style: TextStyle, text: &str) {
        self.line = MarkdownLineState::Text(style);
        self.push_in_line(text);
    }

    /// Shows a line of code or its start. Its prefix is short and not part of the code; an empty line has none.
    fn push_code(&mut self, text: &str, is_complete: bool) {
        self.line = MarkdownLineState::Code;
        if is_complete && text.trim().is_empty() {
            return;
        }
        let (_, prefix) = self.margins(self.open.len());
        self.rows.output.add_all(&prefix);
        self.rows.output.add(TextStyle::PLAIN, CODE_PREFIX);
        self.add_code(text);
    }

    fn add_code(&mut self, text: &str) {
        let output = &mut self.rows.output;
        match &mut self.tokenizer {
            None => output.add(TextStyle::CODE, text),
            Some(tokenizer) => {
                tokenizer.feed(text, &mut |token, text| {
                    output.add(TextStyle::token(token), text);
                });
            }
        }
    }

    /// Handles the complete line that opens a code block.
    fn open_fence(&mut self, line: &str, code_fence: CodeFence) {
        let label = line[code_fence.length..].trim();
        if code_fence.mark == '`' && label.contains('`') {
            self.start_text(TextStyle::PLAIN, line);
            return self.end_line();
        }
        let is_item = matches!(self.open.last(), Some(Container::Item { .. }));
        if !label.is_empty() {
            self.rows.push_text(TextStyle::FAINT, label);
            self.rows.end();
        } else if is_item && self.rows.has_own_first_prefix() {
            self.rows.end();
        }
        self.tokenizer = CodeTokenizer::for_label(label);
        self.code_fence = Some(code_fence);
    }

    fn push_table_row(&mut self, line: &str) {
        if self.table.get_or_insert_default().push_line(line) {
            return;
        }
        // The previous line was not part of a table, but this one may be its first.
        self.end_table();
        let (_, prefix) = self.margins(self.open.len());
        self.rows.set_prefixes(prefix.clone(), prefix);
        self.table.insert(MarkdownTable::default()).push_line(line);
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        if let Some(lines) = table.as_text() {
            for line in lines {
                let rows = &mut self.rows;
                show_inline(line, TextStyle::PLAIN, &mut |run| rows.push_run(run));
                self.rows.end();
            }
            return;
        }
        for row in table.rows(self.rows.text_columns()) {
            self.rows.push_row(&row);
        }
    }

    /// Shows the pending empty line before text in `continued` containers.
    fn show_blank(&mut self, continued: usize) {
        self.has_output = true;
        let Some(blank) = self.blank.take() else {
            return;
        };
        let depth = continued.min(blank).min(self.open.len());
        let quotes =
            self.open[..depth].iter().rposition(|container| *container == Container::Quote);
        let inner = self.open.split_off(quotes.map_or(0, |last| last + 1));
        let (_, prefix) = self.margins(self.open.len());
        self.open.extend(inner);
        self.rows.output.add_all(&wrap::trim_spans(&prefix));
        self.rows.output.end_row();
    }

    /// Returns the prefix of the first row of a line that opens the containers from `continued` on, and that of the
    /// others. If containers are nested too deeply for the width, the outer ones are left out.
    fn margins(&self, continued: usize) -> (Vec<Span>, Vec<Span>) {
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        let mut free_columns = self.rows.width.saturating_sub(MIN_TEXT_COLUMNS);
        for (number, container) in self.open.iter().enumerate().rev() {
            let (mark, blank) = match container {
                Container::Quote => (faint_span(QUOTE_PREFIX), faint_span(QUOTE_PREFIX)),
                Container::Item { mark, .. } => {
                    (plain_span(mark), plain_span(&" ".repeat(char_width::text_columns(mark))))
                }
            };
            let width = char_width::text_columns(&blank.text);
            if width > free_columns {
                break;
            }
            free_columns -= width;
            first.push(if number < continued { blank.clone() } else { mark });
            rest.push(blank);
        }
        first.reverse();
        rest.reverse();
        (first, rest)
    }
}

fn plain_span(text: &str) -> Span {
    Span { style: TextStyle::PLAIN, text: text.to_owned(), link: None }
}

fn faint_span(text: &str) -> Span {
    Span { style: TextStyle::FAINT, text: text.to_owned(), link: None }
}

#[cfg(test)]
mod tests {
    use super::style::{Span, SpanBuffer};
    use super::{Markdown, TextStyle, char_width};

    fn spans<'t>(pieces: impl IntoIterator<Item = &'t str>, width: usize) -> Vec<Span> {
        let (mut markdown, mut ink) = (Markdown::default(), SpanBuffer::default());
        for run in pieces {
            ink.add_all(&markdown.push(run, width));
        }
        ink.add_all(&markdown.end(width));
        ink.take()
    }

    fn shown(spans: &[Span]) -> String {
        spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Checks that `text` is shown as `expect`, for any split into pieces.
    #[track_caller]
    fn check(text: &str, width: usize, expect: &str) {
        let whole = spans([text], width);
        assert_eq!(shown(&whole), format!("{expect}\n"));
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let both = spans([&text[..cut], &text[cut..]], width);
            assert_eq!(both, whole, "cut at {cut}");
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let each = spans(letters.iter().map(String::as_str), width);
        assert_eq!(each, whole, "cut everywhere");
    }

    #[test]
    fn words_and_headings() {
        check("plain words", 80, "plain words");
        check("one two three\nfour\n\n\n\nfive", 9, "one two\nthree\nfour\n\nfive");
        check("# Title\ntext\n#none\n####### no", 80, "# Title\ntext\n#none\n####### no");
        check("## a long title\n", 9, "## a long\n   title");
        check("a  \nb\\\nc", 80, "a\nb\nc");
        check("\n\n  a\n***\nb\n- - -\n", 4, "a\n────\nb\n────");
        assert_eq!(spans([""], 80), []);
        check("**a\n\nb**", 80, "**a\n\nb**");
    }

    #[test]
    fn links_say_where_they_lead() {
        check(
            "[a **b**](https://x/y) <https://z> [a@b.c](mailto:a@b.c) ![cat](cat.png)!",
            80,
            "a b (https://x/y) https://z a@b.c cat (cat.png)!",
        );
    }

    #[test]
    fn addresses_are_links_also_in_pieces() {
        let links = |text: &str, width: usize| {
            let spans = spans([text], width);
            let links = spans.iter().filter_map(|span| {
                let link = span.link.as_deref()?;
                Some(format!("{} → {link}", span.text))
            });
            links.collect::<Vec<_>>()
        };
        let one = "https://example.org/a";
        assert_eq!(links("[a](https://example.org/a) b", 80), [format!("{one} → {one}")]);
        assert_eq!(
            links("<https://example.org/a>", 12),
            [format!("https://exam → {one}"), format!("ple.org/a → {one}")]
        );
        assert_eq!(links("[a](mailto:b@c) <b@c> [d](e.md)", 80), [""; 0]);
    }

    #[test]
    fn code_of_a_known_language_has_tokens() {
        let styles = |text: &str| {
            let spans = spans([text], 80);
            let tokens = spans.iter().filter_map(|span| {
                let token = span.style.token?;
                Some(format!("{token:?} {}", span.text))
            });
            tokens.collect::<Vec<_>>()
        };
        assert_eq!(
            styles("```rs\nlet x = 1; // y\n```\nlet it be\n"),
            ["Keyword let", "Plain  x = ", "Number 1", "Plain ; ", "Comment // y"]
        );
        assert_eq!(styles("> ```diff\n> -a\n> +b\n"), ["Removed -a", "Added +b"]);
        assert_eq!(styles("```\nlet x\n```\n"), [""; 0]);
        check(
            "```rust\nlet s = \"a\\\"b\"; /* c\n\n d */ 'x'\n```",
            80,
            "rust\n  let s = \"a\\\"b\"; /* c\n\n   d */ 'x'",
        );
    }

    #[test]
    fn lists_hang() {
        let list = "- one two three\n- [ ] open\n- [x] done\n  more\n    - deep deep\n10. ten words here\n    2) in it\n";
        check(
            list,
            80,
            "• one two three\n☐ open\n☑ done\n  more\n  • deep deep\n10. ten words here\n    2) in it",
        );
        check(
            list,
            20,
            "• one two three\n☐ open\n☑ done\n  more\n  • deep deep\n10. ten words here\n    2) in it",
        );
        check(
            "1. aaa bbb ccc ddd eee\n   - fff ggg hhh iii\n\n   jjj\n\nkkk",
            16,
            "1. aaa bbb ccc\n   ddd eee\n   • fff ggg hhh\n     iii\n\n   jjj\n\nkkk",
        );
        check("-\n- a\n1.\n-x\n1.x\n1234567890. x", 40, "•\n• a\n1.\n-x\n1.x\n1234567890. x");
        check("- - a\n- # b\n- > c\n  > d", 40, "• • a\n• # b\n• │ c\n  │ d");
    }

    #[test]
    fn quotes_have_bars() {
        check(
            "> one two three\n> - four\n>\n> five\n\nsix",
            14,
            "│ one two\n│ three\n│ • four\n│\n│ five\n\nsix",
        );
        check("> > a\n> b\n>c\n>\n", 40, "│ │ a\n│ b\n│ c");
    }

    #[test]
    fn code_is_left_alone() {
        check(
            "```rust\nfn main() {\n\n    **x**;\n}\n```\nafter",
            10,
            "rust\n  fn main() {\n\n      **x**;\n  }\nafter",
        );
        check("~~~\n```\na\n~~~~\n", 40, "  ```\n  a");
        check("- x\n  ```sh\n  ls\n    -l\n  ```\n- y", 40, "• x\n  sh\n    ls\n      -l\n• y");
        check("- ```\n  a\n", 40, "•\n    a");
        check("> ```\n> a\nb", 40, "│   a\nb");
        check("```a`b``` c", 40, "a`b c");
        check("``` never\nends", 40, "never\n  ends");
        check("a\n\n    code\n\n      more\nb\n    c", 40, "a\n\n  code\n\n    more\nb\nc");
    }

    #[test]
    fn tables_wait_for_their_end() {
        let table = "a\n| x | y |\n|---|--:|\n| 1 | **2** |\nb | c";
        check(table, 40, "a\nx   │   y\n────┼────\n1   │   2\nb | c");
        check("| x |\n\ny\n|\n| z", 40, "| x |\n\ny\n|\n| z");
        check(
            "- | a | b |\n  |--|--|\n  | 1 | 2 |\n- c",
            40,
            "• a   │ b\n  ────┼────\n  1   │ 2\n• c",
        );
        let mut markdown = Markdown::default();
        assert_eq!(markdown.push("| x | y |\n|---|--:|\n| 1 | 2 |\n", 80), []);
    }

    #[test]
    fn nobody_waits_for_the_end_of_a_line() {
        let mut markdown = Markdown::default();
        assert_eq!(shown(&markdown.push("Some wo", 80)), "Some");
        assert_eq!(shown(&markdown.push("rds and **mo", 80)), " words and");
        assert_eq!(shown(&markdown.push("re** ", 80)), " more");
        assert_eq!(shown(&markdown.push("日本語", 80)), " 日本");
        // Text after a resize uses the new width.
        assert_eq!(shown(&markdown.push("a b c d e f", 4)), "\n語a\nb c\nd e");
        assert_eq!(shown(&markdown.end(4)), "\nf\n");
    }

    #[test]
    fn somebody_else_may_say_something_meanwhile() {
        let mut markdown = Markdown::default();
        assert_eq!(shown(&markdown.push("- one two th", 80)), "• one two");
        assert_eq!(shown(&markdown.end_row()), "\n");
        assert_eq!(markdown.end_row(), []);
        assert_eq!(shown(&markdown.push("ree\n```\nco", 80)), "  three\n  co");
        assert_eq!(shown(&markdown.end_row()), "\n");
        assert_eq!(markdown.end_row(), []);
        assert_eq!(shown(&markdown.push("de\n```\nend", 80)), "  de\n");
        assert_eq!(shown(&markdown.end(80)), "end\n");
    }

    #[test]
    fn fuzz_rows_fit_and_cuts_do_not_matter() {
        let seeds: &[&[u8]] = &[
            b"# Title\n\nSome **bold *and* italic** `code` text, [a link](https://x/y_z) and <https://b>.\n\n- one\n  - two\n3. three\n",
            b"| a | b |\n|:--|--:|\n| 1 `x|y` | **2** |\n| 3 |\n\n> quote\n> - [x] task\n\n---\n\n    code\n",
            "```rust\nfn main() {}\n```\n日本語の文章 **太字** e\u{301} 👩\u{200d}🔬 \u{2764}\u{fe0f}\n1) a\\\n~~b~~ ***c*** __d__ \\*e\n".as_bytes(),
        ];
        nanobot_base::fuzz::check(seeds, |input, random| {
            let text = nanobot_base::fuzz::lossy_text(&input[..input.len().min(2000)]);
            let text = nanobot_os::terminal::sanitize(&text);
            let width = [20, 33, 80][random.below(3)];
            let whole = spans([text.as_str()], width);
            let (mut pieces, mut rest) = (Vec::new(), text.as_str());
            while !rest.is_empty() {
                let cut = rest.ceil_char_boundary(1 + random.below(rest.len().min(40)));
                pieces.push(&rest[..cut]);
                rest = &rest[cut..];
            }
            assert_eq!(spans(pieces, width), whole);
            let said = shown(&whole);
            let mut row = String::new();
            for span in &whole {
                assert!(span.style == TextStyle::PLAIN || !span.text.contains('\n'));
                for (number, text) in span.text.split('\n').enumerate() {
                    if number > 0 {
                        row.clear();
                    }
                    // Code is never wrapped.
                    row.push_str(if span.style.code || span.style.token.is_some() {
                        ""
                    } else {
                        text
                    });
                    let columns = char_width::text_columns(&row);
                    assert!(columns <= width, "{columns} of {width}: {row:?} of {said:?}");
                }
            }
            // Addresses are not repeated, a task's cross becomes a symbol, and column names may be repeated.
            if !text.contains(['[', '<', '|']) {
                let visible = |text: &str| {
                    text.chars().filter(|letter| letter.is_alphanumeric()).collect::<String>()
                };
                assert_eq!(visible(&said), visible(&text));
            }
        });
    }
}
