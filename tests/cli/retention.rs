//! `retention.*`: each kind of data is removed at its age and not before, and what is in use stays.

use crate::channel::{telegram_config, telegram_story};
use crate::cron::{add_job, run_cron};
use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::server::says;
use crate::session_commands::session_text;
use crate::story::{Story, write};
use nanobot::cli::topics::find_topic;
use nanobot_channel::inbox::{ChannelInbox, InboxRecord, OutboundMessage};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{InboundMessage, Part, RemoteFile};
use nanobot_config::settings::keys::KEYS;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The time of stories, 2026-01-02T03:04:05Z, in seconds since 1970.
const NOW: u64 = 1_767_323_045;
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// All ages in one unit, each of them another one.
const AGES: [(&str, u64); 8] = [
    ("sessions", 10),
    ("pipeSessions", 3),
    ("trash", 20),
    ("media", 5),
    ("runs", 12),
    ("ledger", 60),
    ("undo", 2),
    ("inbox", 4),
];

fn ages() -> Value {
    Value::Object(
        AGES.map(|(kind, days)| (kind.into(), format!("{days}d").into())).into_iter().collect(),
    )
}

fn root(story: &Story) -> PathBuf {
    story.home().join(".nanobot")
}

/// Sets the time of the last change of a file or directory.
fn change_at(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}

fn time(seconds: u64) -> String {
    jiff::Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap().to_string()
}

/// A file that was changed at this time.
fn plant(path: PathBuf, text: &str, seconds: u64) -> PathBuf {
    write(&path, text.as_bytes());
    change_at(&path, seconds);
    path
}

fn plant_session(story: &Story, name: &str, key: &str, seconds: u64) -> PathBuf {
    let path = story.workspace().join(format!("sessions/{name}.jsonl"));
    plant(path, &session_text(key, &[("user", "hello"), ("assistant", "hi")]), seconds)
}

/// The record of a run that ended at this time.
fn run_record(job: &str, outcome: &str, seconds: u64) -> Value {
    json!({ "version": 1, "id": format!("{seconds:x}"), "job": job, "name": job, "trigger": "schedule", "start": time(seconds),
        "end": time(seconds), "outcome": outcome, "status": 0, "cause": "answered", "session": "s", "turn": "t", "model": "m" })
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// The line of a call in the ledger.
fn call(seconds: u64) -> Value {
    let day = &time(seconds)[..10];
    json!({ "v": 1, "time": time(seconds), "day": day, "session": format!("s{seconds}"), "turn": "t", "job": null, "cause": "turn",
        "provider": "p", "model": "m", "input": 1, "cached": 0, "cache_write": 0, "output": 1, "reasoning": 0, "estimated": false,
        "usd": 0.25, "ms": 1, "outcome": "ok", "day_usd": 0.25, "month_usd": 0.25 })
}

fn tool_usage(seconds: u64) -> Value {
    json!({ "v": 1, "time": time(seconds), "day": time(seconds)[..10], "session": format!("s{seconds}"), "turn": "t", "requests": 1 })
}

/// A message that was answered at this time.
fn settled(id: &str, seconds: u64) -> Vec<InboxRecord> {
    let at = i64::try_from(seconds * 1000).unwrap();
    let answer = OutboundMessage {
        key: format!("re-{id}"),
        answers: vec![id.to_owned()],
        session: "telegram:1".into(),
        parts: vec![Part { plain: format!("answer {id}"), ..Part::default() }],
        at,
        ..OutboundMessage::default()
    };
    vec![
        received(id, at, vec![]),
        InboxRecord::Out(answer),
        InboxRecord::Done { key: format!("re-{id}"), result: Settlement::Delivered },
    ]
}

fn received(id: &str, at: i64, files: Vec<RemoteFile>) -> InboxRecord {
    let message = InboundMessage { id: id.into(), files, ..InboundMessage::default() };
    InboxRecord::In { message, session: "telegram:1".into(), at }
}

/// The kinds that have something of the time `AGE - offset` before the story's: what is left of it as text.
struct Planted {
    sessions: PathBuf,
    pipe_session: PathBuf,
    trash: PathBuf,
    media: PathBuf,
    runs: PathBuf,
    output: PathBuf,
    undo: PathBuf,
    seconds: u64,
}

/// Plants something of each kind whose age is reached `wait` seconds after the story's time.
fn plant_all(story: &Story, name: &str, wait: u64) -> Planted {
    let at = |kind: &str| {
        let days = AGES.iter().find(|(name, _)| *name == kind).unwrap().1;
        NOW + wait - days * DAY
    };
    let root = root(story);
    let digits = |seconds: u64| time(seconds).replace(['-', 'T', ':', 'Z'], "") + "000000";
    let runs = root.join(format!("cron/{name}/runs.jsonl"));
    write(&runs, lines(&[run_record(name, "ok", at("runs"))]).as_bytes());
    let journal = root.join(format!("undo/{}/journal.jsonl", wait + 1));
    plant(journal.clone(), "", at("undo"));
    let inbox = root.join("channels").join(name);
    ChannelInbox::open(&inbox).unwrap().append_all(settled("1", at("inbox") - DAY)).unwrap();
    let append = |file: &str, line: Value| {
        let path = root.join(file);
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        write(&path, format!("{before}{line}\n").as_bytes());
    };
    append("usage.jsonl", call(at("ledger") - DAY));
    append("tools.jsonl", tool_usage(at("ledger") - DAY));
    Planted {
        sessions: plant_session(story, name, name, at("sessions")),
        pipe_session: plant_session(
            story,
            &format!("pipe_{name}"),
            &format!("pipe:{name}"),
            at("pipeSessions"),
        ),
        trash: plant(
            story.workspace().join(format!("sessions/.trash/{}-x.jsonl.gone", digits(at("trash")))),
            &session_text("x", &[]),
            at("trash"),
        ),
        media: plant(root.join(format!("media/telegram/{name}.txt")), "x", at("media")),
        output: plant(
            root.join(format!("cron/{name}/output/20250101T000000.000Z.txt")),
            "x",
            at("runs"),
        ),
        runs,
        undo: journal,
        seconds: at("ledger") - DAY,
    }
}

impl Planted {
    /// The kinds of which nothing is left.
    fn removed(&self, story: &Story, name: &str) -> Vec<&'static str> {
        let root = root(story);
        let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let session = format!("s{}", self.seconds);
        let has = [
            ("sessions", self.sessions.exists()),
            ("pipeSessions", self.pipe_session.exists()),
            ("trash", self.trash.exists()),
            ("media", self.media.exists()),
            ("runs", self.output.exists() || !text(self.runs.clone()).is_empty()),
            ("ledger", text(root.join("usage.jsonl")).contains(&session)),
            ("tools", text(root.join("tools.jsonl")).contains(&session)),
            ("undo", self.undo.exists()),
            ("inbox", text(root.join(format!("channels/{name}/inbox.jsonl"))).contains("answer 1")),
        ];
        has.into_iter().filter(|(_, is_there)| !is_there).map(|(kind, _)| kind).collect()
    }
}

/// Runs a turn at this time.
fn turn_at(story: &Story, seconds: u64) {
    story.server().script([says("ok")]);
    let mut command = story.command(["agent", "-s", "now", "-m", "x"]);
    let child = story.start(command.env("NANOBOT_TEST_TIME", time(seconds)));
    story.wait(child).stdout("ok\n");
}

const ALL: [&str; 9] =
    ["sessions", "pipeSessions", "trash", "media", "runs", "ledger", "tools", "undo", "inbox"];

#[test]
fn each_kind_is_removed_at_its_age_and_not_before() {
    let story = Story::new().set("retention", ages());
    // Old for a second; then in half a day, and at the same time as the next examination.
    let old = plant_all(&story, "old", 0);
    change_all_before(&old, NOW);
    let recent = plant_all(&story, "recent", DAY);
    let pipes: Vec<PathBuf> = (0..20)
        .map(|index| {
            plant_session(&story, &format!("pipe_{index}"), &format!("pipe:{index}"), NOW - 9 * DAY)
        })
        .collect();
    turn_at(&story, NOW + 1);
    assert_eq!(old.removed(&story, "old"), ALL);
    assert!(!pipes.iter().any(|path| path.exists()));
    assert_eq!(recent.removed(&story, "recent"), [""; 0]);
    // Once a day.
    turn_at(&story, NOW + DAY);
    assert_eq!(recent.removed(&story, "recent"), [""; 0]);
    turn_at(&story, NOW + DAY + 1);
    assert_eq!(recent.removed(&story, "recent"), ALL);
    // The session can be restored, and its age counts from then on.
    let later = story.env("NANOBOT_TEST_TIME", &time(NOW + DAY + HOUR));
    later.run(["session", "restore", "recent", "-q"]).stdout("");
    assert!(recent.sessions.exists());
    turn_at(&later, NOW + 3 * DAY);
    assert!(recent.sessions.exists());
    turn_at(&later, NOW + 12 * DAY);
    assert!(!recent.sessions.exists());
}

#[test]
fn a_journal_that_cannot_be_read_stops_no_other() {
    let story = Story::new().set("retention", ages());
    let old = plant_all(&story, "old", 0);
    for name in ["a", "z"] {
        std::fs::create_dir_all(root(&story).join(format!("channels/{name}/inbox.jsonl"))).unwrap();
        std::fs::create_dir_all(root(&story).join(format!("media/{name}"))).unwrap();
    }
    story.server().script([says("ok")]);
    let story = story.env("NANOBOT_TEST_TIME", &time(NOW + 1));
    story
        .run(["agent", "-v", "-s", "now", "-m", "x"])
        .stdout("ok\n")
        .stderr_has("`retention.inbox`: read")
        .stderr_has("`retention.media`: read");
    assert_eq!(old.removed(&story, "old"), ALL);
}

/// Checks that each planted file is from before `seconds`.
fn change_all_before(planted: &Planted, seconds: u64) {
    let limit = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    for path in [&planted.sessions, &planted.media, &planted.output, &planted.undo] {
        assert!(path.metadata().unwrap().modified().unwrap() < limit, "{}", path.display());
    }
}

#[test]
fn never_keeps_everything() {
    let never = AGES.map(|(kind, _)| (kind.to_owned(), Value::from("never")));
    let story = Story::new().set("retention", Value::Object(never.into_iter().collect()));
    let old = plant_all(&story, "old", 0);
    turn_at(&story, NOW + 20 * 365 * DAY);
    let story = story.script([says("ok")]).stdin("piped");
    story.run(["agent"]).stdout("ok\n");
    assert_eq!(old.removed(&story, "old"), [""; 0]);
}

#[test]
fn without_a_key_nothing_is_looked_for() {
    let story = Story::new();
    let old = plant_all(&story, "old", 0);
    turn_at(&story, NOW + 20 * DAY);
    assert_eq!(old.removed(&story, "old"), [""; 0]);
    assert!(!root(&story).join("retention.json").exists());
    // The other kinds have the ages of before: sessions of pipes are removed after the next one.
    let story = story.script([says("ok")]).stdin("piped");
    let mut command = story.command(["agent"]);
    let child = story.start(command.env("NANOBOT_TEST_TIME", time(NOW + 4 * DAY - 1)));
    story.wait(child).stdout("ok\n");
    assert!(old.pipe_session.exists());
    let story = story.script([says("ok")]);
    let mut command = story.command(["agent"]);
    let child = story.start(command.env("NANOBOT_TEST_TIME", time(NOW + 4 * DAY + 1)));
    story.wait(child).stdout("ok\n");
    assert_eq!(old.removed(&story, "old"), ["pipeSessions"]);
}

#[test]
fn what_is_in_use_stays() {
    let (story, _telegram) = telegram_story();
    let story = story
        .set("retention", json!({ "sessions": "2d", "media": "1h", "inbox": "1h", "undo": "1h" }));
    let locked = plant_session(&story, "locked", "locked", NOW - 9 * DAY);
    let yesterday = plant_session(&story, "work", "work", NOW - DAY);
    let old_session = plant_session(&story, "gone", "gone", NOW - 9 * DAY);
    let lock = locked.with_file_name("locked.jsonl.lock");
    write(&lock, b"");
    let lock = File::open(lock).unwrap();
    lock.lock().unwrap();
    let journal = plant(root(&story).join("undo/1/journal.jsonl"), "", NOW - DAY);
    let journal_lock = File::open(&journal).unwrap();
    journal_lock.lock().unwrap();
    // A message that waits for its answer, one whose answer is not delivered, and one that is settled.
    let media = root(&story).join("media/telegram");
    let inbox = root(&story).join("channels/telegram");
    let file =
        |id: &str| RemoteFile { id: id.into(), name: "a.txt".into(), ..RemoteFile::default() };
    let attachment = |id: &str| {
        media.join(format!("{}-a.txt", &nanobot_os::digest::digest(id.as_bytes())[..16]))
    };
    let at = i64::try_from((NOW - 3 * DAY) * 1000).unwrap();
    let copy = media.join("0a0a/report.txt");
    let waiting = OutboundMessage {
        key: "old.1".into(),
        session: "telegram:1".into(),
        parts: vec![Part { file: Some(copy.clone()), ..Part::default() }],
        at,
        ..OutboundMessage::default()
    };
    let mut records = settled("1", NOW - 3 * DAY);
    records.extend([received("2", at, vec![file("f2")]), InboxRecord::Out(waiting)]);
    ChannelInbox::open(&inbox).unwrap().append_all(records).unwrap();
    for path in [attachment("f1"), attachment("f2"), copy.clone()] {
        plant(path, "x", NOW - 3 * DAY);
    }
    change_at(&media.join("0a0a"), NOW - 3 * DAY);
    turn_at(&story, NOW);
    assert!(locked.exists() && !old_session.exists() && journal.exists());
    assert!(!attachment("f1").exists() && attachment("f2").exists() && copy.exists());
    let text = std::fs::read_to_string(inbox.join("inbox.jsonl")).unwrap();
    let has = |part: &str| text.contains(part);
    assert!(!has("answer 1") && has("\"f2\"") && has("old.1") && !has("re-1"), "{text}");
    // The conversation of yesterday goes on.
    story.server().script([says("Welcome back.")]);
    story.run(["agent", "-s", "work", "-m", "again"]).stdout("Welcome back.\n");
    assert!(story.last_request().raw.contains("hello"));
    drop((lock, journal_lock));
    turn_at(&story, NOW + DAY);
    assert!(!locked.exists() && !journal.exists() && yesterday.exists());
}

#[test]
fn the_last_runs_of_a_job_stay() {
    let story = Story::new().set("retention", json!({ "runs": "1d" }));
    let id = add_job(&story, &["-e", "1h", "-n", "digest"]);
    let job = root(&story).join("cron").join(&id);
    let outcomes = ["ok", "ok", "nothing", "nothing", "failed", "missed"];
    let start = |index: usize| NOW - 9 * DAY + index as u64 * 60;
    let records: Vec<Value> = outcomes
        .iter()
        .enumerate()
        .map(|(index, outcome)| run_record(&id, outcome, start(index)))
        .collect();
    // A file that was rotated has the first ones.
    write(&job.join("runs.1.jsonl"), lines(&records[..2]).as_bytes());
    write(&job.join("runs.jsonl"), format!("{}not a record\n", lines(&records[2..])).as_bytes());
    let output = |index: usize| {
        let name = time(start(index)).replace(['-', ':'], "").replace('Z', ".000Z.txt");
        plant(job.join("output").join(name), "x", start(index))
    };
    let outputs = [output(0), output(1), output(3)];
    turn_at(&story, NOW);
    let text =
        ["runs.1.jsonl", "runs.jsonl"].map(|name| std::fs::read_to_string(job.join(name)).unwrap());
    let expect = [1, 3, 4, 5].map(|index: usize| records[index].clone());
    assert_eq!(text[0], lines(&expect[..1]));
    assert_eq!(text[1], format!("{}not a record\n", lines(&expect[1..])));
    assert_eq!(outputs.map(|path| path.exists()), [false, true, true]);
    run_cron(&story, &["logs"]).stdout_has("nothing to report").stdout_has("missed");
    // A further run ends as ever, and is the last one then.
    story.server().script([says("done")]);
    run_cron(&story, &["run", &id]).stdout("done\n");
    assert!(std::fs::read_to_string(job.join("runs.jsonl")).unwrap().contains("\"ok\""));
}

#[test]
fn a_clock_that_moves_and_links_remove_nothing_else() {
    let story = Story::new().set("retention", json!({ "sessions": "1d", "media": "1d" }));
    let future = plant_session(&story, "future", "future", NOW + 400 * DAY);
    let old = plant_session(&story, "old", "old", NOW - 2 * DAY);
    // The clock was ahead when old data was last looked for.
    let marker = root(&story).join("retention.json");
    let workspace = story.workspace().to_string_lossy().into_owned();
    write(&marker, json!({ workspace: (NOW + 300 * DAY) * 1000 }).to_string().as_bytes());
    turn_at(&story, NOW - 30 * DAY);
    assert!(future.exists() && old.exists());
    let outside =
        plant(story.dir().join("outside/kept.jsonl"), &session_text("kept", &[]), NOW - 9 * DAY);
    change_at(outside.parent().unwrap(), NOW - 9 * DAY);
    let [in_sessions, in_media] = [
        story.workspace().join("sessions/linked.jsonl"),
        root(&story).join("media/telegram/linked"),
    ];
    std::fs::create_dir_all(in_media.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&outside, &in_sessions).unwrap();
    std::os::unix::fs::symlink(outside.parent().unwrap(), &in_media).unwrap();
    for link in [&in_sessions, &in_media] {
        let touch = ["-h", "-d", "2025-12-01", link.to_str().unwrap()];
        assert!(story.program("touch").args(touch).status().unwrap().success());
    }
    // A damaged record of the last time counts as none.
    write(&marker, b"{\"at");
    turn_at(&story, NOW);
    assert!(future.exists() && !old.exists() && outside.exists());
    // A link to a session stays, and one among attachments is itself what is old.
    assert!(in_sessions.is_symlink() && !in_media.is_symlink());
}

#[test]
fn each_workspace_has_its_day() {
    let story = Story::new().set("retention", json!({ "sessions": "1d" }));
    let other = story.dir().join("other");
    let text = session_text("old", &[("user", "hello")]);
    let there = plant(other.join("sessions/old.jsonl"), &text, NOW - 2 * DAY);
    let here = plant_session(&story, "old", "old", NOW - 2 * DAY);
    turn_at(&story, NOW);
    assert!(!here.exists() && there.exists());
    story.server().script([says("ok")]);
    story.run(["agent", "--workspace", other.to_str().unwrap(), "-m", "x"]).stdout("ok\n");
    assert!(!there.exists());
    // Both are remembered.
    let again = plant(there, &text, NOW - 2 * DAY);
    story.server().script([says("ok")]);
    story.run(["agent", "--workspace", other.to_str().unwrap(), "-m", "x"]).stdout("ok\n");
    let here = plant_session(&story, "old", "old", NOW - 2 * DAY);
    turn_at(&story, NOW + HOUR);
    assert!(again.exists() && here.exists());
}

#[test]
fn a_poll_without_messages_removes_old_data_once_a_day() {
    let (story, telegram) = telegram_story();
    let story = story.set("retention", json!({ "sessions": "1d" }));
    let old = plant_session(&story, "old", "old", NOW - 2 * DAY);
    story.run(["channel", "poll"]).stdout("");
    assert!(!old.exists());
    let second = plant_session(&story, "second", "second", NOW - 2 * DAY);
    story.run(["channel", "poll"]).stdout("");
    assert!(second.exists());
    drop(telegram);
}

#[test]
fn a_small_journal_forgets_too() {
    // By default.
    let (story, _telegram) = telegram_story();
    let inbox = root(&story).join("channels/telegram");
    let records = [settled("1", NOW - 8 * DAY - 1), settled("2", NOW - 6 * DAY)].concat();
    ChannelInbox::open(&inbox).unwrap().append_all(records).unwrap();
    story.run(["channel", "poll"]).stdout("");
    let text = || std::fs::read_to_string(inbox.join("inbox.jsonl")).unwrap();
    assert!(!text().contains("re-1") && text().contains("re-2"), "{}", text());
    let telegram = crate::telegram_server::TelegramServer::start();
    let story =
        story.set("channels", telegram_config(&telegram)).set("retention.inbox", json!("2y"));
    let records = settled("3", NOW - 500 * DAY);
    ChannelInbox::open(&inbox).unwrap().append_all(records).unwrap();
    story.run(["channel", "poll"]).stdout("");
    assert!(text().contains("answer 3"), "{}", text());
}

#[test]
fn a_value_that_is_no_age_is_refused() {
    for bad in [json!("0d"), json!("30"), json!("soon"), json!(30), json!("")] {
        let story = Story::new().set("retention", json!({ "sessions": bad }));
        let line = if bad.is_string() {
            format!("`retention.sessions` is `{}`", bad.as_str().unwrap())
        } else {
            "`retention.sessions` is 30".to_owned()
        };
        story
            .run(["config", "check"])
            .status(78)
            .stdout_has(&line)
            .stdout_has("expected an age above zero");
        story.run(["agent", "-m", "x"]).status(78).stderr_has(&line);
    }
    let story = Story::new();
    story
        .run(["config", "set", "retention.sessions", "0"])
        .status(78)
        .stderr_has("expected an age");
    let old = plant_session(&story, "old", "old", NOW - 2 * DAY);
    // The key is one of ours, in any spelling, and a variable sets it too.
    story.run(["config", "set", "retention.pipe_sessions", "12h", "-q"]).stdout("");
    let own = std::fs::read_to_string(root(&story).join("nanobot.json")).unwrap();
    assert!(own.contains("\"pipeSessions\": \"12h\""), "{own}");
    story.run(["config", "list"]).stdout_has("retention.pipeSessions").stdout_has("12h");
    let story = story.env("NANOBOT_RETENTION__SESSIONS", "1y");
    story.run(["status"]).stdout_has(
        "retention  sessions 1y, pipeSessions 12h, trash 30d, media 30d, runs never, ledger never, undo 7d, inbox 7d\n",
    );
    let json = story.run(["status", "--json"]).json();
    assert_eq!(
        (&json["retention"]["sessions"], &json["retention"]["undo"]),
        (&json!("1y"), &json!("7d"))
    );
    turn_at(&story, NOW);
    assert!(old.exists());
}

#[test]
fn the_page_about_privacy_has_the_table() {
    let page = find_topic("privacy").unwrap().text;
    let ages: Vec<_> = KEYS.iter().filter(|key| key.path.starts_with("retention.")).collect();
    assert_eq!(ages.len(), AGES.len());
    for key in ages {
        let row = format!("- `{}` ({}): ", key.path, key.default.trim_matches('"'));
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn budgets_count_what_this_month_has_cost() {
    let story = Story::new()
        .set("retention", json!({ "ledger": "1h" }))
        .set("budget", json!({ "monthly": 0.6 }))
        .set("models", json!({ "m": { "price": { "input": 1, "output": 1 } } }));
    let late = NOW + 20 * DAY;
    let text = lines(&[call(NOW - 3 * DAY), call(NOW), call(NOW + DAY)]);
    write(&root(&story).join("usage.jsonl"), text.as_bytes());
    turn_at(&story, late);
    let text = std::fs::read_to_string(root(&story).join("usage.jsonl")).unwrap();
    assert!(!text.contains(&format!("s{}", NOW - 3 * DAY)) && text.contains(&format!("s{NOW}")));
    let story = story.env("NANOBOT_TEST_TIME", &time(late));
    let json = story.run(["status", "--json"]).json();
    assert_eq!(json["spent"]["month_usd"], json!(0.5));
    // A month later all is gone, and calls are recorded as ever.
    turn_at(&story, late + 31 * DAY);
    let text = std::fs::read_to_string(root(&story).join("usage.jsonl")).unwrap();
    assert!(!text.contains(&format!("s{NOW}")) && text.contains("\"now\""), "{text}");
}

#[test]
fn a_kill_leaves_each_session_in_one_place() {
    if !can_inject() {
        return;
    }
    let story = Story::new().set("retention", json!({ "sessions": "1d", "runs": "1d" }));
    story.server().always(says("ok"));
    let kills = inject_at_calls(|number| {
        drop(std::fs::remove_dir_all(story.workspace().join("sessions")));
        drop(std::fs::remove_file(root(&story).join("retention.json")));
        let names = ["a", "b", "c"];
        for name in names {
            plant_session(&story, name, name, NOW - 9 * DAY);
        }
        let runs = root(&story).join("cron/gone/runs.jsonl");
        write(
            &runs,
            lines(&[run_record("gone", "ok", NOW - 9 * DAY), run_record("gone", "ok", NOW)])
                .as_bytes(),
        );
        let arguments = ["agent", "-s", "now", "-m", "x"];
        let (result, is_killed) =
            run_with_fault(&story, &arguments, &[], ("rename", "SIGKILL", number));
        result.signal();
        result.error_text();
        result.text();
        drop(result);
        let listed = |arguments: &[&str]| {
            let result = story.run(arguments);
            result
                .json_lines()
                .iter()
                .map(|line| {
                    let key = line.get("key").or_else(|| line.get("session"));
                    key.unwrap().as_str().unwrap().to_owned()
                })
                .filter(|key| names.contains(&key.as_str()))
                .collect::<Vec<_>>()
        };
        let mut keys =
            [listed(&["session", "list", "--json"]), listed(&["session", "restore", "--json"])]
                .concat();
        keys.sort();
        assert_eq!(keys, names, "{number}");
        let text = std::fs::read_to_string(&runs).unwrap();
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
        // The next day the rest is removed.
        turn_after_kill(&story, NOW + DAY);
        assert_eq!(listed(&["session", "list", "--json"]), [""; 0], "{number}");
        is_killed
    });
    assert!(kills > 0);
}

fn turn_after_kill(story: &Story, seconds: u64) {
    let mut command = story.command(["agent", "-s", "now", "-m", "x"]);
    let child = story.start(command.env("NANOBOT_TEST_TIME", time(seconds)));
    let result = story.wait(child).stdout("ok\n");
    result.error_text();
}
