//! A leading `~` is the home directory, also where a shell leaves it as it is: `--write=~/notes`, `-c=~/c.json`, variables.

use crate::server::{calls_all, says};
use crate::story::{Story, write};
use clap::builder::ValueParser;
use nanobot::command::tree::command_tree;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Arguments that are no paths of the file system, or whose command expands them because other words follow.
const OTHERS: [(&str, &str); 2] = [("show", "file"), ("run", "file")];

/// Adds the arguments of `command` and of its subcommands that take a path, with the name of their command.
fn path_arguments(command: &clap::Command, list: &mut Vec<(String, clap::Arg)>) {
    for argument in command.get_arguments() {
        let names = argument.get_value_names().unwrap_or_default();
        let mut names = names.iter().flat_map(|name| name.split('|'));
        let is_path = argument.get_value_parser().type_id() == ValueParser::path_buf().type_id();
        let is_other = OTHERS.contains(&(command.get_name(), argument.get_id().as_str()));
        if (is_path || names.any(|name| ["FILE", "DIR", "PATH"].contains(&name))) && !is_other {
            list.push((command.get_name().to_owned(), argument.clone()));
        }
    }
    for command in command.get_subcommands() {
        path_arguments(command, list);
    }
}

#[test]
fn every_argument_that_takes_a_path_expands_the_home() {
    let mut tree = command_tree();
    tree.build();
    let mut arguments = Vec::new();
    path_arguments(&tree, &mut arguments);
    assert!(arguments.len() > 40, "{}", arguments.len());
    let home = std::env::home_dir().unwrap();
    let mut literal = Vec::new();
    for (command, argument) in arguments {
        let parser = argument.get_value_parser().clone();
        let parse = |text: &'static str| {
            let value = clap::Arg::new("value").value_parser(parser.clone());
            let matches = clap::Command::new("test").arg(value).get_matches_from(["test", text]);
            let path = matches.try_get_one::<PathBuf>("value").ok().flatten().cloned();
            let other = || matches.try_get_one::<OsString>("value").ok()?.map(PathBuf::from);
            path.or_else(other).unwrap_or_else(|| text.into())
        };
        if argument.get_id() == "skill" || command == "check" && argument.get_id() == "name" {
            // A name or a directory, of which only the command knows which; see below.
            continue;
        }
        if [parse("~/a"), parse("~"), parse("./~"), parse("~a")]
            != [home.join("a"), home.clone(), "./~".into(), "~a".into()]
        {
            literal.push(format!("{command}: {argument}"));
        }
    }
    assert!(literal.is_empty(), "{literal:#?}");
}

/// The story's home and directory have no entry that is called `~`.
fn assert_no_tilde(story: &Story) {
    for directory in [story.dir(), story.home()] {
        assert!(!directory.join("~").exists(), "{}", directory.display());
    }
}

#[test]
fn flags_of_a_turn_expand_the_home() {
    let story = Story::new();
    let home = story.home();
    for (path, text) in [("notes/a", "to read"), ("f.txt", "attached"), ("c/x.txt", "in c")] {
        write(&home.join(path), text.as_bytes());
    }
    std::fs::create_dir(home.join("out")).unwrap();
    std::fs::copy(home.join(".nanobot/config.json"), home.join("c.json")).unwrap();
    write(&home.join("s.json"), br#"{"type":"object","properties":{"a":{"type":"string"}}}"#);
    story.server().script([
        calls_all([
            ("read_file", json!({ "path": home.join("notes/a") })),
            ("write_file", json!({ "path": home.join("out/b"), "content": "written" })),
            ("list_dir", json!({ "path": "." })),
        ]),
        says(r#"{"a":"done"}"#),
    ]);
    let flags = [
        "-c=~/c.json",
        "--workspace=~/ws",
        "agent",
        "-m",
        "go",
        "--read=~/notes",
        "--write=~/out",
        "-a=~/f.txt",
        "-C=~/c",
        "--record=~/r.jsonl",
        "--schema=~/s.json",
        "--ephemeral",
    ];
    let result = story.run(flags);
    result.stdout("{\"a\":\"done\"}\n").stderr_has("there is no workspace `$HOME/ws` yet");
    let requests = story.requests();
    assert!(requests[0].body.to_string().contains("attached"));
    let body = requests[1].body.to_string();
    assert!(body.contains("to read") && body.contains("x.txt"), "{body}");
    assert_eq!(std::fs::read_to_string(home.join("out/b")).unwrap(), "written");
    assert!(home.join("r.jsonl").is_file() && home.join("ws").is_dir());
    assert_no_tilde(&story);
}

#[test]
fn a_prompt_file_and_its_paths_expand_the_home() {
    let story = Story::new();
    write(&story.home().join("p.md"), b"---\nread: ~/notes\ntools: read_file\n---\nread it\n");
    write(&story.home().join("notes/a"), b"to read");
    story.run(["trust", "~/p.md"]).stdout_has("");
    let path = story.home().join("notes/a");
    let call = ("read_file", json!({ "path": path }));
    story.server().script([calls_all([call]), says("done")]);
    story.run(["run", "~/p.md"]).stdout("done\n");
    assert_eq!(story.requests()[1].last_content(), "1| to read");
    write(
        &story.home().join("skills/sk/SKILL.md"),
        b"---\nname: sk\ndescription: d\n---\nUse a valve.\n",
    );
    story.run(["skill", "check", "~/skills/sk"]).stdout_has("ok");
    let dry_run = ["agent", "--dry-run", "-m", "x", "--skill=~/skills/sk"];
    drop(story.run(dry_run).stdout_has("Use a valve.").error_text());
    assert_no_tilde(&story);
}

#[test]
fn variables_and_keys_expand_the_home() {
    let story = Story::new();
    let home = story.home();
    std::fs::rename(home.join(".nanobot"), home.join("nb")).unwrap();
    write(&home.join("programs/mine"), b"#!/bin/sh\necho mine\n");
    let mine = home.join("programs/mine");
    std::fs::set_permissions(mine, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let story = story
        .env("NANOBOT_HOME", "~/nb")
        .env("NANOBOT_AGENTS__DEFAULTS__WORKSPACE", "~/ws")
        .env("NANOBOT_TOOLS__EXEC__PATH_PREPEND", "/first:~/programs")
        .env("NANOBOT_LOG", "~/events.jsonl");
    story
        .server()
        .script([calls_all([("exec", json!({ "command": "echo $PATH" }))]), says("done")]);
    story.run(["agent", "-m", "go"]).stdout("done\n");
    let path = story.requests()[1].last_content();
    let expect = format!("/first:{}:", home.join("programs").display());
    assert!(path.starts_with(&expect), "{path}");
    assert!(home.join("ws/sessions").is_dir() && home.join("events.jsonl").is_file());
    story.run(["config", "path"]).stdout("$HOME/nb/config.json\n");
    assert!(!Path::new(&home.join(".nanobot")).exists());
    assert_no_tilde(&story);
}
