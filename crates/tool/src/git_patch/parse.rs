//! Reads a patch, and applies the changes of one file to its content.

use super::{SHA1_ID_CHARS, SHA256_ID_CHARS, base85};
use anyhow::Result;
use flate2::read::ZlibDecoder;
use nanobot_base::error::{Exit, fail};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The largest content of a binary patch, in bytes.
const MAX_CONTENT_BYTES: u64 = 64 << 20;
/// The largest sum of these contents, in bytes. A patch of a run that works on a copy is not larger.
const MAX_BINARY_BYTES: u64 = 128 << 20;

/// The starts of the lines between `diff --git` and the content.
const HEADER_KEYS: [&str; 12] = [
    "old mode ",
    "new mode ",
    "new file mode ",
    "deleted file mode ",
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
    "similarity index ",
    "dissimilarity index ",
    "index ",
    "--- ",
];

/// The changes of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GitFilePatch {
    /// The file that is changed; `None` if it is new.
    pub(super) old_path: Option<PathBuf>,
    /// The file after the change; `None` if it is deleted.
    pub(super) new_path: Option<PathBuf>,
    /// True if the old file stays beside the new one.
    pub(super) is_copy: bool,
    pub(super) old_mode: Option<u32>,
    pub(super) new_mode: Option<u32>,
    /// The ids of the old and the new content, if they are whole.
    pub(super) old_id: Option<String>,
    pub(super) new_id: Option<String>,
    content: ContentChange,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ContentChange {
    #[default]
    None,
    Hunks(Vec<GitHunk>),
    /// The new content.
    Binary(Vec<u8>),
}

#[derive(Debug, PartialEq, Eq)]
struct GitHunk {
    /// The number of lines of the old file before the hunk.
    lines_before: usize,
    lines: Vec<GitHunkLine>,
}

/// A line with its mark: a blank, `-` or `+`.
#[derive(Debug, PartialEq, Eq)]
struct GitHunkLine {
    mark: u8,
    text: Vec<u8>,
}

fn unusable(message: impl Into<String>) -> anyhow::Error {
    fail(Exit::BadInput, message.into())
}

/// The parts of `patch`, one for each file. Each has a header, which may be just the names of a hunk, and its content at once behind it.
/// Other text before, between and behind them is ignored, as by git.
///
/// # Errors
/// Status 65 if it is not a patch of git; 77 if a name in it leads out of the directory.
pub fn parse(patch: &[u8]) -> Result<Vec<GitFilePatch>> {
    let mut lines = Lines { rest: patch, number: 0, binary_bytes: 0 };
    let mut patches = Vec::new();
    while let Some(line) = lines.next() {
        let number = lines.number;
        let mut patch = GitFilePatch::default();
        if let Some(names) = line.strip_prefix(b"diff --git ") {
            patch.old_path = common_name(names);
            patch.new_path.clone_from(&patch.old_path);
            parse_header(&mut patch, &mut lines)?;
        } else if let Some(name) = line.strip_prefix(b"--- ")
            && lines.are_new_name_and_hunk()
        {
            parse_names(&mut patch, name, &mut lines)?;
        } else if parse_ranges(line).is_some() {
            return Err(lines.error("a hunk without the name of a file"));
        } else {
            continue;
        }
        patch.content = parse_content(&mut lines)?;
        for path in patch.old_path.iter().chain(&patch.new_path) {
            check_path(path)?;
        }
        if patch.old_path.is_none() && patch.new_path.is_none() {
            return Err(unusable(format!("line {number} of the patch names no file")));
        }
        if patch.is_empty() {
            return Err(unusable(format!("line {number} of the patch begins no change")));
        }
        patches.push(patch);
    }
    if patches.is_empty() && !patch.trim_ascii().is_empty() {
        return Err(unusable("the input is no patch of git: no line begins with `diff --git`"));
    }
    Ok(patches)
}

/// The lines of a patch.
struct Lines<'a> {
    rest: &'a [u8],
    /// The number of the line that was read last.
    number: usize,
    /// The size of all binary contents so far.
    binary_bytes: u64,
}

impl<'a> Lines<'a> {
    /// The next line, without its newline. It is not read yet.
    fn peek(&self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let mut lines = self.rest.splitn(2, |byte| *byte == b'\n');
        lines.next()
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.peek()?;
        self.rest = self.rest.get(line.len() + 1..).unwrap_or_default();
        self.number += 1;
        Some(line)
    }

    /// True if the next lines are a new name and a hunk, as behind an old name.
    fn are_new_name_and_hunk(&self) -> bool {
        let mut lines = self.rest.split(|byte| *byte == b'\n');
        let mut begins = |start: &[u8]| lines.next().is_some_and(|line| line.starts_with(start));
        begins(b"+++ ") && begins(b"@@ -")
    }

    /// The line that was read last is wrong.
    fn error(&self, cause: &str) -> anyhow::Error {
        unusable(format!("line {} of the patch: {cause}", self.number))
    }
}

/// Reads the header of a file behind `diff --git`. As for git, it ends before the first line that is no part of it.
fn parse_header(patch: &mut GitFilePatch, lines: &mut Lines<'_>) -> Result<()> {
    while let Some(line) = lines.peek()
        && HEADER_KEYS.iter().any(|key| line.starts_with(key.as_bytes()))
    {
        let value = |key: &str| line.strip_prefix(key.as_bytes());
        lines.next();
        if let Some(mode) = value("old mode ") {
            patch.old_mode = Some(parse_mode(mode, lines)?);
        } else if let Some(mode) = value("new mode ") {
            patch.new_mode = Some(parse_mode(mode, lines)?);
        } else if let Some(mode) = value("new file mode ") {
            patch.new_mode = Some(parse_mode(mode, lines)?);
            patch.old_path = None;
        } else if let Some(mode) = value("deleted file mode ") {
            patch.old_mode = Some(parse_mode(mode, lines)?);
            patch.new_path = None;
        } else if let Some(name) = value("rename from ").or_else(|| value("copy from ")) {
            patch.is_copy = line.starts_with(b"copy");
            patch.old_path = Some(unquote(name, lines)?);
        } else if let Some(name) = value("rename to ").or_else(|| value("copy to ")) {
            patch.new_path = Some(unquote(name, lines)?);
        } else if let Some(ids) = value("index ") {
            let ids = String::from_utf8_lossy(ids);
            let ids = ids.split(' ').next().unwrap_or_default();
            let (old, new) = ids.split_once("..").unwrap_or_default();
            let is_whole = |id: &&str| [SHA1_ID_CHARS, SHA256_ID_CHARS].contains(&id.len());
            [patch.old_id, patch.new_id] =
                [old, new].map(|id| Some(id).filter(is_whole).map(str::to_owned));
        } else if let Some(name) = value("--- ") {
            parse_names(patch, name, lines)?;
        }
    }
    Ok(())
}

/// Reads the names before the hunks of a file; `old_name` is in the line that was read last.
fn parse_names(patch: &mut GitFilePatch, old_name: &[u8], lines: &mut Lines<'_>) -> Result<()> {
    let old_path = header_path(old_name, lines)?;
    let new_name = lines.next().and_then(|line| line.strip_prefix(b"+++ "));
    let new_name = new_name.ok_or_else(|| lines.error("expected `+++`"))?;
    let new_path = header_path(new_name, lines)?;
    let is_consistent = if patch.old_path.is_some() || patch.new_path.is_some() {
        let is_known =
            |path: &Option<PathBuf>, earlier_path| path.is_none() || path == earlier_path;
        is_known(&old_path, &patch.old_path) && is_known(&new_path, &patch.new_path)
    } else {
        // Only the lines of a header rename a file.
        old_path.is_none() || new_path.is_none() || old_path == new_path
    };
    if !is_consistent {
        return Err(lines.error("the name is another one than that before it"));
    }
    (patch.old_path, patch.new_path) = (old_path, new_path);
    Ok(())
}

/// Reads the content of a file, which begins with the next line if there is one.
fn parse_content(lines: &mut Lines<'_>) -> Result<ContentChange> {
    let next = lines.peek().unwrap_or_default();
    if next.starts_with(b"Binary files ") {
        lines.next();
        return Err(lines.error("the content is missing; `git diff --binary` has it"));
    }
    if next == b"GIT binary patch" {
        lines.next();
        return Ok(ContentChange::Binary(parse_binary(lines)?));
    }
    let mut hunks = Vec::new();
    while let Some(line) = lines.peek()
        && line.starts_with(b"@@ ")
    {
        lines.next();
        hunks.push(parse_hunk(line, lines)?);
    }
    Ok(if hunks.is_empty() { ContentChange::None } else { ContentChange::Hunks(hunks) })
}

/// The name in the first line of a part, if both names are the same but for their first directories. The others follow in lines of their
/// own.
fn common_name(names: &[u8]) -> Option<PathBuf> {
    if names.starts_with(b"\"") {
        let (old, rest) = unquote_prefix(names)?;
        let (new, rest) = unquote_prefix(rest.strip_prefix(b" ")?)?;
        let (old, new) = (without_prefix(&old)?, without_prefix(&new)?);
        return (old == new && rest.is_empty()).then(|| to_path(old));
    }
    let blanks = names.iter().enumerate().filter(|(_, byte)| **byte == b' ');
    let mut pairs =
        blanks.map(|(at, _)| (without_prefix(&names[..at]), without_prefix(&names[at + 1..])));
    pairs.find_map(|(old, new)| old.filter(|old| Some(old) == new.as_ref())).map(to_path)
}

/// `name` without its first directory, `a` or `b`. `None` if it has none.
fn without_prefix(name: &[u8]) -> Option<Vec<u8>> {
    match name.iter().position(|byte| *byte == b'/')? {
        // An absolute path has no such prefix.
        0 => Some(name.to_vec()),
        slash => Some(name[slash + 1..].to_vec()),
    }
}

/// The path in a header line of a hunk: its first directory is `a` or `b`. `None` for `/dev/null`.
fn header_path(name: &[u8], lines: &Lines<'_>) -> Result<Option<PathBuf>> {
    let name = if name.starts_with(b"\"") {
        unquote_prefix(name).ok_or_else(|| lines.error("a name is not quoted correctly"))?.0
    } else {
        name.split(|byte| *byte == b'\t').next().unwrap_or_default().to_vec()
    };
    if name == b"/dev/null" {
        return Ok(None);
    }
    let path = without_prefix(&name).map(to_path);
    let path = path.ok_or_else(|| lines.error("the name does not begin with `a/` or `b/`"))?;
    check_path(&path)?;
    Ok(Some(path))
}

/// The path that a whole line names.
fn unquote(name: &[u8], lines: &Lines<'_>) -> Result<PathBuf> {
    if !name.starts_with(b"\"") {
        return Ok(to_path(name.to_vec()));
    }
    let unquoted = unquote_prefix(name).map(|(name, _)| to_path(name));
    unquoted.ok_or_else(|| lines.error("a name is not quoted correctly"))
}

/// The quoted name at the start of `text`, and what follows it.
fn unquote_prefix(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (&escaped, after) = rest.split_first()?;
                rest = after;
                name.push(match escaped {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => escaped,
                    b'0'..=b'3' => {
                        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                        rest = &rest[2..];
                        let low = u8::from_str_radix(digits, 8).ok()?;
                        (escaped - b'0') * 64 + low
                    }
                    _ => return None,
                });
            }
            byte => name.push(byte),
        }
    }
}

fn to_path(name: Vec<u8>) -> PathBuf {
    OsString::from_vec(name).into()
}

/// Refuses names that lead out of the directory.
fn check_path(path: &Path) -> Result<()> {
    let mut components = path.components();
    let is_inside = components.all(|part| matches!(part, Component::Normal(_)));
    // `Path` ignores `a/./b` and `a//b`, which git refuses.
    let name = path.as_os_str();
    let is_plain = path.iter().collect::<PathBuf>().as_os_str() == name && !name.is_empty();
    if is_inside && is_plain && !name.as_encoded_bytes().contains(&0) {
        return Ok(());
    }
    let reason =
        if is_inside { "is not written as git writes it" } else { "leads out of the directory" };
    Err(fail(Exit::Refused, format!("the name `{}` {reason}", path.display())))
}

fn parse_mode(digits: &[u8], lines: &Lines<'_>) -> Result<u32> {
    let mode = std::str::from_utf8(digits).ok();
    let mode = mode.and_then(|digits| u32::from_str_radix(digits.trim_end(), 8).ok());
    mode.ok_or_else(|| lines.error("an unknown mode"))
}

/// Reads a hunk, whose first line is `header`.
fn parse_hunk(header: &[u8], lines: &mut Lines<'_>) -> Result<GitHunk> {
    let (old, new) =
        parse_ranges(header).ok_or_else(|| lines.error("the header of a hunk is wrong"))?;
    // An empty range names the line before it.
    let lines_before = if old.count == 0 { old.start } else { old.start.saturating_sub(1) };
    let mut hunk = GitHunk { lines_before, lines: Vec::new() };
    let (mut old_left, mut new_left) = (old.count, new.count);
    while old_left > 0 || new_left > 0 {
        let line = lines.next().ok_or_else(|| lines.error("the hunk ends too early"))?;
        // Mail programs cut blanks at the end of a line.
        let (mark, text) = line.split_first().map_or((b' ', line), |(mark, text)| (*mark, text));
        let is_wrong = match mark {
            b' ' => old_left == 0 || new_left == 0,
            b'-' => old_left == 0,
            b'+' => new_left == 0,
            _ => true,
        };
        if is_wrong {
            return Err(lines.error("the hunk has another line than its header says"));
        }
        old_left -= usize::from(mark != b'+');
        new_left -= usize::from(mark != b'-');
        let mut text = text.to_vec();
        if lines.peek().is_some_and(|line| line.starts_with(b"\\ ")) {
            lines.next();
        } else {
            text.push(b'\n');
        }
        hunk.lines.push(GitHunkLine { mark, text });
    }
    Ok(hunk)
}

struct LineRange {
    start: usize,
    count: usize,
}

/// The ranges of the old and the new file in the header of a hunk: `@@ -1,2 +1 @@`.
fn parse_ranges(header: &[u8]) -> Option<(LineRange, LineRange)> {
    let text = String::from_utf8_lossy(header);
    let (old, rest) = text.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some(LineRange { start: start.parse().ok()?, count: count.parse().ok()? })
    };
    Some((range(old)?, range(new)?))
}

/// Reads a binary patch: the new content. The old one, which may follow it, is not needed.
fn parse_binary(lines: &mut Lines<'_>) -> Result<Vec<u8>> {
    let header = lines.next().unwrap_or_default();
    if header.starts_with(b"delta ") {
        return Err(lines.error("it has only a difference of binary content; `git apply` takes it"));
    }
    let size = header.strip_prefix(b"literal ").and_then(|size| std::str::from_utf8(size).ok());
    let size = size.and_then(|size| size.parse::<u64>().ok());
    let size = size.ok_or_else(|| lines.error("expected `literal` and a size"))?;
    if size > MAX_CONTENT_BYTES {
        return Err(lines.error("the binary content is too large"));
    }
    lines.binary_bytes += size;
    if lines.binary_bytes > MAX_BINARY_BYTES {
        return Err(lines.error("the binary contents are too large together"));
    }
    let mut packed = Vec::new();
    while let Some(line) = lines.next()
        && !line.is_empty()
    {
        let bytes = base85::decode_line(line).map_err(|error| lines.error(&error.to_string()))?;
        packed.extend(bytes);
    }
    let mut content = Vec::new();
    let read = ZlibDecoder::new(&packed[..]).take(size + 1).read_to_end(&mut content);
    if read.is_err() || content.len() as u64 != size {
        return Err(lines.error("the binary content is damaged"));
    }
    // The old content is in lines of the same form, which are no header.
    if lines.peek().is_some_and(|line| line.starts_with(b"literal ") || line.starts_with(b"delta "))
    {
        while lines.next().is_some_and(|line| !line.is_empty()) {}
    }
    Ok(content)
}

impl GitFilePatch {
    /// True if nothing changes.
    fn is_empty(&self) -> bool {
        self.content == ContentChange::None
            && self.old_path == self.new_path
            && self.old_mode.is_none()
            && self.new_mode.is_none()
    }

    /// True if the patch has a whole content, so that the old one must be known.
    pub(super) fn is_binary(&self) -> bool {
        matches!(self.content, ContentChange::Binary(_))
    }

    /// The content after the change of `old`; `None` if a hunk does not fit where it says.
    pub(super) fn apply_to(&self, old: &[u8]) -> Option<Vec<u8>> {
        let hunks = match &self.content {
            ContentChange::None => return Some(old.to_vec()),
            ContentChange::Binary(new) => return Some(new.clone()),
            ContentChange::Hunks(hunks) => hunks,
        };
        let old_lines: Vec<&[u8]> = old.split_inclusive(|byte| *byte == b'\n').collect();
        let mut new = Vec::new();
        let mut at = 0;
        for hunk in hunks {
            new.extend(old_lines.get(at..hunk.lines_before)?.concat());
            at = hunk.lines_before;
            for GitHunkLine { mark, text } in &hunk.lines {
                if *mark != b'+' {
                    if old_lines.get(at)? != text {
                        return None;
                    }
                    at += 1;
                }
                if *mark != b'-' {
                    new.extend_from_slice(text);
                }
            }
        }
        new.extend(old_lines.get(at..)?.concat());
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, MAX_BINARY_BYTES, parse, parse_binary};
    use crate::git_patch::format::format_change;
    use crate::git_patch::{FileKind, GitFile, ObjectFormat};
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_base::fuzz;
    use std::path::Path;

    fn file(bytes: &[u8]) -> GitFile {
        GitFile { kind: FileKind::Regular, bytes: bytes.to_vec() }
    }

    #[test]
    fn contents_come_back_from_a_patch() {
        let contents: [&[u8]; 10] = [
            b"",
            b"1\n",
            b"1",
            b"1\r\n2\r\n3",
            b"1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            b"1\n2\n3\n4\nfive\n6\n7\n8\nnine",
            b"\0\x01",
            b"caf\xe9\n",
            "caf\u{e9}\r\n\r\n".as_bytes(),
            b"--- a\n+++ b\n@@ -1 +1 @@\n\\ x\n",
        ];
        for name in ["a", "a b/c d", "\u{e9}\"\\\n", "a b/b a b/b"] {
            for old in contents {
                for new in contents.iter().filter(|new| **new != old) {
                    let (old_file, new_file) = (file(old), file(new));
                    let path = Path::new(name);
                    let format = |old: Option<&GitFile>, new: Option<&GitFile>| {
                        format_change(path, old, new, Some(ObjectFormat::Sha1)).unwrap()
                    };
                    let text = format(Some(&old_file), Some(&new_file))
                        + &format(None, Some(&new_file))
                        + &format(Some(&old_file), None);
                    let patches = parse(text.as_bytes()).unwrap();
                    let [change, creation, deletion] = &patches[..] else {
                        panic!("{text}");
                    };
                    assert_eq!(change.old_path.as_deref(), Some(path), "{text}");
                    assert_eq!(change.new_path.as_deref(), Some(path), "{text}");
                    assert_eq!(change.apply_to(old).as_deref(), Some(*new), "{text}");
                    assert_eq!(
                        (&creation.old_path, creation.new_path.as_deref()),
                        (&None, Some(path))
                    );
                    assert_eq!(creation.apply_to(b"").as_deref(), Some(*new), "{text}");
                    assert_eq!(
                        (deletion.old_path.as_deref(), &deletion.new_path),
                        (Some(path), &None)
                    );
                    assert_eq!(deletion.apply_to(old).as_deref(), Some(&b""[..]), "{text}");
                    assert_eq!(change.new_id, creation.new_id);
                }
            }
        }
    }

    #[test]
    fn renames_and_other_text() {
        let text = "From: a@b\n\nSubject\n---\n x | 2 +-\n\ndiff --git a/x b/y z\nsimilarity index 90%\nrename from x\nrename to y z\n\
                    index 1234567..89abcde 100644\n--- a/x\n+++ b/y z\t\n@@ -1,2 +1,2 @@ fn\n one\n-two\n+2\n-- \n2.39.5\n";
        let patches = parse(text.as_bytes()).unwrap();
        let [patch] = &patches[..] else { panic!("{patches:?}") };
        assert_eq!(patch.old_path.as_deref(), Some(Path::new("x")));
        assert_eq!(patch.new_path.as_deref(), Some(Path::new("y z")));
        assert_eq!((patch.is_copy, &patch.old_id), (false, &None));
        assert_eq!(patch.apply_to(b"one\ntwo\n3\n").unwrap(), b"one\n2\n3\n");
        assert_eq!(patch.apply_to(b"zero\none\ntwo\n"), None);
    }

    #[test]
    fn other_input_is_an_error() {
        let check = |text: &str, expect: &str| {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(expect), "{text:?}: {error}");
            assert_eq!(exit_for(&error), Exit::BadInput);
        };
        assert!(parse(b" \n").unwrap().is_empty());
        check("hello\n", "no patch of git");
        check("--- a/x\n+++ b/x\n", "no patch of git");
        check("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-1\n+2\n", "line 2 of the patch: the name is");
        check("diff --git a/x b/x\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-1\n+2\n", "line 3");
        check("diff --git a/x b/y\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-1\n+2\n", "line 3");
        let renamed = "diff --git a/x b/y\nrename from x\nrename to y\n--- a/z\n+++ b/y\n";
        check(renamed, "line 5 of the patch: the name is");
        check("diff --git a/x b/x\nnew file mode 100644\n--- a/z\n+++ b/x\n", "line 4");
        check("diff --git a/x b/x\n", "line 1 of the patch begins no change");
        check("diff --git a/x b/x\nold mode 100644\n\n@@ -1 +1 @@\n-1\n+2\n", "line 4 of the");
        check("diff --git a/x b/y\n", "line 1 of the patch names no file");
        check("diff --git a/x b/x\n--- a/x\n", "line 2 of the patch: expected `+++`");
        check("diff --git a/x b/x\n--- x\n+++ b/x\n", "does not begin with");
        check("diff --git a/x b/x\n@@ -1 +1 @@\n-1\n", "ends too early");
        check("diff --git a/x b/x\n@@ -1 +1 @@\n-1\n-1\n", "line 4 of the patch: the hunk has");
        check("diff --git a/x b/x\n@@ x\n", "header of a hunk");
        check("diff --git a/x b/x\nold mode x\n", "an unknown mode");
        check("diff --git a/x b/x\nBinary files a/x and b/x differ\n", "the content is missing");
        check("diff --git a/x b/x\nGIT binary patch\ndelta 3\n", "`git apply` takes it");
        check("diff --git a/x b/x\nGIT binary patch\nliteral 1\nHcmV?d00001\n\n", "damaged");
        check("diff --git a/x b/x\nGIT binary patch\nliteral 99999999999\n", "too large");
    }

    #[test]
    fn text_behind_the_content_is_no_header() {
        let change = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n";
        let texts = [
            "-- \n2.39\n\nFrom 123 Mon Sep 17\nSubject: move\n\ncopy to evil\nnew mode 100755\n---\n",
            "rename to y\nnew mode 100755\n",
            "deleted file mode 100644\n",
            "index 1..2\n@@ text\n",
            "\nGIT binary patch\nliteral 1\n",
            "\n--- a/z\n+++ b/z\n",
            "- 3\n+ 4\n",
        ];
        for first in [format!("diff --git a/x b/x\n{change}"), change.to_owned()] {
            for text in texts {
                let second = change.replace("/x", "/y");
                for second in [format!("diff --git a/y b/y\n{second}"), second] {
                    let patches = parse(format!("{first}{text}{second}").as_bytes()).unwrap();
                    let expect = [parse(first.as_bytes()), parse(second.as_bytes())];
                    let expect: Vec<_> = expect.into_iter().flat_map(Result::unwrap).collect();
                    assert_eq!(patches, expect, "{text}");
                    assert_eq!(patches[1].old_path.as_deref(), Some(Path::new("y")));
                    assert_eq!(patches[1].apply_to(b"1\n2\n").unwrap(), b"one\n2\n");
                }
            }
            let error = parse(format!("{first}\n@@ -3,1 +3,1 @@\n-3\n+4\n").as_bytes());
            let error = error.unwrap_err().to_string();
            assert!(error.contains("a hunk without the name of a file"), "{error}");
        }
        // A change of the mode has no content.
        let text = "diff --git a/x b/x\nold mode 100644\nnew mode 100755\ntext\nrename to y\n";
        assert_eq!(parse(text.as_bytes()).unwrap()[0].new_path.as_deref(), Some(Path::new("x")));
    }

    #[test]
    fn binary_contents_have_a_limit_together() {
        let content_after = |binary_bytes| {
            let part =
                format_change(Path::new("x"), None, Some(&file(b"\0")), Some(ObjectFormat::Sha1));
            let part = part.unwrap();
            let (_, content) = part.split_once("GIT binary patch\n").unwrap();
            parse_binary(&mut Lines { rest: content.as_bytes(), number: 0, binary_bytes })
        };
        assert_eq!(content_after(MAX_BINARY_BYTES - 1).unwrap(), b"\0");
        let error = content_after(MAX_BINARY_BYTES).unwrap_err();
        assert!(error.to_string().contains("too large together"), "{error}");
    }

    #[test]
    fn names_that_lead_out_are_told_apart() {
        for name in ["../x", "/etc/x", "x/../../y", "x/../y", "./x", "x//y", "", "x/.", "x/"] {
            for text in [
                format!("diff --git a/{name} b/{name}\nnew file mode 100644\n"),
                format!("diff --git a/x b/x\n--- a/x\n+++ b/{name}\n"),
                format!("diff --git a/x b/y\nrename from x\nrename to {name}\n"),
                format!("diff --git a/x b/y\nrename from \"{name}\"\nrename to y\n"),
            ] {
                let error = parse(text.as_bytes()).unwrap_err();
                assert_eq!(exit_for(&error), Exit::Refused, "{text:?}: {error}");
            }
        }
    }

    #[test]
    fn fuzz_patches() {
        let seeds: [Vec<u8>; 2] =
            [(&b"1\n2"[..], &b"1\n3\n"[..]), (b"\0", b"\x01\0")].map(|(old, new)| {
                let path = Path::new("a \u{e9}");
                format_change(path, Some(&file(old)), Some(&file(new)), Some(ObjectFormat::Sha1))
                    .unwrap()
                    .into()
            });
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        fuzz::check(&seeds, |input, _| {
            for patch in parse(input).unwrap_or_default() {
                patch.apply_to(b"1\n2");
            }
        });
    }
}
