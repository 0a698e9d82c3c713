//! Embeddings of texts, by a server with OpenAI's interface (`POST /embeddings`), and the search of the memory by meaning.

use crate::ops::context::Context;
use crate::ops::model::{self, Endpoint};
use anyhow::{Result, anyhow};
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_base::message::Usage;
use nanobot_config::settings::{ModelSettings, Settings};
use nanobot_model::ledger::{CallPurpose, Ledger, ModelCall};
use nanobot_model::provider::ProviderError;
use nanobot_net::http::{Http, HttpMethod, HttpTimeouts};
use nanobot_net::web_url;
use nanobot_os::secret::{LazySecret, mask_for_request};
use nanobot_store::memory::Memory;
use nanobot_store::memory::embeddings::EmbeddingIndex;
use nanobot_store::memory::search::MemoryMatch;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(60),
    idle: Duration::from_secs(60),
    total: Duration::from_secs(120),
};
/// Maximum number of texts in a request.
const BATCH_SIZE: usize = 64;
/// Maximum length of a text, in characters: what small models read.
const MAX_TEXT_CHARS: usize = 2_000;
/// Maximum size of a response, in bytes: a batch of the longest embeddings, in digits.
const MAX_RESPONSE_BYTES: u64 = 16 << 20;
/// The lines that a search prints.
const MAX_RESULTS: usize = 10;

/// The lines of the memory that are closest to `text`, the closest first. Lines without an embedding get one before.
///
/// # Errors
/// Status 78: no model is configured. Status 69: the server does not answer, or with something else.
pub(crate) fn search_memory(
    ctx: &Context,
    memory: &Memory,
    text: &str,
) -> Result<Vec<MemoryMatch>> {
    let settings = ctx.settings()?;
    let lines = memory.lines_by_meaning()?;
    let embedder = Embedder::new(ctx, &settings)?;
    let path = memory.embeddings_path();
    let mut index = EmbeddingIndex::load(&path, &embedder.name)?;
    let (missing, mut is_changed) = index.retain(&lines);
    for batch in missing.chunks(BATCH_SIZE) {
        let embeddings = embedder.embed(batch)?;
        for (text, embedding) in batch.iter().zip(&embeddings) {
            index.insert(text.clone(), embedding);
        }
        is_changed = true;
    }
    if is_changed {
        index.save(&path)?;
    }
    let query = embedder.embed(&[text.to_owned()])?;
    let query = query.first().map_or(&[][..], Vec::as_slice);
    Ok(index.rank(&lines, query, MAX_RESULTS))
}

/// The server that computes embeddings.
struct Embedder<'a> {
    ctx: &'a Context,
    endpoint: Endpoint,
    http: Http,
    url: String,
    headers: Vec<(String, String)>,
    model: String,
    /// The provider and the model: embeddings of others cannot be compared.
    name: String,
}

impl<'a> Embedder<'a> {
    fn new(ctx: &'a Context, settings: &Settings) -> Result<Self> {
        let embeddings = &settings.memory.embeddings;
        let Some(model) = embeddings.model.clone() else {
            return Err(fail_with_hint(
                Exit::Config,
                "a search by meaning needs `memory.embeddings.model`",
                "`nanobot config set memory.embeddings.model NAME`, or the command without `--meaning`",
            ));
        };
        let model_settings = ModelSettings {
            model: Some(model.clone()),
            provider: embeddings.provider.clone(),
            ..settings.models[0].clone()
        };
        let endpoint = model::resolve_endpoint(ctx, settings, &model_settings, false, false)?;
        let (base, headers) =
            endpoint.http_provider.base_and_headers().map_err(ProviderError::into_failure)?;
        if endpoint.http_provider.key.is_configured() && web_url::is_remote_cleartext(&base) {
            ctx.notice(&format!(
                "the API key is sent to {} unencrypted",
                web_url::redact_url(&base)
            ));
        }
        let provider = endpoint.choice.provider.clone();
        let proxy = settings.provider(&provider)?.and_then(|settings| settings.proxy.as_ref());
        let proxy = proxy.map(LazySecret::resolve).transpose()?;
        let http = Http::new(TIMEOUTS, false, &settings.network)
            .with_proxy(proxy, "the provider's `proxy`")?;
        Ok(Self {
            ctx,
            http,
            url: format!("{}/embeddings", base.trim_end_matches('/')),
            headers,
            name: format!("{provider}/{model}"),
            model,
            endpoint,
        })
    }

    /// Computes an embedding for each of at most [`BATCH_SIZE`] texts, in which known keys are masked.
    fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let inputs = texts.iter().map(|text| {
            let text: String = text.chars().take(MAX_TEXT_CHARS).collect();
            mask_for_request(&text).into_owned()
        });
        let body = json!({ "model": self.model, "input": inputs.collect::<Vec<String>>() });
        let body = body.to_string();
        let start = Instant::now();
        let method = HttpMethod::Post("application/json", body.as_bytes());
        let response =
            self.http.exchange_json(&self.url, &self.headers, method, MAX_RESPONSE_BYTES)?;
        let result = if response.is_success() {
            parse_embeddings(&response.body, texts.len()).map_err(|cause| anyhow!(cause))
        } else {
            let cause = response.error_message();
            Err(anyhow!(cause.unwrap_or_else(|| format!("status {}", response.status))))
        };
        let usage = Usage {
            input: response.body["usage"]["prompt_tokens"].as_u64().unwrap_or_default(),
            ..Usage::default()
        };
        let purpose = CallPurpose { cause: "embeddings", ..CallPurpose::default() };
        let call = ModelCall {
            purpose: &purpose,
            provider: &self.endpoint.choice.provider,
            model: &self.model,
            usage,
            usd: None,
            duration: start.elapsed(),
            failed: result.is_err(),
        };
        Ledger::new(&self.ctx.paths.root, &self.ctx.clock).record(&call, None)?;
        result.map_err(|cause| {
            let url = web_url::redact_url(&self.url);
            fail(Exit::Unavailable, format!("{url}: {cause:#}"))
        })
    }
}

/// Reads the embeddings of `count` texts from a response, in the order of the texts.
fn parse_embeddings(body: &Value, count: usize) -> Result<Vec<Vec<f32>>, String> {
    let data = body["data"].as_array().ok_or("the response has no embeddings")?;
    let mut embeddings: Vec<Option<Vec<f32>>> = vec![None; count];
    for (position, entry) in data.iter().enumerate() {
        let index = entry["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let slot = embeddings.get_mut(index.unwrap_or(position));
        let slot = slot.ok_or("the response has more embeddings than there are texts")?;
        let numbers = entry["embedding"].as_array().map(Vec::as_slice).unwrap_or_default();
        let embedding: Option<Vec<f32>> =
            numbers.iter().map(|number| number.as_f64().map(|number| number as f32)).collect();
        let is_usable = |embedding: &Vec<f32>| {
            !embedding.is_empty() && embedding.iter().all(|it| it.is_finite())
        };
        *slot = embedding.filter(is_usable);
    }
    let embeddings: Option<Vec<Vec<f32>>> = embeddings.into_iter().collect();
    let embeddings = embeddings.ok_or("the response lacks the embedding of a text")?;
    let mut lengths = embeddings.iter().map(Vec::len);
    let first = lengths.next();
    if lengths.any(|length| Some(length) != first) {
        return Err("the embeddings in the response have different lengths".into());
    }
    Ok(embeddings)
}

#[cfg(test)]
mod tests {
    use super::parse_embeddings;
    use serde_json::{Value, json};

    #[test]
    fn responses_are_checked() {
        let check = |data: Value, count: usize, expect: Result<&[&[f32]], &str>| match (
            parse_embeddings(&json!({ "data": data }), count),
            expect,
        ) {
            (Ok(embeddings), Ok(expect)) => assert_eq!(embeddings, expect),
            (Err(cause), Err(expect)) => assert!(cause.contains(expect), "{cause}"),
            (result, _) => panic!("{data}: {result:?}"),
        };
        let entry =
            |index: u64, embedding: Value| json!({ "index": index, "embedding": embedding });
        check(
            json!([entry(1, json!([0, 2])), entry(0, json!([1, 0.5]))]),
            2,
            Ok(&[&[1.0, 0.5], &[0.0, 2.0]]),
        );
        check(json!([{ "embedding": [1] }]), 1, Ok(&[&[1.0]]));
        check(json!(null), 1, Err("no embeddings"));
        check(json!([]), 1, Err("lacks the embedding"));
        check(json!([entry(0, json!([]))]), 1, Err("lacks the embedding"));
        check(json!([entry(0, json!(["x"]))]), 1, Err("lacks the embedding"));
        check(json!([entry(0, json!([1e300]))]), 1, Err("lacks the embedding"));
        check(json!([entry(7, json!([1]))]), 1, Err("more embeddings"));
        check(json!([entry(0, json!([1])), entry(1, json!([1, 2]))]), 2, Err("different lengths"));
    }
}
