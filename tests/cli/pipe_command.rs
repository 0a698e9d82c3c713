//! `nanobot serve pipe`: JSON lines in, answers and acknowledgements out.

use crate::budgets::with_price;
use crate::mcp::{CallInput, story_with_waiting_server, until_called};
use crate::memory::{calls_save_memory, session_text};
use crate::server::{Request, Responder, Response, calls, fails, replies, says, sends};
use crate::signals::send_signal;
use crate::story::{Story, write};
use crate::wait::{until, until_exists};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// The lines of the output.
fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// The texts of the answers, with the ids of their messages.
fn answers(lines: &[Value]) -> Vec<(&str, &str)> {
    let messages = lines.iter().filter(|line| line["type"] == "message");
    messages
        .map(|line| (line["in_reply_to"].as_str().unwrap(), line["text"].as_str().unwrap()))
        .collect()
}

fn message(id: &str, session: &str, text: &str) -> String {
    format!("{}\n", json!({ "id": id, "session": session, "text": text }))
}

/// A running pipe.
struct RunningPipe {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl RunningPipe {
    fn start(story: &Story, flags: &[&str]) -> Self {
        let mut command = story.command(["serve", "pipe"].iter().chain(flags));
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn write(&mut self, lines: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(lines.as_bytes()).unwrap();
    }

    fn read_line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// A gate that a responder waits at.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.changed.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

#[test]
fn a_message_is_answered_and_acknowledged() {
    let line = json!({ "id": "m1", "channel": "mqtt", "chat": "7", "from": "ann", "text": "hello", "facts": { "a": 1 }, "topic": "t" });
    let story = Story::new().script([says("Hi.")]).stdin(format!("\n{line}"));
    let output_lines = lines(&story.run(["serve", "pipe"]).text());
    assert_eq!(output_lines.len(), 2);
    let answer = &output_lines[0];
    assert_eq!(answer["v"], 1);
    assert_eq!(answer["in_reply_to"], "m1");
    assert_eq!(answer["session"], "mqtt:7");
    assert_eq!(answer["text"], "Hi.");
    assert_eq!(answer["status"], json!({ "name": "answered", "number": 0 }));
    assert_eq!(answer["facts"], json!({ "a": 1, "topic": "t" }));
    assert!(answer["usage"]["input"].as_u64().unwrap() > 0, "{answer}");
    assert_eq!(output_lines[1], json!({ "v": 1, "type": "ack", "id": "m1" }));
    // The turn is in the session, under the id that the answer names.
    let stored = story.session("bus_mqtt_7.jsonl");
    let user = stored.iter().find(|line| line["role"] == "user").unwrap();
    assert!(user.to_string().contains(answer["turn"].as_str().unwrap()), "{user}");
    // The workspace is the directory, and the text is not the user's.
    let body = &story.requests()[0].raw;
    assert!(body.contains("A program passes on messages"), "{body}");
    let explained = story.run(["policy", "explain", "--session", "bus:mqtt:7"]).text();
    assert!(explained.contains("project"), "{explained}");
}

#[test]
fn bad_lines_are_named_and_the_rest_is_answered() {
    let input = format!(
        "{}{{\n\n[1]\n{}{{\"session\":\"s\"}}\n{}",
        message("1", "s", "one"),
        "{\"session\":\"s\",\"text\":\"\u{0}\"}\n".replace('\u{0}', "\\ud800"),
        message("2", "s", "/new").trim_end()
    );
    let story = Story::new().script([says("One."), says("Two.")]).stdin(input);
    let output_lines = lines(&story.run(["serve", "pipe"]).status(65).text());
    assert_eq!(answers(&output_lines), [("1", "One."), ("2", "Two.")]);
    let errors = output_lines.iter().filter(|line| line["type"] == "error");
    let numbers: Vec<u64> = errors.map(|line| line["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [2, 4, 5, 6]);
    // A command of a chat is text here: no user typed it.
    assert!(story.requests()[1].last_content().contains("/new"));
}

#[test]
fn an_id_may_be_a_number_and_an_error_names_it() {
    let lines_of_input = "{\"id\":1,\"session\":\"s\",\"text\":\"one\"}\n\
                          {\"id\":\"1\",\"session\":\"s\",\"text\":\"two\"}\n\
                          {\"id\":7,\"session\":\"s\"}\n";
    let story = Story::new().script([says("One."), says("Two.")]).stdin(lines_of_input);
    let check = || {
        let result = story.run(["serve", "pipe", "--name", "bus"]).status(65);
        let output_lines = lines(&result.text());
        let lines_of = |kind: &str, key: &str| -> Vec<Value> {
            let lines = output_lines.iter().filter(|line| line["type"] == kind);
            lines.map(|line| line[key].clone()).collect()
        };
        let mut answers = lines_of("message", "in_reply_to");
        answers.sort_by_key(Value::to_string);
        assert_eq!(answers, [json!("1"), json!(1)], "{output_lines:?}");
        let mut acknowledged = lines_of("ack", "id");
        acknowledged.sort_by_key(Value::to_string);
        assert_eq!(acknowledged, [json!("1"), json!(1)], "{output_lines:?}");
        assert_eq!(lines_of("error", "id"), [json!(7)]);
    };
    check();
    // They are two ids of the journal, too.
    check();
    assert_eq!(story.requests().len(), 2);
}

#[test]
fn a_line_that_is_too_long_is_named_and_the_rest_is_answered() {
    let long = message("2", "s", &"x".repeat(17 << 20));
    let lines_of = |last: &str| [&message("1", "s", "one"), &long, last].concat();
    let story = Story::new()
        .script([says("One."), says("Three.")])
        .stdin(lines_of(&message("3", "s", "three")));
    let output_lines = lines(&story.run(["serve", "pipe"]).status(65).text());
    assert_eq!(answers(&output_lines), [("1", "One."), ("3", "Three.")]);
    let error = "the line has more than 16 MiB";
    let is_named = |line: &Value| line["line"] == 2 && line["error"] == error;
    assert_eq!(output_lines.iter().filter(|line| is_named(line)).count(), 1);
    // It may be the last one, without a line break.
    let story = story.script([says("One.")]).stdin(lines_of("").trim_end());
    let output_lines = lines(&story.run(["serve", "pipe"]).status(65).text());
    assert!(output_lines.iter().any(is_named), "{output_lines:?}");
}

#[test]
fn sessions_are_answered_side_by_side_and_each_in_order() {
    let story = Story::new();
    let gate = &*Box::leak(Box::new(Gate::default()));
    story.server().always(Box::new(move |request| {
        let text = request.last_content();
        if text.contains("first") {
            // Only an answer in another session lets this one go on.
            gate.wait();
        } else if text.contains("beside") {
            gate.open();
        }
        says(text.lines().last().unwrap_or_default())(request)
    }));
    let input =
        [message("a1", "a", "first"), message("a2", "a", "second"), message("b1", "b", "beside")];
    let story = story.stdin(input.concat());
    let output_lines = lines(&story.run(["serve", "pipe", "-j", "2"]).text());
    let ids: Vec<&str> =
        answers(&output_lines).iter().map(|(id, _)| *id).filter(|id| *id != "b1").collect();
    assert_eq!(ids, ["a1", "a2"]);
    assert_eq!(output_lines.len(), 6);
    assert_eq!(
        story.session("bus_a.jsonl").iter().filter(|line| line["role"] == "assistant").count(),
        2
    );
}

#[test]
fn answers_come_while_the_input_is_open() {
    let story = Story::new().script([says("One."), says("Two.")]);
    let mut pipe = RunningPipe::start(&story, &[]);
    for (id, text) in [("1", "One."), ("2", "Two.")] {
        pipe.write(&message(id, "s", "x"));
        assert_eq!(pipe.read_line()["text"], text);
        assert_eq!(pipe.read_line()["id"], id);
    }
    drop(pipe.stdin.take());
    assert!(pipe.child.wait().unwrap().success());
}

#[test]
fn a_failure_that_passes_is_not_acknowledged() {
    let limited = Response::json(429, &json!({ "error": { "message": "slow down" } }))
        .header("retry-after", "3600");
    let story = Story::new().script([says("One."), sends(limited)]);
    let story = story.stdin([message("1", "s", "one"), message("2", "t", "two")].concat());
    let output_lines = lines(&story.run(["serve", "pipe"]).status(75).text());
    assert_eq!(answers(&output_lines), [("1", "One."), ("2", "")]);
    assert_eq!(output_lines[2]["status"]["number"], 75);
    let acknowledged: Vec<&Value> =
        output_lines.iter().filter(|line| line["type"] == "ack").collect();
    assert_eq!(acknowledged, [&json!({ "v": 1, "type": "ack", "id": "1" })]);
    // So is one that a budget stopped before the model was asked. A byte order mark is no part of the first message.
    let story = with_price(Story::new()).script([says("One.")]);
    let story = story.set("budget", json!({ "daily": 0.5 }));
    let input = [message("1", "s", "one"), message("2", "s", "two")].concat();
    let story = story.stdin(format!("\u{feff}{input}"));
    let output_lines = lines(&story.run(["serve", "pipe"]).status(4).text());
    assert_eq!(answers(&output_lines), [("1", "One."), ("2", "")]);
    let acknowledged: Vec<&Value> =
        output_lines.iter().filter(|line| line["type"] == "ack").collect();
    assert_eq!(acknowledged, [&json!({ "v": 1, "type": "ack", "id": "1" })]);
    // One that stays is.
    let story = Story::new().stdin(message("1", "s", "one"));
    story.server().always(fails(401, "bad key"));
    let output_lines = lines(&story.run(["serve", "pipe"]).status(77).text());
    assert_eq!(
        (&output_lines[0]["status"]["number"], &output_lines[1]["type"]),
        (&json!(77), &json!("ack"))
    );
}

#[test]
fn an_offline_pipe_sends_nothing_to_a_remote_model() {
    let story = Story::new()
        .env("NANOBOT_PROVIDERS__CUSTOM__API_BASE", "https://model.example/v1")
        .stdin(message("1", "s", "hi"));
    let text = story.run(["serve", "pipe", "--offline"]).status(69).text();
    assert!(text.contains("`--offline` forbids connecting to `model.example`"), "{text}");
}

#[test]
fn a_signal_lets_what_has_begun_be_answered() {
    let story = Story::new();
    let gate = &*Box::leak(Box::new(Gate::default()));
    let (began_tx, began_rx) = std::sync::mpsc::channel();
    let responder: Responder = Box::new(move |request| {
        began_tx.send(()).unwrap();
        gate.wait();
        says("One.")(request)
    });
    story.server().script([responder]);
    let mut pipe = RunningPipe::start(&story, &[]);
    let input = [message("1", "s", "one"), message("2", "s", "two")].concat();
    pipe.write(&input);
    began_rx.recv().unwrap();
    send_signal(&pipe.child, Signal::TERM.as_raw());
    until("the signal has arrived", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pipe.child.id())).unwrap();
        let mut pending = status.lines().filter_map(|line| line.strip_prefix("ShdPnd:"));
        pending.any(|mask| mask.trim().chars().all(|digit| digit == '0'))
    });
    gate.open();
    assert_eq!(pipe.read_line()["text"], "One.");
    assert_eq!(pipe.read_line()["id"], "1");
    let mut rest = String::new();
    pipe.stdout.read_line(&mut rest).unwrap();
    assert_eq!(rest, "");
    let ended = pipe.child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(Signal::TERM.as_raw()));
}

#[test]
fn many_messages_are_answered_in_the_order_of_their_sessions() {
    let story = Story::new();
    story.server().always(says("ok"));
    let input: String = (0..200)
        .map(|number| message(&number.to_string(), &format!("s{}", number % 7), "x"))
        .collect();
    let story = story.stdin(input);
    let output_lines = lines(&story.run(["serve", "pipe", "-j", "8"]).text());
    assert_eq!(output_lines.len(), 400);
    for session in 0..7 {
        let name = format!("s{session}");
        let ids: Vec<u64> = output_lines
            .iter()
            .filter(|line| line["session"] == name.as_str())
            .map(|line| line["in_reply_to"].as_str().unwrap().parse().unwrap())
            .collect();
        assert!(ids.is_sorted() && ids.len() > 27, "{ids:?}");
    }
}

#[test]
fn the_input_is_read_no_faster_than_it_is_answered() {
    const ANSWERED: usize = 50;
    let story = Story::new();
    let gate = &*Box::leak(Box::new(Gate::default()));
    let count = &*Box::leak(Box::new(AtomicUsize::new(0)));
    let (reached_tx, reached_rx) = std::sync::mpsc::channel();
    story.server().always(Box::new(move |request| {
        if count.fetch_add(1, Ordering::SeqCst) == ANSWERED {
            reached_tx.send(()).unwrap();
            gate.wait();
        }
        says("ok")(request)
    }));
    let mut pipe = RunningPipe::start(&story, &[]);
    // Far more than the buffers between the two programs take.
    let line = message("x", "s", &"word ".repeat(2000));
    let mut stdin = pipe.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        let lines = std::iter::repeat_n(line, 4000);
        lines.take_while(|line| stdin.write_all(line.as_bytes()).is_ok()).count()
    });
    reached_rx.recv().unwrap();
    send_signal(&pipe.child, Signal::TERM.as_raw());
    gate.open();
    pipe.child.wait().unwrap();
    let written = writer.join().unwrap();
    // One is answered and two wait; some 13 more fit into the pipe and the buffer of the reader.
    assert!((ANSWERED..ANSWERED + 40).contains(&written), "{written}");
}

#[test]
fn a_turn_that_fails_for_another_cause_shows_in_the_status() {
    let line = json!({ "id": "1", "session": "s", "text": "look", "files": ["no such file"] });
    let story = Story::new().script([says("Two.")]);
    let story = story.stdin(format!("{line}\n{}", message("2", "s", "two")));
    let output_lines = lines(&story.run(["serve", "pipe"]).status(1).text());
    assert_eq!(answers(&output_lines), [("1", ""), ("2", "Two.")]);
    assert_eq!(output_lines[0]["status"]["number"], 66);
    assert!(
        output_lines[0]["error"].as_str().unwrap().contains("no such file"),
        "{}",
        output_lines[0]
    );
}

#[test]
fn files_of_messages_are_read_as_far_as_the_run_may_read_them() {
    let story = Story::new()
        .workspace_file("notes.md", "buy milk\n")
        .file("here.md", "from the directory\n");
    let (home, dir) = (story.home(), story.dir());
    write(&home.join(".ssh/id_rsa"), b"the secret");
    write(&story.workspace().join("sessions/x.jsonl"), b"the secret\n");
    std::os::unix::fs::symlink(home.join(".ssh/id_rsa"), story.workspace().join("link")).unwrap();
    let line = |id: usize, file: &str| {
        let file =
            file.replace("HOME", home.to_str().unwrap()).replace("DIR", dir.to_str().unwrap());
        format!(
            "{}\n",
            json!({ "id": id.to_string(), "session": "s", "text": "look", "files": [file] })
        )
    };
    let refused = [
        "HOME/.ssh/id_rsa",
        "~/.ssh/id_rsa",
        "../../.ssh/id_rsa",
        "link",
        "HOME/.nanobot/config.json",
        "sessions/x.jsonl",
        "HOME/.ssh",
        "/proc/self/environ",
        "DIR/here.md",
        "http://127.0.0.1/x",
    ];
    let input: String = refused.iter().enumerate().map(|(id, file)| line(id, file)).collect();
    let story = story.stdin(format!("{input}{}", line(20, "notes.md"))).script([says("Milk.")]);
    let result = story.run(["serve", "pipe"]);
    assert_ne!(result.code(), 0);
    let output_lines = lines(&result.text());
    drop(result);
    for (id, file) in refused.iter().enumerate() {
        let id = id.to_string();
        let answer = output_lines.iter().find(|line| line["in_reply_to"] == id).unwrap();
        assert!(answer["error"].as_str().unwrap().contains("`files`"), "{file}: {answer}");
    }
    let requests = story.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].raw.contains("buy milk") && !requests[0].raw.contains("the secret"));
    // A grant is the user's word.
    let story = story.stdin(line(1, "DIR/here.md")).script([says("Here.")]);
    story.run(["serve", "pipe", "--read", dir.to_str().unwrap()]).stdout_has("Here.");
    assert!(story.requests()[1].raw.contains("from the directory"));
}

#[test]
fn messages_of_programs_have_conversations_of_their_own() {
    let mut story = Story::new()
        .set("channels.telegram", json!({ "enabled": true, "token": "1:x", "allowFrom": ["7"] }))
        .script([says("The user's."), says("One.")]);
    story.run(["agent", "-m", "the word is pelican"]).stdout("The user's.\n");
    story = story.stdin(message("1", "cli:direct", "what was the word?"));
    let output_lines = lines(&story.run(["serve", "pipe"]).text());
    assert_eq!(output_lines[0]["session"], "cli:direct");
    assert!(!story.requests()[1].raw.contains("pelican"));
    // A program cannot begin a conversation with a chat: the agent may write to a chat that has one.
    let send =
        || calls("message", json!({ "content": "hi", "channel": "telegram", "chat_id": "666" }));
    let chat = json!({ "id": "2", "channel": "telegram", "chat": "666", "text": "hello" });
    for flags in [&["serve", "pipe"][..], &["serve", "pipe", "--any-session"]] {
        let is_own = flags.len() == 2;
        story = story.stdin(chat.to_string());
        story.server().script(is_own.then(|| says("Hello.")));
        let result = story.run(flags);
        let output_lines = lines(&if is_own { result.text() } else { result.status(65).text() });
        assert_eq!(output_lines[0]["type"] == "message", is_own, "{output_lines:?}");
        story.server().script([send(), says("No.")]);
        story.run(["agent", "-m", "x"]).stdout("No.\n").stderr_has("denied: message");
    }
    // With the flag, a message continues a conversation of the user's.
    story = story.stdin(message("3", "cli:direct", "what was the word?"));
    story.server().script([says("Pelican.")]);
    story.run(["serve", "pipe", "--any-session"]).stdout_has("Pelican.");
    assert!(story.last_request().raw.contains("pelican"));
}

/// The ids of the acknowledgements.
fn acknowledged(lines: &[Value]) -> Vec<&str> {
    let acks = lines.iter().filter(|line| line["type"] == "ack");
    acks.map(|line| line["id"].as_str().unwrap()).collect()
}

const NAMED: [&str; 4] = ["serve", "pipe", "--name", "bus"];

fn journal(story: &Story) -> std::path::PathBuf {
    story.home().join(".nanobot/pipes/bus/inbox.jsonl")
}

#[test]
fn an_answered_id_is_answered_from_the_journal() {
    let story = Story::new().script([says("One."), says("Two.")]);
    let story = story.stdin([message("1", "s", "one"), message("1", "s", "again")].concat());
    let first = lines(&story.run(NAMED).text());
    assert_eq!(answers(&first), [("1", "One."), ("1", "One.")]);
    let story = story.stdin([message("1", "other", "x"), message("2", "s", "two")].concat());
    let output_lines = lines(&story.run(NAMED).text());
    assert_eq!(answers(&output_lines), [("1", "One."), ("2", "Two.")]);
    assert_eq!(acknowledged(&output_lines), ["1", "2"]);
    assert_eq!(output_lines[0], first[0]);
    assert_eq!(story.requests().len(), 2);
    // A name has ids of its own, and no name has none.
    for arguments in [&["serve", "pipe", "--name", "other"][..], &["serve", "pipe"]] {
        let story = story_with_message("1");
        story.run(arguments).stdout_has("Anew.");
    }
    let mode = std::fs::metadata(journal(&story)).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
}

fn story_with_message(id: &str) -> Story {
    let story = Story::new().script([says("Anew.")]);
    story.stdin(message(id, "s", "x"))
}

#[test]
fn a_journal_needs_ids_and_a_name() {
    let story = Story::new().stdin(json!({ "session": "s", "text": "x" }).to_string());
    let output_lines = lines(&story.run(NAMED).status(65).text());
    assert_eq!(output_lines[0]["error"], "`id` is missing, which `--name` needs");
    for name in ["", ".", "..", "a/b", "a b"] {
        let result = story.run(["serve", "pipe", "--name", name]).status(2);
        assert!(result.error_text().contains("letters, digits"), "{name}");
    }
    assert!(story.requests().is_empty());
}

#[test]
fn one_process_at_a_time_has_a_journal() {
    let story = Story::new().script([says("One.")]);
    let mut pipe = RunningPipe::start(&story, &["--name", "bus"]);
    pipe.write(&message("1", "s", "x"));
    assert_eq!(pipe.read_line()["text"], "One.");
    let result = story.run(NAMED).status(75);
    assert!(result.error_text().contains("the pipe `bus`"), "{}", result.error_text());
    drop(result);
    drop(pipe.stdin.take());
    assert!(pipe.child.wait().unwrap().success());
    story.run(NAMED).stdout("");
}

#[test]
fn what_a_killed_pipe_left_is_taken_up() {
    // During the turn: it is resumed, and its message is in the session once.
    let story = Story::new();
    let (sender, stream) = Response::streaming();
    story.server().script([sends(stream)]);
    let mut pipe = RunningPipe::start(&story, &["--name", "bus"]);
    pipe.write(&[message("1", "s", "first words"), message("2", "t", "-")].concat());
    story.server().wait_for_requests(1);
    let journal_dir = journal(&story).parent().unwrap().to_owned();
    let text = || std::fs::read_to_string(journal(&story)).unwrap();
    crate::wait::until_change_in(&journal_dir, || text().contains("\"2\""));
    pipe.child.kill().unwrap();
    pipe.child.wait().unwrap();
    drop(sender);
    let story = story.script([says("One."), says("Two.")]);
    let output_lines = lines(&story.run(NAMED).text());
    assert_eq!(answers(&output_lines), [("1", "One."), ("2", "Two.")]);
    assert_eq!(acknowledged(&output_lines), ["1", "2"]);
    let log = std::fs::read_to_string(story.workspace().join("sessions/bus_s.jsonl")).unwrap();
    assert_eq!(log.matches("first words").count(), 1, "{log}");

    // After the turn: the session has the answer, the journal does not.
    let whole = std::fs::read_to_string(journal(&story)).unwrap();
    let lines_left: Vec<&str> = whole.lines().filter(|line| !line.contains("One.")).collect();
    std::fs::write(journal(&story), lines_left.join("\n") + "\n{\"type\":\"ou").unwrap();
    let output_lines = lines(&story.run(NAMED).text());
    assert_eq!(answers(&output_lines), [("1", "One.")]);

    // Before the answer was printed, or noted as printed.
    let line_start = "{\"type\":\"done\",\"key\":\"2\"";
    let lines_left: Vec<&str> =
        whole.lines().filter(|line| !line.starts_with(line_start)).collect();
    assert_eq!(lines_left.len() + 1, whole.lines().count());
    std::fs::write(journal(&story), lines_left.join("\n") + "\n").unwrap();
    let output_lines = lines(&story.run(NAMED).text());
    assert_eq!(answers(&output_lines), [("2", "Two.")]);
    story.run(NAMED).stdout("");
    assert_eq!(story.requests().len(), 3);
}

#[test]
fn an_answer_that_the_output_limit_cut_is_the_same_after_a_kill() {
    let cut = |text: &str| replies(json!({ "role": "assistant", "content": text }), "length");
    let story =
        Story::new().script(["a", "b", "c", "d"].map(cut)).stdin(message("1", "s", "spell"));
    let first = lines(&story.run(NAMED).status(1).text());
    assert_eq!(first[0]["status"]["name"], "limit");
    // The session has the answer, the journal does not.
    let whole = std::fs::read_to_string(journal(&story)).unwrap();
    let lines_left: Vec<&str> = whole
        .lines()
        .filter(|line| line.contains("\"in\"") || line.contains("\"turn\",\"ids\""))
        .collect();
    std::fs::write(journal(&story), lines_left.join("\n") + "\n").unwrap();
    let again = lines(&story.stdin("").run(NAMED).status(1).text());
    assert_eq!(answers(&again), [("1", "abcd")]);
    for name in ["text", "status", "error"] {
        assert_eq!(again[0][name], first[0][name], "{name}");
    }
}

#[test]
fn a_failure_that_passes_is_tried_again() {
    let limited = || fails(429, "slow down");
    let story = Story::new().script([limited(), limited(), limited(), limited(), says("One.")]);
    let line = message("1", "s", "one");
    // The broker sends the message again, since it got no acknowledgement.
    let story = story.stdin([&*line, &*line].concat());
    let output_lines = lines(&story.run(NAMED).status(75).text());
    assert_eq!(answers(&output_lines), [("1", ""), ("1", "One.")]);
    assert_eq!(acknowledged(&output_lines), ["1"]);
    // Without that, the next run tries it.
    let story = story.script([limited(), limited(), limited(), limited()]);
    let story = story.stdin(message("2", "s", "two"));
    let output_lines = lines(&story.run(NAMED).status(75).text());
    assert_eq!(acknowledged(&output_lines), [""; 0]);
    // With its line, which is the same message, it is tried once.
    let story = story.script([limited(), limited(), limited(), limited()]);
    let output_lines = lines(&story.run(NAMED).status(75).text());
    assert_eq!(answers(&output_lines), [("2", "")]);
    let story = story.script([says("Two.")]).stdin("");
    let output_lines = lines(&story.run(NAMED).text());
    assert_eq!(
        (answers(&output_lines), acknowledged(&output_lines)),
        (vec![("2", "Two.")], vec!["2"])
    );
}

/// A message whose turn is killed each time ends with an error, so that it does not come again for ever.
#[test]
fn a_message_that_kills_the_program_each_time_is_given_up() {
    let mut story = Story::new().stdin(message("1", "s", "one"));
    // A failure that passes is no attempt that was killed.
    let limited = || fails(429, "slow down");
    for _ in 0..4 {
        story.server().script([limited(), limited(), limited(), limited()]);
        let output_lines = lines(&story.run(NAMED).status(75).text());
        assert_eq!(acknowledged(&output_lines), [""; 0]);
        story = story.stdin("");
    }
    let request_count = story.requests().len();
    for attempt in 1..=2 {
        let (sender, stream) = Response::streaming();
        story.server().script([sends(stream)]);
        let mut pipe = RunningPipe::start(&story, &["--name", "bus"]);
        story.server().wait_for_requests(request_count + attempt);
        pipe.child.kill().unwrap();
        pipe.child.wait().unwrap();
        drop(sender);
    }
    // The others are answered.
    let story = story.script([says("Two.")]).stdin(message("2", "t", "two"));
    let result = story.run(NAMED);
    let output_lines = lines(&result.status(1).text());
    assert_eq!(answers(&output_lines), [("1", ""), ("2", "Two.")]);
    assert_eq!(output_lines[0]["status"]["name"], "failed");
    let error = "the program was killed each time it answered this message";
    assert_eq!(output_lines[0]["error"], error);
    assert_eq!(acknowledged(&output_lines), ["1", "2"]);
    story.stdin("").run(NAMED).stdout("");
}

#[test]
fn an_answer_that_nobody_reads_is_printed_by_the_next_run() {
    let story = Story::new().script([says("One.")]);
    let mut pipe = RunningPipe::start(&story, &["--name", "bus"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(std::mem::replace(
        &mut pipe.stdout,
        BufReader::new(std::os::fd::OwnedFd::from(reader).into()),
    ));
    drop(writer);
    pipe.write(&message("1", "s", "one"));
    // It ends though its input is open: what waits in there is answered by a run that can print the answers.
    pipe.child.wait().unwrap();
    drop(pipe.stdin.take());
    let output_lines = lines(&story.run(NAMED).text());
    assert_eq!(
        (answers(&output_lines), acknowledged(&output_lines)),
        (vec![("1", "One.")], vec!["1"])
    );
    assert_eq!(story.requests().len(), 1);
}

#[test]
fn nothing_is_answered_that_the_journal_cannot_hold() {
    let story = Story::new().stdin(message("1", "s", "one"));
    std::fs::create_dir_all(journal(&story)).unwrap();
    let result = story.run(NAMED).status(74);
    assert!(result.error_text().contains("inbox.jsonl"), "{}", result.error_text());
    assert!(story.requests().is_empty());
}

#[test]
fn progress_is_printed_on_request() {
    let story = || {
        let story = Story::new().script([calls("list_dir", json!({})), says("One.")]);
        story.stdin(message("1", "s", "one"))
    };
    story().run(["serve", "pipe"]).text();
    let story = story();
    let result = story.run(["serve", "pipe", "-v"]);
    assert!(result.error_text().contains("list_dir"), "{}", result.error_text());
    result.text();
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn ten_thousand_messages_in_a_hundred_sessions() {
    const SESSIONS: usize = 100;
    const MESSAGES: usize = 10_000;
    let story = Story::new().set("memory", json!({ "consolidate": "manual" }));
    story.server().always(says("ok"));
    let mut pipe = RunningPipe::start(&story, &["-j", "8"]);
    let mut stdin = pipe.stdin.take().unwrap();
    let (done_tx, done_rx) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            let line = message(&number.to_string(), &format!("s{}", number % SESSIONS), "x");
            stdin.write_all(line.as_bytes()).unwrap();
        }
        done_rx.recv().unwrap();
    });
    let mut last = vec![None; SESSIONS];
    for _ in 0..MESSAGES {
        let answer = pipe.read_line();
        let number: usize = answer["in_reply_to"].as_str().unwrap().parse().unwrap();
        let before = last[number % SESSIONS].replace(number);
        assert!(before.is_none_or(|before| before + SESSIONS == number), "{number}");
        assert_eq!(pipe.read_line()["type"], "ack");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", pipe.child.id())).unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let peak_kb: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    done_tx.send(()).unwrap();
    writer.join().unwrap();
    assert!(pipe.child.wait().unwrap().success());
    assert!(peak_kb < 60_000, "{peak}");
}

/// The end of a turn does not end the servers of another one.
#[test]
fn each_turn_has_servers_of_its_own() {
    let wait = calls("mcp_one_wait", json!({}));
    let story = story_with_waiting_server().script([wait, says("short")]);
    let mut input = CallInput::open(&story);
    let mut pipe = RunningPipe::start(&story, &["-j", "2"]);
    pipe.write(&message("1", "a", "wait"));
    until_called(&story, 1);
    pipe.write(&message("2", "b", "x"));
    assert_eq!(pipe.read_line()["text"], "short");
    assert_eq!(pipe.read_line()["type"], "ack");
    // The next message of the session is answered after the end of that turn.
    story.server().script([says("short again")]);
    pipe.write(&message("3", "b", "y"));
    assert_eq!(pipe.read_line()["text"], "short again");
    assert_eq!(pipe.read_line()["type"], "ack");
    story.server().script([says("long")]);
    input.write("hot");
    assert_eq!(pipe.read_line()["text"], "long");
    assert!(story.requests()[3].last_content().contains("hot"));
}

#[test]
fn a_detached_consolidation_keeps_no_pipe_waiting() {
    let story = Story::new()
        .workspace_file("sessions/bus_a.jsonl", session_text("bus:a", 120))
        .env("NANOBOT_MEMORY__CONSOLIDATE", "detached");
    let released = story.dir().join("released");
    let file = released.clone();
    let consolidates: Responder = Box::new(move |request: &Request| {
        until_exists(&file);
        calls_save_memory("[2026-01-01 10:00] Words.", "Likes words.")(request)
    });
    let story = story.script([says("Here."), consolidates]).stdin(message("1", "a", "x"));
    let output_lines = lines(&story.run(["pipe"]).text());
    assert_eq!(answers(&output_lines), [("1", "Here.")]);
    std::fs::write(released, "").unwrap();
    until_exists(&story.workspace().join("memory/MEMORY.md"));
}
