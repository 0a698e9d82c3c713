//! The `spawn` tool: gives a task to a sub-agent that works in parallel with the turn. The call returns at once; the
//! report arrives later as a message. [`SubagentStarter`] does the actual work, since a tool knows neither turns nor models.

use super::{Call, Tool, ToolError, ToolOutput};
use nanobot_base::message::ToolSpec;
use serde_json::json;

/// Starts sub-agents.
pub trait SubagentStarter: Send + Sync {
    /// Starts a sub-agent. Returns its name, which its report will carry.
    ///
    /// # Errors
    /// Text for the model.
    fn start(&self, request: &SubagentRequest<'_>) -> Result<String, ToolError>;
}

/// A task for a sub-agent.
#[derive(Clone, Copy, Debug)]
pub struct SubagentRequest<'a> {
    /// The id of the tool call that gave the task.
    pub call: &'a str,
    pub task: &'a str,
    pub label: Option<&'a str>,
    /// The name of the profile with its permissions; `None` for the permissions of its parent.
    pub profile: Option<&'a str>,
}

/// The `spawn` tool.
pub struct Spawn<S> {
    spec: ToolSpec,
    starter: S,
}

impl<S: SubagentStarter> Spawn<S> {
    /// Creates the tool. `profiles` are the names and descriptions of the user's own profiles for sub-agents.
    pub fn new(starter: S, profiles: &[(String, String)]) -> Self {
        let mut profile_list = "`explore`: read-only research".to_owned();
        for (name, description) in profiles {
            let colon = if description.is_empty() { "" } else { ": " };
            profile_list.push_str(&format!("; `{name}`{colon}{description}"));
        }
        profile_list.push_str("; default: your permissions");
        let spec = ToolSpec {
            name: "spawn".into(),
            description: "Start a sub-agent on part of the work; several run in parallel. It sees only its task, and its \
                          report arrives as a message"
                .into(),
            parameters: json!({ "type": "object", "required": ["task"], "properties": {
                "task": { "type": "string", "description": "all it needs to know, and what to report" },
                "label": { "type": "string" },
                "profile": { "type": "string", "description": profile_list },
            } }).into(),
        };
        Self { spec, starter }
    }
}

impl<S: SubagentStarter> Tool for Spawn<S> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let text = |key: &str| {
            let text = call.arguments[key].as_str().map(str::trim);
            text.filter(|text| !text.is_empty())
        };
        let task = text("task")
            .ok_or("`task` is empty; include everything that the sub-agent needs to know")?;
        let request =
            SubagentRequest { call: call.id, task, label: text("label"), profile: text("profile") };
        let name = self.starter.start(&request)?;
        Ok(format!("started as `{name}`; its report arrives as a message").into())
    }
}

#[cfg(test)]
mod tests {
    use super::{Spawn, SubagentRequest, SubagentStarter};
    use crate::{Call, Tool, ToolError};
    use nanobot_base::message::plain_text;
    use serde_json::{Value, json};

    struct Echo;

    impl SubagentStarter for Echo {
        fn start(&self, order: &SubagentRequest<'_>) -> Result<String, ToolError> {
            let SubagentRequest { call, task, label, profile } = order;
            Ok(format!("{call} {task} {label:?} {profile:?}"))
        }
    }

    #[test]
    fn blank_arguments_are_none() {
        let check = |arguments: Value, expect: Result<&str, &str>| {
            let spawn = Spawn::new(Echo, &[]);
            let mut call = Call {
                id: "c",
                arguments: &arguments,
                on_output: &mut |_| {},
                charges: &mut Vec::new(),
            };
            let result = spawn.run(&mut call).map(|output| plain_text(&output.parts));
            match (&result, expect) {
                (Ok(text), Ok(expect)) => assert!(text.contains(expect), "{text}"),
                (Err(failure), Err(expect)) => assert!(failure.message().contains(expect)),
                _ => panic!("{arguments}: {result:?}"),
            }
        };
        check(json!({ "task": " look ", "label": "" }), Ok("`c look None None`"));
        check(
            json!({ "task": "x", "label": "l", "profile": "explore" }),
            Ok(r#"Some("l") Some("explore")"#),
        );
        check(json!({ "task": "  " }), Err("`task` is empty"));
    }

    #[test]
    fn user_profiles_are_described() {
        let describe = |profiles: &[(String, String)]| {
            let spec = Spawn::new(Echo, profiles).spec().clone();
            spec.parameters["properties"]["profile"]["description"].to_string()
        };
        assert!(!describe(&[]).contains("critic"));
        let text = describe(&[("critic".into(), "finds faults".into())]);
        assert!(text.contains("`critic`: finds faults; default"), "{text}");
    }
}
