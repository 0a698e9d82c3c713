//! The slot of one server. It is empty until the server is needed, then holds one connection that all calls share. A
//! connection that has ended is replaced on the next call, and a call that never reached the server is repeated once.

use super::config::ClientConfig;
use super::connection::{Connection, RequestFailure, ServerRequest, Transport};
use super::connection_state::ConnectionState;
use super::http::HttpTransport;
use super::http_exchange::HttpClient;
use super::inbox::Inbox;
use super::listing;
use super::program;
use super::reply::Wait;
use super::sse::SseTransport;
use super::stdio::RunningPrograms;
use crate::oauth::renewal::ServerTokens;
use crate::oauth::token_store::login_file;
use crate::protocol::{McpError, ServerAnswer, ServerFeatures};
use nanobot_config::settings::servers::{McpServer, RemoteEndpoint, SamplingMode, ServerTransport};
use nanobot_os::clock::Clock;
use nanobot_os::signal;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Interval of the attempts to take a lock that another caller has.
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// The slot of a server.
pub(super) struct ConnectionSlot {
    pub(super) server: McpServer,
    /// Locked while a caller connects or reads the lists.
    connection: Mutex<Option<Arc<Connection>>>,
    /// The state of the current connection, or of the one being established.
    state: Mutex<Arc<ConnectionState>>,
    features: Mutex<Option<Arc<ServerFeatures>>>,
    /// Locked during a call in which the server may request replies of the model. There is one at a time, so that each
    /// such request belongs to one call.
    sampled_call: Mutex<()>,
}

/// Locks `mutex`, and calls `check` after each interval of waiting. Waiting for the lock itself could not be interrupted by
/// a signal.
fn lock_between_checks<T>(
    mutex: &Mutex<T>,
    mut check: impl FnMut() -> Result<(), McpError>,
) -> Result<MutexGuard<'_, T>, McpError> {
    loop {
        if let Some(guard) = mutex.try_lock() {
            return Ok(guard);
        }
        signal::sleep(LOCK_INTERVAL).map_err(McpError::Stopped)?;
        check()?;
    }
}

impl ConnectionSlot {
    pub(super) fn new(server: McpServer) -> Self {
        Self {
            server,
            connection: Mutex::default(),
            state: Mutex::default(),
            features: Mutex::default(),
            sampled_call: Mutex::default(),
        }
    }

    /// Returns the newest offer of the server, without asking it.
    pub(super) fn features(&self) -> Option<Arc<ServerFeatures>> {
        self.features.lock().clone()
    }

    /// Returns the last line of the server's standard error, worded as the end of a sentence.
    pub(super) fn stderr_suffix(&self) -> String {
        self.state.lock().stderr_suffix()
    }

    /// See [`ConnectionState::take_refused_path`].
    pub(super) fn take_refused_path(&self) -> Option<String> {
        self.state.lock().take_refused_path()
    }

    /// Returns the current features of the server, connecting to it if necessary.
    pub(super) fn fetch_features(
        &self,
        config: &ClientConfig,
        programs: &Arc<RunningPrograms>,
        wait: &mut Wait<'_>,
    ) -> Result<Arc<ServerFeatures>, McpError> {
        self.connected(config, programs, wait)?;
        self.features().ok_or_else(|| McpError::Broken("it exited immediately".into()))
    }

    /// Sends the request and returns the answer.
    pub(super) fn send(
        &self,
        config: &ClientConfig,
        programs: &Arc<RunningPrograms>,
        request: &ServerRequest<'_>,
        wait: &mut Wait<'_>,
    ) -> Result<ServerAnswer, McpError> {
        let connection = self.connected(config, programs, wait)?;
        self.require_current(request)?;
        let is_sampled = matches!(request, ServerRequest::Call { sampler: Some(_), .. });
        // Waiting for another call does not count towards the timeout of this one.
        let _sampled_call =
            is_sampled.then(|| lock_between_checks(&self.sampled_call, || Ok(()))).transpose()?;
        match connection.call(request, wait) {
            Ok(answer) => Ok(answer),
            Err(RequestFailure::Failed(error)) => Err(error),
            Err(RequestFailure::NotSent(_)) => {
                self.drop_connection(&connection, wait)?;
                let connection = self.connected(config, programs, wait)?;
                self.require_current(request)?;
                let answer = connection.call(request, wait);
                answer.map_err(|error| match error {
                    RequestFailure::Failed(error) | RequestFailure::NotSent(error) => error,
                })
            }
        }
    }

    /// Fails if a tool is to be called from an offer that is no longer the newest.
    fn require_current(&self, request: &ServerRequest<'_>) -> Result<(), McpError> {
        match (request, self.features()) {
            (ServerRequest::Call { features, .. }, Some(newest))
                if !Arc::ptr_eq(features, &newest) =>
            {
                Err(McpError::FeaturesChanged)
            }
            _ => Ok(()),
        }
    }

    /// Returns the connection with current lists, and establishes it if there is none.
    fn connected(
        &self,
        config: &ClientConfig,
        programs: &Arc<RunningPrograms>,
        wait: &mut Wait<'_>,
    ) -> Result<Arc<Connection>, McpError> {
        if let Some(reason) = &self.server.unusable_reason {
            return Err(McpError::Unusable(reason.clone()));
        }
        let mut slot = self.lock(wait)?;
        if let Some(connection) = slot.as_ref().filter(|connection| !connection.state.is_closed()) {
            let connection = Arc::clone(connection);
            if connection.state.is_stale.swap(false, Ordering::SeqCst) {
                let features = listing::fetch_features(&connection, wait);
                // The next caller must read the lists again.
                let is_stale = features.is_err();
                connection.state.is_stale.fetch_or(is_stale, Ordering::SeqCst);
                self.set_features(features.map_err(|error| connection.to_error(error))?);
            }
            return Ok(connection);
        }
        *slot = None;
        let connection = self.connect(config, programs, wait);
        // A signal also ends attempts that report another error.
        let connection = connection.map_err(|error| match signal::check() {
            Err(stop) => McpError::Stopped(stop),
            Ok(()) => error,
        })?;
        let features = listing::fetch_features(&connection, wait);
        self.set_features(features.map_err(|error| connection.to_error(error))?);
        Ok(Arc::clone(slot.insert(Arc::new(connection))))
    }

    /// Locks the connection.
    fn lock(
        &self,
        wait: &mut Wait<'_>,
    ) -> Result<MutexGuard<'_, Option<Arc<Connection>>>, McpError> {
        lock_between_checks(&self.connection, || {
            wait.deadline.subtract(LOCK_INTERVAL);
            if wait.deadline.is_expired() {
                Err(McpError::TimedOut("another caller is connecting".into()))
            } else {
                Ok(())
            }
        })
    }

    fn set_features(&self, features: ServerFeatures) {
        *self.features.lock() = Some(Arc::new(features));
    }

    /// Drops the `connection`, which is no longer usable.
    fn drop_connection(
        &self,
        connection: &Arc<Connection>,
        wait: &mut Wait<'_>,
    ) -> Result<(), McpError> {
        let mut slot = self.lock(wait)?;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *slot = None;
        }
        Ok(())
    }

    /// Closes the connection; see [`Transport::close`]. One that is being established is ended by its caller.
    pub(super) fn close(&self) -> Option<Receiver<()>> {
        let connection = self.connection.try_lock()?.take()?;
        connection.close()
    }

    /// The login to a remote server, if the config says that requests carry its token.
    fn tokens(
        &self,
        remote: &RemoteEndpoint,
        config: &ClientConfig,
    ) -> Result<Option<ServerTokens>, McpError> {
        if !remote.uses_login {
            return Ok(None);
        }
        let clock = Clock::from_env(&config.env);
        let clock = clock.map_err(|error| McpError::Unusable(error.to_string()))?;
        let file = login_file(&config.paths.auth(), &self.server.name);
        Ok(Some(ServerTokens::new(file, &remote.url, &clock)))
    }

    fn connect(
        &self,
        config: &ClientConfig,
        programs: &Arc<RunningPrograms>,
        wait: &mut Wait<'_>,
    ) -> Result<Connection, McpError> {
        let state = Arc::<ConnectionState>::default();
        *self.state.lock() = Arc::clone(&state);
        let inbox = Arc::new(Inbox {
            server: self.server.name.clone(),
            state: Arc::clone(&state),
            elicitation: config.elicitation.clone(),
            allows_sampling: self.server.sampling != SamplingMode::Off,
        });
        let transport: Arc<dyn Transport> = match &self.server.transport {
            ServerTransport::Program { .. } => {
                let start = signal::now();
                let transport = program::start(&self.server, config, programs, &inbox);
                wait.deadline.subtract(signal::now().saturating_sub(start));
                transport?
            }
            ServerTransport::Http(remote) => {
                let tokens = self.tokens(remote, config)?;
                let client = HttpClient::new(remote, &config.network, config.offline, tokens)?;
                HttpTransport::new(client, &remote.url, &inbox)
            }
            ServerTransport::Sse(remote) => {
                let tokens = self.tokens(remote, config)?;
                let client = HttpClient::new(remote, &config.network, config.offline, tokens)?;
                SseTransport::open(client, &remote.url, &inbox)?
            }
        };
        let mut capabilities = json!({});
        if config.elicitation.is_some() {
            capabilities["elicitation"] = json!({ "form": {} });
        }
        if self.server.sampling != SamplingMode::Off {
            capabilities["sampling"] = json!({});
        }
        Connection::open(transport, &state, &self.server, &capabilities, wait)
    }
}
