//! A run that proposes a patch (`--propose`): it works on a private copy of its directory, and its changes are printed.

use crate::ops::context::Context;
use crate::ops::permissions::{self, WorkspacePlace};
use crate::ops::worktree;
use crate::options::grants::{Grants, PrivateCopy};
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::policy::profile::Profile;
use nanobot_config::policy::{Policy, Sandbox};
use nanobot_config::settings::Settings;
use nanobot_sandbox::private_tmp;
use nanobot_tool::files::Files;
use nanobot_tool::git_patch::copy::{CopyChanges, DirectoryCopy};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The private copy of a run, and what its patch needs.
pub(crate) struct Proposal {
    copy: DirectoryCopy,
    paths: PrivateCopy,
    /// The directory of the run, relative to the copied one.
    directory: PathBuf,
    /// The path of the copied directory in its repository.
    prefix: PathBuf,
}

impl Proposal {
    /// Copies the directory of the run, with the rest of its repository.
    ///
    /// # Errors
    /// The run could change the directory itself, or cannot change anything. The directory is too large.
    pub(crate) fn create(
        ctx: &Context,
        options: &TurnOptions,
        settings: &Settings,
        profile: &Profile,
    ) -> Result<Self> {
        let workspace = WorkspacePlace::find(&settings.workspace);
        let policy =
            permissions::build_policy(ctx, &options.grants, settings, profile, &workspace)?;
        check_policy(&policy, settings)?;
        let scope = &policy.file_scope;
        // A run in this scope may read everything of it.
        let repository = scope.repository.as_ref().filter(|own| !own.git_dirs.is_empty());
        let top = repository.map_or(&scope.directory, |repository| &repository.top);
        let files = Files::new(scope.clone()).context("open the directories")?;
        let parents = private_tmp::candidate_parents(ctx.env.get("TMPDIR"));
        let private =
            private_tmp::copy_directory(&parents).context("make a directory for the copy")?;
        let tracked = repository.map_or_else(Vec::new, |_| ignored_but_tracked(ctx, top));
        let mut copy = DirectoryCopy::create(&files, top, &tracked, &private)?;
        if let Some(repository) = repository {
            copy.link_repository(repository)?;
        }
        let directory = scope.directory.strip_prefix(top).unwrap_or(Path::new(""));
        Ok(Self {
            paths: PrivateCopy { original: top.clone(), path: copy.work.clone() },
            directory: directory.to_owned(),
            prefix: prefix_in_repository(top),
            copy,
        })
    }

    /// The options of a run in the copy.
    pub(crate) fn options(&self, options: &TurnOptions) -> TurnOptions {
        let mut options = options.clone();
        let Grants { directory, read, write, private_copy, .. } = &mut options.grants;
        *directory = Some(self.paths.path.join(&self.directory));
        read.push(self.paths.path.clone());
        write.push(".".into());
        *private_copy = Some(self.paths.clone());
        options
    }

    /// The changes of the run, whose tools have written to the paths `written`.
    ///
    /// # Errors
    /// They are too large for a patch.
    pub(crate) fn changes(&self, written: &BTreeSet<PathBuf>) -> Result<CopyChanges> {
        self.copy.changes(&self.prefix, written)
    }
}

/// The path of `directory` in the repository around it, with which names in a patch begin: `git apply` takes them from the top of the
/// repository. Empty if there is none.
pub(crate) fn prefix_in_repository(directory: &Path) -> PathBuf {
    let mut tops = directory.ancestors();
    let top = tops.find(|top| top.join(".git").symlink_metadata().is_ok());
    top.and_then(|top| directory.strip_prefix(top).ok()).unwrap_or(Path::new("")).to_owned()
}

/// Refuses a run whose changes would not end in the copy.
fn check_policy(policy: &Policy, settings: &Settings) -> Result<()> {
    let Policy { file_scope, profile, .. } = policy;
    if policy.reads_only {
        let cause =
            format!("profile `{profile}` is read-only, so `--propose` cannot be used with it");
        return Err(fail(Exit::Usage, cause).with_hint("only one of the two"));
    }
    if file_scope.is_unrestricted || policy.sandbox == Sandbox::Off {
        let cause =
            "`--propose` needs the sandbox: without it, commands could change the directory";
        let hint = "without `--sandbox off` and `--profile full`";
        return Err(fail(Exit::Usage, cause).with_hint(hint));
    }
    if settings.restrict_to_workspace {
        let cause = "`tools.restrictToWorkspace` allows no copy outside the workspace";
        return Err(fail(Exit::Refused, cause));
    }
    if file_scope.directory.starts_with(&file_scope.workspace) {
        let cause =
            "`--propose`: the working directory is the workspace, which every run may change";
        return Err(fail(Exit::Usage, cause).with_hint("`-C` with another directory"));
    }
    Ok(())
}

/// The files in the working tree at `top` that git has in its index and ignores otherwise. Without git there are none.
fn ignored_but_tracked(ctx: &Context, top: &Path) -> Vec<PathBuf> {
    let arguments = ["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"];
    match worktree::git(ctx, top, &arguments) {
        Ok(names) => names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect(),
        Err(error) => {
            log::info!(target: "git", "ignored files are not copied: {error:#}");
            Vec::new()
        }
    }
}
