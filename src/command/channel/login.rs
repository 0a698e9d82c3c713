//! `nanobot channel login`: asks for the credentials that the config lacks, tests them, and stores them.

use crate::command::question::{self, Cancelled, ask_text};
use crate::ops::channel::login::{ChannelLogin, LoginPrompt};
use crate::ops::context::{Context, report_error};
use crate::ops::slash_commands;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, exit_for, fail};
use nanobot_channel::{LoginDialog, LoginValue, MenuCommand};
use nanobot_os::terminal::Terminal;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use serde_json::Value;

/// Logs in at the channel `name`. On a terminal it asks again until the service accepts the answers.
///
/// # Errors
/// The errors of the service. Status 66 if the user cancels.
pub(crate) fn log_in(ctx: &Context, name: &str) -> Result<()> {
    let login = ChannelLogin::new(ctx, name)?;
    if !Terminal::can_prompt() || login.is_configured() {
        return complete(ctx, &login, &[]);
    }
    loop {
        let mut answers = Vec::new();
        for prompt in login.questions() {
            let value = ask(ctx, &prompt).map_err(|error| {
                let hint = format!("`nanobot channel login {name}` again");
                question::to_error(error, &format!("{name} is not set up"), &hint)
            })?;
            if value != prompt.default {
                answers.push(LoginValue { key: prompt.question.key, value });
            }
        }
        match complete(ctx, &login, &answers) {
            Err(error) if exit_for(&error) == Exit::Refused => {
                report_error(&error, ctx.terminal);
            }
            result => return result,
        }
    }
}

/// Asks one question. An empty answer to a required question cancels the login, as Ctrl-D does.
fn ask(ctx: &Context, prompt: &LoginPrompt) -> Result<Value> {
    let text = prompt.question.text;
    if prompt.question.is_flag {
        return Ok(question::confirm(ctx, text, false)?.into());
    }
    let answer = if prompt.is_secret {
        let answer = ctx.terminal.prompt_hidden(&format!("{text}, not shown: "))?;
        answer.ok_or(Cancelled)?.trim().to_owned()
    } else {
        ask_text(ctx.terminal, text, &prompt.default)?
    };
    if answer.is_empty() && !prompt.question.is_optional {
        Err(Cancelled.into())
    } else {
        Ok(answer.into())
    }
}

/// The user at the terminal.
struct TerminalDialog(Terminal);

impl LoginDialog for TerminalDialog {
    fn show_code(&mut self, url: &str, text: &str) -> Result<()> {
        require_terminal()?;
        let code = QrCode::new(url.as_bytes()).context("show a QR code")?;
        let mut image = code.render::<Dense1x2>();
        // Most terminals are dark, and a QR code has to be dark on light.
        image.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark);
        self.0.eprint(&image.build());
        self.0.eprint(&format!("{text}: {url}"));
        Ok(())
    }

    fn ask(&mut self, question: &str) -> Result<String> {
        require_terminal()?;
        ask_text(self.0, question, "")
    }

    fn commands(&self) -> Vec<MenuCommand> {
        let rows = slash_commands::in_chats();
        rows.map(|row| MenuCommand { name: row.name, description: row.description }).collect()
    }
}

fn require_terminal() -> Result<()> {
    if Terminal::can_prompt() {
        Ok(())
    } else {
        Err(fail(Exit::NoInput, "this login needs a terminal"))
    }
}

fn complete(ctx: &Context, login: &ChannelLogin, answers: &[LoginValue]) -> Result<()> {
    let message = login.complete(answers, &mut TerminalDialog(ctx.terminal))?;
    ctx.terminal.print(&format!("{message}\n"))?;
    let kind = login.kind();
    if ctx.quiet || answers.is_empty() || !kind.receives {
        return Ok(());
    }
    let rules = login.access_rules()?;
    if rules.allow_from.is_empty() && rules.approved.is_empty() {
        let next = if rules.pairs {
            "a sender gets a code at the first message: `nanobot channel pair approve CODE`"
        } else {
            "no sender is allowed: `nanobot config set channels.NAME.allowFrom`"
        };
        ctx.terminal.eprint(&next.replace("NAME", kind.name));
    }
    ctx.terminal
        .eprint("a crontab line answers messages: * * * * * nanobot channel poll --wait 60");
    Ok(())
}
