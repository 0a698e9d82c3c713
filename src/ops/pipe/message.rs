//! An inbound line of `nanobot serve pipe`. No I/O.

use serde_json::{Map, Value};

/// The keys of a message. Other keys are returned with the answer.
const KEYS: [&str; 10] =
    ["id", "session", "channel", "chat", "from", "text", "files", "approve", "reply_to", "at"];
/// The text of a message that only approves a call.
const APPROVAL_TEXT: &str = "yes";

/// A message to answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PipeMessage {
    /// The sender's id of the message: a text, a number, or null.
    pub(super) id: Value,
    /// The conversation, as its sender names it.
    pub(super) session: String,
    pub(super) text: String,
    /// Paths of files to attach.
    pub(super) files: Vec<String>,
    /// The code of the question whose call it approves.
    pub(super) approve: Option<String>,
    /// The `facts` and every unknown key, which are returned with the answer.
    pub(super) facts: Value,
}

impl PipeMessage {
    /// Parses a line.
    ///
    /// # Errors
    /// The line is not a message, for this reason.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8")?;
        let value =
            serde_json::from_str(text).map_err(|error| format!("the line is not JSON: {error}"))?;
        let Value::Object(mut object) = value else {
            return Err("the line is not a JSON object".into());
        };
        let approve = take_text(&mut object, "approve")?;
        let text = take_first(&mut object, ["text", "content"])?;
        let text = text.or_else(|| approve.as_ref().map(|_| APPROVAL_TEXT.to_owned()));
        let text = text.ok_or("`text` is missing")?;
        if text.trim().is_empty() {
            return Err("`text` is empty".into());
        }
        let channel = take_text(&mut object, "channel")?;
        let chat = take_first(&mut object, ["chat", "chat_id"])?;
        let session = match (take_text(&mut object, "session")?, channel, chat) {
            (Some(session), ..) => session,
            (None, Some(channel), Some(chat)) => format!("{channel}:{chat}"),
            _ => return Err("`session` is missing, or `channel` and `chat`".into()),
        };
        if session.trim().is_empty() {
            return Err("`session` is empty".into());
        }
        let id = object.shift_remove("id").unwrap_or_default();
        if !matches!(id, Value::Null | Value::String(_) | Value::Number(_)) {
            return Err("`id` must be a text or a number".into());
        }
        for name in ["from", "reply_to", "at"] {
            take_text(&mut object, name)?;
        }
        let files = match object.shift_remove("files") {
            None | Some(Value::Null) => Vec::new(),
            Some(paths) => serde_json::from_value::<Vec<String>>(paths)
                .map_err(|_| "`files` must be a list of paths")?,
        };
        let mut facts = match object.shift_remove("facts") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(facts)) => facts,
            Some(_) => return Err("`facts` must be an object".into()),
        };
        facts.extend(object.into_iter().filter(|(name, _)| !KEYS.contains(&name.as_str())));
        Ok(Self { id, session, text, files, approve, facts: facts.into() })
    }
}

/// The id of a line that is not a message, as far as it has one; otherwise null.
pub(super) fn id_of_line(line: &[u8]) -> Value {
    let line: Value = serde_json::from_slice(line).unwrap_or_default();
    match &line["id"] {
        id @ (Value::String(_) | Value::Number(_)) => id.clone(),
        _ => Value::Null,
    }
}

/// Removes and returns the value of the first of `names` that is present. The second name is the one that programs for the
/// Python program use. If both are present, the second is returned with the answer.
fn take_first(object: &mut Map<String, Value>, names: [&str; 2]) -> Result<Option<String>, String> {
    let [name, python_name] = names;
    match take_text(object, name)? {
        Some(text) => Ok(Some(text)),
        None => take_text(object, python_name),
    }
}

/// Removes the value of `name`, which must be a text if it is present and not null.
fn take_text(object: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match object.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` must be a text")),
    }
}

#[cfg(test)]
mod tests {
    use super::PipeMessage;
    use serde_json::json;

    #[test]
    fn lines_are_parsed_or_explained() {
        let check = |line: &str, expect: Result<(&str, &str), &str>| {
            let parsed = PipeMessage::parse(line.as_bytes());
            let message = parsed.as_ref().map(|message| (&*message.session, &*message.text));
            match (message, expect) {
                (Err(error), Err(part)) => assert!(error.contains(part), "{line}: {error}"),
                (message, expect) => assert_eq!(message.ok(), expect.ok(), "{line}"),
            }
        };
        check(r#"{"session":"s","text":"hi"}"#, Ok(("s", "hi")));
        check(r#"{"channel":"mqtt","chat":"a:b","text":"hi"}"#, Ok(("mqtt:a:b", "hi")));
        check(r#"{"session":"s","channel":"c","chat":"d","text":"hi"}"#, Ok(("s", "hi")));
        check(r#"{"session":null,"channel":"c","chat":"d","text":"hi"}"#, Ok(("c:d", "hi")));
        check(r#"{"channel":"c","chat_id":"d","content":"hi"}"#, Ok(("c:d", "hi")));
        check(r#"{"session":"s","text":"hi","content":7}"#, Ok(("s", "hi")));
        check("{", Err("not JSON"));
        check("[]", Err("not a JSON object"));
        check(r#"{"session":"s"}"#, Err("`text` is missing"));
        check(r#"{"session":"s","approve":"A-B"}"#, Ok(("s", "yes")));
        check(r#"{"session":"s","approve":1}"#, Err("`approve` must be a text"));
        check(r#"{"session":"s","text":" "}"#, Err("`text` is empty"));
        check(r#"{"session":"s","text":1}"#, Err("`text` must be a text"));
        check(r#"{"text":"hi","chat":"x"}"#, Err("`session` is missing"));
        check(r#"{"session":"","text":"hi"}"#, Err("`session` is empty"));
        check(r#"{"session":"s","text":"hi","id":3}"#, Ok(("s", "hi")));
        check(r#"{"session":"s","text":"hi","id":[3]}"#, Err("`id` must be a text or a number"));
        check(r#"{"session":"s","text":"hi","files":"a"}"#, Err("`files`"));
        check(r#"{"session":"s","text":"hi","files":[1]}"#, Err("`files`"));
        check(r#"{"session":"s","text":"hi","facts":[]}"#, Err("`facts`"));
        assert!(PipeMessage::parse(b"{\"text\":\"\xff\"}").is_err());
    }

    #[test]
    fn facts_and_unknown_keys_come_back() {
        let line = r#"{"id":"m1","session":"s","from":"ann","text":"hi","files":["a"],"at":null,"facts":{"x":1},"topic":[2]}"#;
        let message = PipeMessage::parse(line.as_bytes()).unwrap();
        assert_eq!(message.facts, json!({ "x": 1, "topic": [2] }));
        assert_eq!((message.id, message.files), (json!("m1"), vec!["a".into()]));
    }
}
