//! `serve webhook`: handles one webhook request. Its messages are in the journal before the response is sent. Then this
//! process, or a poll that is at work, answers them.

use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::channel::outbox;
use crate::ops::context::Context;
use crate::ops::inbound::channel_run::{ChannelRun, LockedChannel};
use crate::ops::inbound::intake;
use crate::ops::inbound::poll::{self, PollOptions};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_channel::WebhookReceipt;
use nanobot_channel::inbox::ChannelInbox;
use nanobot_net::webhook_request::{self, WebhookError, WebhookRequest, WebhookResponse};
use nanobot_os::signal;
use std::time::Duration;

/// Maximum wait for another process that writes into the journal, or sends.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to poll while another poll is at work.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// Time after which messages in the journal are left to the other poll.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(900);
/// Time after which messages that have to be fetched from the service are left to the other poll.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// HTTP statuses (RFC 9110 §15).
const UNAUTHORIZED: u16 = 401;
const SERVICE_UNAVAILABLE: u16 = 503;

/// Handles the request of this process, which is for the channel `name`.
///
/// # Errors
/// Status 2 for an unknown channel, 78 for one that cannot take webhooks, 77 for a request without a valid signature, 65
/// for an invalid request. A response is sent in these cases too.
pub(crate) fn listen(ctx: &Context, name: &str) -> Result<Exit> {
    let respond =
        |response: &WebhookResponse| webhook_request::respond(&ctx.env, ctx.terminal, response);
    let files = match ChannelFiles::load(ctx, name) {
        Ok(files) if files.is_enabled() => files,
        Ok(_) => {
            respond(&WebhookResponse::empty(SERVICE_UNAVAILABLE))?;
            return Err(fail(Exit::Config, "it is not enabled")
                .with_hint(format!("`nanobot config set channels.{name}.enabled true`")));
        }
        Err(error) => {
            respond(&WebhookResponse::empty(SERVICE_UNAVAILABLE))?;
            return Err(error);
        }
    };
    let request = match WebhookRequest::read(&ctx.env) {
        Ok(request) => request,
        Err(WebhookError::Failed(error)) => return Err(error),
        Err(WebhookError::Unusable(status)) => {
            let status = status.as_u16();
            respond(&WebhookResponse::empty(status))?;
            let cause = format!("no usable request: status {status} was sent");
            return Err(fail(Exit::BadInput, cause));
        }
    };
    let directory = files.directory.clone();
    let receipt = match store_messages(ctx, files, &request) {
        Ok(receipt) => receipt,
        Err(error) => {
            // The service sends the request again.
            respond(&WebhookResponse::empty(SERVICE_UNAVAILABLE))?;
            return Err(error);
        }
    };
    respond(&receipt.response)?;
    if receipt.response.status == UNAUTHORIZED {
        return Err(fail(Exit::Refused, "the request has no valid signature"));
    }
    let options = PollOptions { names: vec![name.to_owned()], ..PollOptions::default() };
    let ids: Vec<&str> = receipt.messages.iter().map(|message| message.id.as_str()).collect();
    if ids.is_empty() && !receipt.is_for_poll {
        return Ok(Exit::Answered);
    }
    let timeout = if receipt.is_for_poll { FETCH_TIMEOUT } else { ANSWER_TIMEOUT };
    let end = signal::now() + timeout;
    loop {
        let exit = poll::poll(ctx, &options)?;
        if exit != Exit::TryAgain || signal::now() >= end {
            return Ok(exit);
        }
        // Another poll is at work. This process is done if that poll has taken all of its messages.
        let state = ChannelInbox::read(&directory)?;
        let is_taken = |id: &&str| {
            state.inbound(id).is_none_or(|entry| !entry.is_unanswered() || !entry.turns.is_empty())
        };
        if !receipt.is_for_poll && ids.iter().all(is_taken) {
            return Ok(Exit::Answered);
        }
        signal::sleep(RETRY_INTERVAL)?;
    }
}

/// Checks the request, and writes its messages into the journal.
fn store_messages(
    ctx: &Context,
    files: ChannelFiles,
    request: &WebhookRequest,
) -> Result<WebhookReceipt> {
    let settings = ctx.settings()?;
    let channel = files.open(ctx, settings.network.clone())?;
    let receipt = channel.service.receive(request)?;
    if receipt.messages.is_empty() {
        return Ok(receipt);
    }
    // Under the lock, a message that two requests contain is stored once, and no poll rewrites the journal.
    let lock = outbox::lock(&channel, STORE_TIMEOUT)?;
    let inbox = channel.files.open_inbox()?;
    let mut run = ChannelRun::new(ctx, settings, 1, channel.files.settings.max_parallel);
    run.only_stores = true;
    run.channels[0].get_or_init(|| LockedChannel::new(lock, channel, inbox));
    // The position of a poll stays as it is.
    intake::store_messages(&run, 0, &receipt.messages)?;
    Ok(receipt)
}
