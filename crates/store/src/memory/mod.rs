//! Long-term memory: lasting facts (MEMORY.md), the history (HISTORY.md), and all versions of the facts.
//!
//! Changes require the memory's lock. A change is committed by one file, the plan: before it is written nothing has
//! changed; afterwards every step will be done, if necessary by the next process that takes the lock. So a run killed
//! at any point leaves either the old or the new state.

use crate::embedding_index;
use anyhow::{Context, Result};
use history::MemoryHistory;
use last_run::{ConsolidationOutcome, LastRun};
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::file_lock::FileLock;
use request::CHARS_PER_TOKEN;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use version::VersionStore;

pub mod history;
pub mod last_run;
pub mod reply_parser;
pub mod request;
pub mod search;
mod version;

pub use version::{Version, VersionCause};

/// A memory of fewer characters is a list of a few facts, most of which may become outdated at once.
const MIN_HALVED_CHARS: usize = 400;
/// The divisors of the characters of a memory, for those that must remain: of most memories, of one of a few facts, and of one
/// that a request has reduced to its budget.
const REMAINDER_DIVISOR: usize = 2;
const FEW_FACTS_DIVISOR: usize = 8;
const REDUCED_DIVISOR: usize = 5;
/// Name of the plan file, which is written before anything is changed.
pub const PLAN_FILE: &str = ".pending.json";
const PLAN_FORMAT_VERSION: u32 = 1;
/// The reason of a version that is stored aside because the text that it is based on is no longer current.
const CHANGED_MEANWHILE: &str = "the memory was changed meanwhile";
/// The directory of versions.
const VERSIONS_DIR: &str = ".versions";

/// Names in the memory directory that only this module may change: any process carries out a plan that it finds, and
/// the versions are needed to undo changes.
pub const PROTECTED_NAMES: &[&str] =
    &[VERSIONS_DIR, PLAN_FILE, ".lock", ".cursor", embedding_index::FILE_NAME];

/// The memory of a workspace.
#[derive(Clone, Debug)]
pub struct Memory {
    workspace: PathBuf,
    /// The directory of its files.
    dir: PathBuf,
    clock: Clock,
}

/// A change to the memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryUpdate<'a> {
    /// The messages that the change consolidates.
    pub range: Option<MessageRange<'a>>,
    /// Entries to append to the history.
    pub entries: Vec<String>,
    /// The new text; `None` leaves it unchanged.
    pub memory: Option<Vec<u8>>,
    /// The reason to store the new text aside only.
    pub aside_reason: Option<String>,
    /// Untrusted content in the conversation from which the new text was made.
    pub untrusted: Option<String>,
    /// The version that the new text restores.
    pub restores: Option<u64>,
    /// The error to report, if no model made this change.
    pub error: Option<String>,
}

/// A range of the messages of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRange<'a> {
    /// The session's key.
    pub session: &'a str,
    pub from: usize,
    /// Index of the first message after the range.
    pub to: usize,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateResult {
    /// The new text, if there is one, is the memory.
    Applied,
    /// The new text is stored aside: there is a reason for it, or another program has changed the memory meanwhile.
    StoredAside,
}

/// The plan, in the format of its file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct UpdatePlan {
    v: u32,
    /// Session key, start and end.
    #[serde(rename = "piece")]
    range: Option<(String, usize, usize)>,
    entries: Vec<String>,
    /// Size of the history file in bytes, before the change.
    #[serde(rename = "history")]
    history_bytes: u64,
    /// Local time.
    #[serde(rename = "stamp")]
    time: String,
    #[serde(default, rename = "trouble", skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The version in force.
    base: Option<u64>,
    /// The staged version.
    version: Option<Version>,
}

impl Memory {
    /// The memory of `workspace`. Reads and creates nothing.
    pub fn new(workspace: &Path, clock: &Clock) -> Self {
        Self {
            workspace: workspace.to_owned(),
            dir: workspace.join("memory"),
            clock: clock.clone(),
        }
    }

    /// The path of the memory text.
    pub fn path(&self) -> PathBuf {
        file_path(&self.workspace)
    }

    /// Reads the memory text; `None` if there is none.
    pub fn read(&self) -> Result<Option<Vec<u8>>> {
        durable_file::read(&self.path())
    }

    /// The memory's files: the text, and the history in both forms.
    pub fn files(&self) -> Vec<PathBuf> {
        [self.path()].into_iter().chain(self.history_files()).collect()
    }

    /// The path of the index by meaning.
    pub fn embeddings_path(&self) -> PathBuf {
        self.dir.join(embedding_index::FILE_NAME)
    }

    /// The files of the history, in both forms.
    pub fn history_files(&self) -> [PathBuf; 2] {
        ["HISTORY.md", "history.jsonl"].map(|name| self.dir.join(name))
    }

    /// Lists all versions, oldest first.
    pub fn versions(&self) -> Result<Vec<Version>> {
        self.version_store().list()
    }

    /// The version in force. If untrusted content is in its origin, the label stays until the user edits or accepts the
    /// memory, or restores an earlier version.
    pub fn current_version(&self) -> Result<Option<Version>> {
        Ok(version::current(&self.versions()?).cloned())
    }

    /// True if `text` is the text of the version in force, or there is neither a version nor a text.
    pub fn is_recorded(&self, text: &[u8]) -> Result<bool> {
        Ok(match self.current_version()? {
            Some(version) => self.read_version(version.id)?.as_deref() == Some(text),
            None => text.is_empty(),
        })
    }

    /// Reads the text of a version; `None` if it is not stored.
    pub fn read_version(&self, id: u64) -> Result<Option<Vec<u8>>> {
        self.version_store().read_text(id)
    }

    /// True if a run was killed during a change; the next process that takes the lock will complete it.
    pub fn is_unfinished(&self) -> bool {
        self.dir.join(PLAN_FILE).exists()
    }

    /// True if the user has write-protected the memory.
    pub fn is_read_only(&self) -> bool {
        std::fs::metadata(self.path()).is_ok_and(|metadata| metadata.permissions().readonly())
    }

    /// Succeeds if the memory and its versions can be written. Creates nothing.
    pub fn check_writable(&self) -> Result<()> {
        let dirs = [self.dir.join(VERSIONS_DIR), self.dir.clone()];
        dirs.iter().try_for_each(|dir| durable_file::check_can_create(dir))
    }

    /// The last error, with its time, if no consolidation has succeeded since.
    pub fn last_error(&self) -> Result<Option<String>> {
        let text = durable_file::read(&self.error_path())?;
        Ok(text.map(|text| String::from_utf8_lossy(&text).trim().to_owned()))
    }

    /// Records the reason why a background consolidation failed.
    pub fn record_error(&self, message: &str) -> Result<()> {
        durable_file::create_dir(&self.dir.join(VERSIONS_DIR))?;
        let now = self.clock.now().strftime("%Y-%m-%d %H:%M").to_string();
        durable_file::replace(&self.error_path(), format!("{now} {message}\n").as_bytes())
    }

    /// Forgets the last error. Returns it.
    pub fn forget_error(&self) -> Result<Option<String>> {
        let message = self.last_error()?;
        if message.is_some() {
            durable_file::remove(&self.error_path())?;
        }
        Ok(message)
    }

    /// Returns the last consolidation. If there is no record, which early releases did not write, derives it from the
    /// versions.
    pub fn last_run(&self) -> Result<Option<LastRun>> {
        if let Some(last) = LastRun::read(&self.dir.join(VERSIONS_DIR))? {
            return Ok(Some(last));
        }
        let mut versions = self.versions()?.into_iter();
        let last = versions.rfind(|version| version.cause == VersionCause::Consolidation);
        Ok(last.map(|version| LastRun {
            time: version.time,
            session: version.session.unwrap_or_default(),
            outcome: match version.aside_reason {
                Some(_) => ConsolidationOutcome::Aside,
                None => ConsolidationOutcome::New,
            },
        }))
    }

    fn record_run(&self, session: &str, outcome: ConsolidationOutcome) -> Result<()> {
        let last = LastRun {
            time: self.clock.now().strftime("%Y-%m-%d %H:%M:%S").to_string(),
            session: session.to_owned(),
            outcome,
        };
        last.write(&self.dir.join(VERSIONS_DIR))
    }

    /// Takes the lock, waiting up to `wait`, and completes an unfinished plan; `advance` moves the pointer of a
    /// session.
    ///
    /// # Errors
    /// Status 75 if another run holds the lock.
    pub fn lock(
        &self,
        wait: Duration,
        busy: &mut dyn FnMut(),
        advance: &mut AdvancePointer<'_>,
    ) -> Result<LockedMemory> {
        durable_file::create_dir(&self.dir)?;
        let lock = FileLock::acquire(
            &self.dir.join(".lock"),
            "the memory",
            Some(&self.clock.local_timestamp()),
            wait,
            &mut |_| busy(),
        )?;
        let memory = LockedMemory { memory: self.clone(), _lock: lock };
        self.remove_temporary_files();
        memory.complete_plan(advance)?;
        Ok(memory)
    }

    /// Removes temporary files of killed runs. Those of running ones stay: the index of embeddings and the last error are
    /// written without the lock.
    fn remove_temporary_files(&self) {
        for dir in [self.dir.clone(), self.dir.join(VERSIONS_DIR)] {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()) {
                if durable_file::is_temporary(&path) && durable_file::is_abandoned(&path) {
                    // A file that cannot be removed does no harm.
                    drop(std::fs::remove_file(path));
                }
            }
        }
    }

    fn version_store(&self) -> VersionStore {
        VersionStore { dir: self.dir.join(VERSIONS_DIR) }
    }

    fn error_path(&self) -> PathBuf {
        self.dir.join(VERSIONS_DIR).join("trouble")
    }

    fn history(&self) -> MemoryHistory {
        MemoryHistory { dir: self.dir.clone() }
    }
}

/// The path of the memory text of `workspace`. Older releases stored it at the root; that file counts if there is no other.
/// A file counts even if it is empty: the user may have emptied the memory.
pub fn file_path(workspace: &Path) -> PathBuf {
    let path = workspace.join("memory/MEMORY.md");
    let legacy_path = workspace.join("MEMORY.md");
    if !path.exists() && legacy_path.exists() { legacy_path } else { path }
}

/// Moves the pointer of a session past a range.
pub type AdvancePointer<'a> = dyn FnMut(MessageRange<'_>) -> Result<()> + 'a;

/// The locked memory.
#[derive(Debug)]
pub struct LockedMemory {
    memory: Memory,
    _lock: FileLock,
}

impl LockedMemory {
    /// True if the user has write-protected the memory.
    pub fn is_read_only(&self) -> bool {
        self.memory.is_read_only()
    }

    /// Reads the memory text, and records it as a version if it was changed by hand. Empty if there is none.
    pub fn read_and_record(&self) -> Result<Vec<u8>> {
        let text = self.memory.read()?.unwrap_or_default();
        self.record_text(&text, VersionCause::Manual, None, None)?;
        Ok(text)
    }

    /// Like [`Self::read_and_record`], for a turn of the session `session` that found the text `before`, with `untrusted` content in
    /// its conversation, if any. The text before the turn is recorded too, so that it can be restored.
    pub fn record_turn(&self, before: &[u8], session: &str, untrusted: Option<&str>) -> Result<()> {
        let store = self.memory.version_store();
        let mut is_recorded = false;
        let same_size = |version: &Version| version.bytes == before.len() as u64;
        for version in store.list()?.into_iter().filter(same_size) {
            is_recorded |= store.read_text(version.id)?.as_deref() == Some(before);
        }
        if !is_recorded {
            self.record_text(before, VersionCause::Manual, None, None)?;
        }
        let text = self.memory.read()?.unwrap_or_default();
        let untrusted = untrusted.map(str::to_owned);
        self.record_text(&text, VersionCause::Turn, Some(session), untrusted)
    }

    fn record_text(
        &self,
        text: &[u8],
        cause: VersionCause,
        session: Option<&str>,
        untrusted: Option<String>,
    ) -> Result<()> {
        let store = self.memory.version_store();
        let versions = store.list()?;
        let current = version::current(&versions);
        let recorded = match current {
            Some(version) => store.read_text(version.id)?,
            None => None,
        };
        if recorded.as_deref() != Some(text) {
            let version = Version {
                untrusted: untrusted
                    .or_else(|| current.and_then(|current| current.untrusted.clone())),
                ..self.next_version(&versions, cause, session, text)
            };
            store.stage(version.id, text)?;
            store.add(&version)?;
        }
        Ok(())
    }

    /// Removes the label of the memory in force, as the user has reviewed the text. False if it has none.
    pub fn accept(&self) -> Result<bool> {
        let text = self.read_and_record()?;
        let store = self.memory.version_store();
        let versions = store.list()?;
        let current = version::current(&versions);
        let Some(current) = current.filter(|current| current.untrusted.is_some()) else {
            return Ok(false);
        };
        let version = Version {
            restored: Some(current.position()),
            ..self.next_version(&versions, VersionCause::Accept, None, &text)
        };
        store.stage(version.id, &text)?;
        store.add(&version)?;
        Ok(true)
    }

    /// Checks that the history can be appended to, before a model is called.
    pub fn check_history(&self) -> Result<()> {
        self.memory.history().check_appendable()
    }

    /// Applies a change atomically. `base` is the memory text on which the change is based.
    pub fn apply(
        &self,
        base: &[u8],
        cause: VersionCause,
        update: MemoryUpdate<'_>,
        advance: &mut AdvancePointer<'_>,
    ) -> Result<UpdateResult> {
        let MemoryUpdate { range, entries, memory, aside_reason, untrusted, restores, error } =
            update;
        if !entries.is_empty() {
            self.memory.history().check_appendable()?;
        }
        let current_text = self.read_and_record()?;
        let store = self.memory.version_store();
        let versions = store.list()?;
        let is_changed = current_text != base && memory.is_some();
        let version = match memory.filter(|text| *text != current_text) {
            None => None,
            Some(text) => {
                let session = range.map(|range| range.session);
                // The version whose label of untrusted content the new text inherits.
                let labelled = match cause {
                    // The user has reviewed the text.
                    VersionCause::Edit => None,
                    VersionCause::Undo => {
                        versions.iter().find(|version| Some(version.id) == restores)
                    }
                    _ => version::current(&versions),
                };
                let inherited = || labelled.and_then(|version| version.untrusted.clone());
                let version = Version {
                    aside_reason: aside_reason
                        .or_else(|| is_changed.then(|| CHANGED_MEANWHILE.into())),
                    untrusted: untrusted.or_else(inherited),
                    restored: restores,
                    ..self.next_version(&versions, cause, session, &text)
                };
                store.stage(version.id, &text)?;
                Some(version)
            }
        };
        let plan = UpdatePlan {
            v: PLAN_FORMAT_VERSION,
            range: range.map(|range| (range.session.to_owned(), range.from, range.to)),
            entries,
            history_bytes: self.memory.history().size()?,
            time: self.memory.clock.now().strftime("%Y-%m-%d %H:%M").to_string(),
            base: version::current(&versions).map(|version| version.id),
            error,
            version,
        };
        let text = serde_json::to_vec(&plan).context("encode the memory update")?;
        durable_file::replace(&self.plan_path(), &text)?;
        self.complete_plan(advance)
    }

    /// Returns the version before the one in force.
    pub fn previous(&self) -> Result<Option<Version>> {
        Ok(version::previous(&self.memory.versions()?).cloned())
    }

    /// Carries out the plan, if there is one. Every step is idempotent, because a killed run may already have done it.
    fn complete_plan(&self, advance: &mut AdvancePointer<'_>) -> Result<UpdateResult> {
        let path = self.plan_path();
        let Some(text) = durable_file::read(&path)? else {
            return Ok(UpdateResult::Applied);
        };
        let plan = parse_plan(&text).map_err(|cause| {
            let path = path.display();
            fail(Exit::Io, format!("the unfinished memory update in `{path}` is invalid: {cause}"))
                .with_hint("move the file elsewhere; it contains the update that was not applied")
        })?;
        let session = plan.range.as_ref().map_or("", |(session, ..)| session);
        if !plan.entries.is_empty() {
            self.memory.history().append(&plan.entries, plan.history_bytes, &plan.time, session)?;
        }
        let mut outcome = ConsolidationOutcome::Same;
        if let Some(version) = &plan.version {
            outcome = self.put_in_force(version, plan.base)?;
        }
        let result = match outcome {
            ConsolidationOutcome::Aside => UpdateResult::StoredAside,
            _ => UpdateResult::Applied,
        };
        if let Some((session, from, to)) = &plan.range {
            match &plan.error {
                Some(error) => {
                    outcome = ConsolidationOutcome::Raw;
                    self.memory.record_error(&format!("{session}: {error}"))?;
                }
                // A model has answered, so the recorded error is obsolete.
                None if !plan.entries.is_empty() => drop(self.memory.forget_error()?),
                None => {}
            }
            self.memory.record_run(session, outcome)?;
            // This is the last step: until then the range stays due, and the process that retries it finds the plan.
            advance(MessageRange { session, from: *from, to: *to })?;
        }
        std::fs::remove_file(&path).with_context(|| format!("remove `{}`", path.display()))?;
        durable_file::sync_dir(&self.memory.dir)?;
        Ok(result)
    }

    /// Puts a staged version in force, unless it is to be stored aside or the memory was changed meanwhile.
    fn put_in_force(&self, version: &Version, base: Option<u64>) -> Result<ConsolidationOutcome> {
        let store = self.memory.version_store();
        let Some(text) = store.read_text(version.id)? else {
            return Ok(ConsolidationOutcome::Same);
        };
        let current_text = self.memory.read()?.unwrap_or_default();
        let base_text = match base {
            Some(base) => store.read_text(base)?.unwrap_or_default(),
            None => Vec::new(),
        };
        if version.aside_reason.is_some() {
            store.add(version)?;
            return Ok(ConsolidationOutcome::Aside);
        }
        if current_text != base_text && current_text != text {
            let aside_reason = Some(CHANGED_MEANWHILE.into());
            store.add(&Version { aside_reason, ..version.clone() })?;
            return Ok(ConsolidationOutcome::Aside);
        }
        store.add(version)?;
        if current_text != text {
            durable_file::replace(&self.memory.path(), &text)?;
        }
        Ok(ConsolidationOutcome::New)
    }

    /// Creates the record of the next version.
    fn next_version(
        &self,
        versions: &[Version],
        cause: VersionCause,
        session: Option<&str>,
        text: &[u8],
    ) -> Version {
        Version {
            id: versions.last().map_or(1, |version| version.id + 1),
            time: self.memory.clock.now().strftime("%Y-%m-%d %H:%M:%S").to_string(),
            cause,
            session: session.map(str::to_owned),
            bytes: text.len() as u64,
            aside_reason: None,
            untrusted: None,
            parent: version::current(versions).map(Version::position),
            restored: None,
        }
    }

    fn plan_path(&self) -> PathBuf {
        self.memory.dir.join(PLAN_FILE)
    }
}

fn parse_plan(text: &[u8]) -> Result<UpdatePlan, String> {
    let plan: UpdatePlan = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    match plan.v {
        PLAN_FORMAT_VERSION => Ok(plan),
        other => Err(format!("its format is {other}, of another release")),
    }
}

/// Number of meaningful characters in a memory: headings, rules, and placeholders in parentheses or italics are not counted.
fn count_meaningful_chars(text: &str) -> usize {
    let is_rule =
        |line: &str| ['-', '*', '_'].iter().any(|mark| line.chars().all(|letter| letter == *mark));
    // All of the line is one placeholder. Bold text and items of lists are not.
    let is_placeholder = |line: &str, open: char, close: char| {
        let inner = line.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        inner.is_some_and(|inner| !inner.contains([open, close]) && !inner.starts_with(' '))
    };
    let is_form = |line: &str| {
        line.starts_with('#')
            || is_rule(line)
            || is_placeholder(line, '(', ')')
            || is_placeholder(line, '*', '*')
    };
    let lines = text.trim().lines().map(str::trim);
    let filled = lines.filter(|line| !is_form(line));
    filled.map(|line| line.chars().count()).sum()
}

/// The reason to reject `new` as the replacement for `old`: it is blank, or so short that it is probably wrong. Half of
/// the characters must remain, and an eighth of a short memory. If the request was to reduce the memory to at most
/// `budget` tokens, a fifth must remain, or half of the budget if that is less.
pub fn rejection_reason(old: &str, new: &str, budget: Option<usize>) -> Option<String> {
    let (old_chars, new_chars) = (count_meaningful_chars(old), count_meaningful_chars(new));
    let min_chars = match budget {
        Some(budget) => {
            let budget_chars = budget.saturating_mul(CHARS_PER_TOKEN);
            old_chars.div_ceil(REDUCED_DIVISOR).min(budget_chars / REMAINDER_DIVISOR)
        }
        None if old_chars < MIN_HALVED_CHARS => old_chars.div_ceil(FEW_FACTS_DIVISOR),
        None => old_chars.div_ceil(REMAINDER_DIVISOR),
    };
    if new.trim().is_empty() && !old.trim().is_empty() {
        Some("the new text is empty".into())
    } else if new_chars < min_chars {
        Some(format!("the new text has {new_chars} of {old_chars} characters"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Memory, MemoryUpdate, MessageRange, PLAN_FORMAT_VERSION, UpdatePlan, UpdateResult,
        VersionCause, count_meaningful_chars, rejection_reason,
    };
    use nanobot_os::clock::Clock;
    use std::path::Path;
    use std::time::Duration;

    fn memory(dir: &Path) -> Memory {
        Memory::new(dir, &Clock::Fixed("2026-01-02T03:04:05Z".parse().unwrap()))
    }

    fn lock(memory: &Memory) -> super::LockedMemory {
        memory.lock(Duration::ZERO, &mut || {}, &mut |_| Ok(())).unwrap()
    }

    fn write(locked_memory: &super::LockedMemory, base: &[u8], text: &str) -> UpdateResult {
        let change = MemoryUpdate {
            entries: vec![format!("[t] {text}")],
            memory: Some(text.into()),
            ..MemoryUpdate::default()
        };
        locked_memory.apply(base, VersionCause::Consolidation, change, &mut |_| Ok(())).unwrap()
    }

    #[test]
    fn a_memory_must_not_shrink_to_nothing() {
        let long = "x".repeat(400);
        let check = |old: &str, new: &str, budget, is_rejected| {
            assert_eq!(
                rejection_reason(old, new, budget).is_some(),
                is_rejected,
                "{} {}",
                old.len(),
                new.len()
            );
        };
        check("", "", None, false);
        check("a", " \n", None, true);
        check("**Likes tea**\n* has *two* cats\n* and a *dog*", "x", None, true);
        check(&long[..399], &long[..50], None, false);
        check(&long[..399], "ok", None, true);
        check("Likes tea.", "Tea.", None, false);
        check(&long, &long[..200], None, false);
        check(&long, &long[..199], None, true);
        check(&long, &long[..199], Some(90), false);
        check(&long, &long[..80], Some(90), false);
        check(&long, &long[..79], Some(90), true);
        // Half of the budget is enough, even for a memory many times as large.
        check(&long, &long[..20], Some(10), false);
        check(&long, &long[..19], Some(10), true);
    }

    #[test]
    fn meaningful_characters_are_counted() {
        let check = |text: &str, expect: usize| {
            assert_eq!(count_meaningful_chars(text), expect, "{text}");
        };
        check("# Facts\n\n---\n***\n(none yet)\n*to be filled in*\n", 0);
        check("**Likes tea**", 13);
        check("* has *two*", 11);
        check("*Ann* and *Bob*", 15);
        check("(Ann) and (Bob)", 15);
        check("- tea\n-", 5);
    }

    #[test]
    fn changes_by_hand_become_versions_and_are_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let memory = memory(dir.path());
        let locked_memory = lock(&memory);
        std::fs::write(memory.path(), b"by hand \xff").unwrap();
        let base = locked_memory.read_and_record().unwrap();
        assert_eq!(write(&locked_memory, &base, "one"), UpdateResult::Applied);
        assert_eq!(memory.read().unwrap().unwrap(), b"one");
        // The change happens between the request and the reply.
        std::fs::write(memory.path(), "theirs").unwrap();
        assert_eq!(write(&locked_memory, b"one", "two"), UpdateResult::StoredAside);
        assert_eq!(memory.read().unwrap().unwrap(), b"theirs");
        let versions = memory.versions().unwrap();
        let all: Vec<_> = versions
            .iter()
            .map(|version| (version.cause.name(), version.aside_reason.is_some()))
            .collect();
        let expect = [
            ("manual", false),
            ("consolidation", false),
            ("manual", false),
            ("consolidation", true),
        ];
        assert_eq!(all, expect);
        assert_eq!(memory.read_version(1).unwrap().unwrap(), b"by hand \xff");
        let history = std::fs::read_to_string(dir.path().join("memory/HISTORY.md")).unwrap();
        assert_eq!(history, "[t] one\n\n[t] two\n\n");
    }

    #[test]
    fn the_result_says_where_the_text_is() {
        let dir = tempfile::tempdir().unwrap();
        let memory = memory(dir.path());
        let locked_memory = lock(&memory);
        assert_eq!(write(&locked_memory, b"", "a"), UpdateResult::Applied);
        // Another program has written the same text meanwhile.
        std::fs::write(memory.path(), "b").unwrap();
        assert_eq!(write(&locked_memory, b"a", "b"), UpdateResult::Applied);
        assert_eq!(memory.read().unwrap().unwrap(), b"b");
        let change = MemoryUpdate {
            range: Some(MessageRange { session: "a:b", from: 0, to: 1 }),
            memory: Some(b"c".into()),
            aside_reason: Some("too short".into()),
            ..MemoryUpdate::default()
        };
        let result =
            locked_memory.apply(b"b", VersionCause::Consolidation, change, &mut |_| Ok(()));
        assert_eq!(result.unwrap(), UpdateResult::StoredAside);
        // Another program writes after the plan was made.
        let plan = UpdatePlan {
            v: PLAN_FORMAT_VERSION,
            range: None,
            entries: Vec::new(),
            history_bytes: memory.history().size().unwrap(),
            time: String::new(),
            error: None,
            base: memory.current_version().unwrap().map(|version| version.id),
            version: Some(locked_memory.next_version(
                &memory.versions().unwrap(),
                VersionCause::Edit,
                None,
                b"d",
            )),
        };
        memory.version_store().stage(plan.version.as_ref().unwrap().id, b"d").unwrap();
        std::fs::write(locked_memory.plan_path(), serde_json::to_vec(&plan).unwrap()).unwrap();
        std::fs::write(memory.path(), "theirs").unwrap();
        assert_eq!(
            locked_memory.complete_plan(&mut |_| Ok(())).unwrap(),
            UpdateResult::StoredAside
        );
        assert_eq!(memory.read().unwrap().unwrap(), b"theirs");
        let newer = serde_json::to_vec(&UpdatePlan { v: PLAN_FORMAT_VERSION + 1, ..plan }).unwrap();
        std::fs::write(locked_memory.plan_path(), newer).unwrap();
        let error = locked_memory.complete_plan(&mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("its format is 2"), "{error:#}");
    }

    #[test]
    fn an_empty_memory_is_not_that_of_an_older_release() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("MEMORY.md"), "of an older release").unwrap();
        std::fs::create_dir(dir.path().join("memory")).unwrap();
        std::fs::write(dir.path().join("memory/MEMORY.md"), "a").unwrap();
        let memory = memory(dir.path());
        let locked_memory = lock(&memory);
        write(&locked_memory, b"a", "");
        assert_eq!(memory.read().unwrap().unwrap(), b"");
        assert_eq!(locked_memory.read_and_record().unwrap(), b"");
    }

    #[test]
    fn an_unfinished_plan_is_completed_once() {
        let dir = tempfile::tempdir().unwrap();
        let memory = memory(dir.path());
        let locked_memory = lock(&memory);
        let change = || MemoryUpdate {
            range: Some(MessageRange { session: "a:b", from: 2, to: 4 }),
            entries: vec!["[t] e".into()],
            memory: Some(b"new".into()),
            ..MemoryUpdate::default()
        };
        let fails = locked_memory
            .apply(b"", VersionCause::Consolidation, change(), &mut |_| anyhow::bail!("killed"));
        assert!(fails.is_err());
        drop(locked_memory);
        let mut moved = Vec::new();
        for _ in 0..2 {
            let locked_memory = memory.lock(Duration::ZERO, &mut || {}, &mut |range| {
                moved.push((range.session.to_owned(), range.from, range.to));
                Ok(())
            });
            drop(locked_memory.unwrap());
        }
        assert_eq!(moved, [("a:b".to_owned(), 2, 4)]);
        assert_eq!(memory.read().unwrap().unwrap(), b"new");
        let history = std::fs::read_to_string(dir.path().join("memory/HISTORY.md")).unwrap();
        assert_eq!(history, "[t] e\n\n");
        assert_eq!(memory.versions().unwrap().len(), 2);
    }

    #[test]
    fn a_memory_at_the_root_stays_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("MEMORY.md"), "old").unwrap();
        let memory = memory(dir.path());
        let locked_memory = lock(&memory);
        write(&locked_memory, b"old", "new");
        assert_eq!(std::fs::read(dir.path().join("MEMORY.md")).unwrap(), b"new");
        assert!(!dir.path().join("memory/MEMORY.md").exists());
    }
}
