//! Plain data and text to text: messages, events, errors with their exit statuses, and formats. No I/O, and nothing of the other crates.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod diff;
pub mod error;
pub mod event;
pub mod format;
#[cfg(feature = "test-hooks")]
pub mod fuzz;
pub mod json_rpc;
pub mod line_search;
pub mod markdown;
pub mod message;
pub mod patch;
pub mod shell_quote;
pub mod terminal_text;
