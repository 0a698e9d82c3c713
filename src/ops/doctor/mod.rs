//! `nanobot status`: an overview of the configuration, and the checks of `status check`.

pub(crate) mod check;
pub(crate) mod checks;
mod crontab_checks;
mod job_checks;
pub(crate) mod moved_home;
pub(crate) mod overview;
mod probe_check;
mod run_checks;
pub(crate) mod unused_tools;
