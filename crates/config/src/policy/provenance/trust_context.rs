//! The facts about a run that determine the origin of file content. Pure.

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
    /// Returns true once a named host has sent something to a command, which any file of the run may hold then.
    pub hosts_have_sent: Box<dyn Fn() -> bool + Send + Sync>,
    /// Tools of MCP servers whose results the user answers for.
    pub trusted_tools: Vec<String>,
    /// The places at which built-in skills are read, with the hosts that they work with.
    pub skill_hosts: Vec<(PathBuf, &'static [&'static str])>,
    /// True for paths in the private directories of runs.
    pub is_private: fn(&Path) -> bool,
    pub resolve_real_path: ResolveRealPath,
}

impl TrustContext {
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        (self.resolve_real_path)(&self.file_scope.absolute(path))
    }

    /// The origin of what the file at `place` holds: the user's for instruction files, which no run changes after content
    /// from outside without permission, and for the memory, whose label was heeded when the run began. An earlier run
    /// may have written any other file in the workspace on behalf of such content.
    pub(super) fn origin_of_file(&self, place: &Path) -> Origin {
        let is_own = self.file_scope.is_user_instruction(place)
            || place == self.workspace.join("memory/MEMORY.md");
        if is_own { Origin::User } else { Origin::Project }
    }

    /// The hosts of the built-in skill that is read at `place`.
    pub(super) fn hosts_of_skill(&self, place: &Path) -> &'static [&'static str] {
        let mut skills = self.skill_hosts.iter();
        skills.find(|(path, _)| path == place).map_or(&[], |(_, hosts)| hosts)
    }

    /// True if this run can change `place`, or something beneath it.
    pub(super) fn may_write(&self, place: &Path) -> bool {
        let in_root = self.file_scope.roots.iter().filter(|root| root.may_write);
        let mut roots = in_root.map(|root| &root.path);
        roots.any(|root| place.starts_with(root) || root.starts_with(place))
            || !self.file_scope.allowed.is_empty()
            || place
                .to_str()
                .is_none_or(|place| self.file_scope.decide(place, FileAccess::Write).is_ok())
    }
}
