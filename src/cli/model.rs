//! `nanobot model`: the known models.

use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub enum Model {
    /// List the models that are known, with their limits and prices
    ///
    /// The prices are in US dollars for a million tokens.
    List {
        /// Only those of this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// Ask the provider which models it has; without `--provider`, the one that is configured
        #[arg(long)]
        remote: bool,
    },
    /// Tell who would be asked for a model, and what is known of it
    Show {
        /// A model or a preset, as `agent --model` takes it
        name: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}
