//! The REPL on a terminal: input, approval prompts, interrupts and exit. The terminal is restored however it ends.

use crate::memory::{calls_save_memory, session_text};
use crate::requirements::require;
use crate::screen::{Key, Screen};
use crate::server::{Ending, Response, calls, fails, says, sends};
use crate::signals::{children_of, is_alive};
use crate::story::{Story, write};
use crate::undo::snapshot_tree;
use crate::wait::{accept, until_exists};
use crate::web::{PageServer, page_response};
use crate::worktree::git;
use rustix::process::Signal;
use serde_json::json;
use std::path::Path;

/// Starts the REPL on a screen and waits for its prompt.
fn start_repl(story: &Story) -> Screen<'_> {
    wait_until_started(story.screen(24, 80).args(["repl"]))
}

fn wait_until_started(mut screen: Screen<'_>) -> Screen<'_> {
    screen.until("lists").until_prompt("> ");
    screen
}

/// Types a line and sends it.
fn send_line<'s, 'a>(screen: &'s mut Screen<'a>, line: &str) -> &'s mut Screen<'a> {
    screen.type_(line).press(Key::Enter)
}

/// A server that starts an answer and then stalls.
fn stalling_reply(text: &str) -> crate::server::Responder {
    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let answer = Response::events([format!("data: {delta}\n\n")]).ending(Ending::Stall);
    sends(answer)
}

/// The contents of the user messages in the last request.
fn user_messages(story: &Story) -> Vec<String> {
    let requests = story.requests();
    let messages = requests.last().expect("somebody was asked").messages();
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.map(|message| message["content"].to_string()).collect()
}

#[test]
fn a_first_conversation() {
    let story = Story::new().script([says("Hello, **Ada**."), says("You said hi.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "hi, I am Ada").until("Hello, Ada.").until_prompt("> ");
    send_line(&mut screen, "what did I say?").until("You said hi.");
    screen.exit_with_ctrl_d();
    screen.snapshot("repl_first", &screen.conversation());
    // The second turn has the messages of the first.
    assert_eq!(user_messages(&story).len(), 2);
    assert!(user_messages(&story)[0].contains("hi, I am Ada"));
    let lines = story.session("cli_direct.jsonl");
    assert!(lines.iter().any(|line| line["content"] == "You said hi."));
}

#[test]
fn the_first_lines_say_where_the_user_is() {
    let story = Story::new().script([says("Hello.")]);
    let project = story.home().join("project");
    write(&project.join("AGENTS.md"), b"Be brief.");
    let arguments = ["repl", "-C", project.to_str().unwrap()];
    let mut screen = wait_until_started(story.screen(24, 80).args(arguments));
    screen.until_snapshot("greeting", Screen::styled);
    send_line(&mut screen, "hi").until("Hello.").until_prompt("> ");
    screen.exit_with_ctrl_d();
    story.run(["trust", project.to_str().unwrap()]).stdout_has("trusted");
    let narrow = story.screen(24, 40).args(["repl", "-C", "../home/project", "--net"]);
    let mut screen = wait_until_started(narrow);
    screen.until_snapshot("greeting-40", Screen::text);
    screen.exit_with_ctrl_d();
    let unsaved = story.screen(24, 80).args(["repl", "--replay", "demo"]);
    let mut screen = wait_until_started(unsaved);
    screen.until("a new conversation, which is not saved");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_run_on_a_terminal_says_what_it_continues() {
    let story = Story::new().script([says("One."), says("Two."), says("Three."), says("Four.")]);
    story.run(["agent", "-m", "1"]).stdout("One.\n");
    story.run(["agent", "-m", "2"]).stdout("Two.\n");
    let mut screen = story.screen(24, 80).args(["agent", "-m", "3"]);
    assert_eq!(screen.code(), 0);
    assert_eq!(
        screen.styled(),
        "«dim:continues cli:direct, 4 messages; --new starts over»\nThree."
    );
    let mut screen = story.screen(24, 80).args(["agent", "--new", "-m", "4"]);
    assert_eq!(screen.code(), 0);
    assert_eq!(screen.text(), "Four.");
}

#[test]
fn the_prompt_names_the_profile_and_full_is_asked_for_once() {
    let story = Story::new();
    let mut screen = start_repl(&story);
    send_line(&mut screen, "/profile plan").until_prompt("plan> ");
    send_line(&mut screen, "/profile full").until("Switch? [y/N]");
    send_line(&mut screen, "").until("the profile is unchanged").until_prompt("plan> ");
    send_line(&mut screen, "/profile full")
        .until_text("no second question", |text| text.matches("Switch? [y/N]").count() == 2);
    send_line(&mut screen, "y").until_prompt("full> ");
    assert!(screen.styled().ends_with("«bold red:full> »"), "{}", screen.styled());
    send_line(&mut screen, "/profile default").until_prompt("> ");
    send_line(&mut screen, "/profile auto-approve")
        .until("approves every tool, but")
        .until_text("a third question", |text| text.matches("Switch? [y/N]").count() == 3);
    send_line(&mut screen, "")
        .until_text("another answer", |text| text.matches("the profile is unchanged").count() == 2);
    screen.exit_with_ctrl_d();
}

#[test]
fn a_profile_that_only_reads_sets_write_access_aside_and_the_status_is_of_this_conversation() {
    let story =
        Story::new().set("models", json!({ "large": { "contextWindowTokens": 50_000 } })).script([
            says("Planned."),
            calls("write_file", json!({ "path": "a", "content": "x" })),
            says("Written."),
        ]);
    let arguments = ["repl", "--write", "--model", "large", "-s", "work"];
    let mut screen = wait_until_started(story.screen(40, 100).args(arguments));
    let scope = "default with --write: may change the working directory";
    assert!(screen.text().contains(scope), "{}", screen.text());
    send_line(&mut screen, "/profile plan").until_prompt("plan> ");
    send_line(&mut screen, "plan it").until("Planned.").until_prompt("plan> ");
    send_line(&mut screen, "/status")
        .until("model      large")
        .until("read-only without `--write`")
        .until("profile    plan");
    screen.press(Key::ShiftTab).until_prompt("accept-edits> ");
    send_line(&mut screen, "write it").until("Written.");
    screen.until_prompt("accept-edits> ");
    assert!(story.dir().join("a").exists());
    send_line(&mut screen, "/status")
        .until(", writable")
        .until("profile    accept-edits")
        .until("in the last request of `work`");
    screen.exit_with_ctrl_d();
}

#[test]
fn sessions_are_searched_titled_and_exported_from_the_conversation() {
    let story = Story::new().script([says("A kiwi.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "a fruit?").until("A kiwi.");
    screen.until_prompt("> ");
    send_line(&mut screen, "/session title Fruit of the day")
        .until("the title is now: Fruit of the day\n")
        .until_prompt("> ");
    send_line(&mut screen, "/session title").until("> /session title\nFruit of the day\n>");
    send_line(&mut screen, "/session search kiwi").until("assistant: A kiwi.");
    send_line(&mut screen, "/session search 'a kiwi'").until("assistant: A kiwi.");
    send_line(&mut screen, r"/session search k\wwi\.").until("assistant: A kiwi.");
    send_line(&mut screen, "/session export fruit.md").until_prompt("> ");
    send_line(&mut screen, "/session list").until("cli:direct");
    screen.exit_with_ctrl_d();
    let exported = std::fs::read_to_string(story.dir().join("fruit.md")).unwrap();
    assert!(exported.contains("A kiwi."), "{exported}");
}

#[test]
fn a_session_is_chosen_from_the_last_ones() {
    let story = Story::new().script([
        says("A kiwi.\n\nIt is green."),
        says("A leek."),
        fails(401, "who are you?"),
        says("A pear."),
    ]);
    story.run(["agent", "-s", "fruit", "-m", "a fruit?"]).stdout("A kiwi.\n\nIt is green.\n");
    story.run(["agent", "-s", "greens", "-m", "a vegetable?"]).stdout("A leek.\n");

    let mut screen = start_repl(&story);
    send_line(&mut screen, "/sessions")
        .until("SESSION  AGE")
        .until("1.  fruit ")
        .until("2.  greens ")
        .until_prompt("session:");
    // A number, and the last exchange of the session.
    send_line(&mut screen, "1")
        .until("switched to session `fruit`: 2 messages")
        .until("last message: a fruit?\nlast answer: A kiwi. It is green.\n")
        .until_prompt("> ");
    // The arrows.
    send_line(&mut screen, "/sessions").until("fruit*").until_prompt("session:");
    screen.press(Key::Down).until("session: fruit");
    screen.press(Key::Down).until("session: greens").press(Key::Enter);
    screen.until("switched to session `greens`").until("last answer: A leek.").until_prompt("> ");
    send_line(&mut screen, "/sessions").until_prompt("session:");
    screen.press(Key::Escape).until("the session is unchanged").until_prompt("> ");
    // `/resume` is about a turn, as `--resume` is.
    send_line(&mut screen, "another?").until("who are you?").until_prompt("> ");
    send_line(&mut screen, "/resume").until("A pear.").until_prompt("> ");
    screen.exit_with_ctrl_d();
    let messages = user_messages(&story);
    assert_eq!(messages.iter().filter(|text| text.contains("another?")).count(), 1);
}

#[test]
fn the_help_of_a_command_has_its_options_and_wrong_words_are_explained() {
    let story = Story::new();
    let mut screen = wait_until_started(story.screen(40, 100).args(["repl"]));
    send_line(&mut screen, "/help undo").until("/undo [TURN]").until("--redo");
    send_line(&mut screen, "/help model").until("/model [NAME]");
    send_line(&mut screen, "/memory foo").until("try: one of show, search,");
    send_line(&mut screen, "/usage --by colour").until("[possible values: day,");
    send_line(&mut screen, "/mo").until("try: `/model`");
    send_line(&mut screen, "/nope").until("there is no command `/nope`\n  try: `/help`");
    // Words of other agents.
    send_line(&mut screen, "/settings").until("providers.custom.apiBase");
    send_line(&mut screen, "/doctor").until("no command `/doctor`\n  try: `/status --check`");
    send_line(&mut screen, "/permissions").until("try: `/profile`, and nanobot policy explain");
    screen.exit_with_ctrl_d();
}

#[test]
fn agent_without_a_message_starts_the_repl_on_a_terminal() {
    let story = Story::new().script([says("Here.")]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["agent", "-s", "work"]));
    send_line(&mut screen, "there?").until("Here.");
    send_line(&mut screen, "/session").until("work\n");
    send_line(&mut screen, "quit");
    assert_eq!(screen.code(), 0);
    screen.assert_restored();
    assert!(!story.session("work.jsonl").is_empty());
}

#[test]
fn exit_commands_end_the_repl_and_it_requires_a_terminal() {
    for word in ["exit", "QUIT", "/exit", "/quit", "/bye", ":q"] {
        let story = Story::new();
        let mut screen = start_repl(&story);
        send_line(&mut screen, word);
        assert_eq!(screen.code(), 0, "{word}");
        screen.assert_restored();
    }
    Story::new()
        .stdin("hi\n")
        .run(["repl"])
        .status(2)
        .stderr_has("needs a terminal")
        .stderr_has("try: `nanobot agent -m");
}

#[test]
fn a_change_is_shown_and_made_only_after_approval() {
    let write_call =
        || calls("write_file", json!({ "path": "notes.md", "content": "milk\nbread\n" }));
    let story = Story::new().file("notes.md", "milk\n").script([
        write_call(),
        says("Not written."),
        write_call(),
        says("Written."),
        calls("write_file", json!({ "path": "notes.md", "content": "milk\n" })),
        says("Left alone."),
    ]);
    let mut screen = wait_until_started(story.screen(24, 120).args(["repl"]));
    send_line(&mut screen, "add bread").until_prompt("  allow?");
    screen.until_snapshot("repl_question", Screen::conversation);
    screen.type_("r").until("why not?");
    send_line(&mut screen, "use the list in list.md").until("Not written.").until_prompt("> ");
    assert_eq!(std::fs::read_to_string(story.dir().join("notes.md")).unwrap(), "milk\n");
    let content = story.requests()[1].last_content();
    assert!(content.contains("the user said no: use the list in list.md"), "{content}");
    send_line(&mut screen, "again").until_prompt("  allow?");
    // One key is an answer.
    screen.type_("y").until("Written.");
    let text = std::fs::read_to_string(story.dir().join("notes.md")).unwrap();
    assert_eq!(text, "milk\nbread\n");
    // The answer is about the change that was shown: another program has changed the file since.
    send_line(&mut screen, "only milk").until_prompt("  allow?");
    write(&story.dir().join("notes.md"), b"milk\nbread\ntea\n");
    screen.type_("y").until("Left alone.");
    let text = std::fs::read_to_string(story.dir().join("notes.md")).unwrap();
    assert_eq!(text, "milk\nbread\ntea\n");
    let content = story.last_request().last_content();
    assert!(content.contains("was changed while the user was asked"), "{content}");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_question_takes_keys_arrows_and_escape() {
    let write = || calls("write_file", json!({ "path": "new.md", "content": "x\n" }));
    let mut script = Vec::new();
    for number in 1..=4 {
        script.extend([write(), says(&format!("Answer {number}."))]);
    }
    let story = Story::new().script(script);
    let mut screen = start_repl(&story);
    // A key that is none of the choices is refused at once, and the next one counts.
    send_line(&mut screen, "1").until_prompt("  allow?");
    screen.type_("x").until("  allow? `x` is none of the keys in brackets");
    screen.type_("n").until("  allow? no\n").until("Answer 1.");
    screen.until_prompt("> ");
    send_line(&mut screen, "2").until_prompt("  allow?");
    // The Escape key leaves the reason, and then the question.
    screen.type_("r").until_prompt("  why not?");
    screen.type_to("beca", "  why not? beca").press(Key::Escape).until_prompt("  allow?").pause();
    screen.press(Key::Escape).until("Answer 2.").until_prompt("> ");
    send_line(&mut screen, "3").until_prompt("  allow?");
    screen.press(Key::Down).until("  allow? yes  Enter confirms");
    screen.press(Key::Down).until("  allow? no  Enter confirms");
    screen.press(Key::Enter).until("Answer 3.").until_prompt("> ");
    assert!(!story.dir().join("new.md").exists());
    send_line(&mut screen, "4").until_prompt("  allow?");
    // A grant for longer takes Enter.
    screen.type_("s").until("  allow? session  Enter confirms");
    screen.press(Key::Up).until("  allow? reason  Enter confirms");
    screen.press(Key::Down).press(Key::Enter).until("Answer 4.");
    screen.until_prompt("> ");
    assert!(story.dir().join("new.md").exists());
    screen.exit_with_ctrl_d();
    // The question has shown the change.
    let text = screen.text_with_scrollback();
    let (_, last) = text.rsplit_once("\n> 4").unwrap();
    assert_eq!(last.matches("+x").count(), 1, "{text}");
    assert!(last.contains("✓ write_file new.md  ") && last.contains(", +1 −0"), "{text}");
}

#[test]
fn a_reason_against_running_a_command_again_goes_to_the_model() {
    let story = Story::new()
        .script([calls("exec", json!({ "command": "touch wrong" })), says("Another name, then.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "go").until("Run it again with write").until_prompt("  allow?");
    screen.type_("r").until_prompt("  why not?");
    send_line(&mut screen, "not that name").until("Another name, then.").until_prompt("> ");
    let result = story.requests()[1].last_content();
    assert!(
        result.contains("Read-only file system") && result.contains("Exit code: 1"),
        "{result}"
    );
    assert!(result.contains("the user said no: not that name"), "{result}");
    screen.exit_with_ctrl_d();
    // The user has answered, so nothing is reported.
    assert!(!screen.text_with_scrollback().contains("denied: exec"));
}

/// The question is about the path at which a command failed, and a yes grants that path. A path that no flag grants is not asked about.
#[test]
fn a_command_that_lacks_a_path_can_be_run_again_with_it() {
    let exec = |command: &str| calls("exec", json!({ "command": command }));
    let story = Story::new_in(Path::new("/var/tmp")).script([
        exec("echo x > new.txt; echo x >> ~/notes.txt"),
        says("Written."),
        exec("cat ~/notes.txt"),
        says("Read."),
        exec("cat ~/.nanobot/config.json"),
        says("Closed."),
        exec("touch ~/fresh"),
        says("Not there."),
    ]);
    let notes = story.home().join("notes.txt");
    write(&notes, b"mine\n");
    let mut screen = wait_until_started(story.screen(24, 200).args(["repl"]));
    let question = |access: &str| format!("Run it again with {access} access to $HOME/notes.txt?");
    send_line(&mut screen, "1").until(&question("write")).until_prompt("  allow?");
    screen.type_("y").until("Written.").until_prompt("> ");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine\nx\n");
    assert!(!story.dir().join("new.txt").exists());
    send_line(&mut screen, "2").until(&question("read")).until_prompt("  allow?");
    screen.type_("y").until("Read.").until_prompt("> ");
    assert!(story.last_request().last_content().contains("mine\nx"));
    send_line(&mut screen, "3").until("Closed.").until_prompt("> ");
    // A path that must be created first is reported without a question.
    send_line(&mut screen, "4").until("Not there.").until_prompt("> ");
    assert!(screen.text_with_scrollback().contains("is granted only once it exists"));
    screen.exit_with_ctrl_d();
}

#[test]
fn a_command_that_did_not_reach_a_server_of_the_machine_can_be_run_again() {
    if !require("curl") {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let command = format!("curl -sS --max-time 20 http://{address}/");
    let story = Story::new().script([calls("exec", json!({ "command": command })), says("Done.")]);
    let mut screen = start_repl(&story);
    let question = format!("exec failed, because it may not reach {address}. Run it again with");
    send_line(&mut screen, "go").until(&question).until_prompt("  allow?");
    screen.type_("y");
    let mut stream = accept(&listener);
    let _: usize = std::io::Read::read(&mut stream, &mut [0; 64]).unwrap();
    let page = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\npage\n";
    std::io::Write::write_all(&mut stream, page).unwrap();
    drop(stream);
    screen.until("Done.").until_prompt("> ");
    assert_eq!(story.requests()[1].last_content(), "page");
    screen.exit_with_ctrl_d();
}

#[test]
fn an_edit_that_cannot_be_made_is_not_asked_about() {
    let edit = |old: &str| {
        calls("edit_file", json!({ "path": "notes.md", "old_text": old, "new_text": "bread" }))
    };
    let story = Story::new().file("notes.md", "milk\n").script([
        edit("butter"),
        edit(" milk "),
        says("Done."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "go")
        .until("Allow edit_file to change notes.md?")
        .until("-milk\n    +bread")
        .until_prompt("  allow?");
    let content = story.requests()[1].last_content();
    assert!(content.contains("old_text was not found"), "{content}");
    screen.type_("y").until("Done.").until_prompt("> ");
    let text = std::fs::read_to_string(story.dir().join("notes.md")).unwrap();
    assert_eq!(text, "bread\n");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_change_through_a_link_is_asked_about_once_with_its_target() {
    let edit = json!({ "path": "sl", "old_text": "orig", "new_text": "edited" });
    let story = Story::new().file("real", "one\n").script([
        calls("edit_file", edit.clone()),
        says("Edited."),
        calls("write_file", json!({ "path": "inner", "content": "two\n" })),
        says("Written."),
        calls("write_file", json!({ "path": "dir/new", "content": "three\n" })),
        says("Moved."),
    ]);
    let target = story.home().join(".bashrc");
    write(&target, b"orig\n");
    std::os::unix::fs::symlink(&target, story.dir().join("sl")).unwrap();
    std::os::unix::fs::symlink("real", story.dir().join("inner")).unwrap();
    std::os::unix::fs::symlink("täler a", story.dir().join("dir")).unwrap();
    for name in ["täler a", "b"] {
        std::fs::create_dir(story.dir().join(name)).unwrap();
    }
    let mut screen = wait_until_started(story.screen(40, 150).args(["repl"]));
    send_line(&mut screen, "go")
        .until("Allow edit_file to change sl, a link to ~/.bashrc?")
        .until("`sl` is a link, and `")
        .until("-orig\n    +edited")
        .until_prompt("  allow?");
    screen.type_("y").until("Edited.").until_prompt("> ");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "edited\n");
    assert!(story.dir().join("sl").is_symlink());
    send_line(&mut screen, "/undo").until("restored").until_prompt("> ");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "orig\n");
    send_line(&mut screen, "write")
        .until("Allow write_file to change inner, a link to real?")
        .until_prompt("  allow?");
    screen.type_("y").until("Written.").until_prompt("> ");
    assert_eq!(std::fs::read_to_string(story.dir().join("real")).unwrap(), "two\n");
    assert!(story.dir().join("inner").is_symlink());
    assert_eq!(screen.text().matches("? Allow ").count(), 2, "{}", screen.text());
    // A target that is not plain has a row of its own, and an answer counts only for the target that was shown.
    send_line(&mut screen, "elsewhere")
        .until("Allow write_file to create dir/new, a link to another file?")
        .until("changes: täler a/new")
        .until_prompt("  allow?");
    std::fs::remove_file(story.dir().join("dir")).unwrap();
    std::os::unix::fs::symlink("b", story.dir().join("dir")).unwrap();
    screen.type_("y").until("Moved.").until_prompt("> ");
    assert!(!story.dir().join("b/new").exists() && !story.dir().join("täler a/new").exists());
    screen.exit_with_ctrl_d();
    // The rules of both names hold, and the flag is that of the target alone.
    let flag = format!("--write={}", target.display());
    let run = |flags: &[&str]| {
        let edit = edit.to_string();
        story.run(["tool", "run", "edit_file", &edit].iter().chain(flags).copied())
    };
    for rule in ["edit_file(sl)", "write_file(~/.bashrc)"] {
        run(&["--write", &flag, "--deny", rule]).status(77).stderr_has("is denied by the rule");
    }
    let new_file = json!({ "path": story.home().join("new"), "content": "x" }).to_string();
    story
        .run(["tool", "run", "write_file", &new_file])
        .status(77)
        .stderr_has("is granted only once it exists (`touch` it)\n  try: `--write=$HOME/new`");
    run(&["--write"]).status(77).stderr_has("try: `--write=$HOME/.bashrc`");
    run(&[&flag]).stdout_has("+edited");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "edited\n");
}

#[test]
fn a_new_file_outside_is_asked_about_too() {
    let story = Story::new();
    let dir = story.home().join("other");
    std::fs::create_dir(&dir).unwrap();
    let path = dir.join("new.md");
    let change = json!({ "path": path.to_str().unwrap(), "content": "x\n" });
    let nowhere = json!({ "path": dir.join("a/b.md").to_str().unwrap(), "content": "x\n" });
    let story = story.script([
        calls("write_file", change),
        says("Written."),
        calls("write_file", nowhere),
        says("Denied."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "go").until("is outside the paths of this run");
    screen.until_prompt("  allow?");
    // No rule could open the place.
    assert!(!screen.text().contains("[a]lways"), "{}", screen.text());
    screen.type_("y").until("Written.").until_prompt("> ");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "x\n");
    // Even where its directory does not exist yet.
    send_line(&mut screen, "more").until_prompt("  allow?");
    screen.type_("n").until("Denied.").until_prompt("> ");
    assert!(!dir.join("a").exists());
    screen.exit_with_ctrl_d();
}

#[test]
fn a_patch_is_shown_and_applied_only_after_approval() {
    let patch = "*** Begin Patch\n*** Update File: notes.md\n@@\n milk\n+bread\n*** Add File: new.md\n+x\n*** End Patch";
    let call = || calls("apply_patch", json!({ "patch": patch }));
    let story = Story::with_provider("custom", "codex-mini-latest")
        .file("notes.md", "milk\n")
        .script([call(), says("Not written."), call(), says("Written.")]);
    let mut screen = wait_until_started(story.screen(24, 120).args(["repl"]));
    send_line(&mut screen, "add bread").until_prompt("  allow?");
    for row in ["*** Update File: notes.md", "+bread", "*** Add File: new.md"] {
        screen.until(row);
    }
    send_line(&mut screen, "no").until("Not written.");
    screen.until_prompt("> ");
    assert!(!story.dir().join("new.md").exists());
    send_line(&mut screen, "again").until_prompt("  allow?");
    send_line(&mut screen, "y").until("Written.");
    let text = std::fs::read_to_string(story.dir().join("notes.md")).unwrap();
    assert_eq!(text, "milk\nbread\n");
    assert!(story.dir().join("new.md").exists());
    screen.exit_with_ctrl_d();
}

#[test]
fn a_session_grant_is_not_asked_again_and_always_adds_a_rule() {
    let write = |name: &str| calls("write_file", json!({ "path": name, "content": "x" }));
    let story = Story::new().script([
        write("one"),
        says("First."),
        write("two"),
        says("2."),
        calls("delete_file", json!({ "path": "one" })),
        says("3."),
        calls("delete_file", json!({ "path": "two" })),
        says("4."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "a").until_prompt("  allow?");
    send_line(&mut screen, "s").until("First.").until_prompt("> ");
    send_line(&mut screen, "b").until("2.").until_prompt("> ");
    // Another tool needs its own approval.
    send_line(&mut screen, "c").until_prompt("  allow?");
    send_line(&mut screen, "a").until("saved in").until("3.");
    screen.exit_with_ctrl_d();
    let config = std::fs::read_to_string(story.home().join(".nanobot/nanobot.json")).unwrap();
    assert!(config.contains("delete_file(") && !config.contains("write_file("), "{config}");
    // The rule applies to the next session and to single runs.
    story.run(["agent", "-m", "d"]).stdout("4.\n");
    for name in ["one", "two"] {
        assert!(!story.dir().join(name).exists(), "{name}");
    }
}

#[test]
fn a_command_without_permission_needs_approval() {
    let story = Story::new()
        .script([calls("exec", json!({ "command": "echo bread > list.md" })), says("Done.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "write it").until_prompt("  allow?").until("$ echo bread > list.md");
    send_line(&mut screen, "yes").until("Done.");
    let text = std::fs::read_to_string(story.dir().join("list.md")).unwrap();
    assert_eq!(text, "bread\n");
    screen.exit_with_ctrl_d();
}

/// A command is not run again for a question about what it has changed: a "yes" makes these changes, a "no" tells the model what
/// was taken back and what was not.
#[test]
fn changes_of_startup_files_by_a_command_are_made_after_approval_without_running_it_again() {
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let check = |answer: &str, is_made: bool| {
        let command = "echo x >> AGENTS.md; echo y > .envrc; echo once >> log";
        let story = Story::new()
            .set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }))
            .file("AGENTS.md", "mine\n")
            .script([
                calls("web_fetch", json!({ "url": page.url("/") })),
                calls("exec", json!({ "command": command })),
                says("Done."),
            ]);
        let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
        send_line(&mut screen, "read and write")
            .until("Make the changes of")
            .until_prompt("  allow?");
        send_line(&mut screen, answer).until("Done.");
        let read = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap_or_default();
        assert_eq!(read("log"), "once\n");
        let expected = if is_made { ["mine\nx\n", "y\n"] } else { ["mine\n", ""] };
        assert_eq!([read("AGENTS.md"), read(".envrc")], expected);
        let asides = std::fs::read_dir(story.dir()).unwrap().flatten();
        let asides =
            asides.filter(|entry| entry.file_name().to_string_lossy().contains("set-aside"));
        // One for each file.
        assert_eq!(asides.count(), if is_made { 0 } else { 2 });
        let result = story.requests()[2].last_content();
        assert_eq!(result.contains("it was restored"), !is_made, "{result}");
        screen.exit_with_ctrl_d();
        if is_made {
            drop(story.run(["undo"]).stdout_has("AGENTS.md").stderr_has("turn 1"));
            assert_eq!([read("AGENTS.md"), read(".envrc"), read("log")], ["mine\n", "", ""]);
        }
    };
    check("yes", true);
    check("no", false);
}

#[test]
fn what_the_user_writes_while_a_question_is_open_stays() {
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let command = "echo x >> AGENTS.md; echo y > .envrc; echo z > CLAUDE.md";
    let story = Story::new()
        .set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }))
        .file("AGENTS.md", "mine\n")
        .script([
            calls("web_fetch", json!({ "url": page.url("/") })),
            calls("exec", json!({ "command": command })),
            says("Done."),
        ]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
    send_line(&mut screen, "write").until("Make the changes of").until_prompt("  allow?");
    std::fs::write(story.dir().join("AGENTS.md"), "edited\n").unwrap();
    std::fs::write(story.dir().join(".envrc"), "edited too\n").unwrap();
    send_line(&mut screen, "yes").until("Done.");
    let read = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap_or_default();
    let files = ["AGENTS.md", ".envrc", "CLAUDE.md"].map(read);
    assert_eq!(files, ["edited\n", "edited too\n", "z\n"]);
    let result = story.requests()[2].last_content();
    for name in ["AGENTS.md", ".envrc"] {
        let path = story.dir().join(name);
        let expected =
            format!("`{}` could not be changed: it has been changed since", path.display());
        assert!(result.contains(&expected), "{result}");
    }
    screen.exit_with_ctrl_d();
}

/// An answer is for what it was asked about: files that instruct, or git's config.
#[test]
fn an_answer_about_startup_files_does_not_change_the_config_of_git() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let exec = |command: &str| calls("exec", json!({ "command": command }));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] })).script([
        calls("web_fetch", json!({ "url": page.url("/") })),
        exec("echo one > AGENTS.md"),
        exec("echo two >> AGENTS.md; git config core.fsmonitor ./evil"),
        exec("git remote add up https://x.org/y"),
        says("Done."),
    ]);
    let status = story.program("git").args(["init", "-q"]).status();
    assert!(status.unwrap().success());
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
    send_line(&mut screen, "go").until("Make the changes of AGENTS.md?").until_prompt("  allow?");
    send_line(&mut screen, "session")
        .until("Make the changes of .git/config?")
        .until("+[remote \"up\"]")
        .until_prompt("  allow?");
    send_line(&mut screen, "yes").until("Done.");
    let read = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap_or_default();
    assert_eq!(read("AGENTS.md"), "one\ntwo\n");
    let config = read(".git/config");
    assert!(!config.contains("fsmonitor") && config.contains("https://x.org/y"), "{config}");
    screen.exit_with_ctrl_d();
}

/// "Open the second one", in the next turn.
#[test]
fn a_link_of_a_page_is_opened_in_the_next_turn() {
    let second = PageServer::start(|_| page_response("text/plain", "the second page"));
    let links = format!("1. https://first.example/\n2. {}\n", second.url("/second"));
    let page = PageServer::start(move |_| page_response("text/plain", &links));
    let fetch = |url: String| calls("web_fetch", json!({ "url": url }));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] })).script([
        fetch(page.url("/")),
        says("Two pages."),
        fetch(second.url("/second")),
        says("It is short."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "what is new?").until("Two pages.").until_prompt("> ");
    send_line(&mut screen, "open the second one").until("It is short.");
    let result = story.requests()[3].last_content();
    assert!(result.contains("the second page"), "{result}");
    screen.exit_with_ctrl_d();
}

#[test]
fn the_model_can_ask_only_an_interactive_user() {
    let ask =
        || calls("ask_user", json!({ "question": "Which one?", "options": ["tea", "coffee"] }));
    let story = Story::new().script([ask(), says("Coffee it is.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "make me something").until_prompt("  answer:");
    screen.until_snapshot("repl_ask_user", Screen::conversation);
    send_line(&mut screen, "2").until("Coffee it is.");
    assert_eq!(story.requests()[1].last_content(), "coffee");
    screen.exit_with_ctrl_d();
    // The arrows choose, a long option hangs below its number, and Escape gives no answer.
    let long = "coffee from the small shop at the corner, with oat milk";
    let ask = || calls("ask_user", json!({ "question": "Which one?", "options": ["tea", long] }));
    let story = Story::new().script([ask(), says("One."), ask(), says("None.")]);
    let mut screen = wait_until_started(story.screen(24, 50).args(["repl"]));
    send_line(&mut screen, "go")
        .until("  2. coffee from the small shop at the corner,\n     with oat milk")
        .until_prompt("  answer:");
    screen.press(Key::Down).until("  answer: tea");
    screen.press(Key::Down).until("  answer: coffee");
    screen.press(Key::Enter).until("One.").until_prompt("> ");
    assert_eq!(story.requests()[1].last_content(), long);
    send_line(&mut screen, "again").until_prompt("  answer:");
    screen.press(Key::Escape).until("ask_user Which one?  no answer").until("None.");
    screen.until_prompt("> ");
    assert!(story.requests()[3].last_content().contains("did not answer"));
    screen.exit_with_ctrl_d();
    // In a single run there is no such tool.
    let story = Story::new().script([says("-")]);
    story.run(["agent", "-m", "x"]).stdout("-\n");
    let tools = story.requests()[0].body["tools"].to_string();
    assert!(!tools.contains("ask_user"), "{tools}");
}

#[test]
fn ctrl_c_stops_a_stream_and_the_repl_continues() {
    let story = Story::new().script([stalling_reply("Half of it\n\nx"), says("Whole.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "tell").until("Half of it").press(Key::Ctrl('c'));
    screen.until("(interrupted").until_prompt("> ");
    send_line(&mut screen, "once more").until("Whole.");
    screen.exit_with_ctrl_d();
}

#[test]
fn ctrl_c_stops_a_command_and_its_children() {
    let story = Story::new();
    let mark = format!("1000.{}", std::process::id());
    let story = story.script([
        calls("exec", json!({ "command": format!("sleep {mark} & wait") })),
        says("Stopped."),
    ]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
    send_line(&mut screen, "sleep");
    screen.wait_for_some(|| is_alive(&mark).then_some(()));
    screen.press(Key::Ctrl('c')).until("(interrupted").until_prompt("> ");
    // The interrupted call stays on the screen.
    screen
        .until(&format!("✗ exec sleep {mark} & wait  "))
        .until("    Interrupted because the run was ended");
    screen.wait_for_some(|| (!is_alive(&mark)).then_some(()));
    let results = story.session("cli_direct.jsonl");
    assert!(results.iter().any(|line| line["role"] == "tool"), "{results:?}");
    send_line(&mut screen, "and now?").until("Stopped.");
    screen.exit_with_ctrl_d();
}

#[test]
fn the_whole_output_of_a_call_is_shown_on_request() {
    let story = Story::new().script([
        calls("exec", json!({ "command": "echo first" })),
        calls("exec", json!({ "command": "for i in $(seq 40)\ndo echo \"line $i\"; done" })),
        says("Done."),
    ]);
    let screen = story.screen(24, 80).env("PAGER", "sed 's/^/paged: /'");
    let mut screen = wait_until_started(screen.args(["repl"]));
    screen.press(Key::Ctrl('o')).until("no such tool call").until_prompt("> ");
    send_line(&mut screen, "go").until("Done.").until_prompt("> ");
    assert!(!screen.text().contains("line 40\n"), "{}", screen.text());
    // The line that is being typed stays.
    screen.type_to("ask", "> ask").press(Key::Ctrl('o')).until("paged: line 40\n");
    screen.until_prompt("> ask");
    let text = screen.text_with_scrollback();
    assert!(text.contains("paged: do echo") && text.contains("paged: line 1\n"), "{text}");
    assert_eq!(text.matches("> ask").count(), 1, "{text}");
    screen.press(Key::Ctrl('u'));
    send_line(&mut screen, "/last 2").until("exec echo first\nfirst\n>");
    send_line(&mut screen, "/last x").until("`x` is not a number").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

/// A session that waits for its user has no processes.
#[test]
fn no_process_is_left_after_a_turn() {
    let story = Story::new();
    let story = story.script([
        calls("exec", json!({ "command": "true" })),
        calls("exec", json!({ "command": "true" })),
        says("Done."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "go").until("Done.").until_prompt("> ");
    let pid = screen.pid();
    // One that has ended has no command line any more.
    let runs = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
    };
    screen.wait_for_some(|| (!children_of(pid).iter().any(runs)).then_some(()));
    screen.exit_with_ctrl_d();
}

#[test]
fn ctrl_c_does_not_hide_another_signal() {
    // The command receives SIGTERM and reports it, so that Ctrl-C comes second in any case. The shell creates the file
    // itself: a child process might be killed first.
    let command = "trap ': > told' TERM; : > started; while :; do sleep 0.02; done";
    let story = Story::new().script([calls("exec", json!({ "command": command }))]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
    send_line(&mut screen, "sleep");
    until_exists(&story.dir().join("started"));
    screen.signal(Signal::TERM);
    until_exists(&story.dir().join("told"));
    screen.press(Key::Ctrl('c'));
    assert_eq!(screen.code(), 143);
    screen.assert_restored();
}

#[test]
fn ctrl_c_at_the_prompt_clears_the_line_and_a_second_one_exits() {
    let story = Story::new();
    let mut screen = start_repl(&story);
    screen.press(Key::Ctrl('c')).until("press Ctrl-C again");
    // After text, Ctrl-C never ends the REPL, and the text is in the history.
    screen.type_to("half a li", "> half a li").press(Key::Ctrl('c'));
    screen.until("> half a li\n(press Ctrl-C again").until_prompt("> ");
    screen.press(Key::Up).until_prompt("> half a li").press(Key::Ctrl('c'));
    screen.until("half a li\n(press Ctrl-C again, Ctrl-D or /exit to end)\n> half a li\n(press");
    assert!(story.server().requests().is_empty());
    screen.press(Key::Ctrl('c'));
    assert_eq!(screen.code(), 130);
    screen.assert_restored();
}

#[test]
fn a_paste_of_many_lines_is_one_message() {
    let story = Story::new().script([says("Long.")]);
    let mut screen = start_repl(&story);
    let lines: Vec<String> = (1..=500).map(|number| format!("line {number}\tof many")).collect();
    // The line shows its size instead.
    screen.paste(&lines.join("\n")).until_prompt("> [pasted 500 lines]");
    assert!(story.server().requests().is_empty());
    screen.press(Key::Enter).until("Long.");
    let messages = user_messages(&story);
    assert_eq!(messages.len(), 1);
    assert!(messages[0].contains("line 1\\tof many\\nline 2") && messages[0].contains("line 500"));
    screen.exit_with_ctrl_d();
}

#[test]
fn input_continues_after_a_backslash_and_in_a_code_block() {
    let story = Story::new().script([says("ok"), says("ok again")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "one\\");
    send_line(&mut screen, "two").until("ok").until_prompt("> ");
    assert!(user_messages(&story)[0].contains("one\\ntwo"), "{:?}", user_messages(&story));
    send_line(&mut screen, "```");
    send_line(&mut screen, "code");
    send_line(&mut screen, "```").until("ok again");
    assert!(user_messages(&story)[1].contains("```\\ncode\\n```"), "{:?}", user_messages(&story));
    screen.exit_with_ctrl_d();
}

#[test]
fn the_window_can_be_resized() {
    let long = "word ".repeat(40);
    let story = Story::new().script([says(&long), says("narrow")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "a").until("word word").until_prompt("> ");
    screen.resize(24, 30);
    send_line(&mut screen, "b").until("narrow").until_prompt("> ");
    screen.until_snapshot("repl_resized", Screen::conversation);
    screen.exit_with_ctrl_d();
}

#[test]
fn the_terminal_is_restored_however_the_repl_ends() {
    for signal in [Signal::TERM, Signal::HUP] {
        let story = Story::new();
        let mut screen = start_repl(&story);
        screen.type_("half").signal(signal);
        assert_eq!(screen.code(), 128 + signal.as_raw());
        screen.assert_restored();
    }
    // During a turn.
    let story = Story::new().script([stalling_reply("Half\n\nx")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "x").until("Half").signal(Signal::TERM);
    assert_eq!(screen.code(), 143);
    screen.assert_restored();
    // A panic in our code.
    let story = Story::new().env("NANOBOT_TEST_DEFECT", "1");
    let mut screen = start_repl(&story);
    send_line(&mut screen, "x").until("internal error");
    assert_eq!(screen.code(), 70);
    screen.assert_restored();
}

#[test]
fn type_ahead_during_a_turn_is_preserved() {
    let story = Story::new().script([
        calls("exec", json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" })),
        says("First."),
        says("Second."),
        says("Third."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "wait").until("exec");
    send_line(&mut screen, "the second line");
    screen.type_("the third");
    std::fs::write(story.dir().join("go"), "").unwrap();
    screen.until("Second.").until("> the third");
    screen.press(Key::Enter).until("Third.");
    let messages = user_messages(&story);
    assert!(
        messages[1].contains("the second line") && messages[2].contains("the third"),
        "{messages:?}"
    );
    screen.exit_with_ctrl_d();
}

#[test]
fn type_ahead_does_not_answer_a_later_question() {
    let story = Story::new().script([
        calls("exec", json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" })),
        calls("write_file", json!({ "path": "new.md", "content": "x" })),
        says("Not written."),
        says("Yes to what?"),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "wait").until("exec");
    send_line(&mut screen, "y");
    std::fs::write(story.dir().join("go"), "").unwrap();
    screen.until_prompt("  allow?");
    send_line(&mut screen, "n").until("Not written.");
    assert!(!story.dir().join("new.md").exists());
    // The text typed before is the next message.
    screen.until("> y").until("Yes to what?").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn output_of_a_shell_command_is_sent_with_the_next_message() {
    let story = Story::new().script([says("I see.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "!echo out; echo err >&2; exit 3").until("out").until("[status 3]");
    // The owner of the key is unknown: it is shown to the user but not sent.
    let key = format!("ghp_{}", "aB3".repeat(12));
    send_line(&mut screen, &format!("!echo TOKEN={key}")).until(&format!("\nTOKEN={key}"));
    send_line(&mut screen, "what was that?").until("I see.");
    let message = user_messages(&story).pop().unwrap();
    assert!(message.contains("TOKEN=") && !message.contains(&key), "{message}");
    assert!(message.contains("what was that?") && message.contains("$ echo out"), "{message}");
    assert!(message.contains("out\\n") && message.contains("[status 3]"), "{message}");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_rewound_message_keeps_the_output_of_shell_commands() {
    let story =
        Story::new().file("k.txt", "kettle").script([says("One."), says("Two."), says("Three.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "!cat k.txt").until("kettle").until_prompt("> ");
    send_line(&mut screen, "why? @k.txt").until("One.").until_prompt("> ");
    screen.press(Key::Escape).pause().press(Key::Escape);
    screen.until("took back 1 message: why? @k.txt\n").until("is sent with it again");
    screen.until_prompt("> why? @k.txt").press(Key::Enter).until("Two.").until_prompt("> ");
    let message = user_messages(&story).pop().unwrap();
    assert!(message.contains("$ cat k.txt\\nkettle"), "{message}");
    // The title is what was typed.
    story.run(["session", "list"]).stdout_has("  why? @k.txt\n");
    // It went with that message, and goes with no later one.
    send_line(&mut screen, "and now").until("Three.").until_prompt("> ");
    screen.press(Key::Escape).pause().press(Key::Escape);
    screen.until("took back 1 message: and now").until_prompt("> and now");
    let text = screen.text_with_scrollback();
    assert_eq!(text.matches("is sent with it again").count(), 1, "{text}");
    screen.press(Key::Ctrl('u'));
    screen.exit_with_ctrl_d();
}

#[test]
fn a_command_of_the_user_has_the_terminal() {
    let story = Story::new().script([says("I see.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "!test -t 0 && test -t 2 && stty size").until("24 80\n>");
    send_line(&mut screen, "!printf '\\033[31mcol%s\\033[0m' our").until("colour\n>");
    assert!(memchr::memmem::find(&screen.raw(), b"\x1b[31mcol").is_some());
    // Neither input of a program nor a full-screen display is sent to the model.
    send_line(&mut screen, "!echo na''me?; read x; echo \"so $x\"").until("\nname?");
    send_line(&mut screen, "Ada").until("so Ada\n").until("not sent: it was typed to)");
    screen.until_prompt("> ");
    let draw = "printf '\\033[?1049h\\033[HDRA%s' WN; read x; printf '\\033[?1049l'";
    send_line(&mut screen, &format!("!{draw}")).until("DRAWN").press(Key::Enter);
    screen.until("not sent: it used the whole screen").until_prompt("> ");
    // The window's size and Ctrl-C are the program's.
    send_line(&mut screen, "!trap 'stty size' WINCH; echo go; while :; do sleep 0.1; done");
    screen.until("\ngo").resize(24, 70).until("24 70").press(Key::Ctrl('c'));
    screen.until("[ended by a signal]").until_prompt("> ");
    send_line(&mut screen, "what was that?").until("I see.");
    let message = user_messages(&story).pop().unwrap();
    for text in ["24 80\\n", "\\ncolour\\n", "[its output is not included: it was typed to]"] {
        assert!(message.contains(text), "{text}: {message}");
    }
    assert!(
        !message.contains("Ada") && !message.contains("DRAWN") && !message.contains("u001b"),
        "{message}"
    );
    screen.exit_with_ctrl_d();
}

#[test]
fn a_signal_ends_the_command_of_the_user_too() {
    let story = Story::new();
    let mark = format!("1001.{}", std::process::id());
    let mut screen = start_repl(&story);
    send_line(&mut screen, &format!("!sleep {mark}; true"));
    screen.wait_for_some(|| is_alive(&mark).then_some(()));
    screen.signal(Signal::TERM);
    assert_eq!(screen.code(), 143);
    screen.assert_restored();
    screen.wait_for_some(|| (!is_alive(&mark)).then_some(()));
}

#[test]
fn an_unknown_command_does_not_end_the_repl() {
    let story = Story::new();
    let mut screen = start_repl(&story);
    send_line(&mut screen, "!").until("no command is given").until_prompt("> ");
    send_line(&mut screen, "!echo $((40+2))").until("42").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn the_output_of_a_command_stays_with_its_session() {
    let story = Story::new().script([says("Hello.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "!echo $((40000+2123))").until("\n42123\n").until_prompt("> ");
    send_line(&mut screen, "/session other").until("Start it? [y/N]");
    send_line(&mut screen, "y").until("stays with the session before").until_prompt("> ");
    send_line(&mut screen, "hi").until("Hello.").until_prompt("> ");
    let messages = user_messages(&story);
    assert!(!messages.concat().contains("42123"), "{messages:?}");
    screen.exit_with_ctrl_d();
}

#[test]
fn type_ahead_is_not_sent_after_a_failed_turn() {
    let story = Story::new().script([
        calls("exec", json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" })),
        fails(400, "no"),
        says("Whole."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "wait").until("exec");
    send_line(&mut screen, "the next one");
    std::fs::write(story.dir().join("go"), "").unwrap();
    screen.until_prompt("> the next one");
    assert_eq!(story.requests().len(), 2);
    screen.press(Key::Enter).until("Whole.");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_message_that_failed_is_not_sent_twice() {
    let story =
        Story::new().script([fails(401, "no"), stalling_reply("Half\n\nx"), says("Whole.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "tell me").until("401").until_prompt("> ");
    let recall = |screen: &mut Screen<'_>| {
        screen.press(Key::Up).until_prompt("> tell me").press(Key::Enter);
    };
    recall(&mut screen);
    screen.until("its turn continues").until("Half").press(Key::Ctrl('c'));
    screen.until("(interrupted").until_prompt("> ");
    recall(&mut screen);
    screen.until("Whole.").until_prompt("> ");
    let messages = user_messages(&story);
    assert_eq!(
        messages.iter().filter(|message| message.contains("tell me")).count(),
        1,
        "{messages:?}"
    );
    screen.exit_with_ctrl_d();
}

#[test]
fn a_file_after_an_at_sign_is_attached() {
    let story = Story::new().file("a b.md", "buy milk").script([says("Milk.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "what is in @\"a b.md\"?")
        .until("attached: a b.md, 8 B\n")
        .until("Milk.");
    let message = user_messages(&story).pop().unwrap();
    assert!(message.contains("buy milk"), "{message}");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_key_of_the_config_is_redacted_in_the_history() {
    let key = "my-own-key-of-the-config";
    let story = Story::new().set("providers.custom.apiKey", json!(key));
    let mut screen = start_repl(&story);
    send_line(&mut screen, &format!("!echo is {key} right?"))
        .until(&format!("\nis {key} right?\n"));
    screen.exit_with_ctrl_d();
    let files = std::fs::read_dir(story.home().join(".nanobot/history")).unwrap();
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(text.contains("right?") && !text.contains(key), "{text}");
    }
}

#[test]
fn repl_commands() {
    let models = json!({ "data": [{ "id": "small" }, { "id": "large" }] });
    let story = Story::new().script([
        says("# One\n\ntwo"),
        says("Forked."),
        says("Again."),
        sends(Response::json(200, &models)),
        sends(Response::json(200, &models)),
        sends(Response::json(200, &models)),
    ]);
    let mut screen = wait_until_started(story.screen(36, 80).args(["repl"]));
    send_line(&mut screen, "/help").until("/exit").until("Ctrl-C: stop a turn.").until_prompt("> ");
    screen.until_snapshot("repl_help", Screen::conversation);
    send_line(&mut screen, "help").until("Ctrl-C: stop a turn.").until_prompt("> ");
    send_line(&mut screen, "/hlep").until("try: `/help`");
    send_line(&mut screen, "/stop").until("Esc or Ctrl-C stops a turn; a typed line waits");
    send_line(&mut screen, "/undo --list").until_prompt("> ");
    send_line(&mut screen, "first").until("two").until_prompt("> ");
    send_line(&mut screen, "/save answer.md").until("saved the last answer to");
    assert_eq!(std::fs::read_to_string(story.dir().join("answer.md")).unwrap(), "# One\n\ntwo\n");
    send_line(&mut screen, "/save answer.md").until("already exists");
    send_line(&mut screen, "/fork other")
        .until("copied 2 messages of")
        .until("switched to session `other`");
    send_line(&mut screen, "second").until("Forked.").until_prompt("> ");
    send_line(&mut screen, "/retry").until("Again.").until_prompt("> ");
    assert_eq!(user_messages(&story).iter().filter(|text| text.contains("second")).count(), 2);
    send_line(&mut screen, "/resume").until("no turn of this session was interrupted");
    send_line(&mut screen, "/session list").until("cli:direct").until("other");
    send_line(&mut screen, "/profile plan").until("switched to profile `plan`");
    send_line(&mut screen, "/profile nobody").until("there is no profile `nobody`");
    send_line(&mut screen, "/model other-model")
        .until("is not in the list of custom\nSwitch? [y/N]");
    send_line(&mut screen, "n").until("the model is unchanged");
    send_line(&mut screen, "/model large").until("switched to model `large` of custom");
    send_line(&mut screen, "/model").until("the provider has these").until("small").until("large");
    send_line(&mut screen, "/context").until("identity");
    send_line(&mut screen, "/tools").until("Read a text file");
    send_line(&mut screen, "/usage").until("DAY");
    send_line(&mut screen, "/new").until("New session started.");
    screen.exit_with_ctrl_d();
}

/// Only what was saved in the editor is sent. Other text is back at the prompt.
#[test]
fn a_message_that_is_not_saved_in_the_editor_is_not_sent() {
    let story = Story::new().script([says("One."), says("Two.")]);
    let editor = story.dir().join("editor");
    let screen = story.screen(24, 80).env("EDITOR", "sh editor");
    let mut screen = wait_until_started(screen.args(["repl"]));
    for (script, draft) in [
        ("true", "> deploy it"),
        ("exit 1", "> deploy it"),
        ("echo more >> \"$1\"; exit 1", "> deploy itmore"),
    ] {
        write(&editor, script.as_bytes());
        send_line(&mut screen, "/edit deploy it").until("did not save").until_prompt(draft);
        screen.press(Key::Ctrl('u')).press(Key::Ctrl('l')).until_gone("did not save");
    }
    assert!(story.requests().is_empty());
    write(&editor, b"true");
    send_line(&mut screen, "/edit").until("is empty").until_prompt("> ");
    for (script, answer) in [("touch \"$1\"", "One."), ("echo more >> \"$1\"", "Two.")] {
        write(&editor, script.as_bytes());
        send_line(&mut screen, "/edit tell me").until(answer).until_prompt("> ");
    }
    let messages = user_messages(&story);
    assert!(messages.last().unwrap().contains("tell memore"), "{messages:?}");
    screen.exit_with_ctrl_d();
}

#[test]
fn an_answer_is_saved_in_the_directory_of_the_turns() {
    let story = Story::new().file("work/my notes/a.md", "").script([says("Milk.")]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "-C", "work"]));
    send_line(&mut screen, "hi").until("Milk.").until_prompt("> ");
    screen.type_("/save my").press(Key::Tab).until("/save \"my notes/");
    send_line(&mut screen, "b.md").until("saved the last answer to");
    let folder = story.dir().join("work");
    assert_eq!(std::fs::read_to_string(folder.join("my notes/b.md")).unwrap(), "Milk.\n");
    send_line(&mut screen, "/session export all.md").until_prompt("> ");
    until_exists(&folder.join("all.md"));
    screen.exit_with_ctrl_d();
}

#[test]
fn log_lines_do_not_break_a_line_of_the_answer() {
    let delta = |text: &str| {
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
        format!("data: {chunk}\n\n")
    };
    let pieces = ["Let me ", "do step", " 1."].map(delta);
    let end = ["data: [DONE]\n\n".to_owned()];
    let answer = Response::events(pieces.into_iter().chain(end));
    let story = Story::new().script([sends(answer)]);
    let mut screen = story.screen(40, 100).args(["repl", "-v"]);
    screen.until("lists").until_prompt("> ");
    send_line(&mut screen, "go").until("reply complete").until_prompt("> ");
    let text = screen.text();
    assert!(text.lines().any(|row| row == "Let me do step 1."), "{text}");
    screen.exit_with_ctrl_d();
}

#[test]
fn words_after_a_command_that_takes_none_are_not_sent() {
    let story = Story::new();
    let mut screen = start_repl(&story);
    send_line(&mut screen, "/new x y").until("`/new` takes no arguments");
    send_line(&mut screen, "/quit now").until("`/quit` takes no arguments");
    send_line(&mut screen, "/model a b").until("`/model` takes one argument");
    send_line(&mut screen, "/usage --by foo").until("invalid value 'foo'");
    send_line(&mut screen, "/status --json").until("\"workspace\"");
    screen.exit_with_ctrl_d();
    assert!(!screen.text().contains("For more information"));
    assert!(story.requests().is_empty());
}

#[test]
fn the_last_exchange_is_there_in_the_next_process_and_gone_after_new() {
    let story = Story::new().script([says("One."), says("Two."), fails(401, "who are you?")]);
    story.run(["agent", "-m", "the first question"]).stdout("One.\n");
    let mut screen = start_repl(&story);
    assert!(screen.text().contains("last message: the first question\nlast answer: One.\n"));
    send_line(&mut screen, "/save one.md").until("saved the last answer");
    let saved = std::fs::read_to_string(story.dir().join("one.md")).unwrap();
    assert_eq!(saved, "One.\n");
    send_line(&mut screen, "/retry").until("Two.").until_prompt("> ");
    assert!(user_messages(&story)[1].contains("the first question"));
    send_line(&mut screen, "/new").until("New session started.");
    send_line(&mut screen, "/retry").until("there is no message to retry");
    send_line(&mut screen, "fails").until("(/retry asks again)");
    screen.exit_with_ctrl_d();
    let mut screen = start_repl(&story);
    assert!(screen.text().contains("unfinished (/retry continues it): fails"));
    assert!(!screen.text().contains("last answer"), "{}", screen.text());
    screen.exit_with_ctrl_d();
}

#[test]
fn a_turn_of_another_process_is_not_unfinished() {
    let (_sender, stream) = Response::streaming();
    let story = Story::new().script([sends(stream)]);
    let mut other = story.start(&mut story.command(["agent", "-m", "a long question"]));
    story.server().wait_for_requests(1);
    let mut screen = start_repl(&story);
    let text = screen.text();
    assert!(text.contains("in progress in another run: a long question"), "{text}");
    assert!(!text.contains("/retry"), "{text}");
    screen.exit_with_ctrl_d();
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_new_conversation_is_started_by_the_first_turn_that_opens_the_session() {
    let replies = ["One.", "Two.", "Three."].map(says);
    let story = Story::new().file("blob.bin", b"\0\x01").script(replies);
    story.run(["agent", "-m", "the first question"]).stdout("One.\n");
    let mut screen = wait_until_started(story.screen(24, 160).args(["repl", "--new"]));
    send_line(&mut screen, "look at @blob.bin").until("is binary").until_prompt("> ");
    send_line(&mut screen, "the second question").until("Two.").until_prompt("> ");
    assert_eq!(user_messages(&story).len(), 1);
    screen.exit_with_ctrl_d();
    // The conversation of another session is continued.
    let arguments = ["repl", "--new", "-s", "other"];
    let mut screen = wait_until_started(story.screen(24, 80).args(arguments));
    send_line(&mut screen, "/session cli:direct")
        .until("last message: the second question")
        .until_prompt("> ");
    send_line(&mut screen, "the third question").until("Three.").until_prompt("> ");
    assert_eq!(user_messages(&story).len(), 2);
    screen.exit_with_ctrl_d();
    // A copy, and what a rewind keeps, are the conversation that goes on.
    story.server().script([says("Four."), says("Five.")]);
    let mut screen = wait_until_started(story.screen(24, 160).args(["repl", "--new"]));
    send_line(&mut screen, "/fork copy").until("switched to session `copy`").until_prompt("> ");
    send_line(&mut screen, "the fourth question").until("Four.").until_prompt("> ");
    assert_eq!(user_messages(&story).len(), 3);
    screen.exit_with_ctrl_d();
    let mut screen = wait_until_started(story.screen(24, 160).args(["repl", "--new"]));
    send_line(&mut screen, "/rewind").until("took back 1 message");
    screen.until_prompt("> the third question").press(Key::Enter).until("Five.").until_prompt("> ");
    assert_eq!(user_messages(&story).len(), 2);
    screen.exit_with_ctrl_d();
}

#[test]
fn a_failed_compaction_does_not_suggest_to_retry_a_message() {
    let story = Story::new().script([says("One."), fails(401, "who are you?")]);
    story.run(["agent", "-m", "a question"]).stdout("One.\n");
    let mut screen = start_repl(&story);
    send_line(&mut screen, "/compact").until("who are you?").until_prompt("> ");
    screen.exit_with_ctrl_d();
    assert!(!screen.text().contains("/retry"), "{}", screen.text());
}

#[test]
fn tab_lists_the_models_of_the_server() {
    let models = json!({ "data": [{ "id": "small" }, { "id": "large" }] });
    let story = Story::new().script([sends(Response::json(200, &models))]);
    let mut screen = start_repl(&story);
    screen.type_("/model ").press(Key::Tab);
    screen.until("small").until("large");
    assert!(!screen.text().contains("claude"), "{}", screen.text());
    screen.press(Key::Ctrl('u'));
    screen.exit_with_ctrl_d();
}

#[test]
fn a_mentioned_file_that_does_not_exist_is_reported() {
    let story = Story::new().file("a.txt", "a").script([says("Seen.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "compare @a.txt and @b.txt, @nobody")
        .until("attached: a.txt, 1 B\n")
        .until("not attached: b.txt does not exist\n")
        .until("Seen.");
    screen.exit_with_ctrl_d();
    assert!(!screen.text().contains("attached: nobody"));
}

#[test]
fn a_mentioned_directory_is_sent_without_the_files_that_a_rule_denies_to_read() {
    let story = Story::new()
        .set("tools.deny", json!(["read_file(*.key)"]))
        .file("sub/my.key", "SECRET")
        .file("sub/a.txt", "seen")
        .script([says("Read.")]);
    let mut screen = wait_until_started(story.screen(24, 200).args(["repl"]));
    send_line(&mut screen, "see @sub").until("1 denied by a rule").until("Read.");
    screen.exit_with_ctrl_d();
    let sent = story.last_request().raw;
    assert!(sent.contains("seen") && !sent.contains("my.key"), "{sent}");
}

#[test]
fn a_directory_is_trusted_from_the_conversation() {
    let story = Story::new();
    let project = story.home().join("project");
    write(&project.join("AGENTS.md"), b"Be brief.");
    write(&project.join("inner/AGENTS.md"), b"Be polite.");
    let arguments = ["repl", "-C", project.to_str().unwrap()];
    let mut screen = wait_until_started(story.screen(24, 100).args(arguments));
    assert!(screen.text().contains("(its instructions are not read; /trust)"));
    // A path is relative to the directory of the conversation.
    send_line(&mut screen, "/trust inner")
        .until("project/inner` is now trusted")
        .until_prompt("> ");
    send_line(&mut screen, "/trust --revoke inner")
        .until("is no longer trusted")
        .until_prompt("> ");
    send_line(&mut screen, "/trust").until("project` is now trusted");
    screen.exit_with_ctrl_d();
    let mut screen = wait_until_started(story.screen(24, 100).args(arguments));
    assert!(screen.text().contains("(trusted)"));
    screen.exit_with_ctrl_d();
}

#[test]
fn instructions_that_are_not_read_are_said_once() {
    let story = Story::new();
    let project = story.home().join("project");
    let agents = project.join("AGENTS.md");
    write(&agents, b"Be brief.");
    story.run(["trust", project.to_str().unwrap()]).text();
    write(&agents, b"Be long.");
    story.server().script([says("One."), says("Two."), says("Three."), says("Four.")]);
    let arguments = ["repl", "-C", project.to_str().unwrap()];
    let mut screen = wait_until_started(story.screen(24, 100).args(arguments));
    assert!(
        screen.text().contains("(AGENTS.md changed and not read; /trust)"),
        "{}",
        screen.text()
    );
    send_line(&mut screen, "one").until("One.").until_prompt("> ");
    assert!(!screen.text().contains("read it, then run"), "{}", screen.text());
    send_line(&mut screen, "/trust").until("is now trusted").until_prompt("> ");
    send_line(&mut screen, "two").until("Two.").until_prompt("> ");
    assert!(story.requests()[1].body.to_string().contains("Be long."));
    // A later change is said before the next turn, and not again.
    write(&agents, b"Be loud.");
    send_line(&mut screen, "three").until("read it, then run").until("Three.").until_prompt("> ");
    send_line(&mut screen, "/clear").until_prompt("> ");
    send_line(&mut screen, "four").until("Four.").until_prompt("> ");
    assert_eq!(screen.text_with_scrollback().matches("read it, then run").count(), 1);
    screen.exit_with_ctrl_d();
}

#[test]
fn the_help_fits_a_window() {
    let story = Story::new();
    let mut screen = start_repl(&story);
    send_line(&mut screen, "/help").until("or /exit").until_prompt("> ");
    let text = screen.text();
    assert!(text.starts_with("/new ") && text.contains("\nMore: /fork /last "), "{text}");
    assert!(text.contains(" /rewind ") && text.contains(" /paste"), "{text}");
    screen.exit_with_ctrl_d();
}

#[test]
fn undo_restores_the_files() {
    let story = Story::new().script([
        calls("write_file", json!({ "path": "a.md", "content": "new" })),
        says("Written."),
    ]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
    send_line(&mut screen, "write").until("Written.").until_prompt("> ");
    assert!(story.dir().join("a.md").exists());
    // The result is no message about an error.
    send_line(&mut screen, "/undo").until("> /undo\nturn 1 of ").until("1 file\nremoved a.md\n");
    assert!(!story.dir().join("a.md").exists());
    screen.exit_with_ctrl_d();
}

#[test]
fn the_conversation_tells_what_it_has_cost() {
    let price = json!({ "scripted": { "price": { "input": 0, "output": 100_000 } } });
    let story = Story::new().set("models", price);
    story.server().script([says("One."), says("Two."), says("Three.")]);
    story.run(["agent", "-m", "1"]).stdout("One.\n");
    story.run(["agent", "-s", "other", "-m", "2"]).stdout("Two.\n");
    let mut screen = wait_until_started(story.screen(24, 100).args(["repl"]));
    send_line(&mut screen, "/cost").until("this conversation: $").until("1 request in 1 turn, ");
    send_line(&mut screen, "/new").until("New session started.").until_prompt("> ");
    send_line(&mut screen, "/cost")
        .until("$0.00, 0 requests in 0 turns, 0 tokens in (0 cached), 0 out");
    send_line(&mut screen, "3").until("Three.").until_prompt("> ");
    // That of this conversation comes before the table of all days.
    send_line(&mut screen, "/usage").until("TOTAL").until_prompt("> ");
    let text = screen.text();
    let (before, table) = text.split_once("DAY ").unwrap();
    assert!(before.ends_with("out\n") && before.contains("1 request in 1 turn, "), "{text}");
    assert!(table.contains('3'), "{text}");
    screen.exit_with_ctrl_d();
}

#[test]
fn the_reasoning_effort_is_set_in_the_conversation() {
    let story = Story::new().script([says("One."), says("Two.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "/effort").until("the model's default").until("minimal, low, medium");
    screen.until_prompt("> ").type_("/effort hi").press(Key::Tab).until("> /effort high");
    screen.press(Key::Enter).until("switched to reasoning effort `high`").until_prompt("> ");
    send_line(&mut screen, "1").until("One.").until_prompt("> ");
    assert_eq!(story.requests()[0].body["reasoning_effort"], "high");
    send_line(&mut screen, "/effort").until("> /effort\nhigh\n").until_prompt("> ");
    send_line(&mut screen, "/model gemma-3").until("switched to model").until_prompt("> ");
    send_line(&mut screen, "/effort low")
        .until("gemma-3 takes no reasoning effort")
        .until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn the_file_changes_of_the_conversation_are_shown() {
    let write_file = |text: &str| calls("write_file", json!({ "path": "a.md", "content": text }));
    let story = Story::new().file("a.md", "one\n").file("b.md", "x\n").script([
        write_file("one\ntwo\n"),
        says("First."),
        write_file("one\ntwo\nthree\n"),
        calls("write_file", json!({ "path": "new.md", "content": "new\n" })),
        says("Second."),
        says("Third."),
    ]);
    let mut screen = wait_until_started(story.screen(40, 80).args(["repl", "--write"]));
    send_line(&mut screen, "/diff").until("has changed no files").until_prompt("> ");
    send_line(&mut screen, "a").until("First.").until_prompt("> ");
    send_line(&mut screen, "b").until("Second.").until_prompt("> ");
    // Later turns without changes do not count.
    send_line(&mut screen, "c").until("Third.").until_prompt("> ");
    send_line(&mut screen, "/diff")
        .until("diff --git a/a.md b/a.md\n--- a/a.md\n+++ b/a.md\n@@ -1,2 +1,3 @@\n one\n two\n+three\n")
        .until("new file mode 100644\n--- /dev/null\n+++ b/new.md\n@@ -0,0 +1 @@\n+new\n")
        .until_prompt("> ");
    send_line(&mut screen, "/diff all")
        .until("@@ -1 +1,3 @@\n one\n+two\n+three\n")
        .until_prompt("> ");
    assert!(screen.styled().contains("«green:+three»"), "{}", screen.styled());
    send_line(&mut screen, "/diff some").until("`/diff` has no subcommand `some`");
    // A change that was undone is not shown.
    send_line(&mut screen, "/undo").until("restored a.md").until_prompt("> ");
    send_line(&mut screen, "/diff all").until("@@ -1 +1,2 @@\n one\n+two\n").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

/// The diff has all that `undo` would take back, and git takes it back as well.
#[test]
fn modes_links_and_empty_files_are_in_the_diff() {
    if !require("git") {
        return;
    }
    let commands = [
        "chmod +x n.txt; mv m.txt m3.txt; : > empty; ln -s n.txt lnk",
        "printf '\\0' > bin; chmod 600 m3.txt; chmod 700 sub",
    ];
    let mut story = Story::new().file("n.txt", "n\n").file("m.txt", "m\n").file("sub/x", "x\n");
    for command in commands {
        story = story.script([calls("exec", json!({ "command": command })), says("Done.")]);
    }
    let before = snapshot_tree(&story.dir());
    let mut screen = wait_until_started(story.screen(50, 120).args(["repl", "--write"]));
    send_line(&mut screen, "a").until("Done.").until_prompt("> ");
    send_line(&mut screen, "/diff").until("new file mode 120000").until_prompt("> ");
    let text = screen.text_with_scrollback();
    let start = text.find("diff --git").unwrap();
    let patch = text[start..].trim_end_matches("> ").to_owned();
    assert!(patch.contains("old mode 100644\nnew mode 100755\n"), "{patch}");
    send_line(&mut screen, "b").until("Done.").until_prompt("> ");
    send_line(&mut screen, "/diff")
        .until("Binary files /dev/null and b/bin differ\n")
        .until("m3.txt: a file with mode 0644, now a file with mode 0600\n")
        .until("sub: a directory with mode 0755, now a directory with mode 0700\n")
        .until_prompt("> ");
    send_line(&mut screen, "/undo").until("removed bin").until_prompt("> ");
    screen.exit_with_ctrl_d();
    write(&story.home().join("patch"), patch.as_bytes());
    git(&story, "git apply -R \"$HOME/patch\"");
    assert_eq!(snapshot_tree(&story.dir()), before);
}

/// Text of others does not become words of the user, who alone names hosts.
#[test]
fn a_message_with_text_of_others_is_not_sent_again_as_the_users() {
    for attach in [false, true] {
        let story = Story::new().script([says("One.")]);
        let key = ["agent", "-s", "piped", "-m", "go"];
        if attach {
            let story = story.file("a.txt", "see evil.example\n");
            story.run(key.iter().chain(&["-a", "a.txt"])).stdout("One.\n").error_text();
            check_not_sent_again(&story);
        } else {
            let story = story.stdin("see evil.example\n");
            story.run(key).stdout("One.\n").error_text();
            check_not_sent_again(&story);
        }
    }
}

fn check_not_sent_again(story: &Story) {
    let mut screen = story.screen(24, 80).args(["repl", "-s", "piped"]);
    screen.until_prompt("> ");
    for command in ["/retry", "/rewind"] {
        screen.type_(command).press(Key::Enter).until(command).until("text that you did not type");
        screen.until_prompt("> ").press(Key::Ctrl('l')).until_gone("did not type");
    }
    screen.exit_with_ctrl_d();
    assert_eq!(story.requests().len(), 1);
}

#[test]
fn the_last_message_is_edited_again() {
    let story = Story::new().script([
        says("One."),
        calls("write_file", json!({ "path": "a.md", "content": "new" })),
        says("Written."),
        says("Better."),
        says("First."),
    ]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
    screen.press(Key::Escape).pause().press(Key::Escape);
    screen.until("there is no message to edit").until_prompt("> ");
    send_line(&mut screen, "first").until("One.").until_prompt("> ");
    send_line(&mut screen, "wriet it").until("Written.").until_prompt("> ");
    // After typed text the key is the editor's.
    screen.type_to("x", "> x").press(Key::Escape).pause().press(Key::Escape).pause();
    screen.press(Key::Backspace).until_prompt("> ");
    screen.press(Key::Escape).pause().press(Key::Escape);
    screen.until("Its turn changed 1 file\nUndo that too? [y/N/cancel]").pause();
    send_line(&mut screen, "y").until("removed a.md").until("took back 1 message: wriet it");
    screen.until("left: 1 message;").until_prompt("> wriet it");
    assert!(!story.dir().join("a.md").exists());
    let text = screen.text_with_scrollback();
    let (_, old_key) = text.rsplit_once("the whole conversation is session `").unwrap();
    let (old_key, _) = old_key.split_once('`').unwrap();
    let old_key = old_key.to_owned();
    send_line(&mut screen, " better").until("Better.").until_prompt("> ");
    let messages = user_messages(&story);
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(
        messages[1].contains("wriet it better") && !messages[1].contains("undone"),
        "{messages:?}"
    );
    // Back to the start.
    send_line(&mut screen, "/rewind 0").until("`0` is not a number from 1").until_prompt("> ");
    send_line(&mut screen, "/rewind 3").until("has 2 messages").until("try: `/rewind 2`");
    screen.until_prompt("> ");
    send_line(&mut screen, "/rewind 2")
        .until("took back 2 messages from: first")
        .until("left: 0 messages;");
    screen.until_prompt("> first").press(Key::Enter).until("First.").until_prompt("> ");
    assert_eq!(user_messages(&story).len(), 1);
    // What was left behind is out of the way, and can be found.
    let listed = story.run(["session", "list"]).text();
    assert!(!listed.contains("rewind") && !listed.contains("fork of"), "{listed}");
    let listed = story.run(["session", "list", "--all"]).text();
    assert_eq!(listed.matches("before a rewind of cli:direct: first").count(), 2, "{listed}");
    // What `/new` has ended is not gone back to.
    send_line(&mut screen, "/new").until("New session").until_prompt("> ");
    send_line(&mut screen, "/rewind").until("there is no message to edit").until_prompt("> ");
    send_line(&mut screen, &format!("/session {old_key}")).until("6 messages");
    screen.exit_with_ctrl_d();
}

/// Ctrl-C, Ctrl-D and Escape are no answers.
#[test]
fn a_question_without_an_answer_changes_nothing() {
    let story = Story::new().script([
        calls("write_file", json!({ "path": "a.md", "content": "new" })),
        says("Written."),
    ]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
    send_line(&mut screen, "write it").until("Written.").until_prompt("> ");
    for key in [Key::Ctrl('c'), Key::Ctrl('d'), Key::Escape] {
        send_line(&mut screen, "/rewind").until("Undo that too? [y/N/cancel]").pause();
        screen.press(key).until("cancelled; the conversation is unchanged").until_prompt("> ");
        screen.press(Key::Ctrl('l')).until_gone("cancelled");
        send_line(&mut screen, "/session none").until("Start it? [y/N]").pause();
        screen.press(key).until("the session is unchanged").until_prompt("> ");
        screen.press(Key::Ctrl('l')).until_gone("unchanged");
        send_line(&mut screen, "/profile full").until("Switch? [y/N]").pause();
        screen.press(key).until("the profile is unchanged").until_prompt("> ");
        screen.press(Key::Ctrl('l')).until_gone("unchanged");
        send_line(&mut screen, "/sessions").until_prompt("session:").pause();
        screen.press(key).until("the session is unchanged").until_prompt("> ");
        screen.press(Key::Ctrl('l')).until_gone("unchanged");
    }
    assert!(story.dir().join("a.md").exists());
    let listed = story.run(["session", "list", "--all"]).text();
    assert!(!listed.contains("rewind") && !listed.contains("none"), "{listed}");
    // No is an answer: the conversation goes back, and the file stays.
    send_line(&mut screen, "/rewind").until("Undo that too? [y/N/cancel]").pause();
    screen.type_("n").until("took back 1 message").until_prompt("> write it");
    assert!(story.dir().join("a.md").exists());
    screen.press(Key::Ctrl('u'));
    screen.exit_with_ctrl_d();
}

/// A file that was changed since is not overwritten, and the conversation is not rewound without it.
#[test]
fn a_rewind_that_cannot_undo_the_files_says_what_stays() {
    let story = Story::new().script([
        calls("write_file", json!({ "path": "a.md", "content": "new" })),
        says("Written."),
    ]);
    let mut screen = wait_until_started(story.screen(24, 80).args(["repl", "--write"]));
    send_line(&mut screen, "write it").until("Written.").until_prompt("> ");
    write(&story.dir().join("a.md"), b"mine");
    send_line(&mut screen, "/rewind").until("Undo that too? [y/N/cancel]").pause();
    screen.type_("y").until("the conversation is not rewound").until("`/undo --force 1`");
    screen.until_prompt("> ");
    assert_eq!(std::fs::read_to_string(story.dir().join("a.md")).unwrap(), "mine");
    screen.exit_with_ctrl_d();
}

#[test]
fn changes_of_another_session_are_undone_only_by_number() {
    let story = Story::new().script([
        calls("write_file", json!({ "path": "a.md", "content": "new" })),
        says("Written."),
    ]);
    story.run(["agent", "-s", "other", "--write", "-m", "write"]).stdout("Written.\n");
    let mut screen = start_repl(&story);
    send_line(&mut screen, "/undo").until("try: `/undo 1`").until_prompt("> ");
    assert!(screen.text_with_scrollback().contains("`other`"), "{}", screen.text_with_scrollback());
    assert!(story.dir().join("a.md").exists());
    send_line(&mut screen, "/undo 1").until("removed");
    assert!(!story.dir().join("a.md").exists());
    screen.exit_with_ctrl_d();
}

/// The last turn of the session, whatever others have done in the directory since.
#[test]
fn undo_and_redo_are_those_of_the_session() {
    let write_file = |name: &str| calls("write_file", json!({ "path": name, "content": "new" }));
    let story = Story::new().script([
        write_file("a.md"),
        says("Written."),
        write_file("b.md"),
        says("Written."),
    ]);
    for session in ["one", "two"] {
        story.run(["agent", "-s", session, "--write", "-m", "write"]).stdout("Written.\n");
    }
    let mut screen = wait_until_started(story.screen(24, 160).args(["repl", "-s", "one"]));
    send_line(&mut screen, "/undo --redo").until("there is nothing to redo").until_prompt("> ");
    send_line(&mut screen, "/undo").until("removed a.md").until_prompt("> ");
    send_line(&mut screen, "/undo").until("in `two`").until("try: `/undo 2`").until_prompt("> ");
    assert!(story.dir().join("b.md").exists());
    send_line(&mut screen, "/session two").until("switched").until_prompt("> ");
    // A turn that is undone is offered for a redo only.
    send_line(&mut screen, "/undo --redo").until("in `one`").until("try: `/undo --redo 1`");
    screen.until_prompt("> ");
    send_line(&mut screen, "/session one").until("switched").until_prompt("> ");
    send_line(&mut screen, "/undo --redo").until("restored a.md").until_prompt("> ");
    assert!(story.dir().join("a.md").exists());
    screen.exit_with_ctrl_d();
}

#[test]
fn the_repl_reuses_its_connection() {
    let story = Story::new().script([says("First."), says("Second.")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "a").until("First.").until_prompt("> ");
    send_line(&mut screen, "b").until("Second.");
    screen.exit_with_ctrl_d();
    let requests = story.requests();
    assert_eq!(requests[0].connection, requests[1].connection);
}

#[test]
fn without_a_key_the_repl_gives_a_hint_and_continues() {
    let story = Story::bare().config_text("{}");
    let mut screen = start_repl(&story);
    send_line(&mut screen, "hi").until("try:").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_first_conversation_begins_with_onboarding() {
    let story = Story::bare().script([
        sends(Response::json(200, &json!({ "data": [{ "id": "small" }] }))),
        says("It works."),
        says("Hello, Ada."),
    ]);
    let mut screen = story.screen(60, 80).args([] as [&str; 0]);
    screen.until("or name [openrouter]:");
    send_line(&mut screen, "custom").until("Address [http://localhost:8000/v1]:");
    let address = format!("http://127.0.0.1:{}/v1", story.server().port);
    send_line(&mut screen, &address).until("API key, not shown [none]:");
    send_line(&mut screen, "").until("or name [small]:");
    send_line(&mut screen, "").until("lists the commands").until_prompt("> ");
    send_line(&mut screen, "I am Ada").until("Hello, Ada.");
    screen.exit_with_ctrl_d();
    // Leaving at a question writes nothing.
    let story = Story::bare();
    let mut screen = story.screen(60, 80).args(["repl"]);
    screen.until("or name [openrouter]:").press(Key::Ctrl('c'));
    assert_eq!(screen.code(), 130);
    assert!(!story.home().join(".nanobot/config.json").exists());
}

#[test]
fn an_approval_prompt_shows_everything_it_approves() {
    // Long text is cut and can be shown in full; key-like text hides nothing; blanks push nothing off the screen; and every
    // argument is shown.
    let lines: Vec<String> = (1..=60).map(|number| format!("echo {number}")).collect();
    let keyish = "echo '-----BEGIN PRIVATE KEY-----aaaaaaaaaaaaaaaaaaaa' ; touch hidden ; echo '-----END PRIVATE KEY-----'";
    let padded = format!("touch a #{}? exec(\"ls\")", " ".repeat(3000));
    let story = Story::new().set("tools.permissions", json!({ "exec": "ask" })).script([
        calls("exec", json!({ "command": lines.join("\n"), "timeout": 30 })),
        calls("exec", json!({ "command": keyish })),
        calls("exec", json!({ "command": padded, "working_dir": "sub" })),
        says("None of it."),
    ]);
    let mut screen = wait_until_started(story.screen(30, 80).args(["repl"]));
    send_line(&mut screen, "go").until("v shows all").until_prompt("  allow?");
    send_line(&mut screen, "v").until("$ echo 60").until("timeout: 30").until_prompt("  allow?");
    send_line(&mut screen, "n").until("touch hidden").until_prompt("  allow?");
    send_line(&mut screen, "n")
        .until("⟨3000 blanks⟩")
        .until("working_dir: sub")
        .until_prompt("  allow?");
    send_line(&mut screen, "n").until("None of it.");
    screen.exit_with_ctrl_d();
}

#[test]
fn one_answer_approves_one_call() {
    let write = |name: &str| (name.to_owned(), json!({ "path": name, "content": "x" }));
    let (one, two) = (write("one"), write("two"));
    let story = Story::new().script([
        crate::server::calls_all([("write_file", one.1), ("write_file", two.1)]),
        says("Over."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "go").until("create one?").until_prompt("  allow?");
    // In one burst: the input after the first line is not an answer.
    screen.type_("n\ry\ry\r").until("create two?").until_prompt("  allow?");
    send_line(&mut screen, "n").until("Over.");
    for name in ["one", "two"] {
        assert!(!story.dir().join(name).exists(), "{name}");
    }
}

#[test]
fn a_table_streams_in_the_repl() {
    let table =
        "| name | price |\n|---|---:|\n| tea | 2.50 |\n| 日本茶 | 12.00 |\n\nThat is **all**.";
    let story = Story::new().script([says(table), stalling_reply("Half of it\n\nx")]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "prices?").until("That is all.").until_prompt("> ");
    screen.until_snapshot("repl_table", Screen::conversation);
    send_line(&mut screen, "more").until("Half of it").press(Key::Ctrl('c'));
    screen.until("(interrupted").until_prompt("> ");
    assert!(screen.text().contains("Half of it"), "{}", screen.text());
    screen.exit_with_ctrl_d();
}

#[test]
fn files_and_skills_are_commands() {
    let skill = "---\nname: brew\ndescription: makes tea\n---\nBoil water.\n";
    let story = Story::new().workspace_file("skills/brew/SKILL.md", skill).script([
        says("Fine."),
        says("Tea."),
        says("Fresh."),
        says("Bye."),
    ]);
    write(
        &story.home().join(".nanobot/commands/review.md"),
        b"---\ndescription: a review\n---\nReview $ARGUMENTS for mistakes.\n",
    );
    write(&story.home().join(".nanobot/commands/status.md"), b"Report the status.");
    let mut screen = start_repl(&story);
    screen.until("`~/.nanobot/commands/status.md` is not used, since `/status` is built");
    screen.type_("/rev").press(Key::Tab).until("> /review");
    screen.type_("a.rs").press(Key::Enter).until("Fine.");
    screen.until_prompt("> ");
    assert!(user_messages(&story)[0].contains("Review a.rs for mistakes."));
    send_line(&mut screen, "/copy").until("sent the last answer");
    let raw = String::from_utf8_lossy(&screen.raw()).into_owned();
    assert!(raw.contains("\u{1b}]52;c;RmluZS4=\u{7}"), "{raw}");
    send_line(&mut screen, "/brew two cups").until("Tea.");
    screen.until_prompt("> ");
    assert!(user_messages(&story)[1].contains("Use the skill `brew`. two cups"));
    send_line(&mut screen, "/clear").until("New session started.");
    send_line(&mut screen, "hi").until("Fresh.").until_prompt("> ");
    assert_eq!(user_messages(&story).len(), 1);
    send_line(&mut screen, "/status").until("workspace");
    send_line(&mut screen, "/session other").until("There is no session `other`\nStart it? [y/N]");
    send_line(&mut screen, "").until("the session is unchanged");
    send_line(&mut screen, "/session another").until("no session `another`\nStart it? [y/N]");
    send_line(&mut screen, "y").until("switched to session `another`");
    send_line(&mut screen, "/revue").until("there is no command").until("try: `/help`");
    send_line(&mut screen, "last").until("Bye.");
    screen.exit_with_ctrl_d();
}

#[test]
fn session_grants_do_not_apply_to_the_next_session() {
    let write = |name: &str| calls("write_file", json!({ "path": name, "content": "x" }));
    let story = Story::new().script([
        write("one"),
        says("First."),
        write("two"),
        says("Second."),
        write("three"),
        says("Third."),
    ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "a").until_prompt("  allow?");
    send_line(&mut screen, "s").until("First.").until_prompt("> ");
    send_line(&mut screen, "/fork other").until("switched to session `other`").until_prompt("> ");
    send_line(&mut screen, "b").until("create two?").until_prompt("  allow?");
    send_line(&mut screen, "s").until("Second.").until_prompt("> ");
    send_line(&mut screen, "/new").until("New session").until_prompt("> ");
    send_line(&mut screen, "c").until("create three?").until_prompt("  allow?");
    send_line(&mut screen, "n").until("Third.").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

/// A consolidation in this process comes after an answer, and the conversation goes on.
#[test]
fn a_consolidation_does_not_end_the_output() {
    let story = Story::new()
        .workspace_file("sessions/cli_direct.jsonl", session_text("cli:direct", 120))
        .env("NANOBOT_MEMORY__CONSOLIDATE", "inline")
        .script([
            says("Here."),
            calls_save_memory("[2026-01-01 10:00] Words.", "m"),
            says("Still here."),
        ]);
    let mut screen = start_repl(&story);
    send_line(&mut screen, "x").until("Here.").until_prompt("> ");
    send_line(&mut screen, "y").until("Still here.");
    screen.exit_with_ctrl_d();
    assert_eq!(story.requests().len(), 3);
}
