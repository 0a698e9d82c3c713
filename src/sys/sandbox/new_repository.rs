//! Recognises harmless new repositories. `git init` writes the files that commands otherwise must not change; they are
//! accepted as long as they contain nothing that git would ever run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The permitted form of a config value.
#[derive(Clone, Copy)]
enum ConfigValueKind {
    /// A word or a number, such as `true`.
    Alphanumeric,
    /// A branch name or a refspec.
    Name,
    /// The name of a remote. With a slash it would be the path of a repository.
    RemoteName,
    /// The URL of another repository, with one of git's built-in schemes: other schemes name programs that fetch. Also
    /// the absolute path of one, whose own hooks git may run; see [`local_repositories`].
    Url,
    /// Anything on one line that is not syntax.
    Text,
    /// A relative path.
    RelativePath,
}

/// Config keys of a new repository that run nothing: section, true if the section has a subsection name, key, form of
/// the value.
const HARMLESS_KEYS: &[(&str, bool, &str, ConfigValueKind)] = &[
    (
        "core",
        false,
        "repositoryformatversion",
        ConfigValueKind::Alphanumeric,
    ),
    ("core", false, "filemode", ConfigValueKind::Alphanumeric),
    ("core", false, "bare", ConfigValueKind::Alphanumeric),
    (
        "core",
        false,
        "logallrefupdates",
        ConfigValueKind::Alphanumeric,
    ),
    ("core", false, "ignorecase", ConfigValueKind::Alphanumeric),
    ("core", false, "symlinks", ConfigValueKind::Alphanumeric),
    (
        "core",
        false,
        "precomposeunicode",
        ConfigValueKind::Alphanumeric,
    ),
    ("core", false, "autocrlf", ConfigValueKind::Alphanumeric),
    ("core", false, "eol", ConfigValueKind::Alphanumeric),
    ("user", false, "name", ConfigValueKind::Text),
    ("user", false, "email", ConfigValueKind::Text),
    ("init", false, "defaultbranch", ConfigValueKind::Name),
    (
        "extensions",
        false,
        "objectformat",
        ConfigValueKind::Alphanumeric,
    ),
    (
        "extensions",
        false,
        "refstorage",
        ConfigValueKind::Alphanumeric,
    ),
    ("remote", true, "url", ConfigValueKind::Url),
    ("remote", true, "fetch", ConfigValueKind::Name),
    ("branch", true, "remote", ConfigValueKind::RemoteName),
    ("branch", true, "merge", ConfigValueKind::Name),
    ("pull", false, "rebase", ConfigValueKind::Alphanumeric),
    // Of a submodule, and of files stored elsewhere.
    ("core", false, "worktree", ConfigValueKind::RelativePath),
    ("submodule", true, "url", ConfigValueKind::Url),
    ("submodule", true, "active", ConfigValueKind::Alphanumeric),
    (
        "lfs",
        false,
        "repositoryformatversion",
        ConfigValueKind::Alphanumeric,
    ),
];

/// The `.git` directory that contains `path`, or `path` itself if it is one.
pub(super) fn enclosing_git_dir(path: &Path) -> Option<PathBuf> {
    let mut found = PathBuf::new();
    for part in path.components() {
        found.push(part);
        if part.as_os_str() == ".git" {
            return Some(found);
        }
    }
    None
}

/// True if a config has only plain keys, one per line, as git itself writes them. Git's syntax allows more; anything
/// not understood here is not plain.
pub(super) fn is_harmless_config(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let mut section = None;
    text.split('\n').all(|line| {
        let line = line.trim_matches([' ', '\t']);
        if line.contains(|letter: char| letter.is_control() && letter != '\t') {
            return false;
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            return true;
        }
        if line.starts_with('[') {
            section = parse_section_header(line);
            return section.is_some();
        }
        section.as_ref().is_some_and(|(section, is_one_of_many)| {
            is_harmless_line(section, *is_one_of_many, line)
        })
    })
}

/// The paths of other repositories that a harmless config names.
pub(super) fn local_repositories(config: &[u8]) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(config);
    let values = text.lines().filter_map(|line| line.split_once('='));
    let paths = values.map(|(_, value)| PathBuf::from(value.trim()));
    paths.filter(|path| path.is_absolute()).collect()
}

/// True if a new file in a git directory is one that git makes, and runs nothing. `path` is relative to a writable
/// directory.
pub(super) fn is_harmless_file(path: &Path, content: &[u8]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        Some("config" | "config.worktree") => is_harmless_config(content),
        // A linked worktree belongs to the repository around its git directory.
        Some("commondir") => is_of_worktree(path) && content.trim_ascii() == b"../..",
        Some("gitdir") => is_of_worktree(path) && !content.trim_ascii().contains(&b'\n'),
        _ => false,
    }
}

fn is_of_worktree(path: &Path) -> bool {
    let parent = path.parent().and_then(Path::parent);
    parent.is_some_and(|parent| parent.ends_with("worktrees"))
}

/// The git directory that a `.git` file names, free of links, if it is nothing else: `directory` contains the file.
pub(super) fn linked_git_dir(directory: &Path, content: &[u8]) -> Option<PathBuf> {
    let line = std::str::from_utf8(content)
        .ok()?
        .strip_prefix("gitdir: ")?;
    let line = line.strip_suffix('\n').unwrap_or(line);
    if line.contains(['\n', '\r']) {
        return None;
    }
    directory.join(line).canonicalize().ok()
}

/// The steps of a rebase that run a command.
pub(super) fn run_steps(todo: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(todo).into_owned();
    let steps = text.lines().map(str::trim_start);
    let runs = |line: &&str| matches!(line.split_whitespace().next(), Some("x" | "exec"));
    steps.filter(runs).map(str::to_owned).collect()
}

/// Parses a line that is entirely a section header, `[core]` or `[remote "origin"]`: the section, and true if it has a
/// subsection name.
fn parse_section_header(line: &str) -> Option<(String, bool)> {
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let (section, one) = match inner.split_once(' ') {
        None => (inner, None),
        Some((section, quoted)) => {
            let one = quoted.strip_prefix('"')?.strip_suffix('"')?;
            (section, Some(one))
        }
    };
    let is_name = !section.is_empty() && section.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (is_name && one.is_none_or(is_ref_name)).then(|| (section.to_ascii_lowercase(), one.is_some()))
}

fn is_harmless_line(section: &str, has_subsection: bool, line: &str) -> bool {
    let Some((key, value)) = line.split_once('=') else {
        return false;
    };
    let blank = [' ', '\t'];
    let (key, value) = (key.trim_end_matches(blank), value.trim_matches(blank));
    HARMLESS_KEYS
        .iter()
        .any(|(safe_section, has_name, name, kind)| {
            *safe_section == section
                && *has_name == has_subsection
                && key.eq_ignore_ascii_case(name)
                && is_harmless_value(*kind, value)
        })
}

fn is_harmless_value(kind: ConfigValueKind, value: &str) -> bool {
    match kind {
        ConfigValueKind::Alphanumeric => value.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        ConfigValueKind::Name => is_ref_name(value),
        ConfigValueKind::RemoteName => is_ref_name(value) && !value.contains('/'),
        ConfigValueKind::Url if value.starts_with('/') => {
            let is_safe = |letter: char| letter.is_alphanumeric() || "/._~+%-".contains(letter);
            value.chars().all(is_safe)
        }
        ConfigValueKind::Url => {
            let schemes = ["https://", "ssh://", "git@"];
            let rest = schemes.iter().find_map(|scheme| value.strip_prefix(scheme));
            let is_safe = |letter: char| letter.is_alphanumeric() || "/._~:@+%-".contains(letter);
            rest.is_some_and(|rest| !rest.starts_with('-') && rest.chars().all(is_safe))
        }
        ConfigValueKind::RelativePath => {
            let is_safe = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
            !value.starts_with(['/', '-']) && value.chars().all(is_safe)
        }
        // No quotes, comments or line continuations.
        ConfigValueKind::Text => !value.contains(['"', '\\', '#', ';']),
    }
}

/// True if `name` has only characters of branch names, remote names and refspecs. No URL and no command-line option
/// passes.
fn is_ref_name(name: &str) -> bool {
    let is_safe = |letter: char| letter.is_alphanumeric() || "/._+*:@-".contains(letter);
    let is_first = |letter: char| is_safe(letter) && !"-/.".contains(letter);
    // A dot is this repository itself.
    name == "." || name.starts_with(is_first) && !name.contains("::") && name.chars().all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::{
        enclosing_git_dir, is_harmless_config, is_harmless_file, linked_git_dir, run_steps,
    };
    use std::path::Path;

    #[test]
    fn harmless_configs() {
        let check = |text: &str, expect: bool| {
            assert_eq!(is_harmless_config(text.as_bytes()), expect, "{text}");
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
        check("[remote \"o\"]\n\turl = /a/b.git\n", true);
        check("[remote \"o\"]\n\turl = ../b\n", false);
        check("[remote \"o\"]\n\tuploadpack = x\n", false);
        check("[filter \"x\"]\n\tclean = x\n", false);
        check("bare = false\n", false);
        check("[core]\n\thookspath = x\n", false);
        assert!(!is_harmless_config(b"[core]\n\xff"));
        // Headers, and text after them on the same line.
        check("[core] fsmonitor = \"touch x; false\" #]\n", false);
        check("[core] fsmonitor = x ;]\n", false);
        check("[core]fsmonitor=x[]\n", false);
        check("[core] bare = false\n", false);
        check("[core]]\n", false);
        check("[core] # x\n", false);
        check("[core\n", false);
        check("[]\n", false);
        check("[ core ]\n", false);
        check("[core \"x\"]\n\tbare = false\n", false);
        check("[remote]\n\turl = https://x.org/y\n", false);
        check("[remote \"a\\\"b\"]\n", false);
        check("[remote \"a\"] url = ext::x \"]\n", false);
        check("[remote.origin]\n\turl = https://x.org/y\n", false);
        check("[branch \"feature/a-1.2\"]\n\tremote = up\n", true);
        check("[includeIf \"gitdir:x\"]\n\tpath = ../x\n", false);
        check("[CORE]\n\tBare = false\n", true);
        // Values.
        check("[core]\n\tbare\n", false);
        check("[core]\n\tbare = false # x\n", false);
        check("[core]\n\tbare = \"false\"\n", false);
        check("[core]\n\tbare = a\\\n\tfsmonitor = x\n", false);
        check("[user]\n\tname = A \\\n", false);
        check("[user]\n\tname = \"A\n", false);
        check("[user]\n\tname = Zo\u{eb} O'Neil (x)\n", true);
        check("[user]\n\tname = A # B\n", false);
        check("[branch \"a\"]\n\tremote = ext::sh -c x\n", false);
        check("[branch \"a\"]\n\tremote = ../x\n", false);
        check("[branch \"a\"]\n\tremote = x/y\n", false);
        check("[branch \"a\"]\n\tremote = .\n", true);
        check("[branch \"a\"]\n\tremote = --upload-pack=x\n", false);
        check("[remote \"a\"]\n\turl = ssh://-oProxyCommand=x/y\n", false);
        check("[remote \"a\"]\n\turl = git@x.org:y/z.git\n", true);
        // Separators that git may treat as line breaks or white space.
        check("[core]\r\n\tbare = false\r\n", false);
        check("[core]\r\tfsmonitor = x\n", false);
        check("# x\r[core]\n", false);
        check("\u{feff}[core]\n", false);
        check("[core]\n\u{a0}bare = false\n", false);
        check("[core]\n\u{b}bare = false\n", false);
        check("[core]\n  bare\t=\tfalse \t\n", true);
        check("[core]\n\tworktree = ../../../sub-1\n", true);
        check("[core]\n\tworktree = /etc\n", false);
        check(
            "[submodule \"lib\"]\n\turl = https://x.org/y\n\tactive = true\n",
            true,
        );
    }

    #[test]
    fn files_of_a_linked_worktree() {
        let harmless = |path: &str, text: &str| is_harmless_file(Path::new(path), text.as_bytes());
        assert!(harmless(".git/worktrees/w/commondir", "../..\n"));
        assert!(!harmless(".git/worktrees/w/commondir", "../../..\n"));
        assert!(!harmless(".git/commondir", "../..\n"));
        assert!(harmless("a/.git/worktrees/w/gitdir", "/a/w/.git\n"));
        assert!(!harmless(".git/worktrees/w/hooks", ""));
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join(".git/modules/sub")).unwrap();
        std::fs::create_dir_all(dir.join("else/inner")).unwrap();
        std::os::unix::fs::symlink("else/inner", dir.join("sub")).unwrap();
        let linked = |text: &str| linked_git_dir(&dir.join("sub"), text.as_bytes());
        assert_eq!(linked("gitdir: ../.git/modules/sub\n"), None);
        assert_eq!(
            linked("gitdir: ../../.git/modules/sub\n"),
            Some(dir.join(".git/modules/sub"))
        );
        assert_eq!(linked("gitdir: /usr\n/lib\n"), None);
        assert_eq!(linked("/usr\n"), None);
    }

    #[test]
    fn steps_that_run_commands() {
        let found = run_steps(b"pick 1 x\n exec touch y\nx make\n# exec z\nfixup 2 exec\nexec\n");
        let expect = ["exec", "exec touch y", "x make"].map(str::to_owned);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn enclosing_git_directories() {
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(
                enclosing_git_dir(Path::new(path)).as_deref(),
                expect.map(Path::new),
                "{path}"
            );
        };
        check(".git/config", Some(".git"));
        check("a/.git/hooks", Some("a/.git"));
        check(".bashrc", None);
    }
}
