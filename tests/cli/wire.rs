//! What comes over the wire, in the shapes that servers and networks give it.

use crate::server::{Answer, Ending, fails, says, sends};
use crate::story::Story;
use serde_json::{Value, json};

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn text(words: &str) -> String {
    event(&json!({ "choices": [{ "delta": { "content": words } }] }))
}

fn stop() -> String {
    event(&json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }))
}

#[track_caller]
fn answers(answer: Answer, expect: &str) {
    Story::new()
        .script([sends(answer)])
        .run(["agent", "-m", "x"])
        .stdout(expect);
}

#[test]
fn streams_in_odd_shapes_are_answers() {
    answers(Answer::events([text("a"), stop()]), "a\n");
    answers(
        Answer::events([
            ": ping\r\n\r\n".into(),
            text("a").replace('\n', "\r\n"),
            "data: [DONE]\r\n\r\n".into(),
        ]),
        "a\n",
    );
    let whole = format!(
        "{}{}{}data: [DONE]\n\n",
        text("h\u{e9}llo "),
        text("🙂"),
        stop()
    );
    answers(
        Answer::events(whole.as_bytes().chunks(1)),
        "h\u{e9}llo 🙂\n",
    );
    let cut = "data: [DONE]\n\n".to_owned();
    answers(
        Answer::events([text("a"), stop(), cut]).ending(Ending::Cut),
        "a\n",
    );
    // One object although a stream was asked for, and a stream that does not say that it is one.
    let object =
        json!({ "choices": [{ "message": { "content": "whole" }, "finish_reason": "stop" }] });
    answers(Answer::json(200, &object), "whole\n");
    answers(
        Answer::text(200, "text/plain", &format!("{}{}", text("a"), stop())),
        "a\n",
    );
}

#[test]
fn a_stream_without_an_end_is_tried_again_while_nothing_was_told() {
    let story = Story::new().script([
        sends(Answer::events([": nothing yet\n\n"]).ending(Ending::Cut)),
        says("whole"),
    ]);
    story.run(["agent", "-m", "x"]).stdout("whole\n");
    let story = Story::new().script([sends(Answer::events([text("half")]).ending(Ending::Cut))]);
    story
        .run(["agent", "-m", "x"])
        .status(69)
        .stderr_has("answered in part");
    assert!(
        story
            .session("cli_direct.jsonl")
            .iter()
            .all(|line| line["role"] != "assistant")
    );
}

#[test]
fn errors_within_a_good_status_are_errors() {
    let check = |answer: Answer, times: usize, status: i32, words: &str| {
        let story = Story::new().script((0..times).map(|_| sends(answer.clone())));
        story
            .run(["agent", "-m", "x"])
            .status(status)
            .stderr_has(words);
    };
    check(
        Answer::json(
            200,
            &json!({ "error": { "message": "no such", "code": 400 } }),
        ),
        1,
        1,
        "no such",
    );
    check(
        Answer::json(200, &json!({ "error": { "message": "slow", "code": 429 } })),
        4,
        75,
        "slow",
    );
    check(
        Answer::events([event(&json!({ "error": { "message": "broke" } }))]),
        4,
        69,
        "broke",
    );
    check(
        Answer::events([
            text("half"),
            event(&json!({ "error": { "message": "broke" } })),
        ]),
        1,
        69,
        "broke",
    );
    check(
        Answer::text(200, "text/html", "<html><title>Sign in</title></html>"),
        4,
        69,
        "Sign in",
    );
    check(
        Answer::json(200, &json!({ "choices": [] })),
        4,
        69,
        "without choices",
    );
    check(
        Answer::text(200, "application/json", ""),
        4,
        69,
        "http://127.0.0.1",
    );
}

#[test]
fn waits_that_a_server_asks_for() {
    let busy = |wait: &str| {
        sends(
            Answer::json(429, &json!({ "error": { "message": "busy" } }))
                .header("retry-after", wait),
        )
    };
    let story = Story::new().script([busy("2"), says("ok")]);
    story
        .run(["agent", "-m", "x", "-v"])
        .stdout("ok\n")
        .stderr_has("try 2 in 2.0 s");
    let dated = Answer::json(503, &json!({ "error": { "message": "busy" } }))
        .header("date", "Fri, 02 Jan 2026 03:04:05 GMT")
        .header("retry-after", "Fri, 02 Jan 2026 03:04:08 GMT");
    let story = Story::new().script([sends(dated), says("ok")]);
    story
        .run(["agent", "-m", "x", "-v"])
        .stdout("ok\n")
        .stderr_has("in 3.0 s");
}

#[test]
fn nobody_listens() {
    let story = Story::new().set("providers.custom.apiBase", json!("http://127.0.0.1:1/v1"));
    story
        .run(["agent", "-m", "x"])
        .status(69)
        .stderr_has("nothing listens");
}

#[test]
fn a_redirect_is_not_followed_with_the_key() {
    let other = Story::new();
    let place = format!(
        "http://127.0.0.1:{}/v1/chat/completions",
        other.server().port
    );
    let moved = Answer::json(308, &json!({})).header("location", &place);
    let story = Story::new().script([sends(moved)]);
    story
        .run(["agent", "-m", "x"])
        .status(1)
        .stderr_has("it has moved to");
    assert!(other.asked().is_empty());
}

#[test]
fn the_key_goes_nowhere_but_into_its_header() {
    let key = "key-of-the-story";
    let story = Story::new().script([
        crate::server::calls("exec", json!({ "command": "env; cat /proc/self/cmdline" })),
        fails(400, "your key key-of-the-story is odd"),
    ]);
    let ran = story
        .run(["agent", "-m", "x", "-v", "--json", "--record", "tape"])
        .status(1);
    assert!(!ran.text().contains(key) && !ran.error_text().contains(key));
    drop(ran);
    assert!(story.asked().iter().all(|asked| !asked.raw.contains(key)));
    let session =
        std::fs::read_to_string(story.workspace().join("sessions/cli_direct.jsonl")).unwrap();
    let tape = std::fs::read_to_string(story.dir().join("tape")).unwrap();
    assert!(!session.contains(key) && !tape.contains(key));
}

#[test]
fn a_proxy_is_not_asked_about_loopback() {
    let story = Story::new()
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("http_proxy", "http://127.0.0.1:1")
        .script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
}

#[test]
fn offline_reaches_loopback_only() {
    let story = Story::new().script([says("ok")]);
    story.run(["agent", "-m", "x", "--offline"]).stdout("ok\n");
    let story = Story::new().set("providers.custom.apiBase", json!("http://example.org/v1"));
    story
        .run(["agent", "-m", "x", "--offline"])
        .status(69)
        .stderr_has("`--offline` forbids to reach `example.org`");
}

#[test]
fn sixteen_at_once_on_one_session_all_get_their_answer() {
    let story = Story::new();
    story.server().always(Box::new(|asked| {
        let last = asked.last();
        let word = last.lines().next().unwrap_or_default().to_owned();
        says(&format!("answer to {word}"))(asked)
    }));
    let children: Vec<_> = (0..16)
        .map(|number| {
            story
                .command(["agent", "-q", "-m", &format!("q{number}")])
                .spawn()
                .unwrap()
        })
        .collect();
    for (number, child) in children.into_iter().enumerate() {
        story.wait(child).stdout(&format!("answer to q{number}\n"));
    }
    let lines = story.session("cli_direct.jsonl");
    let messages: Vec<&Value> = lines
        .iter()
        .filter(|line| line["role"].is_string())
        .collect();
    assert_eq!(messages.len(), 32);
    for pair in messages.chunks(2) {
        assert_eq!(
            pair[1]["content"],
            json!(format!(
                "answer to {}",
                pair[0]["content"].as_str().unwrap()
            ))
        );
    }
    assert_eq!(lines.last().unwrap()["messages"], 32);
}

#[test]
fn faults_that_pass_are_tried_again() {
    for status in [408, 409, 425, 429, 500, 502, 503, 529] {
        let story = Story::new().script([fails(status, "passing"), says("ok")]);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
    }
    for status in [400, 422] {
        let story = Story::new().script([fails(status, "for good")]);
        story
            .run(["agent", "-m", "x"])
            .status(1)
            .stderr_has("for good");
    }
}

#[test]
fn a_proxy_is_asked_about_other_hosts() {
    let proxy = Story::new();
    proxy
        .server()
        .always(sends(Answer::text(502, "text/plain", "no way through")));
    let address = format!("http://127.0.0.1:{}", proxy.server().port);
    let story = Story::new()
        .set("providers.custom.apiBase", json!("http://model.invalid/v1"))
        .env("HTTP_PROXY", &address);
    story
        .run(["agent", "-q", "-m", "x"])
        .status(69)
        .stderr_has("model.invalid");
    assert!(
        proxy.asked()[0].path.contains("model.invalid"),
        "{:?}",
        proxy.asked()[0]
    );
}

/// A server with a certificate of its own, and the file that vouches for it; `None` where there is no `openssl`. It
/// gives each connection this answer, whatever it is asked.
fn tls(story: &Story, body: &str) -> Option<(std::process::Child, u16)> {
    use std::io::{BufRead, BufReader, Write};
    let words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca && \
                 openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out request -subj /CN=localhost && \
                 printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' > more && \
                 openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -out cert -days 2 -extfile more";
    let made = story
        .program("/bin/sh")
        .args(["-c", words])
        .output()
        .unwrap();
    if !made.status.success() {
        return None;
    }
    let mut server = story.program("openssl");
    server.args([
        "s_server",
        "-accept",
        "127.0.0.1:0",
        "-cert",
        "cert",
        "-key",
        "key",
    ]);
    let mut server = server.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let accepts = lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(str::to_owned));
    let accepts = accepts.expect("it says where it listens");
    let port = accepts.rsplit(':').next().unwrap().parse().unwrap();
    // Read on, so that it is never kept waiting.
    std::thread::spawn(move || lines.for_each(drop));
    let mut stdin = server.stdin.take().unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stdin.write_all(format!("{head}{body}").as_bytes()).unwrap();
    std::mem::forget(stdin);
    Some((server, port))
}

#[test]
fn tls_is_spoken_with_those_who_can_prove_who_they_are() {
    let body =
        json!({ "choices": [{ "message": { "content": "Over TLS." }, "finish_reason": "stop" }] })
            .to_string();
    for trusted in [true, false] {
        let mut story = Story::new();
        let Some((mut server, port)) = tls(&story, &body) else {
            return;
        };
        story = story.set(
            "providers.custom.apiBase",
            json!(format!("https://localhost:{port}/v1")),
        );
        if trusted {
            let vouches = story.dir().join("ca.pem");
            story = story.env("SSL_CERT_FILE", vouches.to_str().unwrap());
            story.run(["agent", "-m", "x"]).stdout("Over TLS.\n");
        } else {
            story
                .run(["agent", "-m", "x"])
                .status(69)
                .stderr_has("certificate");
        }
        drop(server.kill());
        server.wait().unwrap();
    }
    // One that accepts, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!(
        "https://localhost:{}/v1",
        silent.local_addr().unwrap().port()
    );
    let story = Story::new().set("providers.custom.apiBase", json!(base));
    story
        .run(["agent", "-m", "x", "--timeout", "0.5"])
        .status(124)
        .stderr_has("--timeout");
}
