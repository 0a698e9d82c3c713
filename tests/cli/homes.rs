//! Homes that other releases have left, from `tests/recorded/homes`: this one reads them, goes on, and keeps what it found.

use crate::server::says;
use crate::story::{Story, write};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A recorded home.
struct RecordedHome {
    name: &'static str,
    /// The session file that the release has written, or that the first turn moves it to.
    session_file: &'static str,
    job_file: &'static str,
    /// The id of its job, and the number of runs that are recorded.
    job: (&'static str, usize),
    has_pipe: bool,
}

const OUR_JOB: &str = "1358d8a9";
const SESSION_FILE: &str = "workspace/sessions/cli_direct.jsonl";
const JOB_FILE: &str = "workspace/cron/jobs.json";

const HOMES: [RecordedHome; 5] = [
    RecordedHome {
        name: "python-0.1.4.post3",
        session_file: SESSION_FILE,
        job_file: "cron/jobs.json",
        job: ("3bd2ff03", 0),
        has_pipe: false,
    },
    RecordedHome {
        name: "python-0.3.5",
        session_file: "sessions/7431a6e1cd5e70a2ddfbd6f373952d25/Y2xpOmRpcmVjdA.jsonl",
        job_file: JOB_FILE,
        job: ("1a1e123e", 0),
        has_pipe: false,
    },
    RecordedHome {
        name: "nanobot-2026-11-21",
        session_file: SESSION_FILE,
        job_file: JOB_FILE,
        job: (OUR_JOB, 1),
        has_pipe: false,
    },
    RecordedHome {
        name: "nanobot-2026-11-25",
        session_file: SESSION_FILE,
        job_file: JOB_FILE,
        job: (OUR_JOB, 1),
        has_pipe: true,
    },
    RecordedHome {
        name: "nanobot-2026-11-29",
        session_file: SESSION_FILE,
        job_file: JOB_FILE,
        job: (OUR_JOB, 1),
        has_pipe: true,
    },
];

/// A time after all that is recorded.
const LATER: &str = "2026-12-01T03:04:05Z";

fn copy(from: &Path, to: &Path, home: &str) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target, home);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            write(&target, text.replace("@HOME@", home).as_bytes());
            std::fs::set_permissions(target, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

impl RecordedHome {
    fn open(&self) -> Story {
        let story = Story::new().env("NANOBOT_TEST_TIME", LATER).env("NANOBOT_TEST_ZONE", "UTC");
        let source = format!("{}/tests/recorded/homes/{}", env!("CARGO_MANIFEST_DIR"), self.name);
        copy(source.as_ref(), &story.home().join(".nanobot"), story.home().to_str().unwrap());
        story
    }

    fn read(&self, story: &Story, file: &str) -> String {
        let text = std::fs::read_to_string(story.home().join(".nanobot").join(file));
        text.unwrap_or_else(|error| panic!("{}: {file}: {error}", self.name))
    }
}

/// The conversation goes on after what the other release has written, which stays as it is.
#[test]
fn a_conversation_of_another_release_goes_on() {
    for home in HOMES {
        let story = home.open().script([says("Green.")]);
        let before = home.read(&story, home.session_file);
        let output = story.run(["session", "show", "cli:direct"]);
        assert!(output.text().contains("My tea is green."), "{}", home.name);
        drop(output);
        story.run(["agent", "-m", "which tea?"]).stdout("Green.\n");
        let request = &story.requests()[0];
        let has_call = request.messages().iter().any(|message| message["role"] == "tool");
        assert!(has_call && request.raw.contains("My tea is green."), "{}", home.name);
        let after = home.read(&story, home.session_file);
        // Only the metadata line of the Python program is changed in its place.
        let lines_of = |text: &str| -> Vec<Value> {
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines.filter(|line| line["role"].is_string()).collect()
        };
        let (before, after) = (lines_of(&before), lines_of(&after));
        assert_eq!(after[..before.len()], before, "{}", home.name);
        assert_eq!(after.len(), before.len() + 2, "{}", home.name);
        assert_eq!(after.last().unwrap()["content"], "Green.", "{}", home.name);
        story.run(["session", "repair", "--all"]).stderr_has("ok");
    }
}

/// The job is listed with its runs, and runs; what the other release wrote of it stays.
#[test]
fn a_job_of_another_release_runs() {
    for home in HOMES {
        let story = home.open().script([says("News.")]);
        let (id, runs) = home.job;
        let stored = |file: &str| -> Value {
            let file: Value = serde_json::from_str(&home.read(&story, file)).unwrap();
            file["jobs"][0].clone()
        };
        let before = stored(home.job_file);
        let count = || story.run(["cron", "logs", "--json"]).json_lines().len();
        assert_eq!(count(), runs, "{}", home.name);
        story.run(["cron", "sync"]).stdout_has(id).error_text();
        story.run(["cron", "run", id]).stdout("News.\n").error_text();
        assert_eq!(count(), runs + 1, "{}", home.name);
        let table = story.crontab().table().unwrap();
        assert!(table.contains(&format!("cron run {id} --scheduled")), "{}", home.name);
        let after = stored(home.job_file);
        for key in ["id", "name", "schedule", "payload", "createdAtMs", "deleteAfterRun"] {
            assert_eq!(after[key], before[key], "{}: {key}", home.name);
        }
        assert_eq!(after["state"]["lastStatus"], "ok", "{}", home.name);
    }
}

/// The ledger, the memory and the journals of earlier releases of this program.
#[test]
fn what_an_earlier_release_has_recorded_counts() {
    for home in HOMES.iter().filter(|home| home.name.starts_with("nanobot")) {
        let message = json!({ "id": "1", "session": "s", "text": "hello" });
        // Before what is settled is forgotten.
        let story = home.open().env("NANOBOT_TEST_TIME", "2026-01-02T09:00:00Z");
        let story = story.stdin(format!("{message}\n"));
        let days = story.run(["usage", "--since", "2026-01-01", "--json"]).json_lines();
        assert_eq!(days[0]["calls"], 5, "{}: {days:?}", home.name);
        story.run(["memory", "show"]).stdout_has("The user likes tea.");
        if home.has_pipe {
            // The line that a broker sends again is answered from the journal.
            story.run(["serve", "pipe", "--name", "bus"]).stdout_has("The answer.");
        }
        assert!(story.requests().is_empty(), "{}", home.name);
    }
}
