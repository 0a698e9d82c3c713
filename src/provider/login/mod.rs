//! Logins, for providers with accounts instead of keys: created once, stored, and renewed when their token expires.
//!
//! A login uses a device flow: the server issues a code, a person enters it in a browser on any machine, and we poll
//! until that is done. Concurrent runs share one login, and some servers accept each renewal token only once and treat
//! a second use as theft. A login is therefore renewed under a lock, and read again once the lock is acquired. Tokens
//! are never printed, and server messages are masked before they are shown.

use crate::error::{Exit, exit_for, fail_with_hint};
use crate::sys::clock::Clock;
use crate::sys::http::Http;
use anyhow::Result;
use device_flow::LoginServer;
use jiff::Timestamp;
use std::path::Path;

mod device_flow;
mod github_copilot;
mod openai_codex;
mod store;
mod token;
mod vendor;

use token::Login;
pub use token::RequestCredentials;
pub use vendor::{DevicePrompt, LoginEndpoints, Vendor};

/// Returns the credentials for a request, renewing the token if necessary.
///
/// # Errors
/// Status 78 without a login, 77 if the login has ended, 69 and 75 if it cannot be renewed at the moment.
pub fn credentials(
    name: &str,
    folder: &Path,
    http: &Http,
    clock: &Clock,
    endpoints: &LoginEndpoints,
) -> Result<RequestCredentials> {
    let vendor = Vendor::from_name(name)?;
    let mut login = require_login(vendor, folder)?;
    if !login.is_fresh(clock.timestamp()) {
        let server = LoginServer::new(vendor, http, clock, endpoints);
        login = renew_login(&server, folder)?;
    }
    Ok(match vendor {
        Vendor::OpenAiCodex => openai_codex::to_credentials(login),
        Vendor::GitHubCopilot => github_copilot::to_credentials(login),
    })
}

/// Logs in. Passes the instructions for the person to `on_prompt`, then waits until they are followed.
///
/// # Errors
/// Status 77 if the login is refused, 75 if the code was not entered in time, 69 if the server is unreachable.
pub fn login(
    vendor: Vendor,
    folder: &Path,
    http: &Http,
    clock: &Clock,
    endpoints: &LoginEndpoints,
    on_prompt: &mut dyn FnMut(DevicePrompt<'_>),
) -> Result<()> {
    // First, so that a code is not entered for a login that cannot be stored.
    store::create_dir(folder)?;
    let server = LoginServer::new(vendor, http, clock, endpoints);
    let login = match vendor {
        Vendor::OpenAiCodex => openai_codex::login(&server, on_prompt)?,
        Vendor::GitHubCopilot => github_copilot::login(&server, on_prompt)?,
    };
    let _lock = store::lock(vendor, folder, clock)?;
    store::write(vendor, folder, &login)
}

/// Removes a login. Returns true if there was one.
pub fn logout(vendor: Vendor, folder: &Path, clock: &Clock) -> Result<bool> {
    store::remove(vendor, folder, clock)
}

/// The expiry of the login's token, after which it is renewed; `None` without a login.
///
/// # Errors
/// Status 78 if the login cannot be read.
pub fn expiry(vendor: Vendor, folder: &Path) -> Result<Option<Timestamp>> {
    Ok(store::read(vendor, folder)?.map(|login| login.expires_at))
}

fn require_login(vendor: Vendor, folder: &Path) -> Result<Login> {
    store::read(vendor, folder)?.ok_or_else(|| {
        let cause = format!("not logged in to {}", vendor.label());
        fail_with_hint(Exit::Config, cause, vendor.login_command())
    })
}

/// Renews the token, and stores the new one before it is used.
fn renew_login(server: &LoginServer<'_>, folder: &Path) -> Result<Login> {
    let (vendor, clock) = (server.vendor, server.clock);
    let _lock = store::lock(vendor, folder, clock)?;
    let login = require_login(vendor, folder)?;
    let now = clock.timestamp();
    if login.is_fresh(now) {
        // The previous holder of the lock has renewed it.
        return Ok(login);
    }
    let renewed = match vendor {
        Vendor::OpenAiCodex => openai_codex::renew(server, &login),
        Vendor::GitHubCopilot => github_copilot::renew(server, &login.refresh_token),
    };
    match renewed {
        Ok(new) => {
            store::write(vendor, folder, &new)?;
            Ok(new)
        }
        // The old token is valid for some minutes, which may suffice for this run.
        Err(error) if exit_for(&error) == Exit::Unavailable && now < login.expires_at => Ok(login),
        Err(error) => Err(error),
    }
}
