//! The belongings of a session or a sender: sessions, lines of logs, attachments, and references to them.

use super::content::{self, FileFormat};
use super::finding::{FindingAction, Findings};
use super::scan::{Member, Query};
use super::search::{Search, Subject};
use crate::ops::channel::attachments;
use crate::ops::channel::persona::UNIFIED_SESSION;
use crate::ops::jobs::{delivery, workspace_jobs};
use crate::ops::transcription::stored_text_path;
use anyhow::{Context as _, Result};
use nanobot_base::written_text::SearchText;
use nanobot_channel::approvals::ApprovalFile;
use nanobot_channel::inbox::{ChannelInbox, InboundEntry};
use nanobot_channel::pairing::PairingFile;
use nanobot_config::settings::Config;
use nanobot_config::settings::key_spelling::format_path;
use nanobot_cron::job::AnswerDestination;
use nanobot_os::durable_file::{self, is_temporary};
use nanobot_store::embedding_index;
use nanobot_store::memory::Version;
use nanobot_store::session;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The beginning of the keys of sessions that belong to a pipe. Its journal has the rest.
const PIPE_PREFIX: &str = "bus:";

impl Search<'_> {
    /// Finds the sessions that the sender wrote to.
    pub(super) fn find_sessions_of(&mut self, channel: &str, id: &str) -> Result<()> {
        let sender = format!("{channel}:{id}");
        // The senders of the messages of each session; `None` is a person at this machine, a job, or unknown.
        let mut senders: BTreeMap<String, BTreeSet<Option<String>>> = BTreeMap::new();
        // The sessions of direct chats with the sender.
        let mut direct = BTreeSet::from([sender.clone()]);
        senders.entry(sender.clone()).or_default().insert(Some(sender.clone()));
        let inbox = ChannelInbox::read(&self.ctx.paths.channels().join(channel))?;
        for entry in inbox.inbound {
            if entry.message.chat.is_direct && entry.message.from.id == id {
                direct.insert(entry.session.clone());
            }
            let from = format!("{channel}:{}", entry.message.from.id);
            senders.entry(entry.session).or_default().insert(Some(from));
        }
        let ledger = durable_file::read(&self.ledger())?;
        for line in ledger.unwrap_or_default().split(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(line).unwrap_or_default();
            if let Some(session) = line["session"].as_str() {
                let from = line["sender"].as_str().map(str::to_owned);
                senders.entry(session.to_owned()).or_default().insert(from);
            }
        }
        for (session, mut senders) in senders {
            if senders.remove(&Some(sender.clone())) {
                // A text that the owner wrote to a direct chat belongs to it.
                let is_own = senders.iter().all(|from| from.is_none() && direct.contains(&session));
                if is_own { &mut self.session_keys } else { &mut self.shared_session_keys }
                    .push(session);
            }
        }
        self.shared_session_keys.push(UNIFIED_SESSION.to_owned());
        Ok(())
    }

    /// The query for the lines of the file at `path` that belong to the subject.
    pub(super) fn members(&self, path: &Path) -> Query {
        let member = |parent: Option<&'static str>, key, value: &str| Member {
            parent,
            key,
            value: value.to_owned(),
        };
        let mut members = Vec::new();
        for key in &self.session_keys {
            for name in self.names_of_session(path, key) {
                members.extend(["session", "session_key"].map(|key| member(None, key, name)));
            }
            if is_temporary(path) {
                members.extend(["key", "fork_of"].map(|name| member(None, name, key)));
            }
        }
        if let Subject::Sender { channel, id } = self.subject {
            members.push(member(None, "sender", &format!("{channel}:{id}")));
            // Without the channel, an id may be that of another person.
            if self.channel_of(path).as_ref() == Some(channel) {
                members.extend(["from", "sender"].map(|parent| member(Some(parent), "id", id)));
            }
        }
        Query::Members(members)
    }

    /// The names of the session `key` in the file at `path`. In the journal of a pipe, its own sessions have no prefix.
    fn names_of_session<'k>(&self, path: &Path, key: &'k str) -> Vec<&'k str> {
        if !path.starts_with(self.ctx.paths.pipes()) {
            return vec![key];
        }
        let is_of_pipe = || {
            let path = session::session_path(&self.sessions, &format!("{PIPE_PREFIX}{key}"));
            path.is_ok_and(|path| path.exists())
        };
        match key.strip_prefix(PIPE_PREFIX) {
            Some(name) => vec![name, key],
            None if is_of_pipe() => Vec::new(),
            None => vec![key],
        }
    }

    /// The action for a file with lines of the subject: messages that wait for an answer or a delivery stay until then.
    pub(super) fn require_settled(&self, path: &Path) -> Result<FindingAction> {
        let is_inbox = path.ends_with(ChannelInbox::FILE_NAME);
        let directory = path.parent().filter(|_| is_inbox && !self.is_text());
        let Some(directory) = directory else {
            return Ok(FindingAction::Overwrite);
        };
        let inbox = ChannelInbox::read(directory)?;
        let channel = self.channel_of(path);
        let is_removed = |session: &str| {
            self.session_keys.iter().any(|key| self.names_of_session(path, key).contains(&session))
        };
        let waits = inbox.unanswered().any(|entry| {
            is_removed(&entry.session)
                || channel.is_some() && self.is_ours(entry, channel.as_deref())
        }) || inbox.undelivered().any(|entry| is_removed(&entry.message.session));
        Ok(if waits {
            FindingAction::Keep("a message waits for its answer".into())
        } else {
            FindingAction::Overwrite
        })
    }

    /// True for a message of the sender, or of a session that is removed.
    fn is_ours(&self, entry: &InboundEntry, inbox_channel: Option<&str>) -> bool {
        let from = &entry.message.from;
        let is_from_sender = matches!(self.subject, Subject::Sender { channel, id } if inbox_channel == Some(channel) && from.id == *id);
        is_from_sender || self.session_keys.contains(&entry.session)
    }

    /// Adds the attachments of the subject among `paths`, with the texts of recordings.
    pub(super) fn add_attachments(
        &self,
        findings: &mut Findings,
        paths: &BTreeSet<PathBuf>,
    ) -> Result<()> {
        let stored = self.stored_attachments()?;
        let copies = self.copies_of_sessions()?;
        let media = self.ctx.paths.media();
        for path in paths.iter().filter(|path| path.starts_with(&media)) {
            // The text of a recording goes with it.
            let recording = path.with_extension("");
            let is_text = *path == stored_text_path(&recording);
            let attachment = if is_text { &recording } else { path };
            let is_ours = match stored.get(attachment) {
                Some(is_ours) => *is_ours,
                None if is_text => self.has_transcription(&copies, path)?,
                None => {
                    let text = stored_text_path(path);
                    self.is_named(&copies, &path.display().to_string())?
                        || paths.contains(&text) && self.has_transcription(&copies, &text)?
                }
            };
            if is_ours {
                findings.add(path, FindingAction::Remove);
            }
        }
        Ok(())
    }

    /// Adds the recordings of texts that are removed, and the other way round.
    pub(super) fn add_recordings(&self, findings: &mut Findings) {
        let media = self.ctx.paths.media();
        for path in findings.removed_paths().iter().filter(|path| path.starts_with(&media)) {
            let recording = path.with_extension("");
            let is_text = *path == stored_text_path(&recording);
            let other = if is_text { recording } else { stored_text_path(path) };
            if other.is_file() {
                findings.add(&other, FindingAction::Remove);
            }
        }
    }

    /// The attachments of messages that inboxes know, and whether they are of the subject.
    fn stored_attachments(&self) -> Result<BTreeMap<PathBuf, bool>> {
        let mut stored = BTreeMap::new();
        let media = self.ctx.paths.media();
        for directory in durable_file::list_dir(&self.ctx.paths.channels())? {
            let name = directory.file_name().to_string_lossy().into_owned();
            for entry in ChannelInbox::read(&directory.path())?.inbound {
                let is_ours = self.is_ours(&entry, Some(&name));
                for file in &entry.message.files {
                    let path = attachments::attachment_path(&media.join(&name), file);
                    *stored.entry(path).or_default() |= is_ours;
                }
            }
        }
        Ok(stored)
    }

    /// True if a session has the text of the recording, as a message of its own chat.
    fn has_transcription(&self, copies: &[PathBuf], path: &Path) -> Result<bool> {
        let media = self.ctx.paths.media();
        let channel = path.strip_prefix(media).ok().and_then(|path| path.iter().next());
        let prefix = format!("{}:", channel.unwrap_or_default().to_string_lossy());
        let text = durable_file::read(path)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        Ok(self.session_keys.iter().any(|key| key.starts_with(&prefix))
            && !text.trim().is_empty()
            && self.is_named(copies, &format!("[transcription: {}]", text.trim()))?)
    }

    fn is_named(&self, copies: &[PathBuf], text: &str) -> Result<bool> {
        let query = Query::Text(SearchText::new(text));
        for copy in copies {
            let file = durable_file::open_existing(copy)?;
            let scan = file.map(|file| content::scan(&query, &file, FileFormat::JsonLines));
            if scan.transpose()?.is_some_and(|scan| scan.count > 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The files of the sessions that are removed, also those in the trash.
    fn copies_of_sessions(&self) -> Result<Vec<PathBuf>> {
        let mut copies = Vec::new();
        for key in &self.session_keys {
            copies.push(session::session_path(&self.sessions, key)?);
        }
        copies.retain(|path| path.exists());
        let trashed = session::list_trash(&self.sessions)?.into_iter();
        let trashed = trashed.filter(|trashed| self.session_keys.contains(&trashed.key));
        copies.extend(trashed.map(|trashed| trashed.path));
        Ok(copies)
    }

    /// Adds the sessions that are removed, and those of the sender that stay.
    pub(super) fn add_sessions(&self, findings: &mut Findings) -> Result<()> {
        let trash = session::list_trash(&self.sessions)?;
        let versions = self.memory.versions()?;
        let summaries = session::list(&self.sessions)?.sessions;
        for key in &self.session_keys {
            let path = session::session_path(&self.sessions, key)?;
            let trashed = trash.iter().filter(|trashed| trashed.key == *key);
            let trashed = trashed.map(|trashed| trashed.path.clone());
            for copy in Some(path).filter(|path| path.exists()).into_iter().chain(trashed) {
                findings.add(&copy, FindingAction::RemoveSession(key.clone()));
            }
            let has_session = |version: &Version| version.session.as_deref() == Some(key);
            if versions.iter().any(has_session) {
                let reason = "facts from the session, which are not known by their source: `nanobot memory show`";
                findings.keep(&self.memory.path(), reason);
            }
            let is_fork =
                |summary: &&session::SessionSummary| summary.fork_of.as_ref() == Some(key);
            for fork in summaries.iter().filter(is_fork) {
                let reason = format!("a fork of it: `nanobot forget --session {}`", fork.key);
                findings.keep(&fork.path, reason);
            }
        }
        for key in &self.shared_session_keys {
            let path = session::session_path(&self.sessions, key)?;
            if path.exists() {
                let reason = "others wrote to this session too, or may have: `nanobot forget TEXT`";
                findings.keep(&path, reason);
            }
        }
        Ok(())
    }

    /// Adds the files that have texts of removed sessions without their names.
    pub(super) fn add_unattributed(&self, findings: &mut Findings) {
        let removed_keys = findings.changed().filter_map(|finding| match &finding.action {
            FindingAction::RemoveSession(key) => Some(key.as_str()),
            _ => None,
        });
        // Only sessions with such keys are used at a terminal.
        let is_used_at_terminal = |key: &str| key.starts_with("cli:") || !key.contains(':');
        let (mut is_any_removed, mut is_typed_removed) = (false, false);
        for key in removed_keys {
            is_any_removed = true;
            is_typed_removed |= is_used_at_terminal(key);
        }
        let index = self.sessions.directory().join(embedding_index::FILE_NAME);
        if is_any_removed && index.exists() {
            findings.add(&index, FindingAction::Remove);
        }
        let mut keep = |path: &Path, reason: &str| {
            if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
                findings.keep(path, reason);
            }
        };
        if is_any_removed {
            for history in self.memory.history_files() {
                keep(&history, "entries about all sessions: `nanobot forget TEXT`");
            }
        }
        if is_typed_removed {
            keep(
                &self.ctx.paths.history(),
                "what was typed in all sessions: `nanobot forget TEXT`",
            );
        }
    }

    /// Adds the file of approvals at `path`, if it has some of the subject.
    pub(super) fn add_approvals(&self, findings: &mut Findings, path: &Path) -> Result<()> {
        let now = self.ctx.clock.timestamp().as_millisecond();
        let count = self.remove_approvals(path, &mut ApprovalFile::load(path, now)?);
        if count > 0 {
            findings.add(path, FindingAction::RemoveApprovals).add_occurrences(count, "");
        }
        Ok(())
    }

    /// Removes the subject's questions and lasting approvals from the `file` at `path`. Returns their number.
    pub(super) fn remove_approvals(&self, path: &Path, file: &mut ApprovalFile) -> usize {
        let file_channel = self.channel_of(path);
        let is_from_sender = |sender: Option<&str>| match self.subject {
            Subject::Sender { channel, id } => {
                file_channel.as_ref() == Some(channel) && sender == Some(id.as_str())
            }
            Subject::Text(_) | Subject::Session(_) => false,
        };
        let is_removed = |session: &str| {
            self.session_keys.iter().any(|key| self.names_of_session(path, key).contains(&session))
        };
        file.remove(|session, sender| is_from_sender(sender) || is_removed(session))
    }

    /// Adds what refers to the sender: the pairing, the config, and jobs.
    pub(super) fn add_references(&self, findings: &mut Findings) -> Result<()> {
        let Subject::Sender { channel, id } = self.subject else {
            return Ok(());
        };
        let path = self.ctx.paths.pairing();
        if PairingFile::load(&path)?.remove_sender(channel, id) {
            findings.add(&path, FindingAction::Unpair).add_occurrences(1, "");
        }
        let config = Config::load(&self.ctx.paths)?;
        let key = ["channels", channel, "allowFrom"].map(str::to_owned);
        let allowed = config.get_path(&format_path(&key)).and_then(Value::as_array);
        let is_listed = |entry: &Value| match entry {
            Value::String(text) => text == id,
            Value::Number(number) => number.to_string() == *id,
            _ => false,
        };
        if allowed.is_some_and(|entries| entries.iter().any(is_listed)) {
            let reason = format!("the sender may still write: `{}`", format_path(&key));
            findings.keep(config.path(), reason);
        }
        let settings = self.ctx.settings()?;
        let store = workspace_jobs::open(self.ctx, &settings);
        for job in store.jobs().context("read the jobs")? {
            let is_sent_there = |destination| matches!(destination, AnswerDestination::Chat { channel: name, to } if name == *channel && to == *id);
            if delivery::find_destination(self.ctx, &job).is_some_and(is_sent_there) {
                let reason =
                    format!("a job sends its answers there: `nanobot cron edit {}`", job.id);
                findings.keep(store.job_file(), reason);
            }
        }
        Ok(())
    }
}
