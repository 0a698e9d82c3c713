//! `nanobot`: a personal AI agent that behaves like a Unix program. The library exists for `main` and for the tests; it is
//! not published.
//!
//! # Where to start
//!
//! Read [`cli`], [`command::agent`], [`ops::agent_turn`], [`turn`] and [`message`], in this order. One run of
//! `nanobot agent -m TEXT` goes through these files, and its answer comes back through them:
//!
//! ```text
//! main.rs                      arguments and environment in, exit status out
//!  └ lib.rs                    run: parse, dispatch, report
//!     └ command/agent.rs       flags → options::turn, the output form
//!        └ ops/agent_turn.rs   request → conversation → prepare → execute → finish
//!           ├ ops/agent_turn/request.rs       settings, standard input, attachments
//!           ├ ops/agent_turn/conversation.rs  session: lock, repair
//!           ├ ops/turn_setup.rs               policy, tools, system prompt
//!           ├ ops/model.rs                    provider with retries, budget, fallbacks
//!           └ turn.rs          push message → ask → push reply → run tool calls → push results → ask …
//!              ├ turn/request.rs → provider/chat, anthropic or responses → sys/http     to the wire and back
//!              ├ tool/mod.rs → tool/…                                              one file per tool
//!              └ event.rs → report.rs → sys/terminal                               what a person or a program sees
//! ```
//!
//! A line of the crontab goes `main → lib → command/parse (without clap) → command/cron/run → ops/job_runs/trigger →
//! scheduled_run → job_run → ops/agent_turn`; `ops/jobs/delivery` sends the answer, `job_runner` keeps the record.
//!
//! A message of a chat goes `ops/inbound/poll → channel (a service) → intake (access, inbox) → work_queue → answer →
//! ops/agent_turn`, and its answer back through `ops/channel/delivery`; messages that answer none go through `outbox`. `ops/pipe` does
//! the same with lines, and `ops/acp` with the requests of an editor.
//!
//! A tool call goes `turn → tool/mod (Toolbox) → policy (a decision) → tool/exec, say → sys/process/run → sys/sandbox`;
//! its result goes back to the turn as data for the model, whether it succeeded or not.
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
//! | [`guard`] | what may stop or change a turn: limits, loop detection, compaction, plan; one file each |
//! | [`report`] | event sinks: answer, progress, JSON, markdown; tables for terminals |
//! | [`answer_schema`] | the JSON schema that an answer must satisfy |
//! | [`turn`] | the loop: ask, run tools, repeat; knows interfaces, never features |
//! | [`provider`] | one trait, one folder per wire format, wrappers (retry, fallback, budget …), the table of providers |
//! | [`tool`] | one trait, the toolbox, one file per tool |
//! | [`mcp`] | the MCP client: servers, their tools, pins and cached offers |
//! | [`auth`] | logins: requests to login servers, the device flow, token files that are renewed under a lock |
//! | [`session`] | the conversation log: open, lock, repair, append |
//! | [`memory`] | what outlasts a conversation: the memory, its history, its versions |
//! | [`channel`] | chat channels: inbound and outbound messages, the inbox, access; one file per service |
//! | [`cron`] | jobs: schedules, the job file, crontab lines |
//! | [`attach`] | `--attach`: files, directories and pages as parts of a message |
//! | [`undo`] | the journal of file changes, and how it is undone |
//! | [`skill`] | skills: found, checked, listed within a budget |
//! | [`trust`] | which directories may give instructions |
//! | [`ledger`] | what calls of models cost, and budgets |
//! | [`workspace`] | the agent's home: its notes and templates |
//! | [`settings`] | the config as written, and the settings as used |
//! | [`policy`] | what a run may do: rules, profiles, provenance; pure |
//! | [`history`] | what is sent of a conversation; pure |
//! | [`prompt`] | the system prompt; pure |
//! | [`event`] | what happens in a turn, as sinks receive it; plain data |
//! | [`message`] | user message, reply, tool call, tool result, usage; plain data |
//! | [`markdown`] | the grammar of Markdown: lines, inline marks, tables; pure |
//! | [`diff`], [`format`], [`json_rpc`], [`line_search`], [`patch`], [`shell_quote`], [`terminal_text`] | text to text; pure |
//! | [`error`] | exit statuses, and errors with a hint |
//! | [`sys`] | every contact with the operating system, one file or folder per kind |
//!
//! # Layers
//!
//! ```text
//! main → lib → command → repl → ops → { guard, report, answer_schema } → turn → { session, provider, tool → mcp } → event → message
//!
//! ops also uses               options, memory, channel, cron, attach, undo, skill, trust, ledger, workspace, settings, policy, history, prompt
//! tools use                   attach, skill, undo and policy; the MCP client uses settings and auth; providers use the ledger and auth
//! everything may use          sys, error, diff, format, json_rpc, line_search, markdown, patch, shell_quote, terminal_text
//! ```
//!
//! Imports go in one direction, between files and between folders: there is no cycle. `ops` knows neither `command` nor `repl` nor clap:
//! what prints or prompts is passed in as a trait object. Guards import the turn, never the other way round. `message`, `event`,
//! `policy`, `prompt`, `history` and `guard` do no I/O; nothing outside `sys` reads a variable, a clock or the home
//! directory; nothing outside `sys::terminal` prints; nothing ends the process except `main` and a signal.
//! `tests/cli/tidy` parses the sources and holds them to this.
//!
//! # Glossary
//!
//! One concept, one word. The source of each word is in parentheses.
//!
//! | word | meaning |
//! |---|---|
//! | answer | The text of the final reply; the only thing that goes to stdout (POSIX filters). |
//! | approval | A person's yes to one call that the policy does not allow by itself (MCP, Vibe). |
//! | backoff | The growing delay between retries (RFC 9110 `Retry-After`). |
//! | budget | Upper bound on the cost of a run or a day. |
//! | cancellation token | A flag that ends the waits of a group of threads (`tokio_util::CancellationToken`). |
//! | channel | A chat service that carries messages (the Python program). |
//! | compaction | Replacing old messages of a session by a summary, to fit the context window (model APIs). |
//! | consolidation | Moving facts from a session into `MEMORY.md` and `HISTORY.md` (the Python program). |
//! | context window | Maximum number of tokens of one request and its reply (model APIs). |
//! | crontab line | One scheduled line of the user's crontab (crontab(5)). |
//! | denial | The policy's no to a tool call; the model gets it as the result (MCP). |
//! | endpoint | The address and the wire format of a provider (model APIs). |
//! | event | One line of `--json`: what happened in the turn, in order (DESIGN §4). |
//! | fallback | The model that is used when the configured one is unavailable. |
//! | finish reason | Why the provider ended a reply (`finish_reason` of the chat API). |
//! | front matter | The YAML block at the top of a Markdown file (Jekyll, agent skills). |
//! | grant | A permission that a flag adds to the profile. |
//! | guard | A check before each request: it can stop the turn, inject a message or compact. |
//! | heartbeat | A scheduled look at the tasks in `HEARTBEAT.md` (the Python program). |
//! | hint | The line after an error that says what to do next (git, cargo). |
//! | inbox | The journal of the messages and answers of a channel or a named pipe (mail, Erlang). |
//! | job | A message with a schedule, run by cron (cron(8)). |
//! | ledger | The log of tokens and costs of all runs. |
//! | MCP server | A program or an address that adds tools (Model Context Protocol). |
//! | outbox | The messages of an inbox that answer none: those of jobs, scripts and the `message` tool (mail). |
//! | pairing | Allowing a sender by a code that was sent to it (the Python program, Bluetooth). |
//! | policy | The value that decides for each tool call: allowed, denied, or needs approval. |
//! | profile | A named set of permissions: `plan`, `default`, `full` (Vibe's agents). |
//! | provenance | Where the text in a request comes from; it decides what addresses may be reached. |
//! | provider | A service that runs models, through one of three wire formats (model APIs). |
//! | redaction | Replacing secrets in text by `***`. |
//! | sandbox | The kernel's limits on a command: Landlock, seccomp, namespaces (their man pages). |
//! | session | The messages of one conversation, in one JSONL file (the Python program). |
//! | sink | The receiver of events. |
//! | skill | A directory with instructions for one kind of task (agent skills). |
//! | slot | One instant that a job's schedule names; each slot runs once. |
//! | stop reason | Why a turn ended; it decides the exit status. |
//! | sub-agent | A turn that the model starts with the `spawn` tool. |
//! | tool call, tool result | The model's request to run a tool, and the output (model APIs, MCP). |
//! | tool choice | Whether the model may, must or must not call tools (`tool_choice` of the chat API). |
//! | turn | One question and everything up to its answer. |
//! | untrusted content | Text from outside: pages, commands, files, servers. It is data, never instructions (OWASP). |
//! | usage | Numbers of tokens that a provider reports for a reply (`usage` of the chat API). |
//! | workspace | The agent's own files: memory, skills, instructions (the Python program). |

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
use command::{parse, usage_error};
use nanobot_base::error::Exit;
use nanobot_os::env::Env;
use nanobot_os::panic_report::PanicReporter;
use nanobot_os::terminal::Terminal;
use nanobot_sandbox::process::become_helper;
use nanobot_sandbox::process::isolated_parser::{NamedParser, become_parser};
use ops::context::{Context, GlobalOptions, report_error};
use std::ffi::OsString;

/// Runs as a helper of ourselves, where the arguments say so: a signer for git, the supervisor of an MCP server or of a command,
/// the process that makes namespaces for one, the one that hides places from a program, or the proxy of commands. Returns
/// `None` in an ordinary process. Errors reach the parent by the supervisor's connection, or by its end.
pub fn run_helper_process() -> Option<Exit> {
    let is_clean = become_helper()
        .or_else(nanobot_tool::host_proxy::become_proxy)
        .or_else(|| become_parser(PARSERS))?;
    Some(if is_clean { Exit::Answered } else { Exit::Failed })
}

/// The parsers of untrusted documents.
const PARSERS: &[NamedParser] = &[
    NamedParser::new::<nanobot_tool::attach::OfficeParser>(),
    NamedParser::new::<nanobot_tool::attach::ImageParser>(),
    NamedParser::new::<nanobot_tool::web::article::PageParser>(),
    NamedParser::new::<nanobot_tool::web::engine::ResultPageParser>(),
    NamedParser::new::<nanobot_channel::email::inbound::MailParser>(),
];

/// Parse, resolve, dispatch, report. Returns the status to exit with.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    name_service::configure();
    let env = Env::from_process();
    let dumb = env.get("TERM") == Some("dumb");
    let arguments = parse::expand_shortcut(arguments.into_iter().collect());
    if let Some(detail) = parse::parse_version(&arguments) {
        return command::version::run(detail, Terminal::probe(None, &env, dumb));
    }
    let cli = match parse::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let terminal = Terminal::probe(None, &env, dumb);
            return usage_error::report(error, &arguments, terminal);
        }
    };
    let plain = dumb || cli.shared.plain;
    let terminal = Terminal::probe(cli.shared.color.forced(), &env, plain);
    // In a pipe `-v` shows progress only. The variable asks for logs there.
    let is_verbose = cli.command.asks_for_logs();
    let started = if cli.shared.quiet {
        Ok(())
    } else {
        nanobot_os::log::start(
            terminal,
            is_verbose && terminal.stderr_is_tty,
            env.get(nanobot_os::env::LOG),
        )
    };
    match started.and_then(|()| dispatch(cli, env, terminal)) {
        Ok(exit) => exit,
        Err(error) => report_error(&error, terminal),
    }
}

fn dispatch(cli: Cli, env: Env, terminal: Terminal) -> anyhow::Result<Exit> {
    // Works without a home, and with any config.
    if let cli::CliCommand::Completions(arguments) = &cli.command {
        return command::completions::run(env, terminal, arguments);
    }
    if env.get(nanobot_os::env::INSIDE_SANDBOX).is_some() {
        return command::sandboxed::run(&cli.command, terminal);
    }
    let options = GlobalOptions {
        config: cli.shared.config,
        workspace: cli.shared.workspace,
        quiet: cli.shared.quiet,
    };
    let ctx = Context::new(options, env, terminal)?;
    ctx.set_theme_source();
    nanobot_os::panic_report::configure(PanicReporter {
        folder: ctx.paths.panic_reports(),
        clock: ctx.clock.clone(),
        command: parse::describe_command_line,
    });
    log::info!(target: "config", "config `{}`", ctx.paths.config.display());
    let servers = ctx.servers.clone();
    let done = match cli.command {
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
        cli::CliCommand::Heartbeat(arguments) => command::heartbeat::run(&ctx, &arguments),
        cli::CliCommand::Pipe(arguments) => command::pipe::run(&ctx, &arguments),
        cli::CliCommand::Acp(arguments) => command::acp::run(&ctx, &arguments),
        cli::CliCommand::Channel { command } => command::channel::run(&ctx, &command),
        cli::CliCommand::Undo(arguments) => command::undo::run(&ctx, &arguments),
        cli::CliCommand::Usage(arguments) => command::usage::run(&ctx, &arguments),
        cli::CliCommand::Metrics => command::metrics::run(&ctx),
        cli::CliCommand::Provider { command } => command::provider::run(&ctx, &command),
        cli::CliCommand::Uninstall(arguments) => command::uninstall::run(&ctx, arguments),
        cli::CliCommand::Completions(it) => command::completions::run(ctx.env, ctx.terminal, &it),
        cli::CliCommand::Topic { topic } => command::topic::run(ctx.terminal, topic),
        cli::CliCommand::Gateway { .. } => Err(usage_error::no_gateway()),
    };
    // Every command ends the servers that it started, except when it fails.
    servers.shut_down();
    done
}
