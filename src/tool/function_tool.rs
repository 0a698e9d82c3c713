//! A tool made from one function of its arguments. Its effect never changes, and it prints nothing while it runs.

use super::{Effect, Failure, Output, Tool};
use crate::message::ToolSpec;
use serde_json::Value;

type Run = dyn Fn(&Value) -> Result<Output, Failure> + Send + Sync;

/// A tool that calls a function.
pub struct FunctionTool {
    spec: ToolSpec,
    effect: Effect,
    run: Box<Run>,
}

impl FunctionTool {
    /// Creates a tool whose calls run the function.
    pub fn new(
        spec: ToolSpec,
        effect: Effect,
        run: impl Fn(&Value) -> Result<Output, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            spec,
            effect,
            run: Box::new(run),
        }
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> Effect {
        self.effect
    }

    fn run(&self, arguments: &Value, _: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
        (self.run)(arguments)
    }
}
