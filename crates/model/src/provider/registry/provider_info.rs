//! The row type of the provider table.

use crate::provider::quirks::Quirks;

/// A row of the table of providers.
#[derive(Clone, Copy, Debug)]
pub struct ProviderInfo {
    /// The name in the config, under `providers`; empty if the provider is none of the table.
    pub name: &'static str,
    pub label: &'static str,
    pub kind: ProviderKind,
    pub format: ApiFormat,
    /// The environment variables that the vendor documents for the key; the first one takes precedence.
    pub key_variables: &'static [&'static str],
    /// The header of the key; in `authorization` it is sent as a bearer token.
    pub key_header: &'static str,
    /// The credentials that it takes if there is no key.
    pub credentials: CredentialKind,
    /// The prefix of the provider's keys; empty if they have no fixed form.
    pub(crate) key_prefix: &'static str,
    /// The base URL without a trailing slash; empty if it must be configured.
    pub base_url: &'static str,
    /// A word that identifies the provider's addresses.
    pub(crate) url_keyword: &'static str,
    /// The suffix of the provider's base URLs, added if the user omits it.
    pub(crate) url_suffix: &'static str,
    /// The default model.
    pub default_model: &'static str,
    /// Keywords in a model's name that select this provider, with `_` for `-`. With a leading `^`, a keyword matches
    /// only at the beginning of the name or after a slash.
    pub keywords: &'static [&'static str],
    /// Alternative names of the provider in model prefixes.
    pub(crate) model_prefixes: &'static [&'static str],
    pub strip: PrefixStripping,
    /// True if a vendor also serves models of other vendors. Their names have prefixes. All gateways do so.
    pub(crate) serves_others: bool,
    pub quirks: Quirks,
}

impl ProviderInfo {
    /// True if the provider runs on this machine: it needs no key and costs nothing.
    pub fn is_local(&self) -> bool {
        self.kind == ProviderKind::Local
    }

    /// True if the user runs the server or chooses it freely.
    pub fn is_users_own(&self) -> bool {
        self.is_local() || matches!(self.name, "custom" | "")
    }

    /// True if it takes names of other vendors' models. `is_prefixed` is true if the name has the form `vendor/model`.
    pub(crate) fn takes_foreign_models(&self, is_prefixed: bool) -> bool {
        match self.kind {
            ProviderKind::Standard => self.serves_others && is_prefixed,
            ProviderKind::Gateway => is_prefixed || self.strip == PrefixStripping::All,
            ProviderKind::Local | ProviderKind::Direct | ProviderKind::Login => true,
            ProviderKind::Unsupported => false,
        }
    }

    /// True if the provider works without a key.
    pub fn is_keyless(&self) -> bool {
        matches!(self.kind, ProviderKind::Local | ProviderKind::Direct)
    }
}

/// The kind of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// A vendor that serves its own models.
    Standard,
    /// A service that routes to other vendors' models.
    Gateway,
    /// A server on this machine.
    Local,
    /// Any server; the user configures all of it.
    Direct,
    /// A vendor that requires an account, see `nanobot model provider login`.
    Login,
    /// Supported by the Python program only.
    Unsupported,
}

/// Credentials other than a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// There are none.
    KeyOnly,
    /// Keys of AWS, which sign requests.
    Aws,
    /// A file of Google Cloud, whose content is exchanged for tokens.
    Google,
}

impl ProviderKind {
    /// The display name, in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "vendor",
            Self::Gateway => "gateway",
            Self::Local => "local",
            Self::Direct => "custom",
            Self::Login => "login",
            Self::Unsupported => "unbuilt",
        }
    }
}

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiFormat {
    /// OpenAI chat completions.
    Chat,
    /// Anthropic messages.
    Anthropic,
    /// OpenAI responses.
    Responses,
    /// OpenAI itself: responses for models that reason, chat for the others. Only the responses format preserves
    /// reasoning between calls.
    OpenAi,
}

impl ApiFormat {
    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "OpenAI chat completions",
            Self::Anthropic => "Anthropic messages",
            Self::Responses => "OpenAI responses",
            Self::OpenAi => "OpenAI responses or chat completions",
        }
    }
}

/// The part of a model's name that is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixStripping {
    /// A prefix that names this provider.
    Own,
    /// Everything up to the last slash.
    All,
    /// Nothing: the provider's model names include the prefix.
    None,
}
