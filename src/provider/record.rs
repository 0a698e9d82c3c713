//! `--record FILE`: a wrapper that records every exchange.

use super::{Provider, ProviderError, Request, Tell, cassette};
use crate::message::Reply;
use crate::sys::store;
use std::path::PathBuf;

/// Forwards requests to `inner`, and appends each exchange to a file.
pub struct Record<P> {
    pub inner: P,
    pub path: PathBuf,
}

impl<P: Provider> Provider for Record<P> {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut Tell<'_>,
    ) -> Result<Reply, ProviderError> {
        let answer = self.inner.reply(request, on_delta);
        let line = cassette::line(request, &answer);
        store::append(&self.path, line.as_bytes()).map_err(ProviderError::Aborted)?;
        answer
    }
}
