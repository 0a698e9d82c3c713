//! Many concurrent runs.

use crate::server::{Ending, Request, Responder, Response, says};
use crate::story::{NANOBOT, Story};
use crate::wait::until_exists;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

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
        let said = user["content"].as_str().unwrap().to_owned();
        assert_eq!(reply["content"], format!("re: {said}"));
        *turns.entry(said).or_default() += 1;
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
    let run = |words: &str| {
        let mut shell = story.program("/bin/sh");
        shell.args(["-c", words, NANOBOT]);
        let ran = story.wait(shell.spawn().unwrap());
        ran.error_text();
        let mut lines: Vec<String> = ran.text().lines().map(str::to_owned).collect();
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
    let asked = story.dir().join("asked");
    let mark = asked.clone();
    story.server().script([Box::new(move |_: &Request| {
        std::fs::write(&mark, "").unwrap();
        Response::events([": thinking\n\n"]).ending(Ending::Stall)
    }) as Responder]);
    let mut holder = story.command(["agent", "-m", "first"]).spawn().unwrap();
    until_exists(&asked);
    let ran = story.run(["agent", "-m", "x", "--wait", "0"]).status(75);
    let told = ran.error_text();
    assert!(told.contains(&format!("by process {}", holder.id())), "{told}");
    assert!(told.contains("--wait"), "{told}");
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
