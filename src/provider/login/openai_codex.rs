//! OpenAI Codex: logs in with a ChatGPT account, by the device flow of OpenAI's own command line.
//!
//! The flow is not that of RFC 8628: the server generates the PKCE verifier itself and returns it with the
//! authorization code, which is then exchanged as in a browser flow. Each renewal issues the next renewal token and
//! invalidates the old one.

use super::exchange::{Sent, Server, Told, Word};
use super::token::{Access, Login, expires};
use super::vendor::Prompt;
use crate::error::{Exit, fail_hint};
use crate::sys::secret::Secret;
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use std::time::Duration;

/// The public client id of OpenAI's command line. Accounts accept no other client.
const CLIENT: &str = "app_EMoamEEZ73f0CkXaXp7hrann";
/// The action named in errors, except those of a renewal.
const DOING: &str = "log in";
/// Lifetime of a code. The server does not name it.
const VALID: Duration = Duration::from_secs(15 * 60);
/// Default poll interval, if the server names none.
const INTERVAL: Duration = Duration::from_secs(5);
/// The claim of the token that holds OpenAI's account data.
const ACCOUNT: &str = "https://api.openai.com/auth";

/// Runs the device flow.
pub(super) fn login(server: &Server<'_>, on_prompt: &mut dyn FnMut(Prompt<'_>)) -> Result<Login> {
    let base = &server.endpoints.openai;
    let url = format!("{base}/api/accounts/deviceauth/usercode");
    let device_code = server.ask(&url, &[], Sent::Json(&[("client_id", CLIENT)]))?;
    if device_code.status == 404 {
        let cause = "this account does not allow logins with a device code";
        let hint = "enable device codes in the security settings of ChatGPT, then retry";
        return Err(fail_hint(Exit::Refused, cause, hint));
    }
    if !device_code.is_good() {
        return Err(device_code.refusal(DOING));
    }
    let (device, code) = (
        device_code.text("device_auth_id")?,
        device_code.text("user_code")?,
    );
    let url = format!("{base}/api/accounts/deviceauth/token");
    let poll_body = [("device_auth_id", device), ("user_code", code)];
    let prompt = Prompt {
        address: &format!("{base}/codex/device"),
        code,
        valid: VALID,
    };
    let interval = device_code.seconds("interval").unwrap_or(INTERVAL);
    let entered = server.wait(prompt, interval, on_prompt, &mut || {
        word(server.ask(&url, &[], Sent::Json(&poll_body))?)
    })?;
    let form = [
        ("grant_type", "authorization_code"),
        ("code", entered.text("authorization_code")?),
        ("redirect_uri", &format!("{base}/deviceauth/callback")),
        ("client_id", CLIENT),
        ("code_verifier", entered.text("code_verifier")?),
    ];
    let response = server.ask(&format!("{base}/oauth/token"), &[], Sent::Form(&form))?;
    if !response.is_good() {
        return Err(response.refusal(DOING));
    }
    let renewal = Secret::new(response.text("refresh_token")?);
    read(server, &response, renewal, None)
}

/// Requests a new token.
pub(super) fn renew(server: &Server<'_>, login: &Login) -> Result<Login> {
    let sent = [
        ("client_id", CLIENT),
        ("grant_type", "refresh_token"),
        ("refresh_token", login.renewal.expose()),
    ];
    let url = format!("{}/oauth/token", server.endpoints.openai);
    let response = server.ask(&url, &[], Sent::Json(&sent))?;
    if !response.is_good() {
        return Err(response.refusal("renew the login"));
    }
    let next = response.maybe_text("refresh_token");
    let renewal = next.map_or_else(|| login.renewal.clone(), Secret::new);
    read(server, &response, renewal, login.account.clone())
}

/// The credentials that `login` gives to requests.
pub(super) fn access(login: Login) -> Access {
    let mut headers = vec![
        ("originator".to_owned(), "nanobot".to_owned()),
        (
            "openai-beta".to_owned(),
            "responses=experimental".to_owned(),
        ),
    ];
    headers.extend(
        login
            .account
            .map(|account| ("chatgpt-account-id".to_owned(), account)),
    );
    Access {
        token: login.token,
        base: login.base,
        headers,
    }
}

/// Interprets the response to a poll. The server reports "not yet" by status; the error code varies.
fn word(response: Told) -> Result<Word<Told>> {
    match (response.failure(), response.status) {
        (Some("slow_down" | "expired_token" | "access_denied"), _) => response.word(DOING),
        (Some("deviceauth_authorization_pending"), _) | (_, 403 | 404) => Ok(Word::NotYet),
        (None, _) if response.is_good() => Ok(Word::Yes(response)),
        _ => response.word(DOING),
    }
}

/// Reads the login from a token response. `account` is the previously known account id.
fn read(
    server: &Server<'_>,
    response: &Told,
    renewal: Secret,
    account: Option<String>,
) -> Result<Login> {
    let token = response.text("access_token")?;
    let access_claims = claims(token);
    let identity_claims = response.maybe_text("id_token").and_then(claims);
    let named = [identity_claims.as_ref(), access_claims.as_ref()]
        .into_iter()
        .flatten()
        .find_map(account_of);
    let end = access_claims
        .as_ref()
        .and_then(|claims| claims["exp"].as_i64());
    Ok(Login {
        token: Secret::new(token),
        expires: expires(server.clock.timestamp(), end, response.number("expires_in")),
        renewal,
        account: named.or(account),
        base: None,
    })
}

/// The claims of a JWT. The signature is not verified: the token came from its issuer over TLS, and no security
/// decision depends on the claims.
fn claims(token: &str) -> Option<Value> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&bytes).ok().filter(Value::is_object)
}

fn account_of(claims: &Value) -> Option<String> {
    let account = claims[ACCOUNT]["chatgpt_account_id"].as_str()?;
    // The account id becomes a header value.
    let plain = !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then(|| account.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{account_of, claims};
    use base64::Engine;
    use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};

    #[test]
    fn what_a_token_claims() {
        let check = |token: &str, expect: Option<&str>| {
            let account = claims(token).as_ref().and_then(account_of);
            assert_eq!(account.as_deref(), expect, "{token}");
        };
        let of = |account: &str| {
            format!(r#"{{"https://api.openai.com/auth": {{"chatgpt_account_id": {account}}}}}"#)
        };
        let token = |claims: &str| format!("head.{}.sign", URL_SAFE_NO_PAD.encode(claims));
        check(&token(&of(r#""acc-1""#)), Some("acc-1"));
        // Characters of the URL-safe alphabet, and padding.
        let claims = of(r#""acc-1", "x": "ÿþ?>~~""#);
        check(&format!("h.{}.s", URL_SAFE.encode(claims)), Some("acc-1"));
        check(&token(&of(r#""""#)), None);
        check(&token(&of("7")), None);
        check(&token(&of(r#""two\r\nlines""#)), None);
        check(&token("{}"), None);
        check(&token("[1]"), None);
        check(&token("no json"), None);
        check("head.!!!.sign", None);
        check("head.e30", None);
        check("opaque", None);
        check("", None);
    }
}
