//! The working directory of an editor's session.

use crate::ops::context::Context;
use crate::ops::permissions;
use nanobot_config::settings::Settings;
use nanobot_os::symlinks::PathResolver;
use std::path::{Path, PathBuf};

/// Returns the working directory of a session that the editor opens in `directory`. An editor without a project opens its sessions in
/// the home directory. Only `-C` on the command line, as `granted_directory`, grants that as a whole, so the workspace replaces it. An
/// editor also cannot lift a restriction of the config.
pub(super) fn choose(
    ctx: &Context,
    settings: &Settings,
    granted_directory: Option<&Path>,
    directory: PathBuf,
) -> PathBuf {
    let mut path_resolver = PathResolver::default();
    let real_path = path_resolver.resolve(&directory);
    let is_granted = granted_directory.is_some_and(|granted| {
        real_path.starts_with(path_resolver.resolve(&permissions::absolute(granted)))
    });
    if is_granted {
        return directory;
    }
    let workspace = &settings.workspace;
    let reason = if settings.restrict_to_workspace {
        "`tools.restrictToWorkspace` is set"
    } else if permissions::is_replaced_by_workspace(
        ctx,
        &real_path,
        workspace.is_dir(),
        &mut path_resolver,
    ) {
        "it is the home directory, or one above it (`nanobot serve acp -C ~` opens it all the same)"
    } else {
        return directory;
    };
    ctx.notice(&format!("the workspace takes the place of the editor's directory: {reason}"));
    workspace.clone()
}
