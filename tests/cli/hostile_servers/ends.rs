//! Servers that refuse to exit, and every way for our program to end. No process may be left.

use super::yard::{WORK, Yard};
use crate::server::calls;
use crate::wait::until_changed;
use rustix::process::Signal;
use serde_json::json;

/// The call works, and the server and all its children end; [`HostileServer::turn`] checks for remaining processes.
fn goes(behaviour: &str) {
    if let Some(yard) = Yard::new(behaviour) {
        yard.turn();
        yard.mcp(&["call", "hostile", "work", "{}"]);
        yard.mcp(&["test", "hostile"]);
    }
}

#[test]
fn children_in_sessions_of_their_own() {
    goes("offspring");
}

#[test]
fn one_that_ignores_all_that_can_be_ignored() {
    let Some(yard) = Yard::new("undying") else {
        return;
    };
    yard.turn().called("the work is done");
}

#[test]
fn one_that_kills_whoever_started_it() {
    goes("kills-parent");
}

#[test]
fn a_hundred_programs() {
    goes("forks");
}

/// A run whose server ignores its shutdown and has accepted the call; `end` then ends the run.
fn clings(arguments: &[&str], end: impl FnOnce(&std::process::Child)) -> Option<(Yard, i32)> {
    let yard = Yard::new("clings")?.set("toolTimeout", json!(600));
    let yard = yard.set("startTimeout", json!(60));
    yard.story.server().always(calls(WORK, json!({})));
    let mut command = yard.agent();
    let child = command.args(arguments).spawn().unwrap();
    until_changed(yard.state.parent().unwrap(), || {
        std::fs::read(&yard.state).unwrap() == b"clings"
    });
    yard.look(&child);
    assert!(yard.left().len() > 4, "{:?}", yard.left());
    end(&child);
    let ran = yard.story.wait(child);
    let code = ran.code();
    ran.text();
    ran.error_text();
    drop(ran);
    Some((yard, code))
}

#[test]
fn signals_end_it_all() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        if let Some((yard, ended)) = clings(&[], |child| Yard::signal(child, signal)) {
            assert_eq!(ended, code);
            yard.is_over();
        }
    }
}

#[test]
fn the_deadline_of_the_run_ends_it_all() {
    if let Some((yard, ended)) = clings(&["--timeout", "20s"], |_| {}) {
        assert_ne!(ended, 0);
        yard.is_over();
    }
}

/// Only the supervisor process can do that.
#[test]
fn a_kill_ends_it_all() {
    if let Some((yard, ended)) = clings(&[], |child| Yard::signal(child, Signal::KILL)) {
        assert_eq!(ended, 137);
        yard.is_over_soon();
    }
}
