//! GitHub Copilot: logs in with a GitHub account, by GitHub's device flow (RFC 8628).
//!
//! The flow yields a long-lived GitHub token. It is exchanged for a Copilot token, which lasts half an hour and names
//! the API address of the account's plan. Copilot accepts only known editors.

use super::exchange::{Sent, Server, Told, Word};
use super::token::{Access, Login, MARGIN, expires};
use super::vendor::Prompt;
use crate::error::{Exit, fail};
use crate::sys::secret::Secret;
use crate::sys::web_url;
use anyhow::Result;
use std::time::Duration;

/// The public client id of Copilot's editor plugins. Copilot accepts only tokens of this client.
const CLIENT: &str = "Iv1.b507a08c87ecfe98";
/// The scope that identifies the account; Copilot needs no more.
const SCOPE: &str = "read:user";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The editor that we identify as. Copilot refuses requests that name none.
const EDITOR: [(&str, &str); 3] = [
    ("editor-version", "vscode/1.99.0"),
    ("editor-plugin-version", "copilot-chat/0.26.7"),
    ("copilot-integration-id", "vscode-chat"),
];
/// Default lifetime of a code and default poll interval, if the server names none.
const VALID: Duration = Duration::from_secs(15 * 60);
const INTERVAL: Duration = Duration::from_secs(5);

/// Runs the device flow.
pub(super) fn login(server: &Server<'_>, on_prompt: &mut dyn FnMut(Prompt<'_>)) -> Result<Login> {
    let base = &server.endpoints.github;
    let sent = [("client_id", CLIENT), ("scope", SCOPE)];
    let device_code = server.ask(&format!("{base}/login/device/code"), &[], Sent::Form(&sent))?;
    if !device_code.is_good() || device_code.failure().is_some() {
        return Err(device_code.refusal("log in"));
    }
    let url = format!("{base}/login/oauth/access_token");
    let poll_form = [
        ("client_id", CLIENT),
        ("device_code", device_code.text("device_code")?),
        ("grant_type", GRANT),
    ];
    let prompt = Prompt {
        address: device_code.text("verification_uri")?,
        code: device_code.text("user_code")?,
        valid: device_code.seconds("expires_in").unwrap_or(VALID),
    };
    let interval = device_code.seconds("interval").unwrap_or(INTERVAL);
    let granted = server.wait(prompt, interval, on_prompt, &mut || {
        word(server.ask(&url, &[], Sent::Form(&poll_form))?)
    })?;
    renew(server, &Secret::new(granted.text("access_token")?))
}

/// Requests a new Copilot token, with GitHub's own token as `renewal`.
pub(super) fn renew(server: &Server<'_>, renewal: &Secret) -> Result<Login> {
    let url = format!("{}/copilot_internal/v2/token", server.endpoints.github_api);
    let response = server.ask(&url, &EDITOR, Sent::Get(renewal))?;
    if !response.is_good() {
        return Err(response.refusal("issue a token"));
    }
    let base = response.maybe_text("endpoints/api");
    if let Some(base) =
        base.filter(|base| !base.starts_with("https://") && !web_url::is_local_cleartext(base))
    {
        let cause = format!("GitHub Copilot sent an insecure API address: {base}");
        return Err(fail(Exit::Unavailable, cause));
    }
    // The server names the time to renew; `expires` needs the end, which is later by the margin.
    let length = response.number("refresh_in").map(|seconds| {
        let margin = i64::try_from(MARGIN.as_secs()).unwrap_or(0);
        seconds.saturating_add(margin)
    });
    let end = response.number("expires_at");
    Ok(Login {
        token: Secret::new(response.text("token")?),
        expires: expires(server.clock.timestamp(), end, length),
        renewal: renewal.clone(),
        account: None,
        base: base.map(|base| base.trim_end_matches('/').to_owned()),
    })
}

/// The credentials that `login` gives to requests.
pub(super) fn access(login: Login) -> Access {
    let headers = EDITOR.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Access {
        token: login.token,
        base: login.base,
        headers: headers.into(),
    }
}

/// Interprets the response to a poll. GitHub reports "not yet" with status 200, others with 400.
fn word(response: Told) -> Result<Word<Told>> {
    match response.failure() {
        None if response.is_good() => Ok(Word::Yes(response)),
        _ => response.word("log in"),
    }
}
