//! The MCP tools of a run: the tools that servers offer and the run may use, and their additions to the policy. If no server is configured,
//! or no MCP tool could be offered, no server is started.

use crate::ops::context::Context;
use crate::ops::mcp_sampling::TurnSampler;
use crate::ops::mcp_sandbox;
use crate::ops::model::ModelHandle;
use crate::ops::turn_setup::setup_input::SetupInput;
use anyhow::Result;
use nanobot_agent::prompt::{PromptSection, servers_section};
use nanobot_base::message::{tagged_block, token_estimate};
use nanobot_config::policy::Policy;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_config::policy::provenance::{AllowedHosts, ProvenanceTracker};
use nanobot_config::policy::rule::Pattern;
use nanobot_config::settings::Settings;
use nanobot_mcp::catalog::ToolCatalog;
use nanobot_mcp::client::{ClientConfig, ElicitationHandler};
use nanobot_mcp::tool_list::{ToolList, ToolQuery, ToolView};
use nanobot_mcp::tool_name::{FIND_TOOLS, PREFIX};
use nanobot_tool::Tool;
use nanobot_tool::files::Files;
use nanobot_tool::mcp::result::ResultLimits;
use nanobot_tool::mcp::{ChargedSampler, McpToolContext, build_tools};
use std::sync::Arc;

/// The MCP tools of a run.
#[derive(Clone, Default)]
pub(crate) struct McpTools {
    /// `None` if there are no servers.
    catalog: Option<(ToolCatalog, ResultLimits)>,
    /// `None` if no server may use the model.
    sampler: Option<Arc<TurnSampler>>,
    tool_list: Arc<ToolList>,
}

impl McpTools {
    /// Adds to `policy` the tools that may change something. Tools that their servers declare read-only are left out.
    pub(crate) fn add_to_policy(&self, policy: &mut Policy) {
        let may_change = self.tool_list.tools.iter().filter(|tool| !tool.reads_only);
        may_change.for_each(|tool| policy.require_approval(&tool.name));
    }

    /// All MCP tools, for a run with this `provenance` that may reach `allowed_hosts`, and changes `files`.
    pub(crate) fn tools(
        &self,
        ctx: &Context,
        provenance: &Arc<ProvenanceTracker>,
        allowed_hosts: &AllowedHosts,
        files: &Arc<Files>,
    ) -> Vec<Arc<dyn Tool>> {
        let Some((catalog, limits)) = &self.catalog else {
            return Vec::new();
        };
        let context = McpToolContext {
            catalog: catalog.clone(),
            limits: *limits,
            sampler: self.sampler.clone().map(|sampler| sampler as Arc<dyn ChargedSampler>),
            env: ctx.env.clone(),
            provenance: Arc::clone(provenance),
            allowed_hosts: allowed_hosts.clone(),
            files: Arc::clone(files),
        };
        build_tools(&context, &self.tool_list)
    }

    /// The servers of the run, also if none of their tools is offered.
    pub(crate) fn catalog(
        &self,
        ctx: &Context,
        settings: &Settings,
        offline: bool,
        elicitation: Option<Arc<dyn ElicitationHandler>>,
        file_scope: &FileScope,
    ) -> ToolCatalog {
        match &self.catalog {
            Some((catalog, _)) => catalog.clone(),
            None => open_catalog(ctx, settings, offline, elicitation, file_scope),
        }
    }

    /// Sets the model that servers may use during their calls.
    pub(crate) fn set_model(&self, model: &ModelHandle) {
        if let Some(sampler) = &self.sampler {
            sampler.set_model(model);
        }
    }

    /// The tools of a sub-agent with this model.
    pub(crate) fn for_subagent(&self, model: &ModelHandle, settings: &Settings) -> Self {
        let sampler = self.sampler.as_ref();
        let sampler = sampler.map(|sampler| Arc::new(sampler.for_subagent(model, settings)));
        Self { sampler, ..self.clone() }
    }

    /// The section of the prompt with the instructions of the servers, if there are any.
    pub(crate) fn instructions_section(&self) -> Option<PromptSection> {
        let instructions = &self.tool_list.instructions;
        let blocks = instructions
            .iter()
            .map(|instructions| {
                tagged_block("server", Some(&instructions.server), &instructions.text)
            })
            .collect::<Vec<_>>();
        (!blocks.is_empty()).then(|| servers_section(&blocks.join("\n")))
    }

    /// Untrusted content that these tools add to the conversation before any call: descriptions by their servers that
    /// the user has not accepted.
    pub(crate) fn untrusted_descriptions(&self, settings: &Settings) -> Option<String> {
        let names: Vec<&str> = self.tool_list.unaccepted.iter().map(String::as_str).collect();
        let servers = match names.as_slice() {
            [] => return None,
            [name] => format!("the MCP server `{name}`"),
            names => format!("the MCP servers `{}`", names.join("`, `")),
        };
        let servers_of_run = settings.servers.iter();
        let unaccepted = servers_of_run.filter(|server| names.contains(&server.name.as_str()));
        let commands: Vec<String> =
            unaccepted.map(|server| format!("`{}`", server.accept_command())).collect();
        let commands = commands.join(", ");
        Some(format!("the tools of {servers}, which you have not accepted yet: {commands}"))
    }

    /// The tools whose results are not untrusted content: those of the servers that the config trusts, and the search for tools.
    pub(crate) fn trusted_tools(&self, settings: &Settings) -> Vec<String> {
        let is_trusted = |name: &str| {
            let mut servers = settings.servers.iter();
            servers.any(|server| server.is_trusted && server.name == name)
        };
        let tools = self.tool_list.tools.iter();
        let trusted = tools.filter(|tool| is_trusted(&tool.server));
        // A search shows descriptions. Those that the user has not accepted count from the start of the conversation.
        trusted.map(|tool| tool.name.clone()).chain([FIND_TOOLS.to_owned()]).collect()
    }

    /// True if `tool` may belong to a server that is missing.
    pub(crate) fn is_missing(&self, tool: &str) -> bool {
        let mut missing = self.tool_list.missing.iter();
        missing.any(|prefix| tool.starts_with(prefix))
    }
}

/// The MCP tools that the run's flags and `policy` allow.
pub(crate) fn load_mcp_tools(
    ctx: &Context,
    input: &SetupInput<'_>,
    policy: &Policy,
    notice: &mut dyn FnMut(&str),
) -> Result<McpTools> {
    let SetupInput { grants, settings, policy_limit, offline, is_dry_run_or_replay, .. } = *input;
    let allows_prefix = |prefix: &str| {
        let listed_names = grants.tools.as_ref();
        !grants.no_tools
            && listed_names.is_none_or(|names| {
                let mut names = names.iter().map(|name| Pattern::new(name.as_str()));
                names.any(|name| name.may_match_prefix(prefix))
            })
            && policy.can_offer(prefix)
            && policy_limit.is_none_or(|limit| limit.can_offer(prefix))
    };
    if settings.servers.iter().all(|server| server.is_disabled) || !allows_prefix(PREFIX) {
        return Ok(McpTools::default());
    }
    let allows_tool = |name: &str| {
        input.is_listed(name)
            && policy.is_offered(name)
            && policy_limit.is_none_or(|limit| limit.is_offered(name))
    };
    let catalog =
        open_catalog(ctx, settings, offline, input.elicitation.clone(), &policy.file_scope);
    let query = ToolQuery {
        allows_tool: &allows_tool,
        allows_prefix: &allows_prefix,
        cached_only: is_dry_run_or_replay,
    };
    let mut tool_list = catalog.list_tools(query, notice)?;
    tool_list.is_searched = allows_tool(FIND_TOOLS)
        && count_tokens(&tool_list.tools) > settings.tools.mcp_budget_tokens;
    let limits = ResultLimits { max_result_chars: settings.max_tool_result_chars };
    Ok(McpTools {
        catalog: Some((catalog, limits)),
        sampler: TurnSampler::new(ctx, settings, input.user_prompt.clone()),
        tool_list: Arc::new(tool_list),
    })
}

fn open_catalog(
    ctx: &Context,
    settings: &Settings,
    offline: bool,
    elicitation: Option<Arc<dyn ElicitationHandler>>,
    file_scope: &FileScope,
) -> ToolCatalog {
    let client_config = ClientConfig {
        env: ctx.env.clone(),
        network: settings.network.clone(),
        paths: ctx.paths.clone(),
        offline,
        elicitation,
        sandboxes: Some(mcp_sandbox::sandbox_factory(ctx, settings, file_scope)),
    };
    ctx.servers.for_servers(&settings.servers, &ctx.clock, client_config)
}

/// Estimates the tokens of `tools` in a request.
fn count_tokens(tools: &[ToolView]) -> u64 {
    let tool_tokens = |tool: &ToolView| {
        token_estimate::for_text(&tool.name)
            + token_estimate::for_text(&tool.description)
            + token_estimate::for_value(&tool.schema)
    };
    tools.iter().map(tool_tokens).sum()
}
