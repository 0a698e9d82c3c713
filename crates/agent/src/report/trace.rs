//! The trace of a turn: a span for the turn and for each of its sub-agents, requests to the model and tool calls, with the names of
//! OpenTelemetry's semantic conventions for generative AI. The program decides whether there is a trace, and where it goes.
//!
//! Tool calls are events of a turn. A request has a wrapper of its provider: the events of a turn do not have its beginning, and
//! none are of summaries. Texts of messages, arguments and results are only in a trace that is to have content.

use super::otlp::{Attribute, OtlpSpan, SpanKind, SpanStatus, export_request};
use jiff::Timestamp;
use nanobot_base::error::{Exit, exit_for};
use nanobot_base::event::{Event, ToolOutcome};
use nanobot_base::message::{
    FinishReason, Message, Reply, ToolCall, ToolResult, Usage, plain_text,
};
use nanobot_base::trace_context::TraceContext;
use nanobot_model::provider::registry::normalize_name;
use nanobot_model::provider::{DeltaSink, Provider, ProviderError, ProviderResult, Request};
use nanobot_os::clock::Clock;
use nanobot_os::secret::{random_hex, redact_all_json};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The span of a turn or of a sub-agent, and the spans within it.
pub struct AgentTrace {
    shared: Arc<SharedTrace>,
    agent_name: String,
    span_id: String,
    parent_id: Option<String>,
    start: Duration,
    /// The calls that have not ended, by id.
    open_calls: Mutex<HashMap<String, TracedCall>>,
}

/// The parts of a trace that a turn and its sub-agents share.
struct SharedTrace {
    trace_id: String,
    session: String,
    has_content: bool,
    /// The start of the trace, from which the times of its spans are counted.
    start: Timestamp,
    started: Instant,
    /// The spans of the agents, by the ids of their turns, with which the ids of their replies begin.
    agent_spans: Mutex<BTreeMap<String, String>>,
    ended_spans: Mutex<Vec<OtlpSpan>>,
}

/// A tool call that has not ended.
struct TracedCall {
    span_id: String,
    start: Duration,
    name: String,
    arguments: Value,
}

/// The end of an agent's turn.
#[derive(Clone, Copy, Debug)]
pub struct AgentEnd<'a> {
    /// The provider and the model of its requests; empty if none was chosen.
    pub provider: &'a str,
    pub model: &'a str,
    pub usage: Usage,
    pub exit: Exit,
}

/// The name of the agent that runs turns.
const AGENT_NAME: &str = "nanobot";

impl AgentTrace {
    /// Begins the trace of a turn of `session`. It continues `parent_context`, if there is one; `None` if that is not recorded either.
    pub fn begin(
        parent_context: Option<TraceContext>,
        turn_id: &str,
        session: &str,
        clock: &Clock,
        has_content: bool,
    ) -> Option<Arc<Self>> {
        let is_recorded = parent_context.as_ref().is_none_or(|context| context.is_sampled);
        let (trace_id, parent_id) = match parent_context {
            Some(TraceContext { trace_id, span_id, .. }) => (trace_id, Some(span_id)),
            None => (random_hex(16), None),
        };
        let shared = SharedTrace {
            trace_id,
            session: session.to_owned(),
            has_content,
            start: clock.timestamp(),
            started: Instant::now(),
            agent_spans: Mutex::default(),
            ended_spans: Mutex::default(),
        };
        is_recorded.then(|| Self::new(Arc::new(shared), AGENT_NAME, turn_id, parent_id))
    }

    /// Begins the span of a sub-agent.
    pub fn begin_subagent(&self, turn_id: &str, name: &str) -> Arc<Self> {
        Self::new(Arc::clone(&self.shared), name, turn_id, Some(self.span_id.clone()))
    }

    fn new(
        shared: Arc<SharedTrace>,
        agent_name: &str,
        turn_id: &str,
        parent_id: Option<String>,
    ) -> Arc<Self> {
        let (start, span_id) = (shared.started.elapsed(), random_hex(8));
        shared.agent_spans.lock().insert(turn_id.to_owned(), span_id.clone());
        Arc::new(Self {
            shared,
            agent_name: agent_name.to_owned(),
            span_id,
            parent_id,
            start,
            open_calls: Mutex::default(),
        })
    }

    /// The context of what the agent starts.
    pub fn context(&self) -> TraceContext {
        self.shared.context(&self.span_id)
    }

    /// The context of what the tool call with this id starts; `None` if there is no such call.
    pub fn call_context(&self, call_id: &str) -> Option<TraceContext> {
        let open_calls = self.open_calls.lock();
        open_calls.get(call_id).map(|call| self.shared.context(&call.span_id))
    }

    /// Adds the spans of tool calls.
    pub fn observe(&self, event: &Event<'_>) {
        match event {
            Event::ToolCall(call) => self.begin_call(call),
            Event::ToolResult { result, outcome, duration, .. } => {
                self.end_call(result, *outcome, *duration);
            }
            _ => {}
        }
    }

    fn begin_call(&self, call: &ToolCall) {
        let open_call = TracedCall {
            span_id: random_hex(8),
            start: self.shared.started.elapsed(),
            name: call.name.clone(),
            arguments: if self.shared.has_content { call.arguments.clone() } else { Value::Null },
        };
        self.open_calls.lock().insert(call.id.clone(), open_call);
    }

    fn end_call(&self, result: &ToolResult, outcome: ToolOutcome, duration: Duration) {
        let open_call = self.open_calls.lock().remove(&result.call_id);
        let Some(TracedCall { span_id, start, name, arguments }) = open_call else {
            return;
        };
        let mut attributes = vec![
            Attribute::text("gen_ai.operation.name", "execute_tool"),
            Attribute::text("gen_ai.tool.name", &name),
            Attribute::text("gen_ai.tool.call.id", &result.call_id),
            Attribute::text("gen_ai.tool.type", "function"),
        ];
        if self.shared.has_content {
            let text = plain_text(&result.parts);
            attributes.push(content("gen_ai.tool.call.arguments", &arguments));
            attributes.push(Attribute::text("gen_ai.tool.call.result", &text));
        }
        let error = match outcome {
            ToolOutcome::Ok => None,
            ToolOutcome::Failed => Some("failed"),
            ToolOutcome::Denied => Some("denied"),
            ToolOutcome::Skipped => Some("skipped"),
        };
        self.shared.add_span(SpanParts {
            span_id,
            parent_id: Some(self.span_id.clone()),
            name: format!("execute_tool {name}"),
            kind: SpanKind::Internal,
            start,
            // The results of calls that ran side by side are reported together.
            end: (start + duration).min(self.shared.started.elapsed()),
            attributes,
            error: error.map(str::to_owned),
        });
    }

    /// Wraps a provider, so that each of its requests has a span. `provider_name` is its name in the table of providers.
    pub fn wrap<P: Provider>(&self, provider_name: &str, inner: P) -> TracedProvider<P> {
        let provider_name = convention_name(provider_name).to_owned();
        TracedProvider { inner, shared: Arc::clone(&self.shared), provider_name }
    }

    /// Ends the span of the agent.
    pub fn end(&self, end: &AgentEnd<'_>) {
        let AgentEnd { provider, model, usage, exit } = *end;
        let mut attributes = vec![
            Attribute::text("gen_ai.operation.name", "invoke_agent"),
            Attribute::text("gen_ai.agent.name", &self.agent_name),
            Attribute::text("gen_ai.conversation.id", &self.shared.session),
        ];
        if !model.is_empty() {
            attributes.push(Attribute::text("gen_ai.provider.name", convention_name(provider)));
            attributes.push(Attribute::text("gen_ai.request.model", model));
        }
        add_usage(&mut attributes, usage);
        self.shared.add_span(SpanParts {
            span_id: self.span_id.clone(),
            parent_id: self.parent_id.clone(),
            name: format!("invoke_agent {}", self.agent_name),
            kind: SpanKind::Internal,
            start: self.start,
            end: self.shared.started.elapsed(),
            attributes,
            error: (exit != Exit::Answered).then(|| exit.name().to_owned()),
        });
    }

    /// The request that exports all spans that have ended.
    pub fn to_json(&self) -> Value {
        export_request(&self.shared.ended_spans.lock())
    }
}

/// A span that ends.
struct SpanParts {
    span_id: String,
    parent_id: Option<String>,
    name: String,
    kind: SpanKind,
    start: Duration,
    end: Duration,
    attributes: Vec<Attribute>,
    /// A name with few different values.
    error: Option<String>,
}

impl SharedTrace {
    fn context(&self, span_id: &str) -> TraceContext {
        let trace_id = self.trace_id.clone();
        TraceContext { trace_id, span_id: span_id.to_owned(), is_sampled: true }
    }

    /// The span of the agent that expects the reply `reply_id`. Requests of MCP servers belong to the turn.
    fn agent_span(&self, reply_id: &str) -> Option<String> {
        let agent_spans = self.agent_spans.lock();
        let is_of_agent = |turn_id: &str| {
            reply_id.strip_prefix(turn_id).is_some_and(|suffix| suffix.starts_with('-'))
        };
        // The id of a sub-agent begins with that of its turn.
        let agent = agent_spans.iter().rfind(|(turn_id, _)| is_of_agent(turn_id));
        agent.or(agent_spans.first_key_value()).map(|(_, span_id)| span_id.clone())
    }

    fn add_span(&self, parts: SpanParts) {
        let SpanParts { span_id, parent_id, name, kind, start, end, mut attributes, error } = parts;
        let unix_nanos = |offset: Duration| {
            (self.start.as_nanosecond() + i128::try_from(offset.as_nanos()).unwrap_or(0))
                .to_string()
        };
        let status = error.as_deref().map(|error| {
            attributes.push(Attribute::text("error.type", error));
            SpanStatus::ERROR
        });
        self.ended_spans.lock().push(OtlpSpan {
            trace_id: self.trace_id.clone(),
            span_id,
            parent_span_id: parent_id,
            name,
            kind,
            start_time_unix_nano: unix_nanos(start),
            end_time_unix_nano: unix_nanos(end),
            attributes,
            status,
        });
    }
}

/// Forwards requests to `inner`, and adds a span for each one, its retries included.
pub struct TracedProvider<P> {
    inner: P,
    shared: Arc<SharedTrace>,
    provider_name: String,
}

impl<P: Provider> Provider for TracedProvider<P> {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let start = self.shared.started.elapsed();
        let result = self.inner.reply(request, on_delta);
        let error = match &result {
            Ok(_) => None,
            // No request was sent.
            Err(ProviderError::BudgetExceeded(_)) => return result,
            Err(ProviderError::Aborted(error)) => Some(exit_for(error).name().to_owned()),
            Err(ProviderError::Failed { kind, .. }) => json!(kind).as_str().map(str::to_owned),
        };
        let mut attributes = vec![
            Attribute::text("gen_ai.operation.name", "chat"),
            Attribute::text("gen_ai.provider.name", &self.provider_name),
            Attribute::text("gen_ai.request.model", request.model),
            Attribute::text("gen_ai.conversation.id", &self.shared.session),
        ];
        if let Ok(reply) = &result {
            let finish_reason = finish_reason(&reply.finish_reason);
            attributes.push(Attribute::text("gen_ai.response.model", &reply.model));
            let key = "gen_ai.response.finish_reasons";
            attributes.push(Attribute::single_text(key, finish_reason));
            add_usage(&mut attributes, reply.usage);
        }
        if self.shared.has_content {
            // Earlier messages are in the spans of earlier requests.
            let is_reply = |message: &Message| matches!(message, Message::Assistant(_));
            let messages = request.messages.rsplit(is_reply).next();
            let messages = messages.unwrap_or_default().iter().map(message_json);
            attributes.push(content("gen_ai.input.messages", &messages.collect()));
            attributes.extend(result.iter().map(|reply| {
                let mut message = reply_json(reply);
                message["finish_reason"] = finish_reason(&reply.finish_reason).into();
                content("gen_ai.output.messages", &json!([message]))
            }));
        }
        self.shared.add_span(SpanParts {
            span_id: random_hex(8),
            parent_id: self.shared.agent_span(request.reply_id),
            name: format!("chat {}", request.model),
            kind: SpanKind::Client,
            start,
            end: self.shared.started.elapsed(),
            attributes,
            error,
        });
        result
    }
}

fn add_usage(attributes: &mut Vec<Attribute>, usage: Usage) {
    let Usage { input, cached, cache_write, output, reasoning, estimated } = usage;
    if estimated {
        return;
    }
    let mut add = |key, number| attributes.push(Attribute::number(key, number));
    add("gen_ai.usage.input_tokens", input);
    add("gen_ai.usage.output_tokens", output);
    add("gen_ai.usage.cache_read.input_tokens", cached);
    add("gen_ai.usage.cache_creation.input_tokens", cache_write);
    add("gen_ai.usage.reasoning.output_tokens", reasoning);
}

/// The name of a provider in the semantic conventions, if it has one there that differs from the one in our table.
fn convention_name(provider: &str) -> &str {
    match normalize_name(provider).as_str() {
        "azureopenai" => "azure.ai.openai",
        "bedrock" => "aws.bedrock",
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "moonshot" => "moonshot_ai",
        "openaicodex" => "openai",
        "vertex" => "gcp.vertex_ai",
        "xai" => "x_ai",
        _ => provider,
    }
}

/// The name of a finish reason in the semantic conventions, if it has one there.
fn finish_reason(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::Length => "length",
        FinishReason::Interrupted => "error",
        FinishReason::Refusal => "content_filter",
        FinishReason::Other(name) => name,
    }
}

/// An attribute with messages or arguments, as JSON in a text. Keys are masked before, since JSON may spell them otherwise.
fn content(key: &'static str, value: &Value) -> Attribute {
    Attribute::text(key, &redact_all_json(value).to_string())
}

/// A message in the form of `gen_ai.input.messages`.
fn message_json(message: &Message) -> Value {
    match message {
        Message::User(user) => {
            json!({ "role": "user", "parts": [text_part(&plain_text(&user.parts))] })
        }
        Message::Assistant(reply) => reply_json(reply),
        Message::Tool(ToolResult { call_id, parts, .. }) => json!({ "role": "tool", "parts": [
            { "type": "tool_call_response", "id": call_id, "response": plain_text(parts) }
        ] }),
    }
}

fn reply_json(reply: &Reply) -> Value {
    let text = (!reply.text.is_empty()).then(|| text_part(&reply.text));
    let calls = reply.tool_calls.iter().map(|ToolCall { id, name, arguments }| {
        json!({ "type": "tool_call", "id": id, "name": name, "arguments": arguments })
    });
    json!({ "role": "assistant", "parts": text.into_iter().chain(calls).collect::<Vec<_>>() })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "content": text })
}

#[cfg(test)]
mod tests {
    use super::{AgentTrace, convention_name};
    use nanobot_os::clock::Clock;

    #[test]
    fn a_request_belongs_to_the_agent_that_made_it() {
        let turn = AgentTrace::begin(None, "a1", "s", &Clock::default(), false).unwrap();
        let first = turn.begin_subagent("a1-spawn1", "spawn1");
        let tenth = turn.begin_subagent("a1-spawn10", "spawn10");
        let check = |reply_id: &str, agent: &AgentTrace| {
            assert_eq!(
                turn.shared.agent_span(reply_id).as_ref(),
                Some(&agent.span_id),
                "{reply_id}"
            );
        };
        check("a1-3", &turn);
        check("a1-s1", &turn);
        check("a1-spawn1-2", &first);
        check("a1-spawn1-s1", &first);
        check("a1-spawn10-2", &tenth);
        check("sampling-0815", &turn);
    }

    #[test]
    fn providers_have_the_names_of_the_conventions() {
        let check = |provider: &str, expect: &str| assert_eq!(convention_name(provider), expect);
        check("anthropic", "anthropic");
        check("azure_openai", "azure.ai.openai");
        check("openaiCodex", "openai");
        check("my_own-server", "my_own-server");
    }
}
