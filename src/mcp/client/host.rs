//! The client's side of a connection: the requests and notifications that it accepts from a server. A server may ping,
//! report progress, announce changed lists, and request user input if a user is present. It gets no access to our model
//! (sampling) and learns nothing about our files (roots).

#![expect(
    deprecated,
    reason = "the protocol will drop logging and sampling, but servers use the one, and the other has to be refused"
)]

use super::config::ElicitationHandler;
use super::said;
use super::thread::apart;
use super::watch::{Watch, one_line};
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

pub(super) struct Host {
    pub(super) server: String,
    pub(super) watch: Arc<Watch>,
    pub(super) answers: Option<Arc<dyn ElicitationHandler>>,
}

/// Counts a question as open while the user is answering it.
struct Asking(Arc<Watch>);

impl Asking {
    fn new(watch: &Arc<Watch>) -> Self {
        watch.asking.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(watch))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Host {
    fn stale(&self) {
        self.watch.is_stale.store(true, Ordering::SeqCst);
    }

    /// Asks the user. Returns `None` if no user is present, the user declines, or the server cancels the request.
    async fn enter(
        &self,
        words: String,
        form: Value,
        context: &RequestContext<RoleClient>,
    ) -> Option<Value> {
        let answers = Arc::clone(self.answers.as_ref()?);
        let server = self.server.clone();
        let asking = Asking::new(&self.watch);
        let asked = apart(move || {
            let _asking = asking;
            answers.enter(&server, &words, &form)
        });
        let entered = tokio::select! {
            entered = asked => entered.ok().flatten(),
            () = context.ct.cancelled() => None,
        };
        entered.map(Value::Object)
    }
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let mut can = ClientCapabilities::default();
        if self.answers.is_some() {
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
        let entered = self.enter(message, form, &context).await;
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
        let words = said::progress(params.progress, params.total, params.message.as_deref());
        let words = one_line(&words);
        self.watch.progress(&params.progress_token, words);
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
        self.stale();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.stale();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.stale();
    }
}
