//! The context of a distributed trace: the value of the variable `TRACEPARENT`, by which a process continues the trace of the program
//! that started it. The format is that of the header `traceparent` (W3C, "Trace Context"); OpenTelemetry names the variable
//! ("Environment Variables as Context Propagation Carriers").

use std::fmt;

/// A span of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// 32 hexadecimal digits in lower case, not all of them zero.
    pub trace_id: String,
    /// 16 hexadecimal digits in lower case, not all of them zero.
    pub span_id: String,
    /// True if the spans of the trace are recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Parses the value of `TRACEPARENT`; `None` if it is invalid. Versions after 00 may add fields, which are ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('-');
        let mut field = |length: usize| fields.next().filter(|field| is_hex(field, length));
        let version = field(2).filter(|version| *version != "ff")?;
        let trace_id = field(32).filter(|id| !is_zero(id))?;
        let span_id = field(16).filter(|id| !is_zero(id))?;
        let flags = u8::from_str_radix(field(2)?, 16).ok()?;
        (version != "00" || fields.next().is_none()).then(|| Self {
            trace_id: trace_id.to_owned(),
            span_id: span_id.to_owned(),
            is_sampled: flags & 1 == 1,
        })
    }
}

/// Formats the value of `TRACEPARENT`, in version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        write!(f, "00-{trace_id}-{span_id}-{:02x}", u8::from(*is_sampled))
    }
}

/// True if `text` consists of `length` hexadecimal digits in lower case.
fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_zero(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

#[cfg(test)]
mod tests {
    use super::TraceContext;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn valid_values() {
        let check = |text: &str, expect: &str| {
            let context = TraceContext::parse(text).unwrap();
            assert_eq!((context.trace_id.as_str(), context.span_id.as_str()), (TRACE, SPAN));
            assert_eq!(context.to_string(), expect, "{text}");
        };
        let formatted = |flags: &str| format!("00-{TRACE}-{SPAN}-{flags}");
        check(&formatted("01"), &formatted("01"));
        check(&formatted("00"), &formatted("00"));
        // Other flags are not passed on, nor are fields of later versions.
        check(&formatted("03"), &formatted("01"));
        check(&format!("01-{TRACE}-{SPAN}-01"), &formatted("01"));
        check(&format!("cc-{TRACE}-{SPAN}-00-more"), &formatted("00"));
    }

    #[test]
    fn invalid_values() {
        let zeros = "0".repeat(32);
        for text in [
            "",
            "00",
            &format!("ff-{TRACE}-{SPAN}-01"),
            &format!("00-{TRACE}-{SPAN}-01-more"),
            &format!("00-{TRACE}-{SPAN}-01-"),
            &format!("00-{TRACE}-{SPAN}-1"),
            &format!("00-{TRACE}-{SPAN}"),
            &format!("00-{zeros}-{SPAN}-01"),
            &format!("00-{TRACE}-{}-01", &zeros[..16]),
            &format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            &format!("00-{}-{SPAN}-01", &TRACE[1..]),
            &format!("0-{TRACE}-{SPAN}-01"),
            &format!("01-{TRACE}-{SPAN}-01more"),
            &format!(" 00-{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }
}
