//! Pairings: the open codes, and their approval.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_channel::pairing::{PairingFile, PendingPairing};

/// The codes that are valid now.
///
/// # Errors
/// Status 78 if `pairing.json` is damaged.
pub(crate) fn pending(ctx: &Context) -> Result<Vec<PendingPairing>> {
    let now = ctx.clock.timestamp().as_second();
    Ok(PairingFile::load(&ctx.paths.pairing())?.pending(now))
}

/// Allows the sender of a code from now on.
///
/// # Errors
/// Status 66 if no such code is valid, 78 if `pairing.json` is damaged, 74 if it cannot be written.
pub(crate) fn approve(ctx: &Context, code: &str) -> Result<PendingPairing> {
    let now = ctx.clock.timestamp().as_second();
    let pairing = PairingFile::change(&ctx.paths.pairing(), |file| file.approve(code, now))?;
    pairing.ok_or_else(|| {
        fail_with_hint(
            Exit::NoInput,
            "there is no such code, or it has expired",
            "`nanobot channel pair list` for the valid codes",
        )
    })
}
