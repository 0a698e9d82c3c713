//! `nanobot skill`: what the agent can be taught.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Subcommand)]
pub enum Skill {
    /// List the skills: where each is from, what it weighs, whether it can be used
    ///
    /// Those of the workspace hide those of a trusted directory, and these the built-in ones; what is hidden is listed too.
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    Show(Show),
    /// Tell what is odd about a skill, or about all, and what is missing
    ///
    /// The status is 1 where anything is. Of all skills, a built-in one that lacks its program is not: it is left out.
    Check {
        /// A skill, or the folder of one that is not installed
        #[arg(value_name = "NAME|DIR")]
        name: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Begin a skill in the workspace: a SKILL.md to be filled in
    New {
        /// Its name: lower-case letters, digits and single hyphens
        name: String,
        /// What it does, and when to use it: the model decides by this line alone
        #[arg(short, long, value_name = "TEXT")]
        description: Option<String>,
    },
    Install(Install),
    /// Remove a skill of the workspace, for good
    #[command(visible_alias = "rm")]
    Remove {
        /// Its name, as `skill list` prints it
        name: String,
        /// Ask nothing
        #[arg(short, long)]
        yes: bool,
    },
}

/// Print a skill: its head, its text, its files, and what it needs
///
/// `allowed tools` are those that its author means it to use. They grant nothing here: what a run may do is decided by its
/// flags, its profile and the config, whatever a skill says.
#[derive(Args, Clone, Debug)]
pub struct Show {
    /// Its name, as `skill list` prints it
    pub name: String,
    /// Print one of its files as it is, as `scripts/check.sh`
    #[arg(long, value_name = "PATH", conflicts_with = "json")]
    pub file: Option<String>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Copy a skill into the workspace, after telling what it contains
///
/// Its files, scripts and addresses, and characters that nobody sees, are told first; then it is asked, or `--yes` says so.
/// Nothing is fetched, and nothing of it is run. What was shown is what is copied, wholly or not at all: for you alone, and
/// what could be run still can be. A folder is refused that has a link out of it.
#[derive(Args, Clone, Debug)]
pub struct Install {
    /// A folder with a SKILL.md, a SKILL.md alone, or the name of a built-in skill
    pub path: PathBuf,
    /// Ask nothing
    #[arg(short, long)]
    pub yes: bool,
    /// Replace the one of that name
    #[arg(long)]
    pub force: bool,
    /// Only tell
    #[arg(long)]
    pub dry_run: bool,
}
