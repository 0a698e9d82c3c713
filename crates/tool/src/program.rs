//! Tools that are programs of the user: each prints its description with `--spec`, and takes its arguments as JSON on
//! standard input. They run in the sandbox of commands.

use super::exec::ExecTool;
use super::exec::program_call::ProgramCall;
use super::{Call, Tool, ToolError, ToolOutput};
use nanobot_base::message::ToolSpec;
use nanobot_config::policy::tool_names::PROGRAM_PREFIX;
use nanobot_os::digest::digest_program;
use nanobot_os::hidden_chars;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a description, in bytes: it is sent with each request.
const MAX_SPEC_BYTES: usize = 32 << 10;
/// Maximum characters of a description's text.
const MAX_DESCRIPTION_CHARS: usize = 4096;
/// Maximum characters of a program's name, so that the tool's name is valid for every provider.
pub const MAX_NAME_CHARS: usize = 48;
/// Upper bound of a time limit, in seconds.
const MAX_TIMEOUT_SECS: u64 = 600;

/// The description of a program, as it prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramSpec {
    pub description: String,
    /// The schema of the arguments.
    pub parameters: Value,
    /// The time limit of a call in seconds; `None` for that of commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

impl ProgramSpec {
    /// Parses the output of a program: `description`, `parameters` (or `input_schema`, as MCP and model APIs call it), and
    /// `timeout`; also within `function`.
    ///
    /// # Errors
    /// The description is wrong. The error is a phrase such as `printed no JSON object`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SPEC_BYTES {
            return Err(format!("printed more than {} KiB", MAX_SPEC_BYTES >> 10));
        }
        let output: Value = serde_json::from_str(text.trim())
            .map_err(|error| format!("printed no JSON object: {error}"))?;
        let spec = match &output["function"] {
            Value::Null => &output,
            function => function,
        };
        let description = spec["description"].as_str().unwrap_or_default().trim();
        if description.is_empty() {
            return Err("printed no `description`".into());
        }
        let schemas = ["parameters", "input_schema", "inputSchema"].map(|key| &spec[key]);
        let mut parameters = match schemas.into_iter().find(|schema| !schema.is_null()) {
            None => json!({}),
            Some(schema) if schema.is_object() => schema.clone(),
            Some(_) => return Err("printed `parameters` that are not a schema".into()),
        };
        match &parameters["type"] {
            Value::Null => parameters["type"] = "object".into(),
            kind if kind == "object" => {}
            _ => return Err("printed `parameters` of a type other than `object`".into()),
        }
        if !matches!(parameters["properties"], Value::Null | Value::Object(_)) {
            return Err("printed `properties` that are not an object".into());
        }
        let timeout = match &spec["timeout"] {
            Value::Null => None,
            value => match value.as_u64() {
                Some(seconds @ 1..=MAX_TIMEOUT_SECS) => Some(seconds),
                _ => {
                    return Err(format!(
                        "printed a `timeout` that is not 1 to {MAX_TIMEOUT_SECS} seconds"
                    ));
                }
            },
        };
        let description: String = description.chars().take(MAX_DESCRIPTION_CHARS).collect();
        Ok(Self {
            description: hidden_chars::strip(&description).0.into_owned(),
            parameters,
            timeout,
        })
    }
}

/// A program that a run offers as a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolProgram {
    /// The file's name, without its extension.
    pub name: String,
    /// The path, absolute and without links.
    pub path: PathBuf,
    /// The digest of the file whose description this is.
    pub digest: String,
    pub spec: ProgramSpec,
}

/// The name of the tool for the program `name`.
pub fn tool_name(name: &str) -> String {
    format!("{PROGRAM_PREFIX}{name}")
}

/// The name of the program at `path`; `None` if its file name cannot be the name of a tool.
pub fn program_name(path: &Path) -> Option<String> {
    let name = path.file_stem()?.to_str()?;
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    let is_valid = name.len() <= MAX_NAME_CHARS
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(is_plain);
    is_valid.then(|| name.replace('-', "_"))
}

/// A program of the user as a tool.
pub struct ProgramTool {
    spec: ToolSpec,
    program: ToolProgram,
    exec: Arc<ExecTool>,
}

impl ProgramTool {
    /// Creates the tool. `exec` runs commands under the policy of the run, and may read the program.
    pub fn new(program: &ToolProgram, exec: &Arc<ExecTool>) -> Self {
        Self {
            spec: ToolSpec {
                name: tool_name(&program.name),
                description: program.spec.description.clone(),
                parameters: program.spec.parameters.clone().into(),
            },
            program: program.clone(),
            exec: Arc::clone(exec),
        }
    }
}

impl Tool for ProgramTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let ToolProgram { path, digest, spec, .. } = &self.program;
        // The model may be able to write in the directory of the program.
        if digest_program(path).as_ref() != Some(digest) {
            let path = path.display();
            return Err(format!("not run: `{path}` has changed since this run began").into());
        }
        let program_call = ProgramCall {
            call_id: call.id,
            program: path,
            arguments: &[],
            input: &format!("{}\n", call.arguments),
            timeout: spec.timeout.map(Duration::from_secs),
        };
        self.exec.run_program(program_call, call.on_output)
    }
}

#[cfg(test)]
mod tests {
    use super::{ProgramSpec, program_name};
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn descriptions() {
        let check =
            |text: &str, expect: Result<(&str, serde_json::Value, Option<u64>), &str>| match (
                ProgramSpec::parse(text),
                expect,
            ) {
                (Ok(spec), Ok(expect)) => {
                    assert_eq!((spec.description.as_str(), spec.parameters, spec.timeout), expect);
                }
                (Err(cause), Err(part)) => assert!(cause.contains(part), "{text}: {cause}"),
                (found, _) => panic!("{text}: {found:?}"),
            };
        let any = || json!({ "type": "object" });
        check(r#"{"description": "a"}"#, Ok(("a", any(), None)));
        check(r#"{"description": "a", "timeout": 5}"#, Ok(("a", any(), Some(5))));
        let schema = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
        for key in ["parameters", "input_schema", "inputSchema"] {
            let text = json!({ "description": "a", key: schema }).to_string();
            check(&text, Ok(("a", schema.clone(), None)));
        }
        let text =
            json!({ "type": "function", "function": { "description": "a", "parameters": schema } });
        check(&text.to_string(), Ok(("a", schema, None)));
        check("hello", Err("no JSON object"));
        check("{}", Err("no `description`"));
        check(r#"{"description": "a", "parameters": []}"#, Err("not a schema"));
        check(r#"{"description": "a", "parameters": {"type": "string"}}"#, Err("other than"));
        check(r#"{"description": "a", "parameters": {"properties": 1}}"#, Err("not an object"));
        check(r#"{"description": "a", "timeout": 0}"#, Err("1 to 600"));
        check(&format!(r#"{{"description": "{}"}}"#, "a".repeat(40_000)), Err("32 KiB"));
    }

    #[test]
    fn names() {
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(program_name(Path::new(path)).as_deref(), expect, "{path}");
        };
        check("/x/weather", Some("weather"));
        check("/x/weather.py", Some("weather"));
        check("/x/my-tea.sh", Some("my_tea"));
        check("/x/.specs.json", None);
        check("/x/2fast", None);
        check("/x/a b", None);
        check("/x/a*", None);
    }
}
