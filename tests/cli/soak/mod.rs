//! A household under trouble: ten channels, forty jobs, a pipe with eight workers and a REPL in one home, while processes are killed,
//! the clock jumps, the disk is full and networks break. After each round of trouble, everything that was asked must be answered once.
//!
//! The household lives in namespaces of its own, with a small file system for its files: all its processes can be listed, its disk
//! can be filled, and nothing of it outlives the test.

#![allow(clippy::print_stdout, reason = "the numbers are to be seen")]

mod faults;
mod growth;
mod household;
mod network;
mod processes;
mod services;
mod settlement;
mod tally;

use crate::requirements::{require, skip};
use household::Household;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tally::Tally;

/// The directory on the small file system, for the test in its namespaces.
const DISK_VARIABLE: &str = "NANOBOT_SOAK_DISK";
const MINUTES_VARIABLE: &str = "NANOBOT_SOAK_MINUTES";
const SEED_VARIABLE: &str = "NANOBOT_SOAK_SEED";

const DISK_BYTES: u64 = 2 << 30;
/// Rounds of the short run.
const ROUNDS: usize = 8;
/// Rounds from which on the sizes of files show a trend.
const MIN_TREND_ROUNDS: usize = 100;

/// A program in mount and PID namespaces of its own.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
}

/// Runs the test `name` again in its namespaces. It must succeed there.
fn run_in_namespaces(name: &str) {
    if !require("unshare") {
        return;
    }
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        return skip("there can be no namespaces for the household");
    }
    let disk = tempfile::tempdir().unwrap();
    // The first process takes care of those whose parents have ended.
    let script = format!(
        "mount -t tmpfs -o mode=755,size={DISK_BYTES} soak \"$0\" && {{ \"$@\" 2>&1 & wait $!; }}"
    );
    let mut inner = unshare();
    inner.args(["/bin/sh", "-c", &script]).arg(disk.path()).arg(std::env::current_exe().unwrap());
    inner.args(["--exact", name, "--nocapture"]);
    inner.args(std::env::args().filter(|argument| argument.ends_with("ignored")));
    let mut child = inner.env(DISK_VARIABLE, disk.path()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).for_each(|line| println!("{line}"));
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("it is a number"))
}

/// Lets a household live for `rounds` rounds, or for `duration`.
fn live(disk: &Path, rounds: usize, duration: Duration) -> Tally {
    let seed = number_in(SEED_VARIABLE).unwrap_or(1);
    println!("seed {seed}; {SEED_VARIABLE} sets another");
    let story = household::prepare_story(disk);
    let mut household = Household::start(&story, disk, seed);
    let end = Instant::now() + duration;
    let mut samples = vec![household.measure()];
    for round in 1.. {
        household.live_round(round);
        samples.push(household.measure());
        if round >= rounds && Instant::now() >= end {
            break;
        }
    }
    let tally = household.end();
    println!("{} rounds in {} s: {tally:?}", samples.len() - 1, duration.as_secs());
    let growths = growth::compare(&samples);
    for growth in &growths {
        let growth::Growth { kind, end, first, last, .. } = growth;
        println!(
            "{kind}: {} files, {} bytes; first tenth {first}, last tenth {last}",
            end.files, end.bytes
        );
    }
    if samples.len() > MIN_TREND_ROUNDS {
        let unbounded: Vec<&str> = growths
            .iter()
            .filter(|growth| growth.is_unbounded())
            .map(|growth| growth.kind.as_str())
            .collect();
        assert_eq!(unbounded, [""; 0], "these grow without bound");
    }
    tally
}

#[test]
fn a_household_under_trouble_loses_nothing() {
    let Some(disk) = std::env::var_os(DISK_VARIABLE) else {
        return run_in_namespaces("soak::a_household_under_trouble_loses_nothing");
    };
    let tally = live(Path::new(&disk), ROUNDS, Duration::ZERO);
    tally.assert_complete();
}

#[test]
#[ignore = "takes an hour; see tests/real/soak"]
fn an_hour_of_trouble_loses_nothing() {
    let Some(disk) = std::env::var_os(DISK_VARIABLE) else {
        return run_in_namespaces("soak::an_hour_of_trouble_loses_nothing");
    };
    let minutes = number_in(MINUTES_VARIABLE).unwrap_or(60);
    live(Path::new(&disk), 1, Duration::from_secs(60 * minutes)).assert_complete();
}
