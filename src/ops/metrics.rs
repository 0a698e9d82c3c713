//! The state of jobs and channels, costs and budgets in the text format of Prometheus (exposition format
//! 0.0.4), for the textfile collector of its node exporter.

use crate::ops::channel::health::{self, ChannelHealth};
use crate::ops::context::Context;
use crate::ops::jobs::job_status::{self, JobList, JobStatus};
use crate::ops::jobs::scheduler_problems::ProblemKind;
use anyhow::Result;
use jiff::Timestamp;
use nanobot_cron::run_record::RunRecord;
use nanobot_model::ledger::{CostSum, Ledger, round_usd};
use std::fmt::Write;

/// A gauge of a job: its name, its help, and its value; `None` if there is none.
type JobGauge = (&'static str, &'static str, fn(&JobStatus) -> Option<f64>);

const JOB_GAUGES: &[JobGauge] = &[
    ("enabled", "1 if the job is enabled.", |job| Some(f64::from(u8::from(job.job.enabled)))),
    ("problem", "1 if the job fails, is overdue or cannot run.", |job| {
        Some(f64::from(u8::from(job.problem().is_some())))
    }),
    ("failures", "Runs that failed since the last success.", |job| {
        Some(job.history.failures as f64)
    }),
    ("next_run_timestamp_seconds", "Time of the next run.", |job| {
        job.next_runs.first().copied().map(seconds)
    }),
    ("last_success_timestamp_seconds", "Start of the last run that did not fail.", |job| {
        job.history.last_success.map(seconds)
    }),
    ("last_run_timestamp_seconds", "Start of the last run.", |job| {
        start(job.history.last.as_ref()?).map(seconds)
    }),
    ("last_run_status", "Exit status of the last run.", |job| {
        Some(f64::from(job.history.last.as_ref()?.status))
    }),
    ("last_run_duration_seconds", "Duration of the last run.", |job| {
        let last = job.history.last.as_ref()?;
        let end: Timestamp = last.end.parse().ok()?;
        Some(end.duration_since(start(last)?).as_secs_f64())
    }),
    ("last_run_input_tokens", "Input tokens of the last run.", |job| {
        Some(job.history.last.as_ref()?.usage.input_tokens as f64)
    }),
    ("last_run_output_tokens", "Output tokens of the last run.", |job| {
        Some(job.history.last.as_ref()?.usage.output_tokens as f64)
    }),
    (
        "last_run_cost_dollars",
        "Cost of the last run in US dollars, if its price is known.",
        |job| job.history.last.as_ref()?.usage.cost_usd.map(round_usd),
    ),
];

/// A gauge of a channel: its name, its help, and its value; `None` if there is none.
type ChannelGauge = (&'static str, &'static str, fn(&ChannelHealth, Timestamp) -> Option<f64>);

const CHANNEL_GAUGES: &[ChannelGauge] = &[
    ("enabled", "1 if the channel is enabled.", |channel, _| {
        Some(f64::from(u8::from(channel.is_enabled)))
    }),
    (
        "problem",
        "1 if the channel fails, is not polled, or messages wait too long.",
        |channel, now| Some(f64::from(u8::from(!channel.problems(now).is_empty()))),
    ),
    ("last_poll_timestamp_seconds", "Time of the last successful poll.", |channel, _| {
        channel.last_poll.map(seconds)
    }),
    ("failing_since_timestamp_seconds", "Time since which the channel fails.", |channel, _| {
        channel.failures.iter().map(|(_, failure)| failure.since()).min().map(seconds)
    }),
    ("waiting", "Messages that wait for an answer or a delivery.", |channel, _| {
        Some(channel.waiting as f64)
    }),
    (
        "oldest_waiting_timestamp_seconds",
        "Time since which the oldest message waits.",
        |channel, _| channel.oldest_waiting.map(seconds),
    ),
    ("given_up", "Messages that were given up, and not sent again.", |channel, _| {
        Some(channel.given_up as f64)
    }),
];

/// The text of all metrics.
///
/// # Errors
/// The config, the ledger, the jobs or the channels cannot be read.
pub(crate) fn collect(ctx: &Context) -> Result<String> {
    let settings = ctx.settings()?;
    let JobList { jobs, problems, now } = job_status::check(ctx)?;
    let costs = Ledger::new(&ctx.paths.root, &ctx.clock).period_costs()?;
    let mut text = String::new();
    for (name, help, value) in JOB_GAUGES {
        let samples = jobs.iter().filter_map(|job| {
            let labels =
                format!("job=\"{}\",name=\"{}\"", label(&job.job.id), label(&job.job.name));
            Some((labels, value(job)?))
        });
        write_gauge(&mut text, &format!("job_{name}"), help, samples);
    }
    let has_problem = |kind| problems.iter().any(|problem| problem.kind == kind);
    let scheduler = ProblemKind::ALL
        .map(|kind| (format!("kind=\"{}\"", kind.name()), f64::from(u8::from(has_problem(kind)))));
    let help = "1 if jobs are not started or cannot be recorded for this cause.";
    write_gauge(&mut text, "cron_problem", help, scheduler);
    let channels = health::list(ctx)?;
    for (name, help, value) in CHANNEL_GAUGES {
        let configured = channels.iter().filter(|channel| channel.is_configured);
        let samples = configured.filter_map(|channel| {
            Some((format!("channel=\"{}\"", channel.name), value(channel, now.timestamp())?))
        });
        write_gauge(&mut text, &format!("channel_{name}"), help, samples);
    }
    let periods = |value: &dyn Fn(&CostSum) -> f64| {
        let parts = [("day", &costs.today), ("month", &costs.month)];
        parts.map(|(period, sum)| (format!("period=\"{period}\""), value(sum)))
    };
    let costs_by_period = periods(&|sum| round_usd(sum.usd));
    write_gauge(&mut text, "cost_dollars", "Known cost in US dollars.", costs_by_period);
    let unpriced = periods(&|sum| sum.unpriced as f64);
    write_gauge(&mut text, "calls_without_price", "Requests to models of unknown price.", unpriced);
    let limits = [("day", settings.budget.daily), ("month", settings.budget.monthly)];
    let limits = limits
        .into_iter()
        .filter_map(|(period, limit)| Some((format!("period=\"{period}\""), limit?)));
    write_gauge(&mut text, "budget_dollars", "Limit of the cost in US dollars.", limits);
    Ok(text)
}

/// Writes a gauge with its samples, unless it has none.
fn write_gauge(
    text: &mut String,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (String, f64)>,
) {
    let mut lines = String::new();
    for (labels, value) in samples {
        writeln!(lines, "nanobot_{name}{{{labels}}} {value}")
            .expect("writing to a string cannot fail");
    }
    if !lines.is_empty() {
        let head = format!("# HELP nanobot_{name} {help}\n# TYPE nanobot_{name} gauge\n");
        text.push_str(&(head + &lines));
    }
}

fn start(record: &RunRecord) -> Option<Timestamp> {
    record.start.parse().ok()
}

fn seconds(time: Timestamp) -> f64 {
    time.as_second() as f64
}

/// Escapes the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
