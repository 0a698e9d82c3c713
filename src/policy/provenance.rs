//! Provenance: tracks the origin of a conversation's content, and what follows from it. Pure.
//!
//! Content by others may hold injected instructions. The origin of a conversation is the highest one of its content, and
//! never falls until `/new`:
//!
//! | | user | project | external |
//! |---|---|---|---|
//! | web addresses | any | named hosts, and addresses that were read verbatim | the same |
//! | notes of the workspace, its skills | written | written | with `--allow notes` |
//! | instruction files of a trusted directory | written | written | with `--allow startup` |
//! | jobs | added and removed | added and removed | with `--allow cron` |
//! | MEMORY.md | written | written | written, and labelled |
//!
//! A request discloses everything in its address to the host. So addresses by others count only if the model cannot have
//! written them: files that the run can write, command output, results of other programs, summaries and the model's own
//! text do not count, because an injected model would write the address there and read it back.

use super::Refusal;
use super::file_scope::{FileAccess, FileScope};
use super::net::Net;
use super::refusal::DENIED;
use crate::message::{Message, MessagePart, Origin, Reply, ToolResult, UserMessage};
use crate::shell_quote::quote;
use crate::sys::sync::IgnorePoison;
use addresses::{
    comparison_key, contains_host, find_addresses, find_hosts, is_bare_address, normalize,
    parse_address,
};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use url::Url;

pub use guarded_change::{ChangeGrants, Grant, GuardedChange};

pub mod addresses;
mod egress;
mod guarded_change;

/// Suffixes of the ids of injected user messages that hold our own text (the guards' messages), not untrusted content.
const OWN_MESSAGE_SUFFIXES: &[&str] = &["lost", "plan", "task", "warning"];
/// Tools whose results hold only our own text.
const OWN_TEXT_TOOLS: &[&str] = &[
    "ask_user",
    "write_file",
    "delete_file",
    "todo",
    "message",
    "cron",
    "spawn",
];
/// The id suffix of a message that was piped in without text from the user.
pub const PIPED_SUFFIX: &str = "stdin";
/// Tools that reveal file content or names.
const FILE_TOOLS: &[&str] = &["read_file", "grep", "list_dir", "glob", "edit_file"];
/// Tools among [`FILE_TOOLS`] whose results quote file content verbatim.
const VERBATIM_TOOLS: &[&str] = &["read_file", "grep"];
/// The blocks within a user message that hold third-party content.
const BLOCK_TAGS: &[&str] = &["stdin", "file", "page", "directory"];
/// Placeholders for attachments in a session that was loaded from disk.
const ATTACHMENT_PLACEHOLDERS: &[&str] = &["[image: ", "[document: ", "[image]"];
/// Limits on the addresses from untrusted content that may be requested, per domain and per run.
const MAX_ADDRESSES_PER_DOMAIN: usize = 8;
const MAX_ADDRESSES_PER_RUN: usize = 40;

/// The phrase in a refusal for an address that a server redirected to. The address is that server's text.
pub const REDIRECT_PHRASE: &str = " redirects to ";
/// The same phrase in sessions of earlier releases.
const OLD_LEADS_ON: &str = " leads on to ";

/// The start of the result of a refused call, now and in sessions of earlier releases.
const DENIALS: [&str; 2] = [DENIED, "refused: "];

/// Resolves a path to its real path, following links.
pub type ResolveRealPath = Box<dyn Fn(&Path) -> PathBuf + Send + Sync>;

/// The facts that determine the provenance of file content.
pub struct TrustContext {
    pub file_scope: FileScope,
    /// The real path of the agent's own directory, which holds the user's instructions.
    pub workspace: PathBuf,
    /// True if commands run without a sandbox and may write anywhere.
    pub commands_write_anywhere: bool,
    /// True if commands may use the network, so that their output may be from anywhere.
    pub commands_have_network: bool,
    /// True for paths in the private directories of runs.
    pub is_private: fn(&Path) -> bool,
    pub resolve_real_path: ResolveRealPath,
}

/// Hosts that may always be requested.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    pub net: Net,
    /// Hosts named by the config and by the workspace's skills.
    pub hosts: BTreeSet<String>,
}

/// The reason why an address may be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressTrust {
    /// The conversation holds no untrusted content yet.
    Clean,
    /// The address appears verbatim in content that was read.
    Verbatim,
    /// The host is allowed; the model may have composed the rest of the address.
    Host,
}

impl AddressTrust {
    /// True if no part of the address can carry data chosen by untrusted content. Only then does the response vouch for
    /// addresses in it.
    pub fn is_safe(self) -> bool {
        self != Self::Host
    }
}

/// The processed part of a conversation: number of messages, and the id of the last one.
#[derive(Debug, Default)]
pub struct MessageCursor(usize, String);

impl MessageCursor {
    /// True if no message has been processed.
    pub fn is_at_start(&self) -> bool {
        self.0 == 0
    }
}

/// The provenance state of a run.
pub struct ProvenanceTracker {
    context: TrustContext,
    state: Mutex<ProvenanceState>,
}

#[derive(Default)]
struct ProvenanceState {
    origin: Origin,
    /// The first content of that origin, as a phrase.
    content: String,
    /// True if the origin is known from the start of the conversation on, so that summaries and reports add nothing to
    /// it.
    is_complete: bool,
    /// Hosts that the user named.
    hosts: BTreeSet<String>,
    /// Addresses found in content that the model cannot have written.
    addresses: HashSet<String>,
    /// Those of them that were requested after untrusted content arrived, by domain.
    requested: HashMap<String, HashSet<String>>,
    /// Files that the model has changed, in this turn or an earlier one.
    written_files: HashSet<PathBuf>,
    /// Tool calls without a result so far.
    pending_calls: HashMap<String, PendingCall>,
}

struct PendingCall {
    name: String,
    arguments: Value,
    /// True if the model had read no untrusted content when it made the call, or the requested address was a vouched
    /// one.
    is_trusted: bool,
}

impl ProvenanceTracker {
    /// Creates the state of a conversation without messages.
    pub fn new(context: TrustContext) -> Self {
        Self {
            context,
            state: Mutex::default(),
        }
    }

    /// Processes the new messages in `messages`, the full list to be sent. If the beginning has changed, as after a
    /// compaction, all of it is processed again. State is only ever added.
    pub fn observe_all(&self, cursor: &mut MessageCursor, messages: &[Message]) {
        let MessageCursor(count, last) = cursor;
        let is_last = |message: &Message| message.id() == last;
        let goes_on = *count > 0 && messages.get(*count - 1).is_some_and(is_last);
        let from = if goes_on { *count } else { 0 };
        messages[from..].iter().for_each(|it| self.observe(it));
        let last = messages.last().map(|it| it.id().to_owned());
        *cursor = MessageCursor(messages.len(), last.unwrap_or_default());
    }

    /// Processes one message.
    pub fn observe(&self, message: &Message) {
        let mut state = self.lock_state();
        match message {
            Message::User(user) => state.observe_user(user),
            Message::Assistant(reply) => state.observe_reply(reply, &self.context),
            Message::Tool(result) => state.observe_result(result, &self.context),
        }
    }

    /// Records that the conversation now holds content of `origin`, named by the phrase `content`.
    pub fn raise(&self, origin: Origin, content: &str) {
        self.lock_state().raise(origin, || content.to_owned());
    }

    /// Starts with the origin that an earlier turn has recorded, or with a new conversation.
    pub fn restore(&self, origin: Origin, content: &str) {
        let mut state = self.lock_state();
        state.raise(origin, || content.to_owned());
        state.is_complete = true;
    }

    /// True if the origin of all earlier turns is known.
    pub fn is_complete(&self) -> bool {
        self.lock_state().is_complete
    }

    /// The origin of the conversation, and its first content of that origin as a phrase.
    pub fn origin(&self) -> (Origin, String) {
        let state = self.lock_state();
        (state.origin, state.content.clone())
    }

    /// The first content of the highest origin, as a phrase, if that is not the user's own.
    pub fn untrusted(&self) -> Option<String> {
        let (origin, content) = self.origin();
        (origin > Origin::User).then_some(content)
    }

    /// The first external content, as a phrase, if there is any.
    pub fn external(&self) -> Option<String> {
        let (origin, content) = self.origin();
        (origin == Origin::External).then_some(content)
    }

    /// Decides if `url` may be requested.
    ///
    /// # Errors
    /// A refusal with the flag that would grant it.
    pub fn check_address(
        &self,
        url: &Url,
        allowed: &AllowedHosts,
    ) -> Result<AddressTrust, Refusal> {
        let mut state = self.lock_state();
        if state.origin == Origin::User {
            return Ok(AddressTrust::Clean);
        }
        let what = state.content.clone();
        let host = url.host_str().unwrap_or_default();
        if contains_host(&state.hosts, host) || allowed.contains(url) {
            return Ok(match state.addresses.contains(&comparison_key(url)) {
                true => AddressTrust::Verbatim,
                false => AddressTrust::Host,
            });
        }
        if state.addresses.contains(&comparison_key(url)) {
            return match state.record_request(url) {
                true => Ok(AddressTrust::Verbatim),
                false => {
                    let flag = format!("--net={host}");
                    Err(Refusal {
                        message: format!(
                            "too many addresses from untrusted content were requested (at most {MAX_ADDRESSES_PER_DOMAIN} per domain and \
                             {MAX_ADDRESSES_PER_RUN} per run); the user can grant `{host}` with `{flag}`"
                        ),
                        suggested_flag: Some(flag),
                    })
                }
            };
        }
        let flag = format!("--net={}", quote(host));
        Err(Refusal {
            message: format!(
                "the conversation contains untrusted content ({what}), so `{host}` may be requested only at addresses that \
                 appear verbatim in search results or in content that was read"
            ),
            suggested_flag: Some(flag),
        })
    }

    fn lock_state(&self) -> MutexGuard<'_, ProvenanceState> {
        self.state.lock().ignore_poison()
    }
}

impl AllowedHosts {
    fn contains(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        self.net.grants(host, url.port_or_known_default()) || contains_host(&self.hosts, host)
    }
}

impl ProvenanceState {
    fn raise(&mut self, origin: Origin, content: impl FnOnce() -> String) {
        if origin > self.origin {
            (self.origin, self.content) = (origin, content());
        }
    }

    /// True if `url`, which appears in content that was read, is within the limits on such requests. Without limits, a
    /// page that lists one address per letter would let the model spell out data.
    fn record_request(&mut self, url: &Url) -> bool {
        let all: usize = self.requested.values().map(HashSet::len).sum();
        let asked = self.requested.entry(registrable_domain(url)).or_default();
        let key = comparison_key(url);
        if asked.contains(&key) {
            return true;
        }
        let may = asked.len() < MAX_ADDRESSES_PER_DOMAIN && all < MAX_ADDRESSES_PER_RUN;
        may && asked.insert(key)
    }

    fn observe_user(&mut self, user: &UserMessage) {
        if user.injected {
            let mark = user.id.rsplit('-').next().unwrap_or_default();
            let repair = mark.strip_prefix('r').is_some_and(is_number);
            let is_own = repair || OWN_MESSAGE_SUFFIXES.contains(&mark);
            if !is_own && !self.is_complete {
                self.raise(Origin::Project, || match user.id.as_str() {
                    "summary" => "a summary of the earlier conversation".into(),
                    _ => "a report".into(),
                });
            }
            return;
        }
        let is_piped = is_piped(user);
        for part in &user.parts {
            let text = match part {
                MessagePart::Text(text) => text,
                MessagePart::Image(image) => {
                    self.raise(Origin::Project, || format!("the image `{}`", image.name));
                    continue;
                }
                MessagePart::Document(document) => {
                    self.raise(Origin::Project, || {
                        format!("the document `{}`", document.name)
                    });
                    continue;
                }
            };
            if is_attachment_placeholder(text) {
                self.raise(Origin::Project, || "an attachment".into());
                continue;
            }
            if is_piped {
                self.raise(Origin::Project, || "piped input".into());
                self.addresses
                    .extend(find_addresses(text).map(|url| comparison_key(&url)));
                continue;
            }
            let (own, others) = split_blocks(text);
            self.hosts.extend(find_hosts(&own));
            for (kind, block) in others {
                match kind {
                    "stdin" => self.raise(Origin::Project, || "piped input".into()),
                    "page" => self.raise(Origin::External, || "an attached page".into()),
                    kind => self.raise(Origin::Project, || format!("an attached {kind}")),
                }
                self.addresses
                    .extend(find_addresses(block).map(|url| comparison_key(&url)));
            }
        }
    }

    fn observe_reply(&mut self, reply: &Reply, context: &TrustContext) {
        for call in &reply.tool_calls {
            let text = |name: &str| call.arguments[name].as_str();
            if ["write_file", "edit_file"].contains(&call.name.as_str())
                && let Some(path) = text("path")
            {
                self.written_files.insert(context.resolve(path));
            }
            let vouches = self.origin == Origin::User
                || text("url")
                    .and_then(parse_address)
                    .is_some_and(|url| self.addresses.contains(&comparison_key(&url)));
            let called = PendingCall {
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                is_trusted: vouches,
            };
            self.pending_calls.insert(call.id.clone(), called);
        }
    }

    fn observe_result(&mut self, result: &ToolResult, context: &TrustContext) {
        let ToolResult {
            call_id: call,
            name,
            parts,
            failed,
        } = result;
        let called = self.pending_calls.remove(call);
        // The arguments are the model's own text, and a copy of them in the result vouches for nothing.
        let asked = called
            .as_ref()
            .map(|called| normalize(&called.arguments.to_string()));
        let vouches = match (name.as_str(), &called) {
            (_, Some(called)) if called.name != *name => {
                self.raise(Origin::External, || format!("the result of `{name}`"));
                false
            }
            (name, _) if OWN_TEXT_TOOLS.contains(&name) => return,
            // The request was refused before it was sent.
            ("web_search" | "web_fetch", _) if *failed && is_own_refusal(parts) => return,
            // Failures count too: the message may quote the server, or name the address that it redirected to.
            ("web_search" | "web_fetch", _) if *failed => {
                self.raise(Origin::External, || format!("the result of `{name}`"));
                false
            }
            ("web_search", _) => {
                self.raise(Origin::External, || "search results".into());
                true
            }
            ("web_fetch", called) => {
                self.raise(Origin::External, || "a web page".into());
                called.as_ref().is_some_and(|called| called.is_trusted)
            }
            (name, Some(called)) if FILE_TOOLS.contains(&name) => {
                let path = called.arguments["path"].as_str().unwrap_or(".");
                let place = context.resolve(path);
                match context.origin_of_file(&place) {
                    Origin::User => return,
                    origin => self.raise(origin, || format!("`{path}`")),
                }
                VERBATIM_TOOLS.contains(&name)
                    && !failed
                    && !self.may_contain_model_text(&place, context)
            }
            (name, _) => {
                let is_local =
                    name == "exec" && !context.commands_have_network || FILE_TOOLS.contains(&name);
                let origin = if is_local {
                    Origin::Project
                } else {
                    Origin::External
                };
                self.raise(origin, || format!("the result of `{name}`"));
                false
            }
        };
        if !vouches {
            return;
        }
        let asked = asked.unwrap_or_default();
        for part in parts {
            let MessagePart::Text(text) = part else {
                continue;
            };
            // Of search results, only lines that are an address and nothing else: a page or the query can influence the
            // other text.
            let is_address = |line: &&str| name != "web_search" || is_bare_address(line.trim());
            for line in text.lines().filter(is_address) {
                let others =
                    find_addresses(line).filter(|url| !asked.contains(&normalize(url.as_str())));
                self.addresses
                    .extend(others.map(|url| comparison_key(&url)));
            }
        }
    }

    /// True if the file at `place` may hold content that the model wrote.
    fn may_contain_model_text(&self, place: &Path, context: &TrustContext) -> bool {
        context.commands_write_anywhere
            // Kept output of commands, which the model composed.
            || (context.is_private)(place)
            || self
                .written_files
                .iter()
                .any(|path| path.starts_with(place))
            || context.may_write(place)
    }
}

impl TrustContext {
    fn resolve(&self, path: &str) -> PathBuf {
        (self.resolve_real_path)(&self.file_scope.absolute(path))
    }

    /// The origin of what the file at `place` holds: the user's for instruction files, which no run changes after content
    /// from outside without permission, and for the memory, whose label was heeded when the run began. An earlier run
    /// may have written any other file in the workspace on behalf of such content.
    fn origin_of_file(&self, place: &Path) -> Origin {
        let is_own = self.file_scope.is_user_instruction(place)
            || place == self.workspace.join("memory/MEMORY.md");
        match is_own {
            true => Origin::User,
            false => Origin::Project,
        }
    }

    /// True if this run can change `place`, or something beneath it.
    fn may_write(&self, place: &Path) -> bool {
        let in_root = self.file_scope.roots.iter().filter(|root| root.may_write);
        let mut roots = in_root.map(|root| &root.path);
        roots.any(|root| place.starts_with(root) || root.starts_with(place))
            || !self.file_scope.allowed.is_empty()
            || place
                .to_str()
                .is_none_or(|place| self.file_scope.decide(place, FileAccess::Write).is_ok())
    }
}

/// True if a result is a refusal that quotes only what the model had requested.
fn is_own_refusal(parts: &[MessagePart]) -> bool {
    let text = crate::message::plain_text(parts);
    DENIALS.iter().any(|start| text.starts_with(start))
        && ![REDIRECT_PHRASE, OLD_LEADS_ON]
            .iter()
            .any(|it| text.contains(it))
}

/// The registrable part of a host, estimated from its form.
fn registrable_domain(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let labels: Vec<&str> = host.split('.').collect();
    let is_shared = |end: &[&str]| end[1].len() == 2 && end[0].len() <= 3;
    let count = match labels.len() {
        count if count > 2 && is_shared(&labels[count - 2..]) => 3,
        _ => 2,
    };
    labels[labels.len().saturating_sub(count)..].join(".")
}

/// The user's own text in `message`, without third-party blocks; `None` if its author is unknown.
pub fn user_text(message: &UserMessage) -> Option<String> {
    if message.injected || is_piped(message) {
        return None;
    }
    let texts = message.parts.iter().filter_map(|part| match part {
        MessagePart::Text(text) if !is_attachment_placeholder(text) => Some(split_blocks(text).0),
        _ => None,
    });
    Some(texts.collect())
}

/// True if the whole message was piped in.
fn is_piped(message: &UserMessage) -> bool {
    message.id.rsplit('-').next() == Some(PIPED_SUFFIX)
}

/// True if `text` is a placeholder for an attachment.
fn is_attachment_placeholder(text: &str) -> bool {
    ATTACHMENT_PLACEHOLDERS
        .iter()
        .any(|start| text.starts_with(start))
}

/// Splits `text` into the user's own text and the third-party blocks in it, with their kinds. A block ends at its own
/// closing tag, which cannot occur within it; an unclosed block extends to the end of the text.
fn split_blocks(text: &str) -> (String, Vec<(&'static str, &str)>) {
    let (mut own, mut others) = (String::new(), Vec::new());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let Some((kind, mark)) = parse_opening_tag(&rest[..end]) else {
            own.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        };
        let close = format!("</{mark}>");
        let stop = rest.find(&close).unwrap_or(rest.len());
        others.push((kind, &rest[..stop]));
        rest = &rest[(stop + close.len()).min(rest.len())..];
    }
    (own, others)
}

/// The kind of block that `line` opens, and its tag.
fn parse_opening_tag(line: &str) -> Option<(&'static str, &str)> {
    let rest = line.strip_prefix('<')?;
    let mark = &rest[..rest.find([' ', '>'])?];
    let (kind, number) = mark.split_once('-').unwrap_or((mark, "2"));
    let kind = BLOCK_TAGS.iter().find(|known| **known == kind)?;
    is_number(number).then_some((*kind, mark))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{
        AddressTrust, AllowedHosts, MessageCursor, ProvenanceTracker, TrustContext, split_blocks,
    };
    use crate::message::{
        Image, Message, MessagePart, Origin, Reply, ToolCall, ToolResult, UserMessage,
    };
    use crate::policy::file_scope::{FileScope, ScopeRoot};
    use crate::policy::net::Net;
    use crate::policy::rule::Pattern;
    use serde_json::{Value, json};
    use std::path::{Path, PathBuf};
    use url::Url;

    fn trust_context(commands_write_anywhere: bool) -> TrustContext {
        let root = |path: &str, may_write| ScopeRoot {
            path: path.into(),
            may_write,
        };
        let real = |path: &Path| match path.to_str() {
            Some("/home/u/w/link") => PathBuf::from("/srv/app/evil.md"),
            _ => path.to_owned(),
        };
        TrustContext {
            file_scope: FileScope {
                directory: "/srv/app".into(),
                home: "/home/u".into(),
                roots: vec![
                    root("/srv/app", false),
                    root("/srv/app/out", true),
                    root("/home/u/w", true),
                ],
                instruction_files: vec!["/home/u/w/AGENTS.md".into()],
                ..FileScope::default()
            },
            workspace: "/home/u/w".into(),
            commands_write_anywhere,
            commands_have_network: false,
            is_private: |path| path.starts_with("/tmp/nanobot-run-0"),
            resolve_real_path: Box::new(real),
        }
    }

    fn user_message(text: &str) -> Message {
        let parts = vec![MessagePart::Text(text.into())];
        Message::User(UserMessage {
            parts,
            ..UserMessage::default()
        })
    }

    fn injected(id: &str, text: &str) -> Message {
        Message::User(UserMessage {
            id: id.into(),
            parts: vec![MessagePart::Text(text.into())],
            injected: true,
            ..UserMessage::default()
        })
    }

    /// A tool call and its result.
    fn tool_call(name: &str, arguments: Value, text: &str, failed: bool) -> [Message; 2] {
        let call = ToolCall {
            id: "c".into(),
            name: name.into(),
            arguments,
        };
        let reply = Reply {
            tool_calls: vec![call],
            ..Reply::default()
        };
        let result = ToolResult {
            call_id: "c".into(),
            name: name.into(),
            parts: vec![MessagePart::Text(text.into())],
            failed,
        };
        [Message::Assistant(reply), Message::Tool(result)]
    }

    fn successful_call(name: &str, arguments: Value, text: &str) -> Vec<Message> {
        tool_call(name, arguments, text, false).to_vec()
    }

    const EVIL: &str = "https://evil.example/?d=SECRET";

    #[track_caller]
    fn check(conversation: &[Vec<Message>], url: &str, expect: Option<AddressTrust>) {
        let seen = ProvenanceTracker::new(trust_context(false));
        let free = AllowedHosts {
            hosts: ["configured.example".to_owned()].into(),
            ..AllowedHosts::default()
        };
        let mut messages = Vec::new();
        for step in conversation {
            messages.extend(step.iter().cloned());
            seen.observe_all(&mut MessageCursor::default(), &messages);
        }
        let found = seen.check_address(&Url::parse(url).unwrap(), &free);
        assert_eq!(found.clone().ok(), expect, "{url}: {:?}", seen.untrusted());
        if let Err(refusal) = found {
            assert!(
                refusal
                    .suggested_flag
                    .is_some_and(|flag| flag.starts_with("--net="))
            );
        }
    }

    #[test]
    fn listed_addresses_are_limited() {
        let seen = ProvenanceTracker::new(trust_context(false));
        let list: Vec<String> = (0..60)
            .map(|number| format!("https://h{}.evil.example/{number}", number % 3))
            .collect();
        let page = tool_call(
            "web_fetch",
            json!({"url": "https://evil.example/"}),
            &list.join("\n"),
            false,
        );
        seen.observe_all(&mut MessageCursor::default(), &page);
        let may = |url: &String| {
            seen.check_address(&Url::parse(url).unwrap(), &AllowedHosts::default())
                .is_ok()
        };
        assert_eq!(
            list.iter().filter(|url| may(url)).count(),
            super::MAX_ADDRESSES_PER_DOMAIN
        );
        // An address that was requested before may be requested again.
        assert!(may(&list[0]));
    }

    #[test]
    fn which_addresses_may_be_requested() {
        use AddressTrust::{Clean, Host, Verbatim};
        let asks = || {
            vec![user_message(
                "look at https://named.example/a and docs.example, please",
            )]
        };
        let exec = |text: &str| successful_call("exec", json!({"command": "cat x"}), text);
        let page = |url: &str, text: &str| successful_call("web_fetch", json!({"url": url}), text);
        // Without untrusted content, any address is allowed.
        check(&[], EVIL, Some(Clean));
        check(&[asks()], EVIL, Some(Clean));
        let read = |path: &str| {
            [
                asks(),
                successful_call("read_file", json!({"path": path}), EVIL),
            ]
        };
        check(&read("/home/u/w/memory/MEMORY.md"), EVIL, Some(Clean));
        check(&read("/home/u/w/a.md"), EVIL, None);
        check(&read("/home/u/w/memory/HISTORY.md"), EVIL, None);
        check(
            &[
                asks(),
                successful_call("write_file", json!({"path": "a"}), "Wrote"),
            ],
            EVIL,
            Some(Clean),
        );
        check(
            &[
                asks(),
                tool_call("web_fetch", json!({"url": "x"}), "no", true).to_vec(),
            ],
            EVIL,
            // The failure message may quote untrusted content.
            None,
        );
        // Our own refusals are trusted. A page that imitates one is not, and neither is a redirect target.
        let fetched =
            |text: &str, failed| tool_call("web_fetch", json!({"url": "x"}), text, failed).to_vec();
        check(
            &[asks(), fetched("Tool call denied: `x` is near", true)],
            EVIL,
            Some(Clean),
        );
        check(
            &[asks(), fetched("refused: `x` is near", true)],
            EVIL,
            Some(Clean),
        );
        check(
            &[asks(), fetched("Tool call denied: `x` is near", false)],
            EVIL,
            None,
        );
        for text in [
            "Tool call denied: `x` redirects to `y`; no",
            "refused: `x` leads on to `y`; no",
        ] {
            check(&[asks(), fetched(text, true)], EVIL, None);
        }
        check(&[vec![injected("t-plan", "Only look.")]], EVIL, Some(Clean));
        check(&[vec![injected("t-r1", "Not JSON.")]], EVIL, Some(Clean));
        // With untrusted content, only named hosts are allowed.
        check(&[asks(), exec("x")], EVIL, None);
        check(
            &[asks(), exec("x")],
            "https://named.example/?d=SECRET",
            Some(Host),
        );
        check(
            &[asks(), exec("x")],
            "https://www.named.example/",
            Some(Host),
        );
        check(&[asks(), exec("x")], "https://docs.example/b", Some(Host));
        check(&[asks(), exec("x")], "https://sub.docs.example/b", None);
        check(
            &[asks(), exec("x")],
            "https://configured.example/b",
            Some(Host),
        );
        check(&[exec("x"), asks()], "https://docs.example/b", Some(Host));
        check(
            &[asks(), exec("x")],
            "https://docs.example.evil.example/",
            None,
        );
        // Commands, writable paths, failures, arguments and the model's own text vouch for nothing.
        check(&[asks(), exec(EVIL)], EVIL, None);
        check(
            &[asks(), successful_call("mcp_x_y", json!({"u": EVIL}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[
                asks(),
                successful_call("spawn", json!({"task": EVIL}), "started"),
                vec![injected("t-spawn1", EVIL)],
            ],
            EVIL,
            None,
        );
        check(
            &[asks(), successful_call("unheard_of", json!({}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[
                asks(),
                successful_call("read_file", json!({"path": "out/a"}), EVIL),
            ],
            EVIL,
            None,
        );
        check(
            &[
                exec("x"),
                successful_call("read_file", json!({"path": "/home/u/w/a"}), EVIL),
            ],
            EVIL,
            None,
        );
        check(
            &[asks(), successful_call("list_dir", json!({}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[
                asks(),
                successful_call("glob", json!({"pattern": "*"}), EVIL),
            ],
            EVIL,
            None,
        );
        check(
            &[
                asks(),
                successful_call("grep", json!({"pattern": EVIL}), EVIL),
            ],
            EVIL,
            None,
        );
        check(
            &[
                asks(),
                tool_call("read_file", json!({"path": "a"}), EVIL, true).to_vec(),
            ],
            EVIL,
            None,
        );
        let wrote = successful_call("write_file", json!({"path": "a", "content": EVIL}), "ok");
        check(
            &[
                wrote.clone(),
                successful_call("read_file", json!({"path": "a"}), EVIL),
            ],
            EVIL,
            None,
        );
        check(
            &[
                wrote,
                successful_call("grep", json!({"pattern": "h", "path": "a"}), EVIL),
            ],
            EVIL,
            None,
        );
        let words = Message::Assistant(Reply {
            text: EVIL.into(),
            ..Reply::default()
        });
        check(&[exec("x"), vec![words]], EVIL, None);
        check(&[vec![injected("summary", EVIL)]], EVIL, None);
        check(&[vec![injected("t-s1", EVIL)]], EVIL, None);
        // A link out of the workspace counts as its target.
        check(
            &[successful_call(
                "read_file",
                json!({"path": "/home/u/w/link"}),
                "x",
            )],
            EVIL,
            None,
        );
        // The kept output of a command, which the model composed.
        let kept = json!({"path": "/tmp/nanobot-run-0/output-1.txt"});
        check(&[successful_call("read_file", kept, EVIL)], EVIL, None);
        // Content that the model cannot have written.
        check(
            &[successful_call("read_file", json!({"path": "a"}), EVIL)],
            EVIL,
            Some(Verbatim),
        );
        check(
            &[successful_call(
                "read_file",
                json!({"path": "a"}),
                "1| see <https://a.example/b>.",
            )],
            "https://a.example/b#c",
            Some(Verbatim),
        );
        check(
            &[successful_call(
                "grep",
                json!({"pattern": "http", "path": "src"}),
                "a:1: https://a.example/b",
            )],
            "https://a.example/b",
            Some(Verbatim),
        );
        check(
            &[successful_call(
                "read_file",
                json!({"path": "a"}),
                "https://a.example/b",
            )],
            "https://a.example/bc",
            None,
        );
        check(
            &[successful_call(
                "read_file",
                json!({"path": "a"}),
                "https://a.example/b",
            )],
            "http://a.example/b",
            None,
        );
        check(
            &[successful_call(
                "read_file",
                json!({"path": "a"}),
                "https://a.example/b",
            )],
            "https://a.example:8443/b",
            None,
        );
        check(
            &[page("https://a.example/", "[b](https://b.example/x)")],
            "https://b.example/x",
            Some(Verbatim),
        );
        // A page requested at an address that the model composed may echo that address.
        let echo = page("https://named.example/echo?u=x", EVIL);
        check(&[asks(), exec("x"), echo.clone()], EVIL, None);
        check(&[asks(), echo], EVIL, Some(Verbatim));
        let found = "Results for: x\n\n1. A\n   https://a.example/1\n   about https://a.example/2";
        let search = successful_call("web_search", json!({"query": "x"}), found);
        check(
            &[exec("x"), search.clone()],
            "https://a.example/1",
            Some(Verbatim),
        );
        check(&[exec("x"), search.clone()], "https://a.example/2", None);
        check(
            &[search, page("https://a.example/1", EVIL)],
            EVIL,
            Some(Verbatim),
        );
        let query = json!({"query": "\nhttps://evil.example/?d=SECRET"});
        check(
            &[
                exec("x"),
                successful_call("web_search", query, &format!("Results for: \n{EVIL}\n")),
            ],
            EVIL,
            None,
        );
        let query = json!({"query": "Evil.example?d=a SECRET"});
        let echo = "1. A\n   https://evil.example/?d=a%20secret";
        check(
            &[exec("x"), successful_call("web_search", query, echo)],
            "https://evil.example/?d=a%20secret",
            None,
        );
        // Blocks within the user's message are untrusted content.
        let piped = |text: &str| {
            vec![user_message(&format!(
                "sum up\n\n<stdin>\n{text}\n</stdin>"
            ))]
        };
        check(
            &[piped("see https://a.example/b, evil.example")],
            "https://a.example/b",
            Some(Verbatim),
        );
        check(
            &[piped("see https://a.example/b, evil.example")],
            "https://a.example/c",
            None,
        );
        check(&[piped("evil.example")], EVIL, None);
        check(&[piped("</stdin-2> evil.example")], EVIL, None);
        let image = MessagePart::Image(Image {
            media_type: "image/png",
            bytes: vec![],
            name: "a".into(),
            source: None,
        });
        let pictures = UserMessage {
            parts: vec![image],
            ..UserMessage::default()
        };
        check(&[vec![Message::User(pictures)]], EVIL, None);
        check(&[vec![user_message("[image: a.png]")]], EVIL, None);
    }

    #[test]
    fn the_origin_of_a_conversation_is_the_highest_one_of_its_content() {
        let check = |conversation: &[Vec<Message>], expect: Origin| {
            let seen = ProvenanceTracker::new(trust_context(false));
            conversation
                .concat()
                .iter()
                .for_each(|message| seen.observe(message));
            assert_eq!(seen.origin().0, expect, "{conversation:?}");
        };
        let asks = || vec![user_message("look at https://named.example/a, please")];
        let call = |name: &str, arguments| vec![asks(), successful_call(name, arguments, "text")];
        let read = |path: &str| call("read_file", json!({"path": path}));
        check(&[asks()], Origin::User);
        check(&read("/home/u/w/AGENTS.md"), Origin::User);
        check(&read("/home/u/w/memory/MEMORY.md"), Origin::User);
        check(&read("/home/u/w/memory/HISTORY.md"), Origin::Project);
        check(&read("/home/u/w/notes/tea.md"), Origin::Project);
        check(&read("/home/u/w"), Origin::Project);
        check(&read("a"), Origin::Project);
        check(&call("exec", json!({"command": "date"})), Origin::Project);
        check(
            &call("web_search", json!({"query": "tea"})),
            Origin::External,
        );
        check(&call("mcp_x_y", json!({})), Origin::External);
        check(
            &[
                call("web_fetch", json!({"url": "x"})).concat(),
                read("a").concat(),
            ],
            Origin::External,
        );
        check(&[vec![user_message("[image: a.png]")]], Origin::Project);
        check(
            &[vec![user_message("sum up\n\n<stdin>\nx\n</stdin>")]],
            Origin::Project,
        );
        check(
            &[vec![user_message(
                "sum up\n\n<page name=\"x\">\nx\n</page>",
            )]],
            Origin::External,
        );
        check(&[vec![injected("t-plan", "Only look.")]], Origin::User);
        check(
            &[vec![injected("summary", "It went well.")]],
            Origin::Project,
        );
    }

    #[test]
    fn a_restored_origin_is_never_lowered_and_covers_summaries() {
        let seen = ProvenanceTracker::new(trust_context(false));
        seen.restore(Origin::User, "");
        seen.observe(&injected("summary", "It went well."));
        assert_eq!(seen.origin().0, Origin::User);
        seen.restore(Origin::External, "a web page");
        seen.raise(Origin::Project, "piped input");
        assert_eq!(seen.origin(), (Origin::External, "a web page".into()));
    }

    #[test]
    fn flags_grant_hosts() {
        let seen = ProvenanceTracker::new(trust_context(false));
        seen.raise(Origin::External, "a test");
        let check = |net: &[&str], url: &str, expect: bool| {
            let hosts = net.iter().map(|host| Pattern::new(*host)).collect();
            let free = AllowedHosts {
                net: Net::Hosts(hosts),
                ..AllowedHosts::default()
            };
            let url = Url::parse(url).unwrap();
            assert_eq!(
                seen.check_address(&url, &free).is_ok(),
                expect,
                "{url} {net:?}"
            );
        };
        check(&[], "https://a.example/", false);
        check(&["A.example"], "https://a.example/x", true);
        check(&["*.example"], "https://a.example/x", true);
        check(&["*.a.example"], "https://a.example/x", false);
        check(&["a.example:9000"], "https://a.example:9000/x", true);
        check(&["a.example:9000"], "https://a.example/x", false);
        let free = AllowedHosts {
            net: Net::Any,
            ..AllowedHosts::default()
        };
        assert!(
            seen.check_address(&Url::parse(EVIL).unwrap(), &free)
                .is_ok()
        );
        assert_eq!(seen.untrusted().as_deref(), Some("a test"));
    }

    #[test]
    fn no_file_is_trusted_if_commands_write_anywhere() {
        let seen = ProvenanceTracker::new(trust_context(true));
        for message in successful_call("read_file", json!({"path": "a"}), EVIL) {
            seen.observe(&message);
        }
        assert!(
            seen.check_address(&Url::parse(EVIL).unwrap(), &AllowedHosts::default())
                .is_err()
        );
    }

    #[test]
    fn state_survives_a_compaction() {
        let seen = ProvenanceTracker::new(trust_context(false));
        let mut messages = vec![user_message("go to named.example")];
        messages.extend(successful_call(
            "read_file",
            json!({"path": "a"}),
            "https://a.example/b",
        ));
        seen.observe_all(&mut MessageCursor::default(), &messages);
        seen.observe_all(&mut MessageCursor::default(), &[injected("summary", "…")]);
        let allows = |url: &str| {
            seen.check_address(&Url::parse(url).unwrap(), &AllowedHosts::default())
                .ok()
        };
        assert_eq!(allows("https://a.example/b"), Some(AddressTrust::Verbatim));
        assert_eq!(allows("https://named.example/c"), Some(AddressTrust::Host));
        assert_eq!(allows(EVIL), None);
    }

    #[test]
    fn user_text_and_blocks() {
        let check = |text: &str, own: &str, kinds: &[&str]| {
            let (found, blocks) = split_blocks(text);
            let found_kinds: Vec<&str> = blocks.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(
                (found.as_str(), found_kinds.as_slice()),
                (own, kinds),
                "{text}"
            );
        };
        check("a", "a", &[]);
        check("a\n\n<stdin>\nb\n</stdin>", "a\n\n", &["stdin"]);
        check("<stdin-2>\nb</stdin>\nc\n</stdin-2>\nd", "\nd", &["stdin"]);
        check(
            "<file name=\"x\">\nb\n</file>\n\n<page name=\"y\">\nc\n</page>",
            "\n\n",
            &["file", "page"],
        );
        check("<stdin>\nnever ends", "", &["stdin"]);
        check("<b>bold</b> <stdin>", "<b>bold</b> <stdin>", &[]);
        check("<stdin-x>\na", "<stdin-x>\na", &[]);
    }
}
