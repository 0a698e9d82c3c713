//! The variables by which git passes its repository to a hook, for the commands of a run that the hook has started.

use nanobot_config::policy::file_scope::FileScope;
use nanobot_os::env::Env;
use std::path::{Path, PathBuf};

/// git's variables in `env` that name the repository around the working directory of `scope`, with absolute paths: its index,
/// where a partial commit has another one, and its git directory and working tree, if both are named.
pub(super) fn variables(env: &Env, scope: &FileScope) -> Vec<(String, String)> {
    let Some(repository) = &scope.repository else {
        return Vec::new();
    };
    let is_in_git_dir =
        |path: &Path| repository.git_dirs.iter().any(|git_dir| path.starts_with(git_dir));
    let absolute_path = |name: &str| std::path::absolute(env.get(name)?).ok();
    let mut variables: Vec<(&str, PathBuf)> = Vec::new();
    let index = absolute_path("GIT_INDEX_FILE").and_then(|path| {
        // The index need not exist yet.
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    });
    variables.extend(index.filter(|path| is_in_git_dir(path)).map(|path| ("GIT_INDEX_FILE", path)));
    let real_path = |name: &str| absolute_path(name)?.canonicalize().ok();
    // With the git directory alone, git would use the current directory as the top of the working tree.
    if let (Some(git_dir), Some(top)) = (real_path("GIT_DIR"), real_path("GIT_WORK_TREE"))
        && is_in_git_dir(&git_dir)
        && top == repository.top
    {
        variables.extend([("GIT_DIR", git_dir), ("GIT_WORK_TREE", top)]);
    }
    let to_text =
        |(name, path): (&str, PathBuf)| Some((name.to_owned(), path.to_str()?.to_owned()));
    variables.into_iter().filter_map(to_text).collect()
}
