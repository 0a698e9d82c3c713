//! `nanobot mcp`: the servers of further tools, by hand.

use crate::World;
use crate::cli::mcp::Mcp as Arguments;
use crate::command::walls;
use crate::error::{Exit, Stop, fail, fail_hint};
use crate::mcp::cache::Cache;
use crate::mcp::client::{self, ClientConfig};
use crate::mcp::offer::Failed;
use crate::mcp::pin::Pins;
use crate::mcp::roster::{Look, Roster};
use crate::mcp::words;
use crate::settings::keys::nearest;
use crate::settings::servers::Server;
use crate::settings::{Config, Overrides, Settings};
use crate::sys::signal;
use anyhow::{Context, Result};

mod accept;
mod add;
mod call;
mod list;
mod show;
mod test;

pub fn run(world: &World, arguments: &Arguments) -> Result<Exit> {
    let timeout = match arguments {
        Arguments::Call { timeout, .. } => *timeout,
        _ => None,
    };
    signal::arm(timeout).context("wait for signals")?;
    within(world, arguments).map_err(|error| {
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
pub(super) fn within(world: &World, arguments: &Arguments) -> Result<Exit> {
    match arguments {
        Arguments::List { json } => list::run(&Desk::open(world)?, *json),
        Arguments::Show { server, tool, json } => {
            show::run(&Desk::open(world)?, server, tool.as_deref(), *json)
        }
        Arguments::Test { servers, json } => test::run(&Desk::open(world)?, servers, *json),
        Arguments::Add(arguments) => {
            let rule = add::write(world, arguments)?;
            if let Some(rule) = rule {
                notice(world, &format!("`{rule}` is in `tools.allow` now"));
            }
            match arguments.untested {
                true => Ok(Exit::Answered),
                false => test::added(&Desk::open(world)?, &arguments.name),
            }
        }
        Arguments::Remove { server } => {
            let desk = Desk::open(world)?;
            let rules = add::remove(world, server, &desk.servers)?;
            let was_known = desk.roster.forget(server)?;
            client::forget(&world.paths, server)
                .with_context(|| format!("remove what was kept of `{server}`"))?;
            for rule in rules.iter().flatten() {
                notice(world, &format!("the rule `{rule}` is gone with it"));
            }
            match rules.is_some() || was_known {
                true => Ok(Exit::Answered),
                false => Err(desk.unknown(server)),
            }
        }
        Arguments::Accept { server, tools, yes } => {
            accept::run(&Desk::open(world)?, server, tools, *yes)
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
            call::run(&Desk::open(world)?, &call)
        }
    }
}

/// What is needed to look at servers.
struct Desk<'w> {
    world: &'w World,
    servers: Vec<Server>,
    ground: ClientConfig,
    roster: Roster,
    pins: Pins,
    cache: Cache,
}

impl<'w> Desk<'w> {
    fn open(world: &'w World) -> Result<Self> {
        let config = Config::load(&world.paths.config)?;
        let settings = Settings::resolve(&config, &world.env, &Overrides::default(), &world.paths)?;
        Ok(Self::of(world, &settings, false))
    }

    fn of(world: &'w World, settings: &Settings, offline: bool) -> Self {
        let servers = settings.servers.clone();
        let ground = ClientConfig {
            env: world.env.clone(),
            paths: world.paths.clone(),
            offline,
            answers: None,
            walls: Some(walls::of(world, settings)),
        };
        let folder = world.paths.mcp();
        Self {
            roster: Roster::new(&servers, &world.clock, ground.clone()),
            pins: Pins::at(&folder),
            cache: Cache::at(&folder, &world.clock, &world.env),
            servers,
            ground,
            world,
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
            notice(self.world, &format!("MCP server `{}`: {note}", server.name));
        }
        if look.anew {
            let name = &server.name;
            notice(
                self.world,
                &format!(
                    "MCP server `{name}` is reached in another way than before: all that it offers is taken as new"
                ),
            );
        }
        Ok(look)
    }
}

/// Ask all servers of `settings` that are used, at once.
pub(super) fn ask_all(
    world: &World,
    settings: &Settings,
    offline: bool,
) -> Result<Vec<(Server, Result<Look>)>> {
    let desk = Desk::of(world, settings, offline);
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

fn notice(world: &World, text: &str) {
    if !world.shared.quiet {
        world.terminal.complain(&format!("nanobot: {text}"));
    }
}
