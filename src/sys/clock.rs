//! What time it is, as a value: the system's, or one that a test fixed.

use crate::error::{Exit, Stop, fail};
use crate::sys::env::{Env, TEST_TIME};
use crate::sys::signal;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::time::Duration;

/// Where the time comes from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// Always this time, and waiting takes none.
    Fixed(Timestamp),
}

impl Clock {
    pub fn from_env(env: &Env) -> anyhow::Result<Self> {
        match env.get(TEST_TIME) {
            None => Ok(Self::System),
            Some(text) => text
                .parse()
                .map(Self::Fixed)
                .map_err(|error| fail(Exit::Config, format!("`{TEST_TIME}` is no time: {error}"))),
        }
    }

    pub fn timestamp(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Fixed(time) => *time,
        }
    }

    /// Now, in the system's time zone; UTC where a test fixed the time.
    pub fn now(&self) -> Zoned {
        match self {
            Self::System => Zoned::now(),
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
            Self::System => signal::pause(duration),
            Self::Fixed(_) => signal::check(),
        }
    }
}
