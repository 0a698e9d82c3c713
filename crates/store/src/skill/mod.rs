//! Skills: folders with a SKILL.md that teach the agent about the user's programs and habits. This module finds, parses
//! and summarizes them, and checks their requirements.
//!
//! The format covers both that of nanobot and the public Agent Skills format. Parsing is lenient: problems become
//! warnings, and an unreadable skill does not affect the others.

mod built_in;
mod definition;
pub mod folder;
mod front_matter;
pub mod install;
mod parse;
mod requirements;
mod skill_files;
mod summary;
mod template;
mod written_skills;

pub use built_in::{BUILT_IN_SKILLS, BuiltInSkill, built_in_at};
pub use definition::{InertFields, Skill, SkillSource, UnreadableSkill};
pub use front_matter::{parse_strict, parse_strict_names};
pub use parse::{
    MAX_DESCRIPTION_CHARS, count_hidden_chars, is_displayable_name, is_valid_name, parse,
};
pub use requirements::{RequirementChecker, SkillRequirements, is_on_path};
pub use skill_files::MAX_TEXT_BYTES;
pub use summary::{ListDetail, SkillList, active_bodies, join_bodies, render_list};
pub use template::{TEMPLATE_DESCRIPTION, skill_template};
pub use written_skills::WrittenSkills;

use crate::trust::{SkillPin, TrustList};
use anyhow::{Context as _, Result};
use nanobot_base::shell_quote::quote;
use nanobot_os::env::Env;
use std::path::{Component, Path, PathBuf};

/// The folders of skills that the config names and other programs fill, as real paths.
#[derive(Clone, Copy)]
pub struct SharedFolders<'a> {
    /// The folders, in order of precedence.
    pub dirs: &'a [PathBuf],
    /// The pins of their skills.
    pub trust: &'a TrustList,
}

/// The search path for skills, in order of precedence.
#[derive(Clone, Copy)]
pub struct SearchPaths<'a> {
    /// The agent's workspace, which has a folder of skills.
    pub workspace: &'a Path,
    /// The user's own folder of skills, a real path; `None` if there is none.
    pub own_dir: Option<&'a Path>,
    /// Folders of skills in trusted directories.
    pub trusted_dirs: &'a [PathBuf],
    /// SKILL.md files in them that are not read.
    pub ignored_files: &'a [PathBuf],
    /// Folders that other programs fill; `None` if the config names none.
    pub shared: Option<SharedFolders<'a>>,
    /// Names of skills that the config disables.
    pub disabled: &'a [String],
    /// The environment, for checking requirements.
    pub env: &'a Env,
}

/// The result of a search for skills.
#[derive(Debug, Default)]
pub struct FoundSkills {
    /// The skills in force, sorted by name.
    pub skills: Vec<Skill>,
    /// The skills that are not in force, sorted by name.
    pub inactive: Vec<InactiveSkill>,
    /// The skills that cannot be read.
    pub unreadable: Vec<UnreadableSkill>,
    /// The SKILL.md files in shared folders that are not pinned yet.
    pub unpinned: Vec<UnpinnedFile>,
}

/// A SKILL.md in a shared folder that no run has used, with its content.
#[derive(Debug)]
pub struct UnpinnedFile {
    pub path: PathBuf,
    pub text: String,
}

/// A skill that is not in force, and the reason.
#[derive(Debug)]
pub struct InactiveSkill {
    /// The skill.
    pub skill: Skill,
    /// The reason.
    pub reason: InactiveReason,
}

/// The reason why a skill is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InactiveReason {
    /// The skill of the same name from this source takes precedence.
    Superseded(SkillSource),
    /// The config disables it.
    Disabled,
    /// It differs from what a run first used.
    Changed,
}

impl InactiveSkill {
    /// The notice about a changed skill, and the step that brings it back.
    pub fn change_notice(&self) -> Option<String> {
        let (name, path) = (&self.skill.name, self.skill.location.display());
        (self.reason == InactiveReason::Changed).then(|| {
            format!(
                "skill `{name}` not used: it changed since its first use; read `{path}`, then run `nanobot trust {}` to use it",
                quote(&path.to_string())
            )
        })
    }
}

impl FoundSkills {
    /// Returns the notices that every run prints: skills that cannot be read, in whole or in part.
    pub fn notices(&self) -> Vec<String> {
        let unreadable = self.unreadable.iter().map(UnreadableSkill::describe);
        let broken = self.skills.iter().filter(|skill| skill.is_broken);
        let broken = broken.map(|skill| {
            let name = &skill.name;
            format!("skill `{name}`: its front matter is partly invalid; see `nanobot skill check {name}`")
        });
        let changed = self.inactive.iter().filter_map(InactiveSkill::change_notice);
        unreadable.chain(broken).chain(changed).collect()
    }

    /// Returns the skill `name`, if it is in force.
    pub fn by_name(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }
}

/// Finds all skills: in the workspace, in the user's own folder, in trusted directories, in shared folders, and built-in. If several have
/// the same name, the first one takes precedence. A changed skill of a shared folder takes none.
pub fn find_skills(search_paths: SearchPaths<'_>) -> FoundSkills {
    let SearchPaths { workspace, own_dir, trusted_dirs, ignored_files, shared, disabled, env } =
        search_paths;
    let dir = workspace.join("skills");
    let requirements = RequirementChecker::new(env);
    let mut found_skills = FoundSkills::default();
    let mut all: Vec<Skill> = Vec::new();
    let own = own_dir.map(|dir| (dir, SkillSource::Own(dir.to_owned())));
    let trusted =
        trusted_dirs.iter().map(|dir| (dir.as_path(), SkillSource::Directory(dir.clone())));
    let shared_dirs = shared.map_or(&[][..], |shared| shared.dirs);
    let shared_sources =
        shared_dirs.iter().map(|dir| (dir.as_path(), SkillSource::Shared(dir.clone())));
    let sources = std::iter::once((dir.as_path(), SkillSource::Workspace));
    for (dir, source) in sources.chain(own).chain(trusted).chain(shared_sources) {
        for file in skill_files::read_all(dir, &source, shared_dirs, &mut found_skills.unreadable) {
            let location = dir.join(&file.name).join("SKILL.md");
            if ignored_files.contains(&location) {
                continue;
            }
            let mut skill = parse(&file.name, &file.text, &requirements);
            skill.location = location;
            skill.source = source.clone();
            skill.warnings.extend(file.warning);
            if let Some(SharedFolders { trust, .. }) = shared.filter(|_| skill.is_shared()) {
                let pin = trust.check_skill(&skill.location, file.text.as_bytes());
                if pin == SkillPin::Changed {
                    let reason = InactiveReason::Changed;
                    found_skills.inactive.push(InactiveSkill { skill, reason });
                    continue;
                }
                if pin == SkillPin::Missing {
                    let path = skill.location.clone();
                    found_skills.unpinned.push(UnpinnedFile { path, text: file.text });
                }
                if pin != SkillPin::Trusted {
                    skill.wait_for_trust();
                }
            }
            all.push(skill);
        }
    }
    for built_in in BUILT_IN_SKILLS {
        let mut skill = built_in.skill(&requirements);
        skill.location = dir.join(built_in.name).join("SKILL.md");
        all.push(skill);
    }
    // The sort is stable: skills of the same name stay in order of precedence.
    all.sort_by(|one, other| one.name.cmp(&other.name));
    for skill in all {
        let previous = found_skills.skills.last().filter(|previous| previous.name == skill.name);
        let superseded =
            previous.map(|previous| InactiveReason::Superseded(previous.source.clone()));
        let is_disabled = disabled.contains(&skill.name);
        match superseded.or_else(|| is_disabled.then_some(InactiveReason::Disabled)) {
            Some(reason) => found_skills.inactive.push(InactiveSkill { skill, reason }),
            None => found_skills.skills.push(skill),
        }
    }
    found_skills.inactive.sort_by(|one, other| one.skill.name.cmp(&other.skill.name));
    found_skills
}

/// Reads the skill in `folder`, which has the name of the folder. `None` if there is no SKILL.md.
///
/// # Errors
/// The SKILL.md cannot be read, is larger than [`MAX_TEXT_BYTES`], or is a link that leads out of the folder.
pub fn read_skill(folder: &Path, env: &Env) -> Result<Option<Skill>> {
    let location = folder.join("SKILL.md");
    let source = SkillSource::Directory(folder.to_owned());
    let read = skill_files::read_text(&location, folder, &source, &[]);
    let Some((text, warning)) = read.with_context(|| format!("read `{}`", location.display()))?
    else {
        return Ok(None);
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut skill = parse(&name, &text, &RequirementChecker::new(env));
    (skill.location, skill.source) = (location, source);
    skill.warnings.extend(warning);
    Ok(Some(skill))
}

/// Returns the name of the skill whose SKILL.md is at `path`, given the location of each skill. No I/O: the statistics of a session are the
/// same whenever they are computed.
pub fn skill_at<'a>(path: &str, locations: &'a [(String, PathBuf)]) -> Option<&'a str> {
    let path = normalized(Path::new(path));
    if path.file_name()? != "SKILL.md" {
        return None;
    }
    let exact = locations.iter().find(|(_, location)| normalized(location) == path);
    // A built-in skill is recognized at any path that ends in its name, since models guess where it is.
    let built_in = || {
        let folder = path.parent()?.file_name()?.to_str()?;
        let name = BuiltInSkill::by_name(folder)?.name;
        locations.iter().find(|(skill, _)| skill == name)
    };
    let (name, _) = exact.or_else(built_in)?;
    Some(name)
}

/// Resolves `.` and `..` in `path` without accessing the file system.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(normalized.pop()),
            other => normalized.push(other),
        }
    }
    normalized
}

#[cfg(test)]
mod tests {
    use super::{SearchPaths, SkillSource, find_skills, skill_at};
    use nanobot_os::env::Env;
    use std::path::{Path, PathBuf};

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn env(root: &Path) -> Env {
        [("PATH", root.join("bin").to_str().unwrap())].into_iter().collect()
    }

    #[test]
    fn skills_are_found_and_problems_reported() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let find = |disabled: &[&str]| {
            let disabled: Vec<String> = disabled.iter().map(|&name| name.to_owned()).collect();
            let found_skills = find_skills(SearchPaths {
                workspace: root,
                own_dir: None,
                trusted_dirs: &[root.join("repo/skills")],
                ignored_files: &[],
                shared: None,
                disabled: &disabled,
                env: &env(root),
            });
            let own = found_skills.skills.iter();
            let own = own.filter(|skill| skill.source != SkillSource::BuiltIn);
            let names: Vec<String> = own
                .map(|skill| {
                    format!("{}: {} {:?}", skill.name, skill.description, skill.unmet_requirements)
                })
                .collect();
            let inactive = found_skills.inactive.iter();
            let inactive: Vec<String> = inactive
                .map(|inactive| format!("{} {:?}", inactive.skill.name, inactive.reason))
                .collect();
            (names, inactive, found_skills.notices())
        };
        assert_eq!(find(&[]), (vec![], vec![], vec![]));

        write(root, "bin/plain", "");
        let needs = "metadata: {nanobot: {requires: {bins: plain}}}";
        let text = format!("---\ndescription: second\n{needs}\n---\n");
        write(root, "skills/b/SKILL.md", &text);
        write(root, "skills/a/SKILL.md", "---\ndescription: first\n---\n");
        write(root, "skills/memory/SKILL.md", "---\ndescription: mine\n---\n");
        write(root, "repo/skills/b/SKILL.md", "---\ndescription: b\n---\n");
        write(root, "repo/skills/c/SKILL.md", "---\ndescription: c\n---\n");
        write(root, "skills/empty/notes.md", "");
        write(root, "skills/stray.md", "");
        write(root, "skills/.kept/SKILL.md", "");
        std::fs::create_dir_all(root.join("skills/odd/SKILL.md")).unwrap();
        let (names, inactive, notices) = find(&["a"]);
        let expect = ["b: second [\"CLI: plain\"]", "c: c []", "memory: mine []"];
        assert_eq!(names, expect);
        let expect = ["a Disabled", "b Superseded(Workspace)", "memory Superseded(Workspace)"];
        assert_eq!(inactive, expect);
        assert_eq!(notices, ["skill `odd`: SKILL.md is not a regular file"]);
    }

    #[test]
    fn skills_are_recognized_by_path() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        write(root, "skills/tea/SKILL.md", "---\ndescription: tea\n---\n");
        let found_skills = find_skills(SearchPaths {
            workspace: root,
            own_dir: None,
            trusted_dirs: &[],
            ignored_files: &[],
            shared: None,
            disabled: &[],
            env: &env(root),
        });
        let skills = found_skills.skills.into_iter();
        let locations: Vec<(String, PathBuf)> =
            skills.map(|skill| (skill.name, skill.location)).collect();
        let check = |path: &str, expect: Option<&str>| {
            let path = path.replace("ROOT", root.to_str().unwrap());
            assert_eq!(skill_at(&path, &locations), expect, "{path}");
        };
        check("ROOT/skills/tea/SKILL.md", Some("tea"));
        check("ROOT/skills/./x/../tea/SKILL.md", Some("tea"));
        check("skills/tea/SKILL.md", None);
        check("/elsewhere/skills/tea/SKILL.md", None);
        check("ROOT/skills/tea/notes.md", None);
        check("ROOT/skills/memory/SKILL.md", Some("memory"));
        check("skills/memory/SKILL.md", Some("memory"));
        check("/anywhere/memory/SKILL.md", Some("memory"));
        check("SKILL.md", None);
        check("", None);
    }
}
