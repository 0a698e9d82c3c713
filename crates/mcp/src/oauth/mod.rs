//! OAuth for remote MCP servers (<https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization>): a person logs
//! in once, by the authorization code flow with PKCE, and later runs use the stored tokens and renew them.
//!
//! [`discovery`] finds the authorization server, [`flow`] is the login of a person and [`client_credentials`] that of a program,
//! [`token_store`] keeps the tokens, and [`renewal`] gives them to the HTTP client.

mod client_assertion;
pub mod client_credentials;
pub mod discovery;
pub mod flow;
pub mod renewal;
pub mod token_request;
pub mod token_store;
