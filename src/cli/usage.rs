//! `nanobot usage`: tokens, money and runs.

use crate::options::value::{Since, since};
use clap::{Args, ValueEnum};

/// Show usage: tokens, cost and runs
///
/// Every request to a model is a line of the ledger, and counts on the day it was made. A run is a turn, with any
/// number of requests.
///
/// By tool, server and skill it shows how often each was used, and the tokens its description takes: a tool that is
/// offered but never used costs tokens with each request.
#[derive(Args, Clone, Debug)]
pub struct UsageArgs {
    /// Group by
    #[arg(long = "by", value_name = "WHAT", default_value = "day")]
    pub group: UsageGroup,
    /// Start: a date such as `2026-11-01`, `7d` for the last seven days, `12h`, `today`, or `month` for this month
    #[arg(long, value_name = "WHEN", default_value = "30d", value_parser = since)]
    pub since: Since,
    /// Add up the calls before the last month: one line remains for each month, session, job and model
    ///
    /// All sums of the table stay the same, but the days of these months are one row, and a run that used several models
    /// counts for each. The use of tools is forgotten with them. The files stay small if a job does this each month.
    #[arg(long, conflicts_with_all = ["group", "since", "json"])]
    pub rotate: bool,
    /// One JSON object per row and line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UsageGroup {
    Day,
    Model,
    Session,
    Job,
    /// Calls of each tool
    Tool,
    /// Calls of each MCP server, and the tokens of its tool descriptions
    Server,
    /// Runs that read each skill
    Skill,
}
