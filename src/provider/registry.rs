//! The table of providers, and which of them answers for a model.

use crate::error::{Exit, fail_hint};
use crate::provider::openai_chat::Quirks;
use crate::sys::env::Env;
use crate::sys::http;
use crate::sys::secret::Secret;
use anyhow::Result;
use std::collections::BTreeMap;

/// A provider. All of these speak OpenAI chat completions.
#[derive(Debug)]
pub struct Entry {
    /// As in the config, under `providers`.
    pub name: &'static str,
    pub label: &'static str,
    /// The variable that its vendor documents for the key; empty where there is none.
    pub key_variable: &'static str,
    /// The address, without a slash at its end; empty where it must be configured.
    pub base: &'static str,
    /// The model that is asked where none is configured.
    pub model: &'static str,
    /// Words in a model's name that point here.
    pub keywords: &'static [&'static str],
    /// How its keys begin; empty where they have no form.
    pub key_prefix: &'static str,
    /// A word in an address that gives it away.
    pub base_word: &'static str,
    /// It routes to the models of others.
    pub gateway: bool,
    /// It runs on this machine and needs no key.
    pub local: bool,
}

/// In the order in which they are considered.
pub const TABLE: &[Entry] = &[
    Entry {
        name: "custom",
        label: "Custom (any OpenAI-compatible address)",
        key_variable: "",
        base: "http://localhost:8000/v1",
        model: "default",
        keywords: &[],
        key_prefix: "",
        base_word: "",
        gateway: false,
        local: true,
    },
    Entry {
        name: "openrouter",
        label: "OpenRouter",
        key_variable: "OPENROUTER_API_KEY",
        base: "https://openrouter.ai/api/v1",
        model: "openrouter/auto",
        keywords: &["openrouter"],
        key_prefix: "sk-or-",
        base_word: "openrouter",
        gateway: true,
        local: false,
    },
    Entry {
        name: "openai",
        label: "OpenAI",
        key_variable: "OPENAI_API_KEY",
        base: "https://api.openai.com/v1",
        model: "gpt-5-mini",
        keywords: &["openai", "gpt"],
        key_prefix: "",
        base_word: "api.openai.com",
        gateway: false,
        local: false,
    },
    Entry {
        name: "vllm",
        label: "vLLM (local)",
        key_variable: "",
        base: "http://localhost:8000/v1",
        model: "default",
        keywords: &["vllm"],
        key_prefix: "",
        base_word: "",
        gateway: false,
        local: true,
    },
    Entry {
        name: "ollama",
        label: "Ollama (local)",
        key_variable: "",
        base: "http://localhost:11434/v1",
        model: "qwen3",
        keywords: &["ollama"],
        key_prefix: "",
        base_word: "11434",
        gateway: false,
        local: true,
    },
    Entry {
        name: "lmStudio",
        label: "LM Studio (local)",
        key_variable: "",
        base: "http://localhost:1234/v1",
        model: "default",
        keywords: &["lm_studio", "lmstudio"],
        key_prefix: "",
        base_word: ":1234",
        gateway: false,
        local: true,
    },
    Entry {
        name: "llamaCpp",
        label: "llama.cpp (local)",
        key_variable: "",
        base: "http://localhost:8080/v1",
        model: "default",
        keywords: &["llama_cpp", "llamacpp"],
        key_prefix: "",
        base_word: ":8080",
        gateway: false,
        local: true,
    },
];

/// A provider of the Python program that this release has no entry for.
#[derive(Debug)]
struct NotYet {
    name: &'static str,
    /// Words in a model's name that mean it.
    keywords: &'static [&'static str],
    /// Where it speaks OpenAI chat completions; empty where it does not.
    base: &'static str,
}

const NOT_YET: &[NotYet] = &[
    not_yet("aihubmix", &["aihubmix"], "https://aihubmix.com/v1"),
    not_yet(
        "siliconflow",
        &["siliconflow"],
        "https://api.siliconflow.cn/v1",
    ),
    not_yet(
        "volcengine",
        &["volcengine", "volces"],
        "https://ark.cn-beijing.volces.com/api/v3",
    ),
    not_yet("anthropic", &["anthropic", "claude"], ""),
    not_yet("openaiCodex", &["openai_codex"], ""),
    not_yet("githubCopilot", &["copilot"], ""),
    not_yet("deepseek", &["deepseek"], "https://api.deepseek.com"),
    not_yet(
        "gemini",
        &["gemini"],
        "https://generativelanguage.googleapis.com/v1beta/openai",
    ),
    not_yet(
        "zhipu",
        &["zhipu", "glm", "zai"],
        "https://open.bigmodel.cn/api/paas/v4",
    ),
    not_yet(
        "dashscope",
        &["qwen", "dashscope"],
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
    ),
    not_yet(
        "moonshot",
        &["moonshot", "kimi"],
        "https://api.moonshot.ai/v1",
    ),
    not_yet("minimax", &["minimax"], "https://api.minimax.io/v1"),
    not_yet("groq", &["groq"], "https://api.groq.com/openai/v1"),
    not_yet("mistral", &["mistral"], "https://api.mistral.ai/v1"),
    not_yet("azureOpenai", &["azure"], ""),
    not_yet("bedrock", &["bedrock"], ""),
];

const fn not_yet(
    name: &'static str,
    keywords: &'static [&'static str],
    base: &'static str,
) -> NotYet {
    NotYet {
        name,
        keywords,
        base,
    }
}

/// What the config says of one provider.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub key: Option<Secret>,
    pub base: Option<String>,
    pub headers: Vec<(String, String)>,
}

/// What a choice is made from.
pub struct Wanted<'a> {
    /// A name, or `auto`.
    pub provider: &'a str,
    pub model: &'a str,
    /// The model was named by somebody, and is not our default.
    pub model_given: bool,
    /// Blocks by their names as written.
    pub blocks: &'a BTreeMap<String, Block>,
    pub env: &'a Env,
}

/// Whom to ask, and how.
#[derive(Debug)]
pub struct Choice {
    pub provider: String,
    /// The model as it goes over the wire.
    pub model: String,
    pub base: String,
    pub key: Option<Secret>,
    /// `$NAME` of a variable, or the key of the config.
    pub key_source: String,
    pub headers: Vec<(String, String)>,
    pub quirks: Quirks,
}

/// Choose as the Python program does: by name; else by the model's prefix, by a word in its name, or whoever has a key.
///
/// # Errors
/// Status 78, with the ways forward, when nobody can be asked.
pub fn choose(wanted: &Wanted<'_>) -> Result<Choice> {
    if !plain(wanted.provider).eq("auto") {
        return named(wanted, wanted.provider);
    }
    let prefix = wanted
        .model
        .split_once('/')
        .map(|(prefix, _)| plain(prefix));
    let usable = |entry: &&Entry| {
        block(wanted, entry.name).is_some_and(|(_, block)| is_usable(entry, block))
    };
    let by_prefix = TABLE
        .iter()
        .filter(usable)
        .find(|entry| prefix.as_deref() == Some(plain(entry.name).as_str()));
    let model = wanted.model.to_lowercase().replace('-', "_");
    let by_word = || {
        TABLE
            .iter()
            .filter(usable)
            .find(|entry| entry.keywords.iter().any(|word| model.contains(word)))
    };
    if let Some(entry) = by_prefix.or_else(by_word) {
        return named(wanted, entry.name);
    }
    // A provider of the user's own naming, or one that is not in the table yet, with a key for it: such a model is never
    // sent to another vendor, on another bill.
    let means = |name: &str| {
        let words = NOT_YET
            .iter()
            .find(|other| plain(other.name) == plain(name))
            .map(|other| other.keywords);
        prefix.as_deref() == Some(&plain(name))
            || words.is_some_and(|words| words.iter().any(|word| model.contains(word)))
    };
    let own = wanted.blocks.iter().find(|(name, block)| {
        let in_table = TABLE.iter().any(|entry| plain(entry.name) == plain(name));
        !in_table && (block.base.is_some() || block.key.is_some()) && means(name)
    });
    if let Some((name, _)) = own {
        return named(wanted, name);
    }
    if let Some(entry) = TABLE.iter().find(usable) {
        return named(wanted, entry.name);
    }
    let by_variable = TABLE.iter().find(|entry| {
        !entry.key_variable.is_empty() && wanted.env.get(entry.key_variable).is_some()
    });
    match by_variable {
        Some(entry) => named(wanted, entry.name),
        None => Err(nobody(wanted)),
    }
}

/// A name without the ways to write it: `lmStudio`, `lm-studio` and `lm_studio` are one.
fn plain(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_lowercase()
}

fn block<'a>(wanted: &'a Wanted<'_>, name: &str) -> Option<(&'a String, &'a Block)> {
    wanted
        .blocks
        .iter()
        .find(|(key, _)| plain(key) == plain(name))
}

fn is_usable(entry: &Entry, block: &Block) -> bool {
    block.key.as_ref().is_some_and(|key| !key.is_empty()) || (entry.local && block.base.is_some())
}

fn named(wanted: &Wanted<'_>, name: &str) -> Result<Choice> {
    let block = block(wanted, name)
        .map(|(_, block)| block.clone())
        .unwrap_or_default();
    let entry = TABLE.iter().find(|entry| plain(entry.name) == plain(name));
    let unbuilt = NOT_YET
        .iter()
        .find(|other| entry.is_none() && plain(other.name) == plain(name));
    if let Some(NotYet { base, .. }) =
        unbuilt.filter(|other| other.base.is_empty() || block.base.is_none())
    {
        let hint = match *base {
            "" => "`openrouter`, which routes to its models, or `custom` with an OpenAI-compatible `apiBase`".into(),
            base => format!("nanobot config set providers.{name}.apiBase {base}"),
        };
        return Err(fail_hint(
            Exit::Config,
            format!("provider `{name}` is not built into this release"),
            hint,
        ));
    }
    if entry.is_none() && block.base.is_none() {
        return Err(fail_hint(
            Exit::Config,
            format!("there is no provider `{name}`"),
            format!("nanobot config set providers.{name}.apiBase https://…"),
        ));
    }
    let default_base = entry.map_or("", |entry| entry.base);
    let base = block
        .base
        .clone()
        .unwrap_or_else(|| default_base.to_owned())
        .trim_end_matches('/')
        .to_owned();
    let configured = block.key.filter(|key| !key.is_empty());
    // A vendor's variable goes to that vendor's own address only.
    let variable = entry
        .map(|entry| entry.key_variable)
        .filter(|name| !name.is_empty() && base == default_base);
    let (key, key_source) = match (configured, variable) {
        (Some(key), _) => (Some(key), format!("`providers.{name}.apiKey`")),
        (None, Some(variable)) => (
            wanted.env.get(variable).map(Secret::new),
            format!("${variable}"),
        ),
        (None, None) => (None, "nowhere: none is set".into()),
    };
    if key.is_none() && entry.is_some_and(|entry| !entry.local && base == entry.base) {
        let variable = variable.unwrap_or("the key's variable");
        return Err(fail_hint(
            Exit::Config,
            format!("no key for provider `{name}`"),
            format!("`nanobot onboard`, or set {variable}"),
        ));
    }
    let model = match entry {
        Some(entry) if !wanted.model_given => entry.model,
        _ => wanted.model,
    };
    let model = wire_model(model, name, entry);
    let quirks = quirks(entry, &model);
    Ok(Choice {
        provider: name.to_owned(),
        model,
        base,
        key,
        key_source,
        headers: block.headers,
        quirks,
    })
}

/// The model without a prefix that only names its provider. A gateway wants the prefixes of others.
fn wire_model(model: &str, name: &str, entry: Option<&Entry>) -> String {
    let is_own = |prefix: &str| plain(prefix) == plain(name);
    match model.split_once('/') {
        Some((prefix, rest))
            if is_own(prefix)
                && (rest.contains('/') || !entry.is_some_and(|entry| entry.gateway)) =>
        {
            rest.to_owned()
        }
        _ => model.to_owned(),
    }
}

fn quirks(entry: Option<&Entry>, model: &str) -> Quirks {
    let openai = entry.is_some_and(|entry| entry.name == "openai");
    let bare = model.rsplit('/').next().unwrap_or(model);
    let reasons = ["gpt-5", "o1", "o3", "o4"]
        .iter()
        .any(|start| bare.starts_with(start));
    Quirks {
        max_completion_tokens: openai,
        no_temperature: reasons,
        reasoning_back: bare.starts_with("deepseek"),
    }
}

/// Nobody can be asked: say what can be done, and name a local server that is there, but never use it unasked.
fn nobody(wanted: &Wanted<'_>) -> anyhow::Error {
    let servers = [
        ("ollama", 11434),
        ("lmStudio", 1234),
        ("llamaCpp", 8080),
        ("vllm", 8000),
    ];
    let found = servers.iter().find(|(_, port)| http::listens(*port));
    let unsupported = wanted.blocks.iter().find(|(name, block)| {
        block.key.is_some() && NOT_YET.iter().any(|other| plain(other.name) == plain(name))
    });
    let cause = match unsupported {
        Some((name, _)) => {
            format!("the only key is for provider `{name}`, which is not built into this release")
        }
        None => "no provider is configured".into(),
    };
    let hint = match found {
        Some((name, port)) => {
            format!("`nanobot onboard --provider {name}`, since something answers on port {port}; or --replay demo")
        }
        None => "`nanobot onboard`, or set OPENROUTER_API_KEY or OPENAI_API_KEY, or look first: --replay demo".into(),
    };
    fail_hint(Exit::Config, cause, hint)
}

#[cfg(test)]
mod tests {
    use super::{Block, TABLE, Wanted, choose};
    use crate::error::{Exit, exit_of};
    use crate::sys::env::Env;
    use crate::sys::secret::Secret;
    use std::collections::BTreeMap;

    fn with(
        blocks: &[(&str, &str, &str)],
        env: &[(&str, &str)],
        provider: &str,
        model: &str,
    ) -> Result<String, Exit> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let blocks: BTreeMap<String, Block> = blocks
            .iter()
            .map(|(name, key, base)| {
                let block = Block {
                    key: some(key).map(Secret::new),
                    base: some(base),
                    headers: Vec::new(),
                };
                ((*name).to_owned(), block)
            })
            .collect();
        let env: Env = env.iter().copied().collect();
        let wanted = Wanted {
            provider,
            model,
            model_given: !model.is_empty(),
            blocks: &blocks,
            env: &env,
        };
        let choice = choose(&wanted).map_err(|error| exit_of(&error))?;
        let key = choice.key.as_ref().map_or("-", Secret::expose).to_owned();
        Ok(format!(
            "{} {} {} {key}",
            choice.provider, choice.model, choice.base
        ))
    }

    #[test]
    fn who_is_asked() {
        let check = |blocks: &[(&str, &str, &str)],
                     env: &[(&str, &str)],
                     provider: &str,
                     model: &str,
                     expect: &str| {
            assert_eq!(
                with(blocks, env, provider, model).unwrap(),
                expect,
                "{blocks:?} {env:?} {provider} {model}"
            );
        };
        let openai = "https://api.openai.com/v1";
        let openrouter = "https://openrouter.ai/api/v1";
        check(
            &[("openai", "k", "")],
            &[],
            "openai",
            "gpt-9",
            &format!("openai gpt-9 {openai} k"),
        );
        check(
            &[("openai", "k", "")],
            &[],
            "auto",
            "openai/gpt-9",
            &format!("openai gpt-9 {openai} k"),
        );
        check(
            &[("openrouter", "k", "")],
            &[],
            "auto",
            "anthropic/c",
            &format!("openrouter anthropic/c {openrouter} k"),
        );
        check(
            &[("openrouter", "k", "")],
            &[],
            "auto",
            "openrouter/auto",
            &format!("openrouter openrouter/auto {openrouter} k"),
        );
        check(
            &[("openrouter", "k", "")],
            &[],
            "auto",
            "openrouter/a/b",
            &format!("openrouter a/b {openrouter} k"),
        );
        check(
            &[("openrouter", "r", ""), ("openai", "o", "")],
            &[],
            "auto",
            "gpt-9",
            &format!("openai gpt-9 {openai} o"),
        );
        check(
            &[("custom", "k", "http://h/v1/"), ("openrouter", "r", "")],
            &[],
            "auto",
            "foo",
            "custom foo http://h/v1 k",
        );
        check(
            &[("lm_studio", "", "http://localhost:9/v1")],
            &[],
            "lm-studio",
            "m",
            "lm-studio m http://localhost:9/v1 -",
        );
        check(
            &[],
            &[],
            "ollama",
            "qwen",
            "ollama qwen http://localhost:11434/v1 -",
        );
        check(
            &[("mine", "k", "http://h/v1")],
            &[],
            "auto",
            "mine/m",
            "mine m http://h/v1 k",
        );
        check(
            &[("mine", "k", "http://h/v1")],
            &[],
            "mine",
            "m",
            "mine m http://h/v1 k",
        );
        check(
            &[],
            &[("OPENAI_API_KEY", "e")],
            "auto",
            "",
            &format!("openai gpt-5-mini {openai} e"),
        );
        check(
            &[],
            &[("OPENAI_API_KEY", "e"), ("OPENROUTER_API_KEY", "r")],
            "auto",
            "",
            &format!("openrouter openrouter/auto {openrouter} r"),
        );
        // A provider that is not built in works by its address, and its models are nobody else's.
        check(
            &[
                ("deepseek", "d", "https://api.deepseek.com"),
                ("openai", "o", ""),
            ],
            &[],
            "auto",
            "deepseek-chat",
            "deepseek deepseek-chat https://api.deepseek.com d",
        );
        // A vendor's variable never goes to another address.
        check(
            &[("openai", "", "http://h/v1")],
            &[("OPENAI_API_KEY", "e")],
            "openai",
            "m",
            "openai m http://h/v1 -",
        );
    }

    #[test]
    fn who_cannot_be_asked() {
        let check = |blocks: &[(&str, &str, &str)], provider: &str| {
            assert_eq!(
                with(blocks, &[], provider, "m").unwrap_err(),
                Exit::Config,
                "{blocks:?} {provider}"
            );
        };
        check(&[], "auto");
        check(&[], "openai");
        check(&[], "nobody");
        check(&[("anthropic", "k", "")], "anthropic");
        check(&[("anthropic", "k", "")], "auto");
        check(&[("anthropic", "k", "http://h/v1")], "anthropic");
        check(&[("deepseek", "k", "")], "deepseek");
    }

    #[test]
    fn a_model_never_goes_to_another_vendors_bill() {
        let blocks = [("anthropic", "a", ""), ("openai", "o", "")];
        for model in ["claude-opus", "anthropic/claude-opus"] {
            assert_eq!(with(&blocks, &[], "auto", model).unwrap_err(), Exit::Config);
        }
        assert!(with(&blocks, &[], "auto", "gpt-9").is_ok());
    }

    #[test]
    fn the_table_is_sound() {
        for entry in TABLE {
            assert!(
                !entry.base.ends_with('/') && !entry.label.is_empty() && !entry.model.is_empty(),
                "{entry:?}"
            );
            assert!(entry.local || !entry.key_variable.is_empty(), "{entry:?}");
        }
    }
}
