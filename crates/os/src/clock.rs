//! The current time and time zone: the system's, or a time that a test fixed.

use crate::durable_file;
use crate::env::Env;
use crate::signal;
use crate::test_hooks;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use nanobot_base::error::{Exit, Stop, fail};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The source of the current time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system clock, in the zone named by `TZ`, or else in the system's own zone.
    System(Option<String>),
    /// Always this time; sleeping returns immediately.
    Fixed(Timestamp),
}

impl Default for Clock {
    fn default() -> Self {
        Self::System(None)
    }
}

/// An instant of the clock by which the system dates files, in seconds and nanoseconds.
pub type FileTime = (i64, i64);

/// The current instant. A file that is changed later has a later time, or the same.
pub fn current_file_time() -> FileTime {
    read_clock(ClockId::CLOCK_REALTIME_COARSE)
}

fn read_clock(clock: ClockId) -> FileTime {
    // Through the C library: rustix searches the vDSO itself, which fails under Valgrind.
    let now = clock_gettime(clock).expect("Linux has these clocks since 2.6.32");
    (now.tv_sec(), now.tv_nsec())
}

/// Waits until files that change from now on get a later time than those before: some milliseconds.
///
/// # Errors
/// The run is to end.
pub fn wait_for_later_file_time() -> Result<(), Stop> {
    // Since Linux 6.13 files may have exact times, which are later than the coarse clock.
    let now = read_clock(ClockId::CLOCK_REALTIME);
    while current_file_time() <= now {
        signal::sleep(Duration::from_millis(1))?;
    }
    Ok(())
}

/// The time at which the content or the metadata was last changed. No program can set it.
pub fn file_time(stat: &rustix::fs::Stat) -> FileTime {
    let nanoseconds = i64::try_from(stat.st_ctime_nsec).unwrap_or_default();
    (stat.st_ctime, nanoseconds)
}

/// The system's time zone database.
const ZONE_DIR: &str = "/usr/share/zoneinfo";

/// The system's own zone, independent of `TZ`.
const LOCALTIME_PATH: &str = "/etc/localtime";

/// The name of the system's zone if `/etc/localtime` is not a link.
const UNNAMED_ZONE: &str = "Local";

/// Returns the zone that `TZ` names, without its colon, read from its own file: a look-up in the library's index would first read the
/// names of all zones.
fn zone_for_tz(name: Option<&str>) -> TimeZone {
    let zone = match name {
        None => read_tzif(
            Path::new(LOCALTIME_PATH),
            localtime_zone_name().as_deref().unwrap_or(UNNAMED_ZONE),
        ),
        Some(path) if path.starts_with('/') => read_tzif(Path::new(path), path),
        Some(name) => named_zone(name),
    };
    // `TZ` is a POSIX rule instead of a name, or the zone database is elsewhere.
    zone.unwrap_or_else(TimeZone::system)
}

/// Returns the zone with this name, if it exists.
pub fn named_zone(name: &str) -> Option<TimeZone> {
    let is_plain = |part| matches!(part, Component::Normal(_));
    // `..` would lead out of the database.
    if name.is_empty() || !Path::new(name).components().all(is_plain) {
        return None;
    }
    read_tzif(&Path::new(ZONE_DIR).join(name), name)
}

/// Returns the zone that the system's cron uses, independent of `TZ`, and its name if `/etc/localtime` is a link. UTC
/// if the system has none, or if a test fixed the time and no zone.
pub fn system_zone(env: &Env) -> (TimeZone, Option<String>) {
    let utc = || (TimeZone::UTC, Some("UTC".to_owned()));
    if let Some(name) = test_hooks::ZONE.get(env) {
        return named_zone(name).map_or_else(utc, |zone| (zone, Some(name.to_owned())));
    }
    if test_hooks::TIME.get(env).is_some() {
        return utc();
    }
    let name = localtime_zone_name();
    let zone = read_tzif(Path::new(LOCALTIME_PATH), name.as_deref().unwrap_or(UNNAMED_ZONE));
    zone.map_or_else(utc, |zone| (zone, name))
}

/// Returns the name of the zone of `time` for people: its name in the database, or else its offset at that time.
pub fn zone_name(time: &Zoned) -> String {
    let name = time.time_zone().iana_name().filter(|name| *name != UNNAMED_ZONE);
    name.map_or_else(|| time.strftime("UTC%:z").to_string(), str::to_owned)
}

/// Returns the sorted names of all zones, to suggest a correction.
pub fn zone_names() -> Vec<String> {
    let mut names = Vec::new();
    let mut dirs = vec![PathBuf::from(ZONE_DIR)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(ZONE_DIR).ok().and_then(Path::to_str);
            let Some(name) = name.map(str::to_owned) else {
                continue;
            };
            if !path.is_dir() {
                if is_tzif_file(&path) {
                    names.push(name);
                }
            } else if !matches!(&*name, "posix" | "right") {
                // Those two hold copies of the same zones, without and with leap seconds.
                dirs.push(path);
            }
        }
    }
    names.sort();
    names
}

/// Returns the zone name that `/etc/localtime` links to.
fn localtime_zone_name() -> Option<String> {
    let target = std::fs::read_link(LOCALTIME_PATH).ok()?;
    let (_, name) = target.to_str()?.split_once("zoneinfo/")?;
    Some(name.to_owned())
}

fn read_tzif(path: &Path, name: &str) -> Option<TimeZone> {
    let bytes = durable_file::read(path).ok()??;
    TimeZone::tzif(name, &bytes).ok()
}

/// True if the file is a time zone (RFC 9636). The database also contains tables and notes.
fn is_tzif_file(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = |mut file: File| file.read_exact(&mut magic);
    File::open(path).and_then(read).is_ok() && &magic == b"TZif"
}

impl Clock {
    /// Creates the clock that the environment asks for.
    ///
    /// # Errors
    /// Status 78 if the test hook is not a valid time.
    pub fn from_env(env: &Env) -> anyhow::Result<Self> {
        match test_hooks::TIME.get(env) {
            None => Ok(Self::System(env.time_zone().map(str::to_owned))),
            Some(text) => text.parse().map(Self::Fixed).map_err(|error| {
                let hook = test_hooks::TIME;
                fail(Exit::Config, format!("`{hook}` is not a valid time: {error}"))
            }),
        }
    }

    /// Returns the current time.
    pub fn timestamp(&self) -> Timestamp {
        match self {
            Self::System(_) => Timestamp::now(),
            Self::Fixed(time) => *time,
        }
    }

    /// Returns the current time in the local time zone; in UTC if a test fixed the time.
    pub fn now(&self) -> Zoned {
        match self {
            Self::System(name) => {
                static ZONE: OnceLock<TimeZone> = OnceLock::new();
                let zone = ZONE.get_or_init(|| zone_for_tz(name.as_deref()));
                Timestamp::now().to_zoned(zone.clone())
            }
            Self::Fixed(time) => time.to_zoned(TimeZone::UTC),
        }
    }

    /// Returns the current time in the zone `name`, or in the local one if there is no such zone.
    pub fn now_in(&self, name: Option<&str>) -> Zoned {
        let now = self.now();
        match name.and_then(named_zone) {
            Some(zone) => now.with_time_zone(zone),
            None => now,
        }
    }

    /// Converts a time as files contain it, local if it has no zone, to RFC 3339 in UTC. `None` for other text.
    pub fn to_rfc3339(&self, text: &str) -> Option<String> {
        let from_local = |time: jiff::civil::DateTime| {
            Some(time.to_zoned(self.now().time_zone().clone()).ok()?.timestamp())
        };
        let time = text.parse::<Timestamp>().ok();
        let time = time.or_else(|| text.parse().ok().and_then(from_local))?;
        Some(time.to_string())
    }

    /// Returns local time without a zone, to the microsecond: the format of session files.
    pub fn local_timestamp(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S%.6f").to_string()
    }

    /// Sleeps for `duration`.
    ///
    /// # Errors
    /// The run was cancelled or timed out.
    pub fn sleep(&self, duration: Duration) -> Result<(), Stop> {
        match self {
            Self::System(_) => signal::sleep(duration),
            Self::Fixed(_) => signal::check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{named_zone, system_zone, zone_for_tz, zone_names};
    use crate::env::Env;
    use crate::test_hooks::{TIME, ZONE};
    use jiff::Timestamp;

    #[test]
    fn zones_by_name_path_and_rule() {
        let check = |name: &str, expect: &str| {
            let time: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
            let shown = time.to_zoned(zone_for_tz(Some(name)));
            assert_eq!(shown.strftime("%H:%M %Z").to_string(), expect, "{name}");
        };
        check("Europe/Berlin", "14:00 CEST");
        check("/usr/share/zoneinfo/Asia/Tokyo", "21:00 JST");
        check("UTC", "12:00 UTC");
    }

    #[test]
    fn an_empty_variable_is_utc() {
        let name = |value: &str| {
            let env: Env = [("TZ", value)].into_iter().collect();
            env.time_zone().map(str::to_owned)
        };
        assert_eq!(name("").as_deref(), Some("UTC"));
        assert_eq!(name(":").as_deref(), Some("UTC"));
        assert_eq!(name(":Europe/Berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(Env::default().time_zone(), None);
    }

    #[test]
    fn zones_that_a_job_may_name() {
        assert!(named_zone("Europe/Berlin").is_some());
        assert_eq!(named_zone("UTC").unwrap().iana_name(), Some("UTC"));
        for name in [
            "",
            ".",
            "..",
            "Europe",
            "Europe/Nowhere",
            "../zoneinfo/UTC",
            "Europe/../UTC",
            "/usr/share/zoneinfo/UTC",
            "tzdata.zi",
            "CET-1CEST",
            "UTC\0",
        ] {
            assert!(named_zone(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn system_zone_ignores_the_tz_variable() {
        let name =
            |variables: &[(&str, &str)]| system_zone(&variables.iter().copied().collect::<Env>()).1;
        assert_eq!(name(&[("TZ", "Asia/Tokyo")]), name(&[]));
        let fixed = (TIME.name(), "2026-01-02T03:04:05Z");
        assert_eq!(name(&[fixed]).as_deref(), Some("UTC"));
        let named = (ZONE.name(), "Asia/Tokyo");
        assert_eq!(name(&[fixed, named]).as_deref(), Some("Asia/Tokyo"));
    }

    #[test]
    fn zone_names_are_only_zones() {
        let names = zone_names();
        for name in ["Europe/Berlin", "America/Argentina/Ushuaia", "UTC"] {
            assert!(names.iter().any(|other| other == name), "{name}");
        }
        let wrong = ["zone.tab", "tzdata.zi", "leapseconds", "posix/UTC"];
        assert!(names.iter().all(|name| !wrong.contains(&&**name)));
        assert!(names.is_sorted());
    }
}
