//! The files of the user that a local server may access: only the files that its config entry names.

use super::named_files::{
    MIN_COMPONENTS, PROGRAM_VARIABLES, named_paths, own_directory, state_dir,
};
use crate::fingerprint::is_program;
use nanobot_config::settings::servers::{McpServer, ServerTransport};
use nanobot_os::paths::Paths;
use nanobot_os::symlinks::PathResolver;
use nanobot_sandbox::{SandboxSpec, system_paths};
use std::io;
use std::path::{Path, PathBuf};

/// Files and directories that mark the root directory of a program's project.
const PROJECT_MARKERS: &[&str] =
    &["package.json", "node_modules", "pyproject.toml", "Cargo.toml", ".git"];

/// The files that a server may access. Paths are absolute, free of links, and exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileGrant {
    /// The server's own persistent directory.
    pub state_dir: PathBuf,
    /// Paths that the server may read.
    pub reads: Vec<PathBuf>,
    /// Paths that the server may read and write.
    pub writes: Vec<PathBuf>,
}

/// The sandbox of a server, and the environment that it requires.
pub struct SandboxedSpec {
    /// The sandbox.
    pub sandbox: SandboxSpec,
    /// Additional environment variables, which point the server to the directories it may use. Those of its config
    /// entry take precedence.
    pub env: Vec<(String, String)>,
}

/// Provides sandboxes for servers.
pub trait SandboxFactory: Send + Sync {
    /// Creates the sandbox for a server that may access `grant`.
    ///
    /// # Errors
    /// No sandbox is available. The kind is [`io::ErrorKind::InvalidInput`] if the paths of the server's entry are the
    /// reason.
    fn create(&self, grant: &FileGrant) -> io::Result<SandboxedSpec>;

    /// A text that differs from that of a provider whose sandboxes have other rules.
    fn fingerprint(&self) -> String;

    /// Warns the user about an action of a server that the sandbox could not prevent.
    fn warn(&self, message: &str);
}

/// Returns the files that the config entry of `server` grants it. `programs` are its executable and the files that run it, each as
/// called, and `directory` is its working directory.
pub(super) fn resolve_grant(
    server: &McpServer,
    programs: &[PathBuf],
    directory: &Path,
    state_dir: &Path,
    paths: &Paths,
) -> FileGrant {
    let real_path = |path: PathBuf| std::fs::canonicalize(path).ok();
    let real_paths = |list: &[String]| -> Vec<PathBuf> {
        list.iter().filter_map(|path| real_path(paths.expand(path))).collect()
    };
    let env = match &server.transport {
        ServerTransport::Program { env, .. } => env.as_slice(),
        ServerTransport::Http(_) | ServerTransport::Sse(_) => &[],
    };
    let program_variables =
        env.iter().filter(|(name, _)| PROGRAM_VARIABLES.contains(&name.as_str()));
    let named_paths = named_paths(server);
    let own_dirs =
        named_paths.iter().filter_map(|named| own_directory(&named_paths, named.path, paths));
    let existing_paths: Vec<PathBuf> =
        named_paths.iter().filter_map(|named| real_path(named.path.to_owned())).collect();
    let mut reads = real_paths(&server.read_paths);
    reads.extend(
        program_variables.filter_map(|(_, value)| real_path(value.text()?.expose().into())),
    );
    for file in existing_paths.iter().filter(|path| path.is_file()).chain(programs) {
        reads.extend(installation_of(file).into_iter().filter_map(real_path));
        if let Some(file) = real_path(file.clone()) {
            reads.extend(project_dir(&file, &paths.home));
            reads.push(file);
        }
    }
    let mut writes = real_paths(&server.write_paths);
    // Programs are not writable: they may be run again later, possibly without a sandbox.
    writes.extend(existing_paths.iter().filter(|path| !is_program(path)).cloned());
    writes.extend(own_dirs);
    writes.extend(real_path(directory.to_owned()));
    for list in [&mut reads, &mut writes] {
        // The root of the file system is never granted.
        list.retain(|path| path.parent().is_some());
        list.sort();
        list.dedup();
    }
    FileGrant {
        state_dir: real_path(state_dir.to_owned()).unwrap_or_else(|| state_dir.to_owned()),
        reads,
        writes,
    }
}

/// The real paths that a server may change.
pub struct ChangeablePaths {
    /// The paths that its entry names, outside of its own directory.
    pub shared: Vec<PathBuf>,
    /// Its own directory.
    pub own: PathBuf,
}

impl ChangeablePaths {
    /// Returns `None` if `server` is not a local program.
    pub fn of_server(server: &McpServer, paths: &Paths) -> Option<Self> {
        let ServerTransport::Program { directory, .. } = &server.transport else {
            return None;
        };
        let state_dir = state_dir(paths, &server.name);
        let directory =
            directory.as_ref().map_or_else(|| state_dir.clone(), |path| paths.expand(path));
        let mut shared = resolve_grant(server, &[], &directory, &state_dir, paths).writes;
        let own = PathResolver::default().resolve(&state_dir);
        shared.retain(|path| !path.starts_with(&own));
        Some(Self { shared, own })
    }
}

/// Returns the directories that a program at `path` needs, if it is in a directory of programs. `path` is not resolved: the
/// executable of a Python virtual environment is a link that leads out of the environment.
fn installation_of(path: &Path) -> Vec<PathBuf> {
    let mut directories = path.ancestors().skip(1).take(2);
    if let Some(environment) = directories.find(|directory| directory.join("pyvenv.cfg").is_file())
    {
        return vec![environment.to_owned()];
    }
    path.parent().map_or_else(Vec::new, system_paths::with_sibling_directories)
}

/// Returns the project directory of the program `file`. Never the home directory or a parent of it.
fn project_dir(file: &Path, home: &Path) -> Option<PathBuf> {
    let home = std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    let mut ancestors = file.ancestors().skip(1);
    let is_too_wide =
        |path: &Path| home.starts_with(path) || path.components().count() < MIN_COMPONENTS;
    let directory = ancestors.find(|path| {
        is_too_wide(path) || PROJECT_MARKERS.iter().any(|marker| path.join(marker).exists())
    })?;
    // An installed package uses the other packages in the same directory.
    let packages = directory.ancestors().filter(|path| path.ends_with("node_modules")).last();
    let directory = packages.and_then(Path::parent).unwrap_or(directory);
    (!is_too_wide(directory)).then(|| directory.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{FileGrant, resolve_grant};
    use crate::client::interpreter;
    use nanobot_config::settings::servers::{McpServer, ServerTransport};
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn named_paths_and_the_programs_own_files_are_granted() {
        let temp = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(temp.path()).unwrap();
        let home = root.join("u");
        for folder in [
            "state",
            "docs",
            "proj/build",
            "pkg/node_modules/.bin",
            "pkg/node_modules/s/dist",
            "read me",
            "venv/bin",
        ] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        for file in [
            "proj/package.json",
            "proj/build/i.js",
            "pkg/node_modules/s/package.json",
            "pkg/node_modules/s/dist/i.js",
            "alone.py",
            "bin",
        ] {
            std::fs::write(home.join(file), "").unwrap();
        }
        symlink("../s/dist/i.js", home.join("pkg/node_modules/.bin/s")).unwrap();
        let env: Env = [("HOME", home.to_str().unwrap())].into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        let check = |arguments: &[&str], reads: &[&str], writes: &[&str]| {
            let argument_text = |argument: &&str| argument.replace('@', home.to_str().unwrap());
            let server = McpServer {
                transport: ServerTransport::Program {
                    command: "x".into(),
                    arguments: arguments.iter().map(argument_text).collect(),
                    env: Vec::new(),
                    directory: None,
                },
                read_paths: vec!["~/read me".into(), "/nowhere".into()],
                ..McpServer::default()
            };
            let state = home.join("state");
            let grant = resolve_grant(&server, &[home.join("bin")], &state, &state, &paths);
            let all = |names: &[&str], more: &[&str]| {
                let mut all: Vec<PathBuf> =
                    names.iter().chain(more).map(|name| home.join(name)).collect();
                all.sort();
                all
            };
            let expect = FileGrant {
                state_dir: home.join("state"),
                reads: all(reads, &["read me", "bin"]),
                writes: all(writes, &["state"]),
            };
            assert_eq!(grant, expect, "{arguments:?}");
        };
        check(&["-y", "docs", "@/nowhere", "/"], &[], &[]);
        std::fs::write(home.join("venv/pyvenv.cfg"), "").unwrap();
        symlink(home.join("bin"), home.join("venv/bin/python")).unwrap();
        let state = home.join("state");
        let python = interpreter::resolve_chain(&home.join("venv/bin/python"), "").unwrap();
        let grant = resolve_grant(&McpServer::default(), &python, &state, &state, &paths);
        assert_eq!(grant.reads, [home.join("bin"), home.join("venv")]);
        check(
            &["@/docs", "--file=@/alone.py", "@/proj/package.json"],
            &["alone.py", "proj", "proj/package.json"],
            &["docs", "proj/package.json"],
        );
        check(&["@/proj/build/i.js"], &["proj", "proj/build/i.js"], &[]);
        let installed = "pkg/node_modules/s/dist/i.js";
        check(&["@/pkg/node_modules/.bin/s"], &["pkg", installed], &[]);
    }
}
