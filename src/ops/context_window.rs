//! The context window of a model on a local server: when the server is asked for it, and where its answer is stored.

use crate::ops::context::Context;
use crate::ops::model::{Endpoint, resolve_endpoint, server_file_name};
use nanobot_config::settings::{ModelSettings, Settings};
use nanobot_model::provider::context_window::{WindowReport, ask_server};
use nanobot_model::provider::registry::SelectedProvider;
use nanobot_net::http::{Http, HttpTimeouts};
use nanobot_net::web_url;
use std::time::Duration;

/// The provider whose address the user gives.
const CUSTOM_PROVIDER: &str = "custom";

/// The timeouts of the request to a local server. The turn waits for the answer.
const WINDOW_REPORT_TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(1),
    first_byte: Duration::from_secs(2),
    idle: Duration::from_secs(2),
    total: Duration::from_secs(3),
};

/// The context window of the configured model in tokens, input and output together, or the configured default if the model
/// is unknown.
pub(crate) fn context_window(ctx: &Context, settings: &Settings) -> u32 {
    let model_settings = &settings.models[0];
    let configured = model_settings.overrides.context_window;
    configured.unwrap_or_else(|| {
        resolve_endpoint(ctx, settings, model_settings, true, true)
            .map_or(settings.context_window, |endpoint| {
                endpoint.context_tokens(ctx, model_settings, settings)
            })
    })
}

impl Endpoint {
    /// The context window that a local server has reported, unless one is configured.
    pub(crate) fn reported_context_tokens(
        &self,
        ctx: &Context,
        settings: &Settings,
        model_settings: &ModelSettings,
    ) -> Option<u32> {
        self.window_report(ctx, settings, model_settings)?.tokens()
    }

    /// Asks a local server for the context window of its model, unless one is configured or the report is recent.
    pub(crate) fn update_window_report(
        &self,
        ctx: &Context,
        settings: &Settings,
        model_settings: &ModelSettings,
        offline: bool,
    ) {
        let Some(report) = self.window_report(ctx, settings, model_settings) else {
            return;
        };
        report.update(|| {
            let (base_url, headers) = self.http_provider.base_and_headers()?;
            let http = Http::new(WINDOW_REPORT_TIMEOUTS, offline, &settings.network);
            ask_server(&http, &base_url, &headers, &self.choice.model)
        });
    }

    /// The stored report about the context window; `None` if the window is configured or the server is not local.
    fn window_report(
        &self,
        ctx: &Context,
        settings: &Settings,
        model_settings: &ModelSettings,
    ) -> Option<WindowReport> {
        let is_configured = model_settings.overrides.context_window.is_some()
            || settings.context_window != Settings::DEFAULT_CONTEXT_WINDOW;
        let entry = self.choice.entry;
        let is_local = entry.is_local()
            || entry.name == CUSTOM_PROVIDER
                && web_url::is_local_cleartext(&self.http_provider.address.current());
        (is_local && !is_configured).then(|| {
            let SelectedProvider { provider, model, .. } = &self.choice;
            let name = server_file_name(provider, &self.http_provider.address.current(), model);
            WindowReport {
                path: ctx.paths.root.join("limits").join(format!("{name}.context")),
                clock: ctx.clock.clone(),
            }
        })
    }
}
