//! Mattermost, through its REST API (<https://developers.mattermost.com/api-documentation>).
//!
//! One request lists our channels with the times of their last posts; the newer posts of a channel are requested one channel at a time. A
//! WebSocket tells a waiting poll which channel has one. The server recognises a post that is sent again within half a minute by its
//! `pending_post_id`; later, it is searched for by a property.

mod post;

use super::access::{AccessRules, GroupPolicy};
use super::conversation_poll::{
    self, Conversation, ConversationEntry, ConversationService, EventListener, ServiceEvent,
};
use super::mention::without_pings;
use super::service_client::{ServiceClient, ServiceRequest, next_json};
use super::setup::ChannelSetup;
use super::thread_context::{context_thread, max_context_messages};
use super::upload::UploadFile;
use super::{
    Channel, ChannelError, ChannelResult, Chat, Destination, Identity, InboundMessage, Part,
    PollRequest, RemoteFile,
};
use anyhow::Result;
use nanobot_base::json_text::items;
use nanobot_net::http::WebSocket;
use nanobot_net::web_url::percent_encode;
use parking_lot::Mutex;
use post::PostReader;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Posts of one response to `since`, with deleted ones (`GetPostsSince` of the server). A response with that many may lack
/// others, and which ones is not defined.
const MAX_POSTS_SINCE: usize = 1000;
/// Posts of a page of a channel's history; the server's maximum.
const PAGE_POSTS: usize = 200;
/// Largest upload; the default of the server is twice as much.
const MAX_UPLOAD_BYTES: u64 = 50_000_000;
/// The property of our posts with the key of the part.
const KEY_PROP: &str = "nanobot_key";
/// Mentions that notify a whole channel.
const CHANNEL_MENTIONS: &[&str] = &["@all", "@channel", "@here"];

struct Mattermost {
    client: ServiceClient,
    access: AccessRules,
    settings: MattermostSettings,
    events: EventListener<WebSocket>,
    /// User names or mail addresses by user id, whichever `allowFromMatchMode` names.
    names: Mutex<BTreeMap<String, String>>,
}

/// Keys of the config.
struct MattermostSettings {
    /// Only channels of this team, and direct ones.
    team: Option<String>,
    /// The member of a user that `allowFrom` has instead of the id.
    matched_member: Option<&'static str>,
    replies_in_thread: bool,
    policy_in_thread: GroupPolicy,
    /// Posts of a thread that the model gets with a post in it.
    max_context_posts: usize,
    done_emoji: Option<String>,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(crate) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let token = config.required_secret("token")?;
    let client = ServiceClient::new(setup, "serverUrl", "token")?;
    let policy = config.text("groupPolicyInThread");
    let policy = policy.or_else(|| config.text("groupPolicy"));
    let settings = MattermostSettings {
        team: config.text("teamId"),
        matched_member: match config.text("allowFromMatchMode").as_deref() {
            Some("username") => Some("username"),
            Some("email") => Some("email"),
            _ => None,
        },
        replies_in_thread: config.flag("replyInThread"),
        policy_in_thread: GroupPolicy::parse(&policy.unwrap_or_default()),
        max_context_posts: max_context_messages(config),
        done_emoji: config.text("doneEmoji"),
    };
    Ok(Box::new(Mattermost {
        client: client.with_bearer(token),
        access: setup.access.clone(),
        settings,
        events: EventListener::default(),
        names: Mutex::default(),
    }))
}

impl ConversationService for Mattermost {
    /// In milliseconds.
    const OVERLAP: u64 = 1000;
    const READ_INTERVAL: Duration = Duration::from_secs(2);
    type Connection = WebSocket;

    fn conversations(&self, _cache: &mut Value) -> ChannelResult<Vec<Conversation>> {
        let response = self.client.get("/api/v4/users/me/channels");
        let response = response.map_err(|error| self.misconfigured(error))?;
        let channels = self.client.list_of(&response)?;
        let is_read =
            |channel: &&Value| self.reads_team(channel["team_id"].as_str().unwrap_or_default());
        let conversations = channels.iter().filter(is_read).filter_map(|channel| {
            Some(Conversation {
                id: channel["id"].as_str()?.to_owned(),
                is_direct: channel["type"] == "D",
                newest: channel["last_post_at"].as_u64(),
            })
        });
        Ok(conversations.collect())
    }

    fn entries_after(
        &self,
        identity: &Identity,
        conversation: &Conversation,
        position: u64,
    ) -> ChannelResult<Vec<ConversationEntry>> {
        let posts = self.posts_since(&conversation.id, position)?;
        let reader = PostReader {
            identity,
            conversation,
            replies_in_thread: self.settings.replies_in_thread,
            policy_in_thread: self.settings.policy_in_thread,
        };
        let mut entries: Vec<ConversationEntry> =
            posts.iter().map(|post| reader.to_entry(post)).collect();
        let mut messages: Vec<&mut InboundMessage> =
            entries.iter_mut().filter_map(|entry| entry.message.as_mut()).collect();
        self.name_senders(&mut messages)?;
        for message in messages {
            self.add_context(&reader, message)?;
        }
        Ok(entries)
    }

    fn connect(&self, _cache: &mut Value) -> ChannelResult<Option<WebSocket>> {
        let socket = self.client.open_websocket("/api/v4/websocket")?;
        Ok(Some(socket))
    }

    fn next_event(
        &self,
        socket: &mut WebSocket,
        _cache: &mut Value,
        identity: &Identity,
        end: Duration,
    ) -> ChannelResult<Option<ServiceEvent>> {
        while let Some(event) = next_json(socket, end)? {
            if let Some(conversation) = post::conversation_of(&event, identity)
                && self.reads_team(event["data"]["team_id"].as_str().unwrap_or_default())
            {
                return Ok(Some(ServiceEvent::Messages(conversation)));
            }
        }
        Ok(None)
    }

    fn client(&self) -> &ServiceClient {
        &self.client
    }
}

impl Channel for Mattermost {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        conversation_poll::poll(self, &self.events, request)
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        let thread = destination.chat.thread.as_deref();
        self.with_channel_of(destination, |channel| self.create_post(channel, thread, part, key))
    }

    fn edit(&self, _destination: &Destination, id: &str, part: &Part) -> ChannelResult<()> {
        let path = format!("/api/v4/posts/{}/patch", percent_encode(id));
        let body = json!({ "message": without_pings(&part.markup, CHANNEL_MENTIONS) });
        self.client.exchange(&ServiceRequest::put(&path).json(&body)).map(drop)
    }

    fn find_sent(&self, destination: &Destination, key: &str) -> ChannelResult<Option<String>> {
        let recent_posts = self.with_channel_of(destination, |channel| {
            let channel = percent_encode(channel);
            let path = format!("/api/v4/channels/{channel}/posts?per_page={PAGE_POSTS}");
            self.client.get(&path)
        });
        let posts = match recent_posts {
            Ok(list) => post::in_order(&list),
            // The attempt to send reports the cause.
            Err(ChannelError::RecipientRefused(_) | ChannelError::Undeliverable(_)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let sent = posts.iter().find(|post| post["props"][KEY_PROP] == key);
        Ok(sent.and_then(|sent| Some(sent["id"].as_str()?.to_owned())))
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let path = format!("/api/v4/files/{}", percent_encode(&file.id));
        self.client.download(&path, writer, limit_bytes)
    }

    fn show_typing(&self, destination: &Destination) {
        let Chat { id, thread, .. } = &destination.chat;
        let body = json!({ "channel_id": id, "parent_id": thread.as_deref().unwrap_or_default() });
        self.client.notify("/api/v4/users/me/typing", &body);
    }

    fn mark_answered(&self, message: &InboundMessage) {
        let facts = &message.reply_facts;
        if let Some(emoji) = &self.settings.done_emoji {
            let emoji = emoji.trim_matches(':');
            let body =
                json!({ "user_id": facts["account"], "post_id": message.id, "emoji_name": emoji });
            self.client.notify("/api/v4/reactions", &body);
        }
    }

    fn identity(&self) -> Result<Identity> {
        let user = self.client.get("/api/v4/users/me");
        let user = user.map_err(|error| self.misconfigured(error))?;
        Ok(self.client.identity_of(&user["id"], &user["username"])?)
    }
}

impl Mattermost {
    /// True if messages of this team are read; direct ones have none.
    fn reads_team(&self, team: &str) -> bool {
        team.is_empty() || self.settings.team.as_deref().is_none_or(|configured| configured == team)
    }

    /// The error of a request that every server must answer.
    fn misconfigured(&self, error: ChannelError) -> ChannelError {
        match error {
            ChannelError::Undeliverable(cause) => {
                ChannelError::Misconfigured(format!("`channels.mattermost.serverUrl`: {cause}"))
            }
            other => other,
        }
    }

    /// The posts of a channel that were created after `since`, in order.
    fn posts_since(&self, channel: &str, since: u64) -> ChannelResult<Vec<Value>> {
        let path = format!("/api/v4/channels/{}/posts", percent_encode(channel));
        let is_new = |post: &Value| post::created_at(post) > since;
        let mut posts = post::listed(&self.client.get(&format!("{path}?since={since}"))?);
        if posts.len() >= MAX_POSTS_SINCE {
            posts.clear();
            let mut page_path = format!("{path}?per_page={PAGE_POSTS}");
            loop {
                let page = post::listed(&self.client.get(&page_path)?);
                let oldest = page.last().filter(|post| is_new(post));
                let oldest = oldest.and_then(|post| Some(percent_encode(post["id"].as_str()?)));
                posts.extend(page);
                let Some(oldest) = oldest else {
                    break;
                };
                page_path = format!("{path}?before={oldest}&per_page={PAGE_POSTS}");
            }
        }
        posts.retain(|post| is_new(post) && post::is_visible(post));
        post::sort(&mut posts);
        Ok(posts)
    }

    /// Adds the names of the senders, if `allowFrom` has names.
    fn name_senders(&self, messages: &mut [&mut InboundMessage]) -> ChannelResult<()> {
        let Some(member) = self.settings.matched_member else {
            return Ok(());
        };
        let mut names = self.names.lock();
        let mut unknown: Vec<&str> =
            messages.iter().map(|message| message.from.id.as_str()).collect();
        unknown.retain(|id| !names.contains_key(*id));
        if !unknown.is_empty() {
            let users = self.client.post("/api/v4/users/ids", &json!(unknown))?;
            for user in items(&users) {
                let text = |name: &str| user[name].as_str().map(str::to_owned);
                if let (Some(id), Some(name)) = (text("id"), text(member)) {
                    names.insert(id, name);
                }
            }
        }
        for message in messages {
            message.from.name = names.get(&message.from.id).cloned();
        }
        Ok(())
    }

    /// Adds the posts of other users in the thread of a message since our last post in it.
    fn add_context(
        &self,
        reader: &PostReader<'_>,
        message: &mut InboundMessage,
    ) -> ChannelResult<()> {
        let max_posts = self.settings.max_context_posts;
        let root = context_thread(message, &message.id, &self.access);
        let Some(root) = root.filter(|_| max_posts > 0) else {
            return Ok(());
        };
        let path = format!("/api/v4/posts/{}/thread", percent_encode(&root));
        let thread = post::in_order(&self.client.get(&path)?);
        message.quotes = reader.thread_context(&thread, &message.id, max_posts);
        Ok(())
    }

    /// Runs `action` with the id of the channel of a destination. A recipient may also be a user, by id or as `@name`: then
    /// it is our direct channel with the user.
    fn with_channel_of<T>(
        &self,
        destination: &Destination,
        action: impl Fn(&str) -> ChannelResult<T>,
    ) -> ChannelResult<T> {
        let chat = &destination.chat;
        if let Some(name) = chat.id.strip_prefix('@') {
            let path = format!("/api/v4/users/username/{}", percent_encode(name));
            let user = self.client.text_of(&self.client.get(&path)?["id"])?;
            return action(&self.direct_channel(&user)?);
        }
        match action(&chat.id) {
            // Ids of users look like those of channels.
            Err(ChannelError::RecipientRefused(cause) | ChannelError::Undeliverable(cause))
                if chat.thread.is_none() && destination.reply_facts.is_null() =>
            {
                match self.direct_channel(&chat.id) {
                    Ok(channel) => action(&channel),
                    // The server answers 403 for an id that does not exist, too.
                    Err(ChannelError::RecipientRefused(_) | ChannelError::Undeliverable(_)) => {
                        Err(ChannelError::Undeliverable(cause))
                    }
                    Err(error) => Err(error),
                }
            }
            result => result,
        }
    }

    /// The id of our direct channel with a user.
    fn direct_channel(&self, user: &str) -> ChannelResult<String> {
        let own_user = self.client.get("/api/v4/users/me")?;
        let users = json!([own_user["id"], user]);
        let channel = self.client.post("/api/v4/channels/direct", &users)?;
        self.client.text_of(&channel["id"])
    }

    fn create_post(
        &self,
        channel: &str,
        thread: Option<&str>,
        part: &Part,
        key: &str,
    ) -> ChannelResult<String> {
        let mut body = json!({
            "channel_id": channel,
            "message": without_pings(&part.markup, CHANNEL_MENTIONS),
            "pending_post_id": key,
            "props": { KEY_PROP: key },
        });
        if let Some(thread) = thread {
            body["root_id"] = thread.into();
        }
        if let Some(file) = &part.file {
            body["file_ids"] = json!([self.upload(channel, file)?]);
        }
        // The server recognises a repeated post by its pending id.
        self.client.text_of(&self.client.post("/api/v4/posts", &body)?["id"])
    }

    /// Uploads a file; returns its id.
    fn upload(&self, channel: &str, path: &Path) -> ChannelResult<String> {
        let file = UploadFile::read(path, MAX_UPLOAD_BYTES)?;
        let (media_type, form) = file.to_form(&[("channel_id", channel)], "files");
        let request = ServiceRequest::post("/api/v4/files").body(&media_type, form);
        let response = self.client.exchange(&request)?;
        self.client.text_of(&response["file_infos"][0]["id"])
    }
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(crate) fn decode(value: &Value) -> Option<InboundMessage> {
    let identity = Identity { id: "bot".into(), name: "bot".into() };
    let conversation = Conversation { id: "c".into(), is_direct: true, newest: None };
    let reader = PostReader {
        identity: &identity,
        conversation: &conversation,
        replies_in_thread: false,
        policy_in_thread: GroupPolicy::Open,
    };
    reader.to_entry(value).message
}
