//! Finds the files and the resources of servers that a message mentions after `@`; those that exist are sent with it.

use nanobot_os::durable_file::format_size;
use std::path::{Path, PathBuf};

/// The mentions of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mentions {
    /// Files and directories.
    pub(crate) files: Vec<PathBuf>,
    /// Attachments that are resources of servers.
    pub(crate) resources: Vec<String>,
    /// Names of files that do not exist.
    pub(crate) missing: Vec<String>,
}

impl Mentions {
    fn add(&mut self, name: &str, path: PathBuf) {
        if path.is_file() || path.is_dir() {
            if !self.files.contains(&path) {
                self.files.push(path);
            }
        } else if path.extension().is_some()
            && !path.exists()
            && !self.missing.iter().any(|missing| missing == name)
        {
            self.missing.push(name.to_owned());
        }
    }
}

/// Finds the files and directories that `text` mentions as `@path` or `@"a path"`, at the start of a word. `resolve` turns
/// a name into a path. `resource` returns the attachment for `SERVER:URI`. A name that does not exist is missing if it has an extension; other text stays plain. If a text has several lines,
/// only the first and the last one are searched: the lines between are usually pasted, and written by somebody else.
pub(crate) fn find(
    text: &str,
    resolve: &dyn Fn(&str) -> PathBuf,
    resource: &dyn Fn(&str) -> Option<String>,
) -> Mentions {
    let mut mentions = Mentions::default();
    let text = text.trim();
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let last = rest.rsplit('\n').next().unwrap_or_default();
    for line in [first, last] {
        for name in names_in_line(line) {
            match resource(name) {
                Some(resource) if mentions.resources.contains(&resource) => {}
                Some(resource) => mentions.resources.push(resource),
                None => mentions.add(name, resolve(name)),
            }
        }
    }
    mentions
}

fn names_in_line(mut rest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_word_start = true;
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        if letter == '@'
            && is_word_start
            && let Some(name) = mentioned_name(after)
        {
            names.push(name);
        }
        is_word_start = letter.is_whitespace() || "([{\"'".contains(letter);
        rest = after;
    }
    names
}

/// Describes a file that is sent with a message; `name` is its path as the user knows it.
pub(crate) fn describe(path: &Path, name: &Path) -> String {
    let description = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => "a directory".into(),
        Ok(metadata) => format_size(metadata.len()),
        // The turn that reads the file reports the reason.
        Err(_) => "not found".into(),
    };
    format!("attached: {}, {description}", name.display())
}

/// The name at the start of `text`.
fn mentioned_name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, _) = quoted.split_once('"')?;
        return (!name.is_empty()).then_some(name);
    }
    let word = text.split(char::is_whitespace).next()?;
    // Punctuation at the end of a sentence is not part of the name.
    let word = word.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '}', '"', '\'']);
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::{describe, find};
    use std::path::{Path, PathBuf};

    #[test]
    fn files_are_named_after_an_at() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.md", "a b.md", "c"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let at = |name: &str| folder.path().join(name);
        let check = |text: &str, expect: &[&str]| {
            let mentions = find(text, &at, &|_| None);
            let expect: Vec<PathBuf> = expect.iter().map(|name| at(name)).collect();
            assert_eq!((mentions.files, mentions.missing), (expect, vec![]), "{text}");
        };
        check("what is in @a.md?", &["a.md"]);
        check("@a.md, @c and @a.md", &["a.md", "c"]);
        check("see @\"a b.md\" (@c)", &["a b.md", "c"]);
        check("to me@c and @nobody", &[]);
        check("@ @\"a b.md", &[]);
        check("explain @c:\n@a.md\nand @\"a b.md\"", &["c", "a b.md"]);
        check("@a.md\n", &["a.md"]);
        let missing = find("@b.md, @nobody and @b.md", &at, &|_| None).missing;
        assert_eq!(missing, ["b.md"]);
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        check("@pipe @d", &["d"]);
        std::fs::write(folder.path().join("c"), "17 bytes of text.").unwrap();
        let line = |name: &str| describe(&folder.path().join(name), Path::new(name));
        assert_eq!(line("c"), "attached: c, 17 B");
        assert_eq!(line("d"), "attached: d, a directory");
    }

    #[test]
    fn resources_are_named_after_an_at() {
        let resource = |name: &str| name.strip_prefix("one:").map(|uri| format!("mcp:one:{uri}"));
        let resolve = |name: &str| PathBuf::from(name);
        let mentions = find("(@one:a://b) and @one:a://b, @two:a.md", &resolve, &resource);
        assert_eq!(mentions.resources, ["mcp:one:a://b"]);
        assert_eq!(mentions.missing, ["two:a.md"]);
    }
}
