//! `/rewind` and Esc Esc: the conversation goes back to before the last message, which can then be edited. Session files are only
//! appended to, so the conversation continues in a copy of what is kept, and all of it stays under another key.

use super::repl_session::ReplSession;
use crate::ops::undo;
use anyhow::Result;
use nanobot_agent::report::short_text::count_noun;
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_os::secret::random_hex;
use nanobot_store::session::{self, LoggedMessage, SessionEntry, SessionStore};
use nanobot_tool::undo::journal::UndoTurn;

impl ReplSession<'_> {
    /// Goes back to before the last message, whose text becomes the next input. The user is asked about the file changes of its turn.
    pub(super) fn rewind(&mut self) -> Result<()> {
        let key = self.stored_key(self.options.session.key.as_deref())?;
        let store = self.session_store()?;
        let nothing = || fail(Exit::NoInput, "there is no message to edit in this session");
        // A message before `/new` is not part of the conversation any more.
        let session = self.read_session(&key)?;
        let stored_text = session.last_user_text().ok_or_else(nothing)?;
        let turn = last_turn(&store, &key)?;
        let first = turn.first().ok_or_else(nothing)?;
        let text = match &self.last_message {
            // Without the text of attachments.
            Some(text) if self.is_last_message_typed && stored_text.contains(text) => text.clone(),
            _ if session.is_last_user_text_typed() => stored_text,
            _ => return Err(not_typed()),
        };
        let changes = self.changes_to_undo(&key, &turn)?;
        let old_key = format!("{key}-{}", random_hex(2));
        session::rename(&store, &key, &old_key)?;
        if let Err(error) = self.continue_before(&store, &key, &old_key, first.index, &changes) {
            session::rename(&store, &old_key, &key)?;
            return Err(error);
        }
        self.print_line(&format!(
            "back to before this message; the whole conversation is session `{old_key}`"
        ));
        self.last_message = None;
        self.last_answer = None;
        self.is_unfinished = false;
        self.recall_last_exchange();
        let draft = self.editor().fold(&text);
        self.draft = draft;
        Ok(())
    }

    /// The turns of the undo journal that the user wants taken back.
    fn changes_to_undo(&self, key: &str, messages: &[LoggedMessage]) -> Result<Vec<UndoTurn>> {
        let mut turns = undo::list_turns(self.ctx)?;
        turns.retain(|turn| {
            turn.undone_at.is_none()
                && turn.info.session == key
                && messages.iter().any(|message| message.turn == turn.info.turn)
        });
        let count: usize = turns.iter().map(|turn| turn.changed_paths.len()).sum();
        let files = count_noun(count, "file");
        let question = format!("Its turn changed {files}. Undo that too? [y/N] ");
        if count == 0 || !self.prompter.confirm(&question) {
            turns.clear();
        }
        Ok(turns)
    }

    /// Undoes `changes`, and makes the session `key` of the messages of `old_key` before the one at `index`.
    fn continue_before(
        &self,
        store: &SessionStore,
        key: &str,
        old_key: &str,
        index: usize,
        changes: &[UndoTurn],
    ) -> Result<()> {
        for turn in changes {
            self.run_program(&["undo", "--", &turn.id.to_string()], "")?;
        }
        if index > 0 {
            session::fork(store, old_key, key, Some(index))?;
        }
        Ok(())
    }
}

/// The error for a last message that would become words of the user if it were sent again.
pub(super) fn not_typed() -> anyhow::Error {
    fail_with_hint(
        Exit::Refused,
        "the last message has text that you did not type, such as piped text",
        "write it again, with `@FILE` for text of others",
    )
}

/// The messages of the last turn.
fn last_turn(store: &SessionStore, key: &str) -> Result<Vec<LoggedMessage>> {
    let mut messages = Vec::new();
    for entry in session::read_entries(store, key)? {
        if let SessionEntry::Message(logged) = entry? {
            if logged.message.begins_turn() {
                messages.clear();
            }
            messages.push(*logged);
        }
    }
    Ok(messages)
}
