//! Converts a page to markdown: its main article if it has one, else the whole page, with absolute links.

use crate::attach::html;
use dom_query::{Document, NodeRef};
use dom_smoothie::{Config, Readability, TextMode};
use nanobot_sandbox::process::isolated_parser::{self, IsolatedParser};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use url::Url;

/// The text of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Article {
    pub title: String,
    pub text: String,
}

/// Maximum number of elements in a page, far above that of real ones.
const MAX_ELEMENTS: usize = 300_000;
/// An article of fewer characters is not the main content of a page.
const MIN_ARTICLE_CHARS: usize = 200;
/// Elements whose content is not text.
const NON_TEXT_ELEMENTS: &[&str] =
    &["script", "style", "meta", "head", "noscript", "template", "svg", "nav", "iframe", "object"];

/// The parser of pages, in a process of its own. Its libraries were written for benign pages: a page that would cost too
/// much memory or time has its tags removed instead.
pub struct PageParser;

#[derive(Serialize, Deserialize)]
pub struct PageParameters {
    /// The address of the page.
    base: String,
    /// True for text without links.
    plain: bool,
}

impl IsolatedParser for PageParser {
    const NAME: &'static str = "page";
    const TIMEOUT: Duration = Duration::from_secs(10);
    const MEMORY_MIB: u64 = 512;
    type Parameters = PageParameters;
    type Output = Option<Article>;

    fn parse(parameters: PageParameters, document: &[u8]) -> Option<Article> {
        let PageParameters { base, plain } = parameters;
        parse(&String::from_utf8_lossy(document), &Url::parse(&base).ok()?, plain)
    }
}

/// Reads `page`, fetched from `base`, with links or as plain text.
pub(crate) fn extract(page: &str, base: &Url, plain: bool) -> Article {
    let parameters = PageParameters { base: base.to_string(), plain };
    let article = isolated_parser::parse::<PageParser>(parameters, page.as_bytes());
    // If the parser failed, found nothing or was stopped, the tags are removed by a simpler one.
    let text_of_tags = || Article { title: String::new(), text: html::extract_text(page) };
    article.ok().flatten().unwrap_or_else(text_of_tags)
}

/// The article of `page`; `None` if it has no text.
fn parse(page: &str, base: &Url, plain: bool) -> Option<Article> {
    let document = Document::from(page);
    let single_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = single_line(&document.select_single("title").text());
    make_links_absolute(&document, base);
    let full_page = document.clone();
    let config = Config {
        text_mode: if plain { TextMode::Formatted } else { TextMode::Markdown },
        max_elements_to_parse: MAX_ELEMENTS,
        // The library reads JSON-LD with `gjson`, which makes a `str` that is not UTF-8 of a broken escape.
        disable_json_ld: true,
        ..Config::default()
    };
    let result = Readability::with_document(document, Some(base.as_str()), Some(config))
        .and_then(|mut reader| reader.parse());
    let article = result.ok().map(|article| Article {
        title: match single_line(&article.title) {
            article_title if article_title.is_empty() => title.clone(),
            article_title => article_title,
        },
        text: tidy(&article.text_content),
    });
    let is_long = |article: &Article| article.text.chars().nth(MIN_ARTICLE_CHARS).is_some();
    if let Some(article) = article.filter(is_long) {
        return Some(article);
    }
    let text =
        if plain { html::extract_text(page) } else { tidy(&full_page.md(Some(NON_TEXT_ELEMENTS))) };
    (!text.is_empty()).then_some(Article { title, text })
}

/// Makes the addresses of links and images absolute; removes invalid ones.
fn make_links_absolute(document: &Document, base: &Url) {
    let set = |node: &NodeRef<'_>, name: &str| {
        let Some(value) = node.attr(name) else { return };
        let url = base.join(value.trim()).ok();
        match url.filter(|url| ["http", "https", "mailto"].contains(&url.scheme())) {
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
    let mut output = String::with_capacity(text.len());
    let mut empty_lines = 0;
    for line in text.lines() {
        let line = remove_empty_links(line.trim_end());
        if line.trim().is_empty() {
            empty_lines += 1;
            continue;
        }
        if !output.is_empty() {
            output.push_str(if empty_lines > 0 { "\n\n" } else { "\n" });
        }
        empty_lines = 0;
        output.push_str(&line);
    }
    output
}

/// Removes `[](…)` and `![](…)` from `line`, since they show nothing, and decodes `&amp;` in the other addresses.
fn remove_empty_links(line: &str) -> String {
    let mut output = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(bracket) = rest.find("](") {
        let Some(length) = rest[bracket..].find(')') else {
            break;
        };
        match rest[..bracket].strip_suffix('[') {
            Some(before) => output.push_str(before.trim_end_matches('!')),
            None => {
                let (text, link) = rest[..=bracket + length].split_at(bracket);
                output.push_str(text);
                output.push_str(&link.replace("&amp;", "&"));
            }
        }
        rest = &rest[bracket + length + 1..];
    }
    output.push_str(rest);
    output
}

#[cfg(test)]
mod tests {
    use super::{Article, extract, tidy};
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
    fn json_ld_is_not_read() {
        let page = format!(
            "<html><head><title>A title</title><script type='application/ld+json'>{{\"@context\":\"https://schema.org\",\
             \"@type\":\"Article\",\"headline\":\"Another title\"}}</script></head><body><article><p>{}</p></article></body></html>",
            article_text()
        );
        assert_eq!(extract(&page, &base(), false).title, "A title");
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
    fn fuzz_any_page_is_an_article() {
        let seeds: &[&[u8]] = &[
            b"<html><head><title>a</title></head><body><article><p class='x'>b &amp; c</p><pre>d\n e</pre></article>",
            "<ul><li>é<li>b</ul><script>x</script><!-- y --><a href=\">\">&#65;</a><table><td><b><p></b>".as_bytes(),
            b"<math><mi><svg><title><p></svg></math><template><table></template><frameset>",
        ];
        let mut number = 0;
        nanobot_base::fuzz::check(seeds, |input, _| {
            number += 1;
            // Each call starts a thread, and the parser has tests of its own, so a tenth of the inputs suffices.
            if number % 10 == 0 {
                let page = String::from_utf8_lossy(input);
                extract(&page, &base(), number % 20 == 0);
            }
        });
    }
}
