//! `--allow signing`: git in the sandbox signs commits and tags with the user's key, and nothing else.

use super::fixture::SandboxFixture;
use crate::requirements::require;
use crate::situation::{User, available_users};
use crate::story::{Story, write};
use std::process::Command;

/// Runs a command of the user in `directory`, and returns its output.
fn run_as_user(story: &Story, command: &str) -> String {
    let output = story.program("sh").args(["-c", command]).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command}: {text}");
    text
}

const ALLOWED: &[&str] = &["--write", "--allow", "signing"];
const COMMIT: &str =
    "git init -q . && git commit -S -q --allow-empty -m one && git tag -s v1 -m first && echo done";

/// A user with a key in this format, or `None` if its program is missing.
fn with_key(format: &str, user: User) -> Option<SandboxFixture> {
    let program = if format == "ssh" { "ssh-keygen" } else { "gpg" };
    if !require(program) || !require("git") {
        return None;
    }
    let fixture = SandboxFixture::new(user);
    let home = fixture.story.home();
    let mut config =
        format!("[user]\n name = A\n email = a@example.org\n[gpg]\n format = {format}\n");
    let make = match format {
        "ssh" => {
            config += "[user]\n signingkey = ~/.ssh/sign\n[gpg \"ssh\"]\n allowedSignersFile = ~/signers\n";
            "mkdir -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/sign && \
             echo \"a@example.org $(cat ~/.ssh/sign.pub)\" > ~/signers"
        }
        _ => {
            "mkdir -m 700 ~/.gnupg && gpg --batch --quiet --passphrase '' --quick-gen-key 'A <a@example.org>' ed25519 sign never"
        }
    };
    write(&home.join(".gitconfig"), config.as_bytes());
    run_as_user(&fixture.story, make);
    Some(fixture)
}

fn end_agents(story: &Story) {
    // There may be none.
    let mut end: Command = story.program("gpgconf");
    drop(end.args(["--kill", "all"]).output());
}

#[test]
fn git_signs_commits_and_tags_with_the_users_key() {
    for user in available_users() {
        for format in ["openpgp", "ssh"] {
            let Some(fixture) = with_key(format, user) else {
                continue;
            };
            let outputs = fixture.run_commands(ALLOWED, &[COMMIT]);
            let key = if format == "ssh" { "~/.ssh/sign" } else { "a@example.org" };
            let lines = format!(
                "done\n(signed the commit `one` with {format} key `{key}`)\n(signed the tag `v1` with {format} key `{key}`)"
            );
            assert_eq!(outputs, [lines], "{user:?}");
            let verify = "git -c safe.directory='*' verify-commit HEAD && git -c safe.directory='*' verify-tag v1";
            run_as_user(&fixture.story, verify);
            end_agents(&fixture.story);
        }
    }
}

#[test]
fn without_the_grant_one_line_says_what_is_missing() {
    for format in ["openpgp", "ssh"] {
        let Some(fixture) = with_key(format, User::Current) else {
            continue;
        };
        for flags in [
            &["--write"][..],
            &["--write", "--profile", "auto-approve"],
            &["--write", "--allow", "*"],
            &["--write", "--allow", "sign*"],
            &["--write", "--allow", "signing", "--deny", "signing"],
        ] {
            let outputs = fixture.run_commands(flags, &[COMMIT]);
            let last = outputs[0].lines().last().unwrap_or_default();
            assert!(last.contains("`--allow signing`"), "{flags:?}: {outputs:?}");
        }
        run_as_user(&fixture.story, "! git -c safe.directory='*' log HEAD 2>&1");
        end_agents(&fixture.story);
    }
}

#[test]
fn nothing_but_commits_and_tags_is_signed() {
    let Some(fixture) = with_key("openpgp", User::Current) else {
        return;
    };
    let sign = "$(git config gpg.program) --status-fd=2 -bsau x";
    let id = "0123456789012345678901234567890123456789";
    let person = "A <a@b> 1700000000 +0000";
    let head = format!("tree {id}\\nauthor {person}\\ncommitter {person}\\n");
    let tag = format!("object {id}\\ntype commit\\ntag v1\\ntagger {person}\\n");
    let commands = [
        format!("printf 'I owe you 100 euros' | {sign}"),
        format!("printf '{head}{head}\\nm\\n' | {sign}"),
        format!("printf '{head}{tag}\\nm\\n' | {sign}"),
        format!("head -c 2000000 /dev/zero | {sign}"),
        "echo x > $TMPDIR/p; $(git config gpg.ssh.program) -Y sign -n file -f k $TMPDIR/p; cat $TMPDIR/p.sig".to_owned(),
        format!(
            "printf '{head}\\nm\\n' > $TMPDIR/p; $(git config gpg.ssh.program) -Y sign -n git -f k $TMPDIR/p; cat $TMPDIR/p.sig"
        ),
        "echo $NANOBOT_SIGNING > $TMPDIR/old; ls $NANOBOT_SIGNING > /dev/null && echo here".into(),
        format!("printf '{head}\\nm\\n' | NANOBOT_SIGNING=$(cat $TMPDIR/old) {sign}"),
        "ls ~/.gnupg ~/.ssh".into(),
    ];
    let outputs = fixture.run_commands(ALLOWED, &commands);
    for (command, output) in commands.iter().zip(&outputs) {
        assert!(
            !output.contains("SIGNATURE") && !output.contains("(signed"),
            "{command}: {output}"
        );
        assert!(
            output.contains("not signed") || output == "here" || output.contains("No such file"),
            "{command}: {output}"
        );
    }
    end_agents(&fixture.story);
}

/// A repository names programs and keys, without effect.
#[test]
fn a_repository_chooses_neither_program_nor_key() {
    let Some(fixture) = with_key("openpgp", User::Current) else {
        return;
    };
    let evil = fixture.story.dir().join("evil");
    crate::story::write_program(&evil, "#!/bin/sh\ntouch ~/owned\nexit 1\n");
    run_as_user(
        &fixture.story,
        "git init -q . && git config gpg.program ./evil && git config gpg.openpgp.program ./evil && \
         git config user.signingkey other@example.org",
    );
    let outputs = fixture.run_commands(ALLOWED, &["git commit -S -q --allow-empty -m one"]);
    assert!(
        outputs[0].contains("signed the commit `one` with openpgp key `a@example.org`"),
        "{outputs:?}"
    );
    assert!(!fixture.story.home().join("owned").exists());
    let outputs = fixture.run_commands(
        ALLOWED,
        &["git -c gpg.format=ssh -c user.signingkey=x commit -S -q --allow-empty -m two"],
    );
    assert!(
        outputs[0].contains("not signed: the user's git config signs with openpgp"),
        "{outputs:?}"
    );
    end_agents(&fixture.story);
}

/// `PATH` and the user's git config lead into what the run may change, or are in it.
#[test]
fn nothing_that_the_run_wrote_signs() {
    for user in available_users() {
        for (format, program) in [("ssh", "ssh-keygen"), ("openpgp", "gpg")] {
            let Some(mut fixture) = with_key(format, user) else {
                continue;
            };
            let path =
                format!("{}/bin:/usr/local/bin:/usr/bin:/bin", fixture.story.dir().display());
            fixture.story = fixture.story.env("PATH", &path);
            let home = fixture.story.home();
            let mut config = std::fs::read_to_string(home.join(".gitconfig")).unwrap();
            let linked = fixture.story.dir().join("bin/linked");
            config += &format!("[include]\n path = {}/more\n", fixture.story.dir().display());
            write(&home.join(".gitconfig"), config.as_bytes());
            let plant = format!(
                "mkdir bin && printf '#!/bin/sh\\ntouch {}/owned\\nexec /usr/bin/${{0##*/}} \"$@\"\\n' > bin/git && \
                 chmod +x bin/git && cp bin/git bin/{program} && cp bin/git {}; \
                 printf '[gpg]\\n program = {}\\n' > more; PATH=/usr/bin:/bin; {COMMIT}",
                home.display(),
                linked.display(),
                linked.display(),
            );
            let outputs = fixture.run_commands(ALLOWED, &[plant]);
            assert!(
                outputs[0].contains("(signed the commit `one`"),
                "{user:?} {format}: {outputs:?}"
            );
            assert!(!home.join("owned").exists(), "{user:?} {format}: {outputs:?}");
            end_agents(&fixture.story);
        }
    }
}

#[test]
fn commits_are_signed_where_the_home_is_writable() {
    for user in available_users() {
        for format in ["openpgp", "ssh"] {
            let Some(fixture) = with_key(format, user) else {
                continue;
            };
            let home = fixture.story.home().display().to_string();
            let flags = ["-C", &home, "--write", "--allow", "signing"];
            let outputs =
                fixture.run_commands(&flags, &[format!("mkdir src && cd src && {COMMIT}")]);
            assert!(outputs[0].contains("(signed the tag `v1`"), "{user:?} {format}: {outputs:?}");
            end_agents(&fixture.story);
        }
    }
}

#[test]
fn what_a_command_signs_before_it_is_ended_is_reported() {
    let Some(fixture) = with_key("ssh", User::Current) else {
        return;
    };
    for end in ["sleep 60", "kill -9 $$"] {
        let command = format!("rm -rf .git; {COMMIT}; {end}");
        let call = ("exec", serde_json::json!({ "command": command, "timeout": 5 }));
        let outputs = fixture.run_calls(ALLOWED, vec![call]);
        assert!(outputs[0].contains("(signed the commit `one`"), "{end}: {outputs:?}");
        assert!(outputs[0].contains("(signed the tag `v1`"), "{end}: {outputs:?}");
    }
}

/// A command makes the user's other config of git, which is removed after it: what signs meanwhile reads what was there before.
#[test]
fn a_config_that_a_command_has_made_does_not_count() {
    for user in available_users() {
        let Some(fixture) = with_key("openpgp", user) else {
            continue;
        };
        let home = fixture.story.home();
        std::fs::create_dir_all(home.join(".config/git")).unwrap();
        std::fs::rename(home.join(".gitconfig"), home.join(".config/git/config")).unwrap();
        let home_path = home.display().to_string();
        let outside = fixture.outside_dir();
        std::fs::create_dir(&outside).unwrap();
        // A shell takes `-bsau`, and the object as its script.
        let command = format!(
            "printf '[gpg]\n program = /bin/bash\n[user]\n name = a\n email = b\n' > ~/.gitconfig; mkdir src; cd src; \
             git init -q .; git commit -S -q --allow-empty -m 'touch {}/owned'; ls -d ~/.gitconfig",
            outside.display()
        );
        let flags = ["-C", &home_path, "--write", "--allow", "signing"];
        let outputs = fixture.run_commands(&flags, &[command]);
        assert!(outputs[0].contains(".gitconfig"), "{user:?}: {outputs:?}");
        assert!(!outside.join("owned").exists(), "{user:?}: {outputs:?}");
        assert!(outputs[0].contains("(signed the commit"), "{user:?}: {outputs:?}");
        end_agents(&fixture.story);
    }
}

/// The user's program waits, as for a passphrase.
#[test]
fn the_end_of_a_command_ends_a_signature_under_way() {
    if !require("git") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let home = fixture.story.home();
    let program = home.join("slow-gpg");
    let script = format!("#!/bin/sh\nsleep 30\ntouch {}/waited\n", home.display());
    crate::story::write_program(&program, &script);
    let config = format!(
        "[user]\n name = A\n email = a@example.org\n[gpg]\n program = {}\n",
        program.display()
    );
    write(&home.join(".gitconfig"), config.as_bytes());
    let call = ("exec", serde_json::json!({ "command": COMMIT, "timeout": 3 }));
    let outputs = fixture.run_calls(ALLOWED, vec![call]);
    assert!(outputs[0].contains("Timed out after 3 seconds"), "{outputs:?}");
    assert!(!home.join("waited").exists(), "the call waited for the signature");
}
