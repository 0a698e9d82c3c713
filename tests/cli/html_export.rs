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
        "<details id=\"m3\"><summary><code>read_file</code> notes.md</summary><pre>path: notes.md</pre><pre>1| milk ",
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
    let written_page = std::fs::read_to_string(story.dir().join("page.html")).unwrap();
    assert_eq!(written_page.replace(story.dir().to_str().unwrap(), "$DIR"), page);
}

#[test]
fn a_page_says_what_it_shows() {
    let answer = "# One\n## Two\n\nSee https://example.org/a?b=1&c=2.\n\n| n | price |\n|---|--:|\n| a | 10 |";
    let script = [calls("read_file", json!({ "path": "missing.md" })), says(answer)];
    let story = Story::new().set("models.scripted.price", json!({ "input": 1, "output": 1 }));
    let story = story.script(script);
    story.run(["agent", "-s", "k", "-m", "look"]).stdout(&format!("{answer}\n"));
    story.run(["session", "title", "k", "Prices <of> milk"]).stdout("");
    let page = story.run(["session", "export", "k", "--format", "html"]).text();
    for part in [
        "<title>Prices &lt;of&gt; milk</title>",
        "<h1>Prices &lt;of&gt; milk</h1><p>k · 2026-01-02 03:04 to 2026-01-02 03:04 · scripted · $0.0",
        " · $DIR</p>",
        "<summary><code>read_file</code> missing.md (failed)</summary>",
        "<h2>Two</h2>",
        "See <a href=\"https://example.org/a?b=1&amp;c=2\">https://example.org/a?b=1&amp;c=2</a>.",
        "<th>n</th><th style=\"text-align:right\">price</th>",
        "<td>a</td><td style=\"text-align:right\">10</td>",
    ] {
        assert!(page.contains(part), "{part} is missing:\n{page}");
    }
    // A call and its result are one element, and a reply that only calls needs none.
    assert_eq!(page.matches("<details").count(), 1, "{page}");
    assert_eq!(page.matches("<section").count(), 2, "{page}");
    // A heading is greater than the text, and greater than one of the next level.
    let size = |level: usize| {
        let (_, rest) = page
            .split_once(&format!("}}h{level}{{font-size:"))
            .or(page.split_once(&format!("\nh{level}{{font-size:")))
            .unwrap();
        rest.split_once("rem").unwrap().0.parse::<f64>().unwrap()
    };
    for level in 1..6 {
        assert!(size(level) > size(level + 1) && size(level) > 1.0, "{level}");
    }
    story
        .run(["session", "export", "k"])
        .stdout_has("# Prices <of> milk\n\nk, 2026-01-02 03:04 to");
}
