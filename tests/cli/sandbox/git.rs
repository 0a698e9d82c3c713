//! Commands that plant something that git would run for the user later.

use super::fixture::{SandboxFixture, User};
use crate::requirements::require;
use crate::story::Story;
use std::path::Path;

/// An attack: its name, what the user has set up, the command, and what the user runs afterwards. `PWN` is a command
/// that shows that it ran.
const ATTACKS: &[(&str, &str, &str, &str)] = &[
    (
        "a repository within the directory",
        "true",
        "git init -q src && git -C src config core.fsmonitor 'PWN'",
        "git -C src status",
    ),
    (
        "a repository made before, within the directory",
        "git init -q src",
        "git -C src config core.fsmonitor 'PWN'",
        "git -C src status",
    ),
    (
        "a bare repository",
        "true",
        "mkdir wt; git init -q --bare docs; printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = ../wt\nfsmonitor = \"PWN\"\n' > docs/config",
        "git -C docs status",
    ),
    (
        "a bare repository in place of the directory",
        "rm -rf .git",
        "mkdir wt; git init -q --bare .; printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = wt\nfsmonitor = \"PWN\"\n' > config",
        "git status",
    ),
    (
        "a repository of its own for a worktree",
        "true",
        "cp -r .git evil; printf '[core]\nfsmonitor = \"PWN\"\n' > evil/config; mkdir -p .git/worktrees/e e; cp .git/HEAD \
         .git/worktrees/e/HEAD; echo ../../../evil > .git/worktrees/e/commondir; echo $PWD/e/.git > .git/worktrees/e/gitdir; \
         echo \"gitdir: $PWD/.git/worktrees/e\" > e/.git",
        "git -C e status",
    ),
    (
        "a repository elsewhere",
        "true",
        "mkdir -p a/b/c/d/e/f sub; cp -r .git a/b/c/d/e/f/g; printf '[core]\nfsmonitor = \"PWN\"\n' > a/b/c/d/e/f/g/config; \
         echo 'gitdir: ../a/b/c/d/e/f/g' > sub/.git",
        "git -C sub status",
    ),
    (
        "a submodule",
        "true",
        "mkdir -p sub; cp -r .git x; mkdir .git/modules; mv x .git/modules/sub; printf '[core]\nworktree = \
         ../../../sub\nfsmonitor = \"PWN\"\n' > .git/modules/sub/config; echo 'gitdir: ../.git/modules/sub' > sub/.git",
        "git -C sub status",
    ),
    (
        "hooks in the directory",
        "mkdir .hooks && git config core.hooksPath .hooks",
        "printf '#!/bin/sh\nPWN\n' > .hooks/pre-commit; chmod +x .hooks/pre-commit",
        "git commit -q --allow-empty -m x",
    ),
    (
        "a config in the directory",
        "echo > shared.gitconfig && git config include.path ../shared.gitconfig",
        "printf '[core]\nfsmonitor = \"PWN\"\n' > shared.gitconfig",
        "git status",
    ),
    (
        "the steps of a rebase",
        "git commit -q --allow-empty -m y",
        "printf '#!/bin/sh\nprintf \"break\\nexec PWN\\n\" > $1\n' > $TMPDIR/e; chmod +x $TMPDIR/e; GIT_SEQUENCE_EDITOR=$TMPDIR/e \
         git -c user.name=a -c user.email=a@b rebase -q -i HEAD~1",
        "git rebase --continue",
    ),
    (
        "a hook",
        "true",
        "mkdir -p .git/hooks; printf '#!/bin/sh\nPWN\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        "git commit -q --allow-empty -m x",
    ),
    (
        "a hook of a submodule",
        "git init -q inner && mkdir .git/modules && mv inner/.git .git/modules/inner && echo 'gitdir: ../.git/modules/inner' > inner/.git",
        "mkdir -p .git/modules/inner/hooks; printf '#!/bin/sh\nPWN\n' > .git/modules/inner/hooks/pre-commit; chmod +x \
         .git/modules/inner/hooks/pre-commit",
        "git -C inner commit -q --allow-empty -m x",
    ),
];

/// Runs a shell command of the user in the story's directory.
fn run_as_user(story: &Story, command: &str) {
    let git = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b;";
    let mut shell = story.program("sh");
    shell.args(["-c", &format!("{git} {command}")]);
    shell.output().expect("the shell starts");
}

#[test]
fn git_runs_nothing_that_a_command_left_behind() {
    if !require("git") {
        return;
    }
    for (name, set_up, command, later) in ATTACKS {
        let check = |flags: &[&str]| {
            let yard = SandboxFixture::new(User::Current);
            let dir = yard.story.dir();
            let mark = yard.outside_dir().join("pwned");
            std::fs::create_dir_all(yard.outside_dir()).unwrap();
            let fill = |text: &str| text.replace("PWN", &format!("touch {}", mark.display()));
            run_as_user(
                &yard.story,
                &format!("git init -q && git commit -q --allow-empty -m x && {set_up}"),
            );
            let told = yard.run_commands(flags, &[fill(command)]);
            assert!(!mark.exists() || flags.len() > 1, "{name}: {told:?}");
            run_as_user(&yard.story, later);
            assert!(Path::new(&dir).exists());
            (mark.exists(), told)
        };
        let (has_run, told) = check(&["--write"]);
        assert!(!has_run, "{name}: {told:?}");
        // The attack works where nothing keeps it from working.
        let (has_run, told) = check(&["--write", "--sandbox", "off"]);
        assert!(has_run, "{name}, without the sandbox: {told:?}");
    }
}
