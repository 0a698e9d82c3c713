//! A list to choose from, by number, by name or by part of a name. Pure.

use crate::ops::jobs::time_format::to_one_line;
use console::{Alignment, measure_text_width, pad_str};
use nanobot_agent::report::columns::truncate;

/// Characters of a part of a name that select the only item with it; fewer may be another name.
const MIN_PART_CHARS: usize = 3;
/// Blanks between two columns.
const COLUMN_GAP: usize = 2;

/// An item of the list.
#[derive(Clone, Debug)]
pub(super) struct MenuItem {
    pub(super) name: String,
    /// Another name of the item, for people.
    pub(super) label: String,
    /// A description. An item that has one is printed on a line of its own.
    pub(super) description: String,
}

/// The meaning of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MenuMatch {
    One(usize),
    Several(Vec<usize>),
    Nothing,
}

/// Finds the item that `answer` selects. Items are numbered from 1.
pub(super) fn find(rows: &[MenuItem], answer: &str) -> MenuMatch {
    let lower = |text: &str| text.to_lowercase();
    let wanted = lower(answer.trim());
    let is =
        |row: &MenuItem| lower(&row.name) == wanted || normalize(&row.name) == normalize(&wanted);
    if let Some(place) = rows.iter().position(is) {
        return MenuMatch::One(place);
    }
    let number = wanted.parse::<usize>().ok();
    if let Some(place) = number.and_then(|number| number.checked_sub(1)) {
        return if place < rows.len() { MenuMatch::One(place) } else { MenuMatch::Nothing };
    }
    let has =
        |row: &MenuItem| lower(&row.name).contains(&wanted) || lower(&row.label).contains(&wanted);
    let among: Vec<usize> = (0..rows.len()).filter(|place| has(&rows[*place])).collect();
    match among[..] {
        [] => MenuMatch::Nothing,
        [place] if wanted.chars().count() >= MIN_PART_CHARS => MenuMatch::One(place),
        _ => MenuMatch::Several(among),
    }
}

/// Normalizes a name for comparison: only ASCII letters and digits, in lower case. A name without any is returned as it
/// is, since an empty result would equal that of other such names.
fn normalize(name: &str) -> String {
    let kept: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    if kept.is_empty() { name.to_owned() } else { kept.to_lowercase() }
}

/// Formats those of `rows` at `places`, for a terminal of `width` columns: first the items with a description, one per
/// line, then the others in columns.
pub(super) fn format_items(rows: &[MenuItem], places: &[usize], width: usize) -> Vec<String> {
    let (spoken, plain): (Vec<usize>, Vec<usize>) =
        places.iter().partition(|place| !rows[**place].description.is_empty());
    let digits = rows.len().to_string().len();
    let cell = |place: usize| {
        let name = to_one_line(&rows[place].name);
        format!(" {:>digits$}  {name}", place + 1)
    };
    let widest = |places: &[usize]| {
        let widths = places.iter().map(|place| measure_text_width(&cell(*place)));
        widths.max().unwrap_or(0)
    };
    let padded = |place: usize, width: usize| {
        pad_str(&cell(place), width, Alignment::Left, None).into_owned()
    };
    let column = widest(&spoken);
    let mut lines: Vec<String> = spoken
        .iter()
        .map(|place| format!("{}  {}", padded(*place, column), rows[*place].description))
        .collect();
    let column = widest(&plain);
    let across = ((width + COLUMN_GAP) / (column + COLUMN_GAP)).max(1);
    let down = plain.len().div_ceil(across);
    lines.extend((0..down).map(|line| {
        let cells = plain.iter().skip(line).step_by(down.max(1));
        let cells: Vec<String> = cells.map(|place| padded(*place, column)).collect();
        cells.join("  ").trim_end().to_owned()
    }));
    lines.iter().map(|line| truncate(line, Some(width))).collect()
}

#[cfg(test)]
mod tests {
    use super::{MenuItem, MenuMatch, find, format_items};

    fn rows() -> Vec<MenuItem> {
        let row = |name: &str, label: &str, about: &str| MenuItem {
            name: name.into(),
            label: label.into(),
            description: about.into(),
        };
        vec![
            row("anthropic", "Anthropic", "the key is in $ANTHROPIC_API_KEY"),
            row("azureOpenai", "Azure OpenAI", ""),
            row("lmStudio", "LM Studio (local)", ""),
            row("openai", "OpenAI", ""),
        ]
    }

    #[test]
    fn an_answer_is_a_number_a_name_or_a_part_of_one() {
        let check = |answer: &str, expect: MenuMatch| assert_eq!(find(&rows(), answer), expect);
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
        let places = [0, 1, 2, 3];
        assert_eq!(
            format_items(&rows(), &places, 48),
            [
                " 1  anthropic  the key is in $ANTHROPIC_API_KEY",
                " 2  azureOpenai   4  openai",
                " 3  lmStudio",
            ]
        );
        assert_eq!(
            format_items(&rows(), &places, 24),
            [" 1  anthropic  the key …", " 2  azureOpenai", " 3  lmStudio", " 4  openai",]
        );
        assert!(format_items(&rows(), &[], 24).is_empty());
    }
}
