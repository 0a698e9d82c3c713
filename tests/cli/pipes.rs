//! Kinds of standard input and output, and the behavior for each.

use crate::server::{Ending, Request, Responder, Response, fails, says, sends};
use crate::story::{NANOBOT, Story};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

/// Standard input of a kind, with some content and an end.
fn stdin_of_kind(story: &Story, name: &str) -> Stdio {
    match name {
        "pipe" => {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(b"SECRET").unwrap();
            reader.into()
        }
        "named pipe" => {
            let path = story.dir().join("fifo");
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
            let other = path.clone();
            std::thread::spawn(move || std::fs::write(other, "SECRET").unwrap());
            File::open(path).unwrap().into()
        }
        "file" => {
            let path = story.dir().join("input");
            std::fs::write(&path, "SECRET").unwrap();
            File::open(path).unwrap().into()
        }
        "socket" => {
            let (our_end, mut program_end) = UnixStream::pair().unwrap();
            program_end.write_all(b"SECRET").unwrap();
            OwnedFd::from(our_end).into()
        }
        "device" => File::open("/dev/null").unwrap().into(),
        "endless device" => File::open("/dev/zero").unwrap().into(),
        "directory" => File::open("/").unwrap().into(),
        "empty pipe" => std::io::pipe().unwrap().0.into(),
        "pipe that does not wait" => {
            let (reader, mut writer) = std::io::pipe().unwrap();
            rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
            std::thread::spawn(move || {
                // Later than the first check: an empty pipe must not be taken for end of file.
                std::thread::sleep(Duration::from_millis(50));
                writer.write_all(b"SECRET").unwrap();
            });
            reader.into()
        }
        other => unreachable!("{other}"),
    }
}

/// True if piped input reaches the model with these arguments.
fn is_read(name: &str, arguments: &[&str]) -> bool {
    let story = Story::new().script([says("ok")]);
    let mut command = story.command(["agent", "-m", "x"]);
    let stdin = stdin_of_kind(&story, name);
    let child = command.args(arguments).stdin(stdin).spawn().unwrap();
    story.wait(child).stdout("ok\n");
    story.requests()[0].raw.contains("SECRET")
}

#[test]
fn pipes_and_files_are_read_and_other_inputs_on_request() {
    let check = |name: &str, by_itself: bool, when_asked: bool| {
        assert_eq!(is_read(name, &[]), by_itself, "{name}");
        assert_eq!(is_read(name, &["--stdin"]), when_asked, "{name} --stdin");
        assert!(!is_read(name, &["--no-stdin"]), "{name} --no-stdin");
    };
    check("pipe", true, true);
    check("named pipe", true, true);
    check("file", true, true);
    check("pipe that does not wait", true, true);
    check("socket", true, true);
    assert!(!is_read("device", &[]));
    assert!(!is_read("endless device", &[]));
    assert!(!is_read("directory", &[]));
}

#[test]
fn an_empty_attachment_is_reported() {
    let story = Story::new().file("empty", "").script([says("Hello.")]);
    let result = story.run(["agent", "-m", "hi", "-a", "empty"]).stdout("Hello.\n");
    result.stderr("nanobot: `empty` is empty\n");
}

#[test]
fn an_empty_pipe_beside_a_message_is_reported() {
    let story = Story::new().script([says("1"), says("1b"), says("2"), says("3")]);
    let run = |name: &str, arguments: &[&str]| {
        let mut command = story.command(["agent", "-m", "x"]);
        command.args(arguments).stdin(stdin_of_kind(&story, name));
        story.wait(command.spawn().unwrap())
    };
    run("empty pipe", &[])
        .stdout("1\n")
        .stderr("nanobot: standard input is empty; `--no-stdin` ignores it, `--require-input` makes this an error\n");
    // Under cron and ssh, and started by other programs.
    run("empty pipe", &["--no-stdin", "-s", "own"]).stdout("1b\n").stderr("");
    assert!(!story.requests()[1].raw.contains("<stdin>"));
    run("empty pipe", &["-q"]).stdout("2\n");
    for name in ["empty pipe", "device"] {
        let next_step = if name == "device" { "COMMAND | nanobot" } else { "alone" };
        run(name, &["--require-input"]).status(66).stderr_has(next_step);
    }
    run("pipe", &["--require-input"]).stdout("3\n");
}

#[test]
fn an_empty_pipe_is_no_message_where_none_is_needed() {
    let story = Story::new().file("notes.txt", "Buy milk.");
    let run = |arguments: &[&str]| {
        let mut command = story.command([&["agent"], arguments].concat());
        command.stdin(stdin_of_kind(&story, "empty pipe"));
        story.wait(command.spawn().unwrap())
    };
    let stall = Response { ending: Ending::Stall, ..Response::text(200, "text/event-stream", "") };
    story.server().script([sends(stall)]);
    let mut child = story.command(["agent", "-m", "hello"]).spawn().unwrap();
    story.server().wait_for_requests(1);
    child.kill().unwrap();
    child.wait().unwrap();
    story.server().script([says("Hi."), says("Milk.")]);
    run(&["--resume"]).stdout("Hi.\n").stderr("");
    run(&["-a", "notes.txt"]).stdout("Milk.\n").stderr("");
    run(&["--resume", "--require-input"]).status(66).stderr_has("standard input is empty");
}

#[test]
fn a_silent_socket_is_left_alone_and_an_ended_one_is_read() {
    let story = Story::new().script([says("1"), says("2")]);
    let run = |stdin: UnixStream| {
        let mut command = story.command(["agent", "-m", "x"]);
        command.stdin(OwnedFd::from(stdin));
        story.wait(command.spawn().unwrap())
    };
    let (our_end, program_end) = UnixStream::pair().unwrap();
    run(our_end).stdout("1\n").stderr(
        "nanobot: standard input is a silent socket and is not read; `--stdin` waits for it\n",
    );
    drop(program_end);
    let (our_end, program_end) = UnixStream::pair().unwrap();
    drop(program_end);
    run(our_end).stdout("2\n").stderr_has("standard input is empty");
}

#[test]
fn unreadable_input_is_reported() {
    let check = |name: &str, arguments: &[&str], status: i32, message: &str| {
        let story = Story::new();
        let mut command = story.command(["agent"]);
        let stdin = stdin_of_kind(&story, name);
        let child = command.args(arguments).stdin(stdin).spawn().unwrap();
        story.wait(child).status(status).stderr_has(message);
    };
    check("endless device", &["--stdin", "-m", "x"], 65, "longer than 16 MiB");
    check("directory", &["--stdin", "-m", "x"], 74, "read standard input");
    check("empty pipe", &[], 66, "standard input is empty");
    check("device", &[], 66, "no message");
}

#[test]
fn the_flag_overrides_the_variable() {
    let story = Story::new().env("NANOBOT_STDIN", "never").stdin("SECRET");
    let story = story.script([says("1"), says("2")]);
    story.run(["agent", "-m", "x"]).stdout("1\n");
    story.run(["agent", "-m", "x", "--stdin"]).stdout("2\n");
    let requests = story.requests();
    assert!(!requests[0].raw.contains("SECRET") && requests[1].raw.contains("SECRET"));
}

#[test]
fn a_silent_pipe_is_reported_and_times_out() {
    let story = Story::new().env("NANOBOT_STDIN_TIMEOUT_S", "2.5");
    let (reader, writer) = std::io::pipe().unwrap();
    let child = story.command(["agent", "-m", "x"]).stdin(reader).spawn().unwrap();
    let stderr = story.wait(child).status(66).error_text();
    assert!(stderr.starts_with("nanobot: waiting for standard input"), "{stderr}");
    assert!(stderr.contains("without standard input") && stderr.contains("--no-stdin"), "{stderr}");
    drop(writer);
    // A socket that is read on request is waited for as well.
    let (our_end, program_end) = UnixStream::pair().unwrap();
    let mut command = story.command(["agent", "-m", "x", "--stdin"]);
    let child = command.stdin(OwnedFd::from(our_end)).spawn().unwrap();
    story.wait(child).status(66).stderr_has("without standard input");
    drop(program_end);
}

#[test]
fn large_input_is_read_completely_and_oversized_input_is_rejected() {
    let line = "0123456789abcde\n";
    let much = line.repeat((10 << 20) / line.len());
    let story = Story::new()
        .set("agents.defaults.contextWindowTokens", json!(10_000_000))
        .stdin(&much)
        .script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    assert!(story.requests()[0].last_content().contains(&much));
    let story = Story::new().stdin(line.repeat((17 << 20) / line.len()));
    story.run(["agent", "-m", "x"]).status(65).stderr_has("try: shorten it first");
}

#[test]
fn closed_descriptors_behave_like_dev_null() {
    let story = Story::new().script([says("1"), says("2"), says("3")]);
    let shell = |redirections: &str| {
        let mut command = story.program("/bin/sh");
        let command_line = format!("exec \"$0\" agent -m x {redirections}");
        command.args(["-c", &command_line, NANOBOT]);
        story.wait(command.spawn().unwrap())
    };
    shell("<&-").stdout("1\n");
    // The answer has no reader; the turn is stored in the session.
    shell(">&-");
    shell("2>&-").stdout("3\n");
    let lines = story.session("cli_direct.jsonl");
    let answers = lines.iter().filter(|line| line["role"] == "assistant");
    assert_eq!(answers.count(), 3);
    shell("<&- >&- 2>&-").status(69);
}

/// The answer as received by a slow reader.
fn read_slowly(mut reader: impl Read + AsFd, chunk_bytes: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut block = vec![0; chunk_bytes];
    loop {
        match reader.read(&mut block) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&block[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(&reader, PollFlags::IN)], None).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn slow_readers_and_nonblocking_pipes_get_every_byte() {
    let text = "0123456789abcde\n".repeat(20_000);
    for waits in [true, false] {
        let story = Story::new().script([says(&text)]);
        let (reader, writer) = std::io::pipe().unwrap();
        if !waits {
            rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        }
        let mut command = story.command(["agent", "-m", "x"]);
        let mut child = command.stdout(writer).spawn().unwrap();
        drop(command);
        assert_eq!(read_slowly(reader, 1000), text.as_bytes());
        assert!(child.wait().unwrap().success());
        let story = Story::new().script([says(&text)]);
        let (our_end, program_end) = UnixStream::pair().unwrap();
        program_end.set_nonblocking(!waits).unwrap();
        let mut command = story.command(["agent", "-m", "x"]);
        let mut child = command.stdout(OwnedFd::from(program_end)).spawn().unwrap();
        drop(command);
        assert_eq!(read_slowly(our_end, 100_000), text.as_bytes());
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_closed_pipe_ends_the_run_quietly() {
    let text = "0123456789abcde\n".repeat(20_000);
    for format in ["text", "json", "stream-json"] {
        let story = Story::new().script([says(&text)]);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = story.command(["agent", "-m", "x", "--output-format", format]);
        let child = command.stdout(writer).spawn().unwrap();
        drop(command);
        reader.read_exact(&mut [0; 100]).unwrap();
        drop(reader);
        // Status 0, and nothing on standard error.
        story.wait(child);
    }
}

#[test]
fn large_answers_are_printed_and_endless_ones_are_cut_off() {
    let text = "0123456789abcde\n".repeat((4 << 20) / 16);
    let whole = json!({ "choices": [{ "message": { "content": text }, "finish_reason": "stop" }] });
    let story = Story::new().script([sends(Response::json(200, &whole))]);
    assert_eq!(story.run(["agent", "-m", "x"]).bytes(), text.as_bytes());
    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": "x".repeat(1 << 20) } }] });
    let event = format!("data: {delta}\n\n");
    let story = Story::new();
    story.server().always(
        Box::new(move |_: &Request| Response::events(vec![event.clone(); 80])) as Responder,
    );
    story.run(["agent", "-m", "x"]).status(1).stderr_has("the response is larger than 64 MiB");
}

#[test]
fn colour_is_used_on_terminals_and_on_request() {
    let colored = |arguments: &[&str], env: &[(&str, &str)]| {
        let mut story = Story::new().script([fails(400, "no")]);
        for (name, value) in env {
            story = story.env(name, value);
        }
        let mut all = vec!["agent", "-m", "x"];
        all.extend(arguments);
        let stderr = story.run(all).status(1).error_text();
        assert!(stderr.contains("no"), "{stderr}");
        stderr.contains('\u{1b}')
    };
    assert!(!colored(&[], &[]));
    assert!(!colored(&["--color", "never"], &[]));
    assert!(!colored(&[], &[("NO_COLOR", "1")]));
    assert!(colored(&["--color", "always"], &[]));
    assert!(colored(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(!failure_on_terminal(&[("NO_COLOR", "1")]).contains("\u{1b}["));
    assert!(!failure_on_terminal(&[("TERM", "dumb")]).contains("\u{1b}["));
    assert!(failure_on_terminal(&[]).contains("\u{1b}[31m"));
}

/// The terminal output of a failing run.
fn failure_on_terminal(env: &[(&str, &str)]) -> String {
    let story = Story::bare();
    let mut command = story.program("script");
    command.args(["-qec", &format!("{NANOBOT} agent -m x"), "/dev/null"]);
    command.env("TERM", "xterm").envs(env.iter().copied());
    let result = story.wait(command.spawn().unwrap()).status(78);
    result.text()
}

#[test]
fn an_attached_pipe_is_read_and_can_be_interrupted() {
    let story = Story::new().script([says("ok")]);
    let fifo = story.dir().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
    story
        .run(["agent", "-m", "x", "-a", "fifo", "--timeout", "0.3"])
        .status(124)
        .stderr_has("--timeout");
    let writer = std::thread::spawn(move || std::fs::write(fifo, "SECRET").unwrap());
    story.run(["agent", "-m", "x", "-a", "fifo"]).stdout("ok\n");
    writer.join().unwrap();
    assert!(story.requests()[0].raw.contains("SECRET"));
    story.run(["agent", "-m", "x", "-a", "/dev/zero"]).status(65).stderr_has("longer than");
}

#[test]
fn a_closed_pipe_does_not_hide_another_error() {
    let story = Story::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = story.command(["agent", "-m", "x", "--json", "--replay", "gone"]);
    let child = command.stdout(writer).spawn().unwrap();
    drop(command);
    story.wait(child).status(66).stderr_has("gone");
}

#[test]
fn commands_work_if_sigchld_is_ignored() {
    let story = Story::new().script([
        crate::server::calls("exec", json!({ "command": "echo on; exit 3" })),
        says("ok"),
    ]);
    let mut shell = story.program("/bin/sh");
    shell.args(["-c", "trap '' CHLD; exec \"$0\" agent -m x", NANOBOT]);
    story.wait(shell.spawn().unwrap()).stdout("ok\n");
    assert!(story.requests()[1].last_content().contains("Exit code: 3"));
}
