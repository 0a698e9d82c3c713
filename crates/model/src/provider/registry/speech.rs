//! The models that transcribe and produce speech, and their prices. The prices are as the vendors have published them, and not updated for this
//! release.

/// The default models, by provider.
const DEFAULT_MODELS: [(&str, &str); 2] = [("groq", "whisper-large-v3"), ("openai", "whisper-1")];

/// Prices in US dollars per hour of speech.
const PRICES: [(&str, f64); 5] = [
    ("whisper-1", 0.36),
    ("gpt-4o-transcribe", 0.36),
    ("gpt-4o-mini-transcribe", 0.18),
    ("whisper-large-v3", 0.111),
    ("whisper-large-v3-turbo", 0.04),
];

/// The configured model, or the default of the provider.
pub fn model_for<'a>(provider: &str, configured: Option<&'a str>) -> &'a str {
    let default = DEFAULT_MODELS.iter().find(|(name, _)| *name == provider);
    configured.unwrap_or(default.map_or("whisper-1", |(_, model)| model))
}

/// The price of an hour of speech in US dollars; `None` if it is unknown.
pub fn price_per_hour(model: &str) -> Option<f64> {
    PRICES.iter().find(|(name, _)| *name == model).map(|(_, price)| *price)
}

/// The default model that speaks.
pub const DEFAULT_VOICE_MODEL: &str = "gpt-4o-mini-tts";

/// Prices in US dollars per million characters of text. The last one is paid by the token, which responses do not state: the price is that
/// of the minutes that a text takes.
const CHARACTER_PRICES: [(&str, f64); 3] =
    [("tts-1", 15.0), ("tts-1-hd", 30.0), (DEFAULT_VOICE_MODEL, 20.0)];

/// The price of a spoken text of `count` characters in US dollars; `None` if it is unknown.
pub fn price_of_characters(model: &str, count: usize) -> Option<f64> {
    let (_, price) = CHARACTER_PRICES.iter().find(|(name, _)| *name == model)?;
    Some(price * count as f64 / 1e6)
}
