//! The login that creates an app: a device authorization grant (RFC 8628) whose address the user scans as a QR code.
//!
//! The endpoint is not documented; the vendor's client is the reference
//! (<https://github.com/larksuite/node-sdk>, `scene/registration`).

use crate::service_client::{ServiceClient, ServiceRequest};
use crate::{ChannelError, ChannelResult, LoginDialog, LoginOutcome, LoginValue};
use nanobot_base::error::{Exit, fail};
use nanobot_net::http::{error_message, shown_message};
use nanobot_os::signal;
use serde_json::Value;
use std::time::Duration;
use url::form_urlencoded;

const PATH: &str = "/oauth/v1/app/registration";
/// The interval and the lifetime where the service names none.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
const DEFAULT_LIFETIME: Duration = Duration::from_secs(600);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_LIFETIME: Duration = Duration::from_secs(3600);
/// The increase of the interval after `slow_down` (RFC 8628, §3.5).
const SLOW_DOWN_DELAY: Duration = Duration::from_secs(5);
/// The page that the service names first, and the one for programs like ours.
const LAUNCHER_PAGE: &str = "/page/launcher?";
const PROGRAM_PAGE: &str = "/page/cli?";

/// A code that waits for its user.
struct DeviceGrant {
    device_code: String,
    url: String,
    interval: Duration,
    lifetime: Duration,
}

/// The response to a poll.
#[derive(Debug, PartialEq, Eq)]
enum PollOutcome {
    Created {
        id: String,
        secret: String,
    },
    Pending,
    SlowDown,
    /// The user has an account of Lark, whose service has to be asked instead.
    IsLark,
    /// The user declined, or the code is too old.
    Refused(String),
    Failed(String),
}

/// Creates an app, at `client`, or at `lark_client` once the user turns out to have an account of Lark. Returns its id and
/// its secret.
///
/// # Errors
/// Status 77 if the user declines or does not confirm in time, or the errors of the service.
pub(super) fn register(
    client: &ServiceClient,
    lark_client: &ServiceClient,
    dialog: &mut dyn LoginDialog,
) -> ChannelResult<LoginOutcome> {
    let DeviceGrant { device_code, url, mut interval, lifetime } = begin(client)?;
    let end = signal::now() + lifetime;
    dialog.show_code(&url, "scan this with Feishu or Lark, and confirm")?;
    let mut polls_lark = false;
    let mut is_pause_due = true;
    loop {
        let remaining = end.saturating_sub(signal::now());
        if remaining.is_zero() {
            return Err(refused("the code was not confirmed in time"));
        }
        if is_pause_due {
            client.pause(interval.min(remaining))?;
        }
        is_pause_due = true;
        let response = match poll(if polls_lark { lark_client } else { client }, &device_code) {
            Ok(response) => response,
            // The app may have been created meanwhile, and only a later poll has its secret.
            Err(ChannelError::Unavailable(cause)) => {
                log::warn!(target: "channel", "feishu: {cause}");
                continue;
            }
            Err(error) => return Err(error),
        };
        match poll_outcome(&response, polls_lark) {
            PollOutcome::Created { id, secret } => {
                let is_lark = polls_lark || is_lark_account(&response);
                let domain = if is_lark { "lark" } else { "feishu" };
                let message = format!("the app {id} was created");
                let values = [("appId", id), ("appSecret", secret), ("domain", domain.to_owned())];
                let values =
                    values.map(|(key, value)| LoginValue { key, value: value.into() }).into();
                return Ok(LoginOutcome { message, values });
            }
            PollOutcome::Pending => {}
            PollOutcome::SlowDown => interval += SLOW_DOWN_DELAY,
            PollOutcome::IsLark => (polls_lark, is_pause_due) = (true, false),
            PollOutcome::Refused(cause) => return Err(refused(&cause)),
            PollOutcome::Failed(cause) => {
                return Err(ChannelError::Other(fail(Exit::Unavailable, cause)));
            }
        }
    }
}

fn begin(client: &ServiceClient) -> ChannelResult<DeviceGrant> {
    let fields = [
        ("action", "begin"),
        ("archetype", "PersonalAgent"),
        ("auth_method", "client_secret"),
        ("request_user_info", "open_id"),
    ];
    let response = post(client, &fields, false)?;
    let url = text(&response, "verification_uri_complete");
    let (Some(code), Some(url)) = (text(&response, "device_code"), url) else {
        return Err(client.unexpected_response());
    };
    let duration = |name: &str| response[name].as_u64().map(Duration::from_secs);
    Ok(DeviceGrant {
        device_code: code.to_owned(),
        url: url.replacen(LAUNCHER_PAGE, PROGRAM_PAGE, 1),
        interval: duration("interval")
            .unwrap_or(DEFAULT_INTERVAL)
            .clamp(MIN_INTERVAL, MAX_LIFETIME),
        lifetime: duration("expires_in").unwrap_or(DEFAULT_LIFETIME).min(MAX_LIFETIME),
    })
}

fn poll(client: &ServiceClient, device_code: &str) -> ChannelResult<Value> {
    let fields = [("action", "poll"), ("device_code", device_code), ("tp", "ob_app")];
    post(client, &fields, true)
}

/// True if the user has an account of Lark.
fn is_lark_account(response: &Value) -> bool {
    response["user_info"]["tenant_brand"] == "lark"
}

/// The meaning of `response`, which is from Lark's service if `polls_lark`.
fn poll_outcome(response: &Value, polls_lark: bool) -> PollOutcome {
    let secret = text(response, "client_secret");
    match (text(response, "client_id"), secret) {
        (Some(id), Some(secret)) => {
            return PollOutcome::Created { id: id.to_owned(), secret: secret.to_owned() };
        }
        (Some(id), None) => {
            let id = shown_message(id);
            return PollOutcome::Failed(format!(
                "the service gives no secret for the app {id}: it gives that of new apps only"
            ));
        }
        (None, _) => {}
    }
    if is_lark_account(response) && !polls_lark {
        return PollOutcome::IsLark;
    }
    let cause = shown_message(&error_message(&response.to_string()));
    match text(response, "error") {
        Some("authorization_pending") => PollOutcome::Pending,
        Some("slow_down") => PollOutcome::SlowDown,
        Some("access_denied" | "expired_token") => PollOutcome::Refused(cause),
        Some(_) => PollOutcome::Failed(cause),
        // An error of the platform.
        None if response["code"].as_i64().is_some_and(|code| code != 0) => {
            PollOutcome::Failed(cause)
        }
        None => PollOutcome::Pending,
    }
}

/// The text of a member, unless it is empty.
fn text<'r>(response: &'r Value, name: &str) -> Option<&'r str> {
    response[name].as_str().filter(|text| !text.is_empty())
}

fn refused(cause: &str) -> ChannelError {
    ChannelError::Other(fail(Exit::Refused, cause.to_owned()))
}

/// Posts a form. `authorization_pending` has status 400 (RFC 8628, §3.5), so the status is not checked.
fn post(
    client: &ServiceClient,
    fields: &[(&str, &str)],
    is_idempotent: bool,
) -> ChannelResult<Value> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    let form = form.finish().into_bytes();
    let request = ServiceRequest::post(PATH).body("application/x-www-form-urlencoded", form);
    let request = if is_idempotent { request } else { request.once() };
    match client.request(&request)?.json() {
        body @ Value::Object(_) => Ok(body),
        _ => Err(client.unexpected_response()),
    }
}

#[cfg(test)]
mod tests {
    use super::{PollOutcome, poll_outcome};
    use serde_json::{Value, json};

    #[test]
    fn outcomes_of_polls() {
        let check = |response: Value, polls_lark: bool, expect: PollOutcome| {
            assert_eq!(poll_outcome(&response, polls_lark), expect, "{response}");
        };
        let failed = |cause: &str| PollOutcome::Failed(cause.to_owned());
        let lark =
            json!({ "user_info": { "tenant_brand": "lark" }, "error": "authorization_pending" });
        check(lark.clone(), false, PollOutcome::IsLark);
        check(lark, true, PollOutcome::Pending);
        let created = json!({ "client_id": "i", "client_secret": "s", "user_info": { "tenant_brand": "lark" } });
        check(created, false, PollOutcome::Created { id: "i".into(), secret: "s".into() });
        check(json!({ "client_id": "", "client_secret": "" }), false, PollOutcome::Pending);
        check(
            json!({ "client_id": "i", "client_secret": "" }),
            false,
            failed("the service gives no secret for the app i: it gives that of new apps only"),
        );
        check(json!({ "error": "authorization_pending" }), false, PollOutcome::Pending);
        check(json!({}), false, PollOutcome::Pending);
        check(json!({ "code": 0 }), false, PollOutcome::Pending);
        check(json!({ "error": "slow_down" }), false, PollOutcome::SlowDown);
        check(
            json!({ "error": "access_denied" }),
            false,
            PollOutcome::Refused("access_denied".into()),
        );
        check(
            json!({ "error": "invalid_grant", "error_description": "no such code" }),
            false,
            failed("no such code"),
        );
        check(
            json!({ "code": 99991663, "msg": "the app is off" }),
            false,
            failed("the app is off"),
        );
    }
}
