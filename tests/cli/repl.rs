//! The REPL on a terminal: input, approval prompts, interrupts and exit. The terminal is restored however it ends.

use crate::screen::{Key, Screen, timeless};
use crate::server::{Answer, Ending, calls, fails, says, sends};
use crate::story::Story;
use crate::wait::until_exists;
use rustix::process::Signal;
use serde_json::json;

/// Starts the REPL on a screen and waits for its prompt.
fn talk(story: &Story) -> Screen<'_> {
    begun(story.screen(24, 80).args(["repl"]))
}

fn begun(mut screen: Screen<'_>) -> Screen<'_> {
    screen.until("/help lists the commands").until_prompt("> ");
    screen
}

/// Types a line and sends it.
fn say<'s, 'a>(screen: &'s mut Screen<'a>, line: &str) -> &'s mut Screen<'a> {
    screen.type_(line).press(Key::Enter)
}

/// Exits, and checks the terminal.
fn end(screen: &mut Screen<'_>) {
    screen.press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 0, "{}", screen.scrolled());
    screen.is_restored();
}

/// A server that starts an answer and then stalls.
fn stalling(text: &str) -> crate::server::Turn {
    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let answer = Answer::events([format!("data: {delta}\n\n")]).ending(Ending::Stall);
    sends(answer)
}

/// The contents of the user messages in the last request.
fn heard(story: &Story) -> Vec<String> {
    let asked = story.asked();
    let messages = asked.last().expect("somebody was asked").messages();
    let users = messages.iter().filter(|message| message["role"] == "user");
    users
        .map(|message| message["content"].to_string())
        .collect()
}

#[test]
fn a_first_conversation() {
    let story = Story::new().script([says("Hello, **Ada**."), says("You said hi.")]);
    let mut screen = talk(&story);
    say(&mut screen, "hi, I am Ada")
        .until("Hello, Ada.")
        .until_prompt("> ");
    say(&mut screen, "what did I say?").until("You said hi.");
    end(&mut screen);
    screen.snapshot("repl_first", &timeless(&screen.text()));
    // The second turn has the messages of the first.
    assert_eq!(heard(&story).len(), 2);
    assert!(heard(&story)[0].contains("hi, I am Ada"));
    let lines = story.session("cli_direct.jsonl");
    assert!(lines.iter().any(|line| line["content"] == "You said hi."));
}

#[test]
fn agent_without_a_message_is_a_conversation_on_a_terminal() {
    let story = Story::new().script([says("Here.")]);
    let mut screen = begun(story.screen(24, 80).args(["agent", "-s", "work"]));
    say(&mut screen, "there?").until("Here.");
    say(&mut screen, "/session").until("work\n");
    say(&mut screen, "quit");
    assert_eq!(screen.code(), 0);
    screen.is_restored();
    assert!(!story.session("work.jsonl").is_empty());
}

#[test]
fn every_exit_word_ends_it_and_off_a_terminal_it_does_not_begin() {
    for word in ["exit", "QUIT", "/exit", "/quit", ":q"] {
        let story = Story::new();
        let mut screen = talk(&story);
        say(&mut screen, word);
        assert_eq!(screen.code(), 0, "{word}");
        screen.is_restored();
    }
    Story::new()
        .stdin("hi\n")
        .run(["repl"])
        .status(2)
        .stderr_has("needs a terminal")
        .stderr_has("try: `nanobot agent -m");
}

#[test]
fn a_change_is_shown_and_made_only_when_the_person_says_so() {
    let write = || {
        calls(
            "write_file",
            json!({ "path": "notes.md", "content": "milk\nbread\n" }),
        )
    };
    let story = Story::new().file("notes.md", "milk\n").script([
        write(),
        says("Not written."),
        write(),
        says("Written."),
    ]);
    let mut screen = begun(story.screen(24, 120).args(["repl"]));
    say(&mut screen, "add bread").until_prompt("  allow?");
    screen.until_snapshot("repl_question", Screen::text);
    say(&mut screen, "no, use the list in list.md")
        .until("Not written.")
        .until_prompt("> ");
    assert_eq!(
        std::fs::read_to_string(story.dir().join("notes.md")).unwrap(),
        "milk\n"
    );
    let told = story.asked()[1].last();
    assert!(
        told.contains("the user said no: use the list in list.md"),
        "{told}"
    );
    say(&mut screen, "again").until_prompt("  allow?");
    say(&mut screen, "y").until("Written.");
    let text = std::fs::read_to_string(story.dir().join("notes.md")).unwrap();
    assert_eq!(text, "milk\nbread\n");
    end(&mut screen);
}

#[test]
fn what_is_allowed_for_the_session_is_not_asked_again_and_always_is_a_rule() {
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
    let mut screen = talk(&story);
    say(&mut screen, "a").until_prompt("  allow?");
    say(&mut screen, "s").until("First.").until_prompt("> ");
    say(&mut screen, "b").until("2.").until_prompt("> ");
    // Another tool needs its own approval.
    say(&mut screen, "c").until_prompt("  allow?");
    say(&mut screen, "a").until("saved in").until("3.");
    end(&mut screen);
    let config = std::fs::read_to_string(story.home().join(".nanobot/config.json")).unwrap();
    assert!(
        config.contains("delete_file(") && !config.contains("write_file("),
        "{config}"
    );
    // The rule applies to the next session and to single runs.
    story.run(["agent", "-m", "d"]).stdout("4.\n");
    for name in ["one", "two"] {
        assert!(!story.dir().join(name).exists(), "{name}");
    }
}

#[test]
fn a_command_that_lacks_a_right_is_asked_about() {
    let story = Story::new().script([
        calls("exec", json!({ "command": "echo bread > list.md" })),
        says("Done."),
    ]);
    let mut screen = talk(&story);
    say(&mut screen, "write it")
        .until_prompt("  allow?")
        .until("$ echo bread > list.md");
    say(&mut screen, "yes").until("Done.");
    let text = std::fs::read_to_string(story.dir().join("list.md")).unwrap();
    assert_eq!(text, "bread\n");
    end(&mut screen);
}

#[test]
fn the_model_can_ask_the_person_and_nobody_else() {
    let ask = || {
        calls(
            "ask_user",
            json!({ "question": "Which one?", "options": ["tea", "coffee"] }),
        )
    };
    let story = Story::new().script([ask(), says("Coffee it is.")]);
    let mut screen = talk(&story);
    say(&mut screen, "make me something").until_prompt("  answer:");
    screen.until_snapshot("repl_ask_user", Screen::text);
    say(&mut screen, "2").until("Coffee it is.");
    assert_eq!(story.asked()[1].last(), "coffee");
    end(&mut screen);
    // In a single run there is no such tool.
    let story = Story::new().script([says("-")]);
    story.run(["agent", "-m", "x"]).stdout("-\n");
    let tools = story.asked()[0].body["tools"].to_string();
    assert!(!tools.contains("ask_user"), "{tools}");
}

#[test]
fn a_ctrl_c_stops_a_stream_and_the_conversation_goes_on() {
    let story = Story::new().script([stalling("Half of it\n\nx"), says("Whole.")]);
    let mut screen = talk(&story);
    say(&mut screen, "tell")
        .until("Half of it")
        .press(Key::Ctrl('c'));
    screen.until("(interrupted").until_prompt("> ");
    say(&mut screen, "once more").until("Whole.");
    end(&mut screen);
}

#[test]
fn a_ctrl_c_stops_a_command_and_what_it_started() {
    let story = Story::new().script([
        calls(
            "exec",
            json!({ "command": "sleep 1000 & echo $! > pid; wait" }),
        ),
        says("Stopped."),
    ]);
    let mut screen = begun(story.screen(24, 80).args(["repl", "--write"]));
    say(&mut screen, "sleep");
    let pid = story.dir().join("pid");
    let child = || {
        std::fs::read_to_string(&pid)
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    let child = screen.until_some(child);
    screen
        .press(Key::Ctrl('c'))
        .until("(interrupted")
        .until_prompt("> ");
    let place = std::path::PathBuf::from(format!("/proc/{child}"));
    screen.until_some(|| (!place.exists()).then_some(()));
    let results = story.session("cli_direct.jsonl");
    assert!(
        results.iter().any(|line| line["role"] == "tool"),
        "{results:?}"
    );
    say(&mut screen, "and now?").until("Stopped.");
    end(&mut screen);
}

#[test]
fn a_ctrl_c_hides_no_other_signal() {
    // The command is told to end and says that it was, so that Ctrl-C comes second in any case. The shell creates the file
    // itself: a child process might be killed first.
    let command = "trap ': > told' TERM; : > started; while :; do sleep 0.02; done";
    let story = Story::new().script([calls("exec", json!({ "command": command }))]);
    let mut screen = begun(story.screen(24, 80).args(["repl", "--write"]));
    say(&mut screen, "sleep");
    until_exists(&story.dir().join("started"));
    screen.signal(Signal::TERM);
    until_exists(&story.dir().join("told"));
    screen.press(Key::Ctrl('c'));
    assert_eq!(screen.code(), 143);
    screen.is_restored();
}

#[test]
fn a_ctrl_c_at_the_prompt_clears_the_line_and_two_end_it() {
    let story = Story::new();
    let mut screen = talk(&story);
    screen
        .type_("half a li")
        .press(Key::Ctrl('c'))
        .until("press Ctrl-C again");
    assert!(story.server().asked().is_empty());
    screen.press(Key::Ctrl('c'));
    assert_eq!(screen.code(), 130);
    screen.is_restored();
}

#[test]
fn a_paste_of_many_lines_is_one_message() {
    let story = Story::new().script([says("Long.")]);
    let mut screen = talk(&story);
    let lines: Vec<String> = (1..=500)
        .map(|number| format!("line {number}\tof many"))
        .collect();
    screen.paste(&lines.join("\n")).until("line 500");
    assert!(story.server().asked().is_empty());
    screen.press(Key::Enter).until("Long.");
    let said = heard(&story);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("line 1\\tof many\\nline 2") && said[0].contains("line 500"));
    end(&mut screen);
}

#[test]
fn lines_go_on_after_a_backslash_and_in_a_fence() {
    let story = Story::new().script([says("ok"), says("ok again")]);
    let mut screen = talk(&story);
    say(&mut screen, "one\\");
    say(&mut screen, "two").until("ok").until_prompt("> ");
    assert!(
        heard(&story)[0].contains("one\\ntwo"),
        "{:?}",
        heard(&story)
    );
    say(&mut screen, "```");
    say(&mut screen, "code");
    say(&mut screen, "```").until("ok again");
    assert!(
        heard(&story)[1].contains("```\\ncode\\n```"),
        "{:?}",
        heard(&story)
    );
    end(&mut screen);
}

#[test]
fn the_window_may_change_its_size() {
    let long = "word ".repeat(40);
    let story = Story::new().script([says(&long), says("narrow")]);
    let mut screen = talk(&story);
    say(&mut screen, "a").until("word word").until_prompt("> ");
    screen.resize(24, 30);
    say(&mut screen, "b").until("narrow");
    screen.until_snapshot("repl_resized", Screen::text);
    end(&mut screen);
}

#[test]
fn whatever_ends_it_the_terminal_is_as_before() {
    for signal in [Signal::TERM, Signal::HUP] {
        let story = Story::new();
        let mut screen = talk(&story);
        screen.type_("half").signal(signal);
        assert_eq!(screen.code(), 128 + signal.as_raw());
        screen.is_restored();
    }
    // During a turn.
    let story = Story::new().script([stalling("Half\n\nx")]);
    let mut screen = talk(&story);
    say(&mut screen, "x").until("Half").signal(Signal::TERM);
    assert_eq!(screen.code(), 143);
    screen.is_restored();
    // A panic in our code.
    let story = Story::new().env("NANOBOT_TEST_DEFECT", "1");
    let mut screen = talk(&story);
    say(&mut screen, "x")
        .until("internal error")
        .until_prompt("> ");
    end(&mut screen);
}

#[test]
fn what_is_typed_during_a_turn_is_kept() {
    let story = Story::new().script([
        calls(
            "exec",
            json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" }),
        ),
        says("First."),
        says("Second."),
        says("Third."),
    ]);
    let mut screen = talk(&story);
    say(&mut screen, "wait").until("exec");
    say(&mut screen, "the second line");
    screen.type_("the third");
    std::fs::write(story.dir().join("go"), "").unwrap();
    screen.until("Second.").until("> the third");
    screen.press(Key::Enter).until("Third.");
    let said = heard(&story);
    assert!(
        said[1].contains("the second line") && said[2].contains("the third"),
        "{said:?}"
    );
    end(&mut screen);
}

#[test]
fn what_was_typed_before_a_question_is_no_answer_to_it() {
    let story = Story::new().script([
        calls(
            "exec",
            json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" }),
        ),
        calls("write_file", json!({ "path": "new.md", "content": "x" })),
        says("Not written."),
    ]);
    let mut screen = talk(&story);
    say(&mut screen, "wait").until("exec");
    say(&mut screen, "y");
    std::fs::write(story.dir().join("go"), "").unwrap();
    screen.until_prompt("  allow?");
    say(&mut screen, "n").until("Not written.");
    assert!(!story.dir().join("new.md").exists());
    // The text typed before is the next message, which gets no answer here.
    screen.until("> y").press(Key::Ctrl('c')).until_prompt("> ");
    end(&mut screen);
}

#[test]
fn a_command_of_the_persons_own_goes_along_with_the_next_message() {
    let story = Story::new().script([says("I see.")]);
    let mut screen = talk(&story);
    say(&mut screen, "!echo out; echo err >&2; exit 3")
        .until("out")
        .until("[status 3]");
    // The owner of the key is unknown: it is shown to the user but not sent.
    let key = format!("ghp_{}", "aB3".repeat(12));
    say(&mut screen, &format!("!echo TOKEN={key}")).until(&format!("\nTOKEN={key}"));
    say(&mut screen, "what was that?").until("I see.");
    let said = heard(&story).pop().unwrap();
    assert!(said.contains("TOKEN=") && !said.contains(&key), "{said}");
    assert!(
        said.contains("what was that?") && said.contains("$ echo out"),
        "{said}"
    );
    assert!(
        said.contains("out\\n") && said.contains("[status 3]"),
        "{said}"
    );
    end(&mut screen);
}

#[test]
fn a_command_that_is_none_does_not_end_it() {
    let story = Story::new();
    let mut screen = talk(&story);
    say(&mut screen, "!")
        .until("no command is given")
        .until_prompt("> ");
    say(&mut screen, "!echo $((40+2))")
        .until("42")
        .until_prompt("> ");
    end(&mut screen);
}

#[test]
fn what_was_typed_ahead_is_not_sent_after_a_turn_that_failed() {
    let story = Story::new().script([
        calls(
            "exec",
            json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" }),
        ),
        fails(400, "no"),
        says("Whole."),
    ]);
    let mut screen = talk(&story);
    say(&mut screen, "wait").until("exec");
    say(&mut screen, "the next one");
    std::fs::write(story.dir().join("go"), "").unwrap();
    screen.until("> the next one");
    assert_eq!(story.asked().len(), 2);
    screen.press(Key::Enter).until("Whole.");
    end(&mut screen);
}

#[test]
fn a_file_after_an_at_goes_along() {
    let story = Story::new()
        .file("a b.md", "buy milk")
        .script([says("Milk.")]);
    let mut screen = talk(&story);
    say(&mut screen, "what is in @\"a b.md\"?")
        .until("attached: a b.md, 8 B\n")
        .until("Milk.");
    let said = heard(&story).pop().unwrap();
    assert!(said.contains("buy milk"), "{said}");
    end(&mut screen);
}

#[test]
fn the_configs_own_key_is_not_kept_when_it_is_the_first_line() {
    let key = "my-own-key-of-the-config";
    let story = Story::new().set("providers.custom.apiKey", json!(key));
    let mut screen = talk(&story);
    say(&mut screen, &format!("!echo is {key} right?")).until("is *** right?\n");
    end(&mut screen);
    let files = std::fs::read_dir(story.home().join(".nanobot/history")).unwrap();
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(text.contains("right?") && !text.contains(key), "{text}");
    }
}

#[test]
fn its_commands() {
    let story = Story::new().script([says("# One\n\ntwo"), says("Forked."), says("Again.")]);
    let mut screen = begun(story.screen(36, 80).args(["repl"]));
    say(&mut screen, "/help")
        .until("/exit")
        .until("Ctrl-C stops a turn;")
        .until_prompt("> ");
    screen.until_snapshot("repl_help", Screen::text);
    say(&mut screen, "/hlep").until("try: `/help`, or");
    say(&mut screen, "first").until("two").until_prompt("> ");
    say(&mut screen, "/save answer.md").until("saved the last answer to");
    assert_eq!(
        std::fs::read_to_string(story.dir().join("answer.md")).unwrap(),
        "# One\n\ntwo\n"
    );
    say(&mut screen, "/save answer.md").until("already exists");
    say(&mut screen, "/fork other")
        .until("copied 2 messages of")
        .until("switched to session `other`");
    say(&mut screen, "second")
        .until("Forked.")
        .until_prompt("> ");
    say(&mut screen, "/retry")
        .until("Again.")
        .until_prompt("> ");
    assert_eq!(
        heard(&story)
            .iter()
            .filter(|text| text.contains("second"))
            .count(),
        2
    );
    say(&mut screen, "/sessions")
        .until("cli:direct")
        .until("other");
    say(&mut screen, "/profile plan").until("switched to profile `plan`");
    say(&mut screen, "/profile nobody").until("there is no profile `nobody`");
    say(&mut screen, "/model other-model").until("switched to model `other-model` of custom");
    say(&mut screen, "/context").until("identity");
    say(&mut screen, "/tools").until("Read a text file");
    say(&mut screen, "/usage").until("DAY");
    say(&mut screen, "/new").until("New session started.");
    end(&mut screen);
}

#[test]
fn the_help_fits_a_window() {
    let story = Story::new();
    let mut screen = talk(&story);
    say(&mut screen, "/help")
        .until("or /exit")
        .until_prompt("> ");
    assert!(screen.text().starts_with("/new "), "{}", screen.text());
    end(&mut screen);
}

#[test]
fn what_the_files_were_is_brought_back() {
    let story = Story::new().script([
        calls("write_file", json!({ "path": "a.md", "content": "new" })),
        says("Written."),
    ]);
    let mut screen = begun(story.screen(24, 80).args(["repl", "--write"]));
    say(&mut screen, "write")
        .until("Written.")
        .until_prompt("> ");
    assert!(story.dir().join("a.md").exists());
    say(&mut screen, "/undo").until("removed");
    assert!(!story.dir().join("a.md").exists());
    end(&mut screen);
}

#[test]
fn what_another_conversation_did_is_taken_back_only_by_its_number() {
    let story = Story::new().script([
        calls("write_file", json!({ "path": "a.md", "content": "new" })),
        says("Written."),
    ]);
    story
        .run(["agent", "-s", "other", "--write", "-m", "write"])
        .stdout("Written.\n");
    let mut screen = talk(&story);
    say(&mut screen, "/undo")
        .until("try: `/undo 1`")
        .until_prompt("> ");
    assert!(
        screen.scrolled().contains("`other`"),
        "{}",
        screen.scrolled()
    );
    assert!(story.dir().join("a.md").exists());
    say(&mut screen, "/undo 1").until("removed");
    assert!(!story.dir().join("a.md").exists());
    end(&mut screen);
}

#[test]
fn a_conversation_keeps_its_connection() {
    let story = Story::new().script([says("First."), says("Second.")]);
    let mut screen = talk(&story);
    say(&mut screen, "a").until("First.").until_prompt("> ");
    say(&mut screen, "b").until("Second.");
    end(&mut screen);
    let asked = story.asked();
    assert_eq!(asked[0].connection, asked[1].connection);
}

#[test]
fn without_a_key_it_says_what_to_do_and_goes_on() {
    let story = Story::bare();
    let mut screen = talk(&story);
    say(&mut screen, "hi").until("try:").until_prompt("> ");
    screen.press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 0);
    screen.is_restored();
}

#[test]
fn a_question_shows_all_that_is_decided_about() {
    // Long text is cut and can be shown in full; key-like text hides nothing; blanks push nothing off the screen; and every
    // argument is shown.
    let lines: Vec<String> = (1..=60).map(|number| format!("echo {number}")).collect();
    let keyish = "echo '-----BEGIN PRIVATE KEY-----aaaaaaaaaaaaaaaaaaaa' ; touch hidden ; echo '-----END PRIVATE KEY-----'";
    let padded = format!("touch a #{}? exec(\"ls\")", " ".repeat(3000));
    let story = Story::new()
        .set("tools.permissions", json!({ "exec": "ask" }))
        .script([
            calls(
                "exec",
                json!({ "command": lines.join("\n"), "timeout": 30 }),
            ),
            calls("exec", json!({ "command": keyish })),
            calls("exec", json!({ "command": padded, "working_dir": "sub" })),
            says("None of it."),
        ]);
    let mut screen = begun(story.screen(30, 80).args(["repl"]));
    say(&mut screen, "go")
        .until("v shows all")
        .until_prompt("  allow?");
    say(&mut screen, "v")
        .until("$ echo 60")
        .until("timeout: 30")
        .until_prompt("  allow?");
    say(&mut screen, "n")
        .until("touch hidden")
        .until_prompt("  allow?");
    say(&mut screen, "n")
        .until("⟨3000 blanks⟩")
        .until("working_dir: sub")
        .until_prompt("  allow?");
    say(&mut screen, "n").until("None of it.");
    end(&mut screen);
}

#[test]
fn one_answer_is_for_one_question() {
    let write = |name: &str| (name.to_owned(), json!({ "path": name, "content": "x" }));
    let (one, two) = (write("one"), write("two"));
    let story = Story::new().script([
        crate::server::calls_all([("write_file", one.1), ("write_file", two.1)]),
        says("Over."),
    ]);
    let mut screen = talk(&story);
    say(&mut screen, "go")
        .until("path: one")
        .until_prompt("  allow?");
    // In one burst: the input after the first line is not an answer.
    screen
        .type_("n\ry\ry\r")
        .until("path: two")
        .until_prompt("  allow?");
    say(&mut screen, "n").until("Over.");
    for name in ["one", "two"] {
        assert!(!story.dir().join(name).exists(), "{name}");
    }
}

#[test]
fn a_table_streams_in_a_conversation() {
    let table =
        "| name | price |\n|---|---:|\n| tea | 2.50 |\n| 日本茶 | 12.00 |\n\nThat is **all**.";
    let story = Story::new().script([says(table), stalling("Half of it\n\nx")]);
    let mut screen = talk(&story);
    say(&mut screen, "prices?")
        .until("That is all.")
        .until_prompt("> ");
    screen.until_snapshot("repl_table", Screen::text);
    say(&mut screen, "more")
        .until("Half of it")
        .press(Key::Ctrl('c'));
    screen.until("(interrupted").until_prompt("> ");
    assert!(screen.text().contains("Half of it"), "{}", screen.text());
    end(&mut screen);
}

#[test]
fn what_was_allowed_for_one_conversation_is_asked_again_in_the_next() {
    let write = |name: &str| calls("write_file", json!({ "path": name, "content": "x" }));
    let story = Story::new().script([
        write("one"),
        says("First."),
        write("two"),
        says("Second."),
        write("three"),
        says("Third."),
    ]);
    let mut screen = talk(&story);
    say(&mut screen, "a").until_prompt("  allow?");
    say(&mut screen, "s").until("First.").until_prompt("> ");
    say(&mut screen, "/fork other")
        .until("`other` has")
        .until_prompt("> ");
    say(&mut screen, "b")
        .until("path: two")
        .until_prompt("  allow?");
    say(&mut screen, "s").until("Second.").until_prompt("> ");
    say(&mut screen, "/new")
        .until("New session")
        .until_prompt("> ");
    say(&mut screen, "c")
        .until("path: three")
        .until_prompt("  allow?");
    say(&mut screen, "n").until("Third.").until_prompt("> ");
    end(&mut screen);
}
