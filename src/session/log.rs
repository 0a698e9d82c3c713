//! The log file of a session: open and repair, append, close. Writes of other programs in between are detected, and
//! their lines count.

use super::integrity::{MAX_ATTEMPTS, is_newer, refuse_newer, repair_end, stat};
use super::line::{self, Closing, Metadata};
use super::lock::lock_path;
use super::place::{Place, Sync};
use super::tail::{self, Tail};
use crate::sys::clock::Clock;
use crate::sys::store::{self, Lock};
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// The log file of a session, open for a turn.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) path: PathBuf,
    /// `None` until the first line is written.
    pub(super) file: Option<File>,
    /// True if this run created the file, so that its directory must be synced too.
    fresh: bool,
    /// Identity and size of the file after our last read or write.
    known: Known,
    /// Number of messages in the file.
    pub(super) count: usize,
    pub(super) metadata: Metadata,
    /// True if a newer release stored provider state that must be cleared when our turn ends.
    provider_state: bool,
    sync: Sync,
    pub(super) clock: Clock,
    /// The file to lock for an append, if it is not the log itself: newer releases have one lock file for all sessions.
    pub(super) guard: Option<File>,
    /// Held until the turn ends.
    pub(super) lock: Lock,
}

/// Identity and size of a file. While they are unchanged, no other program has written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    device: u64,
    number: u64,
    pub(super) size: u64,
}

impl From<&std::fs::Metadata> for Known {
    fn from(about: &std::fs::Metadata) -> Self {
        Self {
            device: about.dev(),
            number: about.ino(),
            size: about.len(),
        }
    }
}

impl Log {
    /// Locks the session `key`, waiting up to `wait`, and opens its file at `path` with the tail that a turn needs.
    ///
    /// # Errors
    /// Status 75 if another run holds the lock for longer than `wait`, 78 if a newer release wrote the file.
    pub(super) fn open(
        place: &Place,
        key: &str,
        path: PathBuf,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<(Self, Tail)> {
        store::create_dir(
            path.parent()
                .context("the session path has no parent directory")?,
        )?;
        let mut busy = |holder: Option<&store::Holder>| {
            let who = holder
                .map(|holder| {
                    let since = holder.since.split_once('T');
                    // Seconds are precise enough in this notice.
                    let since = since.map_or(holder.since.as_str(), |(_, time)| {
                        time.split(['.', '+', 'Z']).next().unwrap_or(time)
                    });
                    format!(" (process {}, since {since})", holder.pid)
                })
                .unwrap_or_default();
            notice(&format!(
                "waiting for session `{key}`, in use by another run{who}"
            ));
        };
        let lock = Lock::take(
            &lock_path(&path),
            &format!("session `{key}`"),
            &place.clock.stamp(),
            wait,
            &mut busy,
        )?;
        let (sync, clock) = (place.sync, place.clock.clone());
        let guard = File::open(path.with_file_name(".session-files.lock"));
        let mut log = Self {
            path,
            file: None,
            fresh: false,
            known: Known::default(),
            count: 0,
            metadata: Metadata::default(),
            provider_state: false,
            sync,
            clock,
            guard: guard.ok(),
            lock,
        };
        place.adopt(key, &log.path)?;
        let tail = log.load(place.window, notice)?;
        Ok((log, tail))
    }

    /// Opens the file if it exists, repairs its end, and reads the part that a turn needs.
    fn load(&mut self, window: usize, notice: &mut dyn FnMut(&str)) -> Result<Tail> {
        let Some(file) = store::open_existing_log(&self.path)? else {
            // The file was removed in mid-turn, or never existed.
            (self.file, self.count, self.metadata) = (None, 0, Metadata::default());
            return Ok(Tail::default());
        };
        if !store::is_whole(&file, &self.path)? {
            refuse_newer(is_newer(&self.path)?, &self.path)?;
        }
        let guard = self.guard.as_ref().unwrap_or(&file);
        repair_end(&file, guard, &self.path, &self.clock, notice)?;
        self.known = Known::from(&stat(&file, &self.path)?);
        let tail = tail::read(&file, &self.path, self.known.size, window)?;
        refuse_newer(tail.metadata.is_newer(), &self.path)?;
        tail.notices.iter().for_each(|text| notice(text));
        (self.count, self.metadata) = (tail.count, tail.metadata.clone());
        self.provider_state |= tail.provider_state;
        // An existing empty file gets its first line like a new one.
        self.file = (self.known.size > 0).then_some(file);
        Ok(tail)
    }

    /// Appends a line that holds `messages` messages, in one write. If another program has written meanwhile, the file
    /// is reloaded and `line` is called again.
    pub(super) fn append(
        &mut self,
        key: &str,
        messages: usize,
        mut line: impl FnMut(&mut Self) -> String,
    ) -> Result<()> {
        // Some file systems report sizes late, so they may never match; the last attempt appends without the check.
        for tries in 0.. {
            if self.file.is_none() {
                self.create(key)?;
                continue;
            }
            let line = line(self);
            let Some(file) = &self.file else {
                unreachable!("the file was opened above, and only this function closes it");
            };
            let guard = self.guard.as_ref().unwrap_or(file);
            let appended = store::with_lock(guard, &self.path, || {
                let before = match tries < MAX_ATTEMPTS {
                    true if !self.is_known()? => return Ok(false),
                    true => self.known.size,
                    false => store::size(file, &self.path)?,
                };
                store::append_to(file, &self.path, before, line.as_bytes())?;
                Ok(true)
            })?;
            if appended {
                self.known.size += line.len() as u64;
                self.count += messages;
                return Ok(());
            }
            // Another program has appended to the file or replaced it. A torn line at its end would swallow ours, so
            // the reload moves it to the side file, as the next open would.
            drop(self.load(0, &mut |_| {})?);
        }
        unreachable!("the last attempt appends")
    }

    /// True if the file is unchanged since our last read or write.
    fn is_known(&self) -> Result<bool> {
        match std::fs::metadata(&self.path) {
            Ok(about) => Ok(Known::from(&about) == self.known),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("stat `{}`", self.path.display())),
        }
    }

    /// Creates the file, with its first line.
    fn create(&mut self, key: &str) -> Result<()> {
        let now = self.clock.stamp();
        self.metadata.key = Some(key.to_owned());
        self.metadata.created_at.get_or_insert_with(|| now.clone());
        self.metadata.updated_at = Some(now);
        let line = line::of_metadata(&self.metadata, None);
        let file = store::open_log(&self.path)?;
        let guard = self.guard.as_ref().unwrap_or(&file);
        let ours = store::with_lock(guard, &self.path, || {
            let is_empty = store::size(&file, &self.path)? == 0;
            if is_empty {
                store::append_to(&file, &self.path, 0, line.as_bytes())?;
            }
            Ok(is_empty)
        })?;
        if !ours {
            // Another program created it first; use its content.
            return self.load(0, &mut |_| {}).map(drop);
        }
        self.known = Known::from(&stat(&file, &self.path)?);
        (self.file, self.fresh) = (Some(file), true);
        Ok(())
    }

    /// Writes a closing line, after `change` has updated the metadata; it receives the number of messages.
    pub(super) fn close(
        &mut self,
        key: &str,
        closing: &Closing<'_>,
        change: &dyn Fn(&mut Metadata, usize),
    ) -> Result<()> {
        if std::mem::take(&mut self.provider_state) {
            self.append(key, 0, |_| line::NO_PROVIDER_STATE.to_owned())?;
        }
        self.append(key, 0, |log| {
            let now = log.clock.stamp();
            change(&mut log.metadata, log.count);
            log.metadata.key.get_or_insert_with(|| key.to_owned());
            log.metadata.created_at.get_or_insert_with(|| now.clone());
            log.metadata.updated_at = Some(now);
            // If another program writes in between, the line is not at this offset, and readers will not trust it.
            (log.metadata.messages, log.metadata.at) = (Some(log.count), Some(log.known.size));
            if closing.summary.is_some() {
                log.metadata.summary_at = log.metadata.at;
            }
            line::of_metadata(&log.metadata, Some(closing))
        })?;
        let Some(file) = &self.file else {
            return Ok(());
        };
        if self.sync == Sync::Turn {
            store::sync(file, &self.path)?;
            if let (true, Some(dir)) = (std::mem::take(&mut self.fresh), self.path.parent()) {
                store::sync_dir(dir)?;
            }
        }
        Ok(())
    }
}
