//! The overview as one JSON object.

use crate::ops::context::Context;
use crate::ops::doctor::overview::{ContextUse, JobsSummary, MemoryState, Overview, RunScope};
use crate::ops::doctor::unused_tools::{USAGE_DAYS, UnusedTools};
use crate::ops::turn_setup::toolset::can_write;
use nanobot_config::policy::Sandbox;
use nanobot_config::settings::retention::Retention;
use nanobot_cron::job::Job;
use nanobot_cron::schedule::Schedule;
use nanobot_model::ledger::PeriodCosts;
use nanobot_sandbox as sandbox;
use nanobot_store::memory::last_run::LastRun;
use serde_json::{Value, json};
use std::time::Duration;

/// Converts the overview to JSON.
pub(super) fn overview_json(ctx: &Context, overview: &Overview) -> Value {
    let choice = overview.endpoint.as_ref().ok().map(|endpoint| &endpoint.choice);
    let PeriodCosts { today, month, later_day } = &overview.costs;
    json!({
        "model": choice.map(|choice| &choice.model), "provider": choice.map(|choice| &choice.provider),
        "key": choice.map(|choice| choice.key_label.to_string().replace('`', "")),
        "error": overview.endpoint.as_ref().err().map(|error| format!("{error:#}")),
        "config": ctx.paths.config.display().to_string(), "workspace": overview.settings.workspace.display().to_string(), "sessions": overview.session_count,
        "context": overview.context.as_ref().map(context_json), "memory": memory_json(ctx, &overview.memory),
        "retention": retention_json(&overview.settings.retention), "cron": jobs_json(&overview.jobs), "scope": overview.scope.as_ref().ok().map(scope_json),
        "offered": tools_json(&overview.tools),
        "spent": {
            "day_usd": today.known_usd(), "day_unpriced_calls": today.unpriced,
            "month_usd": month.known_usd(), "month_unpriced_calls": month.unpriced,
            "later_day": later_day.map(|day| day.to_string()),
        },
        "next": overview.next_step,
    })
}

fn retention_json(retention: &Retention) -> Value {
    let ages = retention.ages().map(|(kind, age)| (kind.to_owned(), age.to_string().into()));
    Value::Object(ages.into_iter().collect())
}

fn context_json(context: &ContextUse) -> Value {
    let ContextUse { session, tokens, window } = context;
    json!({ "session": session, "tokens": tokens, "window": window })
}

fn memory_json(ctx: &Context, memory: &MemoryState) -> Value {
    let last_consolidation = memory.last_consolidation.as_ref().map(|last| {
        let LastRun { time, session, outcome } = last;
        json!({ "time": ctx.clock.to_rfc3339(time), "session": session, "outcome": outcome })
    });
    json!({
        "bytes": memory.bytes, "tokens": memory.tokens, "budget_tokens": memory.budget_tokens,
        "over_budget": memory.is_over_budget, "last_consolidation": last_consolidation,
        "trouble": memory.last_error, "write_error": memory.write_error,
    })
}

fn scope_json(scope: &RunScope) -> Value {
    json!({
        "directory": scope.policy.file_scope.directory.display().to_string(), "may_write": can_write(&scope.policy), "profile": scope.profile.name,
        "sandbox": match scope.policy.sandbox {
            Sandbox::Off => "off",
            _ if sandbox::check_available().is_ok() => "on",
            _ => "none",
        },
    })
}

fn jobs_json(jobs: &JobsSummary) -> Value {
    let failure = jobs.last_failed.as_ref().map(|job| {
        json!({
            "id": job.id, "name": job.name, "time": job.state.last_run.map(|time| time.to_string()),
            "error": job.state.last_error,
        })
    });
    json!({
        "jobs": jobs.jobs.as_ref().ok().map(Vec::len), "enabled": jobs.enabled(),
        "error": jobs.jobs.as_ref().err().map(|error| format!("{error:#}")),
        "next": jobs.next_run.as_ref().map(|(job, time)| json!({
            "id": job.id, "name": job.name, "time": time.to_string(),
        })),
        "last_failure": failure,
        "heartbeat": jobs.heartbeat.as_ref().map(|(job, time)| json!({
            "every_s": period(job).map(|period| period.as_secs()), "next": time.map(|time| time.to_string()),
        })),
    })
}

fn period(job: &Job) -> Option<Duration> {
    match &job.schedule {
        Ok(Schedule::Every(period)) => Some(*period),
        _ => None,
    }
}

fn tools_json(tools: &UnusedTools) -> Value {
    let (servers, skills) = tools.unused();
    json!({
        "servers": tools.servers, "skills": tools.skills, "skills_list": tools.summary.json(),
        "unused": { "days": USAGE_DAYS, "runs": tools.run_count, "servers": servers, "skills": skills },
    })
}
