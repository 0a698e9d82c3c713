//! The list of trusted directories: those whose AGENTS.md and skills may instruct the agent.
//!
//! The list is stored outside of these directories and identifies each by real path and inode. A directory that was
//! moved or replaced is therefore not trusted, and no file inside a directory can declare it trusted. Until a directory
//! is trusted, its files are not opened; only their names are checked, to report what was ignored.

use crate::sys::durable_file;
use crate::sys::rooted_fs;
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The largest AGENTS.md that is read, in bytes: about 16,000 tokens, which are paid for with every request.
const MAX_INSTRUCTIONS_BYTES: u64 = 64 << 10;

/// The folders of a directory that may hold skills, in order of precedence: ours, then those that other agents use.
const SKILL_DIRS: [&str; 3] = ["skills", ".agents/skills", ".claude/skills"];

/// The list of trusted directories.
#[derive(Debug)]
pub struct TrustList {
    path: PathBuf,
    /// The trusted directories.
    pub directories: Vec<TrustedDirectory>,
}

/// A trusted directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedDirectory {
    /// The real path of the directory.
    pub path: PathBuf,
    device: u64,
    inode: u64,
    /// The time at which it was trusted, in RFC 3339.
    pub since: String,
}

/// The file format of the list.
#[derive(Default, Serialize, Deserialize)]
struct TrustFile {
    #[serde(default)]
    trusted: Vec<TrustedDirectory>,
}

/// The instructions found in the trusted directories.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DirectoryInstructions {
    /// Name and text of each AGENTS.md, outermost first.
    pub texts: Vec<(String, String)>,
    /// Folders of skills, innermost first.
    pub skills: Vec<PathBuf>,
    /// The trusted directories themselves, the outermost first.
    pub trusted: Vec<PathBuf>,
    /// Instruction files that exist but were not read, because their directory is not trusted.
    pub ignored: Vec<PathBuf>,
}

impl TrustList {
    /// Loads the list at `path`; it is empty if the file does not exist.
    ///
    /// # Errors
    /// A list that cannot be read or parsed. It is never treated as empty, and never overwritten.
    pub fn load(path: &Path) -> Result<Self> {
        let written: TrustFile = match durable_file::read(path)? {
            Some(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("parse `{}`", path.display()))?,
            None => TrustFile::default(),
        };
        Ok(Self {
            path: path.to_owned(),
            directories: written.trusted,
        })
    }

    /// Trusts `directory`, a real path, from now on. Returns true if it was not trusted before.
    pub fn add(&mut self, directory: &Path, now: Timestamp) -> Result<bool> {
        if self.is_trusted(directory) {
            return Ok(false);
        }
        let metadata = std::fs::metadata(directory)
            .with_context(|| format!("stat `{}`", directory.display()))?;
        self.directories.retain(|known| known.path != directory);
        self.directories.push(TrustedDirectory {
            path: directory.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            since: now.to_string(),
        });
        self.save()?;
        Ok(true)
    }

    /// Stops trusting `directory`. Returns true if it was in the list.
    pub fn revoke(&mut self, directory: &Path) -> Result<bool> {
        let before = self.directories.len();
        self.directories.retain(|known| known.path != directory);
        let was = self.directories.len() < before;
        if was {
            self.save()?;
        }
        Ok(was)
    }

    /// True if this very directory is in the list and has not been replaced since.
    pub fn is_trusted(&self, directory: &Path) -> bool {
        let known = self
            .directories
            .iter()
            .find(|known| known.path == directory);
        known.is_some_and(TrustedDirectory::is_unchanged)
    }

    /// Reads the instructions of `directory` and of its parents up to the root of its repository. Directories below a
    /// trusted one count as trusted; if none is trusted, nothing is read.
    pub fn read_instructions(&self, directory: &Path) -> Result<DirectoryInstructions> {
        let chain = directory_chain(directory);
        let from = chain.iter().position(|place| self.is_trusted(place));
        let (ignored, trusted) = chain.split_at(from.unwrap_or(chain.len()));
        let mut notes = DirectoryInstructions::default();
        for place in ignored {
            let exists = instruction_paths(place).filter(|path| path.symlink_metadata().is_ok());
            notes.ignored.extend(exists);
        }
        notes.trusted = trusted.to_vec();
        for place in trusted {
            if let Some(text) = read_agents_file(place)? {
                let name = place.join("AGENTS.md").display().to_string();
                notes.texts.push((name, text));
            }
            let skills = SKILL_DIRS.map(|name| place.join(name));
            notes.skills.splice(0..0, skills);
        }
        notes.skills.retain(|skills| skills.is_dir());
        Ok(notes)
    }

    fn save(&self) -> Result<()> {
        if let Some(parent) = self.path.parent() {
            durable_file::create_dir(parent)?;
        }
        let written = TrustFile {
            trusted: self.directories.clone(),
        };
        let mut text =
            serde_json::to_string_pretty(&written).context("serialize the trust list")?;
        text.push('\n');
        durable_file::replace(&self.path, text.as_bytes())
    }
}

impl TrustedDirectory {
    /// True if the path still leads to the directory that was trusted.
    pub fn is_unchanged(&self) -> bool {
        let metadata = std::fs::symlink_metadata(&self.path);
        metadata.is_ok_and(|metadata| {
            metadata.is_dir() && (metadata.dev(), metadata.ino()) == (self.device, self.inode)
        })
    }
}

/// The paths at which `directory` may hold instructions for the agent.
pub fn instruction_paths(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let names = std::iter::once("AGENTS.md").chain(SKILL_DIRS);
    names.map(|name| directory.join(name))
}

/// The root of the repository that contains `directory`, if there is one.
pub fn repository_root(directory: &Path) -> Option<&Path> {
    let is_root = |place: &&Path| place.join(".git").symlink_metadata().is_ok();
    directory.ancestors().find(is_root)
}

/// The directories from the root of the repository down to `directory`; outside of a repository, only `directory`.
fn directory_chain(directory: &Path) -> Vec<PathBuf> {
    let top = repository_root(directory).unwrap_or(directory);
    let inside = directory
        .ancestors()
        .take_while(|place| place.starts_with(top));
    let mut chain: Vec<PathBuf> = inside.map(Path::to_owned).collect();
    chain.reverse();
    chain
}

/// Reads the AGENTS.md of a trusted directory, only if it is a regular file and no link.
fn read_agents_file(directory: &Path) -> Result<Option<String>> {
    let what = || format!("read `{}`", directory.join("AGENTS.md").display());
    let root = rooted_fs::RootDir::open(directory).with_context(what)?;
    let file = match root.open_for_reading(Path::new("AGENTS.md")) {
        Ok(file) => file,
        // A link may lead outside of what was trusted.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound || rooted_fs::is_link(&error) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(what),
    };
    if !file.metadata().with_context(what)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_INSTRUCTIONS_BYTES)
        .read_to_end(&mut bytes)
        .with_context(what)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((!text.trim().is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::TrustList;
    use jiff::Timestamp;
    use std::path::Path;

    #[test]
    fn only_trusted_directories_are_read() {
        let temp = tempfile::tempdir().unwrap();
        let temp = std::fs::canonicalize(temp.path()).unwrap();
        let (repo, sub) = (temp.join("repo"), temp.join("repo/sub"));
        for place in [".git", "skills/x", "sub/deep"] {
            std::fs::create_dir_all(repo.join(place)).unwrap();
        }
        std::fs::write(repo.join("AGENTS.md"), "top").unwrap();
        std::fs::write(sub.join("AGENTS.md"), "sub").unwrap();
        let list = temp.join("home/trust.json");
        let mut trust = TrustList::load(&list).unwrap();
        let found = |trust: &TrustList, place: &Path| {
            let notes = trust.read_instructions(place).unwrap();
            let texts: Vec<String> = notes.texts.into_iter().map(|(_, text)| text).collect();
            (texts.join(" "), notes.skills.len(), notes.ignored.len())
        };
        let deep = sub.join("deep");
        assert_eq!(found(&trust, &deep), (String::new(), 0, 3));
        assert!(trust.add(&sub, Timestamp::UNIX_EPOCH).unwrap());
        assert_eq!(found(&trust, &deep), ("sub".into(), 0, 2));
        assert!(trust.add(&repo, Timestamp::UNIX_EPOCH).unwrap());
        assert!(!trust.add(&repo, Timestamp::UNIX_EPOCH).unwrap());
        let mut trust = TrustList::load(&list).unwrap();
        assert_eq!(found(&trust, &deep), ("top sub".into(), 1, 0));
        // A different directory at the same path is not trusted.
        std::fs::rename(&repo, temp.join("old")).unwrap();
        std::fs::create_dir_all(repo.join("sub")).unwrap();
        std::fs::write(repo.join("AGENTS.md"), "evil").unwrap();
        assert_eq!(found(&trust, &repo), (String::new(), 0, 1));
        assert!(trust.revoke(&repo).unwrap() && !trust.revoke(&repo).unwrap());
        std::fs::write(&list, "{").unwrap();
        assert!(TrustList::load(&list).is_err());
    }

    #[test]
    fn links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let temp = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::write(temp.join("secret"), "s").unwrap();
        let dir = temp.join("d");
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink("../secret", dir.join("AGENTS.md")).unwrap();
        let mut trust = TrustList::load(&temp.join("trust.json")).unwrap();
        trust.add(&dir, Timestamp::UNIX_EPOCH).unwrap();
        assert!(trust.read_instructions(&dir).unwrap().texts.is_empty());
    }
}
