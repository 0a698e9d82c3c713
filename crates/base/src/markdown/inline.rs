//! Inline marks: emphasis, code, links, escapes, character references.
//!
//! An opening mark is buffered with the text after it until it is closed or can no longer be closed: at the end of the
//! line, or after a limit, to avoid a visible delay. It is then plain text. The result is the same for any split of the
//! text into chunks.

use super::style::TextStyle;
use std::borrow::Cow;

/// Maximum bytes between an opening mark and its closing one.
const MAX_MARK_DISTANCE_BYTES: usize = 600;
/// The length of the longest character reference of HTML, `&CounterClockwiseContourIntegral;`.
const MAX_REFERENCE_BYTES: usize = 33;

/// A line that is being parsed.
#[derive(Debug, Default)]
pub struct InlineParser {
    pending: String,
    /// The character in front of `pending`.
    previous: Option<char>,
    closers: Closers,
}

/// Possible closing positions per mark of emphasis, cached to avoid a new search for every mark and every chunk.
#[derive(Debug, Default)]
struct Closers([Closer; EMPHASIS_MARKS.len()]);

const EMPHASIS_MARKS: &[u8] = b"*_~";

#[derive(Debug, Default)]
struct Closer {
    /// The number of bytes searched.
    searched_bytes: usize,
    /// The last run of the mark found there that may close something.
    last_closer: Option<usize>,
}

impl Closers {
    /// True if a mark opened before the byte `from` may be closed there or later, and before `end`.
    fn may_close(&mut self, text: &str, mark: u8, from: usize, end: usize) -> bool {
        let Some(index) = EMPHASIS_MARKS.iter().position(|other| *other == mark) else {
            return true;
        };
        let closer = &mut self.0[index];
        if closer.last_closer.is_none_or(|at| at < from) {
            let bytes = text.as_bytes();
            let closes = |at: &usize| {
                let before = bytes[at - 1];
                bytes[*at] == mark && before != mark && !before.is_ascii_whitespace()
            };
            closer.last_closer = (closer.searched_bytes.max(from)..bytes.len()).find(closes);
            closer.searched_bytes = closer.last_closer.map_or(bytes.len(), |at| at + 1);
        }
        closer.last_closer.is_some_and(|at| at < end)
    }

    /// Removes the first `bytes` bytes from the cache.
    fn drop_first(&mut self, bytes: usize) {
        for closer in &mut self.0 {
            closer.searched_bytes = closer.searched_bytes.saturating_sub(bytes);
            closer.last_closer = closer.last_closer.and_then(|at| at.checked_sub(bytes));
        }
    }
}

/// A part of a parsed line, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineEvent<'t> {
    /// Text of one style. With `link`, the text is itself an address.
    Text(TextStyle, &'t str),
    /// The text of a link to this address begins.
    LinkStart(&'t str),
    /// The text of the link ends. The style is that of the text around it.
    LinkEnd(TextStyle, &'t str),
}

/// The callback that receives the output.
pub type InlineSink<'a> = dyn FnMut(InlineEvent<'_>) + 'a;

impl InlineParser {
    /// Adds text to the line, and passes on the decided part.
    pub fn feed(&mut self, text: &str, style: TextStyle, sink: &mut InlineSink<'_>) {
        self.pending.push_str(text);
        let length = resolve(&self.pending, self.previous, false, &mut self.closers, style, sink);
        self.closers.drop_first(length);
        self.previous = self.pending[..length].chars().next_back().or(self.previous);
        self.pending.drain(..length);
    }

    /// Ends the line.
    pub fn end(&mut self, style: TextStyle, sink: &mut InlineSink<'_>) {
        resolve(&self.pending, self.previous, true, &mut self.closers, style, sink);
        *self = Self::default();
    }
}

/// Parses a complete text.
pub fn parse(text: &str, style: TextStyle, sink: &mut InlineSink<'_>) {
    resolve(text, None, true, &mut Closers::default(), style, sink);
}

/// The syntax found at a mark.
#[derive(Debug, PartialEq, Eq)]
enum InlineMark<'t> {
    /// Undecided: depends on the text that follows.
    Open,
    /// Plain text of this many bytes.
    Literal(usize),
    /// An escaped character, after this many bytes of marks.
    Escaped(usize),
    /// A character reference such as `&lt;`: its characters, and its length.
    Reference(Cow<'t, str>, usize),
    /// An explicit line break, which the line has anyway.
    Break,
    Code(&'t str, usize),
    Emphasis(&'t str, u8, usize),
    Link {
        text: &'t str,
        address: &'t str,
        length: usize,
    },
}

/// Passes on the decided part of `text`, and returns its length in bytes. If `is_complete`, all of it is decided.
fn resolve(
    text: &str,
    mut previous: Option<char>,
    is_complete: bool,
    closers: &mut Closers,
    style: TextStyle,
    sink: &mut InlineSink<'_>,
) -> usize {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let plain = rest.find(is_mark).unwrap_or(rest.len());
        if plain > 0 {
            sink(InlineEvent::Text(style, &rest[..plain]));
            previous = rest[..plain].chars().next_back();
            at += plain;
            continue;
        }
        let length = match parse_mark(text, at, previous, is_complete, closers) {
            InlineMark::Open => return at,
            InlineMark::Literal(length) => {
                sink(InlineEvent::Text(style, &rest[..length]));
                length
            }
            InlineMark::Escaped(marks) => {
                sink(InlineEvent::Text(style, &rest[marks..=marks]));
                marks + 1
            }
            InlineMark::Reference(characters, length) => {
                sink(InlineEvent::Text(style, &characters));
                length
            }
            InlineMark::Break => 1,
            InlineMark::Code(code, length) => {
                sink(InlineEvent::Text(TextStyle { code: true, ..style }, code));
                length
            }
            InlineMark::Emphasis(inner, marks, length) => {
                let is_strikethrough = rest.starts_with('~');
                let inner_style = TextStyle {
                    bold: style.bold || (!is_strikethrough && marks > 1),
                    italic: style.italic || (!is_strikethrough && marks != 2),
                    struck: style.struck || is_strikethrough,
                    ..style
                };
                resolve(inner, Some('*'), true, &mut Closers::default(), inner_style, sink);
                length
            }
            InlineMark::Link { text, address, length } => {
                show_link(text, address, style, sink);
                length
            }
        };
        previous = rest[..length].chars().next_back();
        at += length;
    }
    at
}

/// Passes on a link. If it has no text of its own, its text is the address without `mailto:`.
fn show_link(text: &str, address: &str, style: TextStyle, sink: &mut InlineSink<'_>) {
    let (address, decoded_text) = (decode_address(address), decode_address(text));
    let without_scheme = address.strip_prefix("mailto:").unwrap_or(&address);
    if text.is_empty() || decoded_text == address || decoded_text == without_scheme {
        let text = if text.is_empty() { &address } else { &decoded_text };
        return sink(InlineEvent::Text(TextStyle { link: true, ..style }, text));
    }
    sink(InlineEvent::LinkStart(&address));
    resolve(text, Some('['), true, &mut Closers::default(), style, sink);
    sink(InlineEvent::LinkEnd(style, &address));
}

/// Decodes the character references of an address, except those of characters that would end it.
fn decode_address(address: &str) -> Cow<'_, str> {
    if !address.contains('&') {
        return Cow::Borrowed(address);
    }
    let ends_address = |character: char| character.is_whitespace() || "()<>".contains(character);
    let mut decoded = String::with_capacity(address.len());
    let mut rest = address;
    while let Some(at) = rest.find('&') {
        decoded += &rest[..at];
        rest = &rest[at..];
        let length = match parse_reference(rest) {
            InlineMark::Reference(characters, length) if !characters.contains(ends_address) => {
                decoded += &characters;
                length
            }
            _ => {
                decoded.push('&');
                1
            }
        };
        rest = &rest[length..];
    }
    Cow::Owned(decoded + rest)
}

/// Escapes `&` in Markdown where a character reference would begin with it.
pub fn escape_references(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        if character == '&' && matches!(parse_reference(&text[at..]), InlineMark::Reference(..)) {
            escaped += "&amp;";
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn is_mark(character: char) -> bool {
    matches!(character, '\\' | '`' | '*' | '_' | '~' | '[' | '!' | '<' | '&')
}

/// Returns the syntax in `line` at the byte `at`, which is a mark.
fn parse_mark<'t>(
    line: &'t str,
    at: usize,
    previous: Option<char>,
    is_complete: bool,
    closers: &mut Closers,
) -> InlineMark<'t> {
    let text = &line[at..];
    // Nothing beyond the limit is examined, so the result does not depend on the chunks.
    let is_whole = is_complete || text.len() >= MAX_MARK_DISTANCE_BYTES;
    let text = &text[..text.floor_char_boundary(MAX_MARK_DISTANCE_BYTES)];
    let mut may_close =
        |marks: usize| closers.may_close(line, text.as_bytes()[0], at + marks, at + text.len());
    let mark = match text.as_bytes()[0] {
        b'\\' => parse_escape(text, is_complete),
        b'`' => parse_code(text, is_whole),
        b'[' => parse_link(text, 0),
        b'!' => parse_image(text),
        b'<' => parse_autolink(text),
        b'&' => parse_reference(text),
        _ => parse_emphasis(text, previous, is_whole, &mut may_close),
    };
    match mark {
        InlineMark::Open if is_whole => InlineMark::Literal(run_length(text)),
        mark => mark,
    }
}

/// Returns the length of the run of the first character, a mark of one byte.
fn run_length(text: &str) -> usize {
    let first = text.as_bytes()[0];
    text.bytes().take_while(|byte| *byte == first).count()
}

fn parse_escape(text: &str, is_complete: bool) -> InlineMark<'_> {
    match text.as_bytes().get(1) {
        None if is_complete => InlineMark::Break,
        None => InlineMark::Open,
        Some(next) if next.is_ascii_punctuation() => InlineMark::Escaped(1),
        Some(_) => InlineMark::Literal(1),
    }
}

/// Parses a character reference. A reference to a control character is plain text, since the character would reach a terminal.
fn parse_reference(text: &str) -> InlineMark<'_> {
    let start = &text.as_bytes()[..text.len().min(MAX_REFERENCE_BYTES)];
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'#';
    let length = start[1..].iter().take_while(|byte| is_part(byte)).count() + 2;
    if length > start.len() {
        return match start.len() {
            MAX_REFERENCE_BYTES => InlineMark::Literal(1),
            _ => InlineMark::Open,
        };
    }
    if start[length - 1] != b';' {
        return InlineMark::Literal(1);
    }
    let reference = &text[..length];
    let characters = html_escape::decode_html_entities(reference);
    if characters == reference || characters.contains(char::is_control) {
        InlineMark::Literal(1)
    } else {
        InlineMark::Reference(characters, length)
    }
}

fn parse_code(text: &str, is_whole: bool) -> InlineMark<'_> {
    let marks = run_length(text);
    let Some(end) = code_end(text, marks, is_whole) else {
        return InlineMark::Open;
    };
    let code = &text[marks..end - marks];
    let inner = code
        .strip_prefix(' ')
        .and_then(|code| code.strip_suffix(' '))
        .filter(|inner| !inner.trim().is_empty());
    InlineMark::Code(inner.unwrap_or(code), end)
}

/// Returns the end of the code at the start of `text`, including its marks. A run at the end of an incomplete text
/// may become longer, so it closes nothing yet.
fn code_end(text: &str, marks: usize, is_whole: bool) -> Option<usize> {
    let mut at = marks;
    loop {
        at += text[at..].find('`')?;
        let closing = run_length(&text[at..]);
        at += closing;
        if closing == marks && (is_whole || at < text.len()) {
            return Some(at);
        }
    }
}

/// Parses emphasis such as `**bold**`. Marks of two kinds only close marks of their own kind. `may_close` tells whether a closing mark may
/// exist after a given number of marks.
fn parse_emphasis<'t>(
    text: &'t str,
    previous: Option<char>,
    is_whole: bool,
    may_close: &mut dyn FnMut(usize) -> bool,
) -> InlineMark<'t> {
    let mark = text.as_bytes()[0];
    let marks = run_length(text);
    let Some(next) = text[marks..].chars().next() else {
        return if is_whole { InlineMark::Literal(marks) } else { InlineMark::Open };
    };
    let in_word = mark == b'_' && previous.is_some_and(char::is_alphanumeric);
    let is_valid_run = match mark {
        b'~' => marks == 2,
        _ => marks <= 3,
    };
    if !is_valid_run || in_word || next.is_whitespace() {
        return InlineMark::Literal(marks);
    }
    let closing = if may_close(marks) {
        find_closing(text, mark, marks, is_whole)
    } else if is_whole {
        ClosingMark::None
    } else {
        ClosingMark::Unknown
    };
    match closing {
        ClosingMark::At(end) => {
            let count = u8::try_from(marks).expect("three at most");
            InlineMark::Emphasis(&text[marks..end - marks], count, end)
        }
        ClosingMark::Unknown => InlineMark::Open,
        // Of three marks, one may be literal and two may be closed.
        ClosingMark::None => InlineMark::Literal(if marks == 3 { 1 } else { marks }),
    }
}

enum ClosingMark {
    At(usize),
    Unknown,
    None,
}

fn find_closing(text: &str, mark: u8, marks: usize, is_whole: bool) -> ClosingMark {
    let bytes = text.as_bytes();
    let mut at = marks;
    while at < bytes.len() {
        let length = run_length_at(text, at);
        match bytes[at] {
            b'\\' => {
                // Skip the next character, whatever it is.
                let next = text[at + 1..].chars().next();
                at += 1 + next.map_or(0, char::len_utf8);
                continue;
            }
            b'`' => match code_end(&text[at..], length, is_whole) {
                Some(code_length) => {
                    at += code_length;
                    continue;
                }
                None if !is_whole => return ClosingMark::Unknown,
                None => {}
            },
            byte if byte == mark => {
                let end = at + length;
                let next = text[end..].chars().next();
                if next.is_none() && !is_whole {
                    return ClosingMark::Unknown;
                }
                let after_blank = text[..at].ends_with(char::is_whitespace);
                let in_word = mark == b'_' && next.is_some_and(char::is_alphanumeric);
                // Three marks also close one or two, together with those opened within.
                if !after_blank && !in_word && (length == marks || length == 3) {
                    return ClosingMark::At(end);
                }
            }
            _ => {}
        }
        at += length;
    }
    if is_whole { ClosingMark::None } else { ClosingMark::Unknown }
}

/// Returns the length of the run of marks at `at`, or of the character there.
fn run_length_at(text: &str, at: usize) -> usize {
    let character_length = text[at..].chars().next().map_or(1, char::len_utf8);
    if character_length > 1 { character_length } else { run_length(&text[at..]) }
}

fn parse_image(text: &str) -> InlineMark<'_> {
    match text.as_bytes().get(1) {
        None => InlineMark::Open,
        Some(b'[') => parse_link(text, 1),
        Some(_) => InlineMark::Literal(1),
    }
}

/// Parses `[text](address "title")` after `skipped` bytes.
fn parse_link(text: &str, skipped: usize) -> InlineMark<'_> {
    let text = &text[skipped..];
    let literal = InlineMark::Literal(skipped + 1);
    let mut depth = 0_usize;
    let mut end = None;
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' => is_escaped = true,
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            end = Some(at);
            break;
        }
    }
    let Some(end) = end else {
        return InlineMark::Open;
    };
    let label = &text[1..end];
    let rest = &text[end + 1..];
    match rest.as_bytes().first() {
        None => return InlineMark::Open,
        Some(b'(') => {}
        Some(_) => return literal,
    }
    let mut depth = 0_usize;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let content = rest[1..at].trim();
            // A title repeats what the text should say, so it is dropped.
            let address = content.split(char::is_whitespace).next().unwrap_or_default();
            let title = content[address.len()..].trim();
            let is_title = title.is_empty() || title.starts_with(['"', '\'', '(']);
            let address = address.trim_start_matches('<').trim_end_matches('>');
            return if is_title && !address.is_empty() {
                InlineMark::Link { text: label, address, length: skipped + end + 1 + at + 1 }
            } else {
                literal
            };
        }
    }
    InlineMark::Open
}

/// Parses `<https://…>`; other tags are shown unchanged.
fn parse_autolink(text: &str) -> InlineMark<'_> {
    let content = &text[1..];
    let end = content
        .find(|character: char| character == '>' || character == '<' || character.is_whitespace());
    let Some(end) = end else {
        return InlineMark::Open;
    };
    let address = &content[..end];
    let has_scheme = ["http://", "https://", "ftp://", "mailto:"]
        .iter()
        .any(|scheme| address.starts_with(scheme));
    if content[end..].starts_with('>') && (has_scheme || address.contains('@')) {
        InlineMark::Link { text: "", address, length: end + 2 }
    } else {
        InlineMark::Literal(1)
    }
}

#[cfg(test)]
mod tests {
    use super::{InlineEvent, InlineParser, MAX_MARK_DISTANCE_BYTES, TextStyle, escape_references};

    /// Marks the styled text in the test output.
    fn pieces(cuts: &[&str]) -> String {
        let mut all: Vec<(TextStyle, String)> = Vec::new();
        let mut push = |style: TextStyle, text: &str| match all.last_mut() {
            Some((last, words)) if *last == style => words.push_str(text),
            _ => all.push((style, text.to_owned())),
        };
        let mut sink = |event: InlineEvent<'_>| match event {
            InlineEvent::Text(style, text) => push(style, text),
            InlineEvent::LinkStart(_) => push(TextStyle::PLAIN, "["),
            InlineEvent::LinkEnd(_, address) => push(TextStyle::PLAIN, &format!("]({address})")),
        };
        let mut inline = InlineParser::default();
        for cut in cuts {
            inline.feed(cut, TextStyle::PLAIN, &mut sink);
        }
        inline.end(TextStyle::PLAIN, &mut sink);
        let name = |style: &TextStyle| {
            let flags = [
                (style.bold, 'b'),
                (style.italic, 'i'),
                (style.struck, 's'),
                (style.code, 'c'),
                (style.link, 'l'),
            ];
            let flags = flags.iter().filter(|(is, _)| *is);
            flags.map(|(_, name)| *name).collect::<String>()
        };
        let mark = |(style, text): &(TextStyle, String)| match name(style) {
            name if name.is_empty() => text.clone(),
            name => format!("{{{name}:{text}}}"),
        };
        all.iter().map(mark).collect()
    }

    fn check(text: &str, expect: &str) {
        assert_eq!(pieces(&[text]), expect);
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let both = pieces(&[&text[..cut], &text[cut..]]);
            assert_eq!(both, expect, "cut at {cut}");
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(pieces(&letters), expect, "cut everywhere");
    }

    #[test]
    fn marks_become_looks() {
        check("a **b c** d", "a {b:b c} d");
        check("*a* _b_ __c__ ***d*** ~~e~~", "{i:a} {i:b} {b:c} {bi:d} {s:e}");
        check("**a *b* c**", "{b:a }{bi:b}{b: c}");
        check("**a *b***", "{b:a }{bi:b}");
        check("*a **b***", "{i:a }{bi:b}");
        check("`a*b*` ``c`d`` ` e `", "{c:a*b*} {c:c`d} {c:e}");
        check("**`a**`**", "{bc:a**}");
        check("snake_case_name 2 * 3 * 4", "snake_case_name 2 * 3 * 4");
        check("**open and `open", "**open and `open");
        check("***a** b*", "*{b:a} b*");
        check("a*****b", "a*****b");
        check(r"\*no\* \\ \u{1b}[2J C:\dir end\", r"*no* \ \u{1b}[2J C:\dir end");
        check("日**本**語", "日{b:本}語");
        check("~a~ ~~~b~~~", "~a~ ~~~b~~~");
    }

    #[test]
    fn links_have_addresses() {
        check("[a b](https://x/y)", "[a b](https://x/y)");
        check("[**a**](x \"title\").", "[{b:a}](x).");
        check("[https://x](https://x)", "{l:https://x}");
        check("[a@b.c](mailto:a@b.c)", "{l:a@b.c}");
        check("<https://x/y> <a@b.c> <div> a < b", "{l:https://x/y} {l:a@b.c} <div> a < b");
        check("![cat](cat.png)!", "[cat](cat.png)!");
        check("[a](b(c)d) [x] [y][z] [1](2 3)", "[a](b(c)d) [x] [y][z] [1](2 3)");
        check("a[0](", "a[0](");
        check("[a [b] c](d)", "[a [b] c](d)");
    }

    #[test]
    fn character_references_are_decoded_outside_of_code() {
        check("a &lt;b&gt; R&D &amp;lt; &#39;&#x27;", "a <b> R&D &lt; ''");
        check("`&lt;` **&gt;** \\&lt; &nope; &;", "{c:&lt;} {b:>} &lt; &nope; &;");
        check("1&nbsp;kB &&amp;& &#42;a&#42; &", "1\u{a0}kB &&& *a* &");
        check("&#27;[2J &#10; &#x0; &#1114112;", "&#27;[2J &#10; &#x0; &#1114112;");
        check(
            "[a&lt;b](https://x/?a&amp;b) <https://x/?a&amp;b> [https://x/?a&amp;b](https://x/?a&amp;b)",
            "[a<b](https://x/?a&b) {l:https://x/?a&b} {l:https://x/?a&b}",
        );
        check("[a](b&#41;&#32;c&eacute;)", "[a](b&#41;&#32;c\u{e9})");
        check("&CounterClockwiseContourIntegral;", "\u{2233}");
        let long = format!("&{}", "a".repeat(40));
        check(&long, &long);
        assert_eq!(escape_references("& &lt; &x"), "& &amp;lt; &x");
    }

    #[test]
    fn nobody_waits_for_a_mark_that_never_comes() {
        let long = format!("*{}* end", "a ".repeat(400));
        assert_eq!(pieces(&[&long]), long);
        let cuts = (1..long.len()).step_by(97);
        for cut in cuts {
            assert_eq!(pieces(&[&long[..cut], &long[cut..]]), long);
        }
        let mut shown = 0;
        InlineParser::default().feed(&long, TextStyle::PLAIN, &mut |event| {
            if let InlineEvent::Text(_, text) = event {
                shown += text.len();
            }
        });
        assert!(shown > 100, "{shown}");
    }

    #[test]
    fn many_marks_that_nothing_closes_cost_no_more_than_words() {
        check("**b **c **d** *e _f", "{b:b **c **d} *e _f");
        check("*a\\* *b `c*` d* e", "{i:a* *b }{ic:c*}{i: d} e");
        // Every mark searches the text after it, which was already searched for the previous mark.
        let text = "**b ".repeat(20_000);
        let mut inline = InlineParser::default();
        let mut shown = String::new();
        let mut sink = |event: InlineEvent<'_>| {
            if let InlineEvent::Text(_, text) = event {
                shown.push_str(text);
            }
        };
        for _ in 0..20_000 {
            inline.feed("**b ", TextStyle::PLAIN, &mut sink);
        }
        assert!(inline.pending.len() < MAX_MARK_DISTANCE_BYTES);
        assert!(inline.closers.0[0].searched_bytes >= inline.pending.len() - 4);
        inline.end(TextStyle::PLAIN, &mut sink);
        assert_eq!(shown, text);
    }
}
