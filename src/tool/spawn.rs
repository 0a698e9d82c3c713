//! The `spawn` tool: gives a task to a sub-agent that works in parallel with the turn. The call returns at once; the
//! report arrives later as a message. [`Starts`] does the actual work, since a tool knows neither turns nor models.

use super::{Effect, Failure, Output, Tool};
use crate::message::ToolSpec;
use serde_json::{Value, json};

/// Starts sub-agents.
pub trait Starts: Send + Sync {
    /// Starts a sub-agent. Returns its name, which its report will carry.
    ///
    /// # Errors
    /// Text for the model.
    fn start(&self, order: &Order<'_>) -> Result<String, Failure>;
}

/// A task for a sub-agent.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The id of the tool call that gave the task.
    pub call: &'a str,
    pub task: &'a str,
    pub label: Option<&'a str>,
    /// The name of the profile with its permissions; `None` for those of its parent.
    pub profile: Option<&'a str>,
}

/// The `spawn` tool.
pub struct Spawn<S> {
    spec: ToolSpec,
    starts: S,
}

impl<S: Starts> Spawn<S> {
    /// Creates the tool. `profiles` are the names and descriptions of the user's own profiles for sub-agents.
    pub fn new(starts: S, profiles: &[(String, String)]) -> Self {
        let mut kinds = "`explore`: read-only research".to_owned();
        for (name, about) in profiles {
            let colon = if about.is_empty() { "" } else { ": " };
            kinds.push_str(&format!("; `{name}`{colon}{about}"));
        }
        kinds.push_str("; default: your permissions");
        let spec = ToolSpec {
            name: "spawn".into(),
            description: "Start a sub-agent on part of the work; several run in parallel. It sees only its task, and its \
                          report arrives as a message"
                .into(),
            parameters: json!({ "type": "object", "required": ["task"], "properties": {
                "task": { "type": "string", "description": "all it needs to know, and what to report" },
                "label": { "type": "string", "description": "a short name for it" },
                "profile": { "type": "string", "description": kinds },
            } }),
        };
        Self { spec, starts }
    }
}

impl<S: Starts> Tool for Spawn<S> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The call does not wait for the sub-agent. It counts as a write so that names are given in the order of the
    /// calls.
    fn effect(&self, _: &Value) -> Effect {
        Effect::Writes
    }

    fn run(&self, arguments: &Value, say: &mut dyn FnMut(&str)) -> Result<Output, Failure> {
        self.run_as("", arguments, say)
    }

    fn run_as(
        &self,
        call: &str,
        arguments: &Value,
        _: &mut dyn FnMut(&str),
    ) -> Result<Output, Failure> {
        let text = |key: &str| {
            let text = arguments[key].as_str().map(str::trim);
            text.filter(|text| !text.is_empty())
        };
        let task = text("task")
            .ok_or("`task` is empty; include everything that the sub-agent needs to know")?;
        let order = Order {
            call,
            task,
            label: text("label"),
            profile: text("profile"),
        };
        let name = self.starts.start(&order)?;
        Ok(format!("started as `{name}`; its report arrives as a message").into())
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Spawn, Starts};
    use crate::message::plain_text;
    use crate::tool::{Failure, Tool};
    use serde_json::{Value, json};

    struct Echo;

    impl Starts for Echo {
        fn start(&self, order: &Order<'_>) -> Result<String, Failure> {
            let Order {
                call,
                task,
                label,
                profile,
            } = order;
            Ok(format!("{call} {task} {label:?} {profile:?}"))
        }
    }

    #[test]
    fn blank_arguments_are_none() {
        let check = |arguments: Value, expect: Result<&str, &str>| {
            let spawn = Spawn::new(Echo, &[]);
            let got = spawn.run_as("c", &arguments, &mut |_| {});
            let got = got.map(|output| plain_text(&output.parts));
            match (&got, expect) {
                (Ok(text), Ok(words)) => assert!(text.contains(words), "{text}"),
                (Err(failure), Err(words)) => assert!(failure.words().contains(words)),
                _ => panic!("{arguments}: {got:?}"),
            }
        };
        check(
            json!({ "task": " look ", "label": "" }),
            Ok("`c look None None`"),
        );
        check(
            json!({ "task": "x", "label": "l", "profile": "explore" }),
            Ok(r#"Some("l") Some("explore")"#),
        );
        check(json!({ "task": "  " }), Err("`task` is empty"));
    }

    #[test]
    fn own_profiles_are_told_and_cost_nothing_where_there_are_none() {
        let about = |profiles: &[(String, String)]| {
            let spec = Spawn::new(Echo, profiles).spec().clone();
            spec.parameters["properties"]["profile"]["description"].to_string()
        };
        assert!(!about(&[]).contains("critic"));
        let text = about(&[("critic".into(), "finds faults".into())]);
        assert!(text.contains("`critic`: finds faults; default"), "{text}");
    }
}
