//! Determines which models to use: the configured one or a preset, then the fallbacks; and applies the config's
//! metadata about models, which takes precedence over the built-in data. Presets have the form of nanobot's newer
//! releases, or are a plain model name.

use super::key_spelling::{format_path, snake_case};
use super::system_file::Locks;
use super::typed_reader::not_blank;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A model with its request parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSettings {
    /// The model's name; `None` selects the provider's default.
    pub model: Option<String>,
    /// The provider's name in snake_case, or `auto`.
    pub provider: String,
    /// Maximum tokens of one answer. The default holds any file that an agent should write at once.
    pub max_tokens: u32,
    pub temperature: f64,
    pub reasoning_effort: Option<String>,
    pub verbosity: Option<String>,
    /// Additional fields of the request body. They take precedence over the provider's fields.
    pub extra_body: Map<String, Value>,
    pub overrides: ModelOverrides,
    /// A name of the conversation, if the provider is to keep its prompts for an hour.
    pub hour_cache_key: Option<String>,
}

impl ModelSettings {
    /// Tool use works best with the most likely tokens.
    pub const DEFAULT_TEMPERATURE: f64 = 0.1;
}

/// The config's metadata about a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelOverrides {
    pub context_window: Option<u32>,
    pub max_output_tokens: Option<u32>,
    pub images: Option<bool>,
    pub pdf: Option<bool>,
    pub audio: Option<bool>,
    pub price: Option<PriceSettings>,
}

/// Prices in US dollars per million tokens. Cache prices that are not given equal the input price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriceSettings {
    pub input: f64,
    pub output: f64,
    pub cached_input: Option<f64>,
    pub cache_write: Option<f64>,
}

/// The parts of the config that models are read from.
pub(super) struct ModelSources {
    /// `modelPresets`.
    pub(super) presets: Value,
    /// `agents.defaults.modelPreset`.
    pub(super) preset: Option<String>,
    /// `agents.defaults.fallbackModels`.
    pub(super) fallbacks: Value,
    /// `models`.
    pub(super) models: Value,
    pub(super) locks: Locks,
}

/// Fields of a request's body, and the keys of the config that set them.
const FIELDS_OF_KEYS: &[(&str, &str)] = &[
    ("model", "agents.defaults.model"),
    ("models", "agents.defaults.model"),
    ("max_tokens", "agents.defaults.maxTokens"),
    ("max_completion_tokens", "agents.defaults.maxTokens"),
    ("max_output_tokens", "agents.defaults.maxTokens"),
    ("temperature", "agents.defaults.temperature"),
    ("reasoning_effort", "agents.defaults.reasoningEffort"),
    ("reasoning", "agents.defaults.reasoningEffort"),
    ("thinking", "agents.defaults.reasoningEffort"),
    ("enable_thinking", "agents.defaults.reasoningEffort"),
    ("output_config", "agents.defaults.reasoningEffort"),
];

/// Refuses fields of `body`, the value of the key `key`, that take the place of a locked key.
///
/// # Errors
/// Status 77 for the first one, unless `key` is locked itself.
pub(super) fn check_body(locks: &Locks, key: &str, body: &Map<String, Value>) -> Result<()> {
    if body.is_empty() || locks.check_flag(key, "").is_err() {
        return Ok(());
    }
    let mut fields = FIELDS_OF_KEYS.iter().filter(|(field, _)| body.contains_key(*field));
    fields.try_for_each(|(field, locked)| locks.check_flag(locked, &format!("{key}.{field}")))
}

/// The values given on the command line.
pub(super) struct ModelFlagValues<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) fallbacks: Option<&'a [String]>,
    pub(super) max_tokens: Option<u32>,
    pub(super) temperature: Option<f64>,
    pub(super) reasoning_effort: Option<&'a str>,
    pub(super) verbosity: Option<&'a str>,
    pub(super) body_fields: &'a Map<String, Value>,
}

/// A preset of the config.
struct ModelPreset {
    model_settings: ModelSettings,
    /// The fallbacks that it names, if any.
    fallbacks: Option<Vec<Value>>,
}

/// Returns the primary model and its fallbacks, without duplicates.
///
/// A model inherits the settings that it lacks, including the provider, from `default_settings`, the settings of the configured model. So
/// text of the user reaches only a provider that the user named.
///
/// # Errors
/// Status 78 for a preset that does not exist or is invalid.
pub(super) fn model_chain(
    sources: &ModelSources,
    flags: &ModelFlagValues<'_>,
    default_settings: &ModelSettings,
) -> Result<Vec<ModelSettings>> {
    let presets = sources.presets.as_object().cloned().unwrap_or_default();
    let preset_name = sources.preset.as_deref().filter(|preset| *preset != "default");
    let primary = match (flags.model, preset_name) {
        (Some(name), _) => find_model(&presets, name, default_settings)?,
        (None, Some(name)) if presets.contains_key(name) => {
            find_model(&presets, name, default_settings)?
        }
        (None, Some(name)) => return Err(unknown_preset(&presets, name)),
        (None, None) => ModelPreset { model_settings: default_settings.clone(), fallbacks: None },
    };
    let flag_fallbacks = flags.fallbacks.map(|names| {
        let names = names.iter().filter(|name| !name.is_empty());
        names.map(|name| Value::from(name.as_str())).collect()
    });
    let fallbacks = flag_fallbacks.or(primary.fallbacks);
    let fallbacks = fallbacks.or_else(|| sources.fallbacks.as_array().cloned()).unwrap_or_default();
    let mut chain = vec![primary.model_settings];
    for (index, fallback) in fallbacks.iter().enumerate() {
        let fallback = match fallback {
            Value::String(name) => find_model(&presets, name, default_settings)?,
            value => {
                let path = format!("agents.defaults.fallbackModels.{index}");
                parse_preset(&path, value, default_settings)?
            }
        };
        let model_settings = fallback.model_settings;
        let is_same = |other: &ModelSettings| {
            other.model == model_settings.model && other.provider == model_settings.provider
        };
        if !chain.iter().any(is_same) {
            chain.push(model_settings);
        }
    }
    let overrides_by_model = parse_overrides(&sources.models)?;
    for model_settings in &mut chain {
        model_settings.max_tokens = flags.max_tokens.unwrap_or(model_settings.max_tokens);
        model_settings.temperature = flags.temperature.unwrap_or(model_settings.temperature);
        if let Some(effort) = flags.reasoning_effort {
            model_settings.reasoning_effort = Some(effort.to_owned());
        }
        model_settings.verbosity = flags.verbosity.map(str::to_owned);
        let is_locked = |key| sources.locks.check_flag(key, "").is_err();
        if is_locked("agents.defaults.provider") {
            model_settings.provider.clone_from(&default_settings.provider);
        }
        if is_locked("agents.defaults.maxTokens") {
            model_settings.max_tokens = default_settings.max_tokens;
        }
        if is_locked("agents.defaults.temperature") {
            model_settings.temperature = default_settings.temperature;
        }
        if is_locked("agents.defaults.reasoningEffort") {
            model_settings.reasoning_effort.clone_from(&default_settings.reasoning_effort);
        }
        check_body(&sources.locks, "modelPresets", &model_settings.extra_body)?;
        model_settings.extra_body.extend(flags.body_fields.clone());
        let model = model_settings.model.as_deref().unwrap_or_default();
        if let Some(overrides) = find_overrides(&overrides_by_model, model) {
            model_settings.overrides = model_settings.overrides.or(*overrides);
        }
    }
    Ok(chain)
}

/// The preset called `name`, or else the model of this name.
fn find_model(
    presets: &Map<String, Value>,
    name: &str,
    default_settings: &ModelSettings,
) -> Result<ModelPreset> {
    let model = match presets.get(name) {
        None => name,
        Some(Value::String(model)) => model,
        Some(preset) => {
            return parse_preset(&format_path(&["modelPresets", name]), preset, default_settings);
        }
    };
    let model_settings =
        ModelSettings { model: Some(model.to_owned()), ..default_settings.clone() };
    Ok(ModelPreset { model_settings, fallbacks: None })
}

fn unknown_preset(presets: &Map<String, Value>, name: &str) -> anyhow::Error {
    let names: Vec<&str> = presets.keys().map(String::as_str).collect();
    let cause = format!("`agents.defaults.modelPreset` is `{name}`, but there is no such preset");
    if names.is_empty() {
        fail(Exit::Config, cause)
    } else {
        fail(Exit::Config, cause).with_hint(format!("one of {}", names.join(", ")))
    }
}

fn parse_preset(
    path: &str,
    value: &Value,
    default_settings: &ModelSettings,
) -> Result<ModelPreset> {
    let Value::Object(members) = value else {
        let cause = format!("`{path}` is neither a model name nor an object");
        return Err(fail(Exit::Config, cause));
    };
    let fields = ObjectFields { path, members };
    let Some(model) = fields.text("model")? else {
        return Err(fail(Exit::Config, format!("`{path}` has no `model`")));
    };
    let model_settings = ModelSettings {
        provider: fields
            .text("provider")?
            .map(|name| snake_case(&name))
            .filter(|name| name != "auto")
            .unwrap_or_else(|| default_settings.provider.clone()),
        max_tokens: fields.count("maxTokens")?.unwrap_or(default_settings.max_tokens),
        temperature: fields.number("temperature")?.unwrap_or(default_settings.temperature),
        reasoning_effort: fields
            .text("reasoningEffort")?
            .or_else(|| default_settings.reasoning_effort.clone()),
        verbosity: None,
        extra_body: fields.object("extraBody")?,
        overrides: fields.model_overrides()?,
        model: Some(model),
        hour_cache_key: None,
    };
    let fallbacks = match fields.list("fallbacks")? {
        Some(fallbacks) => Some(fallbacks),
        None => fields.list("fallbackModels")?,
    };
    Ok(ModelPreset { model_settings, fallbacks })
}

/// The metadata about `model`, whose name may begin with that of its vendor.
pub(super) fn find_overrides<'o>(
    overrides_by_model: &'o BTreeMap<String, ModelOverrides>,
    model: &str,
) -> Option<&'o ModelOverrides> {
    let bare_name = model.rsplit('/').next().unwrap_or(model);
    overrides_by_model.get(model).or_else(|| overrides_by_model.get(bare_name))
}

/// Parses `models` into metadata by model name.
pub(super) fn parse_overrides(models: &Value) -> Result<BTreeMap<String, ModelOverrides>> {
    let mut overrides = BTreeMap::new();
    for (name, value) in models.as_object().into_iter().flatten() {
        let path = format_path(&["models", name]);
        let Value::Object(members) = value else {
            return Err(fail(Exit::Config, format!("`{path}` is not an object")));
        };
        let fields = ObjectFields { path: &path, members };
        overrides.insert(name.clone(), fields.model_overrides()?);
    }
    Ok(overrides)
}

impl ModelOverrides {
    /// Fills the gaps of this value from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            context_window: self.context_window.or(other.context_window),
            max_output_tokens: self.max_output_tokens.or(other.max_output_tokens),
            images: self.images.or(other.images),
            pdf: self.pdf.or(other.pdf),
            audio: self.audio.or(other.audio),
            price: self.price.or(other.price),
        }
    }
}

/// The members of an object, looked up by names in camelCase or snake_case.
struct ObjectFields<'a> {
    path: &'a str,
    members: &'a Map<String, Value>,
}

impl ObjectFields<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        let value = self.members.get(name).or_else(|| self.members.get(&snake_case(name)));
        value.filter(|value| !value.is_null())
    }

    fn type_error<T>(&self, name: &str, expected: &str) -> Result<T> {
        Err(fail(Exit::Config, format!("`{}.{name}` is not {expected}", self.path)))
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(not_blank(text)),
            Some(_) => self.type_error(name, "a string"),
        }
    }

    fn object(&self, name: &str) -> Result<Map<String, Value>> {
        match self.get(name) {
            None => Ok(Map::new()),
            Some(Value::Object(members)) => Ok(members.clone()),
            Some(_) => self.type_error(name, "an object"),
        }
    }

    fn list(&self, name: &str) -> Result<Option<Vec<Value>>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items.clone())),
            Some(_) => self.type_error(name, "a list"),
        }
    }

    fn number(&self, name: &str) -> Result<Option<f64>> {
        match self.get(name).map(Value::as_f64) {
            None => Ok(None),
            Some(Some(number)) if number >= 0.0 => Ok(Some(number)),
            Some(_) => self.type_error(name, "a non-negative number"),
        }
    }

    fn count(&self, name: &str) -> Result<Option<u32>> {
        let number = self
            .get(name)
            .map(|value| value.as_u64().and_then(|number| u32::try_from(number).ok()));
        match number {
            None => Ok(None),
            Some(Some(number)) if number > 0 => Ok(Some(number)),
            Some(_) => self.type_error(name, "a positive integer"),
        }
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(*truth)),
            Some(_) => self.type_error(name, "true or false"),
        }
    }

    fn model_overrides(&self) -> Result<ModelOverrides> {
        let price = match self.get("price") {
            None => None,
            Some(Value::Object(members)) => {
                let path = format!("{}.price", self.path);
                let fields = ObjectFields { path: &path, members };
                let (Some(input), Some(output)) =
                    (fields.number("input")?, fields.number("output")?)
                else {
                    let cause = format!(
                        "`{path}` needs `input` and `output`, in US dollars per million tokens"
                    );
                    let hint = "both at once, as in `{\"input\": 1, \"output\": 4}`";
                    return Err(fail(Exit::Config, cause).with_hint(hint));
                };
                Some(PriceSettings {
                    input,
                    output,
                    cached_input: fields.number("cachedInput")?,
                    cache_write: fields.number("cacheWrite")?,
                })
            }
            Some(_) => return self.type_error("price", "an object"),
        };
        Ok(ModelOverrides {
            context_window: self.count("contextWindowTokens")?,
            max_output_tokens: self.count("maxOutputTokens")?,
            images: self.boolean("images")?,
            pdf: self.boolean("pdf")?,
            audio: self.boolean("audio")?,
            price,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Locks, ModelFlagValues, ModelOverrides, ModelSettings, ModelSources, PriceSettings,
        model_chain,
    };
    use serde_json::{Map, Value, json};

    fn model_settings(
        presets: Value,
        preset: Option<&str>,
        fallbacks: Value,
        model: Option<&str>,
    ) -> anyhow::Result<Vec<ModelSettings>> {
        let parts = ModelSources {
            presets,
            preset: preset.map(str::to_owned),
            fallbacks,
            models: json!({ "m": { "price": { "input": 1, "output": 2 } } }),
            locks: Locks::default(),
        };
        let flags = ModelFlagValues {
            model,
            fallbacks: None,
            max_tokens: None,
            temperature: None,
            reasoning_effort: None,
            verbosity: None,
            body_fields: &Map::new(),
        };
        let defaults = ModelSettings {
            model: Some("d".into()),
            provider: "openai".into(),
            max_tokens: 7,
            ..ModelSettings::default()
        };
        model_chain(&parts, &flags, &defaults)
    }

    fn names(chain: &[ModelSettings]) -> Vec<String> {
        chain
            .iter()
            .map(|settings| {
                format!("{} {}", settings.provider, settings.model.as_deref().unwrap_or("-"))
            })
            .collect()
    }

    #[test]
    fn models_and_fallbacks_are_resolved() {
        let presets = json!({ "fast": "m", "deep": { "model": "x/y", "provider": "openRouter", "max_tokens": 9, "fallbacks": ["fast", "z"] } });
        let check = |preset, fallbacks, model, expect: &[&str]| {
            assert_eq!(
                names(&model_settings(presets.clone(), preset, fallbacks, model).unwrap()),
                expect
            );
        };
        check(None, json!([]), None, &["openai d"]);
        check(Some("default"), Value::Null, None, &["openai d"]);
        check(None, json!(["fast", "q", "fast"]), None, &["openai d", "openai m", "openai q"]);
        check(None, json!([{ "model": "a", "provider": "groq" }]), None, &["openai d", "groq a"]);
        check(Some("deep"), json!(["q"]), None, &["open_router x/y", "openai m", "openai z"]);
        check(Some("deep"), json!([]), Some("fast"), &["openai m"]);
        check(Some("deep"), json!([]), Some("other"), &["openai other"]);
        let deep = model_settings(presets.clone(), Some("deep"), json!([]), None).unwrap();
        assert_eq!(deep[0].max_tokens, 9);
        let price =
            PriceSettings { input: 1.0, output: 2.0, cached_input: None, cache_write: None };
        assert_eq!(
            deep[1].overrides,
            ModelOverrides { price: Some(price), ..ModelOverrides::default() }
        );
    }

    #[test]
    fn invalid_presets_are_rejected() {
        let check = |presets: Value, preset, fallbacks: Value| {
            assert!(model_settings(presets, preset, fallbacks, None).is_err());
        };
        check(json!({}), Some("none"), json!([]));
        check(json!({ "a": 5 }), Some("a"), json!([]));
        check(json!({ "a": {} }), Some("a"), json!([]));
        check(json!({ "a": { "model": "m", "maxTokens": 0 } }), Some("a"), json!([]));
        check(json!({ "a": { "model": "m", "price": { "input": 1 } } }), Some("a"), json!([]));
        check(json!({}), None, json!([7]));
    }
}
