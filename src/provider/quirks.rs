//! What a server, or a model, wants otherwise than its wire format says.

/// The oddities of one server and one model, together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quirks {
    /// The limit is called `max_completion_tokens`.
    pub max_completion_tokens: bool,
    /// No limit can be set.
    pub no_limit: bool,
    pub temperature: Temperature,
    pub thinking: Thinking,
    /// Reasoning goes back with the messages it belongs to: these servers refuse a conversation without it.
    pub reasoning_back: bool,
    /// `stream_options` is refused.
    pub no_stream_options: bool,
    pub ids: Ids,
    /// A user's message cannot follow a tool's result: a word of the assistant's stands between.
    pub word_after_tools: bool,
    /// There is no system message: its text begins the first user message.
    pub no_system: bool,
    /// Marks for the cache are understood, as Anthropic's models have them.
    pub cache_marks: bool,
    /// Only streams are answered.
    pub only_streams: bool,
    /// Images are refused: their names are sent instead.
    pub no_images: bool,
    /// It is known to hold an answer to a JSON schema.
    pub schemas: bool,
    /// It says what an answer cost, in US dollars.
    pub tells_cost: bool,
}

/// What becomes of the temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Temperature {
    /// It is sent, where the format has one.
    Ours,
    /// It is the model's own, and one of ours is refused.
    None,
    /// Only this one is taken.
    Fixed(f64),
}

/// How a reasoning effort is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// `reasoning_effort`, as OpenAI has it.
    Effort,
    /// `reasoning_effort`, which knows `none` and `high` alone.
    NoneOrHigh,
    /// `thinking: {type: enabled}`, and `disabled` for `none`.
    Type,
    /// `enable_thinking: true`.
    Enable,
    /// `reasoning_split: true`: reasoning comes apart from the text.
    Split,
    /// `reasoning: {effort}`.
    Object,
    /// It cannot be said: the model reasons, or does not, as it likes.
    Unsaid,
    /// Anthropic's older models: `thinking` with a budget of tokens.
    Budget,
    /// Anthropic's newer models: adaptive thinking, with an effort.
    Adaptive,
}

/// What the ids of tool calls must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// At most 64 letters, digits, `_` and `-`: what every other server takes.
    Usual,
    /// Nine letters and digits.
    Nine,
}

/// A server without oddities.
pub const NONE: Quirks = Quirks {
    max_completion_tokens: false,
    no_limit: false,
    temperature: Temperature::Ours,
    thinking: Thinking::Effort,
    reasoning_back: false,
    no_stream_options: false,
    ids: Ids::Usual,
    word_after_tools: false,
    no_system: false,
    cache_marks: false,
    only_streams: false,
    no_images: false,
    schemas: false,
    tells_cost: false,
};

/// A server without oddities that holds answers to a schema.
pub const SCHEMAS: Quirks = Quirks {
    schemas: true,
    ..NONE
};

pub const OPENAI: Quirks = Quirks {
    max_completion_tokens: true,
    ..SCHEMAS
};
pub const CODEX: Quirks = Quirks {
    no_limit: true,
    temperature: Temperature::None,
    only_streams: true,
    ..SCHEMAS
};
pub const OPENROUTER: Quirks = Quirks {
    thinking: Thinking::Object,
    tells_cost: true,
    ..SCHEMAS
};
pub const VOLCENGINE: Quirks = Quirks {
    max_completion_tokens: true,
    ..THINKING_TYPE
};
pub const THINKING_TYPE: Quirks = Quirks {
    thinking: Thinking::Type,
    ..NONE
};
pub const DEEPSEEK: Quirks = Quirks {
    reasoning_back: true,
    ..THINKING_TYPE
};
pub const KIMI: Quirks = Quirks {
    reasoning_back: true,
    ..THINKING_TYPE
};
pub const ENABLE_THINKING: Quirks = Quirks {
    thinking: Thinking::Enable,
    ..NONE
};
pub const REASONING_SPLIT: Quirks = Quirks {
    thinking: Thinking::Split,
    ..NONE
};
pub const MISTRAL: Quirks = Quirks {
    thinking: Thinking::NoneOrHigh,
    no_stream_options: true,
    ids: Ids::Nine,
    word_after_tools: true,
    ..SCHEMAS
};

/// What becomes of a server's oddities with a model.
type Change = fn(&mut Quirks);

/// What models want otherwise, wherever they are served: a name's beginning, and the change.
const MODELS: &[(&str, Change)] = &[
    ("gpt-5", |quirks| quirks.temperature = Temperature::None),
    ("gpt-6", |quirks| quirks.temperature = Temperature::None),
    ("gemini-3.5-flash-lite", |quirks| {
        quirks.temperature = Temperature::None;
    }),
    ("gemini-3.8", |quirks| {
        quirks.temperature = Temperature::None;
    }),
    ("o1", |quirks| quirks.temperature = Temperature::None),
    ("o1-mini", |quirks| quirks.no_system = true),
    ("o1-preview", |quirks| quirks.no_system = true),
    ("o3", |quirks| quirks.temperature = Temperature::None),
    ("o4", |quirks| quirks.temperature = Temperature::None),
    ("deepseek", |quirks| quirks.reasoning_back = true),
    // These refuse any temperature but their own.
    ("kimi-k2.", |quirks| {
        quirks.reasoning_back = true;
        quirks.temperature = Temperature::Fixed(1.0);
    }),
    ("kimi-k2-thinking", |quirks| {
        quirks.reasoning_back = true;
        quirks.temperature = Temperature::Fixed(1.0);
    }),
    ("kimi-k3", |quirks| {
        quirks.reasoning_back = true;
        quirks.temperature = Temperature::Fixed(1.0);
    }),
    // It always reasons, and refuses to be told so.
    ("magistral", |quirks| quirks.thinking = Thinking::Unsaid),
    ("gemma", |quirks| quirks.thinking = Thinking::Unsaid),
    ("claude", |quirks| {
        quirks.cache_marks = true;
        // What is newer than this table takes neither a temperature nor a budget.
        quirks.temperature = Temperature::None;
    }),
];

/// Of these, the ones that hold no answer to a schema.
const SCHEMALESS_CLAUDES: &[&str] = &[
    "claude-3",
    "claude-opus-4-0",
    "claude-opus-4-2",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
];

impl Quirks {
    /// What is odd, for people; nothing where nothing is.
    pub fn in_words(&self) -> Vec<String> {
        let Self {
            max_completion_tokens,
            no_limit,
            temperature,
            thinking,
            reasoning_back,
            no_stream_options,
            ids,
            word_after_tools,
            no_system,
            cache_marks,
            only_streams,
            // An ability of the model, and told among those.
            no_images: _,
            schemas,
            tells_cost,
        } = *self;
        let temperature = match temperature {
            Temperature::Ours => String::new(),
            Temperature::None => "no temperature is sent".into(),
            Temperature::Fixed(degree) => {
                format!("the temperature is {degree} whatever is asked for")
            }
        };
        let thinking = match thinking {
            Thinking::Effort => "",
            Thinking::NoneOrHigh => "the reasoning effort is none or high",
            Thinking::Type => "reasoning is asked for with `thinking`",
            Thinking::Enable => "reasoning is asked for with `enable_thinking`",
            Thinking::Split => "reasoning is asked for with `reasoning_split`",
            Thinking::Object => "reasoning is asked for with `reasoning`",
            Thinking::Unsaid => "no reasoning effort is sent",
            Thinking::Budget => "reasoning gets a budget of tokens",
            Thinking::Adaptive => "reasoning is adaptive",
        };
        let when = |is: bool, words: &str| if is { words.to_owned() } else { String::new() };
        let words = [
            when(
                max_completion_tokens,
                "the limit is `max_completion_tokens`",
            ),
            when(no_limit, "no limit is sent"),
            temperature,
            thinking.to_owned(),
            when(reasoning_back, "reasoning is sent back"),
            when(no_stream_options, "no `stream_options` are sent"),
            when(ids == Ids::Nine, "tool calls have ids of nine letters"),
            when(
                word_after_tools,
                "a word of the assistant's follows tool results",
            ),
            when(no_system, "there is no system message"),
            when(cache_marks, "the prompt is marked for the cache"),
            when(only_streams, "every answer is a stream"),
            when(!schemas, "a schema is told in words alone"),
            when(tells_cost, "it says what an answer cost"),
        ];
        words
            .into_iter()
            .filter(|words| !words.is_empty())
            .collect()
    }
}

/// Anthropic's models that take a temperature, and a budget for their thinking.
const OLDER_CLAUDES: &[&str] = &[
    "claude-3",
    "claude-haiku-4-5",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2",
    "claude-opus-4-5",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
    "claude-sonnet-4-5",
];

impl Quirks {
    /// With what `model` wants; `anthropic` when it is spoken to in Anthropic's own format.
    pub fn of_model(mut self, model: &str, anthropic: bool) -> Self {
        let name = bare(model);
        for (_, change) in MODELS.iter().filter(|(start, _)| name.starts_with(start)) {
            change(&mut self);
        }
        let older = OLDER_CLAUDES.iter().any(|start| name.starts_with(start));
        if older {
            self.temperature = Temperature::Ours;
        }
        if anthropic {
            self.cache_marks = true;
            self.schemas = name.starts_with("claude")
                && !SCHEMALESS_CLAUDES
                    .iter()
                    .any(|start| name.starts_with(start));
            self.thinking = match older || !name.starts_with("claude") {
                true => Thinking::Budget,
                false => Thinking::Adaptive,
            };
        }
        self
    }
}

/// Whether a model of OpenAI's reasons, by its name.
pub fn reasons(model: &str) -> bool {
    let starts = ["gpt-5", "gpt-6", "o1", "o3", "o4", "codex"];
    starts.iter().any(|start| model.starts_with(start))
}

/// A model's name without those in front of it, in lower case, with one way to write its version.
pub(super) fn bare(model: &str) -> String {
    let last = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    // Bedrock's and Vertex' names: `anthropic.claude-…`, `us.anthropic.claude-…`.
    let name = last.find("claude").map_or(last.as_str(), |at| &last[at..]);
    match name.starts_with("claude") {
        true => name.replace('.', "-"),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{KIMI, NONE, OPENAI, Temperature, Thinking};

    #[test]
    fn models_bring_their_own() {
        let of = |model: &str| NONE.of_model(model, false);
        assert_eq!(of("openai/gpt-5-mini").temperature, Temperature::None);
        assert_eq!(of("gpt-4o").temperature, Temperature::Ours);
        assert_eq!(of("kimi-k2.5").temperature, Temperature::Fixed(1.0));
        assert!(of("deepseek/deepseek-chat").reasoning_back);
        assert!(of("anthropic/claude-sonnet-4.5").cache_marks);
        assert!(!of("qwen3").cache_marks);
        assert!(OPENAI.of_model("o1-mini", false).no_system);
        assert!(
            KIMI.of_model("moonshot-v1-8k", false).temperature == Temperature::Ours,
            "an older model takes any"
        );
    }

    #[test]
    fn claudes_old_and_new() {
        let of = |model: &str| {
            let quirks = NONE.of_model(model, true);
            (quirks.temperature, quirks.thinking)
        };
        let older = (Temperature::Ours, Thinking::Budget);
        assert_eq!(of("claude-sonnet-4-5-20250929"), older);
        assert_eq!(of("claude-sonnet-4.5"), older);
        assert_eq!(of("us.anthropic.claude-3-7-sonnet-v1:0"), older);
        let newer = (Temperature::None, Thinking::Adaptive);
        assert_eq!(of("claude-opus-4-7"), newer);
        assert_eq!(of("claude-sonnet-4-6"), newer);
        assert_eq!(of("claude-opus-9"), newer);
        assert_eq!(of("MiniMax-M2"), older);
    }
}
