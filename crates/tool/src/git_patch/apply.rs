//! Applies a patch to the directory of a run, through the policy and the journal for undo: all of it, or nothing.

use super::ObjectFormat;
use super::parse::GitFilePatch;
use crate::ToolError;
use crate::files::Files;
use crate::files::change::{
    ChangeAllError, ExpectedState, FileChange, LoadedFile, RevertibleChange,
};
use anyhow::{Context, Result, anyhow};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::policy::Refusal;
use nanobot_config::policy::file_scope::FileAccess;
use nanobot_os::rooted_fs::{RootDir, is_link};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The bits of the file type in a mode, and the type of a regular file.
const TYPE_MASK: u32 = 0o170_000;
const REGULAR_FILE: u32 = 0o100_000;
/// The permissions to execute, and those to read, which git extends to execution.
const EXECUTE_BITS: u32 = 0o111;
const READ_BITS: u32 = 0o444;

/// A change that was made. Paths are relative to the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppliedChange {
    Created(PathBuf),
    Changed(PathBuf),
    Removed(PathBuf),
    Renamed { from: PathBuf, to: PathBuf },
}

/// Decides about a change that a tool would make to a path.
pub type DecideChange<'a> = &'a dyn Fn(&str, &str) -> Result<(), Refusal>;

/// Applies `patches` to the directory of `files`. Their names begin with `prefix`, the path of the directory in its repository.
///
/// # Errors
/// Status 77 if a change is refused, 65 if the files are not those that the patch was made for; then no file was changed.
pub fn apply(
    files: &Files,
    patches: &[GitFilePatch],
    prefix: &Path,
    decide: DecideChange<'_>,
) -> Result<Vec<AppliedChange>> {
    let directory = &files.file_scope.directory;
    let root = RootDir::open(directory)
        .with_context(|| format!("open the directory `{}`", directory.display()))?;
    let target = PatchTarget { files, root, prefix, decide };
    let planned: Vec<PlannedFile> =
        patches.iter().map(|patch| target.plan(patch)).collect::<Result<_>>()?;
    // A renamed file is removed only after it was written at its new path.
    let writes = planned.iter().filter_map(PlannedFile::write);
    let removals = planned.iter().filter_map(PlannedFile::removal);
    let changes: Vec<RevertibleChange<'_>> = writes.chain(removals).collect();
    files.change_all(&changes).map_err(|error| match error {
        ChangeAllError::Unchanged(error) => to_error(&error),
        ChangeAllError::Changed(message) => {
            anyhow!("the patch failed, and a part of it was applied: {message}")
        }
    })?;
    for file in planned.iter().filter(|file| file.is_new_program) {
        let path = Path::new(file.new_path.as_deref().unwrap_or_default());
        let set_mode = || -> io::Result<()> {
            let mode = target.root.metadata(path)?.permissions().mode();
            target.root.set_mode(path, with_execution(mode & 0o7777, true))
        };
        if let Err(error) = set_mode() {
            let state = match files.revert(&changes) {
                Ok(()) => "no file was changed".to_owned(),
                Err((path, _)) => format!("`{path}` could not be restored"),
            };
            let path = path.display();
            return Err(anyhow!("`{path}` cannot be made executable: {error}; {state}"));
        }
    }
    Ok(planned.iter().map(PlannedFile::describe).collect())
}

/// The directory to which a patch is applied.
struct PatchTarget<'a> {
    files: &'a Files,
    root: RootDir,
    prefix: &'a Path,
    decide: DecideChange<'a>,
}

/// The change of one file, with its contents before and after.
struct PlannedFile {
    old_path: Option<String>,
    new_path: Option<String>,
    old: Option<LoadedFile>,
    /// True if the old file stays.
    is_copy: bool,
    new: Vec<u8>,
    /// The mode that an existing file gets.
    mode: Option<u32>,
    /// True for a new file that is to be executable. The other bits of its mode follow the umask.
    is_new_program: bool,
}

impl PatchTarget<'_> {
    /// Checks a change, and reads its file.
    fn plan(&self, patch: &GitFilePatch) -> Result<PlannedFile> {
        for mode in [patch.old_mode, patch.new_mode].into_iter().flatten() {
            if mode & TYPE_MASK != REGULAR_FILE {
                let path = patch.new_path.as_ref().or(patch.old_path.as_ref());
                let name = path.map(|path| path.display().to_string()).unwrap_or_default();
                return Err(fail(
                    Exit::Refused,
                    format!("`{name}` is not a regular file in the patch"),
                )
                .with_hint("`git apply`, which makes links and submodules"));
            }
        }
        let old_path = patch.old_path.as_deref().map(|path| self.relative(path)).transpose()?;
        let new_path = patch.new_path.as_deref().map(|path| self.relative(path)).transpose()?;
        if let Some(path) = &new_path {
            let is_new = old_path.as_ref() != Some(path);
            self.check(path, if is_new { "write_file" } else { "edit_file" })?;
        }
        if let Some(path) = old_path.as_ref().filter(|path| new_path.as_ref() != Some(path)) {
            self.check(path, if patch.is_copy { "edit_file" } else { "delete_file" })?;
        }
        let old = match &old_path {
            Some(path) => {
                let old = self.files.load_for_change(path).map_err(|error| match error {
                    ToolError::Denied(_) => to_error(&error),
                    _ => changed(path),
                })?;
                if !has_id(patch.old_id.as_deref(), &old.bytes)? {
                    return Err(changed(path));
                }
                Some(old)
            }
            None => None,
        };
        if patch.is_binary() && patch.old_id.is_none() {
            let cause = "a binary change needs whole ids, as of `git diff --binary --full-index`";
            return Err(fail(Exit::BadInput, cause));
        }
        let old_bytes = old.as_ref().map_or(&[][..], |old| &old.bytes);
        let new = patch.apply_to(old_bytes);
        let path = new_path.as_ref().or(old_path.as_ref()).map_or("", String::as_str);
        let new = new.ok_or_else(|| changed(path))?;
        if new_path.is_some() && !has_id(patch.new_id.as_deref(), &new)? {
            return Err(fail(Exit::BadInput, format!("the content of `{path}` is damaged")));
        }
        if new_path.is_none() && !new.is_empty() {
            return Err(changed(path));
        }
        let is_program = patch.new_mode.map(|mode| mode & EXECUTE_BITS != 0);
        let is_renamed = old_path != new_path;
        let mode = old.as_ref().and_then(|old| {
            let mode = old.mode & 0o1777;
            let new_mode = is_program.map_or(mode, |is_program| with_execution(mode, is_program));
            (is_renamed || new_mode != mode).then_some(new_mode)
        });
        Ok(PlannedFile {
            is_new_program: old.is_none() && is_program == Some(true),
            is_copy: patch.is_copy,
            old_path,
            new_path,
            old,
            new,
            mode,
        })
    }

    /// The path that the patch calls `name`, relative to the directory, as a tool would name it.
    fn relative(&self, name: &Path) -> Result<String> {
        let path = name.strip_prefix(self.prefix).ok().filter(|path| !path.as_os_str().is_empty());
        let path = path.ok_or_else(|| {
            fail(Exit::Refused, format!("`{}` is not in this directory", name.display())).with_hint(
                "the directory in which the patch was made, or the top of its repository",
            )
        })?;
        let path = path.to_str().ok_or_else(|| {
            let cause = format!("the name `{}` is not UTF-8", name.display());
            fail(Exit::BadInput, cause).with_hint("`git apply`")
        })?;
        let link_error =
            || fail(Exit::Refused, format!("`{path}` is a symbolic link, or behind one"));
        // A patch has no name for the home directory.
        let is_expanded = path.starts_with('~');
        let path_of_tool = if is_expanded { format!("./{path}") } else { path.to_owned() };
        match self.root.metadata(Path::new(path)) {
            Ok(metadata) if metadata.is_symlink() => Err(link_error()),
            Err(error) if is_link(&error) => Err(link_error()),
            Ok(_) => Ok(path_of_tool),
            Err(error)
                if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) =>
            {
                Ok(path_of_tool)
            }
            Err(error) => Err(error).with_context(|| format!("look for `{path}`")),
        }
    }

    /// Refuses a change of `path` that the policy does not allow.
    fn check(&self, path: &str, tool: &str) -> Result<()> {
        let scope = &self.files.file_scope;
        let decision = (self.decide)(tool, path)
            .and_then(|()| scope.decide(path, FileAccess::Write).map(drop));
        decision.map_err(|refusal| to_error(&ToolError::Denied(refusal)))
    }
}

impl PlannedFile {
    /// The file that is written.
    fn write(&self) -> Option<RevertibleChange<'_>> {
        let path = self.new_path.as_deref()?;
        let replaced = self.old.as_ref().filter(|_| self.old_path == self.new_path);
        Some(RevertibleChange {
            change: FileChange {
                path,
                new: Some(&self.new),
                mode: self.mode,
                expect: replaced.map_or(ExpectedState::Missing, |old| {
                    ExpectedState::Digest(old.digest.clone())
                }),
            },
            old: replaced,
        })
    }

    /// The file that is removed.
    fn removal(&self) -> Option<RevertibleChange<'_>> {
        let (path, old) = (self.old_path.as_deref()?, self.old.as_ref()?);
        let is_kept = self.is_copy || self.old_path == self.new_path;
        (!is_kept).then(|| RevertibleChange {
            change: FileChange {
                path,
                new: None,
                mode: None,
                expect: ExpectedState::Digest(old.digest.clone()),
            },
            old: Some(old),
        })
    }

    fn describe(&self) -> AppliedChange {
        match (&self.old_path, &self.new_path) {
            (Some(path), None) => AppliedChange::Removed(path.into()),
            (Some(from), Some(to)) if from != to && !self.is_copy => {
                AppliedChange::Renamed { from: from.into(), to: to.into() }
            }
            (Some(from), Some(to)) if from == to => AppliedChange::Changed(to.into()),
            (_, to) => AppliedChange::Created(to.as_deref().unwrap_or_default().into()),
        }
    }
}

/// `mode` with or without the permission to execute, for all who may read.
fn with_execution(mode: u32, is_program: bool) -> u32 {
    if is_program { mode | (mode & READ_BITS) >> 2 } else { mode & !EXECUTE_BITS }
}

/// True if `bytes` have this id, or none is known.
fn has_id(id: Option<&str>, bytes: &[u8]) -> Result<bool> {
    let Some(id) = id else {
        return Ok(true);
    };
    let formats = [ObjectFormat::Sha1, ObjectFormat::Sha256];
    let format = formats.into_iter().find(|format| format.null_id().len() == id.len());
    let format = format.context("an id has another length")?;
    Ok(format.blob_id(bytes) == id)
}

/// The error for a file that is not the one that the patch was made for.
fn changed(path: &str) -> anyhow::Error {
    fail(
        Exit::BadInput,
        format!("`{path}` is not as the patch expects it, and no file was changed"),
    )
    .with_hint("a patch that is made anew")
}

/// The error of a patch that changed nothing. A step that a flag of `nanobot apply` allows is a part of it.
fn to_error(error: &ToolError) -> anyhow::Error {
    let cause = format!("{}; no file was changed", error.message());
    match error {
        ToolError::Denied(Refusal { suggested_flag, .. }) => match suggested_flag.as_deref() {
            Some(flag) if flag.starts_with("--allow ") => {
                fail(Exit::Refused, cause).with_hint(format!("`nanobot apply {flag}`"))
            }
            _ => fail(Exit::Refused, cause),
        },
        _ => fail(Exit::BadInput, cause),
    }
}
