//! The shell of commands: bash where it exists, without start-up files; else sh. The model receives its name.

use super::fixture::SandboxFixture;
use crate::requirements::{require, skip};
use crate::server::{calls, says};
use crate::situation::{User, available_users};
use crate::story::{Story, write};
use serde_json::{Value, json};

/// Commands in the language of bash, and the end of their output.
const SCENES: [(&str, &str); 16] = [
    ("[[ abc == a* ]] && echo same", "same"),
    ("[[ v12 =~ ^v([0-9]+)$ ]] && echo \"${BASH_REMATCH[1]}\"", "12"),
    ("files=(one 'two three'); files+=(four); echo \"${#files[@]} ${files[1]}\"", "3 two three"),
    ("declare -A age=([ada]=36); echo ${age[ada]}", "36"),
    ("diff <(printf 'a\\nb\\n') <(printf 'a\\nc\\n') | tail -1", "> c"),
    (
        "echo x | tee >(cat > $TMPDIR/t) > /dev/null; until cat $TMPDIR/t 2> /dev/null | grep x; do :; done",
        "x",
    ),
    ("echo 'who() { echo \"$1\"; }' > $TMPDIR/lib.sh; source $TMPDIR/lib.sh; who me", "me"),
    ("set -o pipefail; false | true; echo $?", "1"),
    ("set -euo pipefail; echo strict", "strict"),
    ("echo -e 'a\\tb'", "a\tb"),
    ("echo {1..3} a{b,c}", "1 2 3 ab ac"),
    ("ls /no-such-file &> $TMPDIR/log; grep -c such $TMPDIR/log", "1"),
    ("while read -r line; do echo \"<$line>\"; done <<< 'here'", "<here>"),
    ("for ((i = 0; i < 3; i++)); do printf $i; done", "012"),
    ("word=hello; echo ${word^} ${word//l/L} ${word:1:3} $'it\\'s'", "Hello heLLo ell it's"),
    ("mapfile -t lines < <(seq 3); echo ${lines[2]} $(( RANDOM >= 0 ))", "3 1"),
];

#[test]
fn commands_are_in_the_language_of_bash() {
    if !require("bash") {
        return;
    }
    let commands = SCENES.map(|(command, _)| command);
    for user in available_users() {
        let mut results = vec![SandboxFixture::new(user).run_commands(&[], &commands)];
        results.push(SandboxFixture::new(user).run_commands(&["--write"], &commands));
        results.push(SandboxFixture::new(user).without_namespaces().run_commands(&[], &commands));
        results.push(SandboxFixture::new(user).run_commands(&["--sandbox", "off"], &commands));
        for output in results {
            for ((command, expect), output) in SCENES.iter().zip(output) {
                assert_eq!(&output, expect, "{user:?}: {command}");
            }
        }
    }
}

/// The description of `exec` and the system prompt of a request.
fn exec_description_and_prompt(request: &Value) -> (String, String) {
    let tools = request["tools"].as_array().unwrap();
    let exec = tools.iter().map(|tool| &tool["function"]).find(|tool| tool["name"] == "exec");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&exec.unwrap()["description"]), text(&request["messages"][0]["content"]))
}

#[test]
fn the_model_knows_the_shell() {
    if !require("bash") {
        return;
    }
    let fixture = SandboxFixture::new(User::Current);
    let outputs =
        fixture.run_commands(&[], &["echo x > here", "no-such-program", "echo $0 $SHELL"]);
    assert!(outputs[0].starts_with("bash: line 1: here: Read-only file system\n"), "{outputs:?}");
    assert!(
        outputs[1].starts_with("bash: line 1: no-such-program: command not found\n"),
        "{outputs:?}"
    );
    assert_eq!(outputs[2], "bash /bin/bash");
    let (description, prompt) = exec_description_and_prompt(&fixture.story.requests()[0].body);
    assert!(description.starts_with("Run a command with bash in "), "{description}");
    assert!(prompt.contains("Commands run with bash in a kernel sandbox: "), "{prompt}");
}

#[test]
fn without_bash_commands_run_with_sh() {
    let hide = "for bash in /bin/bash /usr/bin/bash /usr/local/bin/bash; do [ ! -x $bash ] || \
                mount --bind /dev/null $bash || exit 1; done; exec \"$@\"";
    let unshare = ["unshare", "-Urm", "sh", "-c", hide, "sh"];
    let mut tried = std::process::Command::new("unshare");
    if !tried.args(&unshare[1..]).arg("true").output().is_ok_and(|tried| tried.status.success()) {
        skip("there are no namespaces of mounts");
        return;
    }
    let fixture = SandboxFixture::new(User::Current).with_wrapper(&unshare);
    let commands = ["echo $0 $SHELL; echo x > here", "[ a = a ] && cat $TMPDIR/../x"];
    let outputs = fixture.run_commands(&[], &commands);
    assert!(outputs[0].starts_with("sh /bin/sh\nsh: "), "{outputs:?}");
    let (description, prompt) = exec_description_and_prompt(&fixture.story.requests()[0].body);
    assert!(description.starts_with("Run a command with sh in "), "{description}");
    assert!(prompt.contains("Commands run with sh in a kernel sandbox: "), "{prompt}");
}

#[test]
fn the_shell_reads_no_start_up_file() {
    if !require("bash") {
        return;
    }
    let names = ["BASH_ENV", "ENV", "POSIXLY_CORRECT", "SHELLOPTS", "BASHOPTS", "BASH_FUNC_ls%%"];
    let story = Story::new().set("tools.exec.allowedEnvKeys", json!(names));
    for name in [".bashrc", ".bash_profile", ".profile", "env"] {
        write(&story.home().join(name), b"echo started\n");
    }
    let env = story.home().join("env");
    let mut story = story.env("BASH_FUNC_ls%%", "() { echo ours; }").env("POSIXLY_CORRECT", "1");
    story = story.env("BASH_ENV", env.to_str().unwrap()).env("ENV", env.to_str().unwrap());
    story = story.env("SHELLOPTS", "xtrace:noglob").env("BASHOPTS", "failglob");
    let command = json!({ "command": "echo ${POSIXLY_CORRECT-unset} <(:) * $(ls)" });
    for sandbox in ["auto", "off"] {
        story.server().script([calls("exec", command.clone()), says("done")]);
        story.run(["agent", "-m", "go", "--ephemeral", "--sandbox", sandbox]).stdout("done\n");
        let content = story.last_request().last_content();
        assert_eq!(content, "unset /dev/fd/63 *", "{sandbox}");
    }
}

/// A command in the background, and a command that is longer than an argument may be.
#[test]
fn all_ways_to_start_a_command_use_bash() {
    if !require("bash") {
        return;
    }
    let story = Story::new();
    let long = format!("a=(1 2); echo ${{a[1]}} $0 # {}", "x".repeat(132_000));
    let process = |id: &str| ("process", json!({ "id": id, "wait": 60, "end": true }));
    let list = [
        ("exec", json!({ "command": "a=(1 2); cat; echo ${a[1]} $0", "background": true })),
        process("a1-1"),
        ("exec", json!({ "command": long, "background": true })),
        process("a1-2"),
        ("exec", json!({ "command": long })),
    ];
    let script = list.into_iter().map(|(name, arguments)| calls(name, arguments));
    story.server().script(script.chain([says("done")]));
    story.run(["agent", "-m", "go", "--ephemeral"]).stdout("done\n");
    let requests = story.requests();
    let contents: Vec<String> = requests[1..].iter().map(|it| it.last_content()).collect();
    assert_eq!(contents[1], "2 bash\nExited with status 0", "{contents:?}");
    assert_eq!(contents[3], "2 bash\nExited with status 0", "{contents:?}");
    assert_eq!(contents[4], "2 bash", "{contents:?}");
}
