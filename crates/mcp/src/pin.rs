//! Pins the tools and the instructions of each server as they were first seen. A server that is harmless when it is first tried can
//! redefine them later. A tool that differs from its pin in a single character is not used until a person accepts the
//! change. The full texts are stored, so that changes can be shown.

use super::fingerprint;
use super::protocol::{ServerFeatures, ToolHints, ToolInfo};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_config::settings::servers::McpServer;
use nanobot_os::durable_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The version of the file format.
const FORMAT_VERSION: u64 = 1;
/// Maximum of tools pinned for one server. A server that offers new tools each time would otherwise fill the disk.
const MAX_TOOLS: usize = 2_000;
/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The file of pins.
#[derive(Clone, Debug)]
pub struct PinFile {
    path: PathBuf,
}

/// A tool that differs from its pin.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolChange {
    /// The server's own name for the tool.
    pub name: String,
    /// The pinned tool; `None` if the server exceeded the limit and the tool was not pinned.
    pub old: Option<ToolInfo>,
    /// The tool as it is offered now.
    pub new: ToolInfo,
}

/// The result of comparing an offer with the pins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PinCheck {
    /// The tools that differ from their pins.
    pub changed: Vec<ToolChange>,
    /// The name was pinned for another program or address. All tools of this server were pinned as new.
    pub replaced_server: bool,
    /// The tools whose pinned version no person has accepted.
    pub unaccepted: BTreeSet<String>,
    /// Unaccepted tools that appeared after the others. A server whose tools are pinned could use them to introduce new
    /// text.
    pub(crate) added_later: BTreeSet<String>,
    /// Unaccepted tools that had not been seen before.
    pub(crate) first_seen: Vec<String>,
    /// True if the server or a tool was not pinned before.
    has_new_pins: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct PinData {
    v: u64,
    servers: BTreeMap<String, ServerPins>,
}

#[derive(Default, Serialize, Deserialize)]
struct ServerPins {
    /// The fingerprint of the program or address, see [`fingerprint::of_endpoint`].
    #[serde(rename = "place")]
    endpoint: String,
    tools: BTreeMap<String, ToolInfo>,
    /// The tools that a person has accepted.
    #[serde(default)]
    accepted: BTreeSet<String>,
    /// The tools that appeared after the others and that no person has accepted.
    #[serde(default, rename = "late")]
    added_later: BTreeSet<String>,
    /// The prompts that a person has accepted: the fingerprint of the endpoint, and the digest of the messages.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    prompts: BTreeSet<String>,
}

impl PinFile {
    /// Opens the pins in `mcp_dir`, our directory for MCP servers.
    pub fn new(mcp_dir: &Path) -> Self {
        Self { path: mcp_dir.join("pins.json") }
    }

    /// Compares `features` with the pins. Nothing is stored.
    ///
    /// # Errors
    /// The file cannot be read. No tool can be trusted then.
    pub fn check(&self, features: &[(&McpServer, &ServerFeatures)]) -> Result<Vec<PinCheck>> {
        Ok(self.read()?.check_and_pin(features))
    }

    /// Compares `features` with the pins, and pins new tools.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(crate) fn check_and_pin(
        &self,
        features: &[(&McpServer, &ServerFeatures)],
    ) -> Result<Vec<PinCheck>> {
        // Usually nothing is new, and no lock is needed.
        let checks = self.check(features)?;
        if checks.iter().any(|check| check.has_new_pins) {
            self.update(|pin_data| pin_data.check_and_pin(features))
        } else {
            Ok(checks)
        }
    }

    /// Accepts the `features` of `server` for a person: all of its tools, or only `tools`. Returns those that differed from their pins.
    ///
    /// # Errors
    /// The errors of [`Self::check_and_pin`].
    pub fn accept(
        &self,
        server: &McpServer,
        features: &ServerFeatures,
        tools: Option<&[String]>,
    ) -> Result<Vec<ToolChange>> {
        self.update(|pin_data| {
            let pins = pin_data.servers.entry(server.name.clone()).or_default();
            let PinCheck { mut changed, .. } = pins.check_and_pin(server, features);
            match tools {
                None => {
                    pins.start_anew(server, features);
                    pins.accepted = pins.tools.keys().cloned().collect();
                }
                Some(tools) => {
                    changed.retain(|change| tools.contains(&change.name));
                    for change in &changed {
                        pins.tools.insert(change.name.clone(), change.new.clone());
                    }
                    for tool in tools.iter().filter(|tool| pins.tools.contains_key(*tool)) {
                        pins.added_later.remove(tool);
                        pins.accepted.insert(tool.clone());
                    }
                }
            }
            changed
        })
    }

    /// True if a person has accepted the prompt of `server` whose messages have this digest.
    ///
    /// # Errors
    /// The errors of [`Self::check`].
    pub fn has_accepted_prompt(&self, server: &McpServer, digest: &str) -> Result<bool> {
        let pin_data = self.read()?;
        let pins = pin_data.servers.get(&server.name);
        Ok(pins.is_some_and(|pins| pins.prompts.contains(&prompt_pin(server, digest))))
    }

    /// Records that a person has accepted the prompt of `server` whose messages have this digest.
    ///
    /// # Errors
    /// The errors of [`Self::check_and_pin`].
    pub fn accept_prompt(&self, server: &McpServer, digest: &str) -> Result<()> {
        self.update(|pin_data| {
            let pins = pin_data.servers.entry(server.name.clone()).or_default();
            pins.prompts.insert(prompt_pin(server, digest));
        })
    }

    /// Removes the pins of the server `name`. Returns true if there were any.
    ///
    /// # Errors
    /// The errors of [`Self::check_and_pin`].
    pub fn remove(&self, name: &str) -> Result<bool> {
        if self.read()?.servers.contains_key(name) {
            self.update(|pin_data| pin_data.servers.remove(name).is_some())
        } else {
            Ok(false)
        }
    }

    fn update<T>(&self, change: impl FnOnce(&mut PinData) -> T) -> Result<T> {
        let _lock = durable_file::lock_for_change(&self.path, "the pinned MCP tools")?;
        let mut pin_data = self.read()?;
        let output = change(&mut pin_data);
        pin_data.v = FORMAT_VERSION;
        let mut text =
            serde_json::to_vec_pretty(&pin_data).context("serialize the pinned tools")?;
        text.push(b'\n');
        durable_file::replace(&self.path, &text)?;
        Ok(output)
    }

    fn read(&self) -> Result<PinData> {
        let Some(file) = durable_file::open_existing(&self.path)? else {
            return Ok(PinData::default());
        };
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES)
            .read_to_end(&mut text)
            .with_context(|| format!("read `{}`", self.path.display()))?;
        let to_error = |cause: &str| {
            fail(Exit::Config, format!("cannot read `{}`: {cause}", self.path.display()))
                .with_hint("move the file away, so that all tools are pinned anew")
        };
        let pin_data: PinData =
            serde_json::from_slice(&text).map_err(|error| to_error(&error.to_string()))?;
        if pin_data.v != FORMAT_VERSION {
            let cause = format!("its format version is {}, expected {FORMAT_VERSION}", pin_data.v);
            return Err(to_error(&cause));
        }
        Ok(pin_data)
    }
}

impl PinData {
    /// Compares `features` with the pins, and pins new tools.
    fn check_and_pin(&mut self, features: &[(&McpServer, &ServerFeatures)]) -> Vec<PinCheck> {
        let mut checks = Vec::new();
        for (server, features) in features {
            let pins = self.servers.entry(server.name.clone()).or_default();
            checks.push(pins.check_and_pin(server, features));
        }
        checks
    }
}

impl ServerPins {
    fn new(server: &McpServer, features: &ServerFeatures) -> Self {
        let tools = features.pinned_texts();
        Self {
            endpoint: fingerprint::of_endpoint(server),
            tools: tools.map(|tool| (tool.name.clone(), tool.into_owned())).collect(),
            accepted: BTreeSet::new(),
            added_later: BTreeSet::new(),
            prompts: BTreeSet::new(),
        }
    }

    /// Pins all tools as new ones. Accepted prompts stay: they name their endpoint.
    fn start_anew(&mut self, server: &McpServer, features: &ServerFeatures) {
        let prompts = std::mem::take(&mut self.prompts);
        *self = Self { prompts, ..Self::new(server, features) };
    }

    /// Does the same as [`PinData::check_and_pin`] for one server.
    fn check_and_pin(&mut self, server: &McpServer, features: &ServerFeatures) -> PinCheck {
        if self.endpoint != fingerprint::of_endpoint(server) {
            let replaced_server = !self.endpoint.is_empty();
            self.start_anew(server, features);
            return PinCheck {
                replaced_server,
                unaccepted: self.tools.keys().cloned().collect(),
                has_new_pins: true,
                ..PinCheck::default()
            };
        }
        let mut first_seen = Vec::new();
        let mut changed: Vec<ToolChange> = Vec::new();
        for tool in features.pinned_texts() {
            let old = match self.tools.get(&tool.name) {
                Some(old) if *old == *tool => continue,
                Some(old) => Some(old.clone()),
                None if self.tools.len() < MAX_TOOLS => {
                    self.added_later.insert(tool.name.clone());
                    first_seen.push(tool.name.clone());
                    self.tools.insert(tool.name.clone(), tool.into_owned());
                    continue;
                }
                None => None,
            };
            changed.push(ToolChange { name: tool.name.clone(), old, new: tool.into_owned() });
        }
        let names = || features.pinned_texts().map(|tool| tool.name.clone());
        PinCheck {
            changed,
            replaced_server: false,
            has_new_pins: !first_seen.is_empty(),
            unaccepted: names().filter(|name| !self.accepted.contains(name)).collect(),
            added_later: names().filter(|name| self.added_later.contains(name)).collect(),
            first_seen,
        }
    }
}

/// The record of an accepted prompt.
fn prompt_pin(server: &McpServer, digest: &str) -> String {
    format!("{} {digest}", fingerprint::of_endpoint(server))
}

/// Formats a tool as lines of text that people can compare.
pub fn format_tool(tool: &ToolInfo) -> String {
    let ToolInfo { name, title, description, schema, hints } = tool;
    let mut text = format!("name: {name}\n");
    if let Some(title) = title {
        text.push_str(&format!("title: {title}\n"));
    }
    let ToolHints { reads_only, destructive, idempotent, open_world } = hints;
    for (label, claim) in [
        ("read-only", reads_only),
        ("destructive", destructive),
        ("idempotent", idempotent),
        ("open world", open_world),
    ] {
        if let Some(claim) = claim {
            let answer = if *claim { "yes" } else { "no" };
            text.push_str(&format!("{label}: {answer}\n"));
        }
    }
    text.push_str(&format!("\n{}\n", description.trim_end()));
    // Instructions have no schema.
    if !schema.is_null() {
        text.push_str(&format!("\n{schema:#}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{MAX_TOOLS, PinFile, format_tool};
    use crate::protocol::{ServerFeatures, ToolHints, ToolInfo};
    use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    fn server(url: &str) -> McpServer {
        McpServer {
            name: "s".into(),
            transport: ServerTransport::Http(RemoteEndpoint {
                url: url.into(),
                headers: Vec::new(),
                uses_login: false,
            }),
            ..McpServer::default()
        }
    }

    fn features(tools: &[(&str, &str)]) -> ServerFeatures {
        let tool = |(name, description): &(&str, &str)| ToolInfo {
            name: (*name).into(),
            description: (*description).into(),
            schema: json!({ "type": "object" }),
            ..ToolInfo::default()
        };
        ServerFeatures { tools: tools.iter().map(tool).collect(), ..ServerFeatures::default() }
    }

    #[test]
    fn changes_are_reported_until_accepted() {
        let temp = tempfile::tempdir().unwrap();
        let pins = PinFile::new(&temp.path().join("mcp"));
        let server = server("http://a/");
        let pin = |features: &ServerFeatures| {
            let check = pins.check_and_pin(&[(&server, features)]).unwrap();
            let without_pinning = pins.check(&[(&server, features)]).unwrap();
            assert_eq!(check[0].changed, without_pinning[0].changed);
            let names = check[0].changed.iter().map(|change| change.name.clone());
            names.collect::<Vec<String>>()
        };
        assert!(pins.check(&[(&server, &features(&[("a", "x")]))]).unwrap()[0].changed.is_empty());
        assert!(!temp.path().join("mcp").exists(), "looking makes nothing");
        let none: &[String] = &[];
        assert_eq!(pin(&features(&[("a", "one"), ("b", "two")])), none);
        assert_eq!(pin(&features(&[("b", "two"), ("c", "new")])), none);
        let changed = features(&[("a", "one."), ("b", "two"), ("c", "new")]);
        assert_eq!(pin(&changed), ["a"]);
        assert_eq!(pin(&changed), ["a"]);
        let mut claims = features(&[("c", "new")]);
        claims.tools[0].hints = ToolHints { reads_only: Some(true), ..ToolHints::default() };
        assert_eq!(pin(&claims), ["c"]);
        let mut schema = features(&[("c", "new")]);
        schema.tools[0].schema = json!({ "type": "object", "properties": {} });
        assert_eq!(pin(&schema), ["c"]);
        let accepted = pins.accept(&server, &changed, None).unwrap();
        assert_eq!(accepted[0].old.as_ref().unwrap().description, "one");
        assert_eq!(pin(&changed), none);
        let two = features(&[("a", "one"), ("b", "one")]);
        assert_eq!(pin(&two), ["a", "b"]);
        let one = pins.accept(&server, &two, Some(&["b".into()])).unwrap();
        assert_eq!((one.len(), &*one[0].name), (1, "b"));
        assert_eq!(pin(&two), ["a"]);
        assert_eq!(pins.read().unwrap().servers["s"].tools["a"].description, "one.");
        let file = temp.path().join("mcp/pins.json");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(pins.remove("s").unwrap() && !pins.remove("s").unwrap());
        assert_eq!(pin(&features(&[("a", "two")])), none);
        std::fs::write(&file, "{}").unwrap();
        assert!(pins.check_and_pin(&[(&server, &changed)]).is_err());
    }

    #[test]
    fn another_server_of_the_same_name_is_pinned_anew() {
        let temp = tempfile::tempdir().unwrap();
        let pins = PinFile::new(temp.path());
        let pin = |url: &str, description: &str| {
            let (server, features) = (server(url), features(&[("a", description)]));
            pins.check_and_pin(&[(&server, &features)]).unwrap().remove(0)
        };
        assert!(!pin("http://a/", "one").replaced_server);
        let whole = (server("http://a/"), features(&[("a", "one")]));
        pins.accept(&whole.0, &whole.1, None).unwrap();
        assert!(pin("http://a/", "one").unaccepted.is_empty());
        let check = pin("http://b/", "two");
        assert!(check.replaced_server && check.changed.is_empty());
        assert_eq!(check.unaccepted.len(), 1, "what was accepted was another's");
        let check = pin("http://b/", "three");
        assert!(!check.replaced_server && check.changed.len() == 1);
    }

    #[test]
    fn an_accepted_prompt_belongs_to_its_endpoint() {
        let temp = tempfile::tempdir().unwrap();
        let pins = PinFile::new(temp.path());
        let (one, other) = (server("http://a/"), server("http://b/"));
        let is_accepted = |server, digest| pins.has_accepted_prompt(server, digest).unwrap();
        assert!(!is_accepted(&one, "d"));
        pins.accept_prompt(&one, "d").unwrap();
        let tools = features(&[("a", "one")]);
        pins.check_and_pin(&[(&one, &tools)]).unwrap();
        pins.accept(&one, &tools, None).unwrap();
        assert!(is_accepted(&one, "d"), "tools that are pinned later change nothing");
        assert!(!is_accepted(&one, "e") && !is_accepted(&other, "d"));
    }

    #[test]
    fn the_number_of_pinned_tools_is_limited() {
        let temp = tempfile::tempdir().unwrap();
        let pins = PinFile::new(temp.path());
        let server = server("http://a/");
        let many = |from: usize, to: usize| {
            let names: Vec<String> = (from..to).map(|number| format!("t{number}")).collect();
            let tools: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "x")).collect();
            features(&tools)
        };
        let check = |features: &ServerFeatures| {
            pins.check_and_pin(&[(&server, features)]).unwrap().remove(0)
        };
        assert!(check(&many(0, MAX_TOOLS)).changed.is_empty());
        let later = check(&many(MAX_TOOLS, MAX_TOOLS + 3));
        assert_eq!(later.changed.len(), 3);
        assert!(later.changed.iter().all(|change| change.old.is_none()));
        pins.accept(&server, &many(MAX_TOOLS, MAX_TOOLS + 3), None).unwrap();
        assert!(check(&many(MAX_TOOLS, MAX_TOOLS + 3)).changed.is_empty());
    }

    #[test]
    fn unaccepted_tools_are_reported() {
        let temp = tempfile::tempdir().unwrap();
        let pins = PinFile::new(temp.path());
        let server = server("http://a/");
        let pin = |features: &ServerFeatures| {
            let check = pins.check_and_pin(&[(&server, features)]).unwrap().remove(0);
            let join =
                |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>().join(" ");
            let (mut unaccepted, mut late) =
                (check.unaccepted.into_iter(), check.added_later.into_iter());
            [join(&mut unaccepted), join(&mut late), check.first_seen.join(" ")]
        };
        let accept = |features: &ServerFeatures, tools: Option<&[String]>| {
            pins.accept(&server, features, tools).unwrap();
        };
        let one = features(&[("a", "x"), ("b", "x")]);
        assert_eq!(pin(&one), ["a b", "", ""]);
        accept(&one, Some(&["a".into()]));
        assert_eq!(pin(&one), ["b", "", ""]);
        let more = features(&[("a", "x"), ("b", "x"), ("c", "x")]);
        assert_eq!(pin(&more), ["b c", "c", "c"]);
        assert_eq!(pin(&more), ["b c", "c", ""], "it is new once");
        accept(&more, Some(&["c".into()]));
        assert_eq!(pin(&more), ["b", "", ""]);
        accept(&more, None);
        assert_eq!(pin(&more), ["", "", ""]);
        // Files of older releases lack this field.
        let file = temp.path().join("pins.json");
        let text = std::fs::read(&file).unwrap();
        let mut written: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let server = written["servers"]["s"].as_object_mut().unwrap();
        server.remove("accepted");
        server.remove("late");
        std::fs::write(&file, written.to_string()).unwrap();
        assert_eq!(pin(&more), ["a b c", "", ""]);
    }

    #[test]
    fn tools_are_formatted_as_text() {
        let mut tool = features(&[("a", "Show\u{200b} it.\n")]).tools.remove(0);
        tool.hints.reads_only = Some(true);
        let expect =
            "name: a\nread-only: yes\n\nShow\u{200b} it.\n\n{\n  \"type\": \"object\"\n}\n";
        assert_eq!(format_tool(&tool), expect);
    }
}
