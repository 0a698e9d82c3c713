//! The person at the terminal: answers the model's questions, and decides about calls that go beyond what it may do.

use super::{Shared, rule};
use crate::World;
use crate::cli::Agent;
use crate::diff::Diff;
use crate::report::cut;
use crate::sys::editor::Line;
use crate::sys::signal;
use crate::sys::store;
use crate::sys::terminal::Row;
use crate::tool::ask_user::Person;
use crate::tool::{Case, Failure};
use console::Style;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines of a change, and of anything else that is long, that a question shows.
const LINES: usize = 24;
/// The largest file whose change is shown, in bytes.
const LARGEST: u64 = 1 << 20;

/// Asks at the terminal.
pub(super) struct Console {
    world: World,
    editor: Shared,
    known: Mutex<Known>,
}

/// What the person said for longer than one call.
struct Known {
    /// Calls of this tool, refused for want of this, may be made until the conversation ends.
    granted: BTreeSet<(String, String)>,
    /// The flags of the turns, for the profile that a rule is written to.
    profile: Option<String>,
    directory: Option<PathBuf>,
}

/// What a person says to a question of ours.
enum Word {
    Yes,
    Session,
    Always,
    No(Option<String>),
}

impl Console {
    pub(super) fn new(world: &World, arguments: &Agent, editor: &Shared) -> Self {
        Self {
            world: world.clone(),
            editor: Shared::clone(editor),
            known: Mutex::new(Known {
                granted: BTreeSet::new(),
                profile: arguments.grants.profile.clone(),
                directory: arguments.grants.directory.clone(),
            }),
        }
    }

    /// From now on another profile holds, and nothing that was said under the one before.
    pub(super) fn follows(&self, profile: Option<&str>) {
        let mut known = self.known();
        known.profile = profile.map(str::to_owned);
        known.granted.clear();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Read an answer to `prompt`.
    fn read(&self, prompt: &str) -> Result<String, Failure> {
        let line = self
            .editor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ask(prompt);
        match line {
            Ok(Line::Text(text)) => Ok(text.trim().to_owned()),
            Ok(Line::End) => Err(Failure::Declined(
                "refused: the user did not answer. Go on without it.".into(),
            )),
            Ok(Line::Interrupted) => {
                signal::interrupt();
                Err("the user interrupted".into())
            }
            Err(error) => Err(format!("nobody can be asked: {error:#}").into()),
        }
    }

    fn show(&self, text: &str, style: &Style) {
        self.world
            .terminal
            .complain_whole(&Row::default().styled(text, style.clone()));
    }

    /// Put the question about `case`, until there is an answer to it.
    fn ask(&self, case: &Case<'_>, rule: Option<&rule::Rule>) -> Result<Word, Failure> {
        let call = crate::report::hint(case.tool, case.arguments);
        self.show(&format!("? {call}"), &Style::new().yellow().bold());
        let why = cut(&case.refusal.words, 300);
        self.show(&format!("  {why}"), &Style::new().dim());
        self.detail(case);
        let always = rule.map_or_else(String::new, |rule| format!(" · a(lways: {})", rule.words));
        let choices = format!("  y(es) · s(ession){always} · n(o), or say why not");
        self.show(&choices, &Style::new().dim());
        loop {
            let text = self.read("  allow? ")?;
            let lower = text.to_lowercase();
            return Ok(match lower.as_str() {
                "" => continue,
                "y" | "yes" => Word::Yes,
                "s" | "session" => Word::Session,
                "a" | "always" if rule.is_some() => Word::Always,
                "a" | "always" => Word::Session,
                "n" | "no" => Word::No(None),
                _ => {
                    let why = ["no because", "no, because", "no:", "no,", "n,", "n:"];
                    let why = why.iter().find(|begin| lower.starts_with(**begin));
                    let text = why.map_or(text.as_str(), |begin| text[begin.len()..].trim());
                    Word::No((!text.is_empty()).then(|| text.to_owned()))
                }
            });
        }
    }

    /// What is asked about, as it is: the command, the change, or the arguments.
    fn detail(&self, case: &Case<'_>) {
        let Case {
            tool, arguments, ..
        } = case;
        let text = |key: &str| arguments[key].as_str();
        match (*tool, text("command"), text("path")) {
            ("exec", Some(command), _) => {
                for line in folded(command) {
                    self.show(&format!("  $ {line}"), &Style::new());
                }
            }
            ("write_file", _, Some(path)) => {
                let old = self.content(path).unwrap_or_default();
                self.change(&old, text("content").unwrap_or_default());
            }
            ("edit_file", ..) => self.change(
                text("old_text").unwrap_or_default(),
                text("new_text").unwrap_or_default(),
            ),
            _ => {
                let all = serde_json::to_string_pretty(arguments).unwrap_or_default();
                let short = arguments.as_object().is_some_and(|map| map.len() <= 1);
                for line in folded(&all).into_iter().filter(|_| !short) {
                    self.show(&format!("  {line}"), &Style::new().dim());
                }
            }
        }
    }

    /// What is in the file, where it is text and not long.
    fn content(&self, path: &str) -> Option<String> {
        let path = self.world.paths.expand(path);
        let path = match &self.known().directory {
            Some(directory) => directory.join(path),
            None => path,
        };
        let bytes = store::read_at_most(Path::new(&path), LARGEST).ok()??;
        String::from_utf8(bytes).ok()
    }

    fn change(&self, old: &str, new: &str) {
        let diff = Diff::between(old, new).unified(2);
        for line in folded(&diff) {
            let style = match line.chars().next() {
                Some('+') => Style::new().green(),
                Some('-') => Style::new().red(),
                Some('@') => Style::new().cyan(),
                _ => Style::new(),
            };
            self.show(&format!("  {line}"), &style);
        }
    }
}

impl Person for Console {
    fn answer(&self, question: &str, options: &[String]) -> Result<String, Failure> {
        self.world.terminal.alone(|| {
            self.show(&format!("? {question}"), &Style::new().yellow().bold());
            for (number, option) in options.iter().enumerate() {
                self.show(&format!("  {}. {option}", number + 1), &Style::new());
            }
            let text = self.read("  answer: ")?;
            if text.is_empty() {
                return Err(Failure::Declined(
                    "the user gave no answer; settle it yourself".into(),
                ));
            }
            let number = text
                .parse()
                .ok()
                .and_then(|number: usize| number.checked_sub(1));
            Ok(number
                .and_then(|number| options.get(number))
                .cloned()
                .unwrap_or(text))
        })
    }

    fn judge(&self, case: &Case<'_>) -> Result<(), Failure> {
        let grant = case.refusal.grant.clone().unwrap_or_default();
        let key = (case.tool.to_owned(), grant);
        // Two that ask at once: the second may have its answer by then.
        self.world.terminal.alone(|| {
            if self.known().granted.contains(&key) {
                return Ok(());
            }
            let profile = self.known().profile.clone();
            let rule = rule::of(&self.world, profile.as_deref(), case);
            match self.ask(case, rule.as_ref())? {
                Word::Yes => {}
                Word::Session => {
                    self.known().granted.insert(key.clone());
                }
                Word::Always => {
                    self.known().granted.insert(key.clone());
                    let told = match rule.as_ref().map(|rule| rule.write(&self.world)) {
                        Some(Err(error)) => format!("nanobot: no rule was written: {error:#}"),
                        Some(Ok(place)) => format!("  (written to {place})"),
                        None => String::new(),
                    };
                    self.show(&told, &Style::new().dim());
                }
                Word::No(None) => {
                    return Err(Failure::Declined(
                        "refused: the user said no. Go on without it.".into(),
                    ));
                }
                Word::No(Some(why)) => {
                    return Err(Failure::Declined(format!(
                        "refused: the user said no: {why}"
                    )));
                }
            }
            Ok(())
        })
    }
}

/// The first lines of `text`, and how many there are besides.
fn folded(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown: Vec<String> = lines
        .iter()
        .take(LINES)
        .map(|line| (*line).to_owned())
        .collect();
    if lines.len() > LINES {
        shown.push(format!("… and {} lines more", lines.len() - LINES));
    }
    shown
}
