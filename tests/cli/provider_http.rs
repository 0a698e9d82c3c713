//! Provider responses over HTTP as servers and networks deliver them.

use crate::attach::png_image;
use crate::formats::{self, ALL_FORMATS, Format};
use crate::listener::Listener;
use crate::mail_server::MailServer;
use crate::requirements::require;
use crate::server::{
    Ending, Request, Responder, Response, calls, calls_all, fails, replies, says, sends,
};
use crate::story::Story;
use base64::Engine;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

fn data_event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn text_event(phrase: &str) -> String {
    data_event(&json!({ "choices": [{ "delta": { "content": phrase } }] }))
}

fn stop_event() -> String {
    data_event(&json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }))
}

#[track_caller]
fn assert_answer(answer: Response, expect: &str) {
    Story::new().script([sends(answer)]).run(["agent", "-m", "x"]).stdout(expect);
}

#[test]
fn unusual_but_valid_streams_are_accepted() {
    assert_answer(Response::events([text_event("a"), stop_event()]), "a\n");
    assert_answer(
        Response::events([
            ": ping\r\n\r\n".into(),
            text_event("a").replace('\n', "\r\n"),
            "data: [DONE]\r\n\r\n".into(),
        ]),
        "a\n",
    );
    let whole = format!(
        "{}{}{}data: [DONE]\n\n",
        text_event("h\u{e9}llo "),
        text_event("🙂"),
        stop_event()
    );
    assert_answer(Response::events(whole.as_bytes().chunks(1)), "h\u{e9}llo 🙂\n");
    let cut = "data: [DONE]\n\n".to_owned();
    assert_answer(
        Response::events([text_event("a"), stop_event(), cut]).ending(Ending::Disconnect),
        "a\n",
    );
    // One JSON object although a stream was requested, and a stream with another content type.
    let object =
        json!({ "choices": [{ "message": { "content": "whole" }, "finish_reason": "stop" }] });
    assert_answer(Response::json(200, &object), "whole\n");
    assert_answer(
        Response::text(200, "text/plain", &format!("{}{}", text_event("a"), stop_event())),
        "a\n",
    );
}

#[test]
fn a_complete_reply_does_not_wait_for_the_end_of_the_connection() {
    for format in ALL_FORMATS {
        let stalls = |message: Value, finish: &'static str| -> Responder {
            Box::new(move |request| {
                formats::build_response(&message, finish, request).ending(Ending::Stall)
            })
        };
        let call = json!({ "id": "c", "type": "function",
                           "function": { "name": "list_dir", "arguments": "{}" } });
        let story = Story::in_format(format, "scripted")
            .env("NANOBOT_STREAM_IDLE_TIMEOUT_S", "0")
            .script([
                stalls(json!({ "content": null, "tool_calls": [call] }), "tool_calls"),
                stalls(json!({ "content": "whole" }), "stop"),
            ]);
        story.run(["agent", "-m", "x", "--timeout", "60"]).stdout("whole\n");
    }
}

#[test]
fn a_timeout_during_a_retry_names_the_failure_before_it() {
    let (sender, silence) = Response::streaming();
    let story = Story::new().script([fails(500, "out of order"), sends(silence)]);
    let result = story.run(["agent", "-m", "x", "--json", "--timeout", "2"]).status(124);
    let error = result.json()["error"].clone();
    assert_eq!(error["cause"], "timeout");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("attempt 1 of 4 failed (") && message.contains("500"), "{message}");
    result.stderr_has("out of order").stderr_has("stopped: `--timeout` expired");
    drop(sender);
}

/// Sends SSE comments on `stream` until the returned sender is dropped.
fn start_pings(stream: Sender<Vec<u8>>) -> (Sender<()>, JoinHandle<()>) {
    start_repeating(stream, ": ping\n\n".into())
}

/// Sends `event` on `stream` again and again until the returned sender is dropped.
fn start_repeating(stream: Sender<Vec<u8>>, event: String) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = channel();
    let sending = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            drop(stream.send(event.clone().into_bytes()));
        }
    });
    (stop, sending)
}

#[test]
fn a_stream_without_an_end_has_a_total_timeout() {
    let (sender, answer) = Response::streaming();
    let (stop, sending) = start_repeating(sender, text_event("on and "));
    let story =
        Story::new().set("http.totalTimeout", json!(1)).script([sends(answer), says("whole")]);
    story
        .run(["agent", "-v", "-m", "x", "--timeout", "60"])
        .stdout("whole\n")
        .stderr_has("timed out");
    drop(stop);
    sending.join().unwrap();
}

#[test]
fn comments_do_not_keep_a_silent_stream_alive() {
    let (sender, answer) = Response::streaming();
    sender.send(text_event("half").into_bytes()).unwrap();
    let (stop, pings) = start_pings(sender);
    let story = Story::new()
        .set("http.streamIdleTimeout", json!(0.5))
        .script([sends(answer), says("whole")]);
    story
        .run(["agent", "-v", "-m", "x", "--timeout", "60"])
        .stdout("whole\n")
        .stderr_has("timed out waiting for more data");
    drop(stop);
    pings.join().unwrap();
}

#[test]
fn comments_may_precede_the_first_data_for_longer_than_the_idle_timeout() {
    let (sender, answer) = Response::streaming();
    let story = Story::new().env("NANOBOT_STREAM_IDLE_TIMEOUT_S", "1").script([sends(answer)]);
    let (stop, pings) = start_pings(sender.clone());
    let child = story.command(["agent", "-m", "x"]).spawn().unwrap();
    story.server().wait_for_requests(1);
    // Twice the idle timeout passes in comments.
    std::thread::sleep(Duration::from_secs(2));
    drop(stop);
    pings.join().unwrap();
    let events = [text_event("late"), stop_event(), "data: [DONE]\n\n".into()];
    sender.send(events.concat().into_bytes()).unwrap();
    drop(sender);
    story.wait(child).stdout("late\n");
}

#[test]
fn an_unfinished_stream_is_retried_if_nothing_was_shown() {
    let story = Story::new().script([
        sends(Response::events([": nothing yet\n\n"]).ending(Ending::Disconnect)),
        says("whole"),
    ]);
    story.run(["agent", "-m", "x"]).stdout("whole\n");
    let half = || sends(Response::events([text_event("half")]).ending(Ending::Disconnect));
    let story = Story::new().script([half(), says("whole")]);
    story.run(["agent", "-m", "x"]).stdout("whole\n");
    let story = Story::new().script([half(), half(), says("whole")]);
    let result = story.run(["agent", "-m", "x", "--json"]);
    assert_eq!(result.json()["text"], "whole");
    drop(result);
    // A program that reads the events has the first half already.
    let story = Story::new().script([half()]);
    drop(
        story
            .run(["agent", "-m", "x", "--output-format", "stream-json"])
            .status(69)
            .stderr_has("sent an incomplete response")
            .text(),
    );
    let lines = story.session("cli_direct.jsonl");
    assert_eq!(lines[2]["content"], "half\n\n[interrupted]");
}

#[test]
fn errors_within_a_good_status_are_errors() {
    let check = |answer: Response, times: usize, status: i32, message: &str| {
        let story = Story::new().script((0..times).map(|_| sends(answer.clone())));
        story.run(["agent", "-m", "x"]).status(status).stderr_has(message);
    };
    check(
        Response::json(200, &json!({ "error": { "message": "no such", "code": 400 } })),
        1,
        1,
        "no such",
    );
    check(
        Response::json(200, &json!({ "error": { "message": "slow", "code": 429 } })),
        4,
        75,
        "slow",
    );
    check(
        Response::events([data_event(&json!({ "error": { "message": "broke" } }))]),
        4,
        69,
        "broke",
    );
    check(
        Response::events([
            text_event("half"),
            data_event(&json!({ "error": { "message": "broke" } })),
        ]),
        4,
        69,
        "broke",
    );
    check(
        Response::text(200, "text/html", "<html><title>Sign in</title></html>"),
        4,
        69,
        "Sign in",
    );
    check(Response::json(200, &json!({ "choices": [] })), 4, 69, "without choices");
    check(Response::text(200, "application/json", ""), 4, 69, ": the response is empty");
}

#[test]
fn a_conversation_that_is_too_long_is_recognized() {
    let bodies = [
        json!({ "error": { "code": "context_length_exceeded", "type": "invalid_request_error",
                "message": "Please reduce the length of the messages or completion." } }),
        json!({ "error": { "code": "context_length_exceeded", "message": "Invalid input." } }),
        json!({ "error": { "message": "Input tokens exceed the configured limit of 272000 tokens." } }),
        json!([{ "error": { "code": 400, "status": "INVALID_ARGUMENT", "message":
                "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)." } }]),
        json!({ "error": "This model's maximum prompt length is 131072 but the request contains 136973 tokens." }),
        json!({ "error": { "code": "invalid_parameter_error", "message":
                "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]" } }),
    ];
    for body in bodies {
        let story = Story::new().script([sends(Response::json(400, &body))]);
        story
            .run(["agent", "-m", "x"])
            .status(65)
            .stderr_has("a model with a larger context window");
    }
    // A parameter of the request is wrong, so a shorter conversation would not help.
    let story = Story::new().script([fails(400, "Range of max_tokens should be [1, 8192]")]);
    story.run(["agent", "-m", "x"]).status(1).stderr_has("Range of max_tokens");
}

#[test]
fn retry_after_is_respected() {
    let busy = |wait: &str| {
        sends(
            Response::json(429, &json!({ "error": { "message": "busy" } }))
                .header("retry-after", wait),
        )
    };
    let story = Story::new().script([busy("2"), says("ok")]);
    story.run(["agent", "-m", "x", "-v"]).stdout("ok\n").stderr_has("attempt 2 in 2.0 s");
    // No time is no answer: a server that rounds down must not get all attempts at once.
    for soon in ["0", "-5", "NaN"] {
        let story = Story::new().script([busy(soon), says("ok")]);
        story.run(["agent", "-m", "x", "-v"]).stdout("ok\n").stderr_has("attempt 2 in 1.");
    }
    let dated = Response::json(503, &json!({ "error": { "message": "busy" } }))
        .header("date", "Fri, 02 Jan 2026 03:04:05 GMT")
        .header("retry-after", "Fri, 02 Jan 2026 03:04:08 GMT");
    let story = Story::new().script([sends(dated), says("ok")]);
    story.run(["agent", "-m", "x", "-v"]).stdout("ok\n").stderr_has("in 3.0 s");
    // Without a `Date`, our clock counts: it is 03:04:05.
    let undated = Response::json(503, &json!({ "error": { "message": "busy" } }))
        .header("retry-after", "Fri, 02 Jan 2026 03:04:09 GMT");
    let story = Story::new().script([sends(undated), says("ok")]);
    story.run(["agent", "-m", "x", "-v"]).stdout("ok\n").stderr_has("in 4.0 s");
}

#[test]
fn a_rate_limit_says_until_when() {
    let busy = || {
        sends(
            Response::json(429, &json!({ "error": { "message": "slow down" } }))
                .header("retry-after", "3600"),
        )
    };
    let message = "slow down (status 429), until 2026-01-02T04:04:05Z";
    let story = Story::new().script([busy()]);
    story.run(["agent", "-m", "x"]).status(75).stderr_has(message);
    let story = Story::new().script([busy()]);
    story.run(["agent", "--json", "-m", "x"]).status(75).stdout_has(message).stderr_has(message);
    let story = Story::new().script([busy()]);
    story.run(["status", "check"]).status(75).stdout_has(message);
}

#[test]
fn the_limit_of_an_account_is_not_waited_for() {
    let error = json!({ "error": { "type": "usage_limit_reached", "message": "The usage limit has been reached",
                                   "resets_in_seconds": 7200 } });
    let story = Story::new().script([sends(Response::json(429, &error))]);
    story.run(["agent", "-m", "x"]).status(75).stderr_has("until 2026-01-02T05:04:05Z");
    assert_eq!(story.requests().len(), 1);
}

#[test]
fn an_account_without_credit_is_not_the_fault_of_the_key() {
    let story = Story::new().script([fails(402, "Payment required")]);
    let stderr = story.run(["agent", "-m", "x"]).status(77).error_text();
    assert!(stderr.contains("Payment required (status 402)\n"), "{stderr}");
    assert!(
        stderr.contains("credit or a payment method") && !stderr.contains("key is"),
        "{stderr}"
    );
}

#[test]
fn permanent_failures_to_connect_are_not_retried() {
    for status in [403, 407] {
        let proxy = Story::new().script([sends(Response::text(status, "text/plain", "no"))]);
        let port = proxy.server().port;
        let story = Story::new()
            .set("providers.custom.apiBase", json!("https://model.invalid/v1"))
            .env("HTTPS_PROXY", &format!("http://user:secret-word@127.0.0.1:{port}"));
        let stderr = story.run(["agent", "-m", "x"]).status(69).error_text();
        let expect = format!(
            "the proxy `http://***@127.0.0.1:{port}` refuses to connect to `model.invalid`: status {status}"
        );
        assert!(stderr.contains(&expect), "{stderr}");
        assert!(!stderr.contains("--resume"), "{stderr}");
        assert_eq!(proxy.requests().len(), 1);
    }
    // The proxy of the config is used as that of a variable, which precedes it.
    let proxy = Story::new().script([sends(Response::text(403, "text/plain", "no"))]);
    let url = format!("http://127.0.0.1:{}", proxy.server().port);
    let story = Story::new()
        .set("providers.custom.apiBase", json!("https://model.invalid/v1"))
        .set("http.proxy", json!(url));
    let ask = ["agent", "-m", "x"];
    let message = format!("the proxy `{url}` refuses to connect to `model.invalid`: status 403");
    story.run(ask).status(69).stderr_has(&message);
    assert_eq!(proxy.requests().len(), 1);
    let story = story.env("HTTPS_PROXY", "http://127.0.0.1:1");
    let message = "connection refused (through the proxy `http://127.0.0.1:1`)";
    story.run(ask).status(69).stderr_has(message);
    let story = Story::new().set("http.proxy", json!("http://user:secret-word@"));
    story.run(ask).status(78).stderr("nanobot: `http.proxy` is not a valid proxy URL\n");
    let story = Story::new().set("providers.custom.apiBase", json!("ftp://model.invalid/v1"));
    let stderr = story.run(["agent", "-m", "x"]).status(78).error_text();
    assert!(stderr.contains("unknown scheme: ftp"), "{stderr}");
    // A proxy that is overloaded may let the next request through.
    let proxy = Story::new().script((0..4).map(|_| sends(Response::text(503, "text/plain", "no"))));
    let story = Story::new()
        .set("providers.custom.apiBase", json!("https://model.invalid/v1"))
        .env("HTTPS_PROXY", &format!("http://127.0.0.1:{}", proxy.server().port));
    story.run(["agent", "-m", "x"]).status(69).stderr_has("503");
}

#[test]
fn a_refused_connection_is_reported() {
    let story = Story::new().set("providers.custom.apiBase", json!("http://127.0.0.1:1/v1"));
    story.run(["agent", "-m", "x"]).status(69).stderr_has("connection refused");
}

#[test]
fn a_redirect_is_not_followed_with_the_key() {
    let other = Story::new();
    let location = format!("http://127.0.0.1:{}/v1/chat/completions", other.server().port);
    let moved = Response::json(308, &json!({})).header("location", &location);
    let story = Story::new().script([sends(moved)]);
    story.run(["agent", "-m", "x"]).status(1).stderr_has("redirected to");
    assert!(other.requests().is_empty());
}

#[test]
fn a_redirect_within_the_server_is_followed() {
    for (status, absolute) in [(307, false), (308, true)] {
        let story = Story::new();
        let origin = format!("http://127.0.0.1:{}", story.server().port);
        let location = format!("{}/v2/chat/completions", if absolute { &origin } else { "" });
        let moved = Response::json(status, &json!({})).header("location", &location);
        let story = story.script([sends(moved), says("ok")]);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
        let requests = story.requests();
        assert_eq!(requests[1].path, "/v2/chat/completions");
        assert_eq!(requests[1].header("authorization"), Some("Bearer key-of-the-story"));
        assert_eq!(requests[0].raw, requests[1].raw);
    }
    // The server redirects to itself, and with a status that would change the method.
    let moved =
        |status| Response::json(status, &json!({})).header("location", "/v1/chat/completions");
    let story = Story::new().script((0..5).map(|_| sends(moved(307))));
    story.run(["agent", "-m", "x"]).status(1).stderr_has("more than 5 redirects");
    let story = Story::new().script([sends(moved(302))]);
    story.run(["agent", "-m", "x"]).status(1).stderr_has("redirected to");
}

#[test]
fn the_key_is_sent_only_in_its_header() {
    let key = "key-of-the-story";
    let story = Story::new().script([
        calls("exec", json!({ "command": "env; cat /proc/self/cmdline" })),
        fails(400, "your key key-of-the-story is odd"),
    ]);
    let result = story.run(["agent", "-m", "x", "-v", "--json", "--record", "tape"]).status(1);
    assert!(!result.text().contains(key) && !result.error_text().contains(key));
    drop(result);
    assert!(story.requests().iter().all(|request| !request.raw.contains(key)));
    let session =
        std::fs::read_to_string(story.workspace().join("sessions/cli_direct.jsonl")).unwrap();
    let tape = std::fs::read_to_string(story.dir().join("tape")).unwrap();
    assert!(!session.contains(key) && !tape.contains(key));
}

#[test]
fn a_proxy_is_not_used_for_loopback() {
    let story = Story::new()
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("http_proxy", "http://127.0.0.1:1")
        .script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
}

#[test]
fn offline_allows_only_loopback() {
    let story = Story::new().script([says("ok")]);
    story.run(["agent", "-m", "x", "--offline"]).stdout("ok\n");
    let story = Story::new().set("providers.custom.apiBase", json!("http://example.org/v1"));
    story
        .run(["agent", "-m", "x", "--offline"])
        .status(69)
        .stderr_has("`--offline` forbids connecting to `example.org`");
}

#[test]
fn sixteen_concurrent_runs_on_one_session_all_get_their_answer() {
    let story = Story::new();
    story.server().always(Box::new(|request| {
        let last = request.last_content();
        let word = last.lines().next().unwrap_or_default().to_owned();
        says(&format!("answer to {word}"))(request)
    }));
    let children: Vec<_> = (0..16)
        .map(|number| story.command(["agent", "-q", "-m", &format!("q{number}")]).spawn().unwrap())
        .collect();
    for (number, child) in children.into_iter().enumerate() {
        story.wait(child).stdout(&format!("answer to q{number}\n"));
    }
    let lines = story.session("cli_direct.jsonl");
    let messages: Vec<&Value> = lines.iter().filter(|line| line["role"].is_string()).collect();
    assert_eq!(messages.len(), 32);
    for pair in messages.chunks(2) {
        assert_eq!(
            pair[1]["content"],
            json!(format!("answer to {}", pair[0]["content"].as_str().unwrap()))
        );
    }
    assert_eq!(lines.last().unwrap()["messages"], 32);
}

#[test]
fn transient_errors_are_retried() {
    for status in [408, 409, 425, 429, 500, 502, 503, 529] {
        let story = Story::new().script([fails(status, "passing"), says("ok")]);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
    }
    for status in [400, 422] {
        let story = Story::new().script([fails(status, "for good")]);
        story.run(["agent", "-m", "x"]).status(1).stderr_has("for good");
    }
}

#[test]
fn a_proxy_is_used_for_other_hosts() {
    let proxy = Story::new();
    proxy.server().always(sends(Response::text(502, "text/plain", "no way through")));
    let address = format!("http://127.0.0.1:{}", proxy.server().port);
    let story = Story::new()
        .set("providers.custom.apiBase", json!("http://model.invalid/v1"))
        .env("HTTP_PROXY", &address);
    story.run(["agent", "-q", "-m", "x"]).status(69).stderr_has("model.invalid");
    assert!(proxy.requests()[0].path.contains("model.invalid"), "{:?}", proxy.requests()[0]);
}

/// A server with its own certificate, and the CA file; `None` if `openssl` is missing. It gives each connection this
/// response.
pub(crate) fn start_tls_server(story: &Story, body: &str) -> Option<(std::process::Child, u16)> {
    use std::io::{BufRead, BufReader, Write};
    let command_line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca && \
                 openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out request -subj /CN=localhost && \
                 printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' > more && \
                 openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -out cert -days 2 -extfile more";
    if !require("openssl") {
        return None;
    }
    let output = story.program("/bin/sh").args(["-c", command_line]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut server = story.program("openssl");
    server.args(["s_server", "-accept", "127.0.0.1:0", "-cert", "cert", "-key", "key"]);
    let mut server = server.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let accepts = lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(str::to_owned));
    let accepts = accepts.expect("it says where it listens");
    let port = accepts.rsplit(':').next().unwrap().parse().unwrap();
    // Reads on, so that the client never blocks.
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
fn tls_requires_a_valid_certificate() {
    let body =
        json!({ "choices": [{ "message": { "content": "Over TLS." }, "finish_reason": "stop" }] })
            .to_string();
    for (trusted, from_config) in [(true, false), (true, true), (false, false)] {
        let mut story = Story::new();
        let Some((mut server, port)) = start_tls_server(&story, &body) else {
            return;
        };
        story =
            story.set("providers.custom.apiBase", json!(format!("https://localhost:{port}/v1")));
        if trusted {
            let vouches = story.dir().join("ca.pem");
            story = if from_config {
                story.set("http.caFile", json!(vouches.to_str().unwrap()))
            } else {
                story.env("SSL_CERT_FILE", vouches.to_str().unwrap())
            };
            story.run(["agent", "-m", "x"]).stdout("Over TLS.\n");
        } else {
            let stderr = story.run(["agent", "-m", "x", "-v"]).status(69).error_text();
            assert!(
                stderr.contains("the certificate of `localhost` is not accepted: "),
                "{stderr}"
            );
            assert!(stderr.contains("(CA certificates are from "), "{stderr}");
            assert!(!stderr.contains("attempt 2"), "{stderr}");
        }
        drop(server.kill());
        server.wait().unwrap();
    }
    // A file of certificates that has none.
    let story = Story::new();
    let Some((mut server, port)) = start_tls_server(&story, &body) else {
        return;
    };
    let base = format!("https://localhost:{port}/v1");
    let story = story
        .set("providers.custom.apiBase", json!(base))
        .file("empty.pem", "")
        .file("text.pem", "x");
    let command = ["x509", "-in", "ca.pem", "-outform", "der", "-out", "ca.der"];
    assert!(story.program("openssl").args(command).output().unwrap().status.success());
    for (name, fault, hint) in [
        ("none.pem", "does not exist", "a file of CA certificates in PEM format as "),
        ("empty.pem", "is empty", "a file of CA certificates in PEM format as "),
        (
            "text.pem",
            "has no certificate in PEM format",
            "a file of CA certificates in PEM format as ",
        ),
        ("ca.der", "is in DER format instead of PEM", "`openssl x509 -inform der -in "),
    ] {
        let path = story.dir().join(name).to_str().unwrap().to_owned();
        let arguments = ["agent", "-m", "x", "--ephemeral"];
        let expect = |setting: &str| {
            format!(
                "nanobot: no server can be verified: `{setting}` is `$DIR/{name}`, which {fault}\n  try: {hint}"
            )
        };
        let mut command = story.command(arguments);
        let result = story.wait(command.env("SSL_CERT_FILE", &path).spawn().unwrap());
        result.status(78).stderr_has(&expect("SSL_CERT_FILE"));
        story.run(["config", "set", "http.caFile", &path]).stdout("");
        story.run(arguments).status(78).stderr_has(&expect("http.caFile"));
    }
    drop(server.kill());
    server.wait().unwrap();
    // A server that accepts connections and never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://localhost:{}/v1", silent.local_addr().unwrap().port());
    let story = Story::new().set("providers.custom.apiBase", json!(base));
    story.run(["agent", "-m", "x", "--timeout", "0.5"]).status(124).stderr_has("--timeout");
}

/// A server that answers whatever a client sends first with `bytes`.
fn start_byte_server(bytes: &'static [u8]) -> Listener {
    Listener::start(move |mut stream| {
        let has_sent = stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0);
        // The client may be gone.
        drop(stream.write_all(if has_sent { bytes } else { b"" }));
    })
}

/// One message for all that connects: a provider, an MCP server, and a channel.
#[test]
fn tls_and_plain_text_are_told_apart() {
    let plain = start_byte_server(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    // An alert: "unexpected message" (RFC 8446, section 6).
    let tls = start_byte_server(&[21, 3, 3, 0, 2, 2, 10]);
    let no_tls = format!("`127.0.0.1:{}` does not speak TLS", plain.port);
    let speaks_tls = format!("`127.0.0.1:{}` speaks TLS", tls.port);
    let no_tls_url = format!("https://127.0.0.1:{}/v1", plain.port);
    let tls_url = format!("http://127.0.0.1:{}/v1", tls.port);
    for (url, cause, hint) in [
        (&no_tls_url, &no_tls, "  try: `http://` in its address, "),
        (&tls_url, &speaks_tls, "  try: `https://` in its address, "),
    ] {
        let story = Story::new().set("providers.custom.apiBase", json!(url));
        let error = story.run(["agent", "-m", "x"]).status(69).error_text();
        assert!(error.starts_with(&format!("nanobot: {cause}\n{hint}")), "{error}");
        let story = Story::new().set("tools.mcpServers", json!({ "one": { "url": url } }));
        story.run(["mcp", "check"]).status(69).stdout_has(cause);
        let story = Story::new().set(
            "channels",
            json!({ "telegram": { "enabled": true, "token": "1:x", "apiBase": url } }),
        );
        story.run(["channel", "check", "telegram"]).status(69).stderr_has(cause);
    }
    // Mail, where the port decides.
    let greeting = start_byte_server(b"* OK ready\r\n");
    let mail = MailServer::start();
    let story = Story::new()
        .set("channels", json!({ "email": mail.keys() }))
        .set("channels.email.imapPort", json!(greeting.port))
        .set("channels.email.imapUseSsl", json!(true));
    story
        .run(["channel", "check", "email"])
        .status(69)
        .stderr_has(&format!("`127.0.0.1:{}` does not speak TLS", greeting.port));
}

/// Every format, streamed and not, with the flags for it.
fn formats_and_modes() -> impl Iterator<Item = (Format, &'static [&'static str])> {
    let streams: [&[&str]; 2] = [&[], &["--no-stream"]];
    ALL_FORMATS.into_iter().flat_map(move |format| streams.map(|flags| (format, flags)))
}

/// `agent -m x` with more arguments.
fn agent_arguments<'a>(more: &[&'a str], flags: &[&'a str]) -> Vec<&'a str> {
    [&["agent", "-m", "x"], flags, more].concat()
}

/// Texts and images of all results in the last request, and the ids that they answer.
fn results_with_ids(format: Format, request: &Request) -> Vec<(String, String)> {
    let mut id_and_content = Vec::new();
    for message in request.messages() {
        match format {
            Format::Chat if message["role"] == "tool" => {
                id_and_content.push((message["tool_call_id"].clone(), message["content"].clone()));
            }
            Format::Anthropic => {
                let blocks = message["content"].as_array().cloned().unwrap_or_default();
                let results = blocks.into_iter().filter(|block| block["type"] == "tool_result");
                id_and_content.extend(
                    results.map(|block| (block["tool_use_id"].clone(), block["content"].clone())),
                );
            }
            Format::Responses if message["type"] == "function_call_output" => {
                id_and_content.push((message["call_id"].clone(), message["output"].clone()));
            }
            _ => {}
        }
    }
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    id_and_content.into_iter().map(|(id, content)| (text(id), text(content))).collect()
}

#[test]
fn tools_work_in_every_format() {
    for (format, flags) in formats_and_modes() {
        let read = |path: &str| ("read_file", json!({ "path": path }));
        let story = Story::in_format(format, "scripted")
            .file("a.txt", "alpha")
            .file("b.txt", "beta")
            .script([
                calls_all([read("a.txt"), read("b.txt"), read("gone.txt")]),
                says("Both are there."),
            ]);
        let run_result = story.run(agent_arguments(&["--json"], flags));
        let result = run_result.json();
        assert_eq!(result["text"], "Both are there.", "{format:?}");
        assert_eq!(
            (&result["model"], &result["usage"]["output"]),
            (&json!("scripted"), &json!(14))
        );
        drop(run_result);
        let requests = story.requests();
        assert!(requests.iter().all(|request| Format::from_path(&request.path) == Some(format)));
        assert!(
            requests.iter().all(|request| request.body["stream"].is_null() != flags.is_empty())
        );
        let results = results_with_ids(format, &requests[1]);
        assert_eq!(results.len(), 3, "{format:?}");
        let ids: Vec<&str> = results.iter().map(|(id, _)| id.as_str()).collect();
        let number = requests[0].messages().len();
        assert_eq!(ids, [0, 1, 2].map(|at| format!("call_{number}_{at}")));
        for ((_, content), phrase) in results.iter().zip(["alpha", "beta", "gone.txt"]) {
            assert!(content.contains(phrase), "{format:?}: {content}");
        }
        if format == Format::Anthropic {
            let messages = requests[1].messages();
            assert_eq!(messages.len(), 3, "results stand in one message");
            let failed = messages[2]["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(|block| block["is_error"].as_bool());
            assert_eq!(failed.collect::<Vec<_>>(), [None, None, Some(true)]);
        }
    }
}

#[test]
fn images_are_sent_in_every_format() {
    let png = png_image(3, 2);
    let data = base64::engine::general_purpose::STANDARD.encode(&png);
    for (format, flags) in formats_and_modes() {
        let story = Story::in_format(format, "scripted").file("a.png", &png).script([
            calls("read_file", json!({ "path": "a.png" })),
            says("ok"),
            says("piped"),
        ]);
        story.run(agent_arguments(&["-a", "a.png"], flags)).stdout("ok\n");
        let requests = story.requests();
        assert_eq!(requests[0].raw.matches(&data).count(), 1, "{format:?}");
        assert_eq!(requests[1].raw.matches(&data).count(), 2, "{format:?}");
        let story = story.stdin(&png);
        story.run(agent_arguments(&["-a", "-", "--new"], flags)).stdout("piped\n");
        assert_eq!(story.requests()[2].raw.matches(&data).count(), 1, "{format:?}");
    }
}

/// An error in the format's own form.
fn error_response(format: Format, status: u16, kind: &str) -> Response {
    let error = json!({ "type": kind, "code": kind, "message": "No, thanks." });
    let body = match format {
        Format::Anthropic => json!({ "type": "error", "error": error, "request_id": "req_1" }),
        Format::Chat | Format::Responses => json!({ "error": error }),
    };
    Response::json(status, &body)
}

#[test]
fn failures_are_reported_in_every_format() {
    for (format, flags) in formats_and_modes() {
        for (answer_status, kind, status) in [
            (400, "invalid_request_error", 1),
            (401, "authentication_error", 77),
            (403, "permission_error", 77),
            (404, "not_found_error", 78),
            (413, "request_too_large", 65),
        ] {
            let story = Story::in_format(format, "scripted").script([sends(error_response(
                format,
                answer_status,
                kind,
            ))]);
            story.run(agent_arguments(&[], flags)).status(status).stderr_has("No, thanks.");
        }
        // The provider's support finds a request by this name.
        let header = match format {
            Format::Anthropic => "request-id",
            Format::Chat | Format::Responses => "x-request-id",
        };
        let named = error_response(format, 400, "invalid_request_error").header(header, "req_7");
        Story::in_format(format, "scripted")
            .script([sends(named)])
            .run(agent_arguments(&[], flags))
            .status(1)
            .stderr_has("No, thanks. (status 400, request req_7)");
        let busy = error_response(format, 429, "rate_limit_error").header("retry-after", "1");
        let overloaded =
            error_response(format, 529, "overloaded_error").header("retry-after-ms", "1");
        let story = Story::in_format(format, "scripted").script([
            sends(busy),
            sends(overloaded),
            says("ok"),
        ]);
        let stderr = story.run(agent_arguments(&["-v"], flags)).stdout("ok\n").error_text();
        assert!(
            stderr.contains("attempt 2 in 1.0 s") && stderr.contains("No, thanks. (status 529)"),
            "{stderr}"
        );
        let long = error_response(format, 429, "rate_limit_error").header("retry-after", "600");
        let story = Story::in_format(format, "scripted").script([sends(long)]);
        story.run(agent_arguments(&[], flags)).status(75).stderr_has("No, thanks.");
        // The same errors within a response of status 200.
        for (kind, tries, status) in [
            ("overloaded_error", 4, 69),
            ("rate_limit_error", 4, 75),
            ("invalid_request_error", 1, 1),
        ] {
            let answer = error_response(format, 200, kind);
            let story = Story::in_format(format, "scripted")
                .script((0..tries).map(|_| sends(answer.clone())));
            story.run(agent_arguments(&[], flags)).status(status).stderr_has("No, thanks.");
        }
    }
}

#[test]
fn schemas_are_sent_in_every_format() {
    for (format, mode_flags) in formats_and_modes() {
        let answer = says("{\"name\": \"Ada\", \"age\": 36}");
        let mut story = Story::in_format(format, "scripted").script([answer]);
        let mut model = "scripted";
        match format {
            // A server that is known to accept them.
            Format::Chat => {
                let base = format!("http://127.0.0.1:{}/v1", story.server().port);
                story = story
                    .set("providers.ollama", json!({ "apiBase": base }))
                    .set("agents.defaults.provider", json!("ollama"));
            }
            Format::Anthropic => model = "claude-haiku-5-5",
            Format::Responses => {}
        }
        let flags = ["--schema", "name, age int", "--model", model];
        let result = story.run(agent_arguments(&flags, mode_flags));
        let value: Value = serde_json::from_str(&result.text()).unwrap();
        assert_eq!(value, json!({ "name": "Ada", "age": 36 }));
        let body = &story.requests()[0].body;
        let schema = match format {
            Format::Chat => &body["response_format"]["json_schema"]["schema"],
            Format::Anthropic => &body["output_config"]["format"]["schema"],
            Format::Responses => &body["text"]["format"]["schema"],
        };
        assert_eq!(schema["type"], "object", "{format:?}: {body}");
        assert_eq!(schema["additionalProperties"], false, "{format:?}: {body}");
    }
}

#[test]
fn finish_reasons_are_read_in_every_format() {
    for (format, flags) in formats_and_modes() {
        let reply = |text: &str, finish: &str| {
            replies(json!({ "role": "assistant", "content": text }), finish)
        };
        let check = |text: &str, finish: &str| {
            // An answer cut by the output limit is continued three times.
            let count = if finish == "length" { 4 } else { 1 };
            let story = Story::in_format(format, "scripted")
                .script((0..count).map(|_| reply(text, finish)));
            let result = story.run(agent_arguments(&[], flags));
            let outcome = (result.code(), result.text(), result.error_text());
            drop(result);
            outcome
        };
        let (status, text, stderr) = check("1 ", "length");
        assert!(status == 3 && text == "1 1 1 1 \n", "{format:?}: {status} {text} {stderr}");
        let (status, text, stderr) = check("", "content_filter");
        assert!(
            status == 1 && text.is_empty() && stderr.contains("declined"),
            "{format:?}: {stderr}"
        );
        // An answer cut by a content filter is incomplete and reported as such.
        let (status, text, stderr) = check("Half of", "content_filter");
        assert!(
            status == 1 && text == "Half of\n" && stderr.contains("declined"),
            "{format:?}: {status} {text} {stderr}"
        );
        let (status, text, stderr) = check("", "odd");
        assert!(
            status == 1
                && text.is_empty()
                && stderr.contains("an empty reply with the unknown finish reason `odd`"),
            "{format:?}: {stderr}"
        );
    }
}

#[test]
fn each_request_begins_with_the_bytes_of_the_previous_one() {
    const CACHE_CONTROL: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";
    for (format, flags) in formats_and_modes() {
        let model = if format == Format::Anthropic { "claude-opus-4-7" } else { "gpt-5" };
        let read = |path: &str| calls("read_file", json!({ "path": path }));
        let story = Story::in_format(format, model).file("a.txt", "alpha").script([
            read("a.txt"),
            read("gone"),
            read("a.txt"),
            says("ok"),
            read("a.txt"),
            says("again"),
        ]);
        story.run(agent_arguments(&["--reasoning-effort", "high"], flags)).stdout("ok\n");
        story.run(agent_arguments(&["--reasoning-effort", "high"], flags)).stdout("again\n");
        let requests = story.requests();
        let open = |raw: &str| raw.strip_suffix("]}").expect("what grows stands last").to_owned();
        for (number, pair) in requests.windows(2).enumerate() {
            let [before, after] = [&pair[0].raw, &pair[1].raw];
            let within_turn = number != 3;
            let first = number == 0 || number == 4;
            if format != Format::Anthropic || first {
                assert!(after.starts_with(&open(before)), "{format:?}:\n{before}\n{after}");
            }
            let [before, after] = [before, after].map(|raw| raw.replace(CACHE_CONTROL, ""));
            assert!(after.starts_with(&open(&before)), "{format:?}:\n{before}\n{after}");
            assert!(within_turn || pair[1].messages().len() > pair[0].messages().len());
        }
        for request in &requests {
            let marks = request.raw.matches(CACHE_CONTROL).count();
            let expect = match (format, request.messages().len()) {
                (Format::Anthropic, 1) => 3,
                (Format::Anthropic, _) if request.last_content().contains("tool_result") => 4,
                (Format::Anthropic, _) => 3,
                _ => 0,
            };
            assert_eq!(marks, expect, "{format:?}: {}", request.raw);
        }
    }
}

#[test]
fn unusual_but_valid_streams_are_accepted_in_every_format() {
    type SplitStream = fn(String) -> Vec<Vec<u8>>;
    let one = |text: String| vec![text.into_bytes()];
    let changes: [SplitStream; 7] = [
        |text| vec![text.replace("data: ", "data:").into_bytes()],
        |text| vec![text.replace('\n', "\r\n").into_bytes()],
        |text| vec![text.replace('\n', "\r").into_bytes()],
        |text| vec![text.replace("\n\n", "\n\n:keepalive\n\n: ping\n\n").into_bytes()],
        // One event in several lines.
        |text| vec![text.replace("data: {", "data: {\ndata:").into_bytes()],
        |text| {
            vec![
                text.replace("[DONE]", "[DONE] ")
                    .replace("event: ", "id: 1\nretry: 5\nevent: ")
                    .into_bytes(),
            ]
        },
        |text| format!("\u{feff}{text}").into_bytes().chunks(1).map(<[u8]>::to_vec).collect(),
    ];
    for format in ALL_FORMATS {
        for (number, change) in changes.into_iter().enumerate() {
            let turn = move |turn: Responder| -> Responder {
                Box::new(move |request| {
                    let mut answer = turn(request);
                    let text = String::from_utf8(answer.chunks.concat()).unwrap();
                    answer.chunks = if text.starts_with('{') { one(text) } else { change(text) };
                    answer
                })
            };
            let story = Story::in_format(format, "scripted").file("a.txt", "alpha").script([
                turn(calls("read_file", json!({ "path": "a.txt" }))),
                turn(says("h\u{e9}llo \u{2028}\u{85} \u{1f642}")),
            ]);
            let result = story.run(["agent", "-m", "x", "--json"]);
            assert_eq!(
                result.json()["text"],
                "h\u{e9}llo \u{2028}\u{85} \u{1f642}",
                "{format:?}, change {number}"
            );
            drop(result);
            assert!(story.requests()[1].raw.contains("alpha"));
        }
    }
}

/// Replaces the first and the second half of a character in the events of `responder` by their escapes.
fn with_split_character(responder: Responder) -> Responder {
    Box::new(move |request| {
        let mut response = responder(request);
        for chunk in &mut response.chunks {
            let text = String::from_utf8_lossy(chunk);
            let text = text.replace("FIRST ", "\\ud83d").replace("SECOND", "\\ude00");
            *chunk = text.into_bytes();
        }
        response
    })
}

#[test]
fn a_character_that_is_cut_in_two_is_joined() {
    for format in ALL_FORMATS {
        // The server cuts arguments in the middle.
        let arguments = r#"{"content":"FIRST SECOND","path":"a"}"#;
        assert_eq!(arguments.find("SECOND"), Some(arguments.len() / 2));
        let function = json!({ "name": "write_file", "arguments": arguments });
        let calls = json!([{ "id": "call_1", "type": "function", "function": function }]);
        let call = json!({ "role": "assistant", "content": null, "tool_calls": calls });
        let text = json!({ "role": "assistant", "content": "a FIRST SECONDb" });
        let script = [replies(call, "tool_calls"), replies(text, "stop")];
        let story = Story::in_format(format, "scripted").script(script.map(with_split_character));
        story.run(["agent", "-m", "x", "--write"]).stdout("a \u{1f600}b\n");
        let content = std::fs::read_to_string(story.dir().join("a")).unwrap();
        assert_eq!(content, "\u{1f600}", "{format:?}");
    }
}

#[test]
fn calls_are_repaired_before_they_run_and_go_back() {
    for format in ALL_FORMATS {
        let call = |number: usize, (name, arguments): (&str, &str)| {
            json!({ "id": format!("call_{number}"), "type": "function",
                    "function": { "name": name, "arguments": arguments } })
        };
        let calls = [
            ("functions.list_dir", "{\"path\": \".\",}"),
            ("list_dir<|channel|>commentary", "{'path': '.'}"),
            ("default_api:nothing", "{\"path\": \".\""),
        ];
        let calls: Vec<Value> =
            calls.into_iter().enumerate().map(|(at, it)| call(at, it)).collect();
        let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
        let story = Story::in_format(format, "scripted")
            .file("notes.md", "x")
            .script([replies(message, "tool_calls"), says("Done.")]);
        story.run(["agent", "-m", "x"]).stdout("Done.\n");
        let request = &story.requests()[1];
        let body = request.raw.as_str();
        for name in ["functions.", "<|channel|>", "default_api:nothing\"", "malformed_arguments"] {
            assert!(!body.contains(name), "{format:?}: {name} in {body}");
        }
        assert!(body.contains("default_api_nothing"), "{format:?}: {body}");
        let results = results_with_ids(format, request);
        let is_list = |(_, text): &&(String, String)| text.contains("notes.md");
        assert_eq!(results.iter().filter(is_list).count(), 2, "{format:?}: {results:?}");
    }
}

#[test]
fn a_session_continues_in_another_format() {
    let read = |text: &str| {
        let call = json!({ "id": "", "type": "function", "function": { "name": "read_file", "arguments": "{\"path\":\"a.txt\"}" } });
        let message = json!({ "role": "assistant", "content": text, "tool_calls": [call] });
        replies(message, "tool_calls")
    };
    let mut story = Story::new().file("a.txt", "alpha");
    let mut earlier = Vec::new();
    for (number, format) in ALL_FORMATS.into_iter().chain(ALL_FORMATS).enumerate() {
        let word = format!("answer{number}");
        story = story.set("providers.custom.apiType", json!(format.config_name())).script([
            read("I look. "),
            fails(401, "no"),
            read(""),
            says(&word),
        ]);
        // An interrupted turn that ends with a tool result, and the next one.
        story.run(["agent", "-m", "first"]).status(77).stderr_has("no");
        story
            .run(["agent", "-m", "second"])
            .stdout(&format!("{word}\n"))
            .stderr_has("marked as interrupted");
        let requests = story.requests();
        let last = requests.last().unwrap();
        assert_eq!(Format::from_path(&last.path), Some(format));
        assert!(earlier.iter().all(|word| last.raw.contains(word)), "{}", last.raw);
        earlier.push(word);
        // Each result answers its own call.
        let mut ids: Vec<String> =
            results_with_ids(format, last).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), 2 * (number + 1));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 2 * (number + 1), "{ids:?}");
    }
}

#[test]
fn the_final_request_of_a_turn_has_no_tools() {
    for (format, flags) in formats_and_modes() {
        let list = || calls("list_dir", json!({ "path": "." }));
        let story = Story::in_format(format, "scripted").script([list(), says("So far.")]);
        let result = story.run(agent_arguments(&["--max-iterations", "1"], flags));
        assert_eq!(result.text(), "So far.\n");
        drop((result.code(), result.error_text()));
        drop(result);
        let requests = story.requests();
        let choice = |at: usize| {
            let choice = &requests[at].body["tool_choice"];
            choice.as_str().or(choice["type"].as_str()).map(str::to_owned)
        };
        assert_eq!(
            [choice(0), choice(1)],
            ["auto", "none"].map(|word| Some(word.to_owned())),
            "{format:?}"
        );
        assert_eq!(requests[0].body["tools"], requests[1].body["tools"]);
    }
}

#[test]
fn a_dry_run_is_a_command_that_sends_the_request() {
    for format in ALL_FORMATS {
        let story = Story::in_format(format, "scripted").script([says("ok")]);
        let command_line = story.run(["agent", "-m", "it's", "--dry-run=curl"]).text();
        let mut shell = story.program("/bin/sh");
        let Ok(result) = shell.args(["-c", &command_line]).env("API_KEY", "k").output() else {
            return;
        };
        if !result.status.success() {
            // Without curl a run receives the script's reply.
            story.run(["agent", "-m", "x"]).stdout("ok\n");
            continue;
        }
        let request = &story.requests()[0];
        assert_eq!(Format::from_path(&request.path), Some(format));
        let key = match format {
            Format::Anthropic => ("x-api-key", "k"),
            Format::Chat | Format::Responses => ("authorization", "Bearer k"),
        };
        assert_eq!(request.header(key.0), Some(key.1));
        assert_eq!(request.header("anthropic-version").is_some(), format == Format::Anthropic);
        assert!(request.last_content().contains("it's"));
    }
}

#[test]
fn invalid_requests_are_detected() {
    for format in ALL_FORMATS {
        let story = Story::in_format(format, "scripted").script([says("ok")]);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
        let request = &story.requests()[0];
        let mut wrong = request.clone();
        wrong.body["colour"] = "red".into();
        assert!(
            formats::validate_request(&wrong, &[])
                .is_some_and(|argument| argument.contains("colour"))
        );
        assert_eq!(formats::validate_request(&wrong, &["colour".to_owned()]), None);
        wrong = request.clone();
        wrong.body["tools"][0]["nme"] = "x".into();
        assert!(
            formats::validate_request(&wrong, &[])
                .is_some_and(|argument| argument.contains("/tools/0"))
        );
    }
}
