//! Rate limits that a service announces before they are exceeded (Discord, "Rate Limits"): the next request of a route waits,
//! since too many responses with status 429 get an address banned.

use nanobot_net::http::Response;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// The segments of a path that have a limit of their own, such as `/channels/ID/messages`.
const ROUTE_SEGMENTS: usize = 3;

/// A limit in the headers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestLimit {
    /// This route accepts no request for this time.
    Route(Duration),
    /// No route accepts a request, for the time that the response names.
    Global,
}

/// The limits of a client. Times are on the clock of [`nanobot_os::signal::now`].
#[derive(Debug, Default)]
pub(super) struct RequestLimits(Mutex<BTreeMap<String, Duration>>);

impl RequestLimit {
    /// The limit that the headers of `response` announce.
    pub(super) fn from_response(response: &Response) -> Option<Self> {
        if response.header("x-ratelimit-global") == Some("true") {
            return Some(Self::Global);
        }
        let is_used_up = response.header("x-ratelimit-remaining") == Some("0");
        let seconds = response.header("x-ratelimit-reset-after")?.parse().ok()?;
        let wait = Duration::try_from_secs_f64(seconds).ok()?;
        is_used_up.then_some(Self::Route(wait))
    }
}

impl RequestLimits {
    /// The time until a request of `route` may be sent.
    pub(super) fn wait(&self, route: &str, now: Duration) -> Duration {
        let ends = self.0.lock();
        let ends = [route, ""].map(|route| ends.get(route).copied());
        let end = ends.into_iter().flatten().max();
        end.unwrap_or_default().saturating_sub(now)
    }

    /// Stores that `route` accepts no request until `end`. An empty name means all routes.
    pub(super) fn store(&self, route: &str, now: Duration, end: Duration) {
        let mut ends = self.0.lock();
        ends.retain(|_, end| *end > now);
        ends.insert(route.to_owned(), end);
    }
}

/// The route of a request: its method, and the start of its path.
pub(super) fn route_of(method: &str, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let segments = path.split('/').take(ROUTE_SEGMENTS + 1);
    format!("{method} {}", segments.collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::{RequestLimits, route_of};
    use std::time::Duration;

    #[test]
    fn a_limit_holds_for_its_route_or_for_all() {
        let seconds = Duration::from_secs;
        let limits = RequestLimits::default();
        let check = |route: &str, now: u64, expect: u64| {
            assert_eq!(limits.wait(route, seconds(now)), seconds(expect), "{route} {now}");
        };
        check("GET /a", 5, 0);
        limits.store("GET /a", seconds(5), seconds(9));
        check("GET /a", 6, 3);
        check("GET /a", 9, 0);
        check("GET /b", 6, 0);
        limits.store("", seconds(6), seconds(8));
        check("GET /a", 7, 2);
        check("GET /b", 7, 1);
        limits.store("GET /b", seconds(9), seconds(10));
        assert_eq!(limits.0.lock().len(), 1);
    }

    #[test]
    fn routes_are_methods_and_starts_of_paths() {
        let route = route_of("GET", "/channels/1/messages?after=2");
        assert_eq!(route, "GET /channels/1/messages");
        let route = route_of("PUT", "/channels/1/messages/2/reactions/x/@me");
        assert_eq!(route, "PUT /channels/1/messages");
        assert_eq!(route_of("POST", ""), "POST ");
    }
}
