//! Stops git before it changes files that commands may not change. A run in a subdirectory may change only that directory. Git changes the
//! whole working tree, file by file, and would fail in the middle. So a script named `git` comes before git in PATH. It keeps the working
//! tree consistent; the sandbox protects the files.

use nanobot_base::shell_quote::quote;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_os::paths::find_program;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SCRIPT: &str = include_str!("git_guard.sh");
/// The directory of the script, in the private directory of the run.
const DIRECTORY: &str = "git-guard";
/// The file that the script creates when it stops git.
const MARKER: &str = "git-stopped";

/// The working tree, if commands may change only the part of it in the working directory.
pub(super) fn partial_tree(scope: &FileScope) -> Option<&Path> {
    let top = scope.repository.as_ref()?.top.as_path();
    let mut roots = scope.command_writable_roots();
    let is_writing = scope.command_writable_git_dirs().next().is_some();
    (is_writing && top != scope.directory && !roots.any(|root| top.starts_with(root)))
        .then_some(top)
}

/// Writes the script into the directory `private`, if commands need it. `path` is a PATH.
///
/// # Errors
/// The script cannot be written.
pub(super) fn install(scope: &FileScope, private: &Path, path: &str) -> io::Result<()> {
    let (Some(top), Some(git)) = (partial_tree(scope), find_program("git", path)) else {
        return Ok(());
    };
    let part = scope.directory.strip_prefix(top).unwrap_or(top);
    let marker = private.join(MARKER);
    let [git, top, part, marker] =
        [&git, top, part, &marker].map(|path: &Path| quote(&path.to_string_lossy()));
    let script = format!("#!/bin/sh\ngit={git} top={top} part={part} mark={marker}\n{SCRIPT}");
    let directory = private.join(DIRECTORY);
    std::fs::create_dir_all(&directory)?;
    let file = directory.join("git");
    std::fs::write(&file, script)?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))
}

/// The PATH for commands: `path` behind the script, if they need it.
pub(super) fn extend_path(scope: &FileScope, private: &Path, path: &str) -> Option<String> {
    partial_tree(scope)?;
    Some(format!("{}:{path}", private.join(DIRECTORY).display()))
}

/// The working tree, if the script in `private` has stopped the last command of git.
pub(super) fn take_stopped<'s>(scope: &'s FileScope, private: &Path) -> Option<&'s Path> {
    let top = partial_tree(scope)?;
    std::fs::remove_file(private.join(MARKER)).is_ok().then_some(top)
}
