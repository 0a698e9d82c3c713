//! Bindings: chats and senders with a workspace, a profile, a model and a budget of their own.

use crate::budgets::with_price;
use crate::channel::{ANN, telegram_story};
use crate::chat_services::StandIn;
use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::mail_server::{MailServer, verified};
use crate::matrix_server::MatrixServer;
use crate::server::{calls, says};
use crate::slack_server::{self, SlackServer};
use crate::story::{Story, write};
use crate::telegram_server::TelegramServer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A sender who is bound, beside Ann, the owner.
const KIM: i64 = 8;

/// A workspace beside that of the owner, with a memory.
fn kids(story: &Story) -> PathBuf {
    let kids = story.home().join("kids");
    write(&kids.join("memory/MEMORY.md"), b"The guinea pig is Gus.");
    kids
}

/// A story in which Kim is bound to a workspace.
fn bound_story() -> (Story, TelegramServer, PathBuf) {
    let (story, telegram) = telegram_story();
    let story = story
        .set("channels.telegram.allowFrom", json!(["7", "8"]))
        .set("memory", json!({ "consolidate": "manual" }))
        .workspace_file("memory/MEMORY.md", "The safe opens with 4711.")
        .workspace_file("skills/taxes/SKILL.md", "---\nname: taxes\ndescription: d\n---\nx");
    let kids = kids(&story);
    write(&kids.join("skills/kiting/SKILL.md"), b"---\nname: kiting\ndescription: d\n---\nx");
    bind(&story, &["telegram", "--sender", "8", "-w", kids.to_str().unwrap()]);
    (story, telegram, kids)
}

/// Binds, and returns the notice.
fn bind(story: &Story, arguments: &[&str]) -> String {
    story.run([&["channel", "bind"], arguments].concat()).error_text()
}

/// The answers to `texts` of a sender, each of which is sent after the answer to the one before.
fn answers(story: &Story, telegram: &TelegramServer, sender: i64, texts: &[&str]) -> Vec<String> {
    let before = telegram.sent().len();
    for text in texts {
        telegram.message(sender, text);
        story.run(["channel", "poll"]);
    }
    telegram.sent().split_off(before)
}

/// The ids of the jobs in a workspace.
fn job_ids(workspace: &Path) -> Vec<String> {
    let text = std::fs::read(workspace.join("cron/jobs.json")).unwrap_or_default();
    let file: Value = serde_json::from_slice(&text).unwrap_or_default();
    let jobs = file["jobs"].as_array().cloned().unwrap_or_default();
    jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn nothing_leaks_between_two_personas() {
    let (story, telegram, kids) = bound_story();
    let story = story.set("tools.allow", json!(["sessions"]));
    let safe = story.workspace().join("memory/MEMORY.md");
    let pig = kids.join("memory/MEMORY.md");
    let remind = |text: &str| {
        calls("cron", json!({ "action": "add", "message": text, "every_seconds": 3600 }))
    };
    let send = |to: &str| {
        calls("message", json!({ "content": "psst", "channel": "telegram", "chat_id": to }))
    };
    let note = || calls("write_file", json!({ "path": "note.md", "content": "x" }));
    let attempts = |path: &Path| {
        let directory = path.parent().unwrap();
        [
            calls("read_file", json!({ "path": path })),
            calls("exec", json!({ "command": format!("cat '{}'", path.display()) })),
            calls("grep", json!({ "pattern": ".", "path": directory })),
            calls("sessions", json!({ "action": "search", "text": "word" })),
        ]
    };
    // The owner, then Kim, who cannot approve that the other's files are read: each tries everything that could show the other's.
    for (sender, other, word, file) in [(ANN, "8", "pelican", &pig), (KIM, "7", "walrus", &safe)] {
        story.server().script(attempts(file));
        story.server().script([send(other), remind(word), note(), says("Done.")]);
        let text = format!("the word is {word}");
        assert_eq!(answers(&story, &telegram, sender, &[&text])[0], "Done.");
    }
    let requests = story.requests();
    let (own, bound) = requests.split_at(requests.len() / 2);
    for (requests, foreign) in
        [(own, ["Gus", "walrus", "kiting"]), (bound, ["4711", "pelican", "taxes"])]
    {
        for request in requests {
            for word in foreign {
                assert!(!request.raw.contains(word), "{word}: {}", request.raw);
            }
        }
    }
    let texts_to = |chat: i64| -> Vec<Value> {
        let calls = telegram.calls("sendMessage").into_iter();
        let calls = calls.filter(|call| call.body["chat_id"] == chat);
        calls.map(|call| call.body["text"].clone()).collect()
    };
    assert_eq!(texts_to(KIM), ["Done."], "no message of the owner, and no question");
    let to_owner = texts_to(ANN);
    assert!(to_owner[1].to_string().contains("Question 1"), "{to_owner:?}");
    assert!(to_owner.iter().all(|text| text != "psst"), "{to_owner:?}");

    // Commands.
    for (sender, own, foreign) in [(ANN, "pelican", "walrus"), (KIM, "walrus", "pelican")] {
        let messages = answers(&story, &telegram, sender, &["/jobs", "/grants", "/skill", "/cost"]);
        assert!(messages[0].contains(own) && !messages[0].contains(foreign), "{messages:?}");
        assert_eq!(messages[2].contains("taxes"), sender == ANN, "{messages:?}");
    }
    let undone = answers(&story, &telegram, KIM, &["/undo", "/undo"]);
    assert_eq!(undone[0], "removed note.md");
    assert!(undone[1].starts_with("No turn of this chat"), "{undone:?}");
    assert!(story.workspace().join("note.md").exists());

    // The job of Kim runs in that workspace, and its answer stands in that session alone.
    let (own, bound) = (job_ids(&story.workspace()), job_ids(&kids));
    assert_eq!((own.len(), bound.len()), (1, 1));
    let table = story.crontab().table().unwrap();
    let line = table.lines().find(|line| line.contains(&bound[0])).unwrap();
    assert!(line.contains(" -w ") && line.contains("kids"), "{table}");
    story.server().script([says("Feed the walrus.")]);
    story.run(["-w", kids.to_str().unwrap(), "cron", "run", &bound[0]]);
    let request = story.last_request().raw;
    assert!(request.contains("Gus") && !request.contains("4711"), "{request}");
    for (arguments, is_there) in
        [(&["agent"][..], false), (&["-w", kids.to_str().unwrap(), "agent"], true)]
    {
        story.server().script([says("Yes.")]);
        let arguments = [arguments, &["-s", "telegram:8", "-m", "hi"]].concat();
        story.run(arguments).stdout("Yes.\n");
        assert_eq!(story.last_request().raw.contains("Feed the walrus."), is_there);
    }
}

#[test]
fn a_chat_keeps_to_its_profile_its_model_and_its_budget() {
    let (story, telegram, kids) = bound_story();
    let story =
        with_price(story).set("modelPresets", json!({ "small": "scripted", "big": "scripted" }));
    bind(
        &story,
        &["telegram", "--sender=8", "--profile", "plan", "--model", "small", "--budget", "2"],
    );
    story.run(["channel", "list"]).stdout_has(
        "telegram  sender 8  profile `plan`, workspace `~/kids`, model `small`, $2.00 a day",
    );
    let binding =
        story.run(["channel", "list", "--json"]).json()["channels"][0]["bindings"].clone();
    assert_eq!(binding[0]["daily_budget"], json!(2.0));
    assert_eq!((&binding[0]["kind"], &binding[0]["id"]), (&json!("sender"), &json!("8")));
    let write_file = calls("write_file", json!({ "path": "a.md", "content": "x" }));
    story.server().script([write_file, says("I may not.")]);
    let messages = answers(&story, &telegram, KIM, &["/model", "/model big", "write"]);
    assert!(messages[0].starts_with("Model: scripted"), "{messages:?}");
    assert!(messages[1].starts_with("Not done: the model of this chat is bound"), "{messages:?}");
    assert_eq!(messages[2], "I may not.");
    assert!(!kids.join("a.md").exists());
    let check_budget = |story: &Story| {
        telegram.message(KIM, "more");
        let result = story.run(["channel", "poll"]).status(4);
        result.stderr_has("the budget of today of its binding is used up");
        let text = telegram.sent().pop().unwrap();
        assert!(text.starts_with("I did not answer: the budget of today"), "{text}");
    };
    check_budget(&story);
    // The owner has no such limits.
    story.server().script([says("Yes.")]);
    assert_eq!(answers(&story, &telegram, ANN, &["hi"]), ["Yes."]);
    let story = story.env("NANOBOT_TEST_TIME", "2026-01-03T00:00:01Z");
    let remind =
        calls("cron", json!({ "action": "add", "message": "feed Gus", "every_seconds": 3600 }));
    // The call, the answer, and a run of the job with a call that its profile denies.
    bind(&story, &["telegram", "--sender=8", "--profile", "default", "--budget", "4"]);
    story.server().script([remind, says("I will.")]);
    assert_eq!(answers(&story, &telegram, KIM, &["remind me"]), ["I will."]);
    bind(&story, &["telegram", "--sender=8", "--profile", "plan"]);
    let id = job_ids(&kids).remove(0);
    let run = || story.run(["-w", kids.to_str().unwrap(), "cron", "run", &id]);
    let write_file = calls("write_file", json!({ "path": "a.md", "content": "x" }));
    story.server().script([write_file, says("Fed.")]);
    run();
    assert!(!kids.join("a.md").exists());
    // The cost of the job counts against the budget of its chat, which is used up for the next run.
    run().status(4).stderr_has("the budget of today of its binding is used up");
    check_budget(&story);
}

#[test]
fn a_binding_that_cannot_be_used_answers_nothing_from_another_memory() {
    let (story, telegram, kids) = bound_story();
    std::fs::rename(&kids, story.home().join("elsewhere")).unwrap();
    let apology = "I could not answer this message: my owner has to change my settings first.";
    telegram.message(KIM, "hi");
    story.run(["channel", "poll"]).status(78).stderr_has("kids` does not exist");
    assert_eq!(telegram.sent(), [apology]);
    assert!(!kids.exists(), "no empty memory takes its place");
    story.run(["config", "check"]).status(78).stdout_has("kids` does not exist");
    std::fs::rename(story.home().join("elsewhere"), &kids).unwrap();
    for (binding, problem) in [
        (json!({ "profile": "plam" }), "there is no profile `plam`"),
        (json!({ "profile": "full" }), "the profile `full` has no sandbox"),
        (json!({ "workspace": story.workspace().join("kids") }), "does not exist"),
        (json!({ "workspace": story.home().join(".nanobot") }), "lie in each other"),
        (json!({ "workspce": "/x" }), "unknown key `workspce`"),
    ] {
        let config = story.config_value();
        let path = story.home().join(".nanobot/config.json");
        let mut changed = config.clone();
        changed["channels"]["telegram"]["senders"]["8"] = binding;
        write(&path, changed.to_string().as_bytes());
        telegram.message(KIM, "hi");
        story.run(["channel", "poll"]).status(78).stderr_has(problem);
        assert_eq!(telegram.sent().pop().unwrap(), apology);
        story.run(["config", "check"]).status(78).stdout_has(problem);
        // Others are answered.
        if problem != "unknown key `workspce`" {
            story.server().script([says("Yes.")]);
            assert_eq!(answers(&story, &telegram, ANN, &["hi"]), ["Yes."]);
        }
        write(&path, config.to_string().as_bytes());
    }
    assert!(story.requests().iter().all(|request| !request.raw.contains("Gus")));
}

#[test]
fn the_command_refuses_what_cannot_be_bound() {
    let (story, _telegram) = telegram_story();
    let check = |arguments: &[&str], status: i32, error: &str| {
        let arguments = [&["channel", "bind"], arguments].concat();
        story.run(arguments).status(status).stderr_has(error);
    };
    let inner = story.workspace().join("kids");
    check(&["telegram", "--chat", "-5"], 2, "there is nothing to bind to");
    check(&["telegram", "--chat", " ", "--model", "m"], 2, "the id is empty");
    check(&["telegramm", "--chat", "-5", "--model", "m"], 2, "there is no channel");
    check(&["telegram", "--model", "m"], 2, "--chat");
    check(&["telegram", "--chat", "-5", "--profile", "full"], 78, "no sandbox");
    check(&["telegram", "--chat", "-5", "--profile", "plam"], 78, "there is no profile `plam`");
    check(&["telegram", "--chat", "-5", "-w", inner.to_str().unwrap()], 78, "lie in each other");
    check(&["telegram", "--chat", "-5", "--remove"], 66, "is not bound");
    assert!(!inner.exists());
    let notice = bind(&story, &["telegram", "--chat", "-5", "--model", "m"]);
    assert_eq!(notice, "nanobot: the chat -5 of telegram is bound: model `m`\n");
    bind(&story, &["telegram", "--chat", "-5", "--remove"]);
    let list = story.run(["channel", "list", "--json"]).json();
    assert_eq!(list["channels"][0]["bindings"], json!([]));
    assert!(!story.config_value().to_string().contains("chats"));
}

#[test]
fn a_second_person_is_told_of_and_may_be_bound_at_once() {
    let (story, telegram) = telegram_story();
    let story = story.set("channels.telegram.allowFrom", json!([]));
    let code_of = |sender: i64| {
        telegram.message(sender, "hi");
        story.run(["channel", "poll"]);
        telegram.sent().pop().unwrap().split("code is ").nth(1).unwrap()[..9].to_owned()
    };
    story.run(["channel", "pair", "approve", &code_of(ANN)]).stdout("✓ 7 may write in telegram\n");
    story
        .run(["channel", "pair", "approve", &code_of(KIM)])
        .stdout("✓ 8 may write in telegram\n")
        .stderr_has("8 shares the memory with all others who may write; `nanobot channel bind telegram --sender 8 --workspace DIR`");
    let kids = kids(&story);
    let kids = kids.to_str().unwrap();
    story.run(["channel", "pair", "approve", "-w", kids, "AAAA-AAAA"]).status(66).error_text();
    story.run(["channel", "pair", "approve", &code_of(9), "-w", kids]).text();
    assert_eq!(story.config_value()["channels"]["telegram"]["senders"]["9"]["workspace"], kids);
    story.server().script([says("Gus.")]);
    assert_eq!(answers(&story, &telegram, 9, &["who?"]), ["Gus."]);
    assert!(story.last_request().raw.contains("Gus"));
}

/// Kills the approval of a code with a workspace at the `n`-th system call of a kind: the sender is not let in without it.
fn kill_approval_at(kind: &str, n: usize) -> bool {
    let (story, telegram) = telegram_story();
    let story = story.set("channels.telegram.allowFrom", json!([]));
    telegram.message(KIM, "hi");
    story.run(["channel", "poll"]);
    let code = telegram.sent()[0].split("code is ").nth(1).unwrap()[..9].to_owned();
    let kids = kids(&story);
    let arguments = ["channel", "pair", "approve", &code, "-w", kids.to_str().unwrap()];
    let (result, is_killed) = run_with_fault(&story, &arguments, &[], (kind, "SIGKILL", n));
    result.code();
    result.text();
    result.error_text();
    let state = |story: &Story| {
        let pairing = std::fs::read_to_string(story.home().join(".nanobot/pairing.json")).unwrap();
        let pairing: Value = serde_json::from_str(&pairing).unwrap();
        let is_bound = story.config_value()["channels"]["telegram"]["senders"]["8"].is_object();
        (pairing["approved"]["telegram"].is_array(), is_bound)
    };
    let (is_approved, is_bound) = state(&story);
    assert!(is_bound || !is_approved, "{kind} {n}");
    if !is_approved {
        story.run(arguments).text();
        assert_eq!(state(&story), (true, true), "{kind} {n}");
    }
    is_killed
}

#[test]
fn a_killed_approval_opens_no_other_memory() {
    if can_inject() {
        let kinds = ["write", "fsync", "rename"];
        let calls: usize =
            kinds.map(|kind| inject_at_calls(|n| kill_approval_at(kind, n))).iter().sum();
        assert!(calls > 4, "only {calls} calls");
    }
}

#[test]
fn a_group_has_one_memory_and_a_topic_may_have_another() {
    let (story, telegram, kids) = bound_story();
    let family = story.home().join("family");
    bind(&story, &["telegram", "--chat", "-100", "-w", family.to_str().unwrap()]);
    bind(&story, &["telegram", "--chat", "-100:topic:5", "-w", kids.to_str().unwrap()]);
    story.server().always(says("Hi."));
    let ask = |sender: i64, chat: i64, topic: Option<i64>| {
        let before = story.requests().len();
        let mut message = json!({
            "from": { "id": sender, "is_bot": false }, "chat": { "id": chat, "type": "supergroup", "is_forum": true },
            "text": "hi @my_bot", "entities": [{ "type": "mention", "offset": 3, "length": 7 }],
        });
        if let Some(topic) = topic {
            message["message_thread_id"] = topic.into();
            message["is_topic_message"] = true.into();
        }
        telegram.add(message);
        story.run(["channel", "poll"]);
        let requests = story.requests();
        assert_eq!(requests.len(), before + 1, "{chat} {topic:?}");
        let raw = &requests[before].raw;
        (raw.contains("4711"), raw.contains("Gus"))
    };
    let mut config = story.config_value();
    config["channels"]["telegram"]["groupPolicy"] = "open".into();
    write(&story.home().join(".nanobot/config.json"), config.to_string().as_bytes());
    let (owner, child, neither) = ((true, false), (false, true), (false, false));
    // The group decides for all senders.
    assert_eq!(ask(ANN, -100, None), neither);
    assert_eq!(ask(KIM, -100, None), neither);
    assert_eq!(ask(ANN, -100, Some(5)), child);
    assert_eq!(ask(KIM, -100, Some(6)), neither);
    assert_eq!(ask(ANN, -200, None), owner);
    // The binding of a sender holds in direct chats. It cannot be left by a group that the sender has made.
    let before = story.requests().len();
    telegram.add(json!({
        "from": { "id": KIM, "is_bot": false }, "chat": { "id": -200, "type": "supergroup" },
        "text": "hi @my_bot", "entities": [{ "type": "mention", "offset": 3, "length": 7 }],
    }));
    story.run(["channel", "poll"]).status(78).stderr_has("which is not bound");
    assert_eq!(story.requests().len(), before);
    assert!(family.join("sessions/telegram_-100.jsonl").exists());
    assert!(family.join("sessions/telegram_-100_topic_6.jsonl").exists());
    assert!(kids.join("sessions/telegram_-100_topic_5.jsonl").exists());
}

/// A group gets another id when it becomes a supergroup.
#[test]
fn a_group_with_another_id_keeps_its_memory() {
    let (story, telegram, kids) = bound_story();
    bind(&story, &["telegram", "--chat", "-5", "-w", kids.to_str().unwrap(), "--model", "small"]);
    let notice = |chat: i64, members: Value| {
        let mut message = members;
        message["from"] = json!({ "id": ANN, "is_bot": false });
        message["chat"] = json!({ "id": chat, "type": "supergroup" });
        telegram.add(message);
    };
    let ask = |chat: i64| {
        story.server().script([says("Gus.")]);
        notice(
            chat,
            json!({ "text": "who? @story_bot", "entities": [{ "type": "mention", "offset": 5, "length": 10 }] }),
        );
    };
    let is_of_kids = || {
        let request = story.last_request();
        request.raw.contains("The guinea pig is Gus.") && !request.raw.contains("4711")
    };
    notice(-5, json!({ "migrate_to_chat_id": -1001 }));
    notice(-1001, json!({ "migrate_from_chat_id": -5 }));
    ask(-1001);
    // Where the binding cannot be written, the group is not answered with the memory of the owner.
    let lock = story.home().join(".nanobot/config.json.lock");
    std::fs::create_dir(&lock).unwrap();
    let failed = story.run(["channel", "poll"]).stderr_has("its binding was not carried over");
    assert_ne!(failed.code(), 0);
    assert_eq!(story.requests().len(), 0);
    std::fs::remove_dir(&lock).unwrap();
    story.run(["channel", "poll"]).stderr(
        "nanobot: channel telegram: the group -5 has the id -1001 now, and its binding was carried over\n",
    );
    assert!(is_of_kids());
    story.run(["channel", "list"]).stdout_has("chat -1001  workspace `~/kids`, model `small`");
    // A repeated notice changes nothing, and neither does one about a group that is not bound.
    bind(&story, &["telegram", "--chat", "-1001", "--model", "scripted"]);
    notice(-1001, json!({ "migrate_from_chat_id": -5 }));
    notice(-1002, json!({ "migrate_from_chat_id": -6 }));
    ask(-1001);
    story.run(["channel", "poll"]);
    assert!(is_of_kids());
    story.run(["channel", "list"]).stdout_has("chat -1001  workspace `~/kids`, model `scripted`");
}

#[test]
fn rooms_threads_and_addresses_are_bound_in_any_spelling() {
    let check = |story: &Story, arguments: &[&str], service: &str, write: &dyn Fn()| {
        let kids = kids(story);
        bind(story, &[arguments, &["-w", kids.to_str().unwrap()]].concat());
        story.server().script([says("Gus.")]);
        write();
        story.run(["channel", "poll"]);
        let requests = story.requests();
        assert_eq!(requests.len(), 1, "{service}");
        assert!(requests[0].raw.contains("The guinea pig is Gus."), "{service}");
        let names = std::fs::read_dir(kids.join("sessions")).unwrap();
        let has_session =
            names.flatten().any(|it| it.file_name().to_string_lossy().starts_with(service));
        assert!(has_session, "{service}");
        assert!(!story.workspace().join("sessions").join(format!("{service}.jsonl")).exists());
    };
    let first_look = |service: &dyn StandIn| {
        let story = Story::new()
            .set("channels", json!({ service.facts().name: service.open_chats(1) }))
            .set("memory", json!({ "consolidate": "manual" }));
        service.write_in(0, "before the first look");
        story.run(["channel", "poll"]);
        story
    };

    let matrix = MatrixServer::start();
    let story = first_look(&matrix);
    let arguments = ["matrix", "--chat", "!r0:h"];
    check(&story, &arguments, "matrix", &|| matrix.write("!r0:h", "@ann:h", "who?"));

    // A thread of a channel belongs to it.
    let slack = SlackServer::start();
    let story = first_look(&slack).set("channels.slack.groupPolicy", json!("open"));
    slack.add_channel("C1");
    story.run(["channel", "poll"]);
    check(&story, &["slack", "--chat", "C1"], "slack", &|| {
        slack.write("C1", slack_server::ANN, "who?");
    });

    let mail = MailServer::start();
    let story = first_look(&mail);
    story.server().forget_requests();
    check(&story, &["email", "--sender", " Ann0@Example.ORG "], "email", &|| {
        let header = format!(
            "{}\nFrom: ANN0@example.org\nSubject: Question\nMessage-ID: <m9@example.org>",
            verified()
        );
        mail.add(&header, "who?");
    });
}

#[test]
fn a_line_of_a_pipe_is_answered_as_its_chat_is_bound() {
    let (story, telegram, kids) = bound_story();
    story.server().script([says("Hi.")]);
    answers(&story, &telegram, KIM, &["hi"]);
    let line = json!({ "id": "1", "channel": "telegram", "chat": "8", "text": "who?" });
    let story = story.stdin(line.to_string());
    story.server().script([says("Gus.")]);
    story.run(["serve", "pipe", "--any-session"]).stdout_has("Gus.");
    let request = story.last_request().raw;
    assert!(request.contains("The guinea pig is Gus.") && !request.contains("4711"), "{request}");
    // A session of the pipe's own has nothing to do with it.
    story.server().script([says("No.")]);
    story.run(["serve", "pipe"]).stdout_has("No.");
    let request = story.last_request().raw;
    assert!(request.contains("4711") && !request.contains("Gus"), "{request}");
    std::fs::remove_dir_all(kids).unwrap();
    let output = story.run(["serve", "pipe", "--any-session"]).status(65).text();
    assert!(output.contains("there is no conversation"), "{output}");
}
