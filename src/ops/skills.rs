//! The skills that a run finds, and a summary of them.

use super::context::Context;
use super::skill_directories::SkillDirectories;
use super::slash_commands;
use super::user_commands::is_command_name;
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use nanobot_config::settings::{FlagOverrides, Settings};
use nanobot_store::skill::{self, FoundSkills, SearchPaths, SharedFolders, Skill, SkillSource};
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
    find_with(ctx, settings, &settings.workspace, &instructions)
}

/// The skills of a run with this `workspace` and these `instructions` of its directory.
pub(crate) fn find_with(
    ctx: &Context,
    settings: &Settings,
    workspace: &Path,
    instructions: &DirectoryInstructions,
) -> Result<FoundSkills> {
    let directories = SkillDirectories::find(ctx, settings);
    let has_shared = !directories.shared.is_empty();
    let trust = has_shared.then(|| TrustList::load(&ctx.paths.trust())).transpose()?;
    let dirs = directories.shared.as_slice();
    Ok(skill::find_skills(SearchPaths {
        workspace,
        own_dir: directories.own.as_deref(),
        trusted_dirs: &instructions.skills,
        ignored_files: &instructions.ignored,
        shared: trust.as_ref().map(|trust| SharedFolders { dirs, trust }),
        disabled: &settings.skills.disabled,
        env: &ctx.env,
    }))
}

/// Pins the skills of shared folders that a run is the first to use. They are no longer used once they have changed.
pub(crate) fn pin_first_used(ctx: &Context, found_skills: &FoundSkills) -> Result<()> {
    if found_skills.unpinned.is_empty() {
        return Ok(());
    }
    let now = ctx.clock.now().timestamp();
    TrustList::change(&ctx.paths.trust(), |trust| {
        for file in &found_skills.unpinned {
            trust.pin_skill(&file.path, file.text.as_bytes(), now);
        }
        Ok(())
    })
}

/// The message that `text` of a command line stands for: `/NAME` requests the use of the skill of that name. `None` if it is text, as it is
/// if the name is that of a command.
///
/// # Errors
/// The skills cannot be read.
pub(crate) fn expand_slash(
    ctx: &Context,
    settings: &Settings,
    directory: &Path,
    text: &str,
) -> Result<Option<String>> {
    let Some(command) = text.trim().strip_prefix('/') else {
        return Ok(None);
    };
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    if !is_command_name(name) || slash_commands::in_chats().any(|row| row.is_called(name)) {
        return Ok(None);
    }
    let found_skills = find(ctx, settings, directory)?;
    let skill = found_skills.by_name(name);
    Ok(skill.map(|skill| use_message(&skill.name, rest.trim())))
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
