//! The table of config keys: path, type, default, description, and whether this program uses the key.
//!
//! Types, defaults, environment variables, the JSON Schema and `config check`, `get` and `set` are all derived from
//! it. A `*` in a path stands for a name that the user chooses. Rows of one object are adjacent, since an object is a
//! slice of the table. Paths and defaults are those of nanobot 0.1.4, then those of its newer releases, then our
//! own. Every run reads some sixty keys, so the look-ups are prepared at compile time.

use super::key_type::KeyType;
use super::key_type::KeyType::{
    Any, Bool, Map, Number, OneOf, Secret, SecretMap, Text, TextList, Verbatim, Whole,
};
use serde_json::Value;

/// A key of the config.
#[derive(Debug)]
pub struct ConfigKey {
    /// Key names from the top, joined by dots, in camelCase.
    pub path: &'static str,
    pub kind: KeyType,
    /// The default as JSON; `null` if there is none.
    pub default: &'static str,
    pub support: KeySupport,
    /// A one-line description for users.
    pub doc: &'static str,
}

impl ConfigKey {
    /// Parses the default.
    pub fn default_value(&self) -> Value {
        serde_json::from_str(self.default).expect("a test reads every default of the table")
    }
}

/// The degree to which this program supports a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySupport {
    /// Used.
    Used,
    /// Used, and written to the file by `onboard`.
    UsedAndWritten,
    /// Accepted, but belongs to a feature that this release does not have.
    Later,
    /// Accepted because other releases write it; it has no effect here.
    Ignored,
}

const fn key(
    path: &'static str,
    kind: KeyType,
    default: &'static str,
    stage: KeySupport,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey {
        path,
        kind,
        default,
        support: stage,
        doc,
    }
}

use KeySupport::{Ignored, Later, Used, UsedAndWritten};

/// A count without a natural upper bound.
const UNBOUNDED_COUNT: KeyType = Whole(0, i64::MAX);
/// Tokens of one answer: at least 1, and more than any model can produce at most.
const TOKEN_COUNT: KeyType = Whole(1, 10_000_000);
const PORT_NUMBER: KeyType = Whole(1, 65_535);
const POSITIVE_COUNT: KeyType = Whole(1, i64::MAX);
/// Seconds, at most one day.
const UP_TO_ONE_DAY_SECS: KeyType = Whole(1, 86_400);
/// An amount in US dollars.
const USD_AMOUNT: KeyType = Number(0.0, 1e9);
const GROUP_POLICY: KeyType = OneOf(&["mention", "open", "allowlist"]);

// One row per line keeps the table readable.
#[rustfmt::skip]
/// All keys of the config.
pub const KEYS: &[ConfigKey] = &[
    key("agents.defaults.workspace", Text, r#""~/.nanobot/workspace""#, UsedAndWritten, "the agent's own directory: notes, memory, skills, sessions"),
    key("agents.defaults.directory", OneOf(&["cwd", "workspace"]), r#""cwd""#, Used, "working directory: the current directory, or the workspace"),
    key("agents.defaults.session", Text, r#""cli:direct""#, Used, "session of a run without `-s` and without piped input: a key; `none` for a fresh one each time; `directory` for one per directory"),
    key("agents.defaults.model", Text, "null", UsedAndWritten, "the model, as its provider names it; unset: the provider's default"),
    key("agents.defaults.provider", Text, r#""auto""#, UsedAndWritten, "the provider's name; `auto` derives it from the model and the API keys"),
    key("agents.defaults.maxTokens", TOKEN_COUNT, "8192", UsedAndWritten, "maximum tokens of one answer"),
    key("agents.defaults.temperature", Number(0.0, 2.0), "0.1", UsedAndWritten, "sampling temperature, from 0 (most predictable) to 2"),
    key("agents.defaults.maxToolIterations", Whole(1, 10_000), "40", UsedAndWritten, "maximum requests to the model in one turn"),
    key("agents.defaults.memoryWindow", Whole(1, 1_000_000), "100", UsedAndWritten, "earlier messages of the session sent with each request; up to four times as many while they wait for consolidation"),
    key("agents.defaults.reasoningEffort", Text, "null", Used, "low, medium, high, or another level that the model supports"),
    key("agents.defaults.profile", Text, r#""default""#, Used, "permissions of a run: default, plan, accept-edits, auto-approve, or a profile of your own"),
    key("agents.defaults.maxToolResultChars", Whole(1, 10_000_000), "16000", Used, "maximum characters of a tool result stored in the session"),
    key("agents.defaults.disabledSkills", TextList, "[]", Used, "names of skills to disable"),
    key("agents.defaults.skillsBudgetTokens", Whole(0, 1_000_000), "2000", Used, "maximum tokens of the skill list in each request; a longer list is shortened"),
    key("agents.defaults.fallbackModels", Any, "[]", Used, "models to try if the first one fails: names, presets, or objects as in `modelPresets`"),
    key("agents.defaults.modelPreset", Text, "null", Used, "the entry of `modelPresets` to use"),
    key("agents.defaults.contextWindowTokens", TOKEN_COUNT, "200000", Used, "context window in tokens for models of unknown size"),
    key("agents.defaults.contextBlockLimit", UNBOUNDED_COUNT, "null", Later, "tokens after which the context is compacted"),
    key("agents.defaults.maxConcurrentSubagents", POSITIVE_COUNT, "null", Used, "maximum concurrent sub-agents, in addition to the limit of `--max-parallel`"),
    key("agents.defaults.failOnToolError", Bool, "true", Ignored, "tool errors are always passed to the model"),
    key("agents.defaults.providerRetryMode", OneOf(&["standard", "persistent"]), r#""standard""#, Ignored, "there is only one retry policy"),
    key("agents.defaults.toolHintMaxLength", UNBOUNDED_COUNT, "40", Ignored, "length of a tool hint"),
    key("agents.defaults.timezone", Text, "null", Used, "time zone of the time that the model receives, such as `Europe/Berlin`; unset or unknown: the system's"),
    key("agents.defaults.timezoneMode", Text, r#""auto""#, Ignored, "the system's time zone is used"),
    key("agents.defaults.promptFiles.system", Text, "null", Used, "file whose text replaces the start of the system prompt; the directories and permissions in force are added to it"),
    key("agents.defaults.promptFiles.compaction", Text, "null", Used, "file whose text replaces the instructions for the summary of a conversation that became too long"),
    key("agents.defaults.promptFiles.consolidation", Text, "null", Used, "file whose text replaces the system prompt of consolidation, whose answer is a call of `save_memory`"),
    key("agents.defaults.botName", Text, r#""nanobot""#, Ignored, "name shown in chats"),
    key("agents.defaults.botIcon", Text, r#""🐈""#, Ignored, "icon shown in chats"),
    key("agents.defaults.unifiedSession", Bool, "false", Later, "one session for all channels"),
    key("agents.defaults.idleCompactAfterMinutes", UNBOUNDED_COUNT, "15", Later, "minutes after which an idle session is compacted"),
    key("agents.defaults.idleCompactCheckIntervalSeconds", UNBOUNDED_COUNT, "60", Ignored, "belongs to a daemon"),
    key("agents.defaults.consolidationRatio", Number(0.0, 1.0), "0.5", Later, "share of the history to consolidate"),
    key("agents.defaults.maxMessages", UNBOUNDED_COUNT, "null", Ignored, "removed in newer releases"),
    key("agents.defaults.dream.enabled", Bool, "true", Ignored, "belongs to a daemon"),
    key("agents.defaults.dream.intervalH", Number(0.0, 8760.0), "2", Ignored, "belongs to a daemon"),
    key("agents.defaults.dream.modelOverride", Text, "null", Ignored, "belongs to a daemon"),

    key("channels.sendProgress", Bool, "true", Used, "send the text that the model writes before it calls tools"),
    key("channels.sendToolHints", Bool, "false", Used, "send the names of called tools, with their first argument"),
    key("channels.showReasoning", Bool, "true", Later, "send the model's reasoning"),
    key("channels.extractDocumentText", Bool, "true", Later, "read attached documents"),
    key("channels.sendMaxRetries", UNBOUNDED_COUNT, "3", Used, "attempts at a request to a service that fails for a temporary cause, at most 10"),
    key("channels.pairing", Bool, "true", Used, "give unknown senders of direct messages a pairing code while `allowFrom` is empty"),
    key("channels.maxParallel", Whole(1, 100), "4", Used, "maximum turns at once"),
    key("channels.maxAgeHours", Whole(1, 8760), "24", Used, "age in hours above which a message is not answered"),
    key("channels.perSenderPerHour", POSITIVE_COUNT, "60", Used, "maximum turns that one sender starts in an hour"),
    key("channels.dailyBudget", USD_AMOUNT, "null", Used, "maximum cost per day of each channel in US dollars"),
    key("channels.senderDailyBudget", USD_AMOUNT, "null", Used, "maximum cost per day of each sender in US dollars"),
    key("channels.transcriptionProvider", Text, r#""groq""#, Used, "provider that transcribes voice messages; `transcription.provider` takes precedence"),
    key("channels.transcriptionLanguage", Text, "null", Used, "language of voice messages; `transcription.language` takes precedence"),
    key("channels.whatsapp.enabled", Bool, "false", Used, "use WhatsApp (Cloud API)"),
    key("channels.whatsapp.bridgeUrl", Text, r#""ws://localhost:3001""#, Ignored, "there is no bridge; the Cloud API is used"),
    key("channels.whatsapp.bridgeToken", Secret, r#""""#, Ignored, "there is no bridge"),
    key("channels.whatsapp.allowFrom", TextList, "[]", Used, "phone numbers that may send messages, with the country code"),
    key("channels.whatsapp.groupPolicy", GROUP_POLICY, r#""open""#, Ignored, "the Cloud API has no groups"),
    key("channels.whatsapp.databasePath", Text, r#""""#, Ignored, "there is no bridge"),
    key("channels.whatsapp.lidMappings", Any, "{}", Ignored, "there is no bridge"),
    key("channels.whatsapp.phoneNumberId", Text, r#""""#, Used, "the id of the phone number, in the app dashboard"),
    key("channels.whatsapp.accessToken", Secret, r#""""#, Used, "the access token"),
    key("channels.whatsapp.appSecret", Secret, r#""""#, Used, "the app's secret, by which webhook requests are signed"),
    key("channels.whatsapp.verifyToken", Secret, r#""""#, Used, "the password of the webhook's setup"),
    key("channels.whatsapp.apiBase", Text, r#""https://graph.facebook.com/v23.0""#, Used, "base URL of the Graph API"),
    key("channels.whatsapp.proxy", Secret, "null", Used, "proxy for WhatsApp"),
    key("channels.whatsapp.recipients", TextList, "[]", Used, "further chats that the `message` tool may write to"),
    key("channels.telegram.enabled", Bool, "false", Used, "use Telegram"),
    key("channels.telegram.token", Secret, r#""""#, Used, "the bot's token"),
    key("channels.telegram.allowFrom", TextList, "[]", Used, "users who may send messages"),
    key("channels.telegram.proxy", Secret, "null", Used, "proxy for Telegram"),
    key("channels.telegram.replyToMessage", Bool, "false", Used, "quote the message being answered"),
    key("channels.telegram.groupPolicy", GROUP_POLICY, r#""mention""#, Used, "messages in groups that are answered, of those by allowed users"),
    key("channels.telegram.groupAllowFrom", TextList, "[]", Used, "groups of the policy `allowlist`, by id"),
    key("channels.telegram.reactEmoji", Text, r#""""#, Used, "emoji that marks answered messages"),
    key("channels.telegram.apiBase", Text, r#""https://api.telegram.org""#, Used, "address of the Bot API"),
    key("channels.telegram.recipients", TextList, "[]", Used, "further chats that the `message` tool may write to"),
    key("channels.telegram.mode", Text, r#""polling""#, Later, "polling or webhook; messages are polled"),
    key("channels.telegram.connectionPoolSize", UNBOUNDED_COUNT, "32", Ignored, "connections of a daemon"),
    key("channels.telegram.poolTimeout", Number(0.0, 3600.0), "5.0", Ignored, "connections of a daemon"),
    key("channels.telegram.streaming", Bool, "true", Ignored, "an answer is sent once it is complete"),
    key("channels.telegram.streamEditInterval", Number(0.0, 3600.0), "0.6", Ignored, "an answer is sent once it is complete"),
    key("channels.telegram.inlineKeyboards", Bool, "false", Later, "buttons below a message"),
    key("channels.telegram.richMessages", Bool, "false", Ignored, "answers are sent as HTML"),
    key("channels.telegram.webhookUrl", Text, r#""""#, Later, "address of the webhook"),
    key("channels.telegram.webhookListenHost", Text, r#""127.0.0.1""#, Ignored, "belongs to a daemon"),
    key("channels.telegram.webhookListenPort", PORT_NUMBER, "8081", Ignored, "belongs to a daemon"),
    key("channels.telegram.webhookPath", Text, r#""/telegram""#, Ignored, "belongs to a daemon"),
    key("channels.telegram.webhookSecretToken", Secret, r#""""#, Later, "secret of the webhook"),
    key("channels.telegram.webhookMaxConnections", UNBOUNDED_COUNT, "4", Ignored, "belongs to a daemon"),
    key("channels.discord.enabled", Bool, "false", Used, "use Discord"),
    key("channels.discord.token", Secret, r#""""#, Used, "the bot's token"),
    key("channels.discord.allowFrom", TextList, "[]", Used, "users who may send messages"),
    key("channels.discord.gatewayUrl", Text, r#""wss://gateway.discord.gg/?v=10&encoding=json""#, Used, "Discord's gateway"),
    key("channels.discord.intents", UNBOUNDED_COUNT, "37377", Used, "gateway intents (events to receive)"),
    key("channels.discord.allowChannels", TextList, "[]", Used, "channels of servers to read; if empty, all"),
    key("channels.discord.groupPolicy", GROUP_POLICY, r#""mention""#, Used, "when to answer in channels; `open` needs the message content intent"),
    key("channels.discord.readReceiptEmoji", Text, r#""""#, Used, "emoji that marks answered messages"),
    key("channels.discord.workingEmoji", Text, r#""🔧""#, Ignored, "a typing notice shows that an answer is being written"),
    key("channels.discord.workingEmojiDelay", Number(0.0, 86_400.0), "2.0", Ignored, "a typing notice shows that an answer is being written"),
    key("channels.discord.streaming", Bool, "true", Ignored, "an answer is sent once it is complete"),
    key("channels.discord.apiBase", Text, r#""https://discord.com/api/v10""#, Used, "base URL of the REST API"),
    key("channels.discord.proxy", Secret, "null", Used, "proxy for Discord"),
    key("channels.discord.proxyUsername", Text, "null", Ignored, "`proxy` has the user and the password"),
    key("channels.discord.proxyPassword", Secret, "null", Ignored, "`proxy` has the user and the password"),
    key("channels.discord.recipients", TextList, "[]", Used, "further chats that the `message` tool may write to"),
    key("channels.feishu.enabled", Bool, "false", Later, "use Feishu"),
    key("channels.feishu.appId", Text, r#""""#, Later, "the app's id"),
    key("channels.feishu.appSecret", Secret, r#""""#, Later, "the app's secret"),
    key("channels.feishu.encryptKey", Secret, r#""""#, Later, "key for encrypted events"),
    key("channels.feishu.verificationToken", Secret, r#""""#, Later, "verification token of events"),
    key("channels.feishu.allowFrom", TextList, "[]", Later, "users who may send messages"),
    key("channels.feishu.reactEmoji", Text, r#""THUMBSUP""#, Later, "reaction to a message"),
    key("channels.mochat.enabled", Bool, "false", Later, "use MoChat"),
    key("channels.mochat.baseUrl", Text, r#""https://mochat.io""#, Later, "the server"),
    key("channels.mochat.socketUrl", Text, r#""""#, Later, "URL of the socket"),
    key("channels.mochat.socketPath", Text, r#""/socket.io""#, Later, "path of the socket"),
    key("channels.mochat.socketDisableMsgpack", Bool, "false", Later, "plain JSON on the socket"),
    key("channels.mochat.socketReconnectDelayMs", UNBOUNDED_COUNT, "1000", Later, "milliseconds"),
    key("channels.mochat.socketMaxReconnectDelayMs", UNBOUNDED_COUNT, "10000", Later, "milliseconds"),
    key("channels.mochat.socketConnectTimeoutMs", UNBOUNDED_COUNT, "10000", Later, "milliseconds"),
    key("channels.mochat.refreshIntervalMs", UNBOUNDED_COUNT, "30000", Later, "milliseconds"),
    key("channels.mochat.watchTimeoutMs", UNBOUNDED_COUNT, "25000", Later, "milliseconds"),
    key("channels.mochat.watchLimit", UNBOUNDED_COUNT, "100", Later, "messages per request"),
    key("channels.mochat.retryDelayMs", UNBOUNDED_COUNT, "500", Later, "milliseconds"),
    key("channels.mochat.maxRetryAttempts", UNBOUNDED_COUNT, "0", Later, "0 for no limit"),
    key("channels.mochat.clawToken", Secret, r#""""#, Later, "the agent's token"),
    key("channels.mochat.agentUserId", Text, r#""""#, Later, "the agent's id"),
    key("channels.mochat.sessions", TextList, "[]", Later, "sessions to watch"),
    key("channels.mochat.panels", TextList, "[]", Later, "panels to watch"),
    key("channels.mochat.allowFrom", TextList, "[]", Later, "users who may send messages"),
    key("channels.mochat.mention.requireInGroups", Bool, "false", Later, "answer in groups only when mentioned"),
    key("channels.mochat.groups", Any, "{}", Later, "settings of individual groups"),
    key("channels.mochat.replyDelayMode", Text, r#""non-mention""#, Later, "messages whose answers are delayed"),
    key("channels.mochat.replyDelayMs", UNBOUNDED_COUNT, "120000", Later, "milliseconds"),
    key("channels.dingtalk.enabled", Bool, "false", Later, "use DingTalk"),
    key("channels.dingtalk.clientId", Text, r#""""#, Later, "the app's id"),
    key("channels.dingtalk.clientSecret", Secret, r#""""#, Later, "the app's secret"),
    key("channels.dingtalk.allowFrom", TextList, "[]", Later, "users who may send messages"),
    key("channels.email.enabled", Bool, "false", Used, "use e-mail"),
    key("channels.email.consentGranted", Bool, "false", Used, "the owner of the mailbox agrees that mail is read and sent"),
    key("channels.email.imapHost", Text, r#""""#, Used, "IMAP server"),
    key("channels.email.imapPort", PORT_NUMBER, "993", Used, "IMAP port"),
    key("channels.email.imapUsername", Text, r#""""#, Used, "IMAP user name"),
    key("channels.email.imapPassword", Secret, r#""""#, Used, "IMAP password"),
    key("channels.email.imapMailbox", Text, r#""INBOX""#, Used, "mailbox"),
    key("channels.email.imapUseSsl", Bool, "true", Used, "TLS from the start; if false, STARTTLS, and nothing for this machine"),
    key("channels.email.smtpHost", Text, r#""""#, Used, "SMTP server"),
    key("channels.email.smtpPort", PORT_NUMBER, "587", Used, "SMTP port"),
    key("channels.email.smtpUsername", Text, r#""""#, Used, "SMTP user name; if empty, mail is sent without a login"),
    key("channels.email.smtpPassword", Secret, r#""""#, Used, "SMTP password"),
    key("channels.email.smtpUseTls", Bool, "true", Used, "STARTTLS, without which nothing is sent"),
    key("channels.email.smtpUseSsl", Bool, "false", Used, "TLS from the start"),
    key("channels.email.fromAddress", Text, r#""""#, Used, "sender address; if empty, the user name"),
    key("channels.email.autoReplyEnabled", Bool, "true", Used, "send answers; if false, mail is read, and only other messages are sent"),
    key("channels.email.pollIntervalSeconds", UNBOUNDED_COUNT, "30", Used, "seconds between looks while listening to a server without IDLE"),
    key("channels.email.markSeen", Bool, "true", Used, "mark answered mail as read"),
    key("channels.email.maxBodyChars", UNBOUNDED_COUNT, "12000", Used, "maximum characters of a mail body"),
    key("channels.email.subjectPrefix", Text, r#""Re: ""#, Used, "prefix of the subject of an answer"),
    key("channels.email.allowFrom", TextList, "[]", Used, "addresses that may send mail"),
    key("channels.email.postAction", OneOf(&["delete", "move"]), "null", Used, "`delete` or `move` mail once its answer was sent"),
    key("channels.email.postActionMoveMailbox", Text, "null", Used, "mailbox to move answered mail to"),
    key("channels.email.postActionExpunge", Bool, "false", Used, "remove deleted mail at once"),
    key("channels.email.postActionIgnoreSkipped", Bool, "true", Ignored, "mail that is not answered stays as it is"),
    key("channels.email.verifyDkim", Bool, "true", Used, "the sender's domain needs DKIM, or DMARC"),
    key("channels.email.verifySpf", Bool, "true", Used, "the sender's domain needs SPF, or DMARC"),
    key("channels.email.trustedAuthservIds", TextList, "[]", Used, "ids by which your mail server signs `Authentication-Results`"),
    key("channels.email.allowedAttachmentTypes", TextList, r#"["*"]"#, Used, "media types of attachments that are read, such as `image/*`"),
    key("channels.email.maxAttachmentSize", UNBOUNDED_COUNT, "2000000", Used, "maximum bytes of an attachment"),
    key("channels.email.maxAttachmentsPerEmail", UNBOUNDED_COUNT, "5", Used, "maximum attachments of a mail"),
    key("channels.email.tokenCommand", Text, "null", Used, "command that prints an access token of OAuth 2, used instead of the passwords (XOAUTH2)"),
    key("channels.email.proxy", Secret, "null", Used, "proxy for mail"),
    key("channels.email.recipients", TextList, "[]", Used, "further addresses that the `message` tool may write to"),
    key("channels.slack.enabled", Bool, "false", Used, "use Slack"),
    key("channels.slack.mode", Text, r#""socket""#, Used, "`socket`: while a poll waits, events come by Socket Mode, which needs `appToken`; otherwise it looks every 15 seconds"),
    key("channels.slack.webhookPath", Text, r#""/slack/events""#, Ignored, "the web server in front decides which path leads here"),
    key("channels.slack.botToken", Secret, r#""""#, Used, "the bot's token (`xoxb-`)"),
    key("channels.slack.appToken", Secret, r#""""#, Used, "the app's token for Socket Mode (`xapp-`)"),
    key("channels.slack.signingSecret", Secret, r#""""#, Used, "the app's signing secret, for `nanobot channel listen slack`"),
    key("channels.slack.userTokenReadOnly", Bool, "true", Ignored, "there is no user token"),
    key("channels.slack.replyInThread", Bool, "true", Used, "answer in a thread; direct messages are answered beside each other"),
    key("channels.slack.reactEmoji", Text, r#""eyes""#, Used, "reaction to a message while its answer is being written"),
    key("channels.slack.groupPolicy", GROUP_POLICY, r#""mention""#, Used, "when to answer in channels"),
    key("channels.slack.groupAllowFrom", TextList, "[]", Used, "channels to answer in"),
    key("channels.slack.allowFrom", TextList, "[]", Used, "users who may send messages"),
    key("channels.slack.dm.enabled", Bool, "true", Used, "answer direct messages"),
    key("channels.slack.dm.policy", OneOf(&["open", "allowlist"]), r#""open""#, Used, "the list for direct messages: `allowFrom`, or with `allowlist` that of `dm`"),
    key("channels.slack.dm.allowFrom", TextList, "[]", Used, "users who may send direct messages, with `allowlist`"),
    key("channels.slack.doneEmoji", Text, r#""white_check_mark""#, Used, "reaction to an answered message"),
    key("channels.slack.includeThreadContext", Bool, "true", Used, "give the model what was written before in the thread"),
    key("channels.slack.threadContextLimit", UNBOUNDED_COUNT, "20", Used, "maximum messages of that"),
    key("channels.slack.groupRequireMention", Bool, "false", Used, "answer in channels only when mentioned, with any `groupPolicy`"),
    key("channels.slack.apiBase", Text, r#""https://slack.com/api""#, Used, "base URL of the Web API"),
    key("channels.slack.proxy", Secret, "null", Used, "proxy for Slack"),
    key("channels.slack.recipients", TextList, "[]", Used, "further chats that the `message` tool may write to"),
    key("channels.qq.enabled", Bool, "false", Later, "use QQ"),
    key("channels.qq.appId", Text, r#""""#, Later, "the app's id"),
    key("channels.qq.secret", Secret, r#""""#, Later, "the app's secret"),
    key("channels.qq.allowFrom", TextList, "[]", Later, "users who may send messages"),
    key("channels.matrix.enabled", Bool, "false", Used, "use Matrix"),
    key("channels.matrix.homeserver", Text, r#""https://matrix.org""#, Used, "the server"),
    key("channels.matrix.accessToken", Secret, r#""""#, Used, "the user's token"),
    key("channels.matrix.userId", Text, r#""""#, Ignored, "the user's id"),
    key("channels.matrix.deviceId", Text, r#""""#, Later, "the device's id"),
    key("channels.matrix.e2EeEnabled", Bool, "true", Later, "support encrypted rooms"),
    key("channels.matrix.syncStopGraceSeconds", UNBOUNDED_COUNT, "2", Later, "seconds"),
    key("channels.matrix.maxMediaBytes", UNBOUNDED_COUNT, "20971520", Used, "maximum bytes of an attachment"),
    key("channels.matrix.allowFrom", TextList, "[]", Used, "users who may send messages"),
    key("channels.matrix.groupPolicy", GROUP_POLICY, r#""open""#, Used, "when to answer in rooms"),
    key("channels.matrix.groupAllowFrom", TextList, "[]", Used, "rooms to answer in"),
    key("channels.matrix.allowRoomMentions", Bool, "false", Used, "answer when the whole room is mentioned"),
    key("channels.matrix.password", Secret, r#""""#, Later, "password for a login; set `accessToken`"),
    key("channels.matrix.sasVerification", Bool, "false", Ignored, "belongs to encryption"),
    key("channels.matrix.maxConcurrentMediaDownloads", UNBOUNDED_COUNT, "2", Ignored, "attachments are fetched one after the other"),
    key("channels.matrix.streaming", Bool, "false", Ignored, "an answer is sent once it is complete"),
    key("channels.matrix.proxy", Secret, "null", Used, "proxy for Matrix"),
    key("channels.matrix.recipients", TextList, "[]", Used, "further chats that the `message` tool may write to"),
    key("channels.mattermost.enabled", Bool, "false", Used, "use Mattermost"),
    key("channels.mattermost.serverUrl", Text, r#""""#, Used, "the server"),
    key("channels.mattermost.token", Secret, r#""""#, Used, "the bot's access token"),
    key("channels.mattermost.teamId", Text, r#""""#, Used, "read only channels of this team, and direct messages"),
    key("channels.mattermost.allowFrom", TextList, "[]", Used, "users who may send messages"),
    key("channels.mattermost.allowFromMatchMode", OneOf(&["id", "username", "email"]), r#""id""#, Used, "what `allowFrom` names users by; names and addresses can change hands"),
    key("channels.mattermost.groupPolicy", GROUP_POLICY, r#""mention""#, Used, "when to answer in channels"),
    key("channels.mattermost.groupPolicyInThread", GROUP_POLICY, "null", Used, "when to answer in threads of channels; null: as `groupPolicy`"),
    key("channels.mattermost.groupAllowFrom", TextList, "[]", Used, "channels to answer in"),
    key("channels.mattermost.replyInThread", Bool, "true", Used, "answer in a thread; direct messages are answered beside each other"),
    key("channels.mattermost.includeThreadContext", Bool, "true", Used, "give the model what was written before in the thread"),
    key("channels.mattermost.threadContextLimit", UNBOUNDED_COUNT, "20", Used, "maximum posts of that"),
    key("channels.mattermost.streaming", Bool, "true", Ignored, "an answer is sent once it is complete"),
    key("channels.mattermost.reactEmoji", Text, r#""eyes""#, Ignored, "a typing notice shows that an answer is being written"),
    key("channels.mattermost.doneEmoji", Text, r#""white_check_mark""#, Used, "reaction to an answered message"),
    key("channels.mattermost.sendProgress", Bool, "true", Ignored, "`channels.sendProgress` is used"),
    key("channels.mattermost.sendToolHints", Bool, "true", Ignored, "`channels.sendToolHints` is used"),
    key("channels.mattermost.dm.enabled", Bool, "true", Used, "answer direct messages"),
    key("channels.mattermost.dm.policy", OneOf(&["open", "allowlist"]), r#""open""#, Used, "the list for direct messages: `allowFrom`, or with `allowlist` that of `dm`"),
    key("channels.mattermost.dm.allowFrom", TextList, "[]", Used, "users who may send direct messages, with `allowlist`"),
    key("channels.mattermost.proxy", Secret, "null", Used, "proxy for Mattermost"),
    key("channels.mattermost.recipients", TextList, "[]", Used, "further chats that the `message` tool may write to"),
    key("channels.ntfy.enabled", Bool, "false", Used, "use ntfy"),
    key("channels.ntfy.server", Text, r#""https://ntfy.sh""#, Used, "the server"),
    key("channels.ntfy.topic", Text, r#""""#, Used, "the topic to read"),
    key("channels.ntfy.answerTopic", Text, r#""""#, Used, "the topic for answers; if empty, `topic`"),
    key("channels.ntfy.token", Secret, r#""""#, Used, "the access token"),
    key("channels.ntfy.allowFrom", TextList, "[]", Used, "`*`: whatever is written to the topic is the user's message"),
    key("channels.ntfy.recipients", TextList, "[]", Used, "further chats that the `message` tool may write to"),
    key("channels.webhook.enabled", Bool, "false", Used, "use a webhook; it only sends"),
    key("channels.webhook.url", Text, r#""""#, Used, "the address that messages are posted to"),
    key("channels.webhook.secret", Secret, r#""""#, Used, "sent as a bearer token"),
    key("channels.webhook.recipients", TextList, "[]", Used, "further chats that the `message` tool may write to"),

    key("providers.*.apiKey", Secret, r#""""#, Used, "the API key, or `${VARIABLE}`"),
    key("providers.*.apiBase", Text, "null", Used, "base URL of the API, up to `/v1`"),
    key("providers.*.extraHeaders", SecretMap, "null", Used, "additional request headers"),
    key("providers.*.apiKeyFile", Text, "null", Used, "file that contains the API key"),
    key("providers.*.apiKeyCommand", Text, "null", Used, "command that prints the API key, such as a password manager"),
    key("providers.*.apiType", Text, r#""auto""#, Used, "the wire format: auto, chat_completions, responses, anthropic"),
    key("providers.*.extraBody", Any, "null", Used, "additional fields of the request body"),
    key("providers.*.extraQuery", Any, "null", Used, "additional query parameters"),
    key("providers.*.proxy", Secret, "null", Used, "proxy for this provider"),
    key("providers.*.thinkingStyle", Text, "null", Used, "how thinking is requested: thinking_type, enable_thinking, reasoning_split, reasoning_effort, none"),
    key("providers.*.displayName", Text, "null", Ignored, "name shown in lists"),

    key("gateway.host", Text, r#""0.0.0.0""#, Ignored, "there is no gateway"),
    key("gateway.port", PORT_NUMBER, "18790", Ignored, "there is no gateway"),
    key("gateway.restartMode", Text, r#""auto""#, Ignored, "there is no gateway"),
    key("gateway.heartbeat.enabled", Bool, "true", Later, "check HEARTBEAT.md periodically"),
    key("gateway.heartbeat.intervalS", POSITIVE_COUNT, "1800", Later, "seconds between two checks"),
    key("gateway.heartbeat.keepRecentMessages", UNBOUNDED_COUNT, "8", Later, "messages of the previous check to send again"),

    key("api.host", Text, r#""127.0.0.1""#, Ignored, "there is no API server"),
    key("api.port", PORT_NUMBER, "8900", Ignored, "there is no API server"),
    key("api.timeout", Number(0.0, 86_400.0), "120", Ignored, "there is no API server"),
    key("api.apiKey", Secret, r#""""#, Ignored, "there is no API server"),

    key("transcription.enabled", Bool, "true", Used, "transcribe voice messages of chats"),
    key("transcription.command", Text, "null", Used, "shell command that prints the text of the recording at `$1`, in place of a provider"),
    key("transcription.provider", Text, "null", Used, "provider with OpenAI's interface for speech, such as `groq` or `openai`; its key and address are those of `providers`"),
    key("transcription.model", Text, "null", Used, "model that transcribes: by default `whisper-large-v3` for groq, `whisper-1` for others"),
    key("transcription.language", Text, "null", Used, "language of the speech, such as `de`; null to recognize it"),
    key("transcription.maxDurationSec", UNBOUNDED_COUNT, "120", Used, "maximum duration of a recording in seconds"),
    key("transcription.maxUploadMb", UNBOUNDED_COUNT, "25", Used, "maximum size of a recording in megabytes"),

    key("modelPresets", Any, "{}", Used, "models with their settings, by name; a string value is an alias of a model; without `provider`, the configured provider is used"),

    key("models", Any, "{}", Used, "metadata that overrides the built-in data, by model: contextWindowTokens, maxOutputTokens, images, pdf, price"),

    key("budget.daily", USD_AMOUNT, "null", Used, "maximum cost per day in US dollars, all runs together"),
    key("budget.monthly", USD_AMOUNT, "null", Used, "maximum cost per month in US dollars"),
    key("budget.perSession", USD_AMOUNT, "null", Used, "maximum cost per session in US dollars"),

    key("compaction.threshold", UNBOUNDED_COUNT, "null", Used, "request size in tokens that triggers compaction; 0 disables it; unset: depends on the model, at most 200000"),
    key("compaction.warning", Bool, "true", Used, "notify the model at half of the threshold"),

    key("memory.consolidate", OneOf(&["auto", "detached", "inline", "manual"]), r#""auto""#, Used, "when old messages are consolidated into memory: after the answer, in a separate process (detached) or in the same one with standard output closed (inline); auto: detached if there is a terminal, else inline; manual: only by `nanobot memory consolidate`"),
    key("memory.model", Text, "null", Used, "model or preset for consolidation; unset: the model of the turn"),
    key("memory.budgetTokens", TOKEN_COUNT, "4000", Used, "maximum tokens of MEMORY.md before it is condensed"),

    key("session.sync", OneOf(&["turn", "none"]), r#""turn""#, Used, "when the session is synced to disk: at the end of each turn, or never"),

    key("hooks", Verbatim, "null", Used, "commands to run before and after tool calls, turns, compactions and jobs: `nanobot help hooks`"),

    key("http.proxy", Secret, "null", Used, "proxy for the model and for MCP servers if HTTPS_PROXY, HTTP_PROXY and ALL_PROXY are not set; not used for loopback addresses"),
    key("http.noProxy", TextList, "[]", Used, "hosts to reach without the proxy if NO_PROXY is not set; `.example.com` is all hosts of that domain"),
    key("http.caFile", Text, "null", Used, "file of CA certificates in PEM format, instead of the system's, if SSL_CERT_FILE and SSL_CERT_DIR are not set"),
    key("http.firstByteTimeout", Number(0.0, 86_400.0), "300", Used, "timeout for the first byte of a response in seconds if NANOBOT_LLM_TIMEOUT_S is not set; 0 for none"),
    key("http.streamIdleTimeout", Number(0.0, 3_600.0), "90", Used, "idle timeout of a stream in seconds if NANOBOT_STREAM_IDLE_TIMEOUT_S is not set"),
    key("http.totalTimeout", Number(0.0, 86_400.0), "1800", Used, "timeout for a whole response in seconds; 0 for none"),

    key("log.events", Text, "null", Used, "file to which each turn appends its events as JSON lines, if NANOBOT_LOG names none"),

    key("terminal.background", OneOf(&["auto", "dark", "light"]), r#""auto""#, Used, "background of the terminal, for colours that can be read on it; `auto` reads the variable COLORFGBG"),
    key("terminal.bell", Whole(0, 86_400), "null", Used, "seconds that a turn of the REPL must have taken for its end, or a request for approval, to ring the terminal's bell; unset: never"),

    key("tools.restrictToWorkspace", Bool, "false", UsedAndWritten, "work in the workspace and allow no other path"),
    key("tools.permissions", Map, "{}", Used, "`always`, `ask` or `never`, by tool; `*` matches any text in a name"),
    key("tools.allow", TextList, "[]", Used, "allow rules, as for `--allow`"),
    key("tools.deny", TextList, "[]", Used, "deny rules, as for `--deny`"),
    key("tools.read", TextList, "[]", Used, "paths that may be read in addition to the working directory and the workspace"),
    key("tools.write", TextList, "[]", Used, "paths that may be written; `.` is the working directory"),
    key("tools.net", TextList, "[]", Used, "hosts that the web tools may always reach, as for `--net=HOSTS`"),
    key("tools.sandbox", OneOf(&["auto", "strict"]), r#""auto""#, Used, "strict: refuse to run commands if no sandbox is available"),
    key("tools.mcpBudgetTokens", Whole(0, 1_000_000), "20000", Used, "maximum tokens of the tools of MCP servers in each request; longer descriptions are shortened"),
    key("tools.programs", TextList, "[]", Used, "programs in ~/.nanobot/tools that are tools, by name; `*` for all"),
    key("tools.exec.enable", Bool, "true", Used, "enable the tool that runs commands"),
    key("tools.exec.timeout", UP_TO_ONE_DAY_SECS, "60", UsedAndWritten, "timeout of a command in seconds"),
    key("tools.exec.pathPrepend", Text, r#""""#, Used, "directories to prepend to PATH, separated by colons"),
    key("tools.exec.pathAppend", Text, r#""""#, Used, "directories to append to PATH, separated by colons"),
    key("tools.exec.allowedEnvKeys", TextList, "[]", Used, "environment variables passed to commands in addition to the usual ones"),
    key("tools.exec.sandbox", Text, r#""""#, Used, "compatibility: any value means that no command runs without a sandbox"),
    key("tools.exec.sandboxRoBinds", TextList, "[]", Used, "compatibility: same as `tools.read`"),
    key("tools.exec.sandboxRwBinds", TextList, "[]", Used, "compatibility: same as `tools.write`"),
    key("tools.exec.allowPatterns", TextList, "[]", Used, "if not empty, a command must match one of these regular expressions; a tripwire, not a security boundary"),
    key("tools.exec.denyPatterns", TextList, "[]", Used, "commands that match one of these regular expressions are denied; a tripwire, not a security boundary"),
    key("tools.file.enable", Bool, "true", Used, "enable the file tools"),
    key("tools.web.enable", Bool, "true", Used, "enable the web tools"),
    key("tools.web.proxy", Secret, "null", Used, "proxy for the web tools"),
    key("tools.web.userAgent", Text, "null", Used, "User-Agent header of the web tools"),
    key("tools.web.search.provider", Text, r#""duckduckgo""#, Used, "search engine: brave, searxng or duckduckgo; unset: brave if there is an API key, else duckduckgo"),
    key("tools.web.search.apiKey", Secret, r#""""#, Used, "API key of the search engine; default: BRAVE_API_KEY"),
    key("tools.web.search.baseUrl", Text, r#""""#, Used, "base URL of the search engine, if not the public one"),
    key("tools.web.search.maxResults", Whole(1, 1_000), "5", Used, "maximum results of a search"),
    key("tools.web.search.timeout", UP_TO_ONE_DAY_SECS, "30", Used, "timeout of a search in seconds"),
    key("tools.web.fetch.useJinaReader", Bool, "true", Ignored, "pages are never read through an external service"),
    key("tools.my.enable", Bool, "true", Ignored, "self-inspection of other releases"),
    key("tools.my.allowSet", Bool, "false", Ignored, "self-inspection of other releases"),
    key("tools.cliApps", Any, "null", Ignored, "belongs to other releases"),
    key("tools.imageGeneration", Any, "null", Later, "image generation"),
    key("tools.ssrfWhitelist", TextList, "[]", Used, "non-public address ranges that the web tools may reach, such as `10.0.0.0/8`"),
    key("tools.maxSessionMessagesPerMinute", UNBOUNDED_COUNT, "6", Later, "messages to other sessions"),
    key("tools.mcpServers.*.command", Text, r#""""#, Used, "the program to start"),
    key("tools.mcpServers.*.args", TextList, "[]", Used, "its arguments"),
    key("tools.mcpServers.*.env", SecretMap, "{}", Used, "additional environment variables of the program"),
    key("tools.mcpServers.*.cwd", Text, "null", Used, "working directory of the program; unset: a directory of its own"),
    key("tools.mcpServers.*.type", Text, "null", Used, "transport: stdio, streamableHttp or sse; unset: stdio if there is a command, sse if the URL ends with /sse"),
    key("tools.mcpServers.*.url", Text, r#""""#, Used, "URL of a remote server"),
    key("tools.mcpServers.*.headers", SecretMap, "{}", Used, "request headers; `${VARIABLE}` is replaced by the variable's value"),
    key("tools.mcpServers.*.auth", Text, "null", Used, "login method; not supported: put a token in `headers`"),
    key("tools.mcpServers.*.toolTimeout", UP_TO_ONE_DAY_SECS, "30", Used, "timeout of a call in seconds"),
    key("tools.mcpServers.*.startTimeout", UP_TO_ONE_DAY_SECS, "30", Used, "timeout of the server's start in seconds"),
    key("tools.mcpServers.*.enabledTools", TextList, r#"["*"]"#, Used, "tools to enable, by the server's names or ours; `*` matches any text; a single `*` also enables resources and prompts"),
    key("tools.mcpServers.*.required", Bool, "false", Used, "fail the run if the server is not available"),
    key("tools.mcpServers.*.disabled", Bool, "false", Used, "do not use this server"),
    key("tools.mcpServers.*.read", TextList, "[]", Used, "additional paths that the server may read"),
    key("tools.mcpServers.*.write", TextList, "[]", Used, "additional paths that the server may write"),
    key("tools.mcpServers.*.trusted", Bool, "false", Used, "treat the server's results like files of the directory, not like content from outside"),
    key("tools.mcpServers.*.sandbox", OneOf(&["auto", "off"]), r#""auto""#, Used, "off: run the server without a sandbox"),
];

/// Returns the key at `path`. Evaluated in a `const` block, it costs nothing at run time, and a path that the table
/// does not have is a compile error.
pub const fn config_key(path: &str) -> &'static ConfigKey {
    let mut row = 0;
    while row < KEYS.len() {
        let known = KEYS[row].path.as_bytes();
        let path = path.as_bytes();
        let mut at = 0;
        while at < path.len() && at < known.len() && path[at] == known[at] {
            at += 1;
        }
        if at == path.len() && at == known.len() {
            return &KEYS[row];
        }
        row += 1;
    }
    panic!("the table has no such key")
}

/// Returns the name among `candidates` that `name` is most likely a misspelling of.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter(|candidate| *candidate != "*")
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}
