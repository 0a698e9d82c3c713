//! Chat messages that are commands: rows of `ops/slash_commands.rs`. They are answered without a model, apart from those that are short
//! forms of a message.

use crate::ops::agent_turn::CHAT_LOCK_TIMEOUT;
use crate::ops::channel::persona::Persona;
use crate::ops::channel::session_copy;
use crate::ops::context::Context;
use crate::ops::conversation_cost;
use crate::ops::inbound::approval_answer;
use crate::ops::inbound::channel_run::LockedChannel;
use crate::ops::inbound::chat_model;
use crate::ops::jobs::scheduler::StoreScheduler;
use crate::ops::skills;
use crate::ops::slash_commands::{self, SlashCommand};
use crate::ops::undo::{self, UndoRequest, display_path};
use crate::ops::user_commands;
use anyhow::{Result, anyhow};
use nanobot_base::error::{Exit, exit_for, hint_for};
use nanobot_channel::InboundMessage;
use nanobot_channel::inbox::{InboundEntry, InboxRecord};
use nanobot_config::settings::Settings;
use nanobot_config::settings::keys::nearest;
use nanobot_os::symlinks::PathResolver;
use nanobot_store::session::Session;
use nanobot_tool::ToolError;
use nanobot_tool::cron::{self, JobScheduler};
use nanobot_tool::undo::journal::UndoTurn;
use nanobot_tool::undo::restore::{RestoreDirection, RestoreStep};
use std::path::Path;
use std::sync::Arc;

/// The beginning of the id under which `/undo` records which turn it undoes.
const UNDO_PREFIX: &str = "undo.";

/// A command in a chat: `/NAME`, alone or with a text after a blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChatCommand<'m> {
    /// In lower case: phones begin a word with a capital.
    name: String,
    rest: &'m str,
}

/// The effect of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommandEffect {
    /// It is answered with this text.
    Answer(String),
    /// A turn answers the message, with this text in its place if there is one.
    Turn(Option<String>),
}

impl<'m> ChatCommand<'m> {
    /// Parses a message. A path, such as `/etc/hosts`, is no command.
    pub(crate) fn parse(text: &'m str) -> Option<Self> {
        let text = text.trim().strip_prefix('/')?;
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let is_word = name.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && user_commands::is_command_name(name);
        is_word.then(|| Self { name: name.to_ascii_lowercase(), rest: rest.trim() })
    }

    /// True for `/stop`, which the intake runs at once.
    pub(crate) fn is_stop(&self) -> bool {
        self.row().is_some_and(|row| row.name == "stop")
    }

    /// True for `/show`, whose answer has a code.
    pub(crate) fn shows_code(&self) -> bool {
        self.row().is_some_and(|row| row.name == "show")
    }

    fn row(&self) -> Option<&'static SlashCommand> {
        slash_commands::in_chats().find(|row| row.is_called(&self.name))
    }

    /// Runs the command of `entry`, except for `/stop`. A command that cannot be carried out is answered with the reason.
    ///
    /// # Errors
    /// The session or a file of the program cannot be read or written.
    pub(crate) fn run(
        &self,
        channel: &LockedChannel,
        persona: &Persona,
        entry: &InboundEntry,
    ) -> Result<CommandEffect> {
        let (ctx, settings) = (&persona.ctx, &persona.settings);
        let Some(row) = self.row() else {
            return self.run_unlisted(ctx, settings);
        };
        let chat = entry.session.as_str();
        let session = persona.session_key(chat);
        let result = row.check_arguments(self.rest).and_then(|()| {
            Ok(CommandEffect::Answer(match row.name {
                "help" => help_text(),
                "start" => {
                    format!("Hello. Send me a message and I will answer.\n\n{}", help_text())
                }
                "new" => {
                    let only_unsent = false;
                    approval_answer::close_questions(channel, chat, only_unsent)?;
                    start_new_conversation(ctx, settings, session, chat)?;
                    "New session started.".to_owned()
                }
                // An old one that `channel retry` has queued again.
                "stop" => "No active task to stop.".to_owned(),
                "compact" => {
                    let message = format!("/compact {}", self.rest);
                    return Ok(CommandEffect::Turn(Some(message.trim().to_owned())));
                }
                "status" => status_text(persona, session)?,
                "id" => id_text(&entry.message),
                "model" => chat_model::run_model_command(persona, session, self.rest)?,
                "effort" => chat_model::run_effort_command(persona, session, self.rest)?,
                "cost" => conversation_cost::describe(ctx, settings, session)?,
                "jobs" => jobs_text(ctx, settings)?,
                "show" => approval_answer::show(channel, entry, self.rest)?,
                "grants" => approval_answer::grants(channel, entry, self.rest)?,
                "undo" => undo_last_turn(persona, channel, entry)?,
                "skill" if self.rest.is_empty() => skills_text(ctx, settings)?,
                "skill" => {
                    let (name, text) =
                        self.rest.split_once(char::is_whitespace).unwrap_or((self.rest, ""));
                    return match skill_message(ctx, settings, name, text.trim())? {
                        Some(message) => Ok(CommandEffect::Turn(Some(message))),
                        None => Ok(CommandEffect::Answer(format!(
                            "There is no skill `{name}`. /skill lists them."
                        ))),
                    };
                }
                name => unreachable!("`/{name}` is not a command of chats"),
            }))
        });
        result.or_else(|error| {
            let is_of_user = matches!(
                exit_for(&error),
                Exit::Usage | Exit::NoInput | Exit::Failed | Exit::Refused | Exit::Config
            );
            if is_of_user { Ok(CommandEffect::Answer(error_text(&error))) } else { Err(error) }
        })
    }

    /// Runs a command that the table does not have: one of the user, a skill, a text that begins with the name of a file, or a mistake.
    fn run_unlisted(&self, ctx: &Context, settings: &Settings) -> Result<CommandEffect> {
        let name = &self.name;
        if let Some(command) = user_commands::find(ctx, name)? {
            return Ok(CommandEffect::Turn(Some(command.message(self.rest))));
        }
        if let Some(message) = skill_message(ctx, settings, name, self.rest)? {
            return Ok(CommandEffect::Turn(Some(message)));
        }
        // `/tmp is full, what can I do?`
        if Path::new("/").join(name).exists() {
            return Ok(CommandEffect::Turn(None));
        }
        let names = slash_commands::in_chats().map(|row| row.name);
        let similar = nearest(name, names).map(|similar| format!(" Did you mean /{similar}?"));
        let similar = similar.unwrap_or_default();
        Ok(CommandEffect::Answer(format!(
            "There is no command /{name}.{similar} /help lists the commands. No model was asked."
        )))
    }
}

/// The answer to `/help`.
fn help_text() -> String {
    let line = |row: &SlashCommand| {
        let usage = format!("/{} {}", row.name, row.argument.placeholder());
        format!("{} – {}", usage.trim_end(), row.description)
    };
    slash_commands::in_chats().map(line).collect::<Vec<_>>().join("\n")
}

/// The reason why a command was not carried out, for the sender of it.
fn error_text(error: &anyhow::Error) -> String {
    let hint = hint_for(error).map(|hint| format!("\nTry: {hint}"));
    format!("Not done: {error:#}{}", hint.unwrap_or_default())
}

/// The ids of a message's sender and chat.
pub(crate) fn id_text(message: &InboundMessage) -> String {
    format!("Your id: {}\nThis chat: {}", message.from.id, message.chat.id)
}

fn start_new_conversation(ctx: &Context, settings: &Settings, key: &str, chat: &str) -> Result<()> {
    let store = ctx.session_store(settings)?;
    let mut session = Session::open(&store, key, CHAT_LOCK_TIMEOUT, &mut |_| {})?;
    session_copy::add_sent_messages(ctx, &mut session, chat)?;
    session.start_new_conversation()
}

fn status_text(persona: &Persona, key: &str) -> Result<String> {
    let store = persona.ctx.session_store(&persona.settings)?;
    let session = Session::read(&store, key, &mut |_| {})?;
    Ok(format!(
        "nanobot {}\nModel: {}\nMessages in this conversation: {}",
        env!("CARGO_PKG_VERSION"),
        chat_model::current_model(persona, key)?,
        session.messages().len()
    ))
}

fn jobs_text(ctx: &Context, settings: &Settings) -> Result<String> {
    let scheduler = StoreScheduler::new(ctx, &Arc::new(settings.clone()), None);
    match scheduler.list() {
        Ok(jobs) => Ok(cron::list_text(&jobs)),
        Err(ToolError::Failed(cause)) => Err(anyhow!(cause)),
        Err(_) => Err(anyhow!("the jobs cannot be read")),
    }
}

fn skills_text(ctx: &Context, settings: &Settings) -> Result<String> {
    let found_skills = skills::find(ctx, settings, &settings.workspace)?;
    let offered =
        found_skills.skills.iter().filter(|skill| skill.is_offered && skill.is_available());
    let lines: Vec<String> =
        offered.map(|skill| format!("{} – {}", skill.name, skill.description)).collect();
    Ok(if lines.is_empty() { "There are no skills.".to_owned() } else { lines.join("\n") })
}

/// The message that requests the use of a skill; `None` if there is no such skill.
fn skill_message(
    ctx: &Context,
    settings: &Settings,
    name: &str,
    text: &str,
) -> Result<Option<String>> {
    let found_skills = skills::find(ctx, settings, &settings.workspace)?;
    let skill = found_skills.by_name(name);
    Ok(skill.map(|skill| skills::use_message(&skill.name, text)))
}

/// Undoes the last turn of the session in this workspace that has changed files. The turn is recorded first, so that after a kill no other one is undone.
fn undo_last_turn(
    persona: &Persona,
    channel: &LockedChannel,
    entry: &InboundEntry,
) -> Result<String> {
    let ctx = Context { quiet: true, ..persona.ctx.clone() };
    let workspace = PathResolver::default().resolve(&persona.settings.workspace);
    let turns = undo::list_turns(&ctx)?;
    let mut records = entry.turns.iter();
    let recorded_id = records.find_map(|turn| turn.turn.strip_prefix(UNDO_PREFIX));
    let is_own = |turn: &&UndoTurn| {
        turn.info.session == persona.session_key(&entry.session)
            && PathResolver::default().resolve(&turn.info.directory) == workspace
    };
    let mut own_turns = turns.iter().filter(is_own);
    let turn = match recorded_id {
        Some(id) => own_turns.find(|turn| turn.info.turn == id),
        None => own_turns.find(|turn| turn.undone_at.is_none()),
    };
    let Some(turn) = turn else {
        return Ok("No turn of this chat has changed a file that can be restored.".to_owned());
    };
    if recorded_id.is_some() && turn.undone_at.is_some() {
        return Ok("The file changes of the last turn are undone.".to_owned());
    }
    let record = InboxRecord::Turn {
        ids: vec![entry.message.id.clone()],
        turn: format!("{UNDO_PREFIX}{}", turn.info.turn),
        at: channel.open.files.now(),
        ended: false,
    };
    channel.inbox.lock().append(record)?;
    let request = UndoRequest {
        turn: Some(&turn.info.turn),
        direction: RestoreDirection::Undo,
        is_dry_run: false,
        force: false,
        session: None,
        report: &|_| Ok(()),
    };
    let steps = undo::undo(&ctx, &request)?;
    let line = |step: &RestoreStep| {
        let verb = match step {
            RestoreStep::Restore(_) => "restored",
            RestoreStep::Remove(_) => "removed",
        };
        let path = step.path().strip_prefix(&workspace).unwrap_or(step.path());
        format!("{verb} {}", display_path(path))
    };
    let mut lines: Vec<String> = steps.iter().map(line).collect();
    lines.extend(turn.gaps.iter().map(|gap| format!("not taken back: {gap}")));
    Ok(if lines.is_empty() { "There was nothing to change.".to_owned() } else { lines.join("\n") })
}

#[cfg(test)]
mod tests {
    use super::{ChatCommand, help_text};

    #[test]
    fn a_word_after_a_slash_is_a_command() {
        let check = |text: &str, expect: &str| {
            let command = ChatCommand::parse(text);
            let actual = command.map(|command| format!("{} {}", command.name, command.rest));
            assert_eq!(actual.unwrap_or_default(), expect, "{text}");
        };
        check("/new", "new ");
        check(" /Stop\n", "stop ");
        check("/skill weather  in Rome", "skill weather  in Rome");
        check("/new\none", "new one");
        for text in
            ["", "/", "/ new", "new", "say /help", "//new", "/etc/passwd is what?", "/n.", "/1"]
        {
            check(text, "");
        }
        assert!(ChatCommand::parse("/stop it").unwrap().is_stop());
        assert!(!ChatCommand::parse("/stopped").unwrap().is_stop());
    }

    #[test]
    fn the_help_has_the_commands_of_chats() {
        let help = help_text();
        for line in ["/help – list the commands\n", "/model [NAME] – ", "/skill [NAME TEXT] – "]
        {
            assert!(help.contains(line), "{help}");
        }
        assert!(!help.contains("clipboard"), "{help}");
    }
}
