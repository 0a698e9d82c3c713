//! The Agent Client Protocol (<https://agentclientprotocol.com>, version 1) over standard input and output: an editor starts
//! this process, opens sessions, and sends prompts; it receives the events of the turns, and questions for permission.
//!
//! The main thread reads; each prompt has a thread of its own, with a token that cancels it. At the end of the input the turns
//! under way are cancelled, since the editor has ended.

mod client;
mod mcp_servers;
mod permission;
mod prompt;
mod session;
mod updates;

use crate::ops::agent_turn::{self, TurnOutcome, source::InteractiveContext};
use crate::ops::context::Context;
use crate::ops::rpc_connection::RpcConnection;
use crate::ops::{model, permissions, profiles, server_files};
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use client::EditorClient;
use nanobot_base::error::{Exit, hint_for};
use nanobot_base::event::{Event, StopReason};
use nanobot_base::json_rpc::{ErrorObject, RpcMessage};
use nanobot_base::message::user_text::UserText;
use nanobot_config::policy::profile::{Profile, ProfileKind};
use nanobot_config::settings::Settings;
use nanobot_os::cancel::{self, CancelToken};
use nanobot_os::secret::random_hex;
use nanobot_os::signal;
use nanobot_os::symlinks::PathResolver;
use nanobot_store::session::Session;
use parking_lot::Mutex;
use permission::{EditorPrompter, NoForms};
use prompt::EditorPrompt;
use serde_json::{Map, Value, json};
use session::EditorSession;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, Scope};
use updates::TurnUpdates;

const PROTOCOL_VERSION: u64 = 1;

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
        for session in server.sessions.lock().values() {
            session.cancel();
        }
        server.client.stop_waiting(None);
        result
    });
    result.map(|()| Exit::Answered)
}

/// A prompt that marked its session as running.
struct ClaimedPrompt {
    session: Arc<EditorSession>,
    prompt: EditorPrompt,
    /// Cancels the turn.
    token: Arc<CancelToken>,
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
                    self.cancel_turn(&session);
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
                Ok(json!({ "sessionId": session.key, "modes": self.modes(&session) }))
            }
            "session/load" => {
                let stored_session = self.read_session(params)?;
                let session = self.open_session(stored_session.key().to_owned(), params)?;
                for update in updates::replay(stored_session.messages()) {
                    let result = self.client.update(&session.key, &update);
                    result.map_err(|error| failure(&error))?;
                }
                Ok(json!({ "modes": self.modes(&session) }))
            }
            "session/resume" => {
                let stored_session = self.read_session(params)?;
                let session = self.open_session(stored_session.key().to_owned(), params)?;
                Ok(json!({ "modes": self.modes(&session) }))
            }
            "session/set_mode" => {
                let session = self.session(params)?;
                let mode = text_param(params, "modeId")?;
                if !self.profiles(&session).iter().any(|profile| profile.name == mode) {
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
                self.sessions.lock().remove(&session.key);
                self.cancel_turn(&session);
                Ok(json!({}))
            }
            "authenticate" => Err(ErrorObject::invalid_params(
                "no login is needed here: `nanobot onboard` sets keys, `nanobot model provider login` logs in",
            )),
            _ => Err(ErrorObject::method_not_found(format!("no method `{method}`"))),
        }
    }

    /// The open session that a request names.
    fn session(&self, params: &Params) -> Result<Arc<EditorSession>, ErrorObject> {
        let key = text_param(params, "sessionId")?;
        let sessions = self.sessions.lock();
        let session = sessions.get(key).cloned();
        session.ok_or_else(|| ErrorObject::invalid_params(format!("no open session `{key}`")))
    }

    /// Cancels the turn under way in `session`, which may wait for the editor.
    fn cancel_turn(&self, session: &EditorSession) {
        session.cancel();
        self.client.stop_waiting(Some(&session.key));
    }

    /// Opens a session in the directory that `params` name. If it is open already, its turn is cancelled.
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
        let mut servers = mcp_servers::parse(params.get("mcpServers").unwrap_or(&Value::Null))?;
        let (settings, profile) = self.settings()?;
        servers.retain(|server| {
            let result = server_files::check_unlocked(&settings, server, "mcpServers");
            if let Err(error) = &result {
                self.ctx.notice(&format!("a server of the editor is not started: {error}"));
            }
            result.is_ok()
        });
        let granted_directory = self.options.grants.directory.as_deref();
        let directory = working_directory(self.ctx, &settings, granted_directory, directory);
        let ctx = self.ctx.beside_others();
        let session = Arc::new(EditorSession::new(ctx, key, directory, servers, profile.name));
        let mut sessions = self.sessions.lock();
        let replaced_session = sessions.insert(session.key.clone(), Arc::clone(&session));
        drop(sessions);
        if let Some(replaced_session) = replaced_session {
            self.cancel_turn(&replaced_session);
        }
        Ok(session)
    }

    /// True if the configured model accepts images. The model of another profile may differ; then a turn reports it.
    fn accepts_images(&self) -> bool {
        self.settings()
            .is_ok_and(|(settings, _)| model::accepted_attachments(self.ctx, &settings).0.images)
    }

    /// The settings of the command line, and its profile.
    fn settings(&self) -> Result<(Settings, Profile), ErrorObject> {
        let TurnOptions { grants, model, .. } = self.options;
        permissions::settings_with_profile(self.ctx, grants, model.overrides())
            .map_err(|error| failure(&error))
    }

    /// The profiles that `session` can have. One without limits is among them only if the session has it already.
    fn profiles(&self, session: &EditorSession) -> Vec<Profile> {
        let current = session.state().profile.clone();
        let settings = self.settings();
        let is_locked = settings.is_ok_and(|(settings, _)| {
            settings.locks.check_flag("agents.defaults.profile", "").is_err()
        });
        let mut available = Vec::new();
        for name in profiles::names(self.ctx) {
            // A profile that cannot be used is reported by `nanobot config check`.
            let Ok(Some(profile)) = profiles::find(self.ctx, &name) else {
                continue;
            };
            let is_for_runs = profile.kind != ProfileKind::Subagent;
            if name == current || is_for_runs && !profile.is_unrestricted && !is_locked {
                available.push(profile);
            }
        }
        available
    }

    /// The profiles as the modes of `session`.
    fn modes(&self, session: &EditorSession) -> Value {
        let profiles = self.profiles(session);
        let modes = profiles.iter().map(|profile| {
            json!({ "id": profile.name, "name": profile.name, "description": profile.description })
        });
        let current = session.state().profile.clone();
        json!({ "currentModeId": current, "availableModes": modes.collect::<Vec<_>>() })
    }

    /// Reads the stored session that `params` name.
    fn read_session(&self, params: &Params) -> Result<Session, ErrorObject> {
        let key = text_param(params, "sessionId")?;
        let (settings, _) = self.settings()?;
        let store = self.ctx.session_store(&settings).map_err(|error| failure(&error))?;
        let mut notice = |text: &str| self.ctx.notice(text);
        let session = Session::read(&store, key, &mut notice).map_err(|error| failure(&error))?;
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
        let ClaimedPrompt { session, prompt, token } = match self.claim_session(params) {
            Ok(claim) => claim,
            Err(error) => return self.client.connection.respond(&id, Err(error)),
        };
        scope.spawn(move || {
            let outcome =
                cancel::scope(Some(Arc::clone(&token)), || self.run_turn(&session, prompt));
            let result = if token.is_cancelled() { Ok("cancelled") } else { stop_reason(&outcome) };
            session.state().running = None;
            let result = result.map(|reason| json!({ "stopReason": reason }));
            // If standard output fails, the reader sees it too.
            drop(self.client.connection.respond(&id, result));
            outcome.do_post_turn_work(&session.ctx);
        });
        Ok(())
    }

    /// Marks the session of a prompt as running.
    fn claim_session(&self, params: &Params) -> Result<ClaimedPrompt, ErrorObject> {
        let session = self.session(params)?;
        let prompt = EditorPrompt::parse(params.get("prompt").unwrap_or(&Value::Null))?;
        let token = CancelToken::new().map_err(|error| failure(&error.into()))?;
        let mut state = session.state();
        if state.running.is_some() {
            return Err(ErrorObject::invalid_request("the session has a turn under way"));
        }
        state.running = Some(Arc::clone(&token));
        drop(state);
        Ok(ClaimedPrompt { session, prompt, token })
    }

    fn run_turn(&self, session: &Arc<EditorSession>, prompt: EditorPrompt) -> TurnOutcome {
        let updates = Arc::new(TurnUpdates::new(&self.client, session));
        let prompter = Arc::new(EditorPrompter {
            ctx: session.ctx.clone(),
            client: Arc::clone(&self.client),
            session: Arc::clone(session),
            updates: Arc::clone(&updates),
        });
        let extra_input = prompt.extra_input;
        let context = InteractiveContext {
            resume_command: None,
            user_prompt: prompter,
            elicitation: Arc::new(NoForms),
            reported_notice: Rc::default(),
            attached: prompt.content,
            extra_input: RefCell::new((!extra_input.is_empty()).then(|| extra_input.into_bytes())),
            has_new_conversation: Cell::new(false),
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
        agent_turn::run_editor_turn(&session.ctx, &options, &context, observer)
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

/// Returns the working directory of a session that the editor opens in `directory`. An editor without a project opens its sessions in
/// the home directory. Only `-C` on the command line, as `granted_directory`, grants that as a whole, so the workspace replaces it. An
/// editor also cannot lift a restriction of the config.
fn working_directory(
    ctx: &Context,
    settings: &Settings,
    granted_directory: Option<&Path>,
    directory: PathBuf,
) -> PathBuf {
    let mut path_resolver = PathResolver::default();
    let real_path = path_resolver.resolve(&directory);
    let is_granted = granted_directory.is_some_and(|granted| {
        real_path.starts_with(path_resolver.resolve(&permissions::absolute(granted)))
    });
    if is_granted {
        return directory;
    }
    let workspace = &settings.workspace;
    let reason = if settings.restrict_to_workspace {
        "`tools.restrictToWorkspace` is set"
    } else if permissions::is_replaced_by_workspace(
        ctx,
        &real_path,
        workspace.is_dir(),
        &mut path_resolver,
    ) {
        "it is the home directory, or one above it (`nanobot serve acp -C ~` opens it all the same)"
    } else {
        return directory;
    };
    ctx.notice(&format!("the workspace takes the place of the editor's directory: {reason}"));
    workspace.clone()
}
