//! Transcription of recordings: by a service with OpenAI's interface for speech, or by a command of the user's.

use crate::ops::context::Context;
use crate::ops::media_service::{self, MediaAccount, MediaReply, MediaRequest, MediaService};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_base::message::Usage;
use nanobot_channel::ChannelError;
use nanobot_channel::upload::UploadFile;
use nanobot_config::settings::channels::TranscriptionSettings;
use nanobot_config::settings::{LayeredConfig, Settings};
use nanobot_model::ledger::CallPurpose;
use nanobot_model::provider::registry::speech;
use nanobot_os::durable_file;
use nanobot_tool::attach::SoundRecording;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Maximum size of a response, or of the output of a command, in bytes.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// Maximum length of a text, in characters: more than an hour of speech.
const MAX_TEXT_CHARS: usize = 60_000;

/// The purpose of the requests, in the ledger.
pub(crate) const CAUSE: &str = "transcription";

/// Transcribes recordings.
pub(crate) struct Transcriber<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: &'a Settings,
    pub(crate) transcription: &'a TranscriptionSettings,
    pub(crate) media_account: MediaAccount,
    /// Connect to loopback addresses only.
    pub(crate) offline: bool,
}

/// Transcribes a recording that no chat has sent. `settings` are those of the run.
///
/// # Errors
/// It is too long or too large: status 65. There is neither a key nor a command: status 78. The service or the command fails, or a
/// budget is used up.
pub(crate) fn transcribe_file(
    ctx: &Context,
    settings: &Settings,
    offline: bool,
    media_account: MediaAccount,
    recording: &SoundRecording<'_>,
) -> Result<String> {
    let config = ctx.load_config()?;
    let transcription = TranscriptionSettings::read(&LayeredConfig::new(&config, &ctx.env))?;
    let purpose = CallPurpose { cause: CAUSE, ..media_account.purpose };
    let media_account = MediaAccount { purpose, ..media_account };
    let transcriber =
        Transcriber { ctx, settings, transcription: &transcription, media_account, offline };
    transcriber.transcribe_recording(recording)
}

impl Transcriber<'_> {
    /// The text of a recording of a chat, which takes `seconds` if that is known; `None` if it is too long or too large, or if there
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
            Some(command) => self.run_command(command, path)?,
            None => {
                let service = match self.open_service() {
                    Ok(service) => service,
                    Err(error) => {
                        log::info!(target: "channel", "a recording was not transcribed: {error:#}");
                        return Ok(None);
                    }
                };
                match UploadFile::read(path, limits.max_bytes) {
                    Ok(file) => self.ask(&service, &file)?,
                    // It is too large.
                    Err(ChannelError::Undeliverable(_)) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        durable_file::replace(&text_path, text.as_bytes())?;
        Ok(Some(text))
    }

    fn transcribe_recording(&self, recording: &SoundRecording<'_>) -> Result<String> {
        let limits = self.transcription;
        if !limits.is_enabled {
            let hint = "`nanobot config set transcription.enabled true`";
            return Err(fail(Exit::Config, "`transcription.enabled` is false").with_hint(hint));
        }
        if let Some(seconds) = recording.seconds().filter(|seconds| *seconds > limits.max_seconds) {
            let limit = limits.max_seconds;
            let cause =
                format!("it takes {seconds} s, and `transcription.maxDurationSec` is {limit}");
            let hint = format!("`nanobot config set transcription.maxDurationSec {seconds}`");
            return Err(fail(Exit::BadInput, cause).with_hint(hint));
        }
        if recording.bytes.len() as u64 > limits.max_bytes {
            let cause = "it is larger than `transcription.maxUploadMb`";
            return Err(fail(Exit::BadInput, cause));
        }
        let text = match &limits.command {
            Some(command) => {
                let suffix = format!("-{}", recording.file_name());
                let file = durable_file::create_temp_named(recording.bytes, &suffix)
                    .context("write a temporary file for `transcription.command`")?;
                self.run_command(command, file.path())?
            }
            None => {
                let service = self.open_service().map_err(|error| no_way_error(&error))?;
                let name = recording.file_name().to_owned();
                self.ask(&service, &UploadFile { name, bytes: recording.bytes.to_vec() })?
            }
        };
        if text.is_empty() {
            return Err(fail(Exit::BadInput, "no speech was recognized in it"));
        }
        Ok(text)
    }

    /// Runs the user's command. It gets the path as its first argument, and prints the text.
    fn run_command(&self, command: &str, path: &Path) -> Result<String> {
        let key = "transcription.command";
        let output = media_service::run_command(
            self.ctx,
            key,
            command,
            Some(path),
            None,
            MAX_RESPONSE_BYTES,
        )?;
        Ok(to_one_line(&String::from_utf8_lossy(&output)))
    }

    fn model(&self) -> &str {
        speech::model_for(&self.transcription.provider, self.transcription.model.as_deref())
    }

    fn open_service(&self) -> Result<MediaService<'_>> {
        let provider = &self.transcription.provider;
        MediaService::open(self.ctx, self.settings, provider, self.model(), self.offline)
    }

    fn ask(&self, service: &MediaService<'_>, upload_file: &UploadFile) -> Result<String> {
        let (limits, model) = (self.transcription, self.model());
        let cost =
            |seconds: f64| speech::price_per_hour(model).map(|price| price * seconds / 3600.0);
        // Only `verbose_json` has the duration, and models newer than Whisper do not offer it.
        let response_format = if model.contains("whisper") { "verbose_json" } else { "json" };
        let mut fields = vec![("model", model), ("response_format", response_format)];
        fields.extend(limits.language.as_deref().map(|language| ("language", language)));
        let (media_type, body) = upload_file.to_form(&fields, "file");
        let request = MediaRequest {
            path: "/audio/transcriptions",
            media_type: &media_type,
            body: &body,
            max_usd: cost(limits.max_seconds as f64).unwrap_or_default(),
            is_charged_by_token: false,
            limit_bytes: MAX_RESPONSE_BYTES,
            wanted: "text",
        };
        let reply = service.request(&self.media_account, &request, |body| {
            let body: Value = serde_json::from_slice(&body).ok()?;
            let content = to_one_line(body["text"].as_str()?);
            let usd = body["duration"].as_f64().and_then(cost);
            Some(MediaReply { content, usage: Usage::default(), usd })
        })?;
        Ok(reply.content)
    }
}

/// The error for a recording that nothing can read. Its hint names both ways.
fn no_way_error(error: &anyhow::Error) -> anyhow::Error {
    let cause = format!(
        "the model does not take it as it is, and `transcription` is not configured ({error:#})"
    );
    let hint = "a `--model` that takes MP3 and WAV, `nanobot config set transcription.command COMMAND`, or a key of `transcription.provider`";
    fail(Exit::Config, cause).with_hint(hint)
}

fn to_one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_TEXT_CHARS).collect()
}

/// The path at which the text of the recording at `path` is stored.
pub(crate) fn stored_text_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".transcription");
    PathBuf::from(name)
}
