//! The servers of a run, and the way to call them. A server is started when one of its tools is called, or where nobody knows
//! yet what it offers; and what it offers then is held to what it offered first, before anything is called.

use super::cache::{Cache, Known};
use super::client::{ClientConfig, Fleet};
use super::offer::{Answer, Failed, Offer, Piece};
use super::pin::{self, Change, Pins};
use super::{measure, words};
use crate::settings::servers::{Reached, Server};
use crate::sys::clock::Clock;
use crate::sys::sync::IgnorePoison;
use anyhow::Result;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// How often a server may say in the middle of a call that it offers something else.
const TRIES: usize = 5;

/// The servers of a run, and what is known of them.
#[derive(Clone)]
pub struct Roster(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) fleet: Fleet,
    pub(super) pins: Pins,
    pub(super) cache: Cache,
    pub(super) clock: Clock,
    /// Of each server that was looked at.
    held: Mutex<BTreeMap<String, Held>>,
}

/// What a server offers, and what of it may be used.
#[derive(Clone, Default)]
pub(super) struct Held {
    pub(super) offer: Arc<Offer>,
    /// The tools that are not what they were.
    pub(super) changed: BTreeSet<String>,
    /// As the server gave it in this run.
    pub(super) given: Option<Arc<Offer>>,
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
    pub(super) fn same(&self, server: &str, given: &Arc<Offer>) -> Option<Held> {
        let held = self.held();
        let held = held.get(server)?;
        let before = held.given.as_ref()?;
        Arc::ptr_eq(before, given).then(|| held.clone())
    }

    pub(super) fn held(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.0.held.lock().ignore_poison()
    }
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

/// Whether it will be the same in a moment.
pub(super) fn lasts(failed: &Failed) -> bool {
    matches!(
        failed,
        Failed::Unreachable(_) | Failed::Broken(_) | Failed::Late(_) | Failed::Login(_)
    )
}
