//! The doctor: checks of what is configured, as functions from what is there to findings.

pub(crate) mod check;
pub(crate) mod cron;
pub(crate) mod run_checks;
pub(crate) mod unused_tools;
