//! Calls of the Bot API: addresses, JSON, uploads, and the refusals of the service.

use crate::ChannelError;
use crate::service_client::{ServiceClient, ServiceRequest, ServiceResponse};
use crate::setup::ChannelSetup;
use crate::upload::UploadFile;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::secret::Secret;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// The Bot API at an address, with a token.
pub(super) struct Api {
    pub(super) client: ServiceClient,
    token: Secret,
}

/// The failure of a call.
pub(super) enum ApiError {
    /// The service refuses the call.
    Refused(ApiRefusal),
    Failed(ChannelError),
}

/// A response that refuses a call.
pub(super) struct ApiRefusal {
    status: u16,
    cause: String,
    /// The id that a group has as a supergroup.
    pub(super) migrated_to: Option<i64>,
}

impl From<ChannelError> for ApiError {
    fn from(error: ChannelError) -> Self {
        Self::Failed(error)
    }
}

impl ApiRefusal {
    fn new(response: &ServiceResponse) -> Self {
        let body = response.json();
        Self {
            status: response.status,
            cause: response.describe(),
            migrated_to: body["parameters"]["migrate_to_chat_id"].as_i64(),
        }
    }

    /// True if a message already is as a call would change it.
    pub(super) fn is_about_unchanged_text(&self) -> bool {
        self.status == 400 && self.cause.contains("message is not modified")
    }

    /// True if the service cannot parse the markup of a text.
    pub(super) fn is_about_markup(&self) -> bool {
        self.status == 400 && self.cause.contains("can't parse entities")
    }
}

/// The error of a part that was not sent.
impl From<ApiError> for ChannelError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Failed(error) => error,
            ApiError::Refused(ApiRefusal { status, cause, .. }) => match status {
                403 => Self::RecipientRefused(cause),
                404 | 409 => Self::Misconfigured(cause),
                _ => Self::Undeliverable(cause),
            },
        }
    }
}

/// The error of a call that sends nothing, with its status.
impl From<ApiError> for anyhow::Error {
    fn from(error: ApiError) -> Self {
        let ApiRefusal { status, cause, .. } = match error {
            ApiError::Failed(error) => return error.into(),
            ApiError::Refused(refusal) => refusal,
        };
        let is_about_webhook = cause.to_lowercase().contains("webhook");
        match status {
            404 => {
                fail(Exit::Config, "`channels.telegram.token` does not have the form of a token")
            }
            409 if is_about_webhook => fail(Exit::Config, cause)
                .with_hint("the method `deleteWebhook`, if no other program needs the webhook"),
            409 => fail(Exit::TryAgain, cause)
                .with_hint("stop the other program that polls with this token"),
            403 => fail(Exit::Refused, cause),
            _ => fail(Exit::BadInput, cause),
        }
    }
}

impl Api {
    /// Prepares the calls; nothing is sent.
    ///
    /// # Errors
    /// Status 78 without a token, or with an unusable address or proxy.
    pub(super) fn new(setup: &ChannelSetup) -> Result<Self> {
        Ok(Self {
            token: setup.config.required_secret("token")?.clone(),
            client: ServiceClient::new(setup, "apiBase", "token")?,
        })
    }

    /// Asks for up to `limit` updates from `offset` on.
    ///
    /// # Errors
    /// The service cannot be reached or refuses; the status is that of a poll.
    pub(super) fn updates(&self, offset: i64, wait: Duration, limit: usize) -> Result<Vec<Value>> {
        let body = json!({
            "offset": offset,
            "limit": limit,
            "timeout": wait.as_secs(),
            "allowed_updates": ["message", "edited_message", "callback_query"],
        });
        match self
            .exchange(&ServiceRequest::post(&self.path("getUpdates")).json(&body).wait(wait))?
        {
            Value::Array(updates) => Ok(updates),
            _ => Err(self.client.unexpected_response().into()),
        }
    }

    /// Calls a method that is not called again when its outcome is unknown.
    pub(super) fn call(&self, method: &str, body: &Value) -> Result<Value, ApiError> {
        self.exchange(&ServiceRequest::post(&self.path(method)).json(body).once())
    }

    /// Calls a method whose result does not matter, once.
    pub(super) fn notify(&self, method: &str, body: &Value) {
        let path = self.path(method);
        if let Err(error) = self.client.request_once(&ServiceRequest::post(&path).json(body)) {
            log::debug!(target: "channel", "telegram: {method}: {error:#}");
        }
    }

    /// Calls a method with a file.
    pub(super) fn upload(
        &self,
        method: &str,
        field: &str,
        body: &Value,
        file: &UploadFile,
    ) -> Result<Value, ApiError> {
        let members = body.as_object().into_iter().flatten();
        let fields = members.map(|(name, value)| {
            let text = value.as_str().map(str::to_owned);
            (name.clone(), text.unwrap_or_else(|| value.to_string()))
        });
        let fields: Vec<(String, String)> = fields.collect();
        let (media_type, form) = file.to_form(&fields, field);
        self.exchange(&ServiceRequest::post(&self.path(method)).body(&media_type, form).once())
    }

    /// Downloads a file of `getFile`. Returns false if it is longer than `limit_bytes`.
    ///
    /// # Errors
    /// The service cannot be reached or refuses; the status is that of a poll.
    pub(super) fn download(
        &self,
        path: &str,
        writer: &mut dyn Write,
        limit_bytes: u64,
    ) -> Result<bool> {
        // The server chose the path. It must not lead to another host or method.
        if path.is_empty() || path.contains("..") || path.contains(['?', '#', '\\']) {
            return Err(fail(Exit::Unavailable, "`getFile` names no file"));
        }
        let path = format!("/file/bot{}/{path}", self.token.expose());
        self.client.download(&path, writer, limit_bytes)
    }

    fn path(&self, method: &str) -> String {
        format!("/bot{}/{method}", self.token.expose())
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> Result<Value, ApiError> {
        let response = self.client.request(request)?;
        let mut body = response.json();
        match (response.is_success(), body["ok"].as_bool()) {
            (true, Some(true)) => Ok(body["result"].take()),
            (false, Some(false)) => Err(ApiError::Refused(ApiRefusal::new(&response))),
            _ => Err(self.client.unexpected_response().into()),
        }
    }
}
