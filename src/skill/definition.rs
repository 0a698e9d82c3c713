//! A skill as read from its SKILL.md: its source, its requirements and its front matter.

use super::requirements::Needs;
use serde_json::Value;
use std::path::PathBuf;

/// A skill.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    /// That of its folder, by which it is known.
    pub name: String,
    /// What it is good for; its name where it does not say.
    pub description: String,
    /// Where a model reads it; for a built-in one, where the workspace would have it.
    pub location: PathBuf,
    pub source: Source,
    /// It is part of every system text.
    pub always: bool,
    /// The model is told of it. Where not, a person can still show it.
    pub is_offered: bool,
    /// What it needs, found or not.
    pub needs: Needs,
    /// What it needs and does not find, as `CLI: gh`.
    pub missing: Vec<String>,
    /// What else its head says.
    pub says: InertFields,
    /// The text below the head.
    pub body: String,
    /// What is odd about it, in words.
    pub warnings: Vec<String>,
    /// Its head could be read in part only.
    pub is_broken: bool,
}

impl Skill {
    /// Whether it can be used: nothing that it needs is missing.
    pub fn is_available(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether the system text names it. A built-in one that could not be used anyway is no news.
    pub fn is_listed(&self) -> bool {
        self.is_offered && (self.is_available() || self.source != Source::BuiltIn)
    }

    /// Whether its body is part of the system text.
    pub fn is_active(&self) -> bool {
        self.always && self.is_offered && self.is_available()
    }
}

/// What a head says that changes nothing here, and is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct InertFields {
    /// Its name as the author has it.
    pub name: Option<String>,
    pub license: Option<String>,
    pub compatibility: Option<String>,
    /// The tools that its author means it to use. They grant nothing: the policy alone decides.
    pub allowed_tools: Vec<String>,
    pub metadata: Value,
    /// A person may call for it by its name.
    pub is_for_people: bool,
}

/// Where a skill comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Workspace,
    /// The folder of skills of a directory that was trusted.
    Directory(PathBuf),
    BuiltIn,
}

/// A skill, or a folder of them, that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// `None` for a whole folder.
    pub name: Option<String>,
    pub path: PathBuf,
    pub why: String,
}

impl Unreadable {
    pub(super) fn words(&self) -> String {
        match &self.name {
            Some(name) => format!("skill `{name}`: {}", self.why),
            None => format!("skills in `{}`: {}", self.path.display(), self.why),
        }
    }
}
