//! The time zone that applies: a job's own, the system's, which cron uses, or that of the user's shell.

use crate::cron::schedule;
use crate::error::{Exit, fail};
use crate::ops::context::Context;
use crate::sys::clock;
use anyhow::Result;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// The current time in the user's zone.
pub(crate) fn now(ctx: &Context) -> Zoned {
    ctx.clock.timestamp().to_zoned(local_zone(ctx))
}

/// The user's zone: that of the shell, or the system's.
pub(crate) fn local_zone(ctx: &Context) -> TimeZone {
    zone_from_env(ctx).map_or_else(|| clock::system_zone(&ctx.env).0, |(zone, _)| zone)
}

/// The zone that `TZ` names, and its name.
fn zone_from_env(ctx: &Context) -> Option<(TimeZone, &str)> {
    let name = ctx.env.get("TZ")?.trim_start_matches(':');
    Some((clock::named_zone(name)?, name))
}

/// Checks that `name` is a known time zone.
pub(crate) fn validate_zone(name: &str) -> Result<String> {
    match clock::named_zone(name) {
        Some(_) => Ok(name.to_owned()),
        None => {
            let words = schedule::unknown_zone_error(name, &clock::zone_names());
            Err(fail(Exit::Usage, format!("`--tz`: {words}")))
        }
    }
}

/// The default zone of a new job: `None`, which is the system's, unless the shell uses another zone.
pub(crate) fn shell_zone(
    ctx: &Context,
    now: Timestamp,
    notices: &mut Vec<String>,
) -> Option<String> {
    let written = ctx.env.get("TZ")?;
    let (system, system_name) = clock::system_zone(&ctx.env);
    let system_name = system_name.unwrap_or_else(|| "the system's".into());
    let Some((zone, name)) = zone_from_env(ctx) else {
        notices.push(format!(
            "the job uses the system's time zone ({system_name}), because TZ=`{written}` is not a time zone name; `--tz` sets another"
        ));
        return None;
    };
    // Two names of the same zone need no notice. Samples over a year cover every change of the clock.
    let is_alike = (0..13).all(|month| {
        let time = now.to_zoned(TimeZone::UTC).saturating_add(month.months());
        let time = time.timestamp();
        zone.to_offset(time) == system.to_offset(time)
    });
    if is_alike {
        return None;
    }
    notices.push(format!(
        "the job uses this shell's time zone {name}; `--tz {system_name}` selects the system's"
    ));
    Some(name.to_owned())
}
