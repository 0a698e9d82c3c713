//! `nanobot model provider`: providers and their logins.

use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub enum ProviderCommand {
    /// List providers, and the source of each API key
    #[command(visible_alias = "ls")]
    List {
        /// Only providers whose name matches: a pattern with `*` and `?`, or part of the name
        pattern: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a provider: address, default model, and the source of its API key
    Show {
        /// Name, from `model provider list`
        name: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Log in by entering a code in a browser, on any machine
    ///
    /// The code and the address are printed on standard error. The login is saved, and renewed when it expires.
    Login {
        /// openaiCodex or githubCopilot
        name: String,
    },
    /// Remove a saved login; does not revoke it at the provider
    Logout {
        /// openaiCodex or githubCopilot
        name: String,
    },
}
