//! The known providers, and the choice of the provider for a model.
//!
//! [`table`] holds the providers, [`model_info`] the known facts about models, and `select` selects a provider.

mod config;
pub mod embeddings;
pub mod model_info;
pub mod pictures;
mod provider_info;
mod select;
pub mod speech;
pub mod table;

pub use config::{KeyLabel, KeySource, ProviderConfig};
pub use provider_info::{ApiFormat, CredentialKind, PrefixStripping, ProviderInfo, ProviderKind};
pub use select::{ProviderStatus, SelectInput, SelectedProvider, provider_status, select_provider};
pub use table::{PROVIDERS, find_provider, normalize_name};
