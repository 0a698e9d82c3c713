//! New repositories with ordinary settings, which commands make every day.

use super::fixture::{SandboxFixture, print_count};
use crate::requirements::require;
use crate::situation::User;
use std::path::Path;

/// A command that makes a repository in `new`, and a setting that this must still have afterwards. `SRC` is a repository outside of the
/// directory that commands may read, `src` one within it.
const SETTINGS: &[(&str, &str)] = &[
    ("git clone -q --no-tags SRC new", "remote.origin.tagopt=--no-tags"),
    ("git clone -q --mirror SRC new", "remote.origin.mirror=true"),
    ("git clone -q --depth 1 file://SRC new", "remote.origin.url=file://SRC"),
    (
        "git clone -q --depth 1 file://$PWD/src new",
        "remote.origin.fetch=+refs/heads/main:refs/remotes/origin/main",
    ),
    (
        "git clone -q --filter=blob:none --sparse file://SRC new",
        "remote.origin.partialclonefilter=blob:none",
    ),
    ("git clone -q SRC new && git -C new sparse-checkout set a", "core.sparsecheckout=true"),
    ("git clone -q src new && git -C new remote set-url origin ../src", "remote.origin.url=../src"),
    ("git clone -q src 'a b' && git clone -q 'a b' new", "branch.main.merge=refs/heads/main"),
    ("git clone -q SRC one && mv one new", "remote.origin.url=SRC"),
    ("git clone -q SRC one && cp -r one new", "remote.origin.url=SRC"),
    (
        "git clone -q src new && git -C new checkout -q -b 'fix/#12' --track origin/main",
        "branch.fix/#12.merge=refs/heads/main",
    ),
    (
        "git init -q new && git -C new remote add up me@host:x/y.git",
        "remote.up.url=me@host:x/y.git",
    ),
    (
        "git init -q new && git -C new remote add up http://x.org:8080/y",
        "remote.up.url=http://x.org:8080/y",
    ),
    ("git init -q new && git -C new config push.default current", "push.default=current"),
    ("git init -q new && git -C new config push.autoSetupRemote true", "push.autosetupremote=true"),
    ("git init -q new && git -C new config fetch.prune true", "fetch.prune=true"),
    ("git init -q new && git -C new config commit.gpgsign false", "commit.gpgsign=false"),
    ("git init -q new && git -C new config core.fsmonitor false", "core.fsmonitor=false"),
    ("git init -q new && git -C new config color.ui always", "color.ui=always"),
    ("git init -q new && git -C new config rerere.enabled true", "rerere.enabled=true"),
    (
        "git init -q new && git -C new config merge.conflictstyle zdiff3",
        "merge.conflictstyle=zdiff3",
    ),
    ("git init -q new && git -C new config gc.auto 0", "gc.auto=0"),
    ("git init -q new && git -C new config submodule.recurse true", "submodule.recurse=true"),
    ("git init -q new && git -C new config user.name 'A \"B\" # C'", "user.name=A \"B\" # C"),
    (
        "git init -q new && cd new && git -c protocol.file.allow=always submodule --quiet add SRC lib && git submodule --quiet update --init",
        "submodule.lib.active=true",
    ),
];

#[test]
fn ordinary_settings_of_new_repositories_stay() {
    if !require("git") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let outside = fixture.outside_dir().join("theirs");
    let make = |path: &Path| {
        let mut shell = fixture.story.program("sh");
        let script = "git init -q -b main \"$1\" && cd \"$1\" && mkdir a && echo a > a/f && git add a && git -c user.name=a -c user.email=a@b \
                      commit -qm x && git config uploadpack.allowFilter true";
        let script_status = shell.args(["-c", script, "sh"]).arg(path).status();
        assert!(script_status.is_ok_and(|status| status.success()));
    };
    make(&outside);
    make(&fixture.story.dir().join("src"));
    let source = outside.display().to_string();
    let commands = SETTINGS.iter().map(|(command, setting)| {
        let command = command.replace("SRC", &source);
        let setting = setting.replace("SRC", &source);
        (command, setting)
    });
    let commands: Vec<(String, String)> = commands.collect();
    let mut runs = Vec::new();
    for (command, _) in &commands {
        // The settings are read in another call, after the check of the first one.
        runs.push(format!("rm -rf new one 'a b'; {command}"));
        runs.push("git -C new config --list".to_owned());
    }
    let outputs = fixture.run_commands(&["--write", &format!("--read={source}")], &runs);
    for ((command, setting), output) in commands.iter().zip(outputs.chunks(2)) {
        assert!(!output[0].contains("Exit code"), "{command}: {}", output[0]);
        assert!(
            !output[0].contains("taken out") && !output[0].contains("renamed"),
            "{command}: {}",
            output[0]
        );
        assert!(output[1].lines().any(|line| line == setting), "{command}: {}", output[1]);
    }
    print_count(&format!("sandbox: {} new repositories with their settings", commands.len()));
}

/// Only what could make git run a program is taken out, and the message says what and where the rest is.
#[test]
fn a_setting_that_runs_programs_is_taken_out() {
    if !require("git") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let outputs = fixture.run_commands(
        &["--write"],
        &[
            "git init -q new && git -C new config core.fsmonitor 'touch ran; false' && git -C new config user.name A",
            "git -C new status --short; git -C new config --list --local; ls new/.git",
        ],
    );
    assert!(
        outputs[0].contains("`core.fsmonitor = touch ran; false` in `new/.git/config`")
            || outputs[0].contains("`core.fsmonitor = \"touch ran; false\"` in `new/.git/config`"),
        "{}",
        outputs[0]
    );
    let whole = outputs[1].lines().find(|name| name.starts_with("config.set-aside-"));
    assert!(whole.is_some_and(|name| outputs[0].contains(name)), "{outputs:?}");
    assert!(
        outputs[1].contains("user.name=A") && !outputs[1].contains("fsmonitor"),
        "{}",
        outputs[1]
    );
    assert!(!fixture.story.dir().join("new/ran").exists());
}
