//! Fences made of what the policy says: those around commands, and those around servers of further tools.

use crate::policy::reach::{Reach, Root};
use crate::policy::secrets;
use crate::policy::startup::NAMES;
use crate::sys::env::Env;
use crate::sys::sandbox::{Fence, startup, system};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Where this machine's tools lie.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Directories of programs, as PATH has them.
    pub path: String,
    /// Where the user says that tools lie, and what of them is closed.
    moved: Vec<PathBuf>,
    logins: Vec<PathBuf>,
}

impl Tools {
    pub fn new(path: &str, env: &Env) -> Self {
        let (moved, logins) = system::moved(|name| env.get(name));
        Self {
            path: path.to_owned(),
            moved,
            logins,
        }
    }
}

/// The fence around what may go where `reach` says, without any place of its own.
///
/// # Errors
/// There are too many homes to be closed.
pub fn around(reach: &Reach, tools: &Tools, net: bool) -> io::Result<Fence> {
    let mut reads = system::reads(&tools.path, &tools.moved, &reach.home);
    reads.extend(reach.roots.iter().map(|root| root.path.clone()));
    let mut closed = reach.hidden.clone();
    let writes: Vec<PathBuf> = reach.written_by_commands().map(Path::to_owned).collect();
    let granted: Vec<&Path> = reach.roots.iter().map(|root| root.path.as_path()).collect();
    let root_home = Path::new(secrets::HOME_OF_ROOT);
    let homes = system::homes(&[&reach.home, root_home], secrets::HOMES, &granted)?;
    // Those of others too: whoever is root may read them all. Of theirs, what is not there cannot be read.
    let others = homes.iter().filter(|home| **home != reach.home);
    let others = others
        .flat_map(|home| secrets::places(home))
        .filter(|place| {
            place.is_symlink()
                || place.exists()
                || writes.iter().any(|root| place.starts_with(root))
        });
    let of_homes = secrets::places(&reach.home).chain(others);
    // What the user names, the user means.
    closed.extend(
        system::secrets(of_homes, secrets::system_places())
            .into_iter()
            .chain(tools.logins.iter().cloned())
            .filter(|secret| !reach.names(secret)),
    );
    let nested = of_all(&writes, &startup::kept_beneath);
    // Where these are the places of several at once, each of them keeps its own.
    let bound = reach.each().into_iter();
    let of_writes = bound.filter(|one| !one.is_free || reach.is_free);
    let of_writes = of_writes.flat_map(|one| {
        let writes: Vec<PathBuf> = one.written_by_commands().map(Path::to_owned).collect();
        // What is run at the next start counts from a home too, wherever around it or within it files may be changed.
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
        // A command has said something, and so has a stranger, whatever was said before.
        .chain(reach.notes.iter().cloned())
        .filter(|place| writes.iter().any(|root| place.starts_with(root)))
        .collect();
    let kept = kept.into_iter().collect();
    let mut fence = Fence::new(reads, writes, closed, kept, net);
    fence.nested = nested;
    Ok(fence)
}

/// What `of` names beneath `writes`. Of places within each other the innermost says what is kept, as for the file tools: who
/// means a start-up file grants that very file.
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

/// Where a server may go: what the config says of it. Paths are absolute and without links; what is not there is nothing.
#[derive(Clone, Debug, Default)]
pub struct Station {
    pub home: PathBuf,
    /// Our own directory: what of it is not granted by name stays closed, whatever is granted around it.
    pub ours: PathBuf,
    /// The agent's own: closed as `ours` is, and never changed by a server, wherever it lies.
    pub workspace: PathBuf,
    /// Further places of ours that stay closed: config, keys, sessions.
    pub hidden: Vec<PathBuf>,
    /// Places that it does not change, wherever it may.
    pub read_only: Vec<PathBuf>,
    pub reads: Vec<PathBuf>,
    pub writes: Vec<PathBuf>,
    /// A directory of its own, which stays. It is there already.
    pub state: PathBuf,
    /// One that goes when the run ends. It is there already.
    pub temporary: PathBuf,
}

/// The fence around a server: it reads the system and what people install tools as, changes its own two directories and
/// what the user names, and may use the internet. It stays as it is while the server runs, so nothing is put back: what is
/// to stay as it is, mounts keep.
///
/// # Errors
/// There are too many homes to be closed; [`io::ErrorKind::InvalidInput`] where it is to change what is ours.
pub fn of_server(station: &Station, tools: &Tools) -> io::Result<Fence> {
    let mut changed = station.writes.iter();
    if let Some(place) = changed.find(|place| is_ours(place, station)) {
        let words = format!(
            "it is to change `{}` (its `write`, `cwd` or `args`), which is nanobot's own and says what later runs do: \
             no server in a sandbox may; `sandbox: \"off\"` in its entry runs it without one",
            place.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    let root = |may_write: bool| {
        move |path: &PathBuf| Root {
            path: path.clone(),
            may_write,
        }
    };
    // Nobody else runs what is in its own.
    let writes = station.writes.iter();
    let writes = writes.filter(|path| !path.starts_with(&station.state));
    let writes = writes.map(root(true));
    // What is named for both is changed.
    let only_read = station.reads.iter();
    let only_read = only_read.filter(|path| !station.writes.contains(path));
    let reads = only_read.map(root(false));
    let mut named: Vec<&Path> = station.reads.iter().map(PathBuf::as_path).collect();
    named.extend(station.writes.iter().map(PathBuf::as_path));
    named.extend([station.state.as_path(), station.temporary.as_path()]);
    // What is around its own directory is also around that of others.
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
    // Nothing is put back afterwards, so mounts are to hold these too.
    fence.kept.append(&mut fence.nested);
    fence
        .writes
        .extend([station.state.clone(), station.temporary.clone()]);
    Ok(fence)
}

/// Whether `place` is ours, and not the server's own.
fn is_ours(place: &Path, station: &Station) -> bool {
    let is_in = |ours: &Path| place.starts_with(ours);
    let is_in_workspace = is_apart(station) && is_in(&station.workspace);
    (is_in(&station.ours) || is_in_workspace) && !place.starts_with(&station.state)
}

/// Whether there is a workspace that is not around all else, as a home that is one would be.
fn is_apart(station: &Station) -> bool {
    let workspace = &station.workspace;
    !workspace.as_os_str().is_empty()
        && !station.ours.starts_with(workspace)
        && !station.home.starts_with(workspace)
}

/// What is in `place`, and neither named nor around what is.
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

/// Variables that lead launchers and servers to a directory of the server's own, and where in it. The user's own caches are not
/// theirs to fill: what lies there is run another time, without a fence.
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

/// The variables that a fenced server needs besides those that it is given.
pub fn led(station: &Station) -> Vec<(String, String)> {
    let within = |(name, part): &(&str, &str)| {
        let path = station.state.join(part);
        ((*name).to_owned(), path.to_string_lossy().into_owned())
    };
    let mut led: Vec<(String, String)> = LED.iter().map(within).collect();
    let temporary = station.temporary.to_string_lossy().into_owned();
    led.push(("TMPDIR".into(), temporary));
    // The user's may hold tokens, and npm ends when it may not read it. Who names it means it.
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

    /// How deep the deepest of `places` around `path` is.
    fn depth(places: &[PathBuf], path: &Path) -> Option<usize> {
        let around = places.iter().filter(|place| path.starts_with(place));
        around.map(|place| place.components().count()).max()
    }

    /// Whether `path` can be read, and changed.
    fn of(fence: &Fence, path: &Path) -> (bool, bool) {
        let is_open = depth(&fence.closed, path).is_none();
        let writes = depth(&fence.writes, path).filter(|_| is_open);
        let reads = depth(&fence.reads, path).filter(|_| is_open);
        // What is in it is for others to say.
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
        // Whatever is granted around them.
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
