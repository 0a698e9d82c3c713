//! `nanobot mcp`: servers of further tools.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

use crate::options::turn::ServerFiles;
use crate::options::value::path;

#[derive(Clone, Debug, Subcommand)]
pub enum McpCommand {
    /// List MCP servers: transport, tools and problems
    ///
    /// Uses the config and the cached tool catalog of each server; starts no server.
    #[command(visible_alias = "ls")]
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a server's tools, resources and prompts
    ///
    /// Uses the cached tool catalog; contacts the server if there is none.
    Show {
        /// Server name
        server: String,
        /// Show only this tool, with the schema of its arguments
        tool: Option<String>,
        /// One JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        files: ServerFiles,
    },
    /// Check servers in parallel: response, latency and tools
    ///
    /// The exit status is 0 if every server answers and its tools are unchanged, 69 if one does not answer, 77 if a
    /// tool has changed, and 78 if a server's configuration is invalid. Each server is then started once more in the
    /// environment that cron gives a job; a failure there is a warning.
    Check {
        /// Server names [default: all]
        servers: Vec<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        files: ServerFiles,
    },
    // A doc comment here would hide that of the argument type.
    Add(Box<McpAddArgs>),
    Login(McpLoginArgs),
    /// Forget the login to a server
    Logout {
        /// Server name
        server: String,
    },
    /// Remove a server from the config, with its cached data
    #[command(visible_alias = "rm")]
    Remove {
        /// Server name
        server: String,
    },
    /// Accept changed tools or a prompt of a server
    ///
    /// The tools that a server offers first are pinned. A tool whose description or arguments change later may be an
    /// attack, and its calls are denied until you accept the difference here. On a terminal you are asked; elsewhere
    /// the difference is printed, and accepted only with `--yes`.
    ///
    /// The messages of a prompt (`/SERVER:NAME`) are accepted in the same way, for all values of its arguments. The REPL asks when it is
    /// first used.
    ///
    /// The exit status is 77 if something was not accepted.
    Accept {
        /// Server name
        server: String,
        /// Only these tools, by their names on the server
        tools: Vec<String>,
        /// Accept what this prompt says; words after its name are its arguments
        #[arg(long, value_name = "NAME", conflicts_with = "tools")]
        prompt: Option<String>,
        /// Accept without asking
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        files: ServerFiles,
    },
}

/// Log in to a remote server, by OAuth
///
/// Prints an address, which you open in a browser; the browser comes back to a port of this machine, or you paste the address that it
/// was sent to (`--paste`). The tokens are in ~/.nanobot/auth, readable by you only, and are renewed automatically. The server's
/// `auth` in the config is set to `oauth`.
#[derive(Args, Clone, Debug)]
pub struct McpLoginArgs {
    /// Server name
    pub server: String,
    /// Scopes to ask for, instead of those that the server names
    #[arg(long, value_name = "SCOPES")]
    pub scope: Option<String>,
    /// Client that you have registered there, if the server registers none itself
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// Environment variable with the secret of that client
    #[arg(long, value_name = "NAME")]
    pub client_secret_env: Option<String>,
    /// File with the private key of that client, in PEM, instead of a secret
    #[arg(long, value_name = "FILE", conflicts_with = "client_secret_env", hide_short_help = true, value_parser = path())]
    pub client_key: Option<PathBuf>,
    /// Log in as that client itself, without a browser and a person
    #[arg(long, requires = "client_id")]
    pub client_credentials: bool,
    /// Read the address that the browser was sent to from standard input
    #[arg(long, conflicts_with = "client_credentials")]
    pub paste: bool,
    /// Connect to loopback addresses only
    #[arg(long, hide_short_help = true)]
    pub offline: bool,
}

/// Add a server to the config, and test it
///
/// After NAME comes the server's URL, or `--` and the command that starts it.
///
/// The command runs in a directory of its own, unless `--cwd` names one. Arguments that are files here, or begin with `./` or `../`, are
/// stored as absolute paths.
///
/// The server is asked for its tools, and these are pinned. If a command does not answer, nothing is added. A tool that does not
/// declare itself read-only needs your approval in each run (`--allow mcp_NAME_TOOL`), unless you approve all of them here with
/// `--allow`.
#[derive(Args, Clone, Debug)]
pub struct McpAddArgs {
    /// Name of the server: letters, digits, - and _
    pub name: String,
    /// URL of the server
    #[arg(value_name = "URL", conflicts_with_all = ["command", "env", "cwd", "read", "write"])]
    pub url: Vec<String>,
    /// Command that starts the server, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Transport [default: stdio for a command; for a URL http, or sse if it ends with /sse]
    #[arg(short, long, value_enum, hide_short_help = true)]
    pub transport: Option<TransportArg>,
    /// Environment variable for the server; without VALUE, passed through
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// HTTP header to send; `${VARIABLE}` is expanded
    #[arg(short = 'H', long, value_name = "NAME: VALUE", conflicts_with = "command")]
    pub header: Vec<String>,
    /// Working directory of the server [default: a directory of its own]
    #[arg(long, value_name = "DIR", hide_short_help = true, value_parser = path())]
    pub cwd: Option<PathBuf>,
    /// Path that the server may read
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub read: Vec<PathBuf>,
    /// Path that the server may write
    #[arg(long, value_name = "PATH", value_parser = path())]
    pub write: Vec<PathBuf>,
    /// Offer only these of its tools
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tools: Vec<String>,
    /// Timeout of a call, in seconds
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub tool_timeout: Option<u32>,
    /// Let the model call all of its tools without approval
    #[arg(long)]
    pub allow: bool,
    /// Fail every run if the server is not available
    #[arg(long, hide_short_help = true)]
    pub required: bool,
    /// Write it to the config without testing the server
    #[arg(long)]
    pub untested: bool,
    /// Replace a server of the same name
    #[arg(long, hide_short_help = true)]
    pub force: bool,
}

/// Transport of a server
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// Local program
    Stdio,
    /// Streamable HTTP
    Http,
    /// HTTP with server-sent events (older)
    Sse,
}
