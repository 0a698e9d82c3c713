//! The flags about the model that `agent` and `repl` share.

use super::value::{dollars, temperature};
use clap::Args;

/// Which model to ask, how, and at what cost
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Model")]
pub struct ModelFlags {
    /// The model to ask, or a preset of the config
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Limit of one reply, in tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub max_tokens: Option<u32>,
    /// How freely the model answers, 0 to 2
    #[arg(long, value_name = "N", value_parser = temperature, hide_short_help = true)]
    pub temperature: Option<f64>,
    /// How much a reasoning model thinks: low, medium, high or what else it takes
    #[arg(long, value_name = "LEVEL", hide_short_help = true)]
    pub reasoning_effort: Option<String>,
    /// How often the model may be asked in a turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub max_iterations: Option<u32>,
    /// Stop a turn when it has cost so many US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost: Option<f64>,
    /// Ask for replies in one piece, for servers that cannot stream
    #[arg(long, hide_short_help = true)]
    pub no_stream: bool,
}
