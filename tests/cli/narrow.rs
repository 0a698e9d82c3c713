//! Narrow windows, and windows that are resized: words are not broken, and nothing that was printed is erased.

use crate::screen::{Key, Screen};
use crate::server::{calls, says};
use crate::story::Story;
use serde_json::json;

fn start_repl<'a>(story: &'a Story, size: (u16, u16), variables: &[(&str, &str)]) -> Screen<'a> {
    let mut builder = story.screen(size.0, size.1);
    for (name, value) in variables {
        builder = builder.env(name, value);
    }
    let mut screen = builder.args(["repl"]);
    screen.until("lists").until_prompt("> ");
    screen
}

#[test]
fn a_question_at_40_columns_breaks_no_word() {
    let text = "milk from the farm, two bottles, and bread from the bakery\n";
    let story = Story::new().script([
        calls("write_file", json!({ "path": "notes.md", "content": text })),
        says("Not written."),
    ]);
    let mut screen = start_repl(&story, (30, 40), &[]);
    screen.type_("add bread").press(Key::Enter).until_prompt("  allow?");
    screen.until_snapshot("repl_question-40", Screen::conversation);
    assert!(screen.wrapped_rows().is_empty(), "{:?}", screen.wrapped_rows());
    screen.type_("n").until("Not written.").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn lists_of_commands_fit_40_columns() {
    let story = Story::new().script([says("One.")]);
    story.run(["agent", "-m", "first words"]).stdout("One.\n");
    let mut screen = start_repl(&story, (60, 40), &[]);
    for (command, last) in [
        ("/help", "ends."),
        ("/context", "compacted at"),
        ("/usage", "TOTAL"),
        ("/session", "TITLE"),
    ] {
        screen.press(Key::Ctrl('l'));
        screen.until_gone("lists");
        screen.type_(command).press(Key::Enter).until(last);
        screen.until_prompt("> ");
        let text = screen.text();
        let broken = screen.wrapped_rows();
        assert!(broken.is_empty(), "{command}: {broken:?} are wrapped:\n{text}");
    }
    screen.press(Key::Ctrl('l')).until_gone("TITLE");
    screen.type_("/context").press(Key::Enter).until("compacted");
    screen.until_prompt("> ");
    screen.until_snapshot("context-40", mask_numbers);
    screen.exit_with_ctrl_d();
    let mut screen = start_repl(&story, (24, 80), &[]);
    screen.type_("/context").press(Key::Enter).until("compacted");
    screen.until_prompt("> ");
    screen.until_snapshot("context", mask_numbers);
    screen.exit_with_ctrl_d();
}

/// The conversation without the numbers that depend on the length of temporary paths.
fn mask_numbers(screen: &Screen<'_>) -> String {
    let numbers = regex::Regex::new(r"(identity|tools|TOTAL)( +)\d+").unwrap();
    let text = screen.conversation();
    numbers.replace_all(&text, "${1}${2}999").into_owned()
}

#[test]
fn a_resize_erases_nothing_above_a_long_line() {
    let long_text = "a line that is so long that it takes three rows of forty columns, but one of a wide window";
    let xterm = [("XTERM_VERSION", "XTerm(390)")];
    for (from, to, reflows) in [(40, 120, true), (120, 40, true), (40, 120, false)] {
        let story = Story::new().script([says("An answer above.")]);
        let variables: &[(&str, &str)] = if reflows { &[] } else { &xterm };
        let mut screen = start_repl(&story, (24, from), variables);
        screen.type_("hi").press(Key::Enter).until("An answer above.");
        screen.until("in, ").until_prompt("> ").type_(long_text);
        screen.until("window");
        let before = screen.raw().len();
        if reflows {
            screen.resize_with_reflow(24, to)
        } else {
            screen.resize(24, to)
        };
        // The line is drawn again before the next key.
        screen.wait_for_some(|| (screen.raw().len() > before).then_some(()));
        screen.type_("!").until("window!");
        let text = screen.text();
        let flat: String = text.lines().collect();
        for part in ["An answer above.", " in, ", long_text] {
            assert_eq!(flat.matches(part).count(), 1, "{part:?} {from} {to} {reflows}:\n{text}");
        }
        screen.press(Key::Ctrl('c')).until("press Ctrl-C again");
        screen.exit_with_ctrl_d();
    }
}
