//! MCP servers outside a turn: lists them, and asks what they offer.

use crate::error::{Exit, fail, fail_hint};
use crate::mcp::cache::Cache;
use crate::mcp::client::ClientConfig;
use crate::mcp::offer::Failed;
use crate::mcp::pin::Pins;
use crate::mcp::roster::{Look, Roster};
use crate::mcp::words;
use crate::ops::context::Context;
use crate::ops::mcp_sandbox;
use crate::settings::Settings;
use crate::settings::keys::nearest;
use crate::settings::servers::Server;
use crate::sys::{defect, leash, signal};
use anyhow::Result;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The configured servers, and what is needed to contact them.
pub(crate) struct McpContext<'w> {
    pub(crate) ctx: &'w Context,
    pub(crate) servers: Vec<Server>,
    pub(crate) ground: ClientConfig,
    /// The connections to the servers.
    pub(crate) roster: Roster,
    /// The pinned tool definitions, with which offers are compared.
    pub(crate) pins: Pins,
    /// The tools that servers offered last.
    pub(crate) cache: Cache,
}

impl<'w> McpContext<'w> {
    /// Reads the configured servers.
    pub(crate) fn open(ctx: &'w Context) -> Result<Self> {
        let settings = ctx.settings()?;
        Ok(Self::of(ctx, &settings, false))
    }

    fn of(ctx: &'w Context, settings: &Settings, offline: bool) -> Self {
        let servers = settings.servers.clone();
        let ground = ClientConfig {
            env: ctx.env.clone(),
            paths: ctx.paths.clone(),
            offline,
            answers: None,
            walls: Some(mcp_sandbox::of(ctx, settings)),
        };
        let folder = ctx.paths.mcp();
        Self {
            roster: Roster::new(&servers, &ctx.clock, ground.clone()),
            pins: Pins::at(&folder),
            cache: Cache::at(&folder, &ctx.clock, &ctx.env),
            servers,
            ground,
            ctx,
        }
    }

    /// The server `name`.
    pub(crate) fn server(&self, name: &str) -> Result<&Server> {
        let found = self.servers.iter().find(|server| server.name == name);
        found.ok_or_else(|| self.unknown(name))
    }

    /// The error for a server that is not configured.
    pub(crate) fn unknown(&self, name: &str) -> anyhow::Error {
        let names = self.servers.iter().map(|server| server.name.as_str());
        let hint = match (nearest(name, names), self.servers.is_empty()) {
            (Some(meant), _) => format!("`{meant}`"),
            (None, false) => "nanobot mcp list".into(),
            (None, true) => "nanobot mcp add".into(),
        };
        fail_hint(Exit::NoInput, format!("there is no server `{name}`"), hint)
    }

    /// Asks a server what it offers now, and caches the answer.
    pub(crate) fn reach(&self, server: &Server) -> Result<Look> {
        if let Some(words) = &server.unusable {
            return Err(cannot(server, words));
        }
        if server.disabled {
            return Err(cannot(server, "it is disabled"));
        }
        let view = self.roster.look(&server.name);
        let view = view.map_err(|failed| failure(server, &failed))?;
        for note in &view.notes {
            self.ctx
                .notice(&format!("MCP server `{}`: {note}", server.name));
        }
        if view.anew {
            let name = &server.name;
            self.ctx.notice(&format!(
                "MCP server `{name}` has a new command or address: all its tools are treated as new"
            ));
        }
        Ok(view)
    }
}

/// The result of asking one server.
pub(crate) struct ServerTest<'s> {
    pub(crate) server: &'s Server,
    /// The duration of the request.
    pub(crate) took: Duration,
    /// The server's offer, or the error.
    pub(crate) look: Result<Look>,
}

impl ServerTest<'_> {
    /// The tools that have changed since they were pinned.
    pub(crate) fn changed(&self) -> Vec<&str> {
        let view = self.look.as_ref().ok().into_iter();
        let changes = view.flat_map(|view| &view.changed);
        changes.map(|change| change.tool.as_str()).collect()
    }

    /// The tools that the user has not accepted, except changed ones.
    pub(crate) fn unaccepted(&self) -> Vec<&str> {
        let changed = self.changed();
        let view = self.look.as_ref().ok().into_iter();
        let names = view.flat_map(|view| &view.unaccepted).map(String::as_str);
        names.filter(|name| !changed.contains(name)).collect()
    }
}

/// Asks `servers` concurrently. `on_result` is called with every result as it arrives.
pub(crate) fn ask<'s>(
    mcp: &McpContext<'_>,
    servers: &[&'s Server],
    each: &mut dyn FnMut(ServerTest<'s>),
) {
    let one = |server: &'s Server| {
        let begun = Instant::now();
        let broken = |_| {
            Err(failure(
                server,
                &Failed::Broken("internal error in nanobot".into()),
            ))
        };
        let view = defect::caught(|| mcp.reach(server)).unwrap_or_else(broken);
        ServerTest {
            server,
            took: begun.elapsed(),
            look: view,
        }
    };
    let leash = leash::held();
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for server in servers.iter().copied() {
            let (leash, one, send) = (leash.clone(), &one, send.clone());
            scope.spawn(move || {
                // The receiver waits for all results, so sending does not fail.
                drop(send.send(leash::under(leash, || one(server))));
            });
        }
        drop(send);
        receive.into_iter().for_each(&mut *each);
    });
}

/// Asks all enabled servers of `settings` concurrently.
pub(crate) fn ask_all(
    ctx: &Context,
    settings: &Settings,
    offline: bool,
) -> Result<Vec<(Server, Result<Look>)>> {
    let mcp = McpContext::of(ctx, settings, offline);
    let used = mcp.servers.iter().filter(|server| !server.disabled);
    let all: Vec<&Server> = used.collect();
    let mut asked = Vec::new();
    ask(&mcp, &all, &mut |it| {
        asked.push((it.server.clone(), it.look));
    });
    asked.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    mcp.roster.end();
    signal::check()?;
    Ok(asked)
}

/// The error for a server that cannot be used.
pub(crate) fn cannot(server: &Server, words: &str) -> anyhow::Error {
    let name = &server.name;
    let cause = format!("MCP server `{name}` cannot be used: {words}");
    fail_hint(
        Exit::Config,
        cause,
        format!("nanobot config get tools.mcpServers.{name}"),
    )
}

/// Turns a server's failure into an error for the user.
pub(crate) fn failure(server: &Server, failed: &Failed) -> anyhow::Error {
    let name = &server.name;
    let words = words::line(&failed.to_string(), 2000);
    match failed {
        Failed::Stopped(stop) => (*stop).into(),
        Failed::Unusable(_) => cannot(server, &words),
        Failed::Login(_) => fail(Exit::Config, format!("MCP server `{name}`: {words}")),
        Failed::Refused(_) => fail(Exit::Failed, format!("MCP server `{name}`: {words}")),
        Failed::Unreachable(_) | Failed::Broken(_) | Failed::Late(_) | Failed::Altered => {
            fail(Exit::Unavailable, format!("MCP server `{name}`: {words}"))
        }
    }
}
