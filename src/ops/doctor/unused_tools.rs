//! What the model is told of beyond the built-in tools, and which of it no run has used.

use crate::cli::value::Since;
use crate::ledger::tools::Tools;
use crate::ops::context::Context;
use crate::ops::since::Start;
use crate::ops::skills::{self as skills_of, SkillsSummary};
use crate::ops::tool_usage::server_of;
use crate::settings::Settings;
use crate::skill::Source;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Days that are looked at.
const DAYS: u16 = 30;
/// Runs of which nothing can be said yet.
const FEW: usize = 10;

/// Servers and skills, and what of them is not used.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    servers: Vec<String>,
    /// Those that a run can use or not.
    skills: Vec<String>,
    glance: SkillsSummary,
    /// Runs that were looked at, each of which had tools.
    runs: usize,
    used_servers: BTreeSet<String>,
    used_skills: BTreeSet<String>,
    /// Tokens of the last request that each server took.
    told: BTreeMap<String, u64>,
}

impl Offered {
    pub(crate) fn of(ctx: &Context, settings: &Settings) -> Result<Self> {
        let used = settings.servers.iter().filter(|server| !server.disabled);
        let servers: Vec<String> = used.map(|server| server.name.clone()).collect();
        let mut offered = Self {
            servers,
            ..Self::default()
        };
        // What is wrong with them, `--check` tells.
        if let Ok(found) = skills_of::find(ctx, settings, Path::new(".")) {
            offered.glance = SkillsSummary::new(&found, settings);
            let own = found.skills.into_iter();
            // What is always sent is used by every run, and what comes with the program is nobody's choice.
            let own = own.filter(|skill| skill.is_listed() && skill.source != Source::BuiltIn);
            let used = own.filter(|skill| skill.is_available() && !skill.always);
            offered.skills = used.map(|skill| skill.name).collect();
        }
        let start = Start::of(Since::Days(DAYS), &ctx.clock.now());
        Tools::new(&ctx.paths.root, &ctx.clock).lines(&mut |line| {
            if start.reaches(line.time, line.day) {
                let names: Vec<&str> = offered.servers.iter().map(String::as_str).collect();
                let tools = line.used.tools.keys();
                let servers = tools.filter_map(|tool| server_of(tool, &names));
                let servers: Vec<String> = servers.map(str::to_owned).collect();
                offered.used_servers.extend(servers);
                offered.used_skills.extend(line.used.skills);
                offered.told.extend(line.used.told);
                offered.runs += 1;
            }
        })?;
        Ok(offered)
    }

    fn unused(&self) -> (Vec<&String>, Vec<&String>) {
        if self.runs < FEW {
            return (Vec::new(), Vec::new());
        }
        let servers = self.servers.iter();
        let skills = self.skills.iter();
        (
            servers
                .filter(|name| !self.used_servers.contains(*name))
                .collect(),
            skills
                .filter(|name| !self.used_skills.contains(*name))
                .collect(),
        )
    }

    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if !self.servers.is_empty() {
            rows.push(("servers", self.servers.join(", ")));
        }
        // Those that come with the program are no news.
        if self.glance.own > 0 {
            rows.push(("skills", self.glance.describe()));
        }
        let (servers, skills) = self.unused();
        let servers = servers.into_iter().map(|name| match self.told.get(name) {
            Some(tokens) => format!("the server {name} ({tokens} tokens of each request)"),
            None => format!("the server {name}"),
        });
        let skills = skills.into_iter().map(|name| format!("the skill {name}"));
        let unused: Vec<String> = servers.chain(skills).collect();
        if !unused.is_empty() {
            let words = format!(
                "in {DAYS} days and {} runs: {}",
                self.runs,
                unused.join(", ")
            );
            rows.push(("unused", words));
        }
        rows
    }

    pub(crate) fn json(&self) -> Value {
        let (servers, skills) = self.unused();
        json!({
            "servers": self.servers, "skills": self.skills, "skills_list": self.glance.json(),
            "unused": { "days": DAYS, "runs": self.runs, "servers": servers, "skills": skills },
        })
    }
}
