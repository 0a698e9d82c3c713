//! The list of the servers' tools for a run, from the cache if possible, with the names, descriptions and schemas that
//! the model sees.

use super::cache::CachedResult;
use super::catalog::{CatalogInner, CheckedFeatures, ToolCatalog, is_persistent};
use super::missing_server::MissingServer;
use super::protocol::{McpError, ServerFeatures, ToolInfo};
use super::tool_name::{self, AssignedNames};
use super::{limits, pin, sanitize, schema};
use anyhow::Result;
use nanobot_config::settings::servers::McpServer;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tools that a run asks for.
#[derive(Clone, Copy)]
pub struct ToolQuery<'a> {
    /// True if the run may use the tool of that name.
    pub allows_tool: &'a dyn Fn(&str) -> bool,
    /// True if the run may use any tool whose name has that prefix.
    pub allows_prefix: &'a dyn Fn(&str) -> bool,
    /// Uses only cached offers, and starts no server.
    pub cached_only: bool,
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
    pub has_changed: bool,
}

impl ToolCatalog {
    /// Lists the wanted tools of all servers. Servers without a cached offer are asked in parallel.
    ///
    /// # Errors
    /// Status 69 if a required server is missing, 78 if it cannot be used as configured.
    pub fn list_tools(
        &self,
        query: ToolQuery<'_>,
        notice: &mut dyn FnMut(&str),
    ) -> Result<ToolList> {
        let resources = (query.allows_tool)(tool_name::READ_RESOURCE);
        let prompts = (query.allows_tool)(tool_name::GET_PROMPT);
        let is_wanted = |server: &&McpServer| {
            let any = (query.allows_prefix)(&tool_name::server_prefix(&server.name));
            !server.enabled_tools.is_empty()
                && (any || server.is_everything_enabled() && (resources || prompts))
        };
        let servers: Vec<&McpServer> = self.0.clients.servers().iter().filter(is_wanted).collect();
        if servers.is_empty() {
            return Ok(ToolList::default());
        }
        let mut found: BTreeMap<&str, Result<ServerFeatures, MissingServer>> = BTreeMap::new();
        let mut unknown: Vec<&McpServer> = Vec::new();
        for server in &servers {
            match self.cached_features(server, query.cached_only) {
                Some(known) => drop(found.insert(&server.name, known)),
                None => unknown.push(server),
            }
        }
        let mut given = BTreeMap::new();
        if !unknown.is_empty() {
            found.extend(self.query_servers(&unknown, &mut given, notice)?);
        }
        let mut builder = ListBuilder {
            query,
            names: AssignedNames::default(),
            list: ToolList::default(),
            notice,
        };
        let mut there: Vec<(&McpServer, ServerFeatures)> = Vec::new();
        for server in servers {
            match found.remove(&*server.name) {
                Some(Ok(offer)) => there.push((server, offer)),
                Some(Err(missing)) => {
                    missing.report(server, builder.notice)?;
                    builder.list.missing.push(tool_name::server_prefix(&server.name));
                }
                None => {}
            }
        }
        self.add_checked(&there, given, &mut builder)?;
        Ok(builder.list)
    }

    /// Returns what `server` offers, from the cache; `None` if it must be asked, which is never the case with
    /// `cached_only`.
    fn cached_features(
        &self,
        server: &McpServer,
        cached_only: bool,
    ) -> Option<Result<ServerFeatures, MissingServer>> {
        let CatalogInner { clients: fleet, cache, .. } = &*self.0;
        if let Some(words) = &server.unusable_reason {
            return Some(Err(MissingServer::unusable(words)));
        }
        // The server is running, and may have announced a change since the offer was cached.
        if !cached_only && fleet.features(&server.name).is_some() {
            return None;
        }
        let known = match cache.get(server) {
            Some(CachedResult::Features(offer)) => Some(Ok(offer)),
            // The run cannot start without this server, so a cached failure does not count.
            Some(CachedResult::Failed { .. }) if server.is_required => None,
            Some(CachedResult::Failed { message: words, age_secs: ago }) => {
                Some(Err(MissingServer::from_cached_failure(&words, ago)))
            }
            None => None,
        };
        match known {
            None if cached_only => Some(Err(MissingServer::not_cached())),
            known => known,
        }
    }

    /// Asks `servers` in parallel what they offer, and caches it. `received` collects what each one sent.
    ///
    /// # Errors
    /// The run is ending.
    fn query_servers<'a>(
        &self,
        servers: &[&'a McpServer],
        received: &mut BTreeMap<String, Arc<ServerFeatures>>,
        notice: &mut dyn FnMut(&str),
    ) -> Result<Vec<(&'a str, Result<ServerFeatures, MissingServer>)>> {
        let CatalogInner { clients: fleet, cache, .. } = &*self.0;
        let names: Vec<&str> = servers.iter().map(|server| &*server.name).collect();
        let mut found = Vec::new();
        for (server, (name, reached)) in servers.iter().zip(fleet.fetch_features(&names)) {
            let offer = match reached {
                Ok(offer) => {
                    let kept = match self.checked_result(&name, &offer) {
                        Some(same) => (*same.features).clone(),
                        None => {
                            let (kept, notes) = limits::apply_limits((*offer).clone());
                            for note in notes {
                                notice(&format!("MCP server `{name}`: {note}"));
                            }
                            cache.store(server, &kept);
                            kept
                        }
                    };
                    received.insert(name, offer);
                    Ok(kept)
                }
                Err(McpError::Stopped(stop)) => return Err(stop.into()),
                Err(failed) => {
                    let words = sanitize::single_line(&failed.to_string(), 500);
                    if is_persistent(&failed) {
                        cache.store_failure(server, &words);
                    }
                    Err(MissingServer::from_error(words, &failed))
                }
            };
            found.push((&*server.name, offer));
        }
        Ok(found)
    }

    /// Checks the offers in `available` against the pins, and adds what is wanted to the list.
    fn add_checked(
        &self,
        available: &[(&McpServer, ServerFeatures)],
        mut received: BTreeMap<String, Arc<ServerFeatures>>,
        builder: &mut ListBuilder<'_>,
    ) -> Result<()> {
        let CatalogInner { pins, .. } = &*self.0;
        let pairs: Vec<(&McpServer, &ServerFeatures)> =
            available.iter().map(|(a, b)| (*a, b)).collect();
        let pinned =
            if builder.query.cached_only { pins.check(&pairs) } else { pins.check_and_pin(&pairs) };
        let pinned = match pinned {
            Ok(pinned) => pinned,
            Err(error) if available.iter().any(|(server, _)| server.is_required) => {
                return Err(error);
            }
            Err(error) => {
                (builder.notice)(&format!("MCP tools are not available: {error:#}"));
                let beginnings =
                    available.iter().map(|(server, _)| tool_name::server_prefix(&server.name));
                builder.list.missing.extend(beginnings);
                return Ok(());
            }
        };
        for ((server, offer), pinned) in available.iter().zip(pinned) {
            builder.add_server(server, offer, &pinned);
            let changed = pinned.changed.into_iter().map(|change| change.name);
            let held = CheckedFeatures {
                features: Arc::new(offer.clone()),
                changed: changed.collect(),
                received: received.remove(&server.name),
            };
            self.checked().insert(server.name.clone(), held);
        }
        Ok(())
    }
}

/// Builds a [`ToolList`], server by server.
struct ListBuilder<'a> {
    query: ToolQuery<'a>,
    names: AssignedNames,
    list: ToolList,
    notice: &'a mut dyn FnMut(&str),
}

impl ListBuilder<'_> {
    fn add_server(&mut self, server: &McpServer, features: &ServerFeatures, check: &pin::PinCheck) {
        let name = &server.name;
        self.warn_of_changes(name, check);
        let mut found: BTreeSet<&str> = BTreeSet::new();
        for (tool, ours) in tool_name::for_tools(name, &features.tools) {
            if !server.is_tool_enabled([&tool.name, &ours]) {
                continue;
            }
            let enabled = server.enabled_tools.iter().map(String::as_str);
            found.extend(enabled.filter(|named| *named == tool.name || *named == ours));
            self.add_tool(server, tool, ours, check);
        }
        let is_plain = |named: &&String| !named.contains(['*', '?']);
        for named in server.enabled_tools.iter().filter(is_plain) {
            if !found.contains(&**named) {
                (self.notice)(&format!(
                    "`tools.mcpServers.{name}.enabledTools` names `{named}`, which the server does not have"
                ));
            }
        }
        let has_more = server.is_everything_enabled();
        let to_read = !features.resources.is_empty() || !features.templates.is_empty();
        if has_more && to_read && (self.query.allows_tool)(tool_name::READ_RESOURCE) {
            self.list.resources.push(name.clone());
        }
        if has_more
            && !features.prompts.is_empty()
            && (self.query.allows_tool)(tool_name::GET_PROMPT)
        {
            self.list.prompts.push(name.clone());
        }
    }

    fn warn_of_changes(&mut self, name: &str, check: &pin::PinCheck) {
        if check.replaced_server {
            (self.notice)(&format!(
                "MCP server `{name}` has another command or URL than when its tools were pinned: they are treated as new"
            ));
        }
        if !check.first_seen.is_empty() {
            let fresh: Vec<String> =
                check.first_seen.iter().map(|it| sanitize::single_line(it, 80)).collect();
            let fresh = sanitize::truncate(&fresh.join("`, `"), 300);
            (self.notice)(&format!(
                "MCP server `{name}` has new tools: `{fresh}`; each call needs approval until `nanobot mcp accept {name}`"
            ));
        }
    }

    fn add_tool(
        &mut self,
        server: &McpServer,
        tool: &ToolInfo,
        ours: String,
        check: &pin::PinCheck,
    ) {
        let name = &server.name;
        let ours = match self.names.assign(name, &tool.name, ours) {
            Ok(ours) => ours,
            Err(words) => {
                let tool = sanitize::single_line(&tool.name, 80);
                let words = sanitize::single_line(&words, 300);
                return (self.notice)(&format!(
                    "MCP server `{name}`: its tool `{tool}` is omitted: it {words}"
                ));
            }
        };
        if !(self.query.allows_tool)(&ours) {
            return;
        }
        let mut changes = check.changed.iter();
        let change = changes.find(|change| change.name == tool.name);
        if let Some(mut view) = to_view(ours, server, tool, change.map(|change| &change.old)) {
            // The claims of late tools do not count: a server that cannot change a pinned tool could add a new one
            // instead.
            view.reads_only &= !check.added_later.contains(&tool.name);
            if check.unaccepted.contains(&tool.name) {
                self.list.unaccepted.insert(name.clone());
            }
            self.list.tools.push(view);
        }
    }
}

/// Converts `tool` for the model. A changed tool is shown with its pinned texts, since the new ones must not be read
/// before they are accepted. A changed tool that was never pinned is not shown.
fn to_view(
    name: String,
    server: &McpServer,
    tool: &ToolInfo,
    pinned: Option<&Option<ToolInfo>>,
) -> Option<ToolView> {
    let told = match pinned {
        Some(old) => old.as_ref()?,
        None => tool,
    };
    Some(ToolView {
        name,
        server: server.name.clone(),
        tool: tool.name.clone(),
        description: sanitize::tool_description(
            &server.name,
            told.title.as_deref(),
            &told.description,
        ),
        schema: schema::convert(&told.schema),
        reads_only: told.hints.reads_only == Some(true) && told.hints.destructive != Some(true),
        has_changed: pinned.is_some(),
    })
}
