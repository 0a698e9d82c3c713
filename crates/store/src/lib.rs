//! Files that remain after a run: sessions, memory, skills, trust, and the workspace. There is one module for each format.
//!
//! The turn and the program decide when they are read and written. [`history`] does no I/O: it selects the messages of a session that are
//! sent. Start with [`session`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod embedding_index;
pub mod history;
pub mod memory;
pub mod session;
pub mod skill;
pub mod trust;
pub mod workspace;
