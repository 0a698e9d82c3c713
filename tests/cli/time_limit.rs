//! A limit for each story, so that one that waits forever ends with its name instead of stopping all tests.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

/// Longer than any story takes on a loaded machine.
const LIMIT: Duration = Duration::from_secs(600);
/// Time to fail by itself after its processes were killed, and how often the limits are checked.
const GRACE: Duration = Duration::from_secs(60);

/// Removes the limit when it is dropped.
pub(crate) struct TimeLimit(Instant);

struct Running {
    test: String,
    directory: PathBuf,
    is_killed: bool,
}

/// The stories that run, by the time of their start.
static RUNNING: Mutex<BTreeMap<Instant, Running>> = Mutex::new(BTreeMap::new());

impl TimeLimit {
    /// For the story of this thread, whose processes have a path below `directory` in their environment.
    ///
    /// After the limit these are killed, which ends most waits, so that the test fails. If it does not, all tests are aborted.
    /// Tests that only run on request take as long as they want.
    pub(crate) fn start(directory: &Path) -> Self {
        static CHECKS: Once = Once::new();
        CHECKS.call_once(|| {
            if !std::env::args().any(|argument| argument.ends_with("ignored")) {
                std::thread::spawn(check_limits);
            }
        });
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let running = Running { test, directory: directory.to_owned(), is_killed: false };
        let mut all = RUNNING.lock().unwrap();
        let mut start = Instant::now();
        while all.contains_key(&start) {
            start += Duration::from_nanos(1);
        }
        all.insert(start, running);
        Self(start)
    }
}

impl Drop for TimeLimit {
    fn drop(&mut self) {
        RUNNING.lock().unwrap().remove(&self.0);
    }
}

fn check_limits() {
    loop {
        std::thread::sleep(GRACE);
        let mut exceeded = Vec::new();
        for (start, running) in &mut *RUNNING.lock().unwrap() {
            let age = start.elapsed();
            if age > LIMIT + 3 * GRACE {
                report(&format!("{} does not end, so all tests are aborted", running.test));
                std::process::abort();
            }
            if age > LIMIT && !std::mem::replace(&mut running.is_killed, true) {
                exceeded.push((running.test.clone(), running.directory.clone()));
            }
        }
        for (test, directory) in exceeded {
            let killed = kill_processes(&directory);
            report(&format!("{test} has not ended after {LIMIT:?}; killed: {killed:#?}"));
        }
    }
}

/// Writes past the capture of the tests' output.
fn report(text: &str) {
    drop(writeln!(std::io::stderr(), "\n{text}"));
}

/// Kills the processes of the story in `directory`, and returns the command line of each and where it waits in the kernel.
fn kill_processes(directory: &Path) -> Vec<String> {
    let directory = directory.as_os_str().as_encoded_bytes();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut killed = Vec::new();
    for id in ids.filter_map(Pid::from_raw) {
        let read = |name: &str| {
            std::fs::read(format!("/proc/{}/{name}", id.as_raw_nonzero())).unwrap_or_default()
        };
        if memchr::memmem::find(&read("environ"), directory).is_some() {
            let [command, function] = ["cmdline", "wchan"].map(|name| {
                String::from_utf8_lossy(&read(name)).trim_end_matches('\0').replace('\0', " ")
            });
            // One that has ended meanwhile needs no signal.
            if kill_process(id, Signal::KILL).is_ok() {
                killed.push(format!("{command} ({function})"));
            }
        }
    }
    killed
}

#[test]
fn the_processes_of_a_story_are_recognised() {
    let story = crate::story::Story::new();
    let other = crate::story::Story::new();
    let [mut mine, mut others] = [&story, &other]
        .map(|story| story.program("sleep").arg("600").spawn().expect("the program starts"));
    assert!(kill_processes(&story.home())[0].starts_with("sleep 600 ("));
    assert!(!mine.wait().unwrap().success());
    assert!(others.try_wait().unwrap().is_none());
    assert_eq!(kill_processes(&other.home()).len(), 1);
    others.wait().unwrap();
}
