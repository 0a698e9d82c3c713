//! The `sessions` tool: who has it, what it finds, and the origin that it brings along.

use crate::provenance::origin_of;
use crate::screen::Key;
use crate::server::{calls, says};
use crate::story::Story;
use serde_json::{Value, json};

/// Two conversations: one of the user's words, and one about an attached file.
fn two_conversations() -> Story {
    let story = Story::new().script([says("Noted: a cat."), says("It says the same.")]);
    story.run(["agent", "-s", "pets", "-m", "My cat is Mia."]).stdout("Noted: a cat.\n");
    let story = story.file("log.txt", "the cat sat\n");
    story
        .run(["agent", "-s", "logs", "-m", "What does it say?", "-a", "log.txt"])
        .stdout("It says the same.\n");
    story
}

/// Makes the calls in a run that has the tool. Returns their results.
fn results(story: &Story, list: &[Value]) -> Vec<String> {
    let script = list.iter().map(|it| calls("sessions", it.clone()));
    story.server().script(script.chain([says("done")]));
    let before = story.requests().len();
    story.run(["agent", "-s", "new", "--new", "-m", "go", "--allow", "sessions"]).stdout("done\n");
    let requests = story.requests();
    requests[before + 1..].iter().map(crate::server::Request::last_content).collect()
}

#[test]
fn other_conversations_are_listed_searched_and_read() {
    let story = two_conversations();
    let outputs = results(
        &story,
        &[
            json!({ "action": "list" }),
            json!({ "action": "search", "text": "THE CAT" }),
            json!({ "action": "search", "text": "dog" }),
            json!({ "action": "read", "key": "pets" }),
            json!({ "action": "read", "key": "pets", "from": 2, "count": 1 }),
            json!({ "action": "read", "key": "no such" }),
            json!({ "action": "search" }),
        ],
    );
    assert!(
        outputs[0].starts_with(
            "[origin: project]\n2 other sessions, newest first:\n- logs (2 messages, "
        ),
        "{}",
        outputs[0]
    );
    assert!(
        outputs[0].contains("\n- pets (2 messages, ") && outputs[0].ends_with("): My cat is Mia."),
        "{}",
        outputs[0]
    );
    assert!(
        outputs[1].starts_with("[origin: project]\nlogs #1 user, ")
            && outputs[1].contains(": the cat sat\n"),
        "{}",
        outputs[1]
    );
    assert_eq!(outputs[2], "[origin: user]\nNo match.");
    assert!(
        outputs[3].starts_with("[origin: user]\n#1 user, ")
            && outputs[3].contains(":\nMy cat is Mia.\n#2 assistant, "),
        "{}",
        outputs[3]
    );
    assert!(
        outputs[4].starts_with("[origin: user]\n#2 assistant, ")
            && outputs[4].ends_with(":\nNoted: a cat.\n"),
        "{}",
        outputs[4]
    );
    assert!(outputs[5].contains("no session `no such`"), "{}", outputs[5]);
    assert!(outputs[6].contains("`text` is required for search"), "{}", outputs[6]);
}

#[test]
fn a_conversation_takes_on_the_origin_of_one_that_it_reads() {
    let story = two_conversations();
    drop(results(&story, &[json!({ "action": "read", "key": "pets" })]));
    let origin = origin_of(&story, "new");
    assert!(origin.starts_with("user"), "{origin}");
    drop(results(&story, &[json!({ "action": "read", "key": "logs" })]));
    let origin = origin_of(&story, "new");
    assert!(origin.starts_with("project"), "{origin}");
    // A session of the Python program has recorded no origin: anything may be in it.
    let line = json!({ "role": "user", "content": "hello", "timestamp": "2026-01-01T00:00:00" });
    let head = json!({ "_type": "metadata", "created_at": "2026-01-01T00:00:00", "metadata": {}, "key": "old" });
    std::fs::write(
        story.workspace().join("sessions").join("old.jsonl"),
        format!("{head}\n{line}\n"),
    )
    .unwrap();
    let job = json!({ "action": "add", "message": "x", "every_seconds": 3600 });
    story.server().script([
        calls("sessions", json!({ "action": "read", "key": "old" })),
        calls("cron", job),
        says("done"),
    ]);
    story
        .run(["agent", "-s", "new", "--new", "-m", "go", "--allow", "sessions"])
        .stderr_has("--allow cron")
        .stdout("done\n");
    let origin = origin_of(&story, "new");
    assert!(origin.starts_with("external"), "{origin}");
}

#[test]
fn only_the_user_hands_out_other_conversations() {
    let story = two_conversations();
    story.server().script([says("-"), says("-")]);
    let has_tool = |story: &Story| {
        let request = story.last_request();
        request.body["tools"].to_string().contains("\"sessions\"")
    };
    story.run(["agent", "-m", "x"]).stdout("-\n");
    assert!(!has_tool(&story));
    // A pattern does not mean it.
    story.run(["agent", "-m", "x", "--allow", "*"]).stdout("-\n");
    assert!(!has_tool(&story));
    // The files stay closed to all other tools.
    let call = calls(
        "read_file",
        json!({ "path": story.workspace().join("sessions").join("pets.jsonl") }),
    );
    story.server().script([call, says("-")]);
    story
        .run(["agent", "-m", "x", "--allow", "sessions"])
        .stderr_has("is internal to nanobot")
        .stdout("-\n");
    // A list that names it allows its calls too.
    let read = || calls("sessions", json!({ "action": "read", "key": "pets" }));
    story.server().script([read(), says("Mia.")]);
    story.run(["agent", "-m", "x", "--tools", "sessions"]).stdout("Mia.\n");
    assert!(story.last_request().last_content().contains("My cat is Mia."));
    let explained = story.run(["policy", "explain", "sessions", r#"{"action": "list"}"#]);
    explained.status(77).stdout_has("the REPL and editors have it and ask about each call");
}

#[test]
fn the_repl_asks_before_other_conversations_are_read() {
    let story = two_conversations();
    let read = || calls("sessions", json!({ "action": "read", "key": "pets" }));
    story.server().script([read(), says("Not told."), read(), read(), says("It is Mia.")]);
    let mut screen = story.screen(50, 80).args(["repl"]);
    screen.until_prompt("> ");
    let question = "Allow sessions to look into your other conversations?";
    screen.type_("what is my cat called?").press(Key::Enter);
    screen.until(question).until("· key: pets").until_prompt("  allow?");
    screen.type_("n").until("Not told.").until_prompt("> ");
    assert!(story.last_request().last_content().contains("the user said no"));
    screen.type_("look it up").press(Key::Enter).until_prompt("  allow?");
    screen.type_("s").until("Enter confirms").press(Key::Enter).until("It is Mia.");
    screen.until_prompt("> ");
    assert_eq!(screen.text_with_scrollback().matches(question).count(), 2);
    assert!(story.last_request().last_content().contains("My cat is Mia."));
    // The lists of the conversation have the tool.
    screen.type_("/tools").press(Key::Enter).until("\nsessions     Other conversations");
    screen.until_prompt("> ").type_("/context").press(Key::Enter).until("cron, sessions,");
    screen.until_prompt("> ").press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 0);
    // A rule allows it once and for all.
    story.server().script([read(), says("Mia.")]);
    let mut screen = story.screen(24, 80).args(["repl", "--allow", "sessions"]);
    screen.until_prompt("> ").type_("and now?").press(Key::Enter).until("Mia.").until_prompt("> ");
    assert!(!screen.text().contains(question), "{}", screen.text());
    screen.exit_with_ctrl_d();
}

#[test]
fn the_list_of_tools_names_those_of_conversations_apart() {
    let story = Story::new();
    let list = story.run(["tool", "list"]).text();
    let (run, interactive) = list.split_once("\nIn the REPL and in editors also:\n").unwrap();
    assert!(!run.contains("sessions") && interactive.contains("sessions  Other conversations"));
    assert!(interactive.contains("\nask_user  "), "{list}");
    let named = story.run(["tool", "list", "--allow", "sessions"]).text();
    assert_eq!(named.matches("Other conversations").count(), 1, "{named}");
    let denied = story.run(["tool", "list", "--deny", "sessions"]).text();
    assert!(!denied.contains("Other conversations") && denied.contains("ask_user"), "{denied}");
    let json = story.run(["tool", "list", "--json"]).text();
    assert!(!json.contains("Other conversations"), "{json}");
    story.run(["tool", "show", "sessions"]).stdout_has("Other conversations");
}
