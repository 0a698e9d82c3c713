//! The slot of one server. It is empty until the server is needed, then holds one connection that all calls share. A
//! connection that has ended is replaced on the next call, and a call that never reached the server is repeated once.

use super::config::ClientConfig;
use super::grants;
use super::host::Host;
use super::http::{self, Far};
use super::listing;
use super::said;
use super::sse;
use super::stdio::{Programs, Streams};
use super::surroundings::{environment, file_name, program};
use super::thread::{Say, apart};
use super::watch::{Watch, Watched, one_line};
use crate::mcp::offer::{Answer, Failed, Offer};
use crate::settings::servers::{Reached, Server};
use crate::sys::process::server::Spec;
use crate::sys::signal;
use crate::sys::store;
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
const LAST_WORD: Duration = Duration::from_secs(1);
/// Signals cancellation of a request, with the reason.
pub(super) type Cancel = Receiver<Option<&'static str>>;

/// The slot of a server.
pub(super) struct Berth {
    pub(super) server: Server,
    live: tokio::sync::Mutex<Option<Arc<Live>>>,
    /// The state of the current connection, or of the one being established.
    watch: Mutex<Arc<Watch>>,
    newest: Mutex<Option<Arc<Offer>>>,
}

/// A connection.
struct Live {
    peer: Peer<RoleClient>,
    running: Mutex<Option<RunningService<RoleClient, Host>>>,
    watch: Arc<Watch>,
    /// True for a local program: a message that was not fully written to it was not received.
    is_program: bool,
}

/// A request to a server.
#[derive(Clone)]
pub(super) enum Wish {
    Call {
        tool: String,
        arguments: Map<String, Value>,
        /// The call is made only if the server still offers what is in this offer.
        offer: Arc<Offer>,
    },
    Read(String),
    Prompt(String, Map<String, Value>),
}

/// The reason why there is no answer.
enum Lost {
    /// The server received nothing of the request.
    Unsent(Failed),
    Failed(Failed),
}

impl Wish {
    fn request(&self) -> ClientRequest {
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

    fn answer(&self, result: &Value) -> Answer {
        match self {
            Self::Call { .. } => said::called(result),
            Self::Read(_) => said::read(result),
            Self::Prompt(..) => said::prompted(result),
        }
    }
}

impl Berth {
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            live: tokio::sync::Mutex::default(),
            watch: Mutex::default(),
            newest: Mutex::default(),
        }
    }

    /// Returns the newest offer of the server, without asking it.
    pub(super) fn newest(&self) -> Option<Arc<Offer>> {
        self.newest.lock().ignore_poison().clone()
    }

    /// True while the user is answering a question of the server.
    pub(super) fn is_asking(&self) -> bool {
        let watch = self.watch.lock().ignore_poison();
        watch.asking.load(Ordering::SeqCst) > 0
    }

    /// Returns the reason why the connection ended, or the last line of the server's standard error.
    pub(super) fn last_words(&self) -> String {
        let watch = self.watch.lock().ignore_poison();
        watch.last_words()
    }

    /// Returns what the server offers now, connecting to it if necessary.
    pub(super) async fn reach(
        &self,
        ground: &ClientConfig,
        programs: &Arc<Programs>,
    ) -> Result<Arc<Offer>, Failed> {
        self.up(ground, programs).await?;
        let gone = || Failed::Broken("it exited immediately".into());
        self.newest().ok_or_else(gone)
    }

    /// Sends the request and returns the answer, unless `cancel` fires first.
    pub(super) async fn ask(
        &self,
        ground: &ClientConfig,
        programs: &Arc<Programs>,
        wish: &Wish,
        mut say: Option<Say>,
        cancel: Cancel,
    ) -> Result<Answer, Failed> {
        let live = self.up(ground, programs).await?;
        self.still_offers(wish)?;
        match live.ask(wish, &mut say, cancel.clone()).await {
            Ok(answer) => Ok(answer),
            Err(Lost::Failed(failed)) => Err(failed),
            Err(Lost::Unsent(_)) => {
                self.forget(&live).await;
                let live = self.up(ground, programs).await?;
                self.still_offers(wish)?;
                match live.ask(wish, &mut say, cancel).await {
                    Ok(answer) => Ok(answer),
                    Err(Lost::Failed(failed) | Lost::Unsent(failed)) => Err(failed),
                }
            }
        }
    }

    /// Fails if a tool is to be called from an offer that is no longer the newest.
    fn still_offers(&self, wish: &Wish) -> Result<(), Failed> {
        match (wish, self.newest()) {
            (Wish::Call { offer, .. }, Some(newest)) if !Arc::ptr_eq(offer, &newest) => {
                Err(Failed::Altered)
            }
            _ => Ok(()),
        }
    }

    /// Returns the connection with current lists, and establishes it if there is none.
    async fn up(
        &self,
        ground: &ClientConfig,
        programs: &Arc<Programs>,
    ) -> Result<Arc<Live>, Failed> {
        if let Some(words) = &self.server.unusable {
            return Err(Failed::Unusable(words.clone()));
        }
        let mut there = self.live.lock().await;
        if let Some(live) = there.as_ref().filter(|live| !live.is_over()) {
            let live = Arc::clone(live);
            if live.watch.is_stale.swap(false, Ordering::SeqCst) {
                // If this is cancelled halfway, the next caller must read the lists again.
                let unless_done = StaleAgain(&live.watch);
                let offer = listing::offer(&live.peer)
                    .await
                    .map_err(|error| live.failed(error))?;
                std::mem::forget(unless_done);
                self.learn(offer);
            }
            return Ok(live);
        }
        *there = None;
        let watch = Arc::<Watch>::default();
        *self.watch.lock().ignore_poison() = Arc::clone(&watch);
        let live = connect(&self.server, ground, programs, &watch).await?;
        let live = Arc::new(live);
        let offer = listing::offer(&live.peer)
            .await
            .map_err(|error| live.failed(error))?;
        self.learn(offer);
        *there = Some(Arc::clone(&live));
        Ok(live)
    }

    fn learn(&self, offer: Offer) {
        *self.newest.lock().ignore_poison() = Some(Arc::new(offer));
    }

    /// Drops the `connection`, which is no longer usable.
    async fn forget(&self, live: &Arc<Live>) {
        let mut there = self.live.lock().await;
        if there.as_ref().is_some_and(|it| Arc::ptr_eq(it, live)) {
            *there = None;
        }
    }

    /// Closes the connection as the protocol requires, within `timeout`.
    pub(super) async fn end(&self, limit: Duration) {
        // A connection that is still being established is ended by its own task.
        let Ok(mut there) = self.live.try_lock() else {
            return;
        };
        let Some(live) = there.take() else { return };
        let running = live.running.lock().ignore_poison().take();
        if let Some(mut running) = running {
            // The result does not matter: nothing more can be done.
            drop(running.close_with_timeout(limit).await);
        }
    }
}

/// Marks the lists as stale again on drop, for a refresh that was interrupted.
struct StaleAgain<'w>(&'w Watch);

impl Drop for StaleAgain<'_> {
    fn drop(&mut self) {
        self.0.is_stale.store(true, Ordering::SeqCst);
    }
}

async fn connect(
    server: &Server,
    ground: &ClientConfig,
    programs: &Arc<Programs>,
    watch: &Arc<Watch>,
) -> Result<Live, Failed> {
    let host = Host {
        server: server.name.clone(),
        watch: Arc::clone(watch),
        answers: ground.answers.clone(),
    };
    match &server.reached {
        Reached::Program { .. } => {
            let (server, ground) = (server.clone(), ground.clone());
            let (programs, its) = (Arc::clone(programs), Arc::clone(watch));
            let started = apart(move || start(&server, &ground, &programs, &its)).await;
            let no_thread = |error| Failed::Unreachable(format!("start a thread: {error}"));
            shake(host, started.map_err(no_thread)??, true).await
        }
        Reached::Http(remote) => {
            let far = Far::new(remote, &ground.env, ground.offline, watch)?;
            shake(host, http::transport(far, remote), false).await
        }
        Reached::Sse(remote) => {
            let far = Far::new(remote, &ground.env, ground.offline, watch)?;
            let stream = sse::Stream::open(far, &remote.url, watch).await?;
            shake(host, stream, false).await
        }
    }
}

/// Starts a server that is a local program.
fn start(
    server: &Server,
    ground: &ClientConfig,
    programs: &Arc<Programs>,
    watch: &Arc<Watch>,
) -> Result<Streams, Failed> {
    let Reached::Program {
        command,
        arguments,
        env,
        directory,
    } = &server.reached
    else {
        unreachable!("only programs are started");
    };
    let name = file_name(&server.name);
    let root = ground.paths.mcp();
    let state_dir = root.join("state").join(&name);
    let temporary = state_dir.join("tmp");
    store::create_dir(&temporary).map_err(|error| Failed::Unreachable(format!("{error:#}")))?;
    let directory = match directory {
        Some(directory) => ground.paths.expand(directory),
        None => state_dir.clone(),
    };
    if !directory.is_dir() {
        let words = format!("its `cwd` `{}` is not a directory", directory.display());
        return Err(Failed::Unusable(words));
    }
    let mut server_env = environment(&ground.env, env, &temporary);
    let program = program(command, &server_env, &directory, &ground.paths)?;
    let fence = match (&ground.walls, server.unfenced) {
        (_, true) => None,
        (None, false) => {
            let words = "no sandbox is available for it";
            return Err(Failed::Unusable(words.into()));
        }
        (Some(walls), false) => {
            let grant = grants::grant(server, &program, &directory, &state_dir, &ground.paths);
            let walled = walls.around(&grant);
            let walled = walled.map_err(|error| match error.kind() {
                ErrorKind::InvalidInput => Failed::Unusable(error.to_string()),
                _ => Failed::Unreachable(format!("create its sandbox: {error}")),
            })?;
            let is_listed = |name: &str| env.iter().any(|(listed, _)| listed == name);
            for (name, value) in walled.env {
                if !is_listed(&name) {
                    server_env.retain(|(other, _)| *other != name);
                    server_env.push((name, value));
                }
            }
            let mut fence = walled.fence;
            // The sandbox cannot allow one network address and deny another.
            fence.net &= !ground.offline;
            Some(fence)
        }
    };
    let spec = Spec {
        name: server.name.clone(),
        program,
        arguments: arguments.clone(),
        directory,
        env: server_env,
        fence,
    };
    let log = root.join("logs").join(format!("{name}.log"));
    let walls = ground.walls.clone();
    Streams::start(&spec, log, (programs, walls), watch)
}

/// Performs the MCP handshake.
async fn shake<T>(host: Host, transport: T, is_program: bool) -> Result<Live, Failed>
where
    T: Transport<RoleClient> + 'static,
{
    let watch = &Arc::clone(&host.watch);
    let begun = serve_client(host, Watched::new(transport, watch)).await;
    let running = begun.map_err(|error| match error {
        ClientInitializeError::TransportError { error, .. } => {
            watch.why().unwrap_or_else(|| of_transport(&error))
        }
        ClientInitializeError::JsonRpcError(error) => Failed::Unreachable(format!(
            "MCP handshake failed: {}",
            one_line(&error.message)
        )),
        ClientInitializeError::ConnectionClosed(_) => match watch.why() {
            Some(Failed::Broken(words)) => Failed::Unreachable(words),
            Some(why) => why,
            None => Failed::Unreachable("it exited before the MCP handshake".into()),
        },
        _ => Failed::Broken("unexpected response to the MCP handshake".into()),
    })?;
    Ok(Live {
        peer: running.peer().clone(),
        running: Mutex::new(Some(running)),
        watch: Arc::clone(watch),
        is_program,
    })
}

impl Live {
    fn is_over(&self) -> bool {
        self.peer.is_transport_closed() || self.watch.why().is_some()
    }

    /// Sends a request and waits for the answer.
    async fn ask(
        &self,
        wish: &Wish,
        say: &mut Option<Say>,
        mut cancel: Cancel,
    ) -> Result<Answer, Lost> {
        let options = PeerRequestOptions::no_options();
        let sent = self
            .peer
            .send_request_with_option(wish.request(), options)
            .await;
        let mut handle = sent.map_err(|error| Lost::Unsent(self.failed(error)))?;
        let (id, token) = (handle.id.clone(), handle.progress_token.clone());
        let listening = say
            .take()
            .map(|say| Listening::new(&self.watch, &token, say));
        let result = tokio::select! {
            result = &mut handle.rx => result.unwrap_or(Err(ServiceError::TransportClosed)),
            reason = nobody_waits(&mut cancel) => {
                let told = handle.cancel(Some(reason.to_owned()));
                // The request is abandoned, so the result does not matter.
                drop(tokio::time::timeout(LAST_WORD, told).await);
                return Err(Lost::Failed(Failed::Late(reason.to_owned())));
            }
        };
        let back = listening.map(Listening::end);
        // A signal ended the exchange before the waiting thread noticed the signal.
        if matches!(result, Err(ServiceError::TransportSend(_))) && signal::check().is_err() {
            let told = handle.cancel(Some("the run is ending".to_owned()));
            drop(tokio::time::timeout(LAST_WORD, told).await);
            return Err(Lost::Failed(Failed::Late(
                "the request was cancelled".into(),
            )));
        }
        match result {
            Ok(result) => {
                let result = said::to_value(result);
                // This copies a possibly large answer on the only runtime thread, which delays other requests.
                Ok(wish.answer(&result))
            }
            Err(error) => {
                let was_sent = self.watch.was_sent(&id);
                let failed = match &error {
                    ServiceError::TransportClosed if was_sent => self.broken(),
                    // The message was not fully written.
                    ServiceError::TransportSend(_)
                        if self.is_program && self.peer_ended().await =>
                    {
                        *say = back.flatten();
                        return Err(Lost::Unsent(self.failed(error)));
                    }
                    _ if !was_sent => {
                        *say = back.flatten();
                        return Err(Lost::Unsent(self.failed(error)));
                    }
                    _ => self.failed(error),
                };
                Err(Lost::Failed(failed))
            }
        }
    }

    /// True if the connection has ended, or ends within 300 ms.
    async fn peer_ended(&self) -> bool {
        for _ in 0..30 {
            if self.is_over() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// The error for a connection that ended while an answer was pending.
    fn broken(&self) -> Failed {
        let why = match self.watch.why() {
            Some(Failed::Broken(words)) => words,
            Some(why) => return why,
            None => "the response was incomplete".into(),
        };
        Failed::Broken(format!("{why}; the request may have taken effect"))
    }

    fn failed(&self, error: ServiceError) -> Failed {
        match error {
            ServiceError::McpError(error) => Failed::Refused(match one_line(&error.message) {
                words if words.is_empty() => format!("error {}", error.code.0),
                words => words,
            }),
            ServiceError::TransportSend(error) => of_transport(&error),
            ServiceError::TransportClosed => match self.watch.why() {
                Some(why) => why,
                None => Failed::Broken("the connection ended".into()),
            },
            ServiceError::Cancelled { .. } => Failed::Late("the request was cancelled".into()),
            _ => Failed::Broken("unexpected response".into()),
        }
    }
}

/// Waits for cancellation and returns the reason.
async fn nobody_waits(cancel: &mut Cancel) -> &'static str {
    match cancel.wait_for(Option::is_some).await {
        Ok(reason) => reason.unwrap_or_default(),
        Err(_) => "the request was abandoned",
    }
}

/// Forwards the progress of a request until it is dropped.
struct Listening<'w> {
    watch: &'w Watch,
    token: rmcp::model::ProgressToken,
}

impl<'w> Listening<'w> {
    fn new(watch: &'w Watch, token: &rmcp::model::ProgressToken, say: Say) -> Self {
        watch.listen(token.clone(), say);
        Self {
            watch,
            token: token.clone(),
        }
    }

    /// Returns the receiver of the progress messages.
    fn end(self) -> Option<Say> {
        self.watch.unlisten(&self.token)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        drop(self.watch.unlisten(&self.token));
    }
}

/// Converts the error of a failed send.
fn of_transport(error: &DynamicTransportError) -> Failed {
    let inner = error.error.as_ref();
    if let Some(failed) = inner.downcast_ref::<Failed>() {
        return failed.clone();
    }
    match inner.downcast_ref::<StreamableHttpError<Failed>>() {
        Some(StreamableHttpError::Client(failed)) => failed.clone(),
        Some(StreamableHttpError::SessionExpired | StreamableHttpError::SessionRecoveryTimeout) => {
            Failed::Broken("its session expired and could not be renewed".into())
        }
        _ => Failed::Broken(one_line(&inner.to_string())),
    }
}
