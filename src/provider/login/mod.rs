//! Logins, for providers that have accounts instead of keys: made once, kept, and renewed when their token runs out.
//!
//! A login is made in a device flow: the server names a code, a person enters it in a browser on any machine, and we
//! ask until that is done. Runs side by side share one login, and some servers take a renewal only once and then count
//! a second one as theft: so it is renewed under a lock, and looked at again once the lock is taken. No token is ever
//! printed, and what a server says is masked before it is repeated.

use crate::error::{Exit, exit_of, fail_hint};
use crate::sys::clock::Clock;
use crate::sys::http::Http;
use anyhow::Result;
use exchange::Server;
use jiff::Timestamp;
use std::path::Path;

mod exchange;
mod github_copilot;
mod openai_codex;
mod store;
mod token;
mod vendor;

pub use token::Access;
use token::Login;
pub use vendor::{Endpoints, Prompt, Vendor};

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
