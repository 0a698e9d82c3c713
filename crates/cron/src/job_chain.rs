//! Chains of jobs that run after each other, which must not lead back to a job.

use super::job::Job;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};

/// Returns the names of `job` and those that it runs after if it would run after itself, directly or after others of `jobs`.
pub fn find_loop(jobs: &[Job], job: &Job) -> Option<String> {
    let mut names = vec![format!("`{}`", job.name)];
    let mut next = job.follows();
    while let Some(id) = next {
        if id == job.id {
            return Some(names.join(" runs after "));
        }
        // A loop of others, which this job is not in.
        if names.len() > jobs.len() {
            return None;
        }
        let predecessor = jobs.iter().find(|job| job.id == id);
        names.extend(predecessor.map(|job| format!("`{}`", job.name)));
        next = predecessor.and_then(Job::follows);
    }
    None
}

/// Checks that `job` does not run after itself, directly or after others of `jobs`.
///
/// # Errors
/// Status 2 if it would; the message names the jobs.
pub fn check_chain(jobs: &[Job], job: &Job) -> Result<()> {
    match find_loop(jobs, job) {
        None => Ok(()),
        Some(names) => Err(fail(Exit::Usage, format!("{names} would run after itself"))
            .with_hint("`--after` with a job that does not run after this one")),
    }
}

#[cfg(test)]
mod tests {
    use super::find_loop;
    use crate::job::Job;
    use crate::schedule::Schedule;
    use jiff::Timestamp;

    #[test]
    fn a_loop_is_found_from_each_job_in_it() {
        let job = |id: &str, after: &str| Job {
            id: id.to_owned(),
            name: id.to_owned(),
            schedule: Ok(Schedule::After(after.to_owned())),
            ..Job::heartbeat(Timestamp::UNIX_EPOCH)
        };
        let jobs = [job("a", "b"), job("b", "c"), job("c", "a"), job("d", "a"), job("e", "gone")];
        let check = |index: usize, expect: Option<&str>| {
            assert_eq!(find_loop(&jobs, &jobs[index]).as_deref(), expect, "{index}");
        };
        check(0, Some("`a` runs after `b` runs after `c`"));
        check(2, Some("`c` runs after `a` runs after `b`"));
        check(3, None);
        check(4, None);
        assert_eq!(find_loop(&[], &job("x", "x")).as_deref(), Some("`x`"));
    }
}
