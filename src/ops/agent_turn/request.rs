//! The request of a turn: its settings, its schema, and its message of text, piped input and attachments.

use super::source::{AttachedContent, TurnSource};
use crate::ops::context::Context;
use crate::ops::default_session::{default_session_key, fresh_session_key, last_session_key};
use crate::ops::media_service::MediaAccount;
use crate::ops::model;
use crate::ops::permissions::{self, WorkspacePlace};
use crate::ops::server_content::{ServerContent, ServerResource};
use crate::ops::server_files;
use crate::ops::server_prompts::ServerPrompt;
use crate::ops::skills;
use crate::ops::transcription;
use crate::ops::turn_setup::setup_input::PromptRequest;
use crate::options::model::CacheTime;
use crate::options::turn::{PromptOptions, TurnOptions};
use anyhow::Result;
use nanobot_agent::answer_schema::AnswerSchema;
use nanobot_agent::prompt;
use nanobot_agent::report::Reporter;
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_base::message::user_text::{OthersContent, UserText};
use nanobot_base::message::{MessagePart, Origin};
use nanobot_config::policy::file_scope::{FileAccess, FileScope};
use nanobot_config::policy::profile::Profile;
use nanobot_config::settings::Settings;
use nanobot_model::ledger::CallPurpose;
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use nanobot_os::input::{self, StdinMode};
use nanobot_os::secret::random_hex;
use nanobot_tool::attach::{
    self, AcceptedInputs, AttachOptions, AttachmentOrigin, ImageLimits, SoundRecording,
};
use std::path::Path;
use std::sync::Arc;

/// Upper limit of the configured wait for standard input, in seconds: one day.
const MAX_IDLE_SECS: u64 = 86_400;

/// A turn's request, before its session is opened.
pub(crate) struct TurnRequest {
    pub(crate) settings: Arc<Settings>,
    pub(crate) profile: Profile,
    pub(crate) prompt: PromptRequest,
    /// The schema that the answer must satisfy.
    pub(crate) schema: Option<AnswerSchema>,
    /// The message; empty if there is none.
    pub(crate) parts: Vec<MessagePart>,
    /// Its text without attachments, with the authors of all parts.
    pub(crate) text: UserText,
    /// Content of MCP servers that the message names. It is read when the turn has its servers.
    pub(crate) server_content: ServerContent,
    /// The command, if the message is one.
    pub(crate) command: Option<TurnCommand>,
    /// The session's key.
    pub(crate) key: String,
}

/// A message of a command line or an editor that is a command, such as `/compact`. The names are those of the Python program. Piped
/// text never is a command. In chats, [`crate::ops::inbound::chat_command::ChatCommand`] comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TurnCommand {
    /// `/help`
    Help,
    /// `/new`
    New,
    /// `/stop`
    Stop,
    /// `/compact`, with instructions for the summary.
    Compact(Option<String>),
}

impl TurnCommand {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "/help" => return Some(Self::Help),
            "/new" => return Some(Self::New),
            "/stop" => return Some(Self::Stop),
            _ => {}
        }
        let instructions = text.strip_prefix("/compact")?;
        let is_whole_word =
            instructions.is_empty() || instructions.starts_with(char::is_whitespace);
        let instructions = instructions.trim();
        is_whole_word
            .then(|| Self::Compact((!instructions.is_empty()).then(|| instructions.to_owned())))
    }
}

/// Reads the whole request. Reads standard input to its end.
pub(crate) fn read(
    ctx: &Context,
    options: &TurnOptions,
    source: &mut TurnSource<'_>,
    reporter: &mut Reporter,
) -> Result<TurnRequest> {
    let prompt_file_options = read_prompt_file(options, reporter)?;
    let options = prompt_file_options.as_ref().unwrap_or(options);
    let schema = options.schema.as_deref();
    let schema = schema.map(|text| read_schema(ctx, text, reporter)).transpose()?;
    let piped = match source {
        TurnSource::Job(job) => job.extra_input.take(),
        TurnSource::CommandLine => read_piped(ctx, options, reporter)?,
        TurnSource::Interactive(context) => context.extra_input.take(),
        TurnSource::Chat(_) => None,
    };
    let job = source.job();
    let prompt = read_prompt_options(ctx, &options.prompt)?;
    let (mut settings, profile) = run_settings(ctx, options, prompt.is_bare)?;
    if let Some(path) = &settings.event_log {
        reporter.log_to(path);
    }
    if matches!(source, TurnSource::CommandLine) {
        warn_of_config(&settings, reporter);
    }
    let key = session_key(ctx, &settings, options, piped.is_some())?;
    reporter.envelope.session.clone_from(&key);
    if options.model.cache == Some(CacheTime::Hour) {
        let cache_key = hour_cache_key(&key);
        for model_settings in &mut settings.models {
            model_settings.hour_cache_key = Some(cache_key.clone());
        }
    }
    let expanded_options = match source {
        TurnSource::CommandLine => expand_slash(ctx, options, &settings)?,
        TurnSource::Job(_) | TurnSource::Interactive(_) | TurnSource::Chat(_) => None,
    };
    let options = expanded_options.as_ref().unwrap_or(options);
    let purpose = source.call_purpose(&key, &reporter.envelope.turn);
    // Only the files of a directory are not named by the user, so that rules decide about them.
    let has_directory = options.input.attach.iter().any(|source| Path::new(source).is_dir());
    let workspace = has_directory.then(|| WorkspacePlace::find(&settings.workspace));
    let policy = workspace.map(|workspace| {
        permissions::build_policy(ctx, &options.grants, &settings, &profile, &workspace)
    });
    let content = MessageContent {
        piped,
        attached: source.attached(),
        file_scope: policy.transpose()?.map(|policy| policy.file_scope),
    };
    let (parts, text) = build_message(ctx, options, &settings, &purpose, content, reporter)?;
    let server_content = server_content_of(options, &settings, source);
    let command = match parts.as_slice() {
        [MessagePart::Text(message)]
            if options.input.message.is_some()
                && server_content.is_empty()
                && options.input.prompt_file.is_none()
                && job.is_none()
                && text.is_own() =>
        {
            TurnCommand::parse(message.trim())
        }
        _ => None,
    };
    Ok(TurnRequest {
        settings: Arc::new(settings),
        profile,
        prompt,
        schema,
        parts,
        text,
        server_content,
        command,
        key,
    })
}

/// Returns the content of MCP servers that these options name: attachments, and a prompt if a person wrote the message.
fn server_content_of(
    options: &TurnOptions,
    settings: &Settings,
    source: &TurnSource<'_>,
) -> ServerContent {
    let resources = options.input.attach.iter().filter_map(|name| ServerResource::parse(name));
    let message = options.input.message.as_ref();
    let is_of_person = source.job().is_none() && options.input.prompt_file.is_none();
    let message = message.filter(|message| is_of_person && message.is_own());
    ServerContent {
        resources: resources.collect(),
        prompt: message.and_then(|message| ServerPrompt::parse(settings, message)),
    }
}

/// The options with a request to use a skill in place of the message `/NAME`, if the run has such a skill.
fn expand_slash(
    ctx: &Context,
    options: &TurnOptions,
    settings: &Settings,
) -> Result<Option<TurnOptions>> {
    let directory = options.grants.directory.as_deref().unwrap_or(Path::new("."));
    let message = match &options.input.message {
        Some(message)
            if options.input.prompt_file.is_none() && !options.prompt.bare && message.is_own() =>
        {
            message
        }
        _ => return Ok(None),
    };
    let expanded = skills::expand_slash(ctx, settings, directory, message)?;
    Ok(expanded.map(|message| {
        let mut options = options.clone();
        options.input.set_typed_message(&message);
        options
    }))
}

/// The settings and the profile of a run, whose options may add MCP servers. A bare run has none of the config, and only the hooks
/// that no run does without.
fn run_settings(
    ctx: &Context,
    options: &TurnOptions,
    is_bare: bool,
) -> Result<(Settings, Profile)> {
    let (mut settings, profile) =
        permissions::settings_with_profile(ctx, &options.grants, options.model.overrides())?;
    if is_bare {
        settings.servers.clear();
        if let Ok(hooks) = &mut settings.hooks {
            hooks.commands.retain(|hook| hook.is_strict);
        }
    }
    server_files::add_to(ctx, &options.server_files, &mut settings)?;
    for server in &options.servers {
        if !settings.servers.iter().any(|configured| configured.name == server.name) {
            settings.servers.push(server.clone());
        }
    }
    Ok((settings, profile))
}

/// Warns of unknown keys, and of a config that others can change.
fn warn_of_config(settings: &Settings, reporter: &mut Reporter) {
    if !settings.unknown_keys.is_empty() {
        let keys = settings.unknown_keys.join("`, `");
        reporter.notice(&format!(
            "the config has unknown keys: `{keys}`, misspelt or of a newer nanobot; `nanobot config check` shows their positions"
        ));
    }
    if let Some(exposure) = &settings.config_exposure {
        reporter.notice(&format!("the config decides what runs, and {exposure}"));
    }
}

/// Reads the texts of the system prompt that the flags give.
fn read_prompt_options(ctx: &Context, options: &PromptOptions) -> Result<PromptRequest> {
    let read = |text: &String| match text.strip_prefix('@') {
        None => Ok(text.clone()),
        Some(path) => {
            let bytes = durable_file::read(&ctx.paths.expand(path))?;
            let bytes =
                bytes.ok_or_else(|| fail(Exit::NoInput, format!("there is no file `{path}`")))?;
            String::from_utf8(bytes)
                .map_err(|_| fail(Exit::BadInput, format!("`{path}` is not UTF-8")))
        }
    };
    Ok(PromptRequest {
        is_bare: options.bare,
        own_text: options.system.as_ref().map(read).transpose()?,
        added_text: options.append_system.as_ref().map(read).transpose()?,
        skills: options.skills.clone(),
    })
}

/// The name that the provider's cache gets for the session `key`, which may hold the name of a person. Filters have a fresh session
/// each, and share one name.
fn hour_cache_key(key: &str) -> String {
    let is_fresh = ["pipe:", "fork:"].into_iter().find(|prefix| key.starts_with(prefix));
    format!("nanobot-{}", digest(is_fresh.unwrap_or(key).as_bytes()))
}

/// The key of the session of a bare run, which stores nothing.
const BARE_SESSION: &str = "bare";

/// The key of the turn's session. Piped input gets a fresh one, so filters neither share nor grow a history.
fn session_key(
    ctx: &Context,
    settings: &Settings,
    options: &TurnOptions,
    is_piped: bool,
) -> Result<String> {
    Ok(match (&options.session.key, &options.session.fork) {
        (Some(key), _) => key.clone(),
        _ if options.prompt.bare => BARE_SESSION.to_owned(),
        (None, Some(_)) => format!("fork:{}", random_hex(4)),
        (None, None) if options.session.last => last_session_key(ctx, settings)?,
        (None, None) if is_piped && !options.session.resume => fresh_session_key(),
        (None, None) => default_session_key(ctx, settings, options.grants.directory.as_deref()),
    })
}

/// The options with the text of the prompt file in the message, if there is such a file.
fn read_prompt_file(options: &TurnOptions, reporter: &mut Reporter) -> Result<Option<TurnOptions>> {
    let Some(path) = &options.input.prompt_file else {
        return Ok(None);
    };
    let name = path.display().to_string();
    let decoded = input::read_text(path, &name, input::MAX_STDIN_BYTES)?;
    decoded.notice.iter().for_each(|text| reporter.notice(text));
    let prompt = decoded.text.trim_end();
    if prompt.trim().is_empty() {
        return Err(fail(Exit::NoInput, format!("`{name}` is empty")));
    }
    let prompt = UserText::typed(prompt);
    let (message, stdin) = match &options.input.message {
        None => (prompt, options.stdin.stdin),
        Some(message) if &**message == "-" => (prompt, true),
        Some(message) => {
            let mut message = message.clone();
            message.push_paragraph(&prompt);
            (message, options.stdin.stdin)
        }
    };
    let mut options = options.clone();
    options.input.message = Some(message);
    options.stdin.stdin = stdin;
    Ok(Some(options))
}

/// Reads the schema from the file named `text`, or from `text` itself.
fn read_schema(ctx: &Context, text: &str, reporter: &mut Reporter) -> Result<AnswerSchema> {
    let path = &ctx.paths.expand(text);
    // A pipe, as from `<(…)`, is read too.
    if text.trim_start().starts_with('{') || !path.exists() || path.is_dir() {
        return AnswerSchema::parse(text);
    }
    let decoded = input::read_text(path, text, input::MAX_STDIN_BYTES)?;
    decoded.notice.iter().for_each(|text| reporter.notice(text));
    AnswerSchema::parse(&decoded.text)
}

fn read_piped(
    ctx: &Context,
    options: &TurnOptions,
    reporter: &mut Reporter,
) -> Result<Option<Vec<u8>>> {
    let is_disabled = options.stdin.no_stdin
        || (ctx.env.get(nanobot_os::env::STDIN) == Some("never") && !options.stdin.stdin);
    let is_stdin_message = options.input.message.as_deref() == Some("-");
    let mode = if attaches_stdin(options)? || options.stdin.stdin || is_stdin_message {
        StdinMode::Always
    } else if is_disabled {
        StdinMode::Never
    } else {
        StdinMode::Auto
    };
    let idle_timeout = ctx.env.duration(
        nanobot_os::env::STDIN_TIMEOUT,
        input::DEFAULT_IDLE_TIMEOUT,
        MAX_IDLE_SECS,
    )?;
    let piped = input::read_stdin(mode, idle_timeout, &mut |text| reporter.notice(text))?;
    let (cause, hint) = match &piped {
        Some(bytes) if bytes.is_empty() => (
            "standard input is empty",
            "the command before the pipe alone, to see why it prints nothing, or no `--require-input`",
        ),
        None => (
            "there is no standard input",
            "`COMMAND | nanobot agent …`, or `nanobot agent … < FILE`, or no `--require-input`",
        ),
        Some(_) => return Ok(piped),
    };
    if options.stdin.require_input {
        return Err(fail(Exit::NoInput, cause).with_hint(hint));
    }
    if options.input.message.is_none()
        && (options.session.resume || !options.input.attach.is_empty())
    {
        // The request needs no text. Cron, ssh and other programs start it with an empty pipe.
        return Ok(None);
    }
    if piped.is_some() && options.input.message.as_deref().is_some_and(|text| text != "-") {
        reporter.notice(&format!(
            "{cause}; `--no-stdin` ignores it, `--require-input` makes this an error"
        ));
    }
    Ok(piped)
}

/// True if standard input is an attachment, and therefore not part of the message.
fn attaches_stdin(options: &TurnOptions) -> Result<bool> {
    let stdin_count = options.input.attach.iter().filter(|source| *source == "-").count();
    let cause = match stdin_count {
        0 => return Ok(false),
        1 if options.stdin.no_stdin => {
            "`--attach -` reads standard input, which `--no-stdin` disables"
        }
        1 if options.input.message.as_deref().is_none_or(|text| text == "-") => {
            "`--attach -` reads standard input, so the message must be given with `-m`"
        }
        1 => return Ok(true),
        _ => "standard input can be attached only once",
    };
    Err(fail(Exit::Usage, cause))
}

/// The text of a recording in a run that sends nothing.
const NOT_TRANSCRIBED: &str = "(not transcribed in this run, which sends nothing)";

/// The content that comes with the words of a message.
struct MessageContent<'a> {
    piped: Option<Vec<u8>>,
    attached: &'a [AttachedContent],
    /// The rules about the files of attached directories, if there are any.
    file_scope: Option<FileScope>,
}

/// The turn's message: images and documents first, then one text that includes all text attachments. Returns the text
/// without attachments too, with the authors of all.
fn build_message(
    ctx: &Context,
    options: &TurnOptions,
    settings: &Settings,
    purpose: &CallPurpose,
    content: MessageContent<'_>,
    reporter: &mut Reporter,
) -> Result<(Vec<MessagePart>, UserText)> {
    let MessageContent { piped, attached, file_scope } = content;
    let is_closed = |path: &Path| {
        let scope = file_scope.as_ref();
        scope.is_some_and(|scope| scope.find_denial(path, FileAccess::Read).is_some())
    };
    // Binary content is detected by its first bytes. The model's accepted types matter only for such content.
    let is_text = |bytes: &[u8]| {
        input::image_type(bytes).is_none()
            && !bytes.starts_with(b"%PDF-")
            && SoundRecording::find(bytes).is_none()
    };
    let has_media = !options.input.attach.is_empty() || !attached.is_empty();
    let (accepts, image_limits) = if !has_media && piped.as_deref().is_none_or(is_text) {
        (AcceptedInputs::default(), ImageLimits::default())
    } else {
        model::accepted_attachments(ctx, settings)
    };
    let transcribe = |recording: &SoundRecording<'_>| {
        if options.recording.is_dry_run_or_replay() {
            return Ok(NOT_TRANSCRIBED.to_owned());
        }
        let media_account = MediaAccount { purpose: purpose.clone(), run: None };
        transcription::transcribe_file(
            ctx,
            settings,
            options.limits.offline,
            media_account,
            recording,
        )
    };
    let attach_options = AttachOptions {
        accepts,
        image_limits,
        network: (!options.limits.offline).then_some(&settings.network),
        transcribe: Some(&transcribe),
        env: &ctx.env,
    };
    let mut notice = |text: &str| reporter.notice(text);
    let (piped, mut attached_stdin) =
        if attaches_stdin(options)? { (None, piped) } else { (piped, None) };
    let PipedContent { media, text: piped_text } =
        read_piped_content(piped, &attach_options, &mut notice)?;
    let mut text = message_text(options.input.message.as_ref(), piped_text.as_deref())?;
    if media.is_some() {
        text.raise(OthersContent::new(Origin::Project, "piped input"));
    }
    let mut parts = Vec::new();
    if !text.trim().is_empty() {
        parts.push(MessagePart::Text(text.as_str().to_owned()));
    }
    parts.extend(media);
    for source in &options.input.attach {
        if ServerResource::parse(source).is_some() {
            continue;
        }
        text.raise(if source == "-" {
            OthersContent::new(Origin::Project, "piped input")
        } else if attach::is_page(source) {
            OthersContent::new(Origin::External, "an attached page")
        } else if Path::new(source).is_dir() {
            OthersContent::new(Origin::Project, "an attached directory")
        } else {
            OthersContent::new(Origin::Project, "an attached file")
        });
        parts.push(match attached_stdin.take_if(|_| source == "-") {
            Some(bytes) => attach::part_from_bytes(
                bytes,
                AttachmentOrigin::Stdin,
                &attach_options,
                &mut notice,
            )?,
            None => attach::read(source, &attach_options, &is_closed, &mut notice)?,
        });
    }
    for content in attached {
        let (origin, others_content) = if content.is_external {
            (
                AttachmentOrigin::Page(&content.name),
                OthersContent::new(Origin::External, "an attached page"),
            )
        } else {
            (
                AttachmentOrigin::File(&content.name),
                OthersContent::new(Origin::Project, "an attached file"),
            )
        };
        text.raise(others_content);
        let path = content.path.as_deref();
        parts.push(attach::part_from_file(
            content.bytes.clone(),
            path,
            origin,
            &attach_options,
            &mut notice,
        )?);
    }
    Ok((with_text_last(parts), text))
}

/// Standard input as a part of the message: an image or a document, or text.
#[derive(Default)]
struct PipedContent {
    media: Option<MessagePart>,
    text: Option<String>,
}

fn read_piped_content(
    piped: Option<Vec<u8>>,
    attach_options: &AttachOptions<'_>,
    notice: &mut dyn FnMut(&str),
) -> Result<PipedContent> {
    let Some(bytes) = piped else {
        return Ok(PipedContent::default());
    };
    let media = attach::media_part(&bytes, AttachmentOrigin::Stdin, attach_options, notice)?;
    if media.is_some() {
        return Ok(PipedContent { media, text: None });
    }
    let decoded = input::decode(bytes, "standard input")?;
    decoded.notice.iter().for_each(|text| notice(text));
    Ok(PipedContent { media: None, text: Some(decoded.text) })
}

/// The message and the piped text as one text.
fn message_text(message: Option<&UserText>, piped: Option<&str>) -> Result<UserText> {
    let message = message.filter(|text| text.as_str() != "-");
    if message.is_none() && piped.is_some_and(|text| text.trim().is_empty()) {
        let hint = "a message with `-m`, or a command that prints text into the pipe";
        return Err(fail(Exit::NoInput, "standard input is empty").with_hint(hint));
    }
    Ok(prompt::with_piped(message.cloned(), piped))
}

/// Joins all texts of `parts` into one, placed after the other parts.
pub(super) fn with_text_last(parts: Vec<MessagePart>) -> Vec<MessagePart> {
    let mut reordered = Vec::new();
    let mut texts = Vec::new();
    for part in parts {
        match part {
            MessagePart::Text(text) => texts.push(text),
            media => reordered.push(media),
        }
    }
    if !texts.is_empty() {
        reordered.push(MessagePart::Text(texts.join("\n\n")));
    }
    reordered
}

#[cfg(test)]
mod tests {
    use super::TurnCommand;

    #[test]
    fn parses_turn_commands() {
        let check = |text: &str, expect| assert_eq!(TurnCommand::parse(text), expect, "{text}");
        check("/help", Some(TurnCommand::Help));
        check("/new", Some(TurnCommand::New));
        check("/new one", None);
        check("/stop", Some(TurnCommand::Stop));
        check("/stop it", None);
        check("/compact", Some(TurnCommand::Compact(None)));
        check("/compact  keep names", Some(TurnCommand::Compact(Some("keep names".into()))));
        check("/compacted", None);
        check("help", None);
    }
}
