//! MCP servers outside a turn: lists them, and requests their features.

use crate::ops::agent_turn::tool_usage::find_server;
use crate::ops::context::Context;
use crate::ops::jobs::cron_environment::simulated_env;
use crate::ops::mcp_sandbox;
use crate::ops::server_errors::{MAX_ERROR_CHARS, check_usable, find_configured, to_error};
use crate::ops::server_files;
use crate::options::turn::ServerFiles;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::rule::Pattern;
use nanobot_config::settings::Settings;
use nanobot_config::settings::keys::nearest;
use nanobot_config::settings::servers::McpServer;
use nanobot_mcp::cache::McpCache;
use nanobot_mcp::catalog::{ServerView, ToolCatalog};
use nanobot_mcp::client::{ClientConfig, ClientPool};
use nanobot_mcp::pin::PinFile;
use nanobot_mcp::protocol::{McpError, ServerFeatures, ToolInfo};
use nanobot_mcp::sanitize;
use nanobot_mcp::tool_name::{self, server_prefix};
use nanobot_os::cancel;
use nanobot_os::signal;
use nanobot_sandbox::system_paths::RELOCATED_TOOLS;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The configured servers, and the means to contact them.
pub(crate) struct McpContext<'w> {
    pub(crate) ctx: &'w Context,
    pub(crate) servers: Vec<McpServer>,
    pub(crate) client_config: ClientConfig,
    /// The connections to the servers.
    pub(crate) catalog: ToolCatalog,
    /// The pinned tool definitions, with which the tools of a server are compared.
    pub(crate) pins: PinFile,
    /// The tools that servers offered last.
    pub(crate) cache: McpCache,
}

impl<'w> McpContext<'w> {
    /// Reads the configured servers.
    pub(crate) fn open(ctx: &'w Context) -> Result<Self> {
        Self::open_with(ctx, &ServerFiles::default())
    }

    /// Reads the configured servers and those of `files`.
    ///
    /// # Errors
    /// As [`server_files::add_to`].
    pub(crate) fn open_with(ctx: &'w Context, files: &ServerFiles) -> Result<Self> {
        let mut settings = ctx.settings()?;
        server_files::add_to(ctx, files, &mut settings)?;
        Ok(Self::new(ctx, &settings, false))
    }

    fn new(ctx: &'w Context, settings: &Settings, offline: bool) -> Self {
        let servers = settings.servers.clone();
        let client_config = ClientConfig {
            env: ctx.env.clone(),
            network: settings.network.clone(),
            paths: ctx.paths.clone(),
            offline,
            elicitation: None,
            sandboxes: Some(mcp_sandbox::sandbox_factory(ctx, settings, &FileScope::default())),
        };
        let directory = ctx.paths.mcp();
        Self {
            catalog: ToolCatalog::new(&servers, &ctx.clock, client_config.clone()),
            pins: PinFile::new(&directory),
            cache: McpCache::new(&directory, &ctx.clock, &ctx.env),
            servers,
            client_config,
            ctx,
        }
    }

    /// The server `name`.
    pub(crate) fn server(&self, name: &str) -> Result<&McpServer> {
        find_configured(&self.servers, name)
    }

    /// Requests the features of a server, and caches them.
    pub(crate) fn query(&self, server: &McpServer) -> Result<ServerView> {
        check_usable(server)?;
        let view = self.catalog.query(&server.name).map_err(|error| to_error(server, &error))?;
        for note in &view.notes {
            self.ctx.notice(&format!("MCP server `{}`: {note}", server.name));
        }
        if view.replaced_server {
            let name = &server.name;
            self.ctx.notice(&format!(
                "MCP server `{name}` has a new command or address: all its tools are treated as new"
            ));
        }
        Ok(view)
    }
}

/// Finds a tool by the name that the server gives it, or by the name that models see. Also returns the latter.
pub(crate) fn find_tool<'o>(
    server: &McpServer,
    features: &'o ServerFeatures,
    name: &str,
) -> Result<(&'o ToolInfo, String)> {
    let mut tools = tool_name::for_tools(&server.name, &features.tools).into_iter();
    tools.find(|(tool, model_name)| tool.name == name || model_name == name).ok_or_else(|| {
        let names = features.tools.iter().map(|tool| tool.name.as_str());
        let hint = match nearest(name, names) {
            Some(similar) => format!("`{}`", sanitize::single_line(similar, 80)),
            None => format!("nanobot mcp show {}", server.name),
        };
        let cause = format!("MCP server `{}` has no tool `{name}`", server.name);
        fail(Exit::NoInput, cause).with_hint(hint)
    })
}

/// The result of asking one server.
pub(crate) struct ServerTest<'s> {
    pub(crate) server: &'s McpServer,
    /// The duration of the request.
    pub(crate) duration: Duration,
    /// The server's features, or the error.
    pub(crate) result: Result<ServerView>,
}

impl ServerTest<'_> {
    /// The tools that have changed since they were pinned.
    pub(crate) fn changed(&self) -> Vec<&str> {
        let changes = self.result.iter().flat_map(|view| &view.changed);
        changes.map(|change| change.name.as_str()).collect()
    }

    /// The tools that the user has not accepted, except changed ones.
    pub(crate) fn unaccepted(&self) -> Vec<&str> {
        let changed = self.changed();
        let names = self.result.iter().flat_map(|view| &view.unaccepted).map(String::as_str);
        names.filter(|name| !changed.contains(name)).collect()
    }
}

/// Asks `servers` concurrently. `on_result` is called with every result as it arrives.
pub(crate) fn query_servers<'s>(
    mcp: &McpContext<'_>,
    servers: &[&'s McpServer],
    on_result: &mut dyn FnMut(ServerTest<'s>),
) {
    let test = |server: &'s McpServer| {
        let start = Instant::now();
        let result = mcp.query(server);
        ServerTest { server, duration: start.elapsed(), result }
    };
    let token = cancel::current();
    std::thread::scope(|scope| {
        let (result_tx, result_rx) = mpsc::channel();
        for server in servers.iter().copied() {
            let (token, test, result_tx) = (token.clone(), &test, result_tx.clone());
            scope.spawn(move || {
                // The receiver waits for all results, so sending does not fail.
                drop(result_tx.send(cancel::scope(token, || test(server))));
            });
        }
        drop(result_tx);
        result_rx.into_iter().for_each(&mut *on_result);
    });
}

/// Starts `servers` once more, in the environment that cron gives a job, and returns the failures: the name of each
/// server, and a message. Nothing is pinned or cached. The servers of `mcp` are ended first, because two instances of one
/// server may disturb each other.
pub(crate) fn query_under_cron(
    mcp: &McpContext<'_>,
    servers: &[&McpServer],
) -> Result<Vec<(String, String)>> {
    mcp.catalog.shut_down();
    let ctx = Context { env: simulated_env(&mcp.ctx.env), quiet: true, ..mcp.ctx.clone() };
    let settings = ctx.settings()?;
    let client_config = ClientConfig {
        env: ctx.env.clone(),
        network: settings.network.clone(),
        sandboxes: Some(mcp_sandbox::sandbox_factory(&ctx, &settings, &FileScope::default())),
        ..mcp.client_config.clone()
    };
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    let results = ClientPool::new(&settings.servers, client_config).fetch_all_features(&names);
    signal::check()?;
    let mut failures = Vec::new();
    for (name, result) in names.iter().zip(results) {
        if let Err(error) = result {
            failures.push(((*name).to_owned(), describe_under_cron(mcp.ctx, &error)));
        }
    }
    Ok(failures)
}

/// The message for a server that works here and fails with `error` in cron's environment.
fn describe_under_cron(ctx: &Context, error: &McpError) -> String {
    let message = sanitize::single_line(&error.to_string(), MAX_ERROR_CHARS);
    let variables = RELOCATED_TOOLS.iter().map(|(variable, ..)| *variable);
    let unset: Vec<&str> = variables.filter(|variable| ctx.env.get(variable).is_some()).collect();
    match unset.as_slice() {
        [] => format!("in a job started by cron: {message}"),
        unset => {
            format!("in a job started by cron, which does not set {}: {message}", unset.join(", "))
        }
    }
}

/// The result of asking all servers.
pub(crate) struct AllServers {
    pub(crate) results: Vec<(McpServer, Result<ServerView>)>,
    /// The failures in the environment of cron of servers that work here.
    pub(crate) cron_failures: Vec<(String, String)>,
}

/// Asks all enabled servers of `settings` concurrently.
pub(crate) fn query_all(ctx: &Context, settings: &Settings, offline: bool) -> Result<AllServers> {
    let mcp = McpContext::new(ctx, settings, offline);
    let enabled: Vec<&McpServer> =
        mcp.servers.iter().filter(|server| !server.is_disabled).collect();
    let mut results = Vec::new();
    query_servers(&mcp, &enabled, &mut |test| {
        results.push((test.server.clone(), test.result));
    });
    results.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let working = results.iter().filter(|(_, result)| result.is_ok());
    let working: Vec<&McpServer> = working.map(|(server, _)| server).collect();
    let cron_failures = query_under_cron(&mcp, &working)?;
    Ok(AllServers { results, cron_failures })
}

/// The rules that `tools.allow` needs to allow all tools of the servers without a rule. Without a rule,
/// each tool that may make changes is refused in a run that cannot ask.
pub(crate) fn missing_allow_rules(settings: &Settings) -> Vec<String> {
    let names: Vec<&str> = settings.servers.iter().map(|server| server.name.as_str()).collect();
    let rules = &settings.tools.allow;
    let permissions = settings.tools.permissions.iter().map(|(tool, _)| tool);
    let is_named = |server: &McpServer| {
        let any_tool = format!("{}x", server_prefix(&server.name));
        rules.iter().chain(permissions.clone()).any(|rule| {
            find_server(rule, &names) == Some(&*server.name)
                || Pattern::new(rule).matches(&any_tool)
        })
    };
    let enabled = settings.servers.iter().filter(|server| !server.is_disabled);
    enabled.filter(|server| !is_named(server)).map(|server| allow_rule(&server.name)).collect()
}

/// The rule that allows all tools of the server `name`.
pub(crate) fn allow_rule(name: &str) -> String {
    format!("{}*", server_prefix(name))
}
