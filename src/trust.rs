//! Which directories may tell the agent how to work: their AGENTS.md and their skills. The list is kept outside of them, by
//! real path and inode, so that neither a moved nor a replaced directory is trusted, and no file in one says so itself.
//!
//! Before a directory is trusted nothing in it is opened for this; whether there is something to ignore, its names tell.

use crate::sys::beneath;
use crate::sys::store;
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The longest AGENTS.md that is read: some 16,000 tokens, which are paid for with every request.
const NOTES_LIMIT: u64 = 64 << 10;

/// Where a directory has its skills, the first before the next: its own folder, and those that are customary with other agents.
const SKILLS: [&str; 3] = ["skills", ".agents/skills", ".claude/skills"];

/// The list of trusted directories.
#[derive(Debug)]
pub struct Trust {
    path: PathBuf,
    pub directories: Vec<Trusted>,
}

/// A directory that is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    /// Its real path.
    pub path: PathBuf,
    device: u64,
    inode: u64,
    /// When it was said, in RFC 3339.
    pub since: String,
}

/// How the list is written.
#[derive(Default, Serialize, Deserialize)]
struct Written {
    #[serde(default)]
    trusted: Vec<Trusted>,
}

/// What a directory has to say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Name and text of each AGENTS.md, the outermost first.
    pub texts: Vec<(String, String)>,
    /// Where skills are, the innermost first.
    pub skills: Vec<PathBuf>,
    /// The trusted directories themselves, the outermost first.
    pub trusted: Vec<PathBuf>,
    /// What is there and was not read, since nobody said that it may be.
    pub ignored: Vec<PathBuf>,
}

impl Trust {
    /// The list at `path`; empty where there is none.
    ///
    /// # Errors
    /// A list that cannot be read or understood: it is never taken for an empty one, nor written over.
    pub fn load(path: &Path) -> Result<Self> {
        let written: Written = match store::read(path)? {
            Some(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("understand `{}`", path.display()))?,
            None => Written::default(),
        };
        Ok(Self {
            path: path.to_owned(),
            directories: written.trusted,
        })
    }

    /// Trust `directory`, a real path, from now on. Whether it was not trusted before.
    pub fn add(&mut self, directory: &Path, now: Timestamp) -> Result<bool> {
        if self.trusts(directory) {
            return Ok(false);
        }
        let about = std::fs::metadata(directory)
            .with_context(|| format!("look at `{}`", directory.display()))?;
        self.directories.retain(|known| known.path != directory);
        self.directories.push(Trusted {
            path: directory.to_owned(),
            device: about.dev(),
            inode: about.ino(),
            since: now.to_string(),
        });
        self.save()?;
        Ok(true)
    }

    /// Trust `directory` no more. Whether it was in the list.
    pub fn revoke(&mut self, directory: &Path) -> Result<bool> {
        let before = self.directories.len();
        self.directories.retain(|known| known.path != directory);
        let was = self.directories.len() < before;
        if was {
            self.save()?;
        }
        Ok(was)
    }

    /// Whether this very directory is trusted, and still is what it was.
    pub fn trusts(&self, directory: &Path) -> bool {
        let known = self
            .directories
            .iter()
            .find(|known| known.path == directory);
        known.is_some_and(Trusted::stands)
    }

    /// What `directory` and those above it, up to the root of its repository, have to say. What lies below a trusted one
    /// may speak; where none is trusted, nobody does.
    pub fn notes(&self, directory: &Path) -> Result<Notes> {
        let chain = chain(directory);
        let from = chain.iter().position(|place| self.trusts(place));
        let (ignored, trusted) = chain.split_at(from.unwrap_or(chain.len()));
        let mut notes = Notes::default();
        for place in ignored {
            let exists = speaking(place).filter(|path| path.symlink_metadata().is_ok());
            notes.ignored.extend(exists);
        }
        notes.trusted = trusted.to_vec();
        for place in trusted {
            if let Some(text) = text_in(place)? {
                let name = place.join("AGENTS.md").display().to_string();
                notes.texts.push((name, text));
            }
            let skills = SKILLS.map(|name| place.join(name));
            notes.skills.splice(0..0, skills);
        }
        notes.skills.retain(|skills| skills.is_dir());
        Ok(notes)
    }

    fn save(&self) -> Result<()> {
        if let Some(parent) = self.path.parent() {
            store::create_dir(parent)?;
        }
        let written = Written {
            trusted: self.directories.clone(),
        };
        let mut text = serde_json::to_string_pretty(&written).context("write the list down")?;
        text.push('\n');
        store::replace(&self.path, text.as_bytes())
    }
}

impl Trusted {
    /// Whether the path still leads to the directory that was trusted.
    pub fn stands(&self) -> bool {
        let about = std::fs::symlink_metadata(&self.path);
        about.is_ok_and(|about| {
            about.is_dir() && (about.dev(), about.ino()) == (self.device, self.inode)
        })
    }
}

/// Where `directory` has what tells the agent how to work.
pub fn speaking(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let names = std::iter::once("AGENTS.md").chain(SKILLS);
    names.map(|name| directory.join(name))
}

/// The root of the repository that `directory` is in, if it is in one.
pub fn repository(directory: &Path) -> Option<&Path> {
    let is_root = |place: &&Path| place.join(".git").symlink_metadata().is_ok();
    directory.ancestors().find(is_root)
}

/// From the root of the repository down to `directory`; outside of one, `directory` alone.
fn chain(directory: &Path) -> Vec<PathBuf> {
    let top = repository(directory).unwrap_or(directory);
    let inside = directory
        .ancestors()
        .take_while(|place| place.starts_with(top));
    let mut chain: Vec<PathBuf> = inside.map(Path::to_owned).collect();
    chain.reverse();
    chain
}

/// The AGENTS.md of a trusted directory: no link, and nothing but a file.
fn text_in(directory: &Path) -> Result<Option<String>> {
    let what = || format!("read `{}`", directory.join("AGENTS.md").display());
    let root = beneath::Root::open(directory).with_context(what)?;
    let file = match root.read(Path::new("AGENTS.md")) {
        Ok(file) => file,
        // A link may lead to what nobody has trusted.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound || beneath::is_link(&error) => {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(what),
    };
    if !file.metadata().with_context(what)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(NOTES_LIMIT)
        .read_to_end(&mut bytes)
        .with_context(what)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((!text.trim().is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::Trust;
    use jiff::Timestamp;
    use std::path::Path;

    #[test]
    fn only_what_was_trusted_speaks() {
        let temp = tempfile::tempdir().unwrap();
        let temp = std::fs::canonicalize(temp.path()).unwrap();
        let (repo, sub) = (temp.join("repo"), temp.join("repo/sub"));
        for place in [".git", "skills/x", "sub/deep"] {
            std::fs::create_dir_all(repo.join(place)).unwrap();
        }
        std::fs::write(repo.join("AGENTS.md"), "top").unwrap();
        std::fs::write(sub.join("AGENTS.md"), "sub").unwrap();
        let list = temp.join("home/trust.json");
        let mut trust = Trust::load(&list).unwrap();
        let spoken = |trust: &Trust, place: &Path| {
            let notes = trust.notes(place).unwrap();
            let texts: Vec<String> = notes.texts.into_iter().map(|(_, text)| text).collect();
            (texts.join(" "), notes.skills.len(), notes.ignored.len())
        };
        let deep = sub.join("deep");
        assert_eq!(spoken(&trust, &deep), (String::new(), 0, 3));
        assert!(trust.add(&sub, Timestamp::UNIX_EPOCH).unwrap());
        assert_eq!(spoken(&trust, &deep), ("sub".into(), 0, 2));
        assert!(trust.add(&repo, Timestamp::UNIX_EPOCH).unwrap());
        assert!(!trust.add(&repo, Timestamp::UNIX_EPOCH).unwrap());
        let mut trust = Trust::load(&list).unwrap();
        assert_eq!(spoken(&trust, &deep), ("top sub".into(), 1, 0));
        // Another directory in its place is another directory.
        std::fs::rename(&repo, temp.join("old")).unwrap();
        std::fs::create_dir_all(repo.join("sub")).unwrap();
        std::fs::write(repo.join("AGENTS.md"), "evil").unwrap();
        assert_eq!(spoken(&trust, &repo), (String::new(), 0, 1));
        assert!(trust.revoke(&repo).unwrap() && !trust.revoke(&repo).unwrap());
        std::fs::write(&list, "{").unwrap();
        assert!(Trust::load(&list).is_err());
    }

    #[test]
    fn a_link_does_not_speak() {
        let temp = tempfile::tempdir().unwrap();
        let temp = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::write(temp.join("secret"), "s").unwrap();
        let dir = temp.join("d");
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink("../secret", dir.join("AGENTS.md")).unwrap();
        let mut trust = Trust::load(&temp.join("trust.json")).unwrap();
        trust.add(&dir, Timestamp::UNIX_EPOCH).unwrap();
        assert!(trust.notes(&dir).unwrap().texts.is_empty());
    }
}
