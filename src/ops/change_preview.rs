//! The change of a file by a call that waits for approval, as the user is shown it.

use nanobot_os::durable_file;
use nanobot_tool::files::text_file::TextFile;
use nanobot_tool::masked_text::restore_keys;
use nanobot_tool::{ApprovalRequest, edit_file};
use std::borrow::Cow;

/// The largest file whose change is shown, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The content of a file before and after a call of `write_file` or `edit_file`, or as much of both as the call names.
pub(crate) struct ChangePreview {
    pub(crate) before: String,
    pub(crate) after: String,
    /// False if the file is replaced and what it contains cannot be shown.
    pub(crate) is_complete: bool,
}

/// The content of a file.
enum CurrentContent {
    None,
    Text(TextFile),
    /// Cannot be shown: too large, not a regular file, or not text.
    Other,
}

impl ChangePreview {
    pub(crate) fn for_request(case: &ApprovalRequest<'_>) -> Self {
        let text = |key: &str| case.arguments[key].as_str().unwrap_or_default().to_owned();
        let old = current_content(case);
        if case.tool == "write_file" {
            let after = text("content");
            let (before, after, is_complete) = match old {
                CurrentContent::Text(old) => {
                    let (after, _) = old.adapt_content(&after);
                    (old.text, after, true)
                }
                CurrentContent::None => (String::new(), after, true),
                CurrentContent::Other => (String::new(), after, false),
            };
            let after = restore_keys(&before, &after).map(Cow::into_owned).unwrap_or(after);
            return Self { before, after, is_complete };
        }
        let (mut before, mut after) = (text("old_text"), text("new_text"));
        // The content may not be known: reading needs a permission of its own.
        if let CurrentContent::Text(old) = old {
            let all = case.arguments["replace_all"] == true;
            if let Ok(new) = edit_file::edit_with_keys(&old.text, &before, &after, all) {
                (before, after) = (old.text, new.text);
            }
        }
        Self { before, after, is_complete: true }
    }

    /// True if the call names a file that does not exist.
    pub(crate) fn is_new_file(case: &ApprovalRequest<'_>) -> bool {
        matches!(current_content(case), CurrentContent::None)
    }
}

/// The current content of the file that `case` would change.
fn current_content(case: &ApprovalRequest<'_>) -> CurrentContent {
    let given = case.arguments["path"].as_str().unwrap_or_default();
    let path = case.file_scope.absolute(given);
    match std::fs::metadata(&path) {
        Err(_) => return CurrentContent::None,
        Ok(about) if !about.is_file() || about.len() > MAX_FILE_BYTES => {
            return CurrentContent::Other;
        }
        Ok(_) => {}
    }
    match durable_file::read_limited(&path, MAX_FILE_BYTES) {
        Ok(Some(bytes)) => {
            TextFile::new(&bytes).map_or(CurrentContent::Other, CurrentContent::Text)
        }
        Ok(None) => CurrentContent::None,
        Err(_) => CurrentContent::Other,
    }
}
