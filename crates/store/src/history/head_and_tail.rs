//! Cuts the middle out of a long text.

/// The first `head_chars` and the last `tail_chars` characters of `text`. `gap` formats a line between them from the
/// number of omitted characters. `None` if the text is not longer than both.
pub fn head_and_tail(
    text: &str,
    head_chars: usize,
    tail_chars: usize,
    gap: impl FnOnce(usize) -> String,
) -> Option<String> {
    // Fast path: bytes are never fewer than characters, and nearly all texts end here.
    if text.len() <= head_chars + tail_chars {
        return None;
    }
    let chars = text.chars().count();
    let omitted = chars.checked_sub(head_chars + tail_chars).filter(|count| *count > 0)?;
    let offset =
        |index: usize| text.char_indices().nth(index).map_or(text.len(), |(offset, _)| offset);
    let (head, tail) = (&text[..offset(head_chars)], &text[offset(chars - tail_chars)..]);
    Some(format!("{head}\n{}\n{tail}", gap(omitted)))
}

#[cfg(test)]
mod tests {
    use super::head_and_tail;

    #[test]
    fn counts_characters_not_bytes() {
        let check = |text: &str, expect: Option<&str>| {
            let cut = head_and_tail(text, 3, 1, |count| format!("[{count}]"));
            assert_eq!(cut.as_deref(), expect, "{text}");
        };
        check("", None);
        check("abcd", None);
        check("éééé", None);
        check("abcde", Some("abc\n[1]\ne"));
        check("éééééé", Some("ééé\n[2]\né"));
    }
}
