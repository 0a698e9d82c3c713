//! `nanobot serve`: programs, editors, MCP clients and web servers that the agent answers.

use crate::options::turn::ServedTurnOptions;
use crate::options::value::file_name;
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

/// Answer messages that arrive as JSON lines
///
/// Reads one message a line from standard input, and writes each answer as a line when it is ready. Messages of a session
/// are answered in order, those of different sessions in parallel. This connects any message broker through its own
/// command-line client.
///
/// A message is an object with `text`, and either `session` or `channel` and `chat`. Its `files` are attached; if the run may not read one,
/// the message fails. `id`, a text or a number, comes back with the answer, and so do `facts` and unknown keys. An answer is an object
/// with `text` and `status`; an `ack` line follows it once message and answer are on disk, so a broker that waits for it loses nothing. A
/// temporary failure gets no `ack`. A line that is no message, or longer than 16 MiB, gets an `error` line, with its `id` if it has one,
/// and the exit status is 65.
///
/// The messages are text of a program, not of the user: they cannot do what needs the user's words. No job delivers to a pipe, so none
/// is a reply to a reminder; a program of a channel gets them (see channels). Their conversations have keys that begin with `bus:`, apart
/// from yours and those of chats. Relative paths start at the workspace unless `-C` is given.
#[derive(Args, Clone, Debug, Default)]
pub struct PipeArgs {
    /// Number of messages that are answered at the same time
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub jobs: u32,
    /// Keep ids and answers under this name: an id that comes again gets the same answer
    ///
    /// Messages need an `id` then. A run that was killed is taken up by the next one with the same name, and a message that
    /// was answered in the last week (`retention.inbox` of the config) is answered and acknowledged again without a model. A message
    /// whose turn was killed three times is answered with an error. One run at a time can use a name.
    #[arg(long, value_name = "NAME", value_parser = file_name)]
    pub name: Option<String>,
    /// Let messages continue any conversation, whose key is then `session` as it is
    ///
    /// The first message of a chat must come from its service: the agent may write to a chat that has a conversation.
    #[arg(long)]
    pub any_session: bool,
    /// Ask about calls that need approval; a message with `approve` answers
    ///
    /// An answer then has `approvals`, the open questions of its conversation, each with its `code`, its `tool` and
    /// `arguments`, and the `question` in Markdown. A message of that conversation with the code as `approve`, within an hour,
    /// makes the call once, and its answer takes the result into account. It needs no `text`. The program that reads the answers
    /// decides, so let it show the question to a person.
    #[arg(long, requires = "name")]
    pub approvals: bool,
    #[command(flatten)]
    pub turns: ServedTurnOptions,
}

/// Serve an editor that speaks the Agent Client Protocol
///
/// An editor starts this process and talks to it on standard input and output. Each of its conversations is a session of its own in
/// the directory that the editor names; profiles are the modes, and the editor asks its user what needs approval. MCP servers that
/// the editor names are used in addition to those of the config.
///
/// The process ends when its input ends; turns under way are then cancelled, and kept as far as they came.
#[derive(Args, Clone, Debug, Default)]
pub struct AcpArgs {
    #[command(flatten)]
    pub turns: ServedTurnOptions,
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
