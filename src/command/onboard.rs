//! `nanobot onboard`: creates a config and a workspace. Existing content is kept, and missing parts are added. The user answers questions
//! ([`wizard`]), and a script uses flags.

use crate::cli::onboard::{DirectoryArg, OnboardArgs};
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::mcp_servers::missing_allow_rules;
use crate::ops::model::{self, Endpoint};
use crate::ops::onboarding::{
    ConfigEdit, ProviderSection, allow_servers_edit, apply, directory_edit, settings_after,
};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::expand::is_variable_name;
use nanobot_config::settings::{Config, FlagOverrides, Settings};
use nanobot_model::provider::login::{self, Vendor};
use nanobot_net::web_url;
use nanobot_os::input::read_stdin_value;
use nanobot_os::signal;
use nanobot_os::terminal::{Terminal, stderr_width, wrap_words};
use wizard::WizardAnswers;

mod known_providers;
mod menu;
mod next_steps;
mod wizard;

/// Runs `nanobot onboard`.
pub fn run(ctx: &Context, arguments: &OnboardArgs) -> Result<Exit> {
    let before = Config::load(&ctx.paths)?;
    if *arguments == OnboardArgs::default() && Terminal::can_prompt() {
        return run_interactive(ctx);
    }
    let print = |text: &str| {
        if !ctx.quiet {
            ctx.terminal.eprint(text);
        }
    };
    let mut edits = edits_from_flags(arguments, &before)?;
    if arguments.allow_servers {
        let settings = Settings::resolve(&before, &ctx.env, &FlagOverrides::default(), &ctx.paths)?;
        edits.extend(allow_servers_edit(&before, &settings));
    }
    if arguments.test {
        // A config that may work is not replaced by one that does not.
        let settings = settings_after(ctx, &before, edits.clone())?;
        test(ctx, &settings, &print).context("nothing was written")?;
    }
    let settings = apply(ctx, edits, &print, &|after| retained_model(&before, after, arguments))?;
    if !missing_allow_rules(&settings).is_empty() {
        print(
            "tools of MCP servers that do not claim to be read-only are refused in `agent`; `--allow-servers` allows them",
        );
    }
    if arguments.completions {
        next_steps::write_completions(ctx)?;
    }
    if arguments.test {
        print("ready; try: nanobot agent -m \"hello\"");
    } else {
        report_readiness(ctx, &settings, arguments, &print)?;
    }
    if arguments.heartbeat {
        next_steps::enable_heartbeat(ctx)?;
    }
    Ok(Exit::Answered)
}

/// Asks the questions and writes the config. The status is not [`Exit::Answered`] if the setup does not work.
pub(super) fn ask_and_write(ctx: &Context) -> Result<(Exit, Settings)> {
    signal::install(None).context("wait for signals")?;
    let before = Config::load(&ctx.paths)?;
    let WizardAnswers { edits, test_error } = wizard::run(ctx, &before)?;
    let print = |text: &str| print_wrapped(ctx, text);
    let settings = apply(ctx, edits, &print, &|_| None)?;
    let Some(error) = test_error else {
        return Ok((Exit::Answered, settings));
    };
    print("setup is not complete; try: `nanobot onboard` again, or `nanobot status check`");
    Ok((exit_for(&error), settings))
}

fn print_wrapped(ctx: &Context, text: &str) {
    if !ctx.quiet {
        let width = stderr_width();
        ctx.terminal.eprint(&wrap_words(text, width, 0));
    }
}

/// Asks the user all questions, then offers the optional next steps.
fn run_interactive(ctx: &Context) -> Result<Exit> {
    let (exit, settings) = ask_and_write(ctx)?;
    if exit != Exit::Answered {
        return Ok(exit);
    }
    next_steps::warn_on_error(ctx, next_steps::offer_completions(ctx))?;
    next_steps::warn_on_error(ctx, next_steps::offer_heartbeat(ctx, &settings))?;
    next_steps::warn_on_error(ctx, next_steps::offer_session(ctx))?;
    next_steps::warn_on_error(ctx, next_steps::offer_channel(ctx, &settings))?;
    let next = next_steps::suggest_command(ctx);
    print_wrapped(ctx, &format!("ready; try: nanobot repl, or {next}"));
    Ok(exit)
}

/// The endpoint of a run with `settings`.
///
/// # Errors
/// A part of the setup is missing.
fn ready_endpoint(ctx: &Context, settings: &Settings) -> Result<Endpoint> {
    let endpoint = model::resolve_endpoint(ctx, settings, &settings.models[0], false, true)?;
    if let Ok(vendor) = Vendor::from_name(&endpoint.choice.provider) {
        login::require(vendor, &ctx.paths.auth())?;
    }
    Ok(endpoint)
}

/// Tests `settings`, which are not stored yet, with a request.
///
/// # Errors
/// The errors of [`ready_endpoint`] and of the request.
fn test(ctx: &Context, settings: &Settings, print: &dyn Fn(&str)) -> Result<()> {
    let endpoint = ready_endpoint(ctx, settings)?;
    let (provider, model) = (endpoint.choice.provider.clone(), endpoint.choice.model.clone());
    let reply = connection_test::send_test_request(ctx, settings, endpoint, print)?;
    let (seconds, cost) = (reply.describe_duration(), reply.describe_cost());
    print(&format!("{model} of {provider} answered in {seconds}: {cost}"));
    Ok(())
}

/// Reports the missing parts of the setup.
///
/// # Errors
/// The flags select a provider that cannot be used yet. The files are written all the same, so that the missing part can be added.
fn report_readiness(
    ctx: &Context,
    settings: &Settings,
    arguments: &OnboardArgs,
    print: &dyn Fn(&str),
) -> Result<()> {
    match ready_endpoint(ctx, settings) {
        Ok(_) => print("not tested; `nanobot status check` sends a request"),
        Err(error) if arguments.provider.is_some() => {
            return Err(error.context("setup is not complete"));
        }
        // Files without a provider are a valid start.
        Err(error) => {
            print(&format!("still missing: {error:#}"));
            if let Some(hint) = nanobot_base::error::hint_for(&error) {
                print(&format!("  try: {hint}"));
            }
        }
    }
    Ok(())
}

/// The model that was kept although the flags select another provider.
fn retained_model(before: &Config, after: &Config, arguments: &OnboardArgs) -> Option<String> {
    let provider = |config: &Config| config.get_path("agents.defaults.provider").cloned();
    let model = before.get_path("agents.defaults.model")?.as_str()?;
    let changed = before.exists() && provider(before) != provider(after);
    (changed && arguments.provider.is_some() && arguments.model.is_none()).then(|| model.to_owned())
}

/// Converts flags to edits. The value of a flag replaces an existing value. A value that only follows from the flags does not.
fn edits_from_flags(arguments: &OnboardArgs, config: &Config) -> Result<Vec<ConfigEdit>> {
    let OnboardArgs {
        provider,
        api_key_env,
        api_key_stdin,
        api_base,
        model,
        directory,
        allow_servers: _,
        yes: _,
        test: _,
        completions: _,
        heartbeat: _,
    } = arguments;
    let mut edits = Vec::new();
    let section = match provider {
        Some(name) => Some(ProviderSection::find(name, api_base.is_some(), config)?),
        None => None,
    };
    if let Some(ProviderSection { name, .. }) = &section {
        edits.push(ConfigEdit::new("agents.defaults.provider", name.as_str()));
    }
    let key =
        |flag: &str, name: &str| match &section {
            Some(section) if section.name != "auto" => Ok(section.key(name)),
            _ => Err(fail(Exit::Usage, format!("`{flag}` needs a provider"))
                .with_hint("`--provider NAME`")),
        };
    if let Some(variable) = api_key_env {
        if !is_variable_name(variable) {
            // Do not repeat the value, which may be the key itself.
            let cause = "the value of `--api-key-env` is not a variable name";
            return Err(
                fail(Exit::Usage, cause).with_hint("the variable's name, such as OPENAI_API_KEY")
            );
        }
        let path = key("--api-key-env", "apiKey")?;
        edits.push(ConfigEdit::new(path, format!("${{{variable}}}")));
    }
    if *api_key_stdin {
        let path = key("--api-key-stdin", "apiKey")?;
        edits.push(ConfigEdit::new(path, read_stdin_value()?));
    }
    if let Some(api_base) = api_base {
        let path = key("--api-base", "apiBase")?;
        check_address(api_base)?;
        edits.push(ConfigEdit::new(path, api_base.as_str()));
    }
    match (model, &section) {
        (Some(model), _) => edits.push(ConfigEdit::new("agents.defaults.model", model.as_str())),
        (None, Some(ProviderSection { entry: Some(entry), .. })) => edits.push(ConfigEdit {
            replaces: false,
            ..ConfigEdit::new("agents.defaults.model", entry.default_model)
        }),
        (None, _) => {}
    }
    edits.extend(directory.map(|directory| {
        directory_edit(match directory {
            DirectoryArg::Cwd => "cwd",
            DirectoryArg::Workspace => "workspace",
        })
    }));
    Ok(edits)
}

/// Refuses an address to which no request can be sent, such as one without a scheme.
fn check_address(address: &str) -> Result<()> {
    web_url::check_server(address).map_err(|reason| {
        let cause = format!("`--api-base`: `{}` {reason}", web_url::redact_url(address));
        let mut completed = format!("http://{address}");
        if !web_url::is_local_cleartext(&completed) {
            completed = format!("https://{address}");
        }
        if address.contains("://") || web_url::check_server(&completed).is_err() {
            fail(Exit::Usage, cause)
        } else {
            fail(Exit::Usage, cause).with_hint(format!("`--api-base {}`", quote(&completed)))
        }
    })
}
