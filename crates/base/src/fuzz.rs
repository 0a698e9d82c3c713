//! Fuzzing of parsers within `cargo test`: real inputs, mutated at random.
//!
//! A target is a test in the module of its parser. It passes a few real inputs to [`check`], with assertions that must
//! hold for any input. `NANOBOT_FUZZ` sets the number of inputs; if it is set, other tests with very many cases run more of them too
//! ([`by_depth`]). The random numbers are the same in every run, so failures are reproducible.
//!
//! `tests/real/fuzz` has AFL++ choose the inputs of the same tests by the code that they reach: `NANOBOT_FUZZ_SEEDS` names a
//! directory for the real inputs, and `NANOBOT_FUZZ_INPUT` the file with the only input of a test.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// Number of inputs if `NANOBOT_FUZZ` is not set.
const DEFAULT_INPUTS: usize = 2_000;
/// Maximum processor time for one input, in a debug build.
const INPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of an input, in bytes.
const MAX_INPUT_BYTES: usize = 64 << 10;

/// Byte sequences that parsers often mishandle.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\\ude00",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"0.1",
    b"{}",
    b"[]",
    b"\"\"",
    b"---\n",
    b"- ",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!binary ",
    b"${",
    b"}",
    b"//",
    b"/*",
    b"*/",
    b"#",
    b"data: ",
    b"data:",
    b"[DONE]",
    b"<think>",
    b"</think>",
    b"\x1b[2J",
    b"\x1b]0;",
    b"\x9b",
    b"\x80",
    b"\xff",
    b"\xc3",
    b"\xe2\x80",
    b"\xf0\x9f\x99\x82",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"\xe2\x80\x8d",
    b"\xf3\xa0\x81\x81",
];

/// A pseudo-random number generator.
pub struct Random(u64);

impl Random {
    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// Returns `default`, or `thorough` if `NANOBOT_FUZZ` is set: the number of a test's repetitions, or the stride of its sample.
pub fn by_depth(default: usize, thorough: usize) -> usize {
    if std::env::var_os("NANOBOT_FUZZ").is_some() { thorough } else { default }
}

/// Runs `target` with `seeds` and with mutations of them. If it panics or takes too long, prints the input and panics.
pub fn check(seeds: &[&[u8]], mut target: impl FnMut(&[u8], &mut Random)) {
    if let Some(directory) = std::env::var_os("NANOBOT_FUZZ_SEEDS") {
        return write_seeds(&directory, seeds);
    }
    if let Some(path) = std::env::var_os("NANOBOT_FUZZ_INPUT") {
        let input = std::fs::read(path).expect("the input can be read");
        return target(&input, &mut Random(input.len() as u64));
    }
    let count = std::env::var("NANOBOT_FUZZ")
        .map_or(DEFAULT_INPUTS, |count| count.parse().expect("NANOBOT_FUZZ is a number"));
    let mut random = Random(seeds.len() as u64);
    for number in 0..count {
        let input = match seeds.get(number) {
            Some(seed) => seed.to_vec(),
            None => mutate(seeds, &mut random),
        };
        let started = processor_time();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input, &mut random)));
        let elapsed = processor_time().saturating_sub(started);
        if let Err(panic) = outcome {
            print_input(number, &input);
            resume_unwind(panic);
        }
        if elapsed > INPUT_TIMEOUT {
            print_input(number, &input);
            panic!("input {number} took {elapsed:?}");
        }
    }
}

fn write_seeds(directory: &OsString, seeds: &[&[u8]]) {
    for (number, seed) in seeds.iter().enumerate() {
        let path = std::path::Path::new(directory).join(number.to_string());
        std::fs::write(path, seed).expect("the seed can be written");
    }
}

/// The processor time that this thread has used, which other work on the machine does not change.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.try_into().expect("the time is not negative")
}

#[expect(clippy::print_stderr, reason = "the input is needed to reproduce the failure")]
fn print_input(number: usize, input: &[u8]) {
    eprintln!("input {number}: b\"{}\"", input.escape_ascii());
}

/// Returns a seed with a few mutations.
fn mutate(seeds: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(16)).min(bytes.len());
        match random.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            5 => {
                // Continue with the end of another input.
                let other = seeds[random.below(seeds.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            6 if random.below(20) == 0 => {
                // Many repetitions, for depth and length.
                let token = TOKENS[random.below(TOKENS.len())];
                let times = random.below(5_000);
                drop(bytes.splice(at..at, token.repeat(times)));
            }
            _ => {
                let token = TOKENS[random.below(TOKENS.len())];
                drop(bytes.splice(at..at, token.iter().copied()));
            }
        }
    }
    bytes.truncate(MAX_INPUT_BYTES);
    bytes
}

/// Decodes `bytes`, with invalid UTF-8 replaced.
pub fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
