//! The files that may contain the subject, and what happens to each.

use super::finding::Findings;
use super::search::Search;
use crate::ops::owned_path::{Ownership, documented_path, ownership};
use nanobot_channel::inbox::ChannelInbox;
use nanobot_os::durable_file::is_temporary;
use nanobot_os::paths::Erasure;
use nanobot_store::memory;
use std::collections::{BTreeSet, HashSet};
use std::fs::{DirEntry, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest lock file: it names a process.
const MAX_LOCK_BYTES: u64 = 200;

const NOT_OURS: Erasure = Erasure::Keep("not written by nanobot");

impl Search<'_> {
    /// All files that may contain the subject. What cannot be listed is added to `findings`.
    pub(super) fn list_files(&self, findings: &mut Findings) -> BTreeSet<PathBuf> {
        // By the names under which we use them, before links lead to them under others.
        let sessions = self.sessions.directories().map(Path::to_owned);
        let memory = self.workspace.join("memory");
        let roots = sessions.chain([memory, self.workspace.clone(), self.ctx.paths.root.clone()]);
        let identities = self.files.iter().filter_map(|file| std::fs::metadata(file).ok());
        let mut list = FileList {
            files: self.files.iter().cloned().collect(),
            visited: identities.map(|metadata| identity(&metadata)).collect(),
            directories: Vec::new(),
        };
        for root in roots {
            list.directories.push(root);
            while let Some(directory) = list.directories.pop() {
                let entries = match std::fs::metadata(&directory) {
                    Ok(metadata) if !list.visited.insert(identity(&metadata)) => continue,
                    Ok(_) => std::fs::read_dir(&directory),
                    Err(error) => Err(error),
                };
                let result = entries.and_then(|mut entries| {
                    entries.try_for_each(|entry| {
                        self.list_entry(&entry?, &mut list, findings);
                        Ok(())
                    })
                });
                if let Err(error) = result {
                    findings.add_unsearched(&directory, &error);
                }
            }
        }
        list.files
    }

    fn list_entry(&self, entry: &DirEntry, list: &mut FileList, findings: &mut Findings) {
        let path = entry.path();
        // Of a link, this is the target.
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) => {
                // A link to nothing, or to itself, has no text.
                if !path.is_symlink() || error.kind() == ErrorKind::PermissionDenied {
                    findings.add_unsearched(&path, &error);
                }
                return;
            }
        };
        if metadata.is_dir() {
            if !path.is_symlink() || self.is_followed(&path) {
                list.directories.push(path);
            } else if !list.visited.contains(&identity(&metadata)) {
                findings.keep(&path, "a link to a directory, which was not searched");
            }
        } else if metadata.is_file() && !is_lock_file(&path, &metadata) {
            // The user may have named it.
            if !list.visited.contains(&identity(&metadata)) {
                list.files.insert(path);
            }
        }
    }

    /// True for a link to a directory of this program's own data.
    fn is_followed(&self, path: &Path) -> bool {
        let relative = self.relative(path);
        relative.is_some_and(|relative| ownership(&relative, true) == Ownership::HasOwn)
            || !matches!(self.erasure(path).erasure, Erasure::Keep(_))
    }

    /// The path of a file of this program as the table of documented paths has it.
    fn relative(&self, path: &Path) -> Option<PathBuf> {
        match (path.strip_prefix(&self.workspace), path.strip_prefix(&self.ctx.paths.root)) {
            (Ok(relative), _) => Some(Path::new("workspace").join(relative)),
            (_, Ok(relative)) => Some(relative.to_owned()),
            _ => None,
        }
    }

    /// The treatment of the file at `path`.
    pub(super) fn erasure(&self, path: &Path) -> Treatment {
        let of_file = |erasure| Treatment { erasure, path: path.to_owned() };
        if self.files.iter().any(|file| file == path) || self.is_session_file(path) {
            return of_file(Erasure::Overwrite);
        }
        let Some(relative) = self.relative(path) else {
            return of_file(NOT_OURS);
        };
        if is_temporary(path) && is_own_place(&relative) {
            return of_file(Erasure::RemoveFile);
        }
        let is_note = path.extension().is_some_and(|kind| kind == "md" || kind == "jsonl");
        let parent = relative.parent().unwrap_or(Path::new(""));
        let is_in_memory = parent == Path::new("workspace/memory");
        // An unfinished change of the memory would bring its text back.
        if is_note && (is_in_memory || parent == Path::new("workspace"))
            || is_in_memory && path.ends_with(memory::PLAN_FILE)
        {
            return of_file(Erasure::Overwrite);
        }
        match documented_path(&relative) {
            Some(location) => {
                let above = relative.components().count() - location.depth;
                let documented = path.ancestors().nth(above).unwrap_or(path);
                Treatment { erasure: location.documented.erasure, path: documented.to_owned() }
            }
            None => of_file(NOT_OURS),
        }
    }

    /// True for a session and its side files, in a directory of any release.
    pub(super) fn is_session_file(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_below = |directory: &Path| path.starts_with(directory);
        name.contains(".jsonl")
            && !name.ends_with(".lock")
            && self.sessions.directories().any(is_below)
    }

    /// True for a file in which lines of sessions and senders are looked for: a note of the workspace is a person's text.
    pub(super) fn has_members(&self, path: &Path) -> bool {
        path.parent() != Some(&self.workspace)
    }

    /// The channel whose data the file at `path` is.
    pub(super) fn channel_of(&self, path: &Path) -> Option<String> {
        let relative = path.strip_prefix(self.ctx.paths.channels()).ok()?;
        Some(relative.iter().next()?.to_string_lossy().into_owned())
    }

    pub(super) fn is_channel_inbox(&self, path: &Path) -> bool {
        self.channel_of(path).is_some() && path.ends_with(ChannelInbox::FILE_NAME)
    }
}

/// The treatment of a file.
pub(super) struct Treatment {
    pub(super) erasure: Erasure,
    /// The file or the directory that is treated so.
    pub(super) path: PathBuf,
}

struct FileList {
    files: BTreeSet<PathBuf>,
    /// The directories that are to be listed.
    directories: Vec<PathBuf>,
    /// The directories that are listed, and the files that the user named: device and inode.
    visited: HashSet<(u64, u64)>,
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn is_lock_file(path: &Path, metadata: &Metadata) -> bool {
    (path.extension().is_some_and(|kind| kind == "lock") || path.ends_with("lock"))
        && metadata.len() <= MAX_LOCK_BYTES
}

/// True for a place, relative to our directory, in which no other program writes.
fn is_own_place(relative: &Path) -> bool {
    let starts_with = |names: &[&str]| names.iter().any(|name| relative.starts_with(name));
    if relative.starts_with("workspace") {
        relative.components().count() == 2
            || starts_with(&["workspace/sessions", "workspace/memory", "workspace/cron"])
    } else {
        !starts_with(&["mcp/state", "worktrees"])
    }
}
