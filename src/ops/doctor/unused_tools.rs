//! MCP servers and skills that are offered to the model and were not used by any recent run.

use crate::ops::agent_turn::tool_usage::find_server;
use crate::ops::context::Context;
use crate::ops::since::SinceFilter;
use crate::ops::skills::{self, SkillsSummary};
use crate::options::value::Since;
use anyhow::Result;
use jiff::Timestamp;
use nanobot_config::settings::Settings;
use nanobot_model::ledger::tool_usage::ToolUsageLog;
use nanobot_store::skill::{Skill, SkillSource};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Days of usage that are examined.
pub(crate) const USAGE_DAYS: u16 = 30;
/// Minimum number of runs before anything is called unused.
const MIN_RUNS: usize = 10;

/// Servers and skills, and their recent use.
#[derive(Debug, Default)]
pub(crate) struct UnusedTools {
    /// The names of the enabled servers.
    pub(crate) servers: Vec<String>,
    /// The names of the user's own skills that the model may choose to read.
    pub(crate) skills: Vec<String>,
    pub(crate) summary: SkillsSummary,
    /// Examined runs, all of them with tools.
    pub(crate) run_count: usize,
    used_servers: BTreeSet<String>,
    used_skills: BTreeSet<String>,
    /// The servers and skills that were there before the examined days.
    old_servers: BTreeSet<String>,
    old_skills: BTreeSet<String>,
    /// Tokens that each server took in the last request.
    pub(crate) server_tokens: BTreeMap<String, u64>,
}

impl UnusedTools {
    /// Reads the usage of the last days.
    pub(crate) fn new(ctx: &Context, settings: &Settings) -> Result<Self> {
        let servers = settings.servers.iter().filter(|server| !server.is_disabled);
        let servers = servers.map(|server| server.name.clone()).collect();
        let mut tools = Self { servers, ..Self::default() };
        let now = ctx.clock.now();
        let start = SinceFilter::new(Since::Days(USAGE_DAYS), &now);
        // `status check` reports errors in the skills.
        if let Ok(skills) = skills::find(ctx, settings, Path::new(".")) {
            tools.summary = SkillsSummary::new(&skills, settings);
            // A skill that is always sent is used by every run, and built-in skills are not the user's choice.
            let is_chosen = |skill: &Skill| {
                skill.is_offered
                    && skill.source != SkillSource::BuiltIn
                    && skill.is_available()
                    && !skill.always
            };
            let is_old = |skill: &&Skill| {
                let modified = std::fs::metadata(&skill.location).and_then(|file| file.modified());
                let modified = modified.ok().and_then(|time| Timestamp::try_from(time).ok());
                modified.is_some_and(|time| {
                    !start.includes(time, time.to_zoned(now.time_zone().clone()).date())
                })
            };
            let chosen: Vec<Skill> = skills.skills.into_iter().filter(is_chosen).collect();
            tools.old_skills =
                chosen.iter().filter(is_old).map(|skill| skill.name.clone()).collect();
            tools.skills = chosen.into_iter().map(|skill| skill.name).collect();
        }
        let mut has_old_runs = false;
        ToolUsageLog::new(&ctx.paths.root, &ctx.clock).for_each_entry(&mut |line| {
            if start.includes(line.time, line.day) {
                let names: Vec<&str> = tools.servers.iter().map(String::as_str).collect();
                let used_tools = line.usage.tools.keys();
                let servers = used_tools.filter_map(|tool| find_server(tool, &names));
                let servers: Vec<String> = servers.map(str::to_owned).collect();
                tools.used_servers.extend(servers);
                tools.used_skills.extend(line.usage.skills);
                tools.server_tokens.extend(line.usage.definition_tokens);
                tools.run_count += 1;
            } else {
                has_old_runs = true;
                tools.old_servers.extend(line.usage.definition_tokens.into_keys());
            }
        })?;
        if !has_old_runs {
            // The files of the skills may be older than this installation.
            tools.old_skills.clear();
        }
        Ok(tools)
    }

    /// The servers and the skills that were there all the time, and that no run has used; none if there were too few runs.
    pub(crate) fn unused(&self) -> (Vec<&String>, Vec<&String>) {
        if self.run_count < MIN_RUNS {
            return (Vec::new(), Vec::new());
        }
        let servers = self.servers.iter();
        let skills = self.skills.iter();
        (
            servers
                .filter(|name| self.old_servers.contains(*name))
                .filter(|name| !self.used_servers.contains(*name))
                .collect(),
            skills
                .filter(|name| self.old_skills.contains(*name))
                .filter(|name| !self.used_skills.contains(*name))
                .collect(),
        )
    }
}
