//! `nanobot mcp`: the servers of further tools, by hand.

use crate::cli::mcp::Mcp as Arguments;
use crate::error::{Exit, Stop, fail, fail_hint};
use crate::mcp::cache::Cache;
use crate::mcp::client::{self, ClientConfig};
use crate::mcp::offer::Failed;
use crate::mcp::pin::Pins;
use crate::mcp::roster::{Look, Roster};
use crate::mcp::words;
use crate::ops::context::Context;
use crate::ops::mcp_sandbox;
use crate::settings::Settings;
use crate::settings::keys::nearest;
use crate::settings::servers::Server;
use crate::sys::signal;
use anyhow::{Context as _, Result};

mod accept;
mod add;
mod call;
mod list;
mod show;
mod test;

pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let timeout = match arguments {
        Arguments::Call { timeout, .. } => *timeout,
        _ => None,
    };
    signal::arm(timeout).context("wait for signals")?;
    within(ctx, arguments).map_err(|error| {
        // What ends the run leaves time to say so.
        signal::last_words();
        match error.downcast_ref::<Stop>() {
            Some(Stop(Exit::Timeout)) => fail_hint(
                Exit::Timeout,
                "`--timeout` ran out before the server answered",
                "a longer one",
            ),
            _ => error,
        }
    })
}

/// The same where signals are taken care of, as in a conversation.
pub(super) fn within(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::List { json } => list::run(&Desk::open(ctx)?, *json),
        Arguments::Show { server, tool, json } => {
            show::run(&Desk::open(ctx)?, server, tool.as_deref(), *json)
        }
        Arguments::Test { servers, json } => test::run(&Desk::open(ctx)?, servers, *json),
        Arguments::Add(arguments) => {
            let rule = add::write(ctx, arguments)?;
            if let Some(rule) = rule {
                ctx.notice(&format!("`{rule}` is in `tools.allow` now"));
            }
            match arguments.untested {
                true => Ok(Exit::Answered),
                false => test::added(&Desk::open(ctx)?, &arguments.name),
            }
        }
        Arguments::Remove { server } => {
            let desk = Desk::open(ctx)?;
            let rules = add::remove(ctx, server, &desk.servers)?;
            let was_known = desk.roster.forget(server)?;
            client::forget(&ctx.paths, server)
                .with_context(|| format!("remove what was kept of `{server}`"))?;
            for rule in rules.iter().flatten() {
                ctx.notice(&format!("the rule `{rule}` is gone with it"));
            }
            match rules.is_some() || was_known {
                true => Ok(Exit::Answered),
                false => Err(desk.unknown(server)),
            }
        }
        Arguments::Accept { server, tools, yes } => {
            accept::run(&Desk::open(ctx)?, server, tools, *yes)
        }
        Arguments::Call {
            server,
            tool,
            arguments,
            json,
            timeout,
        } => {
            let call = call::Call {
                server,
                tool,
                arguments,
                json: *json,
                timeout: *timeout,
            };
            call::run(&Desk::open(ctx)?, &call)
        }
    }
}

/// What is needed to look at servers.
struct Desk<'w> {
    ctx: &'w Context,
    servers: Vec<Server>,
    ground: ClientConfig,
    roster: Roster,
    pins: Pins,
    cache: Cache,
}

impl<'w> Desk<'w> {
    fn open(ctx: &'w Context) -> Result<Self> {
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

    fn server(&self, name: &str) -> Result<&Server> {
        let found = self.servers.iter().find(|server| server.name == name);
        found.ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> anyhow::Error {
        let names = self.servers.iter().map(|server| server.name.as_str());
        let hint = match (nearest(name, names), self.servers.is_empty()) {
            (Some(meant), _) => format!("`{meant}`"),
            (None, false) => "nanobot mcp list".into(),
            (None, true) => "nanobot mcp add".into(),
        };
        fail_hint(Exit::NoInput, format!("there is no server `{name}`"), hint)
    }

    /// What a server offers now; it is kept from now on.
    fn reach(&self, server: &Server) -> Result<Look> {
        if let Some(words) = &server.unusable {
            return Err(cannot(server, words));
        }
        if server.disabled {
            return Err(cannot(server, "it is `disabled`"));
        }
        let look = self.roster.look(&server.name);
        let look = look.map_err(|failed| failure(server, &failed))?;
        for note in &look.notes {
            self.ctx
                .notice(&format!("MCP server `{}`: {note}", server.name));
        }
        if look.anew {
            let name = &server.name;
            self.ctx.notice(&format!(
                    "MCP server `{name}` is reached in another way than before: all that it offers is taken as new"
                ),
            );
        }
        Ok(look)
    }
}

/// Ask all servers of `settings` that are used, at once.
pub(crate) fn ask_all(
    ctx: &Context,
    settings: &Settings,
    offline: bool,
) -> Result<Vec<(Server, Result<Look>)>> {
    let desk = Desk::of(ctx, settings, offline);
    let used = desk.servers.iter().filter(|server| !server.disabled);
    let all: Vec<&Server> = used.collect();
    let mut asked = Vec::new();
    test::ask(&desk, &all, &mut |it| {
        asked.push((it.server.clone(), it.look));
    });
    asked.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    desk.roster.end();
    signal::check()?;
    Ok(asked)
}

fn cannot(server: &Server, words: &str) -> anyhow::Error {
    let name = &server.name;
    let cause = format!("MCP server `{name}` cannot be used: {words}");
    fail_hint(
        Exit::Config,
        cause,
        format!("nanobot config get tools.mcpServers.{name}"),
    )
}

/// Why a server did not do it, for people.
fn failure(server: &Server, failed: &Failed) -> anyhow::Error {
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
