//! The slot of one server. It is empty until the server is needed, then holds one connection that all calls share. A
//! connection that has ended is replaced on the next call, and a call that never reached the server is repeated once.

use super::config::ClientConfig;
use super::connection_state::{ConnectionState, InstrumentedTransport, one_line};
use super::decode;
use super::environment::{build_environment, resolve_program, server_file_name};
use super::grants;
use super::http::{self, HttpTransport};
use super::listing;
use super::request_handler::RequestHandler;
use super::runtime::{OnProgress, spawn_blocking};
use super::sse;
use super::stdio::{RunningPrograms, StdioTransport};
use crate::mcp::protocol::{McpError, ServerAnswer, ServerFeatures};
use crate::settings::servers::{McpServer, ServerTransport};
use crate::sys::durable_file;
use crate::sys::process::server::ServerSpec;
use crate::sys::signal;
use crate::sys::sync::IgnorePoison;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, GetPromptRequest,
    GetPromptRequestParams, ReadResourceRequest, ReadResourceRequestParams,
};
use rmcp::service::{
    ClientInitializeError, Peer, PeerRequestOptions, RunningService, ServiceError, serve_client,
};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// Timeout for sending a cancellation notice to the server.
const CANCEL_SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// Signals cancellation of a request, with the reason.
pub(super) type CancelReceiver = Receiver<Option<&'static str>>;

/// The slot of a server.
pub(super) struct ConnectionSlot {
    pub(super) server: McpServer,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// The state of the current connection, or of the one being established.
    state: Mutex<Arc<ConnectionState>>,
    features: Mutex<Option<Arc<ServerFeatures>>>,
}

/// A connection.
struct Connection {
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, RequestHandler>>>,
    state: Arc<ConnectionState>,
    /// True for a local program: a message that was not fully written to it was not received.
    is_program: bool,
}

/// A request to a server.
#[derive(Clone)]
pub(super) enum ServerRequest {
    Call {
        tool: String,
        arguments: Map<String, Value>,
        /// The call is made only if the server still offers what is in this offer.
        features: Arc<ServerFeatures>,
    },
    Read(String),
    Prompt(String, Map<String, Value>),
}

/// The reason why there is no answer.
enum RequestError {
    /// The server received nothing of the request.
    NotSent(McpError),
    Failed(McpError),
}

impl ServerRequest {
    fn to_client_request(&self) -> ClientRequest {
        match self.clone() {
            Self::Call {
                tool, arguments, ..
            } => {
                let params = CallToolRequestParams::new(tool).with_arguments(arguments);
                ClientRequest::CallToolRequest(CallToolRequest::new(params))
            }
            Self::Read(uri) => {
                let params = ReadResourceRequestParams::new(uri);
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
            }
            Self::Prompt(name, arguments) => {
                let params = GetPromptRequestParams::new(name).with_arguments(arguments);
                ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
            }
        }
    }

    fn decode_answer(&self, result: &Value) -> ServerAnswer {
        match self {
            Self::Call { .. } => decode::tool_result(result),
            Self::Read(_) => decode::resource_contents(result),
            Self::Prompt(..) => decode::prompt_messages(result),
        }
    }
}

impl ConnectionSlot {
    pub(super) fn new(server: McpServer) -> Self {
        Self {
            server,
            connection: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            features: Mutex::default(),
        }
    }

    /// Returns the newest offer of the server, without asking it.
    pub(super) fn features(&self) -> Option<Arc<ServerFeatures>> {
        self.features.lock().ignore_poison().clone()
    }

    /// True while the user is answering a question of the server.
    pub(super) fn is_waiting_for_user(&self) -> bool {
        let watch = self.state.lock().ignore_poison();
        watch.open_questions.load(Ordering::SeqCst) > 0
    }

    /// Returns the reason why the connection ended, or the last line of the server's standard error.
    pub(super) fn stderr_suffix(&self) -> String {
        let watch = self.state.lock().ignore_poison();
        watch.stderr_suffix()
    }

    /// Returns what the server offers now, connecting to it if necessary.
    pub(super) async fn fetch_features(
        &self,
        config: &ClientConfig,
        programs: &Arc<RunningPrograms>,
    ) -> Result<Arc<ServerFeatures>, McpError> {
        self.connected(config, programs).await?;
        let gone = || McpError::Broken("it exited immediately".into());
        self.features().ok_or_else(gone)
    }

    /// Sends the request and returns the answer, unless `cancel` fires first.
    pub(super) async fn send(
        &self,
        config: &ClientConfig,
        programs: &Arc<RunningPrograms>,
        request: &ServerRequest,
        mut on_progress: Option<OnProgress>,
        cancel: CancelReceiver,
    ) -> Result<ServerAnswer, McpError> {
        let live = self.connected(config, programs).await?;
        self.require_current(request)?;
        match live.send(request, &mut on_progress, cancel.clone()).await {
            Ok(answer) => Ok(answer),
            Err(RequestError::Failed(failed)) => Err(failed),
            Err(RequestError::NotSent(_)) => {
                self.drop_connection(&live).await;
                let live = self.connected(config, programs).await?;
                self.require_current(request)?;
                match live.send(request, &mut on_progress, cancel).await {
                    Ok(answer) => Ok(answer),
                    Err(RequestError::Failed(failed) | RequestError::NotSent(failed)) => {
                        Err(failed)
                    }
                }
            }
        }
    }

    /// Fails if a tool is to be called from an offer that is no longer the newest.
    fn require_current(&self, request: &ServerRequest) -> Result<(), McpError> {
        match (request, self.features()) {
            (
                ServerRequest::Call {
                    features: offer, ..
                },
                Some(newest),
            ) if !Arc::ptr_eq(offer, &newest) => Err(McpError::FeaturesChanged),
            _ => Ok(()),
        }
    }

    /// Returns the connection with current lists, and establishes it if there is none.
    async fn connected(
        &self,
        config: &ClientConfig,
        programs: &Arc<RunningPrograms>,
    ) -> Result<Arc<Connection>, McpError> {
        if let Some(words) = &self.server.unusable_reason {
            return Err(McpError::Unusable(words.clone()));
        }
        let mut there = self.connection.lock().await;
        if let Some(live) = there.as_ref().filter(|live| !live.is_closed()) {
            let live = Arc::clone(live);
            if live.state.is_stale.swap(false, Ordering::SeqCst) {
                // If this is cancelled halfway, the next caller must read the lists again.
                let unless_done = RestoreStale(&live.state);
                let offer = listing::fetch_features(&live.peer)
                    .await
                    .map_err(|error| live.to_error(error))?;
                std::mem::forget(unless_done);
                self.set_features(offer);
            }
            return Ok(live);
        }
        *there = None;
        let watch = Arc::<ConnectionState>::default();
        *self.state.lock().ignore_poison() = Arc::clone(&watch);
        let live = connect(&self.server, config, programs, &watch).await?;
        let live = Arc::new(live);
        let offer = listing::fetch_features(&live.peer)
            .await
            .map_err(|error| live.to_error(error))?;
        self.set_features(offer);
        *there = Some(Arc::clone(&live));
        Ok(live)
    }

    fn set_features(&self, features: ServerFeatures) {
        *self.features.lock().ignore_poison() = Some(Arc::new(features));
    }

    /// Drops the `connection`, which is no longer usable.
    async fn drop_connection(&self, connection: &Arc<Connection>) {
        let mut there = self.connection.lock().await;
        if there.as_ref().is_some_and(|it| Arc::ptr_eq(it, connection)) {
            *there = None;
        }
    }

    /// Closes the connection as the protocol requires, within `timeout`.
    pub(super) async fn close(&self, timeout: Duration) {
        // A connection that is still being established is ended by its own task.
        let Ok(mut there) = self.connection.try_lock() else {
            return;
        };
        let Some(live) = there.take() else { return };
        let running = live.service.lock().ignore_poison().take();
        if let Some(mut running) = running {
            // The result does not matter: nothing more can be done.
            drop(running.close_with_timeout(timeout).await);
        }
    }
}

/// Marks the lists as stale again on drop, for a refresh that was interrupted.
struct RestoreStale<'w>(&'w ConnectionState);

impl Drop for RestoreStale<'_> {
    fn drop(&mut self) {
        self.0.is_stale.store(true, Ordering::SeqCst);
    }
}

async fn connect(
    server: &McpServer,
    config: &ClientConfig,
    programs: &Arc<RunningPrograms>,
    state: &Arc<ConnectionState>,
) -> Result<Connection, McpError> {
    let host = RequestHandler {
        server: server.name.clone(),
        state: Arc::clone(state),
        elicitation: config.elicitation.clone(),
    };
    match &server.transport {
        ServerTransport::Program { .. } => {
            let (server, ground) = (server.clone(), config.clone());
            let (programs, its) = (Arc::clone(programs), Arc::clone(state));
            let started =
                spawn_blocking(move || start_program(&server, &ground, &programs, &its)).await;
            let no_thread = |error| McpError::Unreachable(format!("start a thread: {error}"));
            handshake(host, started.map_err(no_thread)??, true).await
        }
        ServerTransport::Http(remote) => {
            let far = HttpTransport::new(remote, &config.env, config.offline, state)?;
            handshake(host, http::transport(far, remote), false).await
        }
        ServerTransport::Sse(remote) => {
            let far = HttpTransport::new(remote, &config.env, config.offline, state)?;
            let stream = sse::SseTransport::open(far, &remote.url, state).await?;
            handshake(host, stream, false).await
        }
    }
}

/// Starts a server that is a local program.
fn start_program(
    server: &McpServer,
    config: &ClientConfig,
    programs: &Arc<RunningPrograms>,
    state: &Arc<ConnectionState>,
) -> Result<StdioTransport, McpError> {
    let ServerTransport::Program {
        command,
        arguments,
        env,
        directory,
    } = &server.transport
    else {
        unreachable!("only programs are started");
    };
    let name = server_file_name(&server.name);
    let root = config.paths.mcp();
    let state_dir = root.join("state").join(&name);
    let temporary = state_dir.join("tmp");
    durable_file::create_dir(&temporary)
        .map_err(|error| McpError::Unreachable(format!("{error:#}")))?;
    let directory = match directory {
        Some(directory) => config.paths.expand(directory),
        None => state_dir.clone(),
    };
    if !directory.is_dir() {
        let words = format!("its `cwd` `{}` is not a directory", directory.display());
        return Err(McpError::Unusable(words));
    }
    let mut server_env = build_environment(&config.env, env, &temporary);
    let program = resolve_program(command, &server_env, &directory, &config.paths)?;
    let fence = match (&config.sandboxes, server.is_unsandboxed) {
        (_, true) => None,
        (None, false) => {
            let words = "no sandbox is available for it";
            return Err(McpError::Unusable(words.into()));
        }
        (Some(walls), false) => {
            let grant =
                grants::resolve_grant(server, &program, &directory, &state_dir, &config.paths);
            let walled = walls.create(&grant);
            let walled = walled.map_err(|error| match error.kind() {
                ErrorKind::InvalidInput => McpError::Unusable(error.to_string()),
                _ => McpError::Unreachable(format!("create its sandbox: {error}")),
            })?;
            let is_listed = |name: &str| env.iter().any(|(listed, _)| listed == name);
            for (name, value) in walled.env {
                if !is_listed(&name) {
                    server_env.retain(|(other, _)| *other != name);
                    server_env.push((name, value));
                }
            }
            let mut fence = walled.sandbox;
            // The sandbox cannot allow one network address and deny another.
            fence.net &= !config.offline;
            Some(fence)
        }
    };
    let spec = ServerSpec {
        name: server.name.clone(),
        program,
        arguments: arguments.clone(),
        directory,
        env: server_env,
        sandbox: fence,
    };
    let log = root.join("logs").join(format!("{name}.log"));
    let walls = config.sandboxes.clone();
    StdioTransport::start(&spec, log, (programs, walls), state)
}

/// Performs the MCP handshake.
async fn handshake<T>(
    host: RequestHandler,
    transport: T,
    is_program: bool,
) -> Result<Connection, McpError>
where
    T: Transport<RoleClient> + 'static,
{
    let watch = &Arc::clone(&host.state);
    let begun = serve_client(host, InstrumentedTransport::new(transport, watch)).await;
    let running = begun.map_err(|error| match error {
        ClientInitializeError::TransportError { error, .. } => watch
            .end_reason()
            .unwrap_or_else(|| from_transport_error(&error)),
        ClientInitializeError::JsonRpcError(error) => McpError::Unreachable(format!(
            "MCP handshake failed: {}",
            one_line(&error.message)
        )),
        ClientInitializeError::ConnectionClosed(_) => match watch.end_reason() {
            Some(McpError::Broken(words)) => McpError::Unreachable(words),
            Some(why) => why,
            None => McpError::Unreachable("it exited before the MCP handshake".into()),
        },
        _ => McpError::Broken("unexpected response to the MCP handshake".into()),
    })?;
    Ok(Connection {
        peer: running.peer().clone(),
        service: Mutex::new(Some(running)),
        state: Arc::clone(watch),
        is_program,
    })
}

impl Connection {
    fn is_closed(&self) -> bool {
        self.peer.is_transport_closed() || self.state.end_reason().is_some()
    }

    /// Sends a request and waits for the answer.
    async fn send(
        &self,
        request: &ServerRequest,
        on_progress: &mut Option<OnProgress>,
        mut cancel: CancelReceiver,
    ) -> Result<ServerAnswer, RequestError> {
        let options = PeerRequestOptions::no_options();
        let sent = self
            .peer
            .send_request_with_option(request.to_client_request(), options)
            .await;
        let mut handle = sent.map_err(|error| RequestError::NotSent(self.to_error(error)))?;
        let (id, token) = (handle.id.clone(), handle.progress_token.clone());
        let listening = on_progress
            .take()
            .map(|say| ProgressSubscription::new(&self.state, &token, say));
        let result = tokio::select! {
            result = &mut handle.rx => result.unwrap_or(Err(ServiceError::TransportClosed)),
            reason = cancelled(&mut cancel) => {
                let told = handle.cancel(Some(reason.to_owned()));
                // The request is abandoned, so the result does not matter.
                drop(tokio::time::timeout(CANCEL_SEND_TIMEOUT, told).await);
                return Err(RequestError::Failed(McpError::TimedOut(reason.to_owned())));
            }
        };
        let back = listening.map(ProgressSubscription::unsubscribe);
        // A signal ended the exchange before the waiting thread noticed the signal.
        if matches!(result, Err(ServiceError::TransportSend(_))) && signal::check().is_err() {
            let told = handle.cancel(Some("the run is ending".to_owned()));
            drop(tokio::time::timeout(CANCEL_SEND_TIMEOUT, told).await);
            return Err(RequestError::Failed(McpError::TimedOut(
                "the request was cancelled".into(),
            )));
        }
        match result {
            Ok(result) => {
                let result = decode::to_value(result);
                // This copies a possibly large answer on the only runtime thread, which delays other requests.
                Ok(request.decode_answer(&result))
            }
            Err(error) => {
                let was_sent = self.state.was_sent(&id);
                let failed = match &error {
                    ServiceError::TransportClosed if was_sent => self.interrupted_error(),
                    // The message was not fully written.
                    ServiceError::TransportSend(_)
                        if self.is_program && self.closes_soon().await =>
                    {
                        *on_progress = back.flatten();
                        return Err(RequestError::NotSent(self.to_error(error)));
                    }
                    _ if !was_sent => {
                        *on_progress = back.flatten();
                        return Err(RequestError::NotSent(self.to_error(error)));
                    }
                    _ => self.to_error(error),
                };
                Err(RequestError::Failed(failed))
            }
        }
    }

    /// True if the connection has ended, or ends within 300 ms.
    async fn closes_soon(&self) -> bool {
        for _ in 0..30 {
            if self.is_closed() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// The error for a connection that ended while an answer was pending.
    fn interrupted_error(&self) -> McpError {
        let why = match self.state.end_reason() {
            Some(McpError::Broken(words)) => words,
            Some(why) => return why,
            None => "the response was incomplete".into(),
        };
        McpError::Broken(format!("{why}; the request may have taken effect"))
    }

    fn to_error(&self, error: ServiceError) -> McpError {
        match error {
            ServiceError::McpError(error) => McpError::Refused(match one_line(&error.message) {
                words if words.is_empty() => format!("error {}", error.code.0),
                words => words,
            }),
            ServiceError::TransportSend(error) => from_transport_error(&error),
            ServiceError::TransportClosed => match self.state.end_reason() {
                Some(why) => why,
                None => McpError::Broken("the connection ended".into()),
            },
            ServiceError::Cancelled { .. } => {
                McpError::TimedOut("the request was cancelled".into())
            }
            _ => McpError::Broken("unexpected response".into()),
        }
    }
}

/// Waits for cancellation and returns the reason.
async fn cancelled(cancel: &mut CancelReceiver) -> &'static str {
    match cancel.wait_for(Option::is_some).await {
        Ok(reason) => reason.unwrap_or_default(),
        Err(_) => "the request was abandoned",
    }
}

/// Forwards the progress of a request until it is dropped.
struct ProgressSubscription<'w> {
    state: &'w ConnectionState,
    token: rmcp::model::ProgressToken,
}

impl<'w> ProgressSubscription<'w> {
    fn new(
        state: &'w ConnectionState,
        token: &rmcp::model::ProgressToken,
        on_progress: OnProgress,
    ) -> Self {
        state.subscribe(token.clone(), on_progress);
        Self {
            state,
            token: token.clone(),
        }
    }

    /// Returns the receiver of the progress messages.
    fn unsubscribe(self) -> Option<OnProgress> {
        self.state.unsubscribe(&self.token)
    }
}

impl Drop for ProgressSubscription<'_> {
    fn drop(&mut self) {
        drop(self.state.unsubscribe(&self.token));
    }
}

/// Converts the error of a failed send.
fn from_transport_error(error: &DynamicTransportError) -> McpError {
    let inner = error.error.as_ref();
    if let Some(failed) = inner.downcast_ref::<McpError>() {
        return failed.clone();
    }
    match inner.downcast_ref::<StreamableHttpError<McpError>>() {
        Some(StreamableHttpError::Client(failed)) => failed.clone(),
        Some(StreamableHttpError::SessionExpired | StreamableHttpError::SessionRecoveryTimeout) => {
            McpError::Broken("its session expired and could not be renewed".into())
        }
        _ => McpError::Broken(one_line(&inner.to_string())),
    }
}
