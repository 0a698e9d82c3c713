//! A connection whose waits a signal can interrupt. Its timeouts do not count the time that the process was stopped.

use super::buffers::SocketBuffers;
use super::error::{TlsMismatch, from_stop};
use super::timeouts::{ExchangeLimits, deadline_until};
use nanobot_os::signal::{self, Deadline};
use nanobot_os::terminal::write_buffer;
use rustix::net;
use std::cell::Cell;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::time::Duration;
use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

/// Maximum number of bytes that are buffered before they are sent.
const WRITE_BUFFER_BYTES: usize = 64 << 10;

/// The time that `ureq`'s own transports wait at once. Signals are checked between two waits.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

thread_local! {
    /// The end of the current read of a body on this thread, on the clock of [`signal::now`]. `ureq` fixes its timeouts
    /// when a request is sent, and offers no other way to pass a limit to the connection.
    static READ_END: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Runs `read`, whose waits for data end at `end` at the latest, on the clock of [`signal::now`].
pub(super) fn with_read_end<T>(end: Option<Duration>, read: impl FnOnce() -> T) -> T {
    READ_END.set(end);
    let output = read();
    READ_END.set(None);
    output
}

/// A connection of one client.
#[derive(Debug)]
pub(super) struct SignalTransport<In> {
    route: Route<In>,
    limits: ExchangeLimits,
    /// The deadline of this exchange, on the clock of [`signal::now`].
    deadline: Option<Duration>,
    /// True if a request was sent and no response has arrived yet.
    awaits_response: bool,
    /// True if the connection is kept for the next exchange.
    is_kept: bool,
}

#[derive(Debug)]
pub(super) enum Route<In> {
    Direct(Socket),
    /// Through a SOCKS proxy, with `ureq`'s own transport.
    Proxied(In),
}

/// A TCP socket of this module.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    /// The output of these transports is sent when there is much of it, or before waiting for a response: `ureq` passes head and body
    /// separately, and a server should wake only once for both.
    buffers: SocketBuffers,
    /// The server, until its first byte.
    unheard_peer: Option<Peer>,
}

/// The server at the other end of a socket.
#[derive(Debug)]
pub(super) struct Peer {
    /// The host and the port, for messages.
    pub(super) server: String,
    /// True if it is expected to begin with a TLS record, false for text.
    pub(super) expects_tls: bool,
}

/// The first bytes of TLS records: their content types (RFC 8446, section 5.1). No text begins with one of them.
const TLS_CONTENT_TYPES: RangeInclusive<u8> = 20..=23;

impl Socket {
    pub(super) fn new(stream: TcpStream, peer: Peer) -> Self {
        Self { stream, buffers: SocketBuffers::default(), unheard_peer: Some(peer) }
    }

    /// Checks the first byte of the server: the errors of a parser for the other protocol would not say what is wrong.
    fn check_first_byte(&mut self) -> Result<(), ureq::Error> {
        let Some(first) = self.buffers.input().first() else {
            return Ok(());
        };
        let speaks_tls = TLS_CONTENT_TYPES.contains(first);
        match self.unheard_peer.take() {
            Some(Peer { server, expects_tls }) if speaks_tls != expects_tls => {
                Err(TlsMismatch { server, speaks_tls }.into())
            }
            _ => Ok(()),
        }
    }

    /// Sends the buffered data.
    fn flush(&mut self, deadline: &mut Deadline) -> Result<(), ureq::Error> {
        let mut rest = self.buffers.pending();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if would_block(&error) => {
                    if !signal::wait_writable(&self.stream, deadline).map_err(from_stop)? {
                        return Err(ureq::Error::Timeout(ureq::Timeout::SendBody));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.buffers.clear_pending();
        Ok(())
    }
}

impl<In> SignalTransport<In> {
    pub(super) fn new(route: Route<In>, limits: ExchangeLimits) -> Self {
        // The greeting of a mail server comes before any request.
        let deadline = end_of_exchange(limits);
        Self { route, limits, deadline, awaits_response: false, is_kept: false }
    }

    /// The timeout for sending. A server that accepts no data is treated as unresponsive, like one that sends no data.
    fn send_deadline(&self) -> Deadline {
        Deadline::after_or_never(self.limits.timeouts.first_byte).min(self.exchange_deadline())
    }

    /// The time left for the exchange.
    fn exchange_deadline(&self) -> Deadline {
        deadline_until(self.deadline).min(deadline_until(self.limits.deadline))
    }
}

impl<In: Transport> Route<In> {
    /// Reads once: `Some(false)` at the end of the stream, `None` when `deadline` is over.
    fn read(
        &mut self,
        mut timeout: NextTimeout,
        deadline: &mut Deadline,
    ) -> Result<Option<bool>, ureq::Error> {
        loop {
            match self {
                Self::Direct(socket) => {
                    if !signal::wait_readable(&socket.stream, deadline).map_err(from_stop)? {
                        return Ok(None);
                    }
                    match socket.stream.read(socket.buffers.input_append_buf()) {
                        Ok(count) => {
                            socket.buffers.input_appended(count);
                            socket.check_first_byte()?;
                            return Ok(Some(count > 0));
                        }
                        Err(error) if would_block(&error) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Self::Proxied(inner) => {
                    signal::check().map_err(from_stop)?;
                    write_buffer::flush_deferring_error();
                    timeout.per_read = Some(POLL_INTERVAL.into());
                    match inner.await_input(timeout) {
                        Err(ureq::Error::Timeout(ureq::Timeout::PerRead)) => {
                            deadline.subtract(POLL_INTERVAL);
                            if deadline.is_expired() {
                                return Ok(None);
                            }
                        }
                        other => return other.map(Some),
                    }
                }
            }
        }
    }
}

/// The end of an exchange that begins now, on the clock of [`signal::now`].
fn end_of_exchange(limits: ExchangeLimits) -> Option<Duration> {
    let total = Some(limits.timeouts.total).filter(|total| !total.is_zero());
    total.map(|total| signal::now().saturating_add(total))
}

fn would_block(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl<In: Transport> Transport for SignalTransport<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        match &mut self.route {
            Route::Direct(socket) => &mut socket.buffers,
            Route::Proxied(inner) => inner.buffers(),
        }
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        signal::check().map_err(from_stop)?;
        self.is_kept = false;
        if !std::mem::replace(&mut self.awaits_response, true) {
            self.deadline = end_of_exchange(self.limits);
        }
        let mut deadline = self.send_deadline();
        match &mut self.route {
            Route::Proxied(inner) => inner.transmit_output(amount, timeout),
            Route::Direct(socket) => {
                socket.buffers.push_output(amount);
                if socket.buffers.pending().len() < WRITE_BUFFER_BYTES {
                    Ok(())
                } else {
                    socket.flush(&mut deadline)
                }
            }
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let timeouts = self.limits.timeouts;
        let (limit, reason) = match (timeout.reason, self.awaits_response) {
            // A proxy's reply or the handshake: the time that `ureq` has left for it.
            (ureq::Timeout::Connect, _) => {
                let left = timeout.not_zero().map(|left| Deadline::after(*left));
                (left.unwrap_or_else(Deadline::never), timeout.reason)
            }
            (_, true) => {
                (Deadline::after_or_never(timeouts.first_byte), ureq::Timeout::RecvResponse)
            }
            (_, false) => (Deadline::after_or_never(timeouts.idle), ureq::Timeout::PerRead),
        };
        let mut send_deadline = self.send_deadline();
        if let (true, Route::Direct(socket)) = (self.awaits_response, &mut self.route) {
            socket.flush(&mut send_deadline)?;
            // A server that sends head and body separately waits for our acknowledgement of the head, which the system
            // would delay by up to 40 ms to send it along with data. Without this option the exchange is slower.
            let _: Result<_, _> = net::sockopt::set_tcp_quickack(&socket.stream, true);
        }
        let limit = limit.min(deadline_until(READ_END.get()));
        match self.route.read(timeout, &mut limit.min(self.exchange_deadline()))? {
            None if self.exchange_deadline().is_expired() => {
                Err(ureq::Error::Timeout(ureq::Timeout::Global))
            }
            None => Err(ureq::Error::Timeout(reason)),
            Some(has_input) => {
                self.awaits_response = false;
                Ok(has_input)
            }
        }
    }

    fn is_open(&mut self) -> bool {
        // `ureq` calls this when it keeps a connection, and when it reuses it. The first call needs no check: the
        // connection may never be reused.
        if !std::mem::replace(&mut self.is_kept, true) {
            return true;
        }
        match &mut self.route {
            // No request is pending, so nothing may be readable, not even the end of the stream.
            Route::Direct(socket) => {
                matches!(socket.stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
            }
            Route::Proxied(inner) => inner.is_open(),
        }
    }

    fn is_tls(&self) -> bool {
        match &self.route {
            Route::Direct(..) => false,
            Route::Proxied(inner) => inner.is_tls(),
        }
    }
}
