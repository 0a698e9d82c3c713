//! `nanobot skill check`: reports problems of skills and missing requirements.

use crate::ops::context::Context;
use crate::ops::skill_lookup::{current_skills, find_skill};
use crate::ops::skill_package::SkillPackage;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::{Skill, SkillSource};
use serde_json::{Value, json};
use std::path::Path;

/// The result for one skill.
struct SkillCheck {
    name: String,
    /// Problems.
    problems: Vec<String>,
    missing: Vec<String>,
    install: Vec<String>,
    /// True if a missing requirement counts as a problem too.
    is_needed: bool,
}

impl SkillCheck {
    fn new(skill: &Skill, is_needed: bool) -> Self {
        Self {
            name: skill.name.clone(),
            problems: skill.warnings.clone(),
            missing: skill.unmet_requirements.clone(),
            install: skill.requirements.install.clone(),
            is_needed,
        }
    }

    fn is_fine(&self) -> bool {
        self.problems.is_empty() && (self.missing.is_empty() || !self.is_needed)
    }

    fn to_row(&self) -> String {
        let name = sanitize(&self.name);
        let missing = match (self.missing.is_empty(), self.is_needed) {
            (true, _) => String::new(),
            (false, true) => format!("  missing: {}\n", self.missing.join(", ")),
            (false, false) => format!("  not offered; missing: {}\n", self.missing.join(", ")),
        };
        let install = if self.missing.is_empty() { &[] } else { &self.install[..] };
        let install: String = install.iter().map(|how| format!("  try: {how}\n")).collect();
        let wrong: String = self.problems.iter().map(|words| format!("  {words}\n")).collect();
        let word = if self.is_fine() { "ok" } else { "warn" };
        format!("{word:4}  {name}\n{}", sanitize(&(wrong + &missing + &install)))
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name, "ok": self.is_fine(), "warnings": self.problems, "missing": self.missing, "install": self.install,
        })
    }
}

/// Runs `nanobot skill check`.
pub(super) fn run(ctx: &Context, name: Option<&str>, as_json: bool) -> Result<Exit> {
    let verdicts = match name {
        Some(path) if is_path(path) => vec![check_directory(ctx, &ctx.paths.expand(path))?],
        Some(name) => {
            let (_, found) = current_skills(ctx)?;
            vec![SkillCheck::new(find_skill(&found, name)?, true)]
        }
        None => check_all(ctx)?,
    };
    if as_json {
        ctx.terminal.print_json_lines(verdicts.iter().map(SkillCheck::to_json))?;
    } else {
        ctx.terminal.print(&verdicts.iter().map(SkillCheck::to_row).collect::<String>())?;
    }
    Ok(if verdicts.iter().all(SkillCheck::is_fine) { Exit::Answered } else { Exit::Failed })
}

/// True if the argument is a path, not a name.
fn is_path(name: &str) -> bool {
    name.contains('/') || name == "." || name == ".." || Path::new(name).join("SKILL.md").exists()
}

/// Checks all active skills, and those that would be active if they could be read.
fn check_all(ctx: &Context) -> Result<Vec<SkillCheck>> {
    let (_, found) = current_skills(ctx)?;
    let skills = found.skills.iter();
    let mut verdicts: Vec<SkillCheck> =
        skills.map(|skill| SkillCheck::new(skill, skill.source != SkillSource::BuiltIn)).collect();
    verdicts.extend(found.unreadable.iter().map(|unreadable| SkillCheck {
        name: unreadable.name.clone().unwrap_or_else(|| unreadable.path.display().to_string()),
        problems: vec![unreadable.reason.clone()],
        missing: Vec::new(),
        install: Vec::new(),
        is_needed: true,
    }));
    Ok(verdicts)
}

/// Checks a skill that is not installed, including anything that would prevent its installation.
fn check_directory(ctx: &Context, path: &Path) -> Result<SkillCheck> {
    let package = SkillPackage::read(ctx, path)?;
    let mut verdict = SkillCheck::new(&package.skill, true);
    if package.directory_name != package.skill.name {
        let (name, folder) = (&package.skill.name, &package.directory_name);
        verdict.problems.push(format!(
            "its front matter has `name: {name}`, but its directory is named `{folder}`"
        ));
    }
    verdict.problems.extend(package.warnings);
    verdict.problems.extend(package.problems);
    Ok(verdict)
}
