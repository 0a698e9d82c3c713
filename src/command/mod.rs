//! One file for each subcommand: arguments in, wiring, words out.

pub mod agent;
mod asker;
mod columns;
pub mod completions;
pub mod config;
mod crew;
pub mod cron;
mod granted;
pub mod heartbeat;
pub mod mcp;
pub mod memory;
pub mod model;
pub mod onboard;
pub mod policy;
pub mod provider;
pub mod repl;
mod scribe;
pub mod session;
mod since;
pub mod skill;
pub mod status;
pub mod tool;
mod trial;
pub mod trust;
pub mod undo;
pub mod usage;
mod walls;
