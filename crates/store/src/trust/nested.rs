//! The instructions of directories beneath the working directory, read when a file there is touched.

use super::instruction_files::read_agents_file;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The user's decision about an instruction file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionTrust {
    Trusted,
    /// Its directory is trusted, but the file changed or came later.
    Stale,
    Untrusted,
}

/// Decides about the instruction file at a path with this content.
pub(super) type JudgeFile = Box<dyn Fn(&Path, &[u8]) -> InstructionTrust + Send + Sync>;

/// The AGENTS.md files beneath a directory. A run reads each of them once.
pub struct NestedInstructions {
    judge: JudgeFile,
    directory: PathBuf,
    state: Mutex<NestedState>,
}

#[derive(Debug, Default)]
struct NestedState {
    /// The directories that were visited.
    visited: HashSet<PathBuf>,
    /// Files of trusted directories that changed or came later.
    stale: Vec<PathBuf>,
}

impl NestedInstructions {
    pub(super) fn new(judge: JudgeFile, directory: &Path) -> Self {
        Self { judge, directory: directory.to_owned(), state: Mutex::default() }
    }

    /// Path and text of each AGENTS.md between the working directory and the file at `path`, which a tool has touched. A file that was read
    /// before, or whose current content is not trusted, is left out.
    pub fn read(&self, path: &Path) -> Vec<(PathBuf, String)> {
        let mut state = self.state.lock();
        let is_beneath = |dir: &&Path| dir.starts_with(&self.directory) && *dir != self.directory;
        let mut texts = Vec::new();
        for dir in path.ancestors().skip(1).take_while(is_beneath) {
            if !state.visited.insert(dir.to_owned()) {
                break;
            }
            let agents_file = dir.join("AGENTS.md");
            let Ok(Some(bytes)) = read_agents_file(dir) else {
                continue;
            };
            match (self.judge)(&agents_file, &bytes) {
                // The tool has returned or written this file.
                _ if agents_file == path => {}
                InstructionTrust::Trusted => {
                    texts.push((agents_file, String::from_utf8_lossy(&bytes).into_owned()));
                }
                InstructionTrust::Stale => state.stale.push(agents_file),
                InstructionTrust::Untrusted => {}
            }
        }
        texts.reverse();
        texts
    }

    /// The files that were not read although their directory is trusted.
    pub fn stale(&self) -> Vec<PathBuf> {
        self.state.lock().stale.clone()
    }
}
