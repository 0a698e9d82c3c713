//! Ends from outside.

use crate::server::{Answer, Ending, calls, sends};
use crate::story::Story;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

fn lives(mark: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line) == format!("sleep\0{mark}\0"))
}

/// Wait for a file, which something else makes; what never comes ends the test by its own time-out.
fn until_exists(path: &Path) {
    while !path.exists() {
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_ends_the_children_and_then_us() {
    for signal in [2, 15, 1] {
        // A mark of this very run: what another left behind proves nothing.
        let mark = &format!("{}.{signal}", 100_000 + std::process::id());
        let command = format!("setsid sleep {mark} & trap '' TERM; touch started; sleep {mark}");
        let story = Story::new().script([calls("exec", json!({ "command": command }))]);
        let mut child = story.command(["agent", "-m", "x"]).spawn().unwrap();
        until_exists(&story.dir().join("started"));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(
            pid,
            rustix::process::Signal::from_named_raw(signal).unwrap(),
        )
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal));
        assert!(!lives(mark), "{mark} is left");
        let lines = story.session("cli_direct.jsonl");
        assert!(
            lines.iter().any(|line| line["tool_calls"].is_array()),
            "the call was logged before it ran"
        );
    }
}

#[test]
fn a_signal_while_the_model_thinks() {
    let story = Story::new();
    let asked = story.dir().join("asked");
    let mark = asked.clone();
    story
        .server()
        .script([Box::new(move |_: &crate::server::Asked| {
            std::fs::write(&mark, "").unwrap();
            Answer::events([": thinking\n\n"]).ending(Ending::Stall)
        }) as crate::server::Turn]);
    let mut child = story.command(["agent", "-m", "x"]).spawn().unwrap();
    until_exists(&asked);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    story
        .server()
        .script([sends(Answer::json(400, &json!({ "error": "no" })))]);
    // What was asked is on disk, and can be taken up.
    story.run(["agent", "--resume"]).status(1).stderr_has("no");
    assert_eq!(story.session("cli_direct.jsonl")[1]["content"], "x");
}
