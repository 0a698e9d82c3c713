//! Parses the start of a line: its containers and its kind. Parsing is repeated while the start is too short to decide.
//!
//! Lists are parsed leniently: content indented by two columns more than a list's mark belongs to the item,
//! regardless of the mark's width.

/// Bytes after which an undecided start of a line is treated as text.
pub const MAX_UNDECIDED_BYTES: usize = 600;

/// A block that contains lines: a quote or a list item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Container {
    Quote,
    /// An item of a list.
    Item {
        /// The first column of the item's content.
        content_column: usize,
        /// The mark shown before its first line.
        mark: String,
    },
}

/// The parsed start of a line: its containers and its kind.
#[derive(Debug, PartialEq, Eq)]
pub struct LineStart {
    /// The number of open containers that the line continues.
    pub continued: usize,
    /// The containers that the line opens.
    pub opened: Vec<Container>,
    /// The kind of the line.
    pub kind: LineKind,
    /// The byte offset of its text.
    pub text_start: usize,
}

impl LineStart {
    /// The start of a line that is undecided after [`MAX_UNDECIDED_BYTES`]: text outside all containers. The marks at its
    /// beginning are then part of the text, so nothing of the line is lost.
    pub fn undecided() -> Self {
        Self { continued: 0, opened: Vec::new(), kind: LineKind::Text, text_start: 0 }
    }
}

/// The kind of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum LineKind {
    /// Nothing but spaces.
    Blank,
    /// A heading of level 1 to 6.
    Heading(usize),
    /// A horizontal rule.
    Rule,
    /// A possible line of a table; the complete line decides.
    Row,
    /// The first line of a code block, decided by the complete line; its text starts at the marks.
    CodeFence(CodeFence),
    /// Indented code.
    Code,
    /// Any other text.
    Text,
}

/// The delimiter of a code block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFence {
    /// "`" or `~`.
    pub mark: char,
    /// The number of marks.
    pub length: usize,
    /// The column of its marks.
    pub column: usize,
}

/// Columns of indentation that make a line code.
pub(super) const CODE_INDENT_COLUMNS: usize = 4;
/// Minimum number of marks of a fence.
pub(super) const MIN_FENCE_MARKS: usize = 3;
/// Maximum digits of a list number.
const MAX_NUMBER_DIGITS: usize = 9;

/// A position in a line.
#[derive(Clone, Copy)]
struct LineCursor<'t> {
    text: &'t str,
    at: usize,
    column: usize,
}

impl<'t> LineCursor<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0, column: 0 }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_blanks(mut self) -> Self {
        while self.skip_blank() {}
        self
    }

    /// Skips one space, if there is one.
    fn skip_blank(&mut self) -> bool {
        let width = match self.rest().as_bytes().first() {
            Some(b' ') => 1,
            Some(b'\t') => 4 - self.column % 4,
            _ => return false,
        };
        self.at += 1;
        self.column += width;
        true
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
        self.column += bytes;
    }
}

/// Parses the start of a line after the `open` containers; `None` if more text is needed. `is_complete` if `head` is the
/// complete line. With `allows_code`, indentation may make the line code.
pub fn parse_start(
    head: &str,
    is_complete: bool,
    open: &[Container],
    allows_code: bool,
) -> Option<LineStart> {
    let (mut continued, mut cursor) = continue_containers(head, is_complete, open)?;
    let mut opened = Vec::new();
    loop {
        let ahead = cursor.skip_blanks();
        let is_alone = continued == 0 && opened.is_empty();
        let block = if ahead.rest().is_empty() {
            if !is_complete {
                return None;
            }
            // An empty line separates blocks in a list item, but does not end the item.
            if opened.is_empty() {
                let is_item = |container: &&Container| matches!(container, Container::Item { .. });
                continued += open[continued..].iter().take_while(is_item).count();
            }
            BlockStart::Leaf(LineKind::Blank, head.len())
        } else if allows_code && is_alone && ahead.column >= CODE_INDENT_COLUMNS {
            while cursor.column < CODE_INDENT_COLUMNS && cursor.skip_blank() {}
            BlockStart::Leaf(LineKind::Code, cursor.at)
        } else {
            parse_block(ahead, is_complete)?
        };
        match block {
            BlockStart::Container(container, content) => {
                opened.push(container);
                cursor = content;
            }
            BlockStart::Leaf(kind, text_start) => {
                return Some(LineStart { continued, opened, kind, text_start });
            }
        }
    }
}

/// Returns the number of open containers that the line continues, and the end of their marks; `None` if more text is
/// needed.
fn continue_containers<'t>(
    head: &'t str,
    is_complete: bool,
    open: &[Container],
) -> Option<(usize, LineCursor<'t>)> {
    let mut cursor = LineCursor::new(head);
    let mut continued = 0;
    for container in open {
        let ahead = cursor.skip_blanks();
        let Some(first) = ahead.rest().chars().next() else {
            break;
        };
        match container {
            Container::Quote if first == '>' => {
                cursor = ahead;
                cursor.skip(1);
                if cursor.rest().is_empty() && !is_complete {
                    return None;
                }
                cursor.skip_blank();
            }
            Container::Item { content_column, .. } if ahead.column >= *content_column => {}
            _ => break,
        }
        continued += 1;
    }
    Some((continued, cursor))
}

/// A block that starts in a line.
enum BlockStart<'t> {
    /// A container and the position of its content.
    Container(Container, LineCursor<'t>),
    /// A leaf and the byte offset of its text.
    Leaf(LineKind, usize),
}

/// Parses the block at `cursor`, which is not at a space; `None` if more of the line is needed.
fn parse_block(cursor: LineCursor, is_complete: bool) -> Option<BlockStart> {
    let rest = cursor.rest();
    let first = rest.chars().next()?;
    let is_rule_char =
        |character: char| character == first || character == ' ' || character == '\t';
    match first {
        '>' => parse_quote(cursor, is_complete),
        '#' => parse_heading(cursor, is_complete),
        '`' | '~' => parse_fence(cursor, first, is_complete),
        '|' => Some(BlockStart::Leaf(LineKind::Row, cursor.at)),
        '-' | '*' | '_' if rest.chars().all(is_rule_char) && !is_complete => None,
        '-' | '*' | '_' if rest.chars().all(is_rule_char) && rest.matches(first).count() >= 3 => {
            Some(BlockStart::Leaf(LineKind::Rule, cursor.text.len()))
        }
        _ => parse_item(cursor, is_complete),
    }
}

fn parse_quote(mut cursor: LineCursor, is_complete: bool) -> Option<BlockStart> {
    cursor.skip(1);
    if cursor.rest().is_empty() && !is_complete {
        return None;
    }
    cursor.skip_blank();
    Some(BlockStart::Container(Container::Quote, cursor))
}

fn parse_heading(cursor: LineCursor, is_complete: bool) -> Option<BlockStart> {
    let rest = cursor.rest();
    let level = run_length(rest, '#');
    if level > 6 {
        return Some(BlockStart::Leaf(LineKind::Text, cursor.at));
    }
    let text = rest[level..].trim_start_matches([' ', '\t']);
    // Spaces before the text may still follow.
    if text.is_empty() && !is_complete {
        return None;
    }
    Some(if is_blank_at(rest, level) {
        BlockStart::Leaf(LineKind::Heading(level), cursor.text.len() - text.len())
    } else {
        BlockStart::Leaf(LineKind::Text, cursor.at)
    })
}

fn parse_fence(cursor: LineCursor, mark: char, is_complete: bool) -> Option<BlockStart> {
    let length = run_length(cursor.rest(), mark);
    if length == cursor.rest().len() && !is_complete {
        return None;
    }
    let kind = if length >= MIN_FENCE_MARKS {
        LineKind::CodeFence(CodeFence { mark, length, column: cursor.column })
    } else {
        LineKind::Text
    };
    Some(BlockStart::Leaf(kind, cursor.at))
}

/// Parses a list item or text.
fn parse_item(cursor: LineCursor, is_complete: bool) -> Option<BlockStart> {
    let rest = cursor.rest();
    let mark = list_mark_length(rest, is_complete)?;
    if mark > 0 && rest.len() == mark && !is_complete {
        return None;
    }
    if mark == 0 || !is_blank_at(rest, mark) {
        return Some(BlockStart::Leaf(LineKind::Text, cursor.at));
    }
    let task = TaskMark::parse(rest[mark..].trim_start_matches([' ', '\t']), is_complete)?;
    let number = if rest.starts_with(|first: char| first.is_ascii_digit()) {
        format!("{} ", &rest[..mark])
    } else {
        String::new()
    };
    let bullet = match task {
        TaskMark::Open => "☐ ",
        TaskMark::Done => "☑ ",
        TaskMark::None if number.is_empty() => "• ",
        TaskMark::None => "",
    };
    let container = Container::Item { content_column: cursor.column + 2, mark: number + bullet };
    let mut content = cursor;
    content.skip(mark);
    match task {
        TaskMark::None => {
            content.skip_blank();
        }
        TaskMark::Open | TaskMark::Done => {
            content = content.skip_blanks();
            content.skip(3);
        }
    }
    Some(BlockStart::Container(container, content))
}

/// Returns the length in bytes of a list's bullet or number, 0 if there is none; `None` if more text is needed.
fn list_mark_length(rest: &str, is_complete: bool) -> Option<usize> {
    if rest.starts_with(['-', '*', '+']) {
        return Some(1);
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match rest.as_bytes().get(digits) {
        None if !is_complete && (1..=MAX_NUMBER_DIGITS).contains(&digits) => None,
        Some(b'.' | b')') if (1..=MAX_NUMBER_DIGITS).contains(&digits) => Some(digits + 1),
        _ => Some(0),
    }
}

/// The checkbox of a task.
enum TaskMark {
    None,
    Open,
    Done,
}

impl TaskMark {
    /// Parses the checkbox at the start of `text`; `None` if more text is needed.
    fn parse(text: &str, is_complete: bool) -> Option<Self> {
        let boxes = [("[ ] ", Self::Open), ("[x] ", Self::Done), ("[X] ", Self::Done)];
        for (mark, task) in boxes {
            if text.starts_with(mark) {
                return Some(task);
            }
            if !is_complete && mark.starts_with(text) {
                return None;
            }
        }
        Some(Self::None)
    }
}

/// The kind of a line in a code block.
#[derive(Debug, PartialEq, Eq)]
pub enum FenceLine {
    /// Code that starts at this byte.
    Code(usize),
    /// The end of the code block.
    End,
    /// A line outside: the container of the code block has ended.
    Outside,
}

/// Parses a line in the code block of `code_fence`, within `open`; `None` if more text is needed.
pub fn parse_fence_line(
    head: &str,
    is_complete: bool,
    open: &[Container],
    code_fence: &CodeFence,
) -> Option<FenceLine> {
    let mut cursor = LineCursor::new(head);
    let quotes = open.iter().filter(|container| **container == Container::Quote);
    for _ in quotes {
        let mut ahead = cursor.skip_blanks();
        match ahead.rest().as_bytes().first() {
            Some(b'>') => ahead.skip(1),
            None if !is_complete => return None,
            _ => return Some(FenceLine::Outside),
        }
        if ahead.rest().is_empty() && !is_complete {
            return None;
        }
        ahead.skip_blank();
        cursor = ahead;
    }
    let ahead = cursor.skip_blanks();
    let marks = run_length(ahead.rest(), code_fence.mark);
    let is_end = marks >= code_fence.length && ahead.rest()[marks..].trim().is_empty();
    let may_end = ahead.rest().is_empty() || marks == ahead.rest().len() || is_end;
    if may_end && !is_complete {
        return None;
    }
    if is_end && ahead.column < code_fence.column + CODE_INDENT_COLUMNS {
        return Some(FenceLine::End);
    }
    while cursor.column < code_fence.column && cursor.skip_blank() {}
    Some(FenceLine::Code(cursor.at))
}

/// The bytes at the start of `text` that consist of `mark`.
fn run_length(text: &str, mark: char) -> usize {
    text.chars().take_while(|character| *character == mark).map(char::len_utf8).sum()
}

/// True if there is a space, a tab or the end of the text at `at`.
fn is_blank_at(text: &str, at: usize) -> bool {
    matches!(text.as_bytes().get(at), None | Some(b' ' | b'\t'))
}
