//! `--worktree`: a run on a branch of its own.

use crate::requirements::require;
use crate::server::{calls, says};
use crate::story::{Story, write_program};
use serde_json::json;

/// A story in a repository with one commit.
fn in_repository() -> Option<Story> {
    require("git").then(|| {
        let story = Story::new().file("sub/a", "1\n");
        git(
            &story,
            "git init -q -b main && git config user.name A && git config user.email a@b && git add . && git commit -qm one",
        );
        story
    })
}

/// Runs a script of the shell, which has to succeed; returns its output.
pub(crate) fn git(story: &Story, script: &str) -> String {
    let output = story.program("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a turn in which the model runs `command`, and returns its result.
fn run_command(story: &Story, flags: &[&str], command: &str) -> (String, String) {
    story.server().script([calls("exec", json!({ "command": command })), says("ok")]);
    let mut arguments = vec!["agent", "-m", "x", "--ephemeral"];
    arguments.extend(flags);
    let result = story.run(arguments).stdout("ok\n");
    let content = story.last_request().last_content();
    (content, result.error_text())
}

#[test]
fn a_run_works_on_a_branch_of_its_own() {
    let Some(story) = in_repository() else { return };
    let change = "cd sub && echo 2 > a && git commit -qam two && git status --short --branch && git log --format=%s -1";
    let flags = ["--worktree", "fix/x", "--write"];
    let (output, notice) = run_command(&story, &flags, change);
    assert_eq!(output, "## fix/x\ntwo");
    let name = story.dir().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(
        notice.starts_with("nanobot: working in `~/.nanobot/worktrees/")
            && notice.ends_with("/fix-x`, on branch `fix/x`\n"),
        "{notice}"
    );
    let path = story.home().join(".nanobot/worktrees").join(&name).join("fix-x");
    assert!(path.join("sub/a").exists());
    // The user's own files are as they were, the commit is there, and another run goes on with it.
    assert_eq!(
        git(&story, "cat sub/a; git status --short; git log --format=%s -1 fix/x"),
        "1\ntwo\n"
    );
    let (output, _) = run_command(&story, &flags, "cat sub/a");
    assert_eq!(output, "2");
    story
        .run(["agent", "-m", "x", "--worktree", "fix-x"])
        .status(2)
        .stderr_has("/fix-x` is on the branch `fix/x`");
    // From a subdirectory, the run is in that of the worktree. Without `--write` nothing changes.
    let mut command = story.command(["agent", "-m", "x", "--ephemeral", "--worktree", "fix/x"]);
    command.current_dir(story.dir().join("sub"));
    story.server().script([
        calls("exec", json!({ "command": "basename $PWD; git log --format=%s -1; touch b" })),
        says("ok"),
    ]);
    story.wait(command.spawn().unwrap()).stdout("ok\n").stderr_has("on branch");
    let content = story.last_request().last_content();
    assert!(content.starts_with("sub\ntwo\n") && content.contains("Read-only"), "{content}");
}

/// A worktree that git does not see in the sandbox is not one that was removed.
#[test]
fn other_worktrees_survive_a_prune() {
    let Some(story) = in_repository() else { return };
    let flags = |branch| ["--worktree", branch, "--write"];
    run_command(&story, &flags("one"), "echo 2 > sub/a && git add -A");
    run_command(&story, &flags("two"), "git worktree prune");
    let (output, _) = run_command(&story, &flags("one"), "git status --short");
    assert_eq!(output, "M  sub/a");
}

/// The repository's hooks and config are out of reach, of commands and of file tools.
#[test]
fn the_repository_of_a_worktree_keeps_its_hooks_and_config() {
    let Some(story) = in_repository() else { return };
    let flags = ["--worktree", "x", "--write"];
    let repository = story.dir().join(".git");
    let hook = repository.join("hooks/pre-commit");
    let script = format!(
        "echo evil > {0}/hooks/pre-commit; git config core.fsmonitor evil; echo evil > {0}/worktrees/x/commondir; echo done",
        repository.display()
    );
    let (output, _) = run_command(&story, &flags, &script);
    assert!(output.contains("done"), "{output}");
    story
        .server()
        .script([calls("write_file", json!({ "path": hook, "content": "evil" })), says("ok")]);
    let mut arguments = vec!["agent", "-m", "x", "--ephemeral"];
    arguments.extend(flags);
    story.run(arguments).stdout("ok\n").stderr_has("on branch");
    assert!(!hook.exists());
    let config = git(&story, "git config --list --local; cat .git/worktrees/x/commondir");
    assert!(!config.contains("evil") && config.ends_with("../..\n"), "{config}");
}

/// Git outside of the sandbox runs nothing that a command has left in a worktree.
#[test]
fn the_removal_of_a_worktree_runs_no_hook() {
    let Some(story) = in_repository() else { return };
    git(&story, "git config core.hooksPath .husky");
    let mark = story.home().join("pwned");
    let script = format!(
        "G=$(git rev-parse --git-common-dir); mkdir -p .husky $G/.husky; echo '.husky/*' >> $G/info/exclude; \
         printf '#!/bin/sh\ntouch {0}\n' > .husky/post-index-change; cp .husky/post-index-change $G/.husky/reference-transaction; \
         chmod +x .husky/* $G/.husky/*; echo done",
        mark.display()
    );
    let flags = ["--worktree", "x", "--write", "--remove-worktree"];
    let (output, _) = run_command(&story, &flags, &script);
    assert!(output.contains("done"), "{output}");
    assert!(!mark.exists());
}

/// A relative entry of `PATH` leads into what the command has left.
#[test]
fn git_outside_of_the_sandbox_is_found_by_absolute_paths() {
    let Some(story) = in_repository() else { return };
    let story = story.env("PATH", "node_modules/.bin:.:/usr/local/bin:/usr/bin:/bin");
    let script = format!(
        "export PATH=/usr/bin:/bin; G=$(git rev-parse --git-common-dir); for place in . $G; do mkdir -p $place/node_modules/.bin; \
         printf '#!/bin/sh\ntouch {}/owned\nexec /usr/bin/git \"$@\"\n' > $place/node_modules/.bin/git; \
         chmod +x $place/node_modules/.bin/git; cp $place/node_modules/.bin/git $place; done; echo done",
        story.home().display()
    );
    let flags = ["--worktree", "x", "--write", "--remove-worktree"];
    let (output, _) = run_command(&story, &flags, &script);
    assert!(output.contains("done"), "{output}");
    assert!(!story.home().join("owned").exists());
}

/// A repository that somebody else made runs nothing, and what its filters would make of the files is left to git in the sandbox.
#[test]
fn no_program_of_a_repository_runs_outside_of_the_sandbox() {
    let Some(story) = in_repository() else { return };
    let home = story.home().display().to_string();
    write_program(&story.dir().join("evil"), &format!("#!/bin/sh\ntouch {home}/ran; cat\n"));
    git(
        &story,
        "echo '* filter=x' > .gitattributes; echo 'sub/* filter=a=b' >> .gitattributes; git add .; git commit -qm two; \
         for name in x a=b; do for key in smudge clean process; do git config filter.$name.$key $PWD/evil; done; \
         git config filter.$name.required true; done; git config extensions.worktreeConfig true; \
         git config --worktree filter.y.smudge $PWD/evil; git config core.fsmonitor $PWD/evil; \
         git config core.sshCommand $PWD/evil; cp evil .git/hooks/post-checkout; cp evil .git/hooks/reference-transaction",
    );
    let (output, _) = run_command(&story, &["--worktree", "one"], "cat sub/a");
    assert_eq!(output, "1");
    assert!(!story.home().join("ran").exists());
    // What it would have run.
    git(
        &story,
        "rm -f .git/hooks/*; git config --unset core.fsmonitor; git worktree add -q ../other || true",
    );
    assert!(story.home().join("ran").exists());
    // A filter of the user's own config runs.
    let Some(story) = in_repository() else { return };
    git(&story, "echo '* filter=own' > .gitattributes; git add .; git commit -qm two");
    git(&story, "git config --global filter.own.smudge 'tr 1 2'");
    let (output, _) = run_command(&story, &["--worktree", "one"], "cat sub/a");
    assert_eq!(output, "2");
}

#[test]
fn a_worktree_is_removed_if_nothing_is_lost() {
    let Some(story) = in_repository() else { return };
    let name = story.dir().file_name().unwrap().to_str().unwrap().to_owned();
    let dir = story.home().join(".nanobot/worktrees").join(&name);
    let branches = || git(&story, "git branch --format='%(refname:short)'");
    let flags = |branch| ["--worktree", branch, "--write", "--remove-worktree"];
    run_command(&story, &flags("unused"), "true");
    assert_eq!(branches(), "main\n");
    run_command(&story, &flags("kept"), "git commit -q --allow-empty -m two");
    assert_eq!(branches(), "kept\nmain\n");
    let (_, notice) = run_command(&story, &flags("dirty"), "touch new");
    assert!(notice.contains("was kept: it has changes that are not committed"), "{notice}");
    assert!(dir.join("dirty/new").exists());
    assert!(!dir.join("unused").exists() && !dir.join("kept").exists());
}

#[test]
fn a_worktree_needs_a_repository_and_a_name() {
    let story = Story::new();
    let run = |branch: &str| story.run(["agent", "-m", "x", "--worktree", branch]);
    if !require("git") {
        return;
    }
    run("x").status(2).stderr_has("no git repository with a commit");
    git(
        &story,
        "git init -q && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m one",
    );
    run("../x").status(2).stderr_has("not a valid branch name");
    run("-x").status(2).stderr_has("a value is required");
    let name = story.dir().file_name().unwrap().to_str().unwrap().to_owned();
    let taken = story.home().join(".nanobot/worktrees").join(name).join("x");
    std::fs::create_dir_all(taken).unwrap();
    run("x").status(2).stderr_has("belongs to another repository");
    assert!(story.requests().is_empty());
}
