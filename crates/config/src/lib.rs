//! The config as written, the settings as used, and the policy that decides what a run may do.
//!
//! [`settings`] reads files, variables and flags by one table of keys. [`policy`] decides for each call of a tool, and enforces nothing.
//! The tools enforce it by opening files through descriptors, and the kernel by the sandbox of `nanobot-sandbox`. Start with
//! [`settings::keys`] and [`policy::Policy`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod policy;
pub mod settings;
