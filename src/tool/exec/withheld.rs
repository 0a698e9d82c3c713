//! Changes of a command that were taken back, and are made after all if the user consents.

use crate::sys::sandbox::UndoneChange;
use crate::tool::WithheldFile;
use std::path::{Path, PathBuf};

/// The result of a command of which changes were taken back.
pub(super) struct WithheldResult {
    /// Its output.
    pub(super) text: String,
    pub(super) command_failed: bool,
    /// The changes that were taken back.
    pub(super) undone: Vec<UndoneChange>,
}

impl WithheldResult {
    /// The changes that were taken back, of the files that `covers` is true for.
    pub(super) fn changes(&self, covers: &dyn Fn(&Path) -> bool) -> Vec<WithheldFile> {
        let undone = self.undone.iter();
        let withheld = undone.filter(|change| change.is_withheld() && covers(&change.path));
        withheld
            .map(|change| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                WithheldFile {
                    path: change.path.clone(),
                    before: text(&std::fs::read(&change.path).unwrap_or_default()),
                    after: text(change.withheld_content().unwrap_or_default()),
                }
            })
            .collect()
    }

    /// Makes the changes of these files after all, and returns their paths. The others stay, with those that cannot be made.
    pub(super) fn make(&mut self, covers: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut made = Vec::new();
        for change in std::mem::take(&mut self.undone) {
            let is_allowed = change.is_withheld() && covers(&change.path);
            match is_allowed.then(|| change.make()) {
                Some(Ok(())) => made.push(change.path),
                Some(Err(error)) => {
                    let path = change.path.display();
                    self.text.push_str(&format!("\n(`{path}` could not be changed: {error})"));
                    self.undone.push(change);
                }
                None => self.undone.push(change),
            }
        }
        made
    }
}
