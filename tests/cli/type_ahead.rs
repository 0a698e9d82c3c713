//! Text typed while a turn runs: it is visible below the output, and goes to the next turn or into this one. The keys
//! of the line editor that only the REPL has, and its bell.

use crate::markdown::{delta, end_event};
use crate::screen::{Key, Screen};
use crate::server::{Responder, Response, calls, says, sends};
use crate::story::{Story, write};
use crate::wait::until;
use serde_json::json;

fn start_repl(story: &Story) -> Screen<'_> {
    let mut screen = story.screen(24, 80).args(["repl"]);
    screen.until("lists").until_prompt("> ");
    screen
}

/// A call that lasts until the file `go` exists.
fn waits() -> Responder {
    calls("exec", json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" }))
}

fn go_on(story: &Story) {
    write(&story.dir().join("go"), b"");
}

#[test]
fn text_typed_during_a_turn_is_visible_and_sent_after_it() {
    let story = Story::new().script([waits(), says("First."), says("Second.")]);
    let mut screen = start_repl(&story);
    screen.type_("wait").press(Key::Enter).until("exec");
    screen.type_("the next qeu");
    screen.until("> the next qeu▏").until("Alt-Enter: at its next step");
    screen.press(Key::Backspace).press(Key::Backspace);
    screen.type_("uestion").until("> the next question▏");
    screen.press(Key::Enter).until("> the next question  after this turn");
    screen.type_("and half of a").until("> and half of a▏");
    go_on(&story);
    screen.until("Second.").until_prompt("> and half of a");
    assert!(!screen.text().contains("after this turn"), "{}", screen.text());
    screen.press(Key::Ctrl('u')).until_prompt("> ");
    // It was a turn of its own.
    let requests = story.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[2].last_content().contains("the next question"));
    assert!(!requests[1].last_content().contains("the next question"));
    screen.exit_with_ctrl_d();
    let history = story.home().join(".nanobot/history/repl_history");
    assert_eq!(std::fs::read_to_string(history).unwrap(), "#V2\nwait\nthe next question\n");
}

/// A line that waits is in the history at once.
#[test]
fn a_line_that_waits_outlasts_a_run_that_is_killed() {
    let story = Story::new().script([waits()]);
    let mut screen = start_repl(&story);
    screen.type_("wait").press(Key::Enter).until("exec");
    screen.type_("the next question").press(Key::Enter);
    screen.until("> the next question  after this turn").kill();
    let mut screen = start_repl(&story);
    screen.press(Key::Up).until_prompt("> the next question").press(Key::Ctrl('u'));
    screen.until_prompt("> ").exit_with_ctrl_d();
}

#[test]
fn alt_enter_sends_a_message_into_the_turn() {
    let story = Story::new().script([waits(), says("With the other one."), says("Next.")]);
    let mut screen = start_repl(&story);
    screen.type_("wait").press(Key::Enter).until("exec");
    screen.type_("use the other file").press(Key::Alt('\r'));
    screen.until("> use the other file  at the next step");
    // A command is for the REPL, and waits.
    screen.type_("/stop").press(Key::Alt('\r'));
    screen.until("> /stop  after this turn");
    go_on(&story);
    screen.until("With the other one.").until("> /stop\nEsc or Ctrl-C stops a turn");
    screen.until_prompt("> ");
    screen.until_snapshot("steered", Screen::conversation);
    let messages = story.requests()[1].messages();
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert!(roles.ends_with(&["assistant", "tool", "user"]), "{roles:?}");
    assert!(messages.last().unwrap()["content"].to_string().contains("use the other file"));
    // The session has it as the user's own words, and the next turn sends it again.
    let lines = story.session("cli_direct.jsonl");
    let line = lines.iter().find(|line| line["content"] == "use the other file");
    assert!(line.is_some_and(|line| line["injected"].is_null()), "{lines:?}");
    screen.type_("more").press(Key::Enter).until("Next.");
    let next = story.requests()[2].messages();
    assert!(next.iter().any(|message| message["content"].to_string().contains("the other file")));
    screen.exit_with_ctrl_d();
}

#[test]
fn a_message_that_is_too_late_for_the_turn_is_the_next_one() {
    let (sender, answer) = Response::streaming();
    let story = Story::new().script([sends(answer), says("Second.")]);
    let mut screen = start_repl(&story);
    screen.type_("first").press(Key::Enter);
    sender.send(delta("Some words\nand ").into_bytes()).unwrap();
    screen.until("Some words");
    screen.type_("too late").press(Key::Alt('\r'));
    screen.until("> too late  at the next step");
    sender.send(delta("an end.").into_bytes()).unwrap();
    sender.send(end_event().into_bytes()).unwrap();
    drop(sender);
    screen.until("Second.").until_prompt("> ");
    assert!(story.requests()[1].last_content().contains("too late"));
    screen.exit_with_ctrl_d();
}

#[test]
fn typed_text_stays_below_an_answer_that_streams() {
    let (sender, answer) = Response::streaming();
    let send = |text: &str| sender.send(delta(text).into_bytes()).unwrap();
    let story = Story::new().script([sends(answer)]);
    let mut screen = start_repl(&story);
    screen.type_("first").press(Key::Enter);
    send("An **answer** that ");
    screen.until("An answer that");
    screen.type_("a question").until("> a question▏");
    send("goes on in this row, with a link to https://example.org/a and ");
    screen.until("example.org/a and").until("> a question▏");
    send("code:\n\n```sh\nls\n```\n\nMore ");
    screen.until("More").until("> a question▏");
    screen.until_snapshot("typed-below", Screen::conversation);
    // A narrower window.
    screen.resize_between_frames(24, 50);
    send("words in the narrow window, which has to be wrapped. ");
    screen.type_(" or two").until("> a question or two▏");
    send("End.");
    sender.send(end_event().into_bytes()).unwrap();
    drop(sender);
    screen.until("End.").until_prompt("> a question or two");
    let text = screen.text();
    assert_eq!(text.matches("a question").count(), 1, "{text}");
    assert!(text.contains("More words in the narrow window"), "{text}");
    screen.press(Key::Ctrl('u')).until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_long_paste_is_folded_and_sent_whole() {
    let story = Story::new().script([says("Long."), waits(), says("Waited."), says("Both.")]);
    let mut screen = start_repl(&story);
    let lines: Vec<String> = (1..=120).map(|number| format!("{number}\tof many")).collect();
    let paste = lines.join("\r");
    screen.type_("look: ").paste(&paste);
    screen.until_prompt("> look: [pasted 120 lines]");
    // Backspace deletes all of it.
    screen.press(Key::Backspace).until_prompt("> look:");
    screen.paste(&paste).until("[pasted 120 lines]");
    screen.type_(" and ").paste("a short\rone").until("one");
    screen.press(Key::Enter).until("Long.").until_prompt("> ");
    let content = story.requests()[0].last_content();
    let whole = format!("look: {} and a short\none", lines.join("\n"));
    assert!(content.contains(&whole), "{content}");
    // The same while a turn runs, and in the line that begins then.
    screen.type_("wait").press(Key::Enter).until("exec");
    screen.paste(&paste).until("> [pasted 120 lines]▏");
    screen.press(Key::Enter).until("> [pasted 120 lines]  after this turn");
    screen.paste(&paste).until("> [pasted 120 lines]▏");
    go_on(&story);
    screen.until("Both.").until_prompt("> [pasted 120 lines]");
    assert!(story.requests()[3].last_content().contains(&lines.join("\n")));
    screen.press(Key::Ctrl('u')).until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn a_draft_of_several_lines_shows_its_ends() {
    let story = Story::new().script([waits(), says("First."), says("Second.")]);
    let mut screen = start_repl(&story);
    screen.type_("wait").press(Key::Enter).until("exec");
    screen.type_("fix this:\\").press(Key::Enter);
    screen.until("> fix this:  … 2 lines\n  ▏");
    screen.paste("one\rtwo\rthree\r").type_("please");
    screen.until("> fix this:  … 5 lines\n  please▏");
    screen.press(Key::Enter).until("> fix this: …  after this turn");
    go_on(&story);
    screen.until("Second.").until_prompt("> ");
    let content = story.requests()[2].last_content();
    assert!(content.contains("fix this:\none\ntwo\nthree\nplease"), "{content}");
    screen.exit_with_ctrl_d();
}

#[test]
fn the_escape_key_leaves_the_next_key_whole() {
    let story = Story::new().script([waits(), says("First.")]);
    let mut screen = start_repl(&story);
    screen.type_("wait").press(Key::Enter).until("exec");
    screen.type_("/session").until("> /session▏");
    screen.press(Key::Escape).until("> /session▏\n  Esc again stops the turn");
    screen.press(Key::Enter).until("> /session  after this turn");
    go_on(&story);
    screen.until("First.").until("> /session\ncli:direct");
    screen.until_prompt("> ");
    assert_eq!(story.requests().len(), 2);
    screen.exit_with_ctrl_d();
}

#[test]
fn the_escape_key_stops_the_turn() {
    let story = Story::new().script([waits(), waits(), says("Whole.")]);
    let mut screen = start_repl(&story);
    screen.type_("wait").press(Key::Enter).until("exec");
    // Other keys begin with the same byte.
    screen.press(Key::Up).press(Key::Alt('x')).press(Key::ShiftTab).type_("a").until("> a▏");
    screen.press(Key::Backspace).until_gone("> a▏");
    screen.press(Key::Escape).until("(interrupted").until_prompt("> ");
    // The text that was typed stays.
    screen.type_("/retry").press(Key::Enter);
    screen.wait_for_some(|| (story.requests().len() == 2).then_some(()));
    screen.type_("later").until("> later▏").press(Key::Escape).until("Esc again");
    screen.press(Key::Escape).until_prompt("> later");
    assert_eq!(story.requests().len(), 2);
    screen.press(Key::Enter).until("Whole.").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn typing_on_never_answers_a_question() {
    let change = json!({ "path": "new.md", "content": "x" });
    let story = Story::new().script([waits(), calls("write_file", change), says("Not written.")]);
    let mut screen = start_repl(&story);
    screen.type_("wait").press(Key::Enter).until("exec");
    screen.type_("wh").until("> wh▏");
    go_on(&story);
    // The question appears amid the draft, and waits for a pause.
    until("the question waits", || screen.type_("y").text().contains("waits for a pause"));
    screen.until_prompt("  allow?");
    // Here too a word that is typed on is no answer.
    screen.type_(" not?").until("y not?▏  the question waits for a pause");
    screen.until_prompt("  allow?");
    assert!(!story.dir().join("new.md").exists());
    screen.type_("n").until("allow? no").until("Not written.");
    screen.until_text("the draft comes back", |text| text.ends_with("y not?"));
    let text = screen.text_with_scrollback();
    assert!(text.contains("\n> why"), "{text}");
    assert!(!story.dir().join("new.md").exists());
    screen.press(Key::Ctrl('c')).until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn shift_tab_switches_the_profile_and_keeps_the_line() {
    let story = Story::new().script([says("A plan.")]);
    let mut screen = start_repl(&story);
    screen.type_("think about it").press(Key::ShiftTab);
    screen.until_prompt("plan> think about it");
    screen.press(Key::ShiftTab).until_prompt("accept-edits> think about it");
    screen.press(Key::ShiftTab).until_prompt("> think about it");
    screen.press(Key::ShiftTab).until_prompt("plan> think about it");
    // No row is left of the prompts before.
    assert_eq!(screen.text().matches("think about it").count(), 1, "{}", screen.text());
    assert!(screen.text().contains("a new conversation"), "{}", screen.text());
    screen.press(Key::Enter).until("A plan.").until_prompt("plan> ");
    let request = story.requests()[0].body["tools"].to_string();
    assert!(!request.contains("write_file"), "{request}");
    screen.exit_with_ctrl_d();
}

#[test]
fn the_bell_rings_after_a_long_turn_and_for_an_approval() {
    let rings = |screen: &Screen<'_>| screen.raw().iter().filter(|byte| **byte == 7).count();
    for (seconds, expect) in
        [(json!(0), (1, 2, 3)), (json!(3600), (0, 0, 0)), (json!(null), (0, 0, 0))]
    {
        let change = json!({ "path": "a.md", "content": "x" });
        let story = Story::new().set("terminal.bell", seconds).script([
            says("One."),
            calls("write_file", change),
            says("Two."),
        ]);
        let mut screen = start_repl(&story);
        screen.type_("a").press(Key::Enter).until("One.").until_prompt("> ");
        assert_eq!(rings(&screen), expect.0);
        screen.type_("b").press(Key::Enter).until_prompt("  allow?");
        assert_eq!(rings(&screen), expect.1);
        screen.type_("n").until("Two.").until_prompt("> ");
        assert_eq!(rings(&screen), expect.2);
        screen.exit_with_ctrl_d();
    }
}

#[test]
fn an_unknown_model_of_a_known_provider_is_named_at_once() {
    let story = Story::bare().config_text(
        r#"{"agents": {"defaults": {"provider": "anthropic", "model": "claude-sonet-5"}},
            "providers": {"anthropic": {"apiKey": "k", "apiBase": "http://127.0.0.1:9"}}}"#,
    );
    let warning = "is none of the models of anthropic that this release knows";
    let mut screen = story.screen(24, 120).args(["repl"]);
    screen.until(&format!("`claude-sonet-5` {warning}; did you mean"));
    screen.until_prompt("> ");
    screen.type_("/model claude-sonnet-5").press(Key::Enter);
    screen.until("switched to model `claude-sonnet-5` of anthropic");
    screen.until_prompt("> ");
    assert_eq!(screen.text().matches(warning).count(), 1, "{}", screen.text());
    screen.type_("/model xyzzy").press(Key::Enter).until(&format!("`xyzzy` {warning}\n"));
    screen.exit_with_ctrl_d();
}
