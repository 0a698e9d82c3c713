//! Fallback models: if a model is unavailable and a fallback is configured, the fallback is used for the rest of the
//! run.

use super::{Delta, Provider, ProviderError, Request, Sampling, Tell};
use crate::error::{Exit, Stop, exit_of};
use crate::message::Reply;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A model in the chain of fallbacks.
pub struct Link {
    /// The model's name.
    pub model: String,
    pub sampling: Sampling,
    /// Context window in tokens, if known.
    pub context: Option<u32>,
    pub answers: Box<dyn Provider>,
}

/// Sends requests to the first of `models` that is available. There must be at least one link.
pub struct Fallback {
    links: Vec<Link>,
    /// Index of the current link. It only advances: a model that failed is not tried again in this run.
    at: AtomicUsize,
}

impl Fallback {
    /// Starts with the first of `models`.
    pub fn new(links: Vec<Link>) -> Self {
        Self {
            links,
            at: AtomicUsize::new(0),
        }
    }
}

impl Provider for Fallback {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut Tell<'_>,
    ) -> Result<Reply, ProviderError> {
        loop {
            let at = self.at.load(Ordering::Relaxed);
            let link = &self.links[at];
            let request = Request {
                model: &link.model,
                sampling: &link.sampling,
                ..*request
            };
            let mut emitted = false;
            let answer = link.answers.reply(&request, &mut |delta| {
                emitted |= matches!(delta, Delta::Text(_) | Delta::Reasoning(_));
                on_delta(delta)
            });
            let (error, next) = match (answer, self.links.get(at + 1)) {
                (Err(error), Some(next)) if !emitted && can_mend(&error, link, next) => {
                    (error, next)
                }
                (answer, _) => return answer,
            };
            on_delta(Delta::Fallback {
                from: &link.model,
                to: &next.model,
                cause: &error.to_string(),
            })
            .map_err(ProviderError::Aborted)?;
            log::info!(target: "model", "fallback model `{}` replaces `{}`", next.model, link.model);
            self.at.store(at + 1, Ordering::Relaxed);
        }
    }
}

/// True if the next model may succeed where this one failed.
fn can_mend(error: &ProviderError, link: &Link, next: &Link) -> bool {
    match error {
        ProviderError::Busy { .. }
        | ProviderError::Unavailable(_)
        | ProviderError::Broken(_)
        | ProviderError::NotFound(_)
        | ProviderError::KeyRejected(_) => true,
        ProviderError::TooLong(_) => match (link.context, next.context) {
            (Some(here), Some(there)) => there > here,
            _ => false,
        },
        // No key or login was available, or the address is forbidden. Another model has its own.
        ProviderError::Aborted(error) => {
            let causes = [
                Exit::Unavailable,
                Exit::TryAgain,
                Exit::Refused,
                Exit::Config,
            ];
            !error.is::<Stop>() && causes.contains(&exit_of(error))
        }
        ProviderError::Refused(_) | ProviderError::Spent(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, can_mend};
    use crate::error::{Exit, Stop, fail};
    use crate::provider::{ProviderError, Sampling, demo::Demo};

    #[test]
    fn only_what_another_model_may_do_better_is_mended() {
        let link = |context| Link {
            model: String::new(),
            sampling: Sampling {
                max_tokens: 1,
                temperature: None,
                reasoning_effort: None,
            },
            context,
            answers: Box::new(Demo),
        };
        let check = |error: ProviderError, expect| {
            assert_eq!(
                can_mend(&error, &link(Some(1)), &link(None)),
                expect,
                "{error:?}"
            );
        };
        let text = String::new;
        check(ProviderError::Unavailable(text()), true);
        check(ProviderError::Broken(text()), true);
        check(ProviderError::KeyRejected(text()), true);
        check(ProviderError::Refused(text()), false);
        check(ProviderError::TooLong(text()), false);
        for exit in [
            Exit::Unavailable,
            Exit::TryAgain,
            Exit::Refused,
            Exit::Config,
        ] {
            check(ProviderError::Aborted(fail(exit, "a key")), true);
            // A failure of the account affects every model.
            check(ProviderError::Spent(fail(exit, "the account")), false);
        }
        check(ProviderError::Aborted(fail(Exit::Io, "the disk")), false);
        check(
            ProviderError::Aborted(Stop(Exit::Interrupted).into()),
            false,
        );
    }
}
