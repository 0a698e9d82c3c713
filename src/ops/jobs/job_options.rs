//! The options of a job, as flags say them, put into the job. `cron add`, `cron edit` and `heartbeat enable` share this, and a
//! run resolves a job by the same rules, so that it may do what it might when it was made.

use crate::cron::job::{AfterCrash, Job, Kind, Sink, Terms};
use crate::cron::schedule::CatchUp;
use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::job_grants::{has_any, to_stored};
use crate::ops::jobs::resolved_job::{ResolvedJob, resolve};
use crate::ops::permissions::{self, Grants};
use crate::shell_quote::quoted;
use crate::sys::paths::Real;
use anyhow::Result;
use std::time::Duration;

/// The channels that answers can go to, here or by the Python program.
const CHANNELS: &[&str] = &[
    "", "file", "command", "cli", "telegram", "discord", "slack", "whatsapp", "email", "feishu",
    "dingtalk", "qq", "matrix", "mochat",
];
/// How similar a word has to be to the name of a channel to be taken for it.
const MIN_SIMILARITY: f64 = 0.8;

/// How a job runs and where its answer goes, as flags say it. What is `None` stays as it is; an empty text takes away.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobFlags {
    /// The session's key.
    pub(crate) session: Option<String>,
    pub(crate) model: Option<String>,
    /// The command that decides whether the job runs.
    pub(crate) when: Option<String>,
    /// Time limit of a run.
    pub(crate) timeout: Option<Duration>,
    /// Limit of a run in US dollars.
    pub(crate) max_cost: Option<f64>,
    pub(crate) after_crash: Option<AfterCrash>,
    pub(crate) deliver: bool,
    pub(crate) no_deliver: bool,
    pub(crate) channel: Option<String>,
    /// The recipient on the channel.
    pub(crate) to: Option<String>,
    /// The command to run when a run failed.
    pub(crate) on_failure: Option<String>,
}

/// Puts `flags` into `job`, which has terms by then: what is not given stays, and an empty text takes away. What the job may
/// do is fixed as of now.
///
/// # Errors
/// Flags that make no sense together, and all that would keep a run from beginning.
pub(crate) fn apply_flags(
    ctx: &Context,
    job: &mut Job,
    flags: &JobFlags,
    catch_up: Option<CatchUp>,
    grants: &Grants,
) -> Result<ResolvedJob> {
    let JobFlags {
        session,
        model,
        when,
        timeout,
        max_cost,
        after_crash,
        deliver,
        no_deliver,
        channel,
        to,
        on_failure,
    } = flags;
    // From now on it is ours, and what came before is not made up for.
    let mut terms = job.terms.take().unwrap_or_else(|| Terms {
        catch_up: job.catch_up(),
        since_ms: ctx.clock.timestamp().as_millisecond(),
        ..Terms::default()
    });
    terms.v = Terms::V;
    if let Some(key) = session {
        if terms.kind == Kind::Heartbeat {
            return Err(fail_hint(
                Exit::Usage,
                "the heartbeat has a conversation of its own",
                "leave `--session` out",
            ));
        }
        job.session = non_empty(key);
    }
    set(&mut terms.model, model);
    set(&mut terms.when, when);
    set(&mut terms.on_failure, on_failure);
    if let Some(time) = timeout {
        // A part of a second is not worth a limit of none.
        terms.timeout = Some(time.as_secs().max(1));
    }
    terms.max_cost = max_cost.or(terms.max_cost);
    if let Some(what) = after_crash {
        terms.after_crash = *what;
    }
    if let Some(what) = catch_up {
        terms.catch_up = what;
    }
    terms.quiet |= ctx.quiet;
    if let Some(path) = &ctx.config {
        terms.config = Some(permissions::absolute(path));
    }
    if *deliver || *no_deliver || channel.is_some() || to.is_some() {
        apply_delivery(ctx, job, &mut terms, flags)?;
    }
    let resolved = apply_grants(ctx, &mut terms, grants)?;
    job.terms = Some(terms);
    Ok(resolved)
}

/// Puts the flags that say where the answer goes into `job` and `terms`.
fn apply_delivery(ctx: &Context, job: &mut Job, terms: &mut Terms, flags: &JobFlags) -> Result<()> {
    let JobFlags {
        deliver,
        no_deliver,
        channel,
        to,
        ..
    } = flags;
    // The job file is written by others too. What is in it is no file or command of this user's, as what was typed is.
    match &terms.sink {
        Some(Sink::File(path)) => {
            job.delivery.channel = Some("file".into());
            job.delivery.to = Some(path.display().to_string());
        }
        Some(Sink::Command(command)) => {
            job.delivery.channel = Some("command".into());
            job.delivery.to = Some(command.clone());
        }
        None => {
            let was_local = job.delivery.channel.as_deref().is_some_and(is_local);
            let is_typed = channel.is_some() && (to.is_some() || channel.as_deref() == Some(""));
            if was_local && !is_typed && !no_deliver {
                return Err(fail_hint(
                    Exit::Usage,
                    "where to deliver stands in the job file alone, which others write too",
                    "`--channel` and `--to`, both typed",
                ));
            }
        }
    }
    let delivery = &mut job.delivery;
    set(&mut delivery.channel, channel);
    set(&mut delivery.to, to);
    if channel.as_deref() == Some("") {
        delivery.to = None;
    }
    let local = delivery.channel.as_deref().is_some_and(is_local);
    delivery.deliver = !no_deliver
        && delivery.channel.is_some()
        && (*deliver || delivery.deliver || local && (channel.is_some() || to.is_some()));
    terms.sink = resolve_sink(ctx, job)?;
    if let Some(Sink::Command(_)) = &terms.sink {
        // It may hold keys, and others read the job file.
        job.delivery.to = None;
    }
    if *deliver && job.delivery.channel.is_none() {
        return Err(no_destination());
    }
    if terms.kind == Kind::Heartbeat && terms.sink.is_none() && job.delivery.channel.is_some() {
        return Err(fail_hint(
            Exit::Usage,
            "the heartbeat delivers to a file or to a command",
            "`--channel file --to FILE`, or `--channel command --to CMD`",
        ));
    }
    Ok(())
}

/// Puts `grants` into `terms`, and fixes what the job may do.
fn apply_grants(ctx: &Context, terms: &mut Terms, grants: &Grants) -> Result<ResolvedJob> {
    let is_given = has_any(grants)?;
    if terms.grants.is_null() || is_given {
        terms.grants = to_stored(grants)?;
    }
    // What a run made stays within what that run might do, whatever else of it is changed, until a person says what it may do.
    let keeps_bounds = terms.by_model && !is_given;
    let taken_over = terms.by_model && !keeps_bounds;
    if !keeps_bounds {
        terms.by_model = false;
        terms.policy = None;
    }
    let mut resolved = resolve(ctx, terms)?;
    resolved.taken_over = taken_over;
    terms.policy = Some(resolved.policy.snapshot());
    Ok(resolved)
}

/// Puts the value of a flag that was given into `place`.
fn set(place: &mut Option<String>, flag: &Option<String>) {
    if let Some(flag) = flag {
        *place = non_empty(flag);
    }
}

/// Checks that `--to` comes with a channel, typed or that of the job, and that `--channel` is not mistyped.
pub(crate) fn check_channel(flags: &JobFlags, channel: Option<&str>) -> Result<()> {
    let typed = flags.channel.as_deref();
    if let (Some(to), None) = (flags.to.as_deref(), typed.or(channel)) {
        return Err(fail_hint(
            Exit::Usage,
            format!("`--to {to}` does not say what that is"),
            "`--channel file` or `--channel command` with it",
        ));
    }
    let Some(typed) = typed.filter(|typed| !CHANNELS.contains(typed)) else {
        return Ok(());
    };
    let similarity = |channel: &str| strsim::jaro_winkler(&typed.to_lowercase(), channel);
    let near = CHANNELS
        .iter()
        .map(|channel| (similarity(channel), channel));
    let near = near.max_by(|(one, _), (other, _)| one.total_cmp(other));
    match near {
        Some((similarity, channel)) if similarity > MIN_SIMILARITY => Err(fail_hint(
            Exit::Usage,
            format!("there is no channel `{typed}`; did you mean `{channel}`?"),
            format!("`--channel {channel}`"),
        )),
        _ => Ok(()),
    }
}

/// `None` for an empty text.
fn non_empty(flag: &str) -> Option<String> {
    (!flag.trim().is_empty()).then(|| flag.to_owned())
}

/// The channels that lead to this machine.
pub(crate) fn is_local(channel: &str) -> bool {
    ["file", "command"].contains(&channel)
}

fn no_destination() -> anyhow::Error {
    fail_hint(
        Exit::Usage,
        "`--deliver` does not say where to",
        "`--channel file --to FILE`, or `--channel command --to CMD`",
    )
}

/// Where the answers of `job` go on this machine, as its delivery says.
fn resolve_sink(ctx: &Context, job: &mut Job) -> Result<Option<Sink>> {
    let delivery = &mut job.delivery;
    let (Some(channel), true) = (delivery.channel.as_deref(), delivery.deliver) else {
        return Ok(None);
    };
    if !is_local(channel) {
        return match delivery.to {
            Some(_) => Ok(None),
            None => Err(fail_hint(
                Exit::Usage,
                format!("`--deliver` does not say to whom on `{channel}`"),
                "`--to ID`",
            )),
        };
    }
    let Some(to) = &delivery.to else {
        return Err(fail_hint(
            Exit::Usage,
            format!("`--channel {channel}` does not say where to"),
            match channel {
                "file" => "`--to FILE`, which answers are appended to",
                _ => "`--to CMD`, a command whose input is the answer",
            },
        ));
    };
    if channel == "command" {
        return Ok(Some(Sink::Command(to.clone())));
    }
    let path = permissions::absolute(&ctx.paths.expand(to));
    if path.is_dir() {
        return Err(fail_hint(
            Exit::Usage,
            format!("`--to`: `{}` is a directory", path.display()),
            "a file in it",
        ));
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        return Err(fail_hint(
            Exit::NoInput,
            format!("`--to`: there is no directory `{}`", folder.display()),
            format!("mkdir -p {}", quoted(&folder.display().to_string())),
        ));
    }
    // Links are followed now and never again: a run may change what lies where it works.
    let path = Real::default().of(&path);
    delivery.to = Some(path.display().to_string());
    Ok(Some(Sink::File(path)))
}
