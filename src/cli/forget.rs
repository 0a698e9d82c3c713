//! `nanobot forget`: removes a text, a session or a sender.

use crate::options::value::path;
use clap::Args;
use std::path::PathBuf;

/// Remove a text, a session or a sender from all that nanobot keeps
///
/// Prints where it occurs and asks for confirmation; without a terminal it needs `--yes`.
///
/// With TEXT, each occurrence is overwritten with `*` in sessions (also in the trash), the memory with its versions and
/// history, notes of the workspace such as USER.md, usage, inboxes, records and outputs of jobs, the history of the REPL,
/// and logs. Letter case does not matter, nor does which white space is between words. The words around it stay, so a whole
/// fact is a longer TEXT. Attachments, and turns of `nanobot undo` that have the text, are removed as a whole.
///
/// With `--session`, the session is removed with its attachments, its approvals, its turns of `nanobot undo` and the outputs of its runs,
/// and its name and messages are overwritten in usage, records and inboxes. With `--sender`, so are the direct chats of this sender, other
/// sessions that no other person wrote to as far as the usage shows, the messages of the sender in the channel's inbox, what
/// the sender approved for good in any chat of it, and the pairing.
///
/// Files that are yours to write stay and are named: the config, jobs, skills, prompts and other files of the workspace. So are
/// files in use, and copies without the session's name, such as forks and facts in the memory. What cannot be read, and a link to a
/// directory of yours, is named and not searched. Not found: text in images, sound, compressed documents and encrypted
/// reasoning of a provider. What providers and chat services received, mail, histories of git and backups are beyond its reach.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("subject").args(["text", "session", "sender"]).required(true)))]
pub struct ForgetArgs {
    /// The text, on one line; with fewer than 4 characters it needs `--yes`
    pub text: Option<String>,
    /// The session, by its key from `session list`
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// The sender of chat messages, such as `telegram:123456`
    #[arg(long, value_name = "CHANNEL:ID")]
    pub sender: Option<String>,
    /// A further file to look in, such as a recording of `--record`; repeatable
    #[arg(short, long = "file", value_name = "FILE", value_parser = path())]
    pub files: Vec<PathBuf>,
    /// Print what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
}
