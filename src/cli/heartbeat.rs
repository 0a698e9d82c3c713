//! `nanobot cron heartbeat`: the one job that looks at HEARTBEAT.md.

use crate::options::grants::Grants;
use crate::options::job::JobFlags;
use clap::{Args, Subcommand};

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
