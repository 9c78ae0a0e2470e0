//! Warnings that repeat themselves are counted: one line for each kind and source, then a sum.
//!
//! Warnings that others can cause (by a neighbour that knocks, a job that cannot travel) may come a thousand times a
//! second, from a thousand addresses. So of each kind a few sources get a line in a minute, one each, and the rest is
//! counted: "and 1,234 more like this from 3 sources in 60 s". The table stays small whatever comes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::log::tell_counted;

/// Time from the first line of a kind to its sum. Too short: sums fill the log. Too long: a sum comes late.
const WINDOW: Duration = Duration::from_secs(60);

/// Sources of one kind that get a line within a window. Fewer, and a second culprit is not seen; more, and spoofed
/// addresses fill the disk.
const TOLD: usize = 16;

/// Sources of one kind that are told apart within a window.
const SOURCES: usize = 1024;

/// The warnings so far. Kinds are written in this program, so there are few.
#[derive(Default)]
pub struct Repeats {
    kinds: BTreeMap<&'static str, WarningKind>,
}

struct WarningKind {
    since: Instant,
    /// The source that was told first.
    example: String,
    /// Hashes of those that got a line.
    told: BTreeSet<u64>,
    /// Warnings without a line, and hashes of their sources.
    more: u64,
    sources: BTreeSet<u64>,
}

/// The warnings that were counted in a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sum {
    /// The kind of warning.
    pub kind: &'static str,
    /// Warnings that got no line.
    pub more: u64,
    /// Number of their sources, at least.
    pub sources: usize,
    /// Since the first of them.
    pub within: Duration,
    /// The source that was told first.
    pub example: String,
}

impl Repeats {
    /// No warning so far.
    #[must_use]
    pub const fn new() -> Repeats {
        Repeats {
            kinds: BTreeMap::new(),
        }
    }

    /// Notes a warning. True if it is to be told, rather than counted.
    pub fn note(&mut self, now: Instant, kind: &'static str, source: &str) -> bool {
        let kind = self.kinds.entry(kind).or_insert_with(|| WarningKind {
            since: now,
            example: source.into(),
            told: BTreeSet::new(),
            more: 0,
            sources: BTreeSet::new(),
        });
        let mut hasher = DefaultHasher::new();
        source.hash(&mut hasher);
        let source = hasher.finish();
        if kind.told.len() < TOLD && kind.told.insert(source) {
            return true;
        }
        kind.more += 1;
        if kind.sources.len() < SOURCES {
            kind.sources.insert(source);
        }
        false
    }

    /// The sums of windows that are over, or of all. Their sources get a line again.
    pub fn take_sums(&mut self, now: Instant, all: bool) -> Vec<Sum> {
        let mut sums = Vec::new();
        self.kinds.retain(|name, kind| {
            let within = now.duration_since(kind.since);
            let is_over = all || within >= WINDOW;
            if is_over && kind.more > 0 {
                sums.push(Sum {
                    kind: name,
                    more: kind.more,
                    sources: kind.sources.len(),
                    within,
                    example: std::mem::take(&mut kind.example),
                });
            }
            !is_over
        });
        sums
    }
}

impl Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sum { kind, more, .. } = self;
        let (more, sources) = (grouped(*more), grouped(self.sources as u64));
        let at_least = if self.sources < SOURCES {
            ""
        } else {
            "at least "
        };
        let plural = if self.sources == 1 { "" } else { "s" };
        let seconds = self.within.as_secs();
        write!(
            f,
            "{kind}: and {more} more like this from {at_least}{sources} source{plural} in {seconds} s"
        )
    }
}

impl Sum {
    /// The sum of warnings that are told apart by their texts, not by a source.
    #[must_use]
    pub fn with_example(&self) -> String {
        let (example, more) = (&self.example, grouped(self.more));
        let seconds = self.within.as_secs();
        format!("{more} more warnings in {seconds} s like this: {example}")
    }
}

/// The number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

static REPEATS: Mutex<Repeats> = Mutex::new(Repeats::new());

/// Warns of something of that kind, which `source` has caused: in a line of its own, or in the next sum.
pub fn warn(kind: &'static str, source: impl Display, text: impl Display) {
    let now = Instant::now();
    let source = source.to_string();
    let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
    let sums = repeats.take_sums(now, false);
    let is_told = repeats.note(now, kind, &source);
    drop(repeats);
    tell(&sums);
    if is_told {
        tracing::warn!("{kind} ({source}): {text}");
    } else {
        tracing::debug!("{kind} ({source}): {text}");
    }
}

/// Tells the sums of the windows that are over, or, at the end of a pool, of all. To be called now and then.
pub fn tell_sums(all: bool) {
    let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
    let sums = repeats.take_sums(Instant::now(), all);
    drop(repeats);
    tell(&sums);
    tell_counted(all);
}

fn tell(sums: &[Sum]) {
    for sum in sums {
        tracing::warn!("{sum}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "refused a connection";

    #[test]
    fn each_source_gets_one_line_and_the_rest_is_a_sum() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let mut lines = 0;
        for round in 0..412 {
            for source in ["a", "b", "c"] {
                let now = start + Duration::from_millis(round);
                lines += u32::from(repeats.note(now, KIND, source));
            }
        }
        lines += u32::from(repeats.note(start, "another kind", "a"));
        assert_eq!(lines, 4);
        let almost = start + Duration::from_millis(59_999);
        assert_eq!(repeats.take_sums(almost, false), []);
        let sums = repeats.take_sums(start + WINDOW, false);
        let text = "refused a connection: and 1,233 more like this from 3 sources in 60 s";
        assert_eq!(sums.len(), 1, "the other kind came once: {sums:?}");
        assert_eq!(sums[0].to_string(), text);
        // And then from the beginning.
        assert!(repeats.note(start + WINDOW, KIND, "a"));
        assert_eq!(repeats.take_sums(start + WINDOW, true), []);
    }

    #[test]
    fn a_flood_from_many_sources_is_a_few_lines_and_little_memory() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let flood = 0..100_000;
        let lines = flood.filter(|source| repeats.note(start, KIND, &source.to_string()));
        assert_eq!(lines.count(), TOLD);
        let kind = &repeats.kinds[KIND];
        assert!(kind.sources.len() <= SOURCES && kind.told.len() <= TOLD);
        let sums = repeats.take_sums(start, true);
        let text = sums[0].to_string();
        assert!(
            text.contains("99,984 more") && text.contains("at least 1,024 sources"),
            "{text}"
        );
        assert!(repeats.kinds.is_empty());
    }
}
