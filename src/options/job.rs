//! The options of a job: its schedule, how it runs, and what its runs may do. For an existing job, `None` leaves a value unchanged, and an
//! empty text removes it.

use super::grants::Grants;
use super::model::CacheTime;
use super::value::{ModelNames, dollars, model_names, time, time_or_zero, trimmed};
use clap::{ArgAction, Args, ValueEnum};
use nanobot_cron::job::{CrashPolicy, NotifyPolicy};
use nanobot_cron::schedule::CatchUpPolicy;
use std::time::Duration;

/// Options that creating and editing a job share
#[derive(Args, Clone, Debug, Default)]
pub struct JobSettings {
    #[command(flatten)]
    pub schedule: ScheduleFlags,
    #[command(flatten)]
    pub flags: JobFlags,
    /// Run this command in place of a model, and deliver what it prints
    ///
    /// It runs like that of `--when`. Its standard input is the output of `--when`, or the answer of the job of `--after`. Without
    /// output there is nothing to report; a status other than 0 is a failure. It needs `--name`, and takes no option for models.
    #[arg(long, value_name = "CMD", hide_short_help = true, help_heading = "Run and delivery")]
    pub command: Option<String>,
    #[command(flatten)]
    pub grants: Grants,
    /// The job comes from a file of jobs.
    #[arg(skip)]
    pub applied: bool,
}

/// Schedule of a job
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Schedule")]
pub struct ScheduleFlags {
    /// Cron expression
    ///
    /// Minute, hour, day of the month, month, day of the week: `0 8 * * 1-5`.
    #[arg(short, long, value_name = "EXPR", conflicts_with_all = ["every", "at", "in", "after"])]
    pub cron: Option<String>,
    /// Time zone of `--cron`, such as `Europe/Paris`
    ///
    /// Default: `agents.defaults.timezone` of the config, else the system's time zone.
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// Interval: `90m`, `2h`, `1d`
    ///
    /// A bare number is seconds.
    #[arg(short, long, value_name = "TIME", conflicts_with_all = ["at", "in", "after"])]
    pub every: Option<String>,
    /// Once, at this time: `2026-12-24T18:00`
    ///
    /// In the time zone of the config, else the system's, unless it has `Z` or an offset.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["in", "after"])]
    pub at: Option<String>,
    /// Once, after this time: `2h`
    #[arg(id = "in", long = "in", value_name = "TIME", conflicts_with = "after")]
    pub delay: Option<String>,
    /// After each run of this job that gives an answer
    ///
    /// The answer is the input of this job, like piped text. If that job fails or has nothing to report, this one does not run.
    #[arg(long, value_name = "JOB", hide_short_help = true)]
    pub after: Option<String>,
    /// Action after a missed run
    ///
    /// A run is missed while the machine is off or asleep: run the job once later, or not at all. Default: `once` for
    /// `--at`, `--in` and `--after`, else `none`.
    #[arg(long, value_name = "WHAT", hide_short_help = true)]
    pub catch_up: Option<CatchUpPolicy>,
    /// Delay each start by less than this time
    ///
    /// The delay is the same each time for a job on a machine, so that many machines with the same job do not start it at
    /// once. At most one day; 0 for none.
    #[arg(long, value_name = "TIME", value_parser = time_or_zero, hide_short_help = true)]
    pub jitter: Option<Duration>,
}

impl ScheduleFlags {
    /// True if any flag sets a time.
    pub(crate) fn has_times(&self) -> bool {
        [&self.cron, &self.every, &self.at, &self.delay, &self.after]
            .iter()
            .any(|flag| flag.is_some())
    }
}

/// Execution and delivery of a job
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Run and delivery")]
pub struct JobFlags {
    /// Session to continue
    ///
    /// Default: a session of its own, of which only the last run is sent.
    #[arg(short, long, value_name = "KEY", hide_short_help = true)]
    pub session: Option<String>,
    /// Model, or a preset of the config
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub model: Option<String>,
    /// Model, or a preset, that answers if the first one cannot; may be repeated
    ///
    /// As `nanobot agent --fallback`. An empty text removes the job's own.
    #[arg(
        id = "fallback",
        long = "fallback",
        value_name = "NAME",
        action = ArgAction::Append,
        value_parser = model_names,
        hide_short_help = true
    )]
    pub fallbacks: Option<Vec<ModelNames>>,
    /// Lifetime of the provider's prompt cache
    ///
    /// As `nanobot agent --cache`, for jobs that run every hour or more often.
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    pub cache: Option<CacheTime>,
    /// Run only if this command exits with status 0
    ///
    /// Its output goes to the model. Any other status skips the run; 126, 127 and death by a signal are failures. It
    /// runs as you: outside the sandbox, in your home directory, with the full environment.
    #[arg(long, value_name = "CMD")]
    pub when: Option<String>,
    /// Run only if this command prints something
    ///
    /// As `--when`, but its standard output decides, whatever its exit status. If it prints nothing on standard output, fails, and
    /// writes to standard error, the run has failed.
    #[arg(long, value_name = "CMD", conflicts_with = "when", hide_short_help = true)]
    pub when_output: Option<String>,
    /// Load a skill at the start of a run; may be repeated
    ///
    /// As `nanobot agent --skill`. For an existing job the skills take the place of the earlier ones; an empty text removes them.
    #[arg(
        id = "skill",
        long = "skill",
        value_name = "NAME|DIR",
        action = ArgAction::Append,
        hide_short_help = true
    )]
    pub skills: Vec<String>,
    /// Continue until this command succeeds
    ///
    /// As `nanobot agent --until`: it runs after each answer, as a command of the run. If it succeeds before the first request, the run
    /// is not needed.
    #[arg(long, value_name = "CMD", hide_short_help = true)]
    pub until: Option<String>,
    /// Stop after N answers, if the command of `--until` still fails
    ///
    /// Default: 10.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub max_rounds: Option<u32>,
    /// Time limit of a run
    ///
    /// Seconds, or a duration such as `90s`, `5m`, `1h30m`, `2d`. Default: one hour.
    #[arg(long, value_name = "TIME", value_parser = time, hide_short_help = true)]
    pub timeout: Option<Duration>,
    /// Cost limit of a run, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, allow_negative_numbers = true, hide_short_help = true)]
    pub max_cost: Option<f64>,
    /// Action after a crash interrupted a run
    ///
    /// Its result is unknown: skip it, or run it again. Default: `skip`.
    #[arg(long, value_name = "WHAT", hide_short_help = true)]
    pub after_crash: Option<CrashPolicy>,
    /// Retry a run that failed for a temporary cause
    ///
    /// At most this number of times, if the provider is not available or something is busy (status 69 or 75; others by
    /// `--retry-on`), and only before the next scheduled run. Only the last failure is reported. Default: 6 for `--at` and `--in`, else 0.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100), hide_short_help = true)]
    pub retry: Option<u32>,
    /// Also retry a run that failed with one of these statuses: `1,65`
    ///
    /// With `--retry`. Default: only 69 and 75. A run that had an effect before it failed has it again.
    #[arg(long, value_name = "STATUS,…", hide_short_help = true)]
    pub retry_on: Option<String>,
    /// Time before a retry
    ///
    /// From one minute to one day. Default: ten minutes.
    #[arg(long, value_name = "TIME", value_parser = time, hide_short_help = true)]
    pub retry_delay: Option<Duration>,
    /// Deliver the answer instead of printing it
    ///
    /// `--channel` and `--to` imply it. Alone, it delivers to the chat that the job already has.
    #[arg(short, long, overrides_with = "no_deliver", hide_short_help = true)]
    pub deliver: bool,
    #[arg(long, hide = true)]
    pub no_deliver: bool,
    /// Deliver it to a chat, a `file`, a `command` or `none`
    ///
    /// A channel such as `telegram` sends it to the chat `--to`; what cannot be sent now waits for the
    /// next `nanobot channel poll`. `file` appends it to the file `--to`, `command` pipes it into the command `--to`, `none`
    /// only saves it.
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
    /// Chat, file or command
    ///
    /// A command runs like that of `--when`.
    #[arg(long, value_name = "WHERE")]
    pub to: Option<String>,
    /// Run this command when a run fails
    ///
    /// It runs like that of `--when`, with the error on standard input, and NANOBOT_JOB, NANOBOT_JOB_NAME,
    /// NANOBOT_SLOT, NANOBOT_STATUS and NANOBOT_CAUSE in its environment. Its output is printed on standard error and
    /// stored beside the answers.
    #[arg(long, value_name = "CMD", hide_short_help = true)]
    pub on_failure: Option<String>,
    /// Run this command when a run succeeds
    ///
    /// As that of `--on-failure`, with the answer on standard input.
    #[arg(long, value_name = "CMD", hide_short_help = true)]
    pub on_success: Option<String>,
    /// Ask this address when a run starts, succeeds and fails
    ///
    /// For a service that raises the alarm when a job does not run, in the protocol of healthchecks.io: `URL/start`, `URL`,
    /// `URL/fail`. `{job}` in it is the job's name. Nothing but the state is sent, and a service that is down does not fail the job.
    /// Default: `cron.ping` of the config; `none` for no address.
    #[arg(long, value_name = "URL", value_parser = trimmed, hide_short_help = true)]
    pub ping: Option<String>,
    /// Report all runs, or only changes
    ///
    /// `change` reports the first failure after a success, and the first success after a failure. It applies to errors on
    /// standard error, `--on-failure` and `--on-success`. Default: `always`.
    #[arg(long, value_name = "WHEN", hide_short_help = true)]
    pub notify: Option<NotifyPolicy>,
}

/// The scheduler that exported files are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    Systemd,
    Kubernetes,
    Crontab,
}
