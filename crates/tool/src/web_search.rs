//! The `web_search` tool: queries a search engine and returns a numbered list of titles, addresses and short
//! descriptions.

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

/// The search engine and its settings.
#[derive(Clone, Debug)]
pub struct SearchSettings {
    /// The engine's name in the config.
    pub provider: String,
    pub key: Option<LazySecret>,
    /// The base address, if not the engine's default. The user chose it, so it may be on any network.
    pub base: Option<String>,
    /// The user's own engine at Google.
    pub engine_id: Option<String>,
    pub count: usize,
    pub timeout: Duration,
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
    let provider = &settings.provider;
    let Some(engine) = find_engine(provider) else {
        let names = engine_names();
        let text = format!(
            "`tools.web.search.provider` is `{provider}`, expected one of {names}; tell the user"
        );
        return Err(text.into());
    };
    WebAccess::check_secrets(query)?;
    let truncated_end = web
        .provenance
        .untrusted_content()
        .and_then(|_| query.char_indices().nth(MAX_UNTRUSTED_QUERY_CHARS));
    let query = truncated_end.map_or(query, |(end, _)| &query[..end]);
    let mut results = query_engine(web, settings, engine, query, count)?;
    results.truncate(count.clamp(1, MAX_RESULTS as usize));
    if results.is_empty() {
        return Ok("No results; try other words.".to_owned().into());
    }
    let mut text =
        format!("{UNTRUSTED_NOTICE}\n{}", tagged_block("results", None, &format_results(&results)));
    if truncated_end.is_some() {
        text.push_str(&format!(
            "\n(the query was truncated to {MAX_UNTRUSTED_QUERY_CHARS} characters)"
        ));
    }
    Ok(text.into())
}

/// Queries `engine`.
fn query_engine(
    web: &WebAccess,
    settings: &SearchSettings,
    engine: &SearchEngine,
    query: &str,
    count: usize,
) -> Result<Vec<SearchResult>, ToolError> {
    let SearchSettings { key, base, engine_id, timeout, .. } = settings;
    let name = engine.label;
    let engine_id = engine_id.as_deref().unwrap_or_default();
    if engine.needs_engine_id() && engine_id.is_empty() {
        return Err(format!("{name} requires `tools.web.search.engineId`; tell the user").into());
    }
    let key = key.as_ref().map(LazySecret::resolve).transpose();
    let key = key.map_err(|error| format!("{error:#}; tell the user"))?;
    let query = SearchQuery { text: query, count, engine_id };
    let key_text = key.as_ref().map(|key| key.expose());
    let Some(request) = engine.request(base.as_deref(), key_text, &query) else {
        return Err(format!(
            "{name} requires an address in `tools.web.search.baseUrl`; tell the user"
        )
        .into());
    };
    let EngineRequest { url, headers, body } = &request;
    let http = web.configured_client(*timeout)?;
    let method = match body {
        Some(body) => HttpMethod::Post("application/json", body.as_bytes()),
        None => HttpMethod::Get,
    };
    let response = http.request(url, headers, method);
    let response = response.map_err(|error| {
        if error.is::<Stop>() {
            "interrupted: the run is ending".to_owned()
        } else {
            format!("the request to {name} failed: {error:#}")
        }
    })?;
    match response.status {
        200 => {}
        401 | 403 if key.is_some() => {
            return Err(
                format!("{name} rejects the key of `tools.web.search`; tell the user").into()
            );
        }
        403 if engine.name == "searxng" => {
            return Err("SearXNG does not answer as JSON; tell the user that its settings must allow the format `json`".into());
        }
        202 | 429 => {
            return Err(format!(
                "{name}: rate limit exceeded; continue without it, or search again later"
            )
            .into());
        }
        status => {
            return Err(format!(
                "{name} returned {status}; continue without it, or try other words"
            )
            .into());
        }
    }
    let body = response.read_body(MAX_ANSWER_BYTES, None);
    let body = body.map_err(|error| format!("{name}: {error:#}"))?;
    Ok(engine.parse_answer(&String::from_utf8_lossy(&body))?)
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
