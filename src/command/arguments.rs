//! Converts command-line arguments to the plain options of `ops`. Structs are destructured in full, so that a new flag
//! cannot be forgotten here.

use crate::cli;
use crate::cli::model_flags::ModelArgs;
use crate::cron::job::{CrashPolicy, NotifyPolicy};
use crate::cron::schedule::CatchUpPolicy;
use crate::message::user_text::UserText;
use crate::ops::jobs::export::ExportFormat;
use crate::ops::jobs::job_edit::JobSettings;
use crate::ops::jobs::job_options::JobFlags;
use crate::ops::jobs::schedule_flags::ScheduleFlags;
use crate::ops::since::SinceFilter;
use crate::ops::turn_options::{DryRunForm, TurnOptions};
use crate::options::value::Since;
use jiff::Zoned;
use std::time::Duration;

/// Converts the flags of `nanobot agent` to the options of its turn.
pub(super) fn turn_options(arguments: &cli::agent::AgentArgs) -> TurnOptions {
    let cli::agent::AgentArgs {
        message,
        prompt_file,
        session,
        new,
        resume,
        fork,
        ephemeral,
        attach,
        wait,
        output_format: _,
        json: _,
        verbose,
        markdown: _,
        no_markdown,
        logs,
        no_logs: _,
        asking,
        max_total_tokens,
        schema,
        grants,
        worktree: _,
        remove_worktree: _,
        max_parallel,
        offline,
        strict,
        timeout,
        stdin,
        no_stdin,
        require_input,
        dry_run,
        record,
        replay,
        replay_strict,
    } = arguments.clone();
    TurnOptions {
        message: message.map(UserText::typed),
        prompt_file,
        attach,
        session,
        new,
        resume,
        fork,
        ephemeral,
        lock_timeout: Duration::from_secs(wait),
        verbose: verbose || logs,
        no_markdown,
        max_total_tokens,
        schema,
        grants,
        max_parallel: max_parallel as usize,
        offline,
        strict,
        timeout,
        stdin,
        no_stdin,
        require_input,
        dry_run: dry_run.map(|form| match form {
            cli::agent::DryRunFormat::Json => DryRunForm::Json,
            cli::agent::DryRunFormat::Curl => DryRunForm::Curl,
            cli::agent::DryRunFormat::Table => DryRunForm::Table,
            cli::agent::DryRunFormat::TableJson => DryRunForm::TableJson,
        }),
        record,
        replay,
        replay_strict,
        ..model_options(asking)
    }
}

/// Converts the model flags to turn options.
pub(super) fn model_options(flags: ModelArgs) -> TurnOptions {
    let ModelArgs {
        model,
        max_tokens,
        temperature,
        reasoning_effort,
        max_iterations,
        max_cost,
        no_stream,
        send_keys,
    } = flags;
    TurnOptions {
        model,
        max_tokens,
        temperature,
        reasoning_effort,
        max_iterations,
        max_cost,
        no_stream,
        send_keys,
        ..TurnOptions::default()
    }
}

/// Converts the flags of `nanobot repl` to the options of its turns.
pub(super) fn repl_turn_options(arguments: &cli::repl::ReplArgs) -> TurnOptions {
    let cli::repl::ReplArgs {
        session,
        fork,
        new,
        verbose,
        markdown: _,
        no_markdown,
        asking,
        grants,
        offline,
        replay,
    } = arguments.clone();
    TurnOptions {
        session,
        fork,
        new,
        verbose,
        no_markdown,
        grants,
        offline,
        replay,
        lock_timeout: Duration::from_secs(600),
        ..model_options(asking)
    }
}

/// Converts the flags about how a job runs and where its answer is sent.
pub(super) fn job_flags(flags: &cli::cron::JobRunArgs) -> JobFlags {
    let cli::cron::JobRunArgs {
        session,
        model,
        when,
        timeout,
        max_cost,
        after_crash,
        deliver,
        no_deliver,
        channel,
        to,
        on_failure,
        on_success,
        notify,
        retry,
        retry_delay,
    } = flags.clone();
    JobFlags {
        session,
        model,
        when,
        timeout,
        max_cost,
        after_crash: after_crash.map(|what| match what {
            cli::cron::AfterCrashArg::Skip => CrashPolicy::Skip,
            cli::cron::AfterCrashArg::Again => CrashPolicy::Again,
        }),
        deliver,
        no_deliver,
        channel,
        to,
        on_failure,
        on_success,
        notify: notify.map(|when| match when {
            cli::cron::NotifyArg::Always => NotifyPolicy::Always,
            cli::cron::NotifyArg::Change => NotifyPolicy::Change,
        }),
        retry,
        retry_delay,
        jitter: None,
        applied: false,
    }
}

/// Converts the flags about a job's schedule, run and permissions.
pub(super) fn job_settings(flags: &cli::cron::JobArgs) -> JobSettings {
    let cli::cron::JobArgs { schedule, terms, grants, config: _ } = flags;
    JobSettings {
        schedule: schedule_flags(schedule),
        flags: JobFlags { jitter: schedule.jitter, ..job_flags(terms) },
        grants: grants.clone(),
    }
}

fn schedule_flags(flags: &cli::cron::ScheduleArgs) -> ScheduleFlags {
    let cli::cron::ScheduleArgs { cron, tz, every, at, r#in: after, catch_up, jitter: _ } =
        flags.clone();
    ScheduleFlags {
        cron,
        tz,
        every,
        at,
        after,
        catch_up: catch_up.map(|what| match what {
            cli::cron::CatchUpArg::Once => CatchUpPolicy::Once,
            cli::cron::CatchUpArg::None => CatchUpPolicy::None,
        }),
    }
}

/// Converts the export format of jobs.
pub(super) fn export_format(format: cli::cron::CronExportFormat) -> ExportFormat {
    match format {
        cli::cron::CronExportFormat::Systemd => ExportFormat::Systemd,
        cli::cron::CronExportFormat::Kubernetes => ExportFormat::Kubernetes,
        cli::cron::CronExportFormat::Crontab => ExportFormat::Crontab,
    }
}

/// Converts `--since` to a filter that starts at a time.
pub(super) fn since_filter(since: Since, now: &Zoned) -> SinceFilter {
    match since {
        Since::Date(date) => SinceFilter::Day(date),
        Since::Days(count) => SinceFilter::last_days(count, now),
        Since::Month => SinceFilter::this_month(now),
        Since::Ago(span) => SinceFilter::ago(span, now),
    }
}
