//! The repository that contains the directory of a run, as far as the user vouches for it.

use crate::ops::context::Context;
use crate::ops::protected_paths::protected_paths;
use anyhow::Result;
use nanobot_config::policy::secrets;
use nanobot_os::paths::PathResolver;
use nanobot_os::repository::{GitPointer, Repository};
use nanobot_os::sync::Deferred;
use nanobot_sandbox::{RepositoryLimits, find_repository};
use nanobot_store::trust::TrustList;
use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};

/// Finds the repository that contains `directory`, in no place that is secret or in `hidden`. The list of what the user has
/// pinned is read only if something depends on it.
pub(crate) fn find(
    ctx: &Context,
    directory: &Path,
    home: &Path,
    hidden: &Deferred<Vec<PathBuf>>,
) -> Result<Option<Repository>> {
    let trust = OnceCell::new();
    let is_pinned = |pointer: &GitPointer| {
        let list = trust.get_or_init(|| TrustList::load(&ctx.paths.trust()));
        list.as_ref().is_ok_and(|list| list.is_pointer_pinned(pointer))
    };
    let found = search(directory, home, hidden, &is_pinned);
    if let Some(list) = trust.into_inner().transpose()? {
        list.damage_notice().iter().for_each(|notice| ctx.notice(notice));
    }
    Ok(found)
}

/// The pointers of the repository at or around `directory`, a real path, that count only if the user pins them.
pub(crate) fn unpinned_pointers(ctx: &Context, directory: &Path) -> Vec<GitPointer> {
    let mut real_paths = PathResolver::default();
    let home = real_paths.resolve(&ctx.paths.home);
    // Each run leaves out what is closed in its workspace too.
    let (hidden, _) = protected_paths(ctx, &real_paths.resolve(&ctx.paths.root));
    let pointers = RefCell::new(Vec::new());
    // Borrowed objects may lead to further ones.
    let is_pinned = |pointer: &GitPointer| {
        pointers.borrow_mut().push(pointer.clone());
        true
    };
    search(directory, &home, &hidden, &is_pinned);
    pointers.into_inner()
}

fn search(
    directory: &Path,
    home: &Path,
    hidden: &Deferred<Vec<PathBuf>>,
    is_pinned: &dyn Fn(&GitPointer) -> bool,
) -> Option<Repository> {
    let is_closed = |path: &Path| {
        // What is hidden in a home is named by a directory in it, and only up to that.
        let hidden_entry = secrets::hidden_home_entry(path, home);
        secrets::secret_containing(path, home).is_some()
            || hidden_entry.is_some_and(|entry| path == entry || !directory.starts_with(entry))
            || hidden.iter().any(|place| path.starts_with(place))
    };
    find_repository(directory, &RepositoryLimits { home, is_closed: &is_closed, is_pinned })
}

/// The notice about pointers that do not count yet, with what to do.
pub(crate) fn unpinned_notice(ctx: &Context, repository: &Repository) -> Option<String> {
    let GitPointer { file, target } = repository.unpinned.first()?;
    let [file, target, top] = [file, target, &repository.top].map(|path| ctx.paths.display(path));
    Some(format!(
        "`{file}` leads to `{target}`, which commands do not see, so git may fail; `nanobot trust {top}` lets them use it"
    ))
}
