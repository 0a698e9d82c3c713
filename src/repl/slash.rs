//! The commands of a conversation. Most are commands of the program, run for this conversation.

use super::commands::{COMMANDS, Live, Takes};
use super::{EXITS, Repl, SESSION};
use crate::error::{Exit, exit_of, fail, fail_hint};
use crate::ops::agent_turn;
use crate::ops::context::Context;
use crate::ops::permissions;
use crate::ops::skills;
use crate::ops::turn_options::DryRunForm;
use crate::ops::turn_options::TurnOptions;
use crate::policy::profile;
use crate::provider::registry::facts::MODELS;
use crate::report::Form;
use crate::report::columns::behind;
use crate::session;
use crate::settings::{Config, Overrides, Settings};
use crate::skill;
use crate::sys::editor::{Candidate, Editor, compose};
use crate::sys::letters::Letters;
use crate::sys::process;
use crate::sys::secret::{self, random_hex};
use crate::sys::store;
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a command's output that go along with the next message, of its beginning and of its end each.
const KEPT: usize = 8 << 10;
/// How long a person's own command may take: as long as they like.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The editor of a conversation, which knows what there is.
pub(crate) fn editor(ctx: &Context, arguments: &TurnOptions) -> Result<Editor> {
    let directory = directory(arguments);
    let (sessions, models, profiles, skills) = (ctx.clone(), ctx.clone(), ctx.clone(), ctx.clone());
    let flags = arguments.clone();
    let live = Live {
        sessions: Box::new(move || all_sessions(&sessions).unwrap_or_default()),
        models: Box::new(move || all_models(&models)),
        profiles: Box::new(move || all_profiles(&profiles)),
        skills: Box::new(move || {
            let found = all_skills(&skills, &flags).unwrap_or_default();
            let found = found.skills.into_iter();
            found
                .map(|skill| Candidate {
                    text: skill.name,
                    about: skill.description,
                })
                .collect()
        }),
        directory,
        home: ctx.paths.home.clone(),
    };
    Editor::new(&ctx.env, ctx.terminal, ctx.paths.history(), Box::new(live))
}

pub(crate) fn directory(arguments: &TurnOptions) -> PathBuf {
    let here = || std::env::current_dir().unwrap_or_default();
    arguments.grants.directory.clone().unwrap_or_else(here)
}

pub(crate) fn settings(ctx: &Context, arguments: &TurnOptions) -> Result<Settings> {
    ctx.settings_with(Overrides {
        model: arguments.model.clone(),
        ..Overrides::default()
    })
}

fn all_sessions(ctx: &Context) -> Result<Vec<Candidate>> {
    let settings = settings(ctx, &TurnOptions::default())?;
    let place = ctx.session_place(&settings)?;
    let found = session::list(&place)?.sessions;
    let candidate = |summary: session::Summary| Candidate {
        text: summary.key,
        about: summary.first_words,
    };
    Ok(found.into_iter().map(candidate).collect())
}

fn all_models(ctx: &Context) -> Vec<Candidate> {
    let config = Config::load(&ctx.paths.config).ok();
    let presets = config
        .as_ref()
        .and_then(|config| config.get_path("modelPresets")?.as_object());
    let names = presets
        .into_iter()
        .flat_map(|presets| presets.keys().cloned());
    let presets = names.map(|name| Candidate {
        text: name,
        about: "a preset of the config".into(),
    });
    let known = MODELS.iter().map(|facts| Candidate {
        text: facts.name.to_owned(),
        about: facts.vendor.to_owned(),
    });
    presets.chain(known).collect()
}

fn all_profiles(ctx: &Context) -> Vec<Candidate> {
    let built_in = profile::BUILT_IN
        .iter()
        .filter(|(name, _)| *name != "explore");
    let mut all: Vec<Candidate> = built_in
        .map(|(name, about)| Candidate {
            text: (*name).to_owned(),
            about: (*about).to_owned(),
        })
        .collect();
    for name in permissions::own(ctx) {
        if let Ok(Some(profile)) = permissions::find(ctx, &name)
            && profile.kind == profile::Kind::Agent
        {
            all.push(Candidate {
                text: name,
                about: profile.about,
            });
        }
    }
    all
}

fn all_skills(ctx: &Context, arguments: &TurnOptions) -> Result<skill::Found> {
    let settings = settings(ctx, arguments)?;
    skills::find(ctx, &settings, &directory(arguments))
}

impl Repl<'_> {
    /// Do what the command `name` says.
    pub(crate) fn obey(&mut self, name: &str, rest: &str) -> Result<()> {
        let key = self.arguments.session.clone();
        let key = key.as_deref();
        let words = |words: &[&'static str]| -> Vec<&str> {
            let words = words.iter().copied();
            words.chain(rest.split_whitespace()).collect()
        };
        match name {
            "help" => self.help(),
            // They are turns of no request, or of one.
            "new" | "compact" => {
                let mut arguments = self.arguments.clone();
                arguments.message = Some(format!("/{name} {rest}").trim().to_owned());
                if name == "new" {
                    self.person.forget();
                }
                self.turn(&arguments);
                Ok(())
            }
            "stop" => {
                self.tell("nothing is going on; Ctrl-C stops a turn");
                Ok(())
            }
            "session" if rest.is_empty() => self.say(&format!("{}\n", key.unwrap_or("none"))),
            "session" => {
                let said = match self.count(rest)? {
                    None => "a new one".to_owned(),
                    Some(1) => "1 message".to_owned(),
                    Some(count) => format!("{count} messages"),
                };
                self.arguments.session = Some(rest.to_owned());
                self.forget();
                self.tell(&format!("the conversation is `{rest}` now: {said}"));
                Ok(())
            }
            "sessions" => self.run(&words(&["session", "list"])),
            "fork" => self.fork(rest),
            "undo" => self.run(&words(&["undo"])),
            "retry" => self.retry(),
            "model" if rest.is_empty() => {
                let model = settings(self.ctx, &self.arguments)?.asked[0].model.clone();
                let model = model.unwrap_or_else(|| "the provider's own default".into());
                self.say(&format!("{model}\n"))
            }
            "model" => {
                let mut arguments = self.arguments.clone();
                arguments.model = Some(rest.to_owned());
                let provider = agent_turn::provider_name(self.ctx, &arguments)?;
                self.arguments = arguments;
                self.tell(&format!("`{rest}` is asked now, of {provider}"));
                Ok(())
            }
            "profile" if rest.is_empty() => {
                let held = self.arguments.grants.profile.clone();
                let held = match held {
                    Some(name) => name,
                    None => settings(self.ctx, &self.arguments)?.profile,
                };
                let all = all_profiles(self.ctx);
                let line = |it: &Candidate| {
                    let mark = if it.text == held { '*' } else { ' ' };
                    let head = format!("{mark} {:14} ", it.text);
                    behind(&head, &it.about, self.ctx.terminal.width()) + "\n"
                };
                self.say(&all.iter().map(line).collect::<String>())
            }
            "profile" => self.change_profile(rest),
            // With the flags as they are, and not as words that say them.
            "tools" => self.program.list_tools(self.ctx, &self.arguments),
            "skills" => self.program.show_skills(self.ctx, rest, &self.arguments),
            "mcp" if rest.is_empty() => self.run(&words(&["mcp", "list"])),
            "mcp" => self.run(&words(&["mcp", "show", "--"])),
            "memory" if rest.is_empty() => self.run(&words(&["memory", "show"])),
            "memory" => self.run(&words(&["memory"])),
            "usage" => self.run(&words(&["usage"])),
            "context" => {
                let arguments = TurnOptions {
                    dry_run: Some(DryRunForm::Table),
                    no_stdin: true,
                    ..self.arguments.clone()
                };
                agent_turn::run(self.ctx, &arguments, Form::Text);
                Ok(())
            }
            "save" => self.save(rest),
            "edit" => {
                let text = compose(&self.ctx.env, rest)?;
                match text {
                    Some(text) => self.ask(&text),
                    None => self.tell("nothing was written, and nothing is sent"),
                }
                Ok(())
            }
            "shell" => self.shell(rest),
            _ => {
                let names = COMMANDS.iter().map(|command| command.name);
                let names = names.chain(EXITS.iter().filter_map(|word| word.strip_prefix('/')));
                let near = names
                    .map(|known| (strsim::damerau_levenshtein(name, known), known))
                    .min()
                    .filter(|(distance, _)| *distance <= 2);
                let hint = match near {
                    Some((_, near)) => format!("`/{near}`, or `/help` for all"),
                    None => "`/help`".into(),
                };
                Err(fail_hint(
                    Exit::Usage,
                    format!("there is no command `/{name}`"),
                    hint,
                ))
            }
        }
    }

    /// Where conversations are kept.
    pub(crate) fn place(&self) -> Result<session::Place> {
        let settings = settings(self.ctx, &self.arguments)?;
        self.ctx.session_place(&settings)
    }

    /// The messages of a conversation, where there is one.
    fn count(&self, key: &str) -> Result<Option<usize>> {
        match session::entries(&self.place()?, key) {
            Ok(entries) => Ok(Some(
                entries
                    .filter(|entry| matches!(entry, Ok(session::Entry::Message(_))))
                    .count(),
            )),
            Err(error) if exit_of(&error) == Exit::NoInput => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn say(&self, text: &str) -> Result<()> {
        self.ctx.terminal.print(text)
    }

    /// Runs a command of the program.
    fn run(&self, words: &[&str]) -> Result<()> {
        self.program.run(self.ctx, words, &self.arguments)
    }

    fn help(&self) -> Result<()> {
        let name = |command: &super::commands::Command| match command.takes {
            Takes::Nothing => format!("/{}", command.name),
            takes => format!("/{} {}", command.name, takes.words()),
        };
        // The longest ones need not set the width for all.
        let width = 20;
        // A window of 24 rows has all of it: two stand below in words, or are on the screen already.
        let lines = COMMANDS
            .iter()
            .filter(|it| !["help", "exit"].contains(&it.name))
            .map(|it| format!("{:width$}  {}\n", name(it), it.about));
        let text: String = lines.collect();
        self.say(&format!(
            "{text}\n!CMD runs CMD with /bin/sh; what it prints goes with your next message.\n@FILE attaches FILE. \
             Alt-Enter, or a `\\` at the end, goes on in a new line.\nCtrl-R searches what you typed; Ctrl-C stops a turn; \
             Ctrl-D, or /exit, ends.\n"
        ))
    }

    fn fork(&mut self, rest: &str) -> Result<()> {
        let from = self.kept(self.arguments.session.as_deref())?;
        let new = match rest {
            "" => format!("{from}-{}", random_hex(2)),
            name => name.to_owned(),
        };
        let count = session::fork(&self.place()?, &from, &new, None)?;
        self.tell(&format!(
            "`{new}` has the {count} messages of `{from}`, and is the conversation now"
        ));
        self.arguments.session = Some(new);
        self.person.forget();
        Ok(())
    }

    /// The conversation's key, where it is kept.
    fn kept(&self, key: Option<&str>) -> Result<String> {
        key.map(str::to_owned).ok_or_else(|| {
            fail_hint(
                Exit::Usage,
                "this conversation is not kept",
                format!("`/session {SESSION}`"),
            )
        })
    }

    /// What was asked and answered is another conversation's now.
    fn forget(&mut self) {
        (self.asked, self.answered, self.is_cut) = (None, None, false);
        self.person.forget();
    }

    fn retry(&mut self) -> Result<()> {
        if self.is_cut {
            let arguments = TurnOptions {
                resume: true,
                ..self.arguments.clone()
            };
            if let Exit::NoInput = self.turn(&arguments) {
                // The turn had an end after all, or never began.
                self.is_cut = false;
            } else {
                return Ok(());
            }
        }
        match self.asked.clone() {
            Some(text) => {
                self.ask(&text);
                Ok(())
            }
            None => Err(fail(Exit::NoInput, "nothing was asked yet")),
        }
    }

    fn change_profile(&mut self, name: &str) -> Result<()> {
        let mut arguments = self.arguments.clone();
        arguments.grants.profile = Some(name.to_owned());
        let settings = settings(self.ctx, &arguments)?;
        let profile = permissions::profile(self.ctx, &arguments.grants, &settings)?;
        self.person.follows(Some(name));
        self.arguments = arguments;
        self.tell(&format!("the profile is `{name}` now: {}", profile.about));
        Ok(())
    }

    /// Write the last answer to a file.
    fn save(&self, name: &str) -> Result<()> {
        let Some(text) = &self.answered else {
            return Err(fail(Exit::NoInput, "nothing was answered yet"));
        };
        if name.is_empty() {
            return Err(fail_hint(
                Exit::Usage,
                "no file is named",
                "`/save answer.md`",
            ));
        }
        let path = std::path::absolute(self.ctx.paths.expand(name))?;
        if path.exists() {
            let cause = format!("`{}` is there already", self.ctx.paths.display(&path));
            return Err(fail_hint(Exit::Usage, cause, "another name"));
        }
        store::replace(
            &path,
            format!("{}\n", text.trim_end_matches('\n')).as_bytes(),
        )?;
        self.tell(&format!(
            "the last answer is in {}",
            self.ctx.paths.display(&path)
        ));
        Ok(())
    }

    /// Run a command of the person's own, with all their rights.
    pub(crate) fn shell(&mut self, command: &str) -> Result<()> {
        if command.is_empty() {
            return Err(fail_hint(
                Exit::Usage,
                "no command is given",
                "`!git status`",
            ));
        }
        let spec = process::Spec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), command.to_owned()],
            directory: directory(&self.arguments),
            env: self
                .ctx
                .env
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            timeout: PATIENCE,
            keep: KEPT,
            fence: None,
            input: None,
        };
        let terminal = self.ctx.terminal;
        let (mut letters, mut stream) = (Letters::default(), secret::Stream::masking());
        let mut told = Ok(());
        let finished = process::run(&spec, &mut |bytes| {
            let text = stream.pass(&letters.pass(bytes));
            if told.is_ok() && !text.is_empty() {
                told = terminal.print(&text);
            }
        });
        let rest = stream.pass(&letters.rest()) + &stream.rest();
        let finished = finished.context("run the command")?;
        told?;
        self.say(&rest)?;
        let (head, tail) = (
            String::from_utf8_lossy(&finished.head).into_owned(),
            String::from_utf8_lossy(&finished.tail),
        );
        let left_out = match finished.left_out {
            0 => String::new(),
            count => format!("\n… {count} bytes left out …\n"),
        };
        let output = format!("{head}{left_out}{tail}");
        if !output.is_empty() && !output.ends_with('\n') {
            self.say("\n")?;
        }
        let status = match finished.status.and_then(|status| status.code()) {
            Some(0) => String::new(),
            Some(code) => format!("[status {code}]\n"),
            None => "[ended by a signal]\n".to_owned(),
        };
        if !status.is_empty() {
            self.tell(status.trim_end());
        }
        let end = if output.is_empty() || output.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        // As a tool's result: what it prints may hold anybody's key.
        let along = format!("$ {command}\n{output}{end}{status}");
        self.along.push_str(&secret::hide(&along));
        Ok(())
    }
}
