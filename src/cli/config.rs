//! `nanobot config`: the config file.

use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub enum Config {
    /// Print where the config file is
    Path,
    /// Print what is in force, for one key or for all
    Get {
        /// A key, as `agents.defaults.model`
        key: Option<String>,
        /// Tell also where the value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Change one key in the file, keeping comments and all else
    Set {
        /// A key, as `agents.defaults.model`
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
    /// Report everything that is odd about the config, with line and column
    Check,
    /// Print the JSON schema of the config file
    Schema {
        /// Of the events and the result of `agent`, instead of the config
        #[arg(long)]
        events: bool,
    },
}
