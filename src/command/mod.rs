//! One file for each subcommand: arguments in, wiring, words out.

pub mod agent;
mod asker;
pub mod config;
pub mod onboard;
pub mod provider;
pub mod session;
