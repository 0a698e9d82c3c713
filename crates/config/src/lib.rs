//! The config as written, the settings as used, and the policy that decides what a run may do.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod policy;
pub mod settings;
