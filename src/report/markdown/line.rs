//! How a line begins: what it stands in, and what it is. Pure, and asked again while the beginning is too short to tell.
//!
//! Lists are read as people write them: what is two columns further in than a list's mark belongs to it, whatever the
//! mark's own width.

/// What lines stand in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Quote,
    Item {
        /// A line belongs to it from this column on.
        reach: usize,
        /// What is shown before its first line.
        mark: String,
    },
}

impl Container {
    fn is_item(&self) -> bool {
        matches!(self, Self::Item { .. })
    }
}

/// The beginning of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// How many of the open containers it stands in.
    pub(super) kept: usize,
    /// Those that it opens.
    pub(super) opened: Vec<Container>,
    pub(super) kind: Kind,
    /// Where its text begins, in bytes.
    pub(super) at: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Blank,
    Heading(usize),
    Rule,
    /// Of a table, or what looks like it; all of the line decides.
    Row,
    /// The first line of code, which all of it decides; its text begins at the marks.
    Fence(Fence),
    /// Code by its indentation.
    Code,
    Text,
}

/// What code stands between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    pub(super) mark: char,
    pub(super) length: usize,
    /// The column of its marks.
    pub(super) column: usize,
}

/// Columns that make code of a line.
const CODE: usize = 4;
/// Digits of a list's number.
const DIGITS: usize = 9;

/// A place in a line.
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

    /// Go on over one blank, where there is one.
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

/// How a line begins that stands after such containers; `None` while more of it has to be known. `is_over` when `head` is the
/// whole line. With `codes`, indentation may make code of it.
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
            // An empty line parts what stands in a list, and ends none.
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

/// How many of the open containers the line stands in, and where their marks end; `None` while more of it has to be known.
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

/// A block that begins in a line.
enum Block<'t> {
    /// With the place of its content.
    Container(Container, Cursor<'t>),
    /// With the place of its text, in bytes.
    Leaf(Kind, usize),
}

/// The block that begins at `start`, which is no blank; `None` while more of the line has to be known.
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
    // Blanks before the text may still come.
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

/// An item of a list, or text.
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

/// The length of the bullet or the number of a list in bytes, 0 where there is none; `None` while more has to be known.
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

/// The box of a task.
enum Task {
    None,
    Open,
    Done,
}

impl Task {
    /// The task that begins with `text`; `None` while more of it has to be known.
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

/// What a line is that stands in code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// It begins at so many bytes.
    Code(usize),
    /// The code has ended with it.
    End,
    /// What the code stood in has ended before it.
    Out,
}

/// What a line is that stands in code between `fence`, within `open`; `None` while more of it has to be known.
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

/// Whether there is a blank or the end at `at`.
fn is_blank_at(text: &str, at: usize) -> bool {
    matches!(text.as_bytes().get(at), None | Some(b' ' | b'\t'))
}
