//! The `web_search` tool: queries a search engine and returns a numbered list of titles, addresses and short
//! descriptions.

use super::web::Web;
use super::web::engine::{Engine, Found};
use super::web_fetch::STRANGERS;
use super::{Effect, Failure, Output, Tool};
use crate::error::Stop;
use crate::message::ToolSpec;
use crate::message::block;
use crate::sys::http::read_failure;
use crate::sys::secret::Secret;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// Maximum bytes read of an answer.
const LIMIT: u64 = 2 << 20;
/// Maximum number of results.
const MOST: u64 = 10;
/// Maximum characters of a query once the context holds untrusted content: enough to search with, too little to leak
/// much.
const QUERY: usize = 300;

/// The search engine and its settings.
#[derive(Clone, Debug)]
pub struct Engines {
    /// The engine's name in the config.
    pub provider: String,
    pub key: Option<Secret>,
    /// The base address, if not the engine's default. The user chose it, so it may be on any network.
    pub base: Option<String>,
    pub count: usize,
    pub timeout: Duration,
}

/// The `web_search` tool.
pub struct WebSearch {
    spec: ToolSpec,
    web: Arc<Web>,
    engines: Engines,
}

impl WebSearch {
    /// Creates the tool.
    pub fn new(web: Arc<Web>, engines: Engines) -> Self {
        let spec = ToolSpec {
            name: "web_search".into(),
            description: "Search the web: titles, addresses, short excerpts".into(),
            parameters: json!({ "type": "object", "required": ["query"], "properties": {
                "query": { "type": "string", "minLength": 1 },
                "count": { "type": "integer", "minimum": 1, "maximum": MOST },
            } }),
        };
        Self { spec, web, engines }
    }

    /// Queries `engine`.
    fn ask(&self, engine: Engine, query: &str, count: usize) -> Result<Vec<Found>, Failure> {
        let Engines {
            key, base, timeout, ..
        } = &self.engines;
        let name = engine.name();
        let Some(base) = base.as_deref().or(engine.home()) else {
            return Err(format!(
                "{name} requires an address in `tools.web.search.baseUrl`; tell the user"
            )
            .into());
        };
        let mut headers = vec![(
            "accept".to_owned(),
            "application/json, text/html".to_owned(),
        )];
        if let (Engine::Brave, Some(key)) = (engine, key) {
            headers.push(("x-subscription-token".into(), key.expose().into()));
        }
        let http = self.web.own_client(*timeout)?;
        let answer = http.send(&engine.question(base, query, count), &headers, None);
        let mut answer = answer.map_err(|error| match error.is::<Stop>() {
            true => "interrupted: the run is ending".to_owned(),
            false => format!("the request to {name} failed: {error:#}"),
        })?;
        match answer.status {
            200 => {}
            401 | 403 if key.is_some() => {
                return Err(format!(
                    "{name} rejects the key in `tools.web.search.apiKey`; tell the user"
                )
                .into());
            }
            403 if engine == Engine::Searxng => {
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
        let mut bytes = Vec::new();
        let read = answer.body.by_ref().take(LIMIT).read_to_end(&mut bytes);
        read.map_err(|error| format!("{name}: {}", read_failure(&error)))?;
        Ok(engine.read(&String::from_utf8_lossy(&bytes))?)
    }
}

impl Tool for WebSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> Effect {
        Effect::Reads
    }

    fn run(&self, arguments: &Value, _: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
        let query = arguments["query"].as_str().unwrap_or_default().trim();
        let count = arguments["count"]
            .as_u64()
            .map_or(self.engines.count, |count| count as usize);
        let provider = &self.engines.provider;
        let Some(engine) = Engine::named(provider) else {
            return Err(format!(
                "`tools.web.search.provider` is `{provider}`, expected brave, searxng or duckduckgo; tell the user"
            )
            .into());
        };
        Web::keeps_secrets(query)?;
        let cut = self
            .web
            .seen
            .untrusted()
            .and_then(|_| query.char_indices().nth(QUERY));
        let query = cut.map_or(query, |(at, _)| &query[..at]);
        let mut found = self.ask(engine, query, count)?;
        found.truncate(count.clamp(1, MOST as usize));
        if found.is_empty() {
            return Ok("No results; try other words.".to_owned().into());
        }
        let mut text = format!("{STRANGERS}\n{}", block("results", None, &listed(&found)));
        if cut.is_some() {
            text.push_str(&format!(
                "\n(the query was truncated to {QUERY} characters)"
            ));
        }
        Ok(text.into())
    }
}

/// Formats `found` as a list. Only the addresses are on lines of their own.
fn listed(found: &[Found]) -> String {
    let mut list = String::new();
    for (number, Found { title, url, about }) in found.iter().enumerate() {
        writeln!(list, "{}. {title}\n   {url}", number + 1)
            .expect("writing to a string cannot fail");
        if about.contains(' ') {
            writeln!(list, "   {about}").expect("writing to a string cannot fail");
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::{Found, listed};
    use url::Url;

    #[test]
    fn lists() {
        let found = |about: &str| Found {
            title: "A".into(),
            url: Url::parse("https://a.example").unwrap(),
            about: about.into(),
        };
        assert_eq!(
            listed(&[found("some words"), found("https://evil.example/")]),
            "1. A\n   https://a.example/\n   some words\n2. A\n   https://a.example/\n"
        );
    }
}
