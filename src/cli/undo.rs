//! `nanobot undo`: changes of the file tools, taken back.

use super::value::turn;
use clap::Args;

/// Take back what a turn changed with its file tools
///
/// Files are again what they were before the turn, byte for byte and with their modes; what it made is removed, what it
/// deleted is there again. Without TURN it is the last turn that was run in the current directory or worked on it, and
/// was not taken back yet; given again, the turn before that. Nothing is asked. Where somebody else has changed one of the
/// files since, nothing is done at all, with status 1.
///
/// Only what `write_file`, `edit_file` and `delete_file` change is kept: not what commands change, which the agent runs
/// with `exec`. It is kept for the last 100 turns of 7 days, 1 GiB at most.
#[derive(Args, Clone, Debug, Default)]
pub struct Undo {
    /// The number of the turn, as `--list` prints it
    #[arg(value_parser = turn)]
    pub turn: Option<u64>,
    /// List the turns that changed files, newest first, of all directories
    #[arg(long, conflicts_with_all = ["turn", "redo", "dry_run", "force"])]
    pub list: bool,
    /// One JSON object per turn
    #[arg(long, requires = "list")]
    pub json: bool,
    /// Tell what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do again what was taken back, the last undo first
    #[arg(long)]
    pub redo: bool,
    /// Also where somebody else has changed a file since; `--redo` brings that back
    #[arg(long)]
    pub force: bool,
}
