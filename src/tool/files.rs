//! The files that tools may touch: the policy's word, then the kernel's. Errors are words for the model.

use super::Failure;
use crate::policy::reach::{Access, Reach, Spot};
use crate::sys::beneath::{self, Root};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The largest file that a tool reads into memory.
const READ_LIMIT: u64 = 64 << 20;
/// How many links may lead from one to the next.
const LINKS: usize = 8;

/// The places of a run, held open.
pub struct Files {
    pub reach: Reach,
    roots: Vec<Root>,
}

impl Files {
    /// Hold the roots of `reach` open.
    pub fn new(reach: Reach) -> std::io::Result<Self> {
        let roots = reach
            .roots
            .iter()
            .map(|root| Root::open(&root.path))
            .collect::<Result<_, _>>()?;
        Ok(Self { reach, roots })
    }

    /// The content of the file that `given` names, and where it is.
    pub fn read(&self, given: &str) -> Result<(Vec<u8>, PathBuf), Failure> {
        let (file, about, path) = self.open(given)?;
        if about.is_dir() {
            return Err(format!("`{given}` is a directory; list_dir shows what is in it").into());
        }
        if !about.is_file() {
            return Err(format!("`{given}` is no regular file").into());
        }
        if about.len() > READ_LIMIT {
            return Err(format!(
                "`{given}` has {} bytes, which is too much; use exec with head, tail or grep",
                about.len()
            )
            .into());
        }
        let mut bytes = Vec::new();
        let read = file.take(READ_LIMIT).read_to_end(&mut bytes);
        read.map_err(|error| format!("`{given}` cannot be read: {error}"))?;
        Ok((bytes, path))
    }

    /// The directory that `given` names: that it may be listed, and where it is.
    pub fn directory(&self, given: &str) -> Result<PathBuf, Failure> {
        Ok(self.open_directory(given)?.1)
    }

    /// The directory that `given` names, held open, and where it is.
    pub fn open_directory(&self, given: &str) -> Result<(File, PathBuf), Failure> {
        self.follow(given, Access::Read, |root, path| root.directory(path))
            .map_err(|error| match error {
                Trouble::Tool(failure) => failure,
                Trouble::Io(error) if error.kind() == ErrorKind::NotADirectory => {
                    format!("`{given}` is no directory").into()
                }
                Trouble::Io(error) => self.missing(given, &error).into(),
            })
    }

    /// Make `bytes` the content of the file that `given` names. Whether it was there, and where it is.
    pub fn write(&self, given: &str, bytes: &[u8]) -> Result<(bool, PathBuf), Failure> {
        self.follow(given, Access::Write, |root, path| root.write(path, bytes))
            .map_err(|error| match error {
                Trouble::Tool(failure) => failure,
                Trouble::Io(error) => format!("`{given}` cannot be written: {error}").into(),
            })
    }

    fn open(&self, given: &str) -> Result<(File, Metadata, PathBuf), Failure> {
        let (file, path) = self
            .follow(given, Access::Read, |root, path| root.read(path))
            .map_err(|error| match error {
                Trouble::Tool(failure) => failure,
                Trouble::Io(error) => self.missing(given, &error).into(),
            })?;
        let about = file
            .metadata()
            .map_err(|error| format!("`{given}` cannot be looked at: {error}"))?;
        Ok((file, about, path))
    }

    /// Decide, and do `work` beneath the root that was decided on. Where a link is on the way, it is resolved, and where
    /// it leads is decided about again: the kernel then follows none.
    fn follow<T>(
        &self,
        given: &str,
        access: Access,
        work: impl Fn(&Root, &Path) -> std::io::Result<T>,
    ) -> Result<(T, PathBuf), Trouble> {
        let tool = |words: String| Trouble::Tool(words.into());
        if given.contains('\0') {
            return Err(tool("a path has no NUL in it".into()));
        }
        let mut name = given.to_owned();
        for _ in 0..LINKS {
            let Spot {
                root,
                relative,
                path,
            } = self
                .reach
                .decide(&name, access)
                .map_err(|refusal| Trouble::Tool(refusal.into()))?;
            match work(&self.roots[root], &relative) {
                Ok(done) => return Ok((done, path)),
                Err(error) if beneath::is_link(&error) => {
                    let target = resolve(&path).map_err(Trouble::Io)?;
                    name = target
                        .to_str()
                        .map(str::to_owned)
                        .ok_or_else(|| Trouble::Io(ErrorKind::InvalidInput.into()))?;
                }
                Err(error) => return Err(Trouble::Io(error)),
            }
        }
        Err(tool(format!("`{given}` is a link without an end")))
    }

    /// Why a file cannot be opened; where it is missing, what is like it.
    fn missing(&self, given: &str, error: &std::io::Error) -> String {
        if error.kind() != ErrorKind::NotFound {
            return format!("`{given}` cannot be opened: {error}");
        }
        let path = self.reach.absolute(given);
        let wanted = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let parent = path.parent().unwrap_or(Path::new("/"));
        let mut near: Vec<(f64, String)> = std::fs::read_dir(parent)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| self.reach.shows(&entry.path()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .map(|name| (strsim::jaro_winkler(&name.to_lowercase(), &wanted), name))
            .filter(|(likeness, _)| *likeness > 0.8)
            .collect();
        near.sort_by(|one, other| other.0.total_cmp(&one.0));
        let names: Vec<String> = near
            .into_iter()
            .take(3)
            .map(|(_, name)| format!("`{name}`"))
            .collect();
        let hint = match names.is_empty() {
            false => format!("; there is {}", names.join(", ")),
            true => self.elsewhere(given).unwrap_or_default(),
        };
        format!("there is no `{given}` in {}{hint}", parent.display())
    }

    /// Where a relative name that is missing in the directory stands all the same.
    fn elsewhere(&self, given: &str) -> Option<String> {
        let others = self
            .reach
            .roots
            .iter()
            .filter(|root| !given.starts_with(['/', '~']) && root.path != self.reach.directory);
        let found = others
            .map(|root| root.path.join(given))
            .find(|path| path.exists() && self.reach.shows(path))?;
        Some(format!("; there is {}", found.display()))
    }
}

/// Where `path` leads. What is new at its end is kept as it is.
fn resolve(path: &Path) -> std::io::Result<PathBuf> {
    match (std::fs::canonicalize(path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == ErrorKind::NotFound => {
            // A link to nothing is not written through.
            match std::fs::symlink_metadata(path) {
                Ok(_) => Err(error),
                Err(_) => Ok(resolve(parent)?.join(name)),
            }
        }
        (found, ..) => found,
    }
}

enum Trouble {
    /// Words or a refusal, for the model.
    Tool(Failure),
    Io(std::io::Error),
}

#[cfg(test)]
pub(super) mod tests {
    use super::Files;
    use crate::policy::reach::{Reach, Root};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// The tools' view of `dir`, which must be canonical.
    pub(in crate::tool) fn files(dir: &Path, may_write: bool) -> Files {
        let root = Root {
            path: dir.to_owned(),
            may_write,
        };
        Files::new(Reach {
            directory: dir.to_owned(),
            home: dir.to_owned(),
            roots: vec![root],
            ..Reach::default()
        })
        .unwrap()
    }

    #[test]
    fn links_are_decided_about_again() {
        let temp = tempfile::tempdir().unwrap();
        let temp = std::fs::canonicalize(temp.path()).unwrap();
        let dir = temp.join("in");
        std::fs::create_dir_all(dir.join("real")).unwrap();
        std::fs::write(dir.join("real/a"), "inside").unwrap();
        std::fs::write(temp.join("secret"), "outside").unwrap();
        symlink("real", dir.join("link")).unwrap();
        symlink(dir.join("real/a"), dir.join("absolute")).unwrap();
        symlink(temp.join("secret"), dir.join("out")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        symlink(temp.join("nothing"), dir.join("dangling")).unwrap();
        let files = files(&dir, true);
        for name in [
            "real/a",
            "link/a",
            "absolute",
            dir.join("link/a").to_str().unwrap(),
        ] {
            assert_eq!(files.read(name).unwrap().0, b"inside", "{name}");
        }
        for name in [
            "out",
            "loop",
            "dangling",
            "../secret",
            "/proc/self/root/etc/passwd",
            "/etc/passwd",
        ] {
            assert!(files.read(name).is_err(), "{name}");
            assert!(files.write(name, b"x").is_err(), "{name}");
        }
        assert!(!temp.join("nothing").exists());
        files.write("link/new", b"x").unwrap();
        assert!(dir.join("real/new").exists());
        files.write("absolute", b"changed").unwrap();
        assert_eq!(std::fs::read(dir.join("real/a")).unwrap(), b"changed");
        assert!(dir.join("absolute").is_symlink());
    }

    #[test]
    fn odd_files_are_refused_and_near_names_told() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::write(dir.join("notes.md"), "x").unwrap();
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            dir.join("fifo"),
            rustix::fs::Mode::from_raw_mode(0o600),
        )
        .unwrap();
        let files = files(&dir, true);
        assert!(
            files
                .read("fifo")
                .unwrap_err()
                .words()
                .contains("no regular file")
        );
        assert!(files.write("fifo", b"x").is_err());
        assert!(files.read(".").unwrap_err().words().contains("list_dir"));
        assert!(
            files
                .read("note.md")
                .unwrap_err()
                .words()
                .contains("`notes.md`")
        );
        assert!(
            files
                .directory("notes.md")
                .unwrap_err()
                .words()
                .contains("no directory")
        );
    }
}
