//! Checks that runs can use a config: its settings, and the profile and the prompt files that they name. `settings` checks
//! the values themselves.

use crate::ops::context::Context;
use crate::ops::permissions;
use crate::ops::prompt_files;
use crate::options::grants::Grants;
use crate::settings::{Config, FlagOverrides, PromptFileSettings, Settings};
use anyhow::Result;

/// The errors in what `settings` name, each of which stops every run that names nothing else.
pub(crate) fn errors(ctx: &Context, settings: &Settings) -> Vec<anyhow::Error> {
    let PromptFileSettings { system, compaction, consolidation } = &settings.prompt_files;
    let files = [("system", system), ("compaction", compaction), ("consolidation", consolidation)];
    let unreadable =
        files.map(|(name, path)| prompt_files::read(ctx, name, path.as_deref()).map(drop));
    let profile = permissions::resolve_profile(ctx, &Grants::default(), settings).map(drop);
    let results = [profile].into_iter().chain(unreadable);
    results.filter_map(Result::err).collect()
}

/// Checks that a run can use `after`, as far as it could use `before`: an unset variable, for example, is not the fault of
/// the change, and a broken config can be mended in steps.
///
/// # Errors
/// Status 78 with the first error of `after`.
pub(crate) fn check_change(ctx: &Context, before: &Config, after: &Config) -> Result<()> {
    match check(ctx, before) {
        Ok(()) => check(ctx, after),
        Err(_) => Ok(()),
    }
}

fn check(ctx: &Context, config: &Config) -> Result<()> {
    let settings = ctx.resolve(config, FlagOverrides::default())?;
    errors(ctx, &settings).into_iter().next().map_or(Ok(()), Err)
}
