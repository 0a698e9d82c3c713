//! `session export --format html`: one page that needs nothing else, in which no text becomes markup.

use crate::server::{calls, says};
use crate::story::Story;
use serde_json::json;

/// An answer with Markdown, and with what a browser would execute or load.
const ANSWER: &str = "# Plan\n\nSome **bold** text & `code <b>`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n\
    ```html\n<script>alert(1)</script>\n```\n\n<img src=\"https://evil.example/x\" onerror=\"alert(2)\">\n\n\
    ![image](https://evil.example/y.png) [link](https://example.org/) [bad](javascript:alert(3))";

#[test]
fn a_session_is_one_harmless_page() {
    let story = Story::new()
        .file("notes.md", "milk </pre><script>alert(4)</script>\n")
        .script([calls("read_file", json!({ "path": "notes.md" })), says(ANSWER)]);
    let question = "what is in <i>notes.md</i>?\nand why?";
    story.run(["agent", "-s", "a<b", "-m", question]).stdout(&format!("{ANSWER}\n"));
    let page = story.run(["session", "export", "a<b", "--format", "html"]).text();
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"), "{page}");
    assert!(page.ends_with("</body>\n</html>\n"), "{page}");
    for part in [
        "<title>a&lt;b</title>",
        "<h1>a&lt;b</h1>",
        "<b>bold</b> text &amp; <code>code &lt;b&gt;</code>",
        "&lt;i&gt;notes.md&lt;/i&gt;?<br>and why?",
        "<details id=\"m3\"><summary>",
        "milk &lt;/pre&gt;&lt;script&gt;alert(4)",
        "<table>",
        "<a href=\"https://example.org/\">link</a>",
        "default-src 'none'",
    ] {
        assert!(page.contains(part), "{part} is missing:\n{page}");
    }
    for part in [
        "<script",
        "<img",
        "<link",
        "href=\"javascript",
        "@import",
        "url(",
        "<iframe",
        "onerror=\"",
    ] {
        assert!(!page.contains(part), "{part} is there:\n{page}");
    }
    // Each element ends, and in order.
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let name: String = tag.chars().take_while(|letter| !" >\n".contains(*letter)).collect();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "{page}"),
            None if ["!DOCTYPE", "meta", "br", "hr"].contains(&&*name) => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, [""; 0]);
    let arguments = ["session", "export", "a<b", "--format", "html", "-o", "page.html"];
    story.run(arguments).stdout("");
    assert_eq!(std::fs::read_to_string(story.dir().join("page.html")).unwrap(), page);
}
