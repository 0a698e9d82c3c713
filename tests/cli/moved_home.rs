//! `status check --fix`: jobs and the crontab follow a home that was moved.

use crate::cron::{add_job, job_dir};
use crate::server::says;
use crate::story::{Story, write};
use std::path::PathBuf;

/// Moves the story's home, and returns the new one.
fn move_home(story: &Story) -> PathBuf {
    let new = story.dir().join("moved");
    std::fs::rename(story.home(), &new).unwrap();
    new
}

fn job_file(story: &Story, home: &std::path::Path, id: &str) -> String {
    let path = job_dir(story, id).join("job.json");
    let path = home.join(path.strip_prefix(story.home()).unwrap());
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn jobs_and_the_crontab_follow_the_home() {
    let story = Story::new().script([says("Digest.")]);
    write(&story.home().join("inbox/a.txt"), b"a");
    write(&story.home().join("out/notes.txt"), b"");
    let (inbox, out) = (story.home().join("inbox"), story.home().join("out/notes.txt"));
    let (inbox, out) = (inbox.to_str().unwrap(), out.to_str().unwrap());
    let more = [
        "-n",
        "digest",
        "-e",
        "1h",
        "-C",
        inbox,
        "--read",
        inbox,
        "--channel",
        "file",
        "--to",
        out,
    ];
    let id = add_job(&story, &more);
    // A missing directory is no sign of a move, as long as its parent is there.
    let missing_dir = story.dir().join("gone");
    std::fs::create_dir(&missing_dir).unwrap();
    let more = ["-n", "other", "-e", "2h", "--read", missing_dir.to_str().unwrap()];
    let other = add_job(&story, &more);
    std::fs::remove_dir(&missing_dir).unwrap();
    let old = story.home().to_str().unwrap().to_owned();
    let unmoved = story.run(["status", "check", "--fix", "--offline"]);
    unmoved.code();
    unmoved.error_text();
    unmoved.stdout_has("ok    moved        no job has a path of an earlier home\n");
    let new = move_home(&story);
    let run = |arguments: &[&str]| {
        let mut command = story.command(arguments);
        command.env("HOME", &new);
        story.wait(command.spawn().unwrap())
    };
    let fixed = run(&["status", "check", "--fix", "--offline"]);
    fixed.code();
    fixed.error_text();
    let text = fixed.text();
    assert!(text.starts_with("ok    moved        2 jobs: paths beneath"), "{text}");
    let job = job_file(&story, &new, &id);
    assert!(!job.contains(&old), "{job}");
    assert!(job.contains(&format!("{}/inbox", new.display())), "{job}");
    assert!(job_file(&story, &new, &other).contains("gone"));
    let table = story.crontab().table().unwrap();
    assert!(!table.contains(&old), "{table}");
    assert_eq!(table.matches(" --scheduled").count(), 2, "{table}");
    run(&["cron", "run", &id]).stdout("");
    let notes = std::fs::read_to_string(new.join("out/notes.txt")).unwrap();
    assert_eq!(notes, "Digest.\n");
    let again = run(&["status", "check", "--fix", "--offline"]);
    again.code();
    again.error_text();
    again.stdout_has("no job has a path of an earlier home");
}

/// On another machine there is no crontab of the earlier home.
#[test]
fn paths_are_recognised_without_a_crontab() {
    let story = Story::new();
    write(&story.home().join("inbox/a.txt"), b"a");
    let inbox = story.home().join("inbox");
    let id = add_job(&story, &["-n", "x", "-e", "1h", "--read", inbox.to_str().unwrap()]);
    story.crontab().set_table("# mine\n");
    let old = story.home().to_str().unwrap().to_owned();
    let new = move_home(&story);
    let mut command = story.command(["status", "check", "--fix", "--offline"]);
    command.env("HOME", &new);
    let result = story.wait(command.spawn().unwrap());
    result.code();
    result.error_text();
    result.stdout_has("1 job: paths beneath");
    assert!(!job_file(&story, &new, &id).contains(&old));
    let table = story.crontab().table().unwrap();
    assert!(table.starts_with("# mine\n") && table.contains(" --scheduled"), "{table}");
    story.run(["status", "--fix"]).status(2).stderr_has("try: nanobot status --help");
}
