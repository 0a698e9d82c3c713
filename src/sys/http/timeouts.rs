//! The timeouts and the deadline of HTTP exchanges.

use crate::sys::signal::Patience;
use std::time::Duration;

/// Timeouts of a client. Zero means no timeout.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the connection, TLS included.
    pub connect: Duration,
    /// From the request to the first byte of the response. A model may take minutes.
    pub first_byte: Duration,
    /// Between two reads after that: a slow stream is accepted, a silent one fails.
    pub idle: Duration,
    /// For the whole exchange.
    pub total: Duration,
}

/// The timeouts of each exchange, and the deadline of all exchanges of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) timeouts: Timeouts,
    /// The deadline, on the clock of [`crate::sys::signal::now`].
    pub(super) deadline: Option<Duration>,
}

impl Limits {
    /// The timeout for connecting, or for a name lookup.
    pub(super) fn connect_time(self) -> Patience {
        Patience::unless_zero(self.timeouts.connect).min(until(self.deadline))
    }
}

/// The time left until `end`; unlimited without one.
pub(super) fn until(end: Option<Duration>) -> Patience {
    end.map_or_else(Patience::endless, Patience::until)
}
