//! A leading `~` of a path, which is the user's home directory. Reads no file.

use std::path::{Path, PathBuf};

/// Returns `path` with a leading `~` as the directory `home`. `~user` is unchanged: only a shell knows other users.
///
/// # Errors
/// The path needs the home directory, and the user has none.
pub(crate) fn expand_home(path: &Path, home: Option<PathBuf>) -> Result<PathBuf, NoHomeError> {
    match (path.strip_prefix("~"), home) {
        (Err(_), _) => Ok(path.to_owned()),
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => Ok(home),
        (Ok(rest), Some(home)) => Ok(home.join(rest)),
        (Ok(_), None) => Err(NoHomeError),
    }
}

/// A path begins with `~`, and the user has no home directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this user has no home directory")]
pub struct NoHomeError;

/// Returns `path`, an argument that the shell may not have expanded, with a leading `~` as the user's home directory.
///
/// # Errors
/// The user has no home directory.
pub fn expand_argument(path: &Path) -> Result<PathBuf, NoHomeError> {
    expand_home(path, user_home())
}

/// The home directory of the user who runs this process.
pub fn user_home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::{NoHomeError, expand_home};
    use std::path::Path;

    #[test]
    fn a_leading_tilde_is_the_home() {
        let check = |path: &str, expect: &str| {
            let expanded = expand_home(Path::new(path), Some("/h".into()));
            assert_eq!(expanded.as_deref(), Ok(Path::new(expect)), "{path}");
        };
        check("~", "/h");
        check("~/", "/h");
        check("~//a b", "/h/a b");
        check("~/a/../~", "/h/a/../~");
        check("./~", "./~");
        check("a/~/b", "a/~/b");
        check("~user/a", "~user/a");
        check("~a", "~a");
        assert_eq!(expand_home(Path::new("~/a"), None), Err(NoHomeError));
        assert_eq!(expand_home(Path::new("a"), None), Ok("a".into()));
    }
}
