//! `tests/real/tasks` with its scripted model: the program can do each of the tasks, and each check can fail.

use crate::requirements::require;
use crate::story::NANOBOT;
use std::path::Path;
use std::process::{Command, Output};

fn run_tasks(arguments: &[&str]) -> Output {
    Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/tasks"))
        .args(arguments)
        .env_clear()
        .envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("NANOBOT_BINARY", NANOBOT)])
        .output()
        .unwrap()
}

#[test]
fn a_model_can_do_each_everyday_task_and_an_idle_one_none() {
    if !["python3", "gcc", "git", "make", "node"].iter().all(|program| require(program)) {
        return;
    }
    let done = run_tasks(&[]);
    let table = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{table}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(table.contains("\n30 of 30 tasks, "), "{table}");
    let idle = run_tasks(&["--idle"]);
    let table = String::from_utf8_lossy(&idle.stdout);
    assert!(
        table.contains("\n0 of 30 tasks, "),
        "{table}\n{}",
        String::from_utf8_lossy(&idle.stderr)
    );
    assert_eq!(idle.status.code(), Some(1));
}
