//! Servers that do not support a forced tool choice: some refuse such a request, some report that the model does not
//! exist. The request is repeated once without forcing.

use super::{Calls, Provider, ProviderError, Request, Tell};
use crate::message::Reply;
use std::sync::atomic::{AtomicBool, Ordering};

/// Forwards requests to `inner`; a refused request with a forced tool choice is repeated without it.
pub struct Unforce<P> {
    pub inner: P,
    /// Set once a request succeeds only without forcing. From then on, no request is forced.
    pub unwilling: AtomicBool,
}

impl<P: Provider> Provider for Unforce<P> {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut Tell<'_>,
    ) -> Result<Reply, ProviderError> {
        if !matches!(request.calls, Calls::Must(_)) {
            return self.inner.reply(request, on_delta);
        }
        if !self.unwilling.load(Ordering::Relaxed) {
            let answer = self.inner.reply(request, on_delta);
            if !matches!(
                answer,
                Err(ProviderError::Refused(_) | ProviderError::NotFound(_))
            ) {
                return answer;
            }
        }
        let request = Request {
            calls: Calls::May,
            ..*request
        };
        let answer = self.inner.reply(&request, on_delta);
        if answer.is_ok() {
            self.unwilling.store(true, Ordering::Relaxed);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::Unforce;
    use crate::message::Reply;
    use crate::provider::{Calls, Provider, ProviderError, Request, Sampling, Tell};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    /// Refuses forced requests, and counts all requests.
    struct Unwilling(Mutex<usize>);

    impl Provider for Unwilling {
        fn reply(&self, request: &Request<'_>, _: &mut Tell<'_>) -> Result<Reply, ProviderError> {
            *self.0.lock().unwrap() += 1;
            match request.calls {
                Calls::Must(_) => Err(ProviderError::NotFound("no".into())),
                _ => Ok(Reply::default()),
            }
        }
    }

    #[test]
    fn what_is_refused_by_force_is_asked_for_without_it() {
        let unforce = Unforce {
            inner: Unwilling(Mutex::new(0)),
            unwilling: AtomicBool::new(false),
        };
        let sampling = Sampling {
            max_tokens: 1,
            temperature: None,
            reasoning_effort: None,
        };
        let request = Request {
            system: "",
            messages: &[],
            tools: &[],
            calls: Calls::Must("t"),
            model: "",
            sampling: &sampling,
            reply_id: "",
            schema: None,
        };
        for asked in [2, 3, 4] {
            assert!(unforce.reply(&request, &mut |_| Ok(())).is_ok());
            assert_eq!(*unforce.inner.0.lock().unwrap(), asked);
        }
    }
}
