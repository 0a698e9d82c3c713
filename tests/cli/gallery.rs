//! The same scenes in windows of three widths, on a dark and on a light background: no row is wrapped by the terminal, and
//! pictures show how each looks.

use crate::markdown::{ALL_ELEMENTS, CODE_AND_LINKS};
use crate::screen::{Key, Screen};
use crate::server::{calls, says};
use crate::story::Story;
use regex::Regex;
use serde_json::json;

const WIDTHS: [u16; 3] = [40, 80, 120];
/// The backgrounds, and the values of the variable that tells them.
const BACKGROUNDS: [(&str, &str); 2] = [("dark", "15;0"), ("light", "0;15")];

/// Runs `scene` in each window, and compares each screen with its picture.
fn show(name: &str, scene: impl Fn(&Story, u16, &str) -> String) {
    for width in WIDTHS {
        for (background, variable) in BACKGROUNDS {
            let story = Story::new().file("notes.md", "milk\nbread\ntea\n");
            let text = scene(&story, width, variable);
            let masked = mask_counts(&text);
            crate::screen::compare(&format!("{name}-{width}-{background}"), &masked);
        }
    }
}

/// The screen from the first prompt on, without the numbers that depend on the length of temporary paths.
fn mask_counts(text: &str) -> String {
    let start = text.find("\n«bold:> »").map_or(0, |at| at + 1);
    let counts = Regex::new(r"\d+% context · [\d.]+k in").unwrap();
    let masked = counts.replace_all(&text[start..], "9% context · 9k in");
    masked.into_owned()
}

#[track_caller]
fn assert_not_wrapped(screen: &Screen<'_>, is_code: impl Fn(&str) -> bool) {
    let mut wrapped = screen.wrapped_rows();
    wrapped.retain(|row| !is_code(row));
    assert!(wrapped.is_empty(), "{wrapped:?}");
}

#[test]
fn answers_in_all_windows() {
    show("answer", |story, width, variable| {
        story.server().script([says(ALL_ELEMENTS), says(CODE_AND_LINKS)]);
        let mut text = String::new();
        for number in 1..=2 {
            let screen = story.screen(60, width).env("COLORFGBG", variable);
            let mut screen = screen.args(["agent", "--new", "-q", "-m", "x"]);
            assert_eq!(screen.code(), 0, "answer {number}");
            // Code is never wrapped by the program.
            let is_code = |row: &str| ALL_ELEMENTS.contains(row.trim());
            assert_not_wrapped(&screen, is_code);
            text.push_str(&screen.styled());
            text.push_str("\n\n");
        }
        text.trim_end().to_owned()
    });
}

#[test]
fn questions_in_all_windows() {
    show("question", |story, width, variable| {
        let change = json!({ "path": "notes.md", "content": "milk\noat bread from the bakery in the main street\ntea\n" });
        story.server().script([calls("write_file", change), says("Not **written**.")]);
        let screen = story.screen(40, width).env("COLORFGBG", variable);
        let mut screen = screen.args(["repl"]);
        screen.until("lists").until_prompt("> ");
        screen.type_("change the bread").press(Key::Enter).until_prompt("  allow?");
        screen.type_("n").until("Not written.").until_prompt("> ");
        assert_not_wrapped(&screen, |_| false);
        let text = screen.styled();
        screen.exit_with_ctrl_d();
        text
    });
}

#[test]
fn progress_in_all_windows() {
    show("progress", |story, width, variable| {
        let change = json!({ "path": "notes.md", "old_text": "bread", "new_text": "oat bread" });
        let todos = json!({ "todos": [
            { "content": "change the notes", "status": "completed" },
            { "content": "tell the user", "status": "in_progress" },
        ] });
        story.server().script([
            calls("edit_file", change),
            calls("todo", todos),
            says("Done, *all* of it."),
        ]);
        let screen = story.screen(30, width).env("COLORFGBG", variable);
        let mut screen = screen.args(["agent", "--new", "--write", "-m", "x"]);
        assert_eq!(screen.code(), 0);
        assert_not_wrapped(&screen, |_| false);
        screen.styled()
    });
}
