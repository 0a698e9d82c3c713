//! `nanobot config`: the config file.

use crate::options::value::path;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the path of the config file
    Path {
        /// Print the path of the file that this key belongs to
        ///
        /// Keys that the Python program would refuse or drop are in nanobot.json beside the config file.
        key: Option<String>,
    },
    /// Print the effective value of one key, or of all
    Get {
        /// Key, such as `agents.defaults.model`
        ///
        /// A name with a dot is in double quotes, and those in quotes for the shell: `'models."gpt-4.1".price'`.
        key: Option<String>,
        /// Print where each value comes from
        #[arg(long)]
        origin: bool,
        /// One JSON object per key and line
        #[arg(long)]
        json: bool,
    },
    /// List the keys whose effective values differ from the defaults
    #[command(visible_alias = "ls", alias = "show")]
    List {
        /// All keys
        #[arg(short, long)]
        all: bool,
        /// Print where each value comes from
        #[arg(long)]
        origin: bool,
        /// One JSON object per key and line
        #[arg(long)]
        json: bool,
    },
    /// Set a key in the config file that it belongs to, keeping comments and layout
    Set {
        /// Key, such as `agents.defaults.model`
        ///
        /// A name with a dot is in double quotes, and those in quotes for the shell: `'models."gpt-4.1".price'`.
        key: String,
        /// The value
        ///
        /// JSON for lists and maps, `null` to remove the key, `-` to read it from standard input.
        #[arg(required_unless_present = "unset", allow_hyphen_values = true)]
        value: Option<String>,
        /// Remove the key
        #[arg(long, conflicts_with = "value")]
        unset: bool,
    },
    /// Remove a key from the config file, so that its default applies
    Unset {
        /// Key, such as `agents.defaults.model`
        ///
        /// A name with a dot is in double quotes, and those in quotes for the shell: `'models."gpt-4.1".price'`.
        key: String,
    },
    /// Set the keys that a file has, all of them or none
    ///
    /// The file has the form of the config; `null` removes a key, and keys that it does not have stay as they are, also those of maps such
    /// as `env`. Prints each key that changes, with its old and its new value. A reference such as `${OPENAI_API_KEY}` is stored as it is.
    Apply {
        /// The file; `-` is standard input
        #[arg(short, long, value_name = "FILE", value_parser = path())]
        file: PathBuf,
        /// Print what would change, and write nothing
        #[arg(long)]
        dry_run: bool,
        /// One JSON object per key
        #[arg(long)]
        json: bool,
    },
    /// Edit the config file in your editor (`VISUAL`, else `EDITOR`), and check it
    ///
    /// A text that would stop every run does not replace the file: you are asked to edit it again, to keep it elsewhere, or
    /// to discard it.
    Edit,
    /// Report errors and warnings in the config, with line and column
    Check {
        /// Exit with status 78 for warnings as well; note what the Python program would reject
        #[arg(long)]
        strict: bool,
        /// Move keys that the Python program would refuse or drop to nanobot.json first
        ///
        /// Comments within a value that moves are not kept.
        #[arg(long)]
        fix: bool,
        /// One JSON object per finding
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON schema of the config file
    Schema {
        /// Print the schema of the events and the result of `agent` instead
        #[arg(long)]
        events: bool,
        /// Print the schema of what other commands print as JSON instead
        #[arg(long, conflicts_with = "events")]
        commands: bool,
    },
}
