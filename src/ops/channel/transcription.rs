//! Transcription of recordings: by a service with OpenAI's interface for speech, or by a command of the user's.

use crate::ops::context::Context;
use crate::ops::model;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::Usage;
use nanobot_channel::ChannelError;
use nanobot_channel::upload::UploadFile;
use nanobot_config::settings::channels::TranscriptionSettings;
use nanobot_config::settings::{ModelSettings, Settings};
use nanobot_model::ledger::{CallPurpose, Ledger, ModelCall};
use nanobot_model::provider::ProviderError;
use nanobot_model::provider::registry::speech;
use nanobot_net::http::{Http, HttpMethod, HttpTimeouts};
use nanobot_os::durable_file;
use nanobot_os::secret::LazySecret;
use nanobot_os::signal;
use nanobot_sandbox::process::{self, CommandSpec};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The timeouts of a request: a service takes some seconds for a minute of speech.
const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(120),
    idle: Duration::from_secs(60),
    total: Duration::from_secs(180),
};
/// Time limit of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);
/// Attempts at a request that fails for a temporary cause.
const MAX_ATTEMPTS: u32 = 3;
/// HTTP statuses (RFC 9110 §15, RFC 6585 §4). Those from 500 on are failures of the server.
const OK: u16 = 200;
const TOO_MANY_REQUESTS: u16 = 429;
const SERVER_ERRORS: u16 = 500;
/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// Maximum length of a text, in characters: more than an hour of speech.
const MAX_TEXT_CHARS: usize = 60_000;

/// Transcribes the recordings of a message.
pub(crate) struct Transcriber<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: &'a Settings,
    pub(crate) transcription: &'a TranscriptionSettings,
    /// The purpose of the requests, for the ledger.
    pub(crate) purpose: CallPurpose,
}

impl Transcriber<'_> {
    /// The text of a recording, which takes `seconds` if that is known; `None` if it is too long or too large, or if there
    /// is neither a key nor a command. The text is kept beside the file, so that it is paid for once.
    ///
    /// # Errors
    /// The service or the command fails, or a budget is used up: status 4.
    pub(crate) fn transcribe(&self, path: &Path, seconds: Option<u64>) -> Result<Option<String>> {
        let limits = self.transcription;
        if !limits.is_enabled || seconds.is_some_and(|seconds| seconds > limits.max_seconds) {
            return Ok(None);
        }
        let text_path = stored_text_path(path);
        if let Some(bytes) = durable_file::read(&text_path)? {
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
        let text = match &limits.command {
            Some(command) => Some(self.run_command(command, path)?),
            None => self.ask_service(path)?,
        };
        let Some(text) = text else {
            return Ok(None);
        };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(MAX_TEXT_CHARS).collect();
        durable_file::replace(&text_path, text.as_bytes())?;
        Ok(Some(text))
    }

    /// Runs the user's command. It gets the path as its first argument, and prints the text.
    fn run_command(&self, command: &str, path: &Path) -> Result<String> {
        let spec = CommandSpec {
            program: PathBuf::from("/bin/sh"),
            arguments: vec![
                "-c".into(),
                command.to_owned(),
                "sh".into(),
                path.to_string_lossy().into_owned(),
            ],
            directory: PathBuf::from("/"),
            env: (self.ctx.env.iter())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            timeout: COMMAND_TIMEOUT,
            capture_bytes: usize::try_from(MAX_RESPONSE_BYTES)?,
            sandbox: None,
            input: None,
        };
        let finished = process::run(&spec, &mut |_| ())?;
        if let Some(stop) = finished.stop {
            return Err(stop.into());
        }
        match finished.status {
            Some(status) if status.success() => {
                Ok(String::from_utf8_lossy(&finished.head).into_owned())
            }
            Some(status) => {
                Err(fail(Exit::Failed, format!("`transcription.command` failed: {status}")))
            }
            None => Err(fail(Exit::Failed, "`transcription.command` took longer than 5 minutes")),
        }
    }

    fn ask_service(&self, path: &Path) -> Result<Option<String>> {
        let limits = self.transcription;
        let model_name = speech::model_for(&limits.provider, limits.model.as_deref());
        let model_settings = ModelSettings {
            model: Some(model_name.to_owned()),
            provider: limits.provider.clone(),
            ..self.settings.models[0].clone()
        };
        let endpoint =
            match model::resolve_endpoint(self.ctx, self.settings, &model_settings, false, false) {
                Ok(endpoint) => endpoint,
                Err(error) => {
                    log::info!(target: "channel", "a recording was not transcribed: {error:#}");
                    return Ok(None);
                }
            };
        let recording = match UploadFile::read(path, limits.max_bytes) {
            Ok(recording) => recording,
            // It is too large.
            Err(ChannelError::Undeliverable(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let provider = &endpoint.choice.provider;
        let cost =
            |seconds: f64| speech::price_per_hour(model_name).map(|price| price * seconds / 3600.0);
        let ledger = Ledger::new(&self.ctx.paths.root, &self.ctx.clock);
        let budget = model::budget_limits(self.settings);
        let session_usd = match budget.per_session {
            Some(_) => ledger.session_cost(&self.purpose.session)?,
            None => 0.0,
        };
        let max_usd = cost(limits.max_seconds as f64).unwrap_or_default();
        let reservation = ledger.reserve(&budget, session_usd, max_usd, &mut |_| Ok(()))?;
        let (base, headers) =
            endpoint.http_provider.base_and_headers().map_err(ProviderError::into_failure)?;
        let provider_settings = self.settings.provider(provider)?;
        let proxy = provider_settings.and_then(|settings| settings.proxy.as_ref());
        let proxy = proxy.map(LazySecret::resolve).transpose()?;
        let http = Http::new(TIMEOUTS, false, &self.settings.network)
            .with_proxy(proxy, "the provider's `proxy`")?;
        let url = format!("{}/audio/transcriptions", base.trim_end_matches('/'));
        // Only `verbose_json` has the duration, and models newer than Whisper do not offer it.
        let response_format = if model_name.contains("whisper") { "verbose_json" } else { "json" };
        let mut fields = vec![
            ("model".to_owned(), model_name.to_owned()),
            ("response_format".to_owned(), response_format.to_owned()),
        ];
        if let Some(language) = &limits.language {
            fields.push(("language".to_owned(), language.clone()));
        }
        let (media_type, body) = recording.to_form(&fields, "file");
        let start = Instant::now();
        let result = send(&http, &url, &headers, HttpMethod::Post(&media_type, &body));
        let seconds = match &result {
            Ok((_, seconds)) => *seconds,
            Err(_) => None,
        };
        ledger.record(
            &ModelCall {
                purpose: &self.purpose,
                provider,
                model: model_name,
                usage: Usage::default(),
                usd: if result.is_ok() { seconds.and_then(cost) } else { Some(0.0) },
                duration: start.elapsed(),
                failed: result.is_err(),
            },
            Some(reservation),
        )?;
        result.map(|(text, _)| Some(text))
    }
}

/// Sends the recording, with retries after temporary failures. Returns the text and the duration in seconds.
fn send(
    http: &Http,
    url: &str,
    headers: &[(String, String)],
    method: HttpMethod<'_>,
) -> Result<(String, Option<f64>)> {
    let mut attempt = 1;
    loop {
        let response = http.exchange_json(url, headers, method, MAX_RESPONSE_BYTES)?;
        let status = response.status;
        if let (OK, Some(text)) = (status, response.body["text"].as_str()) {
            return Ok((text.to_owned(), response.body["duration"].as_f64()));
        }
        if !matches!(status, TOO_MANY_REQUESTS | SERVER_ERRORS..) || attempt == MAX_ATTEMPTS {
            let cause = response.error_message();
            let cause = cause.unwrap_or_else(|| "the response has no text".to_owned());
            return Err(fail(Exit::Unavailable, format!("{url}: {cause} (status {status})")));
        }
        signal::sleep(Duration::from_secs(u64::from(attempt)))?;
        attempt += 1;
    }
}

/// The path at which the text of the recording at `path` is stored.
pub(crate) fn stored_text_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".transcription");
    PathBuf::from(name)
}
