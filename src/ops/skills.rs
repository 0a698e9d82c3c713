//! The skills that a run finds, and a summary of them.

use super::context::Context;
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use nanobot_config::settings::{FlagOverrides, Settings};
use nanobot_store::skill::{self, FoundSkills, SearchPaths, Skill, SkillSource};
use nanobot_store::trust::{DirectoryInstructions, TrustList};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::Path;

/// The skills of a turn with these options.
pub(crate) fn for_turn(ctx: &Context, options: &TurnOptions) -> Result<FoundSkills> {
    let settings = ctx.settings_with(FlagOverrides {
        model: options.model.name.clone(),
        ..FlagOverrides::default()
    })?;
    find(ctx, &settings, options.grants.directory.as_deref().unwrap_or(Path::new(".")))
}

/// The message of a user who requests the use of the skill `name`, with the text after its name.
pub(crate) fn use_message(name: &str, text: &str) -> String {
    format!("Use the skill `{name}`. {text}").trim_end().to_owned()
}

/// The skills of a run that works in `directory`. A missing directory, such as a workspace before its first run, has no
/// trusted ones.
pub(crate) fn find(ctx: &Context, settings: &Settings, directory: &Path) -> Result<FoundSkills> {
    let instructions = match std::fs::canonicalize(directory) {
        Ok(directory) => TrustList::load(&ctx.paths.trust())?.read_instructions(&directory)?,
        Err(error) if error.kind() == ErrorKind::NotFound && directory != Path::new(".") => {
            DirectoryInstructions::default()
        }
        Err(error) => {
            return Err(error).with_context(|| format!("resolve `{}`", directory.display()));
        }
    };
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
    /// Skills with unmet requirements, each with its requirements.
    pub(crate) unavailable: Vec<String>,
    /// Tokens of the skill list in each request.
    tokens: u64,
    /// The budget of these tokens.
    budget_tokens: u64,
    pub(crate) is_truncated: bool,
}

impl SkillsSummary {
    /// Summarizes the skills.
    pub(crate) fn new(found_skills: &FoundSkills, settings: &Settings) -> Self {
        let budget_tokens = settings.skills.budget_tokens;
        let list = skill::render_list(&found_skills.skills, budget_tokens);
        let is_own = |skill: &&Skill| skill.source != SkillSource::BuiltIn;
        let own_skills = || found_skills.skills.iter().filter(is_own);
        Self {
            own_count: own_skills().count(),
            unavailable: own_skills()
                .filter(|skill| !skill.is_available())
                .map(|skill| format!("`{}` ({})", skill.name, skill.unmet_requirements.join(", ")))
                .collect(),
            tokens: list.tokens,
            budget_tokens,
            is_truncated: list.is_cut(),
        }
    }

    /// The summary as text.
    pub(crate) fn describe(&self) -> String {
        let count = match self.own_count {
            0 => "none".to_owned(),
            count => count.to_string(),
        };
        let truncation = if self.is_truncated {
            format!("; their list is truncated to {} tokens", self.budget_tokens)
        } else {
            String::new()
        };
        let missing = if self.unavailable.is_empty() {
            String::new()
        } else {
            format!("; missing requirements: {}", self.unavailable.join(", "))
        };
        format!("{count} besides the built-in ones{truncation}{missing}")
    }

    /// The summary as JSON.
    pub(crate) fn json(&self) -> Value {
        json!({
            "own": self.own_count, "lacking": self.unavailable.len(), "tokens": self.tokens,
            "budget_tokens": self.budget_tokens, "cut": self.is_truncated,
        })
    }
}
