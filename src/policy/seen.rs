//! Provenance: tracks the content of a run's conversation, and decides which addresses the run may request. Pure.
//!
//! A request discloses everything in its address to the host. Once the conversation holds untrusted content, the model
//! may be following injected instructions, and it must not compose addresses: it may request only hosts that the user
//! named, and addresses that appear verbatim in content that the model cannot have written. Files that the run can
//! write, command output, results of other programs, summaries and the model's own text do not count: an injected model
//! would write the address there and read it back.

use super::Refusal;
use super::net::Net;
use super::reach::{Access, Reach};
use super::refusal::DENIED;
use crate::message::{Message, Part, Reply, ToolResult, User};
use crate::shell_quote::quoted;
use crate::sys::sync::IgnorePoison;
use addresses::{address, addresses, folded, hosts, is_one, key, names};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use url::Url;

pub mod addresses;
mod sent;

/// Suffixes of the ids of injected user messages that hold our own text (the guards' messages), not untrusted content.
const OUR_MARKS: &[&str] = &["lost", "plan", "task", "warning"];
/// Tools whose results hold only our own text.
const OUR_TOOLS: &[&str] = &[
    "ask_user",
    "write_file",
    "delete_file",
    "todo",
    "message",
    "cron",
    "spawn",
];
/// The id suffix of a message that was piped in without text from the user.
pub const PIPED: &str = "stdin";
/// Tools that reveal file content or names.
const LOOKING: &[&str] = &["read_file", "grep", "list_dir", "glob", "edit_file"];
/// Tools among [`LOOKING`] whose results quote file content verbatim.
const READING: &[&str] = &["read_file", "grep"];
/// The blocks within a user message that hold third-party content.
const BLOCKS: &[&str] = &["stdin", "file", "page", "directory"];
/// Placeholders for attachments in a session that was loaded from disk.
const PLACEHOLDERS: &[&str] = &["[image: ", "[document: ", "[image]"];
/// Limits on the addresses from untrusted content that may be requested, per domain and per run.
const OF_DOMAIN: usize = 8;
const OF_RUN: usize = 40;

/// The phrase in a refusal for an address that a server redirected to. The address is that server's text.
pub const LEADS_ON: &str = " redirects to ";
/// The same phrase in sessions of earlier releases.
const OLD_LEADS_ON: &str = " leads on to ";

/// The start of the result of a refused call, now and in sessions of earlier releases.
const DENIALS: [&str; 2] = [DENIED, "refused: "];

/// Resolves a path to its real path, following links.
pub type Real = Box<dyn Fn(&Path) -> PathBuf + Send + Sync>;

/// The facts that determine the provenance of file content.
pub struct Ground {
    pub reach: Reach,
    /// The real path of the agent's own directory, which holds the user's instructions.
    pub workspace: PathBuf,
    /// True if commands run without a sandbox and may write anywhere.
    pub commands_write_anywhere: bool,
    pub real: Real,
}

/// Hosts that may always be requested.
#[derive(Clone, Debug, Default)]
pub struct Free {
    pub net: Net,
    /// Hosts named by the config and by the workspace's skills.
    pub hosts: BTreeSet<String>,
}

/// The reason why an address may be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grounds {
    /// The conversation holds no untrusted content yet.
    Clean,
    /// The address appears verbatim in content that was read.
    Verbatim,
    /// The host is allowed; the model may have composed the rest of the address.
    Host,
}

impl Grounds {
    /// True if no part of the address can carry data chosen by untrusted content. Only then does the response vouch for
    /// addresses in it.
    pub fn vouch(self) -> bool {
        self != Self::Host
    }
}

/// The processed part of a conversation: number of messages, and the id of the last one.
#[derive(Debug, Default)]
pub struct Heeded(usize, String);

/// The provenance state of a run.
pub struct Seen {
    ground: Ground,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The first untrusted content, as a phrase.
    untrusted: Option<String>,
    /// Hosts that the user named.
    hosts: BTreeSet<String>,
    /// Addresses found in content that the model cannot have written.
    addresses: HashSet<String>,
    /// Those of them that were requested after untrusted content arrived, by domain.
    asked: HashMap<String, HashSet<String>>,
    /// Files that the model has changed, in this turn or an earlier one.
    written: HashSet<PathBuf>,
    /// Tool calls without a result so far.
    calls: HashMap<String, Called>,
}

struct Called {
    name: String,
    arguments: Value,
    /// True if the model had read no untrusted content when it made the call, or the requested address was a vouched
    /// one.
    vouches: bool,
}

impl Seen {
    /// Creates the state of a conversation without messages.
    pub fn new(ground: Ground) -> Self {
        Self {
            ground,
            state: Mutex::default(),
        }
    }

    /// Processes the new messages in `messages`, the full list to be sent. If the beginning has changed, as after a
    /// compaction, all of it is processed again. State is only ever added.
    pub fn heed_all(&self, heeded: &mut Heeded, messages: &[Message]) {
        let Heeded(count, last) = heeded;
        let is_last = |message: &Message| message.id() == last;
        let goes_on = *count > 0 && messages.get(*count - 1).is_some_and(is_last);
        let from = if goes_on { *count } else { 0 };
        messages[from..].iter().for_each(|it| self.heed(it));
        let last = messages.last().map(|it| it.id().to_owned());
        *heeded = Heeded(messages.len(), last.unwrap_or_default());
    }

    /// Processes one message.
    pub fn heed(&self, message: &Message) {
        let mut state = self.state();
        match message {
            Message::User(user) => state.user(user),
            Message::Assistant(reply) => state.reply(reply, &self.ground),
            Message::Tool(result) => state.result(result, &self.ground),
        }
    }

    /// Records that the conversation now holds untrusted content, named by the phrase `what`.
    pub fn taint(&self, what: &str) {
        self.state().taint(|| what.to_owned());
    }

    /// The first untrusted content, as a phrase; `None` if there is none.
    pub fn untrusted(&self) -> Option<String> {
        self.state().untrusted.clone()
    }

    /// Decides if `url` may be requested.
    ///
    /// # Errors
    /// A refusal with the flag that would grant it.
    pub fn allows(&self, url: &Url, free: &Free) -> Result<Grounds, Refusal> {
        let mut state = self.state();
        let Some(what) = state.untrusted.clone() else {
            return Ok(Grounds::Clean);
        };
        let host = url.host_str().unwrap_or_default();
        if names(&state.hosts, host) || free.holds(url) {
            return Ok(match state.addresses.contains(&key(url)) {
                true => Grounds::Verbatim,
                false => Grounds::Host,
            });
        }
        if state.addresses.contains(&key(url)) {
            return match state.chosen(url) {
                true => Ok(Grounds::Verbatim),
                false => {
                    let flag = format!("--net={host}");
                    Err(Refusal {
                        words: format!(
                            "too many addresses from untrusted content were requested (at most {OF_DOMAIN} per domain and \
                             {OF_RUN} per run); the user can grant `{host}` with `{flag}`"
                        ),
                        grant: Some(flag),
                    })
                }
            };
        }
        let flag = format!("--net={}", quoted(host));
        Err(Refusal {
            words: format!(
                "the conversation contains untrusted content ({what}), so `{host}` may be requested only at addresses that \
                 appear verbatim in search results or in content that was read"
            ),
            grant: Some(flag),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

impl Free {
    fn holds(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        self.net.grants(host, url.port_or_known_default()) || names(&self.hosts, host)
    }
}

impl State {
    fn taint(&mut self, what: impl FnOnce() -> String) {
        if self.untrusted.is_none() {
            self.untrusted = Some(what());
        }
    }

    /// True if `url`, which appears in content that was read, is within the limits on such requests. Without limits, a
    /// page that lists one address per letter would let the model spell out data.
    fn chosen(&mut self, url: &Url) -> bool {
        let all: usize = self.asked.values().map(HashSet::len).sum();
        let asked = self.asked.entry(domain(url)).or_default();
        let key = key(url);
        if asked.contains(&key) {
            return true;
        }
        let may = asked.len() < OF_DOMAIN && all < OF_RUN;
        may && asked.insert(key)
    }

    fn user(&mut self, user: &User) {
        if user.injected {
            let mark = user.id.rsplit('-').next().unwrap_or_default();
            let repair = mark.strip_prefix('r').is_some_and(is_number);
            if user.id == "summary" {
                self.taint(|| "a summary of the earlier conversation".into());
            } else if !repair && !OUR_MARKS.contains(&mark) {
                self.taint(|| "a report".into());
            }
            return;
        }
        let is_piped = is_piped(user);
        for part in &user.parts {
            let text = match part {
                Part::Text(text) => text,
                Part::Image(image) => {
                    self.taint(|| format!("the image `{}`", image.name));
                    continue;
                }
                Part::Document(document) => {
                    self.taint(|| format!("the document `{}`", document.name));
                    continue;
                }
            };
            if is_attached(text) {
                self.taint(|| "an attachment".into());
                continue;
            }
            if is_piped {
                self.taint(|| "piped input".into());
                self.addresses.extend(addresses(text).map(|url| key(&url)));
                continue;
            }
            let (own, others) = apart(text);
            self.hosts.extend(hosts(&own));
            for (kind, block) in others {
                self.taint(|| match kind {
                    "stdin" => "piped input".into(),
                    kind => format!("an attached {kind}"),
                });
                self.addresses.extend(addresses(block).map(|url| key(&url)));
            }
        }
    }

    fn reply(&mut self, reply: &Reply, ground: &Ground) {
        for call in &reply.calls {
            let text = |name: &str| call.arguments[name].as_str();
            if ["write_file", "edit_file"].contains(&call.name.as_str())
                && let Some(path) = text("path")
            {
                self.written.insert(ground.place(path));
            }
            let vouches = self.untrusted.is_none()
                || text("url")
                    .and_then(address)
                    .is_some_and(|url| self.addresses.contains(&key(&url)));
            let called = Called {
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                vouches,
            };
            self.calls.insert(call.id.clone(), called);
        }
    }

    fn result(&mut self, result: &ToolResult, ground: &Ground) {
        let ToolResult {
            call,
            name,
            parts,
            failed,
        } = result;
        let called = self.calls.remove(call);
        // The arguments are the model's own text, and a copy of them in the result vouches for nothing.
        let asked = called
            .as_ref()
            .map(|called| folded(&called.arguments.to_string()));
        let vouches = match (name.as_str(), &called) {
            (_, Some(called)) if called.name != *name => {
                self.taint(|| format!("the result of `{name}`"));
                false
            }
            (name, _) if OUR_TOOLS.contains(&name) => return,
            // The request was refused before it was sent.
            ("web_search" | "web_fetch", _) if *failed && is_ours_alone(parts) => return,
            // Failures count too: the message may quote the server, or name the address that it redirected to.
            ("web_search" | "web_fetch", _) if *failed => {
                self.taint(|| format!("the result of `{name}`"));
                false
            }
            ("web_search", _) => {
                self.taint(|| "search results".into());
                true
            }
            ("web_fetch", called) => {
                self.taint(|| "a web page".into());
                called.as_ref().is_some_and(|called| called.vouches)
            }
            (name, Some(called)) if LOOKING.contains(&name) => {
                let path = called.arguments["path"].as_str().unwrap_or(".");
                let place = ground.place(path);
                if ground.is_ours(&place) {
                    return;
                }
                self.taint(|| format!("`{path}`"));
                READING.contains(&name) && !failed && !self.may_hold(&place, ground)
            }
            (name, _) => {
                self.taint(|| format!("the result of `{name}`"));
                false
            }
        };
        if !vouches {
            return;
        }
        let asked = asked.unwrap_or_default();
        for part in parts {
            let Part::Text(text) = part else { continue };
            // Of search results, only lines that are an address and nothing else: a page or the query can influence the
            // other text.
            let is_address = |line: &&str| name != "web_search" || is_one(line.trim());
            for line in text.lines().filter(is_address) {
                let others = addresses(line).filter(|url| !asked.contains(&folded(url.as_str())));
                self.addresses.extend(others.map(|url| key(&url)));
            }
        }
    }

    /// True if the file at `place` may hold content that the model wrote.
    fn may_hold(&self, place: &Path, ground: &Ground) -> bool {
        ground.commands_write_anywhere
            || self.written.iter().any(|path| path.starts_with(place))
            || ground.may_write(place)
    }
}

impl Ground {
    fn place(&self, path: &str) -> PathBuf {
        (self.real)(&self.reach.absolute(path))
    }

    /// True if the file at `place` holds the user's own text: instruction files, which no run changes after reading
    /// untrusted content, and the memory file, whose entries are labelled if they stem from it. An earlier run may have
    /// written any other file in the workspace on behalf of untrusted content.
    fn is_ours(&self, place: &Path) -> bool {
        let memory = self.workspace.join("memory/MEMORY.md");
        self.reach.is_own_word(place) || place == memory
    }

    /// True if this run can change `place`, or something beneath it.
    fn may_write(&self, place: &Path) -> bool {
        let in_root = self.reach.roots.iter().filter(|root| root.may_write);
        let mut roots = in_root.map(|root| &root.path);
        roots.any(|root| place.starts_with(root) || root.starts_with(place))
            || !self.reach.allowed.is_empty()
            || place
                .to_str()
                .is_none_or(|place| self.reach.decide(place, Access::Write).is_ok())
    }
}

/// True if a result is a refusal that quotes only what the model had requested.
fn is_ours_alone(parts: &[Part]) -> bool {
    let text = crate::message::plain_text(parts);
    DENIALS.iter().any(|start| text.starts_with(start))
        && ![LEADS_ON, OLD_LEADS_ON].iter().any(|it| text.contains(it))
}

/// The registrable part of a host, estimated from its form.
fn domain(url: &Url) -> String {
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
pub fn own_words(message: &User) -> Option<String> {
    if message.injected || is_piped(message) {
        return None;
    }
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) if !is_attached(text) => Some(apart(text).0),
        _ => None,
    });
    Some(texts.collect())
}

/// True if the whole message was piped in.
fn is_piped(message: &User) -> bool {
    message.id.rsplit('-').next() == Some(PIPED)
}

/// True if `text` is a placeholder for an attachment.
fn is_attached(text: &str) -> bool {
    PLACEHOLDERS.iter().any(|start| text.starts_with(start))
}

/// Splits `text` into the user's own text and the third-party blocks in it, with their kinds. A block ends at its own
/// closing tag, which cannot occur within it; an unclosed block extends to the end of the text.
fn apart(text: &str) -> (String, Vec<(&'static str, &str)>) {
    let (mut own, mut others) = (String::new(), Vec::new());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let Some((kind, mark)) = opening(&rest[..end]) else {
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
fn opening(line: &str) -> Option<(&'static str, &str)> {
    let rest = line.strip_prefix('<')?;
    let mark = &rest[..rest.find([' ', '>'])?];
    let (kind, number) = mark.split_once('-').unwrap_or((mark, "2"));
    let kind = BLOCKS.iter().find(|known| **known == kind)?;
    is_number(number).then_some((*kind, mark))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{Free, Ground, Grounds, Heeded, Seen, apart};
    use crate::message::{Image, Message, Part, Reply, ToolCall, ToolResult, User};
    use crate::policy::net::Net;
    use crate::policy::reach::{Reach, Root};
    use crate::policy::rule::Pattern;
    use serde_json::{Value, json};
    use std::path::{Path, PathBuf};
    use url::Url;

    fn ground(commands_write_anywhere: bool) -> Ground {
        let root = |path: &str, may_write| Root {
            path: path.into(),
            may_write,
        };
        let real = |path: &Path| match path.to_str() {
            Some("/home/u/w/link") => PathBuf::from("/srv/app/evil.md"),
            _ => path.to_owned(),
        };
        Ground {
            reach: Reach {
                directory: "/srv/app".into(),
                home: "/home/u".into(),
                roots: vec![
                    root("/srv/app", false),
                    root("/srv/app/out", true),
                    root("/home/u/w", true),
                ],
                ..Reach::default()
            },
            workspace: "/home/u/w".into(),
            commands_write_anywhere,
            real: Box::new(real),
        }
    }

    fn says(text: &str) -> Message {
        let parts = vec![Part::Text(text.into())];
        Message::User(User {
            parts,
            ..User::default()
        })
    }

    fn injected(id: &str, text: &str) -> Message {
        Message::User(User {
            id: id.into(),
            parts: vec![Part::Text(text.into())],
            injected: true,
            ..User::default()
        })
    }

    /// A tool call and its result.
    fn called(name: &str, arguments: Value, text: &str, failed: bool) -> [Message; 2] {
        let call = ToolCall {
            id: "c".into(),
            name: name.into(),
            arguments,
        };
        let reply = Reply {
            calls: vec![call],
            ..Reply::default()
        };
        let result = ToolResult {
            call: "c".into(),
            name: name.into(),
            parts: vec![Part::Text(text.into())],
            failed,
        };
        [Message::Assistant(reply), Message::Tool(result)]
    }

    fn done(name: &str, arguments: Value, text: &str) -> Vec<Message> {
        called(name, arguments, text, false).to_vec()
    }

    const EVIL: &str = "https://evil.example/?d=SECRET";

    #[track_caller]
    fn check(conversation: &[Vec<Message>], url: &str, expect: Option<Grounds>) {
        let seen = Seen::new(ground(false));
        let free = Free {
            hosts: ["configured.example".to_owned()].into(),
            ..Free::default()
        };
        let mut messages = Vec::new();
        for step in conversation {
            messages.extend(step.iter().cloned());
            seen.heed_all(&mut Heeded::default(), &messages);
        }
        let found = seen.allows(&Url::parse(url).unwrap(), &free);
        assert_eq!(found.clone().ok(), expect, "{url}: {:?}", seen.untrusted());
        if let Err(refusal) = found {
            assert!(refusal.grant.is_some_and(|flag| flag.starts_with("--net=")));
        }
    }

    #[test]
    fn a_list_of_addresses_spells_no_more_than_a_few_letters() {
        let seen = Seen::new(ground(false));
        let list: Vec<String> = (0..60)
            .map(|number| format!("https://h{}.evil.example/{number}", number % 3))
            .collect();
        let page = called(
            "web_fetch",
            json!({"url": "https://evil.example/"}),
            &list.join("\n"),
            false,
        );
        seen.heed_all(&mut Heeded::default(), &page);
        let may = |url: &String| {
            seen.allows(&Url::parse(url).unwrap(), &Free::default())
                .is_ok()
        };
        assert_eq!(list.iter().filter(|url| may(url)).count(), super::OF_DOMAIN);
        // An address that was requested before may be requested again.
        assert!(may(&list[0]));
    }

    #[test]
    fn who_may_be_asked_for_what() {
        use Grounds::{Clean, Host, Verbatim};
        let asks = || {
            vec![says(
                "look at https://named.example/a and docs.example, please",
            )]
        };
        let exec = |text: &str| done("exec", json!({"command": "cat x"}), text);
        let page = |url: &str, text: &str| done("web_fetch", json!({"url": url}), text);
        // Without untrusted content, any address is allowed.
        check(&[], EVIL, Some(Clean));
        check(&[asks()], EVIL, Some(Clean));
        let read = |path: &str| [asks(), done("read_file", json!({"path": path}), EVIL)];
        check(&read("/home/u/w/memory/MEMORY.md"), EVIL, Some(Clean));
        // An earlier run may have written the file on behalf of untrusted content.
        check(&read("/home/u/w/a.md"), EVIL, None);
        check(&read("/home/u/w/memory/HISTORY.md"), EVIL, None);
        check(
            &[asks(), done("write_file", json!({"path": "a"}), "Wrote")],
            EVIL,
            Some(Clean),
        );
        check(
            &[
                asks(),
                called("web_fetch", json!({"url": "x"}), "no", true).to_vec(),
            ],
            EVIL,
            // The failure message may quote untrusted content.
            None,
        );
        // Our own refusals are trusted. A page that imitates one is not, and neither is a redirect target.
        let fetched =
            |text: &str, failed| called("web_fetch", json!({"url": "x"}), text, failed).to_vec();
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
            &[asks(), done("mcp_x_y", json!({"u": EVIL}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[
                asks(),
                done("spawn", json!({"task": EVIL}), "started"),
                vec![injected("t-spawn1", EVIL)],
            ],
            EVIL,
            None,
        );
        check(&[asks(), done("unheard_of", json!({}), EVIL)], EVIL, None);
        check(
            &[asks(), done("read_file", json!({"path": "out/a"}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[
                exec("x"),
                done("read_file", json!({"path": "/home/u/w/a"}), EVIL),
            ],
            EVIL,
            None,
        );
        check(&[asks(), done("list_dir", json!({}), EVIL)], EVIL, None);
        check(
            &[asks(), done("glob", json!({"pattern": "*"}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[asks(), done("grep", json!({"pattern": EVIL}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[
                asks(),
                called("read_file", json!({"path": "a"}), EVIL, true).to_vec(),
            ],
            EVIL,
            None,
        );
        let wrote = done("write_file", json!({"path": "a", "content": EVIL}), "ok");
        check(
            &[wrote.clone(), done("read_file", json!({"path": "a"}), EVIL)],
            EVIL,
            None,
        );
        check(
            &[
                wrote,
                done("grep", json!({"pattern": "h", "path": "a"}), EVIL),
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
            &[done("read_file", json!({"path": "/home/u/w/link"}), "x")],
            EVIL,
            None,
        );
        // Content that the model cannot have written.
        check(
            &[done("read_file", json!({"path": "a"}), EVIL)],
            EVIL,
            Some(Verbatim),
        );
        check(
            &[done(
                "read_file",
                json!({"path": "a"}),
                "1| see <https://a.example/b>.",
            )],
            "https://a.example/b#c",
            Some(Verbatim),
        );
        check(
            &[done(
                "grep",
                json!({"pattern": "http", "path": "src"}),
                "a:1: https://a.example/b",
            )],
            "https://a.example/b",
            Some(Verbatim),
        );
        check(
            &[done(
                "read_file",
                json!({"path": "a"}),
                "https://a.example/b",
            )],
            "https://a.example/bc",
            None,
        );
        check(
            &[done(
                "read_file",
                json!({"path": "a"}),
                "https://a.example/b",
            )],
            "http://a.example/b",
            None,
        );
        check(
            &[done(
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
        let search = done("web_search", json!({"query": "x"}), found);
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
                done("web_search", query, &format!("Results for: \n{EVIL}\n")),
            ],
            EVIL,
            None,
        );
        let query = json!({"query": "Evil.example?d=a SECRET"});
        let echo = "1. A\n   https://evil.example/?d=a%20secret";
        check(
            &[exec("x"), done("web_search", query, echo)],
            "https://evil.example/?d=a%20secret",
            None,
        );
        // Blocks within the user's message are untrusted content.
        let piped = |text: &str| vec![says(&format!("sum up\n\n<stdin>\n{text}\n</stdin>"))];
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
        let image = Part::Image(Image {
            media_type: "image/png",
            bytes: vec![],
            name: "a".into(),
        });
        let pictures = User {
            parts: vec![image],
            ..User::default()
        };
        check(&[vec![Message::User(pictures)]], EVIL, None);
        check(&[vec![says("[image: a.png]")]], EVIL, None);
    }

    #[test]
    fn flags_grant_hosts() {
        let seen = Seen::new(ground(false));
        seen.taint("a test");
        let check = |net: &[&str], url: &str, expect: bool| {
            let hosts = net.iter().map(|host| Pattern::new(*host)).collect();
            let free = Free {
                net: Net::Hosts(hosts),
                ..Free::default()
            };
            let url = Url::parse(url).unwrap();
            assert_eq!(seen.allows(&url, &free).is_ok(), expect, "{url} {net:?}");
        };
        check(&[], "https://a.example/", false);
        check(&["A.example"], "https://a.example/x", true);
        check(&["*.example"], "https://a.example/x", true);
        check(&["*.a.example"], "https://a.example/x", false);
        check(&["a.example:9000"], "https://a.example:9000/x", true);
        check(&["a.example:9000"], "https://a.example/x", false);
        let free = Free {
            net: Net::Any,
            ..Free::default()
        };
        assert!(seen.allows(&Url::parse(EVIL).unwrap(), &free).is_ok());
        assert_eq!(seen.untrusted().as_deref(), Some("a test"));
    }

    #[test]
    fn with_commands_that_write_anywhere_no_file_vouches() {
        let seen = Seen::new(ground(true));
        for message in done("read_file", json!({"path": "a"}), EVIL) {
            seen.heed(&message);
        }
        assert!(
            seen.allows(&Url::parse(EVIL).unwrap(), &Free::default())
                .is_err()
        );
    }

    #[test]
    fn what_was_seen_stays_after_a_compaction() {
        let seen = Seen::new(ground(false));
        let mut messages = vec![says("go to named.example")];
        messages.extend(done(
            "read_file",
            json!({"path": "a"}),
            "https://a.example/b",
        ));
        seen.heed_all(&mut Heeded::default(), &messages);
        seen.heed_all(&mut Heeded::default(), &[injected("summary", "…")]);
        let allows = |url: &str| {
            seen.allows(&Url::parse(url).unwrap(), &Free::default())
                .ok()
        };
        assert_eq!(allows("https://a.example/b"), Some(Grounds::Verbatim));
        assert_eq!(allows("https://named.example/c"), Some(Grounds::Host));
        assert_eq!(allows(EVIL), None);
    }

    #[test]
    fn own_words_and_blocks() {
        let check = |text: &str, own: &str, kinds: &[&str]| {
            let (found, blocks) = apart(text);
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
