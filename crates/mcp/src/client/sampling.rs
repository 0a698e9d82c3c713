//! Sampling: requests of a server for a reply of the model, while it works on a call. The call brings a [`Sampler`], which
//! answers on a thread of its own, one request after another, until the call ends. Requests are parsed
//! strictly, because the replies cost money.

use super::decode;
use crate::protocol::ContentPart;
use nanobot_base::json_rpc::ErrorObject;
use nanobot_os::cancel::{self, CancelToken};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};

/// Maximum number of requests during one call.
const MAX_REQUESTS_PER_CALL: usize = 16;
/// Maximum characters of a request, in all its texts.
const MAX_REQUEST_CHARS: usize = 100_000;
/// Maximum number of images in a request.
const MAX_IMAGES: usize = 8;

/// A request of a server for a reply of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingRequest {
    /// The server's own system prompt.
    pub system: Option<String>,
    /// At least one.
    pub messages: Vec<SamplingMessage>,
    /// Limit of the reply, in tokens, at least 1.
    pub max_tokens: u32,
    /// 0 to 2.
    pub temperature: Option<f64>,
}

/// A message of a sampling request.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingMessage {
    /// True for a message of the model, false for one of the user.
    pub is_assistant: bool,
    /// Texts and images.
    pub parts: Vec<ContentPart>,
}

/// A reply of the model to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledReply {
    pub text: String,
    /// The model that answered.
    pub model: String,
    /// True if the output limit cut the text.
    pub is_cut: bool,
}

/// Answers the requests of servers with the model of a turn.
pub trait Sampler: Send + Sync {
    /// Answers `request` of `server`.
    ///
    /// # Errors
    /// The answer to the server if there is no reply.
    fn sample(&self, server: &str, request: &SamplingRequest) -> Result<SampledReply, ErrorObject>;
}

/// The code of an error for a rejected request, as in the examples of the specification.
const REJECTED_CODE: i64 = -1;

/// The error for a request that the user, or the user's config, rejects.
pub fn rejected(message: impl Into<String>) -> ErrorObject {
    ErrorObject { code: REJECTED_CODE, message: message.into() }
}

impl SamplingRequest {
    /// Parses the parameters of a request.
    ///
    /// # Errors
    /// The parameters are invalid; the message names the reason.
    pub(super) fn parse(params: &Map<String, Value>) -> Result<Self, String> {
        // `includeContext`, `modelPreferences`, `stopSequences` and `metadata` are ignored.
        if params.contains_key("tools") || params.contains_key("toolChoice") {
            return Err("tools are not supported".into());
        }
        let system = match params.get("systemPrompt") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err("`systemPrompt` is not a string".into()),
        };
        let max_tokens = params.get("maxTokens").and_then(Value::as_f64);
        let max_tokens = max_tokens.filter(|count| *count >= 1.0);
        let temperature = match params.get("temperature") {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_f64().ok_or("`temperature` is not a number")?),
        };
        let messages = params.get("messages").and_then(Value::as_array);
        let messages = messages.filter(|messages| !messages.is_empty());
        let messages = messages.ok_or("there are no `messages`")?.iter();
        let request = Self {
            system,
            messages: messages.map(parse_message).collect::<Result<_, _>>()?,
            // A number beyond the range becomes the highest one.
            max_tokens: max_tokens.ok_or("`maxTokens` is not a positive number")? as u32,
            temperature: temperature.map(|temperature| temperature.clamp(0.0, 2.0)),
        };
        request.check_size()?;
        Ok(request)
    }

    fn check_size(&self) -> Result<(), String> {
        let mut images = 0;
        let mut chars = self.system.as_ref().map_or(0, |text| text.chars().count());
        for part in self.messages.iter().flat_map(|message| &message.parts) {
            match part {
                ContentPart::Text(text) => chars += text.chars().count(),
                _ => images += 1,
            }
        }
        if chars > MAX_REQUEST_CHARS {
            return Err(format!("a request may have at most {MAX_REQUEST_CHARS} characters"));
        }
        if images > MAX_IMAGES {
            return Err(format!("a request may have at most {MAX_IMAGES} images"));
        }
        Ok(())
    }
}

fn parse_message(message: &Value) -> Result<SamplingMessage, String> {
    let is_assistant = match message["role"].as_str() {
        Some("user") => false,
        Some("assistant") => true,
        _ => return Err("the `role` of a message is neither `user` nor `assistant`".into()),
    };
    Ok(SamplingMessage { is_assistant, parts: decode::sampling_content(&message["content"])? })
}

/// Receives the answer to a request; `None` if the server has withdrawn the request and expects none.
pub(super) type SamplingAnswer = Box<dyn FnOnce(Option<Result<Value, ErrorObject>>) + Send>;

/// A request that waits for the sampler.
pub(super) struct SamplingJob {
    pub(super) request: SamplingRequest,
    /// Cancels the work on it: the server has withdrawn the request, or the call has ended.
    pub(super) token: Arc<CancelToken>,
    pub(super) answer: SamplingAnswer,
}

impl SamplingJob {
    /// Answers the request with `sampler`.
    fn run(self, server: &str, sampler: &dyn Sampler, is_call_over: &AtomicBool) {
        let Self { request, token, answer } = self;
        let reply = if token.is_cancelled() {
            Err(rejected("the call has ended"))
        } else {
            cancel::scope(Some(Arc::clone(&token)), || sampler.sample(server, &request))
        };
        if token.is_cancelled() && !is_call_over.load(Ordering::SeqCst) {
            return answer(None);
        }
        answer(Some(reply.map(|SampledReply { text, model, is_cut }| {
            json!({
                "role": "assistant", "content": { "type": "text", "text": text }, "model": model,
                "stopReason": if is_cut { "maxTokens" } else { "endTurn" },
            })
        })));
    }
}

/// The queue of requests to the sampler of a call. Dropping it ends the sampler's work.
pub(super) struct SamplingQueue {
    jobs: Sender<SamplingJob>,
    tokens: Vec<Arc<CancelToken>>,
    is_call_over: Arc<AtomicBool>,
}

impl SamplingQueue {
    /// Puts `job` into the queue, and returns its number; or returns the error for its answer.
    pub(super) fn push(
        &mut self,
        job: SamplingJob,
    ) -> Result<usize, (SamplingAnswer, ErrorObject)> {
        if self.tokens.len() >= MAX_REQUESTS_PER_CALL {
            let message = format!("a call may make at most {MAX_REQUESTS_PER_CALL} requests");
            return Err((job.answer, rejected(message)));
        }
        self.tokens.push(Arc::clone(&job.token));
        match self.jobs.send(job) {
            Ok(()) => Ok(self.tokens.len()),
            Err(unsent) => Err((unsent.0.answer, ErrorObject::failure("no thread can be started"))),
        }
    }
}

impl Drop for SamplingQueue {
    fn drop(&mut self) {
        self.is_call_over.store(true, Ordering::SeqCst);
        self.tokens.iter().for_each(|token| token.cancel());
    }
}

/// Makes `call`, which passes the queue on to the connection, while another thread answers the requests in the queue with
/// `sampler`.
pub(super) fn with_sampler<T>(
    sampler: &dyn Sampler,
    server: &str,
    call: impl FnOnce(SamplingQueue) -> T,
) -> T {
    let (sender, jobs) = mpsc::channel::<SamplingJob>();
    let is_call_over = Arc::<AtomicBool>::default();
    let queue =
        SamplingQueue { jobs: sender, tokens: Vec::new(), is_call_over: Arc::clone(&is_call_over) };
    std::thread::scope(|scope| {
        let answer_all = move || {
            for job in jobs {
                job.run(server, sampler, &is_call_over);
            }
        };
        let thread = std::thread::Builder::new().name("mcp-sampling".into());
        if let Err(error) = thread.spawn_scoped(scope, answer_all) {
            log::debug!(target: "mcp", "{server}: cannot start a thread for sampling: {error}");
        }
        call(queue)
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_REQUEST_CHARS, SamplingRequest};
    use serde_json::{Value, json};

    #[test]
    fn requests_are_parsed_strictly() {
        let check = |change: Value, expect: Result<(u32, Option<f64>), &str>| {
            let text = json!({ "type": "text", "text": "Hi" });
            let mut params =
                json!({ "messages": [{ "role": "user", "content": text }], "maxTokens": 9 });
            for (key, value) in change.as_object().unwrap() {
                params[key] = value.clone();
            }
            let parsed = SamplingRequest::parse(params.as_object().unwrap());
            let parsed = parsed.map(|request| (request.max_tokens, request.temperature));
            assert_eq!(parsed, expect.map_err(str::to_owned), "{change}");
        };
        let message =
            |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
        check(json!({}), Ok((9, None)));
        check(json!({ "temperature": 7, "includeContext": "allServers" }), Ok((9, Some(2.0))));
        check(json!({ "maxTokens": 1e300 }), Ok((u32::MAX, None)));
        for wrong in [json!(0), json!(-3), json!("9"), Value::Null] {
            check(json!({ "maxTokens": wrong }), Err("`maxTokens` is not a positive number"));
        }
        check(json!({ "messages": [] }), Err("there are no `messages`"));
        check(json!({ "messages": {} }), Err("there are no `messages`"));
        check(
            json!({ "messages": ["Hi"] }),
            Err("the `role` of a message is neither `user` nor `assistant`"),
        );
        check(json!({ "systemPrompt": [] }), Err("`systemPrompt` is not a string"));
        check(json!({ "temperature": "hot" }), Err("`temperature` is not a number"));
        check(json!({ "tools": [] }), Err("tools are not supported"));
        check(message(json!("Hi")), Err("a content block has no `type`"));
        check(message(json!([])), Err("a message has no content"));
        check(message(json!({ "type": "text" })), Err("a text block has no `text`"));
        check(
            message(json!([{ "type": "audio", "data": "" }])),
            Err("content of type `audio` is not supported"),
        );
        check(
            message(json!({ "type": "image", "data": "?" })),
            Err("an image is not valid Base64"),
        );
        let image = json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" });
        check(message(image.clone()), Ok((9, None)));
        check(message(json!(vec![image; 9])), Err("a request may have at most 8 images"));
        let long = "é".repeat(MAX_REQUEST_CHARS);
        check(message(json!({ "type": "text", "text": long })), Ok((9, None)));
        check(json!({ "systemPrompt": long }), Err("a request may have at most 100000 characters"));
    }
}
