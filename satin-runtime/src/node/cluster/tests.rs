//! The imaginary workers keep the contract of the real ones.

mod flows;
mod given;
mod kept;

use super::{
    super::{DepartureId, HostedId, Judgement, Request, Rule, Taken, Terms, Token, TookJobs},
    workers::{Finished, ImaginaryWorkers},
    *,
};
use crate::job::{Answer, Back, Fingerprint, History, JobId, JobName, OrphanNews, Parcel, Recall};

#[test]
fn a_node_alone_computes_a_tree() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(seed);
        cluster.form(
            &ProtocolConfig::default(),
            &[("here", 1)],
            1 + seed as u32 % 3,
        );
        let mut program = Program::new(random(20), Duration::from_millis(1)).seeded(seed);
        program.feeds = seed % 2 == 0;
        program.changing = seed % 3 == 0;
        let program = cluster.program(program);
        cluster.start_root(0, program);
        let limit = cluster.outcome(program).time + Duration::from_secs(1);
        assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
        cluster.check(0, &[program]);
        assert!(cluster.is_empty(0) || seed % 3 > 0);
        cluster.audit(0).expect("all is in order");
    }
}

#[test]
fn the_cheapest_leaf_is_found_whatever_is_cut_off() {
    let mut cut_off = 0;
    for seed in 0..50 {
        let mut cluster = Cluster::new(seed);
        cluster.form(&ProtocolConfig::default(), &[("here", 2), ("there", 2)], 1);
        let shape = Shape::Best {
            width: 3,
            height: 4,
        };
        let program = Program::new(shape, Duration::from_millis(1)).seeded(seed);
        let program = cluster.program(program);
        cluster.start_root(0, program);
        assert!(cluster.run_until(Duration::from_secs(10), |cluster| cluster.is_done(0)));
        cluster.check(0, &[program]);
        let begun: u64 = (0..4).map(|node| cluster.effort(node).started).sum();
        cut_off += u64::from(begun < cluster.outcome(program).jobs);
    }
    assert!(cut_off > 40, "{cut_off}");
}

#[test]
fn main_runs_where_it_is_told_to_and_stops_where_it_is_told_to() {
    let mut cluster = Cluster::new(1);
    cluster.form(&ProtocolConfig::default(), &[("here", 1)], 1);
    let programs = [1, 2].map(|seed| {
        let program = Program::new(random(0), Duration::from_millis(20)).seeded(seed);
        cluster.program(program)
    });
    cluster.set_main_everywhere(&programs, Some(7));
    assert!(cluster.run_until(Duration::from_secs(60), |cluster| {
        !cluster.endings().is_empty()
    }));
    let right = programs.map(|program| cluster.outcome(program).result);
    let ending = MainEnd {
        node: 0,
        term: 0,
        panicked: false,
        results: right.to_vec(),
    };
    assert_eq!(cluster.endings(), [ending]);
}

fn random(races: u32) -> Shape {
    Shape::Random {
        width: 3,
        height: 4,
        races,
    }
}

fn knary(serial: u32) -> Program {
    let shape = Shape::Knary {
        width: 3,
        height: 2,
        serial,
    };
    let mut program = Program::new(shape, Duration::from_millis(1));
    program.inner = Duration::ZERO;
    program
}

/// Workers, and the side outside of them.
struct Outside {
    workers: ImaginaryWorkers,
    programs: [Program; 1],
    events: Vec<Event>,
}

const KEY: HostedId = HostedId(1);

impl Outside {
    fn new(program: Program) -> Outside {
        Outside {
            workers: ImaginaryWorkers::new(1, 1, [].into()),
            programs: [program],
            events: Vec::new(),
        }
    }

    /// The ids of the results that the given up job saved.
    fn saved(&self) -> Vec<String> {
        let saved = self.events.iter().find_map(|event| match event {
            Event::Saved(KEY, saved) => Some(saved),
            _ => None,
        });
        let saved = saved.expect("it is given up");
        saved
            .iter()
            .map(|saved| saved.name.id.to_string())
            .collect()
    }

    /// Ends at most `bursts` bursts, one after the other.
    fn run(&mut self, bursts: usize) {
        for burst in 0..=bursts {
            self.workers.run(&self.programs);
            let news = self.workers.events.drain(..);
            self.events.extend(news);
            match self.workers.bursts.pop() {
                Some((lane, _)) if burst < bursts => {
                    let number = self.workers.burst_begins(lane, Duration::ZERO);
                    self.workers.burst_over(lane, number);
                }
                Some(more) => self.workers.bursts.push(more),
                None => break,
            }
        }
        self.workers.audit().expect("all is in order");
    }

    /// The root's work, as a hosted job with the id 0, comes with or without a mark.
    fn host(&mut self, marked: bool) {
        let work = self.programs[0].root();
        let parcel = Parcel {
            id: JobId::ROOT.child(0),
            function: 0,
            arguments: work.pack(0).into(),
            fingerprint: work.fingerprint(),
            needs: Vec::new(),
            lent: Vec::new(),
            keeps: false,
            owner: 0,
            term: 0,
            root: work.fingerprint(),
            history: History { marked, crashes: 0 },
        };
        self.workers.start(KEY, parcel);
    }

    fn child(&self, index: u32) -> (JobName, u64) {
        let child = self.programs[0].child(self.programs[0].root(), index, 0);
        let outcome = self.programs[0].below(child);
        let id = JobId::ROOT.child(0).child(index);
        (JobName::new(id, child.fingerprint()), outcome.result)
    }

    fn claims(&self) -> Vec<(DepartureId, JobId)> {
        let claims = self.events.iter().filter_map(|event| match event {
            Event::Claimed(departure, parcel) => Some((*departure, parcel.id.clone())),
            _ => None,
        });
        claims.collect()
    }

    fn result(&self) -> Option<u64> {
        self.events.iter().find_map(|event| match event {
            Event::Done(KEY, Answer::Result { bytes, .. }) => Some(Smallest::read(bytes)),
            _ => None,
        })
    }

    fn take(&mut self) -> Vec<(DepartureId, Parcel)> {
        self.workers.take(&self.programs, 1, 2, &Terms::default());
        let took = self.workers.events.pop_back();
        let Some(Event::Took(TookJobs { jobs, .. })) = took else {
            panic!("a take is answered: {took:?}");
        };
        let own = jobs.into_iter().map(|job| match job {
            Taken::Own(departure, parcel) => (departure, parcel),
            Taken::Hosted(..) => panic!("a job of its own"),
        });
        own.collect()
    }
}

fn result(value: u64) -> Answer {
    Answer::result(value.to_le_bytes().to_vec().into(), Vec::new())
}

#[test]
fn a_child_of_a_marked_job_is_claimed_where_it_is_known() {
    let mut outside = Outside::new(knary(0));
    let (name, value) = outside.child(1);
    outside.workers.orphan(OrphanNews::Here(name.clone()));
    outside.host(true);
    outside.run(100);
    let [(departure, claimed)] = &outside.claims()[..] else {
        panic!("{:?}", outside.events);
    };
    assert_eq!(*claimed, name.id);
    // The job, 2 children and 3 grandchildren each; the third child waits for the claim.
    assert_eq!(outside.workers.done.started, 9);
    let (departure, programs) = (*departure, outside.programs.clone());
    outside
        .workers
        .deliver(&programs, departure, &result(value));
    outside.run(100);
    assert_eq!(outside.result(), Some(programs[0].sequential().result));
    assert!(outside.workers.is_empty());
}

#[test]
fn a_withdrawn_claim_runs_at_once_and_its_children_look_themselves_up() {
    let mut outside = Outside::new(knary(0));
    let (name, _) = outside.child(1);
    let id = name.id.clone();
    outside.workers.orphan(OrphanNews::Here(name.clone()));
    let grandchild = outside.programs[0].child(outside.programs[0].root(), 1, 0);
    let grandchild = outside.programs[0].child(grandchild, 2, 0).fingerprint();
    outside
        .workers
        .orphan(OrphanNews::Here(JobName::new(id.child(2), grandchild)));
    outside.host(true);
    outside.run(100);
    let departure = outside.claims()[0].0;
    let history = History {
        marked: true,
        crashes: 0,
    };
    let back = Back {
        history,
        at_once: true,
        held: false,
        stays: false,
    };
    outside.workers.put_back(departure, back);
    outside.run(100);
    let claims = outside.claims();
    let ids: Vec<&JobId> = claims.iter().map(|(_, id)| id).collect();
    assert_eq!(ids, [&id, &id.child(2)]);
    // Not at once: it finds its orphan again.
    outside
        .workers
        .put_back(claims[1].0, Back { history, ..back });
    outside.run(100);
    assert_eq!(
        outside.result(),
        Some(outside.programs[0].sequential().result)
    );
}

#[test]
fn another_fingerprint_is_a_miss() {
    let mut outside = Outside::new(knary(0));
    let (mut name, _) = outside.child(1);
    name.fingerprint = Fingerprint(1);
    outside.workers.orphan(OrphanNews::Here(name));
    outside.host(true);
    outside.run(100);
    assert_eq!(outside.claims(), []);
    assert_eq!(
        outside.result(),
        Some(outside.programs[0].sequential().result)
    );
}

#[test]
fn marks_are_inherited_as_long_as_there_may_be_something() {
    let marks = |unsettled: bool, below: u32| {
        let mut outside = Outside::new(knary(0));
        let (name, _) = outside.child(below);
        outside.workers.orphan(OrphanNews::Here(JobName::new(
            name.id.child(0),
            name.fingerprint,
        )));
        outside.workers.orphan(OrphanNews::Settled(!unsettled));
        outside.host(true);
        outside.run(0);
        // The worker runs the first child; the other two are there to be taken, the last one first.
        let mut taken = outside.take();
        taken.extend(outside.take());
        let marks = taken
            .iter()
            .map(|(_, parcel)| parcel.history.marked)
            .collect();
        (marks, outside)
    };
    let (settled, _): (Vec<bool>, _) = marks(false, 2);
    assert_eq!(settled, [true, false]);
    let (unsettled, _) = marks(true, 2);
    assert_eq!(unsettled, [true, true]);
}

#[test]
fn what_finished_before_a_sync_is_saved_when_a_job_is_given_up() {
    let mut outside = Outside::new(knary(0));
    outside.host(false);
    // The worker runs child 0 and its leaves.
    outside.run(0);
    let taken = outside.take();
    let programs = outside.programs.clone();
    let (_, value) = outside.child(2);
    outside
        .workers
        .deliver(&programs, taken[0].0, &result(value));
    let away = outside.take();
    assert_eq!(away.len(), 1, "child 1 is away");
    outside.run(1);
    outside.workers.save(KEY);
    outside.run(1);
    let recalled = outside.events.iter().find_map(|event| match event {
        Event::Recalled(departure, why) => Some((*departure, *why)),
        _ => None,
    });
    assert_eq!(recalled, Some((away[0].0, Recall::Abandoned)));
    // A leaf of child 0, too, which has not synced.
    assert_eq!(outside.saved(), ["0.0.0", "0.2"]);
    assert!(outside.workers.is_empty());
}

#[test]
fn what_was_used_already_is_saved_too() {
    let mut outside = Outside::new(knary(1));
    outside.host(false);
    // Child 0 with its three leaves, its sync, and two leaves of the next phase, with a sync between them.
    outside.run(5);
    outside.workers.save(KEY);
    outside.run(100);
    assert_eq!(outside.saved(), ["0.0", "0.1.1"]);
}

#[test]
fn children_run_in_program_order_and_others_take_the_last_first() {
    let mut outside = Outside::new(knary(0));
    outside.host(false);
    outside.run(0);
    let taken = outside.take();
    let ids: Vec<String> = taken.iter().map(|(_, job)| job.id.to_string()).collect();
    assert_eq!(ids, ["0.2"], "half of two, and the first has begun");
    // The running jobs: the root, its first child, and its first leaf.
    assert_eq!(outside.workers.on_stack(0), ["0", "0.0", "0.0.0"]);
    outside.run(1);
    assert_eq!(outside.workers.on_stack(0), ["0", "0.0", "0.0.1"]);
}

#[test]
fn a_root_of_a_later_term_is_claimed_and_can_be_given_up() {
    for give_up in [false, true] {
        let mut outside = Outside::new(knary(0));
        let work = outside.programs[0].root();
        let id = JobId::ROOT.child(0);
        let news = OrphanNews::Here(JobName::new(id.clone(), work.fingerprint()));
        outside.workers.orphan(news);
        let name = RootName {
            number: 0,
            fingerprint: work.fingerprint(),
        };
        let tag = RootRun { term: 1, name };
        outside.workers.start_root(tag, 0, work);
        outside.run(100);
        let claims = outside.claims();
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].1, id);
        let programs = outside.programs.clone();
        if give_up {
            assert!(!outside.workers.give_up_root(tag), "it runs nowhere");
            assert_eq!(outside.workers.finished, []);
        } else {
            outside.workers.deliver(&programs, claims[0].0, &result(5));
            let finished = std::mem::take(&mut outside.workers.finished);
            assert_eq!(finished, [(tag, Finished::Result(5, false))]);
        }
        assert!(outside.workers.is_empty());
    }
}

#[test]
fn a_panic_goes_all_the_way_up() {
    let mut outside = Outside::new(knary(0));
    outside.host(false);
    outside.run(0);
    let taken = outside.take();
    let programs = outside.programs.clone();
    let story = Answer::Panicked("three nodes died".into());
    outside.workers.deliver(&programs, taken[0].0, &story);
    outside.run(100);
    let done = Event::Done(KEY, story);
    let done = format!("{done:?}");
    assert!(
        outside
            .events
            .iter()
            .any(|event| format!("{event:?}") == done)
    );
    assert!(outside.workers.is_empty());
}

#[test]
fn a_job_that_runs_again_may_spawn_in_another_order() {
    let mut orders = std::collections::BTreeSet::new();
    for nonce in 0..20 {
        let mut program = knary(0);
        program.changing = true;
        let mut outside = Outside::new(program);
        outside.workers = ImaginaryWorkers::new(1, nonce, [].into());
        outside.host(false);
        outside.run(0);
        let taken = outside.take();
        orders.insert(taken[0].1.fingerprint.0);
        let back = Back::default();
        outside.workers.put_back(taken[0].0, back);
        outside.run(100);
        assert_eq!(
            outside.result(),
            Some(outside.programs[0].sequential().result)
        );
    }
    assert_eq!(orders.len(), 3);
}

#[test]
fn what_a_process_says_last_is_heard_before_its_end() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        cluster.form(&ProtocolConfig::default(), &[("here", 4)], 1);
        for node in 1..4 {
            // Slow, as if the node had a lot to read.
            cluster.set_handling(node, Duration::from_millis(20));
        }
        let shape = Shape::Flat { jobs: 40 };
        let program = cluster.program(Program::new(shape, Duration::from_millis(5)));
        cluster.set_main(0, &[program], 0);
        let long = Duration::from_secs(20);
        assert!(cluster.run_until(long, |cluster| cluster.ended(0).is_some()));
        cluster.run_for(Duration::from_secs(5));
        let ended: Vec<_> = (1..4).map(|node| cluster.ended(node)).collect();
        assert_eq!(ended, [Some(0); 3], "seed {seed}");
        let bad = |told: &Notice| matches!(told, Notice::Dead(_) | Notice::Master(_));
        let mut told = (1..4).flat_map(|node| &cluster.notices(node)[1..]);
        assert!(!told.any(bad), "seed {seed}");
    }
}

#[test]
fn a_refusal_says_nothing_of_the_next_attempt() {
    let mut cluster = Cluster::new(1);
    cluster.form(&ProtocolConfig::default(), &[("here", 1), ("there", 1)], 1);
    let all = [0, 1].map(|node| (cluster.addr(node), Some(cluster.peer(node))));
    cluster.partition("here", "there");
    // Is to be refused after two seconds, but the other comes first, and is lost again.
    cluster.connect(0, all[1].0, all[1].1);
    cluster.heal();
    cluster.connect(1, all[0].0, all[0].1);
    cluster.run_for(Duration::from_millis(1990));
    assert_eq!(cluster.links(), [(0, 1)]);
    cluster.break_link(0, 1, Duration::ZERO);
    cluster.connect(0, all[1].0, all[1].1);
    cluster.run_for(Duration::from_millis(20));
    assert_eq!(cluster.links(), [(0, 1)]);
}

#[test]
fn gossip_waits_for_no_stream() {
    let mut cluster = Cluster::new(1);
    cluster.wire.large = 0;
    cluster.wire.near.rate = Some(400_000);
    cluster.form(&ProtocolConfig::default(), &[("here", 2)], 1);
    cluster.connect(0, cluster.addr(1), Some(cluster.peer(1)));
    cluster.run_for(Duration::from_secs(1));
    // Ten seconds: in as many others find out that a node is dead.
    let sender = cluster.peer(0);
    cluster.transmit(0, 1, sender, Message::Trial(vec![0; 4_000_000]));
    cluster.run_for(Duration::from_secs(20));
    let dead = |notice: &Notice| matches!(notice, Notice::Dead(_));
    for node in [0, 1] {
        assert!(!cluster.notices(node).iter().any(dead));
    }
}
