//! Commands that plant something that git would run for the user later.

use super::fixture::SandboxFixture;
use crate::requirements::require;
use crate::situation::User;
use crate::story::Story;
use std::path::Path;

/// An attack: its name, what the user has set up, the commands (separated by a NUL), and what the user runs afterwards.
/// `PWN` is a command that shows that it ran.
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
        "a repository that gets its name by a later command",
        "true",
        "git init -q src && mv src/.git src/g && printf '[core]\nrepositoryformatversion = 0\nfsmonitor = \"PWN\"\n' > src/g/config\0\
         mv src/g src/.git",
        "git -C src status",
    ),
    (
        "the repository of the directory itself, made the same way",
        "rm -rf .git",
        "git init -q g && printf '[core]\nrepositoryformatversion = 0\nfsmonitor = \"PWN\"\n' > g/.git/config; mv g/.git h\0mv h .git",
        "git status",
    ),
    (
        "a repository from where the search does not look",
        "true",
        "mkdir -p target/k; cd target/k && git init -q sub && git -C sub config core.fsmonitor 'PWN'\0mv target/k/sub x",
        "git -C x status",
    ),
    (
        "a worktree of a bare repository",
        "git clone -q --bare . .bare; rm -rf .git; echo 'gitdir: ./.bare' > .git; git worktree add -q main",
        "mkdir e; printf '[core]\nrepositoryformatversion = 0\nfsmonitor = \"PWN\"\n' > e/config; cp -r .bare/objects .bare/refs e; \
         echo $PWD/e > .bare/worktrees/main/commondir",
        "git -C main status",
    ),
    (
        "a worktree made before",
        "git worktree add -q w",
        "cp -r .git evil; printf '[core]\nrepositoryformatversion = 0\nfsmonitor = \"PWN\"\n' > evil/config; \
         echo $PWD/evil > .git/worktrees/w/commondir",
        "git -C w status",
    ),
    (
        "a worktree in the place of another one",
        "git worktree add -q w",
        "cp -r .git evil; printf '[core]\nrepositoryformatversion = 0\nfsmonitor = \"PWN\"\n' > evil/config; \
         mv .git/worktrees/w .git/worktrees/v; cp -r .git/worktrees/v .git/worktrees/w; \
         echo $PWD/evil > .git/worktrees/v/commondir; echo \"gitdir: $PWD/.git/worktrees/v\" > w/.git",
        "git -C w status",
    ),
    (
        "a config of a worktree made before",
        "git worktree add -q w && git config extensions.worktreeConfig true",
        "git -C w config --worktree core.fsmonitor 'PWN'",
        "git -C w status",
    ),
    (
        "a config that is included but missing",
        "git config include.path ../.gitlocal",
        "printf '[core]\nhooksPath = myhooks\n' > .gitlocal; mkdir myhooks; printf '#!/bin/sh\nPWN\n' > myhooks/pre-commit; chmod +x \
         myhooks/pre-commit",
        "git commit -q --allow-empty -m x",
    ),
    (
        "a repository in a directory that cannot be read",
        "true",
        "(umask 0466; mkdir p); mkdir -p p; git init -q p/r; git -C p/r config core.fsmonitor 'PWN'",
        "git -C p/r status",
    ),
    (
        "a link in place of a repository's name",
        "rm -rf .git",
        "mkdir -p target/k/deep && git init -q target/k/sub && git -C target/k/sub config core.fsmonitor 'PWN' && git -C target/k/sub \
         config core.worktree $PWD && git init -q sub && ln -s target/k/deep l && echo 'gitdir: l/../sub/.git' > .git",
        "git status",
    ),
    (
        "a remote in the directory",
        "rm -rf .git; echo x > f",
        "mkdir target; git init -q --bare target/e; printf '#!/bin/sh\nPWN\n' > target/e/hooks/pre-receive; chmod +x \
         target/e/hooks/pre-receive; git init -q -b main; git add f; git -c user.name=a -c user.email=a@b commit -qm x; git config \
         branch.main.remote target/e; git config branch.main.merge refs/heads/main",
        "git push",
    ),
    (
        "a directory in place of a remote without an address",
        "rm -rf .git; echo x > f",
        "git init -q --bare target; printf '#!/bin/sh\nPWN\n' > target/hooks/pre-receive; chmod +x target/hooks/pre-receive; git init -q \
         -b main; git add f; git -c user.name=a -c user.email=a@b commit -qm x; git config branch.main.remote target; git config \
         branch.main.merge refs/heads/main",
        "git push",
    ),
    (
        "a remote whose name is an option",
        "git init -q --bare up && git remote add origin ./up",
        "git config 'remote.--upload-pack=PWN;.url' https://x.invalid/y",
        "git fetch --all",
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
    (
        "a hook of a submodule with a long name",
        "git init -q inner && mkdir -p .git/modules/a/b/c/d && mv inner/.git .git/modules/a/b/c/d/e && echo 'gitdir: \
         ../.git/modules/a/b/c/d/e' > inner/.git",
        "mkdir -p .git/modules/a/b/c/d/e/hooks; printf '#!/bin/sh\nPWN\n' > .git/modules/a/b/c/d/e/hooks/pre-commit; chmod +x \
         .git/modules/a/b/c/d/e/hooks/pre-commit",
        "git -C inner commit -q --allow-empty -m x",
    ),
    (
        "a hook of a nested repository, where its config says",
        "git init -q proj && git -C proj config core.hooksPath .githooks && mkdir proj/.githooks && touch \
         proj/.githooks/pre-commit && chmod +x proj/.githooks/pre-commit",
        "printf '#!/bin/sh\nPWN\n' > proj/.githooks/pre-commit",
        "git -C proj commit -q --allow-empty -m x",
    ),
    (
        "a link to a repository among build results",
        "mkdir src",
        "mkdir -p target; mv src target/src; git init -q target/src; git -C target/src config core.fsmonitor 'PWN'; \
         ln -s target/src src",
        "git -C src status",
    ),
    (
        "a link in a directory to a dependency's repository",
        "mkdir docs",
        "git init -q node_modules/x; git -C node_modules/x config core.fsmonitor 'PWN'; ln -s ../node_modules/x docs/y",
        "git -C docs/y status",
    ),
    (
        "steps of a rebase after more than is read",
        "git commit -q --allow-empty -m 1 && git commit -q --allow-empty -m 2 && git commit -q --allow-empty -m 3 && \
         GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q --keep-empty -i HEAD~2",
        "{ printf '# '; head -c 1200000 /dev/zero | tr '\\0' c; echo; echo 'exec PWN'; } > t; cat .git/rebase-merge/git-rebase-todo >> t; \
         cat t > .git/rebase-merge/git-rebase-todo",
        "git rebase --continue",
    ),
];

/// The check waits for nothing that a command left, and destroys nothing of the user's.
#[test]
fn the_check_after_a_command_neither_hangs_nor_destroys() {
    if !require("git") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let dir = fixture.story.dir();
    run_as_user(
        &fixture.story,
        "git init -q sub && git -C sub config alias.st status && printf '#!/bin/sh\\n' > sub/.git/hooks/pre-push",
    );
    let deep = "a/".repeat(400);
    let outputs = fixture.run_commands(
        &["--write"],
        &[
            "mkdir -p .git/rebase-merge; mkfifo .git/rebase-merge/git-rebase-todo".to_owned(),
            "rm -r .git; mv sub new; git -C new remote add up https://x.org/z".to_owned(),
            "ln -s s .local; mkdir -p s/bin; echo evil > s/bin/ls".to_owned(),
            format!("mkdir -p .git/hooks/{deep}; echo evil > .git/hooks/post-checkout"),
        ],
    );
    assert!(outputs[0].starts_with("(no output)"), "{}", outputs[0]);
    assert!(outputs[1].contains("new/.git/config"), "{}", outputs[1]);
    assert!(outputs[2].contains(".local"), "{}", outputs[2]);
    let find = |command: &str| {
        let mut shell = fixture.story.program("sh");
        let output = shell.args(["-c", command]).output().expect("the shell starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let set_aside = find("cat new/.git/config.set-aside-* new/.git/hooks.set-aside-*/pre-push");
    assert!(set_aside.contains("st = status") && set_aside.contains("#!/bin/sh"), "{set_aside}");
    assert!(!dir.join(".local").exists() && !dir.join(".git/hooks/post-checkout").exists());
}

/// A link on the way to the steps of a rebase does not lead the check outside, and git does not follow it either.
#[test]
fn the_check_of_rebase_steps_follows_no_link() {
    if !require("git") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let todo_file = fixture.outside_dir().join("git-rebase-todo");
    fixture.write_file(&todo_file, "exec make\n");
    run_as_user(&fixture.story, "git init -q");
    let outside = fixture.outside_dir().display().to_string();
    let outputs = fixture.run_commands(
        &["--write"],
        &[
            format!("ln -s {outside} .git/rebase-merge"),
            "mkdir -p own; echo exec make > own/git-rebase-todo; ln -s ../own .git/rebase-merge"
                .to_owned(),
        ],
    );
    assert!(todo_file.exists(), "{outputs:?}");
    let link = fixture.story.dir().join(".git/rebase-merge");
    assert!(link.symlink_metadata().is_err(), "{outputs:?}");
    for output in &outputs {
        assert!(output.contains(".git/rebase-merge"), "{output}");
    }
}

/// A cover cannot be moved away together with a directory around it.
#[test]
fn a_denied_file_stays_covered_where_it_is() {
    let fixture = SandboxFixture::new(User::Current);
    let token = fixture.story.home().join(".cache/huggingface/token");
    fixture.write_file(&token, "canary-31bd\n");
    let flags = [format!("--write={}", fixture.story.home().join(".cache").display())];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let cache = fixture.story.home().join(".cache");
    let cache = cache.display();
    for command in [
        format!("mv {cache}/huggingface {cache}/hf; cat {cache}/*/token"),
        format!("cat {cache}/*/token"),
    ] {
        let outputs = fixture.run_commands(&flags, &[command]);
        assert!(!outputs[0].contains("canary"), "{}", outputs[0]);
    }
    assert!(token.exists());
}

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
            let fixture = SandboxFixture::new(User::Current);
            let dir = fixture.story.dir();
            let mark = fixture.outside_dir().join("pwned");
            std::fs::create_dir_all(fixture.outside_dir()).unwrap();
            let fill = |text: &str| text.replace("PWN", &format!("touch {}", mark.display()));
            run_as_user(
                &fixture.story,
                &format!("git init -q && git commit -q --allow-empty -m x && {set_up}"),
            );
            let commands: Vec<String> = command.split('\0').map(fill).collect();
            let outputs = fixture.run_commands(flags, &commands);
            assert!(!mark.exists() || flags.len() > 1, "{name}: {outputs:?}");
            run_as_user(&fixture.story, later);
            assert!(Path::new(&dir).exists());
            (mark.exists(), outputs)
        };
        let (has_run, outputs) = check(&["--write"]);
        assert!(!has_run, "{name}: {outputs:?}");
        // The attack works where nothing keeps it from working.
        let (has_run, outputs) = check(&["--write", "--sandbox", "off"]);
        assert!(has_run, "{name}, without the sandbox: {outputs:?}");
    }
}
