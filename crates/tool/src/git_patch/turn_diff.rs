//! The difference between the state of a path before a turn and its current state, in the format of git.

use super::format::format_change;
use super::{FileKind, GitFile};
use crate::undo::journal::{RestorableState, UndoTurn, copy_path};
use crate::undo::restore::{find_obstacle, read_file, read_state, relative_to_root};
use anyhow::{Context, Result};
use nanobot_os::durable_file;
use nanobot_os::rooted_fs::RootDir;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Compares the changed path of `turn` with this index with its state before the turn. `name` is its name in the text. A change
/// that git has no form for, such as the mode of a directory, is one line.
///
/// # Errors
/// A file cannot be read.
pub fn format_path_diff(turn: &UndoTurn, index: usize, name: &Path) -> Result<String> {
    let changed_path = &turn.changed_paths[index];
    let root = RootDir::open(Path::new("/")).context("open `/`")?;
    let before = &changed_path.before;
    let now = match read_state(&root, &changed_path.path) {
        Ok(state) => state,
        Err(error) => {
            let Some(obstacle) = find_obstacle(&error) else {
                return Err(error)
                    .with_context(|| format!("read `{}`", changed_path.path.display()));
            };
            return Ok(format!("{}: {obstacle}\n", name.display()));
        }
    };
    let old_file = git_file(before, || {
        Ok(durable_file::read(&copy_path(&turn.dir, index))?.unwrap_or_default())
    })?;
    let new_file = git_file(&now, || Ok(read_file(&root, relative_to_root(&changed_path.path))?))?;
    let text = format_change(name, old_file.as_ref(), new_file.as_ref(), None)?;
    if text.is_empty() && *before != now {
        let [before, now] = [before, &now].map(describe_state);
        return Ok(format!("{}: {before}, now {now}\n", name.display()));
    }
    Ok(text)
}

/// The file that git would store for this state, whose content is that of `read`; `None` if it is no file.
fn git_file(
    state: &RestorableState,
    read: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<Option<GitFile>> {
    Ok(match state {
        RestorableState::Nothing | RestorableState::Directory { .. } => None,
        RestorableState::Link { target } => {
            Some(GitFile { kind: FileKind::Link, bytes: target.as_os_str().as_bytes().to_vec() })
        }
        RestorableState::File { mode, .. } => {
            let is_executable = mode & 0o100 != 0;
            let kind = if is_executable { FileKind::Executable } else { FileKind::Regular };
            Some(GitFile { kind, bytes: read()? })
        }
    })
}

fn describe_state(state: &RestorableState) -> String {
    match state {
        RestorableState::Nothing => "nothing".to_owned(),
        RestorableState::File { mode, .. } => format!("a file with mode {mode:04o}"),
        RestorableState::Directory { mode } => format!("a directory with mode {mode:04o}"),
        RestorableState::Link { .. } => "a link".to_owned(),
    }
}
