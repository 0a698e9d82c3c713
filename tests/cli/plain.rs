//! Output for screen readers: nothing that was printed is changed, and no escape sequence is written.

use crate::screen::{Key, Screen};
use crate::server::{calls, says};
use crate::story::Story;
use serde_json::json;

#[track_caller]
fn assert_plain(screen: &Screen<'_>) {
    let raw = String::from_utf8(screen.raw()).unwrap();
    let lines = raw.replace("\r\n", "\n");
    let odd = lines.chars().find(|letter| letter.is_control() && *letter != '\n');
    assert_eq!(odd, None, "{raw:?}");
}

#[test]
fn a_plain_run_prints_each_line_once() {
    let text = "# A **title**\n\n```rust\nlet x = 1; // https://example.org/\n```\n";
    let story = Story::new().script([calls("list_dir", json!({ "path": "." })), says(text)]);
    let arguments = ["agent", "--plain", "-v", "-m", "x"];
    let mut screen = story.screen(24, 60).args(arguments);
    assert_eq!(screen.code(), 0);
    assert_plain(&screen);
    assert!(screen.text().contains("list_dir"), "{}", screen.text());
    assert!(screen.text().contains(text.trim_end()), "{}", screen.text());
}

#[test]
fn a_plain_repl_is_read_line_by_line() {
    let change = json!({ "path": "a.md", "content": "new\n" });
    let story = Story::new().script([
        says("**Bold** words."),
        calls("list_dir", json!({ "path": "." })),
        calls("write_file", change),
        says("Done."),
    ]);
    let mut screen = story.screen(40, 60).args(["repl", "--plain"]);
    screen.until("lists").until_prompt("> ");
    screen.type_("hi").press(Key::Enter).until("**Bold** words.").until_prompt("> ");
    screen.type_("write").press(Key::Enter).until_prompt("  allow?");
    // The user knows what was done before.
    let text = screen.text();
    assert!(text.contains("  ✓ list_dir .  "), "{text}");
    assert!(text.contains(" in, 7 out · "), "{text}");
    assert!(!text.contains('━') && !text.contains('─'), "{text}");
    // Without key by key input, an answer takes Enter.
    screen.type_("y").press(Key::Enter).until("Done.").until_prompt("> ");
    assert_eq!(std::fs::read_to_string(story.dir().join("a.md")).unwrap(), "new\n");
    screen.type_("/usage").press(Key::Enter).until("TOTAL").until_prompt("> ");
    screen.type_("/exit").press(Key::Enter);
    assert_eq!(screen.code(), 0);
    assert_plain(&screen);
    screen.assert_restored();
}
