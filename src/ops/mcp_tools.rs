//! The MCP servers of a run: what they offer it, as far as it may have any of it, and what the policy is told of that. Where
//! no server is configured, or none of their tools could be on offer, nothing is looked at.

use crate::mcp::client::Ground;
use crate::mcp::name::PREFIX;
use crate::mcp::roster::{Offers, Roster, Wanted};
use crate::ops::context::Context;
use crate::ops::mcp_sandbox;
use crate::ops::toolset::{SetupInput, SharedState};
use crate::ops::web_tools;
use crate::policy::Policy;
use crate::tool::Tool;
use crate::tool::mcp::result::Limits;
use crate::tool::mcp::{Means, tools};
use anyhow::Result;
use std::sync::Arc;

/// What servers offer to a run.
#[derive(Clone, Default)]
pub(crate) struct McpTools {
    /// `None` where there are no servers.
    servers: Option<(Roster, Limits)>,
    offers: Arc<Offers>,
}

impl McpTools {
    /// Tell `policy` of the tools that may change something, as far as their servers do not say otherwise.
    pub(crate) fn add_to_policy(&self, policy: &mut Policy) {
        let may_change = self.offers.tools.iter().filter(|tool| !tool.reads_only);
        may_change.for_each(|tool| policy.beware(&tool.name));
    }

    /// All tools that are offered, for a run under `policy`.
    pub(crate) fn tools(
        &self,
        ctx: &Context,
        policy: &Policy,
        common: &SharedState,
    ) -> Vec<Box<dyn Tool>> {
        let Some((roster, limits)) = &self.servers else {
            return Vec::new();
        };
        let means = Means {
            roster: roster.clone(),
            limits: *limits,
            env: ctx.env.clone(),
            seen: Arc::clone(&common.seen),
            free: web_tools::free(policy, common),
        };
        tools(&means, &self.offers)
    }

    /// The words of strangers that these tools bring into the conversation before any of them is called: what servers say
    /// of them, where no person has accepted that.
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
            "the tools of {whose}, which nobody has accepted yet: {accept}"
        ))
    }

    /// Whether `tool` may be one of a server's that is missing.
    pub(crate) fn is_missing(&self, tool: &str) -> bool {
        let mut missing = self.offers.missing.iter();
        missing.any(|beginning| tool.starts_with(beginning))
    }
}

/// What servers offer to the run of `cast`, which `policy` and its flags allow it.
pub(crate) fn offered(
    ctx: &Context,
    cast: &SetupInput<'_>,
    policy: &Policy,
    notice: &mut dyn FnMut(&str),
) -> Result<McpTools> {
    let SetupInput {
        grants,
        settings,
        bound,
        offline,
        rehearsal,
        ..
    } = *cast;
    let any = |beginning: &str| {
        let listed = grants.tools.as_ref();
        !grants.no_tools
            && listed.is_none_or(|names| names.iter().any(|name| name.starts_with(beginning)))
            && policy.may_offer(beginning)
            && bound.is_none_or(|bound| bound.may_offer(beginning))
    };
    if settings.servers.iter().all(|server| server.disabled) || !any(PREFIX) {
        return Ok(McpTools::default());
    }
    let tool = |name: &str| {
        let listed = grants.tools.as_ref();
        listed.is_none_or(|names| names.iter().any(|it| it == name))
            && policy.offers(name)
            && bound.is_none_or(|bound| bound.offers(name))
    };
    let ground = Ground {
        env: ctx.env.clone(),
        paths: ctx.paths.clone(),
        offline,
        answers: cast.answers.clone(),
        walls: Some(mcp_sandbox::of(ctx, settings)),
    };
    let roster = ctx.servers.roster(&settings.servers, &ctx.clock, ground);
    let wanted = Wanted {
        tool: &tool,
        any: &any,
        known: rehearsal,
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
