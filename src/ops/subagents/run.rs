//! Runs one sub-agent, from its task to its report: a turn with its own session, which is not stored, the provider and
//! account of its parent, and at most its parent's permissions.

use super::job::{Job, ModelBinding, TurnContext};
use crate::error::Stop;
use crate::event::StopReason;
use crate::event::{Event, Outcome};
use crate::guard::compaction::Compaction;
use crate::guard::iterations::Iterations;
use crate::guard::repeats::Repeats;
use crate::message::{Part, User, plain_text};
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::subagent_setup;
use crate::prompt;
use crate::report::short_text::{cut, hint, refusal};
use crate::session::Session;
use crate::sys::secret::hide;
use crate::turn;
use crate::turn::agent::Agent;
use crate::turn::beside::News;
use crate::turn::ending::Ending;
use crate::turn::guard::Guard;
use anyhow::Result;
use std::collections::HashMap;

/// Maximum number of requests of a sub-agent. Larger tasks belong in a separate turn.
const ITERATIONS: u32 = 15;
/// Tools that no sub-agent gets: they contact others, or start something that outlives it.
const NOT_THEIRS: &[&str] = &["spawn", "message", "cron"];

/// Runs `job` to its end. Returns its report; progress goes to `on_news` and `on_refusal`.
pub(super) fn run(
    ctx: &Context,
    turn: &TurnContext,
    job: &Job,
    max_parallel: usize,
    on_news: &dyn Fn(News),
    on_refusal: &dyn Fn(String),
) -> News {
    let mut ending = match work(ctx, turn, job, max_parallel, on_news, on_refusal) {
        Ok(ending) => ending,
        Err(error) => Ending {
            cause: StopReason::Failed,
            error: Some(error),
            ..Ending::default()
        },
    };
    // Call ids are unique only within a sub-agent, so its name is added.
    for denial in &mut ending.tally.denials {
        denial.call = format!("{}/{}", job.name(), denial.call);
    }
    let how = how(&ending, limit(job));
    let short = cut(&how, 120);
    on_news(News::Said {
        call: job.call.clone(),
        text: format!("{}: {short}\n", job.name()),
    });
    job.report(&how, &ending.text, ending.tally)
}

fn limit(job: &Job) -> u32 {
    let own = job.profile.as_ref().and_then(|own| own.max_iterations);
    own.unwrap_or(ITERATIONS).min(ITERATIONS)
}

fn work(
    ctx: &Context,
    turn: &TurnContext,
    job: &Job,
    max_parallel: usize,
    on_news: &dyn Fn(News),
    on_refusal: &dyn Fn(String),
) -> Result<Ending> {
    let ModelBinding { chosen, settings } = &job.model;
    let mut names = turn.tools.clone();
    names.retain(|name| !NOT_THEIRS.contains(&name.as_str()));
    let (toolbox, system) = subagent_setup::prepare_subagent(
        ctx,
        settings,
        &job.policy,
        job.profile.as_ref(),
        &turn.common,
        (&names, max_parallel),
    )?;
    let asked = &settings.asked[0];
    let sampling = model::sampling(asked);
    let mut guards: Vec<Box<dyn Guard>> = vec![
        Box::new(Iterations { limit: limit(job) }),
        Box::new(Repeats),
    ];
    if let Some(threshold) = settings.compaction.at(chosen.context, asked.max_tokens) {
        guards.push(Box::new(Compaction { threshold }));
    }
    let mut agent = Agent {
        system: &system,
        provider: chosen.provider.as_ref(),
        toolbox: &toolbox,
        guards: &mut guards,
        model: &chosen.model,
        sampling: &sampling,
        answer: None,
        beside: None,
    };
    let key = &turn.account.session;
    let mut session = Session::ephemeral(key, settings.max_tool_result_chars);
    let id = format!("{}-{}", turn.account.turn, job.name());
    session.begin(&id);
    // The task was written by the parent, possibly under the influence of untrusted content, and not by the user.
    let task = User {
        id: format!("{id}-task"),
        parts: vec![Part::Text(job.task.clone())],
        facts: prompt::facts(&ctx.clock.now(), key),
        injected: true,
    };
    let mut calls: HashMap<String, String> = HashMap::new();
    let mut tell = |event: Event<'_>| {
        if let Event::ToolCall(call) = event {
            calls.insert(call.id.clone(), hint(&call.name, &call.arguments));
        }
        if let Event::ToolResult {
            denied: Some((words, grant)),
            result,
            ..
        } = event
        {
            on_refusal(refusal(&result.name, words, grant));
        }
        if let Some(line) = progress(&event, &calls) {
            on_news(News::Said {
                call: job.call.clone(),
                text: format!("{}: {}\n", job.name(), hide(&line)),
            });
        }
        Ok(())
    };
    Ok(turn::run(&mut agent, &mut session, Some(task), &mut tell))
}

/// The progress line for an event, if it has one.
fn progress(event: &Event<'_>, calls: &HashMap<String, String>) -> Option<String> {
    Some(match event {
        Event::ToolResult {
            result, outcome, ..
        } => {
            let call = calls.get(&result.call).unwrap_or(&result.name);
            let text = plain_text(&result.parts);
            let first = cut(text.lines().next().unwrap_or_default(), 160);
            match outcome {
                Outcome::Ok => format!("{call}: ok"),
                Outcome::Failed => format!("{call}: failed: {first}"),
                Outcome::Denied => format!("{call}: {first}"),
                Outcome::Skipped => format!("{call}: not run: {first}"),
            }
        }
        Event::Retry { cause, .. } => format!("{}; retrying", cut(cause, 160)),
        Event::Fallback { to, cause, .. } => format!("{}; using `{to}`", cut(cause, 160)),
        Event::Notice(text) => cut(text, 160),
        _ => return None,
    })
}

/// How a sub-agent ended, phrased to follow its name.
fn how(ending: &Ending, limit: u32) -> String {
    if let Some(error) = &ending.error {
        return match error.is::<Stop>() {
            true => "was stopped before it finished: the run is ending".into(),
            false => format!("failed: {error:#}"),
        };
    }
    match ending.cause {
        StopReason::Answered => "finished".into(),
        StopReason::IterationLimit => format!("was stopped at its limit of {limit} requests"),
        StopReason::OutputLimit => "was truncated by the output limit".into(),
        StopReason::RepeatedFailure => "was stopped because the same call failed repeatedly".into(),
        StopReason::Refused => "was stopped because the same call was repeatedly denied".into(),
        StopReason::Declined | StopReason::Failed => "declined to continue".into(),
    }
}
