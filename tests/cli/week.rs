//! A week of a machine with forty jobs and ten channels, on a moved clock. Each failure that is planted makes one notice at
//! `notify.target`, and its end another. Nothing else makes one.

use crate::budgets::with_price;
use crate::chat_services::{ALL, StandIn};
use crate::cron::job_dir;
use crate::mattermost_server::MattermostServer;
use crate::notify::{FILE_TARGET, add_named, notifications};
use crate::server::{Request, Responder, fails, says};
use crate::story::Story;
use crate::web::PageServer;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};

const JOBS: usize = 40;
const CHANNELS: usize = 10;
/// The place of Mattermost among them, which refuses a token for a day.
const REFUSING: usize = 2;
/// The time between two posts there.
const HOUR_MILLIS: u64 = 3_600_000;
/// The hours of each day at which the machine starts what is due, and polls.
const HOURS: [usize; 4] = [0, 6, 12, 18];
/// The job that runs at each of these hours.
const FREQUENT: &str = "frequent";
/// A job that runs after another one.
const FOLLOWER: &str = "follower";
const ALARM: &str = "alarm";
/// Files that grow with the work, up to a limit that the documentation names.
const LOGS: [&str; 6] =
    ["runs.jsonl", "usage.jsonl", "tools.jsonl", "/sessions/", "/output/", "inbox.jsonl"];
/// Bytes by which any other file may grow in four days, such as by longer numbers.
const MAX_GROWTH_BYTES: u64 = 64;

/// The words of jobs whose requests fail, each with the status of the response, and of those whose requests hang.
#[derive(Default)]
struct Faults {
    failing: BTreeMap<&'static str, u16>,
    hanging: BTreeSet<&'static str>,
}

struct Week {
    story: Story,
    services: Vec<Box<dyn StandIn>>,
    faults: Arc<Mutex<Faults>>,
    /// The ids of the jobs by their names.
    ids: BTreeMap<String, String>,
    /// The number of bytes of notifications that were read.
    read: usize,
}

/// A model that repeats the number in a message of a chat, and fails or hangs as the faults say.
fn model(faults: Arc<Mutex<Faults>>) -> Responder {
    Box::new(move |request: &Request| {
        let content = request.last_content();
        let has = |word: &&&str| content.contains(&format!("do {word} now"));
        loop {
            let faults = faults.lock().unwrap();
            if let Some((_, status)) = faults.failing.iter().find(|(word, _)| has(word)) {
                return fails(*status, "no")(request);
            }
            if !faults.hanging.iter().any(|word| has(&word)) {
                break;
            }
            drop(faults);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let number = content.rsplit("number ").next().unwrap_or_default();
        let number: String = number.chars().take_while(char::is_ascii_digit).collect();
        says(&format!("It is {number}."))(request)
    })
}

impl Week {
    /// The evening before: the jobs are added, and the channels looked at for the first time.
    fn start() -> Self {
        let mut services: Vec<Box<dyn StandIn>> =
            ALL[..CHANNELS].iter().map(|start| start()).collect();
        let mattermost = MattermostServer::start();
        mattermost.set_post_interval(HOUR_MILLIS);
        services[REFUSING] = Box::new(mattermost);
        let keys =
            services.iter().map(|service| (service.facts().name.to_owned(), service.open_chats(1)));
        let story = with_price(Story::new())
            .set("channels", Value::Object(keys.collect()))
            // The clocks of the stand-ins do not move.
            .set("channels.maxAgeHours", json!(24 * 30))
            .set("notify", json!({ "target": FILE_TARGET }))
            .set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }))
            .env("NANOBOT_TEST_ZONE", "UTC");
        let faults = Arc::<Mutex<Faults>>::default();
        story.server().always(model(Arc::clone(&faults)));
        let mut week = Self { story, services, faults, ids: BTreeMap::new(), read: 0 };
        let daily = |hour: usize| format!("0 {hour} * * *");
        week.add("flaky", &["-c", &daily(6)]);
        week.add(FREQUENT, &["-c", "0 */6 * * *"]);
        week.add("killed", &["-c", &daily(12)]);
        week.add("removed", &["-c", &daily(12)]);
        week.add("unwritable", &["-c", &daily(18)]);
        week.add("late", &["-c", &daily(6), "--catch-up", "once"]);
        week.add(FOLLOWER, &["--after", "flaky"]);
        week.add(ALARM, &["--at", "2026-01-07T18:00"]);
        for number in week.ids.len()..JOBS {
            week.add(&format!("job{number}"), &["-c", &daily(HOURS[number % HOURS.len()])]);
        }
        week.services.iter().for_each(|service| service.write_in(0, "before the first look"));
        week.run("2026-01-02T20:00", &["channel", "poll"]);
        week
    }

    fn add(&mut self, name: &str, arguments: &[&str]) {
        let id = add_named(&self.story, name, arguments);
        self.ids.insert(name.to_owned(), id);
    }

    fn spawn(&self, time: &str, arguments: &[&str]) -> Child {
        let mut command = self.story.command(arguments);
        command.env("NANOBOT_TEST_TIME", format!("{time}:00Z")).spawn().unwrap()
    }

    /// Runs a command of cron, which has nothing to mail.
    fn run(&self, time: &str, arguments: &[&str]) {
        let result = self.story.wait(self.spawn(time, arguments));
        let output = [result.text(), result.error_text()].concat();
        result.code();
        assert_eq!(output, "", "{time} {arguments:?}");
    }

    /// Starts what is due, and polls. Each of these texts is in one line of the new notices, and each line has one of them.
    fn tick(&mut self, time: &str, expect: &[&str]) {
        self.run(time, &["cron", "run", "--due"]);
        self.run(time, &["channel", "poll"]);
        self.expect(time, expect);
    }

    fn expect(&mut self, time: &str, expect: &[&str]) {
        let text = notifications(&self.story);
        let new = text[self.read..].to_owned();
        self.read = text.len();
        // What jobs tell is one message, and what channels tell another.
        assert!(new.matches("--\n").count() <= 2, "{time}: {new}");
        let mut missing: Vec<&str> = expect.to_vec();
        for line in new.lines().filter(|line| *line != "--" && !line.starts_with("  try: ")) {
            let position = missing.iter().position(|phrase| line.contains(phrase));
            let index = position.unwrap_or_else(|| panic!("{time}: {line}\n{expect:?}"));
            missing.remove(index);
        }
        assert_eq!(missing, [""; 0], "{time}: {new}");
    }

    fn fail(&self, word: &'static str, status: u16) {
        self.faults.lock().unwrap().failing.insert(word, status);
    }

    fn mend(&self, word: &'static str) {
        self.faults.lock().unwrap().failing.remove(word);
    }

    /// Starts a job as its crontab line does, and waits until it has asked the model.
    fn start_hanging(&self, time: &str, word: &'static str) -> Child {
        self.faults.lock().unwrap().hanging.insert(word);
        let request_count = self.story.requests().len();
        let child = self.spawn(time, &["cron", "run", &self.ids[word], "--scheduled"]);
        self.story.server().wait_for_requests(request_count + 1);
        child
    }

    fn release(&self, word: &str) {
        self.faults.lock().unwrap().hanging.remove(word);
    }

    fn set(&self, key: &str, value: &str) {
        let result = self.story.run(["config", "set", key, value]);
        result.text();
        result.error_text();
    }

    /// The file to which the runs of a job are appended.
    fn records_path(&self, name: &str) -> PathBuf {
        job_dir(&self.story, &self.ids[name]).join("runs.jsonl")
    }

    /// One message in each chat.
    fn write(&self, number: usize) {
        self.services.iter().for_each(|service| service.write_in(0, &format!("number {number}")));
    }

    fn names_at(&self, hour: usize) -> Vec<String> {
        let numbered = |name: &&String| {
            let number = name.strip_prefix("job").and_then(|number| number.parse::<usize>().ok());
            number.is_some_and(|number| HOURS[number % HOURS.len()] == hour)
        };
        self.ids.keys().filter(numbered).cloned().collect()
    }
}

/// The sizes of all files below `directory`.
fn sizes(directory: &Path, file_sizes: &mut BTreeMap<String, u64>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sizes(&path, file_sizes);
        } else {
            let length = path.symlink_metadata().unwrap().len();
            file_sizes.insert(path.to_str().unwrap().to_owned(), length);
        }
    }
}

fn sizes_of(story: &Story) -> BTreeMap<String, u64> {
    let mut file_sizes = BTreeMap::new();
    sizes(&story.home().join(".nanobot"), &mut file_sizes);
    file_sizes
}

/// The records of a job.
fn records(week: &Week, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(week.records_path(name)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The outcomes of a job's slot.
fn outcomes(week: &Week, name: &str, slot: &str) -> Vec<String> {
    let records = records(week, name).into_iter().filter(|record| record["slot"] == slot);
    records.map(|record| record["outcome"].as_str().unwrap().to_owned()).collect()
}

/// No job ran twice for a slot.
fn assert_slots_ran_once(week: &Week) {
    for name in week.ids.keys() {
        let records = records(week, name).into_iter();
        let was_attempted = |record: &Value| {
            ["ok", "nothing", "failed", "unknown"].contains(&record["outcome"].as_str().unwrap())
        };
        let attempted: Vec<Value> = records.filter(was_attempted).collect();
        let slots = attempted.iter().map(|record| record["slot"].as_str().unwrap().to_owned());
        let slots: BTreeSet<String> = slots.collect();
        assert_eq!(slots.len(), attempted.len(), "{name}: {attempted:#?}");
    }
}

#[test]
fn each_failure_of_a_week_is_told_once_and_its_end() {
    let mut week = Week::start();
    let at = |day: usize, hour: usize| format!("2026-01-{:02}T{hour:02}:00", day + 2);
    // Day 1: all is well.
    for hour in HOURS {
        if hour == 6 {
            week.write(1);
        }
        week.tick(&at(1, hour), &[]);
    }
    // Day 2: a job begins to fail for two days, and a token is wrong for a day.
    let token = week.services[REFUSING].facts();
    let key = format!("channels.{}.{}", token.name, token.secret_key);
    let secret = week.story.config_value()["channels"][token.name][token.secret_key].clone();
    let (poll_fails, poll_works) =
        (format!("channel {}: ", token.name), format!("channel {}: poll works again", token.name));
    week.tick(&at(2, 0), &[]);
    week.fail("flaky", 401);
    week.set(&key, "1:wrong");
    week.write(2);
    week.tick(&at(2, 6), &["job `flaky`", &poll_fails]);
    week.tick(&at(2, 12), &[]);
    week.tick(&at(2, 18), &[]);
    // Day 3: the token is right again. The provider of a job is down for an hour.
    week.tick(&at(3, 0), &[]);
    week.set(&key, secret.as_str().unwrap());
    week.tick(&at(3, 6), &[&poll_works]);
    week.write(3);
    week.fail(FREQUENT, 503);
    week.tick(&at(3, 12), &["job `frequent`"]);
    week.tick("2026-01-05T12:30", &[]);
    week.mend(FREQUENT);
    week.tick(&at(3, 18), &["job `frequent` ("]);
    let early = sizes_of(&week.story);
    // Day 4: the job works again. Another one is killed in the middle of its run.
    week.tick(&at(4, 0), &[]);
    week.mend("flaky");
    week.write(4);
    week.tick(&at(4, 6), &["job `flaky` ("]);
    let mut child = week.start_hanging(&at(4, 12), "killed");
    child.kill().unwrap();
    child.wait().unwrap();
    week.release("killed");
    week.tick(&at(4, 12), &["the last run was interrupted"]);
    // A chat service is down for the rest of the day, and the machine sleeps over the night.
    let down = PageServer::start(|_| (502, vec![], Vec::new()));
    let base = week.story.config_value()["channels"]["telegram"]["apiBase"].clone();
    week.set("channels.telegram.apiBase", &down.url(""));
    week.tick(&at(4, 18), &["channel telegram: "]);
    week.tick("2026-01-06T19:00", &[]);
    week.set("channels.telegram.apiBase", base.as_str().unwrap());
    // Day 5: it wakes up at eight. A job is removed while it runs, and fails.
    week.write(5);
    week.tick("2026-01-07T08:00", &["channel telegram: poll works again"]);
    let child = week.start_hanging(&at(5, 12), "removed");
    week.story.run(["cron", "remove", "removed"]).stderr_has("is running").text();
    week.fail("removed", 401);
    week.release("removed");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(77));
    week.expect(&at(5, 12), &["job `removed`"]);
    week.tick(&at(5, 12), &["job `killed` ("]);
    // The records of a job cannot be written for a day; a one-time job fails.
    let path = week.records_path("unwritable");
    let aside = path.with_extension("aside");
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    week.fail(ALARM, 401);
    week.tick(&at(5, 18), &["job `unwritable`", "job `alarm`"]);
    // Day 6: the clock is set back an hour after noon.
    week.tick(&at(6, 0), &[]);
    week.write(6);
    week.tick(&at(6, 6), &[]);
    for hour in [12, 11, 12] {
        week.tick(&at(6, hour), &[]);
    }
    week.tick(&at(6, 18), &[]);
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    // Day 7: the budget of the day is full in the morning.
    week.tick(&at(7, 0), &[]);
    week.set("budget.daily", "0.5");
    let names = week.names_at(6);
    let failures: Vec<String> = names.iter().map(|name| format!("job `{name}`")).collect();
    let mut expect: Vec<&str> = failures.iter().map(String::as_str).collect();
    expect.extend(["job `flaky`", "job `late`", "job `frequent`"]);
    week.tick(&at(7, 6), &expect);
    week.story.run(["config", "unset", "budget.daily"]).text();
    week.write(7);
    week.tick(&at(7, 12), &["job `frequent` ("]);
    week.tick(&at(7, 18), &["job `unwritable` ("]);
    // Day 8: all is well.
    week.tick(&at(8, 0), &[]);
    let ends: Vec<String> = names.iter().map(|name| format!("job `{name}` (")).collect();
    let mut expect: Vec<&str> = ends.iter().map(String::as_str).collect();
    expect.extend(["job `flaky` (", "job `late` ("]);
    week.tick(&at(8, 6), &expect);

    let ends = notifications(&week.story).matches("works again; it failed since").count();
    assert_eq!(ends, 7 + names.len() + 2);
    assert_slots_ran_once(&week);
    let slept = "2026-01-07T06:00:00Z";
    assert_eq!(outcomes(&week, "flaky", slept), ["missed"]);
    assert_eq!(outcomes(&week, "late", slept), ["ok"]);
    // After each success of the other job, except in the night.
    assert_eq!(records(&week, FOLLOWER).len(), 4);
    let all: Vec<String> = (1..=7).map(|number| format!("It is {number}.")).collect();
    for service in &week.services {
        let answers = service.answers_in(0);
        assert!(answers.ends_with(&all), "{}: {answers:?}", service.facts().name);
        assert!(answers.len() <= all.len() + 1, "{}: {answers:?}", service.facts().name);
    }
    let notices = std::fs::read_to_string(week.story.home().join(".nanobot/notify.json")).unwrap();
    assert_eq!(notices, "{\"failures\":[],\"notices\":[]}\n");
    for (path, size) in sizes_of(&week.story) {
        let is_log = LOGS.iter().any(|part| path.contains(part));
        let before = early.get(&path).copied();
        assert!(
            is_log || before.is_none_or(|before| size <= before + MAX_GROWTH_BYTES),
            "{path}: {before:?} {size}"
        );
    }
}
