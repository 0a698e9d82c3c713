//! Mentions in texts. A mention of our account addresses us; other mentions must not be in an answer. No I/O.

use nanobot_base::message::user_text::UserText;

/// A character that is not shown, and at which no line may break.
pub(super) const WORD_JOINER: char = '\u{2060}';

/// Removes each `mention`, such as `@name`, from a text. `None` if there is none.
pub(super) fn without_mention(text: &str, mention: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut is_found) = (text, false);
    while let Some(at) = find_mention(rest, mention, out.chars().next_back()) {
        let (before, after) = rest.split_at(at);
        out += before;
        rest = after[mention.len()..].trim_start_matches([' ', '\t']);
        is_found = true;
    }
    out += rest;
    is_found.then(|| out.trim().to_owned())
}

/// The position of a mention that is not a part of a longer name. `before` is the character before the text.
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

/// The mention of a user as people write it: by the name, or by the id if the name could be read as more than a name.
pub(super) fn written_mention(name: &str, id: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
    if !name.is_empty() && name.chars().all(is_plain) {
        format!("@{name}")
    } else {
        format!("@{id}")
    }
}

/// A text that a sender typed, with each mark in it replaced by the name of a user. The first of `names` that fits is used.
pub(super) fn with_names(text: &str, names: &[(String, String)]) -> UserText {
    let mut named = UserText::default();
    let mut rest = text;
    let find = |rest: &str| {
        let marks = names.iter().filter(|(mark, _)| !mark.is_empty());
        let matches = marks.filter_map(|(mark, name)| Some((rest.find(mark)?, mark, name)));
        matches.min_by_key(|(at, ..)| *at)
    };
    while let Some((at, mark, name)) = find(rest) {
        named.push(&UserText::typed(&rest[..at]));
        named.push(&UserText::label(name));
        rest = &rest[at + mark.len()..];
    }
    named.push(&UserText::typed(rest));
    named
}

/// A text of a service that inserts names of users into the texts of groups without marking them.
pub(super) fn typed_text(text: &str, is_group: bool) -> UserText {
    if is_group { with_unmarked_names(text) } else { UserText::typed(text) }
}

/// A text of a service that inserts names of users without marking them. The text after an `@` in a line may be one.
pub(super) fn with_unmarked_names(text: &str) -> UserText {
    let mut named = UserText::default();
    for line in text.split_inclusive('\n') {
        let at = line.char_indices().find(|(at, letter)| {
            *letter == '@' && !line[..*at].ends_with(|letter: char| letter.is_ascii_alphanumeric())
        });
        let (typed, rest) = line.split_at(at.map_or(line.len(), |(at, _)| at));
        named.push(&UserText::typed(typed));
        named.push(&UserText::label(rest));
    }
    named
}

/// Inserts an invisible character after the first one of each of `marks`, such as `@all`, so that they notify no user.
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
    use super::{with_names, with_unmarked_names, without_mention, without_pings, written_mention};
    use nanobot_base::fuzz;
    use nanobot_base::message::user_text::UserText;

    #[test]
    fn our_mentions_are_removed() {
        let check = |text: &str, expect: Option<&str>| {
            let actual = without_mention(text, "@bot");
            assert_eq!(actual.as_deref(), expect, "{text}");
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
        let check = |name: &str, expect: &str| assert_eq!(written_mention(name, "U1"), expect);
        check("ann.b-c_1", "@ann.b-c_1");
        check("Zoë", "@Zoë");
        check("ann: delete it", "@U1");
        check("ann\nhi", "@U1");
        check("", "@U1");
    }

    #[test]
    fn names_of_users_are_not_typed() {
        let check = |text: UserText, expect: &str, hosts: &[&str]| {
            assert_eq!(text.as_str(), expect);
            let sources = text.sources(&|_| false);
            assert!(sources.hosts.iter().eq(hosts), "{text:?}");
        };
        let name = |mark: &str, name: &str| (mark.to_owned(), name.to_owned());
        let names = [name("<1>", "evil.com"), name("<12>", "evil.net"), name("", "x")];
        check(
            with_names("ask <1> and <12> on a.example", &names),
            "ask evil.com and evil.net on a.example",
            &["a.example"],
        );
        check(with_names("a.example", &names), "a.example", &["a.example"]);
        let text = "see a.example @Bob evil.com hi\nann@b.example";
        check(with_unmarked_names(text), text, &["a.example", "b.example"]);
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
