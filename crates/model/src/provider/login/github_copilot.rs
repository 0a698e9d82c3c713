//! GitHub Copilot: logs in with a GitHub account, by GitHub's device flow (RFC 8628).
//!
//! The flow yields a long-lived GitHub token. It is exchanged for a Copilot token, which lasts half an hour and names
//! the API address of the account's plan. Copilot accepts only known editors.

use super::token::{Login, RENEWAL_MARGIN, RequestCredentials, expiry_time};
use super::vendor::{DevicePrompt, LoginEndpoints};
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_net::auth::device_flow::PollResult;
use nanobot_net::auth::login_server::{LoginResponse, LoginServer, RequestBody};
use nanobot_net::auth::token_file::LoginSecret;
use nanobot_net::web_url;
use std::time::Duration;

/// The public client id of Copilot's editor plugins. Copilot accepts only tokens of this client.
const CLIENT_ID: &str = "Iv1.b507a08c87ecfe98";
/// The scope that identifies the account; Copilot needs no more.
const SCOPE: &str = "read:user";
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The editor that we identify as. Copilot refuses requests that name none.
const EDITOR_HEADERS: [(&str, &str); 3] = [
    ("editor-version", "vscode/1.99.0"),
    ("editor-plugin-version", "copilot-chat/0.26.7"),
    ("copilot-integration-id", "vscode-chat"),
];
/// Default lifetime of a code and default poll interval, if the server names none.
const DEFAULT_CODE_LIFETIME: Duration = Duration::from_secs(15 * 60);
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Runs the device flow.
pub(super) fn login(
    server: &LoginServer<'_>,
    endpoints: &LoginEndpoints,
    on_prompt: &mut dyn FnMut(DevicePrompt<'_>),
) -> Result<Login> {
    let base = &endpoints.github;
    let form = [("client_id", CLIENT_ID), ("scope", SCOPE)];
    let device_code =
        server.send(&format!("{base}/login/device/code"), &[], RequestBody::Form(&form))?;
    if !device_code.is_success() || device_code.error_code().is_some() {
        return Err(device_code.to_error("log in"));
    }
    let url = format!("{base}/login/oauth/access_token");
    let poll_form = [
        ("client_id", CLIENT_ID),
        ("device_code", device_code.required_text("device_code")?),
        ("grant_type", GRANT_TYPE),
    ];
    let prompt = DevicePrompt {
        url: device_code.required_text("verification_uri")?,
        code: device_code.required_text("user_code")?,
        lifetime: device_code.seconds("expires_in").unwrap_or(DEFAULT_CODE_LIFETIME),
    };
    let interval = device_code.seconds("interval").unwrap_or(DEFAULT_POLL_INTERVAL);
    on_prompt(prompt);
    let response = server.poll(interval, prompt.lifetime, &mut || {
        interpret_poll(server.send(&url, &[], RequestBody::Form(&poll_form))?)
    })?;
    renew(server, endpoints, &response.required_text("access_token")?.into())
}

/// Requests a new Copilot token. The `refresh_token` is GitHub's own token.
pub(super) fn renew(
    server: &LoginServer<'_>,
    endpoints: &LoginEndpoints,
    refresh_token: &LoginSecret,
) -> Result<Login> {
    let url = format!("{}/copilot_internal/v2/token", endpoints.github_api);
    let authorization = format!("token {}", refresh_token.expose());
    let headers = [&EDITOR_HEADERS[..], &[("authorization", &authorization)]].concat();
    let response = server.send(&url, &headers, RequestBody::None)?;
    let response = response.require_success("issue a token")?;
    let base = response.optional_text("endpoints/api");
    if let Some(base) =
        base.filter(|base| !base.starts_with("https://") && !web_url::is_local_cleartext(base))
    {
        let cause = format!("GitHub Copilot sent an insecure API address: {base}");
        return Err(fail(Exit::Unavailable, cause));
    }
    // The server names the time of the renewal, which is before the expiry by the margin.
    let lifetime = response.number("refresh_in").map(|seconds| {
        let margin = i64::try_from(RENEWAL_MARGIN.as_secs()).unwrap_or(0);
        seconds.saturating_add(margin)
    });
    let end = response.number("expires_at");
    Ok(Login {
        token: response.required_text("token")?.into(),
        expires_at: expiry_time(server.clock.timestamp(), end, lifetime),
        refresh_token: refresh_token.clone(),
        account_id: None,
        base_url: base.map(|base| base.trim_end_matches('/').to_owned()),
    })
}

/// The credentials that `login` gives to requests.
pub(super) fn to_credentials(login: Login) -> RequestCredentials {
    let headers = EDITOR_HEADERS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let token = login.token.secret().clone();
    RequestCredentials { token, base_url: login.base_url, headers: headers.into() }
}

/// Interprets the response to a poll. GitHub reports "not yet" with status 200, others with 400.
fn interpret_poll(response: LoginResponse<'_>) -> Result<PollResult<LoginResponse<'_>>> {
    match response.error_code() {
        None if response.is_success() => Ok(PollResult::Granted(response)),
        _ => response.poll_result("log in"),
    }
}
