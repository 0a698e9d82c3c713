//! The location of reasoning in a reply: a field, a part of the content, or a tag in the text. A server expects reasoning
//! back where it has put it, so the location is stored with the reply. Reasoning goes back with every later request,
//! which keeps the prompt prefix the same; servers drop what a model does not read.
//!
//! | server | location | source |
//! |---|---|---|
//! | DeepSeek | `reasoning_content`, required | `api-docs.deepseek.com/guides/thinking_mode` |
//! | Moonshot (Kimi) | `reasoning_content`, required | `platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model` |
//! | Z.ai (GLM) | `reasoning_content` | `docs.z.ai/guides/capabilities/thinking-mode` |
//! | DashScope (Qwen) | `reasoning_content` | `alibabacloud.com/help/en/model-studio/deep-thinking` |
//! | Fireworks | `reasoning_content` | `fireworks-ai` (Python), `resources/chat/completions.py`: `reasoning_history` |
//! | llama.cpp | `reasoning_content` | `ggml-org/llama.cpp`, `common/chat.cpp` |
//! | vLLM | `reasoning`; `reasoning_content` in old releases | `vllm-project/vllm`, issue 27755 |
//! | Groq | `reasoning` | `groq` (Python), `types/chat/chat_completion_assistant_message_param.py` |
//! | Ollama | `reasoning` | `ollama/ollama`, `openai/openai.go` |
//! | Together | `reasoning` or `reasoning_content`, by model | `docs.together.ai/docs/glm-5.3-quickstart` |
//! | OpenRouter | `reasoning_details`, else `reasoning` | `openrouter.ai/docs/guides/best-practices/reasoning-tokens` |
//! | Novita | `reasoning_details`, else `reasoning_content` | `novita.ai/docs/guides/llm-interleaved-thinking` |
//! | MiniMax | `reasoning_details`, if split from the text | `platform.minimax.io/docs/guides/text-m2-function-call` |
//! | Mistral | thinking chunks in the content | `mistralai` (Python), `models/thinkchunk.py` |
//! | servers without a reasoning parser | think tags in the content | templates of the models |

use nanobot_base::message::Reply;
use serde_json::{Value, json};

/// The location in the field of the same name.
pub(super) const REASONING_CONTENT: &str = "reasoning_content";
/// The location in the field of the same name.
pub(super) const REASONING: &str = "reasoning";
/// The location in chunks of type `thinking` in the content.
pub(super) const THINKING_CHUNK: &str = "thinking_chunk";

/// The parts of a reply as they are sent back.
#[derive(Default)]
pub(super) struct PlacedReasoning<'a> {
    /// The content, if reasoning is a part of it.
    pub(super) content: Option<Value>,
    pub(super) reasoning_content: Option<&'a str>,
    pub(super) reasoning: Option<&'a str>,
}

/// Puts the reasoning of `reply` where its `opaque` data says. A location that is none of the constants above is the name
/// of a tag around the reasoning, at the beginning of the text.
pub(super) fn place_reasoning<'a>(reply: &'a Reply, opaque: &'a Value) -> PlacedReasoning<'a> {
    let mut placed = PlacedReasoning::default();
    let (reasoning, text) = (reply.reasoning.as_str(), reply.text.as_str());
    match opaque["place"].as_str() {
        None => {}
        Some(REASONING_CONTENT) => placed.reasoning_content = Some(reasoning),
        Some(REASONING) => placed.reasoning = Some(reasoning),
        Some(THINKING_CHUNK) => {
            let thinking = json!([{ "type": "text", "text": reasoning }]);
            let mut chunks = vec![json!({ "type": "thinking", "thinking": thinking })];
            if !opaque["signature"].is_null() {
                chunks[0]["signature"] = opaque["signature"].clone();
            }
            if !text.is_empty() {
                chunks.push(json!({ "type": "text", "text": text }));
            }
            placed.content = Some(chunks.into());
        }
        Some(tag) => {
            let content = format!("<{tag}>{reasoning}</{tag}>\n\n{text}");
            placed.content = Some(content.into());
        }
    }
    placed
}
