//! What every command may read: the system and the tools that people put into their home. And what none may, even where
//! a place that was granted contains it. Only what exists costs anything.

use std::io;
use std::path::{Path, PathBuf};

/// Devices that give and take nothing of anybody's. `/dev/tty` is left out: what asks for a password fails at once
/// instead of waiting. `/dev/shm` is left out: what other programs of the user share lies there.
pub(super) const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// The system itself.
const SYSTEM: &[&str] = &[
    // Programs, libraries, and what belongs to them.
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc",
    // Systems whose programs live elsewhere.
    "/nix",
    "/gnu",
    "/snap",
    "/run/current-system",
    "/home/linuxbrew",
    // What is installed, for the package manager's questions.
    "/var/lib/dpkg",
    "/var/lib/rpm",
    // Programs look themselves up here, count processors and ask for memory. What belongs to another process, such as
    // its environment, the kernel keeps from whoever may not trace it, and nobody inside may trace anybody outside.
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    // Names of hosts, which are links into here on many systems.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    // Time zones and the like where `/etc` links to them.
    "/var/db/timezone",
];

/// Tools in the home directory, without what logs their user in.
const TOOLS: &[&str] = &[
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
    ".terminfo",
    // git ends when it may not read these.
    ".gitconfig",
    ".config/git/config",
    ".config/git/ignore",
    ".config/git/attributes",
    ".gitignore",
    ".gitignore_global",
    ".gitattributes",
];

/// Variables by which users put tools elsewhere, what of such a place commands may read, and what logs their user in.
pub const MOVED: &[(&str, &[&str], &[&str])] = &[
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

/// What the variables of [`MOVED`] lead to: what may be read, and what is closed. What is not absolute leads nowhere.
pub fn moved<'a>(value: impl Fn(&str) -> Option<&'a str>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut open, mut closed) = (Vec::new(), Vec::new());
    for (variable, reads, logins) in MOVED {
        // GOPATH may be a list.
        let places = value(variable).unwrap_or_default().split(':');
        for place in places.map(Path::new).filter(|place| place.is_absolute()) {
            open.extend(reads.iter().map(|name| place.join(name)));
            let real = std::fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
            closed.extend(logins.iter().map(|name| real.join(name)));
        }
    }
    (open, closed)
}

/// The places of the system that exist, the directories of `path` (as PATH has them), the tools in `home` and those of `moved`
/// among them.
pub fn reads(path: &str, moved: &[PathBuf], home: &Path) -> Vec<PathBuf> {
    let system = SYSTEM.iter().map(PathBuf::from);
    // Programs are found by absolute names only, and the root or a whole home is no place for programs.
    let programs = path.split(':').map(PathBuf::from);
    let programs = programs.filter(|path| path.is_absolute() && !home.starts_with(path));
    let programs = programs.flat_map(|path| with_library(&path));
    let tools = TOOLS.iter().map(|name| home.join(name));
    let mut found: Vec<PathBuf> = system
        .chain(programs)
        .chain(tools)
        .chain(moved.iter().cloned())
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .filter(|path| path != Path::new("/") && !home.starts_with(path))
        .collect();
    found.sort();
    // Beneath one that is there already, nothing needs a rule.
    found.dedup_by(|path, before| path.starts_with(before));
    found
}

/// A directory of programs, and what they look for beside it.
fn with_library(programs: &Path) -> Vec<PathBuf> {
    let beside = |name: &str| Some(programs.parent()?.join(name));
    let names: &[&str] = match programs.ends_with("bin") {
        true => &["lib", "lib64", "libexec", "include", "pyvenv.cfg"],
        false => &[],
    };
    std::iter::once(programs.to_owned())
        .chain(names.iter().filter_map(|name| beside(name)))
        .collect()
}

/// More homes than this beneath what is granted are not looked at: each has many places to be closed.
const HOMES: usize = 1000;

/// The homes that what is `granted` contains or is in: those of `single`, and every directory of `parents`. All without
/// links, each once.
///
/// # Errors
/// They are more than can be closed one by one.
pub fn homes(single: &[&Path], parents: &[&str], granted: &[&Path]) -> io::Result<Vec<PathBuf>> {
    let concerns = |home: &Path| {
        let mut granted = granted.iter();
        granted.any(|root| root.starts_with(home) || home.starts_with(root))
    };
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut found: Vec<PathBuf> = single.iter().map(|home| real(home)).collect();
    for parent in parents.iter().map(|parent| real(Path::new(parent))) {
        // What cannot be listed was never looked for by name.
        let entries = std::fs::read_dir(&parent).into_iter().flatten().flatten();
        let homes = entries.map(|entry| real(&entry.path()));
        found.extend(homes.filter(|home| concerns(home)).take(HOMES + 1));
    }
    found.retain(|home| home.parent().is_some() && concerns(home));
    found.sort();
    found.dedup();
    match found.len() > HOMES {
        true => Err(io::Error::other(format!(
            "there are more than {HOMES} homes in what is granted, and each has secrets to be closed"
        ))),
        false => Ok(found),
    }
}

/// Where secrets really are: those of a home, and of those of the system what the user we are may read. Where file modes close
/// them already, `/etc` need not be granted around them.
pub fn secrets(
    of_home: impl Iterator<Item = PathBuf>,
    of_system: impl Iterator<Item = PathBuf>,
) -> Vec<PathBuf> {
    // What the kernel tells in `/proc` it closes itself to those without capabilities; granted around a place in there, no
    // process that is yet to start would be seen.
    let is_open = |path: &PathBuf| {
        !path.starts_with("/proc") && rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
    };
    of_home
        .chain(of_system.filter(is_open))
        .map(|path| std::fs::canonicalize(&path).unwrap_or(path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{HOMES, homes, moved, reads};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn the_system_is_what_exists_of_it() {
        let temp = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(home.join(".cargo/bin")).unwrap();
        std::fs::create_dir_all(home.join("own/bin")).unwrap();
        let own = home.join("own/bin");
        let path = format!("/usr/bin:{}:relative:/:{}", own.display(), home.display());
        std::fs::create_dir_all(home.join("else/cargo/registry")).unwrap();
        std::fs::create_dir_all(home.join("else/rustup")).unwrap();
        let (cargo, rustup) = (home.join("else/cargo"), home.join("else/rustup"));
        let (moved, closed) = moved(|name| match name {
            "CARGO_HOME" => cargo.to_str(),
            "RUSTUP_HOME" => rustup.to_str(),
            "PYENV_ROOT" => Some("relative"),
            "NVM_DIR" => home.to_str(),
            _ => None,
        });
        assert_eq!(
            closed,
            ["credentials", "credentials.toml"].map(|name| cargo.join(name))
        );
        let found = reads(&path, &moved, &home);
        let has = |path: &Path| found.iter().any(|known| known == path);
        assert!(has(Path::new("/usr")) && has(Path::new("/proc")));
        assert!(has(&home.join(".cargo/bin")) && has(&own));
        assert!(has(&rustup) && has(&cargo.join("registry")) && !has(&cargo));
        assert!(!has(Path::new("/usr/bin")) && !has(Path::new("/")) && !has(&home));
    }

    #[test]
    fn homes_that_a_grant_touches() {
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
            let found = homes(&[&own], &[parent.to_str().unwrap()], &[&granted]).unwrap();
            let names = found.iter().map(|home| home.strip_prefix(&dir).unwrap());
            let names: Vec<&str> = names.map(|name| name.to_str().unwrap()).collect();
            assert_eq!(names, expect, "{}", granted.display());
        };
        check("other", &[]);
        check("own/project", &["own"]);
        check("all", &["all/a", "all/b"]);
        check("all/b/.config", &["all/b"]);
        check("far", &["far/c"]);
        check("", &["all/a", "all/b", "far/c", "own"]);
        for number in 0..HOMES {
            std::fs::create_dir(dir.join(format!("all/{number}"))).unwrap();
        }
        let parents = [parent.to_str().unwrap()];
        assert!(homes(&[&own], &parents, &[&dir]).is_err());
        assert_eq!(homes(&[&own], &parents, &[&own]).unwrap(), [own.as_path()]);
    }
}
