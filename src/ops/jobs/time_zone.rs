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
    let name = ctx.env.time_zone()?;
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
    let shell_zone = zone_from_env(ctx);
    let unknown_name = match (&settings.timezone, ctx.env.get("TZ")) {
        (Some(name), _) => Some(format!("`agents.defaults.timezone` (`{name}`)")),
        (None, Some(variable)) if shell_zone.is_none() => Some(format!("TZ=`{variable}`")),
        (None, _) => None,
    };
    // Two names of the same zone need no notice.
    let shell_zone = shell_zone.filter(|(zone, _)| !time_fields::is_same_clock(zone, &system, now));
    let name = shell_zone.map(|(_, name)| name);
    notices.extend(zone_notice(name, system_name.as_deref(), unknown_name.as_deref()));
    name.map(str::to_owned)
}

/// The notice about the zone of a job: that of the shell, or else the system's. `unknown_name` is the setting that would
/// choose another zone, if it were the name of one.
fn zone_notice(
    shell_zone: Option<&str>,
    system_zone: Option<&str>,
    unknown_name: Option<&str>,
) -> Option<String> {
    let cause = unknown_name.map(|name| format!(", because {name} is not a time zone name"));
    match (shell_zone, cause) {
        (Some(shell_zone), cause) => {
            let system_zone = system_zone.unwrap_or("''");
            Some(format!(
                "the job uses this shell's time zone {shell_zone}{}; `--tz {system_zone}` selects the system's",
                cause.unwrap_or_default()
            ))
        }
        (None, Some(cause)) => {
            let system_zone = system_zone.map_or_else(String::new, |name| format!(" ({name})"));
            Some(format!(
                "the job uses the system's time zone{system_zone}{cause}; `--tz` sets another"
            ))
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::zone_notice;

    #[test]
    fn one_notice_says_which_zone_a_job_has_and_why() {
        let check = |zones: [Option<&str>; 3], expect: Option<&str>| {
            assert_eq!(zone_notice(zones[0], zones[1], zones[2]).as_deref(), expect);
        };
        check([None, Some("UTC"), None], None);
        check(
            [Some("Asia/Tokyo"), None, None],
            Some("the job uses this shell's time zone Asia/Tokyo; `--tz ''` selects the system's"),
        );
        check(
            [Some("Asia/Tokyo"), Some("UTC"), Some("X")],
            Some(
                "the job uses this shell's time zone Asia/Tokyo, because X is not a time zone name; `--tz UTC` selects the system's",
            ),
        );
        check(
            [None, Some("UTC"), Some("X")],
            Some(
                "the job uses the system's time zone (UTC), because X is not a time zone name; `--tz` sets another",
            ),
        );
        check(
            [None, None, Some("X")],
            Some(
                "the job uses the system's time zone, because X is not a time zone name; `--tz` sets another",
            ),
        );
    }
}
