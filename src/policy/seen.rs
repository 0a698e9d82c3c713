//! What a run has seen, and which addresses it may ask for because of that. Pure.
//!
//! Whoever asks for an address tells its host all that the address says. So once anything that a stranger wrote is in the
//! conversation, the model may be obeying it, and no address of its own making goes out: only hosts that the user named,
//! and addresses that stand word for word where the model cannot have put them. Reads of places that the run can write,
//! output of commands, results of other programs, summaries and the model's own words vouch for nothing: a model that is
//! told to leak would write the address there and read it back.

use super::Refusal;
use super::net::Net;
use super::reach::{Access, Reach};
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

/// What is ours when the user's place is taken: the guards' words, by the end of the message's id.
const OUR_MARKS: &[&str] = &["lost", "plan", "task", "warning"];
/// Tools whose results are our own words.
const OUR_TOOLS: &[&str] = &[
    "ask_user",
    "write_file",
    "delete_file",
    "todo",
    "message",
    "cron",
    "spawn",
];
/// The end of the id of a message that was piped in, with no word of the user's beside it.
pub const PIPED: &str = "stdin";
/// Tools that show what is in files, and those that show the files' own words.
const LOOKING: &[&str] = &["read_file", "grep", "list_dir", "glob", "edit_file"];
const READING: &[&str] = &["read_file", "grep"];
/// The blocks in which a user's message holds what others wrote.
const BLOCKS: &[&str] = &["stdin", "file", "page", "directory"];
/// What stands for what was attached, once a session has been read again.
const PLACEHOLDERS: &[&str] = &["[image: ", "[document: ", "[image]"];
/// How many of the addresses that stand in what strangers wrote are asked for: of one domain, and in a run.
const OF_DOMAIN: usize = 8;
const OF_RUN: usize = 40;

/// What a refusal says of an address that a server has led on to, which are that server's words.
pub const LEADS_ON: &str = " leads on to ";

/// Finds out where a path really is, links followed.
pub type Real = Box<dyn Fn(&Path) -> PathBuf + Send + Sync>;

/// Which files say what.
pub struct Ground {
    pub reach: Reach,
    /// The agent's own home, whose files are the user's words. Its real path.
    pub workspace: PathBuf,
    /// A command may write anywhere: there is one, and nothing contains it.
    pub commands_write_anywhere: bool,
    pub real: Real,
}

/// Hosts that may be reached whatever has been seen.
#[derive(Clone, Debug, Default)]
pub struct Free {
    pub net: Net,
    /// Those that the config and the workspace's skills name.
    pub hosts: BTreeSet<String>,
}

/// Why an address may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grounds {
    /// No stranger has had a word yet.
    Clean,
    /// It stands in what was read.
    Verbatim,
    /// Its host is free; the rest of it may be of the model's making.
    Host,
}

impl Grounds {
    /// Whether nothing of the address can be a stranger's message to another: then what its host answers is not either.
    pub fn vouch(self) -> bool {
        self != Self::Host
    }
}

/// How much of a conversation was taken in: so many messages, and the id of the last one.
#[derive(Debug, Default)]
pub struct Heeded(usize, String);

/// What a run has seen.
pub struct Seen {
    ground: Ground,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The first thing that a stranger may have written.
    untrusted: Option<String>,
    /// Hosts that the user named.
    hosts: BTreeSet<String>,
    /// Addresses that stand where the model cannot have put them.
    addresses: HashSet<String>,
    /// Of these, the ones that were asked for once strangers had had a word, by domain.
    asked: HashMap<String, HashSet<String>>,
    /// Files that the model has changed, in this turn or an earlier one.
    written: HashSet<PathBuf>,
    /// Calls whose results are to come.
    calls: HashMap<String, Called>,
}

struct Called {
    name: String,
    arguments: Value,
    /// What it asked for was no composition of a model that reads strangers.
    vouches: bool,
}

impl Seen {
    pub fn new(ground: Ground) -> Self {
        Self {
            ground,
            state: Mutex::default(),
        }
    }

    /// Take in what is new in `messages`, which are all that is sent. Where its beginning has changed, as after a
    /// compaction, all of it is taken in again; nothing that was seen is ever forgotten.
    pub fn heed_all(&self, heeded: &mut Heeded, messages: &[Message]) {
        let Heeded(count, last) = heeded;
        let is_last = |message: &Message| message.id() == last;
        let goes_on = *count > 0 && messages.get(*count - 1).is_some_and(is_last);
        let from = if goes_on { *count } else { 0 };
        messages[from..].iter().for_each(|it| self.heed(it));
        let last = messages.last().map(|it| it.id().to_owned());
        *heeded = Heeded(messages.len(), last.unwrap_or_default());
    }

    /// Take in one message.
    pub fn heed(&self, message: &Message) {
        let mut state = self.state();
        match message {
            Message::User(user) => state.user(user),
            Message::Assistant(reply) => state.reply(reply, &self.ground),
            Message::Tool(result) => state.result(result, &self.ground),
        }
    }

    /// From now on the conversation holds what a stranger may have written: `what`, in words.
    pub fn taint(&self, what: &str) {
        self.state().taint(|| what.to_owned());
    }

    /// What a stranger may have written, where there is such a thing: the first one, in words.
    pub fn untrusted(&self) -> Option<String> {
        self.state().untrusted.clone()
    }

    /// Whether `url` may be asked for.
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
                            "which of a stranger's addresses are asked for tells their hosts something too, so that no more than \
                             {OF_DOMAIN} of a domain and {OF_RUN} in all are; the user can grant `{host}` with `{flag}`"
                        ),
                        grant: Some(flag),
                    })
                }
            };
        }
        let flag = format!("--net={}", quoted(host));
        Err(Refusal {
            words: format!(
                "the conversation holds text of strangers ({what}), so `{host}` is asked only for addresses that stand word \
                 for word in search results or in what was read, and this one does not"
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

    /// Whether `url`, which stands in what was read, may be asked for as one of many: a page that lists an address for each
    /// letter would have a model spell with them.
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
                self.taint(|| "a summary of what was said before".into());
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
        // What was asked for is the model's own word, wherever it turns up again.
        let asked = called
            .as_ref()
            .map(|called| folded(&called.arguments.to_string()));
        let vouches = match (name.as_str(), &called) {
            (_, Some(called)) if called.name != *name => {
                self.taint(|| format!("what `{name}` gave"));
                false
            }
            (name, _) if OUR_TOOLS.contains(&name) => return,
            // Nothing was asked of anybody.
            ("web_search" | "web_fetch", _) if *failed && is_ours_alone(parts) => return,
            // Also what failed: what went wrong is told in a server's words, or names where it led.
            ("web_search" | "web_fetch", _) if *failed => {
                self.taint(|| format!("what `{name}` gave"));
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
                self.taint(|| format!("what `{name}` gave"));
                false
            }
        };
        if !vouches {
            return;
        }
        let asked = asked.unwrap_or_default();
        for part in parts {
            let Part::Text(text) = part else { continue };
            // The lines of results that are an address, and no text that a page or the query had a hand in.
            let is_address = |line: &&str| name != "web_search" || is_one(line.trim());
            for line in text.lines().filter(is_address) {
                let others = addresses(line).filter(|url| !asked.contains(&folded(url.as_str())));
                self.addresses.extend(others.map(|url| key(&url)));
            }
        }
    }

    /// Whether the file at `place` may hold what the model has put there.
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

    /// Whether what stands at `place` is the user's word: the notes, which no run changes once strangers had a word in it, and
    /// the memory, which has a label where they had. All else in the workspace an earlier run may have written for them.
    fn is_ours(&self, place: &Path) -> bool {
        let memory = self.workspace.join("memory/MEMORY.md");
        self.reach.is_own_word(place) || place == memory
    }

    /// Whether this run can change `place`, or something beneath it.
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

/// Whether a result is a refusal that names only what the model had asked for.
fn is_ours_alone(parts: &[Part]) -> bool {
    let text = crate::message::plain_text(parts);
    text.starts_with("refused: ") && !text.contains(LEADS_ON)
}

/// The part of a host that somebody owns, as far as its form tells.
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

/// What the user said with `message`, without what others wrote in it; `None` where nobody knows whose words they are.
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

/// Whether all of it was piped in.
fn is_piped(message: &User) -> bool {
    message.id.rsplit('-').next() == Some(PIPED)
}

/// Whether `text` stands for something that was attached.
fn is_attached(text: &str) -> bool {
    PLACEHOLDERS.iter().any(|start| text.starts_with(start))
}

/// `text` as the user's own words, and the blocks in it that others wrote, with their kinds. A block ends with its own
/// mark, which does not stand within it; one that does not end goes on to the end of the text.
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

/// The kind of block that `line` begins, and its mark.
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

    /// A call, and what came of it.
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
        // What was asked for once may be asked for again.
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
        // Nothing untrusted: any address.
        check(&[], EVIL, Some(Clean));
        check(&[asks()], EVIL, Some(Clean));
        let read = |path: &str| [asks(), done("read_file", json!({"path": path}), EVIL)];
        check(&read("/home/u/w/memory/MEMORY.md"), EVIL, Some(Clean));
        // An earlier run may have written it for a stranger.
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
            // What went wrong is told in a stranger's words.
            None,
        );
        // Our refusals are our own words; a page that looks like one is not, and where a server led neither.
        let fetched =
            |text: &str, failed| called("web_fetch", json!({"url": "x"}), text, failed).to_vec();
        check(
            &[asks(), fetched("refused: `x` is near", true)],
            EVIL,
            Some(Clean),
        );
        check(
            &[asks(), fetched("refused: `x` is near", false)],
            EVIL,
            None,
        );
        check(
            &[asks(), fetched("refused: `x` leads on to `y`; no", true)],
            EVIL,
            None,
        );
        check(&[vec![injected("t-plan", "Only look.")]], EVIL, Some(Clean));
        check(&[vec![injected("t-r1", "Not JSON.")]], EVIL, Some(Clean));
        // Then only hosts that were named.
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
        // Commands, writable places, failures, arguments and the model itself vouch for nothing.
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
        // A link out of the workspace is what it leads to.
        check(
            &[done("read_file", json!({"path": "/home/u/w/link"}), "x")],
            EVIL,
            None,
        );
        // What stands where the model cannot have put it.
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
        // A page that was asked for by an address of the model's own making may be an echo of it.
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
        // Blocks of the user's message are strangers' words.
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
