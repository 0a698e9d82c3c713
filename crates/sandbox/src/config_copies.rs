//! Copies of git configs, which commands see and change instead of the configs: a mount of a symbolic link leads from the config
//! to its copy. Credentials in the copies are masked. After the command, a harmless change is made in the config itself. Until
//! then, git outside of the sandbox does not see it.

use super::config_mask::MaskedConfig;
use super::git_config::MAX_CONFIG_BYTES;
use super::git_repository::read_regular;
use super::new_repository::{CONFIG_NAMES, is_config};
use super::protected_state::{
    RecordedContent, SNAPSHOT_LIMIT_BYTES, SnapshotState, overwrite_file, read_state,
};
use super::spec::SandboxSpec;
use super::undone_change::{Remedy, UndoneChange};
use super::writable_roots::{TreePath, WritableRoots};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The name of a copy in its directory.
const COPY: &str = "config";
/// The name of the link to the copy.
const LINK: &str = "link";

/// The copies of a command. They are removed when this is dropped.
#[derive(Debug, Default)]
pub(super) struct ConfigCopies {
    /// The directory that contains all of them.
    base: Option<PathBuf>,
    copies: Vec<ConfigCopy>,
}

#[derive(Debug)]
struct ConfigCopy {
    /// The config.
    path: PathBuf,
    tree_path: TreePath,
    /// The open directory of the copy.
    directory: OwnedFd,
    /// The content of the config and of its copy, as last read or written.
    state: Mutex<CopyState>,
}

#[derive(Debug)]
struct CopyState {
    mode: u32,
    config: Vec<u8>,
    copy: Vec<u8>,
    masked: MaskedConfig,
}

/// Decides whether the config at a path may change from one content to another.
pub(super) type PermitsChange<'a> = dyn Fn(&Path, &[u8], &[u8]) -> bool + 'a;

/// The link to the copy of the config at `path`, in the directory `copies`. `None` if `path` is not a git config.
pub(super) fn link_of(copies: &Path, path: &Path) -> Option<PathBuf> {
    is_config(path).then(|| copies.join(directory_name(path)).join(LINK))
}

fn directory_name(path: &Path) -> String {
    nanobot_os::digest::digest(path.as_os_str().as_encoded_bytes())
}

impl ConfigCopies {
    /// Copies the configs among the `protected` paths beneath the `roots` into the directory `copies`, which must not exist.
    /// A command that can change the parent of that directory can break a copy, but not redirect a write.
    ///
    /// # Errors
    /// A copy cannot be created.
    pub(super) fn create(
        copies: &Path,
        protected: &[PathBuf],
        roots: &WritableRoots,
    ) -> io::Result<Self> {
        let mut config_copies = Self::default();
        let mut base_fd = None;
        for path in protected.iter().filter(|path| is_config(path)) {
            let Some(tree_path) = roots.locate(path) else {
                continue;
            };
            let Some((mode, config)) = file_content(roots.read(&tree_path)) else {
                continue;
            };
            let base_fd = match &base_fd {
                Some(base_fd) => base_fd,
                None => {
                    let new_fd = create_directory(CWD, copies.as_os_str())?;
                    config_copies.base = Some(copies.to_owned());
                    &*base_fd.insert(new_fd)
                }
            };
            let name = directory_name(path);
            let directory = create_directory(base_fd.as_fd(), OsStr::new(&name))?;
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&directory, COPY, flags, Mode::from_raw_mode(0o600))?;
            let masked = MaskedConfig::new(&config);
            File::from(file).write_all(&masked.text)?;
            rustix::fs::symlinkat(copies.join(&name).join(COPY), &directory, LINK)?;
            config_copies.copies.push(ConfigCopy {
                path: path.clone(),
                tree_path,
                directory,
                state: Mutex::new(CopyState { mode, copy: masked.text.clone(), config, masked }),
            });
        }
        Ok(config_copies)
    }

    /// Makes the changes of the copies in the configs, as far as `permits_change` allows. Returns the other changes.
    pub(super) fn apply(
        &self,
        roots: &WritableRoots,
        permits_change: &PermitsChange<'_>,
    ) -> Vec<UndoneChange> {
        // All of them together: a command may have filled each copy.
        let mut bytes_left = SNAPSHOT_LIMIT_BYTES;
        let copies = self.copies.iter();
        copies.filter_map(|copy| copy.apply(roots, permits_change, &mut bytes_left)).collect()
    }
}

impl Drop for ConfigCopies {
    fn drop(&mut self) {
        let Some(base) = &self.base else { return };
        for copy in &self.copies {
            for name in [COPY, LINK] {
                let _: Result<_, _> = rustix::fs::unlinkat(&copy.directory, name, AtFlags::empty());
            }
            // Files that a command has put there are removed at the end of the run, with the private directory.
            drop(std::fs::remove_dir(base.join(directory_name(&copy.path))));
        }
        drop(std::fs::remove_dir(base));
    }
}

impl ConfigCopy {
    /// Makes the change of the copy in the config. Returns it if it is not permitted, or the config has changed meanwhile.
    fn apply(
        &self,
        roots: &WritableRoots,
        permits_change: &PermitsChange<'_>,
        bytes_left: &mut u64,
    ) -> Option<UndoneChange> {
        let mut state = self.state.lock();
        let copy_state = read_state(self.directory.as_fd(), COPY.as_ref(), bytes_left);
        let (_, copy) = file_content(copy_state)?;
        if copy == state.copy {
            return None;
        }
        state.copy.clone_from(&copy);
        let copy = state.masked.restore(&copy);
        let before = roots.read(&self.tree_path).ok();
        let before = before.filter(|before| {
            matches!(before, SnapshotState::File { content, .. } if content.bytes.as_ref() == Some(&state.config))
        });
        let is_unchanged = before.is_some();
        if is_unchanged && permits_change(&self.path, &state.config, &copy) {
            let opened = roots.open_parent(&self.tree_path, false).map_err(io::Error::from);
            let written = opened
                .and_then(|(dir, name)| overwrite_file(dir.as_fd(), &name, &copy, state.mode));
            if written.is_ok() {
                state.config = copy;
                return None;
            }
        }
        let content = RecordedContent::of_bytes(copy);
        let file = SnapshotState::File { mode: state.mode, content };
        Some(UndoneChange {
            path: self.path.clone(),
            remedy: Ok(Remedy::Restored(None)),
            withheld: before.and_then(|before| roots.withheld(&self.tree_path, before, file)),
        })
    }
}

/// The contents of a config before and after a command.
pub(super) struct ConfigChange<'s> {
    pub(super) before: &'s [u8],
    pub(super) after: &'s [u8],
}

impl<'s> ConfigChange<'s> {
    /// The change of the config at `path`; `None` if it is not a config, or if more than its content has changed. The config of a
    /// linked worktree may be missing, as if it were empty.
    pub(super) fn new(
        path: &Path,
        before: &'s SnapshotState,
        after: &'s SnapshotState,
    ) -> Option<Self> {
        let [is_config, is_worktree_config] = CONFIG_NAMES.map(|name| path.ends_with(name));
        let mode_and_content = |state: &'s SnapshotState| match state {
            SnapshotState::File { mode, content: RecordedContent { bytes: Some(bytes), .. } } => {
                Some((Some(*mode), &bytes[..]))
            }
            SnapshotState::Missing if is_worktree_config => Some((None, &b""[..])),
            _ => None,
        };
        let (old_mode, before) = mode_and_content(before)?;
        let (new_mode, after) = mode_and_content(after)?;
        let has_same_mode = old_mode.zip(new_mode).is_none_or(|(old, new)| old == new);
        ((is_config || is_worktree_config) && has_same_mode).then_some(Self { before, after })
    }
}

impl SandboxSpec {
    /// Shows commands the `configs` without their credentials: mounts cover them with masked copies in `directory`. Where the system allows
    /// no mounts, commands see the credentials.
    ///
    /// # Errors
    /// A copy cannot be created.
    pub fn mask_configs(&mut self, configs: &[PathBuf], directory: &Path) -> io::Result<()> {
        for path in configs {
            let masked =
                MaskedConfig::new(&read_regular(path, MAX_CONFIG_BYTES).unwrap_or_default());
            if masked.has_secrets() {
                let copy = directory.join(format!("git-config-{}", directory_name(path)));
                std::fs::write(&copy, &masked.text)?;
                self.masked_configs.insert(path.clone(), copy);
            }
        }
        Ok(())
    }
}

/// Creates a directory that only this user can enter, and opens it.
fn create_directory(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
}

/// The mode and the content of a regular file.
fn file_content(state: io::Result<SnapshotState>) -> Option<(u32, Vec<u8>)> {
    match state.ok()? {
        SnapshotState::File { mode, content: RecordedContent { bytes: Some(bytes), .. } } => {
            Some((mode, bytes))
        }
        _ => None,
    }
}
