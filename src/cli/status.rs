//! `nanobot status`: the configuration, and checks of it.

use clap::Args;

/// Tell what is configured, and whether it works
#[derive(Args, Clone, Debug, Default)]
pub struct Status {
    /// Try whether it works as it will at run time, also in cron's small environment
    ///
    /// The config, the places and who can read them, sessions, memory, the sandbox, the jobs and their lines in the crontab;
    /// the model is asked to say hello, which costs some 60 tokens, and a made-up job is run as cron runs one. Each line is
    /// `ok`, `warn` or `no`, with what to do about it below. The status is that of the first `no`. Nothing is changed but the
    /// ledger, which has what the hello cost.
    #[arg(long)]
    pub check: bool,
    /// Ask no provider
    #[arg(long, requires = "check")]
    pub offline: bool,
    /// Leave the crontab out, where something else runs `nanobot cron run --due`
    #[arg(long, requires = "check")]
    pub no_crontab: bool,
    /// One JSON object; with `--check`, one array
    #[arg(long)]
    pub json: bool,
}
