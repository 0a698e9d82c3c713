//! The chats that a run may write to without a command of the user: chats that the config names, and chats with a conversation.

use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_channel::table;
use nanobot_store::session;

/// True if `to` is in the channel's `recipients`, is an allowed sender, or is a chat that has a session.
///
/// # Errors
/// There is no such channel, or its config or `pairing.json` cannot be used.
pub(crate) fn is_known(ctx: &Context, channel: &str, to: &str) -> Result<bool> {
    let files = ChannelFiles::load(ctx, channel)?;
    if !files.is_enabled() {
        return Ok(false);
    }
    let rules = files.access_rules(ctx)?;
    if rules.lists_id(to)
        || rules.approved.contains(to)
        || files.config.list("recipients").iter().any(|recipient| recipient == to)
    {
        return Ok(true);
    }
    let store = ctx.session_store(&ctx.settings()?)?;
    Ok(session::open_raw(&store, &format!("{channel}:{to}")).is_ok())
}

/// True if `key` is the session key of a chat that has no session yet. A program must not begin such a session, because it
/// would allow runs to write to the chat.
///
/// # Errors
/// The config cannot be used.
pub(crate) fn is_new_chat(ctx: &Context, key: &str) -> Result<bool> {
    let is_of_service = key.split_once(':').is_some_and(|(name, _)| table::find(name).is_some());
    Ok(is_of_service && {
        let store = ctx.session_store(&ctx.settings()?)?;
        session::open_raw(&store, key).is_err()
    })
}
