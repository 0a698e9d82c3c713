//! The permissions of a run, from flags or stored with a job.

use super::value::{path, tool_name, trimmed};
use clap::{ArgAction, Args, ValueEnum};
use nanobot_config::policy::rule::Pattern;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Permissions of a run. Jobs store them as JSON with these field names.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[command(next_help_heading = "Permissions")]
pub struct Grants {
    /// Permission profile: plan, accept-edits, …
    ///
    /// default, plan (read-only), accept-edits, auto-approve (edits, and approves what would need approval; no web
    /// tools without `--net`), full (no sandbox), or a profile of your own in ~/.nanobot/profiles. `explore` is for
    /// sub-agents only (the tool `spawn`).
    #[arg(long, value_name = "NAME", overrides_with = "profile")]
    pub profile: Option<String>,
    /// Allow writes in the working directory, or in PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = ".",
          action = ArgAction::Append, value_parser = path())]
    pub write: Vec<PathBuf>,
    /// Allow reading PATH too; may be repeated
    #[arg(long, value_name = "PATH", action = ArgAction::Append, value_parser = path())]
    pub read: Vec<PathBuf>,
    /// Allow network access, or access to HOSTS only
    ///
    /// Without HOSTS: the whole internet, for commands too. With HOSTS (`example.org,*.example.org`): these hosts, at the
    /// ports of the web or at the one that follows (`example.org:8000`), for commands through a proxy that `https_proxy`
    /// names. A non-public address is allowed if it is given as an address (`127.0.0.1:8000`), never through a name; a port
    /// of the machine's loopback is at the same address in the sandbox.
    #[arg(long, value_name = "HOSTS", num_args = 0.., require_equals = true, value_delimiter = ',')]
    pub net: Option<Vec<String>>,
    /// Approve a tool that would need approval
    ///
    /// `TOOL`, or `TOOL(glob)` for some arguments; may be repeated. `sessions` offers the tool that reads other
    /// conversations. `signing` lets git in commands sign commits and tags with the key of your git config.
    #[arg(long, value_name = "RULE", action = ArgAction::Append, hide_short_help = true)]
    pub allow: Vec<String>,
    /// Deny a tool; overrides everything else
    ///
    /// `TOOL`, or `TOOL(glob)` for some arguments; may be repeated. `*` matches any text, `?` one character; for files also
    /// `**/`, `{a,b}` and `[ab]`. A name without `/` is meant in every directory: `read_file(.env)`. A rule about a file
    /// also holds for commands and MCP servers. For the text of commands a glob is no security boundary: `exec(git *)` does not match
    /// `/usr/bin/git`.
    #[arg(long, value_name = "RULE", action = ArgAction::Append, hide_short_help = true)]
    pub deny: Vec<String>,
    /// Offer only these tools, separated by commas
    ///
    /// Names or patterns, as in `read_*,grep`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = trimmed, hide_short_help = true)]
    pub tools: Option<Vec<String>>,
    /// Do not offer these tools, separated by commas
    ///
    /// Names or patterns, as in `exec,web_*`. The same as `--deny` for each of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = tool_name, hide_short_help = true)]
    pub disabled_tools: Vec<String>,
    /// Offer no tools
    #[arg(long, conflicts_with = "tools", hide_short_help = true)]
    pub no_tools: bool,
    /// Work in this directory
    #[arg(short = 'C', long, aliases = ["cd", "cwd"], value_name = "DIR", hide_short_help = true, value_parser = path(), overrides_with = "directory")]
    pub directory: Option<PathBuf>,
    /// When to run commands in the sandbox
    ///
    /// Without sandbox support in the kernel, `auto` denies commands and `strict` exits with status 126 at once; `off`
    /// runs commands without a sandbox.
    #[arg(long, value_name = "WHEN", hide_short_help = true, overrides_with = "sandbox")]
    pub sandbox: Option<SandboxMode>,
    /// The private copy that contains the working directory: the only place that the run may change, but for the workspace
    #[serde(skip)]
    #[arg(skip)]
    pub private_copy: Option<PrivateCopy>,
}

/// A private copy of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateCopy {
    /// The directory that was copied. Both paths are without links.
    pub original: PathBuf,
    /// The copy.
    pub path: PathBuf,
}

impl PrivateCopy {
    /// The original of `path`, which is in the copy.
    pub(crate) fn original_of(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.path) {
            // An empty path would add a slash.
            Ok(relative) => self.original.components().chain(relative.components()).collect(),
            Err(_) => path.to_owned(),
        }
    }
}

impl Grants {
    /// True if `--tools` lists `tool`.
    pub(crate) fn lists_tool(&self, tool: &str) -> bool {
        let mut names = self.tools.iter().flatten();
        names.any(|name| Pattern::new(name.as_str()).lists(tool))
    }

    /// The names of the flags that grant something to tools, in backticks.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let flags = [
            (!self.write.is_empty(), "`write`"),
            (!self.read.is_empty(), "`read`"),
            (self.net.is_some(), "`net`"),
            (!self.allow.is_empty(), "`allow`"),
        ];
        flags.into_iter().filter_map(|(is_given, name)| is_given.then_some(name)).collect()
    }
}

/// The sandbox mode of commands. Where the kernel has no sandbox, `Auto` refuses commands, and `Strict` ends the run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    Auto,
    Off,
    Strict,
}
