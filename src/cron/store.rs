//! The job file. The Python program writes it too: what it has there and we do not know stays as it is.
//!
//! Releases up to 0.1.4.post5 keep it in the data directory, later ones in the workspace. Each job is changed where it lies.

use super::job::{Delivery, HEARTBEAT, Job, Kind, State, Terms};
use super::schedule::Schedule;
use crate::cron::expression::Expression;
use crate::error::{Exit, fail, fail_hint};
use crate::sys::store::{self, Lock};
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the file, in the workspace and in the data directory.
const FILE: &str = "cron/jobs.json";
/// Bytes of a file that are read.
const LONGEST: u64 = 64 << 20;
/// Characters of a name that are read.
const NAME: usize = 200;
/// What the name of a damaged file's copy begins with.
const COPY: &str = "jobs.json.corrupt-";
/// How many copies of damaged files are kept.
const COPIES: usize = 5;
/// The mark of another program's job that cron is to run.
const TAKEN: &str = "taken";
/// How long another program may keep the file. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether a job was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    Done,
    /// Runs have made as many as they may.
    Full,
}

/// The jobs of a workspace.
#[derive(Clone, Debug)]
pub struct Store {
    /// Where the file may lie: in the workspace, and then where older releases have it.
    files: Vec<PathBuf>,
    /// Where a folder for each job holds what only this program knows.
    own: PathBuf,
}

impl Store {
    /// The jobs of `workspace`; `data` is our own directory. With `older` what older releases keep there counts too.
    pub fn new(workspace: &Path, data: &Path, older: bool) -> Self {
        let mut files = vec![workspace.join(FILE)];
        files.extend(older.then(|| data.join(FILE)));
        files.dedup();
        Self {
            files,
            own: data.join("cron"),
        }
    }

    /// Whether there are jobs where older releases have them.
    pub fn has_older(data: &Path) -> bool {
        data.join(FILE).exists()
    }

    /// The file that new jobs go to.
    pub fn file(&self) -> &Path {
        let found = self.files.iter().find(|path| path.exists());
        found.unwrap_or(&self.files[0])
    }

    /// The folder of what only this program knows of the job `id`.
    ///
    /// # Errors
    /// Status 78 where the id is no name of a folder: it would lead elsewhere.
    pub fn folder(&self, id: &str) -> Result<PathBuf> {
        match is_plain(id) {
            true => Ok(self.own.join(id)),
            false => Err(unusable(id)),
        }
    }

    /// Let cron run the job `id` of another program, from now on.
    pub fn take_over(&self, id: &str) -> Result<()> {
        let folder = self.folder(id)?;
        let mark = folder.join(TAKEN);
        if mark.exists() {
            return Ok(());
        }
        store::create_dir(&folder)?;
        store::open_log(&mark).map(drop)
    }

    /// Whether somebody said that cron is to run the job `id`, which another program made.
    pub fn is_taken_over(&self, id: &str) -> bool {
        self.folder(id)
            .is_ok_and(|folder| folder.join(TAKEN).is_file())
    }

    /// The directory of these folders.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// All jobs, in the order of the files; the heartbeat is the last.
    ///
    /// # Errors
    /// Status 78 where a file is no job file; it is copied aside.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        let (mut jobs, mut ids) = (Vec::new(), HashSet::new());
        for path in &self.files {
            for value in entries(&load(path)?) {
                let id = text(value, "id");
                // That name is the heartbeat's, which stands in no file.
                if id.as_deref() == Some(HEARTBEAT) {
                    continue;
                }
                if id.is_none_or(|id| ids.insert(id)) {
                    jobs.push(self.job_of(value)?);
                }
            }
        }
        jobs.extend(self.heartbeat()?);
        Ok(jobs)
    }

    /// What is odd about the files, in words.
    pub fn oddities(&self) -> Result<Vec<String>> {
        let mut words = Vec::new();
        for path in &self.files {
            if has(&load(path)?, HEARTBEAT) {
                let path = path.display();
                words.push(format!(
                    "`{path}` has a job with the id `{HEARTBEAT}`, which is passed over: that name is taken"
                ));
            }
            let places = path
                .is_file()
                .then(|| [Some(path.as_path()), path.parent()]);
            for place in places.into_iter().flatten().flatten() {
                if let Some(why) = store::changed_by_others(place) {
                    words.push(format!(
                        "`{}` {why}, who can so change what the jobs are told",
                        place.display()
                    ));
                }
            }
        }
        Ok(words)
    }

    /// The job `id`; `None` where there is none.
    pub fn job(&self, id: &str) -> Result<Option<Job>> {
        if id == HEARTBEAT {
            return self.heartbeat();
        }
        for path in &self.files {
            if let Some(value) = entry(path, id)? {
                return self.job_of(&value).map(Some);
            }
        }
        Ok(None)
    }

    /// Add a job that has an id of its own. What only we know of it is written first: a job never stands in the file
    /// without its limits.
    ///
    /// With `most`, only where runs have made fewer jobs than that.
    pub fn add(&self, job: &Job, now: Timestamp, most: Option<usize>) -> Result<Added> {
        let mut job = job.clone();
        job.bind();
        let job = &job;
        self.write_terms(job)?;
        if job.id == HEARTBEAT {
            return Ok(Added::Done);
        }
        let path = self.file().to_owned();
        let is_done = change(&path, |file| {
            if let Some(most) = most {
                let jobs = self.jobs()?;
                let by_model = |job: &&Job| job.terms.as_ref().is_some_and(|terms| terms.by_model);
                if jobs.iter().filter(by_model).count() >= most {
                    return Ok(false);
                }
            }
            let jobs = file
                .entry("jobs")
                .or_insert_with(|| json!([]))
                .as_array_mut();
            let jobs = jobs.ok_or_else(|| damaged(&path, "its `jobs` is no list"))?;
            let mut value = json!({});
            fill(&mut value, job, now);
            jobs.push(value);
            Ok(true)
        });
        match is_done {
            Ok(true) => Ok(Added::Done),
            Ok(false) => self.remove_folder(&job.id).map(|()| Added::Full),
            // It may stand in the file all the same, where only the last call failed; then it keeps its limits.
            Err(error) if load(&path).map_or(true, |file| has(&file, &job.id)) => Err(error),
            // What could not be added leaves nothing behind, if that can be had.
            Err(error) => match self.remove_folder(&job.id) {
                Ok(()) => Err(error),
                Err(other) => Err(error.context(format!("{other:#}"))),
            },
        }
    }

    /// Change the job `id` where it lies, as it is by then. Whether there is one. Its terms are written only where `change`
    /// says so.
    pub fn update(
        &self,
        id: &str,
        now: Timestamp,
        mut alter: impl FnMut(&mut Job) -> bool,
    ) -> Result<bool> {
        if id == HEARTBEAT {
            let Some(mut job) = self.heartbeat()? else {
                return Ok(false);
            };
            if alter(&mut job) {
                self.write_terms(&job)?;
            }
            return Ok(true);
        }
        for path in &self.files {
            let found = change(path, |file| {
                let Some(value) = entries_mut(file).find(|value| is(value, id)) else {
                    return Ok(false);
                };
                let mut job = self.job_of(value)?;
                if alter(&mut job) {
                    self.write_terms(&job)?;
                }
                fill(value, &job, now);
                Ok(true)
            })?;
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Take the job `id` out of the file, and what it was granted with it: another program may put one back under its id.
    /// Whether there was one. What is left of its runs stays.
    pub fn remove(&self, id: &str) -> Result<bool> {
        if id == HEARTBEAT {
            let is_there = self.heartbeat()?.is_some();
            self.forget_terms(id)?;
            return Ok(is_there);
        }
        let mut found = false;
        for path in &self.files {
            found |= change(path, |file| {
                let Some(jobs) = file.get_mut("jobs").and_then(Value::as_array_mut) else {
                    return Ok(false);
                };
                let before = jobs.len();
                jobs.retain(|value| !is(value, id));
                Ok(jobs.len() < before)
            })?;
        }
        if is_plain(id) {
            self.forget_terms(id)?;
        }
        Ok(found)
    }

    fn forget_terms(&self, id: &str) -> Result<()> {
        let path = self.terms_path(id)?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove `{}`", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Remove all that only this program keeps of the job `id`.
    pub fn remove_folder(&self, id: &str) -> Result<()> {
        let folder = self.folder(id)?;
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove `{}`", folder.display()))
            }
            _ => Ok(()),
        }
    }

    fn heartbeat(&self) -> Result<Option<Job>> {
        let terms = self.terms(HEARTBEAT)?;
        let Some(terms) = terms.filter(|terms| terms.kind == Kind::Heartbeat) else {
            return Ok(None);
        };
        let made = Timestamp::from_millisecond(terms.since_ms).unwrap_or_default();
        let schedule = match terms.every_ms {
            Some(millis) => every(millis),
            None => Err("its terms name no time".into()),
        };
        Ok(Some(Job {
            schedule,
            terms: Some(terms),
            ..Job::heartbeat(made)
        }))
    }

    /// Whether there are terms of the job `id`.
    pub fn has_terms(&self, id: &str) -> Result<bool> {
        Ok(is_plain(id) && self.terms_path(id)?.exists())
    }

    fn terms_path(&self, id: &str) -> Result<PathBuf> {
        Ok(self.folder(id)?.join("job.json"))
    }

    fn terms(&self, id: &str) -> Result<Option<Terms>> {
        if !is_plain(id) {
            return Ok(None);
        }
        let path = self.terms_path(id)?;
        let Some(bytes) = store::read_at_most(&path, LONGEST)? else {
            return Ok(None);
        };
        let terms: Terms = serde_json::from_slice(&bytes)
            .map_err(|error| damaged(&path, &format!("it cannot be read: {error}")))?;
        if terms.v > Terms::V {
            return Err(fail(
                Exit::Config,
                format!("`{}` was written by a newer release", path.display()),
            ));
        }
        Ok(Some(terms))
    }

    fn write_terms(&self, job: &Job) -> Result<()> {
        let Some(terms) = &job.terms else {
            return Ok(());
        };
        let path = self.terms_path(&job.id)?;
        store::create_dir(&self.folder(&job.id)?)?;
        let text = serde_json::to_vec_pretty(terms).context("write a job down")?;
        store::replace(&path, &text)
    }

    fn job_of(&self, value: &Value) -> Result<Job> {
        let id = text(value, "id").unwrap_or_default();
        let payload = either(value, "payload", "payload");
        let schedule = either(value, "schedule", "schedule");
        let state = either(value, "state", "state");
        let time = |of: &Value, key: &str| {
            millis(of, key).and_then(|at| Timestamp::from_millisecond(at).ok())
        };
        let created = time(value, "createdAtMs").unwrap_or_default();
        let kind = text(payload, "kind").unwrap_or_else(|| "agent_turn".into());
        Ok(Job {
            name: name_of(value).unwrap_or_else(|| id.clone()),
            enabled: either(value, "enabled", "enabled")
                .as_bool()
                .unwrap_or(true),
            schedule: match kind.as_str() {
                _ if !is_plain(&id) => Err(format!("its id `{id}` cannot be used")),
                "agent_turn" => schedule_of(schedule),
                _ => Err(format!("it is a job of the other program's own (`{kind}`)")),
            },
            message: text(payload, "message").unwrap_or_default(),
            delivery: Delivery {
                deliver: payload["deliver"].as_bool().unwrap_or(false),
                channel: text(payload, "channel"),
                to: text(payload, "to"),
            },
            session: text(payload, "sessionKey"),
            created,
            state: State {
                next_run: time(state, "nextRunAtMs"),
                last_run: time(state, "lastRunAtMs"),
                last_status: text(state, "lastStatus"),
                last_error: text(state, "lastError"),
            },
            delete_after_run: either(value, "deleteAfterRun", "delete_after_run")
                .as_bool()
                .unwrap_or(false),
            terms: self.terms(&id)?,
            id,
        })
    }
}

/// Whether `id` can be the name of a folder and a word of a command line.
pub fn is_plain(id: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    (1..=64).contains(&id.len()) && !id.starts_with('-') && id.chars().all(letter)
}

/// What to say of a job whose id leads to no folder.
pub fn unusable(id: &str) -> anyhow::Error {
    fail_hint(
        Exit::Config,
        format!(
            "the job's id `{id}` cannot be used: it is no word of letters, digits, `_` and `-`"
        ),
        "another id in the job file, by hand",
    )
}

/// What the file at `path` says; nothing where there is none.
fn load(path: &Path) -> Result<Map<String, Value>> {
    let Some(bytes) = store::read_at_most(path, LONGEST)? else {
        return Ok(Map::new());
    };
    let wrong = match serde_json::from_slice(&bytes) {
        Ok(Value::Object(file)) if file.get("jobs").is_none_or(Value::is_array) => {
            let version = file.get("version").and_then(Value::as_u64).unwrap_or(1);
            if version > 1 {
                return Err(fail(
                    Exit::Config,
                    format!(
                        "`{}` is of version {version}, which this release does not know",
                        path.display()
                    ),
                ));
            }
            return Ok(file);
        }
        Ok(_) => "it is no list of jobs".to_owned(),
        Err(error) => error.to_string(),
    };
    let aside = keep_aside(path, &bytes)?;
    let error = damaged(path, &wrong);
    Err(error.context(format!("a copy is kept as `{}`", aside.display())))
}

/// The job `id` of the file at `path`. The others are only skipped over, since cron asks this way each minute; wherever that
/// does not do, the whole file is read and judged.
fn entry(path: &Path, id: &str) -> Result<Option<Value>> {
    #[derive(Deserialize)]
    struct Sketch<'a> {
        version: u64,
        #[serde(borrow)]
        jobs: Vec<&'a RawValue>,
    }
    let Some(bytes) = store::read(path)? else {
        return Ok(None);
    };
    if let Ok(Sketch { version: 1, jobs }) = serde_json::from_slice(&bytes) {
        let named = jobs.iter().filter(|job| job.get().contains(id));
        let mut values = named.flat_map(|job| serde_json::from_str::<Value>(job.get()));
        if let Some(value) = values.find(|value| is(value, id)) {
            return Ok(Some(value));
        }
    }
    let file = load(path)?;
    Ok(entries(&file).find(|value| is(value, id)).cloned())
}

/// A copy of a damaged file, made once and named for its last change: the file itself stays for whoever mends it.
fn keep_aside(path: &Path, bytes: &[u8]) -> Result<PathBuf> {
    let time = std::fs::metadata(path)
        .and_then(|about| about.modified())
        .with_context(|| format!("look at `{}`", path.display()))?;
    let time = Timestamp::try_from(time).unwrap_or_default();
    let name = format!("{COPY}{}", time.strftime("%Y%m%dT%H%M%SZ"));
    let aside = path.with_file_name(name);
    if !aside.exists() {
        store::replace(&aside, bytes)?;
        thin_out(&aside)?;
    }
    Ok(aside)
}

/// Remove the oldest copies beside `newest`, which are named for their times.
fn thin_out(newest: &Path) -> Result<()> {
    let folder = newest.parent().unwrap_or(newest);
    let entries = std::fs::read_dir(folder);
    let entries = entries.with_context(|| format!("look into `{}`", folder.display()))?;
    let mut copies: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            path != newest && name.is_some_and(|name| name.starts_with(COPY))
        })
        .collect();
    copies.sort();
    let surplus = (copies.len() + 1).saturating_sub(COPIES);
    for old in &copies[..surplus] {
        std::fs::remove_file(old).with_context(|| format!("remove `{}`", old.display()))?;
    }
    Ok(())
}

fn damaged(path: &Path, wrong: &str) -> anyhow::Error {
    fail_hint(
        Exit::Config,
        format!("`{}` cannot be used: {wrong}", path.display()),
        "mend the file by hand; nothing is changed as long as it cannot be read",
    )
}

/// Change the file at `path` under its lock. It is written where `alter` says so.
fn change(
    path: &Path,
    alter: impl FnOnce(&mut Map<String, Value>) -> Result<bool>,
) -> Result<bool> {
    let folder = path.parent().unwrap_or(path);
    let is_there = path.exists();
    store::create_dir(folder)?;
    let lock = folder.join("jobs.json.lock");
    let lock = Lock::take(&lock, "the job file", "", PATIENCE, &mut |_| {})?;
    let mut file = load(path)?;
    if !is_there {
        file.entry("version").or_insert(json!(1));
    }
    let is_changed = alter(&mut file)?;
    if is_changed {
        let text = serde_json::to_vec_pretty(&file).context("write the jobs down")?;
        store::replace(path, &text)?;
    }
    drop(lock);
    Ok(is_changed)
}

fn entries(file: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let jobs = file.get("jobs").and_then(Value::as_array);
    jobs.into_iter().flatten().filter(|value| value.is_object())
}

fn has(file: &Map<String, Value>, id: &str) -> bool {
    entries(file).any(|value| is(value, id))
}

fn entries_mut(file: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    let jobs = file.get_mut("jobs").and_then(Value::as_array_mut);
    jobs.into_iter().flatten().filter(|value| value.is_object())
}

fn is(value: &Value, id: &str) -> bool {
    text(value, "id").as_deref() == Some(id)
}

/// What a job is called, on one line and without what a terminal or a command would take for something else.
fn name_of(value: &Value) -> Option<String> {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let name: String = text(value, "name")?.chars().map(plain).take(NAME).collect();
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

/// A value by either of its names.
fn either<'a>(value: &'a Value, name: &str, other: &str) -> &'a Value {
    match &value[name] {
        Value::Null => &value[other],
        found => found,
    }
}

/// `camelCase` as `snake_case`: newer releases take both.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn text(value: &Value, key: &str) -> Option<String> {
    let text = either(value, key, &snake(key)).as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Milliseconds, which some releases write as a text.
fn millis(value: &Value, key: &str) -> Option<i64> {
    let found = either(value, key, &snake(key));
    found
        .as_i64()
        .or_else(|| found.as_f64().map(|number| number as i64))
        .or_else(|| found.as_str()?.parse().ok())
}

fn every(millis: i64) -> Result<Schedule, String> {
    match u64::try_from(millis) {
        Ok(millis) if millis > 0 => Ok(Schedule::Every(Duration::from_millis(millis))),
        _ => Err("the time between its runs is not above zero".into()),
    }
}

fn schedule_of(value: &Value) -> Result<Schedule, String> {
    match value["kind"].as_str() {
        Some("every") => every(millis(value, "everyMs").unwrap_or_default()),
        Some("at") => {
            let time = millis(value, "atMs").and_then(|at| Timestamp::from_millisecond(at).ok());
            time.map(Schedule::At).ok_or("it names no time".into())
        }
        Some("cron") => {
            let expression = text(value, "expr").ok_or("it has no expression")?;
            let parsed = Expression::parse(&expression)
                .map_err(|words| format!("the expression `{expression}` {words}"))?;
            Ok(Schedule::Cron {
                expression: parsed,
                zone: text(value, "tz"),
            })
        }
        Some(kind) => Err(format!("a schedule of the kind `{kind}` is not known")),
        None => Err("it has no schedule".into()),
    }
}

/// Write into `value` what `job` says; what it does not know stays.
fn fill(value: &mut Value, job: &Job, now: Timestamp) {
    let at = |time: Option<Timestamp>| json!(time.map(Timestamp::as_millisecond));
    value["id"] = json!(job.id);
    if name_of(value).as_ref() != Some(&job.name) {
        value["name"] = json!(job.name);
    }
    value["enabled"] = json!(job.enabled);
    if let Ok(schedule) = &job.schedule {
        let place = object(&mut value["schedule"]);
        let (kind, at_ms, every_ms, expression, zone) = match schedule {
            Schedule::At(time) => ("at", at(Some(*time)), Value::Null, Value::Null, Value::Null),
            Schedule::Every(period) => {
                let millis = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
                (
                    "every",
                    Value::Null,
                    json!(millis),
                    Value::Null,
                    Value::Null,
                )
            }
            Schedule::Cron { expression, zone } => (
                "cron",
                Value::Null,
                Value::Null,
                json!(expression.text()),
                json!(zone),
            ),
        };
        set(place, "kind", json!(kind));
        set(place, "atMs", at_ms);
        set(place, "everyMs", every_ms);
        set(place, "expr", expression);
        set(place, "tz", zone);
    }
    let payload = object(&mut value["payload"]);
    payload.entry("kind").or_insert(json!("agent_turn"));
    set(payload, "message", json!(job.message));
    set(payload, "deliver", json!(job.delivery.deliver));
    set(payload, "channel", json!(job.delivery.channel));
    set(payload, "to", json!(job.delivery.to));
    if job.session.is_some() || payload.contains_key("sessionKey") {
        set(payload, "sessionKey", json!(job.session));
    }
    let state = object(&mut value["state"]);
    set(state, "nextRunAtMs", at(job.state.next_run));
    set(state, "lastRunAtMs", at(job.state.last_run));
    set(state, "lastStatus", json!(job.state.last_status));
    set(state, "lastError", json!(job.state.last_error));
    if let Some(value) = value.as_object_mut() {
        set(value, "createdAtMs", at(Some(job.created)));
        set(value, "updatedAtMs", at(Some(now)));
        set(value, "deleteAfterRun", json!(job.delete_after_run));
    }
}

/// Set a key by the name that it has there already.
fn set(place: &mut Map<String, Value>, key: &str, value: Value) {
    let other = snake(key);
    let name = match place.contains_key(&other) && !place.contains_key(key) {
        true => &other,
        false => key,
    };
    place.insert(name.to_owned(), value);
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(object) => object,
        _ => unreachable!("it was made an object"),
    }
}
