//! `kill -9` at any point, and session files damaged in other ways.

use crate::server::{Request, Responder, calls, says};
use crate::story::Story;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// Number of requests in the long turn, including the one for its answer.
const ITERATIONS: usize = 40;

/// A deterministic pseudo-random generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next_below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// A model that writes down one number per request until there are enough. It reads its progress from the messages, so it
/// can be resumed at any point.
fn counting_model() -> Responder {
    Box::new(|request: &Request| {
        let messages = request.messages();
        let is_user = |message: &Value| message["role"] == "user";
        let turn = messages.iter().rposition(is_user).unwrap_or(0);
        let result_count = request.tool_results().len();
        if !messages[turn]["content"].to_string().contains("count") {
            return says("Fine.")(request);
        }
        if result_count + 1 < ITERATIONS {
            calls("exec", json!({ "command": format!("echo {result_count} >> done.log") }))(request)
        } else {
            says("Done.")(request)
        }
    })
}

/// Messages that a run has reported as stored: message ids, and calls with results.
#[derive(Default)]
struct AcknowledgedOutput {
    messages: BTreeSet<String>,
    results: BTreeSet<String>,
}

/// Starts the long turn and kills it after `lines` lines of output plus a short delay.
fn run_and_kill(story: &Story, lines: usize, delay: usize) -> AcknowledgedOutput {
    let mut command =
        story.command(["agent", "-m", "count", "--write", "--output-format", "stream-json"]);
    let mut child = command.spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut output = AcknowledgedOutput::default();
    let mut take = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let id = line["id"].as_str().unwrap_or_default().to_owned();
        match line["type"].as_str().unwrap() {
            "user" | "assistant" => drop(output.messages.insert(id)),
            "tool_result" => drop(output.results.insert(id)),
            _ => {}
        }
    };
    let mut line = String::new();
    for _ in 0..lines {
        line.clear();
        if reader.read_line(&mut line).unwrap() == 0 {
            break;
        }
        take(&line);
    }
    for _ in 0..delay {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    loop {
        line.clear();
        // The last line may be incomplete; it was not reported.
        match reader.read_line(&mut line).unwrap() {
            0 => break,
            _ if line.ends_with('\n') => take(&line),
            _ => {}
        }
    }
    output
}

/// The stored messages by id, and the results by call.
fn read_session_ids(story: &Story) -> (BTreeSet<String>, BTreeSet<String>) {
    let path = story.workspace().join("sessions/cli_direct.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<Value> = lines.collect();
    let all = |key: &str| {
        let ids = lines.iter().filter_map(|line| line[key].as_str());
        ids.map(str::to_owned).collect()
    };
    (all("id"), all("tool_call_id"))
}

fn check_kills(home: &Path, points: usize, seed: u64) {
    let mut random = Random(seed);
    // The turn prints a line for the user message, and four lines per iteration: reply, usage, call and result.
    let all = 4 * ITERATIONS + 2;
    let mut unfinished = 0;
    for point in 0..points {
        let story = Story::new_in(home);
        story.server().always(counting_model());
        let output = run_and_kill(&story, random.next_below(all), random.next_below(200_000));
        let (messages, results) = read_session_ids(&story);
        assert!(output.messages.is_subset(&messages), "{point}: {:?}", output.messages);
        assert!(output.results.is_subset(&results), "{point}: {:?}", output.results);
        // All stored messages remain, and the turn continues where it stopped.
        let result = story.run(["agent", "--resume"]);
        match result.code() {
            0 => {
                unfinished += 1;
                assert_eq!(result.text(), "Done.\n");
                result.error_text();
            }
            // The turn had not started or was already complete.
            66 => {
                let stderr = result.error_text();
                let is_told =
                    ["no interrupted turn", "has no messages"].map(|it| stderr.contains(it));
                assert!(is_told.contains(&true), "{stderr}");
            }
            other => panic!("{point}: {other}: {}", result.error_text()),
        }
        drop(result);
        let log = std::fs::read_to_string(story.dir().join("done.log")).unwrap_or_default();
        let mut times: BTreeMap<&str, u32> = BTreeMap::new();
        for number in log.lines() {
            *times.entry(number).or_default() += 1;
        }
        assert!(times.values().all(|count| *count == 1), "{point}: twice: {log}");
        story.run(["agent", "-m", "later"]).stdout("Fine.\n").error_text();
        let last = story.session("cli_direct.jsonl").pop().unwrap();
        assert_eq!(last["ending"], "answered");
    }
    assert!(unfinished * 2 > points, "most kills hit a turn in its middle");
}

#[test]
fn a_turn_survives_kills_on_disk() {
    check_kills(&std::env::temp_dir(), 8, 1);
}

#[test]
fn a_turn_survives_kills_in_memory() {
    check_kills(Path::new("/dev/shm"), 8, 2);
}

#[test]
#[ignore = "takes minutes; see README, Tests"]
fn a_turn_survives_a_thousand_kills_on_disk() {
    check_kills(&std::env::temp_dir(), 1000, 3);
}

#[test]
#[ignore = "takes minutes; see README, Tests"]
fn a_turn_survives_a_thousand_kills_in_memory() {
    check_kills(Path::new("/dev/shm"), 1000, 4);
}

/// A session with two turns.
fn story_with_two_turns() -> Story {
    let story = Story::new().script([calls("list_dir", json!({})), says("one"), says("two")]);
    story.run(["agent", "-m", "first"]).stdout("one\n");
    story.run(["agent", "-m", "second é"]).stdout("two\n");
    story
}

#[test]
fn a_session_truncated_anywhere_continues() {
    let story = story_with_two_turns();
    let path = story.workspace().join("sessions/cli_direct.jsonl");
    let whole = std::fs::read(&path).unwrap();
    // A prime step, so that every position in a line is reached eventually.
    for cut in (0..whole.len()).rev().step_by(41) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        story.server().script([says("more")]);
        story.run(["agent", "-m", "third"]).stdout("more\n").error_text();
        let text = std::fs::read(&path).unwrap();
        let kept_bytes = whole.split_inclusive(|byte| *byte == b'\n').take(lines).flatten();
        let kept_bytes: Vec<u8> = kept_bytes.copied().collect();
        assert!(text.starts_with(&kept_bytes), "{cut}");
        let bad = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .filter(|line| serde_json::from_slice::<Value>(line).is_err());
        assert_eq!(bad.count(), 0, "{cut}");
        // An incomplete line is saved aside, unless only its newline is missing.
        let torn = &whole[kept_bytes.len()..cut];
        let aside: Vec<Vec<u8>> = std::fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_str().unwrap().contains(".torn-"))
            .map(|path| {
                let bytes = std::fs::read(&path).unwrap();
                std::fs::remove_file(path).unwrap();
                bytes
            })
            .collect();
        if torn.is_empty() || serde_json::from_slice::<Value>(torn).is_ok() {
            assert!(aside.is_empty(), "{cut}");
        } else {
            assert_eq!(aside, [torn], "{cut}");
        }
    }
}

#[test]
fn malformed_sessions_continue() {
    let user = "{\"role\": \"user\", \"content\": \"known\"}";
    let reply = "{\"role\": \"assistant\", \"content\": \"yes\"}";
    let both = format!("{user}\n{reply}\n");
    // The file content, whether its messages are sent to the model, and whether a notice is printed.
    let check = |text: &[u8], is_heard: bool, noticed: bool| {
        let story = Story::new().script([says("ok")]);
        let story = story.workspace_file("sessions/cli_direct.jsonl", text);
        let result = story.run(["agent", "-m", "x"]).stdout("ok\n");
        let start = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
        assert_eq!(!result.error_text().is_empty(), noticed, "{start}: {}", result.error_text());
        assert_eq!(story.requests()[0].raw.contains("known"), is_heard, "{start}");
        // Existing content is preserved.
        let now = std::fs::read(story.workspace().join("sessions/cli_direct.jsonl")).unwrap();
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        assert!(now.starts_with(&text[..end]), "{start}");
        story.server().script([says("again")]);
        story.run(["agent", "-m", "y"]).stdout("again\n").error_text();
    };
    let all = |parts: &[&[u8]]| parts.concat();
    check(both.as_bytes(), true, false);
    check(format!("\u{feff}{both}").as_bytes(), true, false);
    check(both.replace('\n', "\r\n").as_bytes(), true, false);
    check(both.trim_end().as_bytes(), true, false);
    check(both.replace("yes", "\\ud83d").as_bytes(), true, false);
    check(&all(&[both.as_bytes(), &[0; 4096]]), true, true);
    check(&all(&[both.as_bytes(), &[0; 4096], b"\n", both.as_bytes()]), true, true);
    check(
        &all(&[b"{\"role\": \"user\", \"content\": \"known \xff\"}\n", reply.as_bytes(), b"\n"]),
        true,
        false,
    );
    check(b"\n\n\n", false, false);
    check(b"", false, false);
    check(b"not JSON\n", false, true);
    check(b"[1, 2]\n\"text\"\nnull\n", false, true);
    check(
        b"{\"role\": 7}\n{\"role\": \"user\"}\n{\"role\": \"user\", \"content\": 7}\n",
        false,
        true,
    );
    check(
        format!("{{\"_type\": \"metadata\", \"last_consolidated\": 99}}\n{both}").as_bytes(),
        true,
        true,
    );
    check(
        format!("{{\"_type\": \"metadata\", \"last_consolidated\": -1, \"metadata\": 3}}\n{both}")
            .as_bytes(),
        true,
        false,
    );
    check(
        format!("{{\"_type\": \"metadata\", \"messages\": 7, \"at\": 0}}\n{both}").as_bytes(),
        true,
        false,
    );
    // Results without a call, a duplicate result, and a call with arguments of the wrong type.
    let result = "{\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"out\"}\n";
    let call = "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c\", \"function\": {\"name\": \"f\", \"arguments\": 3}}, 7]}\n";
    check(format!("{result}{both}{result}").as_bytes(), true, false);
    check(format!("{both}{user}\n{call}{result}{result}").as_bytes(), true, true);
    check(format!("{both}{user}\n{call}").as_bytes(), true, true);
    check(format!("{both}{}", "{\"a\":".repeat(20_000)).as_bytes(), true, true);
}

#[test]
fn a_line_of_two_hundred_megabytes_is_skipped() {
    let user = "{\"role\": \"user\", \"content\": \"known\"}\n{\"role\": \"assistant\", \"content\": \"yes\"}\n";
    for newline in ["\n", ""] {
        let story = Story::new().script([says("ok")]);
        let path = story.workspace().join("sessions/cli_direct.jsonl");
        crate::story::write(&path, user.as_bytes());
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"role\": \"user\", \"content\": \"").unwrap();
        let block = vec![b'x'; 1 << 20];
        for _ in 0..200 {
            file.write_all(&block).unwrap();
        }
        file.write_all(format!("\"}}{newline}").as_bytes()).unwrap();
        drop(file);
        let result = story.run(["agent", "-m", "x"]).stdout("ok\n");
        assert!(result.error_text().contains("session"), "{}", result.error_text());
        assert!(story.requests()[0].raw.contains("known"));
    }
}
