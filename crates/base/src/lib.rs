//! Data and text: messages, events, exit statuses, and functions from text to text (diffs, patches, Markdown, JSON-RPC,
//! quoting).
//!
//! There is no I/O here, and nothing of the other crates; all of them depend on this one. Start with [`message`], the parts
//! of a conversation, and [`error`], the statuses.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

// In the crate that all others depend on, so that this is the only error.
#[cfg(not(target_os = "linux"))]
compile_error!(
    "nanobot runs on Linux only: commands are contained by its namespaces, Landlock and seccomp; a port begins with crates/sandbox"
);

pub mod diff;
pub mod error;
pub mod event;
pub mod format;
#[cfg(feature = "test-hooks")]
pub mod fuzz;
pub mod json_rpc;
pub mod json_text;
pub mod limits;
pub mod line_search;
pub mod markdown;
pub mod message;
pub mod patch;
pub mod shell_quote;
pub mod terminal_text;
pub mod trace_context;
pub mod written_text;
