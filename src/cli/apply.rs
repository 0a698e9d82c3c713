//! `nanobot apply`: applies a patch.

use crate::options::value::path;
use clap::{ArgAction, Args};
use std::path::PathBuf;

/// Apply a patch to the current directory
///
/// Takes a patch of `nanobot agent --propose` or of git: all of it, or nothing. Every change is one that a run with `--write` could make:
/// rules, protected names and closed paths count. No name may lead out of the directory, and no link is followed or made. Files that
/// instruct agents or start programs, such as AGENTS.md, need `--allow startup`, since a patch does not say who wrote it. A
/// file must be exactly as the patch expects it; a patch that names the digests of whole files, as those of `--propose` do, fits
/// no other file. `nanobot undo` takes the changes back. An empty patch changes nothing.
#[derive(Args, Clone, Debug)]
pub struct ApplyArgs {
    /// The patch; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true, value_parser = path())]
    pub file: PathBuf,
    /// Apply it to this directory
    #[arg(short = 'C', long, value_name = "DIR", value_parser = path())]
    pub directory: Option<PathBuf>,
    /// Allow what the policy would refuse: `startup`
    #[arg(long, value_name = "RULE", action = ArgAction::Append)]
    pub allow: Vec<String>,
}
