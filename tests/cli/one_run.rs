//! Flags that give one run something: skills from the start, servers, fallback models, a title.

use crate::cron::{add_job, run_cron};
use crate::formats::Format;
use crate::mcp::{plain_tool, read_only_tool, server_log, story_with_servers};
use crate::provenance::origin_of;
use crate::server::{Request, Responder, calls, fails, says};
use crate::story::Story;
use crate::web::{PageServer, page_response};
use serde_json::{Value, json};

/// The system prompt of the last request.
fn system_prompt(story: &Story) -> String {
    story.last_request().messages()[0]["content"].as_str().unwrap().to_owned()
}

const TEA: &str = "---\nname: tea\ndescription: How tea is made\n---\nBrew for four minutes.\n";

#[test]
fn a_skill_is_loaded_at_the_start() {
    let story = Story::new()
        .workspace_file("skills/tea/SKILL.md", TEA)
        .file("rude/SKILL.md", "Swear.\n")
        .file("tea/SKILL.md", "Use cold water.\n");
    let system = |arguments: &[&str]| {
        story.server().script([says("Yes.")]);
        story.run(["agent", "-m", "x"].iter().chain(arguments)).stdout("Yes.\n").stderr("");
        system_prompt(&story)
    };
    assert!(!system(&[]).contains("four minutes"));
    // The user's own skill; a directory of that name does not take its place.
    let prompt = system(&["--skill", "tea", "-s", "own"]);
    assert!(prompt.contains("### Skill: tea\n\nBrew for four minutes."), "{prompt}");
    assert!(!prompt.contains("cold water"), "{prompt}");
    assert!(origin_of(&story, "own").starts_with("user"), "{}", origin_of(&story, "own"));
    // A built-in one, and several.
    let prompt = system(&["--skill", "weather", "--skill=tea", "--skill=tea", "--no-tools"]);
    assert!(prompt.contains("### Skill: weather"), "{prompt}");
    assert_eq!(prompt.matches("four minutes").count(), 1, "{prompt}");
    // Text of the project, as if the model had read it there.
    let prompt = system(&["--skill", "./rude", "-s", "theirs"]);
    assert!(prompt.contains("### Skill: rude\n\nSwear."), "{prompt}");
    assert!(origin_of(&story, "theirs").starts_with("project"), "{}", origin_of(&story, "theirs"));
    story.run(["trust", "rude/SKILL.md"]).stdout_has("now trusted").error_text();
    system(&["--skill", "./rude", "-s", "pinned"]);
    assert!(origin_of(&story, "pinned").starts_with("user"), "{}", origin_of(&story, "pinned"));
    // A change takes it back.
    let story = story.file("rude/SKILL.md", "Swear loudly.\n");
    story.server().script([says("Yes.")]);
    story.run(["agent", "-m", "x", "--skill", "rude/", "-s", "changed"]).stdout("Yes.\n");
    assert!(
        origin_of(&story, "changed").starts_with("project"),
        "{}",
        origin_of(&story, "changed")
    );
}

/// A bare run has the skills that its line names, and no others.
#[test]
fn a_bare_run_has_the_skills_of_its_line() {
    let request_of = |has_notes: bool| {
        let mut story = Story::new().file("tone/SKILL.md", "Be formal.\n");
        if has_notes {
            story = story
                .workspace_file("skills/tea/SKILL.md", TEA)
                .workspace_file("skills/odd/SKILL.md", "---\nalways: true\n---\nSing.\n");
        }
        story.server().script([says("Hi.")]);
        story.run(["agent", "--bare", "--skill", "./tone", "-m", "x"]).stdout("Hi.\n").stderr("");
        story.requests()[0].raw.clone()
    };
    let raw = request_of(true);
    assert_eq!(raw, request_of(false));
    assert!(raw.contains("Be formal.") && !raw.contains("/tmp"), "{raw}");

    let story = Story::new().workspace_file("skills/tea/SKILL.md", TEA);
    story.server().script([says("Hi.")]);
    story.run(["agent", "--bare", "--skill", "tea", "-m", "x"]).stdout("Hi.\n").stderr("");
    assert!(system_prompt(&story).ends_with("### Skill: tea\n\nBrew for four minutes."));
}

#[test]
fn a_skill_that_cannot_be_loaded_is_an_error() {
    let story = Story::new()
        .workspace_file("skills/tea/SKILL.md", TEA)
        .workspace_file(
            "skills/needy/SKILL.md",
            "---\nmetadata: {nanobot: {requires: {bins: no-such-program}}}\n---\nRun it.\n",
        )
        .file("local/SKILL.md", "Swear.\n")
        .file("empty/notes.md", "")
        .file("big/SKILL.md", "x".repeat(2 << 20))
        .file("secret.md", "hunter2");
    std::fs::create_dir(story.dir().join("link")).unwrap();
    std::os::unix::fs::symlink("../secret.md", story.dir().join("link/SKILL.md")).unwrap();
    let check = |name: &str, status: i32, cause: &str| {
        story.run(["agent", "-m", "x", "--skill", name]).status(status).stderr(cause);
    };
    check("tee", 66, "nanobot: there is no skill `tee`\n  try: nanobot skill show tea\n");
    check(
        "local",
        66,
        "nanobot: there is no skill `local`\n  try: `--skill ./local` for the directory\n",
    );
    check("./gone", 66, "nanobot: there is no directory `./gone`\n");
    check("./empty", 66, "nanobot: `./empty` has no SKILL.md\n");
    check("./secret.md", 66, "nanobot: `./secret.md` is not a directory\n");
    let failed = |name: &str, cause: &str| {
        let result = story.run(["agent", "-m", "x", "--skill", name]);
        assert_ne!(result.code(), 0);
        result.stderr_has(cause);
    };
    failed("./big", "larger than 1 MiB");
    failed("./link", "a link that points outside");
    assert!(story.requests().is_empty());
    story.server().script([says("Yes.")]);
    story
        .run(["agent", "-m", "x", "--skill", "needy"])
        .stdout("Yes.\n")
        .stderr("nanobot: skill `needy` needs what is missing: CLI: no-such-program\n");
}

/// The hosts of a built-in skill may be asked once it is loaded, as after it was read.
#[test]
fn a_loaded_skill_grants_what_reading_it_grants() {
    let pages = PageServer::start(|_| page_response("text/plain", "Rain."));
    let fetched = |flags: &[&str]| {
        let story = Story::new()
            .set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }))
            .env("NANOBOT_TEST_HOSTS", "wttr.in=127.0.0.2")
            .file("notes.md", "milk\n");
        let url = pages.url("/Brest").replace("127.0.0.2", "wttr.in");
        let read = calls("read_file", json!({ "path": "notes.md" }));
        story.server().script([read, calls("web_fetch", json!({ "url": url })), says("Rain.")]);
        let result = story.run(["agent", "-m", "x"].iter().chain(flags));
        result.stdout("Rain.\n").error_text();
        story.requests()[2].last_content()
    };
    let refused = fetched(&[]);
    assert!(refused.contains("denied"), "{refused}");
    let fetched = fetched(&["--skill", "weather"]);
    assert!(fetched.contains("Rain."), "{fetched}");
}

#[test]
fn a_job_has_the_skills_of_its_directory() {
    let story = Story::new().file("proj/skills/tea/SKILL.md", TEA);
    let add = ["cron", "add", "-m", "x", "-e", "1h", "--skill", "tea"];
    let add_in_project = [&add[..], &["--directory", "proj"]].concat();
    story.run(&add_in_project).status(66).stderr_has("`tea`");
    story.run(["trust", "proj"]).stdout_has("is now trusted").error_text();
    story.run(&add_in_project).stdout_has("✓").error_text();
    story.run(add).status(66).stderr_has("`tea`");
}

#[test]
fn a_job_may_have_a_skill_before_there_is_a_workspace() {
    let story = Story::bare();
    let add = ["cron", "add", "-m", "x", "-e", "1h", "--skill", "weather"];
    story.run(add).stdout_has("✓ Added").error_text();
}

#[test]
fn prompt_files_and_jobs_load_skills() {
    let story = Story::new()
        .workspace_file("skills/tea/SKILL.md", TEA)
        .file("p/p.md", "---\nskill: [tea, ./tone]\n---\nHello.\n")
        .file("p/tone/SKILL.md", "Be formal.\n");
    story.run(["run", "p/p.md"]).status(77).stderr_has("`p/p.md` sets `skill`");
    trust(&story, "p/p.md");
    story.server().script([says("Hi."), says("Hi.")]);
    story.run(["run", "p/p.md"]).stdout("Hi.\n").error_text();
    let prompt = system_prompt(&story);
    assert!(prompt.contains("four minutes") && prompt.contains("Be formal."), "{prompt}");
    let save = ["run", "--save", "hi", "--skill", "p/tone", "--skill=tea", "-m", "Hello."];
    story.run(save).stderr_has("saved");
    story.run(["run", "hi"]).stdout("Hi.\n").error_text();
    let prompt = system_prompt(&story);
    assert!(prompt.contains("four minutes") && prompt.contains("Be formal."), "{prompt}");

    let id = add_job(&story, &["--every", "1h", "--skill", "tea", "--skill", "p/tone"]);
    story.run(["cron", "show", &id]).stdout_has("skills       tea, $DIR/p/tone");
    story.server().script([says("Hi.")]);
    story.run(["cron", "run", &id]).stdout("Hi.\n");
    let prompt = system_prompt(&story);
    assert!(prompt.contains("four minutes") && prompt.contains("Be formal."), "{prompt}");
    run_cron(&story, &["edit", &id, "--skill", "tee"]).status(66).stderr_has("no skill `tee`");
    run_cron(&story, &["edit", &id, "--skill", ""]).text();
    story.server().script([says("Hi.")]);
    story.run(["cron", "run", &id]).stdout("Hi.\n");
    assert!(!system_prompt(&story).contains("four minutes"));
}

/// A story without servers in its config. The file `name` in its directory has those of `servers`, in the form of an `.mcp.json`.
fn story_with_server_file(name: &str, servers: &[(&str, Value, Value)]) -> Story {
    let story = story_with_servers(servers);
    let servers = story.config_value()["tools"]["mcpServers"].clone();
    let file = json!({ "mcpServers": servers }).to_string();
    story.set("tools", json!({})).file(name, file)
}

fn trust(story: &Story, file: &str) {
    story.run(["trust", file]).stdout_has("now trusted").error_text();
}

/// The names of the offered tools of MCP servers.
fn mcp_tool_names(story: &Story) -> Vec<String> {
    let mut names = story.last_request().tool_names();
    names.retain(|name| name.starts_with("mcp_"));
    names
}

#[test]
fn servers_of_a_file_are_those_of_one_run() {
    let plan = json!({ "tools": [read_only_tool("look", "Look."), plain_tool("set")] });
    let story = story_with_server_file(".mcp.json", &[("one", plan, json!({}))]);
    story.server().script([says("Nothing.")]);
    // A file that is only there is not read.
    story.run(["agent", "-m", "x"]).stdout("Nothing.\n").stderr("");
    assert!(mcp_tool_names(&story).is_empty() && server_log(&story, "one").is_empty());
    // The policy is that of any server: new tools are not accepted, and one that changes something needs consent.
    story.server().script([
        calls("mcp_one_look", json!({})),
        calls("mcp_one_set", json!({})),
        says("Looked."),
    ]);
    trust(&story, ".mcp.json");
    let result = story.run(["agent", "-m", "x", "--mcp", ".mcp.json", "-s", "own"]);
    result.stdout("Looked.\n").stderr_has("denied: mcp_one_set").stderr_has("--allow mcp_one_set");
    assert_eq!(mcp_tool_names(&story), ["mcp_one_look", "mcp_one_set"]);
    let origin_before = origin_of(&story, "own");
    assert!(origin_before.starts_with("external"), "{origin_before}");
    assert!(origin_before.contains("mcp accept one --mcp $DIR/.mcp.json"), "{origin_before}");
    let accept = ["mcp", "accept", "one", "--mcp", ".mcp.json", "--yes"];
    story.run(accept).stdout_has("set").stderr_has("accepted");
    story.run(["mcp", "check", "--mcp", ".mcp.json"]).stdout_has("ok    one");
    story.run(["mcp", "show", "one", "--mcp", ".mcp.json"]).stdout_has("look");
    story.run(["mcp", "list"]).stdout("").error_text();
    story.server().script([says("Ready.")]);
    story.run(["agent", "-m", "x", "--mcp=.mcp.json", "-s", "next"]).stdout("Ready.\n").stderr("");
    assert!(origin_of(&story, "next").starts_with("user"), "{}", origin_of(&story, "next"));
}

#[test]
fn servers_of_a_file_are_the_only_ones_of_a_bare_run() {
    let plan = || json!({ "tools": [read_only_tool("look", "Look.")] });
    let servers = [("one", plan(), json!({})), ("two", plan(), json!({}))];
    let story = story_with_servers(&servers);
    let all = story.config_value()["tools"]["mcpServers"].clone();
    // Both forms, and the last file of a name counts.
    let story = story
        .set("tools.mcpServers", json!({ "one": all["one"] }))
        .file("ours.json", json!({ "tools": { "mcpServers": { "two": all["two"] } } }).to_string())
        .file(
            "theirs.json",
            json!({ "mcpServers": { "two": { "command": "${NO_SUCH:-/nonexistent}/server" } } })
                .to_string(),
        );
    trust(&story, "ours.json");
    trust(&story, "theirs.json");
    story.server().script([says("Both.")]);
    story.run(["agent", "-m", "x", "--mcp", "ours.json"]).stdout("Both.\n").error_text();
    assert_eq!(mcp_tool_names(&story), ["mcp_one_look", "mcp_two_look"]);
    let bare = ["agent", "--bare", "--mcp", "ours.json", "-m", "x"];
    story.server().script([says("None."), says("One.")]);
    story.run(bare).stdout("None.\n").stderr("");
    assert!(mcp_tool_names(&story).is_empty());
    story.run(bare.iter().chain(&["--tools", "mcp_*"])).stdout("One.\n").stderr("");
    assert_eq!(mcp_tool_names(&story), ["mcp_two_look"]);
    story.server().script([says("None.")]);
    let both = ["--mcp", "theirs.json", "--tools", "mcp_*"];
    story.run(bare.iter().chain(&both)).stdout("None.\n").stderr_has("/nonexistent/server");
    assert!(mcp_tool_names(&story).is_empty());
}

#[test]
fn a_file_of_servers_that_cannot_be_used_is_an_error() {
    let entry = |key: &str, value: Value| {
        let mut server = json!({ "command": "true" });
        server[key] = value;
        json!({ "mcpServers": { "s": server } }).to_string()
    };
    let story = Story::new()
        .file("text.json", "servers: none")
        .file("other.json", r#"{"servers": {}}"#)
        .file("list.json", r#"{"mcpServers": []}"#)
        .file("args.json", entry("args", json!("--root")))
        .file("key.json", entry("env", json!({ "K": { "command": "touch ran; echo k" } })));
    let check = |file: &str, status: i32, cause: &str| {
        let result = story.run(["agent", "-m", "x", "--mcp", file]);
        result.status(status).stderr_has(cause);
    };
    check("gone.json", 66, "no such file: `gone.json`");
    check("text.json", 65, "`text.json`: it is not JSON: ");
    check("other.json", 65, "`other.json` has no object `mcpServers`");
    check("list.json", 65, "`list.json` has no object `mcpServers`");
    trust(&story, "args.json");
    check("args.json", 65, "`args.json`: ");
    // A file that starts programs is one that the user has read, and no later version of it.
    check(
        "key.json",
        77,
        "`key.json` starts programs, and is not trusted as it is now\n  try: `nanobot trust key.json`",
    );
    trust(&story, "key.json");
    let changed = entry("_sandbox", json!("off"));
    std::fs::write(story.dir().join("key.json"), changed).unwrap();
    check("key.json", 77, "is not trusted as it is now");
    assert!(story.requests().is_empty() && !story.dir().join("ran").exists());
    trust(&story, "key.json");
    story.server().script([says("Yes.")]);
    story.run(["agent", "-m", "x", "--mcp", "key.json"]).stdout("Yes.\n").error_text();
}

/// The file decides what the next run starts, so this one cannot change it.
#[test]
fn no_run_changes_the_file_of_its_servers() {
    let story = Story::new().file("tools/servers.json", r#"{"mcpServers": {}}"#);
    let file = story.dir().join("tools/servers.json");
    story.server().script([
        calls("write_file", json!({ "path": "tools/servers.json", "content": "x" })),
        calls("exec", json!({ "command": "echo x > tools/servers.json; rm tools/servers.json" })),
        calls("write_file", json!({ "path": "tools/other.json", "content": "x" })),
        says("Done."),
    ]);
    let servers = json!({ "mcpServers": { "s": { "command": "/nonexistent" } } }).to_string();
    std::fs::write(&file, &servers).unwrap();
    trust(&story, "tools/servers.json");
    story
        .run(["agent", "--write", "-m", "x", "--mcp", "tools/servers.json"])
        .stdout("Done.\n")
        .error_text();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), servers);
    assert!(story.dir().join("tools/other.json").exists());
}

#[test]
fn prompt_files_name_files_of_servers() {
    let plan = json!({ "tools": [read_only_tool("look", "Look.")] });
    let story = story_with_server_file("p/servers.json", &[("one", plan, json!({}))])
        .file("p/p.md", "---\nmcp: servers.json\ntools: ['mcp_*']\n---\nHello.\n");
    story.run(["run", "p/p.md"]).status(77).stderr_has("`p/p.md` sets `mcp`");
    trust(&story, "p/p.md");
    trust(&story, "p/servers.json");
    story.server().script([says("Hi."), says("Hi.")]);
    story.run(["run", "p/p.md"]).stdout("Hi.\n").error_text();
    assert_eq!(mcp_tool_names(&story), ["mcp_one_look"]);
    let save = ["run", "--save", "hi", "--mcp", "p/servers.json", "--tools=mcp_*", "-m", "Hello."];
    story.run(save).stderr_has("saved");
    story.run(["run", "hi"]).stdout("Hi.\n").error_text();
    assert_eq!(mcp_tool_names(&story), ["mcp_one_look"]);
}

#[test]
fn fallback_models_of_one_run() {
    let configured = json!([{ "model": "other", "provider": "custom" }]);
    let models = |arguments: &[&str], script: Vec<Responder>| {
        let story = Story::new()
            .set("agents.defaults.fallbackModels", configured.clone())
            .set("modelPresets", json!({ "fast": "quick" }))
            .script(script);
        let result = story.run(["agent", "-m", "x"].iter().chain(arguments));
        let code = result.code();
        drop((result.error_text(), result.text()));
        let requests = story.requests();
        let model = |request: &Request| request.body["model"].as_str().unwrap().to_owned();
        (code, requests.iter().map(model).collect::<Vec<_>>().join(" "))
    };
    let down = || fails(404, "no such model");
    let check = |arguments: &[&str], script: Vec<Responder>, code: i32, expect: &str| {
        assert_eq!(models(arguments, script), (code, expect.to_owned()), "{arguments:?}");
    };
    check(&[], vec![down(), says("x")], 0, "scripted other");
    // In place of the config's, in the order of the line, presets too.
    let flags = ["--fallback", "second", "--fallback=fast"];
    check(&flags, vec![down(), down(), says("x")], 0, "scripted second quick");
    check(
        &["--fallback", "second, fast"],
        vec![down(), down(), says("x")],
        0,
        "scripted second quick",
    );
    check(&["--fallback-model", "fast"], vec![down(), says("x")], 0, "scripted quick");
    check(&["--fallback", "scripted"], vec![down()], 78, "scripted");
    check(&["--fallback="], vec![down()], 78, "scripted");
    for names in [",,", "second,", "second,,fast"] {
        check(&["--fallback", names], vec![], 2, "");
    }
}

#[test]
fn prompt_files_and_jobs_name_fallback_models() {
    let story = Story::new().file("p.md", "---\nfallback: [second]\n---\nHello.\n");
    let answer = || [fails(404, "no such model"), says("Hi.")];
    let model = || story.last_request().body["model"].clone();
    story.server().script(answer());
    story.run(["run", "p.md"]).stdout("Hi.\n").error_text();
    assert_eq!(model(), "second");
    story.run(["run", "--save", "hi", "--fallback", "third", "-m", "Hello."]).stderr_has("saved");
    story.server().script(answer());
    story.run(["run", "hi"]).stdout("Hi.\n").error_text();
    assert_eq!(model(), "third");
    let id = add_job(&story, &["--every", "1h", "--fallback", "fourth,fifth"]);
    story.run(["cron", "show", &id]).stdout_has("fallbacks    fourth, fifth");
    story.server().script(answer());
    story.run(["cron", "run", &id]).stdout("Hi.\n").error_text();
    assert_eq!(model(), "fourth");
    run_cron(&story, &["edit", &id, "--fallback", ""]).text();
    let stdout = story.run(["cron", "show", &id]).text();
    assert!(!stdout.contains("fallbacks"), "{stdout}");
}

#[test]
fn a_run_names_its_session() {
    let story = Story::new().script([says("a"), says("b"), says("c"), fails(400, "no")]);
    let title = |key: &str| story.run(["session", "title", key]).text();
    story.run(["agent", "-m", "x", "-s", "k", "--title", " Tax return "]).stdout("a\n");
    assert_eq!(title("k"), "Tax return\n");
    // It stays, and an empty one removes it.
    story.run(["agent", "-m", "x", "-s", "k"]).stdout("b\n");
    assert_eq!(title("k"), "Tax return\n");
    story.run(["session", "list"]).stdout_has("Tax return");
    story.run(["agent", "-m", "x", "-s", "k", "--title", ""]).stdout("c\n");
    story.run(["session", "title", "k"]).stdout("").error_text();
    // A turn that fails has a session too.
    story.run(["agent", "-m", "x", "-s", "f", "--title", "Failed"]).status(1).error_text();
    assert_eq!(title("f"), "Failed\n");
    for flag in ["--bare", "--ephemeral"] {
        let result = story.run(["agent", flag, "--title", "x", "-m", "x"]);
        result.status(2).stderr_has("cannot be used with");
    }
    let story = story.file("p.md", "Hello.\n");
    story.run(["run", "--title", "x", "p.md"]).status(2).stderr_has("a prompt file has no session");
}

#[test]
fn the_prompt_cache_lives_for_an_hour() {
    let request_of = |story: &Story, arguments: &[&str]| {
        story.server().script([says("Hi.")]);
        story.run(["agent", "-m", "x"].iter().chain(arguments)).stdout("Hi.\n").error_text();
        story.last_request().body
    };
    let claude = || Story::in_format(Format::Anthropic, "claude-opus-4-7");
    let plain = request_of(&claude(), &[]).to_string();
    let marks = plain.matches(r#"{"type":"ephemeral"}"#).count();
    assert!(marks > 2 && !plain.contains("ttl"), "{plain}");
    assert_eq!(request_of(&claude(), &["--cache", "5m"]).to_string().matches("ttl").count(), 0);
    let long = request_of(&claude(), &["--cache", "1h"]).to_string();
    assert_eq!(long.matches(r#"{"type":"ephemeral","ttl":"1h"}"#).count(), marks, "{long}");
    assert_eq!(long.matches("ephemeral").count(), marks, "{long}");

    // A gateway that passes them on.
    let gateway = Story::with_provider("openrouter", "anthropic/claude-opus-4-7")
        .allow_extra_keys(&["cache_control"]);
    let long = request_of(&gateway, &["--cache", "1h"]).to_string();
    assert!(long.contains(r#"{"type":"ephemeral","ttl":"1h"}"#), "{long}");

    // The key is that of the session, and does not show it.
    let openai = |model: &str| Story::with_provider("openai", model);
    let story = openai("gpt-5.4");
    let first = request_of(&story, &["--cache", "1h", "-s", "ada"]);
    assert_eq!(first["prompt_cache_retention"], "24h");
    let key = first["prompt_cache_key"].as_str().unwrap();
    assert!(key.starts_with("nanobot-") && !key.contains("ada"), "{key}");
    assert_eq!(request_of(&story, &["--cache=1h", "-s", "ada"])["prompt_cache_key"], key);
    assert_ne!(request_of(&story, &["--cache=1h", "-s", "other"])["prompt_cache_key"], key);
    let own = request_of(&story, &["--cache=1h", "-s", "ada", "-o", "prompt_cache_key=mine"]);
    assert_eq!(own["prompt_cache_key"], "mine");
    assert!(request_of(&story, &["-s", "ada"])["prompt_cache_key"].is_null());
    let newer = request_of(&openai("gpt-6-luna"), &["--cache", "1h"]);
    assert!(newer["prompt_cache_key"].is_string() && newer["prompt_cache_retention"].is_null());
    // A provider without such a field gets none, and a filter's key is that of any filter.
    let other = request_of(&Story::with_provider("mistral", "mistral-large"), &["--cache", "1h"]);
    assert!(!other.to_string().contains("prompt_cache"), "{other}");
    let bare =
        |story: &Story| request_of(story, &["--bare", "--cache", "1h"])["prompt_cache_key"].clone();
    assert_eq!(bare(&openai("gpt-5.4")), bare(&openai("gpt-5.4")));
    story
        .run(["agent", "-m", "x", "--cache", "1d"])
        .status(2)
        .stderr_has("[possible values: 5m, 1h]");
}

#[test]
fn prompt_files_and_jobs_keep_the_cache() {
    let story = Story::with_provider("openai", "gpt-5.4")
        .file("p.md", "---\ncache: 1h\n---\nHello.\n")
        .file("odd.md", "---\ncache: 2h\n---\nHello.\n");
    let has_key = || {
        let requests = story.requests();
        requests.last().unwrap().body["prompt_cache_key"].is_string()
    };
    story.server().script((0..4).map(|_| says("Hi.")));
    story.run(["run", "p.md"]).stdout("Hi.\n").error_text();
    assert!(has_key());
    story.run(["run", "odd.md"]).status(65).stderr_has("`cache`: it is neither 5m nor 1h");
    story.run(["run", "--save", "hi", "--cache", "1h", "-m", "Hello."]).stderr_has("saved");
    story.run(["run", "hi"]).stdout("Hi.\n").error_text();
    assert!(has_key());
    let id = add_job(&story, &["--every", "1h", "--cache", "1h"]);
    story.run(["cron", "show", &id]).stdout_has("cache        1 h\n");
    story.run(["cron", "run", &id]).stdout("Hi.\n").error_text();
    assert!(has_key());
    run_cron(&story, &["edit", &id, "--cache", "5m"]).text();
    story.run(["cron", "run", &id]).stdout("Hi.\n").error_text();
    assert!(!has_key());
}
