//! Records which of the offered tools and skills a turn used, for reports such as `nanobot usage --by tool`.

use crate::ops::context::Context;
use crate::ops::skills::use_message;
use crate::ops::turn_setup::TurnSetup;
use anyhow::Result;
use nanobot_agent::turn::agent::tool_tokens;
use nanobot_agent::turn::ending::TurnStats;
use nanobot_base::event::Event;
use nanobot_base::message::{UserMessage, plain_text, token_estimate};
use nanobot_mcp::tool_name;
use nanobot_model::ledger::CallPurpose;
use nanobot_model::ledger::tool_usage::{CallCounts, ToolUsage, ToolUsageLog};
use nanobot_store::skill::skill_at;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Observes a running turn to record the skills that were read, which its result does not include.
pub(crate) struct UsageRecorder {
    /// The path of each skill's file.
    skills: Vec<(String, PathBuf)>,
    /// The skills that the user named, and those that the model asked to read, even if the call failed.
    used_skills: BTreeSet<String>,
    /// By server; the empty name is for the program's own tools.
    definition_tokens: BTreeMap<String, u64>,
    skill_list_tokens: u64,
}

impl UsageRecorder {
    /// Creates a recorder before the turn with this `message`. `servers` are the names of the configured MCP servers.
    pub(crate) fn new(setup: &TurnSetup, servers: &[&str], message: Option<&UserMessage>) -> Self {
        let text = message.map(|message| plain_text(&message.parts)).unwrap_or_default();
        let names = setup.skills.iter().map(|(name, _)| name);
        let requested = names.filter(|name| text.starts_with(&use_message(name, "")));
        let mut definition_tokens = BTreeMap::new();
        for spec in &*setup.toolbox.requested_specs(&[]) {
            let server = find_server(&spec.name, servers).unwrap_or_default();
            *definition_tokens.entry(server.to_owned()).or_default() += tool_tokens(spec);
        }
        Self {
            skills: setup.skills.clone(),
            used_skills: setup.loaded_skills.iter().chain(requested).cloned().collect(),
            definition_tokens,
            skill_list_tokens: token_estimate::for_text(&setup.skill_list),
        }
    }

    /// Observes an event of the turn.
    pub(crate) fn observe(&mut self, setup: &TurnSetup, event: &Event<'_>) {
        if let Event::ToolCall(call) = event
            && call.name == "read_file"
            && let Some(path) = call.arguments["path"].as_str()
        {
            let absolute = setup.policy.file_scope.absolute(path);
            let skill = skill_at(&absolute.to_string_lossy(), &self.skills);
            self.used_skills.extend(skill.map(str::to_owned));
        }
    }

    /// Writes the record after the turn. A turn that called no tool is recorded only if it used a skill, or MCP servers offered tools.
    pub(crate) fn record(
        self,
        ctx: &Context,
        purpose: &CallPurpose,
        stats: &TurnStats,
    ) -> Result<()> {
        // Most runs call no tools and have no servers; they are not worth a write.
        let has_servers = self.definition_tokens.keys().any(|server| !server.is_empty());
        let has_used_any = !stats.tools.is_empty() || !self.used_skills.is_empty();
        if stats.iterations == 0 || !(has_used_any || has_servers) {
            return Ok(());
        }
        let tools = stats.tools.iter().map(|(name, calls)| {
            let counts =
                CallCounts { count: calls.count, failed: calls.failed, denied: calls.denied };
            (name.clone(), counts)
        });
        let usage = ToolUsage {
            requests: stats.iterations,
            tools: tools.collect(),
            skills: self.used_skills,
            definition_tokens: self.definition_tokens,
            skill_list_tokens: self.skill_list_tokens,
        };
        ToolUsageLog::new(&ctx.paths.root, &ctx.clock).append(purpose, usage)
    }
}

/// The server in `servers` that probably offers `tool`, by its prefix. If several names match, the longest wins.
pub(crate) fn find_server<'a>(tool: &str, servers: &[&'a str]) -> Option<&'a str> {
    servers
        .iter()
        .filter(|server| !server.is_empty())
        .filter(|server| tool.starts_with(&tool_name::server_prefix(server)))
        .max_by_key(|server| server.len())
        .copied()
}

#[cfg(test)]
mod tests {
    use super::find_server;

    #[test]
    fn finds_the_server_of_a_tool() {
        let servers = ["", "git", "git_hub", "my server", "a__b"];
        let check = |tool: &str, expect: Option<&str>| {
            assert_eq!(find_server(tool, &servers), expect, "{tool}");
        };
        check("mcp_git_log", Some("git"));
        check("mcp_git_hub_log", Some("git_hub"));
        check("mcp_my_server_x", Some("my server"));
        check("mcp_a_b_x", Some("a__b"));
        check("mcp_gitlab_x", None);
        check("exec", None);
    }
}
