//! Runs without a sandbox, and messages to commands inside of one.

use super::fixture::SandboxFixture;
use crate::requirements::require;
use crate::server::{calls, says};
use crate::situation::{User, available_users, wrapper_without_syscall};
use crate::story::{NANOBOT, Story, write};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The program in `story` on a kernel without Landlock; `None` if that cannot be simulated.
pub(crate) fn command_without_landlock(story: &Story, arguments: &[&str]) -> Option<Command> {
    // `landlock_create_ruleset` has the same number on every architecture.
    let launcher = wrapper_without_syscall(444)?;
    let mut command = story.program(&launcher[0]);
    command.args(&launcher[1..]).arg(NANOBOT).args(arguments);
    Some(command)
}

#[test]
fn without_a_sandbox_commands_are_denied() {
    let story =
        Story::new().script([calls("exec", json!({ "command": "touch ran" })), says("done")]);
    let Some(mut command) = command_without_landlock(&story, &["agent", "-m", "x", "--write"])
    else {
        story.run(["agent", "-m", "x", "--sandbox", "off"]).stdout("done\n");
        return;
    };
    let result = story.wait(command.spawn().unwrap());
    assert!(result.error_text().contains("--sandbox off"), "{}", result.error_text());
    result.stdout("done\n");
    let content = story.requests()[1].last_content();
    assert!(content.contains("not run") && content.contains("Landlock"), "{content}");
    assert!(!story.dir().join("ran").exists());
}

#[test]
fn a_missing_required_sandbox_fails_before_any_request() {
    let story = Story::new();
    let arguments = ["agent", "-m", "x", "--sandbox", "strict"];
    let Some(mut command) = command_without_landlock(&story, &arguments) else {
        return;
    };
    let result = story.wait(command.spawn().unwrap()).status(126);
    result.stderr_has("a sandbox is required but unavailable").stdout("");
    assert!(story.requests().is_empty());
}

/// Nothing but mounts keeps a command from changing what starts by itself, so without them it may change nothing.
#[test]
fn without_namespaces_commands_change_no_files() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user).without_namespaces();
        fixture.write_file(&fixture.story.dir().join("file"), "mine\n");
        let outputs =
            fixture.run_commands(&[], &["cat file", "echo x > $TMPDIR/x && cat $TMPDIR/x"]);
        assert_eq!(outputs, ["mine", "x"]);
        let outputs = fixture.run_commands(&["--write"], &["echo new > file", "true"]);
        for output in &outputs {
            assert!(
                output.contains("user namespaces") && output.contains("`--sandbox off`"),
                "{output}"
            );
        }
        let outputs = fixture.run_commands(&["--write", "--sandbox", "off"], &["echo new > file"]);
        assert_eq!(outputs, ["(no output)"]);
        let read = std::fs::read_to_string(fixture.story.dir().join("file"));
        assert_eq!(read.unwrap(), "new\n");
    }
}

/// A grant covers the working directory within it.
#[test]
fn a_wider_grant_includes_the_directory() {
    for flags in [&["--write=.."][..], &["--profile", "full"]] {
        let fixture = SandboxFixture::new(User::Current);
        let outputs = fixture.run_commands(flags, &["echo new > made; cat made; ls / | head -1"]);
        assert!(outputs[0].starts_with("new\nbin"), "{flags:?}: {}", outputs[0]);
        let result = fixture.story.run(
            [&["tool", "run"], flags, &["write_file", r#"{"path":"other","content":"new"}"#]]
                .concat(),
        );
        result.stdout_has("created");
        for name in ["made", "other"] {
            assert!(fixture.story.dir().join(name).exists(), "{flags:?}: {name}");
        }
    }
}

#[test]
fn with_the_sandbox_off_commands_run_without_one() {
    let story =
        Story::new().script([calls("exec", json!({ "command": "echo ran > ran" })), says("done")]);
    let arguments = ["agent", "-m", "x", "--sandbox", "off"];
    match command_without_landlock(&story, &arguments) {
        Some(mut command) => story.wait(command.spawn().unwrap()).stdout("done\n"),
        None => story.run(arguments).stdout("done\n"),
    };
    assert!(story.dir().join("ran").exists());
}

#[test]
fn an_available_required_sandbox_is_used() {
    let fixture = SandboxFixture::new(User::Current);
    let outputs = fixture.run_commands(&["--sandbox", "strict"], &["touch ran", "echo fine"]);
    assert!(outputs[0].contains("Read-only file system"), "{}", outputs[0]);
    assert_eq!(outputs[1], "fine");
    assert!(!fixture.story.dir().join("ran").exists());
}

#[test]
fn a_failure_caused_by_the_sandbox_is_explained_once() {
    let fixture = SandboxFixture::new(User::Current);
    let outputs = fixture.run_commands(
        &[],
        &[
            "touch a; touch b",
            "getent hosts example.invalid; exit 2",
            "bash -c ': > /dev/tcp/192.0.2.1/9' || exit 1",
        ],
    );
    assert_eq!(outputs[0].matches("`--write`").count(), 1, "{}", outputs[0]);
    // A lookup, of which it prints nothing.
    assert_eq!(outputs[1].matches("`--net`").count(), 1, "{}", outputs[1]);
    assert_eq!(
        outputs[2].matches("`--net`").count(),
        usize::from(require("bash")),
        "{}",
        outputs[2]
    );
}

/// The output decides, even if the command line ends in success. Failures that the sandbox did not cause have no
/// explanation.
#[test]
fn explanations_follow_the_output() {
    let fixture = SandboxFixture::new(User::Current);
    let outside = fixture.outside_dir().display().to_string();
    fixture.write_file(&fixture.story.dir().join(".git/config"), "[core]\n");
    fixture.write_file(&fixture.story.dir().join("plain"), "#!/bin/sh\n");
    let rows: Vec<(String, &str)> = vec![
        ("touch /usr/x 2>&1 | tail -1".into(), "--write="),
        ("cat /root/x 2>&1 | head -3; true".into(), "--read=/root/x"),
        (format!("cat {outside}/a; ls"), "a /tmp of their own"),
        ("ls /usr/missing; cat missing".into(), ""),
        ("cat /home/x".into(), "--read=/home/x"),
        ("git config --file .git/config a.b c || true".into(), "--write=.git/config`"),
        (
            "echo 'curl: (7) Failed to connect to localhost port 8000'".into(),
            "`--net=127.0.0.1:8000`",
        ),
        ("echo 'the log says Permission denied'".into(), ""),
        ("./plain".into(), ""),
        ("chown 12345 plain".into(), "; the user can run such a command"),
        (
            "git init -q new; echo x > new/.git/hooks/pre-push".into(),
            "; the user can rename it back after reading it",
        ),
        (
            "git init -q other; git -C other config core.pager x".into(),
            "; the user can set it with `git config`",
        ),
    ];
    let commands: Vec<&str> = rows.iter().map(|(command, _)| command.as_str()).collect();
    let outputs = fixture.run_commands(&["--write"], &commands);
    for ((command, expect), output) in rows.iter().zip(outputs) {
        match *expect {
            "" => assert!(!output.contains("\n("), "{command}: {output}"),
            expect => assert_eq!(output.matches(expect).count(), 1, "{command}: {output}"),
        }
    }
}

#[test]
fn changed_protected_files_are_restored_and_reported() {
    let fixture = SandboxFixture::new(User::Current);
    fixture.write_file(&fixture.story.dir().join(".git/config"), "[core]\n");
    let command = "(echo '[alias] x = !y' >> .git/config); echo x > .bashrc; echo x > fine";
    fixture.story.server().script([calls("exec", json!({ "command": command })), says("done")]);
    let run_result = fixture.story.run(["agent", "-m", "x", "--write", "--json", "--ephemeral"]);
    let result = run_result.json();
    drop(run_result.error_text());
    assert_eq!(result["denials"][0]["tool"], "exec", "{result}");
    let content = fixture.story.requests()[1].last_content();
    // With mounts, existing files cannot be opened at all, and new ones have to be removed.
    assert!(
        content.contains("`.bashrc`") && content.contains("commands may not change"),
        "{content}"
    );
    let read = |name: &str| std::fs::read_to_string(fixture.story.dir().join(name)).ok();
    assert_eq!(read(".git/config").as_deref(), Some("[core]\n"));
    assert_eq!(read(".bashrc"), None);
    assert_eq!(read("fine").as_deref(), Some("x\n"));
}

#[test]
fn a_denial_names_the_flag_that_allows_it() {
    let fixture = SandboxFixture::new(User::Current);
    for name in [".git/HEAD", ".git/config", "sub/.git/HEAD", "sub/.git/config"] {
        fixture.write_file(&fixture.story.dir().join(name), "mine\n");
    }
    let outputs = fixture.run_commands(
        &["--write"],
        &[
            "mv .git aside",
            "echo x > sub/.git/config",
            "echo x > .bashrc",
            "echo x > .git/config; echo x > .git/hooks",
        ],
    );
    assert!(
        outputs[0].contains("--write=.git/config") || outputs[0].contains("was restored"),
        "{}",
        outputs[0]
    );
    assert!(outputs[1].contains("`--write=sub/.git/config`"), "{}", outputs[1]);
    assert!(!outputs[1].contains("commit"), "{}", outputs[1]);
    assert!(
        outputs[2].contains("do not commit") && !outputs[2].contains("--write"),
        "{}",
        outputs[2]
    );
}

#[test]
fn the_tool_command_exits_with_the_result_of_the_command() {
    let story = Story::new();
    let run = |command: &str| {
        let arguments = json!({ "command": command, "timeout": 3 }).to_string();
        story.run(["tool", "run", "exec", &arguments])
    };
    run("echo on").stdout("on\n");
    run("echo on; exit 3").status(1).stdout("on\nExit code: 3\n");
    run("echo on; sleep 30")
        .status(1)
        .stderr("nanobot: Timed out after 3 seconds; all its processes were killed\n")
        .stdout("on\n");
    // Commands that use the network without an error message are recognized.
    run("echo on; sleep 30; curl x").status(1).stderr_has("`--net`").stdout("on\n");
}

/// Toolchains outside the system are found by the user's variables, and their credentials stay denied.
#[test]
fn toolchains_outside_the_system_are_readable_but_their_credentials_are_not() {
    let mut fixture = SandboxFixture::new(User::Current);
    let dir = fixture.outside_dir().join("cargo");
    fixture.write_file(&dir.join("registry/x"), "open\n");
    fixture.write_file(&dir.join("credentials.toml"), "canary\n");
    fixture.story = fixture.story.env("CARGO_HOME", dir.to_str().unwrap());
    for flags in [&[][..], &["--read", dir.to_str().unwrap()][..]] {
        let outputs = fixture.run_commands(
            flags,
            &["cat $CARGO_HOME/registry/x", "cat $CARGO_HOME/credentials.toml"],
        );
        assert_eq!(outputs[0], "open");
        assert!(!outputs[1].contains("canary"), "{}", outputs[1]);
    }
}

#[test]
fn nanobot_inside_the_sandbox_suggests_a_tool() {
    let story = Story::bare().env("NANOBOT_INSIDE", "1");
    story.run(["agent", "-m", "x"]).status(77).stderr_has("try: the agent's tools");
    story.run(["status"]).status(77).stderr_has("cannot run in the agent's sandbox");
    story.run(["--version"]).stdout_has("nanobot");
    story.run(["--help"]).stdout_has("Usage");
}

#[test]
fn commands_can_detect_the_sandbox_and_leave_no_files() {
    let fixture = SandboxFixture::new(User::Current);
    let outputs = fixture.run_commands(
        &[],
        &["echo $NANOBOT_INSIDE; echo x > $TMPDIR/x; stat -c %a $TMPDIR; ls -d $TMPDIR"],
    );
    let lines: Vec<&str> = outputs[0].lines().collect();
    assert_eq!(lines[..2], ["1", "700"], "{}", outputs[0]);
    assert!(!std::path::Path::new(lines[2]).exists());
    let temporary = fixture.story.home().parent().unwrap().join("tmp");
    assert_eq!(std::fs::read_dir(temporary).unwrap().count(), 0);
}

/// A command starts in the directory that was checked, whatever is at its path later.
#[test]
fn a_swapped_directory_does_not_escape() {
    let fixture = SandboxFixture::new(User::Current);
    let (dir, outside) = (fixture.story.dir(), fixture.outside_dir());
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    let call = |number| json!({ "command": format!("pwd; : {number}"), "working_dir": "sub" });
    let calls_of = (0..60).map(|number| ("exec", call(number)));
    fixture.story.server().script([crate::server::calls_all(calls_of), says("done")]);
    let child = fixture.command(&[]).spawn().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
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
        let result = fixture.story.wait(child);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    });
    drop(result.error_text());
    result.stdout("done\n");
    let messages = fixture.story.requests()[1].messages();
    let wrong = messages.iter().filter(|message| {
        let text = message["content"].as_str().unwrap_or_default();
        message["role"] == "tool" && text.trim() == outside.to_str().unwrap()
    });
    assert_eq!(wrong.count(), 0);
}

/// A failure at a path outside is a denial, with the flag that helps.
#[test]
fn a_command_that_lacks_a_path_outside_is_denied() {
    let story = || {
        let story = Story::new_in(Path::new("/var/tmp")).file("calc.py", "1\n");
        write(&story.home().join("notes.txt"), b"mine\n");
        write(&story.home().join("inbox/a"), b"mine\n");
        story
    };
    let run = |story: &Story, flags: &[&str], command: &str| {
        story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
        let flags = [&["agent", "-m", "go", "--json", "--strict", "--ephemeral"], flags].concat();
        let result = story.run(flags);
        let code = result.code();
        let value = result.json();
        drop(result.error_text());
        (code, value["denials"].clone())
    };
    let home_path = |story: &Story, flag: &str| flag.replace('~', story.home().to_str().unwrap());
    for (flags, command, grant) in [
        (&[][..], "echo x >> ~/notes.txt", "--write=~/notes.txt"),
        (&[], "echo x > \"$HOME/notes.txt\"", "--write=~/notes.txt"),
        (&["--write"], "cp calc.py ~/notes.txt", "--write=~/notes.txt"),
        (&["--write"], "touch ~/inbox/new", "--write=~/inbox"),
        (&[], "cat ~/notes.txt", "--read=~/notes.txt"),
        (&["--write"], "ls ~/inbox", "--read=~/inbox"),
        (&["--write"], "make 2>/dev/null; wc -l calc.py ~/inbox/a", "--read=~/inbox/a"),
        (
            &[],
            "python3 -c 'import os; open(os.path.expanduser(\"~/notes.txt\"))'",
            "--read=~/notes.txt",
        ),
    ] {
        let story = story();
        let (code, denials) = run(&story, flags, command);
        let shown_grant = grant.replace('~', "$HOME");
        assert_eq!((code, &denials[0]["grant"]), (5, &json!(shown_grant)), "{command}: {denials}");
        let grant = home_path(&story, grant);
        let (code, denials) = run(&story, &[flags, &[grant.as_str()]].concat(), command);
        assert_eq!((code, denials), (0, json!([])), "{command}");
    }
    // The other refusal of a command is not what is named first.
    let both = "echo x > new.txt; echo x >> ~/notes.txt";
    let story = story();
    let (code, denials) = run(&story, &[], both);
    assert_eq!((code, &denials[0]["grant"]), (5, &json!("--write=$HOME/notes.txt")), "{denials}");
    // No flag helps against these.
    let (code, denials) = run(&story, &[], "cat ~/.nanobot/config.json");
    assert_eq!((code, &denials[0]["grant"]), (5, &Value::Null), "{denials}");
    let text = denials[0]["text"].as_str().unwrap();
    assert!(text.contains("is internal to nanobot"), "{denials}");
    let (code, denials) = run(&story, &["--profile", "plan"], "touch z");
    assert_eq!((code, &denials[0]["grant"]), (5, &Value::Null), "{denials}");
    assert!(
        denials[0]["text"].as_str().unwrap().contains("--profile default --write"),
        "{denials}"
    );
}

/// A command may print any path. The model learns neither what is there nor what is behind a link.
#[test]
fn the_model_reads_only_the_path_that_was_printed() {
    let story = Story::new_in(Path::new("/var/tmp"));
    let private = story.home().join("private");
    write(&private.join("there"), b"");
    std::os::unix::fs::symlink(&private, story.home().join("link")).unwrap();
    let mut process = Command::new("sleep").arg("60").current_dir(&private).spawn().unwrap();
    let cwd = format!("/proc/{}/cwd", process.id());
    let explain = |path: &str, error: &str| {
        let command = format!("ln -sfn {cwd} l; echo \"x: {path}: {error}\"; false");
        story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
        let result = story.run(["agent", "-m", "go", "--write", "--ephemeral"]);
        drop(result.error_text());
        result.stdout("Done.\n");
        story.last_request().last_content()
    };
    for error in ["No such file or directory", "Read-only file system", "Permission denied"] {
        for path in [&cwd, "$PWD/l", "$PWD/l/there", "l/there", "./l/missing/x"] {
            let content = explain(path, error);
            assert!(!content.contains("private"), "{content}");
        }
        for parent in ["link", "private"] {
            let explain = |name: &str| {
                explain(&format!("$HOME/{parent}/{name}"), error).replace(name, "NAME")
            };
            let content = explain("there");
            assert_eq!(content, explain("missing/deep/x"), "{parent}: {error}");
            assert!(content.contains(&format!("{parent}/NAME` in this run")), "{content}");
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let explain_write = |name: &str| {
        let arguments = json!({ "path": private.join(name), "content": "" });
        story.server().script([calls("write_file", arguments), says("Done.")]);
        let result = story.run(["agent", "-m", "go", "--ephemeral"]);
        drop(result.error_text());
        result.stdout("Done.\n");
        story.last_request().last_content().replace(name, "NAME")
    };
    assert_eq!(explain_write("there"), explain_write("fresh"));
}

#[test]
fn a_failure_that_the_sandbox_did_not_cause_is_no_denial() {
    let tool = "echo \"tool: $HOME/.toolrc: No such file or directory\"; exit 1\n";
    let story = Story::new_in(Path::new("/var/tmp")).file("calc.py", "1\n").file("tool", tool);
    write(&story.home().join("notes.txt"), b"mine\n");
    write(&story.home().join(".toolrc"), b"mine\n");
    for command in [
        "ls missing",
        "cat nofile",
        "cat /nowhere/x",
        "cat ~/nothing",
        "date > ~/nowhere/x",
        "test ! -e ~/notes.txt && false",
        "git status",
        "grep -q word calc.py",
        "find / -name x.y 2>/dev/null; false",
        "python3 -c 'open(\"/etc/shadow\")'",
        "echo \"tool: $PWD/calc.py: Permission denied\"; false",
        "echo \"tool: $PWD/calc.py: Read-only file system\"; false",
        "echo 'tool: /proc/self/status: Read-only file system'; false",
        "sh tool",
        "cat ~/notes.txt; true",
        "ssh() { cat ~/notes.txt; }; ssh host",
    ] {
        story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
        let flags = ["agent", "-m", "go", "--write", "--strict", "--ephemeral"];
        let result = story.run(flags);
        assert_eq!((result.code(), result.error_text()), (0, String::new()), "{command}");
        result.stdout("Done.\n");
    }
}
