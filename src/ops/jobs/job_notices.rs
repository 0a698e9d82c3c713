//! Notices about a job: consequences of its options that are not obvious.

use crate::cron::job::{Job, Sink};
use crate::ops::context::Context;
use crate::ops::jobs::cron_environment;
use crate::ops::jobs::delivery;
use crate::ops::jobs::job_grants::{as_flags, has_any};
use crate::ops::jobs::job_options::is_local;
use crate::ops::jobs::resolved_job::{ResolvedJob, with_config};
use crate::ops::model;
use crate::ops::permissions::Grants;
use anyhow::Result;
use std::path::Path;

/// The notice that `grants` replaced the grants that the job had `before`.
pub(crate) fn replaced_grants(
    before: &Grants,
    grants: &Grants,
    given: &ResolvedJob,
) -> Result<Option<String>> {
    if !(has_any(grants)? && has_any(before)?) {
        return Ok(None);
    }
    let flags = match as_flags(&given.grants) {
        flags if flags.is_empty() => "no permission flags".to_owned(),
        flags => format!("`{flags}`"),
    };
    Ok(Some(format!(
        "its earlier permission flags are replaced: it now has {flags}"
    )))
}

/// Notices about a job that was just created or changed. They state consequences, not the flags themselves.
pub(crate) fn consequences(
    ctx: &Context,
    job: &Job,
    grants: &Grants,
    given: &ResolvedJob,
) -> Vec<String> {
    let mut notices = Vec::new();
    if given.taken_over {
        notices.push(
            "a model created this job: it may now do more than the run that created it".into(),
        );
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
            "`--write` applies to `{place}`, the working directory of jobs; `-C DIR` sets another"
        ));
    }
    if let Some(words) = unsupported_channel(job) {
        notices.push(words);
    }
    notices.extend(in_home(ctx, job));
    notices.extend(cron_environment::missing_in_cron(ctx, job, given));
    notices
}

/// Notices about commands whose program is a relative path.
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
        format!("`{flag}` runs in `{home}`, not in the job's directory, and its relative program path is resolved there")
    })
    .collect()
}

/// The notice about a job whose answers this version cannot deliver.
pub(crate) fn unsupported_channel(job: &Job) -> Option<String> {
    let channel = job.delivery.channel.as_deref()?;
    (job.delivery.deliver && job.terms.as_ref().is_none_or(|terms| terms.sink.is_none())).then(|| {
        match is_local(channel) {
            true => format!(
                "`{}` delivers nothing: its destination was set by another program; set it with \
                 `nanobot cron edit {} --channel {channel} --to …`",
                job.name, job.id
            ),
            false => format!(
                "this version cannot deliver to `{channel}`: answers of `{}` are printed, and cron mails them",
                job.name
            ),
        }
    })
}

/// The notice about a cost limit when the model's price is unknown.
pub(crate) fn unknown_price(ctx: &Context, job: &Job, given: &ResolvedJob) -> Option<String> {
    let terms = job
        .terms
        .as_ref()
        .filter(|terms| terms.max_cost.is_some())?;
    let ctx = with_config(ctx, terms);
    // If no model can be resolved, another notice says so.
    let way = model::resolve_endpoint(&ctx, &given.settings, &given.settings.asked[0], false, true)
        .ok()?;
    let model = &way.choice.model;
    way.choice.prices.is_none().then(|| {
        format!(
            "the price of `{model}` is unknown, so `--max-cost` cannot be enforced and every run fails; set its `price` in \
             `models` of the config"
        )
    })
}
