//! Servers that do not support a forced tool choice: some refuse such a request, some report that the model does not
//! exist. The request is repeated once without forcing.

use super::{DeltaSink, FailureKind, Provider, ProviderError, ProviderResult, Request, ToolChoice};
use nanobot_base::message::Reply;
use std::sync::atomic::{AtomicBool, Ordering};

/// Forwards requests to `inner`; a refused request with a forced tool choice is repeated without it.
pub struct ToolChoiceFallback<P> {
    pub inner: P,
    /// Set once a request succeeds only without forcing. From then on, no request is forced.
    pub ignores_tool_choice: AtomicBool,
}

impl<P: Provider> Provider for ToolChoiceFallback<P> {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        if !matches!(request.tool_choice, ToolChoice::Required(_)) {
            return self.inner.reply(request, on_delta);
        }
        if !self.ignores_tool_choice.load(Ordering::Relaxed) {
            let reply = self.inner.reply(request, on_delta);
            let kind = reply.as_ref().err().and_then(ProviderError::kind);
            let is_refused = matches!(
                kind,
                Some(
                    FailureKind::Refused
                        | FailureKind::NotAccepted
                        | FailureKind::ModelNotFound
                        | FailureKind::NoSuchAddress
                )
            );
            if !is_refused {
                return reply;
            }
        }
        let request = Request { tool_choice: ToolChoice::Auto, ..*request };
        let reply = self.inner.reply(&request, on_delta);
        if reply.is_ok() {
            self.ignores_tool_choice.store(true, Ordering::Relaxed);
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::ToolChoiceFallback;
    use crate::provider::response::test_support::REQUEST;
    use crate::provider::{
        DeltaSink, FailureKind, Provider, ProviderError, ProviderResult, Request, ToolChoice,
    };
    use nanobot_base::message::Reply;
    use parking_lot::Mutex;
    use std::sync::atomic::AtomicBool;

    /// Refuses forced requests, and counts all requests.
    struct RefusingProvider(Mutex<usize>);

    impl Provider for RefusingProvider {
        fn reply(&self, request: &Request<'_>, _: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
            *self.0.lock() += 1;
            match request.tool_choice {
                ToolChoice::Required(_) => {
                    Err(ProviderError::new(FailureKind::ModelNotFound, "no"))
                }
                _ => Ok(Reply::default()),
            }
        }
    }

    #[test]
    fn a_refused_forced_request_is_repeated_without_forcing() {
        let provider = ToolChoiceFallback {
            inner: RefusingProvider(Mutex::new(0)),
            ignores_tool_choice: AtomicBool::new(false),
        };
        let request = Request { tool_choice: ToolChoice::Required("t"), ..REQUEST };
        for count in [2, 3, 4] {
            assert!(provider.reply(&request, &mut |_| Ok(())).is_ok());
            assert_eq!(*provider.inner.0.lock(), count);
        }
    }
}
