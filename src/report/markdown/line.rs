//! Parses the start of a line: its containers and its kind. Pure, and repeated while the start is too short to
//! decide.
//!
//! Lists are parsed leniently: content indented by two columns more than a list's mark belongs to the item,
//! regardless of the mark's width.

/// A block that contains lines: a quote or a list item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Quote,
    Item {
        /// The first column of the item's content.
        reach: usize,
        /// The mark shown before its first line.
        mark: String,
    },
}

impl Container {
    fn is_item(&self) -> bool {
        matches!(self, Self::Item { .. })
    }
}

/// The start of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The number of open containers that the line continues.
    pub(super) kept: usize,
    /// The containers that the line opens.
    pub(super) opened: Vec<Container>,
    pub(super) kind: Kind,
    /// The byte offset of its text.
    pub(super) at: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Blank,
    Heading(usize),
    Rule,
    /// A possible line of a table; the complete line decides.
    Row,
    /// The first line of a code block, decided by the complete line; its text starts at the marks.
    Fence(Fence),
    /// Indented code.
    Code,
    Text,
}

/// The delimiter of a code block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) mark: char,
    pub(super) length: usize,
    /// The column of its marks.
    pub(super) column: usize,
}

/// Columns of indentation that make a line code.
const CODE: usize = 4;
/// Maximum digits of a list number.
const DIGITS: usize = 9;

/// A position in a line.
#[derive(Clone, Copy)]
struct Cursor<'t> {
    text: &'t str,
    at: usize,
    column: usize,
}

impl<'t> Cursor<'t> {
    fn of(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            column: 0,
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn blanks(mut self) -> Self {
        while self.blank() {}
        self
    }

    /// Skips one space, if there is one.
    fn blank(&mut self) -> bool {
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

/// Parses the start of a line after the `open` containers; `None` if more text is needed. `is_over` if `head` is the
/// complete line. With `codes`, indentation may make the line code.
pub(super) fn begin(head: &str, is_over: bool, open: &[Container], codes: bool) -> Option<Start> {
    let (mut kept, mut cursor) = continue_containers(head, is_over, open)?;
    let mut opened = Vec::new();
    loop {
        let ahead = cursor.blanks();
        let is_alone = kept == 0 && opened.is_empty();
        let block = if ahead.rest().is_empty() {
            if !is_over {
                return None;
            }
            // An empty line separates blocks in a list item, but does not end the item.
            if opened.is_empty() {
                kept += open[kept..].iter().take_while(|one| one.is_item()).count();
            }
            Block::Leaf(Kind::Blank, head.len())
        } else if codes && is_alone && ahead.column >= CODE {
            while cursor.column < CODE && cursor.blank() {}
            Block::Leaf(Kind::Code, cursor.at)
        } else {
            block(ahead, is_over)?
        };
        match block {
            Block::Container(container, inner) => {
                opened.push(container);
                cursor = inner;
            }
            Block::Leaf(kind, at) => {
                return Some(Start {
                    kept,
                    opened,
                    kind,
                    at,
                });
            }
        }
    }
}

/// Returns the number of open containers that the line continues, and the end of their marks; `None` if more text is
/// needed.
fn continue_containers<'t>(
    head: &'t str,
    is_over: bool,
    open: &[Container],
) -> Option<(usize, Cursor<'t>)> {
    let mut cursor = Cursor::of(head);
    let mut kept = 0;
    for container in open {
        let ahead = cursor.blanks();
        let Some(first) = ahead.rest().chars().next() else {
            break;
        };
        match container {
            Container::Quote if first == '>' => {
                cursor = ahead;
                cursor.skip(1);
                if cursor.rest().is_empty() && !is_over {
                    return None;
                }
                cursor.blank();
            }
            Container::Item { reach, .. } if ahead.column >= *reach => {}
            _ => break,
        }
        kept += 1;
    }
    Some((kept, cursor))
}

/// A block that starts in a line.
enum Block<'t> {
    /// A container and the position of its content.
    Container(Container, Cursor<'t>),
    /// A leaf and the byte offset of its text.
    Leaf(Kind, usize),
}

/// Parses the block at `start`, which is not a space; `None` if more of the line is needed.
fn block(start: Cursor, is_over: bool) -> Option<Block> {
    let rest = start.rest();
    let first = rest.chars().next()?;
    let is_bare = |letter: char| letter == first || letter == ' ' || letter == '\t';
    match first {
        '>' => quote(start, is_over),
        '#' => heading(start, is_over),
        '`' | '~' => fence(start, first, is_over),
        '|' => Some(Block::Leaf(Kind::Row, start.at)),
        '-' | '*' | '_' if rest.chars().all(is_bare) && !is_over => None,
        '-' | '*' | '_' if rest.chars().all(is_bare) && rest.matches(first).count() >= 3 => {
            Some(Block::Leaf(Kind::Rule, start.text.len()))
        }
        _ => item(start, is_over),
    }
}

fn quote(mut start: Cursor, is_over: bool) -> Option<Block> {
    start.skip(1);
    if start.rest().is_empty() && !is_over {
        return None;
    }
    start.blank();
    Some(Block::Container(Container::Quote, start))
}

fn heading(start: Cursor, is_over: bool) -> Option<Block> {
    let rest = start.rest();
    let level = run(rest, '#');
    if level > 6 {
        return Some(Block::Leaf(Kind::Text, start.at));
    }
    let text = rest[level..].trim_start_matches([' ', '\t']);
    // Spaces before the text may still follow.
    if text.is_empty() && !is_over {
        return None;
    }
    Some(match is_blank_at(rest, level) {
        true => Block::Leaf(Kind::Heading(level), start.text.len() - text.len()),
        false => Block::Leaf(Kind::Text, start.at),
    })
}

fn fence(start: Cursor, mark: char, is_over: bool) -> Option<Block> {
    let length = run(start.rest(), mark);
    if length == start.rest().len() && !is_over {
        return None;
    }
    let kind = match length {
        3.. => Kind::Fence(Fence {
            mark,
            length,
            column: start.column,
        }),
        _ => Kind::Text,
    };
    Some(Block::Leaf(kind, start.at))
}

/// Parses a list item or text.
fn item(start: Cursor, is_over: bool) -> Option<Block> {
    let rest = start.rest();
    let mark = list_mark(rest, is_over)?;
    if mark > 0 && rest.len() == mark && !is_over {
        return None;
    }
    if mark == 0 || !is_blank_at(rest, mark) {
        return Some(Block::Leaf(Kind::Text, start.at));
    }
    let task = Task::of(rest[mark..].trim_start_matches([' ', '\t']), is_over)?;
    let number = match rest.starts_with(|first: char| first.is_ascii_digit()) {
        true => format!("{} ", &rest[..mark]),
        false => String::new(),
    };
    let bullet = match task {
        Task::Open => "☐ ",
        Task::Done => "☑ ",
        Task::None if number.is_empty() => "• ",
        Task::None => "",
    };
    let container = Container::Item {
        reach: start.column + 2,
        mark: number + bullet,
    };
    let mut content = start;
    content.skip(mark);
    match task {
        Task::None => {
            content.blank();
        }
        Task::Open | Task::Done => {
            content = content.blanks();
            content.skip(3);
        }
    }
    Some(Block::Container(container, content))
}

/// Returns the length in bytes of a list's bullet or number, 0 if there is none; `None` if more text is needed.
fn list_mark(rest: &str, is_over: bool) -> Option<usize> {
    if rest.starts_with(['-', '*', '+']) {
        return Some(1);
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match rest.as_bytes().get(digits) {
        None if !is_over && (1..=DIGITS).contains(&digits) => None,
        Some(b'.' | b')') if (1..=DIGITS).contains(&digits) => Some(digits + 1),
        _ => Some(0),
    }
}

/// The checkbox of a task.
enum Task {
    None,
    Open,
    Done,
}

impl Task {
    /// Parses the checkbox at the start of `text`; `None` if more text is needed.
    fn of(text: &str, is_over: bool) -> Option<Self> {
        let boxes = [
            ("[ ] ", Self::Open),
            ("[x] ", Self::Done),
            ("[X] ", Self::Done),
        ];
        for (mark, task) in boxes {
            if text.starts_with(mark) {
                return Some(task);
            }
            if !is_over && mark.starts_with(text) {
                return None;
            }
        }
        Some(Self::None)
    }
}

/// The kind of a line in a code block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// Code that starts at this byte.
    Code(usize),
    /// The end of the code block.
    End,
    /// A line outside: the container of the code block has ended.
    Out,
}

/// Parses a line in the code block of `fence`, within `open`; `None` if more text is needed.
pub(super) fn inside(
    head: &str,
    is_over: bool,
    open: &[Container],
    fence: &Fence,
) -> Option<Inside> {
    let mut cursor = Cursor::of(head);
    let quotes = open
        .iter()
        .filter(|container| **container == Container::Quote);
    for _ in quotes {
        let mut ahead = cursor.blanks();
        match ahead.rest().as_bytes().first() {
            Some(b'>') => ahead.skip(1),
            None if !is_over => return None,
            _ => return Some(Inside::Out),
        }
        if ahead.rest().is_empty() && !is_over {
            return None;
        }
        ahead.blank();
        cursor = ahead;
    }
    let ahead = cursor.blanks();
    let marks = run(ahead.rest(), fence.mark);
    let is_end = marks >= fence.length && ahead.rest()[marks..].trim().is_empty();
    let may_end = ahead.rest().is_empty() || marks == ahead.rest().len() || is_end;
    if may_end && !is_over {
        return None;
    }
    if is_end && ahead.column <= fence.column + 3 {
        return Some(Inside::End);
    }
    while cursor.column < fence.column && cursor.blank() {}
    Some(Inside::Code(cursor.at))
}

fn run(text: &str, letter: char) -> usize {
    text.chars()
        .take_while(|other| *other == letter)
        .map(char::len_utf8)
        .sum()
}

/// True if there is a space, a tab or the end of the text at `at`.
fn is_blank_at(text: &str, at: usize) -> bool {
    matches!(text.as_bytes().get(at), None | Some(b' ' | b'\t'))
}
