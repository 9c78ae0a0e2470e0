//! Stories of values that jobs need, and of bounds that they improve.

use std::{ops::Range, time::Duration};

use super::super::{
    Action, Event, Judgement, Message, MessageKind, ProtocolConfig, Request, Token,
    cluster::{self, Cluster, MainIs, Path, Program, Shape, Smallest},
    message::How,
};
use crate::job::{
    Answer, BoundName, Fingerprint, History, JobId, Kept, KeptElsewhere, Offer, Parcel, RootName,
    RootRun, ValueName, ValueSize,
};

const BEST: BoundName = BoundName(7);
const MIB: usize = 1 << 20;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn pool(seed: u64, sites: &[(&str, u32)]) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.form(&ProtocolConfig::default(), sites, 1);
    cluster
}

fn value(length: usize) -> Vec<u8> {
    (0..length)
        .map(|byte| (byte * 31 + byte / 251) as u8)
        .collect()
}

/// A root of many leaves, all of which need a value of that size that its node has made.
fn run_with_value(cluster: &mut Cluster, node: u32, length: usize) -> (ValueName, u32) {
    let name = cluster.make_value(node, value(length));
    cluster.set_needs(node, &[name]);
    let leaves = Program::new(Shape::Flat { jobs: 400 }, ms(10));
    let program = cluster.program(leaves);
    cluster.start_root(node, program);
    (name, program)
}

fn finish(cluster: &mut Cluster, node: u32, program: u32) {
    assert!(cluster.run_until(secs(60), |cluster| cluster.is_done(node)));
    cluster.check(node, &[program]);
}

#[test]
fn a_value_crosses_to_each_site_once() {
    for seed in 0..10 {
        let mut cluster = pool(seed, &[("a", 4), ("b", 4), ("c", 4)]);
        let (name, program) = run_with_value(&mut cluster, 0, 5 * MIB / 2);
        finish(&mut cluster, 0, program);
        let holders = (0..12)
            .filter(|node| cluster.has_value(*node, name))
            .count();
        assert!(holders > 9, "{holders} nodes worked");
        // Three pieces to each of two sites.
        assert_eq!(cluster.traffic.of(MessageKind::Part).far, 6, "seed {seed}");
        assert_eq!(
            cluster.traffic.of(MessageKind::Part).near as usize,
            3 * (holders - 1) - 6
        );
    }
}

/// A job comes from afar, and a node of this site has sent one that mentions the same value: that one is asked, not the keeper, which
/// would fetch the value over the wide link.
#[test]
fn a_near_node_that_holds_the_value_is_asked_before_any_other() {
    let mut cluster = quiet(&[("a", 3), ("b", 1)]);
    cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    let name = cluster.make_value(2, value(100));
    cluster.make_value(3, value(100));
    let (near, far) = (cluster.peer(2), cluster.peer(3));
    let job = job_that_needs(name);
    let holders = &mut cluster.node_mut(1).books.holders;
    holders.note(near, name, job.root_run().name);
    let jobs = Message::Jobs {
        request: Request(1),
        jobs: vec![(Token(1), job)],
        left: 0,
        sent_ms: 0,
    };
    cluster.forge(1, far, jobs);
    cluster.run_for(secs(1));
    assert!(cluster.has_value(1, name));
    let wants = cluster.traffic.of(MessageKind::Want);
    assert_eq!((wants.near, wants.far), (1, 0));
}

fn job_that_needs(name: ValueName) -> Parcel {
    Parcel {
        id: JobId::ROOT.child(0).child(1),
        function: 0,
        arguments: vec![0; 24].into(),
        fingerprint: Fingerprint(7),
        needs: vec![name],
        lent: Vec::new(),
        keeps: false,
        owner: 0,
        term: 0,
        root: Fingerprint(0),
        history: History::default(),
    }
}

#[test]
fn a_site_of_many_spreads_a_value_as_a_tree() {
    let mut cluster = pool(2, &[("a", 40)]);
    let (name, program) = run_with_value(&mut cluster, 0, 100);
    finish(&mut cluster, 0, program);
    let holders = (0..40)
        .filter(|node| cluster.has_value(*node, name))
        .count();
    assert_eq!(
        cluster.traffic.of(MessageKind::Part).all() as usize,
        holders - 1
    );
    assert!(
        cluster.traffic.of(MessageKind::Elsewhere).all() > 0,
        "not all from the one that made it"
    );
}

#[test]
fn an_empty_value_is_a_value() {
    let mut cluster = pool(3, &[("a", 1), ("b", 1)]);
    let (name, program) = run_with_value(&mut cluster, 0, 0);
    finish(&mut cluster, 0, program);
    assert!(cluster.has_value(1, name));
}

#[test]
fn a_slow_link_is_waited_for() {
    // 8 MiB at 1 MiB a second: longer than any patience; and the second node of the site waits for the first.
    let mut cluster = Cluster::new(4);
    let config = ProtocolConfig {
        // It is not worth the way.
        judgement: Judgement::Always,
        ..ProtocolConfig::default()
    };
    cluster.form(&config, &[("a", 1), ("b", 3)], 1);
    let slow = Path {
        rate: Some(MIB as u64),
        ..Path::new(ms(50))
    };
    cluster.set_path("a", "b", slow);
    let (name, program) = run_with_value(&mut cluster, 0, 8 * MIB);
    finish(&mut cluster, 0, program);
    cluster.run_for(secs(20));
    assert!((1..4).any(|node| cluster.has_value(node, name)));
    assert!(
        cluster.traffic.of(MessageKind::Part).far <= 8,
        "{:?}",
        cluster.traffic.of(MessageKind::Part)
    );
}

#[test]
fn whoever_was_to_give_it_dies() {
    for seed in 0..20 {
        let mut cluster = pool(seed, &[("a", 2), ("b", 4)]);
        let slow = Path {
            rate: Some(8 * MIB as u64),
            ..Path::new(ms(20))
        };
        cluster.set_path("a", "b", slow);
        let (name, program) = run_with_value(&mut cluster, 0, 4 * MIB);
        // The first of the other site that fetches it; others have been sent there.
        cluster.run_for(ms(100));
        let fetching = (2..6).find(|node| !cluster.has_value(*node, name));
        let Some(victim) = fetching else { continue };
        cluster.crash(victim);
        finish(&mut cluster, 0, program);
    }
}

#[test]
fn sent_to_a_dead_holder_the_first_is_asked_again_and_insisted_upon() {
    let mut cluster = pool(6, &[("a", 1), ("b", 3)]);
    let name = cluster.make_value(0, value(100));
    // Nodes 1 and 2 have asked for it: so the site is said to have it, but both have dropped it since.
    let root = RootName {
        number: 0,
        fingerprint: Fingerprint(0),
    };
    for node in [1, 2] {
        let want = Message::Want {
            lent: false,
            name,
            root,
            offset: 0,
            how: How::Anyhow,
        };
        let from = cluster.peer(node);
        cluster.forge(0, from, want);
    }
    cluster.run_for(ms(100));
    cluster.set_needs(0, &[name]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 20 }, ms(20)));
    cluster.start_root(0, program);
    finish(&mut cluster, 0, program);
    assert!((1..4).any(|node| cluster.has_value(node, name)));
    assert!(cluster.traffic.of(MessageKind::Elsewhere).all() > 0);
    assert!(cluster.traffic.of(MessageKind::Unavailable).all() > 0);
}

#[test]
fn a_value_that_came_damaged_is_fetched_from_another() {
    let mut cluster = pool(7, &[("a", 2)]);
    let name = cluster.make_value(0, value(100));
    cluster.set_needs(0, &[name]);
    cluster.make_value(1, value(100));
    cluster.drop_value(1, name);
    cluster.spoil_value(0, name);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 20 }, ms(20)));
    cluster.start_root(0, program);
    // Nobody else has it: the jobs go back to where they came from, and are done there.
    finish(&mut cluster, 0, program);
    assert!(!cluster.has_value(1, name));
}

#[test]
fn a_damaged_value_is_no_loss_if_somebody_else_has_it() {
    let mut cluster = pool(7, &[("a", 3)]);
    let name = cluster.make_value(0, value(100));
    cluster.make_value(2, value(100));
    cluster.spoil_value(0, name);
    cluster.set_needs(0, &[name]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 20 }, ms(20)));
    cluster.start_root(0, program);
    finish(&mut cluster, 0, program);
    assert!(cluster.has_value(1, name));
}

#[test]
fn a_connection_that_breaks_under_a_value_loses_nothing() {
    for seed in 0..10 {
        let mut cluster = pool(seed, &[("a", 1), ("b", 2)]);
        let slow = Path {
            rate: Some(20 * MIB as u64),
            ..Path::new(ms(20))
        };
        cluster.set_path("a", "b", slow);
        let (_, program) = run_with_value(&mut cluster, 0, 6 * MIB);
        for _ in 0..5 {
            cluster.run_for(ms(60));
            for (a, b) in cluster.links() {
                cluster.break_link(a, b, ms(1));
            }
        }
        let limit = secs(8);
        assert!(
            cluster.run_until(limit, |cluster| cluster.is_done(0)),
            "seed {seed}"
        );
        cluster.check(0, &[program]);
    }
}

#[test]
fn what_nobody_has_any_more_is_done_where_it_came_from() {
    let mut cluster = pool(8, &[("a", 2), ("b", 2)]);
    let name = ValueName([9; 32]);
    cluster.set_needs(0, &[name]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 20 }, ms(20)));
    cluster.start_root(0, program);
    finish(&mut cluster, 0, program);
    cluster.run_for(secs(30));
    assert!(
        (1..4).all(|node| cluster.is_empty(node)),
        "nothing waits for ever"
    );
}

#[test]
fn hints_go_with_their_root() {
    let mut cluster = pool(9, &[("a", 1), ("b", 2)]);
    let (_, program) = run_with_value(&mut cluster, 0, 100);
    finish(&mut cluster, 0, program);
    cluster.run_for(secs(1));
    for node in 0..3 {
        assert!(cluster.node(node).shared.is_empty(), "at {node}");
        let holders = &cluster.node(node).books.holders;
        assert!(holders.is_empty(), "at {node}");
    }
}

/// The master dies while the others are fetching the value that all jobs need, from it and from one another.
#[test]
fn fetches_end_when_nodes_wait_for_each_other() {
    for nodes in [3, 4, 5, 6, 8, 12] {
        for seed in 0..8 {
            let mut cluster = Cluster::new(seed);
            cluster.wire.near = Path::new(ms(20));
            let config = ProtocolConfig {
                claim_patience: ms(100),
                ..ProtocolConfig::default()
            };
            cluster.form(&config, &[("here", nodes)], 1);
            cluster.share(vec![7; 1000]);
            let shape = Shape::Knary {
                width: 4,
                height: 3,
                serial: 0,
            };
            let program = Program::new(shape, ms(500)).seeded(seed);
            let program = cluster.program(program);
            cluster.set_main_everywhere(&[program], None);
            let wanted = |cluster: &Cluster| cluster.traffic.of(MessageKind::Want).all() > 0;
            assert!(cluster.run_until(secs(20), wanted));
            cluster.run_for(ms(8));
            cluster.crash(0);
            let limit = secs(40);
            assert!(
                cluster.run_until(limit, is_over),
                "{nodes} nodes, seed {seed}: no end {limit:?} after the master's"
            );
        }
    }
}

/// Nobody says "soon" for ever.
#[test]
fn who_waits_for_a_silent_holder_looks_elsewhere() {
    // Nobody is declared dead here.
    let mut cluster = quiet(&[("a", 4)]);
    let name = cluster.make_value(3, value(100));
    cluster.drop_value(3, name);
    // Node 1 asks node 2, which asks node 3, which is frozen.
    let root = RootName {
        number: 0,
        fingerprint: Fingerprint(0),
    };
    cluster.freeze(3);
    let want = |how| Message::Want {
        lent: false,
        name,
        root,
        offset: 0,
        how,
    };
    let (one, three) = (cluster.peer(1), cluster.peer(3));
    cluster.forge(2, one, want(How::Fetch(three)));
    cluster.run_for(secs(100));
    assert_eq!(
        cluster.traffic.of(MessageKind::Soon).all(),
        0,
        "nothing came"
    );
    assert!(cluster.node(2).shared.is_empty(), "it is given up");
}

#[test]
fn a_value_that_is_given_up_leaves_no_pieces() {
    let mut cluster = quiet(&[("a", 4)]);
    let name = cluster.make_value(3, value(3 * MIB));
    let root = RootName {
        number: 0,
        fingerprint: Fingerprint(0),
    };
    let (one, three) = (cluster.peer(1), cluster.peer(3));
    let want = Message::Want {
        lent: false,
        name,
        root,
        offset: 0,
        how: How::Fetch(three),
    };
    cluster.forge(2, one, want);
    let begun = |cluster: &Cluster| cluster.values_in_pieces(2) > 0;
    assert!(cluster.run_until(secs(1), begun));
    cluster.freeze(3);
    cluster.run_for(secs(100));
    assert!(cluster.node(2).shared.is_empty(), "it is given up");
    assert_eq!(cluster.values_in_pieces(2), 0);
}

#[test]
fn a_fetch_ends_when_the_value_is_made_here() {
    let mut cluster = pool(4, &[("a", 4)]);
    let name = cluster.make_value(3, value(100));
    cluster.drop_value(3, name);
    let root = RootName {
        number: 0,
        fingerprint: Fingerprint(0),
    };
    cluster.freeze(3);
    let (one, three) = (cluster.peer(1), cluster.peer(3));
    let how = How::Fetch(three);
    let offset = 0;
    let want = Message::Want {
        lent: false,
        name,
        root,
        offset,
        how,
    };
    cluster.forge(2, one, want);
    cluster.run_for(ms(200));
    assert!(!cluster.node(2).shared.is_empty(), "it is fetched");
    let before = cluster.traffic.of(MessageKind::Part).all();
    cluster.make_value(2, value(100));
    cluster.run_for(ms(300));
    assert_eq!(
        cluster.traffic.of(MessageKind::Part).all(),
        before + 1,
        "node 1 has it"
    );
}

#[test]
fn who_failed_to_give_a_value_says_when_it_has_it() {
    let mut cluster = pool(5, &[("a", 3)]);
    let name = cluster.make_value(2, value(100));
    cluster.drop_value(2, name);
    let root = RootName {
        number: 0,
        fingerprint: Fingerprint(0),
    };
    let one = cluster.peer(1);
    let want = Message::Want {
        lent: false,
        name,
        root,
        offset: 0,
        how: How::Insist,
    };
    cluster.forge(2, one, want);
    cluster.run_for(ms(500));
    assert_eq!(cluster.traffic.of(MessageKind::Unavailable).all(), 1);
    cluster.make_value(2, value(100));
    cluster.run_for(ms(500));
    assert_eq!(cluster.traffic.of(MessageKind::Available).all(), 1);
}

// ---- what is kept where it was made

const ROOT: RootName = RootName {
    number: 0,
    fingerprint: Fingerprint(0),
};

/// A node needs a value that another keeps for it; the number of the request is that of the keeper.
fn bring(cluster: &mut Cluster, node: u32, name: ValueName, keeper: u32) {
    let kept = KeptElsewhere {
        ticket: u64::from(keeper),
        name,
        at: cluster.peer(keeper).id.0,
        root: ROOT,
    };
    cluster.tell(node, Event::Bring(kept));
}

fn unneeded(cluster: &mut Cluster, node: u32, name: ValueName, keeper: u32) {
    let at = cluster.peer(keeper).id.0;
    let names = vec![name];
    cluster.tell(node, Event::Unneeded { at, names });
}

/// A node makes a part of a result, and keeps it for another, which has the result.
fn kept(cluster: &mut Cluster, keeper: u32, node: u32, length: usize) -> ValueName {
    let name = cluster.make_value(keeper, value(length));
    let bytes = length as u64;
    let (keeper, books) = (cluster.peer(keeper), &mut cluster.node_mut(keeper).books);
    let parts = Kept {
        at: keeper.id.0,
        values: vec![ValueSize { name, bytes }],
    };
    books.kept_here.keep(ROOT, &parts);
    let holders = &mut cluster.node_mut(node).books.holders;
    holders.note_keeper(keeper, name, ROOT);
    name
}

/// A path on which four pieces take four seconds.
fn slow_path() -> Path {
    Path {
        rate: Some(MIB as u64),
        ..Path::new(ms(20))
    }
}

/// A job that borrows that value comes from a node.
fn lend(cluster: &mut Cluster, to: u32, from: u32, name: ValueName) {
    let mut job = job_that_needs(name);
    job.lent = vec![100];
    let jobs = Message::Jobs {
        request: Request(1),
        jobs: vec![(Token(1), job)],
        left: 0,
        sent_ms: 0,
    };
    let from = cluster.peer(from);
    cluster.forge(to, from, jobs);
}

#[test]
fn two_values_of_a_job_are_fetched_once_each_if_there_is_room_for_one() {
    let mut cluster = quiet(&[("a", 2)]);
    cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    cluster.set_room(1, 0);
    let names = [0, 1].map(|number| cluster.imagine_data(0, number, 20_000));
    let mut job = job_that_needs(names[0]);
    job.needs.push(names[1]);
    job.lent = vec![20_000; 2];
    let jobs = Message::Jobs {
        request: Request(1),
        jobs: vec![(Token(1), job)],
        left: 0,
        sent_ms: 0,
    };
    let from = cluster.peer(0);
    cluster.forge(1, from, jobs);
    cluster.run_for(secs(1));
    assert_eq!(cluster.effort(1).started, 1);
    assert_eq!(cluster.traffic.of(MessageKind::Want).all(), 2);
    let here = names.map(|name| cluster.has_value(1, name));
    assert!(here != [true, true], "the job has begun: one has made room");
}

#[test]
fn what_is_kept_elsewhere_is_brought_and_what_is_here_is_not_fetched() {
    let mut cluster = quiet(&[("a", 1), ("b", 1)]);
    let name = kept(&mut cluster, 1, 0, 5 * MIB / 2);
    bring(&mut cluster, 0, name, 1);
    cluster.run_for(secs(1));
    assert_eq!(cluster.brought(0), [(1, Some(name))]);
    assert!(cluster.has_value(0, name));
    let wants = cluster.traffic.of(MessageKind::Want).all();
    bring(&mut cluster, 0, name, 1);
    assert_eq!(cluster.brought(0).len(), 2);
    assert_eq!(cluster.traffic.of(MessageKind::Want).all(), wants);
}

#[test]
fn what_nobody_has_any_more_is_said_to_be_lost() {
    let mut cluster = quiet(&[("a", 3)]);
    let name = kept(&mut cluster, 1, 0, 100);
    cluster.drop_value(1, name);
    bring(&mut cluster, 0, name, 1);
    cluster.run_for(secs(1));
    assert_eq!(cluster.brought(0), [(1, None)]);
    assert_eq!(cluster.node(0).shared.waiting(), 0);
    // What this very node was to keep, and no other has borrowed, is looked for nowhere.
    let wants = cluster.traffic.of(MessageKind::Want).all();
    bring(&mut cluster, 0, name, 0);
    assert_eq!(cluster.brought(0)[1], (0, None));
    assert_eq!(cluster.traffic.of(MessageKind::Want).all(), wants);
}

/// With whoever has borrowed it, told or not, and with nobody else.
#[test]
fn a_keeper_that_dies_under_the_fetch_is_replaced_by_who_has_borrowed_it() {
    for (borrows, is_known) in [(true, true), (true, false), (false, false)] {
        let mut cluster = quiet(&[("a", 1), ("b", 2)]);
        cluster.set_path("a", "b", slow_path());
        let name = kept(&mut cluster, 1, 0, 4 * MIB);
        if borrows {
            cluster.make_value(2, value(4 * MIB));
        }
        if is_known {
            let borrower = cluster.peer(2);
            let holders = &mut cluster.node_mut(0).books.holders;
            holders.note(borrower, name, ROOT);
        }
        bring(&mut cluster, 0, name, 1);
        let begun = |cluster: &Cluster| cluster.values_in_pieces(0) > 0;
        assert!(cluster.run_until(secs(3), begun));
        cluster.crash(1);
        cluster.declare_dead(1);
        cluster.run_for(secs(10));
        // Of those that are not known nodes of the own site are asked, and the one where `main` runs.
        let found = (borrows && is_known).then_some(name);
        assert_eq!(cluster.brought(0), [(1, found)]);
        assert_eq!(cluster.values_in_pieces(0), 0);
        // It is dead from the beginning.
        bring(&mut cluster, 0, name, 1);
        cluster.run_for(secs(10));
        assert_eq!(cluster.brought(0)[1], (1, found));
    }
}

/// The first node has a value of eight pieces, the second fetches it from there, the third from the second, and so on; each at a site of
/// its own, and a piece takes a second.
fn chain<const NODES: usize>() -> (Cluster, ValueName) {
    let sites: [(&str, u32); NODES] =
        std::array::from_fn(|node| (["a", "b", "c", "d", "e"][node], 1));
    let mut cluster = quiet(&sites);
    for (a, _) in sites {
        for (b, _) in sites {
            cluster.set_path(a, b, slow_path());
        }
    }
    let name = cluster.make_value(0, value(8 * MIB));
    for node in 1..NODES as u32 {
        bring(&mut cluster, node, name, node - 1);
    }
    (cluster, name)
}

/// Each of these nodes of a chain has got that from the one before it: the value, or that nobody has it.
fn check_brought(cluster: &Cluster, nodes: Range<u32>, value: Option<ValueName>) {
    for node in nodes {
        assert_eq!(cluster.brought(node), [(u64::from(node) - 1, value)]);
    }
}

/// The second node of a chain of four, which has some pieces, loses the first, and knows of the last one besides.
fn the_first_dies(cluster: &mut Cluster, name: ValueName) {
    let last = cluster.peer(3);
    (cluster.node_mut(1).books.holders).note(last, name, ROOT);
    cluster.run_for(ms(4_500));
    cluster.crash(0);
    cluster.declare_dead(0);
}

#[test]
fn what_is_on_its_way_is_passed_on_piece_by_piece() {
    let (mut cluster, name) = chain::<4>();
    // Passed on as a whole it would take 24 s.
    cluster.run_for(ms(11_500));
    for node in 1..4 {
        assert!(cluster.has_value(node, name), "{node}");
    }
    assert_eq!(cluster.traffic.of(MessageKind::Part).all(), 3 * 8);
}

/// It goes on with another that has the value, and what is here already is not sent again.
#[test]
fn who_passes_a_value_on_and_loses_its_holder_goes_on_where_it_was() {
    let (mut cluster, name) = chain::<4>();
    cluster.drop_value(3, name);
    cluster.make_value(3, value(8 * MIB));
    the_first_dies(&mut cluster, name);
    cluster.run_for(ms(6_500));
    for node in 1..3 {
        assert!(cluster.has_value(node, name), "{node}");
    }
    check_brought(&cluster, 1..3, Some(name));
    let parts = cluster.traffic.of(MessageKind::Part).all();
    // The first one once more, which says that it is there; those that were under way from the dead one; and the one that the
    // last node had asked for before it made the value itself.
    assert!(parts <= 2 * 8 + 1 + 4 + 1, "{parts}");
}

/// Nodes of which each has a part of a value, and waits for the next one: nobody has the rest.
#[test]
fn nodes_that_pass_a_value_on_in_a_ring_find_that_out() {
    let (mut cluster, name) = chain::<4>();
    the_first_dies(&mut cluster, name);
    cluster.run_for(secs(20));
    check_brought(&cluster, 1..4, None);
    for node in 1..4 {
        assert_eq!(cluster.values_in_pieces(node), 0);
    }
}

/// A node passes on what came damaged; when the last piece says so, both ask again, and nobody honest is given up.
#[test]
fn a_damaged_value_that_was_passed_on_is_had_from_the_same_node() {
    let (mut cluster, name) = chain::<4>();
    cluster.spoil_value(0, name);
    cluster.run_for(ms(7_500));
    // The only one that has it: node 2 knows nobody but node 1, which finds it there in the end.
    cluster.make_value(3, value(8 * MIB));
    let other = cluster.peer(3);
    (cluster.node_mut(1).books.holders).note(other, name, ROOT);
    cluster.run_for(secs(40));
    check_brought(&cluster, 1..3, Some(name));
}

/// Another pool of the same process has given the value up, and the store has dropped the pieces of both.
#[test]
fn pieces_that_the_store_has_dropped_are_asked_for_again() {
    let (mut cluster, name) = chain::<3>();
    cluster.run_for(ms(4_500));
    cluster.drop_pieces(1, name);
    cluster.run_for(secs(16));
    check_brought(&cluster, 1..3, Some(name));
}

/// A word that a node waits for itself, of a holder that it has given up since, ends nothing.
#[test]
fn late_word_of_a_ring_does_not_end_the_fetch_from_another() {
    let (mut cluster, name) = chain::<3>();
    cluster.run_for(ms(4_500));
    let [who, whom] = [1, 2].map(|node| cluster.peer(node));
    let waits = Message::Waits {
        name,
        who,
        whom,
        hops: 1,
    };
    cluster.forge(1, whom, waits);
    cluster.run_for(secs(7));
    assert_eq!(cluster.brought(1), [(0, Some(name))]);
    assert_eq!(cluster.traffic.of(MessageKind::Part).all(), 2 * 8);
}

/// The word that tells it is lost with the connection over which it went.
#[test]
fn nodes_in_a_ring_find_that_out_although_the_word_was_lost() {
    let (mut cluster, name) = chain::<4>();
    the_first_dies(&mut cluster, name);
    // Node 1 asks node 3, which tells node 2.
    cluster.run_for(ms(11));
    cluster.break_link(2, 3, ms(1));
    cluster.run_for(secs(20));
    check_brought(&cluster, 1..4, None);
}

/// Two nodes reach each other only through others, and the one that gives a value takes another way before the other has seen that the
/// first is broken: what that one had asked for is lost with it.
#[test]
fn what_was_asked_for_through_a_node_is_asked_for_again_through_the_next() {
    for between in [2, 3] {
        let mut cluster = quiet(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        cluster.cut_for_good(0, 1);
        cluster.run_for(secs(60));
        for (a, b) in [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")] {
            cluster.set_path(a, b, slow_path());
        }
        let name = cluster.make_value(0, value(8 * MIB));
        bring(&mut cluster, 1, name, 0);
        let begun = |cluster: &Cluster| cluster.values_in_pieces(1) > 0;
        assert!(cluster.run_until(secs(20), begun));
        cluster.break_link(0, between, secs(5));
        cluster.run_for(secs(50));
        assert_eq!(cluster.brought(1), [(0, Some(name))]);
    }
}

/// Whoever asks for pieces that do not exist gets none, and costs nothing.
#[test]
fn nonsense_is_not_waited_for() {
    let (mut cluster, name) = chain::<3>();
    cluster.run_for(ms(2_500));
    let denied = cluster.traffic.of(MessageKind::Unavailable).all();
    let from = cluster.peer(2);
    for offset in [7, 8 * MIB as u64, u64::MAX] {
        let want = Message::Want {
            lent: false,
            name,
            root: ROOT,
            offset,
            how: How::Anyhow,
        };
        cluster.forge(1, from, want);
    }
    assert_eq!(
        cluster.traffic.of(MessageKind::Unavailable).all(),
        denied + 3
    );
}

#[test]
fn who_asks_its_owner_for_it_is_sent_to_the_keeper() {
    // The thief stands beside the owner, beside the keeper, and at a site of its own.
    for (sites, keeper) in [
        ([("a", 2), ("b", 1), ("c", 1)], 2),
        ([("a", 1), ("b", 2), ("c", 1)], 2),
        ([("a", 1), ("b", 1), ("c", 2)], 3),
    ] {
        let mut cluster = quiet(&sites);
        cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
        let name = kept(&mut cluster, keeper, 0, 100);
        lend(&mut cluster, 1, 0, name);
        cluster.run_for(secs(1));
        assert!(cluster.has_value(1, name), "{sites:?}");
        assert!(!cluster.has_value(0, name), "it went past the owner");
        assert!(cluster.traffic.of(MessageKind::Elsewhere).all() <= 2);
    }
}

// ---- what will be needed

/// A node says that tasks which are likely to run on that one will need what a third keeps, or it itself.
fn prefetch(cluster: &mut Cluster, node: u32, to: u32, name: ValueName, at: u32) {
    let [to, keeper] = [to, at].map(|node| cluster.peer(node).id.0);
    let value = ValueSize {
        name,
        bytes: MIB as u64,
    };
    let event = Event::Prefetch {
        to,
        value,
        root: ROOT,
        at: (at != node).then_some(keeper),
    };
    cluster.tell(node, event);
}

/// Does a node count on that one to have the value?
fn counts_on(cluster: &Cluster, node: u32, there: u32, name: ValueName) -> bool {
    let there = cluster.peer(there);
    let holders = &cluster.node(node).books.holders;
    holders.of(name).any(|peer| peer == there)
}

#[test]
fn what_a_task_will_need_is_there_when_it_comes() {
    for at in [0, 1] {
        let mut cluster = quiet(&[("a", 3)]);
        cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
        let name = match at {
            0 => cluster.make_value(0, value(5 * MIB / 2)),
            _ => kept(&mut cluster, 1, 0, 5 * MIB / 2),
        };
        prefetch(&mut cluster, 0, 2, name, at);
        cluster.run_for(secs(1));
        assert!(cluster.has_value(2, name));
        let wants = cluster.traffic.of(MessageKind::Want).all();
        assert_eq!(wants, 3, "its pieces");
        lend(&mut cluster, 2, 0, name);
        cluster.run_for(secs(1));
        assert_eq!(cluster.effort(2).started, 1);
        assert_eq!(cluster.traffic.of(MessageKind::Want).all(), wants);
        // Said again it is not told again: it is known to be there.
        prefetch(&mut cluster, 0, 2, name, at);
        cluster.run_for(secs(1));
        assert_eq!(cluster.traffic.of(MessageKind::Prefetch).all(), 1);
    }
}

/// A task that comes while what it needs is under way waits for that, and for nothing else.
#[test]
fn a_task_waits_for_what_is_under_way_already() {
    let mut cluster = quiet(&[("a", 1), ("b", 1), ("c", 1)]);
    cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    cluster.set_path("b", "c", slow_path());
    let name = kept(&mut cluster, 1, 0, 4 * MIB);
    prefetch(&mut cluster, 0, 2, name, 1);
    assert!(cluster.run_until(secs(3), |cluster| cluster.values_in_pieces(2) > 0));
    lend(&mut cluster, 2, 0, name);
    cluster.run_for(secs(8));
    assert_eq!(cluster.effort(2).started, 1);
    // The owner is not asked for what comes already.
    assert_eq!(cluster.traffic.of(MessageKind::Part).all(), 4);
}

/// What a task waits for does not wait for what is fetched from the same node in case it is needed, but for the piece that is under way.
#[test]
fn what_is_needed_now_comes_before_what_will_be() {
    let mut cluster = quiet(&[("a", 3)]);
    cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    cluster.set_path("a", "a", slow_path());
    let later = [8, 9].map(|pieces| kept(&mut cluster, 1, 0, pieces * MIB));
    let now = kept(&mut cluster, 1, 0, MIB);
    for name in later {
        prefetch(&mut cluster, 0, 2, name, 1);
    }
    let has_begun = |cluster: &Cluster| cluster.traffic.of(MessageKind::Part).all() > 2;
    assert!(cluster.run_until(secs(5), has_begun));
    lend(&mut cluster, 2, 1, now);
    // A piece takes a second.
    cluster.run_for(ms(2500));
    assert_eq!(cluster.effort(2).started, 1);
    cluster.run_for(secs(30));
    assert!(later.iter().all(|name| cluster.has_value(2, *name)));
}

#[test]
fn nobody_is_told_of_what_it_has_or_what_nobody_has() {
    let mut cluster = quiet(&[("a", 3)]);
    let name = kept(&mut cluster, 1, 0, 100);
    for (to, at) in [(1, 1), (0, 1), (1, 0)] {
        prefetch(&mut cluster, 0, to, name, at);
    }
    cluster.crash(1);
    cluster.declare_dead(1);
    prefetch(&mut cluster, 0, 2, name, 1);
    prefetch(&mut cluster, 0, 1, name, 0);
    cluster.run_for(secs(1));
    assert_eq!(cluster.traffic.of(MessageKind::Prefetch).all(), 0);
}

/// Its keeper dies, or drops it, or the root job is over: nobody waits for it, so no other node is asked.
#[test]
fn what_cannot_be_had_before_it_is_needed_is_forgotten() {
    for what in ["dies", "dropped", "over"] {
        let mut cluster = quiet(&[("a", 1), ("b", 1), ("c", 2)]);
        cluster.set_path("b", "c", slow_path());
        let name = kept(&mut cluster, 1, 0, 4 * MIB);
        if what == "dropped" {
            cluster.drop_value(1, name);
        }
        prefetch(&mut cluster, 0, 2, name, 1);
        if what != "dropped" {
            assert!(cluster.run_until(secs(3), |cluster| cluster.values_in_pieces(2) > 0));
        }
        match what {
            "dies" => {
                cluster.crash(1);
                cluster.declare_dead(1);
            }
            "over" => {
                let run = job_that_needs(name).root_run();
                let main = cluster.peer(0);
                cluster.forge(2, main, Message::RootsDone(vec![run]));
            }
            _ => {}
        }
        cluster.run_for(secs(10));
        assert!(!cluster.has_value(2, name), "{what}");
        assert_eq!(cluster.values_in_pieces(2), 0, "{what}");
        assert_eq!(cluster.node(2).shared.fetches(), 0, "{what}");
        // Who counts on it to be there hears that it is not.
        assert!(!counts_on(&cluster, 0, 2, name), "{what}");
    }
}

/// A node that is told of more than it has room for says so, and fetches the rest.
#[test]
fn what_there_is_no_room_for_is_not_fetched_and_not_counted_on() {
    let mut cluster = Cluster::new(1);
    let config = ProtocolConfig {
        flow_data: 3 * MIB as u64,
        ..ProtocolConfig::default()
    };
    cluster.form(&config, &[("a", 3)], 1);
    let names: Vec<ValueName> = (0..4).map(|n| kept(&mut cluster, 1, 0, MIB + n)).collect();
    for name in &names {
        prefetch(&mut cluster, 0, 2, *name, 1);
    }
    cluster.run_for(secs(2));
    for name in &names {
        assert_eq!(
            cluster.has_value(2, *name),
            counts_on(&cluster, 0, 2, *name)
        );
    }
    let said = cluster.traffic.of(MessageKind::NotPrefetched).all();
    let came = names.iter().filter(|name| cluster.has_value(2, **name));
    assert!(said > 0 && came.count() + said as usize == names.len());
}

#[test]
fn a_node_that_leaves_fetches_nothing_that_it_does_not_need() {
    let mut cluster = quiet(&[("a", 3)]);
    let name = kept(&mut cluster, 1, 0, 100);
    cluster.tell(2, Event::Drain(secs(60)));
    prefetch(&mut cluster, 0, 2, name, 1);
    cluster.run_for(secs(1));
    assert!(!cluster.has_value(2, name));
    assert_eq!(cluster.traffic.of(MessageKind::Want).all(), 0);
}

#[test]
fn a_keeper_that_takes_the_job_which_needs_it_moves_nothing() {
    let mut cluster = quiet(&[("a", 1), ("b", 1)]);
    cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    let name = kept(&mut cluster, 1, 0, 100);
    lend(&mut cluster, 1, 0, name);
    cluster.run_for(secs(1));
    assert_eq!(cluster.effort(1).started, 1);
    assert_eq!(cluster.traffic.of(MessageKind::Want).all(), 0);
}

#[test]
fn what_its_owner_can_do_without_is_dropped_by_its_keeper() {
    let mut cluster = quiet(&[("a", 1), ("b", 1)]);
    let name = kept(&mut cluster, 1, 0, 100);
    unneeded(&mut cluster, 0, name, 1);
    cluster.run_for(secs(1));
    assert!(!cluster.has_value(1, name));
    assert!(cluster.node(1).books.kept_here.is_empty());
    assert!(cluster.node(0).books.holders.is_empty());
    // A node that owns what it keeps says nothing.
    let name = kept(&mut cluster, 0, 0, 100);
    unneeded(&mut cluster, 0, name, 0);
    cluster.run_for(secs(1));
    assert!(!cluster.has_value(0, name));
    assert_eq!(cluster.traffic.of(MessageKind::Unneeded).all(), 1);
}

#[test]
fn a_keeper_that_was_declared_dead_has_it_still() {
    let mut cluster = pool(3, &[("a", 3)]);
    let name = kept(&mut cluster, 1, 0, 100);
    let before = cluster.peer(1);
    cluster.isolate(1);
    cluster.run_for(secs(60));
    assert!(!cluster.node(0).view().is_alive(before));
    cluster.heal();
    let is_back = |cluster: &Cluster| {
        let peer = cluster.peer(1);
        peer != before && cluster.node(0).view().is_alive(peer)
    };
    assert!(cluster.run_until(secs(120), is_back));
    // The others begin new lives too, in which nothing is under way.
    cluster.run_for(secs(60));
    bring(&mut cluster, 0, name, 1);
    cluster.run_for(secs(1));
    assert_eq!(cluster.brought(0), [(1, Some(name))]);
    unneeded(&mut cluster, 0, name, 1);
    cluster.run_for(secs(1));
    assert!(!cluster.has_value(1, name));
}

/// Neither has the value, and each thinks that the other does: the fetch ends, and the job goes back.
#[test]
fn nodes_that_send_to_each_other_do_not_send_for_ever() {
    let mut cluster = quiet(&[("a", 3)]);
    cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    let name = ValueName([9; 32]);
    for (node, other) in [(0, 2), (2, 0)] {
        let other = cluster.peer(other);
        let holders = &mut cluster.node_mut(node).books.holders;
        holders.note(other, name, ROOT);
    }
    lend(&mut cluster, 1, 0, name);
    cluster.run_for(secs(5));
    assert_eq!(cluster.node(1).shared.waiting(), 0);
    assert!(cluster.traffic.of(MessageKind::Want).all() < 10);
}

#[test]
fn what_a_thief_could_not_have_its_owner_brings_home() {
    let mut cluster = quiet(&[("a", 3)]);
    cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    let name = kept(&mut cluster, 2, 0, 100);
    cluster.drop_value(2, name);
    // A job that its origin does not know is dropped when a connection comes to stand.
    cluster.run_for(secs(1));
    lend(&mut cluster, 1, 0, name);
    cluster.run_for(secs(1));
    assert_eq!(cluster.to_bring_home(0), [name]);
    assert_eq!(cluster.to_bring_home(1), []);
}

/// Its keeper was gone before that was known: its owner knows of none.
#[test]
fn what_nobody_is_known_to_keep_is_brought_home_too() {
    let mut cluster = quiet(&[("a", 3)]);
    cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    let name = cluster.make_value(0, value(100));
    cluster.drop_value(0, name);
    cluster.run_for(secs(1));
    lend(&mut cluster, 1, 0, name);
    cluster.run_for(secs(1));
    assert_eq!(cluster.to_bring_home(0), [name]);
    assert_eq!(cluster.to_bring_home(1), []);
}

#[test]
fn a_keeper_that_leaves_waits_until_its_owners_have_what_it_keeps_but_not_longer_than_its_grace() {
    for is_brought in [true, false] {
        let mut cluster = pool(3, &[("a", 3)]);
        let name = kept(&mut cluster, 1, 0, 3 * MIB);
        cluster.run_for(secs(1));
        cluster.tell(1, Event::Drain(secs(8)));
        cluster.run_for(secs(1));
        let keeper = cluster.peer(1).id.0;
        assert_eq!(cluster.keepers_leaving(0), [keeper]);
        assert!(cluster.is_alive(1));
        if is_brought {
            bring(&mut cluster, 0, name, 1);
            cluster.run_for(secs(1));
            assert!(cluster.has_value(0, name) && cluster.is_alive(1));
            unneeded(&mut cluster, 0, name, 1);
            cluster.run_for(secs(1));
            assert!(!cluster.is_alive(1), "it has nothing left to do");
        } else {
            cluster.run_for(secs(4));
            assert!(cluster.is_alive(1));
            cluster.run_for(secs(4));
            assert!(!cluster.is_alive(1));
        }
    }
}

// ---- bounds

fn root(cluster: &mut Cluster) -> RootRun {
    let long = Program::new(Shape::Flat { jobs: 1 }, secs(100));
    let program = cluster.program(long);
    cluster.start_root(0, program)
}

fn all_know(cluster: &Cluster, root: RootRun, best: u64) -> bool {
    (0..cluster.nodes()).all(|node| cluster.bound(node, BEST, root) == Some(best))
}

fn quiet(sites: &[(&str, u32)]) -> Cluster {
    let mut cluster = Cluster::new(1);
    let config = ProtocolConfig {
        fixed_members: true,
        copy_every: Duration::ZERO,
        ..ProtocolConfig::default()
    };
    cluster.form(&config, sites, 1);
    cluster
}

#[test]
fn an_offer_reaches_a_hundred_nodes_with_ninety_nine_messages() {
    let mut cluster = quiet(&[("a", 20), ("b", 20), ("c", 20), ("d", 20), ("e", 20)]);
    let root = root(&mut cluster);
    for (round, origin) in [0, 37, 99].into_iter().enumerate() {
        cluster.run_for(secs(1));
        let before = cluster.traffic.of(MessageKind::Offers);
        let best = 100 - round as u64;
        cluster.offer(origin, BEST, root, best);
        let soon = cluster.run_until(ms(100), |cluster| all_know(cluster, root, best));
        assert!(soon, "from {origin}");
        cluster.run_for(secs(1));
        let after = cluster.traffic.of(MessageKind::Offers);
        assert_eq!(after.far - before.far, 4);
        assert_eq!(after.near - before.near, 95);
    }
}

#[test]
fn a_large_site_passes_offers_along_a_tree() {
    let mut cluster = quiet(&[("a", 200), ("b", 200)]);
    let root = root(&mut cluster);
    cluster.run_for(secs(1));
    let before = cluster.traffic.of(MessageKind::Offers).all();
    cluster.offer(123, BEST, root, 5);
    assert!(cluster.run_until(ms(200), |cluster| all_know(cluster, root, 5)));
    cluster.run_for(secs(1));
    assert_eq!(cluster.traffic.of(MessageKind::Offers).all() - before, 399);
}

#[test]
fn a_burst_of_offers_is_combined() {
    let mut cluster = quiet(&[("a", 4), ("b", 4)]);
    let root = root(&mut cluster);
    cluster.run_for(secs(1));
    let before = cluster.traffic.of(MessageKind::Offers).all();
    // A thousand improvements in 100 ms.
    for better in 0..1000 {
        cluster.offer(1, BEST, root, 5000 - better);
        cluster.run_for(Duration::from_micros(100));
    }
    assert!(cluster.run_until(ms(100), |cluster| all_know(cluster, root, 4001)));
    let messages = cluster.traffic.of(MessageKind::Offers).all() - before;
    assert!(messages < 400, "{messages} messages");
}

#[test]
fn offers_that_are_no_better_are_not_passed_on() {
    let mut cluster = quiet(&[("a", 4), ("b", 4)]);
    let root = root(&mut cluster);
    cluster.offer(0, BEST, root, 5);
    cluster.run_for(secs(1));
    let before = cluster.traffic.all();
    let from = cluster.peer(4);
    let offer = Offer {
        bound: BEST,
        root: root.name,
        value: Smallest::write(6),
    };
    cluster.forge(0, from, Message::Offers(vec![offer]));
    cluster.run_for(ms(100));
    assert_eq!(cluster.traffic.all(), before);
    assert!(all_know(&cluster, root, 5));
}

#[test]
fn a_finished_roots_offers_are_dropped() {
    let mut cluster = pool(3, &[("a", 2)]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(50)));
    let root = cluster.start_root(0, program);
    cluster.offer(1, BEST, root, 5);
    cluster.run_for(ms(20));
    assert!(all_know(&cluster, root, 5));
    finish(&mut cluster, 0, program);
    cluster.run_for(secs(1));
    for node in 0..2 {
        assert_eq!(cluster.bound(node, BEST, root), None);
    }
    let from = cluster.peer(1);
    let offer = Offer {
        bound: BEST,
        root: root.name,
        value: Smallest::write(4),
    };
    cluster.forge(0, from, Message::Offers(vec![offer]));
    assert_eq!(cluster.bound(0, BEST, root), None, "too late");
}

#[test]
fn a_joiner_hears_the_bounds_with_its_welcome() {
    let mut cluster = pool(4, &[("a", 2)]);
    let root = root(&mut cluster);
    cluster.offer(1, BEST, root, 5);
    cluster.run_for(secs(1));
    let joiner = cluster.join(&ProtocolConfig::default(), "b", 1, 1);
    let told = |cluster: &Cluster| cluster.bound(joiner, BEST, root) == Some(5);
    assert!(cluster.run_until(ms(100), told));
}

#[test]
fn a_gateways_death_leaves_nobody_out() {
    let mut cluster = pool(5, &[("a", 1), ("b", 4)]);
    let root = root(&mut cluster);
    cluster.run_for(secs(1));
    cluster.offer(0, BEST, root, 5);
    // On the way, it dies.
    cluster.run_for(ms(2));
    let gateway = (cluster.peer(0).id.0 % 4) as u32 + 1;
    cluster.crash(gateway);
    let others = [1, 2, 3, 4].into_iter().filter(|node| *node != gateway);
    let others: Vec<u32> = others.collect();
    assert!(cluster.run_until(secs(10), |cluster| {
        others
            .iter()
            .all(|node| cluster.bound(*node, BEST, root) == Some(5))
    }));
}

#[test]
fn a_jobs_offers_arrive_no_later_than_its_result() {
    for seed in 0..20 {
        let mut cluster = pool(seed, &[("a", 2), ("b", 2), ("c", 2)]);
        let shape = Shape::Random {
            width: 4,
            height: 6,
            races: 0,
        };
        let program = cluster.program(Program::new(shape, ms(3)).seeded(seed));
        let root = cluster.start_root(0, program);
        cluster.promise(BEST, root);
        while !cluster.is_done(0) {
            // Connections break now and then, with offers on them.
            for (a, b) in cluster.links() {
                cluster.break_link(a, b, ms(2));
            }
            cluster.run_until(ms(57), |cluster| cluster.is_done(0));
        }
        cluster.check(0, &[program]);
    }
}

// ---- bounds of results that are used again

/// Branch and bound, of a second or so.
fn search(cluster: &mut Cluster, seed: u64) -> u32 {
    let shape = Shape::Best {
        width: 3,
        height: 4,
    };
    cluster.program(Program::new(shape, ms(40)).seeded(seed))
}

/// Each time that a main saw the result of a search, the bound was as good.
fn check_sightings(cluster: &Cluster, at_least: usize) {
    let sightings = cluster.sightings();
    assert!(sightings.len() >= at_least, "{sightings:?}");
    for seen in sightings {
        assert!(seen.is_right(cluster), "{seen:?}");
    }
}

fn is_over(cluster: &Cluster) -> bool {
    (0..cluster.nodes()).any(|node| cluster.is_alive(node) && cluster.main_of(node) == MainIs::Over)
}

#[test]
fn a_new_main_finds_the_bounds_of_kept_results() {
    // Two root jobs; the master dies in the second, so the first is answered by those who keep its result.
    for seed in 0..10 {
        let mut cluster = pool(seed, &[("a", 3), ("b", 2)]);
        let programs = [search(&mut cluster, seed), search(&mut cluster, seed + 100)];
        cluster.set_main_everywhere(&programs, None);
        let second = |cluster: &Cluster| cluster.sightings().len() == 1;
        assert!(cluster.run_until(secs(60), second));
        cluster.run_for(ms(200));
        cluster.crash(0);
        assert!(cluster.run_until(secs(120), is_over), "seed {seed}");
        check_sightings(&cluster, 3);
    }
}

#[test]
fn a_drained_master_loses_no_bound() {
    for seed in 0..20 {
        let mut cluster = pool(seed, &[("a", 4)]);
        let program = search(&mut cluster, seed);
        cluster.set_main_everywhere(&[program], None);
        cluster.run_for(ms(100 + 20 * seed));
        cluster.tell(0, Event::Drain(ms(200)));
        assert!(cluster.run_until(secs(60), is_over), "seed {seed}");
        check_sightings(&cluster, 1);
    }
}

#[test]
fn heirs_get_the_bounds_with_what_they_keep() {
    // One after the other leaves: what the first left is left by its heir in turn.
    for seed in 0..10 {
        let mut cluster = pool(seed, &[("a", 5), ("b", 2)]);
        let program = search(&mut cluster, seed);
        cluster.set_main_everywhere(&[program], None);
        for node in 0..4 {
            cluster.run_for(ms(90));
            cluster.tell(node, Event::Drain(ms(120)));
        }
        assert!(cluster.run_until(secs(60), is_over), "seed {seed}");
        check_sightings(&cluster, 1);
    }
}

#[test]
fn a_root_job_of_another_input_is_not_pruned_by_the_bounds_of_the_last() {
    let mut cluster = pool(1, &[("a", 3)]);
    let first = search(&mut cluster, 1);
    let root = cluster.start_root(0, first);
    // Nothing can be as cheap: it would prune everything.
    cluster.offer(1, cluster::BEST, root, 0);
    cluster.run_for(ms(50));
    cluster.crash(0);
    cluster.run_for(secs(30));
    let master = (1..3).find(|node| !cluster.mains(*node).is_empty());
    let master = master.expect("somebody is master");
    let second = search(&mut cluster, 2);
    let again = cluster.start_root(master, second);
    assert_eq!(again.name.number, root.name.number);
    assert_ne!(again.name, root.name);
    assert_eq!(cluster.bound(master, cluster::BEST, again), None);
    assert!(cluster.run_until(secs(60), |cluster| cluster.is_done(master)));
    cluster.check(master, &[second]);
}

#[test]
fn bounds_go_with_the_results_they_are_kept_for() {
    let mut cluster = pool(2, &[("a", 3)]);
    let programs: Vec<u32> = (0..40).map(|seed| search(&mut cluster, seed)).collect();
    cluster.keep_after = secs(100); // no result is worth keeping
    cluster.set_main_everywhere(&programs, None);
    assert!(cluster.run_until(secs(300), is_over));
    // They are looked for now and then.
    cluster.run_for(secs(15));
    for node in 0..3 {
        let left = cluster.node(node).bounds.roots().count();
        assert_eq!(left, 0, "at node {node}");
    }
}

/// A node hosted a part of a later root job of the first `main`, and so has kept its bounds. Found by seed 16010 of the simulator.
#[test]
fn a_new_main_keeps_its_bounds_when_those_of_a_later_root_job_of_the_last_go() {
    let mut cluster = pool(1, &[("a", 2)]);
    let root = root(&mut cluster);
    cluster.offer(0, BEST, root, 3);
    let later = Offer {
        bound: BEST,
        root: RootName {
            number: root.name.number + 1,
            fingerprint: Fingerprint(9),
        },
        value: Smallest::write(4),
    };
    cluster.node_mut(0).bounds.keep(vec![later], &Smallest);
    assert_eq!(cluster.node(0).bounds.roots().count(), 2);
    let is_swept = |cluster: &Cluster| cluster.node(0).bounds.roots().count() == 1;
    assert!(cluster.run_until(secs(60), is_swept));
    assert_eq!(cluster.bound(0, BEST, root), Some(3));
}

#[test]
fn root_jobs_of_other_threads_are_not_remembered_for_ever() {
    let mut cluster = pool(3, &[("a", 2)]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    for _ in 0..3000 {
        let root = cluster.start_other(0, program);
        cluster.offer(1, BEST, root, 5);
        cluster.run_for(ms(4));
    }
    cluster.run_for(secs(1));
    for node in 0..2 {
        let bounds = &cluster.node(node).bounds;
        assert_eq!(bounds.roots().count(), 0, "at node {node}");
        assert!(bounds.remembers() <= 1024, "at node {node}");
        assert!(cluster.node(node).shared.is_empty(), "at node {node}");
    }
}

#[test]
fn root_jobs_of_a_dead_process_are_forgotten_unless_it_comes_back() {
    for comes_back in [false, true] {
        let mut cluster = pool(4, &[("a", 3)]);
        let long = Program::new(Shape::Flat { jobs: 1 }, secs(500));
        let program = cluster.program(long);
        let root = cluster.start_other(1, program);
        cluster.offer(1, BEST, root, 5);
        cluster.run_for(secs(1));
        assert_eq!(cluster.bound(2, BEST, root), Some(5));
        if comes_back {
            cluster.freeze(1);
            cluster.run_for(secs(20));
            cluster.thaw(1);
        } else {
            cluster.crash(1);
        }
        cluster.run_for(secs(120));
        let expected = comes_back.then_some(5);
        assert_eq!(cluster.bound(2, BEST, root), expected);
    }
}

#[test]
fn a_small_answer_does_not_take_for_known_what_is_still_on_its_way() {
    let mut cluster = quiet(&[("a", 2)]);
    let root = root(&mut cluster);
    let peer = cluster.peer(1);
    cluster.run_for(secs(1));
    let answers = |length: usize| {
        let bytes = vec![0; length];
        let needs = Vec::new();
        Message::Answers(vec![(Token(1), Answer::result(bytes.into(), needs))])
    };
    let node = cluster.node_mut(0);
    for better in [6, 5] {
        let offer = Offer {
            bound: BEST,
            root: root.name,
            value: Smallest::write(better),
        };
        node.handle(secs(10), Event::Offered(offer));
    }
    // Before the second is told: the large answer brings it, and so does the small one that may overtake that.
    let mut load = |length| {
        node.bounds
            .load(peer, answers(length), &node.books, &node.config)
    };
    for length in [100_000, 10] {
        assert!(matches!(load(length), Message::OffersWith(offers, _) if offers.len() == 1));
    }
    // That one goes in its turn.
    assert!(matches!(load(10), Message::Answers(_)));
}

#[test]
fn a_large_bound_goes_with_each_answer_until_it_is_known() {
    let mut cluster = quiet(&[("a", 2)]);
    let root = root(&mut cluster);
    let peer = cluster.peer(1);
    cluster.run_for(secs(1));
    let offer = Offer {
        bound: BEST,
        root: root.name,
        value: [Smallest::write(5), vec![0; 50_000]].concat(),
    };
    let answers = || Message::Answers(vec![(Token(1), Answer::Aborted)]);
    let node = cluster.node_mut(0);
    node.handle(secs(10), Event::Offered(offer));
    let mut told = None;
    while let Some(action) = node.poll_action() {
        if let Action::Send(to, Message::LargeOffers { version, .. }) = action {
            assert_eq!(to, peer);
            told = Some(version);
        }
    }
    let version = told.expect("it is told");
    for _ in 0..2 {
        let loaded = node.bounds.load(peer, answers(), &node.books, &node.config);
        assert!(matches!(loaded, Message::OffersWith(..)));
    }
    node.bounds.had(peer, version);
    let loaded = node.bounds.load(peer, answers(), &node.books, &node.config);
    assert!(matches!(loaded, Message::Answers(_)));
}

#[test]
fn large_answers_bring_all_bounds_themselves() {
    let mut cluster = quiet(&[("a", 2)]);
    let root = root(&mut cluster);
    cluster.offer(0, BEST, root, 5);
    let peer = cluster.peer(1);
    cluster.run_for(secs(1));
    let answers = |length: usize| {
        let bytes = vec![0; length];
        let needs = Vec::new();
        Message::Answers(vec![(Token(1), Answer::result(bytes.into(), needs))])
    };
    let node = cluster.node_mut(0);
    assert!(matches!(
        node.bounds
            .load(peer, answers(10), &node.books, &node.config),
        Message::Answers(_)
    ));
    assert!(matches!(
        node.bounds.load(peer, answers(100_000), &node.books, &node.config),
        Message::OffersWith(offers, _) if offers.len() == 1
    ));
}

/// An offer of a root job that another thread of node 0 has called comes late to a node that has not heard of its end.
fn late_offer(cluster: &mut Cluster, joiner: u32, root: RootRun) {
    let from = cluster.peer(1);
    let offer = Offer {
        bound: BEST,
        root: root.name,
        value: Smallest::write(4),
    };
    cluster.forge(joiner, from, Message::Offers(vec![offer]));
    assert_eq!(cluster.bound(joiner, BEST, root), Some(4));
}

#[test]
fn who_missed_the_end_of_a_root_job_of_another_thread_asks_its_process() {
    let mut cluster = pool(5, &[("a", 3)]);
    let program = cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    let root = cluster.start_other(0, program);
    cluster.run_for(secs(1));
    let long = cluster.program(Program::new(Shape::Flat { jobs: 1 }, secs(500)));
    let under_way = cluster.start_other(0, long);
    let joiner = cluster.join(&ProtocolConfig::default(), "a", 1, 1);
    cluster.run_for(secs(1));
    late_offer(&mut cluster, joiner, root);
    late_offer(&mut cluster, joiner, under_way);
    cluster.run_for(secs(30));
    assert_eq!(cluster.bound(joiner, BEST, root), None);
    assert_eq!(cluster.bound(joiner, BEST, under_way), Some(4));
}

#[test]
fn who_comes_after_the_end_of_a_process_forgets_its_root_jobs_too() {
    let mut cluster = pool(5, &[("a", 4)]);
    let long = cluster.program(Program::new(Shape::Flat { jobs: 1 }, secs(500)));
    let root = cluster.start_other(3, long);
    cluster.crash(3);
    cluster.run_for(secs(100));
    let joiner = cluster.join(&ProtocolConfig::default(), "a", 1, 1);
    cluster.run_for(secs(1));
    late_offer(&mut cluster, joiner, root);
    cluster.run_for(secs(100));
    assert_eq!(cluster.bound(joiner, BEST, root), None);
}

#[test]
fn who_is_asked_for_a_value_of_a_root_job_that_is_over_does_not_remember_it() {
    let mut cluster = pool(5, &[("a", 2), ("b", 1)]);
    let (name, program) = run_with_value(&mut cluster, 0, 100);
    finish(&mut cluster, 0, program);
    let other = cluster.program(Program::new(Shape::Flat { jobs: 1 }, ms(1)));
    let of_thread = cluster.start_other(0, other);
    cluster.run_for(secs(1));
    let of_main = RootName {
        number: 0,
        ..of_thread.name
    };
    let from = cluster.peer(2);
    for root in [of_main, of_thread.name] {
        let want = Message::Want {
            lent: false,
            name,
            root,
            offset: 0,
            how: How::Anyhow,
        };
        cluster.forge(0, from, want);
    }
    assert_eq!(cluster.node(0).shared.roots().count(), 2);
    cluster.run_for(secs(30));
    assert_eq!(cluster.node(0).shared.roots().count(), 0);
}
