//! Installs a skill in the folder of skills, or removes it. Both are atomic: an interruption leaves the old state or
//! the new one.
//!
//! A new skill is prepared beside its destination, under a name with a leading dot, which no skill has. It is then
//! renamed.

use super::folder::{EntryType, FolderEntry, MAX_DEPTH};
use super::parse::count_hidden_chars;
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Maximum length of a name that Linux stores, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// An entry to install, with its content if it is a file.
pub type PackageEntry = (FolderEntry, Vec<u8>);

/// Checks the paths of the files of a skill that comes from elsewhere: each must lead into its folder, and to another file on every file
/// system.
///
/// # Errors
/// The reason why a path cannot be used.
pub fn check_paths<'p>(paths: impl Iterator<Item = &'p str>) -> Result<(), String> {
    // The spelling of each path and of the folders above it, by its form in lower case.
    let mut spellings: BTreeMap<String, &str> = BTreeMap::new();
    let mut files: BTreeSet<&str> = BTreeSet::new();
    let mut folders: BTreeSet<&str> = BTreeSet::new();
    for path in paths {
        let escaped_path = path.escape_debug();
        if path.starts_with('/') {
            return Err(format!("`{escaped_path}` in it is absolute"));
        }
        if path.chars().any(|letter| letter.is_control() || "\\\u{fffd}".contains(letter))
            || count_hidden_chars(path) > 0
        {
            return Err(format!(
                "`{escaped_path}` in it has characters that no file of a skill has"
            ));
        }
        let names: Vec<&str> = path.split('/').collect();
        for name in &names {
            let is_version_control =
                [".git", ".hg", ".svn"].iter().any(|other| name.eq_ignore_ascii_case(other));
            if matches!(*name, "" | "." | "..") || is_version_control {
                return Err(format!("`{escaped_path}` in it has the part `{name}`"));
            }
        }
        if names.len() > MAX_DEPTH || names.iter().any(|name| name.len() > MAX_NAME_BYTES) {
            return Err(format!("`{escaped_path}` in it is too long"));
        }
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        for part in ends.map(|end| &path[..end]) {
            let spelling = spellings.entry(part.to_lowercase()).or_insert(part);
            if *spelling != part {
                let other = spelling.escape_debug();
                let part = part.escape_debug();
                return Err(format!("`{other}` and `{part}` in it differ in case only"));
            }
            if part.len() < path.len() {
                folders.insert(part);
            }
        }
        if !files.insert(path) {
            return Err(format!("`{escaped_path}` is twice in it"));
        }
    }
    match files.intersection(&folders).next() {
        Some(path) => Err(format!("`{}` in it is a file and a folder", path.escape_debug())),
        None => Ok(()),
    }
}

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
        return Err(fail(Exit::Failed, format!("skill `{name}` already exists in the workspace"))
            .with_hint("`--force` to replace it"));
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

#[cfg(test)]
mod tests {
    use super::check_paths;

    #[test]
    fn paths_stay_in_the_folder() {
        let check = |paths: &[&str], expect: &str| {
            let result = check_paths(paths.iter().copied());
            let actual = result.err().unwrap_or_default();
            assert!(actual.contains(expect) && actual.is_empty() == expect.is_empty(), "{actual}");
        };
        check(&["SKILL.md", "a/b.sh", "a/c.sh", ".hidden"], "");
        check(&["/etc/passwd"], "absolute");
        check(&["../x"], "the part `..`");
        check(&["a/../../x"], "the part `..`");
        check(&["a//x"], "the part ``");
        check(&["a/./x"], "the part `.`");
        check(&["a/.GIT/config"], "the part `.GIT`");
        check(&["a\\..\\x"], "characters that no file");
        check(&["a\nb"], "characters that no file");
        check(&["a\u{202e}b"], "characters that no file");
        check(&["A.md", "a.md"], "differ in case only");
        check(&["Docs/x", "docs/y"], "differ in case only");
        check(&["a", "a"], "twice");
        check(&["a", "a/b"], "a file and a folder");
        check(&[&"a/".repeat(13)], "the part ``");
        check(&[&"x".repeat(256)], "too long");
    }
}
