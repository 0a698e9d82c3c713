//! The tokens of a login, what they give access to, and when they expire.

use crate::sys::secret::Secret;
use jiff::Timestamp;
use std::time::Duration;

/// What a request needs to be let in.
#[derive(Clone, Debug)]
pub struct Access {
    /// Goes into the `authorization` header, as a bearer's.
    pub token: Secret,
    /// Where to ask, without a slash at the end, for a login that decides it.
    pub base: Option<String>,
    pub headers: Vec<(String, String)>,
}

/// A login as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Login {
    pub(super) token: Secret,
    pub(super) expires: Timestamp,
    /// What a new token is asked for with.
    pub(super) renewal: Secret,
    /// The account's id, where requests must name it.
    pub(super) account: Option<String>,
    /// Where requests go, where the server decides it.
    pub(super) base: Option<String>,
}

/// A token is renewed so long before its end: a turn that begins now should not outlive it.
pub(super) const MARGIN: Duration = Duration::from_secs(5 * 60);

/// How long a token is taken to be good when the server does not say.
const UNKNOWN: Duration = Duration::from_secs(3600);

impl Login {
    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        after(now, MARGIN) < self.expires
    }
}

/// When a token runs out: at `end`, in seconds of Unix, or `length` seconds from now, whichever comes first. The length
/// is by our own clock, so that one which is late does no harm.
pub(super) fn expires(now: Timestamp, end: Option<i64>, length: Option<i64>) -> Timestamp {
    let end = end.and_then(|end| Timestamp::from_second(end).ok());
    let length = length.map(|length| Duration::from_secs(u64::try_from(length).unwrap_or(0)));
    let first = end
        .into_iter()
        .chain(length.map(|length| after(now, length)))
        .min();
    first.unwrap_or_else(|| after(now, UNKNOWN))
}

fn after(time: Timestamp, length: Duration) -> Timestamp {
    time.checked_add(length).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Login, expires};
    use crate::sys::secret::Secret;
    use jiff::Timestamp;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_ends_at_the_earlier_of_two_ends() {
        let check = |end, length, expect: i64| {
            assert_eq!(
                expires(at(1000), end, length),
                at(expect),
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
        assert_eq!(expires(at(0), None, Some(i64::MAX)), Timestamp::MAX);
    }

    #[test]
    fn a_token_is_renewed_five_minutes_before_its_end() {
        let check = |left: i64, expect: bool| {
            let login = Login {
                token: Secret::new("token"),
                expires: at(1000 + left),
                renewal: Secret::new("renewal"),
                account: None,
                base: None,
            };
            assert_eq!(login.is_fresh(at(1000)), expect, "{left}");
        };
        check(3600, true);
        check(301, true);
        check(300, false);
        check(0, false);
        check(-1, false);
    }
}
