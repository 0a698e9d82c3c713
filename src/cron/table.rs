//! Our block in a crontab: the lines of one job file between two comments that name its workspace. Pure, and on
//! bytes: other content is preserved, and removing the block restores the original table.
//!
//! People edit crontabs. A block may have lost its start or end, may appear twice, and may contain lines of the
//! user's. A line therefore only counts as ours if it looks like one that we write; all others are preserved.

use std::fmt::Write;

const BEGIN: &str = "# >>> nanobot cron: ";
const MADE: &str = " (made by `nanobot cron`; changes here are lost)";
/// Added if the table's last line had no line end: we add one, and remove it with the block.
const MADE_WITH_END: &str =
    " (made by `nanobot cron`; changes here are lost; the end of the line above, too)";
const END: &str = "# <<< nanobot cron: ";
/// Prefix of the comments that a block may contain.
pub const NOTE: &str = "# nanobot: ";

/// Returns `table` with `lines` as the block of `name`, in its existing position or at the end. Without lines, the
/// block is removed.
///
/// Lines are those of [`super::command_line`] preceded by time fields, or comments that begin with [`NOTE_PREFIX`].
/// Others could not be told apart from the user's own lines.
pub fn with_block(table: &[u8], name: &str, lines: &[String]) -> Vec<u8> {
    if lines.is_empty() {
        return without(table, name);
    }
    let name = encoded(name);
    let parts = Parts::of(table, &name);
    let mut out = parts.before.concat();
    let mut made = match parts.block {
        Some(Block { has_end: true, .. }) => MADE_WITH_END,
        _ => MADE,
    };
    if !out.is_empty() && !out.ends_with(b"\n") {
        out.push(b'\n');
        made = MADE_WITH_END;
    }
    let mut block = format!("{BEGIN}{name}{made}\n");
    for line in lines {
        debug_assert!(is_ours(line.as_bytes()) && !line.contains('\n'), "{line}");
        block.push_str(line);
        block.push('\n');
    }
    writeln!(block, "{END}{name}").expect("writing to a string cannot fail");
    out.extend_from_slice(block.as_bytes());
    out.extend(parts.after.concat());
    out
}

/// Returns `table` without the block of `name`.
pub fn without(table: &[u8], name: &str) -> Vec<u8> {
    let Parts {
        before,
        block,
        after,
    } = Parts::of(table, &encoded(name));
    let mut out = before.concat();
    let mut after = after.concat();
    if block.is_some_and(|block| block.has_end) {
        match after.is_empty() {
            true => take_end(&mut out),
            // The next block now depends on the line end that we added.
            false => inherit_end(&mut after),
        }
    }
    out.append(&mut after);
    out
}

/// Returns the lines of the block of `name`; `None` if there is no block.
pub fn block(table: &[u8], name: &str) -> Option<Vec<String>> {
    let lines = Parts::of(table, &encoded(name)).block?.lines;
    let text = |line: &&[u8]| String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
    Some(lines.iter().map(text).collect())
}

/// The parts of a table. The block goes where its first part was; other lines inside it are moved after it.
#[derive(Default)]
struct Parts<'a> {
    before: Vec<&'a [u8]>,
    block: Option<Block<'a>>,
    after: Vec<&'a [u8]>,
}

#[derive(Default)]
struct Block<'a> {
    /// True if we added the end of the line above.
    has_end: bool,
    lines: Vec<&'a [u8]>,
}

impl<'a> Parts<'a> {
    fn of(table: &'a [u8], name: &str) -> Self {
        let lines: Vec<&[u8]> = table.split_inclusive(|byte| *byte == b'\n').collect();
        let mut parts = Self::default();
        let mut rest = lines.as_slice();
        while let Some((line, mut next)) = rest.split_first() {
            match Mark::of(line, name) {
                Some(Mark::Begin { has_end }) => {
                    let block = parts.block.get_or_insert(Block {
                        has_end,
                        ..Block::default()
                    });
                    let length = length_of_block(next, name);
                    // A block without an end extends only over lines that are certainly ours.
                    let inner =
                        length.unwrap_or_else(|| next.iter().take_while(|l| is_ours(l)).count());
                    let (ours, theirs) = next[..inner]
                        .iter()
                        .partition::<Vec<&[u8]>, _>(|l| is_ours(l));
                    block.lines.extend(ours);
                    parts.after.extend(theirs);
                    next = &next[inner + usize::from(length.is_some())..];
                }
                Some(Mark::End) => parts.take_back(),
                Some(Mark::OtherBegin) | None => parts.text().push(line),
            }
            rest = next;
        }
        parts
    }

    /// Returns the text to which lines outside the block are added.
    fn text(&mut self) -> &mut Vec<&'a [u8]> {
        match self.block {
            None => &mut self.before,
            Some(_) => &mut self.after,
        }
    }

    /// Handles an end without a start: our lines just before it belong to the block.
    fn take_back(&mut self) {
        let text = self.text();
        let first = text.iter().rposition(|line| !is_ours(line));
        let ours = text.split_off(first.map_or(0, |last| last + 1));
        self.block.get_or_insert_default().lines.extend(ours);
    }
}

/// Returns the number of lines before the block's end; `None` if another block starts first, or the table ends.
fn length_of_block(lines: &[&[u8]], name: &str) -> Option<usize> {
    let mark = lines.iter().enumerate();
    let mut marks = mark.filter_map(|(at, line)| Some((at, Mark::of(line, name)?)));
    match marks.next()? {
        (at, Mark::End) => Some(at),
        _ => None,
    }
}

/// One of our two marker comments.
enum Mark {
    Begin {
        has_end: bool,
    },
    End,
    /// The start of a block of another name.
    OtherBegin,
}

impl Mark {
    fn of(line: &[u8], name: &str) -> Option<Self> {
        let line = line.trim_ascii_end();
        if let Some(ended) = line.strip_prefix(END.as_bytes()) {
            return (ended == name.as_bytes()).then_some(Self::End);
        }
        let begun = line.strip_prefix(BEGIN.as_bytes())?;
        let (begun, has_end) = match begun.strip_suffix(MADE_WITH_END.as_bytes()) {
            Some(begun) => (begun, true),
            None => (begun.strip_suffix(MADE.as_bytes())?, false),
        };
        match begun == name.as_bytes() {
            true => Some(Self::Begin { has_end }),
            false => Some(Self::OtherBegin),
        }
    }
}

/// True if a line looks like one that we write: it ends in `cron run ID --scheduled`, or is a note.
fn is_ours(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    if line.starts_with(b"#") {
        return line.starts_with(NOTE.as_bytes());
    }
    let mut words = line.rsplit(|byte| *byte == b' ');
    let is_id = |word: &[u8]| {
        let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
        !word.is_empty() && word.iter().all(letter)
    };
    words.next() == Some(b"--scheduled")
        && words.next().is_some_and(is_id)
        && words.next() == Some(b"run")
        && words.next() == Some(b"cron")
        && words.next().is_some()
}

/// Removes the end of the last line of `text`, unless that line is empty.
fn take_end(text: &mut Vec<u8>) {
    if let [.., last, b'\n'] = text.as_slice()
        && *last != b'\n'
    {
        text.pop();
    }
}

/// If another block starts `text`, records there that we added the end of the line above.
fn inherit_end(text: &mut Vec<u8>) {
    let end = text.iter().position(|byte| *byte == b'\n');
    let line = text[..end.unwrap_or(text.len())].trim_ascii_end();
    if line.starts_with(BEGIN.as_bytes()) && line.ends_with(MADE.as_bytes()) {
        let at = line.len() - MADE.len();
        drop(text.splice(at..at + MADE.len(), MADE_WITH_END.bytes()));
    }
}

/// Encodes a name for a comment: on one line, and without trailing white space that an editor might remove.
fn encoded(name: &str) -> String {
    if name.is_empty() {
        return "%".into();
    }
    let mut out = String::new();
    let last = name.len().saturating_sub(1);
    for (at, letter) in name.char_indices() {
        match letter {
            '%' => out.push_str("%25"),
            ' ' if at == last => out.push_str("%20"),
            letter if letter.is_control() => {
                write!(out, "%{:02X}", u32::from(letter)).expect("writing to a string cannot fail");
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{
        BEGIN, END, MADE, MADE_WITH_END, Mark, block, encoded, is_ours, with_block, without,
    };

    const NAME: &str = "/home/u/.nanobot/workspace";

    fn line(id: &str) -> String {
        format!(
            "0 8 * * 1-5 /usr/bin/env HOME=/home/u PATH=/bin /usr/bin/nanobot cron run {id} --scheduled"
        )
    }

    fn lines(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| line(id)).collect()
    }

    /// Builds a block as it is written.
    fn text(made: &str, ids: &[&str]) -> String {
        let inner: String = lines(ids).iter().map(|line| format!("{line}\n")).collect();
        format!("{BEGIN}{NAME}{made}\n{inner}{END}{NAME}\n")
    }

    #[track_caller]
    fn check(table: &str, ids: &[&str], expect: &str) {
        let out = with_block(table.as_bytes(), NAME, &lines(ids));
        assert_eq!(String::from_utf8_lossy(&out), expect);
        assert_eq!(with_block(&out, NAME, &lines(ids)), out, "done again");
    }

    #[test]
    fn a_block_is_added_and_leaves_no_trace() {
        check("", &["a"], &text(MADE, &["a"]));
        let long = "# x\n0 1 * * * y\r\n".repeat(10_000);
        for table in [
            "",
            "\n",
            "MAILTO=me\n# own\n0 0 * * * x\n",
            "no end",
            "# only a comment\n\n\n",
            "crlf\r\n* * * * * x\r\n",
            "a\0b\n\0",
            "ends in cr\r",
            long.as_str(),
        ] {
            let added = with_block(table.as_bytes(), NAME, &lines(&["a", "b"]));
            assert!(added.starts_with(table.as_bytes()));
            assert_eq!(block(&added, NAME), Some(lines(&["a", "b"])));
            assert_eq!(without(&added, NAME), table.as_bytes());
            assert_eq!(with_block(&added, NAME, &[]), table.as_bytes());
            assert_eq!(block(table.as_bytes(), NAME), None);
        }
    }

    #[test]
    fn a_block_keeps_its_place() {
        let around = |inner: &str| format!("before\n{inner}after");
        check(
            &around(&text(MADE, &["a"])),
            &["b", "c"],
            &around(&text(MADE, &["b", "c"])),
        );
        check(&around(&text(MADE, &["a"])), &[], &around(""));
    }

    #[test]
    fn what_people_add_stays() {
        let (begin, end) = (format!("{BEGIN}{NAME}{MADE}\n"), format!("{END}{NAME}\n"));
        let (a, b) = (line("a"), line("b"));
        // Other lines inside the block.
        let table = format!("x\n{begin}{a}\nMAILTO=me\n#{b}\n{end}y\n");
        check(
            &table,
            &["c"],
            &format!("x\n{}MAILTO=me\n#{b}\ny\n", text(MADE, &["c"])),
        );
        check(&table, &[], &format!("x\nMAILTO=me\n#{b}\ny\n"));
        // Without its end, with an extra start, without its start.
        let table = format!("x\n{begin}{a}\n{b}\ny\n{a}\n");
        check(
            &table,
            &["c"],
            &format!("x\n{}y\n{a}\n", text(MADE, &["c"])),
        );
        let table = format!("x\n{begin}{a}\ny\n{begin}{b}\n{end}z\n");
        check(&table, &["c"], &format!("x\n{}y\nz\n", text(MADE, &["c"])));
        let table = format!("x\n{a}\n# nanobot: note\n{b}\n{end}z\n{end}");
        check(&table, &["c"], &format!("x\n{}z\n", text(MADE, &["c"])));
        check(&table, &[], "x\nz\n");
        // Truncated at the end of the table.
        check(
            &format!("x\n{begin}{a}"),
            &["c"],
            &format!("x\n{}", text(MADE, &["c"])),
        );
        check(&format!("x\n{begin}{a}\n{END}{NAME}"), &[], "x\n");
        check(
            &format!("x\n{BEGIN}{NAME}"),
            &[],
            &format!("x\n{BEGIN}{NAME}"),
        );
        // Line ends changed by an editor.
        check(
            &text(MADE, &["a"]).replace('\n', " \r\n"),
            &["a"],
            &text(MADE, &["a"]),
        );
    }

    #[test]
    fn blocks_there_twice_become_one() {
        let table = format!("x\n{}y\n{}z", text(MADE, &["a"]), text(MADE, &["a", "b"]));
        assert_eq!(block(table.as_bytes(), NAME), Some(lines(&["a", "a", "b"])));
        check(&table, &["b"], &format!("x\n{}y\nz", text(MADE, &["b"])));
        check(&table, &[], "x\ny\nz");
    }

    #[test]
    fn names_do_not_meet() {
        let names = [
            "/a",
            "/a ",
            "/a b",
            "/a\n",
            "/a%0A",
            "/a%",
            "",
            " ",
            MADE,
            "/ä\u{85}",
        ];
        let own = b"own".as_slice();
        let mut table = own.to_vec();
        for (number, name) in names.iter().enumerate() {
            table = with_block(&table, name, &lines(&[&number.to_string()]));
        }
        assert_eq!(
            table.iter().filter(|byte| **byte == b'\n').count(),
            names.len() * 3 + 1
        );
        for (number, name) in names.iter().enumerate() {
            assert_eq!(
                block(&table, name),
                Some(lines(&[&number.to_string()])),
                "{name:?}"
            );
        }
        for name in names {
            table = without(&table, name);
        }
        assert_eq!(table, own);
    }

    #[test]
    fn the_end_that_was_missing_goes_when_nothing_follows() {
        let added = text(MADE_WITH_END, &["a"]);
        check("x", &["a"], &format!("x\n{added}"));
        check(&format!("x\n{added}"), &[], "x");
        check(&format!("x\n{added}y\n"), &[], "x\ny\n");
        check(
            &format!("x\n{added}y\n"),
            &["b"],
            &format!("x\n{}y\n", text(MADE_WITH_END, &["b"])),
        );
    }

    #[test]
    fn lines_of_ours_are_known() {
        let check =
            |line: &str, expect: bool| assert_eq!(is_ours(line.as_bytes()), expect, "{line}");
        check(&line("a-1_B"), true);
        check(&format!("{} \r\n", line("a")), true);
        check("# nanobot: digest", true);
        check("# nanobot", false);
        check(&format!("# {}", line("a")), false);
        check("0 8 * * * nanobot cron run a", false);
        check("0 8 * * * nanobot cron run --scheduled", false);
        check("0 8 * * * nanobot cron run a;b --scheduled", false);
        check("cron run a --scheduled", false);
        check("0 8 * * * x --scheduled", false);
        check("", false);
    }

    /// Returns the lines that are not ours, without their line ends.
    fn foreign(table: &[u8]) -> Vec<String> {
        let name = encoded(NAME);
        let lines = table.split_inclusive(|byte| *byte == b'\n');
        lines
            .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
            .filter(|line| !matches!(Mark::of(line, &name), Some(Mark::Begin { .. } | Mark::End)))
            .filter(|line| !is_ours(line))
            .map(|line| line.escape_ascii().to_string().replace(MADE_WITH_END, MADE))
            .collect()
    }

    #[test]
    fn fuzz_nothing_of_others_is_lost() {
        let own = text(MADE, &["a", "b"]);
        let other = own.replace(NAME, "/other");
        let mixed = format!("# c\nA=b\n{own}0 1 * * * x\n{other}y\n{own}z");
        let ended = text(MADE_WITH_END, &["a"]);
        let cut = format!(
            "x\n{BEGIN}{NAME}{MADE}\n{}\ny\n{other}{END}{NAME}\n",
            line("a")
        );
        let seeds: Vec<&[u8]> = [&own, &other, &mixed, &ended, &cut, "a\r\nb\0"]
            .map(|seed: &str| seed.as_bytes())
            .to_vec();
        crate::fuzz::hold(&seeds, |table, random| {
            let ids = ["a", "b", "c"];
            let lines = lines(&ids[random.below(3)..]);
            let added = with_block(table, NAME, &lines);
            assert_eq!(block(&added, NAME), Some(lines.clone()));
            assert_eq!(with_block(&added, NAME, &lines), added);
            assert_eq!(foreign(&added), foreign(table));
            let removed = without(table, NAME);
            assert_eq!(block(&removed, NAME), None);
            assert_eq!(without(&removed, NAME), removed);
            assert_eq!(foreign(&removed), foreign(table));
            // The content before the removal does not matter afterwards.
            assert_eq!(without(&with_block(&removed, NAME, &lines), NAME), removed);
        });
    }
}
