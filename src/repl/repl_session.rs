//! The state of a conversation at the terminal, and its turns.

use super::approval::{SharedEditor, TerminalPrompter};
use super::bell::Bell;
use super::program_commands::ProgramCommands;
use super::{completion, hints, mention};
use crate::ops::agent_turn::{self, source::InteractiveContext};
use crate::ops::context::Context;
use crate::ops::default_session::{default_session_key, last_session_key};
use crate::ops::permissions;
use crate::ops::server_content::ServerResource;
use crate::options::turn::TurnOptions;
use crate::repl::editor::Editor;
use anyhow::Result;
use nanobot_agent::report::short_text::truncate_line;
use nanobot_base::error::Exit;
use nanobot_base::message::before_blocks;
use nanobot_config::policy::profile::{DEFAULT_NAME, Profile};
use nanobot_config::settings::Settings;
use nanobot_os::secret::random_hex;
use nanobot_store::session::{self, Session};
use parking_lot::{Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// The session of a REPL if the config cannot be read.
pub(super) const DEFAULT_SESSION: &str = "cli:direct";

/// Maximum numbers of characters of the last message and its answer that are shown when a session is continued.
const MAX_MESSAGE_CHARS: usize = 150;
const MAX_ANSWER_CHARS: usize = 300;

/// The profiles that Shift-Tab switches through.
const CYCLED_PROFILES: [&str; 3] = [DEFAULT_NAME, "plan", "accept-edits"];

/// A conversation: its session, the flags of its turns, and the last exchange, which the user may repeat or save.
pub(super) struct ReplSession<'w> {
    pub(super) ctx: &'w Context,
    pub(super) program: &'w dyn ProgramCommands,
    /// The flags of later turns.
    pub(super) options: TurnOptions,
    editor: SharedEditor,
    pub(super) prompter: Arc<TerminalPrompter>,
    bell: Arc<Bell>,
    /// The initial text of the next input.
    pub(super) draft: String,
    /// Output of the user's shell commands, sent with the next message.
    pub(super) extra_input: String,
    /// The last message.
    pub(super) last_message: Option<String>,
    /// The output of the user's shell commands that was sent with it.
    pub(super) last_extra_input: String,
    /// True if the user typed all of it. Otherwise it is shown, but not sent again as words of the user.
    pub(super) is_last_message_typed: bool,
    /// The last answer.
    pub(super) last_answer: Option<String>,
    /// True if the last turn did not finish.
    pub(super) is_unfinished: bool,
    /// True under a profile without any limits.
    pub(super) is_unrestricted: bool,
    /// The notice about instruction files that the conversation has shown last.
    pub(super) reported_notice: Rc<RefCell<Option<String>>>,
    /// The paths of `--write`, which a profile that only reads sets aside.
    write_flags: Vec<PathBuf>,
}

impl<'w> ReplSession<'w> {
    /// Opens the editor, forks the session if requested, and greets the user.
    pub(super) fn open(
        ctx: &'w Context,
        mut options: TurnOptions,
        program: &'w dyn ProgramCommands,
    ) -> Result<Self> {
        // Load the settings now: the first line typed goes into the history, and by then the keys to redact must be
        // known. A turn reports the error of an invalid config.
        let (settings, profile) = settings_with_profile(ctx, &options).ok().unzip();
        let fork_source = options.session.fork.take();
        // A replay stores nothing unless a session is named.
        if options.session.key.is_none()
            && (options.recording.replay.is_none() || fork_source.is_some())
        {
            options.session.key = Some(if fork_source.is_some() {
                format!("fork:{}", random_hex(4))
            } else if let Some(settings) = &settings {
                if options.session.last {
                    last_session_key(ctx, settings)?
                } else {
                    default_session_key(ctx, settings, options.grants.directory.as_deref())
                }
            } else {
                DEFAULT_SESSION.into()
            });
        }
        let terminal_settings = ctx.terminal_settings().ok();
        let uses_vi_keys = terminal_settings.is_some_and(|settings| settings.uses_vi_keys);
        let editor = completion::editor(ctx, &options, uses_vi_keys)?;
        let editor = Arc::new(Mutex::new(editor));
        let bell = terminal_settings.and_then(|settings| settings.bell);
        let bell = Arc::new(Bell::new(ctx.terminal, bell));
        let mut repl = Self {
            ctx,
            program,
            prompter: Arc::new(TerminalPrompter::new(ctx, &options, &editor, &bell)),
            bell,
            editor,
            write_flags: options.grants.write.clone(),
            options,
            draft: String::new(),
            extra_input: String::new(),
            reported_notice: Rc::default(),
            last_message: None,
            last_extra_input: String::new(),
            is_last_message_typed: false,
            last_answer: None,
            is_unfinished: false,
            is_unrestricted: profile.is_some_and(|profile| profile.is_unrestricted),
        };
        if let Some(fork_source) = fork_source
            && let Some(fork_key) = &repl.options.session.key
        {
            session::fork(&repl.session_store()?, &fork_source, fork_key, None)?;
        }
        repl.recall_last_exchange();
        repl.greet();
        Ok(repl)
    }

    /// Reads the last exchange of the session, so that it can be repeated, copied and saved. A session that cannot be read
    /// is reported by the next turn.
    pub(super) fn recall_last_exchange(&mut self) {
        self.last_extra_input.clear();
        if self.options.session.new {
            return;
        }
        let key = self.options.session.key.as_deref();
        let Some(Ok(session)) = key.map(|key| self.read_session(key)) else {
            return;
        };
        self.last_message = session.last_user_text();
        self.is_last_message_typed = session.is_last_user_text_typed();
        self.last_answer = session.last_answer().map(str::to_owned);
        self.is_unfinished = session.is_interrupted() && !self.is_in_use();
    }

    /// True if another process runs a turn of the session.
    fn is_in_use(&self) -> bool {
        let key = self.options.session.key.as_deref();
        let holder = |key| session::lock_holder(&self.session_store()?, key);
        // A lock that cannot be read is reported by the next turn.
        key.is_some_and(|key| holder(key).is_ok_and(|holder| holder.is_some()))
    }

    /// Reads the messages of a stored session that its next turn would send.
    pub(super) fn read_session(&self, key: &str) -> Result<Session> {
        Session::read(&self.session_store()?, key, &mut |_| {})
    }

    /// Prints the last message of the session and its answer, shortened, which show where the conversation stopped.
    pub(super) fn print_last_exchange(&self) {
        let Some(text) = &self.last_message else {
            return;
        };
        let is_in_use = self.is_in_use();
        let label = if self.is_unfinished {
            "unfinished (/retry continues it)"
        } else if is_in_use {
            "in progress in another run"
        } else {
            "last message"
        };
        let text = truncate_line(before_blocks(text), MAX_MESSAGE_CHARS);
        self.ctx.terminal.eprint_dim(&format!("{label}: {text}"));
        if let (Some(answer), false) = (&self.last_answer, self.is_unfinished || is_in_use) {
            let text = answer.split_whitespace().collect::<Vec<_>>().join(" ");
            let text = truncate_line(&text, MAX_ANSWER_CHARS);
            self.ctx.terminal.eprint_dim(&format!("last answer: {text}"));
        }
    }

    /// Runs a turn with the message `text` and the files that it mentions.
    pub(super) fn send_message(&mut self, text: &str) {
        let mut options = self.options.clone();
        let directory = completion::turn_directory(&options.grants);
        // Settings that cannot be read are reported by the turn.
        let settings = self.settings().ok();
        let resource = |name: &str| ServerResource::attachment(settings.as_ref()?, name);
        let mentions = mention::find(text, &|path| self.resolve_path(path), &resource);
        for path in &mentions.files {
            let name = path.strip_prefix(&directory).unwrap_or(path);
            self.print_line(&mention::describe(path, name));
        }
        for resource in &mentions.resources {
            self.print_line(&format!("attached: {resource}"));
        }
        for name in &mentions.missing {
            self.print_line(&format!("not attached: {name} does not exist"));
        }
        let has_mentions = !mentions.files.is_empty() || !mentions.resources.is_empty();
        if !has_mentions && self.is_stored_unanswered(text) {
            self.ctx.terminal.eprint_dim("the session has this message; its turn continues");
            options.session.resume = true;
            self.run_message_turn(&options);
            return;
        }
        options.input.set_typed_message(text);
        options.input.attach.extend(mentions.files.into_iter().map(Into::into));
        options.input.attach.extend(mentions.resources.into_iter().map(Into::into));
        self.last_message = Some(text.to_owned());
        self.last_extra_input.clone_from(&self.extra_input);
        self.is_last_message_typed = true;
        self.run_message_turn(&options);
    }

    /// True if `text` is the message of the last turn, which did not finish, so that sending it would send it twice.
    fn is_stored_unanswered(&self, text: &str) -> bool {
        self.is_unfinished
            && self.last_message.as_deref() == Some(text)
            && self.extra_input.is_empty()
            && !self.options.session.new
            && self.options.session.key.as_deref().is_some_and(|key| {
                self.read_session(key).is_ok_and(|session| session.is_interrupted())
            })
    }

    /// Runs a turn that `/retry` can repeat or continue, and names that command if the turn fails. Returns the exit status
    /// of the turn.
    pub(super) fn run_message_turn(&mut self, options: &TurnOptions) -> Exit {
        let exit = self.run_turn(options);
        match exit {
            Exit::Interrupted => self.print_line("(interrupted; /retry continues the turn)"),
            // The errors with these statuses have hints about other things.
            Exit::Refused | Exit::Failed | Exit::Config => self.print_line("(/retry asks again)"),
            _ => {}
        }
        exit
    }

    /// Runs a turn with these options. Returns its exit status.
    pub(super) fn run_turn(&mut self, options: &TurnOptions) -> Exit {
        let extra_input = std::mem::take(&mut self.extra_input);
        let typing = self.editor().guard_typing();
        self.bell.begin_turn();
        let interactive = self.interactive_context(&extra_input, Box::new(typing.steering()));
        let outcome =
            agent_turn::run_repl_turn(self.ctx, options, &interactive, hints::report_error);
        drop(typing);
        self.bell.ring_if_long();
        // Output that was not sent with the failed turn is sent with the next message.
        self.extra_input = interactive
            .extra_input
            .into_inner()
            .map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned());
        // After a turn that failed earlier, the next one starts the conversation.
        if interactive.has_new_conversation.get() {
            self.options.session.new = false;
        }
        self.is_unfinished = outcome.exit != Exit::Answered;
        if self.is_unfinished {
            // Lines typed ahead were meant for the turn that failed.
            self.editor().hold_type_ahead();
        }
        if !outcome.text.is_empty() {
            self.last_answer = Some(outcome.text);
        }
        outcome.exit
    }

    /// The user as a turn reaches them, with input that is sent with the message.
    pub(super) fn interactive_context(
        &self,
        extra_input: &str,
        next_steering_message: Box<dyn Fn() -> Option<String>>,
    ) -> InteractiveContext {
        let extra_input = (!extra_input.is_empty()).then(|| extra_input.as_bytes().to_vec());
        InteractiveContext {
            resume_command: Some("/retry"),
            next_steering_message,
            user_prompt: Arc::clone(&self.prompter) as _,
            elicitation: Arc::clone(&self.prompter) as _,
            reported_notice: Rc::clone(&self.reported_notice),
            attached: Vec::new(),
            extra_input: RefCell::new(extra_input),
            has_new_conversation: Cell::new(false),
        }
    }

    /// The name of the profile in force.
    pub(super) fn profile_name(&self) -> String {
        if let Some(profile) = &self.options.grants.profile {
            return profile.clone();
        }
        match self.settings() {
            Ok(settings) => settings.profile,
            Err(_) => DEFAULT_NAME.to_owned(),
        }
    }

    /// Switches to the next profile. The user need not confirm any of those that Shift-Tab reaches.
    pub(super) fn cycle_profile(&mut self) {
        let current = self.profile_name();
        let index = CYCLED_PROFILES.iter().position(|name| *name == current);
        let next = CYCLED_PROFILES[index.map_or(0, |index| (index + 1) % CYCLED_PROFILES.len())];
        let mut options = self.options.clone();
        options.grants.profile = Some(next.to_owned());
        match settings_with_profile(self.ctx, &options) {
            Ok((_, profile)) => self.set_profile(options, &profile),
            Err(error) => hints::report_error(&error, self.ctx.terminal),
        }
    }

    /// Continues with `options`, which name this `profile`. While a profile that only reads is in force, `--write` is set
    /// aside.
    pub(super) fn set_profile(&mut self, mut options: TurnOptions, profile: &Profile) {
        options.grants.write =
            if profile.reads_only { Vec::new() } else { self.write_flags.clone() };
        self.is_unrestricted = profile.is_unrestricted;
        self.prompter.change_profile(options.grants.profile.as_deref());
        self.options = options;
    }

    /// The text before a line of input: the profile, unless it is the default one.
    pub(super) fn prompt(&self) -> String {
        match self.profile_name().as_str() {
            DEFAULT_NAME => "> ".into(),
            profile => format!("{profile}> "),
        }
    }

    /// The path that the user means by `text`, relative to the directory of the turns.
    pub(super) fn resolve_path(&self, text: &str) -> PathBuf {
        completion::turn_directory(&self.options.grants).join(self.ctx.paths.expand(text))
    }

    /// Locks the line editor.
    pub(super) fn editor(&self) -> MutexGuard<'_, Editor> {
        self.editor.lock()
    }

    /// Prints a line on standard error.
    pub(super) fn print_line(&self, line: &str) {
        self.ctx.terminal.eprint(line);
    }

    /// The settings of the next turn.
    pub(super) fn settings(&self) -> Result<Settings> {
        Ok(settings_with_profile(self.ctx, &self.options)?.0)
    }

    /// The location of the stored sessions.
    pub(super) fn session_store(&self) -> Result<session::SessionStore> {
        self.ctx.session_store(&self.settings()?)
    }
}

/// The settings of a turn with these options, and its profile.
pub(super) fn settings_with_profile(
    ctx: &Context,
    options: &TurnOptions,
) -> Result<(Settings, Profile)> {
    permissions::settings_with_profile(ctx, &options.grants, options.model.overrides())
}
