//! What a job is told on the command line, put into it; and what it may do by that. `cron add`, `cron edit` and `heartbeat
//! enable` share this, and a run asks here too, so that a job may do when it runs what it might when it was made.

use crate::cron::job::{AfterCrash, Job, Kind, Sink, Terms};
use crate::cron::schedule::CatchUp;
use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::delivery;
use crate::ops::permissions;
use crate::ops::permissions::Grants;
use crate::policy::Policy;
use crate::policy::profile::Profile;
use crate::settings::{Directory, Overrides, Settings};
use crate::sys::paths::Real;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// What a job works with.
pub(crate) struct Given {
    pub(crate) grants: Grants,
    /// With the job's model, or its profile's; the directory is the workspace, unless the grants name one.
    pub(crate) settings: Settings,
    pub(crate) profile: Profile,
    pub(crate) policy: Policy,
    /// The job was a run's, and is a person's from now on.
    pub(crate) taken_over: bool,
}

/// What a job with these `terms` works with: by the config as it is now, and no more than its creator might do.
pub(crate) fn cast_of(ctx: &Context, terms: &Terms) -> Result<Given> {
    let ctx = &with_config(ctx, terms);
    let grants = grants_of(terms)?;
    let overrides = Overrides {
        model: terms.model.clone(),
        ..Overrides::default()
    };
    let (mut settings, profile) = permissions::settings_with_profile(ctx, &grants, overrides)?;
    // Where a command happened to be typed means nothing to cron.
    settings.directory = Directory::Workspace;
    let workspace = Real::default().of(&permissions::absolute(&settings.workspace));
    let mut policy = permissions::policy(ctx, &grants, &settings, &profile, &workspace)?;
    if let Some(snapshot) = &terms.policy {
        let then = Policy::restored(snapshot).map_err(|words| {
            fail_hint(
                Exit::Config,
                format!("what the job's creator might do {words}"),
                match terms.by_model {
                    true => "`nanobot cron edit JOB --profile default`, which makes it yours",
                    false => "`nanobot cron edit JOB`, which fixes anew what it may do",
                },
            )
        })?;
        policy = policy.and(&then);
    }
    Ok(Given {
        grants,
        settings,
        profile,
        policy,
        taken_over: false,
    })
}

/// The world with the config of a job, unless another was typed.
pub(crate) fn with_config(ctx: &Context, terms: &Terms) -> Context {
    let mut ctx = ctx.clone();
    if let (None, Some(path)) = (&ctx.config, &terms.config) {
        ctx.paths.config.clone_from(path);
    }
    ctx
}

/// The flags that a job was given.
pub(crate) fn grants_of(terms: &Terms) -> Result<Grants> {
    match &terms.grants {
        Value::Null => Ok(Grants::default()),
        grants => serde_json::from_value(grants.clone()).map_err(|error| {
            fail(
                Exit::Config,
                format!("what the job may do cannot be read: {error}"),
            )
        }),
    }
}

/// Whether any of these flags was given.
fn is_given(grants: &Grants) -> Result<bool> {
    let written = |grants: &Grants| serde_json::to_value(grants).context("write the flags down");
    Ok(written(grants)? != written(&Grants::default())?)
}

/// `grants` as they are kept: what they name is named from the root on, since cron starts a job elsewhere.
fn written(grants: &Grants) -> Result<Value> {
    let rooted = |path: &PathBuf| match path == Path::new(".") {
        true => path.clone(),
        false => permissions::absolute(path),
    };
    let mut grants = grants.clone();
    grants.write = grants.write.iter().map(rooted).collect();
    grants.read = grants
        .read
        .iter()
        .map(|path| permissions::absolute(path))
        .collect();
    grants.directory = grants.directory.map(|path| permissions::absolute(&path));
    serde_json::to_value(&grants).map_err(|_| {
        fail(
            Exit::Usage,
            "a path that is no text cannot be kept with a job",
        )
    })
}

/// What the flags say, put into `job`, which has terms by then: what is not given stays, and an empty text takes away.
/// What it may do is fixed as of now.
///
/// # Errors
/// Flags that make no sense together, and all that would keep a run from beginning.
pub(crate) fn put(
    ctx: &Context,
    job: &mut Job,
    flags: &JobFlags,
    catch_up: Option<CatchUp>,
    grants: &Grants,
) -> Result<Given> {
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
        job.session = text(key);
    }
    let set = |place: &mut Option<String>, flag: &Option<String>| {
        if let Some(flag) = flag {
            *place = text(flag);
        }
    };
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
                let is_typed =
                    channel.is_some() && (to.is_some() || channel.as_deref() == Some(""));
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
        terms.sink = sink(ctx, job)?;
        if let Some(Sink::Command(_)) = &terms.sink {
            // It may hold keys, and others read the job file.
            job.delivery.to = None;
        }
        if *deliver && job.delivery.channel.is_none() {
            return Err(nowhere());
        }
        if terms.kind == Kind::Heartbeat && terms.sink.is_none() && job.delivery.channel.is_some() {
            return Err(fail_hint(
                Exit::Usage,
                "the heartbeat delivers to a file or to a command",
                "`--channel file --to FILE`, or `--channel command --to CMD`",
            ));
        }
    }
    if terms.grants.is_null() || is_given(grants)? {
        terms.grants = written(grants)?;
    }
    // What a run made stays within what that run might do, whatever else of it is changed, until a person says what it may do.
    let keeps_bounds = terms.by_model && !is_given(grants)?;
    let taken_over = terms.by_model && !keeps_bounds;
    if !keeps_bounds {
        terms.by_model = false;
        terms.policy = None;
    }
    let mut given = cast_of(ctx, &terms)?;
    given.taken_over = taken_over;
    terms.policy = Some(given.policy.snapshot());
    job.terms = Some(terms);
    Ok(given)
}

/// `None` for an empty text.
fn text(flag: &str) -> Option<String> {
    (!flag.trim().is_empty()).then(|| flag.to_owned())
}

/// The channels that lead to this machine.
pub(crate) fn is_local(channel: &str) -> bool {
    ["file", "command"].contains(&channel)
}

fn nowhere() -> anyhow::Error {
    fail_hint(
        Exit::Usage,
        "`--deliver` does not say where to",
        "`--channel file --to FILE`, or `--channel command --to CMD`",
    )
}

/// Where the answers of `job` go on this machine, as its delivery says.
fn sink(ctx: &Context, job: &mut Job) -> Result<Option<Sink>> {
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
            format!(
                "mkdir -p {}",
                crate::shell_quote::quoted(&folder.display().to_string())
            ),
        ));
    }
    // Links are followed now and never again: a run may change what lies where it works.
    let path = Real::default().of(&path);
    delivery.to = Some(path.display().to_string());
    Ok(Some(Sink::File(path)))
}

/// What to say where `grants` took the place of others that the job had `before`.
pub(crate) fn replaced(before: &Grants, grants: &Grants, given: &Given) -> Result<Option<String>> {
    if !(is_given(grants)? && is_given(before)?) {
        return Ok(None);
    }
    let flags = match flags(&given.grants) {
        flags if flags.is_empty() => "nothing further".to_owned(),
        flags => format!("`{flags}`"),
    };
    Ok(Some(format!(
        "what it was granted before is replaced: it has {flags} now"
    )))
}

/// What a person should know of a job that was made or changed just now: not what the flags say, but what follows.
pub(crate) fn consequences(
    ctx: &Context,
    job: &Job,
    grants: &Grants,
    given: &Given,
) -> Vec<String> {
    let mut notices = Vec::new();
    if given.taken_over {
        notices.push("a model made this job: it may do more now than the run that made it".into());
    }
    let policy = &given.policy;
    let means_directory = grants.write.iter().any(|path| path == Path::new("."));
    let here = std::env::current_dir().is_ok_and(|here| here == policy.reach.directory);
    if means_directory
        && grants.directory.is_none()
        && !here
        && !given.settings.restrict_to_workspace
    {
        let place = ctx.paths.display(&policy.reach.directory);
        notices.push(format!(
            "`--write` is for `{place}`, where jobs work; `-C DIR` lets this one work elsewhere"
        ));
    }
    if let Some(words) = undelivered(job) {
        notices.push(words);
    }
    notices.extend(in_home(ctx, job));
    notices.extend(cron_environment::lacks(ctx, job, given));
    notices
}

/// What to say of commands that name their program from the directory on in which they run.
fn in_home(ctx: &Context, job: &Job) -> Vec<String> {
    let Some(terms) = &job.terms else {
        return Vec::new();
    };
    let to = match &terms.sink {
        Some(Sink::Command(command)) => Some(command),
        _ => None,
    };
    let commands = [
        ("--when", terms.when.as_ref()),
        ("--to", to),
        ("--on-failure", terms.on_failure.as_ref()),
    ];
    let odd = commands
        .into_iter()
        .filter(|(_, command)| command.is_some_and(|command| delivery::is_relative(command)));
    let home = ctx.paths.home.display();
    odd.map(|(flag, _)| {
        format!("`{flag}` runs in `{home}`, where jobs change nothing, and its program is looked for there")
    })
    .collect()
}

/// What to say of a job whose answers this version cannot deliver.
pub(crate) fn undelivered(job: &Job) -> Option<String> {
    let channel = job.delivery.channel.as_deref()?;
    (job.delivery.deliver && job.terms.as_ref().is_none_or(|terms| terms.sink.is_none())).then(|| {
        match is_local(channel) {
            true => format!(
                "`{}` delivers nothing: somebody else wrote where to; `nanobot cron edit {} --channel {channel} --to …` does",
                job.name, job.id
            ),
            false => format!(
                "this version does not deliver to `{channel}`: what `{}` answers is printed, and cron mails it",
                job.name
            ),
        }
    })
}

/// What is granted, in the flags that grant it.
pub(crate) fn flags(grants: &Grants) -> String {
    let Grants {
        profile,
        write,
        read,
        net,
        allow,
        deny,
        tools,
        no_tools,
        directory,
        sandbox,
    } = grants;
    let mut words = Vec::new();
    let mut add = |flag: &str, value: &str| match value {
        "" => words.push(flag.to_owned()),
        value => words.push(format!("{flag}={}", crate::shell_quote::quoted(value))),
    };
    if let Some(name) = profile {
        add("--profile", name);
    }
    if let Some(path) = directory {
        add("--directory", &path.display().to_string());
    }
    for path in write {
        match path == Path::new(".") {
            true => add("--write", ""),
            false => add("--write", &path.display().to_string()),
        }
    }
    read.iter()
        .for_each(|path| add("--read", &path.display().to_string()));
    if let Some(hosts) = net {
        add("--net", &hosts.join(","));
    }
    allow.iter().for_each(|rule| add("--allow", rule));
    deny.iter().for_each(|rule| add("--deny", rule));
    if let Some(names) = tools {
        add("--tools", &names.join(","));
    }
    if *no_tools {
        add("--no-tools", "");
    }
    if let Some(sandbox) = sandbox
        && let Value::String(word) = json!(sandbox)
    {
        add("--sandbox", &word);
    }
    words.join(" ")
}
