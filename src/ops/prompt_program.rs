//! Prompt files as programs: a message with front matter. Front matter chooses the model and narrows the permissions of the
//! run. Fields that widen them are refused, unless the user has pinned the file with `nanobot trust`. The text of a file
//! that is not pinned is content of a project, like that of files which the model reads.

use crate::ops::context::Context;
use crate::ops::default_session::fresh_session_key;
use crate::ops::prompt_arguments::{Placeholder, PromptArguments, placeholders};
use crate::options::grants::Grants;
use crate::options::model::CacheTime;
use crate::options::turn::TurnOptions;
use crate::options::value::ModelNames;
use anyhow::Result;
use nanobot_agent::answer_schema::AnswerSchema;
use nanobot_agent::turn::agent::AnswerFormat;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_config::policy::tool_names::SESSIONS;
use nanobot_config::settings::keys::nearest;
use nanobot_os::home::expand_argument;
use nanobot_os::input;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill;
use nanobot_store::trust::TrustList;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum size of a prompt file in bytes.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 20;

/// The fields of front matter that choose the model or narrow permissions.
const NARROWING_FIELDS: [&str; 16] = [
    "cache",
    "deny",
    "description",
    "effort",
    "fallback",
    "inputs",
    "max-cost",
    "max-iterations",
    "max-tokens",
    "max-total-tokens",
    "model",
    "name",
    "schema",
    "temperature",
    "timeout",
    "tools",
];
/// The fields that widen permissions.
const WIDENING_FIELDS: [&str; 5] = ["allow", "net", "profile", "read", "write"];
/// The fields that change what is sent beside the message, and so are the user's alone.
const PROMPT_FIELDS: [&str; 4] = ["mcp", "notes", "skill", "system"];

/// A prompt file.
pub(crate) struct PromptProgram {
    path: PathBuf,
    /// The name of a prompt of the user's own folder.
    name: Option<String>,
    /// True if the user has pinned the file with its current content.
    is_pinned: bool,
    fields: Vec<(String, Value)>,
    inputs: Vec<PromptInputField>,
    body: String,
}

/// A declared argument.
struct PromptInputField {
    name: String,
    description: String,
    /// The value if none is given; `None` if the argument is required.
    default: Option<String>,
}

/// The arguments of a run.
struct AssignedArguments<'a> {
    /// The value of each input, in the order of the inputs.
    values: Vec<Option<&'a str>>,
    /// The arguments without a name.
    positional: Vec<&'a str>,
    /// The first positional argument for which there is no input.
    extra: Option<&'a str>,
}

impl PromptProgram {
    /// Reads the file at `path`. `name` is that of a prompt of the user's own folder, which no run can change: it counts as pinned.
    ///
    /// # Errors
    /// Status 66 if there is none, 65 if it cannot be used.
    pub(crate) fn load(ctx: &Context, path: &Path, name: Option<&str>) -> Result<Self> {
        let file_name = path.display().to_string();
        let bytes = input::read_file(path, &file_name, MAX_FILE_BYTES)?;
        let real_path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_pinned =
            name.is_some() || TrustList::load(&ctx.paths.trust())?.is_pinned(&real_path, &bytes);
        let decoded = input::decode(bytes, &format!("`{file_name}`"))?;
        if let Some(notice) = &decoded.notice {
            ctx.notice(notice);
        }
        let ParsedPrompt { fields, inputs, body } =
            parse(&decoded.text).map_err(|cause| unusable(path, &cause))?;
        for input in &inputs {
            if !placeholders(&body).any(|placeholder| placeholder == Placeholder::Name(&input.name))
            {
                ctx.notice(&format!(
                    "`{file_name}`: the text has no `${0}`, so the input `{0}` is not sent",
                    input.name
                ));
            }
        }
        let name = name.map(str::to_owned);
        Ok(Self { path: path.to_owned(), name, is_pinned, fields, inputs, body })
    }

    /// The usage of the file and its text, as its help.
    pub(crate) fn help(&self) -> String {
        let field = self.fields.iter().find(|(name, _)| name == "description");
        let description = field.and_then(|(_, value)| value.as_str()).unwrap_or_default();
        let mut help = sanitize(description);
        if !help.is_empty() {
            help.push_str("\n\n");
        }
        help.push_str(&format!("Usage: {}\n", self.usage()));
        for input in &self.inputs {
            let default = match &input.default {
                Some(default) if !default.is_empty() => format!(" [default: {default}]"),
                _ => String::new(),
            };
            let row = format!("  {}  {}{default}", input.name, input.description);
            help.push_str(&format!("{}\n", sanitize(row.trim_end())));
        }
        help.push_str(&format!("\n{}\n", sanitize(&self.body)));
        help
    }

    fn usage(&self) -> String {
        let mut usage = match &self.name {
            Some(name) => format!("nanobot run {name}"),
            None => self.path.display().to_string(),
        };
        if self.inputs.is_empty() {
            usage += &PromptSignature::new(&self.body).usage();
        }
        for input in &self.inputs {
            usage += &match input.default {
                Some(_) => format!(" [{}]", input.name.to_uppercase()),
                None => format!(" {}", input.name.to_uppercase()),
            };
        }
        usage
    }

    /// True if the user has trusted the file with its current content, so that its text counts as the user's.
    pub(crate) fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// The message with these arguments.
    ///
    /// # Errors
    /// Status 2: an argument or its value is missing, or there is no place for one.
    pub(crate) fn message(&self, arguments: &[String]) -> Result<String> {
        let usage_error = |cause: String| fail(Exit::Usage, cause).with_hint(self.usage());
        let AssignedArguments { values, positional, extra } =
            self.assign(arguments).map_err(usage_error)?;
        let mut named = Vec::new();
        for (input, value) in self.inputs.iter().zip(values) {
            let value = value
                .or(input.default.as_deref())
                .ok_or_else(|| usage_error(format!("the argument `{}` is missing", input.name)))?;
            named.push((input.name.as_str(), value));
        }
        let all = positional.join(" ");
        let prompt_arguments = if self.inputs.is_empty() {
            PromptArguments::Positional { all: &all, each: &positional }
        } else {
            PromptArguments::Named(&named)
        };
        let (message, _) = prompt_arguments.expand(&self.body);
        if !self.inputs.is_empty() {
            return match extra {
                Some(extra) => Err(usage_error(no_place(extra))),
                None => Ok(message),
            };
        }
        let signature = PromptSignature::new(&self.body);
        let missing = signature.numbers.iter().find(|number| **number > positional.len());
        if let Some(number) = missing {
            let cause = format!("the argument `${number}` is missing");
            let hint = format!("{}; in the text, `\\${number}` is no argument", self.usage());
            return Err(fail(Exit::Usage, cause).with_hint(hint));
        }
        match positional.get(signature.last()) {
            Some(extra) if !signature.takes_all => Err(usage_error(no_place(extra))),
            _ => Ok(message),
        }
    }

    /// Assigns `NAME=VALUE`, `--NAME=VALUE` and `--NAME VALUE` to the input of the name, and the other arguments to the
    /// inputs that have no value yet. After `--`, every argument is positional.
    fn assign<'a>(&self, arguments: &'a [String]) -> Result<AssignedArguments<'a>, String> {
        let mut values: Vec<Option<&str>> = vec![None; self.inputs.len()];
        let mut positional: Vec<&str> = Vec::new();
        let mut arguments = arguments.iter().map(String::as_str);
        let find_input = |name: &str| self.inputs.iter().position(|input| input.name == name);
        let mut takes_names = !self.inputs.is_empty();
        while let Some(argument) = arguments.next() {
            if !takes_names {
                positional.push(argument);
            } else if argument == "--" {
                takes_names = false;
            } else if let Some(option) = argument.strip_prefix("--") {
                let (name, value) = match option.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (option, None),
                };
                let index = find_input(name).ok_or_else(|| {
                    format!("there is no input `{name}`; flags of nanobot stand before the file")
                })?;
                let value = value
                    .or_else(|| arguments.next())
                    .ok_or_else(|| format!("`--{name}` needs a value"))?;
                values[index] = Some(value);
            } else if let Some((name, value)) = argument.split_once('=')
                && let Some(index) = find_input(name)
            {
                values[index] = Some(value);
            } else {
                positional.push(argument);
            }
        }
        let mut unassigned = positional.iter().copied();
        for value in &mut values {
            if value.is_none() {
                *value = unassigned.next();
            }
        }
        let extra = unassigned.next();
        Ok(AssignedArguments { values, positional, extra })
    }

    /// Applies the front matter to the options of the turn. Flags take precedence, and stand for a field that widens. Without `notes: true` the turn is bare.
    ///
    /// # Errors
    /// Status 65 for a field that cannot be used, 77 for one that widens in a file that is not pinned, 2 for a flag that names a
    /// session of a bare turn.
    pub(crate) fn apply(&self, ctx: &Context, options: &mut TurnOptions) -> Result<()> {
        for (name, value) in &self.fields {
            if !self.is_pinned && self.widens(name, value, &options.grants) {
                if WIDENING_FIELDS.contains(&name.as_str()) {
                    // First of all the value must be one that can be used.
                    self.apply_field(ctx, name, value, &mut options.clone())
                        .map_err(|cause| unusable(&self.path, &format!("`{name}`: {cause}")))?;
                }
                if has_flag(name, options) {
                    continue;
                }
                let path = self.path.display().to_string();
                let trust = format!("`nanobot trust {}` after reading it", quote(&path));
                return Err(if name == "notes" {
                    let cause = format!("`{path}` sets `notes`, which would send your notes");
                    fail(Exit::Refused, cause).with_hint(trust)
                } else {
                    let cause =
                        format!("`{path}` sets `{name}`, which would widen what the run may do");
                    fail(Exit::Refused, cause).with_hint(format!("{trust}, or the flag `--{name}`"))
                });
            }
            self.apply_field(ctx, name, value, options)
                .map_err(|cause| unusable(&self.path, &format!("`{name}`: {cause}")))?;
        }
        let has_notes = self.fields.iter().any(|(name, value)| name == "notes" && *value == true);
        let session = &options.session;
        let names_session = session.key.is_some()
            || session.fork.is_some()
            || session.resume
            || session.last
            || session.new
            || session.title.is_some();
        if has_notes && !options.prompt.bare {
            if !names_session {
                options.session.key = Some(fresh_session_key());
            }
        } else if names_session {
            return Err(fail(Exit::Usage, "a prompt file has no session: it sends its text alone")
                .with_hint("`notes: true` in its front matter, and `nanobot trust` for the file"));
        } else {
            let is_own_choice = options.prompt.bare
                || self.fields.iter().any(|(name, _)| name == "notes" || name == "tools");
            if !is_own_choice {
                announce_bare_runs(ctx)?;
            }
            if let Some(notice) = unusable_grants(&options.grants) {
                ctx.notice(&notice);
            }
            options.make_bare();
        }
        Ok(())
    }

    fn apply_field(
        &self,
        ctx: &Context,
        name: &str,
        value: &Value,
        options: &mut TurnOptions,
    ) -> Result<(), String> {
        let grants = &mut options.grants;
        match name {
            "model" => set_if_none(&mut options.model.name, as_text(value)?),
            "cache" => {
                let cache = CacheTime::parse(&as_text(value)?);
                let cache = cache.ok_or_else(|| "it is neither 5m nor 1h".to_owned())?;
                set_if_none(&mut options.model.cache, cache);
            }
            "fallback" => {
                set_if_none(&mut options.model.fallbacks, vec![ModelNames(as_texts(value)?)]);
            }
            "effort" => set_if_none(&mut options.model.reasoning_effort, as_text(value)?),
            "temperature" => set_if_none(&mut options.model.temperature, as_number(value)?),
            "max-cost" => set_if_none(&mut options.model.max_cost, as_number(value)?),
            "max-total-tokens" => {
                set_if_none(&mut options.limits.max_total_tokens, as_whole(value)?);
            }
            "timeout" => {
                let seconds = Duration::from_secs(as_whole(value)?);
                set_if_none(&mut options.limits.timeout, seconds);
            }
            // Only a flag or a pinned file raises the limits of the config.
            "max-iterations" if options.model.max_iterations.is_none() => {
                let count = as_whole32(value)?;
                let settings = ctx.settings().map_err(|error| format!("{error:#}"))?;
                let limit = settings.max_tool_iterations;
                options.model.max_iterations =
                    Some(if self.is_pinned { count } else { count.min(limit) });
            }
            "max-tokens" if options.model.max_tokens.is_none() => {
                let count = as_whole32(value)?;
                let settings = ctx.settings().map_err(|error| format!("{error:#}"))?;
                let limit = settings.models[0].max_tokens;
                options.model.max_tokens =
                    Some(if self.is_pinned { count } else { count.min(limit) });
            }
            "notes" if !value.is_boolean() => return Err("it is neither true nor false".into()),
            "system" => {
                let text = as_text(value)?;
                let system = match text.strip_prefix('@') {
                    Some(file) => format!("@{}", self.path_beside(file).display()),
                    None => text,
                };
                set_if_none(&mut options.prompt.system, system);
            }
            "mcp" => {
                let paths = as_texts(value)?;
                let paths = paths.iter().map(|path| self.path_beside(path));
                options.server_files.paths.extend(paths);
            }
            "skill" => {
                let names = as_texts(value)?.into_iter();
                // A directory is relative to this file.
                options.prompt.skills.extend(names.map(|name| {
                    if name.contains('/') {
                        self.path_beside(&name).display().to_string()
                    } else {
                        name
                    }
                }));
            }
            "schema" if options.schema.is_none() => {
                options.schema = Some(self.schema(ctx, value)?);
            }
            "tools" if grants.tools.is_none() => match as_texts(value)? {
                names if names.is_empty() => grants.no_tools = true,
                names => grants.tools = Some(names),
            },
            "deny" => grants.deny.extend(as_texts(value)?),
            "allow" => grants.allow.extend(as_texts(value)?),
            "profile" => set_if_none(&mut grants.profile, as_text(value)?),
            "read" => {
                grants.read.extend(as_texts(value)?.iter().map(|path| ctx.paths.expand(path)));
            }
            "write" => {
                grants.write.extend(as_texts(value)?.iter().map(|path| ctx.paths.expand(path)));
            }
            "net" if grants.net.is_none() => {
                grants.net = match value {
                    Value::Bool(true) => Some(Vec::new()),
                    Value::Bool(false) => None,
                    value => Some(as_texts(value)?),
                };
            }
            _ => {}
        }
        Ok(())
    }

    /// True if the field would give the run more permissions than the config and the flags.
    fn widens(&self, name: &str, value: &Value, grants: &Grants) -> bool {
        match name {
            "net" | "notes" => *value != Value::Bool(false),
            // Every file may choose the read-only profile.
            "profile" => value.as_str() != Some("plan"),
            // A run has this tool only if the user names it.
            "tools" => {
                let names = as_texts(value).unwrap_or_default();
                grants.tools.is_none() && names.iter().any(|name| name == SESSIONS)
            }
            // The content of the file is sent to the provider.
            "schema" => {
                let file = value.as_str().map(|text| self.path_beside(text));
                file.is_some_and(|file| file.is_file() && !self.is_beside(&file))
            }
            _ => WIDENING_FIELDS.contains(&name) || PROMPT_FIELDS.contains(&name),
        }
    }

    fn directory(&self) -> &Path {
        let directory = self.path.parent().filter(|path| *path != Path::new(""));
        directory.unwrap_or(Path::new("."))
    }

    /// The path that `text` names from the directory of this file.
    fn path_beside(&self, text: &str) -> PathBuf {
        let path = expand_argument(Path::new(text)).unwrap_or_else(|_| text.into());
        self.directory().join(path)
    }

    /// True if `file`, with links resolved, is in the directory of this file, and not in a hidden directory within it.
    fn is_beside(&self, file: &Path) -> bool {
        let (Ok(directory), Ok(file)) =
            (std::fs::canonicalize(self.directory()), std::fs::canonicalize(file))
        else {
            return false;
        };
        let is_hidden = |part: &OsStr| part.as_encoded_bytes().starts_with(b".");
        file.strip_prefix(directory).is_ok_and(|path| !path.iter().any(is_hidden))
    }

    /// The schema of the answer as JSON. It is given as fields, as a JSON schema, or as the path of a file, relative to this
    /// file and not to the working directory.
    fn schema(&self, ctx: &Context, value: &Value) -> Result<String, String> {
        let text = match value {
            Value::Object(_) => return Ok(value.to_string()),
            Value::String(text) => text,
            _ => return Err("it is neither a string nor a schema".into()),
        };
        let file = self.path_beside(text);
        let text = if file.is_file() {
            let decoded = input::read_text(&file, &file.display().to_string(), MAX_FILE_BYTES)
                .map_err(|error| format!("{error:#}"))?;
            if let Some(notice) = &decoded.notice {
                ctx.notice(notice);
            }
            decoded.text
        } else {
            text.clone()
        };
        let schema = AnswerSchema::parse(&text).map_err(|error| format!("{error:#}"))?;
        Ok(schema.schema().to_string())
    }
}

/// True if the user gave the flag of the field `name`, one of those that widen.
fn has_flag(name: &str, options: &TurnOptions) -> bool {
    let grants = &options.grants;
    match name {
        "allow" => !grants.allow.is_empty(),
        "net" => grants.net.is_some(),
        "profile" => grants.profile.is_some(),
        "read" => !grants.read.is_empty(),
        "write" => !grants.write.is_empty(),
        "mcp" => !options.server_files.paths.is_empty(),
        "schema" => options.schema.is_some(),
        "skill" => !options.prompt.skills.is_empty(),
        "system" => options.prompt.system.is_some(),
        _ => false,
    }
}

fn no_place(argument: &str) -> String {
    format!("there is no place for the argument `{argument}`")
}

/// The arguments that the text of a prompt takes which declares no inputs.
pub(crate) struct PromptSignature {
    /// The numbers in the text, in order.
    numbers: BTreeSet<usize>,
    /// True if the text has `$ARGUMENTS`.
    takes_all: bool,
}

impl PromptSignature {
    pub(crate) fn new(text: &str) -> Self {
        let numbers = placeholders(text).filter_map(|placeholder| match placeholder {
            Placeholder::Number(number) => Some(number),
            Placeholder::Name(_) => None,
        });
        Self { numbers: numbers.collect(), takes_all: placeholders(text).any(Placeholder::is_all) }
    }

    /// The arguments in a usage line, each after a blank.
    pub(crate) fn usage(&self) -> String {
        let mut usage: String =
            (1..=self.last()).map(|number| format!(" ARGUMENT{number}")).collect();
        if self.takes_all {
            usage.push_str(" [ARGUMENT]...");
        }
        usage
    }

    /// The highest number in the text, or 0.
    fn last(&self) -> usize {
        self.numbers.last().copied().unwrap_or_default()
    }

    /// The lowest number in the text.
    pub(crate) fn first(&self) -> Option<usize> {
        self.numbers.first().copied()
    }
}

/// The notice for `grants` that a prompt file cannot use, since nothing chooses its tools and so it has none.
pub(crate) fn unusable_grants(grants: &Grants) -> Option<String> {
    let has_choice = grants.tools.is_some() || grants.no_tools;
    let names = grants.names();
    (!has_choice && !names.is_empty()).then(|| {
        format!(
            "a prompt file has no tools unless `tools` names them, so it cannot use {}; as on the command line: `--tools 'exec,*_file'`",
            names.join(", ")
        )
    })
}

/// Notifies the user once that a prompt file is sent without notes and tools, if there are notes.
fn announce_bare_runs(ctx: &Context) -> Result<()> {
    let workspace = ctx.settings()?.workspace;
    let has_notes =
        ["memory/MEMORY.md", "USER.md"].iter().any(|name| workspace.join(name).is_file());
    if has_notes {
        ctx.notice_once(
            &ctx.paths.bare_runs_announced(),
            "a prompt file is sent without your notes and skills, and with the tools that its `tools` names; `notes: true` in a file \
             that `nanobot trust` has pinned sends them",
        );
    }
    Ok(())
}

/// The parts of a prompt file.
struct ParsedPrompt {
    fields: Vec<(String, Value)>,
    inputs: Vec<PromptInputField>,
    body: String,
}

/// Parses a prompt file.
fn parse(text: &str) -> Result<ParsedPrompt, String> {
    let text = match text.strip_prefix("#!") {
        Some(rest) => rest.split_once('\n').map_or("", |(_, rest)| rest),
        None => text,
    };
    let (head, names, body) = if text.trim_start().starts_with("---") {
        let (head, body) = skill::parse_strict(text.trim_start())?;
        let (names, _) = skill::parse_strict_names(text.trim_start())?;
        (head, names, body)
    } else {
        (Value::Null, Value::Null, text.to_owned())
    };
    let mut fields = Vec::new();
    let mut inputs = Vec::new();
    let members = match head {
        Value::Null => serde_json::Map::new(),
        Value::Object(members) => members,
        _ => return Err("its front matter is not a list of `key: value`".into()),
    };
    for (name, value) in members {
        // A key may be written as in the config, with `_`. The aliases are the words that users of the config and of the flags
        // try first.
        let name = match name.replace('_', "-").as_str() {
            "budget" => "max-cost".to_owned(),
            "reasoning-effort" => "effort".to_owned(),
            name => name.to_owned(),
        };
        let field_names =
            || NARROWING_FIELDS.into_iter().chain(WIDENING_FIELDS).chain(PROMPT_FIELDS);
        if !field_names().any(|field| field == name) {
            let suggestion = nearest(&name, field_names())
                .map(|nearest| format!("; did you mean `{nearest}`?"))
                .unwrap_or_default();
            return Err(format!("its front matter has the unknown field `{name}`{suggestion}"));
        }
        match name.as_str() {
            // An input may be called `n`, which is a boolean elsewhere in the front matter.
            "inputs" => inputs = parse_inputs(&names["inputs"])?,
            _ => fields.push((name, value)),
        }
    }
    match body.trim() {
        "" => Err("it has no message".into()),
        body => Ok(ParsedPrompt { fields, inputs, body: body.to_owned() }),
    }
}

/// Parses `inputs`: names, objects with `name`, an object by name, or one string with commas between the names.
fn parse_inputs(value: &Value) -> Result<Vec<PromptInputField>, String> {
    match value {
        Value::String(_) => {
            as_texts(value)?.iter().map(|name| to_input(name, &Value::Null)).collect()
        }
        Value::Array(entries) => entries
            .iter()
            .map(|entry| match entry {
                Value::String(name) => to_input(name, &Value::Null),
                entry => to_input(entry["name"].as_str().unwrap_or_default(), entry),
            })
            .collect(),
        Value::Object(entries) => {
            entries.iter().map(|(name, entry)| to_input(name, entry)).collect()
        }
        _ => Err("`inputs` is neither a list nor an object".into()),
    }
}

fn to_input(name: &str, entry: &Value) -> Result<PromptInputField, String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_name =
        name.starts_with(|first: char| first.is_ascii_alphabetic()) && name.chars().all(is_letter);
    if !is_name {
        return Err(format!("`inputs` has the name `{name}`; a name has letters, digits and `_`"));
    }
    let default = match &entry["default"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    };
    let description = entry.as_str().or(entry["description"].as_str());
    Ok(PromptInputField {
        name: name.to_owned(),
        description: description.unwrap_or_default().to_owned(),
        default,
    })
}

fn set_if_none<T>(option: &mut Option<T>, value: T) {
    option.get_or_insert(value);
}

fn unusable(path: &Path, cause: &str) -> anyhow::Error {
    fail(Exit::BadInput, format!("`{}`: {cause}", path.display()))
}

fn as_text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| "it is not a string".into())
}

fn as_number(value: &Value) -> Result<f64, String> {
    match value.as_f64() {
        Some(number) if number >= 0.0 => Ok(number),
        Some(_) => Err("it is negative".into()),
        None => Err("it is not a number".into()),
    }
}

fn as_whole(value: &Value) -> Result<u64, String> {
    value
        .as_u64()
        .filter(|number| *number > 0)
        .ok_or_else(|| "it is not a whole number above 0".into())
}

fn as_whole32(value: &Value) -> Result<u32, String> {
    u32::try_from(as_whole(value)?).map_err(|_| "it is too large".into())
}

/// A list of strings, or one string with commas between its parts.
fn as_texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::String(text) => Ok(text
            .split(',')
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
            .collect()),
        Value::Array(entries) => entries.iter().map(as_text).collect(),
        _ => Err("it is not a list of strings".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Grants, ParsedPrompt, PromptProgram, as_number, parse};
    use serde_json::json;
    use std::path::PathBuf;

    fn program(text: &str) -> Result<PromptProgram, String> {
        let ParsedPrompt { fields, inputs, body } = parse(text)?;
        Ok(PromptProgram {
            path: PathBuf::from("p.md"),
            name: None,
            is_pinned: false,
            fields,
            inputs,
            body,
        })
    }

    #[test]
    fn messages() {
        let check = |text: &str, arguments: &[&str], expect: Result<&str, &str>| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            let message = program(text).and_then(|program| {
                program.message(&arguments).map_err(|error| format!("{error:#}"))
            });
            match (message, expect) {
                (Ok(message), Ok(expect)) => assert_eq!(message, expect),
                (Err(cause), Err(part)) => assert!(cause.contains(part), "{text}: {cause}"),
                (message, _) => panic!("{text}: {message:?}"),
            }
        };
        check("Hello.\n", &[], Ok("Hello."));
        check("#!/usr/bin/env -S nanobot run\nHello.\n", &[], Ok("Hello."));
        check("#!/x\n---\ninputs: [place]\n---\nTo $place.", &["Brest"], Ok("To Brest."));
        check("---\ninputs: [place]\n---\nTo $place.", &["place=Brest"], Ok("To Brest."));
        check("---\ninputs: [place]\n---\nTo $place.", &[], Err("`place` is missing"));
        check(
            "---\ninputs: [place]\n---\nTo $place.",
            &["a", "b"],
            Err("no place for the argument `b`"),
        );
        let two = "---\ninputs:\n  - name: a\n  - name: b\n    default: 3\n---\n$a and $b";
        check(two, &["1"], Ok("1 and 3"));
        check(two, &["b=2", "1"], Ok("1 and 2"));
        check(two, &["--b", "2", "1"], Ok("1 and 2"));
        check(two, &["--b=2", "--", "--a"], Ok("--a and 2"));
        check(two, &["--", "b=2"], Ok("b=2 and 3"));
        check(two, &["-1", "--b="], Ok("-1 and "));
        check(two, &["1", "--c", "2"], Err("there is no input `c`"));
        check(two, &["1", "--b"], Err("`--b` needs a value"));
        let prices = "---\ninputs: [a]\n---\n$a for $5 or $1.50, $ARGUMENTS";
        check(prices, &["1"], Ok("1 for $5 or $1.50, $ARGUMENTS"));
        check(prices, &["1", "2"], Err("no place for the argument `2`"));
        check("Say $ARGUMENTS.", &["--loud", "a"], Ok("Say --loud a."));
        check("Say $ARGUMENTS.", &["a", "b c"], Ok("Say a b c."));
        check("Say $2.", &["a", "b"], Ok("Say b."));
        check("Compare $1 and ${2}.", &["a", "b"], Ok("Compare a and b."));
        check("Compare $1 and $2.", &["a"], Err("the argument `$2` is missing"));
        check("Compare $1 and $2.", &["a", "b", "c"], Err("no place for the argument `c`"));
        check("$1 of $ARGUMENTS", &["a", "b"], Ok("a of a b"));
        check("It costs $5.", &[], Err("the argument `$5` is missing"));
        check(r"It costs \$5, or $0.50.", &[], Ok("It costs $5, or $0.50."));
        check("---\ninputs: a, b\n---\n$a, $b", &["1", "2"], Ok("1, 2"));
        check("Say it.", &["a"], Err("no place for the argument `a`"));
        check("---\nmodle: x\n---\nHi", &[], Err("did you mean `model`?"));
        check("---\nmodel: x\n", &[], Err(""));
        check("---\nmodel: x\n---\n", &[], Err("no message"));
        let booleans = "---\ninputs: [n, y, no]\n---\n$n $y $no";
        check(booleans, &["1", "y=2", "no=3"], Ok("1 2 3"));
        let by_name = "---\ninputs:\n  n: a number\n  on: {default: off}\n---\n$n $on";
        check(by_name, &["1"], Ok("1 off"));
        check("---\ninputs: ['a b']\n---\nx", &[], Err("a name has letters"));
        check("a\n\n---\n\nb", &[], Ok("a\n\n---\n\nb"));
    }
    #[test]
    fn only_a_field_that_grants_something_widens() {
        let widens = |field: &str| {
            let program = program(&format!("---\n{field}\n---\nHi")).unwrap();
            let (name, value) = &program.fields[0];
            program.widens(name, value, &Grants::default())
        };
        assert!(widens("net: true") && widens("net: [example.org]"));
        assert!(!widens("net: false"));
    }

    #[test]
    fn numbers_are_not_negative() {
        assert_eq!(as_number(&json!(0.5)), Ok(0.5));
        assert_eq!(as_number(&json!(-1)), Err("it is negative".into()));
        assert_eq!(as_number(&json!("1")), Err("it is not a number".into()));
    }
}
