//! `nanobot cron`: making, changing and running jobs.

use crate::options::grants::Grants;
use crate::options::job::{ExportFormat, JobFlags, JobSettings};
use crate::options::value::{Since, path, since};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Subcommand)]
pub enum CronCommand {
    // A doc comment here would hide that of the argument type.
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
        /// Disable them instead, as `cron disable` does (accepted for compatibility)
        #[arg(long, hide = true)]
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
    #[command(alias = "log")]
    Logs(CronLogsArgs),
    /// Run a job again with the input of an earlier run
    ///
    /// The input is the output of `--when`, which does not run again, and the answer of the job of `--after`. Message, permissions and
    /// limits are those that the job has now.
    Rerun {
        /// Run id, from `cron logs`
        run: String,
        /// Print the new run as one JSON object, instead of the answer
        #[arg(long)]
        json: bool,
    },
    Export(CronExportArgs),
    Heartbeat(HeartbeatArgs),
}

/// List the last runs, or print the answer of one with `--output`
#[derive(Args, Clone, Debug)]
pub struct CronLogsArgs {
    /// Job id or name [default: all]
    #[arg(group = "runs")]
    pub job: Option<String>,
    /// Print one run, with its tool calls and the command that prints its conversation
    #[arg(long, value_name = "RUN", group = "runs", conflicts_with_all = ["follow", "lines", "failed", "since"])]
    pub run: Option<String>,
    /// Wait for further runs and print them too
    #[arg(short, long)]
    pub follow: bool,
    /// Print the last N runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub lines: usize,
    /// Print the output of the last run, or of that of `--run`
    #[arg(long, requires = "runs", conflicts_with_all = ["follow", "lines", "failed", "since", "json"])]
    pub output: bool,
    /// Only runs that failed
    #[arg(long)]
    pub failed: bool,
    /// Only runs that ended since WHEN
    ///
    /// A date, or `7d`, `12h`, `30m`, `today`, `month`.
    #[arg(long, value_name = "WHEN", value_parser = since)]
    pub since: Option<Since>,
    /// One JSON object per run
    #[arg(long)]
    pub json: bool,
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
/// A run in which a call was denied fails with status 5, as with `agent --strict`, and names the `cron edit` that permits it.
///
/// A one-time job is removed when it succeeds, and disabled when it fails and is not retried.
#[derive(Args, Clone, Debug, Default)]
pub struct CronAddArgs {
    /// Name of the job
    #[arg(short, long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// Message to the agent
    #[arg(
        short,
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    pub message: Option<String>,
    /// Change the job of this name, if there is one
    ///
    /// It becomes what a new job would be; its id and its records stay. If it is the same already, nothing is changed.
    #[arg(long, requires = "name", hide_short_help = true)]
    pub replace: bool,
    /// Print the job, its permissions and its crontab lines, and change nothing
    #[arg(long, conflicts_with = "json")]
    pub dry_run: bool,
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
    pub settings: JobSettings,
    // In place of the global one, whose short form is `--cron` here, as in the Python program.
    /// Use this config file
    #[arg(long, value_name = "FILE", help_heading = "Global options", value_parser = path())]
    pub config: Option<PathBuf>,
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
/// that the job had, but its directory (`-C`) and its denials stay until others are given; `--deny ''` removes the
/// denials. They are resolved again at each change.
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
    /// Do not start the jobs of `--after` this one, for schedulers that start them themselves
    #[arg(long, requires = "scheduled", hide_short_help = true)]
    pub no_after: bool,
    /// Leave notices to the process that started this one (for `--due`)
    #[arg(long, requires = "scheduled", hide = true)]
    pub no_notify: bool,
    /// Run all jobs that are due, one after the other
    ///
    /// For schedulers other than cron, which call this once a minute.
    #[arg(long, conflicts_with_all = ["job", "as_cron", "scheduled"])]
    pub due: bool,
    /// Print the run as one JSON object, as `cron logs` does, instead of the answer
    #[arg(long, conflicts_with_all = ["as_cron", "scheduled", "due"])]
    pub json: bool,
    /// Run a temporary job of that name with the built-in demo, and report its environment (for `status check`)
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
    pub format: ExportFormat,
    /// Write files into this directory
    ///
    /// One file for each unit or manifest, instead of all on standard output.
    #[arg(short, long, value_name = "DIR", value_parser = path())]
    pub output: Option<PathBuf>,
    /// Container image, for Kubernetes
    #[arg(long, value_name = "IMAGE", default_value = "nanobot:latest")]
    pub image: String,
}

/// Check HEARTBEAT.md once, and do the tasks that are due
///
/// If the file has no tasks, no request is sent. Otherwise the model decides whether there is something to do now; if
/// so, the agent does it, and the answer is printed or delivered.
#[derive(Args, Clone, Debug, Default)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HeartbeatArgs {
    /// Print the run as one JSON object, as `cron logs` does, instead of the answer
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Option<HeartbeatCommand>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum HeartbeatCommand {
    /// Check periodically with cron; run it again to change its options
    Enable(Box<HeartbeatEnableArgs>),
    /// Stop checking with cron
    Disable,
}

/// Check periodically with cron; run it again to change its options
#[derive(Args, Clone, Debug, Default)]
pub struct HeartbeatEnableArgs {
    /// Interval: `30m`, `2h`
    ///
    /// A bare number is seconds. Default: `30m`.
    #[arg(short, long, value_name = "TIME")]
    pub every: Option<String>,
    /// Print the job as one JSON object
    #[arg(long, hide_short_help = true)]
    pub json: bool,
    #[command(flatten)]
    pub flags: JobFlags,
    #[command(flatten)]
    pub grants: Grants,
}
