//! The agent's workspace: its instruction files, its memory, and the templates from which they are created.

use crate::memory;
use anyhow::{Context, Result};
use nanobot_os::durable_file;
use nanobot_os::entry_mode::EntryMode;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The instruction files that the system prompt includes, in this order.
const BOOTSTRAP_FILES: [&str; 5] = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "IDENTITY.md"];

/// Files of a new workspace: their paths in it, and their texts.
pub const TEMPLATES: [(&str, &str); 8] = [
    ("AGENTS.md", include_str!("AGENTS.md")),
    ("SOUL.md", include_str!("SOUL.md")),
    ("USER.md", include_str!("USER.md")),
    ("TOOLS.md", include_str!("TOOLS.md")),
    ("IDENTITY.md", include_str!("IDENTITY.md")),
    ("HEARTBEAT.md", include_str!("HEARTBEAT.md")),
    ("memory/MEMORY.md", include_str!("MEMORY.md")),
    ("memory/HISTORY.md", ""),
];

/// Templates that are forms. They are left out of the prompt until they have been filled in.
const FORM_FILES: [&str; 4] = ["USER.md", "TOOLS.md", "IDENTITY.md", "memory/MEMORY.md"];

/// The agent's workspace directory.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Its path.
    pub root: PathBuf,
}

/// The parts of a workspace that the system prompt includes.
#[derive(Debug, Default)]
pub struct WorkspaceNotes {
    /// Name and text of the bootstrap files, in order.
    pub bootstrap: Vec<(String, String)>,
    /// The long-term memory, if there is one.
    pub memory: Option<String>,
    /// The unchanged text of the memory file; empty if there is none.
    pub memory_file: Vec<u8>,
}

impl Workspace {
    /// Opens the workspace at `root`. Nothing is read or created.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Reads the notes for the system prompt. Files that are missing, empty or an unchanged form are left out.
    ///
    /// # Errors
    /// A file exists but cannot be read. It is not skipped, because it may contain prohibitions.
    pub fn read_notes(&self) -> Result<WorkspaceNotes> {
        let mut notes = WorkspaceNotes::default();
        for name in BOOTSTRAP_FILES {
            let text = note_text(name, &self.read_file(name)?);
            notes.bootstrap.extend(text.map(|text| (name.to_owned(), text)));
        }
        notes.memory_file = durable_file::read(&memory::file_path(&self.root))?.unwrap_or_default();
        notes.memory = note_text("memory/MEMORY.md", &notes.memory_file);
        Ok(notes)
    }

    /// Reads the file `name`; empty if it is missing.
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        Ok(durable_file::read(&self.root.join(name))?.unwrap_or_default())
    }

    /// Creates the missing files of a workspace and returns their names. Existing files are not changed.
    pub fn create(&self) -> Result<Vec<&'static str>> {
        for dir in ["memory", "skills", "sessions"] {
            durable_file::create_dir(&self.root.join(dir))?;
        }
        let mut created = Vec::new();
        for (name, text) in TEMPLATES {
            // A memory file at the root is accepted as well.
            if name == "memory/MEMORY.md" && self.root.join("MEMORY.md").exists() {
                continue;
            }
            let path = self.root.join(name);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(EntryMode::of_new(&path).file)
                .open(&path)
            {
                Ok(mut file) => {
                    file.write_all(text.as_bytes())
                        .with_context(|| format!("write `{}`", path.display()))?;
                    created.push(name);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("create `{}`", path.display()));
                }
            }
        }
        Ok(created)
    }
}

/// The text of the file `name` for the system prompt, unless it is empty or an unchanged form.
fn note_text(name: &str, bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let is_form = |(form, blank): &(&str, &str)| *form == name && *blank == text;
    let is_unchanged = FORM_FILES.contains(&name) && TEMPLATES.iter().any(is_form);
    (!text.trim().is_empty() && !is_unchanged).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::{TEMPLATES, Workspace};

    #[test]
    fn a_workspace_is_created_once_and_forms_are_not_sent() {
        let temp = tempfile::tempdir().unwrap();
        let workspace = Workspace::new(&temp.path().join("w"));
        assert!(workspace.read_notes().unwrap().bootstrap.is_empty());
        assert_eq!(workspace.create().unwrap().len(), TEMPLATES.len());
        std::fs::write(workspace.root.join("SOUL.md"), "mine").unwrap();
        assert!(workspace.create().unwrap().is_empty());
        let notes = workspace.read_notes().unwrap();
        let names: Vec<&str> = notes.bootstrap.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, notes.memory), (vec!["AGENTS.md", "SOUL.md"], None));
        std::fs::write(workspace.root.join("memory/MEMORY.md"), "likes tea").unwrap();
        std::fs::write(workspace.root.join("USER.md"), "Ada").unwrap();
        let notes = workspace.read_notes().unwrap();
        assert_eq!((notes.bootstrap.len(), notes.memory.as_deref()), (3, Some("likes tea")));
    }

    #[test]
    fn a_memory_at_the_root_is_found() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("MEMORY.md"), "old").unwrap();
        let workspace = Workspace::new(temp.path());
        workspace.create().unwrap();
        assert_eq!(workspace.read_notes().unwrap().memory.as_deref(), Some("old"));
        assert!(!temp.path().join("memory/MEMORY.md").exists());
        // An empty memory is the memory too.
        std::fs::write(temp.path().join("memory/MEMORY.md"), "").unwrap();
        let notes = workspace.read_notes().unwrap();
        assert_eq!((notes.memory, notes.memory_file), (None, Vec::new()));
    }
}
