//! `nanobot mcp`: servers of further tools.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

use super::value::time;

#[derive(Clone, Debug, Subcommand)]
pub enum Mcp {
    /// List the servers: how each is reached, what it offers, what is wrong with it
    ///
    /// It is told from the config and from what was kept of each server: none is started.
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show what a server offers: its tools, resources and prompts
    ///
    /// From what was kept of it; where nothing was, it is asked.
    Show {
        /// The server
        server: String,
        /// This tool alone, with the schema of its arguments
        tool: Option<String>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Ask servers now, all at once: whether they answer, how fast, what they offer
    ///
    /// The status is 0 when each answers and offers what it did, 69 when one does not, 77 when a tool is not what it was, and
    /// 78 when one cannot be used as it is configured.
    Test {
        /// The servers [default: all]
        servers: Vec<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    // The arguments stand apart, since they are many.
    Add(Box<Add>),
    /// Remove a server from the config, and what is kept of it
    Remove {
        /// The server
        server: String,
    },
    /// Accept what servers offer now
    ///
    /// What a server offers first is what it is held to: a tool whose description or arguments change later may be a trap, and
    /// is refused until you have seen the difference here and accepted it. On a terminal you are asked; elsewhere the difference
    /// is printed, and accepted with `--yes` alone.
    ///
    /// The status is 77 when something was not accepted.
    Accept {
        /// The server
        server: String,
        /// These tools alone, by their own names
        tools: Vec<String>,
        /// Accept without asking
        #[arg(short, long)]
        yes: bool,
    },
    /// Call a tool of a server, and print what it answers
    ///
    /// It is your call and not the model's: no policy is asked. A tool that is not what it was is refused.
    ///
    /// The status is 0 when it did what it was asked for, 1 when it could not, 2 when the call makes no sense, and as for
    /// `test` when there is no server to be had.
    Call {
        /// The server
        server: String,
        /// The tool, by its own name or ours; or an address of a resource, as `mcp show` prints it
        tool: String,
        /// Its arguments, as a JSON object; `-` reads them from standard input
        #[arg(default_value = "{}", hide_default_value = true)]
        arguments: String,
        /// Print the answer as one JSON object
        #[arg(long)]
        json: bool,
        /// Wait so long, instead of as the config says
        #[arg(long, value_name = "TIME", value_parser = time)]
        timeout: Option<Duration>,
    },
}

/// Add a server to the config, and ask it once
///
/// After NAME comes its address, or behind `--` the command that starts it.
///
/// It is asked what it offers, and what it says is what it will be held to. A tool that does not claim to change nothing needs
/// your consent for each run (`--allow mcp_NAME_TOOL`), unless you give it here with `--allow`.
#[derive(Args, Clone, Debug)]
pub struct Add {
    /// What it is called: letters, digits, - and _
    pub name: String,
    /// Its address
    #[arg(value_name = "URL", conflicts_with_all = ["command", "env", "cwd", "read", "write"])]
    pub url: Vec<String>,
    /// The command that starts it, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// How it is reached [default: stdio for a command; for an address http, or sse where it ends with /sse]
    #[arg(short, long, value_enum, hide_short_help = true)]
    pub transport: Option<Transport>,
    /// A variable for it; without a value it stands for ours of that name
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// A header to send, where `${VARIABLE}` stands for what that holds
    #[arg(
        short = 'H',
        long,
        value_name = "NAME: VALUE",
        conflicts_with = "command"
    )]
    pub header: Vec<String>,
    /// Its directory
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub cwd: Option<PathBuf>,
    /// A place that it may read
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// A place that it may change
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,
    /// Offer these of its tools alone
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tools: Vec<String>,
    /// Seconds that a call may take
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub tool_timeout: Option<u32>,
    /// Let the model call all of its tools without your consent
    #[arg(long)]
    pub allow: bool,
    /// No run begins without it
    #[arg(long, hide_short_help = true)]
    pub required: bool,
    /// Write it into the config without asking the server
    #[arg(long)]
    pub untested: bool,
    /// In the place of one of that name
    #[arg(long, hide_short_help = true)]
    pub force: bool,
}

/// How a server is reached
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// A program of this machine
    Stdio,
    /// Streamable HTTP
    Http,
    /// The older way over HTTP
    Sse,
}
