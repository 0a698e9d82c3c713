//! Text as files have it: characters that look alike, other encodings, byte order marks, line endings; and searches that
//! leave something out.

use crate::server::{calls, says};
use crate::story::Story;
use encoding_rs::Encoding;
use serde_json::{Value, json};

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "old_text": old, "new_text": new })
}

fn bytes(story: &Story, name: &str) -> Vec<u8> {
    std::fs::read(story.dir().join(name)).unwrap()
}

const LETTER: &str =
    "Dear Ada,\n\u{201c}10\u{a0}km\u{201d} \u{2014} that\u{2019}s far.\ncafe\u{301}\u{200b} at 5\n";

#[test]
fn an_edit_finds_characters_that_look_alike_and_keeps_those_of_the_file() {
    let story = Story::new().file("letter", LETTER).script([
        calls("edit_file", edit("letter", "\"10 km\" - that's far.", "\"12 km\" - that's far.")),
        calls("edit_file", edit("letter", "2| \"12 km\" - that's away.\n", "2| x\n")),
        calls("edit_file", edit("letter", "3| caf\u{e9} at 5", "3| caf\u{e9} at 6")),
        calls("edit_file", edit("letter", "caf\u{e9} at 6\nsee you", "x")),
        says("done"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    let expect = LETTER.replace("10", "12").replace("at 5", "at 6");
    assert_eq!(String::from_utf8(bytes(&story, "letter")).unwrap(), expect);
    let outputs = story.last_request().tool_results();
    let note = "(line 2 differs in U+201C (\u{201c}) at column 1; old_text has U+0022 (\") there";
    assert!(outputs[0].starts_with("edited ") && outputs[0].contains(note), "{}", outputs[0]);
    assert!(outputs[1].contains("The closest match is line 2"), "{}", outputs[1]);
    assert!(outputs[2].contains("without the line numbers of read_file"), "{}", outputs[2]);
    let difference = "Line 3 differs in U+0301 at column 5; old_text has U+00E9 (\u{e9}) there.";
    assert!(outputs[3].contains(difference), "{}", outputs[3]);
    story.run(["undo"]).stdout_has("letter").stderr_has("1 file");
    assert_eq!(bytes(&story, "letter"), LETTER.as_bytes());
}

#[test]
fn a_patch_finds_characters_that_look_alike_and_keeps_those_of_the_file() {
    let patch = "*** Begin Patch\n*** Update File: letter\n@@\n Dear Ada,\n-\"10 km\" - that's far.\n\
                 +\"12 km\" - that's far.\n+Bye.\n caf\u{e9} at 5\n*** End Patch\n";
    let story = Story::with_provider("custom", "gpt-5.2-codex")
        .file("letter", LETTER)
        .script([calls("apply_patch", json!({ "patch": patch })), says("done")]);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    let expect = LETTER.replace("10", "12").replace("far.\n", "far.\nBye.\n");
    assert_eq!(String::from_utf8(bytes(&story, "letter")).unwrap(), expect);
}

/// A text, what an edit replaces in it and by what, and a character that its encoding lacks.
const TEXTS: &[(&str, &str, &str, &str, Option<&str>)] = &[
    ("UTF-8", "na\u{ef}ve caf\u{e9}", "caf\u{e9}", "\u{65e5}\u{672c}", None),
    ("UTF-8 with mark", "na\u{ef}ve caf\u{e9}", "caf\u{e9}", "\u{65e5}\u{672c}", None),
    ("UTF-16LE", "na\u{ef}ve caf\u{e9}", "caf\u{e9}", "\u{65e5}\u{1f642}", None),
    ("UTF-16BE", "na\u{ef}ve caf\u{e9}", "caf\u{e9}", "\u{65e5}\u{1f642}", None),
    (
        "windows-1252",
        "na\u{ef}ve caf\u{e9} d\u{e9}j\u{e0} vu, gar\u{e7}on",
        "caf\u{e9}",
        "\u{fc}ber",
        Some("\u{2192}"),
    ),
    (
        "Shift_JIS",
        "\u{3053}\u{308c}\u{306f}\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{6587}\u{7ae0}\u{3067}\u{3059}",
        "\u{65e5}\u{672c}",
        "\u{6f22}\u{5b57}",
        Some("\u{e9}"),
    ),
    (
        "GBK",
        "\u{8fd9}\u{662f}\u{4e00}\u{4e2a}\u{4e2d}\u{6587}\u{6587}\u{672c}\u{6587}\u{4ef6}",
        "\u{4e2d}\u{6587}",
        "\u{6c49}\u{8bed}",
        Some("\u{1f642}"),
    ),
    (
        "EUC-KR",
        "\u{c774}\u{ac83}\u{c740} \u{d55c}\u{ad6d}\u{c5b4} \u{bb38}\u{c11c}\u{c785}\u{b2c8}\u{b2e4}",
        "\u{d55c}\u{ad6d}",
        "\u{d55c}\u{ae00}",
        Some("\u{1f642}"),
    ),
    (
        "KOI8-R",
        "\u{42d}\u{442}\u{43e} \u{440}\u{443}\u{441}\u{441}\u{43a}\u{438}\u{439} \u{442}\u{435}\u{43a}\u{441}\u{442} \u{432} \u{444}\u{430}\u{439}\u{43b}\u{435}",
        "\u{440}\u{443}\u{441}\u{441}\u{43a}\u{438}\u{439}",
        "\u{43d}\u{43e}\u{432}\u{44b}\u{439}",
        Some("\u{e9}"),
    ),
];

fn encode(label: &str, text: &str) -> Vec<u8> {
    match label {
        "UTF-8" => text.into(),
        "UTF-8 with mark" => format!("\u{feff}{text}").into(),
        "UTF-16LE" => format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect(),
        "UTF-16BE" => format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_be_bytes).collect(),
        label => {
            let (bytes, _, has_unmappable) =
                Encoding::for_label(label.as_bytes()).unwrap().encode(text);
            assert!(!has_unmappable, "{label}");
            bytes.into_owned()
        }
    }
}

#[test]
fn files_in_other_encodings_are_edited_and_rewritten_in_them() {
    let story = Story::with_provider("custom", "gpt-5.2-codex");
    // Line endings: CRLF in the first line, LF in the others.
    let whole = |line: &str| format!("{line}\r\nsecond\n{line}\n");
    let mut story = story;
    let mut script = Vec::new();
    for (number, (label, line, old, new, lacking)) in TEXTS.iter().enumerate() {
        let [edited, patched, names] = ["e", "p", "w"].map(|kind| format!("{kind}{number}"));
        for name in [&edited, &patched, &names] {
            story = story.file(name, encode(label, &whole(line)));
        }
        script.push(calls(
            "edit_file",
            edit(
                &edited,
                &format!("{line}\nsecond"),
                &format!("{}\nsecond", line.replacen(old, new, 1)),
            ),
        ));
        let patch = format!(
            "*** Begin Patch\n*** Update File: {patched}\n@@\n second\n-{line}\n+{}\n*** End Patch\n",
            line.replacen(old, new, 1)
        );
        script.push(calls("apply_patch", json!({ "patch": patch })));
        let content = format!("{line}\n{new}\nsecond\n{line}\n");
        script.push(calls("write_file", json!({ "path": names, "content": content })));
        if let Some(lacking) = lacking {
            script.push(calls("edit_file", edit(&edited, "second", lacking)));
            script.push(calls("write_file", json!({ "path": names, "content": lacking })));
        }
    }
    script.push(says("done"));
    let story = story.script(script);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    let mut outputs = story.last_request().tool_results().into_iter();
    for (number, (label, line, old, new, lacking)) in TEXTS.iter().enumerate() {
        let changed = line.replacen(old, new, 1);
        let expect = [
            ("e", format!("{changed}\r\nsecond\n{line}\n")),
            ("p", format!("{line}\r\nsecond\n{changed}\n")),
            ("w", format!("{line}\r\n{new}\r\nsecond\n{line}\n")),
        ];
        for (kind, text) in expect {
            let result = outputs.next().unwrap();
            let name = format!("{kind}{number}");
            assert_eq!(bytes(&story, &name), encode(label, &text), "{label} {name}: {result}");
            let note = match (kind, *label) {
                ("w", "UTF-8") => "; it keeps its line endings, CRLF and LF)",
                ("w", "UTF-8 with mark") => {
                    "it keeps its byte order mark; it keeps its line endings"
                }
                // The detected superset.
                ("w", "KOI8-R") => "it stays KOI8-U; it keeps its line endings",
                ("w", label) => &format!("it stays {label}; it keeps its line endings"),
                _ => "",
            };
            assert!(result.contains(note), "{result}");
        }
        if let Some(lacking) = lacking {
            for _ in 0..2 {
                let result = outputs.next().unwrap();
                assert!(result.contains(&format!("which has no `{lacking}`")), "{result}");
                assert!(result.contains("iconv -f"), "{result}");
            }
        }
    }
    story.run(["undo"]).stdout_has("e0").stderr_has(&format!("{} files", TEXTS.len() * 3));
    for (number, (label, line, ..)) in TEXTS.iter().enumerate() {
        for kind in ["e", "p", "w"] {
            let name = format!("{kind}{number}");
            assert_eq!(bytes(&story, &name), encode(label, &whole(line)), "{label} {name}");
        }
    }
}

#[test]
fn bytes_that_are_no_text_stay_outside_of_an_edit() {
    let old = b"caf\xc3\xa9 \xc3\xa9t\xc3\xa9\nbad: \xff\nlast\n";
    let story = Story::new().file("log", old).script([
        calls("read_file", json!({ "path": "log" })),
        calls("edit_file", edit("log", "last", "end")),
        calls("edit_file", edit("log", "bad", "good")),
        says("done"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    assert_eq!(bytes(&story, "log"), b"caf\xc3\xa9 \xc3\xa9t\xc3\xa9\nbad: \xff\nend\n");
    let outputs = story.last_request().tool_results();
    assert!(outputs[0].contains("decoded from UTF-8; bytes that are not valid"), "{}", outputs[0]);
    assert!(outputs[2].contains("line 2 has bytes that are not valid UTF-8"), "{}", outputs[2]);
}

#[test]
fn a_search_says_what_it_left_out() {
    let story = Story::new()
        .file(".github/workflows/ci.yml", "runs-on: here\n")
        .file("long", format!("{}needle\n", "x".repeat(17 << 20)))
        .file("src/a.rs", "fn a() {}\n");
    std::os::unix::fs::symlink("gone", story.dir().join("link")).unwrap();
    let story = story.script([
        calls("glob", json!({ "pattern": "*.yml" })),
        calls("grep", json!({ "pattern": "runs-on", "glob": "*.yml" })),
        calls("grep", json!({ "pattern": "runs-on", "glob": ".github/**" })),
        calls("grep", json!({ "pattern": "needle" })),
        calls("read_file", json!({ "path": "link" })),
        says("done"),
    ]);
    story.run(["agent", "-m", "x"]).stdout("done\n");
    let outputs = story.last_request().tool_results();
    let hidden = "`.github/workflows/ci.yml`; `all` includes them)";
    assert_eq!(outputs[0], format!("no files found\n(hidden files match: {hidden}"));
    assert_eq!(outputs[1], format!("no matches found\n(hidden files were not searched: {hidden}"));
    assert_eq!(outputs[2], ".github/workflows/ci.yml\n1: runs-on: here");
    let long = "(long was not searched to its end: it has a line of more than 16 MiB; use exec)";
    assert!(outputs[3].contains(long), "{}", outputs[3]);
    assert!(
        outputs[4].contains("`link` is a link to `gone`, which does not exist"),
        "{}",
        outputs[4]
    );
}
