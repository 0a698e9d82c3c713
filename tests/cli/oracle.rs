//! The start times of jobs, compared with those computed by independent programs: `tests/oracle/make.py` writes `slots.json`
//! and `runs.json`. These tests check a share; `cargo test --features test-hooks --release --test cli oracle -- --ignored`
//! checks all.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use nanobot_cron::expression::Expression;
use nanobot_cron::schedule::{CatchUpPolicy, DueState, Schedule, Timetable};
use nanobot_cron::time_fields::crontab_fields;
use nanobot_os::clock::named_zone;
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cases {
    from: i16,
    to: i16,
    created: String,
    zones: Vec<String>,
    jobs: Vec<OracleJob>,
    every_year: Vec<MachineEvent>,
    one_year: Vec<MachineEvent>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OracleJob {
    name: String,
    cron: Option<String>,
    tz: Option<String>,
    every: Option<u64>,
    at: Option<String>,
    catch_up: CatchUpPolicy,
}

/// An event of the machine, with times in minutes.
#[derive(Clone, Deserialize)]
struct MachineEvent {
    at: String,
    /// Switched off for this long.
    #[serde(default)]
    down: i64,
    #[serde(default)]
    asleep: i64,
    /// The clock is set by this much.
    #[serde(default)]
    step: i64,
}

#[derive(Deserialize)]
struct SlotsRow {
    zone: String,
    expression: String,
    count: usize,
    quarters: Vec<String>,
    near: Option<Vec<i64>>,
}

#[derive(Deserialize)]
struct RunsRow {
    zone: String,
    job: String,
    runs: usize,
    missed: usize,
    first: String,
    all: String,
}

fn oracle_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle")
}

fn read_json<T: for<'text> Deserialize<'text>>(name: &str) -> T {
    let text = std::fs::read_to_string(oracle_dir().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

impl Cases {
    fn created(&self) -> Timestamp {
        self.created.parse().unwrap()
    }

    /// The starts of all quarters, and the end.
    fn quarters(&self) -> Vec<i64> {
        let mut starts = Vec::new();
        for year in self.from..self.to {
            starts.extend([1, 4, 7, 10].map(|month| midnight_secs(year, month)));
        }
        starts.push(midnight_secs(self.to, 1));
        starts
    }
}

fn midnight_secs(year: i16, month: i8) -> i64 {
    let date = Date::new(year, month, 1).unwrap();
    TimeZone::UTC.to_timestamp(date.into()).unwrap().as_second()
}

fn timestamp(time: i64) -> Timestamp {
    Timestamp::from_second(time).unwrap()
}

/// CRC-32 of lines.
fn crc32_of_lines(lines: impl Iterator<Item = String>) -> String {
    let mut sum = flate2::Crc::new();
    for line in lines {
        sum.update(line.as_bytes());
        sum.update(b"\n");
    }
    format!("{:08x}", sum.sum())
}

/// Compares the slots. Of expressions with at least `max_slots` slots only the first half year, and of those with ten times
/// as many only the slots near clock changes.
fn compare_slots(max_slots: usize) {
    let cases: Cases = read_json("cases.json");
    let rows: Vec<SlotsRow> = read_json("slots.json");
    let mut wrong = Vec::new();
    for row in rows {
        let zone = named_zone(&row.zone).unwrap();
        let expression = Expression::parse(&row.expression).unwrap();
        let edges = cases.quarters();
        let count = match row.count / max_slots {
            0 => edges.len() - 1,
            1..10 => 2,
            _ => 0,
        };
        let mut slots: Vec<i64> = Vec::new();
        let mut time = timestamp(edges[0] - 1);
        while let Some(next) = expression.next(time, &zone)
            && next.as_second() < edges[count]
        {
            slots.push(next.as_second());
            time = next;
        }
        for (part, expect) in edges[..=count].windows(2).zip(&row.quarters) {
            let inside = slots.iter().filter(|slot| (part[0]..part[1]).contains(*slot));
            if crc32_of_lines(inside.map(i64::to_string)) != *expect {
                wrong.push(format!(
                    "{} in {} from {}",
                    row.expression,
                    row.zone,
                    timestamp(part[0])
                ));
            }
        }
        if row.count <= max_slots && slots.len() != row.count {
            wrong.push(format!(
                "{} in {}: {} slots, not {}",
                row.expression,
                row.zone,
                slots.len(),
                row.count
            ));
        }
        // In both directions around a clock change, asked at each minute.
        let near = row.near.unwrap_or_default();
        for (one, next) in near.iter().zip(near.iter().skip(1)) {
            if next - one > 6 * 3600 {
                continue;
            }
            for minute in (*one..*next).step_by(60) {
                let slots = (
                    expression.latest(timestamp(minute + 7), &zone),
                    expression.next(timestamp(minute + 7), &zone),
                );
                if slots != (Some(timestamp(*one)), Some(timestamp(*next))) {
                    wrong.push(format!(
                        "{} in {} at {}: {slots:?}",
                        row.expression,
                        row.zone,
                        timestamp(minute)
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
}

#[test]
fn slots_match_cron() {
    compare_slots(2_000);
}

#[test]
#[ignore = "a minute or two in a release build"]
fn slots_match_cron_for_five_years() {
    compare_slots(usize::MAX);
}

impl OracleJob {
    fn schedule(&self) -> Schedule {
        match (&self.cron, self.every, &self.at) {
            (Some(text), None, None) => Schedule::Cron {
                expression: Expression::parse(text).unwrap(),
                zone: self.tz.clone(),
            },
            (None, Some(seconds), None) => Schedule::Every(Duration::from_secs(seconds)),
            (None, None, Some(time)) => Schedule::At(time.parse().unwrap()),
            _ => panic!("{}", self.name),
        }
    }

    fn zone(&self, system: &TimeZone) -> TimeZone {
        match &self.tz {
            Some(name) => named_zone(name).unwrap(),
            None => system.clone(),
        }
    }
}

/// The crontab lines for the script's cron model: `.ci/renew oracle` writes them anew; then run the script again.
#[test]
fn lines_match_those_given_to_the_oracle() {
    let cases: Cases = read_json("cases.json");
    let mut all = serde_json::Map::new();
    for here in &cases.zones {
        let system = named_zone(here).unwrap();
        let mut lines = serde_json::Map::new();
        for job in &cases.jobs {
            let fields = crontab_fields(
                &job.schedule(),
                job.catch_up,
                cases.created(),
                &job.zone(&system),
                &system,
            );
            lines.insert(job.name.clone(), json!(fields));
        }
        all.insert(here.clone(), lines.into());
    }
    let text = serde_json::to_string_pretty(&all).unwrap() + "\n";
    crate::recorded::assert_recorded("tests/oracle/lines.json", &text);
}

/// A model of Debian's cron according to cron(8), in local minutes since 1970.
struct CronModel {
    /// The minute up to which jobs at fixed times were started.
    done: i64,
    last_minute: i64,
}

impl CronModel {
    /// The minutes whose lines are started now: those with a star, and those without.
    fn due_minutes(&mut self, local: i64) -> Vec<(i64, bool, bool)> {
        if local == self.last_minute {
            return Vec::new();
        }
        self.last_minute = local;
        let missed = self.done + 1..=local;
        let minutes = match local - self.done {
            1..=5 => missed.map(|minute| (minute, true, true)).collect(),
            6..=180 => [(local, true, false)]
                .into_iter()
                .chain(missed.map(|minute| (minute, false, true)))
                .collect(),
            // Until the clock reaches its previous time.
            -179..=0 => return vec![(local, true, false)],
            _ => vec![(local, true, true)],
        };
        self.done = local;
        minutes
    }
}

/// A line of a crontab.
struct CronLine {
    job: usize,
    fields: Vec<BTreeSet<i64>>,
    has_star: bool,
    has_both_days: bool,
}

impl CronLine {
    fn parse(job: usize, text: &str) -> Self {
        let fields: Vec<&str> = text.split(' ').collect();
        let star = |at: usize| fields[at].starts_with('*');
        let ranges = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        Self {
            job,
            has_star: star(0) || star(1),
            has_both_days: star(2) || star(4),
            fields: fields
                .iter()
                .zip(ranges)
                .map(|(field, range)| parse_field(field, range))
                .collect(),
        }
    }

    fn matches(&self, minute: i64) -> bool {
        let time = TimeZone::UTC.to_datetime(timestamp(minute * 60));
        let has = |at: usize, value: i8| self.fields[at].contains(&i64::from(value));
        let day = has(2, time.day());
        let weekday = has(4, time.weekday().to_sunday_zero_offset());
        has(0, time.minute())
            && has(1, time.hour())
            && has(3, time.month())
            && if self.has_both_days { day && weekday } else { day || weekday }
    }
}

fn parse_field(field: &str, (low, high): (i64, i64)) -> BTreeSet<i64> {
    let item = |item: &str| {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
            None => (range.parse().unwrap(), range.parse().unwrap()),
        };
        (first..=last).step_by(step.parse().unwrap())
    };
    field.split(',').flat_map(item).collect()
}

/// The runs of a machine in the zone `here` until a time: when, for which slot, and whether it was only recorded as missed.
fn simulate(
    cases: &Cases,
    here: &str,
    until: i64,
) -> BTreeMap<String, Vec<(i64, i64, &'static str)>> {
    let system = named_zone(here).unwrap();
    let start = midnight_secs(cases.from, 1);
    let mut events = BTreeMap::new();
    let mut happens = |at: String, event: &MachineEvent| {
        let at: Timestamp = format!("{at}:00Z").parse().unwrap();
        events.insert((at.as_second() - start) / 60, event.clone());
    };
    for year in cases.from..cases.to {
        for event in &cases.every_year {
            happens(format!("{year}-{}", event.at), event);
        }
    }
    for event in &cases.one_year {
        happens(event.at.clone(), event);
    }

    let mut table: Vec<Vec<CronLine>> = (0..60).map(|_| Vec::new()).collect();
    let schedules: Vec<(Schedule, TimeZone)> =
        cases.jobs.iter().map(|job| (job.schedule(), job.zone(&system))).collect();
    for (at, (job, (schedule, zone))) in cases.jobs.iter().zip(&schedules).enumerate() {
        for text in crontab_fields(schedule, job.catch_up, cases.created(), zone, &system) {
            for minute in &CronLine::parse(at, &text).fields[0] {
                table[*minute as usize].push(CronLine::parse(at, &text));
            }
        }
    }

    let mut handled: Vec<Option<Timestamp>> = vec![None; cases.jobs.len()];
    let mut done: Vec<BTreeSet<Timestamp>> = vec![BTreeSet::new(); cases.jobs.len()];
    let mut logs = vec![Vec::new(); cases.jobs.len()];
    let mut run = |at: usize, now: Timestamp| {
        let (job, (schedule, zone)) = (&cases.jobs[at], &schedules[at]);
        let created = cases.created();
        let timetable = Timetable {
            predecessor_end: None,
            schedule,
            catch_up: job.catch_up,
            created,
            earliest_slot: created,
            zone,
            delay: Duration::ZERO,
            max_delay: Duration::ZERO,
        };
        let ask = |handled| timetable.due_state(handled, now);
        let mut verdict = ask(handled[at]);
        if let DueState::ClockWasWrong { last_slot: instead } = verdict {
            handled[at] = Some(instead);
            verdict = ask(handled[at]);
        }
        let (slot, kind) = match verdict {
            DueState::Due { slot } => (slot, "run"),
            DueState::Missed { slot } => (slot, "missed"),
            DueState::NotYet { .. } | DueState::Delayed { .. } => return,
            DueState::ClockWasWrong { .. } => panic!("{} at {now}", job.name),
        };
        handled[at] = Some(slot);
        // It has a record.
        if done[at].contains(&slot) {
            return;
        }
        if kind == "run" {
            done[at].insert(slot);
        }
        logs[at].push((now.as_second(), slot.as_second(), kind));
    };

    let (mut real, mut skew) = (0, 0);
    let mut cron: Option<CronModel> = None;
    while start + real * 60 < until {
        if let Some(event) = events.get(&real) {
            skew += event.step;
            real += event.down + event.asleep;
            if event.down > 0 {
                cron = None;
            }
        }
        let time = start + (real + skew) * 60;
        let local = time / 60 + i64::from(system.to_offset(timestamp(time)).seconds()) / 60;
        let cron = cron.get_or_insert(CronModel { done: local, last_minute: local });
        for (minute, with_star, without) in cron.due_minutes(local) {
            for line in &table[minute.rem_euclid(60) as usize] {
                let kind = if line.has_star { with_star } else { without };
                if kind && line.matches(minute) {
                    run(line.job, timestamp(time) + SignedDuration::from_secs(1));
                }
            }
        }
        real += 1;
    }
    let names = cases.jobs.iter().map(|job| job.name.clone());
    names.zip(logs).collect()
}

fn compare_runs(zones: &[&str], share: bool) {
    let mut cases: Cases = read_json("cases.json");
    if share {
        // Checked at each minute.
        cases.jobs.retain(|job| job.name != "1000 seconds");
    }
    let rows: Vec<RunsRow> = read_json("runs.json");
    let half = midnight_secs(cases.from, 7);
    let end = midnight_secs(cases.to, 1) - 2 * 86_400;
    let mut wrong = Vec::new();
    for here in cases.zones.iter().filter(|zone| zones.is_empty() || zones.contains(&&***zone)) {
        let logs = simulate(&cases, here, if share { half + 86_400 } else { end });
        for row in rows.iter().filter(|row| row.zone == *here) {
            let Some(log) = logs.get(&row.job) else {
                continue;
            };
            let lines = |until: i64| {
                let inside = log.iter().filter(move |(now, ..)| *now < until);
                crc32_of_lines(inside.map(|(now, slot, kind)| format!("{now} {slot} {kind}")))
            };
            let count = |wanted| log.iter().filter(|(.., kind)| *kind == wanted).count();
            let same = lines(half) == row.first
                && (share
                    || (lines(i64::MAX) == row.all
                        && count("run") == row.runs
                        && count("missed") == row.missed));
            if !same {
                wrong.push(format!(
                    "`{}` in {here}: {} runs, {} missed",
                    row.job,
                    count("run"),
                    count("missed")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "these differ, see `make.py runs`:\n{}", wrong.join("\n"));
}

#[test]
fn runs_match_a_machine_with_cron() {
    compare_runs(&["Europe/Berlin"], true);
}

#[test]
#[ignore = "minutes in a release build"]
fn runs_match_a_machine_with_cron_for_five_years() {
    compare_runs(&[], false);
}
