//! File access for tools. The policy decides first, then the kernel confines each operation. Errors are text for the
//! model.
//!
//! A digest of each file's content is stored when it is read or written. A file that a person or a command has changed
//! since then cannot be changed without reading it again. A file that was never read may be replaced, since its old
//! content is kept, as before every change. A read that is always required would cost a step for each report that is written anew, and
//! would protect only content that `nanobot undo` restores anyway.

use super::ToolError;
use super::hidden_files::HiddenFiles;
use crate::undo::ChangeRecorder;
use nanobot_base::message::tagged_block;
use nanobot_config::policy::file_scope::{FileAccess, FileScope, ResolvedPath};
use nanobot_config::policy::provenance::{ChangeGrants, Grant, GuardedChange, ProvenanceTracker};
use nanobot_config::policy::{Policy, Refusal};
use nanobot_os::digest::digest;
use nanobot_os::rooted_fs::{self, RootDir};
use nanobot_sandbox::private_tmp;
use nanobot_sandbox::project_file_rules::ChangedPaths;
use nanobot_sandbox::{GitHistory, ProjectFileAccess, is_in_git_dir};
use nanobot_store::skill::WrittenSkills;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub mod change;
pub mod text_file;

/// The largest file that a tool reads into memory, in bytes, and so the largest that it changes.
pub(crate) const READ_LIMIT_BYTES: u64 = 64 << 20;
/// Maximum number of links followed for one path.
const MAX_LINKS: usize = 8;

/// The directories that a run may use, kept open as file descriptors.
pub struct Files {
    pub file_scope: FileScope,
    roots: Vec<RootDir>,
    /// The directory of kept outputs, opened when one is read.
    outputs: OnceLock<Option<RootDir>>,
    /// The provenance of the conversation's content.
    provenance: Option<Arc<ProvenanceTracker>>,
    grants: ChangeGrants,
    changes: Arc<Mutex<ChangeState>>,
    instructions: Option<FindInstructions>,
    /// The record of skills that are not the user's.
    written_skills: Option<WrittenSkills>,
}

/// Finds path and text of the instructions, not given so far, that apply to a file.
pub type FindInstructions = Arc<dyn Fn(&Path) -> Vec<(PathBuf, String)> + Send + Sync>;

/// The decision about changes of files that start or instruct something later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartupGrant {
    Allowed,
    /// The conversation has untrusted content.
    NeedsPermission,
    /// A rule of the user denies them.
    Denied,
}

/// The state of a file when this run last read or wrote it.
#[derive(Clone)]
struct LastState {
    /// The digest of its content; `None` if it was removed.
    digest: Option<String>,
}

/// State about files that may change.
#[derive(Default)]
struct ChangeState {
    /// The state of each file at its last read or write.
    last_states: HashMap<PathBuf, LastState>,
    recorder: Option<ChangeRecorder>,
    /// The files that tools have written, without those of commands.
    written: BTreeSet<PathBuf>,
    /// The changed files that start or instruct something later.
    startup_files: ChangedPaths,
    /// The objects that commands had signed, one line each.
    signatures: Vec<String>,
    /// The git objects that were there before the turn.
    git: Arc<GitHistory>,
    /// The reasons why changes of commands could not be recorded.
    failures: BTreeSet<String>,
}

impl ChangeState {
    /// Calls the recorder, and keeps its failure.
    fn with_recorder(&mut self, act: impl FnOnce(&mut ChangeRecorder) -> anyhow::Result<()>) {
        if let Some(Err(error)) = self.recorder.as_mut().map(act) {
            self.failures.insert(format!("{error:#}"));
        }
    }
}

impl Files {
    /// Opens the roots of `file_scope`. Old content is not kept until [`Self::record_changes`] is called.
    pub fn new(file_scope: FileScope) -> io::Result<Self> {
        let roots = file_scope
            .roots
            .iter()
            .map(|root| RootDir::open(&root.path))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            file_scope,
            roots,
            outputs: OnceLock::new(),
            provenance: None,
            grants: ChangeGrants::default(),
            changes: Arc::default(),
            instructions: None,
            written_skills: None,
        })
    }

    /// Makes path resolution go step by step, as on a kernel that cannot confine paths itself. For tests.
    #[must_use]
    pub fn without_openat2(self) -> Self {
        Self { roots: self.roots.into_iter().map(RootDir::without_openat2).collect(), ..self }
    }

    /// The files of a sub-agent, with the roots of `policy`. The two share the state of changed files, and changes by
    /// both are kept as those of one turn.
    pub fn with_policy(&self, policy: &Policy) -> std::io::Result<Self> {
        let files = Self::new(policy.file_scope.clone())?;
        Ok(Self {
            provenance: self.provenance.clone(),
            grants: policy.change_grants(),
            changes: Arc::clone(&self.changes),
            instructions: self.instructions.clone(),
            written_skills: self.written_skills.clone(),
            ..files
        })
    }

    /// Adds the provenance of the conversation's content, which limits what may be written under `policy`, and the record of the skills
    /// that are written after untrusted content.
    #[must_use]
    pub fn with_provenance(
        self,
        provenance: Arc<ProvenanceTracker>,
        policy: &Policy,
        written_skills: WrittenSkills,
    ) -> Self {
        Self {
            provenance: Some(provenance),
            grants: policy.change_grants(),
            written_skills: Some(written_skills),
            ..self
        }
    }

    /// Adds the instructions of directories, given with the first result about a file beneath.
    #[must_use]
    pub fn with_instructions(self, instructions: FindInstructions) -> Self {
        Self { instructions: Some(instructions), ..self }
    }

    /// `text`, the result of a tool about the file at `path`, with the instructions that apply to the file.
    pub(super) fn add_instructions(&self, mut text: String, path: &Path) -> String {
        for (agents, instructions) in self.instructions.iter().flat_map(|find| find(path)) {
            if self.file_scope.find_denial(&agents, FileAccess::Read).is_some() {
                continue;
            }
            let name = agents.display().to_string();
            let block = tagged_block("instructions", Some(&name), &instructions);
            text.push_str(&format!("\n\nThe user's instructions for this directory:\n{block}"));
        }
        text
    }

    /// Sets the recorder that stores the old content before changes. Each turn has its own.
    pub fn record_changes(&self, recorder: ChangeRecorder) {
        self.changes.lock().recorder = Some(recorder);
    }

    /// The absolute paths of the files that tools have written so far, without those of commands.
    pub fn written_paths(&self) -> BTreeSet<PathBuf> {
        self.changes.lock().written.clone()
    }

    /// Runs a command that may change files, and records its changes for undo. Failures are reported at the end
    /// of the turn.
    pub(super) fn record_command<T>(&self, run: impl FnOnce() -> T) -> T {
        self.begin_command();
        let result = run();
        self.end_command();
        result
    }

    /// Prepares to record the changes of a command until the end of the turn.
    pub(super) fn begin_command(&self) {
        let scope = &self.file_scope;
        let writable: Vec<PathBuf> = if scope.is_unrestricted {
            // Such a command can write everywhere.
            vec![scope.directory.clone()]
        } else {
            scope.command_writable_roots().map(Path::to_owned).collect()
        };
        if writable.is_empty() {
            return;
        }
        self.changes.lock().with_recorder(|recorder| recorder.begin_command(&writable));
    }

    /// Records the changes of commands since the last call.
    fn end_command(&self) {
        self.changes.lock().with_recorder(ChangeRecorder::end_command);
    }

    /// Records the changes of commands in the background, which have ended, and ends the recording. Returns the changes of commands that
    /// cannot be undone: each path with its reason.
    pub fn end_turn(&self) -> Vec<String> {
        let mut changes = self.changes.lock();
        let mut gaps = BTreeSet::new();
        changes.with_recorder(|recorder| {
            gaps = recorder.end_turn()?;
            Ok(())
        });
        let failures = std::mem::take(&mut changes.failures).into_iter();
        failures.chain(gaps.iter().map(ToString::to_string)).collect()
    }

    /// Reads the file at `raw_path`, the path as the model wrote it. Returns its content and its absolute path, and records the
    /// content as seen by the model.
    pub fn read(&self, raw_path: &str) -> Result<(Vec<u8>, PathBuf), ToolError> {
        let (bytes, path) = self.load(raw_path)?;
        let last_state = LastState { digest: Some(digest(&bytes)) };
        self.changes.lock().last_states.insert(path.clone(), last_state);
        Ok((bytes, path))
    }

    /// Like [`Self::read`], for internal use: the content is not recorded as seen.
    pub(super) fn load(&self, raw_path: &str) -> Result<(Vec<u8>, PathBuf), ToolError> {
        let (file, _, path) = self.open_regular(raw_path)?;
        let bytes =
            read_content(&file).map_err(|error| format!("`{raw_path}` cannot be read: {error}"))?;
        Ok((bytes, path))
    }

    /// Opens the regular file `raw_path` for reading, if it is not too large.
    fn open_regular(&self, raw_path: &str) -> Result<(File, Metadata, PathBuf), ToolError> {
        let (file, metadata, path) = self.open(raw_path)?;
        if metadata.is_dir() {
            return Err(format!("`{raw_path}` is a directory; use list_dir").into());
        }
        if !metadata.is_file() {
            return Err(format!("`{raw_path}` is not a regular file").into());
        }
        if metadata.len() > READ_LIMIT_BYTES {
            return Err(format!(
                "`{raw_path}` is too large ({} bytes); use exec with head, tail or grep",
                metadata.len()
            )
            .into());
        }
        Ok((file, metadata, path))
    }

    /// The path of the directory `raw_path`, once it is checked that it may be listed.
    pub fn directory(&self, raw_path: &str) -> Result<PathBuf, ToolError> {
        Ok(self.open_directory(raw_path)?.1)
    }

    /// Like [`Self::directory`]; `None` if `raw_path` is not a directory.
    pub(super) fn find_directory(&self, raw_path: &str) -> Result<Option<PathBuf>, ToolError> {
        match self.try_open_directory(raw_path) {
            Ok((_, path)) => Ok(Some(path)),
            Err(FileError::Io(error)) if error.kind() == ErrorKind::NotADirectory => Ok(None),
            Err(error) => Err(self.explain_directory_error(raw_path, error)),
        }
    }

    /// Opens the directory `raw_path`. Returns its file descriptor and path.
    pub(crate) fn open_directory(&self, raw_path: &str) -> Result<(File, PathBuf), ToolError> {
        self.try_open_directory(raw_path)
            .map_err(|error| self.explain_directory_error(raw_path, error))
    }

    fn try_open_directory(&self, raw_path: &str) -> Result<(File, PathBuf), FileError> {
        self.follow(raw_path, FileAccess::Read, FinalLink::Follow, |root, _, relative| {
            Ok(root.open_dir(relative)?)
        })
    }

    fn explain_directory_error(&self, raw_path: &str, error: FileError) -> ToolError {
        match error {
            FileError::Tool(failure) => failure,
            FileError::Io(error) if error.kind() == ErrorKind::NotADirectory => {
                format!("`{raw_path}` is not a directory").into()
            }
            FileError::Io(error) => self.explain_open_error(raw_path, &error).into(),
        }
    }

    /// The path of `raw_path`, a regular file that may be read.
    pub fn file(&self, raw_path: &str) -> Result<PathBuf, ToolError> {
        match self.open(raw_path)? {
            (_, metadata, path) if metadata.is_file() => Ok(path),
            _ => Err(format!("`{raw_path}` is not a regular file").into()),
        }
    }

    /// The current metadata of `path`, which a walk found beneath one of the roots; links are not followed. `None` if
    /// it is out of reach or gone: a walk works with names, and a name can be made to lead elsewhere in the meantime.
    pub fn metadata(&self, path: &Path) -> Option<Metadata> {
        let (root, relative) = self.resolve_entry(path)?;
        root.metadata(&relative).ok()
    }

    /// Opens for reading the file at `path`, which a walk found. `None` if it is not a file, hidden or out of reach.
    pub(crate) fn open_entry(
        &self,
        path: &Path,
        hidden: &HiddenFiles<'_>,
    ) -> Option<(File, Metadata)> {
        let (root, relative) = self.resolve_entry(path)?;
        let file = root.open_for_reading(&relative).ok()?;
        let metadata = file.metadata().ok()?;
        (metadata.is_file() && !hidden.contains(&file, &metadata, path)).then_some((file, metadata))
    }

    fn resolve_entry(&self, path: &Path) -> Option<(&RootDir, PathBuf)> {
        // A walk's paths are absolute and without `..`. Their names need not be UTF-8.
        let (root, resolved_path) = self.locate(path.to_owned(), FileAccess::Read).ok()?;
        Some((root, resolved_path.relative))
    }

    fn open(&self, raw_path: &str) -> Result<(File, Metadata, PathBuf), ToolError> {
        let (file, path) = self
            .follow(raw_path, FileAccess::Read, FinalLink::Follow, |root, _, relative| {
                Ok(root.open_for_reading(relative)?)
            })
            .map_err(|error| match error {
                FileError::Tool(failure) => failure,
                FileError::Io(error) => self.explain_open_error(raw_path, &error).into(),
            })?;
        let metadata =
            file.metadata().map_err(|error| format!("cannot stat `{raw_path}`: {error}"))?;
        if self.hidden_files().contains(&file, &metadata, &path) {
            return Err(format!(
                "`{raw_path}` is another name of a file that is not accessible to tools"
            )
            .into());
        }
        Ok((file, metadata, path))
    }

    /// The hidden files, identified by inode.
    pub(crate) fn hidden_files(&self) -> HiddenFiles<'_> {
        HiddenFiles::new(&self.file_scope)
    }

    /// Decides about a path by the policy, and runs `work` beneath the root that contains it, with the absolute path and the
    /// path relative to the root. If the path contains a link, the link is resolved here and the policy decides about the
    /// target again, so that the kernel never needs to follow one.
    fn follow<T>(
        &self,
        raw_path: &str,
        access: FileAccess,
        last: FinalLink,
        mut work: impl FnMut(&RootDir, &Path, &Path) -> Result<T, FileError>,
    ) -> Result<(T, PathBuf), FileError> {
        let tool_error = |message: String| FileError::Tool(message.into());
        if raw_path.contains('\0') {
            return Err(tool_error("the path contains a NUL character".into()));
        }
        // An empty path to be read is the working directory, as models mean it.
        if raw_path.is_empty() && access == FileAccess::Write {
            return Err(tool_error("the path is empty".into()));
        }
        let mut name = self.file_scope.absolute(raw_path);
        if access == FileAccess::Write {
            let target = self.decide_change(raw_path, last);
            let target = target.map_err(|refusal| FileError::Tool(refusal.into()))?;
            self.check_start(&name)?;
            name = target;
        }
        for _ in 0..MAX_LINKS {
            let (root, ResolvedPath { relative, path, .. }) =
                self.locate(name, access).map_err(|refusal| FileError::Tool(refusal.into()))?;
            if access == FileAccess::Write {
                self.check_start(&path)?;
            }
            match work(root, &path, &relative) {
                Ok(value) => return Ok((value, path)),
                Err(FileError::Io(error)) if rooted_fs::is_link(&error) => {
                    name = last.resolve(&path).map_err(FileError::Io)?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(tool_error(format!("`{raw_path}`: too many levels of symbolic links")))
    }

    /// Decides about a change of `raw_path`, and returns the path that changes. Links on the way stay as they are, so that they need no
    /// permission; but what no flag permits for their name is refused.
    ///
    /// # Errors
    /// A refusal for the model. That of a path behind a link says so.
    pub(crate) fn decide_change(
        &self,
        raw_path: &str,
        last: FinalLink,
    ) -> Result<PathBuf, Refusal> {
        let path = self.file_scope.absolute(raw_path);
        let decide = |path: &Path, access| self.file_scope.decide_absolute(path.to_owned(), access);
        let decision = decide(&path, FileAccess::Write);
        let target = match last.resolve(&path) {
            // Where a link leads that the run cannot see is not said.
            Ok(target) if target != path && decide(&path, FileAccess::Read).is_ok() => target,
            _ => return decision.map(|resolved_path| resolved_path.path),
        };
        let target_decision = match decision {
            Ok(_) => decide(&target, FileAccess::Write),
            Err(refusal) if refusal.suggested_flag.is_none() => return Err(refusal),
            // An allow rule for the target is about calls that name it.
            Err(_) => {
                let without_rules = FileScope { allowed: Vec::new(), ..self.file_scope.clone() };
                without_rules.decide_absolute(target.clone(), FileAccess::Write)
            }
        };
        target_decision.map(|_| target).map_err(|refusal| Refusal {
            message: format!("`{raw_path}` is a link, and {}", refusal.message),
            ..refusal
        })
    }

    /// Refuses a change of `path` if it would start or instruct something later that no flag of a path permits.
    fn check_start(&self, path: &Path) -> Result<(), FileError> {
        if self.file_scope.is_instruction_file(path) {
            self.check_provenance(path)?;
        }
        if !self.file_scope.is_unrestricted && is_in_git_dir(path) {
            let cause = format!(
                "`{}` would belong to a git directory, whose config and hooks git runs",
                path.display()
            );
            return Err(FileError::Tool(Refusal::new(cause).into()));
        }
        Ok(())
    }

    /// The root that contains the absolute path `path`, and the path resolved in it. The policy decides, except about the outputs
    /// that this run keeps: they are results of its own.
    fn locate(
        &self,
        path: PathBuf,
        access: FileAccess,
    ) -> Result<(&RootDir, ResolvedPath), Refusal> {
        if access == FileAccess::Read
            && let Some(dir) = private_tmp::existing_output_directory()
            && let Ok(relative) = path.strip_prefix(&dir)
            && let Some(root) = self.outputs.get_or_init(|| RootDir::open(&dir).ok())
        {
            let resolved_path =
                ResolvedPath { root: self.roots.len(), relative: relative.to_owned(), path };
            return Ok((root, resolved_path));
        }
        let resolved_path = self.file_scope.decide_absolute(path, access)?;
        Ok((&self.roots[resolved_path.root], resolved_path))
    }

    /// Refuses changes to files that instruct later runs, unless the conversation or the user permits them.
    fn check_provenance(&self, path: &Path) -> Result<(), FileError> {
        let change = if path.starts_with(&self.file_scope.workspace) {
            GuardedChange::Notes
        } else {
            GuardedChange::Startup
        };
        let external =
            self.provenance.as_ref().and_then(|provenance| provenance.external_content());
        let path = path.display();
        let consequence = format!("`{path}` instructs later runs and cannot be changed");
        let result = self.grants.check(change, external, &consequence);
        result.map_err(|refusal| FileError::Tool(refusal.into()))
    }

    /// The decision about changes of files that start or instruct something later.
    pub(super) fn startup_grant(&self) -> StartupGrant {
        let provenance = self.provenance.as_ref();
        let is_external =
            || provenance.is_some_and(|provenance| provenance.external_content().is_some());
        match self.grants.startup {
            Grant::Denied | Grant::ReadOnly => StartupGrant::Denied,
            Grant::Unset if is_external() => StartupGrant::NeedsPermission,
            Grant::Allowed | Grant::Unset => StartupGrant::Allowed,
        }
    }

    /// The changes of project files that a command or server may make, depending on whether it has a network or returns untrusted content.
    pub(super) fn project_file_access(
        &self,
        is_external: bool,
        has_network: bool,
    ) -> ProjectFileAccess {
        let needs_permission =
            if has_network { ProjectFileAccess::FromGit } else { ProjectFileAccess::FromHistory };
        match self.startup_grant() {
            StartupGrant::Denied => ProjectFileAccess::Closed,
            StartupGrant::NeedsPermission => needs_permission,
            StartupGrant::Allowed if is_external && self.grants.startup == Grant::Unset => {
                needs_permission
            }
            StartupGrant::Allowed => ProjectFileAccess::Free,
        }
    }

    /// Records in `file` the git objects that commands write and that may be untrusted content.
    pub fn keep_git_history(&self, file: PathBuf) {
        self.changes.lock().git = Arc::new(GitHistory::new(Some(file)));
    }

    pub(super) fn git_history(&self) -> Arc<GitHistory> {
        Arc::clone(&self.changes.lock().git)
    }

    /// The files that start or instruct something later and were changed in this turn, by tools and by commands.
    pub(super) fn changed_startup_files(&self) -> ChangedPaths {
        Arc::clone(&self.changes.lock().startup_files)
    }

    /// Records the objects that a command had signed.
    pub(super) fn record_signature(&self, line: &str) {
        self.changes.lock().signatures.push(line.to_owned());
    }

    /// Takes the list of the objects that commands had signed in this turn.
    pub fn take_signatures(&self) -> Vec<String> {
        std::mem::take(&mut self.changes.lock().signatures)
    }

    /// Takes the list of the files that start or instruct something later and were changed in this turn.
    pub fn take_changed_startup_files(&self) -> BTreeSet<PathBuf> {
        let changed = std::mem::take(&mut *self.changed_startup_files().lock());
        changed.into_keys().collect()
    }

    /// Explains why a file cannot be opened; for a missing file, suggests similar names.
    fn explain_open_error(&self, raw_path: &str, error: &io::Error) -> String {
        if error.kind() != ErrorKind::NotFound {
            return format!("`{raw_path}` cannot be opened: {error}");
        }
        let path = self.file_scope.absolute(raw_path);
        if let Ok(target) = std::fs::read_link(&path) {
            return format!(
                "`{raw_path}` is a link to `{}`, which does not exist",
                target.display()
            );
        }
        let missing_name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let parent = path.parent().unwrap_or(Path::new("/"));
        let mut similar_names: Vec<(f64, String)> = std::fs::read_dir(parent)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| self.file_scope.is_visible(&entry.path()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .map(|name| (strsim::jaro_winkler(&name.to_lowercase(), &missing_name), name))
            .filter(|(similarity, _)| *similarity > 0.8)
            .collect();
        similar_names.sort_by(|first, second| second.0.total_cmp(&first.0));
        let names: Vec<String> =
            similar_names.into_iter().take(3).map(|(_, name)| format!("`{name}`")).collect();
        let hint = if !names.is_empty() {
            format!("; did you mean {}?", names.join(", "))
        } else {
            self.find_in_other_roots(raw_path).unwrap_or_default()
        };
        format!("there is no `{raw_path}` in {}{hint}", parent.display())
    }

    /// Finds a relative path, missing in the working directory, beneath one of the other roots.
    fn find_in_other_roots(&self, raw_path: &str) -> Option<String> {
        let other_roots = self.file_scope.roots.iter().filter(|root| {
            !raw_path.starts_with(['/', '~']) && root.path != self.file_scope.directory
        });
        let path = other_roots
            .map(|root| root.path.join(raw_path))
            .find(|path| path.exists() && self.file_scope.is_visible(path))?;
        Some(format!("; did you mean `{}`?", path.display()))
    }
}

/// Resolves the links in `path`. Missing components at the end are kept.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match (std::fs::canonicalize(path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == ErrorKind::NotFound => {
            // Do not write through a dangling link.
            match std::fs::symlink_metadata(path) {
                Ok(_) => Err(error),
                Err(_) => Ok(resolve(parent)?.join(name)),
            }
        }
        (result, ..) => result,
    }
}

/// The treatment of a link at the end of a path.
#[derive(Clone, Copy)]
pub(crate) enum FinalLink {
    Follow,
    NoFollow,
}

impl FinalLink {
    /// Resolves the links in `path`. Missing components at the end are kept.
    fn resolve(self, path: &Path) -> io::Result<PathBuf> {
        match (self, path.parent(), path.file_name()) {
            (Self::NoFollow, Some(parent), Some(name)) => Ok(resolve(parent)?.join(name)),
            _ => resolve(path),
        }
    }
}

enum FileError {
    /// A failure or a refusal, for the model.
    Tool(ToolError),
    Io(io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads the whole file, up to the limit for tools.
fn read_content(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(READ_LIMIT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::Files;
    use nanobot_config::policy::file_scope::{FileScope, ScopeRoot};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// The files of a run in `dir`, which must be canonical.
    pub(crate) fn files(dir: &Path, may_write: bool) -> Files {
        let root = ScopeRoot { path: dir.to_owned(), may_write };
        Files::new(FileScope {
            directory: dir.to_owned(),
            home: "/home/u".into(),
            roots: vec![root],
            ..FileScope::default()
        })
        .unwrap()
    }

    #[test]
    fn link_targets_are_checked_again() {
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
        let both = [files(&dir, true), files(&dir, true).without_openat2()];
        // Use files of the test's own, so that a bug in the tested code cannot damage the machine.
        let secret = temp.join("secret");
        let secret = secret.to_str().unwrap();
        let magic = format!("/proc/self/root{secret}");
        for files in both {
            for name in ["real/a", "link/a", "absolute", dir.join("link/a").to_str().unwrap()] {
                assert_eq!(files.read(name).unwrap().0, b"inside", "{name}");
            }
            for name in ["out", "loop", "dangling", "../secret", &magic, secret] {
                assert!(files.read(name).is_err(), "{name}");
                assert!(files.write(name, b"x").is_err(), "{name}");
            }
            assert_eq!(std::fs::read(secret).unwrap(), b"outside");
            assert!(!temp.join("nothing").exists());
            files.write("link/new", b"x").unwrap();
            assert!(dir.join("real/new").exists());
            files.write("absolute", b"changed").unwrap();
            assert_eq!(std::fs::read(dir.join("real/a")).unwrap(), b"changed");
            assert!(dir.join("absolute").is_symlink());
            files.write("absolute", b"inside").unwrap();
            files.remove("link/new").unwrap();
            assert!(!dir.join("real/new").exists());
            symlink("real/a", dir.join("gone")).unwrap();
            files.remove("gone").unwrap();
            assert!(!dir.join("gone").is_symlink() && dir.join("real/a").exists());
            for name in ["real", "../secret", "up/secret", ".", "", "/"] {
                assert!(files.remove(name).is_err(), "{name}");
            }
        }
    }

    #[test]
    fn files_changed_by_others_must_be_read_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        let files = files(&dir, true);
        let theirs = |text: &str| std::fs::write(dir.join("a"), text).unwrap();
        let edit = |files: &Files| files.edit("a", |text| Ok(format!("{text}!"))).map(|_| ());
        let assert_stale = |result: Result<(), crate::ToolError>| {
            let message = result.unwrap_err().message().to_owned();
            assert!(message.contains("read_file"), "{message}");
        };
        theirs("one");
        // The file was never read: an edit knows what it replaces, and a replaced file is kept.
        edit(&files).unwrap();
        edit(&files).unwrap();
        theirs("two");
        // The error repeats on every attempt: the model has not seen the file only because the tool has read it.
        assert_stale(edit(&files));
        assert_stale(edit(&files));
        assert_stale(files.write("a", b"x").map(drop));
        assert_stale(files.remove("a").map(drop));
        assert_eq!(std::fs::read(dir.join("a")).unwrap(), b"two");
        files.read("a").unwrap();
        edit(&files).unwrap();
        assert_eq!(std::fs::read(dir.join("a")).unwrap(), b"two!");
        // Writing the same content again is not a change.
        theirs("two!");
        files.write("a", b"three").unwrap();
        std::fs::remove_file(dir.join("a")).unwrap();
        let written = files.write("a", b"four").unwrap();
        assert_eq!(written.old_size, None);
        files.remove("a").unwrap();
        theirs("five");
        assert_stale(files.write("a", b"x").map(drop));
    }

    #[test]
    fn hidden_files_are_recognized_by_inode() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(dir.join("in")).unwrap();
        std::fs::create_dir_all(dir.join("own/deep")).unwrap();
        std::fs::create_dir_all(dir.join(".ssh")).unwrap();
        std::fs::write(dir.join("own/deep/key"), "k").unwrap();
        std::fs::write(dir.join(".ssh/id"), "k").unwrap();
        std::fs::write(dir.join("in/fine"), "f").unwrap();
        for (from, to) in [("own/deep/key", "a"), (".ssh/id", "b"), ("in/fine", "c")] {
            std::fs::hard_link(dir.join(from), dir.join("in").join(to)).unwrap();
        }
        let root = ScopeRoot { path: dir.join("in"), may_write: false };
        let files = Files::new(FileScope {
            directory: dir.join("in"),
            home: dir.clone(),
            roots: vec![root],
            hidden: vec![dir.join("own")].into(),
            ..FileScope::default()
        })
        .unwrap();
        let hidden = files.hidden_files();
        for (name, expect) in [("a", false), ("b", false), ("c", true), ("fine", true)] {
            assert_eq!(files.read(name).is_ok(), expect, "{name}");
            let actual = files.open_entry(&dir.join("in").join(name), &hidden);
            assert_eq!(actual.is_some(), expect, "{name}");
        }
    }

    #[test]
    fn special_files_are_refused_and_similar_names_suggested() {
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
        assert!(files.read("fifo").unwrap_err().message().contains("is not a regular file"));
        assert!(files.write("fifo", b"x").is_err());
        assert!(files.read(".").unwrap_err().message().contains("list_dir"));
        assert!(files.read("note.md").unwrap_err().message().contains("`notes.md`"));
        assert!(files.directory("notes.md").unwrap_err().message().contains("is not a directory"));
    }
}
