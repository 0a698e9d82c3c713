//! The login that creates an app: a device authorization grant (RFC 8628) whose address the user scans as a QR code.

use crate::service_client::{ServiceClient, ServiceRequest};
use crate::{ChannelError, ChannelResult, LoginDialog, LoginOutcome, LoginValue};
use nanobot_base::error::{Exit, fail};
use serde_json::Value;
use std::time::Duration;
use url::form_urlencoded;

const PATH: &str = "/oauth/v1/app/registration";
/// The interval and the lifetime where the service names none, in seconds.
const DEFAULT_INTERVAL_SECS: u64 = 5;
const DEFAULT_LIFETIME_SECS: u64 = 600;
/// The page that the service names first, and the one for programs like ours.
const LAUNCHER_PAGE: &str = "/page/launcher?";
const PROGRAM_PAGE: &str = "/page/cli?";

/// Creates an app. Returns its id and its secret.
///
/// # Errors
/// Status 77 if the user declines or does not come, or the errors of the service.
pub(super) fn register(
    client: &ServiceClient,
    dialog: &mut dyn LoginDialog,
) -> ChannelResult<LoginOutcome> {
    let grant = post(
        client,
        &[
            ("action", "begin"),
            ("archetype", "PersonalAgent"),
            ("auth_method", "client_secret"),
            ("request_user_info", "open_id"),
        ],
    )?;
    let text = |name: &str| grant[name].as_str().filter(|text| !text.is_empty());
    let (Some(code), Some(url)) = (text("device_code"), text("verification_uri_complete")) else {
        return Err(client.unexpected_response());
    };
    let url = url.replacen(LAUNCHER_PAGE, PROGRAM_PAGE, 1);
    dialog.show_code(&url, "scan this with Feishu or Lark, and confirm")?;
    let interval = grant["interval"].as_u64().unwrap_or(DEFAULT_INTERVAL_SECS).max(1);
    let lifetime = grant["expires_in"].as_u64().unwrap_or(DEFAULT_LIFETIME_SECS);
    for _ in 0..lifetime / interval {
        client.pause(Duration::from_secs(interval))?;
        let response =
            post(client, &[("action", "poll"), ("device_code", code), ("tp", "ob_app")])?;
        let (id, secret) = (response["client_id"].as_str(), response["client_secret"].as_str());
        if let (Some(id), Some(secret)) = (id, secret) {
            let is_lark = response["user_info"]["tenant_brand"] == "lark";
            let domain = if is_lark { "lark" } else { "feishu" };
            let values = [("appId", id), ("appSecret", secret), ("domain", domain)];
            return Ok(LoginOutcome {
                message: format!("the app {id} was created"),
                values: values.map(|(key, value)| LoginValue { key, value: value.into() }).into(),
            });
        }
        if let Some(error @ ("access_denied" | "expired_token")) = response["error"].as_str() {
            return Err(refused(error));
        }
    }
    Err(refused("the code was not scanned in time"))
}

fn refused(cause: &str) -> ChannelError {
    ChannelError::Other(fail(Exit::Refused, cause.to_owned()))
}

/// Posts a form. A code that waits for its user comes with an error status, too.
fn post(client: &ServiceClient, fields: &[(&str, &str)]) -> ChannelResult<Value> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    let form = form.finish();
    let request = ServiceRequest::post(PATH, "application/x-www-form-urlencoded", form.as_bytes());
    match client.request(&request)?.json() {
        body @ Value::Object(_) => Ok(body),
        _ => Err(client.unexpected_response()),
    }
}
