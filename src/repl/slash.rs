//! The slash commands. Most run a command of the program in this conversation.

use super::completion::{all_profiles, turn_directory};
use super::repl_session::{DEFAULT_SESSION, ReplSession, settings_with_profile};
use crate::ops::default_session::is_begun_by_a_person;
use crate::ops::slash_commands::{
    self, ArgKind, EFFORT_LEVELS, EXITS, REPLACEMENTS, SlashCommand, no_arguments_error,
};
use crate::ops::{agent_turn, model, skills, user_commands};
use crate::options::turn::DryRunForm;
use crate::repl::editor::{Candidate, EditedText, edit_text};
use anyhow::{Error, Result};
use nanobot_agent::report::columns::{Column, Side, format_table, hanging_indent};
use nanobot_agent::report::short_text::{count_noun, format_age};
use nanobot_base::error::{Exit, WithHint, exit_for, fail};
use nanobot_base::shell_quote::split_arguments;
use nanobot_model::provider::quirks::ThinkingStyle;
use nanobot_os::durable_file;
use nanobot_os::secret::{self, random_hex};
use nanobot_os::terminal::wrap_words;
use nanobot_sandbox::process::{CapturedText, TerminalCommand};
use nanobot_store::session::{self, SessionSummary};

/// The commands that are commands of the program too, with its options.
const PROGRAM_COMMANDS: [&str; 6] = ["memory", "mcp", "session", "trust", "undo", "usage"];
/// The number of sessions that `/session` lists and `/sessions` offers.
const LISTED_SESSIONS: usize = 10;
/// Bytes of a shell command's output that are kept for the next message, from its start and also from its end.
const OUTPUT_LIMIT_BYTES: usize = 8 << 10;

/// The commands that the help of a low window only names.
const RARE_COMMANDS: [&str; 11] = [
    "config", "copy", "fork", "last", "mcp", "memory", "paste", "resume", "rewind", "save", "usage",
];

/// The end of the help, about inputs that are not commands.
const KEYS_HELP: &str = "/NAME: a skill, or ~/.nanobot/commands/NAME.md. @FILE: attach. Ctrl-V: image.\n\
    !CMD: run CMD; its text output goes with your next message. Ctrl-R: history.\n\
    Alt-Enter, or a `\\` at the end: new line. Shift-Tab: profile. Ctrl-O: /last.\n\
    Esc, Ctrl-C: stop a turn. Esc Esc: /rewind. Ctrl-D or /exit ends.";

impl ReplSession<'_> {
    /// Runs the command `name` with the arguments `rest`.
    pub(super) fn dispatch(&mut self, name: &str, rest: &str) -> Result<()> {
        let command = slash_commands::in_repl().find(|command| command.is_called(name));
        if let Some(command) = command {
            command.check_arguments(rest)?;
        }
        let name = command.map_or(name, |command| command.name);
        match name {
            "help" if rest.is_empty() => self.help(),
            "help" => self.help_about(rest),
            "new" | "compact" => {
                self.run_control_turn(name, rest);
                Ok(())
            }
            "stop" => {
                self.print_line("Esc or Ctrl-C stops a turn; a typed line waits for its end");
                Ok(())
            }
            "sessions" => self.choose_session(),
            "session" if rest.is_empty() => self.show_sessions(),
            "session" => self.run_session_command(rest),
            "fork" => self.fork(rest),
            "last" => self.show_last_output(rest),
            "paste" => self.paste(),
            "rewind" => self.rewind(rest),
            "undo" => self.run_program(&["undo"], rest),
            "diff" => {
                let key = self.session_key()?;
                self.program.show_diff(self.ctx, &key, !rest.is_empty())
            }
            "retry" => self.retry(),
            "resume" if self.is_unfinished => self.retry(),
            "resume" => Err(fail(Exit::NoInput, "no turn of this session was interrupted")
                .with_hint("`/sessions` for another session, `/retry` to ask again")),
            "model" if rest.is_empty() => self.show_model(),
            "model" => self.change_model(rest),
            "effort" if rest.is_empty() => self.show_effort(),
            "effort" => self.change_effort(rest),
            "profile" if rest.is_empty() => self.list_profiles(),
            "profile" => self.change_profile(rest),
            // Pass the flags of the conversation as values, not as arguments of a command line.
            "tools" => self.program.list_tools(self.ctx, &self.options.grants),
            "skills" => self.program.show_skills(self.ctx, rest, &self.options),
            "mcp" if rest.is_empty() => self.run_program(&["mcp", "list"], rest),
            "mcp" => self.run_program(&["mcp", "show", "--"], rest),
            "memory" if rest.is_empty() => self.run_program(&["memory", "show"], rest),
            "memory" => self.run_program(&["memory"], rest),
            "cost" => {
                let key = self.session_key()?;
                self.program.show_cost(self.ctx, &key)
            }
            "usage" => {
                if let (Some(key), "") = (&self.options.session.key, rest) {
                    self.program.show_cost(self.ctx, key)?;
                }
                self.run_program(&["usage"], rest)
            }
            "context" => self.show_context(),
            "config" => self.run_program(&["config", "list"], rest),
            "status" => self.run_program(&["status"], rest),
            "trust" => self.run_program(&["trust"], rest),
            "save" => self.save(rest),
            "copy" => self.copy(),
            "edit" => self.edit(rest),
            "shell" => self.shell(rest),
            _ => self.send_command(name, rest),
        }
    }

    /// Sends the message of the user's command `name`, or a request to use the skill of that name.
    fn send_command(&mut self, name: &str, rest: &str) -> Result<()> {
        let skills = || skills::for_turn(self.ctx, &self.options);
        let message = match user_commands::find(self.ctx, name)? {
            Some(command) => command.message(rest),
            None if skills()?.by_name(name).is_some() => skills::use_message(name, rest),
            None => return Err(unknown_command(name)),
        };
        self.send_message(&message);
        Ok(())
    }

    /// Sends a message from the user's editor. One that is not saved there is back at the prompt.
    fn edit(&mut self, initial: &str) -> Result<()> {
        let EditedText { text, is_saved } = edit_text(&self.ctx.env, initial)?;
        if text.trim().is_empty() {
            self.print_line("the message is empty, and was not sent");
        } else if is_saved {
            self.send_message(&text);
        } else {
            self.print_line("the editor did not save the message, so it was not sent");
            let draft = self.editor().fold(&text);
            self.draft = draft;
        }
        Ok(())
    }

    /// Copies the last answer to the clipboard, which the terminal may refuse.
    fn copy(&self) -> Result<()> {
        let Some(text) = &self.last_answer else {
            return Err(fail(Exit::NoInput, "there is no answer to copy"));
        };
        self.ctx.terminal.copy_to_clipboard(text);
        self.print_line("sent the last answer to the terminal's clipboard");
        Ok(())
    }

    /// Runs `/new` or `/compact`, which are messages that the turn itself handles.
    fn run_control_turn(&mut self, name: &str, rest: &str) {
        let mut options = self.options.clone();
        options.input.set_typed_message(format!("/{name} {rest}").trim());
        let was_unfinished = self.is_unfinished;
        let exit = self.run_turn(&options);
        // This is not a message, and `/retry` is about the last message.
        self.is_unfinished = was_unfinished;
        if exit == Exit::Interrupted {
            self.print_line("(interrupted)");
        }
        if name == "new" && exit == Exit::Answered {
            self.reset();
        }
    }

    /// Prints the key of this session, and the list of all.
    fn show_sessions(&self) -> Result<()> {
        let key = self.options.session.key.as_deref().unwrap_or("none");
        self.print(&format!("{key}\n"))?;
        self.print_line("the last sessions; `/session KEY` switches, `/session list` shows all:");
        self.run_program(&["session", "list", "-n", &LISTED_SESSIONS.to_string()], "")
    }

    /// Lets the user choose one of the last sessions, and switches to it.
    fn choose_session(&mut self) -> Result<()> {
        let mut sessions = session::list(&self.session_store()?)?.sessions;
        sessions.retain(|summary| is_begun_by_a_person(&summary.key));
        sessions.truncate(LISTED_SESSIONS);
        if sessions.is_empty() {
            return Err(fail(Exit::NoInput, "no session is stored"));
        }
        let current = self.options.session.key.as_deref();
        let now = self.ctx.clock.timestamp();
        let rows: Vec<(usize, &SessionSummary)> = (1..).zip(&sessions).collect();
        let columns: [Column<'_, (usize, &SessionSummary)>; 4] = [
            ("", Side::Right, &|(number, _)| format!("{number}.")),
            ("SESSION", Side::Left, &|(_, summary)| {
                let mark = if current == Some(&summary.key) { "*" } else { "" };
                format!("{}{mark}", summary.key)
            }),
            ("AGE", Side::Right, &|(_, summary)| format_age(summary.last_used, now)),
            ("", Side::Left, &|(_, summary)| {
                summary.title.as_ref().unwrap_or(&summary.first_words).clone()
            }),
        ];
        self.print(&format_table(&rows, &columns, self.ctx.terminal.stdout_width()))?;
        let keys: Vec<String> = sessions.into_iter().map(|summary| summary.key).collect();
        match self.prompter.pick("session: ", &keys) {
            Some(key) => self.switch_session(&key),
            None => {
                self.print_line("the session is unchanged");
                Ok(())
            }
        }
    }

    /// Runs a verb of `nanobot session` on this session, or switches to another one.
    fn run_session_command(&mut self, rest: &str) -> Result<()> {
        let (verb, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let argument = argument.trim();
        match verb {
            "list" | "search" => self.run_program(&["session", verb], argument),
            "title" | "export" => {
                let key = self.session_key()?;
                let file = match argument {
                    "-" => "-".to_owned(),
                    name => self.resolve_path(name).to_string_lossy().into_owned(),
                };
                let arguments: &[&str] = match (verb, argument) {
                    (_, "") => &["session", verb, "--", &key],
                    ("title", title) => &["session", "title", "--", &key, title],
                    _ => &["session", "export", "-o", &file, "--", &key],
                };
                self.program.run(self.ctx, arguments, &self.options)?;
                if verb == "title" && !argument.is_empty() {
                    self.print_line(&format!("the title is now: {argument}"));
                }
                Ok(())
            }
            _ if verb.starts_with('-') => self.run_program(&["session", "list"], rest),
            _ => self.switch_session(rest),
        }
    }

    fn switch_session(&mut self, key: &str) -> Result<()> {
        let size = match self.message_count(key)? {
            Some(count) => count_noun(count, "message"),
            None => {
                let question = format!("There is no session `{key}`. Start it? [y/N] ");
                if !self.prompter.confirm(&question) {
                    self.print_line("the session is unchanged");
                    return Ok(());
                }
                "new".to_owned()
            }
        };
        self.options.session.key = Some(key.to_owned());
        // `--new` was about the session before.
        self.options.session.new = false;
        self.reset();
        self.print_line(&format!("switched to session `{key}`: {size}"));
        self.recall_last_exchange();
        self.print_last_exchange();
        Ok(())
    }

    fn show_model(&self) -> Result<()> {
        let model = self.settings()?.models[0].model.clone();
        let model = model.unwrap_or_else(|| "the provider's default".into());
        self.print(&format!("{model}\n"))?;
        self.print_line("the provider has these; `/model NAME` switches:");
        self.run_program(&["model", "list", "--remote"], "")
    }

    fn change_model(&mut self, model: &str) -> Result<()> {
        let mut options = self.options.clone();
        options.model.name = Some(model.to_owned());
        let choice = agent_turn::select_provider(self.ctx, &options)?;
        if agent_turn::is_unlisted(self.ctx, &choice, &options) {
            let question =
                format!("`{model}` is not in the list of {}. Switch? [y/N] ", choice.provider);
            if !self.prompter.confirm(&question) {
                self.print_line("the model is unchanged");
                return Ok(());
            }
        }
        self.options = options;
        self.print_line(&format!("switched to model `{model}` of {}", choice.provider));
        if let Some(warning) = model::unknown_model_warning(&choice) {
            self.print_line(&format!("nanobot: {warning}"));
        }
        Ok(())
    }

    fn show_effort(&self) -> Result<()> {
        let effort = self.settings()?.models[0].reasoning_effort.clone();
        let effort = effort.unwrap_or_else(|| "the model's default".into());
        self.print(&format!("{effort}\n"))?;
        self.print_line(&format!("`/effort LEVEL` sets it: {}", EFFORT_LEVELS.join(", ")));
        Ok(())
    }

    fn change_effort(&mut self, level: &str) -> Result<()> {
        let mut options = self.options.clone();
        options.model.reasoning_effort = Some(level.to_owned());
        let choice = agent_turn::select_provider(self.ctx, &options)?;
        self.options = options;
        let levels = EFFORT_LEVELS.join(", ");
        let remark = if EFFORT_LEVELS.contains(&level) {
            String::new()
        } else {
            format!(", which few models take; the usual ones are {levels}")
        };
        self.print_line(&format!("switched to reasoning effort `{level}`{remark}"));
        if choice.quirks.thinking == ThinkingStyle::Unsupported {
            let model = &choice.model;
            self.print_line(&format!(
                "nanobot: {model} takes no reasoning effort, and none is sent"
            ));
        }
        Ok(())
    }

    fn list_profiles(&self) -> Result<()> {
        let current = self.profile_name();
        let profiles = all_profiles(self.ctx);
        let line = |profile: &Candidate| {
            let mark = if profile.text == current { '*' } else { ' ' };
            let head = format!("{mark} {:14} ", profile.text);
            hanging_indent(&head, &profile.description, self.ctx.terminal.stdout_width()) + "\n"
        };
        self.print(&profiles.iter().map(line).collect::<String>())
    }

    fn show_context(&self) -> Result<()> {
        let mut options = self.options.clone();
        options.recording.dry_run = Some(DryRunForm::Table);
        let context = self.interactive_context(&self.extra_input, Box::new(|| None));
        agent_turn::show_repl_request(self.ctx, &options, &context)
    }

    /// The number of messages of a session; `None` if it does not exist.
    fn message_count(&self, key: &str) -> Result<Option<usize>> {
        match session::read_entries(&self.session_store()?, key) {
            Ok(entries) => Ok(Some(
                entries
                    .filter(|entry| matches!(entry, Ok(session::SessionEntry::Message(_))))
                    .count(),
            )),
            Err(error) if exit_for(&error) == Exit::NoInput => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn print(&self, text: &str) -> Result<()> {
        self.ctx.terminal.print(text)
    }

    /// Runs a command of the program with these `arguments`, and those of `rest`, which may be quoted as in a shell.
    pub(super) fn run_program(&self, arguments: &[&str], rest: &str) -> Result<()> {
        // A backslash is one of a regular expression, and a quote that is not closed an apostrophe.
        let quoted = if rest.contains('\\') { None } else { split_arguments(rest) };
        let rest = quoted.unwrap_or_else(|| rest.split_whitespace().map(str::to_owned).collect());
        let arguments = arguments.iter().copied().chain(rest.iter().map(String::as_str));
        self.program.run(self.ctx, &arguments.collect::<Vec<_>>(), &self.options)
    }

    /// Prints the list of commands. In a window that is too low for it, the rarer ones have only their names.
    fn help(&self) -> Result<()> {
        let terminal = self.ctx.terminal;
        let width = terminal.stdout_width();
        let keys = wrap_words(KEYS_HELP, width.unwrap_or(80), 2);
        // The list leaves out commands that the text below explains.
        let is_listed = |command: &SlashCommand| !["help", "exit", "shell"].contains(&command.name);
        let mut text = command_rows(width, &is_listed);
        if format!("{text}{keys}").lines().count() >= terminal.stdout_height() {
            text = command_rows(width, &|command| is_listed(command) && !is_rare(command));
            let rare = slash_commands::in_repl().filter(|command| is_rare(command));
            let names: Vec<String> = rare.map(|command| format!("/{}", command.name)).collect();
            let more = format!("More: {} (/help NAME)", names.join(" "));
            text.push_str(&wrap_words(&more, width.unwrap_or(80), 2));
            text.push('\n');
        }
        self.print(&format!("{text}{keys}\n"))
    }

    /// Prints one command of the help, and the options of the program's command of that name.
    fn help_about(&self, name: &str) -> Result<()> {
        let name = name.trim_start_matches('/');
        let command = slash_commands::in_repl().find(|command| command.is_called(name));
        let command = command.ok_or_else(|| unknown_command(name))?;
        let head = format!("/{} {}", command.name, command.argument.placeholder());
        let width = self.ctx.terminal.stdout_width();
        let head = format!("{}  ", head.trim_end());
        self.print(&format!("{}\n", hanging_indent(&head, command.description, width)))?;
        if PROGRAM_COMMANDS.contains(&command.name) {
            self.run_program(&[command.name, "-h"], "")
        } else {
            Ok(())
        }
    }

    fn fork(&mut self, rest: &str) -> Result<()> {
        let from = self.session_key()?;
        let new = match rest {
            "" => format!("{from}-{}", random_hex(2)),
            name => name.to_owned(),
        };
        let count = session::fork(&self.session_store()?, &from, &new, None)?;
        self.print_line(&format!(
            "copied {count} messages of `{from}`; switched to session `{new}`"
        ));
        self.options.session.key = Some(new);
        // `--new` would leave out what was copied.
        self.options.session.new = false;
        self.prompter.clear_grants();
        Ok(())
    }

    /// The key of the session.
    ///
    /// # Errors
    /// Status 2 if it is not saved.
    pub(super) fn session_key(&self) -> Result<String> {
        self.options.session.key.clone().ok_or_else(|| {
            fail(Exit::Usage, "this session is not saved")
                .with_hint(format!("`/session {DEFAULT_SESSION}`"))
        })
    }

    /// Drops the state that belongs to the previous session.
    fn reset(&mut self) {
        self.last_message = None;
        self.last_answer = None;
        self.is_unfinished = false;
        if !std::mem::take(&mut self.extra_input).is_empty() {
            self.print_line(
                "the output of your commands stays with the session before, and is not sent",
            );
        }
        self.prompter.clear_grants();
    }

    fn retry(&mut self) -> Result<()> {
        // A conversation that did not start yet has no turn that could continue.
        if self.is_unfinished && !self.options.session.new {
            let mut options = self.options.clone();
            options.session.resume = true;
            if let Exit::NoInput = self.run_message_turn(&options) {
                // The turn had finished after all, or never started.
                self.is_unfinished = false;
            } else {
                return Ok(());
            }
        }
        match self.last_message.clone() {
            Some(_) if !self.is_last_message_typed => {
                let cause = "the last message has text that you did not type, such as piped text";
                Err(fail(Exit::Refused, cause)
                    .with_hint("write it again, with `@FILE` for text of others"))
            }
            Some(text) => {
                self.send_message(&text);
                Ok(())
            }
            None => Err(fail(Exit::NoInput, "there is no message to retry")),
        }
    }

    fn change_profile(&mut self, name: &str) -> Result<()> {
        let mut options = self.options.clone();
        options.grants.profile = Some(name.to_owned());
        let (_, profile) = settings_with_profile(self.ctx, &options)?;
        let is_wide = profile.is_unrestricted || profile.auto_approve;
        if is_wide && self.profile_name() != name {
            let question = format!("`{name}`: {}. Switch? [y/N] ", profile.description);
            if !self.prompter.confirm(&question) {
                self.print_line("the profile is unchanged");
                return Ok(());
            }
        }
        self.set_profile(options, &profile);
        self.print_line(&format!("switched to profile `{name}`: {}", profile.description));
        Ok(())
    }

    /// Writes the last answer to a new file. Its name may be in quotes, as the completion of a name with blanks is.
    fn save(&self, name: &str) -> Result<()> {
        let Some(text) = &self.last_answer else {
            return Err(fail(Exit::NoInput, "there is no answer to save"));
        };
        let name = name.trim_matches('"');
        if name.is_empty() {
            return Err(fail(Exit::Usage, "no file name is given").with_hint("`/save answer.md`"));
        }
        let path = std::path::absolute(self.resolve_path(name))?;
        if path.exists() {
            let cause = format!("`{}` already exists", self.ctx.paths.display(&path));
            return Err(fail(Exit::Usage, cause).with_hint("another name"));
        }
        durable_file::replace(&path, format!("{}\n", text.trim_end_matches('\n')).as_bytes())?;
        self.print_line(&format!("saved the last answer to {}", self.ctx.paths.display(&path)));
        Ok(())
    }

    /// Runs a shell command of the user, with all their rights, on their terminal. Its output goes with the next message, unless it is no
    /// text or may repeat what the user typed.
    fn shell(&mut self, command: &str) -> Result<()> {
        if command.is_empty() {
            return Err(fail(Exit::Usage, "no command is given").with_hint("`!git status`"));
        }
        let env = self.ctx.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let result = self.editor().run_on_terminal(&TerminalCommand {
            script: command,
            directory: &turn_directory(&self.options.grants),
            env: env.collect(),
            capture_bytes: OUTPUT_LIMIT_BYTES,
        })?;
        if result.leaves_line_open && !result.is_full_screen {
            self.print("\n")?;
        }
        let status = match result.status.code() {
            Some(0) => String::new(),
            Some(code) => format!("[status {code}]\n"),
            None => "[ended by a signal]\n".to_owned(),
        };
        if !status.is_empty() {
            self.print_line(status.trim_end());
        }
        let reason = if result.is_full_screen {
            Some("it used the whole screen")
        } else {
            result.was_typed_to.then_some("it was typed to")
        };
        let output = match reason {
            Some(reason) => {
                self.ctx.terminal.eprint_dim(&format!("(its output is not sent: {reason})"));
                format!("[its output is not included: {reason}]\n")
            }
            None => format_output(&result.output),
        };
        // As with a tool's result, keys in the output are redacted.
        let text = format!("$ {command}\n{output}{status}");
        self.extra_input.push_str(&secret::redact_all(&text));
        Ok(())
    }
}

fn is_rare(command: &SlashCommand) -> bool {
    RARE_COMMANDS.contains(&command.name)
}

/// The rows of the help about the commands that `is_listed` selects.
fn command_rows(width: Option<usize>, is_listed: &dyn Fn(&SlashCommand) -> bool) -> String {
    let name = |command: &SlashCommand| match command.argument {
        ArgKind::None => format!("/{}", command.name),
        argument => format!("/{} {}", command.name, argument.placeholder()),
    };
    // Long commands need not widen the column for all.
    let column = 20;
    let mut text = String::new();
    for command in slash_commands::in_repl().filter(|command| is_listed(command)) {
        let (name, description) = (name(command), command.description);
        let is_wide = width.is_some_and(|width| name.len() + 2 + description.len() > width);
        let indent = if is_wide && name.len() > column {
            text.push_str(&format!("{name}\n"));
            format!("{:column$}  ", "")
        } else {
            format!("{name:column$}  ")
        };
        text.push_str(&hanging_indent(&indent, description, width));
        text.push('\n');
    }
    text
}

/// The beginning and the end of a command's output, which ends with a newline unless there is none.
fn format_output(captured_text: &CapturedText) -> String {
    let CapturedText { head, tail, omitted_bytes, .. } = captured_text;
    let gap = match omitted_bytes {
        0 => String::new(),
        count => format!("\n… {count} bytes left out …\n"),
    };
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    let mut text = format!("{head}{gap}{tail}");
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The error for an unknown command, with what it may have meant as a hint.
fn unknown_command(name: &str) -> Error {
    if EXITS.contains(&format!("/{name}").as_str()) {
        return no_arguments_error(name);
    }
    let replacement = REPLACEMENTS.iter().find(|(command, _)| *command == name);
    let hint = match (replacement, nearest_command(name)) {
        (Some((_, replacement)), _) => (*replacement).to_owned(),
        (None, Some(nearest)) if nearest != "help" => format!("`/{nearest}`, or `/help` for all"),
        (None, _) => "`/help`".into(),
    };
    fail(Exit::Usage, format!("there is no command `/{name}`")).with_hint(hint)
}

/// The command whose name is nearly `name`.
fn nearest_command(name: &str) -> Option<&'static str> {
    let names = slash_commands::in_repl().map(|command| command.name);
    let names = names.chain(slash_commands::in_repl().flat_map(|command| command.aliases).copied());
    let names = names.chain(EXITS.iter().filter_map(|word| word.strip_prefix('/')));
    let distance = |candidate: &str| {
        if candidate.starts_with(name) { 0 } else { strsim::damerau_levenshtein(name, candidate) }
    };
    // In a short word, every letter counts.
    let limit = name.len() / 3;
    let nearest = names.map(|candidate| (distance(candidate), candidate));
    let nearest = nearest.min_by_key(|(distance, _)| *distance);
    nearest.filter(|(distance, _)| *distance <= limit).map(|(_, nearest)| nearest)
}
