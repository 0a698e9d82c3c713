//! The skills that are compiled into the program. A model reads their files at the paths they would have in the
//! workspace; `nanobot skill show NAME --file FILE` prints them.
//!
//! Every run lists these skills, so their front matter is read by the compiler, not by the YAML parser; a test compares
//! the results.

use super::definition::{InertFields, Skill, SkillSource};
use super::requirements::{RequirementChecker, SkillRequirements};
use serde_json::Value;
use std::borrow::Cow;
use std::path::PathBuf;

/// A built-in skill.
#[derive(Debug)]
pub struct BuiltInSkill {
    /// The name of the skill and of its folder.
    pub name: &'static str,
    /// The files by their paths in the skill's folder, SKILL.md first.
    pub files: &'static [(&'static str, &'static str)],
    /// The hosts that it works with. A conversation that has loaded the skill may send short requests to them.
    pub hosts: &'static [&'static str],
    front_matter: PlainFrontMatter,
}

/// The front matter of a built-in SKILL.md: a few fields, each on one line.
#[derive(Debug)]
struct PlainFrontMatter {
    name: Option<&'static str>,
    description: &'static str,
    /// A JSON object.
    metadata: Option<&'static str>,
    /// The text below, without white space around it.
    body: &'static str,
}

impl PlainFrontMatter {
    /// Parses the text of a SKILL.md, at compile time.
    const fn parse(text: &'static str) -> Self {
        let mut name = None;
        let mut description = "";
        let mut metadata = None;
        let (opening, mut rest) = split_line(text);
        assert!(is_equal(opening, "---"), "front matter begins with `---`");
        loop {
            let (line, below) = split_line(rest);
            rest = below;
            if is_equal(line, "---") {
                break;
            }
            let (key, value) = split_field(line);
            if is_equal(key, "name") {
                name = Some(value);
            } else if is_equal(key, "description") {
                description = value;
            } else if is_equal(key, "metadata") {
                metadata = Some(value);
            } else {
                panic!("built-in skills have no other fields");
            }
        }
        Self { name, description, metadata, body: rest.trim_ascii() }
    }
}

/// Splits `text` after its first line, at compile time.
const fn split_line(text: &'static str) -> (&'static str, &'static str) {
    let mut end = 0;
    while text.as_bytes()[end] != b'\n' {
        end += 1;
    }
    (text.split_at(end).0, text.split_at(end + 1).1)
}

/// Splits a line `key: value`, at compile time.
const fn split_field(line: &'static str) -> (&'static str, &'static str) {
    let mut end = 0;
    while line.as_bytes()[end] != b':' {
        end += 1;
    }
    (line.split_at(end).0, line.split_at(end + 1).1.trim_ascii())
}

/// Compares two texts, at compile time.
const fn is_equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl BuiltInSkill {
    /// Returns the skill, as [`super::parse`] would read it from its SKILL.md. The caller sets its location.
    pub(super) fn skill(&self, checker: &RequirementChecker<'_>) -> Skill {
        let PlainFrontMatter { name, description, metadata, body } = self.front_matter;
        let metadata = metadata.map_or(Value::Null, |text| {
            serde_json::from_str(text).expect("a test parses the metadata of all built-in skills")
        });
        let requirements = SkillRequirements::from_metadata(&metadata["nanobot"]);
        Skill {
            name: self.name.to_owned(),
            description: description.to_owned(),
            location: PathBuf::new(),
            source: SkillSource::BuiltIn,
            always: false,
            is_offered: true,
            unmet_requirements: requirements.unmet(checker),
            requirements,
            inert_fields: InertFields {
                name: name.map(str::to_owned),
                license: None,
                compatibility: None,
                allowed_tools: Vec::new(),
                metadata,
                is_user_invocable: true,
            },
            body: Cow::Borrowed(body),
            warnings: Vec::new(),
            is_broken: false,
        }
    }

    /// Returns the built-in skill `name`, if there is one.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        BUILT_IN_SKILLS.iter().find(|built_in| built_in.name == name)
    }

    /// Returns the text of its SKILL.md.
    pub fn text(&self) -> &'static str {
        self.files[0].1
    }

    /// Returns the text of one of its files.
    pub fn file(&self, path: &str) -> Option<&'static str> {
        let (_, text) = self.files.iter().find(|(name, _)| *name == path)?;
        Some(text)
    }
}

/// Returns the text of a built-in file, if `path` ends in a skill's name and the file's path in its folder.
pub fn built_in_at(path: &str) -> Option<&'static str> {
    path.match_indices('/').find_map(|(slash, _)| {
        let name = path[..slash].rsplit('/').next()?;
        BuiltInSkill::by_name(name)?.file(&path[slash + 1..])
    })
}

/// Lists the files of a skill, by their paths in its folder.
macro_rules! files {
    ($name:literal $(, $path:literal)*) => {
        BuiltInSkill {
            name: $name,
            files: &[
                ("SKILL.md", include_str!(concat!("built_in/", $name, "/SKILL.md"))),
                $(($path, include_str!(concat!("built_in/", $name, "/", $path))),)*
            ],
            hosts: &[],
            front_matter: PlainFrontMatter::parse(include_str!(concat!(
                "built_in/", $name, "/SKILL.md"
            ))),
        }
    };
}

/// All built-in skills, sorted by name.
pub static BUILT_IN_SKILLS: &[BuiltInSkill] = &[
    files!("cron"),
    BuiltInSkill { hosts: &["api.github.com"], ..files!("github") },
    files!("memory"),
    files!("shell-pipelines"),
    files!("skill-creator", "scripts/check.sh", "scripts/new.sh"),
    files!("summarize"),
    files!("tmux"),
    BuiltInSkill { hosts: &["wttr.in", "api.open-meteo.com"], ..files!("weather") },
];

#[cfg(test)]
mod tests {
    use super::{BUILT_IN_SKILLS, built_in_at};
    use crate::skill::{RequirementChecker, parse};
    use nanobot_base::message::token_estimate;
    use nanobot_os::env::Env;

    #[test]
    fn built_in_skills_are_valid_and_short() {
        let env: Env = [("PATH", "/none")].into_iter().collect();
        assert!(BUILT_IN_SKILLS.is_sorted_by_key(|built_in| built_in.name));
        for built_in in BUILT_IN_SKILLS {
            let name = built_in.name;
            let checker = RequirementChecker::new(&env);
            let skill = parse(name, built_in.text(), &checker);
            assert_eq!(built_in.skill(&checker), skill);
            // Hidden characters are among the warnings.
            assert_eq!(skill.warnings, [""; 0], "{name}");
            // Descriptions cost tokens with every request, and bodies whenever they are read.
            assert!(skill.description.len() <= 90, "{name}");
            assert!(token_estimate::for_text(&skill.body) < 1_500, "{name}");
            assert!(!skill.always, "{name}");
            assert!(built_in.hosts.iter().all(|host| skill.body.contains(host)), "{name}");
        }
    }

    #[test]
    fn built_in_files_are_found_by_path() {
        let check = |path: &str, begins: Option<&str>| {
            let text = built_in_at(path);
            assert_eq!(text.is_some(), begins.is_some(), "{path}");
            assert!(text.unwrap_or_default().starts_with(begins.unwrap_or_default()), "{path}");
        };
        check("skills/memory/SKILL.md", Some("---"));
        check("/home/me/.nanobot/workspace/skills/cron/SKILL.md", Some("---"));
        check("skills/skill-creator/scripts/check.sh", Some("#!/bin/sh"));
        check("skills/skill-creator/scripts/../SKILL.md", None);
        check("skills/memory", None);
        check("memory/MEMORY.md", None);
        check("SKILL.md", None);
    }
}
