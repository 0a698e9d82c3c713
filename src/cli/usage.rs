//! `nanobot usage`: tokens, money and runs.

use super::value::{Since, since};
use clap::{Args, ValueEnum};

/// See what was spent: tokens, money and runs
///
/// Every call of a model is a line of the ledger, and counts when it was made. A run is a turn, however many calls it took.
///
/// By tool, server and skill it is told what was used, and what it took to tell the model of it: what is offered and never used
/// costs tokens with each request.
#[derive(Args, Clone, Debug)]
pub struct Usage {
    /// What a row is
    #[arg(long, value_name = "WHAT", default_value = "day")]
    pub by: By,
    /// From when on: a date as `2026-11-01`, `7d` for the last seven days, `12h`, `today`, or `month` for this one
    #[arg(long, value_name = "WHEN", default_value = "30d", value_parser = since)]
    pub since: Since,
    /// One JSON object per row and line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    Day,
    Model,
    Session,
    Job,
    /// Calls of each tool
    Tool,
    /// Calls of each MCP server, and the tokens that told of its tools
    Server,
    /// Runs that read each skill
    Skill,
}
