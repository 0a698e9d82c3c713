//! Reads the SKILL.md files of a folder of skills.

use super::definition::{SkillSource, UnreadableSkill};
use super::parse::is_displayable_name;
use std::fs::{File, canonicalize};
use std::io::{Error, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The longest SKILL.md that is read, in bytes.
pub const MAX_TEXT_BYTES: u64 = 1 << 20;

/// A SKILL.md that was read.
pub(super) struct SkillFile {
    pub(super) name: String,
    pub(super) text: String,
    /// A problem of the file.
    pub(super) warning: Option<String>,
}

/// Reads all skills in `dir`. Unreadable ones are added to `unreadable` and do not affect the others. Links into one of `shared_dirs` are
/// left out, since the skill is found there.
pub(super) fn read_all(
    dir: &Path,
    source: &SkillSource,
    shared_dirs: &[PathBuf],
    unreadable: &mut Vec<UnreadableSkill>,
) -> Vec<SkillFile> {
    let mut add_unreadable = |name: Option<&str>, reason: String| {
        unreadable.push(UnreadableSkill {
            name: name.map(str::to_owned),
            path: name.map_or(dir.to_owned(), |name| dir.join(name)),
            reason,
        });
    };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            add_unreadable(None, error.to_string());
            return Vec::new();
        }
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                add_unreadable(None, error.to_string());
                continue;
            }
        };
        let name = entry.file_name();
        // Names with a leading dot belong to programs: version control, or an installation in progress.
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let Some(name) = name.to_str().filter(|name| is_displayable_name(name)) else {
            let escaped = name.to_string_lossy().escape_debug().to_string();
            add_unreadable(Some(&escaped), "its name has invisible characters".into());
            continue;
        };
        let path = entry.path().join("SKILL.md");
        match read_text(&path, dir, source, shared_dirs) {
            Ok(Some((text, warning))) => {
                files.push(SkillFile { name: name.to_owned(), text, warning });
            }
            Ok(None) => {}
            Err(error) => add_unreadable(Some(name), error.to_string()),
        }
    }
    files
}

/// Reads a SKILL.md in the folder of skills `dir`, with a warning about the file; `None` if there is none.
pub(super) fn read_text(
    path: &Path,
    dir: &Path,
    source: &SkillSource,
    shared_dirs: &[PathBuf],
) -> std::io::Result<Option<(String, Option<String>)>> {
    let is_file = match path.metadata() {
        Ok(metadata) => metadata.is_file(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // Opening a named pipe would block until its other end is opened.
    if !is_file {
        return Err(Error::other("SKILL.md is not a regular file"));
    }
    let real_path = canonicalize(path)?;
    let leads_out = !real_path.starts_with(canonicalize(dir)?);
    let mut warning = None;
    if leads_out {
        let is_shared = matches!(source, SkillSource::Shared(_));
        if is_shared && shared_dirs.iter().any(|dir| real_path.starts_with(dir)) {
            return Ok(None);
        }
        // A link may lead to files that are neither trusted nor protected.
        if *source != SkillSource::Workspace {
            return Err(Error::other(
                "SKILL.md is a link that points outside the skills directory",
            ));
        }
        warning = Some(
            "it is a link that points outside the workspace, which `read_file` does not follow"
                .to_owned(),
        );
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(Error::other("SKILL.md is larger than 1 MiB"));
    }
    let text = String::from_utf8(bytes).unwrap_or_else(|error| {
        warning = Some("it is not valid UTF-8; invalid bytes are shown as U+FFFD".into());
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    Ok(Some((text, warning)))
}
