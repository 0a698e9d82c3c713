//! The servers of a run and the calls to them. A server is started when one of its tools is called, or if its offer is
//! not cached. Its offer is then checked against the pins before any call.

use super::cache::{CachedResult, McpCache};
use super::client::sampling::Sampler;
use super::client::{ChangeablePaths, ClientConfig, ClientPool, UnmakeableFile, sandbox_refusal};
use super::pin::{self, PinFile, ToolChange};
use super::protocol::{ContentPart, McpError, ServerAnswer, ServerFeatures};
use super::{limits, sanitize};
use anyhow::Result;
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::servers::{self, McpServer, ServerTransport};
use nanobot_os::clock::Clock;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum of retries of a call because the server's offer changed in between.
const MAX_CALL_RETRIES: usize = 4;

/// The longest error of a server that is shown or cached, in characters.
pub(super) const MAX_ERROR_CHARS: usize = 500;
/// The longest explanation of a refusal, in characters.
const MAX_EXPLANATION_CHARS: usize = 1000;
/// The longest path of a server that is shown, in characters.
const MAX_PATH_CHARS: usize = 300;

/// The servers of a run, with their pins, the cache and the checked offers.
#[derive(Clone)]
pub struct ToolCatalog(pub(super) Arc<CatalogInner>);

pub(super) struct CatalogInner {
    pub(super) clients: ClientPool,
    pub(super) pins: PinFile,
    pub(super) cache: McpCache,
    /// The checked offers, by server.
    checked: Mutex<BTreeMap<String, CheckedFeatures>>,
}

/// The offer of a server, and which tools of it may be used.
#[derive(Clone, Default)]
pub(super) struct CheckedFeatures {
    pub(super) features: Arc<ServerFeatures>,
    /// The tools that differ from their pins.
    pub(super) changed: BTreeSet<String>,
    /// The offer as the server sent it in this run.
    pub(super) received: Option<Arc<ServerFeatures>>,
}

/// The current offer of a server, checked.
#[derive(Clone, Debug, Default)]
pub struct ServerView {
    /// The offer, cut to the size limits.
    pub features: Arc<ServerFeatures>,
    /// Messages about omitted items.
    pub notes: Vec<String>,
    /// The tools that differ from their pins.
    pub changed: Vec<ToolChange>,
    /// The name was pinned for another program or address.
    pub replaced_server: bool,
    /// The tools that no person has accepted.
    pub unaccepted: BTreeSet<String>,
}

/// The reason why a tool was not called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The tool differs from its pin.
    Changed,
    /// The server no longer offers the tool.
    NotOffered,
    Failed(McpError),
}

impl From<McpError> for CallError {
    fn from(error: McpError) -> Self {
        Self::Failed(error)
    }
}

impl ToolCatalog {
    /// Creates the catalog of `servers`. Nothing is read or started yet.
    pub fn new(servers: &[McpServer], clock: &Clock, config: ClientConfig) -> Self {
        let mcp_dir = config.paths.mcp();
        Self(Arc::new(CatalogInner {
            pins: PinFile::new(&mcp_dir),
            cache: McpCache::new(&mcp_dir, clock, &config.env)
                .with_elicitation(config.elicitation.is_some()),
            clients: ClientPool::new(servers, config),
            checked: Mutex::default(),
        }))
    }

    /// Calls `tool` of `server`, by the server's own name for it. `sampler` answers requests of the server for the model, if its
    /// config allows them. `on_progress` receives the server's progress messages.
    ///
    /// # Errors
    /// The call was not made or not completed. A failure reported by the tool itself is an answer, not an error.
    pub fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
        sampler: Option<&dyn Sampler>,
        on_progress: &mut dyn FnMut(&str),
    ) -> Result<ServerAnswer, CallError> {
        let clients = &self.0.clients;
        let mut remaining_retries = MAX_CALL_RETRIES;
        loop {
            let checked = self.checked_features(server)?;
            if checked.changed.contains(tool) {
                return Err(CallError::Changed);
            }
            if !checked.features.tools.iter().any(|offered| offered.name == tool) {
                return Err(CallError::NotOffered);
            }
            let received = checked.received.unwrap_or_default();
            match clients.call_tool(server, &received, tool, arguments, sampler, on_progress) {
                // The server announced a change between the check and the call.
                Err(McpError::FeaturesChanged) if remaining_retries > 0 => remaining_retries -= 1,
                Err(error) => return Err(error.into()),
                Ok(mut answer) => {
                    let logged_path = clients.take_refused_path(server);
                    let server = self.server(server)?;
                    let unmakeable_files = || clients.unmakeable_files(server);
                    let explanation =
                        sandbox_explanation(server, &answer, logged_path, unmakeable_files);
                    answer.parts.extend(explanation.map(ContentPart::Text));
                    return Ok(answer);
                }
            }
        }
    }

    /// The command that shows and accepts the changes of the tools of `server`.
    pub fn accept_command(&self, server: &str) -> String {
        let configured = self.server(server);
        configured.map_or_else(
            |_| format!("nanobot mcp accept {}", quote(server)),
            McpServer::accept_command,
        )
    }

    /// The paths that `server` may change, if it is a local program in the sandbox.
    pub fn changeable_paths(&self, server: &str) -> Option<ChangeablePaths> {
        self.0.clients.changeable_paths(server)
    }

    /// True if the config says that results of `server` are trusted content.
    pub fn is_trusted(&self, server: &str) -> bool {
        self.server(server).is_ok_and(|server| server.is_trusted)
    }

    /// The file with the standard error of `server`, for people, if it has written any.
    pub fn log(&self, server: &str) -> Option<String> {
        self.0.clients.log(server)
    }

    /// Reads the resource `uri` of `server`.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn read_resource(&self, server: &str, uri: &str) -> Result<ServerAnswer, CallError> {
        self.checked_features(server)?;
        Ok(self.0.clients.read_resource(server, uri)?)
    }

    /// Requests the prompt `name` of `server`, filled in.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn get_prompt(
        &self,
        server: &str,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<ServerAnswer, CallError> {
        self.checked_features(server)?;
        Ok(self.0.clients.get_prompt(server, name, arguments)?)
    }

    /// True if a person has accepted the prompt of `server` whose messages have this digest.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn has_accepted_prompt(&self, server: &McpServer, digest: &str) -> Result<bool> {
        self.0.pins.has_accepted_prompt(server, digest)
    }

    /// Accepts the prompt of `server` whose messages have this digest.
    ///
    /// # Errors
    /// The pins cannot be written.
    pub fn accept_prompt(&self, server: &McpServer, digest: &str) -> Result<()> {
        self.0.pins.accept_prompt(server, digest)
    }

    /// Returns the current offer of `server`, which is started if it is not running.
    ///
    /// # Errors
    /// The server cannot be reached, or its offer cannot be checked against the pins.
    pub fn current_features(&self, server: &str) -> Result<Arc<ServerFeatures>, CallError> {
        Ok(self.checked_features(server)?.features)
    }

    /// Returns the offer of `server` as last checked.
    pub fn features(&self, server: &str) -> Arc<ServerFeatures> {
        let checked = self.checked();
        checked.get(server).map_or_else(Arc::default, |checked| Arc::clone(&checked.features))
    }

    /// True if the last check found that `tool` of `server` differs from its pin.
    pub fn has_changed(&self, server: &str, tool: &str) -> bool {
        let checked = self.checked();
        checked.get(server).is_some_and(|checked| checked.changed.contains(tool))
    }

    /// Ends all running servers.
    pub fn shut_down(&self) {
        self.0.clients.shut_down();
    }

    /// Asks `server` for its offer now, ignoring the cache, and caches the result.
    ///
    /// # Errors
    /// The server cannot be reached, or its offer cannot be checked against the pins.
    pub fn query(&self, server: &str) -> Result<ServerView, McpError> {
        self.query_with(server, true)
    }

    /// Does the same as [`Self::query`], and pins new tools if `pin` is true.
    fn query_with(&self, server: &str, pin: bool) -> Result<ServerView, McpError> {
        let server = self.server(server)?;
        if let Some(reason) = &server.unusable_reason {
            return Err(McpError::Unusable(reason.clone()));
        }
        let CatalogInner { clients, pins, cache, .. } = &*self.0;
        let received = clients.fetch_features(&server.name).inspect_err(|error| {
            if is_persistent(error) {
                let message = sanitize::single_line(&error.to_string(), MAX_ERROR_CHARS);
                cache.store_failure(server, &message);
            }
        })?;
        let (features, notes) = limits::apply_limits((*received).clone());
        let offers = [(server, &features)];
        let checks = if pin { pins.check_and_pin(&offers) } else { pins.check(&offers) };
        let checks = checks.map_err(|error| McpError::Unusable(format!("{error:#}")))?;
        cache.store(server, &features);
        let pin::PinCheck { changed, replaced_server, unaccepted, .. } =
            checks.into_iter().next().unwrap_or_default();
        let features = Arc::new(features);
        let checked = CheckedFeatures {
            changed: changed.iter().map(|change| change.name.clone()).collect(),
            features: Arc::clone(&features),
            received: Some(received),
        };
        self.checked().insert(server.name.clone(), checked);
        Ok(ServerView { features, notes, changed, replaced_server, unaccepted })
    }

    /// Accepts the offer of `server`, as of the last check: all of it, or only `tools`.
    ///
    /// # Errors
    /// The pins cannot be written.
    pub fn accept(&self, server: &str, tools: Option<&[String]>) -> Result<Vec<ToolChange>> {
        let server = self.server(server)?;
        let features = self.features(&server.name);
        let accepted = self.0.pins.accept(server, &features, tools)?;
        if let Some(checked) = self.checked().get_mut(&server.name) {
            for change in &accepted {
                checked.changed.remove(&change.name);
            }
        }
        Ok(accepted)
    }

    /// Removes everything stored about the server `name`. Returns true if there was anything.
    ///
    /// # Errors
    /// The pins cannot be written.
    pub fn remove(&self, name: &str) -> Result<bool> {
        self.0.cache.remove(name);
        self.0.pins.remove(name)
    }

    /// Returns the cached result for `server`, and its tools that differ from their pins. The server is not asked.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn cached(&self, server: &str) -> Result<(Option<CachedResult>, Vec<ToolChange>)> {
        let server = self.server(server)?;
        let cached = self.0.cache.get(server);
        let checks = match &cached {
            Some(CachedResult::Features(features)) => self.0.pins.check(&[(server, features)])?,
            _ => Vec::new(),
        };
        Ok((cached, checks.into_iter().flat_map(|check| check.changed).collect()))
    }

    fn server(&self, name: &str) -> Result<&McpServer, McpError> {
        let mut servers = self.0.clients.servers().iter();
        let server = servers.find(|server| server.name == name);
        server.ok_or_else(|| McpError::Unusable("no such server in the config".into()))
    }

    /// Returns the current offer of `server`, and checks it again if it is not the one checked last.
    fn checked_features(&self, name: &str) -> Result<CheckedFeatures, CallError> {
        let received = self.0.clients.fetch_features(name)?;
        if let Some(checked) = self.checked_result(name, &received) {
            return Ok(checked);
        }
        // New tools are pinned only at a point that can report it.
        self.query_with(name, false)?;
        Ok(self.checked().get(name).cloned().unwrap_or_default())
    }

    /// Returns the checked form of `features` of `server`; `None` if they have not been checked.
    pub(super) fn checked_result(
        &self,
        server: &str,
        features: &Arc<ServerFeatures>,
    ) -> Option<CheckedFeatures> {
        let all_checked = self.checked();
        let checked = all_checked.get(server)?;
        let received = checked.received.as_ref()?;
        Arc::ptr_eq(received, features).then(|| checked.clone())
    }

    pub(super) fn checked(&self) -> MutexGuard<'_, BTreeMap<String, CheckedFeatures>> {
        self.0.checked.lock()
    }
}

/// Explains that the sandbox of `server` is the cause of a failed answer, if the answer or the server's standard error
/// says so: it names the refused path, and the setting that grants it. `logged_path` is the path in the standard error. `unmakeable_files`
/// are the files of the entry that the server cannot make or replace.
fn sandbox_explanation(
    server: &McpServer,
    answer: &ServerAnswer,
    logged_path: Option<String>,
    unmakeable_files: impl FnOnce() -> Vec<UnmakeableFile>,
) -> Option<String> {
    let is_sandboxed =
        matches!(server.transport, ServerTransport::Program { .. }) && !server.is_unsandboxed;
    if !is_sandboxed || !answer.is_error {
        return None;
    }
    let texts = || {
        answer.parts.iter().filter_map(|part| match part {
            ContentPart::Text(text) => Some(text.as_str()),
            _ => None,
        })
    };
    // The kernel reports such a file as missing, not as refused.
    let is_named = |file: &UnmakeableFile| {
        let path = file.path.to_string_lossy();
        texts().any(|text| text.contains(&*path)) || logged_path.as_deref() == Some(&*path)
    };
    if let Some(file) = unmakeable_files().iter().find(|file| is_named(file)) {
        return Some(format!(
            "({}.)",
            sanitize::single_line(&file.explanation, MAX_EXPLANATION_CHARS)
        ));
    }
    let answer_path = texts().find_map(sandbox_refusal::refused_path);
    let answer_path = answer_path.map(|path| sanitize::single_line(path, MAX_PATH_CHARS));
    let Some(path) = answer_path.or(logged_path) else {
        return texts().any(sandbox_refusal::reports_refusal).then(|| {
            "(This server runs in a sandbox and can access only the user's files that its config entry names; `read` and `write` there grant more.)"
                .to_owned()
        });
    };
    let key = servers::quoted_key(&server.name, &["write"]);
    let mut write_paths = server.write_paths.clone();
    write_paths.push(path.clone());
    let value = quote(&Value::from(write_paths).to_string());
    Some(format!(
        "(This server runs in a sandbox and reports that `{path}` was refused. `nanobot config set {key} {value}` \
         grants changing it if it exists; to make or replace it, name its directory there; `.read` grants reading only. `\"sandbox\": \"off\"` in \
         the entry runs the server without a sandbox.)"
    ))
}

/// True if the failure will persist for a while, so that a retry in a moment is of no use.
pub(super) fn is_persistent(error: &McpError) -> bool {
    matches!(
        error,
        McpError::Unreachable(_) | McpError::Broken(_) | McpError::TimedOut(_) | McpError::Login(_)
    )
}
