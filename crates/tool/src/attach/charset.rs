//! Determines the character encoding of a page: by its byte order mark, then the server's header, then the page's own
//! declaration, then detection.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8};

/// Bytes at the start of a page that may contain its encoding declaration.
const DECLARATION_SCAN_BYTES: usize = 1024;
/// Bytes examined to detect an encoding that is not declared.
const DETECTION_SAMPLE_BYTES: usize = 64 << 10;

/// Decodes `bytes`; returns the text and its encoding. `content_type` is the server's `content-type`.
pub fn decode(bytes: &[u8], content_type: &str) -> (String, &'static Encoding) {
    let guess = || match std::str::from_utf8(bytes) {
        Ok(_) => UTF_8,
        Err(_) => {
            let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
            detector.feed(
                &bytes[..bytes.len().min(DETECTION_SAMPLE_BYTES)],
                bytes.len() <= DETECTION_SAMPLE_BYTES,
            );
            // A truncated page may end within a character.
            detector.guess(None, Utf8Detection::Allow)
        }
    };
    // A byte order mark takes precedence over both; `decode` handles it.
    let (text, encoding, _) =
        declared_encoding(content_type, bytes).unwrap_or_else(guess).decode(bytes);
    (text.into_owned(), encoding)
}

/// Returns the encoding declared by the server or by the page.
pub(super) fn declared_encoding(content_type: &str, bytes: &[u8]) -> Option<&'static Encoding> {
    let content_type = content_type.to_ascii_lowercase();
    parse_charset(&content_type).or_else(|| {
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(DECLARATION_SCAN_BYTES)]);
        is_html(&content_type).then(|| parse_charset(&head)).flatten()
    })
}

/// True if `content_type` is HTML.
pub fn is_html(content_type: &str) -> bool {
    let content_type = content_type.trim_start().to_ascii_lowercase();
    content_type.starts_with("text/html") || content_type.starts_with("application/xhtml")
}

/// Returns the encoding that follows `charset=` in `text`.
fn parse_charset(text: &str) -> Option<&'static Encoding> {
    let text = text.to_ascii_lowercase();
    let (_, rest) = text.split_once("charset=")?;
    let rest = rest.trim_start_matches(['"', '\'']);
    let end = rest.find(['"', '\'', ';', '>', '/', ' ']);
    Encoding::for_label(rest[..end.unwrap_or(rest.len())].trim().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{decode, parse_charset};

    #[test]
    fn pages_in_their_encodings() {
        let check = |kind: &str, bytes: &[u8], expect: (&str, &str)| {
            let (text, encoding) = decode(bytes, kind);
            assert_eq!((text.as_str(), encoding.name()), expect, "{kind} {bytes:?}");
        };
        check("text/html", b"a", ("a", "UTF-8"));
        check("text/html; charset=koi8-r", b"\xc1", ("\u{430}", "KOI8-R"));
        check("text/html; charset=koi8-r", b"\xef\xbb\xbfa", ("a", "UTF-8"));
        check("text/plain", b"\xff\xfea\0", ("a", "UTF-16LE"));
        check(
            "text/html",
            b"<meta charset=iso-8859-1>\xe9",
            ("<meta charset=iso-8859-1>\u{e9}", "windows-1252"),
        );
        // Only an HTML page can declare its own encoding.
        check("text/plain", b"<meta charset=koi8-r>", ("<meta charset=koi8-r>", "UTF-8"));
        let french = "na\u{ef}ve caf\u{e9} d\u{e9}j\u{e0} vu";
        let bytes: Vec<u8> = french.chars().map(|letter| letter as u8).collect();
        check("text/plain", &bytes, (french, "windows-1252"));
        let long = "\u{e9}".repeat(40_000);
        check(
            "text/plain",
            &long.as_bytes()[..79_999],
            (&format!("{}\u{fffd}", "\u{e9}".repeat(39_999)), "UTF-8"),
        );
    }

    #[test]
    fn declared_encodings_are_used() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(parse_charset(text).map(|found| found.name()), expect, "{text}");
        };
        check("text/html", None);
        check("text/html; charset=utf-8", Some("UTF-8"));
        check("text/html;charset=\"ISO-8859-1\"; x=y", Some("windows-1252"));
        check("<meta charset=koi8-r>", Some("KOI8-R"));
        check("<META CONTENT='text/html; CHARSET=Shift_JIS'>", Some("Shift_JIS"));
        check("charset=nonsense", None);
        check("charset=", None);
    }
}
