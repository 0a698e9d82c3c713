//! The files that a server's config entry names in its arguments and variables. The sandbox can grant a file that exists,
//! but not one that does not, and a granted file can be written but not replaced. So the server gets the directory of its file if no other
//! file is in it; otherwise the user receives a warning.

use crate::fingerprint::is_program;
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::servers::{self, McpServer, ServerTransport};
use nanobot_os::paths::Paths;
use nanobot_sandbox::process::server_environment::server_file_name;
use std::path::{Path, PathBuf};

/// Variables of a config entry that name programs, which the server may read.
pub(super) const PROGRAM_VARIABLES: &[&str] =
    &["LD_LIBRARY_PATH", "NODE_PATH", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"];
/// Variables of a config entry that grant nothing: directories and files of the system and of the user.
const SYSTEM_VARIABLES: &[&str] = &[
    "HOME",
    "OLDPWD",
    "PATH",
    "PWD",
    "SHELL",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];
/// Directories of the system in which a server creates files of its own, which are not kept.
const TEMPORARY_DIRS: &[&str] = &["/dev", "/proc", "/run", "/tmp", "/var/tmp"];

/// The number of components from which a directory may belong to one program. `/` and `/srv` have fewer: they are shared.
pub(super) const MIN_COMPONENTS: usize = 3;

/// An absolute path in an entry.
pub(super) struct NamedPath<'s> {
    pub(super) path: &'s Path,
    /// The variable; `None` for an argument.
    variable: Option<&'s str>,
}

/// The absolute paths that the entry of `server` names.
pub(super) fn named_paths(server: &McpServer) -> Vec<NamedPath<'_>> {
    let (arguments, env) = match &server.transport {
        ServerTransport::Program { arguments, env, .. } => (arguments.as_slice(), env.as_slice()),
        ServerTransport::Http(_) | ServerTransport::Sse(_) => Default::default(),
    };
    // Paths occur as `/a/b` and as `--file=/a/b`.
    let in_arguments = arguments.iter().map(|argument| match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => (value, None),
        _ => (argument.as_str(), None),
    });
    let is_in = |names: &[&str], name: &str| names.contains(&name);
    let in_env = env
        .iter()
        .filter(|(name, _)| !is_in(PROGRAM_VARIABLES, name) && !is_in(SYSTEM_VARIABLES, name))
        .filter_map(|(name, value)| Some((value.text()?.expose(), Some(name.as_str()))));
    let values = in_arguments.chain(in_env).filter(|(value, _)| value.starts_with('/'));
    values.map(|(value, variable)| NamedPath { path: Path::new(value), variable }).collect()
}

/// The own directory of a local server, which outlasts its runs.
pub(super) fn state_dir(paths: &Paths, server: &str) -> PathBuf {
    paths.mcp().join("state").join(server_file_name(server))
}

/// The directory of the file `path`, which need not exist, if it has only files that are among `named_paths`, the paths of the entry.
/// `None` for directories of this program and for general directories of the user.
pub(super) fn own_directory(
    named_paths: &[NamedPath<'_>],
    path: &Path,
    paths: &Paths,
) -> Option<PathBuf> {
    let real_path = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if path.is_dir() || is_program(&real_path(path)) {
        return None;
    }
    let directory = std::fs::canonicalize(path.parent()?).ok()?;
    let is_shared = real_path(&paths.home).starts_with(&directory)
        || directory.components().count() < MIN_COMPONENTS
        || directory.starts_with(real_path(&paths.root))
        || TEMPORARY_DIRS.iter().any(|temporary| directory == Path::new(temporary));
    let names: Vec<&[u8]> = named_paths
        .iter()
        .filter(|other| other.path.parent() == path.parent())
        .filter_map(|other| Some(other.path.file_name()?.as_encoded_bytes()))
        .collect();
    // Programs make files such as `NAME.tmp`, `NAME-wal` and `.NAME.swp` beside their file.
    let is_own = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let file_name = entry.file_name();
            let file_name = file_name.as_encoded_bytes();
            let visible_name = file_name.strip_prefix(b".").unwrap_or(file_name);
            names.iter().any(|name| file_name.starts_with(name) || visible_name.starts_with(name))
        })
    };
    let has_only_own =
        || std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.all(is_own));
    (!is_shared && has_only_own()).then_some(directory)
}

/// A file that an entry names and that its server cannot create, or cannot replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmakeableFile {
    pub path: PathBuf,
    /// True if the file exists. The server can then read and write it, which may be enough.
    pub exists: bool,
    /// The reason and the remedy, for the user.
    pub explanation: String,
}

/// The files that the entry of `server` names and that the server could not create or replace.
pub fn unmakeable_files(server: &McpServer, paths: &Paths) -> Vec<UnmakeableFile> {
    if server.is_unsandboxed {
        return Vec::new();
    }
    let named_paths = named_paths(server);
    let files = named_paths
        .iter()
        .filter_map(|named_path| unmakeable_file(server, &named_paths, named_path, paths));
    files.collect()
}

fn unmakeable_file(
    server: &McpServer,
    named_paths: &[NamedPath<'_>],
    named_path: &NamedPath<'_>,
    paths: &Paths,
) -> Option<UnmakeableFile> {
    let NamedPath { path, variable } = *named_path;
    let directory = path.parent()?;
    let has_directory = directory.is_dir();
    // Any other text that begins with a slash is probably not the path of a file.
    let is_file_path =
        directory.parent().is_some() && (has_directory || path.starts_with(&paths.home));
    let is_temporary = TEMPORARY_DIRS.iter().any(|temporary| path.starts_with(temporary))
        && !path.starts_with(&paths.home);
    let is_granted =
        path.is_dir() || is_program(path) || own_directory(named_paths, path, paths).is_some();
    if is_granted || !is_file_path || is_temporary {
        return None;
    }
    let exists = path.exists();
    let name = &server.name;
    let state_dir = state_dir(paths, name);
    let mut granted_paths: Vec<PathBuf> =
        server.write_paths.iter().map(|path| paths.expand(path)).collect();
    if let ServerTransport::Program { directory: Some(directory), .. } = &server.transport {
        granted_paths.push(paths.expand(directory));
    }
    let named_dirs = named_paths.iter().map(|named_path| named_path.path.to_owned());
    granted_paths.extend(named_dirs.filter(|path| path.is_dir()));
    granted_paths.push(state_dir.clone());
    if granted_paths.iter().any(|granted| path.starts_with(granted)) {
        return None;
    }
    let cause = if has_directory {
        "its directory has other files, which the entry does not name"
    } else {
        "its directory does not exist"
    };
    let file = state_dir.join(path.file_name()?);
    let file = file.display().to_string();
    let advice = match variable {
        Some(variable) => format!(
            "`nanobot config set {} {}` puts it into",
            servers::quoted_key(name, &["env", variable]),
            quote(&file)
        ),
        None => format!("`{file}` in the `args` of the entry is in"),
    };
    let verb = if exists { "replace" } else { "make" };
    let explanation = format!(
        "MCP server `{name}` cannot {verb} `{}`: {cause}; {advice} a directory of the server's own",
        path.display()
    );
    Some(UnmakeableFile { path: path.to_owned(), exists, explanation })
}

#[cfg(test)]
mod tests {
    use super::{NamedPath, own_directory, unmakeable_files};
    use nanobot_config::settings::servers::{McpServer, ServerTransport};
    use nanobot_os::env::Env;
    use nanobot_os::paths::Paths;
    use nanobot_os::secret::LazySecret;

    #[test]
    fn a_file_gets_a_directory_without_other_files() {
        let temp = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(temp.path()).unwrap();
        for folder in ["empty", "alone", "shared", "granted", ".nanobot/x"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        for file in
            ["alone/memory.json", "alone/.memory.json.swp", "shared/other", "shared/memory.json"]
        {
            std::fs::write(home.join(file), "").unwrap();
        }
        let env: Env = [("HOME", home.to_str().unwrap())].into_iter().collect();
        let paths = Paths::resolve(&env, None).unwrap();
        let check = |name: &str, directory: Option<&str>, cause: &str| {
            let path = home.join(name);
            let named = [NamedPath { path: &path, variable: None }];
            let directory_of_file = own_directory(&named, &path, &paths);
            assert_eq!(directory_of_file, directory.map(|it| home.join(it)), "{name}");
            let server = McpServer {
                name: "m".into(),
                transport: ServerTransport::Program {
                    command: "x".into(),
                    arguments: Vec::new(),
                    env: vec![("FILE".into(), LazySecret::new(path.to_str().unwrap()))],
                    directory: None,
                },
                write_paths: vec!["~/granted".into()],
                ..McpServer::default()
            };
            let files = unmakeable_files(&server, &paths);
            let explanation = files.first().map(|it| it.explanation.as_str()).unwrap_or_default();
            assert_eq!(explanation.is_empty(), cause.is_empty(), "{name}: {explanation}");
            assert!(explanation.contains(cause), "{name}: {explanation}");
            let line = "nanobot config set tools.mcpServers.m.env.FILE ";
            assert!(explanation.is_empty() || explanation.contains(line), "{explanation}");
        };
        check("empty/memory.json", Some("empty"), "");
        check("alone/memory.json", Some("alone"), "");
        check("shared/memory.json", None, "cannot replace");
        check("shared/new.json", None, "its directory has other files");
        check("new.json", None, "its directory has other files");
        check("none/new.json", None, "its directory does not exist");
        check("granted/sub/new.json", None, "");
        check(".nanobot/mcp/state/m/new.json", None, "");
        check("empty", None, "");
    }
}
