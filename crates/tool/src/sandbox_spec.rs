//! Builds sandbox rules from the policy: for commands, and for MCP servers.

use nanobot_config::policy::file_scope::{FileAccess, FileScope, ScopeRoot};
use nanobot_config::policy::rule::Pattern;
use nanobot_config::policy::secrets;
use nanobot_config::policy::startup_files::{
    always_protected_from_commands, project_files, protected_from_servers, protected_in_home,
};
use nanobot_mcp::client::ChangeablePaths;
use nanobot_os::env::Env;
use nanobot_os::paths::is_generated_dir;
use nanobot_sandbox::{NetworkAccess, ProjectFileAccess, SandboxSpec, git_paths, system_paths};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The locations of the tools installed on this machine.
#[derive(Clone, Debug, Default)]
pub struct InstalledTools {
    /// The directories of programs, in the format of PATH.
    pub path: String,
    /// Tool directories that the user set by environment variables.
    relocated_dirs: Vec<PathBuf>,
    /// The paths in them that hold credentials and stay closed.
    credential_paths: Vec<PathBuf>,
}

impl InstalledTools {
    /// Finds the tools, from a value of PATH and the environment.
    pub fn new(path: &str, env: &Env) -> Self {
        let (relocated_dirs, credential_paths) =
            system_paths::relocated_tools(|name| env.get(name));
        Self { path: path.to_owned(), relocated_dirs, credential_paths }
    }
}

/// The sandbox rules for a process with the access that `file_scope` grants. It may read and run `programs`, even in closed
/// directories. It has no private directory, and cannot change files named in `startup_names` at the top of a writable
/// directory.
///
/// # Errors
/// There are too many home directories to close.
pub(crate) fn for_scope(
    file_scope: &FileScope,
    tools: &InstalledTools,
    programs: &[PathBuf],
    network: NetworkAccess,
    startup_names: &[&str],
) -> io::Result<SandboxSpec> {
    let (mut readable, links) =
        system_paths::readable_paths(&tools.path, &tools.relocated_dirs, &file_scope.home);
    readable.extend(file_scope.roots.iter().map(|root| root.path.clone()));
    readable.extend(programs.iter().cloned());
    let mut denied = file_scope.hidden.to_vec();
    denied.retain(|path| !programs.contains(path));
    let writable = file_scope.command_writable_paths();
    let git_dirs: Vec<PathBuf> =
        file_scope.command_writable_git_dirs().map(Path::to_owned).collect();
    let granted_paths: Vec<&Path> =
        file_scope.roots.iter().map(|root| root.path.as_path()).collect();
    let root_home = Path::new(secrets::ROOT_HOME);
    let homes = system_paths::find_homes(
        &[&file_scope.home, root_home],
        secrets::HOME_PARENTS,
        &granted_paths,
    )?;
    // Close the secrets in other users' homes too, since root may read them all. Their missing paths need no rule
    // unless commands may write there.
    let other_homes = homes.iter().filter(|home| **home != file_scope.home);
    let other_secrets = other_homes.flat_map(|home| secrets::home_secrets(home)).filter(|path| {
        path.is_symlink() || path.exists() || writable.iter().any(|root| path.starts_with(root))
    });
    let home_secrets = secrets::home_secrets(&file_scope.home).chain(other_secrets);
    // Paths that the user grants by name stay open.
    let is_closed = |secret: &PathBuf| !file_scope.grants_secret(secret);
    denied.extend(
        system_paths::resolve_secrets(home_secrets)
            .chain(tools.credential_paths.iter().cloned())
            .filter(is_closed),
    );
    let system_secrets =
        secrets::system_secrets().filter(|path| system_paths::is_readable_secret(path));
    let covered = system_paths::resolve_secrets(system_secrets).filter(is_closed).collect();
    let is_granted =
        |home: &&PathBuf| file_scope.roots.iter().any(|root| home.starts_with(&root.path));
    let granted_homes: Vec<PathBuf> = if file_scope.is_unrestricted {
        Vec::new()
    } else {
        homes.iter().filter(is_granted).cloned().collect()
    };
    denied.extend(hidden_entries(file_scope, &granted_homes, &readable));
    let mut protected = BTreeSet::new();
    // If the scope combines those of several agents, each keeps its own read-only paths.
    for scope in file_scope.self_and_operands() {
        if scope.is_unrestricted && !file_scope.is_unrestricted {
            continue;
        }
        let scope_writable = scope.command_writable_paths();
        let mut paths = collect_protected(&scope_writable, &|root| {
            if git_dirs.iter().any(|git_dir| git_dir == root) {
                git_paths::git_dir_paths(root)
            } else {
                git_paths::protected_paths(root, startup_names)
            }
        });
        // Start-up files of the home directories are protected too, if a home directory, a parent of one or a directory in
        // one is writable.
        for home in &homes {
            paths.extend(git_paths::protected_paths(home, &protected_in_home()));
        }
        paths.retain(|path| !scope_writable.contains(path));
        protected.extend(paths);
    }
    let read_only_roots = file_scope.roots.iter().filter(|root| !root.may_write);
    let read_only_roots = read_only_roots.map(|root| root.path.clone());
    protected.extend(read_only_roots.filter(|path| !writable.contains(path)));
    protected.extend(file_scope.read_only.iter().cloned());
    // Always protect notes that instruct later runs: the output of a command may be untrusted content.
    protected.extend(file_scope.instruction_files.iter().cloned());
    protected.retain(|path| writable.iter().any(|root| path.starts_with(root)));
    let protected = protected.into_iter().collect();
    readable.extend(unseen_worktree_links(&writable, &readable));
    let mut sandbox = SandboxSpec::new(readable, writable, denied, protected, network);
    sandbox.covered = covered;
    sandbox.homes = granted_homes;
    let names = file_scope.names.iter().map(|link| &link.name);
    links.iter().chain(names).for_each(|path| sandbox.add_links(path));
    sandbox.project_files.git_dirs = git_dirs;
    Ok(sandbox)
}

/// The configs of git that commands see: those of the repository around the working directory, or in it, and what they include.
pub(crate) fn git_configs(file_scope: &FileScope) -> Vec<PathBuf> {
    let default_dir = file_scope.directory.join(".git");
    let repository_dirs =
        file_scope.repository.as_ref().map(|repository| repository.git_dirs.as_slice());
    let git_dirs = repository_dirs.unwrap_or(std::slice::from_ref(&default_dir));
    let mut configs = git_paths::repository_configs(git_dirs, &file_scope.home);
    // An included file that is granted by name is not masked: commands change the file itself.
    configs.retain(|path| {
        git_dirs.iter().any(|git_dir| path.starts_with(git_dir))
            || file_scope.roots.iter().all(|root| root.path != *path)
    });
    configs
}

/// Maximum number of entries that are searched for files that rules deny.
const MAX_SEARCH_ENTRIES: usize = 1_000_000;

/// Closes to `sandbox` the existing files that rules of the user deny to read or to change.
///
/// # Errors
/// There are too many entries to search.
pub fn apply_rules(file_scope: &FileScope, sandbox: &mut SandboxSpec) -> io::Result<()> {
    sandbox.cover(denied_files(file_scope, sandbox, FileAccess::Read)?);
    sandbox.protect(denied_files(file_scope, sandbox, FileAccess::Write)?);
    Ok(())
}

/// The existing files and directories to which a rule of the user denies `access`, beneath the paths of `sandbox` that are granted for it.
/// Generated directories such as `node_modules` can be changed, unless a rule names them.
///
/// # Errors
/// There are too many entries to search.
pub(crate) fn denied_files(
    file_scope: &FileScope,
    sandbox: &SandboxSpec,
    access: FileAccess,
) -> io::Result<Vec<PathBuf>> {
    let scopes = file_scope.self_and_operands();
    let rules: Vec<(&FileScope, &Pattern)> = scopes
        .iter()
        .flat_map(|scope| scope.denied.iter().map(move |rule| (*scope, rule)))
        .filter(|(_, rule)| rule.access == access)
        .map(|(scope, rule)| (scope, &rule.pattern))
        .collect();
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let is_denied = |path: &Path| rules.iter().any(|(scope, pattern)| scope.matches(pattern, path));
    let is_granted = |path: &PathBuf| {
        (access == FileAccess::Read && sandbox.readable.contains(path))
            || sandbox.writable.contains(path)
    };
    let is_named = |name: &OsStr| -> bool {
        let name = name.to_string_lossy();
        rules.iter().any(|(_, pattern)| pattern.text().contains(&*name))
    };
    let is_skipped_dir = |path: &Path| {
        access == FileAccess::Write
            && is_generated_dir(path)
            && !path.ends_with(".git")
            && !path.file_name().is_some_and(is_named)
    };
    let is_git_lock = |path: &Path| {
        access == FileAccess::Write
            && path.extension().is_some_and(|extension| extension == "lock")
            && path.ancestors().skip(1).any(|parent| parent.ends_with(".git"))
            && !is_named(OsStr::new(".git"))
    };
    let mut directories: Vec<PathBuf> =
        file_scope.roots.iter().map(|root| root.path.clone()).filter(is_granted).collect();
    let mut denied: Vec<PathBuf> =
        directories.iter().filter(|path| is_denied(path)).cloned().collect();
    let mut entries_left = MAX_SEARCH_ENTRIES;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            entries_left = entries_left.checked_sub(1).ok_or_else(|| {
                let message = format!(
                    "the granted directories have more than {MAX_SEARCH_ENTRIES} entries, too many to find the files that rules deny: work \
                     in a smaller directory, grant less, or remove the rules about files (see `nanobot policy explain`)"
                );
                io::Error::other(message)
            })?;
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            // The sandbox protects the contents of a `.git` one by one.
            let is_split = access == FileAccess::Write && is_directory && path.ends_with(".git");
            if is_denied(&path) && !is_split && !is_git_lock(&path) {
                // A link is followed to its target, and can itself be changed.
                denied.extend(std::fs::canonicalize(&path).ok().filter(|target| *target != path));
                denied.push(path);
            } else if is_directory && !is_skipped_dir(&path) {
                directories.push(path);
            }
        }
    }
    Ok(denied)
}

/// The links of git worktrees that commands do not see, of repositories that commands may change.
fn unseen_worktree_links(writable: &[PathBuf], readable: &[PathBuf]) -> Vec<PathBuf> {
    let links = writable.iter().flat_map(|root| git_paths::worktree_links(root));
    let is_seen = |link: &PathBuf| readable.iter().any(|root| link.starts_with(root));
    links.filter(|link| !is_seen(link)).collect()
}

/// Collects the `protected_paths` of each of the `writable` paths. For nested directories, the innermost one decides, as for the file
/// tools: granting a start-up file by name makes that file writable.
fn collect_protected(
    writable: &[PathBuf],
    protected_paths: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Vec<PathBuf> {
    let is_innermost = |root: &Path, path: &Path| {
        let is_inner = |other: &&PathBuf| *other != root && other.starts_with(root);
        !writable.iter().filter(is_inner).any(|other| path.starts_with(other))
    };
    let mut collected = Vec::new();
    for root in writable {
        let paths = protected_paths(root).into_iter();
        collected.extend(paths.filter(|path| is_innermost(root, path)));
    }
    collected
}

/// The paths that an MCP server may use, from the config. Paths are absolute and without links; missing paths are
/// ignored.
#[derive(Clone, Debug, Default)]
pub struct ServerScope {
    pub home: PathBuf,
    /// nanobot's own directory. Everything in it that is not granted by name stays closed, even if a parent is granted.
    pub nanobot_home: PathBuf,
    /// The agent's workspace: closed like `nanobot_home`, and never writable for a server, wherever it is.
    pub workspace: PathBuf,
    /// Further closed paths of nanobot: config, keys, sessions.
    pub hidden: Vec<PathBuf>,
    /// Paths that stay read-only, even within writable directories.
    pub read_only: Vec<PathBuf>,
    pub reads: Vec<PathBuf>,
    pub writes: Vec<PathBuf>,
    /// The server's own persistent directory. It exists already.
    pub state_dir: PathBuf,
    /// The server's temporary directory, removed at the end of the run. It exists already.
    pub temp_dir: PathBuf,
}

/// The sandbox rules for an MCP server. It may read the system and the installed tools, change its two own directories
/// and the paths that the user grants, and use the internet. The rules stay in force while the server runs, so changes
/// are not reverted as after a command: mounts protect the read-only paths instead.
///
/// # Errors
/// There are too many home directories to close; [`io::ErrorKind::InvalidInput`] if the server is to change a path of
/// nanobot.
pub fn for_server(scope: &ServerScope, tools: &InstalledTools) -> io::Result<SandboxSpec> {
    if let Some(path) = scope.writes.iter().find(|path| is_own_path(path, scope)) {
        let message = format!(
            "it requests write access to `{}` (by its `write`, `cwd`, `args` or `env`), which belongs to nanobot and controls later \
             runs: no sandboxed server may have it; `sandbox: \"off\"` in its entry runs it without a sandbox",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let root = |may_write: bool| move |path: &PathBuf| ScopeRoot { path: path.clone(), may_write };
    // Start-up files in the server's own directory need no protection, since only the server runs them.
    let writable_roots = scope.writes.iter();
    let writable_roots = writable_roots.filter(|path| !path.starts_with(&scope.state_dir));
    let writable_roots = writable_roots.map(root(true));
    // A path granted for both reading and writing is writable.
    let readable_roots = scope.reads.iter();
    let readable_roots = readable_roots.filter(|path| !scope.writes.contains(path));
    let readable_roots = readable_roots.map(root(false));
    let mut granted_paths: Vec<&Path> = scope.reads.iter().map(PathBuf::as_path).collect();
    granted_paths.extend(scope.writes.iter().map(PathBuf::as_path));
    granted_paths.extend([scope.state_dir.as_path(), scope.temp_dir.as_path()]);
    // A parent of the server's own directory also contains those of other servers.
    granted_paths.retain(|path| {
        let is_parent = scope.state_dir.starts_with(path) && **path != scope.state_dir;
        !(is_parent && path.starts_with(&scope.nanobot_home))
    });
    let mut hidden = scope.hidden.clone();
    hidden.extend(ungranted_paths(&scope.nanobot_home, &granted_paths));
    if has_separate_workspace(scope) {
        hidden.extend(ungranted_paths(&scope.workspace, &granted_paths));
    }
    let file_scope = FileScope {
        directory: scope.state_dir.clone(),
        home: scope.home.clone(),
        roots: writable_roots.chain(readable_roots).collect(),
        hidden: hidden.into(),
        read_only: scope.read_only.clone().into(),
        ..FileScope::default()
    };
    let mut sandbox =
        for_scope(&file_scope, tools, &[], NetworkAccess::Machine, &protected_from_servers())?;
    // Changes are not reverted afterwards, so mounts must protect these too.
    let nested = collect_protected(&sandbox.writable, &git_paths::nested_protected_paths);
    sandbox.protected.extend(nested);
    let own_dirs = [scope.state_dir.clone(), scope.temp_dir.clone()];
    sandbox.writable.extend(own_dirs.clone());
    // Changes of these are undone after a call, and reported at the end.
    sandbox.project_files.names = project_files();
    sandbox.project_files.skipped = own_dirs.into();
    sandbox.project_files.access = ProjectFileAccess::Closed;
    Ok(sandbox)
}

/// The rules by which changes during a call of a server are undone. They are those for commands.
///
/// # Errors
/// There are too many entries to search.
pub(crate) fn for_changes_of_server(
    paths: ChangeablePaths,
    file_scope: &FileScope,
) -> io::Result<SandboxSpec> {
    let ChangeablePaths { shared, own } = paths;
    let roots = shared.iter().map(|path| ScopeRoot { path: path.clone(), may_write: true });
    let file_scope = FileScope { roots: roots.collect(), ..file_scope.clone() };
    let protected = collect_protected(&shared, &|root| {
        git_paths::protected_paths(root, always_protected_from_commands())
    });
    let network = NetworkAccess::Machine;
    let mut sandbox = SandboxSpec::new(Vec::new(), shared, Vec::new(), protected, network);
    sandbox.project_files.names = project_files();
    sandbox.project_files.skipped.push(own.clone());
    sandbox.add_private(own);
    apply_rules(&file_scope, &mut sandbox)?;
    Ok(sandbox)
}

/// True if `path` belongs to nanobot, and is not in the server's own directory.
fn is_own_path(path: &Path, scope: &ServerScope) -> bool {
    let is_in = |directory: &Path| path.starts_with(directory);
    let is_in_workspace = has_separate_workspace(scope) && is_in(&scope.workspace);
    (is_in(&scope.nanobot_home) || is_in_workspace) && !path.starts_with(&scope.state_dir)
}

/// True if there is a workspace that contains neither nanobot's own directory nor the home directory.
fn has_separate_workspace(scope: &ServerScope) -> bool {
    let workspace = &scope.workspace;
    !workspace.as_os_str().is_empty()
        && !scope.nanobot_home.starts_with(workspace)
        && !scope.home.starts_with(workspace)
}

/// The paths in the hidden entries of `homes`, which are granted whole, except what is granted by name.
fn hidden_entries(file_scope: &FileScope, homes: &[PathBuf], readable: &[PathBuf]) -> Vec<PathBuf> {
    let mut granted_paths: Vec<&Path> = readable.iter().map(PathBuf::as_path).collect();
    granted_paths.push(&file_scope.directory);
    let homes = homes.iter();
    let entries = homes.flat_map(|home| std::fs::read_dir(home).into_iter().flatten().flatten());
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."))
        .flat_map(|entry| ungranted_paths(&entry.path(), &granted_paths))
        .collect()
}

/// The paths in `root` that are neither granted nor a parent of a granted one.
fn ungranted_paths(root: &Path, granted_paths: &[&Path]) -> Vec<PathBuf> {
    if granted_paths.contains(&root) {
        return Vec::new();
    }
    if !granted_paths.iter().any(|path| path.starts_with(root)) {
        return vec![root.to_owned()];
    }
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    entries.flat_map(|entry| ungranted_paths(&entry.path(), granted_paths)).collect()
}

/// Variables that point launchers and servers into the server's own directory, and the path within it. Servers must not
/// write to the user's own caches, since their contents are later run without a sandbox.
const SERVER_DIR_VARIABLES: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_STATE_HOME", "state"),
    ("npm_config_cache", "npm"),
    ("UV_CACHE_DIR", "cache/uv"),
    ("UV_TOOL_DIR", "tools"),
    ("UV_PYTHON_INSTALL_DIR", "python"),
    ("PIP_CACHE_DIR", "cache/pip"),
    ("PIPX_HOME", "pipx"),
    ("DENO_DIR", "cache/deno"),
    ("BUN_INSTALL_CACHE_DIR", "cache/bun"),
    ("GOMODCACHE", "go"),
    ("GOCACHE", "cache/go"),
];

/// The environment variables that a server in the sandbox needs in addition to those from its config.
pub fn tool_env(scope: &ServerScope) -> Vec<(String, String)> {
    let private_variable = |(name, part): &(&str, &str)| {
        let path = scope.state_dir.join(part);
        ((*name).to_owned(), path.to_string_lossy().into_owned())
    };
    let mut variables: Vec<(String, String)> =
        SERVER_DIR_VARIABLES.iter().map(private_variable).collect();
    let temporary = scope.temp_dir.to_string_lossy().into_owned();
    variables.push(("TMPDIR".into(), temporary));
    // The user's own .npmrc may hold tokens, and npm exits if it cannot read the file. Granting the file by name keeps
    // it in use.
    let user_config = scope.home.join(".npmrc");
    let mut granted_paths = scope.reads.iter().chain(&scope.writes);
    if !granted_paths.any(|path| *path == user_config) {
        variables.push(private_variable(&("npm_config_userconfig", "npmrc")));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::{InstalledTools, ServerScope, for_server, tool_env};
    use nanobot_sandbox::SandboxSpec;
    use std::path::{Path, PathBuf};

    /// The depth of the deepest of `roots` that contains `path`.
    fn depth(roots: &[PathBuf], path: &Path) -> Option<usize> {
        let containing = roots.iter().filter(|root| path.starts_with(root));
        containing.map(|root| root.components().count()).max()
    }

    /// Returns if `path` is readable, and if it is writable.
    fn access(sandbox: &SandboxSpec, path: &Path) -> (bool, bool) {
        let is_open = depth(&sandbox.denied, path).is_none();
        let writes = if is_open { depth(&sandbox.writable, path) } else { None };
        let reads = if is_open { depth(&sandbox.readable, path) } else { None };
        // The paths within `.git` have rules of their own.
        let protected = sandbox.protected.iter().filter(|root| !root.ends_with(".git"));
        let is_free = writes > depth(&protected.cloned().collect::<Vec<_>>(), path);
        (writes.or(reads).is_some(), is_free)
    }

    #[test]
    fn a_server_gets_its_own_directories_and_granted_paths() {
        let temp = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(temp.path()).unwrap();
        for name in [
            ".nanobot/workspace/sessions",
            "notes/skills",
            ".nanobot/mcp/state/one",
            ".nanobot/mcp/state/two",
            ".nanobot/auth",
            ".ssh",
            "project/.git",
            "project/inner/.git/hooks",
            "tmp",
        ] {
            std::fs::create_dir_all(home.join(name)).unwrap();
        }
        let scope = ServerScope {
            home: home.clone(),
            nanobot_home: home.join(".nanobot"),
            workspace: home.join("notes"),
            hidden: vec![home.join(".nanobot/config.json")],
            state_dir: home.join(".nanobot/mcp/state/one"),
            temp_dir: home.join("tmp"),
            ..ServerScope::default()
        };
        let granting = |reads: &[&str], writes: &[&str]| ServerScope {
            reads: reads.iter().map(|name| home.join(name)).collect(),
            writes: writes.iter().map(|name| home.join(name)).collect(),
            ..scope.clone()
        };
        let (none, reads, changes) = ((false, false), (true, false), (true, true));
        let check = |scope: &ServerScope, expect: &[(&str, (bool, bool))]| {
            let sandbox = for_server(scope, &InstalledTools::default()).unwrap();
            assert!(sandbox.network.is_machine());
            for (name, expect) in expect {
                assert_eq!(access(&sandbox, &home.join(name)), *expect, "{name}");
            }
        };
        let own_paths = [
            (".nanobot/mcp/state/one/x", changes),
            ("tmp/x", changes),
            (".nanobot/mcp/state/two/x", none),
            (".nanobot/mcp/pins.json", none),
            (".nanobot/auth/x", none),
            (".nanobot/config.json", none),
            (".nanobot/workspace/AGENTS.md", none),
            ("notes/AGENTS.md", none),
            (".ssh/id", none),
            ("/usr/bin/env", reads),
        ];
        check(&scope, &own_paths);
        check(&scope, &[("project/x", none)]);
        // These stay closed, even if a parent is granted.
        let whole_home = granting(&[], &[""]);
        std::fs::write(home.join(".nanobot/mcp/pins.json"), "").unwrap();
        check(&whole_home, &own_paths);
        check(
            &whole_home,
            &[("project/x", changes), (".bashrc", reads), (".config/nvim/x", reads)],
        );
        check(
            &granting(&["project", "store.db"], &["store.db"]),
            &[("project/x", reads), ("store.db", changes)],
        );
        check(
            &granting(&[".ssh", ".nanobot/workspace", "notes"], &["project"]),
            &[
                ("project/x", changes),
                ("project/.git/hooks/x", reads),
                ("project/.envrc", reads),
                ("project/inner/.git/hooks/x", reads),
                ("project/inner/.git/index", changes),
                (".ssh/id", reads),
                (".nanobot/workspace/x", reads),
                ("notes/x", reads),
                (".nanobot/auth/x", none),
            ],
        );
        check(
            &granting(&[".nanobot", ".nanobot/mcp"], &[]),
            &[
                (".nanobot/mcp/state/one/x", changes),
                (".nanobot/mcp/state/two/x", none),
                (".nanobot/mcp/pins.json", none),
            ],
        );
        for own_path in
            [".nanobot", ".nanobot/workspace", ".nanobot/mcp/state/two", "notes", "notes/skills"]
        {
            let error =
                for_server(&granting(&[], &[own_path]), &InstalledTools::default()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{own_path}");
            assert!(error.to_string().contains("sandbox: \"off\""), "{own_path}");
        }
    }

    #[test]
    fn launchers_use_the_servers_directory() {
        let scope = ServerScope {
            home: "/h".into(),
            state_dir: "/s".into(),
            temp_dir: "/t".into(),
            ..ServerScope::default()
        };
        let get = |scope: &ServerScope, name: &str| {
            let mut variables = tool_env(scope).into_iter();
            variables.find_map(|(other, value)| (other == name).then_some(value))
        };
        assert_eq!(get(&scope, "npm_config_cache").as_deref(), Some("/s/npm"));
        assert_eq!(get(&scope, "TMPDIR").as_deref(), Some("/t"));
        let granted = ServerScope { reads: vec!["/h/.npmrc".into()], ..scope.clone() };
        let user_config = |scope: &ServerScope| get(scope, "npm_config_userconfig");
        assert_eq!(
            (user_config(&scope).as_deref(), user_config(&granted)),
            (Some("/s/npmrc"), None)
        );
    }
}
