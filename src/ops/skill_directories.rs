//! The folders of skills outside of the workspace and of trusted directories: the user's own, and those that the config names.

use crate::ops::context::Context;
use nanobot_config::settings::Settings;
use nanobot_os::symlinks::{PathResolver, real_directory};
use std::path::{Path, PathBuf};

/// The folders of a run that exist, as real paths.
#[derive(Debug, Default)]
pub(crate) struct SkillDirectories {
    /// `~/.nanobot/skills`
    pub(crate) own: Option<PathBuf>,
    /// Those that the config names and other programs fill.
    pub(crate) shared: Vec<PathBuf>,
}

impl SkillDirectories {
    /// Finds the folders. A run that is restricted to the workspace could not read their files, so it has none.
    pub(crate) fn find(ctx: &Context, settings: &Settings) -> Self {
        if settings.restrict_to_workspace {
            return Self::default();
        }
        let shared = settings.skills.directories.iter();
        Self {
            own: real_directory(&ctx.paths.skills()),
            shared: shared.filter_map(|dir| real_directory(&ctx.paths.expand(dir))).collect(),
        }
    }

    /// All folders.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.own.iter().chain(&self.shared).map(PathBuf::as_path)
    }
}

/// The folders that the config names, whether they exist or not: no run changes them, since what appears in them instructs the next run.
pub(crate) fn protected_directories(ctx: &Context, settings: &Settings) -> Vec<PathBuf> {
    let mut real_paths = PathResolver::default();
    let directories = settings.skills.directories.iter().map(|dir| ctx.paths.expand(dir));
    directories.filter(|dir| dir.is_absolute()).map(|dir| real_paths.resolve(&dir)).collect()
}
