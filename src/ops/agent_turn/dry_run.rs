//! `--dry-run`: shows the request that would be sent, and why, without sending it. The turn runs as usual, with a provider that shows the
//! first request and ends the turn.

use crate::ops::agent_turn::execute::build_guards;
use crate::ops::agent_turn::prepare::PreparedTurn;
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::request_report::RequestBreakdown;
use crate::options::turn::{DryRunForm, TurnOptions};
use anyhow::Result;
use nanobot_agent::turn::agent::{Agent, AnswerFormat};
use nanobot_agent::turn::{self, compact};
use nanobot_base::error::{Exit, Stop};
use nanobot_base::event::Event;
use nanobot_base::message::{Message, Reply};
use nanobot_model::provider::http_provider::HttpProvider;
use nanobot_model::provider::redact::RedactingProvider;
use nanobot_model::provider::{DeltaSink, Provider, ProviderError, ProviderResult, Request};
use nanobot_os::terminal::stderr_width;
use parking_lot::Mutex;

/// Prints the first request of a turn.
pub(crate) fn show(ctx: &Context, options: &TurnOptions, mut turn: PreparedTurn) -> Result<()> {
    let form = options.recording.dry_run.unwrap_or(DryRunForm::Json);
    let (settings, terminal) = (&turn.settings, ctx.terminal);
    let model_settings = &settings.models[0];
    let endpoint =
        model::resolve_endpoint(ctx, settings, model_settings, true, !options.model.no_stream);
    let mut new_count = 0;
    if turn.compaction.is_none()
        && let Some(message) = turn.message.take()
    {
        turn.session.push(Message::User(message))?;
        new_count = 1;
    }
    // The request can be shown even if its provider is unknown.
    let context_window = endpoint.as_ref().map_or(settings.context_window, |endpoint| {
        endpoint.context_tokens(ctx, model_settings, settings)
    });
    let breakdown = RequestBreakdown {
        sections: &turn.setup.sections,
        specs: &turn.setup.toolbox.requested_specs(turn.session.messages()),
        session: &turn.session,
        new_count,
        message_window: settings.memory_window,
        threshold: settings.compaction.threshold_for(context_window, model_settings.max_tokens),
        context_window,
    };
    match form {
        DryRunForm::Table => return terminal.print(&breakdown.table(terminal.stdout_width())),
        DryRunForm::TableJson => return terminal.print_json(&breakdown.json()),
        DryRunForm::Json | DryRunForm::Curl => {}
    }
    if terminal.stderr_is_tty && !ctx.quiet {
        let table = breakdown.table(Some(stderr_width()));
        terminal.eprint(table.trim_end());
    }
    let model::Endpoint { choice, http_provider } = endpoint?;
    let sampling = model::sampling(model_settings, context_window);
    // Keys are masked like in a request that is sent.
    let preview = RedactingProvider {
        inner: RequestPreview { http_provider, form, first_request: Mutex::default() },
        sends_keys: options.model.send_keys,
    };
    let mut guards = build_guards(settings, context_window, turn.reads_only);
    let mut agent = Agent {
        system: &turn.system,
        provider: &preview,
        toolbox: &turn.setup.toolbox,
        guards: &mut guards,
        model: &choice.model,
        sampling: &sampling,
        summary_instructions: turn.summary_instructions.as_deref(),
        answer_format: turn.schema.as_ref().map(|schema| schema as &dyn AnswerFormat),
        hooks: None,
        until: None,
        background: None,
        steering: None,
    };
    let session = &mut turn.session;
    let mut sink = |event: Event<'_>| {
        if let Event::Notice(text) = event {
            ctx.notice(text);
        }
        Ok(())
    };
    let ending = match &turn.compaction {
        Some(request) => {
            compact::compact_now(&mut agent, session, request.instructions.as_deref(), &mut sink)
        }
        None => turn::run(&mut agent, session, None, &mut sink),
    };
    match (preview.inner.first_request.into_inner(), ending.error) {
        (Some(text), _) if form == DryRunForm::Curl => ctx.terminal.print_request(&text),
        (Some(text), _) => ctx.terminal.print_request_json(&format!("{text}\n")),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(()),
    }
}

/// Keeps the text of the first request, and ends the turn.
struct RequestPreview {
    http_provider: HttpProvider,
    form: DryRunForm,
    first_request: Mutex<Option<String>>,
}

impl Provider for RequestPreview {
    fn reply(&self, request: &Request<'_>, _: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let text = match self.form {
            DryRunForm::Curl => self.http_provider.curl(request),
            _ => String::from_utf8_lossy(&self.http_provider.body(request)).into_owned(),
        };
        self.first_request.lock().get_or_insert(text);
        Err(ProviderError::Aborted(Stop(Exit::Answered).into()))
    }
}
