//! The servers of a run and the calls to them. A server is started when one of its tools is called, or if its offer is
//! not cached. Its offer is then checked against the pins before any call.

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

/// Maximum of retries of a call because the server's offer changed in between.
const TRIES: usize = 5;

/// The servers of a run, with what is known about them.
#[derive(Clone)]
pub struct Roster(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) fleet: Fleet,
    pub(super) pins: Pins,
    pub(super) cache: Cache,
    pub(super) clock: Clock,
    /// The checked offers, by server.
    held: Mutex<BTreeMap<String, Held>>,
}

/// The offer of a server, and which tools of it may be used.
#[derive(Clone, Default)]
pub(super) struct Held {
    pub(super) offer: Arc<Offer>,
    /// The tools that differ from their pins.
    pub(super) changed: BTreeSet<String>,
    /// The offer as the server sent it in this run.
    pub(super) given: Option<Arc<Offer>>,
}

/// The current offer of a server, checked.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The offer, cut to the size limits.
    pub offer: Arc<Offer>,
    /// Messages about what was left out.
    pub notes: Vec<String>,
    /// The tools that differ from their pins.
    pub changed: Vec<Change>,
    /// The name was pinned for another program or address.
    pub anew: bool,
    /// The tools that no person has accepted.
    pub unaccepted: BTreeSet<String>,
}

/// The reason why a tool was not called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The tool differs from its pin.
    Changed,
    /// The server no longer offers the tool.
    Gone,
    Failed(Failed),
}

impl From<Failed> for Missed {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl Roster {
    /// Creates the catalog of `servers`. Nothing is read or started yet.
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

    /// Calls `tool` of `server`, by the server's own name for it. `on_progress` receives the server's progress messages.
    ///
    /// # Errors
    /// The call was not made or not completed. A failure reported by the tool itself is an answer, not an error.
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
                // The server announced a change between the check and the call.
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

    /// Reads the resource `uri` of `server`.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn read(&self, server: &str, uri: &str) -> Result<Answer, Missed> {
        self.reach(server)?;
        Ok(self.0.fleet.read(server, uri)?)
    }

    /// Requests the prompt `name` of `server`, filled in.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Answer, Missed> {
        self.reach(server)?;
        Ok(self.0.fleet.prompt(server, name, arguments)?)
    }

    /// Returns the offer of `server` as last checked.
    pub fn known(&self, server: &str) -> Arc<Offer> {
        let held = self.held();
        held.get(server)
            .map_or_else(Arc::default, |held| Arc::clone(&held.offer))
    }

    /// True if the last check found that `tool` of `server` differs from its pin.
    pub fn has_changed(&self, server: &str, tool: &str) -> bool {
        let held = self.held();
        held.get(server)
            .is_some_and(|held| held.changed.contains(tool))
    }

    /// Ends all running servers.
    pub fn end(&self) {
        self.0.fleet.end();
    }

    /// Asks `server` for its offer now, ignoring the cache, and caches the result.
    ///
    /// # Errors
    /// The server cannot be reached, or its offer cannot be checked against the pins.
    pub fn look(&self, server: &str) -> Result<Look, Failed> {
        self.look_at(server, true)
    }

    /// Does the same as [`Self::look`], and pins new tools if `pin` is true.
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
            None => return Err(Failed::Unreachable("it is not available".into())),
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

    /// Accepts what `server` offers, as of the last check: all of it, or only `tools`.
    ///
    /// # Errors
    /// The pins cannot be written.
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

    /// Removes everything stored about the server `name`. Returns true if there was anything.
    ///
    /// # Errors
    /// The pins cannot be written.
    pub fn forget(&self, name: &str) -> Result<bool> {
        let Inner {
            pins, cache, clock, ..
        } = &*self.0;
        cache.forget(name);
        pins.forget(name, &clock.stamp())
    }

    /// Returns what is cached about `server`, and which tools of that differ from their pins. The server is not asked.
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
        server.ok_or_else(|| Failed::Unusable("no such server in the config".into()))
    }

    /// Returns the current offer of `server`, and checks it again if it is not the one checked last.
    fn reach(&self, name: &str) -> Result<Held, Missed> {
        let fleet = &self.0.fleet;
        let given = match fleet.reach(&[name]).pop() {
            Some((_, reached)) => reached?,
            None => return Err(Failed::Unreachable("it is not available".into()).into()),
        };
        if let Some(held) = self.same(name, &given) {
            return Ok(held);
        }
        // New tools are pinned only at a point that can report it.
        self.look_at(name, false)?;
        Ok(self.held().get(name).cloned().unwrap_or_default())
    }

    /// Returns the result of the check of `received`, if it has been checked.
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

/// Explains a failure that appears to be caused by the sandbox, which the server itself does not know about.
fn explained(server: &Server, answer: &Answer) -> Option<String> {
    const SIGNS: [&str; 4] = ["EACCES", "EPERM", "ermission denied", "not permitted"];
    let is_fenced = matches!(server.reached, Reached::Program { .. }) && !server.unfenced;
    let tells = |piece: &Piece| match piece {
        Piece::Text(text) => SIGNS.iter().any(|sign| text.contains(sign)),
        _ => false,
    };
    let is_it = is_fenced && answer.is_error && answer.pieces.iter().any(tells);
    is_it.then(|| {
        "(This server runs in a sandbox and can access only the user's files that its config entry names; `read` and `write` there grant more.)"
            .to_owned()
    })
}

/// True if the failure will persist for a while, so that a retry in a moment is of no use.
pub(super) fn lasts(failed: &Failed) -> bool {
    matches!(
        failed,
        Failed::Unreachable(_) | Failed::Broken(_) | Failed::Late(_) | Failed::Login(_)
    )
}
