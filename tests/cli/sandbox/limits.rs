//! The resource limits of commands and MCP servers.

use super::fixture::SandboxFixture;
use crate::requirements::require;
use crate::server::{calls, says};
use crate::situation::{Situation, User, available_users};
use crate::story::Story;
use serde_json::json;

/// The number of the system call that sets limits.
const PRLIMIT64: i64 = if cfg!(target_arch = "aarch64") { 261 } else { 302 };

/// The limit in force in a table of `/proc/PID/limits`.
fn limit(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {table}")).split_whitespace().next()?.parse().ok()
}

fn assert_limits(table: &str) {
    assert_eq!(limit(table, "Max file size"), Some(4 << 30), "{table}");
    assert!(limit(table, "Max processes").is_some_and(|count| count < 1_000_000), "{table}");
    assert_eq!(limit(table, "Max address space"), None, "{table}");
}

#[test]
fn commands_and_their_children_have_limits() {
    for user in available_users() {
        let fixture = SandboxFixture::new(user);
        let outputs =
            fixture.run_commands(&[], &["cat /proc/self/limits", "sh -c 'cat /proc/self/limits'"]);
        outputs.iter().for_each(|table| assert_limits(table));
        let script =
            "sh -c 'ulimit -f unlimited' || echo no; truncate -s 5G $TMPDIR/large || echo none";
        let outputs = fixture.run_commands(&[], &[script]);
        assert!(outputs[0].contains("no\n") && outputs[0].contains("none"), "{}", outputs[0]);
    }
}

/// A lower limit that nanobot was started with counts.
#[test]
fn lower_inherited_limits_stay() {
    let fixture = SandboxFixture::new(User::Current).with_wrapper(&[
        "sh",
        "-c",
        "ulimit -f 100000; exec \"$0\" \"$@\"",
    ]);
    let outputs = fixture.run_commands(&[], &["cat /proc/self/limits"]);
    assert_eq!(limit(&outputs[0], "Max file size"), Some(100_000 * 512), "{}", outputs[0]);
}

#[test]
fn mcp_servers_have_limits() {
    let story = Story::new();
    let dir = story.home().join("limits");
    std::fs::create_dir(&dir).unwrap();
    let story = story.set(
        "tools.mcpServers.s",
        json!({
            "command": "/bin/sh", "args": ["-c", "cat /proc/self/limits > limits"],
            "cwd": dir, "write": [dir],
        }),
    );
    story.run(["tool", "run", "s", "x"]).status(69).stderr_has("MCP server `s`");
    assert_limits(&std::fs::read_to_string(dir.join("limits")).unwrap());
}

/// Python script that executes its remaining arguments on a system that refuses to set limits, in each of its processes.
const REFUSE_LIMITS_SCRIPT: &str = "
import ctypes, os, struct, sys
at = 32
steps = [(0x20,0,0,0), (0x15,0,5,int(sys.argv[1])), (0x20,0,0,at), (0x15,0,2,0), (0x20,0,0,at+4), (0x15,1,0,0),
    (0x06,0,0,0x50000|1), (0x06,0,0,0x7fff0000)]
code = b''.join(struct.pack('HBBI', *step) for step in steps)
place = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(place))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[2], sys.argv[2:])
";

/// The limit that cannot be set is named, and nothing runs.
#[test]
fn a_limit_that_cannot_be_set_is_an_error() {
    if !require("python3") {
        return;
    }
    let number = PRLIMIT64.to_string();
    for has_namespaces in [true, false] {
        let mut fixture = SandboxFixture::new(User::Current);
        if !has_namespaces {
            fixture = fixture.without_namespaces();
        }
        let fixture = fixture.with_wrapper(&["python3", "-c", REFUSE_LIMITS_SCRIPT, &number]);
        let outputs = fixture.run_commands(&[], &["echo ran"]);
        let expect = if has_namespaces {
            "cannot set `Max file size`"
        } else {
            "the limits of the sandbox cannot be set"
        };
        assert!(outputs[0].contains(expect) && !outputs[0].contains("ran"), "{}", outputs[0]);
    }
}

#[test]
fn memory_is_limited_where_the_config_says_so() {
    if !require("python3") {
        return;
    }
    for user in available_users() {
        for has_namespaces in [true, false] {
            let story = Story::new()
                .set("tools.exec.memory", json!(256))
                .env("TMPDIR", "/var/tmp")
                .script([
                    calls(
                        "exec",
                        json!({ "command": "python3 -c 'len(bytes(64 << 20)); print(1)'" }),
                    ),
                    calls(
                        "exec",
                        json!({ "command": "python3 -c 'len(bytes(900 << 20)); print(2)'" }),
                    ),
                    says("done"),
                ]);
            let mut command = Situation { user, has_namespaces }.command(&story, &[]);
            command.args(["agent", "-m", "x", "--ephemeral"]);
            story.wait(command.spawn().unwrap()).stdout("done\n");
            let requests = story.requests();
            assert_eq!(requests[1].last_content(), "1", "{user:?} {has_namespaces}");
            let second = requests[2].last_content();
            assert!(
                second.contains("MemoryError") || second.contains("Killed"),
                "{user:?} {has_namespaces}: {second}"
            );
        }
    }
}

/// `policy check` reads every limit back.
#[test]
fn the_self_test_reads_the_limits() {
    for has_namespaces in [true, false] {
        let story = Story::new().set("tools.exec.memory", json!(512));
        let mut command = Situation { user: User::Current, has_namespaces }.command(&story, &[]);
        command.args(["policy", "check"]);
        let text = story.wait(command.spawn().unwrap()).text();
        for line in [
            "ok      a command cannot write a file without a limit of its size: limited to 4096 MiB",
            "ok      a command cannot start processes without a limit of their number: limited to ",
            "ok      a command cannot use memory without a limit: limited to 512 MiB",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
