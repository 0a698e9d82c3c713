//! The turn: asks a model, runs the tools that it calls, and repeats. Also the guards that may stop a turn, the system
//! prompt, and the sinks that show events.
//!
//! The loop knows providers, tools, guards and sinks by their traits alone. The program decides which of them a run has.
//! Start with [`turn`], then [`guard`] and [`report`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod answer_schema;
pub mod guard;
pub mod prompt;
pub mod report;
pub mod turn;
