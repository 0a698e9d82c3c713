//! What `status` tells of cron: at a glance the jobs, with `--check` whether they really run.

use super::check::{Finding, Level, Look};
use crate::cron::command::Started;
use crate::cron::job::{Delivery, HEARTBEAT, Job, State, Terms};
use crate::cron::record::{Folder, Outcome};
use crate::cron::schedule::Schedule;
use crate::cron::store::{Store, is_plain};
use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::crontab_sync::{self, Surroundings};
use crate::ops::jobs::job_options;
use crate::ops::jobs::job_status;
use crate::ops::jobs::job_store;
use crate::ops::jobs::time_format::{length, moment, one_line, until};
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use crate::settings::Settings;
use crate::shell_quote::quoted;
use crate::sys::process::{self, Spec};
use crate::sys::store::may_make;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const SYNC: &str = "`nanobot cron sync`";
/// What the made-up job is called.
const PROBE: &str = "probe";
/// How long it may take, with the key's command.
const LIMIT: Duration = Duration::from_secs(100);
/// How long a program may take to say its version.
const ASKED: Duration = Duration::from_secs(10);
/// Bytes that are kept of what they say.
const KEEP: usize = 64 << 10;
/// Records that are looked through for the last run.
const LAST: usize = 100;

/// The jobs at a glance.
pub(crate) struct Glance {
    jobs: Result<Vec<Job>>,
    next: Option<(Job, Timestamp)>,
    heartbeat: Option<(Job, Option<Timestamp>)>,
    failed: Option<Job>,
}

impl Glance {
    pub(crate) fn of(ctx: &Context, settings: &Settings) -> Self {
        let mut jobs = job_store::open(ctx, settings).jobs();
        let mut all = jobs.as_deref().unwrap_or_default().to_vec();
        let now = ctx.clock.timestamp();
        let coming = |job: &Job| timing::upcoming_runs(ctx, job, now, 1).pop();
        let beats = all.pop_if(|job| job.id == HEARTBEAT);
        if let Ok(jobs) = &mut jobs {
            jobs.clone_from(&all);
        }
        let next = all.iter().filter(|job| job.enabled);
        let next = next.filter_map(|job| Some((job.clone(), coming(job)?)));
        let failed = all
            .iter()
            .filter(|job| job.state.last_status.as_deref() == Some("error"));
        Self {
            next: next.min_by_key(|(_, time)| *time),
            failed: failed.max_by_key(|job| job.state.last_run).cloned(),
            heartbeat: beats.map(|job| (job.clone(), coming(&job))),
            jobs,
        }
    }

    fn enabled(&self) -> usize {
        let jobs = self.jobs.as_deref().unwrap_or_default();
        jobs.iter().filter(|job| job.enabled).count()
    }

    /// What is to be done about the job that failed last.
    pub(crate) fn next_step(&self) -> Option<String> {
        let failed = self.failed.as_ref()?;
        Some(format!("nanobot cron logs {}", one_line(&failed.id)))
    }

    pub(crate) fn json(&self) -> Value {
        let failure = self.failed.as_ref().map(|job| {
            json!({
                "id": job.id, "name": job.name, "time": job.state.last_run.map(|time| time.to_string()),
                "error": job.state.last_error,
            })
        });
        json!({
            "jobs": self.jobs.as_ref().ok().map(Vec::len), "enabled": self.enabled(),
            "error": self.jobs.as_ref().err().map(|error| format!("{error:#}")),
            "next": self.next.as_ref().map(|(job, time)| json!({
                "id": job.id, "name": job.name, "time": time.to_string(),
            })),
            "last_failure": failure,
            "heartbeat": self.heartbeat.as_ref().map(|(job, time)| json!({
                "every_s": period(job).map(|period| period.as_secs()), "next": time.map(|time| time.to_string()),
            })),
        })
    }

    pub(crate) fn rows(&self, ctx: &Context) -> Vec<(&'static str, String)> {
        let now = time_zone::now(ctx);
        let when = |time: Timestamp| {
            let away = until(time, now.timestamp());
            format!("{} ({away})", moment(time, &now))
        };
        let jobs = match &self.jobs {
            Err(error) => format!("{error:#}"),
            Ok(jobs) if jobs.is_empty() => "no jobs".into(),
            Ok(jobs) => {
                let next = match &self.next {
                    Some((job, time)) => format!("next `{}` {}", one_line(&job.name), when(*time)),
                    None => "none of them runs".into(),
                };
                match jobs.len() - self.enabled() {
                    0 => format!("{}, {next}", count(jobs.len())),
                    off => format!("{}, {off} disabled, {next}", count(jobs.len())),
                }
            }
        };
        let mut rows = vec![("cron", jobs)];
        rows.extend(self.failed.as_ref().map(|job| {
            let State {
                last_run,
                last_error,
                ..
            } = &job.state;
            let time =
                last_run.map_or_else(String::new, |time| format!(", {}", moment(time, &now)));
            let error = last_error.as_deref().unwrap_or("nobody wrote down why");
            let name = one_line(&job.name);
            ("failed", format!("`{name}`{time}: {}", one_line(error)))
        }));
        let heartbeat = match &self.heartbeat {
            None => "off".into(),
            Some((job, next)) => {
                let next = next.map_or_else(|| "never".into(), when);
                format!("{}, next {next}", timing::describe_schedule(ctx, job))
            }
        };
        rows.push(("heartbeat", heartbeat));
        rows
    }
}

fn period(job: &Job) -> Option<Duration> {
    match &job.schedule {
        Ok(Schedule::Every(period)) => Some(*period),
        _ => None,
    }
}

fn count(jobs: usize) -> String {
    match jobs {
        1 => "1 job".into(),
        jobs => format!("{jobs} jobs"),
    }
}

/// What the checks of cron look at.
pub(crate) fn look(ctx: &Context) -> Result<(Settings, Store)> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    Ok((settings, store))
}

/// The lines of our block in the crontab.
pub(crate) fn block(ctx: &Context, settings: &Settings) -> Result<Vec<String>> {
    crontab_sync::lines(ctx, settings)
}

impl Look<'_> {
    fn all(&self) -> &[Job] {
        self.jobs.as_deref().unwrap_or_default()
    }

    fn enabled(&self) -> impl Iterator<Item = &Job> {
        self.all().iter().filter(|job| job.enabled)
    }

    /// Whether there is a job that is to be started.
    fn needs_cron(&self) -> bool {
        self.enabled().any(|job| job.terms.is_some())
    }

    /// What was found of what starts the jobs: nothing is the matter while there are none.
    fn of_cron(&self, finding: Finding) -> Finding {
        match self.needs_cron() {
            true => finding,
            false => Finding::ok(format!(
                "not needed, since no job waits for it ({})",
                finding.words
            )),
        }
    }
}

/// How a job is called in a finding.
fn called(job: &Job) -> String {
    format!("`{}` ({})", one_line(&job.name), one_line(&job.id))
}

fn all_called<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> String {
    let names: Vec<String> = jobs.into_iter().map(called).collect();
    names.join(", ")
}

/// Whether a run can leave what it has to leave.
pub(crate) fn places(look: &Look) -> Vec<Finding> {
    let Look { ctx, settings, .. } = look;
    let workspace = &settings.workspace;
    let mut findings: Vec<Finding> = [
        (ctx.paths.root.join("usage.jsonl"), "what a run costs"),
        (ctx.paths.cron().join(PROBE), "the records of runs"),
        (workspace.join("sessions/x"), "conversations"),
        (workspace.join("cron/jobs.json"), "the job file"),
    ]
    .iter()
    .filter_map(|(path, what)| {
        let error = may_make(path.parent().unwrap_or(path)).err()?;
        let words = format!("{what} cannot be written: {error:#}");
        Some(Finding::failed(words).exit(Exit::Io))
    })
    .collect();
    let shown = ctx.paths.display(workspace);
    if findings.is_empty() {
        findings.push(match workspace.is_dir() {
            true => Finding::ok(format!("workspace `{shown}`")),
            false => Finding::warn(format!(
                "the workspace `{shown}` is not there: the first run makes it, and it is empty then"
            ))
            .hint("`nanobot onboard`"),
        });
    }
    findings
}

/// Whether the job file can be read.
pub(crate) fn jobs(look: &Look) -> Vec<Finding> {
    let orphans = crontab_sync::orphans(look.store, look.lines.as_deref().unwrap_or_default());
    let finding = match &look.jobs {
        Err(error) => Finding::of_error(Level::Failed, error),
        Ok(_) if !orphans.is_empty() => Finding {
            jobs: orphans.clone(),
            ..Finding::failed(crontab_sync::without_file(&orphans)).exit(Exit::Config)
        }
        .hint(format!(
            "put `{}` back; or `nanobot cron remove ID …`, which lets them go",
            look.ctx.paths.display(look.store.file())
        )),
        Ok(jobs) if jobs.is_empty() => Finding::ok("no jobs"),
        Ok(jobs) => {
            let file = look.ctx.paths.display(look.store.file());
            match look.enabled().count() {
                all if all == jobs.len() => Finding::ok(format!("{} in `{file}`", count(all))),
                some => Finding::ok(format!(
                    "{} in `{file}`, {some} of them enabled",
                    count(jobs.len())
                )),
            }
        }
    };
    let told = look
        .all()
        .iter()
        .filter_map(|job| Some((job, job_status::tampered_notice(job)?)));
    let told = told.map(|(job, words)| Finding::failed(words).about([job]));
    // What cannot be read is told above.
    let odd = look.store.oddities().unwrap_or_default();
    let odd = odd.into_iter().map(Finding::warn);
    std::iter::once(finding).chain(told).chain(odd).collect()
}

/// Whether every job has times, and can stand in a crontab.
pub(crate) fn schedules(look: &Look) -> Vec<Finding> {
    let surroundings = match Surroundings::of(look.ctx, look.settings, look.all()) {
        Ok(surroundings) => surroundings,
        Err(error) => return vec![Finding::of_error(Level::Failed, &error)],
    };
    let mut findings = Vec::new();
    let mut lost = BTreeSet::new();
    for job in look.enabled() {
        match crontab_sync::lines_of(look.ctx, &surroundings, job) {
            Ok((_, left_out)) => lost.extend(left_out),
            Err(why) => {
                let level = match job.terms {
                    Some(_) => Level::Failed,
                    // It is the other program's to run.
                    None => Level::Warn,
                };
                let words = format!("{} never runs: {why}", called(job));
                let hint = format!("`nanobot cron edit {}`, or `nanobot cron disable`", job.id);
                let finding = Finding::new(level, words).exit(Exit::Config);
                findings.push(finding.hint(hint).about([job]));
            }
        }
    }
    if !lost.is_empty() {
        let lost: Vec<String> = lost.into_iter().collect();
        findings.push(
            Finding::warn(format!(
                "the PATH of cron's runs has no room for {}",
                lost.join(", ")
            ))
            .hint("absolute paths in the commands of jobs"),
        );
    }
    if findings.is_empty() && look.enabled().next().is_some() {
        findings.push(Finding::ok("every job has its times"));
    }
    findings
}

/// Whether there is a crontab, and it can be read.
pub(crate) fn crontab(look: &Look) -> Vec<Finding> {
    let finding = match &look.lines {
        Ok(lines) => {
            let lines = match lines.len() {
                0 => "no line of ours".into(),
                1 => "1 line of ours".into(),
                lines => format!("{lines} lines of ours"),
            };
            Finding::ok(format!("it can be read: {lines}"))
        }
        Err(error) => look.of_cron(Finding::of_error(Level::Failed, error)),
    };
    vec![finding]
}

/// What of a line has to be as the job says. Its PATH is that of the shell in which it was written, and its program is a
/// check of its own.
fn essence(line: &str) -> Option<(&str, Started)> {
    let (fields, mut started) = crontab_sync::but_path(line)?;
    started.words.remove(0);
    Some((fields, started))
}

/// Whether the crontab is as the jobs are.
pub(crate) fn lines(look: &Look) -> Vec<Finding> {
    let (Ok(there), Ok(jobs)) = (&look.lines, &look.jobs) else {
        return Vec::new();
    };
    let Ok(surroundings) = Surroundings::of(look.ctx, look.settings, jobs) else {
        return Vec::new();
    };
    let (mut missing, mut stale, mut foreign) = (Vec::new(), Vec::new(), Vec::new());
    let mut by_id: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in there {
        if let Some(id) = crontab_sync::id_of(line) {
            by_id.entry(id).or_default().push(essence(line));
        }
    }
    for job in look.enabled() {
        let wanted = crontab_sync::lines_of(look.ctx, &surroundings, job);
        // One that never runs is to have none.
        let wanted = wanted.map_or_else(|_| Vec::new(), |(lines, _)| lines);
        let its = by_id.get(job.id.as_str()).cloned().unwrap_or_default();
        let wanted: Vec<_> = wanted.iter().map(|line| essence(line)).collect();
        match its.is_empty() {
            _ if its == wanted => {}
            true if job.terms.is_none() => foreign.push(job),
            true => missing.push(job),
            false => stale.push(job),
        }
    }
    let orphans = crontab_sync::orphans(look.store, there);
    let stands = |id: &str| {
        let is_wanted = look.enabled().any(|job| job.id == id);
        is_wanted || orphans.iter().any(|orphan| orphan == id)
    };
    let surplus: BTreeSet<&str> = there
        .iter()
        .filter_map(|line| crontab_sync::id_of(line))
        .filter(|id| !stands(id))
        .collect();
    let mut findings = Vec::new();
    for (jobs, what) in [
        (&missing, "not in the crontab"),
        (
            &stale,
            "in the crontab with other times or places than they have",
        ),
    ] {
        if !jobs.is_empty() {
            let words = format!("{what}: {}", all_called(jobs.iter().copied()));
            findings.push(
                Finding::failed(words)
                    .hint(SYNC)
                    .about(jobs.iter().copied()),
            );
        }
    }
    if !surplus.is_empty() {
        let ids: Vec<&str> = surplus.into_iter().collect();
        let words = format!(
            "lines of jobs that are gone or disabled: {}",
            ids.join(", ")
        );
        findings.push(Finding::failed(words).hint(SYNC));
    }
    if !foreign.is_empty() {
        let words = format!(
            "another program's, which is to run them itself: {}",
            all_called(foreign.iter().copied())
        );
        let hint = format!("{SYNC}, where cron is to run them");
        findings.push(Finding::warn(words).hint(hint).about(foreign));
    }
    if findings.is_empty() && orphans.is_empty() && !there.is_empty() {
        findings.push(Finding::ok("they are as the jobs are"));
    }
    findings
}

/// Whether what the lines start is there, and is this release.
pub(crate) fn program(look: &Look) -> Vec<Finding> {
    let lines = look.lines.as_deref().unwrap_or_default();
    let programs: BTreeSet<String> = lines
        .iter()
        .filter_map(|line| Started::of(line.get(crontab_sync::fields_of(line).len() + 1..)?))
        .filter_map(|started| started.words.into_iter().next())
        .collect();
    let own = format!("nanobot {}", env!("CARGO_PKG_VERSION"));
    let judged = programs.iter().map(|path| match version(path) {
        Ok(version) if version == own => Finding::ok(format!("`{path}`, {version}")),
        Ok(version) => Finding::warn(format!(
            "the lines start `{path}`, which is {version}, and this is {own}"
        ))
        .hint(format!("{SYNC} by the release that is to run the jobs")),
        Err(error) => {
            let words = format!("the lines start `{path}`, which cannot be run: {error:#}");
            Finding::failed(words).hint(format!("{SYNC}, which writes where this program is"))
        }
    });
    judged.collect()
}

/// What the program at `path` says that it is.
fn version(path: &str) -> Result<String> {
    let finished = process::run(
        &Spec {
            program: path.into(),
            arguments: vec!["--version".into()],
            directory: "/".into(),
            env: Vec::new(),
            timeout: ASKED,
            keep: KEEP,
            fence: None,
            input: None,
        },
        &mut |_| {},
    )?;
    let said = one_line(&String::from_utf8_lossy(&finished.head));
    match finished.status {
        Some(status) if status.success() => Ok(said),
        Some(status) => Err(anyhow::anyhow!("{status}: {said}")),
        None => Err(anyhow::anyhow!("it does not say its version")),
    }
}

/// Whether anything reads the crontab.
pub(crate) fn daemon(look: &Look) -> Vec<Finding> {
    let finding = match crontab_sync::is_cron_running(look.ctx) {
        Some(true) => Finding::ok("it runs"),
        Some(false) => look.of_cron(
            Finding::failed("no cron runs on this machine: nothing starts the jobs")
                .hint("start it (`systemctl enable --now cron`, `service cron start`); or `nanobot cron run --due` once a minute from any other scheduler, and `--no-crontab` here"),
        ),
        None => look.of_cron(
            Finding::warn("whether a cron runs cannot be seen from here")
                .hint("`nanobot cron logs` a few minutes from now"),
        ),
    };
    vec![finding]
}

/// Whether jobs would have other settings than what is run from here.
pub(crate) fn variables(look: &Look) -> Vec<Finding> {
    let lacking = look
        .enabled()
        .next()
        .and_then(|_| cron_environment::variables(look.ctx));
    lacking.map(Finding::warn).into_iter().collect()
}

/// Whether every job has somebody to ask when cron starts it.
pub(crate) fn keys(look: &Look) -> Vec<Finding> {
    // What is the same for several jobs is told once.
    let mut odd: Vec<(Finding, Vec<&Job>)> = Vec::new();
    for job in look.enabled() {
        let Some(finding) = key(look, job) else {
            continue;
        };
        let mut others = odd.iter_mut();
        match others.find(|(other, _)| other.words == finding.words) {
            Some((_, jobs)) => jobs.push(job),
            None => odd.push((finding, vec![job])),
        }
    }
    if odd.is_empty() && look.enabled().next().is_some() {
        return vec![Finding::ok("every job has somebody to ask")];
    }
    let told = odd.into_iter().map(|(finding, jobs)| {
        let words = format!("{}: {}", all_called(jobs.iter().copied()), finding.words);
        Finding { words, ..finding }.about(jobs)
    });
    told.collect()
}

/// What is the matter with the key of `job`.
fn key(look: &Look, job: &Job) -> Option<Finding> {
    let terms = job.terms.clone().unwrap_or_default();
    let given = match job_options::cast_of(look.ctx, &terms) {
        Ok(given) => given,
        Err(error) => return Some(Finding::of_error(Level::Failed, &error)),
    };
    let odd = cron_environment::key(look.ctx, job, &given)?;
    let level = match odd.fails {
        true => Level::Failed,
        false => Level::Warn,
    };
    Some(Finding {
        hint: odd.mend,
        ..Finding::new(level, odd.words).exit(Exit::Config)
    })
}

/// How the jobs last went.
pub(crate) fn runs(look: &Look) -> Vec<Finding> {
    let mut findings = Vec::new();
    for job in look.all().iter().filter(|job| job.enabled || job.is_once()) {
        match last_run(look, job) {
            Ok(None) => {}
            Ok(Some(words)) => {
                let hint = format!("`nanobot cron logs {}`", job.id);
                let words = format!("{} {words}", called(job));
                findings.push(Finding::warn(words).hint(hint).about([job]));
            }
            Err(error) => findings.push(Finding::of_error(Level::Failed, &error).about([job])),
        }
    }
    if findings.is_empty() && !look.all().is_empty() {
        findings.push(Finding::ok("no job failed when it last ran"));
    }
    findings
}

/// What was wrong with the last run of `job`, in words that follow its name.
fn last_run(look: &Look, job: &Job) -> Result<Option<String>> {
    let now = time_zone::now(look.ctx);
    let time = |text: &str| match text.parse::<Timestamp>() {
        Ok(time) => moment(time, &now),
        Err(_) => text.to_owned(),
    };
    if !is_plain(&job.id) {
        return Ok(None);
    }
    let folder = Folder::new(look.store.folder(&job.id)?);
    if let Some(started) = folder.stamps()?.started {
        if process::is_alive(started.pid) {
            return Ok(None);
        }
        let at = Timestamp::from_millisecond(started.at_ms).unwrap_or_default();
        return Ok(Some(format!(
            "was cut off: its run began {}, and nobody knows how it ended",
            moment(at, &now)
        )));
    }
    let mut records = folder.records(LAST)?;
    records.retain(|record| record.outcome.is_run() || record.outcome == Outcome::Missed);
    let Some(last) = records.pop() else {
        let State {
            last_run,
            last_status,
            last_error,
            ..
        } = &job.state;
        let failed = last_status.as_deref() == Some("error");
        return Ok(last_run.filter(|_| failed).map(|time| {
            let why = last_error.as_deref().unwrap_or("nobody wrote down why");
            format!(
                "failed elsewhere, {}: {}",
                moment(time, &now),
                one_line(why)
            )
        }));
    };
    let why = || one_line(last.error.as_deref().unwrap_or(&last.cause));
    Ok(match last.outcome {
        Outcome::Failed => Some(format!("failed, {}: {}", time(&last.start), why())),
        Outcome::Unknown => Some(format!("was cut off, {}: {}", time(&last.start), why())),
        Outcome::Missed => {
            let slot = last.slot.as_deref().unwrap_or(&last.start);
            Some(format!("missed its time, {}", time(slot)))
        }
        _ => None,
    })
}

/// Whether this version can deliver what the jobs answer.
pub(crate) fn delivery(look: &Look) -> Vec<Finding> {
    let words = |job| Some((job, job_options::undelivered(job)?));
    let told = look.enabled().filter_map(words);
    told.map(|(job, words)| Finding::warn(words).about([job]))
        .collect()
}

/// Run a made-up job as a line of the crontab would be run.
pub(crate) fn probe(look: &Look) -> Vec<Finding> {
    let mut findings = match probed(look) {
        Ok(findings) => findings,
        Err(error) => vec![Finding::of_error(Level::Failed, &error)],
    };
    // Nobody is worse for it yet.
    let is_needed = look.needs_cron();
    let failed = findings
        .iter_mut()
        .filter(|finding| finding.level == Level::Failed);
    failed
        .filter(|_| !is_needed)
        .for_each(|finding| finding.level = Level::Warn);
    findings
}

fn probed(look: &Look) -> Result<Vec<Finding>> {
    let Look { ctx, settings, .. } = look;
    let (command, env) = crontab_sync::as_cron(ctx, settings, &made_up(ctx))?;
    let begun = ctx.clock.timestamp();
    let (finished, said) = process::run_split_stderr(&Spec {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), format!("{command} --probe")],
        directory: ctx.paths.home.clone(),
        env,
        timeout: LIMIT,
        keep: KEEP,
        fence: None,
        input: None,
    })?;
    if let Some(stop) = finished.stopped {
        return Err(stop.into());
    }
    let took = ctx.clock.timestamp().duration_since(begun);
    let found: Option<Value> = serde_json::from_slice(&finished.head).ok();
    let Some(found) = found else {
        let said = [said, finished.head].concat();
        let said = one_line(&String::from_utf8_lossy(&said));
        let how = match finished.status {
            None => format!("did not end within {} seconds", LIMIT.as_secs()),
            Some(status) => format!("failed ({status})"),
        };
        let words = format!("a job that cron starts {how}: {said}");
        let hint = format!(
            "`cd; {} /bin/sh -c {}`",
            cron_env(&ctx.paths.home),
            quoted(&command)
        );
        return Ok(vec![Finding::failed(words).hint(hint)]);
    };
    let mut findings = judged(&found, took);
    // Seen from here there is more to say of it.
    if found["model"]["error"].is_string()
        && let Ok(given) = job_options::cast_of(ctx, &Terms::default())
        && let Some(odd) = cron_environment::key(ctx, &made_up(ctx), &given)
        && odd.mend.is_some()
    {
        findings[0] = Finding {
            hint: odd.mend,
            ..Finding::failed(odd.words).exit(Exit::Config)
        };
    }
    Ok(findings)
}

/// What a shell has to say before a command to run it as cron does.
fn cron_env(home: &Path) -> String {
    format!(
        "env -i HOME={} PATH=/usr/bin:/bin",
        quoted(&home.display().to_string())
    )
}

/// A job whose line is that of any other.
fn made_up(ctx: &Context) -> Job {
    Job {
        id: PROBE.into(),
        name: PROBE.into(),
        enabled: true,
        schedule: Err("it is made up".into()),
        message: String::new(),
        delivery: Delivery::default(),
        session: None,
        created: ctx.clock.timestamp(),
        state: State::default(),
        delete_after_run: false,
        terms: Some(Terms {
            config: ctx.config.as_deref().map(crate::ops::permissions::absolute),
            ..Terms::default()
        }),
    }
}

/// What the probe's findings mean.
fn judged(found: &Value, took: SignedDuration) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (part, what) in [
        ("model", "a job that cron starts has nobody to ask"),
        ("sandbox", "a job that cron starts may not begin"),
        ("run", "a job that cron starts fails"),
    ] {
        let Some(error) = found[part]["error"].as_str() else {
            continue;
        };
        let status = found[part]["status"]
            .as_i64()
            .and_then(|code| code.try_into().ok());
        let exit = status.map_or(Exit::Failed, Exit::of_code);
        let finding = Finding::failed(format!("{what}: {error}")).exit(exit);
        findings.push(match found[part]["hint"].as_str() {
            Some(hint) => finding.hint(hint),
            None => finding,
        });
    }
    if let Some(lack) = found["sandbox"]["lack"].as_str() {
        let words = format!("jobs can run no commands, since here is no sandbox: {lack}");
        findings.push(Finding::warn(words));
    }
    if findings
        .iter()
        .all(|finding| finding.level != Level::Failed)
    {
        let model = &found["model"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = match model["key"].as_str() {
            Some(place) => format!("key from {place}"),
            None => "no key".into(),
        };
        findings.push(Finding::ok(format!(
            "a job ran in cron's environment, in {}, by the built-in demo; a real one asks `{}` of {}, {key}",
            length(took),
            text(&model["model"]),
            text(&model["provider"]),
        )));
    }
    findings
}
