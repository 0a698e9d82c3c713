//! A job in a container as the exported manifest describes it: process 1, a user that the image does not know, a root file
//! system that cannot be written, no capabilities.

use crate::cron::add_job;
use crate::requirements::{require, require_root};
use crate::server::{calls, says};
use crate::story::{NANOBOT, Story, write};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command};

/// The user and group of the manifest, and those of a cluster that gives each project a user of its own.
const USERS: [(u32, u32); 2] = [(1000, 1000), (1_000_650_000, 0)];

/// Mounts the image's parts, and runs the words after the script in it.
const START: &str = r#"
    set -e
    mount --make-rprivate /
    mount --bind "$ROOT" "$ROOT"
    for part in usr lib lib64 bin; do
      [ ! -e /$part ] || { mkdir -p "$ROOT/$part" && mount --rbind /$part "$ROOT/$part"; }
    done
    mkdir -p "$ROOT/proc" "$ROOT/dev" "$ROOT/data" "$ROOT/tmp" "$ROOT/opt" "$ROOT/run/credentials/nanobot" "$ROOT/etc"
    touch "$ROOT/opt/nanobot"
    mount --bind "$PROGRAM" "$ROOT/opt/nanobot"
    mount -t proc proc "$ROOT/proc"
    mount --rbind /dev "$ROOT/dev"
    mount --bind "$VOLUME" "$ROOT/data"
    mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
    mount -o remount,ro,bind "$ROOT"
    exec /usr/sbin/chroot "$ROOT" /usr/bin/setpriv --reuid "$USER_ID" --regid "$GROUP_ID" --clear-groups --no-new-privs \
      --inh-caps=-all --bounding-set=-all /usr/bin/env -i PATH=/opt:/usr/bin:/bin "$@"
"#;

/// A home whose data directory is the volume, with a job.
struct ContainerStory {
    story: Story,
    root: PathBuf,
    manifest: Value,
}

impl ContainerStory {
    /// `None`, with a skip notice, where it cannot run.
    fn new() -> Option<Self> {
        if !require_root("only root can run a program as another user")
            || !require("unshare")
            || !require("setpriv")
        {
            return None;
        }
        let story = Story::new().set("memory", json!({ "consolidate": "manual" }));
        write(&story.workspace().join("notes.md"), b"buy milk\n");
        add_job(&story, &["-n", "digest", "-c", "0 9 * * *", "--tz", "Europe/London"]);
        let text = story.run(["cron", "export", "--format", "kubernetes", "--image", "x"]).text();
        let documents = crate::export::parse_yaml_documents(&text);
        let manifest = documents.into_iter().find(|it| it["kind"] == "CronJob");
        let root = story.dir().join("root");
        std::fs::create_dir_all(&root).unwrap();
        Some(Self { manifest: manifest.unwrap(), root, story })
    }

    /// Runs the container with its own command, or with another one.
    fn start(&self, (user, group): (u32, u32), time: &str, other: &[&str]) -> Child {
        let Self { story, root, manifest } = self;
        let volume = story.home().join(".nanobot");
        let owner = format!("{user}:{group}");
        let mut chown = Command::new("chown");
        let chowned = chown.args(["-R", &owner]).arg(&volume).output().unwrap();
        assert!(chowned.status.success(), "{chowned:?}");
        let pod = &manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let mut command = story.program("unshare");
        command.args(["--mount", "--pid", "--fork", "sh", "-c", START, "sh"]);
        for pair in container["env"].as_array().unwrap() {
            let (name, value) = (&pair["name"], &pair["value"]);
            command.arg(format!("{}={}", name.as_str().unwrap(), value.as_str().unwrap()));
        }
        command.arg(format!("NANOBOT_TEST_TIME={time}"));
        let own = container["command"].as_array().unwrap().iter();
        match other {
            [] => command.args(own.map(|word| word.as_str().unwrap())),
            other => command.args(other),
        };
        command.env("ROOT", root).env("VOLUME", volume);
        command.env("PROGRAM", NANOBOT);
        command.env("USER_ID", user.to_string());
        command.env("GROUP_ID", group.to_string());
        command.spawn().unwrap()
    }
}

#[test]
fn a_job_runs_as_process_one_of_a_read_only_container() {
    let Some(container) = ContainerStory::new() else {
        return;
    };
    let story = &container.story;
    // The jobs come from a machine with other paths.
    let fix = ["nanobot", "status", "check", "--fix", "--no-crontab", "--offline"];
    let fixed = story.wait(container.start(USERS[0], "2026-01-03T08:00:00Z", &fix));
    fixed.code();
    fixed.error_text();
    fixed.stdout_has("are beneath `/data` now");
    for (number, user) in USERS.into_iter().enumerate() {
        story.server().script([
            calls("read_file", json!({ "path": "notes.md" })),
            calls("exec", json!({ "command": "date" })),
            says("Milk."),
        ]);
        let time = format!("2026-01-0{}T09:00:05Z", number + 3);
        let result = story.wait(container.start(user, &time, &[]));
        // In a chroot, as with the default seccomp profile of a pod, no process gets namespaces of its own.
        let result = result.status(5).stderr_has("a call of `exec` was denied");
        result.stdout("Milk.\n");
        let requests = story.requests();
        let requests = &requests[3 * number..];
        assert!(requests[1].raw.contains("buy milk"), "{}", requests[1].raw);
        let refusal = "commands that may change files need user namespaces";
        assert!(requests[2].raw.contains(refusal), "{}", requests[2].raw);
    }
}
