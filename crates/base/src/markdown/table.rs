//! The syntax of tables: cells and alignments.

/// The alignment of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// The default.
    #[default]
    Left,
    /// `:-:`
    Center,
    /// `-:`
    Right,
}

/// Returns the alignments of the columns, if `line` is a delimiter row such as `|:--|--:|`.
pub fn parse_alignments(line: &str) -> Option<Vec<Align>> {
    let cells = split_cells(line);
    let align = |cell: &&str| {
        let dashes = cell.strip_prefix(':').unwrap_or(cell);
        let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
        if dashes.is_empty() || !dashes.bytes().all(|byte| byte == b'-') {
            None
        } else if !cell.ends_with(':') {
            Some(Align::Left)
        } else if cell.starts_with(':') {
            Some(Align::Center)
        } else {
            Some(Align::Right)
        }
    };
    cells.iter().map(align).collect()
}

/// Splits a line into cells at bars, except bars in code or after a backslash.
pub fn split_cells(line: &str) -> Vec<&str> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut cells = Vec::new();
    let mut start = 0;
    let mut is_escaped = false;
    let mut is_code = false;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' => is_escaped = true,
            b'`' => is_code = !is_code,
            b'|' if !is_code || !line[at..].contains('`') => {
                cells.push(line[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = line[start..].trim();
    if !last.is_empty() || cells.is_empty() {
        cells.push(last);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::split_cells;

    #[test]
    fn bars_part_cells() {
        assert_eq!(split_cells(r"| a | `b|c` | d\|e |"), ["a", "`b|c`", r"d\|e"]);
        assert_eq!(split_cells("a|b"), ["a", "b"]);
        assert_eq!(split_cells("| a ` | b |"), ["a `", "b"]);
        assert_eq!(split_cells("||"), [""; 1]);
    }
}
