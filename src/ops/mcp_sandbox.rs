//! The sandboxes of MCP servers. Paths that are hidden from every run are hidden from servers too, even if their config
//! names them.

use crate::ops::context::Context;
use crate::ops::permissions;
use crate::ops::protected_paths;
use nanobot_config::policy::file_scope::{FileScope, ScopeRoot};
use nanobot_config::settings::Settings;
use nanobot_mcp::client::{FileGrant, SandboxFactory, SandboxedSpec};
use nanobot_os::symlinks::PathResolver;
use nanobot_os::terminal::{Terminal, sanitize};
use nanobot_sandbox::private_tmp;
use nanobot_tool::sandbox_spec::{self, InstalledTools, ServerScope};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Builds the sandboxes.
struct McpSandboxFactory {
    /// The rules that are the same for all servers.
    shared_scope: ServerScope,
    tools: InstalledTools,
    /// The rules of the run about files.
    file_scope: FileScope,
    /// The directories in which temporary directories for this run may be created.
    temporary_dirs: Vec<PathBuf>,
    terminal: Terminal,
    quiet: bool,
}

/// Returns the builder of sandboxes for the servers of `settings`. They cannot read files that rules of `file_scope` deny.
pub(crate) fn sandbox_factory(
    ctx: &Context,
    settings: &Settings,
    file_scope: &FileScope,
) -> Arc<dyn SandboxFactory> {
    let mut real_paths = PathResolver::default();
    let workspace = real_paths.resolve(&permissions::absolute(&settings.workspace));
    let (hidden, read_only) = protected_paths::protected_paths(ctx, &workspace);
    // A server's own directory lies in this one. The sandbox closes the other servers' directories beside it.
    let servers_dir = real_paths.resolve(&permissions::absolute(&ctx.paths.mcp()));
    let hidden = hidden.iter().filter(|path| **path != servers_dir);
    Arc::new(McpSandboxFactory {
        shared_scope: ServerScope {
            home: real_paths.resolve(&ctx.paths.home),
            nanobot_home: real_paths.resolve(&permissions::absolute(&ctx.paths.root)),
            hidden: hidden.cloned().collect(),
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
        let FileGrant { state_dir, reads, writes } = grant.clone();
        let server_scope = ServerScope {
            reads,
            writes,
            temp_dir: private_tmp::create_server_directory(&self.temporary_dirs)?,
            state_dir,
            ..self.shared_scope.clone()
        };
        let mut sandbox = sandbox_spec::for_server(&server_scope, &self.tools)?;
        // Each root once, since they are searched with one limit.
        let reads = server_scope.reads.iter().filter(|path| !server_scope.writes.contains(path));
        let roots = server_scope
            .writes
            .iter()
            .chain(reads)
            .map(|path| ScopeRoot { path: path.clone(), may_write: false });
        let file_scope = FileScope { roots: roots.collect(), ..self.file_scope.clone() };
        sandbox_spec::apply_rules(&file_scope, &mut sandbox)?;
        // `temp_dir` is the server's TMPDIR; this is what it sees at /tmp.
        sandbox.tmp = Some(private_tmp::create_server_directory(&self.temporary_dirs)?);
        Ok(SandboxedSpec { sandbox, env: sandbox_spec::tool_env(&server_scope) })
    }

    fn fingerprint(&self) -> String {
        let scopes = self.file_scope.self_and_operands();
        let scopes = scopes.iter().filter(|scope| !scope.denied.is_empty());
        let rules = scopes.map(|scope| (&scope.denied, &scope.directory));
        format!("{:?}", rules.collect::<Vec<_>>())
    }

    fn warn(&self, message: &str) {
        if !self.quiet {
            self.terminal.eprint(&format!("nanobot: {}", sanitize(message)));
        }
    }
}
