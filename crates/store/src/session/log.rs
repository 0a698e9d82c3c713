//! The log file of a session: open and repair, append, close. Writes of other programs in between are detected, and their lines are part of
//! the log.

use super::integrity::{MAX_ATTEMPTS, is_newer, refuse_newer, repair_end, stat};
use super::layout::{SessionStore, SyncMode};
use super::line::{self, ClosingLine, MetadataLine};
use super::lock::lock_path;
use super::tail_reader::{self, LogTail, MessageWindow, ReverseLines};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::file_lock::{self, FileLock};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// The log file of a session, open for a turn.
#[derive(Debug)]
pub(super) struct SessionLog {
    pub(super) path: PathBuf,
    /// `None` until the first line is written.
    pub(super) file: Option<File>,
    /// True if this run created the file, so that its directory must be synced too.
    is_new: bool,
    /// Identity and size of the file after our last read or write.
    file_state: LogFileState,
    /// Number of messages in the file.
    pub(super) count: usize,
    pub(super) metadata: MetadataLine,
    /// True if a newer release stored provider state that must be cleared when our turn ends.
    has_provider_state: bool,
    sync: SyncMode,
    pub(super) clock: Clock,
    /// The file to lock for an append, if it is not the log itself: newer releases have one lock file for all sessions.
    pub(super) append_lock: Option<File>,
    /// Held until the turn ends.
    pub(super) lock: FileLock,
}

/// Identity and size of a file. While they are unchanged, no other program has written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogFileState {
    device: u64,
    inode: u64,
    pub(super) size: u64,
}

impl From<&std::fs::Metadata> for LogFileState {
    fn from(metadata: &std::fs::Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino(), size: metadata.len() }
    }
}

impl SessionLog {
    /// Locks the session `key`, waiting up to `wait`, and opens its file at `path`, whose directory exists, with the tail
    /// that a turn needs.
    ///
    /// # Errors
    /// Status 75 if another run holds the lock for longer than `wait`, 78 if a newer release wrote the file.
    pub(super) fn open(
        store: &SessionStore,
        key: &str,
        path: PathBuf,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<(Self, LogTail)> {
        let mut busy = |holder: Option<&file_lock::LockHolder>| {
            let holder = holder
                .map(|holder| {
                    let since = holder.since.split_once('T');
                    // Seconds are precise enough in this notice.
                    let since = since.map_or(holder.since.as_str(), |(_, time)| {
                        time.split(['.', '+', 'Z']).next().unwrap_or(time)
                    });
                    let pid = holder.pid;
                    if holder.is_stopped() {
                        format!(" (process {pid}, stopped; `kill -CONT {pid}` continues it)")
                    } else {
                        format!(" (process {pid}, since {since})")
                    }
                })
                .unwrap_or_default();
            notice(&format!(
                "waiting for session `{key}`, in use by another run{holder}; `-s KEY` or `NANOBOT_SESSION=none` uses another one"
            ));
        };
        let lock = FileLock::acquire(
            &lock_path(&path),
            &format!("session `{key}`"),
            Some(&store.clock.local_timestamp()),
            wait,
            &mut busy,
        )
        .map_err(|error| {
            if exit_for(&error) == Exit::TryAgain {
                fail(Exit::TryAgain, error.to_string())
                    .with_hint("again later, or a longer `--wait`")
            } else {
                error
            }
        })?;
        let sync = store.sync;
        let clock = store.clock.clone();
        let append_lock = store.open_append_lock(&path);
        let mut log = Self {
            path,
            file: None,
            is_new: false,
            file_state: LogFileState::default(),
            count: 0,
            metadata: MetadataLine::default(),
            has_provider_state: false,
            sync,
            clock,
            append_lock,
            lock,
        };
        store.migrate(key, &log.path)?;
        let tail = log.load(store.window, notice)?;
        Ok((log, tail))
    }

    /// Opens the file if it exists, repairs its end, and reads the part that a turn needs.
    fn load(&mut self, window: MessageWindow, notice: &mut dyn FnMut(&str)) -> Result<LogTail> {
        let Some(file) = durable_file::open_existing_append(&self.path)? else {
            // The file was removed in mid-turn, or never existed.
            self.file = None;
            self.count = 0;
            self.metadata = MetadataLine::default();
            return Ok(LogTail::default());
        };
        self.file_state = LogFileState::from(&stat(&file, &self.path)?);
        let mut lines = ReverseLines::from_end(&file, &self.path, self.file_state.size);
        if !lines.ends_with_newline()? {
            refuse_newer(is_newer(&self.path)?, &self.path)?;
            let guard = self.append_lock.as_ref().unwrap_or(&file);
            repair_end(&file, guard, &self.path, &self.clock, notice)?;
            self.file_state = LogFileState::from(&stat(&file, &self.path)?);
            lines = ReverseLines::from_end(&file, &self.path, self.file_state.size);
        }
        let tail = tail_reader::read_lines(lines, window)?;
        refuse_newer(tail.metadata.is_newer(), &self.path)?;
        tail.notices.iter().for_each(|text| notice(text));
        self.count = tail.count;
        self.metadata = tail.metadata.clone();
        self.has_provider_state |= tail.has_provider_state;
        // An existing empty file gets its first line like a new one.
        self.file = (self.file_state.size > 0).then_some(file);
        Ok(tail)
    }

    /// Appends lines that hold `messages` messages, in one write. If another program has written meanwhile, the file
    /// is reloaded and `line` is called again.
    pub(super) fn append(
        &mut self,
        key: &str,
        messages: usize,
        mut line: impl FnMut(&mut Self) -> String,
    ) -> Result<()> {
        // Some file systems report sizes late, so they may never match; the last attempt appends without the check.
        for attempt in 0.. {
            if self.file.is_none() {
                if self.create(key, &mut line)? {
                    self.count += messages;
                    return Ok(());
                }
                continue;
            }
            let line = line(self);
            let Some(file) = &self.file else {
                unreachable!("the file was opened above, and only this function closes it");
            };
            let guard = self.append_lock.as_ref().unwrap_or(file);
            let is_appended = file_lock::with_lock(guard, &self.path, || {
                let size = if attempt < MAX_ATTEMPTS {
                    if !self.is_unchanged()? {
                        return Ok(false);
                    }
                    self.file_state.size
                } else {
                    durable_file::size(file, &self.path)?
                };
                durable_file::append_to(file, &self.path, size, line.as_bytes())?;
                Ok(true)
            })?;
            if is_appended {
                self.file_state.size += line.len() as u64;
                self.count += messages;
                return Ok(());
            }
            // Another program has appended to the file or replaced it. A torn line at its end would swallow ours, so
            // the reload moves it to a file of its own, as the next open would.
            drop(self.load(MessageWindow::default(), &mut |_| {})?);
        }
        unreachable!("the last attempt appends")
    }

    /// True if the file is unchanged since our last read or write.
    fn is_unchanged(&self) -> Result<bool> {
        match std::fs::metadata(&self.path) {
            Ok(metadata) => Ok(LogFileState::from(&metadata) == self.file_state),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("stat `{}`", self.path.display())),
        }
    }

    /// Creates the file with its first line and `line`, in one write. Returns false if another program has created it
    /// first: its content is loaded.
    fn create(&mut self, key: &str, line: &mut impl FnMut(&mut Self) -> String) -> Result<bool> {
        let now = self.clock.local_timestamp();
        self.metadata.key = Some(key.to_owned());
        self.metadata.created_at.get_or_insert_with(|| now.clone());
        self.metadata.updated_at = Some(now);
        let mut lines = line::format_metadata(&self.metadata, None);
        // A closing line contains its own offset.
        self.file_state.size = lines.len() as u64;
        lines.push_str(&line(self));
        let file = durable_file::open_append(&self.path)?;
        let guard = self.append_lock.as_ref().unwrap_or(&file);
        let created = file_lock::with_lock(guard, &self.path, || {
            let state = LogFileState::from(&stat(&file, &self.path)?);
            if state.size > 0 {
                return Ok(None);
            }
            durable_file::append_to(&file, &self.path, 0, lines.as_bytes())?;
            let size = lines.len() as u64;
            Ok(Some(LogFileState { size, ..state }))
        })?;
        let Some(state) = created else {
            return self.load(MessageWindow::default(), &mut |_| {}).map(|_| false);
        };
        self.file = Some(file);
        self.file_state = state;
        self.is_new = true;
        Ok(true)
    }

    /// Writes `last`, the lines of the last messages, and the closing line, after `change` has updated the metadata.
    /// `change` receives the number of messages.
    pub(super) fn write_closing_line(
        &mut self,
        key: &str,
        last: &[String],
        closing: &ClosingLine<'_>,
        change: &dyn Fn(&mut MetadataLine, usize),
    ) -> Result<()> {
        let messages = last.len();
        self.append(key, messages, |log| {
            let mut lines = last.concat();
            if log.has_provider_state {
                lines.push_str(line::NO_PROVIDER_STATE);
            }
            let now = log.clock.local_timestamp();
            let count = log.count + messages;
            change(&mut log.metadata, count);
            log.metadata.key.get_or_insert_with(|| key.to_owned());
            log.metadata.created_at.get_or_insert_with(|| now.clone());
            log.metadata.updated_at = Some(now);
            // If another program writes in between, the line is not at this offset, and readers will not trust it.
            let offset = log.file_state.size + lines.len() as u64;
            log.metadata.message_count = Some(count);
            log.metadata.offset = Some(offset);
            if closing.summary.is_some() {
                log.metadata.summary_offset = log.metadata.offset;
            }
            lines + &line::format_metadata(&log.metadata, Some(closing))
        })?;
        self.has_provider_state = false;
        let Some(file) = &self.file else {
            return Ok(());
        };
        if self.sync == SyncMode::EachTurn {
            durable_file::sync(file, &self.path)?;
            let is_new = std::mem::take(&mut self.is_new);
            if is_new && let Some(dir) = self.path.parent() {
                durable_file::sync_dir(dir)?;
            }
        }
        Ok(())
    }
}
