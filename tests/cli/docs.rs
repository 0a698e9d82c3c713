//! Documentation that is generated from the code: help and man pages. `.ci/renew docs` writes it anew.

use crate::man::{EVENT_EXAMPLES, JSON_EXAMPLES};
use crate::page_commands::run_line;
use crate::recorded::assert_recorded;
use crate::requirements::require;
use crate::screen::Key;
use crate::server::{Response, calls, fails, says, sends};
use crate::story::{NANOBOT, Story, write};
use nanobot::cli::pages::HelpLength;
use nanobot::cli::topics::{HelpTopic, TOPICS, find_topic};
use nanobot_base::markdown::document::LineContent;
use nanobot_os::input::STDIN_KINDS;
use nanobot_os::paths::DOCUMENTED_PATHS;
use serde_json::json;
use std::process::Command;

/// On a terminal, on a forge and in a man page alike.
#[test]
fn indented_lines_of_a_topic_are_code() {
    for topic in TOPICS {
        let lines = nanobot_base::markdown::document::parse(topic.text);
        let code = lines.iter().filter(|line| matches!(line.content, LineContent::Code { .. }));
        let indented = topic.text.lines().filter(|line| line.starts_with("    "));
        assert_eq!(code.count(), indented.count(), "{}", topic.name);
    }
}

#[test]
fn man_pages_match_the_code() {
    let folder = format!("{}/man", env!("CARGO_MANIFEST_DIR"));
    let pages = crate::man::pages();
    for (name, page) in &pages {
        assert_recorded(&format!("man/{name}"), page);
    }
    for file in std::fs::read_dir(&folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let is_made = pages.iter().any(|(other, _)| *other == name);
        assert!(is_made, "man/{name} is the page of nothing");
    }
}

#[test]
fn the_crates_in_architecture_are_those_of_cargo() {
    if !require("python3") {
        return;
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let page = std::fs::read_to_string(format!("{root}/ARCHITECTURE.md")).unwrap();
    let (before, rest) = page.split_once("<!-- crates, printed by .ci/crates -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of the crates -->\n").unwrap();
    let output = Command::new(format!("{root}/.ci/crates")).output().unwrap();
    let crates = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expect = format!(
        "{before}<!-- crates, printed by .ci/crates -->\n```text\n{crates}```\n<!-- end of the crates -->\n{after}"
    );
    assert_recorded("ARCHITECTURE.md", &expect);
}

#[test]
fn man_pages_fit_a_terminal() {
    if !crate::requirements::require("mandoc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A letter, a backspace and the letter again are bold.
    let bold = regex::Regex::new(".\u{8}").unwrap();
    for (name, page) in crate::man::pages() {
        let path = folder.path().join(&name);
        std::fs::write(&path, page).unwrap();
        let mut mandoc = Command::new("mandoc");
        let stdout = mandoc.args(["-Tutf8", "-Owidth=80"]).arg(&path).output().unwrap().stdout;
        let text = String::from_utf8(stdout).unwrap();
        for line in bold.replace_all(&text, "").lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
    }
}

#[test]
fn man_pages_pass_mandoc_lint() {
    if !crate::requirements::require("mandoc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut lint = Command::new("mandoc");
    lint.arg("-Tlint");
    for (name, page) in crate::man::pages() {
        let path = folder.path().join(name);
        std::fs::write(&path, page).unwrap();
        lint.arg(path);
    }
    let output = lint.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

#[test]
fn topics_are_printed_and_complete() {
    let story = Story::bare();
    let help = story.run(["--help"]).text();
    for HelpTopic { name, summary, text } in TOPICS {
        assert!(help.contains(summary), "{name}");
        let expect = format!("# {summary}\n\n{text}");
        story.run(["help", *name]).stdout(&expect);
    }
    let scripting = find_topic("scripting").unwrap().text;
    for kind in STDIN_KINDS {
        let line = format!(
            "- **{}**: {}; with `--stdin` {}\n",
            kind.name,
            kind.default.description(),
            kind.with_stdin_flag
        );
        let line = line.replace("; with `--stdin` read to its end", "");
        let unwrapped = scripting.replace("\n  ", " ");
        assert!(unwrapped.contains(&line), "{line}");
    }
    story.run(["help", "cron", "add"]).stdout_has("Usage: nanobot cron add");
}

#[test]
fn files_are_at_the_documented_paths() {
    let story = crate::login::log_in_to_copilot(Story::bare());
    let flags = ["--provider", "ollama", "--model", "m", "--yes"];
    let result = story.run(["onboard"].into_iter().chain(flags));
    result.error_text();
    for name in ["mcp-SERVER.json", "mcp-SERVER.json.lock", "github-copilot.json.lock"] {
        // The stories of `mcp_login` make the first; locks are removed after use.
        crate::story::write(&story.home().join(".nanobot/auth").join(name), b"");
    }
    let skill = story.workspace().join("skills/NAME/SKILL.md");
    crate::story::write(&skill, b"---\ndescription: taught\n---\nText.\n");
    // The stories of `embeddings` make it.
    crate::story::write(&story.workspace().join("memory/.embeddings.json"), b"{}");
    let own_skill = story.home().join(".nanobot/skills/NAME/SKILL.md");
    crate::story::write(&own_skill, b"---\ndescription: taught\n---\nText.\n");
    let profile = story.home().join(".nanobot/profiles/NAME.md");
    crate::story::write(&profile, b"Be brief.\n");
    let command = story.home().join(".nanobot/commands/NAME.md");
    crate::story::write(&command, b"Be brief.\n");
    crate::story::write(&story.home().join(".nanobot/hooks/NAME"), b"#!/bin/sh\n");
    crate::story::write(&story.home().join(".nanobot/hooks/.announced"), b"");
    let tool = story.home().join(".nanobot/tools/NAME");
    crate::story::write_program(&tool, "#!/bin/sh\necho '{\"description\": \"x\"}'\n");
    story.run(["config", "set", "tools.programs", "[\"NAME\"]"]).text();
    story.run(["tool", "run", "NAME"]).text();
    story.run(["trust", "-q"]);
    let session = story.workspace().join("sessions/KEY.jsonl");
    crate::story::write(&session, b"{\"role\": \"user\", \"cont");
    let arguments = ["agent", "-m", "x", "-s", "KEY", "--replay", "demo"];
    let result = story.run(arguments);
    // The demo has no such session; an incomplete line is saved aside before that.
    result.code();
    result.text();
    result.error_text();
    // The memory files are shown before anything changes them.
    let result = story.run(["memory", "undo"]).status(66);
    result.error_text();
    drop(result);
    let missing_path = story.workspace().join("sessions/gone.jsonl");
    crate::story::write(&missing_path, b"{\"_type\": \"metadata\"}\n");
    story.run(["session", "rm", "gone", "-q"]).stdout("");
    // The removal of a session removes it, and the stories of `embeddings` make it.
    crate::story::write(&story.workspace().join("sessions/.embeddings.json"), b"{}");
    let job = ["cron", "add", "-m", "x", "-e", "1h"];
    for arguments in [&job[..], &["cron", "heartbeat", "enable"]] {
        let result = story.run(arguments).stdout_has("✓");
        result.error_text();
    }
    let mut limited = story.command(["cron", "run", "heartbeat"]);
    limited.env("NANOBOT_CRON__MAX_RUNNING", "1");
    assert_eq!(limited.output().unwrap().status.code(), Some(0));
    // A job that cannot start is a notice.
    let state = story.home().join(".nanobot/cron/heartbeat/state.json");
    write(&state, b"{");
    let mut failing = story.command(["cron", "run", "heartbeat", "--scheduled"]);
    failing.env("NANOBOT_NOTIFY__TARGET", "command:true");
    assert_eq!(failing.output().unwrap().status.code(), Some(78));
    std::fs::remove_file(state).unwrap();
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    // A command after the output of one with network, which is content from outside.
    let exec = || calls("exec", serde_json::json!({ "command": "true" }));
    story.server().script([exec(), says("x"), exec(), says("x")]);
    for flags in [&["--write", "--net"][..], &["--write"]] {
        let mut command = story.command(["agent", "-m", "x", "-s", "other"]);
        command.args(flags);
        command.env("NANOBOT_PROVIDERS__OLLAMA__API_BASE", &base);
        command.env("NANOBOT_RETENTION__RUNS", "never");
        assert_eq!(command.output().unwrap().status.code(), Some(0));
    }
    // One call that changes a skill after the output of a command, and one that is scheduled.
    let busy = Response::json(429, &serde_json::json!({})).header("retry-after", "99");
    let text = "---\ndescription: learned\n---\nText.\n";
    let put = serde_json::json!({ "path": skill, "content": text });
    let put = calls("write_file", put);
    story.server().script([exec(), put, says("x"), sends(busy)]);
    for status in [0, 75] {
        let mut command = story.command(["agent", "-m", "x", "--write"]);
        command.env("NANOBOT_PROVIDERS__OLLAMA__API_BASE", &base);
        command.env("NANOBOT_BUDGET__DAILY", "1");
        assert_eq!(command.output().unwrap().status.code(), Some(status));
    }
    // The server is asked for its tools.
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/plain.py");
    let plan = story.dir().join("plan.json");
    let tool = json!({ "name": "a", "inputSchema": { "type": "object" } });
    write(&plan, json!({ "tools": [tool] }).to_string().as_bytes());
    let (plan, log) = (plan.to_str().unwrap(), story.dir().join("log"));
    write(&log, b"");
    let added = ["mcp", "add", "SERVER", "--", "python3", program, plan, log.to_str().unwrap()];
    story.run(added).stdout_has("1 tool");
    let git = "git init -q REPOSITORY && git -C REPOSITORY -c user.name=A -c user.email=a@b commit -q --allow-empty -m x";
    let has_git =
        require("git") && story.program("sh").args(["-c", git]).status().unwrap().success();
    if has_git {
        let flags = ["agent", "-C", "REPOSITORY", "--worktree", "BRANCH", "-m", "x"];
        story
            .run(flags.into_iter().chain(["--ephemeral", "--replay", "demo"]))
            .stdout_has("demo")
            .stderr_has("on branch");
    }
    story.run(["run", "--save", "NAME", "-m", "x"]).stderr_has("NAME.md");
    write(&story.dir().join("p.md"), b"x");
    story.run(["run", "--replay", "demo", "p.md"]).stdout_has("demo").error_text();
    // An unknown sender gets a code, and an allowed one sends a file.
    for allowed in [false, true] {
        crate::channel::receive_file(&story, allowed);
    }
    let line = r#"{"id":"1","session":"s","text":"x"}"#;
    let mut shell = story.program("/bin/sh");
    shell.args(["-c", &format!("echo '{line}' | {NANOBOT} pipe --name NAME")]);
    assert!(shell.output().is_ok());
    let made_elsewhere =
        ["channels/telegram/approvals.json", "pipes/NAME/approvals.json", "cron/unseen.jsonl"];
    for path in made_elsewhere {
        // The stories of `channel_approvals` and `cron_check` make these.
        crate::story::write(&story.home().join(".nanobot").join(path), b"{}");
    }
    // A panic leaves a report.
    let mut command = story.command(["agent", "-m", "x"]);
    command.env("NANOBOT_TEST_DEFECT", "1");
    assert_eq!(command.output().unwrap().status.code(), Some(70));
    // Input of the REPL is saved in its history.
    let mut screen = story.screen(24, 80).args(["repl"]);
    screen
        .until("/help")
        .type_("/session")
        .press(Key::Enter)
        .until("cli:direct\nthe last sessions")
        .until_prompt("> ");
    screen.press(Key::Ctrl('d'));
    screen.exit();
    // The system-wide config is root's.
    for documented_path in
        DOCUMENTED_PATHS.iter().filter(|documented_path| documented_path.path.starts_with('~'))
    {
        let path = documented_path.path.replace('~', story.home().to_str().unwrap());
        let path = path.replace("PROVIDER", "github-copilot");
        let path = path.replace("undo/N", "undo/1");
        let path = path.replace("cron/ID", "cron/heartbeat");
        let path = path.replace("channels/NAME", "channels/telegram");
        let path = path.replace("media/NAME", "media/telegram");
        let exists = match path.split_once("TIME") {
            None => std::path::Path::new(&path).exists(),
            Some((start, end)) => {
                let folder = std::path::Path::new(start).parent();
                let folder = folder.filter(|_| !start.ends_with('/')).unwrap_or(start.as_ref());
                let end = end.replace("KEY", "gone");
                std::fs::read_dir(folder).unwrap().any(|entry| {
                    let path = entry.unwrap().path();
                    let path = path.to_str().unwrap();
                    path.starts_with(start) && path.ends_with(&end)
                })
            }
        };
        let needs_git = path.contains("REPOSITORY");
        assert!(exists || needs_git && !has_git, "{}", documented_path.path);
    }
    // A removal leaves what a person may have written, and the worktree.
    story.run(["uninstall", "--yes", "-q"]).stdout("");
    let entries = std::fs::read_dir(story.home().join(".nanobot"));
    let mut names: Vec<String> = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| has_git || name != "worktrees");
    names.sort();
    let expect =
        ["commands", "hooks", "profiles", "prompts", "skills", "tools", "workspace", "worktrees"];
    assert_eq!(names, expect[..expect.len() - usize::from(!has_git)]);
}

#[test]
fn examples_of_events_match_the_program() {
    if !require("jq") {
        return;
    }
    for ((_, line), output) in EVENT_EXAMPLES.iter().zip(["Hi.", "0\n"]) {
        let story = Story::new().script([says("Hi.")]);
        assert_eq!(run_line(&story, line, &[]).0, output, "{line}");
    }
    for (_, line) in JSON_EXAMPLES {
        let story = Story::new().script([says("Hi."), fails(401, "no")]);
        story.run(["agent", "-m", "hello"]).stdout("Hi.\n");
        story
            .run(["cron", "add", "-n", "tea", "--every", "1h", "-m", "x"])
            .stdout_has("tea")
            .error_text();
        story.run(["cron", "run", "tea"]).status(77).error_text();
        let output = run_line(&story, line, &[]).0;
        assert!(["tea\n", "scripted\t0\n"].contains(&&*output), "{line}: {output}");
    }
}

#[test]
fn help_and_version() {
    let story = Story::bare();
    let version = concat!("nanobot ", env!("CARGO_PKG_VERSION"), "\n");
    for flag in ["--version", "-V", "-v"] {
        story.run([flag]).stdout(version);
    }
    story.run(["-q", "--version"]).stdout(version);
    for flags in [["--version", "--verbose"], ["-v", "-V"]] {
        let text = story.run(flags).text();
        let rest = text.strip_prefix(version).unwrap();
        let names = rest.lines().map(|line| line.split(": ").next().unwrap());
        let expect = ["commit", "features", "target", "libc", "sandbox"];
        assert!(names.eq(expect), "{text}");
        // Only a release knows its commit, since each commit would be a new build.
        assert!(rest.starts_with("commit: not recorded"), "{text}");
        assert!(rest.contains("features: test-hooks"), "{text}");
    }
    let help = story.run(["agent", "--help"]).text();
    for phrase in ["--message", "--session", "--replay", "Exit status:", "session is busy"] {
        assert!(help.contains(phrase), "{help}");
    }
    story.run(["agent", "--no-such-flag"]).status(2).stderr_has("--no-such-flag");
    story.run(["nonsense"]).status(2).stderr_has("nonsense");
    story.run(Vec::<&str>::new()).status(2).stderr_has("Usage");
    assert!(!story.home().join(".nanobot").exists());
}

#[test]
fn the_command_line_definition_is_valid() {
    nanobot::command::tree::command_tree().debug_assert();
    nanobot::command::tree::command_tree_with_help(HelpLength::Short).debug_assert();
    nanobot::command::tree::command_tree_with_help(HelpLength::Long).debug_assert();
}
