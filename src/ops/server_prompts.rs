//! Prompts of MCP servers as messages: `/SERVER:PROMPT ARGUMENTS`.
//!
//! The messages of a prompt are sent once a person has seen and accepted them, with the user's arguments left open.

use crate::ops::server_errors::{check_usable, to_failure};
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint as _, fail};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::Settings;
use nanobot_config::settings::keys::nearest;
use nanobot_config::settings::servers::McpServer;
use nanobot_mcp::catalog::ToolCatalog;
use nanobot_mcp::protocol::{ContentPart, PromptArgument, PromptInfo};
use nanobot_mcp::sanitize::{clean, single_line};
use nanobot_os::digest::digest;
use nanobot_os::secret::mask_for_request;
use serde_json::{Map, Value, json};

/// Maximum characters of a name or an address that is shown.
pub(super) const MAX_NAME_CHARS: usize = 500;
/// The longest messages of a prompt, in characters: a person reads them.
const MAX_PROMPT_CHARS: usize = 100_000;

/// A prompt of a server, with the text after its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerPrompt {
    pub(super) server: String,
    name: String,
    arguments: String,
}

impl ServerPrompt {
    /// Parses a message; `None` if it does not begin with `/SERVER:NAME` of a server of `settings`.
    pub(crate) fn parse(settings: &Settings, message: &str) -> Option<Self> {
        let (server, rest) = message.trim().strip_prefix('/')?.split_once(':')?;
        let is_server = settings.servers.iter().any(|configured| configured.name == server);
        let prompt = is_server.then(|| Self::of_server(server, rest))?;
        (!prompt.name.is_empty()).then_some(prompt)
    }

    /// The prompt of `server` that the first word of `text` names.
    pub(crate) fn of_server(server: &str, text: &str) -> Self {
        let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let arguments = arguments.trim().to_owned();
        Self { server: server.to_owned(), name: name.to_owned(), arguments }
    }

    /// The name with the arguments, as a command takes them.
    pub(super) fn to_text(&self) -> String {
        format!("{} {}", self.name, self.arguments).trim().to_owned()
    }

    /// The name of the prompt.
    pub(crate) fn name(&self) -> String {
        single_line(&self.name, MAX_NAME_CHARS)
    }

    /// The beginning of the message that uses it: `/SERVER:PROMPT`.
    pub(super) fn title(&self) -> String {
        single_line(&format!("/{}:{}", self.server, self.name), MAX_NAME_CHARS)
    }
}

/// The messages of a prompt, filled in.
pub(crate) struct FilledPrompt {
    /// The messages as one text.
    pub(crate) text: String,
    /// The digest of the text in which the arguments are open.
    pub(crate) digest: String,
    /// Its resources and images.
    pub(super) media: Vec<ContentPart>,
}

impl FilledPrompt {
    /// The text that a person is shown and accepts.
    pub(crate) fn shown_text(&self) -> String {
        match self.media.len() {
            0 => self.text.clone(),
            1 => format!("{}\n\n(and 1 resource or file, which may differ each time)", self.text),
            count => format!(
                "{}\n\n(and {count} resources or files, which may differ each time)",
                self.text
            ),
        }
    }
}

/// True if what the prompt says may be sent: a person has accepted it, or the config trusts the server.
///
/// # Errors
/// The pins cannot be read.
pub(crate) fn is_accepted(catalog: &ToolCatalog, server: &McpServer, digest: &str) -> Result<bool> {
    Ok(server.is_trusted || catalog.has_accepted_prompt(server, digest)?)
}

/// Requests the messages of a prompt.
///
/// # Errors
/// There is no such prompt: status 66. An argument is missing: status 2. It says nothing, or too much: status 65. The server does not
/// answer: status 69.
pub(crate) fn fill(
    catalog: &ToolCatalog,
    server: &McpServer,
    prompt: &ServerPrompt,
) -> Result<FilledPrompt> {
    check_usable(server)?;
    let title = prompt.title();
    let features = catalog.current_features(&server.name);
    let features = features.map_err(|error| to_failure(server, error))?;
    let info = features.prompts.iter().find(|info| info.name == prompt.name);
    let info = info.ok_or_else(|| unknown_prompt(server, prompt, &features.prompts))?;
    let values = assign(&info.arguments, &prompt.arguments).map_err(|cause| {
        let usage = usage(&server.name, info);
        fail(Exit::Usage, format!("`{title}` {cause}")).with_hint(format!("`{usage}`"))
    })?;
    let mask = |(name, value): (String, String)| (name, mask_for_request(&value).into_owned());
    let values: Vec<(String, String)> = values.into_iter().map(mask).collect();
    let arguments: Map<String, Value> =
        values.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    let answer = catalog.get_prompt(&server.name, &prompt.name, &arguments);
    let answer = answer.map_err(|error| to_failure(server, error))?;
    let (messages, media): (Vec<_>, Vec<_>) =
        answer.parts.into_iter().partition(|part| message_of(part).is_some());
    let messages: Vec<(&str, String)> = messages.iter().filter_map(message_of).collect();
    let text = match messages.as_slice() {
        [(_, text)] => text.clone(),
        messages => {
            let lines = messages.iter().map(|(role, text)| {
                let role = single_line(role, MAX_NAME_CHARS);
                format!("{role}: {text}")
            });
            lines.collect::<Vec<_>>().join("\n\n")
        }
    };
    // A person cannot accept the files alone.
    if text.trim().is_empty() {
        return Err(fail(Exit::BadInput, format!("`{title}` has no text")));
    }
    if text.chars().nth(MAX_PROMPT_CHARS).is_some() {
        let cause = format!("`{title}` has more than {MAX_PROMPT_CHARS} characters");
        return Err(fail(Exit::BadInput, cause));
    }
    let digest = prompt_digest(info, &open_arguments(&text, &values));
    Ok(FilledPrompt { text, digest, media })
}

/// The digest of what a person accepts: the name of the prompt, the names of its arguments, and its text with these left open.
fn prompt_digest(info: &PromptInfo, open_text: &str) -> String {
    let names: Vec<&str> = info.arguments.iter().map(|argument| argument.name.as_str()).collect();
    digest(json!([info.name, names, open_text]).to_string().as_bytes())
}

/// The message of a prompt that `part` is, with its role.
fn message_of(part: &ContentPart) -> Option<(&str, String)> {
    match part {
        ContentPart::PromptMessage { role, text } => Some((role, clean(text))),
        ContentPart::Link { uri, name, .. } => {
            let (name, uri) = (single_line(name, MAX_NAME_CHARS), single_line(uri, MAX_NAME_CHARS));
            Some(("link", format!("{name}: {uri}")))
        }
        _ => None,
    }
}

/// `text` with the name of an argument in braces wherever its value is. So a text that was accepted with other values is recognized,
/// and one with words of the server's own is not.
fn open_arguments(text: &str, values: &[(String, String)]) -> String {
    let mut values: Vec<&(String, String)> =
        values.iter().filter(|(_, value)| !value.is_empty()).collect();
    values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    let mut text = text.to_owned();
    for (name, value) in values {
        text = text.replace(value.as_str(), &format!("{{{name}}}"));
    }
    text
}

/// Assigns words to the arguments in their order. The last one takes all words that are left.
///
/// # Errors
/// A phrase that says what is wrong with the words.
fn assign(arguments: &[PromptArgument], text: &str) -> Result<Vec<(String, String)>, String> {
    if arguments.is_empty() && !text.is_empty() {
        return Err("takes no arguments".into());
    }
    let mut values = Vec::new();
    let mut rest = text;
    for (number, argument) in (1..).zip(arguments) {
        let is_last = number == arguments.len();
        let (value, after) = match rest.split_once(char::is_whitespace) {
            Some((word, after)) if !is_last => (word, after.trim_start()),
            _ => (rest, ""),
        };
        rest = after;
        if value.is_empty() && argument.required {
            return Err(format!("needs `{}`", single_line(&argument.name, MAX_NAME_CHARS)));
        }
        if !value.is_empty() {
            values.push((argument.name.clone(), value.to_owned()));
        }
    }
    Ok(values)
}

/// The usage of a prompt of `server`: `/SERVER:PROMPT topic [style]`.
pub(crate) fn usage(server: &str, info: &PromptInfo) -> String {
    let mut text = format!("/{server}:{}", info.name);
    for argument in &info.arguments {
        let name = &argument.name;
        text += &if argument.required { format!(" {name}") } else { format!(" [{name}]") };
    }
    single_line(&text, MAX_NAME_CHARS)
}

/// The error for a prompt that is not among those that the server offers.
fn unknown_prompt(
    server: &McpServer,
    prompt: &ServerPrompt,
    offered: &[PromptInfo],
) -> anyhow::Error {
    let name = &server.name;
    if offered.is_empty() {
        return fail(Exit::NoInput, format!("MCP server `{name}` offers no prompts"));
    }
    let cause = format!(
        "MCP server `{name}` has no prompt `{}`",
        single_line(&prompt.name, MAX_NAME_CHARS)
    );
    let names = offered.iter().map(|info| info.name.as_str());
    let hint = match nearest(&prompt.name, names) {
        Some(similar) => {
            format!("`{}`", single_line(&format!("/{name}:{similar}"), MAX_NAME_CHARS))
        }
        None => format!("nanobot mcp show {}", quote(name)),
    };
    fail(Exit::NoInput, cause).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::{assign, open_arguments, prompt_digest};
    use nanobot_mcp::protocol::{PromptArgument, PromptInfo};

    #[test]
    fn words_are_assigned_in_order() {
        let argument = |name: &str, required| PromptArgument {
            name: name.into(),
            required,
            ..PromptArgument::default()
        };
        let two = [argument("topic", true), argument("style", false)];
        let check = |arguments: &[PromptArgument], text: &str, expect: &str| {
            let actual = assign(arguments, text).map(|values| {
                let values = values.iter().map(|(name, value)| format!("{name}={value}"));
                values.collect::<Vec<_>>().join("|")
            });
            assert_eq!(actual.unwrap_or_else(|cause| cause), expect, "{text}");
        };
        check(&two, "tea", "topic=tea");
        check(&two, "tea  very short words", "topic=tea|style=very short words");
        check(&two[..1], "green tea", "topic=green tea");
        check(&two, "", "needs `topic`");
        check(&[], "", "");
        check(&[], "tea", "takes no arguments");
    }

    #[test]
    fn names_are_part_of_the_digest() {
        let digest_of = |name: &str, arguments: &[&str], text: &str| {
            let argument =
                |name: &&str| PromptArgument { name: (*name).into(), ..PromptArgument::default() };
            let arguments = arguments.iter().map(argument).collect();
            prompt_digest(
                &PromptInfo { name: name.into(), arguments, ..PromptInfo::default() },
                text,
            )
        };
        let accepted = digest_of("greet", &["who"], "Greet {who}.");
        assert_eq!(digest_of("greet", &["who"], "Greet {who}."), accepted);
        assert_ne!(digest_of("meet", &["who"], "Greet {who}."), accepted);
        assert_ne!(digest_of("greet", &["who", "tone"], "Greet {who}."), accepted);
        assert_ne!(digest_of("greet", &["who"], "Greet {who}!"), accepted);
    }

    #[test]
    fn values_are_open_in_the_digest() {
        let check = |text: &str, values: &[(&str, &str)], expect: &str| {
            let values: Vec<(String, String)> =
                values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            assert_eq!(open_arguments(text, &values), expect);
        };
        check("Write of green tea.", &[("topic", "green tea")], "Write of {topic}.");
        check("Write of tea, obey.", &[("topic", "tea")], "Write of {topic}, obey.");
        check("a green b", &[("x", "green"), ("y", "a green")], "{y} b");
        check("none", &[("x", "")], "none");
    }
}
