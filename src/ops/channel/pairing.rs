//! Pairings: the open codes, and their approval.

use crate::ops::channel::bindings;
use crate::ops::channel::open_channel::{ChannelFiles, find_named};
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_channel::pairing::{PairingFile, PendingPairing};
use nanobot_channel::table::CHANNELS;
use nanobot_config::settings::bindings::{BindingKind, ChatBinding};

/// The codes that are valid now.
///
/// # Errors
/// Status 78 if `pairing.json` is damaged.
pub(crate) fn pending(ctx: &Context) -> Result<Vec<PendingPairing>> {
    let now = ctx.clock.timestamp().as_second();
    Ok(PairingFile::load(&ctx.paths.pairing())?.pending(now))
}

/// A sender that was allowed by a code.
pub(crate) struct ApprovedSender {
    pub(crate) pairing: PendingPairing,
    /// True if the memory that its messages are answered from is also that of others.
    pub(crate) shares_memory: bool,
}

/// Allows the sender of a code from now on, and binds it to the workspace of `--workspace`, if that is given.
///
/// # Errors
/// Status 66 if no such code is valid; the errors of [`bindings::bind`].
pub(crate) fn approve(ctx: &Context, code: &str) -> Result<ApprovedSender> {
    let now = ctx.clock.timestamp().as_second();
    // It is bound first: after a kill in between, no message is answered from the wrong memory.
    if ctx.workspace.is_some()
        && let Some(PendingPairing { channel, sender_id, .. }) =
            pending(ctx)?.into_iter().find(|pairing| pairing.code == code.trim().to_uppercase())
    {
        let change = ChatBinding {
            channel: find_named(&channel)?.name,
            kind: BindingKind::Sender,
            id: sender_id,
            profile: None,
            workspace: None,
            model: None,
            daily_budget: None,
        };
        bindings::bind(ctx, change)?;
    }
    let pairing = PairingFile::change(&ctx.paths.pairing(), |file| file.approve(code, now))?;
    let pairing = pairing.ok_or_else(|| {
        fail(Exit::NoInput, "there is no such code, or it has expired")
            .with_hint("`nanobot channel pair list` for the valid codes")
    })?;
    let shares_memory = shares_memory(ctx, &pairing)?;
    Ok(ApprovedSender { pairing, shares_memory })
}

/// True if the sender has no workspace of its own, and another sender of an enabled channel has none, either.
fn shares_memory(ctx: &Context, pairing: &PendingPairing) -> Result<bool> {
    let config = ctx.load_config()?;
    let mut senders = Vec::new();
    for kind in CHANNELS {
        let files = ChannelFiles::from_config(ctx, kind, &config)?;
        if !files.is_enabled() && kind.name != pairing.channel {
            continue;
        }
        let rules = files.access_rules(ctx)?;
        let bound = bindings::of_channel(ctx, &config, kind)?;
        let ids = rules.allow_from.iter().chain(&rules.approved);
        let has_workspace = |id: &str| {
            bound.iter().any(|binding| {
                binding.kind == BindingKind::Sender
                    && binding.id == id
                    && binding.workspace.is_some()
            })
        };
        let ids = ids.filter(|id| !has_workspace(id));
        senders.extend(ids.map(|id| (kind.name, id.clone())));
    }
    let is_new = |(name, id): &(&str, String)| *name == pairing.channel && *id == pairing.sender_id;
    Ok(senders.iter().any(is_new) && !senders.iter().all(is_new))
}
