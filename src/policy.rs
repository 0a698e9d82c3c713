//! Who may touch what: pure decisions, the same for every tool. What a decision allows is then opened by descriptor, see
//! `tool::files`; here only names are looked at.

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
    /// What `~` stands for.
    pub home: PathBuf,
    pub roots: Vec<Root>,
    /// Places beneath the roots that no tool reads or changes: sessions, config.
    pub hidden: Vec<PathBuf>,
    /// Places beneath the roots that no tool changes.
    pub read_only: Vec<PathBuf>,
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

/// A no of the policy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For the model: what is refused, and what would allow it.
    pub words: String,
    /// The flag that would grant it, where one would.
    pub grant: Option<String>,
}

impl Refusal {
    /// One that no flag lifts.
    pub fn of(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            grant: None,
        }
    }
}

impl Reach {
    /// Whether `given`, a path as the model wrote it, may be touched.
    ///
    /// # Errors
    /// A refusal in words for the model, with the flag that would grant it.
    pub fn decide(&self, given: &str, access: Access) -> Result<Spot, Refusal> {
        let path = self.absolute(given);
        let shown = path.display();
        if self.hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return Err(Refusal::of(format!(
                "`{shown}` belongs to nanobot itself and is closed to tools"
            )));
        }
        let deepest = self
            .roots
            .iter()
            .enumerate()
            .filter(|(_, root)| path.starts_with(&root.path));
        let Some((index, root)) = deepest.max_by_key(|(_, root)| root.path.components().count())
        else {
            let flag = match access {
                Access::Read => format!("--read {shown}"),
                Access::Write => format!("--write={shown}"),
            };
            let words = format!(
                "`{shown}` is outside the places of this run ({}); the user can grant it with `{flag}`",
                self.places()
            );
            return Err(Refusal {
                words,
                grant: Some(flag),
            });
        };
        if access == Access::Write && self.read_only.iter().any(|place| path.starts_with(place)) {
            return Err(Refusal::of(format!(
                "`{shown}` may be read but not changed"
            )));
        }
        if access == Access::Write && !root.may_write {
            let words = format!(
                "files in `{}` may be read but not changed in this run; show the change instead, and say that `--write` \
                 would allow it",
                root.path.display()
            );
            return Err(Refusal {
                words,
                grant: Some("--write".into()),
            });
        }
        let relative = path
            .strip_prefix(&root.path)
            .unwrap_or(Path::new(""))
            .to_owned();
        Ok(Spot {
            root: index,
            relative,
            path,
        })
    }

    /// Whether a listing may name `path`.
    pub fn shows(&self, path: &Path) -> bool {
        !self.hidden.iter().any(|hidden| path.starts_with(hidden))
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

    fn places(&self) -> String {
        self.roots
            .iter()
            .map(|root| root.path.display().to_string())
            .collect::<Vec<_>>()
            .join(", ")
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
            ],
            hidden: vec![
                "/home/u/.nanobot/workspace/sessions".into(),
                "/srv/app/.secret".into(),
            ],
            read_only: vec!["/home/u/.nanobot/workspace/cron".into()],
        }
    }

    #[test]
    fn paths_as_models_write_them() {
        let check = |given: &str, access: Access, expect: Result<&str, &str>| {
            let found = reach().decide(given, access);
            match (&found, expect) {
                (Ok(spot), Ok(path)) => assert_eq!(spot.path.to_str(), Some(path), "{given}"),
                (Err(no), Err(word)) => assert!(no.words.contains(word), "{given}: {no:?}"),
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
        check("~/.ssh/id", Read, Err("outside"));
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
