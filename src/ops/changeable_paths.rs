//! The paths that a run may change. They are hidden from programs of the user that run outside of the run's sandbox, such as
//! hooks: such a program could execute a file that the run wrote, if its command, its config or `PATH` names that file.

use crate::ops::context::Context;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::{Policy, Sandbox};
use nanobot_config::settings::Settings;
use nanobot_mcp::client::ChangeablePaths;
use nanobot_sandbox::HiddenPaths;
use std::path::PathBuf;

/// The paths that a run under `policy` may change, except its private directories. `None` if it may change everything.
pub(crate) fn changeable_paths(
    ctx: &Context,
    settings: &Settings,
    policy: &Policy,
) -> Option<HiddenPaths> {
    if policy.sandbox == Sandbox::Off || policy.file_scope.is_unrestricted {
        return None;
    }
    let mut hidden_paths = HiddenPaths::default();
    add_scope(&mut hidden_paths, &policy.file_scope);
    let servers = settings.servers.iter().filter(|server| !server.is_disabled);
    for paths in servers.filter_map(|server| ChangeablePaths::of_server(server, &ctx.paths)) {
        hidden_paths.covered.extend(paths.shared);
        hidden_paths.covered.push(paths.own);
    }
    Some(hidden_paths)
}

/// Adds the paths that the tools of a run with this scope may change. Existing paths that the scope hides or makes
/// read-only stay visible. A missing path is hidden, because the run may create it.
pub(crate) fn add_scope(hidden_paths: &mut HiddenPaths, scope: &FileScope) {
    // A rule that allows changes within read-only roots is a pattern, which may match in any root.
    let has_rules = !scope.allowed.is_empty();
    // The run may have created the current entries of these roots.
    let earlier_roots = hidden_paths.covered.clone();
    let roots = scope.roots.iter().filter(|root| root.may_write || has_rules);
    hidden_paths.covered.extend(roots.map(|root| root.path.clone()));
    hidden_paths.covered.extend(scope.command_writable_git_dirs().map(PathBuf::from));
    for path in scope.hidden.iter().chain(scope.read_only.iter()) {
        let is_new = !earlier_roots.iter().any(|root| path.starts_with(root));
        if is_new && path.symlink_metadata().is_ok() {
            hidden_paths.visible.push(path.clone());
        }
    }
    let HiddenPaths { covered, visible } = hidden_paths;
    covered.sort();
    covered.dedup();
    visible.retain(|path| covered.iter().any(|root| path.starts_with(root)));
    visible.sort();
    visible.dedup();
}
