//! Models: one trait, one folder for each wire format, wrappers, the table of providers, and the ledger of costs.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod ledger;
pub mod provider;
