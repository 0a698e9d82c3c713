//! The prices of models that make pictures, as the vendors have published them, and not updated for this release.

/// Prices in US dollars of a million tokens of text and of pictures that are made, and the highest price of a picture.
const TOKEN_PRICES: [(&str, f64, f64, f64); 3] = [
    ("gpt-image-1", 5.0, 40.0, 0.25),
    ("gpt-image-1-mini", 2.0, 8.0, 0.06),
    ("gpt-image-1.5", 5.0, 32.0, 0.2),
];

/// The highest of the known prices of a picture.
pub const HIGHEST_PRICE: f64 = 0.25;

/// Prices in US dollars of one picture.
const PICTURE_PRICES: [(&str, f64); 4] = [
    ("dall-e-3", 0.04),
    ("gemini-2.5-flash-image", 0.039),
    ("imagen-4.0-fast-generate-001", 0.02),
    ("imagen-4.0-generate-001", 0.04),
];

/// The price of a picture in US dollars, which took these tokens; `None` if it is unknown.
pub fn price(model: &str, input_tokens: u64, output_tokens: u64) -> Option<f64> {
    let by_tokens = TOKEN_PRICES.iter().find(|(name, ..)| *name == model);
    if let Some((_, input, output, _)) = by_tokens {
        let usd = (input * input_tokens as f64 + output * output_tokens as f64) / 1e6;
        return (output_tokens > 0).then_some(usd);
    }
    PICTURE_PRICES.iter().find(|(name, _)| *name == model).map(|(_, usd)| *usd)
}

/// The highest price of a picture in US dollars; `None` if it is unknown.
pub fn highest_price(model: &str) -> Option<f64> {
    let by_tokens = TOKEN_PRICES.iter().find(|(name, ..)| *name == model);
    by_tokens.map(|(.., highest)| *highest).or_else(|| price(model, 0, 0))
}
