//! Finds the files that a message mentions after `@`; existing ones are sent with it.

use crate::sys::durable_file::format_size;
use std::path::{Path, PathBuf};

/// The files and directories that `text` mentions as `@path` or `@"a path"`, at the start of a word. `at` resolves a
/// name. Names that do not exist, and text that may be an address, stay plain text. Of a text with several lines only
/// the first and the last are searched: the lines between are usually pasted, and written by others.
pub(crate) fn mentioned_files(text: &str, at: &dyn Fn(&str) -> PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let text = text.trim();
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let last = rest.rsplit('\n').next().unwrap_or_default();
    for line in [first, last] {
        find_in_line(line, at, &mut found);
    }
    found
}

fn find_in_line(mut rest: &str, at: &dyn Fn(&str) -> PathBuf, found: &mut Vec<PathBuf>) {
    let mut begins = true;
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        if letter == '@' && begins {
            let name = mentioned_name(after);
            let path = name.map(at).filter(|path| path.is_file() || path.is_dir());
            if let Some(path) = path.filter(|path| !found.contains(path)) {
                found.push(path);
            }
        }
        begins = letter.is_whitespace() || "([{\"'".contains(letter);
        rest = after;
    }
}

/// Describes a file that is sent with a message; `name` is its path as the user knows it.
pub(crate) fn describe(path: &Path, name: &Path) -> String {
    let what = match path.metadata() {
        Ok(about) if about.is_dir() => "a directory".into(),
        Ok(about) => format_size(about.len()),
        // The turn that reads the file reports the reason.
        Err(_) => "not found".into(),
    };
    format!("attached: {}, {what}", name.display())
}

/// The name at the start of `text`.
fn mentioned_name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('"') {
        return Some(quoted.split_once('"')?.0);
    }
    let word = text.split(char::is_whitespace).next()?;
    // Punctuation at the end of a sentence is not part of the name.
    let word = word.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '}', '"', '\'']);
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::{describe, mentioned_files};
    use std::path::{Path, PathBuf};

    #[test]
    fn files_are_named_after_an_at() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.md", "a b.md", "c"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let check = |text: &str, expect: &[&str]| {
            let at = |name: &str| folder.path().join(name);
            let found = mentioned_files(text, &at);
            let expect: Vec<PathBuf> = expect.iter().map(|name| at(name)).collect();
            assert_eq!(found, expect, "{text}");
        };
        check("what is in @a.md?", &["a.md"]);
        check("@a.md, @c and @a.md", &["a.md", "c"]);
        check("see @\"a b.md\" (@c)", &["a b.md", "c"]);
        check("to me@c and @nobody", &[]);
        check("@ @\"a b.md", &[]);
        check("explain @c:\n@a.md\nand @\"a b.md\"", &["c", "a b.md"]);
        check("@a.md\n", &["a.md"]);
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        check("@pipe @d", &["d"]);
        std::fs::write(folder.path().join("c"), "17 bytes of text.").unwrap();
        let said = |name: &str| describe(&folder.path().join(name), Path::new(name));
        assert_eq!(said("c"), "attached: c, 17 B");
        assert_eq!(said("d"), "attached: d, a directory");
    }
}
