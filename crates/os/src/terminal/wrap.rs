//! Word wrapping for lines that are longer than the window; the terminal itself would break inside words. No I/O.

use console::measure_text_width;

/// Wraps `text` at spaces to at most `width` columns. Continuation lines keep the indentation of their line, plus
/// `hanging_indent` columns.
pub fn wrap_words(text: &str, width: usize, hanging_indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let mut wrapped = line[..indent].to_owned();
        let mut is_empty = true;
        for word in line[indent..].split(' ') {
            let width_with_word = measure_text_width(&wrapped) + 1 + measure_text_width(word);
            if !is_empty && width_with_word > width {
                lines.push(std::mem::replace(&mut wrapped, " ".repeat(indent + hanging_indent)));
                is_empty = true;
            }
            if !is_empty {
                wrapped.push(' ');
            }
            wrapped.push_str(word);
            is_empty = false;
        }
        lines.push(wrapped);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::wrap_words;

    #[test]
    fn text_is_wrapped_at_spaces() {
        let check = |text: &str, width: usize, hang: usize, expect: &str| {
            assert_eq!(wrap_words(text, width, hang), expect);
        };
        check("one two three", 80, 0, "one two three");
        check("one two three", 8, 0, "one two\nthree");
        check("  one two three", 8, 0, "  one\n  two\n  three");
        check("a-very-long-word next", 8, 0, "a-very-long-word\nnext");
        check("one\ntwo", 80, 2, "one\ntwo");
        check("", 8, 2, "");
        check("one two three four", 8, 2, "one two\n  three\n  four");
        check("  try: one two", 10, 5, "  try: one\n       two");
    }
}
