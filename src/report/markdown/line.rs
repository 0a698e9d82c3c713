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
    let mut opened = Vec::new();
    loop {
        let ahead = cursor.blanks();
        let start = |kind, at| {
            let opened = opened.clone();
            Some(Start {
                kept,
                opened,
                kind,
                at,
            })
        };
        let rest = ahead.rest();
        let Some(first) = rest.chars().next() else {
            if !is_over {
                return None;
            }
            // An empty line parts what stands in a list, and ends none.
            let items = open[kept..]
                .iter()
                .take_while(|container| matches!(container, Container::Item { .. }));
            kept += if opened.is_empty() { items.count() } else { 0 };
            let kind = Kind::Blank;
            return Some(Start {
                kept,
                opened,
                kind,
                at: head.len(),
            });
        };
        let alone = kept == 0 && opened.is_empty();
        if codes && alone && ahead.column >= CODE {
            let mut at = Cursor::of(head);
            while at.column < CODE && at.blank() {}
            return start(Kind::Code, at.at);
        }
        let same = run(rest, first);
        match first {
            '>' => {
                if rest.len() == 1 && !is_over {
                    return None;
                }
                opened.push(Container::Quote);
                cursor = ahead;
                cursor.skip(1);
                cursor.blank();
                continue;
            }
            '#' if same == rest.len() && !is_over && same <= 6 => return None,
            '#' if same <= 6 && is_blank_at(rest, same) => {
                let text = rest[same..].trim_start_matches([' ', '\t']);
                // Blanks before the text may still come.
                return match text.is_empty() && !is_over {
                    true => None,
                    false => start(Kind::Heading(same), head.len() - text.len()),
                };
            }
            '`' | '~' if same == rest.len() && !is_over => return None,
            '`' | '~' if same >= 3 => {
                let fence = Fence {
                    mark: first,
                    length: same,
                    column: ahead.column,
                };
                return start(Kind::Fence(fence), ahead.at);
            }
            '|' => return start(Kind::Row, ahead.at),
            _ => {}
        }
        if matches!(first, '-' | '*' | '_')
            && rest
                .chars()
                .all(|letter| letter == first || letter == ' ' || letter == '\t')
        {
            if !is_over {
                return None;
            }
            if rest.chars().filter(|letter| *letter == first).count() >= 3 {
                return start(Kind::Rule, head.len());
            }
        }
        let mark = match first {
            '-' | '*' | '+' => Some(1),
            '0'..='9' => {
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                match rest.as_bytes().get(digits) {
                    None if !is_over && digits <= DIGITS => return None,
                    Some(b'.' | b')') if digits <= DIGITS => Some(digits + 1),
                    _ => None,
                }
            }
            _ => None,
        };
        let Some(mark) = mark else {
            return start(Kind::Text, ahead.at);
        };
        if rest.len() == mark && !is_over {
            return None;
        }
        if !is_blank_at(rest, mark) {
            return start(Kind::Text, ahead.at);
        }
        let after = rest[mark..].trim_start_matches([' ', '\t']);
        let task = match Task::of(after, is_over) {
            Task::Unknown => return None,
            task => task,
        };
        let number = if first.is_ascii_digit() {
            &rest[..mark]
        } else {
            ""
        };
        let shown = match (number, &task) {
            ("", Task::Open) => "☐ ".to_owned(),
            ("", Task::Done) => "☑ ".to_owned(),
            ("", _) => "• ".to_owned(),
            (number, Task::Open) => format!("{number} ☐ "),
            (number, Task::Done) => format!("{number} ☑ "),
            (number, _) => format!("{number} "),
        };
        opened.push(Container::Item {
            reach: ahead.column + 2,
            mark: shown,
        });
        cursor = ahead;
        cursor.skip(mark);
        match task {
            Task::None => {
                cursor.blank();
            }
            _ => {
                cursor = {
                    let mut cursor = cursor.blanks();
                    cursor.skip(3);
                    cursor
                }
            }
        }
    }
}

/// The box of a task.
enum Task {
    None,
    Open,
    Done,
    Unknown,
}

impl Task {
    fn of(text: &str, is_over: bool) -> Self {
        let boxes = [
            ("[ ] ", Self::Open),
            ("[x] ", Self::Done),
            ("[X] ", Self::Done),
        ];
        for (mark, task) in boxes {
            if text.starts_with(mark) {
                return task;
            }
            if !is_over && mark.starts_with(text) {
                return Self::Unknown;
            }
        }
        Self::None
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
