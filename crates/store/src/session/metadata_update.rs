//! Changes of a session's metadata without the lock of a turn: by an appended line, which a running turn detects.

use super::files;
use super::integrity::{MAX_ATTEMPTS, is_newer, refuse_newer, repair_end, stat};
use super::layout::{SessionStore, SyncMode};
use super::line::{self, ClosingLine, MetadataLine};
use super::log::LogFileState;
use super::tail_reader::{self, MessageWindow};
use anyhow::Result;
use nanobot_os::durable_file;
use nanobot_os::file_lock;

/// Gives the session `key` a title, or removes it if `title` is empty.
///
/// # Errors
/// Status 66 if there is no session `key`; 78 if a newer release wrote it.
pub fn set_title(store: &SessionStore, key: &str, title: &str) -> Result<()> {
    files::open(store, key)?;
    update_metadata(store, key, &mut |metadata, _| {
        let is_new = metadata.session_metadata().title != title;
        metadata.update_session_metadata(|session_metadata| {
            title.clone_into(&mut session_metadata.title);
        });
        is_new
    })
    .map(drop)
}

/// Gives the session `key` a title, unless it has one or is gone.
///
/// # Errors
/// Status 78 if a newer release wrote it.
pub fn set_missing_title(store: &SessionStore, key: &str, title: &str) -> Result<()> {
    update_metadata(store, key, &mut |metadata, _| {
        let is_missing = metadata.title().is_none();
        if is_missing {
            metadata.update_session_metadata(|session_metadata| {
                title.clone_into(&mut session_metadata.title);
            });
        }
        is_missing
    })
    .map(drop)
}

/// Adds `note`, about an undone turn, to the next message of the session `key`. False if there is no such
/// session.
///
/// # Errors
/// Status 78 if a newer release wrote the session.
pub fn add_undo_note(store: &SessionStore, key: &str, note: &str) -> Result<bool> {
    update_metadata(store, key, &mut |metadata, _| {
        metadata.update_session_metadata(|session_metadata| {
            session_metadata.undo_notes.push(note.to_owned());
        });
        true
    })
}

/// Appends a metadata line after `change` has updated it. `change` receives the number of messages and returns false if
/// there is nothing to write. It is called again if another program has written meanwhile.
///
/// # Errors
/// Status 78 if a newer release wrote the session.
pub(super) fn update_metadata(
    store: &SessionStore,
    key: &str,
    change: &mut dyn FnMut(&mut MetadataLine, usize) -> bool,
) -> Result<bool> {
    for _ in 0..MAX_ATTEMPTS {
        let path = store.find_path(key)?;
        let Some(file) = durable_file::open_existing_append(&path)? else {
            return Ok(false);
        };
        refuse_newer(is_newer(&path)?, &path)?;
        let guard = store.open_append_lock(&path);
        let guard = guard.as_ref().unwrap_or(&file);
        repair_end(&file, guard, &path, &store.clock, &mut |_| {})?;
        let state = LogFileState::from(&stat(&file, &path)?);
        let tail = tail_reader::read(&file, &path, state.size, MessageWindow::default())?;
        let mut metadata = tail.metadata;
        if !change(&mut metadata, tail.count) {
            return Ok(false);
        }
        metadata.key.get_or_insert_with(|| key.to_owned());
        // Without these times, the Python program cannot read the session.
        for time in [&mut metadata.created_at, &mut metadata.updated_at] {
            time.get_or_insert_with(|| store.clock.local_timestamp());
        }
        metadata.message_count = Some(tail.count);
        metadata.offset = Some(state.size);
        let closing = ClosingLine {
            turn: "",
            // The mark of an interrupted turn is kept.
            ending: if metadata.is_mid_turn || !tail.is_closed {
                line::OPEN
            } else {
                "consolidation"
            },
            summary: None,
        };
        let line = line::format_metadata(&metadata, Some(&closing));
        let is_written = file_lock::with_lock(guard, &path, || {
            let is_unchanged = std::fs::metadata(&path)
                .is_ok_and(|metadata| LogFileState::from(&metadata) == state);
            if is_unchanged {
                durable_file::append_to(&file, &path, state.size, line.as_bytes())?;
            }
            Ok(is_unchanged)
        })?;
        if is_written {
            if store.sync == SyncMode::EachTurn {
                durable_file::sync(&file, &path)?;
            }
            return Ok(true);
        }
    }
    // Another program keeps writing; this can be done later.
    Ok(false)
}
