//! Rules for entries that continue after the end of a line. Pure.

/// The reason why an entry continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoesOn {
    /// A backslash at the end, which is replaced by a newline.
    Backslash,
    /// A code fence is open.
    Fence,
}

/// Returns why an entry is incomplete; `None` if it is complete.
pub(super) fn goes_on(text: &str) -> Option<GoesOn> {
    let mut open: Option<(char, usize)> = None;
    for line in text.split('\n') {
        let line = line.trim();
        let Some(mark) = line
            .chars()
            .next()
            .filter(|letter| matches!(letter, '`' | '~'))
        else {
            continue;
        };
        let rest = line.trim_start_matches(mark);
        let long = line.len() - rest.len();
        open = match open {
            Some((its, least)) if its == mark && long >= least && rest.is_empty() => None,
            Some(open) => Some(open),
            // Further backticks on the same line make it inline code.
            None if long >= 3 && !rest.contains('`') => Some((mark, long)),
            None => None,
        };
    }
    match open {
        Some(_) => Some(GoesOn::Fence),
        None => text.ends_with('\\').then_some(GoesOn::Backslash),
    }
}

/// Handles Enter after `text`. True if the entry continues.
pub(super) fn end_line(text: &mut String) -> bool {
    match goes_on(text) {
        Some(GoesOn::Backslash) => {
            text.pop();
            text.push('\n');
            true
        }
        Some(GoesOn::Fence) => {
            text.push('\n');
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{GoesOn, goes_on};

    #[test]
    fn backslashes_and_open_fences_go_on() {
        let check = |text: &str, expect| assert_eq!(goes_on(text), expect, "{text:?}");
        check("", None);
        check("hello", None);
        check("hello \\", Some(GoesOn::Backslash));
        check("a\\\nb", None);
        check("```", Some(GoesOn::Fence));
        check("look:\n```rust\nfn main() {}", Some(GoesOn::Fence));
        check("look:\n```rust\nfn main() {}\n```", None);
        check("```\na\\", Some(GoesOn::Fence));
        check("````\n```\n", Some(GoesOn::Fence));
        check("````\n```\n````", None);
        check("~~~\n```\n~~~", None);
        check("```one line```", None);
        check("what is `a`?", None);
        check("  ```\n  ```  ", None);
    }
}
