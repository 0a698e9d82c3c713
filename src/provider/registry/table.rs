//! The table of providers. To add a provider, add an entry. The order is the order of precedence and equals that of the
//! Python program's table; the addresses are those that the vendors document.

use super::entry::{Entry, Format, Kind, Strip};
use crate::provider::quirks::{
    CODEX, DEEPSEEK, ENABLE_THINKING, KIMI, MISTRAL, OPENAI, OPENROUTER, REASONING_SPLIT, SCHEMAS,
    THINKING_TYPE, VOLCENGINE,
};

/// The default values of an entry's fields.
const USUAL: Entry = Entry {
    name: "",
    label: "",
    kind: Kind::Standard,
    format: Format::Chat,
    key_variables: &[],
    key_header: "authorization",
    key_prefix: "",
    base: "",
    base_word: "",
    base_tail: "",
    model: "",
    keywords: &[],
    prefixes: &[],
    strip: Strip::Own,
    quirks: crate::provider::quirks::NONE,
};

// Skipped by rustfmt, to keep all entries in the same layout.
#[rustfmt::skip]
/// The providers, in order of precedence.
pub const TABLE: &[Entry] = &[
    Entry {
        name: "custom", label: "Custom (any OpenAI-compatible address)", kind: Kind::Direct,
        base: "http://localhost:8000/v1", model: "default",
        ..USUAL
    },
    Entry {
        name: "azureOpenai", label: "Azure OpenAI", kind: Kind::Direct, quirks: OPENAI,
        key_variables: &["AZURE_OPENAI_API_KEY"], key_header: "api-key", base_word: "openai.azure.com", base_tail: "/openai/v1", model: "gpt-6-luna",
        keywords: &["azure"], ..USUAL
    },
    Entry {
        name: "bedrock", label: "AWS Bedrock (with a Bedrock API key)", kind: Kind::Direct,
        key_variables: &["AWS_BEARER_TOKEN_BEDROCK"], base_word: "bedrock-runtime", base_tail: "/openai/v1", model: "openai.gpt-oss-120b-1:0",
        keywords: &["bedrock", "anthropic.claude", "amazon.nova", "^meta.", "^mistral.", "^cohere.", "^qwen.", "^deepseek.", "openai.gpt_oss", "^ai21.", "^moonshot.", "^writer.", "^zai."], ..USUAL
    },
    Entry {
        name: "openrouter", label: "OpenRouter", kind: Kind::Gateway, quirks: OPENROUTER,
        key_variables: &["OPENROUTER_API_KEY"], key_prefix: "sk-or-", base: "https://openrouter.ai/api/v1", base_word: "openrouter", model: "openrouter/auto",
        keywords: &["openrouter"], ..USUAL
    },
    Entry {
        name: "orcarouter", label: "OrcaRouter", kind: Kind::Gateway,
        key_variables: &["ORCAROUTER_API_KEY"], key_prefix: "sk-orca-", base: "https://api.orcarouter.ai/v1", base_word: "orcarouter", model: "gpt-6-luna",
        keywords: &["orcarouter"], ..USUAL
    },
    Entry {
        name: "edenai", label: "Eden AI", kind: Kind::Gateway,
        key_variables: &["EDENAI_API_KEY"], base: "https://api.edenai.run/v3", base_word: "edenai", model: "openai/gpt-6-luna",
        keywords: &["edenai"], ..USUAL
    },
    Entry {
        name: "opencode", label: "OpenCode Zen", kind: Kind::Gateway,
        key_variables: &["OPENCODE_API_KEY"], base: "https://opencode.ai/zen/v1", base_word: "opencode.ai/zen", model: "gpt-6-luna",
        keywords: &["opencode/", "opencode_zen", "opencode"], prefixes: &["opencode_zen"], ..USUAL
    },
    Entry {
        name: "opencodeZen", label: "OpenCode Zen", kind: Kind::Gateway,
        key_variables: &["OPENCODE_API_KEY"], base: "https://opencode.ai/zen/v1", base_word: "opencode.ai/zen", model: "gpt-6-luna",
        keywords: &["opencode/", "opencode_zen"], prefixes: &["opencode"], ..USUAL
    },
    Entry {
        name: "opencodeGo", label: "OpenCode Go", kind: Kind::Gateway,
        key_variables: &["OPENCODE_API_KEY"], base: "https://opencode.ai/zen/go/v1", base_word: "opencode.ai/zen/go", model: "glm-5.3",
        keywords: &["opencode_go"], ..USUAL
    },
    Entry {
        name: "huggingface", label: "Hugging Face", kind: Kind::Gateway,
        key_variables: &["HF_TOKEN"], key_prefix: "hf_", base: "https://router.huggingface.co/v1", base_word: "huggingface", model: "openai/gpt-oss-120b",
        keywords: &["huggingface", "hugging_face"], ..USUAL
    },
    Entry {
        name: "skywork", label: "Skywork", kind: Kind::Gateway,
        key_variables: &["SKYWORK_API_KEY"], base: "https://api.apifree.ai/agent/v1", base_word: "apifree.ai", model: "skywork-ai/skyclaw-v1",
        keywords: &["skywork", "skyclaw", "apifree"], ..USUAL
    },
    Entry {
        name: "aihubmix", label: "AiHubMix", kind: Kind::Gateway, strip: Strip::All,
        key_variables: &["AIHUBMIX_API_KEY"], base: "https://aihubmix.com/v1", base_word: "aihubmix", model: "gpt-6-luna",
        keywords: &["aihubmix"], ..USUAL
    },
    Entry {
        name: "siliconflow", label: "SiliconFlow", kind: Kind::Gateway,
        key_variables: &["SILICONFLOW_API_KEY"], base: "https://api.siliconflow.cn/v1", base_word: "siliconflow", model: "Qwen/Qwen3-8B",
        keywords: &["siliconflow"], ..USUAL
    },
    Entry {
        name: "novita", label: "Novita AI", kind: Kind::Gateway,
        key_variables: &["NOVITA_API_KEY"], base: "https://api.novita.ai/openai", base_word: "novita", model: "deepseek/deepseek-v3.2",
        keywords: &["novita"], ..USUAL
    },
    Entry {
        name: "volcengine", label: "VolcEngine", kind: Kind::Gateway, quirks: VOLCENGINE,
        key_variables: &["ARK_API_KEY"], base: "https://ark.cn-beijing.volces.com/api/v3", base_word: "volces", model: "doubao-seed-1-6",
        keywords: &["volcengine", "volces", "^ark"], ..USUAL
    },
    Entry {
        name: "volcengineCodingPlan", label: "VolcEngine Coding Plan", kind: Kind::Gateway, strip: Strip::All, quirks: VOLCENGINE,
        key_variables: &["ARK_API_KEY"], base: "https://ark.cn-beijing.volces.com/api/coding/v3", model: "ark-code-latest",
        keywords: &["volcengine_plan"], ..USUAL
    },
    Entry {
        name: "byteplus", label: "BytePlus", kind: Kind::Gateway, strip: Strip::All, quirks: THINKING_TYPE,
        key_variables: &["BYTEPLUS_API_KEY"], base: "https://ark.ap-southeast.bytepluses.com/api/v3", base_word: "bytepluses", model: "seed-1-6",
        keywords: &["byteplus"], ..USUAL
    },
    Entry {
        name: "byteplusCodingPlan", label: "BytePlus Coding Plan", kind: Kind::Gateway, strip: Strip::All, quirks: THINKING_TYPE,
        key_variables: &["BYTEPLUS_API_KEY"], base: "https://ark.ap-southeast.bytepluses.com/api/coding/v3", model: "ark-code-latest",
        keywords: &["byteplus_plan"], ..USUAL
    },
    Entry {
        name: "anthropic", label: "Anthropic", format: Format::Anthropic,
        key_variables: &["ANTHROPIC_API_KEY"], base: "https://api.anthropic.com", base_word: "api.anthropic.com", model: "claude-haiku-5-5",
        keywords: &["anthropic", "claude"], ..USUAL
    },
    Entry {
        name: "openai", label: "OpenAI", format: Format::OpenAi, quirks: OPENAI,
        key_variables: &["OPENAI_API_KEY"], base: "https://api.openai.com/v1", base_word: "api.openai.com", model: "gpt-6-luna",
        keywords: &["openai", "gpt"], ..USUAL
    },
    Entry {
        name: "openaiCodex", label: "OpenAI Codex (with a ChatGPT account)", kind: Kind::Login, format: Format::Responses, quirks: CODEX,
        base: "https://chatgpt.com/backend-api/codex", base_word: "codex", model: "gpt-6.1-sol",
        keywords: &["openai_codex"], ..USUAL
    },
    Entry {
        name: "xaiGrok", label: "xAI Grok (with a Grok account)", kind: Kind::Unbuilt,
        model: "grok-4.5",
        keywords: &["xai_grok"], ..USUAL
    },
    Entry {
        name: "githubCopilot", label: "GitHub Copilot (with a GitHub account)", kind: Kind::Login, strip: Strip::All, quirks: OPENAI,
        base: "https://api.githubcopilot.com", base_word: "githubcopilot.com", model: "gpt-4.1",
        keywords: &["github_copilot", "copilot"], ..USUAL
    },
    Entry {
        name: "deepseek", label: "DeepSeek", quirks: DEEPSEEK,
        key_variables: &["DEEPSEEK_API_KEY"], base: "https://api.deepseek.com", base_word: "api.deepseek.com", model: "deepseek-flash",
        keywords: &["deepseek"], ..USUAL
    },
    Entry {
        name: "gemini", label: "Gemini", quirks: SCHEMAS,
        key_variables: &["GEMINI_API_KEY"], base: "https://generativelanguage.googleapis.com/v1beta/openai", base_word: "generativelanguage.googleapis.com", model: "gemini-3.8-flash",
        keywords: &["gemini", "gemma"], ..USUAL
    },
    Entry {
        name: "zhipu", label: "Zhipu AI", quirks: THINKING_TYPE,
        key_variables: &["ZAI_API_KEY", "ZHIPUAI_API_KEY"], base: "https://api.z.ai/api/paas/v4", model: "glm-5.3-flash",
        keywords: &["zhipu", "glm", "zai"], prefixes: &["zai"], ..USUAL
    },
    Entry {
        name: "dashscope", label: "DashScope (Qwen)", quirks: ENABLE_THINKING,
        key_variables: &["DASHSCOPE_API_KEY"], base: "https://dashscope.aliyuncs.com/compatible-mode/v1", base_word: "dashscope", model: "qwen3.8-flash",
        keywords: &["qwen", "dashscope"], ..USUAL
    },
    Entry {
        name: "modelscope", label: "ModelScope", kind: Kind::Gateway, quirks: ENABLE_THINKING,
        key_variables: &["MODELSCOPE_API_KEY"], base: "https://api-inference.modelscope.cn/v1", base_word: "modelscope", model: "Qwen/Qwen3-235B-A22B",
        keywords: &["modelscope"], ..USUAL
    },
    Entry {
        name: "moonshot", label: "Moonshot (Kimi)", quirks: KIMI,
        key_variables: &["MOONSHOT_API_KEY"], base: "https://api.moonshot.ai/v1", base_word: "api.moonshot", model: "kimi-k2.6",
        keywords: &["moonshot", "kimi"], ..USUAL
    },
    Entry {
        name: "kimiCoding", label: "Kimi Coding", format: Format::Anthropic,
        key_variables: &["KIMI_CODING_API_KEY"], base: "https://api.kimi.com/coding", base_word: "api.kimi.com/coding", model: "kimi-for-coding",
        keywords: &["kimi_coding", "kimi_for_coding"], ..USUAL
    },
    Entry {
        name: "minimax", label: "MiniMax", quirks: REASONING_SPLIT,
        key_variables: &["MINIMAX_API_KEY"], base: "https://api.minimax.io/v1", base_word: "api.minimax", model: "MiniMax-M3",
        keywords: &["minimax"], ..USUAL
    },
    Entry {
        name: "minimaxAnthropic", label: "MiniMax (Anthropic interface)", format: Format::Anthropic,
        key_variables: &["MINIMAX_API_KEY"], base: "https://api.minimax.io/anthropic", model: "MiniMax-M3",
        keywords: &["minimax_anthropic"], ..USUAL
    },
    Entry {
        name: "mistral", label: "Mistral", quirks: MISTRAL,
        key_variables: &["MISTRAL_API_KEY"], base: "https://api.mistral.ai/v1", base_word: "api.mistral.ai", model: "mistral-small-latest",
        keywords: &["mistral", "magistral", "ministral", "codestral", "devstral"], ..USUAL
    },
    Entry {
        name: "stepfun", label: "StepFun",
        key_variables: &["STEPFUN_API_KEY"], base: "https://api.stepfun.com/v1", base_word: "stepfun", model: "step-3",
        keywords: &["stepfun", "^step"], ..USUAL
    },
    Entry {
        name: "xiaomiMimo", label: "Xiaomi MiMo", quirks: THINKING_TYPE,
        key_variables: &["XIAOMIMIMO_API_KEY"], base: "https://api.xiaomimimo.com/v1", base_word: "xiaomimimo", model: "mimo-v2-flash",
        keywords: &["xiaomi_mimo", "mimo"], ..USUAL
    },
    Entry {
        name: "longcat", label: "LongCat",
        key_variables: &["LONGCAT_API_KEY"], base: "https://api.longcat.chat/openai/v1", base_word: "longcat", model: "LongCat-Flash-Chat",
        keywords: &["longcat"], ..USUAL
    },
    Entry {
        name: "antLing", label: "Ant Ling",
        key_variables: &["ANT_LING_API_KEY"], base: "https://api.ant-ling.com/v1", base_word: "ant-ling.com", model: "Ling-1T",
        keywords: &["ant_ling", "^ling_", "^ring_"], ..USUAL
    },
    Entry {
        name: "vllm", label: "vLLM (local)", kind: Kind::Local, quirks: SCHEMAS,
        key_variables: &["HOSTED_VLLM_API_KEY"], base: "http://localhost:8000/v1", model: "default",
        keywords: &["vllm"], prefixes: &["hosted_vllm"], ..USUAL
    },
    Entry {
        name: "ollama", label: "Ollama (local)", kind: Kind::Local, quirks: SCHEMAS,
        key_variables: &["OLLAMA_API_KEY"], base: "http://localhost:11434/v1", base_word: "11434", model: "qwen3",
        keywords: &["ollama", "nemotron"], ..USUAL
    },
    Entry {
        name: "lmStudio", label: "LM Studio (local)", kind: Kind::Local, quirks: SCHEMAS,
        key_variables: &["LM_STUDIO_API_KEY"], base: "http://localhost:1234/v1", base_word: ":1234", model: "default",
        keywords: &["lm_studio", "lmstudio"], ..USUAL
    },
    Entry {
        name: "llamaCpp", label: "llama.cpp (local)", kind: Kind::Local, quirks: SCHEMAS,
        base: "http://localhost:8080/v1", base_word: ":8080", model: "default",
        keywords: &["llama_cpp", "llamacpp"], ..USUAL
    },
    Entry {
        name: "atomicChat", label: "Atomic Chat (local)", kind: Kind::Local,
        key_variables: &["ATOMIC_CHAT_API_KEY"], base: "http://localhost:1337/v1", base_word: ":1337", model: "default",
        keywords: &["atomic_chat", "atomicchat"], ..USUAL
    },
    Entry {
        name: "ovms", label: "OpenVINO Model Server (local)", kind: Kind::Local,
        base: "http://localhost:8000/v3", model: "default",
        keywords: &["openvino", "ovms"], ..USUAL
    },
    Entry {
        name: "nvidia", label: "NVIDIA NIM", strip: Strip::None,
        key_variables: &["NVIDIA_NIM_API_KEY"], key_prefix: "nvapi-", base: "https://integrate.api.nvidia.com/v1", base_word: "nvidia.com", model: "nvidia/nemotron-3-super-120b-a12b",
        keywords: &["nvidia", "nemotron", "nvapi"], ..USUAL
    },
    Entry {
        name: "xai", label: "xAI", quirks: SCHEMAS,
        key_variables: &["XAI_API_KEY"], key_prefix: "xai-", base: "https://api.x.ai/v1", base_word: "api.x.ai", model: "grok-4.3",
        keywords: &["grok", "xai"], ..USUAL
    },
    Entry {
        name: "groq", label: "Groq",
        key_variables: &["GROQ_API_KEY"], key_prefix: "gsk_", base: "https://api.groq.com/openai/v1", base_word: "api.groq.com", model: "openai/gpt-oss-120b",
        keywords: &["groq"], ..USUAL
    },
    Entry {
        name: "qianfan", label: "Qianfan",
        key_variables: &["QIANFAN_API_KEY"], base: "https://qianfan.baidubce.com/v2", base_word: "qianfan", model: "ernie-4.5-turbo-128k",
        keywords: &["qianfan", "ernie"], ..USUAL
    },
    Entry {
        name: "assemblyai", label: "AssemblyAI (speech only)", kind: Kind::Unbuilt,
        key_variables: &["ASSEMBLYAI_API_KEY"],
        keywords: &["assemblyai"], ..USUAL
    },
];

/// Finds the entry `name`, in any spelling.
pub fn entry(name: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| plain(entry.name) == plain(name))
}

/// Normalizes a name for comparison: `lmStudio`, `lm-studio` and `lm_studio` are equal.
pub fn plain(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_lowercase()
}
