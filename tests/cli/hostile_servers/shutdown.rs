//! Servers that refuse to exit, and every way for our program to end. No process may be left.

use super::fixture::{HostileServer, TOOL_NAME};
use crate::server::calls;
use crate::wait::until_change_in;
use rustix::process::Signal;
use serde_json::json;

/// The call works, and the server and all its children end; [`HostileServer::turn`] checks for remaining processes.
fn assert_leaves_no_process(behaviour: &str) {
    if let Some(server) = HostileServer::new(behaviour) {
        server.turn();
        server.mcp(&["call", "hostile", "work", "{}"]);
        server.mcp(&["test", "hostile"]);
    }
}

#[test]
fn children_in_their_own_sessions_are_killed() {
    assert_leaves_no_process("offspring");
}

#[test]
fn a_server_that_ignores_all_signals_is_killed() {
    let Some(server) = HostileServer::new("undying") else {
        return;
    };
    server.turn().result_has("the work is done");
}

#[test]
fn a_server_that_kills_its_parent_leaves_no_process() {
    assert_leaves_no_process("kills-parent");
}

#[test]
fn a_server_with_a_hundred_children_leaves_no_process() {
    assert_leaves_no_process("forks");
}

/// A run whose server ignores its shutdown and has accepted the call; `end` then ends the run.
fn end_during_call(
    arguments: &[&str],
    end: impl FnOnce(&std::process::Child),
) -> Option<(HostileServer, i32)> {
    let server = HostileServer::new("clings")?.set("toolTimeout", json!(600));
    let server = server.set("startTimeout", json!(60));
    server.story.server().always(calls(TOOL_NAME, json!({})));
    let mut command = server.agent_command();
    let child = command.args(arguments).spawn().unwrap();
    until_change_in(server.state_file.parent().unwrap(), || {
        std::fs::read(&server.state_file).unwrap() == b"clings"
    });
    server.observe_processes(&child);
    assert!(server.remaining_processes().len() > 4, "{:?}", server.remaining_processes());
    end(&child);
    let result = server.story.wait(child);
    let code = result.code();
    result.text();
    result.error_text();
    drop(result);
    Some((server, code))
}

#[test]
fn a_signal_ends_all_server_processes() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        if let Some((server, ended)) =
            end_during_call(&[], |child| HostileServer::send_signal(child, signal))
        {
            assert_eq!(ended, code);
            server.assert_no_processes();
        }
    }
}

#[test]
fn the_run_deadline_ends_all_server_processes() {
    if let Some((server, ended)) = end_during_call(&["--timeout", "20s"], |_| {}) {
        assert_ne!(ended, 0);
        server.assert_no_processes();
    }
}

/// Only the supervisor process can do that.
#[test]
fn a_kill_of_the_program_ends_all_server_processes() {
    if let Some((server, ended)) =
        end_during_call(&[], |child| HostileServer::send_signal(child, Signal::KILL))
    {
        assert_eq!(ended, 137);
        server.wait_for_no_processes();
    }
}
