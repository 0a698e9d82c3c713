//! Commands that may change the same files run one at a time, so that each sees only its own changes.

use super::fixture::SandboxFixture;
use crate::requirements::require;
use crate::situation::User;
use crate::story::Story;
use crate::wait::{until, until_exists};
use serde_json::json;
use std::io::BufRead;
use std::process::Child;

/// Starts a run that only executes `command`.
fn start_command(story: &Story, command: &str, seconds: u64, flags: &[&str]) -> Child {
    let arguments = json!({ "command": command, "timeout": seconds }).to_string();
    let command_line = ["tool", "run", "exec", &arguments];
    let mut command = story.command(command_line.iter().chain(flags).copied());
    command.spawn().unwrap()
}

#[test]
fn runs_with_shared_writable_files_take_turns() {
    let fixture = SandboxFixture::new(User::Current);
    let story = &fixture.story;
    let dir = story.dir();
    std::fs::create_dir(dir.join("sub")).unwrap();
    let plant = "echo evil > .bashrc; touch on; while [ ! -e go ]; do sleep 0.02; done";
    let first = start_command(story, plant, 60, &["--write"]);
    until_exists(&dir.join("on"));
    // The same directory, a nested one and a parent; each waits up to the timeout of its command.
    let sub = format!("--write={}", dir.join("sub").display());
    let flag = format!("--write={}", dir.parent().unwrap().display());
    let waiting =
        [["--write"], [&sub], [&flag]].map(|flags| start_command(story, "touch ran", 1, &flags));
    for child in waiting {
        let result = story.wait(child);
        assert_ne!(result.code(), 0);
        let stderr = result.text() + &result.error_text();
        assert!(stderr.contains("another command that may change the same files"), "{stderr}");
        assert!(!dir.join("ran").exists());
    }
    // A read-only command does not wait.
    story.wait(start_command(story, "echo read", 60, &[])).stdout("read\n");
    let last = start_command(story, "cat .bashrc; touch ran", 60, &["--write"]);
    std::fs::write(dir.join("go"), "").unwrap();
    let planted = story.wait(first).status(77);
    planted.stdout("").stderr_has("was restored");
    let result = story.wait(last);
    assert!(!(result.text() + &result.error_text()).contains("evil"));
    result.stdout_has("No such file");
    assert!(dir.join("ran").exists() && !dir.join(".bashrc").exists());
}

/// A command that only reads can lock the directory, and must not stop the work of other runs by that.
#[test]
fn a_lock_of_a_command_is_not_waited_for() {
    if !require("flock") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let story = &fixture.story;
    let dir = story.dir();
    std::fs::write(dir.join("free"), "").unwrap();
    let command = "flock -x . -c 'touch $TMPDIR/held; while [ -e free ]; do sleep 0.02; done'";
    let holder = start_command(story, command, 60, &[]);
    let temporary = dir.with_file_name("tmp");
    let is_held = || {
        let runs = std::fs::read_dir(&temporary).unwrap().flatten();
        runs.map(|run| run.path().join("held")).any(|file| file.exists())
    };
    until("the command holds the lock", is_held);
    let result = story.wait(start_command(story, "touch ran", 20, &["--write"]));
    std::fs::remove_file(dir.join("free")).unwrap();
    story.wait(holder).stdout("(no output)\n");
    result.stdout("(no output)\n");
    assert!(dir.join("ran").exists());
    // Nothing is left of the locks of the directory itself, and commands do not see the others.
    let locks = story.home().join(".nanobot/write-locks");
    let inode = std::os::unix::fs::MetadataExt::ino(&dir.metadata().unwrap());
    let names: Vec<_> =
        std::fs::read_dir(&locks).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(
        !names.iter().any(|name| name.to_string_lossy().ends_with(&format!("-{inode:x}"))),
        "{names:?}"
    );
    let home = format!("--write={}", story.home().display());
    let tried = "ls ~/.nanobot/write-locks; flock -x ~/.nanobot/write-locks true";
    let result = story.wait(start_command(story, tried, 20, &[&home]));
    assert!(!result.text().contains(names[0].to_str().unwrap()));
    drop(result.error_text());
    result.code();
}

/// A user who can read a directory can lock it, and must not stop its owner's work by that.
#[test]
fn a_lock_of_another_user_is_not_waited_for() {
    if !rustix::process::getuid().is_root() || !require("setpriv") || !require("flock") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let story = &fixture.story;
    let directory = std::fs::File::open(story.dir()).unwrap();
    let mut holder = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["sh", "-c", "flock -s 0; echo held; exec sleep 600"])
        .stdin(directory)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn();
    let holder = holder.as_mut().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let result = story.wait(start_command(story, "touch ran", 60, &["--write"]));
    holder.kill().unwrap();
    holder.wait().unwrap();
    result.stdout("(no output)\n");
    assert!(story.dir().join("ran").exists());
}
