//! The history of a pool: what is told of it, kept in bounded memory, for the dashboard, the report, the trace and `satin top`.
//!
//! This module knows no clock, no thread and no network: times come with what is told. All of them are of one clock, the collector's, in
//! milliseconds since 1970; those of a look are moved there by the offset that comes with it.

mod arrows;
mod figures;
mod functions;
mod log;
mod picture;
mod rows;
mod series;
mod spans;
#[cfg(test)]
mod tests;
mod words;

pub use arrows::HistoryArrow;
pub use figures::Figures;
pub use log::HistoryEvent;
pub use picture::{
    IdleReason, IdleTime, NodePicture, NodeState, Picture, PoolProgress, RunPicture, SitePicture,
    Totals, TrafficPicture,
};
pub use series::{Bin, Series};
pub use spans::HistorySpan;
pub use words::{advice_of, jobs_in_words, reason_in_words};

use self::{arrows::Arrows, functions::Functions, log::Log, rows::Rows, spans::Spans};
use super::{
    events::{Event, Record},
    look::{Arrow, NodeLook, SeenNode},
};

/// The time in milliseconds by which the end of a span may lie after the moment of its look. Too small: rounding loses the newest spans. Too
/// large: a node whose clock jumps writes into the future of the others.
const AHEAD_MS: u64 = 1_000;

/// The way in which a node has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// The node left on purpose.
    Left,
    /// The node died.
    Dead,
    /// The node does not answer any more, and nobody has said what became of it.
    Silent,
}

/// The history of a pool. The module says what it is for.
pub struct History {
    pool: String,
    /// The first time that was told.
    start_ms: Option<u64>,
    /// The latest time that was told.
    now_ms: u64,
    rows: Rows,
    spans: Spans,
    arrows: Arrows,
    functions: Functions,
    log: Log,
    series: Series,
    /// The progress that the last event about it told.
    progress: Option<PoolProgress>,
    ended: Option<i32>,
    version: u64,
}

impl History {
    /// The empty history of the pool of that name.
    #[must_use]
    pub fn new(pool: &str) -> History {
        History {
            pool: pool.into(),
            start_ms: None,
            now_ms: 0,
            rows: Rows::default(),
            spans: Spans::default(),
            arrows: Arrows::default(),
            functions: Functions::default(),
            log: Log::default(),
            series: Series::default(),
            progress: None,
            ended: None,
            version: 0,
        }
    }

    /// A number that grows with each thing that is told: equal numbers, equal pictures.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Notes that a node is in the pool. A node that had gone is back; one with the name of a node that has gone and another address is a new
    /// node, with a row of its own.
    pub fn note_node(&mut self, node: SeenNode, now_ms: u64) {
        self.tell(now_ms);
        for removed in self.rows.note(node, now_ms) {
            self.spans.forget(removed);
            self.arrows.forget(removed);
        }
    }

    /// Notes a look at the node of that name; one that [`note_node`](History::note_node) has not told of is passed over. `clock_offset_ms` is
    /// what must be added to times of the node's clock to get times of the collector's.
    pub fn note_look(&mut self, node: &str, look: NodeLook, clock_offset_ms: i64) {
        let on_own_clock = |at_ms: u64| at_ms.saturating_add_signed(clock_offset_ms);
        let now_ms = on_own_clock(look.now_ms);
        self.tell(now_ms);
        for mut record in look.events.iter().cloned() {
            record.at_ms = on_own_clock(record.at_ms).min(now_ms);
            self.note_event(record);
        }
        let Some(id) = self.rows.id_of(node) else {
            return;
        };
        let functions: Vec<u32> = (look.functions.iter())
            .map(|name| self.functions.place(name))
            .collect();
        for span in &look.spans {
            let function = span.function.and_then(|it| functions.get(it as usize));
            let moved = HistorySpan {
                node: id,
                worker: span.worker,
                start_ms: on_own_clock(span.start_ms),
                length_ms: span.length_ms,
                activity: span.activity,
                function: function.copied(),
            };
            if moved.end_ms() <= now_ms.saturating_add(AHEAD_MS)
                && let Some(new) = self.spans.add(moved)
            {
                self.series.add_span(&new);
            }
        }
        self.rows.note_clock(id, clock_offset_ms);
        for arrow in &look.arrows {
            self.note_arrow(id, arrow, now_ms, clock_offset_ms);
        }
        if let Some(change) = self.rows.look(id, look, now_ms) {
            self.series.add_change(&change);
        }
    }

    /// The arrow of a look at that node at `now_ms`. Each of its times is on the clock of the node that told it or saw it, and those clocks are known to a
    /// few milliseconds: none is to be before what comes first.
    fn note_arrow(&mut self, node: u32, arrow: &Arrow, now_ms: u64, clock_offset_ms: i64) {
        let on_own_clock = |at_ms: u64| at_ms.saturating_add_signed(clock_offset_ms);
        // Without a row there is nothing from where it could be drawn.
        let Some(from) = self.rows.id_of(&arrow.from) else {
            return;
        };
        let begun_ms = on_own_clock(arrow.begun_ms);
        if begun_ms > now_ms.saturating_add(AHEAD_MS) {
            return;
        }
        let first_ms = self.start_ms.unwrap_or(0).min(begun_ms);
        let ready_ms = on_own_clock(arrow.ready_ms).clamp(first_ms, begun_ms);
        let came_ms = on_own_clock(arrow.came_ms).clamp(first_ms, ready_ms);
        let of_giver = (self.rows.clock_of(from)).filter(|_| arrow.sent_ms != 0);
        let sent_ms = of_giver.map_or(came_ms, |offset_ms| {
            (arrow.sent_ms.saturating_add_signed(offset_ms)).clamp(first_ms, came_ms)
        });
        let function = self.functions.place(&arrow.function);
        self.arrows.add(HistoryArrow {
            from,
            node,
            worker: arrow.worker,
            function,
            sent_ms,
            came_ms,
            ready_ms,
            begun_ms,
        });
    }

    /// Notes that a node has gone; its row stays. A node that is silent and answers again is back.
    pub fn note_gone(&mut self, node: &str, how: Gone, now_ms: u64) {
        self.tell(now_ms);
        let Some(site) = self.rows.site_of(node) else {
            return;
        };
        let event = match how {
            Gone::Left => Event::Left { site },
            Gone::Dead => Event::Dead { site },
            Gone::Silent => return self.rows.gone(node, how, now_ms),
        };
        let name = node.to_string();
        self.note_event(Record {
            event,
            name,
            at_ms: now_ms,
        });
        self.rows.gone(node, how, now_ms);
    }

    /// Notes an event, with its time on the collector's clock. An event that was told before, by this node or another, is shown once.
    pub fn note_event(&mut self, record: Record) {
        self.tell(record.at_ms);
        match record.event {
            Event::Progress {
                done,
                seconds,
                is_guess,
                ..
            } => {
                self.progress = Some(PoolProgress {
                    done,
                    seconds: Some(seconds),
                    is_guess,
                });
            }
            // After the death of a master, what was known of the root job stands until the next one knows more.
            Event::RootStarted { .. } => {
                self.progress.get_or_insert(PoolProgress {
                    done: 0.0,
                    seconds: None,
                    is_guess: true,
                });
            }
            Event::RootFinished { .. } => self.progress = None,
            Event::PoolEnded { code } => self.ended = Some(code),
            Event::Stats(figures) => self.rows.end(&record.name, figures),
            _ => {}
        }
        if let Some(new) = self.log.add(record) {
            self.rows.hear(&new);
        }
    }

    /// The pool at this moment.
    #[must_use]
    pub fn picture(&self) -> Picture {
        picture::of(self)
    }

    /// The spans that are new, or have grown, since the call that returned this cursor, and the next cursor; all for cursor 0. A span with the node,
    /// worker and start of one that was returned before takes its place. Spans of one worker are in the order of time.
    #[must_use]
    pub fn spans_since(&self, cursor: u64) -> (Vec<HistorySpan>, u64) {
        self.spans.since(cursor)
    }

    /// The ways of jobs that were told since the call that returned this cursor, and the next cursor; all for cursor 0.
    #[must_use]
    pub fn arrows_since(&self, cursor: u64) -> (Vec<HistoryArrow>, u64) {
        self.arrows.since(cursor)
    }

    /// The names of the functions of spans and arrows, which name them by their place.
    #[must_use]
    pub fn functions(&self) -> &[String] {
        self.functions.names()
    }

    /// The events that were noted since the call that returned this cursor, and the next cursor; all for cursor 0. They are in the order in which they were
    /// told, which may differ from that of their times.
    #[must_use]
    pub fn events_since(&self, cursor: u64) -> (Vec<HistoryEvent>, u64) {
        self.log.since(cursor)
    }

    /// The rates of the whole pool over time.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The figures that each node told last, with name and site; of nodes that have gone too.
    pub fn figures(&self) -> impl Iterator<Item = Figures<'_>> {
        self.rows.iter().map(|row| row.figures())
    }

    /// The names of the nodes of a site that are in the pool, and not about to leave.
    #[must_use]
    pub fn staying_in(&self, site: &str) -> Vec<String> {
        let stays = |row: &&rows::Row| row.node.site == site && row.state == NodeState::Joined;
        let names = self.rows.iter().filter(stays);
        names.map(|row| row.node.name.clone()).collect()
    }

    /// The state of the node of that name; of its last life, if there were several.
    #[must_use]
    pub fn state_of(&self, node: &str) -> Option<NodeState> {
        let id = self.rows.id_of(node)?;
        self.rows.get(id).map(|row| row.state)
    }

    fn tell(&mut self, now_ms: u64) {
        self.start_ms.get_or_insert(now_ms);
        self.now_ms = self.now_ms.max(now_ms);
        self.version += 1;
    }
}
