//! Tokens that a service issues for the id and the secret of an app. They are valid for some hours.

use super::{ChannelError, ChannelResult};
use nanobot_os::secret::{self, Secret};
use nanobot_os::signal;
use parking_lot::Mutex;
use std::time::Duration;

/// A token is renewed this long before it expires, so that it outlives the request that it is fetched for.
const RENEWAL_MARGIN: Duration = Duration::from_secs(300);

/// A token as a service issues it.
pub(super) struct IssuedToken {
    pub(super) text: String,
    pub(super) lifetime_secs: u64,
}

/// The current token of a channel. It is in memory only.
#[derive(Default)]
pub(super) struct AccessToken(Mutex<Option<(Secret, Duration)>>);

impl AccessToken {
    /// Runs `request` with the token. If there is none, it is fetched first. A token that is rejected is fetched again,
    /// once: the service may have issued another one meanwhile.
    ///
    /// # Errors
    /// The errors of `fetch` and of `request`.
    pub(super) fn with<T>(
        &self,
        fetch: &dyn Fn() -> ChannelResult<IssuedToken>,
        request: &dyn Fn(&str) -> ChannelResult<T>,
    ) -> ChannelResult<T> {
        let (token, is_new) = self.current(fetch)?;
        match request(token.expose()) {
            Err(ChannelError::TokenRejected(_)) if !is_new => {
                *self.0.lock() = None;
                request(self.current(fetch)?.0.expose())
            }
            result => result,
        }
    }

    /// The token, and true if it was just fetched. The lock is held meanwhile, so that threads share one fetch.
    fn current(
        &self,
        fetch: &dyn Fn() -> ChannelResult<IssuedToken>,
    ) -> ChannelResult<(Secret, bool)> {
        let mut current = self.0.lock();
        if let Some((token, renew_at)) = &*current
            && signal::now() < *renew_at
        {
            return Ok((token.clone(), false));
        }
        let IssuedToken { text, lifetime_secs } = fetch()?;
        let token = Secret::new(text);
        secret::register(&token);
        let lifetime = Duration::from_secs(lifetime_secs).saturating_sub(RENEWAL_MARGIN);
        *current = Some((token.clone(), signal::now() + lifetime));
        Ok((token, true))
    }
}
