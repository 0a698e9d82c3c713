//! Our block in a crontab: the lines of one job file between two comments that name its workspace. There is no I/O here. Tables are bytes:
//! other content is preserved, and removing the block restores the original table.
//!
//! People edit crontabs. A block may have lost its start or end, may appear twice, and may contain lines of the user. A line is therefore
//! treated as generated only if it has the form of the lines that we write; all others are preserved.

use std::fmt::Write;

const BEGIN_PREFIX: &str = "# >>> nanobot cron: ";
const BEGIN_SUFFIX: &str = " (made by `nanobot cron`; changes here are lost)";
/// Added if the table's last line had no line end: we add one, and remove it with the block.
const BEGIN_SUFFIX_WITH_NEWLINE: &str =
    " (made by `nanobot cron`; changes here are lost; the end of the line above, too)";
const END_PREFIX: &str = "# <<< nanobot cron: ";
/// Prefix of the comments that a block may contain.
pub(crate) const NOTE_PREFIX: &str = "# nanobot: ";

/// Returns `table` with `lines` as the block of `name`, in its existing position or at the end. Without lines, the
/// block is removed.
///
/// Lines are those of [`super::command_line`] preceded by time fields, or comments that begin with [`NOTE_PREFIX`].
/// Other lines could not be distinguished from the user's own.
pub fn with_block(table: &[u8], name: &str, lines: &[String]) -> Vec<u8> {
    if lines.is_empty() {
        return without_block(table, name);
    }
    let name = encode_name(name);
    let parts = TableParts::parse(table, &name);
    let mut out = parts.before.concat();
    let mut has_added_newline = parts.block.is_some_and(|block| block.has_added_newline);
    if !out.is_empty() && !out.ends_with(b"\n") {
        out.push(b'\n');
        has_added_newline = true;
    }
    let suffix = if has_added_newline { BEGIN_SUFFIX_WITH_NEWLINE } else { BEGIN_SUFFIX };
    let mut block = format!("{BEGIN_PREFIX}{name}{suffix}\n");
    for line in lines {
        debug_assert!(is_generated(line.as_bytes()) && !line.contains('\n'), "{line}");
        block.push_str(line);
        block.push('\n');
    }
    writeln!(block, "{END_PREFIX}{name}").expect("writing to a string cannot fail");
    out.extend_from_slice(block.as_bytes());
    out.extend(parts.after.concat());
    out
}

/// Returns `table` without the block of `name`.
pub fn without_block(table: &[u8], name: &str) -> Vec<u8> {
    let TableParts { before, block, after } = TableParts::parse(table, &encode_name(name));
    let mut out = before.concat();
    let mut after = after.concat();
    if block.is_some_and(|block| block.has_added_newline) {
        if after.is_empty() {
            remove_newline(&mut out);
        } else {
            // The next block now depends on the line end that we added.
            record_added_newline(&mut after);
        }
    }
    out.append(&mut after);
    out
}

/// Returns the names of all blocks, as they are encoded in the comments.
pub fn block_names(table: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(table);
    let heads = text.lines().filter_map(|line| line.strip_prefix(BEGIN_PREFIX));
    let names = heads.filter_map(|head| Some(head.split_once(" (made by ")?.0.to_owned()));
    names.collect()
}

/// Returns the lines of the block of `name`; `None` if there is no block.
pub fn block_lines(table: &[u8], name: &str) -> Option<Vec<String>> {
    let lines = TableParts::parse(table, &encode_name(name)).block?.lines;
    let text = |line: &&[u8]| String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
    Some(lines.iter().map(text).collect())
}

/// Returns the value of `CRON_TZ` that applies to the block of `name`: the last one above it. Some cron daemons read the
/// times of all lines below in that zone.
pub fn zone_variable(table: &[u8], name: &str) -> Option<String> {
    let lines_above = TableParts::parse(table, &encode_name(name)).before;
    let mut values = lines_above.iter().rev().filter_map(|line| {
        let line = str::from_utf8(line).ok()?;
        let (name, value) = line.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        (name.trim() == "CRON_TZ").then(|| value.to_owned())
    });
    values.next()
}

/// The parts of a table. The block goes where its first part was; other lines inside it are moved after it.
#[derive(Default)]
struct TableParts<'a> {
    before: Vec<&'a [u8]>,
    block: Option<CrontabBlock<'a>>,
    after: Vec<&'a [u8]>,
}

#[derive(Default)]
struct CrontabBlock<'a> {
    /// True if we added the end of the line above.
    has_added_newline: bool,
    lines: Vec<&'a [u8]>,
}

impl<'a> TableParts<'a> {
    fn parse(table: &'a [u8], name: &str) -> Self {
        let lines: Vec<&[u8]> = table.split_inclusive(|byte| *byte == b'\n').collect();
        let mut parts = Self::default();
        let mut rest = lines.as_slice();
        while let Some((line, mut next)) = rest.split_first() {
            match BlockMarker::parse(line, name) {
                Some(BlockMarker::Begin { has_added_newline }) => {
                    let block = parts.block.get_or_insert(CrontabBlock {
                        has_added_newline,
                        ..CrontabBlock::default()
                    });
                    let marked_length = block_length(next, name);
                    // A block without an end extends only over generated lines.
                    let length = marked_length.unwrap_or_else(|| {
                        next.iter().take_while(|line| is_generated(line)).count()
                    });
                    let (generated, others): (Vec<&[u8]>, Vec<&[u8]>) =
                        next[..length].iter().partition(|line| is_generated(line));
                    block.lines.extend(generated);
                    parts.after.extend(others);
                    next = &next[length + usize::from(marked_length.is_some())..];
                }
                Some(BlockMarker::End) => parts.reclaim_lines(),
                Some(BlockMarker::OtherBegin) | None => parts.outside_lines().push(line),
            }
            rest = next;
        }
        parts
    }

    /// Returns the lines before the block, or the lines after it once it has begun.
    fn outside_lines(&mut self) -> &mut Vec<&'a [u8]> {
        match self.block {
            None => &mut self.before,
            Some(_) => &mut self.after,
        }
    }

    /// Handles an end without a start: the generated lines just before it belong to the block.
    fn reclaim_lines(&mut self) {
        let lines = self.outside_lines();
        let last_other = lines.iter().rposition(|line| !is_generated(line));
        let generated = lines.split_off(last_other.map_or(0, |index| index + 1));
        self.block.get_or_insert_default().lines.extend(generated);
    }
}

/// Returns the number of lines before the block's end; `None` if another block starts first, or the table ends.
fn block_length(lines: &[&[u8]], name: &str) -> Option<usize> {
    for (length, line) in lines.iter().enumerate() {
        match BlockMarker::parse(line, name) {
            Some(BlockMarker::End) => return Some(length),
            Some(BlockMarker::Begin { .. } | BlockMarker::OtherBegin) => return None,
            None => {}
        }
    }
    None
}

/// One of our two marker comments.
enum BlockMarker {
    Begin {
        has_added_newline: bool,
    },
    End,
    /// The start of a block of another name.
    OtherBegin,
}

impl BlockMarker {
    fn parse(line: &[u8], name: &str) -> Option<Self> {
        let line = line.trim_ascii_end();
        if let Some(end_name) = line.strip_prefix(END_PREFIX.as_bytes()) {
            return (end_name == name.as_bytes()).then_some(Self::End);
        }
        let rest = line.strip_prefix(BEGIN_PREFIX.as_bytes())?;
        let (begin_name, has_added_newline) =
            match rest.strip_suffix(BEGIN_SUFFIX_WITH_NEWLINE.as_bytes()) {
                Some(begin_name) => (begin_name, true),
                None => (rest.strip_suffix(BEGIN_SUFFIX.as_bytes())?, false),
            };
        if begin_name == name.as_bytes() {
            Some(Self::Begin { has_added_newline })
        } else {
            Some(Self::OtherBegin)
        }
    }
}

/// True if a line has the form of those that we write: it ends in `cron run ID --scheduled`, or is a note.
fn is_generated(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    if line.starts_with(b"#") {
        return line.starts_with(NOTE_PREFIX.as_bytes());
    }
    let mut arguments = line.rsplit(|byte| *byte == b' ');
    let is_id = |argument: &[u8]| {
        let is_id_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
        !argument.is_empty() && argument.iter().all(is_id_byte)
    };
    arguments.next() == Some(b"--scheduled")
        && arguments.next().is_some_and(is_id)
        && arguments.next() == Some(b"run")
        && arguments.next() == Some(b"cron")
        && arguments.next().is_some()
}

/// Removes the end of the last line of `text`, unless that line is empty.
fn remove_newline(text: &mut Vec<u8>) {
    if let [.., last, b'\n'] = text.as_slice()
        && *last != b'\n'
    {
        text.pop();
    }
}

/// If another block starts `text`, records there that we added the end of the line above.
fn record_added_newline(text: &mut Vec<u8>) {
    let end = text.iter().position(|byte| *byte == b'\n');
    let line = text[..end.unwrap_or(text.len())].trim_ascii_end();
    if line.starts_with(BEGIN_PREFIX.as_bytes()) && line.ends_with(BEGIN_SUFFIX.as_bytes()) {
        let suffix = line.len() - BEGIN_SUFFIX.len()..line.len();
        drop(text.splice(suffix, BEGIN_SUFFIX_WITH_NEWLINE.bytes()));
    }
}

/// Encodes a name for a comment: on one line, and without trailing white space that an editor might remove.
fn encode_name(name: &str) -> String {
    if name.is_empty() {
        return "%".into();
    }
    let mut out = String::new();
    let last_index = name.len().saturating_sub(1);
    for (index, letter) in name.char_indices() {
        match letter {
            '%' => out.push_str("%25"),
            ' ' if index == last_index => out.push_str("%20"),
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
        BEGIN_PREFIX, BEGIN_SUFFIX, BEGIN_SUFFIX_WITH_NEWLINE, BlockMarker, END_PREFIX,
        block_lines, encode_name, is_generated, with_block, without_block,
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
        format!("{BEGIN_PREFIX}{NAME}{made}\n{inner}{END_PREFIX}{NAME}\n")
    }

    #[track_caller]
    fn check(table: &str, ids: &[&str], expect: &str) {
        let out = with_block(table.as_bytes(), NAME, &lines(ids));
        assert_eq!(String::from_utf8_lossy(&out), expect);
        assert_eq!(with_block(&out, NAME, &lines(ids)), out, "done again");
    }

    #[test]
    fn removing_a_block_restores_the_table() {
        check("", &["a"], &text(BEGIN_SUFFIX, &["a"]));
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
            assert_eq!(block_lines(&added, NAME), Some(lines(&["a", "b"])));
            assert_eq!(without_block(&added, NAME), table.as_bytes());
            assert_eq!(with_block(&added, NAME, &[]), table.as_bytes());
            assert_eq!(block_lines(table.as_bytes(), NAME), None);
        }
    }

    #[test]
    fn a_block_keeps_its_place() {
        let around = |inner: &str| format!("before\n{inner}after");
        check(
            &around(&text(BEGIN_SUFFIX, &["a"])),
            &["b", "c"],
            &around(&text(BEGIN_SUFFIX, &["b", "c"])),
        );
        check(&around(&text(BEGIN_SUFFIX, &["a"])), &[], &around(""));
    }

    #[test]
    fn user_lines_inside_a_block_are_preserved() {
        let (begin, end) =
            (format!("{BEGIN_PREFIX}{NAME}{BEGIN_SUFFIX}\n"), format!("{END_PREFIX}{NAME}\n"));
        let (a, b) = (line("a"), line("b"));
        // Other lines inside the block.
        let table = format!("x\n{begin}{a}\nMAILTO=me\n#{b}\n{end}y\n");
        check(&table, &["c"], &format!("x\n{}MAILTO=me\n#{b}\ny\n", text(BEGIN_SUFFIX, &["c"])));
        check(&table, &[], &format!("x\nMAILTO=me\n#{b}\ny\n"));
        // Without its end, with an extra start, without its start.
        let table = format!("x\n{begin}{a}\n{b}\ny\n{a}\n");
        check(&table, &["c"], &format!("x\n{}y\n{a}\n", text(BEGIN_SUFFIX, &["c"])));
        let table = format!("x\n{begin}{a}\ny\n{begin}{b}\n{end}z\n");
        check(&table, &["c"], &format!("x\n{}y\nz\n", text(BEGIN_SUFFIX, &["c"])));
        let table = format!("x\n{a}\n# nanobot: note\n{b}\n{end}z\n{end}");
        check(&table, &["c"], &format!("x\n{}z\n", text(BEGIN_SUFFIX, &["c"])));
        check(&table, &[], "x\nz\n");
        // Truncated at the end of the table.
        check(&format!("x\n{begin}{a}"), &["c"], &format!("x\n{}", text(BEGIN_SUFFIX, &["c"])));
        check(&format!("x\n{begin}{a}\n{END_PREFIX}{NAME}"), &[], "x\n");
        check(&format!("x\n{BEGIN_PREFIX}{NAME}"), &[], &format!("x\n{BEGIN_PREFIX}{NAME}"));
        // Line ends changed by an editor.
        check(
            &text(BEGIN_SUFFIX, &["a"]).replace('\n', " \r\n"),
            &["a"],
            &text(BEGIN_SUFFIX, &["a"]),
        );
    }

    #[test]
    fn duplicate_blocks_are_merged() {
        let table =
            format!("x\n{}y\n{}z", text(BEGIN_SUFFIX, &["a"]), text(BEGIN_SUFFIX, &["a", "b"]));
        assert_eq!(block_lines(table.as_bytes(), NAME), Some(lines(&["a", "a", "b"])));
        check(&table, &["b"], &format!("x\n{}y\nz", text(BEGIN_SUFFIX, &["b"])));
        check(&table, &[], "x\ny\nz");
    }

    #[test]
    fn names_do_not_collide() {
        let names =
            ["/a", "/a ", "/a b", "/a\n", "/a%0A", "/a%", "", " ", BEGIN_SUFFIX, "/ä\u{85}"];
        let own = b"own".as_slice();
        let mut table = own.to_vec();
        for (number, name) in names.iter().enumerate() {
            table = with_block(&table, name, &lines(&[&number.to_string()]));
        }
        assert_eq!(table.iter().filter(|byte| **byte == b'\n').count(), names.len() * 3 + 1);
        for (number, name) in names.iter().enumerate() {
            assert_eq!(block_lines(&table, name), Some(lines(&[&number.to_string()])), "{name:?}");
        }
        for name in names {
            table = without_block(&table, name);
        }
        assert_eq!(table, own);
    }

    #[test]
    fn an_added_newline_is_removed_with_the_block() {
        let added = text(BEGIN_SUFFIX_WITH_NEWLINE, &["a"]);
        check("x", &["a"], &format!("x\n{added}"));
        check(&format!("x\n{added}"), &[], "x");
        check(&format!("x\n{added}y\n"), &[], "x\ny\n");
        check(
            &format!("x\n{added}y\n"),
            &["b"],
            &format!("x\n{}y\n", text(BEGIN_SUFFIX_WITH_NEWLINE, &["b"])),
        );
    }

    #[test]
    fn generated_lines_are_recognized() {
        let check =
            |line: &str, expect: bool| assert_eq!(is_generated(line.as_bytes()), expect, "{line}");
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
    fn user_lines(table: &[u8]) -> Vec<String> {
        let name = encode_name(NAME);
        let lines = table.split_inclusive(|byte| *byte == b'\n');
        lines
            .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
            .filter(|line| {
                !matches!(
                    BlockMarker::parse(line, &name),
                    Some(BlockMarker::Begin { .. } | BlockMarker::End)
                )
            })
            .filter(|line| !is_generated(line))
            .map(|line| {
                line.escape_ascii().to_string().replace(BEGIN_SUFFIX_WITH_NEWLINE, BEGIN_SUFFIX)
            })
            .collect()
    }

    #[test]
    fn fuzz_user_lines_are_preserved() {
        let own = text(BEGIN_SUFFIX, &["a", "b"]);
        let other = own.replace(NAME, "/other");
        let mixed = format!("# c\nA=b\n{own}0 1 * * * x\n{other}y\n{own}z");
        let ended = text(BEGIN_SUFFIX_WITH_NEWLINE, &["a"]);
        let cut = format!(
            "x\n{BEGIN_PREFIX}{NAME}{BEGIN_SUFFIX}\n{}\ny\n{other}{END_PREFIX}{NAME}\n",
            line("a")
        );
        let seeds: Vec<&[u8]> = [&own, &other, &mixed, &ended, &cut, "a\r\nb\0"]
            .map(|seed: &str| seed.as_bytes())
            .to_vec();
        nanobot_base::fuzz::check(&seeds, |table, random| {
            let ids = ["a", "b", "c"];
            let lines = lines(&ids[random.below(3)..]);
            let added = with_block(table, NAME, &lines);
            assert_eq!(block_lines(&added, NAME), Some(lines.clone()));
            assert_eq!(with_block(&added, NAME, &lines), added);
            assert_eq!(user_lines(&added), user_lines(table));
            let removed = without_block(table, NAME);
            assert_eq!(block_lines(&removed, NAME), None);
            assert_eq!(without_block(&removed, NAME), removed);
            assert_eq!(user_lines(&removed), user_lines(table));
            // The content before the removal does not matter afterwards.
            assert_eq!(without_block(&with_block(&removed, NAME, &lines), NAME), removed);
        });
    }
}
