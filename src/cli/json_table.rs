//! The JSON that commands print as data, in the order of the commands. nanobot-json(5) and the schema of `config schema --commands`
//! are made from these tables, and a story holds the commands to them. The events and the result of a turn have a schema of their
//! own, `events.v1.json` in `nanobot_agent::report`.

use JsonForm::{Array, Lines, Object as OneObject};
use JsonType::{Any, Bool, Count, Fields, List, Number, Object, OneOf, OrNull, Shape, Text, Time};
use nanobot_base::json_text::JSON_VERSION;
use serde_json::{Map, Value, json};

/// The output of a command, or an object that occurs in the output of several commands.
pub struct JsonShape {
    /// The command line without `nanobot`, or the name of the object.
    pub name: &'static str,
    pub form: JsonForm,
    pub meaning: &'static str,
    /// The object in [`OBJECTS`] whose fields it has too.
    pub base: Option<&'static str>,
    pub fields: &'static [JsonField],
}

/// The arrangement of the objects in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonForm {
    /// One object.
    Object,
    /// One object per line.
    Lines,
    /// One array of objects, on one line.
    Array,
}

/// The name of a field, its type and its meaning. The name of a field that may be absent ends with `?`.
pub type JsonField = (&'static str, JsonType, &'static str);

/// The type of a field.
pub enum JsonType {
    Text,
    /// Text of RFC 3339.
    Time,
    /// A whole number, not below zero.
    Count,
    Number,
    Bool,
    Any,
    /// An object of any fields.
    Object,
    /// One of these words, which blanks separate.
    OneOf(&'static str),
    Fields(&'static [JsonField]),
    /// The object of this name in [`OBJECTS`].
    Shape(&'static str),
    List(&'static Self),
    OrNull(&'static Self),
}

/// The stability that users may rely on.
pub const PROMISE: &str = "What commands print as JSON, except for the turns of `nanobot agent` and `nanobot run`, which nanobot-events(5) \
describes. An object that is printed has the version of this description as `v`; an array has none. Within a version, fields may be added, and \
words to a field that is one of several: ignore those that you do not know. No field is removed or renamed, and none changes its type or its \
meaning. A field that is not optional is always there, if only as `null` or as an empty list. The order of fields means nothing. Times are in \
UTC, in the form of RFC 3339.\n\n\
A command that prints one object per line prints nothing if there is none. Errors and notices go to standard error. After a failure, standard \
output may be incomplete: the exit status says so.";

/// The JSON schema of everything below: a definition for each command and each object.
pub fn schema() -> Value {
    let version =
        json!({ "const": JSON_VERSION, "description": "the version of this description" });
    let mut definitions = Map::new();
    definitions.insert(
        "version".into(),
        json!({ "type": "object", "properties": { "v": version }, "required": ["v"] }),
    );
    for shape in COMMANDS {
        let mut schema = shape_schema(shape, shape.form != Array);
        schema["title"] = format!("nanobot {}", shape.name).into();
        definitions.insert(definition_name(shape.name), schema);
    }
    definitions
        .extend(OBJECTS.iter().map(|shape| (shape.name.to_owned(), shape_schema(shape, false))));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("The JSON of the commands of nanobot, version {JSON_VERSION}"),
        "description": PROMISE,
        "$defs": definitions,
    })
}

/// The name of a command's definition: the letters of its command line, such as `cron-list` or `usage-by-tool-server-skill`.
pub fn definition_name(command_line: &str) -> String {
    let parts = command_line
        .trim_end_matches(" --json")
        .split(|letter: char| !letter.is_ascii_alphanumeric());
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).map(str::to_lowercase).collect();
    parts.join("-")
}

fn shape_schema(shape: &JsonShape, has_version: bool) -> Value {
    let JsonShape { name: _, form, meaning, base, fields } = shape;
    let mut schema = fields_schema(fields);
    let bases: Vec<Value> =
        has_version.then_some("version").into_iter().chain(*base).map(reference).collect();
    if !bases.is_empty() {
        schema["allOf"] = bases.into();
    }
    if *form == Array {
        schema = json!({ "type": "array", "items": schema });
    }
    schema["description"] = (*meaning).into();
    schema
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn fields_schema(fields: &[JsonField]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, json_type, meaning) in fields {
        let mut schema = type_schema(json_type);
        if !meaning.is_empty() {
            schema["description"] = (*meaning).into();
        }
        let is_required = !name.ends_with('?');
        let name = name.trim_end_matches('?');
        properties.insert(name.to_owned(), schema);
        required.extend(is_required.then_some(name));
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

fn type_schema(json_type: &JsonType) -> Value {
    match json_type {
        Text => json!({ "type": "string" }),
        Time => json!({ "type": "string", "format": "date-time" }),
        Count => json!({ "type": "integer", "minimum": 0 }),
        Number => json!({ "type": "number" }),
        Bool => json!({ "type": "boolean" }),
        Any => json!({}),
        Object => json!({ "type": "object" }),
        OneOf(names) => json!({ "enum": names.split(' ').collect::<Vec<_>>() }),
        Fields(fields) => fields_schema(fields),
        Shape(name) => reference(name),
        List(item) => json!({ "type": "array", "items": type_schema(item) }),
        OrNull(inner) => json!({ "anyOf": [type_schema(inner), { "type": "null" }] }),
    }
}

#[rustfmt::skip]
/// The output of each command, in the order of the man page.
pub const COMMANDS: &[JsonShape] = &[
    JsonShape { name: "agent --dry-run=table-json", form: OneObject, meaning: "The request that would be sent.", base: Some("request"), fields: &[] },
    JsonShape { name: "channel inbox --json", form: Lines, meaning: "Each message that waits, was given up or failed.", base: None, fields: &[
        ("channel", Text, ""), ("id", Text, "for `channel retry` and `--dismiss`"), ("session", Text, ""),
        ("state", Text, "such as `unanswered` and `undelivered`"), ("at", OrNull(&Time), ""), ("text", Text, ""),
    ] },
    JsonShape { name: "channel list --json", form: OneObject, meaning: "All channels that are configured, or with `--all` each.", base: None, fields: &[
        ("channels", List(&Shape("channel")), ""),
    ] },
    JsonShape { name: "channel pair list --json", form: Lines, meaning: "Each sender who asked to be let in.", base: None, fields: &[
        ("code", Text, "for `channel pair approve`"), ("channel", Text, ""), ("sender", Text, "the sender's id"),
        ("expires_at", Count, "seconds since 1970"),
    ] },
    JsonShape { name: "channel show NAME --json", form: OneObject, meaning: "The channel.", base: None, fields: &[
        ("name", Text, ""), ("keys", Object, "its keys in the config; secrets as `***`"),
        ("position", Any, "how far it was polled; its form depends on the service"),
        ("refused", List(&Fields(&[("id", Text, ""), ("verified", Bool, "true if the service vouches for the id"), ("name", OrNull(&Text), ""), ("chat", Text, "")])), "senders who are not allowed"),
    ] },
    JsonShape { name: "config apply -f FILE --json", form: Lines, meaning: "Each key that changes.", base: None, fields: &[
        ("key", Text, ""), ("old", Any, "the value before; `null` if there was none; secrets as `***`"),
        ("new", Any, "the value after; `null` if there is none"),
    ] },
    JsonShape { name: "config check --json", form: Lines, meaning: "Each finding.", base: None, fields: &[
        ("severity", OneOf("error warning note"), ""), ("text", Text, "with the file, the line and the key"),
    ] },
    JsonShape { name: "config get [KEY] --json", form: Lines, meaning: "Each key, or the one that is named.", base: Some("key"), fields: &[] },
    JsonShape { name: "config list --json", form: Lines, meaning: "Each key that is set, or with `--all` each.", base: Some("key"), fields: &[] },
    JsonShape { name: "cron add NAME --json", form: OneObject, meaning: "The job.", base: Some("saved_job"), fields: &[] },
    JsonShape { name: "cron apply -f FILE --json", form: Lines, meaning: "Each job of the list, and each that was removed.", base: Some("saved_job"), fields: &[] },
    JsonShape { name: "cron check --json", form: Lines, meaning: "Each problem of a job, of the crontab, or of a channel. Nothing is printed, and the status is 0, if there is none.", base: None, fields: &[
        ("problem", OneOf("failing overdue unusable clock unwatched crontab program daemon time_zone disk waiting not_polled"), ""),
        ("error", OrNull(&Text), ""), ("since?", OrNull(&Time), ""), ("job?", Text, "of a job: its id"), ("name?", Text, "of a job"),
        ("failures?", Count, "of a job: the failed runs since the last success"), ("last_success?", OrNull(&Time), "of a job"),
        ("channel?", Text, "of a channel: its name"), ("waiting?", Count, "of a channel: the messages that wait"),
        ("activity?", OrNull(&OneOf("poll answer send")), "of a channel: what fails"),
    ] },
    JsonShape { name: "cron edit JOB --json", form: OneObject, meaning: "The job.", base: Some("saved_job"), fields: &[] },
    JsonShape { name: "cron heartbeat --json", form: OneObject, meaning: "The run.", base: Some("run"), fields: &[] },
    JsonShape { name: "cron heartbeat enable --json", form: OneObject, meaning: "The job.", base: Some("saved_job"), fields: &[] },
    JsonShape { name: "cron list --json", form: Lines, meaning: "Each job.", base: Some("job"), fields: &[] },
    JsonShape { name: "cron logs --json", form: Lines, meaning: "Each run, or with `--run` that one.", base: Some("run"), fields: &[
        ("tool_calls?", List(&Fields(&[("name", Text, ""), ("arguments", Any, "as the model sent them"), ("failed", OrNull(&Bool), "`null` without a result")])), "with `--run`: the calls of its turn"),
    ] },
    JsonShape { name: "cron rerun RUN --json", form: OneObject, meaning: "The new run.", base: Some("run"), fields: &[] },
    JsonShape { name: "cron run JOB --json", form: OneObject, meaning: "The run. Nothing is printed if a job that runs once was removed after its success.", base: Some("run"), fields: &[] },
    JsonShape { name: "cron show JOB --json", form: OneObject, meaning: "The job.", base: Some("job"), fields: &[
        ("lines", List(&Text), "its lines in the crontab"),
        ("followers", List(&Fields(&[("id", Text, ""), ("name", Text, "")])), "the jobs that run after it"),
        ("may", List(&Fields(&[("what", Text, ""), ("value", Text, "")])), "its permissions, for people"),
    ] },
    JsonShape { name: "mcp check --json", form: Lines, meaning: "Each server, and why it would not work from cron or in the sandbox.", base: None, fields: &[
        ("name", Text, ""), ("ok", Bool, ""), ("error", OrNull(&Text), ""),
        ("environment?", OneOf("sandbox cron"), "of a warning: where it would not work"), ("ms?", Count, "how long it took"),
        ("by?", OneOf("stdio http sse"), ""), ("changed?", List(&Text), "tools that have changed since they were accepted"),
        ("unaccepted?", List(&Text), "tools that no person has accepted"),
        ("protocol?", Text, "of a server that answers, as are the following"), ("server?", Text, "its name and version"),
        ("tools?", List(&Text), ""), ("resources?", Count, ""), ("prompts?", Count, ""),
    ] },
    JsonShape { name: "mcp list --json", form: Lines, meaning: "Each server, as it was when it last answered.", base: None, fields: &[
        ("name", Text, ""), ("by", OneOf("stdio http sse"), ""), ("place", Text, "the program, or the address without parameters"),
        ("disabled", Bool, ""), ("required", Bool, ""), ("sandbox", OneOf("off auto"), ""), ("trusted", Bool, ""),
        ("tools", OrNull(&Count), "the number of tools that models get; `null` before it has answered, as are the following"),
        ("tokens", OrNull(&Count), "the tokens that they take in each request"), ("resources", OrNull(&Count), ""),
        ("prompts", OrNull(&Count), ""), ("protocol", OrNull(&Text), ""), ("server", OrNull(&Text), "its name and version"),
        ("changed", List(&Text), "tools that have changed since they were accepted"),
        ("unaccepted", List(&Text), "tools that no person has accepted"), ("error", OrNull(&Text), ""),
    ] },
    JsonShape { name: "mcp show SERVER --json", form: OneObject, meaning: "The server.", base: None, fields: &[
        ("name", Text, ""), ("server", Text, "its name and version"), ("protocol", Text, ""), ("instructions", OrNull(&Text), ""),
        ("tools", List(&Shape("server_tool")), ""), ("resources", List(&Shape("resource")), ""),
        ("templates", List(&Shape("resource")), ""),
        ("prompts", List(&Fields(&[("name", Text, ""), ("description", Text, ""), ("arguments", List(&Fields(&[("name", Text, ""), ("description", Text, ""), ("required", Bool, "")])), "")])), ""),
    ] },
    JsonShape { name: "mcp show SERVER TOOL --json", form: OneObject, meaning: "The tool.", base: Some("server_tool"), fields: &[] },
    JsonShape { name: "memory diff --json", form: OneObject, meaning: "The change. Nothing is printed if the memory was never changed.", base: None, fields: &[
        ("from", Text, ""), ("to", Text, ""), ("diff", Text, "in the unified format"),
    ] },
    JsonShape { name: "memory log --json", form: Lines, meaning: "Each version, the newest first.", base: None, fields: &[
        ("id", Count, ""), ("time", OrNull(&Time), ""), ("cause", OneOf("consolidation edit undo accept turn manual"), ""),
        ("session", OrNull(&Text), "the session that it was made from"), ("bytes", Count, ""),
        ("aside", OrNull(&Text), "why it was never in force"), ("untrusted", OrNull(&Text), "untrusted content in the session"),
        ("of", OrNull(&Count), "of an undo: the version that it restored"), ("current", Bool, "true for the version in force"),
    ] },
    JsonShape { name: "memory search PATTERN --json", form: Lines, meaning: "Each line that matches.", base: None, fields: &[
        ("path", Text, ""), ("line", Count, "its number, from 1"), ("text", Text, ""),
        ("score?", Number, "with `--meaning`: the similarity, from -1 to 1"),
    ] },
    JsonShape { name: "memory show --json", form: OneObject, meaning: "The memory.", base: None, fields: &[
        ("path", Text, ""), ("bytes", Count, ""), ("text", Text, "empty if there is none"),
    ] },
    JsonShape { name: "model list --json", form: Lines, meaning: "Each model.", base: Some("model"), fields: &[] },
    JsonShape { name: "model provider list --json", form: Lines, meaning: "Each provider.", base: Some("provider"), fields: &[] },
    JsonShape { name: "model provider show NAME --json", form: OneObject, meaning: "The provider.", base: Some("provider"), fields: &[] },
    JsonShape { name: "model show NAME --json", form: OneObject, meaning: "The model, as a run would use it. A fact is `null` if it is unknown.", base: None, fields: &[
        ("name", Text, "as it was given"), ("provider", Text, ""), ("label", Text, "the provider's name for people"),
        ("address", Text, ""), ("format", Text, "the wire format"), ("model", Text, "the name that the provider gets"),
        ("key", OrNull(&Text), "where the key is from"), ("context", OrNull(&Shape("fact")), "the tokens of a request and its reply"),
        ("output", OrNull(&Shape("fact")), "the most tokens of a reply"), ("images", OrNull(&Shape("fact")), "takes images"),
        ("pdf", OrNull(&Shape("fact")), "takes PDF files"), ("audio", OrNull(&Shape("fact")), "takes recordings"), ("reasoning", OrNull(&Shape("fact")), ""),
        ("prices", OrNull(&Shape("fact")), "a list of prices"), ("quirks", List(&Text), "for people"),
        ("fallbacks", List(&Fields(&[("model", OrNull(&Text), "`null` for the provider's default"), ("provider", Text, "")])), ""),
    ] },
    JsonShape { name: "policy check --json", form: Lines, meaning: "First an object with `namespaces`, then an object for each attack that was tried.", base: None, fields: &[
        ("namespaces?", Bool, "true if commands have namespaces of their own"), ("what?", Text, "what a command tried"),
        ("held?", Bool, "true if it was refused"), ("found?", Text, "what happened"),
    ] },
    JsonShape { name: "policy explain --json", form: Array, meaning: "What a run may do, for people.", base: None, fields: &[
        ("what", Text, ""), ("value", Text, ""),
    ] },
    JsonShape { name: "policy explain TOOL [ARGUMENTS] --json", form: OneObject, meaning: "The decision about the call.", base: None, fields: &[
        ("tool", Text, ""), ("arguments", Any, ""), ("decision", OneOf("allowed refused"), ""), ("why", Text, ""),
        ("grant", OrNull(&Text), "the flag that would allow it"),
    ] },
    JsonShape { name: "run --list --json", form: Lines, meaning: "Each prompt.", base: None, fields: &[
        ("name", Text, ""), ("description", Text, ""),
    ] },
    JsonShape { name: "session context KEY --json", form: OneObject, meaning: "The next request of the session.", base: Some("request"), fields: &[] },
    JsonShape { name: "session export KEY --format json", form: OneObject, meaning: "The session with its messages.", base: None, fields: &[
        ("key", Text, ""), ("created", OrNull(&Time), ""), ("updated", OrNull(&Time), ""),
        ("statistics", OrNull(&Shape("statistics")), "`null` if it has no turn"), ("messages", List(&Shape("message")), ""),
    ] },
    JsonShape { name: "session fork KEY NEW --json", form: OneObject, meaning: "The copy.", base: None, fields: &[
        ("session", Text, ""), ("messages", Count, ""),
    ] },
    JsonShape { name: "session import FILE --json", form: OneObject, meaning: "The session that was made.", base: None, fields: &[
        ("session", Text, ""), ("messages", Count, ""), ("format", Text, "the program that wrote the file"),
    ] },
    JsonShape { name: "session list --json", form: Lines, meaning: "Each session.", base: Some("session"), fields: &[] },
    JsonShape { name: "session prune --json", form: Lines, meaning: "Each session that is moved to the trash.", base: Some("session"), fields: &[] },
    JsonShape { name: "session repair --json", form: Lines, meaning: "Each problem.", base: None, fields: &[
        ("session", Text, ""), ("problem", Text, ""), ("repair", OrNull(&Text), "what was done; `null` if nothing can be"),
    ] },
    JsonShape { name: "session restore [KEY] --json", form: Lines, meaning: "The session that was restored, or each that can be.", base: None, fields: &[
        ("session", Text, ""), ("deleted?", OrNull(&Time), "of one that can be"),
    ] },
    JsonShape { name: "session search PATTERN --json", form: Lines, meaning: "Each match in a session or in the memory.", base: None, fields: &[
        ("session?", Text, "the key"), ("file?", Text, "in the memory, instead of `session`"),
        ("number", Count, "the number of the message or line, from 1"), ("time", OrNull(&Time), ""),
        ("role", Text, "`user`, `assistant` or `tool`; empty in the memory"), ("line", Text, ""), ("start?", Count, "the byte in the line at which the match begins"), ("end?", Count, "the byte after it"),
        ("score?", Number, "with `--meaning`, where `line` is the message: how close it is, from -1 to 1"),
        ("before?", List(&Text), "with `--context`: the lines before it"),
        ("after?", List(&Text), "with `--context`: the lines after it"),
    ] },
    JsonShape { name: "session show KEY --json", form: Lines, meaning: "Each message.", base: Some("message"), fields: &[] },
    JsonShape { name: "session title KEY --json", form: OneObject, meaning: "The title.", base: None, fields: &[
        ("session", Text, ""), ("title", OrNull(&Text), ""),
    ] },
    JsonShape { name: "skill check --json", form: Lines, meaning: "Each skill.", base: None, fields: &[
        ("name", Text, "or its path, if the name cannot be read"), ("ok", Bool, ""), ("warnings", List(&Text), ""),
        ("missing", List(&Text), "requirements that this system does not meet"), ("install", List(&Text), "commands that install them"),
    ] },
    JsonShape { name: "skill list --json", form: Lines, meaning: "Each skill.", base: None, fields: &[
        ("name", OrNull(&Text), "`null` if it cannot be read"), ("location", OrNull(&Text), "the path; `null` if it is built in"),
        ("state", OneOf("available not-offered unavailable hidden disabled changed unreadable"), ""),
        ("description?", Text, "of a skill that can be read, as are the following"),
        ("source?", Text, "`workspace`, `built-in`, or a directory"),
        ("hidden_by?", OrNull(&Text), "the source of the skill that is used instead"),
        ("always?", Bool, "true if each request has its text"), ("missing?", List(&Text), "requirements that this system does not meet"),
        ("tokens?", Count, "of its text"), ("warnings?", List(&Text), ""), ("error?", Text, "why it cannot be read"),
    ] },
    JsonShape { name: "skill show NAME --json", form: OneObject, meaning: "The skill.", base: None, fields: &[
        ("name", Text, ""), ("description", Text, ""), ("source", Text, "`workspace`, `built-in`, or a directory"),
        ("location", OrNull(&Text), "the path; `null` if it is built in"), ("available", Bool, "true if this system meets its requirements"),
        ("offered", Bool, "true if it is in the list that models get"), ("always", Bool, "true if each request has its text"),
        ("missing", List(&Text), "requirements that this system does not meet"), ("needs", List(&Text), "its requirements"),
        ("install", List(&Text), "commands that install them"), ("license", OrNull(&Text), ""), ("compatibility", OrNull(&Text), ""),
        ("allowed_tools", List(&Text), "in its front matter; they grant nothing"), ("metadata", Any, "as in its front matter"), ("user_invocable", Bool, ""),
        ("tokens", Count, "of its text"),
        ("files", List(&Fields(&[("path", Text, ""), ("kind", OneOf("folder file link other"), ""), ("bytes?", Count, "of a file"), ("executable?", Bool, "of a file"), ("target?", Text, "of a link")])), ""),
        ("warnings", List(&Text), ""), ("body", Text, "its text"),
    ] },
    JsonShape { name: "status --json", form: OneObject, meaning: "The overview.", base: None, fields: &[
        ("model", OrNull(&Text), "`null` if none can be used"), ("provider", OrNull(&Text), ""),
        ("key", OrNull(&Text), "where the key is from"), ("error", OrNull(&Text), "why no model can be used"),
        ("config", Text, "the path"), ("workspace", Text, "the path"), ("sessions", Count, ""),
        ("context", OrNull(&Fields(&[("session", Text, ""), ("tokens", Count, ""), ("window", Count, "")])), "the last request of the default session"),
        ("memory", Shape("memory"), ""),
        ("retention", Object, "the age at which each kind of data is removed"), ("cron", Shape("jobs"), ""),
        ("scope", OrNull(&Fields(&[("directory", Text, ""), ("may_write", Bool, ""), ("profile", Text, ""), ("sandbox", OneOf("on off none"), "")])), "what a run in this directory may do"),
        ("offered", Shape("offered"), ""), ("spent", Shape("spent"), ""), ("next", OrNull(&Text), "the next step, for people"),
    ] },
    JsonShape { name: "status check --json", form: Array, meaning: "The checks.", base: None, fields: &[
        ("name", Text, ""), ("ok", Bool, "false if it failed"), ("level", OneOf("ok warn no"), ""), ("detail", Text, ""),
        ("try", OrNull(&Text), "the next step"), ("jobs", List(&Text), "the jobs that it concerns"),
        ("status", OrNull(&Count), "the exit status of a failure"),
    ] },
    JsonShape { name: "tool check --json", form: Lines, meaning: "Each program.", base: None, fields: &[
        ("path", Text, ""), ("tool?", Text, "its name as a tool"), ("enabled?", Bool, ""), ("description?", Text, ""),
        ("parameters?", Object, "the JSON schema of its arguments"), ("error?", Text, "why it cannot be used, instead of the others"),
    ] },
    JsonShape { name: "tool list --json", form: Lines, meaning: "Each tool.", base: Some("tool"), fields: &[] },
    JsonShape { name: "tool run NAME --json", form: OneObject, meaning: "The result.", base: None, fields: &[
        ("is_error", Bool, ""), ("content", List(&Shape("content")), ""),
        ("structured", Any, "the structured form of a server's answer; `null` without one"),
    ] },
    JsonShape { name: "tool show NAME --json", form: OneObject, meaning: "The tool.", base: Some("tool"), fields: &[] },
    JsonShape { name: "trust --list --json", form: Lines, meaning: "Each file and directory.", base: None, fields: &[
        ("path", Text, ""), ("since", Time, ""), ("stands", Bool, "false if it was removed or replaced since"),
    ] },
    JsonShape { name: "undo --list --json", form: Lines, meaning: "Each turn that changed files.", base: None, fields: &[
        ("id", Count, "for `undo ID`"), ("turn", Text, "the turn's id"), ("session", Text, ""), ("time", OrNull(&Time), ""),
        ("directory", Text, ""), ("paths", List(&Text), "what it changed"), ("gaps", List(&Text), "what cannot be undone"),
        ("undone", OrNull(&Time), "when it was undone"),
    ] },
    JsonShape { name: "usage --by tool|server|skill --json", form: Lines, meaning: "Each tool, server or skill.", base: None, fields: &[
        ("tool?", Text, ""), ("server?", Text, ""), ("skill?", Text, ""), ("runs", Count, "the turns that used it"),
        ("calls?", Count, "not of a skill, as are the following"), ("failed_calls?", Count, ""), ("denied_calls?", Count, ""),
        ("offered_runs?", Count, "of a server: the turns that had its tools"),
        ("told_tokens?", Count, "of a server: the tokens of its tools in all requests"),
    ] },
    JsonShape { name: "usage --json", form: Lines, meaning: "Each day, or each model, session or job with `--by`. A day before the last months is a month.", base: None, fields: &[
        ("day?", Text, "`2026-01-02`, or `2026-01`"), ("model?", Text, ""), ("provider?", Text, "with `model`"), ("session?", Text, ""),
        ("job?", OrNull(&Text), "`null` for calls of no job"), ("runs", Count, "turns"), ("calls", Count, "requests"),
        ("failed_calls", Count, ""), ("unpriced_calls", Count, ""), ("estimated_calls", Count, "calls whose tokens are estimated"),
        ("input", Count, "tokens"), ("cached", Count, "tokens of the input"), ("cache_write", Count, "tokens of the input"),
        ("output", Count, "tokens"), ("reasoning", Count, "tokens of the output"),
        ("usd", OrNull(&Number), "`null` if no price is known"),
    ] },
];

#[rustfmt::skip]
/// The objects that occur in several places.
pub const OBJECTS: &[JsonShape] = &[
    JsonShape { name: "channel", form: OneObject, meaning: "A channel and its messages.", base: None, fields: &[
        ("name", Text, ""), ("enabled", Bool, ""), ("last_poll", OrNull(&Time), ""), ("waiting", Count, "messages"),
        ("waiting_since", OrNull(&Time), ""), ("given_up", Count, "messages"),
        ("failures", List(&Fields(&[("activity", OneOf("poll answer send"), ""), ("since", Time, ""), ("error", Text, "")])), ""),
        ("problem", OrNull(&OneOf("failing waiting not_polled")), ""),
        ("bindings", List(&Fields(&[("kind", OneOf("chat sender"), ""), ("id", Text, ""), ("profile", OrNull(&Text), ""),
            ("workspace", OrNull(&Text), ""), ("model", OrNull(&Text), ""), ("daily_budget", OrNull(&Number), "US dollars")])), "as `channel bind` makes them"),
    ] },
    JsonShape { name: "content", form: OneObject, meaning: "A part of a result.", base: None, fields: &[
        ("type", OneOf("text image document audio resource blob link"), ""), ("text?", Text, ""),
        ("kind?", OrNull(&Text), "the media type"), ("base64?", Text, "the bytes"),
        ("bytes?", Count, "of audio: its size"), ("uri?", Text, ""), ("name?", Text, "of a link"), ("description?", Text, "of a link"),
    ] },
    JsonShape { name: "fact", form: OneObject, meaning: "What is known of a model, and from where.", base: None, fields: &[
        ("value", Any, ""), ("from", OneOf("table config server"), ""),
    ] },
    JsonShape { name: "job", form: OneObject, meaning: "A scheduled job.", base: None, fields: &[
        ("id", Text, ""), ("name", Text, ""), ("enabled", Bool, ""), ("schedule", Shape("schedule"), ""),
        ("words", Text, "the schedule in words"), ("due", OrNull(&Time), "since when it is due and has not run"),
        ("overdue", OrNull(&Time), "since when it should have run"), ("next", OrNull(&Time), "its next run"),
        ("coming", List(&Time), "its next runs"), ("message", Text, "the message of its turns"),
        ("session", Text, "the key of its session"), ("own_session", Bool, "true if no other run uses the session"),
        ("created", Time, ""), ("delete_after_run", Bool, ""),
        ("delivery", Fields(&[("deliver", Bool, ""), ("channel", OrNull(&Text), ""), ("to", OrNull(&Text), "the chat"), ("supported", Bool, "true if the program can send there")]), "where the answer is sent"),
        ("foreign", Bool, "true if the Python program made it, so that it has no `terms`"),
        ("altered", Bool, "true if another program changed it since"),
        ("crontab", OneOf("there stale missing foreign none unknown"), "its line in the crontab"),
        ("retry", OrNull(&Fields(&[("at", Time, ""), ("number", Count, "")])), "the retry that waits"),
        ("last", OrNull(&Shape("run")), "the last run"), ("failures", Count, "the failed runs since the last success"),
        ("failing_since", OrNull(&Time), ""), ("last_success", OrNull(&Time), ""),
        ("cost_usd", OrNull(&Number), "the cost of the last run"),
        ("elsewhere", Fields(&[("last_run", OrNull(&Time), ""), ("last_status", OrNull(&Text), ""), ("last_error", OrNull(&Text), "")]), "what the Python program recorded"),
        ("begun", OrNull(&Time), "when the last run began, if it has not ended"), ("running", Bool, ""),
        ("waiting", Bool, "true if it waits until fewer jobs run"), ("terms", OrNull(&Shape("terms")), "what it may do and how it runs"),
    ] },
    JsonShape { name: "jobs", form: OneObject, meaning: "The state of the jobs.", base: None, fields: &[
        ("jobs", OrNull(&Count), ""), ("enabled", Count, ""), ("error", OrNull(&Text), "why the jobs cannot be read"),
        ("next", OrNull(&Fields(&[("id", Text, ""), ("name", Text, ""), ("time", Time, "")])), "the next run"),
        ("last_failure", OrNull(&Fields(&[("id", Text, ""), ("name", Text, ""), ("time", OrNull(&Time), ""), ("error", OrNull(&Text), "")])), ""),
        ("heartbeat", OrNull(&Fields(&[("every_s", OrNull(&Count), ""), ("next", OrNull(&Time), "")])), "`null` if it is off"),
    ] },
    JsonShape { name: "key", form: OneObject, meaning: "A key with its value.", base: None, fields: &[
        ("key", Text, ""), ("value", Any, "secrets as `***`"), ("origin", Text, "where it comes from: `default`, a variable, or a file"),
    ] },
    JsonShape { name: "memory", form: OneObject, meaning: "The state of the memory.", base: None, fields: &[
        ("bytes", Count, ""), ("tokens", Count, ""), ("budget_tokens", Count, ""), ("over_budget", Bool, ""),
        ("last_consolidation", OrNull(&Fields(&[("time", OrNull(&Time), ""), ("session", Text, ""), ("outcome", OneOf("new same aside raw"), "")])), ""),
        ("trouble", OrNull(&Text), "why the last consolidation failed"), ("write_error", OrNull(&Text), "why it cannot be written"),
    ] },
    JsonShape { name: "message", form: OneObject, meaning: "A message of a session.", base: None, fields: &[
        ("number", Count, "its number, from 1"), ("time", OrNull(&Time), ""), ("turn", Text, "the turn's id; empty if unknown"),
        ("role", OneOf("user assistant tool"), ""), ("text", Text, ""),
        ("tool_calls?", List(&Fields(&[("id", Text, ""), ("name", Text, ""), ("arguments", Any, "as the model sent them")])), "of an assistant"),
        ("model?", Text, "of an assistant; empty if unknown"), ("call?", Text, "of a tool: the call's id"),
        ("name?", Text, "of a tool: its name"), ("failed?", OrNull(&Bool), "of a tool; `null` if unknown"),
    ] },
    JsonShape { name: "model", form: OneObject, meaning: "A model and what is known of it.", base: None, fields: &[
        ("provider", Text, ""), ("name", Text, ""), ("context", OrNull(&Count), "the tokens of a request and its reply"),
        ("output", OrNull(&Count), "the most tokens of a reply"), ("images", OrNull(&Bool), "takes images"),
        ("pdf", OrNull(&Bool), "takes PDF files"), ("audio", OrNull(&Bool), "takes recordings"), ("reasoning", OrNull(&Bool), ""),
        ("prices", OrNull(&List(&Shape("price"))), "`null` if they are unknown"),
    ] },
    JsonShape { name: "offered", form: OneObject, meaning: "What models are offered.", base: None, fields: &[
        ("servers", List(&Text), ""), ("skills", List(&Text), ""),
        ("skills_list", Fields(&[("own", Count, ""), ("lacking", Count, "skills whose requirements are not met"), ("tokens", Count, ""), ("budget_tokens", Count, ""), ("cut", Bool, "")]), ""),
        ("unused", Fields(&[("days", Count, ""), ("runs", Count, ""), ("servers", List(&Text), ""), ("skills", List(&Text), "")]), "what no run has used"),
    ] },
    JsonShape { name: "price", form: OneObject, meaning: "Dollars per million tokens, for requests above a length.", base: None, fields: &[
        ("above", Count, "tokens of the request"), ("input", Number, ""), ("cached_input", Number, ""), ("cache_write", Number, ""),
        ("output", Number, ""),
    ] },
    JsonShape { name: "provider", form: OneObject, meaning: "A service that has models.", base: None, fields: &[
        ("name", Text, ""), ("label", Text, "its name for people; empty if it is your own"),
        ("kind", OneOf("vendor gateway local custom login unbuilt"), ""), ("usable", Bool, ""),
        ("key", OrNull(&Text), "the kind of place that the key is from"), ("key_place", OrNull(&Text), "the place itself"),
        ("address", Text, ""), ("token_until", OrNull(&Time), "the end of a login's token"),
        ("problem", OrNull(&Text), "why its config cannot be used"),
    ] },
    JsonShape { name: "request", form: OneObject, meaning: "The parts of a request, with their estimated tokens.", base: None, fields: &[
        ("parts", List(&Fields(&[("part", Text, ""), ("tokens", Count, ""), ("why", Text, "")])), ""), ("total", Count, "tokens"),
        ("ratio", OrNull(&Number), "the provider's last count by the estimate, which `tokens` contain"),
        ("not_sent", List(&Text), "the messages that are not sent, and why"),
        ("threshold", OrNull(&Count), "the tokens at which the session is compacted"), ("model_takes", Count, "the context window"),
    ] },
    JsonShape { name: "resource", form: OneObject, meaning: "A resource, or a template of resources.", base: None, fields: &[
        ("uri", Text, ""), ("name", Text, ""), ("description", Text, ""), ("kind", OrNull(&Text), "the media type"),
    ] },
    JsonShape { name: "run", form: OneObject, meaning: "A start of a job that has ended.", base: None, fields: &[
        ("run", Text, "the run's id, for `cron logs --run` and `cron rerun`; empty for a run of an earlier release"),
        ("job", Text, "the job's id"), ("name", Text, "the job's name at that time"), ("host", Text, "the machine; empty if unknown"),
        ("release", Text, "the version of the program; empty if unknown"),
        ("trigger", OneOf("schedule hand"), "`hand`: a person started it"), ("slot", OrNull(&Time), "the time at which it was due"),
        ("retry", Count, "the number of the retry; 0 for the first try"), ("start", OrNull(&Time), ""), ("end", OrNull(&Time), ""),
        ("outcome", OneOf("ok nothing no failed busy missed elsewhere unknown"), "`nothing`: there was nothing to report; `no`: `--when` said that there is nothing to do; `busy`: the job was still running; `elsewhere`: another program ran it; `unknown`: it was killed"),
        ("status", Count, "the exit status"), ("cause", Text, "the name of the exit status"), ("error", OrNull(&Text), ""),
        ("session", Text, "the session of its turn; empty without a turn"), ("turn", Text, "the turn's id; empty without a turn"),
        ("model", Text, "empty without a turn"), ("iterations", Count, "the requests to the model"), ("input_tokens", Count, ""),
        ("output_tokens", Count, ""), ("cost_usd", OrNull(&Number), "`null` if the price is unknown"),
        ("denied", List(&Text), "the tools that were denied, once per call"), ("output", OrNull(&Text), "the path of the answer"),
        ("delivered", OrNull(&Text), "where the answer went"),
    ] },
    JsonShape { name: "saved_job", form: OneObject, meaning: "A job that a command created, changed or removed.", base: None, fields: &[
        ("id", Text, ""), ("name", Text, ""), ("change", OneOf("added changed unchanged removed"), ""),
        ("schedule", OrNull(&Text), "in words; `null` if it was removed"), ("next", OrNull(&Time), "its next run"),
    ] },
    JsonShape { name: "schedule", form: OneObject, meaning: "When a job runs.", base: None, fields: &[
        ("kind", OrNull(&OneOf("cron every at after")), "`null` if the schedule cannot be used"),
        ("expr?", Text, "with `cron`: the expression"), ("tz?", OrNull(&Text), "with `cron`: the time zone, if the job has one"),
        ("seconds?", Count, "with `every`: the interval"), ("time?", Time, "with `at`"),
        ("job?", Text, "with `after`: the id of the job before it"),
        ("name?", OrNull(&Text), "with `after`: the name of the job before it"), ("error?", Text, "why the schedule cannot be used"),
    ] },
    JsonShape { name: "server_tool", form: OneObject, meaning: "A tool of an MCP server.", base: None, fields: &[
        ("name", Text, "its name for models"), ("tool", Text, "its name at the server"), ("title", OrNull(&Text), ""),
        ("description", Text, ""), ("parameters", Object, "the JSON schema of its arguments"),
        ("hints", Fields(&[("reads_only", OrNull(&Bool), ""), ("destructive", OrNull(&Bool), ""), ("idempotent", OrNull(&Bool), ""), ("open_world", OrNull(&Bool), "")]), "what the server claims"),
        ("offered", Bool, "true if models get it"), ("changed", Bool, "true if it has changed since it was accepted"),
    ] },
    JsonShape { name: "session", form: OneObject, meaning: "A stored conversation.", base: None, fields: &[
        ("key", Text, ""), ("messages", OrNull(&Count), "`null` if they could not be counted"), ("created", OrNull(&Time), ""),
        ("updated", OrNull(&Time), "the time of its last message"), ("used", Time, "the time of its last use"), ("title", OrNull(&Text), ""),
        ("first_words", Text, "the beginning of its first message"), ("fork_of", OrNull(&Text), "the session that it was copied from"),
        ("bytes", Count, ""), ("path", Text, ""), ("read_only", Bool, "true if a newer release wrote it"),
        ("statistics", OrNull(&Shape("statistics")), "`null` if it has no turn"),
    ] },
    JsonShape { name: "spent", form: OneObject, meaning: "The costs of this day and month.", base: None, fields: &[
        ("day_usd", OrNull(&Number), ""), ("day_unpriced_calls", Count, ""), ("month_usd", OrNull(&Number), ""),
        ("month_unpriced_calls", Count, ""), ("later_day", OrNull(&Text), "the last day with costs, if it is in the future"),
    ] },
    JsonShape { name: "statistics", form: OneObject, meaning: "The sums of its turns.", base: None, fields: &[
        ("turns", Count, ""), ("steps", Count, "the requests to the model"), ("input", Count, "tokens"), ("output", Count, "tokens"),
        ("calls", Fields(&[("agreed", Count, ""), ("succeeded", Count, ""), ("failed", Count, ""), ("rejected", Count, "")]), "tool calls by outcome"),
        ("context", OrNull(&Count), "the tokens of the last request"), ("tokens_per_second", OrNull(&Number), ""),
        ("cost_usd", OrNull(&Number), ""),
    ] },
    JsonShape { name: "terms", form: OneObject, meaning: "What a job may do and how it runs.", base: None, fields: &[
        ("grants", Any, "its permissions, as flags"), ("by_model", Bool, "true if a model created it"), ("model", OrNull(&Text), ""),
        ("when", OrNull(&Text), "the command of `--when` or `--when-output`"),
        ("when_output", Bool, "true if its output decides"), ("command", OrNull(&Text), "the command of a job without a model"), ("fallbacks", OrNull(&List(&Text)), ""), ("hour_cache", Bool, ""),
        ("skills", List(&Text), ""), ("until", OrNull(&Text), "the command of `--until`"), ("max_rounds", OrNull(&Count), ""),
        ("timeout_s", OrNull(&Count), "`null` for the default"), ("max_cost_usd", OrNull(&Number), ""), ("catch_up", Text, ""),
        ("after_crash", Text, ""), ("ping", OrNull(&Text), ""), ("on_failure", OrNull(&Text), ""), ("on_success", OrNull(&Text), ""),
        ("notify", Text, ""), ("retry", Count, "the most retries"), ("retry_on", List(&Count), "further exit statuses that are retried"),
        ("retry_delay_s", Count, ""), ("jitter_s", Count, ""), ("quiet", Bool, ""),
        ("sink", OrNull(&Object), "where the answer is written: `file`, `command`, or `chat`"),
        ("config", OrNull(&Text), "its config file, if it has its own"), ("kind", OneOf("turn heartbeat command"), ""),
    ] },
    JsonShape { name: "tool", form: OneObject, meaning: "A tool, as a model gets it.", base: None, fields: &[
        ("name", Text, ""), ("description", Text, ""), ("parameters", Object, "the JSON schema of its arguments"),
    ] },
];
