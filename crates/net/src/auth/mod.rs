//! Logins: how tokens are requested, kept and renewed, for providers, MCP servers and chat services.
//!
//! [`login_server`] sends requests, [`device_flow`] waits for a person who enters a code elsewhere, and [`token_file`] keeps
//! a login and renews it under a lock; [`aws_signature`] signs requests instead, and [`signed_jwt`] those for a token. The peculiarities of a server or vendor are in the module that uses it.

pub mod aws_signature;
pub mod device_flow;
pub mod login_server;
pub mod signed_jwt;
pub mod token_file;
