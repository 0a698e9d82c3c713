//! The skills that are compiled into the program. A model reads their files at the paths they would have in the
//! workspace; `nanobot skill show NAME --file FILE` prints them.

/// A built-in skill.
#[derive(Debug)]
pub struct BuiltInSkill {
    /// The name of the skill, which is also that of its folder.
    pub name: &'static str,
    /// The files by their paths in the skill's folder, SKILL.md first.
    pub files: &'static [(&'static str, &'static str)],
}

impl BuiltInSkill {
    /// Returns the built-in skill `name`, if there is one.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        BUILT_IN_SKILLS
            .iter()
            .find(|built_in| built_in.name == name)
    }

    /// Returns the text of its SKILL.md.
    pub fn text(&self) -> &'static str {
        self.files[0].1
    }

    /// Returns the text of one of its files.
    pub fn file(&self, path: &str) -> Option<&'static str> {
        let found = self.files.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| *text)
    }
}

/// Returns the text of a built-in file, if `path` ends in a skill's name and the file's path in its folder.
pub fn built_in_at(path: &str) -> Option<&'static str> {
    let cut = |(at, _): (usize, &str)| {
        let (folder, file) = (&path[..at], &path[at + 1..]);
        let name = folder.rsplit('/').next()?;
        BuiltInSkill::by_name(name)?.file(file)
    };
    path.match_indices('/').find_map(cut)
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
        }
    };
}

/// All built-in skills, sorted by name.
pub const BUILT_IN_SKILLS: &[BuiltInSkill] = &[
    files!("cron"),
    files!("github"),
    files!("memory"),
    files!("shell-pipelines"),
    files!("skill-creator", "scripts/check.sh", "scripts/new.sh"),
    files!("summarize"),
    files!("tmux"),
    files!("weather"),
];

#[cfg(test)]
mod tests {
    use super::{BUILT_IN_SKILLS, built_in_at};
    use crate::message::token_estimate;
    use crate::skill::{RequirementChecker, parse};
    use crate::sys::env::Env;

    #[test]
    fn built_in_skills_are_valid_and_short() {
        let env: Env = [("PATH", "/none")].into_iter().collect();
        assert!(BUILT_IN_SKILLS.is_sorted_by_key(|built_in| built_in.name));
        for built_in in BUILT_IN_SKILLS {
            let name = built_in.name;
            let skill = parse(name, built_in.text(), &RequirementChecker::new(&env));
            assert_eq!(skill.warnings, [""; 0], "{name}");
            // Descriptions cost tokens with every request, and bodies whenever they are read.
            assert!(skill.description.len() <= 90, "{name}");
            assert!(token_estimate::for_text(&skill.body) < 1_500, "{name}");
            assert!(!skill.always, "{name}");
        }
    }

    #[test]
    fn built_in_files_are_found_by_path() {
        let check = |path: &str, begins: Option<&str>| {
            let text = built_in_at(path);
            assert_eq!(text.is_some(), begins.is_some(), "{path}");
            assert!(
                text.unwrap_or_default()
                    .starts_with(begins.unwrap_or_default()),
                "{path}"
            );
        };
        check("skills/memory/SKILL.md", Some("---"));
        check(
            "/home/me/.nanobot/workspace/skills/cron/SKILL.md",
            Some("---"),
        );
        check("skills/skill-creator/scripts/check.sh", Some("#!/bin/sh"));
        check("skills/skill-creator/scripts/../SKILL.md", None);
        check("skills/memory", None);
        check("memory/MEMORY.md", None);
        check("SKILL.md", None);
    }
}
