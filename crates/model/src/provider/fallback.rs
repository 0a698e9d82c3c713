//! Fallback models: if a model is unavailable and a fallback is configured, the fallback is used for the rest of the
//! run.

use super::{
    Delta, DeltaSink, FailureKind, Provider, ProviderError, ProviderResult, Request, Sampling,
};
use nanobot_base::error::{Exit, Stop, exit_for};
use nanobot_base::message::{FinishReason, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A model in the chain of fallbacks.
pub struct FallbackModel {
    /// The model's name.
    pub model: String,
    pub sampling: Sampling,
    /// Context window in tokens, if known.
    pub context_tokens: Option<u32>,
    pub provider: Arc<dyn Provider>,
}

impl FallbackModel {
    /// The largest context window of `models`, if all of them are known.
    pub fn largest_window(models: &[Self]) -> Option<u32> {
        let windows = models.iter().map(|model| model.context_tokens);
        windows.collect::<Option<Vec<u32>>>()?.into_iter().max()
    }
}

/// Sends requests to the first of `models` that is available. There is at least one.
pub struct FallbackProvider {
    models: Vec<FallbackModel>,
    /// Index of the current model. It only advances: a model that failed is not tried again in this run.
    current: AtomicUsize,
    /// Number of consecutive blank replies of the current model.
    blank_count: AtomicU32,
    /// True if the pieces of a reply are shown as they arrive.
    shows_pieces: bool,
}

impl FallbackProvider {
    /// Starts with the first of `models`.
    pub fn new(models: Vec<FallbackModel>, shows_pieces: bool) -> Self {
        Self { models, current: AtomicUsize::new(0), blank_count: AtomicU32::new(0), shows_pieces }
    }

    /// Counts `reply` if it is blank. True if another attempt would be useless.
    fn stays_blank(&self, reply: &Reply) -> bool {
        if !reply.is_blank() {
            self.blank_count.store(0, Ordering::Relaxed);
            return false;
        }
        match reply.finish_reason {
            FinishReason::Stop | FinishReason::ToolCalls => {
                self.blank_count.fetch_add(1, Ordering::Relaxed) >= Reply::MAX_BLANK_RETRIES
            }
            FinishReason::Other(_) => true,
            FinishReason::Length | FinishReason::Interrupted | FinishReason::Refusal => false,
        }
    }

    /// The sampling of `current` for a request whose `sampling` differs from the one of the first model by a lower limit or another
    /// temperature. `current` gets the same changes. `None` for any other request.
    fn adjusted_sampling(&self, current: &FallbackModel, sampling: &Sampling) -> Option<Sampling> {
        let first = &self.models[0].sampling;
        let is_shorter = sampling.max_tokens < first.max_tokens;
        if !is_shorter && sampling.temperature == first.temperature {
            return None;
        }
        let mut adjusted = current.sampling.clone();
        if is_shorter {
            adjusted.max_tokens = adjusted.max_tokens.min(sampling.max_tokens);
        }
        if sampling.temperature != first.temperature {
            adjusted.temperature = sampling.temperature;
        }
        Some(adjusted)
    }
}

impl Provider for FallbackProvider {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        loop {
            let index = self.current.load(Ordering::Relaxed);
            let current = &self.models[index];
            let adjusted = self.adjusted_sampling(current, request.sampling);
            let request = Request {
                model: &current.model,
                sampling: adjusted.as_ref().unwrap_or(&current.sampling),
                ..*request
            };
            let mut emitted = false;
            let reply = current.provider.reply(&request, &mut |delta| {
                emitted |= self.shows_pieces && delta.is_piece();
                on_delta(delta)
            });
            let stays_blank = reply.as_ref().is_ok_and(|reply| self.stays_blank(reply));
            let Some(next) = self.models.get(index + 1) else {
                return reply;
            };
            let cause = match reply {
                Err(error) if !emitted && can_fall_back(&error, current, next) => error.to_string(),
                Ok(Reply { usage, cost, .. }) if stays_blank => {
                    on_delta(Delta::Charged { usage, cost }).map_err(ProviderError::Aborted)?;
                    "the model returned an empty reply".to_owned()
                }
                reply => return reply,
            };
            on_delta(Delta::Fallback { from: &current.model, to: &next.model, cause: &cause })
                .map_err(ProviderError::Aborted)?;
            self.blank_count.store(0, Ordering::Relaxed);
            log::info!(target: "model", "fallback model `{}` replaces `{}`", next.model, current.model);
            self.current.store(index + 1, Ordering::Relaxed);
        }
    }
}

/// True if the next model may succeed where this one failed.
fn can_fall_back(error: &ProviderError, current: &FallbackModel, next: &FallbackModel) -> bool {
    match error {
        ProviderError::Failed { kind: FailureKind::ContextExceeded, .. } => {
            let windows = current.context_tokens.zip(next.context_tokens);
            windows.is_some_and(|(current_window, next_window)| next_window > current_window)
        }
        // The server rejects the request, whichever model it is for.
        ProviderError::Failed { kind, .. } => *kind != FailureKind::Refused,
        // No key or login was available, or the address is forbidden. Another model has its own key and address.
        ProviderError::Aborted(error) => {
            let causes = [Exit::Unavailable, Exit::TryAgain, Exit::Refused, Exit::Config];
            !error.is::<Stop>() && causes.contains(&exit_for(error))
        }
        ProviderError::BudgetExceeded(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{FallbackModel, can_fall_back};
    use crate::provider::response::test_support::REQUEST;
    use crate::provider::{FailureKind, ProviderError, demo::DemoProvider};
    use nanobot_base::error::{Exit, Stop, fail};
    use std::sync::Arc;

    #[test]
    fn only_errors_that_another_model_may_avoid_fall_back() {
        let model = |context| FallbackModel {
            model: String::new(),
            sampling: REQUEST.sampling.clone(),
            context_tokens: context,
            provider: Arc::new(DemoProvider),
        };
        let check = |error: ProviderError, expect| {
            assert_eq!(can_fall_back(&error, &model(Some(1)), &model(None)), expect, "{error:?}");
        };
        check(ProviderError::new(FailureKind::Unavailable, ""), true);
        check(ProviderError::new(FailureKind::Interrupted, ""), true);
        check(ProviderError::new(FailureKind::KeyRejected, ""), true);
        check(ProviderError::new(FailureKind::Refused, ""), false);
        check(ProviderError::new(FailureKind::ContextExceeded, ""), false);
        for exit in [Exit::Unavailable, Exit::TryAgain, Exit::Refused, Exit::Config] {
            check(ProviderError::Aborted(fail(exit, "a key")), true);
            // A failure of the account affects every model.
            check(ProviderError::BudgetExceeded(fail(exit, "the account")), false);
        }
        check(ProviderError::Aborted(fail(Exit::Io, "the disk")), false);
        check(ProviderError::Aborted(Stop(Exit::Interrupted).into()), false);
    }
}
