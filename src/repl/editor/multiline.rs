//! Rules for entries that continue after the end of a line. No I/O.

/// The reason why an entry continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// A backslash at the end, which is replaced by a newline.
    Backslash,
    /// A code fence is open.
    OpenCodeFence,
}

/// Returns why an entry is incomplete; `None` if it is complete.
pub(super) fn find_continuation(text: &str) -> Option<Continuation> {
    // The character and the length of an open fence.
    let mut open_fence: Option<(char, usize)> = None;
    for line in text.split('\n') {
        let line = line.trim();
        let Some(mark) = line.chars().next().filter(|letter| matches!(letter, '`' | '~')) else {
            continue;
        };
        let rest = line.trim_start_matches(mark);
        let length = line.len() - rest.len();
        open_fence = match open_fence {
            // A fence is closed by one that is at least as long, with nothing after it.
            Some(open) if mark == open.0 && length >= open.1 && rest.is_empty() => None,
            Some(open) => Some(open),
            // Further backticks on the same line make it inline code.
            None if length >= 3 && !rest.contains('`') => Some((mark, length)),
            None => None,
        };
    }
    match open_fence {
        Some(_) => Some(Continuation::OpenCodeFence),
        None => text.ends_with('\\').then_some(Continuation::Backslash),
    }
}

/// Handles Enter after `text`. True if the entry continues.
pub(super) fn continue_entry(text: &mut String) -> bool {
    match find_continuation(text) {
        Some(Continuation::Backslash) => {
            text.pop();
            text.push('\n');
            true
        }
        Some(Continuation::OpenCodeFence) => {
            text.push('\n');
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Continuation, find_continuation};

    #[test]
    fn backslashes_and_open_fences_continue() {
        let check = |text: &str, expect| assert_eq!(find_continuation(text), expect, "{text:?}");
        check("", None);
        check("hello", None);
        check("hello \\", Some(Continuation::Backslash));
        check("a\\\nb", None);
        check("```", Some(Continuation::OpenCodeFence));
        check("look:\n```rust\nfn main() {}", Some(Continuation::OpenCodeFence));
        check("look:\n```rust\nfn main() {}\n```", None);
        check("```\na\\", Some(Continuation::OpenCodeFence));
        check("````\n```\n", Some(Continuation::OpenCodeFence));
        check("````\n```\n````", None);
        check("~~~\n```\n~~~", None);
        check("```one line```", None);
        check("what is `a`?", None);
        check("  ```\n  ```  ", None);
    }
}
