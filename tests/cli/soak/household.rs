//! The household: its processes, and what is asked in a round.

use super::growth::{self, Sample};
use super::network::Fault;
use super::processes;
use super::services::{Service, model};
use super::tally::Tally;
use crate::chat_services::ALL;
use crate::crash::Random;
use crate::notify::add_named;
use crate::screen::{Key, Screen};
use crate::story::{NANOBOT, Story};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

const CHANNELS: usize = 10;
const JOBS: usize = 40;
/// Lines of the pipe in a round: one for each worker, and some that wait.
const LINES: usize = 10;
const PIPE_SESSIONS: usize = 5;
/// The hours between two slots of a job.
const PERIODS: [i64; 8] = [1, 2, 3, 4, 6, 8, 12, 24];
/// Lines of the programs' standard error that are shown.
const SHOWN_LINES: usize = 40;
const ROUNDS_PER_REPORT: usize = 20;
const START: &str = "2026-01-04T00:00:00Z";
/// Seconds for which a poll waits; a crontab line would start the next one then.
const POLL_SECONDS: &str = "900";

/// A line of the pipe.
pub(super) struct Line {
    pub(super) text: String,
    pub(super) is_sent: bool,
    pub(super) answers: Vec<String>,
    pub(super) is_acknowledged: bool,
}

pub(super) struct Pipe {
    pub(super) child: Child,
    pub(super) stdin: ChildStdin,
}

pub(super) struct Job {
    pub(super) id: String,
    pub(super) period: i64,
}

pub(super) struct Household<'s> {
    pub(super) story: &'s Story,
    pub(super) disk: PathBuf,
    /// The standard error of all processes.
    pub(super) log: File,
    pub(super) log_path: tempfile::TempPath,
    pub(super) random: Random,
    pub(super) clock: Timestamp,
    pub(super) latest_clock: Timestamp,
    /// The clock of the poll that lives on.
    pub(super) poll_clock: Timestamp,
    pub(super) services: Vec<Service>,
    pub(super) model_fault: Arc<Mutex<Fault>>,
    pub(super) jobs: Vec<Job>,
    pub(super) poll: Option<Child>,
    pub(super) pipe: Option<Pipe>,
    /// The lines that a pipe has printed.
    pub(super) printed: Arc<Mutex<Vec<Value>>>,
    pub(super) repl: Option<Screen<'s>>,
    /// Processes that end by themselves.
    pub(super) passing: Vec<Child>,
    /// The open files of the processes that live on, in the first round of each.
    pub(super) first_files: BTreeMap<u32, usize>,
    pub(super) tally: Tally,
}

/// The program, which `NANOBOT_BINARY` can name.
fn program() -> String {
    std::env::var("NANOBOT_BINARY").unwrap_or_else(|_| NANOBOT.to_owned())
}

/// A story on the small file system.
pub(super) fn prepare_story(disk: &Path) -> Story {
    let temp = disk.join("tmp");
    std::fs::create_dir(&temp).unwrap();
    Story::new_in(disk)
        .env("TMPDIR", temp.to_str().unwrap())
        .env("NANOBOT_TEST_ZONE", "UTC")
        .env("NANOBOT_MEMORY__CONSOLIDATE", "auto")
}

impl<'s> Household<'s> {
    pub(super) fn start(story: &'s Story, disk: &Path, seed: u64) -> Self {
        let model_fault = Arc::<Mutex<Fault>>::default();
        story.server().always(model(Arc::clone(&model_fault)));
        let started = ALL[..CHANNELS].iter().map(|start| Service::start(start()));
        let (services, keys): (Vec<Service>, Vec<Value>) = started.unzip();
        let names = services.iter().map(|service| service.stand_in.facts().name.to_owned());
        let mut config = story.config_value();
        config["channels"] = Value::Object(names.zip(keys).collect());
        // The clocks of the stand-ins do not move.
        config["channels"]["maxAgeHours"] = json!(8760);
        config["channels"]["perSenderPerHour"] = json!(1000);
        let path = story.home().join(".nanobot/config.json");
        std::fs::write(path, config.to_string()).unwrap();
        let (log, log_path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        let mut household = Self {
            story,
            disk: disk.to_owned(),
            log,
            log_path,
            random: Random(seed),
            clock: START.parse().unwrap(),
            latest_clock: START.parse().unwrap(),
            poll_clock: START.parse().unwrap(),
            services,
            model_fault,
            jobs: Vec::new(),
            poll: None,
            pipe: None,
            printed: Arc::default(),
            repl: None,
            passing: Vec::new(),
            first_files: BTreeMap::new(),
            tally: Tally::default(),
        };
        household.add_jobs();
        for service in &household.services {
            service.stand_in.write_in(0, "say before-the-first-look");
        }
        let poll = household.spawn(&["channel", "poll"], household.clock);
        household.passing.push(poll);
        household.wait_for_passing();
        for service in &mut household.services {
            service.examined = service.stand_in.answers_in(0).len();
        }
        household
    }

    fn add_jobs(&mut self) {
        let mut jobs = Vec::new();
        for number in 0..JOBS {
            let period = PERIODS[number % PERIODS.len()];
            let schedule = match period {
                24 => "0 0 * * *".to_owned(),
                period => format!("0 */{period} * * *"),
            };
            let catch_up = if number % 3 == 0 { "once" } else { "none" };
            let arguments = ["-c", &schedule, "--catch-up", catch_up];
            let id = add_named(self.story, &format!("job{number}"), &arguments);
            jobs.push(Job { id, period });
        }
        self.jobs = jobs;
    }

    pub(super) fn command(&self, arguments: &[&str], clock: Timestamp) -> Command {
        let mut command = self.story.program(&program());
        command.arg0("nanobot").args(arguments).env("NANOBOT_TEST_TIME", clock.to_string());
        command.stdout(Stdio::null()).stderr(self.log.try_clone().unwrap());
        command
    }

    pub(super) fn spawn(&self, arguments: &[&str], clock: Timestamp) -> Child {
        self.command(arguments, clock).spawn().unwrap()
    }

    pub(super) fn live_round(&mut self, round: usize) {
        self.move_clock(round);
        self.start_missing();
        let mut lines = self.ask(round);
        self.make_trouble(round);
        self.make_peace();
        self.wait_for_passing();
        self.settle_pipe(&mut lines);
        self.settle_repl(round);
        self.settle_channels(round);
        self.settle_jobs();
        self.check_lines(&lines);
        self.check_processes();
        self.check_log();
        self.story.server().forget_requests();
        if round.is_multiple_of(ROUNDS_PER_REPORT) {
            println!("round {round}, {}: {:?}", self.clock, self.tally);
        }
    }

    /// Starts the processes that live on, as far as they have ended.
    fn start_missing(&mut self) {
        if self.poll.as_mut().is_none_or(|poll| poll.try_wait().unwrap().is_some()) {
            self.poll_clock = self.clock;
            self.poll = Some(self.spawn(&["channel", "poll", "--wait", POLL_SECONDS], self.clock));
        }
        self.start_missing_pipe();
        self.start_missing_repl();
    }

    pub(super) fn start_missing_pipe(&mut self) {
        if self.pipe.as_mut().is_some_and(|pipe| pipe.child.try_wait().unwrap().is_none()) {
            return;
        }
        let mut command = self.command(&["serve", "pipe", "-j", "8", "--name", "bus"], self.clock);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let printed = Arc::clone(&self.printed);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The last line of a process that was killed may be incomplete.
                printed.lock().unwrap().extend(serde_json::from_str::<Value>(&line));
            }
        });
        self.pipe = Some(Pipe { stdin: child.stdin.take().unwrap(), child });
    }

    pub(super) fn start_missing_repl(&mut self) {
        if self.repl.as_mut().is_some_and(|repl| processes::is_alive(repl.pid())) {
            return;
        }
        if let Some(mut repl) = self.repl.take() {
            repl.exit();
        }
        let screen = self.story.screen(24, 100).env("NANOBOT_TEST_TIME", &self.clock.to_string());
        self.repl = Some(screen.program(&program(), ["repl", "-s", "soak"]));
    }

    /// A message in each chat, lines for the pipe, a line of the REPL, and the start of the jobs.
    fn ask(&mut self, round: usize) -> BTreeMap<String, Line> {
        for service in &self.services {
            service.stand_in.write_in(0, &format!("say m{round}."));
        }
        self.tally.messages += self.services.len();
        let mut lines = BTreeMap::new();
        for number in 0..LINES {
            let how = if number % 4 == 0 { " with a command" } else { "" };
            let id = format!("l{round}-{number}");
            let session = format!("s{}", number % PIPE_SESSIONS);
            let text = format!("say {id}{how}");
            let text = json!({ "id": id, "session": session, "text": text }).to_string();
            lines
                .insert(id, Line { text, is_sent: false, answers: vec![], is_acknowledged: false });
        }
        self.tally.lines += LINES;
        self.send_lines(&mut lines);
        let repl = self.repl.as_mut().unwrap();
        repl.type_(&format!("say t{round}-first")).press(Key::Enter);
        let due = self.spawn(&["cron", "run", "--due"], self.clock);
        // A second scheduler starts one of them too.
        let job = self.random.next_below(self.jobs.len());
        let again = self.spawn(&["cron", "run", &self.jobs[job].id, "--scheduled"], self.clock);
        self.passing.extend([due, again]);
        lines
    }

    /// Sends the lines that were not.
    pub(super) fn send_lines(&mut self, lines: &mut BTreeMap<String, Line>) {
        let Some(pipe) = &mut self.pipe else {
            return;
        };
        for line in lines.values_mut().filter(|line| !line.is_sent && !line.is_acknowledged) {
            // The pipe may have been killed.
            line.is_sent = writeln!(pipe.stdin, "{}", line.text).is_ok();
        }
    }

    /// The processes that live on.
    pub(super) fn living(&self) -> BTreeSet<u32> {
        let poll = self.poll.as_ref().map(Child::id);
        let pipe = self.pipe.as_ref().map(|pipe| pipe.child.id());
        let repl = self.repl.as_ref().map(Screen::pid);
        [poll, pipe, repl].into_iter().flatten().collect()
    }

    pub(super) fn measure(&self) -> Sample {
        let mut sample = growth::measure(&self.story.home().join(".nanobot"));
        let temporary = growth::measure(&self.disk.join("tmp"));
        sample.extend(temporary.into_iter().map(|(kind, size)| (format!("/tmp{kind}"), size)));
        sample
    }

    /// Ends the processes that live on as a user would: at once, without a word, and with nothing left.
    pub(super) fn end(mut self) -> Tally {
        self.end_poll();
        let Pipe { child, stdin } = self.pipe.take().unwrap();
        drop(stdin);
        self.passing.push(child);
        let mut repl = self.repl.take().unwrap();
        assert_eq!(repl.press(Key::Ctrl('d')).code(), 0, "{}", repl.text());
        repl.assert_restored();
        drop(repl);
        for mut child in self.passing.drain(..) {
            child.wait().unwrap();
        }
        processes::wait_until_gone(processes::all);
        std::mem::take(&mut self.tally)
    }
}

impl Drop for Household<'_> {
    /// Shows what the programs have said last, if the test has failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = std::fs::read_to_string(&self.log_path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            println!("{:?}", self.tally);
            println!("{}", lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"));
        }
    }
}
