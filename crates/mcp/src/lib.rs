//! MCP servers: programs and addresses that offer further tools, resources and prompts
//! (<https://modelcontextprotocol.io>).
//!
//! Offers are cached on disk ([`cache`]), so that a run which calls none of a server's tools does not start it. The
//! first offer is pinned ([`pin`]), and later changes need approval. Both identify a configuration by a fingerprint
//! ([`fingerprint`]). Only [`client`] speaks to servers. [`catalog`] joins these three for a run, [`tool_list`] lists the
//! tools for the model, and [`shared_catalog`] keeps connections between the turns of a conversation.
//!
//! Everything that a server sends is untrusted content: it is cut to size ([`limits`]), cleaned ([`sanitize`]) and
//! adapted to the limits of providers ([`tool_name`], [`schema`]) before a model or a person sees it.
//!
//! How the tools of servers are called in a turn is the subject of `nanobot-tool`. Start with [`catalog`] and [`client`].

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

pub mod cache;
pub mod catalog;
pub mod client;
pub mod fingerprint;
pub mod limits;
pub mod oauth;
pub mod pin;
pub mod protocol;
pub mod sanitize;
pub mod schema;
pub mod shared_catalog;
pub mod tool_list;
pub mod tool_name;
