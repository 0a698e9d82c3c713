//! Mentions in the texts that we send to Slack. They are disabled in a model's text (Slack, "Formatting message text"). No I/O.

use crate::mention::{WORD_JOINER, without_pings};

/// Words that Slack may take for mentions of many people.
const CHANNEL_WORDS: &[&str] = &["@channel", "@here", "@everyone"];
/// Starts of references after `<!`.
const SPECIAL_REFERENCES: [&str; 5] = ["channel", "here", "everyone", "group", "subteam^"];

/// Inserts an invisible character into the mentions of users, groups and channels in `markdown`, so that they notify no user.
pub(super) fn without_mentions(markdown: &str) -> String {
    let markdown = without_pings(markdown, CHANNEL_WORDS);
    let mut out = String::with_capacity(markdown.len());
    let mut rest = markdown.as_str();
    while let Some((before, after)) = rest.split_once('<') {
        out += before;
        out.push('<');
        if is_reference(after) {
            out.push(WORD_JOINER);
        }
        rest = after;
    }
    out + rest
}

/// True if `text`, after `<`, begins a reference. Other texts, such as `<!DOCTYPE html>`, are not.
fn is_reference(text: &str) -> bool {
    let is_id = |id: &str, kinds: &[char]| {
        let mut letters = id.chars();
        letters.next().is_some_and(|kind| kinds.contains(&kind))
            && letters
                .next()
                .is_some_and(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit())
    };
    let is_special = |name: &str| {
        SPECIAL_REFERENCES.iter().any(|start| name.starts_with(start))
            || name.starts_with(WORD_JOINER)
    };
    match text.chars().next() {
        Some('@') => is_id(&text[1..], &['U', 'W', 'B']),
        Some('#') => is_id(&text[1..], &['C', 'G', 'D']),
        Some('!') => is_special(&text[1..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::without_mentions;
    use nanobot_base::fuzz;

    #[test]
    fn no_one_is_mentioned() {
        let check = |text: &str, expect: &str| {
            let changed = without_mentions(text);
            assert_eq!(changed.replace('\u{2060}', "·"), expect);
        };
        check("<@U12> <@W1|ann> <@B12>", "<·@U12> <·@W1|ann> <·@B12>");
        check("<#C12> <#G1|town>", "<·#C12> <·#G1|town>");
        check("<!channel> <!here|here>", "<·!channel> <·!here|here>");
        check("<!subteam^S1> <!everyone>", "<·!subteam^S1> <·!everyone>");
        check("@here, a@channel @ann", "@·here, a@·channel @ann");
        // Code stays as it is.
        let code = "List<@NonNull T> <!DOCTYPE html> <!-- a --> <#list> a < b <@Unused> <@";
        check(code, code);
    }

    #[test]
    fn fuzz_only_invisible_characters_are_added() {
        let seeds: &[&[u8]] = &["<@U1> é<!here> <<#C1> @here <!é".as_bytes()];
        fuzz::check(seeds, |input, _| {
            let text = fuzz::lossy_text(input).replace('\u{2060}', "");
            let changed = without_mentions(&text);
            assert_eq!(changed.replace('\u{2060}', ""), text);
            for mention in ["<@U1", "<#C1", "<!here", "@here"] {
                assert!(!changed.contains(mention), "{text:?}");
            }
        });
    }
}
