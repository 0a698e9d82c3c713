//! `nanobot`: a personal AI agent that behaves like a Unix program.
//!
//! # The map of this house
//!
//! Read it in this order: [`cli`], [`command::agent`], [`turn`], [`message`]; after those four you are at home.
//!
//! ```text
//! argv + stdin + environment
//!   └ cli             parsed, nothing looked at
//!      └ settings     resolved once: flag, then variable, then file, then default
//!         └ workspace, session (lock, repair)
//!            └ prompt    pure
//!               └ turn      push user → ask → push reply → run calls → push results → ask …
//!                  ├ event → report → stdout, stderr
//!                  └ Ending → error::Exit
//! ```
//!
//! | room | what it holds |
//! |---|---|
//! | [`cli`] | clap types only; their doc comments are the help and the man page |
//! | [`error`] | the statuses, what a failure is and what it hints at |
//! | [`command`] | one file for each subcommand: arguments in, wiring, words out; the only place where concrete things meet |
//! | [`turn`] | the loop: ask, run tools, repeat; knows interfaces, never features |
//! | [`guard`] | what may stop or bend a turn, one file each behind one small trait |
//! | [`diff`] | what changed from one text to another: pure |
//! | [`answer`] | the schema that an answer is to satisfy |
//! | [`policy`] | who may touch what: pure decisions |
//! | [`attach`] | what `--attach` takes: files, directories, pages, made into parts of the message |
//! | [`prompt`] | what the model is told: pure |
//! | [`message`] | user, reply, tool call, tool result, usage: plain data |
//! | [`event`] | everything a watcher may learn about a turn |
//! | [`report`] | the sinks: answer, progress, JSON. A room of its own because four commands will share it |
//! | [`settings`] | the config as written, and the settings as used |
//! | [`workspace`] | the agent's home: its notes, memory and templates |
//! | [`session`] | the conversation log: open, lock, repair, push |
//! | [`memory`] | what outlasts a conversation: the memory, its history and its versions |
//! | [`ledger`] | what every call of a model cost, and what may still be spent |
//! | [`history`] | what is sent of a conversation: which messages may be, what they weigh, what stands for the others: pure |
//! | [`skill`] | what can be taught: skills of the workspace, of trusted directories, and built in; read, checked, listed within a budget, installed |
//! | [`mcp`] | servers of further tools: what they are, what they offer, how they are spoken to. A room of its own, since it alone is asynchronous |
//! | [`cron`] | jobs: when they are due, the file they are kept in, the lines of the crontab that stand for them |
//! | [`trust`] | which directories may say how to work. A room of its own: it is neither the workspace's nor the policy's |
//! | [`provider`] | one trait, one file for each wire format, wrappers, the table of providers |
//! | [`tool`] | one trait, the box of tools, one file for each tool |
//! | [`undo`] | what a turn changed with the file tools, kept aside, and how it is taken back |
//! | [`sys`] | every contact with the world, one file for each kind |
//!
//! # Who may know whom
//!
//! ```text
//! main → lib → command → turn → { session, provider, tool, guard, policy } → { message, event }
//!                  └──→ { report, answer, attach, diff, ledger, memory, prompt, settings, workspace, history, skill, mcp, cron, trust } ──┘
//!                             settings → policy, for what rules and hosts look like; cron → policy, for quotes;
//!                             { history, memory, tool } → prompt, for the marks around a text; { guard, skill } → history; tool → attach,
//!                             for its readers; tool → { diff, undo }, for what it changes; report → ledger, for how money
//!                             is written
//! anything above may use sys and error; sys knows only std, its crates, and error
//! ```
//!
//! `message`, `event` and `cli` import nothing of ours but plain data; `prompt`, `history` and `policy` do no I/O; nothing
//! outside `sys` reads a variable, a clock or the home directory; nothing outside `sys::terminal` prints; nothing ends the
//! process but `main` and a signal. `tests/cli/tidy.rs` reads the sources and holds them to this.

#![cfg_attr(
    test,
    allow(
        clippy::needless_pass_by_value,
        reason = "cases of a table read best as values"
    )
)]

pub mod answer;
pub mod attach;
pub mod cli;
pub mod command;
pub mod cron;
pub mod diff;
pub mod error;
pub mod event;
pub mod format;
#[cfg(test)]
mod fuzz;
pub mod guard;
pub mod history;
pub mod ledger;
pub mod mcp;
pub mod memory;
pub mod message;
pub mod ops;
pub mod policy;
pub mod prompt;
pub mod provider;
pub mod repl;
pub mod report;
pub mod session;
pub mod settings;
pub mod shell_quote;
pub mod skill;
pub mod sys;
pub mod tool;
pub mod trust;
pub mod turn;
pub mod undo;
pub mod workspace;

use cli::{Cli, When};
use command::{parse, usage_error};
use error::Exit;
use mcp::servers::Servers;
use ops::context::{Context, report_error};
use std::ffi::OsString;
use sys::clock::Clock;
use sys::defect::Desk;
use sys::env::Env;
use sys::http::Connections;
use sys::paths::Paths;
use sys::terminal::Terminal;

/// Runs as a helper of ourselves, where the arguments say so: the supervisor of an MCP server, or a command in the
/// sandbox. Returns `None` in an ordinary process.
pub fn run_helper_process() -> Option<Exit> {
    if let Some(is_clean) = sys::process::become_supervisor() {
        return Some(if is_clean {
            Exit::Answered
        } else {
            Exit::Failed
        });
    }
    let error = sys::process::become_command()?.err();
    Some(error.map_or(Exit::Answered, |error| {
        let terminal = Terminal::probe(Some(false), true, true);
        terminal.fail(&format!("the sandbox cannot be set up: {error}"));
        Exit::NoSandbox
    }))
}

/// Parse, resolve, dispatch, report. Returns the status to exit with.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let env = Env::from_process();
    let (no_color, dumb) = (
        env.get("NO_COLOR").is_some(),
        env.get("TERM") == Some("dumb"),
    );
    let arguments = parse::rewrite_help_command(arguments.into_iter().collect());
    let cli = match parse::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let terminal = Terminal::probe(None, no_color, dumb);
            return usage_error::report(&error, &arguments, terminal);
        }
    };
    let color = match cli.shared.color {
        When::Auto => None,
        When::Always => Some(true),
        When::Never => Some(false),
    };
    let terminal = Terminal::probe(color, no_color, dumb);
    // In a pipe `-v` shows what it always did; logs are asked for there by the variable.
    let is_verbose = match &cli.command {
        cli::Command::Agent(agent) => agent.verbose || agent.logs,
        cli::Command::Repl(repl) => repl.verbose,
        _ => false,
    };
    let started = match cli.shared.quiet {
        true => Ok(()),
        false => sys::log::start(terminal, is_verbose && terminal.err, env.get(sys::env::LOG)),
    };
    match started.and_then(|()| dispatch(cli, env, terminal)) {
        Ok(exit) => exit,
        Err(error) => report_error(&error, terminal),
    }
}

fn dispatch(cli: Cli, env: Env, terminal: Terminal) -> anyhow::Result<Exit> {
    // Without a home, and with whatever config there is.
    if let cli::Command::Completions(arguments) = &cli.command {
        return command::completions::run(env, terminal, arguments);
    }
    if env.get(sys::env::INSIDE).is_some() {
        if let cli::Command::Skill { command } = &cli.command
            && let Some(done) = command::skill::inside(command, terminal)
        {
            return done;
        }
        return Err(error::fail_hint(
            Exit::Refused,
            "this is a command of an agent, which has neither the network nor nanobot's own files",
            "the agent's own tools instead: `spawn` to hand over a task, `cron` to remind, `web_fetch` and the file tools for the rest",
        ));
    }
    let paths = Paths::resolve(&env, cli.shared.config.as_deref())?;
    let clock = Clock::from_env(&env)?;
    sys::defect::keep(Desk {
        folder: paths.defects(),
        clock: clock.clone(),
        command: parse::describe_command_line,
    });
    log::info!(target: "config", "config `{}`", paths.config.display());
    let ctx = Context {
        config: cli.shared.config,
        workspace: cli.shared.workspace,
        quiet: cli.shared.quiet,
        env,
        paths,
        clock,
        terminal,
        connections: Connections::default(),
        servers: Servers::default(),
    };
    let servers = ctx.servers.clone();
    let done = match cli.command {
        cli::Command::Agent(arguments) if command::agent::is_conversation(&ctx, &arguments) => {
            command::repl::run_as_agent(&ctx, &arguments)
        }
        cli::Command::Agent(arguments) => Ok(command::agent::run(&ctx, &arguments)),
        cli::Command::Repl(arguments) => command::repl::run(&ctx, &arguments),
        cli::Command::Onboard(arguments) => command::onboard::run(&ctx, &arguments),
        cli::Command::Config { command } => command::config::run(&ctx, &command),
        cli::Command::Session { command } => command::session::run(&ctx, &command),
        cli::Command::Memory { command } => command::memory::run(&ctx, &command),
        cli::Command::Model { command } => command::model::run(&ctx, &command),
        cli::Command::Status(arguments) => command::status::run(&ctx, &arguments),
        cli::Command::Policy { command } => command::policy::run(&ctx, &command),
        cli::Command::Tool { command } => command::tool::run(&ctx, &command),
        cli::Command::Mcp { command } => command::mcp::run(&ctx, &command),
        cli::Command::Skill { command } => command::skill::run(&ctx, &command),
        cli::Command::Trust(arguments) => command::trust::run(&ctx, &arguments),
        cli::Command::Cron { command } => command::cron::run(&ctx, &command),
        cli::Command::Heartbeat(arguments) => command::heartbeat::run(&ctx, &arguments),
        cli::Command::Undo(arguments) => command::undo::run(&ctx, &arguments),
        cli::Command::Usage(arguments) => command::usage::run(&ctx, &arguments),
        cli::Command::Provider { command } => command::provider::run(&ctx, &command),
        cli::Command::Completions(arguments) => {
            command::completions::run(ctx.env, ctx.terminal, &arguments)
        }
        cli::Command::Gateway { .. } => Err(error::fail_hint(
            Exit::Usage,
            "there is no gateway: nanobot is no server, and runs once for each message",
            "a pipe or a crontab line with `nanobot agent -m`",
        )),
    };
    // Whoever started some has ended them, unless something went wrong.
    servers.end();
    done
}
