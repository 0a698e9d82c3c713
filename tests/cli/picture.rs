//! Pictures of the screens: a snapshot with styles as an SVG file, in the colours of the reader's theme. A snapshot with several
//! frames becomes an animation that repeats.

use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// The line before each frame of an animation; after it, the number of milliseconds that the frame is shown.
pub(crate) const FRAME_MARK: &str = "%% frame ";

/// Size of a character cell, and the space around the text, in pixels.
const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 19.0;
const PADDING: f64 = 16.0;

/// Colours on a light ground, and on a dark one.
const THEMES: [(&str, [&str; 10]); 2] = [
    (
        "",
        [
            "#ffffff", "#24292f", "#57606a", "#cf222e", "#116329", "#7d4e00", "#0550ae", "#8250df",
            "#0e6f7c", "#d0d7de",
        ],
    ),
    (
        "@media (prefers-color-scheme: dark)",
        [
            "#0d1117", "#e6edf3", "#8b949e", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff",
            "#76d9e6", "#30363d",
        ],
    ),
];
/// Where each of the colours is used; the ground is the first.
const RULES: [&str; 10] = [
    ".ground{fill:C}",
    "text{fill:C}",
    ".dim{fill:C}",
    ".red{fill:C}",
    ".green{fill:C}",
    ".yellow{fill:C}",
    ".blue{fill:C}",
    ".magenta{fill:C}",
    ".cyan{fill:C}",
    ".ground{stroke:C}",
];

/// One state of the screen.
struct Frame {
    rows: Vec<String>,
    millis: u64,
}

/// Renders `text`, a snapshot with the marks of `Screen::styled`.
pub(crate) fn render(text: &str) -> String {
    let frames = parse_frames(text);
    let rows = frames.iter().flat_map(|frame| &frame.rows);
    let columns = rows.map(|row| width(row)).max().unwrap_or(0);
    let lines = frames.iter().map(|frame| frame.rows.len()).max();
    let (width, height) = (
        columns as f64 * CELL_WIDTH + 2.0 * PADDING,
        lines.unwrap_or(0) as f64 * CELL_HEIGHT + 2.0 * PADDING,
    );
    // The attribute keeps blanks where `white-space` is not known, as in librsvg.
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\">\n<style>\n"
    );
    svg.push_str("text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}\n");
    svg.push_str(
        ".bold{font-weight:bold}.italic{font-style:italic}.underlined{text-decoration:underline}\n",
    );
    for (condition, colors) in THEMES {
        let rules: String =
            RULES.iter().zip(colors).map(|(rule, color)| rule.replace('C', color)).collect();
        match condition {
            "" => writeln!(svg, "{rules}"),
            condition => writeln!(svg, "{condition}{{{rules}}}"),
        }
        .unwrap();
    }
    if frames.len() > 1 {
        svg.push_str(&animation(&frames));
    }
    writeln!(
        svg,
        "</style>\n<rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"8\"/>",
        width - 1.0,
        height - 1.0
    )
    .unwrap();
    for (index, frame) in frames.iter().enumerate() {
        writeln!(svg, "<g class=\"frame f{index}\">").unwrap();
        for (index, row) in frame.rows.iter().enumerate() {
            render_row(&mut svg, row, index);
        }
        svg.push_str("</g>\n");
    }
    svg + "</svg>\n"
}

fn parse_frames(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix(FRAME_MARK) {
            Some(millis) => frames.push(Frame {
                rows: Vec::new(),
                millis: millis.parse().expect("a frame has a duration"),
            }),
            None => match frames.last_mut() {
                Some(frame) => frame.rows.push(line.to_owned()),
                None => frames.push(Frame { rows: vec![line.to_owned()], millis: 0 }),
            },
        }
    }
    frames
}

/// Rules that show one frame after the other. A reader who prefers no motion sees the last one.
fn animation(frames: &[Frame]) -> String {
    let total: u64 = frames.iter().map(|frame| frame.millis).sum();
    let percent = |millis: u64| millis as f64 * 100.0 / total as f64;
    let last = frames.len() - 1;
    let mut rules = format!(".frame{{visibility:hidden}}.f{last}{{visibility:visible}}\n");
    rules.push_str("@media (prefers-reduced-motion: no-preference){\n");
    let mut start = 0;
    for (index, frame) in frames.iter().enumerate() {
        let (from, to) = (percent(start), percent(start + frame.millis));
        start += frame.millis;
        writeln!(
            rules,
            "@keyframes k{index}{{0%{{visibility:hidden}}{from:.3}%{{visibility:visible}}{to:.3}%{{visibility:{}}}100%{{visibility:{}}}}}",
            if index == last { "visible" } else { "hidden" },
            if index == last { "visible" } else { "hidden" },
        )
        .unwrap();
        writeln!(rules, ".f{index}{{animation:k{index} {total}ms step-end infinite}}").unwrap();
    }
    rules + "}\n"
}

/// A part of a row with one style.
struct StyledRun<'a> {
    classes: &'a str,
    text: &'a str,
}

fn runs(row: &str) -> Vec<StyledRun<'_>> {
    let mut runs = Vec::new();
    let mut rest = row;
    while !rest.is_empty() {
        let (plain, marked) = rest.split_once('«').unwrap_or((rest, ""));
        let (marked, after) = marked.split_once('»').unwrap_or((marked, ""));
        let (classes, text) = marked.split_once(':').unwrap_or(("", marked));
        runs.push(StyledRun { classes: "", text: plain });
        runs.push(StyledRun { classes, text });
        rest = after;
    }
    runs.retain(|run| !run.text.is_empty());
    runs
}

/// The number of columns of a row, without its marks.
fn width(row: &str) -> usize {
    runs(row).iter().map(|run| run.text.width()).sum()
}

fn render_row(svg: &mut String, row: &str, index: usize) {
    let y = PADDING + CELL_HEIGHT * (index as f64 + 0.75);
    let mut column = 0;
    for StyledRun { classes, text } in runs(row) {
        let columns = text.width();
        let x = PADDING + column as f64 * CELL_WIDTH;
        column += columns;
        if text.trim().is_empty() {
            continue;
        }
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let class = match classes {
            "" => String::new(),
            classes => format!(" class=\"{classes}\""),
        };
        // The length holds the columns together in any font.
        writeln!(
            svg,
            "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\">{escaped}</text>",
            columns as f64 * CELL_WIDTH
        )
        .unwrap();
    }
}

#[test]
fn a_picture_has_styles_text_and_frames() {
    let svg = render("«bold red:<a>» & b\n\n  «dim:c»\n");
    assert!(svg.contains("<text class=\"bold red\" x=\"16.0\" y=\"30.2\" textLength=\"25.2\" lengthAdjust=\"spacingAndGlyphs\">&lt;a&gt;</text>"), "{svg}");
    assert!(svg.contains("<text x=\"41.2\""), "{svg}");
    assert!(svg.contains("<text class=\"dim\" x=\"32.8\" y=\"68.2\""), "{svg}");
    assert!(svg.contains("prefers-color-scheme: dark"), "{svg}");
    assert!(
        svg.contains("<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" "),
        "{svg}"
    );
    assert!(!svg.contains("@keyframes"), "{svg}");
    let svg = render("%% frame 500\na\n%% frame 1500\na\nb\n");
    assert!(
        svg.contains("@keyframes k1{0%{visibility:hidden}25.000%{visibility:visible}"),
        "{svg}"
    );
    assert!(svg.contains(".f0{animation:k0 2000ms step-end infinite}"), "{svg}");
    assert_eq!(svg.matches("<g class=\"frame").count(), 2);
}
