//! Stories of cuts between two sites, each forced by hand: what may happen to a pool while its sides are apart, while they meet, and while one of
//! them comes over.

use std::{collections::BTreeSet, time::Duration};

use satin_runtime::{
    job::JobName,
    node::{
        Event, Identity, MessageKind, Notice, ProtocolConfig, Rule,
        cluster::{Cluster, FlowForm, MainIs, Program, Shape},
    },
};

use common::{LONG, UNEVEN, main_ends_well, running};

mod common;

/// The nodes of the site of the first master: that side stays.
const HERE: [u32; 4] = [0, 1, 2, 3];
/// The nodes of the other site, which come over.
const THERE: [u32; 4] = [4, 5, 6, 7];
const SEEDS: u64 = 20;

/// Times as short as those of the random schedules.
fn short() -> ProtocolConfig {
    ProtocolConfig {
        probe_period: Duration::from_millis(100),
        suspicion: Duration::from_millis(400),
        partition_wait: Duration::from_secs(2),
        redial: Duration::from_millis(800),
        cut_off: Duration::from_secs(4),
        claim_patience: Duration::from_millis(50),
        hurry: 10,
        max_crashes: 1000,
        ..ProtocolConfig::default()
    }
}

/// A tree of 256 leaves that take so long.
fn tree(leaf: Duration) -> Program {
    let shape = Shape::Knary {
        width: 4,
        height: 4,
        serial: 0,
    };
    Program::new(shape, leaf)
}

/// Two sites of four nodes, whose master runs that.
fn pool(seed: u64, config: &ProtocolConfig, program: Program) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.wire.idle_timeout = config.suspicion * 5 / 3;
    let sites = [("here", HERE.len() as u32), ("there", THERE.len() as u32)];
    cluster.form(config, &sites, 1);
    let program = cluster.program(program.seeded(seed));
    cluster.set_main_everywhere(&[program], None);
    cluster
}

/// The two sides have lost each other.
fn are_apart(cluster: &Cluster) -> bool {
    let sees = |node: u32, other: u32| {
        let view = cluster.node(node).view();
        view.is_alive(cluster.peer(other))
    };
    let mut pairs = HERE.iter().flat_map(|a| THERE.iter().map(|b| (*a, *b)));
    pairs.all(|(a, b)| !sees(a, b) && !sees(b, a))
}

fn cut(cluster: &mut Cluster) {
    cluster.partition("here", "there");
    assert!(cluster.run_until(LONG, are_apart), "the sides are apart");
}

fn heal(cluster: &mut Cluster) {
    cluster.heal_sites("here", "there");
}

/// Do these nodes see each other and no others, and follow one master?
fn are_one(cluster: &Cluster, nodes: &[u32]) -> bool {
    let side = cluster.node(nodes[0]).side();
    side.has_master
        && nodes.iter().all(|node| {
            let node = cluster.node(*node);
            let view = node.view();
            let mut others = nodes.iter().map(|node| cluster.peer(*node));
            view.len() == nodes.len()
                && others.all(|other| view.is_alive(other))
                && node.side().is_same(&side)
        })
}

fn all_are_one(cluster: &Cluster) -> bool {
    are_one(cluster, &running(cluster).collect::<Vec<u32>>())
}

fn is_in(cluster: &Cluster, node: u32) -> bool {
    cluster.node(node).view().me().stamp != Identity::NOT_YET
}

/// How often the node has come over to another side.
fn came_over(cluster: &Cluster, node: u32) -> usize {
    let comes = |notice: &&Notice| matches!(notice, Notice::ComesOver);
    cluster.notices(node).iter().filter(comes).count()
}

fn lives(cluster: &Cluster, nodes: [u32; 4]) -> [u32; 4] {
    nodes.map(|node| cluster.peer(node).generation)
}

/// All meet again, main comes to its end, nothing is left.
fn ends_well(cluster: &mut Cluster) {
    assert!(
        cluster.run_until(LONG, all_are_one),
        "all follow one master"
    );
    // Another main may have called more root jobs than the one that came to its end, as it cancelled one.
    let is_over = |cluster: &Cluster| {
        let is = |is| running(cluster).any(|node| cluster.main_of(node) == is);
        is(MainIs::Over) && !is(MainIs::Running)
    };
    assert!(cluster.run_until(LONG, is_over), "main comes to its end");
    cluster.outlast_other_mains();
    main_ends_well(cluster, &[0]);
}

/// Tells a story to pools of several seeds. It says whether it came to that, which it must in most of them; all end well. Of `cuts` of whole
/// sides nobody of the side that stays begins another life, and nobody of the other begins more of them.
fn often_in(
    config: &ProtocolConfig,
    program: &Program,
    cuts: Option<u32>,
    mut story: impl FnMut(&mut Cluster) -> bool,
) {
    let mut told = 0;
    for seed in 0..SEEDS {
        let mut cluster = pool(seed, config, program.clone());
        told += u64::from(story(&mut cluster));
        ends_well(&mut cluster);
        let [stay, come] = [HERE, THERE].map(|side| lives(&cluster, side));
        if let Some(cuts) = cuts {
            let are_few =
                stay.iter().all(|life| *life == 0) && come.iter().all(|life| *life <= cuts);
            assert!(are_few, "seed {seed}: lives {stay:?} and {come:?}");
        }
    }
    assert!(
        3 * told >= 2 * SEEDS,
        "it came to that in {told} of {SEEDS} seeds"
    );
}

/// The same with short times and a tree.
fn often(cuts: Option<u32>, story: impl FnMut(&mut Cluster) -> bool) {
    often_in(&short(), &tree(Duration::from_millis(300)), cuts, story);
}

/// A link is cut and heals every three seconds, for a minute; it is down for that share of the time.
fn flaps(config: &ProtocolConfig, shares: &[f64]) {
    const SEEDS: u64 = 3;
    let every = Duration::from_secs(3);
    for share in shares {
        let down = every.mul_f64(*share);
        let mut deaths = 0;
        for seed in 0..SEEDS {
            let mut cluster = pool(seed, config, tree(Duration::from_millis(1500)));
            cluster.run_for(Duration::from_secs(1));
            for _ in 0..20 {
                cluster.partition("here", "there");
                cluster.run_for(down);
                heal(&mut cluster);
                cluster.run_for(every - down);
            }
            let all = 0..cluster.nodes();
            let mut notices = all.flat_map(|node| cluster.notices(node));
            let dead = |notice: &Notice| matches!(notice, Notice::Dead(_));
            deaths += u64::from(notices.any(dead));
            ends_well(&mut cluster);
        }
        assert!(
            2 * deaths >= SEEDS,
            "down for {share}: nodes were given up in {deaths} of {SEEDS} seeds"
        );
    }
}

#[test]
fn a_link_that_flaps_for_a_minute() {
    flaps(&short(), &[0.3, 0.6, 0.9]);
}

#[test]
fn a_link_that_flaps_for_a_minute_with_the_usual_times() {
    // A cut that ends when some deaths are known, and others are not, has nodes of one site take each other for dead.
    let config = ProtocolConfig {
        max_crashes: 1000,
        ..ProtocolConfig::default()
    };
    flaps(&config, &[0.75, 0.85, 0.95]);
}

/// The sides lose each other, and meet before anybody elects.
fn cut_and_heal(cluster: &mut Cluster) {
    cluster.run_for(Duration::from_secs(1));
    cut(cluster);
    cluster.run_for(Duration::from_millis(500));
    heal(cluster);
}

/// A cut, and another one at that moment of its healing, shorter or longer than the wait for a partition.
fn again(cuts: Option<u32>, moment: impl Fn(&Cluster) -> bool) {
    let wait = short().partition_wait;
    let mut tenths = 0;
    often(cuts, |cluster| {
        cut_and_heal(cluster);
        let comes = cluster.run_until(LONG, &moment);
        cluster.partition("here", "there");
        cluster.run_for(wait.mul_f64(f64::from(tenths) / 10.0));
        tenths += 1;
        heal(cluster);
        comes
    });
}

/// The nodes of the other site that have come over so far.
fn over(cluster: &Cluster) -> impl Iterator<Item = u32> {
    let there = THERE.into_iter();
    there.filter(|node| came_over(cluster, *node) > 0)
}

#[test]
fn a_cut_again_when_the_word_to_give_way_is_on_its_way() {
    again(Some(2), |cluster| {
        cluster.traffic.of(MessageKind::GiveWay).all() > 0
    });
}

#[test]
fn a_cut_again_when_the_losers_search() {
    again(Some(2), |cluster| {
        over(cluster).filter(|node| !is_in(cluster, *node)).count() == THERE.len()
    });
}

#[test]
fn a_cut_again_when_half_of_the_losers_are_in() {
    again(None, |cluster| {
        over(cluster).filter(|node| is_in(cluster, *node)).count() >= THERE.len() / 2
    });
}

/// The first word to give way that a node of the side that comes over has said.
fn says_give_way(cluster: &mut Cluster) -> Option<u32> {
    let said = |cluster: &Cluster| cluster.traffic.of(MessageKind::GiveWay).all() > 0;
    let says = cluster.run_until(LONG, said);
    cluster.touched.filter(|_| says)
}

/// The nodes of the two sides that met first.
fn meet(cluster: &mut Cluster) -> Option<(u32, u32)> {
    let across = |cluster: &Cluster| {
        let links = cluster.links().into_iter();
        let mut far = links.filter(|(a, b)| HERE.contains(a) && THERE.contains(b));
        far.next()
    };
    cluster.run_until(LONG, |cluster| across(cluster).is_some());
    across(cluster)
}

/// The node that met the other side tells two of its mates, and not the third; then it dies.
#[test]
fn who_tells_its_side_to_give_way_dies_when_some_have_heard() {
    often(Some(2), |cluster| {
        cut_and_heal(cluster);
        let Some((_, head)) = meet(cluster) else {
            return false;
        };
        let deaf = THERE[usize::from(head == THERE[0])];
        cluster.cut_way(head, deaf);
        let told = says_give_way(cluster) == Some(head);
        // What waits on that link is lost with it.
        cluster.break_link(head, deaf, Duration::ZERO);
        cluster.crash(head);
        cluster.heal();
        cluster.run_for(Duration::from_millis(150));
        let have_heard: Vec<u32> = over(cluster).collect();
        told && have_heard.len() == 2 && !have_heard.contains(&deaf)
    });
}

/// The node that met the other side dies before it can say so.
#[test]
fn who_meets_the_other_side_dies_before_it_tells_its_own() {
    often(Some(2), |cluster| {
        cut_and_heal(cluster);
        let met = meet(cluster);
        if let Some((_, head)) = met {
            cluster.crash(head);
        }
        cluster.traffic.of(MessageKind::GiveWay).all() == 0 && met.is_some()
    });
}

/// The node of the winners that tells the losers to come over dies then; it may be the master.
#[test]
fn who_asks_the_other_side_to_give_way_dies() {
    often(Some(2), |cluster| {
        cut_and_heal(cluster);
        let met = meet(cluster);
        let said = says_give_way(cluster);
        if let Some((asks, _)) = met {
            cluster.crash(asks);
        }
        said.is_some()
    });
}

/// A node that drains when its side comes over goes.
#[test]
fn who_drains_does_not_come_over() {
    often(Some(2), |cluster| {
        cut_and_heal(cluster);
        meet(cluster);
        let drains = THERE[3];
        cluster.tell(drains, Event::Drain(Duration::from_secs(3)));
        let comes = cluster.run_until(LONG, |cluster| over(cluster).count() == THERE.len() - 1);
        let still_drains = cluster.is_alive(drains);
        let gone = |cluster: &Cluster| !cluster.is_alive(drains);
        assert!(
            cluster.run_until(Duration::from_secs(4), gone),
            "who drains goes"
        );
        assert_eq!(came_over(cluster, drains), 0);
        assert_eq!(cluster.ended(drains), Some(0), "its pool goes on");
        comes && still_drains
    });
}

/// A node that drains while the sides are apart gives what it has finished to an heir, which brings it along.
#[test]
fn what_a_node_has_finished_that_drained_in_a_cut_comes_over_with_its_heir() {
    let kept = |cluster: &Cluster, nodes: &[u32]| -> BTreeSet<JobName> {
        let all = (nodes.iter()).flat_map(|node| cluster.node(*node).kept_results());
        all.map(|saved| saved.name).collect()
    };
    often(None, |cluster| {
        cluster.run_for(Duration::from_secs(1));
        cut(cluster);
        let has_finished = |cluster: &Cluster| {
            let mut there = THERE.into_iter();
            there.find(|node| !kept(cluster, &[*node]).is_empty())
        };
        cluster.run_until(LONG, |cluster| has_finished(cluster).is_some());
        let Some(drains) = has_finished(cluster) else {
            return false;
        };
        let mates: Vec<u32> = THERE.into_iter().filter(|node| *node != drains).collect();
        cluster.tell(drains, Event::Drain(Duration::from_millis(800)));
        let mut finished = BTreeSet::new();
        while cluster.is_alive(drains) {
            finished.extend(kept(cluster, &[drains]));
            assert!(cluster.step(), "who drains goes");
        }
        cluster.run_for(Duration::from_millis(10));
        let handed: BTreeSet<JobName> = &finished & &kept(cluster, &mates);
        heal(cluster);
        let comes = cluster.run_until(LONG, |cluster| over(cluster).eq(mates.iter().copied()));
        assert!(handed.is_subset(&kept(cluster, &mates)), "nothing is lost");
        comes && !handed.is_empty()
    });
}

/// Root jobs of other threads than main's go on at a node that comes over.
#[test]
fn root_jobs_of_other_threads_go_on_where_a_node_comes_over() {
    for moment in 0..3 {
        often(Some(1), |cluster| {
            let program = tree(Duration::from_millis(100)).seeded(7);
            let program = cluster.program(program);
            cluster.run_for(Duration::from_secs(1));
            let node = THERE[1];
            if moment == 0 {
                cluster.start_other(node, program);
                cluster.run_for(Duration::from_secs(1));
            }
            cut(cluster);
            if moment == 1 {
                cluster.start_other(node, program);
            }
            cluster.run_for(Duration::from_secs(1));
            heal(cluster);
            let comes = cluster.run_until(LONG, |cluster| came_over(cluster, node) > 0);
            if moment == 2 {
                cluster.start_other(node, program);
            }
            let outcome = |cluster: &Cluster| {
                let (_, other) = cluster.others(node).next().expect("it was called");
                other.outcome.clone()
            };
            let under_way = outcome(cluster).is_none();
            let ends = cluster.run_until(LONG, |cluster| outcome(cluster).is_some());
            assert!(ends, "its caller has an answer");
            let right = cluster.outcome(program).result;
            assert_eq!(outcome(cluster), Some(Ok(right)));
            comes && under_way
        });
    }
}

/// Does the other side run `main` as well?
fn is_branch(cluster: &Cluster) -> bool {
    THERE
        .into_iter()
        .any(|node| cluster.main_of(node) == MainIs::Running)
}

/// Flows whose tasks keep what they make where they ran, on both sides of a cut: the other one has what it made for the first `main`, or for one
/// of its own too.
#[test]
fn flows_with_data_on_both_sides() {
    for (form, branches) in [
        (FlowForm::Chains, false),
        (FlowForm::Chains, true),
        (FlowForm::Dice, false),
        (FlowForm::Dice, true),
    ] {
        let shape = Shape::Flow {
            form: Some(form),
            width: 8,
            steps: 8,
            height: 1,
        };
        let program = Program {
            keeps: 100,
            ..Program::new(shape, Duration::from_millis(600))
        };
        often_in(&short(), &program, Some(1), |cluster| {
            cluster.run_for(Duration::from_secs(1));
            cut(cluster);
            let comes = !branches || cluster.run_until(LONG, is_branch);
            cluster.run_for(Duration::from_secs(1));
            let keeps = |node: u32| cluster.keeps_data(node).0 > 0;
            let both = HERE.into_iter().any(keeps) && THERE.into_iter().any(keeps);
            heal(cluster);
            comes && both
        });
    }
}

/// No node has anything of a root job of that number.
fn is_forgotten(cluster: &Cluster, number: u32) -> bool {
    running(cluster).all(|node| {
        let hosted = cluster.node(node).inspect().hosted;
        hosted
            .iter()
            .all(|hosted| hosted.name.id.root_number() != number)
    })
}

/// A root job is cancelled: at the side that stays, or at the one that comes over, when they are apart, or just when they have met.
#[test]
fn root_jobs_that_are_cancelled_around_a_cut() {
    for (who, late) in [(HERE, false), (HERE, true), (THERE, false), (THERE, true)] {
        often(Some(1), |cluster| {
            cluster.run_for(Duration::from_secs(1));
            cut(cluster);
            let elected = cluster.run_until(LONG, is_branch);
            cluster.run_for(Duration::from_millis(500));
            if late {
                heal(cluster);
                meet(cluster);
            }
            let mut all = who.into_iter();
            let node = all.find(|node| cluster.main_of(*node) == MainIs::Running);
            let cancelled = node.is_some_and(|node| cluster.cancel_root(node));
            if !late {
                cluster.run_for(Duration::from_millis(700));
                heal(cluster);
            }
            assert!(cluster.run_until(LONG, all_are_one));
            // The `main` that stays has called another root job since.
            if who == HERE {
                let is_forgotten = |cluster: &Cluster| is_forgotten(cluster, 0);
                let forgotten = cluster.run_until(LONG, is_forgotten);
                assert!(forgotten, "nothing of the first root job stays");
            }
            elected && cancelled
        });
    }
}

/// The side that has come over is not let in, as the link is cut again: it founds a pool within the wait for a partition and a little more, and
/// works; then all meet.
#[test]
fn a_side_that_is_not_let_in_founds_a_pool_of_its_own() {
    let usual = ProtocolConfig::default();
    // Two rounds of a search, and the word to give way.
    let little = Duration::from_secs(5);
    let without = ProtocolConfig {
        without: [Rule::LetIn].into(),
        ..short()
    };
    let mut cluster = pool(0, &without, tree(Duration::from_millis(500)));
    cut_and_heal(&mut cluster);
    assert!(says_give_way(&mut cluster).is_some());
    cluster.partition("here", "there");
    cluster.run_for(without.partition_wait + little);
    assert!(
        !are_one(&cluster, &THERE),
        "without the rule they only search"
    );
    for (config, leaf) in [(short(), 500), (usual, 2000)] {
        let program = tree(Duration::from_millis(leaf));
        often_in(&config, &program, Some(2), |cluster| {
            cut_and_heal(cluster);
            let comes = says_give_way(cluster).is_some();
            cluster.partition("here", "there");
            let founds = |cluster: &Cluster| over(cluster).eq(THERE) && are_one(cluster, &THERE);
            let founds = cluster.run_until(config.partition_wait + little, founds);
            assert!(founds, "they are a pool of their own");
            assert!(is_branch(cluster) && cluster.node(THERE[0]).side().branches > 0);
            let least = |cluster: &Cluster| {
                THERE
                    .map(|node| cluster.effort(node).started)
                    .into_iter()
                    .min()
            };
            let before = least(cluster);
            let work = |cluster: &Cluster| least(cluster) > before;
            assert!(cluster.run_until(LONG, work), "all of them work");
            heal(cluster);
            comes
        });
    }
}

/// The lives that have ended at the site of the master, and at the other, after a cut of so long; `None` if the sides do not see each other a
/// minute later.
fn ended_by_cut(cut: Duration, without: Option<Rule>, seed: u64) -> Option<[u32; 2]> {
    let config = ProtocolConfig {
        without: without.into_iter().collect(),
        ..ProtocolConfig::default()
    };
    let mut cluster = pool(seed, &config, Program::new(UNEVEN, Duration::from_secs(2)));
    cluster.run_for(Duration::from_secs(2));
    cluster.partition("here", "there");
    cluster.run_for(cut);
    heal(&mut cluster);
    cluster.run_for(Duration::from_secs(10));
    let all = |cluster: &Cluster| (0..8).all(|node| cluster.node(node).view().len() == 8);
    let meet = cluster.run_until(Duration::from_secs(60), all);
    meet.then(|| [HERE, THERE].map(|side| lives(&cluster, side).iter().sum()))
}

/// Cuts of a few seconds, and of one that ends when the sides have not heard of all deaths.
#[test]
fn after_a_cut_one_side_comes_over_once() {
    for quarters in [23, 26, 29, 31, 34, 60, 100, 180] {
        let cut = Duration::from_millis(250) * quarters;
        for seed in 0..8 {
            let ended = ended_by_cut(cut, None, seed);
            assert_eq!(ended, Some([0, 4]), "{cut:?}, seed {seed}");
        }
    }
    let early = Duration::from_millis(7250);
    let (larger, sides) = (Some(Rule::Larger), Some(Rule::Sides));
    assert!(ended_by_cut(early, larger, 4).is_some_and(|[winners, _]| winners > 0));
    assert!(ended_by_cut(early, sides, 0).is_some_and(|[winners, _]| winners > 0));
}

/// The nodes that find the master dead, which was only stopped, have no master of their own: nobody comes over to it.
#[test]
fn a_master_that_was_stopped_takes_nobody_along() {
    often(None, |cluster| {
        cluster.run_for(Duration::from_secs(1));
        cluster.freeze(0);
        let is_dead = |cluster: &Cluster| {
            let master = cluster.peer(0);
            (1..8).all(|node| !cluster.node(node).view().is_alive(master))
        };
        let is_dead = cluster.run_until(LONG, is_dead);
        cluster.thaw(0);
        assert!(cluster.run_until(LONG, all_are_one), "all meet");
        let over: Vec<usize> = (0..8).map(|node| came_over(cluster, node)).collect();
        assert_eq!(over, [0; 8]);
        is_dead
    });
}

/// A cut is no crash: however often a link is cut while the other side runs a job, nobody takes the job for deadly.
#[test]
fn no_job_is_given_up_because_of_cuts() {
    let config = ProtocolConfig {
        max_crashes: ProtocolConfig::default().max_crashes,
        ..short()
    };
    let mut given_up = 0;
    for seed in 0..SEEDS {
        let mut cluster = pool(seed, &config, tree(Duration::from_millis(600)));
        for _ in 0..8 {
            cluster.run_for(Duration::from_secs(1));
            cut(&mut cluster);
            cluster.run_for(Duration::from_millis(500));
            heal(&mut cluster);
            assert!(cluster.run_until(LONG, all_are_one));
        }
        let is_over = |cluster: &Cluster| {
            let is = |is| running(cluster).any(|node| cluster.main_of(node) == is);
            is(MainIs::Over) && !is(MainIs::Running)
        };
        assert!(cluster.run_until(LONG, is_over), "main comes to its end");
        let panics = (0..cluster.nodes()).flat_map(|node| cluster.panics(node));
        let panics: Vec<&String> = panics.collect();
        if !panics.is_empty() {
            println!("seed {seed}: {panics:?}");
            given_up += 1;
        }
    }
    assert_eq!(given_up, 0, "of {SEEDS} runs");
}
