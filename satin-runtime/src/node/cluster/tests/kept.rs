//! Flows whose data stay where they were made.

use super::*;

fn flow(seed: u64) -> Program {
    let shape = Shape::Flow {
        form: None,
        width: 4,
        steps: 4,
        height: 1 + seed as u32 % 3,
    };
    let mut program = Program::new(shape, Duration::from_millis(10)).seeded(seed);
    program.keeps = 100;
    program.changing = seed.is_multiple_of(2);
    program
}

/// What the flows of all nodes have seen: parts that were kept, brought and lost, and tasks that were run again.
fn seen(cluster: &Cluster) -> [u64; 4] {
    let mut all = [0; 4];
    for node in 0..cluster.nodes() {
        let FlowsSeen {
            kept,
            brought,
            lost,
            again,
            ..
        } = cluster.flows_seen(node);
        for (all, one) in all.iter_mut().zip([kept, brought, lost, again]) {
            *all += one;
        }
    }
    all
}

/// Nodes run a flow on node 0, of which these die, or are told to go, after that time. What was seen.
fn run(seed: u64, goes: &[(u64, u32, bool)]) -> [u64; 4] {
    let nodes = 2 + seed as u32 % 3;
    let mut cluster = Cluster::new(seed);
    cluster.form(&ProtocolConfig::default(), &[("here", nodes)], 1);
    let program = cluster.program(flow(seed));
    cluster.start_root(0, program);
    for (after, node, dies) in goes {
        cluster.run_for(Duration::from_millis(*after));
        let node = node % nodes;
        if node == 0 || !cluster.is_alive(node) {
            continue;
        }
        match dies {
            true => cluster.crash(node),
            false => cluster.tell(node, Event::Drain(Duration::from_secs(5))),
        }
    }
    let limit = 2 * cluster.outcome(program).time + Duration::from_secs(30);
    assert!(
        cluster.run_until(limit, |cluster| cluster.is_done(0)),
        "seed {seed}"
    );
    cluster.check(0, &[program]);
    cluster.run_for(Duration::from_secs(10));
    for node in (0..nodes).filter(|node| cluster.is_alive(*node)) {
        cluster.audit(node).expect("all is in order");
        assert_eq!(cluster.waiting_tasks(node), Ok(0));
        assert_eq!(cluster.keeps_data(node), (0, 0), "seed {seed}");
        if goes.iter().all(|(_, _, dies)| !dies) {
            assert_eq!(cluster.kept_to_the_end(node), 0, "seed {seed}");
        }
        let flows = cluster.flows_seen(node);
        assert_eq!((&flows.too_early, &flows.wrong), (&None, &None));
    }
    seen(&cluster)
}

#[test]
fn data_stay_until_somebody_needs_them_and_go_when_nobody_does() {
    let mut all = [0; 4];
    for seed in 0..60 {
        for (all, one) in all.iter_mut().zip(run(seed, &[])) {
            *all += one;
        }
    }
    let [kept, brought, lost, again] = all;
    assert!(kept > 300 && brought > 50 && brought < kept, "{all:?}");
    assert_eq!([lost, again], [0, 0]);
}

#[test]
fn what_died_with_its_keeper_is_made_again() {
    let mut all = [0; 4];
    for seed in 0..120 {
        let after = 20 + seed % 7 * 10;
        for (all, one) in all.iter_mut().zip(run(seed, &[(after, 1, true)])) {
            *all += one;
        }
    }
    let [_, _, lost, again] = all;
    assert!(lost > 10 && again > 10, "{all:?}");
}

#[test]
fn what_a_node_keeps_that_leaves_is_brought_home_before() {
    let mut all = [0; 4];
    for seed in 0..120 {
        let after = 20 + seed % 7 * 10;
        for (all, one) in all.iter_mut().zip(run(seed, &[(after, 1, false)])) {
            *all += one;
        }
    }
    let [_, brought, lost, again] = all;
    assert!(brought > 50, "{all:?}");
    assert_eq!([lost, again], [0, 0]);
}

/// Node 1 has two tasks and one worker; node 2 takes one of them on, and what it makes is asked for there.
#[test]
fn an_answer_that_passes_through_a_node_names_the_one_that_keeps_its_data() {
    let mut cluster = Cluster::new(1);
    let config = ProtocolConfig {
        fixed_members: true,
        judgement: Judgement::Always,
        ..ProtocolConfig::default()
    };
    cluster.form(&config, &[("here", 3)], 1);
    let shape = Shape::Flow {
        form: Some(FlowForm::Chains),
        width: 2,
        steps: 1,
        height: 1,
    };
    let mut program = Program::new(shape, Duration::from_millis(500));
    program.keeps = 100;
    let (_, origin) = (cluster.program(program.clone()), cluster.peer(0));
    let jobs = (0..2).map(|index| {
        let task = program.task(program.root(), index, 0, [].into_iter());
        let parcel = Parcel {
            id: JobId::ROOT.child(0).child(index),
            function: 0,
            arguments: task.pack(24).into(),
            fingerprint: task.fingerprint(),
            needs: Vec::new(),
            lent: Vec::new(),
            keeps: true,
            term: 0,
            root: program.root().fingerprint(),
            history: History::default(),
        };
        (Token(u64::from(index) + 1), parcel)
    });
    let jobs = Message::Jobs {
        request: Request(1),
        jobs: jobs.collect(),
        left: 0,
        sent_ms: 0,
    };
    // Its answers are not acknowledged: they stay where they are looked at.
    cluster.freeze(0);
    cluster.forge(1, origin, jobs);
    cluster.run_for(Duration::from_secs(1));
    let ran = [1, 2].map(|node| cluster.effort(node).started);
    assert_eq!(ran, [1, 1]);
    let (middle, last) = (cluster.peer(1), cluster.peer(2));
    let answers = cluster.node(1).books.all_hosted();
    let answers: Vec<Answer> = answers
        .filter_map(|(_, hosted)| hosted.answer().cloned())
        .collect();
    let keepers: BTreeSet<u128> = (answers.iter())
        .filter_map(|answer| Some(answer.kept()?.at))
        .collect();
    assert_eq!(answers.len(), 2);
    assert!(!keepers.is_empty() && keepers.is_subset(&[middle.id.0, last.id.0].into()));
    for kept in answers.iter().filter_map(Answer::kept) {
        let node = cluster.index(Peer {
            id: NodeId(kept.at),
            generation: 0,
        });
        for value in &kept.values {
            assert!(cluster.has_value(node, value.name));
            assert!(!cluster.has_value(3 - node, value.name));
        }
    }
}
