//! Changes of a command that were undone: describes them to the model, and makes them after all if the user consents.

use crate::files::Files;
use crate::{ToolError, ToolOutput, WithheldChanges, WithheldFile};
use nanobot_config::policy::Refusal;
use nanobot_config::policy::file_scope::{FileAccess, FileScope};
use nanobot_sandbox::{Remedy, UndoneChange};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The flag that permits changes of files that programs and agents read on their own.
const STARTUP_FLAG: &str = "--allow startup";
/// Maximum characters of a line of a config in a message.
const MAX_LINE_CHARS: usize = 80;

/// The result of a command whose changes were undone.
pub(super) struct UndoneResult {
    pub(super) files: Arc<Files>,
    /// The output of the command.
    pub(super) text: String,
    pub(super) command_failed: bool,
    /// The undone changes, including those that no consent permits.
    pub(super) undone: Vec<UndoneChange>,
}

impl WithheldChanges for UndoneResult {
    fn allowed_by(&self, flag: &str) -> Vec<WithheldFile> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let allowed_changes = self.undone.iter().filter(|change| self.is_allowed(flag, change));
        allowed_changes
            .map(|change| WithheldFile {
                path: change.path.clone(),
                before: text(&std::fs::read(&change.path).unwrap_or_default()),
                after: text(change.withheld_content().unwrap_or_default()),
            })
            .collect()
    }

    fn make(mut self: Box<Self>, flag: &str) -> Result<ToolOutput, ToolError> {
        let allowed_files = self.allowed_by(flag);
        let files = Arc::clone(&self.files);
        let made_paths = files.record_command(|| self.make_allowed(flag));
        let contents = allowed_files.iter().map(|file| file.after.as_bytes());
        files
            .git_history()
            .grant(contents)
            .map_err(|error| format!("record what the user allowed: {error}"))?;
        let changed = files.changed_startup_files();
        changed.lock().extend(made_paths.into_iter().map(|path| {
            let file = allowed_files.iter().find(|file| file.path == path);
            let content = file.map(|file| file.after.clone().into_bytes());
            (path, content)
        }));
        if !self.undone.is_empty() {
            let refusal = undone_refusal(&files.file_scope, &self.text, &self.undone);
            return Err(ToolError::DeniedDuringCall { refusal, withheld: None });
        }
        Ok(ToolOutput {
            command_failed: self.command_failed,
            ..self.text.trim_start_matches('\n').to_owned().into()
        })
    }
}

impl UndoneResult {
    /// The error that the call ends with.
    pub(super) fn into_error(self) -> ToolError {
        let refusal = undone_refusal(&self.files.file_scope, &self.text, &self.undone);
        ToolError::DeniedDuringCall { refusal, withheld: Some(Box::new(self)) }
    }

    /// Makes the changes that `flag` allows, and returns their paths. The others stay in `undone`, as do those that fail.
    fn make_allowed(&mut self, flag: &str) -> Vec<PathBuf> {
        let mut made_paths = Vec::new();
        for change in std::mem::take(&mut self.undone) {
            match self.is_allowed(flag, &change).then(|| change.make()) {
                Some(Ok(())) => made_paths.push(change.path),
                Some(Err(error)) => {
                    let path = change.path.display();
                    self.text.push_str(&format!("\n(`{path}` could not be changed: {error})"));
                    self.undone.push(change);
                }
                None => self.undone.push(change),
            }
        }
        made_paths
    }

    fn is_allowed(&self, flag: &str, change: &UndoneChange) -> bool {
        change.is_withheld() && is_allowed_by(&self.files.file_scope, flag, &change.path)
    }
}

/// True if the user, who grants `flag`, allows that commands change `path`.
pub(super) fn is_allowed_by(scope: &FileScope, flag: &str, path: &Path) -> bool {
    scope.find_denial(path, FileAccess::Write).is_none()
        && match flag.strip_prefix("--write=") {
            Some(granted) => scope.directory.join(granted) == path,
            None => flag == STARTUP_FLAG && scope.is_project_file(path),
        }
}

/// The refusal for a command that changed protected files, and whose output is `text`. The reason comes first: the output
/// may be long. What else the command has changed stays.
pub(super) fn undone_refusal(scope: &FileScope, text: &str, undone: &[UndoneChange]) -> Refusal {
    let mut refusal = explain_undone(scope, undone);
    refusal.message.insert_str(0, "the command ran, but ");
    let text = text.trim_start_matches('\n');
    if !text.is_empty() {
        refusal.message.push_str(&format!("\n\n{text}"));
    }
    refusal
}

/// Explains, line by line, how changes of protected files were undone.
pub(super) fn explain_undone(scope: &FileScope, undone: &[UndoneChange]) -> Refusal {
    let show = |path: &Path| {
        let relative = path.strip_prefix(&scope.directory).unwrap_or(path);
        format!("`{}`", relative.display())
    };
    let mut lines: Vec<String> = Vec::new();
    let mut add_line = |line: String| lines.push(line);
    let denial = |path: &Path| scope.find_denial(path, FileAccess::Write);
    let is_project_file = |path: &Path| scope.is_project_file(path) && denial(path).is_none();
    let (mut restored, mut kept_files) = (Vec::new(), Vec::new());
    let mut undone_paths = undone.iter().filter(|change| change.remedy.is_ok());
    let mut suggested_flag =
        undone_paths.any(|change| is_project_file(&change.path)).then(|| STARTUP_FLAG.to_owned());
    for change in undone {
        let path = show(&change.path);
        match &change.remedy {
            Ok(Remedy::Restored(kept_file)) => {
                match denial(&change.path) {
                    Some(denial) => add_line(format!(
                        "commands may not change {path}, by the rule `{}`, which no flag lifts, so it was restored",
                        denial.rule
                    )),
                    None => restored.push(change.path.as_path()),
                }
                kept_files.extend(kept_file.as_deref().map(show));
            }
            Ok(Remedy::SetAside(other)) if is_project_file(&change.path) => add_line(format!(
                "{path} is read by programs and agents on their own, so it was renamed to {}; the user can allow it with \
                 `{STARTUP_FLAG}`",
                show(other)
            )),
            Ok(Remedy::SetAside(other)) => add_line(format!(
                "{path} would start programs outside of this sandbox, so it was renamed to {}; the user can rename it back \
                 after reading it",
                show(other)
            )),
            Ok(Remedy::LinesRemoved { lines, whole }) => add_line(format!(
                "{} in {path} could make git start programs outside of this sandbox, so it was taken out; the whole file is \
                 {}; the user can set it with `git config`",
                lines
                    .iter()
                    .map(|line| format!("`{}`", shorten(line)))
                    .collect::<Vec<_>>()
                    .join(", "),
                show(whole)
            )),
            Err(error) => add_line(format!(
                "commands may not change {path}, and it could not be restored ({error}): tell the user"
            )),
        }
    }
    if !restored.is_empty() {
        // Only an existing path can be granted, and none of nanobot's own.
        let is_own = |path: &Path| {
            let mut own_paths = scope.hidden.iter().chain(scope.read_only.iter());
            own_paths.any(|own_path| path.starts_with(own_path))
        };
        let mut grantable = restored.iter().filter(|_| !scope.is_private_copy);
        let existing = grantable.find(|path| path.exists() && !is_own(path));
        suggested_flag = suggested_flag
            .or_else(|| existing.map(|path| format!("--write={}", show(path).trim_matches('`'))));
        let grant = suggested_flag.as_ref();
        let grant = grant.map(|flag| format!("; the user can grant it with `{flag}`"));
        let paths: Vec<String> = restored.iter().map(|path| show(path)).collect();
        add_line(format!(
            "commands may not change {}, so it was restored; tell the user what to change in it{}",
            paths.join(", "),
            grant.unwrap_or_default()
        ));
        let is_of_git = |path: &Path| path.components().any(|part| part.as_os_str() == ".git");
        if !restored.iter().all(|path| is_of_git(path)) {
            add_line("if git tracks such a file, it now shows it as changed or deleted: do not commit that, nor a file that was kept".into());
        }
    }
    if !kept_files.is_empty() {
        lines.push(format!("what was written there is in {}", kept_files.join(", ")));
    }
    Refusal { message: lines.join("\n"), suggested_flag, names_flag: true }
}

/// The beginning of `line`, for a message.
fn shorten(line: &str) -> String {
    line.chars().take(MAX_LINE_CHARS).collect()
}
