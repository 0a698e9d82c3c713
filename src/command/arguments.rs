//! Converts command-line arguments to the plain options of `ops`. Structs are destructured in full, so that a new flag
//! cannot be forgotten here.

use crate::cli;
use crate::cron::job::{CrashPolicy, NotifyPolicy};
use crate::cron::schedule::CatchUpPolicy;
use crate::ops::jobs::export::ExportFormat;
use crate::ops::jobs::job_edit::JobSettings;
use crate::ops::jobs::job_options::JobFlags;
use crate::ops::jobs::schedule_flags::ScheduleFlags;
use crate::ops::since::SinceFilter;
use crate::options::value::Since;
use jiff::Zoned;

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
