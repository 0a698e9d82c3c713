//! Calls of Slack's Web API, and the errors of its responses.

use crate::service_client::{ServiceClient, ServiceRequest};
use crate::setup::ChannelSetup;
use crate::{ChannelError, ChannelResult};
use anyhow::Result;
use nanobot_net::web_url::percent_encode;
use nanobot_os::secret::Secret;
use serde_json::Value;

/// Hosts of files, besides that of the API. The token is sent to no other.
const FILE_HOSTS: &[&str] = &["slack.com"];
/// Items of a page of a list, as Slack recommends.
pub(super) const PAGE_ITEMS: usize = 200;

/// The Web API with one token.
pub(super) struct WebApi {
    pub(super) client: ServiceClient,
}

impl WebApi {
    /// Prepares the calls; nothing is sent.
    ///
    /// # Errors
    /// Status 78 for an unusable address or proxy.
    pub(super) fn new(
        setup: &ChannelSetup,
        token_key: &'static str,
        token: &Secret,
    ) -> Result<Self> {
        let client = ServiceClient::new(setup, "apiBase", token_key)?;
        Ok(Self { client: client.with_bearer(token).with_hosts(FILE_HOSTS) })
    }

    /// Calls a method that reads.
    pub(super) fn read(&self, method: &str, arguments: &[(&str, &str)]) -> ChannelResult<Value> {
        let arguments =
            arguments.iter().map(|(name, value)| format!("{name}={}", percent_encode(value)));
        let path = format!("/{method}?{}", arguments.collect::<Vec<_>>().join("&"));
        self.exchange(&ServiceRequest::get(&path))
    }

    /// Calls a method that reads a list, page by page, until a page has `is_enough`. Returns the items of `member`.
    pub(super) fn read_pages(
        &self,
        method: &str,
        arguments: &[(&str, &str)],
        member: &str,
        is_enough: &dyn Fn(&[Value]) -> bool,
    ) -> ChannelResult<Vec<Value>> {
        let limit = PAGE_ITEMS.to_string();
        let (mut all_items, mut cursor) = (Vec::new(), String::new());
        loop {
            let mut arguments = arguments.to_vec();
            arguments.push(("limit", &limit));
            if !cursor.is_empty() {
                arguments.push(("cursor", &cursor));
            }
            let page = self.read(method, &arguments)?;
            let items = self.client.list_of(&page[member])?;
            let is_last = items.is_empty() || is_enough(items);
            all_items.extend(items.iter().cloned());
            let next = page["response_metadata"]["next_cursor"].as_str();
            match next.filter(|next| !next.is_empty() && !is_last && *next != cursor) {
                Some(next) => cursor = next.to_owned(),
                None => return Ok(all_items),
            }
        }
    }

    /// Calls a method that writes. It is not called again when its outcome is unknown.
    pub(super) fn write(&self, method: &str, body: &Value) -> ChannelResult<Value> {
        let (path, body) = (format!("/{method}"), body.to_string().into_bytes());
        self.exchange(
            &ServiceRequest::post(&path).body("application/json; charset=utf-8", body).once(),
        )
    }

    fn exchange(&self, request: &ServiceRequest<'_>) -> ChannelResult<Value> {
        let body = self.client.exchange(request)?;
        match body["ok"].as_bool() {
            Some(true) => Ok(body),
            Some(false) => Err(self.to_channel_error(&body)),
            None => Err(self.client.unexpected_response()),
        }
    }

    /// The error of a response with `ok: false`.
    fn to_channel_error(&self, body: &Value) -> ChannelError {
        let cause = body["error"].as_str().unwrap_or("unknown error").to_owned();
        match cause.as_str() {
            "invalid_auth"
            | "not_authed"
            | "token_revoked"
            | "token_expired"
            | "account_inactive"
            | "not_allowed_token_type"
            | "no_permission" => self.client.token_rejected(&cause),
            "missing_scope" => {
                let needed = body["needed"].as_str().unwrap_or_default();
                ChannelError::Misconfigured(format!(
                    "the app lacks the scope `{needed}`: add it, and install the app again"
                ))
            }
            "ratelimited" | "rate_limited" => ChannelError::rate_limited(cause),
            "internal_error" | "fatal_error" | "service_unavailable" | "request_timeout" => {
                ChannelError::Unavailable(cause)
            }
            "cannot_dm_bot" | "messages_tab_disabled" | "restricted_action" | "user_disabled" => {
                ChannelError::RecipientRefused(cause)
            }
            _ => ChannelError::Undeliverable(cause),
        }
    }
}
