//! `--dry-run`: shows the request that would be sent, and why, without sending it.

use crate::message::Message;
use crate::ops::agent_turn::prepare::PreparedTurn;
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::request_report::RequestBreakdown;
use crate::ops::turn_options::{DryRunForm, TurnOptions};
use crate::turn::agent::Agent;
use anyhow::Result;

/// Prints the first request of a turn.
pub(crate) fn show(ctx: &Context, options: &TurnOptions, mut turn: PreparedTurn) -> Result<()> {
    let form = options.dry_run.unwrap_or(DryRunForm::Json);
    let settings = &turn.settings;
    let asked = &settings.models[0];
    let endpoint = model::resolve_endpoint(ctx, settings, asked, true, !options.no_stream);
    let fresh = usize::from(turn.message.is_some());
    if let Some(message) = turn.message.take() {
        turn.session.push(Message::User(message))?;
    }
    // The request can be shown even if its provider is unknown.
    let context_window = endpoint
        .as_ref()
        .map_or(settings.context_window, |endpoint| {
            endpoint.context_tokens(ctx, asked, settings)
        });
    let breakdown = RequestBreakdown {
        sections: &turn.setup.sections,
        specs: turn.setup.toolbox.specs(),
        session: &turn.session,
        new_count: fresh,
        message_window: settings.memory_window,
        threshold: settings
            .compaction
            .threshold_for(context_window, asked.max_tokens),
        context_window,
    };
    match form {
        DryRunForm::Table => return ctx.terminal.print(&breakdown.table()),
        DryRunForm::TableJson => return ctx.terminal.print_json(&breakdown.json()),
        DryRunForm::Json | DryRunForm::Curl => {}
    }
    if ctx.terminal.stderr_is_tty && !ctx.quiet {
        ctx.terminal.eprint(breakdown.table().trim_end());
    }
    let model::Endpoint {
        choice,
        http_provider: wire,
    } = endpoint?;
    let sampling = model::sampling(asked);
    let agent = Agent {
        system: &turn.system,
        provider: &wire,
        toolbox: &turn.setup.toolbox,
        guards: &mut [],
        model: &choice.model,
        sampling: &sampling,
        summary_instructions: None,
        answer_format: turn.answer_format(),
        background: None,
    };
    let request = agent.build_request(turn.session.messages(), true, "");
    match form {
        DryRunForm::Curl => ctx.terminal.print(&wire.curl(&request)),
        _ => ctx
            .terminal
            .print_json(&serde_json::from_slice(&wire.body(&request))?),
    }
}
