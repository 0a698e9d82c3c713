//! Help texts: they fit a screen, their examples are valid command lines, and typos get suggestions.

use crate::page_commands::command_lines;
use crate::server::says;
use crate::story::Story;
use clap::Command;
use clap::error::ErrorKind;
use nanobot::cli::grammar::{ALIASES, OLD_NAMES, SHORTCUTS, VERBS};
use nanobot::cli::page_table::{PAGES, page};
use nanobot::cli::pages::HelpLength;
use nanobot::cli::topics::TOPICS;
use serde_json::json;

/// Every visible command, with its words after `nanobot`.
fn commands(form: HelpLength) -> Vec<(String, Command)> {
    fn collect_commands(command: &Command, path: &str, all: &mut Vec<(String, Command)>) {
        all.push((path.trim().to_owned(), command.clone()));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            collect_commands(sub, &format!("{path} {}", sub.get_name()), all);
        }
    }
    let mut command = nanobot::command::tree::command_tree_with_help(form);
    command.build();
    let mut all = Vec::new();
    collect_commands(&command, "", &mut all);
    all
}

#[test]
fn the_short_help_of_every_command_fits_a_screen() {
    for (path, command) in commands(HelpLength::Short) {
        let help = command.term_width(80).render_help().to_string();
        let lines: Vec<&str> = help.trim_end().lines().collect();
        assert!(lines.len() <= 24, "{path}: {} lines\n{help}", lines.len());
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{path}\n{help}");
        assert!(help.contains("--help"), "{path} does not say where the rest is\n{help}");
    }
}

#[test]
fn every_command_documents_its_exit_statuses_and_has_an_example() {
    let commands = commands(HelpLength::Long);
    for (path, command) in &commands {
        let row =
            page(path).unwrap_or_else(|| panic!("`{path}` has no row in src/cli/page_table.rs"));
        assert!(!row.examples.is_empty(), "{path} has no example");
        let help = command.clone().term_width(100).render_long_help().to_string();
        assert!(help.contains("Exit status:"), "{path}\n{help}");
        for (line, does) in row.examples {
            assert!(help.contains(does), "{path}\n{help}");
            let is_of_it = invocations(line)
                .iter()
                .any(|invocation| invocation.join(" ").contains(path.as_str()));
            assert!(is_of_it, "{path}: `{line}` is no example of it");
        }
    }
    for row in PAGES {
        let is_there = commands.iter().any(|(path, _)| path == row.command);
        assert!(is_there, "there is no command `{}`", row.command);
    }
}

#[test]
fn every_example_is_a_command_line() {
    let mut lines: Vec<String> =
        PAGES.iter().flat_map(|row| row.examples).map(|(line, _)| (*line).to_owned()).collect();
    let own = lines.len();
    let path = format!("{}/README.md", env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(path).unwrap();
    let texts = TOPICS.iter().map(|topic| topic.text);
    let texts: Vec<&str> = texts.chain([readme.as_str()]).collect();
    lines.extend(texts.iter().flat_map(|text| command_lines(text)));
    assert!(lines.len() > own + 20, "{}", lines.len());
    let mut count = 0;
    for line in lines {
        for invocation in invocations(&line) {
            count += 1;
            if let Err(error) =
                nanobot::command::tree::command_tree().try_get_matches_from(&invocation)
            {
                let is_asked = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
                assert!(is_asked.contains(&error.kind()), "{line}\n{invocation:?}\n{error}");
            }
        }
    }
    assert!(count > own, "{count}");
}

/// Commands within the text of a topic have words that stand for others, such as `ID`: their verbs and flags exist.
#[test]
fn commands_within_the_text_of_topics_exist() {
    let is_unknown =
        [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument, ErrorKind::ArgumentConflict];
    let mut count = 0;
    for topic in TOPICS {
        let lines = topic.text.lines().filter(|line| !line.starts_with("    "));
        let text = lines.collect::<Vec<&str>>().join(" ");
        let spans = text.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| !span.contains('…') && !span.contains("help TOPIC")) {
            let span = span.split_whitespace().collect::<Vec<&str>>().join(" ");
            for invocation in invocations(&span) {
                count += 1;
                let parsed =
                    nanobot::command::tree::command_tree().try_get_matches_from(&invocation);
                let error = parsed.err().filter(|error| is_unknown.contains(&error.kind()));
                assert!(error.is_none(), "{}: {span}\n{}", topic.name, error.unwrap());
            }
        }
    }
    assert!(count > 30, "{count}");
}

/// The arguments of each `nanobot` invocation in a shell command line.
pub(crate) fn invocations(line: &str) -> Vec<Vec<String>> {
    let (mut invocations, mut arguments) = (Vec::new(), Vec::<String>::new());
    let (mut word, mut quote, mut is_word) = (String::new(), None, false);
    let mut end = |arguments: &mut Vec<String>| {
        let all = std::mem::take(arguments);
        let at = all.iter().position(|word| word == "nanobot");
        invocations.extend(at.map(|at| all[at..].to_vec()));
    };
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            // A command within the arguments of another one.
            (Some('"') | None, '$') if letters.next_if_eq(&'(').is_some() => {
                let inner: String = letters.by_ref().take_while(|next| *next != ')').collect();
                let mut inner: Vec<String> = inner.split(' ').map(str::to_owned).collect();
                end(&mut inner);
                word.push('x');
                is_word = true;
            }
            (None, '\'' | '"') => (quote, is_word) = (Some(letter), true),
            (None, '\\') => word.extend(letters.next()),
            (None, '#') if !is_word => break,
            (None, ' ' | '|' | ';' | '&' | '<' | '>') => {
                if is_word {
                    arguments.push(std::mem::take(&mut word));
                    is_word = false;
                }
                if letter != ' ' {
                    end(&mut arguments);
                }
            }
            _ => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        arguments.push(word);
    }
    end(&mut arguments);
    invocations
}

#[test]
fn a_command_line_is_split_into_its_programs() {
    let check = |line: &str, expect: &[&str]| {
        let joined: Vec<String> =
            invocations(line).iter().map(|invocation| invocation.join("|")).collect();
        assert_eq!(joined, expect, "{line}");
    };
    check("nanobot agent -m 'a b' | git commit -F -", &["nanobot|agent|-m|a b"]);
    check("x | nanobot a > f && nanobot b", &["nanobot|a", "nanobot|b"]);
    check("A=1 nanobot a # nanobot b", &["nanobot|a"]);
    check("vi \"$(nanobot config path)\"", &["nanobot|config|path"]);
    check("xargs -I{} nanobot agent -s r:{}", &["nanobot|agent|-s|r:{}"]);
    check("echo 'nanobot a'", &[]);
}

#[test]
fn a_run_without_a_command_lists_the_commands() {
    let story = Story::bare();
    let stderr = story.run(Vec::<&str>::new()).status(2).error_text();
    assert!(stderr.contains(" agent ") && stderr.contains(" repl "), "{stderr}");
    // The help fits a screen, and the cause follows it.
    assert!(stderr.trim_end().lines().count() <= 25, "{stderr}");
    let missing =
        "nanobot: a command is missing; `nanobot agent` answers the text on standard input";
    assert!(stderr.trim_end().ends_with(missing), "{stderr}");
    let stderr = story.run(["cron"]).status(2).error_text();
    assert!(stderr.contains("\n  add ") && stderr.contains("nanobot cron --help"), "{stderr}");
    let stdout = story.run(["cron", "add", "-h"]).text();
    assert!(stdout.contains("--every") && !stdout.contains("--after-crash"), "{stdout}");
    let stdout = story.run(["cron", "add", "--help"]).text();
    assert!(stdout.contains("--after-crash") && stdout.contains("Examples:"), "{stdout}");
    assert!(!story.home().join(".nanobot").exists());
}

#[test]
fn a_typo_is_reported_with_a_suggestion() {
    let story = Story::new();
    std::fs::create_dir_all(story.home().join(".nanobot/profiles")).unwrap();
    std::fs::write(story.home().join(".nanobot/profiles/careful.md"), "Be careful.\n").unwrap();
    let added = ["cron", "add", "-n", "digest", "-e", "1h", "-m", "x"];
    let result = story.run(added).stdout_has("✓");
    result.error_text();
    drop(result);
    let listed = json!([{ "role": "user", "content": "x" }]);
    let log = story.workspace().join("sessions/telegram_42.jsonl");
    let meta = json!({ "_type": "metadata", "key": "telegram:42" });
    crate::story::write(&log, format!("{meta}\n{}\n", listed[0]).as_bytes());
    let check = |arguments: &[&str], message: &str| {
        let result = story.run(arguments);
        let stderr = result.error_text();
        result.text();
        assert_ne!(result.code(), 0, "{arguments:?}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    };
    check(&["agnet", "-m", "x"], "`agent`");
    check(&["sesion", "list"], "`session`");
    let topics = "there is no such command or topic; the topics are scripting, permissions,";
    check(&["help", "nosuch"], topics);
    check(&["help", "exit"], "try: nanobot --help");
    check(&["help", "formats"], topics);
    check(&["help", "agnet"], "; did you mean `agent`?");
    check(&["help", "privcy"], "; did you mean `privacy`?");
    let stderr = story.run(["agnet", "-m", "x"]).status(2).error_text();
    assert!(!stderr.contains("'a'"), "{stderr}");
    check(&["session", "lsit"], "`list`");
    check(&["-s", "work"], "try: nanobot repl -s work");
    check(&["--write", "--model", "a b"], "try: nanobot repl --write --model 'a b'");
    check(&["--sesion", "x"], "unexpected argument");
    let type_it = "try: `nanobot repl`, and type it there; nanobot agent -m 'hello' answers once";
    check(&["repl", "hello"], type_it);
    check(&["agent", "--mesage", "x"], "`--message`");
    check(&["cron", "add", "--evry", "1h"], "`--every`");
    check(&["usage", "--by", "modle"], "`model`");
    check(&["session", "show", "telegram:43"], "`telegram:42`");
    check(&["cron", "show", "digset"], "`digest`");
    check(&["cron", "remove", "digset"], "`digest`");
    check(&["agent", "-m", "x", "--profile", "carefull"], "`careful`");
    check(&["agent", "-m", "x", "--profile", "accept-edit"], "`accept-edits`");
    check(&["agent", "-m", "x", "--tools", "raed_file"], "`read_file`");
    check(&["agent", "-m", "x", "--allow", "exce"], "`exec`");
    check(&["policy", "explain", "raed_file"], "`read_file`");
    check(&["tool", "run", "raed_file"], "`nanobot tool run read_file`");
    check(&["model", "list", "--provider", "antropic"], "`anthropic`");
    check(&["model", "provider", "login", "openai-codx"], "openaiCodex");
    check(&["config", "get", "agents.defaults.modle"], "agents.defaults.model");
    check(&["config", "set", "agents.default.model", "x"], "agents.defaults.model");
}

#[test]
fn commands_of_the_python_program_get_a_suggestion() {
    let story = Story::bare();
    let check = |arguments: &[&str], phrase: &str| {
        let stderr = story.run(arguments).status(2).error_text();
        assert!(stderr.contains(&format!("try: {phrase}")), "{arguments:?}: {stderr}");
    };
    check(&["--install-completion"], "nanobot completions bash");
    check(&["--show-completion"], "nanobot completions bash");
    check(&["channels", "status"], "`nanobot channel list`");
    check(&["topics"], "`nanobot --help` for the topics");
    check(&["gateway", "--port", "1"], "`nanobot channel poll --wait 60`");
    check(&["agent", "-m", "x", "--yolo"], "nanobot help permissions");
    check(&["--yolo"], "nanobot help permissions");
    check(&["--resume"], "nanobot agent --resume");
    check(&["agent", "-m", "x", "--add-dir=/srv"], "nanobot help permissions");
    check(&["agent", "-m", "x", "--set", "a=b"], "nanobot config set KEY VALUE");
    check(&["agent", "-m", "x", "--provider", "openai"], "`--model PROVIDER/MODEL`");
    check(&["exec", "fix it"], "nanobot agent -m TEXT");
    check(&["init"], "nanobot onboard");
    check(&["version"], "nanobot --version");
    check(&["mcp", "delete", "work"], "`rm`");
    check(&["cron", "rename", "a", "b"], "nanobot cron edit JOB --name NAME");
    check(&["schedule", "daily"], "nanobot cron add");
    check(&["memory", "set", "likes tea"], "`nanobot memory edit`, or tell the agent");
    // In a short word, two letters are another word.
    check(&["agent", "--bogus"], "nanobot agent --help");
    check(&["session", "repair"], "nanobot session repair --all");
    check(&["cron", "disable"], "nanobot cron disable --all");
    let stderr = story.run(["channels"]).status(2).error_text();
    assert!(!stderr.contains("similar"), "{stderr}");
    let stderr = story.run(["agent", "--yolo"]).status(2).error_text();
    assert!(!stderr.contains("similar"), "{stderr}");
    check(&["sessions", "restore-workspace"], "nanobot session");
}

#[test]
fn the_short_help_groups_the_commands() {
    let help = Story::bare().run(["-h"]).text();
    for line in [
        "ask        agent     Run one turn",
        "keep       session ",
        "run alone  cron ",
        "set up     onboard ",
    ] {
        assert!(help.contains(&format!("\n{line}")), "{help}");
    }
    let (_, topics) = help.split_once("Topics (nanobot help TOPIC): ").unwrap();
    for topic in TOPICS {
        assert!(topics.split_whitespace().any(|name| name == topic.name), "{help}");
    }
}

#[test]
fn errors_of_the_command_line_have_the_usual_form() {
    let story = Story::bare();
    let check = |arguments: &[&str], expect: &str| {
        assert_eq!(story.run(arguments).status(2).error_text(), expect, "{arguments:?}");
    };
    check(
        &["agent", "-m", "x", "--max-tokens", "no"],
        "nanobot: invalid value 'no' for '--max-tokens <N>': not a whole number\n  try: `--max-tokens <N>`: Maximum number of tokens in one reply\n",
    );
    check(
        &["agent", "-m", "x", "--max-cost", "-1"],
        "nanobot: invalid value '-1' for '--max-cost <USD>': expected an amount in US dollars, such as `0.50`\n  \
         try: `--max-cost <USD>`: Cost limit of a turn, in US dollars\n",
    );
    check(
        &["--color", "no", "cron", "list"],
        "nanobot: invalid value 'no' for '--color <WHEN>' [possible values: auto, always, never]\n  \
         try: `--color <WHEN>`: When to use colour\n",
    );
    check(
        &["session", "rename"],
        "nanobot: the following required arguments were not provided: <KEY> <NEW>\n  try: nanobot session rename --help\n",
    );
    check(&["session", "lsit"], "nanobot: unrecognized subcommand 'lsit'\n  try: `list`\n");
    // The hint for a misspelled flag never names one that permits more.
    check(
        &["agent", "-m", "x", "--wrte"],
        "nanobot: unexpected argument '--wrte' found\n  try: nanobot agent --help\n",
    );
    check(
        &["agent", "fix", "the test"],
        "nanobot: unexpected argument 'the test' found\n  try: nanobot agent -m 'fix the test'\n",
    );
    check(
        &["agent", "--write", "out", "fix it"],
        "nanobot: unexpected argument 'fix it' found\n  try: --write=out\n",
    );
    check(
        &["agent", "--write", "fix it", "--verbos"],
        "nanobot: unexpected argument '--verbos' found\n  try: `--verbose`\n",
    );
    check(
        &["agent", "-x", "awk", "-m", "sum"],
        "nanobot: the argument '[TEXT]' cannot be used with '--message <TEXT>'\n  try: -x=awk\n",
    );
    // A word after such a flag could be its value: as the message it would permit more than was meant.
    check(
        &["agent", "--write", "notes.txt"],
        "nanobot: `notes.txt` would be the message, not the value of `--write`\n  try: --write=notes.txt\n",
    );
    check(
        &["agent", "-q", "--net", "example.org"],
        "nanobot: `example.org` would be the message, not the value of `--net`\n  try: --net=example.org\n",
    );
    check(
        &["agent", "--write", "~/out dir"],
        "nanobot: `~/out dir` would be the message, not the value of `--write`\n  try: --write='~/out dir'\n",
    );
    check(
        &["agent", "--net", "example.org, a.example:8000"],
        "nanobot: `example.org, a.example:8000` would be the message, not the value of `--net`\n  try: --net='example.org, a.example:8000'\n",
    );
    // Words are a message, unless a quoted one follows the value.
    check(
        &["agent", "--write", "fix", "the", "bug"],
        "nanobot: unexpected argument 'the' found\n  try: nanobot agent --write -m 'fix the bug'\n",
    );
    // `-p` is a flag too, whose value would be `ython`.
    let expect =
        "nanobot: `-xpython`: the language of `-x` stands after a `=`\n  try: `-x=python`\n";
    check(&["agent", "-xpython"], expect);
    let result = story.run(["agent", "--bare", "-xpython", "-m", "sum"]).status(2);
    result.stderr_has("try: `-x=python`");
    check(
        &["agent", "-c", "-m", "x"],
        "nanobot: a value is required for '--config <FILE>' but none was supplied\n  \
         try: `--continue` for the last session; `-c FILE` names a config\n",
    );
}

#[test]
fn short_flags_stand_together() {
    let story = Story::new().script([says("```\ncode\n```"), says("```\ncode\n```")]);
    story.run(["agent", "-qxm", "hi"]).stdout("code\n");
    story.run(["agent", "-xm", "hi"]).stdout("code\n");
}

#[test]
fn a_message_needs_no_flag_and_may_have_those_of_other_agents() {
    let check = |arguments: &[&str]| {
        Story::new().script([says("Hi.")]).run(arguments).stdout("Hi.\n");
    };
    check(&["agent", "hello"]);
    check(&["agent", "--no-tools", "hello"]);
    check(&["agent", "-p", "hello"]);
    check(&["-p", "hello"]);
    check(&["--print", "--max-turns", "3", "hello"]);
    check(&["-p", "--output-format", "text", "hello"]);
    check(&["agent", "--prompt=hello", "--effort", "low", "--max-budget-usd", "1", "--temp", "0"]);
    let story = Story::new().script([says(r#"{"name":"x"}"#)]).stdin("hello");
    story.run(["-p", "--json-schema", "name"]).stdout_has("x");
    Story::new().run(["agent", "-m", "a", "b"]).status(2).stderr_has("cannot be used with");
}

/// Commands without `--json`, by the reason: they print no data.
#[rustfmt::skip]
const WITHOUT_JSON: &[&str] = &[
    // They have a conversation, or a format of their own.
    "onboard", "repl", "serve pipe", "serve acp", "status metrics", "completions", "config path", "config schema", "cron export", "channel export", "session export",
    "memory edit", "config edit", "model provider login",
    // They do what was asked, and say so in a line.
    "apply", "forget",
    "config set", "config unset", "model use", "cron disable", "cron enable", "cron remove", "cron sync", "cron heartbeat disable", "mcp accept",
    "mcp add", "mcp remove", "memory accept", "memory consolidate", "memory undo", "model provider logout", "session compact",
    "serve webhook", "channel bind", "channel login", "channel pair approve", "channel poll", "channel retry", "channel send", "channel check",
    "session remove", "session rename", "skill add", "skill new", "skill remove", "skill update", "tool new",
    // It speaks a protocol.
    "serve mcp", "mcp login", "mcp logout",
    "uninstall",
];

#[test]
fn every_command_follows_the_grammar() {
    let verbs: Vec<&str> = VERBS.iter().flat_map(|(verbs, _)| *verbs).copied().collect();
    for (path, command) in commands(HelpLength::Long) {
        let aliases: Vec<&str> = command.get_visible_aliases().collect();
        for (verb, alias) in ALIASES {
            assert_ne!(command.get_name(), *alias, "{path}: its name is `{verb}`");
            if command.get_name() == *verb {
                assert!(aliases.contains(alias), "{path} has no alias `{alias}`");
            }
        }
        let is_verb = path.contains(' ') && !path.starts_with("serve ");
        if is_verb && !command.has_subcommands() {
            let verb = command.get_name();
            assert!(verbs.contains(&verb), "{path}: VERBS does not have `{verb}`");
        }
        // These do something by themselves too.
        let is_group = command.has_subcommands() && !["cron heartbeat", "status"].contains(&&*path);
        if !is_group {
            let has_json = command.get_arguments().any(|arg| arg.get_id() == "json");
            let is_exempt = WITHOUT_JSON.contains(&path.as_str());
            assert_ne!(has_json, is_exempt, "{path}: `--json`, or a row in WITHOUT_JSON");
        }
    }
}

/// Scripts, crontabs and the configs of other programs have the old names.
/// An alias of a shell may have a flag that its user gives again.
#[test]
fn the_last_of_a_repeated_flag_counts() {
    let story = Story::new();
    let flags =
        ["--model", "a", "--max-cost", "1", "--timeout", "9s", "-s", "x", "--profile", "plan"];
    let again =
        ["--model", "b", "--max-cost", "2", "--timeout", "8s", "-s", "y", "--profile", "default"];
    let line = ["agent"].iter().chain(&flags).chain(&again);
    let body = story.run(line.chain(&["--dry-run", "-m", "hello"])).json();
    assert_eq!(body["model"], "b");
    let twice = story.run(["agent", "-m", "one", "-m", "two"]).status(2);
    twice.stderr_has("cannot be used multiple times");
}

#[test]
fn short_and_old_names_stand_for_commands() {
    let story = Story::bare();
    let commands = commands(HelpLength::Long);
    let exists = |name: &str| commands.iter().any(|(path, _)| path == name);
    for (name, replacement) in SHORTCUTS.iter().chain(OLD_NAMES) {
        assert!(exists(replacement) && !exists(name), "{name}");
        let expect = story.run(format!("{replacement} --help").split(' ')).text();
        assert!(expect.contains(&format!("Usage: nanobot {replacement}")), "{expect}");
        for line in ["NAME --help", "-q -c x NAME --help", "help NAME"] {
            if line.starts_with("help") && name.starts_with("channels") {
                // It is a topic.
                continue;
            }
            story.run(line.replace("NAME", name).split(' ')).stdout(&expect);
        }
        // An error names the command of today.
        let error = story.run(format!("{name} --nosuch").split(' ')).status(2).error_text();
        assert!(error.ends_with(&format!("try: nanobot {replacement} --help\n")), "{error}");
    }
}

#[test]
fn short_ways_in_work() {
    let story = Story::new().script([says("One."), says("Two.")]);
    story.run(["-m", "hello"]).stdout("One.\n");
    story.run(["how are you?"]).stdout("Two.\n");
    let version = story.run(["--version"]).text();
    story.run(["-v"]).stdout(&version);
    let sessions = story.run(["session", "list"]).text();
    story.run(["ls"]).stdout(&sessions);
    story.run(["session", "ls"]).stdout(&sessions);
    story.run(["login", "nosuch"]).status(2).stderr_has("nosuch");
    story.run(["chat"]).status(2).stderr_has("needs a terminal");
    story.run([] as [&str; 0]).status(2).stderr_has("Usage");
}

#[test]
fn the_short_help_names_the_topics() {
    let story = Story::bare();
    story.run(["-h"]).stdout_has("nanobot help TOPIC");
}

#[test]
fn nanobot_alone_is_the_repl_on_a_terminal() {
    let story = Story::new();
    let mut screen = story.screen(24, 80).args([] as [&str; 0]);
    screen.until("lists the commands").until_prompt("> ");
    screen.exit_with_ctrl_d();
}

#[test]
fn help_is_a_subcommand_and_a_message_needs_its_flag() {
    let story = Story::bare();
    let help = story.run(["help"]).status(0).text();
    assert!(help.contains("agent") && help.contains("onboard"), "{help}");
    assert_eq!(help, story.run(["--help"]).text());
    let help = story.run(["help", "agent"]).status(0).text();
    assert_eq!(help, story.run(["agent", "--help"]).text());
    let check = |arguments: &[&str], tip: Option<&str>| {
        let stderr = story.run(arguments).status(2).error_text();
        let line = stderr.lines().find(|line| line.contains("agent -m"));
        let tip = tip.map(|tip| format!("  try: {tip}"));
        assert_eq!(line, tip.as_deref(), "{arguments:?}: {stderr}");
    };
    check(&["hello"], Some("`nanobot --help`; as a message: nanobot agent -m 'hello'"));
    check(&["hello", "there, it's me"], Some(r"nanobot agent -m 'hello there, it'\''s me'"));
    check(
        &["repl", "hello"],
        Some("`nanobot repl`, and type it there; nanobot agent -m 'hello' answers once"),
    );
    check(&["agent", "-s", "work", "hello", "there"], Some("nanobot agent -m 'hello there'"));
    check(&["agnet"], None);
    check(&["agent", "--nosuch"], None);
    check(&["session", "nosuch"], None);
    check(&["help", "nosuch", "x"], None);
}

#[test]
fn help_after_a_noun_lists_its_verbs() {
    let story = Story::bare();
    for (arguments, same) in [
        (["cron", "help"].as_slice(), ["cron", "--help"].as_slice()),
        (&["session", "help", "fork"], &["session", "fork", "--help"]),
        (&["mcp", "help"], &["mcp", "--help"]),
    ] {
        let expect = story.run(same.iter().copied()).text();
        assert!(expect.contains("Usage: nanobot"), "{expect}");
        story.run(arguments.iter().copied()).stdout(&expect);
    }
}
