//! State in files: sessions, memory, skills, trust, the workspace. One module for each format.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod history;
pub mod memory;
pub mod session;
pub mod skill;
pub mod trust;
pub mod workspace;
