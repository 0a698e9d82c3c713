//! Determines which models to use: the configured one or a preset, then the fallbacks; and applies the config's
//! metadata about models, which takes precedence over the built-in data. Presets have the form of nanobot's newer
//! releases, or are a plain model name.

use super::keys::snake_case;
use super::values::not_blank;
use crate::error::{Exit, fail, fail_hint};
use anyhow::Result;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A model with its request parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The model's name; `None` selects the provider's default.
    pub model: Option<String>,
    /// The provider's name in snake_case, or `auto`.
    pub provider: String,
    /// Maximum tokens of one answer: 8192 hold any file that an agent should write at once.
    pub max_tokens: u32,
    /// Default 0.1: tool use works best with the most likely tokens.
    pub temperature: f64,
    pub reasoning_effort: Option<String>,
    pub known: Known,
}

/// The config's metadata about a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    pub context: Option<u32>,
    pub output: Option<u32>,
    pub images: Option<bool>,
    pub pdf: Option<bool>,
    pub price: Option<Price>,
}

/// Prices in US dollars per million tokens. Cache prices that are not given equal the input price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    pub cached: Option<f64>,
    pub cache_write: Option<f64>,
}

/// The parts of the config that models are read from.
pub(super) struct Parts {
    /// `modelPresets`.
    pub(super) presets: Value,
    /// `agents.defaults.modelPreset`.
    pub(super) preset: Option<String>,
    /// `agents.defaults.fallbackModels`.
    pub(super) fallbacks: Value,
    /// `models`.
    pub(super) models: Value,
}

/// The values given on the command line.
pub(super) struct Flags<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) max_tokens: Option<u32>,
    pub(super) temperature: Option<f64>,
    pub(super) reasoning_effort: Option<&'a str>,
}

/// Returns the primary model and its fallbacks, without duplicates.
///
/// # Errors
/// Status 78 for a preset that does not exist or is invalid.
pub(super) fn chain(parts: &Parts, flags: &Flags<'_>, defaults: &Asked) -> Result<Vec<Asked>> {
    let presets = parts.presets.as_object().cloned().unwrap_or_default();
    // A model inherits parameters that it does not set from the configured one, but its provider follows from its
    // name.
    let named = |name: &str, text: &str| -> Result<(Asked, Option<Value>)> {
        match presets.get(text) {
            Some(Value::String(model)) => Ok((of_model(model, defaults), None)),
            Some(preset) => of_preset(&format!("modelPresets.{text}"), preset, defaults),
            None if name.is_empty() => Ok((of_model(text, defaults), None)),
            None => {
                let known: Vec<&str> = presets.keys().map(String::as_str).collect();
                let cause = format!("`{name}` is `{text}`, but there is no such preset");
                Err(match known.is_empty() {
                    true => fail(Exit::Config, cause),
                    false => fail_hint(Exit::Config, cause, format!("one of {}", known.join(", "))),
                })
            }
        }
    };
    let preset = parts
        .preset
        .as_deref()
        .filter(|preset| *preset != "default");
    let (first, own) = match (flags.model, preset) {
        (Some(model), _) if presets.contains_key(model) => named("", model)?,
        (Some(model), _) => (
            Asked {
                model: Some(model.to_owned()),
                ..defaults.clone()
            },
            None,
        ),
        (None, Some(preset)) => named("agents.defaults.modelPreset", preset)?,
        (None, None) => (defaults.clone(), None),
    };
    let fallbacks = own.unwrap_or_else(|| parts.fallbacks.clone());
    let mut chain = vec![first];
    for (number, item) in fallbacks.as_array().into_iter().flatten().enumerate() {
        let name = format!("agents.defaults.fallbackModels.{number}");
        let (asked, _) = match item {
            Value::String(text) => named("", text)?,
            item => of_preset(&name, item, defaults)?,
        };
        let is_there =
            |other: &Asked| other.model == asked.model && other.provider == asked.provider;
        if !chain.iter().any(is_there) {
            chain.push(asked);
        }
    }
    let models = known(&parts.models)?;
    for asked in &mut chain {
        asked.max_tokens = flags.max_tokens.unwrap_or(asked.max_tokens);
        asked.temperature = flags.temperature.unwrap_or(asked.temperature);
        if let Some(effort) = flags.reasoning_effort {
            asked.reasoning_effort = Some(effort.to_owned());
        }
        let model = asked.model.as_deref().unwrap_or_default();
        let bare = model.rsplit('/').next().unwrap_or(model);
        if let Some(said) = models.get(model).or_else(|| models.get(bare)) {
            asked.known = asked.known.or(*said);
        }
    }
    Ok(chain)
}

fn of_model(model: &str, defaults: &Asked) -> Asked {
    Asked {
        model: Some(model.to_owned()),
        provider: "auto".into(),
        ..defaults.clone()
    }
}

/// Parses a preset; returns it with the fallbacks that it names.
fn of_preset(place: &str, value: &Value, defaults: &Asked) -> Result<(Asked, Option<Value>)> {
    let Value::Object(members) = value else {
        let cause = format!("`{place}` is neither a model name nor an object");
        return Err(fail(Exit::Config, cause));
    };
    let fields = Fields { place, members };
    let Some(model) = fields.text("model")? else {
        return Err(fail(Exit::Config, format!("`{place}` has no `model`")));
    };
    let asked = Asked {
        provider: fields
            .text("provider")?
            .map_or_else(|| "auto".into(), |name| snake_case(&name)),
        max_tokens: fields.count("maxTokens")?.unwrap_or(defaults.max_tokens),
        temperature: fields
            .number("temperature")?
            .unwrap_or(defaults.temperature),
        reasoning_effort: fields
            .text("reasoningEffort")?
            .or_else(|| defaults.reasoning_effort.clone()),
        known: fields.known()?,
        model: Some(model),
    };
    Ok((
        asked,
        fields
            .get("fallbacks")
            .or_else(|| fields.get("fallbackModels"))
            .cloned(),
    ))
}

/// Parses `models` into metadata by model name.
fn known(models: &Value) -> Result<BTreeMap<String, Known>> {
    let mut known = BTreeMap::new();
    for (name, value) in models.as_object().into_iter().flatten() {
        let place = format!("models.{name}");
        let Value::Object(members) = value else {
            return Err(fail(Exit::Config, format!("`{place}` is not an object")));
        };
        let fields = Fields {
            place: &place,
            members,
        };
        known.insert(name.clone(), fields.known()?);
    }
    Ok(known)
}

impl Known {
    /// Fills the gaps of this value from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            context: self.context.or(other.context),
            output: self.output.or(other.output),
            images: self.images.or(other.images),
            pdf: self.pdf.or(other.pdf),
            price: self.price.or(other.price),
        }
    }
}

/// The members of an object, looked up by names in camelCase or snake_case.
struct Fields<'a> {
    place: &'a str,
    members: &'a Map<String, Value>,
}

impl Fields<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        let found = self
            .members
            .get(name)
            .or_else(|| self.members.get(&snake_case(name)));
        found.filter(|value| !value.is_null())
    }

    fn wrong<T>(&self, name: &str, expected: &str) -> Result<T> {
        Err(fail(
            Exit::Config,
            format!("`{}.{name}` is not {expected}", self.place),
        ))
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(not_blank(text)),
            Some(_) => self.wrong(name, "a string"),
        }
    }

    fn number(&self, name: &str) -> Result<Option<f64>> {
        match self.get(name).map(Value::as_f64) {
            None => Ok(None),
            Some(Some(number)) if number >= 0.0 => Ok(Some(number)),
            Some(_) => self.wrong(name, "a non-negative number"),
        }
    }

    fn count(&self, name: &str) -> Result<Option<u32>> {
        let number = self
            .get(name)
            .map(|value| value.as_u64().and_then(|number| u32::try_from(number).ok()));
        match number {
            None => Ok(None),
            Some(Some(number)) if number > 0 => Ok(Some(number)),
            Some(_) => self.wrong(name, "a positive integer"),
        }
    }

    fn truth(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(*truth)),
            Some(_) => self.wrong(name, "true or false"),
        }
    }

    fn known(&self) -> Result<Known> {
        let price = match self.get("price") {
            None => None,
            Some(Value::Object(members)) => {
                let place = format!("{}.price", self.place);
                let fields = Fields {
                    place: &place,
                    members,
                };
                let (Some(input), Some(output)) =
                    (fields.number("input")?, fields.number("output")?)
                else {
                    let cause = format!(
                        "`{place}` needs `input` and `output`, in US dollars per million tokens"
                    );
                    return Err(fail(Exit::Config, cause));
                };
                Some(Price {
                    input,
                    output,
                    cached: fields.number("cachedInput")?,
                    cache_write: fields.number("cacheWrite")?,
                })
            }
            Some(_) => return self.wrong("price", "an object"),
        };
        Ok(Known {
            context: self.count("contextWindowTokens")?,
            output: self.count("maxOutputTokens")?,
            images: self.truth("images")?,
            pdf: self.truth("pdf")?,
            price,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Flags, Known, Parts, Price, chain};
    use serde_json::{Value, json};

    fn of(
        presets: Value,
        preset: Option<&str>,
        fallbacks: Value,
        model: Option<&str>,
    ) -> anyhow::Result<Vec<Asked>> {
        let parts = Parts {
            presets,
            preset: preset.map(str::to_owned),
            fallbacks,
            models: json!({ "m": { "price": { "input": 1, "output": 2 } } }),
        };
        let flags = Flags {
            model,
            max_tokens: None,
            temperature: None,
            reasoning_effort: None,
        };
        let defaults = Asked {
            model: Some("d".into()),
            provider: "openai".into(),
            max_tokens: 7,
            ..Asked::default()
        };
        chain(&parts, &flags, &defaults)
    }

    fn names(chain: &[Asked]) -> Vec<String> {
        chain
            .iter()
            .map(|asked| {
                format!(
                    "{} {}",
                    asked.provider,
                    asked.model.as_deref().unwrap_or("-")
                )
            })
            .collect()
    }

    #[test]
    fn who_is_asked_and_who_stands_in() {
        let presets = json!({ "fast": "m", "deep": { "model": "x/y", "provider": "openRouter", "max_tokens": 9, "fallbacks": ["fast", "z"] } });
        let check = |preset, fallbacks, model, expect: &[&str]| {
            assert_eq!(
                names(&of(presets.clone(), preset, fallbacks, model).unwrap()),
                expect
            );
        };
        check(None, json!([]), None, &["openai d"]);
        check(Some("default"), Value::Null, None, &["openai d"]);
        check(
            None,
            json!(["fast", "q", "fast"]),
            None,
            &["openai d", "auto m", "auto q"],
        );
        check(
            None,
            json!([{ "model": "a", "provider": "groq" }]),
            None,
            &["openai d", "groq a"],
        );
        check(
            Some("deep"),
            json!(["q"]),
            None,
            &["open_router x/y", "auto m", "auto z"],
        );
        check(Some("deep"), json!([]), Some("fast"), &["auto m"]);
        check(Some("deep"), json!([]), Some("other"), &["openai other"]);
        let deep = of(presets.clone(), Some("deep"), json!([]), None).unwrap();
        assert_eq!(deep[0].max_tokens, 9);
        let price = Price {
            input: 1.0,
            output: 2.0,
            cached: None,
            cache_write: None,
        };
        assert_eq!(
            deep[1].known,
            Known {
                price: Some(price),
                ..Known::default()
            }
        );
    }

    #[test]
    fn what_is_no_preset_is_told() {
        let check = |presets: Value, preset, fallbacks: Value| {
            assert!(of(presets, preset, fallbacks, None).is_err());
        };
        check(json!({}), Some("none"), json!([]));
        check(json!({ "a": 5 }), Some("a"), json!([]));
        check(json!({ "a": {} }), Some("a"), json!([]));
        check(
            json!({ "a": { "model": "m", "maxTokens": 0 } }),
            Some("a"),
            json!([]),
        );
        check(
            json!({ "a": { "model": "m", "price": { "input": 1 } } }),
            Some("a"),
            json!([]),
        );
        check(json!({}), None, json!([7]));
    }
}
