//! Several stores as one: what it takes until a file counts as written, and who is asked for it.
//!
//! * A *log* goes to a few members, which rendezvous hashing of its name chooses. It is durable as soon as one has it: a lost
//!   log costs work, never the answer.
//! * All other files decide something (who resumes a run, say). They go to all members, and exist if a majority has created
//!   them.
//!
//! Knows no network: a member is any [`Stable`], and one that fails is one that does not answer.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use super::{Stable, StableError};

/// Attempts to create a file for which others compete, each of them with some of the members. Too few: all of a crowd may
/// fail. Too many: a file that a dead process has left on one member is found out late.
const ATTEMPTS: u32 = 6;

/// Longest time between the first two attempts; it doubles. Too short: competitors meet again. Too long: a start is slow.
const BACK_OFF: Duration = Duration::from_millis(20);

/// One of the stores.
pub struct Member {
    /// The name by which it is chosen: the same for all that use it.
    pub name: String,
    /// The store itself.
    pub store: Arc<dyn Stable>,
}

/// Several stores that are used as one.
pub struct Servers {
    members: Vec<Member>,
    copies: usize,
    /// For each log file that is being written, the members that have all of it. The others get nothing more: their copy
    /// would have a gap.
    complete: Mutex<HashMap<String, Vec<usize>>>,
}

impl Servers {
    /// Uses these members, with each log on `copies` of them.
    ///
    /// # Panics
    /// If there is no member, or `copies` is 0 or greater than their number.
    #[must_use]
    pub fn new(members: Vec<Member>, copies: u32) -> Servers {
        let copies = copies as usize;
        assert!((1..=members.len()).contains(&copies), "a URL is checked");
        Servers {
            members,
            copies,
            complete: Mutex::default(),
        }
    }

    /// The members in the order in which they are asked for what has that name; see Thaler and Ravishankar, "Using
    /// name-based mappings to increase hit rates" (1998).
    fn order(&self, name: &str) -> Vec<usize> {
        let weight = |member: &Member| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(member.name.as_bytes());
            hasher.update(&[0]);
            hasher.update(name.as_bytes());
            *hasher.finalize().as_bytes()
        };
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_cached_key(|&member| Reverse(weight(&self.members[member])));
        order
    }

    /// Asks these members at the same time. The answers come in the order of the members.
    fn ask<T: Send>(
        &self,
        members: &[usize],
        question: impl Fn(&dyn Stable) -> Result<T, StableError> + Sync,
    ) -> Vec<(usize, Result<T, StableError>)> {
        let ask = |member: usize| (member, question(&*self.members[member].store));
        if let [member] = *members {
            return vec![ask(member)];
        }
        thread::scope(|scope| {
            let asked: Vec<_> = (members.iter())
                .map(|&member| (member, scope.spawn(move || ask(member))))
                .collect();
            let answers = asked.into_iter().map(|(member, thread)| {
                let panicked = |_| (member, Err(failed("", io::Error::other("it panicked"))));
                thread.join().unwrap_or_else(panicked)
            });
            answers.collect()
        })
    }

    fn everybody(&self) -> Vec<usize> {
        (0..self.members.len()).collect()
    }

    /// Says how many of all answer, and what the others say.
    fn too_few(&self, path: &str, answer: usize, failures: &[(usize, StableError)]) -> StableError {
        let all = self.members.len();
        let verb = if answer == 1 { "answers" } else { "answer" };
        let mut text = format!("{answer} of {all} servers {verb}");
        for (member, error) in failures {
            let reason = match error {
                StableError::Failed { error, .. } => error.to_string(),
                other => other.to_string(),
            };
            text += &format!("; {}: {reason}", self.members[*member].name);
        }
        failed(path, io::Error::other(text))
    }

    // ------------------------------------------------------------------------------------------------------------ logs

    /// The first append to a file chooses who holds it: of those that answer, the first in order.
    fn begin_log(&self, path: &str, batch: &[u8]) -> Result<Vec<usize>, StableError> {
        let order = self.order(log_of(path));
        let mut failures = Vec::new();
        let mut holders = Vec::new();
        let mut next = 0;
        while holders.len() < self.copies && next < order.len() {
            // Nothing of the file is written yet, so another member can take the place of one that does not answer.
            let missing = self.copies - holders.len();
            let chosen = &order[next..order.len().min(next + missing)];
            next += chosen.len();
            for (member, answer) in self.ask(chosen, |store| store.append(path, batch)) {
                match answer {
                    Ok(()) => holders.push(member),
                    Err(error) => failures.push((member, error)),
                }
            }
        }
        if holders.is_empty() {
            return Err(self.too_few(path, 0, &failures));
        }
        if holders.len() < self.copies {
            self.warn_of_few_copies(path, holders.len(), &failures);
        }
        Ok(holders)
    }

    /// Appends where all of the file is. Those that fail have less than all of it from now on.
    fn go_on(
        &self,
        path: &str,
        batch: &[u8],
        holders: &[usize],
    ) -> (Vec<usize>, Vec<(usize, StableError)>) {
        let (mut left, mut failures) = (Vec::new(), Vec::new());
        for (member, answer) in self.ask(holders, |store| store.append(path, batch)) {
            match answer {
                Ok(()) => left.push(member),
                Err(error) => failures.push((member, error)),
            }
        }
        if !left.is_empty() && !failures.is_empty() {
            self.warn_of_few_copies(path, left.len(), &failures);
        }
        (left, failures)
    }

    fn warn_of_few_copies(&self, path: &str, copies: usize, failures: &[(usize, StableError)]) {
        for (member, error) in failures {
            let server = &*self.members[*member].name;
            tracing::warn!(
                path,
                copies,
                "a server of the store gets no more of this log: {server}: {error}"
            );
        }
    }

    // ---------------------------------------------------------------------------------------------------- other files

    /// Tries to create a file everywhere, one member after the other, in an order that is the same for all competitors: so
    /// the first one decides, as long as all reach it.
    fn create_once(&self, path: &str, bytes: &[u8]) -> CopyCreation {
        let (mut created, mut failures, mut exists) = (Vec::new(), Vec::new(), false);
        for member in self.order(run_of(path)) {
            match self.members[member].store.create(path, bytes) {
                Ok(()) => created.push(member),
                Err(StableError::Exists(_)) => {
                    exists = true;
                    break;
                }
                Err(error) => failures.push((member, error)),
            }
        }
        let is_majority = created.len() * 2 > self.members.len();
        if !exists && is_majority {
            return CopyCreation::Done;
        }
        // A member that failed may have created the file all the same, but so may a competitor there, whose file is not ours
        // to remove.
        for (member, answer) in self.ask(&created, |store| store.delete(path)) {
            if let Err(error) = answer {
                let server = &*self.members[member].name;
                tracing::warn!(
                    path,
                    "a file that does not count stays on {server}: {error}"
                );
            }
        }
        match (exists, created.len()) {
            (true, 0) => CopyCreation::Exists,
            (true, _) => CopyCreation::Contested,
            (false, answer) => CopyCreation::Failed(self.too_few(path, answer, &failures)),
        }
    }
}

/// The outcome of an attempt to create a file. Unless it is `Done`, nothing of the attempt stays that could be taken back.
enum CopyCreation {
    Done,
    Exists,
    /// Some members have created it, and another has it already.
    Contested,
    Failed(StableError),
}

impl Stable for Servers {
    fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
        for attempt in 0..ATTEMPTS {
            match self.create_once(path, bytes) {
                CopyCreation::Done => return Ok(()),
                CopyCreation::Exists => break,
                CopyCreation::Failed(error) => return Err(error),
                CopyCreation::Contested => {
                    let longest = BACK_OFF * 2u32.pow(attempt);
                    thread::sleep(longest.mul_f64(rand::random::<f64>()));
                }
            }
        }
        Err(StableError::Exists(path.into()))
    }

    fn append(&self, path: &str, batch: &[u8]) -> Result<(), StableError> {
        // A path has one writer: nobody else changes the entry meanwhile.
        let lock = || self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        let holders = lock().get(path).cloned();
        let (holders, outcome) = match holders {
            None => match self.begin_log(path, batch) {
                Ok(holders) => (holders, Ok(())),
                // A member may hold a part of the batch.
                Err(error) => (Vec::new(), Err(error)),
            },
            Some(holders) => {
                let (left, failures) = self.go_on(path, batch, &holders);
                let outcome = match left.is_empty() {
                    true => Err(self.too_few(path, 0, &failures)),
                    false => Ok(()),
                };
                (left, outcome)
            }
        };
        lock().insert(path.into(), holders);
        outcome
    }

    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError> {
        let (mut holders, mut failures) = (Vec::new(), Vec::new());
        for (member, answer) in self.ask(&self.everybody(), |store| store.list(path)) {
            match answer {
                Ok(files) => {
                    let size = files.into_iter().find(|(file, _)| file == path);
                    holders.extend(size.map(|(_, size)| (Reverse(size), member)));
                }
                Err(error) => failures.push((member, error)),
            }
        }
        let answer = self.members.len() - failures.len();
        if holders.is_empty() {
            return Err(match answer {
                0 => self.too_few(path, 0, &failures),
                _ => StableError::Missing(path.into()),
            });
        }
        // A shorter copy is the beginning of a longer one.
        holders.sort_unstable();
        let mut missing = true;
        for (_, member) in holders {
            match self.members[member].store.read(path, range.clone()) {
                Ok(bytes) => return Ok(bytes),
                Err(StableError::Missing(_)) => {}
                Err(error) => {
                    missing = false;
                    failures.push((member, error));
                }
            }
        }
        Err(match missing {
            true => StableError::Missing(path.into()),
            false => self.too_few(path, self.members.len() - failures.len(), &failures),
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError> {
        let mut files = BTreeMap::<String, u64>::new();
        let mut failures = Vec::new();
        for (member, answer) in self.ask(&self.everybody(), |store| store.list(prefix)) {
            match answer {
                Ok(list) => {
                    for (path, size) in list {
                        let largest = files.entry(path).or_default();
                        *largest = size.max(*largest);
                    }
                }
                Err(error) => failures.push((member, error)),
            }
        }
        if failures.len() == self.members.len() {
            return Err(self.too_few(prefix, 0, &failures));
        }
        if failures.len() >= self.copies {
            let error = self.too_few(prefix, self.members.len() - failures.len(), &failures);
            tracing::warn!("parts of what the store holds may be out of reach: {error}");
        }
        Ok(files.into_iter().collect())
    }

    fn delete(&self, path: &str) -> Result<(), StableError> {
        let mut failures = Vec::new();
        for (member, answer) in self.ask(&self.everybody(), |store| store.delete(path)) {
            if let Err(error) = answer {
                failures.push((member, error));
            }
        }
        let mut complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        complete.remove(path);
        // A member that is away brings the file back.
        match failures.is_empty() {
            true => Ok(()),
            false => Err(self.too_few(path, self.members.len() - failures.len(), &failures)),
        }
    }
}

fn failed(path: &str, error: io::Error) -> StableError {
    StableError::Failed {
        path: path.into(),
        error,
    }
}

/// The name of the log that a segment belongs to; of another file, its own.
fn log_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((log, _)) if path.contains("/log/") => log,
        _ => path,
    }
}

/// The run that a file belongs to.
fn run_of(path: &str) -> &str {
    let end = path.match_indices('/').nth(1);
    end.map_or(path, |(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    use super::*;

    /// A store in memory that can be made to fail.
    #[derive(Default)]
    struct Memory {
        files: Mutex<BTreeMap<String, Vec<u8>>>,
        is_down: AtomicBool,
    }

    impl Memory {
        fn files(
            &self,
        ) -> Result<std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>>, StableError> {
            match self.is_down.load(SeqCst) {
                true => Err(failed("", io::ErrorKind::TimedOut.into())),
                false => Ok(self.files.lock().expect("no test panics with it")),
            }
        }
    }

    impl Stable for Memory {
        fn create(&self, path: &str, bytes: &[u8]) -> Result<(), StableError> {
            let mut files = self.files()?;
            if files.contains_key(path) {
                return Err(StableError::Exists(path.into()));
            }
            files.insert(path.into(), bytes.into());
            Ok(())
        }

        fn append(&self, path: &str, batch: &[u8]) -> Result<(), StableError> {
            let mut files = self.files()?;
            files.entry(path.into()).or_default().extend(batch);
            Ok(())
        }

        fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>, StableError> {
            let files = self.files()?;
            let Some(bytes) = files.get(path) else {
                return Err(StableError::Missing(path.into()));
            };
            let end = bytes.len().min(range.end as usize);
            Ok(bytes[end.min(range.start as usize)..end].to_vec())
        }

        fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, StableError> {
            let files = self.files()?;
            let fits = files.iter().filter(|(path, _)| path.starts_with(prefix));
            Ok(fits
                .map(|(path, bytes)| (path.clone(), bytes.len() as u64))
                .collect())
        }

        fn delete(&self, path: &str) -> Result<(), StableError> {
            self.files()?.remove(path);
            Ok(())
        }
    }

    const SEGMENT: &str = "fib/run/log/0-a-0/00000000";
    const NEXT: &str = "fib/run/log/0-a-0/00000001";
    const EPOCH: &str = "fib/run/epoch/1";

    /// Members `0`, `1`.. and the stores behind them.
    struct Group {
        stores: Vec<Arc<Memory>>,
        copies: u32,
    }

    impl Group {
        fn new(members: usize, copies: u32) -> Group {
            Group {
                stores: (0..members).map(|_| Arc::default()).collect(),
                copies,
            }
        }

        /// What a process makes of the group: each keeps books of its own.
        fn open(&self) -> Servers {
            let members = self
                .stores
                .iter()
                .enumerate()
                .map(|(number, store)| Member {
                    name: number.to_string(),
                    store: Arc::clone(store) as Arc<dyn Stable>,
                });
            Servers::new(members.collect(), self.copies)
        }

        fn set_down(&self, member: usize, is_down: bool) {
            self.stores[member].is_down.store(is_down, SeqCst);
        }

        fn holders(&self, path: &str) -> Vec<usize> {
            let holds = |store: &Memory| store.files.lock().expect("whole").contains_key(path);
            (0..self.stores.len())
                .filter(|&member| holds(&self.stores[member]))
                .collect()
        }
    }

    #[test]
    fn each_log_has_its_own_members_and_all_processes_agree() {
        let group = Group::new(5, 2);
        let (one, other) = (group.open(), group.open());
        let mut first = [0; 5];
        for log in 0..1000 {
            let name = format!("fib/run/log/0-{log}-0");
            let order = one.order(&name);
            assert_eq!(order, other.order(&name));
            first[order[0]] += 1;
        }
        assert!(first.iter().all(|&logs| logs > 150), "{first:?}");
    }

    #[test]
    fn of_the_logs_only_those_of_a_lost_member_move() {
        let all = Group::new(5, 2).open();
        let fewer = Group::new(4, 2).open();
        for log in 0..100 {
            let name = format!("fib/run/log/0-{log}-0");
            let mut order = all.order(&name);
            order.retain(|&member| member != 4);
            assert_eq!(order, fewer.order(&name));
        }
    }

    #[test]
    fn a_log_is_on_as_many_members_as_copies_are_asked_for() {
        let group = Group::new(3, 2);
        let servers = group.open();
        for (path, batch) in [(SEGMENT, b"one"), (SEGMENT, b"two"), (NEXT, b"six")] {
            servers.append(path, batch).expect("written");
        }
        assert_eq!(group.holders(SEGMENT).len(), 2);
        assert_eq!(group.holders(SEGMENT), group.holders(NEXT));
        assert_eq!(servers.read(SEGMENT, 0..100).expect("there"), b"onetwo");
        assert_eq!(servers.read(SEGMENT, 2..4).expect("there"), b"et");
        let sizes = servers.list("fib/").expect("a list");
        assert_eq!(sizes, [(SEGMENT.to_owned(), 6), (NEXT.to_owned(), 3)]);
        servers.delete(SEGMENT).expect("deleted");
        assert!(group.holders(SEGMENT).is_empty());
    }

    #[test]
    fn a_member_that_is_down_when_a_segment_begins_is_replaced() {
        let group = Group::new(3, 2);
        let servers = group.open();
        let order = servers.order("fib/run/log/0-a-0");
        group.set_down(order[0], true);
        servers.append(SEGMENT, b"one").expect("written");
        let mut others = order[1..].to_vec();
        others.sort_unstable();
        assert_eq!(group.holders(SEGMENT), others);
    }

    #[test]
    fn a_member_that_missed_a_batch_gets_no_more_of_that_segment() {
        let group = Group::new(3, 2);
        let servers = group.open();
        let order = servers.order("fib/run/log/0-a-0");
        servers.append(SEGMENT, b"one").expect("on two");
        group.set_down(order[0], true);
        servers.append(SEGMENT, b"two").expect("on one");
        group.set_down(order[0], false);
        servers.append(SEGMENT, b"six").expect("on one");
        let of = |member: usize| group.stores[member].read(SEGMENT, 0..100).expect("there");
        assert_eq!(of(order[0]), b"one");
        assert_eq!(of(order[1]), b"onetwosix");
        assert_eq!(servers.read(SEGMENT, 0..100).expect("there"), b"onetwosix");
        // What is left when the other one dies is shorter, and right.
        group.set_down(order[1], true);
        assert_eq!(servers.read(SEGMENT, 0..100).expect("there"), b"one");
        // Nobody has the whole segment: it ends here, and the next begins elsewhere.
        let error = servers.append(SEGMENT, b"ten").expect_err("no holder");
        assert!(error.to_string().contains("0 of 3"), "{error}");
        group.set_down(order[1], false);
        servers.append(SEGMENT, b"ten").expect_err("still none");
        servers.append(NEXT, b"ten").expect("written");
        assert_eq!(group.holders(NEXT).len(), 2);
    }

    #[test]
    fn a_file_is_created_once_and_is_the_same_everywhere() {
        let group = Group::new(3, 1);
        let servers = group.open();
        servers.create(EPOCH, b"me").expect("created");
        assert_eq!(group.holders(EPOCH), [0, 1, 2]);
        let error = group.open().create(EPOCH, b"you").expect_err("there");
        assert!(matches!(error, StableError::Exists(_)), "{error}");
        assert_eq!(servers.read(EPOCH, 0..10).expect("there"), b"me");
    }

    #[test]
    fn a_minority_that_is_down_does_not_keep_a_file_from_being_created() {
        for down in 0..3 {
            let group = Group::new(3, 1);
            group.set_down(down, true);
            group.open().create(EPOCH, b"me").expect("created");
            // Back again, it would take the file; the others know better, and what it took is taken back.
            group.set_down(down, false);
            group.open().create(EPOCH, b"you").expect_err("there");
            assert_eq!(group.holders(EPOCH).len(), 2);
            assert_eq!(group.open().read(EPOCH, 0..10).expect("there"), b"me");
        }
    }

    #[test]
    fn a_minority_creates_nothing_and_says_who_is_missing() {
        let group = Group::new(3, 1);
        group.set_down(0, true);
        group.set_down(2, true);
        let error = group.open().create(EPOCH, b"me").expect_err("too few");
        assert!(
            error.to_string().contains("1 of 3 servers answers"),
            "{error}"
        );
        assert!(group.holders(EPOCH).is_empty(), "it was taken back");
        group.set_down(0, false);
        group.open().create(EPOCH, b"me").expect("created");
    }

    #[test]
    fn of_many_creators_one_succeeds_whatever_member_is_down() {
        for round in 0..50 {
            let group = Group::new(3, 1);
            if round % 4 < 3 {
                group.set_down(round % 4, true);
            }
            let barrier = Barrier::new(8);
            let won: Vec<bool> = thread::scope(|scope| {
                let creator = |name: u8| {
                    let (servers, barrier) = (group.open(), &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        match servers.create(EPOCH, &[name]) {
                            Ok(()) => true,
                            Err(StableError::Exists(_)) => false,
                            Err(error) => panic!("{error}"),
                        }
                    })
                };
                let creators: Vec<_> = (0..8).map(creator).collect();
                let joined = creators.into_iter().map(|creator| creator.join());
                joined.map(|won| won.expect("no panic")).collect()
            });
            let winners: Vec<u8> = (0..8).filter(|&name| won[usize::from(name)]).collect();
            assert_eq!(winners.len(), 1, "round {round}: {won:?}");
            assert_eq!(group.open().read(EPOCH, 0..9).expect("there"), winners);
        }
    }

    #[test]
    fn competitors_that_hold_a_part_each_take_it_back_and_try_again() {
        let group = Group::new(3, 1);
        let servers = group.open();
        let [first, _, last] = servers.order("fib/run")[..] else {
            panic!("three members");
        };
        // A competitor that did not reach the first one, and dies.
        group.stores[last].create(EPOCH, b"you").expect("created");
        let error = servers.create(EPOCH, b"me").expect_err("somebody has it");
        assert!(matches!(error, StableError::Exists(_)), "{error}");
        assert_eq!(group.holders(EPOCH), [last]);
        // One that takes it back leaves the way free.
        group.set_down(first, true);
        thread::scope(|scope| {
            let creating = scope.spawn(|| servers.create(EPOCH, b"me"));
            group.stores[last].delete(EPOCH).expect("deleted");
            // Created, or told that it was there: in either case there is no half.
            let created = creating.join().expect("no panic").is_ok();
            let holders = group.holders(EPOCH).len();
            assert_eq!(holders, if created { 2 } else { 0 });
        });
    }

    #[test]
    fn a_file_is_removed_where_members_answer_and_that_is_no_removal() {
        let group = Group::new(3, 1);
        let servers = group.open();
        servers.create(EPOCH, b"e").expect("all answer");
        group.set_down(2, true);
        let error = servers.delete(EPOCH).expect_err("one is away");
        assert!(error.to_string().contains("2 of 3 servers"), "{error}");
        assert!(servers.list("").expect("two answer").is_empty());
        group.set_down(2, false);
        assert_eq!(servers.list("").expect("all answer").len(), 1);
        servers.delete(EPOCH).expect("all answer");
    }

    #[test]
    fn a_file_is_missing_only_if_somebody_says_so() {
        let group = Group::new(3, 1);
        let servers = group.open();
        group.set_down(0, true);
        let error = servers.read(EPOCH, 0..1).expect_err("missing");
        assert!(matches!(error, StableError::Missing(_)), "{error}");
        (1..3).for_each(|member| group.set_down(member, true));
        for error in [
            servers.read(EPOCH, 0..1).expect_err("nobody answers"),
            servers.list("").expect_err("nobody answers"),
            servers.delete(EPOCH).expect_err("nobody answers"),
        ] {
            assert!(error.to_string().contains("0 of 3 servers"), "{error}");
        }
    }
}
