//! `nanobot`: a personal AI agent that behaves like a Unix program. The library exists for `main` and for the tests.
//!
//! The subjects that stand alone are crates in `crates`; ARCHITECTURE.md has their map, the paths of calls, jobs and chat messages,
//! the invariants, and the glossary. Here is the program: the command line, and the use cases that put the crates together.
//!
//! # A turn
//!
//! One run of `nanobot agent -m TEXT` goes through these files, and its answer comes back through them. Read them in this order:
//!
//! ```text
//! src/main.rs                           arguments and environment in, exit status out
//!  └ lib.rs                             run: parse, dispatch, report
//!     └ command/agent.rs                flags → options::turn, the output form
//!        └ ops/agent_turn.rs            run_steps: request → conversation → prepare → model → execute; run_to_outcome: exit status; run: print, post_turn
//!           ├ agent_turn/source.rs          what starts the turn: a command line, a job, a chat, a person
//!           ├ agent_turn/request.rs         settings, standard input, attachments, the message, the session's key
//!           ├ agent_turn/conversation.rs    crates/store: session/mod.rs (Session::open) → session/log.rs (lock, repair)
//!           ├ agent_turn/prepare.rs         ops/turn_setup.rs (policy, tools, sections of the system prompt); the message
//!           ├ ops/model.rs                  the provider with its wrappers
//!           ├ agent_turn/execute.rs         guards; then notices: what `undo` cannot take back, changed start-up files
//!           │  └ crates/agent/src/turn.rs   push message → ask → push reply → run tool calls → push results → ask …
//!           │     ├ turn/request.rs → crates/model/src/provider: (recording →) redact → fallback → tool_choice_fallback
//!           │     │    → retry → rate_limit → budget → http_provider (the exchange, over crates/net: http) → chat, anthropic or responses (pure translation)
//!           │     ├ crates/tool/src/lib.rs (Toolbox) → one file per tool → crates/sandbox, for commands
//!           │     └ crates/base/src/event.rs → crates/agent/src/report.rs → crates/os: terminal
//!           └ agent_turn/post_turn.rs      after the answer: spans, title, consolidation (from messages to the memory), retention
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | clap types only; their doc comments are the help and the man pages |
//! | [`command`] | one file per subcommand: parses arguments, calls one function of `ops`, prints the result |
//! | [`repl`] | the terminal UI: line editor, slash commands, approval prompts |
//! | [`ops`] | the use cases: agent turn, jobs, channels, the pipe, consolidation, doctor, sub-agents; plain options in, results out |
//! | [`options`] | the options that commands share, as clap reads them and `ops` uses them |
//! | [`name_service`] | resolves names with getent(1) in a static program |

#![cfg_attr(
    test,
    allow(clippy::needless_pass_by_value, reason = "cases of a table read best as values")
)]

#[cfg(all(test, not(feature = "test-hooks")))]
compile_error!("the tests need a feature: cargo test --locked --features test-hooks");

pub mod cli;
pub mod command;
mod name_service;
pub mod ops;
pub mod options;
pub mod repl;

use cli::Cli;
use cli::channel::{ChannelCommand, PairCommand};
use command::{parse, usage_error};
use nanobot_base::error::Exit;
use nanobot_os::env::Env;
use nanobot_os::panic_report::PanicReporter;
use nanobot_os::terminal::Terminal;
use nanobot_sandbox::process::become_helper;
use nanobot_sandbox::process::isolated_parser::{NamedParser, become_parser};
use ops::context::{Context, GlobalOptions, report_error};
use std::ffi::OsString;

/// Does the work of a helper process, if `argv[0]` or the environment asks for one. The program starts itself again for these: the
/// program that signs commits for git, the supervisor of a command or of an MCP server, the process that makes namespaces for a
/// supervisor, the process that hides paths from a program, the leader of the session of a command on the terminal, the proxy of
/// commands, and the parser of an untrusted document. Returns `None` in an ordinary process. The parent learns of an error from the
/// connection to the helper, or from its end.
pub fn run_helper_process() -> Option<Exit> {
    let has_succeeded = become_helper()
        .or_else(nanobot_tool::host_proxy::become_proxy)
        .or_else(|| become_parser(PARSERS))?;
    Some(if has_succeeded { Exit::Answered } else { Exit::Failed })
}

/// The parsers of untrusted documents.
const PARSERS: &[NamedParser] = &[
    NamedParser::new::<nanobot_tool::archive::ArchiveParser>(),
    NamedParser::new::<nanobot_tool::attach::OfficeParser>(),
    NamedParser::new::<nanobot_tool::attach::ImageParser>(),
    NamedParser::new::<nanobot_tool::web::article::PageParser>(),
    NamedParser::new::<nanobot_tool::web::engine::ResultPageParser>(),
    NamedParser::new::<nanobot_channel::email::inbound::MailParser>(),
];

/// Parses the arguments, runs the command, and prints its error. Returns the exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    name_service::configure();
    let env = Env::from_process();
    let is_dumb = env.get("TERM") == Some("dumb");
    let arguments = parse::expand_shortcut(arguments.into_iter().collect());
    if let Some(detail) = parse::parse_version(&arguments) {
        return command::version::run(detail, Terminal::probe(None, &env, is_dumb));
    }
    let cli = match parse::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let terminal = Terminal::probe(None, &env, is_dumb);
            return usage_error::report(error, &arguments, terminal);
        }
    };
    let is_plain = is_dumb || cli.global.plain;
    let terminal = Terminal::probe(cli.global.color.forced(), &env, is_plain);
    let exit = start_log(&cli, &env, terminal).and_then(|()| dispatch(cli, env, terminal));
    exit.unwrap_or_else(|error| report_error(&error, terminal))
}

fn start_log(cli: &Cli, env: &Env, terminal: Terminal) -> anyhow::Result<()> {
    if cli.global.quiet {
        return Ok(());
    }
    // In a pipe, `-v` shows progress only, and the variable asks for logs.
    let is_verbose = cli.command.asks_for_logs() && terminal.stderr_is_tty;
    nanobot_os::log::start(terminal, is_verbose, env.get(nanobot_os::env::LOG))
}

fn dispatch(cli: Cli, env: Env, terminal: Terminal) -> anyhow::Result<Exit> {
    // Completions work without a home directory, and with an invalid config.
    if let cli::CliCommand::Completions(arguments) = &cli.command {
        return command::completions::run(env, terminal, arguments);
    }
    if env.get(nanobot_os::env::INSIDE_SANDBOX).is_some() {
        return command::sandboxed::run(&cli.command, terminal);
    }
    let options = GlobalOptions {
        config: cli.global.config,
        workspace: cli.global.workspace,
        quiet: cli.global.quiet,
    };
    let ctx = Context::new(options, env, terminal)?;
    ctx.set_theme_source();
    nanobot_os::panic_report::configure(PanicReporter {
        folder: ctx.paths.panic_reports(),
        clock: ctx.clock.clone(),
        command: parse::describe_command_line,
    });
    log::info!(target: "config", "config `{}`", ctx.paths.config.display());
    if let Some(workspace) = ctx.workspace.as_ref().filter(|path| !path.is_dir())
        && !creates_workspace(&cli.command)
    {
        // A misspelt path would otherwise be an empty workspace.
        ctx.notice(&format!("there is no workspace `{}` yet", workspace.display()));
    }
    let servers = ctx.servers.clone();
    let exit = match cli.command {
        cli::CliCommand::Agent(arguments) => command::agent::run(&ctx, &arguments),
        cli::CliCommand::Run(arguments) => Ok(command::run::run(&ctx, &arguments)),
        cli::CliCommand::Repl(arguments) => command::repl::run(&ctx, &arguments),
        cli::CliCommand::Onboard(arguments) => command::onboard::run(&ctx, &arguments),
        cli::CliCommand::Config { command } => command::config::run(&ctx, &command),
        cli::CliCommand::Session { command } => command::session::run(&ctx, &command),
        cli::CliCommand::Memory { command } => command::memory::run(&ctx, &command),
        cli::CliCommand::Model { command } => command::model::run(&ctx, &command),
        cli::CliCommand::Status(arguments) => command::status::run(&ctx, &arguments),
        cli::CliCommand::Policy { command } => command::policy::run(&ctx, &command),
        cli::CliCommand::Tool { command } => command::tool::run(&ctx, &command),
        cli::CliCommand::Mcp { command } => command::mcp::run(&ctx, &command),
        cli::CliCommand::Skill { command } => command::skill::run(&ctx, &command),
        cli::CliCommand::Trust(arguments) => command::trust::run(&ctx, &arguments),
        cli::CliCommand::Cron { command } => command::cron::run(&ctx, &command),
        cli::CliCommand::Serve { command } => command::serve::run(&ctx, &command),
        cli::CliCommand::Channel { command } => command::channel::run(&ctx, &command),
        cli::CliCommand::Apply(arguments) => command::apply::run(&ctx, &arguments),
        cli::CliCommand::Undo(arguments) => command::undo::run(&ctx, &arguments, None),
        cli::CliCommand::Forget(arguments) => command::forget::run(&ctx, &arguments),
        cli::CliCommand::Usage(arguments) => command::usage::run(&ctx, &arguments),
        cli::CliCommand::Uninstall(arguments) => command::uninstall::run(&ctx, arguments),
        cli::CliCommand::Completions(_) => unreachable!("handled above"),
        cli::CliCommand::Topic { topic } => command::topic::run(&ctx.env, ctx.terminal, topic),
        cli::CliCommand::Gateway { .. } => Err(usage_error::no_gateway()),
    };
    // Commands shut down the servers that they start, but not if they fail.
    servers.shut_down();
    exit
}

/// True if the command creates a missing workspace, and says so.
fn creates_workspace(command: &cli::CliCommand) -> bool {
    let cli::CliCommand::Channel { command } = command else {
        return matches!(command, cli::CliCommand::Onboard(_));
    };
    matches!(
        command,
        ChannelCommand::Bind(_) | ChannelCommand::Pair { command: PairCommand::Approve { .. } }
    )
}
