//! The MCP servers of this process: a handle that costs nothing until a server is needed. Consecutive turns of a
//! conversation share the running servers, if they need the same servers with the same configuration.

use super::client::ClientConfig;
use super::mark;
use super::roster::Roster;
use crate::settings::servers::Server;
use crate::sys::clock::Clock;
use crate::sys::sync::IgnorePoison;
use std::sync::{Arc, Mutex, MutexGuard};

/// The servers of this process.
#[derive(Clone, Default)]
pub struct Servers(Arc<Mutex<Option<Standing>>>);

struct Standing {
    /// The fingerprint of the servers and their configuration.
    mark: String,
    roster: Roster,
}

impl Servers {
    /// Returns the catalog for `servers` of the config. If it differs from the current one, the current servers are
    /// ended.
    pub fn roster(&self, servers: &[Server], clock: &Clock, ground: ClientConfig) -> Roster {
        let mark = mark_of(servers, &ground);
        let mut standing = self.standing();
        if let Some(standing) = standing.as_ref().filter(|it| it.mark == mark) {
            return standing.roster.clone();
        }
        if let Some(before) = standing.take() {
            before.roster.end();
        }
        let roster = Roster::new(servers, clock, ground);
        *standing = Some(Standing {
            mark,
            roster: roster.clone(),
        });
        roster
    }

    /// Ends all running servers.
    pub fn end(&self) {
        let standing = self.standing().take();
        if let Some(standing) = standing {
            standing.roster.end();
        }
    }

    fn standing(&self) -> MutexGuard<'_, Option<Standing>> {
        self.0.lock().ignore_poison()
    }
}

/// Computes the fingerprint of these servers and their configuration.
fn mark_of(servers: &[Server], ground: &ClientConfig) -> String {
    let ClientConfig {
        env,
        paths,
        offline,
        answers,
        walls: _,
    } = ground;
    let mut mark = format!("{} {offline} {}", paths.root.display(), answers.is_some());
    for server in servers {
        let Server {
            name,
            reached: _,
            call_timeout,
            start_timeout,
            enabled,
            required,
            disabled,
            read,
            write,
            unfenced,
            unusable,
        } = server;
        let reached = mark::of_all(server, env);
        mark.push_str(&format!(
            "\n{name:?} {reached} {call_timeout:?} {start_timeout:?} {enabled:?} {required} {disabled} {read:?} {write:?} \
             {unfenced} {unusable:?}"
        ));
    }
    mark
}
