//! The timeouts and the deadline of HTTP exchanges.

use nanobot_os::signal::Deadline;
use std::time::Duration;

/// Timeouts of a client. Zero means no timeout.
#[derive(Clone, Copy, Debug)]
pub struct HttpTimeouts {
    /// For the connection, TLS included.
    pub connect: Duration,
    /// From the request to the first byte of the response. A model may take minutes.
    pub first_byte: Duration,
    /// Between two reads after that: a slow stream is accepted, a silent one fails.
    pub idle: Duration,
    /// For the whole exchange.
    pub total: Duration,
}

impl HttpTimeouts {
    /// The timeouts of an exchange that takes at most `limit`.
    pub const fn within(limit: Duration) -> Self {
        Self { connect: limit, first_byte: limit, idle: limit, total: limit }
    }
}

/// The timeouts of each exchange, and the deadline of all exchanges of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExchangeLimits {
    pub(super) timeouts: HttpTimeouts,
    /// The deadline, on the clock of [`nanobot_os::signal::now`].
    pub(super) deadline: Option<Duration>,
}

impl ExchangeLimits {
    /// The timeout for connecting, or for a name lookup.
    pub(super) fn connect_deadline(self) -> Deadline {
        Deadline::after_or_never(self.timeouts.connect).min(deadline_until(self.deadline))
    }
}

/// The time left until `end`; unlimited without one.
pub(super) fn deadline_until(end: Option<Duration>) -> Deadline {
    end.map_or_else(Deadline::never, Deadline::until)
}
