//! Removal of a text, a session or a sender from the files of this program.
//!
//! The table of documented paths says what happens to each file. A text is overwritten in place with as many bytes: lengths,
//! offsets and formats stay as they are, other processes go on with the files that they have open, and a run that is killed
//! leaves nothing but a part of the work, which the next one finishes. Each file is changed under the lock of its writers.

mod scan;

use crate::ops::consolidation::memory_edit;
use crate::ops::context::Context;
use crate::ops::owned_path::documented_path;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, exit_for, fail};
use nanobot_channel::inbox::ChannelInbox;
use nanobot_channel::pairing::PairingFile;
use nanobot_os::durable_file;
use nanobot_os::file_lock::{FileLock, with_lock};
use nanobot_os::paths::{Erasure, is_generated_dir};
use nanobot_os::signal;
use nanobot_store::memory::{Memory, Version};
use nanobot_store::session::{self, SessionStore};
use nanobot_tool::undo::{self, journal::JOURNAL_FILE};
use scan::{Member, Query, Scan};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The reason to keep what is in names and identifiers.
const IN_NAMES: &str =
    "in keys and names; `--session` and `--sender` remove those of sessions and senders";

/// Files that would be kept are not searched if they are larger.
const MAX_KEPT_FILE_BYTES: u64 = 64 << 20;

/// That which is to be removed.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    Text(String),
    /// The key of a session.
    Session(String),
    Sender {
        channel: String,
        id: String,
    },
}

/// A file in which the subject occurs.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) path: PathBuf,
    pub(crate) action: FindingAction,
    pub(crate) count: usize,
    /// The first occurrence, with the text around it.
    pub(crate) excerpt: String,
}

/// The effect of the removal on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FindingAction {
    /// The occurrences are overwritten.
    Overwrite,
    /// The file or the directory is removed.
    Remove,
    /// The session is removed, with its copies and side files.
    RemoveSession(String),
    /// The sender is removed from the file of pairings.
    Unpair,
    /// Nothing is changed, for this reason.
    Keep(String),
}

/// Findings by path. A file of which a part is kept has a second one.
type Findings = BTreeMap<(PathBuf, bool), Finding>;

/// The result of a removal.
pub(crate) struct Erased {
    pub(crate) findings: Vec<Finding>,
    /// The status, if a file that should have been changed was kept.
    pub(crate) failure: Option<Exit>,
}

/// A search for a subject in all files of this program.
pub(crate) struct Search<'a> {
    ctx: &'a Context,
    subject: &'a Subject,
    sessions: SessionStore,
    memory: Memory,
    workspace: PathBuf,
    /// Further files to look in.
    files: &'a [PathBuf],
    query: Query,
    /// The sessions that are removed.
    session_keys: Vec<String>,
    /// The sessions of the sender in which others wrote too.
    shared_session_keys: Vec<String>,
}

impl<'a> Search<'a> {
    /// Prepares a search. `files` are searched too.
    ///
    /// # Errors
    /// The config, the ledger or the inbox of the sender's channel cannot be read.
    pub(crate) fn new(
        ctx: &'a Context,
        subject: &'a Subject,
        files: &'a [PathBuf],
    ) -> Result<Self> {
        let settings = ctx.settings()?;
        let mut search = Self {
            ctx,
            subject,
            sessions: ctx.session_store(&settings)?,
            memory: Memory::new(&settings.workspace, &ctx.clock),
            workspace: settings.workspace,
            files,
            query: Query::Members(Vec::new()),
            session_keys: Vec::new(),
            shared_session_keys: Vec::new(),
        };
        match subject {
            Subject::Text(text) => search.query = Query::Text(text.clone()),
            Subject::Session(key) => search.session_keys.push(key.clone()),
            Subject::Sender { channel, id } => search.find_sessions_of(channel, id)?,
        }
        if !matches!(subject, Subject::Text(_)) {
            search.query = Query::Members(search.members());
        }
        Ok(search)
    }

    /// Finds the sessions that the sender wrote to.
    fn find_sessions_of(&mut self, channel: &str, id: &str) -> Result<()> {
        let sender = format!("{channel}:{id}");
        let mut senders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        // The session of a direct chat with the sender.
        senders.entry(sender.clone()).or_default().insert(sender.clone());
        let inbox = ChannelInbox::read(&self.ctx.paths.channels().join(channel))?;
        for entry in inbox.inbound {
            let from = format!("{channel}:{}", entry.message.from.id);
            senders.entry(entry.session).or_default().insert(from);
        }
        let ledger = durable_file::read(&self.ledger())?;
        for line in ledger.unwrap_or_default().split(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(line).unwrap_or_default();
            if let (Some(from), Some(session)) = (line["sender"].as_str(), line["session"].as_str())
            {
                senders.entry(session.to_owned()).or_default().insert(from.to_owned());
            }
        }
        for (session, senders) in senders {
            if senders.contains(&sender) {
                let is_shared = senders.len() > 1;
                if is_shared { &mut self.shared_session_keys } else { &mut self.session_keys }
                    .push(session);
            }
        }
        Ok(())
    }

    /// The members of lines that belong to the subject.
    fn members(&self) -> Vec<Member> {
        let member = |parent, key, value: &str| Member { parent, key, value: value.to_owned() };
        let mut members = Vec::new();
        for key in &self.session_keys {
            members.extend(["session", "session_key"].map(|name| member("", name, key)));
        }
        if let Subject::Sender { channel, id } = self.subject {
            members.push(member("", "sender", &format!("{channel}:{id}")));
            members.extend(["from", "sender"].map(|parent| member(parent, "id", id)));
        }
        members
    }

    /// Lists the files in which the subject occurs, in the order of their paths.
    ///
    /// # Errors
    /// A file or a directory cannot be read.
    pub(crate) fn find(&self) -> Result<Vec<Finding>> {
        let mut findings = Findings::new();
        let paths = self.paths()?;
        for path in &paths {
            signal::check()?;
            self.add_file(&mut findings, path)?;
        }
        for key in &self.session_keys {
            self.add_session(&mut findings, key, &paths)?;
        }
        for key in &self.shared_session_keys {
            let reason = "others wrote to this session too: `nanobot forget TEXT`".to_owned();
            let path = session::session_path(&self.sessions, key)?;
            if path.exists() {
                add(&mut findings, &path, FindingAction::Keep(reason), 0, "");
            }
        }
        if let Subject::Sender { channel, id } = self.subject {
            let path = self.ctx.paths.pairing();
            if PairingFile::load(&path)?.remove_sender(channel, id) {
                add(&mut findings, &path, FindingAction::Unpair, 1, "");
            }
        }
        Ok(findings.into_values().collect())
    }

    /// All files that may contain the subject.
    fn paths(&self) -> Result<Vec<PathBuf>> {
        let mut directories = vec![self.ctx.paths.root.clone()];
        if !self.workspace.starts_with(&self.ctx.paths.root) {
            directories.push(self.workspace.clone());
        }
        let outside = |path: &&Path| {
            !path.starts_with(&self.ctx.paths.root) && !path.starts_with(&self.workspace)
        };
        directories.extend(self.sessions.directories().filter(outside).map(Path::to_owned));
        let worktrees = self.ctx.paths.worktrees();
        let mut paths = self.files.to_vec();
        while let Some(directory) = directories.pop() {
            let entries = match std::fs::read_dir(&directory) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                entries => entries.with_context(|| format!("list `{}`", directory.display()))?,
            };
            for entry in entries {
                let entry = entry.with_context(|| format!("list `{}`", directory.display()))?;
                let path = entry.path();
                let kind =
                    entry.file_type().with_context(|| format!("stat `{}`", path.display()))?;
                if kind.is_dir() && path != worktrees && !is_generated_dir(&path) {
                    directories.push(path);
                } else if (kind.is_file() || (kind.is_symlink() && path.is_file()))
                    && !is_lock_file(&path)
                {
                    paths.push(path);
                }
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// The treatment of the file at `path`, and the path of the file or directory that is treated so.
    fn erasure(&self, path: &Path) -> (Erasure, PathBuf) {
        if self.files.iter().any(|file| file == path) || self.is_session_file(path) {
            return (Erasure::Overwrite, path.to_owned());
        }
        let workspace_name = Path::new("workspace");
        let relative =
            match (path.strip_prefix(&self.workspace), path.strip_prefix(&self.ctx.paths.root)) {
                (Ok(relative), _) => workspace_name.join(relative),
                (_, Ok(relative)) => relative.to_owned(),
                _ => return (Erasure::Keep("not written by nanobot"), path.to_owned()),
            };
        let is_note = path.extension().is_some_and(|kind| kind == "md" || kind == "jsonl");
        let parent = relative.parent().unwrap_or(Path::new(""));
        if is_note && [workspace_name, Path::new("workspace/memory")].contains(&parent) {
            return (Erasure::Overwrite, path.to_owned());
        }
        match documented_path(&relative) {
            Some(location) => {
                let above = relative.components().count() - location.depth;
                let documented = path.ancestors().nth(above).unwrap_or(path);
                (location.documented.erasure, documented.to_owned())
            }
            None => (Erasure::Keep("not written by nanobot"), path.to_owned()),
        }
    }

    /// True for a session and its side files, in a directory of any release.
    fn is_session_file(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_below = |directory: &Path| path.starts_with(directory);
        name.contains(".jsonl")
            && !name.ends_with(".lock")
            && self.sessions.directories().any(is_below)
    }

    /// Adds what the file at `path` contains.
    fn add_file(&self, findings: &mut Findings, path: &Path) -> Result<()> {
        let (erasure, documented) = self.erasure(path);
        let is_text = matches!(self.query, Query::Text(_));
        let is_searched = match erasure {
            Erasure::Overwrite => true,
            Erasure::RemoveFile => is_text,
            // Beside the journal, such a directory has copies of other files.
            Erasure::RemoveDirectory => {
                is_text || path.file_name().is_some_and(|name| name == JOURNAL_FILE)
            }
            Erasure::Keep(_) => is_text && size_of(path) <= MAX_KEPT_FILE_BYTES,
        };
        if !is_searched {
            return Ok(());
        }
        let Some(bytes) = read_regular(path)? else {
            return Ok(());
        };
        let Scan { ranges, mut count, excerpt, format_count, outputs } = self.query.scan(&bytes);
        let excerpt = if is_text { excerpt } else { String::new() };
        for output in outputs.iter().map(Path::new).filter(|output| output.exists()) {
            add(findings, output, FindingAction::Remove, 0, "");
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_named = match &self.query {
            Query::Text(text) => name.contains(&text.to_lowercase()),
            Query::Members(_) => false,
        };
        match erasure {
            Erasure::Overwrite => {
                if !ranges.is_empty() {
                    let action = self.require_settled(path)?;
                    add(findings, path, action, count, &excerpt);
                }
                let format_count = format_count + usize::from(is_named);
                if format_count > 0 {
                    add(findings, path, FindingAction::Keep(IN_NAMES.into()), format_count, "");
                }
                return Ok(());
            }
            _ => count += format_count + usize::from(is_named),
        }
        if count > 0 {
            let (path, action) = match erasure {
                Erasure::RemoveDirectory => (documented.as_path(), FindingAction::Remove),
                Erasure::Keep(reason) => (path, FindingAction::Keep(reason.to_owned())),
                _ => (path, FindingAction::Remove),
            };
            add(findings, path, action, count, &excerpt);
        }
        Ok(())
    }

    /// The action for a file with lines of the subject: messages that wait for an answer or a delivery stay until then.
    fn require_settled(&self, path: &Path) -> Result<FindingAction> {
        let is_inbox = path.file_name().is_some_and(|name| name == ChannelInbox::FILE_NAME);
        let directory = path.parent().filter(|_| is_inbox && !matches!(self.query, Query::Text(_)));
        let Some(directory) = directory else {
            return Ok(FindingAction::Overwrite);
        };
        let inbox = ChannelInbox::read(directory)?;
        let is_ours = |session: &String| {
            self.session_keys.contains(session) || self.shared_session_keys.contains(session)
        };
        let waits = inbox.unanswered().any(|entry| is_ours(&entry.session))
            || inbox.undelivered().any(|entry| is_ours(&entry.message.session));
        Ok(if waits {
            FindingAction::Keep("a message waits for its answer".into())
        } else {
            FindingAction::Overwrite
        })
    }

    /// Adds the session `key`, and the attachments among `paths` that it names.
    fn add_session(&self, findings: &mut Findings, key: &str, paths: &[PathBuf]) -> Result<()> {
        let path = session::session_path(&self.sessions, key)?;
        let trashed = session::list_trash(&self.sessions)?;
        let trashed = trashed.into_iter().filter(|trashed| trashed.key == key);
        let copies: Vec<PathBuf> = Some(path)
            .filter(|path| path.exists())
            .into_iter()
            .chain(trashed.map(|trashed| trashed.path))
            .collect();
        let media = self.ctx.paths.media();
        for copy in &copies {
            let bytes = read_regular(copy)?.unwrap_or_default();
            for attachment in paths.iter().filter(|path| path.starts_with(&media)) {
                let name = Query::Text(attachment.display().to_string());
                if name.scan(&bytes).count > 0 {
                    add(findings, attachment, FindingAction::Remove, 0, "");
                }
            }
        }
        if let Some(copy) = copies.first() {
            add(findings, copy, FindingAction::RemoveSession(key.to_owned()), 0, "");
        }
        let has_session = |version: &Version| version.session.as_deref() == Some(key);
        if self.memory.versions()?.iter().any(has_session) {
            let reason = "facts from the session, which are not known by their source: `nanobot memory show`";
            add(findings, &self.memory.path(), FindingAction::Keep(reason.into()), 0, "");
        }
        Ok(())
    }

    /// Carries out the actions. A file that cannot be changed is kept, with the reason.
    ///
    /// # Errors
    /// A session is in use, and nothing else was changed; or the run is being stopped.
    pub(crate) fn erase(&self, mut findings: Vec<Finding>) -> Result<Erased> {
        signal::install(None).context("wait for signals")?;
        // The sessions come first: if one is in use, nothing else of it is changed. The ledger, which tells what belongs to a sender, comes
        // last, so that the work of a run that was killed can be finished.
        let rank = |finding: &Finding| match finding.action {
            FindingAction::RemoveSession(_) => 0,
            _ if finding.path == self.ledger() => 2,
            _ => 1,
        };
        findings.sort_by_key(rank);
        let is_memory = |finding: &Finding| {
            finding.action == FindingAction::Overwrite && self.is_memory_file(&finding.path)
        };
        // All files of the memory change under one lock.
        let memory_lock = findings
            .iter()
            .any(is_memory)
            .then(|| memory_edit::lock(self.ctx, &self.memory, &self.sessions, Duration::ZERO));
        let mut failure = None;
        for finding in &mut findings {
            signal::check()?;
            let result = match &memory_lock {
                Some(Err(error)) if is_memory(finding) => {
                    Err(fail(exit_for(error), format!("{error:#}")))
                }
                _ => self.erase_one(finding),
            };
            match result {
                Err(error) if matches!(finding.action, FindingAction::RemoveSession(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    // To try again helps only for files in use.
                    failure =
                        failure.filter(|exit| *exit == Exit::TryAgain).or(Some(exit_for(&error)));
                    finding.action = FindingAction::Keep(format!("{error:#}"));
                }
                Ok(()) => {}
            }
        }
        Ok(Erased { findings, failure })
    }

    fn ledger(&self) -> PathBuf {
        self.ctx.paths.root.join("usage.jsonl")
    }

    fn is_memory_file(&self, path: &Path) -> bool {
        path.starts_with(self.workspace.join("memory")) || path == self.memory.path()
    }

    fn erase_one(&self, finding: &Finding) -> Result<()> {
        let Finding { path, action, .. } = finding;
        match action {
            FindingAction::Keep(_) => Ok(()),
            FindingAction::Overwrite => {
                let _lock = self.lock_of(path)?;
                self.overwrite(path)
            }
            FindingAction::RemoveSession(key) => session::remove(&self.sessions, key),
            FindingAction::Unpair => {
                let Subject::Sender { channel, id } = self.subject else {
                    return Ok(());
                };
                PairingFile::change(path, |file| Ok(file.remove_sender(channel, id))).map(drop)
            }
            FindingAction::Remove => {
                let result = if path.is_dir() {
                    refuse_running_turn(path)?;
                    std::fs::remove_dir_all(path)
                } else {
                    std::fs::remove_file(path)
                };
                match result {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    result => result.with_context(|| format!("remove `{}`", path.display())),
                }
            }
        }
    }

    /// Takes the lock that a process holds while it has the content of the file at `path` in memory. The lock of an append is taken
    /// when the file is overwritten.
    ///
    /// # Errors
    /// Status 75 if it is in use.
    fn lock_of(&self, path: &Path) -> Result<Option<FileLock>> {
        let is_session =
            self.is_session_file(path) && path.extension().is_some_and(|kind| kind == "jsonl");
        let is_inbox = path.file_name().is_some_and(|name| name == ChannelInbox::FILE_NAME);
        let lock_path = if is_session {
            PathBuf::from(format!("{}.lock", path.display()))
        } else if is_inbox {
            path.with_file_name("lock")
        } else {
            return Ok(None);
        };
        let now = self.ctx.clock.local_timestamp();
        FileLock::acquire(&lock_path, "it", Some(&now), Duration::ZERO, &mut |_| {}).map(Some)
    }

    /// Overwrites the occurrences in the file at `path`.
    fn overwrite(&self, path: &Path) -> Result<()> {
        let metadata =
            std::fs::metadata(path).with_context(|| format!("stat `{}`", path.display()))?;
        if metadata.permissions().readonly() {
            return Err(fail(Exit::Io, "it is read-only"));
        }
        // Newer releases of the Python program have one lock for all sessions.
        let shared_lock = File::open(path.with_file_name(".session-files.lock")).ok();
        loop {
            let file = OpenOptions::new().read(true).write(true).open(path);
            let file = file.with_context(|| format!("open `{}`", path.display()))?;
            let write = || with_lock(&file, path, || self.overwrite_locked(&file, path));
            let is_written = match &shared_lock {
                Some(lock) if self.is_session_file(path) => with_lock(lock, path, write)?,
                _ => write()?,
            };
            if is_written {
                return Ok(());
            }
        }
    }

    /// Returns false if another process has replaced the file.
    fn overwrite_locked(&self, file: &File, path: &Path) -> Result<bool> {
        let context = || format!("overwrite `{}`", path.display());
        let metadata = file.metadata().with_context(context)?;
        if metadata.nlink() == 0 {
            return Ok(false);
        }
        let size = metadata.len();
        let mut bytes = vec![0; usize::try_from(size)?];
        file.read_exact_at(&mut bytes, 0).with_context(context)?;
        for range in self.query.scan(&bytes).ranges {
            let stars = vec![b'*'; range.len()];
            file.write_all_at(&stars, range.start as u64).with_context(context)?;
        }
        // The session was not used by this.
        let modified = metadata.modified().with_context(context)?;
        file.set_modified(modified).with_context(context)?;
        file.sync_all().with_context(context)?;
        Ok(true)
    }
}

/// Adds an occurrence to the finding for `path`, which is created if there is none.
fn add(findings: &mut Findings, path: &Path, action: FindingAction, count: usize, excerpt: &str) {
    let key = (path.to_owned(), matches!(action, FindingAction::Keep(_)));
    let new_finding =
        || Finding { path: path.to_owned(), action, count: 0, excerpt: String::new() };
    let finding = findings.entry(key).or_insert_with(new_finding);
    finding.count += count;
    if finding.excerpt.is_empty() {
        finding.excerpt = excerpt.to_owned();
    }
}

fn is_lock_file(path: &Path) -> bool {
    path.extension().is_some_and(|kind| kind == "lock") || path.ends_with("lock")
}

/// The size of the file at `path`, in bytes; 0 if there is none.
fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Reads a regular file; `None` if it was removed meanwhile.
fn read_regular(path: &Path) -> Result<Option<Vec<u8>>> {
    durable_file::read_limited(path, u64::MAX)
}

/// # Errors
/// Status 75 if the turn whose changes are in `directory` is still running.
fn refuse_running_turn(directory: &Path) -> Result<()> {
    if undo::journal::is_running(directory) {
        return Err(fail(Exit::TryAgain, "its turn is running"));
    }
    Ok(())
}
