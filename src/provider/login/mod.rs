//! Logins, for providers that have accounts instead of keys: made once, kept, and renewed when their token runs out.
//!
//! A login is made in a device flow: the server names a code, a person enters it in a browser on any machine, and we
//! ask until that is done. Runs side by side share one login, and some servers take a renewal only once and then count
//! a second one as theft: so it is renewed under a lock, and looked at again once the lock is taken. No token is ever
//! printed, and what a server says is masked before it is repeated.

use crate::error::{Exit, exit_of, fail, fail_hint};
use crate::sys::clock::Clock;
use crate::sys::env::{Env, TEST_LOGIN_BASE};
use crate::sys::http::Http;
use crate::sys::secret::Secret;
use crate::sys::web_url;
use anyhow::Result;
use exchange::Server;
use jiff::Timestamp;
use std::path::Path;
use std::time::Duration;

mod exchange;
mod github_copilot;
mod openai_codex;
mod store;

/// What a request needs to be let in.
#[derive(Clone, Debug)]
pub struct Access {
    /// Goes into the `authorization` header, as a bearer's.
    pub token: Secret,
    /// Where to ask, without a slash at the end, for a login that decides it.
    pub base: Option<String>,
    pub headers: Vec<(String, String)>,
}

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
    fn hint(self) -> String {
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

/// A login as it is kept.
#[derive(Clone, Debug, PartialEq)]
struct Login {
    token: Secret,
    expires: Timestamp,
    /// What a new token is asked for with.
    renewal: Secret,
    /// The account's id, where requests must name it.
    account: Option<String>,
    /// Where requests go, where the server decides it.
    base: Option<String>,
}

/// A token is renewed so long before its end: a turn that begins now should not outlive it.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// How long a token is taken to be good when the server does not say.
const UNKNOWN: Duration = Duration::from_secs(3600);

impl Login {
    fn is_fresh(&self, now: Timestamp) -> bool {
        after(now, MARGIN) < self.expires
    }
}

/// What lets requests in, renewed where it has to be.
///
/// # Errors
/// Status 78 when nobody is logged in, 77 when the login has ended, 69 and 75 when it cannot be renewed just now.
pub fn access(
    name: &str,
    folder: &Path,
    http: &Http,
    clock: &Clock,
    endpoints: &Endpoints,
) -> Result<Access> {
    let vendor = Vendor::named(name)?;
    let mut login = existing(vendor, folder)?;
    if !login.is_fresh(clock.timestamp()) {
        let server = Server::new(vendor, http, clock, endpoints);
        login = renewed(&server, folder)?;
    }
    Ok(match vendor {
        Vendor::OpenAiCodex => openai_codex::access(login),
        Vendor::GitHubCopilot => github_copilot::access(login),
    })
}

/// Log in. `tell` is given what a person has to do; then it is waited for until that is done.
///
/// # Errors
/// Status 77 when it is refused, 75 when nobody entered the code in time, 69 when the server cannot be reached.
pub fn login(
    vendor: Vendor,
    folder: &Path,
    http: &Http,
    clock: &Clock,
    endpoints: &Endpoints,
    tell: &mut dyn FnMut(Prompt<'_>),
) -> Result<()> {
    // First, so that nobody enters a code for a login that cannot be kept.
    store::prepare(folder)?;
    let server = Server::new(vendor, http, clock, endpoints);
    let login = match vendor {
        Vendor::OpenAiCodex => openai_codex::login(&server, tell)?,
        Vendor::GitHubCopilot => github_copilot::login(&server, tell)?,
    };
    let _lock = store::lock(vendor, folder, clock)?;
    store::write(vendor, folder, &login)
}

/// Forget a login. Whether there was one.
pub fn logout(vendor: Vendor, folder: &Path, clock: &Clock) -> Result<bool> {
    store::remove(vendor, folder, clock)
}

/// Until when the token of a login is good, after which it is renewed; `None` when nobody is logged in.
///
/// # Errors
/// Status 78 when the login cannot be read.
pub fn expiry(vendor: Vendor, folder: &Path) -> Result<Option<Timestamp>> {
    Ok(store::read(vendor, folder)?.map(|login| login.expires))
}

fn existing(vendor: Vendor, folder: &Path) -> Result<Login> {
    store::read(vendor, folder)?.ok_or_else(|| {
        let cause = format!("nobody is logged in to {}", vendor.label());
        fail_hint(Exit::Config, cause, vendor.hint())
    })
}

/// The login with a new token, which is kept before it is used.
fn renewed(server: &Server<'_>, folder: &Path) -> Result<Login> {
    let (vendor, clock) = (server.vendor, server.clock);
    let _lock = store::lock(vendor, folder, clock)?;
    let login = existing(vendor, folder)?;
    let now = clock.timestamp();
    if login.is_fresh(now) {
        // Whoever had the lock before us has done it.
        return Ok(login);
    }
    let renewed = match vendor {
        Vendor::OpenAiCodex => openai_codex::renew(server, &login),
        Vendor::GitHubCopilot => github_copilot::renew(server, &login.renewal),
    };
    match renewed {
        Ok(new) => {
            store::write(vendor, folder, &new)?;
            Ok(new)
        }
        // The old one has minutes left, which may be all that this run needs.
        Err(error) if exit_of(&error) == Exit::Unavailable && now < login.expires => Ok(login),
        Err(error) => Err(error),
    }
}

/// When a token runs out: at `end`, in seconds of Unix, or `length` seconds from now, whichever comes first. The length
/// is by our own clock, so that one which is late does no harm.
fn expires(now: Timestamp, end: Option<i64>, length: Option<i64>) -> Timestamp {
    let end = end.and_then(|end| Timestamp::from_second(end).ok());
    let length = length.map(|length| Duration::from_secs(u64::try_from(length).unwrap_or(0)));
    let first = end
        .into_iter()
        .chain(length.map(|length| after(now, length)))
        .min();
    first.unwrap_or_else(|| after(now, UNKNOWN))
}

fn after(time: Timestamp, length: Duration) -> Timestamp {
    time.checked_add(length).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Login, Vendor, expires};
    use crate::sys::secret::Secret;
    use jiff::Timestamp;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_ends_at_the_earlier_of_two_ends() {
        let check = |end, length, expect: i64| {
            assert_eq!(
                expires(at(1000), end, length),
                at(expect),
                "{end:?} {length:?}"
            );
        };
        check(Some(5000), None, 5000);
        check(None, Some(60), 1060);
        check(Some(5000), Some(60), 1060);
        check(Some(1010), Some(60), 1010);
        check(None, Some(-60), 1000);
        check(None, None, 4600);
        check(Some(i64::MAX), None, 4600);
        assert_eq!(expires(at(0), None, Some(i64::MAX)), Timestamp::MAX);
    }

    #[test]
    fn a_token_is_renewed_five_minutes_before_its_end() {
        let check = |left: i64, expect: bool| {
            let login = Login {
                token: Secret::new("token"),
                expires: at(1000 + left),
                renewal: Secret::new("renewal"),
                account: None,
                base: None,
            };
            assert_eq!(login.is_fresh(at(1000)), expect, "{left}");
        };
        check(3600, true);
        check(301, true);
        check(300, false);
        check(0, false);
        check(-1, false);
    }

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
