//! Runs one sub-agent, from its task to its report. It is a turn with its own session, which is not stored, and at most
//! the permissions of the turn that started it; its cost is charged to that turn.

use super::task::{ModelBinding, SubagentTask, TurnContext};
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::turn_setup::shared_state::SharedState;
use crate::ops::turn_setup::subagent_setup;
use anyhow::Result;
use nanobot_agent::guard::compaction::CompactionGuard;
use nanobot_agent::guard::iteration_limit::IterationLimit;
use nanobot_agent::guard::loop_detection::LoopDetection;
use nanobot_agent::prompt;
use nanobot_agent::report::short_text::count_noun;
use nanobot_agent::report::short_text::{call_hint, format_denial, truncate_line};
use nanobot_agent::report::trace::AgentEnd;
use nanobot_agent::turn;
use nanobot_agent::turn::agent::Agent;
use nanobot_agent::turn::background::BackgroundEvent;
use nanobot_agent::turn::ending::{Ending, exit_status};
use nanobot_agent::turn::guard::Guard;
use nanobot_base::error::{Stop, exit_for};
use nanobot_base::event::{Event, StopReason, ToolOutcome};
use nanobot_base::message::{MessagePart, UserMessage, plain_text};
use nanobot_os::secret::redact_all;
use nanobot_store::session::Session;
use std::collections::HashMap;

/// Maximum number of requests of a sub-agent. Larger tasks belong in a separate turn.
const MAX_ITERATIONS: u32 = 15;
/// Maximum characters of a text in a line of progress, and of the end of a sub-agent in such a line.
const MAX_PROGRESS_CHARS: usize = 160;
const MAX_ENDING_CHARS: usize = 120;
/// Tools that no sub-agent gets: they send messages, or start work that may continue after its end.
const EXCLUDED_TOOLS: &[&str] = &["spawn", "message", "cron"];

/// Runs `task` to its end and returns its report. Progress goes to `on_event`, and each denied tool call to
/// `on_denial`.
pub(super) fn run_task(
    ctx: &Context,
    turn: &TurnContext,
    task: &SubagentTask,
    max_parallel: usize,
    on_event: &dyn Fn(BackgroundEvent),
    on_denial: &dyn Fn(String),
) -> BackgroundEvent {
    let mut ending = match run_turn(ctx, turn, task, max_parallel, on_event, on_denial) {
        Ok(ending) => ending,
        Err(error) => {
            Ending { stop_reason: StopReason::Failed, error: Some(error), ..Ending::default() }
        }
    };
    // Call ids are unique only within a sub-agent, so its name is added.
    for denial in &mut ending.stats.denials {
        denial.call_id = format!("{}/{}", task.name(), denial.call_id);
    }
    let ending_text = describe_ending(&ending, iteration_limit(task));
    let first_line = truncate_line(&ending_text, MAX_ENDING_CHARS);
    on_event(BackgroundEvent::Progress {
        call_id: task.call_id.clone(),
        text: format!("{}: {first_line}\n", task.name()),
    });
    task.to_report(&ending_text, &ending.text, ending.stats)
}

fn iteration_limit(task: &SubagentTask) -> u32 {
    let from_profile = task.profile.as_ref().and_then(|profile| profile.max_iterations);
    from_profile.unwrap_or(MAX_ITERATIONS).min(MAX_ITERATIONS)
}

fn run_turn(
    ctx: &Context,
    turn: &TurnContext,
    task: &SubagentTask,
    max_parallel: usize,
    on_event: &dyn Fn(BackgroundEvent),
    on_denial: &dyn Fn(String),
) -> Result<Ending> {
    let ModelBinding { handle, settings } = &task.model;
    let id = format!("{}-{}", turn.purpose.turn, task.name());
    let trace = ctx.trace.as_ref().map(|trace| trace.begin_subagent(&id, &task.name()));
    let traced_ctx = trace.clone().map(|trace| ctx.with_trace(trace));
    let ctx = traced_ctx.as_ref().unwrap_or(ctx);
    let mut tool_names = turn.tool_names.clone();
    tool_names.retain(|name| !EXCLUDED_TOOLS.contains(&name.as_str()));
    let (toolbox, system) = subagent_setup::build_subagent(
        ctx,
        settings,
        &task.policy,
        task.profile.as_ref(),
        &SharedState {
            mcp_tools: turn.shared.mcp_tools.for_subagent(handle, settings),
            ..turn.shared.clone()
        },
        &tool_names,
        max_parallel,
    )?;
    let sampling = model::sampling(&settings.models[0], handle.context_tokens);
    let mut guards = build_guards(task);
    let mut agent = Agent {
        system: &system,
        provider: handle.provider.as_ref(),
        toolbox: &toolbox,
        guards: &mut guards,
        model: &handle.model,
        sampling: &sampling,
        summary_instructions: None,
        answer_format: None,
        hooks: None,
        until: None,
        background: None,
        steering: None,
    };
    let session_key = &turn.purpose.session;
    let mut session = Session::ephemeral(session_key, settings.max_tool_result_chars);
    session.begin_turn(&id);
    // The task was written by the parent, possibly under the influence of untrusted content, and not by the user.
    let message = UserMessage {
        id: format!("{id}-task"),
        parts: vec![MessagePart::Text(task.task.clone())],
        runtime_facts: prompt::runtime_facts(
            &ctx.clock.now_in(settings.timezone.as_deref()),
            session_key,
        ),
        injected: true,
        ..UserMessage::default()
    };
    let mut call_hints: HashMap<String, String> = HashMap::new();
    let mut sink = |event: Event<'_>| {
        if let Some(trace) = &trace {
            trace.observe(&event);
        }
        if let Event::ToolCall(call) = event {
            call_hints.insert(call.id.clone(), call_hint(&call.name, &call.arguments));
        }
        if let Event::ToolResult { denial: Some(denial), .. } = event {
            on_denial(format_denial(denial));
        }
        if let Some(line) = progress_line(&event, &call_hints) {
            on_event(BackgroundEvent::Progress {
                call_id: task.call_id.clone(),
                text: format!("{}: {}\n", task.name(), redact_all(&line)),
            });
        }
        Ok(())
    };
    let ending = turn::run(&mut agent, &mut session, Some(message), &mut sink);
    if let Some(trace) = &trace {
        trace.end(&AgentEnd {
            provider: &handle.provider_name,
            model: &handle.model,
            usage: ending.stats.usage,
            exit: ending.error.as_ref().map_or(exit_status(ending.stop_reason), exit_for),
        });
    }
    Ok(ending)
}

fn build_guards(task: &SubagentTask) -> Vec<Box<dyn Guard>> {
    let ModelBinding { handle, settings } = &task.model;
    let max_tokens = settings.models[0].max_tokens;
    let mut guards: Vec<Box<dyn Guard>> = vec![
        Box::new(IterationLimit { max_iterations: iteration_limit(task) }),
        Box::new(LoopDetection),
    ];
    let threshold = settings.compaction.threshold_for(handle.context_tokens, max_tokens);
    if let Some(threshold) = threshold {
        guards.push(Box::new(CompactionGuard { threshold }));
    }
    guards
}

/// The progress line for an event, if it has one.
fn progress_line(event: &Event<'_>, call_hints: &HashMap<String, String>) -> Option<String> {
    Some(match event {
        Event::ToolResult { result, outcome, .. } => {
            let hint = call_hints.get(&result.call_id).unwrap_or(&result.name);
            let text = plain_text(&result.parts);
            let first_line =
                truncate_line(text.lines().next().unwrap_or_default(), MAX_PROGRESS_CHARS);
            match outcome {
                ToolOutcome::Ok => format!("{hint}: ok"),
                ToolOutcome::Failed => format!("{hint}: failed: {first_line}"),
                ToolOutcome::Denied => format!("{hint}: {first_line}"),
                ToolOutcome::Skipped => format!("{hint}: not run: {first_line}"),
            }
        }
        Event::Retry { cause, .. } => {
            format!("{}; retrying", truncate_line(cause, MAX_PROGRESS_CHARS))
        }
        Event::Fallback { to, cause, .. } => {
            format!("{}; using `{to}`", truncate_line(cause, MAX_PROGRESS_CHARS))
        }
        Event::Notice(text) => truncate_line(text, MAX_PROGRESS_CHARS),
        _ => return None,
    })
}

/// Describes how a sub-agent ended, as the predicate of a sentence whose subject is its name.
fn describe_ending(ending: &Ending, max_iterations: u32) -> String {
    if let Some(error) = &ending.error {
        return if error.is::<Stop>() {
            "was stopped before it finished: the run is ending".into()
        } else {
            format!("failed: {error:#}")
        };
    }
    match ending.stop_reason {
        StopReason::Answered => "finished".into(),
        StopReason::IterationLimit => {
            format!(
                "was stopped at its limit of {}",
                count_noun(max_iterations as usize, "request")
            )
        }
        StopReason::OutputLimit => "was truncated by the output limit".into(),
        StopReason::RoundLimit => "was stopped at its limit of rounds".into(),
        StopReason::RepeatedFailure => "was stopped because the same call failed repeatedly".into(),
        StopReason::RepeatedCall => {
            "was stopped because it repeated a call that gave the same result".into()
        }
        StopReason::RepeatedDenial => {
            "was stopped because the same call was repeatedly denied".into()
        }
        StopReason::Declined => "declined to continue".into(),
        StopReason::Failed => "failed".into(),
    }
}
