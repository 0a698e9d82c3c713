//! The objects that git lets a program sign: commits and tags. No I/O.

/// A commit or a tag to be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignedObject {
    pub(super) kind: &'static str,
    /// The first line of a commit's message, or the name of a tag.
    pub(super) title: String,
}

/// Headers that a commit may have after the required ones.
const FURTHER_HEADERS: [&str; 2] = ["encoding", "mergetag"];

impl SignedObject {
    /// Parses `payload`. Returns `None` unless it is exactly one object, without a signature.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        if payload.contains(&0) {
            return None;
        }
        let text = String::from_utf8_lossy(payload);
        let (headers, message) =
            text.split_once("\n\n").or_else(|| Some((text.strip_suffix('\n')?, "")))?;
        let mut headers = headers.split('\n').peekable();
        let mut take = |name: &str| {
            let line = headers.next_if(|line| {
                line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '))
            })?;
            line.get(name.len() + 1..).map(str::to_owned)
        };
        let object = if let Some(tree) = take("tree") {
            let parents = std::iter::from_fn(|| take("parent"));
            let are_ids = is_id(&tree) && parents.collect::<Vec<_>>().iter().all(|id| is_id(id));
            let people = [take("author")?, take("committer")?];
            let title = message.lines().next().unwrap_or_default().to_owned();
            (are_ids && people.iter().all(|person| is_person(person)))
                .then_some(Self { kind: "commit", title })?
        } else {
            let (id, kind) = (take("object")?, take("type")?);
            let (title, tagger) = (take("tag")?, take("tagger")?);
            let is_kind = ["blob", "commit", "tag", "tree"].contains(&kind.as_str());
            let is_tag = is_id(&id) && is_kind && is_person(&tagger) && !title.is_empty();
            is_tag.then_some(Self { kind: "tag", title })?
        };
        // A line that begins with a blank continues a header.
        let is_further = |line: &str| {
            line.starts_with(' ')
                || line.split_once(' ').is_some_and(|(name, _)| FURTHER_HEADERS.contains(&name))
        };
        let mut remaining_headers = headers.enumerate();
        remaining_headers
            .all(|(number, line)| {
                object.kind == "commit"
                    && is_further(line)
                    && (number > 0 || !line.starts_with(' '))
            })
            .then_some(object)
    }
}

/// True for the name of an object, by SHA-1 or SHA-256.
fn is_id(text: &str) -> bool {
    [40, 64].contains(&text.len()) && text.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
}

/// True for `NAME <MAIL> SECONDS ZONE`.
fn is_person(text: &str) -> bool {
    let Some((name, time)) = text.rsplit_once("> ") else {
        return false;
    };
    let Some((seconds, zone)) = time.split_once(' ') else {
        return false;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let zone = zone.strip_prefix(['+', '-']).unwrap_or_default();
    name.contains('<') && is_number(seconds) && zone.len() == 4 && is_number(zone)
}

#[cfg(test)]
mod tests {
    use super::SignedObject;

    #[test]
    fn one_commit_or_tag_is_signed_and_nothing_else() {
        let id = "0123456789012345678901234567890123456789";
        let person = "A <a@b> 1700000000 +0100";
        let head = format!("tree {id}\nauthor {person}\ncommitter {person}\n");
        let check = |payload: &str, expect: Option<(&'static str, &str)>| {
            let expect = expect.map(|(kind, title)| SignedObject { kind, title: title.to_owned() });
            assert_eq!(SignedObject::parse(payload.as_bytes()), expect, "{payload}");
        };
        check(&format!("{head}\nfix: a\n\nmore\n"), Some(("commit", "fix: a")));
        check(&head, Some(("commit", "")));
        check(&format!("{head}encoding latin1\n\nm\n"), Some(("commit", "m")));
        check(&format!("{head}mergetag object {id}\n type commit\n\nm\n"), Some(("commit", "m")));
        let parents = format!(
            "tree {id}\nparent {id}\nparent {id}\nauthor {person}\ncommitter {person}\n\nm\n"
        );
        check(&parents, Some(("commit", "m")));
        let tag = format!("object {id}\ntype commit\ntag v1\ntagger {person}\n");
        check(&format!("{tag}\nfirst\n"), Some(("tag", "v1")));
        for wrong in [
            String::new(),
            "I owe you 100 euros.\n".into(),
            "certificate version 0.1\npusher A <a@b> 1 +0000\n\n".into(),
            format!("{head}{head}\nm\n"),
            format!("{head}{tag}\nm\n"),
            format!("{tag}{tag}\nm\n"),
            format!("{head}gpgsig x\n\nm\n"),
            format!("{head} continued\n\nm\n"),
            format!("\n{head}\nm\n"),
            format!("{head}\nm\0\n"),
            format!("tree {id}\n\nm\n"),
            format!("tree 12\nauthor {person}\ncommitter {person}\n\nm\n"),
            format!("tree {id}\nauthor me\ncommitter {person}\n\nm\n"),
            format!("object {id}\ntype secret\ntag v1\ntagger {person}\n\nm\n"),
        ] {
            check(&wrong, None);
        }
    }
}
