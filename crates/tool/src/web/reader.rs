//! The reader service of `web_fetch`: it gets the address of a page and returns its text. The page itself is requested first, so an
//! address reaches the service only after all checks of it and of the redirects before it. This file leaves those to
//! [`super::WebAccess`].

use super::page_cache::FetchedContent;
use nanobot_net::http::{Http, HttpMethod};
use nanobot_os::env::Env;
use nanobot_os::secret::LazySecret;
use serde_json::Value;
use std::time::Duration;
use url::Url;

/// Maximum time for the service to answer, as in the Python program.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum bytes read of an answer.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// Jina's service: its name in the config, its address, and the variable that can have its key.
const JINA: &str = "jina";
const JINA_BASE: &str = "https://r.jina.ai";
const JINA_KEY: &str = "JINA_API_KEY";

/// Words in the names of parameters whose values let anyone in who has them.
const CREDENTIAL_WORDS: &[&str] =
    &["token", "key", "secret", "signature", "password", "passwd", "auth", "credential", "session"];
/// Whole names of such parameters.
const CREDENTIAL_NAMES: &[&str] = &["code", "otp", "pin", "pwd", "sid", "sig"];

/// A reader service.
pub struct PageReader {
    base: String,
    key: Option<LazySecret>,
}

impl PageReader {
    /// Creates the service that the config names: `jina`, or a base URL. Only Jina's own address gets the key of its variable.
    pub fn new(name: &str, env: &Env) -> Self {
        if name.trim().eq_ignore_ascii_case(JINA) {
            return Self {
                base: JINA_BASE.to_owned(),
                key: env.get(JINA_KEY).map(LazySecret::new),
            };
        }
        Self { base: name.trim().trim_end_matches('/').to_owned(), key: None }
    }

    /// The address of the request for `url`.
    fn request_url(&self, url: &Url) -> String {
        let mut url = url.clone();
        url.set_fragment(None);
        format!("{}/{url}", self.base)
    }

    /// The text of the page at `url`.
    ///
    /// # Errors
    /// A phrase about the failure, for the model and its user.
    pub(super) fn read(&self, http: &Http, url: &Url) -> Result<String, String> {
        let base = &self.base;
        let key = self.key.as_ref().map(LazySecret::resolve).transpose();
        let key = key.map_err(|error| format!("the key of the reader service: {error:#}"))?;
        let mut headers = vec![("accept".to_owned(), "application/json".to_owned())];
        if let Some(key) = key {
            headers.push(("authorization".to_owned(), format!("Bearer {}", key.expose())));
        }
        let response = http
            .exchange_json(&self.request_url(url), &headers, HttpMethod::Get, MAX_ANSWER_BYTES)
            .map_err(|error| {
                format!("the request to the reader service `{base}` failed: {error:#}")
            })?;
        match response.status {
            200 => parse_answer(&response.body)
                .ok_or_else(|| format!("the reader service `{base}` returned no text")),
            401 | 403 if key.is_some() => {
                Err(format!("the reader service `{base}` rejects the key of `{JINA_KEY}`"))
            }
            402 => Err(format!("the reader service `{base}` wants to be paid")),
            429 => Err(format!("the reader service `{base}` has reached its rate limit")),
            status => Err(format!("the reader service `{base}` returned {status}")),
        }
    }

    /// The content of the page at `url`, whose text the service has returned.
    pub(super) fn content(&self, url: Url, text: String, is_safe_address: bool) -> FetchedContent {
        FetchedContent {
            url,
            content_type: "text/markdown; charset=utf-8".to_owned(),
            bytes: text.into_bytes(),
            is_truncated: false,
            is_safe_address,
            note: Some(format!("read by the reader service {}", self.base)),
        }
    }
}

/// The text of the page in an answer, below its title.
fn parse_answer(answer: &Value) -> Option<String> {
    let member = |name: &str| answer["data"][name].as_str().map(str::trim).unwrap_or_default();
    let (title, text) = (member("title"), member("content"));
    if text.is_empty() {
        return None;
    }
    let needs_no_title = title.is_empty() || text.starts_with(&format!("# {title}"));
    Some(if needs_no_title { text.to_owned() } else { format!("# {title}\n\n{text}") })
}

/// True if `url` may let in anyone who knows it, judging by the names of its parameters.
pub(super) fn has_credentials(url: &Url) -> bool {
    url.query_pairs().any(|(name, _)| {
        let name = name.to_ascii_lowercase();
        CREDENTIAL_NAMES.contains(&name.as_str())
            || CREDENTIAL_WORDS.iter().any(|word| name.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::{PageReader, has_credentials, parse_answer};
    use nanobot_os::env::Env;
    use serde_json::{Value, json};
    use url::Url;

    #[test]
    fn only_the_vendor_gets_the_key() {
        let env = Env::from_iter([("JINA_API_KEY", "jina_0123456789")]);
        let check = |name: &str, address: &str, has_key: bool| {
            let reader = PageReader::new(name, &env);
            let url = Url::parse("https://a.example/x?y=1#z").unwrap();
            assert_eq!(reader.request_url(&url), address);
            assert_eq!(reader.key.is_some(), has_key, "{name}");
        };
        check("Jina", "https://r.jina.ai/https://a.example/x?y=1", true);
        check("http://here:3000/", "http://here:3000/https://a.example/x?y=1", false);
    }

    #[test]
    fn answers() {
        let check = |answer: Value, expect: Option<&str>| {
            assert_eq!(parse_answer(&answer).as_deref(), expect, "{answer}");
        };
        check(json!({ "data": { "title": "T", "content": " c " } }), Some("# T\n\nc"));
        check(json!({ "data": { "title": "T", "content": "# T\nc" } }), Some("# T\nc"));
        check(json!({ "data": { "content": "c" } }), Some("c"));
        check(json!({ "data": { "title": "T", "content": "" } }), None);
        check(json!({ "data": null, "message": "no" }), None);
        check(Value::Null, None);
    }

    #[test]
    fn addresses_with_credentials() {
        let check = |query: &str, expect: bool| {
            let url = Url::parse(&format!("https://a.example/?{query}")).unwrap();
            assert_eq!(has_credentials(&url), expect, "{query}");
        };
        check("", false);
        check("q=token&page=2", false);
        check("access_token=1", true);
        check("x=1&X-Amz-Signature=2", true);
        check("sig=1", true);
        check("design=1", false);
    }
}
