//! `--record FILE`: a wrapper that records every exchange.

use super::path_names::PathNames;
use super::{DeltaSink, Provider, ProviderError, Request, cassette};
use nanobot_base::message::Reply;
use nanobot_os::durable_file;
use std::path::PathBuf;

/// Forwards requests to `inner`, and appends each exchange to a file.
pub struct RecordingProvider<P> {
    pub inner: P,
    pub path: PathBuf,
    /// The key of the session.
    pub session: String,
    pub path_names: PathNames,
}

impl<P: Provider> Provider for RecordingProvider<P> {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<Reply, ProviderError> {
        let reply = self.inner.reply(request, on_delta);
        let line = cassette::format_line(&self.session, request, &reply, &self.path_names);
        durable_file::append(&self.path, line.as_bytes()).map_err(ProviderError::Aborted)?;
        reply
    }
}
