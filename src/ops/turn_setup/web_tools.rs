//! The web tools of a run, and their inputs: the hosts they may reach, and the content read so far.

use crate::ops::context::Context;
use crate::ops::turn_setup::mcp_tools::McpTools;
use crate::ops::turn_setup::shared_state::SharedState;
use nanobot_config::policy::net::Net;
use nanobot_config::policy::provenance::{ProvenanceTracker, TrustContext};
use nanobot_config::policy::{Policy, Sandbox};
use nanobot_config::settings::{Settings, WebSettings};
use nanobot_net::test_dns::TestHosts;
use nanobot_os::env::BRAVE_API_KEY;
use nanobot_os::secret::LazySecret;
use nanobot_sandbox::private_tmp;
use nanobot_store::skill::BUILT_IN_SKILLS;
use nanobot_tool::Tool;
use nanobot_tool::host_proxy::HostTraffic;
use nanobot_tool::web::WebAccess;
use nanobot_tool::web::engine::{engine_names, find_engine};
use nanobot_tool::web::page_cache::PageCache;
use nanobot_tool::web_fetch::WebFetch;
use nanobot_tool::web_search::{self, SearchSettings};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The search engine that needs no key.
const DEFAULT_ENGINE: &str = "duckduckgo";

/// The initial, empty record of content read by a run under `policy`.
pub(crate) fn new_provenance_tracker(
    settings: &Settings,
    policy: &Policy,
    mcp_tools: &McpTools,
    host_traffic: &Arc<HostTraffic>,
) -> Arc<ProvenanceTracker> {
    let has_commands =
        settings.exec.enabled && policy.is_offered("exec") || !settings.tools.programs.is_empty();
    let host_traffic = Arc::clone(host_traffic);
    Arc::new(ProvenanceTracker::new(TrustContext {
        file_scope: policy.file_scope.clone(),
        workspace: policy.file_scope.workspace.clone(),
        commands_write_anywhere: has_commands && policy.sandbox == Sandbox::Off,
        commands_have_network: policy.sandbox == Sandbox::Off || policy.net == Net::Any,
        hosts_have_sent: Box::new(move || host_traffic.may_have_carried()),
        trusted_tools: mcp_tools.trusted_tools(settings),
        skill_hosts: skill_hosts(&policy.file_scope.workspace),
        is_private: private_tmp::is_private,
        resolve_real_path: Box::new(|path| {
            std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
        }),
    }))
}

/// The paths in the workspace of the built-in skills that have hosts, with these hosts. A skill that a file there overrides is left
/// out.
fn skill_hosts(workspace: &Path) -> Vec<(PathBuf, &'static [&'static str])> {
    let skills = BUILT_IN_SKILLS.iter().filter(|skill| !skill.hosts.is_empty());
    let skill_files = skills.map(|skill| {
        let folder = workspace.join("skills").join(skill.name);
        (folder.join("SKILL.md"), skill.hosts)
    });
    skill_files.filter(|(path, _)| !path.exists()).collect()
}

/// The web tools, in the order of the Python program; none if the config disables them.
pub(crate) fn tools(
    ctx: &Context,
    settings: &Settings,
    policy: &Arc<Policy>,
    shared: &SharedState,
) -> Vec<Arc<dyn Tool>> {
    let web_settings = &settings.web;
    if !web_settings.enabled {
        return Vec::new();
    }
    let web = Arc::new(WebAccess {
        policy: Arc::clone(policy),
        provenance: Arc::clone(&shared.provenance),
        allowed_hosts: shared.allowed_hosts(policy),
        allowed_ranges: web_settings.allowed_ranges.clone(),
        offline: shared.offline,
        proxy: web_settings.proxy.clone(),
        user_agent: web_settings.user_agent.clone(),
        test_dns: TestHosts::from_env(&ctx.env),
        max_result_chars: settings.max_tool_result_chars,
        cache: PageCache::default(),
        network: settings.network.clone(),
        env: ctx.env.clone(),
    });
    let SearchChoice { provider, key, .. } = choose_engine(ctx, web_settings);
    let engines = SearchSettings {
        provider,
        key,
        base: web_settings.search_base_url.clone(),
        engine_id: web_settings.search_engine_id.clone(),
        count: web_settings.max_results,
        timeout: web_settings.search_timeout,
    };
    vec![Arc::new(web_search::tool(Arc::clone(&web), engines)), Arc::new(WebFetch::new(web))]
}

/// The search engine of a run.
struct SearchChoice {
    /// Its name in the config.
    provider: String,
    key: Option<LazySecret>,
    /// The problem with the config, if another engine is used than it names, or none.
    problem: Option<String>,
}

/// Chooses the search engine. As in the Python program, a key without a provider means `brave`, and an engine that lacks its key is
/// replaced by DuckDuckGo.
fn choose_engine(ctx: &Context, web_settings: &WebSettings) -> SearchChoice {
    let WebSettings { search_engine, search_api_key, search_base_url, search_engine_id, .. } =
        web_settings;
    let variable_key = |names: &[&str]| names.iter().find_map(|name| ctx.env.get(name));
    let has_brave_key = search_api_key.is_some() || ctx.env.get(BRAVE_API_KEY).is_some();
    let default = if has_brave_key { "brave" } else { DEFAULT_ENGINE };
    let name = search_engine.as_deref().unwrap_or(default);
    let Some(engine) = find_engine(name) else {
        let problem =
            format!("`tools.web.search.provider` is `{name}`, expected one of {}", engine_names());
        return SearchChoice { provider: name.to_owned(), key: None, problem: Some(problem) };
    };
    let key =
        search_api_key.clone().or_else(|| variable_key(engine.key_variables).map(LazySecret::new));
    if engine.needs_key() && key.is_none() && search_base_url.is_none() {
        let variables = engine.key_variables.join("` or `");
        let problem = format!(
            "{} has no key (`tools.web.search.apiKey` or `{variables}`): DuckDuckGo is searched instead",
            engine.label
        );
        return SearchChoice { provider: DEFAULT_ENGINE.into(), key: None, problem: Some(problem) };
    }
    let problem = if engine.needs_engine_id() && search_engine_id.is_none() {
        Some(format!("{} requires `tools.web.search.engineId`", engine.label))
    } else if !engine.has_address() && search_base_url.is_none() {
        Some(format!("{} requires an address in `tools.web.search.baseUrl`", engine.label))
    } else {
        None
    };
    SearchChoice { provider: engine.name.to_owned(), key, problem }
}

/// The problem with the configured search engine, if searches fail or another engine is used.
pub(crate) fn search_problem(ctx: &Context, settings: &Settings) -> Option<String> {
    if settings.web.enabled { choose_engine(ctx, &settings.web).problem } else { None }
}
