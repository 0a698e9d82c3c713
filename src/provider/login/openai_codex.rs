//! OpenAI Codex: a ChatGPT account, by the device flow of OpenAI's own command line.
//!
//! It is no flow of RFC 8628: the server makes the PKCE verifier itself and hands it over with the authorization code,
//! which is then exchanged as a browser's would be. Each renewal names the next one, and the old one is worth nothing.

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

/// The public client of OpenAI's command line: accounts are open to no other.
const CLIENT: &str = "app_EMoamEEZ73f0CkXaXp7hrann";
/// What is refused when anything but a renewal fails.
const DOING: &str = "log in";
/// How long a code can be entered. The server does not say.
const VALID: Duration = Duration::from_secs(15 * 60);
/// How long to wait between two questions, where the server does not say.
const INTERVAL: Duration = Duration::from_secs(5);
/// The claim of a token that holds what OpenAI says of the account.
const ACCOUNT: &str = "https://api.openai.com/auth";

pub(super) fn login(server: &Server<'_>, tell: &mut dyn FnMut(Prompt<'_>)) -> Result<Login> {
    let base = &server.endpoints.openai;
    let url = format!("{base}/api/accounts/deviceauth/usercode");
    let begun = server.ask(&url, &[], Sent::Json(&[("client_id", CLIENT)]))?;
    if begun.status == 404 {
        let cause = "this account may not log in with a code";
        let hint = "allow device codes in the security settings of ChatGPT, then the same again";
        return Err(fail_hint(Exit::Refused, cause, hint));
    }
    if !begun.is_good() {
        return Err(begun.refusal(DOING));
    }
    let (device, code) = (begun.text("device_auth_id")?, begun.text("user_code")?);
    let url = format!("{base}/api/accounts/deviceauth/token");
    let asked = [("device_auth_id", device), ("user_code", code)];
    let prompt = Prompt {
        address: &format!("{base}/codex/device"),
        code,
        valid: VALID,
    };
    let interval = begun.seconds("interval").unwrap_or(INTERVAL);
    let entered = server.wait(prompt, interval, tell, &mut || {
        word(server.ask(&url, &[], Sent::Json(&asked))?)
    })?;
    let form = [
        ("grant_type", "authorization_code"),
        ("code", entered.text("authorization_code")?),
        ("redirect_uri", &format!("{base}/deviceauth/callback")),
        ("client_id", CLIENT),
        ("code_verifier", entered.text("code_verifier")?),
    ];
    let told = server.ask(&format!("{base}/oauth/token"), &[], Sent::Form(&form))?;
    if !told.is_good() {
        return Err(told.refusal(DOING));
    }
    let renewal = Secret::new(told.text("refresh_token")?);
    read(server, &told, renewal, None)
}

/// The login with a new token.
pub(super) fn renew(server: &Server<'_>, login: &Login) -> Result<Login> {
    let sent = [
        ("client_id", CLIENT),
        ("grant_type", "refresh_token"),
        ("refresh_token", login.renewal.expose()),
    ];
    let url = format!("{}/oauth/token", server.endpoints.openai);
    let told = server.ask(&url, &[], Sent::Json(&sent))?;
    if !told.is_good() {
        return Err(told.refusal("renew the login"));
    }
    let next = told.maybe_text("refresh_token");
    let renewal = next.map_or_else(|| login.renewal.clone(), Secret::new);
    read(server, &told, renewal, login.account.clone())
}

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

/// What the answer to a poll means. The server says "not yet" with a status, whatever words it has for it.
fn word(told: Told) -> Result<Word<Told>> {
    match (told.failure(), told.status) {
        (Some("slow_down" | "expired_token" | "access_denied"), _) => told.word(DOING),
        (Some("deviceauth_authorization_pending"), _) | (_, 403 | 404) => Ok(Word::NotYet),
        (None, _) if told.is_good() => Ok(Word::Yes(told)),
        _ => told.word(DOING),
    }
}

/// The login that an answer with tokens makes. `account` is the one that was known before.
fn read(
    server: &Server<'_>,
    told: &Told,
    renewal: Secret,
    account: Option<String>,
) -> Result<Login> {
    let token = told.text("access_token")?;
    let claimed = claims(token);
    let identity = told.maybe_text("id_token").and_then(claims);
    let named = [identity.as_ref(), claimed.as_ref()]
        .into_iter()
        .flatten()
        .find_map(account_of);
    let end = claimed.as_ref().and_then(|claims| claims["exp"].as_i64());
    Ok(Login {
        token: Secret::new(token),
        expires: expires(server.clock.timestamp(), end, told.number("expires_in")),
        renewal,
        account: named.or(account),
        base: None,
    })
}

/// What a JWT says. Its signature is not looked at: it came from its issuer, over TLS, and decides nothing here.
fn claims(token: &str) -> Option<Value> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&bytes).ok().filter(Value::is_object)
}

fn account_of(claims: &Value) -> Option<String> {
    let account = claims[ACCOUNT]["chatgpt_account_id"].as_str()?;
    // It becomes a header.
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
        // Letters of the alphabet for URLs, and padding.
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
