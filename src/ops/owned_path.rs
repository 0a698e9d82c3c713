//! The owner of the files in this program's directory, by the table of documented paths. No I/O.

use nanobot_os::paths::{DOCUMENTED_PATHS, DocumentedPath};
use nanobot_store::workspace;
use std::path::Path;

/// Placeholders of [`DOCUMENTED_PATHS`]. Each one matches any text in a name.
const PLACEHOLDERS: [&str; 9] =
    ["KEY", "NAME", "TIME", "ID", "N", "PROVIDER", "SERVER", "REPOSITORY", "BRANCH"];

/// The paths among [`DOCUMENTED_PATHS`] whose files are a person's work, even if a command of this program began some of them.
const USER_PATHS: [&str; 7] = [
    "commands/NAME.md",
    "hooks/NAME",
    "profiles/NAME.md",
    "prompts/NAME.md",
    "skills/NAME/",
    "tools/NAME",
    "workspace/skills/NAME/",
];

/// Endings of files beside an owned file: its lock, and copies of a damaged version.
const SIDE_FILE_ENDINGS: [&str; 4] = [".lock", ".damaged", ".corrupt-*", ".torn-*"];

/// The owner of an entry of our directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// This program owns it, with the content. `location` is the file or the directory under which the entry is listed.
    Own { location: String },
    /// Like [`Self::Own`], as long as it has the text of the template.
    Template { location: String, text: &'static str },
    /// The user, although this program reads it.
    User,
    /// A directory that may contain files of this program.
    HasOwn,
    /// The directory of worktrees, which this program creates and which contains work of the user.
    Worktrees,
    /// Another program, or the user.
    Other,
}

/// The row of [`DOCUMENTED_PATHS`] about the file at `path`, relative to our directory: its own, or that of a directory above it.
/// Files beside a documented file belong to its row. `None` if there is none.
pub(crate) fn documented_path(path: &Path) -> Option<DocumentedLocation> {
    let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
    let location = |documented: &'static DocumentedPath| {
        let pattern = documented.path.strip_prefix("~/.nanobot/")?;
        let parts: Vec<&str> = pattern.trim_end_matches('/').split('/').collect();
        let depth = parts.len();
        let (last, above) = parts.split_last()?;
        let is_match = names.len() >= depth
            && above.iter().zip(&names).all(|(part, name)| matches(part, name))
            && (matches(last, names[depth - 1]) || is_side_file(last, names[depth - 1]))
            && (names.len() == depth || pattern.ends_with('/'));
        // A name without a placeholder is more exact.
        let fixed = parts.iter().filter(|part| wildcard(part) == ***part).count();
        is_match.then_some((fixed + depth, DocumentedLocation { documented, depth }))
    };
    let locations = DOCUMENTED_PATHS.iter().filter_map(location);
    locations.max_by_key(|(precision, _)| *precision).map(|(_, location)| location)
}

/// A documented path, and the number of its names.
pub(crate) struct DocumentedLocation {
    pub(crate) documented: &'static DocumentedPath,
    pub(crate) depth: usize,
}

/// Determines the owner of the entry at `path`, relative to our directory.
pub(crate) fn ownership(path: &Path, is_directory: bool) -> Ownership {
    let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
    if names.len() != path.iter().count() {
        return Ownership::Other;
    }
    if names == ["worktrees"] {
        return Ownership::Worktrees;
    }
    let documented = DOCUMENTED_PATHS.iter().filter_map(|documented| {
        let path = documented.path.strip_prefix("~/.nanobot/")?;
        // The files of this program in the workspace have entries of their own.
        (path != "workspace/").then(|| (path.to_owned(), None))
    });
    let templates = workspace::TEMPLATES.iter();
    let templates = templates.map(|(name, text)| (format!("workspace/{name}"), Some(*text)));
    let mut ownership = Ownership::Other;
    for (pattern, template) in documented.chain(templates) {
        let is_directory_pattern = pattern.ends_with('/');
        let parts: Vec<&str> = pattern.trim_end_matches('/').split('/').collect();
        let is_prefix =
            |parts: &[&str]| parts.iter().zip(&names).all(|(part, name)| matches(part, name));
        if names.len() < parts.len() && is_directory && is_prefix(&parts) {
            ownership = Ownership::HasOwn;
        }
        let last = parts.len() - 1;
        if names.len() != parts.len() || !is_prefix(&parts[..last]) {
            continue;
        }
        let (part, name) = (parts[last], names[last]);
        let is_match = if is_directory_pattern {
            is_directory && matches(part, name)
        } else {
            !is_directory && (matches(part, name) || is_side_file(part, name))
        };
        if is_match {
            if USER_PATHS.contains(&pattern.as_str()) {
                // The name may still be that of a file of this program, such as `tools/.specs.json`.
                ownership = Ownership::User;
                continue;
            }
            let location = listed_location(&parts);
            return match template {
                Some(text) => Ownership::Template { location, text },
                None => Ownership::Own { location },
            };
        }
    }
    ownership
}

/// The directory under which a pattern is listed: the last one without a placeholder. A pattern of one part is listed itself.
fn listed_location(parts: &[&str]) -> String {
    let fixed_parts = parts.iter().take_while(|part| wildcard(part) == **part).count();
    match fixed_parts.min(parts.len() - 1) {
        0 => parts[0].to_owned(),
        count => format!("{}/", parts[..count].join("/")),
    }
}

/// True if `name` is a file beside an owned file. The owned file has the pattern `part`.
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
    let mut pattern = String::new();
    let mut rest = part;
    while let Some(start) = rest.find(is_letter) {
        let (before, word) = rest.split_at(start);
        let end = word.find(|letter| !is_letter(letter)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        pattern += before;
        pattern += if PLACEHOLDERS.contains(&word) { "*" } else { word };
        rest = after;
    }
    pattern + rest
}

/// True if `name` is `pattern`, in which each `*` matches at least one character.
fn wildcard_matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let mut ends = name.char_indices().skip(1).map(|(index, _)| index).chain([name.len()]);
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
            let ownership = ownership(path.trim_end_matches('/').as_ref(), path.ends_with('/'));
            let location = match ownership {
                Ownership::Own { location } => location,
                Ownership::Template { location, .. } => format!("{location} unchanged"),
                Ownership::User => "user".into(),
                Ownership::HasOwn => "above".into(),
                Ownership::Worktrees => "worktrees".into(),
                Ownership::Other => "other".into(),
            };
            assert_eq!(location, expect, "{path}");
        };
        check("config.json", "config.json");
        check("config.json.lock", "config.json");
        check("cron/unseen.jsonl", "cron/");
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
        check("workspace/AGENTS.md", "workspace/ unchanged");
        check("workspace/memory/MEMORY.md", "workspace/memory/");
        check("workspace/memory/.versions/", "workspace/memory/");
        check("workspace/sessions/a_b.jsonl", "workspace/sessions/");
        check("workspace/sessions/a_b.jsonl.torn-1", "workspace/sessions/");
        check("workspace/sessions/.trash/", "above");
        check("workspace/sessions/.trash/1-a.jsonl.gone", "workspace/sessions/.trash/");
        check("workspace/cron/jobs.json.corrupt-2", "workspace/cron/");
        check("workspace/skills/", "above");
        check("workspace/skills/tea/", "user");
        check("workspace/skills/tea.md", "other");
        check("profiles/careful.md", "user");
        check("commands/review.md", "user");
        check("prompts/digest.md", "user");
        check("prompts/.announced", "prompts/");
        check("tools/weather", "user");
        check("tools/.specs.json", "tools/");
        check("hooks/format", "user");
        check("hooks/.announced", "hooks/");
        check("channels/telegram/", "channels/");
        check("undo/12/", "undo/");
        check("worktrees/", "worktrees");
        check("usage.under-way/", "usage.under-way");
    }
}
