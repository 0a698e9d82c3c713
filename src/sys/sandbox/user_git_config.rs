//! Reads git's config as git does, as far as that names files: which ones the user's own config needs, and what a repository's
//! config says about itself. Nothing is decided here on what a config may contain.

use super::git_repository::read_small;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The user's own config, relative to the home.
pub(super) const USER_CONFIGS: [&str; 2] = [".gitconfig", ".config/git/config"];
/// The keys whose values are paths that git reads: section, key.
const PATH_KEYS: [(&str, &str); 8] = [
    ("core", "excludesfile"),
    ("core", "attributesfile"),
    ("commit", "template"),
    ("mailmap", "file"),
    ("blame", "ignorerevsfile"),
    ("diff", "orderfile"),
    ("init", "templatedir"),
    ("gpg", "allowedsignersfile"),
];
/// The most files of a config that are read, included ones among them.
const MAX_CONFIGS: usize = 100;

/// A value of a config. Section and key are in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConfigEntry {
    pub(super) section: String,
    pub(super) subsection: Option<String>,
    pub(super) key: String,
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

/// The values in a config. Lines that git does not accept are left out.
pub(super) fn config_entries(text: &str) -> Vec<ConfigEntry> {
    let text = text.replace("\\\n", "");
    let mut entries = Vec::new();
    let mut header: Option<(String, Option<String>)> = None;
    for line in text.lines() {
        let mut line = line.trim();
        if line.starts_with('[') {
            // A quoted name may contain brackets, but then no key follows on the line.
            let Some(end) = line.find("\"]").map(|at| at + 1).or_else(|| line.find(']')) else {
                continue;
            };
            header = Some(parse_header(&line[1..end]));
            line = line[end + 1..].trim();
        }
        let Some((section, subsection)) = header.as_ref().filter(|_| !line.is_empty()) else {
            continue;
        };
        if line.starts_with(['#', ';']) {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        entries.push(ConfigEntry {
            section: section.clone(),
            subsection: subsection.clone(),
            key: key.trim().to_ascii_lowercase(),
            value: unquote(value.trim()),
        });
    }
    entries
}

/// Section and subsection of a header, without its brackets.
fn parse_header(header: &str) -> (String, Option<String>) {
    match header.split_once(['"', '.']) {
        Some((section, name)) => {
            let name =
                name.trim().trim_end_matches('"').replace("\\\"", "\"").replace("\\\\", "\\");
            (section.trim().to_ascii_lowercase(), Some(name))
        }
        None => (header.trim().to_ascii_lowercase(), None),
    }
}

/// A value without its quotes and comment.
fn unquote(text: &str) -> String {
    let mut value = String::new();
    let mut is_quoted = false;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '\\' => value.extend(letters.next()),
            '#' | ';' if !is_quoted => break,
            other => value.push(other),
        }
    }
    value.truncate(if text.ends_with('"') { value.len() } else { value.trim_end().len() });
    value
}

/// The path that a value in the config `file` names: relative ones start from its directory.
pub(super) fn named_path(file: &Path, value: &str, home: &Path) -> PathBuf {
    match value.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => file.parent().unwrap_or(file).join(value),
    }
}

/// The files that the config of the user whose home is `home` names, further configs among them.
pub(super) fn files_of_user(home: &Path) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<PathBuf> = USER_CONFIGS.iter().map(|name| home.join(name)).collect();
    let mut read = BTreeSet::new();
    while let Some(file) = waiting.pop() {
        // A link to it is followed: the config is often kept elsewhere.
        let Some(text) = file.canonicalize().ok().and_then(|real| read_small(&real)) else {
            continue;
        };
        if read.len() == MAX_CONFIGS || !read.insert(file.clone()) {
            continue;
        }
        for entry in config_entries(&text) {
            let path = named_path(&file, &entry.value, home);
            if entry.is_include() {
                found.insert(path.clone());
                waiting.push(path);
            } else if PATH_KEYS.iter().any(|(section, key)| entry.is(section, key)) {
                found.insert(path);
            }
        }
    }
    let is_template = |path: &PathBuf| {
        path.is_file() || path.join("info").is_dir() || path.join("hooks").is_dir()
    };
    found.into_iter().filter(is_template).collect()
}

#[cfg(test)]
mod tests {
    use super::{config_entries, files_of_user};

    #[test]
    fn values_are_read_as_git_reads_them() {
        let text = "[core]\n\teditor = vi # mine\n bare\n[include] path = ~/a\n[includeIf \"gitdir:~/w [x]/\"]\n\
                    PATH = \"b; c\" ; d\n[remote \"o\"]\n\turl = x \\\n y\n; k = v\n[Branch.main]\nmerge=refs";
        let found: Vec<String> = config_entries(text)
            .into_iter()
            .map(|entry| {
                let name = entry.subsection.map_or_else(String::new, |name| format!("({name})"));
                format!("{}{name}.{}={}", entry.section, entry.key, entry.value)
            })
            .collect();
        let expect = [
            "core.editor=vi",
            "core.bare=true",
            "include.path=~/a",
            "includeif(gitdir:~/w [x]/).path=b; c",
            "remote(o).url=x  y",
            "branch(main).merge=refs",
        ];
        assert_eq!(found, expect);
    }

    #[test]
    fn files_that_the_user_config_names() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(home.join("d/templates/info")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(home.join(name), text).unwrap();
        write("d/gitconfig", "[include]\npath = ~/d/work\n[core]\nexcludesFile = ~/d/ignored\n");
        std::os::unix::fs::symlink("d/gitconfig", home.join(".gitconfig")).unwrap();
        write("d/work", "[includeIf \"gitdir:~/w/\"]\npath = more\n[include]\npath = work\n");
        write("d/more", "[commit]\ntemplate = /etc/passwd\n[init]\ntemplateDir = ~/d/templates\n");
        write("d/ignored", "");
        write("d/unnamed", "");
        let expect = ["/etc/passwd", "d/ignored", "d/more", "d/templates", "d/work"];
        let mut expect = expect.map(|name| home.join(name));
        expect.sort();
        assert_eq!(files_of_user(&home), expect);
    }
}
