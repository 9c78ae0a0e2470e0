//! The quadratic assignment problem by branch and bound, on instances in the format of QAPLIB: put n facilities on n
//! locations such that the sum of flow times distance over all pairs of facilities is least.
//!
//! A job is a partial assignment; its children put the next facility on each free location. The lower bound is that of Gilmore
//! ("Optimal and suboptimal algorithms for the quadratic assignment problem", 1962) and Lawler ("The quadratic assignment
//! problem", 1963), with the linear assignment problem in it solved by the Hungarian method.
//!
//! Shows jobs of some microseconds, and pruning by what others have found, wherever they are: the best assignment is a bound.
//! It is the answer too, so the jobs themselves return nothing, and what only equals it can be left out.

mod common;

use std::ops::Index;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Parser;
use common::Mode;
use common::input::{Words, parse_file};
use common::progress::{Counter, Spinner};
use common::random::Random;
use satin::MinWith;
use serde::{Deserialize, Serialize};

/// Nodes of the search tree visited by this process.
static VISITED: Counter = Counter::new();

satin::bound! {
    /// The cheapest assignment that anybody has come across in the search: its cost, and the locations.
    static BEST: MinWith<u64, Vec<u8>>;
}

/// Assigns facilities to locations at the least cost
#[derive(Parser)]
#[command(after_help = "Examples:
  qap                   # 14 facilities, built in
  qap nug12.dat
  qap nug15.dat --compare")]
struct Cli {
    /// Instance in the format of QAPLIB; a solution `.sln` beside the `.dat` is used to check the answer [default:
    /// nug14, built in]
    file: Option<PathBuf>,
    /// Begin with every facility at the location of its number, not with a good assignment
    #[arg(long)]
    cold: bool,
    #[command(flatten)]
    mode: Mode,
    #[command(flatten)]
    satin: satin::Args,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    satin::run(cli.satin.clone(), || run(&cli))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let (name, instance, known) = match &cli.file {
        Some(path) => {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            (
                name,
                parse_file(path, Instance::parse)?,
                known_optimum(path)?,
            )
        }
        None => (
            "nug14".to_owned(),
            Instance::parse(NUG14)?,
            Some(NUG14_OPTIMUM),
        ),
    };
    let heuristic = if cli.cold {
        instance.in_order()
    } else {
        instance.local_search()
    };
    let problem = Problem::new(&instance, heuristic.cost);
    let root = problem.root();
    println!(
        "{name}: {} facilities, at least {}, at most {}",
        instance.flows.size, root.bound, heuristic.cost
    );

    let best = || match BEST.get() {
        Some((cost, locations)) => problem.in_order_of_instance(Assignment { cost, locations }),
        None => heuristic.clone(),
    };
    let ceiling = problem.ceiling;
    let spinner = Spinner::start(move || {
        format!(
            "{}, best {}",
            VISITED.nodes(),
            BEST.cost().unwrap_or(ceiling)
        )
    });
    let run = cli.mode.measure(
        || {
            VISITED.reset();
            root.clone()
        },
        |root| {
            search(&problem, root);
            best()
        },
        |root| {
            satin::seq!(search(&problem, root));
            best()
        },
        |assignment| instance.check(assignment, known),
    )?;
    drop(spinner);

    let verdict = if known.is_some() {
        "the known optimum"
    } else {
        "proved optimal, not checked: no known answer"
    };
    println!("locations {}", run.answer);
    println!("cost {} ({verdict})", run.answer.cost);
    VISITED.report();
    run.report();
    Ok(())
}

/// Offers the cheapest assignment below this one, if it costs less than the ceiling and than the best so far.
#[satin::spawnable]
fn search(problem: &Problem, partial: Partial) {
    // What only equals the ceiling is not searched: the caller has that assignment. Nor what only equals the best: whoever
    // has found that might be lost, but has offered the assignment with its cost.
    if partial.bound >= problem.ceiling || BEST.prunes(&partial.bound) {
        return;
    }
    VISITED.add(1);
    if partial.locations.len() == problem.flows.size {
        BEST.offer(partial.bound, partial.locations.into());
        return;
    }
    for child in problem.children(&partial) {
        search(problem, child);
    }
}

/// Locations of the first facilities, in the order of the search. Twenty-four bytes, so that a job is cheap to spawn.
#[derive(Clone, Serialize, Deserialize)]
struct Partial {
    /// No assignment that begins so costs less; of a complete one, the cost.
    bound: u64,
    locations: Box<[u8]>,
}

/// A location for every facility.
#[derive(Clone, Serialize, Deserialize)]
struct Assignment {
    cost: u64,
    locations: Vec<u8>,
}

impl std::fmt::Display for Assignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let locations: Vec<_> = self
            .locations
            .iter()
            .map(|location| (location + 1).to_string())
            .collect();
        f.write_str(&locations.join(" "))
    }
}

/// A square matrix.
#[derive(Clone, Serialize, Deserialize)]
struct Matrix {
    size: usize,
    cells: Vec<u32>,
}

impl Index<(usize, usize)> for Matrix {
    type Output = u32;

    fn index(&self, (row, column): (usize, usize)) -> &u32 {
        &self.cells[row * self.size + column]
    }
}

impl Matrix {
    fn from_fn(size: usize, cell: impl Fn(usize, usize) -> u32) -> Self {
        Self {
            size,
            cells: (0..size * size).map(|i| cell(i / size, i % size)).collect(),
        }
    }
}

/// An instance as it is given.
struct Instance {
    flows: Matrix,
    distances: Matrix,
}

/// Facilities are numbered by bytes and locations are the bits of a mask.
const SIZE_MAX: usize = 64;

/// Keeps every cost, and every sum on the way to one, far within 64 bits.
const CELL_MAX: u32 = 10_000_000;

impl Instance {
    /// Reads QAPLIB's format: the size, then two square matrices. By convention of the Nugent instances the first holds the
    /// distances, but the cost is the same if they change roles; here the first is taken for the flows.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut words = Words::new(text);
        let size: usize = words.expect_valid(
            &format!("a number of facilities from 2 to {SIZE_MAX}"),
            |size| (2..=SIZE_MAX).contains(size),
        )?;
        let mut matrix = |cell: &str| -> anyhow::Result<Matrix> {
            let expected = format!("{cell} of at most {CELL_MAX}");
            let cells =
                (0..size * size).map(|_| words.expect_valid(&expected, |&cell| cell <= CELL_MAX));
            Ok(Matrix {
                size,
                cells: cells.collect::<anyhow::Result<_>>()?,
            })
        };
        let flows = matrix("a flow")?;
        let distances = matrix("a distance")?;
        words.expect_end()?;
        Ok(Self { flows, distances })
    }

    fn cost(&self, locations: &[u8]) -> u64 {
        let placed = || locations.iter().copied().map(usize::from).enumerate();
        placed()
            .flat_map(|(a, at)| placed().map(move |(b, bt)| (a, at, b, bt)))
            .map(|(a, at, b, bt)| {
                u64::from(self.flows[(a, b)]) * u64::from(self.distances[(at, bt)])
            })
            .sum()
    }

    fn in_order(&self) -> Assignment {
        let locations: Vec<u8> = (0..self.flows.size as u8).collect();
        Assignment {
            cost: self.cost(&locations),
            locations,
        }
    }

    /// From a number of beginnings, exchange the pair of facilities that saves most until none saves anything; the best.
    fn local_search(&self) -> Assignment {
        const BEGINNINGS: u64 = 50;
        let n = self.flows.size;
        let found = (0..BEGINNINGS).map(|beginning| {
            let mut random = Random::new(beginning);
            let mut locations: Vec<u8> = (0..n as u8).collect();
            for i in 1..n {
                locations.swap(i, random.below(i + 1));
            }
            let mut cost = self.cost(&locations);
            while let Some(improved) = self.best_exchange(&mut locations, cost) {
                cost = improved;
            }
            Assignment { cost, locations }
        });
        found
            .min_by_key(|assignment| assignment.cost)
            .expect("there are beginnings")
    }

    /// Makes the best exchange and returns the new cost, if it is less.
    fn best_exchange(&self, locations: &mut [u8], cost: u64) -> Option<u64> {
        let n = locations.len();
        let mut best = (cost, 0, 0);
        for a in 0..n {
            for b in a + 1..n {
                locations.swap(a, b);
                best = best.min((self.cost(locations), a, b));
                locations.swap(a, b);
            }
        }
        let (improved, a, b) = best;
        locations.swap(a, b);
        (improved < cost).then_some(improved)
    }

    /// # Errors
    /// If this is no assignment, does not cost what it says, or not what the known one does.
    fn check(&self, assignment: &Assignment, known: Option<u64>) -> anyhow::Result<()> {
        let mut locations = assignment.locations.clone();
        locations.sort_unstable();
        ensure!(
            locations
                .iter()
                .map(|&location| usize::from(location))
                .eq(0..self.flows.size),
            "wrong answer: {assignment} does not use every location once"
        );
        let cost = self.cost(&assignment.locations);
        ensure!(
            cost == assignment.cost,
            "wrong answer: the assignment costs {cost}, not {}",
            assignment.cost
        );
        if let Some(known) = known {
            ensure!(
                cost == known,
                "wrong answer: the assignment costs {cost}, but the optimum is {known}"
            );
        }
        Ok(())
    }
}

/// The optimum in the `.sln` beside this file, if there is one: the size, the optimum, an assignment.
fn known_optimum(path: &Path) -> anyhow::Result<Option<u64>> {
    let solution = path.with_extension("sln");
    if !solution.exists() {
        return Ok(None);
    }
    parse_file(&solution, |text| {
        let mut words = Words::new(text);
        words.expect::<usize>("the number of facilities")?;
        words.expect("the cost of the optimum").map(Some)
    })
}

/// What every job needs to know.
#[derive(Serialize, Deserialize)]
struct Problem {
    /// Facilities renumbered in the order of the search.
    flows: Matrix,
    distances: Matrix,
    /// The facility of the instance that each facility here is.
    order: Vec<u8>,
    /// For each number of facilities placed, for each other facility, its flows to the others not placed, descending.
    flows_ahead: Vec<Vec<Vec<u32>>>,
    /// For each location the others, the nearest first.
    neighbours: Vec<Vec<u8>>,
    /// Cost of the assignment that is known from the start: searches offer only what is cheaper.
    ceiling: u64,
}

impl Problem {
    fn new(instance: &Instance, ceiling: u64) -> Self {
        let Instance {
            flows: given,
            distances,
        } = instance;
        let n = given.size;
        // The facilities with the largest flows come first: a bad place for them shows early.
        let mut order: Vec<u8> = (0..n as u8).collect();
        order.sort_by_key(|&a| {
            let a = usize::from(a);
            std::cmp::Reverse(
                (0..n)
                    .map(|b| u64::from(given[(a, b)]) + u64::from(given[(b, a)]))
                    .sum::<u64>(),
            )
        });
        let flows = Matrix::from_fn(n, |a, b| given[(order[a].into(), order[b].into())]);
        let flows_ahead = (0..n)
            .map(|placed| {
                (placed..n)
                    .map(|a| {
                        let mut ahead: Vec<u32> = (placed..n)
                            .filter(|&b| b != a)
                            .map(|b| flows[(a, b)])
                            .collect();
                        ahead.sort_unstable_by(|x, y| y.cmp(x));
                        ahead
                    })
                    .collect()
            })
            .collect();
        let neighbours = (0..n)
            .map(|at| {
                let mut others: Vec<u8> = (0..n as u8)
                    .filter(|&other| usize::from(other) != at)
                    .collect();
                others.sort_by_key(|&other| distances[(at, other.into())]);
                others
            })
            .collect();
        Self {
            flows,
            distances: distances.clone(),
            order,
            flows_ahead,
            neighbours,
            ceiling,
        }
    }

    fn in_order_of_instance(&self, found: Assignment) -> Assignment {
        let mut locations = vec![0; found.locations.len()];
        for (&facility, &location) in self.order.iter().zip(&found.locations) {
            locations[usize::from(facility)] = location;
        }
        Assignment { locations, ..found }
    }

    fn root(&self) -> Partial {
        Partial {
            bound: self.bound(&[]),
            locations: Box::default(),
        }
    }

    /// The assignments with one facility more that are worth a look, the most promising first.
    fn children(&self, partial: &Partial) -> Vec<Partial> {
        let mut children: Vec<Partial> = (0..self.flows.size as u8)
            .filter(|location| !partial.locations.contains(location))
            .map(|location| {
                let locations: Box<[u8]> = partial
                    .locations
                    .iter()
                    .copied()
                    .chain([location])
                    .collect();
                Partial {
                    bound: self.bound(&locations).max(partial.bound),
                    locations,
                }
            })
            .filter(|child| child.bound < self.ceiling)
            .collect();
        children.sort_by_key(|child| child.bound);
        children
    }

    /// The bound of Gilmore and Lawler: if each of the remaining facilities could choose, apart from a location of its own,
    /// the locations of the other remaining ones to its liking.
    fn bound(&self, locations: &[u8]) -> u64 {
        let (n, placed) = (self.flows.size, locations.len());
        let at = |facility: usize| usize::from(locations[facility]);
        let product = |a: usize, b: usize, at: usize, bt: usize| {
            i64::from(self.flows[(a, b)]) * i64::from(self.distances[(at, bt)])
        };
        let fixed: i64 = (0..placed)
            .map(|a| {
                (0..placed)
                    .map(|b| product(a, b, at(a), at(b)))
                    .sum::<i64>()
            })
            .sum();

        let used = locations
            .iter()
            .fold(0_u64, |used, location| used | 1 << location);
        let is_free = |location: usize| used & (1 << location) == 0;
        let free: Vec<usize> = (0..n).filter(|&location| is_free(location)).collect();
        let nearest: Vec<Vec<u32>> = free
            .iter()
            .map(|&from| {
                let neighbours = self.neighbours[from].iter().map(|&to| usize::from(to));
                neighbours
                    .filter(|&to| is_free(to))
                    .map(|to| self.distances[(from, to)])
                    .collect()
            })
            .collect();
        let mut costs = Vec::with_capacity(free.len() * free.len());
        for (facility, ahead) in (placed..n).zip(self.flows_ahead.get(placed).into_iter().flatten())
        {
            for (&location, nearest) in free.iter().zip(&nearest) {
                let own = product(facility, facility, location, location);
                let to_placed: i64 = (0..placed)
                    .map(|a| {
                        product(facility, a, location, at(a))
                            + product(a, facility, at(a), location)
                    })
                    .sum();
                let to_others: i64 = ahead
                    .iter()
                    .zip(nearest)
                    .map(|(&flow, &distance)| i64::from(flow) * i64::from(distance))
                    .sum();
                costs.push(own + to_placed + to_others);
            }
        }
        (fixed + cheapest_matching(&costs, free.len())) as u64
    }
}

/// The linear assignment problem: one cell of each row and column of the square matrix such that their sum is least. The Hungarian
/// method with shortest augmenting paths (Jonker, Volgenant, "A shortest augmenting path algorithm for dense and sparse
/// linear assignment problems", 1987).
fn cheapest_matching(costs: &[i64], n: usize) -> i64 {
    // Column 0 and row 0 are imaginary: a row is matched by first giving it column 0, then moving it to a real one.
    let mut row_of = vec![0; n + 1];
    let mut row_price = vec![0; n + 1];
    let mut column_price = vec![0; n + 1];
    let mut came_from = vec![0; n + 1];
    let mut slack = vec![i64::MAX; n + 1];
    let mut done = vec![false; n + 1];
    for row in 1..=n {
        row_of[0] = row;
        slack.fill(i64::MAX);
        done.fill(false);
        let mut column = 0;
        while row_of[column] != 0 {
            done[column] = true;
            let current = row_of[column];
            let (mut least, mut next) = (i64::MAX, 0);
            for other in 1..=n {
                if done[other] {
                    continue;
                }
                let reduced =
                    costs[(current - 1) * n + other - 1] - row_price[current] - column_price[other];
                if reduced < slack[other] {
                    slack[other] = reduced;
                    came_from[other] = column;
                }
                if slack[other] < least {
                    (least, next) = (slack[other], other);
                }
            }
            for other in 0..=n {
                if done[other] {
                    row_price[row_of[other]] += least;
                    column_price[other] -= least;
                } else {
                    slack[other] = slack[other].saturating_sub(least);
                }
            }
            column = next;
        }
        while column != 0 {
            row_of[column] = row_of[came_from[column]];
            column = came_from[column];
        }
    }
    (1..=n)
        .map(|column| costs[(row_of[column] - 1) * n + column - 1])
        .sum()
}

/// Nugent, Vollmann, Ruml, "An experimental comparison of techniques for the assignment of facilities to locations", 1968.
const NUG14: &str = "\
14
0 1 2 3 4 1 2 3 4 5 2 3 4 5
1 0 1 2 3 2 1 2 3 4 3 2 3 4
2 1 0 1 2 3 2 1 2 3 4 3 2 3
3 2 1 0 1 4 3 2 1 2 5 4 3 2
4 3 2 1 0 5 4 3 2 1 6 5 4 3
1 2 3 4 5 0 1 2 3 4 1 2 3 4
2 1 2 3 4 1 0 1 2 3 2 1 2 3
3 2 1 2 3 2 1 0 1 2 3 2 1 2
4 3 2 1 2 3 2 1 0 1 4 3 2 1
5 4 3 2 1 4 3 2 1 0 5 4 3 2
2 3 4 5 6 1 2 3 4 5 0 1 2 3
3 2 3 4 5 2 1 2 3 4 1 0 1 2
4 3 2 3 4 3 2 1 2 3 2 1 0 1
5 4 3 2 3 4 3 2 1 2 3 2 1 0
0 10 0 5 1 0 1 2 2 2 2 0 4 0
10 0 1 3 2 2 2 3 2 0 2 0 10 5
0 1 0 10 2 0 2 5 4 5 2 2 5 5
5 3 10 0 1 1 5 0 0 2 1 0 2 5
1 2 2 1 0 3 5 5 5 1 0 3 0 5
0 2 0 1 3 0 2 2 1 5 0 0 2 5
1 2 2 5 5 2 0 6 0 1 5 5 5 1
2 3 5 0 5 2 6 0 5 2 10 0 5 0
2 2 4 0 5 1 0 5 0 0 10 5 10 0
2 0 5 2 1 5 1 2 0 0 0 4 0 0
2 2 2 1 0 0 5 10 10 0 0 5 0 5
0 0 2 0 3 0 5 0 5 4 5 0 3 3
4 10 5 2 0 2 5 5 10 0 0 3 0 10
0 5 5 5 5 5 1 0 0 0 5 3 10 0";

const NUG14_OPTIMUM: u64 = 1014;
