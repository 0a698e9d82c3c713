//! Runs of scripts: without anything private, with a system prompt of their own, and with the code of an answer alone.

use crate::formats::Format;
use crate::server::{calls, says};
use crate::story::Story;
use serde_json::json;

/// The system prompt of a request.
fn system_prompt(story: &Story) -> String {
    story.last_request().messages()[0]["content"].as_str().unwrap().to_owned()
}

#[test]
fn a_bare_run_sends_the_same_from_any_home() {
    let body_of = |is_furnished: bool, arguments: &[&str]| {
        let mut story = Story::new();
        if is_furnished {
            story = story
                // Beyond what is sent of a memory, which is reported.
                .workspace_file("memory/MEMORY.md", "Ada drinks tea.\n".repeat(40_000))
                .workspace_file("USER.md", "The user is Ada.")
                .workspace_file("SOUL.md", "Be poetic.")
                .workspace_file(
                    "skills/tea/SKILL.md",
                    "---\nname: tea\ndescription: Tea\nalways: true\n---\nBrew.",
                )
                .file("AGENTS.md", "Speak Latin.")
                .file("notes.md", "milk")
                .set("agents.defaults.timezone", json!("Asia/Tokyo"))
                .set("tools.mcpServers", json!({ "gone": { "command": "/nonexistent/server" } }))
                .set("hooks", json!({ "pre_turn": [{ "command": "echo Hooked." }] }));
            let trusted = story.run(["trust"]);
            assert!(trusted.text().contains("AGENTS.md"), "{}", trusted.error_text());
            story.server().script([says("Earlier.")]);
            story.run(["agent", "-m", "an earlier message"]).stdout("Earlier.\n").error_text();
        }
        story.server().script([says("Hi.")]);
        let result = story.run(["agent", "--bare"].iter().chain(arguments));
        result.stdout("Hi.\n").stderr("");
        let raw = story.last_request().raw;
        for private in
            ["/tmp", "2026-01", "tea", "Ada", "Latin", "poetic", "Hooked", "Linux", "earlier"]
        {
            assert!(!raw.contains(private), "{private}: {raw}");
        }
        raw
    };
    let check =
        |arguments: &[&str]| assert_eq!(body_of(false, arguments), body_of(true, arguments));
    check(&["-m", "hello"]);
    check(&["--system", "Answer in one word.", "--tools", "read_file,grep", "hello"]);
    // With all tools, a server of the config would be started.
    check(&["--tools", "*", "hello"]);
}

#[test]
fn a_bare_run_stores_nothing_and_reads_no_instructions() {
    let story = Story::new()
        .file("sub/notes.md", "milk")
        .file("sub/AGENTS.md", "Speak Latin.")
        .script([says("One."), says("Two.")]);
    let trusted = story.run(["trust"]);
    assert!(trusted.text().contains("trusted"), "{}", trusted.error_text());
    trusted.error_text();
    story.run(["agent", "--bare", "-m", "hello"]).stdout("One.\n");
    assert!(story.requests()[0].body["tools"].is_null());
    story.run(["session", "list", "--all"]).stdout("");
    story.run(["agent", "--bare", "-m", "hello"]).stdout("Two.\n");
    assert_eq!(story.requests()[0].raw, story.requests()[1].raw);
    story.server().script([calls("read_file", json!({ "path": "sub/notes.md" })), says("Milk.")]);
    let read = ["agent", "--bare", "--tools", "read_file", "-m", "read"];
    story.run(read).stdout("Milk.\n").error_text();
    let result = story.last_request().last_content();
    assert!(result.contains("milk") && !result.contains("Speak Latin."), "{result}");
    for flag in ["--new", "--resume", "--continue", "--session=x", "--fork=x"] {
        story.run(["agent", "--bare", flag, "-m", "x"]).status(2).stderr_has("cannot be used with");
    }
}

/// Rules, limits and strict hooks hold as without the flag.
#[test]
fn a_bare_run_widens_nothing() {
    let read = |path: &str| calls("read_file", json!({ "path": path }));
    let story = Story::new()
        .file("notes.md", "milk\n")
        .file("secret.md", "hunter2\n")
        .set("tools.deny", json!(["read_file(secret.md)"]))
        .script([read("notes.md"), read("secret.md"), says("Done.")]);
    story
        .run(["agent", "--bare", "--tools", "read_file", "-m", "read"])
        .stdout("Done.\n")
        .error_text();
    assert!(story.requests()[1].last_content().contains("milk"));
    let denied = story.requests()[2].last_content();
    assert!(denied.contains("Tool call denied") && !denied.contains("hunter2"), "{denied}");

    let write_notes = calls("write_file", json!({ "path": "notes.md", "content": "x" }));
    story.server().script([write_notes, says("Done.")]);
    story
        .run(["agent", "--bare", "--tools", "write_file", "-m", "write"])
        .stdout("Done.\n")
        .error_text();
    assert_eq!(std::fs::read_to_string(story.dir().join("notes.md")).unwrap(), "milk\n");

    let strict = json!({ "pre_turn": [{ "command": "echo no >&2; exit 2", "strict": true }] });
    let story = Story::new().set("hooks", strict);
    let refused = story.run(["agent", "--bare", "-m", "hello"]);
    assert_ne!(refused.code(), 0);
    refused.error_text();
    assert!(story.requests().is_empty());
    let story = Story::new().set("budget.daily", json!(0.0));
    story.run(["agent", "--bare", "-m", "hello"]).status(4).stderr_has("`budget.daily`");
    assert!(story.requests().is_empty());
}

#[test]
fn the_system_prompt_is_given_by_a_flag() {
    let story =
        Story::new().file("role.md", "You are a parrot.\n").workspace_file("USER.md", "Ada.");
    let system = |arguments: &[&str]| {
        story.server().script([says("Hi.")]);
        story.run(["agent", "--new", "-m", "x"].iter().chain(arguments)).stdout("Hi.\n");
        system_prompt(&story)
    };
    let prompt = system(&["--system", "@role.md", "--append-system", "Be brief."]);
    assert!(prompt.starts_with("You are a parrot.\n"), "{prompt}");
    assert!(!prompt.contains("You are nanobot") && prompt.contains("Ada."), "{prompt}");
    assert!(prompt.contains("Permissions") && prompt.ends_with("Be brief."), "{prompt}");
    let prompt = system(&["--append-system", "Be brief."]);
    assert!(prompt.contains("You are nanobot") && prompt.ends_with("Be brief."), "{prompt}");
    let prompt = system(&["--system-prompt", "Only this."]);
    assert!(prompt.starts_with("Only this."), "{prompt}");
    story.run(["agent", "--system", "@gone.md", "-m", "x"]).status(66).stderr_has("gone.md");
}

const ANSWER: &str = "Two ways:\n```sh\nls -l\n```\nor\n```py\nprint(1)\r\n```\nDone.";

#[test]
fn the_code_of_an_answer_is_extracted() {
    let check = |arguments: &[&str], expect: &str| {
        let story = Story::new().script([says(ANSWER)]);
        story.run(["agent", "-m", "x"].iter().chain(arguments)).stdout(expect);
    };
    check(&["-x"], "ls -l\n");
    check(&["--extract=PY"], "print(1)\r\n");
    check(&["--bare", "-x"], "ls -l\n");
    let story = Story::new().script([says(ANSWER), says("No code.")]);
    let result = story.run(["agent", "-x", "--json", "-m", "x"]).json_lines();
    assert_eq!(result[0]["code"], "ls -l\n");
    assert_eq!(result[0]["text"], ANSWER);
    let result = story
        .run(["agent", "-x", "--json", "-m", "x"])
        .status(65)
        .stderr_has("no code block")
        .json_lines();
    assert_eq!(result[0]["code"], json!(null));
    assert_eq!(result[0]["error"]["message"], "the answer has no code block");
    story.server().script([says(ANSWER)]);
    story
        .run(["agent", "--extract=rust", "-m", "x"])
        .status(65)
        .stdout("")
        .stderr_has("print(1)")
        .stderr_has("nanobot: the answer has no code block of `rust`\n");
    story.run(["agent", "-x", "--schema", "a", "-m", "x"]).status(2).stderr_has("cannot be used");
}

#[test]
fn a_program_is_made_by_one_line() {
    let story = Story::new().script([says("Here:\n```awk\n{ sum += $3 } END { print sum }\n```")]);
    let line = "nanobot agent --bare -x -m 'awk: sum of column 3' > sum.awk && printf '1 2 3\\n4 5 6\\n' | awk -f sum.awk";
    let (stdout, _) = crate::page_commands::run_line(&story, line, &[]);
    assert_eq!(stdout, "9\n");
}

/// Fields of the body that a provider offers beside our flags.
#[test]
fn options_are_fields_of_the_request() {
    let story = Story::new().script([says("Hi.")]).allow_extra_keys(&["top_p", "seed", "tier"]);
    let options =
        ["-o", "top_p=0.9", "-o", "seed=7", "--option", "tier=flex", "--verbosity", "low"];
    story.run(["agent", "-m", "hello"].iter().chain(&options)).stdout("Hi.\n").stderr("");
    let body = &story.requests()[0].body;
    assert_eq!(
        [&body["top_p"], &body["seed"], &body["tier"], &body["verbosity"]],
        [&json!(0.9), &json!(7), &json!("flex"), &json!("low")]
    );
    for (option, flag) in [
        ("model=x", "--model"),
        ("messages=[]", "--message"),
        ("tools=[]", "--tools"),
        ("stream=false", "--no-stream"),
        ("max_tokens=9", "--max-tokens"),
    ] {
        let refused = story.run(["agent", "-m", "hello", "-o", option]).status(2);
        refused.stderr_has(&format!("is set by `{flag}`"));
    }
    story.run(["agent", "-m", "hello", "-o", "top_p"]).status(2).stderr_has("expected KEY=VALUE");
    let responses = Story::in_format(Format::Responses, "gpt-5").script([says("Hi.")]);
    responses.run(["agent", "--verbosity", "low", "-m", "hello"]).stdout("Hi.\n").stderr("");
    assert_eq!(responses.requests()[0].body["text"], json!({ "verbosity": "low" }));
    let anthropic = Story::in_format(Format::Anthropic, "claude-sonnet-4-5")
        .allow_extra_keys(&["temperature"])
        .script([says("Hi.")]);
    anthropic
        .run(["agent", "--verbosity", "low", "-m", "hello"])
        .stdout("Hi.\n")
        .stderr_has("takes no verbosity: `low` is not sent");
}
