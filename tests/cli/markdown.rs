//! Answers on a terminal: markdown is rendered while it streams.

use crate::screen::{Key, Screen};
use crate::server::{Ending, Responder, Response, calls, replies, says, sends};
use crate::story::{NANOBOT, Story};
use serde_json::json;

/// An answer with one of each markdown element.
pub(crate) const ALL_ELEMENTS: &str = "\
# A heading

Some **bold**, *italic*, ~~struck~~ and `inline code`, and a [link](https://example.org/path) in a paragraph that is \
longer than a row of most terminals.

- a list
  - within a list, whose words are so many that they hang below each other
- [ ] to be done
- [x] done
1. first
2. second

> A quote, and
> - a list in it

| Fruit | Price | What is said of it |
|:------|------:|--------------------|
| Apple | 1.20 | keeps the doctor away, or so they say in many a country |
| 日本の梨 | 12 | `crisp` |

```rust
fn main() {
    println!(\"a line of code that is not broken, however long it may be, since it is to be copied\");
}
```

---
<b>as it is</b> \\*not emphasis\\* e\u{301}te\u{301} 👩\u{200d}🔬 \u{2764}\u{fe0f} <https://example.org>";

pub(crate) fn delta(text: &str) -> String {
    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    format!("data: {delta}\n\n")
}

/// The text in chunks of this many characters, as models stream it.
fn streams_text(text: &str, chunk_chars: usize) -> Responder {
    let letters_of: Vec<char> = text.chars().collect();
    let pieces = letters_of.chunks(chunk_chars);
    let pieces = pieces.map(|text| delta(&text.iter().collect::<String>()));
    sends(Response::events(pieces.chain([end_event()])))
}

pub(crate) fn end_event() -> String {
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    format!("data: {end}\n\ndata: [DONE]\n\n")
}

/// Starts an answer and then stalls.
fn begins_and_stalls(text: &str) -> Responder {
    sends(Response::events([delta(text)]).ending(Ending::Stall))
}

fn ask_on_screen<'a>(story: &'a Story, size: (u16, u16), flags: &[&str]) -> Screen<'a> {
    let arguments = ["agent", "--new", "-m", "x"].iter().chain(flags);
    story.screen(size.0, size.1).args(arguments)
}

#[test]
fn an_answer_is_rendered_while_it_streams() {
    let story = Story::new().script([
        streams_text(ALL_ELEMENTS, 3),
        streams_text(ALL_ELEMENTS, 1),
        says(ALL_ELEMENTS),
    ]);
    let mut screen = ask_on_screen(&story, (50, 60), &[]);
    assert_eq!(screen.code(), 0);
    screen.snapshot("answer", &screen.styled());
    screen.assert_restored();
    let text = screen.text();
    let mut screen = ask_on_screen(&story, (50, 60), &[]);
    screen.exit();
    assert_eq!(screen.text(), text);
    let mut screen = ask_on_screen(&story, (50, 60), &["--no-stream"]);
    screen.exit();
    assert_eq!(screen.text(), text);
}

#[test]
fn a_narrow_terminal_wraps_and_loses_nothing() {
    let story = Story::new().script([streams_text(ALL_ELEMENTS, 7)]);
    let mut screen = ask_on_screen(&story, (80, 24), &[]);
    screen.exit();
    screen.snapshot("answer-narrow", &screen.text());
}

#[test]
fn without_colour_the_layout_stays() {
    let story = Story::new().script([
        streams_text(ALL_ELEMENTS, 4),
        streams_text(ALL_ELEMENTS, 4),
        streams_text(ALL_ELEMENTS, 4),
    ]);
    let mut screen = ask_on_screen(&story, (50, 60), &[]);
    screen.exit();
    let colored = screen.text();
    let mut screen = ask_on_screen(&story, (50, 60), &["--color", "never"]);
    screen.exit();
    assert_eq!(screen.text(), colored);
    assert_eq!(screen.styled(), screen.text());
    let mut screen = story.screen(50, 60).env("NO_COLOR", "1").args(["agent", "--new", "-m", "x"]);
    screen.exit();
    assert_eq!(screen.styled(), colored);
}

#[test]
fn plain_is_what_the_model_wrote() {
    let text = "# A *title*\n\n- `x`\n\n| a |\n|---|\n";
    let story =
        Story::new().script([streams_text(text, 2), streams_text(text, 2), streams_text(text, 2)]);
    let mut screen = ask_on_screen(&story, (20, 60), &["--no-markdown"]);
    screen.exit();
    assert_eq!(screen.styled(), text.trim_end());
    let mut screen = story.screen(20, 60).env("TERM", "dumb").args(["agent", "--new", "-m", "x"]);
    screen.exit();
    assert_eq!(screen.styled(), text.trim_end());
    // In a pipe nothing is rendered.
    story.run(["agent", "-m", "x", "--markdown"]).stdout(text);
}

#[test]
fn streamed_text_is_visible_before_the_answer_is_complete() {
    let story = Story::new().script([begins_and_stalls("Some **words** and\n- more of th")]);
    let mut screen = ask_on_screen(&story, (20, 60), &[]);
    screen.until("• more of").press(Key::Ctrl('c'));
    assert_eq!(screen.code(), 128 + 2);
    // The interrupted text is shown, followed by the error on its own line.
    screen.snapshot("cut-off", &screen.styled());
    screen.assert_restored();
}

#[test]
fn a_resize_applies_to_the_following_text() {
    let (sender, answer) = Response::streaming();
    let send = |text: &str| sender.send(delta(text).into_bytes()).unwrap();
    let story = Story::new().script([sends(answer)]);
    let mut screen = ask_on_screen(&story, (20, 60), &[]);
    send(&"wide rows ".repeat(9));
    send("turn\n");
    screen.until("turn").resize(20, 30);
    send(&"narrow rows ".repeat(5));
    send("end.\n\n| a | table |\n|---|---|\n| that has a lot to say | in two columns |\n\nEnd.");
    sender.send(end_event().into_bytes()).unwrap();
    drop(sender);
    assert_eq!(screen.code(), 0);
    screen.snapshot("resize", &screen.text());
    screen.assert_restored();
}

#[test]
fn progress_before_a_call_is_rendered_too() {
    let call = json!({ "id": "call_1", "type": "function",
        "function": { "name": "list_dir", "arguments": "{\"path\": \".\"}" } });
    let message =
        json!({ "role": "assistant", "content": "I will **look**.", "tool_calls": [call] });
    let story = Story::new().script([replies(message, "tool_calls"), says("It is *empty*.")]);
    let mut screen = ask_on_screen(&story, (20, 60), &[]);
    screen.exit();
    let text = screen.styled();
    assert!(text.starts_with("I will «bold:look».\n"), "{text}");
    assert!(text.ends_with("\nIt is «italic:empty»."), "{text}");
    screen.assert_restored();
    let story = Story::new().script([calls("list_dir", json!({ "path": "." })), says("`ok`")]);
    let mut screen = ask_on_screen(&story, (20, 60), &["-q"]);
    screen.exit();
    assert_eq!(screen.styled(), "«cyan:ok»");
}

#[test]
fn escape_sequences_within_markup_are_not_executed() {
    let evil = "**\u{1b}[2Jx** `\u{1b}]0;t\u{7}` [\u{9b}31m](\u{1b}]8;;http://evil\u{7}) \u{202e}\n| \u{1b}c |\n|---|\n| \u{90} |\n\
        ```\u{1b}[5m\n\u{1b}[31mcode\r\u{8}\n```\n";
    let story = Story::new().script([streams_text(evil, 1), streams_text(evil, 5)]);
    for _ in 0..2 {
        let mut screen = ask_on_screen(&story, (20, 120), &["--color", "never", "-q"]);
        screen.exit();
        let raw = String::from_utf8(screen.raw()).unwrap();
        let odd = raw.chars().find(|letter| letter.is_control() && !['\r', '\n'].contains(letter));
        assert_eq!(odd, None, "{raw:?}");
        assert!(!raw.contains('\u{202e}'));
        let text = screen.text();
        assert!(
            text.contains(
                r"\u{1b}[2Jx \u{1b}]0;t\u{7} \u{9b}31m (\u{1b}]8;;http://evil\u{7}) \u{202e}"
            ),
            "{text}"
        );
        assert!(text.contains(r"  \u{1b}[31mcode\u{d}\u{8}"), "{text}");
    }
}

/// Chunks that arrive together are written together: at most one write per screenful.
#[test]
fn chunks_that_arrive_together_are_written_together() {
    let text = "word ".repeat(5000);
    let story = Story::new().script([streams_text(&text, 5)]);
    let trace = story.dir().join("trace");
    let command =
        format!("exec strace -f -qq -e trace=write -o {} {NANOBOT} agent -m x -q", trace.display());
    let mut screen = story.screen(24, 80).program("sh", ["-c", &command]);
    screen.exit();
    if screen.text().contains("not found") {
        // Only some machines have strace; see README, Tests.
        assert_eq!(story.run(["agent", "-m", "x"]).text(), format!("{text}\n"));
        return;
    }
    let trace = std::fs::read_to_string(trace).unwrap();
    let writes = trace.lines().filter(|line| line.contains("write(1,")).count();
    assert!((1..2500).contains(&writes), "{writes} writes");
    assert_eq!(screen.text_with_scrollback().split_whitespace().count(), 5000);
}

/// An answer with code of two languages, a diff and addresses.
pub(crate) const CODE_AND_LINKS: &str = "\
```rust
// Doubles a number.
fn double(count: u32) -> String {
    let text = \"it's \\\"quoted\\\"\";
    format!(\"{text}{}\", count * 2)
}
```

```diff
@@ -1,2 +1,2 @@
 milk
-bread
+oat bread
```

```klingon
let nothing = \"coloured\";
```

See [the manual](https://example.org/a/path-that-is-longer-than-a-row) and <http://example.org/>.";

#[test]
fn code_has_colours_for_the_background_and_addresses_are_links() {
    for (name, flags, variable, key) in [
        ("code-dark", "", "15;0", "auto"),
        ("code-light", "", "0;15", "auto"),
        // The config decides, whatever the variable says.
        ("code-light", "", "15;0", "light"),
    ] {
        let story = Story::new()
            .set("terminal.background", json!(key))
            .script([streams_text(CODE_AND_LINKS, 1)]);
        let arguments = ["agent", "--new", "-m", "x", flags];
        let arguments = arguments.iter().filter(|word| !word.is_empty());
        let screen = story.screen(30, 40).env("COLORFGBG", variable);
        let mut screen = screen.args(arguments);
        assert_eq!(screen.code(), 0);
        screen.snapshot(name, &screen.styled());
        screen.assert_restored();
        let raw = String::from_utf8(screen.raw()).unwrap();
        // Each row of the address leads to all of it.
        let link = "\u{1b}]8;;https://example.org/a/path-that-is-longer-than-a-row\u{1b}\\";
        assert!(raw.matches(link).count() >= 2, "{raw:?}");
        assert!(raw.contains("\u{1b}]8;;http://example.org/\u{1b}\\"), "{raw:?}");
        assert_eq!(raw.matches("\u{1b}]8;;\u{1b}\\").count(), raw.matches("\u{1b}]8;;h").count());
    }
}

#[test]
fn links_and_colours_of_code_are_for_terminals_with_colours() {
    let story = Story::new().script((0..5).map(|_| says(CODE_AND_LINKS)));
    let is_plain = |text: &str| !text.contains('\u{1b}');
    for (name, value, flags) in
        [("NO_COLOR", "1", ""), ("TERM", "dumb", ""), ("LANG", "C.UTF-8", "--color=never")]
    {
        let arguments = ["agent", "--new", "-q", "-m", "x", flags];
        let arguments = arguments.iter().filter(|word| !word.is_empty());
        let mut screen = story.screen(30, 80).env(name, value).args(arguments);
        assert_eq!(screen.code(), 0);
        let raw = String::from_utf8(screen.raw()).unwrap();
        assert!(is_plain(&raw), "{name} {flags}: {raw:?}");
    }
    // A pipe gets the model's text, also if colours are asked for.
    let text = format!("{CODE_AND_LINKS}\n");
    story.run(["agent", "--new", "-m", "x"]).stdout(&text);
    let always = ["agent", "--new", "-m", "x", "--color=always"];
    story.run(always).stdout(&text);
}

#[test]
fn an_address_cannot_leave_its_link() {
    // A link contains neither control characters nor characters that look like others.
    let evil = "<https://example.org/\u{1b}]8;;https://evil.example\u{1b}\\x> [a](https://example.org/\u{7}y) \
        [b](https://ex\u{430}mple.org/)";
    let story = Story::new().script([streams_text(evil, 1), streams_text(evil, 9)]);
    for _ in 0..2 {
        let mut screen = ask_on_screen(&story, (20, 120), &["-q"]);
        screen.exit();
        let raw = String::from_utf8(screen.raw()).unwrap();
        assert!(!raw.contains("\u{1b}]8;;https://e"), "{raw:?}");
        assert!(!raw.contains('\u{7}'), "{raw:?}");
    }
}
