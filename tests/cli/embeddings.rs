//! `memory search --meaning`: a server of embeddings, good and bad ones, and the index beside the memory.

use crate::server::{Request, Responder, Response, Server, fails, sends};
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
    for (responder, message) in [
        (fails(401, "wrong key"), "wrong key"),
        (fails(429, "quota"), "quota"),
        (sends(Response::json(500, &json!("junk"))), "status 500"),
        (sends(Response::text(200, "text/html", "<html>")), "no embeddings"),
        (sends(Response::json(200, &embedding(json!([1])))), "lacks the embedding of a text"),
        (sends(Response::json(200, &embedding(json!(["x"])))), "lacks the embedding of a text"),
        (sends(Response::text(200, "application/json", &"[".repeat(17 << 20))), "no embeddings"),
    ] {
        let (story, server) = story();
        server.always(responder);
        let result = story.run(["memory", "search", "--meaning", "x"]).status(69);
        drop(result.stderr_has(message));
        assert!(!index(&story).exists());
    }
}
