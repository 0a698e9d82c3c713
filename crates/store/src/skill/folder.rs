//! The contents of a skill's folder: files, links and other entries. Only regular files are opened.

use anyhow::{Context, Result, bail};
use nanobot_base::error::{Exit, fail};
use nanobot_os::rooted_fs::RootDir;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// Maximum number of entries, and maximum depth. A larger folder is probably not a skill, and too large to review.
const MAX_ENTRIES: usize = 1_000;
pub(super) const MAX_DEPTH: usize = 12;
/// Maximum of bytes of all files.
const MAX_TOTAL_BYTES: u64 = 16 << 20;

/// The contents of a folder.
#[derive(Debug)]
pub struct SkillFolder {
    /// The path of the folder as the user gave it.
    pub root: PathBuf,
    /// The entries, sorted by path.
    pub entries: Vec<FolderEntry>,
    /// The entries that are left out, each with the reason.
    pub skipped: Vec<String>,
}

/// An entry of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// The path relative to the folder.
    pub path: PathBuf,
    /// The type of the entry.
    pub entry_type: EntryType,
}

/// The type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryType {
    Folder,
    File {
        size: u64,
        is_executable: bool,
    },
    /// A link: its target as written, and the reason if it must not be followed.
    Link {
        target: PathBuf,
        problem: Option<&'static str>,
    },
    /// A pipe, a socket or a device.
    Other(&'static str),
}

impl SkillFolder {
    /// Lists the contents of the folder `root`.
    ///
    /// # Errors
    /// The folder cannot be read, has no SKILL.md, or exceeds the limits.
    pub fn scan(root: &Path) -> Result<Self> {
        let real =
            std::fs::canonicalize(root).with_context(|| format!("open `{}`", root.display()))?;
        let mut folder = Self { root: root.to_owned(), entries: Vec::new(), skipped: Vec::new() };
        // This is checked first, so that a folder which is not a skill is not walked.
        if real.join("SKILL.md").symlink_metadata().is_err() {
            let cause = format!("no SKILL.md in `{}`", root.display());
            return Err(fail(Exit::BadInput, cause));
        }
        folder.walk(&real, Path::new(""), 0)?;
        folder.entries.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(folder)
    }

    /// Adds the entries of the directory `below` of the folder, whose real path is `real`.
    fn walk(&mut self, real: &Path, below: &Path, depth: usize) -> Result<()> {
        let dir = real.join(below);
        let displayed_dir = self.root.join(below);
        let what = || format!("read directory `{}`", displayed_dir.display());
        if depth > MAX_DEPTH {
            bail!("`{}` is nested more than {MAX_DEPTH} directories deep", below.display());
        }
        for entry in std::fs::read_dir(&dir).with_context(what)? {
            let entry = entry.with_context(what)?;
            let path = below.join(entry.file_name());
            let metadata = entry.metadata().with_context(what)?;
            // The data of version control systems also holds deleted files. In a submodule or a worktree, `.git` is a file
            // with the path of that data.
            if [".git", ".hg", ".svn"].iter().any(|name| entry.file_name() == *name) {
                let slash = if metadata.is_dir() { "/" } else { "" };
                self.skipped.push(format!("{}{slash} (version control data)", path.display()));
                continue;
            }
            if self.entries.len() >= MAX_ENTRIES {
                bail!(
                    "`{}` has more than {MAX_ENTRIES} files and directories",
                    self.root.display()
                );
            }
            let file_type = metadata.file_type();
            let entry_type = match file_type {
                _ if file_type.is_dir() => EntryType::Folder,
                _ if file_type.is_file() => EntryType::File {
                    size: metadata.len(),
                    is_executable: metadata.mode() & 0o111 != 0,
                },
                _ if file_type.is_symlink() => {
                    let target =
                        std::fs::read_link(dir.join(entry.file_name())).with_context(what)?;
                    let problem = link_problem(real, &real.join(&path), &target);
                    EntryType::Link { target, problem }
                }
                _ if file_type.is_fifo() => EntryType::Other("a named pipe"),
                _ if file_type.is_socket() => EntryType::Other("a socket"),
                _ => EntryType::Other("a device"),
            };
            let is_folder = entry_type == EntryType::Folder;
            self.entries.push(FolderEntry { path: path.clone(), entry_type });
            if is_folder {
                self.walk(real, &path, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of all files; `u64::MAX` if their sum is larger, as it can be with sparse files.
    pub fn total_bytes(&self) -> u64 {
        let sizes = self.entries.iter().map(|entry| match entry.entry_type {
            EntryType::File { size, .. } => size,
            _ => 0,
        });
        sizes.fold(0, u64::saturating_add)
    }

    /// Lists the reasons why the folder cannot be installed unchanged; empty if it can.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for FolderEntry { path, entry_type } in &self.entries {
            let path = path.display();
            match entry_type {
                EntryType::Link { target, problem: Some(problem) } => {
                    let target = target.display();
                    problems.push(format!("`{path}` is a link to `{target}`, which {problem}"));
                }
                EntryType::Other(description) => {
                    problems.push(format!("`{path}` is {description}"));
                }
                EntryType::Folder | EntryType::File { .. } | EntryType::Link { .. } => {}
            }
        }
        if self.total_bytes() > MAX_TOTAL_BYTES {
            let limit = MAX_TOTAL_BYTES >> 20;
            problems.push(format!("its files are larger than {limit} MiB in total"));
        }
        problems
    }

    /// Reads the bytes of each file, in the order of [`Self::entries`]; empty for other entries. No links are followed.
    ///
    /// # Errors
    /// A file cannot be read, or has grown since the folder was listed.
    pub fn read_files(&self) -> Result<Vec<Vec<u8>>> {
        let open = || format!("open `{}`", self.root.display());
        let root = RootDir::open(&std::fs::canonicalize(&self.root).with_context(open)?)
            .with_context(open)?;
        let bytes = |entry: &FolderEntry| {
            let EntryType::File { size, .. } = entry.entry_type else {
                return Ok(Vec::new());
            };
            let what = || format!("read `{}`", self.root.join(&entry.path).display());
            let file = root.open_for_reading(&entry.path).with_context(what)?;
            let mut bytes = Vec::new();
            file.take(size + 1).read_to_end(&mut bytes).with_context(what)?;
            if bytes.len() as u64 != size {
                bail!("`{}` changed while it was read", self.root.join(&entry.path).display());
            }
            Ok(bytes)
        };
        self.entries.iter().map(bytes).collect()
    }
}

/// Returns the reason why the link at `path` must not be installed, if there is one.
fn link_problem(root: &Path, path: &Path, target: &Path) -> Option<&'static str> {
    if target.is_absolute() {
        return Some("is outside the skill's directory");
    }
    // A path out of the folder and back in breaks when the folder is installed elsewhere.
    let Ok(below) = path.strip_prefix(root) else {
        return Some("is outside the skill's directory");
    };
    let mut depth = below.components().count().saturating_sub(1);
    for component in target.components() {
        depth = match component {
            Component::ParentDir if depth == 0 => return Some("is outside the skill's directory"),
            Component::ParentDir => depth - 1,
            Component::Normal(_) => depth + 1,
            Component::CurDir | Component::RootDir | Component::Prefix(_) => depth,
        };
    }
    match std::fs::canonicalize(path) {
        Ok(resolved) if resolved.starts_with(root) => None,
        Ok(_) => Some("is outside the skill's directory"),
        Err(_) => Some("does not exist"),
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryType, FolderEntry, MAX_TOTAL_BYTES, SkillFolder};
    use std::path::PathBuf;

    #[test]
    fn the_total_size_has_a_limit() {
        let check = |sizes: &[u64], expect: usize| {
            let entry = |(index, size): (usize, &u64)| FolderEntry {
                path: index.to_string().into(),
                entry_type: EntryType::File { size: *size, is_executable: false },
            };
            let entries = sizes.iter().enumerate().map(entry).collect();
            let folder = SkillFolder { root: PathBuf::new(), entries, skipped: Vec::new() };
            assert_eq!(folder.problems().len(), expect, "{sizes:?}");
        };
        check(&[], 0);
        check(&[MAX_TOTAL_BYTES - 1, 1], 0);
        check(&[MAX_TOTAL_BYTES, 1], 1);
        // Sparse files of the largest size: the plain sum would be 98.
        check(&[100, i64::MAX as u64, i64::MAX as u64], 1);
    }
}
