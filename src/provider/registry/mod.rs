//! The known providers, and the choice of the provider for a model.
//!
//! [`table`] holds the providers, [`model_info`] the known facts about models, and `select` selects a provider.

mod choice;
mod config;
mod entry;
pub mod facts;
pub mod table;

pub use choice::{Choice, Standing, Wanted, choose, standing};
pub use config::{KeySource, ProviderConfig};
pub use entry::{Entry, Format, Kind, Strip};
pub use table::{TABLE, entry, plain};
