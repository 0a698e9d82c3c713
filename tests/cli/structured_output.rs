//! `--schema`: structured output that a program can parse, or an error.

use crate::server::{calls, replies, says};
use crate::story::{NANOBOT, Story};
use serde_json::json;

#[test]
fn schema_output_prints_only_json() {
    let story = Story::new().script([
        calls("list_dir", json!({})),
        says("```json\n{\"name\": \"Ada\", \"age\": 36}\n```"),
    ]);
    story
        .run(["agent", "-m", "who?", "--schema", "name, age int"])
        .stdout("{\"name\": \"Ada\", \"age\": 36}\n");
    let request = &story.requests()[0];
    assert_eq!(request.body["response_format"], json!(null), "of this server nothing is known");
    let system = request.messages()[0]["content"].clone();
    let phrase = "\"required\":[\"name\",\"age\"]";
    assert!(system.as_str().unwrap().contains(phrase));
    story.server().script([says("{\"name\": \"Ada\", \"age\": 36}")]);
    let result = story.run(["agent", "-m", "who?", "--schema", "name, age int", "--json"]).json();
    assert_eq!(result["data"], json!({ "name": "Ada", "age": 36 }));
}

#[test]
fn an_answer_that_violates_the_schema_is_repaired_or_rejected() {
    let story = Story::new().script([
        says("Ada is 36."),
        says("{\"name\": \"Ada\"}"),
        says("{\"name\": \"Ada\", \"age\": 36}"),
    ]);
    story
        .run(["agent", "-m", "who?", "--schema", "name, age int"])
        .stdout("{\"name\": \"Ada\", \"age\": 36}\n");
    let requests = story.requests();
    assert!(requests[1].last_content().contains("not valid JSON"));
    assert!(requests[2].last_content().contains("missing properties 'age'"));
    let story = Story::new();
    story.server().always(says("Ada is 36."));
    story
        .run(["agent", "-m", "who?", "--schema", "name, age int"])
        .status(65)
        .stdout("")
        .stderr_has("nanobot: the last answer, which is not printed:\nAda is 36.\n")
        .stderr_has("no answer satisfied the schema");
    assert_eq!(story.requests().len(), 3);
    let result = story
        .run(["agent", "-m", "who?", "--schema", "name", "--json"])
        .status(65)
        .stderr_has("no answer satisfied");
    assert_eq!(result.json()["data"], json!(null));
}

#[test]
fn schema_accepts_a_file_json_or_field_list() {
    let schema = json!({ "type": "array", "items": { "type": "integer", "minimum": 5 } });
    let story = Story::new().file("schema.json", schema.to_string()).script([
        says("[5, 6]"),
        says("[1]"),
        says("[7]"),
    ]);
    story.run(["agent", "-m", "n", "--schema", "schema.json"]).stdout("[5, 6]\n");
    story.run(["agent", "-m", "n", "--schema", &schema.to_string()]).stdout("[7]\n");
    for (bad, message) in [
        ("{", "is not valid JSON"),
        ("{\"type\": 5}", "is not a valid JSON schema: at /type: 5: "),
        (r#"{"items": {"type": "objet"}}"#, r#"at /items/type: "objet": value must be one of"#),
        (r##"{"$ref": "#/x"}"##, "#/x"),
        ("missing.json", "nor an existing file"),
        ("a money", "is neither a field"),
    ] {
        let result = story.run(["agent", "-m", "n", "--schema", bad]).status(2).stderr_has(message);
        assert!(!result.error_text().contains("schema.invalid"));
    }
}

#[test]
fn pipes_are_read_where_a_file_is_named_and_a_wait_is_told() {
    let story = Story::new().script([says(r#"{"days":3}"#), says("Read."), says("Run.")]);
    let schema = r#"{"type":"object","properties":{"days":{"type":"integer"}}}"#;
    let line = format!("exec {NANOBOT} agent -m x --schema <(echo '{schema}')");
    let mut shell = story.program("bash");
    shell.args(["-c", &line]);
    story.wait(story.start(&mut shell)).stdout("{\"days\":3}\n");
    let fifo = story.dir().join("pipe");
    assert!(story.program("mkfifo").arg(&fifo).status().unwrap().success());
    for arguments in [&["agent", "-m", "x", "-a", "pipe"][..], &["run", "./pipe"]] {
        let mut screen = story.screen(24, 80).args(arguments);
        screen.until("nanobot: waiting for `").until("pipe`");
        std::fs::write(&fifo, "what it is about").unwrap();
        assert_eq!(screen.code(), 0, "{}", screen.text());
        let message = story.last_request().last_content();
        assert!(message.contains("what it is about"), "{message}");
    }
}

#[test]
fn a_server_with_schema_support_receives_the_schema() {
    let story = Story::new().set("agents.defaults.provider", json!("ollama"));
    let body = story.run(["agent", "-m", "x", "--schema", "a", "--dry-run"]).json();
    let schema = &body["response_format"]["json_schema"]["schema"];
    assert_eq!(schema["required"], json!(["a"]));
}

#[test]
fn a_declined_or_truncated_answer_is_not_requested_again() {
    for (finish, status, message) in [
        ("content_filter", 1, "declined to answer"),
        ("length", 3, "truncated by the output limit"),
    ] {
        let half = json!({ "content": "{\"a\": " });
        let story = Story::new().script([replies(half, finish)]);
        story.run(["agent", "-m", "x", "--schema", "a"]).status(status).stderr_has(message);
    }
}

#[test]
fn the_closing_answer_satisfies_the_schema_too() {
    let story = Story::new().script([
        calls("list_dir", json!({})),
        says("I ran out."),
        calls("list_dir", json!({})),
        says("```\n{\"a\": \"so far\"}\n```"),
    ]);
    let flags = ["agent", "-m", "x", "--schema", "a", "--max-iterations", "1"];
    story.run(flags).status(65).stderr_has("not valid JSON").stderr_has("I ran out.");
    story.run(["session", "show"]).stdout_has("I ran out.");
    story.run(flags).status(3).stdout("{\"a\": \"so far\"}\n").stderr_has("limit of 1 request");
}
