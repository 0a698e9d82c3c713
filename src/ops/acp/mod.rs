//! The Agent Client Protocol (<https://agentclientprotocol.com>, version 1) over standard input and output: an editor starts
//! this process, opens sessions, and sends prompts; it receives the events of the turns, and questions for permission.
//!
//! The main thread reads; each prompt has a thread of its own, with a token that cancels it. At the end of the input the turns
//! under way are cancelled, since the editor has ended.

mod client;
mod permission;
mod prompt;
mod session;
mod updates;

use crate::ops::agent_turn::{self, TurnOutcome, source::InteractiveContext};
use crate::ops::context::Context;
use crate::ops::model;
use crate::ops::permissions;
use crate::ops::profiles;
use crate::ops::rpc_connection::RpcConnection;
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use client::EditorClient;
use nanobot_base::error::{Exit, hint_for};
use nanobot_base::event::{Event, StopReason};
use nanobot_base::json_rpc::{ErrorObject, RpcMessage};
use nanobot_base::message::user_text::UserText;
use nanobot_config::policy::profile::ProfileKind;
use nanobot_config::settings::Settings;
use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, ServerTransport};
use nanobot_os::cancel::{self, CancelToken};
use nanobot_os::paths::PathResolver;
use nanobot_os::secret::{LazySecret, random_hex};
use nanobot_os::signal;
use nanobot_os::sync::IgnorePoison;
use nanobot_store::session::Session;
use permission::EditorPrompter;
use prompt::EditorPrompt;
use serde_json::{Map, Value, json};
use session::EditorSession;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::Duration;
use updates::TurnUpdates;

const PROTOCOL_VERSION: u64 = 1;
/// The timeouts of an editor's MCP servers. They equal the defaults of servers in the config.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// The parameters of a request.
type Params = Map<String, Value>;

/// Serves an editor on standard input and output. `options` apply to each turn.
///
/// # Errors
/// Standard input or standard output fails, or a signal arrived.
pub(crate) fn serve(ctx: &Context, options: &TurnOptions) -> Result<Exit> {
    signal::install(None).context("wait for signals")?;
    let server = AcpServer {
        ctx,
        options,
        client: Arc::new(EditorClient::new(RpcConnection::new(ctx.terminal))),
        sessions: Mutex::default(),
    };
    let result = thread::scope(|scope| {
        let connection = server.client.connection;
        let result = connection.read_all(&mut |message| server.accept(scope, message));
        for session in server.sessions.lock().ignore_poison().values() {
            session.cancel();
        }
        server.client.stop_waiting(None);
        result
    });
    ctx.servers.shut_down();
    result.map(|()| Exit::Answered)
}

struct AcpServer<'a> {
    ctx: &'a Context,
    options: &'a TurnOptions,
    client: Arc<EditorClient>,
    /// The open sessions, by key.
    sessions: Mutex<HashMap<String, Arc<EditorSession>>>,
}

impl<'a> AcpServer<'a> {
    /// Handles a message of the editor.
    fn accept<'s>(&'s self, scope: &'s Scope<'s, '_>, message: RpcMessage) -> Result<()> {
        match message {
            RpcMessage::Request { id, method, params } if method == "session/prompt" => {
                self.begin_turn(scope, id, &params)?;
            }
            RpcMessage::Request { id, method, params } => {
                self.client.connection.respond(&id, self.answer(&method, &params))?;
            }
            RpcMessage::Notification { method, params } => {
                if method == "session/cancel"
                    && let Ok(session) = self.session(&params)
                {
                    session.cancel();
                    self.client.stop_waiting(Some(&session.key));
                }
            }
            RpcMessage::Response { id, result } => self.client.accept_answer(&id, result),
        }
        Ok(())
    }

    /// Answers a request other than a prompt.
    fn answer(&self, method: &str, params: &Params) -> Result<Value, ErrorObject> {
        match method {
            "initialize" => Ok(json!({
                "protocolVersion": PROTOCOL_VERSION,
                "agentInfo": { "name": "nanobot", "title": "nanobot", "version": env!("CARGO_PKG_VERSION") },
                "agentCapabilities": {
                    "loadSession": true,
                    "promptCapabilities": { "image": self.accepts_images(), "audio": false, "embeddedContext": true },
                    "mcpCapabilities": { "http": true, "sse": true },
                    "sessionCapabilities": { "resume": {}, "close": {} },
                },
                "authMethods": [],
            })),
            "session/new" => {
                let key = format!("acp:{}", random_hex(6));
                let session = self.open_session(key, params)?;
                Ok(json!({ "sessionId": session.key, "modes": self.modes(&session)? }))
            }
            "session/load" | "session/resume" => {
                let key = text_param(params, "sessionId")?.to_owned();
                let stored_session = self.read_session(&key)?;
                let session = self.open_session(key, params)?;
                if method == "session/load" {
                    for update in updates::replay(stored_session.messages()) {
                        self.client
                            .update(&session.key, &update)
                            .map_err(|error| failure(&error))?;
                    }
                }
                Ok(json!({ "modes": self.modes(&session)? }))
            }
            "session/set_mode" => {
                let session = self.session(params)?;
                let mode = text_param(params, "modeId")?;
                let modes = self.modes(&session)?;
                let mut available = modes["availableModes"].as_array().into_iter().flatten();
                if !available.any(|available| available["id"] == mode) {
                    return Err(ErrorObject::invalid_params(format!("no mode `{mode}`")));
                }
                let mut state = session.state();
                mode.clone_into(&mut state.profile);
                // The user granted these under the previous profile.
                state.granted.clear();
                Ok(json!({}))
            }
            "session/close" => {
                let session = self.session(params)?;
                session.cancel();
                self.client.stop_waiting(Some(&session.key));
                self.sessions.lock().ignore_poison().remove(&session.key);
                Ok(json!({}))
            }
            "authenticate" => Err(ErrorObject::invalid_params(
                "no login is needed here: `nanobot onboard` sets keys, `nanobot provider login` logs in",
            )),
            _ => Err(ErrorObject::method_not_found(format!("no method `{method}`"))),
        }
    }

    /// The open session that a request names.
    fn session(&self, params: &Params) -> Result<Arc<EditorSession>, ErrorObject> {
        let key = text_param(params, "sessionId")?;
        let sessions = self.sessions.lock().ignore_poison();
        let session = sessions.get(key).cloned();
        session.ok_or_else(|| ErrorObject::invalid_params(format!("no open session `{key}`")))
    }

    /// Opens a session in the directory that `params` name.
    fn open_session(
        &self,
        key: String,
        params: &Params,
    ) -> Result<Arc<EditorSession>, ErrorObject> {
        let directory = PathBuf::from(text_param(params, "cwd")?);
        if !directory.is_absolute() || !directory.is_dir() {
            let cause =
                format!("`{}` is not the absolute path of a directory", directory.display());
            return Err(ErrorObject::invalid_params(cause));
        }
        let servers = params.get("mcpServers").and_then(Value::as_array);
        let servers = servers.into_iter().flatten().map(parse_server);
        let servers = servers.collect::<Result<_, _>>()?;
        let mut options = self.options.clone();
        let settings = self.settings(&options)?;
        let directory = self.working_directory(directory, &settings);
        options.grants.directory = Some(directory.clone());
        let profile = permissions::resolve_profile(self.ctx, &options.grants, &settings)
            .map_err(|error| failure(&error))?
            .name;
        let session = Arc::new(EditorSession::new(key, directory, servers, profile));
        let mut sessions = self.sessions.lock().ignore_poison();
        if let Some(replaced_session) = sessions.insert(session.key.clone(), Arc::clone(&session)) {
            replaced_session.cancel();
        }
        Ok(session)
    }

    /// The working directory of a session that the editor opens in `directory`. An editor without a project opens its sessions in the home
    /// directory. Only `-C` on the command line grants that as a whole, so the workspace replaces it. An editor also cannot lift a
    /// restriction of the config.
    fn working_directory(&self, directory: PathBuf, settings: &Settings) -> PathBuf {
        let workspace = &settings.workspace;
        if self.options.grants.directory.is_some() {
            return directory;
        }
        let mut path_resolver = PathResolver::default();
        let real_path = path_resolver.resolve(&directory);
        let reason = if settings.restrict_to_workspace {
            "`tools.restrictToWorkspace` is set"
        } else if permissions::is_replaced_by_workspace(
            self.ctx,
            &real_path,
            workspace.is_dir(),
            &mut path_resolver,
        ) {
            "it is the home directory, or one above it (`nanobot acp -C ~` opens it all the same)"
        } else {
            return directory;
        };
        self.ctx
            .notice(&format!("the workspace takes the place of the editor's directory: {reason}"));
        workspace.clone()
    }

    /// True if the configured model accepts images. The model of another profile may differ; then a turn reports it.
    fn accepts_images(&self) -> bool {
        self.settings(self.options)
            .is_ok_and(|settings| model::accepted_attachments(self.ctx, &settings).0.images)
    }

    fn settings(&self, options: &TurnOptions) -> Result<Settings, ErrorObject> {
        permissions::settings_with_profile(self.ctx, &options.grants, options.model.overrides())
            .map(|(settings, _)| settings)
            .map_err(|error| failure(&error))
    }

    /// The profiles as modes. A profile without limits is a mode only if the session has it already.
    fn modes(&self, session: &EditorSession) -> Result<Value, ErrorObject> {
        let current = session.state().profile.clone();
        let mut modes = Vec::new();
        for name in profiles::names(self.ctx) {
            // A profile that cannot be used is reported by `nanobot config check`.
            let Ok(Some(profile)) = profiles::find(self.ctx, &name) else {
                continue;
            };
            let is_for_runs = profile.kind != ProfileKind::Subagent;
            if name == current || is_for_runs && !profile.is_unrestricted {
                modes.push(json!({ "id": name, "name": name, "description": profile.description }));
            }
        }
        Ok(json!({ "currentModeId": current, "availableModes": modes }))
    }

    fn read_session(&self, key: &str) -> Result<Session, ErrorObject> {
        let settings = self.settings(self.options)?;
        let store = self.ctx.session_store(&settings).map_err(|error| failure(&error))?;
        let session = Session::read(&store, key, &mut |_| {}).map_err(|error| failure(&error))?;
        if session.messages().is_empty() {
            Err(ErrorObject::invalid_params(format!("no session `{key}`")))
        } else {
            Ok(session)
        }
    }

    /// Starts the turn of a prompt, which answers the request.
    fn begin_turn<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        id: Value,
        params: &Params,
    ) -> Result<()> {
        let (session, prompt, token) = match self.claim_session(params) {
            Ok(claim) => claim,
            Err(error) => return self.client.connection.respond(&id, Err(error)),
        };
        scope.spawn(move || {
            let result =
                cancel::scope(Some(Arc::clone(&token)), || self.run_turn(&session, prompt, &token));
            session.state().running = None;
            // If standard output fails, the reader sees it too.
            drop(self.client.connection.respond(&id, result));
        });
        Ok(())
    }

    /// Marks the session of a prompt as running. Returns it with the prompt, and with the token that cancels the turn.
    fn claim_session(
        &self,
        params: &Params,
    ) -> Result<(Arc<EditorSession>, EditorPrompt, Arc<CancelToken>), ErrorObject> {
        let session = self.session(params)?;
        let prompt = EditorPrompt::parse(params.get("prompt").unwrap_or(&Value::Null))?;
        let token = CancelToken::new().map_err(|error| failure(&error.into()))?;
        let mut state = session.state();
        if state.running.is_some() {
            return Err(ErrorObject::invalid_request("the session has a turn under way"));
        }
        state.running = Some(Arc::clone(&token));
        drop(state);
        Ok((session, prompt, token))
    }

    fn run_turn(
        &self,
        session: &Arc<EditorSession>,
        prompt: EditorPrompt,
        token: &CancelToken,
    ) -> Result<Value, ErrorObject> {
        let updates = Arc::new(TurnUpdates::new(&self.client, session));
        let prompter = Arc::new(EditorPrompter {
            ctx: self.ctx.clone(),
            client: Arc::clone(&self.client),
            session: Arc::clone(session),
            updates: Arc::clone(&updates),
        });
        let extra_input = prompt.extra_input;
        let context = InteractiveContext {
            resume_command: None,
            user_prompt: Arc::clone(&prompter) as _,
            elicitation: prompter,
            attached: prompt.content,
            extra_input: RefCell::new((!extra_input.is_empty()).then(|| extra_input.into_bytes())),
            next_steering_message: Box::new(|| None),
        };
        let mut options = session.turn_options(self.options);
        // The option's value `-` means standard input.
        let text = match prompt.text.as_str() {
            "-" => UserText::typed("- "),
            _ => prompt.text,
        };
        options.input.message = Some(text);
        options.input.attach.extend(prompt.attach);
        let observer = Box::new(move |event: &Event<'_>| updates.handle(event));
        let outcome = agent_turn::run_editor_turn(self.ctx, &options, &context, observer);
        let result = if token.is_cancelled() {
            Ok(json!({ "stopReason": "cancelled" }))
        } else {
            stop_reason(&outcome).map(|reason| json!({ "stopReason": reason }))
        };
        outcome.finish_beside_others(self.ctx);
        result
    }
}

/// The reason for the end of a turn, in the protocol's terms.
fn stop_reason(outcome: &TurnOutcome) -> Result<&'static str, ErrorObject> {
    match (outcome.ending.stop_reason, &outcome.ending.error) {
        (StopReason::OutputLimit, _) => Ok("max_tokens"),
        (StopReason::IterationLimit, _) => Ok("max_turn_requests"),
        (StopReason::Declined, _) => Ok("refusal"),
        (_, Some(error)) => Err(failure(error)),
        (_, None) => Ok("end_turn"),
    }
}

/// The error of a request that failed, with the hint.
fn failure(error: &anyhow::Error) -> ErrorObject {
    let hint = hint_for(error).map(|hint| format!(" (try: {hint})"));
    ErrorObject::failure(format!("{error:#}{}", hint.unwrap_or_default()))
}

/// The text parameter `key`.
fn text_param<'p>(params: &'p Params, key: &str) -> Result<&'p str, ErrorObject> {
    let value = params.get(key).and_then(Value::as_str);
    value.ok_or_else(|| ErrorObject::invalid_params(format!("`{key}` is missing or no text")))
}

/// Parses an MCP server that the editor adds.
fn parse_server(server: &Value) -> Result<McpServer, ErrorObject> {
    let text = |key: &str| server[key].as_str().map(str::to_owned);
    let pairs = |key: &str| {
        let items = server[key].as_array().into_iter().flatten();
        let pairs = items.filter_map(|item| {
            Some((item["name"].as_str()?.to_owned(), LazySecret::new(item["value"].as_str()?)))
        });
        pairs.collect::<Vec<_>>()
    };
    let missing = |key: &str| ErrorObject::invalid_params(format!("an MCP server has no `{key}`"));
    let remote = || -> Result<RemoteEndpoint, ErrorObject> {
        Ok(RemoteEndpoint {
            url: text("url").ok_or_else(|| missing("url"))?,
            headers: pairs("headers"),
            uses_login: false,
        })
    };
    let arguments = server["args"].as_array().into_iter().flatten();
    let transport = match server["type"].as_str() {
        Some("http") => ServerTransport::Http(remote()?),
        Some("sse") => ServerTransport::Sse(remote()?),
        _ => ServerTransport::Program {
            command: text("command").ok_or_else(|| missing("command"))?,
            arguments: arguments.filter_map(Value::as_str).map(str::to_owned).collect(),
            env: pairs("env"),
            directory: None,
        },
    };
    Ok(McpServer {
        name: text("name").ok_or_else(|| missing("name"))?,
        transport,
        call_timeout: SERVER_TIMEOUT,
        start_timeout: SERVER_TIMEOUT,
        enabled_tools: vec!["*".into()],
        ..McpServer::default()
    })
}
