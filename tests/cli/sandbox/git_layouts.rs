//! git in commands of a run, wherever the repository keeps its files and whichever directory of it the run works in.

use super::fixture::{SandboxFixture, print_count};
use crate::requirements::require;
use crate::server::{calls, calls_all, says};
use crate::situation::{User, available_users};
use crate::story::{NANOBOT, write_program};
use serde_json::json;

/// A repository with two commits on `main`: the file `f` in the directory of the run, and `top` at the top.
struct Layout {
    name: &'static str,
    /// The user's commands, in the working directory, in which `fill NAME` makes the files `f` and `top` of `NAME` and commits
    /// them twice; other repositories are beside it.
    set_up: &'static str,
    /// The directory of the run.
    directory: &'static str,
    /// The user trusts the directory before.
    is_trusted: bool,
}

const fn layout(
    name: &'static str,
    set_up: &'static str,
    directory: &'static str,
    is_trusted: bool,
) -> Layout {
    Layout { name, set_up, directory, is_trusted }
}

const LAYOUTS: &[Layout] = &[
    layout("the top", "git init -q . && fill . .", ".", false),
    layout("a subdirectory", "git init -q . && fill . src/deep", "src/deep", false),
    layout(
        "a linked worktree",
        "git init -q ../main && fill ../main . && git -C ../main worktree add -q $PWD/w -b work",
        "w",
        false,
    ),
    layout(
        "a subdirectory of a linked worktree",
        "git init -q ../main && fill ../main src && git -C ../main worktree add -q $PWD/w -b work",
        "w/src",
        false,
    ),
    layout(
        "a worktree of a bare repository beside it",
        "git init -q ../main && fill ../main . && git clone -q --bare ../main .bare && echo 'gitdir: ./.bare' > .git && \
         git worktree add -q w -b work",
        "w",
        false,
    ),
    layout(
        "a submodule",
        "git init -q ../lib && fill ../lib . && git init -q . && git -c protocol.file.allow=always submodule --quiet add ../lib sub",
        "sub",
        false,
    ),
    layout(
        "a subdirectory of a submodule of a submodule",
        "git init -q ../lib && fill ../lib src && git init -q ../mid && git -C ../mid -c protocol.file.allow=always submodule --quiet add \
         ../lib in && git -C ../mid commit -qm in && git init -q . && git -c protocol.file.allow=always submodule --quiet add ../mid sub && \
         git -c protocol.file.allow=always submodule --quiet update --init --recursive && git -C sub/in checkout -q -B work",
        "sub/in/src",
        false,
    ),
    layout(
        "a git directory elsewhere",
        "git init -q --separate-git-dir ../store.git . && fill . src",
        "src",
        true,
    ),
    layout(
        "a link to a git directory",
        "git init -q . && fill . . && mkdir ../store && mv .git ../store/git && ln -s ../store/git .git",
        ".",
        true,
    ),
    layout(
        "borrowed objects",
        "git init -q ../main && fill ../main . && git clone -q --shared ../main c",
        "c",
        true,
    ),
    layout(
        "objects that are borrowed twice",
        "git init -q ../main && fill ../main src && git clone -q --shared ../main ../b && git clone -q --shared ../b c",
        "c/src",
        true,
    ),
];

/// The user's commands before each layout.
const PRELUDE: &str = "git config --global include.path '~/.config/git/me'; mkdir -p ~/.config/git; \
     printf '[user]\\nname = a\\nemail = a@b\\n[core]\\nexcludesFile = ~/.ignored\\n' > ~/.config/git/me; echo '*.skip' > ~/.ignored; \
     git config --global init.defaultBranch main; \
     fill() { mkdir -p $1/$2 && echo t > $1/top && echo 1 > $1/$2/f && git -C $1 add . && git -C $1 commit -qm one && echo 2 > $1/$2/f \
     && git -C $1 commit -qam two; }; ";

/// Commands without `--write`, and the end of their output.
const READING: &[(&str, &str)] = &[
    ("git status --short && touch $TMPDIR/x && git log --format=%s -1", "two"),
    ("git diff HEAD~1 --stat | tail -1", " 1 file changed, 1 insertion(+), 1 deletion(-)"),
    ("cat $(git rev-parse --show-toplevel)/top", "t"),
    ("git show HEAD~1:./f", "1"),
];

/// Commands with `--write`, and the end of their output.
const WRITING: &[(&str, &str)] = &[
    ("git status --short; echo 3 > f && echo x > a.skip && git status --short .", " M f"),
    ("git diff --name-only --relative && git commit -qam three && git log --format=%s -1", "three"),
    (
        "git status --short && git show --stat --format=%s HEAD | tail -1",
        " 1 file changed, 1 insertion(+), 1 deletion(-)",
    ),
    (
        "git checkout -q -b side HEAD~1 && echo s > s && git add s && git commit -qm side && git rebase -q - && git log --format=%s | head -2 \
         | paste -sd,",
        "side,three",
    ),
    ("echo 4 > f && git stash -q && cat f && git stash pop -q && cat f && git checkout -q f", "4"),
    (
        "git worktree add -q tree -b tree && git -C tree log --format=%s -1 && git worktree remove tree && git worktree prune && git branch -d tree -q && git log --format=%s -1",
        "side",
    ),
    ("git fetch -q UPSTREAM main && git log --format=%s -1 FETCH_HEAD", "up"),
    ("git config user.name b && git commit -q --allow-empty -m b && git log --format=%an -1", "b"),
];

#[test]
fn git_works_in_every_layout() {
    if !require("git") {
        return;
    }
    let mut checked = 0;
    for user in available_users() {
        for layout in LAYOUTS {
            let fixture = set_up(user, layout);
            let directory = fixture.story.dir().join(layout.directory);
            let directory = directory.to_str().unwrap();
            let upstream = fixture.outside_dir().join("up");
            let upstream = upstream.to_str().unwrap();
            let check = |flags: &[&str], tasks: &[(&str, &str)]| {
                let commands: Vec<String> = tasks
                    .iter()
                    .map(|(command, _)| command.replace("UPSTREAM", upstream))
                    .collect();
                let outputs = fixture.run_commands(flags, &commands);
                for ((command, expect), output) in tasks.iter().zip(&outputs) {
                    let lines: Vec<&str> = output.trim_end().lines().collect();
                    assert_eq!(
                        lines.last(),
                        Some(expect),
                        "{} as {user:?}, {flags:?}: {command}: {output}",
                        layout.name
                    );
                }
                tasks.len()
            };
            checked += check(&["-C", directory], READING);
            checked += check(&["-C", directory, "--write", "--read", upstream], WRITING);
        }
    }
    print_count(&format!("{checked} of {checked} commands of git in {} layouts", LAYOUTS.len()));
}

fn set_up(user: User, layout: &Layout) -> SandboxFixture {
    let fixture = SandboxFixture::new(user);
    let upstream = fixture.outside_dir().join("up");
    std::fs::create_dir_all(&upstream).unwrap();
    let mut shell = fixture.story.program("sh");
    let script = format!(
        "set -e; {PRELUDE} git init -q {up}; git -C {up} commit -q --allow-empty -m up; {}",
        layout.set_up,
        up = upstream.display()
    );
    let output = shell.args(["-c", &script]).output().expect("the shell starts");
    assert!(
        output.status.success(),
        "{}: {}",
        layout.name,
        String::from_utf8_lossy(&output.stderr)
    );
    if layout.is_trusted {
        let directory = fixture.story.dir().join(layout.directory);
        let trusted =
            fixture.story.command(["trust", directory.to_str().unwrap()]).output().unwrap();
        assert!(trusted.status.success(), "{trusted:?}");
    }
    fixture
}

/// A downloaded tree: its name, the commands that make it beside the user's repository `../other`, and whether it shows the
/// contents of that one where nothing keeps it from it.
const HOSTILE_TREES: &[(&str, &str, bool)] = &[
    ("a file that names another repository", "echo 'gitdir: ../other/.git' > .git", true),
    ("a file that names it by a link", "ln -s ../other l; echo 'gitdir: l/.git' > .git", true),
    ("a link to another repository", "ln -s ../other/.git .git", true),
    ("a link to a worktree of another repository", "ln -s ../other/.git/worktrees/w .git", true),
    (
        "a file that names a worktree of another repository",
        "echo 'gitdir: ../other/.git/worktrees/w' > .git",
        true,
    ),
    ("a file that names the keys", "echo \"gitdir: $HOME/.ssh\" > .git", false),
    ("a link to the keys", "ln -s ~/.ssh .git", false),
    (
        "a common directory elsewhere",
        "git init -q .; echo \"$PWD/../other/.git\" > .git/commondir",
        true,
    ),
    (
        "a worktree that names itself, of another repository",
        "mkdir -p d/worktrees/x; echo \"$PWD/.git\" > d/worktrees/x/gitdir; echo 'ref: refs/heads/main' > d/worktrees/x/HEAD; \
         echo \"$PWD/../other/.git\" > d/worktrees/x/commondir; echo 'gitdir: d/worktrees/x' > .git",
        true,
    ),
    (
        "a worktree beneath a link to another repository",
        "mkdir -p d; ln -s ../../other/.git/worktrees d/worktrees; echo 'gitdir: d/worktrees/w' > .git",
        true,
    ),
    (
        "borrowed objects of another repository",
        "git init -q .; echo \"$PWD/../other/.git/objects\" > .git/objects/info/alternates",
        true,
    ),
    (
        "borrowed objects of the whole system",
        "git init -q .; echo / > .git/objects/info/alternates",
        false,
    ),
    (
        "borrowed objects that are the keys",
        "git init -q .; echo ~/.ssh > .git/objects/info/alternates",
        false,
    ),
    (
        "objects that are a link",
        "git init -q .; rm -r .git/objects; ln -s ../../other/.git/objects .git/objects",
        true,
    ),
    (
        "a working tree that is the home",
        "git init -q .; git config core.worktree ~; git config core.bare false",
        false,
    ),
    (
        "a bare repository with a working tree elsewhere",
        "git init -q --bare b; git -C b config core.bare false; git -C b config core.worktree $PWD/../other; echo 'gitdir: b' > .git",
        false,
    ),
    (
        "a config that includes the keys",
        "git init -q .; git config include.path ~/.ssh/id_ed25519",
        false,
    ),
    (
        "a repository within that names another",
        "git init -q .; mkdir in; echo 'gitdir: ../../other/.git' > in/.git",
        false,
    ),
];

/// Commands that show whatever git finds, and that write wherever git keeps it.
const PROBES: &[&str] = &[
    "git cat-file --batch --batch-all-objects; git log -p --all; git status; git grep -n canary; git config -l; git ls-files -o | head",
    "git -C in log -p --all; cat ../other/secret ../other/.git/config ~/.ssh/*; cd ../other && git log -p",
    "git branch evil $(git rev-parse -q --verify HEAD); git update-ref refs/heads/evil2 HEAD; git tag evil; git gc -q; git worktree prune",
    "git commit -q --allow-empty -m evil; echo x > ../other/x; echo x > ../other/.git/hooks/pre-commit; echo x > ~/.ssh/x; git config x.y z",
];

#[test]
fn a_downloaded_tree_grants_itself_nothing() {
    if !require("git") {
        return;
    }
    let mut tried = 0;
    for user in available_users() {
        for (name, set_up, shows) in HOSTILE_TREES {
            let shell_output = || {
                let fixture = SandboxFixture::new(user);
                let mut shell = fixture.story.program("sh");
                let script = format!(
                    "set -e; {PRELUDE} git init -q ../other; echo canary-77 > ../other/secret; git -C ../other add .; git -C ../other commit \
                     -qm canary-77; git -C ../other worktree add -q ../w -b w; mkdir ~/.ssh; echo canary-77 > ~/.ssh/id_ed25519; {set_up}"
                );
                let output = shell.args(["-c", &script]).output().expect("the shell starts");
                assert!(output.status.success(), "{name}: {output:?}");
                fixture
            };
            let fixture = shell_output();
            let state = || {
                let mut shell = fixture.story.program("sh");
                let list = "cd ..; git -c safe.directory='*' -C other for-each-ref; \
                            ls -R other/.git/worktrees home/.ssh; cat other/.git/config";
                let output = shell.args(["-c", list]).output().expect("the shell starts");
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            let before = state();
            // Without `--write` the tree stays as it is for the next run.
            for flags in [&[][..], &["--write"]] {
                let output = fixture.run_commands(flags, PROBES).join("\n");
                let after = state();
                assert_eq!(after, before, "{name} as {user:?}, {flags:?}: {output}");
                assert!(!output.contains("canary-77"), "{name} as {user:?}, {flags:?}: {output}");
                tried += 1;
            }
            if *shows && user == User::Current {
                let output = shell_output().run_commands(&["--sandbox", "off"], PROBES).join("\n");
                assert!(output.contains("canary-77"), "{name}, without the sandbox: {output}");
            }
        }
    }
    print_count(&format!("{tried} of {tried} hostile trees without effect"));
}

/// A repository at the home is not taken for that of a directory in it.
#[test]
fn a_repository_at_the_home_stays_closed() {
    if !require("git") {
        return;
    }
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let directory = fixture.story.home().join("p");
        std::fs::create_dir(&directory).unwrap();
        let mut shell = fixture.story.program("sh");
        let script = format!("cd; {PRELUDE} git init -q . && fill . notes && echo canary > secret");
        assert!(shell.args(["-c", &script]).status().unwrap().success());
        let outputs = fixture.run_commands(
            &["-C", directory.to_str().unwrap()],
            &["git status; git log -p; cat ../notes/f ../secret"],
        );
        assert!(!outputs[0].contains("canary") && !outputs[0].contains("two"), "{}", outputs[0]);
    }
}

/// A run in a part of the working tree sees all of it, and changes that part alone.
#[test]
fn a_run_in_a_part_of_a_working_tree_changes_that_part() {
    if !require("git") {
        return;
    }
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let dir = fixture.story.dir();
        let mut shell = fixture.story.program("sh");
        let script = format!(
            "{PRELUDE} git init -q . && fill . src && git checkout -q -b both && echo b > top && echo b > src/f && git commit -qam both \
             && git checkout -q -b away main~1 && git rm -q top && git commit -qm away && git checkout -q main && echo mine >> top"
        );
        assert!(shell.args(["-c", &script]).status().unwrap().success());
        let src = dir.join("src");
        let stopped = [
            "git checkout -q -f both",
            "git switch away",
            "git stash",
            "git stash -m wip",
            "git --namespace x switch away",
            "git -c core.editor=true rebase both",
            "git merge both",
            "git cherry-pick away",
            "git reset -q --hard",
        ];
        let outputs = fixture.run_commands(&["-C", src.to_str().unwrap(), "--write"], &stopped);
        let grant = format!("--write={}", dir.display());
        for (command, output) in stopped.iter().zip(&outputs) {
            assert!(
                output.contains("would change") && output.contains(&grant),
                "{command}: {output}"
            );
        }
        let outputs = fixture.run_commands(
            &["-C", src.to_str().unwrap(), "--write"],
            &[
                "git diff --stat",
                "cat ../top; echo x > ../top; ls ..",
                "echo 3 > f; git commit -qam three; git show --name-status --format=%s",
            ],
        );
        assert!(outputs[0].contains(" 1 file changed"), "{}", outputs[0]);
        assert!(outputs[1].contains("mine") && !outputs[1].contains("x\n"), "{}", outputs[1]);
        // What the user has changed elsewhere is committed, and nothing is deleted.
        assert!(outputs[2].contains("M\tsrc/f\nM\ttop"), "{}", outputs[2]);
        // The whole tree, if it is granted.
        let outputs = fixture.run_commands(
            &["-C", src.to_str().unwrap(), &grant],
            &["git checkout -q away && ls ..", "git checkout -q both && cat ../top f"],
        );
        assert!(outputs[0].trim_end() == "src" && outputs[1].trim_end() == "b\nb", "{outputs:?}");
    }
}

/// File tools read what commands read of the repository.
#[test]
fn file_tools_read_the_whole_working_tree() {
    if !require("git") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let dir = fixture.story.dir();
    let mut shell = fixture.story.program("sh");
    let script = format!("{PRELUDE} git init -q . && fill . src");
    assert!(shell.args(["-c", &script]).status().unwrap().success());
    fixture.story.server().script([
        calls_all(vec![
            ("read_file", json!({ "path": "../top" })),
            ("grep", json!({ "pattern": "^t$", "path": ".." })),
            ("glob", json!({ "pattern": "t*", "path": ".." })),
            ("write_file", json!({ "path": "../top", "content": "x" })),
            ("write_file", json!({ "path": "../.git/description", "content": "x" })),
        ]),
        says("done"),
    ]);
    let src = dir.join("src");
    let result = fixture.story.run(["agent", "-m", "x", "--write", "-C", src.to_str().unwrap()]);
    result.stdout("done\n").stderr_has("would allow it");
    let messages = fixture.story.requests()[1].messages();
    let contents: Vec<&str> =
        messages.iter().rev().take(5).rev().filter_map(|it| it["content"].as_str()).collect();
    assert!(
        contents[0].contains('t') && contents[1].contains("top") && contents[2].contains("top"),
        "{contents:?}"
    );
    assert!(contents[3].contains("read-only") && contents[4].contains("read-only"), "{contents:?}");
    assert_eq!(std::fs::read_to_string(dir.join("top")).unwrap(), "t\n");
}

/// Commands see no credentials in a repository's config, and do not lose them.
#[test]
fn credentials_in_the_config_are_masked_and_kept() {
    if !require("git") {
        return;
    }
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let dir = fixture.story.dir();
        let mut shell = fixture.story.program("sh");
        let script = format!(
            "{PRELUDE} git init -q . && fill . src && git remote add origin https://u:canary-1@h.invalid/x.git && git config \
             http.https://h.invalid/.extraheader 'AUTHORIZATION: basic canary-2' && git worktree add -q ../w && git config \
             include.path ../own.gitconfig && printf '[http]\\n\\textraheader = canary-3\\n' > own.gitconfig"
        );
        assert!(shell.args(["-c", &script]).status().unwrap().success());
        let show = "git remote -v; git config -l; cat $(git rev-parse --git-common-dir)/config; cat own.gitconfig ../own.gitconfig";
        let worktree = dir.parent().unwrap().join("w");
        for directory in [&dir, &dir.join("src"), &worktree] {
            let directory = directory.to_str().unwrap();
            let outputs = fixture.run_commands(&["-C", directory], &[show]);
            assert!(
                outputs[0].contains("https://***@h.invalid") && !outputs[0].contains("canary"),
                "{}",
                outputs[0]
            );
            let change = "git config user.name new && git config user.name && git branch -q --set-upstream-to main 2>&1; git status --short";
            let outputs = fixture.run_commands(&["-C", directory, "--write"], &[show, change]);
            assert!(
                outputs[0].contains("https://***@h.invalid") && !outputs[0].contains("canary"),
                "{}",
                outputs[0]
            );
            assert!(outputs[1].starts_with("new"), "{}", outputs[1]);
            let config = std::fs::read_to_string(dir.join(".git/config")).unwrap();
            let is_kept =
                config.contains("u:canary-1@h.invalid") && config.contains("basic canary-2");
            assert!(is_kept && config.contains("name = new"), "{config}");
        }
    }
}

/// A pointer that only the user can vouch for is reported in one line, until it is trusted as it is.
#[test]
fn a_git_directory_elsewhere_is_used_once_it_is_trusted() {
    if !require("git") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let mut shell = fixture.story.program("sh");
    let script = format!("{PRELUDE} git init -q --separate-git-dir ../store.git . && fill . src");
    assert!(shell.args(["-c", &script]).status().unwrap().success());
    let run = |expect: &str| {
        fixture
            .story
            .server()
            .script([calls("exec", json!({ "command": "git log --format=%s -1" })), says("done")]);
        let result = fixture.story.run(["agent", "-m", "x", "--ephemeral"]).stdout("done\n");
        let content = fixture.story.last_request().last_content();
        assert!(content.contains(expect), "{content}");
        result.error_text()
    };
    let text = run("nanobot trust");
    assert!(
        text.contains("store.git`, which commands do not see") && text.lines().count() == 1,
        "{text}"
    );
    let trusted = fixture.story.run(["trust", "."]);
    assert!(trusted.text().contains("git in commands uses"), "{}", trusted.text());
    assert_eq!(run("two"), "");
    // Another pointer is another decision.
    let dir = fixture.story.dir();
    std::fs::rename(dir.join("../store.git"), dir.join("../moved.git")).unwrap();
    std::fs::write(dir.join(".git"), "gitdir: ../moved.git\n").unwrap();
    assert!(run("nanobot trust").contains("moved.git"));
}

/// A hook of the user's that runs the program: its commands see the index of the commit.
#[test]
fn commands_in_a_hook_see_the_index_of_the_commit() {
    if !require("git") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let dir = fixture.story.dir();
    let mut shell = fixture.story.program("sh");
    let script = format!(
        "{PRELUDE} git init -q . && fill . src && echo x > src/f && echo y > top && git add top"
    );
    assert!(shell.args(["-c", &script]).status().unwrap().success());
    write_program(
        &dir.join(".git/hooks/pre-commit"),
        &format!("#!/bin/sh\n{NANOBOT} agent -m x --ephemeral\n"),
    );
    fixture.story.server().script([
        calls("exec", json!({ "command": "git diff --cached --name-only; echo $GIT_INDEX_FILE" })),
        says("done"),
    ]);
    // Only one of the two files is committed, by an index of its own.
    let mut git = fixture.story.program("git");
    let output = git.args(["commit", "-q", "-m", "part", "src/f"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let content = fixture.story.requests()[1].last_content();
    assert!(content.starts_with("src/f\n") && content.contains("/.git/next-index-"), "{content}");
    // An index elsewhere is not handed on.
    fixture
        .story
        .server()
        .script([calls("exec", json!({ "command": "echo [$GIT_INDEX_FILE]" })), says("done")]);
    let mut agent = fixture.story.command(["agent", "-m", "x", "--ephemeral"]);
    agent.env("GIT_INDEX_FILE", dir.join("index"));
    assert!(agent.status().unwrap().success());
    assert!(fixture.story.requests()[3].last_content().starts_with("[]"));
}
