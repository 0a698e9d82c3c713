//! Starts a server that is a local program, with the directories, the environment and the sandbox of its config entry.

use super::config::{ClientConfig, log_path};
use super::grants::{self, SandboxedSpec};
use super::inbox::Inbox;
use super::interpreter;
use super::named_files::state_dir;
use super::stdio::{RunningPrograms, StdioTransport};
use crate::protocol::McpError;
use nanobot_config::settings::servers::{McpServer, ServerTransport};
use nanobot_os::durable_file;
use nanobot_os::secret::{LazySecret, Secret};
use nanobot_sandbox::NetworkAccess;
use nanobot_sandbox::process::server::ServerSpec;
use nanobot_sandbox::process::server_environment::{build_environment, resolve_program};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Starts a server that is a local program.
///
/// # Errors
/// The server cannot be started, or not with this configuration.
pub(super) fn start(
    server: &McpServer,
    config: &ClientConfig,
    programs: &Arc<RunningPrograms>,
    inbox: &Arc<Inbox>,
) -> Result<Arc<StdioTransport>, McpError> {
    let ServerTransport::Program { command, arguments, env, directory } = &server.transport else {
        unreachable!("only programs are started");
    };
    let resolve =
        |(name, value): &(String, LazySecret)| Ok((name.clone(), value.resolve()?.clone()));
    let env: Vec<_> = env
        .iter()
        .map(resolve)
        .collect::<anyhow::Result<_>>()
        .map_err(|error| McpError::Unusable(format!("{error:#}")))?;
    let state_dir = state_dir(&config.paths, &server.name);
    let temporary_dir = state_dir.join("tmp");
    durable_file::create_dir(&temporary_dir)
        .map_err(|error| McpError::Unreachable(format!("{error:#}")))?;
    let directory = match directory {
        Some(directory) => config.paths.expand(directory),
        None => state_dir.clone(),
    };
    if !directory.is_dir() {
        let cause = format!("its `cwd` `{}` is not a directory", directory.display());
        return Err(McpError::Unusable(cause));
    }
    let mut server_env = build_environment(config.env.iter(), &env, &temporary_dir);
    let program = resolve_program(command, &server_env, &directory, &config.paths)
        .map_err(McpError::Unusable)?;
    if command.contains('/') {
        append_to_path(&mut server_env, &program);
    }
    let search_path = server_env.iter().find(|(name, _)| name == "PATH");
    let search_path = search_path.map_or("", |(_, value)| value);
    let chain = interpreter::resolve_chain(&program, search_path).map_err(McpError::Unusable)?;
    let sandbox = if server.is_unsandboxed {
        None
    } else {
        let Some(sandboxes) = &config.sandboxes else {
            return Err(McpError::Unusable("no sandbox is available for it".into()));
        };
        let grant = grants::resolve_grant(server, &chain, &directory, &state_dir, &config.paths);
        let SandboxedSpec { mut sandbox, env: sandbox_env } =
            sandboxes.create(&grant).map_err(|error| match error.kind() {
                ErrorKind::InvalidInput => McpError::Unusable(error.to_string()),
                _ => McpError::Unreachable(format!("create its sandbox: {error}")),
            })?;
        add_sandbox_env(&mut server_env, sandbox_env, &env);
        // The sandbox cannot allow one network address and deny another.
        if config.offline {
            sandbox.network = NetworkAccess::Nothing;
        }
        for path in chain.iter().chain([&directory]) {
            sandbox.add_links(path);
        }
        for argument in arguments {
            sandbox.add_links(Path::new(argument));
        }
        Some(sandbox)
    };
    let spec = ServerSpec {
        name: server.name.clone(),
        program,
        arguments: arguments.clone(),
        directory,
        env: server_env,
        sandbox,
    };
    let log = log_path(&config.paths, &server.name);
    StdioTransport::start(&spec, log, programs, config.sandboxes.clone(), inbox)
}

/// Adds the variables that the sandbox requires, except those that the config entry sets itself.
fn add_sandbox_env(
    env: &mut Vec<(String, String)>,
    sandbox_env: Vec<(String, String)>,
    entry_env: &[(String, Secret)],
) {
    for (name, value) in sandbox_env {
        if !entry_env.iter().any(|(other, _)| *other == name) {
            env.retain(|(other, _)| *other != name);
            env.push((name, value));
        }
    }
}

/// Appends the directory of `program` to the PATH in `env`. A program whose interpreter is installed in the same
/// directory then works under cron too, where the PATH is short, if the config names the program by its path.
fn append_to_path(env: &mut Vec<(String, String)>, program: &Path) {
    let Some(directory) = program.parent().and_then(Path::to_str) else {
        return;
    };
    match env.iter_mut().find(|(name, _)| name == "PATH") {
        Some((_, path)) => *path = format!("{path}:{directory}"),
        None => env.push(("PATH".into(), directory.into())),
    }
}
