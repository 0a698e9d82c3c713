//! Logins: how tokens are requested, kept and renewed, for providers, MCP servers and chat services.
//!
//! [`login_server`] sends requests, [`device_flow`] waits for a person who enters a code elsewhere, and [`token_file`] keeps
//! a login and renews it under a lock. The peculiarities of a server or vendor are in the module that uses it.

pub mod device_flow;
pub mod login_server;
pub mod token_file;
