//! The sandboxes of MCP servers: what the policy closes to everybody stays closed to them, whatever their entries name.

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

/// Puts them up.
struct Sandboxes {
    /// What is the same for all servers.
    common: Station,
    tools: Tools,
    /// Where directories may be made that go with the run.
    temporary: Vec<PathBuf>,
    terminal: Terminal,
    quiet: bool,
}

/// Who puts up the sandboxes of the servers of `settings`.
pub(crate) fn of(ctx: &Context, settings: &Settings) -> Arc<dyn Walls> {
    let mut real = Real::default();
    let workspace = real.of(&permissions::absolute(&settings.workspace));
    let (mut hidden, notes, read_only) = permissions::closed(ctx, &workspace, &mut real);
    // Its own directory is there, and the fence closes what lies beside that.
    let around = real.of(&permissions::absolute(&ctx.paths.mcp()));
    hidden.retain(|place| *place != around);
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
