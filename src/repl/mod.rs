//! `nanobot repl`: a conversation at a terminal, line by line. Each line is a complete turn, as in `nanobot agent`, and
//! holds the lock of its session only while it runs, so other runs may use the session in between. Only the line editor
//! and the user's grants last longer than a turn. Only the REPL can prompt the user.

use crate::error::{Exit, exit_of, fail_hint};
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use crate::sys::editor::Line;
use crate::sys::signal;
use anyhow::{Context as _, Result};
use commands::EXITS;
use conversation::Conversation;
use program_commands::ProgramCommands;
use std::time::{Duration, Instant};

mod approval;
pub mod commands;
mod completion;
mod conversation;
mod form;
mod hints;
mod mention;
pub(crate) mod program_commands;
mod rule;
mod slash;

/// Two Ctrl-C within this time end the REPL.
const DOUBLE_INTERRUPT: Duration = Duration::from_millis(1500);
/// The prompt of a line.
const PROMPT: &str = "> ";

/// Runs the REPL until the user ends it. Each turn is run with `options`.
pub(crate) fn run(
    ctx: &Context,
    options: TurnOptions,
    program: &dyn ProgramCommands,
) -> Result<Exit> {
    if !ctx.terminal.converses() {
        return Err(fail_hint(
            Exit::Usage,
            "the REPL needs a terminal",
            "`nanobot agent -m \"…\"`, or pipe some text into `nanobot agent`",
        ));
    }
    signal::arm(None).context("wait for signals")?;
    run_loop(Conversation::begin(ctx, options, program)?)
}

/// The meaning of a line.
enum Input {
    Nothing,
    Exit,
    /// A command for the shell.
    Shell(String),
    /// A slash command, and the text after it.
    Command(String, String),
    Message(String),
}

/// Reads lines and runs each until the user ends the conversation.
fn run_loop(mut conversation: Conversation<'_>) -> Result<Exit> {
    let mut interrupted: Option<Instant> = None;
    loop {
        let line = conversation.editor().read(PROMPT, "")?;
        let text = match line {
            Line::Text(text) => text,
            Line::End => return Ok(Exit::Answered),
            Line::Interrupted
                if interrupted.is_some_and(|when| when.elapsed() < DOUBLE_INTERRUPT) =>
            {
                return Ok(Exit::Interrupted);
            }
            Line::Interrupted => {
                interrupted = Some(Instant::now());
                conversation.tell("(press Ctrl-C again, Ctrl-D or /exit to end)");
                continue;
            }
        };
        interrupted = None;
        let input = parse(&text);
        if !matches!(input, Input::Nothing | Input::Exit) {
            let kept = conversation.editor().remember(&text);
            if let Err(error) = kept {
                conversation.tell(&format!(
                    "nanobot: cannot save the line in the history: {error:#}"
                ));
            }
        }
        match input {
            Input::Nothing => {}
            Input::Exit => return Ok(Exit::Answered),
            Input::Shell(command) => attempt(&mut conversation, "shell", &command),
            Input::Command(name, rest) => {
                // Both commands may start the user's own editor, which needs the terminal.
                if matches!(name.as_str(), "edit" | "memory") {
                    conversation.editor().hand_over()?;
                }
                attempt(&mut conversation, &name, &rest);
            }
            Input::Message(text) => conversation.ask(&text),
        }
        // The signal that ended a turn must not end later ones, except for a hang-up.
        signal::forgive()?;
    }
}

/// Runs the command `name`, and reports its failure.
fn attempt(conversation: &mut Conversation<'_>, name: &str, rest: &str) {
    let done = conversation.dispatch(name, rest);
    if let Err(error) = done {
        signal::last_words();
        hints::report(&error, conversation.ctx.terminal);
        if name == "shell" && exit_of(&error) == Exit::Interrupted {
            conversation.tell("[ended by a signal]");
        }
    }
}

/// Parses a line.
fn parse(line: &str) -> Input {
    let text = line.trim();
    if text.is_empty() {
        return Input::Nothing;
    }
    if EXITS.contains(&text.to_lowercase().as_str()) {
        return Input::Exit;
    }
    if let Some(command) = text.strip_prefix('!') {
        return Input::Shell(command.trim().to_owned());
    }
    let Some(rest) = text.strip_prefix('/') else {
        return Input::Message(text.to_owned());
    };
    let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path, such as `/etc/hosts`, is not a command.
    let is_name = |letter: char| letter.is_ascii_alphabetic() || letter == '-';
    match !name.is_empty() && name.chars().all(is_name) {
        true => Input::Command(name.to_owned(), rest.trim().to_owned()),
        false => Input::Message(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Input, parse};

    #[test]
    fn a_line_is_a_message_a_command_or_the_end() {
        let check = |line: &str, expect: &str| {
            let said = match parse(line) {
                Input::Nothing => String::new(),
                Input::Exit => "exit".into(),
                Input::Shell(command) => format!("! {command}"),
                Input::Command(name, rest) => format!("/ {name} {rest}"),
                Input::Message(text) => format!("say {text}"),
            };
            assert_eq!(said, expect);
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
        check("/etc/hosts, what is it?", "say /etc/hosts, what is it?");
        check("/ what", "say / what");
        check("/tmp/a", "say /tmp/a");
        check("a\nb", "say a\nb");
    }
}
