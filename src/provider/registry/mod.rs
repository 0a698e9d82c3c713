//! The table of providers, and which of them answers for a model.
//!
//! [`table`] is data, [`facts`] what is known of models, and in `choice` it is decided who is asked.

mod choice;
mod config;
mod entry;
pub mod facts;
pub mod table;

pub use choice::{Choice, Standing, Wanted, choose, standing};
pub use config::{KeySource, ProviderConfig};
pub use entry::{Entry, Format, Kind, Strip};
pub use table::{TABLE, entry, plain};
