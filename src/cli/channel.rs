//! `nanobot channel`: chat services.

use crate::options::value::{dollars, path, time};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Subcommand)]
pub enum ChannelCommand {
    /// List channels: enabled, last poll, messages that wait, what fails since when
    ///
    /// Asks no service. Lists the channels that are enabled or were used.
    #[command(visible_alias = "ls")]
    List {
        /// All channels that there are
        #[arg(long)]
        all: bool,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show a channel's settings without secrets, its position, and refused senders
    Show {
        /// Channel name
        name: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check a channel: ask the service who we are there
    ///
    /// Sends nothing. The exit status is 69 if the service does not answer, 77 if it rejects the token, and 78 if the
    /// config is incomplete.
    Check {
        /// Channel name
        name: String,
    },
    /// Log in at a service and prepare our account
    ///
    /// On a terminal, what the config lacks is asked for. It is stored, and the channel enabled, once the service accepts
    /// it.
    Login {
        /// Channel name
        name: String,
    },
    /// Allow senders by the code that they received
    Pair {
        #[command(subcommand)]
        command: PairCommand,
    },
    // A doc comment here would hide that of the argument type.
    Bind(ChannelBindArgs),
    Poll(ChannelPollArgs),
    Send(ChannelSendArgs),
    /// Export the service of the channels, `channel poll --follow`, to a service manager
    ///
    /// For systemd a unit that reports when it is ready, and is started again when a channel does not go on; for Kubernetes a Deployment
    /// of one pod, with the volume that `cron export` has too.
    Export {
        /// Channel names [default: all enabled channels]
        names: Vec<String>,
        /// Output format
        #[arg(long, value_name = "FORMAT")]
        format: ServiceFormat,
        /// Write files into this directory
        ///
        /// One file for each unit or manifest, instead of all on standard output.
        #[arg(short, long, value_name = "DIR", value_parser = path())]
        output: Option<PathBuf>,
        /// Container image, for Kubernetes
        #[arg(long, value_name = "IMAGE", default_value = "nanobot:latest")]
        image: String,
    },
    /// List messages that wait, were given up or failed
    Inbox {
        /// Channel name [default: all]
        name: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// Take this message out of the list; it is neither sent nor answered
        #[arg(long, value_name = "ID", conflicts_with_all = ["name", "json"])]
        dismiss: Option<String>,
    },
    /// Send or answer a message of the inbox again
    ///
    /// Of an outbound message, the parts that the service has not taken are sent. An inbound message that was dropped (`stale`,
    /// `rate_limited`, `over_budget`) is answered by the next poll, if the limit allows it by then.
    Retry {
        /// Id as shown by `nanobot channel inbox`
        id: String,
    },
}

/// The service manager that exported files are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServiceFormat {
    Systemd,
    Kubernetes,
}

#[derive(Clone, Debug, Subcommand)]
pub enum PairCommand {
    /// List the valid codes
    #[command(visible_alias = "ls")]
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Allow the sender of a code from now on
    ///
    /// The sender shares the memory of the workspace with you and others; with `--workspace DIR` it is bound to a workspace of its own, as by
    /// `channel bind`.
    Approve {
        /// Code as the sender received it: ABCD-EFGH
        code: String,
    },
}

/// Bind a chat or a sender to a profile, a workspace, a model or a budget
///
/// With `--workspace DIR`, its messages are answered from that workspace: with the memory, notes, skills, jobs and conversations there, and
/// no others. The binding of a chat applies to all who write in it, that of a sender in direct chats that are not bound. What is not given
/// stays as it is.
#[derive(Args, Clone, Debug)]
pub struct ChannelBindArgs {
    /// Channel name
    pub name: String,
    #[command(flatten)]
    pub target: BindTarget,
    /// Permission profile of its turns and jobs
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Model, or a preset of the config
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Maximum cost per day, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, allow_negative_numbers = true)]
    pub budget: Option<f64>,
    /// Remove the binding
    #[arg(long, conflicts_with_all = ["profile", "model", "budget"])]
    pub remove: bool,
}

/// The chat or the sender of a binding.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct BindTarget {
    /// Chat or group, by the id that `/id` shows; a thread as in the keys of sessions
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub chat: Option<String>,
    /// Sender, by the id that `/id` shows
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub sender: Option<String>,
}

/// Fetch new messages, answer them, and exit
///
/// Only senders in `channels.NAME.allowFrom` or with an approved pairing are answered. With `--wait 60` in a crontab
/// line that runs every minute, messages are answered at once, and no program stays resident.
///
/// A poll that finds another one at work exits with status 75 and prints nothing.
#[derive(Args, Clone, Debug, Default)]
pub struct ChannelPollArgs {
    /// Channel names [default: all enabled channels]
    pub names: Vec<String>,
    /// Listen for this long, counted from the start of the process
    #[arg(long, value_name = "SECONDS", value_parser = time)]
    pub wait: Option<Duration>,
    /// Listen until told to stop
    #[arg(long)]
    pub follow: bool,
    /// Time to finish what has begun, after a signal [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = time)]
    pub grace: Option<Duration>,
    /// Do not answer messages that are older: a duration such as `1h`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<Duration>,
}

/// Send a message to a chat
///
/// Prints the service's id of each part. Without TEXT and files, the text is read from standard input. A message that
/// the service cannot take now is sent by the next poll, with its files as they were.
#[derive(Args, Clone, Debug, Default)]
pub struct ChannelSendArgs {
    /// Channel name
    pub name: String,
    /// Chat id
    #[arg(allow_hyphen_values = true)]
    pub to: String,
    /// Text, in Markdown
    #[arg(allow_hyphen_values = true)]
    pub text: Option<String>,
    /// File to send; can be repeated
    #[arg(short, long, value_name = "FILE", value_parser = path())]
    pub attach: Vec<PathBuf>,
    /// Send only once under this key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}
