//! Versions of the memory: the full text of each in a file, and a log of their origins.
//!
//! A text is staged before it is in force, and becomes a version when the log has a line for it. Other changes of the file become
//! a version as soon as they are noticed, so that an undo never loses anything.

use anyhow::{Context, Result};
use nanobot_os::durable_file;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Number of versions that are kept.
const MAX_VERSIONS: usize = 200;

/// The origin of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VersionCause {
    Consolidation,
    Edit,
    Undo,
    /// The user has accepted untrusted content. The text is unchanged.
    Accept,
    /// A tool of the agent changed the file in a turn.
    Turn,
    /// A change by a person with an editor, or by another program.
    #[serde(rename = "outside")]
    Manual,
}

impl VersionCause {
    /// The name used in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Consolidation => "consolidation",
            Self::Edit => "edit",
            Self::Undo => "undo",
            Self::Accept => "accept",
            Self::Turn => "turn",
            Self::Manual => "manual",
        }
    }
}

/// The log entry of a version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    pub id: u64,
    /// Local time.
    pub time: String,
    pub cause: VersionCause,
    /// The session that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub bytes: u64,
    /// The reason it was stored aside and was never in force.
    #[serde(default, rename = "aside", skip_serializing_if = "Option::is_none")]
    pub aside_reason: Option<String>,
    /// Untrusted content in the conversation that it was made from, if any: the text may originate there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted: Option<String>,
    /// The version before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// For an undo, the version that it restored.
    #[serde(default, rename = "of", skip_serializing_if = "Option::is_none")]
    pub restored: Option<u64>,
}

impl Version {
    /// The position in the version history with this version in force: an undo moves back, all other changes move
    /// forward.
    pub fn position(&self) -> u64 {
        self.restored.unwrap_or(self.id)
    }
}

/// The directory of versions.
#[derive(Clone, Debug)]
pub(super) struct VersionStore {
    pub(super) dir: PathBuf,
}

impl VersionStore {
    /// Lists all versions, oldest first. Invalid lines are skipped.
    pub(super) fn list(&self) -> Result<Vec<Version>> {
        let text = durable_file::read(&self.log_path())?.unwrap_or_default();
        let lines = text.split(|byte| *byte == b'\n');
        let mut list: Vec<Version> =
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        list.sort_by_key(|version| version.id);
        Ok(list)
    }

    /// Reads the text of a version; `None` if it is no longer stored.
    pub(super) fn read_text(&self, id: u64) -> Result<Option<Vec<u8>>> {
        durable_file::read(&self.text_path(id))
    }

    /// Stages the text of a future version.
    pub(super) fn stage(&self, id: u64, text: &[u8]) -> Result<()> {
        durable_file::create_dir(&self.dir)?;
        durable_file::replace(&self.text_path(id), text)
    }

    /// Adds a staged text to the log, unless it is already there.
    pub(super) fn add(&self, version: &Version) -> Result<()> {
        let list = self.list()?;
        if list.iter().any(|listed| listed.id == version.id) {
            return Ok(());
        }
        let mut line = serde_json::to_vec(version).context("encode a memory version")?;
        line.push(b'\n');
        let path = self.log_path();
        let log = durable_file::open_line_log(&path)?;
        durable_file::append_to(&log, &path, durable_file::size(&log, &path)?, &line)?;
        durable_file::sync(&log, &path)?;
        self.prune(&list)
    }

    /// Removes the oldest versions beyond the limit. `list` is the state before the newest was added.
    fn prune(&self, list: &[Version]) -> Result<()> {
        // Runs rarely, and then removes several at once.
        if list.len() < MAX_VERSIONS + MAX_VERSIONS / 10 {
            return Ok(());
        }
        let list = self.list()?;
        let (oldest, newest) = list.split_at(list.len() - MAX_VERSIONS);
        let mut text = Vec::new();
        for version in newest {
            serde_json::to_writer(&mut text, version).context("encode a memory version")?;
            text.push(b'\n');
        }
        durable_file::replace(&self.log_path(), &text)?;
        for version in oldest {
            // A file that cannot be removed only takes up space.
            drop(std::fs::remove_file(self.text_path(version.id)));
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("log.jsonl")
    }

    fn text_path(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:06}.md"))
    }
}

/// The version in force: the last one in the log that was not stored aside.
pub(super) fn current(list: &[Version]) -> Option<&Version> {
    list.iter().rev().find(|version| version.aside_reason.is_none())
}

/// The version before the one in force; if that one is an undo, the version before the restored one.
pub(super) fn previous(list: &[Version]) -> Option<&Version> {
    let position = current(list)?.position();
    let parent = list.iter().find(|version| version.id == position)?.parent?;
    list.iter().find(|version| version.id == parent)
}

#[cfg(test)]
mod tests {
    use super::{Version, VersionCause, VersionStore, previous};

    fn version(id: u64, parent: Option<u64>, of: Option<u64>) -> Version {
        let cause = if of.is_some() { VersionCause::Undo } else { VersionCause::Edit };
        Version {
            id,
            time: String::new(),
            cause,
            session: None,
            bytes: 0,
            aside_reason: None,
            untrusted: None,
            parent,
            restored: of,
        }
    }

    #[test]
    fn repeated_undo_goes_further_back() {
        let check = |list: &[Version], expect: Option<u64>| {
            assert_eq!(previous(list).map(|version| version.id), expect);
        };
        let mut list = vec![version(1, None, None)];
        check(&list, None);
        list.push(version(2, Some(1), None));
        list.push(version(3, Some(2), None));
        check(&list, Some(2));
        list.push(version(4, Some(3), Some(2)));
        check(&list, Some(1));
        list.push(version(5, Some(2), Some(1)));
        check(&list, None);
        // The next version follows the restored one.
        list.push(version(6, Some(1), None));
        check(&list, Some(1));
        let aside = Version { aside_reason: Some("too short".into()), ..version(7, Some(6), None) };
        list.push(aside);
        check(&list, Some(1));
    }

    #[test]
    fn old_versions_are_pruned_and_a_torn_log_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let versions = VersionStore { dir: dir.path().join("v") };
        for id in 1..=230 {
            versions.stage(id, id.to_string().as_bytes()).unwrap();
            versions.add(&version(id, None, None)).unwrap();
            versions.add(&version(id, None, None)).unwrap();
        }
        let list = versions.list().unwrap();
        assert!((200..=220).contains(&list.len()), "{}", list.len());
        assert_eq!(list.last().unwrap().id, 230);
        assert_eq!(versions.read_text(1).unwrap(), None);
        assert_eq!(versions.read_text(230).unwrap().unwrap(), b"230");
        let log = dir.path().join("v/log.jsonl");
        let text = std::fs::read(&log).unwrap();
        std::fs::write(&log, &text[..text.len() - 5]).unwrap();
        versions.add(&version(231, None, None)).unwrap();
        assert_eq!(versions.list().unwrap().last().unwrap().id, 231);
    }
}
