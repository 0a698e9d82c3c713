//! `nanobot status`: the configuration, and checks of it.

use clap::{Args, Subcommand};

/// Show the configuration, and check whether it works
#[derive(Args, Clone, Debug, Default)]
#[command(args_conflicts_with_subcommands = true)]
pub struct StatusArgs {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Option<StatusCommand>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum StatusCommand {
    // A doc comment here would hide that of the argument type.
    Check(StatusCheckArgs),
    /// Print the state of jobs, costs and budgets for Prometheus
    ///
    /// In its text format, as the textfile collector of its node exporter reads it. Times are in seconds since 1970.
    Metrics,
}

/// Check the setup as at run time, also in cron's minimal environment
///
/// Checks the config, file permissions, sessions, memory, the sandbox, jobs and their crontab lines; sends the
/// model a short request (about 60 tokens) and runs a probe job as cron would. Each line is `ok`, `warn` or `no`,
/// with a hint below. The exit status is that of the first `no`. Without `--fix` it changes nothing but the
/// ledger, which records the request.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct StatusCheckArgs {
    /// Correct the paths of jobs and of the crontab after the home was moved, then check
    #[arg(long)]
    pub fix: bool,
    /// Do not contact the provider
    #[arg(long)]
    pub offline: bool,
    /// Skip the crontab, if another scheduler runs `nanobot cron run --due`
    #[arg(long)]
    pub no_crontab: bool,
    /// One JSON array
    #[arg(long)]
    pub json: bool,
}
