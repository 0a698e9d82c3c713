//! Messages of every service in which each field but the typed text names a host: only typed words name one.

use super::table::CHANNELS;
use super::{
    InboundMessage, dingtalk, discord, email, feishu, matrix, mattermost, mochat, ntfy, program,
    qq, slack, telegram, wecom, weixin, whatsapp, whatsapp_bridge,
};
use serde_json::{Value, json};

/// The text in every field that the sender has not typed.
const EVIL: &str = "evil.example https://evil.example/";
const TYPED: &str = "look at typed.example";

type Decode = fn(&Value) -> Option<InboundMessage>;

/// The decoder of a service, and messages. Each names `typed.example` if it is true.
type Service = (&'static str, Decode, Vec<(Value, bool)>);

fn services() -> Vec<Service> {
    let telegram_message = |members: Value| {
        let mut message = json!({
            "message_id": 5, "date": 1, "chat": { "id": 7, "type": "private", "title": EVIL },
            "from": { "id": 7, "username": "evil.example", "first_name": EVIL },
            "sender_chat": { "title": EVIL },
            "reply_to_message": { "message_id": 4, "from": { "id": 8, "first_name": EVIL }, "text": EVIL },
            "quote": { "text": EVIL },
            "document": { "file_id": "f", "file_name": EVIL },
        });
        members.as_object().unwrap().iter().for_each(|(name, it)| message[name] = it.clone());
        json!({ "message": message })
    };
    let named = format!("{TYPED} {EVIL}");
    let mention = json!([{ "type": "text_mention", "offset": TYPED.len() + 1, "length": EVIL.len(), "user": { "id": 8 } }]);
    let origin = json!({ "type": "hidden_user", "sender_user_name": EVIL });
    let poll = json!({ "question": EVIL, "options": [{ "text": EVIL }] });
    let telegram_messages = vec![
        (telegram_message(json!({ "text": TYPED })), true),
        (telegram_message(json!({ "caption": TYPED })), true),
        (telegram_message(json!({ "text": named, "entities": mention })), true),
        (telegram_message(json!({ "caption": named, "caption_entities": mention })), true),
        (telegram_message(json!({ "text": TYPED, "forward_origin": origin })), false),
        (telegram_message(json!({ "caption": EVIL, "via_bot": { "id": 9 } })), false),
        (telegram_message(json!({ "poll": poll })), false),
        (telegram_message(json!({ "sticker": { "emoji": EVIL } })), false),
        (telegram_message(json!({ "dice": { "emoji": EVIL, "value": 1 } })), false),
        (telegram_message(json!({ "contact": { "first_name": EVIL } })), false),
        (telegram_message(json!({ "text": format!("{TYPED}\n> {EVIL}\n@evil.example") })), true),
    ];
    let event = |content: Value| json!({ "type": "m.room.message", "event_id": "$1", "sender": "@ann:evil.example", "content": content });
    let pill = |name: &str| {
        format!("{TYPED} <a href=\"https://matrix.to/#/@eve:evil.example\">{name}</a>")
    };
    let eve = json!({ "user_ids": ["@eve:evil.example", "@bot:h"] });
    let matrix_messages = vec![
        (event(json!({ "msgtype": "m.text", "body": TYPED })), true),
        (
            event(
                json!({ "msgtype": "m.text", "body": named, "formatted_body": pill(EVIL), "m.mentions": eve }),
            ),
            true,
        ),
        (event(json!({ "msgtype": "m.text", "body": named, "m.mentions": eve })), false),
        (
            event(json!({ "msgtype": "m.text", "body": format!("> <@eve:h> {EVIL}\n\n{TYPED}"),
            "m.relates_to": { "m.in_reply_to": { "event_id": "$0" } } })),
            true,
        ),
        // A name that the markup shows otherwise, and one without a link.
        (
            event(json!({ "msgtype": "m.text", "body": format!("{TYPED} see  evil.example"),
                    "formatted_body": pill("see  evil.example"), "m.mentions": eve })),
            false,
        ),
        (
            event(json!({ "msgtype": "m.text", "body": named,
                    "formatted_body": "<a href=\"https://matrix.to/#/@bot:h\">evil.example</a>",
                    "m.mentions": eve })),
            false,
        ),
        // A reply mentions the user that it replies to.
        (
            event(
                json!({ "msgtype": "m.text", "body": TYPED, "m.mentions": { "user_ids": ["@eve:evil.example"] },
                "m.relates_to": { "m.in_reply_to": { "event_id": "$0" } } }),
            ),
            true,
        ),
        (event(json!({ "msgtype": "m.file", "body": EVIL, "url": "mxc://h/1" })), false),
        (event(json!({ "msgtype": "m.file", "body": EVIL, "file": {} })), false),
        (event(json!({ "msgtype": "org.example.card", "body": EVIL })), false),
        (
            event(
                json!({ "msgtype": "m.file", "body": TYPED, "filename": EVIL, "url": "mxc://h/1" }),
            ),
            true,
        ),
        (event(json!({ "msgtype": "m.location", "body": EVIL })), false),
        (
            json!({ "type": "m.poll.start", "event_id": "$1", "sender": "@ann:h", "content": {
            "m.poll": { "question": { "body": EVIL }, "answers": [{ "body": EVIL }] } } }),
            false,
        ),
    ];
    let post = |members: Value| {
        let mut post = json!({ "id": "p", "user_id": "ann", "props": { "override_username": EVIL,
            "attachments": [{ "text": EVIL, "title": EVIL }] },
            "metadata": { "files": [{ "id": "f", "name": EVIL }], "embeds": [{ "url": EVIL }] } });
        members.as_object().unwrap().iter().for_each(|(name, it)| post[name] = it.clone());
        post
    };
    let slack_message = |members: Value| {
        let mut message = json!({ "ts": "1.0", "user": "UANN", "username": EVIL,
            "files": [{ "url_private": "https://files.slack.com/a", "name": EVIL, "title": EVIL }],
            "attachments": [{ "text": EVIL, "fallback": EVIL, "author_name": EVIL }],
            "user_profile": { "display_name": EVIL } });
        members.as_object().unwrap().iter().for_each(|(name, it)| message[name] = it.clone());
        message
    };
    let names = "<@U2|evil.example> <#C1|evil.example> <!subteam^S|evil.example> <!date^1^{date}|evil.example>";
    let discord_message = |members: Value| {
        let mut message = json!({ "id": "1", "type": 0, "author": { "id": "7", "username": EVIL },
            "mentions": [{ "id": "9", "username": "evil.example" }],
            "referenced_message": { "id": "0", "author": { "id": "9" }, "content": EVIL },
            "attachments": [{ "url": "https://cdn.discordapp.com/a", "filename": EVIL }],
            "embeds": [{ "title": EVIL, "url": EVIL }] });
        members.as_object().unwrap().iter().for_each(|(name, it)| message[name] = it.clone());
        message
    };
    let snapshots = json!([{ "message": { "content": EVIL } }]);
    let whatsapp_message = |kind: &str, content: Value, forwarded: bool| {
        let mut message = json!({ "id": "m", "from": "491", "type": kind,
            "context": { "id": "m0", "from": EVIL, "forwarded": forwarded } });
        message[kind] = content;
        message
    };
    let document = json!({ "id": "d", "filename": EVIL, "caption": TYPED });
    let mail = format!(
        "From: \"{EVIL}\" <ann@example.org>\r\nSubject: {EVIL}\r\n\
        Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\n{TYPED}\r\n\r\n\
        Le lundi, Bob a écrit :\r\n{EVIL}\r\n--b\r\nContent-Type: text/html\r\n\r\n<p hidden>{EVIL}</p>\r\n--b\r\n\
        Content-Type: text/plain; name=\"evil.example\"\r\nContent-Disposition: attachment\r\n\r\n{EVIL}\r\n--b--\r\n"
    );
    let feishu_event = |kind: &str, content: Value| {
        json!({ "sender": { "sender_id": { "open_id": "ou_ann" }, "sender_type": "user" },
            "message": { "message_id": "om", "chat_id": "oc", "chat_type": "group", "message_type": kind,
                "content": content.to_string(),
                "mentions": [{ "key": "@_user_1", "id": { "open_id": "ou_eve" }, "name": EVIL }] } })
    };
    let ding = |members: Value| {
        let mut data = json!({ "msgId": "1", "senderStaffId": "ann", "senderNick": EVIL, "conversationType": "2",
            "conversationId": "c", "conversationTitle": EVIL, "msgtype": "text" });
        members.as_object().unwrap().iter().for_each(|(name, it)| data[name] = it.clone());
        data
    };
    let replied = json!({ "msgId": "0", "content": { "text": EVIL } });
    let wecom_frame = |members: Value| {
        let mut body = json!({ "msgid": "1", "from": { "userid": "ann", "name": EVIL }, "chattype": "group",
            "chatid": "g", "quote": { "text": { "content": EVIL } } });
        members.as_object().unwrap().iter().for_each(|(name, it)| body[name] = it.clone());
        json!({ "headers": {}, "body": body })
    };
    let file_item = json!({ "type": 4, "file_item": { "file_name": EVIL, "aeskey": "k", "media": { "full_url": "u" } } });
    let text_item = json!({ "type": 1, "text_item": { "text": TYPED },
        "ref_msg": { "title": EVIL, "message_item": { "text_item": { "text": EVIL } } } });
    let mochat_entry = |content: Value| json!({ "messageId": "1", "author": "ann", "authorInfo": { "nickname": EVIL }, "content": content });
    let line = json!({ "id": "1", "chat": "c", "from": "ann", "name": EVIL, "text": TYPED,
        "quotes": [EVIL], "files": [format!("/a/{EVIL}")] });
    vec![
        ("telegram", telegram::decode, telegram_messages),
        ("matrix", matrix::decode, matrix_messages),
        (
            "mattermost",
            mattermost::decode,
            vec![
                (post(json!({ "message": format!("{TYPED} @evil.example") })), true),
                (post(json!({ "message": "" })), false),
            ],
        ),
        (
            "slack",
            slack::decode,
            vec![
                (
                    slack_message(
                        json!({ "text": format!("{TYPED} {names}\n&gt; <https://evil.example|x>") }),
                    ),
                    true,
                ),
                (slack_message(json!({ "text": "<http://typed.example|typed.example>" })), true),
                (slack_message(json!({ "text": "" })), false),
            ],
        ),
        (
            "discord",
            discord::decode,
            vec![
                (discord_message(json!({ "content": format!("{TYPED} <@9>") })), true),
                (discord_message(json!({ "content": "", "message_snapshots": snapshots })), false),
                (
                    discord_message(
                        json!({ "content": "", "poll": { "question": { "text": EVIL }, "answers": [] } }),
                    ),
                    false,
                ),
            ],
        ),
        (
            "whatsapp",
            whatsapp::decode,
            vec![
                (whatsapp_message("text", json!({ "body": TYPED }), false), true),
                (whatsapp_message("text", json!({ "body": TYPED }), true), false),
                (whatsapp_message("document", document.clone(), false), true),
                (whatsapp_message("document", document, true), false),
                (
                    whatsapp_message("button", json!({ "text": EVIL, "payload": EVIL }), false),
                    false,
                ),
                (
                    whatsapp_message(
                        "interactive",
                        json!({ "list_reply": { "title": EVIL } }),
                        false,
                    ),
                    false,
                ),
                (
                    whatsapp_message(
                        "location",
                        json!({ "latitude": 1.0, "longitude": 1.0, "name": EVIL }),
                        false,
                    ),
                    false,
                ),
                (
                    whatsapp_message(
                        "contacts",
                        json!([{ "name": { "formatted_name": EVIL } }]),
                        false,
                    ),
                    false,
                ),
            ],
        ),
        (
            "whatsapp",
            whatsapp_bridge::decode,
            vec![(
                json!({ "type": "message", "id": "1", "sender": "49@s.whatsapp.net", "content": EVIL }),
                false,
            )],
        ),
        ("email", email::decode, vec![(json!(mail), false)]),
        (
            "ntfy",
            ntfy::decode,
            vec![(
                json!({ "id": "1", "title": EVIL, "message": TYPED, "click": EVIL,
            "attachment": { "url": "https://ntfy.sh/a", "name": EVIL } }),
                true,
            )],
        ),
        (
            "feishu",
            feishu::decode,
            vec![
                (feishu_event("text", json!({ "text": format!("{TYPED} @_user_1") })), true),
                (
                    feishu_event(
                        "post",
                        json!({ "content": [[{ "tag": "text", "text": TYPED },
                { "tag": "at", "user_id": "@_user_1", "user_name": EVIL }]] }),
                    ),
                    true,
                ),
                (feishu_event("interactive", json!({ "title": EVIL })), false),
                (feishu_event("file", json!({ "file_key": "k", "file_name": EVIL })), false),
            ],
        ),
        (
            "dingtalk",
            dingtalk::decode,
            vec![
                (
                    ding(
                        json!({ "text": { "content": format!("{TYPED} @{EVIL}"), "repliedMsg": replied } }),
                    ),
                    true,
                ),
                (
                    ding(
                        json!({ "msgtype": "file", "content": { "downloadCode": "c", "fileName": EVIL } }),
                    ),
                    false,
                ),
            ],
        ),
        (
            "qq",
            qq::decode,
            vec![(
                json!({ "id": "1", "content": TYPED, "author": { "user_openid": "u",
            "username": EVIL }, "attachments": [{ "url": "https://x.qq.com/a", "filename": EVIL }] }),
                true,
            )],
        ),
        (
            "wecom",
            wecom::decode,
            vec![
                (
                    wecom_frame(
                        json!({ "msgtype": "text", "text": { "content": format!("@Bot {TYPED} @Eve {EVIL}") } }),
                    ),
                    true,
                ),
                (wecom_frame(json!({ "msgtype": "file", "file": { "name": EVIL } })), false),
            ],
        ),
        (
            "weixin",
            weixin::decode,
            vec![(
                json!({ "from_user_id": "u", "message_id": "1",
            "item_list": [text_item, file_item] }),
                true,
            )],
        ),
        (
            "mochat",
            mochat::decode,
            vec![
                (mochat_entry(json!(format!("{TYPED} @Eve {EVIL}"))), true),
                (mochat_entry(json!({ "card": EVIL })), false),
            ],
        ),
        ("program", program::decode, vec![(line, true)]),
    ]
}

#[test]
fn only_typed_words_name_hosts() {
    let services = services();
    for kind in CHANNELS.iter().filter(|kind| kind.receives && !kind.is_program) {
        assert!(services.iter().any(|(name, ..)| *name == kind.name), "{}", kind.name);
    }
    for (name, decode, messages) in &services {
        for (value, is_named) in messages {
            let message = decode(value).unwrap_or_else(|| panic!("{name}: no message: {value}"));
            // As the inbox keeps it.
            let stored = serde_json::to_string(&message).unwrap();
            let message: InboundMessage = serde_json::from_str(&stored).unwrap();
            assert!(value.to_string().contains("evil.example"), "{name}: {value}");
            let sources = message.text.sources(&|_| false);
            let expect: &[&str] = if *is_named { &["typed.example"] } else { &[] };
            assert!(sources.hosts.iter().eq(expect), "{name}: {:?}: {value}", message.text);
        }
    }
}
