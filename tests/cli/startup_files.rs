//! Files that programs and agents read on their own, changed by commands and file tools: told in one line, and closed after
//! content from outside, at every depth.

use crate::requirements::require;
use crate::server::{calls, says};
use crate::story::Story;
use crate::wait::until_exists;
use crate::web::{PageServer, page_response};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The user's own git, without the settings of this machine.
const GIT: &str = "export GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@example.org GIT_COMMITTER_NAME=u \
                   GIT_COMMITTER_EMAIL=u@example.org GIT_CONFIG_NOSYSTEM=1; ";

/// A directory with a repository: `main`, and a branch `other` with other start-up files.
const SET_UP: &str = "git init -q -b main . && mkdir -p src .vscode && echo one > src/AGENTS.md && echo '{}' > .vscode/tasks.json \
    && git add . && git commit -qm one && git checkout -q -b other && echo two > src/AGENTS.md && echo two > .envrc \
    && rm -r .vscode && git add . && git commit -qm two && git checkout -q main && echo mine > CLAUDE.md";

fn run_as_user(story: &Story, command: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", &format!("{GIT}{command}")])
        .current_dir(story.dir())
        .env("HOME", story.home())
        .output()
        .unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The contents of the files in `dir` that the stories are about, without those of git.
fn contents(dir: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() && entry.file_name() != ".git" => waiting.push(path),
                kind if kind.is_dir() => {}
                _ => drop(files.insert(name, std::fs::read_to_string(path).unwrap_or_default())),
            }
        }
    }
    files
}

fn story() -> Story {
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    run_as_user(&story, SET_UP);
    story
}

/// Runs `commands`, one after another, in one turn under `flags`. With `page`, that is read before.
fn run(story: &Story, page: Option<&PageServer>, commands: &[&str], flags: &[&str]) -> String {
    if let Some(page) = page {
        let fetch = calls("web_fetch", json!({ "url": page.url("/") }));
        story.server().script([fetch]);
    }
    let commands = commands.iter().map(|command| format!("{GIT}{command}"));
    story.server().script(commands.map(|command| calls("exec", json!({ "command": command }))));
    story.server().script([says("done")]);
    let result = story.run([&["agent", "-m", "x", "--write"], flags].concat()).stdout("done\n");
    result.error_text()
}

#[test]
fn changed_startup_files_are_told_in_one_line_and_undone() {
    if !require("git") {
        return;
    }
    let check = |commands: &[&str], expect: &[&str]| {
        let story = story();
        let before = contents(&story.dir());
        let text = run(&story, None, commands, &[]);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("on their own")).collect();
        assert_eq!(lines.len(), usize::from(!expect.is_empty()), "{commands:?}: {text}");
        for name in expect {
            assert!(lines[0].contains(name), "{commands:?} {name}: {text}");
        }
        if lines.is_empty() {
            return;
        }
        let after = contents(&story.dir());
        assert_ne!(after, before);
        drop(story.run(["undo"]).stdout_has("AGENTS.md").stderr_has("turn 1"));
        // What is in a folder of dependencies is not covered.
        let mut undone = contents(&story.dir());
        undone.retain(|name, _| !name.starts_with("node_modules"));
        assert_eq!(undone, before, "{commands:?}");
    };
    check(&["echo hi > notes.md; mkdir skill; echo x > skill/agents.rs"], &[]);
    check(&["cat src/AGENTS.md; git status", "git log"], &[]);
    check(
        &["mkdir -p a/b; echo x > a/b/Agents.md; echo x >> src/AGENTS.md"],
        &["`a/b/Agents.md`", "`src/AGENTS.md`"],
    );
    check(&["git checkout -q other"], &["`src/AGENTS.md`", "`.envrc`"]);
    check(
        &[
            "mkdir -p node_modules/p/.vscode; touch node_modules/p/.vscode/x",
            "echo x > src/AGENTS.md",
        ],
        &["`node_modules/p/.vscode/x`"],
    );
    // A long list is cut.
    check(&["for i in 1 2 3 4 5; do mkdir d$i; touch d$i/AGENTS.md; done"], &["and 2 more"]);
}

#[test]
fn hooks_of_git_and_instructions_of_agents_are_put_back_after_content_from_outside() {
    let page = PageServer::start(|_| page_response("text/plain", "a page"));
    let names = [
        ".husky/pre-commit",
        "web/lefthook.yml",
        ".pre-commit-config.yaml",
        "CLAUDE.local.md",
        "AGENTS.override.md",
        ".github/instructions/a.instructions.md",
        ".windsurf/rules/a.md",
        ".rules",
    ];
    let make = format!(
        "for f in {}; do mkdir -p \"$(dirname $f)\"; echo evil > $f; done",
        names.join(" ")
    );
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    let text = run(&story, Some(&page), &[&make], &[]);
    assert!(text.contains("--allow startup"), "{text}");
    for name in names {
        assert!(!story.dir().join(name).exists(), "{name}: {text}");
    }
    let text = run(&story, None, &[&make], &["--new"]);
    assert!(text.contains("on their own: "), "{text}");
    assert!(names.iter().all(|name| story.dir().join(name).exists()), "{text}");
}

#[test]
fn startup_files_written_by_the_file_tools_are_told_in_one_line() {
    let story = Story::new();
    let write = |path: &str| calls("write_file", json!({ "path": path, "content": "x" }));
    let workspace = story.workspace().join("AGENTS.md");
    story.server().script([
        write("src/.envrc"),
        write("notes.md"),
        write(workspace.to_str().unwrap()),
        write("CLAUDE.md"),
        calls("edit_file", json!({ "path": "CLAUDE.md", "old_text": "x", "new_text": "y" })),
        says("done"),
    ]);
    story
        .run(["agent", "-m", "x", "--write"])
        .stdout("done\n")
        .stderr(
            "nanobot: changed what programs and agents read on their own: `CLAUDE.md`, `src/.envrc`; `nanobot undo` takes it back\n\
             nanobot: changed what instructs later runs: `~/.nanobot/workspace/AGENTS.md`; `nanobot undo` takes it back\n",
        );
    story.run(["undo"]).stdout_has("AGENTS.md").stderr_has("4 files");
    assert!(!workspace.exists());
}

#[test]
fn after_content_from_outside_commands_change_no_startup_file_at_any_depth() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let check = |commands: &[&str]| {
        let story = story();
        let before = contents(&story.dir());
        let text = run(&story, Some(&page), commands, &[]);
        assert!(text.contains("--allow startup"), "{commands:?}: {text}");
        let after = contents(&story.dir());
        let is_startup = |name: &str| {
            let names =
                ["agents.md", "claude.md", ".envrc", ".vscode", "skills", ".claude", ".gitmodules"];
            name.split('/').any(|part| names.contains(&part.to_lowercase().as_str()))
                && !name.contains(".set-aside-")
                && !name.starts_with("node_modules")
        };
        let startup_files_of = |all: &BTreeMap<String, String>| {
            let mut all = all.clone();
            all.retain(|name, _| is_startup(name));
            all
        };
        assert_eq!(startup_files_of(&after), startup_files_of(&before), "{commands:?}: {text}");
        drop(story);
    };
    check(&["echo evil > AGENTS.md"]);
    check(&["mkdir -p a/b/c/d/e/f/g/h; echo evil > a/b/c/d/e/f/g/h/Agents.MD"]);
    check(&["echo evil >> src/AGENTS.md"]);
    check(&["echo evil > CLAUDE.md; chmod 777 CLAUDE.md"]);
    check(&["rm CLAUDE.md"]);
    check(&["mv CLAUDE.md c.md"]);
    check(&["echo evil > f; ln -sf ../f src/AGENTS.md"]);
    check(&["echo evil > f; ln f src/CLAUDE.md"]);
    check(&["mkdir -p .claude/commands/vendor; echo evil > .claude/commands/vendor/x.md"]);
    check(&["mkdir e; echo evil > e/tasks.json; mv .vscode v; mv e .vscode"]);
    check(&[
        "mkdir -p node_modules/x; echo evil > node_modules/x/AGENTS.md",
        "cp node_modules/x/AGENTS.md .",
    ]);
    check(&["mkdir src/skills; ln -s ../../f src/skills/x"]);
    // A file of the user's under another name is new there.
    check(&["mkdir -p p/q; echo evil > p/q/AGENTS.md; chmod 0311 p"]);
    check(&["cp CLAUDE.md AGENTS.md"]);
    // A stash is a place to look at, and nothing else of git is.
    check(&["git stash -q -u; git stash drop -q"]);
    check(&["git hash-object -w CLAUDE.md; rm CLAUDE.md"]);
    check(&["git add CLAUDE.md; git commit -qm x; git rm -q CLAUDE.md; git commit -qm y"]);
    check(&["git stash -q -u; echo evil > CLAUDE.md"]);
    // A link whose target is the text of another file of git.
    check(&["n=$(printf '{}\\nx'); n=${n%x}; echo evil > \"$n\"; ln -s \"$n\" AGENTS.md"]);
    // What the run itself gives to git is not what git had.
    check(&["echo evil > AGENTS.md; git add AGENTS.md; git commit -qm x"]);
    check(&[
        "echo evil > f; git add f; git commit -qm x; git mv f AGENTS.md; git commit -qm y",
        "git checkout -q HEAD -- AGENTS.md",
    ]);
    check(&[
        "git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),AGENTS.md; git commit -qm x; git gc -q",
        "git reset -q --hard",
    ]);
    // An old file of git under the name of the new content.
    check(&[
        "h=$(echo evil | git hash-object --stdin); o=$(find .git/objects -type f | head -n 1); \
         d=.git/objects/$(echo $h | cut -c 1-2); mkdir -p $d; mv $o $d/$(echo $h | cut -c 3-)",
        "echo evil > AGENTS.md",
    ]);
    check(&[
        "git init -q --bare ../x.git; git init -q $TMPDIR/o; cd $TMPDIR/o; echo evil > f; git add f; cd $OLDPWD; \
         echo $TMPDIR/o/.git/objects > .git/objects/info/alternates",
        "echo evil > AGENTS.md",
    ]);
    // An empty list of submodules says nothing; another one does.
    check(&["echo '[submodule \"x\"]' > .gitmodules"]);
    let story = story();
    let commands = ["touch .gitmodules", "echo '[submodule \"x\"]' > .gitmodules"];
    let text = run(&story, Some(&page), &commands, &[]);
    assert!(text.contains("--allow startup"), "{text}");
    let list = std::fs::read(story.dir().join(".gitmodules"));
    assert_eq!(list.unwrap(), b"");
}

#[test]
fn a_command_that_times_out_tells_which_changes_were_undone() {
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    let command = json!({ "command": "echo evil > CLAUDE.md; sleep 60", "timeout": 2 });
    story.server().script([
        calls("web_fetch", json!({ "url": page.url("/") })),
        calls("exec", command),
        says("done"),
    ]);
    let ran = story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    assert!(ran.error_text().contains("--allow startup"), "{}", ran.error_text());
    let result = story.server().requests().last().unwrap().last_content();
    assert!(result.contains("Timed out after 2 seconds"), "{result}");
    assert!(result.contains("CLAUDE.md"), "{result}");
    assert!(!story.dir().join("CLAUDE.md").exists());
}

#[test]
fn a_stash_of_instructions_is_undone_even_if_it_is_dropped() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = story();
    let before = contents(&story.dir());
    let commands = ["git stash -q -u", "git stash drop -q"];
    let text = run(&story, Some(&page), &commands, &["--strict"]);
    assert!(text.contains("on their own: `CLAUDE.md`"), "{text}");
    assert!(!story.dir().join("CLAUDE.md").exists());
    let undone = story.run(["undo"]).stdout_has("CLAUDE.md");
    drop(undone.stderr_has("turn 1"));
    assert_eq!(contents(&story.dir()), before);
}

/// The file tools may write where commands may not, so such a place proves nothing.
#[test]
fn an_object_that_a_file_tool_wrote_is_not_what_git_had() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = story();
    let name = run_as_user(&story, "echo evil | git hash-object --stdin");
    let (folder, file) = name.trim().split_at(2);
    let objects = story.workspace().join("o");
    let object = objects.join(folder).join(file);
    let command = format!(
        "mkdir -p .git/objects/info; echo {} > .git/objects/info/alternates; echo evil > CLAUDE.md; cp CLAUDE.md .envrc",
        objects.display()
    );
    story.server().script([
        calls("web_fetch", json!({ "url": page.url("/") })),
        calls("write_file", json!({ "path": object, "content": "x" })),
        calls("exec", json!({ "command": command })),
        says("done"),
    ]);
    let result = story.run(["agent", "-m", "go", "--write", "--net=127.0.0.2"]);
    let text = result.error_text();
    result.stdout("done\n");
    assert!(text.contains("denied: exec"), "{text}");
    let files = contents(&story.dir());
    assert_eq!(files["CLAUDE.md"], "mine\n");
    assert!(!files.contains_key(".envrc"));
}

#[test]
fn file_tools_make_no_git_directory() {
    let write = |path: &str| calls("write_file", json!({ "path": path, "content": "x" }));
    let story = Story::new()
        .file("bare/HEAD", "ref: refs/heads/main")
        .file("bare/objects/x", "")
        .file("bare/refs/x", "")
        .file("objects/model.bin", "")
        .script([
            write("repo/HEAD"),
            write("repo/config"),
            write("repo/objects/x"),
            write("repo/refs/x"),
            write("bare/config"),
            write("bare/hooks/post-receive"),
            write("config"),
            write("objects/other.bin"),
            says("done"),
        ]);
    let result = story.run(["agent", "-m", "go", "--write"]);
    let text = result.stdout("done\n").error_text();
    for path in ["repo/refs/x", "bare/config", "bare/hooks/post-receive"] {
        assert!(!story.dir().join(path).exists(), "{path}");
        assert!(text.contains(&format!("{path}` would belong to a git directory")), "{text}");
    }
    for path in ["repo/objects/x", "config", "objects/other.bin"] {
        assert!(story.dir().join(path).exists(), "{path}");
    }
}

#[test]
fn after_content_from_outside_git_and_package_managers_bring_what_they_have() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let check = |set_up: &str, commands: &[&str], test: &str| {
        let story = story();
        run_as_user(&story, set_up);
        let text = run(&story, Some(&page), commands, &[]);
        assert!(!text.contains("denied"), "{commands:?}: {text}");
        run_as_user(&story, test);
        drop(story);
    };
    check(
        "true",
        &["git checkout -q other"],
        "grep -q two src/AGENTS.md .envrc && test ! -e .vscode",
    );
    check(
        "git gc -q",
        &["git checkout -q other", "git checkout -q main"],
        "test -f .vscode/tasks.json",
    );
    check("true", &["git merge -q other"], "grep -q two src/AGENTS.md");
    check("true", &["git rm -q src/AGENTS.md"], "test ! -e src/AGENTS.md");
    check(
        "echo more >> src/AGENTS.md && git stash -q",
        &["git stash pop -q"],
        "grep -q more src/AGENTS.md",
    );
    check("true", &["git worktree add -q w other"], "grep -q two w/.envrc");
    check("git clone -q . ../up", &["git clone -q $PWD down"], "grep -q one down/src/AGENTS.md");
    check("true", &["mv src lib", "mv lib/AGENTS.md ."], "grep -q one AGENTS.md");
    check("mkdir t && echo x > t/AGENTS.md", &["rm -r t"], "test ! -e t");
    check(
        "true",
        &[
            "mkdir -p node_modules/p .venv/lib; echo x > node_modules/p/AGENTS.md; echo x > .venv/lib/CLAUDE.md",
        ],
        "test -f node_modules/p/AGENTS.md -a -f .venv/lib/CLAUDE.md",
    );
    check(
        "true",
        &["echo x > notes.md; mkdir vscode; echo x > src/agents.rs"],
        "test -f src/agents.rs",
    );
}

/// The names that other agents, editors, debuggers and package managers read.
const NAMES_OF_OTHERS: &[&str] = &[
    "GEMINI.md",
    "AGENT.md",
    ".cursorrules",
    ".windsurfrules",
    ".clinerules/x.md",
    ".goosehints",
    ".aider.conf.yml",
    ".github/copilot-instructions.md",
    ".junie/guidelines.md",
    ".kiro/steering/x.md",
    ".roo/rules/x.md",
    ".continue/config.yaml",
    ".opencode/agent/x.md",
    ".vibe/config.toml",
    ".npmrc",
    ".pnpmfile.cjs",
    "deep/.exrc",
    "deep/.vimrc",
    "deep/.dir-locals.el",
    "deep/.gdbinit",
    "deep/.lldbinit",
    "deep/.pdbrc",
    "deep/.irbrc",
    "deep/.Rprofile",
    "deep/.cargo/config.toml",
    "deep/.CARGO/config",
];

#[test]
fn names_that_other_programs_read_count_at_any_depth() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let make = NAMES_OF_OTHERS
        .iter()
        .map(|name| format!("mkdir -p \"$(dirname {name})\" && echo evil > {name}"))
        .collect::<Vec<_>>()
        .join("; ");
    let story = story();
    let text = run(&story, Some(&page), &[&make], &[]);
    assert!(text.contains("--allow startup"), "{text}");
    for name in NAMES_OF_OTHERS {
        assert!(!story.dir().join(name).exists(), "{name}: {text}");
    }
    drop(story);
    // Without content from outside they are written and told, and so are those that git had.
    let story = self::story();
    let text = run(
        &story,
        None,
        &[&make, "git add . && git commit -qm more && git checkout -q other"],
        &[],
    );
    assert!(text.contains("read on their own") && !text.contains("denied"), "{text}");
    drop(story);
    let story = self::story();
    run_as_user(
        &story,
        &format!("{make}; git add . && git commit -qm more && git checkout -q other"),
    );
    let text = run(&story, Some(&page), &["git checkout -q main"], &[]);
    assert!(!text.contains("denied"), "{text}");
    for name in NAMES_OF_OTHERS {
        assert!(story.dir().join(name).exists(), "{name}: {text}");
    }
    drop(story);
    // What scaffolds write beside them is work.
    let story = self::story();
    let scaffold = "mkdir -p .github/workflows .cargo src/bin && touch .github/workflows/ci.yml .cargo/audit.toml package.json \
                    config.toml copilot-instructions.md .gitignore .editorconfig && mv config.toml src/bin/";
    let text = run(&story, Some(&page), &[scaffold], &[]);
    assert!(!text.contains("denied"), "{text}");
    assert!(story.dir().join(".github/workflows/ci.yml").exists());
}

/// A branch `theirs` that changed the same instruction file as `main`, in another place, and a repository to pull from.
const TWO_SIDES: &str = "seq 9 > AGENTS.md && git add . && git commit -qm base && git checkout -q -b theirs \
    && sed -i 1s/1/one/ AGENTS.md && git commit -qam first && sed -i 9d AGENTS.md && git commit -qam last && git checkout -q main \
    && sed -i 5s/5/five/ AGENTS.md && git commit -qam ours && git clone -q . ../up && git -C ../up checkout -q theirs";

/// The check that both sides are in the work tree, and in the last commit.
const BOTH_SIDES: &str =
    "test \"$(tr '\\n' ' ' < AGENTS.md)\" = 'one 2 3 4 five 6 7 8 ' && git diff --quiet HEAD";

/// The check that the file is as it was on `main`.
const OUR_SIDE: &str = "test \"$(tr '\\n' ' ' < AGENTS.md)\" = '1 2 3 4 five 6 7 8 9 '";

#[test]
fn after_content_from_outside_a_merge_is_put_back_unless_git_could_fetch() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    for command in [
        "git merge -q --no-edit theirs",
        "git rebase -q theirs",
        "git cherry-pick theirs~1 theirs",
        "git pull -q --no-rebase --no-edit ../up theirs",
    ] {
        for flags in [&["--read", "../up"][..], &["--read", "../up", "--net"]] {
            let story = story();
            run_as_user(&story, TWO_SIDES);
            let text = run(&story, Some(&page), &[command], flags);
            if flags.contains(&"--net") {
                assert!(!text.contains("denied"), "{command}: {text}");
                assert!(text.contains("on their own: `AGENTS.md`"), "{command}: {text}");
                run_as_user(&story, BOTH_SIDES);
            } else {
                assert!(text.contains("--allow startup"), "{command}: {text}");
                run_as_user(&story, OUR_SIDE);
            }
        }
    }
}

#[test]
fn after_content_from_outside_a_merge_of_new_content_is_refused() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    for command in [
        "git merge -q --no-edit --no-commit theirs; echo evil >> AGENTS.md; git commit -qam merged",
        "git checkout -q -b evil theirs && echo evil >> AGENTS.md && git commit -qam evil && git checkout -q main && git merge -q evil",
        "git merge -q --no-edit theirs && sed -i 3d AGENTS.md",
        "git replace main:AGENTS.md $(echo evil | git hash-object -w --stdin); git merge -q --no-edit theirs; echo evil > AGENTS.md",
    ] {
        let story = story();
        run_as_user(&story, TWO_SIDES);
        let text = run(&story, Some(&page), &[command], &[]);
        assert!(text.contains("--allow startup"), "{command}: {text}");
        run_as_user(&story, OUR_SIDE);
    }
}

/// A file that the user saves while a command runs looks like a change of the command.
#[test]
fn what_is_put_back_is_kept_under_another_name() {
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = story();
    let fetch = calls("web_fetch", json!({ "url": page.url("/") }));
    let wait = "touch started; while [ ! -e saved ]; do :; done";
    let command = calls("exec", json!({ "command": wait }));
    story.server().script([fetch, command, says("done")]);
    let arguments = ["agent", "-m", "x", "--write"];
    let child = story.command(arguments).spawn().unwrap();
    until_exists(&story.dir().join("started"));
    std::fs::write(story.dir().join("CLAUDE.md"), "work of an hour").unwrap();
    std::fs::write(story.dir().join("saved"), "").unwrap();
    let result = story.wait(child);
    let text = result.stdout("done\n").error_text();
    let files = contents(&story.dir());
    assert_eq!(files["CLAUDE.md"], "mine\n");
    let set_aside = files.iter().find(|(name, _)| name.starts_with("CLAUDE.md.set-aside-"));
    let (name, content) = set_aside.unwrap();
    assert_eq!(content, "work of an hour");
    let last_content = story.requests()[2].last_content();
    assert!(
        last_content.contains(&format!("what was written there is in `{name}`")),
        "{last_content} {text}"
    );
}

/// A file that is too large to be recorded is compared nevertheless, and keeps its new content under another name.
#[test]
fn large_startup_files_are_renamed_only_if_they_change() {
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = story();
    let directory = story.dir().join(".claude");
    std::fs::create_dir(&directory).unwrap();
    for name in ["a.md", "b.md"] {
        std::fs::File::create(directory.join(name)).unwrap().set_len(20 << 20).unwrap();
    }
    let large_names = || {
        let entries = std::fs::read_dir(&directory).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let result = run(&story, Some(&page), &["true"], &[]);
    assert_eq!(large_names(), ["a.md", "b.md"], "{result}");
    let result = run(&story, Some(&page), &["echo x >> .claude/b.md"], &[]);
    let names = large_names();
    assert!(names.len() == 2 && names[1].starts_with("b.md.set-aside-"), "{names:?} {result}");
    let path = directory.join(&names[1]);
    assert_eq!(path.metadata().unwrap().len(), (20 << 20) + 2);
    let result = story.last_request().last_content();
    assert!(result.contains(&format!("renamed to `.claude/{}`", names[1])), "{result}");
}

#[test]
fn what_is_in_the_place_of_a_startup_file_is_kept() {
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = story();
    std::fs::write(story.dir().join("notes"), "work of an hour").unwrap();
    std::fs::create_dir(story.dir().join("sub")).unwrap();
    std::fs::write(story.dir().join("sub/AGENTS.md"), "mine\n").unwrap();
    let commands = ["rm CLAUDE.md; mkdir CLAUDE.md; cp notes CLAUDE.md", "rm -r sub; mv notes sub"];
    drop(run(&story, Some(&page), &commands, &[]));
    let files = contents(&story.dir());
    assert_eq!([&files["CLAUDE.md"], &files["sub/AGENTS.md"]], ["mine\n"; 2]);
    let is_kept = |start: &str| files.iter().any(|(name, _)| name.starts_with(start));
    assert!(is_kept("CLAUDE.md.set-aside-") && is_kept("sub.set-aside-"), "{files:?}");
}

#[test]
fn what_an_earlier_turn_prepared_in_git_is_not_what_git_had() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = story();
    // Not refused: nothing that starts by itself changes.
    let prepare = "git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),AGENTS.md";
    let text = run(&story, Some(&page), &[prepare], &["-s", "work"]);
    assert!(!text.contains("startup"), "{text}");
    let text = run(&story, None, &["git checkout -q -- AGENTS.md"], &["-s", "work"]);
    assert_eq!(text.matches("--allow startup").count(), 1, "{text}");
    assert!(!story.dir().join("AGENTS.md").exists());
    // In a new conversation it is the user's own repository.
    let text = run(&story, None, &["git checkout -q -- AGENTS.md"], &["-s", "next"]);
    assert!(text.contains("`AGENTS.md`") && !text.contains("--allow"), "{text}");
}

/// Between two turns, git is the user's: it does not matter that a page was read before.
#[test]
fn what_the_user_gives_to_git_between_two_turns_is_the_users() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let check = |between: &str, turns: &[(&[&str], &[&str])], test: &str| {
        let story = story();
        run_as_user(
            &story,
            "git clone -q . up && cd up && git checkout -q -b third && echo three > AGENTS.md && git add . \
             && git commit -qm three",
        );
        run(&story, Some(&page), &["true"], &["-s", "work"]);
        run_as_user(&story, between);
        for (commands, flags) in turns {
            let flags = [&["-s", "work"], *flags].concat();
            let text = run(&story, None, commands, &flags);
            assert!(!text.contains("denied"), "{between} {commands:?}: {text}");
        }
        run_as_user(&story, test);
        drop(story);
    };
    check(
        "echo mine >> src/AGENTS.md; git commit -qam mine",
        &[(&["git checkout -q -b work HEAD~1", "git checkout -q main"], &[])],
        "grep -q mine src/AGENTS.md && git diff --quiet",
    );
    check(
        "git fetch -q ./up third:third",
        &[(&["git checkout -q third"], &[])],
        "grep -q three AGENTS.md",
    );
    check("git gc -q", &[(&["git checkout -q other"], &[])], "grep -q two .envrc");
    check(
        "true",
        &[(&["git gc -q"], &[]), (&["git checkout -q other"], &[])],
        "grep -q two .envrc",
    );
    check("true", &[(&["git gc -q", "git checkout -q other"], &[])], "grep -q two .envrc");
    // What lies in the directory is the user's, too, also when a command has given it to git.
    check(
        "echo mine >> src/AGENTS.md",
        &[(&["git stash -q"], &[]), (&["git stash pop -q"], &[])],
        "grep -q mine src/AGENTS.md",
    );
    check(
        "echo mine >> src/AGENTS.md",
        &[
            (&["git commit -qam mine", "git checkout -q HEAD~1"], &[]),
            (&["git checkout -q main"], &[]),
        ],
        "grep -q mine src/AGENTS.md",
    );
    // The same content in another repository is another matter.
    check(
        "git init -q n && cp src/AGENTS.md n/other",
        &[
            (&["cd n; echo two > x; git add -A; git commit -qm x"], &[]),
            (&["git checkout -q other"], &[]),
        ],
        "grep -q two src/AGENTS.md",
    );
    // What the user allowed once is git's from then on.
    check(
        "true",
        &[
            (&["echo new | git hash-object -w --stdin"], &[]),
            (&["echo new > src/AGENTS.md; git commit -qam new"], &["--allow", "startup"]),
            (&["git checkout -q HEAD~1", "git checkout -q main"], &[]),
        ],
        "grep -q new src/AGENTS.md",
    );
    // What is fetched with network is what git has, also later.
    check(
        "true",
        &[(&["git fetch -q ./up third:third"], &["--net"]), (&["git checkout -q third"], &[])],
        "grep -q three AGENTS.md",
    );
}

#[test]
fn what_a_turn_gives_to_git_stays_known_whatever_becomes_of_the_turn_and_the_repository() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let check = |prepare: &str, between: &str, command: &str| {
        let story = story();
        let flags = ["-s", "work"];
        let text = run(&story, Some(&page), &[prepare], &flags);
        assert!(!text.contains("startup"), "{prepare}: {text}");
        run_as_user(&story, between);
        // Another conversation with content from outside takes nothing from there either.
        for (page, session) in [(None, "work"), (Some(&page), "other")] {
            let text = run(&story, page, &[command], &["-s", session]);
            assert!(text.contains("--allow startup"), "{between} {session}: {text}");
            let files = contents(&story.dir());
            let is_evil = |(name, text): (&String, &String)| {
                name.ends_with("AGENTS.md") && text.contains("evil")
            };
            assert!(!files.iter().any(is_evil), "{between}: {files:?}");
        }
        drop(story);
    };
    let commit = "git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),AGENTS.md; \
                  git commit -qm x; git reset -q --hard HEAD~1";
    let checkout = "git checkout -q HEAD@{1} -- AGENTS.md";
    check(commit, "true", checkout);
    check(commit, "git gc -q", checkout);
    // The turn was killed.
    check(commit, "sed -i '/^begin/!d' ~/.nanobot/git-objects && git gc -q", checkout);
    // The objects cannot be listed when the command has ended.
    check(&format!("{commit}; chmod 400 .git/objects/??"), "chmod 755 .git/objects/??", checkout);
    check(
        "git init -q e; cd e; git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),AGENTS.md",
        "true",
        "git -C e checkout -q -- AGENTS.md",
    );
}

/// Objects that are not where git puts them, or are listed by what git would not write.
#[test]
fn what_only_looks_like_an_object_of_git_is_not_what_git_had() {
    if !require("git") || !require("python3") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let check = |between: &str, prepare: &[&str], command: &str| {
        let story = story();
        run_as_user(&story, between);
        std::fs::write(story.dir().join("index.py"), FORGED_INDEX).unwrap();
        let text = run(&story, Some(&page), prepare, &["-s", "work"]);
        assert!(!text.contains("startup"), "{prepare:?}: {text}");
        let text = run(&story, None, &[command], &["-s", "work"]);
        assert!(text.contains("--allow startup"), "{prepare:?} {command}: {text}");
        for file in ["AGENTS.md", "h/AGENTS.md"] {
            assert!(!story.dir().join(file).exists(), "{prepare:?}");
        }
        drop(story);
    };
    let write = "echo evil > AGENTS.md";
    // The index of a pack that lists nothing, and yet has the name.
    check("true", &["python3 index.py 0 .git/objects/pack/pack-1.idx"], write);
    check("true", &["python3 index.py 1 .git/objects/pack/pack-1.idx"], write);
    // The user's index, overwritten in place.
    let overwrite = format!(
        "for i in .git/objects/pack/*.idx; do chmod u+w $i; python3 index.py 1 $i; done; {write}"
    );
    check("git gc -q", &["true"], &overwrite);
    check(
        "true",
        &["git init -q --bare o.x; echo evil | git --git-dir=o.x hash-object -w --stdin; \
           mkdir -p .git/objects/info; echo $PWD/o.x/objects > .git/objects/info/alternates"],
        write,
    );
    check(
        "true",
        &[
            "mv .git/objects objs; ln -s ../objs .git/objects; echo evil | git hash-object -w --stdin",
        ],
        write,
    );
    let linked = "h=$(echo evil | git hash-object --stdin); f=$(echo $h | cut -c 1-2); mkdir d; rm -rf .git/objects/$f; \
                  ln -s ../../d .git/objects/$f; echo x > d/$(echo $h | cut -c 3-)";
    check("true", &[linked], write);
    // A repository that was hidden at the end of the turn.
    let hidden = "git init -q h; cd h; echo evil | git hash-object -w --stdin; mv .git dotgit";
    check("true", &[hidden], "mv h/dotgit h/.git; echo evil > h/AGENTS.md");
    // The text of another repository.
    check(
        "git init -q third; echo evil > third/f; git -C third add f; git -C third commit -qm x",
        &[
            "mkdir -p .git/objects/info; echo $PWD/third/.git/objects > .git/objects/info/alternates",
        ],
        write,
    );
    // A repository that takes the place of another one.
    check(
        "git init -q b",
        &["git init -q a; echo evil | git -C a hash-object -w --stdin"],
        "mv b c; mv a b; echo evil > b/AGENTS.md; cp b/AGENTS.md .; mv b h",
    );
    // A repository that cannot be listed, and a command after it.
    check(
        "git init -q n; mkdir -p n/.git/objects",
        &[
            "echo evil | git hash-object -w --stdin; ln -s 01 n/.git/objects/01",
            "rm n/.git/objects/01",
        ],
        write,
    );
}

/// Writes the index of a pack with the name of the content `evil`, which it counts, or does not.
const FORGED_INDEX: &str = r#"
import hashlib, struct, sys
name = hashlib.sha1(b"blob 5\0evil\n").digest()
counts = [0] * name[0] + [1] * (255 - name[0]) + [int(sys.argv[1])]
open(sys.argv[2], "wb").write(b"\xfftOc\0\0\0\x02" + struct.pack(">256I", *counts) + name + bytes(100))
open(sys.argv[2][:-3] + "pack", "ab").close()
"#;

#[test]
fn the_user_grants_and_denies_changes_of_startup_files() {
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let write = "mkdir -p a; echo x > a/AGENTS.md; echo x > .envrc";
    let check = |page, flags: &[&str], is_written: bool| {
        let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
        let text = run(&story, page, &[write], flags);
        let dir = story.dir();
        let exist = [dir.join("a/AGENTS.md"), dir.join(".envrc")].map(|path| path.exists());
        assert_eq!(exist, [is_written; 2], "{flags:?}: {text}");
        assert_eq!(text.contains("changed what programs"), is_written, "{flags:?}: {text}");
        drop(story);
    };
    check(Some(&page), &[], false);
    check(Some(&page), &["--allow", "startup"], true);
    check(None, &[], true);
    check(None, &["--deny", "startup"], false);
    check(Some(&page), &["--profile", "auto-approve", "--net=127.0.0.2"], true);
}

/// A copy of another repository becomes a part of this one.
#[test]
fn a_nested_repository_can_be_made_plain_files() {
    if !require("git") {
        return;
    }
    let story = story();
    run_as_user(&story, "git clone -q . copy && git -C copy config core.abbrev 9");
    let text = run(&story, None, &["rm -rf copy/.git"], &["--strict"]);
    assert!(!text.contains("denied"), "{text}");
    assert!(!story.dir().join("copy/.git").exists());
    // One that takes its place is looked at like any new one.
    let plant = "git init -q copy && git -C copy config core.fsmonitor ./evil";
    let text = run(&story, None, &[plant], &[]);
    assert!(text.contains("core.fsmonitor"), "{text}");
    let config = std::fs::read_to_string(story.dir().join("copy/.git/config")).unwrap();
    assert!(!config.contains("fsmonitor"), "{config}");
}

/// A repository that a call has made is configured by the next one, as if it were one call.
#[test]
fn a_repository_that_a_call_has_made_is_configured_by_the_next() {
    if !require("git") {
        return;
    }
    let check = |set_up: &str, commands: &[&str], test: &str| {
        let story = Story::new().file("f", "x");
        run_as_user(&story, set_up);
        let text = run(&story, None, commands, &["--strict"]);
        assert!(!text.contains("denied"), "{commands:?}: {text}");
        run_as_user(&story, test);
        drop(story);
    };
    let configure = "git config user.email a@b.c && git remote add origin https://x.org/y && git add f && \
                     git commit -qm x && git branch -m trunk && git checkout -q -b b --track trunk";
    let is_configured =
        "git config branch.b.merge && git config user.email && git config remote.origin.url";
    check("true", &["git init -q", configure], is_configured);
    let inner = format!("cd n; cp ../f .; {configure}");
    check("git init -q", &["git init -q n", &inner], &format!("cd n; {is_configured}"));
    check(
        "git init -q && git add f && git commit -qm x",
        &["git worktree add -q w", "git worktree remove w"],
        "test ! -e w -a ! -e .git/worktrees/w",
    );
    // What runs programs is taken out again, and the repository that was there is closed.
    let story = story();
    for (directory, make) in [(".", "git worktree add -q w other"), ("n", "git init -q n")] {
        let evil = format!(
            "cd {directory}; git config core.fsmonitor ./evil; echo x > .git/hooks/post-commit"
        );
        let text = run(&story, None, &[make, &evil], &[]);
        assert_eq!(text.contains("core.fsmonitor"), directory == "n", "{text}");
        let git_dir = story.dir().join(directory).join(".git");
        let config = std::fs::read_to_string(git_dir.join("config")).unwrap();
        assert!(!config.contains("fsmonitor"), "{config}");
        assert!(!git_dir.join("hooks/post-commit").exists());
    }
}

/// A refusal names what can be granted, and the grant suffices.
#[test]
fn a_refusal_names_the_path_to_grant() {
    if !require("git") {
        return;
    }
    let check = |command: &str, grant: &str| {
        let story = story();
        run_as_user(&story, "git worktree add -q w other");
        let text = run(&story, None, &[command], &[]);
        let result = story.requests()[1].last_content();
        assert!(result.contains(&format!("--write={grant}`")), "{result} {text}");
        drop(story);
    };
    check("echo x > .git/hooks/pre-commit", ".git/hooks");
    check("git config core.hooksPath .husky", ".git/config");
    // A branch that changes other parts of the repository needs all of it.
    let story = story();
    let text = run(&story, None, &["git checkout -q other"], &["-C", "src"]);
    let result = story.requests()[1].last_content();
    let grant = format!("`--write={}`", story.dir().display());
    assert!(result.contains(&grant), "{result} {text}");
    let flags = ["-C", "src", &grant[1..grant.len() - 1]];
    let text =
        run(&story, None, &["git checkout -q other && git commit --allow-empty -qm x"], &flags);
    assert!(!text.contains("denied"), "{text}");
    drop(story);
    // Also a directory elsewhere, which can only be read.
    let story = Story::new();
    let side = story.home().join("side");
    std::fs::create_dir(&side).unwrap();
    let side = side.display();
    let command = format!("echo x > {side}/f");
    let text = run(&story, None, &[&command], &[&format!("--read={side}")]);
    let result = story.requests()[1].last_content();
    let grant = format!("`--write --write={side}`");
    assert!(result.contains(&grant), "{result} {text}");
}

/// In a repository of the user's, commands set up branches and the user's name; remotes unless content from outside is in the
/// conversation; and nothing that runs programs.
#[test]
fn commands_configure_branches_in_a_repository_that_was_there() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    for directory in [".", "down"] {
        let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
        run_as_user(
            &story,
            &format!(
                "mkdir ../up; (cd ../up; {SET_UP}) && git clone -q ../up {directory} && cd {directory} && git config alias.x '!echo'"
            ),
        );
        let config = story.dir().join(directory).join(".git/config");
        let read = || std::fs::read_to_string(&config).unwrap();
        let commands = "git checkout -q other && git branch -m main trunk && git config user.email a@b.c \
                        && git checkout -q -b new --track trunk";
        let text = run(&story, None, &[&format!("cd {directory}; {commands}")], &["--strict"]);
        assert!(!text.contains("denied"), "{text}");
        run_as_user(
            &story,
            &format!(
                "cd {directory} && test $(git config branch.other.remote) = origin \
             && test $(git config branch.new.merge) = refs/heads/trunk \
             && test $(git config branch.trunk.remote) = origin && test $(git config user.email) = a@b.c"
            ),
        );
        let configured = read();
        for evil in [
            "git config core.fsmonitor ./evil",
            "git config core.hooksPath .husky",
            "git config --unset alias.x",
            "git config branch.new.remote https://x.org/z",
            "git remote add z ext::./evil",
            "echo '[include] path = ../../x' >> .git/config",
            "git config user.email z; git config core.editor ./evil",
        ] {
            let text = run(&story, None, &[&format!("cd {directory}; {evil}")], &[]);
            assert!(text.contains("denied"), "{evil}: {text}");
            assert_eq!(read(), configured, "{evil}");
        }
        // After content from outside, also what git would fetch from or push to.
        for evil in [
            "git remote set-url origin https://x.org/z",
            "git remote add z https://x.org/z",
            "git config remote.pushDefault z",
            "git config extensions.worktreeConfig true; git config --worktree core.hooksPath x",
            "git config --file $(git rev-parse --git-dir)/config.worktree core.fsmonitor ./evil",
        ] {
            let text = run(&story, Some(&page), &[&format!("cd {directory}; {evil}")], &["--new"]);
            assert!(text.contains("denied"), "{evil}: {text}");
            assert_eq!(
                read().replace("[extensions]\n\tworktreeConfig = true\n", ""),
                configured,
                "{evil}"
            );
            let of_worktree = config.with_file_name("config.worktree");
            assert!(!of_worktree.exists(), "{evil}");
        }
        // Without any, that is reported.
        let add = format!("cd {directory}; git remote add z https://x.org/z");
        let text = run(&story, None, &[&add], &["--new"]);
        assert!(text.contains("on their own: `") && !text.contains("undo"), "{text}");
        assert!(read().contains("https://x.org/z"));
        let configured = read();
        // The place itself can be neither removed nor replaced.
        for evil in ["rm -f .git/config", "mv .git/config c", "ln -sf ../../x .git/config"] {
            run(&story, None, &[&format!("cd {directory}; {evil}")], &[]);
            assert_eq!(read(), configured, "{evil}");
        }
    }
}

/// Git reads remotes in files of their own too, as it did before they were in the config.
#[test]
fn commands_set_up_no_remote_outside_of_the_config() {
    if !require("git") {
        return;
    }
    for begin in ["mkdir -p .git/branches", "rm -rf .git/branches"] {
        let story = story();
        run_as_user(&story, begin);
        for evil in [
            "mkdir -p .git/remotes && echo 'URL: https://x.org/z' > .git/remotes/z",
            "mkdir -p .git/branches; echo https://x.org/z > .git/branches/z",
            "mv .git/branches b; mkdir .git/branches && echo https://x.org/z > .git/branches/z",
        ] {
            drop(run(&story, None, &[evil], &[]));
            run_as_user(&story, "test $(git ls-remote --get-url z) = z");
        }
        // What git makes itself is accepted.
        let text = run(&story, None, &["git init -q new && git clone -q . copy"], &["--strict"]);
        assert!(!text.contains("denied"), "{text}");
    }
}

/// The config itself changes after the command only: git outside must not run a program meanwhile.
#[test]
fn a_config_is_unchanged_while_the_command_runs() {
    if !require("git") {
        return;
    }
    let story = story();
    let config = story.dir().join(".git/config");
    let before = std::fs::read(&config).unwrap();
    let command = "git config core.fsmonitor ./evil; git config user.name x; touch made; while [ ! -e go ]; do sleep 0.01; done";
    story.server().script([calls("exec", json!({ "command": command })), says("done")]);
    let mut child = story
        .command(["agent", "-m", "x", "--write"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until_exists(&story.dir().join("made"));
    assert_eq!(std::fs::read(&config).unwrap(), before);
    std::fs::write(story.dir().join("go"), "").unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read(&config).unwrap(), before);
}

/// The reason of a refusal is not lost in a long output, for the user and for the model.
#[test]
fn a_refusal_begins_with_its_reason() {
    let command = "seq 1 400; echo 1 > .bashrc; echo compiled";
    let story =
        Story::new().script([calls("exec", json!({ "command": command })), says("Restored.")]);
    let run_result = story.run(["agent", "-m", "x", "--write"]).stdout("Restored.\n");
    let reason = "commands may not change `.bashrc`, so it was restored; tell the user";
    let stderr = run_result.error_text();
    let line = format!("denied: exec: the command ran, but {reason}");
    assert!(stderr.contains(&line) && !stderr.contains("399"), "{stderr}");
    let result = story.requests()[1].last_content();
    let (before, after) = result.split_once(reason).expect("the reason");
    assert!(before.len() < 40 && after.contains("\n\n1\n2\n"), "{result}");
    assert!(after.contains("compiled"), "{result}");
}

/// A git directory of the user's that was renamed and renamed back is no new one.
#[test]
fn a_repository_that_was_renamed_keeps_its_protection() {
    if !require("git") {
        return;
    }
    let page = PageServer::start(|_| page_response("text/plain", "words of another"));
    let story = Story::new().set("tools", json!({ "ssrfWhitelist": ["127.0.0.2/32"] }));
    run_as_user(
        &story,
        "mkdir -p a/b/c/d/e/lib && cd a/b/c/d/e/lib && git init -q && git remote add origin https://x.org/y",
    );
    let config = story.dir().join("a/b/c/d/e/lib/.git/config");
    let before = std::fs::read_to_string(&config).unwrap();
    let commands = [
        "cd a/b/c/d/e/lib; mv .git dotgit",
        "cd a/b/c/d/e/lib; mv dotgit .git",
        "cd a/b/c/d/e/lib; git remote set-url origin https://evil.example/x",
    ];
    run(&story, Some(&page), &commands, &[]);
    let after = std::fs::read_to_string(&config).unwrap();
    assert_eq!(after, before);
}
