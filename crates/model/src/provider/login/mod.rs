//! Logins, for providers with accounts instead of keys: created once by a device flow, stored, and renewed when their token
//! expires. Tokens are never printed, and server messages are masked before they are shown.

use anyhow::Result;
use jiff::Timestamp;
use nanobot_base::error::{Exit, exit_for};
use nanobot_net::auth::login_server::LoginServer;
use nanobot_net::http::Http;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use std::path::Path;

mod github_copilot;
mod openai_codex;
mod token;
mod vendor;

use token::Login;
pub use token::RequestCredentials;
pub(super) use token::{expiry_time, is_fresh};
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
    let file = vendor.token_file(folder);
    let mut login = file.require()?;
    if !login.is_fresh(clock.timestamp()) {
        let server = vendor.login_server(http, clock);
        login = file.renew(clock, |login| renew_login(vendor, &server, endpoints, login))?;
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
    // The directory is checked first, so that no code is entered for a login that cannot be stored.
    durable_file::create_dir(folder)?;
    let server = vendor.login_server(http, clock);
    let login = match vendor {
        Vendor::OpenAiCodex => openai_codex::login(&server, endpoints, on_prompt)?,
        Vendor::GitHubCopilot => github_copilot::login(&server, endpoints, on_prompt)?,
    };
    vendor.token_file(folder).write(&login, clock)
}

/// Removes a login. Returns true if there was one.
pub fn logout(vendor: Vendor, folder: &Path, clock: &Clock) -> Result<bool> {
    vendor.token_file(folder).remove(clock)
}

/// The expiry of the login's token, after which it is renewed; `None` without a login.
///
/// # Errors
/// Status 78 if the login cannot be read.
pub fn expiry(vendor: Vendor, folder: &Path) -> Result<Option<Timestamp>> {
    Ok(vendor.token_file(folder).read()?.map(|login| login.expires_at))
}

/// Checks that there is a login, without a request.
///
/// # Errors
/// Status 78 without a login.
pub fn require(vendor: Vendor, folder: &Path) -> Result<()> {
    vendor.token_file(folder).require().map(drop)
}

/// Renews `login`, unless the previous holder of its lock has done that.
fn renew_login(
    vendor: Vendor,
    server: &LoginServer<'_>,
    endpoints: &LoginEndpoints,
    login: &Login,
) -> Result<Option<Login>> {
    let now = server.clock.timestamp();
    if login.is_fresh(now) {
        return Ok(None);
    }
    let renewed = match vendor {
        Vendor::OpenAiCodex => openai_codex::renew(server, endpoints, login),
        Vendor::GitHubCopilot => github_copilot::renew(server, endpoints, &login.refresh_token),
    };
    match renewed {
        // The old token is valid for some minutes, which may suffice for this run.
        Err(error)
            if matches!(exit_for(&error), Exit::Unavailable | Exit::TryAgain)
                && now < login.expires_at =>
        {
            Ok(None)
        }
        renewed => renewed.map(Some),
    }
}
