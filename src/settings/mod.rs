//! The config file as written, and [`Settings`] as used: every value resolved once, from flag, variable, file and default.
//!
//! `keys` is the table that all else is read from; `file` keeps the text; `layers` lays the variables over it. Only
//! what a run needs is expanded and checked here, so a mistake in a part that is not used stops nobody; `check` looks
//! at everything.

pub mod check;
pub mod expand;
pub mod file;
mod hosts;
pub mod keys;
pub mod kind;
pub mod layers;
pub mod models;
pub mod rules;
pub mod schema;
pub mod secrets;
pub mod servers;

pub use file::Config;
pub use layers::{Layers, Origin};
pub use models::Asked;

use crate::error::{Exit, fail, fail_hint};
use crate::sys::address::Range;
use crate::sys::env::{BRAVE_API_KEY, Env, FIRST_BYTE, STREAM_IDLE};
use crate::sys::paths::Paths;
use crate::sys::secret::{self, Secret};
use anyhow::Result;
use keys::{Branch, snake_case};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The settings of one run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The model to ask, and after it those that stand in for it. Never empty.
    pub asked: Vec<Asked>,
    pub budget: Budget,
    /// What is configured about providers, by name in snake_case.
    pub providers: BTreeMap<String, Block>,
    /// The agent's own directory, absolute.
    pub workspace: PathBuf,
    pub directory: Directory,
    /// Requests in one turn: 40 are enough for real work and end a loop before it is expensive.
    pub max_tool_iterations: u32,
    /// Sub-agents that run at the same time; `None` for as many as `--max-parallel` lets.
    pub max_subagents: Option<usize>,
    /// Messages of the session that are sent again.
    pub memory_window: usize,
    /// Tokens that a model takes in and gives out, where nobody knows better.
    pub context_window: u32,
    pub compaction: Compaction,
    pub skills: Skills,
    /// The profile of a run that names none.
    pub profile: String,
    pub tools: Tools,
    pub exec: Exec,
    pub web: Web,
    /// The MCP servers.
    pub servers: Vec<servers::Server>,
    pub restrict_to_workspace: bool,
    /// Characters of a tool's result that the session keeps: 16,000 are some 4,000 tokens.
    pub max_tool_result_chars: usize,
    pub session_sync: SessionSync,
    pub memory: Memory,
    pub timeouts: Timeouts,
}

/// What the model is told of skills.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills {
    /// Names that are left out.
    pub disabled: Vec<String>,
    /// Tokens that their list may take of each request: 2,000 hold some 30 skills in full, and each of 100 in a line.
    pub budget: u64,
}

/// What may be spent, in US dollars. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Of a day, as the system's time zone has it.
    pub daily: Option<f64>,
    pub monthly: Option<f64>,
    pub per_session: Option<f64>,
}

/// When a conversation is made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Tokens of what is sent at which it is; 0 for never, `None` for what the model suggests.
    pub threshold: Option<u64>,
    /// The model is told once that half of them are used.
    pub warns: bool,
}

impl Compaction {
    /// The most that is sent unless the config says otherwise, however much the model takes: all of it is paid for with
    /// each request, and models lose sight of what lies far back.
    const MOST: u64 = 200_000;

    /// The threshold for a model that takes `context` tokens, of which its answer may have `output`: four fifths of the
    /// rest, since our count of tokens is an estimate. `None` for never.
    pub fn at(&self, context: u32, output: u32) -> Option<u64> {
        let room = u64::from(context.saturating_sub(output).max(context / 2));
        let threshold = self
            .threshold
            .unwrap_or_else(|| Self::MOST.min(room / 5 * 4));
        (threshold > 0).then_some(threshold)
    }
}

/// Where the work is, unless a flag says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// The current directory.
    Cwd,
    Workspace,
}

/// How conversations become memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    pub consolidate: Consolidate,
    /// The model or preset that is asked; `None` for the one of the turn.
    pub model: Option<String>,
    /// Tokens of MEMORY.md, which is sent with every request: 4000 are some three pages.
    pub budget: usize,
}

/// When a conversation that is due becomes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consolidate {
    /// Detached with a controlling terminal, else inline.
    Auto,
    /// After the answer, in a process of its own.
    Detached,
    /// After the answer, with standard output closed.
    Inline,
    /// When it is told to.
    Manual,
}

/// When a session is forced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSync {
    /// At the end of each turn.
    Turn,
    /// Never; the kernel writes it when it likes.
    None,
}

/// What the config says about a provider.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub api_key: Option<Secret>,
    /// A file that holds the key.
    pub api_key_file: Option<String>,
    /// A command whose output is the key.
    pub api_key_command: Option<String>,
    pub api_base: Option<String>,
    /// The wire format, as written.
    pub api_type: Option<String>,
    pub thinking_style: Option<String>,
    pub proxy: Option<Secret>,
    pub extra_headers: Vec<(String, Secret)>,
    pub extra_body: Map<String, Value>,
    pub extra_query: Vec<(String, String)>,
    /// Why the block cannot be used, such as a variable that is not set. Of no matter until the provider is chosen.
    pub unusable: Option<String>,
}

/// What the config says of all tools; places and rules as written.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// The tools that read and change files are offered.
    pub files: bool,
    /// `always`, `ask` or `never`, by tool.
    pub permissions: Vec<(String, String)>,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub read: Vec<String>,
    pub write: Vec<String>,
    /// Hosts.
    pub net: Vec<String>,
    /// Nothing runs without a sandbox.
    pub needs_sandbox: bool,
    /// Expressions about commands.
    pub allow_patterns: Vec<String>,
    pub deny_patterns: Vec<String>,
}

/// The settings of the tool that runs commands.
#[derive(Clone, Debug)]
pub struct Exec {
    pub enabled: bool,
    /// 60 s: what takes longer should be said so.
    pub timeout: Duration,
    /// Directories joined by colons, or empty.
    pub path_append: String,
    /// Directories joined by colons, or empty.
    pub path_prepend: String,
    /// Variables that commands see besides the usual ones.
    pub allowed_env_keys: Vec<String>,
}

/// The settings of the web tools.
#[derive(Clone, Debug)]
pub struct Web {
    pub enabled: bool,
    pub proxy: Option<Secret>,
    pub user_agent: Option<String>,
    /// Who searches, as written; `None` where nobody says.
    pub engine: Option<String>,
    pub key: Option<Secret>,
    pub base: Option<String>,
    /// Results of a search: 5 say whether there is anything.
    pub results: usize,
    /// 30 s for a search.
    pub timeout: Duration,
    /// Addresses that may be reached though they are not public.
    pub spared: Vec<Range>,
    /// Those that the config names anywhere.
    pub hosts: BTreeSet<String>,
}

/// How long to wait for a provider. A zero waits without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// 10 s: a host that is there answers at once.
    pub connect: Duration,
    /// 300 s: a model that thinks may be silent for minutes.
    pub first_byte: Duration,
    /// 90 s: once it has begun, a stream that falls silent is dead.
    pub stream_idle: Duration,
    /// 1800 s for one answer, all in all.
    pub total: Duration,
}

/// What the command line says; it is stronger than anything else.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub model: Option<String>,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub reasoning_effort: Option<String>,
    pub max_iterations: Option<u32>,
    pub workspace: Option<PathBuf>,
}

impl Settings {
    /// Resolve everything a run needs. Fails with 78, or with 2 where a flag is wrong.
    pub fn resolve(config: &Config, env: &Env, flags: &Overrides, paths: &Paths) -> Result<Self> {
        let Overrides {
            max_iterations,
            workspace,
            ..
        } = flags;
        // Whoever works with a config works with its keys, and from here on none of them is shown.
        secrets::all(config, env).iter().for_each(secret::remember);
        let layers = Layers::new(config, env);
        let values = Values(&layers);
        let defaults = |name: &str| format!("agents.defaults.{name}");
        Ok(Self {
            asked: values.asked(flags)?,
            budget: values.budget()?,
            providers: values.providers(),
            workspace: match workspace {
                Some(directory) => absolute(directory)?,
                None => {
                    let path = values.text(&defaults("workspace"))?;
                    absolute(&paths.expand(&path))?
                }
            },
            directory: match values.text(&defaults("directory"))?.as_str() {
                "workspace" => Directory::Workspace,
                _ => Directory::Cwd,
            },
            max_tool_iterations: values.whole(
                &defaults("maxToolIterations"),
                max_iterations.map(|count| ("--max-iterations", json!(count))),
            )?,
            max_subagents: values
                .get(&defaults("maxConcurrentSubagents"), None)?
                .as_u64()
                .map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
            memory_window: values.count(&defaults("memoryWindow"))?,
            context_window: values.whole(&defaults("contextWindowTokens"), None)?,
            compaction: Compaction {
                threshold: values.get("compaction.threshold", None)?.as_u64(),
                warns: values.truth("compaction.warning")?,
            },
            skills: Skills {
                disabled: values.texts(&defaults("disabledSkills"))?,
                budget: values.whole(&defaults("skillsBudgetTokens"), None)?.into(),
            },
            profile: match values.text(&defaults("profile"))? {
                name if name.trim().is_empty() => "default".into(),
                name => name,
            },
            tools: values.tools()?,
            exec: values.exec()?,
            web: values.web(config, env)?,
            servers: values.servers(),
            restrict_to_workspace: values.truth("tools.restrictToWorkspace")?,
            max_tool_result_chars: values.count(&defaults("maxToolResultChars"))?,
            session_sync: match values.text("session.sync")?.as_str() {
                "none" => SessionSync::None,
                _ => SessionSync::Turn,
            },
            memory: values.memory()?,
            timeouts: Timeouts::from_env(env)?,
        })
    }

    /// What is configured about the provider `name`, in any spelling. Fails with 78 where that cannot be used.
    pub fn block(&self, name: &str) -> Result<Option<&Block>> {
        match self.providers.get(&snake_case(name)) {
            Some(Block {
                unusable: Some(cause),
                ..
            }) => Err(fail(Exit::Config, cause.clone())),
            block => Ok(block),
        }
    }
}

impl Timeouts {
    /// The limits, two of which can be set by variable.
    pub fn from_env(env: &Env) -> Result<Self> {
        Ok(Self {
            connect: Duration::from_secs(10),
            first_byte: env.seconds(FIRST_BYTE, 300, 86_400)?,
            stream_idle: env.seconds(STREAM_IDLE, 90, 3600)?,
            total: Duration::from_secs(1800),
        })
    }
}

/// The layers, read by type. A key without a value has its default.
struct Values<'a>(&'a Layers<'a>);

impl Values<'_> {
    fn get(&self, path: &str, flag: Option<(&'static str, Value)>) -> Result<Value> {
        let names: Vec<&str> = path.split('.').collect();
        if let Some((flag, value)) = flag {
            let key = key_at(&names);
            return key.kind.accept(&value).ok_or_else(|| {
                let cause = format!(
                    "`{flag}` is {}, expected {}",
                    key.kind.found(&value),
                    key.kind.expected()
                );
                fail(Exit::Usage, cause)
            });
        }
        self.get_at(&names)
    }

    fn get_at(&self, names: &[&str]) -> Result<Value> {
        Ok(match self.0.read(names)? {
            Some(value) => value,
            None => key_at(names).default_value(),
        })
    }

    fn text(&self, path: &str) -> Result<String> {
        Ok(self
            .get(path, None)?
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Text that is absent when it is blank, as blank forms leave it.
    fn name(&self, path: &str, flag: Option<(&'static str, Value)>) -> Result<Option<String>> {
        Ok(self.get(path, flag)?.as_str().and_then(not_blank))
    }

    fn whole(&self, path: &str, flag: Option<(&'static str, Value)>) -> Result<u32> {
        let number = self.get(path, flag)?.as_u64();
        Ok(number
            .and_then(|number| u32::try_from(number).ok())
            .expect("the table says that it is a number of at most ten million"))
    }

    fn count(&self, path: &str) -> Result<usize> {
        Ok(self.whole(path, None)? as usize)
    }

    fn truth(&self, path: &str) -> Result<bool> {
        Ok(self.get(path, None)? == Value::Bool(true))
    }

    fn texts(&self, path: &str) -> Result<Vec<String>> {
        let list = self.get(path, None)?;
        let items = list.as_array().into_iter().flatten();
        Ok(items.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// The models to ask. A preset stands in the place of the defaults, and a flag is stronger than both.
    fn asked(&self, flags: &Overrides) -> Result<Vec<Asked>> {
        let Overrides {
            model,
            max_tokens,
            temperature,
            reasoning_effort,
            max_iterations: _,
            workspace: _,
        } = flags;
        let path = |name: &str| format!("agents.defaults.{name}");
        let defaults = Asked {
            model: self.name(&path("model"), None)?,
            provider: self
                .name(&path("provider"), None)?
                .map_or_else(|| "auto".into(), |name| snake_case(&name)),
            max_tokens: self.whole(
                &path("maxTokens"),
                max_tokens.map(|tokens| ("--max-tokens", json!(tokens))),
            )?,
            temperature: self
                .get(
                    &path("temperature"),
                    temperature.map(|degree| ("--temperature", json!(degree))),
                )?
                .as_f64()
                .expect("the table says that it is a number"),
            reasoning_effort: self.name(&path("reasoningEffort"), None)?,
            known: models::Known::default(),
        };
        let parts = models::Parts {
            presets: self.get("modelPresets", None)?,
            preset: self.name(&path("modelPreset"), None)?,
            fallbacks: self.get(&path("fallbackModels"), None)?,
            models: self.get("models", None)?,
        };
        let (model, reasoning_effort) = (said(model), said(reasoning_effort));
        let flags = models::Flags {
            model: model.as_deref(),
            max_tokens: *max_tokens,
            temperature: *temperature,
            reasoning_effort: reasoning_effort.as_deref(),
        };
        models::chain(&parts, &flags, &defaults)
    }

    fn budget(&self) -> Result<Budget> {
        let dollars = |name: &str| Ok::<_, anyhow::Error>(self.get(name, None)?.as_f64());
        Ok(Budget {
            daily: dollars("budget.daily")?,
            monthly: dollars("budget.monthly")?,
            per_session: dollars("budget.perSession")?,
        })
    }

    fn memory(&self) -> Result<Memory> {
        Ok(Memory {
            consolidate: match self.text("memory.consolidate")?.as_str() {
                "detached" => Consolidate::Detached,
                "inline" => Consolidate::Inline,
                "manual" => Consolidate::Manual,
                _ => Consolidate::Auto,
            },
            model: self.name("memory.model", None)?,
            budget: self.count("memory.budgetTokens")?,
        })
    }

    fn tools(&self) -> Result<Tools> {
        let joined = |one: &str, other: &str| {
            Ok::<_, anyhow::Error>([self.texts(one)?, self.texts(other)?].concat())
        };
        let permissions = self.get("tools.permissions", None)?;
        let permissions = permissions.as_object().into_iter().flatten();
        Ok(Tools {
            files: self.truth("tools.file.enable")?,
            permissions: permissions
                .filter_map(|(tool, word)| Some((tool.clone(), word.as_str()?.to_owned())))
                .collect(),
            allow: self.texts("tools.allow")?,
            deny: self.texts("tools.deny")?,
            read: joined("tools.read", "tools.exec.sandboxRoBinds")?,
            write: joined("tools.write", "tools.exec.sandboxRwBinds")?,
            net: self.texts("tools.net")?,
            needs_sandbox: self.text("tools.sandbox")? == "strict"
                || !self.text("tools.exec.sandbox")?.trim().is_empty(),
            allow_patterns: self.texts("tools.exec.allowPatterns")?,
            deny_patterns: self.texts("tools.exec.denyPatterns")?,
        })
    }

    fn exec(&self) -> Result<Exec> {
        Ok(Exec {
            enabled: self.truth("tools.exec.enable")?,
            timeout: Duration::from_secs(self.whole("tools.exec.timeout", None)?.into()),
            path_append: self.text("tools.exec.pathAppend")?,
            path_prepend: self.text("tools.exec.pathPrepend")?,
            allowed_env_keys: self.texts("tools.exec.allowedEnvKeys")?,
        })
    }

    fn web(&self, config: &Config, env: &Env) -> Result<Web> {
        let name = |key: &str| self.name(&format!("tools.web.{key}"), None);
        let key = match name("search.apiKey")? {
            Some(key) => Some(key),
            None => env.get(BRAVE_API_KEY).map(str::to_owned),
        };
        let range = |text: String| {
            text.parse().map_err(|()| {
                let cause =
                    format!("`tools.ssrfWhitelist` has `{text}`, which is no range of addresses");
                fail_hint(Exit::Config, cause, "as `10.0.0.0/8`, or one address")
            })
        };
        let spared = self.texts("tools.ssrfWhitelist")?;
        let written = self.0.read(&["tools", "web", "search", "provider"])?;
        Ok(Web {
            enabled: self.truth("tools.web.enable")?,
            proxy: name("proxy")?.map(Secret::new),
            user_agent: name("userAgent")?,
            engine: written.as_ref().and_then(Value::as_str).and_then(not_blank),
            key: key.map(Secret::new),
            base: name("search.baseUrl")?,
            results: self.count("tools.web.search.maxResults")?.min(10),
            timeout: Duration::from_secs(self.whole("tools.web.search.timeout", None)?.into()),
            spared: spared.into_iter().map(range).collect::<Result<_>>()?,
            hosts: hosts::named(config),
        })
    }

    fn providers(&self) -> BTreeMap<String, Block> {
        let names = self.0.names(&["providers"]);
        names
            .into_iter()
            .map(|name| {
                let block = self.block(&name).unwrap_or_else(|error| Block {
                    unusable: Some(format!("{error:#}")),
                    ..Block::default()
                });
                (snake_case(&name), block)
            })
            .collect()
    }

    fn block(&self, name: &str) -> Result<Block> {
        let text = |key: &str| -> Result<Option<String>> {
            let value = self.0.read(&["providers", name, key])?;
            Ok(value.as_ref().and_then(Value::as_str).and_then(not_blank))
        };
        let map = |key: &str| -> Result<Map<String, Value>> {
            match self.0.read(&["providers", name, key])? {
                Some(Value::Object(members)) => Ok(members),
                _ => Ok(Map::new()),
            }
        };
        let plain = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Ok(Block {
            api_key: text("apiKey")?.map(Secret::new),
            api_key_file: text("apiKeyFile")?,
            api_key_command: text("apiKeyCommand")?,
            api_base: text("apiBase")?,
            api_type: text("apiType")?,
            thinking_style: text("thinkingStyle")?,
            proxy: text("proxy")?.map(Secret::new),
            extra_headers: map("extraHeaders")?
                .into_iter()
                .filter_map(|(name, value)| Some((name, Secret::new(value.as_str()?))))
                .collect(),
            extra_body: map("extraBody")?,
            extra_query: map("extraQuery")?
                .into_iter()
                .map(|(name, value)| (name, plain(&value)))
                .collect(),
            unusable: None,
        })
    }
}

/// The row of the table for a key that a run asks for.
fn key_at(names: &[&str]) -> &'static keys::Key {
    Branch::at(names)
        .and_then(Branch::key)
        .expect("only keys of the table are asked for")
}

/// What a flag says, if it says anything.
fn said(flag: &Option<String>) -> Option<String> {
    flag.as_deref().and_then(not_blank)
}

fn not_blank(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        let cause = format!("workspace `{}`: {error}", path.display());
        fail(Exit::Config, cause)
    })
}

#[cfg(test)]
mod tests {
    use super::{Config, Directory, Overrides, SessionSync, Settings};
    use crate::error::{Exit, exit_of};
    use crate::sys::env::Env;
    use crate::sys::paths::Paths;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    fn resolve(
        text: &str,
        variables: &[(&str, &str)],
        flags: &Overrides,
    ) -> anyhow::Result<Settings> {
        let env: Env = [("HOME", "/home/u")]
            .iter()
            .chain(variables)
            .copied()
            .collect();
        let paths = Paths::resolve(&env, None)?;
        let config = Config::parse(Path::new("c.json"), text)?;
        Settings::resolve(&config, &env, flags, &paths)
    }

    #[test]
    fn an_empty_config_is_all_defaults() {
        let settings = resolve("", &[], &Overrides::default()).unwrap();
        assert_eq!(settings.asked[0].model, None);
        assert_eq!(settings.asked[0].provider, "auto");
        assert_eq!(
            settings.workspace,
            PathBuf::from("/home/u/.nanobot/workspace")
        );
        assert_eq!(settings.directory, Directory::Cwd);
        assert_eq!(settings.asked[0].max_tokens, 8192);
        assert_eq!(settings.asked[0].temperature, 0.1);
        assert_eq!(settings.max_tool_iterations, 40);
        assert_eq!(settings.memory_window, 100);
        assert_eq!(settings.exec.timeout, Duration::from_secs(60));
        assert!(settings.exec.enabled);
        assert_eq!(settings.max_tool_result_chars, 16_000);
        assert_eq!(settings.session_sync, SessionSync::Turn);
        assert_eq!(settings.timeouts.first_byte, Duration::from_secs(300));
    }

    #[test]
    fn flag_beats_variable_beats_file() {
        let file = r#"{"agents": {"defaults": {"model": "file", "workspace": "~/w"}}}"#;
        let variable = [("NANOBOT_AGENTS__DEFAULTS__MODEL", "variable")];
        let flags = Overrides {
            model: Some("flag".into()),
            workspace: Some("/x".into()),
            ..Overrides::default()
        };
        let model = |settings: Settings| settings.asked[0].model.clone().unwrap();
        assert_eq!(
            model(resolve(file, &[], &Overrides::default()).unwrap()),
            "file"
        );
        assert_eq!(
            model(resolve(file, &variable, &Overrides::default()).unwrap()),
            "variable"
        );
        let settings = resolve(file, &variable, &flags).unwrap();
        assert_eq!(settings.workspace, PathBuf::from("/x"));
        assert_eq!(model(settings), "flag");
    }

    #[test]
    fn the_file_that_the_python_program_writes_is_understood() {
        let settings = resolve(
            r#"{"agents": {"defaults": {"workspace": "~/.nanobot/workspace", "reasoningEffort": null}},
                "providers": {"custom": {"apiKey": "", "apiBase": null, "extraHeaders": null},
                              "openaiCodex": {"apiKey": "k", "extraHeaders": {"X": "y"}}},
                "channels": {"telegram": 5}}"#,
            &[],
            &Overrides::default(),
        )
        .unwrap();
        assert!(settings.block("custom").unwrap().unwrap().api_key.is_none());
        let codex = settings.block("openai_codex").unwrap().unwrap();
        assert_eq!(codex.api_key.as_ref().unwrap().expose(), "k");
        assert_eq!(codex.extra_headers[0].1.expose(), "y");
        assert!(settings.block("openai").unwrap().is_none());
    }

    #[test]
    fn a_missing_variable_stops_only_who_needs_it() {
        let text =
            r#"{"providers": {"openai": {"apiKey": "${NO}"}, "custom": {"apiKey": "${YES}"}}}"#;
        let settings = resolve(text, &[("YES", "k")], &Overrides::default()).unwrap();
        let custom = settings.block("custom").unwrap().unwrap();
        assert_eq!(custom.api_key.as_ref().unwrap().expose(), "k");
        let error = settings.block("openai").unwrap_err();
        assert_eq!(exit_of(&error), Exit::Config);
        assert_eq!(
            error.to_string(),
            "c.json:1:37: `providers.openai.apiKey` refers to the variable `NO`, which is not set"
        );
    }

    #[test]
    fn wrong_values_are_refused() {
        let check = |text: &str, variable: (&str, &str), flags: Overrides, exit: Exit| {
            let error = resolve(text, &[variable], &flags).unwrap_err();
            assert_eq!(exit_of(&error), exit, "{error}");
        };
        let none = ("A", "b");
        let file = r#"{"agents": {"defaults": {"maxTokens": "many"}}}"#;
        check(file, none, Overrides::default(), Exit::Config);
        let slow = ("NANOBOT_STREAM_IDLE_TIMEOUT_S", "4000");
        check("", slow, Overrides::default(), Exit::Config);
        let flags = Overrides {
            temperature: Some(3.0),
            ..Overrides::default()
        };
        check("", none, flags, Exit::Usage);
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let settings = resolve("", &[("NANOBOT_LLM_TIMEOUT_S", "0")], &Overrides::default());
        assert_eq!(settings.unwrap().timeouts.first_byte, Duration::ZERO);
    }
}
