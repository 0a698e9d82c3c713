//! Hostile servers, as implemented in `tests/servers/hostile.py`. Each is contained: the turn ends with its answer in time,
//! output is sanitized, our memory is bounded, and no process is left ([`fixture`] checks this for each run).

mod calls;
mod fixture;
mod listing;
mod remote;
mod shutdown;

use crate::requirements::require;
use std::process::Command;

/// A behavior without a story would be assumed to be contained.
#[test]
fn each_hostile_behaviour_has_a_story() {
    if !require("python3") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/hostile.py");
    let output = Command::new("python3").args([script, "--list"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let stories = [
        include_str!("calls.rs"),
        include_str!("shutdown.rs"),
        include_str!("listing.rs"),
        include_str!("remote.rs"),
    ];
    let is_told = |name: &str| {
        let quoted = format!("\"{name}\"");
        stories.iter().any(|story| story.contains(&quoted))
    };
    let untold: Vec<&str> = text.lines().filter(|name| !is_told(name)).collect();
    assert_eq!(untold, [""; 0]);
    assert!(text.lines().count() >= 60, "{text}");
}
