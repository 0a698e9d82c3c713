//! The promises of every chat service, against the stand-in of each. The peculiarities of a service are in its own file.

use crate::channel::send_signal;
use crate::channel_adapter::{Reader, open};
use crate::channel_approvals::{code_in, count_runs, running_model};
use crate::channel_program::ProgramService;
use crate::chat_services::{ALL, StandIn, StartService, story_of};
use crate::cron::jobs;
use crate::discord_server::DiscordServer;
use crate::mattermost_server::MattermostServer;
use crate::server::{calls, says};
use crate::slack_server::{APP_TOKEN, SlackServer};
use crate::story::{Story, write};
use crate::telegram_server::TelegramServer;
use crate::wait::until;
use nanobot_base::error::{Exit, exit_for};
use nanobot_channel::dialect;
use nanobot_channel::table::{self, ChannelKind};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

fn kind_of(service: &dyn StandIn) -> &'static ChannelKind {
    table::find(service.facts().name).unwrap()
}

#[test]
fn a_direct_message_is_answered_once() {
    for start in ALL {
        let service = start();
        let name = service.facts().name;
        let story = story_of(&*service, 1).script([says("**Hello** Ann.")]);
        service.write_in(0, "hi");
        story.run(["channel", "poll"]);
        story.run(["channel", "poll"]);
        assert_eq!(service.answers_in(0), [service.facts().hello], "{name}");
        assert_eq!(story.requests().len(), 1, "{name}");
        let session = story.session(service.facts().session_file);
        assert_eq!(session.iter().filter(|it| it["role"] == "user").count(), 1, "{name}");
        story.run(["channel", "check", name]).text();
        let key = format!("channels.{name}.{}", service.facts().secret_key);
        story.run(["channel", "show", name]).stdout_has(&format!("{key} = \"***\"\n"));
        let secret = story.config_value()["channels"][name][service.facts().secret_key].clone();
        let home = story.home().join(".nanobot/channels").join(name);
        for file in std::fs::read_dir(home).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(!text.contains(secret.as_str().unwrap()), "{name}: {text}");
        }
    }
}

#[test]
fn a_call_is_approved_by_its_code() {
    for service in ALL.map(|start| start()) {
        let name = service.facts().name;
        let story = story_of(&*service, 1).set("tools.permissions", json!({ "exec": "ask" }));
        story.server().always(running_model());
        let write = |text: &str| {
            service.write_in(0, text);
            story.run(["channel", "poll"]);
        };
        write("please run it");
        let answers = service.answers_in(0);
        if matches!(name, "ntfy" | "whatsapp") {
            // The service does not say who has written, or the bridge what was forwarded.
            assert_eq!(answers, ["I will tell you."]);
            continue;
        }
        let question = answers.iter().find(|it| it.contains("Question 1: Allow exec")).unwrap();
        write("yes AAAA-AAAA");
        assert_eq!(count_runs(&story), 0, "{name}");
        for _ in 0..2 {
            write(&format!("yes {}", code_in(question)));
            assert_eq!(count_runs(&story), 1, "{name}: {:?}", service.answers_in(0));
        }
        let last = service.answers_in(0).pop().unwrap();
        assert!(last.contains("Question 1 is no longer open."), "{name}: {last}");
    }
}

/// Where a service tells of presses by a connection, a poll that follows hears them.
#[test]
fn a_call_is_approved_by_a_press() {
    for service in ALL.map(|start| start()).into_iter().filter(|it| it.facts().has_buttons) {
        let name = service.facts().name;
        let mut story = story_of(&*service, 1).set("tools.permissions", json!({ "exec": "ask" }));
        if name == "slack" {
            story = story.set("channels.slack.appToken", json!(APP_TOKEN));
        }
        story.server().always(running_model());
        service.write_in(0, "please run it");
        story.run(["channel", "poll"]);
        assert_eq!(count_runs(&story), 0, "{name}");
        let mut command = story.command(["channel", "poll", "--follow"]);
        let child = story.start(&mut command);
        service.press(0, "yes");
        until("the call is made", || service.answers_in(0).last().is_some_and(|it| it == "Fine."));
        send_signal(&child, Signal::TERM);
        assert_eq!(story.wait(child).signal(), Some(15), "{name}");
        assert_eq!((count_runs(&story), story.requests().len()), (1, 3), "{name}");
        assert!(story.last_request().last_content().contains("approved_call"), "{name}");
        // The signal may have come before the delivery was recorded.
        story.run(["channel", "poll"]);
        story.run(["channel", "inbox"]).stdout("");
    }
}

#[test]
fn unknown_senders_are_paired_in_direct_messages() {
    for service in ALL.map(|start| start()) {
        if !kind_of(&*service).pairs {
            continue;
        }
        let name = service.facts().name;
        let story = story_of(&*service, 1)
            .set(&format!("channels.{name}.allowFrom"), json!([]))
            .script([says("Welcome.")]);
        service.write_in(0, "let me in");
        story.run(["channel", "poll"]);
        let messages = service.answers_in(0);
        let code = messages[0].split("code is ").nth(1).unwrap()[..9].to_owned();
        story.run(["channel", "pair", "approve", &code]).text();
        service.write_in(0, "and now?");
        story.run(["channel", "poll"]);
        assert_eq!(service.answers_in(0)[1..], ["Welcome."], "{name}");
    }
}

#[test]
fn a_bound_sender_has_a_memory_apart() {
    for service in ALL.map(|start| start()) {
        let name = service.facts().name;
        let story = story_of(&*service, 1).workspace_file("memory/MEMORY.md", "The owner is Olga.");
        story.server().always(says("Hello."));
        service.write_in(0, "the word is pelican");
        story.run(["channel", "poll"]);
        let message = last_inbound(&story, name);
        // A message of ntfy does not say who has written.
        let id = match name {
            "ntfy" => format!("--chat={}", message["chat"]["id"].as_str().unwrap()),
            _ => format!("--sender={}", message["from"]["id"].as_str().unwrap()),
        };
        let kids = story.home().join("kids");
        write(&kids.join("memory/MEMORY.md"), b"The kid is Kim.");
        let arguments = ["channel", "bind", name, &id, "-w", kids.to_str().unwrap()];
        story.run(arguments).stderr_has("is bound: workspace `~/kids`");
        story.server().forget_requests();
        service.write_in(0, "who?");
        story.run(["channel", "poll"]);
        let request = story.last_request().raw;
        assert!(request.contains("The kid is Kim."), "{name}: {request}");
        for word in ["Olga", "pelican"] {
            assert!(!request.contains(word), "{name}: {request}");
        }
        assert!(kids.join("sessions").join(service.facts().session_file).exists(), "{name}");
    }
}

#[test]
fn a_reminder_is_snoozed_and_stopped_by_a_reply() {
    let program: StartService = || Box::new(ProgramService::start());
    for service in ALL.into_iter().chain([program]).map(|start| start()) {
        let name = service.facts().name;
        let named = ["telegram", "matrix", "slack", "discord", "mattermost", "email", "program"];
        if !named.contains(&name) {
            continue;
        }
        let story = story_of(&*service, 1);
        story.server().always(says("Tea."));
        service.write_in(0, "hi");
        story.run(["channel", "poll"]);
        let chat = last_inbound(&story, name)["chat"]["id"].as_str().unwrap().to_owned();
        let add = ["cron", "add", "--name", "tea", "-m", "say tea", "--every", "1h"];
        let add = add.into_iter().chain(["--channel", name, "--to", &chat]);
        // A variable of all stories.
        story.run(add).stdout_has("Added job").stderr_has("jobs will not have");
        let id = jobs(&story)[0]["id"].as_str().unwrap().to_owned();
        // The result of the call that the model makes after a reply to the reminder.
        let call_after_reply = |text: &str, arguments: Value| {
            story.run(["cron", "run", &id]).text();
            assert_eq!(service.answers_in(0).last().unwrap(), "Tea.", "{name}");
            service.reply_in(0, text);
            story.server().script([calls("cron", arguments), says("Done.")]);
            story.run(["channel", "poll"]);
            assert_eq!(service.answers_in(0).last().unwrap(), "Done.", "{name}");
            story.last_request().last_content()
        };
        let snooze = json!({ "action": "snooze", "job_id": id, "at": "2026-12-24T18:00" });
        let result = call_after_reply("later", snooze);
        assert!(result.starts_with("Created job 'tea' (id: "), "{name}: {result}");
        let requests = story.requests();
        let note = format!("of the job tea (id: {id}, every hour), next run: ");
        assert!(requests[requests.len() - 2].last_content().contains(&note), "{name}");
        let result = call_after_reply("stop it", json!({ "action": "remove", "job_id": id }));
        assert!(result.starts_with(&format!("Stopped job {id}; ")), "{name}: {result}");
        let states: Vec<Value> = jobs(&story)
            .iter()
            .map(|job| json!([job["name"], job["enabled"], job["payload"]["message"]]))
            .collect();
        let expect = [json!(["tea", false, "say tea"]), json!(["tea", true, "say tea"])];
        assert_eq!(states, expect, "{name}");
    }
}

/// Reminders of `serve pipe`: none, because no job delivers to it. What a line says that it replies to is not believed.
#[test]
fn no_line_of_a_pipe_replies_to_a_reminder() {
    let service = TelegramServer::start();
    let mut story = story_of(&service, 1);
    let add = ["cron", "add", "-m", "say tea", "--every", "1h", "--to", "7", "--channel"];
    let cause = "this version cannot deliver to `pipe`";
    story.run(add.into_iter().chain(["pipe"])).stdout_has("not sent to pipe").stderr_has(cause);
    story.run(add.into_iter().chain(["telegram"])).stdout_has("Added job").error_text();
    let id = jobs(&story)[1]["id"].as_str().unwrap().to_owned();
    story.server().script([says("Hi."), says("Tea.")]);
    service.write_in(0, "hi");
    story.run(["channel", "poll"]);
    story.run(["cron", "run", &id]).text();
    assert_eq!(service.answers_in(0), ["Hi.", "Tea."]);
    let before = jobs(&story);
    let stop = json!({ "action": "remove", "job_id": id });
    for session in ["telegram:7", "bus:7"] {
        let line = json!({ "session": session, "text": "stop it", "reply_to": "1002" });
        story = story.stdin(line.to_string());
        story.server().script([calls("cron", stop.clone()), says("Not stopped.")]);
        let pipe = story.run(["serve", "pipe", "--any-session"]).stdout_has("Not stopped.");
        pipe.stderr_has(&format!("denied: cron: the job `{id}` was created by the user"));
        assert_eq!(jobs(&story), before);
    }
}

/// The last message that was stored.
fn last_inbound(story: &Story, channel: &str) -> Value {
    let inbox = story.home().join(".nanobot/channels").join(channel).join("inbox.jsonl");
    let inbox = std::fs::read_to_string(inbox).unwrap();
    let mut lines = inbox.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.rfind(|line| line["type"] == "in").unwrap()["message"].clone()
}

#[test]
fn a_wrong_secret_ends_the_poll() {
    for service in ALL.map(|start| start()) {
        let name = service.facts().name;
        let key = format!("channels.{name}.{}", service.facts().secret_key);
        let story = story_of(&*service, 1).set(&key, json!("1:wrong"));
        service.write_in(0, "hi");
        let before = service.request_count();
        let text = story.run(["channel", "poll"]).status(77).error_text();
        assert!(text.contains("not accept") || text.contains("channel login"), "{text}");
        assert!(service.request_count() <= before + 2, "{name}");
        assert!(service.answers_in(0).is_empty(), "{name}");
        story.run(["channel", "check", name]).status(77).error_text();
    }
}

/// Every key that a login asks for is needed, and no secret goes to another machine unencrypted.
#[test]
fn keys_that_are_missing() {
    for service in ALL.map(|start| start()) {
        let (name, keys) = (service.facts().name, service.open_chats(1));
        let questions = kind_of(&*service).login.iter().filter(|it| !it.is_optional);
        // A server may take mail without a login. The agent's id matters only where everyone is answered.
        let optional = ["smtpUsername", "smtpPassword", "agentUserId"];
        let questions = questions.filter(|it| !optional.contains(&it.key));
        let required = questions.filter(|it| keys[it.key].is_string()).map(|it| (it.key, ""));
        let members = keys.as_object().unwrap().iter();
        let is_address = |value: &Value| value.as_str().is_some_and(|it| it.starts_with("http://"));
        let addresses = members.filter(|(_, value)| is_address(value));
        let addresses = addresses.map(|(key, _)| (key.as_str(), "http://chat.example.org"));
        for (key, value) in required.chain(addresses) {
            let mut keys = keys.clone();
            keys[key] = json!(value);
            let failed = open(name, &keys).err().map(|error| exit_for(&error));
            assert_eq!(failed, Some(Exit::Config), "{name} {key}");
        }
    }
}

#[test]
fn all_of_a_long_answer_is_sent() {
    let long = "word ".repeat(5000);
    for service in ALL.map(|start| start()) {
        let story = story_of(&*service, 1).script([says(&long)]);
        service.write_in(0, "tell me more");
        story.run(["channel", "poll"]);
        let (parts, kind) = (service.answers_in(0), kind_of(&*service));
        assert_eq!(parts.concat().matches("word").count(), 5000, "{}", kind.name);
        assert_eq!(parts.len(), dialect::render(&long, kind.dialect).len(), "{}", kind.name);
    }
}

#[test]
fn a_long_answer_keeps_code_whole() {
    let services: [(StartService, usize); 3] = [
        (|| Box::new(SlackServer::start()), 800),
        (|| Box::new(MattermostServer::start()), 900),
        (|| Box::new(DiscordServer::start()), 150),
    ];
    for (start, lines) in services {
        let service = start();
        let code = "let a = 1;\n".repeat(lines);
        let text = format!("```rust\n{code}```\n\n```rust\n{code}```");
        let story = story_of(&*service, 1).script([says(&text)]);
        service.write_in(0, "code");
        story.run(["channel", "poll"]);
        let parts = service.answers_in(0);
        assert_eq!(parts.len(), 2);
        let is_whole = |part: &String| part.starts_with("```rust\n") && part.ends_with("\n```");
        assert!(parts.iter().all(is_whole), "{parts:?}");
    }
}

/// Messages that came while no poll ran are read in their order, and once.
#[test]
fn long_histories_are_read_to_their_end() {
    for service in ALL.map(|start| start()) {
        // The others hand on messages as they come.
        if service.facts().keeps_messages || matches!(service.facts().name, "email" | "mochat") {
            continue;
        }
        let name = service.facts().name;
        let channel = open(name, &service.open_chats(1)).unwrap();
        let identity = channel.identity().unwrap();
        let mut reader = Reader { channel: &*channel, cursor: None };
        let mut read = || -> Vec<String> {
            let messages = reader.poll_as(&identity.id, Duration::ZERO).unwrap().into_iter();
            messages.map(|it| it.text.as_str().to_owned()).collect()
        };
        assert_eq!(read(), [""; 0], "{name}");
        let numbers: Vec<String> = (1..450).map(|number| number.to_string()).collect();
        numbers.iter().for_each(|text| service.write_in(0, text));
        assert_eq!(read(), numbers, "{name}");
        assert_eq!(read(), [""; 0], "{name}");
        service.write_in(0, "last");
        assert_eq!(read(), ["last"], "{name}");
    }
}
