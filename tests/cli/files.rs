//! The file tools against hostile paths, special files, and concurrent swaps of files, links and directories.

use crate::requirements::require;
use crate::server::{Request, Responder, calls, calls_all, says};
use crate::story::{Story, write};
use crate::undo::snapshot_tree;
use crate::web::{PageServer, page_response};
use nanobot_base::message::ToolSpec;
use nanobot_base::message::plain_text;
use nanobot_config::policy::file_scope::{FileScope, ScopeRoot};
use nanobot_os::age::Age;
use nanobot_os::deferred::Deferred;
use nanobot_tool::Tool;
use nanobot_tool::delete_file;
use nanobot_tool::edit_file;
use nanobot_tool::files::Files;
use nanobot_tool::glob;
use nanobot_tool::grep;
use nanobot_tool::list_dir;
use nanobot_tool::read_file;
use nanobot_tool::run_alone;
use nanobot_tool::undo::{ChangeRecorder, UndoStore};
use nanobot_tool::write_file;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Text that no tool may ever return.
const CANARY: &str = "CANARY";
/// The name of a file that no listing may contain.
const CANARY_NAME: &str = "canary-name";

/// A story with secrets around its directory, and with links to them.
fn story_with_secrets() -> (Story, PathBuf) {
    let story = Story::new_in(&memory_dir()).file("sub/inside", "inside\n");
    let (dir, home) = (story.dir(), story.home());
    // Its name starts with the name of the directory.
    let outside = dir.with_file_name("dir-evil");
    write(&outside.join("secret"), format!("{CANARY} outside\n").as_bytes());
    write(&outside.join(CANARY_NAME), CANARY.as_bytes());
    write(&outside.join("linked"), b"plain\n");
    write(&home.join(".ssh/id_rsa"), format!("{CANARY} key\n").as_bytes());
    write(&home.join(".ssh").join(CANARY_NAME), CANARY.as_bytes());
    write(&home.join(".bash_history"), CANARY.as_bytes());
    write(&home.join(".nanobot/workspace/sessions/other.jsonl"), CANARY.as_bytes());
    let link = |target: &Path, name: &str| symlink(target, dir.join(name)).unwrap();
    link(&outside.join("secret"), "l-file");
    link(&outside, "l-dir");
    link(Path::new("../dir-evil/secret"), "l-relative");
    link(Path::new(".."), "l-up");
    link(Path::new("/"), "l-root");
    link(Path::new("l-loop"), "l-loop");
    link(&outside.join("new"), "l-dangling");
    link(Path::new("/proc/self/root"), "l-magic");
    link(Path::new("/proc/self/cwd"), "l-cwd");
    link(&home.join(".ssh"), "l-ssh");
    link(Path::new("/proc/self/environ"), "l-environ");
    for number in 0..12 {
        let next = format!("l-chain{}", number + 1);
        link(Path::new(&next), &format!("l-chain{number}"));
    }
    link(&outside, "l-chain12");
    link(Path::new("../../dir-evil"), "sub/l-deep");
    // Hard links to a denied file and to an outside file.
    std::fs::hard_link(home.join(".ssh/id_rsa"), dir.join("h-key")).unwrap();
    std::fs::hard_link(outside.join("linked"), dir.join("h-linked")).unwrap();
    (story, outside)
}

/// Path forms that lead, or might lead, out of the directory. All lead to files of the story, so that a bug does not damage
/// the machine.
fn path_forms(story: &Story, outside: &Path) -> Vec<String> {
    let dir = story.dir();
    let (dir, outside) = (dir.to_str().unwrap(), outside.to_str().unwrap());
    let home = story.home();
    let home = home.to_str().unwrap();
    let up = "../".repeat(40);
    let relative = "../dir-evil/secret";
    let absolute = format!("{outside}/secret");
    let mut forms: Vec<String> = Vec::new();
    for target in [relative, &absolute, "../dir-evil", "~/.ssh/id_rsa", "l-dir/secret", "l-file"] {
        for (before, after) in [
            ("", ""),
            ("./", ""),
            (".//./", ""),
            ("sub/../", ""),
            ("sub/l-deep/../", ""),
            ("none/../", ""),
            ("//", ""),
            ("/", ""),
            (" ", ""),
            ("", " "),
            ("", "/"),
            ("", "//"),
            ("", "/."),
            ("", "."),
            ("", "..."),
            ("", "/../secret"),
            ("", "\0"),
            ("", "\0.txt"),
            ("", "%00"),
            ("", "\n"),
            ("\n", ""),
            ("", "\u{200b}"),
            ("\u{202e}", ""),
            ("'", "'"),
            ("file://", ""),
            ("", "?x"),
        ] {
            forms.push(format!("{before}{target}{after}"));
        }
    }
    for dots in [
        "%2e%2e/",
        "..%2f",
        "%2e%2e%2f",
        "%252e%252e%252f",
        "..\\",
        "..\u{2215}",
        "..\u{2044}",
        "\u{ff0e}\u{ff0e}/",
        "\u{2024}\u{2024}/",
        "\u{2025}/",
        "\u{ff0e}\u{ff0e}\u{ff0f}",
        "..%c0%af",
        "....//",
        "..;/",
        ".. /",
        "..\u{200b}/",
        "..\n/",
        ".\u{0307}./",
    ] {
        forms.push(format!("{dots}dir-evil/secret"));
    }
    for path in [&absolute, &format!("{home}/.ssh/id_rsa"), &format!("{home}/.bash_history")] {
        for before in [
            "/proc/self/root",
            "/proc/thread-self/root",
            "/proc/1/root",
            "/proc/self/cwd/../../../..",
            "l-root",
            "l-magic",
            "/dev/../",
            "/..",
            "//",
            "/./",
            &up,
            "l-up/../../../..",
            "l-cwd/../../../..",
            "sub/l-deep/../../..",
        ] {
            forms.push(format!("{before}{path}"));
        }
        forms.push(path.to_uppercase());
        forms.push(format!("l-magic{path}"));
    }
    for number in 0..12 {
        forms.push(format!("/proc/self/fd/{number}/secret"));
        forms.push(format!("/dev/fd/{number}/../dir-evil/secret"));
        forms.push(format!("l-chain{number}/secret"));
    }
    let more = [
        "l-up",
        "l-root",
        "l-loop",
        "l-loop/x",
        "l-dangling",
        "l-ssh",
        "l-ssh/id_rsa",
        "h-key",
        "sub/l-deep/secret",
        "sub/../l-dir/secret",
        "~",
        "~/",
        "~/.SSH/id_rsa",
        "~/../dir-evil/secret",
        "$HOME/.ssh/id_rsa",
        "${HOME}/.ssh/id_rsa",
        "$(pwd)/../dir-evil/secret",
        "`pwd`/../dir-evil/secret",
        "C:\\dir-evil\\secret",
        "\\\\?\\dir-evil",
        "-",
        "--",
        "..",
        "...",
        "/",
        "//",
        "/..",
        "\0",
        "~/.bash_history",
        "~/.nanobot/config.json",
        "~/.nanobot/nanobot.json",
        "~/.nanobot/workspace/sessions/other.jsonl",
        "~/.nanobot/workspace/sub/../sessions/other.jsonl",
        "~/.nanobot/workspace/sessions/",
        "~/.nanobot/undo/1/journal.jsonl",
    ];
    forms.extend(more.map(str::to_owned));
    forms.push(format!("{dir}-evil/secret"));
    forms.push(format!("{dir}/../dir-evil/secret"));
    forms.push(format!("{dir}/sub/../../dir-evil/secret"));
    forms.push(format!("{}{}", "sub/../".repeat(600), relative));
    forms.push("a".repeat(300));
    forms.push(format!("{}../dir-evil/secret", "a/".repeat(3_000)));
    let forms: BTreeSet<String> = forms.into_iter().collect();
    forms.into_iter().collect()
}

/// Path forms to system files, for tools that only read.
fn system_path_forms() -> Vec<String> {
    let mut forms: Vec<String> = Vec::new();
    for before in ["", "/proc/self/root", "l-root", "l-magic", "l-up/../../../..", "//", "/../.."] {
        for path in
            ["/etc/passwd", "/proc/self/environ", "/proc/self/mem", "/dev/stdin", "/dev/tty"]
        {
            forms.push(format!("{before}{path}"));
        }
    }
    forms.extend((0..8).map(|number| format!("/proc/self/fd/{number}")));
    forms.extend(["l-environ", "~root/.ssh/id_rsa"].map(str::to_owned));
    forms
}

#[test]
#[allow(clippy::print_stdout, reason = "the count is to be seen")]
fn no_path_form_escapes_the_scope() {
    type ArgumentsForPath = fn(&str) -> Value;
    let tools: [(&str, ArgumentsForPath); 11] = [
        ("read_file", |path| json!({ "path": path })),
        ("write_file", |path| json!({ "path": path, "content": "PWNED" })),
        ("edit_file", |path| json!({ "path": path, "old_text": CANARY, "new_text": "PWNED" })),
        ("delete_file", |path| json!({ "path": path })),
        ("apply_patch", |path| {
            let section = format!("*** Update File: {path}\n-{CANARY}\n+PWNED\n");
            json!({ "patch": format!("*** Begin Patch\n{section}*** End Patch") })
        }),
        ("apply_patch", |path| {
            let section = format!("*** Delete File: {path}\n");
            json!({ "patch": format!("*** Begin Patch\n{section}*** End Patch") })
        }),
        ("list_dir", |path| json!({ "path": path })),
        ("list_dir", |path| json!({ "path": path, "recursive": true })),
        ("glob", |path| json!({ "pattern": "**", "path": path, "all": true })),
        ("glob", |path| json!({ "pattern": format!("{path}/*"), "all": true })),
        ("grep", |path| json!({ "pattern": ".", "path": path, "all": true })),
    ];
    let (mut tried, mut escapes) = (0, Vec::new());
    let mut count = 0;
    for steps in [false, true] {
        for (name, call) in tools {
            let (story, outside) = story_with_secrets();
            let story = if steps { story.env("NANOBOT_TEST_STEPS", "1") } else { story };
            let mut forms = path_forms(&story, &outside);
            count = forms.len();
            if !["write_file", "edit_file", "delete_file", "apply_patch"].contains(&name) {
                forms.extend(system_path_forms());
            }
            let list = forms.iter().map(|form| (name, call(form)));
            let story = story.script([calls_all(list), says("done")]);
            let secrets = [outside, story.home().join(".ssh"), story.home().join(".bash_history")];
            let before: Vec<_> = secrets.iter().map(|path| snapshot_tree(path)).collect();
            let config = std::fs::read(story.home().join(".nanobot/config.json")).unwrap();
            let run_result = story
                .run(["agent", "-m", "x", "--write", "--ephemeral", "--model", "gpt-5"])
                .stdout("done\n");
            drop(run_result.error_text());
            let after: Vec<_> = secrets.iter().map(|path| snapshot_tree(path)).collect();
            assert_eq!(before, after, "{name}");
            assert_eq!(config, std::fs::read(story.home().join(".nanobot/config.json")).unwrap());
            let results = story.last_request().tool_results();
            assert_eq!(results.len(), forms.len());
            tried += results.len();
            for (form, result) in forms.iter().zip(&results) {
                // The tree has the names of the links and nothing behind them.
                let secrets = [CANARY, CANARY_NAME, "root:x:0", "key-of-the-story", "HOME="];
                if secrets.iter().any(|word| result.contains(word)) {
                    escapes.push(format!("{name} {form:?}: {result}"));
                }
            }
        }
    }
    println!("{count} forms of paths, {tried} calls: {} escapes", escapes.len());
    assert!(count >= 200, "{count}");
    assert_eq!(escapes, [""; 0]);
}

#[test]
fn a_hard_link_to_an_outside_file_is_not_written() {
    let (story, outside) = story_with_secrets();
    let path = "h-linked";
    let story = story.script([
        calls_all([
            ("write_file", json!({ "path": path, "content": "PWNED" })),
            ("edit_file", json!({ "path": path, "old_text": "plain", "new_text": "PWNED" })),
            ("delete_file", json!({ "path": path })),
        ]),
        says("done"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    assert_eq!(std::fs::read(outside.join("linked")).unwrap(), b"plain\n");
    assert!(story.dir().join(path).exists());
    for result in story.last_request().tool_results() {
        assert!(result.contains("hard links"), "{result}");
    }
}

#[test]
fn secrets_in_a_granted_directory_are_denied_unless_granted_by_name() {
    let (story, _) = story_with_secrets();
    let calls = || {
        calls_all([
            ("read_file", json!({ "path": "~/.ssh/id_rsa" })),
            ("list_dir", json!({ "path": "~", "recursive": true })),
            ("glob", json!({ "pattern": "~/**/*", "all": true })),
            ("grep", json!({ "pattern": CANARY, "path": "~", "all": true })),
            ("write_file", json!({ "path": "~/.ssh/new", "content": "x" })),
        ])
    };
    let home = story.home();
    let home = home.to_str().unwrap();
    let story = story.script([calls(), says("done"), calls(), says("done")]);
    let write_home = format!("--write={home}");
    let run_result = story.run(["agent", "-m", "x", &write_home, "--ephemeral"]).stdout("done\n");
    assert!(run_result.error_text().contains("--read $HOME/.ssh"));
    for result in story.last_request().tool_results() {
        let has_leaked =
            result.contains(CANARY) || result.contains(CANARY_NAME) || result.contains("id_rsa  ");
        assert!(!has_leaked, "{result}");
    }
    assert!(!story.home().join(".ssh/new").exists());
    let read_ssh = format!("{home}/.ssh");
    let arguments = ["agent", "-m", "x", &write_home, "--read", &read_ssh, "--ephemeral"];
    let run_result = story.run(arguments).stdout("done\n");
    assert!(run_result.error_text().contains("denied: "));
    let results = story.last_request().tool_results();
    assert!(results[0].contains(CANARY), "{}", results[0]);
    assert!(results[1].contains(CANARY_NAME), "{}", results[1]);
    assert!(results[4].contains("is read-only"), "{}", results[4]);
}

#[test]
fn a_single_file_can_be_granted() {
    let (story, outside) = story_with_secrets();
    let secret = outside.join("secret");
    let secret = secret.to_str().unwrap();
    let linked = outside.join("new-one");
    write(&linked, b"old");
    let linked = linked.to_str().unwrap();
    let story = story.script([
        calls_all([
            ("read_file", json!({ "path": secret })),
            ("grep", json!({ "pattern": "outside", "path": secret })),
            ("write_file", json!({ "path": linked, "content": "new" })),
            ("write_file", json!({ "path": secret, "content": "x" })),
            ("read_file", json!({ "path": format!("{}/{CANARY_NAME}", outside.display()) })),
            ("list_dir", json!({ "path": outside.to_str().unwrap() })),
        ]),
        says("done"),
    ]);
    let run_result =
        story.run(["agent", "-m", "x", "--read", secret, &format!("--write={linked}")]);
    assert!(run_result.error_text().contains("denied: "));
    run_result.stdout("done\n");
    let results = story.last_request().tool_results();
    assert!(results[0].contains(CANARY) && results[1].contains(CANARY), "{results:?}");
    assert!(results[2].starts_with("replaced"), "{}", results[2]);
    assert_eq!(std::fs::read(linked).unwrap(), b"new");
    for result in &results[3..] {
        assert!(
            !result.contains(CANARY) && !result.contains(CANARY_NAME) || result.contains("--read"),
            "{result}"
        );
    }
    assert!(std::fs::read_to_string(secret).unwrap().contains(CANARY));
}

#[test]
fn special_files_neither_hang_nor_fail() {
    let story = Story::new();
    let dir = story.dir();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("fifo"), mode).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    symlink("/dev/zero", dir.join("zero")).unwrap();
    symlink("/dev/tty", dir.join("tty")).unwrap();
    std::fs::create_dir(dir.join("folder")).unwrap();
    /// A name, the content of the file, and its content after an edit.
    type SpecialFile = (&'static str, &'static [u8], Option<&'static [u8]>);
    let fixtures: [SpecialFile; 11] = [
        ("plain", b"a old b\n", Some(b"a new b\n")),
        ("crlf", b"a\r\nold\r\nb\r\n", Some(b"a\r\nnew\r\nb\r\n")),
        ("mixed", b"a\nold\r\nb", Some(b"a\nnew\r\nb")),
        ("cr", b"a\rold\rb", Some(b"a\rnew\rb")),
        ("nul", b"a\0old\0b", Some(b"a\0new\0b")),
        ("bom", b"\xef\xbb\xbfold\n", Some(b"\xef\xbb\xbfnew\n")),
        ("latin", b"caf\xe9 old", Some(b"caf\xe9 new")),
        ("torn", b"old \xe2\x82", Some(b"new \xe2\x82")),
        ("wide", b"\xff\xfeo\0l\0d\0", Some(b"\xff\xfen\0e\0w\0")),
        ("empty", b"", None),
        ("twice", b"old old", None),
    ];
    for (name, bytes, _) in fixtures {
        write(&dir.join(name), bytes);
    }
    write(&dir.join("locked"), b"old");
    std::fs::set_permissions(dir.join("locked"), std::fs::Permissions::from_mode(0o444)).unwrap();
    let huge = std::fs::File::create(dir.join("huge")).unwrap();
    huge.set_len(2 << 30).unwrap();
    let edit = |name: &'static str| {
        ("edit_file", json!({ "path": name, "old_text": "old", "new_text": "new" }))
    };
    let odd = ["fifo", "socket", "folder", "huge"];
    let devices = ["zero", "tty"];
    let mut list: Vec<(&str, Value)> = fixtures.iter().map(|(name, ..)| edit(name)).collect();
    for name in odd {
        list.push(edit(name));
        list.push(("read_file", json!({ "path": name })));
        list.push(("write_file", json!({ "path": name, "content": "x" })));
    }
    // Devices belong to the machine; they are at most read.
    for name in devices {
        list.push(("read_file", json!({ "path": name })));
    }
    list.push(edit("locked"));
    list.push(("delete_file", json!({ "path": "locked" })));
    list.push(("delete_file", json!({ "path": "fifo" })));
    list.push(("grep", json!({ "pattern": "never there", "all": true })));
    list.push(("glob", json!({ "pattern": "*" })));
    let count = list.len();
    let story = story.script([calls_all(list), says("done")]);
    let run_result = story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    assert!(run_result.error_text().contains("denied: "), "the devices are elsewhere");
    for (name, before, after) in fixtures {
        let now = std::fs::read(dir.join(name)).unwrap();
        assert_eq!(now, after.unwrap_or(before), "{name}");
    }
    let results = story.last_request().tool_results();
    assert_eq!(results.len(), count);
    let odd_ones = &results[fixtures.len()..fixtures.len() + 3 * odd.len()];
    for result in &results[fixtures.len() + 3 * odd.len()..][..devices.len()] {
        assert!(result.contains("outside the paths"), "{result}");
    }
    for result in odd_ones {
        assert!(!result.starts_with("edited") && !result.starts_with("replaced"), "{result}");
    }
    assert!(odd_ones[0].contains("is not a regular file"), "{}", odd_ones[0]);
    assert!(odd_ones[2].contains("cannot be written: not a regular file"), "{}", odd_ones[2]);
    assert!(results[count - 5].contains("read-only (mode 444)"), "{}", results[count - 5]);
    assert_eq!(std::fs::read(dir.join("locked")).unwrap(), b"old");
    assert_eq!(std::fs::metadata(dir.join("huge")).unwrap().len(), 2 << 30);
    drop(socket);
}

/// The path of the kept output that a result names.
pub(crate) fn kept_path(result: &str) -> String {
    let (_, rest) = result.split_once("the whole output is in `").unwrap();
    rest.split_once('`').unwrap().0.to_owned()
}

#[test]
fn the_whole_of_a_long_output_can_be_searched_during_the_run() {
    let key = format!("sk-ant-api03-{}", "aB3dE5gH7j".repeat(9));
    let on_path = |name: &'static str, arguments: Value| -> Responder {
        Box::new(move |request: &Request| {
            let results = request.messages();
            let first = results.iter().find(|message| message["role"] == "tool");
            let path = kept_path(first.unwrap()["content"].as_str().unwrap());
            let mut arguments = arguments.clone();
            arguments["path"] = path.into();
            calls(name, arguments)(request)
        })
    };
    let story = Story::new().script([
        calls("exec", json!({ "command": format!("seq 1 20000; echo {key}; seq 20001 40000") })),
        on_path("grep", json!({ "pattern": "^2500[01]$|sk-" })),
        on_path("read_file", json!({ "offset": 15000, "limit": 2 })),
        on_path("write_file", json!({ "content": "x" })),
        calls("exec", json!({ "command": "seq 1 50000; ls -d /tmp/nanobot-run-*/output*" })),
        says("done"),
    ]);
    story.run(["agent", "-m", "x"]).stdout("done\n").stderr_has("denied: write_file: ");
    let outputs = story.last_request().tool_results();
    assert!(
        outputs[0].starts_with("1\n2\n") && outputs[0].trim_end().ends_with("\n40000"),
        "{}",
        outputs[0]
    );
    assert!(
        outputs[1].contains("25001: 25000\n25002: 25001") && !outputs[1].contains(&key),
        "{}",
        outputs[1]
    );
    assert!(outputs[2].contains("15000") && outputs[2].contains("15001"), "{}", outputs[2]);
    assert!(outputs[3].contains("is outside the paths of this run"), "{}", outputs[3]);
    // A command cannot reach the files, and the next long output has a file of its own.
    assert!(outputs[4].contains("No such file"), "{}", outputs[4]);
    assert_ne!(kept_path(&outputs[0]), kept_path(&outputs[4]));
    assert!(!Path::new(&kept_path(&outputs[0])).parent().unwrap().exists());
}

#[test]
fn a_file_changed_by_a_command_is_read_again() {
    let edit = |old: &str, new: &str| {
        calls("edit_file", json!({ "path": "a", "old_text": old, "new_text": new }))
    };
    let story = Story::new().file("a", "one two\n").script([
        calls("read_file", json!({ "path": "a" })),
        edit("one", "1"),
        calls("exec", json!({ "command": "echo three >> a" })),
        edit("two", "2"),
        calls("read_file", json!({ "path": "a" })),
        edit("two", "2"),
        says("done"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    let results = story.last_request().tool_results();
    assert!(results[1].starts_with("edited"), "{}", results[1]);
    assert!(results[3].contains("was changed by a command or another process"), "{}", results[3]);
    assert!(results[3].contains("read it again with read_file"), "{}", results[3]);
    assert!(results[5].starts_with("edited"), "{}", results[5]);
    assert_eq!(std::fs::read_to_string(story.dir().join("a")).unwrap(), "1 2\nthree\n");
}

/// Models fill arguments that they do not mean with zero or an empty text.
#[test]
fn zero_and_an_empty_path_count_as_not_given() {
    let story = Story::new().file("a.txt", "one\ntwo\n");
    story.server().script([
        calls("read_file", json!({ "path": "a.txt", "offset": 0, "limit": 0 })),
        calls("list_dir", json!({ "path": "", "max_entries": 0 })),
        calls("exec", json!({ "command": "echo done", "working_dir": "", "timeout": 0 })),
        calls("write_file", json!({ "path": "", "content": "" })),
        calls("delete_file", json!({ "path": "" })),
        says("ok"),
    ]);
    story.run(["agent", "--write", "-m", "x"]).stdout("ok\n");
    let results = story.last_request().tool_results();
    for (result, expect) in
        results.iter().zip(["two", "a.txt", "done", "the path is empty", "the path is empty"])
    {
        assert!(result.contains(expect), "{results:?}");
    }
    assert_eq!(results.len(), 5);
}

#[test]
fn the_todo_tool_stores_and_returns_the_task_list() {
    let entry = |content: &str, status: &str| json!({ "content": content, "status": status });
    let story = Story::new().script([
        calls("todo", json!({ "todos": [entry("look", "in_progress"), entry("tell", "pending")] })),
        calls("todo", json!({})),
        says("done"),
    ]);
    story.run(["agent", "-m", "x"]).stdout("done\n");
    assert_eq!(story.last_request().tool_results(), ["[>] look\n[ ] tell"; 2]);
}

/// The file tools on a directory while another thread swaps its entries.
struct RaceFixture {
    _temp: tempfile::TempDir,
    dir: PathBuf,
    outside: PathBuf,
    outside_snapshot: PathBuf,
    tools: Vec<Arc<dyn Tool>>,
}

impl RaceFixture {
    fn new(steps: bool) -> Self {
        let temp = tempfile::tempdir_in(memory_dir()).unwrap();
        let top = std::fs::canonicalize(temp.path()).unwrap();
        let (dir, outside, outside_snapshot) =
            (top.join("in"), top.join("outside"), top.join("kept"));
        write(&dir.join("real/x"), b"inside old\n");
        write(&dir.join("file"), b"inside old\n");
        write(&outside.join("x"), format!("{CANARY} old\n").as_bytes());
        write(&outside.join(CANARY_NAME), format!("{CANARY} old\n").as_bytes());
        let root = ScopeRoot { path: dir.clone(), may_write: true };
        let files = Files::new(FileScope {
            directory: dir.clone(),
            home: top,
            roots: vec![root],
            ..FileScope::default()
        });
        let files = files.unwrap();
        let files = Arc::new(if steps { files.without_openat2() } else { files });
        files.record_changes(ChangeRecorder::new(
            UndoStore::new(outside_snapshot.clone(), Age::Never),
            Deferred::default(),
            Deferred::default(),
        ));
        let tools: Vec<Arc<dyn Tool>> = vec![
            Arc::new(read_file::tool(Arc::clone(&files), None, Box::new(|_| unreachable!()))),
            Arc::new(write_file::tool(Arc::clone(&files))),
            Arc::new(edit_file::tool(Arc::clone(&files))),
            Arc::new(delete_file::tool(Arc::clone(&files))),
            Arc::new(list_dir::tool(Arc::clone(&files))),
            Arc::new(glob::tool(Arc::clone(&files))),
            Arc::new(grep::tool(files)),
        ];
        Self { _temp: temp, dir, outside, outside_snapshot, tools }
    }

    /// Swaps a directory, a link and a file until `stop` is set.
    fn swap_entries(&self, stop: &AtomicBool) {
        let at = |name: &str| self.dir.join(name);
        let (real, spot, aside, file) = (at("real"), at("spot"), at("aside"), at("file"));
        while !stop.load(Ordering::Relaxed) {
            drop(std::fs::rename(&real, &spot));
            // A directory that a tool created meanwhile is removed.
            if std::fs::rename(&spot, &real).is_err() {
                drop(std::fs::remove_dir_all(&real));
                drop(std::fs::rename(&spot, &real));
            }
            write(&real.join("x"), b"inside old\n");
            drop(symlink(&self.outside, &aside));
            if std::fs::rename(&aside, &spot).is_err() {
                drop(std::fs::remove_dir_all(&spot));
                drop(std::fs::rename(&aside, &spot));
            }
            drop(std::fs::remove_file(&spot));
            drop(symlink(self.outside.join("x"), &aside));
            drop(std::fs::rename(&aside, &file));
            write(&at("other"), b"inside old\n");
            drop(std::fs::rename(at("other"), &file));
        }
    }
}

/// A directory in memory, if available: these tests do not depend on a disk, which would be slow.
fn memory_dir() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let is_ours = tempfile::tempdir_in(&memory).is_ok();
    if is_ours { memory } else { std::env::temp_dir() }
}

/// Swaps entries for this time; no tool call may leave the directory meanwhile.
#[allow(clippy::print_stdout, reason = "the count is to be seen")]
fn check_races(time: Duration) {
    for steps in [false, true] {
        let siege = RaceFixture::new(steps);
        let before = snapshot_tree(&siege.outside);
        let stop = AtomicBool::new(false);
        let (mut tried, mut done) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| siege.swap_entries(&stop));
            let end = Instant::now() + time / 2;
            while Instant::now() < end {
                for path in ["spot/x", "file", "spot/new/deep"] {
                    for tool in &siege.tools {
                        let ToolSpec { name, .. } = tool.spec();
                        let arguments = match name.as_str() {
                            "write_file" => json!({ "path": path, "content": "inside old\n" }),
                            "edit_file" => {
                                json!({ "path": path, "old_text": "old", "new_text": "old, new" })
                            }
                            "list_dir" => json!({ "path": "spot" }),
                            "glob" => json!({ "pattern": "**" }),
                            "grep" => json!({ "pattern": "old" }),
                            _ => json!({ "path": path }),
                        };
                        tried += 1;
                        if let Ok(output) = run_alone(tool.as_ref(), &arguments) {
                            done += 1;
                            let text = plain_text(&output.parts);
                            let has_leaked = text.contains(CANARY) || text.contains(CANARY_NAME);
                            if has_leaked {
                                stop.store(true, Ordering::Relaxed);
                            }
                            assert!(!has_leaked, "{name} {path}: {text}");
                        }
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        println!(
            "steps: {steps}; {tried} calls while links were swapped, {done} of them done: 0 outside"
        );
        assert!(done > 0 && done < tried, "{done} of {tried}");
        assert_eq!(snapshot_tree(&siege.outside), before);
        for (path, (_, bytes)) in snapshot_tree(&siege.outside_snapshot) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(!text.contains(CANARY), "{path:?} was kept aside");
        }
    }
}

#[test]
fn swapped_links_never_escape() {
    check_races(Duration::from_secs(2));
}

/// `cargo test --features test-hooks --test cli swapped_links_never_escape_for_two_minutes -- --ignored --nocapture`: takes
/// one minute for each way of opening files.
#[test]
#[ignore = "takes minutes"]
fn swapped_links_never_escape_for_two_minutes() {
    check_races(Duration::from_secs(120));
}

/// Writes the archive `name` with Python's own `zipfile`. `files` are names and contents.
pub(crate) fn write_zip(story: &Story, name: &str, files: &[(&str, &str)]) {
    let script = "import json, sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as archive:\n\
        \x20   for name, text in json.loads(sys.argv[2]):\n\
        \x20       archive.writestr(name, text)\n";
    let mut command = story.program("python3");
    command.args(["-c", script, name, &json!(files).to_string()]);
    assert!(command.status().unwrap().success());
}

#[test]
fn documents_are_read_as_text() {
    if !require("python3") {
        return;
    }
    let story = Story::new();
    let row = |text: &str| format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>");
    let word = format!("<w:document>{}{}</w:document>", row("Dear all,"), row("1 &lt; 2"));
    write_zip(&story, "letter.docx", &[("word/document.xml", &word)]);
    let sheet =
        "<worksheet><row><c r=\"A1\"><v>milk</v></c><c r=\"C1\"><v>3</v></c></row></worksheet>";
    let names = "<workbook><sheet name=\"Shop\" r:id=\"r1\"/></workbook>";
    let files = [("xl/workbook.xml", names), ("xl/worksheets/sheet1.xml", sheet)];
    write_zip(&story, "list.xlsx", &files);
    write_zip(&story, "other.zip", &[("a", "b")]);
    write_zip(&story, "broken.docx", &[("word/document.xml", "<w:p><w:t>x</w:q>")]);
    let read = |name: &str| {
        let arguments = json!({ "path": name }).to_string();
        story.run(["tool", "run", "read_file", &arguments])
    };
    let note = "(text of a document; it cannot be edited with edit_file)\n";
    read("letter.docx").stdout(&format!("1| Dear all,\n2| 1 < 2\n{note}"));
    read("list.xlsx").stdout(&format!("1| ## Shop\n2| milk\t\t3\n3| \n{note}"));
    read("other.zip").status(1).stderr_has("is a binary file");
    read("broken.docx").status(1).stderr_has("cannot be read: its XML is damaged");
    let page = json!({ "path": "letter.docx", "offset": 2 }).to_string();
    story
        .run(["tool", "run", "read_file", &page])
        .stdout(&format!("2| 1 < 2\n(lines 2 to 2 of 2)\n{note}"));
    // Attached, they are text as well.
    story.server().script([says("ok")]);
    story.run(["agent", "-m", "x", "-a", "letter.docx"]).stdout("ok\n");
    let content = story.requests()[0].last_content();
    assert!(
        content.contains("<file name=\"letter.docx\">\nDear all,\n1 < 2\n</file>"),
        "{content}"
    );
}

#[test]
fn a_pdf_is_read_as_text() {
    let story = Story::new().file("a.pdf", "%PDF-1.4\nwhatever");
    let program = story.home().join("bin/pdftotext");
    crate::story::write_program(&program, "#!/bin/sh\necho one; echo two\n");
    let path = format!("{}:/usr/bin:/bin", story.home().join("bin").display());
    let story = story.env("PATH", &path);
    let read = ["tool", "run", "read_file", r#"{"path": "a.pdf", "offset": 2}"#];
    story.run(read).stdout(
        "2| two\n(lines 2 to 2 of 2)\n(text of a document; it cannot be edited with edit_file)\n",
    );
    let story = story.env("PATH", "/nowhere");
    story.run(read).status(1).stderr_has("install poppler-utils");
}

#[test]
fn hidden_entries_of_a_home_stay_closed_unless_they_are_named() {
    let story = Story::new();
    let home = story.home();
    write(&home.join(".config/tool/token"), b"pelican");
    write(&home.join(".newtool"), b"pelican");
    write(&home.join("letters/plan.md"), b"the plan");
    let script = || {
        [
            calls("read_file", json!({ "path": "~/.config/tool/token" })),
            calls("grep", json!({ "pattern": "pelican", "path": "~" })),
            calls(
                "exec",
                json!({ "command": "cat ~/.newtool ~/.config/tool/token ~/letters/plan.md; ls -A ~" }),
            ),
            calls("read_file", json!({ "path": "~/letters/plan.md" })),
            says("done"),
        ]
    };
    story.server().script(script());
    let result = story.run(["agent", "-m", "x", "--read", home.to_str().unwrap()]);
    result.stdout("done\n").stderr_has("--read");
    let last = story.last_request();
    assert!(!last.raw.contains("pelican\\n") && last.raw.contains("the plan"), "{}", last.raw);
    assert_eq!(last.raw.matches("no matches found").count(), 1, "{}", last.raw);
    // Named, they are open.
    story.server().script([
        calls("read_file", json!({ "path": "~/.config/tool/token" })),
        calls("exec", json!({ "command": "cat ~/.config/tool/token" })),
        says("done"),
    ]);
    let (all, tool) = (home.display().to_string(), home.join(".config/tool"));
    let flags = ["--new", "--strict", "--read", &all, "--read", tool.to_str().unwrap()];
    story.run([&["agent", "-m", "x"], &flags[..]].concat()).stdout("done\n");
    let requests = story.requests();
    let last = requests.last().unwrap();
    assert_eq!(last.raw.matches("pelican").count(), 2, "{}", last.raw);
}

#[test]
fn project_files_that_tools_read_are_written_on_request_but_not_after_content_from_outside() {
    let names = [".vscode/tasks.json", "web/.Envrc", "rust-toolchain.toml"];
    let edits = || names.map(|name| calls("write_file", json!({ "path": name, "content": "new" })));
    let story = Story::new().file("plan.md", "the plan");
    story.server().script([calls("read_file", json!({ "path": "plan.md" }))]);
    story.server().script(edits());
    story.server().script([says("done")]);
    story
        .run(["agent", "-m", "x", "--write", "--strict"])
        .stdout("done\n")
        .stderr_has("read on their own: `.vscode/tasks.json`");
    for name in names {
        assert_eq!(std::fs::read(story.dir().join(name)).unwrap(), b"new");
    }
    let pages = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    let fetches = || [calls("web_fetch", json!({ "url": pages.url("/") }))];
    story.server().script(fetches());
    story.server().script(edits());
    story.server().script([says("done")]);
    let result = story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    assert_eq!(result.error_text().matches("--allow startup").count(), 3);
    drop(result);
    assert!(names.iter().all(|name| !story.dir().join(name).exists()));
}
