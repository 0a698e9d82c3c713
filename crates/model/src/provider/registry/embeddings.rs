//! The prices of models that compute embeddings. They are as the vendors have published them, and not updated for this release.

/// Prices in US dollars per million tokens of text.
const PRICES: [(&str, f64); 6] = [
    ("text-embedding-3-small", 0.02),
    ("text-embedding-3-large", 0.13),
    ("text-embedding-ada-002", 0.10),
    ("gemini-embedding-001", 0.15),
    ("mistral-embed", 0.10),
    ("codestral-embed", 0.15),
];

/// The price of a million tokens in US dollars; `None` if it is unknown.
pub fn price_per_million(model: &str) -> Option<f64> {
    // Gateways put the vendor before the name.
    let model = model.rsplit('/').next().unwrap_or(model);
    PRICES.iter().find(|(name, _)| *name == model).map(|(_, price)| *price)
}
