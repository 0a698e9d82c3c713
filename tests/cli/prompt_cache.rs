//! A conversation of sixty turns, and a stand-in for the prompt caches of providers, which should hold most of it.

use crate::formats::{ALL_FORMATS, Format};
use crate::server::{Request, Responder, calls, says};
use crate::story::Story;
use serde_json::json;

const TURNS: usize = 60;

/// The cache of chat completions and OpenAI responses holds prompts of at least 1,024 tokens, in steps of 128
/// (OpenAI, "Prompt caching"); a token is about four bytes.
const MIN_CACHED_BYTES: usize = 4 * 1024;
const CACHE_STEP_BYTES: usize = 4 * 128;

/// Anthropic looks for entries at most this many blocks before a mark ("Prompt caching", lookback window).
const LOOKBACK_BLOCKS: usize = 20;
const CACHE_CONTROL: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

fn common_prefix(left: &str, right: &str) -> usize {
    left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count()
}

/// A stand-in for the prompt cache of a provider, which never forgets.
#[derive(Default)]
struct PromptCache {
    entries: Vec<String>,
}

impl PromptCache {
    /// Returns the number of bytes of `body` that are read from the cache, and adds `body` to it.
    fn look_up(&mut self, format: Format, body: &str) -> usize {
        if format == Format::Anthropic {
            self.look_up_marks(body)
        } else {
            self.look_up_prefix(body)
        }
    }

    fn look_up_prefix(&mut self, body: &str) -> usize {
        let max_prefix = self.entries.iter().map(|entry| common_prefix(entry, body)).max();
        self.entries.push(body.to_owned());
        let hit = max_prefix.unwrap_or(0) / CACHE_STEP_BYTES * CACHE_STEP_BYTES;
        if hit < MIN_CACHED_BYTES { 0 } else { hit }
    }

    /// Only what stands before a mark is stored.
    fn look_up_marks(&mut self, body: &str) -> usize {
        let parts: Vec<&str> = body.split(CACHE_CONTROL).collect();
        let marked: Vec<String> = (1..parts.len()).map(|count| parts[..count].concat()).collect();
        let blocks = |text: &str| text.matches("{\"type\":\"").count();
        let is_near = |entry: &String, prefix: &String| {
            prefix.starts_with(&**entry) && blocks(&prefix[entry.len()..]) < LOOKBACK_BLOCKS
        };
        let is_hit = |entry: &&String| marked.iter().any(|prefix| is_near(entry, prefix));
        let hit = self.entries.iter().filter(is_hit).map(String::len).max();
        self.entries.extend(marked);
        hit.unwrap_or(0)
    }
}

/// A model that reads a file in every third turn.
fn model() -> Responder {
    Box::new(|request: &Request| {
        let last = request.last_content();
        let reads = last.contains("look it up") && !last.contains("alpha");
        let text = format!("As you say. {}", "Quite so, my friend. ".repeat(10));
        if reads {
            calls("read_file", json!({ "path": "a.txt" }))(request)
        } else {
            says(&text)(request)
        }
    })
}

#[test]
fn sixty_turns_are_read_from_the_cache() {
    for format in ALL_FORMATS {
        let model_name = if format == Format::Anthropic { "claude-opus-4-7" } else { "gpt-5" };
        let story = Story::in_format(format, model_name).file("a.txt", "alpha\n".repeat(50));
        story.server().always(model());
        for turn in 1..=TURNS {
            let action = if turn % 3 == 0 { "look it up" } else { "and so on" };
            drop(story.run(["agent", "-m", &format!("Turn {turn}: {action}")]).text());
        }
        let requests = story.requests();
        assert_eq!(requests.len(), TURNS + TURNS / 3, "{format:?}");
        let mut cache = PromptCache::default();
        let shares = requests.iter().map(|request| {
            let total = request.raw.replace(CACHE_CONTROL, "").len();
            (cache.look_up(format, &request.raw), total)
        });
        let shares: Vec<(usize, usize)> = shares.collect();
        let misses = shares.iter().skip(1).filter(|(hit, total)| hit * 10 < total * 8).count();
        let [hit, total] =
            shares.iter().fold([0, 0], |[hits, totals], (hit, total)| [hits + hit, totals + total]);
        assert!(hit * 100 >= total * 94, "{format:?}: {hit} of {total} bytes: {shares:?}");
        // The window of messages moves twice; instructions and tools are read from the cache even then.
        assert!(misses <= 2, "{format:?}: {misses} misses: {shares:?}");
        assert!(shares.iter().skip(1).all(|(hit, _)| *hit > 8000), "{format:?}: {shares:?}");
    }
}
