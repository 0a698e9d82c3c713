//! The facts about a run that determine the origin of file content.

use crate::policy::file_scope::{FileAccess, FileScope};
use nanobot_base::message::Origin;
use std::path::{Path, PathBuf};

/// Resolves a path to its real path, following links.
pub type ResolveRealPath = Box<dyn Fn(&Path) -> PathBuf + Send + Sync>;

/// The facts that determine the provenance of file content.
pub struct TrustContext {
    pub file_scope: FileScope,
    /// The real path of the agent's own directory, which holds the user's instructions.
    pub workspace: PathBuf,
    /// True if commands run without a sandbox and may write anywhere.
    pub commands_write_anywhere: bool,
    /// True if commands may use the network of the machine, so that their output may be from anywhere.
    pub commands_have_network: bool,
    /// Returns true once a named host has sent something to a command. From then on, any file of the run may contain it.
    pub hosts_have_sent: Box<dyn Fn() -> bool + Send + Sync>,
    /// Tools of MCP servers whose results the user trusts.
    pub trusted_tools: Vec<String>,
    /// The paths of the built-in skills, with the hosts that they work with.
    pub skill_hosts: Vec<(PathBuf, &'static [&'static str])>,
    /// True for paths in the private directories of runs.
    pub is_private: fn(&Path) -> bool,
    pub resolve_real_path: ResolveRealPath,
}

impl TrustContext {
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        (self.resolve_real_path)(&self.file_scope.absolute(path))
    }

    /// The origin of the content of the file at `path`. It is the user for instruction files, because no run with untrusted content changes
    /// them without permission, and for the memory, because its label was applied when the run began. An earlier run may have written any
    /// other file in the workspace because of untrusted content.
    pub(super) fn origin_of_file(&self, path: &Path) -> Origin {
        let is_own = self.file_scope.is_user_instruction(path)
            || path == self.workspace.join("memory/MEMORY.md");
        if is_own { Origin::User } else { Origin::Project }
    }

    /// The hosts of the built-in skill at `path`.
    pub(super) fn hosts_of_skill(&self, path: &Path) -> &'static [&'static str] {
        let mut skills = self.skill_hosts.iter();
        skills.find(|(skill, _)| skill == path).map_or(&[], |(_, hosts)| hosts)
    }

    /// True if this run can change `path`, or something beneath it.
    pub(super) fn may_write(&self, path: &Path) -> bool {
        let mut roots = self.file_scope.roots.iter().filter(|root| root.may_write);
        roots.any(|root| path.starts_with(&root.path) || root.path.starts_with(path))
            || !self.file_scope.allowed.is_empty()
            || path
                .to_str()
                .is_none_or(|path| self.file_scope.decide(path, FileAccess::Write).is_ok())
    }
}
