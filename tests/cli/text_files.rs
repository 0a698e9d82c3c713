//! Text as files have it: characters that look alike.

use crate::server::{calls, says};
use crate::story::Story;
use serde_json::{Value, json};

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "old_text": old, "new_text": new })
}

/// The results of the tools in the last request.
fn results(story: &Story) -> Vec<String> {
    let requests = story.requests();
    let messages = requests.last().unwrap().messages();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
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
    let found = results(&story);
    let note = "(line 2 differs in U+201C (\u{201c}) at column 1; old_text has U+0022 (\") there";
    assert!(found[0].starts_with("edited ") && found[0].contains(note), "{}", found[0]);
    assert!(found[1].contains("The closest match is line 2"), "{}", found[1]);
    assert!(found[2].contains("without the line numbers of read_file"), "{}", found[2]);
    let difference = "Line 3 differs in U+0301 at column 5; old_text has U+00E9 (\u{e9}) there.";
    assert!(found[3].contains(difference), "{}", found[3]);
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
