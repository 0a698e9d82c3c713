//! Runs one sub-agent, from its task to its report: a turn with its own session, which is not stored, the provider and
//! account of its parent, and at most its parent's permissions.

use super::task::{ModelBinding, SubagentTask, TurnContext};
use crate::error::Stop;
use crate::event::StopReason;
use crate::event::{Event, ToolOutcome};
use crate::guard::compaction::CompactionGuard;
use crate::guard::iteration_limit::IterationLimit;
use crate::guard::loop_detection::LoopDetection;
use crate::message::{MessagePart, UserMessage, plain_text};
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::subagent_setup;
use crate::prompt;
use crate::report::short_text::{call_hint, format_denial, truncate_line};
use crate::session::Session;
use crate::sys::secret::redact_all;
use crate::turn;
use crate::turn::agent::Agent;
use crate::turn::background::BackgroundEvent;
use crate::turn::ending::Ending;
use crate::turn::guard::Guard;
use anyhow::Result;
use std::collections::HashMap;

/// Maximum number of requests of a sub-agent. Larger tasks belong in a separate turn.
const MAX_ITERATIONS: u32 = 15;
/// Tools that no sub-agent gets: they contact others, or start something that outlives it.
const EXCLUDED_TOOLS: &[&str] = &["spawn", "message", "cron"];

/// Runs `job` to its end. Returns its report; progress goes to `on_news` and `on_refusal`.
pub(super) fn run_task(
    ctx: &Context,
    turn: &TurnContext,
    job: &SubagentTask,
    max_parallel: usize,
    on_news: &dyn Fn(BackgroundEvent),
    on_refusal: &dyn Fn(String),
) -> BackgroundEvent {
    let mut ending = match run_turn(ctx, turn, job, max_parallel, on_news, on_refusal) {
        Ok(ending) => ending,
        Err(error) => Ending {
            stop_reason: StopReason::Failed,
            error: Some(error),
            ..Ending::default()
        },
    };
    // Call ids are unique only within a sub-agent, so its name is added.
    for denial in &mut ending.stats.denials {
        denial.call_id = format!("{}/{}", job.name(), denial.call_id);
    }
    let how = describe_end(&ending, iteration_limit(job));
    let short = truncate_line(&how, 120);
    on_news(BackgroundEvent::Progress {
        call_id: job.call_id.clone(),
        text: format!("{}: {short}\n", job.name()),
    });
    job.to_report(&how, &ending.text, ending.stats)
}

fn iteration_limit(job: &SubagentTask) -> u32 {
    let own = job.profile.as_ref().and_then(|own| own.max_iterations);
    own.unwrap_or(MAX_ITERATIONS).min(MAX_ITERATIONS)
}

fn run_turn(
    ctx: &Context,
    turn: &TurnContext,
    job: &SubagentTask,
    max_parallel: usize,
    on_news: &dyn Fn(BackgroundEvent),
    on_refusal: &dyn Fn(String),
) -> Result<Ending> {
    let ModelBinding {
        handle: chosen,
        settings,
    } = &job.model;
    let mut names = turn.tool_names.clone();
    names.retain(|name| !EXCLUDED_TOOLS.contains(&name.as_str()));
    let (toolbox, system) = subagent_setup::prepare_subagent(
        ctx,
        settings,
        &job.policy,
        job.profile.as_ref(),
        &turn.shared,
        (&names, max_parallel),
    )?;
    let asked = &settings.models[0];
    let sampling = model::sampling(asked);
    let mut guards: Vec<Box<dyn Guard>> = vec![
        Box::new(IterationLimit {
            max_iterations: iteration_limit(job),
        }),
        Box::new(LoopDetection),
    ];
    if let Some(threshold) = settings
        .compaction
        .threshold_for(chosen.context_tokens, asked.max_tokens)
    {
        guards.push(Box::new(CompactionGuard { threshold }));
    }
    let mut agent = Agent {
        system: &system,
        provider: chosen.provider.as_ref(),
        toolbox: &toolbox,
        guards: &mut guards,
        model: &chosen.model,
        sampling: &sampling,
        answer_format: None,
        background: None,
    };
    let key = &turn.account.session;
    let mut session = Session::ephemeral(key, settings.max_tool_result_chars);
    let id = format!("{}-{}", turn.account.turn, job.name());
    session.begin_turn(&id);
    // The task was written by the parent, possibly under the influence of untrusted content, and not by the user.
    let task = UserMessage {
        id: format!("{id}-task"),
        parts: vec![MessagePart::Text(job.task.clone())],
        runtime_facts: prompt::runtime_facts(&ctx.clock.now(), key),
        injected: true,
    };
    let mut calls: HashMap<String, String> = HashMap::new();
    let mut tell = |event: Event<'_>| {
        if let Event::ToolCall(call) = event {
            calls.insert(call.id.clone(), call_hint(&call.name, &call.arguments));
        }
        if let Event::ToolResult {
            denied: Some((words, grant)),
            result,
            ..
        } = event
        {
            on_refusal(format_denial(&result.name, words, grant));
        }
        if let Some(line) = progress_line(&event, &calls) {
            on_news(BackgroundEvent::Progress {
                call_id: job.call_id.clone(),
                text: format!("{}: {}\n", job.name(), redact_all(&line)),
            });
        }
        Ok(())
    };
    Ok(turn::run(&mut agent, &mut session, Some(task), &mut tell))
}

/// The progress line for an event, if it has one.
fn progress_line(event: &Event<'_>, calls: &HashMap<String, String>) -> Option<String> {
    Some(match event {
        Event::ToolResult {
            result, outcome, ..
        } => {
            let call = calls.get(&result.call_id).unwrap_or(&result.name);
            let text = plain_text(&result.parts);
            let first = truncate_line(text.lines().next().unwrap_or_default(), 160);
            match outcome {
                ToolOutcome::Ok => format!("{call}: ok"),
                ToolOutcome::Failed => format!("{call}: failed: {first}"),
                ToolOutcome::Denied => format!("{call}: {first}"),
                ToolOutcome::Skipped => format!("{call}: not run: {first}"),
            }
        }
        Event::Retry { cause, .. } => format!("{}; retrying", truncate_line(cause, 160)),
        Event::Fallback { to, cause, .. } => format!("{}; using `{to}`", truncate_line(cause, 160)),
        Event::Notice(text) => truncate_line(text, 160),
        _ => return None,
    })
}

/// How a sub-agent ended, phrased to follow its name.
fn describe_end(ending: &Ending, max_iterations: u32) -> String {
    if let Some(error) = &ending.error {
        return match error.is::<Stop>() {
            true => "was stopped before it finished: the run is ending".into(),
            false => format!("failed: {error:#}"),
        };
    }
    match ending.stop_reason {
        StopReason::Answered => "finished".into(),
        StopReason::IterationLimit => {
            format!("was stopped at its limit of {max_iterations} requests")
        }
        StopReason::OutputLimit => "was truncated by the output limit".into(),
        StopReason::RepeatedFailure => "was stopped because the same call failed repeatedly".into(),
        StopReason::RepeatedDenial => {
            "was stopped because the same call was repeatedly denied".into()
        }
        StopReason::Declined | StopReason::Failed => "declined to continue".into(),
    }
}
