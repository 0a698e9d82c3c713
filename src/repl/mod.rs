//! `nanobot repl`: a conversation at a terminal, line by line. Each line is a complete turn, as in `nanobot agent`, and
//! holds the lock of its session only while it runs, so other runs may use the session in between. Only the line editor
//! and the user's grants last longer than a turn. Only the REPL can prompt the user.

use crate::ops::context::Context;
use crate::ops::slash_commands::EXITS;
use crate::ops::user_commands;
use crate::options::turn::TurnOptions;
use crate::repl::editor::{EditorLine, LineKey, Prompt};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_os::signal;
use nanobot_os::terminal::Terminal;
use program_commands::ProgramCommands;
use repl_session::ReplSession;
use std::time::{Duration, Instant};

mod approval;
mod bell;
mod clipboard;
mod completion;
pub mod editor;
mod form;
mod greeting;
mod hints;
mod last_output;
mod mention;
pub mod program_commands;
mod repl_session;
mod rewind;
mod slash;

/// Two Ctrl-C within this time end the REPL.
const DOUBLE_INTERRUPT_WINDOW: Duration = Duration::from_millis(1500);

const EXIT_HINT: &str = "(press Ctrl-C again, Ctrl-D or /exit to end)";

/// Runs the REPL until the user ends it. Each turn is run with `options`.
pub(crate) fn run(
    ctx: &Context,
    options: TurnOptions,
    program: &dyn ProgramCommands,
) -> Result<Exit> {
    if !Terminal::is_interactive() {
        return Err(fail(Exit::Usage, "the REPL needs a terminal")
            .with_hint("`nanobot agent -m \"…\"`, or pipe some text into `nanobot agent`"));
    }
    signal::install(None).context("wait for signals")?;
    run_loop(ReplSession::open(ctx, options, program)?)
}

/// The meaning of a line.
enum ReplInput {
    Empty,
    Exit,
    /// A command for the shell.
    Shell(String),
    /// A slash command, and the text after it.
    Command(String, String),
    Message(String),
}

/// Reads lines and runs each until the user ends the conversation.
fn run_loop(mut repl: ReplSession<'_>) -> Result<Exit> {
    let mut interrupted: Option<Instant> = None;
    loop {
        let prompt = repl.prompt();
        let prompt = Prompt { text: &prompt, is_warning: repl.is_unrestricted };
        let draft = std::mem::take(&mut repl.draft);
        let line = repl.editor().read(prompt, &draft)?;
        let text = match line {
            EditorLine::Text(text) => text,
            EditorLine::Key(key, text) => {
                repl.draft = text;
                match key {
                    LineKey::NextProfile => repl.cycle_profile(),
                    LineKey::LastOutput => run_command(&mut repl, "last", ""),
                    LineKey::Paste => run_command(&mut repl, "paste", ""),
                    LineKey::Rewind => run_command(&mut repl, "rewind", ""),
                    LineKey::Discard => {
                        // The Up key brings it back. Ctrl-C ends the REPL, unless something is typed before.
                        let text = std::mem::take(&mut repl.draft);
                        add_to_history(&repl, &text);
                        interrupted = Some(Instant::now());
                        repl.print_line(EXIT_HINT);
                    }
                }
                signal::clear_interrupt()?;
                continue;
            }
            EditorLine::End => return Ok(Exit::Answered),
            EditorLine::Interrupted
                if interrupted.is_some_and(|when| when.elapsed() < DOUBLE_INTERRUPT_WINDOW) =>
            {
                return Ok(Exit::Interrupted);
            }
            EditorLine::Interrupted => {
                interrupted = Some(Instant::now());
                repl.print_line(EXIT_HINT);
                continue;
            }
        };
        interrupted = None;
        let input = parse(&text);
        if !matches!(input, ReplInput::Empty | ReplInput::Exit) {
            add_to_history(&repl, &text);
        }
        match input {
            ReplInput::Empty => {}
            ReplInput::Exit => return Ok(Exit::Answered),
            ReplInput::Shell(command) => run_command(&mut repl, "shell", &command),
            ReplInput::Command(name, rest) => {
                // These commands may start the user's own editor or pager, which needs the terminal.
                if matches!(name.as_str(), "diff" | "edit" | "memory") {
                    repl.editor().restore_terminal()?;
                }
                run_command(&mut repl, &name, &rest);
            }
            ReplInput::Message(text) => repl.send_message(&text),
        }
        // The signal that ended a turn must not end later ones, except for a hang-up.
        signal::clear_interrupt()?;
    }
}

fn add_to_history(repl: &ReplSession<'_>, text: &str) {
    let result = repl.editor().add_to_history(text);
    if let Err(error) = result {
        repl.print_line(&format!("nanobot: cannot save the line in the history: {error:#}"));
    }
}

/// Runs the command `name`, and reports its failure.
fn run_command(repl: &mut ReplSession<'_>, name: &str, rest: &str) {
    if let Err(error) = repl.dispatch(name, rest) {
        signal::begin_shutdown_if_stopped();
        hints::report_error(&error, repl.ctx.terminal);
        if name == "shell" && exit_for(&error) == Exit::Interrupted {
            repl.print_line("[ended by a signal]");
        }
    }
}

/// Parses a line.
fn parse(line: &str) -> ReplInput {
    let text = line.trim();
    if text.is_empty() {
        return ReplInput::Empty;
    }
    if EXITS.contains(&text.to_lowercase().as_str()) {
        return ReplInput::Exit;
    }
    // As with `exit`: the word alone is not a question to a model.
    if text.eq_ignore_ascii_case("help") || text == "/" {
        return ReplInput::Command("help".to_owned(), String::new());
    }
    if let Some(command) = text.strip_prefix('!') {
        return ReplInput::Shell(command.trim().to_owned());
    }
    let Some(rest) = text.strip_prefix('/') else {
        return ReplInput::Message(text.to_owned());
    };
    let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path, such as `/etc/hosts`, is not a command.
    if user_commands::is_command_name(name) {
        ReplInput::Command(name.to_owned(), rest.trim().to_owned())
    } else {
        ReplInput::Message(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{ReplInput, parse};

    #[test]
    fn a_line_is_a_message_a_command_or_the_end() {
        let check = |line: &str, expect: &str| {
            let actual = match parse(line) {
                ReplInput::Empty => String::new(),
                ReplInput::Exit => "exit".into(),
                ReplInput::Shell(command) => format!("! {command}"),
                ReplInput::Command(name, rest) => format!("/ {name} {rest}"),
                ReplInput::Message(text) => format!("say {text}"),
            };
            assert_eq!(actual, expect);
        };
        check("  ", "");
        check(" exit ", "exit");
        check("EXIT", "exit");
        check("/quit", "exit");
        check(":q", "exit");
        check("exit now", "say exit now");
        check("!git status", "! git status");
        check("/model  gpt x ", "/ model gpt x");
        check("/help", "/ help ");
        check("/", "/ help ");
        check("/etc/hosts, what is it?", "say /etc/hosts, what is it?");
        check("/ what", "say / what");
        check("/tmp/a", "say /tmp/a");
        check("a\nb", "say a\nb");
    }
}
