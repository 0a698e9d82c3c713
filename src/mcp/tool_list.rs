//! The list of the servers' tools for a run, from the cache if possible, with the names, descriptions and schemas that
//! the model sees.

use super::cache::Known;
use super::missing_server::MissingServer;
use super::name::{self, Names};
use super::offer::{Failed, Offer, Offered};
use super::roster::{Held, Inner, Roster, lasts};
use super::{measure, pin, schema, words};
use crate::settings::servers::Server;
use anyhow::Result;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tools that a run asks for.
#[derive(Clone, Copy)]
pub struct ToolQuery<'a> {
    /// True if the run may use the tool of that name.
    pub tool: &'a dyn Fn(&str) -> bool,
    /// True if the run may use any tool whose name has that prefix.
    pub any: &'a dyn Fn(&str) -> bool,
    /// Uses only cached offers, and starts no server.
    pub known: bool,
}

/// The tools and other offers of all servers for a run.
#[derive(Clone, Debug, Default)]
pub struct ToolList {
    /// The tools, with the names that the model sees.
    pub tools: Vec<ToolView>,
    /// The servers that offer resources.
    pub resources: Vec<String>,
    /// The servers that offer prompts.
    pub prompts: Vec<String>,
    /// The name prefixes of the tools whose servers are missing.
    pub missing: Vec<String>,
    /// The servers with tools whose texts no person has accepted.
    pub unaccepted: BTreeSet<String>,
}

/// A tool as it is shown to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolView {
    /// The name that the model uses.
    pub name: String,
    /// The name of the server in the config.
    pub server: String,
    /// The server's own name for the tool.
    pub tool: String,
    /// The description, cleaned.
    pub description: String,
    /// The schema, converted by [`super::schema`].
    pub schema: Value,
    /// The server claims that the tool changes nothing, and did so in its first offer or in one that a person accepted.
    pub reads_only: bool,
    /// The tool differs from its pin. It is listed as such, and cannot be called.
    pub changed: bool,
}

impl Roster {
    /// Lists the wanted tools of all servers. Servers without a cached offer are asked in parallel.
    ///
    /// # Errors
    /// Status 69 if a required server is missing, 78 if it cannot be used as configured.
    pub fn offers(&self, query: ToolQuery<'_>, notice: &mut dyn FnMut(&str)) -> Result<ToolList> {
        let resources = (query.tool)(name::RESOURCE);
        let prompts = (query.tool)(name::PROMPT);
        let is_wanted = |server: &&Server| {
            let any = (query.any)(&name::beginning(&server.name));
            !server.enabled.is_empty() && (any || server.enables_all() && (resources || prompts))
        };
        let servers: Vec<&Server> = self.0.fleet.servers().iter().filter(is_wanted).collect();
        if servers.is_empty() {
            return Ok(ToolList::default());
        }
        let mut found: BTreeMap<&str, Result<Offer, MissingServer>> = BTreeMap::new();
        let mut unknown: Vec<&Server> = Vec::new();
        for server in &servers {
            match self.known_offer(server, query.known) {
                Some(known) => drop(found.insert(&server.name, known)),
                None => unknown.push(server),
            }
        }
        let mut given = BTreeMap::new();
        if !unknown.is_empty() {
            found.extend(self.ask(&unknown, &mut given, notice)?);
        }
        let mut builder = ListBuilder {
            query,
            names: Names::default(),
            list: ToolList::default(),
            notice,
        };
        let mut there: Vec<(&Server, Offer)> = Vec::new();
        for server in servers {
            match found.remove(&*server.name) {
                Some(Ok(offer)) => there.push((server, offer)),
                Some(Err(missing)) => {
                    missing.tell(server, builder.notice)?;
                    builder.list.missing.push(name::beginning(&server.name));
                }
                None => {}
            }
        }
        self.show(&there, given, &mut builder)?;
        Ok(builder.list)
    }

    /// Returns what `server` offers, from the cache; `None` if it must be asked, which is never the case with
    /// `cached_only`.
    fn known_offer(
        &self,
        server: &Server,
        only_known: bool,
    ) -> Option<Result<Offer, MissingServer>> {
        let Inner { fleet, cache, .. } = &*self.0;
        if let Some(words) = &server.unusable {
            return Some(Err(MissingServer::unusable(words)));
        }
        // The server is running, and may have announced a change since the offer was cached.
        if !only_known && fleet.offer(&server.name).is_some() {
            return None;
        }
        let known = match cache.get(server) {
            Some(Known::Offers(offer)) => Some(Ok(offer)),
            // The run cannot start without this server, so a cached failure does not count.
            Some(Known::Failed { .. }) if server.required => None,
            Some(Known::Failed { words, ago }) => Some(Err(MissingServer::seen(&words, ago))),
            None => None,
        };
        match known {
            None if only_known => Some(Err(MissingServer::unknown())),
            known => known,
        }
    }

    /// Asks `servers` in parallel what they offer, and caches it. `received` collects what each one sent.
    ///
    /// # Errors
    /// The run is ending.
    fn ask<'a>(
        &self,
        servers: &[&'a Server],
        given: &mut BTreeMap<String, Arc<Offer>>,
        notice: &mut dyn FnMut(&str),
    ) -> Result<Vec<(&'a str, Result<Offer, MissingServer>)>> {
        let Inner { fleet, cache, .. } = &*self.0;
        let names: Vec<&str> = servers.iter().map(|server| &*server.name).collect();
        let mut found = Vec::new();
        for (server, (name, reached)) in servers.iter().zip(fleet.reach(&names)) {
            let offer = match reached {
                Ok(offer) => {
                    let kept = match self.same(&name, &offer) {
                        Some(same) => (*same.offer).clone(),
                        None => {
                            let (kept, notes) = measure::kept((*offer).clone());
                            for note in notes {
                                notice(&format!("MCP server `{name}`: {note}"));
                            }
                            cache.keep(server, &kept);
                            kept
                        }
                    };
                    given.insert(name, offer);
                    Ok(kept)
                }
                Err(Failed::Stopped(stop)) => return Err(stop.into()),
                Err(failed) => {
                    let words = words::line(&failed.to_string(), 500);
                    if lasts(&failed) {
                        cache.keep_failure(server, &words);
                    }
                    Err(MissingServer::now(words, &failed))
                }
            };
            found.push((&*server.name, offer));
        }
        Ok(found)
    }

    /// Checks the offers in `available` against the pins, and adds what is wanted to the list.
    fn show(
        &self,
        there: &[(&Server, Offer)],
        mut given: BTreeMap<String, Arc<Offer>>,
        builder: &mut ListBuilder<'_>,
    ) -> Result<()> {
        let Inner { pins, clock, .. } = &*self.0;
        let pairs: Vec<(&Server, &Offer)> = there.iter().map(|(a, b)| (*a, b)).collect();
        let pinned = match builder.query.known {
            true => pins.changed(&pairs),
            false => pins.hold(&pairs, &clock.stamp()),
        };
        let pinned = match pinned {
            Ok(pinned) => pinned,
            Err(error) if there.iter().any(|(server, _)| server.required) => return Err(error),
            Err(error) => {
                (builder.notice)(&format!("MCP tools are not available: {error:#}"));
                let beginnings = there
                    .iter()
                    .map(|(server, _)| name::beginning(&server.name));
                builder.list.missing.extend(beginnings);
                return Ok(());
            }
        };
        for ((server, offer), pinned) in there.iter().zip(pinned) {
            builder.add(server, offer, &pinned);
            let changed = pinned.changed.into_iter().map(|change| change.tool);
            let held = Held {
                offer: Arc::new(offer.clone()),
                changed: changed.collect(),
                given: given.remove(&server.name),
            };
            self.held().insert(server.name.clone(), held);
        }
        Ok(())
    }
}

/// Builds a [`ToolList`], server by server.
struct ListBuilder<'a> {
    query: ToolQuery<'a>,
    names: Names,
    list: ToolList,
    notice: &'a mut dyn FnMut(&str),
}

impl ListBuilder<'_> {
    fn add(&mut self, server: &Server, offer: &Offer, pinned: &pin::Held) {
        let name = &server.name;
        self.warn_of_changes(name, pinned);
        let mut found: BTreeSet<&str> = BTreeSet::new();
        for tool in &offer.tools {
            let ours = name::wrapped(name, &tool.name);
            if !server.enables([&tool.name, &ours]) {
                continue;
            }
            let enabled = server.enabled.iter().map(String::as_str);
            found.extend(enabled.filter(|named| *named == tool.name || *named == ours));
            self.add_tool(server, tool, pinned);
        }
        let is_plain = |named: &&String| !named.contains(['*', '?']);
        for named in server.enabled.iter().filter(is_plain) {
            if !found.contains(&**named) {
                (self.notice)(&format!(
                    "`tools.mcpServers.{name}.enabledTools` names `{named}`, which the server does not have"
                ));
            }
        }
        let has_more = server.enables_all();
        let to_read = !offer.resources.is_empty() || !offer.templates.is_empty();
        if has_more && to_read && (self.query.tool)(name::RESOURCE) {
            self.list.resources.push(name.clone());
        }
        if has_more && !offer.prompts.is_empty() && (self.query.tool)(name::PROMPT) {
            self.list.prompts.push(name.clone());
        }
    }

    fn warn_of_changes(&mut self, name: &str, pinned: &pin::Held) {
        if pinned.anew {
            (self.notice)(&format!(
                "MCP server `{name}` has another command or URL than when its tools were pinned: they are treated as new"
            ));
        }
        if !pinned.fresh.is_empty() {
            let fresh: Vec<String> = pinned.fresh.iter().map(|it| words::line(it, 80)).collect();
            let fresh = words::short(&fresh.join("`, `"), 300);
            (self.notice)(&format!(
                "MCP server `{name}` has new tools: `{fresh}`; each call needs approval until `nanobot mcp accept {name}`"
            ));
        }
    }

    fn add_tool(&mut self, server: &Server, tool: &Offered, pinned: &pin::Held) {
        let name = &server.name;
        let ours = match self.names.take(name, &tool.name) {
            Ok(ours) => ours,
            Err(words) => {
                let tool = words::line(&tool.name, 80);
                let words = words::line(&words, 300);
                return (self.notice)(&format!(
                    "MCP server `{name}`: its tool `{tool}` is omitted: it {words}"
                ));
            }
        };
        if !(self.query.tool)(&ours) {
            return;
        }
        let mut changes = pinned.changed.iter();
        let change = changes.find(|change| change.tool == tool.name);
        if let Some(mut view) = view(ours, server, tool, change.map(|change| &change.old)) {
            // The claims of late tools do not count: a server that cannot change a pinned tool could add a new one
            // instead.
            view.reads_only &= !pinned.late.contains(&tool.name);
            if pinned.unaccepted.contains(&tool.name) {
                self.list.unaccepted.insert(name.clone());
            }
            self.list.tools.push(view);
        }
    }
}

/// Converts `tool` for the model. A changed tool is shown with its pinned texts, since the new ones must not be read
/// before they are accepted. A changed tool that was never pinned is not shown.
fn view(
    ours: String,
    server: &Server,
    tool: &Offered,
    changed: Option<&Option<Offered>>,
) -> Option<ToolView> {
    let told = match changed {
        Some(old) => old.as_ref()?,
        None => tool,
    };
    Some(ToolView {
        name: ours,
        server: server.name.clone(),
        tool: tool.name.clone(),
        description: words::description(&server.name, told.title.as_deref(), &told.description),
        schema: schema::fit(&told.schema),
        reads_only: told.hints.reads_only == Some(true) && told.hints.destructive != Some(true),
        changed: changed.is_some(),
    })
}
