//! `nanobot skill check`: reports problems of skills and missing requirements.

use crate::ops::context::Context;
use crate::ops::skill_lookup::{current_skills, find_skill};
use crate::ops::skill_package::SkillPackage;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::{Skill, SkillSource, TEMPLATE_DESCRIPTION};
use serde_json::{Value, json};
use std::path::Path;

/// The result for one skill.
struct SkillCheck {
    name: String,
    problems: Vec<String>,
    /// The requirements that this system does not meet.
    missing: Vec<String>,
    /// Commands that install them.
    install: Vec<String>,
    /// True if a missing requirement is a problem too.
    needs_requirements: bool,
}

impl SkillCheck {
    fn new(skill: &Skill, needs_requirements: bool) -> Self {
        let mut problems = skill.warnings.clone();
        if skill.description == TEMPLATE_DESCRIPTION {
            problems.push("its `description` is still that of the template".into());
        }
        Self {
            name: skill.name.clone(),
            problems,
            missing: skill.unmet_requirements.clone(),
            install: skill.requirements.install.clone(),
            needs_requirements,
        }
    }

    fn is_ok(&self) -> bool {
        self.problems.is_empty() && (self.missing.is_empty() || !self.needs_requirements)
    }

    fn to_row(&self) -> String {
        let name = sanitize(&self.name);
        let mut details: String =
            self.problems.iter().map(|problem| format!("  {problem}\n")).collect();
        if !self.missing.is_empty() {
            let prefix = if self.needs_requirements { "" } else { "not offered; " };
            details.push_str(&format!("  {prefix}missing: {}\n", self.missing.join(", ")));
            details.extend(self.install.iter().map(|hint| format!("  try: {hint}\n")));
        }
        let status = if self.is_ok() { "ok" } else { "warn" };
        format!("{status:4}  {name}\n{}", sanitize(&details))
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name, "ok": self.is_ok(), "warnings": self.problems, "missing": self.missing, "install": self.install,
        })
    }
}

/// Runs `nanobot skill check`.
pub(super) fn run(ctx: &Context, name: Option<&str>, as_json: bool) -> Result<Exit> {
    let checks = match name {
        Some(path) if is_path(path) => vec![check_directory(ctx, &ctx.paths.expand(path))?],
        Some(name) => {
            let (_, skills) = current_skills(ctx)?;
            vec![SkillCheck::new(find_skill(&skills, name)?, true)]
        }
        None => check_all(ctx)?,
    };
    if as_json {
        ctx.terminal.print_json_lines(checks.iter().map(SkillCheck::to_json))?;
    } else {
        ctx.terminal.print(&checks.iter().map(SkillCheck::to_row).collect::<String>())?;
    }
    Ok(if checks.iter().all(SkillCheck::is_ok) { Exit::Answered } else { Exit::Failed })
}

/// True if the argument is a path, not a name.
fn is_path(name: &str) -> bool {
    name.contains('/') || name == "." || name == ".." || Path::new(name).join("SKILL.md").exists()
}

/// Checks all active skills, and skills that would be active if they could be read.
fn check_all(ctx: &Context) -> Result<Vec<SkillCheck>> {
    let (_, skills) = current_skills(ctx)?;
    let mut checks: Vec<SkillCheck> = skills
        .skills
        .iter()
        .map(|skill| SkillCheck::new(skill, skill.source != SkillSource::BuiltIn))
        .collect();
    checks.extend(skills.unreadable.iter().map(|unreadable| SkillCheck {
        name: unreadable.name.clone().unwrap_or_else(|| unreadable.path.display().to_string()),
        problems: vec![unreadable.reason.clone()],
        missing: Vec::new(),
        install: Vec::new(),
        needs_requirements: true,
    }));
    Ok(checks)
}

/// Checks a skill that is not installed, including anything that would prevent its installation.
fn check_directory(ctx: &Context, path: &Path) -> Result<SkillCheck> {
    let package = SkillPackage::read(ctx, path)?;
    let mut check = SkillCheck::new(&package.skill, true);
    if package.directory_name != package.skill.name {
        let (name, folder) = (&package.skill.name, &package.directory_name);
        check.problems.push(format!(
            "its front matter has `name: {name}`, but its directory is named `{folder}`"
        ));
    }
    check.problems.extend(package.warnings);
    check.problems.extend(package.problems);
    Ok(check)
}
