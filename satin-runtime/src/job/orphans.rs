//! The orphan table as far as workers know it, and the rules by which a marked job looks itself up: the same for real
//! workers and for the imaginary ones of the simulator.
//!
//! A rule here is given what it needs and answers; locks, deques and claims are its caller's business.

use std::collections::{BTreeMap, BTreeSet};

use super::{Deadly, Fingerprint, History, JobId, JobName, OrphanNews, RootName};

/// The orphan table, as far as the workers of a node must know it.
#[derive(Clone, Default, Debug)]
pub struct OrphanIndex {
    /// Ids sort in execution order, so what is below an id follows it.
    known: BTreeMap<JobId, BTreeSet<Fingerprint>>,
    deadly: BTreeMap<JobId, BTreeMap<Fingerprint, Deadly>>,
    /// Not every live node has said yet what it has.
    unsettled: bool,
    /// Root jobs of `main` are for others: one may have taken down the master before this one.
    careful: bool,
}

/// The relation of an id to the orphans that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kin {
    /// An orphan of that id: the job itself, if its fingerprint is [known](OrphanIndex::is_known) too.
    Here,
    /// An orphan below it, or a deadly job at or below it, is known; or not all is announced yet.
    Perhaps,
    /// No orphan can be found at or below it.
    Nothing,
}

impl OrphanIndex {
    /// The node has told its workers this.
    pub fn learn(&mut self, news: OrphanNews) {
        match news {
            OrphanNews::Here(JobName { id, fingerprint }) => {
                self.known.entry(id).or_default().insert(fingerprint);
            }
            OrphanNews::Gone(JobName { id, fingerprint }) => {
                if let Some(there) = self.known.get_mut(&id) {
                    there.remove(&fingerprint);
                    if there.is_empty() {
                        self.known.remove(&id);
                    }
                }
            }
            OrphanNews::Settled(settled) => self.unsettled = !settled,
            OrphanNews::Careful(careful) => self.careful = careful,
            OrphanNews::Deadly(JobName { id, fingerprint }, is) => {
                let there = self.deadly.entry(id.clone()).or_default();
                match is {
                    Deadly::Not => there.remove(&fingerprint),
                    is => there.insert(fingerprint, is),
                };
                if there.is_empty() {
                    self.deadly.remove(&id);
                }
            }
        }
    }

    /// True if no look-up would find anything.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.known.is_empty() && !self.unsettled && self.deadly.is_empty() && !self.careful
    }

    /// Looks up whether that id, or an id below it, is known.
    #[must_use]
    pub fn kin(&self, id: &JobId) -> Kin {
        match self.known.range::<JobId, _>(id..).next() {
            Some((first, _)) if first == id => Kin::Here,
            Some((first, _)) if id.is_ancestor_of(first) => Kin::Perhaps,
            _ if self.unsettled => Kin::Perhaps,
            _ => match self.deadly.range::<JobId, _>(id..).next() {
                Some((first, _)) if id.is_ancestor_of(first) => Kin::Perhaps,
                _ => Kin::Nothing,
            },
        }
    }

    /// The history with which a marked job of that id leaves before a worker has looked it up; `None` if others may have it, or if not all is
    /// announced yet: then whoever is to run it here looks it up.
    #[must_use]
    pub fn may_leave(&self, id: &JobId) -> Option<History> {
        let kin = self.kin(id);
        if kin == Kin::Here || self.is_suspect(id) || self.unsettled {
            return None;
        }
        Some(History {
            marked: kin == Kin::Perhaps,
            crashes: 0,
        })
    }

    /// Is that very job an orphan somewhere? An id alone says little: after a change of `main` the same place in the tree may
    /// compute something else.
    #[must_use]
    pub fn is_known(&self, id: &JobId, fingerprint: Fingerprint) -> bool {
        (self.known.get(id)).is_some_and(|there| there.contains(&fingerprint))
    }

    /// May a job of that id be one that others are to run? If so, its fingerprint decides, see [`deadly`](Self::deadly).
    #[must_use]
    pub fn is_suspect(&self, id: &JobId) -> bool {
        self.deadly.contains_key(id) || self.is_main_to_fear(id)
    }

    /// Decides on a job that came with so many `crashes`, if it may have taken down nodes. A job that comes with any
    /// crashes has been offered to other nodes already, and is not held for them again.
    #[must_use]
    pub fn deadly(&self, id: &JobId, fingerprint: Fingerprint, crashes: u32) -> Deadly {
        let there = self.deadly.get(id);
        let is = match there.and_then(|there| there.get(&fingerprint)) {
            Some(is) => is.clone(),
            None if self.is_main_to_fear(id) => Deadly::Held(1),
            None => Deadly::Not,
        };
        match is {
            Deadly::Held(_) if crashes > 0 => Deadly::Not,
            is => is,
        }
    }

    /// True for a root job of `main` that may have taken down the master before this one.
    fn is_main_to_fear(&self, id: &JobId) -> bool {
        self.careful && id.is_root_job() && id.root_number() < RootName::OTHERS
    }
}

/// May a worker claim the orphan of that id, with these hosted jobs on its stack? Not if it is one of them: it is under way
/// further down, and would never be done while this one waits for it.
pub fn may_claim<'a>(id: &JobId, mut hosted: impl Iterator<Item = &'a JobId>) -> bool {
    !hosted.any(|orphan| orphan == id)
}

/// Would a repair, run to help out by a worker on whose stack these hosted jobs are, come to lie on top of an
/// orphan that it will claim? Each would wait for the other.
pub fn would_deadlock<'a>(id: &JobId, mut hosted: impl Iterator<Item = &'a JobId>) -> bool {
    hosted.any(|orphan| id.is_ancestor_of(orphan))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINT: Fingerprint = Fingerprint(7);

    fn id(path: &[u32]) -> JobId {
        path.iter().fold(JobId::ROOT, |id, place| id.child(*place))
    }

    fn name(path: &[u32]) -> JobName {
        JobName::new(id(path), PRINT)
    }

    fn settled(orphans: &[&[u32]]) -> OrphanIndex {
        let mut index = OrphanIndex::default();
        for path in orphans {
            index.learn(OrphanNews::Here(name(path)));
        }
        index
    }

    #[test]
    fn a_job_finds_itself_and_what_is_below_it() {
        let index = settled(&[&[0, 1, 2]]);
        assert_eq!(index.kin(&id(&[0, 1, 2])), Kin::Here);
        assert_eq!(index.kin(&id(&[0, 1])), Kin::Perhaps);
        for elsewhere in [&[0, 1, 2, 0][..], &[0, 1, 1], &[0, 2], &[1]] {
            assert_eq!(index.kin(&id(elsewhere)), Kin::Nothing, "{elsewhere:?}");
        }
    }

    #[test]
    fn as_long_as_somebody_may_announce_nothing_is_ruled_out() {
        let mut index = OrphanIndex::default();
        assert!(index.is_void());
        index.learn(OrphanNews::Settled(false));
        assert_eq!(index.kin(&id(&[0])), Kin::Perhaps);
        index.learn(OrphanNews::Settled(true));
        assert_eq!(index.kin(&id(&[0])), Kin::Nothing);
    }

    #[test]
    fn a_job_leaves_unseen_only_if_nobody_can_have_it() {
        let mut index = settled(&[&[0, 1, 2]]);
        let leaves = |index: &OrphanIndex| {
            let places = [&[0, 1, 2][..], &[0, 1], &[0, 2]];
            places.map(|place| index.may_leave(&id(place)))
        };
        let yes = |marked| Some(History { marked, crashes: 0 });
        assert_eq!(leaves(&index), [None, yes(true), yes(false)]);
        let held = OrphanNews::Deadly(name(&[0, 2]), Deadly::Held(1));
        index.learn(held);
        assert_eq!(index.may_leave(&id(&[0, 2])), None);
        assert_eq!(index.may_leave(&id(&[0, 3])), yes(false));
        index.learn(OrphanNews::Settled(false));
        assert_eq!(index.may_leave(&id(&[0, 1, 2])), None);
        assert_eq!(index.may_leave(&id(&[0, 3])), None);
    }

    #[test]
    fn the_same_place_with_other_arguments_is_another_job() {
        let mut index = settled(&[&[0, 1]]);
        assert!(index.is_known(&id(&[0, 1]), PRINT));
        assert!(!index.is_known(&id(&[0, 1]), Fingerprint(8)));
        let other = JobName::new(id(&[0, 1]), Fingerprint(8));
        index.learn(OrphanNews::Gone(other));
        assert!(!index.is_void());
        index.learn(OrphanNews::Gone(name(&[0, 1])));
        assert!(index.is_void());
    }

    #[test]
    fn a_job_above_a_deadly_one_keeps_its_mark() {
        let mut index = OrphanIndex::default();
        let deadly = OrphanNews::Deadly(name(&[0, 1, 2]), Deadly::Held(2));
        index.learn(deadly);
        assert_eq!(index.kin(&id(&[0, 1])), Kin::Perhaps);
        assert!(index.is_suspect(&id(&[0, 1, 2])) && !index.is_suspect(&id(&[0, 1])));
        assert_eq!(index.deadly(&id(&[0, 1, 2]), PRINT, 0), Deadly::Held(2));
        assert_eq!(
            index.deadly(&id(&[0, 1, 2]), Fingerprint(8), 0),
            Deadly::Not
        );
    }

    #[test]
    fn a_job_that_others_were_asked_for_already_is_not_held_again_but_may_be_given_up() {
        let mut index = OrphanIndex::default();
        let given_up = Deadly::GivenUp("it took down three".into());
        for (place, is) in [(1, Deadly::Held(2)), (2, given_up.clone())] {
            index.learn(OrphanNews::Deadly(name(&[0, place]), is));
        }
        assert_eq!(index.deadly(&id(&[0, 1]), PRINT, 2), Deadly::Not);
        assert_eq!(index.deadly(&id(&[0, 2]), PRINT, 2), given_up);
    }

    #[test]
    fn after_the_end_of_a_master_root_jobs_of_main_are_for_others() {
        let mut index = OrphanIndex::default();
        index.learn(OrphanNews::Careful(true));
        assert_eq!(index.deadly(&id(&[3]), PRINT, 0), Deadly::Held(1));
        assert_eq!(index.deadly(&id(&[3, 0]), PRINT, 0), Deadly::Not);
        assert_eq!(
            index.deadly(&id(&[RootName::OTHERS]), PRINT, 0),
            Deadly::Not
        );
    }

    #[test]
    fn what_lies_on_the_stack_is_neither_claimed_nor_buried() {
        let stack = [id(&[0, 1]), id(&[0, 2, 5])];
        assert!(!may_claim(&id(&[0, 1]), stack.iter()));
        assert!(may_claim(&id(&[0, 2]), stack.iter()));
        assert!(would_deadlock(&id(&[0, 2]), stack.iter()));
        assert!(!would_deadlock(&id(&[0, 3]), stack.iter()));
    }
}
