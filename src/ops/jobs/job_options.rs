//! Applies flags to a job. `cron add`, `cron edit` and `cron heartbeat enable` share this module. A run resolves a job by
//! the same rules, so it gets the same permissions as when the job was created.

use crate::ops::context::Context;
use crate::ops::jobs::job_grants::{has_any_flag, keep_limits, stored_grants, to_stored};
use crate::ops::jobs::ping::check_address;
use crate::ops::jobs::resolved_job::{ResolvedJob, resolve};
use crate::ops::jobs::workspace_jobs;
use crate::ops::permissions;
use crate::ops::skills;
use crate::ops::turn_setup::loaded_skills;
use crate::options::grants::Grants;
use crate::options::job::{JobFlags, JobSettings};
use crate::options::model::CacheTime;
use crate::options::value::ModelNames;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_channel::table;
use nanobot_config::settings::keys::nearest;
use nanobot_cron::job::{AnswerDestination, Delivery, Job, JobKind, JobOptions};
use nanobot_cron::schedule::CatchUpPolicy;
use nanobot_os::symlinks::PathResolver;
use std::time::Duration;

/// The destinations that can be named besides the chat channels of [`table`]; the Python program delivers to some of them.
const OTHER_CHANNELS: &[&str] =
    &["file", COMMAND_CHANNEL, "cli", "feishu", "dingtalk", "qq", "mochat"];
/// The channel that runs a command with the answer.
const COMMAND_CHANNEL: &str = "command";
/// The hint about destinations.
const DESTINATIONS: &str =
    "`--channel telegram --to CHAT`, `--channel file --to FILE`, or `--channel command --to CMD`";

/// Applies `settings` to `job`, except its schedule, and creates its options if needed. The job's permissions are fixed at this
/// point.
///
/// # Errors
/// The flags contradict each other, or a run could not start.
pub(crate) fn apply_flags(
    ctx: &Context,
    job: &mut Job,
    settings: &JobSettings,
    catch_up: Option<CatchUpPolicy>,
) -> Result<ResolvedJob> {
    let JobSettings { schedule, flags, command, grants, applied } = settings;
    let JobFlags {
        session,
        model,
        fallbacks,
        cache,
        when,
        when_output,
        skills,
        until,
        max_rounds,
        timeout,
        max_cost,
        after_crash,
        deliver,
        no_deliver,
        channel,
        to,
        on_failure,
        on_success,
        ping,
        notify: _,
        retry: _,
        retry_on,
        retry_delay: _,
    } = flags;
    // From now on the job is ours, and earlier missed slots are not caught up.
    let mut options = job.options.take().unwrap_or_else(|| JobOptions {
        catch_up: job.catch_up(),
        since_ms: ctx.clock.timestamp().as_millisecond(),
        ..JobOptions::default()
    });
    options.v = JobOptions::FORMAT_VERSION;
    if let Some(key) = session {
        if options.kind == JobKind::Heartbeat {
            return Err(fail(Exit::Usage, "the heartbeat has its own session")
                .with_hint("the command without `--session`"));
        }
        job.session = non_empty(key);
    }
    set_text(&mut options.model, model);
    if let Some(names) = fallbacks.as_deref().map(ModelNames::join) {
        options.fallbacks = (!names.is_empty()).then_some(names);
    }
    if let Some(cache) = cache {
        options.hour_cache = *cache == CacheTime::Hour;
    }
    if let Some(command) = when.as_ref().or(when_output.as_ref()) {
        options.when = non_empty(command);
        options.when_output = when_output.is_some() && options.when.is_some();
    }
    if let Some(command) = command {
        set_command(job, &mut options, command)?;
    }
    set_text(&mut options.until, until);
    options.max_rounds = match options.until {
        Some(_) => max_rounds.or(options.max_rounds),
        None => None,
    };
    if options.until.is_none() && max_rounds.is_some() {
        let cause = "`--max-rounds` limits the rounds of `--until`, which is missing";
        return Err(fail(Exit::Usage, cause).with_hint("`--until CMD`"));
    }
    set_text(&mut options.on_failure, on_failure);
    set_text(&mut options.on_success, on_success);
    if let Some(address) = ping {
        check_address(address)?;
    }
    set_text(&mut options.ping, ping);
    apply_start_flags(&mut options, flags, schedule.jitter)?;
    if let Some(time) = timeout {
        options.timeout = Some(whole_seconds(*time));
    }
    options.max_cost = max_cost.or(options.max_cost);
    options.after_crash = after_crash.unwrap_or(options.after_crash);
    options.catch_up = catch_up.unwrap_or(options.catch_up);
    options.applied |= *applied;
    let is_saved_only = channel.as_deref() == Some(NO_CHANNEL);
    if channel.is_some() {
        options.quiet = is_saved_only;
    }
    if let Some(path) = &ctx.config {
        options.config = Some(permissions::absolute(path));
    }
    if *deliver || *no_deliver || channel.is_some() || to.is_some() {
        let delivery_flags = if is_saved_only { without_channel(flags)? } else { flags.clone() };
        apply_delivery(ctx, job, &mut options, &delivery_flags)?;
    }
    let resolved = apply_grants(ctx, &mut options, grants)?;
    if !skills.is_empty() {
        options.skills = skill_values(ctx, &options, skills)?;
    }
    if options.kind == JobKind::Command
        && let Some(flag) = model_flag(flags, grants)?
    {
        let cause = format!("{flag} is for jobs that ask a model, and this one runs a command");
        return Err(fail(Exit::Usage, cause).with_hint("the command without it"));
    }
    job.options = Some(options);
    if job.follows().is_some() && !job.jitter().is_zero() {
        let cause = "a job that runs after another one starts at its end, without `--jitter`";
        return Err(fail(Exit::Usage, cause).with_hint("`--jitter 0`"));
    }
    if retry_on.as_deref().is_some_and(|statuses| !statuses.trim().is_empty())
        && job.retry_policy().limit == 0
    {
        let cause = "`--retry-on` chooses the failures of `--retry`, which is missing";
        return Err(fail(Exit::Usage, cause).with_hint("`--retry 3`"));
    }
    Ok(resolved)
}

/// Changes the `options` of `job` so that it runs `command`. A job that asks a model stays one: it has a message, a session and
/// permissions.
///
/// # Errors
/// The command is empty, or the job asks a model.
fn set_command(job: &Job, options: &mut JobOptions, command: &str) -> Result<()> {
    if options.kind == JobKind::Heartbeat || !job.message.is_empty() {
        let cause = "the job asks a model: `--command` is for jobs that were added with it";
        return Err(fail(Exit::Usage, cause).with_hint("`nanobot cron add` for a job of its own"));
    }
    let Some(command) = non_empty(command) else {
        return Err(fail(Exit::Usage, "the command is empty").with_hint("`--command CMD`"));
    };
    options.kind = JobKind::Command;
    options.command = Some(command);
    Ok(())
}

/// The first flag that a job without a model cannot have; `None` if there is none.
fn model_flag(flags: &JobFlags, grants: &Grants) -> Result<Option<&'static str>> {
    let given_flags = [
        ("`--session`", flags.session.is_some()),
        ("`--model`", flags.model.is_some()),
        ("`--fallback`", flags.fallbacks.is_some()),
        ("`--cache`", flags.cache.is_some()),
        ("`--skill`", !flags.skills.is_empty()),
        ("`--until`", flags.until.is_some()),
        ("`--max-cost`", flags.max_cost.is_some()),
        ("a permission flag", has_any_flag(grants)?),
    ];
    Ok(given_flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag)))
}

/// The skills of a job: `names` without empty texts, directories as absolute paths.
///
/// # Errors
/// There is no such skill now.
fn skill_values(ctx: &Context, options: &JobOptions, names: &[String]) -> Result<Vec<String>> {
    let settings = ctx.settings()?;
    let directory = workspace_jobs::job_directory(&settings, options);
    let found_skills = skills::find(ctx, &settings, &directory)?;
    let names = names.iter().filter(|name| !name.trim().is_empty());
    let value = |name: &String| {
        let skill = loaded_skills::read(ctx, &found_skills, name)?;
        Ok(if loaded_skills::is_path(name) {
            skill.location.parent().unwrap_or(&skill.location).display().to_string()
        } else {
            name.clone()
        })
    };
    names.map(value).collect()
}

/// Applies the flags for notification, retries and delays.
fn apply_start_flags(
    options: &mut JobOptions,
    flags: &JobFlags,
    jitter: Option<Duration>,
) -> Result<()> {
    let JobFlags { notify, retry, retry_on, retry_delay, .. } = flags;
    options.notify = notify.unwrap_or(options.notify);
    options.retry = retry.or(options.retry);
    if let Some(statuses) = retry_on {
        options.retry_on = parse_statuses(statuses)?;
    }
    if let Some(delay) = retry_delay {
        options.retry_delay = Some(check_delay("--retry-delay", *delay, MIN_RETRY_DELAY)?);
    }
    if let Some(jitter) = jitter {
        let jitter = check_delay("--jitter", jitter, Duration::ZERO)?;
        options.jitter = (jitter > 0).then_some(jitter);
    }
    Ok(())
}

/// Parses the list of `--retry-on`; an empty text is an empty list.
///
/// # Errors
/// An item is not the status of a failed run.
fn parse_statuses(list: &str) -> Result<Vec<u8>> {
    let parse = |item: &str| {
        let code = item.trim().parse().ok().filter(|code| *code != Exit::Answered.code())?;
        Exit::ALL.iter().any(|exit| exit.code() == code).then_some(code)
    };
    let items = list.split(',').filter(|_| !list.trim().is_empty());
    items
        .map(|item| {
            parse(item).ok_or_else(|| {
                let cause =
                    format!("`--retry-on`: `{}` is not the status of a failed run", item.trim());
                let hint = "`--retry-on 1,65`; `nanobot agent --help` lists them";
                fail(Exit::Usage, cause).with_hint(hint)
            })
        })
        .collect()
}

/// Minimum time before a retry: cron reads a changed crontab at the beginning of a minute.
const MIN_RETRY_DELAY: Duration = Duration::from_mins(1);
/// Maximum delay of a retry or a start.
const MAX_DELAY: Duration = Duration::from_hours(24);

/// The seconds of a duration, rounded up: 0 means no limit or no delay.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Returns the seconds of a delay.
///
/// # Errors
/// The delay is less than `min` or more than [`MAX_DELAY`].
fn check_delay(flag: &str, delay: Duration, min: Duration) -> Result<u64> {
    if (min..=MAX_DELAY).contains(&delay) {
        Ok(whole_seconds(delay))
    } else {
        let cause = format!(
            "`{flag}` is {} seconds, expected from {} to {}",
            delay.as_secs_f64(),
            min.as_secs(),
            MAX_DELAY.as_secs()
        );
        Err(fail(Exit::Usage, cause).with_hint(format!("`{flag} 10m`")))
    }
}

/// The channel of an answer that is only saved.
const NO_CHANNEL: &str = "none";

/// The delivery flags of a job whose answer is only saved.
///
/// # Errors
/// A destination was given too.
fn without_channel(flags: &JobFlags) -> Result<JobFlags> {
    if flags.deliver || flags.to.is_some() {
        return Err(fail(Exit::Usage, "`--channel none` has no destination")
            .with_hint("the command without `--deliver` and `--to`"));
    }
    Ok(JobFlags { channel: Some(String::new()), ..flags.clone() })
}

/// Applies the delivery flags to `job` and `options`.
fn apply_delivery(
    ctx: &Context,
    job: &mut Job,
    options: &mut JobOptions,
    flags: &JobFlags,
) -> Result<()> {
    let JobFlags { deliver, no_deliver, channel, to, .. } = flags;
    // Other programs also write the job file, so a destination in it is not trusted, unlike one that the user typed.
    let is_typed = channel.is_some() && (to.is_some() || channel.as_deref() == Some(""));
    let is_trusted = is_typed || options.destination.is_some();
    match &options.destination {
        Some(AnswerDestination::Chat { channel, to }) => {
            job.delivery.channel = Some(channel.clone());
            job.delivery.to = Some(to.clone());
        }
        Some(AnswerDestination::File(path)) => {
            job.delivery.channel = Some("file".into());
            job.delivery.to = Some(path.display().to_string());
        }
        Some(AnswerDestination::Command(command)) => {
            job.delivery.channel = Some(COMMAND_CHANNEL.into());
            job.delivery.to = Some(command.clone());
        }
        None => {}
    }
    check_channel(flags, job.delivery.channel.as_deref())?;
    let delivery = &mut job.delivery;
    if channel.is_some() && *channel != delivery.channel {
        // A recipient of one channel is none of another.
        delivery.to = None;
    }
    set_text(&mut delivery.channel, channel);
    set_text(&mut delivery.to, to);
    // A destination alone turns on the delivery.
    delivery.deliver = !no_deliver && delivery.channel.is_some();
    options.destination = resolve_destination(ctx, &job.delivery, is_trusted)?;
    if let Some(AnswerDestination::File(path)) = &options.destination {
        job.delivery.to = Some(path.display().to_string());
    }
    if job.delivery.channel.as_deref() == Some(COMMAND_CHANNEL) {
        // The command may contain keys, and others can read the job file.
        job.delivery.to = None;
    }
    if *deliver && job.delivery.channel.is_none() {
        return Err(fail(Exit::Usage, "`--deliver` needs a destination").with_hint(DESTINATIONS));
    }
    if options.kind == JobKind::Heartbeat
        && options.destination.is_none()
        && job.delivery.deliver
        && let Some(channel) = &job.delivery.channel
    {
        return Err(fail(Exit::Usage, format!("the heartbeat cannot deliver to `{channel}`"))
            .with_hint(DESTINATIONS));
    }
    Ok(())
}

/// Stores `grants` in `options`, and fixes the job's permissions.
fn apply_grants(ctx: &Context, options: &mut JobOptions, grants: &Grants) -> Result<ResolvedJob> {
    let is_given = has_any_flag(grants)?;
    if options.grants.is_null() {
        options.grants = to_stored(grants)?;
    } else if is_given {
        let old_grants = stored_grants(options)?;
        options.grants = to_stored(&keep_limits(grants, &old_grants))?;
    }
    // A job created by a run keeps that run's permissions as its limit in every edit, until the user sets
    // the job's permissions.
    let keeps_bounds = options.by_model && !is_given;
    let is_taken_over = options.by_model && !keeps_bounds;
    if !keeps_bounds {
        options.by_model = false;
        options.policy = None;
    }
    let mut resolved = resolve(ctx, options)?;
    resolved.is_taken_over = is_taken_over;
    options.policy = Some(resolved.policy.snapshot());
    Ok(resolved)
}

/// Stores the value of a flag, if it was given, in `field`.
fn set_text(field: &mut Option<String>, flag: &Option<String>) {
    if let Some(flag) = flag {
        *field = non_empty(flag);
    }
}

/// Checks that `--to` comes with a channel, given or already set, and that `--channel` is not misspelled.
fn check_channel(flags: &JobFlags, channel: Option<&str>) -> Result<()> {
    let typed = flags.channel.as_deref();
    let resulting = typed.or(channel).filter(|channel| !channel.is_empty());
    if let (Some(to), None) = (flags.to.as_deref(), resulting) {
        return Err(fail(Exit::Usage, format!("`--to {to}` needs a channel"))
            .with_hint("`--channel telegram`, `--channel file` or `--channel command`"));
    }
    let chats = table::CHANNELS.iter().map(|kind| kind.name);
    let channels: Vec<&str> = chats.chain(OTHER_CHANNELS.iter().copied()).collect();
    // An empty name removes the channel. A name that is like no other may be one of the Python program.
    let Some(typed) = typed.filter(|typed| !typed.is_empty() && !channels.contains(typed)) else {
        return Ok(());
    };
    match nearest(&typed.to_lowercase(), channels) {
        Some(channel) => {
            let cause = format!("there is no channel `{typed}`; did you mean `{channel}`?");
            Err(fail(Exit::Usage, cause).with_hint(format!("`--channel {channel}`")))
        }
        None => Ok(()),
    }
}

/// `None` for an empty text.
fn non_empty(flag: &str) -> Option<String> {
    (!flag.trim().is_empty()).then(|| flag.to_owned())
}

/// True if the channel delivers on this machine.
pub(crate) fn is_local(channel: &str) -> bool {
    ["file", COMMAND_CHANNEL].contains(&channel)
}

/// The destination of the answers of a job with this `delivery`. A chat is one only if the user chose it, which `is_trusted`
/// says. A file has an absolute path without links.
fn resolve_destination(
    ctx: &Context,
    delivery: &Delivery,
    is_trusted: bool,
) -> Result<Option<AnswerDestination>> {
    if !delivery.deliver {
        return Ok(None);
    }
    let Some(channel) = delivery.channel.as_deref() else {
        return Ok(None);
    };
    if !is_local(channel) {
        let is_chat = table::find(channel).is_some();
        return match &delivery.to {
            Some(to) => Ok((is_chat && is_trusted)
                .then(|| AnswerDestination::Chat { channel: channel.to_owned(), to: to.clone() })),
            None => {
                Err(fail(Exit::Usage, format!("the delivery on `{channel}` needs a recipient"))
                    .with_hint("`--to ID`"))
            }
        };
    }
    let Some(to) = &delivery.to else {
        return Err(fail(Exit::Usage, format!("`--channel {channel}` needs a destination"))
            .with_hint(match channel {
                "file" => "`--to FILE`, to which answers are appended",
                _ => "`--to CMD`, a command that reads the answer on standard input",
            }));
    };
    if !is_trusted {
        let cause = "the destination comes from the job file, which other programs can write";
        return Err(fail(Exit::Usage, cause).with_hint("both `--channel` and `--to`"));
    }
    if channel == COMMAND_CHANNEL {
        return Ok(Some(AnswerDestination::Command(to.clone())));
    }
    let path = permissions::absolute(&ctx.paths.expand(to));
    if path.is_dir() {
        return Err(fail(Exit::Usage, format!("`--to`: `{}` is a directory", path.display()))
            .with_hint("a file in that directory"));
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
        let cause = format!("`--to`: there is no directory `{}`", parent.display());
        let hint = format!("mkdir -p {}", quote(&parent.display().to_string()));
        return Err(fail(Exit::NoInput, cause).with_hint(hint));
    }
    // Links are resolved now and not at each run, because a run may change links in its working directory.
    Ok(Some(AnswerDestination::File(PathResolver::default().resolve(&path))))
}
