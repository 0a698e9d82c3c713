//! Programs as channels: any program that speaks the lines of `nanobot serve pipe` on its standard streams, such as a client
//! of IRC. It runs while a poll lasts, and is supervised as MCP servers are.
//!
//! It prints messages, and reads answers and acknowledgements. It also prints an acknowledgement for each answer that it has delivered.

use super::push_poll::{FrameConnection, FrameContent, PollState, PushListener, PushService};
use super::service_client::failure;
use super::setup::ChannelSetup;
use super::{
    AttachmentKind, Channel, ChannelError, ChannelResult, Chat, Destination, Identity,
    InboundMessage, Part, PollRequest, QuotedText, RemoteFile, Sender,
};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use nanobot_os::durable_file;
use nanobot_os::secret::register;
use nanobot_sandbox::process::line_program::LineProgram;
use nanobot_sandbox::process::server::ServerSpec;
use nanobot_sandbox::process::server_environment::{build_environment, resolve_program};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

/// Maximum lines in a row that are not JSON: some programs print a greeting.
const MAX_STRAY_LINES: usize = 100;
/// Maximum characters of a text that is quoted.
const MAX_QUOTE_CHARS: usize = 2000;
/// The directory for temporary files of a program.
const TEMPORARY_DIRECTORY: &str = "/tmp";

struct ProgramChannel {
    name: &'static str,
    spec: ServerSpec,
    listener: PushListener,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if there is no such program.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    let command = config.required_text("command", "PROGRAM")?;
    // Its standard error goes to the log.
    let variables = config.secrets("env")?;
    variables.iter().for_each(|(_, secret)| register(secret));
    let inherited = setup.command_env.iter();
    let env = build_environment(
        inherited.map(|(name, value)| (name.as_str(), value.as_str())),
        &variables,
        Path::new(TEMPORARY_DIRECTORY),
    );
    let directory = setup.paths.home.clone();
    let resolved = resolve_program(&command, &env, &directory, &setup.paths);
    let program = resolved.map_err(|cause| {
        let key = format!("channels.{}.command", config.name);
        fail(Exit::Config, format!("`{key}`: {cause}")).with_hint("the whole path of the program")
    })?;
    Ok(Box::new(ProgramChannel {
        name: config.name,
        spec: ServerSpec {
            name: config.name.to_owned(),
            program,
            arguments: config.list("args"),
            directory,
            env,
            sandbox: None,
        },
        listener: PushListener::default(),
    }))
}

/// A running program.
struct ProgramConnection {
    program: LineProgram,
    name: &'static str,
}

impl FrameConnection for ProgramConnection {
    fn next_frame(&mut self, end: Duration) -> ChannelResult<Option<Value>> {
        for _ in 0..MAX_STRAY_LINES {
            let next = self.program.next_line(end);
            let Some(line) = next.map_err(|error| self.to_error(error))? else {
                return Ok(None);
            };
            let parsed = line.and_then(|line| {
                let value: Result<Value, _> = serde_json::from_slice(&line);
                value.map_err(|error| error.to_string())
            });
            match parsed {
                Ok(frame @ Value::Object(_)) => return Ok(Some(frame)),
                Ok(_) => {
                    log::warn!(target: "channel", "{}: a line is not a JSON object", self.name);
                }
                Err(cause) => {
                    log::warn!(target: "channel", "{}: a line is not JSON: {cause}", self.name);
                }
            }
        }
        let cause = "its output is not JSON";
        Err(self.to_error(anyhow::Error::msg(cause)))
    }

    fn send_frame(&mut self, frame: &Value) -> ChannelResult<()> {
        let written = self.program.write_line(&frame.to_string());
        written.map_err(|error| self.to_error(error))
    }
}

impl ProgramConnection {
    fn to_error(&self, error: anyhow::Error) -> ChannelError {
        match failure(error) {
            Ok(cause) => {
                ChannelError::Unavailable(format!("the program of {}: {cause}", self.name))
            }
            Err(error) => error,
        }
    }
}

impl PushService for ProgramChannel {
    fn connect(&self, _cache: &mut Value) -> ChannelResult<Box<dyn FrameConnection>> {
        let program = LineProgram::start(&self.spec).map_err(|error| {
            let program = self.spec.program.display();
            ChannelError::Misconfigured(format!("start `{program}`: {error}"))
        })?;
        Ok(Box::new(ProgramConnection { program, name: self.name }))
    }

    fn read_frame(&self, frame: &Value, _poll: &mut PollState<'_>) -> ChannelResult<FrameContent> {
        match frame["type"].as_str() {
            None | Some("message") => {}
            // The response to a request that has timed out.
            Some("ack" | "error") => return Ok(FrameContent::default()),
            Some(other) => {
                log::warn!(target: "channel", "{}: a line has the unknown type `{other}`", self.name);
                return Ok(FrameContent::default());
            }
        }
        let message = match to_message(frame) {
            Ok(message) => message,
            Err(cause) => {
                log::warn!(target: "channel", "{}: {cause}", self.name);
                let id = &frame["id"];
                let error_frame = json!({ "v": 1, "type": "error", "id": id, "error": cause });
                return Ok(FrameContent {
                    acknowledgement: Some(error_frame),
                    ..FrameContent::default()
                });
            }
        };
        let acknowledgement = json!({ "v": 1, "type": "ack", "id": message.id });
        Ok(FrameContent { messages: vec![message], acknowledgement: Some(acknowledgement) })
    }
}

impl Channel for ProgramChannel {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        self.listener.poll(self, request)
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        let Destination { chat, reply_facts } = destination;
        let files: Vec<_> = part.file.iter().map(|file| file.to_string_lossy()).collect();
        let request = json!({
            "v": 1, "type": "message", "id": key, "in_reply_to": reply_facts["id"],
            "channel": self.name, "chat": chat.id, "thread": chat.thread,
            "text": part.markup, "files": files, "facts": reply_facts["facts"],
        });
        let is_response = |frame: &Value| {
            frame["id"] == key && matches!(frame["type"].as_str(), Some("ack" | "error"))
        };
        let response = self.listener.request(self, &request, &is_response)?;
        if response["type"] == "ack" {
            let remote = response["remote_id"].as_str();
            return Ok(remote.unwrap_or(key).to_owned());
        }
        let cause = response["error"].as_str().unwrap_or("not delivered");
        Err(if response["retry"] == true {
            ChannelError::Unavailable(cause.to_owned())
        } else {
            ChannelError::Undeliverable(cause.to_owned())
        })
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let path = Path::new(&file.id);
        let Some(mut content) = durable_file::open_existing(path)? else {
            let cause = format!("`{}` does not exist", path.display());
            return Err(fail(Exit::NoInput, cause));
        };
        let copied = std::io::copy(&mut (&mut content).take(limit_bytes), writer);
        copied.with_context(|| format!("read `{}`", path.display()))?;
        Ok(content.read(&mut [0])? == 0)
    }

    fn identity(&self) -> Result<Identity> {
        self.listener.check(self)?;
        let program = self.spec.program.display().to_string();
        Ok(Identity { id: program.clone(), name: program })
    }
}

/// The message of a line.
///
/// # Errors
/// The reason why the line is not a message.
fn to_message(line: &Value) -> Result<InboundMessage, String> {
    let optional = |name: &str| line[name].as_str().map(str::to_owned);
    let required = |name: &str| {
        let text = optional(name).filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| format!("a message needs a text as `{name}`"))
    };
    let (id, chat, from) = (required("id")?, required("chat")?, required("from")?);
    let texts = |name: &str| items(&line[name]).filter_map(Value::as_str).map(str::to_owned);
    let files = texts("files").map(|path| {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        RemoteFile { id: path, name, kind: AttachmentKind::File, ..RemoteFile::default() }
    });
    let replied = optional("reply_to").map(|id| QuotedText::replied("", 0, Some(&id), false));
    let quotes =
        texts("quotes").map(|text| QuotedText::replied(&text, MAX_QUOTE_CHARS, None, false));
    let message = InboundMessage {
        chat: Chat { id: chat, thread: optional("thread"), is_direct: line["direct"] != false },
        from: Sender::new(&from, line["name"].as_str(), line["bot"] == true),
        text: UserText::typed(optional("text").unwrap_or_default()),
        quotes: replied.into_iter().chain(quotes).collect(),
        mentions_us: line["mention"] == true,
        files: files.collect(),
        sent_at: line["at"].as_i64().unwrap_or_default(),
        reply_facts: json!({ "id": id, "facts": line["facts"] }),
        id,
        ..InboundMessage::default()
    };
    if message.text.trim().is_empty() && message.files.is_empty() {
        Err("a message has neither `text` nor `files`".to_owned())
    } else {
        Ok(message)
    }
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(super) fn decode(value: &Value) -> Option<InboundMessage> {
    to_message(value).ok()
}

#[cfg(test)]
mod tests {
    use super::to_message;
    use serde_json::json;

    #[test]
    fn lines_are_messages_or_explained() {
        let line = json!({ "id": "1", "chat": "#c", "from": "ann", "text": "hi", "direct": false,
            "mention": true, "thread": "t", "files": ["/a/b.txt"], "facts": { "x": 1 }, "at": 5 });
        let message = to_message(&line).unwrap();
        assert!(message.mentions_us && !message.chat.is_direct);
        assert_eq!(message.chat.thread.as_deref(), Some("t"));
        assert_eq!(message.files[0].name, "b.txt");
        assert_eq!(message.reply_facts["facts"]["x"], 1);
        assert_eq!(message.sent_at, 5);
        let check = |line, expect: &str| {
            let cause = to_message(&line).unwrap_err();
            assert!(cause.contains(expect), "{cause}");
        };
        check(json!({ "chat": "c", "from": "a", "text": "x" }), "`id`");
        check(json!({ "id": "1", "from": "a", "text": "x" }), "`chat`");
        check(json!({ "id": "1", "chat": "c", "from": 3, "text": "x" }), "`from`");
        check(json!({ "id": "1", "chat": "c", "from": "a", "text": " " }), "neither");
    }
}
