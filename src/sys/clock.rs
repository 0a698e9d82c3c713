//! What time it is, as a value: the system's, or one that a test fixed.

use crate::error::{Exit, Stop, fail};
use crate::sys::env::{Env, TEST_TIME};
use crate::sys::signal;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::sync::OnceLock;
use std::time::Duration;

/// Where the time comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's, in the zone that `TZ` names, or else the system's own.
    System(Option<String>),
    /// Always this time, and waiting takes none.
    Fixed(Timestamp),
}

impl Default for Clock {
    fn default() -> Self {
        Self::System(None)
    }
}

/// Where systems keep what is known of time zones.
const ZONES: &str = "/usr/share/zoneinfo";

/// The zone that `name` stands for, read from its one file: to look it up in the library's index would mean to read the
/// names of all zones first.
fn zone(name: Option<&str>) -> TimeZone {
    let (path, name) = match name.map(|name| name.trim_start_matches(':')) {
        None => {
            let target = std::fs::read_link("/etc/localtime").unwrap_or_default();
            let name = target
                .to_str()
                .and_then(|target| target.split_once("zoneinfo/"));
            (
                "/etc/localtime".into(),
                name.map_or("Local", |(_, name)| name).to_owned(),
            )
        }
        Some(path) if path.starts_with('/') => (path.into(), path.to_owned()),
        Some(name) => (format!("{ZONES}/{name}"), name.to_owned()),
    };
    let read = std::fs::read(path).ok();
    read.and_then(|bytes| TimeZone::tzif(&name, &bytes).ok())
        // A rule instead of a name, or a system that keeps its zones elsewhere.
        .unwrap_or_else(TimeZone::system)
}

impl Clock {
    pub fn from_env(env: &Env) -> anyhow::Result<Self> {
        match env.get(TEST_TIME) {
            None => Ok(Self::System(env.get("TZ").map(str::to_owned))),
            Some(text) => text
                .parse()
                .map(Self::Fixed)
                .map_err(|error| fail(Exit::Config, format!("`{TEST_TIME}` is no time: {error}"))),
        }
    }

    pub fn timestamp(&self) -> Timestamp {
        match self {
            Self::System(_) => Timestamp::now(),
            Self::Fixed(time) => *time,
        }
    }

    /// Now, in the system's time zone; UTC where a test fixed the time.
    pub fn now(&self) -> Zoned {
        match self {
            Self::System(name) => {
                static ZONE: OnceLock<TimeZone> = OnceLock::new();
                let zone = ZONE.get_or_init(|| zone(name.as_deref()));
                Timestamp::now().to_zoned(zone.clone())
            }
            Self::Fixed(time) => time.to_zoned(TimeZone::UTC),
        }
    }

    /// Local time without a zone, to the microsecond: the form in which session files keep time.
    pub fn stamp(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S%.6f").to_string()
    }

    /// Sleep.
    ///
    /// # Errors
    /// The run is to end.
    pub fn sleep(&self, duration: Duration) -> Result<(), Stop> {
        match self {
            Self::System(_) => signal::pause(duration),
            Self::Fixed(_) => signal::check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::zone;
    use jiff::Timestamp;

    #[test]
    fn zones_by_name_path_and_rule() {
        let check = |name: &str, expect: &str| {
            let time: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
            let shown = time.to_zoned(zone(Some(name)));
            assert_eq!(shown.strftime("%H:%M %Z").to_string(), expect, "{name}");
        };
        check("Europe/Berlin", "14:00 CEST");
        check(":Europe/Berlin", "14:00 CEST");
        check("/usr/share/zoneinfo/Asia/Tokyo", "21:00 JST");
        check("UTC", "12:00 UTC");
    }
}
