//! Jobs: when they are due, what the job file says of them, and the lines of the crontab that stand for them.
//!
//! [`expression`], [`schedule`], [`line`] and [`table`] are pure: times come in as values, text goes out. [`store`] is the
//! job file, which the Python program shares; [`record`] is what only this program keeps of a job, in a folder of its own:
//! its terms, what was started, and what each run came to.

pub mod command;
pub mod export;
pub mod expression;
pub mod job;
mod job_entry;
mod job_file;
pub mod line;
pub mod record;
pub mod schedule;
pub mod store;
pub mod table;
