//! The sandboxes of MCP servers. Paths that the policy closes to every run stay closed to servers too, whatever their
//! config entries name.

use crate::ops::context::Context;
use crate::ops::permissions;
use crate::ops::protected_paths;
use nanobot_config::policy::file_scope::{FileScope, ScopeRoot};
use nanobot_config::settings::Settings;
use nanobot_mcp::client::{FileGrant, SandboxFactory, SandboxedSpec};
use nanobot_os::paths::PathResolver;
use nanobot_os::terminal::{Terminal, sanitize};
use nanobot_sandbox::private_tmp;
use nanobot_tool::sandbox_spec::{self, InstalledTools, ServerScope};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Builds the sandboxes.
struct McpSandboxFactory {
    /// The part that is the same for all servers.
    shared_scope: ServerScope,
    tools: InstalledTools,
    /// The rules of the run about files.
    file_scope: FileScope,
    /// The directories in which temporary directories for this run may be created.
    temporary_dirs: Vec<PathBuf>,
    terminal: Terminal,
    quiet: bool,
}

/// Returns the builder of sandboxes for the servers of `settings`. What rules of `file_scope` deny to read stays closed to
/// them.
pub(crate) fn sandbox_factory(
    ctx: &Context,
    settings: &Settings,
    file_scope: &FileScope,
) -> Arc<dyn SandboxFactory> {
    let mut real = PathResolver::default();
    let workspace = real.resolve(&permissions::absolute(&settings.workspace));
    let (hidden, read_only) = protected_paths::protected_paths(ctx, &workspace);
    // A server's own directory lies in this one. The sandbox closes the other servers' directories beside it.
    let servers_dir = real.resolve(&permissions::absolute(&ctx.paths.mcp()));
    let others = hidden.iter().filter(|place| **place != servers_dir);
    Arc::new(McpSandboxFactory {
        shared_scope: ServerScope {
            home: real.resolve(&ctx.paths.home),
            nanobot_home: real.resolve(&permissions::absolute(&ctx.paths.root)),
            hidden: others.cloned().collect(),
            read_only: [protected_paths::instruction_files(&workspace), read_only.to_vec()]
                .concat(),
            workspace,
            ..ServerScope::default()
        },
        file_scope: file_scope.clone(),
        temporary_dirs: private_tmp::candidate_parents(ctx.env.get("TMPDIR")),
        terminal: ctx.terminal,
        quiet: ctx.quiet,
        tools: InstalledTools::new(ctx.env.get("PATH").unwrap_or_default(), &ctx.env),
    })
}

impl SandboxFactory for McpSandboxFactory {
    fn create(&self, grant: &FileGrant) -> io::Result<SandboxedSpec> {
        let FileGrant { state_dir: state, reads, writes } = grant.clone();
        let station = ServerScope {
            reads,
            writes,
            temp_dir: private_tmp::create_server_directory(&self.temporary_dirs)?,
            state_dir: state,
            ..self.shared_scope.clone()
        };
        let mut sandbox = sandbox_spec::for_server(&station, &self.tools)?;
        let roots = sandbox.readable.iter().chain(&sandbox.writable);
        let roots =
            roots.filter(|path| station.reads.contains(path) || station.writes.contains(path));
        let roots = roots.map(|path| ScopeRoot { path: path.clone(), may_write: false });
        let file_scope = FileScope { roots: roots.collect(), ..self.file_scope.clone() };
        sandbox.cover(sandbox_spec::denied_files(&file_scope, &sandbox)?);
        sandbox.tmp = Some(private_tmp::create_server_directory(&self.temporary_dirs)?);
        Ok(SandboxedSpec { sandbox, env: sandbox_spec::tool_env(&station) })
    }

    fn warn(&self, words: &str) {
        if !self.quiet {
            self.terminal.eprint(&format!("nanobot: {}", sanitize(words)));
        }
    }
}
