//! Imaginary flows keep the contract of the real ones.

use super::*;

/// A flow of that form whose tasks are leaves.
fn flow(form: FlowForm, width: u32, steps: u32) -> Program {
    let shape = Shape::Flow {
        form: Some(form),
        width,
        steps,
        height: 1,
    };
    let mut program = Program::new(shape, Duration::from_millis(1));
    program.inner = Duration::ZERO;
    program
}

/// The name of a task of the hosted flow, and its result, if the tasks that it reads have these results.
fn task(program: &Program, index: u32, reads: &[u64]) -> (JobName, u64) {
    let task = program.task(program.root(), index, 0, reads.iter().copied());
    let id = JobId::ROOT.child(0).child(index);
    let result = program.below(task).result;
    (JobName::new(id, task.fingerprint()), result)
}

fn ids(taken: &[(DepartureId, Parcel)]) -> Vec<String> {
    taken.iter().map(|(_, job)| job.id.to_string()).collect()
}

impl Outside {
    fn ends_right(&mut self) {
        self.run(1000);
        let right = self.programs[0].sequential().result;
        assert_eq!(self.result(), Some(right));
        assert!(self.workers.is_empty());
        let seen = &self.workers.flows;
        assert_eq!(
            (&seen.too_early, &seen.missed, &seen.wrong),
            (&None, &None, &None)
        );
    }

    fn recalled(&self) -> Vec<(DepartureId, Recall)> {
        let recalled = self.events.iter().filter_map(|event| match event {
            Event::Recalled(departure, why) => Some((*departure, *why)),
            _ => None,
        });
        recalled.collect()
    }
}

#[test]
fn nodes_compute_flows() {
    let mut helped = 0;
    for seed in 0..60 {
        let nodes = 1 + seed as u32 % 4;
        let mut cluster = Cluster::new(seed);
        let threads = 1 + seed as u32 % 3;
        cluster.form(&ProtocolConfig::default(), &[("here", nodes)], threads);
        let shape = Shape::Flow {
            form: None,
            width: 4,
            steps: 4,
            height: 1 + seed as u32 % 3,
        };
        let mut program = Program::new(shape, Duration::from_millis(10)).seeded(seed);
        program.changing = seed % 2 == 0;
        let program = cluster.program(program);
        cluster.start_root(0, program);
        let limit = cluster.outcome(program).time + Duration::from_secs(1);
        assert!(cluster.run_until(limit, |cluster| cluster.is_done(0)));
        cluster.check(0, &[program]);
        for node in 0..nodes {
            cluster.audit(node).expect("all is in order");
            assert_eq!(cluster.waiting_tasks(node), Ok(0));
        }
        helped += u32::from((1..nodes).any(|node| cluster.effort(node).started > 0));
    }
    assert!(helped > 30, "others took tasks in {helped} runs");
}

#[test]
fn a_worker_takes_the_first_task_and_the_gate_the_last_that_can_run() {
    let mut outside = Outside::new(flow(FlowForm::Chains, 4, 2));
    outside.host(false);
    outside.run(0);
    assert_eq!(outside.workers.on_stack(0), ["0", "0.0"]);
    let taken = outside.take();
    assert_eq!(ids(&taken), ["0.3", "0.2"], "half of three");
    outside.run(1);
    assert_eq!(outside.workers.on_stack(0), ["0", "0.1"]);
    // What the first task has made is read by number four, and nobody has made what the others read.
    assert_eq!(ids(&outside.take()), ["0.4"]);
    let (programs, (_, value)) = (outside.programs.clone(), outside.child(3));
    let departure = taken[0].0;
    outside
        .workers
        .deliver(&programs, departure, &result(value));
    assert_eq!(ids(&outside.take()), ["0.7"], "it reads the answer");
}

#[test]
fn what_comes_back_undone_is_run() {
    let mut outside = Outside::new(flow(FlowForm::Wavefront, 3, 3));
    outside.host(false);
    for _ in 0..30 {
        outside.run(1);
        for (departure, _) in outside.take() {
            outside.workers.put_back(departure, Back::default());
        }
    }
    outside.ends_right();
}

#[test]
fn what_another_node_could_not_run_leaves_no_more() {
    let mut outside = Outside::new(flow(FlowForm::Chains, 4, 2));
    outside.host(false);
    outside.run(0);
    let taken = outside.take();
    assert_eq!(ids(&taken), ["0.3", "0.2"]);
    let back = Back {
        stays: true,
        ..Back::default()
    };
    for (departure, _) in taken {
        outside.workers.put_back(departure, back);
    }
    let again = outside.take();
    assert_eq!(ids(&again), ["0.1"]);
    assert_eq!(ids(&outside.take()), [""; 0]);
    (outside.workers).put_back(again[0].0, Back::default());
    outside.ends_right();
}

#[test]
fn a_task_of_a_marked_flow_is_looked_up_when_it_can_run() {
    let program = flow(FlowForm::Chains, 1, 3);
    let (_, first) = task(&program, 0, &[]);
    let (name, value) = task(&program, 1, &[first]);
    let mut outside = Outside::new(program);
    outside.workers.orphan(OrphanNews::Here(name.clone()));
    outside.host(true);
    outside.run(0);
    assert_eq!(outside.claims(), [], "what it reads is missing");
    outside.run(100);
    let [(departure, claimed)] = &outside.claims()[..] else {
        panic!("{:?}", outside.events);
    };
    assert_eq!(*claimed, name.id);
    let (departure, programs) = (*departure, outside.programs.clone());
    outside
        .workers
        .deliver(&programs, departure, &result(value));
    outside.ends_right();
    assert_eq!(outside.workers.done.started, 3, "the flow and two tasks");
}

#[test]
fn a_task_that_read_something_else_is_not_claimed() {
    let program = flow(FlowForm::Chains, 1, 3);
    let (name, _) = task(&program, 1, &[17]);
    let mut outside = Outside::new(program);
    outside.workers.orphan(OrphanNews::Here(name));
    outside.host(true);
    outside.ends_right();
    assert_eq!(outside.claims(), []);
}

#[test]
fn tasks_of_a_marked_flow_leave_when_it_is_known_that_nobody_has_them() {
    let program = flow(FlowForm::Chains, 4, 2);
    let (name, _) = task(&program, 3, &[]);
    let mut outside = Outside::new(program);
    outside.workers.orphan(OrphanNews::Settled(false));
    outside.host(true);
    outside.run(0);
    assert_eq!(ids(&outside.take()), [""; 0]);
    outside.ends_right();

    let mut outside = Outside::new(flow(FlowForm::Chains, 4, 2));
    outside.workers.orphan(OrphanNews::Settled(false));
    outside.host(true);
    outside.run(0);
    assert_eq!(ids(&outside.take()), [""; 0]);
    outside.workers.orphan(OrphanNews::Here(name));
    outside.workers.orphan(OrphanNews::Settled(true));
    let taken = outside.take();
    assert_eq!(ids(&taken), ["0.2", "0.1"]);
    assert!(!taken[0].1.history.marked, "nothing can be below it");
    outside.run(100);
    assert_eq!(outside.claims().len(), 1, "the last one is looked up");
}

#[test]
fn a_flow_that_stops_recalls_what_is_away() {
    for give_up in [false, true] {
        let mut outside = Outside::new(flow(FlowForm::Chains, 4, 2));
        outside.host(false);
        outside.run(0);
        let taken = outside.take();
        let why = match give_up {
            true => Recall::Abandoned,
            false => Recall::Unwanted,
        };
        match give_up {
            true => outside.workers.save(KEY),
            false => outside.workers.abort(KEY),
        }
        outside.run(1);
        let recalled: Vec<_> = taken.iter().map(|(away, _)| (*away, why)).collect();
        assert_eq!(outside.recalled(), recalled);
        assert!(outside.workers.is_empty());
        assert_eq!(outside.workers.done.started, 2, "the flow and a task");
    }
}

#[test]
fn a_task_that_panics_stops_the_flow() {
    let mut outside = Outside::new(flow(FlowForm::Wavefront, 3, 3));
    outside.host(false);
    outside.run(2);
    let taken = outside.take();
    let programs = outside.programs.clone();
    let story = Answer::Panicked("it went wrong".into());
    outside.workers.deliver(&programs, taken[0].0, &story);
    outside.run(100);
    let done = format!("{:?}", Event::Done(KEY, story));
    let mut events = outside.events.iter();
    assert!(events.any(|event| format!("{event:?}") == done));
    assert!(outside.workers.is_empty());
}

#[test]
fn a_flow_runs_its_own_tasks_however_little_stack_is_left() {
    let ends = |without: &[Rule]| {
        let mut outside = Outside::new(flow(FlowForm::Lu, 3, 3));
        let without = without.iter().copied().collect();
        outside.workers = ImaginaryWorkers::new(1, 1, without);
        outside.workers.nesting = 1;
        outside.host(false);
        outside.run(1000);
        outside.result().is_some()
    };
    assert_eq!([ends(&[]), ends(&[Rule::OwnTasks])], [true, false]);
}

/// Tasks that the gate has left to the workers are of all flows: a worker without room begins none of an outer flow on top of an inner one.
#[test]
fn without_room_a_worker_runs_tasks_of_its_own_flow_alone() {
    let shape = Shape::Flow {
        form: Some(FlowForm::Chains),
        width: 8,
        steps: 2,
        height: 2,
    };
    let mut nested = 0;
    for seed in 0..200 {
        let mut program = Program::new(shape, Duration::from_millis(1)).seeded(seed);
        program.inner = Duration::ZERO;
        if program.flow(program.root()).is_none() {
            continue;
        }
        let mut outside = Outside::new(program);
        outside.workers.nesting = 2;
        outside.workers.orphan(OrphanNews::Settled(false));
        outside.host(true);
        for _ in 0..100 {
            outside.run(1);
            // Spawned jobs may leave; tasks stay until they have been looked up.
            for (departure, _) in outside.take() {
                outside.workers.put_back(departure, Back::default());
            }
            let stack = outside.workers.on_stack(0);
            let outer = stack.iter().filter(|id| id.matches('.').count() == 1);
            assert!(outer.count() <= 1, "{stack:?}");
            nested += u32::from(stack.len() == 3);
        }
        outside.ends_right();
    }
    assert!(nested > 100, "{nested}");
}

#[test]
fn a_flow_that_runs_again_may_have_another_text_or_other_data() {
    let mut names = BTreeSet::new();
    for nonce in 0..40 {
        let mut program = flow(FlowForm::Wavefront, 3, 2);
        program.changing = true;
        let mut outside = Outside::new(program);
        outside.workers = ImaginaryWorkers::new(1, nonce, [].into());
        outside.host(false);
        outside.run(2);
        for (departure, parcel) in outside.take() {
            names.insert((parcel.id, parcel.fingerprint.0));
            outside.workers.put_back(departure, Back::default());
        }
        outside.ends_right();
    }
    assert!(names.len() > 5, "{names:?}");
}
