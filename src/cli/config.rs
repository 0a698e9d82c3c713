//! `nanobot config`: the config file.

use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the path of the config file
    Path,
    /// Print the effective value of one key, or of all
    Get {
        /// Key, such as `agents.defaults.model`
        key: Option<String>,
        /// Print where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Set a key in the config file, keeping comments and layout
    Set {
        /// Key, such as `agents.defaults.model`
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
    /// Report errors and warnings in the config, with line and column
    Check {
        /// Exit with status 78 for warnings as well
        #[arg(long)]
        strict: bool,
    },
    /// Print the JSON schema of the config file
    Schema {
        /// Print the schema of the events and the result of `agent` instead
        #[arg(long)]
        events: bool,
    },
}
