//! Notices about a job: consequences of its options that are not obvious.

use crate::ops::context::Context;
use crate::ops::jobs::cron_environment::{self, EndpointMismatch};
use crate::ops::jobs::delivery;
use crate::ops::jobs::job_context::{job_context, with_config};
use crate::ops::jobs::job_grants::{as_flags, has_any_flag};
use crate::ops::jobs::job_options::is_local;
use crate::ops::jobs::ping;
use crate::ops::jobs::resolved_job::ResolvedJob;
use crate::ops::model;
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_channel::table;
use nanobot_config::settings::Settings;
use nanobot_cron::job::{AnswerDestination, Delivery, Job, JobKind};
use nanobot_model::provider::registry::model_info::find_family_bound;
use std::path::Path;

/// The notice that `grants` replaced `old_grants`, which the job had before.
pub(crate) fn replaced_grants_notice(
    old_grants: &Grants,
    grants: &Grants,
    resolved: &ResolvedJob,
) -> Result<Option<String>> {
    // The directory stays, and is no permission.
    let old_permissions = Grants { directory: None, ..old_grants.clone() };
    if !(has_any_flag(grants)? && has_any_flag(&old_permissions)?) {
        return Ok(None);
    }
    let flags = match as_flags(&resolved.grants) {
        flags if flags.is_empty() => "no permission flags".to_owned(),
        flags => format!("`{flags}`"),
    };
    let old_flags = as_flags(old_grants);
    Ok(Some(format!("its earlier permission flags `{old_flags}` are replaced: it now has {flags}")))
}

/// Notices about a job that was just created or changed. They state consequences, not the flags themselves. What the environment of all
/// jobs lacks is reported with a new job.
pub(crate) fn consequence_notices(
    ctx: &Context,
    job: &Job,
    grants: &Grants,
    resolved: &ResolvedJob,
    is_new: bool,
) -> Vec<String> {
    let mut notices = Vec::new();
    if resolved.is_taken_over {
        notices.push(
            "a model created this job: it may now do more than the run that created it".into(),
        );
    }
    let policy = &resolved.policy;
    let writes_directory = grants.write.iter().any(|path| path == Path::new("."));
    let is_current = std::env::current_dir().is_ok_and(|path| path == policy.file_scope.directory);
    if writes_directory
        && resolved.grants.directory.is_none()
        && !is_current
        && !resolved.settings.restrict_to_workspace
    {
        let directory = ctx.paths.display(&policy.file_scope.directory);
        notices.push(format!(
            "`--write` applies to `{directory}`, the working directory of jobs; `-C DIR` sets another"
        ));
    }
    notices.extend(job.predecessor_problem());
    notices.extend(ping::find_address_error(&resolved.settings, job));
    notices.extend(unsupported_channel_notice(ctx, job));
    notices.extend(chat_error_notice(ctx, job));
    notices.extend(relative_program_notices(ctx, job));
    if job.kind() != JobKind::Command {
        notices.extend(is_new.then(|| cron_environment::missing_variables(ctx)).flatten());
        let mismatch = cron_environment::endpoint_mismatch(ctx, job, resolved);
        notices.extend(mismatch.map(EndpointMismatch::describe));
    }
    notices
}

/// Notices about commands whose program is a relative path.
fn relative_program_notices(ctx: &Context, job: &Job) -> Vec<String> {
    let Some(options) = &job.options else {
        return Vec::new();
    };
    let to = match &options.destination {
        Some(AnswerDestination::Command(command)) => Some(command),
        _ => None,
    };
    let commands = [
        (if options.when_output { "--when-output" } else { "--when" }, options.when.as_ref()),
        ("--command", options.command.as_ref()),
        ("--to", to),
        ("--on-failure", options.on_failure.as_ref()),
        ("--on-success", options.on_success.as_ref()),
    ];
    let relative = commands.into_iter().filter(|(_, command)| {
        command.is_some_and(|command| delivery::has_relative_program(command))
    });
    let home = ctx.paths.home.display();
    relative.map(|(flag, _)| {
        format!("`{flag}` runs in `{home}`, not in the job's directory, and its relative program path is resolved there")
    })
    .collect()
}

/// True if the job's answers can be delivered, or its delivery is off.
pub(crate) fn can_deliver(ctx: &Context, job: &Job) -> bool {
    let Delivery { deliver, channel, .. } = &job.delivery;
    !deliver || channel.is_none() || delivery::find_destination(ctx, job).is_some()
}

/// The notice about a job whose answers cannot be delivered.
pub(crate) fn unsupported_channel_notice(ctx: &Context, job: &Job) -> Option<String> {
    let channel = job.delivery.channel.as_deref()?;
    // A job that never runs has no answers.
    if can_deliver(ctx, job) || job.schedule.is_err() {
        return None;
    }
    let Job { id, name, .. } = job;
    let edit = format!("`nanobot cron edit {id} --channel {channel} --to …`");
    Some(match (is_local(channel), table::find(channel)) {
        (true, _) => format!(
            "`{name}` delivers nothing: its destination was set by another program; set it with {edit}"
        ),
        (false, Some(_)) => format!(
            "answers of `{name}` are printed: its chat on `{channel}` was set by another program, and is not one of your \
             chats; set it with {edit}"
        ),
        (false, None) => format!(
            "this version cannot deliver to `{channel}`: answers of `{name}` are printed, and cron mails them"
        ),
    })
}

/// The reason why the answers of a job cannot be sent: the config of its chat service is not complete. Commands for keys are run to find
/// out.
pub(crate) fn find_chat_error(ctx: &Context, job: &Job) -> Option<String> {
    let ctx = job.options.as_ref().map_or_else(|| ctx.clone(), |options| with_config(ctx, options));
    let error = delivery::check_chat_service(&ctx, job).err()?;
    Some(format!("its answers cannot be sent: {error:#}"))
}

/// The reason why the pings of a job can never be sent, with the config of the job.
pub(crate) fn find_ping_error(ctx: &Context, settings: &Settings, job: &Job) -> Option<String> {
    // A config that cannot be read stops the run, which says so.
    let (_, settings) = job_context(ctx, settings.clone(), job).ok()?;
    ping::find_address_error(&settings, job)
}

/// The notice about a job that does not run because its answers cannot be sent.
pub(crate) fn chat_error_notice(ctx: &Context, job: &Job) -> Option<String> {
    let reason = find_chat_error(ctx, job)?;
    Some(format!("`{}` does not run: {reason}", job.name))
}

/// The notice about a cost limit when the model's price is unknown.
pub(crate) fn unknown_price_notice(
    ctx: &Context,
    job: &Job,
    resolved: &ResolvedJob,
) -> Option<String> {
    let options = job.options.as_ref().filter(|options| options.max_cost.is_some())?;
    let ctx = with_config(ctx, options);
    // If no model can be resolved, another notice says so.
    let endpoint = model::resolve_endpoint(
        &ctx,
        &resolved.settings,
        &resolved.settings.models[0],
        false,
        true,
    )
    .ok()?;
    let model = &endpoint.choice.model;
    let is_bounded = endpoint.choice.prices.is_some() || find_family_bound(model).is_some();
    (!is_bounded).then(|| {
        format!(
            "the price of `{model}` is unknown, so `--max-cost` cannot be enforced and every run fails; set its `price` in \
             `models` of the config"
        )
    })
}
