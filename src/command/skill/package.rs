//! A skill to be installed: read in full, checked, and described.

use super::describe::{body_tokens, entry_line, format_rows};
use super::lookup::built_in_entries;
use crate::error::{Exit, fail, fail_with_hint};
use crate::ops::context::Context;
use crate::policy::provenance::addresses::find_linked_hosts;
use crate::skill::folder::{EntryType, FolderEntry, SkillFolder};
use crate::skill::install::PackageEntry;
use crate::skill::{
    BuiltInSkill, MAX_TEXT_BYTES, RequirementChecker, Skill, count_hidden_chars,
    is_displayable_name, is_valid_name, parse,
};
use crate::sys::durable_file::{format_size, read_limited};
use crate::sys::terminal::sanitize;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::path::Path;

/// Maximum number of addresses shown.
const MAX_URLS: usize = 20;

/// A skill with all its files, before it is installed.
pub(super) struct SkillPackage {
    pub(super) skill: Skill,
    /// The name of the folder that contains it.
    pub(super) directory_name: String,
    pub(super) files: Vec<PackageEntry>,
    skipped: Vec<String>,
    /// Warnings, in addition to those about its SKILL.md.
    pub(super) warnings: Vec<String>,
    /// Reasons why it cannot be installed.
    pub(super) problems: Vec<String>,
}

impl SkillPackage {
    /// Reads a skill from `path`: a directory, or a single SKILL.md.
    ///
    /// # Errors
    /// The path does not exist, has no SKILL.md, or cannot be read.
    pub(super) fn read(ctx: &Context, path: &Path) -> Result<Self> {
        let shown = path.display();
        let about = std::fs::metadata(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => fail_with_hint(
                Exit::NoInput,
                format!("there is no `{shown}`"),
                "a directory with a SKILL.md, a SKILL.md, or the name of a built-in skill; nothing is downloaded",
            ),
            _ => anyhow::Error::new(error).context(format!("stat `{shown}`")),
        })?;
        let real = std::fs::canonicalize(path).with_context(|| format!("resolve `{shown}`"))?;
        let name_of = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        if about.is_file() {
            let bytes = read_limited(path, MAX_TEXT_BYTES)?.unwrap_or_default();
            let entry = FolderEntry {
                path: "SKILL.md".into(),
                entry_type: EntryType::File {
                    size: bytes.len() as u64,
                    is_executable: false,
                },
            };
            let folder = real.parent().map(name_of).unwrap_or_default();
            return Self::new(ctx, &folder, vec![(entry, bytes)], Vec::new(), Vec::new());
        }
        if !about.is_dir() {
            return Err(fail(
                Exit::BadInput,
                format!("`{shown}` is not a regular file or directory"),
            ));
        }
        let folder = SkillFolder::scan(path)?;
        let mut troubles = folder.problems();
        let bytes = match troubles.is_empty() {
            true => folder.read_files()?,
            // Of a folder that is refused anyway, read only the text that is shown.
            false => folder
                .entries
                .iter()
                .map(|entry| read_skill_text(path, entry))
                .collect(),
        };
        let SkillFolder {
            entries, left_out, ..
        } = folder;
        let text = entries
            .iter()
            .find(|entry| entry.path == Path::new("SKILL.md"));
        match text.map(|entry| &entry.entry_type) {
            Some(EntryType::File { size, .. }) if *size > MAX_TEXT_BYTES => {
                troubles.push("its SKILL.md is larger than 1 MiB".into());
            }
            Some(EntryType::File { .. }) => {}
            _ => {
                return Err(fail(
                    Exit::BadInput,
                    format!("`{shown}` has no SKILL.md that is a regular file"),
                ));
            }
        }
        let pieces = entries.into_iter().zip(bytes).collect();
        Self::new(ctx, &name_of(&real), pieces, left_out, troubles)
    }

    /// A built-in skill, as its files.
    pub(super) fn from_built_in(ctx: &Context, built_in: &BuiltInSkill) -> Result<Self> {
        let bytes = built_in
            .files
            .iter()
            .map(|(_, text)| text.as_bytes().to_vec());
        let pieces = built_in_entries(built_in).into_iter().zip(bytes).collect();
        Self::new(ctx, built_in.name, pieces, Vec::new(), Vec::new())
    }

    fn new(
        ctx: &Context,
        folder: &str,
        pieces: Vec<PackageEntry>,
        left_out: Vec<String>,
        troubles: Vec<String>,
    ) -> Result<Self> {
        let text = pieces
            .iter()
            .find(|(entry, _)| entry.path == Path::new("SKILL.md"));
        let text = String::from_utf8_lossy(text.map_or(&[][..], |(_, bytes)| bytes));
        let requirements = RequirementChecker::new(&ctx.env);
        // Use the author's name from the front matter: a download may have changed the folder's name.
        let said = parse(folder, &text, &requirements).inert_fields.name;
        let name = said
            .filter(|name| is_valid_name(name))
            .unwrap_or_else(|| folder.to_owned());
        if !is_displayable_name(&name) {
            let cause = format!("`{}` is not a valid skill name", sanitize(&name));
            return Err(fail_with_hint(
                Exit::BadInput,
                cause,
                "`name: …` in its front matter, in lower-case letters, digits and hyphens",
            ));
        }
        let mut odd = Vec::new();
        for (entry, bytes) in &pieces {
            let hidden = std::str::from_utf8(bytes).map_or(0, count_hidden_chars)
                + count_hidden_chars(&entry.path.display().to_string());
            if hidden > 0 && entry.path != Path::new("SKILL.md") {
                odd.push(format!(
                    "`{}` has hidden characters: {hidden}",
                    entry.path.display()
                ));
            }
        }
        Ok(Self {
            skill: parse(&name, &text, &requirements),
            directory_name: folder.to_owned(),
            files: pieces,
            skipped: left_out,
            warnings: odd,
            problems: troubles,
        })
    }

    /// Describes the contents in rows.
    pub(super) fn describe(&self, ctx: &Context, place: &str, hides: &str) -> String {
        let skill = &self.skill;
        let files: Vec<&FolderEntry> = self.files.iter().map(|(entry, _)| entry).collect();
        let is_file = |entry: &&FolderEntry| matches!(entry.entry_type, EntryType::File { .. });
        let (count, size) = (
            files.iter().copied().filter(|entry| is_file(entry)).count(),
            self.files
                .iter()
                .map(|(_, bytes)| bytes.len() as u64)
                .sum::<u64>(),
        );
        let shown = files
            .iter()
            .filter(|entry| entry.entry_type != EntryType::Folder);
        let lines = shown.map(|entry| entry_line(entry)).chain(
            self.skipped
                .iter()
                .map(|what| format!("not copied: {what}")),
        );
        let lines: Vec<String> = std::iter::once(format!("{count}, {}", format_size(size)))
            .chain(lines)
            .collect();
        let always = match skill.always {
            true => "its text is part of every request",
            false => "",
        };
        let mut tools = skill.inert_fields.allowed_tools.join(" ");
        if !tools.is_empty() {
            tools.push_str(" (grants nothing)");
        }
        let odd: Vec<String> = skill
            .warnings
            .iter()
            .chain(&self.warnings)
            .cloned()
            .collect();
        let rows = [
            ("name", skill.name.clone()),
            ("about", skill.description.clone()),
            ("into", place.to_owned()),
            ("hides", hides.to_owned()),
            ("tokens", body_tokens(skill).to_string()),
            ("always", always.to_owned()),
            (
                "needs",
                skill
                    .requirements
                    .describe(&RequirementChecker::new(&ctx.env))
                    .join(", "),
            ),
            (
                "license",
                skill.inert_fields.license.clone().unwrap_or_default(),
            ),
            ("tools", tools),
            ("files", lines.join("\n")),
            ("scripts", self.scripts().join("\n")),
            ("addresses", self.urls().join("\n")),
            ("hosts", allowed_hosts(skill)),
            ("warnings", odd.join("\n")),
        ];
        format_rows(&rows, ctx.terminal.stdout_width())
    }

    /// The files that are executable, or look like scripts.
    fn scripts(&self) -> Vec<String> {
        let script = |(entry, bytes): &PackageEntry| {
            let EntryType::File { is_executable, .. } = entry.entry_type else {
                return None;
            };
            let first = bytes
                .split(|byte| *byte == b'\n')
                .next()
                .unwrap_or_default();
            let with = first.strip_prefix(b"#!").map(String::from_utf8_lossy);
            let end = entry
                .path
                .extension()
                .and_then(|end| end.to_str())
                .unwrap_or_default();
            let is_script = [
                "sh", "bash", "zsh", "py", "js", "mjs", "ts", "rb", "pl", "php", "ps1", "bat",
            ]
            .contains(&end);
            let is_binary = bytes.starts_with(b"\x7fELF")
                || std::str::from_utf8(bytes).is_err() && is_executable;
            let path = entry.path.display();
            match with {
                Some(with) => Some(format!("{path}, run by {}", with.trim())),
                None if is_binary => Some(format!("{path}, a binary program")),
                None => (is_script || is_executable).then(|| path.to_string()),
            }
        };
        self.files.iter().filter_map(script).collect()
    }

    /// The addresses in its texts.
    fn urls(&self) -> Vec<String> {
        let texts = self
            .files
            .iter()
            .filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok());
        let all: BTreeSet<&str> = texts.flat_map(extract_urls).collect();
        let mut shown: Vec<String> = all
            .iter()
            .take(MAX_URLS)
            .map(|&address| address.to_owned())
            .collect();
        if all.len() > MAX_URLS {
            shown.push(format!("and {} more", all.len() - MAX_URLS));
        }
        shown
    }
}

/// All hosts that `skill` opens for the web tools despite untrusted content, for the user to check before installing.
pub(super) fn allowed_hosts(skill: &Skill) -> String {
    let hosts: BTreeSet<String> = find_linked_hosts(&skill.body).collect();
    let hosts: Vec<String> = hosts.into_iter().collect();
    match hosts.is_empty() {
        true => String::new(),
        false => format!(
            "always allowed, even after untrusted content: {}",
            hosts.join(", ")
        ),
    }
}

/// The text of a SKILL.md in a folder that is refused.
fn read_skill_text(root: &Path, entry: &FolderEntry) -> Vec<u8> {
    let is_text =
        entry.path == Path::new("SKILL.md") && matches!(entry.entry_type, EntryType::File { .. });
    let read = is_text.then(|| read_limited(&root.join(&entry.path), MAX_TEXT_BYTES));
    // The refusal is reported already, so a read error here adds nothing.
    read.and_then(Result::ok).flatten().unwrap_or_default()
}

/// The addresses in `text`, each up to its obvious end.
fn extract_urls(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("://").filter_map(|(at, _)| {
        let schemes = ["https", "http"].iter();
        let start = schemes.filter_map(|scheme| at.checked_sub(scheme.len()));
        let mut found = start.filter(|start| {
            let scheme = text.get(*start..at).unwrap_or_default();
            ["http", "https"]
                .iter()
                .any(|it| scheme.eq_ignore_ascii_case(it))
        });
        found.next().map(|start| &text[start..])
    });
    starts.map(|rest| {
        let ends = |letter: char| letter.is_whitespace() || "<>\"'`)]}|\\".contains(letter);
        let address = rest.split(ends).next().unwrap_or_default();
        address.trim_end_matches(['.', ',', ';', ':', '!', '?', '*'])
    })
}

#[cfg(test)]
mod tests {
    use super::extract_urls;

    #[test]
    fn addresses_end_where_they_plainly_end() {
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
