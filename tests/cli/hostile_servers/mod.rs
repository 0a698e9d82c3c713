//! Servers that mean no good, as `tests/servers/hostile.py` has them: each is contained. The turn ends with its answer in
//! time, what is shown is harmless, our memory is bounded, and no process is left ([`yard`] sees to all that, for each run).

mod calls;
mod ends;
mod lists;
mod remote;
mod yard;

use crate::needs::need;
use std::process::Command;

/// A behaviour that no story is about would be thought contained.
#[test]
fn there_is_a_story_for_each_behaviour() {
    if !need("python3") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/hostile.py");
    let output = Command::new("python3")
        .args([script, "--list"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let stories = [
        include_str!("calls.rs"),
        include_str!("ends.rs"),
        include_str!("lists.rs"),
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
