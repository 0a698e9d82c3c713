//! `context`: a table of the parts of a request, their token counts, and their sources.

use crate::server::says;
use crate::story::Story;
use serde_json::{Value, json};

/// The named cells of the table: part, tokens.
fn table_cells(table: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let mut cells = line.split("  ").map(str::trim).filter(|word| !word.is_empty());
        let (part, tokens) = (cells.next()?, cells.next()?);
        Some((part.to_owned(), tokens.parse().ok()?))
    };
    table.lines().filter_map(row).collect()
}

#[test]
fn the_parts_of_a_request_add_up() {
    let story = Story::new()
        .workspace_file("AGENTS.md", "Be brief.")
        .workspace_file("memory/MEMORY.md", "The cat is Mia.")
        .script([says("one")]);
    story.run(["agent", "-m", "first"]).stdout("one\n");
    let table = story.run(["agent", "-m", "second", "-s", "cli:direct", "--dry-run=table"]).text();
    let cells = table_cells(&table);
    let parts: Vec<&str> = cells.iter().map(|(part, _)| part.as_str()).collect();
    let expect =
        ["identity", "AGENTS.md", "memory", "skills", "tools", "history", "message", "TOTAL"];
    assert_eq!(parts, expect, "{table}");
    let sum: u64 = cells.iter().rev().skip(1).map(|(_, tokens)| tokens).sum();
    let total = cells.last().unwrap().1;
    assert!(total.abs_diff(sum) <= 8, "{table}");
    assert!(
        table.contains("2 messages, starting at number 1")
            && table.contains("from the provider's last count")
    );
    // No request was sent and nothing was stored.
    assert_eq!(story.requests().len(), 1);
    let first = story.run(["session", "context"]).text();
    assert!(!first.contains("\nmessage ") && first.contains("\nhistory "), "{first}");
    // The estimate is within a tenth of the server's count for the next request.
    story.server().script([says("two")]);
    story.run(["agent", "-m", "second"]).stdout("two\n");
    let counted = story.requests()[1].raw.len() as u64 / 4;
    assert!(total.abs_diff(counted) * 10 < counted, "{total} {counted}");
}

#[test]
fn unsent_parts_are_listed() {
    let story = Story::new().set("agents.defaults.memoryWindow", json!(4));
    for turn in 0..3 {
        story.server().script([says(&"yes ".repeat(300))]);
        story.run(["agent", "-m", &format!("say {turn}")]).stdout_has("yes yes");
    }
    let table = story.run(["session", "context", "cli:direct"]).text();
    assert!(
        table.contains("not sent: messages 1 to 2: before the window of 4 messages"),
        "{table}"
    );
    story.server().script([says("- yes thrice")]);
    drop(story.run(["session", "compact", "cli:direct", "be", "brief"]).text());
    assert!(story.requests()[3].last_content().ends_with("Instructions from the user: be brief"));
    let table: Value = story.run(["session", "context", "cli:direct", "--json"]).json();
    let parts: Vec<&str> = table["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["part"].as_str().unwrap())
        .collect();
    assert!(parts.contains(&"summary") && !parts.contains(&"history"), "{table}");
    assert_eq!(table["not_sent"], json!(["1 to 6: compacted: replaced by the summary"]));
    story.run(["agent", "-m", "x", "--new", "--replay", "demo", "-s", "cli:direct"]).text();
    let table = story.run(["session", "context"]).text();
    assert!(table.contains("1 to 6: consolidated") && !table.contains("summary"), "{table}");
}

#[test]
fn a_missing_session_is_named() {
    let story = Story::new();
    for command in ["context", "compact"] {
        story
            .run(["session", command, "nobody"])
            .status(66)
            .stderr_has("there is no session `nobody`");
    }
}

#[test]
fn the_table_needs_no_provider() {
    let story = Story::bare();
    let table = story.run(["agent", "-m", "hi", "--dry-run=table"]).text();
    assert!(table.contains("\nTOTAL ") && table.contains("context window 200000"), "{table}");
}
