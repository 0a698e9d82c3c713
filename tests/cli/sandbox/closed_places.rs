//! Closed places that appear while a command runs, and granted directories that are hard to mount.

use super::fixture::SandboxFixture;
use crate::server::{calls, says};
use crate::situation::{User, available_users};
use crate::story::{Story, write};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Places that are closed beneath a granted home, existing or not.
const CLOSED: &[&str] = &[
    ".nanobot/auth/openai.json",
    ".nanobot/pairing.json",
    ".nanobot/new",
    ".aws/credentials",
    ".ssh/id",
    ".gnupg/key",
    ".unheard-of/token",
    ".netrc",
    "snap/token",
    ".nanobot/workspace/sessions/new.jsonl",
];

/// Runs a command under `flags` that waits, and then reads what was created meanwhile.
fn read_after_creation(fixture: &SandboxFixture, flags: &[&str], closed: &[&str]) -> String {
    let home = fixture.story.home();
    write(&home.join("gate/closed"), b"");
    write(&home.join("notes.txt"), b"mine\n");
    write(&home.join(".nanobot/workspace/memory/MEMORY.md"), b"remembered\n");
    std::fs::create_dir_all(home.join(".nanobot/workspace/sessions")).unwrap();
    let pipe = home.join("gate/pipe");
    drop(std::fs::remove_file(&pipe));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let paths: Vec<_> = closed.iter().map(|name| home.join(name)).collect();
    let (at, created) = (pipe.clone(), paths.clone());
    let other = std::thread::spawn(move || {
        // Waits until the command reads.
        let mut gate = OpenOptions::new().write(true).open(at).unwrap();
        for path in &created {
            write(path, b"secret\n");
        }
        gate.write_all(b"go\n").unwrap();
    });
    let names = paths.iter().map(|path| format!("'{}'", path.display()));
    let names = names.collect::<Vec<_>>().join(" ");
    let script = format!(
        "exec 2>/dev/null; cd '{}'; read word < gate/pipe; echo $word; cat notes.txt .nanobot/workspace/memory/MEMORY.md {names}; ls -A \
         . .nanobot; true",
        home.display()
    );
    let outputs = fixture.run_commands(flags, &[script]);
    // If the command never read, the test fails instead of waiting forever.
    let last = OpenOptions::new().read(true).write(true).open(&pipe);
    other.join().unwrap();
    drop(last);
    for path in paths {
        drop(std::fs::remove_file(path));
    }
    outputs.into_iter().next().unwrap()
}

#[test]
fn closed_places_that_appear_while_a_command_runs_stay_closed() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let home = fixture.story.home().display().to_string();
        let above = fixture.story.home().parent().unwrap().display().to_string();
        for dir in [&home, &above] {
            let outputs = read_after_creation(&fixture, &["--read", dir], CLOSED);
            assert!(outputs.starts_with("go\nmine\nremembered\n"), "{dir}: {outputs}");
            assert!(!outputs.contains("secret") && !outputs.contains("auth"), "{dir}: {outputs}");
        }
        // In a home that may be changed, a new entry cannot be told apart from the command's own. What is ours is closed.
        let own_names: Vec<&str> =
            CLOSED.iter().filter(|name| name.starts_with(".nanobot")).copied().collect();
        let outputs = read_after_creation(&fixture, &[&format!("--write={home}")], &own_names);
        assert!(outputs.starts_with("go\nmine\nremembered\n"), "{outputs}");
        assert!(!outputs.contains("secret"), "{outputs}");
    }
}

/// Places that are granted by name within a closed directory are there, and work in a granted home goes on.
#[test]
fn a_granted_home_shows_what_is_visible_and_what_is_named() {
    let fixture = SandboxFixture::new(User::Current);
    let home = fixture.story.home();
    for name in ["docs/deep/file", "plain", ".config/app/settings", ".config/gcloud/key", ".ssh/id"]
    {
        write(&home.join(name), name.as_bytes());
    }
    std::os::unix::fs::symlink("docs/deep", home.join("short")).unwrap();
    let read = format!("--read={}", home.display());
    let named = format!("--read={}", home.join(".config").display());
    let script = format!(
        "cd '{}'; cat docs/deep/file plain short/file; cat .config/app/settings; cat .config/gcloud/key .ssh/id; ls -A .ssh .config",
        home.display()
    );
    let outputs = fixture.run_commands(&[&read], &[&script]);
    assert!(outputs[0].starts_with("docs/deep/fileplaindocs/deep/file"), "{}", outputs[0]);
    assert!(
        !outputs[0].contains("settings\n") && !outputs[0].contains("gcloud\n"),
        "{}",
        outputs[0]
    );
    let outputs = fixture.run_commands(&[&read, &named], &[&script]);
    assert!(outputs[0].contains("docs/deep/file.config/app/settings"), "{}", outputs[0]);
    assert!(outputs[0].contains("app") && !outputs[0].contains("key.ssh"), "{}", outputs[0]);
    let write = format!("--write={}", home.join("docs").display());
    let script =
        format!("cd '{}'; echo new > docs/made && cat docs/made; touch made", home.display());
    let outputs = fixture.run_commands(&[&read, &write], &[script]);
    assert!(outputs[0].starts_with("new\n") && outputs[0].contains("ead-only"), "{}", outputs[0]);
    assert!(home.join("docs/made").exists());
}

#[test]
fn a_directory_whose_name_is_not_text_is_a_directory_like_others() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let directory = fixture.story.dir().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        write(&directory.join("file"), b"mine\n");
        let mut command = fixture.command(&["--write"]);
        command.current_dir(&directory);
        let output = fixture.run(command, &["cat file; echo new > made; cat made"]);
        assert_eq!(output, ["mine\nnew"]);
        assert!(directory.join("made").exists());
    }
}

/// A closed directory beside the work, which this user may not enter, is no reason to refuse commands.
#[test]
fn a_home_that_cannot_be_entered_does_not_keep_commands_from_the_directories_around_it() {
    if available_users().len() < 2 {
        return;
    }
    let fixture = SandboxFixture::new(User::Nobody);
    let dir = Path::new("/home/nanobot-test-closed-home");
    std::fs::create_dir_all(dir.join(".ssh")).unwrap();
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    for flag in ["--write=/home", "--read=/home", "--read=/"] {
        let outputs =
            fixture.run_commands(&[flag], &["echo here; ls /home/nanobot-test-closed-home"]);
        assert!(outputs[0].starts_with("here"), "{flag}: {}", outputs[0]);
        assert!(!outputs[0].contains("namespaces"), "{flag}: {}", outputs[0]);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Files that a rule about reading denies, by name, by place or by a link to them, cannot be opened by commands.
#[test]
fn files_that_a_rule_denies_to_read_are_closed_to_commands() {
    for user in available_users() {
        for has_namespaces in [true, false] {
            let mut fixture = SandboxFixture::new(user);
            if !has_namespaces {
                fixture = fixture.without_namespaces();
            }
            let dir = fixture.story.dir();
            for name in [".env", "a/b/.env", "keys/one.pem", "private/deep/file", "open.txt"] {
                write(&dir.join(name), b"content\n");
            }
            std::os::unix::fs::symlink("../open.txt", dir.join("a/link.key")).unwrap();
            let flags = [
                "--deny",
                "read_file(.env)",
                "--deny",
                "grep(keys/*.pem)",
                "--deny",
                "read_file(private)",
            ];
            let closed = "cat .env a/b/.env keys/one.pem private/deep/file; cp .env copy; cat copy; git hash-object .env; true";
            let outputs = fixture.run_commands(&flags, &[closed, "cat open.txt"]);
            assert!(!outputs[0].contains("content"), "{user:?} {has_namespaces}: {}", outputs[0]);
            for name in [".env", "a/b/.env", "keys/one.pem", "private/deep/file"] {
                let refusal = format!("cat: {name}: Permission denied\n");
                assert!(outputs[0].contains(&refusal), "{user:?} {has_namespaces}: {}", outputs[0]);
            }
            assert!(
                !outputs[0].contains("d95f3ad14dee633a758d2e331151e950dd13e4ed"),
                "{}",
                outputs[0]
            );
            assert_eq!(outputs[1], "content", "{user:?} {has_namespaces}");
            let outputs =
                fixture.run_commands(&["--deny", "read_file(*.key)"], &["cat open.txt; true"]);
            assert!(!outputs[0].contains("content"), "{}", outputs[0]);
        }
    }
    let fixture = SandboxFixture::new(User::Current);
    let dir = fixture.story.dir();
    write(&dir.join(".env"), b"content\n");
    let moved = "mv .env x; cat x; mv ../$(basename $PWD)/.env y; echo work > z; cat z";
    let outputs = fixture.run_commands(&["--write", "--deny", "read_file(.env)"], &[moved]);
    assert!(!outputs[0].contains("content") && outputs[0].contains("work"), "{}", outputs[0]);
    assert_eq!(std::fs::read(dir.join(".env")).unwrap(), b"content\n");
    let explained = fixture.story.run(["policy", "explain", "--deny", "read_file(.env)"]);
    explained.stdout_has("commands and MCP servers cannot open the files that it matches");
}

/// A closed file is not an empty one: no command copies, packs or opens it, and the run says so.
#[test]
fn a_command_that_fails_at_a_closed_file_is_denied() {
    let closed_by = |deny: &str, command: &str| {
        let story = Story::new();
        write(&story.dir().join("notes.txt"), b"milk\n");
        write(&story.dir().join("private/deep/file"), b"milk\n");
        write(&story.dir().join("work/here"), b"here\n");
        story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
        let flags = ["agent", "-m", "go", "--write", "--deny", deny, "--strict", "--json"];
        let result = story.run(flags).status(5);
        let denials = result.json()["denials"].clone();
        drop(result.error_text());
        drop(result);
        let message = denials[0]["text"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(&format!("by the rule `{deny}`")), "{command}: {denials}");
        assert_eq!(denials[0]["grant"], Value::Null, "{denials}");
        let content = story.requests()[1].last_content();
        assert!(content.contains(&message), "{content}");
        (story, content)
    };
    let notes = "read_file(notes.txt)";
    let (story, content) = closed_by(notes, "cp notes.txt copy.txt; wc -c copy.txt");
    assert!(content.contains("`notes.txt` is closed to commands"), "{content}");
    assert!(!story.dir().join("copy.txt").exists());
    for command in [
        "tar -cf all.tar notes.txt",
        "cp -r . /tmp/copy",
        "cd work && cat ../notes.txt",
        "chmod 644 notes.txt || cat notes.txt",
        "test ! -r notes.txt && python3 -c 'open(\"notes.txt\")'",
    ] {
        closed_by(notes, command);
    }
    for command in ["ls private", "cat private/deep/file", "cd work && find ../private"] {
        closed_by("read_file(private)", command);
    }
    // A search that meets it has found what is elsewhere.
    let story = Story::new();
    write(&story.dir().join("notes.txt"), b"milk\n");
    write(&story.dir().join("list.txt"), b"milk\n");
    story.server().script([calls("exec", json!({ "command": "grep -r milk ." })), says("Done.")]);
    story.run(["agent", "-m", "go", "--deny", notes, "--strict"]).stdout("Done.\n").stderr("");
    let content = story.requests()[1].last_content();
    assert!(content.contains("list.txt:milk"), "{content}");
    assert!(content.contains("`notes.txt` is closed to commands"), "{content}");
    // Without a denied path in its output, a failure is its own.
    let story = Story::new();
    write(&story.dir().join("notes.txt"), b"milk\n");
    let command = "cat missing; ls notes.txt; false";
    story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
    story.run(["agent", "-m", "go", "--deny", notes, "--strict"]).stdout("Done.\n");
}

/// A rule that denies to change a file is about the file: no command changes, replaces or removes it.
#[test]
fn no_command_changes_a_file_that_a_rule_denies_to_change() {
    let deny = |rule: &str, command: &str| {
        let story = Story::new();
        let files =
            ["README.md", "data/deep/a.csv", "target/a.bin"].map(|name| story.dir().join(name));
        files.iter().for_each(|file| write(file, b"hello\n"));
        write(&story.dir().join("work/here"), b"here\n");
        story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
        let flags = ["agent", "-m", "go", "--write", "--deny", rule, "--strict", "--json"];
        let result = story.run(flags).status(5);
        let denials = result.json()["denials"].clone();
        drop(result.error_text());
        drop(result);
        let message = denials[0]["text"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("by the rule `{rule}`")), "{command}: {denials}");
        assert_eq!(denials[0]["grant"], Value::Null, "{command}: {denials}");
        for file in files {
            assert_eq!(std::fs::read(file).unwrap(), b"hello\n", "{command}");
        }
    };
    for command in [
        "echo b > README.md",
        "sed -i s/hello/b/ README.md",
        "rm README.md",
        "mv README.md x",
        "mv work/here README.md",
        "ln -sf work/here README.md",
        "chmod 600 README.md",
        "cd work && echo b > ../README.md",
        "python3 -c 'import os; open(\"t\", \"w\").write(\"b\"); os.replace(\"t\", \"README.md\")'",
    ] {
        deny("write_file(README.md)", command);
    }
    for rule in ["delete_file(data/*)", "edit_file(*.csv)", "apply_patch(data)"] {
        for command in
            ["rm -r data", "mv data other", "mv data/deep other", "echo b >> data/deep/a.csv"]
        {
            deny(rule, command);
        }
    }
    deny("write_file(target/*.bin)", "rm target/a.bin; echo b > target/a.bin");
    // New files, generated ones and the targets of new links are not protected.
    let story = Story::new().file("src", "src\n");
    for name in ["node_modules/a/yarn.lock", "target/x.lock", ".git/index.lock"] {
        write(&story.dir().join(name), b"");
    }
    let command =
        "ln -s src x.lock && echo a > new.lock && rm -r node_modules target && rm .git/index.lock";
    story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
    let flags = ["agent", "-m", "go", "--write", "--deny", "write_file(*.lock)", "--strict"];
    story.run(flags).stdout("Done.\n").stderr_has("cannot take back");
    assert_eq!(std::fs::read_to_string(story.dir().join("x.lock")).unwrap(), "src\n");
    assert!(story.dir().join("new.lock").exists() && !story.dir().join("target").exists());
    // Other files are as writable as before, and the file can be read.
    let story = Story::new();
    write(&story.dir().join("README.md"), b"hello\n");
    let command = "git init -q . && cat README.md > copy && rm copy && echo x > x.md && mkdir d && mv x.md d/";
    story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
    let flags = ["agent", "-m", "go", "--write", "--deny", "write_file(README.md)", "--strict"];
    story.run(flags).stdout("Done.\n");
    assert!(story.dir().join("d/x.md").exists());
    let explained = story.run(["policy", "explain", "--deny", "write_file(README.md)"]);
    explained.stdout_has(
        "commands and MCP servers cannot change the files that it matches when they start",
    );
}
