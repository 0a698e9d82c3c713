//! One file for each subcommand: reads the arguments, calls one function of `ops`, and prints the result.

pub mod agent;
mod arguments;
pub mod channel;
pub mod completions;
pub mod config;
pub mod cron;
pub mod heartbeat;
pub mod mcp;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod onboard;
pub(crate) mod parse;
pub mod pipe;
pub mod policy;
pub mod provider;
pub mod repl;
pub(crate) mod sandboxed;
pub mod session;
pub mod skill;
pub mod status;
pub mod tool;
pub mod tree;
pub mod trust;
pub mod undo;
pub mod usage;
pub(crate) mod usage_error;
