//! A repository that a command makes: `git init` writes the very files that nobody else may. They are let through while
//! they say nothing that git would ever run.

use std::path::{Path, PathBuf};

/// Keys of a new repository's config that run nothing, whatever their values are.
const PLAIN: &[&str] = &[
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.symlinks",
    "core.precomposeunicode",
    "core.autocrlf",
    "core.eol",
    "user.name",
    "user.email",
    "init.defaultbranch",
    "extensions.objectformat",
    "extensions.refstorage",
    "remote.fetch",
    "branch.remote",
    "branch.merge",
    "pull.rebase",
];

/// The `.git` that `path` is in.
pub(super) fn around(path: &Path) -> Option<PathBuf> {
    let mut found = PathBuf::new();
    for part in path.components() {
        found.push(part);
        if part.as_os_str() == ".git" {
            return Some(found);
        }
    }
    None
}

/// Whether a config has nothing but plain keys. What is not understood is not plain.
pub(super) fn is_plain(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let mut section = String::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        // A line that goes on in the next could hide one.
        if line.ends_with('\\') {
            return false;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let Some(name) = rest.strip_suffix(']') else {
                return false;
            };
            let name = name.split_whitespace().next().unwrap_or_default();
            section = name.to_ascii_lowercase();
            continue;
        }
        let key = line.split('=').next().unwrap_or_default().trim();
        let key = format!("{section}.{}", key.to_ascii_lowercase());
        let is_address = key == "remote.url"
            && line.split_once('=').is_some_and(|(_, address)| {
                let address = address.trim().trim_matches('"');
                // Other schemes name programs that fetch.
                address.starts_with("https://")
                    || address.starts_with("ssh://")
                    || address.starts_with("git@")
            });
        if !PLAIN.contains(&key.as_str()) && !is_address {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{around, is_plain};
    use std::path::Path;

    #[test]
    fn configs_that_run_nothing() {
        let check = |text: &str, expect: bool| {
            assert_eq!(is_plain(text.as_bytes()), expect, "{text}");
        };
        check("", true);
        check(
            "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
            true,
        );
        check("[user]\n\tname = A\n\temail = a@b\n# x\n", true);
        check(
            "[remote \"origin\"]\n\turl = https://x.org/y\n\tfetch = +refs/heads/*:refs/x/*\n",
            true,
        );
        check(
            "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n",
            true,
        );
        check("[core]\n\tfsmonitor = ./x\n", false);
        check("[core]\n\tBARE = false\n\tsshCommand = x\n", false);
        check("[core]\n\tbare = false \\\n\tx\n", false);
        check("[alias]\n\tst = !x\n", false);
        check("[alias] st = !x\n", false);
        check("[include]\n\tpath = ../x\n", false);
        check("[remote \"o\"]\n\turl = ext::sh -c x\n", false);
        check("[remote \"o\"]\n\tuploadpack = x\n", false);
        check("[filter \"x\"]\n\tclean = x\n", false);
        check("bare = false\n", false);
        check("[core]\n\thookspath = x\n", false);
        assert!(!is_plain(b"[core]\n\xff"));
    }

    #[test]
    fn where_a_repository_is() {
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(
                around(Path::new(path)).as_deref(),
                expect.map(Path::new),
                "{path}"
            );
        };
        check(".git/config", Some(".git"));
        check("a/.git/hooks", Some("a/.git"));
        check(".bashrc", None);
    }
}
