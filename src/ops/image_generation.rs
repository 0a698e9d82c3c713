//! Pictures: made by a provider's service or by a command of the user's, as `tools.imageGeneration` says.

use crate::ops::context::Context;
use crate::ops::media_service::{self, MediaAccount, MediaReply, MediaRequest, MediaService};
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::Usage;
use nanobot_config::settings::{ImageGenerationSettings, Settings};
use nanobot_model::ledger::CallPurpose;
use nanobot_model::provider::registry::pictures;
use nanobot_os::input::image_type;
use nanobot_os::secret::redact_known;
use nanobot_tool::generate_image::{GeneratedImage, ImageRequest};
use serde_json::{Value, json};

/// Maximum size of a response, whose picture is in base64, and of a command's output, in bytes.
const MAX_RESPONSE_BYTES: u64 = 48 << 20;

/// The purpose of the requests, in the ledger.
const CAUSE: &str = "image";

/// Makes a picture.
///
/// # Errors
/// The service or the command fails, or returns no picture. A budget is used up: status 4.
pub(crate) fn generate(
    ctx: &Context,
    settings: &Settings,
    image_settings: &ImageGenerationSettings,
    offline: bool,
    media_account: MediaAccount,
    request: &ImageRequest<'_>,
) -> Result<GeneratedImage> {
    let prompt = redact_known(request.prompt).into_owned();
    if let Some(command) = &image_settings.command {
        let (key, input) = ("tools.imageGeneration.command", Some(prompt.into_bytes()));
        let bytes = media_service::run_command(ctx, key, command, None, input, MAX_RESPONSE_BYTES)?;
        if image_type(&bytes).is_none() {
            let cause = format!("`{key}` printed {} bytes that are no image", bytes.len());
            return Err(fail(Exit::Failed, cause));
        }
        return Ok(GeneratedImage { bytes, usd: Some(0.0) });
    }
    let model = &image_settings.model;
    let service = MediaService::open(ctx, settings, &image_settings.provider, model, offline)?;
    let aspect_ratio = request.aspect_ratio.unwrap_or(&image_settings.aspect_ratio);
    // OpenRouter has no endpoint for pictures: models return them in replies.
    let is_in_reply = image_settings.provider == "openrouter";
    let (path, body) = if is_in_reply {
        let config = json!({ "aspect_ratio": aspect_ratio, "image_size": image_settings.size });
        let messages = json!([{ "role": "user", "content": prompt }]);
        let body = json!({
            "model": model, "messages": messages, "modalities": ["image", "text"], "image_config": config,
            "usage": { "include": true },
        });
        ("/chat/completions", body)
    } else {
        let size = pixel_size(&image_settings.size, aspect_ratio);
        let mut body = json!({ "model": model, "prompt": prompt, "n": 1, "size": size });
        // OpenAI's newer models return nothing else, and refuse the field.
        if !model.starts_with("gpt-image") {
            body["response_format"] = "b64_json".into();
        }
        ("/images/generations", body)
    };
    let body = body.to_string();
    // OpenRouter states the cost of each reply.
    let highest_price =
        pictures::highest_price(model).or_else(|| is_in_reply.then_some(pictures::HIGHEST_PRICE));
    let media_request = MediaRequest {
        path,
        media_type: "application/json",
        body: body.as_bytes(),
        max_usd: highest_price.unwrap_or_default(),
        is_charged_by_token: false,
        limit_bytes: MAX_RESPONSE_BYTES,
        wanted: "picture",
    };
    let purpose = CallPurpose { cause: CAUSE, ..media_account.purpose };
    let media_account = MediaAccount { purpose, ..media_account };
    let reply = service.request(&media_account, &media_request, |body| {
        let body: Value = serde_json::from_slice(&body).ok()?;
        let data = if is_in_reply {
            let url = body.pointer("/choices/0/message/images/0/image_url/url")?.as_str()?;
            url.split_once(";base64,")?.1
        } else {
            body.pointer("/data/0/b64_json")?.as_str()?
        };
        let content = STANDARD.decode(data).ok().filter(|bytes| image_type(bytes).is_some())?;
        let usage = &body["usage"];
        let usd = usage["cost"].as_f64().or_else(|| {
            let tokens = |key: &str| usage[key].as_u64().unwrap_or_default();
            pictures::price(model, tokens("input_tokens"), tokens("output_tokens"))
        });
        Some(MediaReply { content, usage: Usage::default(), usd })
    })?;
    Ok(GeneratedImage { bytes: reply.content, usd: reply.usd })
}

/// The size in pixels that OpenAI's interface takes: that of the config if it is one, else the one that is nearest to the aspect ratio.
fn pixel_size<'a>(configured: &'a str, aspect_ratio: &str) -> &'a str {
    if configured.contains('x') {
        return configured;
    }
    let sides = aspect_ratio.split_once(':');
    let sides = sides.and_then(|(width, height)| {
        Some((width.parse::<f64>().ok()?, height.parse::<f64>().ok()?))
    });
    match sides {
        Some((width, height)) if width > height => "1536x1024",
        Some((width, height)) if width < height => "1024x1536",
        _ => "1024x1024",
    }
}

#[cfg(test)]
mod tests {
    use super::pixel_size;

    #[test]
    fn sizes_follow_from_the_aspect_ratio() {
        assert_eq!(pixel_size("1K", "1:1"), "1024x1024");
        assert_eq!(pixel_size("1K", "16:9"), "1536x1024");
        assert_eq!(pixel_size("2K", "9:16"), "1024x1536");
        assert_eq!(pixel_size("1K", "wide"), "1024x1024");
        assert_eq!(pixel_size("512x512", "16:9"), "512x512");
    }
}
