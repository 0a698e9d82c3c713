//! The vendors with logins, the addresses of their servers, and the prompt of the device flow.

use super::token::Login;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_net::auth::login_server::LoginServer;
use nanobot_net::auth::token_file::TokenFile;
use nanobot_net::http::Http;
use nanobot_net::web_url;
use nanobot_os::clock::Clock;
use nanobot_os::env::Env;
use nanobot_os::test_hooks;
use std::path::Path;
use std::time::Duration;

/// A vendor that supports logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    OpenAiCodex,
    GitHubCopilot,
}

impl Vendor {
    /// All vendors with logins.
    pub const ALL: [Self; 2] = [Self::OpenAiCodex, Self::GitHubCopilot];

    /// Finds the vendor `name`, ignoring case, hyphens and underscores.
    ///
    /// # Errors
    /// Status 2 if there is none.
    pub fn from_name(name: &str) -> Result<Self> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
        let is_named = |vendor: &Self| plain(vendor.provider_name()) == plain(name);
        Self::ALL.into_iter().find(is_named).ok_or_else(|| {
            let names = Self::ALL.map(Self::provider_name).join(", ");
            let cause = format!("provider `{name}` does not support logins");
            fail(Exit::Usage, cause).with_hint(format!("one of {names}"))
        })
    }

    /// The name of its provider, as in the config.
    pub fn provider_name(self) -> &'static str {
        match self {
            Self::OpenAiCodex => "openaiCodex",
            Self::GitHubCopilot => "githubCopilot",
        }
    }

    /// The name of its file, without the extension.
    fn file_name(self) -> &'static str {
        match self {
            Self::OpenAiCodex => "openai-codex",
            Self::GitHubCopilot => "github-copilot",
        }
    }

    /// The display name.
    pub fn label(self) -> &'static str {
        match self {
            Self::OpenAiCodex => "OpenAI Codex",
            Self::GitHubCopilot => "GitHub Copilot",
        }
    }

    /// The command that repairs a login.
    fn login_command(self) -> String {
        format!("nanobot model provider login {}", self.provider_name())
    }

    /// The file of its login in `folder`.
    pub(super) fn token_file(self, folder: &Path) -> TokenFile<Login> {
        TokenFile::new(folder, self.file_name(), self.label(), self.login_command())
    }

    pub(super) fn login_server<'a>(self, http: &'a Http, clock: &'a Clock) -> LoginServer<'a> {
        LoginServer { http, clock, label: self.label(), login_command: self.login_command() }
    }
}

/// The base URLs of the login servers, without a trailing slash.
#[derive(Clone, Debug)]
pub struct LoginEndpoints {
    pub openai: String,
    pub github: String,
    pub(crate) github_api: String,
    pub(crate) google: String,
}

impl Default for LoginEndpoints {
    fn default() -> Self {
        Self {
            openai: "https://auth.openai.com".into(),
            github: "https://github.com".into(),
            github_api: "https://api.github.com".into(),
            google: "https://oauth2.googleapis.com".into(),
        }
    }
}

impl LoginEndpoints {
    /// The vendors' own servers, or the servers set for a test.
    ///
    /// # Errors
    /// Status 78 if a test's servers are not on this machine, because tokens would be sent to them.
    pub fn from_env(env: &Env) -> Result<Self> {
        match test_hooks::LOGIN_BASE.get(env) {
            None => Ok(Self::default()),
            Some(base) if web_url::is_local_cleartext(base) => {
                let base = base.trim_end_matches('/');
                Ok(Self {
                    openai: base.into(),
                    github: base.into(),
                    github_api: base.into(),
                    google: base.into(),
                })
            }
            Some(_) => {
                let hook = test_hooks::LOGIN_BASE;
                let cause = format!("`{hook}` is not an http address of this machine");
                Err(fail(Exit::Config, cause))
            }
        }
    }
}

/// The instructions for a person in a device flow.
#[derive(Clone, Copy, Debug)]
pub struct DevicePrompt<'a> {
    pub url: &'a str,
    /// The code to enter at `url`.
    pub code: &'a str,
    /// The lifetime of the code.
    pub lifetime: Duration,
}

#[cfg(test)]
mod tests {
    use super::Vendor;

    #[test]
    fn names_in_their_spellings() {
        for name in ["openai-codex", "openai_codex", "openaiCodex"] {
            assert_eq!(Vendor::from_name(name).unwrap(), Vendor::OpenAiCodex, "{name}");
        }
        assert_eq!(Vendor::from_name("githubCopilot").unwrap(), Vendor::GitHubCopilot);
        for name in ["openai", "copilot", ""] {
            assert!(Vendor::from_name(name).is_err(), "{name}");
        }
    }
}
