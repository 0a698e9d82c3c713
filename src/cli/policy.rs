//! `nanobot policy`, `tool` and `trust`: the permissions of a run.

use crate::options::grants::Grants;
use crate::options::value::{path, time};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show what a run with these flags may do
    ///
    /// With a tool, shows the decision on a call of it, and the rule behind it; the exit status is then 0 if the call
    /// is allowed and 77 if it is refused.
    #[command(alias = "show")]
    Explain(Box<ExplainArgs>),
    /// Check the sandbox
    ///
    /// Tries what a command of the agent could try: write outside, read denied paths, open a socket.
    ///
    /// Each line is `ok` or `FAILED`. The exit status is 0 if every check passes, 1 if one fails, and 126 if the system
    /// has no sandbox.
    Check {
        #[command(flatten)]
        grants: Box<Grants>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Tool, from `tool list`
    pub tool: Option<String>,
    /// Arguments as JSON, or the main one as text
    ///
    /// The main one is a command, a path or a URL.
    #[arg(default_value = "{}", hide_default_value = true)]
    pub arguments: String,
    #[command(flatten)]
    pub grants: Grants,
    /// Also show the origin of this session's content, and what it restricts
    #[arg(long, value_name = "KEY", conflicts_with = "tool")]
    pub session: Option<String>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ToolCommand {
    /// List the tools of a run with these flags
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        grants: Box<Grants>,
        /// One JSON object per line, with the schema of the arguments
        #[arg(long)]
        json: bool,
    },
    /// Print a tool's description, and the schema of its arguments
    Show {
        /// Tool, from `tool list`
        name: String,
        #[command(flatten)]
        grants: Box<Grants>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Create a program that is a tool, from a template
    ///
    /// The file is in ~/.nanobot/tools; its path is printed. `tools.programs` of the config then names it.
    New {
        /// Name of the file; the tool is `tool_NAME`
        name: String,
        /// Text by which the model decides when to use it
        #[arg(short, long, value_name = "TEXT")]
        description: Option<String>,
        /// Language of the template
        #[arg(short, long, value_enum, default_value = "python")]
        language: ProgramLanguage,
    },
    /// Check that programs describe themselves as tools do
    ///
    /// Each is run with --spec, in a sandbox that can change nothing.
    Check {
        /// Names or paths [default: all in ~/.nanobot/tools]
        #[arg(value_name = "PROGRAM", value_parser = path())]
        programs: Vec<PathBuf>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    // A doc comment here would hide that of the argument type.
    Run(Box<ToolRunArgs>),
}

/// Run a tool, and print the result the model would get
///
/// After the name of an MCP server comes that of one of its tools, or the URI of one of its resources. The policy does not
/// apply to such a call, because it is yours and not the model's; a call of a changed tool is denied.
///
/// The exit status is 0 if the tool succeeds, 1 if it fails, 2 if the call is invalid, and 77 if the policy denies
/// it. If a server is not available, the exit status is that of `mcp check`.
#[derive(Args, Clone, Debug)]
pub struct ToolRunArgs {
    /// Tool, from `tool list`; or an MCP server
    pub name: String,
    /// Arguments of the tool, as ARGUMENTS; or, after a server, its tool by its name there or its full name, or the URI of a
    /// resource, from `mcp show`
    pub tool: Option<String>,
    /// Arguments as a JSON object; `-` reads them from standard input
    pub arguments: Option<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Timeout of the call; for a server, instead of the configured one
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub grants: Grants,
    /// Connect to loopback addresses only
    #[arg(long)]
    pub offline: bool,
}

impl ToolRunArgs {
    /// True if the first word can only be a tool: the arguments come next, or nothing.
    pub fn begins_with_tool(&self) -> bool {
        let is_json = |text: &str| text == "-" || text.trim_start().starts_with('{');
        self.arguments.is_none() && self.tool.as_deref().is_none_or(is_json)
    }
}

/// The language of a program from a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProgramLanguage {
    #[default]
    Python,
    Sh,
}

/// Trust a directory's instructions, skills and tools
///
/// The agent reads AGENTS.md and the skills in skills/, .agents/skills/ and .claude/skills/, and offers the programs in
/// .nanobot/tools/ as tools, only in a trusted directory. Read them first. The list is in ~/.nanobot/trust.json, by real path and with
/// digests of these files, at every depth: one that changes or is added is not read until the directory is trusted
/// again, and a directory that was replaced is no longer trusted. In a trusted repository, the branch, the changed files
/// and the last three commits are sent with a message if they differ from those sent before.
///
/// If the repository keeps its git directory elsewhere or borrows objects, commands use these places from then on, as long as
/// `.git` and `alternates` name the same ones.
///
/// A prompt file is pinned by the digest of its content: what its front matter grants then counts in `nanobot run`.
#[derive(Args, Clone, Debug)]
pub struct TrustArgs {
    /// Directory, or a prompt file of `nanobot run` [default: the current directory]
    #[arg(value_name = "PATH", value_parser = path())]
    pub path: Option<PathBuf>,
    /// List the trusted directories
    #[arg(long, conflicts_with_all = ["path", "revoke"])]
    pub list: bool,
    /// Print what would be read, and trust nothing
    #[arg(long, conflicts_with_all = ["list", "revoke"])]
    pub dry_run: bool,
    /// Stop trusting it
    #[arg(long, alias = "remove")]
    pub revoke: bool,
    /// One JSON object per line, with `--list`
    #[arg(long, requires = "list")]
    pub json: bool,
}
