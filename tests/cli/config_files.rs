//! The config in two files: keys that the Python program would refuse or drop are in `nanobot.json` beside `config.json`.

use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::requirements::require_root;
use crate::screen::Key;
use crate::server::{calls, calls_all, says};
use crate::story::{Story, write, write_program};
use nanobot_config::settings::key_type::KeyType;
use nanobot_config::settings::keys::{KEYS, KeySupport};
use nanobot_config::settings::own_keys::KeyHome;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn shared_file(story: &Story) -> PathBuf {
    story.home().join(".nanobot/config.json")
}

fn own_file(story: &Story) -> PathBuf {
    story.home().join(".nanobot/nanobot.json")
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// The outcomes of reading and saving each key with two releases of the Python program, from `tests/oracle/config-keys.py`.
fn outcomes() -> Value {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/config-keys.json"))
}

#[test]
fn each_key_belongs_to_the_file_in_which_the_python_program_leaves_it() {
    let outcomes = outcomes();
    for key in KEYS {
        let outcome = outcomes[key.path].as_array();
        let outcome =
            outcome.unwrap_or_else(|| panic!("tests/oracle/config-keys.py has no {}", key.path));
        let outcome: Vec<&str> = outcome.iter().filter_map(Value::as_str).collect();
        let expect = match outcome[..] {
            ["refused", "kept"] => KeyHome::LaterRelease,
            ["kept", _] | [_, "kept"] => KeyHome::Shared,
            _ if [KeySupport::Ignored, KeySupport::Later].contains(&key.support) => continue,
            _ => KeyHome::Own,
        };
        let path: Vec<&str> = key.path.split('.').collect();
        assert_eq!(KeyHome::find(&path), expect, "{}: {outcome:?}", key.path);
    }
}

/// No `config set` puts a key that a release refuses, or that both drop, into the file that they read.
#[test]
fn both_releases_read_the_file_after_every_config_set() {
    let outcomes = outcomes();
    let story = Story::new();
    let before = read(&shared_file(&story));
    let mut count = 0;
    for key in KEYS {
        let path: Vec<&str> = key.path.split('.').collect();
        if outcomes[key.path][0] != "refused" && KeyHome::find(&path) != KeyHome::Own {
            continue;
        }
        let typed = match key.kind {
            KeyType::Bool => "true".to_owned(),
            KeyType::Whole(minimum, _) => (minimum + 1).to_string(),
            KeyType::Number(..) => "1".to_owned(),
            KeyType::OneOf(names) => names[names.len() - 1].to_owned(),
            KeyType::Age => "12h".to_owned(),
            KeyType::TextList if key.path.ends_with("y") || key.path.ends_with("w") => {
                r#"["exec"]"#.to_owned()
            }
            KeyType::TextList | KeyType::List => "[]".to_owned(),
            KeyType::Map | KeyType::SecretMap => r#"{"exec": "never"}"#.to_owned(),
            KeyType::Any | KeyType::Object | KeyType::Verbatim => "{}".to_owned(),
            _ if key.path.ends_with("profile") => "plan".to_owned(),
            _ if key.path == "notify.target" => "mail".to_owned(),
            _ if key.path == "cron.ping" => "https://hc.example/{job}".to_owned(),
            _ if key.path == "telemetry.otlp" => "~/spans.jsonl".to_owned(),
            _ if key.path.starts_with("agents.defaults.promptFiles") => {
                write(&story.home().join("prompt"), b"Be brief.");
                "~/prompt".to_owned()
            }
            _ => "text".to_owned(),
        };
        let name = key.path.replace("providers.*", "providers.custom").replace('*', "name");
        let child = story.start(&mut story.command(["config", "set", &name, &typed]));
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {typed}: {errors}");
        assert_eq!(read(&shared_file(&story)), before, "{name}");
        let own = read(&own_file(&story));
        let stored_value = name.split('.').try_fold(&own, |value, name| value.get(name));
        assert!(stored_value.is_some_and(|value| !value.is_null()), "{name}: {own}");
        count += 1;
    }
    assert!(count > 50, "{count}");
    let mode = own_file(&story).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn our_file_is_layered_over_the_other() {
    let story = Story::new()
        .set("budget", json!({ "daily": 3, "monthly": 90 }))
        .set("tools", json!({ "deny": ["web_fetch"], "permissions": { "grep": "never" } }));
    let own = json!({
        "budget": { "daily": 5, "monthly": 60 },
        "tools": { "deny": ["web_search"], "permissions": { "grep": "always", "glob": "always" } },
        "agents": { "defaults": { "maxToolIterations": 7 } },
    });
    write(&own_file(&story), own.to_string().as_bytes());
    let check = |key: &str, expect: &str| {
        let stdout = story.run(["config", "get", key, "--origin"]).text();
        let origin_text = stdout.replace("$HOME/.nanobot/", "");
        let (value, origin) = origin_text.trim_end().split_once('\t').unwrap();
        let file_of = |file_of: &str| file_of.split(':').next().unwrap_or_default().to_owned();
        let files: Vec<String> = origin.split(" and ").map(file_of).collect();
        assert_eq!(format!("{value} {}", files.join(" ")), expect, "{key}");
    };
    check("budget.daily", "3 file config.json");
    check("budget.monthly", "60 file nanobot.json");
    check("tools.deny", r#"["web_search","web_fetch"] file config.json nanobot.json"#);
    check("tools.permissions.grep", "never file config.json");
    check("tools.permissions.glob", "always file nanobot.json");
    check("agents.defaults.maxToolIterations", "7 file nanobot.json");
    story.run(["config", "list", "--origin"]).stdout_has("nanobot.json:1:");
    story.run(["config", "path", "budget.daily"]).stdout("$HOME/.nanobot/nanobot.json\n");
    story.run(["config", "path", "agents.defaults.model"]).stdout("$HOME/.nanobot/config.json\n");
    // What is set again holds, and stands in one place or has one value.
    story.run(["config", "set", "budget.daily", "9"]);
    check("budget.daily", "9.0 file nanobot.json");
    story.run(["config", "set", "agents.defaults.maxToolIterations", "8"]);
    check("agents.defaults.maxToolIterations", "8 file nanobot.json");
    assert_eq!(read(&shared_file(&story))["agents"]["defaults"]["maxToolIterations"], 8);
    story.run(["config", "unset", "tools.deny"]);
    assert_eq!(story.config_value()["tools"]["deny"], Value::Null);
    write(&own_file(&story), b"{ \"budget\": }");
    story.run(["agent", "-m", "x"]).status(78).stderr_has("nanobot.json:1:13");
}

/// A crash in between leaves each key in one of the files at least, with its value.
#[test]
fn keys_move_to_our_file_without_loss() {
    let fill = || {
        let story = Story::new().set("budget", json!({ "daily": 3, "monthly": 90 }));
        story.set("tools", json!({ "read": ["/opt"], "exec": { "timeout": 7 } }))
    };
    let story = fill();
    let expect = story.config_value();
    story.run(["config", "check", "--strict"]).stdout_has(
        "or drops them: `budget.daily`, `budget.monthly`, `tools.read`; `nanobot config check --fix` moves them to",
    );
    let moved = "nanobot: moved to ~/.nanobot/nanobot.json: `budget.daily`, `budget.monthly`, `tools.read`\n";
    story.run(["config", "check", "--fix"]).stderr(moved).stdout_has("no problems found");
    assert_eq!(story.config_value(), expect);
    let shared = read(&shared_file(&story));
    assert!(
        shared.get("budget").is_none() && shared["tools"] == json!({ "exec": { "timeout": 7 } })
    );
    story.run(["config", "check", "--fix"]).stdout_has("no problems found");
    if !can_inject() {
        return;
    }
    for kind in ["rename", "write", "fsync"] {
        inject_at_calls(|n| {
            let story = fill();
            let expect = story.config_value();
            let arguments = ["config", "check", "--fix"];
            let (result, injected) = run_with_fault(&story, &arguments, &[], (kind, "SIGKILL", n));
            drop((result.signal(), result.error_text(), result.text()));
            assert_eq!(story.config_value(), expect, "{kind} {n}");
            injected
        });
    }
}

#[test]
fn the_file_of_another_config_is_beside_it_and_closed() {
    let story = Story::new();
    std::fs::copy(shared_file(&story), story.dir().join("x.json")).unwrap();
    story.run(["-c", "x.json", "config", "set", "tools.read", r#"["/canary-place"]"#]);
    let own = story.dir().join("x.nanobot.json");
    assert_eq!(read(&own), json!({ "tools": { "read": ["/canary-place"] } }));
    assert!(!own_file(&story).exists());
    story.run(["-c", "x.json", "config", "get", "tools.read"]).stdout("[\"/canary-place\"]\n");
    let attacks = || {
        calls_all([
            (
                "exec",
                json!({ "command": "cat x.nanobot.json; echo evil > x.nanobot.json; rm -f x.nanobot.json; echo evil > new; mv new x.nanobot.json" }),
            ),
            ("read_file", json!({ "path": "x.nanobot.json" })),
            (
                "write_file",
                json!({ "path": "x.nanobot.json", "content": "{\"tools\":{\"write\":[\"/\"]}}" }),
            ),
        ])
    };
    for is_there in [true, false] {
        let before = std::fs::read(&own).ok();
        assert_eq!(before.is_some(), is_there);
        story.server().script([attacks(), says("done")]);
        let run = ["-c", "x.json", "agent", "-m", "go", "--write", "--ephemeral"];
        let result = story.run(run);
        drop(result.error_text());
        result.stdout("done\n");
        assert!(!story.last_request().raw.contains("canary"));
        assert_eq!(std::fs::read(&own).ok(), before);
        if is_there {
            std::fs::remove_file(&own).unwrap();
        }
    }
}

/// A server that the Python program has removed leaves our keys about it behind, which are no server.
/// A command could put another file in the place of a link that leads to the config.
#[test]
fn links_to_the_config_stay_where_a_run_may_write() {
    for link in ["x.json", "settings"] {
        let story = Story::new();
        let real = story.home().join("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::rename(shared_file(&story), real.join("x.json")).unwrap();
        let (target, config) = match link {
            "settings" => (real.clone(), "settings/x.json"),
            _ => (real.join("x.json"), "x.json"),
        };
        std::os::unix::fs::symlink(&target, story.dir().join(link)).unwrap();
        let script = format!("rm {link}; mkdir -p $(dirname {config}); echo '{{}}' > {config}");
        story.server().script([
            calls_all(vec![
                ("exec", json!({ "command": script })),
                ("exec", json!({ "command": format!("mv {link} moved; ls") })),
                ("delete_file", json!({ "path": link })),
                ("write_file", json!({ "path": config, "content": "{}" })),
            ]),
            says("Done."),
        ]);
        let result = story.run(["agent", "-c", config, "--write", "-m", "x"]);
        let text = result.error_text();
        assert!(!text.contains("can grant it"), "{text}");
        result.stdout("Done.\n");
        assert_eq!(std::fs::read_link(story.dir().join(link)).unwrap(), target, "{link}");
        story.run(["-c", config, "config", "check"]).stdout_has("no problems found");
    }
}

#[test]
fn what_is_left_of_a_removed_server_is_no_server() {
    let story = Story::new();
    write(&own_file(&story), br#"{"tools": {"mcpServers": {"gone": {"read": ["/a"]}}}}"#);
    story.run(["mcp", "list"]);
    story.run(["config", "check"]).stdout_has("no problems found");
}

#[test]
fn an_edit_puts_new_keys_where_they_belong() {
    let story = Story::bare();
    write(&shared_file(&story), b"{\n  \"budget\": { \"monthly\": 90 }\n}\n");
    let editor = story.home().join("editor");
    write_program(
        &editor,
        "#!/bin/sh\nsed -i 's/{ \"monthly\"/{ \"daily\": 5, \"monthly\"/' \"$1\"\n",
    );
    let screen = story.screen(24, 100).env("EDITOR", editor.to_str().unwrap());
    let mut screen = screen.args(["config", "edit"]);
    assert_eq!(screen.code(), 0);
    assert!(
        screen.text().contains("moved to ~/.nanobot/nanobot.json: `budget.daily`"),
        "{}",
        screen.text()
    );
    assert_eq!(read(&own_file(&story)), json!({ "budget": { "daily": 5 } }));
    assert_eq!(read(&shared_file(&story)), json!({ "budget": { "monthly": 90 } }));
}

#[test]
fn an_edit_names_a_new_value_that_does_not_apply() {
    let story = Story::bare();
    write(&shared_file(&story), b"{}");
    write(&own_file(&story), br#"{"http": {"proxy": "http://a:1"}}"#);
    let editor = story.home().join("editor");
    write_program(
        &editor,
        "#!/bin/sh\ngrep -q http \"$1\" || printf '{\"http\": {\"proxy\": \"http://b:2\"}}' > \"$1\"\n",
    );
    let screen = story.screen(24, 160).env("EDITOR", editor.to_str().unwrap());
    let mut screen = screen.args(["config", "edit"]);
    assert_eq!(screen.code(), 0);
    let text = screen.text();
    assert!(text.contains("nanobot.json has another value, which applies: `http.proxy`"), "{text}");
    assert!(text.contains("next: ~/.nanobot/nanobot.json, which has the keys"), "{text}");
    assert_eq!(read(&own_file(&story)), json!({ "http": { "proxy": "http://a:1" } }));
}

#[test]
fn an_edit_of_our_own_file_moves_nothing() {
    let story = Story::bare();
    write(&shared_file(&story), br#"{"budget": {"monthly": 90}}"#);
    write(&own_file(&story), br#"{"budget": {"daily": 5}}"#);
    let editor = story.home().join("editor");
    write_program(&editor, "#!/bin/sh\nsed -i 's/\"daily\": 5/\"daily\": 6/' \"$1\"\n");
    let screen = story.screen(24, 100).env("EDITOR", editor.to_str().unwrap());
    let mut screen = screen.args(["config", "edit"]);
    assert_eq!(screen.code(), 0);
    assert_eq!(read(&shared_file(&story)), json!({ "budget": { "monthly": 90 } }));
    assert_eq!(read(&own_file(&story)), json!({ "budget": { "daily": 6 } }));
}

#[test]
fn an_edit_is_kept_if_the_editor_fails_or_a_signal_ends_the_question() {
    let check = |editor_status: i32, answer: Option<Key>| {
        let story = Story::bare();
        write(&shared_file(&story), b"{}");
        let editor = story.home().join("editor");
        write_program(
            &editor,
            &format!("#!/bin/sh\nprintf '{{mine' > \"$1\"\nexit {editor_status}\n"),
        );
        let screen = story.screen(24, 200).env("EDITOR", editor.to_str().unwrap());
        let mut screen = screen.args(["config", "edit"]);
        if let Some(key) = answer {
            screen.until("[d]iscard it?").press(key);
        }
        screen.exit();
        let text = screen.text();
        let (_, path) =
            text.split_once("config.json was not replaced; the edited text is in ").expect(&text);
        let path = path.lines().next().unwrap().trim();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "{mine");
        assert_eq!(read(&shared_file(&story)), json!({}));
        std::fs::remove_file(path).unwrap();
    };
    check(1, None);
    check(0, Some(Key::Ctrl('c')));
    check(0, Some(Key::Ctrl('d')));
}

#[test]
fn each_message_about_an_edit_names_its_file() {
    let story = Story::bare();
    write(&shared_file(&story), br#"{"agents": {"defaults": {"maxTokens": 9000}}}"#);
    write(&own_file(&story), br#"{"budget": {"daily": 5}}"#);
    let editor = story.home().join("editor");
    write_program(
        &editor,
        "#!/bin/sh\nsed -i -e 's/9000/8000/' -e 's/\"daily\": 5/\"daily\": []/' \"$1\"\n",
    );
    let screen = story.screen(24, 200).env("EDITOR", editor.to_str().unwrap());
    let mut screen = screen.args(["config", "edit"]);
    screen.until("~/.nanobot/nanobot.json is unchanged; [e]dit again").type_("d").press(Key::Enter);
    // The other file was saved, so the config is checked.
    assert_eq!(screen.code(), 0);
    let screen_text = screen.text();
    assert!(screen_text.contains("nanobot: ~/.nanobot/nanobot.json is unchanged"), "{screen_text}");
    assert!(screen_text.contains("no problems found"), "{screen_text}");
    assert_eq!(
        read(&shared_file(&story)),
        json!({ "agents": { "defaults": { "maxTokens": 8000 } } })
    );
    assert_eq!(read(&own_file(&story)), json!({ "budget": { "daily": 5 } }));
}

/// Writes the system-wide config of `story`, which is not in `/etc`.
pub(crate) fn write_system_config(story: &Story, config: &Value) -> PathBuf {
    let path = story.home().join("etc/config.json");
    write(&path, config.to_string().as_bytes());
    path
}

/// A story on a machine with this system-wide config.
pub(crate) fn with_system_config(config: &Value) -> Story {
    let story = Story::new();
    let path = write_system_config(&story, config);
    story.env("NANOBOT_TEST_ETC", path.parent().unwrap().to_str().unwrap())
}

#[test]
fn the_system_wide_config_has_defaults_limits_and_locked_keys() {
    if !require_root("only root's file is read as the system-wide config") {
        return;
    }
    let story = with_system_config(&json!({
        "locked": ["agents.defaults.model", "tools.allow", "tools.sandbox"],
        "agents": { "defaults": { "model": "the-model", "maxTokens": 77, "temperature": 0.7 } },
        "tools": { "deny": ["glob"] },
        "budget": { "daily": 3 },
    }))
    .set("agents.defaults.temperature", json!(0.2))
    .set("tools", json!({ "allow": ["exec", "glob"], "deny": ["grep"] }))
    .set("budget", json!({ "daily": 9 }))
    .env("NANOBOT_AGENTS__DEFAULTS__MODEL", "of-the-variable")
    .env("NANOBOT_TOOLS__DENY", "web_fetch")
    .env("NANOBOT_BUDGET__MONTHLY", "4")
    .script((0..2).map(|_| says("ok")));
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    story.run(["agent", "--deny", "exec", "--max-tokens", "5", "-m", "x"]).stdout("ok\n");
    let requests = story.requests();
    let [first, second] = &requests[..] else { panic!("{} requests", requests.len()) };
    assert_eq!(first.body["model"], "the-model");
    assert_eq!(
        (&first.body["max_tokens"], &second.body["max_tokens"], &first.body["temperature"]),
        (&json!(77), &json!(5), &json!(0.2))
    );
    let offers =
        |tool: &str| first.body["tools"].to_string().contains(&format!("\"name\":\"{tool}\""));
    assert!(offers("grep") && !offers("glob") && !offers("web_fetch"), "{}", first.raw);
    for (flag, key) in [
        ("--model=m", "agents.defaults.model"),
        ("--allow=exec", "tools.allow"),
        ("--sandbox=off", "tools.sandbox"),
        ("--profile=full", "tools.sandbox"),
    ] {
        let name = flag.split('=').next().unwrap();
        story.run(["agent", flag, "-m", "x"]).status(77).stderr_has(&format!(
            "nanobot: `{name}`: `{key}` is locked by $HOME/etc/config.json:1:"
        ));
    }
    for (key, expect) in [
        ("agents.defaults.model", "the-model\tlocked by $HOME/etc/config.json:1:"),
        ("tools.allow", "[]\tlocked by $HOME/etc/config.json:1:11"),
        ("agents.defaults.maxTokens", "77\tfile $HOME/etc/config.json:1:"),
        ("agents.defaults.temperature", "0.2\tfile $HOME/.nanobot/config.json:1:"),
        ("budget.daily", "3\tfile $HOME/etc/config.json:1:"),
        ("budget.monthly", "4\tvariable NANOBOT_BUDGET__MONTHLY"),
        ("tools.deny", "[\"web_fetch\",\"glob\"]\tvariable NANOBOT_TOOLS__DENY"),
    ] {
        let text = story.run(["config", "get", key, "--origin"]).text();
        assert!(text.replace(".0\t", "\t").starts_with(expect), "{text}");
    }
    let text = story.run(["config", "check"]).text();
    assert_eq!(text.matches("`agents.defaults.model` has no effect: ").count(), 2, "{text}");
    assert!(
        text.contains(
            "note: NANOBOT_AGENTS__DEFAULTS__MODEL: `agents.defaults.model` has no effect"
        ),
        "{text}"
    );
    story
        .run(["config", "set", "agents.defaults.model", "m"])
        .status(77)
        .stderr_has("`agents.defaults.model` is locked by $HOME/etc/config.json:1:");
    story.run(["config", "set", "agents.defaults.temperature", "0.3"]);
    story.run(["config", "unset", "agents.defaults.model"]);
    // Runs cannot read the file, which may have keys of providers.
    story.server().script([
        calls("read_file", json!({ "path": story.home().join("etc/config.json") })),
        says("ok"),
    ]);
    let result = story.run(["agent", "--read", story.home().to_str().unwrap(), "-m", "x"]);
    result.stdout("ok\n").stderr_has("config.json` is internal to nanobot");
    assert!(!story.last_request().last_content().contains("the-model"));
}

#[test]
fn a_system_wide_config_that_cannot_be_trusted_is_refused() {
    if !require_root("only root's file is read as the system-wide config") {
        return;
    }
    let story = with_system_config(&json!({}));
    let path = story.home().join("etc/config.json");
    let check = |expect: &str| story.run(["agent", "-m", "x"]).status(78).stderr_has(expect);
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    story.server().script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    set_mode(&path, 0o664);
    check(
        "nanobot: `$HOME/etc/config.json` can be changed by other users than root, so it is not used\n  try: `sudo chown root $HOME/etc/config.json && ",
    );
    set_mode(&path, 0o644);
    set_mode(path.parent().unwrap(), 0o777);
    check("nanobot: `$HOME/etc` can be changed by other users than root");
    set_mode(path.parent().unwrap(), 0o755);
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    check("nanobot: `$HOME/etc/config.json` can be changed by other users");
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    for (config, expect) in [
        (
            json!({ "tools": { "allow": ["exec"] } }),
            "`tools.allow`: a system-wide config cannot grant anything",
        ),
        (
            json!({ "locked": ["agents.defaults.modle"] }),
            "there is no key `agents.defaults.modle`; did you mean `agents.defaults.model`?",
        ),
        (json!({ "budegt": { "daily": 1 } }), "unknown key `budegt`; did you mean `budget`?"),
        (json!({ "lockd": ["tools.net"] }), "unknown key `lockd`; did you mean `locked`?"),
        (
            json!({ "agents": { "defaults": { "profile": "accept-edits" } } }),
            "`agents.defaults.profile`: a system-wide config cannot grant anything",
        ),
        (
            json!({ "locked": ["providers.custom.maxConcurrent"], "providers": { "custom": { "maxConcurrent": 0 } } }),
            "`providers.custom.maxConcurrent` is 0, expected an integer from 1 to 10000",
        ),
    ] {
        write_system_config(&story, &config);
        check(expect);
    }
}

#[test]
fn a_variable_names_the_config_file() {
    let story = Story::new().script([says("ok")]);
    let named = story.home().join("named.json");
    std::fs::rename(shared_file(&story), &named).unwrap();
    let story = story.env("NANOBOT_CONFIG", "~/named.json");
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    story.run(["config", "path"]).stdout("$HOME/named.json\n");
    story.run(["config", "path", "-c", "other.json"]).stdout("other.json\n");
    std::fs::remove_file(&named).unwrap();
    story
        .run(["agent", "-m", "x"])
        .status(66)
        .stderr_has("there is no config file `$HOME/named.json`");
}

#[test]
fn the_keys_of_a_file_are_applied_as_a_whole() {
    let file = json!({
        "$schema": "s",
        "agents": { "defaults": { "max_tokens": 99, "provider": "mine", "model": "m" } },
        "providers": { "mine": { "apiBase": "http://127.0.0.1:1/v1", "apiKey": "${MY_KEY}" } },
        "budget": { "daily": 5 },
    });
    let story = Story::new().env("MY_KEY", "k").stdin(file.to_string());
    let before = story.config_value();
    let expect = "agents.defaults.maxTokens: unset → 99\nagents.defaults.provider: \"custom\" → \"mine\"\nagents.defaults.model: \"scripted\" → \"m\"\nproviders.mine.apiBase: unset → \"http://127.0.0.1:1/v1\"\nproviders.mine.apiKey: unset → \"***\"\nbudget.daily: unset → 5\n";
    story.run(["config", "apply", "-f", "-", "--dry-run"]).stdout(expect);
    assert_eq!(story.config_value(), before);
    story.run(["config", "apply", "-f", "-"]).stdout(expect);
    let applied = story.config_value();
    assert_eq!(applied["providers"]["mine"]["apiKey"], "${MY_KEY}");
    assert_eq!(read(&own_file(&story))["budget"]["daily"], 5);
    story.run(["config", "apply", "-f", "-"]).stdout("The config is up to date.\n");
    for (file, expect) in [
        (
            json!({ "budget": { "daily": 6 }, "agents": { "defaults": { "modle": "x" } } }),
            "f.json:1:",
        ),
        (json!({ "budget": { "daily": "much" } }), "`budget.daily` is a string, expected a number"),
        (
            json!({ "budget": { "daily": 6 }, "agents": { "defaults": { "provider": "nope" } } }),
            "there is no provider `nope`",
        ),
    ] {
        write(&story.dir().join("f.json"), file.to_string().as_bytes());
        story.run(["config", "apply", "--file", "f.json"]).status(78).stderr_has(expect);
        assert_eq!(story.config_value(), applied);
    }
    write(&story.dir().join("f.json"), br#"{"budget": {"daily": null}}"#);
    story
        .run(["config", "apply", "-f", "f.json", "--json"])
        .stdout("{\"v\":1,\"key\":\"budget.daily\",\"old\":5,\"new\":null}\n");
}

#[test]
fn members_of_a_map_are_keys_of_their_own() {
    let story = Story::new();
    let server =
        |env: &Value| json!({ "tools": { "mcpServers": { "s": { "command": "c", "env": env } } } });
    let apply = |env: &Value| {
        write(&story.dir().join("f.json"), server(env).to_string().as_bytes());
        story.run(["config", "apply", "-f", "f.json"])
    };
    let applied = || story.config_value()["tools"]["mcpServers"]["s"]["env"].clone();
    apply(&json!({ "A": "1", "_TOKEN": "t" })).stdout_has("tools.mcpServers.s.env._TOKEN: unset");
    apply(&json!({ "B": "2" })).stdout_has("tools.mcpServers.s.env.B: unset");
    assert_eq!(applied(), json!({ "A": "1", "_TOKEN": "t", "B": "2" }));
    apply(&json!({ "A": null, "B": "3" })).stdout_has("tools.mcpServers.s.env.A: ");
    assert_eq!(applied(), json!({ "_TOKEN": "t", "B": "3" }));
    apply(&json!({ "B": ["x"] })).status(78).stderr_has("tools.mcpServers.s.env.B");
    // What hides a secret is none, and a program that printed nothing has failed.
    apply(&json!({ "B": "***" })).status(78).stderr_has("stands for a secret");
    assert_eq!(applied(), json!({ "_TOKEN": "t", "B": "3" }));
    write(&story.dir().join("f.json"), b"\n");
    story.run(["config", "apply", "-f", "f.json"]).status(65).stderr_has("`f.json` is empty");
}

#[test]
fn the_mask_of_a_secret_is_not_stored() {
    let story = Story::new()
        .set("providers.custom.extraHeaders", json!({ "X-Key": "sk-1234567890123456" }));
    let before = story.config_value();
    let stdout = story.run(["config", "get", "providers"]).text();
    assert!(stdout.contains("\"***\""), "{stdout}");
    let file =
        format!("{{\"agents\": {{\"defaults\": {{\"maxTokens\": 9}}}}, \"providers\": {stdout}}}");
    let story = story.stdin(file);
    let expect = "is `***`, which stands for a secret";
    story.run(["config", "apply", "-f", "-"]).status(78).stderr_has(expect);
    for (key, value) in [
        ("providers.custom.apiKey", "***"),
        ("providers.custom.extraHeaders", r#"{"X-Key": "***"}"#),
        ("providers.custom.extraHeaders.X-Key", "***"),
    ] {
        story.run(["config", "set", key, value]).status(78).stderr_has(expect);
    }
    assert_eq!(story.config_value(), before);
    story.run(["config", "set", "providers.custom.apiKey", "${MY_KEY}"]);
}
