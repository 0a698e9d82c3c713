//! A git worktree for one run (`--worktree`): the agent works on a branch of its own, beside the user's files.

use crate::error::{Exit, fail, fail_with_hint};
use crate::ops::context::Context;
use crate::ops::permissions::Grants;
use crate::sys::process::{self, CommandSpec};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options before a subcommand of git: outside of the sandbox it must not run what a command has left in the repository.
const RUNS_NOTHING: [&str; 6] =
    ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat"];
/// The time that one call of git may take. A checkout of a large repository takes minutes.
const GIT_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes kept of the output of git.
const MAX_OUTPUT_BYTES: usize = 8 << 10;

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
        match found.is_ok_and(|found| Path::new(found.trim()) == self.git_dir) {
            true => Ok(()),
            false => Err(fail_with_hint(
                Exit::Usage,
                format!("`{}` belongs to another repository", self.path.display()),
                "another name for `--worktree`",
            )),
        }
    }

    fn create(&mut self, ctx: &Context, top: &Path, head: &str) -> Result<()> {
        let path = self.path.to_string_lossy().into_owned();
        let reference = format!("refs/heads/{}", self.branch);
        match git(ctx, top, &["rev-parse", "--verify", "--quiet", &reference]) {
            Ok(_) => git(ctx, top, &["worktree", "add", "--quiet", &path, &self.branch])?,
            Err(_) => {
                self.new_at = Some(head.to_owned());
                git(ctx, top, &["worktree", "add", "--quiet", "-b", &self.branch, &path])?
            }
        };
        Ok(())
    }

    /// Makes the worktree the directory of the run, and grants what git needs in it.
    pub(crate) fn grant(&self, grants: &mut Grants) {
        grants.directory = Some(self.directory.clone());
        grants.read.push(self.path.clone());
        match grants.write.is_empty() {
            true => grants.read.push(self.git_dir.clone()),
            false => grants.write.push(self.git_dir.clone()),
        }
    }

    /// Removes the worktree, unless it has changes that are not committed; also its branch, if that was made for this
    /// run and has no new commit.
    pub(crate) fn remove(self, ctx: &Context) {
        let path = self.path.to_string_lossy().into_owned();
        if git(ctx, &self.git_dir, &["worktree", "remove", &path]).is_err() {
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

/// Runs git as the user would, and returns its output.
///
/// # Errors
/// There is no git, or it fails; the error is its message.
fn git(ctx: &Context, directory: &Path, arguments: &[&str]) -> Result<String> {
    let arguments = RUNS_NOTHING.iter().chain(arguments);
    let spec = CommandSpec {
        program: "git".into(),
        arguments: arguments.map(|&word| word.to_owned()).collect(),
        directory: directory.to_owned(),
        env: ctx.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        timeout: GIT_TIMEOUT,
        capture_bytes: MAX_OUTPUT_BYTES,
        sandbox: None,
        input: None,
    };
    let finished = process::run(&spec, &mut |_| ())?;
    if let Some(stop) = finished.stop {
        return Err(stop.into());
    }
    let text = String::from_utf8_lossy(&finished.head).into_owned();
    match finished.status {
        Some(status) if status.success() => Ok(text),
        _ => Err(fail(Exit::Usage, format!("git: {}", text.trim()))),
    }
}
