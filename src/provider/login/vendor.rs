//! The vendors that have logins, the addresses of their servers, and the prompt of the device flow.

use crate::error::{Exit, fail, fail_hint};
use crate::sys::env::{Env, TEST_LOGIN_BASE};
use crate::sys::web_url;
use anyhow::Result;
use std::time::Duration;

/// Who can be logged in to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    OpenAiCodex,
    GitHubCopilot,
}

impl Vendor {
    pub const ALL: [Self; 2] = [Self::OpenAiCodex, Self::GitHubCopilot];

    /// The one that `name` means, in any of the ways in which names are written here.
    ///
    /// # Errors
    /// Status 2 when there is none.
    pub fn named(name: &str) -> Result<Self> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
        let found = Self::ALL
            .into_iter()
            .find(|vendor| plain(vendor.name()) == plain(name));
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let cause = format!("there is no login for `{name}`");
            fail_hint(Exit::Usage, cause, format!("one of {names}"))
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiCodex => "openai-codex",
            Self::GitHubCopilot => "github-copilot",
        }
    }

    /// The name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::OpenAiCodex => "OpenAI Codex",
            Self::GitHubCopilot => "GitHub Copilot",
        }
    }

    /// The command that mends a login.
    pub(super) fn hint(self) -> String {
        format!("nanobot provider login {}", self.name())
    }
}

/// Where the servers of logins are, without a slash at the end.
#[derive(Clone, Debug)]
pub struct Endpoints {
    pub openai: String,
    pub github: String,
    pub github_api: String,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            openai: "https://auth.openai.com".into(),
            github: "https://github.com".into(),
            github_api: "https://api.github.com".into(),
        }
    }
}

impl Endpoints {
    /// The vendors' own, or those of a test.
    ///
    /// # Errors
    /// Status 78 when those of a test are not on this machine: tokens would go there.
    pub fn from_env(env: &Env) -> Result<Self> {
        match env.get(TEST_LOGIN_BASE) {
            None => Ok(Self::default()),
            Some(base) if web_url::is_local_cleartext(base) => {
                let base = base.trim_end_matches('/');
                Ok(Self {
                    openai: base.into(),
                    github: base.into(),
                    github_api: base.into(),
                })
            }
            Some(_) => {
                let cause = format!("`{TEST_LOGIN_BASE}` is no http address of this machine");
                Err(fail(Exit::Config, cause))
            }
        }
    }
}

/// What a person is to do.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    pub address: &'a str,
    /// To be entered there.
    pub code: &'a str,
    /// How long the code can be used.
    pub valid: Duration,
}

#[cfg(test)]
mod tests {
    use super::Vendor;

    #[test]
    fn names_in_their_spellings() {
        for name in ["openai-codex", "openai_codex", "openaiCodex"] {
            assert_eq!(Vendor::named(name).unwrap(), Vendor::OpenAiCodex, "{name}");
        }
        assert_eq!(
            Vendor::named("githubCopilot").unwrap(),
            Vendor::GitHubCopilot
        );
        for name in ["openai", "copilot", ""] {
            assert!(Vendor::named(name).is_err(), "{name}");
        }
    }
}
