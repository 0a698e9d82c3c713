//! The tokens of a login, the credentials they provide, and their expiry.

use jiff::Timestamp;
use nanobot_net::auth::token_file::LoginSecret;
use nanobot_os::secret::Secret;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The credentials for a request.
#[derive(Clone, Debug)]
pub struct RequestCredentials {
    /// Sent as a bearer token in the `authorization` header.
    pub token: Secret,
    /// The base URL without a trailing slash, if the login determines it.
    pub base_url: Option<String>,
    pub headers: Vec<(String, String)>,
}

/// A stored login.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Login {
    pub(super) token: LoginSecret,
    #[serde(rename = "expires", with = "crate::text_form")]
    pub(super) expires_at: Timestamp,
    /// The token that requests a new token.
    #[serde(rename = "renewal")]
    pub(super) refresh_token: LoginSecret,
    /// The account id, if requests must name it.
    #[serde(rename = "account", default, skip_serializing_if = "Option::is_none")]
    pub(super) account_id: Option<String>,
    /// The base URL of requests, if the server determines it.
    #[serde(rename = "base", default, skip_serializing_if = "Option::is_none")]
    pub(super) base_url: Option<String>,
}

/// A token is renewed this long before it expires, so that it outlives a turn that starts now.
pub(super) const RENEWAL_MARGIN: Duration = Duration::from_secs(5 * 60);

/// Assumed lifetime of a token if the server names none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);

impl Login {
    /// True if the token is valid at `now` and for [`RENEWAL_MARGIN`] after it.
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        is_fresh(self.expires_at, now)
    }
}

/// True if a token that expires at `end` is valid at `now` and for [`RENEWAL_MARGIN`] after it.
pub(in crate::provider) fn is_fresh(end: Timestamp, now: Timestamp) -> bool {
    add_saturating(now, RENEWAL_MARGIN) < end
}

/// The expiry of a token: at `end` (Unix time in seconds) or after `lifetime` seconds, whichever is earlier. The lifetime
/// is measured by our own clock, so that a wrong clock does no harm.
pub(in crate::provider) fn expiry_time(
    now: Timestamp,
    end: Option<i64>,
    lifetime: Option<i64>,
) -> Timestamp {
    let end = end.and_then(|end| Timestamp::from_second(end).ok());
    let lifetime =
        lifetime.map(|lifetime| Duration::from_secs(u64::try_from(lifetime).unwrap_or(0)));
    let earliest =
        end.into_iter().chain(lifetime.map(|lifetime| add_saturating(now, lifetime))).min();
    earliest.unwrap_or_else(|| add_saturating(now, DEFAULT_LIFETIME))
}

fn add_saturating(time: Timestamp, length: Duration) -> Timestamp {
    time.checked_add(length).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Login, expiry_time};
    use jiff::Timestamp;

    fn timestamp_at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_ends_at_the_earlier_of_two_ends() {
        let check = |end, length, expect: i64| {
            assert_eq!(
                expiry_time(timestamp_at(1000), end, length),
                timestamp_at(expect),
                "{end:?} {length:?}"
            );
        };
        check(Some(5000), None, 5000);
        check(None, Some(60), 1060);
        check(Some(5000), Some(60), 1060);
        check(Some(1010), Some(60), 1010);
        check(None, Some(-60), 1000);
        check(None, None, 4600);
        check(Some(i64::MAX), None, 4600);
        assert_eq!(expiry_time(timestamp_at(0), None, Some(i64::MAX)), Timestamp::MAX);
    }

    #[test]
    fn a_token_is_renewed_five_minutes_before_its_end() {
        let check = |left: i64, expect: bool| {
            let login = Login {
                token: "token".into(),
                expires_at: timestamp_at(1000 + left),
                refresh_token: "renewal".into(),
                account_id: None,
                base_url: None,
            };
            assert_eq!(login.is_fresh(timestamp_at(1000)), expect, "{left}");
        };
        check(3600, true);
        check(301, true);
        check(300, false);
        check(0, false);
        check(-1, false);
    }
}
