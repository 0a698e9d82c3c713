//! `apply_patch`: several files changed by one call, for the models that were trained on its format.

use crate::server::{calls, says, tool_names};
use crate::story::{Story, write};
use crate::undo::snapshot_tree;
use crate::web::{PageServer, page_response};
use serde_json::{Value, json};

/// A story whose model was trained on the format.
fn codex_story() -> Story {
    Story::with_provider("custom", "gpt-5.2-codex")
        .file("notes.md", "milk\r\nbread\r\n")
        .file("src/old.rs", "fn a() {\n    1\n}\n\nfn b() {\n    1\n}\n")
        .file("gone.txt", "bye\n")
}

fn patch(body: &str) -> Value {
    json!({ "patch": format!("*** Begin Patch\n{body}*** End Patch\n") })
}

/// The sections of a patch that adds, updates, moves and deletes.
const SECTIONS: &str = "*** Add File: docs/new.md\n+# New\n\
    *** Update File: notes.md\n@@\n-milk\n+oat milk\n bread\n\
    *** Update File: src/old.rs\n*** Move to: src/new.rs\n@@ fn b() {\n-    1\n+    2\n\
    *** Delete File: gone.txt\n";

fn text(story: &Story, name: &str) -> String {
    std::fs::read_to_string(story.dir().join(name)).unwrap()
}

#[test]
fn a_patch_changes_several_files_and_undo_restores_them() {
    let story = codex_story().script([calls("apply_patch", patch(SECTIONS)), says("Done.")]);
    let before = snapshot_tree(&story.dir());
    story.run(["agent", "-m", "x", "--write"]).stdout("Done.\n");
    assert_eq!(text(&story, "docs/new.md"), "# New\n");
    assert_eq!(text(&story, "notes.md"), "oat milk\r\nbread\r\n");
    let expect = "fn a() {\n    1\n}\n\nfn b() {\n    2\n}\n";
    assert_eq!(text(&story, "src/new.rs"), expect);
    for name in ["src/old.rs", "gone.txt"] {
        assert!(!story.dir().join(name).exists(), "{name}");
    }
    let result = story.normalize_paths(&story.requests()[1].last_content());
    let expect = "added $DIR/docs/new.md\nupdated $DIR/notes.md\nmoved $DIR/src/old.rs to $DIR/src/new.rs\n\
                  deleted $DIR/gone.txt";
    assert_eq!(result, expect);
    let undone = story.run(["undo"]);
    undone.stdout_has("notes.md").stderr_has("5 files");
    assert_eq!(snapshot_tree(&story.dir()), before);
    let redone = story.run(["undo", "--redo"]);
    redone.stdout_has("notes.md").stderr_has("5 files");
    assert_eq!(text(&story, "notes.md"), "oat milk\r\nbread\r\n");
}

#[test]
fn only_models_that_were_trained_on_it_are_offered_the_tool() {
    let offered = |story: &Story, flags: &[&str]| -> Vec<String> {
        tool_names(&story.run([&["agent", "-m", "x", "--dry-run"], flags].concat()).json())
    };
    let check = |story: &Story, flags: &[&str], expect: bool| {
        let names = offered(story, flags);
        let is_listed = names.iter().any(|name| name == "apply_patch");
        assert_eq!(is_listed, expect, "{flags:?} {names:?}");
    };
    let codex = codex_story();
    check(&codex, &[], true);
    assert!(offered(&codex, &[]).contains(&"edit_file".to_owned()));
    check(&codex, &["--model", "scripted"], false);
    check(&codex, &["--tools", "*_file"], false);
    check(&codex, &["--tools", "apply_*"], true);
    check(&codex, &["--disabled-tools", "apply_patch"], false);
    check(&codex, &["--disabled-tools", "edit_file"], false);
    check(&codex, &["--profile", "plan"], false);
    let other = Story::new();
    check(&other, &[], false);
    check(&other, &["--tools", "*"], false);
    check(&other, &["--model", "openai/o4-mini"], true);
    assert_eq!(offered(&other, &["--tools", "apply_patch"]), ["apply_patch"]);
    let profile = b"---\ntools: [read_file, apply_patch]\n---\nPatch.\n";
    write(&other.home().join(".nanobot/profiles/patcher.md"), profile);
    check(&other, &["--profile", "patcher"], true);
    let explained = other.run(["policy", "explain", "apply_patch", "x"]);
    explained.status(77).stdout_has("only models that were trained on its format get it");
}

#[test]
fn a_patch_with_a_forbidden_file_changes_nothing() {
    let check = |flags: &[&str], body: &str, expect: &str| {
        let body = format!("{SECTIONS}{body}");
        let story = codex_story()
            .file("secret/key", "k\n")
            .file(".git/config", "[core]\n")
            .script([calls("apply_patch", patch(&body)), says("No.")]);
        let before = snapshot_tree(&story.dir());
        let run_result = story.run([&["agent", "-m", "x"], flags].concat());
        run_result.stdout("No.\n").stderr_has("denied: apply_patch");
        let result = story.requests()[1].last_content();
        assert!(result.contains(expect), "{flags:?}: {result}");
        assert_eq!(snapshot_tree(&story.dir()), before, "{flags:?}");
    };
    check(&[], "", "--write");
    let write = ["--write"];
    check(&write, "*** Update File: .git/config\n-[core]\n", "protected start-up file");
    check(&write, "*** Add File: ../outside\n+x\n", "outside the paths");
    check(&write, "*** Add File: ~/.nanobot/config.json\n+x\n", "internal to nanobot");
    check(&write, "*** Add File: ~/.nanobot/notify.json\n+x\n", "internal to nanobot");
    let key = "*** Update File: secret/key\n*** Move to: key\n";
    check(&["--write", "--deny", "read_file(secret/*)"], key, "denied by the rule");
    check(&["--write", "--deny", "delete_file(secret/*)"], key, "denied by the rule");
    // What the user decided about the other tools applies to the sections of a patch.
    check(&["--write", "--deny", "delete_file"], "", "denied by the rule `delete_file`");
    check(&["--write", "--disabled-tools", "write_*"], "", "denied by the rule `write_*`");
    let story = codex_story().set("tools.permissions", json!({ "delete_file": "ask" })).script([
        calls("apply_patch", patch(SECTIONS)),
        says("No."),
        calls("apply_patch", patch("*** Delete File: gone.txt\n")),
        says("Yes."),
    ]);
    story
        .run(["agent", "-m", "x", "--write"])
        .stdout("No.\n")
        .stderr_has("`--allow apply_patch` would allow it");
    assert_eq!(text(&story, "gone.txt"), "bye\n");
    story.run(["agent", "-m", "x", "--write", "--allow", "delete_file"]).stdout("Yes.\n");
    assert!(!story.dir().join("gone.txt").exists());
}

#[test]
fn instruction_files_are_guarded_and_given() {
    let pages = PageServer::start(|_| page_response("text/plain", "words of another"));
    let note = patch("*** Add File: new.txt\n+x\n*** Add File: ~/.nanobot/workspace/USER.md\n+x\n");
    let story = codex_story()
        .file("src/AGENTS.md", "No panics here.")
        .set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    story.run(["trust", "-q"]);
    let update = "*** Update File: src/old.rs\n@@ fn b() {\n-    1\n+    2\n";
    story.server().script([
        calls("web_fetch", json!({ "url": pages.url("/") })),
        calls("apply_patch", patch(update)),
        calls("apply_patch", note),
        says("done"),
    ]);
    let run_result = story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    assert!(run_result.error_text().contains("--allow notes"));
    let requests = story.requests();
    let result = requests[2].last_content();
    assert!(result.contains("No panics here."), "{result}");
    let result = requests[3].last_content();
    assert!(result.contains("instructs later runs"), "{result}");
    assert!(!story.dir().join("new.txt").exists());
}

#[test]
fn a_hunk_that_is_not_found_is_explained() {
    let body = format!("{SECTIONS}*** Update File: src/lib.rs\n@@\n-fn c() {{\n+fn d() {{\n");
    let story = codex_story()
        .file("src/lib.rs", "fn x() {\n}\n")
        .script([calls("apply_patch", patch(&body)), says("No.")]);
    let before = snapshot_tree(&story.dir());
    story.run(["agent", "-m", "x", "--write"]).stdout("No.\n");
    let result = story.requests()[1].last_content();
    for part in ["no file was changed", "`src/lib.rs`: hunk 1", "fn c() {", "line 1"] {
        assert!(result.contains(part), "no {part:?} in {result}");
    }
    assert_eq!(snapshot_tree(&story.dir()), before);
    story.run(["undo"]).status(66).stderr_has("nothing to undo");
}

#[test]
fn a_hidden_key_is_not_overwritten() {
    let key = format!("sk-ant-api03-{}", "a1B2".repeat(10));
    let file = format!("name = one\nkey = {key}\n");
    let update = |lines: &str| patch(&format!("*** Update File: settings\n{lines}"));
    let story = codex_story().file("settings", &file).script([
        calls("apply_patch", update("-key = sk-ant-***\n+other = sk-ant-***\n")),
        calls(
            "apply_patch",
            update("-name = one\n-key = sk-ant-***\n+name = 1\n+key = sk-ant-***\n"),
        ),
        calls("apply_patch", update("-name = 1\n+name = one\n")),
        calls("apply_patch", update("-name = one\n+name = two\n")),
        says("ok"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    let requests = story.requests();
    let results: Vec<String> = requests.iter().map(|it| it.last_content()).collect();
    assert!(results[1].contains("not clear which one"), "{}", results[1]);
    assert!(results[2].contains("updated"), "{}", results[2]);
    assert!(results.iter().all(|result| !result.contains(&key)));
    assert_eq!(text(&story, "settings"), file.replace("one", "two"));
}
