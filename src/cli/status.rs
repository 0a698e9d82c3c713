//! `nanobot status`: the configuration, and checks of it.

use clap::Args;

/// Show the configuration, and test whether it works
#[derive(Args, Clone, Debug, Default)]
pub struct StatusArgs {
    /// Test the setup as at run time, also in cron's minimal environment
    ///
    /// Checks the config, file permissions, sessions, memory, the sandbox, jobs and their crontab lines; sends the
    /// model a short request (about 60 tokens) and runs a probe job as cron would. Each line is `ok`, `warn` or `no`,
    /// with a hint below. The exit status is that of the first `no`. Without `--fix` it changes nothing but the
    /// ledger, which records the request.
    #[arg(long)]
    pub check: bool,
    /// Correct the paths of jobs and of the crontab after the home was moved, then check
    #[arg(long, requires = "check")]
    pub fix: bool,
    /// Do not contact the provider
    #[arg(long, requires = "check")]
    pub offline: bool,
    /// Skip the crontab, if another scheduler runs `nanobot cron run --due`
    #[arg(long, requires = "check")]
    pub no_crontab: bool,
    /// One JSON object; with `--check`, one array
    #[arg(long)]
    pub json: bool,
}
