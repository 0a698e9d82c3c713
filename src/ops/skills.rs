//! The skills that a run finds, and a summary of them.

use super::context::Context;
use super::turn_options::TurnOptions;
use crate::settings::{Overrides, Settings};
use crate::skill::{self, Found, Shelves, Skill, Source};
use crate::trust::Trust;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The skills of a turn with these options.
pub(crate) fn of_turn(ctx: &Context, options: &TurnOptions) -> Result<Found> {
    let settings = ctx.settings_with(Overrides {
        model: options.model.clone(),
        ..Overrides::default()
    })?;
    let current = || std::env::current_dir().unwrap_or_default();
    let directory: PathBuf = options.grants.directory.clone().unwrap_or_else(current);
    find(ctx, &settings, &directory)
}

/// The skills of a run that works in `directory`.
pub(crate) fn find(ctx: &Context, settings: &Settings, directory: &Path) -> Result<Found> {
    let directory = std::fs::canonicalize(directory)
        .with_context(|| format!("resolve `{}`", directory.display()))?;
    let instructions = Trust::load(&ctx.paths.trust())?.notes(&directory)?;
    Ok(skill::find(Shelves {
        workspace: &settings.workspace,
        further: &instructions.skills,
        disabled: &settings.skills.disabled,
        env: &ctx.env,
    }))
}

/// A short summary of the skills.
#[derive(Debug, Default)]
pub(crate) struct SkillsSummary {
    /// The number of skills that are not built-in.
    pub(crate) own: usize,
    /// Skills with missing requirements, and what is missing.
    pub(crate) lacking: Vec<String>,
    /// Tokens of the skill list in each request, and the budget for it.
    tokens: (u64, u64),
    pub(crate) is_cut: bool,
}

impl SkillsSummary {
    /// Summarizes the skills.
    pub(crate) fn new(found: &Found, settings: &Settings) -> Self {
        let budget = settings.skills.budget;
        let list = skill::summary(&found.skills, budget);
        let is_own = |skill: &&Skill| skill.source != Source::BuiltIn;
        let own = || found.skills.iter().filter(is_own);
        let lacking = own().filter(|skill| !skill.is_available());
        Self {
            own: own().count(),
            lacking: lacking
                .map(|skill| format!("`{}` ({})", skill.name, skill.missing.join(", ")))
                .collect(),
            tokens: (list.tokens, budget),
            is_cut: list.is_cut(),
        }
    }

    /// The summary as text.
    pub(crate) fn describe(&self) -> String {
        let own = match self.own {
            0 => "none".to_owned(),
            own => own.to_string(),
        };
        let (_, budget) = self.tokens;
        let cut = match self.is_cut {
            true => format!("; their list is truncated to {budget} tokens"),
            false => String::new(),
        };
        let lacking = match self.lacking.is_empty() {
            true => String::new(),
            false => format!("; missing requirements: {}", self.lacking.join(", ")),
        };
        format!("{own} besides the built-in ones{cut}{lacking}")
    }

    /// The summary as JSON.
    pub(crate) fn json(&self) -> Value {
        let (tokens, budget) = self.tokens;
        json!({ "own": self.own, "lacking": self.lacking.len(), "tokens": tokens, "budget_tokens": budget, "cut": self.is_cut })
    }
}
