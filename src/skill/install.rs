//! A skill put into the folder of skills, or taken out of it: wholly or not at all, however the run ends.
//!
//! What is made stands beside its place under a name with a dot before it, which no skill has, until it is renamed.

use super::folder::{Entry, Kind};
use crate::error::{Exit, fail_hint};
use crate::sys::secret::random_hex;
use crate::sys::store;
use anyhow::{Context, Result};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What is to be put there: what it is, and its bytes where it is a file.
pub type Piece = (Entry, Vec<u8>);

/// Put the skill `name` into the folder of skills `dir`. Its files are for their owner alone; what could be run still can be.
///
/// # Errors
/// There is one already, and `instead` does not say that it is to be replaced; the disk.
pub fn put(dir: &Path, name: &str, pieces: &[Piece], instead: bool) -> Result<PathBuf> {
    store::create_dir(dir)?;
    let place = dir.join(name);
    let is_taken = place.symlink_metadata().is_ok();
    if is_taken && !instead {
        return Err(fail_hint(
            Exit::Failed,
            format!("there is a skill `{name}` in the workspace already"),
            "`--force` to replace it",
        ));
    }
    let made = tempfile::Builder::new()
        .prefix(&format!(".{name}.new-"))
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(dir)
        .with_context(|| format!("make a folder in `{}`", dir.display()))?;
    for (entry, bytes) in pieces {
        let path = made.path().join(&entry.path);
        write(&path, &entry.kind, bytes).with_context(|| format!("write `{}`", path.display()))?;
    }
    let old = is_taken.then(|| aside(dir, name)).transpose()?;
    // Renamed in its turn where that fails: the old one is never lost.
    if let Err(error) = store::rename_new(made.path(), &place) {
        if let Some(old) = &old {
            store::rename_new(old, &place)?;
        }
        return Err(error);
    }
    // It is not there any more to be removed.
    drop(made.keep());
    if let Some(old) = old {
        erase(&old)?;
    }
    Ok(place)
}

/// Take the skill `name` out of the folder of skills `dir`. Of a link, only the link.
pub fn remove(dir: &Path, name: &str) -> Result<()> {
    erase(&aside(dir, name)?)
}

/// Give the skill a name that none has.
fn aside(dir: &Path, name: &str) -> Result<PathBuf> {
    let aside = dir.join(format!(".{name}.old-{}", random_hex(4)));
    store::rename_new(&dir.join(name), &aside)?;
    Ok(aside)
}

fn erase(path: &Path) -> Result<()> {
    let is_dir = path.symlink_metadata().is_ok_and(|about| about.is_dir());
    let erased = match is_dir {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    };
    erased.with_context(|| format!("remove `{}`", path.display()))
}

fn write(path: &Path, kind: &Kind, bytes: &[u8]) -> std::io::Result<()> {
    let folder = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    match kind {
        Kind::Folder => folder(path),
        Kind::File { is_executable, .. } => {
            path.parent().map_or(Ok(()), folder)?;
            let mode = if *is_executable { 0o700 } else { 0o600 };
            let mut file: File = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(path)?;
            file.write_all(bytes)?;
            file.sync_all()
        }
        Kind::Link { target, .. } => symlink(target, path),
        Kind::Other(_) => Err(std::io::Error::other("it is neither a file nor a folder")),
    }
}
