//! Provenance: tracks the origin of a conversation's content, and decides what follows from it. No I/O.
//!
//! Content by others may contain injected instructions. The origin of a conversation is the least trusted one of its content, and is reset
//! only by `/new`:
//!
//! | | user | project | external |
//! |---|---|---|---|
//! | web addresses | any | named hosts, and addresses that were read verbatim | the same |
//! | notes of the workspace, its skills | written | written | with `--allow notes` |
//! | start-up and instruction files of a directory | written, reported | written, reported | with `--allow startup` |
//! | jobs | added and removed | added and removed | with `--allow cron` |
//! | MEMORY.md | written | written | written, and labelled |
//!
//! A request discloses everything in its address to the host. So an address in content by others may be requested only if the model cannot
//! have written it. Addresses in files that the run can write, in command output, in results of other programs, in summaries and in the
//! model's own text are not accepted, because an injected model would write the address there and read it back.

use super::Refusal;
use super::net::Net;
use nanobot_base::message::addresses::{comparison_key, contains_host};
use nanobot_base::message::{
    Message, MessagePart, Origin, Reply, ResultSource, ToolCall, ToolResult,
};
use nanobot_base::shell_quote::quote;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use state::{
    MAX_REQUESTS_PER_DOMAIN, MAX_REQUESTS_PER_RUN, MAX_SKILL_REQUEST_BYTES, ProvenanceState,
};
use std::collections::BTreeSet;
use url::{Position, Url};

pub use guarded_change::{ChangeGrants, Grant, GuardedChange};
pub use trust_context::{ResolveRealPath, TrustContext};

mod egress;
mod guarded_change;
mod state;
mod trust_context;

/// Hosts that may always be requested.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    pub net: Net,
    /// Hosts named by the config and by the user's skills.
    pub hosts: BTreeSet<String>,
}

/// The reason why an address may be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressTrust {
    /// The conversation holds no untrusted content yet.
    Clean,
    /// The address appears verbatim in content that was read. Such requests are limited in number.
    Verbatim,
    /// The host is that of a built-in skill which the conversation has loaded. Such requests are short, and limited in
    /// number; the model may have composed them.
    SkillHost,
    /// The host is allowed; the model may have composed the rest of the address.
    Host,
    /// The host is allowed, and the address appears verbatim in content that was read.
    HostVerbatim,
}

impl AddressTrust {
    /// True if no part of the address can carry data chosen by untrusted content. Only then does the response vouch for
    /// addresses in it.
    pub fn is_safe(self) -> bool {
        !matches!(self, Self::Host | Self::SkillHost)
    }
}

/// The processed part of a conversation.
#[derive(Debug, Default)]
pub struct MessageCursor {
    /// The number of messages.
    count: usize,
    /// The id of the last one.
    last_id: String,
}

impl MessageCursor {
    /// True if no message has been processed.
    pub fn is_at_start(&self) -> bool {
        self.count == 0
    }
}

/// The provenance state of a run.
pub struct ProvenanceTracker {
    context: TrustContext,
    state: Mutex<ProvenanceState>,
}

impl ProvenanceTracker {
    /// Creates the state of a conversation without messages.
    pub fn new(context: TrustContext) -> Self {
        Self { context, state: Mutex::default() }
    }

    /// Processes the new messages in `messages`, the full list to be sent. If the beginning has changed, as after a
    /// compaction, all of it is processed again. State is only ever added.
    pub fn observe_all(&self, cursor: &mut MessageCursor, messages: &[Message]) {
        let last_processed = cursor.count.checked_sub(1).and_then(|index| messages.get(index));
        let is_continued = last_processed.is_some_and(|message| message.id() == cursor.last_id);
        let start = if is_continued { cursor.count } else { 0 };
        for message in &messages[start..] {
            self.observe(message);
        }
        let last_id = messages.last().map(|message| message.id().to_owned()).unwrap_or_default();
        *cursor = MessageCursor { count: messages.len(), last_id };
    }

    /// Processes one message.
    pub fn observe(&self, message: &Message) {
        self.lock_state().observe(message, &self.context);
    }

    /// Processes the text of a file that the model has from the start, as if it had read the file.
    pub fn observe_file(&self, path: &str, text: &str) {
        let call = ToolCall {
            id: path.to_owned(),
            name: "read_file".to_owned(),
            arguments: json!({ "path": path }),
        };
        self.observe(&Message::Assistant(Reply { tool_calls: vec![call], ..Reply::default() }));
        self.observe(&Message::Tool(ToolResult {
            call_id: path.to_owned(),
            name: "read_file".to_owned(),
            parts: vec![MessagePart::Text(text.to_owned())],
            failed: false,
            source: ResultSource::Unspecified,
        }));
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

    /// The first content of the least trusted origin, as a phrase; `None` if all content is the user's own.
    pub fn untrusted_content(&self) -> Option<String> {
        let (origin, content) = self.origin();
        (origin > Origin::User).then_some(content)
    }

    /// The first external content, as a phrase, if there is any.
    pub fn external_content(&self) -> Option<String> {
        let (origin, content) = self.origin();
        (origin == Origin::External).then_some(content)
    }

    /// Decides whether `url` may be requested.
    ///
    /// # Errors
    /// A refusal with the flag that would grant it.
    pub fn check_address(
        &self,
        url: &Url,
        allowed: &AllowedHosts,
    ) -> Result<AddressTrust, Refusal> {
        self.lock_state().check_address(url, allowed)
    }

    /// Decides as [`Self::check_address`], and counts the request that is made now.
    ///
    /// # Errors
    /// A refusal with the flag that would grant it.
    pub fn admit_request(
        &self,
        url: &Url,
        allowed: &AllowedHosts,
    ) -> Result<AddressTrust, Refusal> {
        let mut state = self.lock_state();
        let trust = state.check_address(url, allowed)?;
        if matches!(trust, AddressTrust::Verbatim | AddressTrust::SkillHost) {
            state.count_request(url);
        }
        Ok(trust)
    }

    /// Permits the request for `url`, the target of a redirect, and counts it. The address that redirects was permitted because of `trust`.
    /// If the model wrote no part of the address, the server's word suffices.
    ///
    /// # Errors
    /// A refusal with the flag that would grant it.
    pub fn admit_redirect(
        &self,
        url: &Url,
        allowed: &AllowedHosts,
        trust: AddressTrust,
    ) -> Result<AddressTrust, Refusal> {
        if !trust.is_safe() {
            return self.admit_request(url, allowed);
        }
        let mut state = self.lock_state();
        if state.origin > Origin::User && !state.is_allowed(url, allowed) {
            state.check_limits(url)?;
            state.count_request(url);
        }
        Ok(trust)
    }

    /// The state, raised if named hosts have sent something to commands by now. A command in the background receives it without
    /// a further call.
    fn lock_state(&self) -> MutexGuard<'_, ProvenanceState> {
        let mut state = self.state.lock();
        if state.origin < Origin::External && (self.context.hosts_have_sent)() {
            state.raise(Origin::External, || "what commands received".into());
        }
        state
    }
}

impl ProvenanceState {
    fn check_address(&self, url: &Url, allowed: &AllowedHosts) -> Result<AddressTrust, Refusal> {
        let is_verbatim = || self.addresses.contains(&comparison_key(url));
        if self.origin == Origin::User {
            return Ok(AddressTrust::Clean);
        }
        if self.is_allowed(url, allowed) {
            return Ok(if is_verbatim() { AddressTrust::HostVerbatim } else { AddressTrust::Host });
        }
        if is_verbatim() {
            return self.check_limits(url).map(|()| AddressTrust::Verbatim);
        }
        let (content, host) = (&self.content, url.host_str().unwrap_or_default());
        let is_short = url[Position::BeforePath..].len() <= MAX_SKILL_REQUEST_BYTES;
        if contains_host(&self.skill_hosts, host) && is_short {
            return self.check_limits(url).map(|()| AddressTrust::SkillHost);
        }
        Err(Refusal {
            message: format!(
                "the conversation contains untrusted content ({content}), so `{host}` may be requested only at addresses that \
                 appear verbatim in search results or in content that was read, unless the user writes `https://{host}` \
                 in a message"
            ),
            suggested_flag: Some(format!("--net={}", quote(host))),
            names_flag: false,
        })
    }

    /// True if the user or the config named the host of `url`.
    fn is_allowed(&self, url: &Url, allowed: &AllowedHosts) -> bool {
        contains_host(&self.hosts, url.host_str().unwrap_or_default()) || allowed.contains(url)
    }

    fn check_limits(&self, url: &Url) -> Result<(), Refusal> {
        if self.is_within_limits(url) {
            return Ok(());
        }
        let host = url.host_str().unwrap_or_default();
        let flag = format!("--net={}", quote(host));
        Err(Refusal {
            message: format!(
                "too many requests to addresses from untrusted content (at most {MAX_REQUESTS_PER_DOMAIN} per domain and \
                 {MAX_REQUESTS_PER_RUN} per run); the user can grant `{host}` with `{flag}`, or by writing `https://{host}` \
                 in a message"
            ),
            suggested_flag: Some(flag),
            names_flag: true,
        })
    }
}

impl AllowedHosts {
    fn contains(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        self.net.grants(host, url.port_or_known_default()) || contains_host(&self.hosts, host)
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressTrust, AllowedHosts, MessageCursor, ProvenanceTracker, TrustContext};
    use crate::policy::file_scope::{FileScope, ScopeRoot};
    use crate::policy::net::Net;
    use crate::policy::rule::Pattern;
    use nanobot_base::message::user_text::{OthersContent, UserText};
    use nanobot_base::message::{
        Image, Message, MessagePart, Origin, Reply, ResultSource, ToolCall, ToolResult, UserMessage,
    };
    use serde_json::{Value, json};
    use std::path::{Path, PathBuf};
    use url::Url;

    fn trust_context(commands_write_anywhere: bool) -> TrustContext {
        let root = |path: &str, may_write| ScopeRoot { path: path.into(), may_write };
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
            hosts_have_sent: Box::new(|| false),
            trusted_tools: Vec::new(),
            skill_hosts: vec![("/home/u/w/skills/weather/SKILL.md".into(), &["wttr.example"])],
            is_private: |path| path.starts_with("/tmp/nanobot-run-0"),
            resolve_real_path: Box::new(real),
        }
    }

    fn user_message(text: &str) -> Message {
        message_of(&UserText::typed(text))
    }

    fn message_of(text: &UserText) -> Message {
        let parts = vec![MessagePart::Text(text.as_str().into())];
        let sources = Some(text.sources(&|_| false));
        Message::User(UserMessage { parts, sources, ..UserMessage::default() })
    }

    /// A message of another program, or of an older version.
    fn stored_message(id: &str, text: &str) -> Message {
        let parts = vec![MessagePart::Text(text.into())];
        Message::User(UserMessage { id: id.into(), parts, ..UserMessage::default() })
    }

    /// A message with a text of others after the user's own.
    fn with_others(origin: Origin, text: &str) -> Vec<Message> {
        let mut whole = UserText::typed("sum up");
        whole.push_paragraph(&UserText::of_others(text, OthersContent::new(origin, "x")));
        vec![message_of(&whole)]
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
        let call = ToolCall { id: "c".into(), name: name.into(), arguments };
        let reply = Reply { tool_calls: vec![call], ..Reply::default() };
        let result = ToolResult {
            call_id: "c".into(),
            name: name.into(),
            parts: vec![MessagePart::Text(text.into())],
            failed,
            source: ResultSource::Unspecified,
        };
        [Message::Assistant(reply), Message::Tool(result)]
    }

    /// The messages of a call, with the source that the program noted with the result.
    fn from_source(source: ResultSource, mut messages: [Message; 2]) -> Vec<Message> {
        if let [_, Message::Tool(result)] = &mut messages {
            result.source = source;
        }
        messages.to_vec()
    }

    fn successful_call(name: &str, arguments: Value, text: &str) -> Vec<Message> {
        tool_call(name, arguments, text, false).to_vec()
    }

    const EVIL: &str = "https://evil.example/?d=SECRET";

    #[track_caller]
    fn check(conversation: &[Vec<Message>], url: &str, expect: Option<AddressTrust>) {
        let tracker = ProvenanceTracker::new(trust_context(false));
        let free = AllowedHosts {
            hosts: ["configured.example".to_owned()].into(),
            ..AllowedHosts::default()
        };
        let mut messages = Vec::new();
        for step in conversation {
            messages.extend(step.iter().cloned());
            tracker.observe_all(&mut MessageCursor::default(), &messages);
        }
        let actual = tracker.check_address(&Url::parse(url).unwrap(), &free);
        assert_eq!(actual.clone().ok(), expect, "{url}: {:?}", tracker.untrusted_content());
        if let Err(refusal) = actual {
            assert!(refusal.suggested_flag.is_some_and(|flag| flag.starts_with("--net=")));
        }
    }

    #[test]
    fn requests_to_listed_addresses_are_limited() {
        let none = AllowedHosts::default();
        let tracker = ProvenanceTracker::new(trust_context(false));
        let list: Vec<String> = (0..60)
            .map(|number| format!("https://h{number}.evil{}.example/{number}", number % 6))
            .collect();
        let arguments = json!({"url": "https://evil.example/"});
        let page = tool_call("web_fetch", arguments, &list.join("\n"), false);
        let page = from_source(ResultSource::SafeAddress, page);
        tracker.observe_all(&mut MessageCursor::default(), &page);
        let urls: Vec<Url> = list.iter().map(|url| Url::parse(url).unwrap()).collect();
        let may = |url: &Url| tracker.admit_request(url, &none).is_ok();
        // A check without a request does not count.
        assert!((0..9).all(|_| tracker.check_address(&urls[0], &none).is_ok()));
        // Repetition counts, and so does a redirect, also from an address whose host is allowed.
        assert!((0..6).all(|_| may(&urls[0])));
        let redirects = |trust| tracker.admit_redirect(&urls[6], &none, trust).is_ok();
        assert!(redirects(AddressTrust::Verbatim) && redirects(AddressTrust::HostVerbatim));
        assert!(!redirects(AddressTrust::Verbatim) && !may(&urls[12]));
        assert!(tracker.check_address(&urls[12], &none).is_err());
        let more = urls.iter().filter(|url| may(url)).count();
        assert_eq!(8 + more, super::MAX_REQUESTS_PER_RUN);
    }

    #[test]
    fn which_addresses_may_be_requested() {
        use AddressTrust::{Clean, Host, SkillHost, Verbatim};
        let asks =
            || vec![user_message("look at https://named.example/a and docs.example, please")];
        let exec = |text: &str| successful_call("exec", json!({"command": "cat x"}), text);
        let page = |url: &str, text: &str, source| {
            from_source(source, tool_call("web_fetch", json!({"url": url}), text, false))
        };
        // Without untrusted content, any address is allowed.
        check(&[], EVIL, Some(Clean));
        check(&[asks()], EVIL, Some(Clean));
        let read = |path: &str| [asks(), successful_call("read_file", json!({"path": path}), EVIL)];
        check(&read("/home/u/w/memory/MEMORY.md"), EVIL, Some(Clean));
        check(&read("/home/u/w/a.md"), EVIL, None);
        check(&read("/home/u/w/memory/HISTORY.md"), EVIL, None);
        check(
            &[asks(), successful_call("write_file", json!({"path": "a"}), "Wrote")],
            EVIL,
            Some(Clean),
        );
        check(
            &[asks(), tool_call("web_fetch", json!({"url": "x"}), "no", true).to_vec()],
            EVIL,
            // The failure message may quote untrusted content.
            None,
        );
        // A call that was not made leaves nothing behind, whatever its tool. A result that imitates a refusal does.
        for (tool, arguments) in [
            ("web_fetch", json!({"url": "x"})),
            ("read_file", json!({"path": "/etc/shadow"})),
            ("exec", json!({"command": "x"})),
            ("mcp_x_y", json!({})),
            ("unheard_of", json!({})),
        ] {
            let refused = |source| {
                let text = "Tool call denied: `x` is near";
                from_source(source, tool_call(tool, arguments.clone(), text, true))
            };
            check(&[asks(), refused(ResultSource::NotMade)], EVIL, Some(Clean));
            check(&[asks(), refused(ResultSource::Unspecified)], EVIL, None);
        }
        check(&[vec![injected("t-plan", "Only look.")]], EVIL, Some(Clean));
        check(&[vec![injected("t-r1", "Not JSON.")]], EVIL, Some(Clean));
        // With untrusted content, only named hosts are allowed.
        check(&[asks(), exec("x")], EVIL, None);
        check(&[asks(), exec("x")], "https://named.example/?d=SECRET", Some(Host));
        check(&[asks(), exec("x")], "https://www.named.example/", Some(Host));
        check(&[asks(), exec("x")], "https://docs.example/b", Some(Host));
        check(&[asks(), exec("x")], "https://sub.docs.example/b", None);
        check(&[asks(), exec("x")], "https://configured.example/b", Some(Host));
        check(&[exec("x"), asks()], "https://docs.example/b", Some(Host));
        check(&[asks(), exec("x")], "https://docs.example.evil.example/", None);
        // Commands, writable paths, failures, arguments and the model's own text vouch for nothing.
        check(&[asks(), exec(EVIL)], EVIL, None);
        check(&[asks(), successful_call("mcp_x_y", json!({"u": EVIL}), EVIL)], EVIL, None);
        check(
            &[
                asks(),
                successful_call("spawn", json!({"task": EVIL}), "started"),
                vec![injected("t-spawn1", EVIL)],
            ],
            EVIL,
            None,
        );
        check(&[asks(), successful_call("unheard_of", json!({}), EVIL)], EVIL, None);
        check(&[asks(), successful_call("read_file", json!({"path": "out/a"}), EVIL)], EVIL, None);
        check(
            &[exec("x"), successful_call("read_file", json!({"path": "/home/u/w/a"}), EVIL)],
            EVIL,
            None,
        );
        check(&[asks(), successful_call("list_dir", json!({}), EVIL)], EVIL, None);
        check(&[asks(), successful_call("glob", json!({"pattern": "*"}), EVIL)], EVIL, None);
        check(&[asks(), successful_call("grep", json!({"pattern": EVIL}), EVIL)], EVIL, None);
        check(
            &[asks(), tool_call("read_file", json!({"path": "a"}), EVIL, true).to_vec()],
            EVIL,
            None,
        );
        let wrote = successful_call("write_file", json!({"path": "a", "content": EVIL}), "ok");
        check(
            &[wrote.clone(), successful_call("read_file", json!({"path": "a"}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[wrote, successful_call("grep", json!({"pattern": "h", "path": "a"}), EVIL)],
            EVIL,
            None,
        );
        let patch = |body: &str| {
            let arguments = json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch") });
            successful_call("apply_patch", arguments, "updated")
        };
        let read = successful_call("read_file", json!({"path": "a"}), EVIL);
        check(&[patch("*** Add File: b\n+x\n*** Add File: a\n+x\n"), read.clone()], EVIL, None);
        check(&[patch("*** Update File: b\n*** Move to: a\n"), read], EVIL, None);
        // A patch that is refused or fails may quote its files, but one that is no patch has none.
        check(&[asks(), patch("*** Delete File: a\n")], EVIL, None);
        check(&[asks(), patch("")], EVIL, Some(Clean));
        let reply = Message::Assistant(Reply { text: EVIL.into(), ..Reply::default() });
        check(&[exec("x"), vec![reply]], EVIL, None);
        check(&[vec![injected("summary", EVIL)]], EVIL, None);
        check(&[vec![injected("t-s1", EVIL)]], EVIL, None);
        // A link out of the workspace is treated as its target.
        check(&[successful_call("read_file", json!({"path": "/home/u/w/link"}), "x")], EVIL, None);
        // The kept output of a command, which the model composed.
        let output_file = json!({"path": "/tmp/nanobot-run-0/output-1.txt"});
        check(&[successful_call("read_file", output_file, EVIL)], EVIL, None);
        // Content that the model cannot have written.
        check(&[successful_call("read_file", json!({"path": "a"}), EVIL)], EVIL, Some(Verbatim));
        check(
            &[successful_call("read_file", json!({"path": "a"}), "1| see <https://a.example/b>.")],
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
            &[successful_call("read_file", json!({"path": "a"}), "https://a.example/b")],
            "https://a.example/bc",
            None,
        );
        check(
            &[successful_call("read_file", json!({"path": "a"}), "https://a.example/b")],
            "http://a.example/b",
            None,
        );
        check(
            &[successful_call("read_file", json!({"path": "a"}), "https://a.example/b")],
            "https://a.example:8443/b",
            None,
        );
        check(
            &[page("https://a.example/", "[b](https://b.example/x)", ResultSource::SafeAddress)],
            "https://b.example/x",
            Some(Verbatim),
        );
        // A page requested at an address that the model composed may echo that address.
        let echo = |source| page("https://named.example/echo?u=x", EVIL, source);
        check(&[asks(), exec("x"), echo(ResultSource::Unspecified)], EVIL, None);
        check(&[asks(), echo(ResultSource::SafeAddress)], EVIL, Some(Verbatim));
        let results =
            "Results for: x\n\n1. A\n   https://a.example/1\n   about https://a.example/2";
        let search = successful_call("web_search", json!({"query": "x"}), results);
        check(&[exec("x"), search.clone()], "https://a.example/1", Some(Verbatim));
        check(&[exec("x"), search.clone()], "https://a.example/2", None);
        check(
            &[search, page("https://a.example/1", EVIL, ResultSource::SafeAddress)],
            EVIL,
            Some(Verbatim),
        );
        let query = json!({"query": "\nhttps://evil.example/?d=SECRET"});
        check(
            &[exec("x"), successful_call("web_search", query, &format!("Results for: \n{EVIL}\n"))],
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
        // The hosts of a built-in skill, once the conversation has loaded it.
        let skill = |failed| {
            let arguments = json!({"path": "/home/u/w/skills/weather/SKILL.md"});
            tool_call("read_file", arguments, "x", failed).to_vec()
        };
        let weather = "https://wttr.example/Paris?format=j1";
        check(&[exec("x")], weather, None);
        check(&[exec("x"), skill(true)], weather, None);
        check(&[exec("x"), skill(false)], weather, Some(SkillHost));
        check(&[skill(false), exec("x")], weather, Some(SkillHost));
        check(&[exec("x"), skill(false)], &format!("{weather}{}", "x".repeat(200)), None);
        check(&[exec("x"), skill(false)], "https://evil.example/", None);
        // Text of others within the user's message is untrusted content.
        let piped = |text: &str| with_others(Origin::Project, text);
        check(
            &[piped("see https://a.example/b, evil.example")],
            "https://a.example/b",
            Some(Verbatim),
        );
        check(&[piped("see https://a.example/b, evil.example")], "https://a.example/c", None);
        check(&[piped("evil.example")], EVIL, None);
        let quoted = with_others(Origin::External, "see https://a.example/b");
        check(&[quoted], "https://a.example/b", Some(Verbatim));
        let content = || OthersContent::new(Origin::User, "x");
        let own_answer = message_of(&UserText::of_model(EVIL, content()));
        check(&[vec![own_answer], exec("x")], EVIL, None);
        // Nothing counts as typed that was stored without its sources.
        let stored = || vec![stored_message("t-0", "look at https://named.example/")];
        check(&[stored()], "https://named.example/", Some(Clean));
        check(&[stored(), exec("x")], "https://named.example/", None);
        // The summary of a conversation that became too long keeps its hosts.
        let mut summary = asks();
        if let [Message::User(user)] = summary.as_mut_slice() {
            (user.id, user.injected) = ("summary".into(), true);
        }
        check(&[summary, exec("x")], "https://docs.example/b", Some(Host));
        check(&[vec![picture("a.png")]], EVIL, None);
        check(&[vec![stored_message("", "[image: a.png]")]], EVIL, None);
    }

    /// A message with an image.
    fn picture(name: &str) -> Message {
        let image = MessagePart::Image(Image {
            media_type: "image/png",
            bytes: vec![],
            name: name.into(),
            source: None,
        });
        Message::User(UserMessage { parts: vec![image], ..UserMessage::default() })
    }

    #[test]
    fn the_origin_of_a_conversation_is_the_highest_one_of_its_content() {
        let check = |conversation: &[Vec<Message>], expect: Origin| {
            let tracker = ProvenanceTracker::new(trust_context(false));
            conversation.concat().iter().for_each(|message| tracker.observe(message));
            assert_eq!(tracker.origin().0, expect, "{conversation:?}");
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
        check(&call("tool_weather", json!({})), Origin::Project);
        check(&call("process", json!({"id": "sh-1"})), Origin::Project);
        check(&call("web_search", json!({"query": "tea"})), Origin::External);
        check(&call("mcp_x_y", json!({})), Origin::External);
        check(
            &[call("web_fetch", json!({"url": "x"})).concat(), read("a").concat()],
            Origin::External,
        );
        check(&[vec![stored_message("", "see\n[image: a.png]")]], Origin::Project);
        check(&[vec![stored_message("t-stdin", "sum up")]], Origin::Project);
        check(&[vec![stored_message("t-0", "<quote>\nx\n</quote>")]], Origin::External);
        check(&[vec![stored_message("t-0", "sum up")]], Origin::User);
        check(&[vec![picture("a.png")]], Origin::Project);
        check(&[vec![picture("https://evil.example/a.png")]], Origin::External);
        check(&[with_others(Origin::Project, "x")], Origin::Project);
        check(&[with_others(Origin::External, "x")], Origin::External);
        for own in ["t-plan", "t-resume", "t-r1", "t-c2", ""] {
            check(&[vec![injected(own, "Only look.")]], Origin::User);
        }
        check(&[vec![injected("summary", "It went well.")]], Origin::Project);
    }

    #[test]
    fn a_restored_origin_is_never_lowered_and_covers_summaries() {
        let tracker = ProvenanceTracker::new(trust_context(false));
        tracker.restore(Origin::User, "");
        tracker.observe(&injected("summary", "It went well."));
        assert_eq!(tracker.origin().0, Origin::User);
        tracker.restore(Origin::External, "a web page");
        tracker.raise(Origin::Project, "piped input");
        assert_eq!(tracker.origin(), (Origin::External, "a web page".into()));
    }

    #[test]
    fn links_of_a_page_can_be_opened_in_a_later_turn() {
        let tracker = ProvenanceTracker::new(trust_context(false));
        tracker.restore(Origin::External, "a web page");
        let call = tool_call("web_fetch", json!({"url": "https://a.example/"}), EVIL, false);
        let page = from_source(ResultSource::SafeAddress, call);
        tracker.observe_all(&mut MessageCursor::default(), &page);
        let trust = tracker.check_address(&Url::parse(EVIL).unwrap(), &AllowedHosts::default());
        assert_eq!(trust, Ok(AddressTrust::Verbatim));
    }

    #[test]
    fn flags_grant_hosts() {
        let tracker = ProvenanceTracker::new(trust_context(false));
        tracker.raise(Origin::External, "a test");
        let check = |net: &[&str], url: &str, expect: bool| {
            let hosts = net.iter().map(|host| Pattern::new(*host)).collect();
            let free = AllowedHosts {
                net: Net::Hosts { hosts, commands: Vec::new() },
                ..AllowedHosts::default()
            };
            let url = Url::parse(url).unwrap();
            assert_eq!(tracker.check_address(&url, &free).is_ok(), expect, "{url} {net:?}");
        };
        check(&[], "https://a.example/", false);
        check(&["A.example"], "https://a.example/x", true);
        check(&["*.example"], "https://a.example/x", true);
        check(&["*.a.example"], "https://a.example/x", false);
        check(&["a.example:9000"], "https://a.example:9000/x", true);
        check(&["a.example:9000"], "https://a.example/x", false);
        let free = AllowedHosts { net: Net::Any, ..AllowedHosts::default() };
        assert!(tracker.check_address(&Url::parse(EVIL).unwrap(), &free).is_ok());
        assert_eq!(tracker.untrusted_content().as_deref(), Some("a test"));
    }

    #[test]
    fn no_file_is_trusted_if_commands_write_anywhere() {
        let tracker = ProvenanceTracker::new(trust_context(true));
        for message in successful_call("read_file", json!({"path": "a"}), EVIL) {
            tracker.observe(&message);
        }
        assert!(
            tracker.check_address(&Url::parse(EVIL).unwrap(), &AllowedHosts::default()).is_err()
        );
    }

    #[test]
    fn state_survives_a_compaction() {
        let tracker = ProvenanceTracker::new(trust_context(false));
        let mut messages = vec![user_message("go to named.example")];
        messages.extend(successful_call("read_file", json!({"path": "a"}), "https://a.example/b"));
        tracker.observe_all(&mut MessageCursor::default(), &messages);
        tracker.observe_all(&mut MessageCursor::default(), &[injected("summary", "…")]);
        let allows = |url: &str| {
            tracker.check_address(&Url::parse(url).unwrap(), &AllowedHosts::default()).ok()
        };
        assert_eq!(allows("https://a.example/b"), Some(AddressTrust::Verbatim));
        assert_eq!(allows("https://named.example/c"), Some(AddressTrust::Host));
        assert_eq!(allows(EVIL), None);
    }
}
