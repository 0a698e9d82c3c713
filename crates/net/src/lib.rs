//! Connections: the HTTP client, event streams, WebSockets, which addresses may be reached, and logins.

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod auth;
pub mod http;
pub mod ip_ranges;
pub mod sse;
pub mod test_dns;
pub mod web_url;
pub mod webhook_request;
