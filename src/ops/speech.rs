//! Speech: a text becomes a recording, by a service with OpenAI's interface for it, or by a command of the user's.

use crate::ops::context::Context;
use crate::ops::media_service::{self, MediaAccount, MediaReply, MediaRequest, MediaService};
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::Usage;
use nanobot_config::settings::Settings;
use nanobot_config::settings::channels::SpeechSettings;
use nanobot_model::provider::registry::speech;
use nanobot_tool::attach::SoundRecording;
use serde_json::json;

/// Maximum size of a recording in bytes: an hour of speech as Opus.
const MAX_RECORDING_BYTES: u64 = 16 << 20;
/// Maximum length of a text in characters (OpenAI, "Create speech"). The rest is not spoken.
const MAX_TEXT_CHARS: usize = 4_096;

/// The purpose of the requests, in the ledger.
pub(crate) const CAUSE: &str = "speech";

/// A spoken text.
pub(crate) struct SpokenText {
    /// With the extension of its format.
    pub(crate) file_name: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// Speaks `text`, which has no markup.
///
/// # Errors
/// Neither a command nor a service is configured: status 78. It fails, or returns something that is no recording. A budget is used up:
/// status 4.
pub(crate) fn speak(
    ctx: &Context,
    settings: &Settings,
    speech_settings: &SpeechSettings,
    media_account: &MediaAccount,
    text: &str,
) -> Result<SpokenText> {
    let text: String = text.chars().take(MAX_TEXT_CHARS).collect();
    let bytes = match (&speech_settings.command, &speech_settings.provider) {
        (Some(command), _) => {
            let (key, input) = ("speech.command", Some(text.into_bytes()));
            media_service::run_command(ctx, key, command, None, input, MAX_RECORDING_BYTES)?
        }
        (None, Some(provider)) => {
            ask_service(ctx, settings, speech_settings, provider, media_account, &text)?
        }
        (None, None) => {
            let cause = "neither `speech.command` nor `speech.provider` is set";
            return Err(fail(Exit::Config, cause));
        }
    };
    let Some(recording) = SoundRecording::find(&bytes) else {
        let cause = format!("what speaks has returned {} bytes that are no recording", bytes.len());
        return Err(fail(Exit::Unavailable, cause));
    };
    Ok(SpokenText { file_name: recording.file_name(), bytes })
}

fn ask_service(
    ctx: &Context,
    settings: &Settings,
    speech_settings: &SpeechSettings,
    provider: &str,
    media_account: &MediaAccount,
    text: &str,
) -> Result<Vec<u8>> {
    let offline = false;
    let model = speech_settings.model.as_deref().unwrap_or(speech::DEFAULT_VOICE_MODEL);
    let service = MediaService::open(ctx, settings, provider, model, offline)?;
    let body = json!({
        "model": model,
        "voice": speech_settings.voice,
        "input": text,
        "response_format": speech_settings.format,
    })
    .to_string();
    let usd = speech::price_of_characters(model, text.chars().count());
    let request = MediaRequest {
        path: "/audio/speech",
        media_type: "application/json",
        body: body.as_bytes(),
        max_usd: usd.unwrap_or_default(),
        is_charged_by_token: false,
        limit_bytes: MAX_RECORDING_BYTES,
        wanted: "recording",
    };
    let reply = service.request(media_account, &request, |bytes| {
        let is_recording = SoundRecording::find(&bytes).is_some();
        is_recording.then_some(MediaReply { content: bytes, usage: Usage::default(), usd })
    })?;
    Ok(reply.content)
}
