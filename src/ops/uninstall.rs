//! Removal of this program's crontab lines and files. A file is ours if it is at one of the documented paths; everything
//! else is kept, and reported. Links are removed, never followed.

mod owned_path;

use crate::ops::context::Context;
use crate::ops::jobs::{cron_environment, crontab_sync};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_os::durable_file::format_size;
use nanobot_os::file_lock::FileLock;
use nanobot_sandbox::process;
use owned_path::{Ownership, ownership};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Files of one kind, in one place.
#[derive(Debug)]
pub(crate) struct OwnedGroup {
    /// The file, or the directory that contains the files; for display.
    pub(crate) place: String,
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

/// The traces of this program on the machine.
#[derive(Debug, Default)]
pub(crate) struct Installation {
    /// Our lines of the crontab.
    pub(crate) crontab_lines: Vec<String>,
    /// Files to remove.
    pub(crate) owned: Vec<OwnedGroup>,
    /// Places that are not touched, with the reason.
    pub(crate) preserved: Vec<(String, String)>,
    /// The first file found that another process has locked.
    in_use: Option<PathBuf>,
    /// The workspace, whose name the lines of the crontab have.
    workspace: PathBuf,
}

/// Finds the crontab lines and files. `scripts` are the places of completion scripts, with our text for each.
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
        return Err(fail_with_hint(
            Exit::Failed,
            format!("`{}` contains more than nanobot's files", ctx.paths.root.display()),
            "`nanobot uninstall` with `NANOBOT_HOME` set to a directory of nanobot's own",
        ));
    }
    let mut found = Installation::default();
    let default = ctx.paths.root.join("workspace");
    let workspace = match ctx.settings() {
        Ok(settings) => settings.workspace,
        Err(error) => {
            ctx.notice(&format!(
                "the config cannot be used ({error:#}), so the workspace is taken for `{}`",
                ctx.paths.display(&default)
            ));
            default
        }
    };
    found.workspace = cron_environment::real_path(&workspace);
    let (ours, others) = crontab_sync::lines_for_removal(ctx, &found.workspace)?;
    found.crontab_lines = ours;
    if others > 0 {
        let what = "lines that name nanobot, of your own or of another workspace";
        found.keep("crontab", format!("{what}: {others}"));
    }
    found.search(ctx, &ctx.paths.root, Path::new(""))?;
    let root = cron_environment::real_path(&ctx.paths.root);
    if workspace.exists() && !found.workspace.starts_with(root) {
        let place = ctx.paths.display(&workspace);
        found.keep(place, "the workspace, outside of nanobot's directory");
    }
    for (path, script) in scripts {
        match std::fs::read(path) {
            Ok(text) if text == script.as_bytes() && !path.is_symlink() => {
                found.add(ctx.paths.display(path), path.clone())?;
            }
            Ok(_) => found.keep(ctx.paths.display(path), "not the script of this release"),
            Err(_) => {}
        }
    }
    if let Ok(program) = process::program_path(ctx.env.get("PATH")) {
        let how = match program.parent() {
            Some(folder) if folder.ends_with(".cargo/bin") => "`cargo uninstall nanobot-cli`",
            Some(folder) if folder == Path::new("/usr/bin") => "the package manager removes it",
            _ => "`rm`",
        };
        let place = ctx.paths.display(&program);
        found.keep(place, format!("the program: {how}"));
    }
    Ok(found)
}

impl Installation {
    fn keep(&mut self, place: impl Into<String>, why: impl Into<String>) {
        self.preserved.push((place.into(), why.into()));
    }

    /// Adds what is ours in the directory `relative` of `root`, entry by entry.
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
            let shown = ctx.paths.display(&path);
            match ownership(&relative, is_directory) {
                Ownership::Own { place } => {
                    let end = if place.ends_with('/') { "/" } else { "" };
                    let place = ctx.paths.display(&root.join(&place)) + end;
                    self.add(place, path)?;
                }
                Ownership::HasOwn => self.search(ctx, root, &relative)?,
                Ownership::Worktrees => {
                    let why = "worktrees of your repositories: `nanobot agent --worktree BRANCH --remove-worktree`";
                    self.keep(shown, why);
                }
                Ownership::Other => self.keep(shown, "not written by nanobot"),
            }
        }
        Ok(())
    }

    /// Adds the file or directory `path` to the group of `place`.
    fn add(&mut self, place: String, path: PathBuf) -> Result<()> {
        let mut files = vec![path.clone()];
        let (mut count, mut bytes) = (0, 0);
        while let Some(path) = files.pop() {
            let about = match path.symlink_metadata() {
                // Others may remove their temporary files at any time.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                about => about.with_context(|| format!("stat `{}`", path.display()))?,
            };
            if about.is_dir() {
                let list = || format!("list `{}`", path.display());
                for entry in std::fs::read_dir(&path).with_context(list)? {
                    files.push(entry.with_context(list)?.path());
                }
                continue;
            }
            count += 1;
            bytes += about.len();
            // A file that may not be read cannot be locked by us either.
            if self.in_use.is_none()
                && about.is_file()
                && FileLock::is_locked(&path).unwrap_or(false)
            {
                self.in_use = Some(path);
            }
        }
        match self.owned.iter_mut().find(|group| group.place == place) {
            Some(group) => {
                group.paths.push(path);
                group.files += count;
                group.bytes += bytes;
            }
            None => self.owned.push(OwnedGroup { place, paths: vec![path], files: count, bytes }),
        }
        Ok(())
    }

    /// # Errors
    /// Status 75 if another process uses one of the files.
    pub(crate) fn check_unused(&self, ctx: &Context) -> Result<()> {
        match &self.in_use {
            None => Ok(()),
            Some(path) => Err(fail_with_hint(
                Exit::TryAgain,
                format!("`{}` is in use", ctx.paths.display(path)),
                "again when no turn, job or poll runs",
            )),
        }
    }

    /// Removes the crontab lines, so that nothing starts meanwhile, then the files, and directories that are empty then.
    ///
    /// # Errors
    /// The crontab cannot be changed, or a file cannot be removed. What was removed stays removed; a second call does the rest.
    pub(crate) fn remove(&self, ctx: &Context) -> Result<()> {
        if !self.crontab_lines.is_empty() {
            crontab_sync::remove_block(ctx, &self.workspace)?;
        }
        for path in self.owned.iter().flat_map(|group| &group.paths) {
            let removed = if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
            match removed {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed.with_context(|| format!("remove `{}`", path.display()))?,
            }
        }
        // The lock of a change of the crontab; it may be new.
        drop(std::fs::remove_file(ctx.paths.cron().join("crontab.lock")));
        remove_empty_directories(&ctx.paths.root, Path::new(""));
        Ok(())
    }
}

/// Removes the directory `relative` of `root` if nothing but empty directories of ours is in it. What cannot be removed, such
/// as a link or a mount, stays.
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
