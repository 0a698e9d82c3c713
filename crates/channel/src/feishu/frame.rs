//! The frames of Feishu's long connection: a message of Protocol Buffers in a binary frame of a WebSocket.
//!
//! A long event comes in several frames, which are joined before they are returned.

use crate::ChannelResult;
use crate::push_poll::FrameConnection;
use crate::service_client::{read_json, to_channel_error};
use nanobot_net::http::{WebSocket, WebSocketEvent};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// Maximum frames of an event.
const MAX_FRAMES: usize = 1000;
/// Maximum events of which some frames have not arrived.
const MAX_INCOMPLETE_EVENTS: usize = 50;
/// Names of the fields with whole numbers, by their numbers in the schema; then those of texts.
const NUMBER_FIELDS: [(u64, &str); 4] = [(1, "SeqID"), (2, "LogID"), (3, "service"), (4, "method")];
const TEXT_FIELDS: [(u64, &str); 3] =
    [(6, "payload_encoding"), (7, "payload_type"), (9, "LogIDNew")];
const HEADERS_FIELD: u64 = 5;
const PAYLOAD_FIELD: u64 = 8;
/// The fields of a header.
const HEADER_KEY_FIELD: u64 = 1;
const HEADER_VALUE_FIELD: u64 = 2;
/// Wire types (Protocol Buffers, "Encoding"), and the bits of a tag that hold them.
const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;
const WIRE_TYPE_BITS: u32 = 3;

/// A long connection. A frame is an object with the fields of the schema, `headers` and the text of the `payload`.
pub(super) struct FeishuConnection {
    socket: WebSocket,
    incomplete: IncompleteEvents,
}

/// The payloads of the frames of events that are not complete, by the id of the event.
#[derive(Default)]
struct IncompleteEvents(HashMap<String, Vec<Option<Vec<u8>>>>);

impl FeishuConnection {
    pub(super) fn new(socket: WebSocket) -> Self {
        Self { socket, incomplete: IncompleteEvents::default() }
    }
}

impl IncompleteEvents {
    /// Adds the payload of a frame; returns that of the event if it is complete.
    fn join(&mut self, frame: &Value, payload: Vec<u8>) -> Option<Vec<u8>> {
        let header = |name: &str| frame["headers"][name].as_str();
        let number = |name: &str| header(name).and_then(|text| text.parse::<usize>().ok());
        let (count, index) = (number("sum").unwrap_or(1), number("seq").unwrap_or(0));
        if count <= 1 {
            return Some(payload);
        }
        let id = header("message_id").unwrap_or_default().to_owned();
        if count > MAX_FRAMES || index >= count {
            log::warn!(target: "channel", "feishu: dropped frame {index} of {count}");
            return None;
        }
        if self.0.len() == MAX_INCOMPLETE_EVENTS && !self.0.contains_key(&id) {
            log::warn!(target: "channel", "feishu: dropped {MAX_INCOMPLETE_EVENTS} incomplete events");
            self.0.clear();
        }
        let parts = self.0.entry(id.clone()).or_default();
        parts.resize(count, None);
        parts[index] = Some(payload);
        if parts.iter().any(Option::is_none) {
            return None;
        }
        let parts = self.0.remove(&id)?;
        Some(parts.into_iter().flatten().flatten().collect())
    }
}

impl FrameConnection for FeishuConnection {
    fn next_frame(&mut self, end: Duration) -> ChannelResult<Option<Value>> {
        loop {
            let bytes = match self.socket.next(end).map_err(to_channel_error)? {
                Some(WebSocketEvent::Binary(bytes)) => bytes,
                event => return read_json(event),
            };
            let Some((mut frame, payload)) = decode(&bytes) else {
                log::warn!(target: "channel", "feishu: a frame cannot be read");
                continue;
            };
            if let Some(payload) = self.incomplete.join(&frame, payload) {
                frame["payload"] = String::from_utf8_lossy(&payload).into();
                return Ok(Some(frame));
            }
        }
    }

    fn send_frame(&mut self, frame: &Value) -> ChannelResult<()> {
        self.socket.send_binary(encode(frame)).map_err(to_channel_error)
    }
}

/// The frame of a heartbeat.
pub(super) fn ping(service: u64) -> Value {
    json!({ "SeqID": 0, "LogID": 0, "service": service, "method": 0, "headers": { "type": "ping" } })
}

/// Reads a frame and the bytes of its payload. `None` if it is damaged.
fn decode(bytes: &[u8]) -> Option<(Value, Vec<u8>)> {
    let mut frame = json!({});
    let (mut headers, mut payload) = (Map::new(), Vec::new());
    for (field, value) in read_fields(bytes)? {
        let name = |table: &[(u64, &'static str)]| {
            table.iter().find(|(number, _)| *number == field).map(|(_, name)| *name)
        };
        match value {
            FieldValue::Number(number) => {
                if let Some(name) = name(&NUMBER_FIELDS) {
                    frame[name] = number.into();
                }
            }
            FieldValue::Bytes(text) if field == HEADERS_FIELD => {
                let (mut key, mut header) = (String::new(), String::new());
                for (field, value) in read_fields(text)? {
                    let FieldValue::Bytes(text) = value else {
                        continue;
                    };
                    let text = String::from_utf8_lossy(text).into_owned();
                    match field {
                        HEADER_KEY_FIELD => key = text,
                        HEADER_VALUE_FIELD => header = text,
                        _ => {}
                    }
                }
                headers.insert(key, header.into());
            }
            FieldValue::Bytes(text) if field == PAYLOAD_FIELD => payload = text.to_vec(),
            FieldValue::Bytes(text) => {
                if let Some(name) = name(&TEXT_FIELDS) {
                    frame[name] = String::from_utf8_lossy(text).into();
                }
            }
        }
    }
    frame["headers"] = headers.into();
    Some((frame, payload))
}

/// Writes a frame.
fn encode(frame: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (field, name) in NUMBER_FIELDS {
        write_number(&mut bytes, field << WIRE_TYPE_BITS | VARINT);
        write_number(&mut bytes, frame[name].as_u64().unwrap_or_default());
    }
    let headers = frame["headers"].as_object().into_iter().flatten();
    for (name, value) in headers {
        let mut header = Vec::new();
        write_bytes(&mut header, HEADER_KEY_FIELD, name.as_bytes());
        write_bytes(&mut header, HEADER_VALUE_FIELD, value.as_str().unwrap_or_default().as_bytes());
        write_bytes(&mut bytes, HEADERS_FIELD, &header);
    }
    for (field, name) in TEXT_FIELDS.into_iter().chain([(PAYLOAD_FIELD, "payload")]) {
        if let Some(text) = frame[name].as_str() {
            write_bytes(&mut bytes, field, text.as_bytes());
        }
    }
    bytes
}

enum FieldValue<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// The fields of a message, by their numbers. `None` if it is damaged.
fn read_fields(mut bytes: &[u8]) -> Option<Vec<(u64, FieldValue<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = read_number(&mut bytes)?;
        let value = match tag & ((1 << WIRE_TYPE_BITS) - 1) {
            VARINT => FieldValue::Number(read_number(&mut bytes)?),
            LENGTH_DELIMITED => {
                let length = usize::try_from(read_number(&mut bytes)?).ok()?;
                let (text, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                FieldValue::Bytes(text)
            }
            _ => return None,
        };
        fields.push((tag >> WIRE_TYPE_BITS, value));
    }
    Some(fields)
}

/// Reads a varint: each byte has seven bits of the number, the lowest first, and one that tells whether another byte follows.
fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn write_bytes(bytes: &mut Vec<u8>, field: u64, text: &[u8]) {
    write_number(bytes, field << WIRE_TYPE_BITS | LENGTH_DELIMITED);
    write_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::{IncompleteEvents, MAX_FRAMES, MAX_INCOMPLETE_EVENTS, decode, encode, ping};
    use nanobot_base::fuzz;
    use serde_json::json;

    #[test]
    fn frames_are_written_and_read() {
        // As the vendor's client writes its ping for service 7.
        let bytes = b"\x08\x00\x10\x00\x18\x07\x20\x00\x2a\x0c\x0a\x04type\x12\x04ping";
        assert_eq!(encode(&ping(7)), bytes);
        let frame = json!({ "SeqID": 300, "LogID": 1, "service": 7, "method": 1,
            "headers": { "type": "event", "sum": "1" }, "payload": "{\"code\":200}" });
        let (mut read, payload) = decode(&encode(&frame)).unwrap();
        read["payload"] = String::from_utf8(payload).unwrap().into();
        assert_eq!(read, frame);
        assert!(decode(b"\x08").is_none() && decode(b"\x2a\x7f").is_none());
    }

    #[test]
    fn frames_of_an_event_are_joined() {
        let mut events = IncompleteEvents::default();
        let mut join = |id: &str, count: usize, index: usize, text: &str| {
            let headers =
                json!({ "message_id": id, "sum": count.to_string(), "seq": index.to_string() });
            let payload = events.join(&json!({ "headers": headers }), text.into());
            payload.map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(join("a", 1, 0, "x").as_deref(), Some("x"));
        assert_eq!(join("a", 2, 1, "y"), None);
        assert_eq!(join("b", 2, 0, "1"), None);
        assert_eq!(join("a", 2, 0, "x").as_deref(), Some("xy"));
        assert_eq!(join("b", 2, 2, "3"), None);
        assert_eq!(join("c", MAX_FRAMES + 1, 0, "3"), None);
        assert_eq!(join("b", 2, 1, "2").as_deref(), Some("12"));
        for number in 0..=MAX_INCOMPLETE_EVENTS {
            assert_eq!(join(&number.to_string(), 2, 0, "y"), None);
        }
        // The last of these has replaced the others.
        let last = MAX_INCOMPLETE_EVENTS.to_string();
        assert_eq!(join(&last, 2, 1, "z").as_deref(), Some("yz"));
        assert_eq!(join("0", 2, 1, "z"), None);
    }

    #[test]
    fn fuzz_frames() {
        let seeds: &[&[u8]] =
            &[b"\x08\x00\x10\x00\x18\x07\x20\x00\x2a\x0c\x0a\x04type\x12\x04ping"];
        fuzz::check(seeds, |input, _| drop(decode(input)));
    }
}
