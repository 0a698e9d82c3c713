//! `nanobot skill`: what the agent can be taught.

use crate::options::value::path;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Subcommand)]
pub enum SkillCommand {
    /// List skills: source, size in tokens, and whether each is usable
    ///
    /// Skills of the workspace hide those of `~/.nanobot/skills`, these those of a trusted directory, these those of
    /// `skills.directories`, and these built-in ones. Hidden skills are listed too, and those that changed since their
    /// first use.
    #[command(visible_alias = "ls")]
    List {
        /// Only skills whose name matches: a pattern with `*` and `?`, or part of the name
        pattern: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    Show(SkillShowArgs),
    /// Check one skill or all for problems and missing requirements
    ///
    /// The exit status is 1 if there are any. Without a name, built-in skills whose program is not installed are
    /// skipped.
    Check {
        /// Skill name, or the directory of one that is not installed
        #[arg(value_name = "NAME|DIR")]
        name: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Create a skill in the workspace, with a SKILL.md template
    New {
        /// Name: lower-case letters, digits and single hyphens
        name: String,
        /// Purpose of the skill, and when to use it; the model decides by this text only
        #[arg(short, long, value_name = "TEXT")]
        description: Option<String>,
    },
    Add(SkillAddArgs),
    Update(SkillUpdateArgs),
    /// Delete a skill of the workspace permanently
    #[command(visible_alias = "rm")]
    Remove {
        /// Name, from `skill list`
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

/// Print a skill: front matter, text, files and requirements
///
/// `allowed tools` are those the author expects it to use. They grant nothing: permissions come from flags, the profile
/// and the config only.
#[derive(Args, Clone, Debug)]
pub struct SkillShowArgs {
    /// Name, from `skill list`
    pub name: String,
    /// Print one of its files unchanged, such as `scripts/check.sh`
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    pub file: Option<String>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Review a skill and copy it into the workspace
///
/// Prints its files, scripts, URLs and hidden characters, then asks for confirmation, unless `--yes` is given. Runs
/// nothing. Copies exactly what was shown, all or nothing, readable by you only; executable files stay executable. A
/// directory with a symbolic link out of it is rejected.
///
/// From elsewhere come a ZIP or tar archive at an `https` address, and a commit of a git repository. They have at most
/// 1 MiB of files, and no links. git runs in the sandbox, and checks nothing out. Without a terminal an archive needs its
/// digest.
#[derive(Args, Clone, Debug)]
pub struct SkillAddArgs {
    /// Directory with a SKILL.md, a single SKILL.md, the name of a built-in skill, `https://…/NAME.tar.gz`, or
    /// `https://…/REPOSITORY@COMMIT`; `#FOLDER` after an address selects one of several skills
    #[arg(value_name = "SOURCE", value_parser = path())]
    pub source: PathBuf,
    #[command(flatten)]
    pub remote: RemoteOptions,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Replace a skill of the same name
    #[arg(long)]
    pub force: bool,
    /// Print the review only
    #[arg(long)]
    pub dry_run: bool,
}

/// Show how a skill of the workspace differs from its source, and replace it
///
/// Prints the changes, then asks for confirmation, unless `--yes` is given. Your own changes of the skill are among
/// them, and are lost.
#[derive(Args, Clone, Debug)]
pub struct SkillUpdateArgs {
    /// Name, from `skill list`
    pub name: String,
    /// As for `skill add`
    #[arg(value_name = "SOURCE", value_parser = path())]
    pub source: PathBuf,
    #[command(flatten)]
    pub remote: RemoteOptions,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Print the changes only
    #[arg(long)]
    pub dry_run: bool,
}

/// Options for a skill that comes from elsewhere
#[derive(Args, Clone, Debug)]
pub struct RemoteOptions {
    /// SHA-256 digest that the archive must have; the review prints it
    #[arg(long, value_name = "SHA256", value_parser = sha256)]
    pub digest: Option<String>,
    /// Name the hosts that a fetched skill links to, so that web tools may reach them even after untrusted content
    #[arg(long)]
    pub hosts: bool,
}

/// A SHA-256 digest in hexadecimal digits.
fn sha256(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let is_digest = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest
        .then(|| digits.to_ascii_lowercase())
        .ok_or_else(|| "expected 64 hexadecimal digits".to_owned())
}
