//! `nanobot uninstall`: removes this program's files and crontab lines.

use clap::Args;

/// Remove nanobot's crontab lines and files
///
/// Prints what is removed and what is kept, and asks for confirmation; without a terminal it needs `--yes`. Removes the
/// crontab lines of the workspace, what nanobot keeps in `~/.nanobot` (the config with its keys, logins, sessions, memory,
/// jobs, usage), and completion scripts that `onboard` installed. The Python program of the same name uses the same config,
/// sessions, memory and jobs.
///
/// Keeps what you wrote: profiles, commands, prompts, hooks, tools and skills, instruction files of the workspace that were
/// changed, and all files that nanobot does not know. Keeps worktrees, a workspace outside of `~/.nanobot`, crontab lines of your
/// own, and the program itself, which the package manager removes. Nothing is removed while a file is in use. There is no way back.
#[derive(Args, Clone, Copy, Debug)]
pub struct UninstallArgs {
    /// Print what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
}
