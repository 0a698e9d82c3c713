//! The explanations that follow a failed command: what of it the sandbox refused or undid, and which flag grants it.

use super::ExecTool;
use crate::policy::Refusal;
use std::path::{Path, PathBuf};

impl ExecTool {
    /// The refusal for a command that changed protected files.
    pub(super) fn restored_refusal(
        &self,
        text: &str,
        restored: &[(PathBuf, std::io::Result<()>)],
    ) -> Refusal {
        let reach = &self.files.file_scope;
        let (mut back, mut lost) = (Vec::new(), Vec::new());
        for (path, done) in restored {
            let shown = path.strip_prefix(&reach.directory).unwrap_or(path);
            match done {
                Ok(()) => back.push(format!("`{}`", shown.display())),
                Err(error) => lost.push(format!("`{}` ({error})", shown.display())),
            }
        }
        let mut message = text.trim_start_matches('\n').to_owned();
        // Only an existing path can be granted.
        let grant = restored.iter().find(|(path, _)| path.exists());
        let grant = grant.map(|(path, _)| {
            let shown = path.strip_prefix(&reach.directory).unwrap_or(path);
            format!("--write={}", shown.display())
        });
        if !back.is_empty() {
            let or_granted = grant
                .as_ref()
                .map(|flag| format!("; the user can grant it with `{flag}`"));
            message.push_str(&format!(
                "\n(commands may not change {}, so it was restored, or set aside under another name; tell the user what to change in it{})",
                back.join(", "),
                or_granted.unwrap_or_default()
            ));
            let of_git = |path: &Path| path.components().any(|part| part.as_os_str() == ".git");
            if restored
                .iter()
                .any(|(path, done)| done.is_ok() && !of_git(path))
            {
                message.push_str(
                    "\n(if git tracks such a file, it now shows it as changed or deleted: do not commit that)",
                );
            }
        }
        if !lost.is_empty() {
            message.push_str(&format!(
                "\n(commands may not change {}, and it could not be restored: tell the user)",
                lost.join(", ")
            ));
        }
        Refusal {
            message,
            suggested_flag: grant,
        }
    }

    /// Explains why `command` failed, if the sandbox was the cause. A command that `timed_out` may have printed
    /// nothing.
    pub(super) fn explain_failure(
        &self,
        command: &str,
        text: &str,
        timed_out: bool,
    ) -> Option<(String, Option<&'static str>)> {
        let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
        if !self.containment.is_sandboxed {
            return None;
        }
        let wants_network = || {
            let is_word = |letter: char| letter.is_alphanumeric() || letter == '-';
            let mut words = command.split(|letter| !is_word(letter));
            words.any(|word| NETWORK_PROGRAMS.contains(&word))
        };
        if !self.containment.has_network && (has(NETWORK_SIGNS) || (timed_out && wants_network())) {
            let message =
                "(commands have no network in this run; the user can grant it with `--net`)";
            return Some((message.into(), Some("--net")));
        }
        if has(BUSY_SIGNS) && !self.writable_roots().is_empty() {
            let message = "(in this run `.git/config`, git hooks and start-up files cannot be changed, nor the directories that \
                 contain them moved or removed; the user can also grant one of them, as with `--write --write=.git/config`)";
            return Some((message.into(), None));
        }
        if !has(FILE_SIGNS) {
            return None;
        }
        if has(LIST_SIGNS)
            && let Some(message) = self.explain_unlisted_directory()
        {
            return Some((message, None));
        }
        let may_write = self
            .writable_roots()
            .contains(&self.files.file_scope.directory);
        let writes = self.writable_roots().into_iter();
        let mut places: Vec<String> = writes
            .map(|path| {
                format!(
                    "{} (except start-up files and git's config and hooks)",
                    path.display()
                )
            })
            .collect();
        places.push("$TMPDIR".into());
        let message = format!(
            "(in this run commands can read the system, the working directory and little else, and write only in {}; the user \
             can grant more with `--read PATH` or `--write`)",
            places.join(", ")
        );
        Some((message, (!may_write).then_some("--write")))
    }

    /// True if the directory contains a closed path. Without mounts, access to the directory is then granted entry by
    /// entry.
    fn contains_denied_path(&self, closed: &[PathBuf]) -> bool {
        let directory = &self.files.file_scope.directory;
        let mut inside = closed.iter().filter(|path| path.starts_with(directory));
        inside.any(|path| path.exists())
    }

    /// The explanation if commands cannot list the directory.
    fn explain_unlisted_directory(&self) -> Option<String> {
        let fence = self.sandbox_spec().ok()?;
        self.contains_denied_path(&fence.denied).then(|| {
            "(commands cannot list this directory because it contains denied paths; use `list_dir`, or access its entries by \
             name)"
                .to_owned()
        })
    }
}

/// Messages that programs print if a directory contains a path protected by a mount, or is such a path itself.
const BUSY_SIGNS: &[&str] = &[
    "Device or resource busy",
    "EBUSY",
    "resource busy or locked",
];

/// Messages that programs print if a directory cannot be listed.
const LIST_SIGNS: &[&str] = &["cannot open directory", "scandir", "opendir", "listdir"];

/// Programs that wait silently for a missing network.
const NETWORK_PROGRAMS: &[&str] = &[
    "npm", "npx", "pnpm", "yarn", "pip", "pip3", "uv", "poetry", "cargo", "go", "gem", "bundle",
    "composer", "mvn", "gradle", "git", "apt", "apt-get", "curl", "wget", "ssh", "scp", "rsync",
];

/// Messages that programs print if access to a file is denied.
const FILE_SIGNS: &[&str] = &[
    "Permission denied",
    "permission denied",
    "Operation not permitted",
    "operation not permitted",
    "Read-only file system",
    "EACCES",
    "EPERM",
];

/// Messages that programs print if there is no network.
const NETWORK_SIGNS: &[&str] = &[
    "Address family not supported",
    "EAFNOSUPPORT",
    "Could not resolve host",
    "could not resolve",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Temporary failure resolving",
    "getaddrinfo",
    "ENOTFOUND",
    "EAI_AGAIN",
];
