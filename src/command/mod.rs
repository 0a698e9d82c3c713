//! One file for each subcommand: arguments in, wiring, words out.

pub mod agent;
mod asker;
mod columns;
pub mod config;
pub mod model;
pub mod onboard;
pub mod provider;
pub mod session;
pub mod usage;
