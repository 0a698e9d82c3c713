//! Which files may be touched: the places of a run, and the rules about paths. Here only names are looked at; what a
//! decision allows is then opened by descriptor, see `tool::files`, and where a link leads is decided about again.

use super::refusal::Refusal;
use super::rule::Pattern;
use super::{secrets, startup};
use crate::shell_quote::quoted;
use std::path::{Component, Path, PathBuf};

/// What is to be done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// A directory beneath which files may be touched. Absolute and without links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub path: PathBuf,
    pub may_write: bool,
}

/// The places of a run.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Where relative paths start.
    pub directory: PathBuf,
    /// The agent's own home.
    pub workspace: PathBuf,
    /// What `~` stands for.
    pub home: PathBuf,
    pub roots: Vec<Root>,
    /// Places beneath the roots that no tool reads or changes: sessions, config.
    pub hidden: Vec<PathBuf>,
    /// Places beneath the roots that no tool changes.
    pub read_only: Vec<PathBuf>,
    /// Places beneath the roots that tell a later run what to do: no tool changes them once a stranger has had a word.
    pub notes: Vec<PathBuf>,
    /// Directories that may say how to work, and so may those beneath them.
    pub trusted: Vec<PathBuf>,
    /// What rules forbid, wherever it is.
    pub denied: Vec<PathRule>,
    /// Neither secrets nor start-up files are closed: the user took all limits away.
    pub is_free: bool,
    /// What rules let be changed in roots that are only read otherwise.
    pub allowed: Vec<Pattern>,
    /// Where these are the places of several at once: theirs. Each of them has a word on every path, from its own directory,
    /// since what it grants and closes cannot all be said as places that both have.
    pub of: Vec<Self>,
}

/// A rule about paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    pub access: Access,
    pub pattern: Pattern,
    /// As it was written, for whoever asks why.
    pub rule: String,
}

/// A place that may be touched: beneath which root, and where there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The index of the root.
    pub root: usize,
    pub relative: PathBuf,
    /// The whole path.
    pub path: PathBuf,
}

impl Reach {
    /// Whether `given`, a path as the model wrote it, may be touched.
    ///
    /// # Errors
    /// A refusal in words for the model, with the flag that would grant it.
    pub fn decide(&self, given: &str, access: Access) -> Result<Spot, Refusal> {
        self.judge(self.absolute(given), access)
    }

    fn judge(&self, path: PathBuf, access: Access) -> Result<Spot, Refusal> {
        let shown = path.display();
        if self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return Err(Refusal::of(format!(
                "`{shown}` belongs to nanobot itself and is closed to tools"
            )));
        }
        if let Some(denied) = self
            .denied
            .iter()
            .find(|denied| denied.access == access && self.matches(&denied.pattern, &path))
        {
            return Err(Refusal::of(format!(
                "`{shown}` is closed by the rule `{}`",
                denied.rule
            )));
        }
        let Some((index, root)) = self.root_of(&path) else {
            return Err(Refusal {
                words: format!(
                    "`{shown}` is outside the places of this run ({})",
                    self.places()
                ),
                grant: Some(flag(access, &path)),
            });
        };
        if let Some(secret) = secrets::around(&path, &self.home)
            && !root.path.starts_with(&secret)
            && !self.is_free
        {
            return Err(Refusal {
                words: format!(
                    "`{}` is where secrets are kept, and closed to tools",
                    secret.display()
                ),
                grant: Some(flag(access, &secret)),
            });
        }
        if access == Access::Write && self.read_only.iter().any(|place| path.starts_with(place)) {
            return Err(Refusal::of(format!(
                "`{shown}` may be read but not changed"
            )));
        }
        let allowed = |pattern: &Pattern| self.matches(pattern, &path);
        if access == Access::Write && !root.may_write && !self.allowed.iter().any(allowed) {
            return Err(Refusal {
                words: format!(
                    "`{shown}` may be read but not changed, as all of `{}` in this run",
                    root.path.display()
                ),
                grant: Some(match root.path == self.directory {
                    true => "--write".into(),
                    false => flag(access, &root.path),
                }),
            });
        }
        let relative = path
            .strip_prefix(&root.path)
            .unwrap_or(Path::new(""))
            .to_owned();
        let is_kept = startup::is_kept(&relative) || self.is_kept_of_home(&path, &root.path);
        if access == Access::Write && !self.is_free && is_kept {
            return Err(Refusal {
                words: format!(
                    "`{shown}` is run, or says what is run, the next time, and stays as it is also where files may be changed"
                ),
                grant: Some(flag(access, &path)),
            });
        }
        for one in &self.of {
            one.judge(path.clone(), access)?;
        }
        Ok(Spot {
            root: index,
            relative,
            path,
        })
    }

    /// Whether a listing may name `path`.
    pub fn shows(&self, path: &Path) -> bool {
        let is_granted = |secret: PathBuf| {
            let root = self.root_of(path);
            root.is_some_and(|(_, root)| root.path.starts_with(secret))
        };
        !self.hidden.iter().any(|hidden| path.starts_with(hidden))
            && !self
                .denied
                .iter()
                .any(|denied| denied.access == Access::Read && self.matches(&denied.pattern, path))
            && (self.is_free || secrets::around(path, &self.home).is_none_or(is_granted))
            && self.of.iter().all(|one| one.shows(path))
    }

    /// The deepest root that `path` is beneath.
    fn root_of(&self, path: &Path) -> Option<(usize, &Root)> {
        let roots = self.roots.iter().enumerate();
        roots
            .filter(|(_, root)| path.starts_with(&root.path))
            .max_by_key(|(_, root)| root.path.components().count())
    }

    /// Whether `path`, which is absolute, is what a rule's pattern means: an absolute one is held against the whole path,
    /// one without a slash against the name, any other against the path from the directory on.
    pub fn matches(&self, pattern: &Pattern, path: &Path) -> bool {
        // Who names a directory means what is in it.
        let mut places = path
            .ancestors()
            .take_while(|place| !place.as_os_str().is_empty());
        places.any(|place| self.is_like(pattern, place))
    }

    fn is_like(&self, pattern: &Pattern, path: &Path) -> bool {
        let text = pattern.text();
        let text = text
            .strip_suffix('/')
            .filter(|text| !text.is_empty())
            .unwrap_or(text);
        let pattern = &Pattern::new(text);
        if text.starts_with('/') {
            return pattern.matches(&path.to_string_lossy());
        }
        if let Some(rest) = text.strip_prefix("~/") {
            let beneath = path.strip_prefix(&self.home);
            return beneath
                .is_ok_and(|beneath| Pattern::new(rest).matches(&beneath.to_string_lossy()));
        }
        if !text.contains('/') {
            let name = path.file_name().unwrap_or_default();
            return pattern.matches(&name.to_string_lossy());
        }
        let beneath = path.strip_prefix(&self.directory);
        let wanted = Pattern::new(text.strip_prefix("./").unwrap_or(text));
        beneath.is_ok_and(|beneath| wanted.matches(&beneath.to_string_lossy()))
    }

    /// `pattern` of a rule so that it means the same from another directory. Nothing where that cannot be written: in the name
    /// of a directory a star is a star.
    pub(super) fn anchored(&self, pattern: &Pattern) -> Option<Pattern> {
        let text = pattern.text();
        if text.starts_with(['/', '~']) || !text.contains('/') {
            return Some(pattern.clone());
        }
        let base = self.directory.to_str()?;
        let is_plain = !base.contains(['*', '?']);
        is_plain.then(|| Pattern::new(format!("{}/{text}", base.trim_end_matches('/'))))
    }

    /// `given` from the directory, `~` expanded, `.` and `..` resolved by name.
    pub fn absolute(&self, given: &str) -> PathBuf {
        let expanded = match given.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => self.home.join(rest.trim_start_matches('/')),
            _ => self.directory.join(given),
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

    /// Whether `path` is run at the start of something in a home directory. Who granted that very place means it.
    fn is_kept_of_home(&self, path: &Path, root: &Path) -> bool {
        let Some(home) = secrets::home_of(path, &self.home) else {
            return false;
        };
        let mut names = startup::NAMES.iter().map(|name| home.join(name));
        names.any(|place| path.starts_with(&place) && !root.starts_with(&place))
    }

    /// Whether `path` tells a later run what to do.
    pub fn is_note(&self, path: &Path) -> bool {
        let speaks = ["AGENTS.md", "SKILL.md"].map(|name| path.file_name() == Some(name.as_ref()));
        self.notes.iter().any(|note| path.starts_with(note))
            || speaks.contains(&true) && self.trusted.iter().any(|root| path.starts_with(root))
    }

    /// Whether what stands at `path` is the user's own word. A note of one alone is closed to changes, and believed by none.
    pub fn is_own_word(&self, path: &Path) -> bool {
        self.is_note(path) && self.of.iter().all(|one| one.is_own_word(path))
    }

    /// The places that commands may change: the workspace is changed by the file tools alone, unless the work is there.
    pub fn written_by_commands(&self) -> impl Iterator<Item = &Path> {
        self.roots
            .iter()
            .map(|root| root.path.as_path())
            .filter(|path| self.commands_write(path))
    }

    fn commands_write(&self, path: &Path) -> bool {
        let written = self.root_of(path).is_some_and(|(_, root)| {
            root.may_write && (root.path != self.workspace || self.directory == self.workspace)
        });
        written && self.of.iter().all(|one| one.commands_write(path))
    }

    /// Whether `secret`, a place where secrets are kept, is open to commands: who names such a place means it.
    pub fn names(&self, secret: &Path) -> bool {
        let is_in_it = |root: &Root| root.path.starts_with(secret);
        self.roots.iter().any(is_in_it)
            && self.of.iter().all(|one| one.is_free || one.names(secret))
    }

    /// These places, and all those that they are made of.
    pub fn each(&self) -> Vec<&Self> {
        let inner = self.of.iter().flat_map(Self::each);
        std::iter::once(self).chain(inner).collect()
    }

    /// What may be done to a root of another's that lies beneath one of ours: whether it is open at all, and to changes. What
    /// is closed within our root stays closed where the other's begins right there.
    fn opens(&self, place: &Path) -> (bool, bool) {
        let Some((_, root)) = self.root_of(place) else {
            return (false, false);
        };
        let is_named = |secret: PathBuf| root.path.starts_with(secret);
        let is_open = secrets::around(place, &self.home).is_none_or(is_named);
        let relative = place.strip_prefix(&root.path).unwrap_or(Path::new(""));
        let is_kept = startup::is_kept(relative) || self.is_kept_of_home(place, &root.path);
        (
            self.is_free || is_open,
            root.may_write && (self.is_free || !is_kept),
        )
    }

    /// What both allow; relative paths start where ours do.
    pub fn and(&self, other: &Self) -> Self {
        let mut roots = Vec::new();
        for ours in &self.roots {
            for theirs in &other.roots {
                let deeper = if ours.path.starts_with(&theirs.path) {
                    &ours.path
                } else if theirs.path.starts_with(&ours.path) {
                    &theirs.path
                } else {
                    continue;
                };
                if roots.iter().any(|root: &Root| root.path == *deeper) {
                    continue;
                }
                // What counts for a place is the deepest root around it, on either side.
                let (here, there) = (self.opens(deeper), other.opens(deeper));
                if here.0 && there.0 {
                    roots.push(Root {
                        path: deeper.clone(),
                        may_write: here.1 && there.1,
                    });
                }
            }
        }
        let joined = |ours: &[PathBuf], theirs: &[PathBuf]| [ours, theirs].concat();
        // A rule lets be changed what lies in places that are only read: who may change the place needs none.
        let allowed = self
            .allowed
            .iter()
            .filter(|rule| other.allowed.contains(rule));
        Self {
            directory: self.directory.clone(),
            workspace: self.workspace.clone(),
            home: self.home.clone(),
            roots,
            hidden: joined(&self.hidden, &other.hidden),
            read_only: joined(&self.read_only, &other.read_only),
            notes: joined(&self.notes, &other.notes),
            trusted: joined(&self.trusted, &other.trusted),
            // The other's may be about paths from another directory, and are its own word.
            denied: self.denied.clone(),
            is_free: self.is_free && other.is_free,
            allowed: allowed.cloned().collect(),
            of: vec![self.clone(), other.clone()],
        }
    }

    fn places(&self) -> String {
        self.roots
            .iter()
            .map(|root| root.path.display().to_string())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The flag that grants `path`.
fn flag(access: Access, path: &Path) -> String {
    let path = quoted(&path.to_string_lossy());
    match access {
        Access::Read => format!("--read {path}"),
        Access::Write => format!("--write={path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Reach, Root};

    fn reach() -> Reach {
        let root = |path: &str, may_write| Root {
            path: path.into(),
            may_write,
        };
        Reach {
            directory: "/srv/app".into(),
            home: "/home/u".into(),
            roots: vec![
                root("/srv/app", false),
                root("/home/u/.nanobot/workspace", true),
                root("/srv/app/out", true),
                root("/home/u/.aws/public", false),
                root("/home", false),
            ],
            hidden: vec![
                "/home/u/.nanobot/workspace/sessions".into(),
                "/srv/app/.secret".into(),
            ],
            read_only: vec!["/home/u/.nanobot/workspace/cron".into()],
            ..Reach::default()
        }
    }

    #[test]
    fn paths_as_models_write_them() {
        let check = |given: &str, access: Access, expect: Result<&str, &str>| {
            let found = reach().decide(given, access);
            match (&found, expect) {
                (Ok(spot), Ok(path)) => assert_eq!(spot.path.to_str(), Some(path), "{given}"),
                (Err(no), Err(word)) => {
                    let told = format!("{}; {}", no.words, no.grant.as_deref().unwrap_or_default());
                    assert!(told.contains(word), "{given}: {no:?}");
                }
                _ => panic!("{given}: {found:?}"),
            }
        };
        use Access::{Read, Write};
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
        check("~/.nanobot/workspace/sessions/x.jsonl", Read, Err("closed"));
        check(
            "~/.nanobot/workspace/cron/jobs.json",
            Read,
            Ok("/home/u/.nanobot/workspace/cron/jobs.json"),
        );
        check(
            "~/.nanobot/workspace/cron/jobs.json",
            Write,
            Err("not changed"),
        );
        check(".secret/x", Read, Err("closed"));
        check("~user/x", Read, Ok("/srv/app/~user/x"));
    }
}
