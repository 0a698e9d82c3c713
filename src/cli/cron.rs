//! `nanobot cron`: making, changing and running jobs.

use super::grants::Grants;
use super::value::{dollars, time};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Subcommand)]
pub enum Cron {
    // The arguments stand apart, since they are many, and what is said of them: here it would hide that.
    Add(Box<Add>),
    List(List),
    /// Print all that is known of a job
    Show {
        /// Its id or name, as `cron list` prints them
        job: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    #[command(alias = "update")]
    Edit(Box<Edit>),
    Run(Run),
    /// Let jobs run at their times again
    #[command(alias = "resume")]
    Enable {
        /// Their ids or names
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
        /// Let them not run any more, as `cron disable` does
        #[arg(long)]
        disable: bool,
    },
    /// Keep jobs and let them not run any more
    #[command(alias = "pause")]
    Disable {
        /// Their ids or names
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
    },
    /// Remove jobs with their lines, records and conversations
    #[command(visible_alias = "rm", alias = "delete")]
    Remove {
        /// Their ids or names
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
    },
    /// Make the crontab say again what the job file says
    Sync {
        /// Only tell what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Print what came of the last runs
    Logs {
        /// The id or name of one job [default: all]
        job: Option<String>,
        /// Go on printing what comes
        #[arg(short, long)]
        follow: bool,
        /// Print so many of the last runs
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        lines: usize,
        /// Print what the last run said
        #[arg(long, requires = "job", conflicts_with_all = ["follow", "json"])]
        output: bool,
        /// One JSON object per run
        #[arg(long)]
        json: bool,
    },
    Export(Export),
}

/// Make a job
///
/// The job goes to the job file, and a line for it to your crontab; the system's cron does the waiting, and starts
/// nanobot when it is time. The line holds only the job's id.
///
/// The answer is printed, and cron mails what is printed; it is delivered instead with `--channel` and `--to`, and with
/// `--quiet` it is only kept, for `cron logs JOB --output`. An answer whose last line is NOTHING_TO_REPORT has nothing to tell,
/// and is only kept too; each run is told so. Failures are always printed.
///
/// A job that runs once is removed when it has succeeded. Where it failed, it is disabled and kept; where nobody could be
/// asked, or the conversation was in use, it is tried again every ten minutes for an hour.
#[derive(Args, Clone, Debug, Default)]
pub struct Add {
    /// What it is called
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// What the agent is told
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: String,
    #[command(flatten)]
    pub flags: Flags,
}

/// What making and changing a job share
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    #[command(flatten)]
    pub schedule: Schedule,
    #[command(flatten)]
    pub terms: Terms,
    #[command(flatten)]
    pub grants: Grants,
    // In place of the global one, whose short form is `--cron` here, as in the Python program.
    /// Use this config file
    #[arg(long, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
}

/// When a job runs
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "When")]
pub struct Schedule {
    /// At the minutes of a cron expression
    ///
    /// Minute, hour, day of the month, month, day of the week: `0 8 * * 1-5`.
    #[arg(short, long, value_name = "EXPR", conflicts_with_all = ["every", "at", "in"])]
    pub cron: Option<String>,
    /// The clock that `--cron` goes by, as `Europe/Paris`
    ///
    /// Without it that is the system's.
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// Each time this much has passed: `90m`, `2h`, `1d`
    ///
    /// A bare number is seconds.
    #[arg(short, long, value_name = "TIME", conflicts_with_all = ["at", "in"])]
    pub every: Option<String>,
    /// Once, at this time: `2026-12-24T18:00`
    ///
    /// With `Z` or an offset for another zone than the system's.
    #[arg(long, value_name = "TIME", conflicts_with = "in")]
    pub at: Option<String>,
    /// Once, after this much time: `2h`
    #[arg(long, value_name = "TIME")]
    pub r#in: Option<String>,
    /// What becomes of a time that was missed
    ///
    /// Because the machine was off or asleep: the job is run later, once, or not at all. Without it that is `once` for `--at`
    /// and `--in`, else `none`.
    #[arg(long, value_name = "WHAT", hide_short_help = true)]
    pub catch_up: Option<CatchUp>,
}

/// How a job runs, and where its answer goes
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "How")]
pub struct Terms {
    /// The conversation to go on with
    ///
    /// Without it that is one of its own, of which the last run is sent.
    #[arg(short, long, value_name = "KEY", hide_short_help = true)]
    pub session: Option<String>,
    /// The model to ask, or a preset of the config
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub model: Option<String>,
    /// Run only when this command ends with status 0
    ///
    /// Its output goes to the model. Another status means no; 126, 127 and a signal are failures. It runs as you: outside
    /// the sandbox, in your home directory, with all of the environment.
    #[arg(long, value_name = "CMD")]
    pub when: Option<String>,
    /// End a run after so long
    ///
    /// Seconds, or as `90s`, `5m`, `1h30m`; without it, one hour.
    #[arg(long, value_name = "TIME", value_parser = time, hide_short_help = true)]
    pub timeout: Option<Duration>,
    /// Stop a run when it has cost so much, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, hide_short_help = true)]
    pub max_cost: Option<f64>,
    /// What becomes of a run when the machine died in it
    ///
    /// Nobody knows how it ended: it is not run again, or it is. Without it that is `skip`.
    #[arg(long, value_name = "WHAT", hide_short_help = true)]
    pub after_crash: Option<AfterCrash>,
    /// Send the answer where `--channel` and `--to` say, instead of printing it
    #[arg(short, long, overrides_with = "no_deliver", hide_short_help = true)]
    pub deliver: bool,
    #[arg(long, hide = true)]
    pub no_deliver: bool,
    /// Deliver the answer: to a `file`, or a `command`
    ///
    /// `file` appends it to the file `--to`, `command` pipes it into the command `--to`; others are kept, but this version
    /// does not deliver to them.
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
    /// The file, the command, or who gets it
    ///
    /// A command runs as that of `--when` does.
    #[arg(long, value_name = "WHERE")]
    pub to: Option<String>,
    /// Run this command when a run fails
    ///
    /// As that of `--when` is run; what went wrong is its input, and NANOBOT_JOB, NANOBOT_JOB_NAME, NANOBOT_SLOT,
    /// NANOBOT_STATUS and NANOBOT_CAUSE are in its environment.
    #[arg(long, value_name = "CMD", hide_short_help = true)]
    pub on_failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CatchUp {
    Once,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AfterCrash {
    Skip,
    Again,
}

/// List the jobs: when each runs next, and how it last went
#[derive(Args, Clone, Debug, Default)]
pub struct List {
    /// Also those that are disabled
    #[arg(short, long)]
    pub all: bool,
    /// One JSON object per job
    #[arg(long)]
    pub json: bool,
}

/// Change a job; what is not given stays
///
/// What it may do is fixed anew as of now. An empty text takes a setting away: `--when ''`. What it may do is given as a whole: any flag of that kind replaces all
/// that it had.
#[derive(Args, Clone, Debug, Default)]
pub struct Edit {
    /// Its id or name, as `cron list` prints them
    pub job: String,
    /// What it is called
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// What the agent is told
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: Option<String>,
    #[command(flatten)]
    pub flags: Flags,
}

/// Run a job now
///
/// What it may do, its conversation, its limits and where its answer goes are as when cron starts it. The status tells how
/// it went; 75 when it is running already.
#[derive(Args, Clone, Debug, Default)]
pub struct Run {
    /// Its id or name, as `cron list` prints them
    #[arg(required_unless_present = "due")]
    pub job: Option<String>,
    /// Run it as cron would, with its small environment
    #[arg(long, conflicts_with = "scheduled")]
    pub as_cron: bool,
    /// Only when it is due: what the crontab says
    #[arg(long)]
    pub scheduled: bool,
    /// Run all jobs that are due, one after the other
    ///
    /// For other schedulers than cron, which call this once a minute.
    #[arg(long, conflicts_with_all = ["job", "as_cron", "scheduled"])]
    pub due: bool,
    /// Run a throw-away job of that name with the built-in demo, and tell what a real one would find (for `status --check`)
    #[arg(long, hide = true, conflicts_with_all = ["as_cron", "scheduled"])]
    pub probe: bool,
    /// Also a job that is disabled (accepted; a job that is named runs in any case)
    #[arg(short, long, hide = true)]
    pub force: bool,
}

/// Hand the jobs to another scheduler
#[derive(Args, Clone, Debug)]
pub struct Export {
    /// The ids or names of the jobs [default: all that are enabled]
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// As what
    #[arg(long, value_name = "FORMAT")]
    pub format: Fleet,
    /// Write files into this directory
    ///
    /// One for each unit or manifest, instead of all to standard output.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// The image of the containers, for Kubernetes
    #[arg(long, value_name = "IMAGE", default_value = "nanobot:latest")]
    pub image: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fleet {
    Systemd,
    Kubernetes,
    Crontab,
}
