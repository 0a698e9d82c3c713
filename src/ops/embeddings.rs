//! Search by meaning: embeddings of texts, by a server with OpenAI's interface (`POST /embeddings`), of the lines of the memory and of
//! the messages of sessions.

use crate::ops::context::Context;
use crate::ops::media_service::{MediaAccount, MediaReply, MediaRequest, MediaService};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_base::message::{Message, Usage, plain_text};
use nanobot_config::settings::Settings;
use nanobot_model::ledger::CallPurpose;
use nanobot_model::provider::registry::embeddings::price_per_million;
use nanobot_os::secret::mask_for_request;
use nanobot_store::embedding_index::{self, EmbeddingIndex, IndexedText, Ranked};
use nanobot_store::memory::Memory;
use nanobot_store::memory::search::MemoryMatch;
use nanobot_store::session::{self, SessionEntry, SessionStore, SessionSummary};
use serde_json::{Value, json};
use std::path::Path;

/// Maximum number of texts in a request.
const BATCH_SIZE: usize = 64;
/// Maximum length of a text, in characters: what small models read.
const MAX_TEXT_CHARS: usize = 2_000;
/// Maximum number of messages that a search covers; newer sessions come first.
const MAX_MESSAGES: usize = 5_000;
/// Maximum size of a response, in bytes: a batch of the longest embeddings, in digits.
const MAX_RESPONSE_BYTES: u64 = 16 << 20;
/// The results that a search prints.
const MAX_RESULTS: usize = 10;
/// Bytes of text in a token: the fewest, for an upper bound, and the usual number.
const MIN_BYTES_PER_TOKEN: f64 = 2.0;
const BYTES_PER_TOKEN: u64 = 4;

/// The purpose of the requests, in the ledger.
const CAUSE: &str = "embeddings";

/// A message of a session.
pub(crate) struct IndexedMessage {
    pub(crate) key: String,
    /// The number of the message, from 1.
    pub(crate) number: usize,
    pub(crate) time: String,
    pub(crate) role: &'static str,
    /// The beginning of its text.
    pub(crate) text: String,
}

impl IndexedText for IndexedMessage {
    fn text(&self) -> &str {
        &self.text
    }
}

/// The lines of the memory that are closest to `text`, the closest first.
///
/// # Errors
/// As [`search`].
pub(crate) fn search_memory(
    ctx: &Context,
    memory: &Memory,
    text: &str,
) -> Result<Vec<MemoryMatch>> {
    let (embedder, path) = (Embedder::new(ctx)?, memory.embeddings_path());
    let ranked = search(&embedder, &path, memory.lines_by_meaning()?, true, text)?;
    let with_score =
        |line: Ranked<MemoryMatch>| MemoryMatch { score: Some(line.score), ..line.entry };
    Ok(ranked.into_iter().map(with_score).collect())
}

/// The messages of `sessions` that are closest to `text`, the closest first: what people and models wrote, without results of tools.
/// `are_all` is true if `sessions` are all that are searched by meaning.
///
/// # Errors
/// As [`search`]; a session cannot be read.
pub(crate) fn search_sessions(
    ctx: &Context,
    store: &SessionStore,
    sessions: &[SessionSummary],
    are_all: bool,
    text: &str,
) -> Result<Vec<Ranked<IndexedMessage>>> {
    let embedder = Embedder::new(ctx)?;
    let mut texts = Vec::new();
    for summary in sessions {
        let count = texts.len();
        for entry in session::read_entries(store, &summary.key)? {
            // An unreadable line has no text; `session repair` reports it.
            if let SessionEntry::Message(logged) = entry? {
                texts.extend(to_text(&summary.key, *logged));
            }
        }
        if texts.len() > MAX_MESSAGES {
            // The oldest messages of this session, and older sessions, are left out.
            let surplus = texts.len() - MAX_MESSAGES;
            texts.drain(count..count + surplus.min(texts.len() - count));
            ctx.notice(&format!("older messages than the last {MAX_MESSAGES} are not searched"));
            break;
        }
    }
    let path = store.directory().join(embedding_index::FILE_NAME);
    search(&embedder, &path, texts, are_all, text)
}

/// The text of a message that a person or a model wrote.
fn to_text(key: &str, logged: session::LoggedMessage) -> Option<IndexedMessage> {
    let (role, text) = match &logged.message {
        Message::User(user) => ("user", plain_text(&user.parts)),
        Message::Assistant(reply) => ("assistant", reply.text.clone()),
        Message::Tool(_) => return None,
    };
    let text: String = text.trim().chars().take(MAX_TEXT_CHARS).collect();
    (!text.is_empty()).then(|| IndexedMessage {
        key: key.to_owned(),
        number: logged.index + 1,
        time: logged.time,
        role,
        text,
    })
}

/// The `entries` that are closest to `text`. Entries without an embedding in the index at `path` get one before; what it has beside them is
/// dropped, if these `are_all`.
///
/// # Errors
/// Status 78: no model is configured. Status 69: the server does not answer, or with something else. Status 4: a budget is used up.
fn search<T: IndexedText>(
    embedder: &Embedder<'_>,
    path: &Path,
    entries: Vec<T>,
    are_all: bool,
    text: &str,
) -> Result<Vec<Ranked<T>>> {
    let mut index = EmbeddingIndex::load(path, &embedder.name)?;
    let mut is_changed = are_all && index.retain(&entries);
    let mut result = Ok(());
    for batch in index.missing(&entries).chunks(BATCH_SIZE) {
        match embedder.embed(batch) {
            Ok(embeddings) => {
                for (text, embedding) in batch.iter().zip(&embeddings) {
                    index.insert(text.clone(), embedding);
                }
                is_changed = true;
            }
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    if is_changed {
        // The embeddings that were paid for are kept, even if the next request has failed.
        index.save(path)?;
    }
    result?;
    let query = embedder.embed(&[text.to_owned()])?;
    let query = query.first().map_or(&[][..], Vec::as_slice);
    Ok(index.rank(entries, query, MAX_RESULTS))
}

/// The server that computes embeddings.
struct Embedder<'a> {
    ctx: &'a Context,
    settings: Settings,
    model: String,
    /// The provider and the model: embeddings of others cannot be compared.
    name: String,
}

impl<'a> Embedder<'a> {
    fn new(ctx: &'a Context) -> Result<Self> {
        let settings = ctx.settings()?;
        let Some(model) = settings.memory.embeddings.model.clone() else {
            let hint = "`nanobot config set memory.embeddings.model NAME`, or the command without `--meaning`";
            return Err(fail(Exit::Config, "a search by meaning needs `memory.embeddings.model`")
                .with_hint(hint));
        };
        let mut embedder = Self { ctx, settings, model, name: String::new() };
        embedder.name = format!("{}/{}", embedder.open()?.provider(), embedder.model);
        Ok(embedder)
    }

    fn open(&self) -> Result<MediaService<'_>> {
        let provider = &self.settings.memory.embeddings.provider;
        MediaService::open(self.ctx, &self.settings, provider, &self.model, false)
    }

    /// Computes an embedding for each of at most [`BATCH_SIZE`] texts, in which known keys are masked.
    fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let inputs = texts.iter().map(|text| {
            let text: String = text.chars().take(MAX_TEXT_CHARS).collect();
            mask_for_request(&text).into_owned()
        });
        let body = json!({ "model": self.model, "input": inputs.collect::<Vec<String>>() });
        let body = body.to_string();
        let service = self.open()?;
        let price = service.input_price().or_else(|| price_per_million(&self.model));
        let request = MediaRequest {
            path: "/embeddings",
            media_type: "application/json",
            body: body.as_bytes(),
            max_usd: price.unwrap_or_default() * body.len() as f64 / MIN_BYTES_PER_TOKEN / 1e6,
            is_charged_by_token: true,
            limit_bytes: MAX_RESPONSE_BYTES,
            wanted: "embeddings",
        };
        let purpose = CallPurpose { cause: CAUSE, ..CallPurpose::default() };
        let media_account = MediaAccount { purpose, run: None };
        let reply = service.request(&media_account, &request, |response| {
            let response: Value = serde_json::from_slice(&response).unwrap_or_default();
            let tokens = response["usage"]["prompt_tokens"].as_u64();
            let usage = Usage {
                input: tokens.unwrap_or(body.len() as u64 / BYTES_PER_TOKEN),
                estimated: tokens.is_none(),
                ..Usage::default()
            };
            let usd = price.map(|price| price * usage.input as f64 / 1e6);
            Some(MediaReply { content: parse_embeddings(&response, texts.len()), usage, usd })
        })?;
        let address = service.address();
        reply.content.map_err(|cause| fail(Exit::Unavailable, format!("{address}: {cause}")))
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
