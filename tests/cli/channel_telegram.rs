//! `channel`: unusual responses and messages of Telegram, and pages of a proxy in front of it.

use crate::channel::telegram_story;
use crate::server::says;
use crate::telegram_server::NUL_FILE;
use serde_json::{Value, json};

/// A page of a proxy, or of a wrong address.
const PAGE: &str = "<html>Please log in</html>";

#[test]
fn a_page_instead_of_a_sent_message_loses_no_answer() {
    for (status, body) in [
        (200, json!(PAGE)),
        (200, json!({ "ok": true, "result": {} })),
        (200, json!({ "result": { "message_id": 5 } })),
        (302, json!(PAGE)),
        (404, json!(PAGE)),
    ] {
        let (story, telegram) = telegram_story();
        let story = story.script([says("Answer.")]);
        telegram.message(7, "hi");
        telegram.fail("sendMessage", status, body.clone());
        story
            .run(["channel", "poll"])
            .status(69)
            .stderr_has("waits to be sent")
            .stderr_has(&telegram.base());
        assert_eq!(telegram.sent().len(), 1, "{body}");
        story.run(["channel", "poll"]);
        assert_eq!(telegram.sent(), ["Answer.", "Answer."], "{body}");
        story.run(["channel", "poll"]);
        assert_eq!(telegram.sent().len(), 2, "{body}");
    }
}

#[test]
fn a_page_instead_of_updates_is_not_nothing_new() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Answer.")]);
    telegram.fail("getMe", 200, json!(PAGE));
    story.run(["channel", "check", "telegram"]).status(69).stderr_has(&telegram.base());
    telegram.message(7, "hi");
    for body in [json!(PAGE), json!({ "ok": true, "result": {} })] {
        telegram.fail("getUpdates", 200, body);
        // The second one is not told, since the first one was.
        let poll = story.run(["channel", "poll"]);
        poll.status(69).error_text();
        story.run(["channel", "list", "--json"]).stdout_has(&telegram.base());
    }
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Answer."]);
}

/// A message of Ann in a group.
fn in_group(members: &Value) -> Value {
    let mut message = json!({
        "from": { "id": 7, "is_bot": false }, "chat": { "id": -100, "type": "supergroup" },
    });
    for (name, value) in members.as_object().unwrap() {
        message[name] = value.clone();
    }
    message
}

/// A picture of an album; the caption, if any, mentions us.
fn picture(album: &str, caption: Option<&str>) -> Value {
    let mut message = in_group(&json!({
        "media_group_id": album, "document": { "file_id": "f1", "file_name": "a.txt", "file_size": 23 },
    }));
    if let Some(caption) = caption {
        message["caption"] = caption.into();
        message["caption_entities"] = json!([{ "type": "mention", "offset": 0, "length": 10 }]);
    }
    message
}

#[test]
fn an_album_in_a_group_is_one_message_with_all_pictures() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Two cats.")]);
    telegram.add(picture("a1", None));
    telegram.add(picture("a1", Some("@story_bot what are these?")));
    telegram.add(picture("a1", None));
    // No one asks about this album.
    telegram.add(picture("a2", None));
    telegram.add(picture("a2", None));
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Two cats."]);
    assert_eq!(telegram.calls("getFile").len(), 3);
    let request = &story.server().requests()[0];
    assert!(request.raw.contains("what are these?"), "{}", request.raw);
}

#[test]
fn an_album_across_two_answers_of_the_service_is_joined() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Two cats.")]);
    let other = json!({ "text": "to others" });
    for _ in 0..99 {
        telegram.add(in_group(&other));
    }
    telegram.add(picture("a1", None));
    telegram.add(picture("a1", Some("@story_bot what are these?")));
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Two cats."]);
    assert_eq!(telegram.calls("getFile").len(), 2);
}

#[test]
fn messages_that_say_nothing_start_no_turn() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Hello."), says("Seen.")]);
    let direct = json!({ "id": 7, "type": "private" });
    for members in [
        json!({ "pinned_message": { "text": "old" } }),
        json!({ "new_chat_members": [{ "id": 9 }] }),
        json!({ "left_chat_member": { "id": 9 } }),
    ] {
        let mut message = in_group(&members);
        message["chat"] = direct.clone();
        telegram.add(message);
    }
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), [""; 0]);
    assert!(story.server().requests().is_empty());
    // A sticker stands for its emoji, and a round video is a file.
    for members in [
        json!({ "sticker": { "file_id": "s", "emoji": "👋" } }),
        json!({ "video_note": { "file_id": "f1", "file_size": 23 } }),
    ] {
        let mut message = in_group(&members);
        message["chat"] = direct.clone();
        telegram.add(message);
        story.run(["channel", "poll"]);
    }
    assert_eq!(telegram.sent(), ["Hello.", "Seen."]);
    assert!(story.server().requests()[0].raw.contains('👋'));
}

#[test]
fn a_place_is_text_and_what_cannot_be_read_is_said() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("It rains.")]);
    let direct = json!({ "id": 7, "type": "private" });
    for (chat, members) in [
        (direct.clone(), json!({ "location": { "latitude": 1.5, "longitude": 2.0 } })),
        (direct, json!({ "sticker": { "file_id": "s" } })),
        (json!({ "id": -100, "type": "supergroup" }), json!({ "game": { "title": "chess" } })),
    ] {
        let mut message = in_group(&members);
        message["chat"] = chat;
        telegram.add(message);
        story.run(["channel", "poll"]);
    }
    let messages = telegram.sent();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(messages[0], "It rains.");
    assert!(messages[1].contains("cannot read a message of this kind"), "{messages:?}");
    let requests = story.server().requests();
    assert!(requests[0].raw.contains("latitude 1.5, longitude 2"), "{}", requests[0].raw);
    assert_eq!(requests.len(), 1);
}

#[test]
fn a_file_with_a_nul_is_named_and_the_message_is_answered() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Seen.")]);
    let file = json!({ "file_id": NUL_FILE, "file_name": "a.txt", "file_size": 15 });
    let mut message = in_group(&json!({ "caption": "what is this?", "document": file }));
    message["chat"] = json!({ "id": 7, "type": "private" });
    telegram.add(message);
    story.run(["channel", "poll"]).status(0);
    assert_eq!(telegram.sent(), ["Seen."]);
    let content = story.requests()[0].last_content();
    assert!(
        content.starts_with("what is this?\n\n[file: ") && content.contains("a.txt]"),
        "{content}"
    );
}

#[test]
fn the_parts_of_a_long_paste_are_one_message() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("All of it.")]);
    let parts = ["a", "b", "c"].map(|letter| letter.repeat(4096));
    for part in &parts {
        telegram.message(7, part);
    }
    story.run(["channel", "poll"]).status(0);
    assert_eq!(telegram.sent(), ["All of it."]);
    let requests = story.requests();
    assert_eq!(requests.len(), 1);
    let content = requests[0].last_content();
    assert!(content.contains(&parts.concat()), "{content}");
}
