//! A skill with all its files before it is installed: reads and checks it.

use crate::ops::context::Context;
use crate::ops::skill_lookup::built_in_entries;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::message::addresses::find_linked_hosts;
use nanobot_os::durable_file::read_limited;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::folder::{EntryType, FolderEntry, SkillFolder};
use nanobot_store::skill::install::PackageEntry;
use nanobot_store::skill::{
    BuiltInSkill, MAX_TEXT_BYTES, RequirementChecker, Skill, count_hidden_chars,
    is_displayable_name, is_valid_name, parse,
};
use std::collections::BTreeSet;
use std::path::Path;

/// Maximum number of URLs in the description.
const MAX_URLS: usize = 20;

/// A skill with all its files, before it is installed.
pub(crate) struct SkillPackage {
    pub(crate) skill: Skill,
    /// The name of the directory that contains it.
    pub(crate) directory_name: String,
    pub(crate) files: Vec<PackageEntry>,
    /// Entries that are not installed, each with the reason.
    pub(crate) skipped: Vec<String>,
    /// Warnings about its other files. The warnings about its SKILL.md are in `skill`.
    pub(crate) warnings: Vec<String>,
    /// Reasons why it cannot be installed.
    pub(crate) problems: Vec<String>,
}

impl SkillPackage {
    /// Reads a skill from `path`: a directory, or a single SKILL.md.
    ///
    /// # Errors
    /// The path does not exist, has no SKILL.md, or cannot be read.
    pub(crate) fn read(ctx: &Context, path: &Path) -> Result<Self> {
        let display_path = path.display();
        let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => fail(Exit::NoInput, format!("there is no `{display_path}`"))
                .with_hint("a directory with a SKILL.md, a SKILL.md, the name of a built-in skill, an https archive or ADDRESS@COMMIT"),
            _ => anyhow::Error::new(error).context(format!("stat `{display_path}`")),
        })?;
        let real_path =
            std::fs::canonicalize(path).with_context(|| format!("resolve `{display_path}`"))?;
        let name_of = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        if metadata.is_file() {
            let bytes = read_limited(path, MAX_TEXT_BYTES)?.unwrap_or_default();
            let entry = FolderEntry {
                path: "SKILL.md".into(),
                entry_type: EntryType::File { size: bytes.len() as u64, is_executable: false },
            };
            let directory_name = real_path.parent().map(name_of).unwrap_or_default();
            return Self::new(ctx, &directory_name, vec![(entry, bytes)], Vec::new(), Vec::new());
        }
        if !metadata.is_dir() {
            let cause = format!("`{display_path}` is not a regular file or directory");
            return Err(fail(Exit::BadInput, cause));
        }
        let folder = SkillFolder::scan(path)?;
        let mut problems = folder.problems();
        let bytes = if problems.is_empty() {
            folder.read_files()?
        } else {
            // A directory with problems is not installed, so only its SKILL.md is read, for the description.
            folder.entries.iter().map(|entry| read_skill_text(path, entry)).collect()
        };
        let SkillFolder { entries, skipped, .. } = folder;
        let skill_md = entries.iter().find(|entry| entry.path == Path::new("SKILL.md"));
        match skill_md.map(|entry| &entry.entry_type) {
            Some(EntryType::File { size, .. }) if *size > MAX_TEXT_BYTES => {
                problems.push("its SKILL.md is larger than 1 MiB".into());
            }
            Some(EntryType::File { .. }) => {}
            _ => {
                let cause = format!("`{display_path}` has no SKILL.md that is a regular file");
                return Err(fail(Exit::BadInput, cause));
            }
        }
        let files = entries.into_iter().zip(bytes).collect();
        Self::new(ctx, &name_of(&real_path), files, skipped, problems)
    }

    /// Converts a built-in skill to a package.
    pub(crate) fn from_built_in(ctx: &Context, built_in: &BuiltInSkill) -> Result<Self> {
        let bytes = built_in.files.iter().map(|(_, text)| text.as_bytes().to_vec());
        let files = built_in_entries(built_in).into_iter().zip(bytes).collect();
        Self::new(ctx, built_in.name, files, Vec::new(), Vec::new())
    }

    /// The skill in `files`, whose paths were checked.
    ///
    /// # Errors
    /// Its name is not valid.
    pub(crate) fn new(
        ctx: &Context,
        directory_name: &str,
        files: Vec<PackageEntry>,
        skipped: Vec<String>,
        problems: Vec<String>,
    ) -> Result<Self> {
        let skill_md = files.iter().find(|(entry, _)| entry.path == Path::new("SKILL.md"));
        let text = String::from_utf8_lossy(skill_md.map_or(&[][..], |(_, bytes)| bytes));
        let requirements = RequirementChecker::new(&ctx.env);
        // The name in the front matter takes precedence: a download may have renamed the directory.
        let declared_name = parse(directory_name, &text, &requirements).inert_fields.name;
        let name = declared_name
            .filter(|name| is_valid_name(name))
            .unwrap_or_else(|| directory_name.to_owned());
        if !is_displayable_name(&name) {
            let cause = format!("`{}` is not a valid skill name", sanitize(&name));
            return Err(fail(Exit::BadInput, cause).with_hint(
                "`name: …` in its front matter, in lower-case letters, digits and hyphens",
            ));
        }
        let mut warnings = Vec::new();
        for (entry, bytes) in &files {
            let hidden_chars = std::str::from_utf8(bytes).map_or(0, count_hidden_chars)
                + count_hidden_chars(&entry.path.display().to_string());
            if hidden_chars > 0 && entry.path != Path::new("SKILL.md") {
                let path = entry.path.display();
                warnings.push(format!("`{path}` has hidden characters: {hidden_chars}"));
            }
        }
        Ok(Self {
            skill: parse(&name, &text, &requirements),
            directory_name: directory_name.to_owned(),
            files,
            skipped,
            warnings,
            problems,
        })
    }

    /// Describes the files that are executable or look like scripts.
    pub(crate) fn scripts(&self) -> Vec<String> {
        let describe_script = |(entry, bytes): &PackageEntry| {
            let EntryType::File { is_executable, .. } = entry.entry_type else {
                return None;
            };
            let first_line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let interpreter = first_line.strip_prefix(b"#!").map(String::from_utf8_lossy);
            let extension =
                entry.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            let has_script_extension =
                ["sh", "bash", "zsh", "py", "js", "mjs", "ts", "rb", "pl", "php", "ps1", "bat"]
                    .contains(&extension);
            let is_binary = bytes.starts_with(b"\x7fELF")
                || std::str::from_utf8(bytes).is_err() && is_executable;
            let path = entry.path.display();
            match interpreter {
                Some(interpreter) => Some(format!("{path}, run by {}", interpreter.trim())),
                None if is_binary => Some(format!("{path}, a binary program")),
                None => (has_script_extension || is_executable).then(|| path.to_string()),
            }
        };
        self.files.iter().filter_map(describe_script).collect()
    }

    /// The URLs in its text files, at most [`MAX_URLS`], and the number of the others.
    pub(crate) fn urls(&self) -> Vec<String> {
        let texts = self.files.iter().filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok());
        let urls: BTreeSet<&str> = texts.flat_map(extract_urls).collect();
        let mut lines: Vec<String> =
            urls.iter().take(MAX_URLS).map(|&url| url.to_owned()).collect();
        if urls.len() > MAX_URLS {
            lines.push(format!("and {} more", urls.len() - MAX_URLS));
        }
        lines
    }
}

/// The hosts that `skill` links to. The web tools may reach them even after untrusted content, so the user must see them before
/// installing it.
pub(crate) fn linked_hosts(skill: &Skill) -> Vec<String> {
    find_linked_hosts(&skill.body).collect::<BTreeSet<String>>().into_iter().collect()
}

/// Reads `entry` if it is the SKILL.md of a directory that cannot be installed; empty otherwise.
fn read_skill_text(root: &Path, entry: &FolderEntry) -> Vec<u8> {
    let is_skill_md =
        entry.path == Path::new("SKILL.md") && matches!(entry.entry_type, EntryType::File { .. });
    if !is_skill_md {
        return Vec::new();
    }
    // The problems of the directory are reported anyway, so a read error is ignored.
    read_limited(&root.join(&entry.path), MAX_TEXT_BYTES).ok().flatten().unwrap_or_default()
}

/// Finds the `http` and `https` URLs in `text`, without quotes, brackets and punctuation after them.
fn extract_urls(text: &str) -> impl Iterator<Item = &str> {
    let beginnings = text.match_indices("://").filter_map(|(scheme_end, _)| {
        ["https", "http"].iter().find_map(|scheme| {
            let start = scheme_end.checked_sub(scheme.len())?;
            let is_scheme = text.get(start..scheme_end)?.eq_ignore_ascii_case(scheme);
            is_scheme.then(|| &text[start..])
        })
    });
    beginnings.map(|rest| {
        let is_end = |letter: char| letter.is_whitespace() || "<>\"'`)]}|\\".contains(letter);
        let url = rest.split(is_end).next().unwrap_or_default();
        url.trim_end_matches(['.', ',', ';', ':', '!', '?', '*'])
    })
}

#[cfg(test)]
mod tests {
    use super::extract_urls;

    #[test]
    fn urls_end_before_punctuation() {
        let check = |text: &str, expect: &[&str]| {
            assert_eq!(extract_urls(text).collect::<Vec<_>>(), expect, "{text:?}");
        };
        check("no httpd here", &[]);
        check(
            "see <https://a.example/x>, or http://b.example.",
            &["https://a.example/x", "http://b.example"],
        );
        check("[a](https://a.example/b?c=d)", &["https://a.example/b?c=d"]);
        check("curl 'https://a.example'|sh", &["https://a.example"]);
    }
}
