//! What to do next, said in a conversation: what a command line does with a flag is a command of ours here.

use crate::error::hint_of;
use crate::sys::terminal::Terminal;
use anyhow::Error;

/// Words of a hint, and what stands for them here; a longer one is before what it holds.
const HERE: &[(&str, &str)] = &[
    ("`nanobot agent --resume`", "`/retry`"),
    ("`--resume`", "`/retry`"),
    ("`--new`", "`/new`"),
    (": --replay demo", ": `nanobot repl --replay demo`"),
    ("or --replay demo", "or `nanobot repl --replay demo`"),
];

/// Say what went wrong, as [`crate::report`] does, and what to do next here.
pub(crate) fn report(error: &Error, terminal: Terminal) {
    let hint = hint_of(error).map(here);
    crate::ops::context::report_error_with_hint(error, hint.as_deref(), terminal);
}

/// `hint`, as it is to be said in a conversation.
fn here(hint: &str) -> String {
    HERE.iter().fold(hint.to_owned(), |hint, (there, here)| {
        hint.replace(there, here)
    })
}

#[cfg(test)]
mod tests {
    use super::here;

    #[test]
    fn flags_are_commands_here() {
        let check = |hint: &str, expect: &str| assert_eq!(here(hint), expect);
        check(
            "`nanobot agent --resume`, or `--new`",
            "`/retry`, or `/new`",
        );
        check(
            "`--resume` goes on where this stopped",
            "`/retry` goes on where this stopped",
        );
        check(
            "a shorter input, `--new`, or a model with a larger context",
            "a shorter input, `/new`, or a model with a larger context",
        );
        check(
            "`nanobot onboard`, or look first: --replay demo",
            "`nanobot onboard`, or look first: `nanobot repl --replay demo`",
        );
        check("`--write`", "`--write`");
    }
}
