//! Protected paths: paths in writable directories that a command must not change. What no mount protects is recorded
//! before the command and restored after it.
//!
//! A mount protects what exists. It cannot keep a missing path from being created, and nothing under it can be removed or
//! renamed, which is too strict for repositories within a directory. So the state of missing paths and of these repositories
//! is recorded before the command. Differences are undone afterwards, relative to directory descriptors opened beforehand and
//! without following symbolic links. No process of the command is alive at the last check: its namespace has ended.
//!
//! A mount over a file ends when the file is replaced, as editors and `git config` do. Files under mounts are therefore
//! recorded too, and checked if they were replaced.

use super::config_copies::{ConfigChange, ConfigCopies};
use super::files_beneath::set_aside;
use super::git_config_rules::{ConfigPolicy, HarmlessConfig, may_change, without_programs};
use super::git_paths;
use super::git_repository::is_bundle;
use super::new_repository::{self, CONFIG_NAMES};
use super::project_file_rules::ProjectFiles;
use super::project_files::ProjectFileSnapshot;
use super::protected_state::{RecordedContent, SnapshotState, replace_file};
use super::snapshot_entry::{ProtectedPath, SnapshotEntry, record_states};
use super::tree_search::{FoundPaths, search_roots};
use super::undone_change::{Remedy, UndoneChange};
use super::writable_roots::{TreePath, WritableRoots};
use nanobot_os::clock::current_file_time;
use rustix::fs::{AtFlags, FileType};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::ops::Bound;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The recorded state of protected paths.
#[derive(Debug)]
pub struct PathSnapshot {
    roots: WritableRoots,
    entries: Vec<SnapshotEntry>,
    /// All protected paths, also those that mounts protect.
    protected: BTreeSet<PathBuf>,
    project_file_snapshot: ProjectFileSnapshot,
    config_copies: ConfigCopies,
}

impl PathSnapshot {
    /// Records what no mount protects beneath the writable `roots`: the `protected_paths` that are missing, the paths of
    /// repositories within the roots, and the `project_files`. Copies git configs into the directory `copies`, which must
    /// not exist yet.
    ///
    /// # Errors
    /// A path exists and cannot be read, so it could not be restored.
    pub fn take(
        roots: &[PathBuf],
        protected_paths: &[PathBuf],
        copies: Option<&Path>,
        project_files: &ProjectFiles,
    ) -> io::Result<Self> {
        let roots = WritableRoots::open(roots);
        let config_copies = match copies {
            Some(copies) => ConfigCopies::create(copies, protected_paths, &roots)?,
            None => ConfigCopies::default(),
        };
        let start_time = current_file_time();
        let found_paths = search_roots(project_files, &roots, start_time);
        let repository_paths = list_repository_paths(&roots, &found_paths);
        project_files.remember_repositories(repository_paths.iter().map(PathBuf::as_path));
        let nested: Vec<PathBuf> =
            repository_paths.into_iter().filter(|path| !protected_paths.contains(path)).collect();
        let own_paths = protected_paths.iter().map(|path| ProtectedPath { path, is_nested: false });
        let nested_paths = nested.iter().map(|path| ProtectedPath { path, is_nested: true });
        let entries = record_states(&roots, own_paths.chain(nested_paths), project_files)?;
        let project_file_snapshot =
            ProjectFileSnapshot::take(project_files, &roots, found_paths, start_time)?;
        Ok(Self {
            project_file_snapshot,
            entries,
            config_copies,
            protected: protected_paths.iter().cloned().chain(nested).collect(),
            roots,
        })
    }

    /// The paths of repositories that did not exist before the command.
    fn new_repository_entries(&self, repository_paths: &[PathBuf]) -> Vec<SnapshotEntry> {
        let new_paths: BTreeSet<&PathBuf> =
            repository_paths.iter().filter(|path| !self.protected.contains(*path)).collect();
        let mut entries = Vec::new();
        for path in new_paths {
            if let Some(tree_path) = self.roots.locate(path) {
                entries.push(SnapshotEntry::in_new_repository(path, tree_path));
            }
        }
        entries
    }

    /// Undoes the changes of protected paths. Call it when no process of the command is alive. A call before that must be
    /// repeated, since the command can repeat the change.
    pub fn restore(&self) -> Vec<UndoneChange> {
        let found_paths = self.project_file_snapshot.search(&self.roots);
        let repository_paths = list_repository_paths(&self.roots, &found_paths);
        let new_entries = self.new_repository_entries(&repository_paths);
        let configs = repository_paths.iter().filter(|path| path.ends_with("config"));
        let repositories = CheckedRepositories {
            roots: &self.roots.paths,
            project_files: self.project_file_snapshot.project_files(),
            git_dirs: configs.filter_map(|path| path.parent()).collect(),
        };
        let entries = || self.entries.iter().chain(&new_entries);
        // Determined before anything is restored, since restoring creates missing directories again.
        let are_replaced: Vec<bool> = entries().map(SnapshotEntry::is_replaced).collect();
        let mut undone = Vec::new();
        for (entry, is_replaced) in entries().zip(are_replaced) {
            undone.extend(self.undo(entry, is_replaced, &repositories));
        }
        let permits_change = |path: &Path, before: &[u8], after: &[u8]| {
            repositories.permits_config_change(path, before, after)
        };
        undone.extend(self.config_copies.apply(&self.roots, &permits_change));
        self.remember_created(&repository_paths);
        undone.extend(self.project_file_snapshot.restore(&self.roots, found_paths));
        undone
    }

    /// Compares also the files that a mount protects. A process that runs since before the snapshot has no mount over a file that
    /// was replaced in the meantime.
    pub(crate) fn ignore_mounts(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.mounted = None);
    }

    /// The project files that were changed by any process.
    pub fn changed_project_files(&self) -> Vec<PathBuf> {
        let found_paths = self.project_file_snapshot.search(&self.roots);
        self.project_file_snapshot.changed(&self.roots, found_paths)
    }

    /// Remembers the git directories that did not exist before: what is harmless in their config may change later too.
    fn remember_created(&self, repository_paths: &[PathBuf]) {
        let missing = self.entries.iter().filter(|entry| entry.before == SnapshotState::Missing);
        let missing: BTreeSet<&PathBuf> = missing.map(|entry| &entry.path).collect();
        let configs = repository_paths.iter().filter(|path| path.ends_with("config"));
        for git_dir in configs.filter_map(|path| path.parent()) {
            let from_git_dir =
                self.protected.range::<Path, _>((Bound::Included(git_dir), Bound::Unbounded));
            let mut in_git_dir = from_git_dir.take_while(|path| path.starts_with(git_dir));
            if git_dir.is_dir() && in_git_dir.all(|path| missing.contains(path)) {
                self.project_file_snapshot.project_files().add_created(git_dir);
            }
        }
    }

    /// Undoes the change of a path, unless there is none or it is permitted.
    fn undo(
        &self,
        entry: &SnapshotEntry,
        is_replaced: bool,
        repositories: &CheckedRepositories<'_>,
    ) -> Option<UndoneChange> {
        let roots = &self.roots;
        if entry.is_still_mounted(roots) {
            return None;
        }
        let after = roots.read(&entry.tree_path);
        let is_denied =
            after.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        // It could not be read before the command either.
        if is_denied && entry.before == SnapshotState::Unreachable {
            return None;
        }
        if after.as_ref().is_ok_and(|after| *after == entry.before) {
            return None;
        }
        if git_paths::is_rebase_steps(&entry.path) {
            return undo_steps(roots, entry, after.ok());
        }
        // Programs that create a repository write here; harmless content is accepted.
        if let Ok(after) = &after
            && self.is_of_new_repository(entry, is_replaced, after)
        {
            if repositories.is_harmless_state(entry, after) {
                return None;
            }
            match repositories.filter_config(roots, entry, after) {
                ConfigCheck::Harmless => return None,
                ConfigCheck::Filtered(undone_change) => return Some(*undone_change),
                ConfigCheck::NotAConfig => {}
            }
        }
        // A command may remove a repository within the directory.
        if entry.is_nested && entry.is_repository_gone(roots) {
            return None;
        }
        if let Ok(after) = &after
            && let Some(change) = ConfigChange::new(&entry.path, &entry.before, after)
            && repositories.permits_config_change(&entry.path, change.before, change.after)
        {
            return None;
        }
        let did_exist =
            !matches!(entry.before, SnapshotState::Missing | SnapshotState::Unreachable);
        if !did_exist && matches!(after, Ok(SnapshotState::Unreachable)) {
            return set_link_aside(roots, entry);
        }
        // There is no earlier state to put back.
        Some(if entry.is_found_later {
            roots.set_aside(&entry.tree_path)
        } else {
            roots.put_back(&entry.tree_path, &entry.before, after.as_ref().ok())
        })
    }

    /// True if a path, which is in the state `after`, belongs to a repository that the command has created.
    fn is_of_new_repository(
        &self,
        entry: &SnapshotEntry,
        is_replaced: bool,
        after: &SnapshotState,
    ) -> bool {
        if is_replaced && *after != SnapshotState::Missing {
            return true;
        }
        entry.before == SnapshotState::Missing
            && (entry.is_found_later || self.is_in_new_repository(entry))
    }

    /// True if nothing of the repository that the path belongs to existed before the command.
    fn is_in_new_repository(&self, entry: &SnapshotEntry) -> bool {
        entry.repository().is_some_and(|repository| {
            let repository = self.roots.path(&repository);
            !self.entries.iter().any(|other| {
                other.before != SnapshotState::Missing && other.path.starts_with(&repository)
            })
        })
    }
}

/// The repositories whose files are checked after the command.
struct CheckedRepositories<'a> {
    /// The writable directories.
    roots: &'a [PathBuf],
    project_files: &'a ProjectFiles,
    git_dirs: BTreeSet<&'a Path>,
}

/// The result of checking the config of a newly created repository.
enum ConfigCheck {
    NotAConfig,
    Harmless,
    /// The lines that could make git run a program were removed.
    Filtered(Box<UndoneChange>),
}

impl CheckedRepositories<'_> {
    /// True if the state of a path in a newly created repository is one that every new repository has.
    fn is_harmless_state(&self, entry: &SnapshotEntry, state: &SnapshotState) -> bool {
        match state {
            SnapshotState::Missing | SnapshotState::Repository => true,
            SnapshotState::File { content: RecordedContent { bytes: Some(bytes), .. }, .. }
                if entry.path.ends_with(".git") =>
            {
                let directory = entry.path.parent().unwrap_or(&entry.path);
                let git_dir = new_repository::linked_git_dir(directory, bytes);
                git_dir.is_some_and(|git_dir| self.git_dirs.contains(git_dir.as_path()))
            }
            SnapshotState::File { content: RecordedContent { bytes: Some(bytes), .. }, .. } => {
                new_repository::is_worktree_link(&entry.tree_path.relative, bytes)
            }
            SnapshotState::Directory { entries, .. } => {
                // Templates of git have an empty directory for remotes.
                let is_sample = |name: &OsStr, state: &SnapshotState| {
                    name.as_encoded_bytes().ends_with(b".sample")
                        && matches!(state, SnapshotState::File { .. })
                };
                (entry.path.ends_with("branches") && entries.is_empty())
                    || (entry.path.ends_with("hooks")
                        && entries.iter().all(|(name, state)| is_sample(name, state)))
            }
            SnapshotState::File { content: RecordedContent { bytes: None, .. }, .. }
            | SnapshotState::Link(_)
            | SnapshotState::Unreachable
            | SnapshotState::Other => false,
        }
    }

    /// Removes what could make git run a program from the config of a newly created repository.
    fn filter_config(
        &self,
        roots: &WritableRoots,
        entry: &SnapshotEntry,
        state: &SnapshotState,
    ) -> ConfigCheck {
        let SnapshotState::File { mode, content: RecordedContent { bytes: Some(bytes), .. } } =
            state
        else {
            return ConfigCheck::NotAConfig;
        };
        if !CONFIG_NAMES.iter().any(|name| entry.path.ends_with(name)) {
            return ConfigCheck::NotAConfig;
        }
        let Some(git_dir) = entry.path.parent() else {
            return ConfigCheck::NotAConfig;
        };
        let policy = ConfigPolicy { git_dir, permits_remote: &|path| self.is_safe_remote(path) };
        let HarmlessConfig { text, removed } = without_programs(bytes, &policy);
        if removed.is_empty() {
            return ConfigCheck::Harmless;
        }
        let opened = roots.open_parent(&entry.tree_path, false).map_err(io::Error::from);
        let remedy = opened.and_then(|(dir, name)| {
            let whole = set_aside(dir.as_fd(), &name)?;
            replace_file(dir.as_fd(), &name, text.as_bytes(), *mode)?;
            Ok(Remedy::LinesRemoved { lines: removed, whole: entry.path.with_file_name(whole) })
        });
        let path = entry.path.clone();
        ConfigCheck::Filtered(Box::new(UndoneChange { path, remedy, withheld: None }))
    }

    /// True if the config at `path` may change from `before` to `after`. Unless content from outside is in the conversation, it
    /// may have all keys of the config of a new repository. Such a change is recorded, to be reported with the other changes of
    /// files that programs read on their own.
    fn permits_config_change(&self, path: &Path, before: &[u8], after: &[u8]) -> bool {
        if may_change(before, after, None) {
            return true;
        }
        if !self.project_files.are_free() {
            return false;
        }
        let Some(git_dir) = path.parent() else {
            return false;
        };
        let policy = ConfigPolicy { git_dir, permits_remote: &|path| self.is_safe_remote(path) };
        let is_permitted = may_change(before, after, Some(&policy));
        if is_permitted {
            self.project_files.add_changed(path, None);
        }
        is_permitted
    }

    /// True if git runs nothing when it fetches from `path`. A bundle is a file without hooks.
    fn is_safe_remote(&self, path: &Path) -> bool {
        self.is_safe_repository(path) || (self.project_files.are_free() && is_bundle(path))
    }

    /// True if the command could not have written the hooks of the repository at `path`, or they are checked too.
    fn is_safe_repository(&self, path: &Path) -> bool {
        let is_outside = || !self.roots.iter().any(|root| path.starts_with(root));
        let is_checked = |path: &Path| {
            self.git_dirs.contains(path) || self.git_dirs.contains(&*path.join(".git"))
        };
        // A link could be changed later, so a repository outside of the roots counts only by its real path.
        path.canonicalize().is_ok_and(|real| (real == path && is_outside()) || is_checked(&real))
    }
}

/// The protected paths of the repositories that were found in `roots`.
fn list_repository_paths(roots: &WritableRoots, found_paths: &[FoundPaths]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (root, FoundPaths { repositories, .. }) in roots.paths.iter().zip(found_paths) {
        paths.extend(git_paths::all_repository_paths(root, repositories));
    }
    // A file that is granted by name may be changed.
    paths.retain(|path| !roots.paths.contains(path));
    paths
}

/// Sets aside the file with the steps of an unfinished rebase, unless every command in it was there before the command. A
/// link on the way to it is set aside instead. `after` is its state; `None` if it cannot be read.
fn undo_steps(
    roots: &WritableRoots,
    entry: &SnapshotEntry,
    after: Option<SnapshotState>,
) -> Option<UndoneChange> {
    let steps = |state: &SnapshotState| match state {
        SnapshotState::File { content: RecordedContent { bytes: Some(bytes), .. }, .. } => {
            new_repository::exec_steps(bytes)
        }
        _ => BTreeSet::new(),
    };
    match after {
        Some(SnapshotState::Unreachable) => set_link_aside(roots, entry),
        Some(
            after @ SnapshotState::File { content: RecordedContent { bytes: Some(_), .. }, .. },
        ) if steps(&after).is_subset(&steps(&entry.before)) => None,
        // A file that is too large to be read may have any steps.
        Some(SnapshotState::File { .. } | SnapshotState::Link(_)) | None => {
            Some(roots.set_aside(&entry.tree_path))
        }
        // Git reads no steps from these.
        Some(
            SnapshotState::Missing
            | SnapshotState::Directory { .. }
            | SnapshotState::Repository
            | SnapshotState::Other,
        ) => None,
    }
}

/// Renames the symbolic link that has replaced a parent directory of a path: programs would follow it. A file that has replaced
/// one stays: nothing can be beneath it.
fn set_link_aside(roots: &WritableRoots, entry: &SnapshotEntry) -> Option<UndoneChange> {
    let TreePath { root, relative } = &entry.tree_path;
    let parents = relative.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
    let parents: Vec<&Path> = parents.collect();
    for relative in parents.into_iter().rev() {
        let parent = TreePath { root: *root, relative: relative.to_owned() };
        let (dir, name) = roots.open_parent(&parent, false).ok()?;
        let stat = rustix::fs::statat(dir.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Some(roots.set_aside(&parent));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{PathSnapshot, ProjectFiles};
    use crate::ProjectFileAccess;
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    /// Maps every path beneath `dir` to a description of it.
    fn tree(dir: &Path, into: &mut BTreeMap<PathBuf, String>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                into.insert(path.clone(), "directory".into());
                tree(&path, into);
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                into.insert(path, format!("link to {}", target.display()));
            } else {
                into.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    fn sh(dir: &Path, command: &str) {
        let _alone = nanobot_os::children::serialize_tests();
        let done = std::process::Command::new("/bin/sh")
            .args(["-c", command])
            .current_dir(dir)
            .status()
            .unwrap();
        assert!(done.success(), "{command}");
    }

    /// The paths that are not found by the search for repositories.
    fn outside_git(protected: &[PathBuf]) -> Vec<PathBuf> {
        let is_outside = |path: &&PathBuf| path.iter().all(|part| part != ".git");
        protected.iter().filter(is_outside).cloned().collect()
    }

    #[test]
    fn protected_paths_are_always_restored() {
        let check = |command: &str, changed: bool| {
            let temp = tempfile::tempdir().unwrap();
            let dir = std::fs::canonicalize(temp.path()).unwrap().join("w");
            std::fs::create_dir_all(dir.join(".git/hooks")).unwrap();
            std::fs::write(dir.join(".git/config"), "[core]\n").unwrap();
            std::fs::write(dir.join(".git/hooks/a.sample"), "x").unwrap();
            std::fs::write(dir.join("outside"), "safe").unwrap();
            symlink("elsewhere", dir.join(".envrc")).unwrap();
            let protected =
                [".git", ".git/hooks", ".git/config", ".git/commondir", ".bashrc", ".envrc"]
                    .map(|name| dir.join(name));
            let states = |dir: &Path| {
                let mut all = BTreeMap::new();
                tree(dir, &mut all);
                all.retain(|path, _| {
                    protected[1..].iter().any(|protected| path.starts_with(protected))
                });
                all
            };
            let before = states(&dir);
            let remembered = PathSnapshot::take(
                std::slice::from_ref(&dir),
                &outside_git(&protected),
                None,
                &ProjectFiles::default(),
            )
            .unwrap();
            sh(&dir, command);
            let undone = remembered.restore();
            assert_eq!(!undone.is_empty(), changed, "{command}: {undone:?}");
            assert!(undone.iter().all(|change| change.remedy.is_ok()), "{command}: {undone:?}");
            assert_eq!(states(&dir), before, "{command}");
            assert_eq!(std::fs::read_to_string(dir.join("outside")).unwrap(), "safe");
        };
        check("true", false);
        check("echo x > other", false);
        check("echo '[alias] x = y' >> .git/config", true);
        check("echo x > .git/hooks/pre-commit", true);
        check("rm -r .git/hooks", true);
        check("echo x > .bashrc", true);
        check("mkdir -p .bashrc/deep; echo x > .bashrc/deep/y; chmod 0 .bashrc/deep", true);
        check("ln -s outside .bashrc", true);
        check("ln outside .bashrc", true);
        check("rm .envrc; echo x > .envrc", true);
        check("rm .envrc", true);
        check("chmod 777 .git/config", true);
        check("echo .. > .git/commondir", true);
        check("mv .git g2; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit", true);
        check("mv .git g2; ln -s g2 .git", true);
        check("mv .git g2; ln -s .. .git", true);
        check("mv .git g2; echo x > .git", true);
        check("rm .git/config; ln -s ../outside .git/config", true);
        check("mv .git/hooks .git/h; ln -s ../.. .git/hooks", true);
        check("rm -r .git/hooks; echo x > .git/hooks", true);
    }

    #[test]
    fn all_contents_that_wait_for_consent_have_a_limit_together() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        let project_files = ProjectFiles {
            names: vec!["AGENTS.md"],
            access: ProjectFileAccess::FromGit,
            ..ProjectFiles::default()
        };
        let roots = std::slice::from_ref(&dir);
        let snapshot = PathSnapshot::take(roots, &[], None, &project_files).unwrap();
        // They take no space on disk.
        sh(&dir, "for i in 1 2 3 4; do mkdir $i; truncate -s 20M $i/AGENTS.md; done");
        let undone = snapshot.restore();
        assert_eq!(undone.iter().filter(|change| change.remedy.is_ok()).count(), 4, "{undone:?}");
        assert_eq!(undone.iter().filter(|change| change.is_withheld()).count(), 1);
        assert!(!dir.join("4/AGENTS.md").exists());
    }

    #[test]
    fn default_files_of_a_new_repository_are_accepted() {
        let plain = "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n";
        let check = |command: &str, stays: &[&str]| {
            let temp = tempfile::tempdir().unwrap();
            let dir = std::fs::canonicalize(temp.path()).unwrap();
            let names = [".git", ".git/hooks", ".git/config", ".git/commondir", ".bashrc"];
            let protected = names.map(|name| dir.join(name));
            let remembered = PathSnapshot::take(
                std::slice::from_ref(&dir),
                &outside_git(&protected),
                None,
                &ProjectFiles::default(),
            )
            .unwrap();
            sh(&dir, command);
            let undone = remembered.restore();
            assert!(undone.iter().all(|change| change.remedy.is_ok()));
            let kept: Vec<&str> = names
                .into_iter()
                .filter(|name| *name != ".git" && dir.join(name).exists())
                .collect();
            assert_eq!(kept, stays, "{command}");
        };
        let make = format!("mkdir -p .git/hooks; printf '{plain}' > .git/config;");
        check(&make, &[".git/hooks", ".git/config"]);
        check(&format!("{make} echo x > .git/hooks/a.sample"), &[".git/hooks", ".git/config"]);
        check(&format!("{make} echo x > .git/hooks/pre-commit"), &[".git/config"]);
        check(
            &format!("{make} echo '\tfsmonitor = x' >> .git/config"),
            &[".git/hooks", ".git/config"],
        );
        check(&format!("{make} echo .. > .git/commondir"), &[".git/hooks", ".git/config"]);
        check("mkdir g; echo 'gitdir: g' > .git", &[]);
        check("mkdir g; ln -s g .git; touch g/config", &[]);
        check(&format!("{make} echo x > .bashrc"), &[".git/hooks", ".git/config"]);
    }
}
