//! A skill as read from its SKILL.md: its source, its requirements and its front matter.

use super::requirements::SkillRequirements;
use serde_json::Value;
use std::borrow::Cow;
use std::path::PathBuf;

/// A skill: its front matter, its text, and the place where it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Skill {
    /// The name of its folder, which identifies the skill. That of the front matter is in [`InertFields`].
    pub name: String,
    /// Its purpose; the name if the front matter gives no description.
    pub description: String,
    /// The path at which a model reads it; for a built-in skill, the path it would have in the workspace.
    pub location: PathBuf,
    /// The origin of the skill.
    pub source: SkillSource,
    /// True if its front matter asks for its body to be part of every system prompt. [`Skill::is_active`] says if it is.
    pub always: bool,
    /// True if the model may choose it: the system prompt lists it, within the budget of the list. A person can show any skill.
    pub is_offered: bool,
    /// All requirements, whether met or not.
    pub requirements: SkillRequirements,
    /// The requirements that are not met, such as `CLI: gh`.
    pub unmet_requirements: Vec<String>,
    /// The other fields of the front matter.
    pub inert_fields: InertFields,
    /// The text below the front matter.
    pub body: Cow<'static, str>,
    /// Problems of the SKILL.md, in words.
    pub warnings: Vec<String>,
    /// True if its front matter could only be read in part.
    pub(crate) is_broken: bool,
}

impl Skill {
    /// True if all of its requirements are met.
    pub fn is_available(&self) -> bool {
        self.unmet_requirements.is_empty()
    }

    /// Keeps its text out of the system prompt until a person has read and trusted it.
    pub(super) fn wait_for_trust(&mut self) {
        if self.always {
            self.always = false;
            self.warnings.push(format!(
                "its `always` has no effect until `nanobot trust {}`",
                self.location.display()
            ));
        }
    }

    /// True if it is in a folder that the config names and other programs fill.
    pub fn is_shared(&self) -> bool {
        matches!(self.source, SkillSource::Shared(_))
    }

    /// True if its body is part of every system prompt: it asks for that, is offered, and its requirements are met.
    pub fn is_active(&self) -> bool {
        self.always && self.is_offered && self.is_available()
    }
}

/// Front matter fields that have no effect here and are only shown.
#[derive(Clone, Debug, PartialEq)]
pub struct InertFields {
    /// The name that the author gave it.
    pub name: Option<String>,
    /// Its license.
    pub license: Option<String>,
    /// The author's note on compatibility.
    pub compatibility: Option<String>,
    /// The tools that the author intends it to use. This grants nothing: only the policy decides.
    pub allowed_tools: Vec<String>,
    /// The `metadata` field, unchanged.
    pub metadata: Value,
    /// True if a person may invoke the skill by its name.
    pub is_user_invocable: bool,
}

/// The origin of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillSource {
    /// The folder `skills` of the workspace.
    Workspace,
    /// The user's own folder beside the workspace.
    Own(PathBuf),
    /// A folder of skills in a trusted directory.
    Directory(PathBuf),
    /// A folder that the config names and other programs fill.
    Shared(PathBuf),
    /// A skill that is a part of this program.
    BuiltIn,
}

/// A skill, or a folder of skills, that cannot be read.
#[derive(Debug)]
pub struct UnreadableSkill {
    /// The name of the skill; `None` for a folder of skills.
    pub name: Option<String>,
    /// The path that cannot be read.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

impl UnreadableSkill {
    pub(super) fn describe(&self) -> String {
        match &self.name {
            Some(name) => format!("skill `{name}`: {}", self.reason),
            None => format!("skills in `{}`: {}", self.path.display(), self.reason),
        }
    }
}
