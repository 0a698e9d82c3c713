//! `--record FILE`: a wrapper that records every exchange.

use super::path_names::PathNames;
use super::{Delta, DeltaSink, Provider, ProviderError, ProviderResult, Request, cassette};
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
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let reply = self.inner.reply(request, on_delta);
        let line = cassette::format_line(&self.session, request, &reply, &self.path_names);
        let Err(error) = durable_file::append_line(&self.path, line.as_bytes()) else {
            return reply;
        };
        // A reply is paid for, and the provider's error matters more than this one.
        let notice = format!("the exchange was not recorded: {error:#}");
        let delivery = on_delta(Delta::Notice(&notice));
        let reply = reply?;
        delivery.map_err(ProviderError::Aborted)?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::{PathNames, Provider, RecordingProvider};
    use crate::provider::Delta;
    use crate::provider::demo::DemoProvider;
    use crate::provider::response::test_support::REQUEST;
    use std::path::PathBuf;

    #[test]
    fn a_reply_that_cannot_be_recorded_is_not_lost() {
        let provider = RecordingProvider {
            inner: DemoProvider,
            // A directory.
            path: PathBuf::from("/"),
            session: "s".into(),
            path_names: PathNames::default(),
        };
        let mut notices = Vec::new();
        let reply = provider.reply(&REQUEST, &mut |delta| {
            if let Delta::Notice(notice) = delta {
                notices.push(notice.to_owned());
            }
            Ok(())
        });
        assert_eq!(reply.unwrap().id, "r");
        assert!(notices.concat().starts_with("the exchange was not recorded: "), "{notices:?}");
    }
}
