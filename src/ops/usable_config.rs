//! Checks that runs can use a config: its settings, and the profile and the prompt files that they name. `settings` checks
//! the values themselves.

use crate::ops::channel::bindings;
use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::context::Context;
use crate::ops::turn_setup::web_tools::search_problems;
use crate::ops::{model, permissions, profiles, prompt_files};
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_config::settings::check::{CheckOptions, ConfigFinding, ConfigSeverity, check_config};
use nanobot_config::settings::{Config, FlagOverrides, PromptFileSettings, Settings};
use nanobot_mcp::client::unmakeable_files;
use nanobot_model::provider::registry::find_provider;

/// The errors in the profile and the prompt files of `settings`. Each of them stops every run that names no other profile
/// or prompt file.
pub(crate) fn errors(ctx: &Context, settings: &Settings) -> Vec<anyhow::Error> {
    let PromptFileSettings { system, compaction, consolidation } = &settings.prompt_files;
    let files = [("system", system), ("compaction", compaction), ("consolidation", consolidation)];
    let prompt_results =
        files.map(|(name, path)| prompt_files::read(ctx, name, path.as_deref()).map(drop));
    let profile = permissions::resolve_profile(ctx, &Grants::default(), settings).map(drop);
    let results = [profile].into_iter().chain(prompt_results);
    results.filter_map(Result::err).collect()
}

/// Checks that a run can use `new_config`, if it could use `old_config`. A change is not refused because of an earlier
/// problem, such as an unset variable, so that a broken config can be repaired in steps.
///
/// # Errors
/// Status 78 with the first error of `new_config`.
pub(crate) fn check_change(ctx: &Context, old_config: &Config, new_config: &Config) -> Result<()> {
    if check(ctx, old_config).is_ok() { check(ctx, new_config) } else { Ok(()) }
}

fn check(ctx: &Context, config: &Config) -> Result<()> {
    let settings = ctx.resolve(config, FlagOverrides::default())?;
    errors(ctx, &settings).into_iter().next().map_or(Ok(()), Err)
}

/// All problems of `config`, including those that only a run would find. Problems for the Python program are included if it was used here,
/// or if `is_strict`.
pub(crate) fn findings(ctx: &Context, config: &Config, is_strict: bool) -> Vec<ConfigFinding> {
    let options = CheckOptions {
        is_provider: |name| find_provider(name).is_some(),
        for_python: is_strict || has_traces_of_python(ctx, config),
    };
    let mut findings = check_config(config, &ctx.env, &ctx.paths, options);
    let to_finding =
        |error: anyhow::Error| ConfigFinding::new(ConfigSeverity::Error, format!("{error:#}"));
    let mut errors = profiles::errors(ctx);
    // Settings that cannot be resolved are among the findings.
    if let Ok(settings) = ctx.resolve(config, FlagOverrides::default()) {
        errors.extend(self::errors(ctx, &settings));
        findings.extend(
            search_problems(ctx, &settings)
                .into_iter()
                .map(|problem| ConfigFinding::new(ConfigSeverity::Warning, problem)),
        );
        findings.extend(
            model::cloud_problem(ctx, &settings)
                .map(|problem| ConfigFinding::new(ConfigSeverity::Warning, problem)),
        );
        for server in &settings.servers {
            let files =
                unmakeable_files(server, &ctx.paths).into_iter().filter(|file| !file.exists);
            findings.extend(
                files.map(|file| ConfigFinding::new(ConfigSeverity::Warning, file.explanation)),
            );
        }
    }
    findings.extend(unified_session_warning(ctx, config));
    errors.extend(bindings::errors(ctx, config));
    for error in errors.into_iter().map(to_finding) {
        if !findings.contains(&error) {
            findings.push(error);
        }
    }
    findings
}

/// The warning about one conversation of several people.
fn unified_session_warning(ctx: &Context, config: &Config) -> Option<ConfigFinding> {
    let settings = ctx.resolve(config, FlagOverrides::default()).ok()?;
    let channels = settings.channels.iter().filter(|_| settings.unified_session);
    let files = channels.filter_map(|name| ChannelFiles::load(ctx, name).ok());
    // Problems with the senders are reported by other checks.
    let rules = files.filter_map(|files| files.access_rules(ctx).ok());
    let is_shared = rules.into_iter().any(|rules| rules.admits_several_senders());
    let text = "`agents.defaults.unifiedSession`: several senders are allowed, and each can learn what the others have said";
    is_shared.then(|| ConfigFinding::new(ConfigSeverity::Warning, text.to_owned()))
}

/// True if the Python program of the same name was used here: it writes the gateway's address into every config, and
/// keeps a history of its own.
fn has_traces_of_python(ctx: &Context, config: &Config) -> bool {
    let history = ctx.paths.history().with_file_name("cli_history");
    config.get_path("gateway").is_some() || history.exists()
}
