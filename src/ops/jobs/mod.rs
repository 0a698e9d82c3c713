//! Jobs: how one is made, run, delivered, and projected to the crontab.

pub(crate) mod cron_environment;
pub(crate) mod crontab_status;
pub(crate) mod crontab_sync;
pub(crate) mod delivery;
pub(crate) mod heartbeat;
pub(crate) mod job_options;
pub(crate) mod job_run;
pub(crate) mod job_status;
pub(crate) mod job_store;
pub(crate) mod lifecycle;
pub(crate) mod probe;
pub(crate) mod scheduler;
pub(crate) mod time_format;
pub(crate) mod time_zone;
pub(crate) mod timing;
pub(crate) mod trigger;
