//! HTML of a small set of tags, for Matrix and mail. Nothing of the text becomes a tag.

use nanobot_base::markdown::document::{DocumentLine, LineContent, RowKind, TableCell, TextRun};
use nanobot_base::markdown::line::Container;
use nanobot_base::markdown::style::TextStyle;
use nanobot_base::markdown::table::Align;
use nanobot_base::message::addresses::find_web_addresses;

/// The schemes of links. Others stay text, such as those that run code or mention a person.
const LINK_SCHEMES: [&str; 4] = ["https:", "http:", "mailto:", "matrix:"];

/// Writes the lines of a part.
pub(super) fn write(lines: &[DocumentLine]) -> String {
    let mut writer = HtmlWriter::default();
    for line in lines {
        writer.push(line);
    }
    writer.close_to(0);
    writer.out
}

/// An open block within its containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    /// Text directly in an item.
    ItemText,
    Paragraph,
    Code,
    Table(RowKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenContainer {
    Quote,
    Item {
        is_numbered: bool,
    },
    /// An item that began in an earlier part. It has no tag, since its mark would be shown again.
    Continued,
}

#[derive(Debug, Default)]
struct HtmlWriter {
    out: String,
    open: Vec<OpenContainer>,
    leaf: Option<Leaf>,
}

impl HtmlWriter {
    fn push(&mut self, line: &DocumentLine) {
        self.open_containers(line);
        match &line.content {
            LineContent::Text(runs) => {
                let is_new_item = line.continued < line.containers.len()
                    && matches!(line.containers.last(), Some(Container::Item { .. }));
                match self.leaf {
                    Some(Leaf::ItemText | Leaf::Paragraph) if !line.starts_block => {
                        self.out += "<br>";
                    }
                    _ if is_new_item => self.open_leaf(Leaf::ItemText, ""),
                    _ => self.open_leaf(Leaf::Paragraph, "<p>"),
                }
                self.out += &runs_html(&with_links(runs));
            }
            LineContent::Heading(level, runs) => {
                self.close_leaf();
                let text = runs_html(&with_links(runs));
                self.out += &format!("<h{level}>{text}</h{level}>");
            }
            LineContent::Rule => {
                self.close_leaf();
                self.out += "<hr>";
            }
            LineContent::Code { language, text } => {
                match self.leaf {
                    Some(Leaf::Code) if !line.starts_block => self.out.push('\n'),
                    _ => self.open_leaf(Leaf::Code, &code_tag(language)),
                }
                self.out += &escape(text);
            }
            LineContent::Row(kind, cells) => self.push_row(line, *kind, cells),
        }
    }

    fn push_row(&mut self, line: &DocumentLine, kind: RowKind, cells: &[TableCell]) {
        let kind = match kind {
            RowKind::Delimiter => return,
            kind => kind,
        };
        match self.leaf {
            Some(Leaf::Table(_)) if !line.starts_block => {}
            _ => self.open_leaf(Leaf::Table(kind), "<table>"),
        }
        let tag = if kind == RowKind::Header { "th" } else { "td" };
        self.out += "<tr>";
        for TableCell { align, runs } in cells {
            let style = match align {
                Align::Left => "",
                Align::Center => " style=\"text-align:center\"",
                Align::Right => " style=\"text-align:right\"",
            };
            let text = runs_html(&with_links(runs));
            self.out += &format!("<{tag}{style}>{text}</{tag}>");
        }
        self.out += "</tr>";
    }

    /// Closes the containers that the line is not in, and opens those that it begins.
    fn open_containers(&mut self, line: &DocumentLine) {
        let open_count = line.continued.min(self.open.len());
        let mut remaining = line.containers.iter().enumerate().skip(open_count);
        if line.containers.len() == open_count && self.open.len() == open_count {
            return;
        }
        self.close_leaf();
        // The next item of the same list.
        if let Some(OpenContainer::Item { is_numbered }) = self.open.get(open_count).copied()
            && let Some((index, Container::Item { mark, .. })) = remaining.clone().next()
            && index >= line.continued
            && is_numbered == (number(mark).is_some())
        {
            self.close_to(open_count + 1);
            remaining.next();
            self.out += "</li><li>";
            self.out += box_of(mark);
        }
        let count = remaining.clone().next().map_or(line.containers.len(), |(index, _)| index);
        self.close_to(count);
        for (index, container) in remaining {
            let opened = match container {
                Container::Quote => {
                    self.out += "<blockquote>";
                    OpenContainer::Quote
                }
                Container::Item { .. } if index < line.continued => OpenContainer::Continued,
                Container::Item { mark, .. } => {
                    let number = number(mark);
                    self.out += &match number {
                        Some(1) => "<ol><li>".to_owned(),
                        Some(number) => format!("<ol start=\"{number}\"><li>"),
                        None => "<ul><li>".to_owned(),
                    };
                    self.out += box_of(mark);
                    OpenContainer::Item { is_numbered: number.is_some() }
                }
            };
            self.open.push(opened);
        }
    }

    fn open_leaf(&mut self, leaf: Leaf, tag: &str) {
        self.close_leaf();
        self.out += tag;
        self.leaf = Some(leaf);
    }

    fn close_leaf(&mut self) {
        self.out += match self.leaf.take() {
            None | Some(Leaf::ItemText) => "",
            Some(Leaf::Paragraph) => "</p>",
            Some(Leaf::Code) => "</code></pre>",
            Some(Leaf::Table(_)) => "</table>",
        };
    }

    /// Closes the leaf, and the containers but for the first `count`.
    fn close_to(&mut self, count: usize) {
        self.close_leaf();
        while self.open.len() > count {
            self.out += match self.open.pop() {
                Some(OpenContainer::Quote) => "</blockquote>",
                Some(OpenContainer::Item { is_numbered: true }) => "</li></ol>",
                Some(OpenContainer::Item { is_numbered: false }) => "</li></ul>",
                Some(OpenContainer::Continued) | None => "",
            };
        }
    }
}

/// Returns the number of an item's mark.
fn number(mark: &str) -> Option<u32> {
    let digits = mark.split(|letter: char| !letter.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok())
}

/// Returns the checkbox of an item's mark.
fn box_of(mark: &str) -> &str {
    mark.find(['☐', '☑']).map_or("", |at| &mark[at..])
}

/// Returns the tags that open a code block.
pub(super) fn code_tag(language: &str) -> String {
    match language {
        "" => "<pre><code>".to_owned(),
        _ => format!("<pre><code class=\"language-{language}\">"),
    }
}

/// Writes the text of a line. The address of a link that is not allowed follows its text.
pub(super) fn runs_html(runs: &[TextRun]) -> String {
    let mut out = String::new();
    for link in runs.chunk_by(is_same_link) {
        let text: String = link.iter().map(run_html).collect();
        let first = &link[0];
        let target = match &first.address {
            Some(address) => Some(address.clone()),
            None if first.style.link => Some(bare_target(&first.text)),
            None => None,
        };
        match target {
            Some(target) if is_allowed(&target) => {
                out += &format!("<a href=\"{}\">{text}</a>", escape(&target));
            }
            Some(target) if first.address.is_some() => {
                out += &format!("{text} ({})", escape(&target));
            }
            _ => out += &text,
        }
    }
    out
}

/// Makes links of the web addresses that stand in the text without the marks of one.
fn with_links(runs: &[TextRun]) -> Vec<TextRun> {
    let mut linked = Vec::new();
    for run in runs {
        let is_text = !run.style.code && !run.style.link && run.address.is_none();
        let mut end = 0;
        for (at, address) in find_web_addresses(&run.text).filter(|_| is_text) {
            if at > end {
                linked.push(TextRun { text: run.text[end..at].to_owned(), ..run.clone() });
            }
            let style = TextStyle { link: true, ..run.style };
            linked.push(TextRun { style, address: None, text: address.to_owned() });
            end = at + address.len();
        }
        if end < run.text.len() {
            linked.push(TextRun { text: run.text[end..].to_owned(), ..run.clone() });
        }
    }
    linked
}

fn is_same_link(left: &TextRun, right: &TextRun) -> bool {
    left.address == right.address && !left.style.link && !right.style.link
}

/// Returns the target of a link that is shown as its address.
fn bare_target(text: &str) -> String {
    if text.contains('@') && !text.contains(':') {
        format!("mailto:{text}")
    } else {
        text.to_owned()
    }
}

fn is_allowed(address: &str) -> bool {
    let lower = address.to_ascii_lowercase();
    LINK_SCHEMES.iter().any(|scheme| lower.starts_with(scheme))
}

/// Writes one run. Code has no other style, since Telegram allows none within it.
fn run_html(run: &TextRun) -> String {
    let text = escape(&run.text);
    let style = run.style;
    if style.code {
        return format!("<code>{text}</code>");
    }
    let tags = [(style.struck, "s"), (style.italic, "i"), (style.bold, "b")];
    tags.iter()
        .filter(|(is_set, _)| *is_set)
        .fold(text, |text, (_, tag)| format!("<{tag}>{text}</{tag}>"))
}

/// Escapes text for HTML.
pub(super) fn escape(text: &str) -> String {
    html_escape::encode_double_quoted_attribute(text).into_owned()
}
