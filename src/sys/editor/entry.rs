//! When an entry goes on after a line's end: pure.

/// What Enter does where the entry is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoesOn {
    /// The backslash at the end becomes a newline.
    Backslash,
    /// A code fence is open.
    Fence,
}

/// Why an entry is not over at its end; `None` where it is.
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
            // Backticks after the fence are code within a line.
            None if long >= 3 && !rest.contains('`') => Some((mark, long)),
            None => None,
        };
    }
    match open {
        Some(_) => Some(GoesOn::Fence),
        None => text.ends_with('\\').then_some(GoesOn::Backslash),
    }
}

/// Put a line's end after what is typed so far. Whether the entry goes on.
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
