//! Hooks: what they get, what they can change, what happens when they fail, and scripts written for other programs.

use crate::cron::add_job;
use crate::mcp::{read_only_tool, story_with_servers};
use crate::requirements::require;
use crate::screen::Key;
use crate::server::{calls, fails, says};
use crate::situation::{Situation, User, available_users};
use crate::story::{RunResult, Story, write, write_program};
use serde_json::{Value, json};

/// A story with a program `hook` in a directory that no run may change, and the hooks of the config.
fn with_hook(script: &str, hooks: impl Fn(&str) -> Value) -> Story {
    let story = Story::new();
    let path = story.home().join(".nanobot/hooks/hook");
    write_program(&path, &format!("#!/bin/sh\n{script}\n"));
    with_hooks(story, hooks(path.to_str().unwrap()))
}

/// The story with these hooks, whose user was told where they run.
fn with_hooks(story: Story, hooks: Value) -> Story {
    write(&story.home().join(".nanobot/hooks/.announced"), b"");
    story.set("hooks", hooks)
}

fn run_in<'s>(situation: Situation, story: &'s Story, arguments: &[&str]) -> RunResult<'s> {
    story.wait(story.start(situation.command(story, &[]).args(arguments)))
}

/// The results of tools that the model got with the last request.
fn last_result(story: &Story) -> String {
    story.last_request().last_content()
}

/// The JSON objects that hooks have stored, one a line.
fn stored_inputs(story: &Story) -> Vec<Value> {
    let text = std::fs::read_to_string(story.home().join("inputs")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

const STORE: &str = "cat >> \"$HOME/inputs\"; echo >> \"$HOME/inputs\"";

#[test]
fn a_hook_gets_the_facts_of_each_event() {
    let events = ["pre_tool", "post_tool", "pre_turn", "post_turn"];
    let story = with_hook(STORE, |hook| {
        events
            .iter()
            .map(|event| ((*event).to_owned(), json!([{ "command": hook }])))
            .collect::<serde_json::Map<_, _>>()
            .into()
    })
    .file("notes.md", "buy milk\n")
    .script([calls("read_file", json!({ "path": "notes.md" })), says("Milk.")]);
    story.run(["agent", "-s", "shop", "-m", "what do I need?"]).stdout("Milk.\n");
    let inputs = stored_inputs(&story);
    let named: Vec<&str> =
        inputs.iter().map(|it| it["hook_event_name"].as_str().unwrap()).collect();
    assert_eq!(named, ["pre_turn", "pre_tool", "post_tool", "post_turn"]);
    for input in &inputs {
        assert_eq!(input["session_id"], "shop");
        assert_eq!(input["profile"], "default");
        assert_eq!(input["parent_session_id"], Value::Null);
        assert_eq!(input["cwd"], json!(story.dir().canonicalize().unwrap()));
        let transcript = input["transcript_path"].as_str().unwrap();
        assert!(transcript.ends_with("/sessions/shop.jsonl"), "{transcript}");
    }
    assert_eq!(inputs[0]["prompt"], "what do I need?");
    assert_eq!(inputs[1]["tool_name"], "read_file");
    assert_eq!(inputs[1]["tool_input"], json!({ "path": "notes.md" }));
    assert_eq!(inputs[2]["tool_status"], "success");
    assert!(inputs[2]["tool_output_text"].as_str().unwrap().contains("buy milk"));
    assert_eq!(inputs[3]["answer"], "Milk.");
}

#[test]
fn a_hook_forbids_a_call_with_words_for_the_model() {
    let script = "grep -q secret || exit 0; echo 'ask for the summary instead' >&2; exit 2";
    let story = with_hook(
        script,
        |hook| json!({ "pre_tool": [{ "match": "read_*", "command": hook, "name": "guard" }] }),
    )
    .file("secret.md", "x")
    .script([
        calls("read_file", json!({ "path": "secret.md" })),
        calls("list_dir", json!({})),
        says("No."),
    ]);
    story
        .run(["agent", "-m", "x"])
        .stdout("No.\n")
        .stderr_has("denied: read_file: hook `guard`: ask for the summary instead");
    let denied = story.requests()[1].last_content();
    assert!(denied.contains("hook `guard`: ask for the summary instead"), "{denied}");
    assert!(!denied.contains("final"), "another way is welcome: {denied}");
    // The hook is for other tools.
    assert!(last_result(&story).contains("secret.md"));
    let result = story.run(["tool", "run", "read_file", r#"{"path": "secret.md"}"#]).status(77);
    result.stderr_has("ask for the summary instead");
}

#[test]
fn changed_arguments_pass_the_schema_and_the_policy_again() {
    let change = |arguments: &str| {
        let script = format!("echo '{{\"arguments\": {arguments}}}'");
        let story = with_hook(
            &script,
            |hook| json!({ "pre_tool": [{ "match": "read_file", "command": hook, "name": "h" }] }),
        );
        story
            .file("a.md", "this is a\n")
            .file("b.md", "this is b\n")
            .script([calls("read_file", json!({ "path": "a.md" })), says("Done.")])
    };
    let story = change(r#"{"path": "b.md"}"#);
    story.run(["agent", "-m", "x"]).stdout("Done.\n");
    let result = last_result(&story);
    assert!(result.contains("this is b") && !result.contains("this is a"), "{result}");
    assert!(result.contains("[hook h] changed the arguments to"), "{result}");
    // The session has the model's own call.
    let stored =
        std::fs::read_to_string(story.workspace().join("sessions/cli_direct.jsonl")).unwrap();
    assert!(stored.contains("a.md"), "{stored}");

    let story = change(r#"{"path": "/etc/shadow"}"#);
    let run_result = story.run(["agent", "-m", "x"]).stdout("Done.\n");
    run_result.stderr_has("denied: read_file");
    assert!(last_result(&story).contains("Tool call denied: "));

    let story = change(r#"{"file": "b.md"}"#);
    story
        .run(["agent", "-m", "x"])
        .stdout("Done.\n")
        .stderr_has("hook `h`: it changed the arguments to invalid ones");
}

#[test]
fn a_hook_cannot_allow_what_the_policy_denies() {
    let story = with_hook(
        "echo '{\"decision\": \"allow\"}'",
        |hook| json!({ "pre_tool": [{ "command": hook }] }),
    )
    .script([calls("write_file", json!({ "path": "a", "content": "x" })), says("No.")]);
    story.run(["agent", "-m", "x"]).stdout("No.\n").stderr_has("denied: write_file");
    assert!(!story.dir().join("a").exists());
}

#[test]
fn a_hook_asks_for_approval() {
    let hooks = |hook: &str| json!({ "pre_tool": [{ "match": "list_dir", "command": hook }] });
    let script = "echo '{\"decision\": \"ask\", \"reason\": \"are you sure?\"}'";
    let story = with_hook(script, hooks).script([calls("list_dir", json!({})), says("No.")]);
    story.run(["agent", "-m", "x"]).stdout("No.\n").stderr_has("are you sure?");
    assert!(last_result(&story).contains("Tool call denied: "));

    let story = with_hook(script, hooks).script([calls("list_dir", json!({})), says("Yes.")]);
    let mut screen = story.screen(24, 80).args(["repl"]);
    screen.until_prompt("> ").type_("x").press(Key::Enter);
    screen.until("are you sure?").until("allow?").type_("y");
    screen.until("Yes.").press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 0);
    assert!(!last_result(&story).contains("denied"));
}

#[test]
fn a_hook_that_fails_is_reported_and_stops_only_if_it_is_strict() {
    let check = |script: &str, strict: bool, expect: &str| {
        let story = with_hook(script, |hook| {
            json!({ "pre_tool": [{ "command": hook, "name": "h", "strict": strict, "timeout": 0.5 }] })
        })
        .script([calls("list_dir", json!({})), says("Done.")]);
        let run_result = story.run(["agent", "-m", "x"]).stdout("Done.\n");
        run_result.stderr_has(expect);
        let result = last_result(&story);
        assert_eq!(result.contains("Tool call denied: "), strict, "{script}: {result}");
    };
    check("echo broken >&2; exit 1", false, "hook `h` failed with exit status 1: broken");
    check("echo broken >&2; exit 1", true, "hook `h` failed with exit status 1: broken");
    check("echo hello", false, "hook `h` printed something that is not a JSON object");
    check("echo '{'", true, "hook `h` printed JSON that cannot be read");
    check("exec sleep 600", true, "hook `h` timed out after 0.5 s");
    check("kill -9 $PPID", false, "hook `h` was killed");
    check("head -c 3000000 /dev/zero", false, "hook `h` printed more than 1 MiB");
}

#[test]
fn a_hook_changes_or_withholds_a_result() {
    let check = |answer: &str, expect: &[&str], absent: &str| {
        let story = with_hook(
            &format!("echo '{answer}'"),
            |hook| json!({ "post_tool": [{ "command": hook, "name": "h" }] }),
        )
        .file("a.md", "the text\n")
        .script([calls("read_file", json!({ "path": "a.md" })), says("Done.")]);
        story.run(["agent", "-m", "x"]).stdout("Done.\n");
        let result = last_result(&story);
        expect.iter().for_each(|part| assert!(result.contains(part), "{result}"));
        assert!(absent.is_empty() || !result.contains(absent), "{result}");
    };
    check(r#"{"context": "it is old"}"#, &["the text", "[hook h] it is old"], "");
    check(r#"{"output": "nothing to see"}"#, &["nothing to see"], "the text");
    check(
        r#"{"decision": "deny", "reason": "it is private"}"#,
        &["[hook h] withheld the result: it is private"],
        "the text",
    );
}

/// A command evades no hook by a change of a protected file, which makes its call a denied one.
#[test]
fn a_denied_call_that_was_made_passes_the_hooks_after_it() {
    let script = format!("{STORE}; echo 'no secrets' >&2; exit 2");
    let story = with_hook(&script, |hook| json!({ "post_tool": [{ "command": hook }] }));
    let command = "echo canary-9; echo evil > .bashrc";
    story.server().script([calls("exec", json!({ "command": command })), says("Done.")]);
    let run_result = story.run(["agent", "--write", "-m", "x"]);
    run_result.stdout("Done.\n").stderr_has("denied: exec");
    let inputs = stored_inputs(&story);
    let text = inputs[0]["tool_output_text"].as_str().unwrap();
    assert!(inputs[0]["tool_status"] == "failure" && text.contains("canary-9"), "{text}");
    let result = last_result(&story);
    assert!(result.contains("no secrets") && !result.contains("canary-9"), "{result}");
}

#[test]
fn a_hook_adds_words_to_a_message_or_forbids_the_turn() {
    let story = with_hook(
        "echo 'the build is red'",
        |hook| json!({ "pre_turn": [{ "command": hook, "name": "build" }] }),
    )
    .script([says("Red.")]);
    story.run(["agent", "-m", "how is it?"]).stdout("Red.\n");
    assert!(story.requests()[0].last_content().contains("[hook build] the build is red"));

    let story = with_hook(
        "echo 'not on Sundays' >&2; exit 2",
        |hook| json!({ "pre_turn": [{ "command": hook, "name": "rest" }] }),
    );
    story.run(["agent", "-m", "x"]).status(77).stderr("nanobot: hook `rest`: not on Sundays\n");
    assert!(story.requests().is_empty());
}

#[test]
fn a_hook_sends_an_answer_back_at_most_three_times() {
    let script = "grep -q 'tests passed' && exit 0; echo 'run the tests first' >&2; exit 2";
    let hooks = |hook: &str| json!({ "post_turn": [{ "command": hook, "name": "h" }] });
    let story = with_hook(script, hooks).script([says("Done."), says("tests passed")]);
    story.run(["agent", "-m", "x"]).stdout("tests passed\n");
    assert!(last_result(&story).contains("[hook h] run the tests first"));

    let story = with_hook(script, hooks).script([says("1"), says("2"), says("3"), says("4")]);
    story.run(["agent", "-m", "x"]).stdout("4\n");
    assert_eq!(story.requests().len(), 4);
}

#[test]
fn a_hook_forbids_or_instructs_a_compaction() {
    let conversation = |script: &str| {
        let story =
            with_hook(script, |hook| json!({ "pre_compact": [{ "command": hook, "name": "h" }] }));
        let long = "word ".repeat(400);
        story.script([says(&long), says("The summary.")])
    };
    let story = conversation("echo '{\"context\": \"keep the names\"}'");
    story.run(["agent", "-m", "x"]).stdout_has("word");
    story.run(["agent", "-m", "/compact"]).stdout_has("Compacted");
    assert!(last_result(&story).contains("keep the names"));

    let story = conversation("echo 'not now' >&2; exit 2");
    story.run(["agent", "-m", "x"]).stdout_has("word");
    let result = story.run(["agent", "-m", "/compact"]);
    result.status(1).stderr_has("hook `h`: not now");
    assert_eq!(story.requests().len(), 1);
    story.server().script([]);
    story.run(["agent", "-m", "y", "--new"]).stdout("The summary.\n");
}

#[test]
fn a_forbidden_compaction_drops_no_messages() {
    let long = "word ".repeat(400);
    let story = with_hook(
        "echo 'not now' >&2; exit 2",
        |hook| json!({ "pre_compact": [{ "command": hook, "name": "h" }] }),
    )
    .script([says(&long), fails(400, "maximum context length exceeded"), says("Fine.")]);
    story.run(["agent", "-m", "x"]).stdout_has("word");
    story
        .run(["agent", "-m", "y"])
        .status(65)
        .stderr_has("could not be compacted: hook `h`: not now");
    assert_eq!(story.requests().len(), 2);
    story.run(["agent", "-m", "z"]).stdout("Fine.\n");
    assert!(story.requests()[2].raw.contains("word word"));
}

#[test]
fn a_hook_runs_at_the_end_of_a_job() {
    let story = with_hook(STORE, |hook| json!({ "job_end": [{ "command": hook }] }))
        .script([says("All is well.")]);
    let id = add_job(&story, &["--cron", "0 8 * * *", "--name", "look"]);
    story.run(["cron", "run", &id]).stdout("All is well.\n");
    let inputs = stored_inputs(&story);
    assert_eq!(inputs.len(), 1);
    let input = &inputs[0];
    assert_eq!(input["hook_event_name"], "job_end");
    assert_eq!((&input["job_name"], &input["status"]), (&json!("look"), &json!(0)));
    assert_eq!(input["answer"], "All is well.");
}

#[test]
fn sub_agents_have_the_same_hooks() {
    let story =
        with_hook(STORE, |hook| json!({ "pre_tool": [{ "match": "list_dir", "command": hook }] }))
            .script([
                calls("spawn", json!({ "task": "look" })),
                Box::new(|request| {
                    // Either the sub-agent or its parent asks first.
                    let is_child =
                        request.last_content().contains("look") && request.messages().len() == 2;
                    if is_child {
                        calls("list_dir", json!({}))(request)
                    } else {
                        says("Waiting.")(request)
                    }
                }),
                Box::new(|request| {
                    let is_child =
                        request.last_content().contains("look") && request.messages().len() == 2;
                    if is_child {
                        calls("list_dir", json!({}))(request)
                    } else {
                        says("Waiting.")(request)
                    }
                }),
                says("Nothing there."),
                says("Nothing."),
            ]);
    story.run(["agent", "-m", "x"]).stdout("Nothing.\n");
    let inputs = stored_inputs(&story);
    assert_eq!(inputs.len(), 1, "{inputs:?}");
    assert_eq!(inputs[0]["parent_session_id"], inputs[0]["session_id"]);
}

#[test]
fn scripts_for_claude_code_run_as_they_are() {
    // Shell scripts as people have them: they read the names of that program, and answer in its fields.
    let script = r#"
input=$(cat)
case "$input" in
*'"hook_event_name":"PreToolUse"'*'"file_path":"a.md"'*)
    echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"file_path": "b.md", "old_string": "tea", "new_string": "coffee"}}}' ;;
*'"hook_event_name":"PostToolUse"'*'"tool_name":"Edit"'*)
    test "$PWD" = "$CLAUDE_PROJECT_DIR" || exit 1
    echo 'lint: no newline' >&2; exit 2 ;;
*) exit 1 ;;
esac"#;
    let story = with_hook(script, |hook| {
        let hooks = json!([{ "type": "command", "command": hook, "timeout": 10 }]);
        json!({
            "PreToolUse": [{ "matcher": "Edit|Write", "hooks": hooks }],
            "PostToolUse": [{ "matcher": "", "hooks": hooks }],
            "Notification": [{ "hooks": hooks }],
        })
    })
    .file("a.md", "tea")
    .file("b.md", "tea")
    .script([
        calls("edit_file", json!({ "path": "a.md", "old_text": "tea", "new_text": "beer" })),
        says("Done."),
    ]);
    story.run(["agent", "--write", "-m", "x"]).stdout("Done.\n");
    let read = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap();
    assert_eq!((read("a.md").as_str(), read("b.md").as_str()), ("tea", "coffee"));
    let result = last_result(&story);
    assert!(result.contains("lint: no newline") && !result.contains("withheld"), "{result}");
    story.run(["config", "check"]).stdout_has("hooks for `Notification` never run");
}

#[test]
fn a_script_for_claude_code_forbids_the_tools_of_a_server() {
    let tools = json!({ "tools": [read_only_tool("list", "List.")] });
    let story = story_with_servers(&[("my_server", tools, json!({}))]);
    let script =
        r#"grep -q '"tool_name":"mcp__my_server__list"' && echo 'no lists today' >&2 && exit 2"#;
    let hook = json!({ "type": "command", "command": script });
    let hooks = json!({ "PreToolUse": [{ "matcher": "mcp__my_server__.*", "hooks": [hook] }] });
    let story = with_hooks(story, hooks)
        .script([calls("mcp_my_server_list", json!({})), says("Not today.")]);
    story.run(["agent", "-m", "x"]).stdout("Not today.\n").stderr_has("no lists today");
    let result = last_result(&story);
    assert!(result.contains("no lists today"), "{result}");
}

#[test]
fn scripts_for_vibe_run_as_they_are() {
    let script = r#"
grep -q '"tool_name":"bash"' || exit 1
echo '{"decision": "allow", "hook_specific_output": {"tool_input": {"command": "echo from the hook"}}}'"#;
    let story = with_hook(script, |hook| {
        json!([{ "name": "rewrite", "type": "before_tool", "match": "BASH", "command": hook }])
    })
    .script([calls("exec", json!({ "command": "echo from the model" })), says("Done.")]);
    story.run(["agent", "-m", "x"]).stdout("Done.\n");
    assert!(last_result(&story).contains("from the hook"));
    // Status 2 has no meaning there: it is a failure, which stops nothing.
    let story =
        with_hook("exit 2", |hook| json!([{ "name": "h", "type": "pre_tool", "command": hook }]))
            .script([calls("list_dir", json!({})), says("Done.")]);
    story
        .run(["agent", "-m", "x"])
        .stdout("Done.\n")
        .stderr_has("hook `h` failed with exit status 2");
}

/// Ways of a hook to execute `x.sh` of the directory, or of the workspace, which the run writes. Each says where it runs by default.
const WAYS_TO_EXECUTE: &[(&str, &str)] = &[
    ("cd $NANOBOT_DIRECTORY && sh x.sh", "home"),
    ("D=$NANOBOT_DIRECTORY; sh $D/x.sh", "home"),
    ("sh ${NANOBOT_DIRECTORY:-.}/x.sh", "home"),
    ("eval \"$(cat $NANOBOT_DIRECTORY/x.sh)\"", "home"),
    ("sh ~/link/x.sh", "home"),
    ("sh ~/linked.sh", "home"),
    ("PATH=$NANOBOT_DIRECTORY:$PATH; x.sh", "home"),
    ("for file in ~/link/*.sh; do . $file; done", "home"),
    ("sh ~/.nanobot/workspace/x.sh", "home"),
    ("~/.nanobot/hooks/linked", "home"),
    ("sh x.sh", "sandbox"),
    ("bash $CLAUDE_PROJECT_DIR/x.sh", "sandbox"),
    ("sh ~/.nanobot/workspace/x.sh", "sandbox"),
];

#[test]
fn no_hook_runs_what_the_run_wrote_outside_of_the_sandbox() {
    for user in available_users() {
        for (command, line) in WAYS_TO_EXECUTE {
            let story = Story::new();
            let home = story.home();
            std::os::unix::fs::symlink(story.dir(), home.join("link")).unwrap();
            std::os::unix::fs::symlink("link/x.sh", home.join("linked.sh")).unwrap();
            std::fs::create_dir_all(home.join(".nanobot/hooks")).unwrap();
            let linked = home.join(".nanobot/hooks/linked");
            std::os::unix::fs::symlink(story.dir().join("x.sh"), linked).unwrap();
            let event = if *line == "home" { "post_turn" } else { "Stop" };
            // The hook itself runs, and says so to the user.
            let command =
                format!("( {command} ) 2>/dev/null; echo '{{\"systemMessage\": \"it ran\"}}'");
            let story = with_hooks(story, json!({ event: [{ "command": command }] }));
            let script = "touch ~/ran";
            let file = |path: &str| json!({ "path": path, "content": script });
            story.server().script([
                calls("write_file", file("x.sh")),
                calls("write_file", file("~/.nanobot/workspace/x.sh")),
                calls("exec", json!({ "command": "chmod +x x.sh && sh -n x.sh && echo ok" })),
                says("Done."),
            ]);
            let situation = Situation { user, has_namespaces: true };
            let result = run_in(situation, &story, &["agent", "--write", "-m", "x"]);
            result.stdout("Done.\n").stderr_has("it ran");
            assert!(story.requests()[3].last_content().contains("ok"), "{command}");
            assert!(!home.join("ran").exists(), "{user:?} {line}: {command}");
            // Without the protection it would have run.
            if user == available_users()[0] {
                let full = ["agent", "--profile", "full", "-m", "x"];
                story.server().script([says("Done.")]);
                story.run(full).stdout("Done.\n").stderr_has("it ran");
                assert!(home.join("ran").exists(), "{line}: {command}");
            }
        }
    }
}

/// A bind mount shows a directory by another path.
#[test]
fn what_the_run_wrote_is_hidden_from_hooks_by_every_path() {
    if !rustix::process::getuid().is_root() || !require("unshare") {
        return;
    }
    let hooks = json!({ "post_turn": [{ "command": "for file in bound/x part/y disk/z; do sh ~/$file.sh; done; touch ~/hooked" }] });
    let story = with_hooks(Story::new(), hooks);
    let (home, dir) = (story.home(), story.dir());
    for path in ["bound", "part", "disk"].map(|name| home.join(name)) {
        std::fs::create_dir(path).unwrap();
    }
    for path in [dir.join("in"), dir.join("disk")] {
        std::fs::create_dir(path).unwrap();
    }
    let file = |path: &str| json!({ "path": path, "content": "touch ~/ran" });
    story.server().script([
        calls("write_file", file("x.sh")),
        calls("write_file", file("in/y.sh")),
        calls("exec", json!({ "command": "cp x.sh disk/z.sh && echo copied" })),
        says("Done."),
    ]);
    let mount = format!(
        "mount --bind {0} ~/bound && mount --bind {0}/in ~/part && test -d ~/bound/in && mount -t tmpfs none ~/disk && \
         mount --bind ~/disk {0}/disk && exec \"$@\"",
        dir.display()
    );
    let wrapper = ["unshare", "-m", "sh", "-c", &mount, "sh"].map(str::to_owned);
    let situation = Situation { user: User::Current, has_namespaces: true };
    let mut command = situation.command(&story, &wrapper);
    command.args(["agent", "--write", "-m", "x"]);
    story.wait(story.start(&mut command)).stdout("Done.\n");
    assert!(dir.join("in/y.sh").exists() && home.join("hooked").exists());
    assert!(last_result(&story).contains("copied"));
    assert!(!home.join("ran").exists());
}

#[test]
fn a_hook_outside_of_the_sandbox_has_the_home_and_the_network() {
    for user in available_users() {
        let story = Story::new();
        let port = story.server().port;
        let command = format!(
            "cat >> ~/audit.log; echo hook >> $(mktemp) || exit 1; test -s ~/.nanobot/workspace/sessions/shop.jsonl || exit 3; \
             bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' || exit 4; cat $NANOBOT_DIRECTORY/notes.md >> ~/audit.log || exit 5; \
             test \"$PWD\" = \"$HOME\" || exit 6; test \"$SECRET_NUMBER\" = 7 || exit 8"
        );
        let story = with_hooks(story, json!({ "post_turn": [{ "command": command }] }))
            .env("SECRET_NUMBER", "7")
            .file("notes.md", "buy milk\n")
            .script([says("Done.")]);
        let situation = Situation { user, has_namespaces: true };
        run_in(situation, &story, &["agent", "-s", "shop", "-m", "x"]).stdout("Done.\n");
        let log = std::fs::read_to_string(story.home().join("audit.log")).unwrap();
        // The directory is only read in this run, so the hook sees it.
        assert!(log.contains("\"answer\":\"Done.\"") && log.contains("buy milk"), "{log}");
    }
}

#[test]
fn programs_of_hooks_are_seen_though_the_home_is_writable() {
    let story = with_hook(
        "echo \"$(ls ~)\" > \"$0.out\"",
        |hook| json!({ "post_turn": [{ "command": hook }] }),
    )
    .script([says("Done.")]);
    write(&story.home().join("notes.md"), b"x");
    story
        .run(["agent", "-C", story.home().to_str().unwrap(), "--write", "-m", "x"])
        .stdout("Done.\n");
    let output = std::fs::read_to_string(story.home().join(".nanobot/hooks/hook.out")).unwrap();
    assert_eq!(output, "\n");
}

#[test]
fn a_hook_in_the_sandbox_works_on_the_files_of_the_run() {
    let format =
        "sed -i s/tea/coffee/ a.md && git add a.md && touch ~/.nanobot/hooks/new 2>/dev/null";
    let hooks = json!({
        "PostToolUse": [{ "matcher": "Write", "hooks": [{ "command": "~/.nanobot/hooks/format" }] }],
        "Stop": [{ "hooks": [{ "command": "echo x > ~/.bashrc; grep -q coffee a.md || { echo 'no coffee' >&2; exit 2; }" }] }],
    });
    let story = with_hooks(Story::new(), hooks);
    write_program(
        &story.home().join(".nanobot/hooks/format"),
        &format!("#!/bin/sh\n{format}; exit 0\n"),
    );
    story.program("git").args(["init", "-q"]).status().unwrap();
    story.server().script([
        calls("write_file", json!({ "path": "a.md", "content": "tea\n" })),
        says("Done."),
    ]);
    story.run(["agent", "--write", "-m", "x"]).stdout("Done.\n");
    let read = || std::fs::read_to_string(story.dir().join("a.md"));
    assert_eq!(read().unwrap(), "coffee\n");
    let staged = story.program("git").args(["diff", "--cached", "--name-only"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&staged.stdout), "a.md\n");
    assert!(!story.home().join(".bashrc").exists());
    assert!(!story.home().join(".nanobot/hooks/new").exists());
    // What the hook made of the file is taken back with the turn.
    let undone = story.run(["undo"]);
    undone.text();
    undone.error_text();
    drop(undone);
    assert!(read().is_err());
    // Without `--write` the hook changes nothing either, and its answer is that.
    write(&story.dir().join("a.md"), b"tea\n");
    story.server().script([says("1"), says("2"), says("3"), says("4")]);
    story.run(["agent", "-m", "x"]).stdout("4\n");
    assert!(story.last_request().last_content().contains("no coffee"));
    assert_eq!(read().unwrap(), "tea\n");
}

#[test]
fn a_hook_in_the_sandbox_has_no_key_and_no_network() {
    let command = "test -z \"$OTHER_KEY\" || exit 1; test -n \"$NANOBOT_HOOK\" || exit 2; \
                   test \"$PWD\" = \"$NANOBOT_DIRECTORY\" || exit 3; cat ~/audit.log && exit 4; \
                   bash -c 'exec 3<>/dev/tcp/127.0.0.1/PORT' 2>/dev/null && exit 5; exit 0";
    let story = Story::new().env("OTHER_KEY", "key-of-another");
    write(&story.home().join("audit.log"), b"x");
    let command = command.replace("PORT", &story.server().port.to_string());
    let hooks = json!({ "pre_turn": [{ "in": "sandbox", "command": command, "strict": true }] });
    let story = with_hooks(story, hooks).script([says("Done.")]);
    story.run(["agent", "-m", "x"]).stdout("Done.\n");
}

#[test]
fn where_nothing_can_be_hidden_a_hook_outside_of_the_sandbox_is_refused() {
    for user in available_users() {
        let at_home = json!({ "post_turn": [{ "name": "h", "command": "touch ~/ran" }] });
        let in_sandbox = json!({ "post_turn": [{ "in": "sandbox", "command": "cat >/dev/null" }] });
        let check = |hooks: &Value, flags: &[&str], status: i32| {
            let story = with_hooks(Story::new(), hooks.clone());
            story.server().script((status == 0).then(|| says("Yes.")));
            let situation = Situation { user, has_namespaces: false };
            let result = run_in(situation, &story, &[&["agent", "-m", "x"], flags].concat());
            let result = result.status(status);
            match status {
                0 => drop(result.stdout("Yes.\n")),
                _ => drop(result.stderr_has(
                    "hook `h` runs outside of the sandbox, and this system cannot hide from it what the run may change",
                )),
            }
            assert_eq!(story.home().join("ran").exists(), status == 0 && *hooks == at_home);
        };
        check(&at_home, &[], 78);
        check(&at_home, &["--write"], 78);
        // A run that may change nothing needs no protection, and one without limits has none.
        check(&at_home, &["--profile", "plan"], 78);
        check(&at_home, &["--profile", "plan", "--deny", "exec"], 0);
        check(&at_home, &["--profile", "full"], 0);
        check(&in_sandbox, &[], 0);
    }
}

#[test]
fn what_an_approved_call_wrote_is_hidden_from_hooks_too() {
    let hooks = json!({ "post_tool": [{ "command": "sh $NANOBOT_DIRECTORY/x.sh 2>/dev/null; echo >> ~/hooked" }] });
    let file = json!({ "path": "x.sh", "content": "touch ~/ran" });
    let story = with_hooks(Story::new(), hooks).script([
        calls("write_file", file),
        calls("list_dir", json!({})),
        says("Done."),
    ]);
    let mut screen = story.screen(24, 80).args(["repl"]);
    screen.until_prompt("> ").type_("x").press(Key::Enter);
    screen.until("allow?").type_("y");
    screen.until("Done.").press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 0);
    assert!(story.dir().join("x.sh").exists() && story.home().join("hooked").exists());
    assert!(!story.home().join("ran").exists());
}

#[test]
fn hooks_at_the_end_of_a_job_do_not_run_what_it_wrote() {
    let hooks = json!({
        "job_end": [
            { "command": "sh $NANOBOT_DIRECTORY/x.sh; touch ~/hooked" },
            { "in": "sandbox", "command": "sh x.sh; touch seen" },
        ],
    });
    let story = with_hooks(Story::new(), hooks);
    let dir = story.dir().display().to_string();
    let file = json!({ "path": "x.sh", "content": "touch ~/ran" });
    story.server().script([calls("write_file", file), says("Done.")]);
    let id = add_job(&story, &["--cron", "0 8 * * *", "-C", &dir, "--write"]);
    story.run(["cron", "run", &id]).stdout("Done.\n");
    assert!(story.home().join("hooked").exists() && story.dir().join("seen").exists());
    assert!(!story.home().join("ran").exists());
}

#[test]
fn where_hooks_run_is_told_once_and_checked() {
    let command = "cd $NANOBOT_DIRECTORY && ./fmt; true";
    let story =
        Story::new().set("hooks", json!({ "post_turn": [{ "name": "f", "command": command }] }));
    story.server().script([says("One."), says("Two.")]);
    story
        .run(["agent", "-m", "x"])
        .stdout("One.\n")
        .stderr_has("a hook runs `in: sandbox` or `in: home`");
    story.run(["agent", "-m", "x"]).stdout("Two.\n");
    let advice = "hook `f` runs `in: home`, but `NANOBOT_DIRECTORY` in its command seems to need";
    story.run(["config", "check"]).stdout_has(advice);
    let story = story.set("hooks", json!({ "post_turn": [{ "in": "attic", "command": "true" }] }));
    story
        .run(["config", "check"])
        .status(78)
        .stdout_has("its `in` is neither `sandbox` nor `home`");
}

#[test]
fn a_directory_sets_no_hooks() {
    let hooks = r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "touch $HOME/ran"}]}]}}"#;
    let story = Story::new()
        .file(".claude/settings.json", hooks)
        .file(".nanobot/config.json", hooks)
        .file("config.json", hooks)
        .file(
            ".vibe/hooks.toml",
            "[[hooks]]\nname = \"x\"\ntype = \"pre_tool\"\ncommand = \"touch $HOME/ran\"\n",
        )
        .script([calls("list_dir", json!({})), says("Done.")]);
    story.run(["agent", "-m", "x"]).stdout("Done.\n");
    assert!(!story.home().join("ran").exists());
}

#[test]
fn a_mistake_in_the_hooks_stops_runs_and_is_found_by_the_check() {
    let story = Story::new().set("hooks", json!({ "pre_tol": [{ "command": "true" }] }));
    story
        .run(["agent", "-m", "x"])
        .status(78)
        .stderr_has("`hooks` key `pre_tol` is not an event; did you mean `pre_tool`?");
    story.run(["config", "check"]).status(78).stdout_has("did you mean `pre_tool`?");
    story.run(["session", "list"]).stderr_has("");
}

#[test]
fn a_nanobot_in_a_hook_runs_no_hooks() {
    let script =
        "\"$0-nanobot\" agent -s inner --no-stdin -m inner > \"$HOME/inner\" 2>&1 < /dev/null";
    let story = with_hook(script, |hook| json!({ "pre_turn": [{ "command": hook }] }))
        .script([says("Inner."), says("Outer.")]);
    let link = story.home().join(".nanobot/hooks/hook-nanobot");
    std::os::unix::fs::symlink(crate::story::NANOBOT, link).unwrap();
    story.run(["agent", "-m", "outer"]).stdout("Outer.\n");
    let inner = std::fs::read_to_string(story.home().join("inner")).unwrap();
    assert_eq!(inner, "Inner.\n");
}
