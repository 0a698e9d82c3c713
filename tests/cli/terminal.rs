//! Untrusted text on a terminal, from models, tools, files, servers and names: control characters are shown and never
//! executed. A pipe gets the text unchanged.

use crate::server::{Response, calls, calls_all, fails, says, sends};
use crate::story::{NANOBOT, Story, write};
use serde_json::{Value, json};

/// More than three hundred texts that a terminal would execute, or that would display something misleading.
fn hostile_texts() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    // Control characters.
    let controls = ('\u{1}'..='\u{1f}').filter(|letter| !['\t', '\n', '\r'].contains(letter));
    let controls = controls.chain('\u{7f}'..='\u{9f}');
    all.extend(controls.map(|letter| format!("a{letter}b")));
    all.extend(
        ["sure\rEVIL", "a\r\rb", "abc\u{8}\u{8}\u{8}xyz", "a\u{b}b\u{c}c"].map(str::to_owned),
    );
    // Single-character and bracket commands.
    let short = "c 7 8 D E H M N O Z = > (0 )B #8 %G n o | } ~ l m";
    all.extend(short.split(' ').map(|rest| format!("\u{1b}{rest}")));
    let brackets = "2J 3J H 1;1H 1A 5B 9C 9D K 1K P L M X @ r s u c >c =c 5n 6n ?6n 0m 31m 1;5;7m 38;2;1;2;3m 48;5;9m \
        ?25l ?25h ?1049h ?47h ?1000h ?1006h ?2004h ?2004l ?5h ?3h ?7l 4h 20h 12l 4i 5i ?5i 8;1;1t 11t 14t 18t 20t 21t \
        22;0t 23t !p 2\u{20}q >4;2m >1u =1u ?u $p ?1$p 1$r 0c";
    for rest in brackets.split_whitespace() {
        all.push(format!("\u{1b}[{rest}"));
        all.push(format!("\u{9b}{rest}"));
    }
    // Strings: titles, colours, links, the clipboard, files, notifications, and queries that are answered as input.
    let strings = [
        "]0;title",
        "]1;icon",
        "]2;title",
        "]4;1;?",
        "]7;file:///etc",
        "]8;;http://evil.example",
        "]9;notice",
        "]9;4;3;0",
        "]10;?",
        "]11;#000000",
        "]12;red",
        "]50;font",
        "]52;c;ZXZpbA==",
        "]52;c;?",
        "]104",
        "]133;A",
        "]633;E;ls",
        "]777;notify;a;b",
        "]1337;File=inline=1:AAAA",
        "]1337;CopyToClipboard=",
        "]l",
        "]L",
        "P$qm",
        "P+q544e",
        "Ptmux;x",
        "Pq#0;2;0;0;0",
        "P1;2|a",
        "_Gf=24;AAAA",
        "^private",
        "Xstring",
        "k screen",
    ];
    for string in strings {
        for end in ["\u{7}", "\u{1b}\\", "\u{9c}", ""] {
            all.push(format!("\u{1b}{string}{end}"));
        }
    }
    all.extend(
        ["\u{9d}0;x\u{9c}", "\u{90}$qm\u{9c}", "\u{9e}x\u{9c}", "\u{9f}Gx\u{9c}", "\u{98}x\u{9c}"]
            .map(str::to_owned),
    );
    // Bidirectional and invisible characters, and tags that only models read.
    let hidden = "\u{34f}\u{61c}\u{180e}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\
        \u{202d}\u{202e}\u{2060}\u{2061}\u{2062}\u{2063}\u{2064}\u{2066}\u{2067}\u{2068}\u{2069}\u{206a}\u{206f}\u{feff}\
        \u{fff9}\u{fffa}\u{fffb}\u{fe00}\u{fe07}\u{fe0e}\u{fe0f}\u{e0001}\u{e0020}\u{e0041}\u{e007f}\u{e0100}\u{e01ef}";
    all.extend(hidden.chars().map(|letter| format!("pay{letter}pal")));
    all.push("txt.\u{202e}exe\u{2066} // }\u{2069} begin".into());
    assert!(all.len() >= 300, "{}", all.len());
    all
}

/// True if a terminal might do anything with it except show it.
fn is_control(letter: char) -> bool {
    (letter.is_control() && letter != '\n' && letter != '\t')
        || matches!(letter, '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(letter, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// The visible form of `text`.
fn escape_controls(text: &str) -> String {
    let spell = |letter: char| {
        if is_control(letter) { letter.escape_unicode().to_string() } else { letter.to_string() }
    };
    text.chars().map(spell).collect()
}

/// All of them, one per line.
fn hostile_lines() -> String {
    let lines = hostile_texts();
    let lines = lines.iter().enumerate();
    lines.map(|(number, text)| format!("{number}: {text}.\n")).collect()
}

/// The terminal output, whatever the exit status.
fn run_on_terminal(story: &Story, kind: &str, arguments: &str) -> String {
    let mut command = story.program("script");
    let shell = format!("stty -opost; {NANOBOT} {arguments}; true");
    command.args(["-qec", &shell, "/dev/null"]).env("TERM", kind);
    story.wait(command.spawn().unwrap()).text()
}

#[track_caller]
fn assert_harmless(name: &str, output: &str) {
    assert!(!output.is_empty(), "{name} shows nothing");
    let control = output.char_indices().find(|(_, letter)| is_control(*letter));
    if let Some((at, letter)) = control {
        panic!("{name}: {letter:?} in {:?}", &output[output[..at].rfind('\n').unwrap_or(0)..]);
    }
}

#[test]
fn escape_sequences_in_an_answer_are_not_executed() {
    let text = hostile_lines();
    for flags in ["", " --no-stream"] {
        let story = Story::new().script([says(&text)]);
        let output = run_on_terminal(&story, "dumb", &format!("agent -m x{flags}"));
        assert_eq!(output, escape_controls(&text));
    }
    // Split anywhere: each character is its own chunk.
    let event = |letter: char| {
        let delta =
            json!({ "choices": [{ "index": 0, "delta": { "content": letter.to_string() } }] });
        format!("data: {delta}\n\n")
    };
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let end = format!("data: {end}\n\ndata: [DONE]\n\n");
    let pieces: Vec<String> = text.chars().map(event).chain([end]).collect();
    let story = Story::new().script([sends(Response::events(pieces))]);
    assert_eq!(run_on_terminal(&story, "dumb", "agent -m x"), escape_controls(&text));
}

#[test]
fn a_pipe_gets_every_byte() {
    let text = format!("{}\u{0}👩\u{200d}🔬 end", hostile_lines());
    let story = Story::new().script([says(&text)]);
    let result = story.run(["agent", "-m", "x"]);
    assert_eq!(result.bytes(), format!("{text}\n").into_bytes());
}

#[test]
fn json_on_a_terminal_is_valid_and_escaped() {
    let text = hostile_lines();
    let story = Story::new().script([says(&text), says(&text)]);
    let output = run_on_terminal(&story, "dumb", "agent --json -m x");
    assert_harmless("--json", &output);
    let result: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(result["text"], text);
    let output = run_on_terminal(&story, "dumb", "agent --output-format stream-json -m x");
    assert_harmless("stream-json", &output);
    let events = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answer: String = events
        .filter(|event| event["type"] == "text")
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(answer, text);
}

#[test]
fn escape_sequences_in_calls_and_failures_are_not_executed() {
    let payloads = hostile_texts();
    let wants = payloads.iter().map(|text| ("read_file", json!({ "path": text })));
    let commands = payloads
        .iter()
        .take(3)
        .map(|text| ("exec", json!({ "command": format!("printf '%s' '{text}'; exit 1") })));
    let all: Vec<(&str, Value)> = wants.chain(commands).collect();
    let story =
        Story::new().script([calls_all(all.clone()), says("ok"), calls_all(all), says("ok")]);
    let output = run_on_terminal(&story, "dumb", "agent -v -m x");
    assert_harmless("-v", &output);
    assert!(output.contains(r"read_file(\u{22}") || output.contains(r"\u{1b}[2J"), "{output}");
    // Standard error is for people, wherever it is redirected.
    let result = story.run(["agent", "-v", "-m", "x"]).stdout("ok\n");
    assert_harmless("standard error", &result.error_text());
}

#[test]
fn escape_sequences_in_server_errors_are_not_executed() {
    let payloads = hostile_texts();
    for some in payloads.chunks(30) {
        let text = some.join(" ");
        let story = Story::new().script([fails(400, &text), fails(400, &text)]);
        assert_harmless("a failure", &run_on_terminal(&story, "dumb", "agent -m x"));
        let result = story.run(["agent", "-m", "x"]).status(1);
        assert_harmless("a failure in a pipe", &result.error_text());
    }
    let ids: Vec<Value> = payloads.iter().map(|text| json!({ "id": text })).collect();
    let list = json!({ "object": "list", "data": ids });
    let story =
        Story::new().script([sends(Response::json(200, &list)), sends(Response::json(200, &list))]);
    assert_harmless("models", &run_on_terminal(&story, "dumb", "model list --remote"));
    let output = run_on_terminal(&story, "dumb", "model list --remote --json");
    assert_harmless("models as JSON", &output);
    let names = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(names.count(), payloads.len());
}

#[test]
fn escape_sequences_in_stored_data_are_not_executed() {
    let text = hostile_lines();
    let key = "evil\u{1b}]0;x\u{7}\u{202e}\u{9b}2J";
    let story = Story::new().script([calls("read_file", json!({ "path": "notes" })), says(&text)]);
    let story = story
        .file("notes", &text)
        .workspace_file("memory/MEMORY.md", &text)
        .workspace_file("memory/HISTORY.md", &text);
    story.run(["agent", "-s", key, "-m", &text]).stdout(&format!("{}\n", text.trim_end()));
    // Shell quoting preserves all of it.
    let named = format!("'{key}'");
    for (arguments, has) in [
        (format!("session show {named}"), "2J"),
        (format!("session show --full {named}"), "\\u{1b}[2J"),
        (format!("session show --json {named}"), "\\u001b[2J"),
        (format!("session show --raw {named}"), "2J"),
        ("session list".into(), "evil\\u{1b}"),
        ("session list --json".into(), "\\u001b]0;x"),
        ("session search -F ']0;title'".into(), "]0;title"),
        ("session search --json -F ']0;title'".into(), "]0;title"),
        (format!("session export {named}"), "\\u{1b}[2J"),
        (format!("session export --format json {named}"), "\\u001b[2J"),
        (format!("session rm {named}x"), "no session"),
        ("memory show".into(), "\\u{1b}[2J"),
        ("memory search title".into(), "]0;title"),
        ("memory diff".into(), ""),
        ("memory log".into(), ""),
        ("usage --by session".into(), "evil\\u{1b}"),
        ("status".into(), "model"),
        (format!("agent -s {named} --dry-run -m x"), "\\u001b[2J"),
        (format!("agent -s {named} --dry-run=table -m x"), "tokens"),
        (format!("agent -m x -a {named}"), "evil\\u{1b}"),
        (format!("config get {named}"), "evil\\u{1b}"),
        (format!("agent --{named}"), "evil"),
        (format!("agent -m x --model {named} --dry-run=curl"), ""),
    ] {
        let output = run_on_terminal(&story, "dumb", &arguments);
        if !has.is_empty() {
            assert_harmless(&arguments, &output);
        }
        assert!(output.contains(has), "{arguments}: {output}");
        assert_eq!(output.chars().find(|letter| is_control(*letter)), None, "{arguments}");
    }
}

#[test]
fn only_our_own_colours_are_executed() {
    let text = "red \u{1b}[31m alert \u{202e}";
    let story = Story::new().script([says(text)]);
    story.run(["agent", "-m", "x"]).stdout(&format!("{text}\n"));
    for arguments in ["session show cli:direct", "session search alert"] {
        let output = run_on_terminal(&story, "xterm", arguments);
        assert!(output.contains("\u{1b}["), "no colour: {output:?}");
        let mut plain = output.clone();
        for sequence in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[36m"] {
            plain = plain.replace(sequence, "");
        }
        assert_harmless(arguments, &plain);
        assert!(plain.contains(&escape_controls(text)), "{plain:?}");
    }
}

#[test]
fn a_binary_file_is_shown_escaped() {
    let story = Story::new().script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    write(&story.workspace().join("memory/MEMORY.md"), b"caf\xe9 \x9b2J \xff\x1b[2J\n");
    let output = run_on_terminal(&story, "dumb", "memory show");
    assert_eq!(output, "caf\u{fffd} \u{fffd}2J \u{fffd}\\u{1b}[2J\n");
}
