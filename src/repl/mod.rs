//! `nanobot repl`: a conversation at a terminal, line by line. Each line is a turn as `nanobot agent` runs it, under the lock
//! of its session and to its end, so that other runs may use the session in between; what lives longer is the editor, and
//! the person, who can be asked here and nowhere else.

use crate::error::{Exit, exit_of, fail_hint};
use crate::ops::agent_turn::{self, origin::ReplContext};
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use crate::report::columns::behind;
use crate::session;
use crate::sys::editor::{Editor, Line};
use crate::sys::secret::random_hex;
use crate::sys::signal;
use crate::sys::sync::IgnorePoison;
use anyhow::{Context as _, Result};
use approval::TerminalPrompter;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

mod approval;
pub mod commands;
mod form;
pub(crate) mod hints;
mod mention;
mod rule;
mod slash;

/// Two Ctrl-C within this time mean the conversation, and no line of it.
const QUICK: Duration = Duration::from_millis(1500);
/// What stands before each line.
const PROMPT: &str = "> ";
/// The words that end it, as in the Python program.
const EXITS: &[&str] = &["exit", "quit", "/exit", "/quit", ":q"];
/// The conversation that none is named for.
const SESSION: &str = "cli:direct";

/// The editor, which the loop reads lines with, and the person's answers are read with in between.
type Shared = Arc<Mutex<Editor>>;

/// Commands of the program that slash commands stand for. The REPL knows none of them.
pub(crate) trait ProgramCommands {
    /// Runs the command line `nanobot WORDS…` within this conversation.
    fn run(&self, ctx: &Context, words: &[&str], options: &TurnOptions) -> Result<()>;
    /// Lists the tools of a turn with these options.
    fn list_tools(&self, ctx: &Context, options: &TurnOptions) -> Result<()>;
    /// Prints all skills of a turn with these options, or the one called `name`.
    fn show_skills(&self, ctx: &Context, name: &str, options: &TurnOptions) -> Result<()>;
}

/// Runs until the person ends it. Each turn is run with `options`.
pub(crate) fn run(
    ctx: &Context,
    options: TurnOptions,
    program: &dyn ProgramCommands,
) -> Result<Exit> {
    if !ctx.terminal.converses() {
        return Err(fail_hint(
            Exit::Usage,
            "a conversation needs a terminal, and here is none",
            "`nanobot agent -m \"…\"`, or pipe some text into `nanobot agent`",
        ));
    }
    signal::arm(None).context("wait for signals")?;
    Repl::begin(ctx, options, program)?.go_on()
}

/// A conversation.
struct Repl<'w> {
    ctx: &'w Context,
    program: &'w dyn ProgramCommands,
    /// The flags of the turns to come.
    arguments: TurnOptions,
    editor: Shared,
    person: Arc<TerminalPrompter>,
    /// What goes along with the next message: the output of the person's own commands.
    along: String,
    /// What was asked last.
    asked: Option<String>,
    /// What was answered last.
    answered: Option<String>,
    /// The last turn did not come to its end.
    is_cut: bool,
}

/// What a line is to be.
enum Said {
    Nothing,
    Exit,
    /// A command for the shell.
    Shell(String),
    /// One of our commands, and what follows it.
    Command(String, String),
    Message(String),
}

impl<'w> Repl<'w> {
    fn begin(
        ctx: &'w Context,
        mut arguments: TurnOptions,
        program: &'w dyn ProgramCommands,
    ) -> Result<Self> {
        let source = arguments.fork.take();
        // A rehearsal keeps nothing, unless it is told where.
        if arguments.session.is_none() && (arguments.replay.is_none() || source.is_some()) {
            arguments.session = Some(match source {
                Some(_) => format!("fork:{}", random_hex(4)),
                None => SESSION.into(),
            });
        }
        // The first line typed is kept too, and by then the keys are known. A config that cannot be used is told by a turn.
        drop(slash::settings(ctx, &arguments));
        let editor = Arc::new(Mutex::new(slash::editor(ctx, &arguments)?));
        let repl = Self {
            ctx,
            program,
            person: Arc::new(TerminalPrompter::new(ctx, &arguments, &editor)),
            editor,
            arguments,
            along: String::new(),
            asked: None,
            answered: None,
            is_cut: false,
        };
        if let (Some(source), Some(new)) = (source, &repl.arguments.session) {
            session::fork(&repl.place()?, &source, new, None)?;
        }
        repl.greet()?;
        Ok(repl)
    }

    fn go_on(mut self) -> Result<Exit> {
        let mut interrupted: Option<Instant> = None;
        loop {
            let line = self.editor().read(PROMPT, "")?;
            let text = match line {
                Line::Text(text) => text,
                Line::End => return Ok(Exit::Answered),
                Line::Interrupted if interrupted.is_some_and(|when| when.elapsed() < QUICK) => {
                    return Ok(Exit::Interrupted);
                }
                Line::Interrupted => {
                    interrupted = Some(Instant::now());
                    self.tell("(Ctrl-C once more, Ctrl-D or /exit ends)");
                    continue;
                }
            };
            interrupted = None;
            let said = read(&text);
            if !matches!(said, Said::Nothing | Said::Exit) {
                let kept = self.editor().remember(&text);
                if let Err(error) = kept {
                    self.tell(&format!(
                        "nanobot: the line is not kept in the history: {error:#}"
                    ));
                }
            }
            match said {
                Said::Nothing => {}
                Said::Exit => return Ok(Exit::Answered),
                Said::Shell(command) => self.attempt("shell", &command),
                Said::Command(name, rest) => {
                    // Both may run the person's own editor.
                    if matches!(name.as_str(), "edit" | "memory") {
                        self.editor().hand_over()?;
                    }
                    self.attempt(&name, &rest);
                }
                Said::Message(text) => self.ask(&text),
            }
            // What ended a turn does not end what follows; a hang-up does.
            signal::forgive()?;
        }
    }

    /// Do what the command `name` says; where that fails, say why, and go on.
    fn attempt(&mut self, name: &str, rest: &str) {
        let done = self.obey(name, rest);
        if let Err(error) = done {
            signal::last_words();
            hints::report(&error, self.ctx.terminal);
            if name == "shell" && exit_of(&error) == Exit::Interrupted {
                self.tell("[ended by a signal]");
            }
        }
    }

    /// Run a turn with `text`.
    fn ask(&mut self, text: &str) {
        let mut arguments = self.arguments.clone();
        let directory = slash::directory(&arguments);
        let at = |path: &str| directory.join(self.ctx.paths.expand(path));
        let files = mention::files(text, &at);
        for path in &files {
            let name = path.strip_prefix(&directory).unwrap_or(path);
            self.tell(&mention::told(path, name));
        }
        arguments.message = Some(text.to_owned());
        arguments.attach.extend(files.into_iter().map(Into::into));
        self.asked = Some(text.to_owned());
        self.turn(&arguments);
    }

    /// Run a turn.
    fn turn(&mut self, arguments: &TurnOptions) -> Exit {
        let along = std::mem::take(&mut self.along);
        let talk = ReplContext {
            person: Arc::clone(&self.person) as _,
            answers: Arc::clone(&self.person) as _,
            print_error: hints::report,
            extra_input: RefCell::new((!along.is_empty()).then(|| along.into_bytes())),
        };
        let gone = {
            let _quiet = self.editor().quiet();
            agent_turn::run_repl_turn(self.ctx, arguments, &talk)
        };
        // What was not sent goes along with what is.
        self.along = talk
            .extra_input
            .into_inner()
            .map_or_else(String::new, |bytes| {
                String::from_utf8_lossy(&bytes).into_owned()
            });
        self.arguments.new = false;
        self.is_cut = gone.exit != Exit::Answered;
        if self.is_cut {
            // They were typed for what did not come.
            self.editor().hold_back();
        }
        if gone.exit == Exit::Interrupted {
            self.tell("(interrupted; /retry goes on with it)");
        }
        if !gone.text.is_empty() {
            self.answered = Some(gone.text);
        }
        gone.exit
    }

    fn editor(&self) -> MutexGuard<'_, Editor> {
        self.editor.lock().ignore_poison()
    }

    /// A word of ours.
    fn tell(&self, line: &str) {
        self.ctx.terminal.complain(line);
    }

    fn greet(&self) -> Result<()> {
        let key = self
            .arguments
            .session
            .as_deref()
            .unwrap_or("of its own, kept nowhere");
        let line = format!(
            "nanobot {}, conversation {key}; /help tells the commands, Ctrl-D ends\n",
            env!("CARGO_PKG_VERSION")
        );
        let line = behind("", &line, self.ctx.terminal.width());
        self.ctx.terminal.print(&line)?;
        let notice = self.editor().notice();
        notice
            .iter()
            .for_each(|text| self.tell(&format!("nanobot: {text}")));
        // Better now than after the first message.
        if self.arguments.replay.is_none()
            && let Err(error) = agent_turn::provider_name(self.ctx, &self.arguments)
        {
            hints::report(&error, self.ctx.terminal);
        }
        Ok(())
    }
}

/// What `line` is to be.
fn read(line: &str) -> Said {
    let text = line.trim();
    if text.is_empty() {
        return Said::Nothing;
    }
    if EXITS.contains(&text.to_lowercase().as_str()) {
        return Said::Exit;
    }
    if let Some(command) = text.strip_prefix('!') {
        return Said::Shell(command.trim().to_owned());
    }
    let Some(rest) = text.strip_prefix('/') else {
        return Said::Message(text.to_owned());
    };
    let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path is no command.
    let is_name = |letter: char| letter.is_ascii_alphabetic() || letter == '-';
    match !name.is_empty() && name.chars().all(is_name) {
        true => Said::Command(name.to_owned(), rest.trim().to_owned()),
        false => Said::Message(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Said, read};

    #[test]
    fn a_line_is_a_message_a_command_or_the_end() {
        let check = |line: &str, expect: &str| {
            let said = match read(line) {
                Said::Nothing => String::new(),
                Said::Exit => "exit".into(),
                Said::Shell(command) => format!("! {command}"),
                Said::Command(name, rest) => format!("/ {name} {rest}"),
                Said::Message(text) => format!("say {text}"),
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
