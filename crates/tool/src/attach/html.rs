//! Extracts the text of an HTML page: the content between tags, without scripts and styles. Lines, paragraphs and
//! lists are preserved; links, images and table layout are lost. Any input is accepted, and the time is linear in its length.

/// Elements whose content is not displayed.
const HIDDEN_ELEMENTS: &[&str] = &["script", "style", "template", "svg", "noscript"];
/// Elements that are separated from their surroundings, such as paragraphs.
const BLOCK_ELEMENTS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "details",
    "dl",
    "fieldset",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "title",
    "ul",
];
/// Elements that start a new line.
const LINE_ELEMENTS: &[&str] =
    &["br", "caption", "dd", "div", "dt", "figcaption", "li", "option", "tr"];

/// Extracts the text of `page`.
pub(crate) fn extract_text(page: &str) -> String {
    let mut text = PageText::default();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        text.add_text(&rest[..start]);
        rest = &rest[start..];
        if rest.starts_with("<!--") {
            // The opening and closing marks may share dashes, as in `<!-->`.
            rest = skip_past(&rest[2..], "-->");
            continue;
        }
        let mut characters = rest[1..].chars();
        match characters.next() {
            Some('!' | '?') => rest = skip_past(rest, ">"),
            Some('/' | 'a'..='z' | 'A'..='Z') => {
                let end = end_of_tag(rest);
                let tag = rest[1..end].trim_end_matches('>');
                rest = &rest[end..];
                let (closes, tag) = match tag.strip_prefix('/') {
                    Some(tag) => (true, tag),
                    None => (false, tag),
                };
                let length = tag.find(|character: char| !character.is_ascii_alphanumeric());
                let name = tag[..length.unwrap_or(tag.len())].to_ascii_lowercase();
                if HIDDEN_ELEMENTS.contains(&name.as_str()) && !closes && !tag.ends_with('/') {
                    rest = skip_element(rest, &name);
                } else {
                    text.add_tag(&name, closes);
                }
            }
            _ => {
                text.add_text("<");
                rest = &rest[1..];
            }
        }
    }
    text.add_text(rest);
    text.output
}

/// Returns the text after `delimiter`; empty if there is none.
fn skip_past<'a>(text: &'a str, delimiter: &str) -> &'a str {
    text.split_once(delimiter).map_or("", |(_, rest)| rest)
}

/// Returns the text after the end tag of `name`, including the rest of that tag; empty if there is none.
fn skip_element<'a>(text: &'a str, name: &str) -> &'a str {
    let mut start = 0;
    while let Some(offset) = text[start..].find("</") {
        let tag = start + offset;
        let end = tag + 2 + name.len();
        if text.get(tag + 2..end).is_some_and(|tag_name| tag_name.eq_ignore_ascii_case(name)) {
            return skip_past(&text[end..], ">");
        }
        start = tag + 2;
    }
    ""
}

/// Returns the offset after the tag at the start of `text`. A `>` inside a quoted value does not end it.
fn end_of_tag(text: &str) -> usize {
    let mut quote = None;
    let mut before = b'<';
    for (index, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(opening_quote), _) if opening_quote == byte => quote = None,
            (Some(_), _) => {}
            (None, b'>') => return index + 1,
            (None, b'"' | b'\'') if before == b'=' => quote = Some(byte),
            (None, _) => {}
        }
        if !byte.is_ascii_whitespace() {
            before = byte;
        }
    }
    text.len()
}

/// The text extracted so far.
#[derive(Default)]
struct PageText {
    output: String,
    /// Line breaks to write before the next word.
    pending_breaks: usize,
    /// True if a space precedes the next word.
    has_pending_space: bool,
    /// Depth of nested elements that preserve white space.
    preformatted_depth: usize,
}

impl PageText {
    fn add_tag(&mut self, name: &str, closes: bool) {
        if BLOCK_ELEMENTS.contains(&name) {
            self.pending_breaks = self.pending_breaks.max(2);
        } else if LINE_ELEMENTS.contains(&name) {
            self.pending_breaks = self.pending_breaks.max(1);
        } else if ["td", "th"].contains(&name) {
            self.has_pending_space = true;
        }
        match (name, closes) {
            ("pre", false) => self.preformatted_depth += 1,
            ("pre", true) => self.preformatted_depth = self.preformatted_depth.saturating_sub(1),
            ("li", false) => self.add_word("- "),
            _ => {}
        }
    }

    /// Appends the text between two tags.
    fn add_text(&mut self, text: &str) {
        if self.preformatted_depth > 0 {
            return self.add_preformatted(text);
        }
        let is_blank = |character: char| character.is_ascii_whitespace();
        for word in text.split_inclusive(is_blank) {
            let bare = word.trim_end_matches(is_blank);
            if !bare.is_empty() {
                self.add_word(&decode_entities(bare));
            }
            self.has_pending_space |= bare.len() < word.len();
        }
    }

    /// Appends text whose white space is preserved.
    fn add_preformatted(&mut self, text: &str) {
        if !text.is_empty() {
            self.has_pending_space = false;
            self.add_word(&decode_entities(text));
        }
    }

    fn add_word(&mut self, word: &str) {
        let is_at_start = self.output.is_empty() || self.output.ends_with("- ");
        if !is_at_start && self.pending_breaks > 0 {
            self.output.push_str(&"\n".repeat(self.pending_breaks));
        } else if !is_at_start && self.has_pending_space {
            self.output.push(' ');
        }
        (self.pending_breaks, self.has_pending_space) = (0, false);
        self.output.push_str(word);
    }
}

/// Decodes the character references of `text`. Non-breaking spaces become plain ones; soft hyphens are removed.
fn decode_entities(text: &str) -> String {
    html_escape::decode_html_entities(text).replace('\u{a0}', " ").replace('\u{ad}', "")
}

#[cfg(test)]
mod tests {
    use super::extract_text;

    #[test]
    fn only_visible_text_is_extracted() {
        let check = |page: &str, expect: &str| assert_eq!(extract_text(page), expect, "{page}");
        check("", "");
        check("a  b\n c", "a b c");
        check("<p>a</p><p>b<br>c", "a\n\nb\nc");
        check("<h1> A <b>b</b>c</h1>\n<div>d</div>", "A bc\n\nd");
        check("<ul><li>a<li> b</ul>c", "- a\n- b\n\nc");
        check("<table><tr><td>a</td><td>b</td></tr><tr><td>c", "a b\nc");
        check("<pre>a\n  b</pre> c", "a\n  b\n\nc");
        check("a<script>if (a < b) '</p>'</script>b", "ab");
        check("a<STYLE x>p{}</Style >b<script>c", "ab");
        check("a<svg/>b", "ab");
        check("a<!-- <p> -->b<!doctype html>c<?x?>d", "abcd");
        check("a<!-- b", "a");
        check("a<!-->b<!--[if IE]><!-->c<!---->", "abc");
        check("a<b c", "a");
        check("a<a title='x > y' href=\">\">b</a>", "ab");
        check("<p don't>a</p>", "a");
        check("1 < 2 & 3 <3", "1 < 2 & 3 <3");
        check(
            "&lt;p&gt; &amp;lt; &#65;&#x42; &eacute; &none; &#xd800; &",
            "<p> &lt; AB é &none; &#xd800; &",
        );
        check("a&nbsp;b soft&shy;ly", "a b softly");
    }

    #[test]
    fn fuzz_any_page_is_text() {
        let seeds: &[&[u8]] = &[
            b"<html><head><title>a</title></head><body><p class='x'>b &amp; c</p><pre>d\n e</pre>",
            "<ul><li>é<li>b</ul><script>x</script><!-- y --><a href=\">\">&#65;</a>".as_bytes(),
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let page = String::from_utf8_lossy(input);
            assert!(extract_text(&page).len() <= page.len() * 2);
        });
    }
}
