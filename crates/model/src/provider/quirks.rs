//! Quirks: the deviations of servers and models from their wire format.

/// The combined quirks of one server and one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quirks {
    /// The output limit is named `max_completion_tokens`.
    pub max_completion_tokens: bool,
    /// No output limit can be set.
    pub(crate) no_output_limit: bool,
    /// The model has a fixed temperature and refuses others.
    pub no_temperature: bool,
    pub thinking: ThinkingStyle,
    /// Each reply has its reasoning in `reasoning_content`, even if it is empty or from elsewhere: these servers refuse
    /// replies without the key. Other servers get reasoning back in the field in which they sent it.
    pub(crate) requires_reasoning: bool,
    /// `stream_options` is refused.
    pub(crate) no_stream_options: bool,
    pub(crate) tool_call_ids: ToolCallIdFormat,
    /// A user message cannot follow a tool result: an assistant message must come between.
    pub(crate) assistant_after_tools: bool,
    /// There is no system role: the system prompt is placed at the beginning of the first user message.
    pub(crate) no_system: bool,
    /// Cache marks are supported, in the form of Anthropic's models: the lifetime that they ask for.
    pub(crate) cache_marks: Option<CacheLifetime>,
    /// Only streaming requests are supported.
    pub streaming_only: bool,
    /// Images are refused: their names are sent instead.
    pub no_images: bool,
    /// Replies to a JSON schema are known to be supported.
    pub json_schemas: bool,
    /// The server reports the cost of a reply, in US dollars.
    pub(crate) reports_cost: bool,
}

/// The lifetime of a cached prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLifetime {
    /// Five minutes since the last use, which is the provider's default.
    Minutes,
    /// An hour since the last use.
    Hour,
}

/// The way to express a reasoning effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingStyle {
    /// `reasoning_effort`, as in OpenAI's API.
    Effort,
    /// `reasoning_effort` with only `none` and `high`.
    NoneOrHigh,
    /// `thinking: {type: enabled}`, and `disabled` for `none`.
    Type,
    /// `enable_thinking: true`.
    Enable,
    /// `reasoning_split: true`: reasoning is returned apart from the text.
    Split,
    /// `reasoning: {effort}`.
    Object,
    /// It cannot be expressed: the model decides itself whether it reasons.
    Unsupported,
    /// Anthropic's older models: `thinking` with a budget in tokens.
    Budget,
    /// Anthropic's newer models: adaptive thinking, with an effort.
    Adaptive,
}

/// The required form of tool call ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCallIdFormat {
    /// At most 64 letters, digits, `_` and `-`; accepted by all other servers.
    Standard,
    /// Nine letters and digits.
    NineAlphanumerics,
}

/// A server without quirks.
pub const NONE: Quirks = Quirks {
    max_completion_tokens: false,
    no_output_limit: false,
    no_temperature: false,
    thinking: ThinkingStyle::Effort,
    requires_reasoning: false,
    no_stream_options: false,
    tool_call_ids: ToolCallIdFormat::Standard,
    assistant_after_tools: false,
    no_system: false,
    cache_marks: None,
    streaming_only: false,
    no_images: false,
    json_schemas: false,
    reports_cost: false,
};

/// A server without quirks that supports JSON schemas.
pub(crate) const JSON_SCHEMAS: Quirks = Quirks { json_schemas: true, ..NONE };

/// OpenAI's API, and services with the same one.
pub(crate) const OPENAI: Quirks = Quirks { max_completion_tokens: true, ..JSON_SCHEMAS };
/// OpenAI's Codex backend, used with a ChatGPT account.
pub(crate) const CODEX: Quirks =
    Quirks { no_output_limit: true, no_temperature: true, streaming_only: true, ..JSON_SCHEMAS };
/// OpenRouter.
pub const OPENROUTER: Quirks =
    Quirks { thinking: ThinkingStyle::Object, reports_cost: true, ..JSON_SCHEMAS };
pub(crate) const VOLCENGINE: Quirks = Quirks { max_completion_tokens: true, ..THINKING_TYPE };
/// Servers that take `thinking: {type: …}`.
pub(crate) const THINKING_TYPE: Quirks = Quirks { thinking: ThinkingStyle::Type, ..NONE };
pub(crate) const DEEPSEEK: Quirks = Quirks { requires_reasoning: true, ..THINKING_TYPE };
/// Moonshot's Kimi.
pub(crate) const KIMI: Quirks = Quirks { requires_reasoning: true, ..THINKING_TYPE };
/// Servers that take `enable_thinking`.
pub(crate) const ENABLE_THINKING: Quirks = Quirks { thinking: ThinkingStyle::Enable, ..NONE };
/// Servers that take `reasoning_split`.
pub(crate) const REASONING_SPLIT: Quirks = Quirks { thinking: ThinkingStyle::Split, ..NONE };
pub(crate) const MISTRAL: Quirks = Quirks {
    thinking: ThinkingStyle::NoneOrHigh,
    no_stream_options: true,
    tool_call_ids: ToolCallIdFormat::NineAlphanumerics,
    assistant_after_tools: true,
    ..JSON_SCHEMAS
};

/// A model's change to the server's quirks.
type QuirkChange = fn(&mut Quirks);

/// Quirks of models, whatever server runs them: prefixes of names, and the change.
const MODEL_QUIRKS: &[(&[&str], QuirkChange)] = &[
    // The models of Moonshot refuse any temperature except their own, and it differs while they do not think. Claude models newer than
    // the table below take neither a temperature nor a budget.
    (
        &[
            "gpt-5",
            "gpt-6",
            "gemini-3.5-flash-lite",
            "gemini-3.8",
            "o1",
            "o3",
            "o4",
            "kimi-k2.",
            "kimi-k2-thinking",
            "kimi-k3",
            "claude",
        ],
        |quirks| quirks.no_temperature = true,
    ),
    (&["o1-mini", "o1-preview"], |quirks| quirks.no_system = true),
    (&["deepseek", "mimo", "kimi-k2.", "kimi-k2-thinking", "kimi-k3"], |quirks| {
        quirks.requires_reasoning = true;
    }),
    // The first always reasons, and refuses requests that configure it.
    (&["magistral", "gemma"], |quirks| quirks.thinking = ThinkingStyle::Unsupported),
    (&["claude"], |quirks| quirks.cache_marks = Some(CacheLifetime::Minutes)),
];

/// Claude models that do not support JSON schemas.
const SCHEMALESS_CLAUDES: &[&str] =
    &["claude-3", "claude-opus-4-0", "claude-opus-4-2", "claude-sonnet-4-0", "claude-sonnet-4-2"];

impl Quirks {
    /// The quirks as phrases for people; empty if there are none.
    pub fn describe(&self) -> Vec<String> {
        let Self {
            max_completion_tokens,
            no_output_limit,
            no_temperature,
            thinking,
            requires_reasoning,
            no_stream_options,
            tool_call_ids,
            assistant_after_tools,
            no_system,
            cache_marks,
            streaming_only,
            // Listed with the model's abilities instead.
            no_images: _,
            json_schemas,
            reports_cost,
        } = *self;
        let thinking = match thinking {
            // As in OpenAI's API, so this is not a quirk.
            ThinkingStyle::Effort => "",
            ThinkingStyle::NoneOrHigh => "the reasoning effort is none or high",
            ThinkingStyle::Type => "reasoning is requested with `thinking`",
            ThinkingStyle::Enable => "reasoning is requested with `enable_thinking`",
            ThinkingStyle::Split => "reasoning is requested with `reasoning_split`",
            ThinkingStyle::Object => "reasoning is requested with `reasoning`",
            ThinkingStyle::Unsupported => "no reasoning effort is sent",
            ThinkingStyle::Budget => "reasoning has a token budget",
            ThinkingStyle::Adaptive => "reasoning is adaptive",
        };
        let has_short_ids = tool_call_ids == ToolCallIdFormat::NineAlphanumerics;
        let phrases = [
            (max_completion_tokens, "the output limit is sent as `max_completion_tokens`"),
            (no_output_limit, "no output limit is sent"),
            (no_temperature, "no temperature is sent"),
            (!thinking.is_empty(), thinking),
            (requires_reasoning, "every reply is sent back with a reasoning field"),
            (no_stream_options, "no `stream_options` are sent"),
            (has_short_ids, "tool call ids have nine characters"),
            (assistant_after_tools, "an assistant message follows tool results"),
            (no_system, "no system message is sent"),
            (cache_marks.is_some(), "the prompt has cache marks"),
            (streaming_only, "replies are always streamed"),
            (!json_schemas, "JSON schemas are sent as text only"),
            (reports_cost, "the server reports costs"),
        ];
        let applicable = phrases.into_iter().filter(|(applies, _)| *applies);
        applicable.map(|(_, phrase)| phrase.to_owned()).collect()
    }
}

/// Anthropic's models that take a temperature, and how they think. Opus 4.7 and all later models refuse one
/// (`temperature is deprecated for this model`).
const OLDER_CLAUDES: &[(&str, ThinkingStyle)] = &[
    ("claude-3", ThinkingStyle::Budget),
    ("claude-haiku-4-5", ThinkingStyle::Budget),
    ("claude-opus-4-0", ThinkingStyle::Budget),
    ("claude-opus-4-1", ThinkingStyle::Budget),
    ("claude-opus-4-2", ThinkingStyle::Budget),
    ("claude-opus-4-5", ThinkingStyle::Budget),
    ("claude-opus-4-6", ThinkingStyle::Adaptive),
    ("claude-sonnet-4-0", ThinkingStyle::Budget),
    ("claude-sonnet-4-2", ThinkingStyle::Budget),
    ("claude-sonnet-4-5", ThinkingStyle::Budget),
    ("claude-sonnet-4-6", ThinkingStyle::Adaptive),
];

impl Quirks {
    /// Adds the quirks of `model`. `is_anthropic` is true if requests use Anthropic's own format.
    pub(crate) fn with_model(mut self, model: &str, is_anthropic: bool) -> Self {
        let name = normalize_model(model);
        let begins_with =
            |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        for (_, change) in MODEL_QUIRKS.iter().filter(|(prefixes, _)| begins_with(prefixes)) {
            change(&mut self);
        }
        let is_claude = name.starts_with("claude");
        let older = OLDER_CLAUDES.iter().find(|(prefix, _)| name.starts_with(prefix));
        if older.is_some() {
            self.no_temperature = false;
        }
        if is_anthropic {
            self.cache_marks = Some(CacheLifetime::Minutes);
            self.json_schemas = is_claude && !begins_with(SCHEMALESS_CLAUDES);
            self.thinking = match older {
                Some((_, style)) => *style,
                None if is_claude => ThinkingStyle::Adaptive,
                None => ThinkingStyle::Budget,
            };
            // Models of other vendors behind this format may take no temperature but their own.
            self.no_temperature |= !is_claude;
        }
        self
    }
}

/// True if an OpenAI model reasons, judging by its name.
pub fn is_reasoning_model(model: &str) -> bool {
    let prefixes = ["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"];
    prefixes.iter().any(|prefix| model.starts_with(prefix))
}

/// The model's name without vendor prefixes, in lower case, with its version in one spelling.
pub(super) fn normalize_model(model: &str) -> String {
    let last = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    // Names on Bedrock and Vertex: `anthropic.claude-…`, `us.anthropic.claude-…`.
    let name = last.find("claude").map_or(last.as_str(), |at| &last[at..]);
    if name.starts_with("claude") { name.replace('.', "-") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{KIMI, NONE, OPENAI, ThinkingStyle};

    #[test]
    fn models_have_their_own_quirks() {
        let of = |model: &str| NONE.with_model(model, false);
        assert!(of("openai/gpt-5-mini").no_temperature);
        assert!(!of("gpt-4o").no_temperature);
        assert!(of("kimi-k2.5").no_temperature);
        assert!(of("deepseek/deepseek-chat").requires_reasoning);
        assert!(of("mimo-v2.5-pro").requires_reasoning);
        assert!(of("anthropic/claude-sonnet-4.5").cache_marks.is_some());
        assert!(of("qwen3").cache_marks.is_none());
        assert!(OPENAI.with_model("o1-mini", false).no_system);
        assert!(
            !KIMI.with_model("moonshot-v1-8k", false).no_temperature,
            "an older model takes any"
        );
    }

    #[test]
    fn claudes_old_and_new() {
        let of = |model: &str| {
            let quirks = NONE.with_model(model, true);
            (quirks.no_temperature, quirks.thinking)
        };
        let older = (false, ThinkingStyle::Budget);
        assert_eq!(of("claude-sonnet-4-5-20250929"), older);
        assert_eq!(of("claude-sonnet-4.5"), older);
        assert_eq!(of("us.anthropic.claude-3-7-sonnet-v1:0"), older);
        let newer = (true, ThinkingStyle::Adaptive);
        assert_eq!(of("claude-opus-4-7"), newer);
        assert_eq!(of("claude-opus-9"), newer);
        assert_eq!(of("claude-sonnet-4-6"), (false, ThinkingStyle::Adaptive));
        assert_eq!(of("MiniMax-M2"), (true, ThinkingStyle::Budget));
    }
}
