//! The MCP tools of a run: what servers offer, limited to what the run may use, and what the policy needs to know of
//! it. If no server is configured, or no MCP tool could be offered, no server is started.

use crate::mcp::client::ClientConfig;
use crate::mcp::name::PREFIX;
use crate::mcp::roster::Roster;
use crate::mcp::tool_list::{ToolList, ToolQuery};
use crate::ops::context::Context;
use crate::ops::mcp_sandbox;
use crate::ops::setup_input::SetupInput;
use crate::policy::Policy;
use crate::policy::seen::{Free, Seen};
use crate::tool::Tool;
use crate::tool::mcp::result::Limits;
use crate::tool::mcp::{Means, tools};
use anyhow::Result;
use std::sync::Arc;

/// The MCP tools of a run.
#[derive(Clone, Default)]
pub(crate) struct McpTools {
    /// `None` if there are no servers.
    servers: Option<(Roster, Limits)>,
    offers: Arc<ToolList>,
}

impl McpTools {
    /// Adds to `policy` the tools that may change something. Tools that their servers declare read-only are left out.
    pub(crate) fn add_to_policy(&self, policy: &mut Policy) {
        let may_change = self.offers.tools.iter().filter(|tool| !tool.reads_only);
        may_change.for_each(|tool| policy.beware(&tool.name));
    }

    /// All MCP tools, for a run that has read `provenance` and may reach `allowed`.
    pub(crate) fn tools(
        &self,
        ctx: &Context,
        seen: &Arc<Seen>,
        allowed: &Free,
    ) -> Vec<Box<dyn Tool>> {
        let Some((roster, limits)) = &self.servers else {
            return Vec::new();
        };
        let means = Means {
            roster: roster.clone(),
            limits: *limits,
            env: ctx.env.clone(),
            seen: Arc::clone(seen),
            free: allowed.clone(),
        };
        tools(&means, &self.offers)
    }

    /// Untrusted content that these tools add to the conversation before any call: descriptions by their servers that
    /// the user has not accepted.
    pub(crate) fn untrusted_descriptions(&self) -> Option<String> {
        let names: Vec<&str> = self.offers.unaccepted.iter().map(String::as_str).collect();
        let whose = match names.as_slice() {
            [] => return None,
            [name] => format!("the MCP server `{name}`"),
            names => format!("the MCP servers `{}`", names.join("`, `")),
        };
        let accept: Vec<String> = names
            .iter()
            .map(|name| format!("`nanobot mcp accept {name}`"))
            .collect();
        let accept = accept.join(", ");
        Some(format!(
            "the tools of {whose}, which you have not accepted yet: {accept}"
        ))
    }

    /// True if `tool` may belong to a server that is missing.
    pub(crate) fn is_missing(&self, tool: &str) -> bool {
        let mut missing = self.offers.missing.iter();
        missing.any(|beginning| tool.starts_with(beginning))
    }
}

/// The MCP tools that the run's flags and `policy` allow.
pub(crate) fn offered(
    ctx: &Context,
    input: &SetupInput<'_>,
    policy: &Policy,
    notice: &mut dyn FnMut(&str),
) -> Result<McpTools> {
    let SetupInput {
        grants,
        settings,
        policy_limit,
        offline,
        is_dry_run_or_replay,
        ..
    } = *input;
    let any = |beginning: &str| {
        let listed = grants.tools.as_ref();
        !grants.no_tools
            && listed.is_none_or(|names| names.iter().any(|name| name.starts_with(beginning)))
            && policy.may_offer(beginning)
            && policy_limit.is_none_or(|limit| limit.may_offer(beginning))
    };
    if settings.servers.iter().all(|server| server.disabled) || !any(PREFIX) {
        return Ok(McpTools::default());
    }
    let tool = |name: &str| {
        input.is_listed(name)
            && policy.offers(name)
            && policy_limit.is_none_or(|limit| limit.offers(name))
    };
    let ground = ClientConfig {
        env: ctx.env.clone(),
        paths: ctx.paths.clone(),
        offline,
        answers: input.answers.clone(),
        walls: Some(mcp_sandbox::of(ctx, settings)),
    };
    let roster = ctx.servers.roster(&settings.servers, &ctx.clock, ground);
    let wanted = ToolQuery {
        tool: &tool,
        any: &any,
        known: is_dry_run_or_replay,
    };
    let offers = roster.offers(wanted, notice)?;
    let limits = Limits {
        result: settings.max_tool_result_chars,
        offline,
    };
    Ok(McpTools {
        servers: Some((roster, limits)),
        offers: Arc::new(offers),
    })
}
