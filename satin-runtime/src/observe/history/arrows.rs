//! The ways of jobs from the nodes that gave them to the workers that run them; of what is long ago the longest.

/// The number of arrows that are kept, of 64 bytes each. Too small: who fed whom is forgotten while a run goes on. Too large: memory, and pages grow by
/// arrows that nobody can tell apart.
pub(super) const MAX_ARROWS: usize = 20_000;

/// The way of a job from the node that gave it to the worker that runs it, on the collector's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryArrow {
    /// The number of the row of the node that gave it.
    pub from: u32,
    /// The number of the row of the node that runs it.
    pub node: u32,
    /// The worker that runs it, from 0.
    pub worker: u32,
    /// The place of its function's name among [`functions`](super::History::functions).
    pub function: u32,
    /// When it was sent, in milliseconds since 1970; when it came, if it is not known when it was sent. No time of these four is before the one
    /// above it.
    pub sent_ms: u64,
    /// When it came, in milliseconds since 1970.
    pub came_ms: u64,
    /// When the data that it needs were there too, in milliseconds since 1970.
    pub ready_ms: u64,
    /// When the worker began with it, in milliseconds since 1970.
    pub begun_ms: u64,
}

impl HistoryArrow {
    /// The time from when the job was sent until it began, in milliseconds.
    #[must_use]
    pub fn length_ms(&self) -> u64 {
        self.begun_ms.saturating_sub(self.sent_ms)
    }
}

/// The arrows, in the order in which they were told.
#[derive(Default)]
pub(super) struct Arrows {
    arrows: Vec<(u64, HistoryArrow)>,
    next_seq: u64,
}

impl Arrows {
    pub(super) fn add(&mut self, arrow: HistoryArrow) {
        self.arrows.push((self.next_seq, arrow));
        self.next_seq += 1;
        if self.arrows.len() > MAX_ARROWS {
            self.thin_out();
        }
    }

    pub(super) fn since(&self, cursor: u64) -> (Vec<HistoryArrow>, u64) {
        let from = self.arrows.partition_point(|(seq, _)| *seq < cursor);
        let new = self.arrows[from..].iter().map(|(_, arrow)| *arrow);
        (new.collect(), self.next_seq)
    }

    pub(super) fn forget(&mut self, node: u32) {
        (self.arrows).retain(|(_, arrow)| arrow.from != node && arrow.node != node);
    }

    /// Drops the shorter half of the older half.
    fn thin_out(&mut self) {
        let older = self.arrows.len() / 2;
        let mut lengths: Vec<(u64, u64)> = self.arrows[..older]
            .iter()
            .map(|(seq, arrow)| (arrow.length_ms(), *seq))
            .collect();
        // Of equal ones the later stay.
        let (_, &mut middle, _) = lengths.select_nth_unstable(older / 2);
        let first_new = self.arrows[older].0;
        (self.arrows)
            .retain(|(seq, arrow)| *seq >= first_new || (arrow.length_ms(), *seq) >= middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrow(sent_ms: u64, length_ms: u64) -> HistoryArrow {
        HistoryArrow {
            from: 0,
            node: 1,
            worker: 0,
            function: 0,
            sent_ms,
            came_ms: sent_ms,
            ready_ms: sent_ms,
            begun_ms: sent_ms + length_ms,
        }
    }

    #[test]
    fn of_what_is_long_ago_the_longest_stay_and_all_that_is_new() {
        let mut arrows = Arrows::default();
        let told = 3 * MAX_ARROWS as u64;
        for at in 0..told {
            arrows.add(arrow(at, 1 + at % 100));
        }
        let (all, cursor) = arrows.since(0);
        assert!(all.len() <= MAX_ARROWS && all.len() > MAX_ARROWS / 2);
        assert_eq!(cursor, told);
        assert!(all.is_sorted_by_key(|arrow| arrow.sent_ms));
        let newest: Vec<u64> = all.iter().rev().take(1_000).map(|it| it.sent_ms).collect();
        assert!(newest.iter().rev().copied().eq(told - 1_000..told));
        let oldest = &all[..1_000];
        assert!(oldest.iter().all(|arrow| arrow.length_ms() > 50));
        assert_eq!(arrows.since(cursor).0, []);
        arrows.add(arrow(told, 1));
        assert_eq!(arrows.since(cursor).0, [arrow(told, 1)]);
    }
}
