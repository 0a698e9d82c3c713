//! Search engines: the request for each, and the parsing of its answer. No I/O.

use crate::attach::html;
use dom_query::Document;
use nanobot_net::web_url::percent_encode;
use nanobot_sandbox::process::isolated_parser::{self, IsolatedParser};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use url::Url;

/// A search engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEngine {
    Brave,
    Searxng,
    DuckDuckGo,
}

/// A search result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResult {
    pub title: String,
    pub url: Url,
    pub(crate) snippet: String,
}

impl SearchEngine {
    /// The engine called `name` in the config.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "brave" => Some(Self::Brave),
            "searxng" => Some(Self::Searxng),
            "duckduckgo" | "ddg" => Some(Self::DuckDuckGo),
            _ => None,
        }
    }

    /// The engine's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brave => "Brave",
            Self::Searxng => "SearXNG",
            Self::DuckDuckGo => "DuckDuckGo",
        }
    }

    /// The default base address, for engines that have one.
    pub(crate) fn default_base(self) -> Option<&'static str> {
        match self {
            Self::Brave => Some("https://api.search.brave.com"),
            Self::DuckDuckGo => Some("https://html.duckduckgo.com"),
            Self::Searxng => None,
        }
    }

    /// The address that requests `query` from the engine at `base`.
    pub(crate) fn request_url(self, base: &str, query: &str, count: usize) -> String {
        let (base, query) = (base.trim_end_matches('/'), percent_encode(query));
        // Some users configure the whole address, including the path.
        let with_path = |path: &str| {
            if base.ends_with(path) { base.to_owned() } else { format!("{base}{path}") }
        };
        match self {
            Self::Brave => format!("{}?q={query}&count={count}", with_path("/res/v1/web/search")),
            Self::Searxng => format!("{}?q={query}&format=json", with_path("/search")),
            Self::DuckDuckGo => format!("{}/?q={query}", with_path("/html")),
        }
    }

    /// Parses an answer; the results stay in the engine's order.
    ///
    /// # Errors
    /// The answer has another format. The error is a text for the model.
    pub(crate) fn parse_answer(self, answer: &str) -> Result<Vec<SearchResult>, String> {
        let format_error = || format!("{} did not return a list of results", self.name());
        if self == Self::DuckDuckGo {
            let page = isolated_parser::parse::<ResultPageParser>((), answer.as_bytes());
            let links = page
                .map_err(|error| format!("{}: {error}", format_error()))?
                .ok_or_else(format_error)?;
            let results = links.iter();
            let results =
                results.filter_map(|link| build_result(&link.title, &link.url, &link.snippet));
            return Ok(results.collect());
        }
        let answer: Value = serde_json::from_str(answer).map_err(|_| format_error())?;
        let (list, snippet_key) = match self {
            // Brave leaves out the whole branch if nothing was found.
            Self::Brave if answer["web"].is_null() && answer.is_object() => return Ok(Vec::new()),
            Self::Brave => (&answer["web"]["results"], "description"),
            _ => (&answer["results"], "content"),
        };
        let text = |result: &Value, key: &str| result[key].as_str().unwrap_or_default().to_owned();
        let list = list.as_array().ok_or_else(format_error)?.iter();
        let results = list.filter_map(|result| {
            build_result(&text(result, "title"), &text(result, "url"), &text(result, snippet_key))
        });
        Ok(results.collect())
    }
}

/// A result in the form of a page.
#[derive(Serialize, Deserialize)]
pub struct ResultLink {
    title: String,
    url: String,
    snippet: String,
}

/// The parser of DuckDuckGo's page without scripts, in a process of its own. `None` for any other page, such as the one
/// for suspected robots.
pub struct ResultPageParser;

impl IsolatedParser for ResultPageParser {
    const NAME: &'static str = "results";
    const TIMEOUT: Duration = Duration::from_secs(10);
    const MEMORY_MIB: u64 = 512;
    type Parameters = ();
    type Output = Option<Vec<ResultLink>>;

    fn parse((): (), document: &[u8]) -> Self::Output {
        parse_duckduckgo(&String::from_utf8_lossy(document))
    }
}

fn parse_duckduckgo(page: &str) -> Option<Vec<ResultLink>> {
    let document = Document::from(page);
    let results = document.select(".result");
    let mut links = Vec::new();
    for result in results.iter().filter(|result| !result.has_class("result--ad")) {
        let link = result.select("a.result__a");
        let href = link.attr("href").unwrap_or_default();
        // DuckDuckGo counts clicks by redirecting through its own site.
        let absolute_url = Url::parse("https://duckduckgo.com/").ok()?.join(&href).ok();
        let redirect = absolute_url.as_ref().filter(|url| url.host_str() == Some("duckduckgo.com"));
        let target = redirect.and_then(|url| {
            let mut pairs = url.query_pairs();
            pairs.find(|(name, _)| name == "uddg").map(|(_, target)| target.into_owned())
        });
        let url = match (&target, redirect) {
            (Some(target), _) => target,
            (None, Some(_)) => continue,
            (None, None) => &*href,
        };
        links.push(ResultLink {
            title: link.text().to_string(),
            url: url.to_owned(),
            snippet: result.select(".result__snippet").text().to_string(),
        });
    }
    let is_empty = !document.select(".no-results").is_empty();
    (!links.is_empty() || is_empty).then_some(links)
}

/// Builds a result, if its address is on the web. Title and description become one line each, without markup.
fn build_result(title: &str, url: &str, snippet: &str) -> Option<SearchResult> {
    let url = Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()))?;
    let line = |text: &str| {
        let text = html::extract_text(text);
        nanobot_os::hidden_chars::strip(&text).0.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    Some(SearchResult { title: line(title), url, snippet: line(snippet) })
}

#[cfg(test)]
mod tests {
    use super::SearchEngine;

    #[test]
    fn request_urls() {
        use SearchEngine::{Brave, DuckDuckGo, Searxng};
        let check = |engine: SearchEngine, base: &str, expect: &str| {
            assert_eq!(engine.request_url(base, "a b&c", 3), expect);
        };
        check(Brave, "https://b", "https://b/res/v1/web/search?q=a%20b%26c&count=3");
        check(Searxng, "http://s:1/", "http://s:1/search?q=a%20b%26c&format=json");
        check(Searxng, "http://s:1/x/search", "http://s:1/x/search?q=a%20b%26c&format=json");
        check(DuckDuckGo, "https://d", "https://d/html/?q=a%20b%26c");
        check(DuckDuckGo, "https://d/html/", "https://d/html/?q=a%20b%26c");
    }

    #[test]
    fn answers() {
        use SearchEngine::{Brave, DuckDuckGo, Searxng};
        let check = |engine: SearchEngine, answer: &str, expect: Result<&str, &str>| {
            let found = engine.parse_answer(answer).map(|found| {
                let line = |found: &super::SearchResult| {
                    format!("{}|{}|{}", found.title, found.url, found.snippet)
                };
                found.iter().map(line).collect::<Vec<_>>().join("\n")
            });
            match (&found, expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect),
                (Err(message), Err(word)) => assert!(message.contains(word), "{message}"),
                _ => panic!("{answer}: {found:?}"),
            }
        };
        check(
            Brave,
            r#"{"web": {"results": [{"title": "A <b>&amp;</b> B", "url": "https://a.example", "description": "<strong>x</strong>\ny"},
                {"title": "no", "url": "javascript:x"}, {"url": "http://b.example/\u200b"}]}}"#,
            Ok("A & B|https://a.example/|x y\n|http://b.example/%E2%80%8B|"),
        );
        check(Brave, r#"{"query": {}}"#, Ok(""));
        check(Brave, r#"[]"#, Err("Brave did not return a list"));
        check(Brave, "<html>", Err("not return a list"));
        check(
            Searxng,
            r#"{"results": [{"title": "t", "url": "https://a.example/", "content": "c"}]}"#,
            Ok("t|https://a.example/|c"),
        );
        check(Searxng, r#"{"results": []}"#, Ok(""));
        check(Searxng, "{}", Err("SearXNG did not return a list"));
        let page = r#"<div class="result results_links"><h2><a class="result__a"
            href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.example%2Fx%3Fy%3D1&amp;rut=0">A <b>t</b></a></h2>
            <a class="result__snippet" href="x">About <b>it</b></a></div>
            <div class="result result--ad"><a class="result__a" href="https://ad.example/">Ad</a></div>
            <div class="result"><a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=b">Ad</a></div>
            <div class="result"><a class="result__a" href="https://b.example/">B</a></div>"#;
        check(DuckDuckGo, page, Ok("A t|https://a.example/x?y=1|About it\nB|https://b.example/|"));
        check(DuckDuckGo, "<div class='no-results'>No results.</div>", Ok(""));
        check(
            DuckDuckGo,
            "<form>Select all squares containing a duck</form>",
            Err("DuckDuckGo did not return a list"),
        );
    }

    #[test]
    fn fuzz_answers_are_parsed_or_rejected() {
        let seeds: &[&[u8]] = &[
            br#"{"web": {"results": [{"title": "a", "url": "https://a.example", "description": "b"}]}}"#,
            br#"{"results": [{"title": "a", "url": "https://a.example", "content": "b"}]}"#,
            b"<div class=result><a class=result__a href='//duckduckgo.com/l/?uddg=https%3A%2F%2Fa'>b</a></div>",
        ];
        nanobot_base::fuzz::check(seeds, |input, random| {
            let engines = [SearchEngine::Brave, SearchEngine::Searxng, SearchEngine::DuckDuckGo];
            for found in engines[random.below(3)]
                .parse_answer(&nanobot_base::fuzz::lossy_text(input))
                .unwrap_or_default()
            {
                assert!(["http", "https"].contains(&found.url.scheme()));
                assert!(!found.title.contains('\n') && !found.snippet.contains('\n'));
            }
        });
    }
}
