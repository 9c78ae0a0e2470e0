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
        assert_eq!(cluster.kept_to_the_end(node), 0, "seed {seed}");
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

/// Three nodes, and two tasks of a flow that take half a second and make data which stay where they are made.
fn two_tasks(seed: u64) -> (Cluster, [Parcel; 2]) {
    let mut cluster = Cluster::new(seed);
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
    cluster.program(program.clone());
    let tasks = [0, 1].map(|index| {
        let task = program.task(program.root(), index, 0, [].into_iter());
        Parcel {
            id: JobId::ROOT.child(0).child(index),
            function: 0,
            arguments: task.pack(24).into(),
            fingerprint: task.fingerprint(),
            needs: Vec::new(),
            lent: Vec::new(),
            keeps: true,
            owner: cluster.peer(0).id.0,
            term: 0,
            root: program.root().fingerprint(),
            history: History::default(),
        }
    });
    (cluster, tasks)
}

/// These jobs come to that node from another one.
fn give(cluster: &mut Cluster, to: u32, from: u32, jobs: Vec<Parcel>) {
    let jobs = (1..).map(Token).zip(jobs);
    let jobs = Message::Jobs {
        request: Request(1),
        jobs: jobs.collect(),
        left: 0,
        sent_ms: 0,
    };
    let from = cluster.peer(from);
    cluster.forge(to, from, jobs);
}

/// If that node has let go of it, nobody finds it.
#[test]
fn what_a_node_had_taken_that_died_is_found_where_it_is_kept() {
    let mut seen = [0, 0];
    for seed in 0..40 {
        let (mut cluster, [task, _]) = two_tasks(seed);
        let name = task.name();
        // A job that its origin does not know is dropped when a connection comes to stand.
        cluster.run_for(Duration::from_secs(1));
        give(&mut cluster, 1, 0, vec![task]);
        cluster.run_for(Duration::from_secs(1));
        let books = &cluster.node(1).books;
        assert_eq!(books.all_hosted().count(), 0, "it is done, and taken");
        let values: Vec<ValueName> = books.kept_here.names().collect();
        // It is another node that has run it, or nothing of what it made has stayed.
        if values.is_empty() {
            continue;
        }
        let lets_go = seed % 2 == 1;
        seen[usize::from(lets_go)] += 1;
        if lets_go {
            let owner = cluster.peer(0);
            cluster.forge(1, owner, Message::Unneeded(values.clone()));
        }
        cluster.crash(0);
        cluster.declare_dead(0);
        cluster.run_for(Duration::from_secs(1));
        let found = cluster.node(1).books.orphan_of(&name);
        assert_eq!(found.is_some(), !lets_go);
        let known = cluster.node(2).table.any(&name.id);
        assert_eq!(known.is_some(), !lets_go);
        assert_eq!(cluster.node(1).books.kept_here.is_empty(), lets_go);
    }
    assert!(seen.iter().all(|count| *count > 3), "{seen:?}");
}

/// Node 1 has two tasks and one worker; node 2 takes one of them on, and what it makes is asked for there.
#[test]
fn an_answer_that_passes_through_a_node_names_the_one_that_keeps_its_data() {
    let (mut cluster, tasks) = two_tasks(1);
    // Its answers are not acknowledged: they stay where they are looked at.
    cluster.freeze(0);
    give(&mut cluster, 1, 0, tasks.into());
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
        let node = cluster.index(NodeId(kept.at).first_life());
        for value in &kept.values {
            assert!(cluster.has_value(node, value.name));
            assert!(!cluster.has_value(3 - node, value.name));
        }
    }
}
