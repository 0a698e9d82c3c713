//! Which files in this program's directory are its own, by the table of documented paths. Pure.

use nanobot_os::paths::DOCUMENTED_PATHS;
use nanobot_store::workspace;
use std::path::Path;

/// Placeholders of [`DOCUMENTED_PATHS`]. Each stands for any text in a name.
const PLACEHOLDERS: [&str; 9] =
    ["KEY", "NAME", "TIME", "ID", "N", "PROVIDER", "SERVER", "REPOSITORY", "BRANCH"];

/// Endings of files that stand beside an owned file: its lock, and copies of it when it was damaged.
const SIDE_FILE_ENDINGS: [&str; 4] = [".lock", ".damaged", ".corrupt-*", ".torn-*"];

/// To whom an entry of our directory belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// To us, with its content. `place` is the file or the directory under which it is listed.
    Own { place: String },
    /// A directory that may contain files of ours.
    HasOwn,
    /// The directory of worktrees: ours, with work of the user.
    Worktrees,
    /// Not to us.
    Other,
}

/// Determines to whom the entry at `path`, relative to our directory, belongs.
pub(super) fn ownership(path: &Path, is_directory: bool) -> Ownership {
    let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
    if names.len() != path.iter().count() {
        return Ownership::Other;
    }
    if names == ["worktrees"] {
        return Ownership::Worktrees;
    }
    let documented = DOCUMENTED_PATHS.iter().filter_map(|documented| {
        let path = documented.path.strip_prefix("~/.nanobot/")?;
        // Everything in the workspace that is ours has a path of its own.
        (path != "workspace/").then(|| path.to_owned())
    });
    let notes = workspace::template_names().map(|name| format!("workspace/{name}"));
    let mut found = Ownership::Other;
    for pattern in documented.chain(notes) {
        let wants_directory = pattern.ends_with('/');
        let parts: Vec<&str> = pattern.trim_end_matches('/').split('/').collect();
        let is_above = names.len() < parts.len();
        let shared = names.len().min(parts.len());
        let leads_here =
            |parts: &[&str]| parts.iter().zip(&names).all(|(part, name)| matches(part, name));
        if is_above && is_directory && leads_here(&parts) {
            found = Ownership::HasOwn;
        }
        if names.len() != parts.len() || !leads_here(&parts[..shared - 1]) {
            continue;
        }
        let (part, name) = (parts[shared - 1], names[shared - 1]);
        let is_ours = if wants_directory {
            is_directory && matches(part, name)
        } else {
            !is_directory && (matches(part, name) || is_side_file(part, name))
        };
        if is_ours {
            return Ownership::Own { place: place_of(&parts) };
        }
    }
    found
}

/// The directory under which a pattern is listed: the last one without a placeholder. A pattern of one part is listed itself.
fn place_of(parts: &[&str]) -> String {
    let fixed = parts.iter().take_while(|part| wildcard(part) == **part);
    let fixed = fixed.count().min(parts.len() - 1);
    match fixed {
        0 => parts[0].to_owned(),
        count => format!("{}/", parts[..count].join("/")),
    }
}

/// True if `name` is that of a file beside the one that `part` names.
fn is_side_file(part: &str, name: &str) -> bool {
    let part = wildcard(part);
    SIDE_FILE_ENDINGS.iter().any(|ending| wildcard_matches(&format!("{part}{ending}"), name))
}

fn matches(part: &str, name: &str) -> bool {
    wildcard_matches(&wildcard(part), name)
}

/// `part` with `*` for each placeholder.
fn wildcard(part: &str) -> String {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric();
    let mut out = String::new();
    let mut rest = part;
    while let Some(start) = rest.find(is_letter) {
        let (before, word) = rest.split_at(start);
        let end = word.find(|letter| !is_letter(letter)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        out += before;
        out += if PLACEHOLDERS.contains(&word) { "*" } else { word };
        rest = after;
    }
    out + rest
}

/// True if `name` is `pattern`, in which each `*` stands for at least one character.
fn wildcard_matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let mut ends = name.char_indices().skip(1).map(|(at, _)| at).chain([name.len()]);
            !name.is_empty() && ends.any(|end| wildcard_matches(rest, &name[end..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Ownership, ownership};

    #[test]
    fn documented_files_are_ours_and_no_others() {
        let check = |path: &str, expect: &str| {
            let found = ownership(path.trim_end_matches('/').as_ref(), path.ends_with('/'));
            let found = match found {
                Ownership::Own { place } => place,
                Ownership::HasOwn => "above".into(),
                Ownership::Worktrees => "worktrees".into(),
                Ownership::Other => "other".into(),
            };
            assert_eq!(found, expect, "{path}");
        };
        check("config.json", "config.json");
        check("config.json.lock", "config.json");
        check("config.json.bak", "other");
        check("config.json/", "other");
        check("trust.json.damaged", "trust.json");
        check("auth/", "above");
        check("auth", "other");
        check("auth/github-copilot.json", "auth/");
        check("auth/notes.txt", "other");
        check("history/repl_history", "history/");
        check("history/cli_history", "other");
        check("cron/", "above");
        check("cron/0a1b2c3d/", "cron/");
        check("cron/jobs.json", "other");
        check("cron/crontab.lock", "cron/");
        check("sessions/", "other");
        check("workspace/", "above");
        check("workspace/notes.md", "other");
        check("workspace/AGENTS.md", "workspace/");
        check("workspace/memory/MEMORY.md", "workspace/memory/");
        check("workspace/memory/.versions/", "workspace/memory/");
        check("workspace/sessions/a_b.jsonl", "workspace/sessions/");
        check("workspace/sessions/a_b.jsonl.torn-1", "workspace/sessions/");
        check("workspace/sessions/.trash/", "above");
        check("workspace/sessions/.trash/1-a.jsonl.gone", "workspace/sessions/.trash/");
        check("workspace/cron/jobs.json.corrupt-2", "workspace/cron/");
        check("workspace/skills/tea/", "workspace/skills/");
        check("channels/telegram/", "channels/");
        check("undo/12/", "undo/");
        check("worktrees/", "worktrees");
        check("usage.under-way/", "usage.under-way");
    }
}
