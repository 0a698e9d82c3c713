//! The commands of the topics, `nanobot help TOPIC`: each is run as it stands there, against a scripted provider.

use crate::channel_ntfy::NtfyServer;
use crate::page_commands::{answers, elsewhere, leave, prints, run_page, shows_commands, types};
use crate::requirements::require;
use crate::screen::Key;
use crate::server::{Request, Response, Server, calls, fails, says};
use crate::session_commands::{session_text, set_age};
use crate::story::{Story, write, write_program};
use crate::telegram_server::{TOKEN, TelegramServer};
use nanobot::cli::topics::{TOPICS, find_topic};
use serde_json::{Value, json};

fn topic(name: &str) -> &'static str {
    find_topic(name).unwrap().text
}

#[test]
fn every_topic_with_commands_has_a_story() {
    let stories = include_str!("topics.rs");
    for page in TOPICS.iter().filter(|page| shows_commands(page.text)) {
        let call = format!("topic(\"{}\")", page.name);
        assert!(stories.contains(&call), "{}", page.name);
    }
}

#[test]
fn commands_of_the_topic_scripting() {
    let story =
        Story::new().file("bill.txt", "Tea, 3 euros\n").file("Makefile", "test:\n\ttest -f code\n");
    let write = |path: &str| calls("write_file", json!({ "path": path, "content": "x" }));
    let bill = r#"{"name": "Tea", "amount": 3, "tags": []}"#;
    let rows = vec![
        answers("--schema", [says(bill)], "\"amount\": 3"),
        answers("--bare -x", [says("```awk\n{ sum += $3 } END { print sum }\n```")], ""),
        answers("--bare --system", [says("Bonjour.")], ""),
        answers("--until", [says("Fine."), write("code"), says("Repaired.")], "Repaired.\n"),
        answers("fix the typo", [write("typo"), says("Fixed.")], "Fixed.\n"),
        prints("nanobot apply", "created typo\n"),
        answers("say more", [write("more"), says("Said.")], "Said.\n"),
        prints("config set telemetry.otlp", ""),
        answers("-m 'hello'", [says("Hi.")], "Hi.\n"),
        prints("tail", "invoke_agent nanobot"),
    ];
    run_page(&story, topic("scripting"), &[], rows);
    let read = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap();
    assert_eq!(read("sum.awk"), "{ sum += $3 } END { print sum }\n");
    assert_eq!(read("bonjour"), "Bonjour.\n");
    assert_eq!(read("typo") + &read("more"), "xx");
}

#[test]
fn commands_of_the_topic_hooks() {
    let rows = vec![
        prints("mkdir", ""),
        prints("printf", ""),
        prints("chmod", ""),
        prints("config set", ""),
        prints("config check", "no problems"),
        prints("tool run", "move it to the trash instead"),
        prints("config unset", ""),
    ];
    run_page(&Story::new(), topic("hooks"), &[], rows);
}

#[test]
fn commands_of_the_topic_programs() {
    let rows = vec![
        prints("tool new", ".nanobot/tools/tides"),
        prints("tool check", "ok    tool_tides: Times of high and low water"),
        prints("tool show", "Times of high and low water"),
        prints("tool run", "Brest"),
        answers(
            "high water in Brest?",
            [calls("tool_tides", json!({ "text": "Brest" })), says("At six.")],
            "At six.\n",
        ),
    ];
    let rows = rows.into_iter().chain([
        prints("printf '%s\\n' '#!", ""),
        prints("chmod", ""),
        prints("--help", "Usage: ./sum-up [WORDS]"),
        answers("sum-up 10", [says("Short.")], "Short."),
        answers("--json ./sum-up", [says("Shorter.")], "\"text\":\"Shorter.\""),
        prints("nanobot trust sum-up", "is now trusted"),
        prints("--save shorter", ""),
        prints("run --list", "shorter  In $1 words:"),
        answers("run shorter 20", [says("Shortest.")], "Shortest."),
        prints("serve mcp", "\"protocolVersion\":\"2025-11-25\""),
    ]);
    let story = Story::new().file("letter.txt", "A long letter.");
    run_page(&story, topic("programs"), &[], rows.collect());
    let requests = story.requests();
    let content = &requests[requests.len() - 3].messages()[1]["content"];
    let text = content.to_string();
    assert!(
        text.contains("Sum up the text in 10 words.") && text.contains("A long letter."),
        "{text}"
    );
}

#[test]
fn commands_of_the_topic_permissions() {
    let story = Story::new().file("notes.md", "TODO: tea\n").file("key.env", "KEY=1\n");
    std::fs::create_dir(story.home().join("inbox")).unwrap();
    std::fs::create_dir(story.dir().join("out")).unwrap();
    let write = |path: &str| calls("write_file", json!({ "path": path, "content": "x" }));
    let read = calls("read_file", json!({ "path": "key.env" }));
    let rows = vec![
        answers("agent --write -m", [write("a.txt"), says("Fixed.")], "Fixed.\n"),
        answers("--write=out", [write("out/b.txt"), says("Noted.")], "Noted.\n"),
        answers("--net=registry.npmjs.org", [says("Yes.")], "Yes.\n"),
        answers("--deny", [read, says("I may not.")], "I may not.\n"),
        answers("--profile plan", [says("So.")], "So.\n"),
        prints("policy explain", "allowed: "),
        prints("policy check", "ok  "),
        prints("tool run grep", "TODO: tea"),
        answers("--propose", [says("No.")], "No.\n"),
        prints("nanobot undo", "removed out/b.txt\n"),
    ];
    let output = run_page(&story, topic("permissions"), &[], rows);
    assert!(!output.contains("FAILED"), "{output}");
    assert!(!output.contains("KEY=1"), "{output}");
    assert!(story.dir().join("a.txt").exists());
}

#[test]
fn commands_of_the_topic_models() {
    let key = "key-of-the-story";
    let story = Story::bare().env("MY_KEY", key);
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    let openai = json!({ "apiKey": key, "apiBase": base });
    let story = story.config(&json!({ "providers": { "openai": openai } }));
    let rows = vec![
        prints("config set", ""),
        answers("--model gpt-6.1-sol", [says("The first.")], "The first.\n"),
        prints("model show gpt-6-luna", "openai"),
        elsewhere("--model bedrock/", "clouds::bedrock_gets_signed_requests_in_both_formats"),
        elsewhere(
            "--model vertex/",
            "clouds::vertex_serves_gemini_and_claude_for_a_token_of_a_service_account",
        ),
        answers("--model big", [says("Proven.")], "Proven.\n"),
        answers("--fallback big", [fails(404, "gone"), says("Proven too.")], "Proven too.\n"),
        prints("nanobot usage", "openai/"),
        answers("--max-cost 0.50", [says("Tidy.")], "Tidy.\n"),
    ];
    let output = run_page(&story, topic("models"), &[], rows);
    assert!(!output.contains(key), "{output}");
    let models: Vec<Value> =
        story.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(models, ["gpt-6.1-sol", "gpt-6.1-sol", "gpt-6-luna", "gpt-6.1-sol", "gpt-6-luna"]);
    let check = story.run(["config", "check"]).text();
    assert!(check.ends_with(": no problems found\n"), "{check}");
}

#[test]
fn commands_of_the_topic_sessions() {
    let long = format!("Here. {}", "It is the one about tea. ".repeat(100));
    let talk: Vec<(&str, &str)> =
        (0..8).flat_map(|_| [("user", "Where is Invoice 42?"), ("assistant", &*long)]).collect();
    let story = Story::new()
        .workspace_file("sessions/cli_direct.jsonl", session_text("cli:direct", &talk))
        .workspace_file("sessions/work.jsonl", session_text("work", &talk))
        .workspace_file("sessions/pipe_1.jsonl", session_text("pipe:1", &talk[..2]));
    let sessions = story.workspace().join("sessions");
    set_age(&sessions.join("cli_direct.jsonl"), 3);
    set_age(&sessions.join("pipe_1.jsonl"), 100);
    let rows = vec![
        prints("session list", "cli:direct"),
        prints("session search", "Where is Invoice 42?"),
        prints("session fork", "idea"),
        types("session prune", |screen| {
            screen.until("[y/N]").type_("y").press(Key::Enter);
            screen.until("moved to the trash: 1");
        }),
        prints("session import", "imported 2 messages of Claude Code"),
        answers("-s tea", [says("At the tea.")], "At the tea.\n"),
        answers("session compact", [says("Numbers: 42.")], "Compacted: "),
    ];
    let transcript = story.home().join(".claude/projects/-src-tea/ID.jsonl");
    crate::story::write(&transcript, crate::session_import::short_transcript().as_bytes());
    run_page(&story, topic("sessions"), &[], rows);
    let copied = story.session("idea.jsonl");
    let messages = copied.iter().filter(|line| line["role"].is_string());
    assert_eq!(messages.count(), 12);
    let request = &story.requests()[1];
    assert!(request.last_content().contains("keep the numbers"));
}

#[test]
fn commands_of_the_topic_jobs() {
    let story = Story::new().env("NANOBOT_TEST_TIME", "2026-11-21T20:00:00Z");
    std::fs::create_dir(story.home().join("inbox")).unwrap();
    let rows = vec![
        prints("--after digest", "after `digest`"),
        prints("cron add", "✓ Added job"),
        prints("cron list", "digest"),
        prints("cron logs", "No runs yet."),
        prints("cron edit", "at 07:30"),
        prints("cron sync", "crontab"),
        prints("cron remove", "✓"),
        prints("heartbeat enable", "✓"),
    ];
    run_page(&story, topic("jobs"), &[], rows);
}

#[test]
fn commands_of_the_topic_channels() {
    let (telegram, ntfy) = (TelegramServer::start(), NtfyServer::start());
    let story = Story::new().env("TOKEN", TOKEN).set(
        "channels",
        json!({ "telegram": { "apiBase": telegram.base(), "allowFrom": ["7"] }, "ntfy": ntfy.keys() }),
    );
    telegram.message(7, "hi");
    let rows = vec![
        types("channel login", |screen| {
            screen.until("Telegram, not shown:");
            screen.type_(TOKEN).press(Key::Enter);
            screen.until("the command menu is set");
        }),
        answers("nanobot channel poll", [says("Hello, Ann.")], ""),
        prints("config set", ""),
        prints("channel bind telegram --sender", ""),
        prints("channel bind telegram --chat", ""),
        prints("channel list --json", "\"telegram\""),
        prints("channel list", "sender 123456"),
        prints("channel send telegram", "\n"),
        prints("channel send ntfy", "\n"),
        prints("cron add", "✓"),
        prints("channel inbox", ""),
    ];
    let prints_token = format!("echo {TOKEN}");
    let replaced =
        [("* * * * * ", ""), ("--wait 60", ""), ("pass show telegram", prints_token.as_str())];
    run_page(&story, topic("channels"), &replaced, rows);
    assert_eq!(telegram.sent(), ["Hello, Ann.", "Backup done"]);
    let table = story.crontab().table().unwrap();
    assert_eq!(table.matches(" --scheduled\n").count(), 1, "{table}");
}

/// A stand-in for `uvx` that serves one tool, which returns its arguments.
fn install_uvx(story: &Story) {
    let tool = json!({ "name": "get_current_time", "inputSchema": { "type": "object" } });
    let plan = json!({ "tools": [tool] }).to_string();
    let server = include_str!("../servers/plain.py");
    let text = format!(
        "#!/usr/bin/env python3\n\
         import sys, tempfile\n\
         with tempfile.NamedTemporaryFile('w', delete=False) as file:\n    file.write({plan:?})\n\
         sys.argv[1:] = [file.name, '/dev/null']\n{server}"
    );
    write_program(&story.home().join("bin/uvx"), &text);
}

/// A remote server with one tool, for those who send the token `tok`.
fn start_hub() -> Server {
    let hub = Server::start();
    hub.always(Box::new(|request: &Request| {
        if request.header("authorization") != Some("Bearer tok") {
            return Response::text(401, "text/plain", "no token");
        }
        let message: Value = serde_json::from_str(&request.raw).unwrap_or_default();
        let result = match message["method"].as_str() {
            Some("initialize") => json!({ "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} }, "serverInfo": { "name": "hub", "version": "1" } }),
            Some("tools/list") => {
                json!({ "tools": [{ "name": "find", "inputSchema": { "type": "object" } }] })
            }
            Some("ping") => json!({}),
            Some(_) => return Response::text(202, "text/plain", ""),
            None => return Response::text(405, "text/plain", ""),
        };
        let reply = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        Response::json(200, &reply)
    }));
    hub
}

#[test]
fn commands_of_the_topic_servers() {
    if !require("python3") {
        return;
    }
    let hub = start_hub();
    let story = Story::new().env("HUB_TOKEN", "tok");
    install_uvx(&story);
    std::fs::create_dir_all(story.home().join("src/tea")).unwrap();
    let skill =
        b"---\ndescription: Writes invoices; for any question about bills\n---\nBe exact.\n";
    write(&story.home().join("Downloads/invoices/SKILL.md"), skill);
    let rows = vec![
        prints("mcp add", "1 tool"),
        prints("mcp check", "ok    hub: "),
        prints("tool run time", "America/Lima"),
        elsewhere(
            "mcp login hub",
            "mcp_login::a_program_logs_in_without_a_person_and_gets_new_tokens_by_itself",
        ),
        elsewhere("-a mcp:notes:", "mcp_content::a_resource_is_attached_as_content_from_outside"),
        elsewhere(
            "mcp accept notes",
            "mcp_content::what_a_prompt_says_is_sent_once_it_is_accepted",
        ),
        elsewhere("'/notes:review", "mcp_content::what_a_prompt_says_is_sent_once_it_is_accepted"),
        prints("git.sampling ask", ""),
        prints("skills.directories", ""),
        prints("skill list", "weather"),
        types("skill add ~", |screen| {
            screen.until("[y/N]").type_("y").press(Key::Enter);
            screen.until("installed in");
        }),
        elsewhere("skill add 'https", "fetched_skills::an_archive_is_reviewed_and_installed"),
        prints("skill update", ""),
        prints("skill new", "skills/deploy/SKILL.md\n"),
    ];
    let address = format!("http://127.0.0.1:{}/mcp", hub.port);
    let replaced = [("https://example.org/mcp", address.as_str())];
    let output = run_page(&story, topic("servers"), &replaced, rows);
    for server in ["time", "git"] {
        assert!(output.contains(&format!("ok    {server}: ")), "{output}");
    }
    story.run(["skill", "list"]).stdout_has("invoices");
}

#[test]
fn commands_of_the_topic_terminal() {
    let story = Story::new();
    let profile = story.home().join("profile.ps1");
    let story = story.env("PROFILE", profile.to_str().unwrap());
    let rows = vec![
        types("nanobot repl", leave),
        prints("mkdir -p", ""),
        prints("nanobot completions", ""),
        prints("uninstall --dry-run", ".nanobot/config.json"),
        prints("uninstall --yes", "removed"),
    ];
    let output = run_page(&story, topic("terminal"), &[], rows);
    // Scripts in the places of `onboard --completions` are removed with the rest.
    for script in [
        "bash-completion/completions/nanobot",
        "site-functions/_nanobot",
        "completions/nanobot.fish",
    ] {
        assert!(output.contains(script), "{script}: {output}");
    }
    for script in [".config/elvish/rc.elv", "profile.ps1"] {
        let text = std::fs::read_to_string(story.home().join(script)).unwrap();
        assert!(text.contains("nanobot"), "{script}");
    }
    assert!(!story.home().join(".nanobot").exists());
}

#[test]
fn commands_of_the_topic_privacy() {
    let story = Story::new().workspace_file("USER.md", "A friend of Ada Lovelace.\n");
    let rows = vec![
        prints("--dry-run -m", "\"messages\":["),
        prints("--dry-run=table", "tokens"),
        answers("--record talk.jsonl", [says("One.")], "One.\n"),
        answers("NANOBOT_LOG", [says("Two.")], "127.0.0.1"),
        prints("policy explain", "allowed: "),
        prints("forget --dry-run", "USER.md: once"),
        answers("--offline", [says("Three.")], "Three.\n"),
        prints("session prune", ""),
        prints("config set retention", ""),
    ];
    run_page(&story, topic("privacy"), &[], rows);
    let recorded = std::fs::read_to_string(story.dir().join("talk.jsonl")).unwrap();
    assert!(recorded.contains("One."), "{recorded}");
}

#[test]
fn a_topic_is_wrapped_for_the_terminal_and_paged_if_it_does_not_fit() {
    let story = Story::bare();
    let page_on = |rows: u16, pager: &str| {
        let screen = story.screen(rows, 80).env("PAGER", pager);
        let mut screen = screen.args(["help", "permissions"]);
        assert_eq!(screen.code(), 0);
        screen.text_with_scrollback()
    };
    let paged = page_on(24, "sed 's/^/paged: /'");
    assert!(paged.contains("paged: • files: reads the working directory"), "{paged}");
    // It stands on three lines of the source.
    let paragraph = "at night. Actions that were not allowed are denied, and reported once with";
    for unpaged in
        [page_on(24, "nosuch-pager"), page_on(24, "cat"), page_on(250, "sed 's/^/paged: /'")]
    {
        assert!(unpaged.contains(paragraph) && !unpaged.contains("paged: "), "{unpaged}");
        assert!(!unpaged.contains("\\u{1b}"), "{unpaged}");
        assert!(unpaged.contains("'read_file(*.env)' --tools 'read_*,grep'"), "{unpaged}");
    }
}
