//! The web tools of a run, and what they have to know: what may be reached, and what has been seen.

use super::places::Cast;
use crate::World;
use crate::policy::seen::addresses;
use crate::policy::seen::{Free, Ground, Seen};
use crate::policy::{Policy, Sandbox};
use crate::skill::Skill;
use crate::sys::hosts::Hosts;
use crate::tool::Tool;
use crate::tool::web::Web;
use crate::tool::web_fetch::WebFetch;
use crate::tool::web_search::{Engines, WebSearch};
use std::path::Path;
use std::sync::Arc;

/// What a run under `policy` has seen so far, which is nothing. `workspace` is the real path of the workspace.
pub(super) fn seen(cast: &Cast<'_>, policy: &Policy, workspace: &Path) -> Arc<Seen> {
    let has_commands = cast.settings.exec.enabled && policy.offers("exec");
    Arc::new(Seen::new(Ground {
        reach: policy.reach.clone(),
        workspace: workspace.to_owned(),
        commands_write_anywhere: has_commands && policy.sandbox == Sandbox::Off,
        real: Box::new(|path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
    }))
}

/// The tools, in the order of the Python program; none where the config wants none.
pub(super) fn tools(
    world: &World,
    cast: &Cast<'_>,
    policy: &Arc<Policy>,
    seen: &Arc<Seen>,
    skills: &[Skill],
) -> Vec<Box<dyn Tool>> {
    let settings = &cast.settings.web;
    if !settings.enabled {
        return Vec::new();
    }
    let taught = skills
        .iter()
        .flat_map(|skill| addresses::linked_hosts(&skill.body));
    let web = Arc::new(Web {
        policy: Arc::clone(policy),
        seen: Arc::clone(seen),
        free: Free {
            net: policy.net.clone(),
            hosts: settings.hosts.iter().cloned().chain(taught).collect(),
        },
        spared: settings.spared.clone(),
        offline: cast.offline,
        proxy: settings.proxy.clone(),
        user_agent: settings.user_agent.clone(),
        hosts: Hosts::of(&world.env),
        limit: cast.settings.max_tool_result_chars,
        env: world.env.clone(),
    });
    // As the Python program has it, a key alone says whose it is; and without one another engine does.
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
