//! A git worktree for one run (`--worktree`): the agent works on a branch of its own, beside the user's files.

use crate::ops::context::Context;
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::paths::find_program;
use nanobot_sandbox::process::{self, CommandSpec};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of git. Outside of the sandbox, git must not run programs that the config of a repository names, or that a command has left in
/// the repository.
const NO_PROGRAM_SETTINGS: [(&str, &str); 4] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("diff.ignoreSubmodules", "all"),
];
/// Settings that turn off a filter.
const DISABLED_FILTER_SETTINGS: [(&str, &str); 4] =
    [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];
/// Variables that keep git from fetching the missing objects of a partial clone, because the config of the repository names
/// the program that fetches.
const NO_FETCH_VARIABLES: [(&str, &str); 2] =
    [("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];
/// The variable with the number of settings in `GIT_CONFIG_KEY_N` and `GIT_CONFIG_VALUE_N` (git-config(1)).
const CONFIG_COUNT: &str = "GIT_CONFIG_COUNT";
/// Timeout of one call of git. A checkout of a large repository takes minutes.
const GIT_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes kept of the output of git.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The worktree of a run.
pub(crate) struct Worktree {
    path: PathBuf,
    branch: String,
    /// The directory in the worktree that corresponds to the directory of the run.
    directory: PathBuf,
    /// The git directory of the repository, which commands in the worktree use too.
    git_dir: PathBuf,
    /// The commit at which the branch was created, if this run created it.
    start_commit: Option<String>,
}

impl Worktree {
    /// Opens the worktree `branch` of the repository that contains the directory of the run. Creates the worktree, and the
    /// branch at the current commit, if they do not exist.
    ///
    /// # Errors
    /// There is no repository, or git refuses.
    pub(crate) fn open(ctx: &Context, grants: &Grants, branch: &str) -> Result<Self> {
        let directory = grants.directory.clone().unwrap_or_else(|| ".".into());
        let Ok(text) = git(
            ctx,
            &directory,
            &["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir", "HEAD"],
        ) else {
            let cause = "`--worktree`: this directory is in no git repository with a commit";
            let hint = "a repository, as the current directory or with `-C`";
            return Err(fail(Exit::Usage, cause).with_hint(hint));
        };
        let mut lines = text.lines();
        let (Some(top), Some(git_dir), Some(head)) = (lines.next(), lines.next(), lines.next())
        else {
            let cause = "`--worktree`: this directory is not in a worktree of a git repository";
            return Err(fail(Exit::Usage, cause));
        };
        let (top, git_dir) = (Path::new(top), PathBuf::from(git_dir));
        git(ctx, top, &["check-ref-format", "--branch", branch])?;
        let name = top.file_name().unwrap_or_default();
        let path = ctx.paths.worktrees().join(name).join(branch.replace('/', "-"));
        let directory = directory.canonicalize()?;
        let relative = directory.strip_prefix(top.canonicalize()?).unwrap_or(Path::new(""));
        let mut worktree = Self {
            directory: path.join(relative),
            path,
            branch: branch.to_owned(),
            git_dir,
            start_commit: None,
        };
        if worktree.path.exists() {
            worktree.check_existing(ctx)?;
        } else {
            worktree.create(ctx, top, head)?;
        }
        // The commit of the branch may not have this directory.
        if !worktree.directory.is_dir() {
            worktree.directory.clone_from(&worktree.path);
        }
        ctx.notice(&format!(
            "working in `{}`, on branch `{branch}`",
            ctx.paths.display(&worktree.path)
        ));
        Ok(worktree)
    }

    /// Checks that the existing directory is a worktree of this repository, on the branch.
    fn check_existing(&self, ctx: &Context) -> Result<()> {
        let git_dir =
            git(ctx, &self.path, &["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        if !git_dir.is_ok_and(|git_dir| Path::new(git_dir.trim()) == self.git_dir) {
            let cause = format!("`{}` belongs to another repository", self.path.display());
            return Err(fail(Exit::Usage, cause).with_hint("another name for `--worktree`"));
        }
        // While git rebases, there is none.
        let branch = git(ctx, &self.path, &["symbolic-ref", "--quiet", "--short", "HEAD"]);
        match branch.as_deref().map(str::trim) {
            // The names `fix/x` and `fix-x` have one directory.
            Ok(branch) if branch != self.branch => {
                let cause =
                    format!("the worktree `{}` is on the branch `{branch}`", self.path.display());
                Err(fail(Exit::Usage, cause)
                    .with_hint(format!("`--worktree {branch}`, or another name")))
            }
            _ => Ok(()),
        }
    }

    fn create(&mut self, ctx: &Context, top: &Path, head: &str) -> Result<()> {
        let path = self.path.to_string_lossy().into_owned();
        let reference = format!("refs/heads/{}", self.branch);
        if git(ctx, top, &["rev-parse", "--verify", "--quiet", &reference]).is_ok() {
            let arguments = ["worktree", "add", "--quiet", &path, &self.branch];
            git_on_files(ctx, top, top, &arguments)?;
        } else {
            self.start_commit = Some(head.to_owned());
            let arguments = ["worktree", "add", "--quiet", "-b", &self.branch, &path];
            git_on_files(ctx, top, top, &arguments)?;
        }
        Ok(())
    }

    /// Makes the worktree the directory of the run, and grants the paths that git needs.
    pub(crate) fn grant(&self, grants: &mut Grants) {
        grants.directory = Some(self.directory.clone());
        grants.read.push(self.path.clone());
        if grants.write.is_empty() {
            grants.read.push(self.git_dir.clone());
        } else {
            grants.write.push(self.git_dir.clone());
        }
    }

    /// Removes the worktree, unless it has changes that are not committed. Its branch is removed too, if this run created it
    /// and it has no new commit.
    pub(crate) fn remove(self, ctx: &Context) {
        let path = self.path.to_string_lossy().into_owned();
        if git_on_files(ctx, &self.git_dir, &self.path, &["worktree", "remove", &path]).is_err() {
            let path = ctx.paths.display(&self.path);
            ctx.notice(&format!("`{path}` was kept: it has changes that are not committed"));
            return;
        }
        let reference = format!("refs/heads/{}", self.branch);
        let is_unused = git(ctx, &self.git_dir, &["rev-parse", &reference])
            .is_ok_and(|commit| self.start_commit.as_deref() == Some(commit.trim()));
        if is_unused
            && let Err(error) =
                git(ctx, &self.git_dir, &["branch", "--quiet", "-D", "--", &self.branch])
        {
            ctx.notice(&format!("the branch `{}` was kept: {error}", self.branch));
        }
    }
}

/// Runs git, and returns its output.
///
/// # Errors
/// There is no git, or git fails. The error is its message.
pub(crate) fn git(ctx: &Context, directory: &Path, arguments: &[&str]) -> Result<String> {
    run_git(ctx, directory, arguments, &[])
}

/// Runs git as [`git`] does, for a command that reads or writes files of a working tree. It runs the filters of the user's
/// config, but not those of the repository at `top`.
fn git_on_files(ctx: &Context, directory: &Path, top: &Path, arguments: &[&str]) -> Result<String> {
    let filters = repository_filters(ctx, top)?;
    let settings = filters.iter().flat_map(|filter| {
        DISABLED_FILTER_SETTINGS.map(|(name, value)| (format!("{filter}.{name}"), value.to_owned()))
    });
    if !filters.is_empty() {
        let names: Vec<&str> =
            filters.iter().filter_map(|filter| filter.strip_prefix("filter.")).collect();
        log::info!(target: "git", "filters of the repository that do not run: {}", names.join(", "));
    }
    run_git(ctx, directory, arguments, &settings.collect::<Vec<_>>())
}

/// The filters in the config of the repository that contains `directory`, as `filter.NAME`.
fn repository_filters(ctx: &Context, directory: &Path) -> Result<BTreeSet<String>> {
    let arguments = ["config", "--null", "--show-scope", "--name-only", "--includes", "--list"];
    let output = git(ctx, directory, &arguments)?;
    // Scopes and keys alternate.
    let fields: Vec<&str> = output.split('\0').collect();
    let mut filters = BTreeSet::new();
    for pair in fields.chunks_exact(2) {
        let (scope, key) = (pair[0], pair[1]);
        if matches!(scope, "local" | "worktree")
            && let Some((filter, _)) = key.rsplit_once('.')
            && filter.starts_with("filter.")
        {
            filters.insert(filter.to_owned());
        }
    }
    Ok(filters)
}

fn run_git(
    ctx: &Context,
    directory: &Path,
    arguments: &[&str],
    settings: &[(String, String)],
) -> Result<String> {
    let to_owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut env: Vec<(String, String)> = ctx.env.iter().map(to_owned).collect();
    env.extend(NO_FETCH_VARIABLES.map(to_owned));
    // Settings in variables may have any name, unlike those of `-c`. The user's settings are kept.
    let user_count =
        ctx.env.get(CONFIG_COUNT).and_then(|text| text.parse().ok()).unwrap_or(0_usize);
    let settings = NO_PROGRAM_SETTINGS.into_iter().map(to_owned).chain(settings.iter().cloned());
    let mut count = user_count;
    for (name, value) in settings {
        env.push((format!("GIT_CONFIG_KEY_{count}"), name));
        env.push((format!("GIT_CONFIG_VALUE_{count}"), value));
        count += 1;
    }
    env.push((CONFIG_COUNT.to_owned(), count.to_string()));
    // A relative entry could lead into the repository.
    let path = ctx.env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let absolute: Vec<&str> = path.split(':').filter(|entry| entry.starts_with('/')).collect();
    env.retain(|(name, _)| name != "PATH");
    env.push(("PATH".to_owned(), absolute.join(":")));
    let spec = CommandSpec {
        program: find_program("git", path)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?,
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        directory: directory.to_owned(),
        env,
        timeout: GIT_TIMEOUT,
        capture_bytes: MAX_OUTPUT_BYTES,
        sandbox: None,
        input: None,
    };
    // Warnings of git must not be read as a part of its output.
    let (finished, errors) = process::run_split_stderr(&spec)?;
    if let Some(stop) = finished.stop {
        return Err(stop.into());
    }
    let is_whole = finished.omitted_bytes == 0 && finished.tail.is_empty();
    match finished.status {
        Some(status) if status.success() && is_whole => {
            Ok(String::from_utf8_lossy(&finished.head).into_owned())
        }
        Some(status) if status.success() => {
            Err(fail(Exit::Usage, "git: the config of the repository is too long"))
        }
        _ => {
            let errors = String::from_utf8_lossy(&errors);
            Err(fail(Exit::Usage, format!("git: {}", errors.trim())))
        }
    }
}
