//! What the model can do: the trait, and the box of tools of a run.
//!
//! A tool is built with what it needs (places, limits, deadline), so there is no context bag. A failing tool is news
//! for the model, not an error of ours. Adding one is a file and a line in the list that a command builds.

use crate::message::{Part, ToolCall};
use crate::provider::ToolSpec;
use serde_json::Value;

pub mod arguments;
pub mod edit_file;
pub mod exec;
pub mod list_dir;
pub mod read_file;
pub mod write_file;

/// Something a model can call.
pub trait Tool: Send + Sync {
    /// Name, one sentence, schema of the arguments.
    fn spec(&self) -> &ToolSpec;

    /// Whether running it can change anything.
    fn effect(&self) -> Effect;

    /// Run it. `arguments` is an object already cast to and checked against the schema; `say` takes what the tool
    /// has to show meanwhile. The error is text for the model and says what to do next.
    fn run(&self, arguments: &Value, say: &mut dyn FnMut(&str)) -> Result<Output, String>;
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
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self {
            parts: vec![Part::Text(text)],
        }
    }
}

/// The tools of a run, in the order in which the model sees them.
pub struct Toolbox {
    tools: Vec<Box<dyn Tool>>,
    specs: Vec<ToolSpec>,
}

impl Toolbox {
    pub fn new(tools: Vec<Box<dyn Tool>>) -> Self {
        let specs = tools.iter().map(|tool| tool.spec().clone()).collect();
        Self { tools, specs }
    }

    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
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
                .is_none_or(|tool| tool.effect() == Effect::Reads)
        };
        calls.chunk_by(move |one, next| reads(one) && reads(next))
    }
}
