//! The host that a TLS client asks for, from the beginning of its stream (RFC 8446 §4.1.2, RFC 6066 §3). No I/O.

/// The longest first message of a client, in bytes.
const MAX_HELLO_BYTES: usize = 64 << 10;
/// The type of TLS records that hold handshakes, and of the message in one that is a ClientHello.
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Lengths of the version and of the random bytes at the start of a ClientHello.
const VERSION_BYTES: usize = 2;
const RANDOM_BYTES: usize = 32;
/// The type of the extension that names the host, and of a host in it.
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// The first message of a TLS client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientHello {
    /// It is not complete yet.
    Incomplete,
    /// It names this host; `None` if it names none.
    Complete(Option<String>),
    /// It is not a valid first message.
    Invalid,
}

/// True if a stream that begins with `bytes` may be TLS.
pub(super) fn may_be_tls(bytes: &[u8]) -> bool {
    bytes.first() == Some(&HANDSHAKE_RECORD)
}

/// Reads the first message from the beginning of a stream.
pub(super) fn parse(bytes: &[u8]) -> ClientHello {
    let Some(message) = join_records(bytes) else {
        return ClientHello::Invalid;
    };
    let mut reader = Reader(&message);
    let (kind, body) = (reader.number(1), reader.block(3));
    match (kind, body) {
        (Some(kind), _) if kind != usize::from(CLIENT_HELLO) => ClientHello::Invalid,
        (Some(_), Some(body)) => parse_body(body).unwrap_or(ClientHello::Invalid),
        _ if message.len() > MAX_HELLO_BYTES => ClientHello::Invalid,
        _ => ClientHello::Incomplete,
    }
}

/// The contents of the records that have arrived. The last one may be incomplete. `None` if one holds no handshake.
fn join_records(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader(bytes);
    let mut message = Vec::new();
    while let Some(kind) = reader.number(1) {
        if kind != usize::from(HANDSHAKE_RECORD) {
            // The bytes after a complete message do not matter.
            return (!message.is_empty()).then_some(message);
        }
        let (Some(_version), Some(length)) = (reader.number(2), reader.number(2)) else {
            break;
        };
        let part = reader.0.len().min(length);
        message.extend_from_slice(&reader.0[..part]);
        reader.0 = &reader.0[part..];
    }
    Some(message)
}

/// Reads the body of a complete ClientHello. `None` if it is invalid, or names several hosts.
fn parse_body(body: &[u8]) -> Option<ClientHello> {
    let mut reader = Reader(body);
    // The version and the random bytes, the session, the ciphers, the compression methods.
    reader.bytes(VERSION_BYTES + RANDOM_BYTES)?;
    reader.block(1)?;
    reader.block(2)?;
    reader.block(1)?;
    if reader.0.is_empty() {
        return Some(ClientHello::Complete(None));
    }
    let mut extensions = Reader(reader.block(2)?);
    let mut host = None;
    while !extensions.0.is_empty() {
        let (kind, content) = (extensions.number(2)?, extensions.block(2)?);
        if kind != usize::from(SERVER_NAME) {
            continue;
        }
        let mut names = Reader(Reader(content).block(2)?);
        while !names.0.is_empty() {
            let (kind, name) = (names.number(1)?, names.block(2)?);
            if host.is_some() || kind != usize::from(HOST_NAME) {
                return None;
            }
            host = Some(std::str::from_utf8(name).ok()?.to_owned());
        }
    }
    Some(ClientHello::Complete(host))
}

/// Reads numbers, which are big-endian, and blocks, which begin with their length.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self, width: usize) -> Option<usize> {
        let bytes = self.bytes(width)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn block(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = self.number(width)?;
        self.bytes(length)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientHello, may_be_tls, parse};

    fn block(width: usize, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u64).to_be_bytes();
        [&length[8 - width..], content].concat()
    }

    /// The message of a client that names these hosts, each with its type.
    fn hello(names: &[(u8, &[u8])]) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, name) in names {
            list.push(*kind);
            list.extend(block(2, name));
        }
        let mut extensions = vec![0, 43];
        extensions.extend(block(2, &[2, 3, 4]));
        if !names.is_empty() {
            extensions.extend([0, 0]);
            extensions.extend(block(2, &block(2, &list)));
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend(block(1, &[1; 32]));
        body.extend(block(2, &[19, 1]));
        body.extend(block(1, &[0]));
        body.extend(block(2, &extensions));
        [vec![1], block(3, &body)].concat()
    }

    /// A stream of records of at most `size` bytes.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| [vec![22, 3, 1], block(2, part)].concat();
        message.chunks(size).flat_map(record).collect()
    }

    #[test]
    fn the_host_of_a_client_is_found_however_its_message_is_cut() {
        let named = ClientHello::Complete(Some("a.example".into()));
        let message = hello(&[(0, b"a.example")]);
        for size in [1, 7, 4096] {
            let stream = records(&message, size);
            assert!(may_be_tls(&stream));
            assert_eq!(parse(&stream), named, "{size}");
            for cut in 0..stream.len() {
                assert_eq!(parse(&stream[..cut]), ClientHello::Incomplete, "{size} {cut}");
            }
            let more = [stream, b"\x14\x03\x03\0\x01\x01".to_vec()].concat();
            assert_eq!(parse(&more), named);
        }
        assert_eq!(parse(&records(&hello(&[]), 4096)), ClientHello::Complete(None));
    }

    #[test]
    fn what_names_no_single_host_is_invalid() {
        for names in [&[(0, &b"a"[..]), (0, b"b")][..], &[(1, b"a")], &[(0, b"\xff")]] {
            assert_eq!(parse(&records(&hello(names), 4096)), ClientHello::Invalid, "{names:?}");
        }
        for stream in
            [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\0\x01\x02", b"\x15\x03\x01\0\x01\x01"]
        {
            assert_eq!(parse(stream), ClientHello::Invalid, "{stream:?}");
        }
        // A length that is longer than its block.
        let mut message = hello(&[(0, b"a.example")]);
        let end = message.len() - 10;
        message[end] = 99;
        assert_eq!(parse(&records(&message, 4096)), ClientHello::Invalid);
    }
}
