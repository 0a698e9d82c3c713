//! The repository that contains the directory of a run, without the parts that are only reached through an unpinned pointer.

use crate::ops::context::Context;
use crate::ops::protected_paths::protected_paths;
use crate::options::grants::PrivateCopy;
use anyhow::Result;
use nanobot_config::policy::secrets;
use nanobot_os::deferred::Deferred;
use nanobot_os::repository::{GitPointer, Repository};
use nanobot_os::symlinks::PathResolver;
use nanobot_sandbox::{RepositoryLimits, find_repository};
use nanobot_store::trust::TrustList;
use nanobot_tool::git_patch::copy::ALTERNATES_FILE;
use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};

/// Finds the repository that contains `directory`. Paths that are secret or in `hidden` are not part of it. The list of
/// pinned pointers is read only if the repository has pointers. That of a private copy to the objects of its original needs no pin:
/// nanobot made it.
pub(crate) fn find(
    ctx: &Context,
    directory: &Path,
    home: &Path,
    hidden_paths: &Deferred<Vec<PathBuf>>,
    private_copy: Option<&PrivateCopy>,
) -> Result<Option<Repository>> {
    let trust = OnceCell::new();
    let is_pinned = |pointer: &GitPointer| {
        if private_copy.is_some_and(|copy| pointer.file == copy.path.join(ALTERNATES_FILE)) {
            return true;
        }
        let list = trust.get_or_init(|| TrustList::load(&ctx.paths.trust()));
        list.as_ref().is_ok_and(|list| list.is_pointer_pinned(pointer))
    };
    let repository = search(directory, home, hidden_paths, &is_pinned);
    if let Some(list) = trust.into_inner().transpose()?
        && let Some(notice) = list.damage_notice()
    {
        ctx.notice(&notice);
    }
    Ok(repository)
}

/// The pointers of the repository that contains `directory`, a real path, that are followed only if the user pins them.
pub(crate) fn unpinned_pointers(ctx: &Context, directory: &Path) -> Vec<GitPointer> {
    let mut real_paths = PathResolver::default();
    let home = real_paths.resolve(&ctx.paths.home);
    // No workspace is known here; each run also leaves out the hidden paths of its workspace.
    let (hidden_paths, _) = protected_paths(ctx, &real_paths.resolve(&ctx.paths.root));
    let pointers = RefCell::new(Vec::new());
    // All pointers are treated as pinned, because each may lead to further pointers.
    let is_pinned = |pointer: &GitPointer| {
        pointers.borrow_mut().push(pointer.clone());
        true
    };
    search(directory, &home, &hidden_paths, &is_pinned);
    pointers.into_inner()
}

fn search(
    directory: &Path,
    home: &Path,
    hidden_paths: &Deferred<Vec<PathBuf>>,
    is_pinned: &dyn Fn(&GitPointer) -> bool,
) -> Option<Repository> {
    let is_closed = |path: &Path| {
        // A hidden directory of the home directory is closed, unless the run works in it.
        let hidden_entry = secrets::hidden_home_entry(path, home);
        secrets::secret_containing(path, home).is_some()
            || hidden_entry.is_some_and(|entry| path == entry || !directory.starts_with(entry))
            || hidden_paths.iter().any(|hidden| path.starts_with(hidden))
    };
    find_repository(directory, &RepositoryLimits { home, is_closed: &is_closed, is_pinned })
}

/// The notice about a pointer that is not pinned, with the command that pins it.
pub(crate) fn unpinned_notice(ctx: &Context, repository: &Repository) -> Option<String> {
    let GitPointer { file, target } = repository.unpinned.first()?;
    let [file, target, top] = [file, target, &repository.top].map(|path| ctx.paths.display(path));
    Some(format!(
        "`{file}` leads to `{target}`, which commands do not see, so git may fail; `nanobot trust {top}` lets them use it"
    ))
}
