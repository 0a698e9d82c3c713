//! The session of a turn, whose key `request` has chosen: opens it, and checks that the turn can begin in it.

use super::request::{TurnCommand, TurnRequest};
use super::source::TurnSource;
use crate::ops::channel::{bindings, session_copy};
use crate::ops::context::Context;
use crate::ops::model;
use crate::options::turn::{DryRunForm, TurnOptions};
use anyhow::Result;
use nanobot_agent::report::Reporter;
use nanobot_agent::report::short_text::truncate_line;
use nanobot_base::error::{Exit, UserAction, WithHint as _, fail, fail_with_parts};
use nanobot_config::settings::Settings;
use nanobot_store::session::{self, Session, SessionStore};
use nanobot_tool::attach::{self, AttachOptions};

/// Upper limit of the images of earlier turns in a request: providers limit its size to some 20 MB, in base64.
const MAX_RESTORED_BYTES: usize = 10 << 20;
/// Characters of a message that a notice quotes.
const MAX_QUOTED_CHARS: usize = 40;

/// Checks that there is a message if the turn needs one, before a session is created, changed or waited for.
///
/// # Errors
/// The turn has nothing to send: status 66. It is resumed, and has a message: status 2.
pub(crate) fn check_message(options: &TurnOptions, request: &TurnRequest) -> Result<()> {
    let shows_context =
        matches!(options.recording.dry_run, Some(DryRunForm::Table | DryRunForm::TableJson));
    let is_empty = request.parts.is_empty() && request.server_content.is_empty();
    if is_empty && !options.session.resume && !shows_context {
        return Err(fail(Exit::NoInput, "no message")
            .with_hint("`nanobot agent -m \"…\"`, or text on standard input; `nanobot repl` for a conversation"));
    }
    if options.session.resume && !is_empty {
        return Err(fail_with_parts(
            Exit::Usage,
            "`--resume` continues a turn, and takes no message",
            [
                "`-s KEY --resume` without a message; ".into(),
                UserAction::ListSessions.into(),
                " lists the keys".into(),
            ],
        ));
    }
    Ok(())
}

/// Opens the session for the turn, with the messages that were sent to its chat meanwhile. Waits for its lock.
pub(crate) fn open(
    ctx: &Context,
    options: &TurnOptions,
    source: &TurnSource<'_>,
    request: &TurnRequest,
    sessions: &SessionStore,
    reporter: &mut Reporter,
) -> Result<Session> {
    let mut session = open_session(ctx, options, request, sessions, reporter)?;
    // An interrupted turn continues at the end of the session. Messages to a chat that is bound to another workspace belong there.
    if !options.session.resume
        && (source.chat().is_some()
            || bindings::is_of_workspace(ctx, &request.settings, session.key())?)
    {
        let chat = source.chat_key().unwrap_or(session.key()).to_owned();
        session_copy::add_sent_messages(ctx, &mut session, &chat)?;
    }
    Ok(session)
}

fn open_session(
    ctx: &Context,
    options: &TurnOptions,
    request: &TurnRequest,
    sessions: &SessionStore,
    reporter: &mut Reporter,
) -> Result<Session> {
    let key = request.key.as_str();
    // Only the lock of another run takes time here.
    let mut notice = |text: &str| {
        reporter.notice(text);
        reporter.progress.show_wait("giving up", options.session.lock_timeout);
    };
    // A replay without a session gets an empty one, which is not stored.
    let starts_empty = options.session.key.is_none()
        && (options.session.ephemeral || options.recording.replay.is_some());
    if starts_empty || options.session.ephemeral || options.recording.dry_run.is_some() {
        return match &options.session.fork {
            Some(source) => Session::read_if_exists(sessions, source, &mut notice)?
                .map(|session| session.with_key(key))
                .ok_or_else(|| session::not_found_error(sessions, source)),
            None if starts_empty => {
                Ok(Session::ephemeral(key, request.settings.max_tool_result_chars))
            }
            None => Session::read(sessions, key, &mut notice),
        };
    }
    let Some(source) = &options.session.fork else {
        return Session::open(sessions, key, options.session.lock_timeout, &mut notice);
    };
    // The same as `session fork`: the copy has the whole log, and the summary if there is one.
    session::fork(sessions, source, key, None)?;
    let session = Session::open(sessions, key, options.session.lock_timeout, &mut notice)?;
    if options.session.key.is_none() && !ctx.quiet {
        reporter.notice(&format!("copied session `{source}` to `{key}`"));
    }
    Ok(session)
}

/// Reports which conversation the turn continues, and that its last message has no answer.
pub(crate) fn announce(
    options: &TurnOptions,
    source: &TurnSource<'_>,
    request: &TurnRequest,
    session: &Session,
    reporter: &mut Reporter,
) {
    let is_shown = matches!(source, TurnSource::CommandLine) && options.recording.dry_run.is_none();
    if is_shown && !session.messages().is_empty() {
        reporter.show_continued(session.key(), session.history_window().count);
    }
    if !request.parts.is_empty() {
        report_unanswered(source, &session.unanswered_texts(&request.parts), reporter);
    }
}

/// Reports the messages without an answer that are sent too: `texts`, oldest first.
fn report_unanswered(source: &TurnSource<'_>, texts: &[String], reporter: &mut Reporter) {
    let Some((newest, earlier)) = texts.split_last() else {
        return;
    };
    let text = truncate_line(newest, MAX_QUOTED_CHARS);
    let superseded = match earlier.len() {
        0 => String::new(),
        count => format!(", and {count} before it, marked as superseded"),
    };
    reporter.notice(&match source {
        TurnSource::Interactive(_) => {
            format!("`{text}` has no saved answer and is sent too{superseded}")
        }
        _ => format!(
            "the previous message `{text}` got no answer; it is sent too, marked as interrupted{superseded}{}",
            match source {
                TurnSource::CommandLine if earlier.is_empty() => "; `--new` leaves it out",
                TurnSource::CommandLine => "; `--new` leaves them out",
                _ => "",
            }
        ),
    });
}

/// Attaches the images of earlier turns again whose files are unchanged, the newest first.
pub(crate) fn restore_images(
    ctx: &Context,
    options: &TurnOptions,
    settings: &Settings,
    session: &mut Session,
) {
    if !session.has_images() {
        return;
    }
    let (accepts, image_limits) = model::accepted_attachments(ctx, settings);
    let options = AttachOptions {
        accepts,
        image_limits,
        network: (!options.limits.offline).then_some(&settings.network),
        transcribe: None,
        env: &ctx.env,
    };
    let mut remaining_bytes = MAX_RESTORED_BYTES;
    session.restore_images(&mut |name, source| {
        let image = attach::read_image_again(name, source, &options)?;
        remaining_bytes = remaining_bytes.checked_sub(image.bytes.len())?;
        Some(image)
    });
}

/// Checks that the turn can begin in this session.
///
/// # Errors
/// It cannot: status 2 or 66.
pub(crate) fn check_session(
    options: &TurnOptions,
    request: &TurnRequest,
    session: &Session,
) -> Result<()> {
    if matches!(request.command, Some(TurnCommand::Compact(_))) && session.is_interrupted() {
        return Err(fail_with_parts(
            Exit::Usage,
            "the last turn was interrupted and must be resumed or discarded before compaction",
            [UserAction::ResumeTurn.into(), ", or ".into(), UserAction::StartConversation.into()],
        ));
    }
    if options.session.resume && !session.is_interrupted() {
        let key = session.key();
        return Err(if session.messages().is_empty() {
            fail_with_parts(
                Exit::NoInput,
                format!("session `{key}` has no messages"),
                [UserAction::ListSessions.into()],
            )
        } else {
            fail_with_parts(
                Exit::NoInput,
                format!("session `{key}` has no interrupted turn"),
                [UserAction::SendMessage.into(), ": the last turn is complete".into()],
            )
        });
    }
    Ok(())
}
