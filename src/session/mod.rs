//! The conversation log: open, lock, repair, push.
//!
//! One file for a conversation, in the format of nanobot 0.1.4, and only ever appended to. A turn holds the kernel's lock
//! on a side file; an append holds one on the log for its microseconds. Every line is complete at any instant but the
//! last, and the last is mended when the log is opened: that is the whole of recovery.

use crate::history;
use crate::message::{Message, Part, ToolResult, plain_text};
use crate::sys::clock::Clock;
use crate::sys::store::{self, Lock};
use anyhow::{Context, Result};
use line::{Closing, Line, Metadata};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod files;
mod line;
mod place;
mod tail;

pub use files::{Entry, Summary, entries, list, prune, remove};
pub use place::{Place, Sync};

/// A conversation, as far as it is sent, and its log.
#[derive(Debug)]
pub struct Session {
    key: String,
    turn: String,
    messages: Vec<Message>,
    /// Characters that are kept of a tool result.
    result_limit: usize,
    /// `None` for a conversation that is not kept.
    log: Option<Log>,
}

impl Session {
    /// Open the session `key` for a turn: lock it, mend its end, read what is to be sent. A session that does not exist
    /// is made by its first message.
    ///
    /// # Errors
    /// Status 75 when another run keeps it for longer than `wait`.
    pub fn open(
        place: &Place,
        key: &str,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let mut path = place.find(key)?;
        let (log, messages) = loop {
            let opened = Log::open(place, key, path.clone(), wait, notice)?;
            // While we waited, another key of the same file name may have taken it.
            let now = place.find(key)?;
            if now == path {
                break opened;
            }
            path = now;
        };
        let mut session = Self {
            key: key.to_owned(),
            turn: String::new(),
            messages,
            result_limit: place.result_limit,
            log: Some(log),
        };
        session.settle(notice)?;
        session.messages = history::sendable(std::mem::take(&mut session.messages));
        Ok(session)
    }

    /// A conversation that begins with `messages` and is not kept.
    pub fn ephemeral(key: &str, messages: Vec<Message>, result_limit: usize) -> Self {
        Self {
            key: key.to_owned(),
            turn: String::new(),
            messages,
            result_limit,
            log: None,
        }
    }

    /// What would be sent of the session `key`, without opening it for a turn. Empty when there is none.
    pub fn read(place: &Place, key: &str, notice: &mut dyn FnMut(&str)) -> Result<Vec<Message>> {
        let path = place.find(key)?;
        let Some(file) = open_to_read(&path)? else {
            return Ok(Vec::new());
        };
        let size = whole_lines(&file, &path)?;
        let tail = tail::read(&file, &path, size, place.window)?;
        tail.notices.iter().for_each(|text| notice(text));
        Ok(history::sendable(tail.messages))
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// The id of the running turn; empty before [`Self::begin`].
    pub fn turn(&self) -> &str {
        &self.turn
    }

    /// What is sent: the window of the log, mended, and what has been pushed since.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// A turn begins: what is pushed from now on carries its id.
    pub fn begin(&mut self, turn: &str) {
        turn.clone_into(&mut self.turn);
    }

    /// Log `message`, then remember it. A long tool result is cut first, so that log and memory agree.
    pub fn push(&mut self, mut message: Message) -> Result<()> {
        if let Message::Tool(result) = &mut message {
            cut(result, self.result_limit);
        }
        if let Some(log) = &mut self.log {
            let line = line::of_message(&message, &self.turn, &log.clock.stamp());
            log.append(&self.key, &line, 1)?;
        }
        self.messages.push(message);
        Ok(())
    }

    /// Answer the calls at the end that have no result. It is written down, so that the Python program too can send this
    /// conversation.
    pub fn settle(&mut self, notice: &mut dyn FnMut(&str)) -> Result<()> {
        for lost in history::unanswered(&self.messages) {
            notice(&format!(
                "a call of `{}` was interrupted; it may or may not have happened",
                lost.name
            ));
            self.push(Message::Tool(lost))?;
        }
        Ok(())
    }

    /// The turn is over: write its closing line, and bring everything to the disk.
    pub fn close(&mut self, ending: &str) -> Result<()> {
        match &mut self.log {
            Some(log) if log.file.is_some() => log.close(&self.key, &self.turn, ending),
            _ => Ok(()),
        }
    }

    /// Send nothing of what was said so far. It stays in the log.
    pub fn start_afresh(&mut self) -> Result<()> {
        self.messages.clear();
        match &mut self.log {
            Some(log) if log.file.is_some() => {
                log.metadata.last_consolidated = log.count;
                // What newer releases read instead, where they keep it.
                if let Some(archived) = log.metadata.extra.get_mut("last_archived") {
                    *archived = log.count.into();
                }
                log.close(&self.key, &self.turn, "new")
            }
            _ => Ok(()),
        }
    }

    /// Whether its last turn stopped in the middle.
    pub fn interrupted(&self) -> bool {
        history::is_interrupted(&self.messages)
    }
}

/// Keep the beginning and the end of a result that is longer than `limit` characters.
fn cut(result: &mut ToolResult, limit: usize) {
    let has_image = result
        .parts
        .iter()
        .any(|part| matches!(part, Part::Image(_)));
    let text = plain_text(&result.parts);
    let length = text.chars().count();
    if length <= limit || has_image {
        return;
    }
    let (head, tail) = (limit * 3 / 4, limit / 4);
    let at = |number: usize| {
        text.char_indices()
            .nth(number)
            .map_or(text.len(), |(at, _)| at)
    };
    let left_out = length - head - tail;
    let cut = format!(
        "{}\n[… {left_out} characters left out …]\n{}",
        &text[..at(head)],
        &text[at(length - tail)..]
    );
    result.parts = vec![Part::Text(cut)];
}

/// The file of a session that is open for a turn.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    /// `None` until the first line is written.
    file: Option<File>,
    /// It was made in this run: the directory must be brought to the disk too.
    fresh: bool,
    /// How long the file is, as far as we know.
    size: u64,
    /// How many messages it has.
    count: usize,
    metadata: Metadata,
    /// What a newer release remembers of its provider must be emptied when our turn ends.
    provider_state: bool,
    sync: Sync,
    clock: Clock,
    /// The file whose lock an append holds, where it is not the log's own: newer releases have one for all sessions.
    guard: Option<File>,
    /// Held until the turn ends.
    _lock: Lock,
}

impl Log {
    fn open(
        place: &Place,
        key: &str,
        path: PathBuf,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<(Self, Vec<Message>)> {
        store::create_dir(path.parent().context("a session file is in a directory")?)?;
        let mut busy = |holder: Option<&store::Holder>| {
            let who = holder
                .map(|holder| format!(" (process {}, since {})", holder.pid, holder.since))
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
            size: 0,
            count: 0,
            metadata: Metadata::default(),
            provider_state: false,
            sync,
            clock,
            guard: guard.ok(),
            _lock: lock,
        };
        if open_to_read(&log.path)?.is_none() {
            return Ok((log, Vec::new()));
        }
        let file = store::open_log(&log.path)?;
        mend(&file, &log.path, &log.clock, notice)?;
        log.size = length(&file, &log.path)?;
        let tail = tail::read(&file, &log.path, log.size, place.window)?;
        tail.notices.iter().for_each(|text| notice(text));
        (log.file, log.count, log.metadata) = (Some(file), tail.count, tail.metadata);
        log.provider_state = tail.provider_state;
        // A file that is there and empty gets its first line as a new one does.
        if log.size == 0 {
            log.file = None;
        }
        Ok((log, tail.messages))
    }

    /// Append a line that holds `messages` messages, in one write.
    fn append(&mut self, key: &str, line: &str, messages: usize) -> Result<()> {
        self.follow()?;
        if self.file.is_none() {
            self.create(key)?;
        }
        let Some(file) = &self.file else {
            unreachable!("it was opened or made above")
        };
        let guard = self.guard.as_ref().unwrap_or(file);
        store::while_locked(guard, &self.path, || {
            store::append_to(file, &self.path, line.as_bytes())
        })?;
        self.size += line.len() as u64;
        self.count += messages;
        Ok(())
    }

    /// Make the file, with its first line.
    fn create(&mut self, key: &str) -> Result<()> {
        let now = self.clock.stamp();
        self.metadata.key = Some(key.to_owned());
        self.metadata.created_at.get_or_insert_with(|| now.clone());
        self.metadata.updated_at = Some(now);
        let line = line::of_metadata(&self.metadata, None);
        let file = store::open_log(&self.path)?;
        store::while_locked(&file, &self.path, || {
            store::append_to(&file, &self.path, line.as_bytes())
        })?;
        self.size = length(&file, &self.path)?;
        (self.file, self.fresh) = (Some(file), true);
        Ok(())
    }

    /// See what others did to the file meanwhile: a Python program may have appended to it, or put another in its place.
    fn follow(&mut self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let ours = file
            .metadata()
            .with_context(|| format!("look at `{}`", self.path.display()))?;
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => named,
            // Somebody removed it in the middle of the turn: what follows goes into a new one.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                (self.file, self.count, self.metadata) = (None, 0, Metadata::default());
                return Ok(());
            }
            Err(error) => {
                return Err(error).with_context(|| format!("look at `{}`", self.path.display()));
            }
        };
        let replaced = (named.dev(), named.ino()) != (ours.dev(), ours.ino());
        if !replaced && ours.len() == self.size {
            return Ok(());
        }
        if replaced {
            self.file = Some(store::open_log(&self.path)?);
        }
        let Some(file) = &self.file else {
            unreachable!("it was opened above")
        };
        // A line that another left torn would swallow ours; it is kept aside, where the next open would have put it.
        mend(file, &self.path, &self.clock, &mut |_| {})?;
        self.size = length(file, &self.path)?;
        let tail = tail::read(file, &self.path, self.size, 0)?;
        self.count = tail.count;
        self.metadata = tail.metadata;
        Ok(())
    }

    fn close(&mut self, key: &str, turn: &str, ending: &str) -> Result<()> {
        self.follow()?;
        if std::mem::take(&mut self.provider_state) {
            self.append(key, line::NO_PROVIDER_STATE, 0)?;
        }
        let now = self.clock.stamp();
        self.metadata.key.get_or_insert_with(|| key.to_owned());
        self.metadata.created_at.get_or_insert_with(|| now.clone());
        self.metadata.updated_at = Some(now);
        (self.metadata.messages, self.metadata.at) = (Some(self.count), Some(self.size));
        let line = line::of_metadata(&self.metadata, Some(&Closing { turn, ending }));
        self.append(key, &line, 0)?;
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

/// The side file whose lock a turn holds. Its name must not end as sessions do.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn open_to_read(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("open `{}`", path.display())),
    }
}

fn length(file: &File, path: &Path) -> Result<u64> {
    Ok(file
        .metadata()
        .with_context(|| format!("look at `{}`", path.display()))?
        .len())
}

/// Where the last whole line ends.
fn whole_lines(file: &File, path: &Path) -> Result<u64> {
    let mut end = length(file, path)?;
    let mut block = vec![0; 64 << 10];
    while end > 0 {
        let begin = end.saturating_sub(block.len() as u64);
        let part = &mut block[..usize::try_from(end - begin).context("read back")?];
        file.read_exact_at(part, begin)
            .with_context(|| format!("read `{}`", path.display()))?;
        if let Some(found) = memchr::memrchr(b'\n', part) {
            return Ok(begin + found as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Mend the end of a log: a last line without its newline gets it when it is whole, and is kept aside when it is not.
fn mend(file: &File, path: &Path, clock: &Clock, notice: &mut dyn FnMut(&str)) -> Result<()> {
    store::while_locked(file, path, || {
        let (end, size) = (whole_lines(file, path)?, length(file, path)?);
        if end == size {
            return Ok(());
        }
        let mut torn = vec![0; usize::try_from(size - end).context("read back")?];
        file.read_exact_at(&mut torn, end)
            .with_context(|| format!("read `{}`", path.display()))?;
        if !matches!(line::parse(&torn), Line::Bad) {
            return store::append_to(file, path, b"\n");
        }
        let stamp: String = clock.stamp().chars().filter(char::is_ascii_digit).collect();
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".torn-{stamp}"));
        let aside = PathBuf::from(aside);
        store::append(&aside, &torn)?;
        file.set_len(end)
            .with_context(|| format!("cut `{}`", path.display()))?;
        notice(&format!(
            "the last line of the session was torn; it is kept in `{}`",
            aside.display()
        ));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::cut;
    use crate::message::{Part, ToolResult, plain_text};

    #[test]
    fn long_results_keep_both_ends() {
        let check = |text: &str, limit: usize, expect: &str| {
            let parts = vec![Part::Text(text.into())];
            let mut result = ToolResult {
                call: String::new(),
                name: String::new(),
                parts,
                failed: false,
            };
            cut(&mut result, limit);
            assert_eq!(plain_text(&result.parts), expect);
        };
        check("short", 8, "short");
        check("12345678", 8, "12345678");
        check("123456789", 8, "123456\n[… 1 characters left out …]\n89");
        check("éééééééééé", 4, "ééé\n[… 6 characters left out …]\né");
    }
}
