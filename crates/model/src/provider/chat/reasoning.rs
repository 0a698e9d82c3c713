//! The places of reasoning in a reply. A server expects reasoning where it puts it itself, so the place is kept with the
//! reply. It goes back with every later request, which keeps the prompt prefix the same; servers drop what a model does
//! not read.
//!
//! | server | place | source |
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

/// The name of the place in the field of the same name.
pub(super) const REASONING_CONTENT: &str = "reasoning_content";
/// The name of the place in the field of the same name.
pub(super) const REASONING: &str = "reasoning";
/// The name of the place in chunks of type `thinking` in the content.
pub(super) const THINKING_CHUNK: &str = "thinking_chunk";

/// The parts of a reply as they are sent back.
#[derive(Default)]
pub(super) struct PlacedReasoning<'a> {
    /// The content, if reasoning is a part of it.
    pub(super) content: Option<Value>,
    pub(super) reasoning_content: Option<&'a str>,
    pub(super) reasoning: Option<&'a str>,
}

/// The reasoning of `reply` in its place according to `keep`, the opaque data. Any other name of a place is that of the
/// tags around a block in the text.
pub(super) fn place<'a>(reply: &'a Reply, keep: &'a Value) -> PlacedReasoning<'a> {
    let mut placed = PlacedReasoning::default();
    let (reasoning, text) = (reply.reasoning.as_str(), reply.text.as_str());
    match keep["place"].as_str() {
        None => {}
        Some(REASONING_CONTENT) => placed.reasoning_content = Some(reasoning),
        Some(REASONING) => placed.reasoning = Some(reasoning),
        Some(THINKING_CHUNK) => {
            let thinking = json!([{ "type": "text", "text": reasoning }]);
            let mut chunks = vec![json!({ "type": "thinking", "thinking": thinking })];
            if !keep["signature"].is_null() {
                chunks[0]["signature"] = keep["signature"].clone();
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
