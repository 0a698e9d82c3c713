//! Command-line arguments as the plain options of `ops`. Structs are taken apart in full, so that a new flag cannot be
//! forgotten here.

use crate::cli;
use crate::cli::model_flags::ModelFlags;
use crate::cron::job::AfterCrash;
use crate::cron::schedule::CatchUp;
use crate::ops::jobs::job_options::JobFlags;
use crate::ops::permissions::{Grants, SandboxMode};
use crate::ops::turn_options::DryRunForm;
use crate::ops::turn_options::TurnOptions;
use std::time::Duration;

/// The options of the turn that `nanobot agent` runs.
pub(super) fn turn_options(arguments: &cli::agent::Agent) -> TurnOptions {
    let cli::agent::Agent {
        message,
        session,
        new,
        resume,
        fork,
        ephemeral,
        attach,
        wait,
        output_format: _,
        json: _,
        verbose,
        markdown: _,
        no_markdown,
        logs,
        no_logs: _,
        asking,
        max_total_tokens,
        schema,
        grants: permissions,
        max_parallel,
        offline,
        strict,
        timeout,
        stdin,
        no_stdin,
        dry_run,
        record,
        replay,
    } = arguments.clone();
    TurnOptions {
        message,
        attach,
        session,
        new,
        resume,
        fork,
        ephemeral,
        wait: Duration::from_secs(wait),
        verbose: verbose || logs,
        no_markdown,
        max_total_tokens,
        schema,
        grants: grants(&permissions),
        max_parallel: max_parallel as usize,
        offline,
        strict,
        timeout,
        stdin,
        no_stdin,
        dry_run: dry_run.map(|form| match form {
            cli::agent::DryRun::Json => DryRunForm::Json,
            cli::agent::DryRun::Curl => DryRunForm::Curl,
            cli::agent::DryRun::Table => DryRunForm::Table,
            cli::agent::DryRun::TableJson => DryRunForm::TableJson,
        }),
        record,
        replay,
        ..model_options(asking)
    }
}

/// The options that the flags about the model give.
fn model_options(flags: ModelFlags) -> TurnOptions {
    let ModelFlags {
        model,
        max_tokens,
        temperature,
        reasoning_effort,
        max_iterations,
        max_cost,
        no_stream,
    } = flags;
    TurnOptions {
        model,
        max_tokens,
        temperature,
        reasoning_effort,
        max_iterations,
        max_cost,
        no_stream,
        ..TurnOptions::default()
    }
}

/// The options of the turns of `nanobot repl`.
pub(super) fn repl_turn_options(arguments: &cli::repl::Repl) -> TurnOptions {
    let cli::repl::Repl {
        session,
        fork,
        new,
        verbose,
        markdown: _,
        no_markdown,
        asking,
        grants: permissions,
        offline,
        replay,
    } = arguments.clone();
    TurnOptions {
        session,
        fork,
        new,
        verbose,
        no_markdown,
        grants: grants(&permissions),
        offline,
        replay,
        wait: Duration::from_secs(600),
        ..model_options(asking)
    }
}

/// The permissions that flags grant.
pub(super) fn grants(flags: &cli::grants::Grants) -> Grants {
    let cli::grants::Grants {
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
    } = flags.clone();
    Grants {
        profile,
        write,
        read,
        net,
        allow,
        deny,
        tools,
        no_tools,
        directory,
        sandbox: sandbox.map(|when| match when {
            cli::grants::Sandbox::Auto => SandboxMode::Auto,
            cli::grants::Sandbox::Off => SandboxMode::Off,
            cli::grants::Sandbox::Strict => SandboxMode::Strict,
        }),
    }
}

/// How a job runs and where its answer goes.
pub(super) fn job_flags(flags: &cli::cron::Terms) -> JobFlags {
    let cli::cron::Terms {
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
    } = flags.clone();
    JobFlags {
        session,
        model,
        when,
        timeout,
        max_cost,
        after_crash: after_crash.map(|what| match what {
            cli::cron::AfterCrash::Skip => AfterCrash::Skip,
            cli::cron::AfterCrash::Again => AfterCrash::Again,
        }),
        deliver,
        no_deliver,
        channel,
        to,
        on_failure,
    }
}

/// What becomes of a missed run.
pub(super) fn catch_up(flag: Option<cli::cron::CatchUp>) -> Option<CatchUp> {
    flag.map(|what| match what {
        cli::cron::CatchUp::Once => CatchUp::Once,
        cli::cron::CatchUp::None => CatchUp::None,
    })
}
