//! What the model can do: the trait, and the box of tools of a run.
//!
//! A tool is built with what it needs (places, limits, deadline), so there is no context bag. A failing tool is news
//! for the model, not an error of ours. Adding one is a file and a line in the list that a command builds.

use crate::diff::Diff;
use crate::event::{Event, Outcome};
use crate::message::ToolSpec;
use crate::message::{Message, Part, ToolCall, ToolResult};
use crate::policy::reach::Reach;
use crate::policy::seen::{Heeded, Seen};
use crate::policy::{Decision, Policy, Refusal};
use crate::sys::secret::{self, hide};
use crate::sys::sync::IgnorePoison;
use crate::sys::{defect, leash};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

pub mod arguments;
pub mod ask_user;
pub mod cron;
pub mod delete_file;
pub mod edit_file;
pub mod exec;
pub mod fence;
pub mod files;
pub mod function_tool;
pub mod glob;
pub mod grep;
pub mod list_dir;
pub mod mcp;
pub mod read_file;
pub mod spawn;
pub mod todo;
mod walk;
pub mod web;
pub mod web_fetch;
pub mod web_search;
pub mod write_file;

/// What a refusal ends with, so that the model does not look for another way.
const FINAL: &str = "This is policy and final; go on without it.";

/// Something a model can call.
pub trait Tool: Send + Sync {
    /// Name, one sentence, schema of the arguments.
    fn spec(&self) -> &ToolSpec;

    /// Whether running it with these arguments, as the model gave them, can change anything.
    fn effect(&self, arguments: &Value) -> Effect;

    /// Run it. `arguments` is an object already cast to and checked against the schema; `say` takes what the tool
    /// has to show meanwhile. The error is text for the model and says what to do next.
    fn run(&self, arguments: &Value, say: &mut dyn FnMut(&str)) -> Result<Output, Failure>;

    /// The arguments as the tool takes them, out of what a model sent.
    ///
    /// # Errors
    /// In words for the model: what is wrong with them.
    fn reading(&self, arguments: &Value) -> Result<Value, String> {
        arguments::cast_and_check(&self.spec().parameters, arguments)
    }

    /// What can be said against a call without making it, as far as the policy does not know it already.
    fn foresee(&self, _arguments: &Value) -> Result<(), Failure> {
        Ok(())
    }

    /// As [`Self::run`], for a tool whose work outlasts the call: `call` is the id under which it speaks afterwards.
    fn run_as(
        &self,
        _call: &str,
        arguments: &Value,
        say: &mut dyn FnMut(&str),
    ) -> Result<Output, Failure> {
        self.run(arguments, say)
    }
}

/// Why a tool did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not be done; in words for the model.
    Failed(String),
    /// It was not allowed.
    Denied(Refusal),
    /// A person was asked and said no; in words for the model.
    Declined(String),
}

impl Failure {
    /// What the model is told.
    pub fn words(&self) -> &str {
        match self {
            Self::Failed(words) | Self::Declined(words) => words,
            Self::Denied(refusal) => &refusal.words,
        }
    }
}

impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self::Failed(words)
    }
}

impl From<&str> for Failure {
    fn from(words: &str) -> Self {
        Self::Failed(words.to_owned())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Denied(refusal)
    }
}

/// Neighbouring calls that only read run side by side; a writing one runs alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Reads,
    Writes,
}

/// What a tool gives back.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub parts: Vec<Part>,
    /// What was run has failed, and the parts say how. To the model that is a result like any other; who calls by hand
    /// sees it in the status.
    pub unsuccessful: bool,
    /// What may have been the reason, where it was a right that a person can grant.
    pub lacking: Option<Refusal>,
    /// What became of a file, as a unified diff: for those who watch, and not for the model.
    pub changes: Option<String>,
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self {
            parts: vec![Part::Text(text)],
            unsuccessful: false,
            lacking: None,
            changes: None,
        }
    }
}

/// Who is asked about calls that the policy does not let through by itself: where nobody sits there, there is none.
pub trait Appeals: Send + Sync {
    /// Whether the call may be made, for which somebody is to be asked.
    ///
    /// # Errors
    /// No.
    fn consents(&self, case: &Case<'_>) -> Result<(), Failure>;

    /// The tools to make the call with, once somebody grants what it was refused for.
    ///
    /// # Errors
    /// No.
    fn widened(&self, case: &Case<'_>) -> Result<Toolbox, Failure>;
}

/// A call, and what stands against it.
pub struct Case<'a> {
    pub tool: &'a str,
    pub arguments: &'a Value,
    pub refusal: &'a Refusal,
    /// It was made, and failed for want of this: it would be made once more.
    pub again: bool,
    /// Where the call is made.
    pub reach: &'a Reach,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Done {
    pub result: ToolResult,
    pub outcome: Outcome,
    /// With [`Outcome::Denied`].
    pub refusal: Option<Refusal>,
    pub duration: Duration,
    /// As [`Output::unsuccessful`].
    pub unsuccessful: bool,
    /// As [`Output::changes`].
    pub changes: Option<String>,
}

impl Done {
    /// What a watcher hears of it.
    pub fn event(&self) -> Event<'_> {
        let denied = self.refusal.as_ref();
        Event::ToolResult {
            denied: denied.map(|no| (no.words.as_str(), no.grant.as_deref())),
            result: &self.result,
            outcome: self.outcome,
            unsuccessful: self.unsuccessful,
            changes: self.changes.as_deref(),
            duration: self.duration,
        }
    }
}

/// The tools of a run, in the order in which the model sees them.
pub struct Toolbox {
    tools: Vec<Box<dyn Tool>>,
    specs: Vec<ToolSpec>,
    parallel: usize,
    policy: Arc<Policy>,
    seen: Option<(Arc<Seen>, Mutex<Heeded>)>,
    appeals: Option<Arc<dyn Appeals>>,
}

impl Toolbox {
    /// At most `parallel` tools run at a time; what they may do, `policy` says.
    pub fn new(tools: Vec<Box<dyn Tool>>, parallel: usize, policy: Arc<Policy>) -> Self {
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Self {
            tools,
            specs,
            parallel: parallel.max(1),
            policy,
            seen: None,
            appeals: None,
        }
    }

    /// With somebody who can be asked.
    pub fn asking(self, appeals: Option<Arc<dyn Appeals>>) -> Self {
        Self { appeals, ..self }
    }

    /// With a memory of what the conversation holds, which some of the tools go by.
    pub fn seeing(self, seen: Arc<Seen>) -> Self {
        let seen = Some((seen, Mutex::default()));
        Self { seen, ..self }
    }

    /// Take in what is new in the conversation, before a batch of it runs.
    pub fn heed(&self, messages: &[Message]) {
        if let Some((seen, heeded)) = &self.seen {
            let mut heeded = heeded.lock().ignore_poison();
            seen.heed_all(&mut heeded, messages);
        }
    }

    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// The names of all.
    pub fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| spec.name.as_str()).collect()
    }

    pub fn find(&self, name: &str) -> Option<&dyn Tool> {
        self.tools
            .iter()
            .find(|tool| tool.spec().name == name)
            .map(AsRef::as_ref)
    }

    /// `calls` in the groups that run one after another: neighbouring readers together, a writer alone.
    pub fn batches<'c>(&self, calls: &'c [ToolCall]) -> impl Iterator<Item = &'c [ToolCall]> {
        let reads = |call: &ToolCall| {
            self.find(&call.name)
                .is_none_or(|tool| tool.effect(&call.arguments) == Effect::Reads)
        };
        calls
            .chunk_by(move |one, next| reads(one) && reads(next))
            .flat_map(|group| group.chunks(self.parallel))
    }

    /// Run the calls of a batch side by side; the results come in call order. `cut` says that the output limit ended
    /// the reply, which explains arguments that are no JSON. `say` is called on this thread; when it fails, the
    /// running tools are waited for and its error is returned beside their results.
    pub fn run(
        &self,
        batch: &[ToolCall],
        cut: bool,
        say: &mut dyn FnMut(&ToolCall, &str) -> anyhow::Result<()>,
    ) -> (Vec<Done>, anyhow::Result<()>) {
        if let [call] = batch {
            let mut told = Ok(());
            let done = self.run_one(call, cut, &mut |text| {
                if told.is_ok() {
                    told = say(call, text);
                }
            });
            return (vec![done], told);
        }
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel::<(usize, String)>();
            let running: Vec<_> = batch
                .iter()
                .enumerate()
                .map(|(number, call)| {
                    let send = send.clone();
                    // The receiver outlives the threads, so that sending cannot fail.
                    let mut say = move |text: &str| drop(send.send((number, text.to_owned())));
                    let leash = leash::held();
                    scope.spawn(move || leash::under(leash, || self.run_one(call, cut, &mut say)))
                })
                .collect();
            drop(send);
            let mut told = Ok(());
            for (number, text) in &receive {
                told = told.and_then(|()| say(&batch[number], &text));
            }
            let done = running
                .into_iter()
                .map(|thread| thread.join().expect("a panic in a tool is caught in it"));
            (done.collect(), told)
        })
    }

    fn run_one(&self, call: &ToolCall, cut: bool, say: &mut dyn FnMut(&str)) -> Done {
        let started = Instant::now();
        let mut refused = None;
        let mut unsuccessful = false;
        let mut changes = None;
        // No key leaves by way of a tool, wherever it found it.
        let mut stream = secret::Stream::hiding();
        let mut pass = |text: &str| {
            if !text.is_empty() {
                say(text);
            }
        };
        let hiding = &mut |text: &str| pass(&stream.pass(text));
        let (outcome, parts) = match self.prepare(call, cut) {
            Err(words) => (Outcome::Skipped, vec![Part::Text(words)]),
            Ok((tool, arguments)) => {
                let run = || self.make(call, tool, &arguments, hiding);
                match defect::caught(run) {
                    Ok(Ok(output)) => {
                        unsuccessful = output.unsuccessful;
                        changes = output.changes.map(|diff| hide(&diff).into_owned());
                        (Outcome::Ok, output.parts)
                    }
                    Ok(Err(Failure::Failed(words))) => (Outcome::Failed, vec![Part::Text(words)]),
                    Ok(Err(Failure::Denied(refusal))) => {
                        let told = refusal.for_model(&call.name);
                        let told = format!("refused: {}. {FINAL}", hide(&told));
                        let words = hide(&refusal.words).into_owned();
                        refused = Some(Refusal { words, ..refusal });
                        (Outcome::Denied, vec![Part::Text(told)])
                    }
                    // Whoever said no need not be told of it.
                    Ok(Err(Failure::Declined(words))) => (Outcome::Denied, vec![Part::Text(words)]),
                    Err(_) => (
                        Outcome::Failed,
                        vec![Part::Text(format!(
                            "`{}` broke down; try another way",
                            call.name
                        ))],
                    ),
                }
            }
        };
        pass(&stream.rest());
        let failed = outcome != Outcome::Ok;
        let time = started.elapsed().as_millis();
        log::info!(target: "tool", "`{}` ended after {time} ms: {outcome:?}", call.name);
        let result = ToolResult {
            call: call.id.clone(),
            name: call.name.clone(),
            parts: without_keys(parts),
            failed,
        };
        Done {
            result,
            outcome,
            refusal: refused,
            duration: started.elapsed(),
            unsuccessful,
            changes,
        }
    }

    /// Make the call, as far as the policy lets it be made; beyond that as far as somebody who is asked does.
    fn make(
        &self,
        call: &ToolCall,
        tool: &dyn Tool,
        arguments: &Value,
        say: &mut dyn FnMut(&str),
    ) -> Result<Output, Failure> {
        let case = Case {
            tool: &call.name,
            arguments,
            refusal: &Refusal::of(""),
            again: false,
            reach: &self.policy.reach,
        };
        match (self.policy.decide(&call.name, arguments), &self.appeals) {
            (Decision::Allow(why), _) => {
                log::info!(target: "policy", "`{}` is allowed: {why}", call.name);
            }
            (Decision::Ask(refusal), Some(appeals)) => {
                appeals.consents(&Case {
                    refusal: &refusal,
                    ..case
                })?;
            }
            // Where nobody is asked, what would have to be is refused.
            (Decision::Ask(refusal) | Decision::Deny(refusal), _) => {
                log::info!(target: "policy", "`{}` is refused: {}", call.name, refusal.words);
                return Err(refusal.into());
            }
        }
        let done = tool.run_as(&call.id, arguments, say);
        let Some(appeals) = &self.appeals else {
            return done;
        };
        match &done {
            Err(Failure::Denied(refusal)) if refusal.grant.is_some() => {
                let wider = appeals.widened(&Case { refusal, ..case })?;
                wider.again(call, arguments, say)
            }
            Ok(Output {
                lacking: Some(refusal),
                unsuccessful: true,
                ..
            }) => match appeals.widened(&Case {
                refusal,
                again: true,
                ..case
            }) {
                Ok(wider) => wider.again(call, arguments, say),
                // It was made, and that is what came of it.
                Err(_) => done,
            },
            _ => done,
        }
    }

    /// Make a call, which other tools were refused, with those of this box.
    fn again(
        &self,
        call: &ToolCall,
        arguments: &Value,
        say: &mut dyn FnMut(&str),
    ) -> Result<Output, Failure> {
        match self.find(&call.name) {
            Some(tool) => tool.run_as(&call.id, arguments, say),
            None => Err(format!("`{}` is not to be had any more", call.name).into()),
        }
    }

    /// The tool that `call` names and its arguments, cast and checked; or what to tell the model.
    fn prepare(&self, call: &ToolCall, cut: bool) -> Result<(&dyn Tool, Value), String> {
        let Some(tool) = self.find(&call.name) else {
            let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            return Err(match names.is_empty() {
                true => format!(
                    "there is no tool `{}`; this run has no tools, so answer without",
                    call.name
                ),
                false => format!(
                    "there is no tool `{}`; the tools are: {}",
                    call.name,
                    names.join(", ")
                ),
            });
        };
        if cut && !call.arguments.is_object() {
            return Err(
                "the output limit cut this call before it was complete; do it in smaller pieces"
                    .into(),
            );
        }
        Ok((tool, tool.reading(&call.arguments)?))
    }
}

/// Bytes of a text at most of which it is shown how it has changed.
const COMPARED: usize = 256 << 10;

/// How a file has changed, for those who watch.
fn changes(old: &str, new: &str) -> Option<String> {
    let is_short = old.len().max(new.len()) <= COMPARED;
    is_short.then(|| Diff::between(old, new).unified(2))
}

/// What the model is told of keys that it does not see, so that it writes no marks over them.
const HIDDEN: &str =
    "(*** stands for a key that is hidden from you: never write *** over it, and edit around it)";

/// Why a text is not written that has the mark of a key where the file has the key.
const MASKED: &str = "nothing was written: `***` is only shown to you in the place of a key, and would overwrite it; \
     change the lines around it with edit_file";

/// `parts` without keys, and a word about those that were there.
fn without_keys(mut parts: Vec<Part>) -> Vec<Part> {
    for part in &mut parts {
        if let Part::Text(text) = part
            && let Cow::Owned(clean) = hide(text)
        {
            *text = format!("{clean}\n{HIDDEN}");
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{Effect, Failure, Output, Tool, Toolbox};
    use crate::message::ToolCall;
    use crate::message::ToolSpec;
    use serde_json::{Value, json};
    use std::sync::Arc;

    struct Named(ToolSpec, Effect);

    impl Tool for Named {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn effect(&self, _: &Value) -> Effect {
            self.1
        }
        fn run(&self, _: &Value, _: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
            Ok(self.0.name.clone().into())
        }
    }

    fn named(name: &str, effect: Effect) -> Box<dyn Tool> {
        let spec = ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        Box::new(Named(spec, effect))
    }

    #[test]
    fn readers_run_together_and_writers_alone() {
        let toolbox = Toolbox::new(
            vec![named("r", Effect::Reads), named("w", Effect::Writes)],
            3,
            Arc::default(),
        );
        let check = |calls: &str, expect: &str| {
            let call = |name: char| ToolCall {
                id: String::new(),
                name: name.into(),
                arguments: Value::Null,
            };
            let calls: Vec<ToolCall> = calls.chars().map(call).collect();
            let name = |call: &ToolCall| call.name.clone();
            let batches: Vec<String> = toolbox
                .batches(&calls)
                .map(|batch| batch.iter().map(name).collect())
                .collect();
            assert_eq!(batches.join(" "), expect);
        };
        check("", "");
        check("r", "r");
        check("rr", "rr");
        check("rrwrr", "rr w rr");
        check("ww", "w w");
        check("rrrrr", "rrr rr");
        check("rxw", "rx w");
    }
}
