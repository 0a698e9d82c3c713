//! Content that a conversation has read so far, message by message: its origin, the hosts that the user named, and the addresses that the
//! model cannot have written. No I/O.

use super::trust_context::TrustContext;
use crate::policy::call_files::files_of_call;
use crate::policy::tool_names::{
    ASK_USER, SESSIONS, ToolResultContent, WEB_FETCH, WEB_SEARCH, find_built_in, runs_commands,
};
use nanobot_base::message::addresses::{
    comparison_key, find_whole_addresses, is_bare_address, normalize,
};
use nanobot_base::message::user_text::MessageSources;
use nanobot_base::message::{
    Message, MessagePart, Origin, Reply, ResultSource, ToolResult, UserMessage,
};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use url::Url;

/// Suffixes of the ids of injected user messages that hold our own text, not untrusted content: messages of guards, and the one with which
/// an interrupted answer is resumed.
const OWN_MESSAGE_SUFFIXES: &[&str] = &["lost", "opening", "plan", "resume", "task", "warning"];
/// Beginnings of such suffixes before a number: the request to repair an answer, or to continue it.
const OWN_NUMBERED_SUFFIXES: [char; 2] = ['r', 'c'];
/// Maximum length of the path and the query of an address that the model composed for a built-in skill, in bytes.
pub(super) const MAX_SKILL_REQUEST_BYTES: usize = 200;
/// Maximum number of requests to hosts that only untrusted content names, per domain and per run.
pub(super) const MAX_REQUESTS_PER_DOMAIN: usize = 8;
pub(super) const MAX_REQUESTS_PER_RUN: usize = 40;

/// The facts about the content of a conversation that decide what the run may do.
#[derive(Default)]
pub(super) struct ProvenanceState {
    pub(super) origin: Origin,
    /// The first content of that origin, as a phrase.
    pub(super) content: String,
    /// True if the origin is known from the start of the conversation on, so that summaries and reports add nothing to
    /// it.
    pub(super) is_complete: bool,
    /// Hosts that the user named.
    pub(super) hosts: BTreeSet<String>,
    /// Hosts of the built-in skills that the conversation has loaded.
    pub(super) skill_hosts: BTreeSet<String>,
    /// Addresses found in content that the model cannot have written.
    pub(super) addresses: HashSet<String>,
    /// Number of requests after untrusted content arrived to hosts that are not allowed, by domain.
    requests: HashMap<String, usize>,
    /// Files that the model has changed, in this turn or an earlier one.
    written_files: HashSet<PathBuf>,
    /// Tool calls without a result so far.
    pending_calls: HashMap<String, PendingCall>,
}

struct PendingCall {
    name: String,
    arguments: Value,
}

impl ProvenanceState {
    pub(super) fn raise(&mut self, origin: Origin, content: impl FnOnce() -> String) {
        if origin > self.origin {
            (self.origin, self.content) = (origin, content());
        }
    }

    /// True if one more request may be sent to an address like `url`, which appears in content that was read. Without
    /// limits, a page that lists one address per letter would let the model spell out data, and so would repetition.
    pub(super) fn is_within_limits(&self, url: &Url) -> bool {
        let to_domain = self.requests.get(&registrable_domain(url));
        to_domain.is_none_or(|count| *count < MAX_REQUESTS_PER_DOMAIN)
            && self.requests.values().sum::<usize>() < MAX_REQUESTS_PER_RUN
    }

    pub(super) fn count_request(&mut self, url: &Url) {
        *self.requests.entry(registrable_domain(url)).or_default() += 1;
    }

    /// Processes one message.
    pub(super) fn observe(&mut self, message: &Message, context: &TrustContext) {
        match message {
            Message::User(user) => self.observe_user(user),
            Message::Assistant(reply) => self.observe_reply(reply, context),
            Message::Tool(result) => self.observe_result(result, context),
        }
    }

    fn observe_user(&mut self, user: &UserMessage) {
        if let Some(sources) = &user.sources {
            self.hosts.extend(sources.hosts.iter().cloned());
        }
        if user.injected {
            let sources = user.sources.as_ref();
            if let Some(content) = sources.and_then(|sources| sources.others.as_ref()) {
                self.raise(content.origin, || content.name.clone());
                return;
            }
            let suffix = user.id.rsplit('-').next().unwrap_or_default();
            let is_numbered = suffix.strip_prefix(OWN_NUMBERED_SUFFIXES).is_some_and(is_number);
            // The note about messages that are left out has no id.
            let is_own =
                user.id.is_empty() || is_numbered || OWN_MESSAGE_SUFFIXES.contains(&suffix);
            if !is_own && !self.is_complete {
                self.raise(Origin::Project, || match user.id.as_str() {
                    "summary" => "a summary of the earlier conversation".into(),
                    _ => "a report".into(),
                });
            }
            return;
        }
        match &user.sources {
            Some(MessageSources { others, has_model_text, .. }) => {
                if let Some(content) = others {
                    self.raise(content.origin, || content.name.clone());
                }
                for part in &user.parts {
                    if let MessagePart::Text(text) = part
                        && !has_model_text
                    {
                        let addresses = find_whole_addresses(text);
                        self.addresses.extend(addresses.map(|url| comparison_key(&url)));
                    }
                }
            }
            None if self.is_complete => {}
            None => {
                if let Some((origin, content)) = content_of_others(user) {
                    self.raise(origin, || content.to_owned());
                }
            }
        }
        for part in &user.parts {
            let (kind, name) = match part {
                MessagePart::Text(_) => continue,
                MessagePart::Image(image) => ("image", &image.name),
                MessagePart::Document(document) => (document.label(), &document.name),
            };
            self.raise(origin_of_name(name), || format!("the {kind} `{name}`"));
        }
    }

    fn observe_reply(&mut self, reply: &Reply, context: &TrustContext) {
        for call in &reply.tool_calls {
            let files = files_of_call(&call.name, &call.arguments).into_iter();
            let written = files.filter(|file| ["write_file", "edit_file"].contains(&file.tool));
            self.written_files.extend(written.map(|file| context.resolve(&file.path)));
            let pending_call =
                PendingCall { name: call.name.clone(), arguments: call.arguments.clone() };
            self.pending_calls.insert(call.id.clone(), pending_call);
        }
    }

    fn observe_result(&mut self, result: &ToolResult, context: &TrustContext) {
        let ToolResult { call_id, name, parts, failed, source } = result;
        let pending_call = self.pending_calls.remove(call_id);
        if *source == ResultSource::NotMade {
            return;
        }
        // The arguments are the model's own text, so a copy of them in the result permits no address.
        let arguments = pending_call.as_ref().map(|call| normalize(&call.arguments.to_string()));
        let arguments = arguments.unwrap_or_default();
        let content = find_built_in(name).map(|tool| tool.results);
        let reveals_files =
            matches!(content, Some(ToolResultContent::Files | ToolResultContent::FileQuotes));
        let vouches = match (name.as_str(), &pending_call) {
            (_, Some(call)) if call.name != *name => {
                self.raise(Origin::External, || format!("the result of `{name}`"));
                false
            }
            (ASK_USER, _) => return,
            _ if content == Some(ToolResultContent::Own) => return,
            // Failures count too: the message may quote the server, or name the address that it redirected to.
            (WEB_SEARCH | WEB_FETCH, _) if *failed => {
                self.raise(Origin::External, || format!("the result of `{name}`"));
                false
            }
            (SESSIONS, Some(_)) => {
                let origin = origin_of_sessions(parts, *failed);
                self.raise(origin, || "another conversation".into());
                false
            }
            (WEB_SEARCH, _) => {
                self.raise(Origin::External, || "search results".into());
                true
            }
            (WEB_FETCH, _) => {
                self.raise(Origin::External, || "a web page".into());
                *source == ResultSource::SafeAddress
            }
            (name, Some(call)) if reveals_files => {
                let mut is_others_text = true;
                for file in files_of_call(name, &call.arguments) {
                    let path = file.path;
                    let real_path = context.resolve(&path);
                    if name == "read_file" && !failed {
                        let hosts = context.hosts_of_skill(&real_path).iter();
                        self.skill_hosts.extend(hosts.map(|host| (*host).to_owned()));
                    }
                    self.raise(context.origin_of_file(&real_path), || format!("`{path}`"));
                    is_others_text &= !self.may_contain_model_text(&real_path, context);
                }
                content == Some(ToolResultContent::FileQuotes) && !failed && is_others_text
            }
            (name, _) => {
                let is_local = (runs_commands(name) && !context.commands_have_network)
                    || reveals_files
                    || context.trusted_tools.iter().any(|tool| tool == name);
                let origin = if is_local { Origin::Project } else { Origin::External };
                self.raise(origin, || format!("the result of `{name}`"));
                false
            }
        };
        if !vouches {
            return;
        }
        for part in parts {
            let MessagePart::Text(text) = part else {
                continue;
            };
            let text = match name.as_str() {
                WEB_SEARCH => Cow::Owned(keep_address_lines(text)),
                _ => Cow::Borrowed(text),
            };
            let is_own = |url: &Url| arguments.contains(&normalize(url.as_str()));
            let addresses = find_whole_addresses(&text).filter(|url| !is_own(url));
            self.addresses.extend(addresses.map(|url| comparison_key(&url)));
        }
    }

    /// True if the file at `path` may hold content that the model wrote.
    fn may_contain_model_text(&self, path: &Path, context: &TrustContext) -> bool {
        context.commands_write_anywhere
            // A private directory has the output of commands, which the model composed.
            || (context.is_private)(path)
            || self.written_files.iter().any(|file| file.starts_with(path))
            || context.may_write(path)
    }
}

/// Reduces search results to the lines that are an address and nothing else, and the marks of cuts. A page or the query can
/// influence the other text.
fn keep_address_lines(text: &str) -> String {
    let keep = |line| match line {
        line if is_bare_address(str::trim(line)) => line,
        line if line.starts_with("[…") => "[…]",
        _ => "",
    };
    text.lines().map(keep).collect::<Vec<&str>>().join("\n")
}

/// Beginnings of lines that mark content of others, in user messages that were stored without their sources: by another
/// program, or by an older version. No word in such a message is treated as typed by the user.
const LINE_PREFIXES_OF_OTHERS: [(&str, Origin); 4] = [
    ("<page", Origin::External),
    ("<quote", Origin::External),
    // Another block, and the placeholder of an attachment.
    ("<", Origin::Project),
    ("[", Origin::Project),
];

/// The origin of a message without sources, with a phrase for it, if it has content of others.
fn content_of_others(user: &UserMessage) -> Option<(Origin, &'static str)> {
    // Older versions marked a message that was piped in by this id.
    let is_piped = user.id.ends_with("-stdin");
    let mut origin = is_piped.then_some(Origin::Project);
    for part in &user.parts {
        let MessagePart::Text(text) = part else {
            continue;
        };
        for line in text.lines() {
            let mut prefixes = LINE_PREFIXES_OF_OTHERS.iter();
            let prefix = prefixes.find(|(prefix, _)| line.starts_with(prefix));
            origin = origin.max(prefix.map(|(_, origin)| *origin));
        }
    }
    origin.map(|origin| (origin, "a message with content of others"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

/// The origin of an image or a document that came with a message: an address as its name means that it was fetched.
fn origin_of_name(name: &str) -> Origin {
    if name.contains("://") { Origin::External } else { Origin::Project }
}

/// The origin that the first line of a result of `sessions` states. A failure holds no text of other conversations.
fn origin_of_sessions(parts: &[MessagePart], failed: bool) -> Origin {
    if failed {
        return Origin::User;
    }
    let text = nanobot_base::message::plain_text(parts);
    let first = text.lines().next().unwrap_or_default();
    let is_stated = |origin: &Origin| first == format!("[origin: {}]", origin.name());
    Origin::ALL.into_iter().find(is_stated).unwrap_or(Origin::External)
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
