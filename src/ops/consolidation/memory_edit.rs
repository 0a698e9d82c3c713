//! Changes of the memory by the user: an edited text, or an earlier version.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_store::memory::{
    LockedMemory, Memory, MemoryUpdate, MessageRange, UpdateResult, Version, VersionCause,
};
use nanobot_store::session::{self, consolidation};
use std::time::Duration;

/// Timeout of the lock for an edit. A consolidation holds the lock while it asks a model.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// The result of [`undo`], with the number of the version.
pub(crate) enum UndoResult {
    Restored(u64),
    /// The memory already had the text of that version.
    Unchanged(u64),
}

/// The memory of the configured workspace.
pub(crate) fn open_memory(ctx: &Context) -> Result<Memory> {
    let settings = ctx.settings()?;
    Ok(Memory::new(&settings.workspace, &ctx.clock))
}

/// Locks the memory, and finishes an interrupted consolidation.
pub(crate) fn lock(
    ctx: &Context,
    memory: &Memory,
    sessions: &session::SessionStore,
    wait: Duration,
) -> Result<LockedMemory> {
    let mut advance = |range: MessageRange<'_>| {
        consolidation::advance_pointer(sessions, range.session, range.from, range.to).map(drop)
    };
    let mut busy = || ctx.notice("waiting for another run that is changing the memory");
    memory.lock(wait, &mut busy, &mut advance)
}

/// Records the memory as a version if it was changed outside of this program.
///
/// # Errors
/// The memory cannot be written. If another run is changing it, that run has recorded it.
pub(crate) fn record_outside_change(ctx: &Context, memory: &Memory) -> Result<()> {
    if memory.is_recorded(&memory.read()?.unwrap_or_default())? {
        return Ok(());
    }
    let sessions = ctx.session_store(&ctx.settings()?)?;
    match lock(ctx, memory, &sessions, Duration::ZERO) {
        Err(error) if exit_for(&error) == Exit::TryAgain => Ok(()),
        locked_memory => locked_memory?.read_and_record().map(drop),
    }
}

/// The text of version `id`.
///
/// # Errors
/// Status 66 if there is no such version.
pub(crate) fn version_text(memory: &Memory, id: u64) -> Result<Vec<u8>> {
    let is_listed = memory.versions()?.iter().any(|version| version.id == id);
    let text = if is_listed { memory.read_version(id)? } else { None };
    text.ok_or_else(|| {
        fail(Exit::NoInput, format!("there is no version {id} of the memory"))
            .with_hint("nanobot memory log")
    })
}

/// The id of the version before the last change of the memory, whose text is `text`: the last version if the memory was
/// edited since, otherwise the one before it.
pub(crate) fn version_before_last_change(memory: &Memory, text: &[u8]) -> Result<Option<u64>> {
    let versions = memory.versions()?;
    let mut in_force = versions.iter().rev().filter(|version| version.aside_reason.is_none());
    let Some(last) = in_force.next() else {
        return Ok(None);
    };
    let is_recorded = memory.read_version(last.id)?.as_deref() == Some(text);
    let version = if is_recorded { in_force.next() } else { Some(last) };
    Ok(version.map(|version| version.id))
}

/// Restores version `id`, or the one before the current one.
pub(crate) fn undo(ctx: &Context, memory: &Memory, id: Option<u64>) -> Result<UndoResult> {
    let sessions = ctx.session_store(&ctx.settings()?)?;
    let locked_memory = lock(ctx, memory, &sessions, LOCK_TIMEOUT)?;
    let base_text = locked_memory.read_and_record()?;
    let id = match id {
        Some(id) => id,
        None => locked_memory.previous()?.map(|version| version.id).ok_or_else(|| {
            fail(Exit::NoInput, "the memory has no earlier version").with_hint("nanobot memory log")
        })?,
    };
    let versions = memory.versions()?;
    let version = versions.iter().find(|version| version.id == id);
    // A version made by an undo is treated as the version that it restored.
    let restored_id = version.map_or(id, Version::position);
    let text = version_text(memory, id)?;
    if text == base_text {
        return Ok(UndoResult::Unchanged(restored_id));
    }
    let result = replace(&locked_memory, &base_text, text, VersionCause::Undo, Some(restored_id))?;
    require_applied(memory, result)?;
    Ok(UndoResult::Restored(restored_id))
}

/// Replaces the text of the memory, unless it has changed since `base_text` was read.
///
/// # Errors
/// Status 77 if the memory is write-protected.
pub(crate) fn replace(
    locked_memory: &LockedMemory,
    base_text: &[u8],
    text: Vec<u8>,
    cause: VersionCause,
    restored_id: Option<u64>,
) -> Result<UpdateResult> {
    if locked_memory.is_read_only() {
        return Err(fail(Exit::Refused, "MEMORY.md is read-only")
            .with_hint("`chmod u+w MEMORY.md`, to allow changes"));
    }
    let update =
        MemoryUpdate { memory: Some(text), restores: restored_id, ..MemoryUpdate::default() };
    locked_memory.apply(base_text, cause, update, &mut |_| Ok(()))
}

/// Checks that the text is now the memory.
///
/// # Errors
/// The memory was changed in between, and the text was stored aside as a version.
pub(crate) fn require_applied(memory: &Memory, result: UpdateResult) -> Result<()> {
    if result == UpdateResult::Applied {
        return Ok(());
    }
    let id = memory.versions()?.last().map_or(0, |version| version.id);
    let cause =
        format!("the memory was changed in the meantime; your text is stored as version {id}");
    Err(fail(Exit::TryAgain, cause).with_hint(format!("nanobot memory diff {id}")))
}
