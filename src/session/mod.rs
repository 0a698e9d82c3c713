//! The conversation log: open, lock, repair, push.
//!
//! One file for a conversation, in the format of nanobot 0.1.4, and only ever appended to. A turn holds the kernel's lock
//! on a side file; an append holds one on the log for its microseconds. Every line is complete at any instant but the
//! last, and the last is mended when the log is opened: that is the whole of recovery.

use crate::error::{Exit, fail_hint};
use crate::history::compaction::Compaction;
use crate::history::ends::ends;
use crate::history::{self, ageing, weight};
use crate::message::{Message, Part, ToolResult, plain_text};
use crate::sys::clock::Clock;
use crate::sys::store::{self, Lock};
use anyhow::{Context, Result};
use line::{Closing, Line, Metadata};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tail::Tail;

pub mod consolidation;
mod copy;
mod files;
mod find;
mod kept;
mod line;
mod list;
mod needle;
mod place;
mod repair;
mod tail;
mod trash;

pub use copy::{fork, rename};
pub use files::{Entry, Logged, entries, last_entries, raw};
pub use find::{Found, find};
pub use kept::Stats;
pub use list::{Listing, Summary, list, look};
pub use needle::{FoundLine, Needle};
pub use place::{Place, Sync};
pub use repair::{Finding, every, repair};
pub use trash::{Discarded, discard, empty_trash, prune, remove, restore, trash};

/// A conversation, as far as it is sent, and its log.
#[derive(Debug)]
pub struct Session {
    key: String,
    turn: String,
    messages: Vec<Message>,
    /// Tokens of the messages, as we estimate them.
    weight: u64,
    /// What stands for the messages before those, and is the first of them.
    summary: Option<Compaction>,
    outline: Outline,
    /// Its last turn has ended, as the log says.
    closed: bool,
    /// Characters that are kept of a tool result.
    result_limit: usize,
    /// `None` for a conversation that is not kept.
    log: Option<Log>,
}

/// Which part of a log is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outline {
    /// How many messages the log has.
    pub count: usize,
    /// How many of them are consolidated.
    pub consolidated: usize,
    /// The number of the first message that is sent as it is.
    pub start: usize,
    /// Messages before this one are sent with their long results shortened.
    pub aged: usize,
    /// Tokens that the provider counted for one of ours, as of the last reply; `None` before the first.
    pub ratio: Option<f64>,
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
        let (log, tail) = loop {
            let (path, exists) = place.home_of(key)?;
            let opened = Log::open(place, key, path.clone(), wait, notice)?;
            // Before we had the lock, another key of the same file name may have taken it.
            if exists || place.home_of(key)?.0 == path {
                break opened;
            }
        };
        let mut session = Self::of(key, tail, place.result_limit, Some(log));
        session.settle(notice)?;
        session.mend();
        Ok(session)
    }

    /// The session `key` as it is, for a turn that is not kept. Empty when there is none.
    pub fn read(place: &Place, key: &str, notice: &mut dyn FnMut(&str)) -> Result<Self> {
        let path = place.find(key)?;
        let Some(file) = store::open_existing(&path)? else {
            return Ok(Self::of(key, Tail::default(), place.result_limit, None));
        };
        let size = whole_lines(&file, &path)?;
        let tail = tail::read(&file, &path, size, place.window)?;
        tail.notices.iter().for_each(|text| notice(text));
        let mut session = Self::of(key, tail, place.result_limit, None);
        session.mend();
        Ok(session)
    }

    /// The same under another key.
    #[must_use]
    pub fn under(self, key: &str) -> Self {
        Self {
            key: key.to_owned(),
            ..self
        }
    }

    /// A conversation without a past that is not kept.
    pub fn ephemeral(key: &str, result_limit: usize) -> Self {
        Self::of(key, Tail::default(), result_limit, None)
    }

    /// As the tail of its log has it.
    fn of(key: &str, tail: Tail, result_limit: usize, log: Option<Log>) -> Self {
        let kept = tail.metadata.kept();
        let is_compaction = tail.metadata.is_compaction;
        let outline = Outline {
            count: tail.count,
            consolidated: tail.metadata.last_consolidated,
            start: tail.start,
            aged: tail.aged,
            ratio: kept.ratio,
        };
        let summary = tail.summary.as_ref().map(Compaction::message);
        Self {
            key: key.to_owned(),
            turn: String::new(),
            messages: summary.into_iter().chain(tail.messages).collect(),
            weight: 0,
            summary: tail.summary,
            outline,
            closed: tail.is_closed && !is_compaction,
            result_limit,
            log,
        }
    }

    /// Let what is sent pair up, and weigh it.
    fn mend(&mut self) {
        self.messages = history::sendable(std::mem::take(&mut self.messages));
        self.weight = weight::of_messages(&self.messages);
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

    /// Tokens of what is sent, as we estimate them.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// Which part of the log is sent.
    pub fn outline(&self) -> Outline {
        Outline {
            count: self
                .log
                .as_ref()
                .map_or(self.outline.count, |log| log.count),
            ..self.outline
        }
    }

    /// What stands for the messages that were compacted.
    pub fn summary(&self) -> Option<&Compaction> {
        self.summary.as_ref()
    }

    /// The provider counted `ratio` tokens for one that we had estimated.
    pub fn measured(&mut self, ratio: f64) {
        // Beyond these the provider counts something else; what is kept is short.
        let ratio = (ratio.clamp(0.25, 4.0) * 100.0).round() / 100.0;
        self.outline.ratio = Some(ratio);
    }

    /// A turn begins: what is pushed from now on carries its id. Pictures of earlier turns are not sent again.
    pub fn begin(&mut self, turn: &str) {
        turn.clone_into(&mut self.turn);
        for message in &mut self.messages {
            if let Message::User(user) = message
                && user.parts.iter().any(|part| !matches!(part, Part::Text(_)))
            {
                self.weight -= weight::of_message(&Message::User(user.clone()));
                user.parts = vec![Part::Text(plain_text(&user.parts))];
                self.weight += weight::of_message(&Message::User(user.clone()));
            }
        }
    }

    /// Send the long results among the first `count` messages shortened, from now on; whether there were any. The log
    /// keeps them whole.
    pub fn age(&mut self, count: usize) -> bool {
        let mut any = false;
        for message in &mut self.messages[..count] {
            let before = weight::of_message(message);
            if ageing::shorten(message) {
                any = true;
                self.weight = self.weight - before + weight::of_message(message);
            }
        }
        let younger = self.messages.len() - count;
        let aged = self.outline().count.saturating_sub(younger);
        self.outline.aged = aged.max(self.outline.aged);
        any
    }

    /// Let `summary` stand for all messages but the last `keep`, which are of this turn. The log keeps everything; the summary is one more line in it.
    pub fn compact(&mut self, keep: usize, summary: Compaction) -> Result<()> {
        let from = self.outline().count.saturating_sub(keep);
        let summary = Compaction { from, ..summary };
        if let Some(log) = self.log.as_mut().filter(|log| log.file.is_some()) {
            let closing = Closing {
                turn: &self.turn,
                ending: line::COMPACTED,
                summary: Some(&summary),
            };
            log.close(&self.key, &closing, &|_, _| {})?;
        }
        let tail = self.messages.split_off(self.messages.len() - keep);
        self.messages = [summary.message()].into_iter().chain(tail).collect();
        self.weight = weight::of_messages(&self.messages);
        self.outline.start = from;
        self.summary = Some(summary);
        Ok(())
    }

    /// Log `message`, then remember it. A long tool result is cut first, so that log and memory agree.
    pub fn push(&mut self, mut message: Message) -> Result<()> {
        if let Message::Tool(result) = &mut message {
            cut(result, self.result_limit);
        }
        match &mut self.log {
            Some(log) => {
                let line = line::of_message(&message, &self.turn, &log.clock.stamp());
                log.append(&self.key, 1, |_| line.clone())?;
            }
            None => self.outline.count += 1,
        }
        self.weight += weight::of_message(&message);
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
    pub fn close(&mut self, ending: &str, stats: &Stats) -> Result<()> {
        let Outline { aged, ratio, .. } = self.outline;
        let closing = Closing {
            turn: &self.turn,
            ending,
            summary: None,
        };
        match &mut self.log {
            Some(log) if log.file.is_some() => log.close(&self.key, &closing, &|metadata, _| {
                metadata.change(|kept| {
                    kept.stats.add(stats);
                    (kept.aged, kept.ratio) = (aged, ratio);
                });
            }),
            _ => Ok(()),
        }
    }

    /// Send nothing of what was said so far. It stays in the log.
    pub fn start_afresh(&mut self) -> Result<()> {
        self.messages.clear();
        (self.weight, self.summary) = (0, None);
        let count = self.outline().count;
        (self.outline.consolidated, self.outline.start) = (count, count);
        let closing = Closing {
            turn: &self.turn,
            ending: "new",
            summary: None,
        };
        match &mut self.log {
            Some(log) if log.file.is_some() => {
                log.close(&self.key, &closing, &|metadata, count| {
                    let left = (metadata.last_consolidated, count);
                    if left.0 < left.1 {
                        metadata.change(|kept| kept.left.push(left));
                    }
                    metadata.consolidated(count);
                    metadata.summary_at = None;
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether its last turn stopped in the middle.
    pub fn interrupted(&self) -> bool {
        let is_summary = self.messages.len() == 1 && self.summary.is_some();
        match is_summary {
            true => !self.closed,
            false => history::is_interrupted(&self.messages),
        }
    }
}

/// Keep the beginning and the end of a result that is longer than `limit` characters.
fn cut(result: &mut ToolResult, limit: usize) {
    let text_only = result
        .parts
        .iter()
        .all(|part| matches!(part, Part::Text(_)));
    if !text_only {
        return;
    }
    let gap = |count: usize| format!("[… {count} characters left out …]");
    let text = plain_text(&result.parts);
    let Some(cut) = ends(&text, limit - limit / 4, limit / 4, gap) else {
        return;
    };
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
    /// Which file it is and how long, as far as we know.
    known: Known,
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
    lock: Lock,
}

/// What a file is known by: as long as it is the same, nobody else has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    device: u64,
    number: u64,
    size: u64,
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

/// How often is looked again at what others did meanwhile.
const TRIES: u32 = 16;

impl Log {
    fn open(
        place: &Place,
        key: &str,
        path: PathBuf,
        wait: Duration,
        notice: &mut dyn FnMut(&str),
    ) -> Result<(Self, Tail)> {
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
        mend(&file, guard, &self.path, &self.clock, notice)?;
        self.known = Known::from(&about(&file, &self.path)?);
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
    fn append(
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
                let before = match tries < TRIES {
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
        self.known = Known::from(&about(&file, &self.path)?);
        (self.file, self.fresh) = (Some(file), true);
        Ok(())
    }

    /// Write a closing line, with what `change` makes of the metadata and the number of messages.
    fn close(
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

/// The side file whose lock a turn holds. Its name must not end as sessions do.
fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Whether a newer release of this program wrote the file at `path`.
fn is_newer(path: &Path) -> Result<bool> {
    let Some(file) = store::open_existing(path)? else {
        return Ok(false);
    };
    let peeked = tail::peek(&file, path, whole_lines(&file, path)?)?;
    Ok(peeked.is_some_and(|tail| tail.metadata.is_newer()))
}

/// Write nothing to what a newer release of this program wrote.
///
/// # Errors
/// Status 78 where `is_newer`.
fn refuse_newer(is_newer: bool, path: &Path) -> Result<()> {
    if !is_newer {
        return Ok(());
    }
    let cause = format!(
        "a newer nanobot wrote `{}`, and this one only reads it",
        path.display()
    );
    let hint = "a newer nanobot, or another key with `-s`";
    Err(fail_hint(Exit::Config, cause, hint))
}

fn about(file: &File, path: &Path) -> Result<std::fs::Metadata> {
    file.metadata()
        .with_context(|| format!("look at `{}`", path.display()))
}

/// Where the last whole line ends.
fn whole_lines(file: &File, path: &Path) -> Result<u64> {
    let mut end = store::size(file, path)?;
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
fn mend(
    file: &File,
    guard: &File,
    path: &Path,
    clock: &Clock,
    notice: &mut dyn FnMut(&str),
) -> Result<()> {
    // Nearly always nothing is to be done, and no lock is needed to see it. What another program, which knows no locks,
    // was writing meanwhile is looked at again.
    for _ in 0..TRIES {
        if store::is_whole(file, path)? {
            return Ok(());
        }
        mend_once(file, guard, path, clock, notice)?;
    }
    Ok(())
}

fn mend_once(
    file: &File,
    guard: &File,
    path: &Path,
    clock: &Clock,
    notice: &mut dyn FnMut(&str),
) -> Result<()> {
    store::while_locked(guard, path, || {
        let (end, size) = (whole_lines(file, path)?, store::size(file, path)?);
        let what = || format!("read `{}`", path.display());
        let mut torn = Vec::new();
        if size - end <= tail::LINE_LIMIT {
            torn = vec![0; usize::try_from(size - end).with_context(what)?];
            file.read_exact_at(&mut torn, end).with_context(what)?;
        }
        if size == end {
            return Ok(());
        }
        if !matches!(line::parse(&torn), Line::Bad) {
            return store::append_to(file, path, size, b"\n");
        }
        let stamp: String = clock.stamp().chars().filter(char::is_ascii_digit).collect();
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".torn-{stamp}"));
        let aside = PathBuf::from(aside);
        let kept = store::open_log(&aside)?;
        let mut block = vec![0; 64 << 10];
        let mut at = end;
        while at < size {
            let count = file.read_at(&mut block, at).with_context(what)?;
            let kept_size = store::size(&kept, &aside)?;
            store::append_to(&kept, &aside, kept_size, &block[..count])?;
            if count == 0 {
                break;
            }
            at += count as u64;
        }
        if store::size(file, path)? != size {
            // Its line is not torn, but on its way.
            return Ok(());
        }
        // What is cut must be safe elsewhere first.
        store::sync(&kept, &aside)?;
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
