//! Signals and timeouts.

use crate::server::{Ending, Request, Responder, Response, calls, calls_all, says};
use crate::story::{NANOBOT, Story};
use crate::wait::{until, until_change_in, until_exists};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// True if a process `sleep MARK` runs.
pub(crate) fn is_alive(mark: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line) == format!("sleep\0{mark}\0"))
}

/// The child processes of a process, or none if it has ended.
pub(crate) fn children_of(pid: u32) -> BTreeSet<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
    let child_lists: Vec<String> = lists.collect();
    child_lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

pub(crate) fn send_signal(child: &Child, signal: i32) {
    let signal = Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(Pid::from_child(child), signal).unwrap();
}

/// A model that sends this text and then stalls; creates the file `asked` when it gets a request.
fn stall_model(story: &Story, text: &'static str) -> PathBuf {
    let request_mark = story.dir().join("asked");
    let mark = request_mark.clone();
    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let event = format!("data: {delta}\n\n");
    story.server().script([Box::new(move |_: &Request| {
        std::fs::write(&mark, "").unwrap();
        Response::events([event.clone()]).ending(Ending::Stall)
    }) as Responder]);
    request_mark
}

/// The last line of the session, which must be a closing line with this stop reason.
fn closing_line(story: &Story, name: &str) -> Value {
    let last = story.session("cli_direct.jsonl").pop().unwrap();
    assert_eq!(last["_type"], "metadata");
    assert_eq!(last["ending"], name);
    last
}

#[test]
fn a_signal_ends_the_children_before_the_program() {
    for (signal, name) in [(2, "interrupted"), (15, "terminated"), (1, "hang_up")] {
        // A unique mark for this run, so that processes of others are not counted.
        let mark = &format!("{}.{signal}", 100_000 + std::process::id());
        let command = format!("setsid sleep {mark} & trap '' TERM; touch started; sleep {mark}");
        let second = ("exec", json!({ "command": "touch second" }));
        let first = ("exec", json!({ "command": command }));
        let story = Story::new().script([calls_all([first, second])]);
        let child = story.command(["agent", "-m", "x", "--json", "--write"]).spawn().unwrap();
        until_exists(&story.dir().join("started"));
        send_signal(&child, signal);
        let result = story.wait(child);
        assert_eq!(result.signal(), Some(signal));
        assert!(!is_alive(mark), "{mark} is left");
        assert!(!story.dir().join("second").exists(), "nothing starts any more");
        assert_eq!(result.json()["status"]["name"], name);
        closing_line(&story, name);
        let lines = story.session("cli_direct.jsonl");
        let results: Vec<&str> = lines
            .iter()
            .filter(|line| line["role"] == "tool")
            .map(|line| line["content"].as_str().unwrap())
            .collect();
        assert_eq!(results.len(), 2, "every call has its result: {lines:?}");
        assert!(results[0].contains("Interrupted because the run was ended"), "{results:?}");
        assert!(results[1].starts_with("interrupted before this call was begun"), "{results:?}");
        // It continues without a repair.
        story.server().script([says("Done.")]);
        story.run(["agent", "--resume"]).stdout("Done.\n");
    }
}

#[test]
fn a_signal_during_a_request_ends_the_run() {
    let story = Story::new();
    let request_mark = stall_model(&story, "Half of");
    let child = story.command(["agent", "-m", "x", "--json"]).spawn().unwrap();
    until_exists(&request_mark);
    send_signal(&child, 15);
    let run_result = story.wait(child);
    assert_eq!(run_result.signal(), Some(15));
    let result = run_result.json();
    assert_eq!(result["error"]["cause"], "terminated");
    closing_line(&story, "terminated");
    // The message is stored, and the turn can be resumed.
    story.server().script([says("All of it.")]);
    story.run(["agent", "--resume"]).stdout("All of it.\n");
    let lines = story.session("cli_direct.jsonl");
    assert_eq!(lines[1]["content"], "x");
}

#[test]
fn a_timeout_is_reported_and_the_partial_answer_is_marked() {
    let story = Story::new();
    stall_model(&story, "Half of");
    let result = story
        .run(["agent", "-m", "x", "--json", "--timeout", "3"])
        .status(124)
        .stderr_has("--timeout")
        .json();
    assert_eq!(result["text"], "Half of");
    assert_eq!(result["partial"], true);
    assert_eq!(result["error"]["cause"], "timeout");
    closing_line(&story, "timeout");
    // In text mode only an answer is printed as such.
    stall_model(&story, "Half of");
    story
        .run(["agent", "-m", "x", "--timeout", "3000ms"])
        .status(124)
        .stderr_has("try: a longer `--timeout`; `--resume` continues where this run stopped");
}

#[test]
fn a_timeout_ends_children() {
    let mark = &format!("{}.124", 100_000 + std::process::id());
    let command = format!("setsid sleep {mark} & (trap '' TERM; sleep {mark}) & sleep {mark}");
    let story = Story::new().script([calls("exec", json!({ "command": command }))]);
    story.run(["agent", "-m", "x", "--timeout", "3s"]).status(124).stderr_has("--timeout");
    assert!(!is_alive(mark));
    closing_line(&story, "timeout");
}

#[test]
fn a_timeout_applies_before_the_turn() {
    let (reader, writer) = std::io::pipe().unwrap();
    let story = Story::new();
    let mut command = story.command(["agent", "--timeout", "0.3"]);
    let child = command.stdin(reader).spawn().unwrap();
    drop(command);
    story.wait(child).status(124).stderr_has("--timeout");
    drop(writer);
    // While another run holds the session lock.
    let request_mark = stall_model(&story, "");
    let first = story.command(["agent", "-m", "x"]).spawn().unwrap();
    until_exists(&request_mark);
    story.run(["agent", "-m", "y", "--timeout", "3"]).status(124).stderr_has("waiting for session");
    send_signal(&first, 15);
    story.wait(first).signal();
}

#[test]
fn a_second_interrupt_ends_at_once() {
    // A reader that does not read: the end of the answer waits for it, and a second Ctrl-C does not.
    let long: &'static str = Box::leak("x".repeat(200_000).into_boxed_str());
    let story = Story::new().script([says(long)]);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = story.command(["agent", "-m", "x", "--json"]);
    let mut child = command.stdout(writer).spawn().unwrap();
    drop(command);
    // The pipe is full once the answer is stored and being printed.
    let log = story.workspace().join("sessions/cli_direct.jsonl");
    let is_answered =
        || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"answered\""));
    until_change_in(log.parent().unwrap(), is_answered);
    // Two signals before the first is handled are one to the system, so the second one is repeated until it counts.
    until("the second one ends it", || {
        send_signal(&child, 2);
        child.try_wait().unwrap().is_some()
    });
    let mut complaint = String::new();
    let mut stderr = child.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut stderr, &mut complaint).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    // It was killed before it could report the failed write.
    assert_eq!(complaint, "");
    drop(reader);
}

#[test]
fn ignored_signals_stay_ignored() {
    let story = Story::new();
    let request_mark = stall_model(&story, "");
    // As under nohup: the child inherits the ignored signals of its shell.
    let mut shell = story.program("/bin/sh");
    shell.args(["-c", "trap '' HUP INT; exec \"$0\" \"$@\"", NANOBOT]);
    let child = shell.args(["agent", "-m", "x"]).spawn().unwrap();
    until_exists(&request_mark);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t"));
    let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
    assert_eq!(ignored & 0b11, 0b11, "SIGHUP and SIGINT");
    // A hang-up that is not ignored would have precedence over later signals.
    send_signal(&child, 1);
    send_signal(&child, 2);
    send_signal(&child, 15);
    let result = story.wait(child);
    assert_eq!(result.signal(), Some(15));
    result.error_text();
}

/// `cargo test --features test-hooks --test cli stopped_process -- --ignored`: tests the program's clock, so the stop has to
/// last.
#[test]
#[ignore = "takes seconds in which nothing happens"]
fn a_stopped_process_misses_no_deadline() {
    check_continues_after_stop(std::time::Duration::from_secs(5));
}

#[test]
fn a_stopped_process_continues() {
    check_continues_after_stop(std::time::Duration::ZERO);
}

/// Stops a run that waits for its model for this long, and then lets the model answer.
fn check_continues_after_stop(stopped: std::time::Duration) {
    let story = Story::new().env("NANOBOT_STREAM_IDLE_TIMEOUT_S", "1.5");
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (wait, request_mark) = (std::sync::Mutex::new(wait), story.dir().join("asked"));
    let mark = request_mark.clone();
    story.server().script([Box::new(move |_: &Request| {
        std::fs::write(&mark, "").unwrap();
        // The model answers once the client has been stopped for longer than its timeout; then the client continues.
        wait.lock().unwrap().recv().unwrap();
        let delta = json!({ "choices": [{ "index": 0, "delta": { "content": "Here." }, "finish_reason": "stop" }] });
        Response::events([format!("data: {delta}\n\n"), "data: [DONE]\n\n".into()])
    }) as Responder]);
    let child = story.command(["agent", "-m", "x", "--timeout", "3"]).spawn().unwrap();
    until_exists(&request_mark);
    send_signal(&child, 19);
    let stat = format!("/proc/{}/stat", child.id());
    until("it is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    std::thread::sleep(stopped);
    send_signal(&child, 18);
    go.send(()).unwrap();
    story.wait(child).stdout("Here.\n");
}

/// Ends a run that starts all kinds of children at this many random points; no process may be left.
fn check_leaves_no_process(points: usize, seed: u64) {
    let mut random = crate::crash::Random(seed);
    let mut ended = 0;
    for point in 0..points {
        // Every process with this mark in its environment belongs to the run.
        let mark = format!("{}-{seed}-{point}", std::process::id());
        let command = "setsid sleep 300 & (setsid sh -c 'sleep 300 & sleep 300' &) ; (trap '' TERM HUP INT; sleep 300) & \
                       sh -c 'sleep 300 & exec sleep 300' & sleep 0.05; echo on";
        let story = Story::new().env("MARK", &mark);
        story.server().always(Box::new(move |request: &Request| {
            if request.messages().len() < 8 {
                calls("exec", json!({ "command": command }))(request)
            } else {
                says("Done.")(request)
            }
        }) as Responder);
        let story = story.set("tools", json!({ "exec": { "allowedEnvKeys": ["MARK"] } }));
        let mut child = story.command(["agent", "-m", "x"]).spawn().unwrap();
        // The random moment is what is tested.
        std::thread::sleep(std::time::Duration::from_micros(random.next_below(400_000) as u64));
        let signal = [1, 2, 15][random.next_below(3)];
        send_signal(&child, signal);
        let status = child.wait().unwrap();
        ended += u32::from(status.signal() == Some(signal));
        assert!(status.signal() == Some(signal) || status.success(), "{point}: {status}");
        let processes = marked_processes(&mark);
        assert!(processes.is_empty(), "{point}: {processes:?}");
    }
    assert!(ended as usize * 2 > points, "most runs were ended in their middle");
}

/// The command lines of running processes with this mark in their environment.
fn marked_processes(mark: &str) -> Vec<String> {
    let wanted = format!("MARK={mark}\0");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&wanted)
    })
    .map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default())
    .filter(|line| !line.is_empty())
    .collect()
}

#[test]
fn signals_at_any_point_leave_no_process() {
    check_leaves_no_process(50, 1);
}

#[test]
#[ignore = "takes minutes; see README, Tests"]
fn five_hundred_signals_leave_no_process() {
    check_leaves_no_process(500, 2);
}

#[test]
fn the_first_process_of_a_container_exits_with_the_status_of_the_signal() {
    for (signal, status) in [(15, 143), (1, 129), (2, 130)] {
        let story = Story::new();
        let request_mark = stall_model(&story, "");
        let mut command = story.program("unshare");
        command.args(["-Ur", "--pid", "--fork", "--mount-proc", NANOBOT]);
        let child = command.args(["agent", "-m", "x"]).spawn().unwrap();
        until_exists(&request_mark);
        let id = child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let first = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(first, Signal::from_named_raw(signal).unwrap()).unwrap();
        story.wait(child).status(status);
    }
}

#[test]
fn a_stop_message_ends_the_run_of_its_session_and_is_not_sent() {
    let story = Story::new();
    story.run(["agent", "-s", "work", "-m", "/stop"]).stdout("No active task to stop.\n");
    let request_mark = stall_model(&story, "");
    let child = story.command(["agent", "-s", "work", "-m", "x"]).spawn().unwrap();
    until_exists(&request_mark);
    // Another session is not concerned.
    story.run(["agent", "-m", "/stop"]).stdout("No active task to stop.\n");
    story.run(["agent", "-s", "work", "-m", "/stop"]).stdout("Stopped 1 task.\n");
    assert_eq!(story.wait(child).signal(), Some(2));
    story.run(["agent", "-s", "work", "-m", "/stop", "--json"]).json();
    assert_eq!(story.requests().len(), 1, "no `/stop` was sent");
    // A shell without job control starts a command in the background with SIGINT ignored.
    std::fs::remove_file(&request_mark).unwrap();
    let request_mark = stall_model(&story, "");
    let mut command = story.program("sh");
    command.args(["-c", "\"$0\" agent -s work -m x & wait $!; echo $?", NANOBOT]);
    let child = command.spawn().unwrap();
    until_exists(&request_mark);
    story.run(["agent", "-s", "work", "-m", "/stop"]).stdout("Stopped 1 task.\n");
    drop(story.wait(child).stdout("143\n").error_text());
    let messages = story.session("work.jsonl");
    assert!(!messages.iter().any(|line| line["content"] == "/stop"));
}

#[test]
fn a_stop_message_trusts_the_kernel_and_not_the_note_in_the_lock() {
    let story = Story::new().script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    let lock = story.workspace().join("sessions/cli_direct.jsonl.lock");
    // A process that does not hold the lock is not ended, whatever the note says.
    let mut other = story.program("sleep").arg("1000").spawn().unwrap();
    std::fs::write(&lock, format!("{} now\n", other.id())).unwrap();
    let stop = ["agent", "-m", "/stop"];
    story.run(stop).stdout("No active task to stop.\n");
    let lock_file = std::fs::File::open(&lock).unwrap();
    lock_file.lock().unwrap();
    story.run(stop).status(75).stderr_has("is not known");
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_reader_that_stopped_reading_does_not_keep_the_program() {
    let check = |flags: &[&str], signal: Option<i32>| {
        let story = Story::new().script([says(&"line of text\n".repeat(40_000))]);
        let arguments = ["agent", "-m", "x", "--output-format", "stream-json"];
        let mut child =
            story.command(arguments.iter().chain(flags)).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        if let Some(signal) = signal {
            // The rest does not fit.
            until("the answer is being written", || {
                rustix::io::ioctl_fionread(&stdout).unwrap() >= 10_000
            });
            send_signal(&child, signal);
        }
        until("the program has ended", || child.try_wait().unwrap().is_some());
        child.wait().unwrap()
    };
    assert_eq!(check(&[], Some(15)).signal(), Some(15));
    assert_eq!(check(&[], Some(1)).signal(), Some(1));
    assert_eq!(check(&["--timeout", "3"], None).code(), Some(124));
}
