//! `nanobot provider`: providers and their logins.

use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub enum Provider {
    /// List the providers, and where the key of each comes from
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Log in, by entering a code in a browser on any machine
    ///
    /// The code and the address stand on standard error. The login is kept, and renewed when it runs out.
    Login {
        /// openai-codex or github-copilot
        name: String,
    },
    /// Forget a login; the provider itself is told nothing
    Logout {
        /// openai-codex or github-copilot
        name: String,
    },
}
