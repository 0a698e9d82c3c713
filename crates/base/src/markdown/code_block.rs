//! The first fenced code block of a text, as its author wrote it. Lines keep their endings, unlike those of
//! [`super::document`].

use super::line::{CODE_INDENT_COLUMNS, MIN_FENCE_MARKS};

/// Returns the content of the first fenced block of `text`. With a `language`, it is the first block that has this word, in any
/// case, behind its opening fence. A block without an end reaches to the end of the text. Lines lose the indentation of their
/// fence, as CommonMark says.
pub fn first_code_block(text: &str, language: Option<&str>) -> Option<String> {
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let Some(opening) = OpeningFence::parse(line) else { continue };
        let content = lines.by_ref().take_while(|line| !opening.is_closed_by(line));
        let is_wanted =
            language.is_none_or(|language| opening.language().eq_ignore_ascii_case(language));
        let content: String = content.map(|line| opening.remove_indentation(line)).collect();
        if is_wanted {
            return Some(content);
        }
    }
    None
}

/// The line that opens a block.
struct OpeningFence<'t> {
    /// The number of spaces before the marks.
    indentation: usize,
    mark: char,
    mark_count: usize,
    /// The rest of the line.
    info: &'t str,
}

impl<'t> OpeningFence<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let marks = line.trim_start_matches(' ');
        let indentation = line.len() - marks.len();
        let mark = marks.chars().next().filter(|mark| ['`', '~'].contains(mark))?;
        let info = marks.trim_start_matches(mark);
        let mark_count = marks.len() - info.len();
        let is_fence = indentation < CODE_INDENT_COLUMNS
            && mark_count >= MIN_FENCE_MARKS
            // Otherwise it is code within a line.
            && !(mark == '`' && info.contains('`'));
        is_fence.then_some(Self { indentation, mark, mark_count, info })
    }

    fn language(&self) -> &'t str {
        self.info.split_whitespace().next().unwrap_or_default()
    }

    fn is_closed_by(&self, line: &str) -> bool {
        OpeningFence::parse(line).is_some_and(|end| {
            end.mark == self.mark && end.mark_count >= self.mark_count && end.info.trim().is_empty()
        })
    }

    fn remove_indentation<'l>(&self, line: &'l str) -> &'l str {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        &line[spaces.min(self.indentation)..]
    }
}

#[cfg(test)]
mod tests {
    use super::first_code_block;

    #[test]
    fn the_first_block_is_found() {
        let check = |text: &str, language: Option<&str>, expect: Option<&str>| {
            assert_eq!(first_code_block(text, language).as_deref(), expect, "{text:?}");
        };
        check("Here:\n```sh\nls -l\n```\nDone.\n```\nno\n```", None, Some("ls -l\n"));
        check("a\n```\r\nb\r\n\r\n```\r\n", None, Some("b\r\n\r\n"));
        check("```py\na\n```\n```Rust ignore\nb\n```", Some("rust"), Some("b\n"));
        check("```py\na\n```", Some("rust"), None);
        check("~~~\n```\n~~\n~~~~\n", None, Some("```\n~~\n"));
        check("````md\n```sh\nls\n```\n````", None, Some("```sh\nls\n```\n"));
        check("1. So:\n   ```\n   a\n     b\n   ```", None, Some("a\n  b\n"));
        check("```\nno end", None, Some("no end"));
        check("```\n```", None, Some(""));
        check("`ls` and ```ls``` here", None, None);
        check("    ```\n    no\n    ```", None, None);
        check("", None, None);
    }
}
