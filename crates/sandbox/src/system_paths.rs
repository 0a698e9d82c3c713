//! Paths that every command may read: the system, and tools installed in the home directory. Also the secrets that no command
//! may read, even if a granted directory contains them. Only paths that exist cost anything.

use super::git_config_files;
use super::real_path::real_path;
use std::io;
use std::path::{Path, PathBuf};

/// Devices that expose no user data. `/dev/tty` is left out so that password prompts fail at once instead of waiting.
/// `/dev/shm` is left out because it holds memory shared by the user's other programs.
pub(super) const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// The directory of pseudo-terminals. Commands in namespaces of their own get an instance of their own.
pub(super) const TERMINALS: &str = "/dev/pts";

/// Directories of the system.
const SYSTEM_PATHS: &[&str] = &[
    // Programs, libraries and their data.
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc",
    // Distributions that keep programs elsewhere.
    "/nix",
    "/gnu",
    "/snap",
    "/run/current-system",
    "/home/linuxbrew",
    // Package databases, for queries by the package manager.
    "/var/lib/dpkg",
    "/var/lib/rpm",
    // Programs look themselves up here, count processors and query memory. The kernel protects data of other processes,
    // such as their environment, from processes that may not trace them, and no sandboxed process may trace one
    // outside.
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    // Host name resolution: `/etc` links to these on many systems.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    // Time zones and similar data that `/etc` links to.
    "/var/db/timezone",
];

/// Tools in the home directory, without the files that hold their credentials.
const HOME_TOOLS: &[&str] = &[
    ".rustup",
    ".cargo/bin",
    ".cargo/env",
    ".cargo/registry",
    ".cargo/git",
    ".cargo/config",
    ".cargo/config.toml",
    ".pyenv",
    ".local/bin",
    ".local/lib",
    ".local/share/mise",
    ".local/share/uv",
    ".local/share/pipx",
    ".local/share/virtualenvs",
    ".local/share/fnm",
    ".local/share/pnpm",
    ".local/pipx",
    ".nvm",
    ".fnm",
    ".volta",
    ".asdf",
    ".tool-versions",
    ".npm-global",
    ".yarn/bin",
    ".deno/bin",
    ".bun/bin",
    "go/bin",
    "go/pkg",
    ".sdkman/candidates",
    ".m2/repository",
    ".m2/wrapper",
    ".gradle/wrapper",
    ".gradle/caches",
    ".rbenv",
    ".rvm",
    ".gem/ruby",
    ".ghcup",
    ".cabal/bin",
    ".cabal/packages",
    ".opam",
    ".juliaup",
    ".julia/juliaup",
    ".dotnet",
    ".nix-profile",
    ".nix-defexpr",
    ".linuxbrew",
    "miniconda3",
    "anaconda3",
    "miniforge3",
    ".conda/envs",
    ".conda/pkgs",
    // Programs that hooks and test suites run.
    ".cache/pre-commit",
    ".cache/ms-playwright",
    ".cache/puppeteer",
    ".cache/Cypress",
    ".terminfo",
    // git fails if it cannot read these.
    ".gitconfig",
    ".config/git/config",
    ".config/git/ignore",
    ".config/git/attributes",
    ".gitignore",
    ".gitignore_global",
    ".gitattributes",
];

/// Environment variables that relocate tools, with the entries there that commands may read, and those that hold
/// credentials.
pub const RELOCATED_TOOLS: &[(&str, &[&str], &[&str])] = &[
    ("RUSTUP_HOME", &[""], &[]),
    (
        "CARGO_HOME",
        &["bin", "env", "registry", "git", "config", "config.toml"],
        &["credentials", "credentials.toml"],
    ),
    ("GOPATH", &["bin", "pkg"], &[]),
    ("PYENV_ROOT", &[""], &[]),
    ("NVM_DIR", &[""], &[]),
];

/// Resolves the variables of [`RELOCATED_TOOLS`], whose values `value` returns, to readable paths and denied paths. Relative
/// values are ignored.
pub fn relocated_tools<'a>(
    value: impl Fn(&str) -> Option<&'a str>,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut readable, mut denied) = (Vec::new(), Vec::new());
    for (variable, entries, credentials) in RELOCATED_TOOLS {
        // GOPATH may be a list.
        let directories = value(variable).unwrap_or_default().split(':');
        for directory in directories.map(Path::new).filter(|directory| directory.is_absolute()) {
            readable.extend(entries.iter().map(|name| directory.join(name)));
            let real = real_path(directory).unwrap_or_else(|_| directory.to_owned());
            denied.extend(credentials.iter().map(|name| real.join(name)));
        }
    }
    (readable, denied)
}

/// Lists the paths that every command may read: the existing directories of the system and of `path` (in the format of `PATH`), the tools
/// in `home`, the files that the user's git config there names, and `relocated`. Also returns the paths among them that lead through
/// symbolic links.
pub fn readable_paths(
    path: &str,
    relocated: &[PathBuf],
    home: &Path,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let system = SYSTEM_PATHS.iter().map(PathBuf::from);
    // Only absolute entries are accepted, and neither the root nor a directory that contains the home.
    let programs = path.split(':').map(PathBuf::from);
    let programs = programs.filter(|path| path.is_absolute() && !home.starts_with(path));
    let programs = programs.flat_map(|path| {
        let siblings = with_sibling_directories(&path);
        std::iter::once(path).chain(siblings)
    });
    let tools = HOME_TOOLS.iter().map(|name| home.join(name));
    let candidates = system
        .chain(programs)
        .chain(tools)
        .chain(relocated.iter().cloned())
        .chain(git_config_files::files_of_user(home));
    let (mut readable, mut links) = (Vec::new(), Vec::new());
    for path in candidates {
        let Ok(real) = real_path(&path) else {
            continue;
        };
        if real == Path::new("/") || home.starts_with(&real) {
            continue;
        }
        if real != path {
            links.push(path);
        }
        readable.push(real);
    }
    readable.sort();
    // A path within another listed one needs no rule.
    readable.dedup_by(|path, before| path.starts_with(before));
    (readable, links)
}

/// Names in the parent of a directory of programs that the programs use, by the name of that directory. Version managers put
/// scripts into `shims` that run the programs of other directories.
const SIBLING_DIRECTORIES: &[(&str, &[&str])] = &[
    ("bin", &["lib", "lib64", "libexec", "include", "pyvenv.cfg"]),
    ("shims", &["bin", "lib", "libexec", "plugins", "installs", "versions", "version"]),
];

/// A directory of programs with its [`SIBLING_DIRECTORIES`]; no path for any other directory.
pub fn with_sibling_directories(programs: &Path) -> Vec<PathBuf> {
    let siblings = SIBLING_DIRECTORIES.iter().find(|(name, _)| programs.ends_with(name));
    let (Some((_, names)), Some(parent)) = (siblings, programs.parent()) else {
        return Vec::new();
    };
    let siblings = names.iter().map(|name| parent.join(name));
    std::iter::once(programs.to_owned()).chain(siblings).collect()
}

/// Maximum number of home directories within granted paths: each has many secrets to deny.
const MAX_HOMES: usize = 1000;

/// Lists the home directories that contain, or are contained in, a `granted` path. The candidates are `single`, and every directory in
/// `parents`. Symbolic links are resolved and duplicates removed.
///
/// # Errors
/// There are more than [`MAX_HOMES`].
pub fn find_homes(
    single: &[&Path],
    parents: &[&str],
    granted: &[&Path],
) -> io::Result<Vec<PathBuf>> {
    let overlaps_grant = |home: &Path| {
        let mut granted = granted.iter();
        granted.any(|root| root.starts_with(home) || home.starts_with(root))
    };
    let real = |path: &Path| real_path(path).unwrap_or_else(|_| path.to_owned());
    let mut homes: Vec<PathBuf> = single.iter().map(|home| real(home)).collect();
    for parent in parents.iter().map(|parent| real(Path::new(parent))) {
        // A parent that cannot be listed contributes no homes.
        let entries = std::fs::read_dir(&parent).into_iter().flatten().flatten();
        let candidates = entries.map(|entry| real(&entry.path()));
        homes.extend(candidates.filter(|home| overlaps_grant(home)).take(MAX_HOMES + 1));
    }
    homes.retain(|home| home.parent().is_some() && overlaps_grant(home));
    homes.sort();
    homes.dedup();
    if homes.len() > MAX_HOMES {
        Err(io::Error::other(format!(
            "the granted paths contain more than {MAX_HOMES} home directories, each with secrets to deny"
        )))
    } else {
        Ok(homes)
    }
}

/// Resolves symbolic links in the paths of secrets, existing or not.
pub fn resolve_secrets(secrets: impl Iterator<Item = PathBuf>) -> impl Iterator<Item = PathBuf> {
    secrets.map(|path| real_path(&path).unwrap_or(path))
}

/// True if the current user can read this secret of the system. Secrets that file modes already protect are left out, so that `/etc` need
/// not be granted entry by entry around them.
pub fn is_readable_secret(path: &Path) -> bool {
    // The kernel itself protects `/proc` from processes without capabilities. If it were granted entry by entry,
    // processes started later would be invisible.
    !path.starts_with("/proc") && rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{MAX_HOMES, find_homes, readable_paths, relocated_tools};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn only_existing_system_paths_are_readable() {
        let temp = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(home.join(".cargo/bin")).unwrap();
        std::fs::create_dir_all(home.join("own/bin")).unwrap();
        let own = home.join("own/bin");
        let path = format!("/usr/bin:{}:relative:/:{}", own.display(), home.display());
        std::fs::create_dir_all(home.join("else/cargo/registry")).unwrap();
        std::fs::create_dir_all(home.join("else/rustup")).unwrap();
        let (cargo, rustup) = (home.join("else/cargo"), home.join("else/rustup"));
        let (moved, denied) = relocated_tools(|name| match name {
            "CARGO_HOME" => cargo.to_str(),
            "RUSTUP_HOME" => rustup.to_str(),
            "PYENV_ROOT" => Some("relative"),
            "NVM_DIR" => home.to_str(),
            _ => None,
        });
        assert_eq!(denied, ["credentials", "credentials.toml"].map(|name| cargo.join(name)));
        let (readable, _) = readable_paths(&path, &moved, &home);
        let has = |path: &Path| readable.iter().any(|known| known == path);
        assert!(has(Path::new("/usr")) && has(Path::new("/proc")));
        assert!(has(&home.join(".cargo/bin")) && has(&own));
        assert!(has(&rustup) && has(&cargo.join("registry")) && !has(&cargo));
        assert!(!has(Path::new("/usr/bin")) && !has(Path::new("/")) && !has(&home));
    }

    #[test]
    fn homes_that_overlap_a_grant() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        for name in ["all/a", "all/b", "far/c", "own", "other"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        symlink(dir.join("far/c"), dir.join("all/c")).unwrap();
        symlink("all", dir.join("link")).unwrap();
        let (own, parent) = (dir.join("own"), dir.join("link"));
        let check = |granted: &str, expect: &[&str]| {
            let granted = dir.join(granted);
            let homes = find_homes(&[&own], &[parent.to_str().unwrap()], &[&granted]).unwrap();
            let names = homes.iter().map(|home| home.strip_prefix(&dir).unwrap());
            let names: Vec<&str> = names.map(|name| name.to_str().unwrap()).collect();
            assert_eq!(names, expect, "{}", granted.display());
        };
        check("other", &[]);
        check("own/project", &["own"]);
        check("all", &["all/a", "all/b"]);
        check("all/b/.config", &["all/b"]);
        check("far", &["far/c"]);
        check("", &["all/a", "all/b", "far/c", "own"]);
        for number in 0..MAX_HOMES {
            std::fs::create_dir(dir.join(format!("all/{number}"))).unwrap();
        }
        let parents = [parent.to_str().unwrap()];
        assert!(find_homes(&[&own], &parents, &[&dir]).is_err());
        assert_eq!(find_homes(&[&own], &parents, &[&own]).unwrap(), [own.as_path()]);
    }
}
