//! Where things live. Nobody else joins onto the home directory.

use crate::error::{Exit, fail_hint};
use crate::sys::env::{Env, HOME_DIR};
use std::path::{Path, PathBuf};

/// The places this program knows.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The user's home directory.
    pub home: PathBuf,
    /// `~/.nanobot`, or what `NANOBOT_HOME` names.
    pub root: PathBuf,
    /// The config file: `config.json` in the root, or what `-c` names.
    pub config: PathBuf,
}

impl Paths {
    /// `config` is the file that `-c` names.
    pub fn resolve(env: &Env, config: Option<&Path>) -> anyhow::Result<Self> {
        let home = match env.get("HOME") {
            Some(home) => Some(PathBuf::from(home)),
            None => std::env::home_dir().filter(|home| !home.as_os_str().is_empty()),
        };
        let root = match (env.get(HOME_DIR), &home) {
            (Some(root), _) => PathBuf::from(root),
            (None, Some(home)) => home.join(".nanobot"),
            (None, None) => {
                return Err(fail_hint(
                    Exit::Config,
                    "this user has no home directory",
                    format!("set {HOME_DIR}"),
                ));
            }
        };
        let root = std::path::absolute(&root).unwrap_or(root);
        Ok(Self {
            home: home.unwrap_or_else(|| root.clone()),
            config: config.map_or_else(|| root.join("config.json"), Path::to_path_buf),
            root,
        })
    }

    /// `path` with a leading `~` as the home directory. A default below `~/.nanobot` follows `NANOBOT_HOME`.
    pub fn expand(&self, path: &str) -> PathBuf {
        if let Some(rest) = path.strip_prefix("~/.nanobot")
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return self.root.join(rest.trim_start_matches('/'));
        }
        match path.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => self.home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(path),
        }
    }

    /// `path` as people write it, with the home directory as `~`.
    pub fn display(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) if rest.as_os_str().is_empty() => "~".into(),
            Ok(rest) => format!("~/{}", rest.display()),
            Err(_) => path.display().to_string(),
        }
    }

    /// Where releases up to 0.1.3.post7 kept sessions, and where 0.3 keeps its store.
    pub fn old_sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }
}
