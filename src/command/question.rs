//! Questions to the user.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::terminal::{Terminal, sanitize, stderr_width, wrap_words};

/// The error if the input ends: the user has left.
#[derive(Debug, thiserror::Error)]
#[error("cancelled by the user")]
pub(crate) struct Cancelled;

/// Replaces [`Cancelled`] by an error with `consequence` and `hint`, and returns any other error unchanged.
pub(crate) fn to_error(error: anyhow::Error, consequence: &str, hint: &str) -> anyhow::Error {
    if error.is::<Cancelled>() {
        fail(Exit::NoInput, consequence.to_owned()).with_hint(hint)
    } else {
        error
    }
}

/// Asks a question and returns the answer, or `default` if it is empty.
pub(crate) fn ask_text(terminal: Terminal, prompt: &str, default: &str) -> Result<String> {
    let prompt = match default {
        "" => format!("{prompt}: "),
        default => format!("{prompt} [{default}]: "),
    };
    loop {
        let answer = terminal.prompt(&prompt)?.ok_or(Cancelled)?;
        match answer.trim() {
            "" => return Ok(default.to_owned()),
            text if text.chars().any(char::is_control) => {
                terminal.eprint("The answer contains control characters.");
            }
            text => return Ok(text.to_owned()),
        }
    }
}

/// Asks until the answer is the beginning of exactly one of the `choices`, and lists them after any other answer. An empty
/// answer selects `default`.
///
/// # Errors
/// [`Cancelled`], or a signal.
pub(crate) fn ask_choice<'a>(
    terminal: Terminal,
    prompt: &str,
    default: &'a str,
    choices: &[&'a str],
) -> Result<&'a str> {
    loop {
        let answer = terminal.prompt(prompt)?.ok_or(Cancelled)?;
        let answer = answer.trim().to_lowercase();
        if answer.is_empty() {
            return Ok(default);
        }
        let mut matches = choices.iter().filter(|choice| choice.starts_with(&answer));
        if let (Some(choice), None) = (matches.next(), matches.next()) {
            return Ok(choice);
        }
        if let [others @ .., last] = choices {
            terminal.eprint(&format!("Please answer {} or {last}.", others.join(", ")));
        }
    }
}

/// Asks for yes or no, until the answer is one of them.
///
/// # Errors
/// [`Cancelled`], or a signal.
pub(crate) fn confirm(ctx: &Context, prompt: &str, default: bool) -> Result<bool> {
    let choice = if default { "Y/n" } else { "y/N" };
    let prompt = wrap_words(&format!("{prompt} [{choice}] "), stderr_width(), 0);
    let default = if default { "yes" } else { "no" };
    Ok(ask_choice(ctx.terminal, &prompt, default, &["yes", "no"])? == "yes")
}

/// Asks for yes, before an action that only `--yes` permits without a question. Any other answer is no.
///
/// # Errors
/// Status 2, with `hint`, if there is no terminal to ask at.
pub(crate) fn confirm_at_terminal(ctx: &Context, question: &str, hint: &str) -> Result<bool> {
    if !Terminal::can_prompt() {
        return Err(
            fail(Exit::Usage, "cannot ask for confirmation without a terminal").with_hint(hint)
        );
    }
    ask_yes(ctx, question)
}

/// Asks for yes. Any other answer is no.
///
/// # Errors
/// A signal.
pub(crate) fn ask_yes(ctx: &Context, question: &str) -> Result<bool> {
    let answer = ctx.terminal.prompt(&format!("{} [y/N] ", sanitize(question)))?;
    let answer = answer.unwrap_or_default();
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
