//! Connections for protocols of lines (IMAP, SMTP), with the proxy, the certificates, the timeouts and the signals of HTTP.

use super::error::from_ureq;
use super::transport::with_read_end;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_os::signal;
use std::sync::Arc;
use std::time::Duration;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::time::{Duration as UreqDuration, Instant};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, Transport};

/// A connection that reads lines and blocks of bytes. Written bytes are sent at the next read.
#[derive(Debug)]
pub struct LineStream {
    transport: Box<dyn Transport>,
    /// Bytes that were received and not read.
    received: Vec<u8>,
}

impl LineStream {
    pub(super) fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport, received: Vec::new() }
    }

    /// Returns the connection. There must be no unread bytes.
    pub(super) fn into_transport(self) -> Result<Box<dyn Transport>> {
        if self.received.is_empty() {
            Ok(self.transport)
        } else {
            let cause = "the server sends unencrypted text after it agreed to TLS";
            Err(fail(Exit::Unavailable, cause))
        }
    }

    /// Writes bytes, which are sent at the latest by the next read.
    ///
    /// # Errors
    /// The connection broke, the server accepts no data, or the run was cancelled.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let output = self.transport.buffers().output();
            let count = bytes.len().min(output.len());
            output[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.transport
                .transmit_output(count, no_timeout())
                .map_err(|error| from_ureq(&error))?;
        }
        Ok(())
    }

    /// Reads a line, and appends it to `out` without its CRLF.
    ///
    /// # Errors
    /// The line is longer than `limit_bytes`, the connection broke, or the run was cancelled.
    pub fn read_line(&mut self, out: &mut Vec<u8>, limit_bytes: usize) -> Result<()> {
        let mut searched = 0;
        loop {
            let rest = &self.received[searched..];
            if let Some(end) = memchr::memchr(b'\n', rest) {
                let line = &self.received[..searched + end];
                out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
                self.received.drain(..=searched + end);
                return Ok(());
            }
            searched = self.received.len();
            if searched > limit_bytes {
                return Err(too_long());
            }
            self.receive_more()?;
        }
    }

    /// Reads exactly `count` bytes, and appends them to `out`.
    ///
    /// # Errors
    /// The connection broke, or the run was cancelled.
    pub fn read_exact(&mut self, out: &mut Vec<u8>, mut count: usize) -> Result<()> {
        loop {
            let available = count.min(self.received.len());
            out.extend(self.received.drain(..available));
            count -= available;
            if count == 0 {
                return Ok(());
            }
            self.receive_more()?;
        }
    }

    /// Waits until there is something to read. Returns false if there is nothing at `end`, on the clock of
    /// [`signal::now`].
    ///
    /// # Errors
    /// The connection broke, or the run was cancelled.
    pub fn wait_until(&mut self, end: Duration) -> Result<bool> {
        if !self.received.is_empty() {
            return Ok(true);
        }
        match with_read_end(Some(end), || self.receive()) {
            Err(ureq::Error::Timeout(_)) if signal::now() >= end => Ok(false),
            Err(error) => Err(from_ureq(&error)),
            Ok(true) => Ok(true),
            Ok(false) => Err(closed()),
        }
    }

    /// Reads the bytes that have arrived into `buffer`. Returns `None` if there is nothing at `end`, on the clock of [`signal::now`].
    ///
    /// # Errors
    /// The connection broke, or the run was cancelled.
    pub fn read_until(&mut self, buffer: &mut [u8], end: Duration) -> Result<Option<usize>> {
        if !self.wait_until(end)? {
            return Ok(None);
        }
        let count = buffer.len().min(self.received.len());
        buffer[..count].copy_from_slice(&self.received[..count]);
        self.received.drain(..count);
        Ok(Some(count))
    }

    fn receive_more(&mut self) -> Result<()> {
        match self.receive() {
            Ok(true) => Ok(()),
            Ok(false) => Err(closed()),
            Err(error) => Err(from_ureq(&error)),
        }
    }

    /// Receives the bytes that have arrived; false at the end of the stream.
    fn receive(&mut self) -> Result<bool, ureq::Error> {
        let has_more = self.transport.await_input(no_timeout())?;
        let buffers = self.transport.buffers();
        let input = buffers.input();
        self.received.extend_from_slice(input);
        let count = input.len();
        buffers.input_consume(count);
        Ok(has_more)
    }
}

fn closed() -> anyhow::Error {
    anyhow::Error::msg("connection closed unexpectedly")
}

fn too_long() -> anyhow::Error {
    anyhow::Error::msg("the server sends a line without an end")
}

/// The timeouts of `SignalTransport` apply.
fn no_timeout() -> NextTimeout {
    NextTimeout {
        after: UreqDuration::NotHappening,
        reason: ureq::Timeout::Global,
        ..NextTimeout::default()
    }
}

/// The arguments of connectors, for a connection without a request.
pub(super) fn connection_details<'a>(
    uri: &'a Uri,
    addrs: ResolvedSocketAddrs,
    config: &'a Config,
    resolver: &'a dyn Resolver,
) -> ConnectionDetails<'a> {
    let connect = config.timeouts().connect;
    let after = connect.map_or(UreqDuration::NotHappening, Into::into);
    ConnectionDetails {
        uri,
        addrs,
        config,
        request_level: false,
        resolver,
        now: Instant::now(),
        timeout: NextTimeout { after, reason: ureq::Timeout::Connect, ..NextTimeout::default() },
        current_time: Arc::new(Instant::now),
        run_connector: Arc::new(|_| Err(ureq::Error::ConnectionFailed)),
        register_shutdown: Arc::new(|_| Ok(())),
    }
}

/// Runs a connector from the start.
pub(super) fn run_connector(
    connector: &impl Connector<()>,
    details: &ConnectionDetails<'_>,
) -> Result<Box<dyn Transport>, ureq::Error> {
    let transport = connector.connect(details, None)?;
    let transport = transport.ok_or(ureq::Error::ConnectionFailed)?;
    Ok(transport.boxed())
}

#[cfg(test)]
mod tests {
    use crate::http::{Http, HttpMethod, HttpTimeouts, Network};
    use nanobot_os::signal;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    fn client(offline: bool) -> Http {
        let limit = Duration::from_secs(20);
        let timeouts =
            HttpTimeouts { connect: limit, first_byte: limit, idle: limit, total: limit };
        Http::new(timeouts, offline, &Network::default())
    }

    #[test]
    fn lines_and_blocks_are_read_and_a_wait_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"* OK\r\nab\ncde").unwrap();
            let mut request = [0; 5];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(b"fg\r\n").unwrap();
            request
        });
        let mut stream = client(true).open_stream("127.0.0.1", port, false).unwrap();
        let mut text = Vec::new();
        stream.read_line(&mut text, 100).unwrap();
        stream.read_line(&mut text, 100).unwrap();
        stream.read_exact(&mut text, 3).unwrap();
        assert_eq!(text, b"* OKabcde");
        assert!(!stream.wait_until(signal::now()).unwrap());
        stream.write(b"DONE\n").unwrap();
        assert!(stream.wait_until(Duration::MAX).unwrap());
        stream.read_line(&mut text, 100).unwrap();
        assert_eq!(text, b"* OKabcdefg");
        assert_eq!(&server.join().unwrap(), b"DONE\n");
        let error = stream.read_line(&mut text, 100).unwrap_err();
        assert_eq!(error.to_string(), "connection closed unexpectedly");
    }

    #[test]
    fn a_server_that_trickles_does_not_extend_a_deadline() {
        // Opens a connection to a server that begins with `head`, and then sends a byte now and then, without an end.
        let check = |head: &'static [u8], exchange: &dyn Fn(u16, Duration) -> String| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut sent = stream.write_all(head);
                while sent.is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                    sent = stream.write_all(b"x");
                }
            });
            let end = signal::now() + Duration::from_millis(100);
            let error = exchange(port, end);
            assert!(signal::now() >= end, "{error}");
            server.join().unwrap();
        };
        let url = |port: u16| format!("http://127.0.0.1:{port}/");
        check(b"HTTP/1.1 200 OK\r\nx-long: ", &|port, end| {
            let sent = client(true).request_until(&url(port), &[], HttpMethod::Get, end);
            sent.err().unwrap().to_string()
        });
        check(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", &|port, end| {
            let sent = client(true).request_until(&url(port), &[], HttpMethod::Get, end);
            sent.unwrap().read_body(u64::MAX, Some(end)).unwrap_err().to_string()
        });
    }

    #[test]
    fn offline_reaches_loopback_only() {
        let error = client(true).open_stream("mail.example", 993, true);
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "`--offline` forbids connecting to `mail.example`");
    }

    #[test]
    fn text_between_the_consent_and_tls_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 ready\r\n250 injected\r\n").unwrap();
        });
        let http = client(false);
        let mut stream = http.open_stream("127.0.0.1", port, false).unwrap();
        stream.read_line(&mut Vec::new(), 100).unwrap();
        server.join().unwrap();
        let error = http.start_tls(stream, "127.0.0.1", port).unwrap_err();
        assert!(error.to_string().contains("unencrypted text"), "{error}");
    }
}
