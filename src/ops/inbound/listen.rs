//! `channel listen`: takes one webhook request. Its messages are in the journal before the service hears that they have
//! arrived; then they are answered, by this process or by a poll that is at work.

use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::channel::outbox;
use crate::ops::context::Context;
use crate::ops::inbound::intake;
use crate::ops::inbound::poll::{self, PollOptions};
use crate::ops::inbound::poll_run::{PollRun, PolledChannel};
use anyhow::Result;
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_channel::Batch;
use nanobot_channel::WebhookReceipt;
use nanobot_channel::inbox::ChannelInbox;
use nanobot_config::settings::channels::ChannelSettings;
use nanobot_config::settings::{Config, FlagOverrides, LayeredConfig};
use nanobot_net::webhook_request::{self, WebhookRequest, WebhookResponse};
use nanobot_os::signal;
use serde_json::Value;
use std::time::Duration;

/// Time for another process that writes into the journal, or sends.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval in which a poll is tried while another one is at work, and the times after which messages of the journal,
/// and those that are still at the service, are left to the other one.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(900);
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// Takes the request of this process for the channel `name`.
///
/// # Errors
/// Status 2 for an unknown channel, 78 for one that cannot take webhooks, 77 for a request without a valid signature, 65
/// for one that is no request. The service has got a response then, too.
pub(crate) fn listen(ctx: &Context, name: &str) -> Result<Exit> {
    let respond =
        |response: &WebhookResponse| webhook_request::respond(&ctx.env, ctx.terminal, response);
    let files = match ChannelFiles::load(ctx, name) {
        Ok(files) if files.is_enabled() => files,
        Ok(_) => {
            respond(&WebhookResponse::empty(503))?;
            return Err(fail_with_hint(
                Exit::Config,
                "it is not enabled",
                format!("`nanobot config set channels.{name}.enabled true`"),
            ));
        }
        Err(error) => {
            respond(&WebhookResponse::empty(503))?;
            return Err(error);
        }
    };
    let request = match WebhookRequest::read(&ctx.env)? {
        Ok(request) => request,
        Err(status) => {
            respond(&WebhookResponse::empty(status))?;
            let cause = format!("no usable request: status {status} was sent");
            return Err(fail(Exit::BadInput, cause));
        }
    };
    let directory = files.directory.clone();
    let taken = take(ctx, files, &request);
    let receipt = match taken {
        Ok(receipt) => receipt,
        Err(error) => {
            // The service sends it again.
            respond(&WebhookResponse::empty(503))?;
            return Err(error);
        }
    };
    respond(&receipt.response)?;
    if receipt.response.status == 401 {
        return Err(fail(Exit::Refused, "the request has no valid signature"));
    }
    let options = PollOptions { names: vec![name.to_owned()], ..PollOptions::default() };
    let ids: Vec<&str> = receipt.messages.iter().map(|it| it.id.as_str()).collect();
    if ids.is_empty() && !receipt.is_for_poll {
        return Ok(Exit::Answered);
    }
    let timeout = if receipt.is_for_poll { LOOK_TIMEOUT } else { ANSWER_TIMEOUT };
    let end = signal::now() + timeout;
    loop {
        let status = poll::poll(ctx, &options)?;
        if status != Exit::TryAgain || signal::now() >= end {
            return Ok(status);
        }
        // Another poll is at work. Is it at our messages, too?
        let state = ChannelInbox::read(&directory)?;
        let is_taken = |id: &&str| {
            let entry = state.inbound(id);
            entry.is_none_or(|entry| !entry.is_unanswered() || !entry.turns.is_empty())
        };
        if !receipt.is_for_poll && ids.iter().all(is_taken) {
            return Ok(Exit::Answered);
        }
        signal::sleep(RETRY_INTERVAL)?;
    }
}

/// Checks the request, and writes its messages into the journal.
fn take(ctx: &Context, files: ChannelFiles, request: &WebhookRequest) -> Result<WebhookReceipt> {
    let config = Config::load(&ctx.paths.config)?;
    let settings = ctx.resolve(&config, FlagOverrides::default())?;
    let open = files.open(ctx, settings.network.clone())?;
    let receipt = open.service.receive(request)?;
    if receipt.messages.is_empty() {
        return Ok(receipt);
    }
    // One request after the other, so that a message that comes twice is stored once; and no poll writes the journal anew
    // meanwhile.
    let lock = outbox::lock(&open, STORE_TIMEOUT)?;
    let inbox = open.files.open_inbox()?;
    let channels = ChannelSettings::read(&LayeredConfig::new(&config, &ctx.env))?;
    let mut run = PollRun::new(ctx, settings, 1, channels.max_parallel);
    run.only_stores = true;
    run.channels[0].get_or_init(|| PolledChannel::new(lock, open, inbox));
    let batch = Batch { messages: receipt.messages.clone(), cursor: Value::Null };
    intake::store(&run, 0, &receipt.account, &batch)?;
    Ok(receipt)
}
