//! `nanobot heartbeat`: the one job that looks at HEARTBEAT.md.

use super::cron::Terms;
use super::grants::Grants;
use clap::{Args, Subcommand};

/// Look once whether HEARTBEAT.md has something to do, and do it
///
/// Where the file has no tasks, no model is asked. Else it is asked whether there is something to do now; if so, it is done,
/// and the answer printed or delivered.
#[derive(Args, Clone, Debug, Default)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Heartbeat {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Let cron look, again and again; given again, it changes what is given
    Enable(Box<Enable>),
    /// Let cron not look any more
    Disable,
}

/// Let cron look, again and again; given again, it changes what is given
#[derive(Args, Clone, Debug, Default)]
pub struct Enable {
    /// How often: `30m`, `2h`
    ///
    /// A bare number is seconds; without it, half an hour.
    #[arg(short, long, value_name = "TIME")]
    pub every: Option<String>,
    #[command(flatten)]
    pub terms: Terms,
    #[command(flatten)]
    pub grants: Grants,
}
