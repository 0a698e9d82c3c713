//! The config as written, the settings as used, and the policy that decides what a run may do.
//!
//! [`settings`] reads files, variables and flags by one table of keys. [`policy`] is pure: it decides for each call of a tool, and
//! enforces nothing. Tools do, which open files by descriptor, and the kernel, by `nanobot-sandbox`. Start with
//! [`settings::keys`] and [`policy::Policy`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod policy;
pub mod settings;
