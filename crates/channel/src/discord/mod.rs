//! Discord, through its REST API (<https://discord.com/developers/docs/reference>), and the gateway for events.
//!
//! Bots cannot list direct chats, so those with allowed users are opened by their ids; others become known by events. The
//! service recognises a message that is sent again within minutes by its nonce.

mod message;

use super::access::AccessRules;
use super::conversation_poll::{
    self, Conversation, ConversationEntry, ConversationService, EventListener, ServiceEvent,
};
use super::gateway::{GatewayClose, GatewayConnection, GatewayLogin};
use super::service_client::{ServiceClient, ServiceRequest};
use super::setup::ChannelSetup;
use super::upload::UploadFile;
use super::{
    Channel, ChannelError, ChannelResult, Chat, Destination, Identity, InboundMessage, LoginDialog,
    LoginOutcome, Part, PollRequest, RemoteFile,
};
use anyhow::Result;
use message::number_of;
use nanobot_base::json_text::items;
use nanobot_net::web_url::percent_encode;
use nanobot_os::clock::Clock;
use nanobot_os::digest::digest;
use nanobot_os::secret::{Secret, register};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

/// Hosts of attachments, whose addresses need no token.
const FILE_HOSTS: &[&str] = &["cdn.discordapp.com", "media.discordapp.net"];
const GATEWAY_HOSTS: &[&str] = &["discord.gg"];
/// The program, in the form that Discord asks for.
const USER_AGENT: &str =
    concat!("DiscordBot (", env!("CARGO_PKG_REPOSITORY"), ", ", env!("CARGO_PKG_VERSION"), ")");
/// The end of a gateway's address.
const GATEWAY_QUERY: &str = "/?v=10&encoding=json";
/// Messages of a page of a channel's history; the service's maximum.
const PAGE_MESSAGES: usize = 100;
/// The time for which the list of servers is kept, in seconds.
const LIST_LIFETIME_SECS: i64 = 60;
/// Largest upload: 10 MiB.
const MAX_UPLOAD_BYTES: u64 = 10 << 20;
/// Types of channels with messages: text, voice, announcements, stages; and types of threads.
const CHANNEL_TYPES: [u64; 4] = [0, 2, 5, 13];
const THREAD_TYPES: [u64; 3] = [10, 11, 12];
/// Error codes of rate limits that come without status 429.
const RATE_LIMIT_CODES: [u64; 2] = [20028, 40003];
/// The permissions that the bot needs (Discord, "Permissions").
const PERMISSIONS: u64 = ADD_REACTIONS
    | VIEW_CHANNEL
    | SEND_MESSAGES
    | ATTACH_FILES
    | READ_MESSAGE_HISTORY
    | SEND_MESSAGES_IN_THREADS;
const ADD_REACTIONS: u64 = 0x40;
const VIEW_CHANNEL: u64 = 0x400;
const SEND_MESSAGES: u64 = 0x800;
const ATTACH_FILES: u64 = 0x8000;
const READ_MESSAGE_HISTORY: u64 = 0x1_0000;
const SEND_MESSAGES_IN_THREADS: u64 = 0x40_0000_0000;
/// The flag of a message that shows no previews of links.
const SUPPRESS_EMBEDS: u64 = 1 << 2;
/// The response to a press whose message is changed later, or not at all (Discord, "Interaction Callback Type").
const DEFERRED_UPDATE_MESSAGE: u64 = 6;
/// Close codes of the gateway (Discord, "Gateway Close Event Codes"; RFC 6455 has the first two).
const NORMAL_CLOSURE: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const NOT_AUTHENTICATED: u16 = 4003;
const AUTHENTICATION_FAILED: u16 = 4004;
const INVALID_SEQUENCE: u16 = 4007;
const SESSION_TIMED_OUT: u16 = 4009;
const INVALID_INTENTS: u16 = 4013;
const DISALLOWED_INTENTS: u16 = 4014;
/// Characters of a nonce, at most 25.
const NONCE_CHARS: usize = 24;

struct Discord {
    client: ServiceClient,
    /// Without the token.
    file_client: ServiceClient,
    token: Secret,
    access: AccessRules,
    clock: Clock,
    gateway_url: String,
    intents: u64,
    /// The only channels of servers that are read; all if empty.
    allow_channels: Vec<String>,
    emoji: Option<String>,
    events: EventListener<GatewayConnection>,
    /// The parent channels of threads; `None` for channels that are not threads.
    parents: Mutex<BTreeMap<String, Option<String>>>,
    /// Channels that we may not read.
    closed_channels: Mutex<BTreeSet<String>>,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(crate) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let token = config.required_secret("token")?;
    let client = ServiceClient::new(setup, "apiBase", "token")?;
    let client = client.with_header("authorization", format!("Bot {}", token.expose()));
    let client = client.with_hosts(GATEWAY_HOSTS);
    let file_client = ServiceClient::new(setup, "apiBase", "token")?;
    Ok(Box::new(Discord {
        client: client.with_header("user-agent", USER_AGENT.to_owned()),
        file_client: file_client.with_hosts(FILE_HOSTS),
        token: token.clone(),
        access: setup.access.clone(),
        clock: setup.clock.clone(),
        gateway_url: config.required_text("gatewayUrl", "URL")?,
        intents: config.count("intents").unwrap_or_default(),
        allow_channels: config.list("allowChannels"),
        emoji: config.text("readReceiptEmoji"),
        events: EventListener::default(),
        parents: Mutex::default(),
        closed_channels: Mutex::default(),
    }))
}

impl ConversationService for Discord {
    const OVERLAP: u64 = 0;
    const READ_INTERVAL: Duration = Duration::from_secs(10);
    type Connection = GatewayConnection;

    fn conversations(&self, cache: &mut Value) -> ChannelResult<Vec<Conversation>> {
        let mut conversations = self.direct_chats(cache)?;
        for server in self.servers(cache)? {
            conversations.extend(self.channels_of(&server)?);
        }
        let closed = self.closed_channels.lock();
        conversations.retain(|conversation| !closed.contains(&conversation.id));
        Ok(conversations)
    }

    fn entries_after(
        &self,
        identity: &Identity,
        conversation: &Conversation,
        position: u64,
    ) -> ChannelResult<Vec<ConversationEntry>> {
        let id = &conversation.id;
        let parent = if conversation.is_direct { None } else { self.parent_of(id)? };
        if !conversation.is_direct && !self.reads(parent.as_ref().unwrap_or(id)) {
            return Ok(Vec::new());
        }
        let chat = Chat {
            thread: parent.is_some().then(|| id.clone()),
            id: parent.unwrap_or_else(|| id.clone()),
            is_direct: conversation.is_direct,
        };
        let (mut entries, mut after) = (Vec::new(), position);
        loop {
            let path = format!(
                "/channels/{}/messages?after={after}&limit={PAGE_MESSAGES}",
                percent_encode(id)
            );
            let page = match self.client.get(&path) {
                Err(error @ ChannelError::RecipientRefused(_)) => {
                    self.closed_channels.lock().insert(id.clone());
                    return Err(error);
                }
                page => page?,
            };
            let messages = self.client.list_of(&page)?;
            // The newest come first.
            let oldest_first = messages.iter().rev();
            entries.extend(oldest_first.map(|message| message::to_entry(message, &chat, identity)));
            let last = messages.first().map(|message| number_of(&message["id"]));
            match last.filter(|last| messages.len() >= PAGE_MESSAGES && *last > after) {
                Some(last) => after = last,
                None => return Ok(entries),
            }
        }
    }

    fn connect(&self, cache: &mut Value) -> ChannelResult<Option<GatewayConnection>> {
        let properties = json!({ "os": "linux", "browser": "nanobot", "device": "nanobot" });
        let login = GatewayLogin {
            url: &self.gateway_url,
            query: GATEWAY_QUERY,
            token: self.token.expose(),
            identify: json!({ "intents": self.intents, "properties": properties }),
            now: self.clock.timestamp().as_second(),
            explain_close,
        };
        GatewayConnection::open(&self.client, login, cache)
    }

    fn next_event(
        &self,
        connection: &mut GatewayConnection,
        cache: &mut Value,
        identity: &Identity,
        end: Duration,
    ) -> ChannelResult<Option<ServiceEvent>> {
        loop {
            let next = connection.next_event(end);
            cache["session"] = connection.session().clone();
            let Some(event) = next? else {
                return Ok(None);
            };
            let data = &event["d"];
            if event["t"] == "INTERACTION_CREATE"
                && let Some(message) = message::to_press(data)
            {
                let message = Box::new(message);
                let acknowledgement = json!({ "id": data["id"], "token": data["token"] });
                return Ok(Some(ServiceEvent::Press { message, acknowledgement }));
            }
            if event["t"] == "MESSAGE_UPDATE"
                && let Some(message) = message::to_edit(data, identity)
            {
                return Ok(Some(ServiceEvent::Edit(Box::new(message))));
            }
            let sender = data["author"]["id"].as_str().unwrap_or_default();
            if let Some(channel) = data["channel_id"].as_str()
                && event["t"] == "MESSAGE_CREATE"
                && sender != identity.id
            {
                let is_direct = data["guild_id"].is_null();
                if is_direct {
                    cache["direct"][sender] = channel.into();
                }
                return Ok(Some(ServiceEvent::Messages(Conversation {
                    id: channel.to_owned(),
                    is_direct,
                    newest: Some(number_of(&data["id"])),
                })));
            }
        }
    }

    fn acknowledge(&self, _connection: &mut GatewayConnection, interaction: &Value) {
        // A program that has the token can answer in our name.
        register(&Secret::new(interaction["token"].as_str().unwrap_or_default()));
        let [id, token] = ["id", "token"]
            .map(|name| percent_encode(interaction[name].as_str().unwrap_or_default()));
        let path = format!("/interactions/{id}/{token}/callback");
        self.client.notify(&path, &json!({ "type": DEFERRED_UPDATE_MESSAGE }));
    }

    fn client(&self) -> &ServiceClient {
        &self.client
    }
}

impl Channel for Discord {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        conversation_poll::poll(self, &self.events, request)
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        let Chat { id, thread, .. } = &destination.chat;
        let channel = thread.as_ref().unwrap_or(id);
        match self.create_message(channel, destination, part, key) {
            // A recipient may be a user's id.
            Err(ChannelError::Undeliverable(cause)) if destination.reply_facts.is_null() => {
                match self.open_direct(id) {
                    Ok(chat) => {
                        let channel = chat["id"].as_str().unwrap_or_default();
                        self.create_message(channel, destination, part, key)
                    }
                    Err(ChannelError::RecipientRefused(_) | ChannelError::Undeliverable(_)) => {
                        Err(ChannelError::Undeliverable(cause))
                    }
                    Err(error) => Err(error),
                }
            }
            other => other,
        }
    }

    fn edit(&self, destination: &Destination, id: &str, part: &Part) -> ChannelResult<()> {
        let chat = &destination.chat;
        let channel = percent_encode(chat.thread.as_ref().unwrap_or(&chat.id));
        let path = format!("/channels/{channel}/messages/{}", percent_encode(id));
        let body = json!({
            "content": part.markup, "components": [], "allowed_mentions": { "parse": [] },
        });
        self.client.exchange(&ServiceRequest::patch(&path).json(&body)).map(drop)
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        self.file_client.download_own("Discord", &file.id, writer, limit_bytes)
    }

    fn show_typing(&self, destination: &Destination) {
        let Chat { id, thread, .. } = &destination.chat;
        let channel = percent_encode(thread.as_ref().unwrap_or(id));
        let path = format!("/channels/{channel}/typing");
        self.client.try_once(&ServiceRequest::post(&path));
    }

    fn mark_answered(&self, message: &InboundMessage) {
        let Chat { id, thread, .. } = &message.chat;
        if let Some(emoji) = &self.emoji {
            let path = format!(
                "/channels/{}/messages/{}/reactions/{}/@me",
                percent_encode(thread.as_ref().unwrap_or(id)),
                percent_encode(message.reply_facts["message_id"].as_str().unwrap_or_default()),
                percent_encode(emoji)
            );
            self.client.try_once(&ServiceRequest::put(&path));
        }
    }

    fn identity(&self) -> Result<Identity> {
        let user = self.client.get("/users/@me")?;
        Ok(self.client.identity_of(&user["id"], &user["username"])?)
    }

    fn login(&self, _dialog: &mut dyn LoginDialog) -> Result<LoginOutcome> {
        let Identity { id, name } = self.identity()?;
        Ok(LoginOutcome::of_message(format!(
            "{name} ({id}); invite it: https://discord.com/oauth2/authorize?client_id={id}&scope=bot&permissions={PERMISSIONS}"
        )))
    }
}

fn explain_close(code: u16) -> GatewayClose {
    match code {
        AUTHENTICATION_FAILED => {
            GatewayClose::TokenRejected("the gateway does not accept `channels.discord.token`")
        }
        INVALID_INTENTS | DISALLOWED_INTENTS => GatewayClose::Misconfigured(
            "the gateway refuses `channels.discord.intents`: allow the bot the message content intent in Discord's \
             developer portal, or subtract 32768 from the number",
        ),
        NORMAL_CLOSURE | GOING_AWAY | NOT_AUTHENTICATED | INVALID_SEQUENCE | SESSION_TIMED_OUT => {
            GatewayClose::SessionLost
        }
        _ => GatewayClose::Temporary,
    }
}

impl Discord {
    /// True if messages of a channel of a server are read.
    fn reads(&self, channel: &str) -> bool {
        self.allow_channels.is_empty()
            || self.allow_channels.iter().any(|allowed| allowed == channel)
    }

    /// The direct chats with allowed users, and those that are known by events.
    fn direct_chats(&self, cache: &mut Value) -> ChannelResult<Vec<Conversation>> {
        let mut chats = Vec::new();
        for user in self.access.direct_ids().filter(|id| *id != "*") {
            if cache["direct"].get(user).is_some() {
                continue;
            }
            match self.open_direct(user) {
                Ok(chat) => {
                    cache["direct"][user] = chat["id"].clone();
                    chats.push(Conversation {
                        id: chat["id"].as_str().unwrap_or_default().to_owned(),
                        is_direct: true,
                        newest: Some(number_of(&chat["last_message_id"])),
                    });
                }
                // The user does not exist, or shares no server with us.
                Err(ChannelError::RecipientRefused(cause) | ChannelError::Undeliverable(cause)) => {
                    log::warn!(target: "channel", "discord: no direct chat with {user}: {cause}");
                    cache["direct"][user] = Value::Null;
                }
                Err(error) => return Err(error),
            }
        }
        let direct = cache["direct"].as_object().into_iter().flatten();
        for id in direct.filter_map(|(_, id)| id.as_str()) {
            if chats.iter().all(|chat| chat.id != id) {
                chats.push(Conversation { id: id.to_owned(), is_direct: true, newest: None });
            }
        }
        Ok(chats)
    }

    fn open_direct(&self, user: &str) -> ChannelResult<Value> {
        let body = json!({ "recipient_id": user });
        self.client.post("/users/@me/channels", &body)
    }

    /// The ids of the servers that we are in.
    fn servers(&self, cache: &mut Value) -> ChannelResult<Vec<String>> {
        let now = self.clock.timestamp().as_second();
        let age = now - cache["listed_at"].as_i64().unwrap_or_default();
        if !(0..LIST_LIFETIME_SECS).contains(&age) {
            let servers = self.client.get("/users/@me/guilds?limit=200")?;
            let servers = self.client.list_of(&servers)?;
            cache["servers"] = servers.iter().map(|server| server["id"].clone()).collect();
            cache["listed_at"] = now.into();
        }
        let ids = items(&cache["servers"]).filter_map(Value::as_str);
        Ok(ids.map(str::to_owned).collect())
    }

    /// The channels and active threads of a server, each with its last message.
    fn channels_of(&self, server: &str) -> ChannelResult<Vec<Conversation>> {
        let path = format!("/guilds/{}", percent_encode(server));
        let channels = self.client.get(&format!("{path}/channels"))?;
        let threads = self.client.get(&format!("{path}/threads/active"))?;
        let mut parents = self.parents.lock();
        let mut conversations = Vec::new();
        for channel in items(&channels).chain(items(&threads["threads"])) {
            let kind = channel["type"].as_u64().unwrap_or_default();
            let Some(id) = channel["id"].as_str() else {
                continue;
            };
            let is_thread = THREAD_TYPES.contains(&kind);
            let parent = if is_thread { channel["parent_id"].as_str() } else { None };
            if let Some(parent) = parent {
                parents.insert(id.to_owned(), Some(parent.to_owned()));
            } else if !CHANNEL_TYPES.contains(&kind) {
                continue;
            }
            if self.reads(parent.unwrap_or(id)) {
                conversations.push(Conversation {
                    id: id.to_owned(),
                    is_direct: false,
                    newest: Some(number_of(&channel["last_message_id"])),
                });
            }
        }
        Ok(conversations)
    }

    /// The channel of a thread; `None` for a channel. A thread that is not active is requested once.
    fn parent_of(&self, channel: &str) -> ChannelResult<Option<String>> {
        if let Some(parent) = self.parents.lock().get(channel) {
            return Ok(parent.clone());
        }
        let path = format!("/channels/{}", percent_encode(channel));
        let response = self.client.get(&path)?;
        let is_thread = THREAD_TYPES.contains(&response["type"].as_u64().unwrap_or_default());
        let parent = if is_thread { response["parent_id"].as_str() } else { None };
        let parent = parent.map(str::to_owned);
        self.parents.lock().insert(channel.to_owned(), parent.clone());
        Ok(parent)
    }

    fn create_message(
        &self,
        channel: &str,
        destination: &Destination,
        part: &Part,
        key: &str,
    ) -> ChannelResult<String> {
        let mut body = json!({
            "content": part.markup,
            "nonce": &digest(key.as_bytes())[..NONCE_CHARS],
            "enforce_nonce": true,
            "allowed_mentions": { "parse": [], "replied_user": false },
            "flags": SUPPRESS_EMBEDS,
        });
        let answered_id = &destination.reply_facts["message_id"];
        if answered_id.is_string() && !destination.chat.is_direct {
            body["message_reference"] =
                json!({ "message_id": answered_id, "fail_if_not_exists": false });
        }
        if let Some(question) = &part.question {
            body["components"] = message::to_components(question);
        }
        let path = format!("/channels/{}/messages", percent_encode(channel));
        let json = body.to_string();
        let (media_type, body) = match &part.file {
            Some(file) => {
                let file = UploadFile::read(file, MAX_UPLOAD_BYTES)?;
                file.to_form(&[("payload_json", &*json)], "files[0]")
            }
            None => ("application/json".to_owned(), json.into_bytes()),
        };
        // The service recognises a repeated message by its nonce.
        let response = self.client.request(&ServiceRequest::post(&path).body(&media_type, body))?;
        let code = response.json()["code"].as_u64().unwrap_or_default();
        if RATE_LIMIT_CODES.contains(&code) {
            return Err(ChannelError::rate_limited(response.describe()));
        }
        let message = self.client.read_success(&response)?;
        self.client.text_of(&message["id"])
    }
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(crate) fn decode(value: &Value) -> Option<InboundMessage> {
    let identity = Identity { id: "8".into(), name: "bot".into() };
    message::to_entry(value, &Chat::default(), &identity).message
}
