//! The places that a run may change. Programs of the user's that run beside it, outside of the sandbox, do not see them: they
//! could execute what the run wrote, however their commands, their config or `PATH` name that.

use crate::ops::context::Context;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::{Policy, Sandbox};
use nanobot_config::settings::Settings;
use nanobot_mcp::client::ChangeablePaths;
use nanobot_sandbox::HiddenPaths;
use std::path::PathBuf;

/// The places that a run under `policy` may change, but for its private directories. `None` if it may change everything.
pub(crate) fn changeable_places(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
) -> Option<HiddenPaths> {
    if policy.sandbox == Sandbox::Off || policy.file_scope.is_unrestricted {
        return None;
    }
    let mut places = HiddenPaths::default();
    add_places(&mut places, &policy.file_scope);
    let servers = settings.servers.iter().filter(|server| !server.is_disabled);
    for paths in servers.filter_map(|server| ChangeablePaths::of_server(server, &ctx.paths)) {
        places.covered.extend(paths.shared);
        places.covered.push(paths.own);
    }
    Some(places)
}

/// Adds what `scope` lets the tools of a run change. What it closes to them, or lets none of them change, stays visible if it
/// is there: the run may make what is not.
pub(crate) fn add_places(places: &mut HiddenPaths, scope: &FileScope) {
    // A rule that allows changes within read-only roots is a pattern, and may be about any of them.
    let has_rules = !scope.allowed.is_empty();
    // The run may have made what is there by now.
    let earlier = places.covered.clone();
    let roots = scope.roots.iter().filter(|root| root.may_write || has_rules);
    places.covered.extend(roots.map(|root| root.path.clone()));
    places.covered.extend(scope.command_writable_git_dirs().map(PathBuf::from));
    let kept = scope.hidden.iter().chain(scope.read_only.iter()).filter(|place| {
        !earlier.iter().any(|root| place.starts_with(root)) && place.symlink_metadata().is_ok()
    });
    places.visible.extend(kept.cloned());
    let HiddenPaths { covered, visible } = places;
    covered.sort();
    covered.dedup();
    visible.retain(|place| covered.iter().any(|root| place.starts_with(root)));
    visible.sort();
    visible.dedup();
}
