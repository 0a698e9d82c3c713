//! Patches in the envelope that OpenAI's models were trained on: parsed, and applied to the text of a file. Pure.
//!
//! Sections for files stand between `*** Begin Patch` and `*** End Patch`. Hunks have no line numbers; their lines are
//! searched for in the file. A hunk that could apply at several positions is an error, unless an `@@` line decides. The
//! format is that of the prompting guide of GPT-4.1 and of the program Codex.

use crate::line_search::{
    IgnoredForms, IgnoredSpace, IndentationMap, describe_closest, find_lines, fold, respell,
    split_line_number, with_content_of, without_line_number,
};
use std::borrow::Cow;
use std::iter::Peekable;

/// Maximum characters of a hunk that an error quotes.
const MAX_QUOTED_CHARS: usize = 3_000;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD_FILE: &str = "*** Add File:";
const DELETE_FILE: &str = "*** Delete File:";
const UPDATE_FILE: &str = "*** Update File:";
const MOVE_TO: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePatch<'a> {
    Add {
        path: &'a str,
        text: String,
    },
    Delete {
        path: &'a str,
    },
    Update {
        path: &'a str,
        /// The new path, if the file is moved.
        new_path: Option<&'a str>,
        hunks: Vec<Hunk<'a>>,
    },
}

impl FilePatch<'_> {
    /// The path of the file before the change.
    pub fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Delete { path } | Self::Update { path, .. } => path,
        }
    }
}

/// Adjacent lines that are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk<'a> {
    /// Lines above the hunk, from the outermost one to the innermost one, such as those of a class and its method.
    headers: Vec<&'a str>,
    lines: Vec<HunkLine<'a>>,
    /// True if the hunk ends at the end of the file.
    ends_file: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HunkLine<'a> {
    Context(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// A line of the patch.
#[derive(Clone, Copy)]
struct PatchLine<'a> {
    /// The number of the line, from 1.
    number: usize,
    text: &'a str,
}

/// Parses the sections of a patch. A here-document around it, as for a shell, is ignored.
///
/// # Errors
/// A message with the line that is wrong.
pub fn parse(text: &str) -> Result<Vec<FilePatch<'_>>, String> {
    let text = strip_here_document(text.trim());
    let mut lines: Vec<PatchLine<'_>> =
        (1..).zip(text.lines()).map(|(number, text)| PatchLine { number, text }).collect();
    if lines.first().is_none_or(|line| line.text.trim() != BEGIN) {
        return Err(format!("the first line must be `{BEGIN}`"));
    }
    if lines.last().is_none_or(|line| line.text.trim() != END) {
        return Err(format!("the last line must be `{END}`"));
    }
    lines.pop();
    let mut lines = lines.into_iter().skip(1).peekable();
    let mut sections = Vec::new();
    while let Some(PatchLine { number, text }) = lines.next() {
        if text.trim().is_empty() {
            continue;
        }
        let section = if let Some(path) = text.strip_prefix(ADD_FILE) {
            let path = parse_path(path, number)?;
            let text = parse_added_lines(&mut lines);
            FilePatch::Add { path, text }
        } else if let Some(path) = text.strip_prefix(DELETE_FILE) {
            let path = parse_path(path, number)?;
            FilePatch::Delete { path }
        } else if let Some(path) = text.strip_prefix(UPDATE_FILE) {
            parse_update(parse_path(path, number)?, &mut lines)?
        } else {
            return Err(format!(
                "line {number}: expected `{ADD_FILE}`, `{DELETE_FILE}` or `{UPDATE_FILE}` with a path, or `+` before each \
                 line of an added file; found `{text}`"
            ));
        };
        sections.push(section);
    }
    if sections.is_empty() { Err("the patch is empty".into()) } else { Ok(sections) }
}

/// The content of a here-document such as `<<'EOF'`, with or without the command that reads it.
fn strip_here_document(text: &str) -> &str {
    let content = || {
        let (first, rest) = text.split_once('\n')?;
        let (command, word) = first.split_once("<<")?;
        let word = word.trim().trim_matches(['\'', '"']);
        let is_start = ["", "apply_patch"].contains(&command.trim()) && !word.is_empty();
        let rest = rest.trim_end().strip_suffix(word)?;
        is_start.then(|| rest.trim_end())
    };
    content().unwrap_or(text)
}

fn parse_path(text: &str, number: usize) -> Result<&str, String> {
    match text.trim() {
        "" => Err(format!("line {number}: the path is missing")),
        path => Ok(path),
    }
}

fn parse_added_lines<'a>(lines: &mut Peekable<impl Iterator<Item = PatchLine<'a>>>) -> String {
    let mut text = String::new();
    while let Some(line) = lines.next_if(|line| line.text.starts_with('+')) {
        text.push_str(&line.text[1..]);
        text.push('\n');
    }
    text
}

fn parse_update<'a>(
    path: &'a str,
    lines: &mut Peekable<impl Iterator<Item = PatchLine<'a>>>,
) -> Result<FilePatch<'a>, String> {
    let new_path = match lines.next_if(|line| line.text.starts_with(MOVE_TO)) {
        Some(line) => Some(parse_path(&line.text[MOVE_TO.len()..], line.number)?),
        None => None,
    };
    let mut hunks = Vec::new();
    let is_section = |line: &PatchLine<'_>| line.text.starts_with("*** ");
    while let Some(first_line) = lines.next_if(|line| !is_section(line)) {
        if first_line.text.is_empty() {
            continue;
        }
        let mut hunk = Hunk::default();
        let mut next = Some(first_line);
        while let Some(line) = next
            && let Some(header) = line.text.strip_prefix("@@")
        {
            if !header.trim().is_empty() {
                hunk.headers.push(header.trim());
            }
            next = lines.next_if(|line| !is_section(line));
        }
        // Empty lines at the end of a hunk separate it from the next one.
        let mut separators = 0;
        while let Some(line) = next {
            separators = if line.text.is_empty() { separators + 1 } else { 0 };
            hunk.lines.push(parse_hunk_line(line)?);
            next = lines.next_if(|line| !is_section(line) && !line.text.starts_with("@@"));
        }
        hunk.lines.truncate(hunk.lines.len() - separators);
        if hunk.lines.is_empty() {
            return Err(format!(
                "line {}: the hunk has no lines that begin with ` `, `-` or `+`",
                first_line.number
            ));
        }
        hunk.ends_file = lines.next_if(|line| line.text.trim_end() == END_OF_FILE).is_some();
        hunks.push(hunk);
    }
    if hunks.is_empty() && new_path.is_none() {
        return Err(format!("the section for `{path}` has no hunks"));
    }
    Ok(FilePatch::Update { path, new_path, hunks })
}

fn parse_hunk_line(line: PatchLine<'_>) -> Result<HunkLine<'_>, String> {
    let PatchLine { number, text } = line;
    // Some models leave out the blank of an empty line.
    let Some(prefix) = text.chars().next() else {
        return Ok(HunkLine::Context(""));
    };
    match prefix {
        ' ' => Ok(HunkLine::Context(&text[1..])),
        '-' => Ok(HunkLine::Removed(&text[1..])),
        '+' => Ok(HunkLine::Added(&text[1..])),
        _ => Err(format!(
            "line {number}: expected ` `, `-`, `+` or `@@` at the start; found `{text}`"
        )),
    }
}

/// A line of a file, with its line ending or that of the file.
#[derive(Clone, Copy)]
struct FileLine<'a> {
    text: &'a str,
    ending: &'a str,
}

/// The position of a hunk: the index of its first line, and how the file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HunkPosition {
    start: usize,
    difference: Difference,
}

/// The differences that a comparison of lines ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Difference {
    space: IgnoredSpace,
    /// Characters that look alike.
    look_alikes: bool,
}

impl Difference {
    const NONE: Self = Self { space: IgnoredSpace::None, look_alikes: false };
}

/// The indices at which lines occur in a file, if `difference` is ignored.
struct Occurrences {
    difference: Difference,
    starts: Vec<usize>,
}

/// The lines of a file, and what they are compared as apart from characters that look alike.
struct ComparedLines<'a> {
    texts: Vec<&'a str>,
    folded: Vec<Cow<'a, str>>,
}

impl<'a> ComparedLines<'a> {
    fn new(texts: Vec<&'a str>) -> Self {
        let folded = texts.iter().map(|text| fold(text, IgnoredForms::LookAlikes)).collect();
        Self { texts, folded }
    }

    /// The occurrences of `wanted` for each kind of comparison, the strictest first.
    fn find<'s>(&'s self, wanted: &'s [&'s str]) -> impl Iterator<Item = Occurrences> + 's {
        [false, true].into_iter().flat_map(move |look_alikes| {
            IgnoredSpace::STEPS.into_iter().map(move |space| {
                let starts = if look_alikes {
                    let fold = |line: &&'s str| fold(line, IgnoredForms::LookAlikes);
                    let wanted: Vec<Cow<'_, str>> = wanted.iter().map(fold).collect();
                    find_lines(&self.folded, &wanted, space)
                } else {
                    find_lines(&self.texts, wanted, space)
                };
                Occurrences { difference: Difference { space, look_alikes }, starts }
            })
        })
    }
}

/// Applies `hunks` to the `text` of a file, and returns the new text. The line endings and a missing newline at the end are
/// kept. Line numbers of `read_file` before the lines of a hunk are left out if the file does not have them.
///
/// # Errors
/// A message with the number of the hunk that does not apply, and the lines that were searched for.
pub fn apply(text: &str, hunks: &[Hunk<'_>]) -> Result<String, String> {
    let lines = split_lines(text);
    let compared_lines = ComparedLines::new(lines.iter().map(|line| line.text).collect());
    let mut new = String::with_capacity(text.len());
    // The index of the first line that no hunk has changed or passed.
    let mut next_line = 0;
    for (number, hunk) in (1..).zip(hunks) {
        let name_hunk = |error: String| format!("{}: {error}", hunk.name(number));
        let unnumbered = hunk.without_line_numbers(&compared_lines);
        let hunk = unnumbered.as_ref().unwrap_or(hunk);
        let position = hunk.locate(&compared_lines, next_line).map_err(name_hunk)?;
        for line in &lines[next_line..position.start] {
            new.extend([line.text, line.ending]);
        }
        hunk.push_new_lines(&lines, position, &mut new).map_err(name_hunk)?;
        next_line = position.start + hunk.old_lines().len();
    }
    for line in &lines[next_line..] {
        new.extend([line.text, line.ending]);
    }
    if !text.is_empty() && !text.ends_with('\n') && new.ends_with('\n') {
        new.pop();
        if new.ends_with('\r') {
            new.pop();
        }
    }
    Ok(new)
}

fn split_lines(text: &str) -> Vec<FileLine<'_>> {
    let lines = text.split_inclusive('\n');
    let default_ending = match lines.clone().next().map_or("", line_ending) {
        "" => "\n",
        ending => ending,
    };
    let split = |line| match line_ending(line) {
        "" => FileLine { text: line, ending: default_ending },
        ending => FileLine { text: &line[..line.len() - ending.len()], ending },
    };
    lines.map(split).collect()
}

/// The line ending of `line`; empty if there is none.
fn line_ending(line: &str) -> &'static str {
    if line.ends_with("\r\n") {
        "\r\n"
    } else if line.ends_with('\n') {
        "\n"
    } else {
        ""
    }
}

impl<'a> Hunk<'a> {
    /// The name in errors.
    fn name(&self, number: usize) -> String {
        match self.headers.last() {
            Some(header) => format!("hunk {number} (`@@ {header}`)"),
            None => format!("hunk {number}"),
        }
    }

    /// The lines that the file must have.
    fn old_lines(&self) -> Vec<&'a str> {
        let old = |line: &HunkLine<'a>| match *line {
            HunkLine::Context(text) | HunkLine::Removed(text) => Some(text),
            HunkLine::Added(_) => None,
        };
        self.lines.iter().filter_map(old).collect()
    }

    /// The hunk without line numbers before its lines, if it does not occur in the file with them.
    fn without_line_numbers(&self, compared_lines: &ComparedLines<'_>) -> Option<Self> {
        let old = self.old_lines();
        let numbers = old.iter().map(|line| split_line_number(line).map(|(number, _)| number));
        let numbers = numbers.collect::<Option<Vec<u64>>>()?;
        let counts_up = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
        if old.is_empty()
            || !counts_up
            || compared_lines.find(&old).any(|occurrences| !occurrences.starts.is_empty())
        {
            return None;
        }
        let unnumbered = self.lines.iter().map(|line| match *line {
            HunkLine::Context(text) => HunkLine::Context(without_line_number(text)),
            HunkLine::Removed(text) => HunkLine::Removed(without_line_number(text)),
            HunkLine::Added(text) => HunkLine::Added(without_line_number(text)),
        });
        Some(Self { lines: unnumbered.collect(), ..self.clone() })
    }

    /// Finds the position of the hunk at or after the line `next_line`.
    fn locate(
        &self,
        compared_lines: &ComparedLines<'_>,
        next_line: usize,
    ) -> Result<HunkPosition, String> {
        let line_count = compared_lines.texts.len();
        let old = self.old_lines();
        // From each occurrence of the headers, the next occurrence of the lines counts.
        let earliest_starts = if self.headers.is_empty() {
            None
        } else {
            let below_headers = self.find_headers(compared_lines)?;
            let mut starts: Vec<usize> =
                below_headers.into_iter().map(|start| start.max(next_line)).collect();
            starts.dedup();
            Some(starts)
        };
        if old.is_empty() {
            // By convention lines without context are appended.
            let starts = earliest_starts.unwrap_or_else(|| vec![line_count]);
            return only_position(&starts, Difference::NONE, "the `@@` line occurs");
        }
        for Occurrences { difference, starts } in compared_lines.find(&old) {
            if self.ends_file
                && let Some(start) = starts.last().copied()
                && start + old.len() == line_count
                && start >= next_line
            {
                return Ok(HunkPosition { start, difference });
            }
            let candidates = match &earliest_starts {
                Some(earliest_starts) => next_indices(&starts, earliest_starts),
                None => starts.into_iter().filter(|start| *start >= next_line).collect(),
            };
            if !candidates.is_empty() {
                let position = only_position(&candidates, difference, "its lines occur");
                return position.map_err(|error| format!("{error}\n{}", quote(&old)));
            }
        }
        Err(self.explain_missing(compared_lines, &old, next_line))
    }

    /// The indices of the lines below the last header; several if the headers occur more than once.
    fn find_headers(&self, compared_lines: &ComparedLines<'_>) -> Result<Vec<usize>, String> {
        // The first header may be any line.
        let mut starts: Vec<usize> = (0..compared_lines.texts.len()).collect();
        for header in &self.headers {
            let wanted = [*header];
            let mut whole_lines =
                compared_lines.find(&wanted).map(|occurrences| occurrences.starts);
            // Models often shorten the line.
            let indices = whole_lines.find(|indices| !indices.is_empty()).unwrap_or_else(|| {
                let folded_header = fold(header, IgnoredForms::LookAlikes);
                let begins = |index: &usize| {
                    compared_lines.folded[*index].trim_start().starts_with(&*folded_header)
                };
                (0..compared_lines.folded.len()).filter(begins).collect()
            });
            let header_lines = next_indices(&indices, &starts);
            if header_lines.is_empty() {
                return Err(format!("the file has no line `{header}`"));
            }
            starts = header_lines.into_iter().map(|index| index + 1).collect();
        }
        Ok(starts)
    }

    /// The error for `old` lines that are not at or after the line `next_line`: they are above it, or the file has only
    /// similar lines.
    fn explain_missing(
        &self,
        compared_lines: &ComparedLines<'_>,
        old: &[&str],
        next_line: usize,
    ) -> String {
        let first_start = |occurrences: Occurrences| occurrences.starts.first().copied();
        if let Some(index) = compared_lines.find(old).find_map(first_start) {
            let line = index + 1;
            return if line <= next_line {
                format!(
                    "its lines occur at line {line}, in or above the previous hunk; hunks must have the order of the \
                 file\n{}",
                    quote(old)
                )
            } else {
                format!("its lines occur at line {line}, above the `@@` line\n{}", quote(old))
            };
        }
        let closest =
            describe_closest(&compared_lines.texts.join("\n"), &old.join("\n"), "the hunk");
        let closest = closest.unwrap_or_else(|| "Nothing is similar; read the file again.".into());
        format!("the file does not have these lines:\n{}\n{closest}", quote(old))
    }

    /// Appends to `new` what the lines of the file at `position` become.
    fn push_new_lines(
        &self,
        lines: &[FileLine<'_>],
        position: HunkPosition,
        new: &mut String,
    ) -> Result<(), String> {
        let old = self.old_lines();
        let replaced = &lines[position.start..position.start + old.len()];
        let texts: Vec<&str> = replaced.iter().map(|line| line.text).collect();
        let Difference { space, look_alikes } = position.difference;
        // The old lines with the white space of the model and the characters of the file.
        let respelled: Vec<String> =
            old.iter().zip(&texts).map(|(old, text)| with_content_of(old, text)).collect();
        let respelled: Vec<&str> = respelled.iter().map(String::as_str).collect();
        let old_in_file = if look_alikes { &respelled } else { &old };
        // The model left out the indentation, or used a different one.
        let indentations = match space {
            IgnoredSpace::Surrounding => IndentationMap::new(old_in_file, &texts),
            IgnoredSpace::None | IgnoredSpace::Trailing => IndentationMap::new(&[], &[]),
        };
        let mut old_index = 0;
        // The first of the removed lines that the added ones replace.
        let mut replaced_from = 0;
        let mut hunk_lines = self.lines.iter().peekable();
        while let Some(line) = hunk_lines.next() {
            let HunkLine::Added(first) = line else {
                if matches!(line, HunkLine::Context(_)) {
                    new.extend([replaced[old_index].text, replaced[old_index].ending]);
                    replaced_from = old_index + 1;
                }
                old_index += 1;
                continue;
            };
            let mut added = vec![*first];
            while let Some(HunkLine::Added(text)) =
                hunk_lines.next_if(|line| matches!(line, HunkLine::Added(_)))
            {
                added.push(text);
            }
            let mut added = added.join("\n");
            if look_alikes {
                let removed = old[replaced_from..old_index].join("\n");
                let removed_in_file = old_in_file[replaced_from..old_index].join("\n");
                added = respell(&added, &removed, &removed_in_file, IgnoredForms::LookAlikes);
            }
            replaced_from = old_index;
            let neighbour = lines.get(position.start + old_index).or_else(|| lines.last());
            for text in added.split('\n') {
                let reindented = indentations.reindent(text);
                new.push_str(&reindented.map_err(|error| format!("{error}\n{}", quote(&texts)))?);
                new.push_str(neighbour.map_or("\n", |line| line.ending));
            }
        }
        Ok(())
    }
}

/// From each of `starts`, the next of `indices`. Both are sorted.
fn next_indices(indices: &[usize], starts: &[usize]) -> Vec<usize> {
    let next = |start: &usize| indices.get(indices.partition_point(|index| index < start)).copied();
    let mut next_indices: Vec<usize> = starts.iter().filter_map(next).collect();
    next_indices.dedup();
    next_indices
}

/// The position, if there is only one. `clause` is the beginning of the error.
fn only_position(
    starts: &[usize],
    difference: Difference,
    clause: &str,
) -> Result<HunkPosition, String> {
    if let [start] = *starts {
        return Ok(HunkPosition { start, difference });
    }
    let numbers: Vec<String> =
        starts.iter().take(10).map(|start| (start + 1).to_string()).collect();
    Err(format!(
        "{clause} {} times, at lines {}; add context lines, or the `@@` line of the function or class around it",
        starts.len(),
        numbers.join(", ")
    ))
}

/// The lines of a hunk in an error.
fn quote(lines: &[&str]) -> String {
    lines.join("\n").chars().take(MAX_QUOTED_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::{FilePatch, apply, parse};
    use crate::fuzz::{self, lossy_text};

    fn envelope(body: &str) -> String {
        format!("*** Begin Patch\n{body}*** End Patch")
    }

    #[test]
    fn sections_are_parsed() {
        let check = |text: &str, expect: &str| {
            let sections = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            let describe = |section: &FilePatch<'_>| match section {
                FilePatch::Add { path, text } => format!("add {path} {text:?}"),
                FilePatch::Delete { path } => format!("delete {path}"),
                FilePatch::Update { path, new_path, hunks } => {
                    format!("update {path} {new_path:?} {}", hunks.len())
                }
            };
            let sections: Vec<String> = sections.iter().map(describe).collect();
            assert_eq!(sections.join("; "), expect, "{text:?}");
        };
        let add = envelope("*** Add File: a b.md\n+one\n+\n+*** two\n");
        check(&add, r#"add a b.md "one\n\n*** two\n""#);
        check(&format!("\n{}\n", add.replace('\n', "\r\n")), r#"add a b.md "one\n\n*** two\n""#);
        check(&envelope("*** Add File: empty\n"), r#"add empty """#);
        check(&envelope("*** Delete File: /a\n\n*** Delete File: ~/b \n"), "delete /a; delete ~/b");
        for (start, end) in [("<<'EOF'", "EOF"), ("apply_patch <<\"X\"", "X\n"), ("<<EOF", "EOF")] {
            let text = format!("{start}\n{}\n{end}", envelope("*** Delete File: a\n"));
            check(&text, "delete a");
        }
        let update = "*** Update File: a\n*** Move to: b\n";
        check(&envelope(update), r#"update a Some("b") 0"#);
        let hunks =
            "@@ class A\n@@ def b\n-x\n+y\n\n@@\n x\n+y\n*** End of File\n*** Delete File: c\n";
        check(&envelope(&format!("{update}{hunks}")), r#"update a Some("b") 2; delete c"#);
        check(&envelope("*** Update File: a\n-x\n@@\n+y\n"), "update a None 2");
    }

    #[test]
    fn wrong_patches_are_explained() {
        let check = |text: &str, expect: &str| {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expect), "{text:?}: {error}");
        };
        check("", "the first line must be `*** Begin Patch`");
        check("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", "the first line must be");
        check(
            "rm -r x <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF",
            "the first line must be",
        );
        check("*** Begin Patch\n*** Delete File: a\n", "the last line must be `*** End Patch`");
        check("*** Begin Patch", "the last line must be");
        check(&envelope(""), "the patch is empty");
        check(&envelope("*** Delete File:\n"), "line 2: the path is missing");
        check(&envelope("*** Add File: a\none\n"), "line 3: expected `*** Add File:`");
        check(&envelope("*** End Patch\n*** Begin Patch\n"), "line 2: expected");
        check(&envelope("*** Rename File: a\n"), "found `*** Rename File: a`");
        check(&envelope("*** Update File: a\n"), "`a` has no hunks");
        check(&envelope("*** Update File: a\n@@ x\n"), "line 3: the hunk has no lines");
        check(&envelope("*** Update File: a\n@@\nx\n"), "line 4: expected ` `, `-`, `+` or `@@`");
        check(&envelope("*** Update File: a\n-x\n*** Move to: b\n"), "line 4: expected");
    }

    fn apply_body(text: &str, body: &str) -> Result<String, String> {
        let patch = envelope(&format!("*** Update File: a\n{body}"));
        match &parse(&patch).unwrap()[..] {
            [FilePatch::Update { hunks, .. }] => apply(text, hunks),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hunks_are_applied() {
        let check = |text: &str, body: &str, expect: &str| {
            assert_eq!(apply_body(text, body).as_deref(), Ok(expect), "{text:?} {body:?}");
        };
        check("a\nb\nc\n", "@@\n a\n-b\n+x\n+y\n c\n", "a\nx\ny\nc\n");
        check("a\nb\nc\n", "-a\n-b\n-c\n", "");
        check("a\nb\nc\n", "@@\n-a\n@@\n-c\n+d\n", "b\nd\n");
        // Lines that occur again above the previous hunk are not meant.
        check("x\na\nx\n", "@@\n-a\n+b\n@@\n-x\n+y\n", "x\nb\ny\n");
        // The `@@` lines decide.
        let methods =
            "class A:\n  def f():\n    x\n  def g():\n    x\nclass B:\n  def g():\n    x\n";
        check(
            methods,
            "@@ class B:\n-    x\n+    y\n",
            &format!("{}    y\n", &methods[..methods.len() - 6]),
        );
        let expect = methods.replacen("  def g():\n    x", "  def g():\n    y", 1);
        check(methods, "@@ class A\n@@ def g\n-    x\n+    y\n", &expect);
        check(methods, "@@ class A:\n@@   def g():\n-x\n+y\n", &expect);
        check("f\na\nb\n", "@@ f\n-a\n@@ f\n-b\n+c\n", "f\nc\n");
        // Lines without context follow the `@@` line, or are appended.
        check("a\nb\n", "@@ a\n+x\n", "a\nx\nb\n");
        check("a\nb\n", "+x\n", "a\nb\nx\n");
        check("", "+x\n", "x\n");
        check("a\nb\na\n", "@@\n-a\n*** End of File\n", "a\nb\n");
        check("a\nb\n", "@@\n-a\n*** End of File\n", "b\n");
        // Line endings and a missing newline at the end are kept.
        check("a\r\nb\r\n", "@@\n a\n-b\n+x\n+y\n", "a\r\nx\r\ny\r\n");
        check("a\r\nb\nc\n", "@@\n-b\n+x\n", "a\r\nx\nc\n");
        check("a\nb", "@@\n a\n-b\n+x\n", "a\nx");
        check("a\r\nb", "@@\n b\n+x\n", "a\r\nb\r\nx");
        check("a\nb", "@@\n a\n-b\n", "a");
        // White space: an exact match comes first, then one that differs at the end, then one with another indentation.
        check("  a\na \na\n", "@@\n-a\n+x\n", "  a\na \nx\n");
        check("  a\na \n", "@@\n-a\n+x\n", "  a\nx\n");
        check("a  \nb\n", "@@\n a\n-b\n+x\n", "a  \nx\n");
        check("\tif a:\n\t\tb\n", "@@\n if a:\n-\tb\n+\tx\n+\ty\n", "\tif a:\n\t\tx\n\t\ty\n");
        check(
            "all:\n\techo hi\n\techo ho\n",
            "@@\n all:\n-    echo hi\n+    echo hey\n",
            "all:\n\techo hey\n\techo ho\n",
        );
        check("a\n\nb\n", "@@\n a\n\n-b\n+x\n", "a\n\nx\n");
        // Characters that look alike: those of the file are kept.
        check(
            "x\u{a0}y\n\u{201c}10\u{a0}km\u{201d} \u{2014} z\n",
            "@@\n x y\n-\"10 km\" - z\n+\"12 km\" - z\n+new\n",
            "x\u{a0}y\n\u{201c}12\u{a0}km\u{201d} \u{2014} z\nnew\n",
        );
        check("\tcafe\u{301} a\n", "@@\n-caf\u{e9} a\n+caf\u{e9} b\n", "\tcafe\u{301} b\n");
        check("\u{2019}f\na\ng\na\n", "@@ 'f\n-a\n+b\n", "\u{2019}f\nb\ng\na\n");
        check("a\u{a0}b\na b\n", "-a b\n+c\n", "a\u{a0}b\nc\n");
        // Line numbers of read_file.
        check("a\nb\nc\n", "@@\n 2| b\n-3| c\n+3| x\n", "a\nb\nx\n");
        check("2| b\n", "-2| b\n+2| x\n", "2| x\n");
    }

    #[test]
    fn hunks_that_do_not_apply_are_explained() {
        let check = |text: &str, body: &str, expect: &[&str]| {
            let error = apply_body(text, body).unwrap_err();
            for part in expect {
                assert!(error.contains(part), "no {part:?} in {error}");
            }
        };
        check(
            "a\nb\n",
            "@@\n-a\n@@\n-c\n-zzz\n",
            &["hunk 2: the file does not have these lines:\nc\nzzz", "Nothing is similar"],
        );
        check(
            "let value = 10;\n",
            "@@\n-let value = 12;\n",
            &["hunk 1: ", "The closest match is line 1", "+let value = 10;"],
        );
        check(
            "a\nb\na\n",
            "@@\n-a\n+x\n",
            &["hunk 1: its lines occur 2 times, at lines 1, 3", "`@@` line"],
        );
        check(" a\n  a\n", "@@\n-a\n", &["2 times, at lines 1, 2"]);
        check(
            "\ta\n\t\tb\n",
            "@@\n a\n-        b\n+    b\n",
            &["hunk 1: these lines are indented differently", "\n\ta\n\t\tb"],
        );
        check(
            "a\nb\n",
            "@@\n-b\n@@\n-a\n",
            &["hunk 2: its lines occur at line 1", "the order of the file"],
        );
        check("a\nb\n", "@@ b\n-a\n", &["hunk 1 (`@@ b`)", "above the `@@` line"]);
        check("a\n", "@@ f\n-a\n", &["hunk 1 (`@@ f`): the file has no line `f`"]);
        check("f\na\nf\na\n", "@@ f\n-a\n", &["at lines 2, 4"]);
        check("f\nf\n", "@@ f\n+a\n", &["the `@@` line occurs 2 times"]);
        check("", "@@\n-a\n", &["does not have these lines"]);
        check("a\u{a0}b\na\u{a0}b\n", "-a b\n", &["2 times, at lines 1, 2"]);
        check(
            "one\u{a0}two\nthree\n",
            "-one two\n-four\n",
            &["Line 1 differs in U+00A0 at column 4; the hunk has U+0020 there"],
        );
    }

    #[test]
    fn fuzz_patches() {
        let patch = envelope(
            "*** Update File: a\n@@ f\n a\n-b\n+c\n*** End of File\n*** Add File: b\n+x\n",
        );
        let moved = envelope("*** Update File: a\n*** Move to: b\n-a\n*** Delete File: c\n");
        let here_document = format!("<<'EOF'\n{patch}\nEOF");
        let seeds = [patch.as_bytes(), moved.as_bytes(), here_document.as_bytes()];
        let text = "f\r\na\r\nb";
        fuzz::check(&seeds, |input, _| {
            for section in parse(&lossy_text(input)).unwrap_or_default() {
                if let FilePatch::Update { hunks, .. } = section
                    && let Err(error) = apply(text, &hunks)
                {
                    assert!(error.starts_with("hunk "), "{error}");
                }
            }
        });
    }
}
