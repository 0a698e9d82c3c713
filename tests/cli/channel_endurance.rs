//! `channel poll --follow` for a long time: memory, processor time and wakeups, for each way of listening.

use crate::channel::send_signal;
use crate::chat_services::{ChatService, chat_services};
use crate::server::says;
use crate::socket_server::Sockets;
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use crate::wait::until;
use rustix::process::Signal;
use serde_json::json;
use std::process::Child;
use std::time::{Duration, Instant};

/// The interval of the pings of WebSockets.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const MESSAGE_INTERVAL: Duration = Duration::from_secs(30);
const MINUTES: usize = 60;
/// The unit of processor times in /proc, which is the same on all machines with Linux.
const TICKS_PER_SECOND: u64 = 100;
/// Each fifth minute has no message, and some of these begin with the end of all WebSockets.
const QUIET_MINUTE: usize = 5;
const MINUTES_BETWEEN_CLOSES: usize = 15;
const PAGE_KIB: i64 = 4;
const LARGE_TEXT_BYTES: usize = 64 << 10;
const EARLY_MESSAGES: usize = 15;
const LATE_MESSAGES: usize = 45;

/// A service that a poll follows.
struct Followed {
    service: ChatService,
    story: Story,
    poll: Option<Child>,
    written: usize,
    /// The length of a message, at least.
    text_bytes: usize,
}

/// The use of resources by a process.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Anonymous memory, in KiB.
    anonymous: i64,
    /// Processor time since the start, in milliseconds.
    cpu: u64,
    /// Waits of all living threads.
    waits: u64,
    /// The size of the journal, in bytes.
    journal: u64,
}

impl Followed {
    /// Starts a poll after a first look.
    fn start(story: Story, service: ChatService) -> Self {
        let story = story.set("channels.perSenderPerHour", json!(100_000));
        story.server().always(says("Yes."));
        story.run(["channel", "poll"]);
        let poll = story.start(&mut story.command(["channel", "poll", "--follow"]));
        if let Some(sockets) = service.sockets() {
            sockets.wait_for_connections(1);
        }
        Self { service, story, poll: Some(poll), written: 0, text_bytes: 0 }
    }

    /// Writes a message, which must be answered.
    fn converse(&mut self) {
        self.written += 1;
        let text = format!("message {}", self.written);
        self.service.write(&text.repeat(self.text_bytes / text.len() + 1));
        until(&format!("{} answers", self.service.facts().name), || {
            self.service.count_answers() == self.written
        });
    }

    fn usage(&self) -> Usage {
        let process = format!("/proc/{}", self.poll.as_ref().unwrap().id());
        let read = |path: &str| std::fs::read_to_string(format!("{process}/{path}")).unwrap();
        let number = |status: &str, key: &str| -> i64 {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(key)).unwrap();
            let value = line.split_whitespace().next();
            value.unwrap().parse().unwrap()
        };
        let status = read("status");
        let stat = read("stat");
        let mut fields = stat.rsplit_once(')').unwrap().1.split(' ').skip(12);
        let mut ticks = || fields.next().unwrap().parse::<u64>().unwrap();
        let tasks = std::fs::read_dir(format!("{process}/task")).unwrap();
        // A thread may end meanwhile.
        let tasks = tasks
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
        let waits = tasks.map(|status| number(&status, "voluntary_ctxt_switches:"));
        let home = self.story.home().join(".nanobot/channels");
        let journal = home.join(self.service.facts().name).join("inbox.jsonl");
        Usage {
            anonymous: number(&status, "RssAnon:"),
            cpu: (ticks() + ticks()) * 1000 / TICKS_PER_SECOND,
            waits: waits.sum::<i64>().unsigned_abs(),
            journal: std::fs::metadata(journal).map_or(0, |it| it.len()),
        }
    }

    fn stop(mut self) {
        let poll = self.poll.take().unwrap();
        send_signal(&poll, Signal::TERM);
        let result = self.story.wait(poll);
        assert_eq!(
            result.signal(),
            Some(15),
            "{}: {}",
            self.service.facts().name,
            result.error_text()
        );
    }
}

impl Drop for Followed {
    /// Ends the poll of a test that has failed.
    fn drop(&mut self) {
        if let Some(mut poll) = self.poll.take() {
            drop(poll.kill());
            drop(poll.wait());
        }
    }
}

/// Starts a poll of each service.
fn follow_all() -> Vec<Followed> {
    let follow = |service: ChatService| {
        let story = Story::new().set("channels", json!({ service.facts().name: service.keys }));
        Followed::start(story, service)
    };
    chat_services().into_iter().map(follow).collect()
}

/// Checks the samples of each minute. In the second half of the hour there were `messages`.
fn check_usage(name: &str, samples: &[Usage], messages: i64) {
    let of_minute = |minute: usize| samples[minute - 1];
    for minute in (QUIET_MINUTE..=samples.len()).step_by(QUIET_MINUTE) {
        let (before, after) = (of_minute(minute - 1), of_minute(minute));
        let case = format!("{name}, minute {minute}: {before:?} {after:?}");
        let is_closed = minute % MINUTES_BETWEEN_CLOSES == 0;
        let pages = if is_closed { 16 } else { 4 };
        assert!(after.anonymous - before.anonymous <= pages * PAGE_KIB, "{case}");
        assert!(after.cpu - before.cpu <= 50, "{case}");
        assert!(after.waits.saturating_sub(before.waits) <= 100, "{case}");
        assert_eq!(after.journal, before.journal, "{case}");
    }
    // A message stays in the journal until that is written anew. Besides, turns get larger until the window of the session
    // is full, and pages of a service's history until they are.
    let (half, last) = (of_minute(MINUTES / 2), of_minute(MINUTES));
    let grown = last.anonymous - half.anonymous;
    assert!(grown <= 16 * messages, "{name}: {half:?} {last:?}");
    assert!(last.cpu <= 1500, "{name}: {last:?}");
}

#[test]
#[ignore = "takes an hour; see tests/README.md"]
#[allow(clippy::print_stdout, reason = "the use of each minute is to be seen")]
fn an_hour_of_following_costs_nothing_but_the_messages() {
    let mut all = follow_all();
    let mut samples: Vec<Vec<Usage>> = all.iter().map(|_| Vec::new()).collect();
    let start = Instant::now();
    let (mut next_message, mut next_ping) = (start, start);
    for minute in 1..=MINUTES {
        let sockets =
            |all: &[Followed]| all.iter().filter_map(|it| it.service.sockets().cloned()).collect();
        let sockets: Vec<Sockets> = sockets(&all);
        // A service ends each connection now and then.
        if minute % MINUTES_BETWEEN_CLOSES == 0 {
            sockets.iter().for_each(|it| it.close(1001));
        }
        let end = start + Duration::from_secs(60) * u32::try_from(minute).unwrap();
        while Instant::now() < end {
            if Instant::now() >= next_ping {
                next_ping += PING_INTERVAL;
                sockets.iter().for_each(Sockets::ping);
            }
            if Instant::now() >= next_message {
                next_message += MESSAGE_INTERVAL;
                if minute % QUIET_MINUTE != 0 {
                    all.iter_mut().for_each(Followed::converse);
                }
            }
            let next = next_message.min(next_ping).min(end);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        for (followed, samples) in all.iter().zip(&mut samples) {
            let usage = followed.usage();
            println!("{minute:>2} {:<10} {usage:?}", followed.service.facts().name);
            samples.push(usage);
        }
    }
    for (followed, samples) in all.iter().zip(&samples) {
        let messages = i64::try_from(followed.written / 2).unwrap();
        check_usage(followed.service.facts().name, samples, messages);
    }
    all.into_iter().for_each(Followed::stop);
}

/// A poll that always has something to do forgets what is settled, too: its journal is written anew while it listens.
#[test]
fn a_busy_poll_that_follows_does_not_grow_with_its_messages() {
    // Each in a chat of its own, so that no session grows.
    let service =
        ChatService::new(Box::new(TelegramServer::start()), EARLY_MESSAGES + LATE_MESSAGES);
    let story = Story::new().set("channels", json!({ "telegram": service.keys }));
    let mut followed = Followed::start(story, service);
    followed.text_bytes = LARGE_TEXT_BYTES;
    let mut converse = |count: usize| {
        (0..count).for_each(|_| followed.converse());
        followed.usage()
    };
    let early = converse(EARLY_MESSAGES);
    let late = converse(LATE_MESSAGES);
    let received = i64::try_from(LATE_MESSAGES * LARGE_TEXT_BYTES / 1024).unwrap();
    // The memory of a turn comes and goes; messages that are kept would take as much as they have.
    let grown = late.anonymous - early.anonymous;
    assert!(grown <= received * 2 / 3, "{early:?} {late:?}");
    assert!(late.journal < 1 << 20, "{late:?}");
    followed.stop();
}
