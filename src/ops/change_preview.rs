//! The change that a call would make to a file, shown to the user who approves the call.

use crate::ops::approval_text::NamedFile;
use nanobot_config::policy::file_scope::FileScope;
use nanobot_os::durable_file;
use nanobot_os::symlinks::PathResolver;
use nanobot_tool::files::text_file::TextFile;
use nanobot_tool::masked_text::restore_keys;
use nanobot_tool::{ApprovalRequest, edit_file};
use std::borrow::Cow;
use std::path::PathBuf;

/// Maximum size of a file whose change is shown, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The content of a file before and after a call of `write_file` or `edit_file`, or the parts of it that the call names.
pub(crate) struct ChangePreview {
    pub(crate) before: String,
    pub(crate) after: String,
    /// False if the file is replaced and its content cannot be shown.
    pub(crate) is_complete: bool,
}

/// The content of a file.
enum CurrentContent {
    None,
    Text(TextFile),
    /// The content cannot be shown: it is too large, not a regular file, or not text.
    Other,
}

impl ChangePreview {
    /// The change that `request` would make.
    pub(crate) fn for_request(request: &ApprovalRequest<'_>) -> Self {
        let text = |key: &str| request.arguments[key].as_str().unwrap_or_default().to_owned();
        let old = current_content(request);
        if request.tool == "write_file" {
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
        let mut before = text("old_text");
        let mut after = text("new_text");
        // The content may not be readable: reading needs its own permission.
        if let CurrentContent::Text(old) = old {
            let replace_all = request.arguments["replace_all"] == true;
            if let Ok(new) = edit_file::edit_with_keys(&old.text, &before, &after, replace_all) {
                (before, after) = (old.text, new.text);
            }
        }
        Self { before, after, is_complete: true }
    }

    /// The file that the call would change, for the question about it.
    pub(crate) fn named_file(request: &ApprovalRequest<'_>) -> NamedFile {
        let is_new = Self::is_new_file(request);
        if !["write_file", "edit_file"].contains(&request.tool) {
            return NamedFile { is_new, target: None };
        }
        let path = named_path(request);
        let target = PathResolver::default().resolve(&path);
        let target = (target != path).then(|| {
            let FileScope { directory, home, .. } = request.file_scope;
            let name = match (target.strip_prefix(directory), target.strip_prefix(home)) {
                (Ok(name), _) => name.display().to_string(),
                (_, Ok(name)) => format!("~/{}", name.display()),
                _ => target.display().to_string(),
            };
            name.replace(['\n', '\r'], "␊")
        });
        NamedFile { is_new, target }
    }

    /// True if the call names a file that does not exist.
    pub(crate) fn is_new_file(request: &ApprovalRequest<'_>) -> bool {
        matches!(current_content(request), CurrentContent::None)
    }
}

fn named_path(request: &ApprovalRequest<'_>) -> PathBuf {
    request.file_scope.absolute(request.arguments["path"].as_str().unwrap_or_default())
}

/// The current content of the file that `request` would change.
fn current_content(request: &ApprovalRequest<'_>) -> CurrentContent {
    let path = named_path(request);
    match std::fs::metadata(&path) {
        Err(_) => return CurrentContent::None,
        Ok(metadata) if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES => {
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
