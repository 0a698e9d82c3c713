//! OpenAI Codex: logs in with a ChatGPT account, by the device flow of OpenAI's own command line.
//!
//! The flow is not that of RFC 8628: the server generates the PKCE verifier itself and returns it with the
//! authorization code, which is then exchanged as in a browser flow. Each renewal issues the next renewal token and
//! invalidates the old one.

use super::token::{Login, RequestCredentials, expiry_time};
use super::vendor::{DevicePrompt, LoginEndpoints};
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_net::auth::device_flow::PollResult;
use nanobot_net::auth::login_server::{LoginResponse, LoginServer, RequestBody};
use nanobot_net::auth::token_file::LoginSecret;
use serde_json::{Value, json};
use std::time::Duration;

/// The public client id of OpenAI's command line. Accounts accept no other client.
const CLIENT_ID: &str = "app_EMoamEEZ73f0CkXaXp7hrann";
/// The action named in errors, except those of a renewal.
const LOGIN_ACTION: &str = "log in";
/// Lifetime of a code. The server does not name it.
const CODE_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Default poll interval, if the server names none.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The claim of the token that holds OpenAI's account data.
const ACCOUNT_CLAIM: &str = "https://api.openai.com/auth";

/// Runs the device flow.
pub(super) fn login(
    server: &LoginServer<'_>,
    endpoints: &LoginEndpoints,
    on_prompt: &mut dyn FnMut(DevicePrompt<'_>),
) -> Result<Login> {
    let base = &endpoints.openai;
    let url = format!("{base}/api/accounts/deviceauth/usercode");
    let device_code =
        server.send(&url, &[], RequestBody::Json(&json!({ "client_id": CLIENT_ID })))?;
    if device_code.status() == 404 {
        let cause = "this account does not allow logins with a device code";
        let hint = "enable device codes in the security settings of ChatGPT, then retry";
        return Err(fail(Exit::Refused, cause).with_hint(hint));
    }
    let device_code = device_code.require_success(LOGIN_ACTION)?;
    let (device, code) =
        (device_code.required_text("device_auth_id")?, device_code.required_text("user_code")?);
    let url = format!("{base}/api/accounts/deviceauth/token");
    let poll_body = json!({ "device_auth_id": device, "user_code": code });
    let prompt =
        DevicePrompt { url: &format!("{base}/codex/device"), code, lifetime: CODE_LIFETIME };
    let interval = device_code.seconds("interval").unwrap_or(DEFAULT_POLL_INTERVAL);
    on_prompt(prompt);
    let authorization = server.poll(interval, prompt.lifetime, &mut || {
        interpret_poll(server.send(&url, &[], RequestBody::Json(&poll_body))?)
    })?;
    let form = [
        ("grant_type", "authorization_code"),
        ("code", authorization.required_text("authorization_code")?),
        ("redirect_uri", &format!("{base}/deviceauth/callback")),
        ("client_id", CLIENT_ID),
        ("code_verifier", authorization.required_text("code_verifier")?),
    ];
    let response = server.send(&format!("{base}/oauth/token"), &[], RequestBody::Form(&form))?;
    let response = response.require_success(LOGIN_ACTION)?;
    let refresh_token = response.required_text("refresh_token")?.into();
    parse_login(server, &response, refresh_token, None)
}

/// Requests a new token.
pub(super) fn renew(
    server: &LoginServer<'_>,
    endpoints: &LoginEndpoints,
    login: &Login,
) -> Result<Login> {
    let grant = json!({
        "client_id": CLIENT_ID,
        "grant_type": "refresh_token",
        "refresh_token": login.refresh_token.expose(),
    });
    let url = format!("{}/oauth/token", endpoints.openai);
    let response = server.send(&url, &[], RequestBody::Json(&grant))?;
    let response = response.require_success("renew the login")?;
    let new_token = response.optional_text("refresh_token");
    let refresh_token = new_token.map_or_else(|| login.refresh_token.clone(), LoginSecret::from);
    parse_login(server, &response, refresh_token, login.account_id.clone())
}

/// The credentials that `login` gives to requests.
pub(super) fn to_credentials(login: Login) -> RequestCredentials {
    let mut headers = vec![
        ("originator".to_owned(), "nanobot".to_owned()),
        ("openai-beta".to_owned(), "responses=experimental".to_owned()),
    ];
    headers.extend(login.account_id.map(|id| ("chatgpt-account-id".to_owned(), id)));
    RequestCredentials { token: login.token.secret().clone(), base_url: login.base_url, headers }
}

/// Interprets the response to a poll. The server reports "not yet" by status; the error code varies.
fn interpret_poll(response: LoginResponse<'_>) -> Result<PollResult<LoginResponse<'_>>> {
    match (response.error_code(), response.status()) {
        (Some("slow_down" | "expired_token" | "access_denied"), _) => {
            response.poll_result(LOGIN_ACTION)
        }
        (Some("deviceauth_authorization_pending"), _) | (_, 403 | 404) => Ok(PollResult::Pending),
        (None, _) if response.is_success() => Ok(PollResult::Granted(response)),
        _ => response.poll_result(LOGIN_ACTION),
    }
}

/// Reads the login from a token response. `account_id` is that of the login before.
fn parse_login(
    server: &LoginServer<'_>,
    response: &LoginResponse<'_>,
    refresh_token: LoginSecret,
    account_id: Option<String>,
) -> Result<Login> {
    let token = response.required_text("access_token")?;
    let access_claims = decode_claims(token);
    let identity_claims = response.optional_text("id_token").and_then(decode_claims);
    let claimed_id = [identity_claims.as_ref(), access_claims.as_ref()]
        .into_iter()
        .flatten()
        .find_map(parse_account_id);
    let end = access_claims.as_ref().and_then(|claims| claims["exp"].as_i64());
    Ok(Login {
        token: token.into(),
        expires_at: expiry_time(server.clock.timestamp(), end, response.number("expires_in")),
        refresh_token,
        account_id: claimed_id.or(account_id),
        base_url: None,
    })
}

/// The claims of a JWT. The signature is not verified: the token came from its issuer over TLS, and no security
/// decision depends on the claims.
fn decode_claims(token: &str) -> Option<Value> {
    let mut parts = token.split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&bytes).ok().filter(Value::is_object)
}

fn parse_account_id(claims: &Value) -> Option<String> {
    let id = claims[ACCOUNT_CLAIM]["chatgpt_account_id"].as_str()?;
    // The account id becomes a header value.
    let is_plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{decode_claims, parse_account_id};
    use base64::Engine;
    use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};

    #[test]
    fn token_claims_are_decoded() {
        let check = |token: &str, expect: Option<&str>| {
            let account = decode_claims(token).as_ref().and_then(parse_account_id);
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
