//! `memory search --meaning` and `session search --meaning`: a server of embeddings, good and bad ones, and the index beside what is
//! searched.

use crate::server::{Request, Responder, Response, Server, fails, says, sends};
use crate::story::Story;
use serde_json::{Value, json};
use std::path::PathBuf;

const MEMORY: &str =
    "# Facts\nDentist on Friday.\nThe car needs tyres.\nKey: sk-story-0123456789abcdef\n";

/// A server that knows two subjects: teeth and vehicles.
fn embeds() -> Responder {
    Box::new(|request: &Request| {
        let inputs = request.body["input"].as_array().unwrap().clone();
        let mentions =
            |text: &str, names: &[&str]| f64::from(names.iter().any(|name| text.contains(name)));
        let embedding = |input: &Value| {
            let text = input.as_str().unwrap().to_lowercase();
            json!([
                mentions(&text, &["dentist", "tooth"]),
                mentions(&text, &["car", "vehicle"]),
                0.1
            ])
        };
        let data: Vec<Value> = inputs
            .iter()
            .enumerate()
            .map(|(index, input)| json!({ "index": index, "embedding": embedding(input) }))
            .collect();
        Response::json(200, &json!({ "data": data, "usage": { "prompt_tokens": 12 } }))
    })
}

fn story() -> (Story, Server) {
    let server = Server::start();
    let story = Story::new()
        .workspace_file("memory/MEMORY.md", MEMORY)
        .workspace_file("memory/HISTORY.md", "[2026-01-01 10:00] Bought a second vehicle.\n")
        .set("memory.embeddings", json!({ "provider": "custom", "model": "minilm" }))
        .set(
            "providers.custom",
            json!({ "apiKey": "sk-story-0123456789abcdef", "apiBase": format!("http://127.0.0.1:{}/v1", server.port) }),
        );
    (story, server)
}

fn index(story: &Story) -> PathBuf {
    story.workspace().join("memory/.embeddings.json")
}

/// The texts in each request for embeddings.
fn request_texts(server: &Server) -> Vec<Vec<String>> {
    let requests = server.requests();
    let inputs = requests.iter().map(|request| request.body["input"].as_array().unwrap().clone());
    inputs
        .map(|inputs| inputs.iter().map(|input| input.as_str().unwrap().to_owned()).collect())
        .collect()
}

#[test]
fn the_memory_is_searched_by_meaning() {
    let (story, server) = story();
    server.always(embeds());
    let search = |text: &str| story.run(["memory", "search", "--meaning", text]).text();
    let first_line = |text: &str| search(text).lines().next().unwrap().to_owned();
    assert_eq!(
        first_line("my tooth hurts"),
        "~/.nanobot/workspace/memory/MEMORY.md:2: Dentist on Friday."
    );
    let request = &server.requests()[0];
    assert_eq!(
        (request.path.as_str(), &request.body["model"]),
        ("/v1/embeddings", &json!("minilm"))
    );
    assert_eq!(request.header("authorization"), Some("Bearer sk-story-0123456789abcdef"));
    // All lines once, without the key among them, and then the text that is searched.
    assert!(request.raw.contains("Key: ***") && !request.body.to_string().contains("sk-story"));
    let lines = request_texts(&server);
    assert_eq!(
        (lines.len(), lines[0].len(), lines[1].as_slice()),
        (2, 5, &["my tooth hurts".to_owned()][..])
    );
    let result = story.run(["memory", "search", "--meaning", "vehicle", "--json"]).json_lines();
    let closest: Vec<&str> =
        result[..2].iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert!(closest.contains(&"The car needs tyres."), "{closest:?}");
    assert!(closest.contains(&"[2026-01-01 10:00] Bought a second vehicle."), "{closest:?}");
    assert!(result[0]["score"].as_f64().unwrap() > 0.9);
    assert_eq!(request_texts(&server).len(), 3, "the index has the lines");
    // A changed line, a removed index, and another model.
    let story = story.workspace_file("memory/MEMORY.md", MEMORY.replace("Friday", "Monday"));
    story.run(["memory", "search", "--meaning", "tooth"]).stdout_has("Dentist on Monday.");
    assert_eq!(request_texts(&server)[3], ["Dentist on Monday."]);
    assert!(!std::fs::read_to_string(index(&story)).unwrap().contains("Friday"));
    std::fs::remove_file(index(&story)).unwrap();
    story.run(["memory", "search", "--meaning", "tooth"]).text();
    assert_eq!(request_texts(&server)[5].len(), 5);
    let story = story.set("memory.embeddings.model", json!("other"));
    story.run(["memory", "search", "--meaning", "tooth"]).text();
    assert_eq!(request_texts(&server)[7].len(), 5);
    let ledger = std::fs::read_to_string(story.home().join(".nanobot/usage.jsonl")).unwrap();
    assert!(ledger.contains("\"embeddings\""), "{ledger}");
}

#[test]
fn the_index_is_for_this_search_alone_and_forget_removes_it() {
    let (story, server) = story();
    server.always(embeds());
    story.run(["memory", "search", "--meaning", "tooth"]).text();
    let count = server.requests().len();
    story
        .run(["memory", "search", "Dentist"])
        .stdout("~/.nanobot/workspace/memory/MEMORY.md:2: Dentist on Friday.\n");
    assert_eq!(server.requests().len(), count);
    // A damaged index is made anew.
    std::fs::write(index(&story), "{").unwrap();
    story.run(["memory", "search", "--meaning", "tooth"]).stdout_has("Dentist on Friday.");
    let result = story.run(["forget", "--yes", "Dentist on Friday"]);
    drop((result.text(), result.error_text(), result.code()));
    drop(result);
    assert!(!index(&story).exists());
}

#[test]
fn a_search_by_meaning_fails_with_its_cause() {
    let unset = Story::new().workspace_file("memory/MEMORY.md", MEMORY);
    let result = unset.run(["memory", "search", "--meaning", "x"]).status(78);
    drop(result.stderr_has("needs `memory.embeddings.model`"));
    let embedding = |numbers: Value| json!({ "data": [{ "index": 0, "embedding": numbers }] });
    for (responder, status, message) in [
        (fails(401, "wrong key"), 77, "wrong key"),
        (fails(429, "quota"), 69, "quota"),
        (sends(Response::text(200, "text/html", "<html>")), 69, "no embeddings"),
        (sends(Response::json(200, &embedding(json!([1])))), 69, "lacks the embedding of a text"),
        (sends(Response::json(200, &embedding(json!(["x"])))), 69, "lacks the embedding of a text"),
        (sends(Response::text(200, "application/json", &"[".repeat(17 << 20))), 69, "larger than"),
    ] {
        let (story, server) = story();
        server.always(responder);
        let result = story.run(["memory", "search", "--meaning", "x"]).status(status);
        drop(result.stderr_has(message));
        assert!(!index(&story).exists());
    }
}

/// A story with three conversations about two subjects.
fn story_with_sessions() -> (Story, Server) {
    let server = Server::start();
    server.always(embeds());
    let base = format!("http://127.0.0.1:{}/v1", server.port);
    let story = Story::new()
        .set("memory.embeddings", json!({ "provider": "openai", "model": "minilm" }))
        .set("providers.openai", json!({ "apiKey": "sk-story-0123456789abcdef", "apiBase": base }));
    for (key, message, answer) in [
        ("work", "Which vehicle is in the garage?", "The red one."),
        ("home", "When is the dentist?", "On Friday."),
        ("cli:direct", "Say hello.", "Hello."),
    ] {
        story.server().script([says(answer)]);
        story.run(["agent", "-s", key, "-m", message]).stdout(&format!("{answer}\n"));
    }
    (story, server)
}

#[test]
fn sessions_are_searched_by_meaning() {
    let (story, server) = story_with_sessions();
    let search = |flags: &[&str]| story.run([&["session", "search", "--meaning"], flags].concat());
    let output = search(&["my tooth hurts"]).text();
    let line = output.lines().next().unwrap();
    let is_first = line.starts_with("home:1 ") && line.ends_with("user: When is the dentist?");
    assert!(is_first && output.lines().count() == 6, "{output}");
    let count = server.requests().len();
    let result = search(&["--json", "the car"]).json_lines();
    assert_eq!((&result[0]["session"], &result[0]["number"]), (&json!("work"), &json!(1)));
    assert!(result[0]["score"].as_f64().unwrap() > 0.9, "{result:?}");
    // Only the text that is searched is sent again, and one session is searched with the index of all.
    let only = search(&["-s", "cli:direct", "tooth"]).text();
    assert!(only.lines().count() == 2 && only.contains("cli:direct:1"), "{only}");
    assert_eq!(server.requests().len(), count + 2);
    search(&["-s", "nobody", "tooth"]).status(66).error_text();
    // The text of a session that is removed is not kept in the index.
    let index = story.workspace().join("sessions/.embeddings.json");
    assert!(std::fs::read_to_string(&index).unwrap().contains("dentist"));
    story.run(["session", "rm", "home"]).error_text();
    assert!(!index.exists());
    let output = search(&["my tooth hurts"]).text();
    assert!(!output.contains("home:"), "{output}");
    let listed = story.run(["session", "list"]).text();
    assert!(!listed.contains("embeddings"), "{listed}");
    let forget = |arguments: &[&str]| {
        let result = story.run([&["forget", "--yes"], arguments].concat());
        drop((result.text(), result.error_text(), result.code()));
    };
    forget(&["red one"]);
    assert!(!index.exists());
    search(&["hello"]).text();
    // The directory of old releases has no index of its own.
    let old = story.home().join(".nanobot/sessions");
    std::fs::create_dir_all(&old).unwrap();
    let (log, path) = ("cli_direct.jsonl", story.workspace().join("sessions"));
    std::fs::rename(path.join(log), old.join(log)).unwrap();
    assert!(index.exists());
    story.run(["session", "rm", "cli:direct"]).error_text();
    assert!(!index.exists());
    story.run(["session", "restore", "cli:direct"]).error_text();
    // Of one session nothing else is sent, and the index keeps the others.
    let sent_of = |key: &str, text: &str| -> Vec<Vec<String>> {
        let count = server.requests().len();
        search(&["-s", key, text]).text();
        request_texts(&server).split_off(count)
    };
    assert_eq!(sent_of("cli:direct", "tea"), [vec!["Hello.", "Say hello."], vec!["tea"]]);
    assert_eq!(sent_of("work", "tea").len(), 2);
    assert_eq!(sent_of("cli:direct", "tea"), [["tea"]]);
    forget(&["--session", "work"]);
    assert!(!index.exists());
    // A copy is searched if it is named.
    story.run(["session", "fork", "cli:direct", "rewind:1"]).error_text();
    let all = search(&["tea"]).text();
    assert!(!all.contains("rewind:"), "{all}");
    search(&["-s", "rewind:1", "tea"]).stdout_has("rewind:1:1");
    let unset = Story::new();
    unset.run(["session", "search", "--meaning", "x"]).status(78).stderr_has("needs `memory.emb");
}

#[test]
fn what_was_paid_for_is_kept_when_the_next_request_fails() {
    let (story, server) = story();
    let lines: String = (0..70).map(|number| format!("Fact {number}.\n")).collect();
    let story = story.workspace_file("memory/MEMORY.md", lines);
    server.script([embeds(), fails(401, "expired")]);
    story.run(["memory", "search", "--meaning", "x"]).status(77).stderr_has("expired");
    server.always(embeds());
    story.run(["memory", "search", "--meaning", "x"]).text();
    let counts: Vec<usize> = request_texts(&server).iter().map(Vec::len).collect();
    assert_eq!(counts, [64, 7, 7, 1]);
}

#[test]
fn embeddings_are_within_the_budget() {
    let (story, server) = story();
    server.always(embeds());
    // The models of this machine are free, and this address does not look like one of it.
    let base = format!("http://127.1:{}/v1", server.port);
    let story = story.set("providers.custom.apiBase", json!(base));
    let story = story.set("budget", json!({ "daily": 0.000_01 }));
    let search = |story: &Story| {
        let result = story.run(["memory", "search", "--meaning", "tooth"]);
        drop((result.text(), result.error_text()));
        let status = result.code();
        drop(result);
        status
    };
    let refused = story.run(["memory", "search", "--meaning", "tooth"]);
    refused
        .status(78)
        .stderr_has("the price of `minilm` is unknown, so `budget` cannot be enforced");
    assert!(server.requests().is_empty());
    let story = story.set("models", json!({ "minilm": { "price": { "input": 1, "output": 0 } } }));
    assert_eq!(search(&story), 4, "the first request has used it up");
    assert_eq!(server.requests().len(), 1);
    let ledger = std::fs::read_to_string(story.home().join(".nanobot/usage.jsonl")).unwrap();
    let line: Value = serde_json::from_str(ledger.lines().last().unwrap()).unwrap();
    assert_eq!((&line["cause"], &line["input"]), (&json!("embeddings"), &json!(12)));
    assert_eq!(line["usd"], json!(0.000_012));
    // A search belongs to no session, and so do all of them together.
    let story = story.set("budget", json!({ "perSession": 0.000_01 }));
    assert_eq!(search(&story), 0);
    let without = story.set("budget", json!({}));
    assert_eq!(search(&without), 0);
}

#[test]
fn a_key_that_goes_out_unencrypted_is_reported() {
    let (story, server) = story();
    server.always(embeds());
    // This address does not look like one of this machine.
    let base = format!("http://127.1:{}/v1", server.port);
    let story = story.set("providers.custom.apiBase", json!(base));
    let result = story.run(["memory", "search", "--meaning", "tooth"]);
    let notice = "the API key is sent to http://127.1";
    assert_eq!(result.error_text().matches(notice).count(), 1);
    result.text();
}
