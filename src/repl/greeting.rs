//! The first lines of a conversation: the model, the directory and the permissions there, and the session.

use super::hints;
use super::repl_session::ReplSession;
use crate::ops::agent_turn::{self, prepare::ignored_notice};
use crate::ops::doctor::overview::RunScope;
use crate::ops::model;
use crate::ops::slash_commands;
use crate::ops::turn_setup::toolset::can_write;
use crate::ops::user_commands::{self, UserCommand};
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_agent::report::short_text::{count_noun, format_age};
use nanobot_config::policy::profile::DEFAULT_NAME;
use nanobot_store::session;
use nanobot_store::trust::DirectoryInstructions;

impl ReplSession<'_> {
    /// Prints dim lines about the model, the directory and the conversation, and about problems with them.
    pub(super) fn greet(&self) {
        let provider = agent_turn::select_provider(self.ctx, &self.options);
        let model = match (&provider, &self.options.recording.replay) {
            (_, Some(recording)) => format!("replay of {} · ", recording.display()),
            (Ok(choice), None) => format!("{} of {} · ", choice.model, choice.provider),
            (Err(_), None) => String::new(),
        };
        let version = env!("CARGO_PKG_VERSION");
        let terminal = self.ctx.terminal;
        terminal.eprint_dim(&format!("nanobot {version} · {model}/help lists the commands"));
        // A turn reports these errors, with their hints.
        if let Ok(line) = self.describe_scope() {
            terminal.eprint_dim(&line);
        }
        if let Ok(line) = self.describe_conversation() {
            terminal.eprint_dim(&line);
        }
        self.print_last_exchange();
        self.report_hidden_commands();
        let notice = self.editor().take_notice();
        if let Some(notice) = notice {
            self.print_line(&format!("nanobot: {notice}"));
        }
        if let (Ok(choice), None) = (&provider, &self.options.recording.replay)
            && let Some(warning) = model::unknown_model_warning(choice)
        {
            self.print_line(&format!("nanobot: {warning}"));
        }
        // Report a provider that cannot be used now, not after the first message.
        if let (Err(error), None) = (&provider, &self.options.recording.replay) {
            hints::report_error(error, terminal);
        }
    }

    /// Prints a notice for each command file that a built-in command hides.
    fn report_hidden_commands(&self) {
        let is_built_in =
            |name: &str| slash_commands::in_repl().any(|command| command.is_called(name));
        let files = user_commands::list(self.ctx).into_iter();
        for UserCommand { name, .. } in files.filter(|command| is_built_in(&command.name)) {
            let path = self.ctx.paths.commands().join(format!("{name}.md"));
            self.print_line(&format!(
                "nanobot: `{}` is not used, since `/{name}` is built in",
                self.ctx.paths.display(&path)
            ));
        }
    }

    /// The directory, and the permissions of a turn there.
    fn describe_scope(&self) -> Result<String> {
        let settings = self.settings()?;
        let scope = RunScope::new(self.ctx, &self.options.grants, &settings)?;
        let trust = match scope.read_instructions(self.ctx)? {
            Some(instructions) => self.describe_trust(&scope, &instructions),
            None => String::new(),
        };
        let RunScope { profile, policy } = scope;
        let grants = &self.options.grants;
        let flags = describe_grants(grants, settings.tools.allow.len());
        // The flags change what the default profile describes.
        let description = if profile.name == DEFAULT_NAME && can_write(&policy) {
            "may change the working directory"
        } else if profile.name == DEFAULT_NAME && !grants.write.is_empty() {
            "reads the working directory"
        } else {
            &profile.description
        };
        Ok(format!(
            "{}{trust} · {}{flags}: {description}",
            self.ctx.paths.display(&policy.file_scope.directory),
            profile.name,
        ))
    }

    /// Says whether the instructions of the directory are read. Turns do not repeat what it says about those that are not.
    fn describe_trust(&self, scope: &RunScope, instructions: &DirectoryInstructions) -> String {
        let text = match instructions.stale.first() {
            Some(path) => {
                let name = path.strip_prefix(&scope.policy.file_scope.directory).unwrap_or(path);
                let more = if instructions.stale.len() > 1 { " and others" } else { "" };
                format!(" ({}{more} changed and not read; /trust)", name.display())
            }
            None if !instructions.trusted.is_empty() => " (trusted)".into(),
            None if scope.has_instructions() => " (its instructions are not read; /trust)".into(),
            None => String::new(),
        };
        if !instructions.is_list_damaged() {
            self.reported_notice.replace(ignored_notice(instructions, true, "/trust"));
        }
        text
    }

    /// The session, and the length of its conversation.
    fn describe_conversation(&self) -> Result<String> {
        let Some(key) = self.options.session.key.as_deref() else {
            return Ok("a new conversation, which is not saved".into());
        };
        let session = self.read_session(key)?;
        if session.messages().is_empty() || self.options.session.new {
            return Ok(format!("{key} · a new conversation"));
        }
        let count = count_noun(session.history_window().count, "message");
        let last_used = session::summarize(&self.session_store()?, key)?.last_used;
        let age = match format_age(last_used, self.ctx.clock.now().timestamp()).as_str() {
            "now" => "just now".to_owned(),
            age => format!("{age} ago"),
        };
        Ok(format!("{key} · {count}, last used {age}"))
    }
}

/// Describes the grants of flags and of allow rules in the config, which come on top of the profile.
fn describe_grants(grants: &Grants, rule_count: usize) -> String {
    let mut flags = Vec::new();
    for (flag, paths) in [("--write", &grants.write), ("--read", &grants.read)] {
        flags.extend(paths.iter().map(|path| {
            if path.as_os_str() == "." {
                flag.to_owned()
            } else {
                format!("{flag}={}", path.display())
            }
        }));
    }
    if grants.net.is_some() {
        flags.push("--net".to_owned());
    }
    if !grants.allow.is_empty() {
        flags.push("--allow".to_owned());
    }
    if rule_count > 0 {
        flags.push(format!("{} of tools.allow", count_noun(rule_count, "rule")));
    }
    if flags.is_empty() { String::new() } else { format!(" with {}", flags.join(", ")) }
}
