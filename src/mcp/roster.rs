//! What a run has of its servers: the tools that they offer, from what is kept on disk where that is there, and the way to
//! call them. A server is started when one of its tools is called, or where nobody knows yet what it offers; and what it
//! offers then is held to what it offered first, before anything is called.

use super::cache::{Cache, Known};
use super::client::{ClientConfig, Fleet};
use super::name::{self, Names};
use super::offer::{Answer, Failed, Offer, Offered, Piece};
use super::pin::{self, Change, Pins};
use super::{measure, schema, words};
use crate::error::{Exit, fail_hint};
use crate::settings::servers::{Reached, Server};
use crate::sys::clock::Clock;
use anyhow::Result;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often a server may say in the middle of a call that it offers something else.
const TRIES: usize = 5;

/// The servers of a run, and what is known of them.
#[derive(Clone)]
pub struct Roster(Arc<Inner>);

struct Inner {
    fleet: Fleet,
    pins: Pins,
    cache: Cache,
    clock: Clock,
    /// Of each server that was looked at.
    held: Mutex<BTreeMap<String, Held>>,
}

/// What a server offers, and what of it may be used.
#[derive(Clone, Default)]
struct Held {
    offer: Arc<Offer>,
    /// The tools that are not what they were.
    changed: BTreeSet<String>,
    /// As the server gave it in this run.
    given: Option<Arc<Offer>>,
}

/// What a run wants of servers.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Whether it may have the tool of that name.
    pub tool: &'a dyn Fn(&str) -> bool,
    /// Whether it may have any whose name begins like that.
    pub any: &'a dyn Fn(&str) -> bool,
    /// Only what is known is: no server is started.
    pub known: bool,
}

/// What servers offer to a run.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    pub tools: Vec<Shown>,
    /// The servers that have something to read, and those that have prompts.
    pub resources: Vec<String>,
    pub prompts: Vec<String>,
    /// What the names of those tools begin with whose servers are missing.
    pub missing: Vec<String>,
    /// The servers of those tools whose words no person has accepted.
    pub unaccepted: BTreeSet<String>,
}

/// A tool, as a model is shown it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub name: String,
    pub server: String,
    /// The server's own name of it.
    pub tool: String,
    pub description: String,
    pub schema: Value,
    /// The server says that it changes nothing, and has said so from the beginning or to a person who accepted it.
    pub reads_only: bool,
    /// It is not what it was, and is shown as that: it cannot be called.
    pub changed: bool,
}

/// What a server offers now.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub offer: Arc<Offer>,
    /// What of it was left out.
    pub notes: Vec<String>,
    /// The tools that are not what they were.
    pub changed: Vec<Change>,
    /// Another server was known by this name.
    pub anew: bool,
    /// The tools that no person has accepted.
    pub unaccepted: BTreeSet<String>,
}

/// Why a tool was not called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// It is not what it was.
    Changed,
    /// The server has it no more.
    Gone,
    Failed(Failed),
}

impl From<Failed> for Missed {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl Roster {
    /// Of `servers`. Nothing is read or started yet.
    pub fn new(servers: &[Server], clock: &Clock, ground: ClientConfig) -> Self {
        let folder = ground.paths.mcp();
        Self(Arc::new(Inner {
            pins: Pins::at(&folder),
            cache: Cache::at(&folder, clock, &ground.env).asking(ground.answers.is_some()),
            clock: clock.clone(),
            fleet: Fleet::new(servers, ground),
            held: Mutex::default(),
        }))
    }

    /// What the servers offer of what is wanted. Those of which nothing is known are reached side by side.
    ///
    /// # Errors
    /// Status 69 where a server is missing that is required, 78 where such a one cannot be used.
    pub fn offers(&self, wanted: Wanted<'_>, notice: &mut dyn FnMut(&str)) -> Result<Offers> {
        let Inner { fleet, cache, .. } = &*self.0;
        let resources = (wanted.tool)(name::RESOURCE);
        let prompts = (wanted.tool)(name::PROMPT);
        let is_wanted = |server: &&Server| {
            let any = (wanted.any)(&name::beginning(&server.name));
            !server.enabled.is_empty() && (any || server.enables_all() && (resources || prompts))
        };
        let servers: Vec<&Server> = fleet.servers().iter().filter(is_wanted).collect();
        if servers.is_empty() {
            return Ok(Offers::default());
        }
        let mut found: BTreeMap<&str, Result<Offer, Absent>> = BTreeMap::new();
        for server in &servers {
            let known = match &server.unusable {
                Some(words) => Some(Err(Absent::unusable(words))),
                // It runs, and knows best: it may have said that it offers something else now.
                None if !wanted.known && fleet.offer(&server.name).is_some() => None,
                None => match cache.get(server) {
                    Some(Known::Offers(offer)) => Some(Ok(offer)),
                    // Without it the run would not begin.
                    Some(Known::Failed { .. }) if server.required => None,
                    Some(Known::Failed { words, ago }) => Some(Err(Absent::seen(&words, ago))),
                    None => None,
                },
            };
            let known = match known {
                None if wanted.known => Some(Err(Absent::unknown())),
                known => known,
            };
            if let Some(known) = known {
                found.insert(&server.name, known);
            }
        }
        let unknown = servers.iter().map(|server| &*server.name);
        let unknown: Vec<&str> = unknown.filter(|it| !found.contains_key(it)).collect();
        let mut given: BTreeMap<String, Arc<Offer>> = BTreeMap::new();
        if !unknown.is_empty() {
            for (name, reached) in fleet.reach(&unknown) {
                let Some(server) = servers.iter().find(|server| server.name == name) else {
                    continue;
                };
                let reached = match reached {
                    Ok(offer) => {
                        if let Some(same) = self.same(&name, &offer) {
                            given.insert(name, offer);
                            found.insert(&server.name, Ok((*same.offer).clone()));
                            continue;
                        }
                        let (kept, notes) = measure::kept((*offer).clone());
                        for note in notes {
                            notice(&format!("MCP server `{name}`: {note}"));
                        }
                        cache.keep(server, &kept);
                        given.insert(name, offer);
                        Ok(kept)
                    }
                    Err(Failed::Stopped(stop)) => return Err(stop.into()),
                    Err(failed) => {
                        let words = words::line(&failed.to_string(), 500);
                        if lasts(&failed) {
                            cache.keep_failure(server, &words);
                        }
                        Err(Absent::now(words, &failed))
                    }
                };
                found.insert(&server.name, reached);
            }
        }
        let mut offers = Offers::default();
        let mut there: Vec<(&Server, Offer)> = Vec::new();
        for server in servers {
            match found.remove(&*server.name) {
                Some(Ok(offer)) => there.push((server, offer)),
                Some(Err(absent)) => {
                    absent.tell(server, notice)?;
                    offers.missing.push(name::beginning(&server.name));
                }
                None => {}
            }
        }
        self.show(&there, given, wanted, &mut offers, notice)?;
        Ok(offers)
    }

    /// Take in what is `there`, and show what of it is wanted.
    fn show(
        &self,
        there: &[(&Server, Offer)],
        mut given: BTreeMap<String, Arc<Offer>>,
        wanted: Wanted<'_>,
        offers: &mut Offers,
        notice: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let Inner { pins, clock, .. } = &*self.0;
        let pairs: Vec<(&Server, &Offer)> = there.iter().map(|(a, b)| (*a, b)).collect();
        let all = match wanted.known {
            true => pins.changed(&pairs),
            false => pins.hold(&pairs, &clock.stamp()),
        };
        let all = match all {
            Ok(all) => all,
            Err(error) if there.iter().any(|(server, _)| server.required) => return Err(error),
            Err(error) => {
                notice(&format!("no tools of MCP servers are offered: {error:#}"));
                let servers = there.iter().map(|(server, _)| &server.name);
                offers
                    .missing
                    .extend(servers.map(|name| name::beginning(name)));
                return Ok(());
            }
        };
        let mut names = Names::default();
        for ((server, offer), held) in there.iter().zip(all) {
            let name = &server.name;
            if held.anew {
                notice(&format!(
                    "MCP server `{name}` is reached in another way than when its tools were first seen: they are taken as new"
                ));
            }
            if !held.fresh.is_empty() {
                let fresh: Vec<String> = held.fresh.iter().map(|it| words::line(it, 80)).collect();
                let fresh = words::short(&fresh.join("`, `"), 300);
                notice(&format!(
                    "MCP server `{name}` has tools that it did not have: `{fresh}`; each call of them is asked about until \
                     `nanobot mcp accept {name}`"
                ));
            }
            let mut changed: BTreeMap<String, Option<Offered>> = BTreeMap::new();
            for change in held.changed {
                changed.insert(change.tool, change.old);
            }
            let mut seen: BTreeSet<&str> = BTreeSet::new();
            for tool in &offer.tools {
                let ours = name::wrapped(name, &tool.name);
                if !server.enables([&tool.name, &ours]) {
                    continue;
                }
                seen.extend(
                    server
                        .enabled
                        .iter()
                        .map(String::as_str)
                        .filter(|named| *named == tool.name || *named == ours),
                );
                let ours = match names.take(name, &tool.name) {
                    Ok(ours) => ours,
                    Err(words) => {
                        let tool = words::line(&tool.name, 80);
                        let words = words::line(&words, 300);
                        notice(&format!(
                            "MCP server `{name}`: its tool `{tool}` is left out: it {words}"
                        ));
                        continue;
                    }
                };
                if (wanted.tool)(&ours)
                    && let Some(mut shown) = shown(ours, server, tool, changed.get(&tool.name))
                {
                    // Whoever may not change what a tool says could let another one say it.
                    shown.reads_only &= !held.late.contains(&tool.name);
                    if held.unaccepted.contains(&tool.name) {
                        offers.unaccepted.insert(name.clone());
                    }
                    offers.tools.push(shown);
                }
            }
            let is_plain = |named: &&String| !named.contains(['*', '?']);
            for named in server.enabled.iter().filter(is_plain) {
                if !seen.contains(&**named) {
                    notice(&format!(
                        "`tools.mcpServers.{name}.enabledTools` names `{named}`, which it does not offer"
                    ));
                }
            }
            let has_more = server.enables_all();
            let to_read = !offer.resources.is_empty() || !offer.templates.is_empty();
            if has_more && to_read && (wanted.tool)(name::RESOURCE) {
                offers.resources.push(name.clone());
            }
            if has_more && !offer.prompts.is_empty() && (wanted.tool)(name::PROMPT) {
                offers.prompts.push(name.clone());
            }
            let held = Held {
                offer: Arc::new(offer.clone()),
                changed: changed.into_keys().collect(),
                given: given.remove(name),
            };
            self.held().insert(name.clone(), held);
        }
        Ok(())
    }

    /// Call `tool` of `server`, by its own name. `say` takes what the server tells of its progress.
    ///
    /// # Errors
    /// It was not called, or not to its end. That the tool itself failed is an answer.
    pub fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
        say: &mut dyn FnMut(&str),
    ) -> Result<Answer, Missed> {
        let mut tries = TRIES;
        loop {
            let held = self.reach(server)?;
            if held.changed.contains(tool) {
                return Err(Missed::Changed);
            }
            if !held.offer.tools.iter().any(|offered| offered.name == tool) {
                return Err(Missed::Gone);
            }
            let given = held.given.unwrap_or_default();
            tries -= 1;
            match self.0.fleet.call(server, &given, tool, arguments, say) {
                // Between the look and the call it said that it offers something else.
                Err(Failed::Altered) if tries > 0 => {}
                done => {
                    let mut answer = done?;
                    let walls = explained(self.server(server)?, &answer);
                    answer.pieces.extend(walls.map(Piece::Text));
                    return Ok(answer);
                }
            }
        }
    }

    /// What stands at `uri` of `server`.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn read(&self, server: &str, uri: &str) -> Result<Answer, Missed> {
        self.reach(server)?;
        Ok(self.0.fleet.read(server, uri)?)
    }

    /// The prompt `name` of `server`, filled in.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Answer, Missed> {
        self.reach(server)?;
        Ok(self.0.fleet.prompt(server, name, arguments)?)
    }

    /// What `server` offered when it was last looked at.
    pub fn known(&self, server: &str) -> Arc<Offer> {
        let held = self.held();
        held.get(server)
            .map_or_else(Arc::default, |held| Arc::clone(&held.offer))
    }

    /// Whether `tool` of `server` was found to be not what it was.
    pub fn has_changed(&self, server: &str, tool: &str) -> bool {
        let held = self.held();
        held.get(server)
            .is_some_and(|held| held.changed.contains(tool))
    }

    /// End all servers that run.
    pub fn end(&self) {
        self.0.fleet.end();
    }

    /// Ask `server` now, whatever is known of it, and keep what it says.
    ///
    /// # Errors
    /// It cannot be reached, or not be held to what it offered first.
    pub fn look(&self, server: &str) -> Result<Look, Failed> {
        self.look_at(server, true)
    }

    /// The same; what was never seen is remembered where `pin` says so.
    fn look_at(&self, server: &str, pin: bool) -> Result<Look, Failed> {
        let server = self.server(server)?;
        if let Some(words) = &server.unusable {
            return Err(Failed::Unusable(words.clone()));
        }
        let Inner {
            fleet,
            pins,
            cache,
            clock,
            ..
        } = &*self.0;
        let given = match fleet.reach(&[&server.name]).pop() {
            Some((_, Ok(given))) => given,
            Some((_, Err(failed))) => {
                if lasts(&failed) {
                    cache.keep_failure(server, &words::line(&failed.to_string(), 500));
                }
                return Err(failed);
            }
            None => return Err(Failed::Unreachable("it is not there".into())),
        };
        let (offer, notes) = measure::kept((*given).clone());
        let pairs = [(server, &offer)];
        let held = match pin {
            true => pins.hold(&pairs, &clock.stamp()),
            false => pins.changed(&pairs),
        };
        let held = held.map_err(|error| Failed::Unusable(format!("{error:#}")))?;
        cache.keep(server, &offer);
        let pin::Held {
            changed,
            anew,
            unaccepted,
            ..
        } = held.into_iter().next().unwrap_or_default();
        let offer = Arc::new(offer);
        let held = Held {
            changed: changed.iter().map(|change| change.tool.clone()).collect(),
            offer: Arc::clone(&offer),
            given: Some(given),
        };
        self.held().insert(server.name.clone(), held);
        Ok(Look {
            offer,
            notes,
            changed,
            anew,
            unaccepted,
        })
    }

    /// Accept what `server` offers, as it was when it was last looked at: all of it, or these `tools`.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn accept(&self, server: &str, tools: Option<&[String]>) -> Result<Vec<Change>> {
        let server = self.server(server)?;
        let offer = self.known(&server.name);
        let Inner { pins, clock, .. } = &*self.0;
        let accepted = pins.accept(server, &offer, tools, &clock.stamp())?;
        if let Some(held) = self.held().get_mut(&server.name) {
            for change in &accepted {
                held.changed.remove(&change.tool);
            }
        }
        Ok(accepted)
    }

    /// Forget what was kept of the server of that name. Whether anything was.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn forget(&self, name: &str) -> Result<bool> {
        let Inner {
            pins, cache, clock, ..
        } = &*self.0;
        cache.forget(name);
        pins.forget(name, &clock.stamp())
    }

    /// What is known of `server` without asking it, and what of that is not what it was.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn kept(&self, server: &str) -> Result<(Option<Known>, Vec<Change>)> {
        let server = self.server(server)?;
        let Inner { pins, cache, .. } = &*self.0;
        let known = cache.get(server);
        let changed = match &known {
            Some(Known::Offers(offer)) => pins.changed(&[(server, offer)])?,
            _ => Vec::new(),
        };
        Ok((
            known,
            changed.into_iter().flat_map(|it| it.changed).collect(),
        ))
    }

    fn server(&self, name: &str) -> Result<&Server, Failed> {
        let mut servers = self.0.fleet.servers().iter();
        let server = servers.find(|server| server.name == name);
        server.ok_or_else(|| Failed::Unusable("there is no such server in the config".into()))
    }

    /// What `server` offers now. Where that is not what was looked at, it is looked at again.
    fn reach(&self, name: &str) -> Result<Held, Missed> {
        let fleet = &self.0.fleet;
        let given = match fleet.reach(&[name]).pop() {
            Some((_, reached)) => reached?,
            None => return Err(Failed::Unreachable("it is not there".into()).into()),
        };
        if let Some(held) = self.same(name, &given) {
            return Ok(held);
        }
        // What is new is pinned where it can be told.
        self.look_at(name, false)?;
        Ok(self.held().get(name).cloned().unwrap_or_default())
    }

    /// What was made of `given` when it was looked at, where it was.
    fn same(&self, server: &str, given: &Arc<Offer>) -> Option<Held> {
        let held = self.held();
        let held = held.get(server)?;
        let before = held.given.as_ref()?;
        Arc::ptr_eq(before, given).then(|| held.clone())
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `tool` as it is shown. One that has changed is shown as it was: its new words are nobody's to read before they are
/// accepted. One that nobody could remember is not shown.
fn shown(
    ours: String,
    server: &Server,
    tool: &Offered,
    changed: Option<&Option<Offered>>,
) -> Option<Shown> {
    let told = match changed {
        Some(old) => old.as_ref()?,
        None => tool,
    };
    Some(Shown {
        name: ours,
        server: server.name.clone(),
        tool: tool.name.clone(),
        description: words::description(&server.name, told.title.as_deref(), &told.description),
        schema: schema::fit(&told.schema),
        reads_only: told.hints.reads_only == Some(true) && told.hints.destructive != Some(true),
        changed: changed.is_some(),
    })
}

/// What stands behind a failure that looks as if the sandbox were its cause: the server itself does not know.
fn explained(server: &Server, answer: &Answer) -> Option<String> {
    const SIGNS: [&str; 4] = ["EACCES", "EPERM", "ermission denied", "not permitted"];
    let is_fenced = matches!(server.reached, Reached::Program { .. }) && !server.unfenced;
    let tells = |piece: &Piece| match piece {
        Piece::Text(text) => SIGNS.iter().any(|sign| text.contains(sign)),
        _ => false,
    };
    let is_it = is_fenced && answer.is_error && answer.pieces.iter().any(tells);
    is_it.then(|| {
        "(This server runs in a sandbox: of the user's files it reads and changes only what its entry in the config names. \
         `read` and `write` there name more.)"
            .to_owned()
    })
}

/// Why a server is missing.
struct Absent {
    words: String,
    exit: Exit,
    hint: &'static str,
}

impl Absent {
    fn unusable(words: &str) -> Self {
        Self {
            words: format!("it cannot be used: {words}"),
            exit: Exit::Config,
            hint: "show",
        }
    }

    fn now(words: String, failed: &Failed) -> Self {
        let exit = match failed {
            Failed::Unusable(_) | Failed::Login(_) => Exit::Config,
            _ => Exit::Unavailable,
        };
        Self {
            words,
            exit,
            hint: "test",
        }
    }

    fn seen(words: &str, ago: i64) -> Self {
        let ago = match ago {
            0..90 => format!("{ago} s"),
            _ => format!("{} min", (ago + 30) / 60),
        };
        Self {
            words: format!("{words} (tried {ago} ago)"),
            exit: Exit::Unavailable,
            hint: "test",
        }
    }

    fn unknown() -> Self {
        Self {
            words: "nobody has asked it yet what it offers".into(),
            exit: Exit::Unavailable,
            hint: "test",
        }
    }

    /// Tell of it.
    ///
    /// # Errors
    /// The server is required.
    fn tell(self, server: &Server, notice: &mut dyn FnMut(&str)) -> Result<()> {
        let Self { words, exit, hint } = self;
        let name = words::line(&server.name, 80);
        let hint = format!("nanobot mcp {hint} {name}");
        if server.required {
            let cause = format!("MCP server `{name}` is required and missing: {words}");
            return Err(fail_hint(exit, cause, hint));
        }
        notice(&format!(
            "MCP server `{name}` is left out: {words}; `{hint}`"
        ));
        Ok(())
    }
}

/// Whether it will be the same in a moment.
fn lasts(failed: &Failed) -> bool {
    matches!(
        failed,
        Failed::Unreachable(_) | Failed::Broken(_) | Failed::Late(_) | Failed::Login(_)
    )
}
