//! Completion in real shells: each shell loads its script, TAB is pressed, and the resulting command line is checked.

use crate::recorded::assert_recorded;
use crate::requirements::require;
use crate::screen::{Key, Screen};
use crate::server::{Response, sends};
use crate::story::{NANOBOT, Story, write};
use serde_json::json;
use std::path::PathBuf;

/// A name that every shell has to quote.
const QUOTED_NAME: &str = "my talk's end";

/// A story with names to complete and the program in the shells' PATH.
fn story() -> Story {
    let story = Story::new().file("notes.txt", "x").file("deep/er/y.txt", "y");
    for (file, key) in [
        ("cli_direct", "cli:direct"),
        ("telegram_42", "telegram:42"),
        ("my_talks_end", QUOTED_NAME),
    ] {
        let log = story.workspace().join(format!("sessions/{file}.jsonl"));
        let head = json!({ "_type": "metadata", "key": key });
        let line = json!({ "role": "user", "content": "What is \u{1b}[31mnew?", "timestamp": "2026-01-01T00:00:00" });
        write(&log, format!("{head}\n{line}\n").as_bytes());
    }
    let job = ["cron", "add", "-n", "digest", "-e", "1h", "-m", "x"];
    let result = story.run(job).stdout_has("✓");
    result.error_text();
    drop(result);
    write(&story.home().join(".nanobot/profiles/careful.md"), b"Be careful.\n");
    let folder = story.path();
    let folder = folder.split(':').next().unwrap();
    std::os::unix::fs::symlink(NANOBOT, PathBuf::from(folder).join("nanobot")).unwrap();
    story
}

/// The text before TAB, and the words that the shell passes after completion.
const CASES: &[(&str, &str)] = &[
    ("ag", "[agent]"),
    ("session show tele", "[session][show][telegram:42]"),
    ("session show telegram:4", "[session][show][telegram:42]"),
    ("session show my", "[session][show][my talk's end]"),
    ("agent -m x --session=cli", "[agent][-m][x][--session=cli:direct]"),
    ("agent -s cli:d", "[agent][-s][cli:direct]"),
    ("cron show dig", "[cron][show][digest]"),
    ("skill show weat", "[skill][show][weather]"),
    ("config get agents.defaults.maxTok", "[config][get][agents.defaults.maxTokens]"),
    (
        "config set agents.defaults.directory w",
        "[config][set][agents.defaults.directory][workspace]",
    ),
    ("agent --profile care", "[agent][--profile][careful]"),
    ("agent --tools read_file,gre", "[agent][--tools][read_file,grep]"),
    ("model show claude-sonnet-4-5", "[model][show][claude-sonnet-4-5]"),
    ("agent --attach no", "[agent][--attach][notes.txt]"),
    // zsh removes the trailing slash.
    ("agent -C de", "[agent][-C][deep"),
    ("agent --record=no", "[agent][--record=notes.txt]"),
];

/// Presses TAB after each case and checks the completed words.
fn check_all_cases(mut screen: Screen<'_>, more: &[(&str, &str)]) {
    for (at, (typed, expect)) in CASES.iter().chain(more).enumerate() {
        screen.type_(&format!("nanobot {typed}"));
        screen.press(Key::Tab).press(Key::Enter);
        screen.until(&format!("{}{expect}", at + 1));
    }
    screen.type_("exit").press(Key::Enter);
    assert_eq!(screen.code(), 0);
}

/// The committed completion script of a shell.
fn committed_script(name: &str) -> String {
    format!("{}/completions/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn bash_completes() {
    let story = story();
    let mut screen = story.screen(50, 120).program("bash", ["--norc", "--noprofile", "-i"]);
    let count = "n=0; nanobot() { n=$((n + 1)); printf %s $n; printf '[%s]' \"$@\"; echo; }";
    let load = format!("PS1='> '; . {}; {count}; echo rea''dy", committed_script("nanobot.bash"));
    screen.type_(&load).press(Key::Enter).until("ready\n");
    check_all_cases(
        screen,
        &[
            ("session show \"tele", "[session][show][telegram:42]"),
            ("session show 'telegram:", "[session][show][telegram:42]"),
            ("session show my\\ ta", "[session][show][my talk's end]"),
        ],
    );
}

#[test]
fn zsh_completes() {
    if !require("zsh") {
        return;
    }
    let story = story();
    let mut screen = story.screen(50, 120).program("zsh", ["-f", "-i"]);
    let count = "n=0; nanobot() { n=$((n + 1)); printf %s $n; printf '[%s]' \"$@\"; echo; }";
    let folder = committed_script("");
    let load = format!(
        "PS1='> '; fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; {count}; echo rea''dy"
    );
    screen.type_(&load).press(Key::Enter).until("ready\n");
    check_all_cases(screen, &[("session show \"tele", "[session][show][telegram:42]")]);
}

#[test]
fn fish_completes() {
    if !require("fish") {
        return;
    }
    let story = story();
    let screen = story.screen(50, 120).env("XDG_CONFIG_HOME", story.home().to_str().unwrap());
    let mut screen = screen.program("fish", ["--no-config", "-i"]);
    let count = "set -g n 0; function nanobot; set -g n (math $n + 1); printf %s $n; printf '[%s]' $argv; echo; end";
    let load = format!(
        "function fish_prompt; echo '> '; end; source {}; {count}; echo rea''dy",
        committed_script("nanobot.fish")
    );
    screen.type_(&load).press(Key::Enter).until("ready\n");
    check_all_cases(screen, &[("session show \"tele", "[session][show][telegram:42]")]);
}

#[test]
fn elvish_completes() {
    if !require("elvish") {
        return;
    }
    let story = story();
    let mut screen = story.screen(50, 120).program("elvish", ["-norc"]);
    let count = "var n = 0; fn nanobot {|@a| set n = (+ $n 1); print $n; for w $a { print '['$w']' }; echo }";
    let load = format!(
        "set edit:prompt = {{ put '> ' }}; eval (slurp < {}); {count}; echo rea''dy",
        committed_script("nanobot.elv")
    );
    screen.type_(&load).press(Key::Enter).until("ready\n");
    // elvish shows candidates below the line, so the next line is not typed ahead.
    for (at, (typed, screen_line, expect)) in [
        ("ag", "nanobot agent", "[agent]"),
        ("session show tele", "show telegram:42", "[session][show][telegram:42]"),
        ("session show my", "my talk", "[session][show][my talk's end]"),
        ("cron show dig", "cron show digest", "[cron][show][digest]"),
    ]
    .iter()
    .enumerate()
    {
        screen.type_(&format!("nanobot {typed}")).press(Key::Tab);
        // Names that need quoting are completed first.
        screen.until(screen_line).press(Key::Enter).press(Key::Enter);
        screen.until(&format!("{}{expect}", at + 1));
    }
    screen.type_("exit").press(Key::Enter);
    assert_eq!(screen.code(), 0);
}

#[test]
fn scripts_are_printed_even_with_an_invalid_config() {
    let story = Story::bare().config_text("{ broken");
    for (shell, file) in [
        ("bash", "nanobot.bash"),
        ("zsh", "_nanobot"),
        ("fish", "nanobot.fish"),
        ("elvish", "nanobot.elv"),
        ("powershell", "nanobot.ps1"),
        ("pwsh", "nanobot.ps1"),
    ] {
        let mut command = story.command(["completions", shell]);
        command.env_remove("HOME").env("NANOBOT_HOME", "");
        let result = story.wait(command.spawn().unwrap());
        assert_recorded(&format!("completions/{file}"), &result.text());
    }
    story.run(["completions", "tcsh"]).status(2).stderr_has("powershell");
}

/// The candidates for `typed_words`. `zsh` passes the words unchanged.
fn zsh_candidates(story: &Story, typed_words: &[&str]) -> Vec<String> {
    let arguments = ["completions", "zsh", "--", "nanobot"].iter().chain(typed_words);
    let text = story.run(arguments).text();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn names_are_completed_from_files() {
    let story = story();
    let check = |typed_words: &[&str], expect: &[&str]| {
        let candidates = zsh_candidates(&story, typed_words);
        let names: Vec<&str> =
            candidates.iter().map(|line| line.split('\t').next().unwrap()).collect();
        for word in expect {
            assert!(names.contains(word), "{typed_words:?}: no {word} in {names:?}");
        }
    };
    check(&[""], &["values", "agent", "repl", "completions"]);
    check(&["session", "show", ""], &["values", "cli:direct", "telegram:42", QUOTED_NAME]);
    check(&["session", "fork", ""], &["telegram:42"]);
    check(&["agent", "--fork", "t"], &["telegram:42"]);
    check(&["repl", "-s", "t"], &["telegram:42"]);
    check(&["cron", "edit", ""], &["digest"]);
    check(&["cron", "heartbeat", "enable", "--model", "gpt-6"], &["gpt-6-luna"]);
    check(&["onboard", "--provider", "an"], &["anthropic"]);
    check(&["model", "provider", "login", ""], &["openaiCodex", "githubCopilot"]);
    check(&["model", "provider", "show", "an"], &["anthropic"]);
    check(&["help", ""], &["values", "agent", "scripting", "privacy"]);
    check(&["help", "pri"], &["privacy"]);
    // After old names, which are not offered.
    check(&["provider", "login", ""], &["openaiCodex", "githubCopilot"]);
    check(
        &["config", "get", "providers."],
        &["providers.anthropic.apiKey", "providers.custom.apiBase"],
    );
    check(&["config", "set", "tools.restrictToWorkspace", ""], &["true", "false"]);
    check(&["config", "set", "agents.defaults.profile", ""], &["careful", "plan"]);
    check(&["policy", "explain", "e"], &["exec", "edit_file"]);
    check(&["cron", "add", "--tz", "Europe/Par"], &["Europe/Paris"]);
    check(&["agent", "--replay", ""], &["files", "demo"]);
    assert_eq!(zsh_candidates(&story, &["run", ""]), ["files"]);
    story.run(["run", "--save", "hello", "Say hello."]).error_text();
    assert_eq!(zsh_candidates(&story, &["run", ""]), ["files", "hello\tSay hello."]);
    check(&["run", "hel"], &["files", "hello"]);
    check(&["run", "--max-c"], &["--max-cost"]);
    check(&["usage", "--by", ""], &["values", "model", "job"]);
    check(&["agent", "-w", ""], &["dirs"]);
    check(&["agent", "--no-str"], &["values", "--no-stream"]);
    assert_eq!(zsh_candidates(&story, &["pip"]), ["values"]);
    // Text by a model or another person is printed without executing its control characters.
    let session_candidates = zsh_candidates(&story, &["session", "show", "cli"]);
    assert!(!session_candidates.concat().contains('\u{1b}'), "{session_candidates:?}");
    assert!(!zsh_candidates(&story, &["agent", "--profile", ""]).concat().contains("explore"));
    // Flags are offered only where one was started.
    assert!(!zsh_candidates(&story, &["session", "show", ""]).concat().contains("--full"));
}

#[test]
fn models_of_the_configured_server_are_completed_first() {
    let list = json!({ "object": "list", "data": [{ "id": "small" }, { "id": "large" }] });
    let story = Story::new().set("modelPresets", json!({ "cheap": { "model": "x" } }));
    let candidates = || zsh_candidates(&story, &["agent", "--model", ""]);
    let first = ["values", "cheap\ta preset of the config", "scripted\tcustom"];
    assert_eq!(candidates(), first);
    // Those that it listed when it was last asked.
    story.server().script([sends(Response::json(200, &list))]);
    story.run(["model", "list", "--remote"]).stdout("small\nlarge\n");
    assert_eq!(candidates(), [&first[..], &["small\tcustom", "large\tcustom"]].concat());
    // Those of other providers, once their name is begun.
    let begun = zsh_candidates(&story, &["agent", "--model", "gpt-6-l"]);
    assert_eq!(begun, ["values", "gpt-6-luna\topenai"]);
    let named = zsh_candidates(&story, &["onboard", "--provider", "deepseek", "--model", ""]);
    assert!(named[2..].iter().all(|line| line.ends_with("\tdeepseek")), "{named:?}");
    assert!(named.len() > 3, "{named:?}");
    // A known provider that was not asked.
    let story = Story::bare().env("DEEPSEEK_API_KEY", "sk-of-the-story");
    let names = zsh_candidates(&story, &["agent", "--model="]);
    assert!(
        names.len() > 1 && names[1..].iter().all(|line| line.ends_with("\tdeepseek")),
        "{names:?}"
    );
}

#[test]
fn completion_uses_the_config_flag_on_the_command_line() {
    let story = story();
    let other = story.home().join("other");
    let config = json!({ "modelPresets": { "cheap": { "model": "x" } } });
    write(&other.join("config.json"), config.to_string().as_bytes());
    let log = other.join("sessions/else.jsonl");
    write(
        &log,
        b"{\"_type\": \"metadata\", \"key\": \"else\"}\n{\"role\": \"user\", \"content\": \"x\"}\n",
    );
    let candidates = zsh_candidates(&story, &["-w", "~/other", "session", "show", ""]);
    assert_eq!(candidates[1..], ["else\tx"], "{candidates:?}");
    let candidates =
        zsh_candidates(&story, &["agent", "-c", "~/other/config.json", "--model", "ch"]);
    assert!(candidates[1].starts_with("cheap\t"), "{candidates:?}");
}

#[test]
fn unreadable_files_produce_no_completions() {
    let story = Story::bare().config_text("{ broken");
    for typed_words in [
        &["session", "show", ""][..],
        &["cron", "show", ""],
        &["agent", "--model", "\u{1b}"],
        &["nonsense", ""],
        &["agent", "-m", "x", "--", ""],
    ] {
        let arguments = ["completions", "zsh", "--", "nanobot"].iter().chain(typed_words);
        let result = story.run(arguments);
        result.text();
    }
    // Completion does not wait for locks.
    let pipe = story.home().join("pipe.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    for typed_words in [["--model", ""], ["-s", ""]] {
        let arguments = ["completions", "zsh", "--", "nanobot", "agent", "-c"];
        let arguments = arguments.into_iter().chain(["~/pipe.json"]).chain(typed_words);
        drop(story.run(arguments).text());
    }
    story
        .run(["-c", pipe.to_str().unwrap(), "agent", "-m", "x"])
        .status(78)
        .stderr_has("is not a regular file");
    let mut command = story.command(["completions", "bash", "--", "nanobot agent -s ", ""]);
    command.env_remove("HOME").env("NANOBOT_HOME", "");
    drop(story.wait(command.spawn().unwrap()).text());
    assert!(!story.workspace().exists());
}
