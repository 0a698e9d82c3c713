//! A session of many months: old facts stay available, and requests do not grow.

use crate::server::{Request, Responder, calls, says};
use crate::story::Story;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const FACT: &str = "My cat is called Mia.";

/// Per request: its purpose, its token count, and whether it contains the fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPurpose {
    Answer,
    Summary,
    Memory,
}

type RequestLog = Arc<Mutex<Vec<(RequestPurpose, usize, bool)>>>;

/// A model with long answers that reads a file now and then, summarizes without the fact, and consolidates by adding new
/// facts to the memory.
fn model(requests: RequestLog) -> Responder {
    Box::new(move |model_request: &Request| {
        let last = model_request.last_content();
        let (kind, answer) = if model_request.raw.contains("\"name\":\"save_memory\"") {
            (RequestPurpose::Memory, calls("save_memory", memory_arguments(&last)))
        } else if last.contains("Write this summary now") {
            (RequestPurpose::Summary, says("- they talked about this and that"))
        } else if last.contains("look it up") && !last.contains("lorem") {
            (RequestPurpose::Answer, calls("read_file", json!({ "path": "long.txt" })))
        } else {
            let text = format!("As you say. {}", "Quite so, my friend. ".repeat(20));
            (RequestPurpose::Answer, says(&text))
        };
        let request = (kind, model_request.raw.len() / 4, model_request.raw.contains(FACT));
        requests.lock().unwrap().push(request);
        answer(model_request)
    })
}

/// The arguments of `save_memory`: the old memory plus every new fact.
fn memory_arguments(question: &str) -> Value {
    let (memory, lines) =
        question.split_once("# Part of the conversation").expect("both are there");
    let (_, memory) = memory.split_once("<memory>\n").expect("it begins");
    let (memory, _) = memory.rsplit_once("</memory>").expect("it ends");
    let mut memory = memory.trim().replace("(empty)", "");
    for line in lines.lines().filter(|line| line.contains("My cat is")) {
        let (_, fact) = line.split_once("USER: ").expect("the user said it");
        if !memory.contains(fact) {
            memory.push_str(&format!("- {fact}\n"));
        }
    }
    json!({ "history_entry": "[2026-01-02 03:04] They talked.", "memory_update": memory })
}

#[allow(clippy::print_stdout, reason = "what each turn sends is to be seen")]
fn check_conversation(turn_count: usize) {
    let story = Story::new()
        .file("long.txt", "lorem ipsum dolor sit amet\n".repeat(200))
        .set("agents.defaults.memoryWindow", json!(60))
        .env("NANOBOT_MEMORY__CONSOLIDATE", "inline")
        .set("compaction.threshold", json!(6000));
    let requests = RequestLog::default();
    story.server().always(model(Arc::clone(&requests)));
    let mut sent = Vec::new();
    for turn in 1..=turn_count {
        let message = match turn {
            3 => format!("{FACT} Remember her."),
            _ if turn % 7 == 0 => format!("Turn {turn}: look it up"),
            _ => format!("Turn {turn}: {}", "and so on ".repeat(turn % 40)),
        };
        let before = requests.lock().unwrap().len();
        let result = story.run(["agent", "-m", &message]);
        assert!(result.text().starts_with("As you say."), "turn {turn}");
        drop(result.error_text());
        // The last request for the answer itself; the later ones are consolidation.
        let of_turn = requests.lock().unwrap()[before..].to_vec();
        let (_, tokens, answer) = of_turn
            .into_iter()
            .rfind(|(kind, ..)| *kind == RequestPurpose::Answer)
            .expect("there is one");
        assert!(turn < 3 || answer, "turn {turn} has forgotten it");
        sent.push(tokens);
    }
    for (number, tokens) in sent.chunks(25).enumerate() {
        println!("turns from {:>3} on: {tokens:?}", number * 25 + 1);
    }
    let requests = requests.lock().unwrap();
    let count =
        |tokens_of: RequestPurpose| requests.iter().filter(|(kind, ..)| *kind == tokens_of).count();
    let (summaries, memories) = (count(RequestPurpose::Summary), count(RequestPurpose::Memory));
    println!("{summaries} compactions, {memories} consolidations");
    assert!(summaries >= turn_count / 100, "{summaries}");
    assert!(memories >= turn_count / 50, "{memories}");
    let max_tokens = |turns: &[usize]| *turns.iter().max().expect("there are some");
    assert!(
        max_tokens(&sent[turn_count * 3 / 5..]) * 10 <= max_tokens(&sent[..100]) * 12,
        "{sent:?}"
    );
    assert!(max_tokens(&sent) < 7500);
    // The session file still has all messages.
    let lines = story.session("cli_direct.jsonl");
    let is_said = |line: &&Value| line["role"] == "user" && line["injected"].is_null();
    assert_eq!(lines.iter().filter(is_said).count(), turn_count);
}

#[test]
fn a_fact_of_turn_3_is_available_in_turn_150_and_requests_do_not_grow() {
    check_conversation(150);
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn a_fact_of_turn_3_is_available_in_turn_500_and_requests_do_not_grow() {
    check_conversation(500);
}
