//! Mochat: chats of a person with the agent are sessions, channels of groups are panels. Both are polled, as the Python
//! program does without its socket.
//!
//! Sessions have positions. Panels have none, so the ids of the last messages say which ones are new. Messages of panels
//! that do not mention us are delayed for some time, and answered together.

mod entry;

use super::access::AccessRules;
use super::service_client::{MAX_SERVICE_TIMEOUT, ServiceClient, ServiceRequest};
use super::setup::ChannelSetup;
use super::{
    Batch, Channel, ChannelError, ChannelResult, Chat, Destination, Identity, InboundMessage, Part,
    PollRequest, QuotedText, object_cursor,
};
use anyhow::Result;
use entry::PanelEntry;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Messages of a panel in a response, and ids that are stored of each panel.
const MAX_PANEL_MESSAGES: usize = 100;
/// The pause between two reads at several sessions; a single one is waited for at the service.
const READ_INTERVAL: Duration = Duration::from_secs(3);
/// The smallest interval at which panels are read.
const MIN_REFRESH_MILLIS: u64 = 1000;
const MAX_QUOTE_CHARS: usize = 500;
const MAX_NAME_CHARS: usize = 60;
/// The `type` of a panel with messages. Panels of other types have no texts.
const TEXT_PANEL: u64 = 0;

struct Mochat {
    client: ServiceClient,
    agent_id: String,
    sessions: ChatList,
    panels: ChatList,
    access: AccessRules,
    clock: Clock,
    settings: MochatSettings,
    /// The position that the Python program has reached in each session.
    first_positions: Value,
}

/// Chats of the config.
struct ChatList {
    ids: Vec<String>,
    /// Read all chats that the service lists.
    is_all: bool,
}

/// Keys of the config. Times are in milliseconds.
struct MochatSettings {
    requires_mention: bool,
    groups: Value,
    watch_millis: u64,
    watch_limit: u64,
    refresh_millis: u64,
    /// The time for which messages without a mention are delayed; zero if they are answered at once.
    delay_millis: i64,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(crate) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let token = config.required_secret("clawToken")?;
    let agent_id = config.text("agentUserId").unwrap_or_default();
    if agent_id.is_empty() && setup.access.allow_from.iter().any(|entry| entry == "*") {
        return Err(fail(
            Exit::Config,
            "`channels.mochat.agentUserId` is not set: the agent would answer itself",
        )
        .with_hint("`nanobot config set channels.mochat.agentUserId ID`"));
    }
    let list = |key: &str| {
        let (all, ids): (Vec<String>, Vec<String>) =
            config.list(key).into_iter().partition(|id| id == "*");
        ChatList { ids, is_all: !all.is_empty() }
    };
    let count = |key: &str| config.count(key).unwrap_or_default();
    let is_delayed = config.text("replyDelayMode").as_deref() == Some("non-mention");
    let client = ServiceClient::new(setup, "baseUrl", "clawToken")?;
    let cursors = setup.paths.expand("~/.nanobot/mochat/session_cursors.json");
    let cursors = durable_file::read(&cursors)?.unwrap_or_default();
    let cursors: Value = serde_json::from_slice(&cursors).unwrap_or_default();
    Ok(Box::new(Mochat {
        client: client.with_header("x-claw-token", token.expose().to_owned()),
        agent_id,
        sessions: list("sessions"),
        panels: list("panels"),
        access: setup.access.clone(),
        clock: setup.clock.clone(),
        settings: MochatSettings {
            requires_mention: config.flag("mention.requireInGroups"),
            groups: config.value("groups"),
            watch_millis: count("watchTimeoutMs"),
            watch_limit: count("watchLimit").max(1),
            refresh_millis: count("refreshIntervalMs").max(MIN_REFRESH_MILLIS),
            delay_millis: if is_delayed {
                i64::try_from(count("replyDelayMs")).unwrap_or(i64::MAX)
            } else {
                0
            },
        },
        first_positions: cursors["cursors"].clone(),
    }))
}

impl Channel for Mochat {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        let PollRequest { cursor, wait, store_batch, .. } = request;
        let end = signal::now().saturating_add(wait);
        let stored = cursor.cloned();
        let mut reader = MochatReader {
            mochat: self,
            cursor: object_cursor(cursor, &["sessions", "panels", "delayed"])
                .unwrap_or_else(|| json!({})),
            messages: Vec::new(),
        };
        let mut panels_at = Duration::ZERO;
        loop {
            let result = reader.read_all(end, &mut panels_at);
            let messages = std::mem::take(&mut reader.messages);
            let has_messages = !messages.is_empty();
            if has_messages || stored.as_ref() != Some(&reader.cursor) {
                let cursor = reader.cursor.clone();
                store_batch(Batch { messages, cursor })?;
            }
            result?;
            let time_left = end.saturating_sub(signal::now());
            if has_messages || time_left.is_zero() {
                return Ok(());
            }
            let pause = time_left.min(READ_INTERVAL);
            if !reader.is_single() {
                self.client.pause(pause)?;
            }
        }
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        if part.file.is_some() {
            return Err(ChannelError::Undeliverable("files are not sent to Mochat".into()));
        }
        let (chat, facts) = (&destination.chat.id, &destination.reply_facts);
        let mut request = json!({ "content": part.plain });
        if facts["id"].is_string() {
            request["replyTo"] = facts["id"].clone();
        }
        let path = if chat.starts_with("session_") {
            request["sessionId"] = chat.as_str().into();
            "/api/claw/sessions/send"
        } else {
            request["panelId"] = chat.as_str().into();
            if facts["group"].is_string() {
                request["groupId"] = facts["group"].clone();
            }
            "/api/claw/groups/panels/send"
        };
        // The service does not recognise a repeated message.
        let request = ServiceRequest::post(path).json(&request).once();
        let message = self.read(&self.client.exchange(&request)?)?;
        let id = ["messageId", "_id", "id"].iter().find_map(|name| message[name].as_str());
        Ok(id.unwrap_or(key).to_owned())
    }

    /// Proves the token.
    fn identity(&self) -> Result<Identity> {
        self.post("/api/claw/sessions/list", &json!({}), Duration::ZERO)?;
        Ok(Identity { id: self.agent_id.clone(), name: self.agent_id.clone() })
    }
}

/// The session or the panel of a recipient.
pub(crate) fn parse_chat(recipient: &str, _thread_mark: Option<&str>) -> Chat {
    Chat::new(recipient, None, recipient.starts_with("session_"))
}

impl Mochat {
    fn post(&self, path: &str, body: &Value, wait: Duration) -> ChannelResult<Value> {
        self.read(&self.client.exchange(&ServiceRequest::post(path).json(body).wait(wait))?)
    }

    /// The data of a response, which has a code of its own.
    fn read(&self, response: &Value) -> ChannelResult<Value> {
        let cause = response["message"].as_str().or(response["name"].as_str());
        let cause = cause.unwrap_or("no reason").to_owned();
        match response["code"].as_i64() {
            None | Some(200) => {
                let data = &response["data"];
                Ok(if data.is_object() { data } else { response }.clone())
            }
            Some(401) => Err(self.client.token_rejected(&cause)),
            Some(403) => Err(ChannelError::RecipientRefused(cause)),
            Some(code) => Err(ChannelError::Undeliverable(format!("error {code}: {cause}"))),
        }
    }

    fn requires_mention(&self, panel: &str, group: &str) -> bool {
        let groups = &self.settings.groups;
        let rule = [group, panel, "*"].iter().find_map(|id| groups.get(*id));
        let rule = rule.and_then(|rule| rule.get("requireMention").or(rule.get("require_mention")));
        match rule {
            Some(rule) => *rule == true,
            None => self.settings.requires_mention,
        }
    }
}

/// Reads the new messages of all sessions and panels.
struct MochatReader<'m> {
    mochat: &'m Mochat,
    /// `sessions`: the position in each; `panels`: the ids of the last messages of each; `delayed`: the delayed messages of
    /// each panel, and when they are due.
    cursor: Value,
    messages: Vec<InboundMessage>,
}

impl MochatReader<'_> {
    /// True if the service can wait for messages: there is one session, and no panel.
    fn is_single(&self) -> bool {
        let (sessions, panels) = (&self.mochat.sessions, &self.mochat.panels);
        let has_panels = panels.is_all || !panels.ids.is_empty();
        sessions.ids.len() == 1 && !sessions.is_all && !has_panels
    }

    fn read_all(&mut self, end: Duration, panels_at: &mut Duration) -> ChannelResult<()> {
        for session in self.sessions()? {
            let result = self.watch(&session, end);
            skip_closed(&session, result)?;
        }
        if signal::now() >= *panels_at {
            *panels_at = signal::now() + Duration::from_millis(self.mochat.settings.refresh_millis);
            for (panel, group) in self.panels()? {
                let result = self.read_panel(&panel, &group);
                skip_closed(&panel, result)?;
            }
        }
        self.take_due();
        Ok(())
    }

    fn sessions(&self) -> ChannelResult<BTreeSet<String>> {
        let ChatList { ids, is_all } = &self.mochat.sessions;
        let mut sessions: BTreeSet<String> = ids.iter().cloned().collect();
        if *is_all {
            let response =
                self.mochat.post("/api/claw/sessions/list", &json!({}), Duration::ZERO)?;
            let ids = items(&response["sessions"]).map(|session| session["sessionId"].as_str());
            sessions.extend(ids.flatten().map(str::to_owned));
        }
        Ok(sessions)
    }

    /// The panels with their groups.
    fn panels(&self) -> ChannelResult<Vec<(String, String)>> {
        let ChatList { ids, is_all } = &self.mochat.panels;
        let mut panels: Vec<(String, String)> =
            ids.iter().map(|id| (id.clone(), String::new())).collect();
        if *is_all {
            let response = self.mochat.post("/api/claw/groups/get", &json!({}), Duration::ZERO)?;
            let group =
                response["groupId"].as_str().or(response["_id"].as_str()).unwrap_or_default();
            for panel in items(&response["panels"]) {
                let id = panel["id"].as_str().or(panel["_id"].as_str());
                let is_text = panel["type"].as_u64().is_none_or(|kind| kind == TEXT_PANEL);
                if is_text && let Some(id) = id {
                    panels.push((id.to_owned(), group.to_owned()));
                }
            }
        }
        Ok(panels)
    }

    /// Reads the messages of a session after its position.
    fn watch(&mut self, session: &str, end: Duration) -> ChannelResult<()> {
        let settings = &self.mochat.settings;
        let position = self.cursor["sessions"][session].as_i64();
        let position = position.or(self.mochat.first_positions[session].as_i64());
        let time_left = end.saturating_sub(signal::now()).min(MAX_SERVICE_TIMEOUT);
        let wait = if self.is_single() && position.is_some() {
            time_left.min(Duration::from_millis(settings.watch_millis))
        } else {
            Duration::ZERO
        };
        let millis = u64::try_from(wait.as_millis()).unwrap_or_default();
        let request = json!({ "sessionId": session, "cursor": position.unwrap_or(0), "timeoutMs": millis,
            "limit": settings.watch_limit });
        let response = self.mochat.post("/api/claw/sessions/watch", &request, wait)?;
        let events = items(&response["events"]);
        let last = events.clone().filter_map(|event| event["seq"].as_i64()).max();
        let next = response["cursor"].as_i64().max(last).max(position).unwrap_or(0);
        self.cursor["sessions"][session] = next.into();
        // The first poll only stores the position.
        let Some(position) = position else {
            return Ok(());
        };
        for event in events {
            let is_new = event["seq"].as_i64().is_none_or(|number| number > position);
            if event["type"] == "message.add" && is_new {
                let entry =
                    PanelEntry::read(&event["payload"], &event["timestamp"], &self.mochat.agent_id);
                if let Some(entry) = entry {
                    self.messages.push(entry.to_message(session, true, Vec::new()));
                }
            }
        }
        Ok(())
    }

    /// Reads the last messages of a panel, and takes those that are new.
    fn read_panel(&mut self, panel: &str, group: &str) -> ChannelResult<()> {
        let limit = self.mochat.settings.watch_limit.min(MAX_PANEL_MESSAGES as u64);
        let request = json!({ "panelId": panel, "limit": limit });
        let response =
            self.mochat.post("/api/claw/groups/panels/messages", &request, Duration::ZERO)?;
        let group = response["groupId"].as_str().unwrap_or(group);
        let previous_ids = self.cursor["panels"][panel].as_array().cloned();
        let mut ids = previous_ids.clone().unwrap_or_default();
        // The newest come first.
        for message in items(&response["messages"]).rev() {
            let id = &message["messageId"];
            if !id.is_string() || ids.contains(id) {
                continue;
            }
            ids.push(id.clone());
            let entry = PanelEntry::read(message, &message["createdAt"], &self.mochat.agent_id);
            // The first poll only stores the ids.
            if previous_ids.is_some()
                && let Some(mut entry) = entry
            {
                entry.group =
                    Some(group.to_owned()).filter(|group| !group.is_empty()).or(entry.group);
                self.take_entry(panel, entry);
            }
        }
        let surplus = ids.len().saturating_sub(MAX_PANEL_MESSAGES);
        self.cursor["panels"][panel] = ids.split_off(surplus).into();
        Ok(())
    }

    /// Adds a message of a panel, delays it, or ignores it.
    fn take_entry(&mut self, panel: &str, entry: PanelEntry) {
        let mochat = self.mochat;
        if !mochat.access.allows(&entry.author) {
            // The message is refused, so it must not become part of another one.
            let message = entry.to_message(panel, false, Vec::new());
            self.messages.push(InboundMessage { mentions_us: true, ..message });
            return;
        }
        let group = entry.group.clone().unwrap_or_default();
        let is_delayed = mochat.settings.delay_millis > 0 && !entry.is_mention;
        if is_delayed {
            let now = mochat.clock.timestamp().as_millisecond();
            let delayed = &mut self.cursor["delayed"][panel];
            let mut entries: Vec<Value> = items(&delayed["entries"]).cloned().collect();
            entries.push(entry.to_json());
            *delayed = json!({ "due": now.saturating_add(mochat.settings.delay_millis), "entries": entries });
        } else if entry.is_mention || !mochat.requires_mention(panel, &group) {
            let earlier = self.take_delayed(panel);
            self.add_message(panel, entry, earlier);
        }
    }

    /// Removes the delayed messages of a panel from the cursor, and returns them.
    fn take_delayed(&mut self, panel: &str) -> Vec<PanelEntry> {
        let delayed = self.cursor["delayed"].as_object_mut();
        let delayed = delayed.and_then(|panels| panels.shift_remove(panel)).unwrap_or_default();
        items(&delayed["entries"]).map(PanelEntry::from_json).collect()
    }

    /// Adds the delayed messages that are due.
    fn take_due(&mut self) {
        let now = self.mochat.clock.timestamp().as_millisecond();
        let panels = self.cursor["delayed"].as_object().into_iter().flatten();
        let due =
            panels.filter(|(_, delayed)| delayed["due"].as_i64().is_none_or(|due| due <= now));
        let due: Vec<String> = due.map(|(panel, _)| panel.clone()).collect();
        for panel in due {
            let mut entries = self.take_delayed(&panel);
            if let Some(last) = entries.pop() {
                self.add_message(&panel, last, entries);
            }
        }
    }

    /// Adds one message made of the last entry and the earlier ones: entries of the same author are joined, entries of other users are
    /// quoted.
    fn add_message(&mut self, panel: &str, mut last: PanelEntry, earlier: Vec<PanelEntry>) {
        let (own, others): (Vec<PanelEntry>, Vec<PanelEntry>) =
            earlier.into_iter().partition(|entry| entry.author == last.author);
        let mut text = UserText::default();
        for entry in own {
            text.push(&entry.text);
            text.push(&UserText::label("\n"));
        }
        text.push(&last.text);
        last.text = text;
        let quotes = others.iter().map(|entry| {
            let name: String = entry.name.chars().take(MAX_NAME_CHARS).collect();
            let text = format!("{name}: {}", entry.text.as_str());
            QuotedText::cut("earlier message of the group", &text, MAX_QUOTE_CHARS)
        });
        let message = last.to_message(panel, false, quotes.collect());
        self.messages.push(InboundMessage { mentions_us: true, ..message });
    }
}

/// Skips a chat that is gone or that we may not read. The others are still read.
fn skip_closed(chat: &str, result: ChannelResult<()>) -> ChannelResult<()> {
    match result {
        Err(ChannelError::Undeliverable(cause) | ChannelError::RecipientRefused(cause)) => {
            log::warn!(target: "channel", "mochat: {chat}: {cause}");
            Ok(())
        }
        result => result,
    }
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(crate) fn decode(value: &Value) -> Option<InboundMessage> {
    let entry = PanelEntry::read(value, &value["createdAt"], "bot")?;
    Some(entry.to_message("p", true, Vec::new()))
}
