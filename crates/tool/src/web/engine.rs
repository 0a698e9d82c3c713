//! The search engines as a table: the request for each, and the parsing of its answer. No I/O. A new engine is a row.

use crate::attach::html;
use dom_query::Document;
use nanobot_net::web_url::percent_encode;
use nanobot_os::env::BRAVE_API_KEY;
use nanobot_sandbox::process::isolated_parser::{self, IsolatedParser};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use url::Url;

/// A search engine: where it is, what it is sent, and what its answers look like.
#[derive(Debug)]
pub struct SearchEngine {
    /// Its name in the config.
    pub name: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Its address; `None` if only the user knows it.
    base: Option<&'static str>,
    /// The environment variable that can have the address that only the user knows.
    pub base_variable: Option<&'static str>,
    path: &'static str,
    key: EngineKey,
    /// The environment variables that can have its key.
    pub key_variables: &'static [&'static str],
    form: RequestForm,
    answer: AnswerForm,
}

/// The header that carries the key of an engine, and the text before the key.
type KeyHeader = (&'static str, &'static str);

/// The key of an engine.
#[derive(Clone, Copy, Debug)]
enum EngineKey {
    NotUsed,
    Required(KeyHeader),
    /// Without a key, the path is another one.
    Optional {
        header: KeyHeader,
        path_without_key: &'static str,
    },
}

/// A question to an engine.
#[derive(Clone, Copy, Debug)]
pub struct SearchQuery<'a> {
    pub text: &'a str,
    /// The wanted number of results.
    pub count: usize,
    /// The user's own engine at Google.
    pub engine_id: &'a str,
}

/// The form of a request.
#[derive(Clone, Copy, Debug)]
enum RequestForm {
    /// GET with these parameters; values are encoded.
    Get(fn(&SearchQuery<'_>) -> Vec<(&'static str, String)>),
    /// POST with this JSON.
    Post(fn(&SearchQuery<'_>) -> Value),
}

/// A request to an engine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EngineRequest {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The JSON of a POST request; `None` for GET.
    pub(crate) body: Option<String>,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug)]
enum AnswerForm {
    /// DuckDuckGo's page without scripts.
    Page,
    Json(ResultList),
}

/// A list of results as JSON.
#[derive(Clone, Copy, Debug)]
struct ResultList {
    /// The JSON pointer (RFC 6901) of the list.
    pointer: &'static str,
    /// True if an answer without results has no list.
    omits_if_empty: bool,
    title: &'static str,
    url: &'static str,
    /// The first of these members that has a text is the excerpt. It can be a list of texts.
    snippet: &'static [&'static str],
}

/// The answer of most engines: a list of objects with `title` and `url`.
const fn list(pointer: &'static str, snippet: &'static [&'static str]) -> ResultList {
    ResultList { pointer, omits_if_empty: false, title: "title", url: "url", snippet }
}

const BEARER: KeyHeader = ("authorization", "Bearer ");

/// The fields that most engines have in common.
const ENGINE: SearchEngine = SearchEngine {
    name: "",
    label: "",
    base: None,
    base_variable: None,
    path: "/search",
    key: EngineKey::Required(BEARER),
    key_variables: &[],
    form: RequestForm::Get(|query| vec![("q", query.text.into())]),
    answer: AnswerForm::Json(list("/results", &["content"])),
};

// Skipped by rustfmt, to keep all rows in the same layout.
#[rustfmt::skip]
/// The engines of the Python program, and Google's. Sources: the vendors' API references; for Tavily, Exa and Olostep also their
/// SDKs for Python (0.8.5, 2.28.0 and 1.2.2).
pub const ENGINES: &[SearchEngine] = &[
    SearchEngine {
        name: "duckduckgo", label: "DuckDuckGo", base: Some("https://html.duckduckgo.com"), path: "/html/", key: EngineKey::NotUsed,
        answer: AnswerForm::Page, ..ENGINE
    },
    SearchEngine {
        name: "brave", label: "Brave", base: Some("https://api.search.brave.com"), path: "/res/v1/web/search",
        key: EngineKey::Required(("x-subscription-token", "")), key_variables: &[BRAVE_API_KEY],
        form: RequestForm::Get(|query| vec![("q", query.text.into()), ("count", query.count.to_string())]),
        answer: AnswerForm::Json(ResultList { omits_if_empty: true, ..list("/web/results", &["description"]) }), ..ENGINE
    },
    SearchEngine {
        name: "searxng", label: "SearXNG", base_variable: Some("SEARXNG_BASE_URL"), key: EngineKey::NotUsed,
        form: RequestForm::Get(|query| vec![("q", query.text.into()), ("format", "json".into())]), ..ENGINE
    },
    SearchEngine {
        name: "tavily", label: "Tavily", base: Some("https://api.tavily.com"), key_variables: &["TAVILY_API_KEY"],
        form: RequestForm::Post(|query| json!({ "query": query.text, "max_results": query.count })), ..ENGINE
    },
    SearchEngine {
        name: "exa", label: "Exa", base: Some("https://api.exa.ai"),
        key: EngineKey::Required(("x-api-key", "")), key_variables: &["EXA_API_KEY"],
        form: RequestForm::Post(|query| json!({ "query": query.text, "numResults": query.count, "contents": { "highlights": true } })),
        answer: AnswerForm::Json(list("/results", &["highlights", "summary", "text"])), ..ENGINE
    },
    SearchEngine {
        name: "serper", label: "Serper", base: Some("https://google.serper.dev"),
        key: EngineKey::Required(("x-api-key", "")), key_variables: &["SERPER_API_KEY"],
        form: RequestForm::Post(|query| json!({ "q": query.text, "num": query.count })),
        answer: AnswerForm::Json(ResultList { omits_if_empty: true, url: "link", ..list("/organic", &["snippet"]) }), ..ENGINE
    },
    SearchEngine {
        name: "google", label: "Google", base: Some("https://www.googleapis.com"), path: "/customsearch/v1",
        key: EngineKey::Required(("x-goog-api-key", "")), key_variables: &["GOOGLE_SEARCH_API_KEY"],
        form: RequestForm::Get(|query| {
            vec![("cx", query.engine_id.into()), ("q", query.text.into()), ("num", query.count.to_string())]
        }),
        answer: AnswerForm::Json(ResultList { omits_if_empty: true, url: "link", ..list("/items", &["snippet"]) }), ..ENGINE
    },
    SearchEngine {
        name: "kagi", label: "Kagi", base: Some("https://kagi.com"), path: "/api/v1/search", key_variables: &["KAGI_API_KEY"],
        form: RequestForm::Post(|query| json!({ "query": query.text, "limit": query.count })),
        answer: AnswerForm::Json(ResultList { omits_if_empty: true, ..list("/data/search", &["snippet"]) }), ..ENGINE
    },
    SearchEngine {
        name: "jina", label: "Jina", base: Some("https://s.jina.ai"), path: "/", key_variables: &["JINA_API_KEY"],
        answer: AnswerForm::Json(list("/data", &["description", "content"])), ..ENGINE
    },
    SearchEngine {
        name: "olostep", label: "Olostep", base: Some("https://api.olostep.com/v1"), path: "/searches", key_variables: &["OLOSTEP_API_KEY"],
        form: RequestForm::Post(|query| json!({ "query": query.text, "limit": query.count })),
        answer: AnswerForm::Json(list("/result/links", &["description"])), ..ENGINE
    },
    SearchEngine {
        name: "bocha", label: "Bocha", base: Some("https://api.bochaai.com"), path: "/v1/web-search", key_variables: &["BOCHA_API_KEY"],
        form: RequestForm::Post(|query| json!({ "query": query.text, "summary": true, "count": query.count })),
        answer: AnswerForm::Json(ResultList { omits_if_empty: true, title: "name", ..list("/data/webPages/value", &["summary", "snippet"]) }),
        ..ENGINE
    },
    SearchEngine {
        name: "volcengine", label: "Volcengine", base: Some("https://open.feedcoopapi.com"), path: "/search_api/web_search",
        key_variables: &["VOLCENGINE_SEARCH_API_KEY", "WEB_SEARCH_API_KEY"],
        form: RequestForm::Post(|query| json!({ "Query": query.text, "SearchType": "web", "Count": query.count, "NeedSummary": true })),
        answer: AnswerForm::Json(ResultList { title: "Title", url: "Url", ..list("/Result/WebResults", &["Summary", "Snippet"]) }), ..ENGINE
    },
    SearchEngine {
        name: "keenable", label: "Keenable", base: Some("https://api.keenable.ai"), path: "/v1/search",
        key: EngineKey::Optional { header: ("x-api-key", ""), path_without_key: "/v1/search/public" }, key_variables: &["KEENABLE_API_KEY"],
        form: RequestForm::Post(|query| json!({ "query": query.text })),
        answer: AnswerForm::Json(list("/results", &["snippet", "description"])), ..ENGINE
    },
];

/// The name in the config of the search that the model's provider has.
pub const NATIVE: &str = "native";

/// The engine called `name` in the config.
pub fn find_engine(name: &str) -> Option<&'static SearchEngine> {
    let name = name.trim().to_ascii_lowercase();
    let name = if name == "ddg" { "duckduckgo" } else { &name };
    ENGINES.iter().find(|engine| engine.name == name)
}

/// The names of all engines in the config, as a list in words.
pub fn engine_names() -> String {
    let engines = ENGINES.iter().map(|engine| engine.name);
    let names: Vec<&str> = engines.chain([NATIVE]).collect();
    names.join(", ")
}

/// A search result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResult {
    pub title: String,
    pub url: Url,
    pub(crate) snippet: String,
}

impl SearchResult {
    /// Creates a result, if its address is on the web. Title and snippet become one line each, without markup.
    pub fn new(title: &str, url: &str, snippet: &str) -> Option<Self> {
        let url = Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()))?;
        let line = |text: &str| {
            let text = html::extract_text(text);
            let (text, _) = nanobot_os::hidden_chars::strip(&text);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        Some(Self { title: line(title), url, snippet: line(snippet) })
    }
}

impl SearchEngine {
    /// True if the engine answers only with a key.
    pub fn needs_key(&self) -> bool {
        matches!(self.key, EngineKey::Required(_))
    }

    /// True if its address need not be configured.
    pub fn has_address(&self) -> bool {
        self.base.is_some()
    }

    /// True if the user has an engine of their own there, which a request names.
    pub fn needs_engine_id(&self) -> bool {
        self.name == "google"
    }

    /// The request for `query`, to the address `base` of the config, or to the engine's own. `None` if neither is known.
    pub(crate) fn request(
        &self,
        base: Option<&str>,
        key: Option<&str>,
        query: &SearchQuery<'_>,
    ) -> Option<EngineRequest> {
        let base = base.or(self.base)?.trim_end_matches('/');
        let (path, key_header) = match (self.key, key) {
            (EngineKey::NotUsed, _) => (self.path, None),
            (EngineKey::Required(header), key) => (self.path, Some(header).zip(key)),
            (EngineKey::Optional { header, .. }, Some(key)) => (self.path, Some((header, key))),
            (EngineKey::Optional { path_without_key, .. }, None) => (path_without_key, None),
        };
        // Some users configure the whole address, including the path.
        let base = base.strip_suffix(path.trim_end_matches('/')).unwrap_or(base);
        let address = format!("{base}{path}");
        let mut headers = vec![("accept".to_owned(), "application/json, text/html".to_owned())];
        if let Some(((name, prefix), key)) = key_header {
            headers.push((name.to_owned(), format!("{prefix}{key}")));
        }
        Some(match self.form {
            RequestForm::Get(parameters) => {
                let parameters = parameters(query).into_iter();
                let pairs: Vec<String> = parameters
                    .map(|(name, value)| format!("{name}={}", percent_encode(&value)))
                    .collect();
                EngineRequest { url: format!("{address}?{}", pairs.join("&")), headers, body: None }
            }
            RequestForm::Post(body) => {
                EngineRequest { url: address, headers, body: Some(body(query).to_string()) }
            }
        })
    }

    /// Parses an answer; the results stay in the engine's order.
    ///
    /// # Errors
    /// The answer has another format. The error is a text for the model.
    pub(crate) fn parse_answer(&self, answer: &str) -> Result<Vec<SearchResult>, String> {
        let format_error = || format!("{} did not return a list of results", self.label);
        let AnswerForm::Json(ResultList { pointer, omits_if_empty, title, url, snippet }) =
            self.answer
        else {
            let page = isolated_parser::parse::<ResultPageParser>((), answer.as_bytes());
            let links = page
                .map_err(|error| format!("{}: {error}", format_error()))?
                .ok_or_else(format_error)?;
            let results = links.iter();
            let results =
                results.filter_map(|link| SearchResult::new(&link.title, &link.url, &link.snippet));
            return Ok(results.collect());
        };
        let answer: Value = serde_json::from_str(answer).map_err(|_| format_error())?;
        let list = match answer.pointer(pointer) {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) if omits_if_empty && answer.is_object() => {
                return Ok(Vec::new());
            }
            _ => return Err(format_error()),
        };
        let results = list.iter().filter_map(|result| {
            let snippets = snippet.iter().map(|member| member_text(result, member));
            let snippet = snippets.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
            SearchResult::new(&member_text(result, title), &member_text(result, url), &snippet)
        });
        Ok(results.collect())
    }
}

/// The text of a member of `result`; texts of a list are joined.
fn member_text(result: &Value, member: &str) -> String {
    match &result[member] {
        Value::String(text) => text.clone(),
        Value::Array(texts) => {
            let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
            texts.join(" ")
        }
        _ => String::new(),
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

#[cfg(test)]
mod tests {
    use super::{ENGINES, EngineRequest, SearchEngine, SearchQuery, find_engine};

    fn engine(name: &str) -> &'static SearchEngine {
        find_engine(name).unwrap()
    }

    #[test]
    fn requests() {
        let query = SearchQuery { text: "a b&c", count: 3, engine_id: "e:1" };
        let check = |name: &str, base: Option<&str>, expect: &str| {
            let EngineRequest { url, headers, body } =
                engine(name).request(base, Some("k"), &query).unwrap();
            let key = headers.get(1).map_or(String::new(), |(name, key)| format!(" {name}: {key}"));
            let body = body.map_or(String::new(), |body| format!(" {body}"));
            assert_eq!(format!("{url}{key}{body}"), expect, "{name}");
        };
        check("ddg", None, "https://html.duckduckgo.com/html/?q=a%20b%26c");
        check("duckduckgo", Some("https://d/html/"), "https://d/html/?q=a%20b%26c");
        let brave = "https://b/res/v1/web/search?q=a%20b%26c&count=3 x-subscription-token: k";
        check("Brave", Some("https://b"), brave);
        check("searxng", Some("http://s:1/"), "http://s:1/search?q=a%20b%26c&format=json");
        check(
            "searxng",
            Some("http://s:1/x/search"),
            "http://s:1/x/search?q=a%20b%26c&format=json",
        );
        let bearer = "authorization: Bearer k";
        let tavily = r#"{"query":"a b&c","max_results":3}"#;
        check("tavily", None, &format!("https://api.tavily.com/search {bearer} {tavily}"));
        let exa = r#"{"query":"a b&c","numResults":3,"contents":{"highlights":true}}"#;
        check("exa", None, &format!("https://api.exa.ai/search x-api-key: k {exa}"));
        let serper = r#"https://google.serper.dev/search x-api-key: k {"q":"a b&c","num":3}"#;
        check("serper", None, serper);
        let google = "https://www.googleapis.com/customsearch/v1?cx=e%3A1&q=a%20b%26c&num=3 x-goog-api-key: k";
        check("google", None, google);
        let kagi = r#"{"query":"a b&c","limit":3}"#;
        check("kagi", None, &format!("https://kagi.com/api/v1/search {bearer} {kagi}"));
        check("jina", None, &format!("https://s.jina.ai/?q=a%20b%26c {bearer}"));
        check("olostep", None, &format!("https://api.olostep.com/v1/searches {bearer} {kagi}"));
        let bocha = r#"{"query":"a b&c","summary":true,"count":3}"#;
        check("bocha", None, &format!("https://api.bochaai.com/v1/web-search {bearer} {bocha}"));
        let volcengine = r#"{"Query":"a b&c","SearchType":"web","Count":3,"NeedSummary":true}"#;
        let url = "https://open.feedcoopapi.com/search_api/web_search";
        check("volcengine", None, &format!("{url} {bearer} {volcengine}"));
        let keenable = r#"https://api.keenable.ai/v1/search x-api-key: k {"query":"a b&c"}"#;
        check("keenable", None, keenable);
        let public = engine("keenable").request(None, None, &query).unwrap();
        assert_eq!(public.url, "https://api.keenable.ai/v1/search/public");
        assert_eq!(public.headers.len(), 1);
        assert_eq!(engine("searxng").request(None, None, &query), None);
        assert!(find_engine("mst").is_none());
    }

    #[test]
    fn answers() {
        let check = |name: &str, answer: &str, expect: Result<&str, &str>| {
            let found = engine(name).parse_answer(answer).map(|results| {
                let line = |result: &super::SearchResult| {
                    format!("{}|{}|{}", result.title, result.url, result.snippet)
                };
                results.iter().map(line).collect::<Vec<_>>().join("\n")
            });
            match (&found, expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found, expect),
                (Err(message), Err(word)) => assert!(message.contains(word), "{message}"),
                _ => panic!("{answer}: {found:?}"),
            }
        };
        check(
            "brave",
            r#"{"web": {"results": [{"title": "A <b>&amp;</b> B", "url": "https://a.example", "description": "<strong>x</strong>\ny"},
                {"title": "no", "url": "javascript:x"}, {"url": "http://b.example/\u200b"}]}}"#,
            Ok("A & B|https://a.example/|x y\n|http://b.example/%E2%80%8B|"),
        );
        check("brave", r#"{"query": {}}"#, Ok(""));
        check("brave", r#"[]"#, Err("Brave did not return a list"));
        check("brave", "<html>", Err("not return a list"));
        check(
            "searxng",
            r#"{"results": [{"title": "t", "url": "https://a.example/", "content": "c"}]}"#,
            Ok("t|https://a.example/|c"),
        );
        check("searxng", r#"{"results": []}"#, Ok(""));
        check("searxng", "{}", Err("SearXNG did not return a list"));
        let page = r#"<div class="result results_links"><h2><a class="result__a"
            href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.example%2Fx%3Fy%3D1&amp;rut=0">A <b>t</b></a></h2>
            <a class="result__snippet" href="x">About <b>it</b></a></div>
            <div class="result result--ad"><a class="result__a" href="https://ad.example/">Ad</a></div>
            <div class="result"><a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=b">Ad</a></div>
            <div class="result"><a class="result__a" href="https://b.example/">B</a></div>"#;
        check(
            "duckduckgo",
            page,
            Ok("A t|https://a.example/x?y=1|About it\nB|https://b.example/|"),
        );
        check("duckduckgo", "<div class='no-results'>No results.</div>", Ok(""));
        check(
            "duckduckgo",
            "<form>Select all squares containing a duck</form>",
            Err("DuckDuckGo did not return a list"),
        );
    }

    #[test]
    fn answers_of_each_engine() {
        let check = |name: &str, answer: &str, list: &str| {
            let results = engine(name).parse_answer(answer).unwrap();
            let line = |result: &super::SearchResult| {
                format!("{}|{}|{}", result.title, result.url, result.snippet)
            };
            let lines: Vec<String> = results.iter().map(line).collect();
            assert_eq!(lines.join("\n"), list, "{name}");
        };
        let found = "t|https://a.example/|c d";
        let listed = |list: &str, snippet: &str| {
            format!(
                r#"{{"{list}": [{{"title": "t", "url": "https://a.example", {snippet}}}, {{"url": "x"}}, 3]}}"#
            )
        };
        check("tavily", &listed("results", r#""content": "c d""#), found);
        check("exa", &listed("results", r#""highlights": ["c", "d"]"#), found);
        check(
            "exa",
            &listed("results", r#""highlights": [], "summary": null, "text": "c d""#),
            found,
        );
        check("keenable", &listed("results", r#""snippet": "", "description": "c d""#), found);
        check("jina", &listed("data", r#""description": "c d", "content": "long""#), found);
        let link = r#"[{"title": "t", "link": "https://a.example", "snippet": "c d"}]"#;
        check("serper", &format!(r#"{{"organic": {link}}}"#), found);
        check("google", &format!(r#"{{"items": {link}}}"#), found);
        let nested = |outer: &str, inner: String| format!(r#"{{"{outer}": {inner}}}"#);
        check("kagi", &nested("data", listed("search", r#""snippet": "c d""#)), found);
        check("olostep", &nested("result", listed("links", r#""description": "c d""#)), found);
        let named = r#"[{"name": "t", "url": "https://a.example", "summary": "c d"}]"#;
        check("bocha", &format!(r#"{{"data": {{"webPages": {{"value": {named}}}}}}}"#), found);
        let capital = r#"[{"Title": "t", "Url": "https://a.example", "Summary": "c d"}]"#;
        check("volcengine", &format!(r#"{{"Result": {{"WebResults": {capital}}}}}"#), found);
        for name in ["brave", "serper", "google", "kagi", "bocha"] {
            check(name, "{}", "");
        }
        for engine in ENGINES {
            assert!(engine.parse_answer("[]").is_err(), "{}", engine.name);
            assert!(engine.parse_answer("no JSON").is_err(), "{}", engine.name);
        }
    }

    #[test]
    fn fuzz_answers_are_parsed_or_rejected() {
        let seeds: &[&[u8]] = &[
            br#"{"web": {"results": [{"title": "a", "url": "https://a.example", "description": "b"}]}}"#,
            br#"{"results": [{"title": "a", "url": "https://a.example", "content": "b"}]}"#,
            b"<div class=result><a class=result__a href='//duckduckgo.com/l/?uddg=https%3A%2F%2Fa'>b</a></div>",
        ];
        nanobot_base::fuzz::check(seeds, |input, random| {
            for result in ENGINES[random.below(ENGINES.len())]
                .parse_answer(&nanobot_base::fuzz::lossy_text(input))
                .unwrap_or_default()
            {
                assert!(["http", "https"].contains(&result.url.scheme()));
                assert!(!result.title.contains('\n') && !result.snippet.contains('\n'));
            }
        });
    }
}
