//! Files that a message names after `@`: what is there goes along with it.

use std::path::PathBuf;

/// What `text` says, and the files that it names as `@path` or `@"a path"`, at the beginning of a word: `at` says where a
/// name leads. What is not there is text like any other, and so is what may be an address.
pub(super) fn files(text: &str, at: &dyn Fn(&str) -> PathBuf) -> (String, Vec<PathBuf>) {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut rest = text;
    let mut begins = true;
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        if letter == '@' && begins {
            let name = name(after);
            let path = name.map(at).filter(|path| path.exists());
            if let Some(path) = path.filter(|path| !found.contains(path)) {
                found.push(path);
            }
        }
        begins = letter.is_whitespace() || "([{\"'".contains(letter);
        rest = after;
    }
    (text.to_owned(), found)
}

/// The name that `text` begins with.
fn name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('"') {
        return Some(quoted.split_once('"')?.0);
    }
    let word = text.split(char::is_whitespace).next()?;
    // What ends a sentence is no part of a name.
    let word = word.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '}', '"', '\'']);
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::files;
    use std::path::PathBuf;

    #[test]
    fn files_are_named_after_an_at() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.md", "a b.md", "c"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let check = |text: &str, expect: &[&str]| {
            let at = |name: &str| folder.path().join(name);
            let (said, found) = files(text, &at);
            let expect: Vec<PathBuf> = expect.iter().map(|name| at(name)).collect();
            assert_eq!((said.as_str(), found), (text, expect));
        };
        check("what is in @a.md?", &["a.md"]);
        check("@a.md, @c and @a.md", &["a.md", "c"]);
        check("see @\"a b.md\" (@c)", &["a b.md", "c"]);
        check("to me@c and @nobody", &[]);
        check("@ @\"a b.md", &[]);
    }
}
