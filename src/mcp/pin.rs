//! Pins the tools of each server as they were first seen. A server that is harmless when it is first tried can redefine
//! its tools later. A tool that differs from its pin in a single character is not used until a person accepts the
//! change. The full texts are stored, to show what has changed.

use super::mark;
use super::offer::{Hints, Offer, Offered};
use crate::error::{Exit, fail_hint};
use crate::settings::servers::Server;
use crate::sys::store::{self, Lock};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the file format.
const VERSION: u64 = 1;
/// Maximum of tools pinned for one server. A server that offers new tools each time would otherwise fill the disk.
const TOOLS: usize = 2_000;
/// The largest file that is read, in bytes.
const LARGEST: u64 = 256 << 20;
/// Timeout for the lock. It is only held while a file is written.
const WAIT: Duration = Duration::from_secs(10);

/// The file of pins.
#[derive(Clone, Debug)]
pub struct Pins {
    path: PathBuf,
}

/// A tool that differs from its pin.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The server's own name for the tool.
    pub tool: String,
    /// The pinned tool; `None` if the server exceeded the limit and the tool was not pinned.
    pub old: Option<Offered>,
    /// The tool as it is offered now.
    pub new: Offered,
}

/// The result of comparing an offer with the pins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// The tools that differ from their pins.
    pub changed: Vec<Change>,
    /// The name was pinned for another program or address. All tools of this server were pinned as new.
    pub anew: bool,
    /// The tools of which no person has accepted the pinned version.
    pub unaccepted: BTreeSet<String>,
    /// Unaccepted tools that appeared after the others. A server whose tools are pinned could use them to introduce new
    /// text.
    pub late: BTreeSet<String>,
    /// Unaccepted tools that had not been seen before.
    pub fresh: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Written {
    v: u64,
    servers: BTreeMap<String, Pinned>,
}

#[derive(Default, Serialize, Deserialize)]
struct Pinned {
    /// The fingerprint of the program or address, see [`mark::of_place`].
    #[serde(rename = "place")]
    place: String,
    tools: BTreeMap<String, Offered>,
    /// The tools that a person has accepted.
    #[serde(default)]
    accepted: BTreeSet<String>,
    /// The tools that appeared after the others and that no person has accepted.
    #[serde(default, rename = "late")]
    late: BTreeSet<String>,
}

impl Pins {
    /// Opens the pins in `mcp_dir`, our directory for MCP servers.
    pub fn at(folder: &Path) -> Self {
        Self {
            path: folder.join("pins.json"),
        }
    }

    /// Compares `features` with the pins. Nothing is stored.
    ///
    /// # Errors
    /// The file cannot be read. Nothing can be trusted then.
    pub fn changed(&self, offers: &[(&Server, &Offer)]) -> Result<Vec<Held>> {
        let mut written = self.read()?;
        let held = offers.iter().map(|(server, offer)| {
            let pinned = written.servers.entry(server.name.clone()).or_default();
            pinned.hold(server, offer).0
        });
        Ok(held.collect())
    }

    /// Compares `features` with the pins, and pins what is new.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn hold(&self, offers: &[(&Server, &Offer)], now: &str) -> Result<Vec<Held>> {
        let look = |written: &mut Written| {
            let mut is_new = false;
            let mut all = Vec::new();
            for (server, offer) in offers {
                let pinned = written.servers.entry(server.name.clone()).or_default();
                let (held, added) = pinned.hold(server, offer);
                is_new |= added;
                all.push(held);
            }
            (all, is_new)
        };
        // Usually nothing is new, and no lock is needed.
        if let (all, false) = look(&mut self.read()?) {
            return Ok(all);
        }
        self.change(now, |written| look(written).0)
    }

    /// Accepts what `server` offers now, all of it or only `tools`, for a person. Returns what differed from the pins.
    ///
    /// # Errors
    /// As for [`Self::hold`].
    pub fn accept(
        &self,
        server: &Server,
        offer: &Offer,
        tools: Option<&[String]>,
        now: &str,
    ) -> Result<Vec<Change>> {
        self.change(now, |written| {
            let pinned = written.servers.entry(server.name.clone()).or_default();
            let (held, _) = pinned.hold(server, offer);
            let mut changed = held.changed;
            match tools {
                None => {
                    *pinned = Pinned::of(server, offer);
                    pinned.accepted = pinned.tools.keys().cloned().collect();
                }
                Some(tools) => {
                    changed.retain(|change| tools.contains(&change.tool));
                    for Change { tool, new, .. } in &changed {
                        pinned.tools.insert(tool.clone(), new.clone());
                    }
                    for tool in tools.iter().filter(|tool| pinned.tools.contains_key(*tool)) {
                        pinned.late.remove(tool);
                        pinned.accepted.insert(tool.clone());
                    }
                }
            }
            changed
        })
    }

    /// Removes the pins of the server `name`. Returns true if there were any.
    ///
    /// # Errors
    /// As for [`Self::hold`].
    pub fn forget(&self, name: &str, now: &str) -> Result<bool> {
        match self.read()?.servers.contains_key(name) {
            true => self.change(now, |written| written.servers.remove(name).is_some()),
            false => Ok(false),
        }
    }

    /// Returns the pinned tools of `server` by name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn pinned(&self, server: &Server) -> Result<BTreeMap<String, Offered>> {
        let pinned = self.read()?.servers.remove(&server.name);
        let place = mark::of_place(server);
        Ok(pinned
            .filter(|pinned| pinned.place == place)
            .map(|pinned| pinned.tools)
            .unwrap_or_default())
    }

    fn change<T>(&self, now: &str, change: impl FnOnce(&mut Written) -> T) -> Result<T> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        store::create_dir(folder)?;
        let lock = folder.join("pins.json.lock");
        let what = "the pinned MCP tools";
        let _lock = Lock::take(&lock, what, now, WAIT, &mut |_| {})?;
        let mut written = self.read()?;
        let done = change(&mut written);
        written.v = VERSION;
        let mut text = serde_json::to_vec_pretty(&written).context("serialize the pinned tools")?;
        text.push(b'\n');
        store::replace(&self.path, &text)?;
        Ok(done)
    }

    fn read(&self) -> Result<Written> {
        let Some(file) = store::open_existing(&self.path)? else {
            return Ok(Written::default());
        };
        let mut text = Vec::new();
        let what = || format!("read `{}`", self.path.display());
        file.take(LARGEST)
            .read_to_end(&mut text)
            .with_context(what)?;
        let damaged = |why: &str| {
            fail_hint(
                Exit::Config,
                format!("cannot read `{}`: {why}", self.path.display()),
                "move it away to pin all tools anew",
            )
        };
        let written: Written =
            serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))?;
        match written.v {
            VERSION => Ok(written),
            other => Err(damaged(&format!(
                "its format version is {other}, expected {VERSION}"
            ))),
        }
    }
}

impl Pinned {
    fn of(server: &Server, offer: &Offer) -> Self {
        let tools = offer.tools.iter().rev();
        Self {
            place: mark::of_place(server),
            // If two tools have the same name, the first one counts.
            tools: tools
                .map(|tool| (tool.name.clone(), tool.clone()))
                .collect(),
            accepted: BTreeSet::new(),
            late: BTreeSet::new(),
        }
    }

    /// Compares `features` with the pins, and pins what is new. The second result is true if anything was pinned.
    fn hold(&mut self, server: &Server, offer: &Offer) -> (Held, bool) {
        let place = mark::of_place(server);
        if self.place != place {
            let anew = !self.place.is_empty();
            *self = Self::of(server, offer);
            let held = Held {
                anew,
                unaccepted: self.tools.keys().cloned().collect(),
                ..Held::default()
            };
            return (held, true);
        }
        let mut fresh = Vec::new();
        let mut changed: Vec<Change> = Vec::new();
        for tool in &offer.tools {
            let old = match self.tools.get(&tool.name) {
                Some(old) if old == tool => continue,
                Some(old) => Some(old.clone()),
                None if self.tools.len() < TOOLS => {
                    self.tools.insert(tool.name.clone(), tool.clone());
                    self.late.insert(tool.name.clone());
                    fresh.push(tool.name.clone());
                    continue;
                }
                None => None,
            };
            changed.push(Change {
                tool: tool.name.clone(),
                old,
                new: tool.clone(),
            });
        }
        let names = || offer.tools.iter().map(|tool| &tool.name);
        let is_accepted = |name: &&String| self.accepted.contains(*name);
        let added = !fresh.is_empty();
        let held = Held {
            changed,
            anew: false,
            unaccepted: names().filter(|name| !is_accepted(name)).cloned().collect(),
            late: names()
                .filter(|name| self.late.contains(*name))
                .cloned()
                .collect(),
            fresh,
        };
        (held, added)
    }
}

/// Formats a tool as lines of text that people can compare.
pub fn text(tool: &Offered) -> String {
    let Offered {
        name,
        title,
        description,
        schema,
        hints,
    } = tool;
    let mut text = format!("name: {name}\n");
    if let Some(title) = title {
        text.push_str(&format!("title: {title}\n"));
    }
    let Hints {
        reads_only,
        destructive,
        idempotent,
        open_world,
    } = hints;
    for (claim, claimed) in [
        ("read-only", reads_only),
        ("destructive", destructive),
        ("idempotent", idempotent),
        ("open world", open_world),
    ] {
        if let Some(claimed) = claimed {
            let word = if *claimed { "yes" } else { "no" };
            text.push_str(&format!("{claim}: {word}\n"));
        }
    }
    text.push_str(&format!("\n{}\n\n{schema:#}\n", description.trim_end()));
    text
}

#[cfg(test)]
mod tests {
    use super::{Pins, TOOLS, text};
    use crate::mcp::offer::{Hints, Offer, Offered};
    use crate::settings::servers::{Reached, Remote, Server};
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    fn server(url: &str) -> Server {
        Server {
            name: "s".into(),
            reached: Reached::Http(Remote {
                url: url.into(),
                headers: Vec::new(),
            }),
            ..Server::default()
        }
    }

    fn offer(tools: &[(&str, &str)]) -> Offer {
        let tool = |(name, description): &(&str, &str)| Offered {
            name: (*name).into(),
            description: (*description).into(),
            schema: json!({ "type": "object" }),
            ..Offered::default()
        };
        Offer {
            tools: tools.iter().map(tool).collect(),
            ..Offer::default()
        }
    }

    #[test]
    fn what_changes_is_told_until_it_is_accepted() {
        let temp = tempfile::tempdir().unwrap();
        let pins = Pins::at(&temp.path().join("mcp"));
        let server = server("http://a/");
        let hold = |offer: &Offer| {
            let held = pins.hold(&[(&server, offer)], "now").unwrap();
            let seen = pins.changed(&[(&server, offer)]).unwrap();
            assert_eq!(held[0].changed, seen[0].changed);
            let names = held[0].changed.iter().map(|change| change.tool.clone());
            names.collect::<Vec<String>>()
        };
        assert!(
            pins.changed(&[(&server, &offer(&[("a", "x")]))]).unwrap()[0]
                .changed
                .is_empty()
        );
        assert!(!temp.path().join("mcp").exists(), "looking makes nothing");
        let none: &[String] = &[];
        assert_eq!(hold(&offer(&[("a", "one"), ("b", "two")])), none);
        assert_eq!(hold(&offer(&[("b", "two"), ("c", "new")])), none);
        let changed = offer(&[("a", "one."), ("b", "two"), ("c", "new")]);
        assert_eq!(hold(&changed), ["a"]);
        assert_eq!(hold(&changed), ["a"]);
        let mut claims = offer(&[("c", "new")]);
        claims.tools[0].hints = Hints {
            reads_only: Some(true),
            ..Hints::default()
        };
        assert_eq!(hold(&claims), ["c"]);
        let mut schema = offer(&[("c", "new")]);
        schema.tools[0].schema = json!({ "type": "object", "properties": {} });
        assert_eq!(hold(&schema), ["c"]);
        let accepted = pins.accept(&server, &changed, None, "now").unwrap();
        assert_eq!(accepted[0].old.as_ref().unwrap().description, "one");
        assert_eq!(hold(&changed), none);
        let two = offer(&[("a", "one"), ("b", "one")]);
        assert_eq!(hold(&two), ["a", "b"]);
        let one = pins
            .accept(&server, &two, Some(&["b".into()]), "now")
            .unwrap();
        assert_eq!((one.len(), &*one[0].tool), (1, "b"));
        assert_eq!(hold(&two), ["a"]);
        assert_eq!(pins.pinned(&server).unwrap()["a"].description, "one.");
        let file = temp.path().join("mcp/pins.json");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(pins.forget("s", "now").unwrap() && !pins.forget("s", "now").unwrap());
        assert_eq!(hold(&offer(&[("a", "two")])), none);
        std::fs::write(&file, "{}").unwrap();
        assert!(pins.hold(&[(&server, &changed)], "now").is_err());
    }

    #[test]
    fn another_server_of_the_same_name_starts_anew() {
        let temp = tempfile::tempdir().unwrap();
        let pins = Pins::at(temp.path());
        let hold = |url: &str, description: &str| {
            let (server, offer) = (server(url), offer(&[("a", description)]));
            pins.hold(&[(&server, &offer)], "now").unwrap().remove(0)
        };
        assert!(!hold("http://a/", "one").anew);
        let whole = (server("http://a/"), offer(&[("a", "one")]));
        pins.accept(&whole.0, &whole.1, None, "now").unwrap();
        assert!(hold("http://a/", "one").unaccepted.is_empty());
        let held = hold("http://b/", "two");
        assert!(held.anew && held.changed.is_empty());
        assert_eq!(held.unaccepted.len(), 1, "what was accepted was another's");
        let held = hold("http://b/", "three");
        assert!(!held.anew && held.changed.len() == 1);
        assert!(pins.pinned(&server("http://c/")).unwrap().is_empty());
    }

    #[test]
    fn who_offers_others_each_time_is_not_remembered_for_ever() {
        let temp = tempfile::tempdir().unwrap();
        let pins = Pins::at(temp.path());
        let server = server("http://a/");
        let many = |from: usize, to: usize| {
            let names: Vec<String> = (from..to).map(|number| format!("t{number}")).collect();
            let tools: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "x")).collect();
            offer(&tools)
        };
        let held = |offer: &Offer| pins.hold(&[(&server, offer)], "now").unwrap().remove(0);
        assert!(held(&many(0, TOOLS)).changed.is_empty());
        let later = held(&many(TOOLS, TOOLS + 3));
        assert_eq!(later.changed.len(), 3);
        assert!(later.changed.iter().all(|change| change.old.is_none()));
        pins.accept(&server, &many(TOOLS, TOOLS + 3), None, "now")
            .unwrap();
        assert!(held(&many(TOOLS, TOOLS + 3)).changed.is_empty());
    }

    #[test]
    fn what_nobody_has_accepted_is_told() {
        let temp = tempfile::tempdir().unwrap();
        let pins = Pins::at(temp.path());
        let server = server("http://a/");
        let hold = |offer: &Offer| {
            let held = pins.hold(&[(&server, offer)], "now").unwrap().remove(0);
            let words =
                |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>().join(" ");
            let (mut unaccepted, mut late) = (held.unaccepted.into_iter(), held.late.into_iter());
            [
                words(&mut unaccepted),
                words(&mut late),
                held.fresh.join(" "),
            ]
        };
        let accept = |offer: &Offer, tools: Option<&[String]>| {
            pins.accept(&server, offer, tools, "now").unwrap();
        };
        let one = offer(&[("a", "x"), ("b", "x")]);
        assert_eq!(hold(&one), ["a b", "", ""]);
        accept(&one, Some(&["a".into()]));
        assert_eq!(hold(&one), ["b", "", ""]);
        let more = offer(&[("a", "x"), ("b", "x"), ("c", "x")]);
        assert_eq!(hold(&more), ["b c", "c", "c"]);
        assert_eq!(hold(&more), ["b c", "c", ""], "it is new once");
        accept(&more, Some(&["c".into()]));
        assert_eq!(hold(&more), ["b", "", ""]);
        accept(&more, None);
        assert_eq!(hold(&more), ["", "", ""]);
        // Files of older releases lack this field.
        let file = temp.path().join("pins.json");
        let text = std::fs::read(&file).unwrap();
        let mut written: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let server = written["servers"]["s"].as_object_mut().unwrap();
        server.remove("accepted");
        server.remove("late");
        std::fs::write(&file, written.to_string()).unwrap();
        assert_eq!(hold(&more), ["a b c", "", ""]);
    }

    #[test]
    fn a_tool_as_text() {
        let mut tool = offer(&[("a", "Show\u{200b} it.\n")]).tools.remove(0);
        tool.hints.reads_only = Some(true);
        let expect =
            "name: a\nread-only: yes\n\nShow\u{200b} it.\n\n{\n  \"type\": \"object\"\n}\n";
        assert_eq!(text(&tool), expect);
    }
}
