//! `--dry-run`: what would be sent, and why, without sending it.

use super::turn_options::TurnOptions;
use crate::message::{Message, User};
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::request_report::RequestBreakdown;
use crate::ops::toolset::TurnSetup;
use crate::session::Session;
use crate::settings::Settings;
use crate::turn::agent::{Agent, Answer};
use anyhow::Result;

/// How a dry run shows the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunForm {
    /// The body, as JSON.
    Json,
    /// A curl command.
    Curl,
    /// What it is made of, as a table.
    Table,
    /// The same as JSON.
    TableJson,
}

/// Show the first request of a turn with `input`.
pub(crate) fn show(
    ctx: &Context,
    arguments: &TurnOptions,
    settings: &Settings,
    scene: &TurnSetup,
    (system, answer): (&str, Option<&dyn Answer>),
    mut session: Session,
    input: Option<User>,
) -> Result<()> {
    let form = arguments.dry_run.unwrap_or(DryRunForm::Json);
    let asked = &settings.asked[0];
    let way = model::resolve_endpoint(ctx, settings, asked, true, !arguments.no_stream);
    let fresh = usize::from(input.is_some());
    if let Some(input) = input {
        session.push(Message::User(input))?;
    }
    // What is sent can be told without knowing whom it is sent to.
    let room = way
        .as_ref()
        .map_or(settings.context_window, |way| way.context(asked, settings));
    let outlay = RequestBreakdown {
        sections: &scene.sections,
        specs: scene.toolbox.specs(),
        session: &session,
        fresh,
        window: settings.memory_window,
        threshold: settings.compaction.at(room, asked.max_tokens),
        room,
    };
    match form {
        DryRunForm::Table => return ctx.terminal.print(&outlay.table()),
        DryRunForm::TableJson => return ctx.terminal.print_json(&outlay.json()),
        DryRunForm::Json | DryRunForm::Curl => {}
    }
    if ctx.terminal.err && !ctx.quiet {
        ctx.terminal.complain(outlay.table().trim_end());
    }
    let model::Endpoint { choice, wire } = way?;
    let sampling = model::sampling(asked);
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
        DryRunForm::Curl => ctx.terminal.print(&wire.curl(&request)),
        _ => ctx.terminal.print_json(&wire.body(&request)),
    }
}
