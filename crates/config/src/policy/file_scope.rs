//! File access: the roots of a run and the rules about paths. Decisions here are by name only. The file tools open
//! allowed paths through descriptors, and ask again for the target of each link.

use super::refusal::Refusal;
use super::rule::Pattern;
use super::{path_pattern, secrets, startup_files};
use nanobot_base::shell_quote::quote;
use nanobot_os::deferred::Deferred;
use nanobot_os::repository::Repository;
use nanobot_os::wire_paths;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

/// The kind of access to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileAccess {
    Read,
    Write,
}

/// A directory whose contents may be accessed. The path is absolute and free of links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScopeRoot {
    #[serde(with = "wire_paths::path")]
    pub path: PathBuf,
    pub may_write: bool,
}

/// The file permissions of a run. Fields that only matter to tools, and that need the disk, are computed when they are first
/// used; see [`FileScope::settle`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FileScope {
    /// The working directory, from which relative paths start.
    #[serde(with = "wire_paths::path")]
    pub directory: PathBuf,
    /// The agent's own directory.
    #[serde(with = "wire_paths::path")]
    pub workspace: PathBuf,
    /// The home directory that `~` expands to.
    #[serde(with = "wire_paths::path")]
    pub home: PathBuf,
    pub roots: Vec<ScopeRoot>,
    /// The names through links by which the user gave paths, the longest ones first.
    #[serde(skip)]
    pub names: Vec<LinkName>,
    /// The repository that contains the working directory. Its parts outside of that directory are among the roots, to be
    /// read. A stored policy may lack it: then git changes nothing outside of the roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,
    /// Paths beneath the roots that no tool reads or changes: sessions, config.
    #[serde(with = "wire_paths::deferred")]
    pub hidden: Deferred<Vec<PathBuf>>,
    /// Paths beneath the roots that no tool changes.
    #[serde(with = "wire_paths::deferred")]
    pub read_only: Deferred<Vec<PathBuf>>,
    /// Paths beneath the roots that instruct later runs. No tool changes them once the conversation has external content, unless
    /// the user permits it.
    #[serde(rename = "notes", with = "wire_paths::list")]
    pub instruction_files: Vec<PathBuf>,
    /// Instruction files of the directory that the user trusts with their current content, and the user's own folder of skills.
    #[serde(with = "wire_paths::list")]
    pub trusted: Vec<PathBuf>,
    /// Paths denied by rules, anywhere.
    pub denied: Vec<PathRule>,
    /// Removes the protection of secrets and start-up files: the user lifted all limits.
    #[serde(rename = "isFree")]
    pub is_unrestricted: bool,
    /// True if the run works on a private copy, so that no flag lets it change anything else.
    #[serde(skip)]
    pub is_private_copy: bool,
    /// Allow rules for changes within read-only roots.
    pub allowed: Vec<Pattern>,
    /// The operands, if this is an intersection. Each of them also decides about every path, relative to its own
    /// directory, because the grants and denials of the two cannot be merged into one set of paths.
    #[serde(rename = "of")]
    pub operands: Vec<Self>,
}

/// A name of a path that leads through links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkName {
    /// The absolute path that the user gave.
    pub name: PathBuf,
    /// The path without links.
    pub path: PathBuf,
}

/// A rule about paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathRule {
    pub access: FileAccess,
    pub pattern: Pattern,
    /// The rule as written, for messages.
    pub rule: String,
}

/// An allowed path: the root that contains it, and the path relative to that root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPath {
    /// Index into [`FileScope::roots`].
    pub root: usize,
    pub relative: PathBuf,
    /// The absolute path.
    pub path: PathBuf,
}

impl FileScope {
    /// Computes the protected paths. This happens before the first tool call of a run, so that no call can change the
    /// protection against the next one.
    pub fn settle(&self) {
        self.hidden.force();
        self.read_only.force();
    }

    /// Decides about `path` as the model wrote it.
    ///
    /// # Errors
    /// A refusal for the model, with the flag that would grant the access.
    pub fn decide(&self, path: &str, access: FileAccess) -> Result<ResolvedPath, Refusal> {
        self.decide_absolute(self.absolute(path), access)
    }

    /// Decides about `path`, which is absolute and has no `.` and `..`.
    ///
    /// # Errors
    /// The errors of [`Self::decide`].
    pub fn decide_absolute(
        &self,
        path: PathBuf,
        access: FileAccess,
    ) -> Result<ResolvedPath, Refusal> {
        let path_text = path.display();
        if self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return Err(Refusal::new(format!(
                "`{path_text}` is internal to nanobot and not accessible to tools"
            )));
        }
        if let Some(denied) = self.find_denial(&path, access) {
            return Err(Refusal::new(format!(
                "`{path_text}` is denied by the rule `{}`",
                denied.rule
            )));
        }
        let Some((index, root)) = self.root_for(&path) else {
            return Err(Refusal {
                message: format!(
                    "`{path_text}` is outside the paths of this run ({})",
                    self.root_list()
                ),
                suggested_flag: self.grant_flag(access, &path),
                names_flag: false,
            });
        };
        self.check_closed_in_homes(&path, &root.path, access)?;
        if access == FileAccess::Write
            && self.read_only.iter().any(|read_only| path.starts_with(read_only))
        {
            return Err(Refusal::new(format!("`{path_text}` is read-only")));
        }
        let allowed = |pattern: &Pattern| self.matches_beneath(pattern, &path, &root.path);
        if access == FileAccess::Write && !root.may_write && !self.allowed.iter().any(allowed) {
            return Err(Refusal {
                message: format!(
                    "`{path_text}` is read-only, like all of `{}` in this run",
                    root.path.display()
                ),
                suggested_flag: if root.path == self.directory {
                    (!self.is_private_copy).then(|| "--write".into())
                } else {
                    self.grant_flag(access, &root.path)
                },
                names_flag: false,
            });
        }
        let relative = path.strip_prefix(&root.path).unwrap_or(Path::new("")).to_owned();
        if access == FileAccess::Write
            && !self.is_unrestricted
            && self.is_startup_file(&path, &root.path)
        {
            return Err(Refusal {
                message: format!(
                    "`{path_text}` is a protected start-up file: it is run later, or decides what is run"
                ),
                suggested_flag: self.grant_flag(access, &path),
                names_flag: false,
            });
        }
        for operand in &self.operands {
            operand.decide_absolute(path.clone(), access)?;
        }
        Ok(ResolvedPath { root: index, relative, path })
    }

    /// The rule that denies the access to the absolute `path`, if one does.
    pub fn find_denial(&self, path: &Path, access: FileAccess) -> Option<&PathRule> {
        self.self_and_operands().into_iter().find_map(|scope| {
            let mut rules = scope.denied.iter().filter(|rule| rule.access == access);
            rules.find(|rule| scope.matches(&rule.pattern, path))
        })
    }

    /// Refuses secrets, and hidden entries of homes, unless the `root` that contains `path` names them.
    fn check_closed_in_homes(
        &self,
        path: &Path,
        root: &Path,
        access: FileAccess,
    ) -> Result<(), Refusal> {
        let is_closed = |entry: &PathBuf| !self.is_unrestricted && !root.starts_with(entry);
        let secret = secrets::secret_containing(path, &self.home).filter(is_closed);
        let hidden = secrets::hidden_home_entry(path, &self.home).filter(is_closed);
        let (message, granted_path) = match (secret, hidden) {
            (Some(secret), _) => (
                format!("`{}` holds secrets and is not accessible to tools", secret.display()),
                secret,
            ),
            (None, Some(entry)) => (
                format!(
                    "`{}` is hidden in a home directory, and accessible to tools only if it is named",
                    entry.display()
                ),
                path.to_owned(),
            ),
            (None, None) => return Ok(()),
        };
        let suggested_flag = self.grant_flag(access, &granted_path);
        Err(Refusal { message, suggested_flag, names_flag: false })
    }

    /// True if a directory listing may show `path`.
    pub fn is_visible(&self, path: &Path) -> bool {
        let is_granted = |secret: PathBuf| {
            let root = self.root_for(path);
            root.is_some_and(|(_, root)| root.path.starts_with(secret))
        };
        !self.hidden.iter().any(|hidden| path.starts_with(hidden))
            && !self.denied.iter().any(|denied| {
                denied.access == FileAccess::Read && self.matches(&denied.pattern, path)
            })
            && (self.is_unrestricted
                || (secrets::secret_containing(path, &self.home).is_none_or(is_granted)
                    && secrets::hidden_home_entry(path, &self.home).is_none_or(is_granted)))
            && self.operands.iter().all(|operand| operand.is_visible(path))
    }

    /// The deepest root that contains `path`.
    fn root_for(&self, path: &Path) -> Option<(usize, &ScopeRoot)> {
        let roots = self.roots.iter().enumerate();
        roots
            .filter(|(_, root)| path.starts_with(&root.path))
            .max_by_key(|(_, root)| root.path.components().count())
    }

    /// True if the absolute `path`, or a directory above it, matches a rule's pattern. An absolute pattern matches the
    /// whole path, one without a slash the file name, any other the path relative to the working directory.
    pub fn matches(&self, pattern: &Pattern, path: &Path) -> bool {
        // A pattern that matches a directory covers its contents.
        let mut ancestors = path.ancestors().take_while(|path| !path.as_os_str().is_empty());
        ancestors.any(|path| self.matches_exactly(pattern, path))
    }

    /// Like [`Self::matches`], but without `root` and the directories above it: an allow rule for a name is not about these.
    pub(super) fn matches_beneath(&self, pattern: &Pattern, path: &Path, root: &Path) -> bool {
        let mut ancestors = path.ancestors().take_while(|path| *path != root);
        ancestors.any(|path| self.matches_exactly(pattern, path))
    }

    fn matches_exactly(&self, pattern: &Pattern, path: &Path) -> bool {
        let whole_text = pattern.text();
        let text = whole_text.strip_suffix('/').filter(|text| !text.is_empty());
        let text = text.unwrap_or(whole_text);
        // The path, in the form in which the pattern is written.
        let (prefix, path) = if text.starts_with('/') {
            ("", Some(path))
        } else if text.starts_with("~/") {
            ("~/", path.strip_prefix(&self.home).ok())
        } else if !text.contains('/') {
            ("", Some(Path::new(path.file_name().unwrap_or_default())))
        } else if text.starts_with("../") {
            return self.matches_parent(pattern, path);
        } else {
            let prefix = if text.starts_with("./") { "./" } else { "" };
            (prefix, path.strip_prefix(&self.directory).ok())
        };
        let suffix = &whole_text[text.len()..];
        path.is_some_and(|path| {
            pattern.matches_path(&format!("{prefix}{}{suffix}", path.to_string_lossy()))
        })
    }

    /// True if `path` matches `pattern`, which begins with `../`.
    fn matches_parent(&self, pattern: &Pattern, path: &Path) -> bool {
        let count = leading_parents(pattern.text());
        let parent = path_pattern::ancestor(&self.directory, count);
        path.strip_prefix(parent).is_ok_and(|path| {
            let slash = if pattern.text().ends_with('/') { "/" } else { "" };
            pattern.matches_path(&format!(
                "{}{}{slash}",
                "../".repeat(count),
                path.to_string_lossy()
            ))
        })
    }

    /// Denies also what the links lead to that rules of denial name: `resolve` finds the real path of an absolute one. Only the part
    /// of a rule before its first wildcard is resolved.
    pub fn deny_link_targets(&mut self, mut resolve: impl FnMut(&Path) -> PathBuf) {
        let mut targets = Vec::new();
        for rule in &self.denied {
            let Some((start, rest)) = path_pattern::split_plain_start(rule.pattern.text()) else {
                continue;
            };
            let path = self.absolute_name(start);
            let target = resolve(&path);
            if target != path {
                let pattern = Pattern::new(path_pattern::with_start(&target, rest));
                targets.push(PathRule { pattern, ..rule.clone() });
            }
        }
        self.denied.extend(targets);
    }

    /// Rewrites a rule's `pattern` to mean the same from any working directory. `None` if that is impossible: a
    /// character of the directory's name would become part of the glob.
    pub(super) fn anchored(&self, pattern: &Pattern) -> Option<Pattern> {
        let text = pattern.text();
        if text.starts_with(['/', '~']) || !text.contains('/') {
            return Some(pattern.clone());
        }
        let count = leading_parents(text);
        let base = path_pattern::ancestor(&self.directory, count);
        let (base, text) = (base.to_str()?, &text["../".len() * count..]);
        let is_plain = !base.contains(['*', '?', '[', ']', '{', '}', '\\']);
        is_plain.then(|| Pattern::new(format!("{}/{text}", base.trim_end_matches('/'))))
    }

    /// Makes `path` absolute: expands `~` and resolves `.` and `..` by name. Of links, only those are followed by which the user gave a
    /// path that is in no other one.
    pub fn absolute(&self, path: &str) -> PathBuf {
        let path = self.absolute_name(path);
        let is_beneath = |named: &&LinkName| path.starts_with(&named.name);
        match self.names.iter().find(is_beneath).filter(|_| self.root_for(&path).is_none()) {
            Some(link) => {
                let rest = path.components().skip(link.name.components().count());
                link.path.components().chain(rest).collect()
            }
            None => path,
        }
    }

    fn absolute_name(&self, path: &str) -> PathBuf {
        let expanded = match path.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => self.home.join(rest.trim_start_matches('/')),
            _ => self.directory.join(path),
        };
        let mut path = PathBuf::new();
        for component in expanded.components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => drop(path.pop()),
                other => path.push(other),
            }
        }
        path
    }

    /// True if `path` is a protected start-up file within `root`, or belongs to git. A granted git directory is for git
    /// itself, which commands run.
    fn is_startup_file(&self, path: &Path, root: &Path) -> bool {
        let mut git_dirs = self.repository.iter().flat_map(|repository| &repository.git_dirs);
        let is_named = |git_dir: &PathBuf| root != git_dir && root.starts_with(git_dir);
        if git_dirs.any(|git_dir| path.starts_with(git_dir) && !is_named(git_dir)) {
            return true;
        }
        let is_in_git_dir = root.ends_with(".git") && path != root;
        let start = if is_in_git_dir { root.parent().unwrap_or(root) } else { root };
        let relative = path.strip_prefix(start).unwrap_or(Path::new(""));
        startup_files::is_protected(relative) || self.is_home_startup_file(path, root)
    }

    /// True if `path` is a protected start-up file in a home directory. A root within the protected path lifts the
    /// protection.
    fn is_home_startup_file(&self, path: &Path, root: &Path) -> bool {
        let Some(home) = secrets::home_containing(path, &self.home) else {
            return false;
        };
        startup_files::protected_in_home().into_iter().any(|name| {
            let protected = home.join(name);
            startup_files::begins_with(path, &protected)
                && !startup_files::begins_with(root, &protected)
        })
    }

    /// True if `path` is an instruction file for later runs.
    pub fn is_instruction_file(&self, path: &Path) -> bool {
        self.instruction_files.iter().any(|file| path.starts_with(file))
            || startup_files::is_project_file(self.beneath_root(path))
    }

    /// True if `path` is in a directory other than the workspace and is read by tools or agents that work there.
    pub fn is_project_file(&self, path: &Path) -> bool {
        !path.starts_with(&self.workspace)
            && startup_files::is_project_file(self.beneath_root(path))
    }

    /// True if the file at `path` has the user's own instructions, or instructions that the user trusts. In an intersection
    /// all operands must agree: an instruction file of only one of them cannot be changed, but is not trusted either.
    pub(crate) fn is_user_instruction(&self, path: &Path) -> bool {
        let mut files = self.instruction_files.iter();
        let is_own = path.starts_with(&self.workspace)
            && files.any(|file| path.starts_with(file) && file.starts_with(&self.workspace));
        (is_own || self.trusted.iter().any(|trusted| path.starts_with(trusted)))
            && self.operands.iter().all(|operand| operand.is_user_instruction(path))
    }

    /// `path` relative to the root that contains it, or unchanged if there is none.
    fn beneath_root<'p>(&self, path: &'p Path) -> &'p Path {
        let root = self.root_for(path);
        root.and_then(|(_, root)| path.strip_prefix(&root.path).ok()).unwrap_or(path)
    }

    /// The roots that commands may change. The workspace is left to the file tools unless it is the working directory.
    pub fn command_writable_roots(&self) -> impl Iterator<Item = &Path> {
        self.roots
            .iter()
            .map(|root| root.path.as_path())
            .filter(|path| self.is_command_writable(path))
    }

    /// The git directories outside of these roots that git may change in commands. They are the ones of the repository that contains the
    /// working directory, if commands may change that directory.
    pub fn command_writable_git_dirs(&self) -> impl Iterator<Item = &Path> {
        let is_writable = self.is_command_writable(&self.directory);
        let repository = self.repository.iter().filter(move |_| is_writable);
        let git_dirs = repository.flat_map(|repository| &repository.git_dirs);
        git_dirs.map(PathBuf::as_path).filter(|path| !self.is_command_writable(path))
    }

    /// All paths that commands may change, apart from their private directory.
    pub fn command_writable_paths(&self) -> Vec<PathBuf> {
        let roots = self.command_writable_roots().chain(self.command_writable_git_dirs());
        roots.map(Path::to_owned).collect()
    }

    fn is_command_writable(&self, path: &Path) -> bool {
        let is_in_root = self.root_for(path).is_some_and(|(_, root)| {
            root.may_write && (root.path != self.workspace || self.directory == self.workspace)
        });
        is_in_root && self.operands.iter().all(|operand| operand.is_command_writable(path))
    }

    /// True if the secret location `secret` is open to commands: a root was granted at or beneath it.
    pub fn grants_secret(&self, secret: &Path) -> bool {
        self.roots.iter().any(|root| root.path.starts_with(secret))
            && (self.operands.iter())
                .all(|operand| operand.is_unrestricted || operand.grants_secret(secret))
    }

    /// This value and all operands that it was built from, recursively.
    pub fn self_and_operands(&self) -> Vec<&Self> {
        let inner = self.operands.iter().flat_map(Self::self_and_operands);
        std::iter::once(self).chain(inner).collect()
    }

    /// The access to `path`, which is a root of one operand of an intersection; `None` if this operand does not allow to read
    /// it. A path that is closed within a root of this operand stays closed if the other has a root there.
    fn access_to(&self, path: &Path) -> Option<FileAccess> {
        let (_, root) = self.root_for(path)?;
        let is_named = |entry: PathBuf| root.path.starts_with(entry);
        let is_open = secrets::secret_containing(path, &self.home).is_none_or(is_named)
            && secrets::hidden_home_entry(path, &self.home).is_none_or(is_named);
        if !self.is_unrestricted && !is_open {
            return None;
        }
        let may_change = self.is_unrestricted || !self.is_startup_file(path, &root.path);
        Some(if root.may_write && may_change { FileAccess::Write } else { FileAccess::Read })
    }

    /// The intersection: allows what both allow. Relative paths start from our working directory.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut roots = Vec::new();
        for root in &self.roots {
            for other_root in &other.roots {
                let path = if root.path.starts_with(&other_root.path) {
                    &root.path
                } else if other_root.path.starts_with(&root.path) {
                    &other_root.path
                } else {
                    continue;
                };
                if roots.iter().any(|root: &ScopeRoot| root.path == *path) {
                    continue;
                }
                // In either operand, the deepest root that contains a path decides about it.
                let (Some(access), Some(other_access)) =
                    (self.access_to(path), other.access_to(path))
                else {
                    continue;
                };
                let may_write = access == FileAccess::Write && other_access == FileAccess::Write;
                roots.push(ScopeRoot { path: path.clone(), may_write });
            }
        }
        let joined = |paths: &[PathBuf], other_paths: &[PathBuf]| [paths, other_paths].concat();
        // Allow rules permit changes within read-only roots. A side that may write the whole root needs none.
        let allowed = self.allowed.iter().filter(|rule| other.allowed.contains(rule));
        Self {
            directory: self.directory.clone(),
            workspace: self.workspace.clone(),
            home: self.home.clone(),
            roots,
            names: self.names.clone(),
            repository: self.common_repository(other),
            hidden: joined(&self.hidden, &other.hidden).into(),
            read_only: joined(&self.read_only, &other.read_only).into(),
            instruction_files: joined(&self.instruction_files, &other.instruction_files),
            trusted: joined(&self.trusted, &other.trusted),
            // The rules of the other scope may be relative to another directory; they apply through `operands`.
            denied: self.denied.clone(),
            is_unrestricted: self.is_unrestricted && other.is_unrestricted,
            is_private_copy: self.is_private_copy || other.is_private_copy,
            allowed: allowed.cloned().collect(),
            operands: vec![self.clone(), other.clone()],
        }
    }

    /// Our repository, with the git directories that the other may use too.
    fn common_repository(&self, other: &Self) -> Option<Repository> {
        let mut repository = self.repository.clone()?;
        let other_repository = other.repository.as_ref()?;
        repository.git_dirs.retain(|git_dir| other_repository.git_dirs.contains(git_dir));
        Some(repository)
    }

    /// The flag that grants access to `path`, if there is one.
    fn grant_flag(&self, access: FileAccess, path: &Path) -> Option<String> {
        let path = quote(&path.to_string_lossy());
        match access {
            FileAccess::Read => Some(format!("--read {path}")),
            FileAccess::Write => (!self.is_private_copy).then(|| format!("--write={path}")),
        }
    }

    fn root_list(&self) -> String {
        self.roots.iter().map(|root| root.path.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// Counts the `..` that a glob begins with.
fn leading_parents(text: &str) -> usize {
    text.split('/').take_while(|name| *name == "..").count()
}

#[cfg(test)]
mod tests {
    use super::{FileAccess, FileScope, ScopeRoot};

    fn file_scope() -> FileScope {
        let root = |path: &str, may_write| ScopeRoot { path: path.into(), may_write };
        FileScope {
            directory: "/srv/app".into(),
            home: "/home/u".into(),
            roots: vec![
                root("/srv/app", false),
                root("/home/u/.nanobot/workspace", true),
                root("/srv/app/out", true),
                root("/home/u/.aws/public", false),
                root("/home", false),
            ],
            hidden: vec!["/home/u/.nanobot/workspace/sessions".into(), "/srv/app/.secret".into()]
                .into(),
            read_only: vec!["/home/u/.nanobot/workspace/cron".into()].into(),
            ..FileScope::default()
        }
    }

    #[test]
    fn paths_as_models_write_them() {
        let check = |given: &str, access: FileAccess, expect: Result<&str, &str>| {
            let actual = file_scope().decide(given, access);
            match (&actual, expect) {
                (Ok(resolved), Ok(path)) => {
                    assert_eq!(resolved.path.to_str(), Some(path), "{given}");
                }
                (Err(refusal), Err(part)) => {
                    let message = format!(
                        "{}; {}",
                        refusal.message,
                        refusal.suggested_flag.as_deref().unwrap_or_default()
                    );
                    assert!(message.contains(part), "{given}: {refusal:?}");
                }
                _ => panic!("{given}: {actual:?}"),
            }
        };
        use FileAccess::{Read, Write};
        check("a.txt", Read, Ok("/srv/app/a.txt"));
        check("./b/../a.txt", Read, Ok("/srv/app/a.txt"));
        check("", Read, Ok("/srv/app"));
        check("/srv/app/x", Read, Ok("/srv/app/x"));
        check("a.txt", Write, Err("--write"));
        check("out/a.txt", Write, Ok("/srv/app/out/a.txt"));
        check(
            "~/.nanobot/workspace/memory/MEMORY.md",
            Write,
            Ok("/home/u/.nanobot/workspace/memory/MEMORY.md"),
        );
        check("../app-evil/x", Read, Err("--read /srv/app-evil/x"));
        check("../../etc/passwd", Read, Err("outside"));
        check("/../../etc/passwd", Read, Err("outside"));
        check("~/.ssh/id", Read, Err("--read /home/u/.ssh"));
        check("~/.aws/credentials", Read, Err("secrets"));
        check("~/.ssh/config", Write, Err("--write=/home/u/.ssh"));
        check("~/.aws/public/list", Read, Ok("/home/u/.aws/public/list"));
        check("/home/v/.ssh/id", Read, Err("--read /home/v/.ssh"));
        check("/home/v/notes", Read, Ok("/home/v/notes"));
        check("/etc/passwd", Write, Err("--write=/etc/passwd"));
        check("~/.nanobot/workspace/sessions/x.jsonl", Read, Err("not accessible"));
        check(
            "~/.nanobot/workspace/cron/jobs.json",
            Read,
            Ok("/home/u/.nanobot/workspace/cron/jobs.json"),
        );
        check("~/.nanobot/workspace/cron/jobs.json", Write, Err("read-only"));
        check(".secret/x", Read, Err("not accessible"));
        check("~user/x", Read, Ok("/srv/app/~user/x"));
    }
}
