//! Is there an assignment of true and false to the variables that makes every clause true? The algorithm is that of Davis,
//! Putnam, Logemann and Loveland ("A machine program for theorem-proving", 1962).
//!
//! Shows speculation: a job that finds a model returns it as an `Err`, its parent's `?` passes it on, and on the way up all
//! searches that have become pointless are aborted, wherever they run. Unsatisfiable formulas are searched to the end.

mod common;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use common::Mode;
use common::input::{Words, parse_file};
use common::progress::{Counter, Spinner};
use common::random::Random;
use serde::{Deserialize, Serialize};

/// Nodes of the search tree visited by this process.
static VISITED: Counter = Counter::new();

/// Decides whether a Boolean formula can be satisfied
#[derive(Parser)]
#[command(after_help = "Examples:
  sat                        # pigeons that do not fit their holes
  sat --pigeons 8 --compare
  sat --random 250 --seed 3  # as hard as random formulas of that size are
  sat uf50-01.cnf            # a file in DIMACS format, as in SATLIB")]
struct Cli {
    /// Formula in DIMACS conjunctive normal form
    file: Option<PathBuf>,
    /// Without FILE: so many pigeons, each in a hole of its own, and one hole too few
    #[arg(long, default_value_t = 10, conflicts_with = "file", value_parser = clap::value_parser!(i32).range(1..=20))]
    pigeons: i32,
    /// Without FILE: a random formula with so many variables and three literals in each clause
    #[arg(long, value_name = "VARIABLES", conflicts_with_all = ["file", "pigeons"], value_parser = clap::value_parser!(i32).range(3..=1000))]
    random: Option<i32>,
    /// Where the sequence of the random formula starts
    #[arg(long, default_value_t = 1, requires = "random")]
    seed: u64,
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
    let (name, formula, known) = match (&cli.file, cli.random) {
        (Some(path), _) => (
            path.display().to_string(),
            parse_file(path, Formula::parse)?,
            known_answer(path),
        ),
        (None, Some(variables)) => (
            format!("random formula {}", cli.seed),
            Formula::random(variables, cli.seed),
            None,
        ),
        (None, None) => (
            format!("{} pigeons", cli.pigeons),
            Formula::pigeons(cli.pigeons),
            Some(false),
        ),
    };
    println!(
        "{name}: {} variables, {} clauses",
        formula.variables,
        formula.clauses.len()
    );
    let spinner = Spinner::start(|| VISITED.nodes());
    let run = cli.mode.measure(
        || {
            VISITED.reset();
            formula.start()
        },
        |start| start.map_or(Ok(()), |start| solve(&formula, start)),
        |start| start.map_or(Ok(()), |start| satin::seq!(solve(&formula, start))),
        |answer| formula.check(answer, known),
    )?;
    drop(spinner);
    match &run.answer {
        Ok(()) => println!("UNSATISFIABLE"),
        Err(model) => println!("SATISFIABLE\n{model}"),
    }
    VISITED.report();
    run.report();
    Ok(())
}

/// SATLIB's uniform random formulas tell by their names: `uf..` can be satisfied, `uuf..` cannot.
fn known_answer(path: &Path) -> Option<bool> {
    let name = path.file_name()?.to_str()?;
    if name.starts_with("uuf") {
        Some(false)
    } else if name.starts_with("uf") {
        Some(true)
    } else {
        None
    }
}

/// Searches below a partial assignment that contradicts no clause. `Err` is success: it stops everybody else.
#[satin::spawnable]
fn solve(formula: &Formula, assignment: Assignment) -> Result<(), Model> {
    VISITED.add(1);
    let Some(literal) = formula.branch(&assignment) else {
        return Err(Model(assignment));
    };
    for decision in [literal, -literal] {
        if let Some(next) = formula.propagate(&assignment, decision) {
            solve(formula, next)?;
        }
    }
    Ok(())
}

/// As in DIMACS: `v` for variable v, `-v` for its negation, counted from 1.
type Literal = i32;

/// A value for every variable, in order; `None` where it is open.
#[derive(Clone, Serialize, Deserialize)]
struct Assignment(Vec<Option<bool>>);

impl Assignment {
    fn value(&self, literal: Literal) -> Option<bool> {
        self.0[literal.unsigned_abs() as usize - 1].map(|value| value == (literal > 0))
    }

    fn set_true(&mut self, literal: Literal) {
        self.0[literal.unsigned_abs() as usize - 1] = Some(literal > 0);
    }
}

/// An assignment that makes every clause true, whatever the variables are that it leaves open.
#[derive(Serialize, Deserialize)]
struct Model(Assignment);

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v")?;
        for (value, variable) in self.0.0.iter().zip(1..) {
            let literal: Literal = if value.unwrap_or(false) {
                variable
            } else {
                -variable
            };
            write!(f, " {literal}")?;
        }
        write!(f, " 0")
    }
}

/// A conjunction of clauses, each a disjunction of literals.
#[derive(Serialize, Deserialize)]
struct Formula {
    variables: usize,
    clauses: Vec<Vec<Literal>>,
    /// For every literal, at its [`index`], the clauses it stands in.
    occurrences: Vec<Vec<u32>>,
}

fn index(literal: Literal) -> usize {
    2 * (literal.unsigned_abs() as usize - 1) + usize::from(literal < 0)
}

impl Formula {
    fn new(variables: usize, clauses: Vec<Vec<Literal>>) -> Self {
        let mut occurrences = vec![Vec::new(); 2 * variables];
        for (clause, number) in clauses.iter().zip(0..) {
            for &literal in clause {
                occurrences[index(literal)].push(number);
            }
        }
        Self {
            variables,
            clauses,
            occurrences,
        }
    }

    /// The pigeonhole principle, denied: every pigeon has a hole, no two have the same. Resolution needs exponentially many
    /// steps to refute it (Haken, "The intractability of resolution", 1985), and so does this search.
    fn pigeons(pigeons: i32) -> Self {
        let holes = pigeons - 1;
        let sits_in = |pigeon: i32, hole: i32| pigeon * holes + hole + 1;
        let housed =
            (0..pigeons).map(|pigeon| (0..holes).map(|hole| sits_in(pigeon, hole)).collect());
        let alone = (0..holes).flat_map(|hole| {
            (0..pigeons)
                .flat_map(move |a| (0..a).map(move |b| vec![-sits_in(a, hole), -sits_in(b, hole)]))
        });
        Self::new((pigeons * holes) as usize, housed.chain(alone).collect())
    }

    /// Clauses of three different variables at the ratio where half of the formulas can be satisfied, and the search is
    /// longest (Mitchell, Selman, Levesque, "Hard and easy distributions of SAT problems", 1992).
    fn random(variables: i32, seed: u64) -> Self {
        const CLAUSES_PER_VARIABLE: f64 = 4.26;
        let mut random = Random::new(seed);
        let count = (CLAUSES_PER_VARIABLE * f64::from(variables)) as usize;
        let mut clause = || {
            let mut clause: Vec<Literal> = Vec::new();
            while clause.len() < 3 {
                let variable = 1 + random.below(variables as usize) as Literal;
                if !clause.iter().any(|literal| literal.abs() == variable) {
                    clause.push(if random.below(2) == 0 {
                        variable
                    } else {
                        -variable
                    });
                }
            }
            clause
        };
        let clauses = (0..count).map(|_| clause()).collect();
        Self::new(variables as usize, clauses)
    }

    /// Reads DIMACS: comments, `p cnf VARIABLES CLAUSES`, then clauses, each ended by a 0. SATLIB's files have a line with
    /// a `%` after the last clause, and more that does not belong to the formula.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = (1..)
            .zip(text.lines())
            .filter(|(_, line)| !line.trim_start().starts_with('c'))
            .take_while(|(_, line)| !line.trim_start().starts_with('%'));
        let mut words = Words::numbered(lines);
        for expected in ["p", "cnf"] {
            words.expect_valid("the header `p cnf VARIABLES CLAUSES`", |word: &String| {
                word == expected
            })?;
        }
        let variables: u32 = words.expect_valid(
            &format!("a number of variables, at most {VARIABLES_MAX}"),
            |&count| count <= VARIABLES_MAX,
        )?;
        let count: usize = words.expect("the number of clauses")?;
        let mut clauses = Vec::new();
        let mut clause = Vec::new();
        for (line, word) in words {
            let literal: Literal = word
                .parse()
                .ok()
                .with_context(|| format!("line {line}: expected a literal or 0, found `{word}`"))?;
            ensure!(
                literal.unsigned_abs() <= variables,
                "line {line}: literal {literal}, but the header announces {variables} variables"
            );
            if literal == 0 {
                clauses.push(std::mem::take(&mut clause));
            } else {
                clause.push(literal);
            }
        }
        ensure!(clause.is_empty(), "the last clause does not end with a 0");
        if clauses.len() != count {
            bail!(
                "the header announces {count} clauses, but there are {}",
                clauses.len()
            );
        }
        Ok(Self::new(variables as usize, clauses))
    }

    /// The empty assignment and what follows from it; `None` if that is a contradiction already.
    fn start(&self) -> Option<Assignment> {
        let mut assignment = Assignment(vec![None; self.variables]);
        for clause in &self.clauses {
            match clause[..] {
                [] => return None,
                [literal] if assignment.value(literal) != Some(true) => {
                    assignment = self.propagate(&assignment, literal)?;
                }
                _ => {}
            }
        }
        Some(assignment)
    }

    /// The assignment with this literal true, and every other one that then must be. `None` if a clause becomes false.
    fn propagate(&self, assignment: &Assignment, literal: Literal) -> Option<Assignment> {
        if assignment.value(literal) == Some(false) {
            return None;
        }
        let mut next = assignment.clone();
        next.set_true(literal);
        let mut consequences = vec![literal];
        while let Some(literal) = consequences.pop() {
            for &clause in &self.occurrences[index(-literal)] {
                match next.status(&self.clauses[clause as usize]) {
                    Status::False => return None,
                    Status::Unit(forced) => {
                        next.set_true(forced);
                        consequences.push(forced);
                    }
                    Status::True | Status::Open => {}
                }
            }
        }
        Some(next)
    }

    /// The literal to decide next, or `None` if all clauses are true. Short clauses weigh most (Jeroslow, Wang, "Solving
    /// propositional satisfiability problems", 1990), and a variable is good if both its literals have weight.
    fn branch(&self, assignment: &Assignment) -> Option<Literal> {
        const WEIGHT_OF_EMPTY: u64 = 1 << 24;
        let mut weight = vec![0_u64; 2 * self.variables];
        for clause in &self.clauses {
            if clause
                .iter()
                .any(|&literal| assignment.value(literal) == Some(true))
            {
                continue;
            }
            let open = || {
                clause
                    .iter()
                    .copied()
                    .filter(|&literal| assignment.value(literal).is_none())
            };
            let clause_weight = (WEIGHT_OF_EMPTY >> (2 * open().count().min(12))).max(1);
            for literal in open() {
                weight[index(literal)] += clause_weight;
            }
        }
        let (variable, pair) = (1..)
            .zip(weight.chunks_exact(2))
            .filter(|(_, pair)| pair[0] + pair[1] > 0)
            .max_by_key(|(_, pair)| u128::from(pair[0] + 1) * u128::from(pair[1] + 1))?;
        Some(if pair[0] >= pair[1] {
            variable
        } else {
            -variable
        })
    }

    /// # Errors
    /// A model that is none, or an answer other than the known one.
    fn check(&self, answer: &Result<(), Model>, known: Option<bool>) -> anyhow::Result<()> {
        if let Err(Model(assignment)) = answer {
            for (clause, number) in self.clauses.iter().zip(1..) {
                ensure!(
                    clause
                        .iter()
                        .any(|&literal| assignment.value(literal) == Some(true)),
                    "wrong answer: the model does not satisfy clause {number}, {clause:?}"
                );
            }
        }
        match (answer, known) {
            (Ok(()), Some(true)) => bail!("wrong answer: UNSATISFIABLE, but there is a model"),
            (Err(_), Some(false)) => bail!("wrong answer: SATISFIABLE, but there is no model"),
            _ => Ok(()),
        }
    }
}

/// More would be a job for another algorithm: every branch looks at the whole formula.
const VARIABLES_MAX: u32 = 1_000_000;

/// What an assignment makes of a clause.
enum Status {
    True,
    False,
    /// All literals but this one are false.
    Unit(Literal),
    /// Two literals at least are not decided.
    Open,
}

impl Assignment {
    fn status(&self, clause: &[Literal]) -> Status {
        let mut status = Status::False;
        for &literal in clause {
            status = match (self.value(literal), status) {
                (Some(true), _) => return Status::True,
                (Some(false), status) => status,
                (None, Status::False) => Status::Unit(literal),
                // A clause may name a literal twice.
                (None, Status::Unit(other)) if other == literal => Status::Unit(literal),
                (None, _) => Status::Open,
            };
        }
        status
    }
}
