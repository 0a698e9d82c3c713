//! Markdown for a terminal while it streams: pieces of text in, finished rows out.
//!
//! Pure: the caller prints the rows and chooses the colours. A piece may end anywhere. Only undecided text is held
//! back: the start of a line that may be a list or a rule, an unfinished word, a mark that may be closed, a table
//! that may get a wider cell. The cost is therefore linear in the text, and nothing flickers. The model's line breaks
//! are kept, as chat programs do, since a row cannot wait for the text after it.
//!
//! The renderer is our own because existing ones take complete texts: termimad would have to render the text again
//! with each piece, and rows that are already printed could change. It also shows links as written, and drops columns
//! that do not fit. A table is complete before it is shown, so [`table`] lets termimad fit its columns into the
//! width.
//!
//! The input must already be harmless: escape sequences are neutralised before parsing, and colours are added
//! afterwards.

use ink::{Look, Span};
use inline::Inline;
use line::{Container, Fence, Inside, Kind, Start};
use rows::Rows;
use table::Table;

pub(super) mod ink;
mod inline;
mod letter;
mod line;
mod rows;
mod table;

/// Bytes after which an undecided start of a line is treated as text.
const LIMIT: usize = 600;
/// Minimum columns for text, regardless of its indentation.
const NARROW: usize = 8;
/// Maximum columns of a horizontal rule.
const RULE: usize = 72;
/// Prefix of the lines of a quote.
const BAR: &str = "│ ";
/// Prefix of the lines of code.
const INDENT: &str = "  ";

/// The state of a text that is being rendered.
#[derive(Debug, Default)]
pub(super) struct Markdown {
    rows: Rows,
    inline: Inline,
    /// The open containers.
    open: Vec<Container>,
    line: Line,
    /// The part of the line that is undecided or waits for the end of the line.
    head: String,
    table: Option<Table>,
    fence: Option<Fence>,
    /// A pending empty line, shown if text follows, and the number of containers that it is in.
    blank: Option<usize>,
    /// True if something was shown.
    begun: bool,
    /// Tells if indentation may make code of the next line.
    codes: Codes,
}

/// The state of the current line.
#[derive(Debug, Default)]
enum Line {
    /// The kind of line is not decided yet.
    #[default]
    Beginning,
    /// Words of this look.
    Words(Look),
    /// Verbatim code.
    Code,
    /// A line of a table, which is needed in full.
    Row,
    Fence(Fence),
    /// A line of which nothing is shown.
    Nothing,
}

/// The context of an indented line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Codes {
    /// After an empty line, or at the start: it may be code.
    #[default]
    Maybe,
    /// After words: it continues them.
    No,
    /// After indented code: it is code.
    Yes,
}

impl Markdown {
    /// Adds a piece of text; returns the output for rows of `width` columns.
    pub(super) fn push(&mut self, text: &str, width: usize) -> Vec<Span> {
        self.rows.width = width;
        let mut rest = text;
        while let Some((line, after)) = rest.split_once('\n') {
            self.piece(line);
            self.end_line();
            rest = after;
        }
        self.piece(rest);
        self.rows.ink.take()
    }

    /// Ends the text, which may be truncated; returns the remaining output with a line end.
    pub(super) fn end(&mut self, width: usize) -> Vec<Span> {
        self.rows.width = width;
        let is_empty = matches!(self.line, Line::Beginning) && self.head.is_empty();
        if !is_empty {
            self.end_line();
        }
        self.end_table();
        let spans = self.rows.ink.take();
        *self = Self::default();
        spans
    }

    /// Ends the current row, even within a line, so that other output can follow.
    pub(super) fn end_row(&mut self) -> Vec<Span> {
        match self.line {
            Line::Code => {
                // The rest of the line is indented like its start.
                self.rows.ink.end_row();
                self.line = Line::Beginning;
            }
            _ => self.rows.end_begun(),
        }
        self.rows.ink.take()
    }

    fn piece(&mut self, text: &str) {
        match &self.line {
            _ if text.is_empty() => {}
            Line::Beginning => {
                self.head.push_str(text);
                self.begin(false);
            }
            Line::Words(look) => {
                let rows = &mut self.rows;
                let mut show = |look, text: &str| rows.words(look, text);
                self.inline.feed(text, *look, &mut show);
            }
            Line::Code => self.rows.ink.add(Look::CODE, text),
            Line::Row | Line::Fence(_) => self.head.push_str(text),
            Line::Nothing => {}
        }
    }

    fn end_line(&mut self) {
        if matches!(self.line, Line::Beginning) {
            self.begin(true);
        }
        match std::mem::take(&mut self.line) {
            // At the end of the text, the start of a line is decided.
            Line::Nothing | Line::Beginning => {}
            Line::Words(look) => {
                let rows = &mut self.rows;
                self.inline
                    .end(look, &mut |look, text| rows.words(look, text));
                self.rows.end();
            }
            Line::Code => self.rows.ink.end_row(),
            Line::Row => {
                let line = std::mem::take(&mut self.head);
                self.take_row(&line);
            }
            Line::Fence(fence) => {
                let line = std::mem::take(&mut self.head);
                self.open_fence(&line, fence);
            }
        }
    }

    /// Decides the kind of line if its start is long enough.
    fn begin(&mut self, is_over: bool) {
        let head = std::mem::take(&mut self.head);
        let seen = &head[..head.floor_char_boundary(LIMIT)];
        let is_long = seen.len() < head.len();
        let is_over = is_over && !is_long;
        if let Some(fence) = &self.fence {
            match line::inside(seen, is_over, &self.open, fence) {
                None if !is_long => self.head = head,
                None => self.code(&head, false),
                Some(Inside::Code(at)) => self.code(&head[at..], is_over),
                Some(Inside::End) => {
                    (self.fence, self.line) = (None, Line::Nothing);
                }
                Some(Inside::Out) => {
                    self.fence = None;
                    self.head = head;
                    self.begin(is_over);
                }
            }
            return;
        }
        let codes = self.codes != Codes::No;
        match line::begin(seen, is_over, &self.open, codes) {
            None if !is_long => self.head = head,
            Some(start) => self.start(start, &head),
            None => {
                let start = Start {
                    kept: 0,
                    opened: Vec::new(),
                    kind: Kind::Text,
                    at: 0,
                };
                self.start(start, &head);
            }
        }
    }

    fn start(&mut self, start: Start, head: &str) {
        let Start {
            kept,
            opened,
            kind,
            at,
        } = start;
        let rest = &head[at..];
        if kind == Kind::Blank && opened.is_empty() {
            self.end_table();
            self.open.truncate(kept);
            self.blank = self.begun.then_some(kept);
            self.codes = if self.codes == Codes::Yes {
                Codes::Yes
            } else {
                Codes::Maybe
            };
            self.line = Line::Nothing;
            return;
        }
        if kind != Kind::Row || !opened.is_empty() || kept < self.open.len() {
            self.end_table();
        }
        if self.table.is_none() {
            self.show_blank(kept);
        }
        self.open.truncate(kept);
        self.open.extend(opened);
        let (mut first, mut after) = self.margins(kept);
        self.codes = match kind {
            Kind::Code => Codes::Yes,
            Kind::Text | Kind::Row | Kind::Blank => Codes::No,
            _ => Codes::Maybe,
        };
        match kind {
            Kind::Heading(level) => {
                first.push(faint(&format!("{} ", "#".repeat(level))));
                after.push(plain(&" ".repeat(level + 1)));
                self.rows.begin(first, after);
                self.words(Look::BOLD, rest);
            }
            Kind::Rule => {
                let free = self.rows.width.saturating_sub(rows::width_of(&first));
                first.push(faint(&"─".repeat(free.clamp(1, RULE))));
                self.rows.ink.add_all(&first);
                self.rows.ink.end_row();
                self.line = Line::Nothing;
            }
            Kind::Row => {
                if self.table.is_none() {
                    self.rows.begin(first, after);
                }
                self.line = Line::Row;
                self.head = rest.to_owned();
            }
            Kind::Fence(fence) => {
                self.rows.begin(first, after);
                self.line = Line::Fence(fence);
                self.head = rest.to_owned();
            }
            Kind::Code => self.code(rest, false),
            Kind::Text | Kind::Blank => {
                self.rows.begin(first, after);
                self.words(Look::PLAIN, rest);
            }
        }
    }

    fn words(&mut self, look: Look, text: &str) {
        self.line = Line::Words(look);
        self.piece(text);
    }

    /// Shows a line of code or its start. Its prefix is short and not part of the code; an empty line has none.
    fn code(&mut self, text: &str, is_over: bool) {
        self.line = Line::Code;
        if is_over && text.trim().is_empty() {
            return;
        }
        let (_, before) = self.margins(self.open.len());
        self.rows.ink.add_all(&before);
        self.rows.ink.add(Look::PLAIN, INDENT);
        self.rows.ink.add(Look::CODE, text);
    }

    /// Handles the complete line that opens a code block.
    fn open_fence(&mut self, line: &str, fence: Fence) {
        let label = line[fence.length..].trim();
        if fence.mark == '`' && label.contains('`') {
            self.words(Look::PLAIN, line);
            return self.end_line();
        }
        let is_item = matches!(self.open.last(), Some(Container::Item { .. }));
        if !label.is_empty() {
            self.rows.words(Look::FAINT, label);
            self.rows.end();
        } else if is_item && self.rows.is_marked() {
            self.rows.end();
        }
        self.fence = Some(fence);
    }

    fn take_row(&mut self, line: &str) {
        if self.table.get_or_insert_default().take(line) {
            return;
        }
        // The previous line was not part of a table, but this one may be its first.
        self.end_table();
        let (_, after) = self.margins(self.open.len());
        self.rows.begin(after.clone(), after);
        self.table.insert(Table::default()).take(line);
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else {
            return;
        };
        if let Some(lines) = table.as_text() {
            for line in lines {
                let rows = &mut self.rows;
                inline::show(line, Look::PLAIN, &mut |look, text| rows.words(look, text));
                self.rows.end();
            }
            return;
        }
        for row in table.rows(self.rows.room()) {
            self.rows.whole(&row);
        }
    }

    /// Shows the pending empty line before text in `kept` containers.
    fn show_blank(&mut self, kept: usize) {
        self.begun = true;
        let Some(blank) = self.blank.take() else {
            return;
        };
        let both = kept.min(blank).min(self.open.len());
        let quotes = self.open[..both]
            .iter()
            .rposition(|container| *container == Container::Quote);
        let open = self.open.split_off(quotes.map_or(0, |last| last + 1));
        let (_, before) = self.margins(self.open.len());
        self.open.extend(open);
        self.rows.ink.add_all(&rows::trimmed(&before));
        self.rows.ink.end_row();
    }

    /// Returns the prefix of the first row of a line that opens the containers from `kept` on, and that of the
    /// others. Containers that are nested too deeply for the width are shown less deep.
    fn margins(&self, kept: usize) -> (Vec<Span>, Vec<Span>) {
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        let mut free = self.rows.width.saturating_sub(NARROW);
        for (number, container) in self.open.iter().enumerate().rev() {
            let (mark, blank) = match container {
                Container::Quote => (faint(BAR), faint(BAR)),
                Container::Item { mark, .. } => {
                    (plain(mark), plain(&" ".repeat(letter::width_of(mark))))
                }
            };
            let width = letter::width_of(&blank.text);
            if width > free {
                break;
            }
            free -= width;
            first.push(if number < kept { blank.clone() } else { mark });
            rest.push(blank);
        }
        first.reverse();
        rest.reverse();
        (first, rest)
    }
}

fn plain(text: &str) -> Span {
    Span {
        look: Look::PLAIN,
        text: text.to_owned(),
    }
}

fn faint(text: &str) -> Span {
    Span {
        look: Look::FAINT,
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::ink::{Ink, Look, Span};
    use super::{Markdown, letter};

    fn spans<'t>(pieces: impl IntoIterator<Item = &'t str>, width: usize) -> Vec<Span> {
        let (mut markdown, mut ink) = (Markdown::default(), Ink::default());
        for piece in pieces {
            ink.add_all(&markdown.push(piece, width));
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
        check(
            "one two three\nfour\n\n\n\nfive",
            9,
            "one two\nthree\nfour\n\nfive",
        );
        check(
            "# Title\ntext\n#none\n####### no",
            80,
            "# Title\ntext\n#none\n####### no",
        );
        check("## a long title\n", 9, "## a long\n   title");
        check("a  \nb\\\nc", 80, "a\nb\nc");
        check("\n\n  a\n***\nb\n- - -\n", 4, "a\n────\nb\n────");
        assert_eq!(spans([""], 80), []);
        check("**a\n\nb**", 80, "**a\n\nb**");
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
        check(
            "-\n- a\n1.\n-x\n1.x\n1234567890. x",
            40,
            "•\n• a\n1.\n-x\n1.x\n1234567890. x",
        );
        check(
            "- - a\n- # b\n- > c\n  > d",
            40,
            "• • a\n• # b\n• │ c\n  │ d",
        );
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
        check(
            "- x\n  ```sh\n  ls\n    -l\n  ```\n- y",
            40,
            "• x\n  sh\n    ls\n      -l\n• y",
        );
        check("- ```\n  a\n", 40, "•\n    a");
        check("> ```\n> a\nb", 40, "│   a\nb");
        check("```a`b``` c", 40, "a`b c");
        check("``` never\nends", 40, "never\n  ends");
        check(
            "a\n\n    code\n\n      more\nb\n    c",
            40,
            "a\n\n  code\n\n    more\nb\nc",
        );
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
        crate::fuzz::hold(seeds, |input, random| {
            let text = crate::fuzz::text(&input[..input.len().min(2000)]);
            let text = crate::sys::terminal::harmless(&text);
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
                assert!(span.look == Look::PLAIN || !span.text.contains('\n'));
                for (number, text) in span.text.split('\n').enumerate() {
                    if number > 0 {
                        row.clear();
                    }
                    // Code is never wrapped.
                    row.push_str(if span.look == Look::CODE { "" } else { text });
                    let columns = letter::width_of(&row);
                    assert!(
                        columns <= width,
                        "{columns} of {width}: {row:?} of {said:?}"
                    );
                }
            }
            // Addresses are not repeated, a task's cross becomes a symbol, and column names may be repeated.
            if !text.contains(['[', '<', '|']) {
                let visible = |text: &str| {
                    text.chars()
                        .filter(|letter| letter.is_alphanumeric())
                        .collect::<String>()
                };
                assert_eq!(visible(&said), visible(&text));
            }
        });
    }
}
