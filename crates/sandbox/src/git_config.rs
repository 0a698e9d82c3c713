//! Reads configs of git as git does: the syntax is that of git-config(1), and of git's `config.c` where that page is silent.
//! `git_config_rules` decides what a config may contain.

use super::git_repository::read_regular;
use std::path::{Component, Path, PathBuf};
use std::str::Chars;

/// Maximum bytes of a config that are read. Git writes none that is nearly as large.
pub(super) const MAX_CONFIG_BYTES: u64 = 64 << 20;

/// An entry of a config. Section and key are in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ConfigEntry {
    pub(super) section: String,
    pub(super) subsection: Option<String>,
    pub(super) key: String,
    /// A key without a value is true.
    pub(super) value: String,
}

impl ConfigEntry {
    /// True for this key of this section, whatever its subsection.
    pub(super) fn is(&self, section: &str, key: &str) -> bool {
        self.section == section && self.key == key
    }

    /// True if the value is the path of a further config.
    pub(super) fn is_include(&self) -> bool {
        self.is("include", "path") || self.is("includeif", "path")
    }
}

impl std::fmt::Display for ConfigEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { section, subsection, key, value } = self;
        match subsection {
            Some(name) => write!(f, "{section}.{name}.{key} = {value}"),
            None => write!(f, "{section}.{key} = {value}"),
        }
    }
}

/// The entries of the config at `path`. `None` if it is missing, is a symbolic link, or git does not accept it.
pub(super) fn read(path: &Path) -> Option<Vec<ConfigEntry>> {
    let config = read_regular(path, MAX_CONFIG_BYTES)?;
    parse(&String::from_utf8_lossy(&config))
}

/// The entries of a config in the form that git itself writes: without control characters, at which git may stop reading, and without
/// values that continue on the next line.
pub(super) fn parse_plain(config: &[u8]) -> Option<Vec<ConfigEntry>> {
    let text = std::str::from_utf8(config).ok()?;
    let is_control = |letter: char| letter.is_ascii_control() && !['\n', '\t'].contains(&letter);
    if text.contains(is_control) || text.contains("\\\n") { None } else { parse(text) }
}

/// The entries of a config. `None` if git does not accept it.
fn parse(text: &str) -> Option<Vec<ConfigEntry>> {
    let text = text.replace("\r\n", "\n");
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    ConfigParser { rest: text.chars() }.entries()
}

/// The text of a config with these entries.
pub(super) fn format(entries: &[ConfigEntry]) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = String::new();
    let mut last_header = String::new();
    for ConfigEntry { section, subsection, key, value } in entries {
        let name = subsection.as_ref().map(|name| format!(" \"{}\"", escape(name)));
        let header = format!("[{section}{}]\n", name.unwrap_or_default());
        if header != last_header {
            text.push_str(&header);
            last_header = header;
        }
        let value = escape(value).replace('\n', "\\n").replace('\t', "\\t").replace('\u{8}', "\\b");
        text.push_str(&format!("\t{key} = \"{value}\"\n"));
    }
    text
}

#[derive(Clone)]
struct SectionHeader {
    section: String,
    subsection: Option<String>,
}

struct ConfigParser<'a> {
    rest: Chars<'a>,
}

impl ConfigParser<'_> {
    fn entries(mut self) -> Option<Vec<ConfigEntry>> {
        let mut entries = Vec::new();
        let mut header: Option<SectionHeader> = None;
        while let Some(letter) = self.rest.next() {
            match letter {
                blank if blank == '\n' || is_blank(blank) => {}
                '#' | ';' => self.skip_comment(),
                '[' => header = Some(self.header()?),
                first if first.is_ascii_alphabetic() => {
                    let SectionHeader { section, subsection } = header.clone()?;
                    let (key, value) = self.assignment(first)?;
                    entries.push(ConfigEntry { section, subsection, key, value });
                }
                _ => return None,
            }
        }
        Some(entries)
    }

    fn skip_comment(&mut self) {
        self.rest.find(|letter| *letter == '\n');
    }

    /// The rest of a header: `[core]`, `[remote "origin"]` or `[remote.origin]`.
    fn header(&mut self) -> Option<SectionHeader> {
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                ']' => break,
                blank if is_blank(blank) => {
                    name.push('.');
                    self.quoted_subsection(&mut name)?;
                    break;
                }
                letter if is_key_letter(letter) || letter == '.' => {
                    name.push(letter.to_ascii_lowercase());
                }
                _ => return None,
            }
        }
        let (section, subsection) = match name.split_once('.') {
            Some((section, subsection)) => (section, Some(subsection.to_owned())),
            None => (name.as_str(), None),
        };
        // Git accepts `[.a]`, a subsection of no section.
        (!name.is_empty()).then(|| SectionHeader { section: section.to_owned(), subsection })
    }

    fn quoted_subsection(&mut self, name: &mut String) -> Option<()> {
        let first = self.rest.find(|letter| !is_blank(*letter));
        first.filter(|letter| *letter == '"')?;
        loop {
            match self.rest.next()? {
                '\n' => return None,
                '"' => break,
                '\\' => name.push(self.rest.next().filter(|letter| *letter != '\n')?),
                letter => name.push(letter),
            }
        }
        self.rest.next().filter(|letter| *letter == ']').map(drop)
    }

    /// The key that begins with `first`, and its value.
    fn assignment(&mut self, first: char) -> Option<(String, String)> {
        let mut key = String::from(first.to_ascii_lowercase());
        let mut next = self.rest.next();
        while let Some(letter) = next.filter(|letter| is_key_letter(*letter)) {
            key.push(letter.to_ascii_lowercase());
            next = self.rest.next();
        }
        while let Some(' ' | '\t') = next {
            next = self.rest.next();
        }
        match next {
            None | Some('\n') => Some((key, "true".to_owned())),
            Some('=') => Some((key, self.value()?)),
            Some(_) => None,
        }
    }

    fn value(&mut self) -> Option<String> {
        let mut value = String::new();
        // The length of the value without trailing blanks.
        let mut trimmed_length = 0;
        let mut is_quoted = false;
        loop {
            match self.rest.next().unwrap_or('\n') {
                '\n' if is_quoted => return None,
                '\n' => break,
                blank if is_blank(blank) && !is_quoted => {
                    if !value.is_empty() {
                        value.push(blank);
                    }
                    continue;
                }
                '#' | ';' if !is_quoted => {
                    self.skip_comment();
                    break;
                }
                '\\' => match self.rest.next().unwrap_or('\n') {
                    '\n' => {}
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    'n' => value.push('\n'),
                    letter @ ('\\' | '"') => value.push(letter),
                    _ => return None,
                },
                '"' => is_quoted = !is_quoted,
                letter => value.push(letter),
            }
            trimmed_length = value.len();
        }
        value.truncate(trimmed_length);
        Some(value)
    }
}

/// True for a blank within a line: git takes a carriage return for one, unless it ends the line. Between a key and `=`, it does not.
fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r')
}

/// True for a letter of a section or a key.
fn is_key_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '-'
}

/// The absolute `path` without `.` and `..`, resolved without access to the file system.
pub(super) fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{ConfigEntry, format, parse, parse_plain};

    /// The entries that git reads; `None` if it fails.
    fn ask_git(config: &str) -> Option<Vec<String>> {
        let temp = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(temp.path(), config).unwrap();
        let _alone = nanobot_os::children::serialize_tests();
        let output = std::process::Command::new("git")
            .args(["config", "--list", "--null", "--file"])
            .arg(temp.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.split_terminator('\0').map(|entry| match entry.split_once('\n') {
            Some((key, value)) => format!("{key} = {value}"),
            None => format!("{entry} = true"),
        });
        output.status.success().then(|| lines.collect())
    }

    #[test]
    fn configs_are_read_as_git_reads_them() {
        let check = |text: &str, expect: Option<&[&str]>| {
            let lines = |entries: &[ConfigEntry]| -> Vec<String> {
                entries.iter().map(ToString::to_string).collect()
            };
            let actual = parse(text);
            let actual_lines = actual.as_deref().map(lines);
            let expect = expect.map(|lines| lines.iter().map(ToString::to_string).collect());
            assert_eq!(actual_lines, expect, "{text:?}");
            assert_eq!(actual_lines, ask_git(text), "{text:?}");
            if let Some(entries) = actual {
                assert_eq!(parse(&format(&entries)), Some(entries), "{text:?}");
            }
        };
        check("", Some(&[]));
        check("# a\n[core]\n;b\n", Some(&[]));
        check(
            "[core]\n\teditor = vi # mine\n bare\n",
            Some(&["core.editor = vi", "core.bare = true"]),
        );
        check("[core] Bare=x\n[CORE]bare = y", Some(&["core.bare = x", "core.bare = y"]));
        check(
            "[core] fsmonitor = \"touch x; false\" #]\n",
            Some(&["core.fsmonitor = touch x; false"]),
        );
        check("[core]fsmonitor=x[]\n", Some(&["core.fsmonitor = x[]"]));
        check(
            "[includeIf \"gitdir:~/w [x]/\"]\nPATH = \"b; c\" ; d\n",
            Some(&["includeif.gitdir:~/w [x]/.path = b; c"]),
        );
        check("[remote \"o\"]\n\turl = x \\\n y\n", Some(&["remote.o.url = x  y"]));
        check("[a \"b\\\\c\\\"d\\e\"] k=v", Some(&["a.b\\c\"de.k = v"]));
        check("[Branch.Main]\nmerge=refs", Some(&["branch.main.merge = refs"]));
        check("[a.b \"c\"]\nk=v", Some(&["a.b.c.k = v"]));
        check("[user]\n\tname = \"fal\"se \" \"\n", Some(&["user.name = false  "]));
        check("[user]\n\tname = A\t\\n\\\"B\\\" \n", Some(&["user.name = A\t\n\"B\""]));
        check("[user]\n\tname = A \\\n", Some(&["user.name = A "]));
        check("[core]\r\n\tbare = false\r\n", Some(&["core.bare = false"]));
        check("[core]\n\rbare = x\n", Some(&["core.bare = x"]));
        check("[core]\n\tworktree = \r x\ry \r\r\n", Some(&["core.worktree = x\ry"]));
        check("[a \r\"b\"]\nk = \"v\r\"\n", Some(&["a.b.k = v\r"]));
        check("[.x]\nk = v\n", Some(&[".x.k = v"]));
        check("[ \"x\"]\nk = v\n", Some(&[".x.k = v"]));
        check("\u{feff}[core]\nbare = x", Some(&["core.bare = x"]));
        for text in [
            "[core]]\n",
            "[core\n",
            "[]\n",
            "[ core ]\n",
            "[core]\n\u{a0}bare = x\n",
            "[core]\n\u{b}bare = x\n",
            "[user]\n\tname = \"A\n",
            "[user]\n\tname = \\x\n",
            "[a \"b\nc\"]\n",
            "[a \"b\" ]\n",
            "[a b]\n",
            "[core]\n\tbare ! x\n",
            "[core]\n\tbare \r = x\n",
        ] {
            check(text, None);
        }
        for config in [
            &b"[core]\n\xff"[..],
            b"[core] bare = a\rb\n",
            b"[core]\n\tbare = x\0y\n",
            b"[a]\nb = \\\nc",
        ] {
            assert_eq!(parse_plain(config), None);
        }
        // Git ignores it, and it is no config of a repository.
        assert_eq!(parse("bare = false\n"), None);
        assert!(parse_plain(b"[core]\tbare = x\n").is_some());
    }
}
