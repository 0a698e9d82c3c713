//! Debian's own cron and `crontab`, in a separate namespace with the story's files mounted over the system's. The machine's
//! cron is neither seen nor changed.

use crate::chat_services::chat_services;
use crate::cron::{job_dir, jobs, outcomes, records};
use crate::requirements::{require, require_root, skip};
use crate::server::{Request, Responder, fails, says};
use crate::story::{NANOBOT, RunResult, Story, TIME};
use crate::wait::until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// A mount and PID namespace. All its processes end with it, and it ends with the test.
struct CronNamespace {
    /// The namespace exists until this process's standard input is closed.
    shell_pid: Child,
    _namespace_holder: ChildStdin,
    /// A directory with one file for each mail from cron.
    mail_dir: PathBuf,
}

impl CronNamespace {
    /// Creates the namespace for `story` and runs `setup_script` in it. `None`, with a skip notice, where namespaces are
    /// unavailable.
    fn start(story: &Story, setup_script: &str) -> Option<Self> {
        if !require_root("only root can mount") || !require("cron") || !require("crontab") {
            return None;
        }
        let dir = story.home().join("../place");
        for name in ["spool", "sbin", "cron.d", "mail"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        let dir = dir.canonicalize().unwrap();
        std::fs::write(dir.join("crontab"), "").unwrap();
        let script = format!(
            "set -e
            cp -p /usr/sbin/cron sbin/
            cat > sbin/sendmail << 'end'
#!/bin/sh
name=$(mktemp {}/mail/.XXXXXX)
cat > \"$name\"
mv \"$name\" \"$name.mail\"
end
            chmod 755 sbin/sendmail
            chgrp crontab spool
            chmod 1730 spool
            mount --bind spool /var/spool/cron/crontabs
            mount --bind crontab /etc/crontab
            mount --bind cron.d /etc/cron.d
            mount -t tmpfs tmpfs /run
            mount --bind sbin /usr/sbin
            {setup_script}
            echo ready
            cat > /dev/null",
            dir.display()
        );
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        shell.args(["/bin/sh", "-c", &script]).current_dir(&dir);
        shell.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.stderr(Stdio::piped()).spawn().unwrap();
        let alive = shell.stdin.take().unwrap();
        let mut ready = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        if ready != "ready\n" {
            drop(alive);
            let output = shell.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            skip(&format!("there can be no namespaces for cron: {stderr}"));
            return None;
        }
        Some(Self { shell_pid: shell, _namespace_holder: alive, mail_dir: dir.join("mail") })
    }

    /// A program in the namespace, with the environment of a login shell.
    fn program(&self, story: &Story, program: &str) -> Command {
        let mut command = story.program("nsenter");
        for (kind, file) in [("mount", "mnt"), ("pid", "pid_for_children")] {
            command.arg(format!("--{kind}=/proc/{}/ns/{file}", self.shell_pid.id()));
        }
        for name in ["TEST_TIME", "TEST_DAEMON", "MEMORY__CONSOLIDATE"] {
            command.env_remove(format!("NANOBOT_{name}"));
        }
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.arg(format!("--wd={}", story.dir().display()));
        command.arg(program);
        command
    }

    fn cron<'a>(&self, story: &'a Story, arguments: &[&str]) -> RunResult<'a> {
        let mut command = self.program(story, NANOBOT);
        story.wait(command.arg("cron").args(arguments).spawn().unwrap())
    }

    /// Adds a job; returns its id.
    fn add_job(&self, story: &Story, name: &str, arguments: &[&str]) -> String {
        let result = self.cron(story, &[&["add", "--name", name], arguments].concat());
        let text = result.text();
        // A missing cron daemon is reported.
        let stderr = result.error_text();
        assert!(stderr.is_empty() || stderr.contains("no cron daemon is running"), "{stderr}");
        drop(result);
        let line = text.lines().next().unwrap();
        let start = format!("✓ Added job '{name}' (");
        let id = line.strip_prefix(&start).and_then(|line| line.strip_suffix(')'));
        id.unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    /// The crontab as listed by the `crontab` program.
    fn table(&self, story: &Story) -> String {
        let output = self.program(story, "crontab").arg("-l").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn set_table(&self, story: &Story, table: &str) {
        let mut command = self.program(story, "crontab");
        let mut child = command.arg("-").stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
        drop(story.wait(child));
    }

    /// Makes cron notice a changed crontab: it compares the modification time of the spool directory in whole seconds, and
    /// may have read it in the second in which it was started.
    fn touch_spool(&self) {
        let spool = std::fs::File::open(self.mail_dir.with_file_name("spool")).unwrap();
        let later = std::time::SystemTime::now() + Duration::from_secs(2);
        spool.set_modified(later).unwrap();
    }

    /// Waits for an effect of cron; `event` names it in the failure message.
    fn wait_until(&self, event: &str, condition: impl Fn() -> bool) {
        until(&format!("no {event}"), condition);
    }

    /// The bodies of mails about lines that contain `word`.
    fn mail_bodies(&self, word: &str) -> Vec<String> {
        let entries = std::fs::read_dir(&self.mail_dir).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|kind| kind == "mail"))
            .map(|path| std::fs::read_to_string(path).unwrap())
            .filter_map(|mail| {
                let (head, body) = mail.split_once("\n\n").unwrap();
                let subject = head.lines().find(|line| line.starts_with("Subject:"));
                subject.unwrap().contains(word).then(|| body.to_owned())
            })
            .collect()
    }
}

impl Drop for CronNamespace {
    fn drop(&mut self) {
        drop(self.shell_pid.kill());
        drop(self.shell_pid.wait());
    }
}

fn read_or_empty(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// All characters that a shell or cron would interpret.
const MESSAGE: &str =
    "50% of 'it' and \"that\", 100\\% of `date`, $HOME and \\;\n% second line\t# 🐈 é\nlast";

fn answering_model() -> Responder {
    Box::new(|request: &Request| {
        let last = request.last_content();
        match last.as_str() {
            _ if last.contains("say nothing") => says("NOTHING_TO_REPORT")(request),
            _ if last.contains("be refused") => fails(401, "no such key")(request),
            _ if last.contains("be printed") => says("Printed % 🐈.")(request),
            _ => says("Done % 🐈.")(request),
        }
    })
}

#[test]
#[ignore = "takes two minutes of cron; see tests/README.md"]
fn jobs_are_started_by_the_real_cron() {
    let story = Story::new().set("memory", json!({ "consolidate": "manual" }));
    story.server().always(answering_model());
    let Some(namespace) = CronNamespace::start(&story, "/usr/sbin/cron -f -L 0 &") else {
        return;
    };
    let path = |name: &str| story.dir().join(name);
    let word = |name: &str| path(name).display().to_string();
    // An existing user crontab, with variables that apply to all lines below them.
    let user_lines = format!(
        "# mine\nSHELL=/bin/bash\nPATH=/nowhere\nHOME=/\nWORD='a b'\n\n* * * * * [[ $WORD = 'a b' ]] && echo \"$HOME\" >> {}\n# last\n",
        word("theirs")
    );
    namespace.set_table(&story, &user_lines);
    let always = ["-c", "* * * * *"];
    let add = |name: &str, message: &str, more: &[&str]| {
        namespace.add_job(&story, name, &[&["-m", message], more].concat())
    };
    let when = format!("env > {}", word("env"));
    let out = word("out.txt");
    let filed = add(
        "filed",
        MESSAGE,
        &[&always[..], &["--when", &when, "--channel", "file", "--to", &out]].concat(),
    );
    let piped = add(
        "piped",
        "x",
        &["-e", "60", "--channel", "command", "--to", &format!("cat >> {}", word("piped"))],
    );
    let printed = add("printed", "be printed", &always);
    let quiet = add("quiet", "x", &[&always[..], &["--channel", "none"]].concat());
    let silent = add("silent", "say nothing", &always);
    let refused = add("refused", "be refused", &always);
    // Not in the current hour, so that cron finds nothing due each minute.
    let output = Command::new("date").env("TZ", "Asia/Kathmandu").arg("+%-H").output().unwrap();
    let hour: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let elsewhere = format!("* {} * * *", (hour + 12) % 24);
    let zoned = add("zoned", "x", &["-c", &elsewhere, "--tz", "Asia/Kathmandu"]);
    let once = add("once", "x", &["--in", "1m", "--channel", "file", "--to", &word("once.txt")]);
    let table = namespace.table(&story);
    assert!(table.starts_with(&user_lines), "{table}");
    for id in [&filed, &piped, &printed, &quiet, &silent, &refused, &zoned, &once] {
        assert!(table.contains(&format!(" cron run {id} --scheduled\n")), "{table}");
    }

    namespace.touch_spool();

    // The first minute.
    let ended = |id: &str, count: usize| outcomes(&story, id).len() >= count;
    for id in [&filed, &piped, &printed, &quiet, &silent, &refused] {
        namespace.wait_until("first run", || ended(id, 1));
    }
    namespace.wait_until("mail", || !namespace.mail_bodies(&printed).is_empty());
    namespace
        .cron(&story, &["remove", &printed])
        .stdout(&format!("✓ Removed job {printed} ('printed')\n"))
        .stderr_has("moved the session of `printed` to the trash");
    // The second minute.
    for id in [&filed, &piped, &quiet, &silent, &refused] {
        namespace.wait_until("second run", || ended(id, 2));
    }
    // The job is removed from the file first, and from the crontab afterwards.
    namespace.wait_until("run that is the only one", || {
        jobs(&story).iter().all(|job| job["id"] != once.as_str())
            && !namespace.table(&story).contains(&once)
    });
    namespace
        .wait_until("command of theirs", || read_or_empty(&path("theirs")).lines().count() >= 2);
    namespace.wait_until("second mail", || namespace.mail_bodies(&refused).len() >= 2);
    let now = namespace.table(&story);
    assert!(!now.contains(&once) && !now.contains(&printed), "{now}");

    // Each slot runs once, in its minute.
    for (id, outcome) in
        [(&filed, "ok"), (&piped, "ok"), (&quiet, "ok"), (&silent, "nothing"), (&refused, "failed")]
    {
        let records = records(&story, id);
        let mut slots: Vec<&str> =
            records.iter().map(|record| record["slot"].as_str().unwrap()).collect();
        slots.dedup();
        assert_eq!(slots.len(), records.len(), "{records:?}");
        for record in &records {
            assert_eq!(record["outcome"], outcome, "{record}");
            assert_eq!(record["trigger"], "schedule", "{record}");
            let minute = |key: &str| record[key].as_str().unwrap()[..16].to_owned();
            assert_eq!(minute("slot"), minute("start"), "{record}");
        }
    }
    assert_eq!(outcomes(&story, &once), ["ok"]);
    assert_eq!(read_or_empty(&path("once.txt")), "Done % 🐈.\n");
    assert!(!job_dir(&story, &zoned).join("runs.jsonl").exists());

    // The environment is that of cron, plus the variables of the crontab line and of the job.
    let env = read_or_empty(&path("env"));
    let value = |name: &str| {
        let start = format!("{name}=");
        env.lines().find_map(|line| line.strip_prefix(&start))
    };
    assert_eq!(value("HOME"), Some(story.home().to_str().unwrap()));
    assert_eq!(value("PATH"), Some("/usr/local/bin:/usr/bin:/bin"));
    assert_eq!(value("SHELL"), Some("/bin/bash"));
    assert_eq!(value("WORD"), Some("a b"));
    assert_eq!(value("LOGNAME"), Some("root"));
    assert_eq!(value("NANOBOT_TEST_TIME"), None, "{env}");

    // The message arrived unchanged in each run, and the answers were delivered.
    let requests = story.requests();
    let request_count = requests.iter().filter(|request| request.last_content().contains(MESSAGE));
    assert_eq!(request_count.count(), outcomes(&story, &filed).len());
    for (name, id) in [("out.txt", &filed), ("piped", &piped)] {
        let expect = "Done % 🐈.\n".repeat(outcomes(&story, id).len());
        assert_eq!(read_or_empty(&path(name)), expect);
    }
    for id in [&filed, &piped, &quiet, &silent, &refused] {
        let log = story.session(&format!("cron_{id}.jsonl"));
        assert!(log.iter().any(|line| line["role"] == "user"), "{log:?}");
    }

    // Cron mails failures and answers without another delivery.
    assert_eq!(namespace.mail_bodies(&printed), ["Printed % 🐈.\n"]);
    for mail in namespace.mail_bodies(&refused) {
        let start = format!("nanobot: job `refused` ({refused})");
        assert!(mail.starts_with(&start) && mail.contains("no such key"), "{mail}");
        let lines: Vec<&str> = mail.lines().collect();
        assert!(lines.len() <= 2 && lines[1..].iter().all(|line| line.contains("try: ")), "{mail}");
    }
    for id in [&filed, &piped, &quiet, &silent, &zoned, &once] {
        assert_eq!(namespace.mail_bodies(id), [""; 0]);
    }
    assert_eq!(namespace.mail_bodies("mine"), [""; 0]);

    // The removal removes everything.
    let all = [&filed, &piped, &quiet, &silent, &refused, &zoned].map(String::as_str);
    // A third minute may start meanwhile.
    let result = namespace.cron(&story, &[&["remove"][..], &all].concat());
    result.text();
    result.error_text();
    drop(result);
    assert_eq!(namespace.table(&story), user_lines);
    assert_eq!(jobs(&story), [Value::Null; 0]);
    for id in all {
        // A running job cleans up after itself.
        namespace.wait_until("end", || !job_dir(&story, id).exists());
        assert!(!story.workspace().join(format!("sessions/cron_{id}.jsonl")).exists());
    }
    let lines = read_or_empty(&path("theirs"));
    assert!(lines.lines().all(|line| line == "/"), "{lines}");
}

/// Jobs that are added, and as many that are removed, at the same time.
const CHANGE_COUNT: usize = 12;

#[test]
fn concurrent_changes_share_the_real_crontab() {
    let story = Story::new().set("memory", json!({ "consolidate": "manual" }));
    let Some(namespace) = CronNamespace::start(&story, "") else {
        return;
    };
    let user_lines = "# mine\n\nMAILTO=\"\"\n1 2 3 4 5 echo '100\\%' \n#  last\n";
    namespace.set_table(&story, user_lines);
    let old: Vec<String> = (0..CHANGE_COUNT)
        .map(|number| {
            let expression = format!("{number} 7 * * *");
            namespace.add_job(&story, &format!("old{number}"), &["-m", "x", "-c", &expression])
        })
        .collect();
    let spawn = |arguments: &[&str]| {
        let mut command = namespace.program(&story, NANOBOT);
        command.arg("cron").args(arguments).spawn().unwrap()
    };
    let children: Vec<Child> = (0..CHANGE_COUNT)
        .flat_map(|number| {
            let (name, expression) = (format!("new{number}"), format!("{number} 8 * * *"));
            [
                spawn(&["add", "-n", &name, "-m", "x", "-c", &expression]),
                spawn(&["remove", &old[number]]),
            ]
        })
        .collect();
    for child in children {
        let result = story.wait(child);
        result.text();
        // No cron runs in this namespace, which is reported.
        result.error_text();
    }
    let jobs = jobs(&story);
    let mut names: Vec<&str> = jobs.iter().map(|job| job["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let mut expect: Vec<String> = (0..CHANGE_COUNT).map(|number| format!("new{number}")).collect();
    expect.sort();
    assert_eq!(names, expect);
    let table = namespace.table(&story);
    let block = table.strip_prefix(user_lines).unwrap_or_else(|| panic!("{table}"));
    let mut lines: Vec<&str> = block.lines().filter(|line| !line.starts_with('#')).collect();
    lines.sort_by_key(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap());
    assert_eq!(lines.len(), CHANGE_COUNT, "{table}");
    for (number, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("{number} 8 * * * ")), "{line}");
        let is_job_of = |job: &&Value| {
            line.ends_with(&format!(" cron run {} --scheduled", job["id"].as_str().unwrap()))
        };
        let job = jobs.iter().find(is_job_of).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(job["name"], format!("new{number}"));
    }
    let all: Vec<&str> = jobs.iter().map(|job| job["id"].as_str().unwrap()).collect();
    let result = namespace.cron(&story, &[&["remove"][..], &all].concat());
    result.text();
    result.error_text();
    drop(result);
    assert_eq!(namespace.table(&story), user_lines);
}

/// A crontab line is a gateway: polls take turns, and each message is answered at once.
#[test]
#[ignore = "takes three minutes of cron; see tests/README.md"]
fn chats_are_answered_by_the_real_cron() {
    let services = chat_services();
    let mut story = Story::new()
        .set("memory", json!({ "consolidate": "manual" }))
        .set("channels", json!({ "perSenderPerHour": 1000 }));
    for service in &services {
        story = story.set(&format!("channels.{}", service.facts().name), service.keys.clone());
    }
    story.server().always(says("Yes."));
    // A message from before the first poll is not answered.
    story.run(["channel", "poll"]);
    let Some(namespace) = CronNamespace::start(&story, "/usr/sbin/cron -f -L 0 &") else {
        return;
    };
    let (home, dir) = (story.home(), story.dir());
    let line = format!(
        "HOME={}\nNANOBOT_TEST_TIME={TIME}\n* * * * * cd {} && {NANOBOT} channel poll --wait 60\n",
        home.display(),
        dir.display()
    );
    namespace.set_table(&story, &line);
    namespace.touch_spool();
    let start = Instant::now();
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while start.elapsed() < Duration::from_secs(185) {
        count += 1;
        for service in &services {
            let start = Instant::now();
            service.write(&format!("message {count}"));
            let has_answered = || service.count_answers() == count;
            namespace.wait_until(&format!("answer in {}", service.facts().name), has_answered);
            // The first message waits for the first poll.
            if count > 1 {
                slowest = slowest.max(start.elapsed());
            }
        }
        // The pace of a person, so that messages arrive between polls too.
        std::thread::sleep(Duration::from_millis(1500));
    }
    for service in &services {
        assert_eq!(service.count_answers(), count, "{}", service.facts().name);
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    assert_eq!(namespace.mail_bodies("poll"), [""; 0]);
}
