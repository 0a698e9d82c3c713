//! A git worktree for one run (`--worktree`): the agent works on a branch of its own, beside the user's files.

use crate::ops::context::Context;
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_os::paths::find_program;
use nanobot_sandbox::process::{self, CommandSpec};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of git: outside of the sandbox it must not run what a repository names, or what a command has left in it.
const RUNS_NOTHING: [(&str, &str); 4] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("diff.ignoreSubmodules", "all"),
];
/// Settings of a filter that runs nothing.
const RUNS_NO_FILTER: [(&str, &str); 4] =
    [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];
/// Variables that keep git from fetching what a partial clone lacks: the config of the repository names the program for it.
const FETCHES_NOTHING: [(&str, &str); 2] =
    [("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none")];
/// The number of settings in variables.
const CONFIG_COUNT: &str = "GIT_CONFIG_COUNT";
/// The time that one call of git may take. A checkout of a large repository takes minutes.
const GIT_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes kept of the output of git.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The worktree of a run.
pub(crate) struct Worktree {
    path: PathBuf,
    branch: String,
    /// The directory in the worktree that corresponds to the one of the command line.
    directory: PathBuf,
    /// The git directory of the repository, which commands in the worktree use too.
    git_dir: PathBuf,
    /// The commit of the branch, if it was made for this run.
    new_at: Option<String>,
}

impl Worktree {
    /// Opens the worktree `branch` of the repository around the directory of the run. Creates the worktree, and the
    /// branch at the current commit, if they do not exist.
    ///
    /// # Errors
    /// There is no repository, or git refuses.
    pub(crate) fn open(ctx: &Context, grants: &Grants, branch: &str) -> Result<Self> {
        let here = grants.directory.clone().unwrap_or_else(|| ".".into());
        let Ok(text) = git(
            ctx,
            &here,
            &["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-common-dir", "HEAD"],
        ) else {
            return Err(fail_with_hint(
                Exit::Usage,
                "`--worktree`: this is no git repository with a commit",
                "a repository, as the current directory or with `-C`",
            ));
        };
        let mut lines = text.lines();
        let (Some(top), Some(git_dir), Some(head)) = (lines.next(), lines.next(), lines.next())
        else {
            return Err(fail(Exit::Usage, "`--worktree`: this is no worktree of a git repository"));
        };
        let (top, git_dir) = (Path::new(top), PathBuf::from(git_dir));
        git(ctx, top, &["check-ref-format", "--branch", branch])?;
        let name = top.file_name().unwrap_or_default();
        let path = ctx.paths.worktrees().join(name).join(branch.replace('/', "-"));
        let below = here.canonicalize()?;
        let below = below.strip_prefix(top.canonicalize()?).unwrap_or(Path::new(""));
        let mut worktree = Self {
            directory: path.join(below),
            path,
            branch: branch.to_owned(),
            git_dir,
            new_at: None,
        };
        if worktree.path.exists() {
            worktree.check_existing(ctx)?;
        } else {
            worktree.create(ctx, top, head)?;
        }
        // What a commit on another branch has may be missing here.
        if !worktree.directory.is_dir() {
            worktree.directory.clone_from(&worktree.path);
        }
        ctx.notice(&format!(
            "working in `{}`, on branch `{branch}`",
            ctx.paths.display(&worktree.path)
        ));
        Ok(worktree)
    }

    /// Checks that the directory is the worktree of this repository that was asked for.
    fn check_existing(&self, ctx: &Context) -> Result<()> {
        let found =
            git(ctx, &self.path, &["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        if found.is_ok_and(|found| Path::new(found.trim()) == self.git_dir) {
            Ok(())
        } else {
            Err(fail_with_hint(
                Exit::Usage,
                format!("`{}` belongs to another repository", self.path.display()),
                "another name for `--worktree`",
            ))
        }
    }

    fn create(&mut self, ctx: &Context, top: &Path, head: &str) -> Result<()> {
        let path = self.path.to_string_lossy().into_owned();
        let reference = format!("refs/heads/{}", self.branch);
        match git(ctx, top, &["rev-parse", "--verify", "--quiet", &reference]) {
            Ok(_) => {
                git_on_files(ctx, top, top, &["worktree", "add", "--quiet", &path, &self.branch])?
            }
            Err(_) => {
                self.new_at = Some(head.to_owned());
                git_on_files(
                    ctx,
                    top,
                    top,
                    &["worktree", "add", "--quiet", "-b", &self.branch, &path],
                )?
            }
        };
        Ok(())
    }

    /// Makes the worktree the directory of the run, and grants what git needs in it.
    pub(crate) fn grant(&self, grants: &mut Grants) {
        grants.directory = Some(self.directory.clone());
        grants.read.push(self.path.clone());
        if grants.write.is_empty() {
            grants.read.push(self.git_dir.clone());
        } else {
            grants.write.push(self.git_dir.clone());
        }
    }

    /// Removes the worktree, unless it has changes that are not committed; also its branch, if that was made for this
    /// run and has no new commit.
    pub(crate) fn remove(self, ctx: &Context) {
        let path = self.path.to_string_lossy().into_owned();
        if git_on_files(ctx, &self.git_dir, &self.path, &["worktree", "remove", &path]).is_err() {
            let shown = ctx.paths.display(&self.path);
            ctx.notice(&format!("`{shown}` was kept: it has changes that are not committed"));
            return;
        }
        let reference = format!("refs/heads/{}", self.branch);
        let is_unused = git(ctx, &self.git_dir, &["rev-parse", &reference])
            .is_ok_and(|now| self.new_at.as_deref() == Some(now.trim()));
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
/// There is no git, or it fails; the error is its message.
fn git(ctx: &Context, directory: &Path, arguments: &[&str]) -> Result<String> {
    run_git(ctx, directory, arguments, &[])
}

/// Runs git as [`git`] does, for a command that reads or writes files of a working tree: it runs the filters of the user's own
/// config, and none that the repository has at `top`.
fn git_on_files(ctx: &Context, directory: &Path, top: &Path, arguments: &[&str]) -> Result<String> {
    let filters = repository_filters(ctx, top)?;
    let off = filters.iter().flat_map(|filter| {
        RUNS_NO_FILTER.map(|(name, value)| (format!("{filter}.{name}"), value.to_owned()))
    });
    if !filters.is_empty() {
        let names: Vec<&str> = filters.iter().filter_map(|it| it.strip_prefix("filter.")).collect();
        log::info!(target: "git", "filters of the repository that do not run: {}", names.join(", "));
    }
    run_git(ctx, directory, arguments, &off.collect::<Vec<_>>())
}

/// The filters that the config of the repository around `directory` sets, as `filter.NAME`.
fn repository_filters(ctx: &Context, directory: &Path) -> Result<BTreeSet<String>> {
    let words = ["config", "--null", "--show-scope", "--name-only", "--includes", "--list"];
    let listed = git(ctx, directory, &words)?;
    let fields: Vec<&str> = listed.split('\0').collect();
    let keys = fields.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let of_repository = keys.filter(|(scope, _)| matches!(*scope, "local" | "worktree"));
    let filters = of_repository.filter_map(|(_, key)| {
        let (filter, _) = key.rsplit_once('.')?;
        filter.starts_with("filter.").then(|| filter.to_owned())
    });
    Ok(filters.collect())
}

fn run_git(
    ctx: &Context,
    directory: &Path,
    arguments: &[&str],
    settings: &[(String, String)],
) -> Result<String> {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut env: Vec<(String, String)> = ctx.env.iter().map(owned).collect();
    env.extend(FETCHES_NOTHING.map(owned));
    // Settings in variables may have any name.
    let count = ctx.env.get(CONFIG_COUNT).and_then(|text| text.parse().ok()).unwrap_or(0_usize);
    let settings = RUNS_NOTHING.into_iter().map(owned).chain(settings.iter().cloned());
    let mut next = count;
    for (name, value) in settings {
        env.push((format!("GIT_CONFIG_KEY_{next}"), name));
        env.push((format!("GIT_CONFIG_VALUE_{next}"), value));
        next += 1;
    }
    env.push((CONFIG_COUNT.to_owned(), next.to_string()));
    // A relative entry would lead into the repository.
    let path = ctx.env.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let absolute: Vec<&str> = path.split(':').filter(|entry| entry.starts_with('/')).collect();
    env.retain(|(name, _)| name != "PATH");
    env.push(("PATH".to_owned(), absolute.join(":")));
    let spec = CommandSpec {
        program: find_program("git", path)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?,
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        directory: directory.to_owned(),
        env,
        timeout: GIT_TIMEOUT,
        capture_bytes: MAX_OUTPUT_BYTES,
        sandbox: None,
        input: None,
    };
    // What git warns of is no part of a list.
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
