//! Scenes of daily work that must not be refused: the other half of the attacks in `prompt_injection`. Each scene is a run of its
//! own with another tool, command or grant; its effect is checked on disk, by a command of the user.

use crate::requirements::require;
use crate::sandbox::print_count;
use crate::server::{Responder, calls, says};
use crate::story::Story;
use crate::web::{PageServer, page_response};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Mutex;

mod development;

/// The course of a scene. `WORKSPACE` stands for the agent's workspace, and `PAGE` for the address of a page.
struct Scene {
    name: &'static str,
    /// A program that it needs.
    program: &'static str,
    /// The user's command before the run. It runs in the working directory, as the next one does.
    set_up: &'static str,
    /// The flags of the run.
    flags: &'static [&'static str],
    /// The tool calls of the model: the tool, and its arguments as JSON, or the command of `exec`.
    calls: &'static [(&'static str, &'static str)],
    /// The user's command after the run, which succeeds if the work was done.
    check: &'static str,
}

/// A scene in the order of its fields.
const fn scene(
    name: &'static str,
    program: &'static str,
    set_up: &'static str,
    flags: &'static [&'static str],
    calls: &'static [(&'static str, &'static str)],
    check: &'static str,
) -> Scene {
    Scene { name, program, set_up, flags, calls, check }
}

const WRITE: &[&str] = &["--write"];
const LIST: (&str, &str) = ("list_dir", r#"{"path":"."}"#);
const FETCH: (&str, &str) = ("web_fetch", r#"{"url":"PAGE"}"#);
const REMIND: (&str, &str) =
    ("cron", r#"{"action":"add","name":"tea","message":"tea","at":"2026-01-03T09:00"}"#);
const HAS_JOB: &str = "grep -q tea $W/cron/jobs.json";

/// Notes, reminders, memory and instructions, in every origin with the grant that it needs.
const ASSISTANT: &[Scene] = &[
    scene("list a folder and set a reminder", "", "touch a b", &[], &[LIST, REMIND], HAS_JOB),
    scene(
        "ask for the date and set a reminder",
        "",
        "true",
        &[],
        &[("exec", "date"), REMIND],
        HAS_JOB,
    ),
    scene(
        "read a file and set a reminder",
        "",
        "echo tea > n",
        &[],
        &[("read_file", r#"{"path":"n"}"#), REMIND],
        HAS_JOB,
    ),
    scene(
        "read a page and set a reminder",
        "",
        "true",
        &["--allow", "cron"],
        &[FETCH, REMIND],
        HAS_JOB,
    ),
    scene(
        "read a page and set a reminder in auto-approve",
        "",
        "true",
        &["--profile", "auto-approve", "--net=127.0.0.2"],
        &[FETCH, REMIND],
        HAS_JOB,
    ),
    scene(
        "remove a reminder",
        "",
        "true",
        &[],
        &[REMIND, ("cron", r#"{"action":"list"}"#)],
        HAS_JOB,
    ),
    scene(
        "edit the notes about the user after reading a file",
        "",
        "echo Vienna > n; mkdir -p $W; echo '# User' > $W/USER.md",
        &[],
        &[
            ("read_file", r#"{"path":"n"}"#),
            ("read_file", r#"{"path":"WORKSPACE/USER.md"}"#),
            (
                "edit_file",
                r##"{"path":"WORKSPACE/USER.md","old_text":"# User","new_text":"# User\n\n- Vienna"}"##,
            ),
        ],
        "grep -q Vienna $W/USER.md",
    ),
    scene(
        "write the agent's instructions after a command",
        "",
        "true",
        &[],
        &[
            ("exec", "uname"),
            ("write_file", r#"{"path":"WORKSPACE/AGENTS.md","content":"Be brief."}"#),
        ],
        "grep -q brief $W/AGENTS.md",
    ),
    scene(
        "note a page in the agent's instructions, as granted",
        "",
        "true",
        &["--allow", "notes"],
        &[FETCH, ("write_file", r#"{"path":"WORKSPACE/AGENTS.md","content":"Soup on Mondays."}"#)],
        "grep -q Soup $W/AGENTS.md",
    ),
    scene(
        "note a page among other notes",
        "",
        "true",
        &[],
        &[FETCH, ("write_file", r#"{"path":"WORKSPACE/notes/soup.md","content":"leeks"}"#)],
        "grep -q leeks $W/notes/soup.md",
    ),
    scene(
        "keep a fact from a page in the memory",
        "",
        "true",
        &[],
        &[
            FETCH,
            ("write_file", r#"{"path":"WORKSPACE/memory/MEMORY.md","content":"Soup has leeks."}"#),
        ],
        "grep -q leeks $W/memory/MEMORY.md",
    ),
    scene(
        "learn a skill from a project",
        "",
        "echo 'run make' > README",
        &[],
        &[
            ("read_file", r#"{"path":"README"}"#),
            (
                "write_file",
                r#"{"path":"WORKSPACE/skills/build/SKILL.md","content":"---\nname: build\ndescription: Build it\n---\nRun make.\n"}"#,
            ),
        ],
        "grep -q 'Run make' $W/skills/build/SKILL.md",
    ),
    scene(
        "plan the heartbeat after reading a project",
        "",
        "echo x > n",
        &[],
        &[
            ("read_file", r#"{"path":"n"}"#),
            ("write_file", r#"{"path":"WORKSPACE/HEARTBEAT.md","content":"- [ ] look at n"}"#),
        ],
        "grep -q 'look at n' $W/HEARTBEAT.md",
    ),
    scene(
        "keep a list of tasks",
        "",
        "true",
        &[],
        &[("todo", r#"{"todos":[{"content":"one","status":"pending"}]}"#)],
        "true",
    ),
    scene(
        "search in files",
        "",
        "echo needle > a",
        &[],
        &[("grep", r#"{"pattern":"needle"}"#), ("glob", r#"{"pattern":"*"}"#)],
        "true",
    ),
    scene(
        "plan without changes",
        "",
        "echo x > a",
        &["--profile", "plan"],
        &[LIST, ("read_file", r#"{"path":"a"}"#)],
        "true",
    ),
    scene(
        "read beneath another folder",
        "",
        "mkdir -p ../other; echo x > ../other/a",
        &["--read", "../other"],
        &[("read_file", r#"{"path":"../other/a"}"#), ("exec", "cat ../other/a")],
        "true",
    ),
    scene(
        "write to another folder",
        "",
        "mkdir -p ../other",
        &["--write=../other"],
        &[
            ("exec", "echo x > ../other/a"),
            ("write_file", r#"{"path":"../other/b","content":"y"}"#),
        ],
        "cat ../other/a ../other/b",
    ),
    scene(
        "accept edits",
        "",
        "true",
        &["--profile", "accept-edits"],
        &[("write_file", r#"{"path":"a","content":"b"}"#), ("exec", "cp a c")],
        "cmp a c",
    ),
    scene(
        "work without a sandbox",
        "",
        "true",
        &["--profile", "full"],
        &[("exec", "echo x > a")],
        "grep -q x a",
    ),
];

/// Editing a project: files that start or instruct something among them.
const PROJECT: &[Scene] = &[
    scene(
        "write tasks for an editor",
        "",
        "echo 'all:' > Makefile",
        WRITE,
        &[
            ("read_file", r#"{"path":"Makefile"}"#),
            ("write_file", r#"{"path":".vscode/tasks.json","content":"{}"}"#),
        ],
        "test -f .vscode/tasks.json",
    ),
    scene(
        "write tasks for an editor by a command",
        "",
        "echo x > a",
        WRITE,
        &[
            ("read_file", r#"{"path":"a"}"#),
            ("exec", "mkdir .vscode && echo {} > .vscode/tasks.json"),
        ],
        "test -f .vscode/tasks.json",
    ),
    scene(
        "write tasks for an editor after a page, as granted",
        "",
        "true",
        &["--write", "--allow", "startup"],
        &[
            FETCH,
            ("write_file", r#"{"path":".vscode/tasks.json","content":"{}"}"#),
            ("exec", "echo export A=1 > .envrc"),
        ],
        "test -f .vscode/tasks.json -a -f .envrc",
    ),
    scene(
        "instruct other agents",
        "",
        "echo x > a",
        WRITE,
        &[
            ("read_file", r#"{"path":"a"}"#),
            ("write_file", r#"{"path":"AGENTS.md","content":"Use tabs."}"#),
        ],
        "grep -q tabs AGENTS.md",
    ),
    scene(
        "instruct other agents in a folder",
        "",
        "mkdir src",
        WRITE,
        &[("exec", "echo Use tabs. > src/AGENTS.md")],
        "grep -q tabs src/AGENTS.md",
    ),
    scene(
        "edit and delete files",
        "",
        "echo a > a; echo b > b",
        WRITE,
        &[
            ("read_file", r#"{"path":"a"}"#),
            ("edit_file", r#"{"path":"a","old_text":"a","new_text":"c"}"#),
            ("exec", "rm b"),
        ],
        "grep -q c a && ! test -e b",
    ),
    scene(
        "replace in many files",
        "",
        "for i in 1 2 3; do echo old > f$i; done",
        WRITE,
        &[("exec", "sed -i s/old/new/ f?; grep -l new f? | xargs -n1 echo")],
        "! grep -q old f?",
    ),
    scene(
        "rename and copy trees",
        "",
        "mkdir -p a/b; echo x > a/b/c",
        WRITE,
        &[("exec", "cp -a a d && mv a e && ln -s e f && chmod -R u+w e && find . -name c | wc -l")],
        "cat d/b/c f/b/c",
    ),
    scene(
        "pack and unpack",
        "tar",
        "mkdir t; echo x > t/a",
        WRITE,
        &[("exec", "tar czf t.tgz t && mkdir u && tar xzf t.tgz -C u && diff -r t u/t")],
        "cat u/t/a",
    ),
    scene(
        "apply a patch",
        "patch",
        "printf 'a\\nb\\n' > f",
        WRITE,
        &[("exec", "printf 'a\\nc\\n' > g; diff -u f g > p; patch -s f p")],
        "cmp f g",
    ),
    scene(
        "work with scratch files",
        "",
        "true",
        WRITE,
        &[
            ("exec", "f=$(mktemp) && echo x > $f && cp $f got && d=$(mktemp -d) && cp got $d"),
            ("exec", "echo kept > /tmp/k"),
            ("exec", "cp /tmp/k k"),
        ],
        "cat got k",
    ),
    scene(
        "processes in the background",
        "",
        "true",
        WRITE,
        &[(
            "exec",
            "(sleep 0.1; echo late > late) & wait; trap 'echo end > end' EXIT; ulimit -n > limit",
        )],
        "cat late end limit",
    ),
    scene(
        "a pipe with a name",
        "",
        "true",
        WRITE,
        &[(
            "exec",
            "mkfifo p && (cat p > got &) && echo through > p; while ! grep -q through got; do :; done",
        )],
        "cat got",
    ),
    scene(
        "here-documents of bash",
        "bash",
        "true",
        WRITE,
        &[(
            "exec",
            "bash -c 'cat <<< here > a; diff <(echo 1) <(echo 1) && shopt -s globstar && echo ** > b'",
        )],
        "cat a b",
    ),
    scene(
        "a terminal multiplexer",
        "tmux",
        "true",
        WRITE,
        &[(
            "exec",
            "S=$TMPDIR/s; tmux -S $S -f /dev/null new-session -d -s w 'echo in > got; exec sleep 60'; while ! test -s got; do sleep 0.02; done; tmux -S $S kill-server",
        )],
        "grep -q in got",
    ),
    scene(
        "a language of data",
        "jq",
        "echo '{\"a\":[1,2]}' > a.json",
        WRITE,
        &[("exec", "jq '.a|add' a.json > sum")],
        "grep -q 3 sum",
    ),
    scene(
        "a table",
        "awk",
        "seq 10 > n",
        WRITE,
        &[(
            "exec",
            "awk '{s+=$1} END {print s}' n | tee sum; sort -rn n | head -3 > top; comm -12 n n > same",
        )],
        "grep -q 55 sum",
    ),
    scene(
        "a build with make and a compiler",
        "gcc",
        "printf 'int main(){return 0;}\\n' > m.c; printf 'm: m.c\\n\\tgcc m.c -o m\\n' > Makefile",
        WRITE,
        &[("exec", "make -s && ./m && make -s -n clean || true")],
        "./m",
    ),
    scene(
        "a crate",
        "",
        "true",
        WRITE,
        &[(
            "exec",
            "cargo init -q --vcs none --name hello . && cargo build -q --offline && cargo test -q --offline > tested",
        )],
        "test -x target/debug/hello && grep -q ok tested",
    ),
    scene(
        "a package of node",
        "npm",
        "true",
        WRITE,
        &[(
            "exec",
            "npm init -y > log && npm pkg set scripts.test='echo tested > got' && npm test -s",
        )],
        "grep -q tested got",
    ),
    scene(
        "scripts of a package and of its dependencies after a page",
        "npm",
        "mkdir dep && echo '{\"name\":\"dep\",\"version\":\"1.0.0\"}' > dep/package.json && echo '{\"name\":\"a\",\"version\":\"1.0.0\",\"scripts\":{\"postinstall\":\"echo post > post\",\"prepare\":\"echo prep > prep\"},\"dependencies\":{\"dep\":\"file:dep\"}}' > package.json && npm install --package-lock-only --offline --no-audit --no-fund > log",
        WRITE,
        &[FETCH, ("exec", "npm ci --offline --no-audit --no-fund > log 2>&1")],
        "cat post prep node_modules/dep/package.json",
    ),
    scene(
        "a new crate in a repository of its own after a page",
        "git",
        "true",
        WRITE,
        &[
            FETCH,
            (
                "exec",
                "cargo new -q hello && cd hello && cargo build -q --offline && git add . && git commit -qm one",
            ),
        ],
        "test -x hello/target/debug/hello && git -C hello log --oneline",
    ),
    scene(
        "a package of python in an environment after a page",
        "python3",
        "printf '[project]\nname = \"pkg\"\nversion = \"1\"\n' > pyproject.toml; mkdir pkg; touch pkg/__init__.py",
        WRITE,
        &[
            FETCH,
            (
                "exec",
                "python3 -m venv .venv && .venv/bin/pip --version && echo $PWD > $(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/pkg.pth && cd / && $OLDPWD/.venv/bin/python -c 'import pkg'",
            ),
        ],
        ".venv/bin/python -c 'import pkg'",
    ),
    scene(
        "an installation beneath the project after a page",
        "make",
        "printf 'install:\n\tinstall -d $(PREFIX)/bin\n\tinstall -m755 t $(PREFIX)/bin/t\n' > Makefile; printf '#!/bin/sh\necho t' > t",
        WRITE,
        &[FETCH, ("exec", "make -s install PREFIX=$PWD/out && out/bin/t")],
        "out/bin/t",
    ),
    scene(
        "an installation beneath a granted directory of the home",
        "make",
        "mkdir -p $HOME/opt; printf 'install:\n\tinstall -d $(PREFIX)/bin\n\tinstall -m755 t $(PREFIX)/bin/t\n' > Makefile; printf '#!/bin/sh\necho t' > t",
        &["--write", "--write=../home/opt"],
        &[FETCH, ("exec", "make -s install PREFIX=$HOME/opt")],
        "$HOME/opt/bin/t",
    ),
    scene(
        "an environment of python",
        "python3",
        "true",
        WRITE,
        &[("exec", "python3 -m venv --without-pip env && ./env/bin/python -c 'print(1)' > got")],
        "grep -q 1 got",
    ),
    scene(
        "tests of python",
        "python3",
        "printf 'import unittest\\nclass T(unittest.TestCase):\\n  def test(self): open(\"got\",\"w\").close()\\n' > test_a.py",
        WRITE,
        &[("exec", "python3 -m unittest -q")],
        "test -f got",
    ),
    scene(
        "a database",
        "python3",
        "true",
        WRITE,
        &[(
            "exec",
            "python3 -c 'import sqlite3 as s; c = s.connect(\"d.db\"); c.execute(\"create table t(a)\"); c.execute(\"insert into t values(7)\"); c.commit()'",
        )],
        "test -s d.db",
    ),
    scene(
        "many processes of python",
        "python3",
        "true",
        WRITE,
        &[(
            "exec",
            "python3 -c 'import multiprocessing as m; p = m.Pool(2); print(sum(p.map(abs, [-1, -2])), file=open(\"got\", \"w\"))'",
        )],
        "grep -q 3 got",
    ),
    scene(
        "a script of perl",
        "perl",
        "echo a > f",
        WRITE,
        &[("exec", "perl -pi -e 's/a/b/' f")],
        "grep -q b f",
    ),
];

const COMMIT: &str = "git init -q -b main && echo a > f && git add f && git commit -q -m one";

/// Version control.
const GIT: &[Scene] = &[
    scene(
        "a first commit",
        "git",
        "true",
        WRITE,
        &[(
            "exec",
            "git init -q && echo a > f && git add . && git -c user.name=a -c user.email=a@b commit -qm one",
        )],
        "git log --format=%s | grep -q one",
    ),
    scene(
        "a commit",
        "git",
        COMMIT,
        WRITE,
        &[("exec", "echo b >> f && git commit -qam two && git status -sb")],
        "git log -1 --format=%s | grep -q two",
    ),
    scene(
        "amend and reset",
        "git",
        COMMIT,
        WRITE,
        &[(
            "exec",
            "echo b >> f; git commit -q -a --amend -m uno; echo c >> f; git checkout -q f; git reset -q --soft HEAD",
        )],
        "git log --format=%s | grep -q uno",
    ),
    scene(
        "branches and a merge",
        "git",
        COMMIT,
        WRITE,
        &[(
            "exec",
            "git checkout -q -b side && echo s > s && git add s && git commit -qm side && git checkout -q main && git merge -q --no-ff -m merged side && git branch -d side",
        )],
        "test -f s && git log -1 --format=%s | grep -q merged",
    ),
    scene(
        "a conflict resolved in two steps",
        "git",
        "git init -q -b main && echo a > f && git add f && git commit -q -m one && git checkout -q -b side && echo b > f && git commit -qam b && git checkout -q main && echo c > f && git commit -qam c",
        WRITE,
        &[("exec", "git merge side || true"), ("exec", "echo d > f && git commit -qam merged")],
        "git log -1 --format=%s | grep -q merged",
    ),
    scene(
        "a rebase with a conflict in two steps",
        "git",
        "git init -q -b main && echo a > f && git add f && git commit -q -m one && git checkout -q -b side && echo b > f && git commit -qam b && git checkout -q main && echo c > f && git commit -qam c && git checkout -q side",
        WRITE,
        &[
            ("exec", "git rebase main || true"),
            ("exec", "echo d > f && git add f && GIT_EDITOR=true git rebase --continue"),
        ],
        "test $(git log --format=%s | wc -l) = 3",
    ),
    scene(
        "clean up a repository with a worktree elsewhere",
        "git",
        "git init -q -b main && git commit -q --allow-empty -m one && git worktree add -q ../elsewhere -b side && touch ../elsewhere/s \
         && git -C ../elsewhere add s && touch -d '100 days ago' .git/worktrees/elsewhere/index",
        &["--write"],
        &[("exec", "git worktree prune && git gc -q")],
        "git -C ../elsewhere diff --cached --name-only | grep -qx s",
    ),
    scene(
        "a rebase that runs the tests",
        "git",
        "git init -q -b main && echo a > f && git add f && git commit -q -m one && git commit -q --allow-empty -m two",
        WRITE,
        &[("exec", "git rebase -q -x 'echo ran >> ran' --root")],
        "grep -q ran ran",
    ),
    scene(
        "pick and revert",
        "git",
        COMMIT,
        WRITE,
        &[(
            "exec",
            "git checkout -q -b s && echo b > g && git add g && git commit -qm g && git checkout -q main && git cherry-pick s > /dev/null && git revert --no-edit HEAD > /dev/null",
        )],
        "! test -e g",
    ),
    scene(
        "stash",
        "git",
        COMMIT,
        WRITE,
        &[("exec", "echo b > f && git stash -q && git stash pop -q")],
        "grep -q b f",
    ),
    scene(
        "bisect",
        "git",
        "git init -q && for i in 1 2 3 4 5; do echo $i > f; git add f; git commit -q -m $i; done",
        WRITE,
        &[(
            "exec",
            "git bisect start HEAD HEAD~4 > /dev/null && git bisect run sh -c 'test $(cat f) -lt 4' | grep 'first bad' > found; git bisect reset -q",
        )],
        "grep -q bad found",
    ),
    scene(
        "bisect over instruction files after a page",
        "git",
        "git init -q && for i in 1 2 3 4 5; do echo $i > f; echo use $i > AGENTS.md; git add .; git commit -q -m $i; done",
        WRITE,
        &[
            FETCH,
            ("exec", "git bisect start HEAD HEAD~4 > log; rm log"),
            (
                "exec",
                "git bisect run sh -c 'test $(cat f) -lt 4' | grep 'first bad' > found; git bisect reset > log 2>&1",
            ),
        ],
        "grep -q bad found && grep -q 'use 5' AGENTS.md",
    ),
    scene(
        "a worktree with instructions after a page, worked in by two commands",
        "git",
        "git init -q -b main && echo hi > AGENTS.md && mkdir .vscode && echo {} > .vscode/tasks.json && git add . && git commit -qm one",
        WRITE,
        &[
            FETCH,
            ("exec", "git worktree add -q wt -b wt"),
            (
                "exec",
                "cd wt && echo w > w && git add w && git commit -qm wt && git worktree list | wc -l",
            ),
        ],
        "git log -1 --format=%s wt -- | grep -q wt && cat wt/AGENTS.md wt/.vscode/tasks.json",
    ),
    scene(
        "patches of a branch applied to another after a page",
        "git",
        "git init -q -b main && echo a > f && git add f && git commit -qm one && git checkout -q -b s && echo b > g && echo tabs > AGENTS.md && git add . && git commit -qm two && git checkout -q main",
        WRITE,
        &[
            FETCH,
            (
                "exec",
                "git format-patch -q main..s --stdout > p.patch && git am -q p.patch && rm p.patch",
            ),
        ],
        "git log -1 --format=%s | grep -q two && grep -q tabs AGENTS.md && test -z \"$(git status --porcelain)\"",
    ),
    scene(
        "a remote and settings in a repository of yesterday",
        "git",
        COMMIT,
        WRITE,
        &[(
            "exec",
            "git remote add origin https://example.org/x/y.git && git config core.autocrlf input && git config pull.rebase true",
        )],
        "test $(git config remote.origin.url) = https://example.org/x/y.git && test $(git config core.autocrlf) = input",
    ),
    scene(
        "remotes of a clone of yesterday",
        "git",
        "git init -q --bare -b main up.git && git clone -q up.git down 2>/dev/null",
        WRITE,
        &[(
            "exec",
            "cd down && git remote add fork git@example.org:fork/x.git && git remote rename fork mine && git remote set-url origin https://example.org/o.git && git remote set-head origin -d; git remote -v",
        )],
        "test $(git -C down config remote.mine.url) = git@example.org:fork/x.git && test $(git -C down config remote.origin.url) = https://example.org/o.git",
    ),
    scene(
        "a submodule of another repository in the directory",
        "git",
        "git init -q sub && git -C sub commit -q --allow-empty -m s && git init -q main && git -C main commit -q --allow-empty -m x",
        WRITE,
        &[(
            "exec",
            "cd main && git -c protocol.file.allow=always submodule add -q ../sub lib && git commit -qm lib && git submodule status",
        )],
        "git -C main submodule status | grep -q '^ ' && git -C main/lib log --format=%s | grep -q s",
    ),
    scene(
        "a part of the files checked out after a page",
        "git",
        "mkdir a b && touch a/x b/y && git init -q && git add . && git commit -qm x",
        WRITE,
        &[
            FETCH,
            ("exec", "git sparse-checkout set a && test ! -e b"),
            ("exec", "git sparse-checkout add b && test -e b/y"),
            ("exec", "git sparse-checkout set b && git sparse-checkout list"),
        ],
        "test -e b/y && ! test -e a && test $(git config core.sparseCheckout) = true",
    ),
    scene(
        "all files checked out again",
        "git",
        "mkdir a b && touch a/x b/y && git init -q && git add . && git commit -qm x && git sparse-checkout set a",
        WRITE,
        &[("exec", "git sparse-checkout disable")],
        "test -e b/y && test -z \"$(git status --porcelain)\"",
    ),
    scene(
        "untracked instructions put aside by a stash after a page",
        "git",
        "git init -q -b main && echo a > f && git add f && git commit -q -m one && echo mine > CLAUDE.md && mkdir d && echo mine > d/AGENTS.md && echo b > f",
        WRITE,
        &[
            FETCH,
            ("exec", "git stash -q -u && test -z \"$(git status --porcelain)\""),
            ("exec", "git stash pop -q"),
        ],
        "cat CLAUDE.md d/AGENTS.md && grep -q b f",
    ),
    scene(
        "a clone of a bundle",
        "git",
        "git init -q -b main && echo a > f && git add f && git commit -q -m one && git bundle create -q x.bundle --all",
        WRITE,
        &[("exec", "git clone -q x.bundle down && cd down && git pull -q && git log --oneline")],
        "git -C down log --format=%s | grep -q one && git -C down config remote.origin.url | grep -q x.bundle",
    ),
    scene(
        "hooks of the project set up, with the grant that the refusal names",
        "git",
        "git init -q && mkdir .husky && echo exit 0 > .husky/pre-commit && git add . && git commit -q -m one",
        &["--write", "--write=.git/config"],
        &[("exec", "git config core.hooksPath .husky")],
        "test $(git config core.hooksPath) = .husky",
    ),
    scene(
        "a branch with other hooks, with the grant that the refusal names",
        "git",
        "git init -q -b main && git config core.hooksPath .husky && mkdir .husky && echo exit 0 > .husky/pre-commit && git add . \
         && git commit -q -m one && git checkout -q -b other && echo exit 1 > .husky/pre-commit && git commit -q -a -m two \
         && git checkout -q main",
        &["--write", "--write=.husky"],
        &[("exec", "git checkout -q other")],
        "grep -q 'exit 1' .husky/pre-commit && test -z \"$(git status --short)\"",
    ),
    scene(
        "an empty list of submodules after a page",
        "git",
        COMMIT,
        WRITE,
        &[FETCH, ("exec", "touch .gitmodules && git add .gitmodules")],
        "test -f .gitmodules && ! test -s .gitmodules",
    ),
    scene(
        "tags and archives",
        "git",
        COMMIT,
        WRITE,
        &[(
            "exec",
            "git tag v1 && git archive v1 -o v1.tar && git describe --tags > d && git shortlog -s HEAD < /dev/null > s",
        )],
        "grep -q v1 d && test -s v1.tar",
    ),
    scene(
        "a worktree",
        "git",
        COMMIT,
        WRITE,
        &[
            (
                "exec",
                "git worktree add -q wt -b wt && cd wt && echo w > w && git add w && git commit -qm wt",
            ),
            ("exec", "git -C wt status --short && git -C wt log -1 --format=%s"),
        ],
        "git log -1 --format=%s wt -- | grep -q wt",
    ),
    scene(
        "a remote branch checked out, worked on and pushed, and another one renamed and deleted",
        "git",
        "git init -q --bare -b main up.git && git clone -q up.git down 2>/dev/null && cd down && git commit -q --allow-empty -m x && git push -q origin HEAD:main HEAD:feature && git fetch -q && git branch old && git branch gone",
        WRITE,
        &[
            (
                "exec",
                "cd down && git checkout -q feature && echo f > f && git add f && git commit -qm f && git push -q",
            ),
            (
                "exec",
                "cd down && git branch -m old new && git branch -D gone && git checkout -q -b topic && git push -q -u origin topic",
            ),
        ],
        "git -C up.git log --format=%s feature | grep -q f && test $(git -C down config branch.topic.remote) = origin && git -C down branch | grep -q new",
    ),
    scene(
        "worktrees of yesterday, one moved and one removed",
        "git",
        "git init -q -b main && echo a > f && git add f && git commit -q -m one && git worktree add -q wt && git worktree add -q old",
        &["--write"],
        &[
            ("exec", "git worktree move old new"),
            ("exec", "cd new && echo w > w && git add w && git commit -qm new"),
            ("exec", "git worktree remove wt && git branch -D wt"),
        ],
        "test ! -e wt -a ! -e .git/worktrees/wt && ! git branch | grep -q wt && git worktree list | grep -q new && git -C new diff --quiet",
    ),
    scene(
        "a hook installed, with the grant that the refusal names",
        "git",
        COMMIT,
        &["--write", "--write=.git/hooks"],
        &[("exec", "echo exit 0 > .git/hooks/pre-push && chmod +x .git/hooks/pre-push")],
        "test -x .git/hooks/pre-push",
    ),
    scene(
        "a repository made, and configured in the next call",
        "git",
        "true",
        WRITE,
        &[
            ("exec", "git init -q -b main"),
            ("exec", "git config user.email a@b.c && git remote add origin https://x.org/y.git"),
            ("exec", "echo a > f && git add f && git commit -qm one && git branch -m trunk"),
        ],
        "git log -1 --format=%ae trunk | grep -q a@b.c && git config remote.origin.url",
    ),
    scene(
        "a clone with instructions and tasks",
        "git",
        "mkdir up && cd up && git init -q && mkdir .vscode && echo {} > .vscode/tasks.json && echo hi > AGENTS.md && git add . && git commit -qm x",
        WRITE,
        &[("exec", "git clone -q $PWD/up down")],
        "cat down/.vscode/tasks.json down/AGENTS.md && git -C down remote -v | grep -q up",
    ),
    scene(
        "a branch with instructions and tasks",
        "git",
        "git init -q -b main && git commit -q --allow-empty -m x && git checkout -q -b t && mkdir .vscode && echo {} > .vscode/tasks.json && echo hi > AGENTS.md && echo a > .envrc && git add . && git commit -qm t && git checkout -q main",
        WRITE,
        &[("exec", "git checkout -q t")],
        "cat .vscode/tasks.json AGENTS.md .envrc",
    ),
    scene(
        "a pull",
        "git",
        "git init -q -b main up && cd up && git commit -q --allow-empty -m x && cd .. && git clone -q up down && cd up && echo hi > CLAUDE.md && git add . && git commit -qm y",
        WRITE,
        &[("exec", "cd down && git pull -q")],
        "cat down/CLAUDE.md",
    ),
    scene(
        "a push",
        "git",
        "git init -q --bare -b main up.git && git clone -q up.git down 2>/dev/null",
        WRITE,
        &[(
            "exec",
            "cd down && git checkout -q -b main; git commit -q --allow-empty -m pushed && git push -q origin main",
        )],
        "git -C up.git log --format=%s main | grep -q pushed",
    ),
    scene(
        "a copy of a repository removed",
        "git",
        "git init -q sub && cd sub && git commit -q --allow-empty -m x",
        WRITE,
        &[("exec", "rm -rf sub && git init -q sub && git -C sub commit -q --allow-empty -m y")],
        "git -C sub log --format=%s | grep -q y",
    ),
    scene(
        "a commit in a subdirectory after a look at the whole",
        "git",
        "git init -q -b main && mkdir src && echo a > a && echo b > src/b && git add . && git commit -q -m one",
        &["-C", "src", "--write"],
        &[
            ("read_file", r#"{"path":"../a"}"#),
            ("grep", r#"{"pattern":"a","path":".."}"#),
            (
                "exec",
                "git status --short && git log --oneline && echo c >> b && git commit -qam two",
            ),
        ],
        "git log -1 --format=%s | grep -q two && test -f a && test -z \"$(git status --porcelain)\"",
    ),
    scene(
        "a branch in a linked worktree",
        "git",
        "git init -q -b main repo && cd repo && echo a > a && git add a && git commit -q -m one && git worktree add -q ../tree -b side",
        &["-C", "tree", "--write"],
        &[(
            "exec",
            "echo b > b && git add b && git commit -qm two && git rebase -q main && git stash list && git worktree list",
        )],
        "git -C repo log -1 --format=%s side | grep -q two",
    ),
    scene(
        "a commit in a submodule",
        "git",
        "git init -q -b main ../lib && (cd ../lib && echo a > a && git add a && git commit -q -m one) && git init -q -b main && git -c \
         protocol.file.allow=always submodule --quiet add ../lib sub && git commit -qm sub",
        &["-C", "sub", "--write"],
        &[("exec", "echo b >> a && git commit -qam two && git status -sb && git config user.name")],
        "git -C sub log -1 --format=%s | grep -q two && git status --short | grep -q sub",
    ),
    scene(
        "a review in a worktree of a bare repository",
        "git",
        "git init -q -b main ../seed && (cd ../seed && echo a > a && git add a && git commit -q -m one) && git clone -q --bare ../seed .bare \
         && echo 'gitdir: ./.bare' > .git && git worktree add -q main main 2>&1",
        &["-C", "main"],
        &[(
            "exec",
            "git status -sb && git log --oneline && git diff HEAD && git blame a && git branch -a",
        )],
        "true",
    ),
    scene(
        "a commit with an identity and ignored files that the user's config names elsewhere",
        "git",
        "git config --global --remove-section user; git config --global include.path '~/dot/git'; mkdir ~/dot; printf '[user]\n name = Dot\n \
         email = d@example.org\n[core]\n excludesFile = ~/dot/ignored\n[commit]\n template = ~/dot/template\n' > ~/dot/git; echo '*.log' > \
         ~/dot/ignored; touch ~/dot/template; git init -q -b main && mkdir -p a/b && echo a > a/b/f && git add .",
        &["-C", "a/b", "--write"],
        &[(
            "exec",
            "echo x > x.log && git add . && git commit -qm one && git show --stat --format=%an",
        )],
        "git log -1 --format=%an | grep -q Dot && test -z \"$(git status --porcelain)\" && test $(git ls-files | wc -l) = 1",
    ),
    scene(
        "a look at the past",
        "git",
        COMMIT,
        &[],
        &[(
            "exec",
            "git log --oneline && git diff HEAD && git blame f && git show --stat && git grep a",
        )],
        "true",
    ),
];

/// Runs a command of the user. The output is empty if it succeeds.
pub(crate) fn run_as_user(story: &Story, command: &str) -> String {
    let mut shell = story.program("sh");
    shell.args(["-c", command]).env("W", story.workspace()).env("HOME", story.home());
    let output = shell.output().expect("the shell starts");
    if output.status.success() {
        String::new()
    } else {
        format!("`{command}`: {}", String::from_utf8_lossy(&output.stderr))
    }
}

/// Plays a scene; returns what went wrong.
fn play(scene: &Scene, pages: &PageServer) -> Vec<String> {
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    // The toolchain of the tests may be in the user's home.
    let cargo = Path::new(env!("CARGO")).parent().expect("it is a file").display();
    let path = format!("{}:{cargo}", story.path());
    let story = story.env("PATH", &path);
    for (name, value) in [("user.name", "A"), ("user.email", "a@example.org")] {
        run_as_user(&story, &format!("git config --global {name} {value}"));
    }
    let mut wrong = vec![run_as_user(&story, scene.set_up)];
    let workspace = story.workspace().display().to_string();
    let fill = |text: &str| text.replace("WORKSPACE", &workspace).replace("PAGE", &pages.url("/"));
    let of_call = |(tool, text): &(&'static str, &'static str)| {
        let text = fill(text);
        let arguments: Value = if text.starts_with('{') {
            serde_json::from_str(&text).expect("the arguments are JSON")
        } else {
            json!({ "command": text })
        };
        calls(tool, arguments)
    };
    let mut turns: Vec<Responder> = scene.calls.iter().map(of_call).collect();
    turns.push(says("done"));
    story.server().script(turns);
    let run_result = story.run([&["agent", "-m", "go", "--json"], scene.flags].concat());
    let result = run_result.json();
    drop(run_result.error_text());
    if result["denials"].as_array().is_none_or(|denials| !denials.is_empty()) {
        wrong.push(format!("denied: {}", result["denials"]));
    }
    if result["text"] != "done" {
        wrong.push(format!("{result}"));
    }
    wrong.push(run_as_user(&story, scene.check));
    let schedules = scene.calls.contains(&REMIND);
    if schedules != story.crontab().table().is_some_and(|table| table.contains("nanobot")) {
        wrong.push("the job is not in the story's own crontab".into());
    }
    wrong.retain(|problem| !problem.is_empty());
    if !wrong.is_empty() {
        let requests = story.requests();
        let content = requests.iter().skip(1).map(|request| request.last_content());
        wrong.extend(content);
    }
    wrong
}

/// Plays the scenes, four at a time. Returns what is wrong with each, below its name.
pub(crate) fn play_all<S: Sync>(
    scenes: &[S],
    name: fn(&S) -> &'static str,
    play: impl Fn(&S) -> Vec<String> + Sync,
) -> Vec<String> {
    let next = Mutex::new(scenes.iter());
    let refused = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(scene) = next.lock().expect("no panic").next() else {
                        break;
                    };
                    let wrong = play(scene);
                    if !wrong.is_empty() {
                        let text = format!("{}:\n  {}", name(scene), wrong.join("\n  "));
                        refused.lock().expect("no panic").push(text);
                    }
                }
            });
        }
    });
    refused.into_inner().expect("no panic")
}

#[test]
fn daily_work_is_never_refused() {
    let pages = PageServer::start(|_| page_response("text/html", "<p>Leek soup</p>"));
    let scenes = [ASSISTANT, PROJECT, GIT, development::DEVELOPMENT].into_iter().flatten();
    let here = |scene: &&Scene| scene.program.is_empty() || require(scene.program);
    let scenes: Vec<&Scene> = scenes.filter(here).collect();
    let refused = play_all(&scenes, |scene| scene.name, |scene| play(scene, &pages));
    print_count(&format!(
        "{} of {} scenes of daily work done",
        scenes.len() - refused.len(),
        scenes.len()
    ));
    assert!(scenes.len() >= 90 || !require("git"), "{}", scenes.len());
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
}
