//! The turn: ask, run tools, repeat; what may stop it, the system prompt, and reports for persons and programs.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod answer_schema;
pub mod guard;
pub mod prompt;
pub mod report;
pub mod turn;
