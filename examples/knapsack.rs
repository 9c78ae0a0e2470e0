//! The knapsack problem by branch and bound: of items with a value and a weight, choose those worth most that the knapsack
//! can carry.
//!
//! A job has decided about the first items, in the order of value per weight; its children take the next item, or leave it. No
//! choice below it is worth more than if the rest could be cut to fill the knapsack (Dantzig, "Discrete-variable extremum
//! problems", 1957). The answer is compared with that of dynamic programming (Bellman, 1957), which looks at every item and
//! every capacity.
//!
//! Shows a bound with a witness, `MaxWith`: the most valuable choice that anybody has found, with its items. The jobs return a
//! value too; what is left out returns the value that made it superfluous, so both must come to the same, whatever happens to
//! the nodes meanwhile.

mod common;

use anyhow::ensure;
use clap::Parser;
use common::Mode;
use common::progress::{Counter, Spinner};
use common::random::Random;
use satin::MaxWith;
use serde::{Deserialize, Serialize};

/// Nodes of the search tree visited by this process.
static VISITED: Counter = Counter::new();

satin::bound! {
    /// The most valuable choice that anybody has come across: its value, and the items by their numbers.
    static BEST: MaxWith<u64, Vec<u16>>;
}

/// Fills a knapsack with the most valuable items
#[derive(Parser)]
#[command(after_help = "Examples:
  knapsack
  knapsack --items 60 --seed 3 --compare
  knapsack --items 45 --extra 100 --spread 0    # of the hardest kind")]
struct Cli {
    /// Items to choose from
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    items: u16,
    /// Random numbers begin with this one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Each item is worth its weight and so much more: with a tenth of the largest weight, 100, it is hardest
    #[arg(long, default_value_t = 0)]
    extra: u16,
    /// Values differ from that by so much at most: the less, the harder
    #[arg(long, default_value_t = 10)]
    spread: u16,
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
    let problem = Problem::random(cli);
    let (capacity, total) = (problem.capacity, problem.weight(0..cli.items));
    println!(
        "{} items of weight {total} in all, room for {capacity}",
        cli.items
    );
    let optimum = problem.optimum();
    let root = || Choice {
        next: 0,
        value: 0,
        room: capacity,
        taken: Vec::new(),
    };
    let found = |returned| {
        let (value, items) = BEST.get().unwrap_or_default();
        Found {
            returned,
            value,
            items,
        }
    };
    let spinner = Spinner::start(|| {
        let best = BEST.cost().unwrap_or_default();
        format!("{}, best {best}", VISITED.nodes())
    });
    let run = cli.mode.measure(
        || {
            VISITED.reset();
            root()
        },
        |root| found(search(&problem, root)),
        |root| found(satin::seq!(search(&problem, root))),
        |found| problem.check(found, optimum),
    )?;
    drop(spinner);
    println!("items {}", run.answer);
    println!("value {} (the optimum)", run.answer.value);
    VISITED.report();
    run.report();
    Ok(())
}

/// Offers the most valuable choice that begins so, if it is worth more than the best so far. Returns the value of the best
/// that it knows.
#[satin::spawnable]
fn search(problem: &Problem, choice: Choice) -> u64 {
    VISITED.add(1);
    let most = choice.value + problem.rest_at_most(choice.next, choice.room);
    if let Some(best) = BEST.cost()
        && most <= best
    {
        return best;
    }
    let Some(item) = problem.items.get(usize::from(choice.next)) else {
        BEST.offer(choice.value, choice.taken);
        return choice.value;
    };
    let without = Choice {
        next: choice.next + 1,
        ..choice.clone()
    };
    if item.weight > choice.room {
        return satin::call!(search(problem, without));
    }
    let with = Choice {
        next: choice.next + 1,
        value: choice.value + u64::from(item.value),
        room: choice.room - item.weight,
        taken: choice.taken.iter().copied().chain([choice.next]).collect(),
    };
    let taken = search(problem, with);
    let left = search(problem, without);
    satin::sync!();
    taken.max(left)
}

/// What has been decided about the first items.
#[derive(Clone, Serialize, Deserialize)]
struct Choice {
    /// The first that nothing has been decided about.
    next: u16,
    value: u64,
    room: u32,
    taken: Vec<u16>,
}

/// What came out.
struct Found {
    /// By the root job.
    returned: u64,
    /// The bound's.
    value: u64,
    items: Vec<u16>,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let items: Vec<String> = self.items.iter().map(u16::to_string).collect();
        f.write_str(&items.join(" "))
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Item {
    value: u32,
    weight: u32,
}

#[derive(Serialize, Deserialize)]
struct Problem {
    /// The most valuable by weight first.
    items: Vec<Item>,
    capacity: u32,
}

/// The heaviest item.
const WEIGHT_MAX: usize = 1000;

impl Problem {
    /// Items that weigh up to [`WEIGHT_MAX`] and are worth about as much, or as much and `extra`; half of them fit. Weakly
    /// and strongly correlated ones, by their usual names (Pisinger, "Where are the hard knapsack problems?", 2005).
    fn random(cli: &Cli) -> Problem {
        let mut random = Random::new(cli.seed);
        let mut items: Vec<Item> = (0..cli.items)
            .map(|_| {
                let weight = 1 + random.below(WEIGHT_MAX) as u32;
                let more =
                    random.below(2 * usize::from(cli.spread) + 1) as u32 + u32::from(cli.extra);
                let value = (weight + more).saturating_sub(u32::from(cli.spread)).max(1);
                Item { value, weight }
            })
            .collect();
        items.sort_by(|a, b| {
            (u64::from(b.value) * u64::from(a.weight))
                .cmp(&(u64::from(a.value) * u64::from(b.weight)))
        });
        let capacity = items.iter().map(|item| item.weight).sum::<u32>() / 2;
        Problem { items, capacity }
    }

    fn weight(&self, items: impl IntoIterator<Item = u16>) -> u32 {
        let items = items.into_iter();
        items.map(|item| self.items[usize::from(item)].weight).sum()
    }

    /// Items from there on are worth no more than that, if there is so much room.
    fn rest_at_most(&self, next: u16, mut room: u32) -> u64 {
        let mut value = 0;
        for item in &self.items[usize::from(next)..] {
            if item.weight > room {
                return value + u64::from(item.value) * u64::from(room) / u64::from(item.weight);
            }
            room -= item.weight;
            value += u64::from(item.value);
        }
        value
    }

    /// By dynamic programming: the most value for every capacity, with one more item each time.
    fn optimum(&self) -> u64 {
        let mut best = vec![0u64; self.capacity as usize + 1];
        for item in &self.items {
            let weight = item.weight as usize;
            for room in (weight..best.len()).rev() {
                best[room] = best[room].max(best[room - weight] + u64::from(item.value));
            }
        }
        best[self.capacity as usize]
    }

    /// # Errors
    /// If value, items and result do not agree, the items are too heavy, or others are worth more.
    fn check(&self, found: &Found, optimum: u64) -> anyhow::Result<()> {
        let Found {
            returned,
            value,
            items,
        } = found;
        ensure!(
            items.is_sorted_by(|a, b| a < b)
                && items
                    .iter()
                    .all(|&item| usize::from(item) < self.items.len()),
            "wrong answer: {found} are not items, each once"
        );
        let weight = self.weight(items.iter().copied());
        ensure!(
            weight <= self.capacity,
            "wrong answer: items of weight {weight} do not fit into {}",
            self.capacity
        );
        let worth: u64 = (items.iter())
            .map(|&item| u64::from(self.items[usize::from(item)].value))
            .sum();
        ensure!(
            worth == *value,
            "wrong answer: the items are worth {worth}, and the bound says {value}"
        );
        ensure!(
            returned == value,
            "wrong answer: the search returned {returned}, and the bound says {value}"
        );
        ensure!(
            *value == optimum,
            "wrong answer: {value}, but the optimum is {optimum}"
        );
        Ok(())
    }
}
