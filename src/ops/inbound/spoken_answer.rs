//! Answers by voice: after the text of an answer was sent, the text is spoken, and the recording follows it. A failure is reported to
//! the owner; the sender has the text.

use crate::ops::channel::attachments;
use crate::ops::inbound::channel_run::{ChannelRun, LockedChannel};
use crate::ops::media_service::MediaAccount;
use crate::ops::speech::{self, SpokenText};
use anyhow::{Context as _, Result};
use nanobot_base::message::Origin;
use nanobot_channel::dialect::{self, Dialect, LengthUnit, TextLimit};
use nanobot_channel::inbox::{InboundEntry, InboxRecord, OutboundMessage};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{AttachmentKind, Part};
use nanobot_config::settings::LayeredConfig;
use nanobot_config::settings::channels::{SpeechSettings, SpokenAnswers};
use nanobot_model::ledger::CallPurpose;
use nanobot_os::secret::redact_known;
use std::io::Cursor;

/// The end of the key of a spoken answer, after the key of its text.
const KEY_SUFFIX: &str = ".voice";

/// Stores the spoken form of the answer to `entries` in the journal, if the config asks for it and the text, whose key is `text_key`,
/// was delivered. Returns the key of the recording.
///
/// # Errors
/// The text cannot be spoken, or the recording cannot be written.
pub(super) fn store(
    run: &ChannelRun<'_>,
    channel: &LockedChannel,
    text_key: &str,
    entries: &[InboundEntry],
    answer: &str,
    origin: Option<Origin>,
) -> Result<Option<String>> {
    let Some(last) = entries.last().filter(|_| !channel.open.files.kind.is_mail) else {
        return Ok(None);
    };
    if !is_last_delivered(channel, text_key, &last.session) {
        return Ok(None);
    }
    let config = run.ctx.load_config()?;
    let speech_settings = SpeechSettings::read(&LayeredConfig::new(&config, &run.ctx.env))?;
    let is_wanted = match speech_settings.answers {
        SpokenAnswers::Never => false,
        SpokenAnswers::Always => speech_settings.is_configured(),
        SpokenAnswers::ToVoice => speech_settings.is_configured() && has_voice(entries),
    };
    if !is_wanted {
        return Ok(None);
    }
    let text = spoken_text(answer);
    if text.trim().is_empty() {
        return Ok(None);
    }
    let media_account = MediaAccount {
        purpose: CallPurpose {
            session: last.session.clone(),
            turn: text_key.to_owned(),
            job: None,
            sender: Some(format!("{}:{}", channel.open.name(), last.message.from.id)),
            cause: speech::CAUSE,
        },
        run: None,
    };
    let SpokenText { file_name, bytes } =
        speech::speak(run.ctx, &run.settings, &speech_settings, &media_account, &text)
            .context("the answer was sent as text alone")?;
    let media = &channel.open.files.media;
    let copy = attachments::store_copy(media, file_name, &mut Cursor::new(bytes))?;
    let key = format!("{text_key}{KEY_SUFFIX}");
    channel.inbox.lock().append(InboxRecord::Out(OutboundMessage {
        key: key.clone(),
        session: last.session.clone(),
        destination: last.message.destination(),
        parts: vec![Part { file: Some(copy), ..Part::default() }],
        at: channel.open.files.now(),
        origin,
        ..OutboundMessage::default()
    }))?;
    Ok(Some(key))
}

/// True if the text was delivered, and nothing else was written to the chat since: a question must stay the last message.
fn is_last_delivered(channel: &LockedChannel, text_key: &str, session: &str) -> bool {
    let inbox = channel.inbox.lock();
    let mut messages = inbox.state().outbound.iter().rev();
    messages.find(|entry| entry.message.session == session).is_some_and(|entry| {
        entry.message.key == text_key && entry.settlement == Some(Settlement::Delivered)
    })
}

/// True if the sender has spoken.
fn has_voice(entries: &[InboundEntry]) -> bool {
    let mut files = entries.iter().flat_map(|entry| &entry.message.files);
    files.any(|file| file.kind == AttachmentKind::Voice)
}

/// The text of an answer without markup, code blocks and addresses, which are of no use to a listener, and without known keys.
fn spoken_text(markdown: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in redact_known(markdown).lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    let limit = TextLimit { amount: usize::MAX, unit: LengthUnit::Bytes };
    let parts = dialect::render(&prose, Dialect::Plain(limit));
    let is_spoken = |word: &&str| !word.contains("://");
    let spoken = parts.iter().flat_map(|part| part.plain.split_whitespace()).filter(is_spoken);
    spoken.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::spoken_text;

    #[test]
    fn markup_code_and_addresses_are_not_spoken() {
        let check = |markdown: &str, expect: &str| assert_eq!(spoken_text(markdown), expect);
        check(
            "Run **this**:\n```sh\nrm x\n```\nSee https://a.example/b now.",
            "Run this: See now.",
        );
        check("```\nrm x\n```\n", "");
        check("- tea\n- milk", "• tea • milk");
    }
}
