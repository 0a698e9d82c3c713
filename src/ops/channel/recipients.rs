//! The chats that a run may write to without a command of the user: chats that the config names, and chats with a conversation.

use crate::ops::channel::bindings;
use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_config::settings::FlagOverrides;
use nanobot_store::session;

/// True if `to` is in the channel's `recipients`, is an allowed sender, or is a chat that has a session; and if it belongs to this workspace.
///
/// # Errors
/// There is no such channel, or its config or `pairing.json` cannot be used.
pub(crate) fn is_known(ctx: &Context, channel: &str, to: &str) -> Result<bool> {
    let files = ChannelFiles::load(ctx, channel)?;
    if !files.is_enabled() {
        return Ok(false);
    }
    let rules = files.access_rules(ctx)?;
    let is_listed = rules.lists_id(to)
        || rules.approved.contains(to)
        || files.config.list("recipients").iter().any(|recipient| recipient == to);
    let (settings, key) = (ctx.settings()?, format!("{channel}:{to}"));
    let is_known = is_listed || session::open_raw(&ctx.session_store(&settings)?, &key).is_ok();
    Ok(is_known && bindings::is_of_workspace(ctx, &settings, &key)?)
}

/// True if `key` is the session key of a chat that has no session yet. A program must not begin such a session, because it
/// would allow runs to write to the chat.
///
/// # Errors
/// The config cannot be used.
pub(crate) fn is_new_chat(ctx: &Context, key: &str) -> Result<bool> {
    if bindings::parse_session_key(key).is_none() {
        return Ok(false);
    }
    let config = ctx.load_config()?;
    let mut settings = ctx.resolve(&config, FlagOverrides::default())?;
    let binding = bindings::find_for_session(ctx, &config, &settings, key)?;
    if let Some(workspace) = binding.and_then(|binding| binding.workspace) {
        settings.workspace = workspace;
    }
    Ok(session::open_raw(&ctx.session_store(&settings)?, key).is_err())
}
