//! Credentials of clouds: keys that sign requests, and tokens that are exchanged for what a file of the cloud's own tools holds. Both
//! are kept in memory until they expire.

use super::login::is_fresh;
use ::http::Uri;
use anyhow::Result;
use jiff::Timestamp;
use nanobot_os::secret::{self, Secret};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

pub mod aws;
mod aws_profiles;
pub mod google;

/// A secret that expires.
struct ExpiringSecret {
    secret: Secret,
    expires_at: Timestamp,
}

/// The secrets of this process, by the command or the file that they come from. The lock of one is held while it is obtained.
static SECRETS: Mutex<BTreeMap<String, Arc<Mutex<Option<ExpiringSecret>>>>> =
    Mutex::new(BTreeMap::new());

/// The secret of `source`, which `obtain` gets unless there is one that is valid for some minutes.
fn cached_secret(
    source: &str,
    now: Timestamp,
    obtain: impl FnOnce() -> Result<ExpiringSecret>,
) -> Result<Secret> {
    let slot = Arc::clone(SECRETS.lock().entry(source.to_owned()).or_default());
    let mut slot = slot.lock();
    if let Some(cached) = slot.as_ref().filter(|cached| is_fresh(cached.expires_at, now)) {
        return Ok(cached.secret.clone());
    }
    let obtained = slot.insert(obtain()?);
    secret::register(&obtained.secret);
    Ok(obtained.secret.clone())
}

/// Forgets the secret of `source`, which a server has rejected.
fn forget(source: &str) {
    SECRETS.lock().remove(source);
}

/// The host name in `url`; `None` if it is no valid one, or has a user's name, which may look like a host.
fn host_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    Some(authority.host().to_ascii_lowercase())
}

/// True if the host of `url` is within one of `domains`.
fn is_at_host(url: &str, domains: &[&str]) -> bool {
    host_of(url).is_some_and(|host| {
        domains.iter().any(|domain| {
            host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::is_at_host;

    #[test]
    fn hosts_of_a_cloud_are_those_within_its_domains() {
        let check = |url: &str, expect: bool| {
            assert_eq!(is_at_host(url, &["api.aws", "googleapis.com"]), expect, "{url}");
        };
        check("https://bedrock-mantle.us-east-1.api.aws/anthropic", true);
        check("https://googleapis.com:443", true);
        check("https://notgoogleapis.com", false);
        check("https://evil.example/.googleapis.com", false);
        check("https://u:p@aiplatform.googleapis.com", false);
        check("https://a.api.aws:p@evil.example/", false);
        check("https://evil.example#.api.aws", false);
        check("https://evil.example?.api.aws", false);
        check("", false);
    }
}
