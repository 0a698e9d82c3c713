//! The delay of a job's starts on a machine, so that many machines with the same job do not start it at once. No I/O.

use nanobot_os::digest::digest;
use std::time::Duration;

const MINUTE_SECS: u64 = 60;
/// Bounds of the seconds part of a delay. They keep a start away from the beginning of the minute, at which cron and other schedulers check
/// whether a job is due.
const SECONDS_RANGE: std::ops::Range<u64> = 5..25;

/// Returns the delay of the job `id` on the machine `host`: less than `max`, and the same each time. Zero if `max` is
/// less than a minute.
pub fn start_delay(max: Duration, id: &str, host: &str) -> Duration {
    let minutes = max.as_secs() / MINUTE_SECS;
    if minutes == 0 {
        return Duration::ZERO;
    }
    let digest = digest(format!("{id} {host}").as_bytes());
    let hash = u64::from_str_radix(&digest[..16], 16).expect("a digest is hexadecimal");
    let spread = SECONDS_RANGE.end - SECONDS_RANGE.start;
    let seconds = SECONDS_RANGE.start + hash % spread;
    Duration::from_secs(hash / spread % minutes * MINUTE_SECS + seconds)
}

#[cfg(test)]
mod tests {
    use super::start_delay;
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn delays_are_spread_and_stable() {
        let max = Duration::from_mins(10);
        let delays: Vec<Duration> =
            (0..200).map(|host| start_delay(max, "a1b2c3d4", &format!("host-{host}"))).collect();
        assert!(delays.iter().all(|delay| *delay < max));
        assert!(delays.iter().all(|delay| (5..25).contains(&(delay.as_secs() % 60))));
        let distinct: BTreeSet<_> = delays.iter().collect();
        assert!(distinct.len() > 100, "{}", distinct.len());
        assert_eq!(delays[0], start_delay(max, "a1b2c3d4", "host-0"));
        assert_ne!(delays[0], start_delay(max, "a1b2c3d5", "host-0"));
        assert_eq!(start_delay(Duration::from_secs(59), "a", "b"), Duration::ZERO);
    }
}
