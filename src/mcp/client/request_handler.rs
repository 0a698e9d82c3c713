//! The client's side of a connection: the requests and notifications that it accepts from a server. A server may ping,
//! report progress, announce changed lists, and request user input if a user is present. It gets no access to our model
//! (sampling) and learns nothing about our files (roots).

#![expect(
    deprecated,
    reason = "the protocol will drop logging and sampling, but servers use the one, and the other has to be refused"
)]

use super::config::ElicitationHandler;
use super::connection_state::{ConnectionState, one_line};
use super::decode;
use super::runtime::spawn_blocking;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestMethod, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability, Implementation,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct RequestHandler {
    pub(super) server: String,
    pub(super) state: Arc<ConnectionState>,
    pub(super) elicitation: Option<Arc<dyn ElicitationHandler>>,
}

/// Counts a question as open while the user is answering it.
struct OpenQuestion(Arc<ConnectionState>);

impl OpenQuestion {
    fn new(state: &Arc<ConnectionState>) -> Self {
        state.open_questions.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(state))
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.0.open_questions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RequestHandler {
    fn mark_stale(&self) {
        self.state.is_stale.store(true, Ordering::SeqCst);
    }

    /// Asks the user. Returns `None` if no user is present, the user declines, or the server cancels the request.
    async fn ask_user(
        &self,
        message: String,
        schema: Value,
        context: &RequestContext<RoleClient>,
    ) -> Option<Value> {
        let answers = Arc::clone(self.elicitation.as_ref()?);
        let server = self.server.clone();
        let asking = OpenQuestion::new(&self.state);
        let asked = spawn_blocking(move || {
            let _asking = asking;
            answers.ask_user(&server, &message, &schema)
        });
        let entered = tokio::select! {
            entered = asked => entered.ok().flatten(),
            () = context.ct.cancelled() => None,
        };
        entered.map(Value::Object)
    }
}

impl ClientHandler for RequestHandler {
    fn get_info(&self) -> ClientConfig {
        let mut can = ClientCapabilities::default();
        if self.elicitation.is_some() {
            let form = FormElicitationCapability::new();
            can.elicitation = Some(ElicitationCapability::new().with_form(form));
        }
        let us = Implementation::new("nanobot", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(can, us).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        log::debug!(target: "mcp", "{}: sampling request denied", self.server);
        let mut error = ErrorData::method_not_found::<CreateMessageRequestMethod>();
        error.message = "servers may not use the model of this client".into();
        Err(error)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let declined = ElicitResult::new(ElicitationAction::Decline);
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = request
        else {
            log::debug!(target: "mcp", "{}: URL elicitation declined", self.server);
            return Ok(declined);
        };
        let form = serde_json::to_value(requested_schema)
            .map_err(|error| ErrorData::new(ErrorCode::INVALID_PARAMS, error.to_string(), None))?;
        let entered = self.ask_user(message, form, &context).await;
        Ok(match entered {
            Some(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
            None => declined,
        })
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let words =
            decode::format_progress(params.progress, params.total, params.message.as_deref());
        let words = one_line(&words);
        self.state.report_progress(&params.progress_token, words);
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let words = match &params.data {
            Value::String(text) => one_line(text),
            other => one_line(&other.to_string()),
        };
        log::debug!(target: "mcp", "{}: {words}", self.server);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.mark_stale();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.mark_stale();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.mark_stale();
    }
}
