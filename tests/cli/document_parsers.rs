//! Parsers of untrusted documents: one that crashes, loops or needs too much memory is an error of one document.

use crate::attach::png_image;
use crate::files::write_zip;
use crate::mail::mail_story;
use crate::requirements::require;
use crate::server::says;
use crate::story::Story;
use crate::web::{self, PageServer, fetch, page_response};
use serde_json::json;

/// The documents of this name ask the parser, in a test build, to do this.
fn marker(failure: &str) -> String {
    format!("parser test: {failure}")
}

#[test]
fn a_document_whose_parser_fails_cannot_be_read() {
    if !require("python3") {
        return;
    }
    let story = Story::new();
    let text = "<w:document><w:p><w:r><w:t>Dear all,</w:t></w:r></w:p></w:document>";
    for failure in ["crash", "memory", "files"] {
        let name = format!("{failure}.docx");
        write_zip(&story, &name, &[("word/document.xml", text), (&marker(failure), "")]);
    }
    let read =
        |name: &str| story.run(["tool", "run", "read_file", &json!({ "path": name }).to_string()]);
    for name in ["crash.docx", "memory.docx"] {
        read(name).status(1).stderr_has(
            "cannot be read: its parser crashed, or needed more than 1024 MiB of memory",
        );
    }
    // This parser fails unless it can neither open a file nor make a socket.
    assert!(read("files.docx").text().starts_with("1| Dear all,\n"));

    let mut image = png_image(3, 2);
    image.extend(marker("crash").bytes());
    let story = Story::new().file("a.png", image);
    story
        .run(["agent", "-m", "x", "-a", "a.png"])
        .status(65)
        .stderr_has("`a.png` is an image that cannot be read: its parser crashed");
}

#[test]
fn a_page_whose_parser_fails_is_read_tag_by_tag() {
    let fonts: String = (0..500).map(|number| format!("<b id={number}>")).collect();
    let pages = [
        format!("<!-- {} -->", marker("endless loop")),
        format!("<!-- {} -->", marker("crash")),
        "<div>".repeat(100_000),
        format!("{fonts}{}", "<p>x".repeat(100_000)),
        (0..5_000).map(|number| format!("<x{number}>")).collect(),
    ];
    let count = pages.len();
    let server = PageServer::start(move |path| {
        let number: usize = path.trim_start_matches('/').parse().unwrap();
        page_response("text/html", format!("the start{}", pages[number]))
    });
    let story = web::story();
    for number in 0..count {
        let text = fetch(&story, &server.url(&format!("/{number}"))).text();
        assert!(text.contains("the start"), "{number}: {text}");
    }
}

#[test]
fn a_mail_whose_parser_fails_is_answered_all_the_same() {
    let (story, server) = mail_story();
    let story = story.script([says("What did it say?")]);
    server.receive("hello", &marker("crash"));
    story.run(["channel", "poll"]);
    let raw = &story.requests()[0].raw;
    assert!(raw.contains("this mail cannot be read: its parser crashed"), "{raw}");
    assert_eq!(server.sent().len(), 1);
}
