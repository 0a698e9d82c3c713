//! Recording of the exchanges with the model, and the names of this machine's paths in a recording.

use crate::ops::context::Context;
use crate::ops::permissions;
use crate::options::grants::Grants;
use crate::options::turn::TurnOptions;
use nanobot_config::settings::Settings;
use nanobot_model::ledger::CallPurpose;
use nanobot_model::provider::Provider;
use nanobot_model::provider::path_names::PathNames;
use nanobot_model::provider::recording::RecordingProvider;
use std::sync::Arc;

/// The names that the paths of this run have in a recording.
pub(crate) fn path_names(ctx: &Context, grants: &Grants, settings: &Settings) -> PathNames {
    let directory = match &grants.directory {
        Some(directory) => permissions::absolute(directory),
        None => std::env::current_dir().unwrap_or_default(),
    };
    PathNames::new(&[
        (&settings.workspace, "${nanobot.workspace}"),
        (&directory, "${nanobot.directory}"),
        (&ctx.paths.root, "${nanobot.root}"),
        (&ctx.paths.home, "${nanobot.home}"),
    ])
}

/// Wraps `provider` so that every exchange is recorded, if `--record` was given. The recorder wraps the fallbacks, so a
/// recording has the messages before a fallback truncates them.
pub(crate) fn with_recording(
    ctx: &Context,
    options: &TurnOptions,
    settings: &Settings,
    purpose: &CallPurpose,
    provider: Arc<dyn Provider>,
) -> Arc<dyn Provider> {
    match &options.recording.record {
        Some(path) => Arc::new(RecordingProvider {
            inner: provider,
            path: path.clone(),
            session: purpose.session.clone(),
            path_names: path_names(ctx, &options.grants, settings),
        }),
        None => provider,
    }
}
