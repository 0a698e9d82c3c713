//! The web tools of a run, and their inputs: the hosts they may reach, and the content read so far.

use crate::ops::context::Context;
use crate::ops::shared_state::SharedState;
use crate::policy::seen::{Ground, Seen};
use crate::policy::{Policy, Sandbox};
use crate::settings::Settings;
use crate::sys::hosts::Hosts;
use crate::tool::Tool;
use crate::tool::web::Web;
use crate::tool::web_fetch::WebFetch;
use crate::tool::web_search::{Engines, WebSearch};
use std::sync::Arc;

/// The initial, empty record of content read by a run under `policy`.
pub(crate) fn seen(settings: &Settings, policy: &Policy) -> Arc<Seen> {
    let has_commands = settings.exec.enabled && policy.offers("exec");
    Arc::new(Seen::new(Ground {
        reach: policy.reach.clone(),
        workspace: policy.reach.workspace.clone(),
        commands_write_anywhere: has_commands && policy.sandbox == Sandbox::Off,
        real: Box::new(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
    }))
}

/// The web tools, in the order of the Python program; none if the config disables them.
pub(crate) fn tools(
    ctx: &Context,
    all: &Settings,
    policy: &Arc<Policy>,
    shared: &SharedState,
) -> Vec<Box<dyn Tool>> {
    let settings = &all.web;
    if !settings.enabled {
        return Vec::new();
    }
    let web = Arc::new(Web {
        policy: Arc::clone(policy),
        seen: Arc::clone(&shared.seen),
        free: shared.allowed_hosts(policy),
        spared: settings.spared.clone(),
        offline: shared.offline,
        proxy: settings.proxy.clone(),
        user_agent: settings.user_agent.clone(),
        hosts: Hosts::of(&ctx.env),
        limit: all.max_tool_result_chars,
        env: ctx.env.clone(),
    });
    // As in the Python program, a key without a provider means `brave`, and without a key another engine is used.
    let provider = match (&settings.engine, &settings.key, &settings.base) {
        (None, Some(_), _) => "brave",
        (Some(name), None, None) if name.eq_ignore_ascii_case("brave") => "duckduckgo",
        (Some(name), ..) => name,
        (None, None, _) => "duckduckgo",
    };
    let engines = Engines {
        provider: provider.to_owned(),
        key: settings.key.clone(),
        base: settings.base.clone(),
        count: settings.results,
        timeout: settings.timeout,
    };
    vec![
        Box::new(WebSearch::new(Arc::clone(&web), engines)),
        Box::new(WebFetch::new(web)),
    ]
}
