//! Channels and `pipe` with the programs of others: python-telegram-bot, Telegram's own parser, Redis and Mosquitto.

use crate::channel::telegram_story;
use crate::channel_listen::{ACCEPTED, post, sign};
use crate::channel_load::story_without_limit;
use crate::chat_services::OF_CONVERSATIONS;
use crate::discord_server::{self, DIRECT, DiscordServer};
use crate::graph_server::{ADA, APP_SECRET, GraphServer, text_message, webhook};
use crate::mattermost_server::{self, MattermostServer};
use crate::requirements::require;
use crate::server::{Request, Responder, says};
use crate::slack_server::{self, SlackServer};
use crate::story::{NANOBOT, Story};
use crate::telegram_server::{TOKEN, TelegramServer};
use crate::wait::until;
use nanobot_channel::dialect::{self, Dialect};
use nanobot_channel::table;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The clients of others take our servers for theirs.
#[test]
#[ignore = "needs packages; see tests/README.md"]
fn real_chat_clients() {
    let run = |name: &str, port: u16| {
        let python = std::env::var_os("NANOBOT_REAL_PYTHON").expect("tests/real/chat sets it");
        let mut client = Command::new(python);
        client
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/chat_clients.py"))
            .args([name, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        client.spawn().unwrap()
    };
    let is_ok = |client: Child, name: &str| {
        let output = client.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{name}");
    };
    let mattermost = MattermostServer::start();
    mattermost.checked.ignore();
    mattermost.write("town", mattermost_server::ANN, "hello");
    let client = run("mattermost", mattermost.http.port);
    mattermost.sockets.wait_for_connections(1);
    mattermost.write("town", mattermost_server::ANN, "an event");
    is_ok(client, "mattermost");
    let slack = SlackServer::start();
    slack.checked.ignore();
    slack.write("C1", slack_server::ANN, "hello");
    let client = run("slack", slack.http.port);
    slack.sockets.wait_for_connections(1);
    let stamp = slack.write("D1", slack_server::ANN, "an event");
    let id = json!(format!("e{stamp}"));
    slack.sockets.wait_for_message(|message| message["envelope_id"] == id);
    is_ok(client, "slack");
    let discord = DiscordServer::start();
    discord.checked.ignore();
    discord.write(DIRECT, discord_server::ANN, "hello");
    let client = run("discord", discord.http.port);
    discord.sockets.wait_for_message(|message| message["op"] == 2);
    discord.write(DIRECT, discord_server::ANN, "an event");
    is_ok(client, "discord");
    let graph = GraphServer::start();
    graph.checked.ignore();
    let mut client = run("whatsapp", graph.http.port);
    let mut stdin = client.stdin.take().unwrap();
    for (signature, body, is_accepted) in signed_webhooks() {
        let line = json!({ "body": body, "signature": signature, "accepted": is_accepted });
        writeln!(stdin, "{line}").unwrap();
    }
    drop(stdin);
    is_ok(client, "whatsapp");
    assert_eq!(graph.texts()[0], "*hi*");
    assert!(graph.media()[0].1.contains("the report"));
}

/// Webhook requests of WhatsApp with their signatures, and whether the program accepts them.
fn signed_webhooks() -> Vec<(String, String, bool)> {
    let body = webhook(&json!([text_message("wamid.1", ADA, "hi")]));
    let sign = |key: &str, body: &str| format!("sha256={}", sign(key, body.as_bytes()));
    let valid = sign(APP_SECRET, &body);
    let requests = [
        (valid.clone(), body.clone()),
        (valid, body.replace("hi", "ho")),
        (sign("another secret", &body), body.clone()),
        (sign(APP_SECRET, &body)[..64].to_owned(), body.clone()),
        (String::new(), body),
    ];
    let graph = GraphServer::start();
    let story = graph.story();
    story.server().always(says("Hello."));
    let judged = requests.map(|(signature, body)| {
        let request = post(&[("X-Hub-Signature-256", &signature)], &body);
        let mut command = story.command(["serve", "webhook", "whatsapp"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(request.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let is_accepted = output.stdout == ACCEPTED.as_bytes();
        (signature, body, is_accepted)
    });
    judged.to_vec()
}

/// The interpreter that `tests/real/telegram` installs.
fn real_python() -> Command {
    let python = std::env::var_os("NANOBOT_REAL_PYTHON").expect("tests/real/telegram sets it");
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/bot_api.py"));
    command
}

/// python-telegram-bot takes our server for the Bot API.
#[test]
#[ignore = "needs packages; see tests/README.md"]
fn real_telegram_client() {
    let telegram = TelegramServer::start();
    let file =
        json!({ "file_id": "f1", "file_unique_id": "u1", "file_name": "a.txt", "file_size": 23 });
    let photo = json!([{ "file_id": "f1", "file_unique_id": "u1", "width": 9, "height": 5, "file_size": 23 }]);
    let quoted = json!({ "message_id": 1, "date": 1, "text": "quoted", "chat": { "id": 7, "type": "private" } });
    let origin = json!({ "type": "hidden_user", "date": 1, "sender_user_name": "Eve" });
    let direct = json!({ "id": 7, "type": "private" });
    let group = json!({ "id": -100, "type": "supergroup", "title": "Group" });
    for (chat, name, value) in [
        (&direct, "text", json!("hello")),
        (&group, "photo", photo),
        (&direct, "document", file),
        (&group, "reply_to_message", quoted),
        (&direct, "forward_origin", origin),
        (&group, "media_group_id", json!("album")),
        (&group, "message_thread_id", json!(3)),
    ] {
        let mut message =
            json!({ "from": { "id": 7, "first_name": "Ann", "is_bot": false }, "chat": chat });
        message[name] = value;
        telegram.add(message);
    }
    let limited = json!({ "ok": false, "error_code": 429, "description": "Too Many Requests: retry after 3",
        "parameters": { "retry_after": 3 } });
    telegram.fail("sendMessage", 429, limited);
    let output = real_python().args(["client", &telegram.base(), TOKEN]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "ok\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// The texts of the examples in CommonMark's specification.
fn commonmark_examples() -> Vec<String> {
    let path = std::env::var("NANOBOT_REAL_COMMONMARK").expect("tests/real/telegram sets it");
    let text = std::fs::read_to_string(path).unwrap();
    let code_fence = format!("{} example\n", "`".repeat(32));
    let examples = text.split(code_fence.as_str()).skip(1);
    let texts = examples.map(|rest| rest.split("\n.\n").next().unwrap().replace('→', "\t"));
    texts.collect()
}

/// Telegram's own parser takes what we send for each example of CommonMark, and shows its letters.
#[test]
#[ignore = "needs packages; see tests/README.md"]
fn real_telegram_markup() {
    let (story, telegram) = telegram_story();
    let examples = commonmark_examples();
    let count = examples.len();
    assert!(count > 600, "{count}");
    let model: Responder = Box::new(move |request: &Request| {
        let content = request.last_content();
        let number = content.rsplit("example ").next().unwrap().split('.').next();
        let number: usize = number.unwrap().parse().unwrap();
        says(&format!("Example {number}:\n\n{}", examples[number]))(request)
    });
    story.server().always(model);
    let story = story
        .set("channels.telegram.allowFrom", json!(["*"]))
        .set("memory", json!({ "consolidate": "manual" }));
    for number in 0..count {
        let sender = 1000 + i64::try_from(number).unwrap();
        telegram.message(sender, &format!("example {number}."));
    }
    // Each part comes in both forms.
    telegram.reject_markup();
    story.run(["channel", "poll"]).status(0);
    let mut open: BTreeMap<i64, Value> = BTreeMap::new();
    let mut lines = String::new();
    for call in telegram.calls("sendMessage") {
        let chat = call.body["chat_id"].as_i64().unwrap();
        if call.body["parse_mode"] == "HTML" {
            drop(open.insert(chat, call.body["text"].clone()));
        } else {
            let markup = open.remove(&chat).unwrap();
            let line = json!({ "markup": markup, "plain": call.body["text"] });
            writeln!(lines, "{line}").unwrap();
        }
    }
    let mut child = real_python()
        .arg("markup")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let checked = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(checked.trim().parse::<usize>().is_ok_and(|it| it >= count), "{checked} {error}");
}

/// Answers with what the examples of CommonMark lack: what services add to it, and mentions.
const ANSWERS: [&str; 18] = [
    "# Plan\n\n1. First, **measure**.\n2. Then *cut*.\n   - with a saw\n   - or ~~a knife~~ scissors\n\n> Measure twice.\n\nDone.",
    "```rust\nfn main() {\n    println!(\"<b> & *c* @all\");\n}\n```\nand `a*b*c` or ``d`e``.",
    "| Name | Price |\n|:-----|------:|\n| Tea | 3.50 |\n| `a b` | **4** |\n\nTwo drinks.",
    "a | b\n--|--\nc \\| d | e",
    "See [the page](https://example.org/a_b_c?d=1&e=2) and https://example.org/f_g_h, or <https://example.org/i>.",
    "![a cat](https://example.org/cat.png) and [a file](notes.md)",
    "Hello @all, @channel, @here, @everyone and @ann. Mail ann@example.org.",
    "`@all` and\n```\n@here <@500000000000000007>\n```",
    "<@500000000000000007> <@!500000000000000007> <@&700000000000000001> <#600000000000000001>",
    "<@U1> <!here> <!subteam^S1> <#C1|town>",
    "- [ ] to do\n- [x] done\n  1. one\n  2. two",
    "snake_case_name, 2 * 3 * 4, a_b, __init__.py, file*.txt, C:\\dir\\new",
    "10 < 20 && 30 > 20; a <b>bold</b> tag; &amp; and &lt; as text",
    "~/notes costs $5 or $6; $x^2$ and $$y$$; 50% ~about~ ~20",
    "||hidden|| -# small\n-# small\n>>> all\nthe rest",
    "Steps:\n\n* one\n\n  more of one\n\n* two\n\n      code\n\n---\nEnd :smile: ¯\\_(ツ)_/¯ #tag <t:1700000000>",
    "**Überschrift:** «Wörter» *größer* und 日本語**太字**です",
    "Term\n===\n\nText[^1]\n\n[^1]: note\n\n[ref]: https://example.org\n\n[ref] and [text][ref]",
];

/// The parsers of the services' own programs, and of others where those are not public, show the letters of what we send
/// for each example of CommonMark, and find no mentions.
#[test]
#[ignore = "needs packages; see tests/README.md"]
fn real_markdown_parsers() {
    let mut texts = commonmark_examples();
    texts.extend(ANSWERS.map(str::to_owned));
    let mut lines = String::new();
    for service in OF_CONVERSATIONS.map(|start| start()) {
        let story = story_without_limit(&*service, texts.len());
        let name = service.facts().name;
        let texts = texts.clone();
        let answers = texts.clone();
        story.server().always(Box::new(move |request: &Request| {
            let content = request.last_content();
            let number = content.rsplit("example ").next().unwrap().split('.').next();
            let number: usize = number.unwrap().parse().unwrap();
            says(&answers[number])(request)
        }));
        for number in 0..texts.len() {
            service.write_in(number, &format!("example {number}."));
        }
        while !story.run(["channel", "poll"]).text().is_empty() {}
        let dialect = table::find(name).unwrap().dialect;
        for (number, text) in texts.iter().enumerate() {
            let plain = dialect::render(text, dialect).into_iter();
            let plain: Vec<String> = plain.map(|part| part.plain).collect();
            let markup = service.answers_in(number);
            let line = json!({ "service": name, "text": text, "markup": markup, "plain": plain });
            writeln!(lines, "{line}").unwrap();
        }
    }
    for text in &texts {
        let (markup, plain) = dialect::render(text, Dialect::SlackText)
            .into_iter()
            .map(|part| (part.markup, part.plain))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        let line = json!({ "service": "mrkdwn", "text": text, "markup": markup, "plain": plain });
        writeln!(lines, "{line}").unwrap();
    }
    let modules = std::env::var_os("NANOBOT_REAL_PARSERS").expect("tests/real/markdown sets it");
    let mut child = Command::new("node")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/markdown.cjs"))
        .arg(modules)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let checked = String::from_utf8_lossy(&output.stdout);
    assert_eq!(checked.trim(), format!("{} texts", lines.lines().count()));
}

/// A server of others, which ends with the test.
struct ServerProgram(Child);

impl ServerProgram {
    /// Starts a program and waits until it listens at `socket`.
    fn start(command: &mut Command, socket: &Path) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self(child.spawn().unwrap());
        until("the server listens", || UnixStream::connect(socket).is_ok());
        server
    }
}

impl Drop for ServerProgram {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A story whose model answers with the message in capitals.
fn shouting_story() -> Story {
    let story = Story::new();
    story.server().always(Box::new(|request: &Request| {
        let content = request.last_content();
        let text = content.lines().next().unwrap_or_default().to_uppercase();
        says(&text)(request)
    }));
    story
}

/// Runs a script of a shell with our program first in PATH.
fn run_script(story: &Story, script: &str) -> String {
    let mut command = story.program("bash");
    let dir = Path::new(NANOBOT).parent().unwrap().display();
    command.env("PATH", format!("{dir}:{}", story.path()));
    command.args(["-euo", "pipefail", "-c", script]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn pipe_answers_messages_of_redis() {
    if !(require("redis-server") && require("jq")) {
        return;
    }
    let story = shouting_story();
    let mut server = story.program("redis-server");
    server.args(["--port", "0", "--unixsocket", "redis.sock", "--save", ""]);
    let _server = ServerProgram::start(&mut server, &story.dir().join("redis.sock"));
    // A stream keeps what was not acknowledged. Run twice, since the second run repeats what the first one read.
    let script = r#"
        redis() { redis-cli -s redis.sock --json "$@"; }
        redis XGROUP CREATE ask bots 0 MKSTREAM > created
        for text in one two three; do redis XADD ask '*' text "$text" session "$text" > added; done
        for run in 1 2; do
          redis XREADGROUP GROUP bots bot STREAMS ask "$([ $run = 1 ] && echo '>' || echo 0)" |
            jq -c '.ask[]? | {id: .[0], text: .[1][1], session: .[1][3]}' |
            nanobot serve pipe --name redis -j 2 |
            jq -r 'select(.type == "message") | [.in_reply_to, .text] | @tsv' |
            while IFS=$'\t' read -r id text; do
              redis HSET answers "$id" "$text" > written
            done
        done
        redis HVALS answers | jq -c sort"#;
    let text = run_script(&story, script);
    assert_eq!(text, "[\"ONE\",\"THREE\",\"TWO\"]\n");
    // The second run was answered from the inbox.
    assert_eq!(story.requests().len(), 3);
}

#[test]
fn pipe_answers_messages_of_mqtt() {
    if !(require("mosquitto") && require("mosquitto_sub") && require("jq")) {
        return;
    }
    let story = shouting_story();
    let config = "listener 0 mqtt.sock\nallow_anonymous true\nuser root\n";
    let story = story.file("broker.conf", config);
    let mut server = story.program("/usr/sbin/mosquitto");
    server.args(["-c", "broker.conf"]);
    let _server = ServerProgram::start(&mut server, &story.dir().join("mqtt.sock"));
    // The session of the subscriber is kept by the broker, so that it gets what was published in between.
    let script = r#"
        at="--unix mqtt.sock -q 1"
        mosquitto_sub $at -c -i bot -t ask/# -E
        for text in one two three; do mosquitto_pub $at -t "ask/$text" -m "$text"; done
        mosquitto_sub $at -c -i bot -t ask/# -F %j -C 3 |
          jq -c '{session: .topic, text: .payload}' |
          nanobot serve pipe -j 2 |
          jq -r 'select(.type == "message") | .text' |
          mosquitto_pub $at -t answers -r -l
        mosquitto_sub $at -t answers -C 1"#;
    let text = run_script(&story, script);
    assert!(["ONE\n", "TWO\n", "THREE\n"].contains(&text.as_str()), "{text}");
    assert_eq!(story.requests().len(), 3);
}
