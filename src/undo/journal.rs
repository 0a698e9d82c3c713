//! The journal of a turn's changes: what it writes before each of them, and what is read of it afterwards.
//!
//! Each line stands before the change that it tells of, so that a stop at any instant leaves no change untold. A line
//! that was not finished tells of a change that was not made.

use super::path_text;
use crate::sys::store;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::path::{Path, PathBuf};

/// The name of a journal, in the folder of its turn.
pub(super) const NAME: &str = "journal.jsonl";

/// Which turn it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The turn's own id, as sessions and events have it.
    pub turn: String,
    pub session: String,
    /// Where the work was.
    #[serde(with = "path_text")]
    pub directory: PathBuf,
    /// Where the program was started.
    #[serde(with = "path_text")]
    pub from: PathBuf,
    /// Local time.
    pub time: String,
}

/// What stands at a path, as far as it can be brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Nothing,
    File {
        /// See [`digest`].
        hash: String,
        mode: u32,
    },
    Link {
        #[serde(with = "path_text")]
        target: PathBuf,
    },
    Directory {
        mode: u32,
    },
}

impl State {
    /// Whether both have the same content; modes aside, which commands may change without harm.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { hash, .. }, Self::File { hash: other, .. }) => hash == other,
            (Self::Directory { .. }, Self::Directory { .. }) => true,
            (one, other) => one == other,
        }
    }
}

/// A mark by which a content is known again; stable from release to release. Not meant against forgery: who can write
/// the file can write what he likes anyway.
pub fn digest(bytes: &[u8]) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    let hash = hasher.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Turn(About),
    /// This directory is made.
    Made(#[serde(with = "path_text")] PathBuf),
    Change {
        #[serde(with = "path_text")]
        path: PathBuf,
        /// What stood there before the first change of this turn; only told then.
        #[serde(skip_serializing_if = "Option::is_none")]
        was: Option<State>,
        /// The digest of what it becomes; of nothing where it is removed.
        becomes: Option<String>,
        /// By way of this file beside it.
        temp: String,
    },
    /// It is about to be taken back. What stood there, for those entries that change.
    Undoing(Vec<(usize, State)>),
    /// It was taken back, at this time.
    Undone(String),
    /// It was done again.
    Redone(String),
}

/// A path that a turn changed.
#[derive(Clone, Debug)]
pub struct Entry {
    pub path: PathBuf,
    /// Before the first change.
    pub was: State,
    /// The digests of what the turn left there, one after the other; `None` for nothing.
    pub left: Vec<Option<String>>,
    /// What stood there when it was taken back.
    pub after: Option<State>,
}

/// A turn that changed something.
#[derive(Clone, Debug)]
pub struct Turn {
    pub id: u64,
    pub dir: PathBuf,
    pub about: About,
    /// Directories that were made, those above first.
    pub made: Vec<PathBuf>,
    pub entries: Vec<Entry>,
    /// Files by way of which others were written. They are gone, unless the run was killed.
    pub temps: Vec<PathBuf>,
    /// When it was taken back.
    pub undone: Option<String>,
}

impl Turn {
    /// Read the turn in `dir`; `None` where its journal has not even begun.
    pub(super) fn read(dir: &Path, id: u64) -> Result<Option<Self>> {
        let path = dir.join(NAME);
        let Some(bytes) = store::read(&path)? else {
            return Ok(None);
        };
        let mut turn: Option<Self> = None;
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(line) = line.strip_suffix(b"\n") else {
                break;
            };
            let line: Line = serde_json::from_slice(line)
                .with_context(|| format!("read line {} of `{}`", number + 1, path.display()))?;
            match (line, &mut turn) {
                (Line::Turn(about), None) => {
                    turn = Some(Self {
                        id,
                        dir: dir.to_owned(),
                        about,
                        made: Vec::new(),
                        entries: Vec::new(),
                        temps: Vec::new(),
                        undone: None,
                    });
                }
                (line, Some(turn)) => turn.add(line),
                (_, None) => return Ok(None),
            }
        }
        Ok(turn)
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Turn(_) => {}
            Line::Made(path) => self.made.push(path),
            Line::Change {
                path,
                was,
                becomes,
                temp,
            } => {
                if !temp.is_empty() {
                    self.temps.push(path.with_file_name(temp));
                }
                if let Some(was) = was {
                    self.entries.push(Entry {
                        path,
                        was,
                        left: vec![becomes],
                        after: None,
                    });
                } else if let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path)
                {
                    entry.left.push(becomes);
                }
            }
            Line::Undoing(states) => {
                for (number, state) in states {
                    if let Some(entry) = self.entries.get_mut(number) {
                        entry.after = Some(state);
                    }
                }
            }
            Line::Undone(time) => self.undone = Some(time),
            Line::Redone(_) => self.undone = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{About, Line, State, digest};
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn digests_stay_the_same() {
        // Journals outlive releases: another digest would make every file one that somebody else changed.
        assert_eq!(digest(b""), "2134935d61d9b40db91c5ed031fb3303");
        assert_ne!(digest(b"a"), digest(b"b"));
    }

    #[test]
    fn odd_paths_come_back() {
        let odd = OsString::from_vec(b"/a\xff/b\n".to_vec());
        for path in [odd, "/plain".into()] {
            let line = Line::Change {
                path: path.clone().into(),
                was: Some(State::Link {
                    target: path.clone().into(),
                }),
                becomes: None,
                temp: String::new(),
            };
            let text = serde_json::to_string(&line).unwrap();
            assert!(!text.contains('\n'));
            match serde_json::from_str(&text).unwrap() {
                Line::Change {
                    path: read,
                    was: Some(State::Link { target }),
                    ..
                } => {
                    assert_eq!((read.as_os_str(), target.as_os_str()), (&*path, &*path));
                }
                other => panic!("{other:?}"),
            }
        }
        let about = serde_json::to_string(&About::default()).unwrap();
        assert_eq!(
            serde_json::from_str::<About>(&about).unwrap(),
            About::default()
        );
    }
}
