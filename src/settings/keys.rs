//! The table of config keys: path, type, default, description, and whether this program uses the key.
//!
//! Types, defaults, environment variables, the JSON Schema and `config check`, `get` and `set` are all derived from
//! it. A `*` in a path stands for a name that the user chooses. Rows of one object are adjacent, so a [`Branch`] can
//! be a slice of the table. Paths and defaults are those of nanobot 0.1.4, then those of its newer releases, then our
//! own.

use super::kind::Kind;
use super::kind::Kind::{Any, Bool, Map, Number, OneOf, Secret, Secrets, Text, Texts, Whole};
use serde_json::Value;

/// A key of the config.
#[derive(Debug)]
pub struct Key {
    /// Key names from the top, joined by dots, in camelCase.
    pub path: &'static str,
    pub kind: Kind,
    /// The default as JSON; `null` if there is none.
    pub default: &'static str,
    pub stage: Stage,
    /// A one-line description for users.
    pub doc: &'static str,
}

impl Key {
    /// Parses the default.
    pub fn default_value(&self) -> Value {
        serde_json::from_str(self.default).expect("a test reads every default of the table")
    }
}

/// The degree to which this program supports a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Used.
    Used,
    /// Used, and written to the file by `onboard`.
    Written,
    /// Accepted, but belongs to a feature that this release does not have.
    Later,
    /// Accepted because other releases write it; it has no effect here.
    Ignored,
}

const fn key(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    stage: Stage,
    doc: &'static str,
) -> Key {
    Key {
        path,
        kind,
        default,
        stage,
        doc,
    }
}

use Stage::{Ignored, Later, Used, Written};

/// A count without a natural upper bound.
const COUNT: Kind = Whole(0, i64::MAX);
/// Tokens of one answer: at least 1, and more than any model can produce at most.
const TOKENS: Kind = Whole(1, 10_000_000);
const PORT: Kind = Whole(1, 65_535);
const SIZE: Kind = Whole(1, i64::MAX);
/// Seconds, at most one day.
const SECONDS: Kind = Whole(1, 86_400);
/// An amount in US dollars.
const DOLLARS: Kind = Number(0.0, 1e9);
const GROUP: Kind = OneOf(&["mention", "open", "allowlist"]);

// One row per line keeps the table readable.
#[rustfmt::skip]
/// All keys of the config.
pub const KEYS: &[Key] = &[
    key("agents.defaults.workspace", Text, r#""~/.nanobot/workspace""#, Written, "the agent's own directory: notes, memory, skills, sessions"),
    key("agents.defaults.directory", OneOf(&["cwd", "workspace"]), r#""cwd""#, Used, "where the work is: the current directory, or the workspace"),
    key("agents.defaults.model", Text, "null", Written, "the model, as its provider names it; unset: the provider's default"),
    key("agents.defaults.provider", Text, r#""auto""#, Written, "the provider's name; `auto` finds it from model and keys"),
    key("agents.defaults.maxTokens", TOKENS, "8192", Written, "tokens that one answer may have"),
    key("agents.defaults.temperature", Number(0.0, 2.0), "0.1", Written, "0 for the same answer each time, up to 2"),
    key("agents.defaults.maxToolIterations", Whole(1, 10_000), "40", Written, "requests to the model in one turn"),
    key("agents.defaults.memoryWindow", Whole(1, 1_000_000), "100", Written, "messages of the session that are sent again"),
    key("agents.defaults.reasoningEffort", Text, "null", Used, "low, medium, high, or what else the model knows"),
    key("agents.defaults.profile", Text, r#""default""#, Used, "what a run may do: default, plan, accept-edits, auto-approve, or a profile of your own"),
    key("agents.defaults.maxToolResultChars", Whole(1, 10_000_000), "16000", Used, "characters of a tool's result that a session keeps"),
    key("agents.defaults.disabledSkills", Texts, "[]", Used, "names of skills that are left out"),
    key("agents.defaults.skillsBudgetTokens", Whole(0, 1_000_000), "2000", Used, "tokens that the list of skills may take of each request; a longer one is cut"),
    key("agents.defaults.fallbackModels", Any, "[]", Used, "models to ask when the first one is down: names, presets, or objects as in `modelPresets`"),
    key("agents.defaults.modelPreset", Text, "null", Used, "the entry of `modelPresets` to use"),
    key("agents.defaults.contextWindowTokens", TOKENS, "200000", Used, "tokens that the model takes in, where it is not known"),
    key("agents.defaults.contextBlockLimit", COUNT, "null", Later, "tokens after which context is compacted"),
    key("agents.defaults.maxConcurrentSubagents", SIZE, "null", Used, "sub-agents that run at the same time, where `--max-parallel` would let more"),
    key("agents.defaults.failOnToolError", Bool, "true", Ignored, "a failing tool is news for the model here"),
    key("agents.defaults.providerRetryMode", OneOf(&["standard", "persistent"]), r#""standard""#, Ignored, "retries follow one rule here"),
    key("agents.defaults.toolHintMaxLength", COUNT, "40", Ignored, "length of a tool hint"),
    key("agents.defaults.timezone", Text, r#""UTC""#, Ignored, "the system's time zone is used here"),
    key("agents.defaults.timezoneMode", Text, r#""auto""#, Ignored, "the system's time zone is used here"),
    key("agents.defaults.botName", Text, r#""nanobot""#, Ignored, "name shown in chats"),
    key("agents.defaults.botIcon", Text, r#""🐈""#, Ignored, "icon shown in chats"),
    key("agents.defaults.unifiedSession", Bool, "false", Later, "one session for all channels"),
    key("agents.defaults.idleCompactAfterMinutes", COUNT, "15", Later, "minutes after which an idle session is compacted"),
    key("agents.defaults.idleCompactCheckIntervalSeconds", COUNT, "60", Ignored, "belongs to a daemon"),
    key("agents.defaults.consolidationRatio", Number(0.0, 1.0), "0.5", Later, "share of the history that consolidation takes"),
    key("agents.defaults.maxMessages", COUNT, "null", Ignored, "dropped by newer releases"),
    key("agents.defaults.dream.enabled", Bool, "true", Ignored, "belongs to a daemon"),
    key("agents.defaults.dream.intervalH", Number(0.0, 8760.0), "2", Ignored, "belongs to a daemon"),
    key("agents.defaults.dream.modelOverride", Text, "null", Ignored, "belongs to a daemon"),

    key("channels.sendProgress", Bool, "true", Later, "send what is said on the way"),
    key("channels.sendToolHints", Bool, "false", Later, "send which tools are used"),
    key("channels.showReasoning", Bool, "true", Later, "send what the model thought"),
    key("channels.extractDocumentText", Bool, "true", Later, "read attached documents"),
    key("channels.sendMaxRetries", COUNT, "3", Later, "tries to deliver a message"),
    key("channels.transcriptionProvider", Text, r#""groq""#, Later, "who turns speech into text"),
    key("channels.transcriptionLanguage", Text, "null", Later, "language of voice messages"),
    key("channels.whatsapp.enabled", Bool, "false", Later, "use WhatsApp"),
    key("channels.whatsapp.bridgeUrl", Text, r#""ws://localhost:3001""#, Later, "the bridge"),
    key("channels.whatsapp.bridgeToken", Secret, r#""""#, Later, "the bridge's token"),
    key("channels.whatsapp.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.telegram.enabled", Bool, "false", Later, "use Telegram"),
    key("channels.telegram.token", Secret, r#""""#, Later, "the bot's token"),
    key("channels.telegram.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.telegram.proxy", Secret, "null", Later, "proxy for Telegram"),
    key("channels.telegram.replyToMessage", Bool, "false", Later, "quote the message that is answered"),
    key("channels.discord.enabled", Bool, "false", Later, "use Discord"),
    key("channels.discord.token", Secret, r#""""#, Later, "the bot's token"),
    key("channels.discord.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.discord.gatewayUrl", Text, r#""wss://gateway.discord.gg/?v=10&encoding=json""#, Later, "Discord's gateway"),
    key("channels.discord.intents", COUNT, "37377", Later, "events to listen to"),
    key("channels.feishu.enabled", Bool, "false", Later, "use Feishu"),
    key("channels.feishu.appId", Text, r#""""#, Later, "the app's id"),
    key("channels.feishu.appSecret", Secret, r#""""#, Later, "the app's secret"),
    key("channels.feishu.encryptKey", Secret, r#""""#, Later, "key of encrypted events"),
    key("channels.feishu.verificationToken", Secret, r#""""#, Later, "token of events"),
    key("channels.feishu.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.feishu.reactEmoji", Text, r#""THUMBSUP""#, Later, "reaction to a message"),
    key("channels.mochat.enabled", Bool, "false", Later, "use MoChat"),
    key("channels.mochat.baseUrl", Text, r#""https://mochat.io""#, Later, "the server"),
    key("channels.mochat.socketUrl", Text, r#""""#, Later, "the socket's address"),
    key("channels.mochat.socketPath", Text, r#""/socket.io""#, Later, "the socket's path"),
    key("channels.mochat.socketDisableMsgpack", Bool, "false", Later, "plain JSON on the socket"),
    key("channels.mochat.socketReconnectDelayMs", COUNT, "1000", Later, "milliseconds"),
    key("channels.mochat.socketMaxReconnectDelayMs", COUNT, "10000", Later, "milliseconds"),
    key("channels.mochat.socketConnectTimeoutMs", COUNT, "10000", Later, "milliseconds"),
    key("channels.mochat.refreshIntervalMs", COUNT, "30000", Later, "milliseconds"),
    key("channels.mochat.watchTimeoutMs", COUNT, "25000", Later, "milliseconds"),
    key("channels.mochat.watchLimit", COUNT, "100", Later, "messages at a time"),
    key("channels.mochat.retryDelayMs", COUNT, "500", Later, "milliseconds"),
    key("channels.mochat.maxRetryAttempts", COUNT, "0", Later, "0 for no limit"),
    key("channels.mochat.clawToken", Secret, r#""""#, Later, "the agent's token"),
    key("channels.mochat.agentUserId", Text, r#""""#, Later, "the agent's id"),
    key("channels.mochat.sessions", Texts, "[]", Later, "sessions to watch"),
    key("channels.mochat.panels", Texts, "[]", Later, "panels to watch"),
    key("channels.mochat.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.mochat.mention.requireInGroups", Bool, "false", Later, "answer in groups only when mentioned"),
    key("channels.mochat.groups", Any, "{}", Later, "rules of single groups"),
    key("channels.mochat.replyDelayMode", Text, r#""non-mention""#, Later, "which answers are delayed"),
    key("channels.mochat.replyDelayMs", COUNT, "120000", Later, "milliseconds"),
    key("channels.dingtalk.enabled", Bool, "false", Later, "use DingTalk"),
    key("channels.dingtalk.clientId", Text, r#""""#, Later, "the app's id"),
    key("channels.dingtalk.clientSecret", Secret, r#""""#, Later, "the app's secret"),
    key("channels.dingtalk.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.email.enabled", Bool, "false", Later, "use e-mail"),
    key("channels.email.consentGranted", Bool, "false", Later, "the mailbox's owner agreed"),
    key("channels.email.imapHost", Text, r#""""#, Later, "where mail is read"),
    key("channels.email.imapPort", PORT, "993", Later, "port"),
    key("channels.email.imapUsername", Text, r#""""#, Later, "name"),
    key("channels.email.imapPassword", Secret, r#""""#, Later, "password"),
    key("channels.email.imapMailbox", Text, r#""INBOX""#, Later, "mailbox"),
    key("channels.email.imapUseSsl", Bool, "true", Later, "TLS from the start"),
    key("channels.email.smtpHost", Text, r#""""#, Later, "where mail is sent"),
    key("channels.email.smtpPort", PORT, "587", Later, "port"),
    key("channels.email.smtpUsername", Text, r#""""#, Later, "name"),
    key("channels.email.smtpPassword", Secret, r#""""#, Later, "password"),
    key("channels.email.smtpUseTls", Bool, "true", Later, "STARTTLS"),
    key("channels.email.smtpUseSsl", Bool, "false", Later, "TLS from the start"),
    key("channels.email.fromAddress", Text, r#""""#, Later, "sender"),
    key("channels.email.autoReplyEnabled", Bool, "true", Later, "answer mail"),
    key("channels.email.pollIntervalSeconds", COUNT, "30", Later, "seconds"),
    key("channels.email.markSeen", Bool, "true", Later, "mark what was read"),
    key("channels.email.maxBodyChars", COUNT, "12000", Later, "characters of a mail that are read"),
    key("channels.email.subjectPrefix", Text, r#""Re: ""#, Later, "before the subject of an answer"),
    key("channels.email.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.slack.enabled", Bool, "false", Later, "use Slack"),
    key("channels.slack.mode", Text, r#""socket""#, Later, "how events arrive"),
    key("channels.slack.webhookPath", Text, r#""/slack/events""#, Later, "path of events"),
    key("channels.slack.botToken", Secret, r#""""#, Later, "the bot's token"),
    key("channels.slack.appToken", Secret, r#""""#, Later, "the app's token"),
    key("channels.slack.userTokenReadOnly", Bool, "true", Later, "never write as the user"),
    key("channels.slack.replyInThread", Bool, "true", Later, "answer in a thread"),
    key("channels.slack.reactEmoji", Text, r#""eyes""#, Later, "reaction to a message"),
    key("channels.slack.groupPolicy", GROUP, r#""mention""#, Later, "when to answer in channels"),
    key("channels.slack.groupAllowFrom", Texts, "[]", Later, "channels to answer in"),
    key("channels.slack.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.slack.dm.enabled", Bool, "true", Later, "answer direct messages"),
    key("channels.slack.dm.policy", OneOf(&["open", "allowlist"]), r#""open""#, Later, "whose direct messages"),
    key("channels.slack.dm.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.qq.enabled", Bool, "false", Later, "use QQ"),
    key("channels.qq.appId", Text, r#""""#, Later, "the app's id"),
    key("channels.qq.secret", Secret, r#""""#, Later, "the app's secret"),
    key("channels.qq.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.matrix.enabled", Bool, "false", Later, "use Matrix"),
    key("channels.matrix.homeserver", Text, r#""https://matrix.org""#, Later, "the server"),
    key("channels.matrix.accessToken", Secret, r#""""#, Later, "the user's token"),
    key("channels.matrix.userId", Text, r#""""#, Later, "the user's id"),
    key("channels.matrix.deviceId", Text, r#""""#, Later, "the device's id"),
    key("channels.matrix.e2EeEnabled", Bool, "true", Later, "encrypted rooms"),
    key("channels.matrix.syncStopGraceSeconds", COUNT, "2", Later, "seconds"),
    key("channels.matrix.maxMediaBytes", COUNT, "20971520", Later, "bytes of an attachment"),
    key("channels.matrix.allowFrom", Texts, "[]", Later, "who may write"),
    key("channels.matrix.groupPolicy", GROUP, r#""open""#, Later, "when to answer in rooms"),
    key("channels.matrix.groupAllowFrom", Texts, "[]", Later, "rooms to answer in"),
    key("channels.matrix.allowRoomMentions", Bool, "false", Later, "answer when the whole room is mentioned"),

    key("providers.*.apiKey", Secret, r#""""#, Used, "the key, or `${VARIABLE}`"),
    key("providers.*.apiBase", Text, "null", Used, "address of the interface, up to `/v1`"),
    key("providers.*.extraHeaders", Secrets, "null", Used, "headers to send as well"),
    key("providers.*.apiKeyFile", Text, "null", Used, "a file that holds the key"),
    key("providers.*.apiKeyCommand", Text, "null", Used, "a command whose output is the key, for password managers"),
    key("providers.*.apiType", Text, r#""auto""#, Used, "the wire format: auto, chat_completions, responses, anthropic"),
    key("providers.*.extraBody", Any, "null", Used, "fields to send as well"),
    key("providers.*.extraQuery", Any, "null", Used, "query parameters to send as well"),
    key("providers.*.proxy", Secret, "null", Used, "proxy for this provider"),
    key("providers.*.thinkingStyle", Text, "null", Used, "how thinking is asked for: thinking_type, enable_thinking, reasoning_split, reasoning_effort, none"),
    key("providers.*.displayName", Text, "null", Ignored, "name shown in lists"),

    key("gateway.host", Text, r#""0.0.0.0""#, Ignored, "there is no gateway here"),
    key("gateway.port", PORT, "18790", Ignored, "there is no gateway here"),
    key("gateway.restartMode", Text, r#""auto""#, Ignored, "there is no gateway here"),
    key("gateway.heartbeat.enabled", Bool, "true", Later, "look at HEARTBEAT.md from time to time"),
    key("gateway.heartbeat.intervalS", SIZE, "1800", Later, "seconds between two looks"),
    key("gateway.heartbeat.keepRecentMessages", COUNT, "8", Later, "messages of the last look that are sent again"),

    key("api.host", Text, r#""127.0.0.1""#, Ignored, "there is no server here"),
    key("api.port", PORT, "8900", Ignored, "there is no server here"),
    key("api.timeout", Number(0.0, 86_400.0), "120", Ignored, "there is no server here"),
    key("api.apiKey", Secret, r#""""#, Ignored, "there is no server here"),

    key("transcription.enabled", Bool, "true", Later, "turn speech into text"),
    key("transcription.provider", Text, "null", Later, "who does it"),
    key("transcription.model", Text, "null", Later, "with which model"),
    key("transcription.language", Text, "null", Later, "language of what is said"),
    key("transcription.maxDurationSec", COUNT, "120", Later, "seconds"),
    key("transcription.maxUploadMb", COUNT, "25", Later, "megabytes"),

    key("modelPresets", Any, "{}", Used, "models with their settings, by name; a preset that is a text is another name for a model"),

    key("models", Any, "{}", Used, "what you know better of a model, by name: contextWindowTokens, maxOutputTokens, images, pdf, price"),

    key("budget.daily", DOLLARS, "null", Used, "US dollars that a day may cost, all runs together"),
    key("budget.monthly", DOLLARS, "null", Used, "US dollars that a month may cost"),
    key("budget.perSession", DOLLARS, "null", Used, "US dollars that one conversation may cost"),

    key("compaction.threshold", COUNT, "null", Used, "tokens of what is sent at which a conversation is summed up; 0 for never; unset: by the model, 200000 at most"),
    key("compaction.warning", Bool, "true", Used, "tell the model when half of that is reached"),

    key("memory.consolidate", OneOf(&["auto", "detached", "inline", "manual"]), r#""auto""#, Used, "when old messages become memory: after the answer in a process of its own (detached), or in the same one with standard output closed (inline); auto: detached where there is a terminal, else inline; manual: `nanobot memory consolidate` alone"),
    key("memory.model", Text, "null", Used, "the model, or preset, that is asked for it; unset: the one of the turn"),
    key("memory.budgetTokens", TOKENS, "4000", Used, "tokens that MEMORY.md may have before it is to be tidied"),

    key("session.sync", OneOf(&["turn", "none"]), r#""turn""#, Used, "when the session is forced to disk: at the turn's end, or never"),

    key("tools.restrictToWorkspace", Bool, "false", Written, "work in the workspace and read nothing else"),
    key("tools.permissions", Map, "{}", Used, "`always`, `ask` or `never`, by tool; `*` stands for any text in a name"),
    key("tools.allow", Texts, "[]", Used, "rules, as `--allow` takes them"),
    key("tools.deny", Texts, "[]", Used, "rules, as `--deny` takes them"),
    key("tools.read", Texts, "[]", Used, "places to read besides the directory and the workspace"),
    key("tools.write", Texts, "[]", Used, "places that may be changed; `.` is the directory"),
    key("tools.net", Texts, "[]", Used, "hosts that the web tools may always reach, as `--net=HOSTS`"),
    key("tools.sandbox", OneOf(&["auto", "strict"]), r#""auto""#, Used, "strict: nothing runs where the system has no sandbox for commands"),
    key("tools.exec.enable", Bool, "true", Used, "offer the tool that runs commands"),
    key("tools.exec.timeout", SECONDS, "60", Written, "seconds that a command may take"),
    key("tools.exec.pathPrepend", Text, r#""""#, Used, "directories before PATH, joined by colons"),
    key("tools.exec.pathAppend", Text, r#""""#, Used, "directories after PATH, joined by colons"),
    key("tools.exec.allowedEnvKeys", Texts, "[]", Used, "variables that commands see besides the usual ones"),
    key("tools.exec.sandbox", Text, r#""""#, Used, "as other releases have it: any name means that no command runs without a sandbox"),
    key("tools.exec.sandboxRoBinds", Texts, "[]", Used, "as `tools.read`"),
    key("tools.exec.sandboxRwBinds", Texts, "[]", Used, "as `tools.write`"),
    key("tools.exec.allowPatterns", Texts, "[]", Used, "when there are any, a command must match one of these expressions: a tripwire, and no security"),
    key("tools.exec.denyPatterns", Texts, "[]", Used, "commands that match one of these expressions are refused: a tripwire, and no security"),
    key("tools.file.enable", Bool, "true", Used, "offer the file tools"),
    key("tools.web.enable", Bool, "true", Used, "offer the web tools"),
    key("tools.web.proxy", Secret, "null", Used, "proxy for the web tools"),
    key("tools.web.userAgent", Text, "null", Used, "who the web tools say they are"),
    key("tools.web.search.provider", Text, r#""duckduckgo""#, Used, "who searches: brave, searxng or duckduckgo; unset: brave where there is a key, else duckduckgo"),
    key("tools.web.search.apiKey", Secret, r#""""#, Used, "the key for it; else BRAVE_API_KEY"),
    key("tools.web.search.baseUrl", Text, r#""""#, Used, "its address, where it is not everybody's"),
    key("tools.web.search.maxResults", Whole(1, 1_000), "5", Used, "results of a search"),
    key("tools.web.search.timeout", SECONDS, "30", Used, "seconds"),
    key("tools.web.fetch.useJinaReader", Bool, "true", Ignored, "no page is read through a service here"),
    key("tools.my.enable", Bool, "true", Ignored, "self-inspection of other releases"),
    key("tools.my.allowSet", Bool, "false", Ignored, "self-inspection of other releases"),
    key("tools.cliApps", Any, "null", Ignored, "belongs to other releases"),
    key("tools.imageGeneration", Any, "null", Later, "making of images"),
    key("tools.ssrfWhitelist", Texts, "[]", Used, "address ranges that the web tools may reach though they are not public, as `10.0.0.0/8`"),
    key("tools.maxSessionMessagesPerMinute", COUNT, "6", Later, "messages to other sessions"),
    key("tools.mcpServers.*.command", Text, r#""""#, Used, "the program to start"),
    key("tools.mcpServers.*.args", Texts, "[]", Used, "its arguments"),
    key("tools.mcpServers.*.env", Secrets, "{}", Used, "variables that it sees besides the usual ones"),
    key("tools.mcpServers.*.cwd", Text, "null", Used, "its directory; unset: one of its own"),
    key("tools.mcpServers.*.type", Text, "null", Used, "how it is reached: stdio, streamableHttp, sse; unset: stdio where there is a command, sse where the address ends with /sse"),
    key("tools.mcpServers.*.url", Text, r#""""#, Used, "its address, where it is no program of this machine"),
    key("tools.mcpServers.*.headers", Secrets, "{}", Used, "headers to send; `${VARIABLE}` stands for what that holds"),
    key("tools.mcpServers.*.auth", Text, "null", Used, "how to log in; there is no way yet but a token in `headers`"),
    key("tools.mcpServers.*.toolTimeout", SECONDS, "30", Used, "seconds that a call may take"),
    key("tools.mcpServers.*.startTimeout", SECONDS, "30", Used, "seconds that it may take until it can be asked"),
    key("tools.mcpServers.*.enabledTools", Texts, r#"["*"]"#, Used, "tools to offer, by their own names or ours; `*` stands for any text, and alone for resources and prompts too"),
    key("tools.mcpServers.*.required", Bool, "false", Used, "no run begins without it"),
    key("tools.mcpServers.*.disabled", Bool, "false", Used, "do not use it"),
    key("tools.mcpServers.*.read", Texts, "[]", Used, "places that it may read besides those that its command names"),
    key("tools.mcpServers.*.write", Texts, "[]", Used, "places that it may change besides those that its command names"),
    key("tools.mcpServers.*.sandbox", OneOf(&["auto", "off"]), r#""auto""#, Used, "off: it may do all that you may"),
];

/// Obsolete keys and their replacements, as `(old, new)`.
pub const MOVED: &[(&str, &str)] = &[
    (
        "agents.defaults.maxIterations",
        "agents.defaults.maxToolIterations",
    ),
    (
        "agents.defaults.sessionTtlMinutes",
        "agents.defaults.idleCompactAfterMinutes",
    ),
    (
        "tools.exec.restrictToWorkspace",
        "tools.restrictToWorkspace",
    ),
    ("tools.myEnabled", "tools.my.enable"),
    ("tools.mySet", "tools.my.allowSet"),
    ("channels.matrix.e2eeEnabled", "channels.matrix.e2EeEnabled"),
];

/// The top-level keys that nanobot 0.1.4 knows. It rejects the whole file if there is any other.
pub const OLD_TOP: &[&str] = &["agents", "channels", "providers", "gateway", "tools"];

/// A node in the tree of keys: a key, or an object that contains keys.
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    rows: &'static [Key],
    /// Offset in each row's path at which the names below this node start.
    start: usize,
}

impl Branch {
    /// Returns the root of the table.
    pub fn root() -> Self {
        Self {
            rows: KEYS,
            start: 0,
        }
    }

    /// Returns the node at `path`. A path below a key that holds a map leads to that key's own node.
    pub fn at(path: &[impl AsRef<str>]) -> Option<Self> {
        let mut here = Self::root();
        for name in path {
            if let Some(Key {
                kind: Map | Secrets | Any,
                ..
            }) = here.key()
            {
                return Some(here);
            }
            here = here.child(name.as_ref())?;
        }
        Some(here)
    }

    /// Returns the type of the value at `path`; `None` if the table has no such key or an object of keys.
    pub fn kind_at(path: &[impl AsRef<str>]) -> Option<Kind> {
        let key = Self::at(path)?.key()?;
        let below = path.len() > key.path.split('.').count();
        Some(match key.kind {
            Map if below => Text,
            Secrets if below => Secret,
            kind => kind,
        })
    }

    /// Converts `written`, a dotted path in any spelling and possibly obsolete, to the table's path; `None` if the
    /// table has no such key.
    pub fn path_of(written: &str) -> Option<Vec<String>> {
        let mut path: Vec<String> = Vec::new();
        let mut here = Some(Self::root());
        for part in written.split('.') {
            let branch = here?;
            if matches!(branch.key().map(|key| key.kind), Some(Map | Secrets | Any)) {
                path.push(part.to_owned());
                continue;
            }
            let name = branch.canonical(part);
            here = branch.child(&name);
            path.push(name);
        }
        if here.is_some() {
            return Some(path);
        }
        let old = path.join(".");
        let (_, new) = MOVED.iter().find(|(known, _)| *known == old)?;
        Some(new.split('.').map(str::to_owned).collect())
    }

    /// Returns the key at this node, if the node is a key.
    pub fn key(self) -> Option<&'static Key> {
        let first = self.rows.first()?;
        (self.start > first.path.len()).then_some(first)
    }

    /// All keys at and below this node.
    pub fn keys(self) -> &'static [Key] {
        self.rows
    }

    /// Returns the child node called `name`, which must be in the table's spelling.
    pub fn child(self, name: &str) -> Option<Self> {
        self.exactly(name).or_else(|| self.exactly("*"))
    }

    /// Returns the names of the children without duplicates; `*` if the user chooses them.
    pub fn names(self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for row in self.rows {
            if let Some(name) = self.name_in(row)
                && names.last() != Some(&name)
            {
                names.push(name);
            }
        }
        names
    }

    /// Converts `written` to the table's spelling; camelCase and snake_case are accepted.
    pub fn canonical(self, written: &str) -> String {
        if self.exactly(written).is_some() {
            return written.to_owned();
        }
        let camel = camel_case(written);
        // Names of MCP servers and headers are the user's own and stay as written; provider names are fixed keys.
        let provider = self.rows.first().is_some_and(|row| {
            self.name_in(row) == Some("*") && row.path[..self.start] == *"providers."
        });
        if provider || self.exactly(&camel).is_some() || self.moved(&camel) {
            return camel;
        }
        written.to_owned()
    }

    /// True if `name` is an obsolete key at this node.
    fn moved(self, name: &str) -> bool {
        let above = self.rows.first().and_then(|row| row.path.get(..self.start));
        MOVED
            .iter()
            .any(|(old, _)| above.and_then(|above| old.strip_prefix(above)) == Some(name))
    }

    fn exactly(self, name: &str) -> Option<Self> {
        // The table is scanned for every key of every config, so paths are compared without splitting them.
        let is_named = |row: &&Key| {
            let rest = row.path.get(self.start..);
            let rest = rest.and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let first = self.rows.iter().position(|row| is_named(&row))?;
        let count = self.rows[first..].iter().take_while(is_named).count();
        Some(Self {
            rows: &self.rows[first..first + count],
            start: self.start + name.len() + 1,
        })
    }

    fn name_in(self, row: &'static Key) -> Option<&'static str> {
        row.path.get(self.start..)?.split('.').next()
    }
}

/// Converts `max_tokens` to `maxTokens`. A name without underscores is unchanged.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Converts `openaiCodex` to `openai_codex`, the form of provider names in values.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_uppercase() {
            if !snake.is_empty() && !snake.ends_with('_') {
                snake.push('_');
            }
            snake.extend(letter.to_lowercase());
        } else {
            snake.push(if letter == '-' { '_' } else { letter });
        }
    }
    snake
}

/// Returns the name among `known` that `name` is most likely a misspelling of.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .filter(|candidate| *candidate != "*")
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::{Branch, KEYS, MOVED, camel_case, nearest, snake_case};
    use std::collections::HashSet;

    #[test]
    fn each_path_stands_once_and_beside_its_siblings() {
        let mut closed: HashSet<&str> = HashSet::new();
        let mut previous = "";
        for row in KEYS {
            for (dot, _) in row.path.match_indices('.').chain([(row.path.len(), "")]) {
                let prefix = &row.path[..dot];
                let goes_on = previous == prefix
                    || previous
                        .strip_prefix(prefix)
                        .is_some_and(|rest| rest.starts_with('.'));
                if !goes_on {
                    assert!(closed.insert(prefix), "`{prefix}` is torn apart");
                }
            }
            assert_ne!(previous, row.path);
            previous = row.path;
        }
    }

    #[test]
    fn each_default_is_of_its_type() {
        for row in KEYS {
            let default = row.default_value();
            assert!(
                default.is_null() || row.kind.accept(&default) == Some(default),
                "{}",
                row.path
            );
            assert!(
                !row.doc.is_empty() && !row.doc.ends_with('.'),
                "{}",
                row.path
            );
        }
    }

    #[test]
    fn what_moved_arrived_somewhere() {
        let find = |path: &str| {
            let names: Vec<&str> = path.split('.').collect();
            Branch::at(&names).and_then(Branch::key).map(|key| key.path)
        };
        for (old, new) in MOVED {
            assert_eq!(find(new), Some(*new));
            assert_eq!(find(old), None);
        }
    }

    #[test]
    fn paths_are_found() {
        let check = |path: &str, expect: Option<&str>| {
            let names: Vec<&str> = path.split('.').collect();
            let found = Branch::at(&names).and_then(Branch::key).map(|key| key.path);
            assert_eq!(found, expect, "{path}");
        };
        check("agents.defaults.model", Some("agents.defaults.model"));
        check("agents.defaults", None);
        check("agents.defaults.mode", None);
        check("providers.openai.apiKey", Some("providers.*.apiKey"));
        check(
            "providers.openai.extraHeaders.X-A",
            Some("providers.*.extraHeaders"),
        );
        check("agents.defaults.model.x", None);
        check("modelPresets.a.b", Some("modelPresets"));
    }

    #[test]
    fn spellings() {
        let check = |path: &[&str], written: &str, expect: &str| {
            assert_eq!(Branch::at(path).unwrap().canonical(written), expect);
        };
        check(&["agents", "defaults"], "max_tokens", "maxTokens");
        check(&["agents", "defaults"], "maxTokens", "maxTokens");
        check(&["agents", "defaults"], "my_own", "my_own");
        check(&["providers"], "openai_codex", "openaiCodex");
        check(&["tools", "mcpServers"], "my_server", "my_server");
        check(&["tools"], "mcp_servers", "mcpServers");
        assert_eq!(camel_case("interval_s"), "intervalS");
        assert_eq!(snake_case("openaiCodex"), "openai_codex");
        assert_eq!(snake_case("lm-studio"), "lm_studio");
    }

    #[test]
    fn paths_as_typed() {
        let check = |written: &str, expect: Option<&str>| {
            let path = Branch::path_of(written).map(|path| path.join("."));
            assert_eq!(path.as_deref(), expect, "{written}");
        };
        check(
            "agents.defaults.max_tokens",
            Some("agents.defaults.maxTokens"),
        );
        check("agents.defaults", Some("agents.defaults"));
        check(
            "agents.defaults.max_iterations",
            Some("agents.defaults.maxToolIterations"),
        );
        check(
            "tools.exec.restrictToWorkspace",
            Some("tools.restrictToWorkspace"),
        );
        check(
            "providers.lm_studio.extra_headers.X_A",
            Some("providers.lmStudio.extraHeaders.X_A"),
        );
        check("modelPresets.a_b.c_d", Some("modelPresets.a_b.c_d"));
        check("agents.defaults.model.x", None);
        check("agents.defaults.modle", None);
        check("agents.maxIterations", None);
        check("", None);
    }

    #[test]
    fn a_slip_is_recognised() {
        let names = Branch::at(&["agents", "defaults"]).unwrap().names();
        assert_eq!(nearest("modle", names.clone()), Some("model"));
        assert_eq!(nearest("zzz", names), None);
    }
}
