//! A tool made from one function of its arguments. Its effect never changes, and it prints nothing while it runs.

use super::{Call, CallEffect, Tool, ToolError, ToolOutput};
use nanobot_base::message::ToolSpec;
use serde_json::Value;

type ToolFunction = dyn Fn(&Value) -> Result<ToolOutput, ToolError> + Send + Sync;

/// A tool that calls a function.
pub struct FunctionTool {
    spec: ToolSpec,
    effect: CallEffect,
    run: Box<ToolFunction>,
}

impl FunctionTool {
    /// Creates a tool whose calls run the function.
    pub fn new(
        spec: ToolSpec,
        effect: CallEffect,
        run: impl Fn(&Value) -> Result<ToolOutput, ToolError> + Send + Sync + 'static,
    ) -> Self {
        Self { spec, effect, run: Box::new(run) }
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> CallEffect {
        self.effect
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        (self.run)(call.arguments)
    }
}
