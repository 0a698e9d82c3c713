//! Finds profiles: the built-in ones and the user's own.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::policy::profile::{self, Profile};
use nanobot_os::input;
use nanobot_store::skill;

/// Maximum size of a profile in bytes.
const PROFILE_LIMIT_BYTES: usize = 1 << 20;

/// The names of all profiles: built-in ones and the user's own.
pub(crate) fn names(ctx: &Context) -> Vec<String> {
    built_in_names().chain(file_names(ctx)).collect()
}

/// The names of the built-in profiles for runs.
fn built_in_names() -> impl Iterator<Item = String> {
    let is_for_runs = |name: &str| {
        Profile::built_in(name)
            .is_some_and(|profile| profile.kind != profile::ProfileKind::Subagent)
    };
    let names = profile::BUILT_IN.iter().map(|(name, _)| *name);
    names.filter(move |name| is_for_runs(name)).map(str::to_owned)
}

/// The profile `name`, built-in or the user's own.
pub(crate) fn find(ctx: &Context, name: &str) -> Result<Option<Profile>> {
    if let Some(profile) = Profile::built_in(name) {
        let path = ctx.paths.profiles().join(format!("{name}.md"));
        return if path.exists() {
            Err(fail(Exit::Config, format!("`{}` has the name of a built-in profile and is not used", path.display()))
                .with_hint("another file name; `extends` in its front matter inherits from the built-in profile"))
        } else {
            Ok(Some(profile))
        };
    }
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    if name.starts_with('.') || !name.chars().all(is_plain) {
        return Ok(None);
    }
    let path = ctx.paths.profiles().join(format!("{name}.md"));
    if !path.is_file() {
        return Ok(None);
    }
    let file_name = path.display().to_string();
    let bytes = input::read_file(&path, &file_name, PROFILE_LIMIT_BYTES)?;
    let to_error =
        |error: String| fail(Exit::Config, format!("invalid profile `{file_name}`: {error}"));
    let text = String::from_utf8(bytes).map_err(|_| to_error("not valid UTF-8".into()))?;
    let (head, body) = skill::parse_strict(&text).map_err(to_error)?;
    Profile::parse(name, &head, &body).map(Some).map_err(to_error)
}

/// The errors of the user's profiles that cannot be used.
pub(crate) fn errors(ctx: &Context) -> Vec<anyhow::Error> {
    let mut errors = Vec::new();
    for name in file_names(ctx) {
        match find(ctx, &name) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let path = ctx.paths.profiles().join(format!("{name}.md"));
                let path = path.display();
                let cause = format!("`{path}` is not used: it is not a file with a plain name");
                errors.push(fail(Exit::Config, cause));
            }
            Err(error) => errors.push(error),
        }
    }
    errors
}

/// The names of the user's own profiles.
pub(crate) fn own_names(ctx: &Context) -> Vec<String> {
    let is_own = |name: &String| profile::BUILT_IN.iter().all(|(built_in, _)| built_in != name);
    file_names(ctx).into_iter().filter(is_own).collect()
}

/// The names of the files of profiles, sorted.
fn file_names(ctx: &Context) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(ctx.paths.profiles()) else {
        return Vec::new();
    };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_suffix(".md")?.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
