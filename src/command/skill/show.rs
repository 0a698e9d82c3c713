//! `nanobot skill show`: prints one skill in full.

use super::describe::{entry_line, origin, origin_json, rows_of, state, tokens};
use super::lookup::{entries, here, named};
use crate::cli::skill::Show;
use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::Context;
use crate::skill::folder::Kind;
use crate::skill::{BuiltIn, Requirements, Skill, Source};
use crate::sys::beneath::{self, Root};
use crate::sys::terminal::harmless;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Maximum bytes of a file that is printed.
const FILE: u64 = 16 << 20;

/// Runs `nanobot skill show`.
pub(super) fn run(ctx: &Context, arguments: &Show) -> Result<Exit> {
    let Show { name, file, json } = arguments;
    let (_, found) = here(ctx)?;
    let skill = named(&found, name)?;
    if let Some(file) = file {
        ctx.terminal.print_bytes(&content(skill, file)?)?;
    } else if *json {
        ctx.terminal.print_json(&object(ctx, skill))?;
    } else {
        ctx.terminal
            .print(&text(ctx, skill, ctx.terminal.width()))?;
    }
    Ok(Exit::Answered)
}

/// Formats the rows about a skill, and its text.
pub(super) fn text(ctx: &Context, skill: &Skill, width: Option<usize>) -> String {
    let requirements = Requirements::new(&ctx.env);
    let says = &skill.says;
    let some = |text: &Option<String>| text.clone().unwrap_or_default();
    let place = match skill.source {
        Source::BuiltIn => "built-in".to_owned(),
        _ => format!(
            "{}: {}",
            origin(ctx, &skill.source),
            ctx.paths.display(&skill.location)
        ),
    };
    let (files, trouble) = match entries(skill) {
        Ok(files) => (files, None),
        Err(error) => (Vec::new(), Some(format!("{error:#}"))),
    };
    let mut tools = says.allowed_tools.join(" ");
    if !tools.is_empty() {
        tools.push_str(" (grants nothing)");
    }
    let metadata = match &says.metadata {
        Value::Null => String::new(),
        metadata => metadata.to_string(),
    };
    let rows = [
        ("name", skill.name.clone()),
        ("about", skill.description.clone()),
        ("from", place),
        ("state", state(skill)),
        ("tokens", tokens(skill).to_string()),
        ("needs", skill.needs.words(&requirements).join(", ")),
        ("install", skill.needs.install.join("; ")),
        ("license", some(&says.license)),
        ("for", some(&says.compatibility)),
        ("tools", tools),
        ("metadata", metadata),
        (
            "files",
            files.iter().map(entry_line).collect::<Vec<_>>().join("\n"),
        ),
        (
            "warnings",
            skill
                .warnings
                .iter()
                .cloned()
                .chain(trouble)
                .collect::<Vec<_>>()
                .join("\n"),
        ),
    ];
    format!("{}\n{}\n", rows_of(&rows, width), harmless(&skill.body))
}

fn object(ctx: &Context, skill: &Skill) -> Value {
    let files = entries(skill).unwrap_or_default();
    let files: Vec<Value> = files
        .iter()
        .map(|entry| match &entry.kind {
            Kind::Folder => json!({ "path": entry.path, "kind": "folder" }),
            Kind::File { size, is_executable } => {
                json!({ "path": entry.path, "kind": "file", "bytes": size, "executable": is_executable })
            }
            Kind::Link { target, .. } => json!({ "path": entry.path, "kind": "link", "target": target }),
            Kind::Other(_) => json!({ "path": entry.path, "kind": "other" }),
        })
        .collect();
    json!({
        "name": skill.name, "description": skill.description, "source": origin_json(&skill.source),
        "location": skill.location, "available": skill.is_available(), "offered": skill.is_offered,
        "always": skill.always, "missing": skill.missing,
        "needs": skill.needs.words(&Requirements::new(&ctx.env)), "install": skill.needs.install,
        "license": skill.says.license, "compatibility": skill.says.compatibility,
        "allowed_tools": skill.says.allowed_tools, "metadata": skill.says.metadata,
        "user_invocable": skill.says.is_for_people, "tokens": tokens(skill), "files": files,
        "warnings": skill.warnings, "body": skill.body,
    })
}

/// Reads one of the skill's files. Links and paths cannot lead out of its folder.
fn content(skill: &Skill, file: &str) -> Result<Vec<u8>> {
    let none = || {
        let cause = format!("skill `{}` has no file `{}`", skill.name, harmless(file));
        fail_hint(
            Exit::NoInput,
            cause,
            format!("nanobot skill show {}", skill.name),
        )
    };
    if let (Source::BuiltIn, Some(built_in)) = (&skill.source, BuiltIn::named(&skill.name)) {
        return Ok(built_in.file(file).ok_or_else(none)?.as_bytes().to_vec());
    }
    let folder = skill.location.parent().unwrap_or(Path::new(""));
    let what = || format!("read `{}`", folder.join(file).display());
    let root = Root::open(folder).with_context(what)?;
    let opened = match root.read(Path::new(file)) {
        Ok(opened) => opened,
        Err(error) if beneath::is_link(&error) => {
            return Err(fail(
                Exit::Failed,
                format!(
                    "`{}` is a symbolic link, which is not followed",
                    harmless(file)
                ),
            ));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(none()),
        Err(error) => return Err(error).with_context(what),
    };
    if !opened.metadata().with_context(what)?.is_file() {
        return Err(none());
    }
    let mut bytes = Vec::new();
    opened
        .take(FILE)
        .read_to_end(&mut bytes)
        .with_context(what)?;
    Ok(bytes)
}
