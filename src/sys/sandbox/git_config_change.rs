//! Decides which changes of an existing git config a command may make: of what branches track, of the user's name, of the
//! part of the files that is checked out, and of habits such as whether a pull rebases; unless content from outside is in
//! the conversation, also of remotes, submodules and other keys that a new repository may have. All else, among it whatever
//! makes git run a program, stays as it was. It understands git's syntax only as far as git itself writes it.

use super::git_config::{ConfigPlace, SectionHeader, plain_value};
use std::collections::BTreeSet;

/// The keys of a branch that may change.
const BRANCH_KEYS: &[&str] = &[
    "remote",
    "pushremote",
    "merge",
    "rebase",
    "description",
    "vscode-merge-base",
    "gh-merge-base",
];
/// The keys of a branch that name a remote.
const REMOTE_KEYS: &[&str] = &["remote", "pushremote"];
/// The keys of other sections that may change: they name no program, path or repository, and weaken no check.
const OTHER_KEYS: &[(&str, &[&str])] = &[
    ("user", &["name", "email"]),
    ("init", &["defaultbranch"]),
    (
        "core",
        &[
            "abbrev",
            "quotepath",
            "whitespace",
            "commentchar",
            "sparsecheckout",
            "sparsecheckoutcone",
            "repositoryformatversion",
        ],
    ),
    ("extensions", &["worktreeconfig"]),
    ("pull", &["rebase", "ff"]),
    ("push", &["default", "autosetupremote", "followtags"]),
    ("fetch", &["prune", "prunetags"]),
    ("merge", &["ff", "conflictstyle"]),
    ("rebase", &["autosquash", "autostash", "updaterefs", "stat"]),
    ("rerere", &["enabled", "autoupdate"]),
    ("diff", &["algorithm", "renames", "colormoved", "mnemonicprefix", "context"]),
    ("status", &["short", "branch", "showstash", "showuntrackedfiles"]),
    ("log", &["date", "decorate", "abbrevcommit"]),
    ("color", &["ui", "diff", "status", "branch"]),
];

/// Returns the key and the value of a line of a section that may change.
type ParseFree<'a> = dyn Fn(&SectionHeader<'_>, &str) -> Option<(String, String)> + 'a;

/// A line of a config that is neither empty nor a comment, and no header that was understood.
#[derive(PartialEq, Eq)]
enum ConfigLine {
    /// It stays as it was: its section, and the whole line.
    Fixed(String, String),
    /// It may change: its section, its key and its value.
    Free(String, String, String),
}

/// True if the change of a config from `before` to `after` may be a command's, whatever is in the conversation.
pub(super) fn is_harmless_change(before: &[u8], after: &[u8]) -> bool {
    let parse = |config: &[u8]| config_lines(config, &|section, line| free_key(section, line));
    let [Some(before), Some(after)] = [before, after].map(parse) else {
        return false;
    };
    let is_fixed = |line: &&ConfigLine| matches!(line, ConfigLine::Fixed(..));
    let remotes: BTreeSet<&str> = before
        .iter()
        .filter_map(|line| match line {
            // Without an address, git would look for one elsewhere.
            ConfigLine::Fixed(section, line) if line.starts_with("url") => {
                section.strip_prefix("remote.")
            }
            ConfigLine::Fixed(..) => None,
            ConfigLine::Free(..) => None,
        })
        .collect();
    let is_permitted = |line: &ConfigLine| match line {
        ConfigLine::Free(_, key, value) if REMOTE_KEYS.contains(&key.as_str()) => {
            value == "." || remotes.contains(value.as_str())
        }
        _ => true,
    };
    before.iter().filter(is_fixed).eq(after.iter().filter(is_fixed))
        && after.iter().all(|line| before.contains(line) || is_permitted(line))
}

/// True if the config at `place` changes from `before` to `after` only in what that of a new repository may have.
pub(super) fn is_change_of_new_repository(
    before: &[u8],
    after: &[u8],
    place: &ConfigPlace<'_>,
) -> bool {
    let free = |section: &SectionHeader<'_>, line: &str| {
        let is_free = section.permits_line(line, place);
        is_free.then(|| (line.to_owned(), String::new()))
    };
    let fixed = |config| {
        let mut lines = config_lines(config, &free)?;
        lines.retain(|line| matches!(line, ConfigLine::Fixed(..)));
        Some(lines)
    };
    fixed(before).is_some_and(|before| fixed(after).is_some_and(|after| before == after))
}

/// The lines of a config. Returns `None` if it is no text, or has a line that goes on in the next one.
fn config_lines(config: &[u8], free: &ParseFree<'_>) -> Option<Vec<ConfigLine>> {
    let text = std::str::from_utf8(config).ok()?;
    let mut lines = Vec::new();
    let mut section = None;
    let mut name = String::new();
    for whole in text.split('\n') {
        let line = whole.trim_matches([' ', '\t']);
        if line.contains(|letter: char| letter.is_control() && letter != '\t')
            || line.ends_with('\\')
        {
            return None;
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with('[') {
            section = SectionHeader::parse(line);
            name = section.as_ref().map_or(line.to_owned(), SectionHeader::name);
            if section.is_some() {
                continue;
            }
        }
        let free = section.as_ref().and_then(|section| free(section, line));
        lines.push(match free {
            Some((key, value)) => ConfigLine::Free(name.clone(), key, value),
            None => ConfigLine::Fixed(name.clone(), line.to_owned()),
        });
    }
    Some(lines)
}

/// The key and the value of a line that may change.
fn free_key(section: &SectionHeader<'_>, line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once('=')?;
    let blank = [' ', '\t'];
    let key = key.trim_end_matches(blank).to_ascii_lowercase();
    let keys = match (section.section.as_str(), section.subsection) {
        ("branch", Some(_)) => BRANCH_KEYS,
        (name, None) => OTHER_KEYS.iter().find(|(other, _)| *other == name)?.1,
        (_, Some(_)) => return None,
    };
    let value = plain_value(value.trim_matches(blank))?;
    keys.contains(&key.as_str()).then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::{is_change_of_new_repository, is_harmless_change};
    use crate::sys::sandbox::git_config::ConfigPlace;
    use std::path::Path;

    const BEFORE: &str = "[core]\n\tbare = false\n\tfsmonitor = ./watch\n[remote \"origin\"]\n\turl = https://x.org/y\n\
                          \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n\
                          [alias]\n\tx = !echo\n";

    #[test]
    fn only_branches_and_the_users_name_change() {
        let check = |after: String, expect: bool| {
            let found = is_harmless_change(BEFORE.as_bytes(), after.as_bytes());
            assert_eq!(found, expect, "{after}");
        };
        let with = |text: &str| format!("{BEFORE}{text}");
        let changed = |from: &str, to: &str| BEFORE.replace(from, to);
        check(BEFORE.into(), true);
        check(with("[user]\n\temail = a@b.c\n\tname = \"A # B\"\n"), true);
        check(with("[branch \"b\"]\n\tremote = origin\n\tmerge = \"refs/heads/#1\"\n"), true);
        check(
            with("[branch \"b\"]\n\tremote = .\n\tmerge = refs/heads/main\n\trebase = true\n"),
            true,
        );
        check(changed("[branch \"main\"]", "[branch \"trunk\"]"), true);
        check(
            changed("[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n", ""),
            true,
        );
        check(changed("[alias]", "# a comment\n[alias]"), true);
        // Programs, other repositories, and what only looks like a harmless key.
        check(with("[branch \"b\"]\n\tremote = other\n"), false);
        check(with("[branch \"b\"]\n\tremote = https://x.org/z\n"), false);
        check(with("[branch \"b\"]\n\tremote = ../z\n"), false);
        check(with("[remote \"other\"]\n\turl = https://x.org/z\n"), false);
        check(with("[core]\n\teditor = ./x\n"), false);
        check(with("[core]\n\thooksPath = .husky\n"), false);
        check(with("[core]\n\tsparseCheckout = true\n"), true);
        check(with("[extensions]\n\tworktreeConfig = true\n"), true);
        check(with("[extensions]\n\tpartialClone = z\n"), false);
        check(with("[user]\n\tsigningkey = x\n"), false);
        check(with("[user] email = a\n"), false);
        check(with("[branch \"b\"]\n\tmerge = a\\\n\n"), false);
        check(with("[branch \"b\"]\n\tmerge = a\r\n"), false);
        check(with("[include]\n\tpath = x\n"), false);
        check(with("[branch.b]\n\tremote = origin\n"), false);
        check(changed("https://x.org/y", "https://z.org/y"), false);
        check(changed("\tfsmonitor = ./watch\n", ""), false);
        check(changed("[alias]\n", "[diff]\n"), false);
        check(changed("[core]", "[includeIf \"onbranch:x\"]"), false);
        check(String::new(), false);
    }

    #[test]
    fn without_content_from_outside_what_runs_nothing_changes() {
        let check = |after: String, expect: bool| {
            let place = ConfigPlace {
                git_dir: Path::new("/w/.git"),
                permits: &|path| path == Path::new("/a/b.git"),
            };
            let found = is_change_of_new_repository(BEFORE.as_bytes(), after.as_bytes(), &place);
            assert_eq!(found, expect, "{after}");
        };
        let with = |text: &str| format!("{BEFORE}{text}");
        check(
            with(
                "[remote \"fork\"]\n\turl = git@x.org:y/z.git\n\tfetch = +refs/heads/*:refs/remotes/fork/*\n",
            ),
            true,
        );
        check(with("[remote \"near\"]\n\turl = /a/b.git\n"), true);
        check(with("[remote \"near\"]\n\turl = /a/c.git\n"), false);
        check(with("[submodule \"lib\"]\n\turl = /a/b.git\n\tactive = true\n"), true);
        check(with("[core]\n\tautocrlf = input\n"), true);
        check(BEFORE.replace("https://x.org/y", "https://z.org/y"), true);
        check(with("[core]\n\thooksPath = .husky\n"), false);
        check(with("[remote \"z\"]\n\turl = ext::sh -c x\n"), false);
        check(with("[submodule \"a\"]\n\tupdate = !x\n"), false);
        check(BEFORE.replace("[alias]\n\tx = !echo\n", ""), false);
        check(BEFORE.replace("\tfsmonitor = ./watch\n", ""), false);
        check(with("[alias]\n\ty = !z\n"), false);
    }

    #[test]
    fn a_remote_without_an_address_is_none() {
        let before = "[remote \"x\"]\n\tprune = true\n";
        let after = format!("{before}[branch \"b\"]\n\tremote = x\n");
        assert!(!is_harmless_change(before.as_bytes(), after.as_bytes()));
    }

    #[test]
    fn the_order_of_other_keys_counts() {
        let [one, two] = ["true", "./x"].map(|value| format!("[core]\n\tfsmonitor = {value}\n"));
        let [before, after] = [format!("{one}{two}"), format!("{two}{one}")];
        assert!(!is_harmless_change(before.as_bytes(), after.as_bytes()));
    }
}
