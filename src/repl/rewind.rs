//! `/rewind` and Esc Esc: the conversation goes back to before the last message, or an earlier one, which can then be edited. Session
//! files are only appended to, so the conversation continues in a copy of what is kept, and all of it stays under another key, which
//! lists leave out.

use super::approval::{CANCEL, NO, YES};
use super::editor::Choice;
use super::repl_session::ReplSession;
use crate::ops::slash_commands::parse_count_back;
use crate::ops::{retention, undo};
use anyhow::Result;
use nanobot_agent::report::short_text::{count_noun, truncate_line};
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_base::message::before_blocks;
use nanobot_os::secret::random_hex;
use nanobot_store::session::{self, LoggedMessage, REWOUND_PREFIX, SessionEntry, SessionStore};
use nanobot_tool::undo::journal::UndoTurn;
use std::collections::HashSet;

/// Maximum characters of a message that the answer quotes.
const MAX_QUOTED_CHARS: usize = 40;

impl ReplSession<'_> {
    /// Goes back to before the last message, or the one that `rest` counts back to: 2 is the one before. Its text becomes the next
    /// input. The user is asked about the file changes of the turns that are taken back.
    pub(super) fn rewind(&mut self, rest: &str) -> Result<()> {
        let number = parse_count_back("rewind", rest)?;
        let key = self.session_key()?;
        let store = self.session_store()?;
        let mut messages = self.read_conversation(&store, &key)?;
        let begins: Vec<usize> =
            (0..messages.len()).filter(|index| messages[*index].message.begins_turn()).collect();
        let Some(left) = begins.len().checked_sub(number) else {
            return Err(match begins.len() {
                0 => fail(Exit::NoInput, "there is no message to edit in this session"),
                count => {
                    let cause = format!("this conversation has {}", count_noun(count, "message"));
                    fail(Exit::NoInput, cause).with_hint(format!("`/rewind {count}`"))
                }
            });
        };
        drop(messages.drain(..begins[left]));
        let first = &messages[0];
        let stored_text = first.message.user_text().unwrap_or_default();
        let mut extra_input = String::new();
        let text = match &self.last_message {
            // Without the text of attachments.
            Some(text)
                if number == 1 && self.is_last_message_typed && stored_text.contains(text) =>
            {
                extra_input = self.last_extra_input.clone();
                Some(text.clone())
            }
            _ => first.message.is_typed().then(|| stored_text.clone()),
        };
        let Some(changes) = self.changes_to_undo(&key, &messages, number)? else {
            self.print_line("cancelled; the conversation is unchanged");
            return Ok(());
        };
        let name = key.strip_prefix(REWOUND_PREFIX).unwrap_or(&key);
        let old_key = format!("{REWOUND_PREFIX}{name}-{}", random_hex(2));
        session::rename(&store, &key, &old_key)?;
        if let Err(error) = self.continue_before(&store, &key, &old_key, first.index, &changes) {
            session::rename(&store, &old_key, &key)?;
            return Err(error);
        }
        let quoted_text = truncate_line(before_blocks(&stored_text), MAX_QUOTED_CHARS);
        let from = if number == 1 { "" } else { " from" };
        self.print_line(&format!(
            "took back {}{from}: {quoted_text}\nleft: {}; the whole conversation is session `{old_key}`",
            count_noun(number, "message"),
            count_noun(left, "message")
        ));
        if !extra_input.is_empty() {
            self.print_line("the output of `!` commands is sent with it again");
            self.extra_input.insert_str(0, &extra_input);
        }
        self.last_message = None;
        self.last_answer = None;
        self.is_unfinished = false;
        // `--new` would leave out what is kept.
        self.options.session.new = false;
        self.recall_last_exchange();
        match text {
            Some(text) => {
                let draft = self.editor().fold(&text);
                self.draft = draft;
            }
            None => self.print_line("it has text that you did not type, so it is not repeated"),
        }
        mark_as_rewound(&store, &key, &old_key)?;
        retention::prune_temporary_sessions(&store, &self.settings()?.retention)
    }

    /// The messages of the conversation in the session `key`: what `/new` and consolidation have left.
    fn read_conversation(&self, store: &SessionStore, key: &str) -> Result<Vec<LoggedMessage>> {
        let window = self.read_session(key)?.history_window();
        let mut messages = Vec::new();
        if window.count > window.consolidated {
            let count = window.count - window.consolidated;
            for entry in session::read_last_entries(store, key, count)? {
                if let SessionEntry::Message(logged) = entry? {
                    messages.push(*logged);
                }
            }
        }
        Ok(messages)
    }

    /// The turns of the undo journal that the user wants taken back, of the last `number` turns with these messages. `None` if the
    /// user takes nothing back.
    fn changes_to_undo(
        &self,
        key: &str,
        messages: &[LoggedMessage],
        number: usize,
    ) -> Result<Option<Vec<UndoTurn>>> {
        let mut turns = undo::list_turns(self.ctx)?;
        turns.retain(|turn| {
            turn.undone_at.is_none()
                && turn.has_changes()
                && turn.info.session == key
                && messages.iter().any(|message| message.turn == turn.info.turn)
        });
        let changed = turns.iter().flat_map(|turn| &turn.changed_paths);
        let paths: HashSet<_> = changed.map(|changed| &changed.path).collect();
        let files = count_noun(paths.len(), "file");
        let owner = if number == 1 { "Its turn" } else { "Their turns" };
        let question = format!("{owner} changed {files}. Undo that too? [y/N/cancel] ");
        if paths.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let answer = self.prompter.choose(&question, &[YES, NO, CANCEL]);
        let is = |choice: Choice| answer.as_deref() == Some(choice.word);
        Ok(if is(YES) { Some(turns) } else { is(NO).then(Vec::new) })
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
        for (undone, turn) in changes.iter().enumerate() {
            let id = turn.id.to_string();
            if let Err(error) = self.run_program(&["undo", "--", &id], "") {
                // The later turns stay undone and the conversation stays as it is. The user decides how to go on.
                let turns = count_noun(undone, "later turn");
                return Err(fail(exit_for(&error), format!(
                        "the conversation is not rewound: the file changes of turn {id} stay, and those of {turns} are undone: {error:#}"
                    )).with_hint(format!(
                        "`/undo --force {id}`, or `/rewind` again and `n` at the question about files"
                    )));
            }
        }
        if index > 0 {
            session::continue_renamed(store, old_key, key, index)?;
        }
        Ok(())
    }
}

/// Gives the session `old_key` a title that says what it is, which also dates its file: the time after which it is removed begins now.
fn mark_as_rewound(store: &SessionStore, key: &str, old_key: &str) -> Result<()> {
    let summary = session::summarize(store, old_key)?;
    let title = summary.title.unwrap_or(summary.first_words);
    session::set_title(store, old_key, &format!("before a rewind of {key}: {title}"))
}
