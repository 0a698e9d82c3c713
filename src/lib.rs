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

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use cli::pages::{self, Form};
use cli::{Cli, When};
use error::Exit;
use mcp::servers::Servers;
use ops::context::{Context, report_error};
use shell_quote::quoted;
use std::ffi::OsString;
use std::fmt::Write;
use sys::clock::Clock;
use sys::defect::Desk;
use sys::env::Env;
use sys::http::Connections;
use sys::paths::Paths;
use sys::terminal::Terminal;

/// Become the command that this program started itself for, where it did. It returns where that is not so, or failed.
pub fn inner() -> Option<Exit> {
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
    let arguments = helped(arguments.into_iter().collect());
    let cli = match of_line(&arguments).map_or_else(|| parsed(&arguments), Ok) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &arguments, Terminal::probe(None, no_color, dumb)),
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

/// The command tree: what completions are made from.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The command tree with all that help says. To put that together takes longer than a turn takes to start.
pub fn documented(form: Form) -> clap::Command {
    pages::documented(command(), form, &statuses()).mut_subcommand("repl", |repl| {
        let about = repl.get_long_about().map(ToString::to_string);
        let commands = repl::commands::table();
        repl.long_about(format!(
            "{}\n\nCommands:\n{commands}",
            about.unwrap_or_default()
        ))
    })
}

/// `help`, and the command that follows it, as what is meant by that: the command with `--help`.
fn helped(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

fn parsed(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

/// The arguments as a line of the crontab has them, read as [`parsed`] would. Cron asks each minute whether a job is due, and
/// to learn all that the command line may be takes longer than all the rest of the answer.
fn of_line(arguments: &[OsString]) -> Option<Cli> {
    let (_, mut rest) = arguments.split_first()?;
    let mut shared = cli::Shared::default();
    let places = [("-c", &mut shared.config), ("-w", &mut shared.workspace)];
    for (flag, place) in places {
        if let [first, path, after @ ..] = rest
            && first == flag
            && !path.is_empty()
            && !path.as_encoded_bytes().starts_with(b"-")
        {
            *place = Some(path.into());
            rest = after;
        }
    }
    let [cron, run, id, scheduled] = rest else {
        return None;
    };
    let is_line = cron == "cron" && run == "run" && scheduled == "--scheduled";
    let id = id.to_str().filter(|id| cron::store::is_plain(id))?;
    is_line.then(|| Cli {
        shared,
        command: cli::Command::Cron {
            command: cli::cron::Cron::Run(cli::cron::Run {
                job: Some(id.to_owned()),
                scheduled: true,
                ..cli::cron::Run::default()
            }),
        },
    })
}

/// A command line without values: what a report of a defect may tell of it.
fn words(arguments: &[OsString]) -> String {
    let mut tree = command();
    tree.build();
    let mut at = &tree;
    let mut words = vec![tree.get_name().to_owned()];
    for argument in arguments.iter().skip(1) {
        let text = argument.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        let flag = at.get_arguments().find_map(|known| {
            let long = known
                .get_long()
                .filter(|long| name.strip_prefix("--") == Some(*long));
            let short = known.get_short().filter(|short| {
                let rest = name.strip_prefix('-');
                rest.is_some_and(|rest| rest.starts_with(*short))
            });
            long.is_some().then_some(known).or(short.map(|_| known))
        });
        words.push(match (flag, at.find_subcommand(&*text)) {
            (Some(flag), _) => format!(
                "--{}",
                flag.get_long().unwrap_or_else(|| flag.get_id().as_str())
            ),
            (None, Some(command)) => {
                at = command;
                command.get_name().to_owned()
            }
            (None, None) => "…".to_owned(),
        });
    }
    words.join(" ")
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
        command: words,
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

/// Help and version go to standard output with status 0; a mistake goes to standard error with status 2.
fn usage(error: &clap::Error, arguments: &[OsString], terminal: Terminal) -> Exit {
    let help = help(error, arguments);
    let error = help.as_ref().unwrap_or(error);
    if error.use_stderr() {
        terminal.complain(error.render().to_string().trim_end());
        let meant = joined(error, arguments).or_else(|| elsewhere(error, arguments));
        if let Some(meant) = meant.or_else(|| said(error, arguments)) {
            terminal.complain(&format!("  try: {meant}"));
        }
        return Exit::Usage;
    }
    match terminal.print(&error.render().to_string()) {
        Ok(()) => Exit::Answered,
        Err(error) => report_error(&error, terminal),
    }
}

/// The help that was asked for, or is given where a command is missing, with all that it says.
fn help(error: &clap::Error, arguments: &[OsString]) -> Option<clap::Error> {
    let is_help = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ]
    .contains(&error.kind());
    let form = match arguments.iter().any(|word| word == "--help") {
        true => Form::Long,
        false => Form::Short,
    };
    let again = || documented(form).try_get_matches_from(arguments).err();
    is_help.then(again).flatten()
}

/// What there is here for words of the Python program that mean nothing here.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "--install-completion",
        "nanobot completions bash, or zsh, or fish: a script for that shell to load",
    ),
    (
        "--show-completion",
        "nanobot completions bash, or zsh, or fish",
    ),
    ("-v", "nanobot --version"),
    (
        "channels",
        "a pipe or a crontab line with `nanobot agent -m`: no server listens to channels here",
    ),
    (
        "serve",
        "a pipe or a crontab line with `nanobot agent -m`: nanobot is no server",
    ),
    ("webui", "nanobot repl"),
    ("sessions", "nanobot session"),
    ("trigger", "nanobot cron run JOB"),
    ("plugins", "nanobot tool list"),
];

fn elsewhere(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let is_unknown = [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument];
    let first = arguments
        .get(1)
        .filter(|_| is_unknown.contains(&error.kind()))?;
    let known = ELSEWHERE.iter().find(|(word, _)| first == word);
    known.map(|(_, here)| (*here).to_owned())
}

/// What was typed without a flag, where it is neither a command nor like one, as the message that it may be.
fn said(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let is_agent = arguments.get(1).is_some_and(|word| word == "agent");
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument if is_agent => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(stray)) = error.get(kind) else {
        return None;
    };
    let at = arguments.iter().position(|word| word == stray.as_str())?;
    let words: Option<Vec<&str>> = arguments[at..].iter().map(|word| word.to_str()).collect();
    let words = words?;
    let is_known = error.get(ContextKind::SuggestedSubcommand).is_some();
    if is_known || !(is_agent || at == 1) || words.iter().any(|word| word.starts_with('-')) {
        return None;
    }
    let words = quoted(&words.join(" "));
    let words = match words.contains('\'') {
        true => words,
        false => format!("'{words}'"),
    };
    Some(format!("nanobot agent -m {words}"))
}

/// Flags whose value is no word of its own.
const JOINED: &[&str] = &["--write", "--net", "--dry-run"];

/// The flag with its value, where that was given as a word of its own and taken for something else.
fn joined(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(stray)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let pair = arguments
        .windows(2)
        .find(|pair| pair[1] == **stray && JOINED.iter().any(|flag| pair[0] == *flag))?;
    Some(format!("{}={}", pair[0].display(), quoted(stray)))
}

/// The table of statuses, for help and man page.
fn statuses() -> String {
    let mut table = String::from("Exit status:\n");
    for exit in Exit::ALL {
        writeln!(table, "  {:>3}  {}", exit.code(), exit.meaning())
            .expect("writing to a string cannot fail");
    }
    table.truncate(table.trim_end().len());
    table
}

#[cfg(test)]
mod tests {
    use super::{of_line, parsed};
    use std::ffi::OsString;

    #[test]
    fn a_report_tells_flags_and_no_values() {
        let check = |line: &str, expect: &str| {
            let arguments: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(super::words(&arguments), expect);
        };
        check(
            "nanobot agent -m secret --json",
            "nanobot agent --message … --json",
        );
        check("nanobot a -msecret", "nanobot agent --message");
        check("nanobot agent --message=secret", "nanobot agent --message");
        check("nanobot session show diary", "nanobot session show …");
        check(
            "nanobot -q memory consolidate",
            "nanobot --quiet memory consolidate",
        );
        check("nanobot --sk-live-0123", "nanobot …");
        check("nanobot", "nanobot");
    }

    #[test]
    fn a_line_of_the_crontab_is_read_the_same_both_ways() {
        let check = |line: &str, is_line: bool| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let short = of_line(&words).map(|cli| format!("{cli:?}"));
            assert_eq!(short.is_some(), is_line, "{line}");
            if let Some(short) = short {
                assert_eq!(short, format!("{:?}", parsed(&words).unwrap()), "{line}");
            }
        };
        check("nanobot cron run 0a1b2c3d --scheduled", true);
        check("/usr/bin/nanobot cron run heartbeat --scheduled", true);
        check("nanobot -c /a/b.json cron run a-b_c --scheduled", true);
        check("nanobot -w /w cron run 0a1b2c3d --scheduled", true);
        check("nanobot -c c -w w cron run 0a1b2c3d --scheduled", true);
        check("nanobot -w w -c c cron run 0a1b2c3d --scheduled", false);
        check("nanobot -c -w w cron run 0a1b2c3d --scheduled", false);
        check("nanobot -c  cron run 0a1b2c3d --scheduled", false);
        check("nanobot cron run --due --scheduled", false);
        check("nanobot cron run a.b --scheduled", false);
        check("nanobot cron run 0a1b2c3d --as-cron", false);
        check("nanobot cron run 0a1b2c3d --scheduled -q", false);
        check("nanobot -q cron run 0a1b2c3d --scheduled", false);
        check("nanobot cron run --scheduled 0a1b2c3d", false);
        check("nanobot cron run", false);
        check("nanobot", false);
    }
}
