//! (map to come)

pub mod cli;
pub mod command;
pub mod error;
pub mod event;
pub mod guard;
pub mod history;
pub mod message;
pub mod policy;
pub mod prompt;
pub mod provider;
pub mod report;
pub mod session;
pub mod settings;
pub mod skill;
pub mod sys;
pub mod tool;
pub mod turn;
pub mod workspace;
