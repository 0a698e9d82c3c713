//! Spans in the JSON encoding of the OpenTelemetry protocol: the messages of `opentelemetry/proto/trace/v1/trace.proto`, with ids in
//! hexadecimal digits, 64-bit numbers as text and enums as numbers (OTLP specification, "JSON Protobuf Encoding").

use serde::Serialize;
use serde_json::{Value, json};

/// A span that has ended.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtlpSpan {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_span_id: Option<String>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    /// Nanoseconds since 1970, in decimal digits.
    pub(super) start_time_unix_nano: String,
    pub(super) end_time_unix_nano: String,
    pub(super) attributes: Vec<Attribute>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<SpanStatus>,
}

/// The kind of a span, by its number in the protocol.
#[derive(Clone, Copy, Debug)]
pub(super) enum SpanKind {
    /// Work within the process.
    Internal = 1,
    /// A request to a server.
    Client = 3,
}

impl Serialize for SpanKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*self as u8)
    }
}

/// The status of a span.
#[derive(Debug, Serialize)]
pub(super) struct SpanStatus {
    code: u8,
}

impl SpanStatus {
    /// The span ended with an error.
    pub(super) const ERROR: Self = Self { code: 2 };
}

/// An attribute of a span or a resource.
#[derive(Debug, Serialize)]
pub(super) struct Attribute {
    key: &'static str,
    value: AnyValue,
}

/// A value of an attribute.
#[derive(Debug, Serialize)]
enum AnyValue {
    #[serde(rename = "stringValue")]
    Text(String),
    /// In decimal digits.
    #[serde(rename = "intValue")]
    Number(String),
    #[serde(rename = "arrayValue")]
    List { values: Vec<Self> },
}

impl Attribute {
    pub(super) fn text(key: &'static str, text: &str) -> Self {
        Self { key, value: AnyValue::Text(text.to_owned()) }
    }

    pub(super) fn number(key: &'static str, number: u64) -> Self {
        Self { key, value: AnyValue::Number(number.to_string()) }
    }

    /// A list with one text.
    pub(super) fn single_text(key: &'static str, text: &str) -> Self {
        let values = vec![AnyValue::Text(text.to_owned())];
        Self { key, value: AnyValue::List { values } }
    }
}

/// Builds the request that exports `spans` (`ExportTraceServiceRequest`), which is also a line of a file.
pub(super) fn export_request(spans: &[OtlpSpan]) -> Value {
    let (name, version) = ("nanobot", env!("CARGO_PKG_VERSION"));
    let resource =
        [Attribute::text("service.name", name), Attribute::text("service.version", version)];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": name, "version": version }, "spans": spans }],
    }] })
}
