//! Converts a model's Markdown into the parts of a message, in the form that a service takes. No I/O.
//!
//! [`nanobot_base::markdown::document`] parses the text into lines; [`split`] divides these among parts; one file for each
//! form writes the lines of a part. A part is always well formed by itself: it opens and closes its own tags and code
//! fences. Services that take Markdown get the lines as the model wrote them.

use marks::MarkReader;
use nanobot_base::markdown::document::{self, DocumentLine};

mod commonmark;
mod html;
mod marks;
mod plain;
mod split;
mod table;
mod telegram;

/// Maximum size of both forms of a Matrix message together, in bytes. An event may have 65,536 bytes (Matrix
/// specification, "Size limits"). JSON escapes and the envelope take a part of it.
const MAX_MATRIX_BYTES: usize = 30_000;

/// The form that a service takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The HTML of `parse_mode: HTML` (Telegram Bot API, "Formatting options").
    TelegramHtml,
    /// `formatted_body` with `body` (Matrix specification, `m.room.message`).
    MatrixHtml,
    /// The HTML alternative of a mail. It has no limit.
    MailHtml,
    /// `markdown_text` of `chat.postMessage`, without tables.
    Slack,
    /// `text` of `chat.postMessage`: mrkdwn, without tables.
    SlackText,
    /// The Markdown of Mattermost, with tables.
    Mattermost,
    /// The Markdown of Discord: no tables, and headings of three levels.
    Discord,
    /// The marks of WhatsApp, without tables.
    WhatsApp,
    /// Standard Markdown without tables.
    Markdown(TextLimit),
    /// Text without any markup.
    Plain(TextLimit),
}

/// The limit of a message. Values below 1,000 are not supported, since a link must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLimit {
    /// The maximum, in `unit`.
    pub amount: usize,
    /// The unit that the service counts in.
    pub unit: LengthUnit,
}

/// The unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthUnit {
    /// Bytes of UTF-8.
    Bytes,
    /// Code units of UTF-16. Where a service counts characters, this is the stricter count.
    Utf16,
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedPart {
    /// The text in the form of the dialect.
    pub markup: String,
    /// The text without markup, within the same limit: for services that take both forms, and for markup that the
    /// service rejects.
    pub plain: String,
}

impl Dialect {
    fn limit(self) -> TextLimit {
        let (amount, unit) = match self {
            Self::TelegramHtml => (4096, LengthUnit::Utf16),
            Self::MatrixHtml => (MAX_MATRIX_BYTES, LengthUnit::Bytes),
            Self::MailHtml => (usize::MAX, LengthUnit::Bytes),
            Self::Slack => (12_000, LengthUnit::Utf16),
            Self::SlackText => (40_000, LengthUnit::Utf16),
            Self::Mattermost => (16_383, LengthUnit::Utf16),
            Self::Discord => (2000, LengthUnit::Utf16),
            Self::WhatsApp => (4096, LengthUnit::Utf16),
            Self::Markdown(limit) | Self::Plain(limit) => return limit,
        };
        TextLimit { amount, unit }
    }

    fn has_tables(self) -> bool {
        !matches!(
            self,
            Self::TelegramHtml
                | Self::Slack
                | Self::SlackText
                | Self::Discord
                | Self::WhatsApp
                | Self::Markdown(_)
        )
    }

    fn write(self, lines: &[DocumentLine]) -> RenderedPart {
        let plain = plain::write(lines);
        let markup = match self {
            Self::TelegramHtml => telegram::write(lines),
            Self::MatrixHtml | Self::MailHtml => html::write(lines),
            Self::Slack | Self::Mattermost | Self::Markdown(_) => commonmark::write(lines, 6),
            Self::Discord => commonmark::write(lines, 3),
            Self::SlackText => marks::write(lines, MarkReader::Mrkdwn),
            Self::WhatsApp => marks::write(lines, MarkReader::WhatsApp),
            Self::Plain(_) => plain.clone(),
        };
        RenderedPart { markup, plain }
    }

    fn fits(self, part: &RenderedPart) -> bool {
        let TextLimit { amount, unit } = self.limit();
        let is_within = |text: &str| unit.length(text) <= amount;
        match self {
            Self::TelegramHtml => {
                telegram::visible_length(&part.markup) <= amount && is_within(&part.plain)
            }
            Self::MatrixHtml => part.markup.len() + part.plain.len() <= amount,
            _ => is_within(&part.markup) && is_within(&part.plain),
        }
    }
}

impl LengthUnit {
    fn length(self, text: &str) -> usize {
        match self {
            Self::Bytes => text.len(),
            Self::Utf16 => text.encode_utf16().count(),
        }
    }
}

/// Escapes `text` for HTML, also within a quoted attribute.
pub fn escape_html(text: &str) -> String {
    html::escape(text)
}

/// Converts `markdown` into the parts of a message, in order. Text without anything visible has no parts.
pub fn render(markdown: &str, dialect: Dialect) -> Vec<RenderedPart> {
    let text = strip_controls(markdown);
    let mut lines = document::parse(&text);
    if !dialect.has_tables() {
        lines = table::align(lines);
    }
    let fits = |lines: &[DocumentLine]| dialect.fits(&dialect.write(lines));
    let parts = split::split(lines, &fits);
    let mut parts: Vec<RenderedPart> = parts.iter().map(|lines| dialect.write(lines)).collect();
    parts.retain(|part| !part.plain.trim().is_empty());
    parts
}

/// Removes control characters, which no service shows and some reject.
fn strip_controls(text: &str) -> String {
    let is_text = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
    text.replace("\r\n", "\n").chars().filter(is_text).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        Dialect, LengthUnit, TextLimit, document, plain, render, strip_controls, telegram,
    };
    use nanobot_base::fuzz::{self, Random};
    use nanobot_base::markdown::document::LineContent;

    const SMALL_LIMIT: TextLimit = TextLimit { amount: 1000, unit: LengthUnit::Bytes };
    const SMALL: Dialect = Dialect::Plain(SMALL_LIMIT);
    const DIALECTS: [Dialect; 10] = [
        Dialect::TelegramHtml,
        Dialect::MatrixHtml,
        Dialect::MailHtml,
        Dialect::Slack,
        Dialect::SlackText,
        Dialect::Mattermost,
        Dialect::Discord,
        Dialect::WhatsApp,
        Dialect::Markdown(SMALL_LIMIT),
        SMALL,
    ];

    #[track_caller]
    fn check(markdown: &str, dialect: Dialect, expect: &str) {
        let parts = render(markdown, dialect);
        let markups: Vec<&str> = parts.iter().map(|part| part.markup.as_str()).collect();
        assert_eq!(markups.join("\n=====\n"), expect);
    }

    #[test]
    fn telegram_has_inline_tags() {
        let telegram = |markdown, expect| check(markdown, Dialect::TelegramHtml, expect);
        telegram("", "");
        telegram(" \n\n", "");
        telegram("a &lt; `&lt;` &amp;lt;&nbsp;b", "a &lt; <code>&amp;lt;</code> &amp;lt;\u{a0}b");
        telegram("a & <b> \"c\"", "a &amp; &lt;b&gt; &quot;c&quot;");
        telegram(
            "**a *b*** ~~c~~ `d<*e*`",
            "<b>a </b><b><i>b</i></b> <s>c</s> <code>d&lt;*e*</code>",
        );
        telegram("# A *b*\ntext", "<b>A </b><b><i>b</i></b>\ntext");
        telegram("a\n\n---\nb", "a\n\n──────────\nb");
        telegram("- a\n  b\n  - [x] c\n2. d", "• a\n  b\n  ☑ c\n2. d");
        telegram("> a\n> > b\n>\n> c\n\nd", "<blockquote>a\nb\n\nc</blockquote>\n\nd");
        telegram(
            "```rust\nfn a() {}\n\n<b>\n```\nc",
            "<pre><code class=\"language-rust\">fn a() {}\n\n&lt;b&gt;</code></pre>\nc",
        );
        telegram("```a\"b\nc\n```", "<pre><code>c</code></pre>");
        telegram("1. ```\n   a\n   ```", "1.\n<pre><code>a</code></pre>");
        telegram(
            "| a | b |\n|---|---|\n| **cc** | d |",
            "<pre><code>a  │ b\n───┼──\ncc │ d</code></pre>",
        );
    }

    #[test]
    fn links_lead_to_web_and_mail_only() {
        let telegram = |markdown, expect| check(markdown, Dialect::TelegramHtml, expect);
        telegram(
            "[a **b**](https://x/?a=1&b=\"2\")",
            "<a href=\"https://x/?a=1&amp;b=&quot;2&quot;\">a <b>b</b></a>",
        );
        telegram(
            "<https://x> <a@b.c>",
            "<a href=\"https://x\">https://x</a> <a href=\"mailto:a@b.c\">a@b.c</a>",
        );
        telegram("[a](javascript:b) [c](tg://user?id=1)", "a (javascript:b) c (tg://user?id=1)");
        telegram("[a](javascript&colon;b)", "a (javascript:b)");
        telegram("[x.md](x.md) ![cat](cat.png)", "x.md cat (cat.png)");
        check("[a](https://x) [b](b)", SMALL, "a (https://x) b");
    }

    #[test]
    fn matrix_has_blocks() {
        let matrix = |markdown, expect| check(markdown, Dialect::MatrixHtml, expect);
        matrix("a\nb\n\nc", "<p>a<br>b</p><p>c</p>");
        matrix("# a\n---\nb", "<h1>a</h1><hr><p>b</p>");
        matrix(
            "- a\n  b\n- c\n  - d\n- e",
            "<ul><li>a<br>b</li><li>c<ul><li>d</li></ul></li><li>e</li></ul>",
        );
        matrix(
            "3. a\n4. b\n- [ ] c\n\nd",
            "<ol start=\"3\"><li>a</li><li>b</li></ol><ul><li>☐ c</li></ul><p>d</p>",
        );
        matrix(
            "> a\n> - b\n>\n>   c\n\nd",
            "<blockquote><p>a</p><ul><li>b<p>c</p></li></ul></blockquote><p>d</p>",
        );
        matrix(
            "- ```sh\n  ls\n  ```\n- b",
            "<ul><li><pre><code class=\"language-sh\">ls</code></pre></li><li>b</li></ul>",
        );
        matrix(
            "|a|b|\n|-|-|\n|c|`d`|\ne",
            "<table><tr><th>a</th><th>b</th></tr><tr><td>c</td><td><code>d</code></td></tr></table><p>e</p>",
        );
        matrix(
            "|a|b|\n|:-:|-:|\n|c|d|e|",
            "<table><tr><th style=\"text-align:center\">a</th><th style=\"text-align:right\">b</th></tr>\
             <tr><td style=\"text-align:center\">c</td><td style=\"text-align:right\">d</td><td>e</td></tr></table>",
        );
        matrix(
            "see (**https://x/?a=1&b=2**), `https://c` or http://.",
            "<p>see (<a href=\"https://x/?a=1&amp;b=2\"><b>https://x/?a=1&amp;b=2</b></a>), \
             <code>https://c</code> or http://.</p>",
        );
    }

    #[test]
    fn markdown_is_passed_on() {
        let text = "# a\n\n- **b** ||c||\n    1. d_e\n> f  \n\n```rust\n**g**\n```\nh";
        for dialect in [Dialect::Slack, Dialect::Mattermost, Dialect::Discord] {
            check(text, dialect, &text.replace("f  ", "f"));
        }
        let markdown = Dialect::Markdown(SMALL_LIMIT);
        check("##### a\n**b**", markdown, "##### a\n**b**");
        check("|a|b|\n|-|-|\n|cc|d|", markdown, "```\na  │ b\n───┼──\ncc │ d\n```");
        check("##### a\n## b", Dialect::Discord, "### a\n## b");
        check("##### **a** *b*", Dialect::Discord, "### **a** *b*");
        let table = "|a|b|\n|-|-|\n|cc|d|";
        check(table, Dialect::Mattermost, table);
        check(table, Dialect::Discord, "```\na  │ b\n───┼──\ncc │ d\n```");
        check("~~~\n```\n~~~", Dialect::Slack, "````\n```\n````");
        check("    a\nb", Dialect::Slack, "```\na\n```\nb");
        check(
            "See [1].\n\n[1]: https://x\n> 1. [a\\]b]: c\n[^2]: d",
            Dialect::Mattermost,
            "See [1].\n\n\\[1]: https://x\n> 1. \\[a\\]b]: c\n\\[^2]: d",
        );
        let links = "[a](b): c\n[a]b]: c\n- [x] [a] : c";
        check(links, Dialect::Mattermost, links);
        check("- ```\n  a\n  ```", Dialect::Slack, "- ```\n  a\n  ```");
        check("> ```\n> a\n> ```", Dialect::Slack, "> ```\n> a\n> ```");
    }

    #[test]
    fn whatsapp_has_its_own_marks() {
        let whatsapp = |markdown, expect| check(markdown, Dialect::WhatsApp, expect);
        whatsapp("# A\n**b** *c* ~~d~~ `e`", "*A*\n*b* _c_ ~d~ `e`");
        whatsapp("- **a b** c\n- d\n\n> e", "• *a b* c\n• d\n\n> e");
        whatsapp("```rust\na\n\nb\n```\nc", "```\na\n\nb\n```\nc");
        whatsapp("[a](https://x) <https://y>", "a (https://x) https://y");
        whatsapp("|a|b|\n|-|-|\n|cc|d|", "```\na  │ b\n───┼──\ncc │ d\n```");
    }

    #[test]
    fn mrkdwn_has_escapes_and_links() {
        let mrkdwn = |markdown, expect| check(markdown, Dialect::SlackText, expect);
        mrkdwn("# A\n**b** *c* ~~d~~ `e`", "*A*\n*b* _c_ ~d~ `e`");
        mrkdwn("***a*** __b__ _c_", "_*a*_ *b* _c_");
        mrkdwn("- **a b** c\n  - d\n1. e\n\n> f", "• *a b* c\n  • d\n1. e\n\n> f");
        mrkdwn("```rust\nif a < b && c {}\n```", "```\nif a &lt; b &amp;&amp; c {}\n```");
        mrkdwn("`a<b>` & &amp;", "`a&lt;b&gt;` &amp; &amp;");
        mrkdwn("|a|b|\n|-|-|\n|cc|d|", "```\na  │ b\n───┼──\ncc │ d\n```");
        mrkdwn("[**a** b](https://x/?c=1&d=2)", "<https://x/?c=1&amp;d=2|*a* b>");
        mrkdwn("[a](https://x/|b)", "<https://x/%7Cb|a>");
        mrkdwn("<https://y> https://z", "https://y https://z");
        mrkdwn("[a](mailto:b@c.d)", "<mailto:b@c.d|a>");
        // No reference to a user, a channel or everyone.
        mrkdwn("&lt;!here&gt;", "&lt;!here&gt;");
        mrkdwn("<@U1> <#C1> <!here>", "@U1 &lt;#C1&gt; &lt;!here&gt;");
        mrkdwn("[a](@U1) [b](!channel)", "a (@U1) b (!channel)");
        mrkdwn("[<!here>](https://x)", "<https://x|&lt;!here&gt;>");
    }

    #[test]
    fn plain_text_has_no_marks() {
        check(
            "# a\n**b** `c`\n> - d\n>   e\n\n|f|g|\n|-|-|\n|h|i|",
            SMALL,
            "a\nb c\n> • d\n>   e\n\nf │ g\nh │ i",
        );
        check("a\u{1b}[2Jb\r\nc\0\td", SMALL, "a[2Jb\nc\td");
    }

    #[test]
    fn code_is_closed_and_opened_again() {
        let code = format!("```rust\n{}```", "let a = 1;\n".repeat(300));
        for dialect in [Dialect::Discord, Dialect::TelegramHtml] {
            let (open, close) = match dialect {
                Dialect::Discord => ("```rust\n", "\n```"),
                _ => ("<pre><code class=\"language-rust\">", "</code></pre>"),
            };
            let parts = render(&code, dialect);
            let lines = parts.iter().map(|part| {
                let part = part.markup.strip_prefix(open).unwrap();
                part.strip_suffix(close).unwrap().lines().count()
            });
            assert_eq!(lines.sum::<usize>(), 300);
        }
    }

    #[test]
    fn marks_are_closed_where_a_line_is_split() {
        let text = format!("> **{}** end", "word ".repeat(110).trim_end());
        check(&text, SMALL, &format!("> {} end", "word ".repeat(110).trim_end()));
        let text = format!("- {}", "**bold `co_de`** a_b ".repeat(150));
        let parts = render(&text, Dialect::Discord);
        assert_eq!(parts.len(), 2);
        assert!(parts[0].markup.starts_with("- **bold** `co_de` a\\_b"), "{}", parts[0].markup);
        for part in parts {
            assert_eq!(part.markup.matches("**").count() % 2, 0, "{}", part.markup);
        }
    }

    /// Returns the text that a reader sees. Checks that every tag is known and closed.
    fn visible_html(markup: &str, is_telegram: bool) -> String {
        let tags = if is_telegram {
            "a b blockquote code i pre s"
        } else {
            "a b blockquote code h1 h2 h3 h4 h5 h6 i li ol p pre s table td th tr ul"
        };
        let (mut out, mut open, mut rest) = (String::new(), Vec::new(), markup);
        while let Some((text, tail)) = rest.split_once('<') {
            out += text;
            let (tag, tail) = tail.split_once('>').expect("the tag ends");
            rest = tail;
            let name = tag.split(' ').next().unwrap();
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{markup}"),
                None if matches!(name, "br" | "hr") && !is_telegram => out.push('\n'),
                None => {
                    assert!(tags.split(' ').any(|known| known == name), "{name}: {markup}");
                    let is_in = |outer| open.contains(&outer);
                    let is_pre = open.last() == Some(&"pre");
                    assert!(!is_telegram || ((is_pre || !is_in("pre")) && !is_in("code")));
                    assert!(!is_telegram || name != "blockquote" || !is_in("blockquote"));
                    open.push(name);
                }
            }
            if let Some(number) = tag.strip_prefix("ol start=\"") {
                assert!(number.strip_suffix('"').unwrap().parse::<u32>().is_ok());
            }
        }
        assert_eq!(open, Vec::<&str>::new(), "{markup}");
        out += rest;
        assert!(!out.contains('>') && !out.contains('"'));
        html_escape::decode_html_entities(&out).into_owned()
    }

    fn letters(text: &str) -> String {
        text.chars().filter(|letter| letter.is_alphanumeric()).collect()
    }

    /// Checks the parts of a text.
    fn check_parts(text: &str, dialect: Dialect) {
        let parts = render(text, dialect);
        let clean = strip_controls(text);
        let lines = document::parse(&clean);
        let mut shown = String::new();
        for part in &parts {
            assert!(!part.plain.trim().is_empty());
            assert!(dialect.fits(part), "{} bytes", part.markup.len());
            shown += &match dialect {
                Dialect::TelegramHtml => {
                    let visible = visible_html(&part.markup, true);
                    let length = visible.encode_utf16().count();
                    assert_eq!(length, telegram::visible_length(&part.markup));
                    visible
                }
                Dialect::MatrixHtml | Dialect::MailHtml => visible_html(&part.markup, false),
                Dialect::WhatsApp | Dialect::Plain(_) => part.markup.clone(),
                Dialect::SlackText => {
                    let shown = part.markup.replace("&lt;", "<").replace("&gt;", ">");
                    shown.replace("&amp;", "&")
                }
                _ => plain::write(&document::parse(&part.markup)),
            };
        }
        // The numbers of items are attributes in HTML, and addresses may be so as well, or be repeated.
        let is_html = matches!(dialect, Dialect::MatrixHtml | Dialect::MailHtml);
        let has_numbers = is_html && lines.iter().any(|line| !line.containers.is_empty());
        let is_deep = lines.iter().any(|line| line.containers.len() > 15);
        if text.contains(['[', '<']) || has_numbers || is_deep {
            return;
        }
        assert_eq!(letters(&shown), letters(&plain::write(&lines)), "{dialect:?}");
        let is_raw = |content: &LineContent| {
            matches!(content, LineContent::Code { .. } | LineContent::Row(..))
        };
        if !lines.iter().any(|line| is_raw(&line.content)) && !clean.contains(['`', '~', ';']) {
            assert_eq!(letters(&shown), letters(&clean), "{dialect:?}");
        }
    }

    /// Generates a text of nested blocks with inline marks.
    fn generate(random: &mut Random) -> String {
        let long = "long".repeat(200);
        let words = [
            "word",
            "**bold**",
            "*it*",
            "`co de`",
            "~~s~~",
            "a_b",
            "&",
            "&lt;&nbsp;&amp;gt;",
            "日本語",
            "e\u{301}",
            "👩\u{200d}🔬",
            "**open",
            "[l](https://x.y/z)",
            "<https://a.b>",
            "\\*",
            "x<y",
            &long,
        ];
        let starts =
            ["", "", "- ", "  - ", "1. ", "> ", "> - ", "# ", "#### ", "| a | ", "    ", "- [ ] "];
        let mut text = String::new();
        for _ in 0..random.below(60) {
            match random.below(12) {
                0 => text += "\n",
                1 => text += "```rust\n",
                2 => text += "|a|b|\n|-|-|\n|c c|**d**|\n",
                3 => text += "---\n",
                _ => {
                    text += starts[random.below(starts.len())];
                    let most = 1 + random.below(60);
                    for _ in 0..=random.below(most) {
                        text += words[random.below(words.len())];
                        text += if random.below(8) == 0 { "" } else { " " };
                    }
                    text += "\n";
                }
            }
        }
        text
    }

    #[test]
    fn fuzz_parts_are_well_formed() {
        let seeds: &[&[u8]] = &[
            b"# Title\n\nSome **bold *and* italic** `code` text, [a link](https://x/y_z) and <https://b>.\n\n- one\n  - two\n3. three\n",
            b"| a | b |\n|:--|--:|\n| 1 `x|y` | **2** |\n| 3 |\n\n> quote\n> - [x] task\n\n---\n\n    code\n",
            "```rust\nfn main() {}\n```\n日本語の文章 **太字** e\u{301} 👩\u{200d}🔬\n1) a\\\n~~b~~ ***c*** __d__ \\*e\n".as_bytes(),
        ];
        fuzz::check(seeds, |input, random| {
            let dialect = DIALECTS[random.below(DIALECTS.len())];
            let text = match random.below(30) {
                0 => generate(random),
                _ => fuzz::lossy_text(&input[..input.len().min(1500)]),
            };
            check_parts(&text, dialect);
        });
    }
}
