//! A row of the table of providers.

use crate::provider::quirks::Quirks;

/// A provider.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// As in the config, under `providers`.
    pub name: &'static str,
    pub label: &'static str,
    pub kind: Kind,
    pub format: Format,
    /// The variables that its vendor documents for the key, the first one before all.
    pub key_variables: &'static [&'static str],
    /// The header that the key goes in; `authorization` carries it as a bearer.
    pub key_header: &'static str,
    /// How its keys begin; empty where they have no form.
    pub key_prefix: &'static str,
    /// The address, without a slash at its end; empty where it must be configured.
    pub base: &'static str,
    /// A word in an address that gives it away.
    pub base_word: &'static str,
    /// What an address ends in, and is given where a user left it out.
    pub base_tail: &'static str,
    /// The model that is asked where none is configured.
    pub model: &'static str,
    /// Words in a model's name that point here, with `_` for `-`. After `^` only at the beginning of the name, or of the
    /// part behind a slash.
    pub keywords: &'static [&'static str],
    /// Other names that it goes by in front of a model's.
    pub prefixes: &'static [&'static str],
    pub strip: Strip,
    pub quirks: Quirks,
}

impl Entry {
    /// It runs on this machine: no key is needed, and nothing is paid.
    pub fn is_local(&self) -> bool {
        self.kind == Kind::Local
    }

    /// It works without a key.
    pub fn is_keyless(&self) -> bool {
        matches!(self.kind, Kind::Local | Kind::Direct)
    }
}

/// What sort of provider it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A vendor of its own models.
    Standard,
    /// It routes to the models of others.
    Gateway,
    /// It runs on this machine.
    Local,
    /// The user says everything about it.
    Direct,
    /// It is reached with an account, by `nanobot provider login`.
    Login,
    /// The Python program has it, and this one does not.
    Unbuilt,
}

impl Kind {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "vendor",
            Self::Gateway => "gateway",
            Self::Local => "local",
            Self::Direct => "custom",
            Self::Login => "login",
            Self::Unbuilt => "unbuilt",
        }
    }
}

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenAI chat completions.
    Chat,
    /// Anthropic messages.
    Anthropic,
    /// OpenAI responses.
    Responses,
    /// At OpenAI itself: responses for models that reason, since only there their reasoning is kept from call to call.
    OpenAi,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "OpenAI chat completions",
            Self::Anthropic => "Anthropic messages",
            Self::Responses => "OpenAI responses",
            Self::OpenAi => "OpenAI, as the model wants it",
        }
    }
}

/// Which part of a model's name stays off the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strip {
    /// A prefix that names this provider.
    Own,
    /// Everything up to the last slash.
    All,
    /// Nothing: its models are called so.
    None,
}
