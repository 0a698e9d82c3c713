//! Connections to other machines: the HTTP client, event streams, WebSockets, the check of addresses, and logins.
//!
//! Callers decide what is sent and which hosts a run may reach. This crate refuses special addresses that are not allowed
//! (`http/ssrf.rs`). Start with [`http`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod auth;
pub mod content_digest;
pub mod http;
pub mod ip_ranges;
pub mod sse;
pub mod test_dns;
pub mod web_url;
pub mod webhook_request;
