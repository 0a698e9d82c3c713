//! What a person who has never seen these commands types, and what they are told.

use crate::cron::{added, cron, jobs};
use crate::story::Story;
use serde_json::Value;

/// The schedule of the only job.
fn schedule(story: &Story) -> (Value, Value) {
    let schedule = &jobs(story)[0]["schedule"];
    (schedule["expr"].clone(), schedule["tz"].clone())
}

#[test]
fn a_zone_stays_until_another_is_said() {
    let story = Story::new();
    let id = added(&story, &["-c", "0 8 * * *", "--tz", "Europe/Paris"]);
    cron(&story, &["edit", &id, "-c", "30 7 * * *"])
        .stdout_has("at 07:30 each day, Europe/Paris time\n");
    assert_eq!(
        schedule(&story),
        ("30 7 * * *".into(), "Europe/Paris".into())
    );
    cron(&story, &["edit", &id, "--tz", "Europe/London"])
        .stdout_has("at 07:30 each day, Europe/London time\n");
    assert_eq!(
        schedule(&story),
        ("30 7 * * *".into(), "Europe/London".into())
    );
    cron(&story, &["edit", &id, "--tz", ""]).stdout_has("at 07:30 each day\n");
    assert_eq!(schedule(&story), ("30 7 * * *".into(), Value::Null));
    cron(&story, &["edit", &id, "--tz", "Mars/Olympus"])
        .status(2)
        .stderr_has("there is no time zone `Mars/Olympus`");
    cron(&story, &["edit", &id, "-e", "2h"]).stdout_has("every 2 hours\n");
    for flags in [&["--tz", "UTC"][..], &["-e", "3h", "--tz", "UTC"]] {
        cron(&story, &[&["edit", &id], flags].concat())
            .status(2)
            .stderr_has("`--tz` can only be used with `--cron`");
    }
    cron(&story, &["add", "-m", "x", "--tz", "UTC"])
        .status(2)
        .stderr_has("nothing says when the job runs");
}
