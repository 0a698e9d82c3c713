//! `nanobot status`: prints an overview on one screen; `status check` tests whether the configuration works, and `status metrics`
//! prints the metrics for Prometheus.

use crate::cli::status::{StatusArgs, StatusCheckArgs, StatusCommand};
use crate::command::spending::{METER_COLUMNS, format_spending};
use crate::ops::context::Context;
use crate::ops::doctor::check::{CheckResult, Severity};
use crate::ops::doctor::overview::{ContextUse, JobsSummary, MemoryState, Overview, RunScope};
use crate::ops::doctor::unused_tools::{USAGE_DAYS, UnusedTools};
use crate::ops::doctor::{checks, moved_home};
use crate::ops::jobs::time_format::{count_jobs, format_time, format_time_until, to_one_line};
use crate::ops::jobs::{time_zone, timing, unseen_answers};
use crate::ops::metrics;
use crate::ops::model::Endpoint;
use crate::ops::turn_setup::toolset::can_write;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use console::Style;
use jiff::Timestamp;
use nanobot_agent::report::columns::hanging_indent;
use nanobot_agent::report::meter::{draw_meter, format_percent};
use nanobot_base::error::Exit;
use nanobot_config::policy::Sandbox;
use nanobot_config::settings::Settings;
use nanobot_config::settings::own_keys::own_file_path;
use nanobot_config::settings::retention::Retention;
use nanobot_cron::job::{Job, JobState};
use nanobot_cron::schedule::Schedule;
use nanobot_model::ledger::PeriodCosts;
use nanobot_os::durable_file::format_size;
use nanobot_os::terminal::{StdoutWriter, sanitize, theme};
use nanobot_sandbox as sandbox;
use nanobot_store::memory::last_run::{ConsolidationOutcome, LastRun};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Runs `nanobot status`.
pub fn run(ctx: &Context, arguments: &StatusArgs) -> Result<Exit> {
    run_for_turns(ctx, arguments, &TurnOptions::default())
}

/// Like [`run`], for turns with these options.
pub(super) fn run_for_turns(
    ctx: &Context,
    arguments: &StatusArgs,
    options: &TurnOptions,
) -> Result<Exit> {
    match arguments.command {
        Some(StatusCommand::Check(arguments)) => return check(ctx, arguments),
        Some(StatusCommand::Metrics) => {
            ctx.terminal.print(&metrics::collect(ctx)?)?;
            return Ok(Exit::Answered);
        }
        None => {}
    }
    let overview = Overview::collect(ctx, options)?;
    if arguments.json {
        ctx.terminal.print_json(&overview_json(ctx, &overview))?;
    } else {
        print_overview(ctx, &overview)?;
    }
    Ok(Exit::Answered)
}

/// Converts the overview to JSON.
fn overview_json(ctx: &Context, overview: &Overview) -> Value {
    let choice = overview.endpoint.as_ref().ok().map(|endpoint| &endpoint.choice);
    let PeriodCosts { today, month, later_day } = &overview.costs;
    json!({
        "model": choice.map(|choice| &choice.model), "provider": choice.map(|choice| &choice.provider),
        "key": choice.map(|choice| choice.key_label.plain_text()),
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

/// Columns of the level of a result, the name of its check, and the gap after each.
const LEVEL_COLUMNS: usize = 4;
const NAME_COLUMNS: usize = 11;
const GAP_COLUMNS: usize = 2;
/// Columns before the result.
const RESULT_INDENT: usize = LEVEL_COLUMNS + GAP_COLUMNS + NAME_COLUMNS + GAP_COLUMNS;

/// Runs `status check`.
fn check(ctx: &Context, arguments: StatusCheckArgs) -> Result<Exit> {
    let StatusCheckArgs { fix, offline, no_crontab, json } = arguments;
    let mut printer = CheckPrinter { ctx, json, exit: Exit::Answered, rows: Vec::new() };
    if fix {
        printer.add("moved", moved_home::correct_paths(ctx, no_crontab)?)?;
    }
    checks::run_all(ctx, offline, no_crontab, &mut |name, results| printer.add(name, results))?;
    printer.end()
}

/// Prints results, and determines the exit status.
struct CheckPrinter<'a> {
    ctx: &'a Context,
    json: bool,
    /// The exit status of the first failure.
    exit: Exit,
    rows: Vec<Value>,
}

impl CheckPrinter<'_> {
    fn add(&mut self, name: &str, results: Vec<CheckResult>) -> Result<()> {
        for result in results {
            if result.severity == Severity::Failed && self.exit == Exit::Answered {
                self.exit = result.exit;
            }
            if self.json {
                self.rows.push(result_json(name, &result));
            } else {
                self.print(name, &result)?;
            }
        }
        Ok(())
    }

    fn print(&self, name: &str, result: &CheckResult) -> Result<()> {
        let one_line = |text: &str| sanitize(&to_one_line(text));
        let mut writer = StdoutWriter::new(self.ctx.terminal);
        let width = self.ctx.terminal.stdout_width();
        let level = level_name(result.severity);
        writer.write_styled(level, &level_style(result.severity))?;
        // The level is printed already, but its columns are part of the first line.
        let head = format!(
            "{level:<LEVEL_COLUMNS$}{:GAP_COLUMNS$}{name:<NAME_COLUMNS$}{:GAP_COLUMNS$}",
            "", ""
        );
        let row = hanging_indent(&head, &one_line(&result.message), width);
        writer.write(&format!("{}\n", &row[level.len()..]))?;
        if let Some(hint) = &result.hint {
            let head = format!("{:RESULT_INDENT$}try: ", "");
            writer.write(&format!("{}\n", hanging_indent(&head, &one_line(hint), width)))?;
        }
        writer.finish()
    }

    fn end(self) -> Result<Exit> {
        if self.json {
            self.ctx.terminal.print_json(&Value::Array(self.rows))?;
        }
        Ok(self.exit)
    }
}

fn result_json(name: &str, result: &CheckResult) -> Value {
    let CheckResult { severity, message, hint, jobs, exit } = result;
    let is_failed = *severity == Severity::Failed;
    json!({
        "name": name, "ok": !is_failed, "level": level_name(*severity), "detail": message, "try": hint, "jobs": jobs,
        "status": is_failed.then_some(exit.code()),
    })
}

fn level_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Warn => "warn",
        Severity::Failed => "no",
    }
}

fn level_style(severity: Severity) -> Style {
    match severity {
        Severity::Ok => Style::new().green(),
        Severity::Warn => theme::attention(),
        Severity::Failed => Style::new().red().bold(),
    }
}

/// A label and its text.
type StatusRow = (&'static str, String);

/// Columns before the text.
const LABEL_COLUMNS: usize = 11;
/// Labels of rows that are highlighted: problems, and things to do.
const HIGHLIGHTED_LABELS: [&str; 4] = ["problem", "failed", "unseen", "next"];

/// Prints the overview.
fn print_overview(ctx: &Context, overview: &Overview) -> Result<()> {
    let Overview {
        settings,
        endpoint,
        session_count,
        context,
        memory,
        jobs,
        scope,
        tools,
        costs,
        next_step,
    } = overview;
    let describe_path = |path: &Path, exists: bool| {
        let note = if exists { "" } else { ", which does not exist yet" };
        ctx.paths.display(path) + note
    };
    let mut config = describe_path(&ctx.paths.config, ctx.paths.config.exists());
    let own_path = own_file_path(&ctx.paths.config);
    if own_path.exists() {
        config.push_str(&format!(", {}", ctx.paths.display(&own_path)));
    }
    let mut rows = vec![("config", config)];
    rows.extend(endpoint_rows(endpoint));
    rows.push(("workspace", describe_path(&settings.workspace, settings.workspace.is_dir())));
    match scope {
        Ok(scope) => rows.extend(scope_rows(ctx, scope)),
        Err(error) => rows.push(("profile", format!("{error:#}"))),
    }
    rows.extend(tool_rows(tools));
    rows.push(("sessions", session_count.to_string()));
    rows.extend(retention_row(&settings.retention));
    let has_meters = ctx.terminal.stdout_width().is_some();
    if let Some(context) = context {
        rows.push(("context", format_context(context, has_meters)));
    }
    rows.extend(memory_rows(memory));
    rows.extend(jobs_rows(ctx, settings, jobs));
    let unseen = unseen_answers::list(ctx)?;
    rows.extend(unseen_answers::describe(&unseen).map(|description| ("unseen", description)));
    rows.push(("spent", format_costs(settings, costs, has_meters)));
    rows.extend(next_step.clone().map(|step| ("next", step)));
    print_rows(ctx, &rows)?;
    if ctx.terminal.stdout_is_tty { unseen_answers::mark_seen(ctx, &unseen) } else { Ok(()) }
}

fn endpoint_rows(endpoint: &Result<Endpoint>) -> Vec<StatusRow> {
    let Endpoint { choice, http_provider } = match endpoint {
        Ok(endpoint) => endpoint,
        Err(error) => return vec![("model", format!("not available: {error:#}"))],
    };
    let key = if http_provider.key.is_configured() {
        choice.key_label.plain_text()
    } else {
        "none".into()
    };
    vec![("model", choice.model.clone()), ("provider", choice.provider.clone()), ("key", key)]
}

fn memory_rows(memory: &MemoryState) -> Vec<StatusRow> {
    let MemoryState {
        bytes,
        tokens,
        budget_tokens,
        is_over_budget,
        last_consolidation,
        last_error,
        write_error,
    } = memory;
    let over_budget = if *is_over_budget {
        "; over its budget, so the next consolidation is asked to shorten it"
    } else {
        ""
    };
    let size = format_size(*bytes as u64);
    let updated = match last_consolidation {
        None => "never".into(),
        Some(last) => {
            let outcome = match last.outcome {
                ConsolidationOutcome::New => "",
                ConsolidationOutcome::Same => "; the memory is unchanged",
                ConsolidationOutcome::Aside => "; the new text was rejected",
                ConsolidationOutcome::Raw => "; the history has its messages unchanged",
            };
            format!("{}, from {}{outcome}", last.time, last.session)
        }
    };
    let mut rows = vec![
        ("memory", format!("{size}, about {tokens} of {budget_tokens} tokens{over_budget}")),
        ("updated", updated),
    ];
    if let Some(error) = write_error {
        rows.push(("problem", format!("the memory cannot be updated: {error}")));
    }
    if let Some(error) = last_error {
        rows.push(("problem", format!("the last consolidation failed: {error}")));
    }
    rows
}

fn scope_rows(ctx: &Context, scope: &RunScope) -> [StatusRow; 2] {
    let access = if can_write(&scope.policy) { "writable" } else { "read-only without `--write`" };
    let directory = format!("{}, {access}", ctx.paths.display(&scope.policy.file_scope.directory));
    let commands = match (scope.policy.sandbox, sandbox::check_available()) {
        (Sandbox::Off, _) => "commands run without a sandbox".into(),
        (_, Ok(())) => "commands run in the sandbox".into(),
        (_, Err(error)) => format!("commands are denied: {error}"),
    };
    let profile = format!("{}; {commands}", scope.profile.name);
    [("directory", directory), ("profile", profile)]
}

fn tool_rows(tools: &UnusedTools) -> Vec<StatusRow> {
    let mut rows = Vec::new();
    if !tools.servers.is_empty() {
        rows.push(("servers", tools.servers.join(", ")));
    }
    // Built-in skills are not worth a row.
    if tools.summary.own_count > 0 {
        rows.push(("skills", tools.summary.describe()));
    }
    let (servers, skills) = tools.unused();
    let servers = servers.into_iter().map(|name| match tools.server_tokens.get(name) {
        Some(tokens) => format!("the server {name} ({tokens} tokens of each request)"),
        None => format!("the server {name}"),
    });
    let skills = skills.into_iter().map(|name| format!("the skill {name}"));
    let unused: Vec<String> = servers.chain(skills).collect();
    if !unused.is_empty() {
        let description =
            format!("in {USAGE_DAYS} days and {} runs: {}", tools.run_count, unused.join(", "));
        rows.push(("unused", description));
    }
    rows
}

/// The ages at which stored data is removed, if the config has one.
fn retention_row(retention: &Retention) -> Option<StatusRow> {
    let ages = retention.ages().map(|(kind, age)| format!("{kind} {age}"));
    retention.is_configured.then(|| ("retention", ages.join(", ")))
}

fn jobs_rows(ctx: &Context, settings: &Settings, summary: &JobsSummary) -> Vec<StatusRow> {
    let now = time_zone::now(ctx, settings);
    let format_next = |time: Timestamp| {
        format!("{} ({})", format_time(time, &now), format_time_until(time, now.timestamp()))
    };
    let jobs = match &summary.jobs {
        Err(error) => format!("{error:#}"),
        Ok(jobs) if jobs.is_empty() => "no jobs".into(),
        Ok(jobs) => {
            let next = match &summary.next_run {
                Some((job, time)) => {
                    format!("next `{}` {}", to_one_line(&job.name), format_next(*time))
                }
                None => "none is scheduled".into(),
            };
            match jobs.len() - summary.enabled() {
                0 => format!("{}, {next}", count_jobs(jobs.len())),
                disabled => format!("{}, {disabled} disabled, {next}", count_jobs(jobs.len())),
            }
        }
    };
    let mut rows = vec![("cron", jobs)];
    rows.extend(summary.last_failed.as_ref().map(|job| {
        let JobState { last_run, last_error, .. } = &job.state;
        let time =
            last_run.map_or_else(String::new, |time| format!(", {}", format_time(time, &now)));
        let error = last_error.as_deref().unwrap_or("unknown cause");
        let name = to_one_line(&job.name);
        ("failed", format!("`{name}`{time}: {}", to_one_line(error)))
    }));
    let heartbeat = match &summary.heartbeat {
        None => "off".into(),
        Some((job, next)) => {
            let next = next.map_or_else(|| "never".into(), format_next);
            format!("{}, next {next}", timing::describe_schedule(ctx, job, now.time_zone()))
        }
    };
    rows.push(("heartbeat", heartbeat));
    rows
}

/// The use of the context window, with a meter on a terminal.
fn format_context(context: &ContextUse, has_meter: bool) -> String {
    let ContextUse { session, tokens, window } = context;
    let text = format!("{tokens} of {window} tokens in the last request of `{session}`");
    if !has_meter {
        return text;
    }
    let meter = draw_meter(*tokens as f64 / f64::from((*window).max(1)), METER_COLUMNS);
    format!("{meter} {} {text}", format_percent(*tokens, u64::from(*window)))
}

/// The costs of this day and this month, with meters of the budgets on a terminal.
fn format_costs(settings: &Settings, costs: &PeriodCosts, has_meters: bool) -> String {
    let budget = &settings.budget;
    let mut text = format!(
        "{} today, {} this month",
        format_spending(&costs.today, budget.daily, has_meters),
        format_spending(&costs.month, budget.monthly, has_meters),
    );
    if let Some(day) = costs.later_day {
        text.push_str(&format!("; some costs are dated up to {day}, since the clock was ahead"));
    }
    text
}

/// Prints the rows, wrapped to the width of a terminal.
fn print_rows(ctx: &Context, rows: &[StatusRow]) -> Result<()> {
    let mut writer = StdoutWriter::new(ctx.terminal);
    for (label, text) in rows {
        let is_highlighted = HIGHLIGHTED_LABELS.contains(label);
        let style = if is_highlighted { theme::attention() } else { Style::new().bold() };
        writer.write_styled(label, &style)?;
        // The label is printed already, but its columns are part of the first line.
        let head = format!("{label:LABEL_COLUMNS$}");
        let row = hanging_indent(&head, &sanitize(text), ctx.terminal.stdout_width());
        writer.write(&format!("{}\n", &row[label.len()..]))?;
    }
    writer.finish()
}
