//! Builds sandbox rules from the policy: for commands, and for MCP servers.

use crate::policy::reach::{Reach, Root};
use crate::policy::secrets;
use crate::policy::startup::NAMES;
use crate::sys::env::Env;
use crate::sys::sandbox::{Fence, startup, system};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The locations of the tools installed on this machine.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// The directories of programs, in the format of PATH.
    pub path: String,
    /// Tool directories that the user set by environment variables. `logins` are the paths in them that stay closed.
    moved: Vec<PathBuf>,
    logins: Vec<PathBuf>,
}

impl Tools {
    /// Finds the tools, from a value of PATH and the environment.
    pub fn new(path: &str, env: &Env) -> Self {
        let (moved, logins) = system::moved(|name| env.get(name));
        Self {
            path: path.to_owned(),
            moved,
            logins,
        }
    }
}

/// The sandbox rules for a process with the access that `reach` grants, without a private directory.
///
/// # Errors
/// There are too many home directories to close.
pub fn around(reach: &Reach, tools: &Tools, net: bool) -> io::Result<Fence> {
    let mut reads = system::reads(&tools.path, &tools.moved, &reach.home);
    reads.extend(reach.roots.iter().map(|root| root.path.clone()));
    let mut closed = reach.hidden.clone();
    let writes: Vec<PathBuf> = reach.written_by_commands().map(Path::to_owned).collect();
    let granted: Vec<&Path> = reach.roots.iter().map(|root| root.path.as_path()).collect();
    let root_home = Path::new(secrets::HOME_OF_ROOT);
    let homes = system::homes(&[&reach.home, root_home], secrets::HOMES, &granted)?;
    // Close the secrets in other users' homes too, since root may read them all. Their missing paths need no rule
    // unless commands may write there.
    let others = homes.iter().filter(|home| **home != reach.home);
    let others = others
        .flat_map(|home| secrets::places(home))
        .filter(|place| {
            place.is_symlink()
                || place.exists()
                || writes.iter().any(|root| place.starts_with(root))
        });
    let of_homes = secrets::places(&reach.home).chain(others);
    // Paths that the user grants by name stay open.
    closed.extend(
        system::secrets(of_homes, secrets::system_places())
            .into_iter()
            .chain(tools.logins.iter().cloned())
            .filter(|secret| !reach.names(secret)),
    );
    let nested = of_all(&writes, &startup::kept_beneath);
    // If the reach combines those of several agents, each keeps its own read-only paths.
    let bound = reach.each().into_iter();
    let of_writes = bound.filter(|one| !one.is_free || reach.is_free);
    let of_writes = of_writes.flat_map(|one| {
        let writes: Vec<PathBuf> = one.written_by_commands().map(Path::to_owned).collect();
        // Start-up files of the home directories are protected too, if any directory around or within a home is
        // writable.
        let of_homes = homes.iter().flat_map(|home| startup::kept(home, NAMES));
        let mut kept = of_all(&writes, &|root| startup::kept(root, NAMES));
        kept.extend(of_homes);
        kept.retain(|place| !writes.contains(place));
        kept
    });
    let only_read = reach.roots.iter().filter(|root| !root.may_write);
    let only_read = only_read.map(|root| root.path.clone());
    let kept: BTreeSet<PathBuf> = of_writes
        .chain(only_read.filter(|path| !writes.contains(path)))
        .chain(reach.read_only.iter().cloned())
        // Always protect notes that instruct later runs: the output of a command counts as untrusted content.
        .chain(reach.notes.iter().cloned())
        .filter(|place| writes.iter().any(|root| place.starts_with(root)))
        .collect();
    let kept = kept.into_iter().collect();
    let mut fence = Fence::new(reads, writes, closed, kept, net);
    fence.nested = nested;
    Ok(fence)
}

/// Collects the paths that `of` names beneath each of `writes`. Of nested directories the innermost decides, as for the
/// file tools: granting a start-up file by name makes that file writable.
fn of_all(writes: &[PathBuf], of: &dyn Fn(&Path) -> Vec<PathBuf>) -> Vec<PathBuf> {
    let is_innermost = |root: &Path, path: &Path| {
        let inner = |other: &&PathBuf| *other != root && other.starts_with(root);
        !writes
            .iter()
            .filter(inner)
            .any(|other| path.starts_with(other))
    };
    let of_one = |root: &PathBuf| {
        let mut places = of(root);
        places.retain(|path| is_innermost(root, path));
        places
    };
    writes.iter().flat_map(of_one).collect()
}

/// The paths that an MCP server may use, from the config. Paths are absolute and without links; missing paths are
/// ignored.
#[derive(Clone, Debug, Default)]
pub struct Station {
    pub home: PathBuf,
    /// Our own directory. Everything in it that is not granted by name stays closed, even if a directory around it is
    /// granted.
    pub ours: PathBuf,
    /// The agent's workspace: closed as `ours` is, and never writable for a server, wherever it is.
    pub workspace: PathBuf,
    /// Further closed paths of ours: config, keys, sessions.
    pub hidden: Vec<PathBuf>,
    /// Paths that stay read-only, even within writable directories.
    pub read_only: Vec<PathBuf>,
    pub reads: Vec<PathBuf>,
    pub writes: Vec<PathBuf>,
    /// The server's own persistent directory. It exists already.
    pub state: PathBuf,
    /// The server's temporary directory, removed at the end of the run. It exists already.
    pub temporary: PathBuf,
}

/// The sandbox rules for an MCP server. It may read the system and the installed tools, change its two own directories
/// and the paths that the user grants, and use the internet. The rules stay in force while the server runs, so changes
/// are not reverted as after a command: mounts protect the read-only paths instead.
///
/// # Errors
/// There are too many home directories to close; [`io::ErrorKind::InvalidInput`] if the server is to change a path of
/// ours.
pub fn of_server(station: &Station, tools: &Tools) -> io::Result<Fence> {
    let mut changed = station.writes.iter();
    if let Some(place) = changed.find(|place| is_ours(place, station)) {
        let message = format!(
            "it requests write access to `{}` (by its `write`, `cwd` or `args`), which belongs to nanobot and controls later \
             runs: no sandboxed server may have it; `sandbox: \"off\"` in its entry runs it without a sandbox",
            place.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let root = |may_write: bool| {
        move |path: &PathBuf| Root {
            path: path.clone(),
            may_write,
        }
    };
    // Start-up files in the server's own directory need no protection, since only the server runs them.
    let writes = station.writes.iter();
    let writes = writes.filter(|path| !path.starts_with(&station.state));
    let writes = writes.map(root(true));
    // A path granted for both reading and writing is writable.
    let only_read = station.reads.iter();
    let only_read = only_read.filter(|path| !station.writes.contains(path));
    let reads = only_read.map(root(false));
    let mut named: Vec<&Path> = station.reads.iter().map(PathBuf::as_path).collect();
    named.extend(station.writes.iter().map(PathBuf::as_path));
    named.extend([station.state.as_path(), station.temporary.as_path()]);
    // A directory around the server's own one also contains those of other servers.
    named.retain(|path| {
        let is_around = station.state.starts_with(path) && **path != station.state;
        !(is_around && path.starts_with(&station.ours))
    });
    let mut hidden = station.hidden.clone();
    hidden.extend(beside(&station.ours, &named));
    if is_apart(station) {
        hidden.extend(beside(&station.workspace, &named));
    }
    let reach = Reach {
        directory: station.state.clone(),
        home: station.home.clone(),
        roots: writes.chain(reads).collect(),
        hidden,
        read_only: station.read_only.clone(),
        ..Reach::default()
    };
    let mut fence = around(&reach, tools, true)?;
    // Changes are not reverted afterwards, so mounts must protect these too.
    fence.kept.append(&mut fence.nested);
    fence
        .writes
        .extend([station.state.clone(), station.temporary.clone()]);
    Ok(fence)
}

/// True if `place` is ours, and not in the server's own directory.
fn is_ours(place: &Path, station: &Station) -> bool {
    let is_in = |ours: &Path| place.starts_with(ours);
    let is_in_workspace = is_apart(station) && is_in(&station.workspace);
    (is_in(&station.ours) || is_in_workspace) && !place.starts_with(&station.state)
}

/// True if there is a workspace that contains neither our own directory nor the home directory.
fn is_apart(station: &Station) -> bool {
    let workspace = &station.workspace;
    !workspace.as_os_str().is_empty()
        && !station.ours.starts_with(workspace)
        && !station.home.starts_with(workspace)
}

/// The paths in `place` that are neither granted nor around a granted one.
fn beside(place: &Path, named: &[&Path]) -> Vec<PathBuf> {
    if named.contains(&place) {
        return Vec::new();
    }
    if !named.iter().any(|path| path.starts_with(place)) {
        return vec![place.to_owned()];
    }
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| beside(&entry.path(), named))
        .collect()
}

/// Variables that point launchers and servers into the server's own directory, and the path within it. Servers must not
/// write to the user's own caches, since their contents are later run without a sandbox.
const LED: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_STATE_HOME", "state"),
    ("npm_config_cache", "npm"),
    ("UV_CACHE_DIR", "cache/uv"),
    ("UV_TOOL_DIR", "tools"),
    ("UV_PYTHON_INSTALL_DIR", "python"),
    ("PIP_CACHE_DIR", "cache/pip"),
    ("PIPX_HOME", "pipx"),
    ("DENO_DIR", "cache/deno"),
    ("BUN_INSTALL_CACHE_DIR", "cache/bun"),
    ("GOMODCACHE", "go"),
    ("GOCACHE", "cache/go"),
];

/// The environment variables that a server in the sandbox needs in addition to those from its config.
pub fn led(station: &Station) -> Vec<(String, String)> {
    let within = |(name, part): &(&str, &str)| {
        let path = station.state.join(part);
        ((*name).to_owned(), path.to_string_lossy().into_owned())
    };
    let mut led: Vec<(String, String)> = LED.iter().map(within).collect();
    let temporary = station.temporary.to_string_lossy().into_owned();
    led.push(("TMPDIR".into(), temporary));
    // The user's own .npmrc may hold tokens, and npm exits if it cannot read the file. Granting the file by name keeps
    // it in use.
    let own = station.home.join(".npmrc");
    let mut named = station.reads.iter().chain(&station.writes);
    if !named.any(|path| *path == own) {
        led.push(within(&("npm_config_userconfig", "npmrc")));
    }
    led
}

#[cfg(test)]
mod tests {
    use super::{Station, Tools, led, of_server};
    use crate::sys::sandbox::Fence;
    use std::path::{Path, PathBuf};

    /// The depth of the deepest of `places` around `path`.
    fn depth(places: &[PathBuf], path: &Path) -> Option<usize> {
        let around = places.iter().filter(|place| path.starts_with(place));
        around.map(|place| place.components().count()).max()
    }

    /// Returns if `path` is readable, and if it is writable.
    fn of(fence: &Fence, path: &Path) -> (bool, bool) {
        let is_open = depth(&fence.closed, path).is_none();
        let writes = depth(&fence.writes, path).filter(|_| is_open);
        let reads = depth(&fence.reads, path).filter(|_| is_open);
        // The paths within `.git` have rules of their own.
        let kept = fence.kept.iter().filter(|place| !place.ends_with(".git"));
        let is_free = writes > depth(&kept.cloned().collect::<Vec<_>>(), path);
        (writes.or(reads).is_some(), is_free)
    }

    #[test]
    fn a_server_has_its_own_and_what_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(temp.path()).unwrap();
        for name in [
            ".nanobot/workspace/sessions",
            "notes/skills",
            ".nanobot/mcp/state/one",
            ".nanobot/mcp/state/two",
            ".nanobot/auth",
            ".ssh",
            "project/.git",
            "project/inner/.git/hooks",
            "tmp",
        ] {
            std::fs::create_dir_all(home.join(name)).unwrap();
        }
        let station = Station {
            home: home.clone(),
            ours: home.join(".nanobot"),
            workspace: home.join("notes"),
            hidden: vec![home.join(".nanobot/config.json")],
            state: home.join(".nanobot/mcp/state/one"),
            temporary: home.join("tmp"),
            ..Station::default()
        };
        let named = |reads: &[&str], writes: &[&str]| Station {
            reads: reads.iter().map(|name| home.join(name)).collect(),
            writes: writes.iter().map(|name| home.join(name)).collect(),
            ..station.clone()
        };
        let (none, reads, changes) = ((false, false), (true, false), (true, true));
        let check = |station: &Station, expect: &[(&str, (bool, bool))]| {
            let fence = of_server(station, &Tools::default()).unwrap();
            assert!(fence.net);
            for (name, expect) in expect {
                assert_eq!(of(&fence, &home.join(name)), *expect, "{name}");
            }
        };
        let own = [
            (".nanobot/mcp/state/one/x", changes),
            ("tmp/x", changes),
            (".nanobot/mcp/state/two/x", none),
            (".nanobot/mcp/pins.json", none),
            (".nanobot/auth/x", none),
            (".nanobot/config.json", none),
            (".nanobot/workspace/AGENTS.md", none),
            ("notes/AGENTS.md", none),
            (".ssh/id", none),
            ("/usr/bin/env", reads),
        ];
        check(&station, &own);
        check(&station, &[("project/x", none)]);
        // These stay closed, whatever is granted around them.
        let around = named(&[], &[""]);
        std::fs::write(home.join(".nanobot/mcp/pins.json"), "").unwrap();
        check(&around, &own);
        check(
            &around,
            &[
                ("project/x", changes),
                (".bashrc", reads),
                (".config/nvim/x", reads),
            ],
        );
        check(
            &named(&["project", "store.db"], &["store.db"]),
            &[("project/x", reads), ("store.db", changes)],
        );
        check(
            &named(&[".ssh", ".nanobot/workspace", "notes"], &["project"]),
            &[
                ("project/x", changes),
                ("project/.git/hooks/x", reads),
                ("project/.envrc", reads),
                ("project/inner/.git/hooks/x", reads),
                ("project/inner/.git/index", changes),
                (".ssh/id", reads),
                (".nanobot/workspace/x", reads),
                ("notes/x", reads),
                (".nanobot/auth/x", none),
            ],
        );
        check(
            &named(&[".nanobot", ".nanobot/mcp"], &[]),
            &[
                (".nanobot/mcp/state/one/x", changes),
                (".nanobot/mcp/state/two/x", none),
                (".nanobot/mcp/pins.json", none),
            ],
        );
        for ours in [
            ".nanobot",
            ".nanobot/workspace",
            ".nanobot/mcp/state/two",
            "notes",
            "notes/skills",
        ] {
            let refused = of_server(&named(&[], &[ours]), &Tools::default()).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{ours}");
            assert!(refused.to_string().contains("sandbox: \"off\""), "{ours}");
        }
    }

    #[test]
    fn launchers_are_led_to_the_servers_own() {
        let station = Station {
            home: "/h".into(),
            state: "/s".into(),
            temporary: "/t".into(),
            ..Station::default()
        };
        let get = |station: &Station, name: &str| {
            let mut led = led(station).into_iter();
            led.find_map(|(other, value)| (other == name).then_some(value))
        };
        assert_eq!(get(&station, "npm_config_cache").as_deref(), Some("/s/npm"));
        assert_eq!(get(&station, "TMPDIR").as_deref(), Some("/t"));
        let named = Station {
            reads: vec!["/h/.npmrc".into()],
            ..station.clone()
        };
        let of = |station: &Station| get(station, "npm_config_userconfig");
        assert_eq!(
            (of(&station).as_deref(), of(&named)),
            (Some("/s/npmrc"), None)
        );
    }
}
