//! `--dry-run`: what would be sent, and why, without sending it.

use super::outlay::Outlay;
use super::places::Scene;
use crate::World;
use crate::cli::{Agent as Arguments, DryRun};
use crate::command::asker;
use crate::message::{Message, User};
use crate::session::Session;
use crate::settings::Settings;
use crate::turn::agent::{Agent, Answer};
use anyhow::Result;

/// Show the first request of a turn with `input`.
pub(super) fn show(
    world: &World,
    arguments: &Arguments,
    settings: &Settings,
    scene: &Scene,
    (system, answer): (&str, Option<&dyn Answer>),
    mut session: Session,
    input: Option<User>,
) -> Result<()> {
    let form = arguments.dry_run.unwrap_or(DryRun::Json);
    let asked = &settings.asked[0];
    let way = asker::way(world, settings, asked, true, !arguments.no_stream);
    let fresh = usize::from(input.is_some());
    if let Some(input) = input {
        session.push(Message::User(input))?;
    }
    // What is sent can be told without knowing whom it is sent to.
    let room = way
        .as_ref()
        .map_or(settings.context_window, |way| way.context(asked, settings));
    let outlay = Outlay {
        sections: &scene.sections,
        specs: scene.toolbox.specs(),
        session: &session,
        fresh,
        window: settings.memory_window,
        threshold: settings.compaction.at(room, asked.max_tokens),
        room,
    };
    match form {
        DryRun::Table => return world.terminal.print(&outlay.table()),
        DryRun::TableJson => return world.terminal.print_json(&outlay.json()),
        DryRun::Json | DryRun::Curl => {}
    }
    if world.terminal.err && !world.shared.quiet {
        world.terminal.complain(outlay.table().trim_end());
    }
    let asker::Way { choice, wire } = way?;
    let sampling = asker::sampling(asked);
    let agent = Agent {
        system,
        provider: &wire,
        toolbox: &scene.toolbox,
        guards: &mut [],
        model: &choice.model,
        sampling: &sampling,
        answer,
        beside: None,
    };
    let request = agent.request(session.messages(), true, "");
    match form {
        DryRun::Curl => world.terminal.print(&wire.curl(&request)),
        _ => world.terminal.print_json(&wire.body(&request)),
    }
}
