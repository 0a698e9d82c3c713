//! Text files in any encoding: decoded for a model, and encoded again so that a change keeps the encoding, the byte order
//! mark, the line endings, and every byte that is not changed.

use crate::ToolError;
use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{EncoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use nanobot_base::diff::common_tokens;
use std::borrow::Cow;

/// Bytes examined to detect an encoding that has no byte order mark.
const DETECTION_SAMPLE_BYTES: usize = 64 << 10;

/// The decoded content of a text file.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// The text without a byte order mark.
    pub text: String,
    encoding: &'static Encoding,
    /// Bytes of the byte order mark at the start.
    mark_bytes: usize,
    /// True if some bytes are not valid in the encoding. The text has U+FFFD in their place.
    has_invalid_bytes: bool,
}

impl TextFile {
    /// Decodes the content of a file. `None` if it is not text.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let (encoding, mark_bytes) = match Encoding::for_bom(bytes) {
            Some(encoding_and_length) => encoding_and_length,
            None => (detect_encoding(bytes)?, 0),
        };
        let (text, has_invalid_bytes) = encoding.decode_without_bom_handling(&bytes[mark_bytes..]);
        Some(Self { text: text.into_owned(), encoding, mark_bytes, has_invalid_bytes })
    }

    /// Describes the encoding for a model; `None` for UTF-8.
    pub(crate) fn describe_encoding(&self) -> Option<String> {
        let name = self.encoding.name();
        if self.has_invalid_bytes {
            return Some(format!("{name}; bytes that are not valid are shown as U+FFFD"));
        }
        (self.encoding != UTF_8).then(|| name.to_owned())
    }

    /// Encodes `new`, the text after a change, like the file `old` that this text was read from.
    ///
    /// # Errors
    /// The encoding lacks a character, or bytes that are not text would be lost. The error is a text for the model.
    pub fn encode(&self, new: &str, old: &[u8]) -> Result<Vec<u8>, String> {
        let (byte_order_mark, content) = old.split_at(self.mark_bytes);
        let mut bytes = byte_order_mark.to_vec();
        let is_reversible = || self.encode_text(&self.text).is_ok_and(|encoded| encoded == content);
        if !self.has_invalid_bytes && is_reversible() {
            bytes.extend_from_slice(&self.encode_text(new)?);
            return Ok(bytes);
        }
        let old_lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
        let line_bytes = self.split_lines(content);
        let name = self.encoding.name();
        if line_bytes.len() != old_lines.len() {
            return Err(format!(
                "it is not valid {name}, and its lines are unclear; change it with exec"
            ));
        }
        let mut next_line = 0;
        let end = (old_lines.len()..old_lines.len(), new_lines.len()..new_lines.len());
        let unchanged_lines = common_tokens(&old_lines, &new_lines);
        for (old_range, new_range) in unchanged_lines.into_iter().chain([end]) {
            for (number, line) in (next_line + 1..).zip(&new_lines[next_line..new_range.start]) {
                if line.contains('\u{fffd}') {
                    return Err(format!(
                        "line {number} has bytes that are not valid {name} (U+FFFD in the text), which would be lost; \
                         change other lines, or use exec"
                    ));
                }
                bytes.extend_from_slice(&self.encode_text(line)?);
            }
            bytes.extend(line_bytes[old_range].concat());
            next_line = new_range.end;
        }
        Ok(bytes)
    }

    fn encode_text<'t>(&self, text: &'t str) -> Result<Cow<'t, [u8]>, String> {
        if self.encoding == UTF_8 {
            return Ok(Cow::Borrowed(text.as_bytes()));
        }
        if self.encoding == UTF_16LE {
            return Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
        }
        if self.encoding == UTF_16BE {
            return Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect());
        }
        let mut encoder = self.encoding.new_encoder();
        let mut bytes = Vec::new();
        let mut rest = text;
        loop {
            let capacity = encoder.max_buffer_length_from_utf8_without_replacement(rest.len());
            bytes.reserve(capacity.unwrap_or(rest.len()));
            let (result, read) =
                encoder.encode_from_utf8_to_vec_without_replacement(rest, &mut bytes, true);
            match result {
                EncoderResult::InputEmpty => return Ok(Cow::Owned(bytes)),
                EncoderResult::OutputFull => rest = &rest[read..],
                EncoderResult::Unmappable(character) => {
                    let name = self.encoding.name();
                    return Err(format!(
                        "the file is {name}, which has no `{character}` (U+{:04X}); write something else for it, or convert the \
                         file first, as with `iconv -f {name} -t UTF-8`",
                        u32::from(character)
                    ));
                }
            }
        }
    }

    /// The lines of `content` with their endings.
    fn split_lines<'c>(&self, content: &'c [u8]) -> Vec<&'c [u8]> {
        let newline: &[u8] = match self.encoding {
            encoding if encoding == UTF_16LE => b"\n\0",
            encoding if encoding == UTF_16BE => b"\0\n",
            _ => b"\n",
        };
        let mut lines = Vec::new();
        let (mut start, mut offset) = (0, 0);
        for unit in content.chunks(newline.len()) {
            offset += unit.len();
            if unit == newline {
                lines.push(&content[start..offset]);
                start = offset;
            }
        }
        if start < content.len() {
            lines.push(&content[start..]);
        }
        lines
    }

    /// Adapts `content`, which replaces the whole text, to the line endings of the file. Returns it with notes for the model on
    /// kept and changed parts.
    pub fn adapt_content(&self, content: &str) -> (String, Vec<String>) {
        let mut notes = Vec::new();
        let content = content.strip_prefix('\u{feff}').unwrap_or(content);
        if self.encoding != UTF_8 {
            notes.push(format!("it stays {}", self.encoding.name()));
        } else if self.mark_bytes > 0 {
            notes.push("it keeps its byte order mark".to_owned());
        }
        let (old, new) = (LineEnds::in_text(&self.text), LineEnds::in_text(content));
        let keeps_endings =
            matches!(old, LineEnds::Windows | LineEnds::Mixed) && new == LineEnds::Unix;
        if keeps_endings {
            notes.push(format!("it keeps its line endings, {}", old.describe()));
            return (self.keep_line_ends(content), notes);
        }
        if new != old && new != LineEnds::None && old != LineEnds::None {
            let (new, old) = (new.describe(), old.describe());
            notes.push(format!("its line endings are now {new}, before {old}"));
        }
        (content.to_owned(), notes)
    }

    /// `content` with the endings that the file's lines have; a new line has the ending of the line before it.
    fn keep_line_ends(&self, content: &str) -> String {
        let split_ending =
            |line| match (str::strip_suffix(line, "\r\n"), str::strip_suffix(line, "\n")) {
                (Some(text), _) => (text, "\r\n"),
                (None, Some(text)) => (text, "\n"),
                (None, None) => (line, ""),
            };
        let (old, endings): (Vec<&str>, Vec<&str>) =
            self.text.split_inclusive('\n').map(split_ending).unzip();
        let (new, new_endings): (Vec<&str>, Vec<&str>) =
            content.split_inclusive('\n').map(split_ending).unzip();
        let mut old_endings = vec![""; new.len()];
        for (in_old, in_new) in common_tokens(&old, &new) {
            old_endings[in_new].copy_from_slice(&endings[in_old]);
        }
        let mut last = endings.first().copied().unwrap_or("\n");
        let mut text = String::with_capacity(content.len());
        for ((line, new_ending), old_ending) in new.iter().zip(new_endings).zip(old_endings) {
            if !old_ending.is_empty() {
                last = old_ending;
            }
            text.push_str(line);
            text.push_str(if new_ending.is_empty() { "" } else { last });
        }
        text
    }
}

/// The line endings of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnds {
    None,
    Unix,
    Windows,
    Mixed,
}

impl LineEnds {
    fn in_text(text: &str) -> Self {
        let (all, windows) = (text.matches('\n').count(), text.matches("\r\n").count());
        match (all, windows) {
            (0, _) => Self::None,
            (_, 0) => Self::Unix,
            (all, windows) if all == windows => Self::Windows,
            _ => Self::Mixed,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Unix => "LF",
            Self::Windows => "CRLF",
            Self::Mixed => "CRLF and LF",
        }
    }
}

/// The content of the file `raw_path` as text, to be changed.
///
/// # Errors
/// The content is not text.
pub(crate) fn text_to_change(raw_path: &str, bytes: &[u8]) -> Result<TextFile, ToolError> {
    let file = TextFile::new(bytes);
    file.ok_or_else(|| format!("`{raw_path}` is a binary file and cannot be edited").into())
}

/// The encoding of `bytes` without a byte order mark; `None` if they are not text.
fn detect_encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let sample = &bytes[..bytes.len().min(DETECTION_SAMPLE_BYTES)];
    let mut utf16 = [UTF_16LE, UTF_16BE].into_iter();
    if bytes.contains(&0)
        && let Some(encoding) = utf16.find(|encoding| is_utf16(sample, encoding))
    {
        return Some(encoding);
    }
    if std::str::from_utf8(bytes).is_ok() {
        return Some(UTF_8);
    }
    if bytes.contains(&0) {
        return None;
    }
    // A text with many valid characters and a few wrong bytes is still in this encoding.
    let (mut valid, mut invalid) = (0, 0);
    for chunk in sample.utf8_chunks() {
        valid += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    if valid > 2 * invalid {
        return Some(UTF_8);
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, sample.len() == bytes.len());
    Some(detector.guess(None, Utf8Detection::Deny))
}

/// True if `sample` is UTF-16 of `encoding` that is at least half ASCII, and has no control characters.
fn is_utf16(sample: &[u8], encoding: &Encoding) -> bool {
    let to_unit = if encoding == UTF_16LE { u16::from_le_bytes } else { u16::from_be_bytes };
    let units = sample.chunks_exact(2).map(|pair| to_unit([pair[0], pair[1]]));
    let (mut ascii, mut all) = (0, 0);
    for character in char::decode_utf16(units) {
        match character {
            Ok('\t' | '\n' | '\r' | ' '..='~') => ascii += 1,
            Ok(character) if character.is_control() => return false,
            Ok(_) => {}
            Err(_) => return false,
        }
        all += 1;
    }
    sample.len().is_multiple_of(2) && ascii * 2 >= all
}

#[cfg(test)]
mod tests {
    use super::TextFile;
    use nanobot_base::fuzz;

    /// Bytes before, the text as it is decoded, a change, and the bytes after.
    fn check(old: &[u8], find: &str, put: &str, expect: Result<&[u8], &str>) {
        let file = TextFile::new(old).unwrap();
        assert!(file.text.contains(find), "{:?} {find:?}", file.text);
        let new = file.text.replacen(find, put, 1);
        match (file.encode(&new, old), expect) {
            (Ok(bytes), Ok(expect)) => assert_eq!(bytes, expect, "{old:?} {find:?}"),
            (Err(error), Err(words)) => assert!(error.contains(words), "{error}"),
            (actual, _) => panic!("{old:?} {find:?}: {actual:?}"),
        }
    }

    fn utf16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(to_bytes).collect()
    }

    #[test]
    fn a_change_keeps_encoding_mark_and_line_endings() {
        check(b"a\r\nb\nc", "b", "\u{e9}", Ok(b"a\r\n\xc3\xa9\nc"));
        check(b"\xef\xbb\xbfa\r\n", "a", "b", Ok(b"\xef\xbb\xbfb\r\n"));
        for (mark, to_bytes) in [
            ("\u{feff}", u16::to_le_bytes as fn(u16) -> [u8; 2]),
            ("\u{feff}", u16::to_be_bytes),
            ("", u16::to_le_bytes),
            ("", u16::to_be_bytes),
        ] {
            let bytes = |text: &str| utf16(&format!("{mark}{text}"), to_bytes);
            let (old, new) =
                (bytes("one\r\ntwo\nc\u{e9}"), bytes("one\r\n\u{1f642}\u{65e5}\nc\u{e9}"));
            check(&old, "two", "\u{1f642}\u{65e5}", Ok(&new));
        }
        for (label, text, find, put, lacking) in [
            (
                "windows-1252",
                "na\u{ef}ve caf\u{e9} d\u{e9}j\u{e0} vu\r\nx\n",
                "caf\u{e9}",
                "\u{fc}ber",
                "\u{2192}",
            ),
            (
                "Shift_JIS",
                "\u{3053}\u{308c}\u{306f}\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{6587}\u{7ae0}\u{3067}\u{3059}\u{3002}\r\nx\n",
                "\u{65e5}\u{672c}\u{8a9e}",
                "\u{6f22}\u{5b57}",
                "\u{e9}",
            ),
            (
                "GBK",
                "\u{8fd9}\u{662f}\u{4e00}\u{4e2a}\u{4e2d}\u{6587}\u{6587}\u{672c}\u{6587}\u{4ef6}\u{3002}\r\nx\n",
                "\u{4e2d}\u{6587}",
                "\u{6c49}\u{8bed}",
                "\u{1f642}",
            ),
            (
                "EUC-KR",
                "\u{c774}\u{ac83}\u{c740} \u{d55c}\u{ad6d}\u{c5b4} \u{bb38}\u{c11c}\u{c785}\u{b2c8}\u{b2e4}.\r\nx\n",
                "\u{d55c}\u{ad6d}\u{c5b4}",
                "\u{d55c}\u{ae00}",
                "\u{1f642}",
            ),
            // It contains all Russian letters where KOI8-R has them.
            (
                "KOI8-U",
                "\u{42d}\u{442}\u{43e} \u{440}\u{443}\u{441}\u{441}\u{43a}\u{438}\u{439} \u{442}\u{435}\u{43a}\u{441}\u{442} \u{432} \u{444}\u{430}\u{439}\u{43b}\u{435}.\r\nx\n",
                "\u{440}\u{443}\u{441}\u{441}\u{43a}\u{438}\u{439}",
                "\u{43d}\u{43e}\u{432}\u{44b}\u{439}",
                "\u{e9}",
            ),
        ] {
            let encoding = encoding_rs::Encoding::for_label(label.as_bytes()).unwrap();
            let encoded = |text: &str| encoding.encode(text).0.into_owned();
            let old = encoded(text);
            let actual = TextFile::new(&old).unwrap();
            assert_eq!((actual.text.as_str(), actual.encoding.name()), (text, label));
            check(&old, find, put, Ok(&encoded(&text.replacen(find, put, 1))));
            check(
                &old,
                find,
                lacking,
                Err(&format!("the file is {label}, which has no `{lacking}`")),
            );
        }
    }

    #[test]
    fn bytes_that_are_not_valid_stay_outside_of_a_change() {
        let old = b"\xc3\xa9\xc3\xa9\xc3\xa9\n\xff bad\nlast\n";
        check(old, "last", "new", Ok(b"\xc3\xa9\xc3\xa9\xc3\xa9\n\xff bad\nnew\n"));
        check(old, "\u{e9}\u{e9}\u{e9}\n", "", Ok(b"\xff bad\nlast\n"));
        check(old, "bad", "good", Err("line 2 has bytes that are not valid UTF-8"));
        // Half a pair of UTF-16, and an odd byte at the end.
        let mut old = utf16("\u{feff}a\nb", u16::to_le_bytes);
        old.extend([0x00, 0xd8, b'\n', 0, b'c', 0, b'x']);
        let mut new = utf16("\u{feff}z\nb", u16::to_le_bytes);
        new.extend_from_slice(&old[8..]);
        check(&old, "a", "z", Ok(&new));
        assert!(TextFile::new(b"\x7fELF\0\0\xff").is_none());
    }

    #[test]
    fn a_whole_text_keeps_line_endings() {
        let check = |old: &str, content: &str, expect: &str, notes: &str| {
            let (text, actual) = TextFile::new(old.as_bytes()).unwrap().adapt_content(content);
            assert_eq!((text.as_str(), actual.join("; ").as_str()), (expect, notes), "{old:?}");
        };
        check("a\n", "b\n", "b\n", "");
        check("a", "b\r\n", "b\r\n", "");
        check("a\r\n", "b\nc", "b\r\nc", "it keeps its line endings, CRLF");
        let mixed = "it keeps its line endings, CRLF and LF";
        check("a\r\nb\nc\r\nd", "a\nx\nb\ny\nc\nd\n", "a\r\nx\r\nb\ny\nc\r\nd\r\n", mixed);
        check("a\n", "a\r\nb\r\n", "a\r\nb\r\n", "its line endings are now CRLF, before LF");
        check("a\r\n", "a\r\nb\n", "a\r\nb\n", "its line endings are now CRLF and LF, before CRLF");
        check("\u{feff}a\n", "\u{feff}b\n", "b\n", "it keeps its byte order mark");
        check(
            "\u{feff}a\r\n",
            "b\n",
            "b\r\n",
            "it keeps its byte order mark; it keeps its line endings, CRLF",
        );
        check("", "b\n", "b\n", "");
    }

    #[test]
    fn fuzz_an_unchanged_text_is_the_same_bytes() {
        let seeds: &[&[u8]] = &[
            b"\xef\xbb\xbfa\r\nb\xff\n",
            b"\xff\xfea\0\n\0\x00\xd8b\0c",
            b"na\xefve caf\xe9 d\xe9j\xe0 vu",
            b"\x82\xb1\x82\xea\x82\xcd\x93\xfa\x96{\x8c\xea\n",
        ];
        fuzz::check(seeds, |input, _| {
            if let Some(file) = TextFile::new(input)
                && let Ok(bytes) = file.encode(&file.text, input)
            {
                assert_eq!(bytes, input);
            }
        });
    }
}
