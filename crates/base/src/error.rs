//! Exit statuses, and errors that carry one.
//!
//! [`Exit`] is the single table of statuses; help, man page, README and the result object are generated from it.
//! Failures are `anyhow::Error` values. A [`HintedError`] in the chain sets the status and suggests the next step.
//! Without one, an I/O error in the chain gives [`Exit::Io`]; any other error gives [`Exit::Failed`].

use std::fmt;
use std::io;

/// Exit status of a run, which identifies the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Answered = 0,
    Failed = 1,
    Usage = 2,
    Limit = 3,
    Budget = 4,
    Denied = 5,
    BadInput = 65,
    NoInput = 66,
    Unavailable = 69,
    Defect = 70,
    Io = 74,
    TryAgain = 75,
    Refused = 77,
    Config = 78,
    Timeout = 124,
    NoSandbox = 126,
    HangUp = 129,
    Interrupted = 130,
    Terminated = 143,
}

impl Exit {
    /// Every status, in numeric order.
    pub const ALL: [Self; 19] = [
        Self::Answered,
        Self::Failed,
        Self::Usage,
        Self::Limit,
        Self::Budget,
        Self::Denied,
        Self::BadInput,
        Self::NoInput,
        Self::Unavailable,
        Self::Defect,
        Self::Io,
        Self::TryAgain,
        Self::Refused,
        Self::Config,
        Self::Timeout,
        Self::NoSandbox,
        Self::HangUp,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The status as a number, 0 to 255.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The status with number `code`; an unknown number is [`Exit::Failed`].
    pub fn from_code(code: i32) -> Self {
        let has_code = |exit: &Self| i32::from(exit.code()) == code;
        Self::ALL.into_iter().find(has_code).unwrap_or(Self::Failed)
    }

    /// True if the same run may succeed later: the provider is down or busy, or something is locked.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Unavailable | Self::TryAgain)
    }

    /// The status among `causes` that a run with several failures ends with; `None` if none of them has a rank.
    pub fn most_important(causes: &[Self]) -> Option<Self> {
        const PRECEDENCE: [Exit; 9] = [
            Exit::Io,
            Exit::Config,
            Exit::Refused,
            Exit::Unavailable,
            Exit::TryAgain,
            Exit::BadInput,
            Exit::Failed,
            Exit::Budget,
            Exit::Denied,
        ];
        PRECEDENCE.into_iter().find(|exit| causes.contains(exit))
    }

    /// The name used in `--json` and in the log, stable across releases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Limit => "limit",
            Self::Budget => "budget",
            Self::Denied => "denied",
            Self::BadInput => "bad_input",
            Self::NoInput => "no_input",
            Self::Unavailable => "unavailable",
            Self::Defect => "defect",
            Self::Io => "io",
            Self::TryAgain => "try_again",
            Self::Refused => "refused",
            Self::Config => "config",
            Self::Timeout => "timeout",
            Self::NoSandbox => "no_sandbox",
            Self::HangUp => "hang_up",
            Self::Interrupted => "interrupted",
            Self::Terminated => "terminated",
        }
    }

    /// The cause in words, as printed in help, man page and README.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Answered => "answered, or the reader closed stdout",
            Self::Failed => "any other failure, or an empty answer of the model",
            Self::Usage => "usage error",
            Self::Limit => "stopped by a limit of requests, output or rounds, or a failing call",
            Self::Budget => "stopped by a budget of money or tokens",
            Self::Denied => "answered, but a tool call was denied (with --strict)",
            Self::BadInput => "unusable or too long input, or no answer matched --schema",
            Self::NoInput => "no message, or a named file or session is missing",
            Self::Unavailable => "provider or network unavailable after all retries",
            Self::Defect => "internal error, a bug in nanobot; please report it",
            Self::Io => "I/O error, for example a full disk",
            Self::TryAgain => "try again later: rate limit, or the session is busy",
            Self::Refused => "API key rejected, or the policy forbids the run",
            Self::Config => "invalid config, or missing API key",
            Self::Timeout => "--timeout expired",
            Self::NoSandbox => "a sandbox is required but not available",
            Self::HangUp => "hang-up",
            Self::Interrupted => "interrupted, for example by Ctrl-C",
            Self::Terminated => "terminated",
        }
    }
}

/// An error with its exit status and an optional hint about the next step.
///
/// The hint is kept apart from the cause so that the two are never joined into one string.
#[derive(Debug)]
pub struct HintedError {
    pub exit: Exit,
    pub cause: String,
    pub hint: Option<String>,
    /// The parts of the hint.
    pub hint_parts: Vec<HintPart>,
    /// The step that the hint proposes, if callers replace it by one that fits their situation.
    pub next_step: Option<NextStep>,
}

/// A part of a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintPart {
    Text(String),
    Action(UserAction),
}

/// Something that a user does in one way on the command line, and in another way in a conversation. Its text is that of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAction {
    ResumeTurn,
    StartConversation,
    RepeatLater,
    SendMessage,
    ListSessions,
    ListSkills,
    ListModels,
    /// `nanobot undo` with these arguments.
    Undo(String),
    PlayDemo,
}

impl fmt::Display for UserAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ResumeTurn => "`nanobot agent --resume`",
            Self::StartConversation => "`--new`",
            Self::RepeatLater => "the same command again later",
            Self::SendMessage => "a new message with `-m`",
            Self::ListSessions => "`nanobot session list`",
            Self::ListSkills => "nanobot skill list",
            Self::ListModels => "`nanobot model list --remote`",
            Self::Undo(arguments) => return write!(f, "`nanobot undo {arguments}`"),
            Self::PlayDemo => "--replay demo",
        })
    }
}

impl fmt::Display for HintPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Action(action) => write!(f, "{action}"),
        }
    }
}

impl From<&str> for HintPart {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for HintPart {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<UserAction> for HintPart {
    fn from(action: UserAction) -> Self {
        Self::Action(action)
    }
}

/// A next step that callers adapt to their situation. Its text is the hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// A higher budget of the run, by this flag.
    RaiseBudget(&'static str),
    /// Less input: the context window is full.
    ShortenInput,
    /// The flag that permits what was denied.
    GrantFlag(String),
    /// The grant of a host, with its port unless it is the default of its scheme.
    GrantHost(String),
    /// An entry of this list in the config.
    AddToConfig(&'static str),
}

impl NextStep {
    /// Its text.
    fn parts(&self) -> Vec<HintPart> {
        let text = match self {
            Self::RaiseBudget(flag) => format!("a higher `{flag}`"),
            Self::ShortenInput => {
                return vec![
                    "a shorter input, ".into(),
                    UserAction::StartConversation.into(),
                    ", or a model with a larger context window".into(),
                ];
            }
            Self::GrantFlag(flag) => format!("`{flag}`"),
            Self::GrantHost(host) => format!("--net={host}"),
            Self::AddToConfig(key) => (*key).to_owned(),
        };
        vec![text.into()]
    }
}

impl fmt::Display for HintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for HintedError {}

/// Creates an error with status `exit` and message `cause`.
pub fn fail(exit: Exit, cause: impl Into<String>) -> anyhow::Error {
    new_error(exit, cause.into(), Vec::new(), None)
}

fn new_error(
    exit: Exit,
    cause: String,
    hint_parts: Vec<HintPart>,
    next_step: Option<NextStep>,
) -> anyhow::Error {
    let hint = hint_parts.iter().map(ToString::to_string).collect::<String>();
    let hint = (!hint_parts.is_empty()).then_some(hint);
    anyhow::Error::new(HintedError { exit, cause, hint, hint_parts, next_step })
}

/// Adds a hint to an error of [`fail`]: a command, or a short sentence without a full stop.
pub trait WithHint {
    #[must_use]
    fn with_hint(self, hint: impl Into<String>) -> Self;
}

impl WithHint for anyhow::Error {
    fn with_hint(self, hint: impl Into<String>) -> Self {
        let (exit, cause) = match self.downcast::<HintedError>() {
            Ok(error) => (error.exit, error.cause),
            Err(error) => (exit_for(&error), format!("{error:#}")),
        };
        new_error(exit, cause, vec![HintPart::Text(hint.into())], None)
    }
}

/// Creates an error like [`fail`], with a hint of these parts. Without parts, there is no hint.
pub fn fail_with_parts(
    exit: Exit,
    cause: impl Into<String>,
    parts: impl IntoIterator<Item = HintPart>,
) -> anyhow::Error {
    new_error(exit, cause.into(), parts.into_iter().collect(), None)
}

/// Creates an error like [`fail`]. Its hint is the text of `step`.
pub fn fail_with_step(exit: Exit, cause: impl Into<String>, step: NextStep) -> anyhow::Error {
    new_error(exit, cause.into(), step.parts(), Some(step))
}

/// Adapts `error` for an operation outside a turn: prefixes it with `operation`, and replaces a hint to shorten the input,
/// which does not apply there.
pub fn outside_turn(error: anyhow::Error, operation: &str) -> anyhow::Error {
    if error.is::<Stop>() {
        return error;
    }
    let exit = exit_for(&error);
    let cause = format!("{operation}: {error:#}");
    match next_step(&error) {
        Some(NextStep::ShortenInput) => fail(exit, cause).with_hint("again later"),
        Some(step) => fail_with_step(exit, cause, step.clone()),
        None => fail_with_parts(exit, cause, hint_parts(&error)),
    }
}

/// A stop that was requested from outside: a closed pipe, a signal, the end of `--timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop(pub Exit);

impl Stop {
    /// True unless the cause is `--timeout`: only a timeout must still be reported to the user.
    pub fn is_silent(self) -> bool {
        self.0 != Exit::Timeout
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Exit::Answered => "standard output was closed",
            Exit::Timeout => "stopped: `--timeout` expired",
            Exit::Defect => "internal error",
            other => other.name(),
        })
    }
}

impl std::error::Error for Stop {}

/// The exit status for `error`.
pub fn exit_for(error: &anyhow::Error) -> Exit {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return stop.0;
    }
    if let Some(hinted) = error.downcast_ref::<HintedError>() {
        return hinted.exit;
    }
    match error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()) {
        Some(_) => Exit::Io,
        None => Exit::Failed,
    }
}

/// The hint that `error` carries.
pub fn hint_for(error: &anyhow::Error) -> Option<&str> {
    if error.downcast_ref::<Stop>() == Some(&Stop(Exit::Timeout)) {
        return Some("a longer `--timeout`");
    }
    error.downcast_ref::<HintedError>()?.hint.as_deref()
}

/// The parts of the hint that `error` carries; none without a hint.
pub fn hint_parts(error: &anyhow::Error) -> Vec<HintPart> {
    match error.downcast_ref::<HintedError>() {
        Some(hinted) => hinted.hint_parts.clone(),
        None => hint_for(error).map(HintPart::from).into_iter().collect(),
    }
}

/// The step that the hint of `error` proposes, if it is one that callers adapt.
pub fn next_step(error: &anyhow::Error) -> Option<&NextStep> {
    error.downcast_ref::<HintedError>()?.next_step.as_ref()
}

#[cfg(test)]
mod tests {
    use super::{
        Exit, HintPart, HintedError, UserAction, WithHint as _, exit_for, fail, fail_with_parts,
        hint_for, hint_parts, outside_turn,
    };
    use anyhow::Context;

    #[test]
    fn names_and_numbers_are_unique_and_sorted() {
        for pair in Exit::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code());
            assert_ne!(pair[0].name(), pair[1].name());
        }
    }

    #[test]
    fn status_and_hint_survive_context() {
        let error = Err::<(), _>(fail(Exit::Config, "no key").with_hint("nanobot onboard"))
            .context("read config")
            .unwrap_err();
        assert_eq!(exit_for(&error), Exit::Config);
        assert_eq!(hint_for(&error), Some("nanobot onboard"));
        assert_eq!(format!("{error:#}"), "read config: no key");
        assert!(error.downcast_ref::<HintedError>().is_some());
    }

    #[test]
    fn a_hint_keeps_its_actions() {
        let parts: [HintPart; 2] = [UserAction::RepeatLater.into(), ", or never".into()];
        let error = fail_with_parts(Exit::TryAgain, "busy", parts.clone());
        assert_eq!(hint_for(&error), Some("the same command again later, or never"));
        let error = outside_turn(error, "summarize");
        assert_eq!(hint_parts(&error), parts);
        let error = outside_turn(fail(Exit::Failed, "no"), "summarize");
        assert_eq!(hint_for(&error), None);
    }

    #[test]
    fn an_io_error_has_its_own_status() {
        let error = anyhow::Error::new(std::io::Error::other("x")).context("append");
        assert_eq!(exit_for(&error), Exit::Io);
        assert_eq!(exit_for(&anyhow::anyhow!("x")), Exit::Failed);
    }
}
