//! The file of a conversation: opened and mended, appended to, closed. Whoever else writes to it meanwhile is noticed, and
//! what they wrote counts.

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

/// The file of a session that is open for a turn.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) path: PathBuf,
    /// `None` until the first line is written.
    pub(super) file: Option<File>,
    /// It was made in this run: the directory must be brought to the disk too.
    fresh: bool,
    /// Which file it is and how long, as far as we know.
    known: Known,
    /// How many messages it has.
    pub(super) count: usize,
    pub(super) metadata: Metadata,
    /// What a newer release remembers of its provider must be emptied when our turn ends.
    provider_state: bool,
    sync: Sync,
    pub(super) clock: Clock,
    /// The file whose lock an append holds, where it is not the log's own: newer releases have one for all sessions.
    pub(super) guard: Option<File>,
    /// Held until the turn ends.
    pub(super) lock: Lock,
}

/// What a file is known by: as long as it is the same, nobody else has written.
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
    pub(super) fn open(
        place: &Place,
        key: &str,
        path: PathBuf,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<(Self, Tail)> {
        store::create_dir(path.parent().context("a session file is in a directory")?)?;
        let mut busy = |holder: Option<&store::Holder>| {
            let who = holder
                .map(|holder| {
                    let since = holder.since.split_once('T');
                    // Seconds are enough for whoever waits.
                    let since = since.map_or(holder.since.as_str(), |(_, time)| {
                        time.split(['.', '+', 'Z']).next().unwrap_or(time)
                    });
                    format!(" (process {}, since {since})", holder.pid)
                })
                .unwrap_or_default();
            notice(&format!(
                "waiting for session `{key}`, which another run is using{who}"
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

    /// Open the file, where there is one: mend its end, and read what a turn needs of it.
    fn load(&mut self, window: usize, notice: &mut dyn FnMut(&str)) -> Result<Tail> {
        let Some(file) = store::open_existing_log(&self.path)? else {
            // Somebody removed it in the middle of a turn, or there never was one.
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
        // A file that is there and empty gets its first line as a new one does.
        self.file = (self.known.size > 0).then_some(file);
        Ok(tail)
    }

    /// Append a line that holds `messages` messages, in one write. `line` is asked anew where another program has written
    /// meanwhile, since what it wrote counts too.
    pub(super) fn append(
        &mut self,
        key: &str,
        messages: usize,
        mut line: impl FnMut(&mut Self) -> String,
    ) -> Result<()> {
        // Where a file system tells its sizes late, one cannot wait for them to agree; appending is right in any case.
        for tries in 0.. {
            if self.file.is_none() {
                self.create(key)?;
                continue;
            }
            let line = line(self);
            let Some(file) = &self.file else {
                unreachable!("it was made, and nobody but us lets go of it");
            };
            let guard = self.guard.as_ref().unwrap_or(file);
            let appended = store::while_locked(guard, &self.path, || {
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
            // A Python program has appended to it, or put another in its place. A line that it left torn would swallow
            // ours; it is kept aside, where the next open would have put it.
            drop(self.load(0, &mut |_| {})?);
        }
        unreachable!("the last try appends")
    }

    /// Whether the file is as we left it.
    fn is_known(&self) -> Result<bool> {
        match std::fs::metadata(&self.path) {
            Ok(about) => Ok(Known::from(&about) == self.known),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("look at `{}`", self.path.display())),
        }
    }

    /// Make the file, with its first line.
    fn create(&mut self, key: &str) -> Result<()> {
        let now = self.clock.stamp();
        self.metadata.key = Some(key.to_owned());
        self.metadata.created_at.get_or_insert_with(|| now.clone());
        self.metadata.updated_at = Some(now);
        let line = line::of_metadata(&self.metadata, None);
        let file = store::open_log(&self.path)?;
        let guard = self.guard.as_ref().unwrap_or(&file);
        let ours = store::while_locked(guard, &self.path, || {
            let is_empty = store::size(&file, &self.path)? == 0;
            if is_empty {
                store::append_to(&file, &self.path, 0, line.as_bytes())?;
            }
            Ok(is_empty)
        })?;
        if !ours {
            // Another program was faster, and what it wrote counts.
            return self.load(0, &mut |_| {}).map(drop);
        }
        self.known = Known::from(&stat(&file, &self.path)?);
        (self.file, self.fresh) = (Some(file), true);
        Ok(())
    }

    /// Write a closing line, with what `change` makes of the metadata and the number of messages.
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
            // Should another program write in between, the line does not stand where it says, and is not trusted.
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
