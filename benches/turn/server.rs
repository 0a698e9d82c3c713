//! A model server that responds at once with prepared bytes.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Maximum number of chunks of a streamed reply.
const MAX_CHUNKS: usize = 20_000;

/// Starts a server that responds by the path, and by the number of requests of a connection. Returns its port.
pub(crate) fn start() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound listener has an address").port();
    let streams = Streams {
        words: events((0..MAX_CHUNKS).map(|number| format!("word{number} "))),
        prose: events(PROSE.split_inclusive(' ').cycle().take(MAX_CHUNKS)),
    };
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let streams = streams.clone();
            std::thread::spawn(move || answer_all(connection, &streams));
        }
    });
    port
}

fn answer_all(connection: TcpStream, streams: &Streams) {
    connection.set_nodelay(true).expect("TCP has it");
    let mut reader = BufReader::new(connection.try_clone().expect("a socket can be cloned"));
    let mut writer = connection;
    for request_number in 1.. {
        let Some(path) = read_request(&mut reader) else {
            return;
        };
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let limit = parts.get(1).and_then(|part| part.parse().ok()).unwrap_or(1);
        let result = match parts[0] {
            "stream" => {
                let (chunks, end) = streams.words.split_at(1 + limit);
                let end = &end[end.len().saturating_sub(3)..];
                writer.write_all(&[chunks.concat(), end.concat()].concat())
            }
            "prose" => {
                let mut chunks = streams.prose.iter();
                chunks.try_for_each(|chunk| writer.write_all(chunk))
            }
            "read" if request_number < limit => {
                // A call that is repeated ends the turn.
                let path = json!({ "path": format!("note{request_number}.txt") });
                writer.write_all(&reply(&call_message("read_file", &path)))
            }
            "exec" if request_number < limit => {
                let command = json!({ "command": format!("true; true {request_number}") });
                writer.write_all(&reply(&call_message("exec", &command)))
            }
            "served" if request_number < limit => {
                let arguments = json!({ "what": format!("it {request_number}") });
                writer.write_all(&reply(&call_message("mcp_s3_work1", &arguments)))
            }
            "updates" if parts.ends_with(&["getMe"]) => {
                let bot =
                    json!({ "id": 1, "is_bot": true, "first_name": "Bot", "username": "bot" });
                writer.write_all(&response(&json!({ "ok": true, "result": bot })))
            }
            "updates" => writer.write_all(&response(&json!({ "ok": true, "result": [] }))),
            _ => writer.write_all(&reply(&json!({ "role": "assistant", "content": "Hello." }))),
        };
        if result.is_err() {
            return;
        }
    }
}

/// Reads a request, and returns its path.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let path = line.split(' ').nth(1)?.trim_end_matches("/chat/completions").to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(path)
}

fn call_message(name: &str, arguments: &Value) -> Value {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let call = json!({ "id": "c0", "type": "function", "function": function });
    json!({ "role": "assistant", "content": null, "tool_calls": [call] })
}

/// A reply that is not streamed.
fn reply(message: &Value) -> Vec<u8> {
    response(&json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
                       "usage": { "prompt_tokens": 100, "completion_tokens": 5 } }))
}

fn response(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// Streamed replies, as chunks of HTTP.
#[derive(Clone)]
struct Streams {
    /// The number in the path of them are sent at once.
    words: Vec<Vec<u8>>,
    /// Markdown; each chunk is sent by itself.
    prose: Vec<Vec<u8>>,
}

/// Markdown with one of each of its elements.
const PROSE: &str = "\
## A heading of some words

A paragraph that is longer than a row, with **bold words**, `code` and a [link](https://example.org/) in it, as models write
them when they explain what they have done and what is to be done next.

- a list
  - within a list
1. and a number

| name | price |
|:-----|------:|
| pear |  1.20 |

```rust
pub(crate) fn main() { println!(\"hello\"); }
```

";

/// A streamed reply with these texts: the head, a chunk for each text, and the end.
fn events<S: Into<String>>(texts: impl Iterator<Item = S>) -> Vec<Vec<u8>> {
    let chunk = |data: &str| {
        let event = format!("data: {data}\n\n");
        format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
    };
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut chunks = vec![head.as_bytes().to_vec()];
    for text in texts {
        let delta = json!({ "content": text.into() });
        chunks.push(chunk(&json!({ "id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }).to_string()));
    }
    chunks.push(chunk(
        &json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }).to_string(),
    ));
    chunks.push(chunk("[DONE]"));
    chunks.push(b"0\r\n\r\n".to_vec());
    chunks
}
