//! Logins: how tokens are requested, kept and renewed, for providers, MCP servers and chat services.
//!
//! [`login_server`] sends requests, [`device_flow`] waits for a person who enters a code elsewhere, and [`token_file`] keeps
//! a login and renews it under a lock. What servers and their vendors have of their own stays with those who use them.

pub mod device_flow;
pub mod login_server;
pub mod token_file;
