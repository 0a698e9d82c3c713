//! The sandboxes of MCP servers. Paths that the policy closes to every run stay closed to servers too, whatever their
//! config entries name.

use crate::mcp::client::{Grant, Walled, Walls};
use crate::ops::context::Context;
use crate::ops::permissions;
use crate::settings::Settings;
use crate::sys::paths::Real;
use crate::sys::sandbox::private;
use crate::sys::terminal::{Terminal, harmless};
use crate::tool::fence::{self, Station, Tools};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Builds the sandboxes.
struct Sandboxes {
    /// The part that is the same for all servers.
    common: Station,
    tools: Tools,
    /// The directories in which temporary directories for this run may be created.
    temporary: Vec<PathBuf>,
    terminal: Terminal,
    quiet: bool,
}

/// Returns the builder of sandboxes for the servers of `settings`.
pub(crate) fn of(ctx: &Context, settings: &Settings) -> Arc<dyn Walls> {
    let mut real = Real::default();
    let workspace = real.of(&permissions::absolute(&settings.workspace));
    let (mut hidden, notes, read_only) = permissions::closed(ctx, &workspace, &mut real);
    // A server's own directory lies in this one. The sandbox closes the other servers' directories beside it.
    let servers_dir = real.of(&permissions::absolute(&ctx.paths.mcp()));
    hidden.retain(|place| *place != servers_dir);
    Arc::new(Sandboxes {
        common: Station {
            home: real.of(&ctx.paths.home),
            ours: real.of(&permissions::absolute(&ctx.paths.root)),
            hidden,
            workspace,
            read_only: [notes, read_only].concat(),
            ..Station::default()
        },
        temporary: private::places(ctx.env.get("TMPDIR")),
        terminal: ctx.terminal,
        quiet: ctx.quiet,
        tools: Tools::new(ctx.env.get("PATH").unwrap_or_default(), &ctx.env),
    })
}

impl Walls for Sandboxes {
    fn around(&self, grant: &Grant) -> io::Result<Walled> {
        let Grant {
            state,
            reads,
            writes,
        } = grant.clone();
        let station = Station {
            reads,
            writes,
            temporary: private::another(&self.temporary)?,
            state,
            ..self.common.clone()
        };
        Ok(Walled {
            fence: fence::of_server(&station, &self.tools)?,
            env: fence::led(&station),
        })
    }

    fn tell(&self, words: &str) {
        if !self.quiet {
            self.terminal
                .complain(&format!("nanobot: {}", harmless(words)));
        }
    }
}
