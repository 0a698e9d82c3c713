//! `channel poll`, `serve webhook` and `pipe --name`, killed at system calls: no message is lost, and none is answered twice, apart from the
//! part that is in flight where the service cannot recognise it.

use crate::channel::telegram_story;
use crate::channel_listen::{ACCEPTED, SIGNING_SECRET, signed_request, slack_request};
use crate::channel_weixin::WeixinServer;
use crate::chat_services::{ServiceFacts, StandIn, StartService, story_of};
use crate::discord_server::{self, DiscordServer};
use crate::fault_injection::{can_inject, inject_at_calls, is_exhaustive, run_with_fault};
use crate::graph_server::{GraphServer, STORY_TIME, text_message, webhook};
use crate::mail_server::MailServer;
use crate::matrix_server::MatrixServer;
use crate::mattermost_server::MattermostServer;
use crate::push_servers::PushServer;
use crate::server::{Request, Responder, says};
use crate::slack_server::{self, SlackServer};
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// System calls that change something outside of the program. A kill at any other finds what the last of them has left.
const TRACED_CALLS: [&str; 4] = ["write", "rename", "sendto", "mkdir"];
/// Those between which the steps of a service differ: its requests, and what is on disk before and after each. The code around the other
/// writes is shared, so one service is enough for them, unless all faults are injected.
const SERVICE_CALLS: [&str; 3] = ["fsync", "rename", "sendto"];
/// Calls of a kind that begin a poll and answer its first messages. All of them are tried; the later messages make the same
/// calls again.
const FIRST_CALLS: usize = 40;
/// The step between the later calls that are tried: no divisor of the calls that a message makes.
const LATER_STEP: usize = 7;

/// A model that repeats the number in the message.
fn repeating_model() -> Responder {
    Box::new(|request: &Request| {
        let content = request.last_content();
        let number = content.rsplit("number ").next().unwrap_or_default();
        let number: String = number.chars().take_while(char::is_ascii_digit).collect();
        says(&format!("It is {number}."))(request)
    })
}

/// Runs the program, kills it at the `n`-th system call of a kind, and returns its output, and whether there was such a
/// call.
fn run_killed(story: &Story, arguments: &[&str], kind: &str, n: usize) -> (String, bool) {
    let (result, is_killed) = run_with_fault(story, arguments, &[], (kind, "SIGKILL", n));
    result.code();
    result.error_text();
    (result.text(), is_killed)
}

/// Polls until nothing waits.
fn finish(story: &Story, kind: &str, n: usize) {
    // The second poll repeats nothing.
    for _ in 0..2 {
        story.run(["channel", "poll"]);
    }
    let inbox = story.run(["channel", "inbox"]).text();
    assert_eq!(inbox, "", "{kind} {n}");
}

/// Kills a poll at the `n`-th system call of a kind, with a message in each of `count` direct chats, and polls until nothing
/// waits. Each message is answered, once where the service knows our parts; elsewhere the part in flight may come twice.
/// Returns whether there was such a call.
fn kill_poll_at(start: StartService, kind: &str, n: usize, count: usize) -> bool {
    let service = start();
    let story = story_of(&*service, count).set("channels.maxParallel", json!(1));
    story.server().always(repeating_model());
    for chat in 0..count {
        service.write_in(chat, &format!("number {chat}"));
    }
    let (_, is_killed) = run_killed(&story, &["channel", "poll"], kind, n);
    finish(&story, kind, n);
    let ServiceFacts { name, knows_parts, .. } = service.facts();
    let answers: Vec<Vec<String>> = (0..count).map(|chat| service.answers_in(chat)).collect();
    let case = format!("{name} {kind} {n}: {answers:?}");
    for (chat, texts) in answers.iter().enumerate() {
        let expect = format!("It is {chat}.");
        assert!(!texts.is_empty() && texts.iter().all(|text| *text == expect), "{case}");
    }
    let repeated = answers.iter().flatten().count() - count;
    assert!(repeated <= usize::from(is_killed && !knows_parts), "{case}");
    assert!(story.requests().len() <= count + 1, "{case}");
    is_killed
}

/// A Mattermost that has forgotten the keys of parts when it is asked: the channel looks for them.
fn forgetful_mattermost() -> Box<dyn StandIn> {
    let server = MattermostServer::start();
    server.forget_pending_ids();
    Box::new(server)
}

/// Services that are asked for what is new.
const ASKED: [StartService; 6] = [
    || Box::new(TelegramServer::start()),
    || Box::new(MatrixServer::start()),
    || Box::new(MailServer::start()),
    forgetful_mattermost,
    || Box::new(SlackServer::start()),
    || Box::new(DiscordServer::start()),
];

/// Services that send messages over a WebSocket, and one that keeps them until they are fetched.
const SENDING: [StartService; 4] = [
    || Box::new(PushServer::by_name("dingtalk")),
    || Box::new(PushServer::by_name("feishu")),
    || Box::new(PushServer::by_name("qq")),
    || Box::new(WeixinServer::start()),
];

/// Kills `serve webhook` of a request with `count` messages of WhatsApp. The service repeats the request if it was not
/// accepted, and sometimes though it was. Only the part in flight may come twice.
fn kill_whatsapp_listen_at(kind: &str, n: usize, count: usize) -> bool {
    let graph = GraphServer::start();
    let message = |number: usize| {
        let (id, from) = (format!("wamid.{number}"), format!("49{number:03}"));
        text_message(&id, &from, &format!("number {number}"))
    };
    let body = webhook(&(0..count).map(message).collect());
    let story = graph
        .story()
        .set("channels.whatsapp.allowFrom", json!(["*"]))
        .set("channels.maxParallel", json!(1))
        .set("memory", json!({ "consolidate": "manual" }))
        .stdin(signed_request(&body));
    story.server().always(repeating_model());
    let arguments = ["serve", "webhook", "whatsapp"];
    let (response, is_killed) = run_killed(&story, &arguments, kind, n);
    if response != ACCEPTED || n.is_multiple_of(2) {
        story.run(arguments).stdout(ACCEPTED);
    }
    finish(&story, kind, n);
    let case = format!("{kind} {n}");
    let mut answers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for messages in graph.sent() {
        let text = messages["text"]["body"].as_str().unwrap().to_owned();
        let to = messages["to"].as_str().unwrap().to_owned();
        answers.entry(to).or_default().push(text);
    }
    let repeated: usize = answers.values().map(|texts| texts.len() - 1).sum();
    assert_eq!(answers.len(), count, "{case}: {answers:?}");
    assert!(repeated <= usize::from(is_killed), "{case}: {answers:?}");
    for (number, texts) in answers.values().enumerate() {
        let expect = format!("It is {number}.");
        assert!(texts.iter().all(|text| *text == expect), "{case}: {texts:?}");
    }
    assert!(story.requests().len() <= count + 1, "{case}");
    is_killed
}

/// Kills `serve webhook` of an event of Slack that tells of `count` messages. A later poll finds what it has not answered.
fn kill_slack_listen_at(kind: &str, n: usize, count: usize) -> bool {
    let server = SlackServer::start();
    let names: Vec<String> = (0..count).map(|number| format!("D{number}")).collect();
    for name in &names {
        server.add_channel(name);
    }
    let mut keys = server.keys();
    keys["signingSecret"] = json!(SIGNING_SECRET);
    let story = Story::new()
        .set("channels", json!({ "slack": keys, "maxParallel": 1 }))
        .set("memory", json!({ "consolidate": "manual" }));
    story.server().always(repeating_model());
    story.run(["channel", "poll"]);
    for (number, name) in names.iter().enumerate() {
        server.write(name, slack_server::ANN, &format!("number {number}"));
    }
    let event =
        json!({ "type": "event_callback", "event": { "type": "message", "channel": "D0" } });
    let story = story.stdin(slack_request(STORY_TIME, &event.to_string()));
    let (_, is_killed) = run_killed(&story, &["serve", "webhook", "slack"], kind, n);
    finish(&story, kind, n);
    for (number, name) in names.iter().enumerate() {
        let expect = [format!("It is {number}.")];
        assert_eq!(server.answer_texts(name), expect, "{kind} {n}");
    }
    assert!(story.requests().len() <= count + 1, "{kind} {n}");
    is_killed
}

/// Kills `channel send` of a text and a file at the `n`-th system call of a kind, and sends again under the same key.
/// `count` returns how often the file was sent. Where a service knows a part by its key, that is once; elsewhere the one in
/// flight may come twice.
fn kill_upload_at(
    (kind, n): (&str, usize),
    story: Story,
    recipient: [&str; 2],
    is_keyed: bool,
    count: &dyn Fn() -> usize,
) -> bool {
    let story = story.file("report.txt", "the report");
    let [name, to] = recipient;
    let arguments = ["channel", "send", name, to, "see", "-a", "report.txt", "--key", "k"];
    let (_, is_killed) = run_killed(&story, &arguments, kind, n);
    story.run(arguments).text();
    finish(&story, kind, n);
    let (sent, repeated) = (count(), usize::from(is_killed && !is_keyed));
    let case = format!("{name} {kind} {n}: {sent}");
    assert!((1..=1 + repeated).contains(&sent), "{case}");
    is_killed
}

fn kill_discord_upload_at(kind: &str, n: usize) -> bool {
    let server = DiscordServer::start();
    let story = Story::new().set("channels", json!({ "discord": server.keys() }));
    let to = ["discord", discord_server::DIRECT];
    kill_upload_at((kind, n), story, to, true, &|| {
        let messages = server.answers(discord_server::DIRECT);
        messages.iter().filter(|it| it["files"].is_array()).count()
    })
}

fn kill_mattermost_upload_at(kind: &str, n: usize) -> bool {
    let server = MattermostServer::start();
    server.forget_pending_ids();
    let story = Story::new().set("channels", json!({ "mattermost": server.keys() }));
    kill_upload_at((kind, n), story, ["mattermost", "direct"], true, &|| {
        let messages = server.answers("direct");
        messages.iter().filter(|it| it["file_ids"].is_array()).count()
    })
}

fn kill_slack_upload_at(kind: &str, n: usize) -> bool {
    let server = SlackServer::start();
    let story = Story::new().set("channels", json!({ "slack": server.keys() }));
    kill_upload_at((kind, n), story, ["slack", "D1"], false, &|| {
        server.calls("files.completeUploadExternal").len()
    })
}

fn kill_whatsapp_upload_at(kind: &str, n: usize) -> bool {
    let graph = GraphServer::start();
    kill_upload_at((kind, n), graph.story(), ["whatsapp", "49"], false, &|| {
        let messages = graph.sent();
        messages.iter().filter(|it| it["document"].is_object()).count()
    })
}

/// Kills a named pipe at the `n`-th system call of a kind, and writes the same lines to the next run. Returns whether there
/// was such a call.
fn kill_pipe_at(kind: &str, n: usize, count: usize) -> bool {
    let lines = (0..count).map(|number| {
        let line = json!({ "id": format!("m{number}"), "session": format!("s{number}"),
            "text": format!("number {number}") });
        format!("{line}\n")
    });
    let story = Story::new()
        .set("memory", json!({ "consolidate": "manual" }))
        .stdin(lines.collect::<String>());
    story.server().always(repeating_model());
    // One worker, since calls are counted by thread.
    let arguments = ["serve", "pipe", "-j", "1", "--name", "bus"];
    let (_, is_killed) = run_killed(&story, &arguments, kind, n);
    let case = format!("{kind} {n}");
    let output = story.run(arguments).text();
    let mut answers: BTreeMap<String, String> = BTreeMap::new();
    for line in output.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["type"] == "message" {
            let id = line["in_reply_to"].as_str().unwrap().to_owned();
            answers.insert(id, line["text"].as_str().unwrap().to_owned());
        }
    }
    for number in 0..count {
        let answer = answers.get(&format!("m{number}"));
        assert_eq!(answer, Some(&format!("It is {number}.")), "{case}");
        // A turn that was killed is resumed: its message is in the session once.
        let session = story.session(&format!("bus_s{number}.jsonl"));
        let messages = session.iter().filter(|line| line["role"] == "user");
        assert_eq!(messages.count(), 1, "{case}: {session:?}");
    }
    assert!(story.requests().len() <= count + 1, "{case}");
    is_killed
}

/// Kills at calls of all kinds.
fn kill_at_calls(kill: &dyn Fn(&str, usize) -> bool) {
    kill_at_kinds(&TRACED_CALLS, kill);
}

/// Kills a run of a further service, whose shared code another service has covered.
fn kill_at_service_calls(kill: &dyn Fn(&str, usize) -> bool) {
    let kinds: &[&str] = if is_exhaustive() { &TRACED_CALLS } else { &SERVICE_CALLS };
    kill_at_kinds(kinds, kill);
}

/// Kills at calls of these kinds. Each kind of run makes some ten of them.
fn kill_at_kinds(kinds: &[&str], kill: &dyn Fn(&str, usize) -> bool) {
    if can_inject() {
        let reached = |kind: &&str| inject_at_calls(|n| kill(kind, n));
        let calls: usize = kinds.iter().map(reached).sum();
        assert!(calls > 8, "only {calls} calls");
    }
}

#[test]
fn a_killed_poll_loses_no_message() {
    let [first, others @ ..] = ASKED;
    kill_at_calls(&|kind, n| kill_poll_at(first, kind, n, 2));
    for start in others {
        kill_at_service_calls(&|kind, n| kill_poll_at(start, kind, n, 2));
    }
}

#[test]
fn a_killed_poll_of_sent_messages_loses_none() {
    if !can_inject() {
        return;
    }
    // All at once: a poll waits for what the service may still send.
    std::thread::scope(|scope| {
        for start in SENDING {
            scope.spawn(move || {
                let kill = |kind: &str| inject_at_calls(|n| kill_poll_at(start, kind, n, 1));
                let kills = ["write", "sendto"].map(kill);
                assert!(kills.iter().sum::<usize>() > 5, "{kills:?}");
            });
        }
    });
}

/// Kills the run that has the session first after a message was delivered to its chat, or the run that delivers it: the
/// session has the message once.
fn kill_around_delivery(kind: &str, n: usize, kills_delivery: bool) -> bool {
    let (story, telegram) = telegram_story();
    let story = story.set("memory", json!({ "consolidate": "manual" }));
    story.server().always(says("Snoozed."));
    let send = ["channel", "send", "telegram", "7", "Call Bob.", "--key", "k"];
    let is_killed = if kills_delivery {
        run_killed(&story, &send, kind, n).1
    } else {
        story.run(send).text();
        telegram.message(7, "snooze this");
        run_killed(&story, &["channel", "poll"], kind, n).1
    };
    if kills_delivery {
        story.run(send).text();
        telegram.message(7, "snooze this");
    }
    finish(&story, kind, n);
    let lines = story.session("telegram_7.jsonl");
    let count = lines.iter().filter(|it| it["role"] == "assistant");
    let count = count.filter(|it| it["content"].to_string().contains("Call Bob.")).count();
    assert_eq!(count, 1, "{kind} {n}: {lines:?}");
    let request = story.last_request();
    assert_eq!(request.raw.matches("Call Bob.").count(), 1, "{kind} {n}: {}", request.raw);
    is_killed
}

#[test]
fn a_session_gets_what_was_delivered_once() {
    kill_at_calls(&|kind, n| kill_around_delivery(kind, n, false));
    if can_inject() {
        assert!(inject_at_calls(|n| kill_around_delivery("write", n, true)) > 0);
    }
}

#[test]
fn a_killed_webhook_request_loses_no_message() {
    kill_at_calls(&|kind, n| kill_whatsapp_listen_at(kind, n, 2));
    kill_at_service_calls(&|kind, n| kill_slack_listen_at(kind, n, 2));
}

#[test]
fn a_killed_upload_comes_once_where_the_service_knows_it() {
    kill_at_calls(&kill_discord_upload_at);
    kill_at_calls(&kill_mattermost_upload_at);
    kill_at_calls(&kill_slack_upload_at);
    kill_at_calls(&kill_whatsapp_upload_at);
}

#[test]
fn a_killed_pipe_with_a_name_loses_no_message() {
    kill_at_calls(&|kind, n| kill_pipe_at(kind, n, 2));
}

/// Kills at the calls of 20 messages: at each of the first, at each of the last, and at some of those between.
fn kill_everywhere(kill: &dyn Fn(&str, usize) -> bool) {
    if !can_inject() {
        return;
    }
    let mut kills = 0;
    for kind in TRACED_CALLS {
        let is_killed = |n: &usize| kill(kind, *n);
        let first = (1..=FIRST_CALLS).take_while(is_killed).count();
        kills += first;
        if first < FIRST_CALLS {
            continue;
        }
        let later = (FIRST_CALLS + LATER_STEP..).step_by(LATER_STEP);
        let later = later.take_while(is_killed).count();
        let reached = FIRST_CALLS + later * LATER_STEP;
        kills += later + (reached + 1..).take_while(is_killed).count();
    }
    assert!(kills > 100, "only {kills} kills");
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn a_poll_killed_at_any_call_loses_no_message() {
    for start in ASKED {
        // Mail takes several connections.
        let count = if start().facts().name == "email" { 9 } else { 20 };
        kill_everywhere(&|kind, n| kill_poll_at(start, kind, n, count));
    }
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn a_poll_of_sent_messages_killed_at_any_call_loses_none() {
    if !can_inject() {
        return;
    }
    for (start, kind) in SENDING.iter().flat_map(|start| TRACED_CALLS.map(|kind| (start, kind))) {
        (1..).take_while(|n| kill_poll_at(*start, kind, *n, 1)).for_each(drop);
    }
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn webhook_requests_killed_at_any_call_lose_no_message() {
    kill_everywhere(&|kind, n| kill_whatsapp_listen_at(kind, n, 20));
    kill_everywhere(&|kind, n| kill_slack_listen_at(kind, n, 20));
}

#[test]
#[ignore = "takes minutes; see tests/README.md"]
fn a_pipe_killed_at_any_call_loses_no_message() {
    kill_everywhere(&|kind, n| kill_pipe_at(kind, n, 20));
}
