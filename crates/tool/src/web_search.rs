//! The `web_search` tool: queries a search engine and returns a numbered list of titles, addresses and short
//! descriptions. If an engine fails, the next of the configured ones is queried, and the result says which one answered.

use super::arguments::usize_argument;
use super::call_result::UNTRUSTED_NOTICE;
use super::function_tool::FunctionTool;
use super::web::WebAccess;
use super::web::engine::{
    EngineRequest, SearchEngine, SearchQuery, SearchResult, engine_names, find_engine,
};
use super::{CallEffect, ToolError, ToolOutput};
use nanobot_base::error::Stop;
use nanobot_base::message::tagged_block;
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_net::http::HttpMethod;
use nanobot_os::secret::LazySecret;
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Maximum bytes read of an answer.
const MAX_ANSWER_BYTES: u64 = 2 << 20;
/// Maximum number of results.
const MAX_RESULTS: u64 = 10;
/// Maximum characters of a query once the context holds untrusted content: enough to search with, too little to leak
/// much.
const MAX_UNTRUSTED_QUERY_CHARS: usize = 300;

/// The settings of searches.
pub struct SearchSettings {
    /// The engines, in the order in which they are queried. There is at least one.
    pub engines: Vec<EngineSettings>,
    pub count: usize,
    pub timeout: Duration,
    /// Tells the user what only they can mend, although the model may get an answer.
    pub notice: Box<dyn Fn(&str) + Send + Sync>,
}

/// A search engine and its settings.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The engine's name in the config.
    pub provider: String,
    pub key: Option<LazySecret>,
    /// The base address, if not the engine's default. The user chose it, so it may be on any network.
    pub base: Option<String>,
    /// The user's own engine at Google.
    pub engine_id: Option<String>,
}

/// The failure of an engine.
struct EngineFailure {
    cause: String,
    /// The next step of the model if no other engine answers.
    advice: &'static str,
}

impl EngineFailure {
    fn new(cause: String, advice: &'static str) -> Self {
        Self { cause, advice }
    }
}

/// The advice about a failure that only the user can mend.
const TELL_USER: &str = "tell the user";

/// The reason why a search has no results.
enum SearchError {
    /// This engine failed. Another one may answer.
    Engine(EngineFailure),
    /// No engine can be queried.
    Tool(ToolError),
}

/// Builds the `web_search` tool.
pub fn tool(web: Arc<WebAccess>, settings: SearchSettings) -> FunctionTool {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["query"], "properties": {
        "query": { "type": "string", "minLength": 1 },
        "count": { "type": "integer", "maximum": 10 }
    } }"#,
        )
    };
    let description = "Search the web: titles, addresses, short excerpts";
    let spec = ToolSpec::new("web_search", description, parameters);
    FunctionTool::new(spec, CallEffect::Reads, move |arguments| search(&web, &settings, arguments))
}

fn search(
    web: &WebAccess,
    settings: &SearchSettings,
    arguments: &Value,
) -> Result<ToolOutput, ToolError> {
    let query = arguments["query"].as_str().unwrap_or_default().trim();
    let count = usize_argument(arguments, "count").unwrap_or(settings.count);
    WebAccess::check_secrets(query)?;
    let truncated_end = web
        .provenance
        .untrusted_content()
        .and_then(|_| query.char_indices().nth(MAX_UNTRUSTED_QUERY_CHARS));
    let query = truncated_end.map_or(query, |(end, _)| &query[..end]);
    let mut failures = Vec::new();
    for engine in &settings.engines {
        match query_engine(web, settings, engine, query, count) {
            Ok(mut results) => {
                results.truncate(count.clamp(1, MAX_RESULTS as usize));
                let mut text = format_answer(&results);
                if truncated_end.is_some() && !results.is_empty() {
                    text.push_str(&format!(
                        "\n(the query was truncated to {MAX_UNTRUSTED_QUERY_CHARS} characters)"
                    ));
                }
                if !failures.is_empty() {
                    let name = engine_label(&engine.provider);
                    let causes = join_causes(&failures);
                    text.push_str(&format!("\n(answered by {name}, because {causes})"));
                }
                return Ok(text.into());
            }
            Err(SearchError::Tool(error)) => return Err(error),
            Err(SearchError::Engine(failure)) => failures.push(failure),
        }
    }
    let advice = failures.last().map_or(TELL_USER, |failure| failure.advice);
    Err(format!("{}; {advice}", join_causes(&failures)).into())
}

/// The name of the engine `provider` of the config, for people.
fn engine_label(provider: &str) -> &str {
    find_engine(provider).map_or(provider, |engine| engine.label)
}

fn join_causes(failures: &[EngineFailure]) -> String {
    let causes: Vec<&str> = failures.iter().map(|failure| failure.cause.as_str()).collect();
    causes.join("; ")
}

fn query_engine(
    web: &WebAccess,
    settings: &SearchSettings,
    engine_settings: &EngineSettings,
    query: &str,
    count: usize,
) -> Result<Vec<SearchResult>, SearchError> {
    let fail = |cause: String, advice| SearchError::Engine(EngineFailure::new(cause, advice));
    let EngineSettings { provider, key, base, engine_id } = engine_settings;
    let Some(engine) = find_engine(provider) else {
        let names = engine_names();
        let cause = format!("`tools.web.search.provider` is `{provider}`, expected one of {names}");
        return Err(fail(cause, TELL_USER));
    };
    let name = engine.label;
    let engine_id = engine_id.as_deref().unwrap_or_default();
    if engine.needs_engine_id() && engine_id.is_empty() {
        return Err(fail(format!("{name} requires `tools.web.search.engineId`"), TELL_USER));
    }
    let key = key.as_ref().map(LazySecret::resolve).transpose();
    let key = key.map_err(|error| fail(format!("{error:#}"), TELL_USER))?;
    let query = SearchQuery { text: query, count, engine_id };
    let key_text = key.as_ref().map(|key| key.expose());
    let Some(request) = engine.request(base.as_deref(), key_text, &query) else {
        let cause = format!("{name} requires an address in `tools.web.search.baseUrl`");
        return Err(fail(cause, TELL_USER));
    };
    let EngineRequest { url, headers, body } = &request;
    let http = web.configured_client(settings.timeout).map_err(SearchError::Tool)?;
    let method = match body {
        Some(body) => HttpMethod::Post("application/json", body.as_bytes()),
        None => HttpMethod::Get,
    };
    let response = http.request(url, headers, method);
    let response = response.map_err(|error| {
        if error.is::<Stop>() {
            SearchError::Tool("interrupted: the run is ending".into())
        } else {
            fail(format!("the request to {name} failed: {error:#}"), "continue without it")
        }
    })?;
    if let Some(failure) = status_failure(engine, response.status, key.is_some()) {
        if failure.advice == TELL_USER {
            (settings.notice)(&failure.cause);
        }
        return Err(SearchError::Engine(failure));
    }
    let body = response.read_body(MAX_ANSWER_BYTES, None);
    let body = body.map_err(|error| fail(format!("{name}: {error:#}"), "continue without it"))?;
    let results = engine.parse_answer(&String::from_utf8_lossy(&body));
    results.map_err(|cause| fail(cause, "continue without it"))
}

/// The failure that `status` means; `None` for success.
fn status_failure(engine: &SearchEngine, status: u16, has_key: bool) -> Option<EngineFailure> {
    let name = engine.label;
    let failure = match status {
        200 => return None,
        401 | 403 if has_key => {
            let variables = engine.key_variables.join("` or `");
            let cause =
                format!("{name} rejects the key of `tools.web.search.apiKey` or `{variables}`");
            EngineFailure::new(cause, TELL_USER)
        }
        403 if engine.name == "searxng" => EngineFailure::new(
            "SearXNG does not answer as JSON".to_owned(),
            "tell the user that its settings must allow the format `json`",
        ),
        202 | 429 => EngineFailure::new(
            format!("{name}: rate limit exceeded"),
            "continue without it, or search again later",
        ),
        status => EngineFailure::new(
            format!("{name} returned {status}"),
            "continue without it, or try other words",
        ),
    };
    Some(failure)
}

/// The text for the model about the results of a search.
fn format_answer(results: &[SearchResult]) -> String {
    if results.is_empty() {
        return "No results; try other words.".to_owned();
    }
    format!("{UNTRUSTED_NOTICE}\n{}", tagged_block("results", None, &format_results(results)))
}

/// Formats `results` as a list. Only the addresses are on lines of their own.
fn format_results(results: &[SearchResult]) -> String {
    let mut list = String::new();
    for (number, SearchResult { title, url, snippet }) in results.iter().enumerate() {
        writeln!(list, "{}. {title}\n   {url}", number + 1)
            .expect("writing to a string cannot fail");
        if snippet.contains(' ') {
            writeln!(list, "   {snippet}").expect("writing to a string cannot fail");
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::{SearchResult, format_results};
    use url::Url;

    #[test]
    fn lists() {
        let result = |about: &str| SearchResult {
            title: "A".into(),
            url: Url::parse("https://a.example").unwrap(),
            snippet: about.into(),
        };
        assert_eq!(
            format_results(&[result("some words"), result("https://evil.example/")]),
            "1. A\n   https://a.example/\n   some words\n2. A\n   https://a.example/\n"
        );
    }
}
