//! `nanobot cron`: making, changing and running jobs.

use crate::options::grants::Grants;
use crate::options::value::{Since, dollars, path, since, time, time_or_zero};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Subcommand)]
pub enum CronCommand {
    // The arguments stand apart, since they are many, and what is said of them: here it would hide that.
    Add(Box<CronAddArgs>),
    Apply(CronApplyArgs),
    #[command(visible_alias = "ls")]
    List(CronListArgs),
    /// Print the details of a job
    Show {
        /// Job id or name, from `cron list`
        job: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Report the jobs that fail, are overdue or cannot run
    ///
    /// One line for each, with the number of failures, the last success and the error, and one for each thing that stops all
    /// jobs: the crontab, the program that it starts, the cron daemon, the disk. Prints nothing and exits with status 0 if
    /// there is none.
    Check {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    #[command(alias = "update")]
    Edit(Box<CronEditArgs>),
    Run(CronRunArgs),
    /// Enable jobs
    #[command(alias = "resume")]
    Enable {
        /// Job ids or names
        #[arg(required_unless_present = "all", value_name = "JOB")]
        jobs: Vec<String>,
        /// All jobs, but not one-time jobs whose time has passed, and not the heartbeat
        #[arg(short, long, conflicts_with = "jobs")]
        all: bool,
        /// Disable them instead, as `cron disable` does
        #[arg(long)]
        disable: bool,
    },
    /// Disable jobs, but keep them
    #[command(alias = "pause")]
    Disable {
        /// Job ids or names
        #[arg(required_unless_present = "all", value_name = "JOB")]
        jobs: Vec<String>,
        /// All jobs but the heartbeat
        #[arg(short, long, conflicts_with = "jobs")]
        all: bool,
    },
    /// Remove jobs with their crontab lines, records and sessions
    #[command(visible_alias = "rm", alias = "delete")]
    Remove {
        /// Job ids or names
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
    },
    /// Update the crontab from the job file
    Sync {
        /// Print the changes without making them
        #[arg(long)]
        dry_run: bool,
    },
    /// Print the results of the last runs
    #[command(alias = "log")]
    Logs {
        /// Job id or name [default: all]
        job: Option<String>,
        /// Wait for further runs and print them too
        #[arg(short, long)]
        follow: bool,
        /// Print the last N runs
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        lines: usize,
        /// Print the output of the last run
        #[arg(long, requires = "job", conflicts_with_all = ["follow", "json"])]
        output: bool,
        /// Only runs that failed
        #[arg(long)]
        failed: bool,
        /// Only runs that ended since WHEN
        ///
        /// A date, or `7d`, `12h`, `30m`, `today`, `month`.
        #[arg(long, value_name = "WHEN", value_parser = since)]
        since: Option<Since>,
        /// One JSON object per run
        #[arg(long)]
        json: bool,
    },
    Export(CronExportArgs),
}

/// Create a job
///
/// Writes the job to the job file, and a line for it to your crontab, from which the system's cron starts nanobot. The
/// line contains only the job's id.
///
/// The answer is printed, and cron mails it to you. With `--channel` and `--to` it is delivered there instead; with
/// `--channel none` it is only saved, for `cron logs JOB --output`. An answer whose last line is NOTHING_TO_REPORT is only
/// saved too; the job's prompt says so. Failures are always printed.
///
/// A one-time job is removed when it succeeds, and disabled when it fails and is not retried.
#[derive(Args, Clone, Debug, Default)]
pub struct CronAddArgs {
    /// Name of the job
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// Message to the agent
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: String,
    /// Change the job of this name, if there is one
    ///
    /// It becomes what a new job would be; its id and its records stay. If it is the same already, nothing is changed.
    #[arg(long, requires = "name", hide_short_help = true)]
    pub replace: bool,
    /// One JSON object
    #[arg(long, hide_short_help = true)]
    pub json: bool,
    #[command(flatten)]
    pub flags: JobArgs,
}

/// Create and change the jobs that a file lists
///
/// The file is a YAML or JSON list. Each item has the long flags of `cron add` as keys, without the dashes, for example
/// `- {name: digest, cron: "0 8 * * 1-5", read: [~/inbox], message: summarise what is new in ~/inbox}`.
///
/// `enabled: false` disables a job; without `enabled` it stays as it is. All items are checked before anything is changed. As
/// with `cron add --replace`, a job that is the same already is not changed, so the command can be repeated.
#[derive(Args, Clone, Debug, Default)]
pub struct CronApplyArgs {
    /// The file; `-` is standard input
    #[arg(short, long, value_name = "FILE", value_parser = path())]
    pub file: PathBuf,
    /// Remove jobs that an earlier `apply` created and the file no longer lists
    #[arg(long)]
    pub prune: bool,
    /// One JSON object per job
    #[arg(long)]
    pub json: bool,
}

/// Options of `add` and `edit`
#[derive(Args, Clone, Debug, Default)]
pub struct JobArgs {
    #[command(flatten)]
    pub schedule: ScheduleArgs,
    #[command(flatten)]
    pub terms: JobRunArgs,
    #[command(flatten)]
    pub grants: Grants,
    // In place of the global one, whose short form is `--cron` here, as in the Python program.
    /// Use this config file
    #[arg(long, value_name = "FILE", help_heading = "Global options", value_parser = path())]
    pub config: Option<PathBuf>,
}

/// Schedule of a job
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Schedule")]
pub struct ScheduleArgs {
    /// Cron expression
    ///
    /// Minute, hour, day of the month, month, day of the week: `0 8 * * 1-5`.
    #[arg(short, long, value_name = "EXPR", conflicts_with_all = ["every", "at", "in"])]
    pub cron: Option<String>,
    /// Time zone of `--cron`, such as `Europe/Paris`
    ///
    /// Default: `agents.defaults.timezone` of the config, else the system's time zone.
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// Interval: `90m`, `2h`, `1d`
    ///
    /// A bare number is seconds.
    #[arg(short, long, value_name = "TIME", conflicts_with_all = ["at", "in"])]
    pub every: Option<String>,
    /// Once, at this time: `2026-12-24T18:00`
    ///
    /// In the time zone of the config, else the system's, unless it has `Z` or an offset.
    #[arg(long, value_name = "TIME", conflicts_with = "in")]
    pub at: Option<String>,
    /// Once, after this time: `2h`
    #[arg(long, value_name = "TIME")]
    pub r#in: Option<String>,
    /// Action after a missed run
    ///
    /// A run is missed while the machine is off or asleep: run the job once later, or not at all. Default: `once` for
    /// `--at` and `--in`, else `none`.
    #[arg(long, value_name = "WHAT", hide_short_help = true)]
    pub catch_up: Option<CatchUpArg>,
    /// Delay each start by less than this time
    ///
    /// The delay is the same each time for a job on a machine, so that many machines with the same job do not start it at
    /// once. At most one day; 0 for none.
    #[arg(long, value_name = "TIME", value_parser = time_or_zero, hide_short_help = true)]
    pub jitter: Option<Duration>,
}

/// Execution and delivery of a job
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Run and delivery")]
pub struct JobRunArgs {
    /// Session to continue
    ///
    /// Default: a session of its own, of which only the last run is sent.
    #[arg(short, long, value_name = "KEY", hide_short_help = true)]
    pub session: Option<String>,
    /// Model, or a preset of the config
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub model: Option<String>,
    /// Run only if this command exits with status 0
    ///
    /// Its output goes to the model. Any other status skips the run; 126, 127 and death by a signal are failures. It
    /// runs as you: outside the sandbox, in your home directory, with the full environment.
    #[arg(long, value_name = "CMD")]
    pub when: Option<String>,
    /// Time limit of a run
    ///
    /// Seconds, or a duration such as `90s`, `5m`, `1h30m`, `2d`. Default: one hour.
    #[arg(long, value_name = "TIME", value_parser = time, hide_short_help = true)]
    pub timeout: Option<Duration>,
    /// Cost limit of a run, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, hide_short_help = true)]
    pub max_cost: Option<f64>,
    /// Action after a crash interrupted a run
    ///
    /// Its result is unknown: skip it, or run it again. Default: `skip`.
    #[arg(long, value_name = "WHAT", hide_short_help = true)]
    pub after_crash: Option<AfterCrashArg>,
    /// Retry a run that failed for a temporary cause
    ///
    /// At most this number of times, if the provider is not available or something is busy (status 69 or 75), and only
    /// before the next scheduled run. Only the last failure is reported. Default: 6 for `--at` and `--in`, else 0.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100), hide_short_help = true)]
    pub retry: Option<u32>,
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
    /// Report all runs, or only changes
    ///
    /// `change` reports the first failure after a success, and the first success after a failure. It applies to errors on
    /// standard error, `--on-failure` and `--on-success`. Default: `always`.
    #[arg(long, value_name = "WHEN", hide_short_help = true)]
    pub notify: Option<NotifyArg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NotifyArg {
    Always,
    Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CatchUpArg {
    Once,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AfterCrashArg {
    Skip,
    Again,
}

/// List jobs with their next and last runs
#[derive(Args, Clone, Debug, Default)]
pub struct CronListArgs {
    /// Only jobs whose name or id matches: a pattern with `*` and `?`, or part of it
    pub pattern: Option<String>,
    /// List disabled jobs too
    #[arg(short, long)]
    pub all: bool,
    /// One JSON object per job
    #[arg(long)]
    pub json: bool,
}

/// Change a job; options that are not given stay
///
/// An empty text removes a setting: `--when ''`. Permissions are replaced as a whole: any permission flag replaces all
/// that the job had. They are resolved again at each change.
#[derive(Args, Clone, Debug, Default)]
pub struct CronEditArgs {
    /// Job id or name, from `cron list`
    pub job: String,
    /// Name of the job
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// Message to the agent
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: Option<String>,
    /// One JSON object
    #[arg(long, hide_short_help = true)]
    pub json: bool,
    #[command(flatten)]
    pub flags: JobArgs,
}

/// Run a job now
///
/// Uses the same permissions, session, limits and delivery as when cron starts it. The exit status is that of the run,
/// or 75 if the job is already running.
#[derive(Args, Clone, Debug, Default)]
pub struct CronRunArgs {
    /// Job id or name, from `cron list`
    #[arg(required_unless_present = "due")]
    pub job: Option<String>,
    /// Run it as cron would, with its minimal environment
    #[arg(long, conflicts_with = "scheduled")]
    pub as_cron: bool,
    /// Run only if due; used in the crontab
    #[arg(long)]
    pub scheduled: bool,
    /// Start it without the delay of `--jitter`, for schedulers that delay it themselves
    #[arg(long, requires = "scheduled", hide_short_help = true)]
    pub no_jitter: bool,
    /// Run all jobs that are due, one after the other
    ///
    /// For schedulers other than cron, which call this once a minute.
    #[arg(long, conflicts_with_all = ["job", "as_cron", "scheduled"])]
    pub due: bool,
    /// Print the run as one JSON object, as `cron logs` does, instead of the answer
    #[arg(long, conflicts_with_all = ["as_cron", "scheduled", "due"])]
    pub json: bool,
    /// Run a temporary job of that name with the built-in demo, and report its environment (for `status --check`)
    #[arg(long, hide = true, conflicts_with_all = ["as_cron", "scheduled"])]
    pub probe: bool,
    /// Run a disabled job too (accepted for compatibility; a named job runs in any case)
    #[arg(short, long, hide = true)]
    pub force: bool,
}

/// Export jobs to another scheduler
#[derive(Args, Clone, Debug)]
pub struct CronExportArgs {
    /// Job ids or names [default: all enabled jobs]
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Output format
    #[arg(long, value_name = "FORMAT")]
    pub format: CronExportFormat,
    /// Write files into this directory
    ///
    /// One file for each unit or manifest, instead of all on standard output.
    #[arg(short, long, value_name = "DIR", value_parser = path())]
    pub output: Option<PathBuf>,
    /// Container image, for Kubernetes
    #[arg(long, value_name = "IMAGE", default_value = "nanobot:latest")]
    pub image: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CronExportFormat {
    Systemd,
    Kubernetes,
    Crontab,
}
