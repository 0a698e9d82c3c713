//! The man pages, generated from the command tree and its tables: one for the program, one for each command, three for
//! formats, one for all files, and one for each topic.

use clap::{Arg, Command};
use nanobot::cli::grammar::{OLD_NAMES, RULES, SHORTCUTS, VERBS};
use nanobot::cli::json_table::{
    COMMANDS, JsonField, JsonForm, JsonShape, JsonType, OBJECTS, PROMISE,
};
use nanobot::cli::page_table::{HelpPage, page};
use nanobot::cli::pages::{HelpLength, is_global};
use nanobot::cli::state_files::{STATE_FILES, StateFile};
use nanobot::cli::topics::{HelpTopic, TOPICS};
use nanobot_base::error::Exit;
use nanobot_base::json_text::JSON_VERSION;
use nanobot_config::settings::key_type::KeyType;
use nanobot_config::settings::keys::{ConfigKey, KEYS, KeySupport};
use nanobot_os::env::VARIABLES;
use nanobot_os::paths::DOCUMENTED_PATHS;
use regex::Regex;
use serde_json::Value;
use std::fmt::Write;

/// Date of the last complete review of the pages; updated with each release.
const REVISION_DATE: &str = "2026-11-22";
/// The variables that apply to every command.
const COMMON_VARIABLES: [&str; 2] = ["NANOBOT_HOME", "NANOBOT_A__B"];

/// Every page: its file name and its text.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut command = nanobot::command::tree::command_tree_with_help(HelpLength::Long);
    command.build();
    add_command_pages(&command, &mut Vec::new(), &mut pages);
    pages.push(("nanobot-config.5".into(), config_page()));
    pages.push(("nanobot-events.5".into(), events_page()));
    pages.push(("nanobot-files.5".into(), files_page()));
    pages.push(("nanobot-json.5".into(), json_page()));
    pages.extend(TOPICS.iter().map(topic_page));
    pages
}

/// The page of a topic, from its Markdown.
fn topic_page(topic: &HelpTopic) -> (String, String) {
    let name = format!("nanobot-{}", topic.name);
    let mut roff = Roff::begin(&name, 7, &lowercase_first(topic.summary));
    roff.section("DESCRIPTION");
    for block in topic.text.split("\n\n") {
        let mut lines = block.lines();
        if let Some(title) = block.strip_prefix("## ") {
            roff.section(&title.trim().to_uppercase());
        } else if block.starts_with("    ") {
            let shown_lines: Vec<String> = lines.map(|line| line[4..].to_owned()).collect();
            roff.verbatim(&shown_lines);
        } else if block.starts_with("- ") {
            for item in format!("\n{block}").split("\n- ").skip(1) {
                roff.0.push_str(".IP \\(bu 2\n");
                roff.text(&without_marks(item));
            }
        } else {
            roff.start_paragraph();
            roff.text(&without_marks(&lines.by_ref().collect::<Vec<_>>().join(" ")));
        }
    }
    (format!("{name}.7"), roff.0)
}

/// A Markdown paragraph on one line, without bold marks; a link is its text.
fn without_marks(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // In code, two stars are those of a glob.
    let parts = text.split('`').enumerate();
    let parts =
        parts.map(|(at, part)| if at % 2 == 0 { part.replace("**", "") } else { part.into() });
    let text = parts.collect::<Vec<String>>().join("`");
    let link = Regex::new(r"\[([^\]]*)\]\(([^)]*)\)").unwrap();
    link.replace_all(&text, "$1").into_owned()
}

fn add_command_pages(
    command: &Command,
    command_words: &mut Vec<String>,
    pages: &mut Vec<(String, String)>,
) {
    let name = page_name(command_words);
    pages.push((format!("{name}.1"), command_page(command, command_words)));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        command_words.push(sub.get_name().to_owned());
        add_command_pages(sub, command_words, pages);
        command_words.pop();
    }
}

fn page_name(command_words: &[String]) -> String {
    let all = std::iter::once("nanobot").chain(command_words.iter().map(String::as_str));
    all.collect::<Vec<_>>().join("-")
}

/// A page under construction.
struct Roff(String);

impl Roff {
    fn begin(name: &str, section: u8, summary: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let mut roff = Self(format!(
            ".TH {} {section} {REVISION_DATE} \"nanobot {version}\" \"nanobot\"\n",
            name.to_uppercase().replace('-', "\\-")
        ));
        roff.section("NAME");
        roff.text(&format!("{name} \u{0} {summary}"));
        roff
    }

    fn section(&mut self, title: &str) {
        writeln!(self.0, ".SH \"{title}\"").unwrap();
    }

    fn subsection(&mut self, title: &str) {
        writeln!(self.0, ".SS \"{}\"", escape(title)).unwrap();
    }

    /// Adds a paragraph; text in backticks becomes bold.
    fn text(&mut self, text: &str) {
        self.line(&style_backticks(text));
    }

    /// Starts a new paragraph, unless a heading has just started one.
    fn start_paragraph(&mut self) {
        let last = self.0.trim_end().lines().last().unwrap_or_default();
        if !last.starts_with(".S") {
            self.0.push_str(".PP\n");
        }
    }

    fn paragraphs(&mut self, text: &str) {
        for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) {
            self.start_paragraph();
            // Indented lines are a table of two columns.
            let (table, prose): (Vec<&str>, Vec<&str>) =
                paragraph.lines().partition(|line| line.starts_with("  "));
            self.text(&prose.join(" "));
            for row in table {
                let (name, text) = row.trim_start().split_once("  ").expect("two columns");
                self.tagged(&bold(name), text.trim_start());
            }
        }
    }

    fn tagged(&mut self, tag: &str, text: &str) {
        self.0.push_str(".TP\n");
        writeln!(self.0, "{tag}").unwrap();
        let mut paragraphs = text.split("\n\n");
        self.text(&paragraphs.next().unwrap_or_default().replace('\n', " "));
        for more in paragraphs {
            self.0.push_str(".IP\n");
            self.text(&more.replace('\n', " "));
        }
    }

    /// Adds unchanged lines, indented.
    fn verbatim(&mut self, lines: &[String]) {
        self.start_paragraph();
        self.0.push_str(".RS 2\n.nf\n");
        for line in lines {
            writeln!(self.0, "{}", escape_control_line(&escape(line))).unwrap();
        }
        self.0.push_str(".fi\n.RE\n");
    }

    /// Adds a source line, broken if it is too long.
    fn line(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            if !line.is_empty() && line.len() + word.len() > 76 {
                writeln!(self.0, "{}", escape_control_line(&line)).unwrap();
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        writeln!(self.0, "{}", escape_control_line(&line)).unwrap();
    }
}

/// Escapes a line that starts with a dot or a quote, which would be a roff request.
fn escape_control_line(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

/// Escapes `text` so that it is printed literally.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '\u{0}' => out.push_str("\\-"),
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '~' => out.push_str("\\(ti"),
            '^' => out.push_str("\\(ha"),
            '"' => out.push_str("\\(dq"),
            letter if letter.is_ascii() => out.push(letter),
            letter => write!(out, "\\[u{:04X}]", letter as u32).unwrap(),
        }
    }
    out
}

fn style_backticks(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(at, part)| match at % 2 {
            1 => bold(part),
            _ => escape(part),
        })
        .collect()
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escape(text))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escape(text))
}

fn command_page(command: &Command, command_words: &[String]) -> String {
    let path = command_words.join(" ");
    let page =
        page(&path).unwrap_or_else(|| panic!("`{path}` has no row in src/cli/page_table.rs"));
    let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::begin(&page_name(command_words), 1, &lowercase_first(&summary));
    roff.section("SYNOPSIS");
    roff.line(&synopsis(command));
    roff.section("DESCRIPTION");
    let long = command.get_long_about().or(command.get_about());
    roff.paragraphs(&sentences(&long.map(|text| format!("{text}")).unwrap_or_default()));
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        roff.paragraphs(&format!("It is also called `{}`.", aliases.join("`, `")));
    }
    commands(&mut roff, command, command_words);
    options(&mut roff, command);
    roff.section("EXIT STATUS");
    match page.exit_statuses().as_slice() {
        [] => Exit::ALL
            .iter()
            .for_each(|exit| roff.tagged(&bold(&exit.code().to_string()), exit.meaning())),
        own => own
            .iter()
            .for_each(|(number, meaning)| roff.tagged(&bold(&number.to_string()), meaning)),
    }
    environment(&mut roff, page);
    files(&mut roff, page);
    if !page.examples.is_empty() {
        roff.section("EXAMPLES");
        for (line, does) in page.examples {
            roff.paragraphs(&format!("{does}:"));
            roff.verbatim(&break_command_line(line));
        }
    }
    if command_words.is_empty() {
        grammar(&mut roff);
    }
    roff.section("SEE ALSO");
    roff.line(&see_also(command, command_words));
    roff.0
}

/// The rules that all commands follow.
fn grammar(roff: &mut Roff) {
    roff.section("GRAMMAR");
    roff.paragraphs(RULES);
    for (verbs, meaning) in VERBS {
        let verbs: Vec<String> = verbs.iter().map(|verb| bold(verb)).collect();
        roff.tagged(&verbs.join(", "), &format!("{}.", uppercase_first(meaning)));
    }
    roff.paragraphs("Some commands have a short name:");
    for (short, whole) in SHORTCUTS {
        roff.tagged(&bold(short), &format!("`nanobot {whole}`"));
    }
    roff.paragraphs(
        "`nanobot -m TEXT`, and one argument with a blank in it, are `nanobot agent -m TEXT`. On a terminal, `nanobot` alone is \
         `nanobot repl`, and `nanobot -v` is `nanobot --version`.",
    );
    roff.paragraphs("Names that commands had before still work:");
    for (old, new) in OLD_NAMES {
        roff.tagged(&bold(old), &format!("`nanobot {new}`"));
    }
}

/// Converts the first letter to lower case, as the index of man pages requires.
fn lowercase_first(summary: &str) -> String {
    let mut letters = summary.chars();
    let first = letters.next().unwrap_or_default();
    let is_acronym = letters.clone().next().is_some_and(char::is_uppercase);
    if is_acronym {
        summary.to_owned()
    } else {
        first.to_lowercase().to_string() + letters.as_str()
    }
}

/// The usage as printed by clap, in the fonts of a man page.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").split_whitespace();
    let usage_words = usage.map(|word| match word {
        "[OPTIONS]" => format!("[{}]", italic("options")),
        word if word.contains(['<', '[']) => {
            let plain = word.replace(['<', '>'], "");
            match plain.strip_prefix('[').and_then(|plain| plain.split_once(']')) {
                Some((inner, rest)) => format!("[{}]{}", italic(inner), escape(rest)),
                None => italic(&plain),
            }
        }
        word => bold(word),
    });
    usage_words.collect::<Vec<_>>().join(" ")
}

fn commands(roff: &mut Roff, command: &Command, command_words: &[String]) {
    let below: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    if below.is_empty() {
        return;
    }
    roff.section("COMMANDS");
    for sub in below {
        let page = format!("{}-{}", page_name(command_words), sub.get_name());
        let summary = sub.get_about().map(ToString::to_string).unwrap_or_default();
        roff.tagged(&format!("{}(1)", bold(&page)), &summary);
    }
}

fn options(roff: &mut Roff, command: &Command) {
    let all: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    let mut headings: Vec<Option<&str>> = vec![None];
    for arg in all.iter().filter(|arg| !is_global(arg)) {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    roff.section("OPTIONS");
    for heading in headings {
        let of_it: Vec<&&Arg> =
            all.iter().filter(|arg| !is_global(arg) && arg.get_help_heading() == heading).collect();
        if let (Some(title), false) = (heading, of_it.is_empty()) {
            roff.subsection(title);
        }
        of_it.iter().for_each(|arg| option(roff, arg));
    }
    roff.subsection("Of all commands");
    all.iter().filter(|arg| is_global(arg)).for_each(|arg| option(roff, arg));
}

fn option(roff: &mut Roff, arg: &Arg) {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let mut tag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => {
            format!("{}, {}", bold(&format!("-{short}")), bold(&format!("--{long}")))
        }
        (Some(short), None) => bold(&format!("-{short}")),
        (None, Some(long)) => bold(&format!("--{long}")),
        (None, None) => italic(&names.join(" ")),
    };
    if arg.get_action().takes_values() && !arg.is_positional() {
        let value = italic(&names.join(" "));
        tag.push_str(&match (arg.is_require_equals_set(), arg.get_num_args()) {
            (true, Some(range)) if range.min_values() == 0 => format!("[={value}]"),
            (true, _) => format!("={value}"),
            (false, _) => format!(" {value}"),
        });
    }
    let help = arg.get_long_help().or(arg.get_help());
    let mut help = sentences(&help.map(|help| format!("{help}")).unwrap_or_default());
    let values = arg.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set());
    let values: Vec<&str> = values.map(|value| value.get_name()).collect();
    if !values.is_empty() && arg.get_action().takes_values() {
        write!(help, " One of `{}`.", values.join("`, `")).unwrap();
    }
    let defaults = arg.get_default_values().iter().filter_map(|value| value.to_str());
    let defaults: Vec<&str> = defaults.collect();
    if !defaults.is_empty() && !arg.is_hide_default_value_set() && arg.get_action().takes_values() {
        write!(help, " Without it: `{}`.", defaults.join(" ")).unwrap();
    }
    roff.tagged(&tag, &help);
}

/// The short and the long help as one text; the short help has no full stop.
fn sentences(help: &str) -> String {
    let (first, rest) = help.split_once("\n\n").unwrap_or((help, ""));
    let first = first.trim_end().trim_end_matches('.');
    format!("{first}. {rest}").trim_end().to_owned()
}

fn environment(roff: &mut Roff, page: &HelpPage) {
    roff.section("ENVIRONMENT");
    let mut variables = Vec::new();
    // The page of the program has all of them.
    let all: Vec<&str> = VARIABLES
        .iter()
        .flat_map(|variable| variable.name.split(", "))
        .filter(|name| page.command.is_empty() && *name != "…")
        .collect();
    for wanted in page.variables.iter().chain(&COMMON_VARIABLES).chain(&all) {
        let is = |name: &str| name.split(", ").any(|one| one == *wanted);
        let variable = VARIABLES.iter().find(|variable| is(variable.name));
        let variable = variable.unwrap_or_else(|| panic!("there is no variable `{wanted}`"));
        if !variables.contains(&variable.name) {
            variables.push(variable.name);
            roff.tagged(&bold(variable.name), variable.meaning);
        }
    }
}

fn files(roff: &mut Roff, page: &HelpPage) {
    if page.files.is_empty() {
        return;
    }
    roff.section("FILES");
    for wanted in page.files {
        assert!(
            DOCUMENTED_PATHS.iter().any(|documented_path| documented_path.path.contains(wanted)),
            "there is no file `{wanted}`"
        );
    }
    // Both files are the config.
    let has_config = page.files.contains(&"config.json");
    let matters = |path: &str| {
        page.files.iter().any(|wanted| path.contains(wanted))
            || has_config && path.ends_with("/nanobot.json")
    };
    for documented_path in
        DOCUMENTED_PATHS.iter().filter(|documented_path| matters(documented_path.path))
    {
        roff.tagged(&italic(documented_path.path), documented_path.meaning);
    }
}

fn see_also(command: &Command, command_words: &[String]) -> String {
    let mut pages = Vec::new();
    if let Some((_, parents)) = command_words.split_last() {
        pages.push((page_name(parents), 1));
    }
    let below = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    pages.extend(below.map(|sub| (format!("{}-{}", page_name(command_words), sub.get_name()), 1)));
    pages.push(("nanobot-config".into(), 5));
    if ["", "agent"].contains(&command_words.join(" ").as_str()) {
        pages.push(("nanobot-events".into(), 5));
        pages.push(("nanobot-files".into(), 5));
        pages.push(("nanobot-json".into(), 5));
    }
    if command_words.is_empty() {
        let topics = TOPICS.iter();
        pages.extend(topics.map(|topic| (format!("nanobot-{}", topic.name), 7)));
    }
    if command_words.first().is_some_and(|word| word == "cron") {
        pages.push(("crontab".into(), 5));
    }
    let pages = pages.iter().map(|(name, section)| format!("{}({section})", bold(name)));
    pages.collect::<Vec<_>>().join(", ")
}

/// A command line, broken into lines that fit; breaks only at blanks outside of quotes.
fn break_command_line(line: &str) -> Vec<String> {
    let (mut quote, mut parts) = (None, vec![String::new()]);
    for letter in line.chars() {
        match (quote, letter) {
            (None, ' ') => {
                parts.push(String::new());
                continue;
            }
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
        parts.last_mut().unwrap().push(letter);
    }
    let mut lines = vec![String::new()];
    for word in parts {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.len() + word.len() > 66 {
            line.push_str(" \\");
            lines.push(format!("    {word}"));
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += &word;
        }
    }
    lines
}

fn config_page() -> String {
    let mut roff = Roff::begin("nanobot-config", 5, "the config of nanobot");
    roff.section("DESCRIPTION");
    roff.paragraphs(
        "The config is one file of JSON, in which comments and a comma behind the last item are allowed. It is the file of the \
         Python program of the same name, with further keys. None has to be there: what is missing has its default.\n\n\
         Keys are written in camelCase, as below, or in snake_case. In this page and for `nanobot config` a dot leads to what lies \
         below; `NAME` is one that you choose, such as a provider's.\n\n\
         Every key can also be given by a variable: `NANOBOT_` and the key in capitals, with two underscores for a dot and one \
         between words, such as `NANOBOT_AGENTS__DEFAULTS__MAX_TOKENS`. A flag is stronger than a variable, a variable than the \
         file, and the file than the default.\n\n\
         In any text `${NAME}` stands for the variable of that name.\n\n\
         A secret (a key, a token, a password, a header, a proxy, the address of a webhook) is a text, in which `${NAME}` stands for a \
         variable, or an object with one member: `{\"file\": \"~/key\"}` is the first line of a file, `{\"command\": \"pass show key\"}` the \
         first line that a command of the shell prints within a minute, and `{\"credential\": \"key\"}` that of a file in \
         `CREDENTIALS_DIRECTORY`, as set by systemd's `LoadCredential=`. It is read when it is first needed, once per process.\n\n\
         `nanobot config check` tells what is odd about a config, \
         with line and column, and `nanobot config get --origin` what is in force and where it comes from.",
    );
    roff.section("KEYS");
    let is_used =
        |key: &&ConfigKey| matches!(key.support, KeySupport::Used | KeySupport::UsedAndWritten);
    let mut folder = "";
    for key in KEYS.iter().filter(is_used) {
        let (above, _) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if above != folder && !folder.is_empty() && above.is_empty() {
            roff.subsection("At the top");
        } else if above != folder {
            roff.subsection(&with_placeholder(above));
        }
        folder = above;
        let default = match (key.default, key.kind) {
            ("null", _) => String::new(),
            (r#""""#, KeyType::Text | KeyType::Secret) => String::new(),
            (default, _) => format!(" Default: `{default}`."),
        };
        let secret = if key.kind.is_secret() { " It is never shown." } else { "" };
        let text = format!(
            "{}.\n\nExpected: {}.{default}{secret}",
            uppercase_first(key.doc),
            key.kind.describe()
        );
        roff.tagged(&bold(&with_placeholder(key.path)), &text);
    }
    for (stage, title, summary) in [
        (KeySupport::Later, "KEYS FOR LATER", "Understood, and not used by this release:"),
        (
            KeySupport::Ignored,
            "KEYS WITHOUT A MEANING HERE",
            "Accepted since other releases write them:",
        ),
    ] {
        roff.section(title);
        roff.paragraphs(summary);
        for key in KEYS.iter().filter(|key| key.support == stage) {
            roff.tagged(
                &bold(&with_placeholder(key.path)),
                &format!("{}.", uppercase_first(key.doc)),
            );
        }
    }
    roff.section("FILES");
    let documented_path = DOCUMENTED_PATHS
        .iter()
        .find(|documented_path| documented_path.path.ends_with("config.json"))
        .unwrap();
    roff.tagged(&italic(documented_path.path), documented_path.meaning);
    roff.section("EXAMPLES");
    let example = "{\n  // Keys stay out of the file: a variable has it.\n  \"agents\": { \"defaults\": { \"model\": \"claude-sonnet-5\" } },\n  \"providers\": { \"anthropic\": { \"apiKey\": \"${MY_KEY}\" } },\n  \"budget\": { \"daily\": 2.50 }\n}";
    let lines: Vec<String> = example.lines().map(str::to_owned).collect();
    roff.verbatim(&lines);
    roff.section("SEE ALSO");
    roff.line(&format!(
        "{}(1), {}(1), {}(1)",
        bold("nanobot"),
        bold("nanobot-config"),
        bold("nanobot-onboard")
    ));
    roff.0
}

/// A key path with a placeholder for the user-chosen name.
fn with_placeholder(path: &str) -> String {
    path.replace('*', "NAME")
}

fn uppercase_first(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

fn files_page() -> String {
    let mut roff = Roff::begin("nanobot-files", 5, "the files of nanobot");
    roff.section("DESCRIPTION");
    roff.paragraphs(
        "The files that nanobot writes, and what happens when one is damaged. No damaged file of one job or session affects \
         another one. A file is replaced as a whole or appended to under a lock, and is readable by its owner only; in a \
         directory that is shared with a group (`chmod g+ws`) new files follow the umask.",
    );
    roff.section("FILES");
    for documented_path in DOCUMENTED_PATHS {
        roff.tagged(&italic(documented_path.path), documented_path.meaning);
    }
    roff.section("STATE FILES");
    for file in STATE_FILES {
        let StateFile { path, empty, torn, unreadable, newer, concurrent } = file;
        roff.subsection(path);
        for (state, behaviour) in [
            ("empty", empty),
            ("torn", torn),
            ("unreadable", unreadable),
            ("from a newer release", newer),
            ("changed by two at once", concurrent),
        ] {
            roff.tagged(&italic(state), behaviour);
        }
    }
    roff.section("SEE ALSO");
    roff.line(&format!("{}(1), {}(5)", bold("nanobot"), bold("nanobot-config")));
    roff.0
}

/// Command lines of the page about events, with what they print.
pub(crate) const EVENT_EXAMPLES: [(&str, &str); 2] = [
    (
        "The answer, as it comes:",
        "nanobot agent --output-format stream-json -m hello | jq -rj 'select(.type == \"text\") | .text'",
    ),
    ("What a turn cost:", "nanobot agent --json -m hello | jq .cost_usd"),
];

fn events_page() -> String {
    let schema: Value = serde_json::from_str(nanobot_agent::report::json::SCHEMA).unwrap();
    let mut roff = Roff::begin("nanobot-events", 5, "the events and the result of a turn");
    roff.section("DESCRIPTION");
    roff.paragraphs(schema["description"].as_str().unwrap());
    roff.paragraphs(
        "`nanobot config schema --events` prints the JSON schema that this page is made from.",
    );
    roff.section("EVERY LINE");
    let kinds = &schema["$defs"];
    fields(&mut roff, &schema, "", &kinds["line"]);
    roff.section("EVENTS");
    let (mut names, mut result) = (Vec::new(), None);
    for one in schema["oneOf"].as_array().unwrap() {
        let name = one["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        match name {
            "result" => result = Some(name),
            name => names.push(name),
        }
    }
    for name in names {
        roff.subsection(name);
        roff.paragraphs(kinds[name]["description"].as_str().unwrap());
        fields(&mut roff, &schema, "", &kinds[name]);
    }
    roff.section("RESULT");
    let result = &kinds[result.expect("there is a result")];
    roff.paragraphs(result["description"].as_str().unwrap());
    fields(&mut roff, &schema, "", result);
    roff.section("EXAMPLES");
    for (does, line) in EVENT_EXAMPLES {
        roff.paragraphs(does);
        roff.verbatim(&break_command_line(line));
    }
    roff.section("SEE ALSO");
    roff.line(&format!("{}(1), {}(1)", bold("nanobot-agent"), bold("nanobot-config-schema")));
    roff.0
}

/// Command lines of the page about JSON, with what they print.
pub(crate) const JSON_EXAMPLES: [(&str, &str); 2] = [
    (
        "The jobs whose last run failed:",
        "nanobot cron list --json | jq -r 'select(.failures > 0) | .name'",
    ),
    ("The cost of each model:", "nanobot usage --by model --json | jq -r '[.model, .usd] | @tsv'"),
];

fn json_page() -> String {
    let mut roff = Roff::begin("nanobot-json", 5, "the JSON that commands print");
    roff.section("DESCRIPTION");
    roff.paragraphs(PROMISE);
    roff.paragraphs(&format!(
        "This is version {JSON_VERSION}. `nanobot config schema --commands` prints it as a JSON schema."
    ));
    roff.section("COMMANDS");
    for JsonShape { name, form, meaning, base, fields } in COMMANDS {
        roff.subsection(&format!("nanobot {name}"));
        let form = match form {
            JsonForm::Object => "One object",
            JsonForm::Lines => "One object per line",
            JsonForm::Array => "One array of objects",
        };
        let base =
            base.map(|base| format!(" It has the fields of `{base}` below.")).unwrap_or_default();
        roff.paragraphs(&format!("{form}: {}{base}", lowercase_first(meaning)));
        json_fields(&mut roff, "", fields);
    }
    roff.section("OBJECTS");
    for JsonShape { name, meaning, fields, .. } in OBJECTS {
        roff.subsection(name);
        roff.paragraphs(meaning);
        json_fields(&mut roff, "", fields);
    }
    roff.section("EXAMPLES");
    for (does, line) in JSON_EXAMPLES {
        roff.paragraphs(does);
        roff.verbatim(&break_command_line(line));
    }
    roff.section("SEE ALSO");
    roff.line(&format!(
        "{}(1), {}(1), {}(5)",
        bold("nanobot"),
        bold("nanobot-config-schema"),
        bold("nanobot-events")
    ));
    roff.0
}

fn json_fields(roff: &mut Roff, above: &str, fields: &[JsonField]) {
    for (name, kind, meaning) in fields {
        let optional = if name.ends_with('?') { ", optional" } else { "" };
        let path = format!("{above}{}", name.trim_end_matches('?'));
        let meaning = if meaning.is_empty() { String::new() } else { format!(": {meaning}") };
        roff.tagged(
            &bold(&path),
            &format!("{}{optional}{meaning}.", uppercase_first(&json_type(kind))),
        );
        let (kind, path) = match kind {
            JsonType::OrNull(JsonType::List(kind)) | JsonType::List(kind) => {
                (*kind, format!("{path}[]."))
            }
            JsonType::OrNull(kind) => (*kind, format!("{path}.")),
            kind => (kind, format!("{path}.")),
        };
        if let JsonType::Fields(fields) = kind {
            json_fields(roff, &path, fields);
        }
    }
}

/// The type of a field, in words.
fn json_type(kind: &JsonType) -> String {
    match kind {
        JsonType::Text => "text".into(),
        JsonType::Time => "time".into(),
        JsonType::Count => "whole number".into(),
        JsonType::Number => "number".into(),
        JsonType::Bool => "true or false".into(),
        JsonType::Any => "any value".into(),
        JsonType::Object | JsonType::Fields(_) => "object".into(),
        JsonType::OneOf(names) => format!("one of `{}`", names.replace(' ', "`, `")),
        JsonType::Shape(name) => format!("object `{name}`"),
        JsonType::List(item) => format!("list, each {}", json_type(item)),
        JsonType::OrNull(kind) => format!("{} or null", json_type(kind)),
    }
}

/// The fields of an object of the schema, including nested ones.
fn fields(roff: &mut Roff, schema: &Value, above: &str, object: &Value) {
    let Some(properties) = object["properties"].as_object() else {
        return;
    };
    for (name, field) in properties {
        // The heading already has it.
        if name == "type" && field.get("const").is_some() {
            continue;
        }
        let path = format!("{above}{name}");
        let field = match field["$ref"].as_str() {
            Some(to) => schema.pointer(to.trim_start_matches('#')).unwrap(),
            None => field,
        };
        let description = field["description"].as_str().unwrap_or_default();
        let text = match description {
            "" => format!("{}.", uppercase_first(&type_description(field))),
            description => format!("{}: {description}.", uppercase_first(&type_description(field))),
        };
        roff.tagged(&bold(&path), &text);
        fields(roff, schema, &format!("{path}."), field);
        fields(roff, schema, &format!("{path}[]."), &field["items"]);
    }
}

/// The type of a field, in words.
fn type_description(field: &Value) -> String {
    let one = |name: &str| match name {
        "string" => "text",
        "integer" => "whole number",
        "boolean" => "true or false",
        "array" => "list",
        "null" => "null",
        other => match other {
            "number" => "number",
            _ => "object",
        },
    };
    if let Some(value) = field.get("const") {
        return format!("always {value}");
    }
    if let Some(values) = field["enum"].as_array() {
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        return format!("one of `{}`", values.join("`, `"));
    }
    match &field["type"] {
        Value::String(name) => one(name).into(),
        Value::Array(names) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).map(one).collect();
            names.join(" or ")
        }
        _ => "any value".into(),
    }
}
