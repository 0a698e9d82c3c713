//! What a turn costs on a short and on a long session, in one run: `cargo bench`.
//!
//! Runs are interleaved, so that a noisy machine disturbs all alike; minima and the ratio of the medians are printed.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

#[path = "../tests/cli/server.rs"]
#[allow(dead_code, reason = "the stories use more of it")]
mod server;

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SIZES: [usize; 3] = [100, 10_000, 100_000];
const RUNS: usize = 40;

fn main() {
    let server = server::Server::start();
    server.always(server::says("Hello."));
    let homes: Vec<tempfile::TempDir> = SIZES.iter().map(|size| home(server.port, *size)).collect();
    let mut times = vec![Vec::new(); SIZES.len()];
    for round in 0..=RUNS {
        for (home, times) in homes.iter().zip(&mut times) {
            let time = turn(home.path());
            // The first turn finds no closing line and counts the messages once; it also warms the cache.
            if round > 0 {
                times.push(time);
            }
        }
    }
    for times in &mut times {
        times.sort();
    }
    println!("a hello turn with `session.sync: none`, {RUNS} runs each, interleaved");
    println!(
        "{:>10} {:>10} {:>10} {:>8} {:>14}",
        "messages", "min ms", "median ms", "ratio", "file bytes"
    );
    let base = times[0][RUNS / 2];
    for ((size, times), home) in SIZES.iter().zip(&times).zip(&homes) {
        let median = times[RUNS / 2];
        let bytes = std::fs::metadata(
            home.path()
                .join(".nanobot/workspace/sessions/cli_direct.jsonl"),
        )
        .unwrap()
        .len();
        println!(
            "{size:>10} {:>10.2} {:>10.2} {:>8.2} {bytes:>14}",
            millis(times[0]),
            millis(median),
            millis(median) / millis(base)
        );
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn turn(home: &Path) -> Duration {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nanobot"));
    command
        .args(["agent", "-m", "hello"])
        .env_clear()
        .env("HOME", home)
        .current_dir("/");
    command
        .env("NANOBOT_SESSION__SYNC", "none")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started = Instant::now();
    let output = command.output().expect("the program runs");
    let time = started.elapsed();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "Hello.\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    time
}

/// A home whose default session holds `size` messages of about 380 bytes.
fn home(port: u16, size: usize) -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a temporary directory");
    let sessions = home.path().join(".nanobot/workspace/sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    let config = format!(
        "{{\"agents\": {{\"defaults\": {{\"model\": \"m\", \"provider\": \"custom\"}}}}, \
         \"providers\": {{\"custom\": {{\"apiKey\": \"k\", \"apiBase\": \"http://127.0.0.1:{port}/v1\"}}}}}}"
    );
    std::fs::write(home.path().join(".nanobot/config.json"), config).unwrap();
    let time = "2026-01-02T03:04:05.000000";
    let mut text = format!(
        "{{\"_type\": \"metadata\", \"key\": \"cli:direct\", \"created_at\": \"{time}\", \"updated_at\": \"{time}\", \
         \"metadata\": {{}}, \"last_consolidated\": {}}}\n",
        size - 50
    );
    let words = "lorem ipsum ".repeat(27);
    for number in 0..size {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        writeln!(
            text,
            "{{\"role\": \"{role}\", \"content\": \"{number} {words}\", \"timestamp\": \"{time}\"}}"
        )
        .unwrap();
    }
    std::fs::write(sessions.join("cli_direct.jsonl"), text).unwrap();
    home
}
