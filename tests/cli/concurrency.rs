//! Many concurrent runs.

use crate::server::{Ending, Request, Responder, Response, Server, fails, says, sends};
use crate::story::{NANOBOT, Story};
use crate::wait::{until, until_exists};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A model that repeats the last line of the user's message.
fn echo_model() -> Responder {
    Box::new(|request: &Request| {
        let text = request.last_content();
        says(&format!("re: {}", text.lines().next().unwrap_or_default()))(request)
    })
}

/// Checks that every turn of a session is complete, contiguous and unique; returns how often each message occurs.
fn count_turns(lines: &[Value]) -> BTreeMap<String, usize> {
    let mut turns = BTreeMap::new();
    let mut messages = lines.iter().filter(|line| line["role"].is_string());
    while let Some(user) = messages.next() {
        assert_eq!(user["role"], "user");
        let reply = messages.next().expect("every message has its answer");
        assert_eq!(reply["role"], "assistant");
        assert_eq!(reply["turn"], user["turn"], "no turn is interleaved with another");
        let content = user["content"].as_str().unwrap().to_owned();
        assert_eq!(reply["content"], format!("re: {content}"));
        *turns.entry(content).or_default() += 1;
    }
    turns
}

fn check_concurrent_runs(processes: usize, turns_per_process: usize) {
    let story = Story::new();
    story.server().always(echo_model());
    // A story cannot be shared between threads, but its commands can.
    let commands: Vec<Vec<(String, Command)>> = (0..processes)
        .map(|process| {
            let text = |number: usize| format!("{process}-{number}");
            let texts = (0..turns_per_process).map(text);
            texts
                .map(|text| {
                    let command = story.command(["agent", "-m", &text]);
                    (text, command)
                })
                .collect()
        })
        .collect();
    std::thread::scope(|scope| {
        for list in commands {
            scope.spawn(move || {
                for (text, mut command) in list {
                    let output = command.output().unwrap();
                    assert!(output.status.success(), "{output:?}");
                    assert_eq!(output.stdout, format!("re: {text}\n").as_bytes());
                }
            });
        }
    });
    let lines = story.session("cli_direct.jsonl");
    let turns = count_turns(&lines);
    assert_eq!(turns.len(), processes * turns_per_process);
    assert!(turns.values().all(|count| *count == 1));
    let closings = lines.iter().filter(|line| line["ending"] == "answered");
    assert_eq!(closings.count(), processes * turns_per_process);
}

#[test]
fn sixteen_runs_with_ten_turns_each_on_one_session() {
    check_concurrent_runs(16, 10);
}

#[test]
#[ignore = "takes minutes; see README, Tests"]
fn sixty_four_runs_with_fifty_turns_each_on_one_session() {
    check_concurrent_runs(64, 50);
}

#[test]
fn xargs_on_one_session_and_on_many() {
    let story = Story::new();
    story.server().always(echo_model());
    let run = |phrase: &str| {
        let mut shell = story.program("/bin/sh");
        shell.args(["-c", phrase, NANOBOT]);
        let result = story.wait(shell.spawn().unwrap());
        result.error_text();
        let mut lines: Vec<String> = result.text().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let mut expect: Vec<String> = (1..=32).map(|number| format!("re: n {number}")).collect();
    expect.sort();
    let one = run("seq 1 32 | xargs -P16 -I{} \"$0\" agent -m 'n {}'");
    assert_eq!(one, expect);
    assert_eq!(count_turns(&story.session("cli_direct.jsonl")).len(), 32);
    let many = run("seq 1 32 | xargs -P16 -I{} \"$0\" agent -m 'n {}' -s 'many:{}'");
    assert_eq!(many, expect);
    for number in 1..=32 {
        assert_eq!(count_turns(&story.session(&format!("many_{number}.jsonl"))).len(), 1);
    }
    // As filters: each run has its own session, and none waits.
    let pipes = run("seq 1 32 | xargs -P16 -I{} sh -c 'echo n {} | \"$0\" agent' \"$0\"");
    assert_eq!(pipes, expect);
}

#[test]
fn the_lock_holder_is_named_and_its_death_unlocks_the_session() {
    let story = Story::new();
    let request_mark = story.dir().join("asked");
    let mark = request_mark.clone();
    story.server().script([Box::new(move |_: &Request| {
        std::fs::write(&mark, "").unwrap();
        Response::events([": thinking\n\n"]).ending(Ending::Stall)
    }) as Responder]);
    let mut holder = story.command(["agent", "-m", "first"]).spawn().unwrap();
    until_exists(&request_mark);
    let stderr = story.run(["agent", "-m", "x", "--wait", "0"]).status(75).error_text();
    assert!(stderr.contains(&format!("by process {}", holder.id())), "{stderr}");
    assert!(stderr.contains("--wait"), "{stderr}");
    // The kernel releases the lock, however its holder dies.
    story.server().script([says("second")]);
    let mut waiting = story.command(["agent", "-m", "second"]).spawn().unwrap();
    let mut line = String::new();
    let mut errors = std::io::BufReader::new(waiting.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut errors, &mut line).unwrap();
    assert!(line.contains("waiting for session `cli:direct`"), "{line}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    story.wait(waiting).stdout("second\n");
}

/// A model that never answers.
fn stalled() -> Responder {
    sends(Response::events([": thinking\n\n"]).ending(Ending::Stall))
}

/// The next line that a run writes to standard error.
fn read_error_line(child: &mut Child) -> String {
    let mut line = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    line
}

#[test]
fn runs_share_the_limit_of_requests_at_once() {
    let story = Story::new().set("providers.custom.maxConcurrent", json!(2));
    let in_progress = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&in_progress);
    story.server().always(Box::new(move |request: &Request| {
        let is_within = counter.fetch_add(1, Ordering::SeqCst) < 2;
        // The model takes a while.
        std::thread::sleep(Duration::from_millis(20));
        counter.fetch_sub(1, Ordering::SeqCst);
        if is_within { says("x")(request) } else { fails(429, "too many at once")(request) }
    }));
    let run = |number: usize| {
        let session = format!("many:{number}");
        story.command(["agent", "-m", "x", "-s", &session]).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(run).collect();
    for child in children {
        // Nothing is printed about the wait.
        story.wait(child).stdout("x\n");
    }
    assert_eq!(story.requests().len(), 8, "no request was refused");
}

#[test]
fn a_run_that_waits_for_others_says_so_and_can_be_ended() {
    let story = Story::new().set("providers.custom.maxConcurrent", json!(1)).script([stalled()]);
    let mut holder = story.command(["agent", "-m", "x", "-s", "a"]).spawn().unwrap();
    story.server().wait_for_requests(1);
    let wait = |session: &str| {
        let mut child = story.command(["agent", "-m", "x", "-v", "-s", session]).spawn().unwrap();
        let line = read_error_line(&mut child);
        assert_eq!(line, "  … waiting: `custom` is at its limit of requests at once, 1\n");
        child
    };
    let (ended, next) = (wait("b"), wait("c"));
    kill_process(Pid::from_child(&ended), Signal::TERM).unwrap();
    assert_eq!(story.wait(ended).signal(), Some(Signal::TERM.as_raw()));
    // A run whose time does not suffice says why.
    story.run(["agent", "-m", "x", "-s", "d", "--timeout", "1"]).status(75).stderr_has(
        "`custom` is at its limit of requests at once, 1, and the run has only 0 s left",
    );
    assert_eq!(story.requests().len(), 1);
    // The kernel gives its place back.
    story.server().script([says("second")]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    story.wait(next).stdout("second\n");
}

/// Stops a process, and waits until it is.
fn stop(child: &Child) {
    kill_process(Pid::from_child(child), Signal::STOP).unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    until("it is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
}

#[test]
fn a_stopped_run_holds_no_other_back() {
    let story = Story::new()
        .set("providers.custom.maxConcurrent", json!(1))
        .script([stalled(), says("second")]);
    let mut holder = story.command(["agent", "-m", "x", "-s", "a"]).spawn().unwrap();
    story.server().wait_for_requests(1);
    stop(&holder);
    story.run(["agent", "-m", "x", "-s", "b"]).stdout("second\n").stderr("");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_limit_of_one_model_or_key_holds_no_other_back() {
    let noon = "2026-01-02T12:00:00Z";
    let limited = || {
        let response = Response::json(429, &json!({ "error": { "message": "busy" } }));
        sends(response.header("retry-after", "90"))
    };
    let story = Story::new().set("providers.custom.apiKey", json!("key-one")).script([limited()]);
    let run = |time: &str, arguments: &[&str]| {
        let mut command = story.command(["agent", "--ephemeral", "-m", "x", "-v"]);
        command.args(arguments).env("NANOBOT_TEST_TIME", time).spawn().unwrap()
    };
    story.wait(run(noon, &[])).status(75).stderr_has("busy");
    let message = "is rate-limited until 2026-01-02T12:01:30Z, as reported to another run";
    story.wait(run(noon, &[])).status(75).stderr_has(message);
    // After its end, one request tries. Until it has an answer, requests to another model need not wait, as before.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let silent = Box::new(move |request: &Request| {
        // It ends when the sender is dropped.
        let _: Result<_, _> = wait.lock().unwrap().recv();
        says("late")(request)
    }) as Responder;
    story.server().script([says("other"), silent, says("other"), says("next")]);
    drop(story.wait(run(noon, &["--model", "other"])).stdout("other\n").error_text());
    let later = "2026-01-02T12:01:40Z";
    let mut probe = run(later, &[]);
    story.server().wait_for_requests(3);
    drop(story.wait(run(later, &["--model", "other"])).stdout("other\n").error_text());
    let mut next = run(later, &[]);
    assert_eq!(
        read_error_line(&mut next),
        "  … waiting: other requests for `scripted` come first\n"
    );
    stop(&probe);
    story.wait(next).stdout("next\n");
    probe.kill().unwrap();
    probe.wait().unwrap();
    drop(go);
    // The limit is that of a key.
    story.server().script([limited(), says("another key")]);
    story.wait(run(noon, &[])).status(75).stderr_has("busy");
    let story = story.set("providers.custom.apiKey", json!("key-two"));
    let mut other_key = story.command(["agent", "--ephemeral", "-m", "x"]);
    other_key.env("NANOBOT_TEST_TIME", noon);
    story.wait(other_key.spawn().unwrap()).stdout("another key\n").stderr("");
    let [path] = &rate_files(&story)[..] else { panic!("one file") };
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("scripted") && !text.contains("key-"), "{text}");
}

/// Half of the time of a run is left to its fallback.
#[test]
fn a_run_that_waits_for_others_uses_its_fallback() {
    let other = Server::start();
    other.always(says("from elsewhere"));
    let story = Story::new()
        .set("providers.custom.maxConcurrent", json!(1))
        .set("providers.vllm.apiBase", json!(format!("http://127.0.0.1:{}/v1", other.port)))
        .set("agents.defaults.fallbackModels", json!([{ "model": "m2", "provider": "vllm" }]))
        .script([stalled()]);
    let mut holder = story.command(["agent", "-m", "x", "-s", "a"]).spawn().unwrap();
    story.server().wait_for_requests(1);
    let result = story.run(["agent", "-m", "x", "-s", "b", "--timeout", "6"]);
    let errors = result.stdout("from elsewhere\n").error_text();
    assert!(errors.contains("limit of requests at once, 1, for too long"), "{errors}");
    assert!(errors.contains("falling back") && !errors.contains("attempt 2"), "{errors}");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

/// The files with the limits of providers.
fn rate_files(story: &Story) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(story.home().join(".nanobot/limits"));
    let paths = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "rates")).collect()
}

/// Runs a turn at `time`, and returns what `-v` says of its wait.
fn waited_at(story: &Story, time: &str) -> String {
    let mut command = story.command(["agent", "-m", "x", "-v", "--plain"]);
    let result = story.wait(command.env("NANOBOT_TEST_TIME", time).spawn().unwrap());
    assert_eq!(result.text(), "x\n");
    let lines = result.error_text();
    lines.lines().filter(|line| !line.starts_with("  ~")).collect::<Vec<_>>().join("\n")
}

#[test]
fn runs_share_the_limits_of_a_minute() {
    let noon = "2026-01-02T12:00:00Z";
    let story = Story::new().set("providers.custom.requestsPerMinute", json!(2));
    story.server().always(says("x"));
    assert_eq!(waited_at(&story, noon), "");
    assert_eq!(waited_at(&story, "2026-01-02T12:00:30Z"), "");
    let reached = "`custom` is at its limit of requests in a minute, 2";
    assert_eq!(waited_at(&story, "2026-01-02T12:00:41Z"), format!("  … waiting 20.0 s: {reached}"));
    // A clock that was set back delays no run for longer than a minute.
    assert_eq!(
        waited_at(&story, "2026-01-02T09:00:00Z"),
        format!("  … waiting 1 min 1 s: {reached}")
    );
    assert_eq!(waited_at(&story, "2026-01-02T09:01:30Z"), "");
    let mut short = story.command(["agent", "-m", "x", "--timeout", "9"]);
    short.env("NANOBOT_TEST_TIME", "2026-01-02T09:01:31Z");
    let result = story.wait(short.spawn().unwrap()).status(75);
    result.stderr_has(&format!("{reached}, and the run has only "));
    assert_eq!(story.requests().len(), 5);
    // A damaged file is reported once.
    let [path] = &rate_files(&story)[..] else { panic!("one file") };
    std::fs::write(path, "{\"models\": [").unwrap();
    let errors = waited_at(&story, noon);
    assert!(errors.ends_with(".rates` was damaged, and was begun anew"), "{errors}");
    assert_eq!(waited_at(&story, noon), "");
    let story = story
        .set("providers.custom.requestsPerMinute", json!(null))
        .set("providers.custom.tokensPerMinute", json!(10));
    assert_eq!(waited_at(&story, "2026-01-02T12:00:20Z"), "");
    assert_eq!(
        waited_at(&story, "2026-01-02T12:00:40Z"),
        "  … waiting 41.0 s: `custom` is at its limit of tokens in a minute, 10"
    );
    for (key, value) in [("maxConcurrent", 0), ("requestsPerMinute", 0), ("tokensPerMinute", -1)] {
        let path = format!("providers.custom.{key}");
        let story = Story::new().set(&path, json!(value));
        story.run(["config", "check"]).status(78).stdout_has(&format!("`{path}` is {value}"));
        story.run(["agent", "-m", "x"]).status(78).stderr_has(&path);
    }
}

#[test]
fn runs_share_what_the_server_reports_of_its_limits() {
    let report = |remaining: &'static str, reset: &'static str, responder: Responder| {
        Box::new(move |request: &Request| {
            let response = responder(request);
            response
                .header("x-ratelimit-remaining-requests", remaining)
                .header("x-ratelimit-reset-requests", reset)
        }) as Responder
    };
    let story = Story::new().script([report("1", "9s", says("x")), report("0", "9s", says("x"))]);
    let noon = "2026-01-02T12:00:00Z";
    assert_eq!(waited_at(&story, noon), "");
    assert_eq!(rate_files(&story).len(), 0, "nothing is stored before a limit is reached");
    assert_eq!(waited_at(&story, noon), "");
    assert_eq!(rate_files(&story).len(), 1);
    let wait = |seconds: &str, end: &str| {
        let cause = format!("`scripted` is rate-limited until {end}, as reported to another run");
        format!("  … waiting {seconds} s: {cause}")
    };
    story.server().script([says("x")]);
    assert_eq!(waited_at(&story, noon), wait("9.0", "2026-01-02T12:00:09Z"));
    // After the end of the limit, one request tells that one more is possible, and the next one waits.
    story.server().script([report("1", "9s", says("x")), says("x"), says("x")]);
    assert_eq!(waited_at(&story, "2026-01-02T12:00:09Z"), "");
    assert_eq!(waited_at(&story, "2026-01-02T12:00:10Z"), "");
    let next = waited_at(&story, "2026-01-02T12:00:10Z");
    assert_eq!(next, wait("8.0", "2026-01-02T12:00:18Z"));
    story.server().script([says("x")]);
    assert_eq!(waited_at(&story, "2026-01-02T12:00:18Z"), "");
    assert_eq!(rate_files(&story).len(), 0, "the limit is over");
    // A refusal without a delay is repeated when the limit is complete again.
    story.server().script([report("0", "7s", fails(429, "slow down")), says("x")]);
    let result = story.run(["agent", "-m", "x", "-v"]).stdout("x\n");
    assert!(result.error_text().contains("… attempt 2 in 7.0 s: "), "{}", result.error_text());
}

#[test]
fn concurrent_changes_of_trust_are_all_kept() {
    let story = Story::new();
    let directories: Vec<String> = (0..20).map(|number| format!("project{number}")).collect();
    for directory in &directories {
        std::fs::create_dir(story.dir().join(directory)).unwrap();
    }
    let children: Vec<_> = directories
        .iter()
        .map(|directory| story.command(["trust", directory]).spawn().unwrap())
        .collect();
    for child in children {
        story.wait(child).text();
    }
    let listed = story.run(["trust", "--list"]).text();
    for directory in directories {
        assert!(listed.contains(&format!("{directory}\n")), "{directory}: {listed}");
    }
}

/// Runs a shell script in 64 processes at once. `$process` is the number of each; `try` repeats a command that found what
/// it changes in use for too long, which says so with status 75.
fn run_in_sixty_four_processes(story: &Story, script: &str) {
    let script = format!(
        "try() {{ until {NANOBOT} \"$@\" >/dev/null 2>err.$process; do [ $? = 75 ] || exit; done; }}\n{script}"
    );
    let children: Vec<_> = (0..64)
        .map(|process| {
            let mut command = story.program("sh");
            command.env("process", process.to_string());
            command.args(["-c", &script]).spawn().unwrap()
        })
        .collect();
    for child in children {
        story.wait(child).status(0);
    }
}

#[test]
#[ignore = "takes a minute; see tests/README.md"]
fn sixty_four_processes_add_and_remove_jobs() {
    let story = Story::new();
    run_in_sixty_four_processes(
        &story,
        "for i in 1 2 3 4; do try cron add -n job${process}x$i -c '0 8 * * *' -m x; done
         for i in 1 3; do try cron remove job${process}x$i; done",
    );
    let mut names: Vec<String> = crate::cron::jobs(&story)
        .iter()
        .map(|job| job["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    let mut expect: Vec<String> =
        (0..64).flat_map(|process| [2, 4].map(|i| format!("job{process}x{i}"))).collect();
    expect.sort();
    assert_eq!(names, expect);
    let table = story.crontab().table().unwrap();
    assert_eq!(table.matches(" --scheduled\n").count(), expect.len());
}

#[test]
#[ignore = "takes a minute; see tests/README.md"]
fn sixty_four_processes_change_the_config_twenty_times_each() {
    let story = Story::new();
    run_in_sixty_four_processes(
        &story,
        "for i in $(seq 20); do try config set models.m${process}x$i.contextWindowTokens 10000; done",
    );
    let config = story.config_value();
    assert_eq!(config["models"].as_object().unwrap().len(), 64 * 20);
}

#[test]
fn concurrent_changes_of_the_config_are_all_kept() {
    let story = Story::new();
    let mut runs = Vec::new();
    for number in 0..20 {
        let key = format!("models.m{number}.contextWindowTokens");
        runs.push(["config".into(), "set".into(), key, format!("{}", 10_000 + number)]);
        let name = format!("s{number}");
        runs.push(["mcp", "add", "--untested", &name].map(str::to_owned));
    }
    let children: Vec<_> = runs
        .iter()
        .map(|arguments| {
            let mut command = story.command(arguments);
            if arguments[0] == "mcp" {
                command.args(["--", "server"]);
            }
            command.spawn().unwrap()
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let config = story.config_value();
    for number in 0..20 {
        let window = &config["models"][format!("m{number}")]["contextWindowTokens"];
        assert_eq!(*window, 10_000 + number);
        assert_eq!(config["tools"]["mcpServers"][format!("s{number}")]["command"], "server");
    }
    assert!(!story.home().join(".nanobot/config.json.lock").exists());
}
