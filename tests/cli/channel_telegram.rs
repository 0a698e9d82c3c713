//! `channel`: what Telegram and what stands before it may send.

use crate::channel::telegram_story;
use crate::server::says;
use serde_json::json;

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
    story
        .run(["channel", "test", "telegram"])
        .status(69)
        .stderr_has(&telegram.base());
    telegram.message(7, "hi");
    for body in [json!(PAGE), json!({ "ok": true, "result": {} })] {
        telegram.fail("getUpdates", 200, body);
        story
            .run(["channel", "poll"])
            .status(69)
            .stderr_has(&telegram.base());
    }
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Answer."]);
}
