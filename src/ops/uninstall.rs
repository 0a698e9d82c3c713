//! Removal of this program's crontab lines and files. A file is ours if it is at one of the documented paths, unless these are for
//! what a person writes, such as profiles, or the file is a template that was changed. All other files are kept, and reported. Links are removed, never followed.

use crate::ops::context::Context;
use crate::ops::jobs::{cron_environment, crontab_sync};
use crate::ops::owned_path::{Ownership, ownership};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::durable_file::format_size;
use nanobot_os::file_lock::FileLock;
use nanobot_sandbox::process;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Files that are listed together.
#[derive(Debug)]
pub(crate) struct OwnedGroup {
    /// The file, or the directory that contains the files; for display.
    pub(crate) location: String,
    /// The files and directories that are removed.
    paths: Vec<PathBuf>,
    files: usize,
    bytes: u64,
}

impl OwnedGroup {
    /// The number of files and their size, for display.
    pub(crate) fn describe_size(&self) -> String {
        let size = format_size(self.bytes);
        match self.files {
            1 => size,
            files => format!("{files} files, {size}"),
        }
    }
}

/// The files and crontab lines of this program.
#[derive(Debug, Default)]
pub(crate) struct Installation {
    /// Our lines of the crontab.
    pub(crate) crontab_lines: Vec<String>,
    /// Files to remove.
    pub(crate) owned: Vec<OwnedGroup>,
    /// Paths that are kept, each with the reason.
    pub(crate) preserved: Vec<(String, String)>,
    /// The first file that another process has locked.
    file_in_use: Option<PathBuf>,
    /// The workspace, which identifies the lines in the crontab.
    workspace: PathBuf,
}

/// Finds the crontab lines and files. `scripts` are the paths of completion scripts, with our text for each.
///
/// # Errors
/// A directory or the crontab cannot be read. A missing `crontab` program has no lines.
pub(crate) fn find_installation(
    ctx: &Context,
    scripts: &[(PathBuf, &str)],
) -> Result<Installation> {
    if ctx.paths.home.starts_with(&ctx.paths.root)
        && ctx.paths.root != ctx.paths.home.join(".nanobot")
    {
        let cause = format!("`{}` contains more than nanobot's files", ctx.paths.root.display());
        let hint = "`nanobot uninstall` with `NANOBOT_HOME` set to a directory of nanobot's own";
        return Err(fail(Exit::Failed, cause).with_hint(hint));
    }
    let mut installation = Installation::default();
    let default_workspace = ctx.paths.root.join("workspace");
    let workspace = match ctx.settings() {
        Ok(settings) => settings.workspace,
        Err(error) => {
            ctx.notice(&format!(
                "the config cannot be used ({error:#}), so the workspace is assumed to be `{}`",
                ctx.paths.display(&default_workspace)
            ));
            default_workspace
        }
    };
    installation.workspace = cron_environment::real_path(&workspace);
    let (lines, other_count) = crontab_sync::lines_for_removal(ctx, &installation.workspace)?;
    installation.crontab_lines = lines;
    if other_count > 0 {
        let reason = "lines that name nanobot, of your own or of another workspace";
        installation.keep("crontab", format!("{reason}: {other_count}"));
    }
    installation.search(ctx, &ctx.paths.root, Path::new(""))?;
    let root = cron_environment::real_path(&ctx.paths.root);
    if workspace.exists() && !installation.workspace.starts_with(root) {
        let path = ctx.paths.display(&workspace);
        installation.keep(path, "the workspace, outside of nanobot's directory");
    }
    for (path, script) in scripts {
        match std::fs::read(path) {
            Ok(text) if text == script.as_bytes() && !path.is_symlink() => {
                installation.add(ctx.paths.display(path), path.clone())?;
            }
            Ok(_) => installation.keep(ctx.paths.display(path), "not the script of this release"),
            Err(_) => {}
        }
    }
    if let Ok(program) = process::program_path(ctx.env.get("PATH")) {
        let removal = match program.parent() {
            Some(directory) if directory.ends_with(".cargo/bin") => {
                "`cargo uninstall nanobot-cli` removes it"
            }
            Some(directory) if directory == Path::new("/usr/bin") => {
                "the package manager removes it"
            }
            _ => "`rm` removes it",
        };
        let path = ctx.paths.display(&program);
        installation.keep(path, format!("the program; {removal}"));
    }
    Ok(installation)
}

impl Installation {
    fn keep(&mut self, path: impl Into<String>, reason: impl Into<String>) {
        self.preserved.push((path.into(), reason.into()));
    }

    /// Adds the entries of the directory `relative` of `root`.
    fn search(&mut self, ctx: &Context, root: &Path, relative: &Path) -> Result<()> {
        let directory = root.join(relative);
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.with_context(|| format!("list `{}`", directory.display()))?,
        };
        let mut names: Vec<_> = entries
            .map(|entry| Ok(entry?.file_name()))
            .collect::<std::io::Result<_>>()
            .with_context(|| format!("list `{}`", directory.display()))?;
        names.sort();
        for name in names {
            let (relative, path) = (relative.join(&name), directory.join(&name));
            let is_directory = path.is_dir() && !path.is_symlink();
            let display_path = ctx.paths.display(&path);
            match ownership(&relative, is_directory) {
                Ownership::Template { text, .. }
                    if std::fs::read(&path).is_ok_and(|bytes| bytes != text.as_bytes()) =>
                {
                    self.keep(display_path, "changed since nanobot wrote it");
                }
                Ownership::Own { location } | Ownership::Template { location, .. } => {
                    let end = if location.ends_with('/') { "/" } else { "" };
                    let location = ctx.paths.display(&root.join(&location)) + end;
                    self.add(location, path)?;
                }
                Ownership::User => self.keep(display_path, "yours"),
                Ownership::HasOwn => self.search(ctx, root, &relative)?,
                Ownership::Worktrees => {
                    let reason = "worktrees of your repositories: `nanobot agent --worktree BRANCH --remove-worktree`";
                    self.keep(display_path, reason);
                }
                Ownership::Other => self.keep(display_path, "not written by nanobot"),
            }
        }
        Ok(())
    }

    /// Adds the file or directory `path` to the group of `location`.
    fn add(&mut self, location: String, path: PathBuf) -> Result<()> {
        let mut files = vec![path.clone()];
        let mut count = 0;
        let mut bytes = 0;
        while let Some(path) = files.pop() {
            let metadata = match path.symlink_metadata() {
                // Other processes may remove their temporary files at any time.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata.with_context(|| format!("stat `{}`", path.display()))?,
            };
            if metadata.is_dir() {
                let context = || format!("list `{}`", path.display());
                for entry in std::fs::read_dir(&path).with_context(context)? {
                    files.push(entry.with_context(context)?.path());
                }
                continue;
            }
            count += 1;
            bytes += metadata.len();
            // A file that this process cannot read is not tested for a lock.
            if self.file_in_use.is_none()
                && metadata.is_file()
                && FileLock::is_locked(&path).unwrap_or(false)
            {
                self.file_in_use = Some(path);
            }
        }
        match self.owned.iter_mut().find(|group| group.location == location) {
            Some(group) => {
                group.paths.push(path);
                group.files += count;
                group.bytes += bytes;
            }
            None => {
                self.owned.push(OwnedGroup { location, paths: vec![path], files: count, bytes });
            }
        }
        Ok(())
    }

    /// Checks that no other process uses the files.
    ///
    /// # Errors
    /// Status 75 if one does.
    pub(crate) fn check_unused(&self, ctx: &Context) -> Result<()> {
        match &self.file_in_use {
            None => Ok(()),
            Some(path) => {
                Err(fail(Exit::TryAgain, format!("`{}` is in use", ctx.paths.display(path)))
                    .with_hint("again when no turn, job or poll runs"))
            }
        }
    }

    /// Removes the crontab lines first, so that no job starts, then the files, and then empty directories.
    ///
    /// # Errors
    /// The crontab cannot be changed, or a file cannot be removed. A second call removes the rest.
    pub(crate) fn remove(&self, ctx: &Context) -> Result<()> {
        if !self.crontab_lines.is_empty() {
            crontab_sync::remove_block(ctx, &self.workspace)?;
        }
        for path in self.owned.iter().flat_map(|group| &group.paths) {
            let result = if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
            match result {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => result.with_context(|| format!("remove `{}`", path.display()))?,
            }
        }
        // The removal of the crontab lines may have created this file.
        drop(std::fs::remove_file(ctx.paths.cron().join("crontab.lock")));
        remove_empty_directories(&ctx.paths.root, Path::new(""));
        Ok(())
    }
}

/// Removes the directory `relative` of `root` if it contains only empty directories of ours. A directory that cannot be
/// removed, such as a mount point, stays.
fn remove_empty_directories(root: &Path, relative: &Path) {
    let directory = root.join(relative);
    for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
        let relative = relative.join(entry.file_name());
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if ownership(&relative, is_directory) == Ownership::HasOwn {
            remove_empty_directories(root, &relative);
        }
    }
    drop(std::fs::remove_dir(directory));
}
