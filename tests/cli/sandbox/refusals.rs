//! Runs without a sandbox, and messages to commands inside of one.

use super::yard::{User, Yard, kernel_without};
use crate::needs::need;
use crate::server::{calls, says};
use crate::story::{NANOBOT, Story};
use serde_json::json;
use std::process::Command;

/// The program in `story` on a kernel without Landlock; `None` if that cannot be simulated.
pub(crate) fn without_landlock(story: &Story, arguments: &[&str]) -> Option<Command> {
    // `landlock_create_ruleset` has the same number on every architecture.
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
    ran.stderr_has("a sandbox is required but unavailable")
        .stdout("");
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
        usize::from(need("bash")),
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
    // With mounts, existing files cannot be opened at all, and new ones have to be removed.
    assert!(
        told.contains("`.envrc`") && told.contains("commands may not change"),
        "{told}"
    );
    let read = |name: &str| std::fs::read_to_string(yard.story.dir().join(name)).ok();
    assert_eq!(read(".git/config").as_deref(), Some("[core]\n"));
    assert_eq!(read(".envrc"), None);
    assert_eq!(read("fine").as_deref(), Some("x\n"));
}

#[test]
fn what_is_refused_says_which_flag_would_do() {
    let yard = Yard::new(User::Us);
    for name in [
        ".git/HEAD",
        ".git/config",
        "sub/.git/HEAD",
        "sub/.git/config",
    ] {
        yard.file(&yard.story.dir().join(name), "mine\n");
    }
    let told = yard.run(
        &["--write"],
        &[
            "mv .git aside",
            "echo x > sub/.git/config",
            "echo x > .envrc",
            "echo x > .git/config; echo x > .git/hooks",
        ],
    );
    assert!(
        told[0].contains("--write=.git/config") || told[0].contains("was restored"),
        "{}",
        told[0]
    );
    assert!(told[1].contains("`--write=sub/.git/config`"), "{}", told[1]);
    assert!(!told[1].contains("commit"), "{}", told[1]);
    assert!(
        told[2].contains("do not commit") && !told[2].contains("--write"),
        "{}",
        told[2]
    );
}

#[test]
fn the_status_of_a_command_by_hand_tells_how_it_went() {
    let story = Story::new();
    let run = |command: &str| {
        let arguments = json!({ "command": command, "timeout": 3 }).to_string();
        story.run(["tool", "run", "exec", &arguments])
    };
    run("echo on").stdout("on\n");
    run("echo on; exit 3")
        .status(1)
        .stdout("on\nExit code: 3\n");
    run("echo on; sleep 30")
        .status(1)
        .stderr("nanobot: Timed out after 3 seconds; all its processes were killed\n")
        .stdout("on\n");
    // Commands that use the network without an error message are recognized.
    run("echo on; sleep 30; curl x")
        .status(1)
        .stderr_has("`--net`")
        .stdout("on\n");
}

/// Toolchains outside the system are found by the user's variables, and their credentials stay denied.
#[test]
fn tools_that_lie_elsewhere_are_read_and_their_logins_are_not() {
    let mut yard = Yard::new(User::Us);
    let place = yard.outside().join("cargo");
    yard.file(&place.join("registry/x"), "open\n");
    yard.file(&place.join("credentials.toml"), "canary\n");
    yard.story = yard.story.env("CARGO_HOME", place.to_str().unwrap());
    for flags in [&[][..], &["--read", place.to_str().unwrap()][..]] {
        let told = yard.run(
            flags,
            &[
                "cat $CARGO_HOME/registry/x",
                "cat $CARGO_HOME/credentials.toml",
            ],
        );
        assert_eq!(told[0], "open");
        assert!(!told[1].contains("canary"), "{}", told[1]);
    }
}

#[test]
fn a_program_of_ours_inside_says_what_to_use() {
    let story = Story::bare().env("NANOBOT_INSIDE", "1");
    story
        .run(["agent", "-m", "x"])
        .status(77)
        .stderr_has("try: the agent's tools");
    story
        .run(["status"])
        .status(77)
        .stderr_has("cannot run in the agent's sandbox");
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

/// A command starts in the directory that was checked, whatever is at its path later.
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
