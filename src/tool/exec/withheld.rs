//! Changes of a command that were taken back, and are made after all if the user consents.

use crate::sys::sandbox::UndoneChange;
use std::path::PathBuf;

/// The result of a command of which changes were taken back.
pub(super) struct WithheldResult {
    /// Its output.
    pub(super) text: String,
    pub(super) command_failed: bool,
    /// The changes that were taken back.
    pub(super) undone: Vec<UndoneChange>,
}

impl WithheldResult {
    /// The files whose changes wait for consent.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let withheld = self.undone.iter().filter(|change| change.is_withheld());
        withheld.map(|change| change.path.clone()).collect()
    }

    /// Makes the changes that wait for consent, and returns their paths. The others stay, with those that cannot be made.
    pub(super) fn make(&mut self) -> Vec<PathBuf> {
        let mut made = Vec::new();
        for change in std::mem::take(&mut self.undone) {
            match change.is_withheld().then(|| change.make()) {
                Some(Ok(())) => made.push(change.path),
                Some(Err(error)) => {
                    let path = change.path.display();
                    self.text
                        .push_str(&format!("\n(`{path}` could not be changed: {error})"));
                    self.undone.push(change);
                }
                None => self.undone.push(change),
            }
        }
        made
    }
}
