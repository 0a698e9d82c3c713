//! One file for each subcommand: arguments in, wiring, words out.

pub mod agent;
pub mod config;
pub mod onboard;
pub mod session;
