//! Writes a patch.

use super::{FileKind, GitFile, ObjectFormat, base85};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use nanobot_base::diff::Diff;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Lines of context around a change, as in git.
const CONTEXT_LINES: usize = 3;
/// The largest file whose lines are compared, in bytes.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// The part of a patch for the file `path`, whose name has no `a/` and `b/`. `None` is a file that does not exist. Empty if nothing has
/// changed. Without `objects` it is for reading, as that of `git diff`: no ids, and of binary files only that they differ.
///
/// # Errors
/// The content cannot be compressed.
pub fn format_change(
    path: &Path,
    old: Option<&GitFile>,
    new: Option<&GitFile>,
    objects: Option<ObjectFormat>,
) -> io::Result<String> {
    if old == new {
        return Ok(String::new());
    }
    if let (Some(old), Some(new)) = (old, new)
        && (old.kind == FileKind::Link) != (new.kind == FileKind::Link)
    {
        // Git never changes a file into a link: it deletes one and creates the other.
        let deletion = format_change(path, Some(old), None, objects)?;
        return Ok(deletion + &format_change(path, None, Some(new), objects)?);
    }
    let [old_name, new_name] = ["a/", "b/"].map(|prefix| quote(prefix, path));
    let mut text = format!("diff --git {old_name} {new_name}\n");
    let mut mode = "";
    match (old.map(|old| old.kind.mode()), new.map(|new| new.kind.mode())) {
        (None, Some(new_mode)) => text.push_str(&format!("new file mode {new_mode}\n")),
        (Some(old_mode), None) => text.push_str(&format!("deleted file mode {old_mode}\n")),
        (Some(old_mode), Some(new_mode)) if old_mode != new_mode => {
            text.push_str(&format!("old mode {old_mode}\nnew mode {new_mode}\n"));
        }
        (old_mode, _) => mode = old_mode.unwrap_or_default(),
    }
    let [old_bytes, new_bytes] = [old, new].map(|file| file.map(|file| file.bytes.as_slice()));
    if old_bytes == new_bytes {
        return Ok(text);
    }
    if let Some(objects) = objects {
        let id = |bytes: Option<&[u8]>| {
            bytes.map_or_else(|| objects.null_id(), |bytes| objects.blob_id(bytes))
        };
        let blank = if mode.is_empty() { "" } else { " " };
        text.push_str(&format!("index {}..{}{blank}{mode}\n", id(old_bytes), id(new_bytes)));
    }
    let header = |bytes: Option<&[u8]>, name: &str| {
        bytes.map_or_else(|| "/dev/null".to_owned(), |_| name.to_owned())
    };
    let [old_header, new_header] = [header(old_bytes, &old_name), header(new_bytes, &new_name)];
    let [old_content, new_content] = [old_bytes, new_bytes].map(Option::unwrap_or_default);
    match (as_text(old_content), as_text(new_content)) {
        (Some(old_text), Some(new_text)) => {
            let hunks = Diff::new(old_text, new_text).patch_hunks(CONTEXT_LINES);
            if !hunks.is_empty() {
                // Programs that take a name to end at the first blank take one that ends at a tab.
                let end = |header: &str| if header.contains(' ') { "\t" } else { "" };
                let (old_end, new_end) = (end(&old_header), end(&new_header));
                text.push_str(&format!(
                    "--- {old_header}{old_end}\n+++ {new_header}{new_end}\n{hunks}"
                ));
            }
        }
        _ if objects.is_none() => {
            text.push_str(&format!("Binary files {old_header} and {new_header} differ\n"));
        }
        _ => {
            text.push_str("GIT binary patch\n");
            // The second part is for `git apply -R`.
            for content in [new_content, old_content] {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(content)?;
                let lines = base85::encode(&encoder.finish()?);
                text.push_str(&format!("literal {}\n{lines}\n", content.len()));
            }
        }
    }
    Ok(text)
}

/// The text in `bytes`, if its lines can be compared.
fn as_text(bytes: &[u8]) -> Option<&str> {
    let is_binary = bytes.len() > MAX_TEXT_BYTES || bytes.contains(&0);
    if is_binary { None } else { std::str::from_utf8(bytes).ok() }
}

/// The name of `path` behind `prefix`, in quotes if git would misread it.
fn quote(prefix: &str, path: &Path) -> String {
    let mut quoted = String::new();
    let mut is_plain = true;
    for &byte in prefix.as_bytes().iter().chain(path.as_os_str().as_bytes()) {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => {
                quoted.push(char::from(byte));
                continue;
            }
            b'\n' => quoted.push_str("\\n"),
            b'\t' => quoted.push_str("\\t"),
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            _ => write!(quoted, "\\{byte:03o}").expect("writing to a string cannot fail"),
        }
        is_plain = false;
    }
    if is_plain { quoted } else { format!("\"{quoted}\"") }
}

#[cfg(test)]
mod tests {
    use super::format_change;
    use crate::git_patch::{FileKind, GitFile, ObjectFormat};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn file(text: &str) -> GitFile {
        GitFile { kind: FileKind::Regular, bytes: text.into() }
    }

    fn format(name: &[u8], old: Option<&GitFile>, new: Option<&GitFile>) -> String {
        let path = Path::new(OsStr::from_bytes(name));
        format_change(path, old, new, Some(ObjectFormat::Sha1)).unwrap()
    }

    /// The expected texts are those of `git diff --binary --full-index --no-renames`.
    #[test]
    fn parts_are_those_of_git() {
        assert_eq!(format(b"a", Some(&file("1\n")), Some(&file("1\n"))), "");
        let (old, new) = (file("one\r\ntwo"), file("one\r\nTWO"));
        assert_eq!(
            format(b"a b", Some(&old), Some(&new)),
            "diff --git a/a b b/a b\n\
             index 10a8703f25937a035d9ec7d2e59b9edf5aaeabc3..c4b0e8177ddbf83543e5ca626e09103a104d4bcb 100644\n\
             --- a/a b\t\n+++ b/a b\t\n@@ -1,2 +1,2 @@\n one\r\n-two\n\\ No newline at end of file\n+TWO\n\\ No newline at end of file\n"
        );
        let binary = GitFile { bytes: vec![0], ..file("") };
        assert_eq!(
            format(b"a", None, Some(&binary)),
            "diff --git a/a b/a\nnew file mode 100644\n\
             index 0000000000000000000000000000000000000000..f76dd238ade08917e6712764a16a22005a50573d\n\
             GIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n"
        );
    }

    #[test]
    fn names_are_quoted_as_by_git() {
        let check = |name: &[u8], expect: &str| {
            let text = format(name, None, Some(&file("")));
            let header = format!("diff --git {expect}\nnew file mode 100644\nindex ");
            assert!(text.starts_with(&header), "{text}");
        };
        check(b"a b", "a/a b b/a b");
        check("é\"\\\n\t".as_bytes(), r#""a/\303\251\"\\\n\t" "b/\303\251\"\\\n\t""#);
        check(b"\xff", r#""a/\377" "b/\377""#);
    }

    #[test]
    fn modes_and_links() {
        let executable = GitFile { kind: FileKind::Executable, ..file("x") };
        assert_eq!(
            format(b"a", Some(&file("x")), Some(&executable)),
            "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n"
        );
        let link = GitFile { kind: FileKind::Link, ..file("x") };
        let text = format(b"a", Some(&file("x")), Some(&link));
        assert!(text.contains("deleted file mode 100644\n"), "{text}");
        assert!(text.contains("new file mode 120000\n"), "{text}");
    }
}
