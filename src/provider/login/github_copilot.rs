//! GitHub Copilot: a GitHub account, by GitHub's device flow, which is that of RFC 8628.
//!
//! What a person grants is a token of GitHub, which lasts; with it a token of Copilot is asked for, which lasts half an
//! hour and names the address that goes with the account's plan. Copilot lets in nothing but editors that it knows.

use super::exchange::{Sent, Server, Told, Word};
use super::token::{Access, Login, MARGIN, expires};
use super::vendor::Prompt;
use crate::error::{Exit, fail};
use crate::sys::secret::Secret;
use crate::sys::web_url;
use anyhow::Result;
use std::time::Duration;

/// The public client of Copilot's editor plugins: its tokens are the ones that Copilot takes.
const CLIENT: &str = "Iv1.b507a08c87ecfe98";
/// To know who it is; Copilot asks for no more.
const SCOPE: &str = "read:user";
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The editor we are to Copilot, which refuses a request that names none.
const EDITOR: [(&str, &str); 3] = [
    ("editor-version", "vscode/1.99.0"),
    ("editor-plugin-version", "copilot-chat/0.26.7"),
    ("copilot-integration-id", "vscode-chat"),
];
/// How long a code can be entered, and how long to wait between two questions, where the server does not say.
const VALID: Duration = Duration::from_secs(15 * 60);
const INTERVAL: Duration = Duration::from_secs(5);

pub(super) fn login(server: &Server<'_>, tell: &mut dyn FnMut(Prompt<'_>)) -> Result<Login> {
    let base = &server.endpoints.github;
    let sent = [("client_id", CLIENT), ("scope", SCOPE)];
    let begun = server.ask(&format!("{base}/login/device/code"), &[], Sent::Form(&sent))?;
    if !begun.is_good() || begun.failure().is_some() {
        return Err(begun.refusal("log in"));
    }
    let url = format!("{base}/login/oauth/access_token");
    let asked = [
        ("client_id", CLIENT),
        ("device_code", begun.text("device_code")?),
        ("grant_type", GRANT),
    ];
    let prompt = Prompt {
        address: begun.text("verification_uri")?,
        code: begun.text("user_code")?,
        valid: begun.seconds("expires_in").unwrap_or(VALID),
    };
    let interval = begun.seconds("interval").unwrap_or(INTERVAL);
    let granted = server.wait(prompt, interval, tell, &mut || {
        word(server.ask(&url, &[], Sent::Form(&asked))?)
    })?;
    renew(server, &Secret::new(granted.text("access_token")?))
}

/// The login with a new token, for which GitHub's own is `renewal`.
pub(super) fn renew(server: &Server<'_>, renewal: &Secret) -> Result<Login> {
    let url = format!("{}/copilot_internal/v2/token", server.endpoints.github_api);
    let told = server.ask(&url, &EDITOR, Sent::Get(renewal))?;
    if !told.is_good() {
        return Err(told.refusal("give a token"));
    }
    let base = told.maybe_text("endpoints/api");
    if let Some(base) =
        base.filter(|base| !base.starts_with("https://") && !web_url::is_local_cleartext(base))
    {
        let cause = format!("GitHub Copilot names an address that is not safe: {base}");
        return Err(fail(Exit::Unavailable, cause));
    }
    // It says when to renew, and we count to the end.
    let length = told.number("refresh_in").map(|seconds| {
        let margin = i64::try_from(MARGIN.as_secs()).unwrap_or(0);
        seconds.saturating_add(margin)
    });
    let end = told.number("expires_at");
    Ok(Login {
        token: Secret::new(told.text("token")?),
        expires: expires(server.clock.timestamp(), end, length),
        renewal: renewal.clone(),
        account: None,
        base: base.map(|base| base.trim_end_matches('/').to_owned()),
    })
}

pub(super) fn access(login: Login) -> Access {
    let headers = EDITOR.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Access {
        token: login.token,
        base: login.base,
        headers: headers.into(),
    }
}

/// What the answer to a poll means. GitHub says "not yet" with status 200, others with 400.
fn word(told: Told) -> Result<Word<Told>> {
    match told.failure() {
        None if told.is_good() => Ok(Word::Yes(told)),
        _ => told.word("log in"),
    }
}
