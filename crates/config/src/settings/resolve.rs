//! Resolves config file, variables and flags into [`Settings`].

use super::channels::enabled_keys;
use super::hooks::HookSettings;
use super::key_spelling::{format_path, snake_case};
use super::keys::{ConfigKey, config_key};
use super::layers::LayeredConfig;
use super::models::{self, ModelSettings};
use super::retention::Retention;
use super::typed_reader::{TypedReader, not_blank};
use super::{
    CompactionSettings, Config, ConsolidationMode, DefaultDirectory, DefaultSession,
    EmbeddingSettings, ExecSettings, FlagOverrides, ImageGenerationSettings, JobStarter,
    MemorySettings, OtlpTarget, PromptFileSettings, ProviderSettings, ProviderTimeouts,
    SessionSync, Settings, SkillSettings, TelemetrySettings, ToolSettings, WebSettings,
    config_hosts, secrets,
};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::limits::{AccountLimits, BudgetLimits};
use nanobot_net::http::{Network, NetworkDefaults};
use nanobot_os::env::{self, Env};
use nanobot_os::log;
use nanobot_os::paths::Paths;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time to open a connection to a provider.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum of `tools.web.search.maxResults` that is used.
const MAX_SEARCH_RESULTS: usize = 10;

/// The path of traces at a collector (OTLP/HTTP).
const OTLP_TRACES_PATH: &str = "/v1/traces";

impl Settings {
    /// Resolves everything that a run needs.
    ///
    /// # Errors
    /// Status 78 for an invalid config, 2 for an invalid flag.
    pub fn resolve(
        config: &Config,
        env: &Env,
        flags: &FlagOverrides,
        paths: &Paths,
    ) -> Result<Self> {
        let FlagOverrides { max_iterations, workspace, .. } = flags;
        // Every command that resolves a config may handle its secrets, so they are registered for masking first.
        secrets::register_secrets(config, env, paths);
        let layers = LayeredConfig::new(config, env);
        let unknown_keys = layers.check()?;
        let values = TypedReader(&layers);
        Ok(Self {
            unknown_keys,
            config_exposure: config.exposure(),
            models: values.models(flags)?,
            model_overrides: models::parse_overrides(
                &values.get(const { config_key("models") }, None)?,
            )?,
            budget: values.budget()?,
            locks: layers.locks(),
            providers: values.providers(),
            workspace: match workspace {
                Some(directory) => to_absolute(directory)?,
                None => {
                    let path = values.text(const { config_key("agents.defaults.workspace") })?;
                    to_absolute(&paths.expand(&path))?
                }
            },
            directory: values.directory()?,
            session: values.session()?,
            unified_session: values
                .boolean(const { config_key("agents.defaults.unifiedSession") })?,
            timezone: values
                .optional_text(const { config_key("agents.defaults.timezone") }, None)?,
            prompt_files: values.prompt_files()?,
            max_tool_iterations: values.whole_number(
                const { config_key("agents.defaults.maxToolIterations") },
                max_iterations.map(|count| ("--max-iterations", json!(count))),
            )?,
            max_subagents: values
                .get(const { config_key("agents.defaults.maxConcurrentSubagents") }, None)?
                .as_u64()
                .map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
            memory_window: values.count(const { config_key("agents.defaults.memoryWindow") })?,
            context_window: values
                .whole_number(const { config_key("agents.defaults.contextWindowTokens") }, None)?,
            compaction: values.compaction()?,
            skills: values.skills()?,
            profile: values.text(const { config_key("agents.defaults.profile") })?,
            tools: values.tools()?,
            exec: values.exec(paths)?,
            web: values.web(config)?,
            hooks: HookSettings::parse(&values.get(const { config_key("hooks") }, None)?),
            servers: values.servers(),
            restrict_to_workspace: values
                .boolean(const { config_key("tools.restrictToWorkspace") })?,
            max_tool_result_chars: values
                .count(const { config_key("agents.defaults.maxToolResultChars") })?,
            title_model: values.optional_text(const { config_key("session.titleModel") }, None)?,
            session_sync: match values.text(const { config_key("session.sync") })?.as_str() {
                "none" => SessionSync::None,
                _ => SessionSync::Turn,
            },
            job_starter: match values.text(const { config_key("cron.scheduler") })?.as_str() {
                "none" => JobStarter::Other,
                _ => JobStarter::Crontab,
            },
            max_running_jobs: values
                .get(const { config_key("cron.maxRunning") }, None)?
                .as_u64()
                .and_then(|count| u32::try_from(count).ok()),
            job_ping: values.optional_text(const { config_key("cron.ping") }, None)?,
            notify_target: values.optional_text(const { config_key("notify.target") }, None)?,
            retention: Retention::read(&values)?,
            memory: values.memory()?,
            timeouts: values.timeouts(env)?,
            network: values.network(env, paths)?,
            channels: values.enabled_channels()?,
            event_log: values.event_log(env, paths)?,
            telemetry: values.telemetry(paths)?,
        })
    }

    /// The config's metadata about `model`.
    pub fn overrides_of(&self, model: &str) -> models::ModelOverrides {
        models::find_overrides(&self.model_overrides, model).copied().unwrap_or_default()
    }
}

impl TypedReader<'_> {
    /// Returns the models to use. A preset replaces the defaults, and a flag takes precedence over both.
    fn models(&self, flags: &FlagOverrides) -> Result<Vec<ModelSettings>> {
        let FlagOverrides {
            model,
            fallbacks,
            max_tokens,
            temperature,
            reasoning_effort,
            verbosity,
            body_fields,
            max_iterations: _,
            workspace: _,
        } = flags;
        // Flags are checked here as values of these keys, so that an error names the flag. `model_chain` applies them again, over a
        // preset.
        let default_settings = ModelSettings {
            model: self.optional_text(const { config_key("agents.defaults.model") }, None)?,
            provider: self
                .optional_text(const { config_key("agents.defaults.provider") }, None)?
                .map_or_else(|| "auto".into(), |name| snake_case(&name)),
            max_tokens: self.whole_number(
                const { config_key("agents.defaults.maxTokens") },
                max_tokens.map(|tokens| ("--max-tokens", json!(tokens))),
            )?,
            temperature: self
                .get(
                    const { config_key("agents.defaults.temperature") },
                    temperature.map(|temperature| ("--temperature", json!(temperature))),
                )?
                .as_f64()
                .expect("the table says that it is a number"),
            reasoning_effort: self
                .optional_text(const { config_key("agents.defaults.reasoningEffort") }, None)?,
            verbosity: None,
            extra_body: Map::new(),
            overrides: models::ModelOverrides::default(),
            hour_cache_key: None,
        };
        let sources = models::ModelSources {
            presets: self.get(const { config_key("modelPresets") }, None)?,
            preset: self
                .optional_text(const { config_key("agents.defaults.modelPreset") }, None)?,
            fallbacks: self.get(const { config_key("agents.defaults.fallbackModels") }, None)?,
            models: self.get(const { config_key("models") }, None)?,
            locks: self.0.locks(),
        };
        let (model, reasoning_effort) = (non_blank_flag(model), non_blank_flag(reasoning_effort));
        let flags = models::ModelFlagValues {
            model: model.as_deref(),
            fallbacks: fallbacks.as_deref(),
            max_tokens: *max_tokens,
            temperature: *temperature,
            reasoning_effort: reasoning_effort.as_deref(),
            verbosity: verbosity.as_deref(),
            body_fields,
        };
        models::model_chain(&sources, &flags, &default_settings)
    }

    fn timeouts(&self, env: &Env) -> Result<ProviderTimeouts> {
        let seconds = |key: &'static ConfigKey| {
            let seconds = self.get(key, None)?.as_f64();
            let seconds = seconds.expect("the table says that it is a number");
            anyhow::Ok(Duration::from_secs_f64(seconds))
        };
        let first_byte = seconds(const { config_key("http.firstByteTimeout") })?;
        let stream_idle = seconds(const { config_key("http.streamIdleTimeout") })?;
        Ok(ProviderTimeouts {
            connect: CONNECT_TIMEOUT,
            first_byte: env.duration(env::FIRST_BYTE_TIMEOUT, first_byte, 86_400)?,
            stream_idle: env.duration(env::STREAM_IDLE_TIMEOUT, stream_idle, 3600)?,
            total: seconds(const { config_key("http.totalTimeout") })?,
        })
    }

    fn enabled_channels(&self) -> Result<Vec<&'static str>> {
        let mut names = Vec::new();
        // Most configs have no channels, so the search for the key of each channel is skipped.
        if self.0.value()["channels"].is_null() {
            return Ok(names);
        }
        for (name, key) in enabled_keys() {
            if self.boolean(key)? {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn network(&self, env: &Env, paths: &Paths) -> Result<Network> {
        let text = |key: &'static ConfigKey| self.optional_text(key, None);
        let ca_file = text(const { config_key("http.caFile") })?;
        let defaults = NetworkDefaults {
            proxy: self.secret(const { config_key("http.proxy") })?,
            no_proxy: self.text_list(const { config_key("http.noProxy") })?,
            ca_file: ca_file.map(|path| paths.expand(&path)),
        };
        Network::new(env, defaults)
    }

    /// Returns the event log of `NANOBOT_LOG`, or else that of the config.
    fn event_log(&self, env: &Env, paths: &Paths) -> Result<Option<PathBuf>> {
        let configured = self.optional_text(const { config_key("log.events") }, None)?;
        Ok(log::event_file(env).or_else(|| configured.map(|path| paths.expand(&path))))
    }

    fn telemetry(&self, paths: &Paths) -> Result<Option<TelemetrySettings>> {
        let Some(text) = self.optional_text(const { config_key("telemetry.otlp") }, None)? else {
            return Ok(None);
        };
        let target = if text.starts_with("http://") || text.starts_with("https://") {
            // As with the exporters of OpenTelemetry, the path of traces follows the address of the collector.
            let base = text.trim_end_matches('/');
            let base = base.strip_suffix(OTLP_TRACES_PATH).unwrap_or(base);
            OtlpTarget::Url(format!("{base}{OTLP_TRACES_PATH}"))
        } else if text.contains('/') {
            OtlpTarget::File(paths.expand(&text))
        } else {
            return Err(fail(
                Exit::Config,
                format!(
                    "`telemetry.otlp` is `{text}`, expected an address (`http://…`) or a path with `/`"
                ),
            ));
        };
        let has_content = self.boolean(const { config_key("telemetry.content") })?;
        Ok(Some(TelemetrySettings { target, has_content }))
    }

    fn directory(&self) -> Result<DefaultDirectory> {
        let text = self.text(const { config_key("agents.defaults.directory") })?;
        Ok(match text.as_str() {
            "workspace" => DefaultDirectory::Workspace,
            _ => DefaultDirectory::Cwd,
        })
    }

    fn session(&self) -> Result<DefaultSession> {
        let text = self.text(const { config_key("agents.defaults.session") })?;
        Ok(DefaultSession::parse(text))
    }

    fn prompt_files(&self) -> Result<PromptFileSettings> {
        let path = |key: &'static ConfigKey| self.optional_text(key, None);
        Ok(PromptFileSettings {
            system: path(const { config_key("agents.defaults.promptFiles.system") })?,
            compaction: path(const { config_key("agents.defaults.promptFiles.compaction") })?,
            consolidation: path(const { config_key("agents.defaults.promptFiles.consolidation") })?,
        })
    }

    fn compaction(&self) -> Result<CompactionSettings> {
        Ok(CompactionSettings {
            threshold: self.get(const { config_key("compaction.threshold") }, None)?.as_u64(),
            is_warning_enabled: self.boolean(const { config_key("compaction.warning") })?,
        })
    }

    fn skills(&self) -> Result<SkillSettings> {
        let budget = const { config_key("agents.defaults.skillsBudgetTokens") };
        Ok(SkillSettings {
            disabled: self.text_list(const { config_key("agents.defaults.disabledSkills") })?,
            budget_tokens: self.whole_number(budget, None)?.into(),
            directories: self.text_list(const { config_key("skills.directories") })?,
        })
    }

    fn budget(&self) -> Result<BudgetLimits> {
        let dollars = |key: &'static ConfigKey| anyhow::Ok(self.get(key, None)?.as_f64());
        Ok(BudgetLimits {
            daily: dollars(const { config_key("budget.daily") })?,
            monthly: dollars(const { config_key("budget.monthly") })?,
            per_session: dollars(const { config_key("budget.perSession") })?,
        })
    }

    fn memory(&self) -> Result<MemorySettings> {
        Ok(MemorySettings {
            consolidate: match self.text(const { config_key("memory.consolidate") })?.as_str() {
                "detached" => ConsolidationMode::Detached,
                "inline" => ConsolidationMode::Inline,
                "manual" => ConsolidationMode::Manual,
                _ => ConsolidationMode::Auto,
            },
            model: self.optional_text(const { config_key("memory.model") }, None)?,
            budget_tokens: self.count(const { config_key("memory.budgetTokens") })?,
            embeddings: EmbeddingSettings {
                provider: self.text(const { config_key("memory.embeddings.provider") })?,
                model: self.optional_text(const { config_key("memory.embeddings.model") }, None)?,
            },
        })
    }

    fn tools(&self) -> Result<ToolSettings> {
        // The second key is that of other releases.
        let joined = |key: &'static ConfigKey, other_key: &'static ConfigKey| {
            anyhow::Ok([self.text_list(key)?, self.text_list(other_key)?].concat())
        };
        let permissions = self.get(const { config_key("tools.permissions") }, None)?;
        let permissions = permissions.as_object().into_iter().flatten();
        Ok(ToolSettings {
            files: self.boolean(const { config_key("tools.file.enable") })?,
            permissions: permissions
                .filter_map(|(tool, word)| Some((tool.clone(), word.as_str()?.to_owned())))
                .collect(),
            allow: self.text_list(const { config_key("tools.allow") })?,
            deny: self.text_list(const { config_key("tools.deny") })?,
            programs: self.text_list(const { config_key("tools.programs") })?,
            mcp_budget_tokens: self
                .whole_number(const { config_key("tools.mcpBudgetTokens") }, None)?
                .into(),
            read: joined(
                const { config_key("tools.read") },
                const { config_key("tools.exec.sandboxRoBinds") },
            )?,
            write: joined(
                const { config_key("tools.write") },
                const { config_key("tools.exec.sandboxRwBinds") },
            )?,
            net: self.text_list(const { config_key("tools.net") })?,
            needs_sandbox: self.text(const { config_key("tools.sandbox") })? == "strict"
                || !self.text(const { config_key("tools.exec.sandbox") })?.is_empty(),
            allow_patterns: self.text_list(const { config_key("tools.exec.allowPatterns") })?,
            deny_patterns: self.text_list(const { config_key("tools.exec.denyPatterns") })?,
            images: self.image_generation()?,
        })
    }

    fn image_generation(&self) -> Result<Option<ImageGenerationSettings>> {
        if !self.boolean(const { config_key("tools.imageGeneration.enabled") })? {
            return Ok(None);
        }
        let command =
            self.optional_text(const { config_key("tools.imageGeneration.command") }, None)?;
        Ok(Some(ImageGenerationSettings {
            command,
            provider: self.text(const { config_key("tools.imageGeneration.provider") })?,
            model: self.text(const { config_key("tools.imageGeneration.model") })?,
            aspect_ratio: self
                .text(const { config_key("tools.imageGeneration.defaultAspectRatio") })?,
            size: self.text(const { config_key("tools.imageGeneration.defaultImageSize") })?,
            max_images: self.whole_number(
                const { config_key("tools.imageGeneration.maxImagesPerTurn") },
                None,
            )?,
        }))
    }

    fn exec(&self, paths: &Paths) -> Result<ExecSettings> {
        let search_path = |key: &'static ConfigKey| {
            let directories = self.text(key)?;
            let expanded =
                directories.split(':').map(|path| paths.expand(path).display().to_string());
            anyhow::Ok(expanded.collect::<Vec<_>>().join(":"))
        };
        Ok(ExecSettings {
            enabled: self.boolean(const { config_key("tools.exec.enable") })?,
            timeout: Duration::from_secs(
                self.whole_number(const { config_key("tools.exec.timeout") }, None)?.into(),
            ),
            memory_bytes: self
                .get(const { config_key("tools.exec.memory") }, None)?
                .as_u64()
                .map(|mebibytes| mebibytes << 20),
            path_append: search_path(const { config_key("tools.exec.pathAppend") })?,
            path_prepend: search_path(const { config_key("tools.exec.pathPrepend") })?,
            allowed_env_keys: self.text_list(const { config_key("tools.exec.allowedEnvKeys") })?,
        })
    }

    fn web(&self, config: &Config) -> Result<WebSettings> {
        let text = |key: &'static ConfigKey| self.optional_text(key, None);
        let parse_range = |text: String| {
            text.parse().map_err(|()| {
                let cause = format!("`tools.ssrfWhitelist`: `{text}` is not an address range");
                fail(Exit::Config, cause)
                    .with_hint("use a CIDR block such as `10.0.0.0/8`, or a single address")
            })
        };
        let ranges = self.text_list(const { config_key("tools.ssrfWhitelist") })?;
        // The default of this key is treated as not configured.
        let search_engine = self.0.read_key(const { config_key("tools.web.search.provider") })?;
        Ok(WebSettings {
            enabled: self.boolean(const { config_key("tools.web.enable") })?,
            proxy: self.secret(const { config_key("tools.web.proxy") })?,
            user_agent: text(const { config_key("tools.web.userAgent") })?,
            search_engine: search_engine.as_ref().and_then(Value::as_str).and_then(not_blank),
            search_api_key: self.secret(const { config_key("tools.web.search.apiKey") })?,
            search_base_url: text(const { config_key("tools.web.search.baseUrl") })?,
            search_engine_id: text(const { config_key("tools.web.search.engineId") })?,
            is_native_search_always_allowed: text(const { config_key("tools.web.search.native") })?
                .is_some_and(|word| word == "always"),
            search_fallback: self.text_list(const { config_key("tools.web.search.fallback") })?,
            max_results: self
                .count(const { config_key("tools.web.search.maxResults") })?
                .min(MAX_SEARCH_RESULTS),
            search_timeout: Duration::from_secs(
                self.whole_number(const { config_key("tools.web.search.timeout") }, None)?.into(),
            ),
            reader: text(const { config_key("tools.web.fetch.reader") })?,
            allowed_ranges: ranges.into_iter().map(parse_range).collect::<Result<_>>()?,
            config_hosts: config_hosts::collect_hosts(config),
        })
    }

    fn providers(&self) -> BTreeMap<String, ProviderSettings> {
        let mut providers = BTreeMap::new();
        for name in self.0.names(&["providers"]) {
            let provider = self.provider(&name).unwrap_or_else(|error| ProviderSettings {
                unusable_reason: Some(format!("{error:#}")),
                ..ProviderSettings::default()
            });
            providers.insert(snake_case(&name), provider);
        }
        providers
    }

    fn provider(&self, name: &str) -> Result<ProviderSettings> {
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
        let count = |key: &str| -> Result<Option<u64>> {
            Ok(self.0.read(&["providers", name, key])?.as_ref().and_then(Value::as_u64))
        };
        let to_text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let extra_body = map("extraBody")?;
        let body_key = format_path(&["providers", name, "extraBody"]);
        models::check_body(&self.0.locks(), &body_key, &extra_body)?;
        Ok(ProviderSettings {
            api_key: self.secret_at(&["providers", name, "apiKey"])?,
            api_key_file: text("apiKeyFile")?,
            api_key_command: text("apiKeyCommand")?,
            api_base: text("apiBase")?,
            api_type: text("apiType")?,
            thinking_style: text("thinkingStyle")?,
            proxy: self.secret_at(&["providers", name, "proxy"])?,
            extra_headers: self.secrets_at(&["providers", name, "extraHeaders"])?,
            extra_body,
            extra_query: map("extraQuery")?
                .into_iter()
                .map(|(name, value)| (name, to_text(&value)))
                .collect(),
            region: text("region")?,
            profile: text("profile")?,
            limits: AccountLimits {
                max_concurrent: count("maxConcurrent")?.and_then(|count| u32::try_from(count).ok()),
                requests_per_minute: count("requestsPerMinute")?,
                tokens_per_minute: count("tokensPerMinute")?,
            },
            unusable_reason: None,
        })
    }
}

/// Returns the flag's value, if it is given and not blank.
fn non_blank_flag(flag: &Option<String>) -> Option<String> {
    flag.as_deref().and_then(not_blank)
}

fn to_absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        let cause = format!("workspace `{}`: {error}", path.display());
        fail(Exit::Config, cause)
    })
}

#[cfg(test)]
mod tests {
    use super::{Config, DefaultDirectory, DefaultSession, FlagOverrides, SessionSync, Settings};
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    fn resolve(
        text: &str,
        variables: &[(&str, &str)],
        flags: &FlagOverrides,
    ) -> anyhow::Result<Settings> {
        let env: Env = [("HOME", "/home/u")].iter().chain(variables).copied().collect();
        let paths = Paths::resolve(&env, None)?;
        let config = Config::parse(Path::new("c.json"), text)?;
        Settings::resolve(&config, &env, flags, &paths)
    }

    #[test]
    fn an_empty_config_is_all_defaults() {
        let settings = resolve("", &[], &FlagOverrides::default()).unwrap();
        assert_eq!(settings.models[0].model, None);
        assert_eq!(settings.models[0].provider, "auto");
        assert_eq!(settings.workspace, PathBuf::from("/home/u/.nanobot/workspace"));
        assert_eq!(settings.directory, DefaultDirectory::Cwd);
        assert_eq!(settings.models[0].max_tokens, 8192);
        assert_eq!(settings.models[0].temperature, 0.1);
        assert_eq!(settings.max_tool_iterations, 40);
        assert_eq!(settings.memory_window, 100);
        assert_eq!(settings.exec.timeout, Duration::from_secs(60));
        assert!(settings.exec.enabled);
        assert_eq!(settings.max_tool_result_chars, 16_000);
        assert_eq!(settings.session_sync, SessionSync::Turn);
        assert_eq!(settings.timeouts.first_byte, Duration::from_secs(300));
        assert_eq!(settings.timeouts.stream_idle, Duration::from_secs(90));
        assert_eq!(settings.event_log, None);
    }

    #[test]
    fn blank_text_is_the_default() {
        let text = r#"{"agents": {"defaults": {"session": "", "workspace": " ", "profile": " ", "timezone": ""}}}"#;
        let settings = resolve(text, &[], &FlagOverrides::default()).unwrap();
        assert_eq!(settings.session, DefaultSession::Key("cli:direct".into()));
        assert_eq!(settings.workspace, PathBuf::from("/home/u/.nanobot/workspace"));
        assert_eq!(settings.profile, "default");
        assert_eq!(settings.timezone, None);
    }

    #[test]
    fn flags_override_variables_override_the_file() {
        let file = r#"{"agents": {"defaults": {"model": "file", "workspace": "~/w"}}}"#;
        let variable = [("NANOBOT_AGENTS__DEFAULTS__MODEL", "variable")];
        let flags = FlagOverrides {
            model: Some("flag".into()),
            workspace: Some("/x".into()),
            ..FlagOverrides::default()
        };
        let model = |settings: Settings| settings.models[0].model.clone().unwrap();
        assert_eq!(model(resolve(file, &[], &FlagOverrides::default()).unwrap()), "file");
        assert_eq!(model(resolve(file, &variable, &FlagOverrides::default()).unwrap()), "variable");
        let settings = resolve(file, &variable, &flags).unwrap();
        assert_eq!(settings.workspace, PathBuf::from("/x"));
        assert_eq!(model(settings), "flag");
    }

    #[test]
    fn config_files_of_the_python_program_are_accepted() {
        let settings = resolve(
            r#"{"agents": {"defaults": {"workspace": "~/.nanobot/workspace", "reasoningEffort": null}},
                "providers": {"custom": {"apiKey": "", "apiBase": null, "extraHeaders": null},
                              "openaiCodex": {"apiKey": "k", "extraHeaders": {"X": "y"}}},
                "channels": {"telegram": {"enabled": false, "allowFrom": []}, "unheardOf": 5}}"#,
            &[],
            &FlagOverrides::default(),
        )
        .unwrap();
        assert!(settings.provider("custom").unwrap().unwrap().api_key.is_none());
        let codex = settings.provider("openai_codex").unwrap().unwrap();
        assert_eq!(codex.api_key.as_ref().unwrap().identity(), "k");
        assert_eq!(codex.extra_headers[0].1.identity(), "y");
        assert!(settings.provider("openai").unwrap().is_none());
    }

    #[test]
    fn a_missing_variable_fails_only_its_provider() {
        let text =
            r#"{"providers": {"openai": {"apiKey": "${NO}"}, "custom": {"apiKey": "${YES}"}}}"#;
        let settings = resolve(text, &[("YES", "k")], &FlagOverrides::default()).unwrap();
        let custom = settings.provider("custom").unwrap().unwrap();
        assert_eq!(custom.api_key.as_ref().unwrap().identity(), "k");
        let error = settings.provider("openai").unwrap_err();
        assert_eq!(exit_for(&error), Exit::Config);
        assert_eq!(
            error.to_string(),
            "c.json:1:37: `providers.openai.apiKey` refers to `NO`, which is not set"
        );
    }

    #[test]
    fn invalid_values_are_rejected() {
        let check = |text: &str, variable: (&str, &str), flags: FlagOverrides, exit: Exit| {
            let error = resolve(text, &[variable], &flags).unwrap_err();
            assert_eq!(exit_for(&error), exit, "{error}");
        };
        let none = ("A", "b");
        let file = r#"{"agents": {"defaults": {"maxTokens": "many"}}}"#;
        check(file, none, FlagOverrides::default(), Exit::Config);
        let slow = ("NANOBOT_STREAM_IDLE_TIMEOUT_S", "4000");
        check("", slow, FlagOverrides::default(), Exit::Config);
        let flags = FlagOverrides { temperature: Some(3.0), ..FlagOverrides::default() };
        check("", none, flags, Exit::Usage);
    }

    #[test]
    fn a_variable_of_the_process_overrides_its_config_key() {
        let file = r#"{"http": {"firstByteTimeout": 7, "streamIdleTimeout": 0.5}, "log": {"events": "~/e"}}"#;
        let check = |variables: &[(&str, &str)], secs: u64, log: &str| {
            let settings = resolve(file, variables, &FlagOverrides::default()).unwrap();
            assert_eq!(settings.timeouts.first_byte, Duration::from_secs(secs));
            assert_eq!(settings.timeouts.stream_idle, Duration::from_millis(500));
            assert_eq!(settings.event_log, Some(PathBuf::from(log)));
        };
        check(&[], 7, "/home/u/e");
        check(&[("NANOBOT_LLM_TIMEOUT_S", "3")], 3, "/home/u/e");
        check(&[("NANOBOT_HTTP__FIRST_BYTE_TIMEOUT", "4")], 4, "/home/u/e");
        check(&[("NANOBOT_LOG", "debug")], 7, "/home/u/e");
        check(&[("NANOBOT_LOG", "/var/e")], 7, "/var/e");
    }

    #[test]
    fn a_timeout_of_zero_is_unlimited() {
        let settings = resolve("", &[("NANOBOT_LLM_TIMEOUT_S", "0")], &FlagOverrides::default());
        assert_eq!(settings.unwrap().timeouts.first_byte, Duration::ZERO);
    }
}
