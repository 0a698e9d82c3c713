//! The web tools of a run, and the choice of its search engines.

use crate::ops::context::Context;
use crate::ops::native_search::native_problem;
use crate::ops::turn_setup::shared_state::SharedState;
use nanobot_config::policy::Policy;
use nanobot_config::settings::Settings;
use nanobot_net::test_dns::TestHosts;
use nanobot_os::env::BRAVE_API_KEY;
use nanobot_os::secret::LazySecret;
use nanobot_tool::Tool;
use nanobot_tool::web::WebAccess;
use nanobot_tool::web::engine::{NATIVE, engine_names, find_engine};
use nanobot_tool::web::page_cache::PageCache;
use nanobot_tool::web::reader::PageReader;
use nanobot_tool::web_fetch::WebFetch;
use nanobot_tool::web_search::{EngineSettings, ProviderSearch, SearchSettings, WebSearch};
use std::sync::Arc;

/// The search engine that needs no key.
const DEFAULT_ENGINE: &str = "duckduckgo";

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
        reader: web_settings.reader.as_deref().map(|name| PageReader::new(name, &ctx.env)),
    });
    let (terminal, notices, quiet) = (ctx.terminal, ctx.single_notices.clone(), ctx.quiet);
    let native = shared.native_search.clone();
    let search = SearchSettings {
        engines: choose_engines(ctx, settings).engines,
        native: native.map(|search| search as Arc<dyn ProviderSearch>),
        is_native_always_allowed: web_settings.is_native_search_always_allowed,
        count: web_settings.max_results,
        timeout: web_settings.search_timeout,
        notice: Box::new(move |text| {
            if !quiet && notices.is_new(text) {
                terminal.eprint(&format!("nanobot: {text}"));
            }
        }),
    };
    vec![Arc::new(WebSearch::new(Arc::clone(&web), search)), Arc::new(WebFetch::new(web))]
}

/// The search engines of a run.
struct SearchChoice {
    /// In the order in which they are queried; at least one.
    engines: Vec<EngineSettings>,
    /// The problems with the config: an engine cannot be used, or is replaced by another one.
    problems: Vec<String>,
}

/// Chooses the search engines. As in the Python program, a key without a provider means `brave`, and an engine that lacks its key is
/// replaced by DuckDuckGo, unless there is a fallback.
fn choose_engines(ctx: &Context, settings: &Settings) -> SearchChoice {
    let web_settings = &settings.web;
    let has_brave_key =
        web_settings.search_api_key.is_some() || ctx.env.get(BRAVE_API_KEY).is_some();
    let default = if has_brave_key { "brave" } else { DEFAULT_ENGINE };
    let first = web_settings.search_engine.as_deref().unwrap_or(default);
    let mut choice = SearchChoice { engines: Vec::new(), problems: Vec::new() };
    let configured = EngineSettings {
        provider: first.to_owned(),
        key: web_settings.search_api_key.clone(),
        base: web_settings.search_base_url.clone(),
        engine_id: web_settings.search_engine_id.clone(),
    };
    add_engine(ctx, configured, "tools.web.search.provider", &mut choice);
    for name in &web_settings.search_fallback {
        let fallback = EngineSettings {
            provider: name.clone(),
            key: None,
            base: None,
            engine_id: web_settings.search_engine_id.clone(),
        };
        add_engine(ctx, fallback, "tools.web.search.fallback", &mut choice);
    }
    if choice.engines.is_empty() {
        if let Some(problem) = choice.problems.first_mut() {
            problem.push_str(": DuckDuckGo is searched instead");
        }
        choice.engines.push(EngineSettings {
            provider: DEFAULT_ENGINE.to_owned(),
            key: None,
            base: None,
            engine_id: None,
        });
    }
    choice
}

/// Adds the engine that the config key `config_key` names to `choice`, with the key and the address that its variables have. An engine
/// without its key is left out. One with another problem stays: its error says what is missing.
fn add_engine(
    ctx: &Context,
    mut settings: EngineSettings,
    config_key: &str,
    choice: &mut SearchChoice,
) {
    if settings.provider == NATIVE {
        choice.engines.push(settings);
        return;
    }
    let variable_value = |names: &[&str]| names.iter().find_map(|name| ctx.env.get(name));
    let Some(engine) = find_engine(&settings.provider) else {
        let (name, names) = (&settings.provider, engine_names());
        choice.problems.push(format!("`{config_key}` is `{name}`, expected one of {names}"));
        choice.engines.push(settings);
        return;
    };
    if choice.engines.iter().any(|earlier| earlier.provider == engine.name) {
        return;
    }
    settings.provider = engine.name.to_owned();
    settings.key =
        settings.key.or_else(|| variable_value(engine.key_variables).map(LazySecret::new));
    if settings.base.is_none() {
        let address = engine.base_variable.and_then(|name| ctx.env.get(name));
        settings.base = address.map(str::to_owned);
    }
    let label = engine.label;
    if engine.needs_key() && settings.key.is_none() && settings.base.is_none() {
        let variables = engine.key_variables.join("` or `");
        let problem = format!("{label} has no key (`tools.web.search.apiKey` or `{variables}`)");
        choice.problems.push(problem);
        return;
    }
    if engine.needs_engine_id() && settings.engine_id.is_none() {
        choice.problems.push(format!("{label} requires `tools.web.search.engineId`"));
    } else if !engine.has_address() && settings.base.is_none() {
        let problem = format!("{label} requires an address in `tools.web.search.baseUrl`");
        choice.problems.push(problem);
    }
    choice.engines.push(settings);
}

/// The problems with the configured search engines: searches fail, or other engines are used.
pub(crate) fn search_problems(ctx: &Context, settings: &Settings) -> Vec<String> {
    if !settings.web.enabled {
        return Vec::new();
    }
    let SearchChoice { engines, mut problems } = choose_engines(ctx, settings);
    if engines.iter().any(|engine| engine.provider == NATIVE) {
        problems.extend(native_problem(ctx, settings));
    }
    problems
}
