//! Converts a page to markdown: its main article if it has one, else the whole page, with absolute links. The parser
//! was made for benign pages. A page that would cost it unbounded memory or time, or that exceeds its time limit, is
//! read tag by tag instead.

use crate::attach::html;
use crate::sys::signal;
use dom_query::{Document, NodeRef};
use dom_smoothie::{Config, Readability, TextMode};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use url::Url;

/// The text of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tool) struct Article {
    pub(in crate::tool) title: String,
    pub(in crate::tool) text: String,
}

/// Time limit for the parser.
const PARSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the wait for the parser checks for a signal.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Stack size in bytes, for parsers that recurse for each nested element.
const STACK_BYTES: usize = 32 << 20;
/// Maximum nesting depth and number of elements, far above those of real pages.
const MAX_DEPTH: usize = 256;
const MAX_ELEMENTS: usize = 300_000;
/// Maximum number of different element names in a page; HTML has about 140.
const MAX_ELEMENT_NAMES: usize = 200;
/// An article of fewer characters is not the main content of a page.
const MIN_ARTICLE_CHARS: usize = 200;
/// Elements whose content is not text.
const NON_TEXT_ELEMENTS: &[&str] =
    &["script", "style", "meta", "head", "noscript", "template", "svg", "nav", "iframe", "object"];
/// Elements without an end tag.
const VOID_ELEMENTS: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr",
];
/// Elements that are often ended by another one, without an end tag.
const OPTIONAL_END_TAG_ELEMENTS: &[&str] =
    &["p", "li", "td", "th", "tr", "dt", "dd", "option", "tbody"];
/// Formatting elements that the parser opens again in every block until they are closed.
const FORMATTING_ELEMENTS: &[&str] = &[
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
];

/// Reads `page`, fetched from `base`, with links or as plain text.
pub(in crate::tool) fn extract(page: &str, base: &Url, plain: bool) -> Article {
    let by_tags = || Article { title: String::new(), text: html::extract_text(page) };
    if !is_safe_to_parse(page) {
        return by_tags();
    }
    let (send, receive) = mpsc::sync_channel(1);
    let (owned, base) = (page.to_owned(), base.clone());
    // The parser cannot be cancelled. If it exceeds its limit, its thread runs on until it finishes or the process
    // ends.
    let parser = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || drop(send.send(parse(&owned, &base, plain))));
    if parser.is_err() {
        return by_tags();
    }
    let started = Instant::now();
    loop {
        match receive.recv_timeout(SIGNAL_POLL_INTERVAL) {
            Ok(Some(article)) => return article,
            // The parser found nothing, or panicked.
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return by_tags(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if started.elapsed() > PARSE_TIMEOUT || signal::check().is_err() {
            return by_tags();
        }
    }
}

/// True if `page` is safe for the parser: a few bytes can demand more elements than fit into memory.
fn is_safe_to_parse(page: &str) -> bool {
    let mut open: Vec<(&str, usize)> = Vec::new();
    let (mut elements, mut depth, mut repeated) = (0_usize, 0_usize, 0_usize);
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let (closes, tag) = match rest.strip_prefix('/') {
            Some(tag) => (true, tag),
            None => (false, rest),
        };
        let length = tag.find(|letter: char| !letter.is_ascii_alphanumeric());
        let name = &tag[..length.unwrap_or(tag.len()).min(16)];
        if name.is_empty() || VOID_ELEMENTS.iter().any(|void| name.eq_ignore_ascii_case(void)) {
            continue;
        }
        let is = |list: &[&str]| list.iter().any(|known| name.eq_ignore_ascii_case(known));
        let repeats = is(FORMATTING_ELEMENTS);
        let names = open.len();
        let known = open.iter_mut().find(|(other, _)| name.eq_ignore_ascii_case(other));
        if closes {
            if let Some((_, count)) = known.filter(|(_, count)| *count > 0) {
                *count -= 1;
                depth -= 1;
                repeated -= usize::from(repeats);
            }
            continue;
        }
        elements += 1 + repeated;
        if !is(OPTIONAL_END_TAG_ELEMENTS) {
            match known {
                Some((_, count)) => *count += 1,
                // Too many different names cannot be a real page.
                None if names < MAX_ELEMENT_NAMES => open.push((name, 1)),
                None => return false,
            }
            depth += 1;
            repeated += usize::from(repeats);
        }
        if depth > 4 * MAX_DEPTH || elements > MAX_ELEMENTS {
            return false;
        }
    }
    true
}

/// The article of `page`; `None` if it has no text.
fn parse(page: &str, base: &Url, plain: bool) -> Option<Article> {
    let document = Document::from(page);
    if is_too_deep(&document) {
        return None;
    }
    let in_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = in_line(&document.select_single("title").text());
    make_links_absolute(&document, base);
    let whole = document.clone();
    let config = Config {
        text_mode: if plain { TextMode::Formatted } else { TextMode::Markdown },
        max_elements_to_parse: MAX_ELEMENTS,
        ..Config::default()
    };
    let found = Readability::with_document(document, Some(base.as_str()), Some(config))
        .and_then(|mut reader| reader.parse());
    let article = found.ok().map(|article| Article {
        title: match in_line(&article.title) {
            found if found.is_empty() => title.clone(),
            found => found,
        },
        text: tidy(&article.text_content),
    });
    let long = |article: &Article| article.text.chars().nth(MIN_ARTICLE_CHARS).is_some();
    if let Some(article) = article.filter(long) {
        return Some(article);
    }
    let text =
        if plain { html::extract_text(page) } else { tidy(&whole.md(Some(NON_TEXT_ELEMENTS))) };
    (!text.is_empty()).then_some(Article { title, text })
}

/// True if elements are nested deeper than in any real page; the text formatters recurse for each level.
fn is_too_deep(document: &Document) -> bool {
    let mut depth = 0;
    let mut next = document.root().first_child();
    while let Some(node) = next {
        if let Some(child) = node.first_child() {
            depth += 1;
            if depth > MAX_DEPTH {
                return true;
            }
            next = Some(child);
            continue;
        }
        let mut up = Some(node);
        next = None;
        while let Some(node) = up {
            if let Some(sibling) = node.next_sibling() {
                next = Some(sibling);
                break;
            }
            up = node.parent();
            depth = depth.saturating_sub(1);
        }
    }
    false
}

/// Makes the addresses of links and images absolute; removes invalid ones.
fn make_links_absolute(document: &Document, base: &Url) {
    let set = |node: &NodeRef<'_>, name: &str| {
        let Some(value) = node.attr(name) else { return };
        let whole = base.join(value.trim()).ok();
        match whole.filter(|url| ["http", "https", "mailto"].contains(&url.scheme())) {
            Some(url) => node.set_attr(name, url.as_str()),
            None => node.remove_attr(name),
        }
    };
    // `descendants` collects the nodes first, since nodes cannot be changed during a traversal.
    for node in document.root().descendants() {
        if node.has_name("a") {
            set(&node, "href");
        } else if node.has_name("img") {
            set(&node, "src");
        }
    }
}

/// Removes empty links and images from `text`, and reduces successive empty lines to one.
fn tidy(text: &str) -> String {
    let mut done = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines() {
        let line = remove_empty_links(line.trim_end());
        if line.trim().is_empty() {
            empty += 1;
            continue;
        }
        if !done.is_empty() {
            done.push_str(if empty > 0 { "\n\n" } else { "\n" });
        }
        empty = 0;
        done.push_str(&line);
    }
    done
}

/// Removes `[](…)` and `![](…)` from `line`, since they show nothing, and decodes `&amp;` in the other addresses.
fn remove_empty_links(line: &str) -> String {
    let mut done = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        let Some(length) = rest[at..].find(')') else {
            break;
        };
        match rest[..at].strip_suffix('[') {
            Some(before) => done.push_str(before.trim_end_matches('!')),
            None => {
                let (words, link) = rest[..=at + length].split_at(at);
                done.push_str(words);
                done.push_str(&link.replace("&amp;", "&"));
            }
        }
        rest = &rest[at + length + 1..];
    }
    done.push_str(rest);
    done
}

#[cfg(test)]
mod tests {
    use super::{Article, extract, is_safe_to_parse, tidy};
    use std::time::{Duration, Instant};
    use url::Url;

    fn base() -> Url {
        Url::parse("https://a.example/dir/page").unwrap()
    }

    /// Enough words for an article.
    fn article_text() -> String {
        "This sentence, which says little, is one of several that make an article, and not a menu. "
            .repeat(12)
    }

    #[test]
    fn articles_become_markdown() {
        let page = format!(
            "<html><head><title>A  title</title><script>x()</script></head><body><nav><a href=/a>navigation</a></nav>\
             <article><h1>Head</h1><p>{article_text}</p><p>See <a href='../b?c=1&amp;d'>there</a>, <a href='javascript:x()'>nowhere</a>\
             </p><ul><li>one</li><li>two</li></ul><pre><code>let x = 1;\n</code></pre><table><tr><th>k</th><th>v</th></tr>\
             <tr><td>a</td><td>b</td></tr></table></article></body></html>",
            article_text = article_text()
        );
        let Article { title, text } = extract(&page, &base(), false);
        assert_eq!(title, "A title");
        for wanted in ["[there](https://a.example/b?c=1&d)", "- one\n", "let x = 1;", "| a | b |"] {
            assert!(text.contains(wanted), "no {wanted:?} in {text}");
        }
        assert!(!text.contains("x()") && !text.contains("navigation"), "{text}");
        let plain = extract(&page, &base(), true).text;
        assert!(plain.contains("there") && !plain.contains("]("), "{plain}");
    }

    #[test]
    fn pages_without_an_article_are_shown_whole() {
        let check = |page: &str, expect: &str| {
            assert_eq!(extract(page, &base(), false).text, expect, "{page}");
        };
        check("<p>short", "short");
        check("<title>t</title><a href=x>y</a>", "[y](https://a.example/dir/x)");
        check("", "");
        check("no tags", "no tags");
        check("<img src='data:image/png;base64,AAAA' alt=dot>z", "z");
    }

    #[test]
    fn text_is_tidied() {
        let check = |text: &str, expect: &str| assert_eq!(tidy(text), expect, "{text:?}");
        check("\n\na  \n\n\n\nb\nc", "a\n\nb\nc");
        check("a [](https://x) b ![](y)", "a  b ");
        check("[](a\n[", "[](a\n[");
        check("[a & b](x?c&amp;d) &amp; e", "[a & b](x?c&d) &amp; e");
    }

    #[test]
    fn hostile_pages_are_read_tag_by_tag() {
        let deep = "<div>".repeat(100_000);
        let quotes = "<blockquote><ul><li>".repeat(30_000);
        let fonts: String = (0..500).map(|number| format!("<b id={number}>")).collect();
        let again = format!("{fonts}{}", "<p>x".repeat(100_000));
        let tables = "<table><tr><td>".repeat(20_000);
        let crossed = "<a><b></a></i>".repeat(50_000);
        let names: String = (0..5_000).map(|number| format!("<x{number}>")).collect();
        for page in [&deep, &quotes, &again, &tables, &names] {
            assert!(!is_safe_to_parse(page), "{}", &page[..60]);
        }
        for page in [deep, quotes, again, tables, crossed, names] {
            let started = Instant::now();
            let text = extract(&format!("{page}end"), &base(), false).text;
            assert!(text.contains("end"), "{}", &page[..60]);
            assert!(started.elapsed() < Duration::from_secs(20), "{}", &page[..60]);
        }
        assert!(is_safe_to_parse(&"<p>a<li>b<b>c</b>".repeat(20_000)));
        assert!(is_safe_to_parse(&format!("{}{}", "<div>".repeat(200), "</div>".repeat(200))));
    }

    #[test]
    fn fuzz_any_page_is_an_article() {
        let seeds: &[&[u8]] = &[
            b"<html><head><title>a</title></head><body><article><p class='x'>b &amp; c</p><pre>d\n e</pre></article>",
            "<ul><li>é<li>b</ul><script>x</script><!-- y --><a href=\">\">&#65;</a><table><td><b><p></b>".as_bytes(),
            b"<math><mi><svg><title><p></svg></math><template><table></template><frameset>",
        ];
        let mut number = 0;
        crate::fuzz::check(seeds, |input, _| {
            number += 1;
            // Each call starts a thread, and the parser has tests of its own, so a tenth of the inputs suffices.
            if number % 10 == 0 {
                let page = String::from_utf8_lossy(input);
                extract(&page, &base(), number % 20 == 0);
            }
        });
    }
}
