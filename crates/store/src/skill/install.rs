//! Installs a skill in the folder of skills, or removes it. Both are atomic: an interruption leaves the old state or
//! the new one.
//!
//! A new skill is prepared beside its destination, under a name with a leading dot, which no skill has. It is then
//! renamed.

use super::folder::{EntryType, FolderEntry};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// An entry to install, with its content if it is a file.
pub type PackageEntry = (FolderEntry, Vec<u8>);

/// Installs the skill `name` in the folder of skills `dir`. Only the owner can access the files; executables stay
/// executable.
///
/// # Errors
/// The skill exists and `replace` is false, or the files cannot be written.
pub fn install(dir: &Path, name: &str, entries: &[PackageEntry], replace: bool) -> Result<PathBuf> {
    durable_file::create_dir(dir)?;
    let destination = dir.join(name);
    let is_taken = destination.symlink_metadata().is_ok();
    if is_taken && !replace {
        return Err(fail_with_hint(
            Exit::Failed,
            format!("skill `{name}` already exists in the workspace"),
            "`--force` to replace it",
        ));
    }
    let temp_dir = tempfile::Builder::new()
        .prefix(&format!(".{name}.new-"))
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(dir)
        .with_context(|| format!("create a directory in `{}`", dir.display()))?;
    for (entry, bytes) in entries {
        let path = temp_dir.path().join(&entry.path);
        write_entry(&path, &entry.entry_type, bytes)
            .with_context(|| format!("write `{}`", path.display()))?;
    }
    let old = is_taken.then(|| move_aside(dir, name)).transpose()?;
    // If this fails, the old skill is renamed back, and so never lost.
    if let Err(error) = durable_file::rename_noreplace(temp_dir.path(), &destination) {
        if let Some(old) = &old {
            durable_file::rename_noreplace(old, &destination)?;
        }
        return Err(error);
    }
    // The temporary folder was renamed, and must not be removed on drop.
    drop(temp_dir.keep());
    if let Some(old) = old {
        remove_path(&old)?;
    }
    Ok(destination)
}

/// Removes the skill `name` from the folder of skills `dir`. If it is a link, only the link is removed.
pub fn remove(dir: &Path, name: &str) -> Result<()> {
    remove_path(&move_aside(dir, name)?)
}

/// Renames the skill to a unique name that no skill has.
fn move_aside(dir: &Path, name: &str) -> Result<PathBuf> {
    let aside = dir.join(format!(".{name}.old-{}", random_hex(4)));
    durable_file::rename_noreplace(&dir.join(name), &aside)?;
    Ok(aside)
}

fn remove_path(path: &Path) -> Result<()> {
    let is_dir = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    let removed = if is_dir { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    removed.with_context(|| format!("remove `{}`", path.display()))
}

fn write_entry(path: &Path, entry_type: &EntryType, bytes: &[u8]) -> std::io::Result<()> {
    let create_dir = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    match entry_type {
        EntryType::Folder => create_dir(path),
        EntryType::File { is_executable, .. } => {
            path.parent().map_or(Ok(()), create_dir)?;
            let mode = if *is_executable { 0o700 } else { 0o600 };
            let mut file: File =
                OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
            file.write_all(bytes)?;
            file.sync_all()
        }
        EntryType::Link { target, .. } => symlink(target, path),
        EntryType::Other(_) => Err(std::io::Error::other("not a file or directory")),
    }
}
