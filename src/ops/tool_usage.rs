//! Records which of the offered tools and skills a turn used, for reports such as `nanobot usage --by tool`.

use crate::event::Event;
use crate::ledger::Account;
use crate::ledger::tools::{Calls, Tools, Used};
use crate::mcp::name;
use crate::message::token_estimate;
use crate::ops::context::Context;
use crate::ops::turn_setup::TurnSetup;
use crate::skill::skill_of;
use crate::turn::agent::weight_of;
use crate::turn::ending::Tally;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Observes a running turn to record what its result does not include: the skills that were read.
pub(crate) struct UsageRecorder {
    /// The path of each skill's file.
    skills: Vec<(String, PathBuf)>,
    read: BTreeSet<String>,
    told: BTreeMap<String, u64>,
    told_of_skills: u64,
}

impl UsageRecorder {
    /// Creates a recorder before the turn. `servers` are the names of the configured MCP servers.
    pub(crate) fn new(setup: &TurnSetup, servers: &[&str]) -> Self {
        let mut told = BTreeMap::new();
        for spec in setup.toolbox.specs() {
            let server = server_of(&spec.name, servers).unwrap_or_default();
            *told.entry(server.to_owned()).or_default() += weight_of(spec);
        }
        Self {
            skills: setup.skills.clone(),
            read: BTreeSet::new(),
            told,
            told_of_skills: token_estimate::of_text(&setup.skill_list),
        }
    }

    /// Observes an event of the turn.
    pub(crate) fn see(&mut self, setup: &TurnSetup, event: &Event<'_>) {
        if let Event::ToolCall(call) = event
            && call.name == "read_file"
            && let Some(path) = call.arguments["path"].as_str()
        {
            let absolute = setup.policy.reach.absolute(path);
            let known = skill_of(&absolute.to_string_lossy(), &self.skills);
            self.read.extend(known.map(str::to_owned));
        }
    }

    /// Writes the record after the turn. A turn that called no tool is recorded only if MCP servers offered some.
    pub(crate) fn record(self, ctx: &Context, account: &Account, tally: &Tally) -> Result<()> {
        // Most runs call no tools and have no servers; they are not worth a write.
        let offers_more = self.told.keys().any(|server| !server.is_empty());
        if tally.iterations == 0 || (tally.tools.is_empty() && !offers_more) {
            return Ok(());
        }
        let calls = |(name, calls): (&String, &crate::turn::ending::Calls)| {
            let counted = Calls {
                count: calls.count,
                failed: calls.failed,
                denied: calls.denied,
            };
            (name.clone(), counted)
        };
        let used = Used {
            requests: tally.iterations,
            tools: tally.tools.iter().map(calls).collect(),
            skills: self.read,
            told: self.told,
            told_of_skills: self.told_of_skills,
        };
        Tools::new(&ctx.paths.root, &ctx.clock).record(account, used)
    }
}

/// The server in `servers` that offers `tool`. If several names match, the longest wins.
pub(crate) fn server_of<'a>(tool: &str, servers: &[&'a str]) -> Option<&'a str> {
    let named = servers.iter().filter(|server| !server.is_empty());
    named
        .filter(|server| tool.starts_with(&name::beginning(server)))
        .max_by_key(|server| server.len())
        .copied()
}

#[cfg(test)]
mod tests {
    use super::server_of;

    #[test]
    fn tools_belong_to_the_server_that_their_name_says() {
        let servers = ["", "git", "git_hub", "my server", "a__b"];
        let check = |tool: &str, expect: Option<&str>| {
            assert_eq!(server_of(tool, &servers), expect, "{tool}");
        };
        check("mcp_git_log", Some("git"));
        check("mcp_git_hub_log", Some("git_hub"));
        check("mcp_my_server_x", Some("my server"));
        check("mcp_a_b_x", Some("a__b"));
        check("mcp_gitlab_x", None);
        check("exec", None);
    }
}
