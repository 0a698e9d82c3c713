//! The list of the servers' tools for a run, from the cache if possible, with the names, descriptions and schemas that
//! the model sees.

use super::cache::CachedResult;
use super::catalog::{CatalogInner, CheckedFeatures, MAX_ERROR_CHARS, ToolCatalog, is_persistent};
use super::pin::{PinCheck, ToolChange};
use super::protocol::{INSTRUCTIONS, McpError, ServerFeatures, ToolInfo};
use super::tool_name::{self, AssignedNames};
use super::{limits, sanitize, schema};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::servers::McpServer;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The longest name of a tool or a server in a notice, in characters.
const MAX_NAME_CHARS: usize = 80;
/// The longest list of names, or reason, in a notice, in characters.
const MAX_NOTICE_CHARS: usize = 300;

/// Maximum of characters of the instructions of all servers in a prompt.
const MAX_ALL_INSTRUCTIONS_CHARS: usize = 8_000;

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
    /// True if the tools are too many for each request, so that the model searches them.
    pub is_searched: bool,
    /// The servers that offer resources.
    pub resources: Vec<String>,
    /// The servers that offer prompts.
    pub prompts: Vec<String>,
    /// The name prefixes of the tools whose servers are missing.
    pub missing: Vec<String>,
    /// The servers with tools whose texts no person has accepted.
    pub unaccepted: BTreeSet<String>,
    /// The instructions of the servers of these tools.
    pub instructions: Vec<ServerInstructions>,
}

/// The instructions of a server for the use of its tools: untrusted text, cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInstructions {
    /// The name of the server in the config.
    pub server: String,
    pub text: String,
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
    /// The tool differs from its pin. The list says so, and it cannot be called.
    pub has_changed: bool,
}

/// The features of a server, or the reason why it is missing.
type FeaturesResult = Result<ServerFeatures, MissingServer>;

/// The answer of a server that was asked for its features.
struct QueriedServer<'a> {
    name: &'a str,
    result: FeaturesResult,
    /// The features as the server sent them.
    received: Option<Arc<ServerFeatures>>,
}

impl ToolCatalog {
    /// Lists the wanted tools of all servers. Servers without a cached offer are asked in parallel.
    ///
    /// # Errors
    /// Status 69 if a required server is missing, 78 if it cannot be used as configured, or its tools cannot be checked against their
    /// pins; the run is ending.
    pub fn list_tools(
        &self,
        query: ToolQuery<'_>,
        notice: &mut dyn FnMut(&str),
    ) -> Result<ToolList> {
        let resources = (query.allows_tool)(tool_name::READ_RESOURCE);
        let prompts = (query.allows_tool)(tool_name::GET_PROMPT);
        let is_wanted = |server: &&McpServer| {
            let may_have_tool = (query.allows_prefix)(&tool_name::server_prefix(&server.name));
            !server.enabled_tools.is_empty()
                && (may_have_tool || (server.is_everything_enabled() && (resources || prompts)))
        };
        let servers: Vec<&McpServer> = self.0.clients.servers().iter().filter(is_wanted).collect();
        if servers.is_empty() {
            return Ok(ToolList::default());
        }
        let mut results: BTreeMap<&str, FeaturesResult> = BTreeMap::new();
        let mut uncached_servers: Vec<&McpServer> = Vec::new();
        for server in &servers {
            match self.cached_features(server, query.cached_only) {
                Some(result) => {
                    results.insert(&server.name, result);
                }
                None => uncached_servers.push(server),
            }
        }
        let mut received_features = BTreeMap::new();
        if !uncached_servers.is_empty() {
            for QueriedServer { name, result, received } in
                self.query_servers(&uncached_servers, notice)?
            {
                results.insert(name, result);
                received_features.extend(received.map(|received| (name.to_owned(), received)));
            }
        }
        let mut builder = ListBuilder {
            query,
            names: AssignedNames::default(),
            list: ToolList::default(),
            notice,
        };
        let mut available: Vec<(&McpServer, ServerFeatures)> = Vec::new();
        for server in servers {
            match results.remove(&*server.name) {
                Some(Ok(features)) => available.push((server, features)),
                Some(Err(missing)) => {
                    missing.report_or_fail(server, builder.notice)?;
                    builder.list.missing.push(tool_name::server_prefix(&server.name));
                }
                None => {}
            }
        }
        self.add_checked(&available, received_features, &mut builder)?;
        Ok(builder.list)
    }

    /// Returns the features of `server` from the cache; `None` if the server must be asked. With `cached_only`, it never is.
    fn cached_features(&self, server: &McpServer, cached_only: bool) -> Option<FeaturesResult> {
        let CatalogInner { clients, cache, .. } = &*self.0;
        if let Some(reason) = &server.unusable_reason {
            return Some(Err(MissingServer::unusable(reason)));
        }
        // The server is running, and may have announced a change since its features were cached.
        if !cached_only && clients.features(&server.name).is_some() {
            return None;
        }
        match cache.get(server) {
            Some(CachedResult::Features(features)) => Some(Ok(features)),
            // The run cannot start without a required server, so a cached failure of it is ignored.
            Some(CachedResult::Failed { message, age_secs }) if !server.is_required => {
                Some(Err(MissingServer::from_cached_failure(&message, age_secs)))
            }
            Some(CachedResult::Failed { .. }) | None => {
                cached_only.then(|| Err(MissingServer::not_cached()))
            }
        }
    }

    /// Asks `servers` in parallel for their features, and caches them.
    ///
    /// # Errors
    /// The run is ending.
    fn query_servers<'a>(
        &self,
        servers: &[&'a McpServer],
        notice: &mut dyn FnMut(&str),
    ) -> Result<Vec<QueriedServer<'a>>> {
        let CatalogInner { clients, cache, .. } = &*self.0;
        let names: Vec<&str> = servers.iter().map(|server| &*server.name).collect();
        let mut results = Vec::new();
        for (server, fetched) in servers.iter().zip(clients.fetch_all_features(&names)) {
            let name = server.name.as_str();
            let mut received = None;
            let result = match fetched {
                Ok(features) => {
                    let limited = match self.checked_result(name, &features) {
                        Some(checked) => (*checked.features).clone(),
                        None => {
                            let (limited, notes) = limits::apply_limits((*features).clone());
                            for note in notes {
                                notice(&format!("MCP server `{name}`: {note}"));
                            }
                            cache.store(server, &limited);
                            limited
                        }
                    };
                    received = Some(features);
                    Ok(limited)
                }
                Err(McpError::Stopped(stop)) => return Err(stop.into()),
                Err(error) => {
                    let message = sanitize::single_line(&error.to_string(), MAX_ERROR_CHARS);
                    if is_persistent(&error) {
                        cache.store_failure(server, &message);
                    }
                    Err(MissingServer::from_error(message, &error))
                }
            };
            results.push(QueriedServer { name, result, received });
        }
        Ok(results)
    }

    /// Checks the offers in `available` against the pins, and adds the wanted tools to the list.
    fn add_checked(
        &self,
        available: &[(&McpServer, ServerFeatures)],
        mut received_features: BTreeMap<String, Arc<ServerFeatures>>,
        builder: &mut ListBuilder<'_>,
    ) -> Result<()> {
        let pins = &self.0.pins;
        let offers: Vec<(&McpServer, &ServerFeatures)> =
            available.iter().map(|(server, features)| (*server, features)).collect();
        let checks = if builder.query.cached_only {
            pins.check(&offers)
        } else {
            pins.check_and_pin(&offers)
        };
        let checks = match checks {
            Ok(checks) => checks,
            Err(error) if available.iter().any(|(server, _)| server.is_required) => {
                return Err(error);
            }
            Err(error) => {
                (builder.notice)(&format!("MCP tools are not available: {error:#}"));
                let prefixes =
                    available.iter().map(|(server, _)| tool_name::server_prefix(&server.name));
                builder.list.missing.extend(prefixes);
                return Ok(());
            }
        };
        for ((server, features), check) in available.iter().zip(checks) {
            builder.add_server(server, features, &check);
            let changed = check.changed.into_iter().map(|change| change.name);
            let checked = CheckedFeatures {
                features: Arc::new(features.clone()),
                changed: changed.collect(),
                received: received_features.remove(&server.name),
            };
            self.checked().insert(server.name.clone(), checked);
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
    fn add_server(&mut self, server: &McpServer, features: &ServerFeatures, check: &PinCheck) {
        let name = &server.name;
        self.warn_of_changes(server, check);
        let mut matched_entries: BTreeSet<&str> = BTreeSet::new();
        for (tool, model_name) in tool_name::for_tools(name, &features.tools) {
            if !server.is_tool_enabled([&tool.name, &model_name]) {
                continue;
            }
            let entries = server.enabled_tools.iter().map(String::as_str);
            matched_entries
                .extend(entries.filter(|entry| *entry == tool.name || *entry == model_name));
            self.add_tool(server, tool, model_name, check);
        }
        let is_plain = |entry: &&String| !entry.contains(['*', '?']);
        for entry in server.enabled_tools.iter().filter(is_plain) {
            if !matched_entries.contains(&**entry) {
                (self.notice)(&format!(
                    "`tools.mcpServers.{name}.enabledTools` names `{entry}`, which is not among the server's tools"
                ));
            }
        }
        let has_resources = !features.resources.is_empty() || !features.templates.is_empty();
        let is_everything_enabled = server.is_everything_enabled();
        if is_everything_enabled
            && has_resources
            && (self.query.allows_tool)(tool_name::READ_RESOURCE)
        {
            self.list.resources.push(name.clone());
        }
        if is_everything_enabled
            && !features.prompts.is_empty()
            && (self.query.allows_tool)(tool_name::GET_PROMPT)
        {
            self.list.prompts.push(name.clone());
        }
        self.add_instructions(server, features, check);
    }

    /// Adds the instructions of a server with a tool in the list, if a person has accepted them: the prompt is no place for others.
    fn add_instructions(
        &mut self,
        server: &McpServer,
        features: &ServerFeatures,
        check: &PinCheck,
    ) {
        let name = &server.name;
        let change = check.changed.iter().find(|change| change.name == INSTRUCTIONS);
        let text = match change {
            None => features.instructions.as_deref(),
            Some(change) => change.old.as_ref().map(|old| old.description.as_str()),
        };
        let is_accepted = !check.unaccepted.contains(INSTRUCTIONS);
        let has_tool = || self.list.tools.iter().any(|tool| tool.server == *name);
        let Some(text) = text.filter(|_| is_accepted && has_tool()) else {
            return;
        };
        if change.is_some() {
            (self.notice)(&format!(
                "MCP server `{name}` has changed its instructions; the earlier ones are used until `{}`",
                server.accept_command()
            ));
        }
        let instructions = self.list.instructions.iter();
        let used_chars: usize =
            instructions.map(|instructions| instructions.text.chars().count()).sum();
        let text = sanitize::clean(text);
        let free_chars = MAX_ALL_INSTRUCTIONS_CHARS.saturating_sub(used_chars);
        if free_chars == 0 {
            (self.notice)(&format!(
                "the instructions of MCP server `{name}` are left out: those of the servers before it fill the {MAX_ALL_INSTRUCTIONS_CHARS} characters"
            ));
            return;
        }
        let text = sanitize::truncate(text.trim(), free_chars);
        if !text.is_empty() {
            self.list.instructions.push(ServerInstructions { server: name.clone(), text });
        }
    }

    fn warn_of_changes(&mut self, server: &McpServer, check: &PinCheck) {
        let name = &server.name;
        if check.replaced_server {
            (self.notice)(&format!(
                "MCP server `{name}` has another command or URL than when its tools were pinned: they are treated as new"
            ));
        }
        if check.first_seen.iter().any(|name| name == INSTRUCTIONS) {
            (self.notice)(&format!(
                "MCP server `{name}` has instructions, which are not used until `{}`",
                server.accept_command()
            ));
        }
        let new_tools = check.first_seen.iter().filter(|name| *name != INSTRUCTIONS);
        let names: Vec<String> =
            new_tools.map(|tool| sanitize::single_line(tool, MAX_NAME_CHARS)).collect();
        if !names.is_empty() {
            let names = sanitize::truncate(&names.join("`, `"), MAX_NOTICE_CHARS);
            (self.notice)(&format!(
                "MCP server `{name}` has new tools: `{names}`; each call needs approval until `{}`",
                server.accept_command()
            ));
        }
    }

    fn add_tool(
        &mut self,
        server: &McpServer,
        tool: &ToolInfo,
        model_name: String,
        check: &PinCheck,
    ) {
        let model_name = match self.names.assign(&server.name, &tool.name, model_name) {
            Ok(model_name) => model_name,
            Err(reason) => {
                let tool = sanitize::single_line(&tool.name, MAX_NAME_CHARS);
                let reason = sanitize::single_line(&reason, MAX_NOTICE_CHARS);
                return (self.notice)(&format!(
                    "MCP server `{}`: its tool `{tool}` is omitted: it {reason}",
                    server.name
                ));
            }
        };
        if !(self.query.allows_tool)(&model_name) {
            return;
        }
        let change = check.changed.iter().find(|change| change.name == tool.name);
        // A changed tool is shown with its pinned texts, since the new ones must not be read before they are accepted. A
        // changed tool that was never pinned is not shown.
        let ToolInfo { name, title, description, schema, hints } = match change {
            None => tool,
            Some(ToolChange { old: Some(old), .. }) => old,
            Some(ToolChange { old: None, .. }) => return,
        };
        // The claims of tools that were added later are ignored: a server that cannot change a pinned tool could add a new one instead.
        let reads_only = hints.reads_only == Some(true)
            && hints.destructive != Some(true)
            && !check.added_later.contains(name);
        if check.unaccepted.contains(name) {
            self.list.unaccepted.insert(server.name.clone());
        }
        self.list.tools.push(ToolView {
            name: model_name,
            server: server.name.clone(),
            tool: name.clone(),
            description: sanitize::tool_description(&server.name, title.as_deref(), description),
            schema: schema::convert(schema),
            reads_only,
            has_changed: change.is_some(),
        });
    }
}

/// A server that is not available to a run, with the reason. It is reported as a notice or as an error.
struct MissingServer {
    reason: String,
    exit: Exit,
    subcommand: &'static str,
}

impl MissingServer {
    fn unusable(reason: &str) -> Self {
        Self { reason: format!("invalid config: {reason}"), exit: Exit::Config, subcommand: "show" }
    }

    fn from_error(message: String, error: &McpError) -> Self {
        let exit = match error {
            McpError::Unusable(_) | McpError::Login(_) => Exit::Config,
            _ => Exit::Unavailable,
        };
        Self { reason: message, exit, subcommand: "check" }
    }

    fn from_cached_failure(message: &str, age_secs: i64) -> Self {
        let ago = match age_secs {
            0..90 => format!("{age_secs} s"),
            _ => format!("{} min", (age_secs + 30) / 60),
        };
        Self {
            reason: format!("{message} (tried {ago} ago)"),
            exit: Exit::Unavailable,
            subcommand: "check",
        }
    }

    fn not_cached() -> Self {
        Self {
            reason: "its tools are not known yet".into(),
            exit: Exit::Unavailable,
            subcommand: "check",
        }
    }

    /// Reports the missing server as a notice.
    ///
    /// # Errors
    /// The server is required.
    fn report_or_fail(self, server: &McpServer, notice: &mut dyn FnMut(&str)) -> Result<()> {
        let Self { reason, exit, subcommand } = self;
        let name = sanitize::single_line(&server.name, MAX_NAME_CHARS);
        let hint = format!("nanobot mcp {subcommand} {}", quote(&server.name));
        if server.is_required {
            let cause = format!("MCP server `{name}` is required but not available: {reason}");
            return Err(fail(exit, cause).with_hint(hint));
        }
        notice(&format!("MCP server `{name}` is not available: {reason}; `{hint}`"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::MissingServer;
    use nanobot_config::settings::servers::McpServer;

    #[test]
    fn the_command_for_a_missing_server_can_be_pasted() {
        let server = McpServer { name: "my server".into(), ..McpServer::default() };
        let mut notices = Vec::new();
        let mut notice = |text: &str| notices.push(text.to_owned());
        MissingServer::not_cached().report_or_fail(&server, &mut notice).unwrap();
        assert!(notices[0].ends_with("; `nanobot mcp check 'my server'`"), "{notices:?}");
    }
}
