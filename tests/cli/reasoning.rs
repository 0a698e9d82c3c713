//! Reasoning goes back to the server and the model that it came from, in the place where they put it, and nowhere else.

use crate::server::{replies, says};
use crate::story::Story;
use serde_json::{Map, Value, json};

/// The fields of a reply that hold reasoning, and the type of its chunks.
const REASONING_KEYS: &[&str] =
    &["reasoning_content", "reasoning", "reasoning_details", "thinking", "reasoning_split"];

/// The arguments of a call that reads `a.txt`.
fn read_call(id: &str) -> Value {
    json!([{ "id": id, "type": "function",
             "function": { "name": "read_file", "arguments": "{\"path\":\"a.txt\"}" } }])
}

/// A message with `fields` that calls `read_file`.
fn message_with_call(id: &str, fields: &Value) -> Value {
    let mut message = json!({ "role": "assistant", "content": null });
    let object = message.as_object_mut().unwrap();
    object.extend(fields.as_object().unwrap().clone());
    object.insert("tool_calls".into(), read_call(id));
    message
}

/// The fields of `message` that can hold reasoning, as sent.
fn sent_reasoning(message: &Value) -> Value {
    let mut fields = message.as_object().unwrap().clone();
    fields.retain(|key, value| {
        REASONING_KEYS.contains(&key.as_str()) || key == "content" && !value.is_null()
    });
    fields.into()
}

#[test]
fn reasoning_goes_back_in_the_place_where_the_server_put_it() {
    let field = |name: &str| Value::from(Map::from_iter([(name.to_owned(), json!("Hm. Look!"))]));
    let details =
        json!([{ "type": "reasoning.text", "index": 0, "text": "Hm.", "signature": "s" }]);
    let both = json!({ "reasoning": "Hm.", "reasoning_details": details });
    let split = json!({ "reasoning_details": details });
    let thinking = json!({ "type": "thinking", "thinking": [{ "type": "text", "text": "Hm." }] });
    let signed = json!({ "type": "thinking", "thinking": [{ "type": "text", "text": "Hm." }],
                         "signature": "s" });
    let text_block = json!({ "type": "text", "text": "I look." });
    let chunks = |thinking: &Value| json!({ "content": [thinking, text_block] });
    let tags = |text: &str| json!({ "content": text });
    // The sources are in the table of `provider::chat::reasoning`.
    let rows = [
        ("zhipu", "glm-5.3", field("reasoning_content"), None),
        ("minimax", "MiniMax-M3", split.clone(), None),
        ("dashscope", "qwen3.8-max", field("reasoning_content"), None),
        ("volcengine", "doubao-1", field("reasoning_content"), None),
        ("vllm", "openai/gpt-oss-20b", field("reasoning"), None),
        ("llamaCpp", "gpt-oss-20b", field("reasoning_content"), None),
        ("ollama", "gpt-oss:20b", field("reasoning"), None),
        ("mistral", "mistral-medium-3-5", chunks(&thinking), None),
        ("mistral", "mistral-large-4-0", chunks(&signed), None),
        ("openrouter", "z-ai/glm-5", both, Some(split)),
        ("openrouter", "qwen/qwen3", field("reasoning"), None),
        ("groq", "openai/gpt-oss-120b", field("reasoning"), None),
        ("novita", "zai-org/glm-5", field("reasoning_content"), None),
        ("moonshot", "kimi-k2.6", field("reasoning_content"), None),
        ("deepseek", "deepseek-flash", field("reasoning_content"), None),
        // Together and Fireworks.
        ("custom", "zai-org/GLM-5.3", field("reasoning_content"), None),
        ("custom", "openai/gpt-oss-20b", field("reasoning"), None),
        ("custom", "accounts/fireworks/models/m", field("reasoning_content"), None),
        // Servers without a reasoning parser, and one that renames its field.
        ("custom", "plain", tags("<think>Hm.</think>\n\nI look."), None),
        (
            "custom",
            "plain",
            tags("<thinking>Hm.</thinking>"),
            Some(tags("<thinking>Hm.</thinking>\n\n")),
        ),
        (
            "custom",
            "renaming",
            json!({ "reasoning": "Hm.", "reasoning_content": "Hm." }),
            Some(json!({ "reasoning": "Hm." })),
        ),
        ("custom", "no-reasoning", tags("I look."), None),
    ];
    for (provider, model, received, expect) in rows {
        let expect = expect.unwrap_or_else(|| received.clone());
        for flags in [&[][..], &["--no-stream"]] {
            let story = Story::with_provider(provider, model)
                .file("a.txt", "alpha")
                .allow_extra_keys(REASONING_KEYS)
                .script([
                    replies(message_with_call("abcdefgh1", &received), "tool_calls"),
                    replies(message_with_call("abcdefgh2", &received), "tool_calls"),
                    says("ok"),
                    says("more"),
                ]);
            let run = |text: &str| story.run([&["agent", "-m", "x"], flags].concat()).stdout(text);
            run("ok\n");
            run("more\n");
            let requests = story.requests();
            for (request, indexes) in [(1, &[2][..]), (2, &[2, 4]), (3, &[2, 4])] {
                let messages = requests[request].messages();
                for index in indexes {
                    assert_eq!(
                        sent_reasoning(&messages[*index]),
                        expect,
                        "{provider} {model} {flags:?}, message {index} of request {request}"
                    );
                }
            }
        }
    }
}

#[test]
fn reasoning_goes_to_no_other_server_or_model() {
    let details = json!([{ "type": "reasoning.text", "index": 0, "text": "Hm." }]);
    let thinking = json!([{ "type": "thinking", "thinking": [{ "type": "text", "text": "Hm." }] }]);
    for fields in [
        json!({ "reasoning": "Hm.", "reasoning_details": details }),
        json!({ "reasoning": "Hm." }),
        json!({ "reasoning_content": "Hm." }),
        json!({ "content": thinking }),
        json!({ "content": "<think>Hm.</think>" }),
    ] {
        let story = Story::with_provider("openrouter", "openai/gpt-4.1").file("a.txt", "alpha");
        let elsewhere = format!("http://localhost:{}/v1", story.server().port);
        let story = story
            .set("providers.custom", json!({ "apiKey": "k", "apiBase": elsewhere }))
            .script([
                replies(message_with_call("a", &fields), "tool_calls"),
                says("ok"),
                says("another server"),
                says("another model"),
            ])
            .allow_extra_keys(REASONING_KEYS);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
        let story = story.set("agents.defaults.provider", json!("custom"));
        story.run(["agent", "-m", "x"]).stdout("another server\n");
        let story = story.set("agents.defaults.provider", json!("openrouter"));
        let other = ["agent", "-m", "x", "--model", "openai/gpt-4.1-mini"];
        story.run(other).stdout("another model\n");
        let requests = story.requests();
        assert_eq!(requests[2].body["model"], requests[0].body["model"]);
        assert_ne!(sent_reasoning(&requests[1].messages()[2]), json!({}));
        for request in &requests[2..] {
            assert_eq!(sent_reasoning(&request.messages()[2]), json!({}), "{fields}");
        }
    }
}

#[test]
fn think_blocks_are_not_part_of_the_answer_wherever_they_stand() {
    let check = |text: &str, answer: &str| {
        for flags in [&[][..], &["--no-stream"]] {
            let story = Story::new().script([says(text)]);
            let result = story.run([&["agent", "-m", "x"], flags].concat());
            result.stdout(&format!("{answer}\n"));
            let log = story.session("cli_direct.jsonl");
            let reply = log.iter().find(|line| line["role"] == "assistant");
            assert_eq!(reply.unwrap()["content"], answer);
        }
    };
    check("<think>a</think>answer<think>b</think>", "answer");
    check(
        "One.\n\n<thinking>I go\n\non.</thinking>\n\nTwo <thought>c</thought> three.",
        "One.\n\nTwo three.",
    );
    // Code and mentions are text.
    for text in [
        "Write `<think>a</think>` before the answer.",
        "```xml\n<think>\na\n</think>\n```\nIt goes on.",
        "The <think> tag opens a block, and `</think>` closes it.",
        "It stands between <think> and </think>, as always.",
    ] {
        check(text, text);
    }
}
