//! Error reports within a conversation. Hints that name a flag of the command line name the slash command instead.

use anyhow::Error;
use nanobot_base::error::hint_for;
use nanobot_os::terminal::Terminal;

/// Texts in hints and their replacements. A text that contains another one must come before it.
const HINT_REPLACEMENTS: &[(&str, &str)] = &[
    ("`nanobot agent --resume`", "`/retry`"),
    ("`--new`", "`/new`"),
    ("the same command again later", "`/retry` later"),
    ("a new message with `-m`", "a new message"),
    ("`nanobot session list`", "`/session`"),
    ("`nanobot skill list`", "`/skills`"),
    ("nanobot skill list", "`/skills`"),
    ("`nanobot undo", "`/undo"),
    ("`nanobot model list --remote`", "`/model`"),
    (": --replay demo", ": `nanobot repl --replay demo`"),
    ("or --replay demo", "or `nanobot repl --replay demo`"),
];

/// Prints an error as [`nanobot_agent::report`] does, with a hint that works in the REPL.
pub(crate) fn report_error(error: &Error, terminal: Terminal) {
    let hint = hint_for(error).map(rewrite_hint);
    crate::ops::context::report_error_with_hint(error, hint.as_deref(), terminal);
}

/// Rewrites `hint` for the REPL.
fn rewrite_hint(hint: &str) -> String {
    HINT_REPLACEMENTS.iter().fold(hint.to_owned(), |hint, (from, to)| hint.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::rewrite_hint;

    #[test]
    fn flags_are_commands_here() {
        let check = |hint: &str, expect: &str| assert_eq!(rewrite_hint(hint), expect);
        check("`nanobot agent --resume`, or `--new`", "`/retry`, or `/new`");
        check(
            "a shorter input, `--new`, or a model with a larger context window",
            "a shorter input, `/new`, or a model with a larger context window",
        );
        check(
            "`nanobot onboard`, or try the demo: --replay demo",
            "`nanobot onboard`, or try the demo: `nanobot repl --replay demo`",
        );
        check("`nanobot undo --list`", "`/undo --list`");
        check("the same command again later", "`/retry` later");
        check("`--write`", "`--write`");
    }
}
