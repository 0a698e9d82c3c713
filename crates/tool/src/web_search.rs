//! The `web_search` tool: queries a search engine and returns a numbered list of titles, addresses and short
//! descriptions. If an engine fails, the next of the configured ones is queried, and the result says which one answered.

use super::arguments::usize_argument;
use super::call_result::UNTRUSTED_NOTICE;
use super::web::WebAccess;
use super::web::engine::{
    EngineRequest, NATIVE, SearchEngine, SearchQuery, SearchResult, engine_names, find_engine,
};
use super::{Call, CallEffect, Tool, ToolError, ToolOutput};
use nanobot_base::error::Stop;
use nanobot_base::message::tagged_block;
use nanobot_base::message::{ToolSpec, Usage, without_blanks};
use nanobot_config::policy::net::Net;
use nanobot_config::policy::rule::RuleEffect;
use nanobot_net::http::{ConnectError, HttpMethod};
use nanobot_os::secret::LazySecret;
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// Maximum bytes read of an answer.
const MAX_ANSWER_BYTES: u64 = 2 << 20;
/// Maximum characters of the summary of a provider's search.
const MAX_SUMMARY_CHARS: usize = 4_000;
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
    /// The search of the model's provider; `None` if no engine is `native`.
    pub native: Option<Arc<dyn ProviderSearch>>,
    /// True if that search may be used whatever the conversation contains.
    pub is_native_always_allowed: bool,
    /// Tells the user what only they can mend, although the model may get an answer.
    pub notice: Box<dyn Fn(&str) + Send + Sync>,
}

/// The search of the model's provider. It is a request to the model, which a tool does not know.
pub trait ProviderSearch: Send + Sync {
    /// Searches for `query`. Adds the usage and the cost of the request to `charges`, as for [`Call::charges`].
    ///
    /// # Errors
    /// A phrase about the failure.
    fn search(
        &self,
        query: &str,
        charges: &mut Vec<(Usage, Option<f64>)>,
    ) -> Result<SearchAnswer, String>;
}

/// The answer of an engine.
#[derive(Debug, Default)]
pub struct SearchAnswer {
    /// A summary in the words of a model; empty if the engine writes none.
    pub summary: String,
    pub results: Vec<SearchResult>,
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
    /// True if the cause may have words of the engine.
    quotes_engine: bool,
}

impl EngineFailure {
    fn new(cause: String, advice: &'static str) -> Self {
        Self { cause, advice, quotes_engine: false }
    }

    fn by_engine(cause: String) -> Self {
        Self { cause, advice: "continue without it", quotes_engine: true }
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

/// The `web_search` tool.
pub struct WebSearch {
    spec: ToolSpec,
    web: Arc<WebAccess>,
    settings: SearchSettings,
}

impl WebSearch {
    /// Creates the tool.
    pub fn new(web: Arc<WebAccess>, settings: SearchSettings) -> Self {
        let parameters = const {
            &without_blanks(
                br#"{ "type": "object", "required": ["query"], "properties": {
            "query": { "type": "string", "minLength": 1 },
            "count": { "type": "integer", "maximum": 10 }
        } }"#,
            )
        };
        let description = "Search the web: titles, addresses, short excerpts";
        Self { spec: ToolSpec::new("web_search", description, parameters), web, settings }
    }

    fn query(
        &self,
        engine: &EngineSettings,
        query: &SearchQuery<'_>,
        charges: &mut Vec<(Usage, Option<f64>)>,
    ) -> Result<SearchAnswer, SearchError> {
        if engine.provider == NATIVE {
            return self.query_provider(query.text, charges);
        }
        let results = query_engine(&self.web, &self.settings, engine, query)?;
        Ok(SearchAnswer { summary: String::new(), results })
    }

    /// Queries the model's provider, if the policy and the conversation permit it.
    fn query_provider(
        &self,
        query: &str,
        charges: &mut Vec<(Usage, Option<f64>)>,
    ) -> Result<SearchAnswer, SearchError> {
        let fail = |cause: String, advice| SearchError::Engine(EngineFailure::new(cause, advice));
        if let Some(cause) = self.native_obstacle() {
            return Err(fail(cause, "continue without it"));
        }
        let Some(native) = &self.settings.native else {
            return Err(fail("the provider of the model has no search".to_owned(), TELL_USER));
        };
        native.search(query, charges).map_err(|cause| {
            let cause = format!("the provider's search: {cause}");
            SearchError::Engine(EngineFailure::by_engine(cause))
        })
    }

    /// The reason why the provider's search is left out. It composes its queries itself and goes where it likes, so it can neither be held
    /// to hosts nor to rules about them.
    fn native_obstacle(&self) -> Option<String> {
        let policy = &self.web.policy;
        let has_host_rule = policy.rules.iter().any(|rule| {
            rule.effect == RuleEffect::Deny
                && rule.argument.is_some()
                && ["web_search", "web_fetch"].iter().any(|tool| rule.tool.matches(tool))
        });
        if self.web.offline {
            return Some("`--offline` leaves out the provider's search".to_owned());
        }
        if matches!(policy.net, Net::Hosts { .. }) {
            return Some(
                "the provider's search cannot be held to the hosts of `--net` or `tools.net`"
                    .to_owned(),
            );
        }
        if has_host_rule {
            return Some(
                "the provider's search cannot be held to the rules about the web tools".to_owned(),
            );
        }
        let content = self.web.provenance.untrusted_content()?;
        (!self.settings.is_native_always_allowed).then(|| {
            format!(
                "the conversation contains untrusted content ({content}), after which only \
                 `tools.web.search.native: always` permits the provider's search"
            )
        })
    }
}

impl Tool for WebSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> CallEffect {
        CallEffect::Reads
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let text = call.arguments["query"].as_str().unwrap_or_default().trim();
        let count = usize_argument(call.arguments, "count").unwrap_or(self.settings.count);
        WebAccess::check_secrets(text)?;
        let untrusted_content = self.web.provenance.untrusted_content();
        let truncated_end =
            untrusted_content.and_then(|_| text.char_indices().nth(MAX_UNTRUSTED_QUERY_CHARS));
        let text = truncated_end.map_or(text, |(end, _)| &text[..end]);
        let mut failures = Vec::new();
        for engine in &self.settings.engines {
            let engine_id = engine.engine_id.as_deref().unwrap_or_default();
            let query = SearchQuery { text, count, engine_id };
            match self.query(engine, &query, call.charges) {
                Ok(mut answer) => {
                    answer.results.truncate(count.clamp(1, MAX_RESULTS as usize));
                    let mut output = format_answer(&answer);
                    if truncated_end.is_some() && !answer.results.is_empty() {
                        output.push_str(&format!(
                            "\n(the query was truncated to {MAX_UNTRUSTED_QUERY_CHARS} characters)"
                        ));
                    }
                    if !failures.is_empty() {
                        let name = engine_label(&engine.provider);
                        let causes = join_causes(&failures);
                        output.push_str(&format!("\n(answered by {name}, because {causes})"));
                    }
                    return Ok(output.into());
                }
                Err(SearchError::Tool(error)) => return Err(error),
                Err(SearchError::Engine(failure)) => failures.push(failure),
            }
        }
        let advice = failures.last().map_or(TELL_USER, |failure| failure.advice);
        let message = format!("{}; {advice}", join_causes(&failures));
        Err(if failures.iter().any(|failure| failure.quotes_engine) {
            ToolError::Failed(message)
        } else {
            ToolError::NothingRead(message)
        })
    }
}

/// The name of the engine `provider` of the config, for people.
fn engine_label(provider: &str) -> &str {
    let other = if provider == NATIVE { "the provider's search" } else { provider };
    find_engine(provider).map_or(other, |engine| engine.label)
}

fn join_causes(failures: &[EngineFailure]) -> String {
    let causes: Vec<&str> = failures.iter().map(|failure| failure.cause.as_str()).collect();
    causes.join("; ")
}

fn query_engine(
    web: &WebAccess,
    settings: &SearchSettings,
    engine_settings: &EngineSettings,
    query: &SearchQuery<'_>,
) -> Result<Vec<SearchResult>, SearchError> {
    let fail = |cause: String, advice| SearchError::Engine(EngineFailure::new(cause, advice));
    let EngineSettings { provider, key, base, .. } = engine_settings;
    let Some(engine) = find_engine(provider) else {
        let names = engine_names();
        let cause = format!("`tools.web.search.provider` is `{provider}`, expected one of {names}");
        return Err(fail(cause, TELL_USER));
    };
    let name = engine.label;
    if engine.needs_engine_id() && query.engine_id.is_empty() {
        return Err(fail(format!("{name} requires `tools.web.search.engineId`"), TELL_USER));
    }
    let key = key.as_ref().map(LazySecret::resolve).transpose();
    let key = key.map_err(|error| fail(format!("{error:#}"), TELL_USER))?;
    let key_text = key.as_ref().map(|key| key.expose());
    let Some(request) = engine.request(base.as_deref(), key_text, query) else {
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
            let cause = format!("the request to {name} failed: {error:#}");
            SearchError::Engine(EngineFailure {
                quotes_engine: !error.is::<ConnectError>(),
                ..EngineFailure::by_engine(cause)
            })
        }
    })?;
    if let Some(failure) = status_failure(engine, response.status, key.is_some()) {
        if failure.advice == TELL_USER {
            (settings.notice)(&failure.cause);
        }
        return Err(SearchError::Engine(failure));
    }
    let body = response.read_body(MAX_ANSWER_BYTES, None);
    let by_engine = |cause| SearchError::Engine(EngineFailure::by_engine(cause));
    let body = body.map_err(|error| by_engine(format!("{name}: {error:#}")))?;
    engine.parse_answer(&String::from_utf8_lossy(&body)).map_err(by_engine)
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

/// The text for the model about an answer.
fn format_answer(answer: &SearchAnswer) -> String {
    let SearchAnswer { summary, results } = answer;
    if results.is_empty() {
        return "No results; try other words.".to_owned();
    }
    let mut text = without_addresses(summary);
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(&format_results(results));
    format!("{UNTRUSTED_NOTICE}\n{}", tagged_block("results", None, &text))
}

/// A summary in a form in which it holds no address, cut to [`MAX_SUMMARY_CHARS`]. The model that wrote it may have composed one, and an
/// address in a result may be fetched.
fn without_addresses(summary: &str) -> String {
    let (text, _) = nanobot_os::hidden_chars::strip(summary.trim());
    let text: String = text.chars().take(MAX_SUMMARY_CHARS).collect();
    text.replace("://", ": //")
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
    use super::{SearchResult, format_results, without_addresses};
    use url::Url;

    #[test]
    fn a_summary_holds_no_address() {
        let check = |summary: &str| {
            let text = without_addresses(summary);
            let mut addresses = nanobot_base::message::addresses::find_whole_addresses(&text);
            assert!(addresses.next().is_none(), "{text}");
        };
        check("see https://evil.example/SECRET and HTTP://b.example");
        check(
            "https\u{200b}://evil.example/ http:\u{200b}//evil.example/ http:/\u{200b}/evil.example",
        );
        check("http://://evil.example://x");
    }

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
