//! Changes of instruction files that git makes of what it had. A merge, a rebase or a cherry-pick makes a content that git did not
//! have before, from versions that it had. A stash takes files that git does not know.

use super::ExecTool;
use crate::diff;
use crate::sys::process::{self, CommandSpec};
use crate::sys::sandbox::{ProjectFileAccess, UndoneChange};
use crate::sys::sync::IgnorePoison;
use std::path::Path;
use std::time::Duration;

/// Prints the last versions of the file `$NAME`, of all branches and of where they were before, as `NAME blob SIZE`, a line
/// break, the content, and another line break.
const VERSIONS_COMMAND: &str = "git --literal-pathspecs rev-list --all --reflog -n 64 -- \"$NAME\" | \
    while read -r commit; do git rev-parse -q --verify \"$commit:./$NAME\"; done | git cat-file --batch";
/// The time that git may take. Without an answer by then, the file counts as not merged.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of output that are read.
const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// Prints the version of the file `$NAME` that the newest stash has of what git did not know, like [`VERSIONS_COMMAND`].
const STASHED_COMMAND: &str =
    "git rev-parse -q --verify \"refs/stash^3:./$NAME\" | git cat-file --batch";
/// The list of submodules, which git leaves empty where there are none.
const SUBMODULES: &str = ".gitmodules";
/// The most versions that are merged with each other.
const MAX_VERSIONS: usize = 16;

impl ExecTool {
    /// Makes the changes that are clean merges of versions that git had before the commands of the run, lists of no submodules,
    /// and removals by a stash. Returns the others.
    pub(super) fn make_merges(&self, undone: Vec<UndoneChange>) -> Vec<UndoneChange> {
        let access = self.project_file_access();
        if undone.is_empty() || access == ProjectFileAccess::Closed {
            return undone;
        }
        let is_made = |change: &UndoneChange| {
            is_empty_list(change)
                || self.is_stashed(change)
                || access == ProjectFileAccess::FromHistory && self.is_merge(change)
        };
        let (merged, mut others): (Vec<_>, Vec<_>) = undone.into_iter().partition(is_made);
        if merged.is_empty() {
            return others;
        }
        let history = self.files.git_history();
        let contents = merged.iter().filter(|change| !is_empty_list(change));
        let contents = contents.filter_map(UndoneChange::withheld_content);
        if let Err(error) = history.grant(contents) {
            log::warn!(target: "sandbox", "record what git merged: {error}");
        }
        let changed = self.files.changed_startup_files();
        others.extend(self.files.record_command(|| {
            let failed = merged.into_iter().filter_map(|change| {
                match change.make() {
                    Ok(()) => {
                        let content = change.withheld_content().map(<[u8]>::to_vec);
                        changed.lock().ignore_poison().insert(change.path, content);
                    }
                    Err(error) => {
                        log::warn!(target: "sandbox", "change `{}`: {error}", change.path.display());
                        return Some(change);
                    }
                }
                None
            });
            failed.collect::<Vec<_>>()
        }));
        others
    }

    fn is_merge(&self, change: &UndoneChange) -> bool {
        let Some(after) = change.withheld_content().and_then(|it| str::from_utf8(it).ok()) else {
            return false;
        };
        // The content before the command, which is there again.
        let Ok(before) = std::fs::read_to_string(&change.path) else {
            return false;
        };
        let history = self.files.git_history();
        let mut versions = vec![before];
        for version in self.read_versions(&change.path, VERSIONS_COMMAND) {
            // Git's output proves nothing by itself: the command may have changed the repository.
            if !versions.contains(&version)
                && versions.len() < MAX_VERSIONS
                && history.had_content(&change.path, version.as_bytes())
            {
                versions.push(version);
            }
        }
        is_merge_of(&versions, after)
    }

    /// True if the file was removed, and `git stash pop` brings it back.
    fn is_stashed(&self, change: &UndoneChange) -> bool {
        // The content before the command, which is there again.
        let before = std::fs::read_to_string(&change.path);
        change.is_removal()
            && before.is_ok_and(|before| {
                let versions = self.read_versions(&change.path, STASHED_COMMAND);
                versions.contains(&before)
            })
    }

    /// The versions of a file, as git prints them by `command`, in the sandbox and without write access.
    fn read_versions(&self, path: &Path, command: &str) -> Vec<String> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Vec::new();
        };
        let Ok(Some(sandbox)) = self.configured_sandbox_spec(false) else {
            return Vec::new();
        };
        let sandbox = sandbox.read_only();
        let private = sandbox.private();
        let mut env = private.map_or_else(Vec::new, |path| self.sandbox_environment(path));
        env.push(("NAME".into(), name.to_string_lossy().into_owned()));
        let spec = CommandSpec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), command.into()],
            directory: directory.to_owned(),
            env,
            timeout: TIMEOUT,
            capture_bytes: MAX_OUTPUT_BYTES,
            sandbox: Some(sandbox),
            input: None,
        };
        let output = process::run_split_stderr(&spec);
        output.map_or_else(|_| Vec::new(), |(result, _)| parse_versions(&result.head))
    }
}

/// True if the file would be a list of no submodules.
fn is_empty_list(change: &UndoneChange) -> bool {
    let is_empty = |content: &[u8]| content.trim_ascii().is_empty();
    change.path.ends_with(SUBMODULES) && change.withheld_content().is_some_and(is_empty)
}

/// True if one of the `versions` is the base of two others whose merge is `text`.
fn is_merge_of(versions: &[String], text: &str) -> bool {
    let mut bases = versions.iter();
    bases.any(|base| {
        let mut pairs = versions.iter().enumerate();
        pairs.any(|(number, ours)| {
            let mut others = versions[..number].iter();
            others.any(|theirs| diff::merge(base, ours, theirs).as_deref() == Some(text))
        })
    })
}

/// Parses the output of `git cat-file --batch`. What is cut or no text is left out.
fn parse_versions(mut output: &[u8]) -> Vec<String> {
    let mut versions = Vec::new();
    while let Some(end) = output.iter().position(|byte| *byte == b'\n') {
        let header = str::from_utf8(&output[..end]).unwrap_or_default();
        output = &output[end + 1..];
        let mut words = header.split(' ').skip(1);
        let (Some("blob"), Some(Ok(size))) = (words.next(), words.next().map(str::parse::<usize>))
        else {
            // Such as `NAME missing`, which has no content.
            continue;
        };
        let Some((content, rest)) = output.split_at_checked(size) else {
            break;
        };
        versions.extend(str::from_utf8(content).map(str::to_owned));
        output = rest.strip_prefix(b"\n").unwrap_or(rest);
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::{is_merge_of, parse_versions};

    #[test]
    fn output_of_git() {
        let output =
            b"aa blob 4\none\n\nbb missing\ncc blob 2\n\xff\xfe\ndd blob 0\n\nee blob 9\ncut";
        assert_eq!(parse_versions(output), ["one\n", ""]);
    }

    #[test]
    fn only_merges_of_versions_are_merges() {
        let versions = ["1\n2\n3\n", "0\n1\n2\n3\n", "1\n2\n3\n4\n"].map(str::to_owned);
        assert!(is_merge_of(&versions, "0\n1\n2\n3\n4\n"));
        assert!(!is_merge_of(&versions, "0\n1\n2\n3\n4\n5\n"));
        assert!(!is_merge_of(&versions[..2], "0\n1\n2\n3\n4\n"));
        assert!(!is_merge_of(&versions[..1], "1\n2\n"));
    }
}
