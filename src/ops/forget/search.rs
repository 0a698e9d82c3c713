//! A search: its subject, and where it looks.

use super::scan::Query;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::written_text::SearchText;
use nanobot_store::memory::Memory;
use nanobot_store::session::SessionStore;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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

/// A search for a subject in all files of this program.
pub(crate) struct Search<'a> {
    pub(super) ctx: &'a Context,
    pub(super) subject: &'a Subject,
    pub(super) sessions: SessionStore,
    pub(super) memory: Memory,
    pub(super) workspace: PathBuf,
    /// Further files to look in.
    pub(super) files: Vec<PathBuf>,
    /// The sessions that are removed.
    pub(super) session_keys: Vec<String>,
    /// The sessions of the sender in which others wrote too.
    pub(super) shared_session_keys: Vec<String>,
}

impl<'a> Search<'a> {
    /// Prepares a search. `files` are searched too.
    ///
    /// # Errors
    /// Status 66 if one of `files` is missing; the config, the ledger or the inbox of the sender's channel cannot be read.
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
            files: files.iter().map(|file| real_file(file)).collect::<Result<_>>()?,
            session_keys: Vec::new(),
            shared_session_keys: Vec::new(),
        };
        match subject {
            Subject::Text(_) => {}
            Subject::Session(key) => search.session_keys.push(key.clone()),
            Subject::Sender { channel, id } => search.find_sessions_of(channel, id)?,
        }
        Ok(search)
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.subject, Subject::Text(_))
    }

    /// The query for the file at `path`.
    pub(super) fn query(&self, path: &Path) -> Query {
        match self.subject {
            Subject::Text(text) => Query::Text(SearchText::new(text)),
            Subject::Session(_) | Subject::Sender { .. } => self.members(path),
        }
    }

    pub(super) fn ledger(&self) -> PathBuf {
        self.ctx.paths.root.join("usage.jsonl")
    }
}

/// The real path of a file that the user named.
///
/// # Errors
/// Status 66 if it is missing or no file.
fn real_file(path: &Path) -> Result<PathBuf> {
    let name = path.display();
    let real = match std::fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(fail(Exit::NoInput, format!("no such file: `{name}`")));
        }
        real => real.with_context(|| format!("open `{name}`"))?,
    };
    if !real.is_file() {
        let cause = format!("`{name}` is not a regular file");
        return Err(fail(Exit::NoInput, cause).with_hint("its files, one by one"));
    }
    Ok(real)
}
