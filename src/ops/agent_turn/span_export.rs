//! The export of the spans of a turn, to the file or the collector that `telemetry.otlp` of the config names. It happens once, after
//! the answer is delivered, and its failure has no effect on the turn.

use super::request::TurnRequest;
use crate::ops::context::Context;
use crate::options::turn::TurnOptions;
use anyhow::{Result, ensure};
use nanobot_agent::report::trace::{AgentEnd, AgentTrace};
use nanobot_agent::report::{Reporter, append_json_line, json};
use nanobot_base::error::Exit;
use nanobot_base::message::Usage;
use nanobot_base::trace_context::TraceContext;
use nanobot_config::settings::{OtlpTarget, TelemetrySettings};
use nanobot_net::http::{Http, HttpMethod, HttpTimeouts, Network};
use nanobot_net::web_url::redact_url;
use nanobot_os::durable_file::open_line_log;
use nanobot_os::env::TRACEPARENT;
use nanobot_os::secret::redact_all_json;
use nanobot_os::signal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Timeout for a collector, for which the end of the process waits.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(1);

/// The spans of a turn, and where they go.
pub(super) struct SpanExport {
    pub(super) trace: Arc<AgentTrace>,
    target: OtlpTarget,
    network: Network,
}

impl SpanExport {
    /// Begins the trace of a turn, of which `reporter` reports the tool calls. `None` if the config names no target, if no request
    /// is sent to a model, or if the run continues a trace that is not recorded.
    pub(super) fn begin(
        ctx: &Context,
        options: &TurnOptions,
        request: &TurnRequest,
        reporter: &mut Reporter,
    ) -> Option<Self> {
        let TelemetrySettings { target, has_content } = request.settings.telemetry.as_ref()?;
        if options.recording.is_dry_run_or_replay() {
            return None;
        }
        let parent = ctx.env.get(TRACEPARENT).and_then(TraceContext::parse);
        let json::EventEnvelope { session, turn, clock } = &reporter.envelope;
        let trace = AgentTrace::begin(parent, turn, session, clock, *has_content)?;
        reporter.trace_to(Arc::clone(&trace));
        let network = request.settings.network.clone();
        let network = if options.limits.offline { network.offline() } else { network };
        Some(Self { trace, target: target.clone(), network })
    }

    /// Ends the span of the turn.
    pub(super) fn end_turn(&self, exit: Exit, usage: Usage, run: &json::RunMetadata) {
        let json::RunMetadata { provider, model, .. } = run;
        self.trace.end(&AgentEnd { provider, model, usage, exit });
    }

    /// Writes the spans to their file, or sends them. If nothing more is printed, readers of standard output do not wait for a
    /// collector.
    pub(super) fn run(&self, ctx: &Context, has_output_ended: bool) {
        match &self.target {
            OtlpTarget::File(path) => {
                if let Err(error) = self.append_to(path) {
                    ctx.notice(&format!("cannot write the spans: {error:#}"));
                }
            }
            OtlpTarget::Url(url) => {
                let closed =
                    if has_output_ended { ctx.terminal.close_output(true) } else { Ok(()) };
                if let Err(error) = closed.and_then(|()| self.send_to(url)) {
                    let url = redact_url(url);
                    log::warn!(target: "http", "the spans were not sent to {url}: {error:#}");
                }
            }
        }
    }

    fn append_to(&self, path: &Path) -> Result<()> {
        append_json_line(&open_line_log(path)?, path, &self.trace.to_json())
    }

    fn send_to(&self, url: &str) -> Result<()> {
        let timeouts = HttpTimeouts::within(COLLECTOR_TIMEOUT);
        let body = redact_all_json(&self.trace.to_json()).to_string();
        let method = HttpMethod::Post("application/json", body.as_bytes());
        let end = signal::now() + COLLECTOR_TIMEOUT;
        let http = Http::new(timeouts, false, &self.network);
        let status = http.request_until(url, &[], method, end)?.status;
        ensure!((200..300).contains(&status), "status {status}");
        Ok(())
    }
}
