//! The directory that a command starts in.

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The directory that a command starts in: its path and its identity, since its path may lead elsewhere when the command
/// starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartDirectory {
    #[serde(with = "nanobot_os::wire_paths::path")]
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl StartDirectory {
    /// Finds the directory at `path`, which may be the path of an open descriptor in `/proc`.
    ///
    /// # Errors
    /// The directory cannot be opened, or its path cannot be read.
    pub fn find(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&directory)?;
        Ok(Self {
            path: std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))?,
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory at its path the working directory of this process, if a root has a directory of its own there.
    ///
    /// # Errors
    /// The directory is not accessible.
    pub(super) fn enter_created(&self) -> io::Result<()> {
        std::env::set_current_dir(&self.path)
    }

    /// Makes it the working directory of this process.
    ///
    /// # Errors
    /// The directory is not accessible, or another directory is at its path.
    pub fn enter(&self) -> io::Result<()> {
        std::env::set_current_dir(&self.path)?;
        let stat = rustix::fs::stat(".")?;
        if (stat.st_dev, stat.st_ino) == (self.device, self.inode) {
            Ok(())
        } else {
            Err(io::Error::other("the working directory was replaced"))
        }
    }
}
