//! Where there is no sandbox, and what a run inside of one is told.

use super::yard::{User, Yard, has, kernel_without};
use crate::server::{calls, says};
use crate::story::{NANOBOT, Story};
use serde_json::json;
use std::process::Command;

/// The program in `story` on a kernel without Landlock; `None` where that cannot be pretended.
pub(crate) fn without_landlock(story: &Story, arguments: &[&str]) -> Option<Command> {
    // `landlock_create_ruleset`, which has the same number everywhere.
    let launcher = kernel_without(444)?;
    let mut command = story.program(&launcher[0]);
    command.args(&launcher[1..]).arg(NANOBOT).args(arguments);
    Some(command)
}

#[test]
fn without_a_sandbox_commands_are_refused() {
    let story = Story::new().script([
        calls("exec", json!({ "command": "touch ran" })),
        says("done"),
    ]);
    let Some(mut command) = without_landlock(&story, &["agent", "-m", "x", "--write"]) else {
        story
            .run(["agent", "-m", "x", "--sandbox", "off"])
            .stdout("done\n");
        return;
    };
    let ran = story.wait(command.spawn().unwrap());
    assert!(
        ran.error_text().contains("--sandbox off"),
        "{}",
        ran.error_text()
    );
    ran.stdout("done\n");
    let told = story.asked()[1].last();
    assert!(
        told.contains("not run") && told.contains("Landlock"),
        "{told}"
    );
    assert!(!story.dir().join("ran").exists());
}

#[test]
fn where_a_sandbox_is_required_nothing_is_asked() {
    let story = Story::new();
    let arguments = ["agent", "-m", "x", "--sandbox", "strict"];
    let Some(mut command) = without_landlock(&story, &arguments) else {
        return;
    };
    let ran = story.wait(command.spawn().unwrap()).status(126);
    ran.stderr_has("here is none").stdout("");
    assert!(story.asked().is_empty());
}

#[test]
fn without_a_sandbox_and_with_it_off_commands_run() {
    let story = Story::new().script([
        calls("exec", json!({ "command": "echo ran > ran" })),
        says("done"),
    ]);
    let arguments = ["agent", "-m", "x", "--sandbox", "off"];
    match without_landlock(&story, &arguments) {
        Some(mut command) => story.wait(command.spawn().unwrap()).stdout("done\n"),
        None => story.run(arguments).stdout("done\n"),
    };
    assert!(story.dir().join("ran").exists());
}

#[test]
fn a_required_sandbox_that_is_there_is_used() {
    let yard = Yard::new(User::Us);
    let told = yard.run(&["--sandbox", "strict"], &["touch ran", "echo fine"]);
    assert!(told[0].contains("Permission denied"), "{}", told[0]);
    assert_eq!(told[1], "fine");
    assert!(!yard.story.dir().join("ran").exists());
}

#[test]
fn a_failure_by_the_sandbox_is_explained_once() {
    let yard = Yard::new(User::Us);
    let told = yard.run(
        &[],
        &[
            "touch a; touch b",
            "getent hosts example.invalid; exit 2",
            "bash -c ': > /dev/tcp/127.0.0.1/9' || exit 1",
        ],
    );
    assert_eq!(told[0].matches("`--write`").count(), 1, "{}", told[0]);
    assert!(!told[1].contains("`--"), "{}", told[1]);
    assert_eq!(
        told[2].matches("`--net`").count(),
        usize::from(has("bash")),
        "{}",
        told[2]
    );
}

#[test]
fn what_may_not_change_is_put_back_and_said() {
    let yard = Yard::new(User::Us);
    yard.file(&yard.story.dir().join(".git/config"), "[core]\n");
    let command = "(echo '[alias]' >> .git/config); echo x > .envrc; echo x > fine";
    yard.story
        .server()
        .script([calls("exec", json!({ "command": command })), says("done")]);
    let ran = yard
        .story
        .run(["agent", "-m", "x", "--write", "--json", "--ephemeral"]);
    let result = ran.json();
    drop(ran.error_text());
    assert_eq!(result["denials"][0]["tool"], "exec", "{result}");
    let told = yard.story.asked()[1].last();
    // Where there are mounts, what is there cannot even be opened; what is not there must be removed again.
    assert!(
        told.contains("`.envrc`") && told.contains("no command may change"),
        "{told}"
    );
    let read = |name: &str| std::fs::read_to_string(yard.story.dir().join(name)).ok();
    assert_eq!(read(".git/config").as_deref(), Some("[core]\n"));
    assert_eq!(read(".envrc"), None);
    assert_eq!(read("fine").as_deref(), Some("x\n"));
}

#[test]
fn a_program_of_ours_inside_says_what_to_use() {
    let story = Story::bare().env("NANOBOT_INSIDE", "1");
    story
        .run(["agent", "-m", "x"])
        .status(77)
        .stderr_has("try: the agent's own tools");
    story
        .run(["status"])
        .status(77)
        .stderr_has("command of an agent");
    story.run(["--version"]).stdout_has("nanobot");
    story.run(["--help"]).stdout_has("Usage");
}

#[test]
fn commands_find_that_they_are_inside_and_nothing_is_left_of_theirs() {
    let yard = Yard::new(User::Us);
    let told = yard.run(
        &[],
        &["echo $NANOBOT_INSIDE; echo x > $TMPDIR/x; stat -c %a $TMPDIR; ls -d $TMPDIR"],
    );
    let lines: Vec<&str> = told[0].lines().collect();
    assert_eq!(lines[..2], ["1", "700"], "{}", told[0]);
    assert!(!std::path::Path::new(lines[2]).exists());
    let temporary = yard.story.home().parent().unwrap().join("tmp");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
}

/// The directory that was decided on is where a command starts, whatever takes its name meanwhile.
#[test]
fn a_swapped_directory_leads_nowhere() {
    let yard = Yard::new(User::Us);
    let (dir, outside) = (yard.story.dir(), yard.outside());
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    let call = |number| json!({ "command": format!("pwd; : {number}"), "working_dir": "sub" });
    let calls_of = (0..60).map(|number| ("exec", call(number)));
    yard.story
        .server()
        .script([crate::server::calls_all(calls_of), says("done")]);
    let child = yard.command(&[]).spawn().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (sub, aside, link) = (dir.join("sub"), dir.join("aside"), dir.join("link"));
            std::os::unix::fs::symlink(&outside, &link).unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::rename(&sub, &aside).unwrap();
                std::fs::rename(&link, &sub).unwrap();
                std::fs::rename(&sub, &link).unwrap();
                std::fs::rename(&aside, &sub).unwrap();
            }
        });
        let ran = yard.story.wait(child);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        ran
    });
    drop(ran.error_text());
    ran.stdout("done\n");
    let told = yard.story.asked()[1].messages();
    let wrong = told.iter().filter(|message| {
        let text = message["content"].as_str().unwrap_or_default();
        message["role"] == "tool" && text.trim() == outside.to_str().unwrap()
    });
    assert_eq!(wrong.count(), 0);
}
