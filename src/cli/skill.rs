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
    Install(SkillInstallArgs),
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
/// Prints its files, scripts, URLs and hidden characters, then asks for confirmation, unless `--yes` is given.
/// Downloads nothing and runs nothing. Copies exactly what was shown, all or nothing, readable by you only; executable
/// files stay executable. A directory with a symbolic link out of it is rejected.
#[derive(Args, Clone, Debug)]
pub struct SkillInstallArgs {
    /// Directory with a SKILL.md, a single SKILL.md, or the name of a built-in skill
    #[arg(value_parser = path())]
    pub path: PathBuf,
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
