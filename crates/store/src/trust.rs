//! The list of trusted directories. Their AGENTS.md and skills may instruct the agent, with the content that they had when the user trusted
//! them.
//!
//! The list is stored outside of these directories and identifies each by real path and inode, and each instruction file
//! in it by a digest. A directory that was moved or replaced is therefore not trusted, a file that changed or came later
//! is not read, and no file inside a directory can declare it trusted. Until a directory is trusted, its files are not
//! opened; only their names are checked, to report the ignored files.

use anyhow::{Context, Result};
use instruction_files::{
    SKILL_DIRS, digest_all, read_agents_file, read_skill, read_tool, skill_files, text_paths,
    tool_files,
};
use jiff::Timestamp;
use nanobot_os::digest::keyed_digest;
use nanobot_os::durable_file;
use nanobot_os::repository::GitPointer;
use nanobot_os::secret::random_hex;
use nanobot_os::wire_paths;
use nested::{InstructionTrust, JudgeFile, NestedInstructions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use instruction_files::{has_instruction_files, instruction_paths, is_own_instruction_file};

mod instruction_files;
mod nested;

/// The list of trusted directories.
#[derive(Clone, Debug)]
pub struct TrustList {
    path: PathBuf,
    /// The trusted directories.
    pub directories: Vec<TrustedDirectory>,
    /// The pinned prompt files.
    pub files: Vec<PinnedFile>,
    /// The SKILL.md files in folders that other programs fill, as they were when a run first used them. No person
    /// has trusted them.
    skills: Vec<PinnedFile>,
    /// The key of the digests, 16 bytes in hexadecimal. No tool can read the list, so a model cannot make another file
    /// with the same digest.
    key: String,
    /// The copy of a damaged list, if there was one.
    set_aside: Option<PathBuf>,
}

/// A trusted directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedDirectory {
    /// The real path of the directory.
    #[serde(with = "wire_paths::path")]
    pub path: PathBuf,
    device: u64,
    inode: u64,
    /// The time at which it was trusted, in RFC 3339.
    pub since: String,
    /// The digests of its instruction files by relative path; `None` in lists of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<BTreeMap<String, String>>,
    /// The pointers of its repository that lead elsewhere: the path of the file, and the path that it names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    git_pointers: BTreeMap<PathBuf, PathBuf>,
}

/// A prompt file that may widen what its run may do, as long as its content is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedFile {
    /// The real path of the file.
    #[serde(with = "wire_paths::path")]
    pub path: PathBuf,
    digest: String,
    /// The time at which it was pinned, in RFC 3339.
    pub since: String,
}

/// The file format of the list.
#[derive(Default, Serialize, Deserialize)]
struct TrustFile {
    #[serde(default)]
    trusted: Vec<TrustedDirectory>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<PinnedFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    skills: Vec<PinnedFile>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    key: String,
}

/// A SKILL.md in a folder that other programs fill, compared with its pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkillPin {
    /// It has no pin yet.
    Missing,
    /// It is what a run first used.
    Unchanged,
    /// A person has trusted it with this content.
    Trusted,
    /// Its content is another one.
    Changed,
}

/// The effect of trusting a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustChange {
    /// It was not trusted before.
    Added,
    /// Its instruction files have changed since.
    Updated,
    Unchanged,
}

/// The instructions found in the trusted directories.
#[derive(Default)]
pub struct DirectoryInstructions {
    /// Path and text of each AGENTS.md, outermost first.
    pub texts: Vec<(PathBuf, String)>,
    /// Folders of skills, innermost first.
    pub skills: Vec<PathBuf>,
    /// The SKILL.md files in them that are trusted.
    pub skill_files: Vec<PathBuf>,
    /// The programs in them that are trusted as tools.
    pub programs: Vec<PathBuf>,
    /// The trusted directories themselves, the outermost first.
    pub trusted: Vec<PathBuf>,
    /// Instruction files that exist but were not read: the files in `stale`, and the files of directories that are not trusted.
    pub ignored: Vec<PathBuf>,
    /// Instruction files of trusted directories that changed or came later.
    pub stale: Vec<PathBuf>,
    /// The instructions of the directories beneath; `None` if no directory is trusted.
    pub nested: Option<Arc<NestedInstructions>>,
    /// The notice that the list of trusted directories was damaged.
    damage_notice: Option<String>,
    /// True if the digests are missing, because an earlier release wrote the list.
    lacks_digests: bool,
}

impl DirectoryInstructions {
    /// Name and text of each AGENTS.md, outermost first.
    pub fn texts(&self) -> impl Iterator<Item = (String, String)> {
        let texts = self.texts.iter();
        texts.map(|(path, text)| (path.display().to_string(), text.clone()))
    }

    /// True if the list of trusted directories was damaged.
    pub fn is_list_damaged(&self) -> bool {
        self.damage_notice.is_some()
    }

    /// The notice about files in trusted directories that were not read, or about a damaged list. `command` is that of `trust`.
    pub fn stale_notice(&self, command: &str) -> Option<String> {
        if self.damage_notice.is_some() {
            return self.damage_notice.clone();
        }
        let first = self.stale.first()?;
        let reason = if self.lacks_digests {
            "an earlier version trusted it without a record of its content"
        } else {
            CHANGED_SINCE
        };
        let root = self.trusted.first().map_or(first.as_path(), PathBuf::as_path);
        Some(stale_notice(&self.stale, reason, root, command))
    }

    /// The files of directories beneath that were not read in the run, and the notice about them.
    pub fn nested_stale(&self, command: &str) -> Option<(Vec<PathBuf>, String)> {
        let stale = self.nested.as_ref()?.stale();
        let root = stale.first()?.parent()?;
        let notice = stale_notice(&stale, CHANGED_SINCE, root, command);
        Some((stale, notice))
    }
}

/// The reason that a file of a trusted directory is not read.
const CHANGED_SINCE: &str = "it changed or was added since its directory was trusted";

/// The notice that the files at `paths` were not read, and that trusting `directory` with `command` lets them be read.
fn stale_notice(paths: &[PathBuf], reason: &str, directory: &Path, command: &str) -> String {
    let first = paths.first().map(|path| path.display().to_string());
    let more = match paths.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    format!(
        "`{}`{more} not read: {reason}; read it, then run `{command} {}` to use it",
        first.unwrap_or_default(),
        directory.display()
    )
}

impl TrustList {
    /// The instruction files of the trusted directory `path` and of the directories beneath it, as they were trusted.
    pub fn instruction_files(&self, path: &Path) -> Vec<PathBuf> {
        let trusted = self.directories.iter().find(|trusted| trusted.path == path);
        let names = trusted.and_then(|trusted| trusted.files.as_ref());
        names.into_iter().flat_map(|files| files.keys().map(|name| path.join(name))).collect()
    }

    /// Loads the list at `path`; it is empty if the file does not exist.
    ///
    /// A damaged list is renamed, and no directory is trusted then.
    ///
    /// # Errors
    /// The list cannot be read or renamed.
    pub fn load(path: &Path) -> Result<Self> {
        let mut set_aside = None;
        let file: TrustFile = match durable_file::read(path)? {
            Some(bytes) => match serde_json::from_slice(&bytes) {
                Ok(file) => file,
                Err(_) => {
                    let copy = path.with_extension("json.damaged");
                    std::fs::rename(path, &copy)
                        .with_context(|| format!("set `{}` aside", path.display()))?;
                    set_aside = Some(copy);
                    TrustFile::default()
                }
            },
            None => TrustFile::default(),
        };
        Ok(Self {
            path: path.to_owned(),
            directories: file.trusted,
            files: file.files,
            skills: file.skills,
            key: file.key,
            set_aside,
        })
    }

    /// Changes the list at `path` under a lock, so that no change of another process is lost.
    ///
    /// # Errors
    /// The errors of [`Self::load`] and of `change`, or the list cannot be written.
    pub fn change<T>(path: &Path, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let lock = durable_file::lock_for_change(path, "the trust list")?;
        let result = Self::load(path).and_then(|mut list| {
            let pins =
                |list: &Self| (list.directories.clone(), list.files.clone(), list.skills.clone());
            let before = pins(&list);
            let result = change(&mut list)?;
            if before != pins(&list) {
                list.save()?;
            }
            Ok(result)
        });
        lock.remove()?;
        result
    }

    /// The notice that the list was damaged.
    pub fn damage_notice(&self) -> Option<String> {
        let copy = self.set_aside.as_ref()?.display();
        Some(format!(
            "the list of trusted directories was damaged and is kept as `{copy}`; none is trusted until `nanobot trust`"
        ))
    }

    /// Trusts `directory`, a real path, in this list, its instruction files as they are now, and these `pointers` of its repository.
    pub fn add(
        &mut self,
        directory: &Path,
        pointers: Vec<GitPointer>,
        now: Timestamp,
    ) -> Result<TrustChange> {
        let files = Some(digest_all(directory, &self.key_or_new())?);
        let pointers = pointers.into_iter().map(|pointer| (pointer.file, pointer.target));
        let git_pointers: BTreeMap<PathBuf, PathBuf> = pointers.collect();
        let before = self.find(directory);
        let change = match before {
            Some(before) if before.files == files && before.git_pointers == git_pointers => {
                return Ok(TrustChange::Unchanged);
            }
            Some(_) => TrustChange::Updated,
            None => TrustChange::Added,
        };
        let metadata = std::fs::metadata(directory)
            .with_context(|| format!("stat `{}`", directory.display()))?;
        self.directories.retain(|trusted| trusted.path != directory);
        self.directories.push(TrustedDirectory {
            path: directory.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            since: now.to_string(),
            files,
            git_pointers,
        });
        Ok(change)
    }

    /// Pins the file at `path`, a real path, with its content, in this list.
    pub fn pin(&mut self, path: &Path, bytes: &[u8], now: Timestamp) -> TrustChange {
        let digest = keyed_digest(&self.key_or_new(), bytes);
        let change = match self.files.iter().find(|file| file.path == path) {
            Some(before) if before.digest == digest => return TrustChange::Unchanged,
            Some(_) => TrustChange::Updated,
            None => TrustChange::Added,
        };
        self.files.retain(|file| file.path != path);
        self.skills.retain(|skill| skill.path != path);
        self.files.push(PinnedFile { path: path.to_owned(), digest, since: now.to_string() });
        change
    }

    /// Pins the SKILL.md at `path`, a real path, with the content that a run uses for the first time. An earlier pin stays.
    pub fn pin_skill(&mut self, path: &Path, bytes: &[u8], now: Timestamp) {
        if self.check_skill(path, bytes) == SkillPin::Missing {
            let digest = keyed_digest(&self.key_or_new(), bytes);
            self.skills.push(PinnedFile { path: path.to_owned(), digest, since: now.to_string() });
        }
    }

    /// Compares the SKILL.md at `path`, a real path, with its pin.
    pub fn check_skill(&self, path: &Path, bytes: &[u8]) -> SkillPin {
        let digest = self.key().map(|key| keyed_digest(&key, bytes));
        let is_pinned_in = |files: &[PinnedFile]| {
            let file = files.iter().find(|file| file.path == path)?;
            Some(digest.as_ref() == Some(&file.digest))
        };
        match (is_pinned_in(&self.files), is_pinned_in(&self.skills)) {
            (None, None) => SkillPin::Missing,
            (Some(true), _) => SkillPin::Trusted,
            (_, Some(true)) => SkillPin::Unchanged,
            _ => SkillPin::Changed,
        }
    }

    /// True if the file at `path`, a real path, is pinned with this content.
    pub fn is_pinned(&self, path: &Path, bytes: &[u8]) -> bool {
        let Some(key) = self.key() else {
            return false;
        };
        let digest = keyed_digest(&key, bytes);
        let mut files = self.files.iter();
        files.any(|file| file.path == path && file.digest == digest)
    }

    /// True if a trusted directory's repository had this pointer when it was trusted.
    pub fn is_pointer_pinned(&self, pointer: &GitPointer) -> bool {
        self.directories.iter().any(|trusted| {
            trusted.git_pointers.get(&pointer.file) == Some(&pointer.target)
                && trusted.is_unchanged()
        })
    }

    /// Stops trusting the directory or file at `path`. Returns true if it was in the list.
    pub fn revoke(&mut self, path: &Path) -> bool {
        let count = self.directories.len() + self.files.len();
        self.directories.retain(|directory| directory.path != path);
        self.files.retain(|file| file.path != path);
        self.directories.len() + self.files.len() < count
    }

    /// Trusts the copies of trusted directories: `copy` is a copy of the directory `original`, of which no other program has changed
    /// anything yet. The list on disk does not change.
    pub fn add_copies(&mut self, original: &Path, copy: &Path) {
        let mut copies = Vec::new();
        for trusted in self.directories.iter().filter(|trusted| trusted.is_unchanged()) {
            if let Ok(relative) = trusted.path.strip_prefix(original)
                && let path = copy.components().chain(relative.components()).collect::<PathBuf>()
                && let Ok(metadata) = std::fs::metadata(&path)
            {
                let (device, inode) = (metadata.dev(), metadata.ino());
                copies.push(TrustedDirectory { path, device, inode, ..trusted.clone() });
            }
        }
        self.directories.extend(copies);
    }

    /// True if this very directory is in the list and has not been replaced since.
    pub fn is_trusted(&self, directory: &Path) -> bool {
        self.find(directory).is_some()
    }

    fn find(&self, directory: &Path) -> Option<&TrustedDirectory> {
        let mut directories = self.directories.iter();
        directories.find(|trusted| trusted.path == directory && trusted.is_unchanged())
    }

    /// Reads the instructions of `directory` and of its parents up to the root of its repository. Directories below a trusted one are
    /// trusted too; if none is trusted, no file is read.
    pub fn read_instructions(&self, directory: &Path) -> Result<DirectoryInstructions> {
        let chain = directory_chain(directory);
        let start = chain.iter().position(|directory| self.is_trusted(directory));
        let (ignored, trusted) = chain.split_at(start.unwrap_or(chain.len()));
        let mut instructions = DirectoryInstructions {
            damage_notice: self.damage_notice(),
            ..DirectoryInstructions::default()
        };
        for directory in ignored {
            let exists = text_paths(directory).filter(|path| path.symlink_metadata().is_ok());
            instructions.ignored.extend(exists);
        }
        instructions.trusted = trusted.to_vec();
        for directory in trusted {
            self.read_directory(directory, &mut instructions)?;
        }
        instructions.skills.retain(|skills| skills.is_dir());
        instructions.ignored.extend(instructions.stale.iter().cloned());
        let mut enclosing =
            self.directories.iter().filter(|trusted| directory.starts_with(&trusted.path));
        instructions.lacks_digests = enclosing.all(|trusted| trusted.files.is_none());
        instructions.nested = (!self.directories.is_empty())
            .then(|| Arc::new(NestedInstructions::new(self.clone().into_judge(), directory)));
        Ok(instructions)
    }

    /// Adds the instructions of the trusted `directory` itself to `instructions`.
    fn read_directory(
        &self,
        directory: &Path,
        instructions: &mut DirectoryInstructions,
    ) -> Result<()> {
        if let Some(bytes) = read_agents_file(directory)? {
            let text = String::from_utf8_lossy(&bytes);
            let path = directory.join("AGENTS.md");
            if !text.trim().is_empty() {
                if self.has_digest(&path, &bytes) {
                    instructions.texts.push((path, text.into_owned()));
                } else {
                    instructions.stale.push(path);
                }
            }
        }
        for path in skill_files(directory) {
            if let Some(bytes) = read_skill(&path) {
                if self.has_digest(&path, &bytes) {
                    instructions.skill_files.push(path);
                } else {
                    instructions.stale.push(path);
                }
            }
        }
        for path in tool_files(directory) {
            if let Some(bytes) = read_tool(&path) {
                if self.has_digest(&path, &bytes) {
                    instructions.programs.push(path);
                } else {
                    instructions.stale.push(path);
                }
            }
        }
        let skills = SKILL_DIRS.map(|name| directory.join(name));
        instructions.skills.splice(0..0, skills);
        Ok(())
    }

    fn into_judge(self) -> JudgeFile {
        Box::new(move |path, bytes| {
            if self.has_digest(path, bytes) {
                InstructionTrust::Trusted
            } else if path.ancestors().skip(1).any(|directory| self.is_trusted(directory)) {
                InstructionTrust::Stale
            } else {
                InstructionTrust::Untrusted
            }
        })
    }

    /// True if a trusted directory had the file at `path` with this content when it was trusted.
    fn has_digest(&self, path: &Path, bytes: &[u8]) -> bool {
        let Some(key) = self.key() else {
            return false;
        };
        let digest = keyed_digest(&key, bytes);
        self.directories.iter().any(|trusted| {
            let relative = path.strip_prefix(&trusted.path).ok().and_then(Path::to_str);
            let files = trusted.files.as_ref().zip(relative);
            files.is_some_and(|(files, relative)| files.get(relative) == Some(&digest))
                && trusted.is_unchanged()
        })
    }

    fn key_or_new(&mut self) -> [u8; 16] {
        self.key().unwrap_or_else(|| {
            self.key = random_hex(16);
            self.key().expect("16 bytes in hexadecimal are a key")
        })
    }

    fn key(&self) -> Option<[u8; 16]> {
        let number = u128::from_str_radix(&self.key, 16).ok()?;
        Some(number.to_be_bytes())
    }

    fn save(&self) -> Result<()> {
        let file = TrustFile {
            trusted: self.directories.clone(),
            files: self.files.clone(),
            skills: self.skills.clone(),
            key: self.key.clone(),
        };
        let mut text = serde_json::to_string_pretty(&file).context("serialize the trust list")?;
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

/// The root of the repository that contains `directory`, if there is one.
pub fn repository_root(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|directory| directory.join(".git").symlink_metadata().is_ok())
}

/// The directories from the root of the repository down to `directory`; outside of a repository, only `directory`.
fn directory_chain(directory: &Path) -> Vec<PathBuf> {
    let top = repository_root(directory).unwrap_or(directory);
    let inside = directory.ancestors().take_while(|ancestor| ancestor.starts_with(top));
    let mut chain: Vec<PathBuf> = inside.map(Path::to_owned).collect();
    chain.reverse();
    chain
}

#[cfg(test)]
mod tests {
    use super::{SkillPin, TrustChange, TrustList};
    use jiff::Timestamp;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    #[test]
    fn only_trusted_directories_are_read() {
        let temp = tempfile::tempdir().unwrap();
        let temp = std::fs::canonicalize(temp.path()).unwrap();
        let (repo, sub) = (temp.join("repo"), temp.join("repo/sub"));
        for name in [".git", "skills/x", "sub/deep"] {
            std::fs::create_dir_all(repo.join(name)).unwrap();
        }
        std::fs::write(repo.join("AGENTS.md"), "top").unwrap();
        std::fs::write(sub.join("AGENTS.md"), "sub").unwrap();
        let list = temp.join("home/trust.json");
        std::fs::create_dir(temp.join("home")).unwrap();
        let mut trust = TrustList::load(&list).unwrap();
        let read = |trust: &TrustList, directory: &Path| {
            let instructions = trust.read_instructions(directory).unwrap();
            let texts: Vec<String> = instructions.texts.into_iter().map(|(_, text)| text).collect();
            (texts.join(" "), instructions.skills.len(), instructions.ignored.len())
        };
        let deep = sub.join("deep");
        let add = |trust: &mut TrustList, directory: &Path| {
            trust.add(directory, Vec::new(), Timestamp::UNIX_EPOCH).unwrap()
        };
        assert_eq!(read(&trust, &deep), (String::new(), 0, 3));
        assert_eq!(add(&mut trust, &sub), TrustChange::Added);
        assert_eq!(read(&trust, &deep), ("sub".into(), 0, 2));
        assert_eq!(add(&mut trust, &repo), TrustChange::Added);
        assert_eq!(add(&mut trust, &repo), TrustChange::Unchanged);
        assert!(!list.exists());
        TrustList::change(&list, |trust| Ok((add(trust, &sub), add(trust, &repo)))).unwrap();
        let mut trust = TrustList::load(&list).unwrap();
        assert_eq!(read(&trust, &deep), ("top sub".into(), 1, 0));
        // Changed and new files are not read until they are trusted.
        std::fs::write(sub.join("AGENTS.md"), "evil").unwrap();
        std::fs::write(deep.join("AGENTS.md"), "evil").unwrap();
        std::fs::write(repo.join("skills/x/SKILL.md"), "evil").unwrap();
        assert_eq!(read(&trust, &deep), ("top".into(), 1, 3));
        assert_eq!(add(&mut trust, &sub), TrustChange::Updated);
        assert_eq!(read(&trust, &deep), ("top evil evil".into(), 1, 1));
        assert_eq!(add(&mut trust, &repo), TrustChange::Updated);
        assert_eq!(read(&trust, &deep), ("top evil evil".into(), 1, 0));
        // A different directory at the same path is not trusted.
        std::fs::rename(&repo, temp.join("old")).unwrap();
        std::fs::create_dir_all(repo.join("sub")).unwrap();
        std::fs::write(repo.join("AGENTS.md"), "evil").unwrap();
        assert_eq!(read(&trust, &repo), (String::new(), 0, 1));
        assert!(trust.revoke(&repo) && !trust.revoke(&repo));
        std::fs::write(&list, "{").unwrap();
        let damaged = TrustList::load(&list).unwrap();
        assert!(damaged.damage_notice().is_some() && damaged.directories.is_empty());
    }

    #[test]
    fn a_skill_is_pinned_when_it_is_first_used() {
        let temp = tempfile::tempdir().unwrap();
        let (list, path) = (temp.path().join("trust.json"), Path::new("/s/tea/SKILL.md"));
        let check = |bytes: &[u8], expect: SkillPin| {
            assert_eq!(TrustList::load(&list).unwrap().check_skill(path, bytes), expect);
        };
        let pin = |bytes: &[u8]| {
            let now = Timestamp::UNIX_EPOCH;
            TrustList::change(&list, |trust| {
                trust.pin_skill(path, bytes, now);
                Ok(())
            })
            .unwrap();
        };
        check(b"first", SkillPin::Missing);
        pin(b"first");
        pin(b"second");
        check(b"first", SkillPin::Unchanged);
        check(b"second", SkillPin::Changed);
        // The first use is no trust of a person, and what a person trusts takes its place.
        assert!(!TrustList::load(&list).unwrap().is_pinned(path, b"first"));
        TrustList::change(&list, |trust| Ok(trust.pin(path, b"second", Timestamp::UNIX_EPOCH)))
            .unwrap();
        check(b"second", SkillPin::Trusted);
        check(b"first", SkillPin::Changed);
    }

    #[test]
    fn a_trusted_path_need_not_be_utf8() {
        let temp = tempfile::tempdir().unwrap();
        let temp = std::fs::canonicalize(temp.path()).unwrap();
        let directory = temp.join(OsStr::from_bytes(b"caf\xe9"));
        std::fs::create_dir(&directory).unwrap();
        let list = temp.join("trust.json");
        TrustList::change(&list, |trust| {
            trust.pin(&directory.join("p.md"), b"x", Timestamp::UNIX_EPOCH);
            trust.add(&directory, Vec::new(), Timestamp::UNIX_EPOCH)
        })
        .unwrap();
        let trust = TrustList::load(&list).unwrap();
        assert!(trust.is_trusted(&directory) && trust.is_pinned(&directory.join("p.md"), b"x"));
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
        trust.add(&dir, Vec::new(), Timestamp::UNIX_EPOCH).unwrap();
        assert!(trust.read_instructions(&dir).unwrap().texts.is_empty());
    }
}
