//! The commands of the README: each is run as it stands there, against a scripted provider.

use crate::channel::telegram_story;
use crate::requirements::require;
use crate::server::{Responder, calls, says};
use crate::story::{NANOBOT, Story, write};
use serde_json::json;

/// Commands that other tests run: the start of the line, and the test.
const RUN_ELSEWHERE: &[(&str, &str)] = &[
    ("cargo run ", ".ci/release"),
    ("cargo test ", ".ci/run"),
    (
        "cargo install ",
        ".ci/package/try, with a program that is built already",
    ),
    ("sudo apt install ", ".ci/package/try"),
    ("sudo dnf install ", ".ci/package/build rpm"),
    ("tar xzf ", ".ci/package/try"),
    (
        "nanobot onboard --provider",
        "commands_of_the_readme_that_configure",
    ),
    ("printenv ", "commands_of_the_readme_that_configure"),
    // They need a terminal.
    ("nanobot onboard", "onboard::a_first_run_completes"),
    ("nanobot repl", "repl"),
    ("nanobot channel login", "channel_login"),
];

/// The indented lines of the README.
fn readme_commands() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(str::to_owned).collect()
}

/// Runs `line` in a shell, with our program in its PATH. Returns what it printed.
#[track_caller]
fn run_line(story: &Story, line: &str, variables: &[(&str, &str)]) -> String {
    let programs = story.home().join("bin");
    if !programs.exists() {
        std::fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink(NANOBOT, programs.join("nanobot")).unwrap();
    }
    let path = format!("{}:{}", programs.display(), story.path());
    let mut shell = story.program("/bin/sh");
    shell.args(["-c", line]).env("PATH", path);
    shell.envs(variables.iter().copied());
    let ran = story.wait(shell.spawn().unwrap());
    assert_eq!(
        ran.code(),
        0,
        "{line}\n{}\n{}",
        ran.text(),
        ran.error_text()
    );
    ran.text() + &ran.error_text()
}

/// The replies of the model to a command with `text` in it, and a part of the output.
struct Recipe {
    text: &'static str,
    replies: fn() -> Vec<Responder>,
    output: &'static str,
}

const RECIPES: &[Recipe] = &[
    Recipe {
        text: "what can you do for me?",
        replies: || vec![says("Much.")],
        output: "Much.\n",
    },
    Recipe {
        text: "write a commit message",
        replies: || vec![says("tea: add notes")],
        output: "tea: add notes",
    },
    Recipe {
        text: "which of these lines matter?",
        replies: || vec![says("The second.")],
        output: "",
    },
    Recipe {
        text: "cron add",
        replies: Vec::new,
        output: "✓",
    },
    Recipe {
        text: "| jq .amount",
        replies: || vec![says(r#"{"name": "Tea", "amount": 3, "tags": ["drink"]}"#)],
        output: "3\n",
    },
    Recipe {
        text: "xargs",
        replies: || vec![says("Good."), says("Good."), says("Good.")],
        output: "Good.\nGood.\nGood.\n",
    },
    Recipe {
        text: "--record talk.jsonl",
        replies: || vec![says("Nearly.")],
        output: "Nearly.\n",
    },
    Recipe {
        text: "--replay talk.jsonl",
        replies: Vec::new,
        output: "Nearly.\n",
    },
    Recipe {
        text: "--write -m",
        replies: || {
            let call = calls("write_file", json!({"path": "fixed.txt", "content": "x"}));
            vec![call, says("Fixed.")]
        },
        output: "Fixed.\n",
    },
    Recipe {
        text: "nanobot undo",
        replies: Vec::new,
        output: "removed fixed.txt\n",
    },
    Recipe {
        text: "channel poll",
        replies: || vec![says("Hello, Ann.")],
        output: "",
    },
    Recipe {
        text: "channel send",
        replies: Vec::new,
        output: "",
    },
];

#[test]
fn commands_of_the_readme_do_what_it_says() {
    if !(require("git") && require("jq")) {
        return;
    }
    let (story, telegram) = telegram_story();
    for (name, text) in [
        ("bill.txt", "Tea, 3 euros\n"),
        ("notes.txt", "Tea at four.\n"),
        ("syslog", "started\nfailed\n"),
        ("a.md", "# A\n"),
        ("b.md", "# B\n"),
    ] {
        write(&story.dir().join(name), text.as_bytes());
    }
    std::fs::create_dir(story.home().join("inbox")).unwrap();
    let git = "git init -q && git config user.name Ada && git config user.email ada@example.org && git add notes.txt";
    run_line(&story, git, &[]);
    telegram.message(7, "hi");
    let mut recipes = RECIPES.iter().collect::<Vec<_>>();
    for line in readme_commands() {
        if RUN_ELSEWHERE
            .iter()
            .any(|(start, _)| line.starts_with(start))
        {
            continue;
        }
        let recipe = RECIPES.iter().find(|recipe| line.contains(recipe.text));
        let Some(Recipe {
            text,
            replies,
            output,
        }) = recipe
        else {
            panic!("no story runs this line of the README: {line}");
        };
        recipes.retain(|recipe| recipe.text != *text);
        story.server().script(replies());
        // What a story may not touch or wait for.
        let line = line
            .replace("/var/log/syslog", "syslog")
            .replace("* * * * * ", "")
            .replace("--wait 60", "");
        let printed = run_line(&story, &line, &[]);
        assert!(printed.contains(output), "{line}\n{printed}");
    }
    let unused: Vec<&str> = recipes.iter().map(|recipe| recipe.text).collect();
    assert_eq!(unused, [""; 0], "recipes for no line of the README");
    let log = run_line(&story, "git log --format=%s", &[]);
    assert_eq!(log, "tea: add notes\n");
    let report = std::fs::read_to_string(story.dir().join("report.md"));
    assert_eq!(report.unwrap(), "The second.\n");
    let sent = telegram.sent();
    assert_eq!(sent[0], "Hello, Ann.");
    assert!(sent[1].contains("Filesystem"), "{sent:?}");
    let table = story.crontab().table().unwrap();
    assert_eq!(table.matches(" --scheduled\n").count(), 3, "{table}");
}

#[test]
fn commands_of_the_readme_that_configure() {
    let lines = readme_commands();
    let find = |start: &str| lines.iter().find(|line| line.starts_with(start)).unwrap();
    let story = Story::bare();
    story.server().script([says("Hello there.")]);
    story.server().allow_extra_keys(&["reasoning", "usage"]);
    let base = format!("http://127.0.0.1:{}/v1", story.server().port);
    let printed = run_line(
        &story,
        find("printenv"),
        &[
            ("OPENROUTER_API_KEY", "key-of-the-story"),
            ("NANOBOT_PROVIDERS__OPENROUTER__API_BASE", &base),
        ],
    );
    assert!(printed.contains("answered in"), "{printed}");
    let config = story.run(["config", "get", "providers.openrouter.apiKey"]);
    assert!(!config.text().is_empty());
    let story = Story::bare();
    run_line(&story, find("nanobot onboard --provider"), &[]);
    story
        .run(["config", "get", "agents.defaults.model"])
        .stdout("qwen3\n");
}

#[test]
fn contributing_names_files_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    assert!(text.lines().count() < 60);
    let words = text.split('`').skip(1).step_by(2);
    let links = text.split("](").skip(1);
    let links = links.map(|rest| rest.split(')').next().unwrap());
    let mut count = 0;
    for path in words.chain(links) {
        let is_path = ["src/", "tests/", ".ci/"]
            .iter()
            .any(|at| path.starts_with(at));
        let is_page = path.ends_with(".md") && !path.contains(' ');
        if (is_path || is_page) && !path.contains("NAME") {
            assert!(root.join(path).exists(), "{path}");
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
}
