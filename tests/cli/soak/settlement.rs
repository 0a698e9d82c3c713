//! After the trouble: all that was asked is answered, and nothing is left behind.

use super::household::{Household, Line};
use super::processes;
use super::services::{GIVEN_UP, Service};
use crate::screen::{Key, Screen};
use crate::wait::until;
use jiff::{SignedDuration, Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

/// The time after which the poll that waits is ended, as it would be at the end of its minute.
const FAILED_CHANNEL_PATIENCE: Duration = Duration::from_secs(3);
/// Open files by which a process that lives on may differ from round to round: its connections come and go.
const OPEN_FILES_MARGIN: usize = 6;

impl Household<'_> {
    /// Waits for the processes that end by themselves.
    pub(super) fn wait_for_passing(&mut self) {
        for mut child in self.passing.drain(..) {
            let id = child.id();
            processes::wait_until_gone(|| {
                processes::all().into_iter().filter(|it| it.id == id && !it.is_zombie).collect()
            });
            let status = child.wait().unwrap();
            assert!([None, Some(9), Some(15)].contains(&status.signal()), "{status}");
        }
        let living = self.living();
        processes::wait_until_gone(|| processes::unexpected(&living));
    }

    /// Sends lines again until each is acknowledged.
    pub(super) fn settle_pipe(&mut self, lines: &mut BTreeMap<String, Line>) {
        until("the pipe does not answer", || {
            self.start_missing_pipe_again(lines);
            for printed in self.printed.lock().unwrap().drain(..) {
                let id = printed["in_reply_to"].as_str().or(printed["id"].as_str());
                let Some(line) = id.and_then(|id| lines.get_mut(id)) else {
                    panic!("an answer to an earlier round: {printed}");
                };
                if printed["type"] == "ack" {
                    line.is_acknowledged = true;
                } else {
                    // A broker would send what failed again.
                    line.is_sent &= printed["error"].is_null();
                    line.answers.push(describe(&printed));
                }
            }
            self.send_lines(lines);
            lines.values().all(|line| line.is_acknowledged)
        });
    }

    pub(super) fn start_missing_pipe_again(&mut self, lines: &mut BTreeMap<String, Line>) {
        let id = self.pipe.as_ref().map(|pipe| pipe.child.id());
        self.start_missing_pipe();
        if self.pipe.as_ref().map(|pipe| pipe.child.id()) != id {
            lines.values_mut().for_each(|line| line.is_sent = false);
        }
    }

    /// Each line has one answer: its own, or the notice that it was interrupted.
    pub(super) fn check_lines(&mut self, lines: &BTreeMap<String, Line>) {
        for (id, line) in lines {
            let expect = format!("You said {id}.");
            let answers: BTreeSet<&str> = line.answers.iter().map(String::as_str).collect();
            let is_given_up = |answer: &&&str| GIVEN_UP.iter().any(|why| answer.contains(why));
            let given_up = answers.iter().filter(is_given_up).count();
            self.tally.given_up += given_up;
            let failures = answers.iter().filter(|answer| answer.starts_with("error: ")).count();
            assert!(answers.contains(&*expect) || given_up > 0, "{id}: {answers:?}");
            let own_answers = usize::from(answers.contains(&*expect));
            assert_eq!(answers.len(), failures + own_answers, "{id}: {answers:?}");
        }
    }

    pub(super) fn settle_repl(&mut self, round: usize) {
        self.start_missing_repl();
        let word = format!("t{round}-last");
        let repl = self.repl.as_mut().unwrap();
        repl.until_prompt("> ").type_(&format!("say {word}")).press(Key::Enter);
        let answer = format!("You said {word}.");
        repl.until(&answer).until_prompt("> ");
        self.tally.typed += 1;
        // What was shown is stored, once.
        let path = self.story.workspace().join("sessions/soak.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.matches(&answer).count(), 1, "{answer}");
    }

    /// Polls until each message is answered: once, unless the service cannot recognise a repeated part.
    pub(super) fn settle_channels(&mut self, round: usize) {
        let expect = format!("You said m{round}.");
        let before = format!("You said m{}.", round - 1);
        let begin = Instant::now();
        until("a channel does not answer", || {
            let poll = self.spawn(&["channel", "poll"], self.poll_clock);
            self.passing.push(poll);
            self.wait_for_passing();
            let is_answered = |service: &Service| {
                let answers = service.stand_in.answers_in(0);
                answers[service.examined..].iter().any(|text| *text != before)
            };
            // A poll that waits for all channels does no more for one that has failed.
            if begin.elapsed() > FAILED_CHANNEL_PATIENCE {
                self.end_poll();
            }
            self.services.iter().all(is_answered)
        });
        for service in &mut self.services {
            let facts = service.stand_in.facts();
            let answers = service.stand_in.answers_in(0);
            let new = &answers[service.examined..];
            let failure_text = format!("{}: {new:?}", facts.name);
            let is_given_up = |text: &String| GIVEN_UP.iter().any(|why| text.contains(why));
            self.tally.given_up += new.iter().filter(|it| is_given_up(it)).count();
            // The answer in flight at the time of a kill may come again, if need be in the next round.
            let is_repeated = |text: &String| !facts.knows_parts && *text == before;
            let (repeated, new): (Vec<&String>, Vec<&String>) =
                new.iter().partition(|text| is_repeated(text));
            assert!(new.iter().all(|text| **text == expect || is_given_up(text)), "{failure_text}");
            assert!(new.len() == 1 || !facts.knows_parts && !new.is_empty(), "{failure_text}");
            self.tally.repeated += repeated.len() + new.len() - 1;
            service.examined = answers.len();
        }
    }

    pub(super) fn end_poll(&mut self) {
        if let Some(poll) = self.poll.take() {
            // It may have ended.
            let _: Result<_, _> = kill_process(Pid::from_child(&poll), Signal::TERM);
            self.passing.push(poll);
        }
    }

    /// Starts what is due once more. Then the last slot of each job has one record.
    pub(super) fn settle_jobs(&mut self) {
        let later = self.clock + SignedDuration::from_mins(1);
        for _ in 0..2 {
            let due = self.spawn(&["cron", "run", "--due"], later);
            self.passing.push(due);
            self.wait_for_passing();
        }
        for job in &self.jobs {
            let slot = self.last_slot(job.period);
            let path = self.story.home().join(".nanobot/cron").join(&job.id).join("runs.jsonl");
            let text = std::fs::read_to_string(path).unwrap();
            let is_of_slot = |line: &&str| line.contains(&format!("\"slot\":\"{slot}\""));
            let records: Vec<&str> = text.lines().filter(is_of_slot).collect();
            // The clock may have been set back to a time that the machine has slept through.
            let is_past = self.clock < self.latest_clock;
            let is_handled = records.len() == 1 || is_past && records.is_empty();
            assert!(is_handled, "{} {slot} at {}: {records:#?}", job.id, self.clock);
        }
        self.tally.slots += self.jobs.len();
    }

    /// The last slot of a job that is started each `hours` hours of a day.
    pub(super) fn last_slot(&self, hours: i64) -> Timestamp {
        let now = self.clock.as_second() / 3600;
        let hour = now - now % 24 % hours;
        Timestamp::from_second(hour * 3600).unwrap()
    }

    /// There are no other processes than those that live on, and these keep no files open.
    pub(super) fn check_processes(&mut self) {
        let living = self.living();
        processes::wait_until_gone(|| processes::unexpected(&living));
        let names = [
            ("poll", self.poll.as_ref().map(Child::id)),
            ("pipe", self.pipe.as_ref().map(|pipe| pipe.child.id())),
            ("repl", self.repl.as_ref().map(Screen::pid)),
        ];
        for (name, id) in names {
            let Some(id) = id.filter(|id| processes::is_alive(*id)) else {
                continue;
            };
            let (files, memory) =
                (processes::count_open_files(id), processes::anonymous_memory(id));
            let first = *self.first_files.entry(id).or_insert(files);
            let of_name = self.tally.open_files.entry(name).or_insert((files, 0));
            of_name.1 = of_name.1.max(files);
            let of_name = self.tally.memory.entry(name).or_insert((memory, 0));
            of_name.1 = of_name.1.max(memory);
            assert!(files <= first + OPEN_FILES_MARGIN, "{name}: {first} open files, then {files}");
        }
        self.first_files.retain(|id, _| living.contains(id));
    }

    /// No program has met a defect.
    pub(super) fn check_log(&self) {
        let text = std::fs::read(&self.log_path).unwrap();
        let text = String::from_utf8_lossy(&text);
        let defect = text.lines().find(|line| line.contains("defect") || line.contains("panicked"));
        assert_eq!(defect, None);
        assert!(!self.story.home().join(".nanobot/defects").exists());
        self.log.set_len(0).unwrap();
    }
}

/// The text of an answer, or its error.
fn describe(printed: &Value) -> String {
    match printed["error"].as_str() {
        Some(error) => format!("error: {error}"),
        None => printed["text"].as_str().unwrap_or_default().to_owned(),
    }
}
