//! Classifies error responses of a model server: by the status, and by keywords of the message where a status has several meanings. No I/O.

use super::FailureKind;
use super::error_response::{is_context_overflow, is_out_of_credit};

/// An error response, or an error within a successful one.
pub(super) struct ErrorResponse<'a> {
    pub(super) status: u16,
    pub(super) body: &'a str,
    /// The message in the body.
    pub(super) message: &'a str,
    /// True if the server names a delay before a retry.
    pub(super) names_delay: bool,
    /// The model of the request, if it has one.
    pub(super) model: Option<&'a str>,
}

/// Keywords of a 403 or 404 that is about the content of the request, in lower case.
const CONTENT_KEYWORDS: &[&str] = &[
    // OpenRouter: "No endpoints found that support image input"
    "image",
    "vision",
    "audio",
    "multimodal",
    // OpenRouter: "… requires moderation on OpenAI. Your input was flagged for …"
    "moderation",
    "flagged",
    "content",
    "guardrail",
    "inappropriate",
    "sensitive",
    "harmful",
    "safety",
    "violat",
];

/// Keywords of a 403 or 404 that is about the key or the account, in lower case.
const ACCOUNT_KEYWORDS: &[&str] = &[
    "key",
    "token",
    "credential",
    "permission",
    "authoriz",
    "authentic",
    "access",
    "log in",
    "login",
    "account",
    "organization",
    "project",
    "subscri",
    "billing",
    "credit",
    "balance",
    "quota",
    "country",
    "region",
];

/// Keywords of a 403 or 404 that is about the model, in lower case. Azure calls it a deployment.
const MODEL_KEYWORDS: &[&str] = &["model", "deployment"];

/// Classifies an error response.
pub(super) fn classify(response: &ErrorResponse<'_>) -> FailureKind {
    let ErrorResponse { status, body, message, names_delay, .. } = *response;
    if is_context_overflow(status, body, message) {
        return FailureKind::ContextExceeded;
    }
    // Some servers mention quota or billing at every rate limit. If the error names a delay, it is a rate limit.
    let is_limit = status == 429 && names_delay;
    if status == 402 || (!is_limit && is_out_of_credit(message)) {
        return FailureKind::OutOfCredit;
    }
    match status {
        // A proxy asks for a login with 407.
        401 | 407 => FailureKind::KeyRejected,
        403 | 404 => classify_ambiguous(response),
        408 | 409 | 425 => FailureKind::Unavailable,
        429 => FailureKind::Busy,
        503 | 529 if names_delay => FailureKind::Busy,
        500..=599 => FailureKind::ServerFailed,
        _ => FailureKind::Refused,
    }
}

/// Classifies a 403 or 404. Both are about the key, the model, the address or the content.
fn classify_ambiguous(response: &ErrorResponse<'_>) -> FailureKind {
    let message = response.message.to_lowercase();
    let model = response.model.unwrap_or_default().to_lowercase();
    // The name of a model may contain any of the words: `llama-3.2-vision`.
    let names_model = !model.is_empty() && message.contains(&model);
    let text = if names_model { message.replace(&model, " ") } else { message };
    let has_any = |keywords: &[&str]| keywords.iter().any(|keyword| text.contains(keyword));
    if has_any(CONTENT_KEYWORDS) {
        return FailureKind::NotAccepted;
    }
    let is_named = names_model || has_any(MODEL_KEYWORDS) || has_any(ACCOUNT_KEYWORDS);
    match response.status {
        403 if is_named => FailureKind::KeyRejected,
        403 => FailureKind::Forbidden,
        _ if is_named => FailureKind::ModelNotFound,
        _ => FailureKind::NoSuchAddress,
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorResponse, classify};
    use crate::provider::FailureKind;

    fn kind(status: u16, message: &str) -> FailureKind {
        kind_with_delay(status, message, false)
    }

    fn kind_with_delay(status: u16, message: &str, names_delay: bool) -> FailureKind {
        let model = Some("llama-3.2-vision");
        classify(&ErrorResponse { status, body: message, message, names_delay, model })
    }

    #[test]
    fn only_refusals_without_another_cause_concern_the_message() {
        for status in 400..600 {
            let expect = match status {
                401 | 407 => FailureKind::KeyRejected,
                402 => FailureKind::OutOfCredit,
                404 => FailureKind::NoSuchAddress,
                403 => FailureKind::Forbidden,
                408 | 409 | 425 => FailureKind::Unavailable,
                413 => FailureKind::ContextExceeded,
                429 => FailureKind::Busy,
                500..=599 => FailureKind::ServerFailed,
                _ => FailureKind::Refused,
            };
            for message in ["", "no", "<title>Blocked</title>"] {
                assert_eq!(kind(status, message), expect, "{status} {message}");
            }
            // The words of a message are checked only if the status has several meanings.
            let of_image =
                if matches!(status, 403 | 404) { FailureKind::NotAccepted } else { expect };
            assert_eq!(kind(status, "image input is not supported"), of_image, "{status}");
        }
        assert_eq!(kind_with_delay(503, "", true), FailureKind::Busy);
        assert_eq!(kind_with_delay(529, "", true), FailureKind::Busy);
    }

    #[test]
    fn the_words_of_403_and_404_tell_the_key_the_model_and_the_content_apart() {
        use FailureKind::{Forbidden, KeyRejected, ModelNotFound, NoSuchAddress, NotAccepted};
        let check = |status: u16, message: &str, expect| {
            assert_eq!(kind(status, message), expect, "{message}");
        };
        check(404, "No endpoints found that support image input", NotAccepted);
        check(404, "No endpoints found for llama-3.2-vision.", ModelNotFound);
        check(404, "The model `llama-3.2-vision` does not exist", ModelNotFound);
        check(404, "model \"x\" not found, try pulling it first", ModelNotFound);
        check(404, "The API deployment for this resource does not exist", ModelNotFound);
        check(404, "page not found", NoSuchAddress);
        check(404, "Invalid URL (POST /v1/chat)", NoSuchAddress);
        let moderated =
            "x/y requires moderation on OpenAI. Your input was flagged for \"violence\"";
        check(403, moderated, NotAccepted);
        check(403, "llama-3.2-vision does not accept images", NotAccepted);
        check(403, "You do not have access to llama-3.2-vision", KeyRejected);
        check(403, "Your API key does not have permission to use the resource", KeyRejected);
        check(403, "Country, region, or territory not supported", KeyRejected);
        check(403, "Forbidden", Forbidden);
    }
}
