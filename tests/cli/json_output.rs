//! `--json`: what commands print for programs.

use crate::screen::Key;
use crate::server::says;
use crate::story::Story;
use serde_json::{Value, json};

/// The lines of JSON that a command prints.
#[track_caller]
fn lines_of(story: &Story, arguments: &[&str]) -> Vec<Value> {
    let text = story.run(arguments).status(0).text();
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    text.lines().map(line).collect()
}

#[test]
fn the_config_as_json() {
    let story = Story::new().set("notKnown", json!(1));
    let model = lines_of(&story, &["config", "get", "agents.defaults.model", "--json"]);
    assert_eq!(model[0]["value"], "scripted");
    assert_eq!(model[0]["key"], "agents.defaults.model");
    let all = lines_of(&story, &["config", "list", "--all", "--json"]);
    assert_eq!(all, lines_of(&story, &["config", "get", "--json"]));
    assert!(all.iter().any(|line| line["origin"] == "default"), "{all:?}");
    assert!(all.contains(&model[0]), "{all:?}");
    let secret = lines_of(&story, &["config", "get", "providers.custom.apiKey", "--json"]);
    assert_eq!(secret[0]["value"], "***");
    let lines = lines_of(&story, &["config", "check", "--json"]);
    assert_eq!(lines[0]["severity"], "warning");
    story.run(["config", "set", "agents.defaults.maxTokens", "77"]);
    story.run(["config", "unset", "agents.defaults.maxTokens"]).stdout("");
    story.run(["config", "unset", "agents.defaults.maxTokens"]).status(66).stderr_has("is not set");
    let story = story.env("NANOBOT_NO__SUCH", "1");
    let text = story.run(["config", "check", "--json"]).status(78).text();
    let mut findings = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(findings.any(|finding| finding["severity"] == "error"), "{text}");
}

#[test]
fn the_config_is_edited_and_checked() {
    let story = Story::new();
    story.run(["config", "edit"]).status(2).stderr_has("an editor needs a terminal");
    let screen = story.screen(24, 80).env("EDITOR", "sed -i s/scripted/other/");
    let mut screen = screen.args(["config", "edit"]);
    assert_eq!(screen.code(), 0, "{}", screen.text());
    story.run(["config", "get", "agents.defaults.model"]).stdout("other\n");
}

#[test]
fn a_broken_edit_of_the_config_does_not_replace_it() {
    let story = Story::new();
    let path = story.home().join(".nanobot/config.json");
    let before = std::fs::read_to_string(&path).unwrap();
    let edit = |editor: &str, answers: &[&str]| {
        let screen = story.screen(24, 80).env("EDITOR", editor);
        let mut screen = screen.args(["config", "edit"]);
        for answer in answers {
            screen.until("[d]iscard").type_(answer).press(Key::Enter);
        }
        let code = screen.code();
        (code, screen.text_with_scrollback())
    };
    let (code, screen_text) = edit("sed -i s/{/[/", &["k"]);
    assert_eq!(code, 78, "{screen_text}");
    let kept_path = screen_text.split("the edited text is in").nth(1).unwrap();
    let kept_path: String = kept_path.split_whitespace().collect();
    let kept_path = std::path::Path::new(&kept_path);
    assert!(std::fs::read_to_string(kept_path).unwrap().starts_with('['));
    std::fs::remove_file(kept_path).unwrap();
    let (code, screen_text) = edit("sed -i s/{/[/", &["d"]);
    assert_eq!(code, 0, "{screen_text}");
    assert!(screen_text.contains("nanobot: ~/.nanobot/config.json is unchanged"), "{screen_text}");
    // A value of a wrong type would stop every run, too.
    let (code, screen_text) = edit("sed -i 's/\"custom\":{/\"custom\":[],\"x\":{/'", &["d"]);
    assert_eq!(code, 0, "{screen_text}");
    let (code, screen_text) = edit("no-such-editor", &[]);
    assert_eq!(code, 1, "{screen_text}");
    assert!(screen_text.contains("there is no program `no-such-editor`"), "{screen_text}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
}

#[test]
fn sessions_and_memory_as_json() {
    let story = Story::new()
        .script([says("One.")])
        .workspace_file("memory/MEMORY.md", "- likes tea\n")
        .workspace_file(
            "sessions/old.jsonl",
            "{\"role\":\"user\",\"content\":\"hello\",\"timestamp\":\"2025-11-01T10:00:00.000000\"}\n",
        );
    let old = story.workspace().join("sessions/old.jsonl");
    let old = std::fs::File::options().write(true).open(old).unwrap();
    old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    story.run(["agent", "-m", "hello", "-s", "a"]).stdout("One.\n");
    assert_eq!(
        lines_of(&story, &["session", "fork", "a", "b", "--json"]),
        [json!({ "v": 1, "session": "b", "messages": 2 })]
    );
    assert_eq!(
        lines_of(&story, &["session", "title", "a", "--json"]),
        [json!({ "v": 1, "session": "a", "title": null })]
    );
    story.run(["session", "rm", "b", "-q"]).stdout("");
    let trash = lines_of(&story, &["session", "restore", "--json"]);
    assert_eq!(trash[0]["session"], "b");
    assert_eq!(
        lines_of(&story, &["session", "restore", "b", "--json"]),
        [json!({ "v": 1, "session": "b" })]
    );
    let repaired = lines_of(&story, &["-q", "session", "repair", "--all", "--json"]);
    assert_eq!(repaired[1]["repair"], "set to 0600", "{repaired:?}");
    let pruned = ["-q", "session", "prune", "--older-than", "30d", "--yes", "--json"];
    assert_eq!(lines_of(&story, &pruned)[0]["key"], "old");
    let memory = lines_of(&story, &["memory", "show", "--json"]);
    assert_eq!(memory[0]["text"], "- likes tea\n");
    assert_eq!(memory[0]["bytes"], 12);
    lines_of(&story, &["memory", "log", "--json"]);
    let path = story.workspace().join("memory/MEMORY.md");
    std::fs::write(path, "- likes coffee\n").unwrap();
    lines_of(&story, &["memory", "log", "--json"]);
    let diff = lines_of(&story, &["memory", "diff", "--json"]);
    assert!(diff[0]["diff"].as_str().unwrap().contains("+- likes coffee"), "{diff:?}");
}

#[test]
fn a_provider_as_json() {
    let story = Story::new();
    for name in ["githubCopilot", "github_copilot", "github-copilot"] {
        let lines = lines_of(&story, &["model", "provider", "show", name, "--json"]);
        assert_eq!(lines[0]["name"], "githubCopilot");
    }
    let text = story.run(["model", "provider", "show", "anthropic"]).text();
    assert!(text.contains("ANTHROPIC_API_KEY") && text.contains("model"), "{text}");
    story.run(["model", "provider", "show", "antropic"]).status(2).stderr_has("try: `anthropic`");
}

#[test]
fn a_run_of_a_job_as_json() {
    let story = Story::new().script([says("Done.")]);
    let added = ["-q", "cron", "add", "--every", "2h", "-n", "tea", "-m", "x", "--json"];
    assert_eq!(lines_of(&story, &added)[0]["change"], "added");
    let edited = lines_of(&story, &["-q", "cron", "edit", "tea", "--every", "3h", "--json"]);
    assert_eq!(edited[0]["change"], "changed");
    let result = lines_of(&story, &["-q", "cron", "run", "tea", "--json"]);
    assert_eq!(result.len(), 1);
    assert_eq!((&result[0]["name"], &result[0]["status"]), (&json!("tea"), &json!(0)));
    assert_eq!(result, lines_of(&story, &["cron", "logs", "tea", "--json"]));
    let enabled = lines_of(&story, &["-q", "heartbeat", "enable", "--json"]);
    assert_eq!(enabled[0]["id"], "heartbeat");
    let checked = lines_of(&story, &["-q", "heartbeat", "--json"]);
    assert_eq!(checked[0]["job"], "heartbeat");
}
