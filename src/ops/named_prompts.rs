//! The user's prompts: `~/.nanobot/prompts/NAME.md` is the prompt file that `nanobot run NAME` runs. No run can change the folder.

use super::context::Context;
use super::permissions::absolute;
use super::prompt_program::{MAX_FILE_BYTES, PromptSignature, unusable_grants};
use super::user_commands::is_command_name;
use crate::options::turn::{DEFAULT_LOCK_TIMEOUT, OutputFormat, TurnLimits, TurnOptions};
use crate::options::value::ModelNames;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::durable_file;
use nanobot_os::home::expand_argument;
use nanobot_os::input;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// A prompt in the list.
#[derive(Serialize)]
pub(crate) struct NamedPrompt {
    pub(crate) name: String,
    /// The `description` of its front matter, or else the first line of its message.
    pub(crate) description: String,
}

/// True if this argument of `run` names a prompt of the user. With a slash or a dot it is a file.
pub(crate) fn is_name(argument: &str) -> bool {
    is_command_name(argument)
}

/// The file of the prompt `name`.
///
/// # Errors
/// Status 66: there is none.
pub(crate) fn find(ctx: &Context, name: &str) -> Result<PathBuf> {
    let path = file_path(ctx, name);
    if path.is_file() {
        return Ok(path);
    }
    let hint = if Path::new(name).is_file() {
        format!("`nanobot run ./{name}` for the file")
    } else {
        "`nanobot run --list`".to_owned()
    };
    Err(fail(Exit::NoInput, format!("there is no prompt `{name}`")).with_hint(hint))
}

fn file_path(ctx: &Context, name: &str) -> PathBuf {
    ctx.paths.prompts().join(format!("{name}.md"))
}

/// All prompts, by name.
///
/// # Errors
/// The folder or a file cannot be read.
pub(crate) fn list(ctx: &Context) -> Result<Vec<NamedPrompt>> {
    let mut names = Vec::new();
    for entry in durable_file::list_dir(&ctx.paths.prompts())? {
        let file_name = entry.file_name();
        let name = file_name.to_str().and_then(|name| name.strip_suffix(".md"));
        names.extend(name.filter(|name| is_name(name)).map(str::to_owned));
    }
    names.sort();
    names.into_iter().map(|name| describe(ctx, name)).collect()
}

fn describe(ctx: &Context, name: String) -> Result<NamedPrompt> {
    let path = file_path(ctx, &name);
    let text = input::read_text(&path, &path.display().to_string(), MAX_FILE_BYTES)?.text;
    let (head, body) = skill::parse_strict(&text).unwrap_or((Value::Null, text));
    let first_line = body.trim().lines().next().unwrap_or_default();
    let description = sanitize(head["description"].as_str().unwrap_or(first_line));
    Ok(NamedPrompt { name, description })
}

/// Saves the message and the flags of a command line as the prompt `name`. With `is_replaced`, it takes the place of an earlier one.
///
/// # Errors
/// Status 2: there is no message, or a flag has no field in a prompt file. Status 1: there is such a prompt.
pub(crate) fn save(
    ctx: &Context,
    name: &str,
    options: &TurnOptions,
    is_replaced: bool,
) -> Result<()> {
    if !is_name(name) {
        let cause = format!("`{name}` is no name of a prompt");
        return Err(fail(Exit::Usage, cause).with_hint("letters, digits, `-` and `_`"));
    }
    let message = match (&options.input.message, &options.input.prompt_file) {
        (Some(message), None) => message.as_str().to_owned(),
        (None, Some(path)) => {
            input::read_text(path, &path.display().to_string(), MAX_FILE_BYTES)?.text
        }
        _ => {
            let hint = format!("nanobot run --save {name} -m 'sum up $1'");
            return Err(fail(Exit::Usage, "a prompt needs a message").with_hint(hint));
        }
    };
    if let Some(flag) = flag_without_field(options) {
        return Err(no_field(flag));
    }
    let path = file_path(ctx, name);
    if path.exists() && !is_replaced {
        let cause = format!("there is a prompt `{name}` already");
        let hint = format!("`--replace`, or edit `{}`", path.display());
        return Err(fail(Exit::Failed, cause).with_hint(hint));
    }
    let mut text = String::new();
    let fields = front_matter(options)?;
    if !fields.is_empty() {
        text.push_str("---\n");
        for (field, value) in &fields {
            // JSON is YAML.
            text.push_str(&format!("{field}: {value}\n"));
        }
        text.push_str("---\n");
    }
    text.push_str(message.trim());
    text.push('\n');
    durable_file::create_dir(&ctx.paths.prompts())?;
    if is_replaced {
        durable_file::replace(&path, text.as_bytes())?;
    } else {
        durable_file::create(&path, |out| Ok(out.write_all(text.as_bytes())?))?;
    }
    let signature = PromptSignature::new(&message);
    let escape = signature
        .first()
        .map(|number| format!("; `${number}` stands for an argument, `\\${number}` would be text"));
    ctx.notice(&format!(
        "saved `{}`; `nanobot run {name}{}` runs it{}",
        path.display(),
        signature.usage(),
        escape.unwrap_or_default()
    ));
    if let Some(notice) = unusable_grants(&options.grants) {
        ctx.notice(&notice);
    }
    Ok(())
}

/// The error for a flag that a prompt file has no field for.
pub(crate) fn no_field(flag: &str) -> anyhow::Error {
    fail(Exit::Usage, format!("a prompt file has no field for `{flag}`"))
}

/// The first flag of the command line that a prompt file has no field for. `--bare` and `--ephemeral` need none: a prompt file is sent
/// alone.
fn flag_without_field(options: &TurnOptions) -> Option<&'static str> {
    let TurnOptions {
        input,
        stdin,
        session,
        output,
        prompt,
        model,
        grants,
        limits,
        until,
        propose,
        recording,
        ..
    } = options;
    let flags = [
        (!input.attach.is_empty(), "--attach"),
        (stdin.stdin, "--stdin"),
        (stdin.no_stdin, "--no-stdin"),
        (stdin.require_input, "--require-input"),
        (session.key.is_some(), "--session"),
        (session.new, "--new"),
        (session.resume, "--resume"),
        (session.last, "--continue"),
        (session.fork.is_some(), "--fork"),
        (session.title.is_some(), "--title"),
        (session.lock_timeout != DEFAULT_LOCK_TIMEOUT, "--wait"),
        (output.json, "--json"),
        (output.output_format != OutputFormat::Text, "--output-format"),
        (output.markdown, "--markdown"),
        (output.no_markdown, "--no-markdown"),
        (output.extract.is_some(), "--extract"),
        (output.verbose, "--verbose"),
        (prompt.append_system.is_some(), "--append-system"),
        (model.verbosity.is_some(), "--verbosity"),
        (!model.body_fields.is_empty(), "--option"),
        (model.no_stream, "--no-stream"),
        (model.send_keys, "--send-keys"),
        (grants.directory.is_some(), "--directory"),
        (grants.sandbox.is_some(), "--sandbox"),
        (limits.offline, "--offline"),
        (limits.strict, "--strict"),
        (limits.max_parallel != TurnLimits::default().max_parallel, "--max-parallel"),
        (until.command.is_some(), "--until"),
        (*propose, "--propose"),
        (recording.dry_run.is_some(), "--dry-run"),
        (recording.record.is_some(), "--record"),
        (recording.replay.is_some(), "--replay"),
    ];
    flags.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
}

/// The value of `--system` in a prompt file, where a path is relative to the file and not to the current directory.
fn system_value(text: &str) -> String {
    match text.strip_prefix('@') {
        Some(file) => format!("@{}", absolute_text(file)),
        None => text.to_owned(),
    }
}

/// The value of `--skill` in a prompt file.
fn skill_value(name: &str) -> String {
    if name.contains('/') { absolute_text(name) } else { name.to_owned() }
}

/// The value of `--schema` in a prompt file.
fn schema_value(text: &str) -> String {
    if Path::new(text).is_file() { absolute_text(text) } else { text.to_owned() }
}

fn absolute_text(path: &str) -> String {
    let path = expand_argument(Path::new(path)).unwrap_or_else(|_| path.into());
    absolute(&path).display().to_string()
}

/// A list of paths in a prompt file; `None` if there are none.
///
/// # Errors
/// Status 2: a path is not UTF-8, which the text of a prompt file is.
fn path_list(paths: &[PathBuf]) -> Result<Option<Value>> {
    let to_value = |path: &PathBuf| {
        path.to_str()
            .map(|path| json!(path))
            .ok_or_else(|| fail(Exit::Usage, format!("`{}` is not UTF-8", path.display())))
    };
    let values = paths.iter().map(to_value).collect::<Result<Vec<_>>>()?;
    Ok((!values.is_empty()).then_some(Value::Array(values)))
}

/// The front matter that says what the flags say.
///
/// # Errors
/// The errors of [`path_list`].
fn front_matter(options: &TurnOptions) -> Result<Map<String, Value>> {
    let TurnOptions { prompt, model, grants, limits, schema, server_files, .. } = options;
    let denied: Vec<&String> = grants.deny.iter().chain(&grants.disabled_tools).collect();
    let tools = if grants.no_tools {
        Some(json!([]))
    } else {
        grants.tools.as_ref().map(|tools| json!(tools))
    };
    let net =
        grants.net.as_ref().map(|hosts| if hosts.is_empty() { json!(true) } else { json!(hosts) });
    let list = |values: Vec<Value>| (!values.is_empty()).then_some(Value::Array(values));
    let texts = |texts: &[String]| list(texts.iter().map(|text| json!(text)).collect());
    let server_files: Vec<PathBuf> = server_files.paths.iter().map(|path| absolute(path)).collect();
    let fields = [
        ("model", model.name.as_ref().map(|name| json!(name))),
        ("cache", model.cache.map(|cache| json!(cache.name()))),
        ("fallback", model.fallbacks.as_deref().map(|names| json!(ModelNames::join(names)))),
        ("effort", model.reasoning_effort.as_ref().map(|effort| json!(effort))),
        ("temperature", model.temperature.map(|temperature| json!(temperature))),
        ("max-cost", model.max_cost.map(|cost| json!(cost))),
        ("max-tokens", model.max_tokens.map(|tokens| json!(tokens))),
        ("max-iterations", model.max_iterations.map(|count| json!(count))),
        ("max-total-tokens", limits.max_total_tokens.map(|tokens| json!(tokens))),
        ("timeout", limits.timeout.map(|timeout| json!(timeout.as_secs().max(1)))),
        ("schema", schema.as_ref().map(|schema| json!(schema_value(schema)))),
        ("system", prompt.system.as_ref().map(|system| json!(system_value(system)))),
        ("mcp", path_list(&server_files)?),
        ("skill", texts(&prompt.skills.iter().map(|name| skill_value(name)).collect::<Vec<_>>())),
        ("profile", grants.profile.as_ref().map(|profile| json!(profile))),
        ("tools", tools),
        ("allow", texts(&grants.allow)),
        ("deny", list(denied.into_iter().map(|rule| json!(rule)).collect())),
        ("read", path_list(&grants.read)?),
        ("write", path_list(&grants.write)?),
        ("net", net),
    ];
    let fields = fields.into_iter();
    Ok(fields.filter_map(|(field, value)| Some((field.to_owned(), value?))).collect())
}
