//! A private copy of a directory, in which a run may change everything, and the patch of what it has changed.
//!
//! The files are copied twice: the run gets one copy, and the other one is what the patch is made against, since the directory itself may
//! change meanwhile. Copied is what the policy lets tools read, but for `.git` and what git ignores: build results and
//! dependencies often are most of a tree, and a command makes them anew. For git, the copy gets a repository of its own that
//! borrows the objects of the first.

use super::format::format_change;
use super::{FileKind, GitFile, ObjectFormat};
use crate::files::Files;
use crate::walk::{self, WalkOptions};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::policy::file_scope::FileScope;
use nanobot_os::durable_file::format_size;
use nanobot_os::paths::is_generated_dir;
use nanobot_os::repository::Repository;
use nanobot_os::rooted_fs::{RootDir, is_link};
use std::collections::BTreeSet;
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Maximum number of entries that are copied. A larger tree would take longer to copy than people wait for an answer.
const MAX_ENTRIES: usize = 50_000;
/// Maximum size of the files that are copied, in bytes. The temporary directory may be in memory.
const MAX_COPY_BYTES: u64 = 512 << 20;
/// The largest file in a patch, and the maximum size of all files in it before and after, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_PATCH_BYTES: usize = 128 << 20;

/// The file by which the repository of a copy borrows the objects of the first, relative to the copy.
pub const ALTERNATES_FILE: &str = ".git/objects/info/alternates";
/// The entries that are copied, and the new files that belong to a patch: those that `git add` would take.
const WALK_OPTIONS: WalkOptions =
    WalkOptions { hidden: true, ignored: false, as_git: true, types: None };

/// A private copy of a directory.
#[derive(Debug)]
pub struct DirectoryCopy {
    /// The copy that stays as it is, and the one in which the run works.
    base: PathBuf,
    pub work: PathBuf,
    /// The entries that were copied, relative to the directory.
    entries: BTreeSet<PathBuf>,
    objects: ObjectFormat,
}

/// The changes in a copy.
#[derive(Debug, Default)]
pub struct CopyChanges {
    pub patch: String,
    /// New directories of dependencies and build results, relative to the copied directory. They are not in the patch.
    pub left_out: BTreeSet<PathBuf>,
    /// New files and directories that git ignores, if the run has changed what git ignores, relative to the copied directory. They are not
    /// in the patch.
    pub ignored: Vec<PathBuf>,
    /// Changes that only `git apply` makes: links, names that are not UTF-8, and files where directories were or are.
    pub only_for_git: BTreeSet<PathBuf>,
}

impl DirectoryCopy {
    /// Copies the directory `top`, which `files` may read, to new directories in `private`. Of the ignored files, those in `tracked` are
    /// copied too, whose paths are relative to `top`.
    ///
    /// # Errors
    /// Status 65 if the directory is too large. A file cannot be copied.
    pub fn create(files: &Files, top: &Path, tracked: &[PathBuf], private: &Path) -> Result<Self> {
        // The names show which directory it is, in paths that the model sees.
        let name = top.file_name().unwrap_or_default();
        let mut copy = Self {
            base: private.join("base"),
            work: private.join("copy").join(name),
            entries: BTreeSet::new(),
            objects: ObjectFormat::default(),
        };
        for directory in [&copy.base, &copy.work] {
            create_dir(directory)?;
        }
        let scope = &files.file_scope;
        let is_visible = |path: &PathBuf| scope.is_visible(path);
        let walked = walk::entries(scope, top, WALK_OPTIONS).map(ignore::DirEntry::into_path);
        let tracked = tracked.iter().map(|path| top.join(path)).filter(is_visible);
        let hidden = files.hidden_files();
        let mut bytes = 0;
        for path in walked.chain(tracked) {
            // The temporary directory may be in the one that is copied.
            let metadata = files.metadata(&path).filter(|_| !path.starts_with(private));
            let Some(metadata) = metadata else {
                continue;
            };
            bytes += if metadata.is_file() { metadata.len() } else { 0 };
            if copy.entries.len() == MAX_ENTRIES || bytes > MAX_COPY_BYTES {
                let (top, size) = (top.display(), format_size(MAX_COPY_BYTES));
                let cause = format!(
                    "`{top}` is too large for a private copy, which may have {MAX_ENTRIES} files and {size}"
                );
                return Err(fail(Exit::BadInput, cause)
                    .with_hint("`--worktree BRANCH --write` in a repository, `-C` with a smaller directory, or a `.gitignore`"));
            }
            let relative = path.strip_prefix(top).unwrap_or(&path);
            let targets = [copy.base.join(relative), copy.work.join(relative)];
            let is_copied = if metadata.is_dir() {
                targets.iter().try_for_each(std::fs::create_dir_all).map(|()| true)
            } else if metadata.is_symlink() {
                copy_link(&path, &targets).map(|()| true)
            } else {
                // Sockets, pipes and devices have no content, and unreadable files none that a tool could read.
                let source = files.open_entry(&path, &hidden);
                source.map_or(Ok(false), |(source, metadata)| {
                    copy_file(source, &metadata, &targets).map(|()| true)
                })
            };
            if is_copied.with_context(|| format!("copy `{}`", path.display()))? {
                copy.entries.insert(relative.to_owned());
            }
        }
        Ok(copy)
    }

    /// Gives the copy a repository that borrows the objects of `repository`, whose working tree was copied, and has its HEAD, refs and
    /// index. So `git status`, `git diff` and `git log` show in the copy what they would show in the directory. A repository in a form that
    /// is not known here is left out.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn link_repository(&mut self, repository: &Repository) -> Result<()> {
        let Some(common) = repository.git_dirs.last() else {
            return Ok(());
        };
        let shared = RootDir::open(common).context("open the repository")?;
        let mut config = String::new();
        if let Some(file) = open_git_file(&shared, Path::new("config"))? {
            file.take(MAX_FILE_BYTES).read_to_string(&mut config).context("read git's config")?;
        }
        let config: String = config.to_lowercase().split_whitespace().collect();
        // Files cannot take the place of a table of refs.
        if config.contains("refstorage=reftable") {
            return Ok(());
        }
        let mut text = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n\tcheckStat = minimal\n\ttrustctime = false\n".to_owned();
        if config.contains("objectformat=sha256") {
            self.objects = ObjectFormat::Sha256;
            text.push_str("[extensions]\n\tobjectFormat = sha256\n");
        }
        let own_git_dir = own_git_dir(&repository.top).filter(|path| path.starts_with(common));
        let own_git_dir = own_git_dir.as_ref().unwrap_or(common);
        let git_dir = self.work.join(".git");
        let make = || {
            for name in ["objects/info", "refs/heads", "info"] {
                std::fs::create_dir_all(git_dir.join(name))?;
            }
            let own = RootDir::open(own_git_dir)?;
            for name in ["HEAD", "index"] {
                copy_git_file(&own, Path::new(name), &git_dir.join(name))?;
            }
            for name in ["packed-refs", "shallow", "info/exclude"] {
                copy_git_file(&shared, Path::new(name), &git_dir.join(name))?;
            }
            copy_refs(&shared, common, Path::new("refs"), &git_dir.join("refs"))?;
            let mut alternates = common.join("objects").into_os_string();
            alternates.push("\n");
            std::fs::write(self.work.join(ALTERNATES_FILE), alternates.as_bytes())?;
            std::fs::write(git_dir.join("config"), text)
        };
        make().context("make a repository for the private copy")
    }

    /// The changes that were made in the copy. Names in the patch begin with `prefix`. New files that git ignores are left out, but for
    /// those in `written`, the absolute paths of what tools have written.
    ///
    /// # Errors
    /// Status 65 if they are too large for a patch. A file cannot be read.
    pub fn changes(&self, prefix: &Path, written: &BTreeSet<PathBuf>) -> Result<CopyChanges> {
        let open = |path: &Path| RootDir::open(path).context("open the private copy");
        let (base, work) = (open(&self.base)?, open(&self.work)?);
        let scope = FileScope { is_unrestricted: true, ..FileScope::default() };
        let mut changes = CopyChanges::default();
        let mut paths = self.entries.clone();
        let mut count = 0;
        for entry in walk::entries(&scope, &self.work, WALK_OPTIONS) {
            count += 1;
            if count == walk::MAX_ENTRIES {
                let cause = "there are too many new files for a patch";
                return Err(fail(Exit::BadInput, cause).with_hint("a `.gitignore` for them"));
            }
            let path = entry.path().strip_prefix(&self.work).unwrap_or(entry.path());
            let is_new_dir = |path: &&Path| is_generated_dir(path) && !self.entries.contains(*path);
            match path.ancestors().find(is_new_dir) {
                Some(directory) => drop(changes.left_out.insert(directory.to_owned())),
                None => drop(paths.insert(path.to_owned())),
            }
        }
        let written = written.iter().filter_map(|path| path.strip_prefix(&self.work).ok());
        paths.extend(written.map(Path::to_owned));
        let mut bytes = 0;
        let mut changes_rules = false;
        let (mut created, mut removed) = (BTreeSet::new(), BTreeSet::new());
        for path in &paths {
            let old = if self.entries.contains(path) { read(&base, path)? } else { None };
            let new = read(&work, path)?;
            if old == new {
                continue;
            }
            changes_rules |= path.ends_with(".gitignore");
            let mut files = [&old, &new].into_iter().flatten();
            if path.to_str().is_none() || files.any(|file| file.kind == FileKind::Link) {
                changes.only_for_git.insert(path.clone());
            }
            if old.is_none() {
                created.insert(path.as_path());
            } else if new.is_none() {
                removed.insert(path.as_path());
            }
            bytes += [&old, &new].into_iter().flatten().map(|file| file.bytes.len()).sum::<usize>();
            if bytes > MAX_PATCH_BYTES {
                let cause = format!(
                    "the changes are too large for a patch, which may have {}",
                    format_size(MAX_PATCH_BYTES as u64)
                );
                return Err(fail(Exit::BadInput, cause).with_hint("`--write`, or a smaller task"));
            }
            let name = prefix.join(path);
            let change = format_change(&name, old.as_ref(), new.as_ref(), Some(self.objects));
            changes.patch.push_str(&change.context("compress a binary file")?);
        }
        for [paths, others] in [[&created, &removed], [&removed, &created]] {
            let is_below_other =
                |path: &&&Path| path.ancestors().skip(1).any(|parent| others.contains(parent));
            changes
                .only_for_git
                .extend(paths.iter().filter(is_below_other).map(|path| path.to_path_buf()));
        }
        if changes_rules {
            let all =
                walk::entries(&scope, &self.work, WalkOptions { ignored: true, ..WALK_OPTIONS });
            for entry in all {
                let path = entry.path().strip_prefix(&self.work).unwrap_or(entry.path());
                // Of a directory without other files, the directory is named alone.
                let is_named = changes.ignored.last().is_some_and(|last| path.starts_with(last));
                if !is_named && !paths.contains(path) && !path.ancestors().any(is_generated_dir) {
                    changes.ignored.push(path.to_owned());
                }
            }
        }
        Ok(changes)
    }
}

fn create_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("create `{}`", path.display()))
}

/// Copies the file `source` to both of `targets`, with its time and its permissions.
fn copy_file(mut source: File, metadata: &Metadata, targets: &[PathBuf; 2]) -> io::Result<()> {
    // Programs such as `make` compare times, and git takes a file of another time for a changed one.
    let times = FileTimes::new().set_modified(metadata.modified()?);
    // The file may belong to another user, who lets us read it.
    let permissions = Permissions::from_mode(metadata.permissions().mode() & 0o777 | 0o400);
    for target in targets {
        create_parent(target)?;
        let mut file =
            File::options().read(true).write(true).create_new(true).mode(0o600).open(target)?;
        io::copy(&mut source, &mut file)?;
        file.set_permissions(permissions.clone())?;
        file.set_times(times)?;
        // The second copy is made of the first: the original may change.
        file.rewind()?;
        source = file;
    }
    Ok(())
}

fn copy_link(path: &Path, targets: &[PathBuf; 2]) -> io::Result<()> {
    let link = std::fs::read_link(path)?;
    for target in targets {
        create_parent(target)?;
        symlink(&link, target)?;
    }
    Ok(())
}

fn create_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

/// Opens a file of the git directory `root`. A link is not followed, since it may lead to a file that no tool may read; `None` for a link, a
/// pipe or a missing file.
fn open_git_file(root: &RootDir, name: &Path) -> io::Result<Option<File>> {
    let is_file = root.metadata(name).is_ok_and(|metadata| metadata.is_file());
    if is_file { root.open_for_reading(name).map(Some) } else { Ok(None) }
}

fn copy_git_file(root: &RootDir, name: &Path, target: &Path) -> io::Result<()> {
    match open_git_file(root, name)? {
        Some(mut source) => io::copy(&mut source, &mut File::create(target)?).map(drop),
        None => Ok(()),
    }
}

/// Copies the directory of refs `name` in the git directory `root`, which is at `git_dir`.
fn copy_refs(root: &RootDir, git_dir: &Path, name: &Path, target: &Path) -> io::Result<()> {
    std::fs::create_dir_all(target)?;
    for entry in std::fs::read_dir(git_dir.join(name))? {
        let entry = entry?.file_name();
        let (name, target) = (name.join(&entry), target.join(&entry));
        if root.metadata(&name).is_ok_and(|metadata| metadata.is_dir()) {
            copy_refs(root, git_dir, &name, &target)?;
        } else {
            copy_git_file(root, &name, &target)?;
        }
    }
    Ok(())
}

/// The git directory that the working tree at `top` has for itself.
fn own_git_dir(top: &Path) -> Option<PathBuf> {
    let path = top.join(".git");
    if path.is_dir() {
        return Some(path);
    }
    let text = std::fs::read_to_string(&path).ok()?;
    top.join(text.strip_prefix("gitdir: ")?.trim_end()).canonicalize().ok()
}

/// The file or link at `path`; `None` if there is none, or another entry.
///
/// # Errors
/// Status 65 if the file is too large for a patch. It cannot be read.
fn read(root: &RootDir, path: &Path) -> Result<Option<GitFile>> {
    let read = || {
        let metadata = match root.metadata(path) {
            Ok(metadata) => metadata,
            // A link may have taken the place of a directory.
            Err(error)
                if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind())
                    || is_link(&error) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if metadata.is_symlink() {
            let bytes = root.read_link(path)?.as_os_str().as_bytes().to_vec();
            return Ok(Some(GitFile { kind: FileKind::Link, bytes }));
        }
        if !metadata.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        root.open_for_reading(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        let is_executable = metadata.permissions().mode() & 0o100 != 0;
        let kind = if is_executable { FileKind::Executable } else { FileKind::Regular };
        Ok(Some(GitFile { kind, bytes }))
    };
    let file = read().with_context(|| format!("read `{}` of the private copy", path.display()))?;
    if file.as_ref().is_some_and(|file| file.bytes.len() as u64 > MAX_FILE_BYTES) {
        let cause = format!(
            "`{}` is too large for a patch, which may have files of {}",
            path.display(),
            format_size(MAX_FILE_BYTES)
        );
        return Err(fail(Exit::BadInput, cause).with_hint("a `.gitignore` for it"));
    }
    Ok(file)
}
