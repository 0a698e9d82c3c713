//! The session of a run that names none: the configured session, which is a key or a rule that makes one.

use super::context::Context;
use super::permissions::absolute;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_channel::table;
use nanobot_config::settings::{DefaultSession, Settings};
use nanobot_os::digest::digest;
use nanobot_os::env;
use nanobot_os::secret::random_hex;
use nanobot_store::session::{self, SessionListing};
use std::path::Path;

/// Characters of the digest in the key of a directory's session: enough for the directories of one account.
const DIGEST_CHARS: usize = 8;

/// Returns the key of the session for `directory`, the directory that a flag names, or else for the current directory. The
/// environment variable takes precedence over the config.
pub(crate) fn default_session_key(
    ctx: &Context,
    settings: &Settings,
    directory: Option<&Path>,
) -> String {
    let variable = ctx.env.get(env::SESSION).filter(|key| !key.trim().is_empty());
    let rule = variable.map(|text| DefaultSession::parse(text.to_owned()));
    match rule.as_ref().unwrap_or(&settings.session) {
        DefaultSession::Key(key) => key.clone(),
        DefaultSession::Fresh => fresh_session_key(),
        DefaultSession::Directory => {
            let path = absolute(directory.unwrap_or(Path::new(".")));
            let path = std::fs::canonicalize(&path).unwrap_or(path);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let path_digest = digest(path.as_os_str().as_encoded_bytes());
            format!("cli:{name}-{}", &path_digest[..DIGEST_CHARS])
        }
    }
}

/// Returns the key of a session that only this run uses. Old sessions of this kind are removed.
pub(crate) fn fresh_session_key() -> String {
    format!("{}{}", session::FILTER_PREFIX, random_hex(6))
}

/// Returns the key of the session that was used last. Only sessions that a person began are considered. One that cannot be read is
/// reported, since it may be the one that is meant.
///
/// # Errors
/// Status 66 if there is none. The sessions cannot be listed.
pub(crate) fn last_session_key(ctx: &Context, settings: &Settings) -> Result<String> {
    let SessionListing { sessions, failures } = session::list(&ctx.session_store(settings)?)?;
    for failure in failures {
        ctx.notice(&format!("{failure:#}"));
    }
    let last = sessions.into_iter().find(|session| is_begun_by_a_person(&session.key));
    last.map(|session| session.key)
        .ok_or_else(|| fail(Exit::NoInput, "there is no session to continue"))
}

/// True if a person at a terminal begins sessions with such a key, and not a job, a chat or another program, and if it is not a conversation
/// as it was before the person went back in it.
pub(crate) fn is_begun_by_a_person(key: &str) -> bool {
    match key.split_once(':') {
        // The Python program's heartbeat has a key without a kind.
        None => key != "heartbeat",
        Some((kind, _)) => {
            let is_of_program =
                ["pipe", "rewind", "bus", "cron", "heartbeat", "acp", "mcp"].contains(&kind);
            !is_of_program && table::find(kind).is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_begun_by_a_person;

    #[test]
    fn sessions_of_persons_are_known_by_their_keys() {
        for key in ["cli:direct", "work", "email", "review:a.md", "cli:project-1234"] {
            assert!(is_begun_by_a_person(key), "{key}");
        }
        for key in
            ["pipe:1", "rewind:a-1", "bus:x", "cron:1", "heartbeat", "acp:1", "mcp:1", "telegram:7"]
        {
            assert!(!is_begun_by_a_person(key), "{key}");
        }
    }
}
