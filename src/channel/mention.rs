//! Mentions in texts: ours, which a message addresses us with, and those that an answer must not make. Pure.

/// A character that is not shown, and at which no line may break.
pub(super) const WORD_JOINER: char = '\u{2060}';

/// Removes the mentions of ours from a text. `None` if there is none. `mention` is as it is typed, such as `@name`.
pub(super) fn without_mention(text: &str, mention: &str) -> Option<String> {
    let mut kept = String::with_capacity(text.len());
    let (mut rest, mut is_found) = (text, false);
    while let Some(at) = find_mention(rest, mention, kept.chars().next_back()) {
        let (before, after) = rest.split_at(at);
        kept += before;
        rest = after[mention.len()..].trim_start_matches([' ', '\t']);
        is_found = true;
    }
    kept += rest;
    is_found.then(|| kept.trim().to_owned())
}

/// The place of a mention that no longer name contains. `before` is the character before the text.
fn find_mention(text: &str, mention: &str, before: Option<char>) -> Option<usize> {
    let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
    let is_bracketed = mention.starts_with('<');
    text.char_indices().map(|(at, _)| at).find(|at| {
        let (head, tail) = text.split_at(*at);
        let is_named = tail
            .get(..mention.len())
            .is_some_and(|named| named.eq_ignore_ascii_case(mention) && !mention.is_empty());
        if !is_named || is_bracketed {
            return is_named;
        }
        let last = head.chars().next_back().or(before);
        let mut following = tail[mention.len()..].chars();
        let ends = match following.next() {
            // A dot ends a sentence, or is a part of a name.
            Some('.') => !following.next().is_some_and(is_word),
            next => !next.is_some_and(is_word),
        };
        ends && !last.is_some_and(|last| is_word(last) || matches!(last, '@' | '.'))
    })
}

/// The mention of a user as people type it: by the name, or by the id if the name could be read as more than a name.
pub(super) fn typed_mention(name: &str, id: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
    match !name.is_empty() && name.chars().all(is_plain) {
        true => format!("@{name}"),
        false => format!("@{id}"),
    }
}

/// Changes the `marks` that would notify many people, such as `@all`, by an invisible character after their first one.
pub(super) fn without_pings(text: &str, marks: &[&str]) -> String {
    let mut text = text.to_owned();
    for mark in marks {
        let first = mark.chars().next().map_or(0, char::len_utf8);
        let (first, name) = mark.split_at(first);
        let changed = format!("{first}{WORD_JOINER}{name}");
        text = text.replace(mark, &changed);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{typed_mention, without_mention, without_pings};
    use crate::fuzz;

    #[test]
    fn our_mentions_are_removed() {
        let check = |text: &str, expect: Option<&str>| {
            let found = without_mention(text, "@bot");
            assert_eq!(found.as_deref(), expect, "{text}");
        };
        check("@bot /new", Some("/new"));
        check("hi @Bot, please", Some("hi , please"));
        check("hi @bot.", Some("hi ."));
        check("@bot @bot a", Some("a"));
        check("@bottle @bot-2 @bot.net a@bot @@bot @bot_", None);
        check("bot", None);
        check("ä@bot ö", None);
        assert_eq!(without_mention("x<@U1>y", "<@U1>").as_deref(), Some("xy"));
        assert_eq!(without_mention("", ""), None);
    }

    #[test]
    fn names_in_a_text_are_names() {
        let check = |name: &str, expect: &str| assert_eq!(typed_mention(name, "U1"), expect);
        check("ann.b-c_1", "@ann.b-c_1");
        check("Zoë", "@Zoë");
        check("ann: delete it", "@U1");
        check("ann\nhi", "@U1");
        check("", "@U1");
    }

    #[test]
    fn marks_for_many_do_not_notify() {
        let text = without_pings("@all a@all @ann", &["@all"]);
        assert_eq!(text, "@\u{2060}all a@\u{2060}all @ann");
    }

    #[test]
    fn fuzz_no_mention_is_left() {
        let seeds: &[&[u8]] = &["ä @bot, @bot.x <@1> @bot@bot é@bot".as_bytes()];
        fuzz::check(seeds, |input, _| {
            let text = fuzz::lossy_text(input);
            for mention in ["@bot", "<@1>"] {
                if let Some(kept) = without_mention(&text, mention) {
                    assert!(kept.len() < text.len(), "{text:?}");
                }
            }
            let kept = without_pings(&text, &["@bot"]);
            assert!(!kept.contains("@bot"), "{text:?}");
        });
    }
}
