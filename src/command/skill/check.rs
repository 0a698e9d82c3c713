//! `nanobot skill check`: reports problems of skills and missing requirements.

use super::lookup::{here, named};
use super::package::SkillPackage;
use crate::error::Exit;
use crate::ops::context::Context;
use crate::skill::{Skill, Source};
use crate::sys::terminal::harmless;
use anyhow::Result;
use serde_json::json;
use std::path::Path;

/// The result for one skill.
struct Verdict {
    name: String,
    /// Problems.
    wrong: Vec<String>,
    missing: Vec<String>,
    install: Vec<String>,
    /// True if a missing requirement counts as a problem too.
    is_needed: bool,
}

impl Verdict {
    fn of(skill: &Skill, is_needed: bool) -> Self {
        Self {
            name: skill.name.clone(),
            wrong: skill.warnings.clone(),
            missing: skill.missing.clone(),
            install: skill.needs.install.clone(),
            is_needed,
        }
    }

    fn is_fine(&self) -> bool {
        self.wrong.is_empty() && (self.missing.is_empty() || !self.is_needed)
    }

    fn line(&self) -> String {
        let name = harmless(&self.name);
        let missing = match (self.missing.is_empty(), self.is_needed) {
            (true, _) => String::new(),
            (false, true) => format!("  missing: {}\n", self.missing.join(", ")),
            (false, false) => format!("  not offered; missing: {}\n", self.missing.join(", ")),
        };
        let install = match self.missing.is_empty() {
            true => &[],
            false => &self.install[..],
        };
        let install: String = install
            .iter()
            .map(|how| format!("  try: {how}\n"))
            .collect();
        let wrong: String = self
            .wrong
            .iter()
            .map(|words| format!("  {words}\n"))
            .collect();
        let word = if self.is_fine() { "ok" } else { "warn" };
        format!(
            "{word:4}  {name}\n{}",
            harmless(&(wrong + &missing + &install))
        )
    }

    fn object(&self) -> String {
        let line = json!({
            "name": self.name, "ok": self.is_fine(), "warnings": self.wrong, "missing": self.missing, "install": self.install,
        });
        format!("{line}\n")
    }
}

/// Runs `nanobot skill check`.
pub(super) fn run(ctx: &Context, name: Option<&str>, as_json: bool) -> Result<Exit> {
    let verdicts = match name {
        Some(path) if is_place(path) => vec![of_folder(ctx, Path::new(path))?],
        Some(name) => {
            let (_, found) = here(ctx)?;
            vec![Verdict::of(named(&found, name)?, true)]
        }
        None => all(ctx)?,
    };
    let text: String = match as_json {
        true => verdicts.iter().map(Verdict::object).collect(),
        false => verdicts.iter().map(Verdict::line).collect(),
    };
    match as_json {
        true => ctx.terminal.print_json_text(&text)?,
        false => ctx.terminal.print(&text)?,
    }
    Ok(match verdicts.iter().all(Verdict::is_fine) {
        true => Exit::Answered,
        false => Exit::Failed,
    })
}

/// True if the argument is a path, not a name.
fn is_place(name: &str) -> bool {
    name.contains('/') || name == "." || name == ".." || Path::new(name).join("SKILL.md").exists()
}

/// Checks all active skills, and those that would be active if they could be read.
fn all(ctx: &Context) -> Result<Vec<Verdict>> {
    let (_, found) = here(ctx)?;
    let skills = found.skills.iter();
    let mut verdicts: Vec<Verdict> = skills
        .map(|skill| Verdict::of(skill, skill.source != Source::BuiltIn))
        .collect();
    verdicts.extend(found.unreadable.iter().map(|unreadable| {
        Verdict {
            name: unreadable
                .name
                .clone()
                .unwrap_or_else(|| unreadable.path.display().to_string()),
            wrong: vec![unreadable.why.clone()],
            missing: Vec::new(),
            install: Vec::new(),
            is_needed: true,
        }
    }));
    Ok(verdicts)
}

/// Checks a skill that is not installed, including anything that would prevent its installation.
fn of_folder(ctx: &Context, path: &Path) -> Result<Verdict> {
    let package = SkillPackage::read(ctx, path)?;
    let mut verdict = Verdict::of(&package.skill, true);
    if package.folder != package.skill.name {
        let (name, folder) = (&package.skill.name, &package.folder);
        verdict.wrong.push(format!(
            "its front matter has `name: {name}`, but its directory is named `{folder}`"
        ));
    }
    verdict.wrong.extend(package.odd);
    verdict.wrong.extend(package.troubles);
    Ok(verdict)
}
