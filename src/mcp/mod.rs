//! MCP servers: programs and addresses that offer further tools, resources and prompts (<https://modelcontextprotocol.io>).
//!
//! What a server offers is kept on disk ([`cache`]), so that a run which calls none of its tools starts nothing; what it
//! offered first is what it is held to ([`pin`]); both go by [`mark`]s of how it is reached. [`client`] alone speaks to
//! servers: it is the one room where something is asynchronous, with a thread and a runtime of its own, which are made when
//! the first server is needed. [`roster`] joins the three for a run, [`tool_list`] is what it shows of them, and [`servers`] keeps it between the turns
//! of a conversation. All that a server says is a stranger's word: it is cut ([`measure`]), cleaned ([`words`]) and made fit for
//! providers ([`name`], [`schema`]) before anybody sees it.

pub mod cache;
pub mod client;
pub mod mark;
pub mod measure;
mod missing_server;
pub mod name;
pub mod offer;
pub mod pin;
pub mod roster;
pub mod schema;
pub mod servers;
pub mod tool_list;
pub mod words;
