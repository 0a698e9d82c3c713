//! Models: the trait of a provider, one folder for each wire format, wrappers, the table of providers, and the ledger of costs.
//!
//! Connections and logins are in `nanobot-net`. The program decides which provider a run has, and with which wrappers. Start with
//! [`provider::Provider`], then `provider/chat`; the table is [`provider::registry`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod ledger;
pub mod provider;
mod text_form;
