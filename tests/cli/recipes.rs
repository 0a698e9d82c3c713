//! The recipes for scripts: each line is run as it stands in the page, against a scripted provider.

use crate::page_commands::{answers, elsewhere, prints, run_line, run_page};
use crate::requirements::require;
use crate::server::{calls, fails, says};
use crate::story::{Story, write};
use serde_json::json;

#[test]
fn recipes_for_scripts_do_what_they_say() {
    if !(require("git") && require("jq") && require("make")) {
        return;
    }
    let story = Story::new();
    for (name, text) in [
        ("report.txt", "A long report.\n"),
        ("draft.txt", "Tea att four.\n"),
        ("Makefile", "all:\n\tfalse\n"),
        ("app.log", "ok\nError: disk\n"),
        ("old.conf", "a = 1\n"),
        ("new.conf", "a = 2\n"),
        ("schema.sql", "create table orders (id int);\n"),
        ("add.py", "def add(a, b): return a + b\n"),
        ("bill.txt", "Tea, 3 euros\n"),
        ("comments.txt", "lovely\nawful\n"),
        ("house-style/SKILL.md", "No adverbs.\n"),
        ("mail.eml", "Subject: You won\n\nClick.\n"),
    ] {
        write(&story.dir().join(name), text.as_bytes());
    }
    let git = "git init -q && git config user.name Ada && git config user.email ada@example.org && git add add.py \
               && git commit -qm 'add: begin' && echo '# more' >> add.py && git add add.py";
    run_line(&story, git, &[]);
    let code = |language: &str, text: &str| says(&format!("Here:\n\n```{language}\n{text}\n```\n"));
    let rows = vec![
        answers("three sentences", [says("Short.")], "Short.\n"),
        answers("into French", [says("Un rapport.")], ""),
        answers("correct the spelling", [says("Tea at four.")], ""),
        answers("why does this fail", [says("`false` fails.")], "`false` fails.\n"),
        answers("group these by cause", [says("- disk")], ""),
        answers("what changes for a user", [says("a is 2.")], "a is 2.\n"),
        answers("--extract=awk", [code("awk", "{ s += $3 } END { print s }")], ""),
        answers("ISO dates", [code("", "[0-9]{4}-[0-9]{2}-[0-9]{2}")], ""),
        answers("customers without orders", [code("sql", "select 1;")], ""),
        answers("pytest tests", [code("python", "from add import add")], ""),
        answers("write a commit message", [says("add: a comment")], ""),
        answers("serious bool", [says(r#"{"serious": false, "notes": []}"#)], "true\n"),
        answers("release notes", [says("- begin")], ""),
        answers(
            "where is the price",
            [calls("grep", json!({ "pattern": "def" })), says("In add.py.")],
            "In add.py.\n",
        ),
        answers(
            "add a docstring",
            [
                calls(
                    "edit_file",
                    json!({ "path": "add.py", "old_text": "# more", "new_text": "# doc" }),
                ),
                says("Added."),
            ],
            "",
        ),
        prints("nanobot apply", "+# doc\n"),
        answers(
            "say hello in hello.sh",
            [
                calls("write_file", json!({ "path": "hello.sh", "content": "echo hello\n" })),
                says("It says hello."),
            ],
            "It says hello.\n",
        ),
        answers(
            "name, amount number",
            [says(r#"{"name": "Tea", "amount": 3, "tags": []}"#)],
            "Tea\t3\n",
        ),
        answers("the mood of", [says("Good."), says("Good.")], "Good.\nGood.\n"),
        answers("a title", ["A"; 7].map(says), ""),
        answers("spam bool", [says(r#"{"spam": true}"#)], "spam\n"),
        prints("--save shorter", ""),
        answers("run shorter 5", [says("Shorter.")], "Shorter.\n"),
        answers("--skill ./house-style", [says("A report.")], "A report.\n"),
        elsewhere("--mcp .mcp.json", "one_run::servers_of_a_file_are_the_only_ones_of_a_bare_run"),
        answers("--fallback small", [fails(404, "gone"), says("News.")], "News.\n"),
        prints("--replay demo", "demo"),
    ];
    let page = include_str!("../../recipes/scripts.md");
    let output = run_page(&story, page, &[], rows);
    let read = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap();
    assert_eq!(read("rapport.txt"), "Un rapport.\n");
    assert_eq!(read("fixed.txt"), "Tea at four.\n");
    assert_eq!(read("causes.md"), "- disk\n");
    assert_eq!(read("sum.awk"), "{ s += $3 } END { print s }\n");
    assert_eq!(read("date.re"), "[0-9]{4}-[0-9]{2}-[0-9]{2}\n");
    assert_eq!(read("query.sql"), "select 1;\n");
    assert_eq!(read("test_add.py"), "from add import add\n");
    assert_eq!(read("message.txt"), "add: a comment\n");
    assert_eq!(read("report.txt.md"), "A\n");
    assert!(read("add.py").contains("# doc\n"));
    assert_eq!(read("hello.sh"), "echo hello\n");
    // The model is offered only the tools that a line names.
    for request in story.requests() {
        let tools = request.body["tools"].as_array().map_or(0, Vec::len);
        let counts = [("where is the price", 3), ("add a docstring", 2)];
        let named = counts.iter().find(|(text, _)| request.raw.contains(text));
        let is_bare = !request.raw.contains("say hello in hello.sh");
        assert!(!is_bare || tools == named.map_or(0, |(_, count)| *count), "{output}");
    }
}
