//! Calls of the Bot API: addresses, JSON, uploads, errors and retries.

use crate::channel::setup::ChannelSetup;
use crate::channel::{AttachmentKind, SendError};
use crate::error::{Exit, Stop, exit_for, fail};
use crate::sys::clock::Clock;
use crate::sys::http::{Http, HttpTimeouts};
use crate::sys::secret::{self, Secret, random_hex};
use crate::sys::signal;
use crate::sys::web_url::is_remote_cleartext;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

/// Longest wait that the service grants to one `getUpdates`.
pub(super) const MAX_POLL_TIMEOUT: Duration = Duration::from_secs(50);
/// Attempts of one call while the service is down.
const MAX_ATTEMPTS: u32 = 3;
/// Longest rate limit that a call waits for.
const MAX_RATE_LIMIT_DELAY: Duration = Duration::from_secs(60);
/// Longest answer that is read: 100 updates have some kilobytes each.
const MAX_ANSWER_BYTES: u64 = 8 << 20;
/// Largest upload (Bot API, "Sending files").
const MAX_UPLOAD_BYTES: u64 = 50_000_000;
/// Largest photo; a larger image is sent as a document.
const MAX_PHOTO_BYTES: usize = 10_000_000;
/// Time that a long poll may take beyond what it asked for.
const LONG_POLL_MARGIN: Duration = Duration::from_secs(15);
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
    total: Duration::from_secs(300),
};

/// The Bot API at an address, with a token.
pub(super) struct Api {
    base: String,
    token: Secret,
    http: Http,
    poll_http: Http,
    clock: Clock,
}

/// The failure of a call. Its text has no token.
#[derive(Debug)]
pub(super) enum ApiError {
    RateLimited {
        cause: String,
        wait: Option<Duration>,
    },
    Unavailable(String),
    TokenRejected(String),
    /// Another poll is in progress, or a webhook is set.
    Conflict {
        cause: String,
        webhook: bool,
    },
    /// The service does not do this.
    Rejected {
        code: u16,
        cause: String,
        migrated_to: Option<i64>,
    },
    Other(anyhow::Error),
}

impl ApiError {
    /// True if the service cannot parse the markup of a text.
    pub(super) fn is_markup_rejected(&self) -> bool {
        matches!(self, Self::Rejected { code: 400, cause, .. } if cause.contains("can't parse entities"))
    }
}

/// A file to upload.
pub(super) struct FilePart {
    name: String,
    bytes: Vec<u8>,
}

impl FilePart {
    /// Reads a file that is to be uploaded.
    pub(super) fn read(path: &Path) -> std::result::Result<Self, SendError> {
        let file = crate::sys::durable_file::open_existing(path)?;
        let Some(file) = file else {
            let cause = format!("`{}` does not exist", path.display());
            return Err(SendError::Other(fail(Exit::NoInput, cause)));
        };
        let mut bytes = Vec::new();
        let read = file.take(MAX_UPLOAD_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| SendError::Other(error.into()))?;
        if bytes.len() as u64 > MAX_UPLOAD_BYTES {
            let cause = format!("`{}` is larger than 50 MB", path.display());
            return Err(SendError::Undeliverable(cause));
        }
        let name = path.file_name().map(|name| name.to_string_lossy());
        let name = name.unwrap_or_default().replace(['"', '\r', '\n'], "_");
        Ok(Self { name, bytes })
    }

    /// The kind by which the service shows the file.
    pub(super) fn kind(&self) -> AttachmentKind {
        let extension = self.name.rsplit('.').next().unwrap_or_default();
        match extension.to_lowercase().as_str() {
            "jpg" | "jpeg" | "png" | "webp" if self.bytes.len() <= MAX_PHOTO_BYTES => {
                AttachmentKind::Image
            }
            "ogg" | "oga" | "opus" => AttachmentKind::Voice,
            "mp3" | "m4a" => AttachmentKind::Audio,
            "mp4" => AttachmentKind::Video,
            _ => AttachmentKind::File,
        }
    }
}

impl Api {
    /// Prepares the calls; nothing is sent.
    pub(super) fn new(setup: &ChannelSetup, token: Secret) -> Result<Self> {
        secret::register(&token);
        let base = setup.config.text("apiBase").unwrap_or_default();
        let base = base.trim_end_matches('/').to_owned();
        if is_remote_cleartext(&base) {
            return Err(fail(
                Exit::Config,
                "`channels.telegram.apiBase` must use https, except for this machine",
            ));
        }
        let client = |timeouts| {
            Http::new(timeouts, setup.offline, &setup.network)
                .with_proxy(setup.config.secret("proxy"), "`channels.telegram.proxy`")
        };
        let long_wait = MAX_POLL_TIMEOUT + LONG_POLL_MARGIN;
        Ok(Self {
            base,
            token,
            http: client(TIMEOUTS)?,
            poll_http: client(HttpTimeouts {
                first_byte: long_wait,
                ..TIMEOUTS
            })?,
            clock: setup.clock.clone(),
        })
    }

    /// Asks for updates from `offset` on.
    pub(super) fn updates(&self, offset: i64, wait: Duration, limit: usize) -> Result<Vec<Value>> {
        let body = json!({
            "offset": offset,
            "limit": limit,
            "timeout": wait.as_secs(),
            "allowed_updates": ["message"],
        });
        let updates = self.retry(|| self.request(&self.poll_http, "getUpdates", &body));
        match updates.map_err(ApiError::into_error)? {
            Value::Array(updates) => Ok(updates),
            _ => Ok(Vec::new()),
        }
    }

    /// Calls a method, and again where that helps.
    pub(super) fn call(&self, method: &str, body: &Value) -> std::result::Result<Value, ApiError> {
        self.retry(|| self.call_once(method, body))
    }

    /// Calls a method once.
    pub(super) fn call_once(
        &self,
        method: &str,
        body: &Value,
    ) -> std::result::Result<Value, ApiError> {
        self.request(&self.http, method, body)
    }

    /// Calls a method with a file, as `multipart/form-data`.
    pub(super) fn upload(
        &self,
        method: &str,
        field: &str,
        body: &Value,
        file: &FilePart,
    ) -> std::result::Result<Value, ApiError> {
        let boundary = format!("nanobot-{}", random_hex(16));
        let mut form = Vec::new();
        for (name, value) in body.as_object().into_iter().flatten() {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            form.extend_from_slice(
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
                    .as_bytes(),
            );
        }
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{}\"\r\nContent-Type: application/octet-stream\r\n\r\n",
            file.name
        );
        form.extend_from_slice(head.as_bytes());
        form.extend_from_slice(&file.bytes);
        form.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        let kind = format!("multipart/form-data; boundary={boundary}");
        self.retry(|| self.exchange(&self.http, method, &kind, &form))
    }

    /// Downloads a file of `getFile`. Returns false if it is longer than `limit_bytes`.
    pub(super) fn download(
        &self,
        path: &str,
        into: &mut dyn Write,
        limit_bytes: u64,
    ) -> Result<bool> {
        // The path is the server's, and must not lead to another host or method.
        if path.is_empty() || path.contains("..") || path.contains(['?', '#', '\\']) {
            return Err(fail(Exit::Unavailable, "telegram: `getFile` names no file"));
        }
        let url = format!("{}/file/bot{}/{path}", self.base, self.token.expose());
        let answer = self.http.send(&url, &[], None);
        let answer = answer.map_err(|error| self.to_api_error(error, "a download").into_error())?;
        if answer.status != 200 {
            let cause = format!("telegram: a download failed with status {}", answer.status);
            return Err(fail(Exit::Unavailable, cause));
        }
        let copied = std::io::copy(&mut answer.body.take(limit_bytes + 1), into)?;
        Ok(copied <= limit_bytes)
    }

    fn request(
        &self,
        http: &Http,
        method: &str,
        body: &Value,
    ) -> std::result::Result<Value, ApiError> {
        self.exchange(
            http,
            method,
            "application/json",
            body.to_string().as_bytes(),
        )
    }

    fn exchange(
        &self,
        http: &Http,
        method: &str,
        kind: &str,
        body: &[u8],
    ) -> std::result::Result<Value, ApiError> {
        let url = format!("{}/bot{}/{method}", self.base, self.token.expose());
        let answer = http.send(&url, &[], Some((kind, body)));
        let answer = answer.map_err(|error| self.to_api_error(error, method))?;
        let status = answer.status;
        let mut text = Vec::new();
        answer
            .body
            .take(MAX_ANSWER_BYTES)
            .read_to_end(&mut text)
            .map_err(|error| match signal::check() {
                Err(stop) => ApiError::Other(stop.into()),
                Ok(()) => ApiError::Unavailable(format!("telegram: `{method}`: {error}")),
            })?;
        let mut answer: Value = serde_json::from_slice(&text).unwrap_or_default();
        if status == 200 && answer["ok"] == true {
            return Ok(answer["result"].take());
        }
        Err(self.to_failure(method, status, &answer))
    }

    /// Converts an answer that reports a failure.
    fn to_failure(&self, method: &str, status: u16, answer: &Value) -> ApiError {
        let description = answer["description"].as_str().unwrap_or("no description");
        let description = self.token.redact_in(description.to_owned());
        let code = answer["error_code"].as_u64();
        let code = code
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(status);
        let cause = format!("telegram: `{method}`: {description} ({code})");
        let parameters = &answer["parameters"];
        match code {
            401 => ApiError::TokenRejected(cause),
            409 => ApiError::Conflict {
                webhook: description.to_lowercase().contains("webhook"),
                cause,
            },
            429 => ApiError::RateLimited {
                cause,
                wait: parameters["retry_after"].as_u64().map(Duration::from_secs),
            },
            500.. | 200 => ApiError::Unavailable(cause),
            code => ApiError::Rejected {
                code,
                cause,
                migrated_to: parameters["migrate_to_chat_id"].as_i64(),
            },
        }
    }

    /// Converts an error of the connection. Its text may hold the address, and so the token.
    fn to_api_error(&self, error: anyhow::Error, method: &str) -> ApiError {
        if error.is::<Stop>() || matches!(exit_for(&error), Exit::Config | Exit::Refused) {
            return ApiError::Other(error);
        }
        let text = self.token.redact_in(format!("{error:#}"));
        ApiError::Unavailable(format!("telegram: `{method}`: {text}"))
    }

    /// Repeats a call while the service is down, and after a short rate limit.
    fn retry<T>(
        &self,
        mut call: impl FnMut() -> std::result::Result<T, ApiError>,
    ) -> std::result::Result<T, ApiError> {
        let mut waited = Duration::ZERO;
        let mut attempt = 1;
        loop {
            let error = match call() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let wait = match &error {
                ApiError::Unavailable(_) if attempt < MAX_ATTEMPTS => {
                    Duration::from_secs(1 << (attempt - 1))
                }
                ApiError::RateLimited {
                    wait: Some(wait), ..
                } if waited + *wait <= MAX_RATE_LIMIT_DELAY => *wait,
                _ => return Err(error),
            };
            waited += wait;
            attempt += 1;
            self.clock
                .sleep(wait)
                .map_err(|stop| ApiError::Other(stop.into()))?;
        }
    }
}
