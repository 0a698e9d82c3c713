//! `nanobot serve`: programs, editors, MCP clients and web servers that the agent answers.

use super::acp::AcpArgs;
use super::pipe::PipeArgs;
use crate::options::turn::ServedTurnOptions;
use clap::{Args, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub enum ServeCommand {
    // Doc comments here would hide those of the argument types.
    Pipe(Box<PipeArgs>),
    Acp(Box<AcpArgs>),
    Mcp(Box<McpServeArgs>),
    /// Take one webhook request from standard input or CGI, and answer its messages
    ///
    /// For inetd, a systemd socket with `Accept=yes`, or the CGI of a web server, behind TLS. A request without a valid
    /// signature is refused. WhatsApp's messages come only this way, Feishu's if it has no long connection; Slack's events
    /// start a poll.
    Webhook {
        /// Channel name: slack, whatsapp or feishu
        name: String,
    },
}

/// Serve the agent and its tools to an MCP client, on standard input and output
///
/// One process serves one client, such as an editor or another agent, until its input ends. The client gets `ask`, which runs a
/// turn of the agent, the file tools (or those that `--tools` lists), and the memory and the sessions as resources. Everything is
/// under the policy of these flags. What the client sends is text of a program, not of the user.
#[derive(Args, Clone, Debug)]
pub struct McpServeArgs {
    #[command(flatten)]
    pub turns: ServedTurnOptions,
}
