//! `nanobot undo`: undoes the changes of a turn.

use clap::Args;

/// Undo the file changes of a turn
///
/// Restores the files to their state before the turn, byte for byte and with their modes; removes files that the turn
/// created and brings back those that it deleted. Without TURN, undoes the last turn that ran in the current directory
/// or changed files in it and is not undone yet; repeat it to undo the turn before. There is no prompt. If nothing of
/// that turn can be taken back, or one of the files was changed since by something else, nothing is changed, and the exit
/// status is 1.
///
/// Covers changes by the file tools, and by commands that the agent ran with `exec` as far as they could be copied: not in
/// `.git` and in folders of dependencies and build results (that one was removed is noted), not in a directory with more than
/// 5,000 entries, no file beyond 4 MiB, and nothing of a run that was killed during the command; without limits (`--profile
/// full`) only in the working directory. The turn says what it cannot take back, and so does `undo`.
/// The journal keeps the last 100 turns, for 7 days (`retention.undo` of the config), and at most 1 GiB.
#[derive(Args, Clone, Debug, Default)]
pub struct UndoArgs {
    /// Number of the turn, from `--list`, or its id, from `--list --json` or `agent --json`
    pub turn: Option<String>,
    /// List turns that changed files, in all directories, newest first
    #[arg(long, conflicts_with_all = ["turn", "redo", "dry_run", "force"])]
    pub list: bool,
    /// One JSON object per turn
    #[arg(long, requires = "list")]
    pub json: bool,
    /// Print the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Reapply undone changes, last undo first
    #[arg(long)]
    pub redo: bool,
    /// Overwrite files that were changed since; `--redo` brings them back
    #[arg(long)]
    pub force: bool,
}
