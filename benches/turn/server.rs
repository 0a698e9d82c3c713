//! A model server that responds at once with prepared bytes.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Maximum number of chunks of a streamed reply.
const PIECES: usize = 20_000;

/// Starts a server that responds by the path, and by the number of requests of a connection. Returns its port.
pub(crate) fn start() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound listener has an address").port();
    let stream = Streams {
        words: events((0..PIECES).map(|number| format!("word{number} "))),
        prose: events(PROSE.split_inclusive(' ').cycle().take(PIECES)),
    };
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let stream = stream.clone();
            std::thread::spawn(move || answer_all(connection, &stream));
        }
    });
    port
}

fn answer_all(connection: TcpStream, streams: &Streams) {
    connection.set_nodelay(true).expect("TCP has it");
    let mut reader = BufReader::new(connection.try_clone().expect("a socket can be cloned"));
    let mut writer = connection;
    for asked in 1.. {
        let Some(path) = request(&mut reader) else {
            return;
        };
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        let limit = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(1);
        let sent = match words[0] {
            "stream" => {
                let (pieces, end) = streams.words.split_at(1 + limit);
                let end = &end[end.len().saturating_sub(3)..];
                writer.write_all(&[pieces.concat(), end.concat()].concat())
            }
            "prose" => {
                let mut pieces = streams.prose.iter();
                pieces.try_for_each(|piece| writer.write_all(piece))
            }
            "read" if asked < limit => {
                // A call that is repeated ends the turn.
                let path = json!({ "path": format!("note{asked}.txt") });
                writer.write_all(&whole(&calls("read_file", &path, 1)))
            }
            "exec" if asked < limit => writer.write_all(&whole(&calls(
                "exec",
                &json!({ "command": format!("true; true {asked}") }),
                1,
            ))),
            "served" if asked < limit => {
                let what = json!({ "what": format!("it {asked}") });
                writer.write_all(&whole(&calls("mcp_s3_work1", &what, 1)))
            }
            "updates" if words.ends_with(&["getMe"]) => {
                let bot =
                    json!({ "id": 1, "is_bot": true, "first_name": "Bot", "username": "bot" });
                writer.write_all(&response(&json!({ "ok": true, "result": bot })))
            }
            "updates" => writer.write_all(&response(&json!({ "ok": true, "result": [] }))),
            _ => writer.write_all(&whole(&json!({ "role": "assistant", "content": "Hello." }))),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Read a request; its path.
fn request(reader: &mut BufReader<TcpStream>) -> Option<String> {
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

fn calls(name: &str, arguments: &Value, count: usize) -> Value {
    let call = |number: usize| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        json!({ "id": format!("c{number}"), "type": "function", "function": function })
    };
    json!({ "role": "assistant", "content": null, "tool_calls": (0..count).map(call).collect::<Vec<_>>() })
}

fn whole(message: &Value) -> Vec<u8> {
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

/// Streamed answers, as they go over the wire.
#[derive(Clone)]
struct Streams {
    /// As many as the path says are sent at once.
    words: Vec<Vec<u8>>,
    /// Of markdown; each piece is sent by itself.
    prose: Vec<Vec<u8>>,
}

/// What models say, with one of each.
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

/// A streamed answer of such pieces: the head, each piece, and the end.
fn events<S: Into<String>>(pieces: impl Iterator<Item = S>) -> Vec<Vec<u8>> {
    let chunk = |data: &str| {
        let event = format!("data: {data}\n\n");
        format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
    };
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut all = vec![head.as_bytes().to_vec()];
    for piece in pieces {
        let delta = json!({ "content": piece.into() });
        all.push(chunk(&json!({ "id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }).to_string()));
    }
    all.push(chunk(
        &json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }).to_string(),
    ));
    all.push(chunk("[DONE]"));
    all.push(b"0\r\n\r\n".to_vec());
    all
}
