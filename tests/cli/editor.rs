//! The line editor of the REPL: typing, pasting, history and completion; and the terminal's state however the program ends.

use crate::screen::{Key, Screen};
use crate::server::{Responder, says};
use crate::story::{NANOBOT, Story};
use crate::wait::{until, until_exists};
use rustix::process::Signal;
use serde_json::json;
use std::path::PathBuf;

fn start_repl(story: &Story) -> Screen<'_> {
    let screen = story.screen(24, 80).args(["repl"]);
    wait_until_ready(&screen);
    screen
}

/// Waits for a prompt with nothing after it.
#[track_caller]
fn wait_until_ready(screen: &Screen<'_>) {
    until("there is a prompt", || screen.cursor().1 == 2 && screen.text().ends_with("\n>"));
}

/// A story whose model always gives the same answer.
fn story() -> Story {
    let story = Story::new();
    story.server().always(says("Fine."));
    story
}

/// The last content of the request with this number; waits until it has arrived.
#[track_caller]
fn last_content_of(story: &Story, number: usize) -> String {
    story.server().wait_for_requests(number + 1);
    story.requests()[number].last_content()
}

fn history_file(story: &Story) -> PathBuf {
    story.home().join(".nanobot/history/repl_history")
}

/// An answer that waits until a file in the story's directory exists.
fn gated_reply(story: &Story, text: &str) -> (PathBuf, Responder) {
    let gate = story.dir().join("gate");
    let (wait, answer) = (gate.clone(), says(text));
    let turn: Responder = Box::new(move |request| {
        until_exists(&wait);
        answer(request)
    });
    (gate, turn)
}

#[test]
fn an_entry_may_have_many_lines() {
    let story = story();
    let mut screen = start_repl(&story);
    screen.type_("one\\").press(Key::Enter).type_("two");
    screen.press(Key::Alt('\r')).type_("three").press(Key::Enter);
    assert!(
        last_content_of(&story, 0).contains("one\ntwo\nthree"),
        "{}",
        last_content_of(&story, 0)
    );
    wait_until_ready(&screen);
    screen.type_("see").press(Key::Alt('\r')).type_("```sh").press(Key::Enter);
    screen.type_("ls \\").press(Key::Enter).type_("```").press(Key::Enter);
    assert!(
        last_content_of(&story, 1).contains("see\n```sh\nls \\\n```"),
        "{}",
        last_content_of(&story, 1)
    );
    screen.exit_with_ctrl_d();
}

#[test]
fn a_multi_line_paste_is_one_entry() {
    let story = story().file("paste-me.txt", "");
    let mut screen = start_repl(&story);
    let text: String = (0..500).map(|line| format!("\tline {line}\t@paste 日本 \\\n")).collect();
    screen.paste(&text).until_prompt("> [pasted 500 lines]").press(Key::Enter);
    let content = last_content_of(&story, 0);
    // The screen is not redrawn for each line.
    let drawn = screen.raw().len();
    assert!(drawn < 10 * text.len(), "{drawn} for {}", text.len());
    assert!(content.contains(text.trim()), "{content}");
    wait_until_ready(&screen);
    assert_eq!(story.requests().len(), 1);
    screen.exit_with_ctrl_d();
}

#[test]
fn history_is_saved_and_searchable() {
    let story = story();
    let python_history = story.home().join(".nanobot/history/cli_history");
    let old = "\n# 2025-01-01 00:00:00.000000\n+from python\n+in two lines\n";
    crate::story::write(&python_history, old.as_bytes());
    let mut screen = start_repl(&story);
    let key = format!("sk-ant-api03-{}", "abcdefghijklmnopqrstuvwxyz0123456789");
    for line in ["apples", "pears", " plums", "pears", &format!("use {key}"), "/context"] {
        screen.type_(line);
        // Otherwise the previous prompt would satisfy the next wait.
        until("the line stands there", || screen.text().ends_with(line));
        screen.press(Key::Enter);
        let remembered = !line.contains(&key);
        assert!(remembered || !last_content_of(&story, 4).is_empty());
        wait_until_ready(&screen);
    }
    screen.exit_with_ctrl_d();
    let history = std::fs::read_to_string(history_file(&story)).unwrap();
    assert_eq!(history, "#V2\nfrom python\\nin two lines\napples\npears\n/context\n");
    assert_eq!(std::fs::read_to_string(&python_history).unwrap(), old);

    let mut screen = start_repl(&story);
    screen.press(Key::Up).until("> /context");
    screen.press(Key::Ctrl('u')).until_gone("> /context");
    screen.type_("ap").press(Key::Up).until("> apples");
    screen.press(Key::Ctrl('k')).press(Key::Ctrl('u')).until_gone("> apples");
    screen.press(Key::Ctrl('r')).type_("two").until("in two lines");
    screen.press(Key::Enter);
    assert!(last_content_of(&story, 5).contains("from python\nin two lines"));
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
}

#[test]
fn a_recalled_paste_is_folded_again() {
    let story = story();
    let lines: Vec<String> = (1..=60).map(|number| format!("line {number}")).collect();
    let whole = lines.join("\n");
    let mut screen = start_repl(&story);
    screen.type_("look: ").paste(&lines.join("\r"));
    screen.until_prompt("> look: [pasted 60 lines]").press(Key::Enter);
    assert!(last_content_of(&story, 0).contains(&whole));
    wait_until_ready(&screen);
    screen.press(Key::Up).until_prompt("> look: [pasted 60 lines]");
    screen.press(Key::Enter);
    assert!(last_content_of(&story, 1).contains(&format!("look: {whole}")));
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
    // The next process knows only the entry.
    let mut screen = start_repl(&story);
    screen.press(Key::Up).until("> look: line 1\n[pasted 59 lines]");
    screen.press(Key::Enter);
    assert!(last_content_of(&story, 2).contains(&format!("look: {whole}")));
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
}

#[test]
fn the_escape_key_at_the_prompt_leaves_the_next_key_whole() {
    let story = story();
    let mut screen = start_repl(&story);
    screen.type_("abc").until_prompt("> abc");
    screen.press(Key::Escape).pause().press(Key::Ctrl('u'));
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
}

#[test]
fn the_keys_of_vi_edit_the_line() {
    let story = story().set("terminal.editMode", json!("vi"));
    let mut screen = start_repl(&story);
    screen.type_to("one two three", "> one two three").press(Key::Escape).pause();
    // To the start, delete a word, append at the end.
    screen.type_("0dwA!").until_prompt("> two three!");
    // A second Escape means nothing more.
    screen
        .press(Key::Escape)
        .pause()
        .press(Key::Escape)
        .pause()
        .type_("0ix")
        .until_prompt("> xtwo three!");
    screen.press(Key::Enter);
    assert!(last_content_of(&story, 0).contains("xtwo three!"));
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
}

#[test]
fn an_unusable_history_file_is_not_fatal() {
    let story = story();
    std::fs::create_dir_all(history_file(&story)).unwrap();
    let mut screen = start_repl(&story);
    screen.until("input history is disabled").type_("hello").press(Key::Enter).until("Fine.");
    wait_until_ready(&screen);
    screen.press(Key::Up);
    until("it is found", || screen.text().ends_with("\n> hello"));
    screen.press(Key::Ctrl('c')).until("press Ctrl-C again");
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
}

#[test]
fn words_are_completed_and_hinted() {
    let story = story().file("notes of mine.md", "").file("nothing.txt", "").file(".hidden", "");
    let mut screen = start_repl(&story);
    screen.type_("/co").press(Key::Tab);
    screen.until("copy the last answer").until_prompt("> /co");
    screen.until_snapshot("candidates", Screen::conversation);
    screen.press(Key::Ctrl('u')).type_("/mod");
    until("the rest is dim", || screen.styled().contains("/mod«dim:el [NAME]»"));
    screen.press(Key::Tab).until("> /model [NAME]");
    screen
        .press(Key::Ctrl('u'))
        .type_("see @note")
        .press(Key::Tab)
        .until("> see @\"notes of mine.md\"");
    screen.type_(" and @noth").press(Key::Tab).until("mine.md\" and @nothing.txt");
    screen.press(Key::Ctrl('c')).until("press Ctrl-C again");
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
}

/// The settings are restored, and bracketed paste is off once all output was read.
#[track_caller]
fn assert_restored(screen: &Screen<'_>, before: &crate::screen::TermiosSettings) {
    assert_eq!(screen.settings(), *before, "the terminal's settings");
    until("pastes are no longer marked", || {
        memchr::memmem::rfind(&screen.raw(), b"\x1b[?2004l")
            > memchr::memmem::rfind(&screen.raw(), b"\x1b[?2004h")
    });
    screen.assert_restored();
}

#[test]
fn the_terminal_is_restored_however_the_program_ends() {
    let story = story();
    let before = {
        let mut screen = story.screen(24, 80).program("true", [""; 0]);
        screen.exit();
        screen.settings()
    };
    let check = |code: i32, end: &dyn Fn(&mut Screen<'_>)| {
        let mut screen = start_repl(&story);
        until("keys come as they are", || screen.settings() != before);
        end(&mut screen);
        assert_eq!(screen.code(), code);
        assert_restored(&screen, &before);
    };
    check(0, &|screen| {
        screen.press(Key::Ctrl('d'));
    });
    check(0, &|screen| {
        screen.type_("/exit").press(Key::Enter);
    });
    check(130, &|screen| {
        screen.type_("abc").press(Key::Ctrl('c')).until("press Ctrl-C again");
        screen.press(Key::Ctrl('c'));
    });
    let deadly = [(Signal::QUIT, 131), (Signal::USR1, 138)];
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)].into_iter().chain(deadly) {
        check(code, &|screen| {
            screen.type_("abc").until("> abc").signal(signal);
        });
        check(code, &|screen| {
            screen.type_("/session").press(Key::Enter).until("\ncli:direct");
            wait_until_ready(screen);
            screen.press(Key::Ctrl('r')).until("reverse-i-search").signal(signal);
        });
    }
    // SIGINT from another process counts as Ctrl-C.
    check(0, &|screen| {
        screen.type_("abc").until("> abc").signal(Signal::INT).until("press Ctrl-C again");
        screen.type_("/exit").press(Key::Enter);
    });
}

#[test]
fn a_crash_in_a_turn_restores_the_terminal() {
    let story = Story::new();
    let (gate, turn) = gated_reply(&story, "late");
    story.server().script([turn]);
    let mut screen = story.screen(24, 80).program("sleep", ["0"]);
    screen.exit();
    let before = screen.settings();
    let mut screen = start_repl(&story);
    screen.type_("hello").press(Key::Enter);
    last_content_of(&story, 0);
    screen.signal(Signal::TERM);
    assert_eq!(screen.code(), 143);
    assert_restored(&screen, &before);
    std::fs::write(gate, "").unwrap();
}

#[test]
fn the_program_resumes_after_ctrl_z() {
    let story = story();
    let mut screen = story.screen(24, 80).env("PS1", "$ ").program("bash", ["--norc", "-i"]);
    screen.until("$").type_(NANOBOT).type_(" repl").press(Key::Enter);
    screen.until("\n>").type_("abc").until("> abc");
    screen.press(Key::Ctrl('z')).until("Stopped");
    screen.type_("echo st''ill").press(Key::Enter).until("\nstill");
    screen.type_("fg").press(Key::Enter);
    until("the line is drawn anew", || screen.text().ends_with("> abc"));
    screen.type_("def").press(Key::Enter);
    assert!(last_content_of(&story, 0).contains("abcdef"));
    wait_until_ready(&screen);
    screen.press(Key::Ctrl('d')).until("\n$");
    screen.type_("stty | grep -c -e -icanon -e -isig; exit").press(Key::Enter);
    screen.exit();
    assert!(screen.text().contains("\n0\n"), "{}", screen.text());
}

#[test]
fn a_command_of_the_user_stops_and_resumes_with_the_program() {
    let story = story();
    let mut screen = story.screen(24, 80).env("PS1", "$ ").program("bash", ["--norc", "-i"]);
    screen.until("$").type_(NANOBOT).type_(" repl").press(Key::Enter).until("\n>");
    screen.type_("!echo be''gun; cat").press(Key::Enter).until("\nbegun");
    screen.type_("one").press(Key::Enter).until("one\none");
    screen.press(Key::Ctrl('z')).until("Stopped");
    screen.type_("echo st''ill").press(Key::Enter).until("\nstill");
    screen.type_("fg").press(Key::Enter).until("repl\n").type_("two").press(Key::Enter);
    screen.until("two\ntwo").press(Key::Ctrl('d')).until("not sent");
    wait_until_ready(&screen);
    screen.press(Key::Ctrl('d')).until("\n$");
    screen.type_("stty | grep -c -e -icanon -e -isig; exit").press(Key::Enter);
    screen.exit();
    assert!(screen.text().contains("\n0\n"), "{}", screen.text());
}

#[test]
fn a_run_in_the_background_does_not_draw_over_the_prompt() {
    let story = Story::new();
    let (gate, turn) = gated_reply(&story, "late");
    story.server().script([turn]);
    let mut screen = story.screen(24, 80).env("PS1", "$ ").program("bash", ["--norc", "-i"]);
    screen.until("$").type_(NANOBOT).type_(" agent -m hello &").press(Key::Enter);
    last_content_of(&story, 0);
    screen.type_("echo st''ill").press(Key::Enter).until("\nstill\n$");
    std::fs::write(gate, "").unwrap();
    screen.until("late");
    let raw = String::from_utf8_lossy(&screen.raw()).into_owned();
    assert!(!raw.contains(['⠋', '⠙', '⠹', '⠸']), "{raw}");
    screen.type_("exit").press(Key::Enter).type_("exit").press(Key::Enter);
    screen.exit();
}

#[test]
fn the_program_resumes_after_an_external_stop() {
    let story = story();
    let mut screen = start_repl(&story);
    screen.type_("abc").until("> abc").signal(Signal::STOP);
    let before = screen.settings();
    // As a shell would set it.
    screen.set_cooked_mode();
    assert_ne!(screen.settings(), before);
    screen.signal(Signal::CONT);
    until("keys come as they are", || screen.settings() == before);
    screen.type_("def").until("> abcdef").press(Key::Enter);
    assert!(last_content_of(&story, 0).contains("abcdef"));
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
}

#[test]
fn type_ahead_during_a_turn_is_preserved() {
    let story = Story::new();
    let (gate, turn) = gated_reply(&story, "Late.");
    story.server().script([turn]);
    story.server().always(says("Fine."));
    let mut screen = start_repl(&story);
    screen.type_("begin").press(Key::Enter);
    last_content_of(&story, 0);
    // 200 lines, which are 20 entries.
    let entry = |number: usize, end: &str| {
        let lines = (0..10).map(|line| format!("line {number}.{line}: {}", "x".repeat(60)));
        lines.collect::<Vec<_>>().join(end)
    };
    let many: String = (0..20).map(|number| entry(number, "\\\r") + "\r").collect();
    screen.type_(&many).paste("a paste\nof two lines").press(Key::Enter);
    // Of the 21 entries that wait, four are shown.
    screen.until("… 17 more").type_("and a begi");
    std::fs::write(gate, "").unwrap();
    story.server().wait_for_requests(22);
    for number in 0..20 {
        let content = last_content_of(&story, number + 1);
        assert!(content.contains(&entry(number, "\n")), "{number}: {content}");
    }
    assert!(last_content_of(&story, 21).contains("a paste\nof two lines"));
    screen.until("> and a begi").type_("n").until("> and a begin").press(Key::Enter);
    assert!(last_content_of(&story, 22).contains("and a begin"));
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
}

#[test]
fn ctrl_c_works_after_much_type_ahead() {
    let story = Story::new();
    let (gate, turn) = gated_reply(&story, "Late.");
    story.server().script([turn]);
    story.server().always(says("Fine."));
    let mut screen = start_repl(&story);
    screen.type_("begin").press(Key::Enter);
    last_content_of(&story, 0);
    screen.type_(&"y".repeat(20_000)).press(Key::Ctrl('c'));
    // The line that is edited next fills the screen, so the notice may not be visible for long. Before that line, a second Ctrl-C
    // would still be for the turn.
    screen.wait_for_some(|| {
        let raw = screen.raw();
        let notice = memchr::memmem::find(&raw, b"(interrupted")?;
        memchr::memmem::find(&raw[notice..], b"yyyy").map(drop)
    });
    screen.press(Key::Ctrl('c')).until("press Ctrl-C again");
    screen.type_("/exit").press(Key::Enter);
    assert_eq!(screen.code(), 0);
    std::fs::write(gate, "").unwrap();
    screen.assert_restored();
}

#[test]
fn a_dumb_terminal_works() {
    let story = story();
    let mut screen = story.screen(24, 80).env("TERM", "dumb").args(["repl"]);
    screen.until("\n>").type_("hello\\").press(Key::Enter).type_("world").press(Key::Enter);
    assert!(last_content_of(&story, 0).contains("hello\nworld"));
    wait_until_ready(&screen);
    screen.type_("abc").until("> abc").press(Key::Ctrl('c')).until("press Ctrl-C again");
    screen.type_("tyop").press(Key::Backspace).press(Key::Backspace).type_("po").press(Key::Enter);
    assert!(last_content_of(&story, 1).contains("typo"));
    until("it is answered", || screen.text().matches("Fine.").count() == 2);
    wait_until_ready(&screen);
    screen.exit_with_ctrl_d();
    let mut screen = story.screen(24, 80).env("TERM", "dumb").args(["repl"]);
    screen.until("\n>").type_("abc").until("> abc").signal(Signal::TERM);
    assert_eq!(screen.code(), 143);
    screen.assert_restored();
}
