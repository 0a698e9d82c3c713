//! A list to choose from, by number, by name or by a part of a name. This module does no I/O.

use crate::ops::jobs::time_format::to_one_line;
use console::{Alignment, measure_text_width, pad_str};
use nanobot_agent::report::columns::truncate;

/// Minimum characters of a part of a name that selects the only item with it. Fewer may be a new name.
const MIN_PART_CHARS: usize = 3;
/// Maximum lines of a list at once. With the question above it and the prompt below, it fits on a terminal of 24 rows.
const MAX_PAGE_LINES: usize = 12;
/// Blanks between two columns.
const COLUMN_GAP: usize = 2;

/// An item of the list.
#[derive(Clone, Debug)]
pub(super) struct MenuItem {
    pub(super) name: String,
    /// Another name of the item, for people.
    pub(super) label: String,
    /// A description, which may be empty. An item with a description is printed on a line of its own.
    pub(super) description: String,
}

/// The meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MenuMatch {
    One(usize),
    Several(Vec<usize>),
    Nothing,
}

/// The first part of a long list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MenuPage {
    pub(super) lines: Vec<String>,
    /// Number of items on the page.
    pub(super) item_count: usize,
}

/// Formats as many of the items at `indexes` as fit into [`MAX_PAGE_LINES`].
pub(super) fn format_page(items: &[MenuItem], indexes: &[usize], width: usize) -> MenuPage {
    let mut item_count = indexes.len().min(MAX_PAGE_LINES);
    let mut lines = format_items(items, &indexes[..item_count], width);
    while item_count < indexes.len() {
        let more_lines = format_items(items, &indexes[..=item_count], width);
        if more_lines.len() > MAX_PAGE_LINES {
            break;
        }
        lines = more_lines;
        item_count += 1;
    }
    MenuPage { lines, item_count }
}

/// Finds the item that `answer` selects. Items are numbered from 1.
pub(super) fn find(items: &[MenuItem], answer: &str) -> MenuMatch {
    let answer = answer.trim().to_lowercase();
    let has_name = |item: &MenuItem| {
        item.name.to_lowercase() == answer || normalize(&item.name) == normalize(&answer)
    };
    if let Some(index) = items.iter().position(has_name) {
        return MenuMatch::One(index);
    }
    let number = answer.parse::<usize>().ok();
    if let Some(index) = number.and_then(|number| number.checked_sub(1)) {
        return if index < items.len() { MenuMatch::One(index) } else { MenuMatch::Nothing };
    }
    let has_part = |item: &MenuItem| {
        item.name.to_lowercase().contains(&answer) || item.label.to_lowercase().contains(&answer)
    };
    let matches: Vec<usize> = (0..items.len()).filter(|index| has_part(&items[*index])).collect();
    match matches[..] {
        [] => MenuMatch::Nothing,
        [index] if answer.chars().count() >= MIN_PART_CHARS => MenuMatch::One(index),
        _ => MenuMatch::Several(matches),
    }
}

/// Normalizes a name for comparison: only ASCII letters and digits, in lower case. A name without any of these is returned unchanged, since
/// an empty result would equal the result of other such names.
fn normalize(name: &str) -> String {
    let normalized: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    if normalized.is_empty() { name.to_owned() } else { normalized.to_lowercase() }
}

/// Formats the items at `indexes`, for a terminal of `width` columns: first those with a description, one per line, then the
/// others in columns.
fn format_items(items: &[MenuItem], indexes: &[usize], width: usize) -> Vec<String> {
    let digits = items.len().to_string().len();
    let cell =
        |index: usize| format!(" {:>digits$}  {}", index + 1, to_one_line(&items[index].name));
    let cell_width = |indexes: &[usize]| {
        let widths = indexes.iter().map(|index| measure_text_width(&cell(*index)));
        widths.max().unwrap_or(0)
    };
    let padded_cell = |index: usize, width: usize| {
        pad_str(&cell(index), width, Alignment::Left, None).into_owned()
    };
    let (described, others): (Vec<usize>, Vec<usize>) =
        indexes.iter().partition(|index| !items[**index].description.is_empty());
    let mut lines = Vec::new();
    let described_width = cell_width(&described);
    for index in described {
        let description = &items[index].description;
        lines.push(format!("{}  {description}", padded_cell(index, described_width)));
    }
    // The numbers of the others run down the columns.
    let column_width = cell_width(&others);
    let column_count = ((width + COLUMN_GAP) / (column_width + COLUMN_GAP)).max(1);
    let line_count = others.len().div_ceil(column_count);
    for first in 0..line_count {
        let cells = others.iter().skip(first).step_by(line_count);
        let cells: Vec<String> = cells.map(|index| padded_cell(*index, column_width)).collect();
        lines.push(cells.join("  ").trim_end().to_owned());
    }
    lines.iter().map(|line| truncate(line, Some(width))).collect()
}

#[cfg(test)]
mod tests {
    use super::{MAX_PAGE_LINES, MenuItem, MenuMatch, find, format_items, format_page};

    fn items() -> Vec<MenuItem> {
        let item = |name: &str, label: &str, description: &str| MenuItem {
            name: name.into(),
            label: label.into(),
            description: description.into(),
        };
        vec![
            item("anthropic", "Anthropic", "the key is in $ANTHROPIC_API_KEY"),
            item("azureOpenai", "Azure OpenAI", ""),
            item("lmStudio", "LM Studio (local)", ""),
            item("openai", "OpenAI", ""),
        ]
    }

    #[test]
    fn an_answer_is_a_number_a_name_or_a_part_of_one() {
        let check = |answer: &str, expect: MenuMatch| assert_eq!(find(&items(), answer), expect);
        check("1", MenuMatch::One(0));
        check("4", MenuMatch::One(3));
        check("0", MenuMatch::Nothing);
        check("5", MenuMatch::Nothing);
        check("OpenAI", MenuMatch::One(3));
        check("lm-studio", MenuMatch::One(2));
        check("lm studio", MenuMatch::One(2));
        check(" anth ", MenuMatch::One(0));
        check("open", MenuMatch::Several(vec![1, 3]));
        check("(local", MenuMatch::One(2));
        check("lm", MenuMatch::Several(vec![2]));
        check("nobody", MenuMatch::Nothing);
        check("…", MenuMatch::Nothing);
    }

    #[test]
    fn a_list_fits_its_terminal() {
        let indexes = [0, 1, 2, 3];
        assert_eq!(
            format_items(&items(), &indexes, 48),
            [
                " 1  anthropic  the key is in $ANTHROPIC_API_KEY",
                " 2  azureOpenai   4  openai",
                " 3  lmStudio",
            ]
        );
        assert_eq!(
            format_items(&items(), &indexes, 24),
            [" 1  anthropic  the key …", " 2  azureOpenai", " 3  lmStudio", " 4  openai",]
        );
        assert!(format_items(&items(), &[], 24).is_empty());
    }

    #[test]
    fn a_page_has_twelve_lines() {
        let item = |number: usize| MenuItem {
            name: format!("m{number}"),
            label: String::new(),
            description: if number < 5 { "known".into() } else { String::new() },
        };
        let items: Vec<MenuItem> = (0..100).map(item).collect();
        let check = |indexes: std::ops::Range<usize>, expect_items: usize, expect_lines: usize| {
            let indexes: Vec<usize> = indexes.collect();
            let page = format_page(&items, &indexes, 20);
            assert_eq!((page.item_count, page.lines.len()), (expect_items, expect_lines));
        };
        // Five with a description, and seven rows of two columns.
        check(0..100, 5 + 14, MAX_PAGE_LINES);
        check(20..100, 24, MAX_PAGE_LINES);
        check(90..100, 10, 5);
        check(0..0, 0, 0);
    }
}
