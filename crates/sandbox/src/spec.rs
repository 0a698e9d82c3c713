//! The access rules of a sandboxed command.

use super::network::NetworkAccess;
use super::project_file_rules::ProjectFiles;
use landlock::RulesetCreated;
use nanobot_os::symlinks::trace_links;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The access rules of a sandboxed command. All paths are absolute and free of symbolic links.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Files and directories that it may read, and run programs from.
    #[serde(with = "nanobot_os::wire_paths::list")]
    pub readable: Vec<PathBuf>,
    /// Files and directories in which it may also change everything.
    #[serde(with = "nanobot_os::wire_paths::list")]
    pub writable: Vec<PathBuf>,
    /// The one of `writable` that belongs to the run alone, if there is one: no other program reads its files.
    #[serde(with = "nanobot_os::wire_paths::optional")]
    pub(super) private: Option<PathBuf>,
    /// The directory that a command in namespaces of its own sees at `/tmp`, unless `/tmp` is granted.
    #[serde(with = "nanobot_os::wire_paths::optional")]
    pub tmp: Option<PathBuf>,
    /// Paths within the granted ones that it cannot see, existing or not. A directory that contains one is granted entry by entry, as it is
    /// when the command starts. If the command may write there, only the denied paths that exist are covered instead. Without a root of its
    /// own, it cannot list that directory, and new entries directly in it stay inaccessible.
    #[serde(with = "nanobot_os::wire_paths::list")]
    pub denied: Vec<PathBuf>,
    /// Further paths that it cannot open if they exist.
    #[serde(with = "nanobot_os::wire_paths::list")]
    pub covered: Vec<PathBuf>,
    /// Home directories within the granted paths. Their hidden entries are closed too, unless they are granted by name.
    #[serde(with = "nanobot_os::wire_paths::list")]
    pub homes: Vec<PathBuf>,
    /// Paths within `writable` that have the same state after the command as before, including absence.
    #[serde(with = "nanobot_os::wire_paths::list")]
    pub protected: Vec<PathBuf>,
    /// The directory for the copies of the git configs among `protected`, made for one command, which changes the copies.
    /// Without one, the configs are read-only.
    #[serde(with = "nanobot_os::wire_paths::optional")]
    pub config_copies: Option<PathBuf>,
    /// The directory for the locks by which commands that may change the same directories take turns. Without one, commands of
    /// other runs do not wait.
    #[serde(skip)]
    pub lock_directory: Option<PathBuf>,
    /// The git configs that have credentials, each with the copy without credentials that covers it.
    #[serde(with = "nanobot_os::wire_paths::map")]
    pub(super) masked_configs: BTreeMap<PathBuf, PathBuf>,
    /// The files at any depth of `writable` whose changes are checked after the command.
    #[serde(skip)]
    pub project_files: ProjectFiles,
    /// Symbolic links that the command's own root needs too, with their targets.
    #[serde(with = "nanobot_os::wire_paths::map")]
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
    /// The command runs in namespaces of its own, and sees only granted paths.
    #[serde(skip)]
    pub(super) in_namespaces: bool,
    /// The process runs long enough for mounts to become outdated: a file that is replaced or created later is a
    /// different file. So directories that contain a denied path are also granted entry by entry, and can be listed.
    #[serde(skip)]
    pub(super) long_lived: bool,
    /// Protected paths have no mounts. They are read-only instead, and the directories that contain them are granted entry
    /// by entry.
    #[serde(skip)]
    pub(super) split_parents: bool,
    pub network: NetworkAccess,
    /// The limit of its memory, if there is one.
    pub memory: Option<MemoryLimit>,
    /// The Landlock ruleset, built once for all commands of a run.
    #[serde(skip)]
    pub(super) ruleset_cache: Arc<OnceLock<RulesetCreated>>,
}

/// A limit of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    pub bytes: u64,
    /// The cgroup whose processes together have this limit. Without a cgroup, the limit applies to the address space of each process.
    pub cgroup: Option<PathBuf>,
}

impl SandboxSpec {
    /// Creates rules with the symbolic links beneath the root, and with nothing that is optional.
    pub fn new(
        readable: Vec<PathBuf>,
        writable: Vec<PathBuf>,
        denied: Vec<PathBuf>,
        protected: Vec<PathBuf>,
        network: NetworkAccess,
    ) -> Self {
        let mut spec = Self { readable, writable, denied, protected, network, ..Self::default() };
        spec.add_root_links();
        spec
    }

    /// Grants the process a writable directory of its own.
    pub fn add_private(&mut self, directory: PathBuf) {
        self.writable.push(directory.clone());
        self.private = Some(directory);
    }

    pub fn private(&self) -> Option<&Path> {
        self.private.as_deref()
    }

    /// The writable paths that other programs use too: all but the private directory.
    pub(crate) fn shared_writable(&self) -> impl Iterator<Item = &Path> {
        let writable = self.writable.iter().map(PathBuf::as_path);
        writable.filter(|path| Some(*path) != self.private())
    }

    /// True if the process may change paths that other programs use too.
    pub(crate) fn may_change_shared(&self) -> bool {
        self.shared_writable().next().is_some()
    }

    /// Adds the symbolic links that `path` leads through. A command's own root has granted paths under their real names only,
    /// and would lack the names that programs know. A relative path is ignored.
    pub fn add_links(&mut self, path: &Path) {
        if !path.is_absolute() {
            return;
        }
        for (link, target) in trace_links(path).links {
            // A link in a granted directory is there already. The root is a directory of the command's own.
            let mut granted = self.readable.iter().filter(|path| *path != Path::new("/"));
            let parent = link.parent().unwrap_or(&link);
            if !granted.any(|path| parent.starts_with(path)) {
                self.links.insert(link, target);
            }
        }
    }

    /// Adds the symbolic links directly beneath the root, such as `/bin`.
    pub(super) fn add_root_links(&mut self) {
        let entries = std::fs::read_dir("/").into_iter().flatten().flatten();
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        let links: Vec<PathBuf> = links.map(|entry| entry.path()).collect();
        for link in &links {
            self.add_links(link);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{HiddenPaths, SandboxSpec};
    use std::collections::BTreeMap;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn paths_in_messages_need_not_be_utf8() {
        let path = PathBuf::from(OsStr::from_bytes(b"/caf\xe9"));
        let masked_configs = BTreeMap::from([(path.clone(), path.clone())]);
        let spec = SandboxSpec { masked_configs: masked_configs.clone(), ..SandboxSpec::default() };
        let text = serde_json::to_string(&spec).unwrap();
        let received: SandboxSpec = serde_json::from_str(&text).unwrap();
        assert_eq!(received.masked_configs, masked_configs);
        let hidden_paths = HiddenPaths { covered: vec![path.clone()], visible: vec![path] };
        let text = serde_json::to_string(&hidden_paths).unwrap();
        assert_eq!(serde_json::from_str::<HiddenPaths>(&text).unwrap(), hidden_paths);
    }

    #[test]
    fn links_outside_of_granted_directories_are_found() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(dir.join("granted/in")).unwrap();
        symlink("granted", dir.join("one")).unwrap();
        symlink(dir.join("one/../two/in"), dir.join("long")).unwrap();
        symlink("one/.", dir.join("two")).unwrap();
        symlink("in", dir.join("granted/inner")).unwrap();
        symlink("round", dir.join("round")).unwrap();
        let check = |path: &str, expect: &[&str]| {
            let reads = vec![dir.join("granted")];
            let mut sandbox = SandboxSpec { readable: reads, ..SandboxSpec::default() };
            sandbox.add_links(&dir.join(path));
            let expect: Vec<PathBuf> = expect.iter().map(|name| dir.join(name)).collect();
            let actual = sandbox.links.into_keys();
            let actual: Vec<PathBuf> = actual.filter(|link| link.starts_with(&dir)).collect();
            assert_eq!(actual, expect, "{path}");
        };
        check("granted/in", &[]);
        check("granted/inner", &[]);
        check("one/in", &["one"]);
        check("long", &["long", "one", "two"]);
        check("two/inner/missing", &["one", "two"]);
        check("round", &["round"]);
    }
}
