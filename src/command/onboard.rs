//! `nanobot onboard`: creates a config and a workspace. Existing content is kept, and missing parts are added. A user
//! answers questions ([`wizard`]); a script uses flags.

use crate::cli::onboard::Onboard as Arguments;
use crate::command::config::piped;
use crate::error::{Exit, exit_of, fail_hint};
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::model;
use crate::settings::expand::is_name;
use crate::settings::{Config, Overrides, Settings};
use crate::sys::signal;
use crate::sys::terminal::Terminal;
use crate::sys::terminal::folded;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result};
use edits::{Block, Edit, defaults, merged, where_to_work};
use wizard::Answers;

mod edits;
mod menu;
mod next_steps;
mod question;
mod wizard;

/// Runs `nanobot onboard`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let say = |text: &str| {
        if !ctx.quiet {
            ctx.terminal.complain(text);
        }
    };
    let before = Config::load(&ctx.paths.config)?;
    if is_bare(arguments) && Terminal::is_attended() {
        let width = ctx.terminal.breadth();
        return attended(ctx, &before, &|text| say(&folded(text, width, 0)));
    }
    let edits = given(arguments, &before)?;
    let settings = set_up(ctx, &before, edits, &say, &|after| {
        unlike(&before, after, arguments)
    })?;
    let exit = still_missing(ctx, &settings, arguments.test, &say)?;
    if arguments.completions {
        next_steps::write_completions(ctx)?;
    }
    if arguments.heartbeat {
        next_steps::enable_heartbeat(ctx)?;
    }
    Ok(exit)
}

/// Asks the user all questions, then offers the optional next steps.
fn attended(ctx: &Context, before: &Config, say: &dyn Fn(&str)) -> Result<Exit> {
    signal::arm(None).context("wait for signals")?;
    let Answers { edits, trouble } = wizard::ask(ctx, before)?;
    let settings = set_up(ctx, before, edits, say, &|_| None)?;
    if let Some(error) = trouble {
        say("setup is not complete; try: `nanobot onboard` again, or `nanobot status --check`");
        return Ok(exit_of(&error));
    }
    next_steps::warn_on_error(ctx, next_steps::completions(ctx))?;
    next_steps::warn_on_error(ctx, next_steps::crontab(ctx, &settings))?;
    say(&format!("ready; try: {}", next_steps::next(ctx)));
    Ok(Exit::Answered)
}

/// Writes the config with `edits`, and the missing parts of the workspace.
fn set_up(
    ctx: &Context,
    before: &Config,
    edits: Vec<Edit>,
    say: &dyn Fn(&str),
    kept: &dyn Fn(&Config) -> Option<String>,
) -> Result<Settings> {
    let after = merged(before, edits.into_iter().chain(defaults()))?;
    // Check before anything is written: an unusable config must not be extended.
    let overrides = Overrides {
        workspace: ctx.workspace.clone(),
        ..Overrides::default()
    };
    let settings = Settings::resolve(&after, &ctx.env, &overrides, &ctx.paths)?;

    let shown = ctx.paths.display(after.path());
    if after.text() == before.text() {
        say(&format!("kept {shown} unchanged"));
    } else {
        after.save()?;
        let done = if before.exists() {
            "updated"
        } else {
            "created"
        };
        say(&format!("{done} {shown}"));
    }
    if let Some(model) = kept(&after) {
        say(&format!(
            "kept the model {model}, which the new provider may not have; `--model NAME` changes it"
        ));
    }
    let workspace = Workspace::new(&settings.workspace);
    let made = workspace.create()?;
    let place = ctx.paths.display(&workspace.root);
    say(&match made.is_empty() {
        true => format!("kept {place} unchanged"),
        false => format!("created in {place}: {}", made.join(", ")),
    });
    Ok(settings)
}

/// Reports what is still missing; on request, tests if the setup works.
fn still_missing(
    ctx: &Context,
    settings: &Settings,
    is_tried: bool,
    say: &dyn Fn(&str),
) -> Result<Exit> {
    let endpoint = match model::resolve_endpoint(ctx, settings, &settings.asked[0], false, true) {
        Ok(endpoint) => endpoint,
        Err(error) if is_tried => return Err(error),
        // A config without a key is a valid start.
        Err(error) => {
            say(&format!("still missing: {error:#}"));
            if let Some(hint) = crate::error::hint_of(&error) {
                say(&format!("  try: {hint}"));
            }
            return Ok(Exit::Answered);
        }
    };
    if is_tried {
        let (provider, model) = (
            endpoint.choice.provider.clone(),
            endpoint.choice.model.clone(),
        );
        let reply = connection_test::ask(ctx, settings, endpoint)?;
        let (seconds, cost) = (reply.seconds(), reply.cost());
        say(&format!(
            "{model} of {provider} answered in {seconds}: {cost}"
        ));
    }
    say("ready; try: nanobot agent -m \"hello\"");
    Ok(Exit::Answered)
}

/// True if the command line sets no option; the user is asked then.
fn is_bare(arguments: &Arguments) -> bool {
    matches!(
        arguments,
        Arguments {
            provider: None,
            api_key_env: None,
            api_base: None,
            model: None,
            api_key_stdin: false,
            directory: None,
            yes: false,
            test: false,
            completions: false,
            heartbeat: false,
        }
    )
}

/// The model that was kept although the flags select another provider.
fn unlike(before: &Config, after: &Config, arguments: &Arguments) -> Option<String> {
    let provider = |config: &Config| config.get_path("agents.defaults.provider").cloned();
    let model = before.get_path("agents.defaults.model")?.as_str()?;
    let changed = before.exists() && provider(before) != provider(after);
    (changed && arguments.provider.is_some() && arguments.model.is_none()).then(|| model.to_owned())
}

/// Converts flags to edits. An explicit value replaces an existing one; a value that only follows from the flags does
/// not.
fn given(arguments: &Arguments, config: &Config) -> Result<Vec<Edit>> {
    let Arguments {
        provider,
        api_key_env,
        api_key_stdin,
        api_base,
        model,
        directory,
        yes: _,
        test: _,
        completions: _,
        heartbeat: _,
    } = arguments;
    let mut edits = Vec::new();
    let block = match provider {
        Some(name) => Some(Block::named(name, api_base.is_some(), config)?),
        None => None,
    };
    if let Some(Block { name, .. }) = &block {
        edits.push(Edit::new("agents.defaults.provider", name.as_str()));
    }
    let key = |flag: &str, key: &str| match &block {
        Some(block) => Ok(block.key(key)),
        None => Err(fail_hint(
            Exit::Usage,
            format!("`{flag}` needs a provider"),
            "`--provider NAME`",
        )),
    };
    if let Some(variable) = api_key_env {
        if !is_name(variable) {
            // Do not repeat the value, which may be the key itself.
            let cause = "the value of `--api-key-env` is not a variable name";
            return Err(fail_hint(
                Exit::Usage,
                cause,
                "the variable's name, such as OPENAI_API_KEY",
            ));
        }
        let path = key("--api-key-env", "apiKey")?;
        edits.push(Edit::new(path, format!("${{{variable}}}")));
    }
    if *api_key_stdin {
        let path = key("--api-key-stdin", "apiKey")?;
        edits.push(Edit::new(path, piped()?));
    }
    if let Some(base) = api_base {
        edits.push(Edit::new(key("--api-base", "apiBase")?, base.as_str()));
    }
    match (model, &block) {
        (Some(model), _) => edits.push(Edit::new("agents.defaults.model", model.as_str())),
        (
            None,
            Some(Block {
                entry: Some(entry), ..
            }),
        ) => edits.push(Edit {
            replaces: false,
            ..Edit::new("agents.defaults.model", entry.model)
        }),
        (None, _) => {}
    }
    edits.extend(directory.map(where_to_work));
    Ok(edits)
}
