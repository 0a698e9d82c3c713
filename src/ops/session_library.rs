//! The conversations of the workspace for the `sessions` tool.

use anyhow::Result;
use nanobot_base::message::{Message, Origin, plain_text};
use nanobot_store::history::head_and_tail::head_and_tail;
use nanobot_store::session::{
    self, LoggedMessage, MessageMatch, SearchPattern, Session, SessionEntry, SessionStore,
};
use nanobot_tool::sessions::{SessionLibrary, SessionText};
use std::collections::HashMap;

/// Maximum number of sessions in a list.
const MAX_LIST_ROWS: usize = 50;
/// Maximum number of messages with matches in the result of a search.
const MAX_MATCHES: usize = 40;
/// Maximum characters of a matching line.
const MAX_LINE_CHARS: usize = 200;
/// Maximum characters of a message, and of the result of a tool call.
const MAX_MESSAGE_CHARS: usize = 4_000;
const MAX_RESULT_CHARS: usize = 400;

/// The sessions of a store, without the session of the run.
pub(crate) struct StoredSessions {
    store: SessionStore,
    current_key: String,
}

impl StoredSessions {
    /// Creates the library for a run in the session `current_key`.
    pub(crate) fn new(store: SessionStore, current_key: &str) -> Self {
        Self { store, current_key: current_key.to_owned() }
    }

    /// True for the key of another session that goes on. What the user has taken back is not read by itself.
    fn includes(&self, key: &str) -> bool {
        key != self.current_key && !key.starts_with(session::REWOUND_PREFIX)
    }

    fn list_text(&self) -> Result<SessionText> {
        let mut sessions = session::list(&self.store)?.sessions;
        sessions.retain(|summary| self.includes(&summary.key));
        let count = sessions.len();
        let mut text = format!("{count} other sessions, newest first:");
        for summary in sessions.iter().take(MAX_LIST_ROWS) {
            let title = summary.title.as_ref().unwrap_or(&summary.first_words);
            let messages = match summary.messages {
                Some(count) => format!("{count} messages"),
                None => "many messages".into(),
            };
            text.push_str(&format!(
                "\n- {} ({messages}, {}): {title}",
                summary.key, summary.updated
            ));
        }
        if count > MAX_LIST_ROWS {
            text.push_str(&format!(
                "\n[… {} older ones; search for them …]",
                count - MAX_LIST_ROWS
            ));
        }
        // The first words may be piped text.
        Ok(SessionText { text, origin: Origin::Project })
    }

    fn search_text(&self, text: &str) -> Result<SessionText> {
        let pattern = SearchPattern::new(text, true, true)?;
        let mut sessions = session::list(&self.store)?.sessions;
        sessions.retain(|summary| self.includes(&summary.key));
        let mut text = String::new();
        let mut count = 0;
        let mut origins: HashMap<String, Origin> = HashMap::new();
        let failures = session::search(&sessions, &pattern, 0, &mut |summary, message_match| {
            let MessageMatch { index, time, role, lines } = message_match;
            count += 1;
            if count > MAX_MATCHES {
                return Ok(false);
            }
            if !origins.contains_key(&summary.key) {
                let origin = self.origin_of(&summary.key)?;
                origins.insert(summary.key.clone(), origin);
            }
            for line in lines {
                let line = shorten(line.text.trim(), MAX_LINE_CHARS);
                text.push_str(&format!("{} #{} {role}, {time}: {line}\n", summary.key, index + 1));
            }
            Ok(true)
        })?;
        if count == 0 {
            text.push_str("No match.");
        }
        if count > MAX_MATCHES {
            text.push_str("[… more matches; search for a longer text …]");
        }
        for failure in failures {
            text.push_str(&format!("\n[{failure:#}]"));
        }
        Ok(SessionText { text, origin: origins.into_values().max().unwrap_or_default() })
    }

    fn read_text(&self, key: &str, from: Option<usize>, count: usize) -> Result<SessionText> {
        let entries: Vec<SessionEntry> = match from {
            None => session::read_last_entries(&self.store, key, count)?.collect::<Result<_>>()?,
            Some(from) => session::read_entries(&self.store, key)?
                .skip_while(|entry| is_before(entry, from - 1))
                .take(count)
                .collect::<Result<_>>()?,
        };
        let mut text = String::new();
        for entry in entries {
            match entry {
                SessionEntry::Message(logged) => text.push_str(&format_message(&logged)),
                SessionEntry::Invalid(_) => text.push_str("[an unreadable line]\n"),
            }
        }
        if text.is_empty() {
            text.push_str("There are no messages.");
        }
        Ok(SessionText { text, origin: self.origin_of(key)? })
    }

    /// The origin that a session has recorded. It is external if messages before the record have an unknown origin.
    ///
    /// # Errors
    /// The session cannot be read.
    pub(crate) fn origin_of(&self, key: &str) -> Result<Origin> {
        let session = Session::read(&self.store, key, &mut |_| {})?;
        match session.origin() {
            Some(origin) if session.is_origin_complete() => Ok(origin.level),
            _ => Ok(Origin::External),
        }
    }
}

impl SessionLibrary for StoredSessions {
    fn list(&self) -> Result<SessionText, String> {
        self.list_text().map_err(|error| format!("{error:#}"))
    }

    fn search(&self, text: &str) -> Result<SessionText, String> {
        self.search_text(text).map_err(|error| format!("{error:#}"))
    }

    fn read(&self, key: &str, from: Option<usize>, count: usize) -> Result<SessionText, String> {
        self.read_text(key, from, count).map_err(|error| format!("{error:#}"))
    }
}

/// True for an entry before the message with index `first`.
fn is_before(entry: &Result<SessionEntry>, first: usize) -> bool {
    match entry {
        Ok(SessionEntry::Message(logged)) => logged.index < first,
        Ok(SessionEntry::Invalid(_)) => true,
        Err(_) => false,
    }
}

/// A message with its number, its role and its time.
fn format_message(logged: &LoggedMessage) -> String {
    let (role, text) = match &logged.message {
        Message::User(user) => ("user", shorten(&plain_text(&user.parts), MAX_MESSAGE_CHARS)),
        Message::Tool(result) => ("result", shorten(&plain_text(&result.parts), MAX_RESULT_CHARS)),
        Message::Assistant(reply) => {
            let mut parts = Vec::new();
            if !reply.text.is_empty() {
                parts.push(shorten(&reply.text, MAX_MESSAGE_CHARS));
            }
            for call in &reply.tool_calls {
                let arguments = shorten(&call.arguments.to_string(), MAX_LINE_CHARS);
                parts.push(format!("[{} {arguments}]", call.name));
            }
            ("assistant", parts.join("\n"))
        }
    };
    format!("#{} {role}, {}:\n{text}\n", logged.index + 1, logged.time)
}

/// `text` without its middle if it is longer than `max_chars`.
fn shorten(text: &str, max_chars: usize) -> String {
    let gap = |count| format!("[… {count} characters …]");
    head_and_tail(text, max_chars / 2, max_chars / 2, gap).unwrap_or_else(|| text.to_owned())
}
