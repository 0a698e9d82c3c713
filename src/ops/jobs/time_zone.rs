//! Time zones: the zone of a job, the zone of the system, which cron uses, and the zone of the user.

use crate::ops::context::Context;
use anyhow::Result;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use nanobot_base::error::{Exit, fail};
use nanobot_config::settings::Settings;
use nanobot_cron::schedule;
use nanobot_cron::time_fields;
use nanobot_os::clock;

/// The current time in the user's zone.
pub(crate) fn now(ctx: &Context, settings: &Settings) -> Zoned {
    ctx.clock.timestamp().to_zoned(local_zone(ctx, settings))
}

/// The user's zone, which applies to times without a zone: the zone of the config, which the model receives too, else that
/// of the shell, else the system's.
pub(crate) fn local_zone(ctx: &Context, settings: &Settings) -> TimeZone {
    let configured = settings.timezone.as_deref().and_then(clock::named_zone);
    configured
        .or_else(|| zone_from_env(ctx).map(|(zone, _)| zone))
        .unwrap_or_else(|| clock::system_zone(&ctx.env).0)
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
            let error = schedule::unknown_zone_error(name, &clock::zone_names());
            Err(fail(Exit::Usage, format!("`--tz`: {error}")))
        }
    }
}

/// The default zone of a new job: the zone of the config, or the zone of the shell if it differs from the system's. `None`
/// is the system's zone.
pub(crate) fn default_zone(
    ctx: &Context,
    settings: &Settings,
    now: Timestamp,
    notices: &mut Vec<String>,
) -> Option<String> {
    if let Some(name) = settings.timezone.as_deref()
        && clock::named_zone(name).is_some()
    {
        return Some(name.to_owned());
    }
    let (system, system_name) = clock::system_zone(&ctx.env);
    let system_name = system_name.unwrap_or_else(|| "the system's".into());
    let unnamed_zone_notice = |source: &str| {
        format!(
            "the job uses the system's time zone ({system_name}), because {source} is not a time zone name; `--tz` sets another"
        )
    };
    if let Some(name) = &settings.timezone {
        notices.push(unnamed_zone_notice(&format!("`agents.defaults.timezone` (`{name}`)")));
    }
    let variable = ctx.env.get("TZ")?;
    let Some((zone, name)) = zone_from_env(ctx) else {
        notices.push(unnamed_zone_notice(&format!("TZ=`{variable}`")));
        return None;
    };
    // Two names of the same zone need no notice.
    if time_fields::is_same_clock(&zone, &system, now) {
        return None;
    }
    notices.push(format!(
        "the job uses this shell's time zone {name}; `--tz {system_name}` selects the system's"
    ));
    Some(name.to_owned())
}
