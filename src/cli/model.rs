//! `nanobot model`: the known models, and their providers.

use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub enum ModelCommand {
    /// List known models with their limits and prices
    ///
    /// Prices are in US dollars per million tokens.
    #[command(visible_alias = "ls")]
    List {
        /// Only models whose name matches: a pattern with `*` and `?`, or part of the name
        pattern: Option<String>,
        /// Only models of this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// Ask the provider for its models; without `--provider`, the configured one
        #[arg(long)]
        remote: bool,
    },
    /// Use a model, or a preset, where a run names none
    ///
    /// Sets `agents.defaults.model` or `agents.defaults.modelPreset` in the config. A provider must be configured for it. If the model is not known,
    /// the provider is asked for its list.
    Use {
        /// Model or preset, as for `agent --model`
        name: String,
    },
    /// Show a model's provider, endpoint, limits and price
    Show {
        /// Model or preset, as for `agent --model`
        name: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// List providers; log in and out of those with accounts
    Provider {
        #[command(subcommand)]
        command: ProviderCommand,
    },
}

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
