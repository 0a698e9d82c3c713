//! The skills that a run finds, and a summary of them.

use super::context::Context;
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use nanobot_config::settings::{FlagOverrides, Settings};
use nanobot_store::skill::{self, FoundSkills, SearchPaths, Skill, SkillSource};
use nanobot_store::trust::TrustList;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The skills of a turn with these options.
pub(crate) fn for_turn(ctx: &Context, options: &TurnOptions) -> Result<FoundSkills> {
    let settings = ctx.settings_with(FlagOverrides {
        model: options.model.name.clone(),
        ..FlagOverrides::default()
    })?;
    let current = || std::env::current_dir().unwrap_or_default();
    let directory: PathBuf = options.grants.directory.clone().unwrap_or_else(current);
    find(ctx, &settings, &directory)
}

/// The skills of a run that works in `directory`.
pub(crate) fn find(ctx: &Context, settings: &Settings, directory: &Path) -> Result<FoundSkills> {
    let directory = std::fs::canonicalize(directory)
        .with_context(|| format!("resolve `{}`", directory.display()))?;
    let instructions = TrustList::load(&ctx.paths.trust())?.read_instructions(&directory)?;
    Ok(skill::find_skills(SearchPaths {
        workspace: &settings.workspace,
        trusted_dirs: &instructions.skills,
        ignored_files: &instructions.ignored,
        disabled: &settings.skills.disabled,
        env: &ctx.env,
    }))
}

/// A short summary of the skills.
#[derive(Debug, Default)]
pub(crate) struct SkillsSummary {
    /// The number of skills that are not built-in.
    pub(crate) own_count: usize,
    /// Skills with missing requirements, and what is missing.
    pub(crate) unavailable: Vec<String>,
    /// Tokens of the skill list in each request, and the budget for it.
    tokens: (u64, u64),
    pub(crate) is_truncated: bool,
}

impl SkillsSummary {
    /// Summarizes the skills.
    pub(crate) fn new(found: &FoundSkills, settings: &Settings) -> Self {
        let budget = settings.skills.budget_tokens;
        let list = skill::render_list(&found.skills, budget);
        let is_own = |skill: &&Skill| skill.source != SkillSource::BuiltIn;
        let own = || found.skills.iter().filter(is_own);
        let lacking = own().filter(|skill| !skill.is_available());
        Self {
            own_count: own().count(),
            unavailable: lacking
                .map(|skill| format!("`{}` ({})", skill.name, skill.unmet_requirements.join(", ")))
                .collect(),
            tokens: (list.tokens, budget),
            is_truncated: list.is_cut(),
        }
    }

    /// The summary as text.
    pub(crate) fn describe(&self) -> String {
        let own = match self.own_count {
            0 => "none".to_owned(),
            own => own.to_string(),
        };
        let (_, budget) = self.tokens;
        let cut = if self.is_truncated {
            format!("; their list is truncated to {budget} tokens")
        } else {
            String::new()
        };
        let lacking = if self.unavailable.is_empty() {
            String::new()
        } else {
            format!("; missing requirements: {}", self.unavailable.join(", "))
        };
        format!("{own} besides the built-in ones{cut}{lacking}")
    }

    /// The summary as JSON.
    pub(crate) fn json(&self) -> Value {
        let (tokens, budget) = self.tokens;
        json!({ "own": self.own_count, "lacking": self.unavailable.len(), "tokens": tokens, "budget_tokens": budget, "cut": self.is_truncated })
    }
}
