//! How long an exchange may take.

use crate::sys::signal::Patience;
use std::time::Duration;

/// Timeouts of a client. A zero waits for ever.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the connection, TLS included.
    pub connect: Duration,
    /// From the request to the first byte of the response: a model may think for minutes.
    pub first_byte: Duration,
    /// From then on, between two bytes: a slow stream lives, a silent one ends.
    pub idle: Duration,
    /// For the whole exchange.
    pub total: Duration,
}

/// The timeouts of each exchange, and the deadline of all exchanges of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) timeouts: Timeouts,
    /// When everything must have ended, as [`crate::sys::signal::now`] tells it.
    pub(super) deadline: Option<Duration>,
}

impl Limits {
    /// For a connection, or for the lookup of a name.
    pub(super) fn connect_time(self) -> Patience {
        Patience::unless_zero(self.timeouts.connect).min(until(self.deadline))
    }
}

/// What is left of the time until `end`.
pub(super) fn until(end: Option<Duration>) -> Patience {
    end.map_or_else(Patience::endless, Patience::until)
}
