//! The model of a conversation in a chat: `/model` and `/effort` choose among the models of the config, for this conversation alone.

use crate::ops::agent_turn::{self, CHAT_LOCK_TIMEOUT};
use crate::ops::channel::persona::Persona;
use crate::ops::context::Context;
use crate::ops::slash_commands::EFFORT_LEVELS;
use crate::options::model::ModelOptions;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::{Config, LayeredConfig, Settings};
use nanobot_store::session::{self, ModelChoice, Session};

/// The word that goes back to the configured model or effort.
const DEFAULT: &str = "default";

/// The model options of a turn in the session `key`. A choice that the config has come to exclude does not count.
///
/// # Errors
/// The session or the config cannot be read.
pub(crate) fn options_of(persona: &Persona, key: &str) -> Result<ModelOptions> {
    let (ctx, settings) = (&persona.ctx, &persona.settings);
    let choice = session::read_model_choice(&ctx.session_store(settings)?, key)?;
    if choice == ModelChoice::default() {
        return Ok(ModelOptions::default());
    }
    let config = ctx.load_config()?;
    let models = configured_models(ctx, settings, &config);
    let may_choose_model = check_may_choose(persona, &config).is_ok();
    let may_choose_effort = check_effort_key(&config).is_ok();
    Ok(ModelOptions {
        name: choice.model.filter(|name| may_choose_model && models.contains(name)),
        reasoning_effort: choice.effort.filter(|_| may_choose_effort),
        ..ModelOptions::default()
    })
}

/// Runs `/model` with the argument `name`. Returns the answer.
///
/// # Errors
/// The config has no such model, or locks the key: status 2 or 77. The session cannot be read or written.
pub(crate) fn run_model_command(persona: &Persona, key: &str, name: &str) -> Result<String> {
    let (ctx, settings) = (&persona.ctx, &persona.settings);
    let config = ctx.load_config()?;
    let models = configured_models(ctx, settings, &config);
    if name.is_empty() {
        let current = current_model(persona, key)?;
        let choices = models.join(", ");
        return Ok(format!(
            "Model: {current}\nChoices: {choices}\n/model NAME switches in this chat, /model {DEFAULT} goes back."
        ));
    }
    check_may_choose(persona, &config)?;
    let model = (name != DEFAULT).then(|| name.to_owned());
    if model.as_ref().is_some_and(|model| !models.contains(model)) {
        return Err(fail(Exit::Usage, format!("the config has no model or preset `{name}`"))
            .with_hint(format!("one of {}", models.join(", "))));
    }
    let mut options = TurnOptions::default();
    options.model.name.clone_from(&model);
    // A model without a usable provider would make each message fail.
    agent_turn::select_provider(ctx, &options)?;
    change_choice(persona, key, |choice| choice.model = model)?;
    Ok(format!("Model: {}", current_model(persona, key)?))
}

/// Runs `/effort` with the argument `level`. Returns the answer.
///
/// # Errors
/// There is no such level, or the config locks the key: status 2 or 77. The session cannot be read or written.
pub(crate) fn run_effort_command(persona: &Persona, key: &str, level: &str) -> Result<String> {
    let (ctx, settings) = (&persona.ctx, &persona.settings);
    let levels = EFFORT_LEVELS.join(", ");
    if !level.is_empty() {
        check_effort_key(&ctx.load_config()?)?;
        if level != DEFAULT && !EFFORT_LEVELS.contains(&level) {
            let cause = format!("there is no reasoning effort `{level}`");
            return Err(fail(Exit::Usage, cause).with_hint(format!("one of {levels}")));
        }
        let effort = (level != DEFAULT).then(|| level.to_owned());
        change_choice(persona, key, |choice| choice.effort = effort)?;
    }
    let chosen = options_of(persona, key)?.reasoning_effort;
    let effort = chosen.or_else(|| settings.models[0].reasoning_effort.clone());
    let effort = effort.unwrap_or_else(|| "the model's default".to_owned());
    let choices = if level.is_empty() { format!("\nChoices: {levels}") } else { String::new() };
    Ok(format!("Reasoning effort: {effort}{choices}"))
}

/// The model of the conversation in the session `key`, for people.
///
/// # Errors
/// As [`options_of`].
pub(crate) fn current_model(persona: &Persona, key: &str) -> Result<String> {
    let chosen = options_of(persona, key)?.name;
    let model = chosen.or_else(|| persona.settings.models[0].model.clone());
    Ok(model.unwrap_or_else(|| "the provider's default".to_owned()))
}

/// The configured model, its fallbacks of the same provider, and the presets.
fn configured_models(ctx: &Context, settings: &Settings, config: &Config) -> Vec<String> {
    let provider = &settings.models[0].provider;
    let models = settings.models.iter().filter(|model| model.provider == *provider);
    let mut names: Vec<String> = models.filter_map(|model| model.model.clone()).collect();
    for preset in LayeredConfig::new(config, &ctx.env).names(&["modelPresets"]) {
        if !names.contains(&preset) {
            names.push(preset);
        }
    }
    names
}

/// Checks that neither the config nor the binding of the chat fixes the model.
fn check_may_choose(persona: &Persona, config: &Config) -> Result<()> {
    if persona.binding.as_ref().is_some_and(|binding| binding.model.is_some()) {
        return Err(fail(Exit::Refused, "the model of this chat is bound to it"));
    }
    config.check_flag("agents.defaults.model", "/model")
}

fn check_effort_key(config: &Config) -> Result<()> {
    config.check_flag("agents.defaults.reasoningEffort", "/effort")
}

fn change_choice(
    persona: &Persona,
    key: &str,
    change: impl FnOnce(&mut ModelChoice),
) -> Result<()> {
    let store = persona.ctx.session_store(&persona.settings)?;
    let mut session = Session::open(&store, key, CHAT_LOCK_TIMEOUT, &mut |_| {})?;
    let mut choice = session::read_model_choice(&store, key)?;
    change(&mut choice);
    session.choose_model(&choice)
}
