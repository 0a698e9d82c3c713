//! The table of providers. To add a provider, add an entry. The order is the order of precedence and equals that of the
//! Python program's table; the addresses are those that the vendors document.

use super::provider_info::{
    ApiFormat, CredentialKind, PrefixStripping, ProviderInfo, ProviderKind,
};
use crate::provider::quirks::{
    CODEX, DEEPSEEK, ENABLE_THINKING, JSON_SCHEMAS, KIMI, MISTRAL, OPENAI, OPENROUTER,
    REASONING_SPLIT, THINKING_TYPE, VOLCENGINE,
};

/// The rules of a server that the table does not have.
pub(super) static USERS_OWN: ProviderInfo = ProviderInfo { kind: ProviderKind::Direct, ..DEFAULTS };

/// The default values of an entry's fields.
const DEFAULTS: ProviderInfo = ProviderInfo {
    name: "",
    label: "",
    kind: ProviderKind::Standard,
    format: ApiFormat::Chat,
    key_variables: &[],
    key_header: "authorization",
    credentials: CredentialKind::KeyOnly,
    key_prefix: "",
    base_url: "",
    url_keyword: "",
    url_suffix: "",
    default_model: "",
    keywords: &[],
    model_prefixes: &[],
    strip: PrefixStripping::Own,
    serves_others: false,
    quirks: crate::provider::quirks::NONE,
};

// Skipped by rustfmt, to keep all entries in the same layout.
#[rustfmt::skip]
/// The providers, in order of precedence.
pub const PROVIDERS: &[ProviderInfo] = &[
    ProviderInfo {
        name: "custom", label: "Custom (any OpenAI-compatible address)", kind: ProviderKind::Direct,
        base_url: "http://localhost:8000/v1", default_model: "default",
        ..DEFAULTS
    },
    ProviderInfo {
        name: "azureOpenai", label: "Azure OpenAI (and Foundry)", kind: ProviderKind::Direct, quirks: OPENAI,
        key_variables: &["AZURE_OPENAI_API_KEY"], key_header: "api-key", url_keyword: "openai.azure.com", url_suffix: "/openai/v1", default_model: "gpt-6-luna",
        keywords: &["azure"], ..DEFAULTS
    },
    ProviderInfo {
        name: "bedrock", label: "AWS Bedrock", kind: ProviderKind::Direct, credentials: CredentialKind::Aws,
        key_variables: &["AWS_BEARER_TOKEN_BEDROCK"], url_keyword: "bedrock-runtime", url_suffix: "/openai/v1", default_model: "openai.gpt-oss-120b-1:0",
        keywords: &["bedrock", "anthropic.claude", "amazon.nova", "^meta.", "^mistral.", "^cohere.", "^qwen.", "^deepseek.", "openai.gpt_oss", "^ai21.", "^moonshot.", "^writer.", "^zai."], ..DEFAULTS
    },
    ProviderInfo {
        name: "vertex", label: "Google Vertex AI", kind: ProviderKind::Direct, credentials: CredentialKind::Google, quirks: JSON_SCHEMAS,
        url_keyword: "aiplatform.", url_suffix: "/endpoints/openapi", default_model: "google/gemini-3.8-flash",
        keywords: &["vertex"], ..DEFAULTS
    },
    ProviderInfo {
        name: "openrouter", label: "OpenRouter", kind: ProviderKind::Gateway, quirks: OPENROUTER,
        key_variables: &["OPENROUTER_API_KEY"], key_prefix: "sk-or-", base_url: "https://openrouter.ai/api/v1", url_keyword: "openrouter", default_model: "openrouter/auto",
        keywords: &["openrouter"], ..DEFAULTS
    },
    ProviderInfo {
        name: "orcarouter", label: "OrcaRouter", kind: ProviderKind::Gateway,
        key_variables: &["ORCAROUTER_API_KEY"], key_prefix: "sk-orca-", base_url: "https://api.orcarouter.ai/v1", url_keyword: "orcarouter", default_model: "gpt-6-luna",
        keywords: &["orcarouter"], ..DEFAULTS
    },
    ProviderInfo {
        name: "edenai", label: "Eden AI", kind: ProviderKind::Gateway,
        key_variables: &["EDENAI_API_KEY"], base_url: "https://api.edenai.run/v3", url_keyword: "edenai", default_model: "openai/gpt-6-luna",
        keywords: &["edenai"], ..DEFAULTS
    },
    ProviderInfo {
        name: "opencode", label: "OpenCode Zen", kind: ProviderKind::Gateway,
        key_variables: &["OPENCODE_API_KEY"], base_url: "https://opencode.ai/zen/v1", url_keyword: "opencode.ai/zen", default_model: "gpt-6-luna",
        keywords: &["opencode/", "opencode_zen", "opencode"], model_prefixes: &["opencode_zen"], ..DEFAULTS
    },
    ProviderInfo {
        name: "opencodeZen", label: "OpenCode Zen", kind: ProviderKind::Gateway,
        key_variables: &["OPENCODE_API_KEY"], base_url: "https://opencode.ai/zen/v1", url_keyword: "opencode.ai/zen", default_model: "gpt-6-luna",
        keywords: &["opencode/", "opencode_zen"], model_prefixes: &["opencode"], ..DEFAULTS
    },
    ProviderInfo {
        name: "opencodeGo", label: "OpenCode Go", kind: ProviderKind::Gateway,
        key_variables: &["OPENCODE_API_KEY"], base_url: "https://opencode.ai/zen/go/v1", url_keyword: "opencode.ai/zen/go", default_model: "glm-5.3",
        keywords: &["opencode_go"], ..DEFAULTS
    },
    ProviderInfo {
        name: "huggingface", label: "Hugging Face", kind: ProviderKind::Gateway,
        key_variables: &["HF_TOKEN"], key_prefix: "hf_", base_url: "https://router.huggingface.co/v1", url_keyword: "huggingface", default_model: "openai/gpt-oss-120b",
        keywords: &["huggingface", "hugging_face"], ..DEFAULTS
    },
    ProviderInfo {
        name: "skywork", label: "Skywork", kind: ProviderKind::Gateway,
        key_variables: &["SKYWORK_API_KEY"], base_url: "https://api.apifree.ai/agent/v1", url_keyword: "apifree.ai", default_model: "skywork-ai/skyclaw-v1",
        keywords: &["skywork", "skyclaw", "apifree"], ..DEFAULTS
    },
    ProviderInfo {
        name: "aihubmix", label: "AiHubMix", kind: ProviderKind::Gateway, strip: PrefixStripping::All,
        key_variables: &["AIHUBMIX_API_KEY"], base_url: "https://aihubmix.com/v1", url_keyword: "aihubmix", default_model: "gpt-6-luna",
        keywords: &["aihubmix"], ..DEFAULTS
    },
    ProviderInfo {
        name: "siliconflow", label: "SiliconFlow", kind: ProviderKind::Gateway,
        key_variables: &["SILICONFLOW_API_KEY"], base_url: "https://api.siliconflow.cn/v1", url_keyword: "siliconflow", default_model: "Qwen/Qwen3-8B",
        keywords: &["siliconflow"], ..DEFAULTS
    },
    ProviderInfo {
        name: "novita", label: "Novita AI", kind: ProviderKind::Gateway,
        key_variables: &["NOVITA_API_KEY"], base_url: "https://api.novita.ai/openai", url_keyword: "novita", default_model: "deepseek/deepseek-v3.2",
        keywords: &["novita"], ..DEFAULTS
    },
    ProviderInfo {
        name: "volcengine", label: "VolcEngine", kind: ProviderKind::Gateway, quirks: VOLCENGINE,
        key_variables: &["ARK_API_KEY"], base_url: "https://ark.cn-beijing.volces.com/api/v3", url_keyword: "volces", default_model: "doubao-seed-1-6",
        keywords: &["volcengine", "volces", "^ark"], ..DEFAULTS
    },
    ProviderInfo {
        name: "volcengineCodingPlan", label: "VolcEngine Coding Plan", kind: ProviderKind::Gateway, strip: PrefixStripping::All, quirks: VOLCENGINE,
        key_variables: &["ARK_API_KEY"], base_url: "https://ark.cn-beijing.volces.com/api/coding/v3", default_model: "ark-code-latest",
        keywords: &["volcengine_plan"], ..DEFAULTS
    },
    ProviderInfo {
        name: "byteplus", label: "BytePlus", kind: ProviderKind::Gateway, strip: PrefixStripping::All, quirks: THINKING_TYPE,
        key_variables: &["BYTEPLUS_API_KEY"], base_url: "https://ark.ap-southeast.bytepluses.com/api/v3", url_keyword: "bytepluses", default_model: "seed-1-6",
        keywords: &["byteplus"], ..DEFAULTS
    },
    ProviderInfo {
        name: "byteplusCodingPlan", label: "BytePlus Coding Plan", kind: ProviderKind::Gateway, strip: PrefixStripping::All, quirks: THINKING_TYPE,
        key_variables: &["BYTEPLUS_API_KEY"], base_url: "https://ark.ap-southeast.bytepluses.com/api/coding/v3", default_model: "ark-code-latest",
        keywords: &["byteplus_plan"], ..DEFAULTS
    },
    ProviderInfo {
        name: "anthropic", label: "Anthropic", format: ApiFormat::Anthropic,
        key_variables: &["ANTHROPIC_API_KEY"], base_url: "https://api.anthropic.com", url_keyword: "api.anthropic.com", default_model: "claude-haiku-5-5",
        keywords: &["anthropic", "claude"], ..DEFAULTS
    },
    ProviderInfo {
        name: "openai", label: "OpenAI", format: ApiFormat::OpenAi, quirks: OPENAI,
        key_variables: &["OPENAI_API_KEY"], base_url: "https://api.openai.com/v1", url_keyword: "api.openai.com", default_model: "gpt-6-luna",
        keywords: &["openai", "gpt"], ..DEFAULTS
    },
    ProviderInfo {
        name: "openaiCodex", label: "OpenAI Codex (with a ChatGPT account)", kind: ProviderKind::Login, format: ApiFormat::Responses, quirks: CODEX,
        base_url: "https://chatgpt.com/backend-api/codex", url_keyword: "codex", default_model: "gpt-6.1-sol",
        keywords: &["openai_codex"], ..DEFAULTS
    },
    ProviderInfo {
        name: "xaiGrok", label: "xAI Grok (with a Grok account)", kind: ProviderKind::Unsupported,
        default_model: "grok-4.5",
        keywords: &["xai_grok"], ..DEFAULTS
    },
    ProviderInfo {
        name: "githubCopilot", label: "GitHub Copilot (with a GitHub account)", kind: ProviderKind::Login, strip: PrefixStripping::All, quirks: OPENAI,
        base_url: "https://api.githubcopilot.com", url_keyword: "githubcopilot.com", default_model: "gpt-4.1",
        keywords: &["github_copilot", "copilot"], ..DEFAULTS
    },
    ProviderInfo {
        name: "deepseek", label: "DeepSeek", quirks: DEEPSEEK,
        key_variables: &["DEEPSEEK_API_KEY"], base_url: "https://api.deepseek.com", url_keyword: "api.deepseek.com", default_model: "deepseek-flash",
        keywords: &["deepseek"], ..DEFAULTS
    },
    ProviderInfo {
        name: "gemini", label: "Gemini", quirks: JSON_SCHEMAS,
        key_variables: &["GEMINI_API_KEY"], base_url: "https://generativelanguage.googleapis.com/v1beta/openai", url_keyword: "generativelanguage.googleapis.com", default_model: "gemini-3.8-flash",
        keywords: &["gemini", "gemma"], ..DEFAULTS
    },
    ProviderInfo {
        name: "zhipu", label: "Zhipu AI", quirks: THINKING_TYPE,
        key_variables: &["ZAI_API_KEY", "ZHIPUAI_API_KEY"], base_url: "https://api.z.ai/api/paas/v4", default_model: "glm-5.3-flash",
        keywords: &["zhipu", "glm", "zai"], model_prefixes: &["zai"], ..DEFAULTS
    },
    ProviderInfo {
        name: "dashscope", label: "DashScope (Qwen)", quirks: ENABLE_THINKING,
        key_variables: &["DASHSCOPE_API_KEY"], base_url: "https://dashscope.aliyuncs.com/compatible-mode/v1", url_keyword: "dashscope", default_model: "qwen3.8-flash",
        keywords: &["qwen", "dashscope"], ..DEFAULTS
    },
    ProviderInfo {
        name: "modelscope", label: "ModelScope", kind: ProviderKind::Gateway, quirks: ENABLE_THINKING,
        key_variables: &["MODELSCOPE_API_KEY"], base_url: "https://api-inference.modelscope.cn/v1", url_keyword: "modelscope", default_model: "Qwen/Qwen3-235B-A22B",
        keywords: &["modelscope"], ..DEFAULTS
    },
    ProviderInfo {
        name: "moonshot", label: "Moonshot (Kimi)", quirks: KIMI,
        key_variables: &["MOONSHOT_API_KEY"], base_url: "https://api.moonshot.ai/v1", url_keyword: "api.moonshot", default_model: "kimi-k2.6",
        keywords: &["moonshot", "kimi"], ..DEFAULTS
    },
    ProviderInfo {
        name: "kimiCoding", label: "Kimi Coding", format: ApiFormat::Anthropic,
        key_variables: &["KIMI_CODING_API_KEY"], base_url: "https://api.kimi.com/coding", url_keyword: "api.kimi.com/coding", default_model: "kimi-for-coding",
        keywords: &["kimi_coding", "kimi_for_coding"], ..DEFAULTS
    },
    ProviderInfo {
        name: "minimax", label: "MiniMax", quirks: REASONING_SPLIT,
        key_variables: &["MINIMAX_API_KEY"], base_url: "https://api.minimax.io/v1", url_keyword: "api.minimax", default_model: "MiniMax-M3",
        keywords: &["minimax"], ..DEFAULTS
    },
    ProviderInfo {
        name: "minimaxAnthropic", label: "MiniMax (Anthropic interface)", format: ApiFormat::Anthropic,
        key_variables: &["MINIMAX_API_KEY"], base_url: "https://api.minimax.io/anthropic", default_model: "MiniMax-M3",
        keywords: &["minimax_anthropic"], ..DEFAULTS
    },
    ProviderInfo {
        name: "mistral", label: "Mistral", quirks: MISTRAL,
        key_variables: &["MISTRAL_API_KEY"], base_url: "https://api.mistral.ai/v1", url_keyword: "api.mistral.ai", default_model: "mistral-small-latest",
        keywords: &["mistral", "magistral", "ministral", "codestral", "devstral"], ..DEFAULTS
    },
    ProviderInfo {
        name: "stepfun", label: "StepFun",
        key_variables: &["STEPFUN_API_KEY"], base_url: "https://api.stepfun.com/v1", url_keyword: "stepfun", default_model: "step-3",
        keywords: &["stepfun", "^step"], ..DEFAULTS
    },
    ProviderInfo {
        name: "xiaomiMimo", label: "Xiaomi MiMo", quirks: THINKING_TYPE,
        key_variables: &["XIAOMIMIMO_API_KEY"], base_url: "https://api.xiaomimimo.com/v1", url_keyword: "xiaomimimo", default_model: "mimo-v2-flash",
        keywords: &["xiaomi_mimo", "mimo"], ..DEFAULTS
    },
    ProviderInfo {
        name: "longcat", label: "LongCat",
        key_variables: &["LONGCAT_API_KEY"], base_url: "https://api.longcat.chat/openai/v1", url_keyword: "longcat", default_model: "LongCat-Flash-Chat",
        keywords: &["longcat"], ..DEFAULTS
    },
    ProviderInfo {
        name: "antLing", label: "Ant Ling",
        key_variables: &["ANT_LING_API_KEY"], base_url: "https://api.ant-ling.com/v1", url_keyword: "ant-ling.com", default_model: "Ling-1T",
        keywords: &["ant_ling", "^ling_", "^ring_"], ..DEFAULTS
    },
    ProviderInfo {
        name: "vllm", label: "vLLM (local)", kind: ProviderKind::Local, quirks: JSON_SCHEMAS,
        key_variables: &["HOSTED_VLLM_API_KEY"], base_url: "http://localhost:8000/v1", default_model: "default",
        keywords: &["vllm"], model_prefixes: &["hosted_vllm"], ..DEFAULTS
    },
    ProviderInfo {
        name: "ollama", label: "Ollama (local)", kind: ProviderKind::Local, quirks: JSON_SCHEMAS,
        key_variables: &["OLLAMA_API_KEY"], base_url: "http://localhost:11434/v1", url_keyword: "11434", default_model: "qwen3",
        keywords: &["ollama", "nemotron"], ..DEFAULTS
    },
    ProviderInfo {
        name: "lmStudio", label: "LM Studio (local)", kind: ProviderKind::Local, quirks: JSON_SCHEMAS,
        key_variables: &["LM_STUDIO_API_KEY"], base_url: "http://localhost:1234/v1", url_keyword: ":1234", default_model: "default",
        keywords: &["lm_studio", "lmstudio"], ..DEFAULTS
    },
    ProviderInfo {
        name: "llamaCpp", label: "llama.cpp (local)", kind: ProviderKind::Local, quirks: JSON_SCHEMAS,
        base_url: "http://localhost:8080/v1", url_keyword: ":8080", default_model: "default",
        keywords: &["llama_cpp", "llamacpp"], ..DEFAULTS
    },
    ProviderInfo {
        name: "atomicChat", label: "Atomic Chat (local)", kind: ProviderKind::Local,
        key_variables: &["ATOMIC_CHAT_API_KEY"], base_url: "http://localhost:1337/v1", url_keyword: ":1337", default_model: "default",
        keywords: &["atomic_chat", "atomicchat"], ..DEFAULTS
    },
    ProviderInfo {
        name: "ovms", label: "OpenVINO Model Server (local)", kind: ProviderKind::Local,
        base_url: "http://localhost:8000/v3", default_model: "default",
        keywords: &["openvino", "ovms"], ..DEFAULTS
    },
    ProviderInfo {
        name: "nvidia", label: "NVIDIA NIM", strip: PrefixStripping::None, serves_others: true,
        key_variables: &["NVIDIA_NIM_API_KEY"], key_prefix: "nvapi-", base_url: "https://integrate.api.nvidia.com/v1", url_keyword: "nvidia.com", default_model: "nvidia/nemotron-3-super-120b-a12b",
        keywords: &["nvidia", "nemotron", "nvapi"], ..DEFAULTS
    },
    ProviderInfo {
        name: "xai", label: "xAI", quirks: JSON_SCHEMAS,
        key_variables: &["XAI_API_KEY"], key_prefix: "xai-", base_url: "https://api.x.ai/v1", url_keyword: "api.x.ai", default_model: "grok-4.3",
        keywords: &["grok", "xai"], ..DEFAULTS
    },
    ProviderInfo {
        name: "groq", label: "Groq", serves_others: true,
        key_variables: &["GROQ_API_KEY"], key_prefix: "gsk_", base_url: "https://api.groq.com/openai/v1", url_keyword: "api.groq.com", default_model: "openai/gpt-oss-120b",
        keywords: &["groq"], ..DEFAULTS
    },
    ProviderInfo {
        name: "qianfan", label: "Qianfan",
        key_variables: &["QIANFAN_API_KEY"], base_url: "https://qianfan.baidubce.com/v2", url_keyword: "qianfan", default_model: "ernie-4.5-turbo-128k",
        keywords: &["qianfan", "ernie"], ..DEFAULTS
    },
    ProviderInfo {
        name: "assemblyai", label: "AssemblyAI (speech only)", kind: ProviderKind::Unsupported,
        key_variables: &["ASSEMBLYAI_API_KEY"],
        keywords: &["assemblyai"], ..DEFAULTS
    },
];

/// Finds the provider `name`, in any spelling.
pub fn find_provider(name: &str) -> Option<&'static ProviderInfo> {
    PROVIDERS.iter().find(|provider| normalize_name(provider.name) == normalize_name(name))
}

/// Normalizes a name for comparison: `lmStudio`, `lm-studio` and `lm_studio` are equal.
pub fn normalize_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}
